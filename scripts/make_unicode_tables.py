#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/data/unicode_tables.h: which code points are letters (L*), numbers (N*) or white space.

    python3 scripts/make_unicode_tables.py > src/data/unicode_tables.h

The Unicode version is that of the Python that runs it. White_Space is the union of the categories Zs, Zl and Zp with
U+0009..U+000D and U+0085 (PropList.txt).
"""
import itertools
import textwrap
import unicodedata


def kind(code):
    category = unicodedata.category(chr(code))
    if category[0] == "L":
        return 1
    if category[0] == "N":
        return 2
    return 3 if category in ("Zs", "Zl", "Zp") or 9 <= code <= 13 or code == 0x85 else 0


runs = [4 * next(codes) + number for number, codes in itertools.groupby(range(0x110000), kind)]
print("/* SPDX-License-Identifier: Apache-2.0")
print(" *")
print(f" * Unicode {unicodedata.unidata_version}: runs of code points of one kind: 4 times the first one, plus 1 for letters, 2 for")
print(" * numbers, 3 for white space and 0 for all others.")
print(" * Made by scripts/make_unicode_tables.py; included by pretoken.c only.")
print(" */")
print("/* clang-format off */")
print("static const uint32_t RUNS[] = {")
print(textwrap.fill(", ".join(map(str, runs)) + ",", 116, initial_indent="    ", subsequent_indent="    "))
print("};")
print("/* clang-format on */")

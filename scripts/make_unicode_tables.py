#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/data/unicode_tables.h: code points that are letters (L*), numbers (N*) or white space.

    python3 scripts/make_unicode_tables.py > src/data/unicode_tables.h

The Unicode version is that of the Python that runs it. White_Space is the union of the categories Zs, Zl and Zp with
U+0009..U+000D and U+0085 (PropList.txt).
"""
import sys
import unicodedata


def kind(code):
    category = unicodedata.category(chr(code))
    if category[0] == "L":
        return "LETTER"
    if category[0] == "N":
        return "NUMBER"
    if category in ("Zs", "Zl", "Zp") or 9 <= code <= 13 or code == 0x85:
        return "SPACE"
    return None


def ranges():
    start, current = 0, None
    for code in range(0x110000 + 1):
        now = kind(code) if code < 0x110000 else None
        if now != current:
            if current is not None:
                yield start, code - 1, current
            start, current = code, now


tables = {"LETTER": [], "NUMBER": [], "SPACE": []}
for first, last, name in ranges():
    tables[name].append(f"{{0x{first:x}, 0x{last:x}}},")
print("/* SPDX-License-Identifier: Apache-2.0")
print(" *")
print(f" * Unicode {unicodedata.unidata_version}: ranges of letters, numbers and white space, in order.")
print(" * Made by scripts/make_unicode_tables.py; included by pretoken.c only.")
print(" */")
print("/* clang-format off */")
for name, rows in tables.items():
    print(f"static const uint32_t {name.lower()}s[][2] = {{")
    for at in range(0, len(rows), 6):
        print("    " + " ".join(rows[at:at + 6]))
    print("};")
print("/* clang-format on */")
if sum(map(len, tables.values())) > 2000:
    sys.exit("far more ranges than expected")

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Names are unambiguous: no type, enumerator, macro or function has two definitions; no identifier uses a word of our own
# where the field has a standard term; no two .c files call each other, directly or in a ring. Comments, and docstrings of the
# Python package, say who does what, and static functions are verb + object. Prints every violation and exits with 1 when there is one.
# It reads the sources as text and needs no build.
cd "$(dirname "$0")/.." || exit 2
exec python3 scripts/check_names.py

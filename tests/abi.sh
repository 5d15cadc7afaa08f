#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares what programs that are built with libtacit rely on - exported symbols, types of functions, places of members, values of enums -
# with the record of this minor version, abi/MAJOR.MINOR.txt. What a program of an earlier patch needs may not go or change; what is new is
# recorded: with --record, which is for the commit that adds it. Needs cc, nm and python3.
# Usage: abi.sh [--record] [LIBRARY]
cd "$(dirname "$0")/.." || exit 2
[ "$(uname -m) $(getconf LONG_BIT)" = "x86_64 64" ] || exit 77 # the record has the sizes of this machine
record=()
[ "$1" = --record ] && record=(--record) && shift
library=${1:-build/release/lib/libtacit.so}
version=$(sed -n 's/^#define TACIT_VERSION_\(MAJOR\|MINOR\) //p' include/tacit/tacit.h | paste -sd.)
python3 tests/abi.py include/tacit/tacit.h "$library" "abi/$version.txt" "${record[@]}" ||
  { echo "the interface is not that of abi/$version.txt; tests/abi.sh --record takes what is new"; exit 1; }

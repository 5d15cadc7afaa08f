#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check-names.sh finds what it promises to find, and nothing in a tree that is right.
cd "$(dirname "$0")/.." || exit 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# tree: a fresh copy with two files that are right
tree() {
  rm -rf "$folder"/* && mkdir -p "$folder/scripts" "$folder/src/base" "$folder/src/exchange"
  cp scripts/check-names.sh scripts/check_names.py "$folder/scripts"
  printf '%s\n' '#include "base/b.h"' 'typedef struct taciti_a taciti_a;' 'int taciti_a_of(void);' >"$folder/src/base/a.h"
  printf '%s\n' 'enum { TACITI_B };' 'int taciti_b_of(void);' >"$folder/src/base/b.h"
  printf '%s\n' 'struct taciti_a { int spread; };' 'int taciti_a_of(void) { return taciti_b_of(); }' >"$folder/src/base/a.c"
  printf '%s\n' '/* a fan; taciti_a_of() */' 'int taciti_b_of(void) { return TACITI_B; }' >"$folder/src/base/b.c"
}

# finds TEXT: the script prints it and fails
finds() {
  local out
  out=$("$folder/scripts/check-names.sh") && echo "not found: $1" && failed=1
  [[ $out == *"$1"* ]] || { echo "expected: $1"; echo "printed: $out"; failed=1; }
}

tree
"$folder/scripts/check-names.sh" || failed=1
tree; echo 'typedef struct taciti_a { int x; } taciti_a;' >>"$folder/src/base/b.h"; finds "twice: taciti_a: src/base/a.c:1 (tag)"
tree; echo 'typedef enum other { FIRST, TACITI_B = 4 } other;' >"$folder/src/exchange/c.h"; finds "twice: TACITI_B:"
tree; echo 'enum { LOCAL };' >>"$folder/src/base/a.h"; echo '#define LOCAL 1' >>"$folder/src/base/b.h"; finds "twice: LOCAL:"
tree; echo 'int taciti_b_of(void) { return 1; }' >>"$folder/src/base/a.c"; finds "twice: taciti_b_of:"
tree; echo 'static int rank_fan;' >>"$folder/src/base/b.c"; finds 'word: src/base/b.c:3: rank_fan'
tree; echo 'static int x;' >"$folder/src/base/parcel.c"; finds 'word: src/base/parcel.c'
tree; echo 'static int spread;' >"$folder/src/exchange/c.c"; finds 'word: src/exchange/c.c:1: spread'
tree; echo 'int taciti_b_more(void) { return taciti_a_of(); }' >>"$folder/src/base/b.c"; finds "cycle: src/base/a.c src/base/b.c"
tree; echo '#include "base/a.h"' >>"$folder/src/base/b.h"; finds "src/base/a.h src/base/b.h include each other"
tree; mkdir -p "$folder/python/tacit"; echo '"""Of a model."""' >"$folder/python/tacit/a.py"; finds 'english: python/tacit/a.py:1'
exit $failed

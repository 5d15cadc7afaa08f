#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/abi.py finds what would break a program, and nothing in a library that is as it was.
cd "$(dirname "$0")/.." || exit 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# library: a header and what it declares
library() {
  cat >"$folder/tacit.h" <<'EOF'
#include <stddef.h>
#define TACIT_API __attribute__((visibility("default")))
#define TACIT_ALL ((size_t)-1)
typedef enum tacit_kind { TACIT_A, TACIT_B = 4 } tacit_kind;
enum { TACIT_BYTES = 512 };
typedef struct tacit_thing tacit_thing;
typedef void tacit_callback(void *context, tacit_kind kind);
typedef struct tacit_step {
    size_t size;
    double norm, lr; /* of both */
    int (*get)(void *context, const char *key);
} tacit_step;
typedef struct tacit_pair {
    int a, *b;
} tacit_pair;
TACIT_API int tacit_open(tacit_thing *thing, const tacit_step *step,
                         tacit_callback *callback);
TACIT_API tacit_thing *tacit_thing_of(int n);
EOF
  printf '#include "tacit.h"\nint tacit_open(tacit_thing *t, const tacit_step *s, tacit_callback *c) { return t && s && c; }\n%s\n' \
    'tacit_thing *tacit_thing_of(int n) { return n ? (tacit_thing *)0 : (tacit_thing *)0; }' >"$folder/tacit.c"
}

compare() { cc -shared -fPIC -o "$folder/libtacit.so" "$folder/tacit.c" && python3 tests/abi.py "$folder/tacit.h" "$folder/libtacit.so" "$folder/record.txt" "$@"; }

# finds TEXT: the script prints it, as its only finding or the first, and fails
finds() {
  local out
  out=$(compare) && echo "not found: $1" && failed=1
  [[ $out == "$1"* ]] || { echo "expected: $1"; echo "printed: $out"; failed=1; }
  library
}

# edit WHAT TO: in header and source
edit() { sed -i "s/$1/$2/" "$folder/tacit.h" "$folder/tacit.c"; }

library
compare --record >"$folder/first" || failed=1
compare || failed=1
cp "$folder/record.txt" "$folder/before.txt"
# recorded YES_OR_NO: whether --record takes the edited header and writes it down; else it fails and leaves the record
recorded() {
  local taken=yes written=yes
  compare --record >"$folder/said" || taken=no
  ! cmp -s "$folder/before.txt" "$folder/record.txt" || written=no
  [ "$taken $written" = "$1 $1" ] || { echo "--record: taken $taken, written $written, expected $1"; cat "$folder/said"; failed=1; }
  cp "$folder/before.txt" "$folder/record.txt"; library
}
edit 'TACIT_A,' 'TACIT_A, TACIT_C,'; recorded yes
edit 'TACIT_B = 4' 'TACIT_B'; recorded no
sed -i '/thing_of/d' "$folder/tacit.h" "$folder/tacit.c"; recorded no
edit 'step,' 'other,'; edit 'int n' 'int count'; sed -i 's/return n/return count/' "$folder/tacit.c"
compare || { echo "another name of a parameter is no change"; failed=1; }
library
sed -i '/thing_of/d' "$folder/tacit.h" "$folder/tacit.c"; finds 'gone: function tacit_thing_of: tacit_thing * (int)'
sed -i '/thing_of/d' "$folder/tacit.c"; finds 'not exported: tacit_thing_of'
echo 'int tacit_more(void) { return 1; }' >>"$folder/tacit.c"; finds 'not declared: tacit_more'
echo 'TACIT_API int tacit_more(void);' >>"$folder/tacit.h"; echo 'int tacit_more(void) { return 1; }' >>"$folder/tacit.c"; finds 'new: function tacit_more: int (void)'
edit 'thing_of(int' 'thing_of(long'; finds 'changed: function tacit_thing_of: tacit_thing * (long); it was tacit_thing * (int)'
edit 'double norm, lr' 'float norm; double lr'; finds 'changed: member tacit_step.norm: float at 8, 4 bytes; it was double at 8, 8 bytes'
edit 'double norm, lr' 'double lr, norm'; finds 'changed: member tacit_step.lr: double at 8, 8 bytes; it was double at 16, 8 bytes'
edit 'const char \*key)' 'char *key)'; finds 'changed: member tacit_step.get: (*) int (void *, char *) at 24, 8 bytes'
edit '} tacit_step;' 'int more; } tacit_step;'; finds 'new: member tacit_step.more: int at 32, 4 bytes'
edit 'int a, \*b;' 'int a, *b, c;'; finds 'changed: struct tacit_pair: 24 bytes; it was 16 bytes'
edit 'TACIT_B = 4' 'TACIT_B'; finds 'changed: value TACIT_B: 1; it was 4'
edit 'TACIT_A,' 'TACIT_A, TACIT_C,'; finds 'new: value TACIT_C: 1'
edit 'BYTES = 512' 'BYTES = 256'; finds 'changed: value TACIT_BYTES: 256; it was 512'
edit 'size_t)-1' 'size_t)-2'; finds 'changed: macro TACIT_ALL'
edit 'void tacit_callback' 'int tacit_callback'; finds 'changed: type tacit_callback: int (void *, tacit_kind)'
exit $failed

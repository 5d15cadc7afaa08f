#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The program and its kernels on processors without AVX-512 or AVX2, which qemu emulates: a function that is compiled for
# instructions must not run before the processor was asked for them. Usage: cpus.sh [PROGRAM]
. "$(dirname "$0")/check.sh"
find_program "${1:-}"
units=$(dirname "$tacit")/../unit
[ "$(uname -m)" = x86_64 ] && command -v qemu-x86_64 >/dev/null || exit 77

on() { qemu-x86_64 -cpu "$1" "${@:2}" 2> >(grep -v "TCG doesn't support" >&2); } # qemu tells what it leaves out itself

for pair in Nehalem:scalar Haswell:avx2; do
  cpu=${pair%:*} kernels=${pair#*:}
  expect "$cpu has $kernels kernels" 0 "^ok +cpu .*; $kernels kernels" on "$cpu" "$tacit" doctor
  for unit in select line8; do check "test_$unit on $cpu" on "$cpu" "$units/test_$unit"; done
done
finish_checks

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints written by n ranks and loaded by m, for all n and m of {1 2 3 4 6 8}; then a rank that cannot write.
# Usage: checkpoint.sh PROGRAM
set -eu
program=$1
. "$(dirname "$0")/../../scripts/mpi-environment.sh"
[ -n "$MPIRUN" ] || { echo "skipped: no mpirun"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

launch() {
    timeout 120 "$MPIRUN" -n "$@"
}

counts="1 2 3 4 6 8"
for n in $counts; do launch "$n" "$program" save 7 "$folder/by-$n"; done
for m in $counts; do launch "$m" "$program" check 7 "$folder"/by-*; done
launch 4 "$program" fail 3 "$folder/fail" 2> "$folder/log"
[ "$(grep -c 'writing failed' "$folder/log")" = 4 ]

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks of the C interface, and what becomes of a rank that stops. Usage: library.sh PROGRAM
set -u
. "$(dirname "$0")/../../scripts/mpi-environment.sh"
[ -n "$MPIRUN" ] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ranks in 1 2 3 5; do
    timeout 120 "$MPIRUN" -n "$ranks" "$1" checks "$work/$ranks" || { echo "FAILED: checks on $ranks ranks"; exit 1; }
done
TEST_THREAD=0 timeout 60 "$MPIRUN" -n 3 "$1" checks || { echo "FAILED: checks without a thread"; exit 1; }
timeout 60 "$MPIRUN" -n 2 "$1" levels || { echo "FAILED: levels of threads"; exit 1; }

# The launcher ends the stopped rank when the others have ended.
export OMPI_MCA_odls_base_sigkill_timeout=1 TEST_TIMEOUT=2
timeout --foreground -k 10 30 "$MPIRUN" -n 3 "$1" frozen >"$work/out" 2>"$work/err"
[ "$(grep -c 'ended by itself' "$work/out")" = 2 ] || { echo "FAILED: frozen"; cat "$work/out" "$work/err"; exit 1; }

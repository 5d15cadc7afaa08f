#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The trace of all ranks, at several numbers of ranks. Usage: trace.sh PROGRAM
set -eu
. "$(dirname "$0")/../../scripts/mpi-environment.sh"
[ -n "$MPIRUN" ] || exit 77
for ranks in 1 2 3 5; do
    timeout 60 "$MPIRUN" -n "$ranks" "$1"
done

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The trace of all ranks, at several numbers of ranks. Usage: trace.sh PROGRAM
set -eu
command -v mpirun >/dev/null || exit 77
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for ranks in 1 2 3 5; do
    timeout 60 mpirun --oversubscribe --mca mpi_yield_when_idle 1 -n "$ranks" "$1"
done

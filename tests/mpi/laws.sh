#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collectives and exchange at several numbers of ranks. Usage: laws.sh COMM_LAWS EXCHANGE_LAWS MPI_FAMILY
# MPICH spins when ranks share a core, so it gets two of them; several times, because its end has been seen to hang.
set -eu
. "$(dirname "$0")/../../scripts/mpi-environment.sh"
if [ "$3" = mpich ]; then
    command -v mpiexec.mpich >/dev/null || exit 77
    for run in 1 2 3 4 5; do
        timeout 60 mpiexec.mpich -n 2 "$1"
        timeout 60 mpiexec.mpich -n 2 "$2"
    done
    exit 0
fi
[ -n "$MPIRUN" ] || exit 77
for ranks in 1 2 3 4 5 7 8; do
    timeout 60 "$MPIRUN" -n "$ranks" "$1"
    timeout 60 "$MPIRUN" -n "$ranks" "$2"
done
TEST_THREAD=0 timeout 60 "$MPIRUN" -n 3 "$1"
TEST_THREAD=0 timeout 60 "$MPIRUN" -n 3 "$2"
TEST_SEGMENT=1024 timeout 60 "$MPIRUN" -n 2 "$2"
TEST_RATE=2000 timeout 60 "$MPIRUN" -n 2 "$2"

# A message that does not fit, sent at once (101 bytes) or announced first (200000), ends the job and names its sender.
for bytes in 101 200000; do
    if text=$(TEST_OVERLONG=$bytes timeout 60 "$MPIRUN" -n 2 "$1" 2>&1); then exit 1; fi
    case $text in *"overlong 3): a message of more than 100 bytes from rank 1"*) ;; *) echo "$text" && exit 1 ;; esac
done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same program under MPICH's launcher: two ranks on one host (MPICH spins when ranks share cores, so no more than that).
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
find_program
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
nano=(--model.preset nano --model.dtype f32 --train.threads 1 --train.batch 8 --train.eval_windows 2 --train.steps 20)
expect "two ranks under mpiexec.mpich" 0 'finished' timeout 200 mpiexec.mpich -n 2 "$tacit" train "${nano[@]}" --run.dir "$work/run"
expect "a checkpoint of MPICH resumes without MPI" 0 'resume at step 20' timeout 200 "$tacit" train "${nano[@]}" --train.steps 25 --run.dir "$work/run" --resume
expect "collectives, with the library's own" 0 'mpi-default' timeout 100 mpiexec.mpich -n 2 "$tacit" bench collectives --bytes 8,100kB --rounds 2
. scripts/mpi-environment.sh
same_bits() {
  timeout 200 "$MPIRUN" -n 2 "$tacit" train "${nano[@]}" --run.dir "$work/open" &&
    timeout 200 mpiexec.mpich -n 2 "$tacit" train "${nano[@]}" --run.dir "$work/again" &&
    cmp "$work"/{open,again}/ckpt/step_00000020/rank-00001.safetensors
}
if [ -n "$MPIRUN" ]; then check "both MPI libraries give the same bits" same_bits; else skip "the bits of both MPI libraries" "Open MPI's mpirun is not installed"; fi
finish_checks

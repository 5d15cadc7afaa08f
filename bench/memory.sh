#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Peak resident memory against the prediction of `tacit train --dry-run` and against 16 bytes per parameter plus
# activations. Usage: bench/memory.sh [RANKS]     environment: TACIT, MODEL (preset), VOCABULARY, BATCH, SEQ
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
tacit=${TACIT:-build/release/bin/tacit}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
"$MPIRUN" -n "${1:-1}" "$tacit" train --model.preset "${MODEL:-gpt2-124m}" --model.vocabulary "${VOCABULARY:-50257}" --model.dtype f32 --train.batch "${BATCH:-4}" --train.seq "${SEQ:-256}" \
  --train.steps 3 --train.eval_every 0 --train.eval_windows 1 --train.save_every -1 --run.dir "$work/run"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How much of the communication hides behind backward when the wire is as slow as backward is long?
# Two ranks; a first run measures backward; then the wire is capped (comm.rate) so that a step's bytes take that long, and
# blocking (exchange.overlap false) and overlapped runs alternate. hidden = 1 - wait(overlapped) / wait(blocking).
# Usage: bench/overlap.sh [ROUNDS]     environment: TACIT, MODEL (preset), BATCH, SEQ, BUCKET
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
tacit=${TACIT:-build/release/bin/tacit} rounds=${1:-3}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
common=(--model.preset "${MODEL:-byte-10m}" --model.dtype f32 --train.threads 1 --train.batch "${BATCH:-8}" --train.seq "${SEQ:-256}"
        --train.steps 8 --train.eval_every 0 --train.eval_windows 1 --train.save_every -1 --run.quiet
        --run.tensorboard false --exchange.bucket "${BUCKET:-4MiB}")
run() { "$MPIRUN" -n 2 "$tacit" train "${common[@]}" --run.dir "$work/$1" --run.trace "${@:2}" >"$work/$1.log" 2>&1 || { cat "$work/$1.log"; exit 1; }; }
run free
rate=$(python3 bench/spans.py rate "$work/free")
echo "wire capped to $rate Mbit/s per rank"
for i in $(seq "$rounds"); do
  run "blocking$i" --exchange.overlap false --comm.rate "$rate"
  run "overlapped$i" --comm.rate "$rate"
done
python3 bench/spans.py hidden "$work" "$rounds"

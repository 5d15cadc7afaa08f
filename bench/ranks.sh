#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What data parallelism costs on one machine: 2 ranks x 1 thread against 1 rank x 2 threads on the same global batch,
# in alternating runs. Usage: bench/ranks.sh [ROUNDS]    environment: TACIT, MODEL (preset), VOCABULARY, DTYPE, BATCH, SEQ, STEPS
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
tacit=${TACIT:-build/release/bin/tacit} rounds=${1:-3}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
common=(--model.preset "${MODEL:-gpt2-30m}" --model.vocabulary "${VOCABULARY:-50257}" --model.dtype "${DTYPE:-f32}" --train.batch "${BATCH:-8}" --train.seq "${SEQ:-256}"
        --train.steps "${STEPS:-8}" --train.eval_every 0 --train.eval_windows 1 --train.save_every -1
        --run.quiet --run.tensorboard false)
run() { "$MPIRUN" -n "$1" "$tacit" train "${common[@]}" --train.threads "$2" --run.dir "$work/$3" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }
for i in $(seq "$rounds"); do run 1 2 "one$i"; run 2 1 "two$i"; done
python3 - "$work" "$rounds" <<'PY'
import json, statistics, sys
def rate(run):
    rows = [json.loads(line) for line in open(f"{sys.argv[1]}/{run}/metrics.jsonl")]
    return statistics.median(r["tokens_per_s"] for r in rows if "event" not in r and r["step"] > 2)
ratios = []
for i in range(1, int(sys.argv[2]) + 1):
    one, two = rate(f"one{i}"), rate(f"two{i}")
    ratios.append(two / one)
    print(f"round {i}: 1 rank x 2 threads {one:.0f} tokens/s, 2 ranks x 1 thread {two:.0f} tokens/s, ratio {two / one:.3f}")
print(f"ratio: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")
PY

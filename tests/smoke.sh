#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every verb once, as a user would type it: for sanitizer builds. Open MPI's own leaks are not ours to report.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
. tests/check.sh
find_program
need_mpirun "every verb"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-}
nano=(--model.preset nano --train.threads 1 --train.batch 8 --train.eval_windows 2 --train.steps 20 --train.save_every 10)

expect "version" 0 '[0-9]+\.[0-9]+\.[0-9]+' "$tacit" --version
expect "help lists the verbs" 0 'bench kernels' "$tacit" --help
for verb in doctor probe train eval sample "data prepare" import export info "bench kernels" "bench codecs" "bench collectives" "bench step"; do
  # shellcheck disable=SC2086
  expect "$verb --help shows an example" 0 'xample' "$tacit" $verb --help
done
expect "info options" 0 'optim.lr' "$tacit" info options
expect "info options --json" 0 '"' "$tacit" info options --json
expect "train, one process" 0 'finished' timeout 200 "$tacit" train "${nano[@]}" --run.dir "$work/run"
expect "train, three ranks, bf16 compute and wire" 0 'finished' timeout 200 "$MPIRUN" -n 3 "$tacit" train "${nano[@]}" \
  --model.dtype bf16 --exchange.wire bf16 --model.dropout 0.1 --run.dir "$work/run3" --run.trace true
expect "resume" 0 'resume at step 20' timeout 200 "$MPIRUN" -n 2 "$tacit" train "${nano[@]}" --run.dir "$work/run3" \
  --model.dtype bf16 --exchange.wire bf16 --model.dropout 0.1 --train.steps 25 --resume
expect "dry run" 0 'memory' "$tacit" train "${nano[@]}" --run.dir "$work/dry" --dry-run
refused_once() {
  "$tacit" train "${nano[@]}" --run.dir "$work/dry" --dry-run --strategy gossip --gossip.topology exq >"$work/refused" 2>&1
  [ $? -eq 3 ] && [ "$(grep -c exq "$work/refused")" -eq 1 ]
}
check "a dry run refuses what training would, once" refused_once
expect "collectives, three ranks" 0 'checked against the exact' timeout 200 "$MPIRUN" -n 3 "$tacit" bench collectives \
  --bytes 4,100KiB --rounds 2
expect "probe, two ranks" 0 "written: $work/cluster.json" timeout 200 "$MPIRUN" -n 2 "$tacit" probe --quick --seconds 5 \
  -o "$work/cluster.json"
expect "bench step, three ranks" 0 'overlap' timeout 200 "$MPIRUN" -n 3 "$tacit" bench step --model nano --seq 16 --batch 2 \
  --threads 1 --rounds 3 --against exchange.wire=bf16
expect "sample" 0 'hello' "$tacit" sample "$work/run" --prompt hello --tokens 20
expect "sample --json" 0 '"text"' "$tacit" sample "$work/run" --tokens 5 --json
expect "eval" 0 'perplexity' "$tacit" eval "$work/run"
expect "eval --json" 0 '"loss"' "$tacit" eval "$work/run" --json
expect "export" 0 '' "$tacit" export "$work/run" -o "$work/hf"
expect "import" 0 '' "$tacit" import "$work/hf" -o "$work/back"
expect "sample of the imported weights" 0 'hello' "$tacit" sample "$work/back" --prompt hello --tokens 5
expect "export as llm.c" 0 '' "$tacit" export "$work/run" -o "$work/gpt.bin" --format llmc
expect "data prepare" 0 '' "$tacit" data prepare README.md -o "$work/shards"
expect "train on shards" 0 'finished' timeout 200 "$tacit" train "${nano[@]}" --run.dir "$work/s" --model.vocabulary 256 --data.train "$work"/shards/*train*.bin
finish_checks

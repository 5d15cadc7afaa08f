#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures whether a rank that is five times slower, or frozen, holds the others: steps per second of rank 0, gossip as it is by
# default and asynchronous, alone and with such a rank. Prints a line per launch, kinds in turns.
#
#   scripts/results/async.sh [--tacit PROGRAM] [--ranks N] [--repeats N] [--seconds N] [--text FILE]
#
# The last rank is stopped for 80 of every 100 ms (slow), or for half of every minute (frozen). Ranks need a core each.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
tacit=$PWD/build/release/bin/tacit ranks=2 repeats=3 seconds=20 text=../shared/data/tinyshakespeare.txt
misuse() { echo "async.sh: $1; see the head of scripts/results/async.sh" >&2; exit 2; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || misuse "$1 needs a value"
  case $1 in
    --tacit) tacit=$2 ;; --ranks) ranks=$2 ;; --repeats) repeats=$2 ;; --seconds) seconds=$2 ;; --text) text=$2 ;;
    *) misuse "unknown option $1" ;;
  esac
  shift 2
done
[ -x "$tacit" ] || misuse "there is no program $tacit"
[ -r "$text" ] || misuse "there is no text $text"
work=$(mktemp -d)
trap 'pkill -P $$ 2>/dev/null; rm -rf "$work"' EXIT

# The worker of the last rank, when it makes steps; metrics tell when.
find_worker() {
  local line
  for _ in $(seq 200); do
    [ -s "$work/run/metrics.jsonl" ] && grep -q '"step"' "$work/run/metrics.jsonl" && break
    sleep 0.1
  done
  line=$(pgrep -nf "^watch: rank $((ranks - 1))") && pgrep -P "$line"
}

# hold KIND WORKER: until it ends
hold() {
  local stopped=0.08 running=0.02
  [ "$1" = slow ] || stopped=30 running=30
  while kill -STOP "$2" 2>/dev/null; do sleep $stopped; kill -CONT "$2" 2>/dev/null; sleep $running; done
}

# launch NAME HELD FLAG...: HELD: even, slow or frozen
launch() {
  local name=$1 held=$2 worker holder; shift 2
  rm -rf "$work/run"
  timeout -k 5 $((seconds + 120)) "$MPIRUN" -n "$ranks" "$tacit" train --strategy gossip --gossip.topology base-k --gossip.start 0 \
    --model.preset byte-2m --model.layers 2 --train.batch $((4 * ranks)) --train.threads 1 --train.steps 1000000 --train.eval_every -1 \
    --train.save_every -1 --comm.timeout 60 --train.max_minutes "$(python3 -c "print(($seconds + 5) / 60)")" --data.train "$text" --run.dir "$work/run" "$@" >"$work/out" 2>&1 &
  worker=$(find_worker)
  [ "$held" = even ] || { hold "$held" "$worker" & holder=$!; }
  sleep 2
  local before after
  before=$(tail -n 1 "$work/run/metrics.jsonl"); sleep "$seconds"; after=$(tail -n 1 "$work/run/metrics.jsonl")
  [ "$held" = even ] || { kill "$holder"; wait "$holder" 2>/dev/null; kill -CONT "$worker"; }
  pkill -TERM -f "^watch: rank"; wait %?timeout 2>/dev/null
  python3 - "$name" "$held" "$before" "$after" "$work/run/metrics.jsonl" <<'EOF'
import json, sys
name, held, before, after, path = sys.argv[1:]
a, b = json.loads(before), json.loads(after)
made = [json.loads(line)["made"] for line in open(path) if '"meeting"' in line]
print(f"{name:14} {held:7} {(b['step'] - a['step']) / (b['time'] - a['time']):7.2f} steps/s of rank 0's clock" + (f", made {made[-1]}" if made else ""), flush=True)
EOF
}

for _ in $(seq "$repeats"); do
  for held in even slow frozen; do
    [ "$held" = frozen ] || launch synchronous $held
    launch asynchronous $held --gossip.async true
  done
done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures whether a rank that is five times slower, or frozen, or behind a slow link holds the others: steps per second of rank 0,
# gossip as it is by default and asynchronous, alone and with such a rank. Prints a line per launch, kinds in turns.
#
#   scripts/results/async.sh [--kind rank|link|loss] [--tacit PROGRAM] [--ranks N] [--repeats N] [--seconds N] [--steps N]
#                            [--text FILE] [--mbit N]
#
# rank: the last rank is stopped for 80 of every 100 ms (slow), or for half of every minute (frozen). Ranks need a core each.
# link: an emulated cluster (docs/lab.md, needs root) of 5 hosts, or --ranks, with links of --mbit; that of the last has a tenth.
# loss: validation loss of an asynchronous run of --steps whose last of 5 ranks, or --ranks, is slow, then of a synchronous one of
# equal ranks that takes as many samples, for as many seeds as --repeats. Settings are those of noise.sh, on a quarter of its network.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

kind=rank ranks='' repeats=3 seconds=20 steps=1600 mbit=200
read_words "--kind --tacit --ranks --repeats --seconds --steps --text --mbit" "" "" "$@"
find_text
case $kind in rank) ranks=${ranks:-2} ;; link | loss) ranks=${ranks:-5} ;; *) misuse "--kind $kind: rank, link or loss" ;; esac
run=$folder/run-$$ out=$folder/out
trap 'pkill -P $$ 2>/dev/null; lab_down' EXIT
words=(train --strategy gossip --gossip.topology base-k --gossip.start 0 --model.preset byte-2m --model.layers 2 --train.batch $((4 * ranks))
  --train.threads 1 --train.steps 1000000 --train.eval_every -1 --train.save_every -1 --comm.timeout 60 --data.train "$text" --run.dir "$run"
  --train.max_minutes "$(python3 -c "print(($seconds + 5) / 60)")")

# find_worker LAUNCHER: the worker of the last rank, when it makes steps; metrics tell when.
find_worker() {
  local line
  for _ in $(seq 200); do
    [ -s "$run/metrics.jsonl" ] && grep -q '"step"' "$run/metrics.jsonl" && break
    sleep 0.1
  done
  line=$(pgrep -P "$1" -f "^watch: rank $((ranks - 1))") && pgrep -P "$line"
}

# hold KIND WORKER: until it ends
hold() {
  local stopped=0.08 running=0.02
  [ "$1" = slow ] || stopped=30 running=30
  while kill -STOP "$2" 2>/dev/null; do sleep $stopped; kill -CONT "$2" 2>/dev/null; sleep $running; done
}

# The time of the newest line of metrics.
last_time() { tail -n 1 "$run/metrics.jsonl" | sed 's/.*"time":\([0-9.]*\).*/\1/'; }

# count_steps NAME WHAT [BEGIN END]: the steps per second that rank 0 made itself between two times, by default in all but the first 3 seconds.
count_steps() {
  python3 - "$run/metrics.jsonl" "$@" <<'EOF'
import json, sys
path, name, what, *span = sys.argv[1:]
lines = [json.loads(line) for line in open(path)]
times = [l["time"] for l in lines if "event" not in l]
begin, end = map(float, span) if span else (next(t for t in times if t >= times[0] + 3), times[-1])
made = [l["made"] for l in lines if l.get("event") == "meeting"]
rate = sum(begin < t <= end for t in times) / (end - begin)
print(f"{name:14} {what:7} {rate:7.2f} steps/s of rank 0" + (f", made {made[-1]}" if made else ""), flush=True)
EOF
}

# launch NAME HELD FLAG...: HELD: even, slow or frozen
launch() {
  local name=$1 held=$2 launcher worker holder begin; shift 2
  rm -rf "$run"
  timeout -k 5 $((seconds + 120)) "$MPIRUN" -n "$ranks" "$tacit" "${words[@]}" "$@" >"$out" 2>&1 &
  local job=$!
  until launcher=$(pgrep -P $job); do kill -0 $job || return; sleep 0.1; done
  worker=$(find_worker "$launcher")
  [ "$held" = even ] || { hold "$held" "$worker" & holder=$!; }
  sleep 2
  begin=$(last_time); sleep "$seconds"; count_steps "$name" "$held" "$begin" "$(last_time)"
  [ "$held" = even ] || { kill "$holder"; wait "$holder" 2>/dev/null; kill -CONT "$worker"; }
  pkill -TERM -P "$launcher" -f "^watch: rank"; wait $job 2>/dev/null
}

# across NAME LINKS FLAG...: LINKS: equal, or slow
across() {
  rm -rf "$run"
  lab/cluster rate "${mbit}mbit" --name "$name" >/dev/null
  [ "$2" = equal ] || lab/cluster rate "$(python3 -c "print($mbit / 10)")mbit" n$((ranks - 1)) --name "$name" >/dev/null
  lab/cluster run --name "$name" --mpi none --timeout $((seconds + 120)) -- "$tacit" "${words[@]}" "${@:3}" >"$out" 2>&1 ||
    { tail -n 20 "$out" >&2; return 1; }
  count_steps "$1" "$2"
}

# trained NAME HELD SEED STEPS FLAG...: prints the loss and the steps of every rank, also to FOLDER/answer
trained() {
  local name=$1 held=$2 seed=$3 length=$4 launcher holder=""; shift 4
  rm -rf "$run"
  timeout -k 5 1200 "$MPIRUN" -n "$ranks" "$tacit" train scripts/results/shakespeare.yaml --strategy gossip --gossip.topology base-k \
    --model.layers 2 --model.channels 64 --model.heads 4 --model.dtype f32 --train.batch $((5 * ranks)) --train.steps "$length" \
    --optim.warmup $((length / 10)) --optim.lr 1e-2 --optim.weight_decay 0.2 --optim.beta2 0.99 --optim.clip 1 --train.threads 1 \
    --train.eval_every "$length" --train.eval_windows 0 --train.seed "$seed" --data.train "$text" --run.dir "$run" "$@" >"$out" 2>&1 &
  local job=$!
  until launcher=$(pgrep -P $job); do kill -0 $job || return; sleep 0.1; done
  [ "$held" = even ] || { hold "$held" "$(find_worker "$launcher")" & holder=$!; }
  wait $job || { tail -n 20 "$out" >&2; return 1; }
  [ -z "$holder" ] || wait "$holder" 2>/dev/null
  python3 - "$name" "$held" "$seed" "$ranks" "$length" "$run/metrics.jsonl" <<'EOF' | tee "$folder/answer"
import json, sys
name, held, seed, ranks, length, path = sys.argv[1:]
lines = [json.loads(line) for line in open(path)]
made = [l["made"] for l in lines if l.get("event") == "meeting"]
made = made[-1] if made else [int(length)] * int(ranks)
print(f"{name:14} {held:7} seed {seed}: loss {[l['val_loss'] for l in lines if 'val_loss' in l][-1]:.4f}, steps {made}, {sum(made)} in all", flush=True)
EOF
}

if [ "$kind" = loss ]; then
  for seed in $(seq "$repeats"); do
    trained asynchronous slow "$seed" "$steps" --gossip.async true || exit
    samples=$(sed 's/.*, \([0-9]*\) in all/\1/' "$folder/answer")
    trained synchronous even "$seed" $((samples / ranks)) || exit
  done
  exit
fi
if [ "$kind" = link ]; then
  lab_up "$ranks" 1 "${mbit}mbit"
  for _ in $(seq "$repeats"); do
    for links in equal slow; do
      across synchronous $links && across asynchronous $links --gossip.async true || exit
    done
  done
  exit
fi
for _ in $(seq "$repeats"); do
  for held in even slow frozen; do
    [ "$held" = frozen ] || launch synchronous $held
    launch asynchronous $held --gossip.async true
  done
done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults of whole runs: killed and frozen ranks, wrong launchers, ranks that disagree, signals, full disks, damaged files.
# Each must end soon, with the right exit code, one line that names the culprit, and no process left behind.
# Usage: tests/faults.sh [mpi|tcp]    under mpirun; or started by `tacit --ranks`, and only what depends on that
set -uo pipefail
cd "$(dirname "$0")/.."
export OMPI_MCA_odls_base_sigkill_timeout=1 # mpirun waits twice as long after every failure
. scripts/mpi-environment.sh
. tests/check.sh
find_program
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
tag=$(basename "$work") # in the command line of every worker of this test, and in the environment of its watcher
launcher=${1:-mpi}
[ "$launcher" = tcp ] || need_mpirun "faults of runs under mpirun"
nano=(--model.preset nano --model.dtype f32 --train.threads 1 --train.batch 8 --train.eval_every 0 --train.eval_windows 2
      --run.tensorboard false)
# started N WORD...: sets words to the command that starts N ranks with these words
started() { words=("$MPIRUN" ${quiet:+-q} -n "$1" "$tacit" "${@:2}"); }
# two COMMAND COMMAND: starts two ranks that differ
two() { timeout 60 "$MPIRUN" -n 1 bash -c "$1" : -n 1 bash -c "$2"; }
if [ "$launcher" = tcp ]; then
  started() { words=("$tacit" "${@:2}" --ranks "$1"); }
  two() {
    local meet first second; meet=$(mktemp -d -p "$work")
    RANK=0 WORLD_SIZE=2 TACIT_COMM_MEET=$meet timeout 60 bash -c "$1" & first=$!
    RANK=1 WORLD_SIZE=2 TACIT_COMM_MEET=$meet timeout 60 bash -c "$2" & second=$!
    wait $first; local status=$?
    wait $second || status=$?
    return $status
  }
fi
launch() {
  local words; started "$1" train "${nano[@]}" --run.dir "$work/$2" "${@:3}"
  FAULTS_TAG=$tag/$2 timeout --foreground -k "${patience:-10}" "${limit:-120}" "${words[@]}"
}

# Watchers change their command line to "watch: rank N"; their environment stays. Other runs may be on this host.
# living DIR: processes of the run there
living() {
  pgrep -af "$tag/$1( |\$)"
  local p
  for p in $(pgrep -f '^watch: rank'); do ! grep -qsz "^FAULTS_TAG=$tag/$1\$" "/proc/$p/environ" || echo "watcher $p"; done
}
nobody_left() { for _ in $(seq 50); do [ -n "$(living "$1")" ] || return 0; sleep 0.1; done; living "$1"; return 1; }

# steps DIR N: waits until the run has logged N steps
steps() {
  for _ in $(seq 600); do
    [ -f "$work/$1/metrics.jsonl" ] && [ "$(wc -l <"$work/$1/metrics.jsonl")" -ge "$2" ] && return 0
    sleep 0.05
  done
  echo "the run never reached step $2"; return 1
}

# worker N: the process that computes as the N-th of the job (the youngest processes are the workers)
workers() {
  pgrep -f "^[^ ]*tacit train.*$tag/$1( |\$)" | while read -r p; do
    [ "$(cat "/proc/$p/comm" 2>/dev/null)" = tacit ] && grep -qsz 'RANK=' "/proc/$p/environ" && echo "$p"
  done
}

# fault SIGNAL N FLAGS...: runs 4 ranks without end, sends SIGNAL to the N-th worker; leaves status, log and seconds behind
fault() {
  local dir=fault-$1-$2-$#-${4:-dp} begun victim
  launch 4 "$dir" --train.steps 1000000 --comm.timeout 4 "${@:3}" >"$work/$dir.log" 2>&1 &
  local job=$!
  steps "$dir" 20 || { kill "$job"; return 1; }
  sleep 1 # some heartbeats, which carry the step
  victim=$(workers "$dir" | sed -n "$2p")
  [ -n "$victim" ] || { echo "no worker $2"; kill "$job"; return 1; }
  begun=$SECONDS
  kill "-$1" "$victim"
  wait "$job"; local status=$?
  cat "$work/$dir.log"
  echo "exit status $status after $((SECONDS - begun)) s"
  [ "$status" -eq 5 ] || return 1
  [ $((SECONDS - begun)) -le 14 ] || return 1
  [ "$(grep -cE 'error: .*rank [0-9]+ on host .*\(pid '"$victim"'\)' "$work/$dir.log")" -eq 1 ] || { echo "not one line names pid $victim"; return 1; }
  grep -E "pid $victim" "$work/$dir.log" | grep -qE 'step [0-9]+' || { echo "the line does not name the step"; return 1; }
  nobody_left "$dir"
}

beside "kill -9 of the first rank: exit 5, named, nothing left" fault KILL 1
beside "kill -9 of the last rank: exit 5, named, nothing left" fault KILL 4
beside "SIGSTOP of a rank: exit 5, named, nothing left" fault STOP 2

# Nothing in a step waits for all ranks, and yet every rank learns of the culprit.
gossip=(--strategy gossip --gossip.topology exp)
beside "gossip, kill -9 of a rank: exit 5, named, nothing left" fault KILL 3 "${gossip[@]}"
beside "gossip, SIGSTOP of a rank: exit 5, named, nothing left" fault STOP 2 "${gossip[@]}"
parts=(--strategy shard --compress.codec int4 --compress.gather int8)
beside "shard, kill -9 of a rank: exit 5, named, nothing left" fault KILL 3 --strategy shard
beside "compressed shard, kill -9 of a rank: exit 5, named, nothing left" fault KILL 2 "${parts[@]}"
beside "compressed shard, SIGSTOP of a rank: exit 5, named, nothing left" fault STOP 4 "${parts[@]}"

asked_to_stop() {
  launch 3 "$1" --train.steps 1000000 "${@:3}" >"$work/$1.log" 2>&1 &
  local job=$!
  steps "$1" 15 || { kill "$job"; return 1; }
  kill "-$2" "$(workers "$1" | sed -n 2p)"
  wait "$job"; local status=$?
  cat "$work/$1.log"
  [ "$status" -eq 0 ] && [ -n "$(ls "$work/$1/ckpt" 2>/dev/null)" ] && nobody_left "$1"
}
beside "SIGTERM to one rank: checkpoint, clean exit" asked_to_stop term TERM
beside "SIGUSR1 to one rank: checkpoint, clean exit" asked_to_stop usr1 USR1
beside "gossip, SIGTERM to one rank: checkpoint, clean exit" asked_to_stop gossip-term TERM "${gossip[@]}"

asked_quietly() { asked_to_stop quiet USR1 --run.quiet && grep -q 'stopped as asked at step [1-9]' "$work/quiet.log"; }
beside "a quiet run says where it stopped" asked_quietly
# `timeout` signals mpirun's process group as well as mpirun; with --foreground mpirun gets one SIGTERM, and passes it on.
timed_out() {
  OMPI_MCA_odls_base_sigkill_timeout=3 patience=30 limit=5 launch 3 timed --train.steps 1000000 >"$work/timed.log" 2>&1
  local status=$?
  cat "$work/timed.log"
  [ "$status" -eq 124 ] && grep -q 'told to stop by SIG' "$work/timed.log" && grep -q 'stopped as asked at step [1-9]' "$work/timed.log" && nobody_left timed
}
beside "timeout --foreground around the launcher leaves a checkpoint" timed_out

# A handler that ran on a thread inside of a matrix product would overwrite memory: a signal must never find one.
many_signals() {
  launch 4 many --train.steps 1000000 --model.preset byte-2m --train.save_early 0 --train.save_every 0 >"$work/many.log" 2>&1 &
  local job=$!
  steps many 1 || { kill "$job"; return 1; }
  for _ in $(seq 20); do workers many | xargs -r kill -USR1 2>/dev/null; done
  wait "$job"; local status=$?
  cat "$work/many.log"
  [ "$status" -eq 0 ] && [ -n "$(ls "$work/many/ckpt" 2>/dev/null)" ] && nobody_left many
}
beside "20 SIGUSR1 in a row during f32 matrix products: checkpoint, clean exit" many_signals

# A long step is not finished but left, on every rank; the run goes on as if that step had never been begun.
long_step=(--model.preset byte-2m --train.batch 128 --train.micro_batch 32 --train.save_early 0 --train.save_every 0)
left_step() {
  launch 2 left "${long_step[@]}" --train.steps 3 >"$work/left.log" 2>&1 &
  local job=$!
  steps left 1 || { kill "$job"; return 1; }
  kill -TERM "$(workers left | sed -n "$1p")"
  wait "$job"; local status=$?
  cat "$work/left.log"; ls "$work/left/ckpt"; wc -l "$work/left/metrics.jsonl"
  [ "$status" -eq 0 ] && [ -d "$work/left/ckpt/step_00000001" ] && nobody_left left
}
beside "SIGTERM within a long step: the step before is saved at once" left_step 2
left_and_resumed() {
  launch 2 left "${long_step[@]}" --train.steps 3 --resume || return 1
  launch 2 whole "${long_step[@]}" --train.steps 3 || return 1
  for shard in "$work"/whole/ckpt/step_00000003/*.safetensors; do
    cmp "$shard" "$work/left/ckpt/step_00000003/$(basename "$shard")" || return 1
  done
}
together
check "and the run that goes on has the same bits as one that was never stopped" left_and_resumed

# resumes DIR RANKS FLAGS...
resumes() {
  launch "$2" "$1" --train.steps 1000000 --train.max_minutes 0.03 --resume "${@:3}" >"$work/again.log" 2>&1
  local status=$?; cat "$work/again.log"
  [ "$status" -eq 0 ] && grep -q 'resume at step [1-9]' "$work/again.log" && grep -q 'stopped as asked' "$work/again.log"
}
check "a run stopped by a signal resumes" resumes term 2
check "gossip, a run stopped by a signal resumes" resumes gossip-term 3 "${gossip[@]}"

# Every line once and in order, though lines come two steps late.
lines_in_order() {
  python3 -c "
import json, sys
steps = [r['step'] for r in map(json.loads, open('$work/$1/metrics.jsonl')) if 'event' not in r]
assert steps == list(range(1, len(steps) + 1)), 'lines are missing, doubled or out of order'
print(len(steps), 'lines')"
}
check "gossip, stopped and resumed: every step has its line once" lines_in_order gossip-term

rank_command() { echo "exec $tacit train ${nano[*]} --run.dir $work/d --train.steps 5 $*"; }
disagree() { two "$(rank_command "$1" "$2")" "$(rank_command "$1" "$3")"; }
expect "different learning rates are refused with both values" 3 '0\.01.*0\.02|0\.02.*0\.01' disagree --optim.lr 0.01 0.02
variables_disagree() { two "export TACIT_OPTIM_LR=0.01; $(rank_command)" "$(rank_command)"; }
expect "variables of the environment that differ are a matter of configuration" 3 'optim\.lr differs' variables_disagree
for key in train.save_every train.eval_every; do
  expect "keys that say when ranks come together are the same: $key" 3 "$key differs" disagree --$key 5 7
done
# What all ranks refuse is one line: how they leave is no silence that a rank has to warn of.
refused_in_one_line() { # RANKS TEXT WORDS ...
  local words quiet=yes; started "$1" "${@:3}"
  timeout --foreground -k 10 60 "${words[@]}" >"$work/refused" 2>&1
  cat "$work/refused"
  [ "$(wc -l <"$work/refused")" -eq 1 ] && grep -q "tacit: error: .*$2" "$work/refused"
}
check "a codec that has gone: one line" refused_in_one_line 5 int4 train "${nano[@]}" --compress.codec thc
check "a rate that is none: one line" refused_in_one_line 5 5Mbit train "${nano[@]}" --comm.rate 5Mbit
check "a size out of range: one line" refused_in_one_line 3 4.. bench collectives --bytes 3
check "an unknown flag: one line" refused_in_one_line 3 steps bench step --steps 3
head -c 200000 README.md src/*/*.c >"$work/a.txt" 2>/dev/null; cat src/*/*.c | head -c 200000 >"$work/a.txt"; tr e E <"$work/a.txt" >"$work/b.txt"
expect "different data is refused with both digests" 3 'digest [0-9a-f]+.*digest [0-9a-f]+' disagree --data.train "$work/a.txt" "$work/b.txt"
# The same path, but each rank finds other weights there.
different_weights() {
  for seed in 1 2; do launch 1 "weights$seed/w" --train.steps 1 --train.seed "$seed" || return 1; done
  two "cd $work/weights1 && $(rank_command --train.init w "$@")" "cd $work/weights2 && $(rank_command --train.init w "$@")"
}
expect "different initial weights are refused with both digests" 3 'initial model differs.*digest [0-9a-f]+.*digest [0-9a-f]+' \
  different_weights "${gossip[@]}"
[ "$launcher" = mpi ] || { finish_checks; exit; } # nothing below depends on who starts the ranks

TACIT_FAIL_AT=3:200 expect "a run whose every step is skipped gives up" 6 '100 steps in a row' launch 3 hopeless --train.steps 200
# Their reports travel late: a line for each step all the same, and nothing is left on its way.
hopeless_replicas() {
  TACIT_FAIL_AT=3:200 launch 3 hopeless-replicas --train.steps 200 "${gossip[@]}"
  local status=$?
  python3 -c 'import json, sys
steps = [r["step"] for r in map(json.loads, open(sys.argv[1])) if "event" not in r]
assert steps == list(range(1, len(steps) + 1)) and len(steps) >= 100, steps' "$work/hopeless-replicas/metrics.jsonl" || return 1
  return "$status"
}
expect "and so does one of replicas, with a line for every step" 6 '100 steps in a row' hopeless_replicas
expect "ranks that do not find each other are refused with the right command" 2 'do not find each other.* mpirun.* -n 4 ' \
  env OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 "$tacit" train "${nano[@]}" --run.dir "$work/l" --train.steps 1
expect "an unknown key names the nearest" 2 'optim\.lr' "$tacit" train --optim.lrr 1
printf 'optim:\n  nmae: sgd\n' >"$work/typo.yaml"
expect "a typo in a file has line and column" 3 'typo.yaml:2:3: .*optim\.name' "$tacit" train "$work/typo.yaml"
printf 'optim:\n  lr: fast\n' >"$work/type.yaml"
expect "a wrong type has line and column" 3 'type.yaml:2:7' "$tacit" train "$work/type.yaml"
expect "a missing data file is a data error" 4 'no/such/file' "$tacit" train "${nano[@]}" --data.train no/such/file
expect "an unknown verb names the nearest" 2 'train' "$tacit" trian

damage() {
  launch 2 damaged --train.steps 30 --train.save_every 10 || return 1
  local newest; newest=$(ls -d "$work"/damaged/ckpt/step_* | tail -1)
  local shard; shard=$(ls "$newest"/*.safetensors | head -1)
  printf '\xff' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 9)) conv=notrunc 2>/dev/null
  launch 2 damaged --train.steps 40 --resume >"$work/damaged.log" 2>&1
  local status=$?; cat "$work/damaged.log"
  [ "$status" -eq 0 ] && grep -q "$(basename "$shard")" "$work/damaged.log" && grep -q 'resume at step 20' "$work/damaged.log"
}
check "a damaged checkpoint is named and the one before it loads" damage

# A rank's own shard that is missing: named, and the checkpoint before is used.
missing_replica() { # DIR FLAGS...
  local dir=$1; shift
  launch 3 "$dir" --train.steps 30 --train.save_every 10 "$@" || return 1
  rm "$work/$dir/ckpt/step_00000030/rank-00001.safetensors"
  launch 3 "$dir" --train.steps 40 --resume "$@" >"$work/$dir.log" 2>&1
  local status=$?; cat "$work/$dir.log"
  [ "$status" -eq 0 ] && grep -q 'rank-00001.safetensors: missing' "$work/$dir.log" && grep -q 'resume at step 20' "$work/$dir.log"
}
check "gossip, a rank's missing shard is named and the checkpoint before it loads" missing_replica replica "${gossip[@]}"
check "shard, likewise" missing_replica parts-run "${parts[@]}"

full_disk() { # KIB FLAGS...
  mkdir -p "$work/small"
  unshare -m bash -c "mount -t tmpfs -o size=${1}k tmpfs '$work/small' && timeout 100 '$MPIRUN' -n 2 '$tacit' train ${nano[*]} \
    --run.dir '$work/small' --train.steps 30 --train.save_early 5 --train.save_every 10 --train.keep 9 ${*:2}; s=\$?; echo files:; ls -R '$work/small'; exit \$s" >"$work/full.log" 2>&1
  local status=$?; cat "$work/full.log"
  grep -qi 'no space' "$work/full.log" && grep -q 'step_00000005' "$work/full.log" && ! sed -n '/^files:/,$p' "$work/full.log" | grep -q '\.tmp' && [ "$status" -eq 7 ]
}
size=$(( $(du -sk "$work/damaged/ckpt" | cut -f1) ))
if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
  check "a full disk: loud, older checkpoints stay, training goes on to the end" full_disk $((size * 3 / 4))
  check "shard, likewise on a full disk" full_disk $((size * 9 / 8)) --strategy shard
else
  skip "a full disk" "a small tmpfs needs root and mount namespaces"
fi
finish_checks

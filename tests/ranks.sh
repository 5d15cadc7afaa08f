#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks without MPI: --ranks and torchrun's variables give the run that mpirun gives, signals and failures end it with one
# code and one line, and mistakes are refused.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
. tests/check.sh
find_program
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT # what still trains when the test is stopped
export TMPDIR=$work TACIT_PLUGINS=/nowhere # no MPI can be found

nano=(--data.train LICENSE --model.preset nano --model.heads 1 --model.channels 41 --train.threads 1 --train.batch 7 --run.tensorboard false --train.steps 12)
train() { local dir=$1; shift; timeout 120 "$tacit" train "${nano[@]}" --run.dir "$work/$dir" "$@"; }
bits() { (cd "$work/$1/ckpt" && sha256sum */*.safetensors); }
same() { diff <(bits "$1") <(bits "$2") && [ -n "$(bits "$1")" ]; }

for n in 2 3 5; do
  check "$n ranks train" train "r$n" --ranks $n
  [ -n "$MPIRUN" ] || continue
  TACIT_PLUGINS='' timeout 120 "$MPIRUN" -n $n "$tacit" train "${nano[@]}" --run.dir "$work/m$n" >"$work/m$n.out" 2>&1
  check "as $n of mpirun do, bit for bit" same "r$n" "m$n"
done
expect "and say what joined them" 0 'comm.engine tcp .*: tacit --ranks started 3 processes' train r3 --ranks=3
if [ -n "$MPIRUN" ]; then
  env TACIT_PLUGINS='' timeout 120 "$MPIRUN" -n 3 "$tacit" train "${nano[@]}" --run.dir "$work/t3" --comm.engine tcp >"$work/t3.out" 2>&1
  check "ranks of mpirun over TCP have the same bits" same r3 t3
  check "mpirun's ranks print a configuration once" bash -c "[ \$('$MPIRUN' -n 2 '$tacit' train --optim.lr 0.003 --print-config=changed | grep -c '^optim:') -eq 1 ]"
else
  skip "ranks of mpirun" "Open MPI's mpirun is not installed"
fi
port=$(free_port)
for r in 0 1 2; do # they meet at the port above that of torchrun's store
  RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port - 1)) train torch >"$work/torch.$r" 2>&1 &
done
wait %1 %2 %3 2>/dev/null || wait
check "ranks of torchrun have the same bits" same r3 torch
train r3 --ranks 3 --print-config=changed >"$work/changed.yaml"
check "a configuration is printed once" bash -c "[ \$(grep -c '^train:' '$work/changed.yaml') -eq 1 ] && ! grep -q meet '$work/changed.yaml'"
mkdir -p "$work/kept/$(printf '%0*d' $((254 - ${#work} - 11)) 0)/1"
long=$(echo "$work"/kept/*); long=$long$(printf '%0*d' $((255 - ${#long})) 0); mkdir -p "$long/folder" && touch "$long/folder/file"
expect "a TMPDIR that is too long is refused" 3 'TMPDIR is longer than 240' env TMPDIR="$long" "$tacit" train "${nano[@]}" --run.dir "$work/long" --ranks 2
check "and keeps what it holds" [ -f "$long/folder/file" ]
check "no folder stays behind" bash -c "! ls -d '$work'/tacit-* 2>/dev/null"

# ---- ends --------------------------------------------------------------------------------------------------------
# begin DIR: a long run of three ranks that has taken 20 steps; $starter is its starter, and $job ends with the starter's code.
begin() {
  timeout -k 1 120 "$tacit" train "${nano[@]}" --run.dir "$work/$1" --ranks 3 --train.steps 1000000 >"$work/$1.out" 2>&1 &
  job=$!
  for _ in $(seq 200); do ! grep -q '"step": *20\b' "$work/$1/metrics.jsonl" 2>/dev/null || break; sleep 0.1; done
  starter=$(pgrep -P $job)
}
nobody() { ! pgrep -f "[r]un.dir $work/$1 "; }
begin told; kill -TERM "$starter"; wait $job; code=$?
check "a signal ends all, cleanly" [ $code -eq 0 ]
check "and saves a checkpoint" bash -c "ls '$work'/told/ckpt/step_*"
check "nobody stays" nobody told
begin dead; pkill -KILL -n -f "[r]un.dir $work/dead "; wait $job; code=$?
check "a killed rank gives code 5" [ $code -eq 5 ]
check "and is named" grep -q 'was killed by signal 9' "$work/dead.out"
check "nobody stays of its run" nobody dead
begin lost; kill -KILL "$starter"; wait $job 2>/dev/null
for _ in $(seq 100); do nobody lost >/dev/null && break; sleep 0.1; done
check "ranks end with their starter" nobody lost
# A starter may be gone before it has started all: the others wait for that rank, and nobody else would end them.
alone() {
  RANK=0 WORLD_SIZE=2 TACIT_COMM_MEET=$work/alone-meet timeout -k 1 60 "$tacit" train "${nano[@]}" --run.dir "$work/alone" &
  local rank=$! begun; sleep 2; begun=$SECONDS
  kill -TERM "$(pgrep -P $rank)"; wait $rank; local code=$?
  echo "exit status $code after $((SECONDS - begun)) s"
  [ $code -eq 143 ] && [ $((SECONDS - begun)) -le 8 ] && nobody alone
}
check "SIGTERM ends a rank that waits for others" alone

# ---- refusals ----------------------------------------------------------------------------------------------------
expect "no number" 2 'ranks needs a number' train no --ranks
expect "no ranks" 3 'a number from 1 to' train no --ranks 0
expect "a word" 3 'a number from 1 to' train no --ranks four
expect "under a launcher" 2 'leave it out' env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$tacit" train "${nano[@]}" --ranks 2
expect "mpi, which would see one rank" 3 'MPI would see one' train no --ranks 2 --comm.engine mpi
expect "a mistake is said once" 3 '^tacit: error: [^\n]*$' train no --ranks 3 --shard.stage 4 --strategy shard
finish_checks

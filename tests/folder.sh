#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The run folder: one run at a time, nothing in it changes for a run that cannot begin, nothing behind a link is touched.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
. tests/check.sh
find_program
need_mpirun "the run folder"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

nano=(--model.preset nano --model.dtype f32 --train.threads 1 --train.batch 8 --train.eval_windows 2 --train.save_early 0
      --run.tensorboard false)
# train DIR FLAGS...
train() { local dir=$1; shift; timeout 120 "$tacit" train "${nano[@]}" --run.dir "$work/$dir" "$@"; }
launch() { local n=$1 dir=$2; shift 2; timeout 120 "$MPIRUN" -n "$n" "$tacit" train "${nano[@]}" --run.dir "$work/$dir" "$@"; }
contents() { (cd "$1" && find . -type f ! -name lock -exec sha256sum {} + | sort); }

# ---- two runs ------------------------------------------------------------------------------------------------------
# A run that takes its time, in the background: its process group is $first.
start_long() {
  setsid timeout 120 "$MPIRUN" -n 2 "$tacit" train "${nano[@]}" --run.dir "$work/$1" --train.steps 1000000 "${@:2}" >"$work/long.log" 2>&1 &
  first=$!
  for _ in $(seq 100); do [ ! -s "$work/$1/lock" ] || return 0; sleep 0.2; done
  cat "$work/long.log"; return 1
}
# Rank 0 first, which would notice that its launcher has gone, and save.
stop_long() { kill -KILL "$(cut -d' ' -f2 "$work/two/lock")"; kill -KILL -- "-$first" 2>/dev/null; wait "$first" 2>/dev/null; sleep 1; }
launcher_gone() {
  start_long orphan || return 1
  for _ in $(seq 100); do [ "$(wc -l 2>/dev/null <"$work/orphan/metrics.jsonl")" -gt 5 ] 2>/dev/null && break; sleep 0.1; done
  kill -KILL -- "-$first"; wait "$first" 2>/dev/null
  for _ in $(seq 100); do [ -e "$work/orphan/lock" ] || break; sleep 0.1; done
  [ ! -e "$work/orphan/lock" ] && ls "$work"/orphan/ckpt/step_*/manifest.json
}
# refused FLAGS...: a second run is refused, names the owner and leaves everything as it is
refused() {
  local pid before after; pid=$(cut -d' ' -f2 "$work/two/lock")
  before=$(ls -d "$work"/two*; ls "$work/two")
  launch 2 two "$@" >"$work/second.log" 2>&1
  local status=$?; cat "$work/second.log"
  after=$(ls -d "$work"/two*; ls "$work/two")
  [ "$status" -eq 3 ] && grep -q "pid $pid" "$work/second.log" && grep -q -- '--run.dir' "$work/second.log" &&
    [ "$before" = "$after" ] && [ "$(cut -d' ' -f2 "$work/two/lock")" = "$pid" ]
}
check "a run of two ranks" launch 2 two --train.steps 10
if start_long two --resume; then
  check "a new run in the folder of another is refused" refused --train.steps 20
  check "so is a second --resume" refused --train.steps 20 --resume
  stop_long
  check "ranks whose launcher is killed save and end" launcher_gone
  expect "after kill -9 the folder is taken over, with a note" 0 'taken over' launch 2 two --train.steps 20 --resume
else
  fail "a long run starts"
fi
check "a run that ends leaves no lock" test ! -e "$work/two/lock"

# ---- found before the first step -----------------------------------------------------------------------------------
head -c 14 README.md >"$work/short.txt"
# untouched STATUS TEXT FLAGS...: the run is refused within 20 s and the folder of the earlier run is as it was
untouched() {
  local status=$1 text=$2 got; shift 2
  contents "$work/two" >"$work/before"
  timeout 20 "$tacit" train "${nano[@]}" --run.dir "$work/two" "$@" >"$work/log" 2>&1
  got=$?; cat "$work/log"; contents "$work/two" >"$work/after"
  [ "$got" -eq "$status" ] && grep -qE "$text" "$work/log" && ! grep -q '^step' "$work/log" && diff "$work/before" "$work/after" && [ ! -e "$work/two.old1" ]
}
check "no validation tokens" untouched 4 'validation tokens.*data.split' --data.split 0 --train.eval_every 0
check "too little text" untouched 4 'train tokens' --data.train "$work/short.txt"
check "a model that does not fit" untouched 7 'MiB of memory' --model.layers 1024 --model.channels 65536 --model.heads 64
check "sizes beyond 64 bits" untouched 7 'MiB of memory' --model.layers 1024 --model.channels 65536 --model.heads 64 --train.batch 1000000000
check "a profile that cannot be written" untouched 7 'no/such' --profile "$work/no/such/profile.json"
check "a folder in a file" untouched 3 'lies in a file, .*give another --run.dir' --run.dir "$work/short.txt/run"
for place in ckpt "ckpt/$(ls "$work/two/ckpt" | tail -n 1)"; do
  check "a new run in $place of another" untouched 3 "of the run $work/two: --run.dir $work/two --resume" --run.dir "$work/two/$place"
  check "and --resume" untouched 3 "of the run $work/two: --run.dir $work/two --resume" --run.dir "$work/two/$place" --resume
done
expect "without evaluation no validation tokens are needed" 0 'finished' train split0 --data.split 0 --train.eval_every -1 --train.steps 3
expect "the largest seed" 0 'finished' train seed --train.seed 9223372036854775807 --train.steps 2
expect "and it is resumed" 0 'resume at step 2' train seed --train.seed 9223372036854775807 --train.steps 3 --resume
expect "a refused run leaves no folder" 4 'validation' train nothing --data.split 0
check "none at all" test ! -e "$work/nothing"

# ---- once per job --------------------------------------------------------------------------------------------------
# once STATUS TEXT RANKS FLAGS...: a refusal that all ranks find is printed by rank 0 alone
once() {
  local status=$1 text=$2 got; shift 2
  launch "$1" once "${@:2}" >"$work/log" 2>&1
  got=$?; cat "$work/log"
  [ "$got" -eq "$status" ] && [ "$(grep -c 'error:' "$work/log")" -eq 1 ] && grep -q "$text" "$work/log" && ! grep -q 'rank [0-9]*: error' "$work/log"
}
check "no validation tokens, once" once 4 'validation tokens' 8 --data.split 0
check "a missing file, once" once 4 'no/such/file' 4 --data.train no/such/file
check "a strategy that is not known, once" once 3 'strategy' 4 --strategy noone
check "a flag that is not known, once" once 2 'stepz' 4 --train.stepz 3
check "a model that does not fit, once" once 7 'MiB of memory' 4 --model.layers 1024 --model.channels 65536 --model.heads 64
# A dry run refuses what the run refuses, in the same words, once.
check "a dry run of a model that does not fit, once" once 7 'MiB of memory' 3 --model.layers 1024 --model.channels 65536 --model.heads 64 --dry-run
check "a dry run of options that no exchange has, once" once 3 'the owner of a sum counts' 3 --compress.codec signsgd --compress.collective gather --dry-run
large=(--model.preset byte-10m --train.seq 41 --train.eval_every -1 --train.save_every -1)
# limited LIMIT RANKS FLAGS...: under a limit of each process
limited() {
  local limit=$1 n=$2; shift 2
  timeout 60 "$MPIRUN" -n "$n" prlimit "$limit" "$tacit" train "${nano[@]}" "${large[@]}" --run.dir "$work/once" "$@" >"$work/log" 2>&1
  local got=$?; cat "$work/log"
  [ "$got" -eq 7 ] && [ "$(grep -c 'error:' "$work/log")" -eq 1 ]
}
# must_allow FLAGS...: the MiB that a limit must allow, by the dry run of 3 ranks
must_allow() { launch 3 once "${large[@]}" --strategy shard "$@" --dry-run 2>&1 | grep -oE 'must allow [0-9]+' | grep -oE '[0-9]+'; }
parts() {
  local mib; mib=$(must_allow --shard.stage 1) || return 1
  limited --data=$(((mib << 20) * 2 / 3)) 3 --strategy shard --shard.stage 1 "$@" && grep -q 'RLIMIT_DATA.*bytes are missing; --shard.stage 3' "$work/log"
}
# What libraries and threads map differs between machines, and only its estimate is in that number: half as much again lets the run finish.
allowed() {
  local mib; mib=$(must_allow) || return 1
  timeout 60 "$MPIRUN" -n 3 prlimit --data=$(((mib << 20) * 3 / 2)) "$tacit" train "${nano[@]}" "${large[@]}" --run.dir "$work/allowed" --strategy shard --train.steps 2
}
if grep -qaE '__(asan|tsan)_init' "$tacit"; then
  skip "limits of data" "sanitizers map shadow memory"
else
  check "a limit of data, once: more in parts is advised" parts
  check "and by a dry run" parts --dry-run
  check "a limit half as large again as the dry run says lets the run finish" allowed
fi
expect "a limit of addresses is named" 7 'refused .*ulimit -v unlimited' prlimit --as=$((150 << 20)) "$tacit" train "${nano[@]}" "${large[@]}" --run.dir "$work/once"

# typed STATUS WORD...: so is a mistake in another command, found before MPI starts
typed() {
  local status=$1 got; shift
  timeout 60 "$MPIRUN" -n 3 "$tacit" "$@" >"$work/log" 2>&1
  got=$?; cat "$work/log"
  [ "$got" -eq "$status" ] && [ "$(grep -c 'error:' "$work/log")" -eq 1 ] && ! grep -q 'rank [0-9]*: error' "$work/log"
}
check "a verb that is not known, once" typed 2 trian
check "a flag of probe, once" typed 3 probe --seconds x
check "a flag of bench collectives, once" typed 3 bench collectives --bytes 0
alone() {
  # shellcheck disable=SC2016
  timeout 60 "$MPIRUN" -n 3 bash -c '[ "$OMPI_COMM_WORLD_RANK" != 2 ] || set -- "$@" --train.stepz 3; exec "$0" train "$@"' "$tacit" --run.dir "$work/once" >"$work/log" 2>&1
  local got=$?; cat "$work/log"
  [ "$got" -eq 2 ] && [ "$(grep -c 'error:' "$work/log")" -eq 1 ] && grep -q 'rank 2: error: .*stepz' "$work/log"
}
check "what one rank refuses before MPI starts ends all, and is said" alone
differing() {
  # shellcheck disable=SC2016
  timeout 120 "$MPIRUN" -n 4 bash -c 'exec "$0" train --data.train "$1/absent$((OMPI_COMM_WORLD_RANK / 2))" --run.dir "$1/once"' "$tacit" "$work" >"$work/log" 2>&1
  local got=$?; cat "$work/log"
  [ "$got" -eq 4 ] && [ "$(grep -c 'error:' "$work/log")" -eq 2 ] && grep -q 'tacit: error: .*absent0' "$work/log" && grep -q 'rank 2: error: .*absent1' "$work/log"
}
check "errors that differ are all shown, with the first rank that has them" differing

# ---- what is lost, and where it would go on ---------------------------------------------------------------------------
check "a run with residuals" launch 3 lossy --compress.codec topk --compress.warmup 0 --train.steps 4
expect "residuals that are dropped are a warning, also for a quiet run" 0 'warning: resume: the residuals of 3 ranks .*are dropped' launch 3 lossy --train.steps 5 --resume --run.quiet
check "a run of gossip without an integral" launch 3 apart --strategy gossip --gossip.start 0 --gossip.integral 0 --train.steps 4
# resumed DIR TEXT FLAGS...: a copy of it goes on in silence for a step and says so
resumed() {
  rm -rf "$work/copy"; cp -r "$work/$1" "$work/copy"
  expect "resumed with ${*:3}: $2" 0 "$2" launch 3 copy --train.steps 5 --resume --run.quiet "${@:3}"
}
lossy=(--compress.codec topk --compress.warmup 0) gossip=(--strategy gossip --gossip.start 0 --gossip.integral 0)
rm -rf "$work"/lossy/ckpt/step_00000005
resumed lossy 'are dropped: compress.codec was "topk" and is "none" now; resume with the old value to send them'
resumed lossy 'are dropped: compress.feedback was 1 and is 0 now; resume with the old value' "${lossy[@]}" --compress.feedback 0
resumed lossy 'are dropped: compress.what was "gradient" and is "change" now; resume' "${lossy[@]}" --compress.what change
resumed lossy '\(compress.codec topk\) are dropped$' --strategy localsgd # which its codec would not send either
resumed lossy 'resume: compress.factor was 10 in the checkpoint and is 20 now' "${lossy[@]}" --compress.factor 20
resumed apart 'no state "integral" of gossip, which begins at zero: gossip.integral was 0 and is 0.2 now' "${gossip[@]}" --gossip.integral 0.2
resumed apart 'gossip.start 0.9 has no effect: the replicas of the checkpoint have been apart since step 0' "${gossip[@]}" --gossip.start 0.9
expect "a misspelt folder is a warning and named, also for a quiet run" 0 'warning: resume: no checkpoint in .*lossi, a new run begins there; did you mean "lossy"' train lossi --train.steps 2 --resume --run.quiet
poisoned() { TACIT_FAIL_AT=$1:150 train nan --train.steps 150 "${@:2}"; }
expect "without a checkpoint there is nothing to go on from" 6 'lower optim.lr and begin again' poisoned 4
expect "the step is named from which it goes on" 6 'go on from step 10 with --resume' poisoned 14 --train.save_every 500 --train.save_early 10

# ---- what is remarked before the first step ---------------------------------------------------------------------------
tiny=(--model.layers 1 --model.heads 1 --model.channels 5 --model.context 3 --train.steps 1)
expect "a codec that sends more than it saves" 0 'warning: codec powersgd sends 0.01[0-9]* MB per step, more than the 0.01' launch 4 more "${tiny[@]}" --compress.codec powersgd --powersgd.rank 2
quiet_about_bytes() { launch 4 more2 "${tiny[@]}" --compress.codec powersgd --powersgd.rank 1 >"$work/log" 2>&1; cat "$work/log"; ! grep -q 'more than' "$work/log"; }
check "and none that sends less" quiet_about_bytes
expect "evaluation that takes most of the compute, and what would take a twentieth" 0 'about [7-9][0-9] % of the compute goes to evaluation.*every 100 steps; --train.eval_windows 120: 5 %' "$tacit" train --model.preset nano --train.batch 8 --dry-run
often() { for _ in 1 2 3 4; do train often --train.steps 1 >"$work/log" 2>&1; done; cat "$work/log"; grep -q '3 old runs lie there, to remove them: rm -r .*often.old\*' "$work/log"; }
check "old runs that pile up are counted" often

full_metrics() { (trap '' XFSZ; ulimit -f 16; train full --train.steps 80 --train.save_every -1 --train.eval_every -1 --run.quiet true); }
expect "metrics that do not fit on the disk: the run ends with 7" 7 'metrics are not written any more from step [0-9]+ on; training goes on' full_metrics

# ---- what cannot be --------------------------------------------------------------------------------------------------
for steps in 1 3; do train base --train.steps $steps --train.save_every $steps >/dev/null 2>&1; done
own_weights() {
  contents "$work/base" >"$work/before"
  train base --train.steps 2 --train.init "$work/$1" >"$work/log" 2>&1
  local got=$?; cat "$work/log"
  contents "$work/base" | cmp - "$work/before" && [ ! -e "$work/base.old2" ] && [ "$got" -eq 3 ] && grep -q 'lies in run.dir .* with --resume' "$work/log"
}
check "weights of the run's own folder are not moved aside" own_weights base
check "nor those of one of its checkpoints" own_weights base/ckpt/step_00000003
expect "and the run goes on from its own weights" 0 'resume at step 3' train base --train.steps 4 --train.init "$work/base" --resume
echo x >"$work/a_file"
expect "run.dir is a file" 3 'a_file is a file, and a run needs a folder' train a_file --train.steps 1
expect "nothing is left to do" 0 'warning: nothing left to do: the checkpoint is at step 4 and train.steps is 2; to go on, --train.steps N' \
  train base --train.steps 2 --resume --run.quiet
expect "a rank that no matrix pays" 0 'warning: codec powersgd saves nothing of the .* leave compress.codec out, or give it other options' \
  launch 2 rank --train.steps 1 --compress.codec powersgd --powersgd.rank 1024

# ---- links ---------------------------------------------------------------------------------------------------------
linked() {
  mkdir -p "$work/disk" && ln -s "$work/disk/target" "$work/link" && mkdir "$work/disk/target" || return 1
  train link --train.steps 2 && echo note >"$work/disk/target/note" && train link --train.steps 3 || return 1
  [ -L "$work/link" ] && [ -f "$work/disk/target.old1/note" ] && [ -f "$work/disk/target.old1/metrics.jsonl" ] && [ -d "$work/disk/target/ckpt/step_00000003" ] &&
    [ ! -e "$work/link.old1" ]
}
check "a run folder that is a link: what it holds moves aside beside it, the link stays" linked
dangling() { ln -s "$work/no/such" "$work/dangling" && train dangling --train.steps 1; }
expect "a run folder that is a link to nothing" 7 'link to something that does not exist' dangling
link_in_ckpt() {
  mkdir -p "$work/precious" && echo x >"$work/precious/x" && train links --train.steps 2 || return 1
  ln -s "$work/precious" "$work/links/ckpt/step_00000004" && ln -s "$work/precious" "$work/links/ckpt/step_00000006.tmp" || return 1
  train links --train.steps 6 --train.save_every 2 --resume >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  cat "$work/log"; ls "$work/links/ckpt"
  [ -f "$work/precious/x" ] && [ -d "$work/links/ckpt/step_00000006" ] && ! grep -q failed "$work/log"
}
check "links in ckpt/ are no obstacle, and their targets stay" link_in_ckpt

# ---- a failing evaluation --------------------------------------------------------------------------------------------
# The middle of a large shard is not looked at before it is read: an id that the model does not know.
costs_nothing() {
  python3 -c "
import struct, sys
tokens = [i % 256 for i in range(1 << 21)]
tokens[700000] = 999
open(sys.argv[1], 'wb').write(struct.pack('<%dH' % len(tokens), *tokens))" "$work/val.bin"
  launch 2 eval --model.vocabulary 256 --data.train "$work/val.bin" --data.validation "$work/val.bin" --train.steps 3 --train.eval_every 0 --train.eval_windows 0 >"$work/log" 2>&1
  local got=$?; cat "$work/log"
  [ "$got" -eq 4 ] && grep -q 'val.bin.*999' "$work/log" && [ -f "$work/eval/ckpt/step_00000003/manifest.json" ]
}
check "an evaluation that fails costs no checkpoint" costs_nothing

# ---- data that changes ---------------------------------------------------------------------------------------------
newest_save() { ls "$work/over/ckpt" | grep -x 'step_[0-9]*' | tail -1; } # not one that is being written
overwritten() {
  local n=$1; shift
  rm -rf "$work/over"
  cp README.md "$work/text.txt"
  "$MPIRUN" -n "$n" timeout 100 "$tacit" train "${nano[@]}" --run.dir "$work/over" --train.steps 1000000 --train.eval_every 50 --train.save_every 50 --train.keep 1000 --data.train "$work/text.txt" >"$work/log" 2>&1 &
  local pid=$!
  for _ in $(seq 100); do [ ! -d "$work/over/ckpt/step_00000050" ] || break; sleep 0.2; done
  printf 'XXXX' | dd of="$work/text.txt" bs=1 seek=100 conv=notrunc 2>/dev/null
  local newest; newest=$(newest_save)
  wait "$pid"; local status=$?
  cat "$work/log"; ls "$work/over/ckpt"
  [ "$status" -eq 4 ] && grep -q 'text.txt: was written to' "$work/log" && [ "$(newest_save)" \< "$(printf 'step_%08d' $((10#${newest#step_} + 101)))" ]
}
check "data that is overwritten ends the run before the next checkpoint" overwritten 1
check "the same with two ranks" overwritten 2
finish_checks

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Asynchronous gossip as a user meets it: a run, its log, its replay, and what is refused. Usage: async.sh [PROGRAM]
set -u
cd "$(dirname "$0")/.." || exit 2
. tests/check.sh
. tests/runs.sh
find_program "${1:-}"
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT # what still trains when the test is stopped
seq 20000 >"$work/text"
cat >"$work/c.yaml" <<END
strategy: gossip
model: {preset: byte-2m, layers: 1, channels: 32, heads: 1, context: 32}
train: {batch: 6, steps: 40, eval_every: 20, save_every: 20, keep: 9, eval_windows: 8, threads: 1}
data: {train: $work/text}
gossip: {topology: base-k, start: 0.2, async: true}
END

# train RUN RANKS WORD...
train() {
  local run=$1 ranks=$2; shift 2
  timeout -k 1 60 "$tacit" train --ranks "$ranks" "$work/c.yaml" --run.dir "$work/$run" --run.quiet true "$@"
}
# begin RANKS WORD...: a run beside this script, of two minutes at most; $run is its starter, and $job ends with the starter's code
begin() {
  timeout -k 1 120 "$tacit" train --ranks "$1" "$work/c.yaml" "${@:2}" & job=$!
  until run=$(pgrep -P $job); do kill -0 $job 2>/dev/null || return; sleep 0.02; done
}
refuse() { local name=$1 status=$2 text=$3; shift 3; expect "$name" "$status" "$text" train refused 3 "$@"; }
damaged() { rm -rf "$work/damaged"; cp -r "$work/log" "$work/damaged"; }

check "3 ranks train without waiting" train run 3 --run.arrivals "$work/log"
check "rows say nothing of the times of other ranks" look "told = [r['step'] for r in steps('run') if 'slowest_rank' in r]; assert told and max(told) <= 8, told"
check "and once more" train other 3 --run.arrivals "$work/other-log"
check "the log repeats the run" train again 3 --replay "$work/log"
cp -r "$work/log" "$work/log-copy"
untouched() { diff -r "$work/log" "$work/log-copy" && [ ! -e "$work/log.old1" ]; }
expect "a resume that is refused" 3 'train.seed is 2' train run 3 --resume --train.seed 2 --run.arrivals "$work/log"
check "leaves the log that is there" untouched
expect "a resume with nothing to do" 0 'nothing left to do' train run 3 --resume --run.arrivals "$work/log"
check "leaves it, too" untouched
cp -r "$work/log" "$work/used"; touch "$work/used/notes"
expect "a run in the folder of another log" 0 'used held an earlier log: it is now .*used.old1$' train two 2 --run.arrivals "$work/used"
check "moves all of that one aside" diff -r "$work/used.old1" "$work/log-copy"
check "and nothing else" diff <(ls "$work/used") <(printf '%s\n' notes rank-0.log rank-1.log)
check "a run whose log lies in run.dir itself" train within 2 --run.arrivals "$work/within"
check "goes on, and moves nothing but the log" train within 2 --resume --train.steps 60 --run.arrivals "$work/within"
begins() { grep -q "^$2 begin" "$work/$1/rank-0.log"; }
check "(each log has its first step)" eval 'begins within 40 && begins within.old1 8'
check "with the same bits, at the end and before" look "saved = [c['step'] for c in events('run', 'checkpoint')]; assert saved[-1] == 40, saved
for step in saved: same('run', 'again', step)"
check "one rank does what it does synchronously" train one 1
check "(synchronously)" train sync 1 --gossip.async false
check "with the same bits" look "same('one', 'sync', 40)"

single=(--train.steps 1 --gossip.gamma 0 --gossip.start 0 --optim.warmup 0)
check "3 ranks make a step without mixing" train single 3 "${single[@]}"
check "(synchronously)" train single-sync 3 "${single[@]}" --gossip.async false
check "with the same bits" look "same('single', 'single-sync', 1)"
check "bf16: a run with evaluations" train half 3 --model.dtype bf16 --run.arrivals "$work/half-log"
check "bf16: its replay without them" train half-again 3 --model.dtype bf16 --replay "$work/half-log" --train.eval_every 0 --train.save_every 0 --train.save_early 0
check "with the same bits" look "same('half', 'half-again', 40); assert not events('half-again', 'checkpoint')[1:]"
check "a rank skips its updates when its gradient is not finite" env TACIT_FAIL_AT=9:15 timeout -k 1 60 "$tacit" train --ranks 3 "$work/c.yaml" --run.dir "$work/faulty"
check "they are counted on rank 0, and the others go on" look "last = steps('faulty')[-1]; assert 1 <= last['skipped'] <= 15 and last['val_loss'] < 6, last"
refuse "codec" 3 'gossip.codec int8: .* gossip.async, .* --no-gossip.async, or --gossip.codec none' --gossip.codec int8
refuse "order" 3 'gossip.async does not go with gossip.order atc' --gossip.order atc
expect "plan" 0 '^[*] gossip, base-k graph, f32 .* slow ranks make fewer' "$tacit" plan "$work/c.yaml" --cluster examples/clusters/8x4-25gbe.json --compute.rate 20e12
refuse "a log of a synchronous run" 3 'run.arrivals: only ranks that wait for nobody' --no-gossip.async --run.arrivals "$work/x"
refuse "a log of other options" 3 'is not the log of this run' --replay "$work/log" --train.seed 9
check "a replay with other evaluations makes them where the log has meetings" train seldom 3 --replay "$work/log" --train.eval_every 40
check "with the same bits" look "same('run', 'seldom', 40)
assert [l['step'] for l in steps('seldom') if 'val_loss' in l] == [40]"
refuse "a log that is not there" 4 'rank-0.log: cannot open' --replay "$work/nothing"
damaged; sed -i 3d "$work/damaged/rank-1.log"
refuse "a log without one of its lines" 4 'rank-1.log, line 3: .*damaged' --replay "$work/damaged"
for word in begin take offer meet; do # without checksums the others would wait for an offer that never comes
  damaged; sed -i "0,/ $word/{/ $word/d}" "$work/damaged/rank-0.log"
  refuse "a log without its first $word" 4 'rank-0.log, line [0-9]+: .*damaged' --replay "$work/damaged"
done
damaged; sed -i '$d' "$work/damaged/rank-0.log"
refuse "a log without its last meeting" 4 'rank-0.log, line [0-9]+: .*damaged' --replay "$work/damaged"
damaged; echo more >>"$work/damaged/rank-2.log"
refuse "a log with more behind its last meeting" 4 'rank-2.log, line [0-9]+: the log is damaged' --replay "$work/damaged"
damaged; printf '60 ta' >>"$work/damaged/rank-2.log"
check "a line that a crash has cut off behind it is no harm" train cut 3 --replay "$work/damaged"
damaged; cp "$work/other-log/rank-2.log" "$work/damaged"
refuse "logs of two runs" 3 'the log of rank 2 is of another run than that of rank 0' --replay "$work/damaged"
# Asked to stop after step 200; the log has its first meeting after step 400.
stopped_replay() {
  local long=(--train.steps 600 --train.eval_every 0 --train.save_every 400 --run.dir "$work/stopped")
  train long 2 "${long[@]}" --run.arrivals "$work/long-log" || return
  rm -r "$work/stopped"
  begin 2 "${long[@]}" --replay "$work/long-log"
  until [ -s "$work/stopped/metrics.jsonl" ] && grep -q '"step": *2[0-9][0-9],' "$work/stopped/metrics.jsonl"; do
    kill -0 $job || return; sleep 0.02
  done
  kill -USR1 "$run"
  wait $job && look "saved = [e['step'] for e in events('stopped', 'checkpoint')]
assert len(saved) == 2 and 400 <= saved[-1] < 600, saved"
}
check "a replay that is asked to stop does so at a meeting" stopped_replay
# worker PROCESS RANK: the process that computes, of a run that PROCESS has started
worker() { pgrep -P "$(pgrep -P "$1" -f "^watch: rank $2")"; }
# ends: returns the exit status of the run; ends it after half a minute
ends() {
  for _ in $(seq 300); do kill -0 "$run" 2>/dev/null || break; sleep 0.1; done
  kill -KILL "$run" 2>/dev/null && echo "the run does not end"
  wait $job
}
one_is_told() {
  begin 3 --train.steps 1000000 --gossip.start 0 --train.eval_every 0 --train.save_every 0 --run.dir "$work/told"
  reach told 30 && kill -USR1 "$(worker "$run" 1)"
  ends && look "assert events('told', 'checkpoint')[-1]['step'] == events('told', 'meeting')[-1]['step'] < 1000000"
}
log_is_taken() {
  begin 2 --train.steps 1000000 --train.eval_every 0 --run.dir "$work/busy" --run.arrivals "$work/busy-log"
  reach busy 1 && expect "a second run in the folder of a log" 3 'busy-log: another run works in this folder .*another --run.arrivals' train second 2 --run.arrivals "$work/busy-log"
  kill -TERM "$run"
  wait $job && [ ! -e "$work/busy-log/lock" ] && [ ! -e "$work/second" ]
}
# A rank is frozen from before the first evaluation is due until rank 0 has made 850 steps, when two are.
frozen_run() {
  local victim
  begin 3 "${frozen[@]}" --run.dir "$work/frozen" --run.arrivals "$work/frozen-log"
  reach frozen 5 && victim=$(worker "$run" 2) && kill -STOP "$victim" && reach frozen 850
  local reached=$?
  mkdir "$work/then"; cp "$work/frozen/metrics.jsonl" "$work/then"
  kill -CONT "$victim"
  ends && [ $reached -eq 0 ] && look "assert not events('then', 'meeting') and not events('then', 'checkpoint')
assert not [l for l in steps('then') if 'val_loss' in l]"
}
# reach RUN STEP: waits until rank 0 has
reach() {
  for _ in $(seq 2000); do
    [[ "$(tail -n 1 "$work/$1/metrics.jsonl" 2>/dev/null)" =~ \"step\":\ *([0-9]+), ]] && [ "${BASH_REMATCH[1]}" -ge "$2" ] && return
    sleep 0.02
  done
  return 1
}
# A run that was stopped is repeated to its end, and its checkpoint.
repeated_stop() {
  local long=(--train.batch 24 --train.steps 100000 --train.eval_every 0 --train.save_every 0 --gossip.start 0)
  begin 3 "${long[@]}" --run.arrivals "$work/stop-log" --run.dir "$work/asked"
  reach asked 60 && kill -TERM "$run"; wait $job || return
  train repeated 3 "${long[@]}" --replay "$work/stop-log" && look "
saved = [[c['step'] for c in events(run, 'checkpoint')] for run in ('asked', 'repeated')]
assert saved[0] == saved[1] and saved[0], saved
same('asked', 'repeated', saved[0][-1])"
}
check "the log of a run that was stopped repeats it, with its checkpoint" repeated_stop
frozen=(--train.batch 24 --train.steps 1600 --train.eval_every 400 --train.save_every 400 --train.save_early 400 --gossip.start 0 --comm.timeout 60)
check "a log is of one run" log_is_taken
check "a rank that is asked to stop takes the others along" one_is_told
check "a rank that is frozen when an evaluation is due does not stop the others" frozen_run
check "it takes place when the rank is back, for all that were due, with its true step" look "
late, *rest = events('frozen', 'meeting')
evaluated = [l['step'] for l in steps('frozen') if 'val_loss' in l]
assert 850 <= late['step'] < 1600 and min(late['made'][:2]) > late['made'][2] + 400, late
assert evaluated == [late['step']] + [m['step'] for m in rest] and evaluated[-1] == 1600, (late, rest, evaluated)
assert steps('frozen')[-1]['tokens'] == sum(sum(m['made']) for m in (late, *rest)) * 8 * 32
assert all(b['step'] > a['step'] for a, b in zip(steps('frozen'), steps('frozen')[1:]))"
check "its log repeats the run" train frozen-again 3 "${frozen[@]}" --replay "$work/frozen-log"
check "with the same bits, at the end and at the late checkpoint" look "
for m in events('frozen', 'meeting'): same('frozen', 'frozen-again', m['step'])"
for run in frozen frozen-again; do find "$work/$run/ckpt" -name 'step_*' | sort | tail -n +2 | xargs rm -r; done
check "it goes on from that checkpoint" train frozen 3 "${frozen[@]}" --resume --run.arrivals "$work/rest-log"
check "and is repeated from there" train frozen-again 3 "${frozen[@]}" --resume --replay "$work/rest-log"
check "with the same bits" look "same('frozen', 'frozen-again', 1600)
assert {m['step'] for m in events('frozen-again', 'meeting')} >= {m['step'] for m in events('frozen', 'meeting')}"
mkdir "$work/full"; ln -s /dev/full "$work/full/rank-0.log"
expect "a log that cannot be written is named, and the run ends with 7" 7 'full/rank-0.log: .*No space left.*; training goes on, but this log cannot be replayed$' train full-run 2 --run.arrivals "$work/full"
check "after all its steps" look "assert steps('full-run')[-1]['step'] == 40 and events('full-run', 'checkpoint')[-1]['step'] == 40"
check "a run that goes on" train run 3 --resume --train.steps 60 --run.arrivals "$work/late"
refuse "its log, from the start" 3 'begins after step 40, and this run after step' --train.steps 60 --replay "$work/late"

finish_checks

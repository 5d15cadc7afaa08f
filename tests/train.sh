#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Properties of whole training runs: the same run for every number of ranks, resumed = uninterrupted, overlapped = blocking,
# a poisoned step is skipped everywhere. Needs TACIT (the program) and Open MPI's mpirun.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
. tests/check.sh
find_program
need_mpirun "training runs"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

nano=(--model.preset nano --model.dtype f32 --train.threads 1 --train.batch 12 --train.eval_windows 4 --train.save_early 0
      --optim.warmup 5 --run.tensorboard false)
# run RANKS DIR FLAGS...
run() { local n=$1 dir=$2; shift 2; timeout 240 "$MPIRUN" -n "$n" "$tacit" train "${nano[@]}" --run.dir "$work/$dir" "$@"; }

# curves A B TOLERANCE: the losses of two runs agree at every step both have
curves() {
  python3 - "$work/$1/metrics.jsonl" "$work/$2/metrics.jsonl" "$3" <<'PY'
import json, sys
def losses(path):
    rows = [json.loads(line) for line in open(path)]
    return {r["step"]: r["loss"] for r in rows if "loss" in r and "event" not in r}
a, b, tolerance = losses(sys.argv[1]), losses(sys.argv[2]), float(sys.argv[3])
steps = sorted(set(a) & set(b))
assert len(steps) >= 10, f"only {len(steps)} common steps"
worst = max(abs(a[s] - b[s]) for s in steps)
print(f"{len(steps)} steps, largest difference {worst:.3g}")
assert worst <= tolerance, f"{worst} > {tolerance}"
PY
}

# same_checkpoint A B STEP: parameters and moments are the same bits, whoever wrote them
same_checkpoint() {
  python3 - "$work/$1" "$work/$2" "$3" <<'PY'
import glob, json, struct, sys
def tensors(run):
    out = {}
    for path in glob.glob(f"{run}/ckpt/step_{int(sys.argv[3]):08d}/*.safetensors"):
        data = open(path, "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                out[name] = data[8 + size + begin:8 + size + end]
    return out
a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
assert a and a.keys() == b.keys(), f"{len(a)} and {len(b)} tensors"
different = [n for n in a if a[n] != b[n]]
assert not different, f"{len(different)} of {len(a)} differ, e.g. {different[:3]}"
print(len(a), "tensors are equal bit for bit")
PY
}

skipped_once() {
  python3 - "$1" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
steps = [r for r in rows if "event" not in r]
assert len(steps) == 30 and steps[-1]["skipped"] == 1 and steps[10]["skipped"] == 0, steps[-1]
assert any(r.get("event") == "skipped" and r["step"] == 12 for r in rows)
PY
}

# Where replicas differ: every step has one line in order, with the keys that say how far they are apart.
replica_lines() {
  python3 - "$work/$1/metrics.jsonl" "$2" <<'PY'
import json, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if "event" not in r]
assert [r["step"] for r in rows] == list(range(1, int(sys.argv[2]) + 1)), "lines are missing, doubled or out of order"
assert all("consensus" in r and "loss" in r for r in rows)
assert [r["step"] for r in rows if "distance" in r] == [r["step"] for r in rows if "val_loss" in r] != []
PY
}

# same_losses A B: step by step the same numbers in metrics.jsonl
same_losses() {
  python3 - "$work/$1/metrics.jsonl" "$work/$2/metrics.jsonl" <<'PY'
import json, sys
KEYS = ("step", "loss", "val_loss", "lr", "grad_norm", "consensus", "distance", "skipped", "tokens")
def rows(path):
    return [[r.get(k) for k in KEYS] for r in map(json.loads, open(path)) if "event" not in r]
a, b = rows(sys.argv[1]), rows(sys.argv[2])
assert len(a) > 10 and a == b, [x for x in zip(a, b) if x[0] != x[1]][:2]
PY
}

# replicas NAME RANKS FLAGS...: a run of 22 steps, stopped at step 10 and resumed, is the run that never stopped
replicas() {
  local name=$1 n=$2 flags=("${@:3}" --train.steps 22 --train.eval_every 7 --train.save_every 10 --train.keep 9)
  check "$name on $n ranks" run "$n" "r-$name-$n" "${flags[@]}"
  check "$name on $n ranks: one line per step, with distances" replica_lines "r-$name-$n" 22
  cp -r "$work/r-$name-$n" "$work/again"; rm -rf "$work"/again/ckpt/step_0000002*
  expect "$name on $n ranks, resumed at step 10" 0 'resume at step 10 of 22' run "$n" again "${flags[@]}" --resume
  check "$name on $n ranks: resumed is bit-equal to never having stopped" same_checkpoint "r-$name-$n" again 22
  check "$name on $n ranks: and so are its lines" same_losses "r-$name-$n" again
  rm -rf "$work/again"
}

# others DIR RANKS TEXT FLAGS...: resumed differently, DIR goes on from the mean and says so
others() {
  cp -r "$work/$1" "$work/others"
  expect "$1 resumed on $2 ranks with $5: $3" 0 "$3" run "$2" others --train.steps 30 "${@:4}" --resume
  rm -rf "$work/others"
}

# final_is_mean DIR STEP RANKS: what others read is the mean of the replicas
final_is_mean() {
  python3 - "$work/$1" "$2" "$3" <<'PY'
import array, glob, json, struct, sys
tensors = {}
for path in glob.glob(f"{sys.argv[1]}/ckpt/step_{int(sys.argv[2]):08d}/*.safetensors"):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            tensors[name] = array.array("f", data[8 + size + begin:8 + size + end])
ranks, apart = int(sys.argv[3]), 0.0
names = [n for n in tensors if n.startswith("model.")]
assert names
for name in names:
    own = [tensors[f"rank.{r:05d}.{name}"] for r in range(ranks)]
    for i, mean in enumerate(tensors[name]):
        values = [o[i] for o in own]
        apart = max(apart, max(values) - min(values))
        assert abs(mean - sum(values) / ranks) <= 1e-6 * max(1e-3, max(map(abs, values))), (name, i, mean, values)
assert ranks == 1 or apart > 0, "the replicas are equal"
print(len(names), "tensors, replicas are apart by at most", apart)
PY
}

# window_begins_anew CHECKPOINT UPDATES: no gradient is in an unfinished window
window_begins_anew() {
  python3 - "$1" "$2" <<'PY'
import glob, json, struct, sys
meta = json.load(open(f"{sys.argv[1]}/manifest.json"))["meta"]
assert meta["updates"] == int(sys.argv[2]), meta["updates"]
zero = []
for path in glob.glob(f"{sys.argv[1]}/*.safetensors"):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + size]).items():
        if name.startswith("optim.a."):
            begin, end = t["data_offsets"]
            zero.append(not any(data[8 + size + begin:8 + size + end]))
assert zero and all(zero), zero
PY
}

promised_keys() {
  python3 - "$1" <<'PY'
import json, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if "event" not in r]
for key in "step loss tokens_per_s step_s wait_s bytes_sent skipped".split():
    assert all(key in r for r in rows), key
assert [r["step"] for r in rows if "val_loss" in r] == [50, 100]
assert all(r["bytes_sent"] > 0 for r in rows)
PY
}

trace_is_whole() {
  python3 - "$1" <<'PY'
import json, sys
trace = json.load(open(sys.argv[1]))
events = trace["traceEvents"] if isinstance(trace, dict) else trace
spans = [e for e in events if e["ph"] == "X"]
assert {e["pid"] for e in spans} == {0, 1, 2}
assert {"forward", "backward", "transfer", "update"} <= {e["name"].split()[0] for e in spans}
PY
}

for n in 1 2 3 4 5 7 8; do
  check "train on $n ranks, 100 steps" run "$n" "n$n" --train.steps 100 --train.eval_every 50 --train.save_every 50
done
for n in 2 3 4 5 7 8; do check "loss curve of $n ranks = 1 rank to 1e-5" curves n1 "n$n" 1e-5; done

check "first half on 4 ranks" run 4 half --train.steps 100 --train.max_minutes 0 --train.save_every 50 --train.eval_every 50 --train.keep 9
rm -rf "$work/half/ckpt/step_00000100"
for n in 3 4 8; do
  cp -r "$work/half" "$work/half$n"
  check "resume a checkpoint of 4 ranks on $n" run "$n" "half$n" --train.steps 100 --train.save_every 50 --train.eval_every 50 --resume
  check "resumed on $n follows the uninterrupted curve" curves n4 "half$n" 1e-5
done
check "resumed on 4 ranks is bit-equal to never having stopped" same_checkpoint n4 half4 100

lossy=(--model.dtype bf16 --exchange.wire bf16 --model.dropout 0.1 --train.micro_batch 2 --train.steps 40 --train.save_every 20 --train.keep 9)
check "bf16, dropout, micro-batches" run 3 lossy "${lossy[@]}"
cp -r "$work/lossy" "$work/lossy-again"; rm -rf "$work/lossy-again/ckpt/step_00000040"
expect "the same, resumed half way" 0 'resume at step 20 of 40' run 3 lossy-again "${lossy[@]}" --resume
check "the same is bit-equal to never having stopped" same_checkpoint lossy lossy-again 40

check "blocking exchange" run 4 blocking --train.steps 100 --train.eval_every 50 --train.save_every 50 --exchange.overlap false --exchange.bucket 64KiB
check "small buckets, overlapped" run 4 overlapped --train.steps 100 --train.eval_every 50 --train.save_every 50 --exchange.bucket 64KiB
check "overlapped is bit-equal to blocking" same_checkpoint blocking overlapped 100
check "bucket size does not change a bit" same_checkpoint n4 overlapped 100
check "bf16 on the wire trains" run 4 wire16 --train.steps 100 --train.eval_every 50 --exchange.wire bf16
check "bf16 on the wire stays close to f32" curves n4 wire16 0.02
check "accumulation of micro-batches" run 2 micro --train.steps 100 --train.eval_every 50 --train.micro_batch 2
check "micro-batches follow the same curve" curves n1 micro 1e-5
check "sgd with momentum trains" run 2 sgd --train.steps 30 --optim.name sgd --optim.lr 0.05
accum=(--optim.name accum-adamw --optim.accum 8 --optim.schedule inverse-sqrt --train.steps 40 --train.save_every 20 --train.keep 9)
check "accum-adamw trains" run 2 accum "${accum[@]}"
cp -r "$work/accum" "$work/accum-again"; rm -rf "$work/accum-again/ckpt/step_00000040"
expect "the same, resumed amid of a window" 0 'resume at step 20 of 40' run 2 accum-again "${accum[@]}" --resume
check "the same is bit-equal to never having stopped, the window's mean included" same_checkpoint accum accum-again 40
check "a window of one step" run 2 window1 --train.steps 30 --optim.name accum-adam --optim.accum 1
check "adam" run 2 adam --train.steps 30 --optim.name adam
check "a window of one step is adam" curves adam window1 0
expect "one rank is told that its codec does nothing" 0 'sends  nothing: one rank computes as without topk' \
  run 1 alone --train.steps 2 --compress.codec topk
expect "ranks are told that they do not meet" 0 "localsgd.every 9 is more than the run's 3 steps" \
  run 2 apart --train.steps 3 --strategy localsgd --localsgd.every 9

accum=(--optim.name accum-adamw --optim.accum 4)
for n in 1 2 3 4; do replicas awc "$n" --strategy gossip --gossip.topology exp "${accum[@]}"; done
for n in 3 4; do
  replicas atc "$n" --strategy gossip --gossip.topology base-k --gossip.order atc "${accum[@]}"
  replicas push-sum "$n" --strategy gossip --gossip.topology exp-directed
  replicas delayed "$n" --strategy gossip --gossip.delay 1 --gossip.gamma 0.5
  replicas tracker "$n" --strategy gossip --gossip.topology base-k --gossip.order atc --gossip.tracker true
  replicas lossy "$n" --strategy gossip --gossip.every 3 --model.dtype bf16 --exchange.wire bf16 --model.dropout 0.1 --train.micro_batch 2
  replicas diloco "$n" --strategy localsgd --localsgd.every 4 --localsgd.outer_lr 0.7 --localsgd.outer_momentum 0.9 "${accum[@]}"
done
check "the final model is the mean of the replicas" final_is_mean r-awc-4 22 4
others r-awc-4 3 'holds 4 replicas of strategy gossip; this run \(gossip, 3 ranks\) goes on from their mean' --strategy gossip "${accum[@]}"
others r-awc-4 5 'this run \(gossip, 5 ranks\) goes on from their mean' --strategy gossip "${accum[@]}"
others r-awc-4 4 'this run \(dp, 4 ranks\) goes on from their mean' --strategy dp "${accum[@]}"
others r-awc-4 4 'this run \(localsgd, 4 ranks\) goes on from their mean' --strategy localsgd "${accum[@]}"
others n4 4 'is of strategy dp; all replicas of gossip start from its model' --strategy gossip --train.steps 110

# Unequal data: what a rank draws from is a function of seed, rank and number of ranks.
for n in 3 4; do
  replicas by-rank "$n" --strategy gossip --data.partition by-rank
  replicas dirichlet "$n" --strategy gossip --gossip.tracker true --data.partition dirichlet:0.1
done
check "global on one rank" run 1 global-1 --train.steps 20 --data.partition global
check "by-rank on one rank" run 1 by-rank-1 --train.steps 20 --data.partition by-rank
check "by-rank on one rank is global, bit for bit" same_checkpoint global-1 by-rank-1 20
check "dp averages over the parts" run 4 by-rank-dp --train.steps 20 --data.partition by-rank
others r-by-rank-4 3 'data.partition by-rank is over 3 ranks now, over 4 in the checkpoint' --strategy gossip --data.partition by-rank
others r-by-rank-4 4 'data.partition was "by-rank" in the checkpoint and is "global" now' --strategy gossip
expect "ranks without samples are refused" 3 'some of 4 ranks have no sample.*--train.batch 4 or more' run 4 few --data.partition by-rank --train.batch 3
expect "an unknown partition is refused" 3 'none of global, by-rank and dirichlet:ALPHA' run 1 few --data.partition dirichlet
head -c 100 README.md >"$work/short.txt"
expect "parts shorter than a sample are refused" 4 'leaves a part of 9 train tokens' run 1 few --data.train "$work/short.txt" --data.partition dirichlet:1

# resumes_with STATUS TEXT FLAGS...: r-awc-4 resumed with other settings
resumes_with() {
  cp -r "$work/r-awc-4" "$work/others"
  expect "r-awc-4 resumed with ${*:3}: $2" "$1" "$2" run 4 others --strategy gossip "${accum[@]}" --train.steps 24 "${@:3}"
  rm -rf "$work/others"
}
resumes_with 3 '"handed" .*gossip.delay was 0 and is 1 now.*--resume-from-mean' --gossip.delay 1 --gossip.gamma 0.5 --resume
resumes_with 3 '"handed" .*gossip.every was 1 and is 2 now.*--resume-from-mean' --gossip.every 2 --resume
resumes_with 3 '"tracker" .*gossip.tracker was false and is true now.*--resume-from-mean' --gossip.tracker true --resume
resumes_with 0 'this run \(gossip, 4 ranks\) goes on from their mean' --gossip.tracker true --resume-from-mean
resumes_with 0 'resume: gossip.gamma was 1 in the checkpoint and is 0.5 now' --gossip.gamma 0.5 --resume
resumes_with 0 'the last 2 gradients are not in the moments, which hold 5 windows' --optim.accum 7 --resume
expect "adam cannot go on as accum-adamw, and says so" 3 '"a" of the optimizer: optim.name was "adam" and is "accum-adam" now.*--train.init' \
  run 2 adam --train.steps 40 --optim.name accum-adam --resume

# The second run makes no update, so its checkpoint holds what it began with: 5 windows, no gradient of the sixth.
check "22 updates in windows of 4" run 2 window4 "${accum[@]}" --train.steps 22
TACIT_FAIL_AT=22:2 check "going on in windows of 7" run 2 window4 "${accum[@]}" --optim.accum 7 --train.steps 24 --resume
check "the moments keep their windows, and the unfinished one begins anew" window_begins_anew "$work/window4/ckpt/step_00000024" $((5 * 7))

run 3 gossip-auto --strategy gossip --train.steps 2 >"$work/gossip-auto.out" 2>&1
check "gossip says once which graph it takes" test "$(grep -c 'gossip.topology auto: aer, for 3 ranks on 1 host$' "$work/gossip-auto.out")" -eq 1
TACIT_FAIL_AT=5 check "gossip: a NaN gradient on one rank" run 4 gossip-nan --strategy gossip --gossip.start 0.2 --train.steps 20
check "gossip: one rank skips alone, and that is counted" python3 -c "
import json
rows = [json.loads(line) for line in open('$work/gossip-nan/metrics.jsonl')]
steps = [r for r in rows if 'event' not in r]
assert [r['skipped'] for r in steps] == [0] * 5 + [1] * 15
assert [(r['step'], r['ranks']) for r in rows if r.get('event') == 'skipped'] == [(6, 1)]"
check "a profile of what is trained" run 2 profiled --train.steps 12 --train.micro_batch 3 --profile "$work/nano.json"
expect "emulated compute reads it" 0 'nano-train|overlap' timeout 100 "$MPIRUN" -n 2 "$tacit" bench step --compute.emulate "$work/nano.json" --rounds 2
expect "too few steps for a profile are refused" 3 'raise train.steps' run 2 unprofiled --train.steps 3 --profile "$work/none.json"

TACIT_FAIL_AT=11 check "a NaN gradient on one rank" run 3 nan --train.steps 30
check "that step is skipped, counted and logged" skipped_once "$work/nan/metrics.jsonl"
check "metrics hold every promised key" promised_keys "$work/n4/metrics.jsonl"
check "a trace of all ranks" run 3 trace --train.steps 12 --run.trace true
check "the trace is JSON with every rank" trace_is_whole "$work/trace/trace.json"
finish_checks

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Laws of whole training runs: the same run for every number of ranks, resumed = uninterrupted, overlapped = blocking,
# a poisoned step is skipped everywhere. Needs TACIT (the program) and Open MPI's mpirun.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
. tests/check.sh
tacit=${TACIT:-build/release/bin/tacit}
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
check "the same, resumed half way" run 3 lossy-again "${lossy[@]}" --resume
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
check "the same, resumed amid of a window" run 2 accum-again "${accum[@]}" --resume
check "the same is bit-equal to never having stopped, the window's mean included" same_checkpoint accum accum-again 40
check "a window of one step" run 2 window1 --train.steps 30 --optim.name accum-adam --optim.accum 1
check "adam" run 2 adam --train.steps 30 --optim.name adam
check "a window of one step is adam" curves adam window1 0

check "a NaN gradient on one rank" run 3 nan --train.steps 30 --train.fail_at 11
check "that step is skipped, counted and logged" skipped_once "$work/nan/metrics.jsonl"
check "metrics hold every promised key" promised_keys "$work/n4/metrics.jsonl"
check "a trace of all ranks" run 3 trace --train.steps 12 --run.trace true
check "the trace is JSON with every rank" trace_is_whole "$work/trace/trace.json"
finish_checks

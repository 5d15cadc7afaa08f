#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Properties of compressed training runs: factor 1 is dense, resumed = uninterrupted, overlapped = blocking, a poisoned step is
# skipped and touches no residual, bytes fall. Needs TACIT (the program) and Open MPI's mpirun.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
. tests/check.sh
find_program
need_mpirun "compressed runs"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

# A width that is no multiple of 16, so that there are gaps between tensors.
nano=(--data.train "$PWD/LICENSE" --model.preset nano --model.heads 1 --model.channels 41 --model.dtype f32 --train.threads 1 --train.batch 12 --train.eval_every -1 --train.save_early 0
      --train.save_every 0 --optim.warmup 5 --optim.lr 5e-3 --run.tensorboard false)
topk=(--compress.codec topk --compress.factor 50 --compress.warmup 10)
# run RANKS DIR FLAGS...
run() { local n=$1 dir=$2; shift 2; timeout 120 "$MPIRUN" -n "$n" "$tacit" train "${nano[@]}" --run.dir "$work/$dir" "$@"; }

# look PROGRAM ARGUMENTS...: Python with the readers below
look() {
  local program=$1; shift
  python3 - "$work" "$@" <<PY
import glob, json, math, struct, sys
work = sys.argv[1]
def tensors(run, step):
    out = {}
    for path in glob.glob(f"{work}/{run}/ckpt/step_{step:08d}/*.safetensors"):
        data = open(path, "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                out[name] = data[8 + size + begin:8 + size + end]
    return out
def rows(run): return [json.loads(line) for line in open(f"{work}/{run}/metrics.jsonl")]
def steps(run): return [r for r in rows(run) if "event" not in r]
def same(a, b, step, only=""):
    a, b = tensors(a, step), tensors(b, step)
    names = [n for n in a if n.startswith(only)]
    assert names and (only or a.keys() == b.keys()), (len(a), len(b))
    different = [n for n in names if a[n] != b[n]]
    assert not different, different[:3]
$program
PY
}

# ---- dense -------------------------------------------------------------------------------------------------------
run 4 dense --train.steps 12 >/dev/null 2>&1
run 4 one --train.steps 12 --compress.codec topk --compress.factor 1 >/dev/null 2>&1
check "factor 1 is the dense run bit for bit" look 'same("dense", "one", 12, "model.")
assert [r["loss"] for r in steps("dense")] == [r["loss"] for r in steps("one")]
assert all(r["factor"] == 1 for r in steps("one"))'

# ---- steps -------------------------------------------------------------------------------------------------------
run 4 whole "${topk[@]}" --train.steps 20 >/dev/null 2>&1
run 4 blocking "${topk[@]}" --train.steps 20 --exchange.overlap false >/dev/null 2>&1
check "overlapped is blocking bit for bit" look 'same("whole", "blocking", 20)'
check "bytes fall, and metrics tell factor, gain and kept" look '
for r in steps("whole")[4:]: assert 0 < r["gain"] <= 1 and 0 < r["kept"] < 0.5, r
late = steps("whole")[15:] # five steps for the threshold
kept = sum(r["kept"] for r in late) / len(late)
assert 0.01 < kept < 0.04, kept
assert sum(r["compression"] for r in late) / len(late) > 10, late[-1]
assert sum(r["bytes_sent"] for r in late) * 8 < sum(r["bytes_sent"] for r in steps("dense")[5:]) * len(late) / 7'
check "the factor rises from 1 during the warm-up" look 'f = [r["factor"] for r in steps("whole")]
assert f[0] == 1 and max(f[:10]) < 50 and min(f[10:]) == 50 and sorted(f) == f, f'
run 2 standard --compress.codec topk --compress.factor 50 --train.steps 5 --train.save_every -1 >/dev/null 2>&1
check "by default for 200 steps or more" look 'f = [r["factor"] for r in steps("standard")]
assert all(abs(x - 50 ** (i / 200)) < 1e-3 for i, x in enumerate(f)), f'
run 2 every --compress.codec int4 --train.steps 2 --train.save_every -1 >/dev/null 2>&1
check "a codec without a factor has no warm-up" look 'assert all(r["compression"] > 5 for r in steps("every"))'
check "the loss falls" look 's = steps("whole"); assert s[-1]["loss"] < s[0]["loss"] - 0.3, s[-1]'

# ---- gaps between tensors ----------------------------------------------------------------------------------------
# Codecs that decode 0 to something else. Single steps have norms of their own, so medians are compared.
gaps() { local dir=$1; shift; run 3 "$dir" --optim.lr 1e-3 --compress.warmup 0 --train.steps 40 "$@"; }
gaps gaps --train.save_every -1 --compress.codec topk --compress.factor 1 >/dev/null 2>&1
for codec in int4 auto; do
  check "40 steps with $codec" gaps "gaps-$codec" --compress.codec $codec --train.save_early 30
  check "have the norms of dense steps, and none is skipped, $codec" look "import statistics
a, b = steps('gaps'), steps('gaps-$codec')
assert len(b) == 40 and all(r['skipped'] == 0 for r in b), b[-1]
median = lambda rows: statistics.median(r['grad_norm'] for r in rows[20:])
assert median(b) < 2 * median(a), (median(a), median(b))"
done
cp -r "$work/gaps-int4" "$work/gaps-again"; rm -rf "$work"/gaps-again/ckpt/step_00000040
expect "int4 resumed" 0 'resume at step 30 of 40' gaps gaps-again --compress.codec int4 --train.save_early 30 --resume
check "is uninterrupted, bit for bit, with int4" look 'same("gaps-int4", "gaps-again", 40)'

# ---- checkpoints -------------------------------------------------------------------------------------------------
for overlap in true false; do
  run 4 part "${topk[@]}" --train.steps 20 --train.save_early 9 --exchange.overlap $overlap >/dev/null 2>&1
  rm -rf "$work"/part/ckpt/step_00000020
  expect "resumed on 4 ranks bit for bit, overlap $overlap" 0 'resume at step 9 of 20' run 4 part "${topk[@]}" --train.steps 20 --resume --exchange.overlap $overlap
  check "and it is the same, overlap $overlap" look 'same("whole", "part", 20)'
done
run 4 fewer "${topk[@]}" --train.steps 10 >/dev/null 2>&1
expect "residuals of 4 ranks go on at 3" 0 "residuals of 4 ranks" run 3 fewer "${topk[@]}" --train.steps 20 --resume
check "the loss goes on" look 's = steps("fewer"); assert len(s) == 20 and s[-1]["loss"] < s[9]["loss"] + 0.05, s[-1]'
expect "without a codec they are dropped, and it says so" 0 "residuals.*dropped" run 4 whole --train.steps 22 --resume
run 4 begun --train.steps 5 >/dev/null 2>&1
expect "a dense run goes on compressed" 0 'resume at step 5 of 10' run 4 begun "${topk[@]}" --train.steps 10 --resume
TACIT_FAIL_AT=6 run 4 poisoned "${topk[@]}" --train.steps 12 >/dev/null 2>&1
check "a poisoned step is skipped and the run goes on" look 's = steps("poisoned")
assert s[-1]["skipped"] == 1 and math.isfinite(s[-1]["loss"]) and s[-1]["loss"] < s[0]["loss"], s[-1]
t = tensors("poisoned", 12)
assert all(math.isfinite(v) for n in t if "residual" in n for v in struct.unpack(f"<{len(t[n]) // 4}f", t[n]))'

# ---- ranks, codecs, controllers ----------------------------------------------------------------------------------
for ranks in 1 2 5 6 7; do check "$ranks ranks" run $ranks ranks "${topk[@]}" --train.steps 4 --train.save_every -1; done
for codec in $("$tacit" info codecs --all --json | python3 -c 'import json, sys
d = json.load(sys.stdin); print(*[c["name"] for c in (d["codecs"] if isinstance(d, dict) else d)])'); do
  check "codec $codec" run 2 codecs --compress.codec "$codec" --compress.warmup 0 --train.steps 2 --train.save_every -1
done
check "gravac" run 4 gravac --compress.codec topk --adapt.policy gravac --train.steps 12 --train.save_every -1
check "it says what it chose and why" look 'e = [x for x in rows("gravac") if x.get("event") == "compression"]
assert e and all(x["policy"] == "gravac" and x["factor"] >= 1 and len(x["reason"]) > 20 for x in e), e'
# A link that is slow beyond doubt: number formats alone, or a fifth of the elements once the warm-up is over where compress.loss allows it.
auto=(--compress.codec auto --compress.warmup 20 --comm.rate 2 --train.steps 34 --train.save_every -1)
check "auto on a slow link, with loss" run 3 slow "${auto[@]}" --compress.loss 4
check "it selects elements after the warm-up, and says why" look 'f = [r["factor"] for r in steps("slow")]
assert max(f[:20]) == 8 and f[-1] == 20, f
assert "at factor 20" in [r for r in rows("slow") if r.get("event") == "compression"][-1]["reason"]'
check "auto as it is by default" run 3 lossless "${auto[@]}"
check "it sends all elements, in a seventh of the bytes" look 's = steps("lossless"); f = [r["factor"] for r in s]
assert max(f) == f[-1] == 8 and s[-1]["bytes_sent"] * 7 < s[0]["bytes_sent"], s[-1]'
# A step that is skipped at the end of a period shifts the decision by one step.
accordion=(--compress.codec topk --adapt.policy accordion --accordion.low 2 --accordion.high 8 --accordion.epoch 5 --accordion.every 1)
run 3 accordion "${accordion[@]}" --train.steps 16 >/dev/null 2>&1
TACIT_FAIL_AT=9 run 3 accordion_fault "${accordion[@]}" --train.steps 17 >/dev/null 2>&1
check "accordion decides after so many steps that were taken" look '
at = lambda run: [r["step"] for r in rows(run) if r.get("event") == "compression"]
a, b = at("accordion"), at("accordion_fault")
assert a and b and [x for x in a if x > 9][0] + 1 == [x for x in b if x > 9][0], (a, b)'
for policy in accordion payoff; do
  flags=(--compress.codec topk --compress.feedback 0.5 --adapt.policy $policy)
  [ $policy = payoff ] || flags=("${accordion[@]}" --compress.feedback 0.5)
  check "$policy with a decay" run 3 $policy"_decay" "${flags[@]}" --train.steps 16 --train.save_early 8
done
rm -rf "$work"/accordion_decay/ckpt/step_00000016
expect "accordion resumed with a decay" 0 'resume at step 8 of 16' run 3 accordion_decay "${accordion[@]}" --compress.feedback 0.5 --train.steps 16 --resume
run 3 accordion_whole "${accordion[@]}" --compress.feedback 0.5 --train.steps 16 >/dev/null 2>&1
check "and it is the same, and not the run without a decay" look 'same("accordion_decay", "accordion_whole", 16)
assert tensors("accordion", 16) != tensors("accordion_whole", 16)'
expect "with other options accordion begins anew" 0 "accordion begins anew: the checkpoint has other options of it" \
  run 3 accordion_decay "${accordion[@]}" --accordion.high 9 --compress.feedback 0.5 --train.steps 18 --resume
check "scope bucket, warm-up, a denser way back" run 4 scope "${topk[@]}" --compress.scope bucket --compress.warmup 5 --compress.start 1 \
  --compress.back 5 --train.steps 8 --train.save_every -1
check "the factor rises from compress.start" look 'f = [r["factor"] for r in steps("scope")]; assert f[0] == 1 and f[5] == 50 and sorted(f) == f, f'
check "EF21" run 4 estimate "${topk[@]}" --compress.what change --train.steps 6 --train.save_every -1
check "EF21 goes on at as many ranks" run 4 estimate "${topk[@]}" --compress.what change --train.steps 6 --train.save_early 3
rm -rf "$work"/estimate/ckpt/step_00000006
same_ranks() { run 4 estimate "${topk[@]}" --compress.what change --train.steps 6 --resume >"$work/log" 2>&1 || return 1; grep -q 'resume at step 3 of 6' "$work/log" && ! grep -q 'begin anew' "$work/log"; }
check "and says nothing of its estimates" same_ranks
expect "which begin anew at another number of ranks, and it says so" 0 'warning: resume: the estimates of compress.what change begin anew' \
  run 3 estimate "${topk[@]}" --compress.what change --train.steps 8 --resume
check "momentum correction" run 4 momentum "${topk[@]}" --compress.momentum 0.9 --optim.beta1 0 --train.steps 6 --train.save_every -1

# ---- sketches ----------------------------------------------------------------------------------------------------
# The built-in text holds the docs and changes with them; how well sums of sketches decode follows from the text.
sketch=(--compress.codec sketch --compress.factor 5 --compress.warmup 0)
run 4 sketch "${sketch[@]}" --train.steps 12 >/dev/null 2>&1
run 4 sketch_blocking "${sketch[@]}" --train.steps 12 --exchange.overlap false >/dev/null 2>&1
check "overlapped is blocking bit for bit, sketch" look 'same("sketch", "sketch_blocking", 12)
s = steps("sketch"); assert s[-1]["loss"] < s[0]["loss"] - 0.2 and all(r["factor"] == 5 and 0 < r["kept"] < 0.5 for r in s), s
assert all(r["compression"] > 1.2 for r in s[6:]), s'
run 4 sketch_part "${sketch[@]}" --train.steps 12 --train.save_early 5 >/dev/null 2>&1
rm -rf "$work"/sketch_part/ckpt/step_00000012
expect "resumed bit for bit, sketch" 0 'resume at step 5 of 12' run 4 sketch_part "${sketch[@]}" --train.steps 12 --resume
check "and it is the same, sketch" look 'same("sketch", "sketch_part", 12)'
expect "sketch goes on at 3 ranks" 0 'resume at step 12 of 14' run 3 sketch_part "${sketch[@]}" --train.steps 14 --resume
TACIT_FAIL_AT=6 run 4 tagc --compress.codec tagc --train.steps 12 >/dev/null 2>&1
check "what does not decode is counted; a poisoned step is skipped" look 's = steps("tagc")
assert any(r.get("pending", 0) > 0 for r in s) and s[-1]["skipped"] == 1 and s[-1]["loss"] < s[0]["loss"], s
t = tensors("tagc", 12)
assert all(math.isfinite(v) for n in t if "residual" in n for v in struct.unpack(f"<{len(t[n]) // 4}f", t[n]))'
for ranks in 1 2 3 5 6 7; do check "sketch on $ranks ranks" run $ranks ranks "${sketch[@]}" --train.steps 4 --train.save_every -1; done
expect "sketches are for owners" 3 "for the owners of sums" "$tacit" train "${sketch[@]}" --compress.collective gather --run.dir "$work/no"

# ---- 1-bit Adam --------------------------------------------------------------------------------------------------
onebit=(--compress.codec onebit --compress.what momentum --optim.freeze 6)
run 4 onebit "${onebit[@]}" --train.steps 14 >/dev/null 2>&1
check "before the freeze it is the dense run bit for bit" look 'a, b = steps("dense"), steps("onebit")
assert [r["loss"] for r in a[:7]] == [r["loss"] for r in b[:7]] and a[7]["loss"] != b[7]["loss"]
assert all(r["factor"] == 1 for r in b[:6]) and b[6]["bytes_sent"] * 20 < b[5]["bytes_sent"], b[6]
assert b[-1]["loss"] < b[6]["loss"], b[-1]'
for step in 4 6 9; do
  run 4 onebit_$step "${onebit[@]}" --train.steps 14 --train.save_early $step >/dev/null 2>&1
  rm -rf "$work"/onebit_$step/ckpt/step_00000014
  expect "resumed at step $step" 0 "resume at step $step of 14" run 4 onebit_$step "${onebit[@]}" --train.steps 14 --resume
  check "and it is the same, step $step" look 'same("onebit", sys.argv[2], 14)' onebit_$step
done
expect "a freeze that moments do not follow" 3 "optim.freeze says: resume with the old value" \
  run 4 onebit_4 "${onebit[@]}" --optim.freeze 9 --train.steps 20 --resume
run 4 onebit_fewer "${onebit[@]}" --train.steps 9 >/dev/null 2>&1
expect "it goes on at 3 ranks" 0 'resume at step 9 of 14' run 3 onebit_fewer "${onebit[@]}" --train.steps 14 --resume
for ranks in 1 2 5 7; do check "1-bit Adam on $ranks ranks" run $ranks ranks "${onebit[@]}" --train.steps 9 --train.save_every -1; done

# ---- localsgd ----------------------------------------------------------------------------------------------------
check "localsgd, int4" run 4 local --strategy localsgd --localsgd.every 3 --compress.codec int4 --train.steps 9
check "its replicas agree after an average" look 't = tensors("local", 9)
own = [n for n in t if n.startswith("rank.") and ".model." in n]
assert own and all(t[n] == t["rank.00000." + n.split(".", 2)[2]] for n in own)'

check "localsgd, the preset of sparseloco" run 6 sparse --strategy localsgd --localsgd.every 3 --compress.codec sparseloco --train.steps 6
expect "a preset is shown, and what is given wins" 0 '"localsgd.outer_momentum": 0.9.*"compress.feedback": 0.95' \
  "$tacit" train --print-config --json --strategy localsgd --compress.codec sparseloco --localsgd.outer_momentum 0.9

# ---- refusals ----------------------------------------------------------------------------------------------------
expect "a factor below 1" 3 "outside 1..1000000" "$tacit" train --compress.factor 0.5
expect "an unknown codec" 3 'did you mean "topk"' "$tacit" train --compress.codec topq
expect "gossip does not compress" 3 "does not compress" "$tacit" train "${topk[@]}" --strategy gossip --run.dir "$work/no"
expect "a factor of a codec without one" 0 "compress.factor 9: nothing in this run reads it; it needs a compress.codec that selects" \
  "$tacit" train --model.preset nano --dry-run --compress.codec int8 --compress.factor 9
expect "a warm-up that begins above its end" 3 "compress.start 9 is above compress.factor 4" "$tacit" train --compress.codec topk --compress.factor 4 --compress.start 9
expect "a policy without a codec" 3 "give --compress.codec topk" "$tacit" train --adapt.policy gravac --run.dir "$work/no"
expect "momentum that is never frozen" 3 "optim.freeze N" "$tacit" train --compress.codec onebit --compress.what momentum --run.dir "$work/no"
expect "momentum of averages" 3 "has no momentum of the whole model" "$tacit" train "${onebit[@]}" --strategy localsgd --run.dir "$work/no"
expect "SGD has no second moment" 3 "optim.name adamw" "$tacit" train --optim.name sgd --optim.freeze 5 --run.dir "$work/no"
finish_checks

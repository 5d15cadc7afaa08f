#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Properties of sharded runs: every stage is dp without clipping, resumed is uninterrupted on any number of ranks and from or to
# dp, a poisoned step is skipped, memory is what was predicted, and limits are refused before the first step. Needs TACIT
# (the program) and Open MPI's mpirun.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
. tests/check.sh
. tests/runs.sh
find_program
need_mpirun "sharded runs"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

# A width that is no multiple of 16, so that there are gaps between tensors.
nano=(--model.preset nano --model.heads 1 --model.channels 41 --model.dtype f32 --train.threads 1 --train.batch 7 --train.eval_every 4 --train.eval_windows 5
      --train.save_early 0 --train.save_every 4 --train.keep 9 --train.steps 8 --optim.warmup 5 --optim.lr 5e-3
      --run.tensorboard false --exchange.bucket 64KiB)
exact=(--optim.clip 0) # squares of parts are added in another order
# run RANKS DIR FLAGS...
run() { local n=$1 dir=$2; shift 2; timeout 120 "$MPIRUN" -n "$n" "$tacit" train "${nano[@]}" --run.dir "$work/$dir" "$@"; }
shard() { local n=$1 dir=$2; shift 2; run "$n" "$dir" --strategy shard "$@"; }
fork() { cp -r "$work/$1" "$work/$2" && rm -rf "$work/$2/ckpt/step_00000008"; }
# resumed NAME COMMAND...: a fork goes on from the checkpoint of step 4, not from nothing
resumed() { expect "$1" 0 'resume at step 4 of 8' "${@:2}"; }
# goes_on RUN FORK [TOLERANCE]: the first step after the checkpoint of step 4 has the same loss, to the bit unless a tolerance is
# given, and the last one a smaller one.
goes_on() {
  look "a, b = steps('$1'), steps('$2')
assert abs(a[4]['loss'] - b[4]['loss']) <= ${3:-0} * a[4]['loss'] and b[7]['loss'] < b[4]['loss'], (a[4], b[4], b[7])"
}

# ---- stages ------------------------------------------------------------------------------------------------------
run 3 dp "${exact[@]}" --exchange.scheme flat >/dev/null 2>&1
for stage in 1 2 3; do
  check "stage $stage trains" shard 3 "s$stage" "${exact[@]}" --shard.stage $stage
  check "stage $stage is dp bit for bit" look "same('dp', 's$stage'); near('dp', 's$stage', 1e-7)"
done
shard 3 blocking "${exact[@]}" --exchange.overlap false >/dev/null 2>&1
check "overlapped is blocking bit for bit" look 'same("s3", "blocking")'
run 1 one >/dev/null 2>&1
for n in 1 2 5; do
  shard "$n" "n$n" >/dev/null 2>&1
  check "$n ranks lose what one loses" look "near('one', 'n$n')"
done
shard 3 micro --train.micro_batch 1 >/dev/null 2>&1
check "micro-batches, of which ranks have different numbers" look 'near("one", "micro")'
shard 3 few --train.batch 2 >/dev/null 2>&1; run 1 few1 --train.batch 2 >/dev/null 2>&1
check "a rank without samples" look 'near("few1", "few")'
TACIT_FAIL_AT=3 check "a NaN gradient on one rank" shard 3 nan
check "is skipped everywhere" look 'assert [r["step"] for r in events("nan", "skipped")] == [4], events("nan", "skipped")'

# ---- number formats ----------------------------------------------------------------------------------------------
shard 3 bf16 --shard.gather bf16 >/dev/null 2>&1
check "parameters that travel in bf16" look 'near("one", "bf16", 1e-2); a, b = steps("s3")[-1], steps("bf16")[-1]
assert b["bytes_sent"] < 0.8 * a["bytes_sent"], (a, b)'
shard 2 mixed --model.dtype bf16 --shard.gather bf16 --exchange.wire bf16 --train.micro_batch 2 >/dev/null 2>&1
check "everything in bf16" look 'near("one", "mixed", 2e-2)'

# ---- checkpoints -------------------------------------------------------------------------------------------------
fork s3 again; resumed "resumed on as many ranks" shard 3 again "${exact[@]}" --resume
check "is uninterrupted, bit for bit" look 'same("s3", "again")'
fork bf16 again16; resumed "resumed with bf16 gathers" shard 3 again16 --shard.gather bf16 --resume
check "is uninterrupted, bit for bit, in bf16" look 'same("bf16", "again16")'
fork s3 stage1; resumed "resumed in another stage" shard 3 stage1 "${exact[@]}" --shard.stage 1 --resume
check "changes nothing" look 'same("s3", "stage1")'
fork dp dp-shard; resumed "dp goes on as shard" shard 3 dp-shard "${exact[@]}" --resume
check "as if it had been one, bit for bit" look 'same("dp", "dp-shard")'
fork s3 shard-dp; resumed "shard goes on as dp" run 3 shard-dp "${exact[@]}" --exchange.scheme flat --resume
check "as if it had been the other, bit for bit" look 'same("dp", "shard-dp")'
for n in 1 2 5; do
  fork s3 "to$n"; resumed "resumed by $n ranks" shard "$n" "to$n" "${exact[@]}" --resume
  check "goes on as one would, by $n" look "near('s3', 'to$n')"
done
check "one rank samples what three have saved" "$tacit" sample "$work/s3" --prompt a --tokens 8
check "evaluates it" "$tacit" eval "$work/bf16"
check "and exports it" "$tacit" export "$work/s3" -o "$work/exported"
check "which shard begins from" shard 2 init --train.init "$work/exported" --train.steps 2

# ---- compression -------------------------------------------------------------------------------------------------
coded() { # NAME RANKS DIR FLAGS...
  local name=$1 n=$2 dir=$3; shift 3
  case $name in
    topk) shard "$n" "$dir" --shard.stage 1 --compress.codec topk --compress.factor 5 --compress.start 5 --compress.gather topk "$@" ;;
    int4) shard "$n" "$dir" --shard.stage 2 --compress.codec int4 --compress.gather int4 --train.eval_every 0 "$@" ;;
    int8) shard "$n" "$dir" --compress.codec int4 --compress.gather int8 "$@" ;;
    sketch) shard "$n" "$dir" --compress.codec sketch --compress.warmup 0 "$@" ;;
    layers) shard "$n" "$dir" --compress.codec int4 --compress.layers mlp,embedding,head "$@" ;;
    gravac) shard "$n" "$dir" --compress.codec topk --adapt.policy gravac "$@" ;;
  esac
}
for name in topk int4 int8 sketch layers gravac; do
  check "gradients and parameters through $name" coded $name 3 "c-$name"
  [ $name != gravac ] || continue # decides by what it measures
  fork "c-$name" "c-$name-again"; resumed "$name resumed" coded $name 3 "c-$name-again" --resume
  check "is uninterrupted, bit for bit, with $name" look "same('c-$name', 'c-$name-again')"
  fork "c-$name" "c-$name-two"; resumed "$name resumed by 2 ranks" coded $name 2 "c-$name-two" --resume
  check "loses what 3 do with $name" look "near('c-$name', 'c-$name-two', 2e-2)"
done
# Buckets so short that nothing is selected of many, in a step and in the next.
for codec in topk sketch; do
  shard 3 "few-$codec" --exchange.bucket 1KiB --compress.codec $codec --compress.warmup 0 --compress.factor 100 >/dev/null 2>&1
done
check "sums of which nothing is selected are those of sparse payloads" look "assert len(steps('few-sketch')) == 8; near('few-topk', 'few-sketch', 1e-4)"
check "changes of fewer parameters are fewer bytes" look 'a, b = steps("s1")[-1], steps("c-topk")[-1]
assert b["bytes_sent"] < 0.4 * a["bytes_sent"], (a, b)'
check "int8 gathers are a quarter" look 'a, b = steps("s3")[-1], steps("c-int8")[-1]
assert b["bytes_sent"] < 0.3 * a["bytes_sent"], (a, b)'
# narrow NAME FORM RANKS DIR FLAGS...
narrow() { local name=$1 form=$2 n=$3 dir=$4; shift 4; coded "$name" "$n" "$dir" --compress.residual "$form" "$@"; }
for form in bf16 int8; do
  for n in 1 2 4; do
    check "$n ranks keep residuals in $form" narrow topk $form $n "r-$form-$n"
    fork "r-$form-$n" "r-$form-$n-again"; resumed "$n resumed with $form" narrow topk $form $n "r-$form-$n-again" --resume
    check "$n uninterrupted, bit for bit, with $form" look "same('r-$form-$n', 'r-$form-$n-again')"
  done
  fork "r-$form-4" "r-$form-3"; resumed "3 ranks take the residuals of 4 in $form" narrow topk $form 3 "r-$form-3" --resume
  check "and lose what 4 do in $form" look "near('r-$form-4', 'r-$form-3', 2e-2)"
  check "residuals in $form are not those of f32" look "a, b = tensors('c-topk'), tensors('r-$form-4')
assert any('residual' in n for n in b) and sorted(n for n in a if 'rank.00002' in n) == sorted(n for n in b if 'rank.00002' in n)"
  fork c-topk "f-$form"; resumed "f32 residuals go on in $form" narrow topk $form 3 "f-$form" --resume
  check "with the loss of f32 in $form" look "near('c-topk', 'f-$form', 1e-3)"
done
check "blocking with int8" narrow topk int8 4 r-blocking --exchange.overlap false
check "is overlapped, bit for bit, with int8" look 'same("r-int8-4", "r-blocking")'
check "localsgd with int8" run 3 r-local --strategy localsgd --localsgd.every 2 --compress.codec int4 --compress.residual int8
fork r-local r-local-again
resumed "resumed" run 3 r-local-again --strategy localsgd --localsgd.every 2 --compress.codec int4 --compress.residual int8 --resume
check "is uninterrupted, bit for bit" look 'same("r-local", "r-local-again")'
fork c-topk c-dp; resumed "compressed parts go on as dp" run 3 c-dp --resume
# Gathers had not yet brought all changes of parameters to those who compute with them; the owners have them.
check "from the parameters of the parts' owners" goes_on c-topk c-dp 1e-2
# A dense step sends what was left: the same sum, whoever owns it. Without residuals the norm would be another.
for how in shard dp none; do
  fork c-topk "left-$how"; codec=topk; [ "$how" != none ] || codec=none
  strategy=$how; [ "$how" != none ] || strategy=dp
  run 3 "left-$how" "${exact[@]}" --strategy "$strategy" --compress.codec $codec --compress.factor 1 --resume >"$work/left-$how.out" 2>&1
done
check "dp sends the residuals of parts" look 'a, b, c = (steps(f"left-{how}")[4] for how in ("shard", "dp", "none"))
assert abs(a["grad_norm"] - b["grad_norm"]) < 1e-4 * a["grad_norm"] < 1e-2 * abs(a["grad_norm"] - c["grad_norm"]), (a, b, c)'
check "and says so" grep -q "residuals of 3 ranks go on at 3" "$work/left-dp.out"
for how in shard dp; do
  fork c-topk "one-$how"; run 1 "one-$how" "${exact[@]}" --strategy $how --compress.codec topk --compress.factor 5 --resume >"$work/one-$how.out" 2>&1
  check "$how adds them on one rank" look "a, b, c = steps('left-shard')[4], steps('one-$how')[4], steps('left-none')[4]
assert abs(a['grad_norm'] - b['grad_norm']) < 1e-4 * a['grad_norm'] < 1e-2 * abs(a['grad_norm'] - c['grad_norm']), (a, b, c)
assert not [n for n in tensors('one-$how') if 'residual' in n]"
  check "and says so" grep -q "residuals of 3 ranks go on at 1" "$work/one-$how.out"
done
fork r-local one-local; run 1 one-local --strategy localsgd --localsgd.every 2 --compress.codec int4 --resume >"$work/one-local.out" 2>&1
check "a replica alone sends nothing, and the warning asks for nothing" grep -q "residuals of 3 ranks (compress.codec int4) are dropped$" "$work/one-local.out"
check "none sends none, and says so" grep -q "residuals of 3 ranks (compress.codec topk) are dropped" "$work/left-none.out"
run 3 sums --compress.codec topk --compress.factor 5 >/dev/null 2>&1
for how in dp shard; do fork sums "sums-$how"; run 3 "sums-$how" --strategy $how --compress.codec topk --resume >"$work/sums-$how.out" 2>&1; done
check "residuals of sums go on in dp, without a word" bash -c "! grep -q 'residuals' '$work/sums-dp.out'"
check "and are dropped in shard, with one" grep -q "residuals of sums are dropped" "$work/sums-shard.out"
fork c-topk left-f32; expect "a codec without residuals says so" 0 'residuals of 3 ranks .* are dropped' shard 3 left-f32 --shard.stage 1 --compress.codec f32 --resume
fork s1 plain-c; resumed "plain parts go on compressed" coded topk 3 plain-c --resume
check "from the parameters of plain parts" goes_on s1 plain-c
shard 3 c-auto --compress.codec auto --train.steps 24 --train.save_every 16 --exchange.bucket 1MiB >/dev/null 2>&1
expect "auto goes on with other layers, and says that it begins anew" 0 'payoff begins anew: it measures how fast these links are now' \
  shard 3 c-auto --compress.codec auto --train.steps 26 --exchange.bucket 1MiB --compress.layers mlp --resume
fork dp dp-c; resumed "dp goes on in compressed parts" coded topk 3 dp-c --resume
check "from its parameters" goes_on dp dp-c

# T19 of the specification: the same selection, and sums up to rounding. What a sketch does not hold is fetched. The text does not
# change with the documentation, as the program's own does: on some texts rounding errors grow faster than on others.
sketched() { # DIR FLAGS...
  local dir=$1; shift
  shard 3 "$dir" --data.train LICENSE --train.steps 20 --train.save_every 20 --compress.scope bucket --compress.warmup 0 --compress.factor 5 "$@" >/dev/null 2>&1
}
sketched u-tagc0 --compress.codec tagc --tagc.ratio 0
for ratio in 1 2 12; do
  sketched "u-tagc$ratio" --compress.codec tagc --tagc.ratio $ratio
  check "20 steps through sketches of n / $ratio are those of the union's size" look "off = [abs(x['loss'] / y['loss'] - 1) for x, y in zip(steps('u-tagc0'), steps('u-tagc$ratio'))]
assert len(off) == 20 and max(off) < 1e-6, off"
done
check "of which one had sketches that were too small" look 'assert steps("u-tagc12")[-1]["pending"] > 0'
sketched u-sketch --compress.codec sketch
check "sketch is tagc with the union's size" look "assert [x['loss'] for x in steps('u-tagc0')] == [x['loss'] for x in steps('u-sketch')]"

# ---- memory ------------------------------------------------------------------------------------------------------
expect "a dry run says what a rank takes" 0 'memory .* per rank: parameters' shard 4 dry --dry-run

# ---- refusals ----------------------------------------------------------------------------------------------------
expect "parts among the ranks of the only host" 3 'no effect on a single host' shard 2 no --shard.over host
expect "secondary parts below stage 3" 3 'leave it out' shard 2 no --shard.stage 2 --shard.secondary
expect "layers that are none" 3 'no class of tensors: all, attention' shard 2 no --compress.codec topk --compress.layers mpl
expect "a name that no tensor has" 3 'finds none of the' shard 2 no --compress.codec topk --compress.layers /nowhere/
expect "layers of nothing" 0 'compress.layers mlp: nothing in this run reads it' shard 2 no --compress.layers mlp --dry-run
expect "a fourth stage" 3 'shard.stage' shard 2 no --shard.stage 4
expect "codecs whose payloads all ranks add" 3 'strategy dp' shard 2 no --compress.codec powersgd
expect "parts of parameters in stage 3" 3 'shard.stage 2' shard 2 no --compress.gather topk
expect "already in a dry run" 3 'shard.stage 2' shard 2 no --compress.gather topk --dry-run
check "without a folder" test ! -e "$work/no"
expect "gathers of strategies that have none" 3 'strategy shard' run 2 no --compress.gather int8
expect "momentum beside narrow residuals" 3 'compress.residual f32' shard 2 no --compress.codec topk --compress.residual int8 --compress.momentum 0.9
expect "a controller of the whole gradient" 3 'leave it out, or --strategy dp' shard 2 no --compress.codec topk --adapt.policy accordion
expect "votes on changes of parameters" 3 'compress.gather int8' shard 2 no --shard.stage 1 --compress.gather signsgd
expect "votes for the owners of parts" 3 'compress.codec efsign' shard 2 no --compress.codec signsgd
expect "votes on differences of averages" 3 'compress.codec efsign' run 2 no --strategy localsgd --compress.codec signsgd
expect "values of parameters of which some are left out" 3 'stage 3 gathers values' shard 2 no --compress.gather redsync
expect "a factor of neither codec" 0 'compress.factor 3: nothing in this run reads it' shard 2 no --shard.stage 2 --compress.codec int4 --compress.factor 3 --dry-run
expect "a sketch beside gathers in 8 bits" 0 'finished at step 8' shard 2 tagc8 --compress.codec tagc --compress.gather int8
expect "a warm-up beside gathers in 4 bits" 0 'finished at step 8' shard 2 warm4 --shard.stage 2 --compress.codec topk --compress.warmup 300 --compress.gather int4
one_line() {
  shard 2 no --compress.codec topk --compress.collective gather >"$work/log" 2>&1
  local got=$?; cat "$work/log"
  [ "$got" -eq 3 ] && [ "$(grep -c '^tacit: .*compress.collective' "$work/log")" -eq 1 ]
}
check "a collective that gathers is refused in one line" one_line
expect "estimates" 3 'leave it out' shard 2 no --compress.codec topk --compress.what change
finish_checks

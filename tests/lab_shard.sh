#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Properties of strategy shard on an emulated cluster of two hosts with two ranks each: parts by hosts are dp, resumed is
# uninterrupted. Needs root and network namespaces; without them it says so and skips.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
. tests/runs.sh
find_program

need_cluster "parts by hosts on an emulated cluster"
own_cluster p
nano=(--model.preset nano --model.dtype f32 --train.threads 1 --train.batch 8 --train.eval_every 4 --train.eval_windows 5
      --train.save_early 0 --train.save_every 4 --train.keep 9 --train.steps 8 --optim.warmup 5 --optim.lr 5e-3
      --run.tensorboard false --exchange.bucket 64KiB)
# train RANKS DIR FLAG...
train() {
  timeout -k 5 100 lab/cluster run --name "$ours" -n "$1" --timeout 90 -- "$tacit" train "${nano[@]}" --run.dir "$work/$2" "${@:3}"
}
lone() {
  timeout -k 5 60 lab/cluster run --name "$ours" -n 2 --per-host 1 --timeout 50 -- "$tacit" train "${nano[@]}" --run.dir "$work/no" --strategy shard --shard.over host
}
shard() { train "$1" "$2" --strategy shard "${@:3}"; }
fork() { cp -r "$work/$1" "$work/$2" && rm -rf "$work/$2/ckpt/step_00000008"; }

check "two hosts" lab/cluster up 2 --name "$ours" --per-host 2 --rate 200mbit
check "dp" train 4 dp --optim.clip 0
for way in "all" "host" "all --shard.secondary" "host --shard.stage 2"; do
  dir=${way//[^a-z0-9]/}
  # shellcheck disable=SC2086 # words
  check "parts over $way" shard 4 "$dir" --optim.clip 0 --shard.over $way
  check "are dp bit for bit: over $way" look "same('dp', '$dir')"
done
fork host again; check "replicas resumed" shard 4 again --optim.clip 0 --shard.over host --resume
check "are uninterrupted, bit for bit" look 'same("host", "again")'
fork host all4; check "replicas go on as parts over all" shard 4 all4 --optim.clip 0 --shard.secondary --resume
check "as if they had been, bit for bit" look 'same("host", "all4")'
fork all host4; check "parts over all go on as replicas" shard 4 host4 --optim.clip 0 --shard.over host --resume
check "bit for bit as well" look 'same("all", "host4")'
fork host one; check "replicas go on as dp on two ranks" train 2 one --optim.clip 0 --resume
check "with their loss" look 'near("host", "one")'
check "replicas through a codec" shard 4 coded --shard.over host --compress.codec int4
check "resumed" bash -c "cp -r '$work/coded' '$work/coded2' && rm -rf '$work/coded2/ckpt/step_00000008'"
check "through a codec" shard 4 coded2 --shard.over host --compress.codec int4 --resume
check "they are uninterrupted, bit for bit" look 'same("coded", "coded2")'
expect "codecs of gathers that stay inside hosts" 3 'leave out compress.gather' shard 4 no --shard.over host --compress.gather int8
expect "hosts that are not told apart" 3 'leave one of them out' shard 4 no --shard.over host --exchange.scheme flat
expect "a rank alone on its host" 3 'start more ranks per host' lone
finish_checks

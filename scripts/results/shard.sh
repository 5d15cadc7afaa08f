#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures strategy shard, with and without compression, and fills the tables of docs/results/shard.md.
#
#   scripts/results/shard.sh [-o FOLDER] [--name NAME] [--tacit PROGRAM] [--text FILE] [SECTION ...]
#
# Sections, in the order in which they run when none is named:
#   base      step of shard against dp, 4 hosts at 1 Gbit/s, gpt2-124m emulated                                            4 min
#   two       TAGC's setting: 2 hosts, gpt2-124m-untied emulated, uncompressed against sketches, sparse and quantised      9 min
#   hosts     4 hosts of 2 ranks at 200 Mbit/s: the automatic choice against bf16 gathers, and ways to hold parts          4 min
#   plan      predictions of `tacit plan` against measured steps, on clusters that nothing was tuned on                    6 min
#   loss      loss after as many steps, and of runs of a quarter as many, 4 ranks, 3 seeds                                20 min
#   tables    tables of what FOLDER holds; always runs at the end
#
# FOLDER (default build/shard) keeps what every launch printed, with its command line beside it. A launch whose answer is there is
# not repeated. --text (default input.txt, else ../shared/data/tinyshakespeare.txt) is tiny-shakespeare. Needs root for base, two,
# hosts and plan (lab/cluster); clusters are taken down at the end, also of an interrupted run. Leave the machine alone meanwhile.
#
# Environment, with the figures of the page as defaults: SEEDS ("1 2 3"), STEPS (1500), BLOCKS (3), FLAGS (of every training run), CLUSTERS
# (HOSTS-MBIT ...: "3-500 5-1000") and METHODS of section plan
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

: "${SEEDS:=1 2 3}" "${STEPS:=1500}" "${BLOCKS:=3}" "${FLAGS:=}"
: "${CLUSTERS:=3-500 5-1000}" "${METHODS:=dp s3 s2 s3-int4-int8 s2-int4-int4}"

read_words "-o --name --tacit --text" "base two hosts plan loss" tables "$@"

# measure ANSWER WARM_UP ROUNDS BLOCKS PROFILE FLAG...: a first step through a codec touches the memory of its residuals, and the
# automatic choice is made after two dozen steps, so these need more warm-up.
measure() {
  local answer=$1 shape=(--warm-up "$2" -r "$3" --blocks "$4") profile=$5
  shift 5
  # shellcheck disable=SC2046 # words
  record "$answer" $(in_lab) "$tacit" bench step --compute.emulate "$profile" --json "${shape[@]}" "$@"
}

section_base() {
  lab_up 4 1 1gbit
  measure base/steps.json 1 1 "$BLOCKS" gpt2-124m --strategy dp --against "strategy=shard shard.stage=3" --against "strategy=shard shard.stage=2" \
    --against "strategy=shard shard.stage=3 shard.gather=bf16 exchange.wire=bf16"
}

section_two() {
  local tagc="compress.layers=mlp,embedding,head compress.codec=tagc compress.factor"
  lab_up 2 1 2gbit
  measure two/steps.json 3 2 2 gpt2-124m-untied --strategy shard --against "shard.gather=bf16 exchange.wire=bf16" \
    --against "$tagc=5 tagc.ratio=2" --against "$tagc=10 tagc.ratio=4" --against "compress.codec=tagc compress.factor=5" \
    --against "compress.codec=topk compress.factor=5" --against "compress.codec=int4" --against "compress.codec=int4 compress.gather=int8"
  measure two/auto.json 30 5 1 gpt2-124m-untied --strategy shard --compress.codec auto
  lab_up 2 1 1gbit
  measure two/slow.json 2 1 2 gpt2-124m-untied --strategy shard --against "$tagc=5 tagc.ratio=2" --against "$tagc=10 tagc.ratio=4"
}

# Compute of byte-10m as one of 8 ranks of this machine has it.
section_hosts() {
  [ -s "$folder/byte-10m.json" ] || {
    use_text shakespeare
    record hosts/profile.txt "$MPIRUN" -n 8 "$tacit" train --model.preset byte-10m --data.train "$text" --train.batch 8 --train.steps 12 \
      --train.eval_every 0 --train.eval_windows 0 --run.dir "$folder/run" --profile "$folder/byte-10m.json" || return 0
  }
  lab_up 4 2 200mbit
  measure hosts/steps.json 1 1 "$BLOCKS" "$folder/byte-10m.json" --strategy shard --shard.gather bf16 --against "shard.gather=bf16 exchange.wire=bf16" \
    --against "shard.gather=f32" --against "exchange.scheme=flat" --against "shard.secondary=true" --against "shard.over=host shard.gather=f32"
  measure hosts/auto.json 30 5 1 "$folder/byte-10m.json" --strategy shard --compress.codec auto
}

# planned NAME: flags of a method of section plan.
planned() {
  case $1 in
    dp) echo "--strategy dp" ;;
    s3) echo "--strategy shard" ;;
    s2) echo "--strategy shard --shard.stage 2" ;;
    s3-int4-int8) echo "--strategy shard --compress.codec int4 --compress.gather int8" ;;
    s2-int4-int4) echo "--strategy shard --shard.stage 2 --compress.codec int4 --compress.gather int4" ;;
    *) misuse "METHODS: unknown method \"$1\"" ;;
  esac
}

section_plan() {
  local cluster which
  for cluster in $CLUSTERS; do
    [ -s "$folder/plan/$cluster/cluster.json" ] || {
      lab_up "${cluster%-*}" 1 "${cluster#*-}mbit"
      # shellcheck disable=SC2046 # words
      record "plan/$cluster/cluster.json" $(in_lab) "$tacit" probe --quick --json
    }
    for which in $METHODS; do
      [ -s "$folder/plan/$cluster/$which.json" ] || {
        lab_up "${cluster%-*}" 1 "${cluster#*-}mbit"
        # shellcheck disable=SC2046 # words
        measure "plan/$cluster/$which.json" $([[ $which == *int* ]] && echo 2 2 || echo 1 1) 1 gpt2-124m $(planned "$which")
      }
      # shellcheck disable=SC2046 # words
      record "plan/$cluster/$which-predicted.json" "$tacit" plan scripts/results/shakespeare.yaml --cluster "$folder/plan/$cluster/cluster.json" \
        --compute.emulate gpt2-124m --no-jitter --all --json $(planned "$which")
    done
  done
}

# method NAME: its flags.
method() {
  case $1 in
    plain) ;;
    tagc80) echo "--compress.codec tagc --compress.factor 5" ;;
    topk80) echo "--compress.codec topk --compress.factor 5" ;;
    i4i4s2) echo "--shard.stage 2 --compress.codec int4 --compress.gather int4" ;;
    i4i8s3) echo "--compress.codec int4 --compress.gather int8" ;;
    i4i4s3) echo "--compress.codec int4 --compress.gather int4" ;;
  esac
}

# losses FOLDER STEPS METHOD...
losses() {
  local into=$1 steps=$2 seed which
  shift 2
  use_text shakespeare
  for seed in $SEEDS; do
    for which in "$@"; do
      # shellcheck disable=SC2046,SC2086 # words
      train_run "$into/$which-$seed" "$MPIRUN -n 4" --train.batch 32 --optim.warmup $((steps / 10)) --optim.lr 1e-2 --optim.weight_decay 0.2 \
        --optim.beta2 0.99 --optim.clip 1 --train.eval_every "$steps" --train.eval_windows 0 --train.seed "$seed" --train.steps "$steps" \
        --strategy shard $(method "$which") $FLAGS
    done
  done
}

section_loss() {
  losses loss "$STEPS" plain tagc80 topk80 i4i4s2 i4i8s3 i4i4s3
  losses short $((STEPS * 4 / 15)) plain tagc80 topk80
}

run_sections

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures compressed gradients against dense all-reduce and fills the tables and pictures of docs/results/compression.md.
#
#   scripts/results/compression.sh [-o FOLDER] [--name NAME] [--tacit PROGRAM] [--text FILE] [--quick] [SECTION ...]
#
# Sections, in the order in which they run when none is named:
#   loss      loss after as many steps and bytes of fixed settings, 8 ranks on one machine, 8 seeds                        30 min
#   text      the same on another text, 2 seeds                                                                           10 min
#   lab       time to dense's final loss, 8 hosts; the dense f32 all-reduce takes 8 times the compute                     45 min
#   hosts     4 hosts of 2 ranks at the same rate                                                                         10 min
#   localsgd  averages of int4 and sparseloco against f32, 3 seeds                                                        10 min
#   cliff     loss against bits per parameter, families of settings at two learning rates                                 25 min
#   plan      probes the lab at that rate and at 5 times it, and predicts the step of real codecs                         10 min
#   tables    tables and pictures of what FOLDER holds; always runs at the end
# and, only when it is named:
#   tune      dense f32, dense bf16, c20 and c30 at as many learning rates each, with a seed of its own                   15 min
#
# FOLDER (default build/compression) keeps what every launch printed, with its command line beside it. A launch whose answer is
# there is not repeated: an interrupted section goes on where it stopped; remove FOLDER/SECTION to measure it again. --quick
# makes every launch so short that its figures mean nothing, in a folder of its own and without touching the page. --text
# (default input.txt, else ../shared/data/tinyshakespeare.txt) is tiny-shakespeare; the other text is the first 1.2 MB of the King
# James Bible, which `apt-get download` fetches to FOLDER at need. Needs root for lab, hosts and plan (lab/cluster); clusters
# are taken down at the end, also of an interrupted run. Leave the machine alone meanwhile.
#
# Environment, with the figures of the page as defaults: SEEDS ("1 2 ... 8", of loss), LAB_SEEDS ("1 2 3", of lab and localsgd), TEXT_SEEDS ("1 2"), STEPS (1500), BATCH (32), METHODS
# ("dense dense-beta c20 c30 c30-beta"), LAB_METHODS ("dense dense-bf16 c20 c30 gravac-int4 gravac accordion topk-10 topk-1000"; c20:1.1
# takes 1.1 times as many steps, which a loss slightly above dense's needs to reach it), HOSTS_METHODS ("dense dense-bf16 c20"),
# PLAN_METHODS ("dense dense-bf16 int8 int4 efsign topk-10 topk-100 c20"), RATE (of the lab, as 150mbit; empty: section lab
# measures the compute and chooses it), CLIFF_RATES ("1e-2 3e-3"), TUNE_RATES ("7e-3 1e-2 1.4e-2 2e-2"), FLAGS (of
# every run, as --comm.timeout on a busy machine)
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

windows=0 # of validation; 0: all
apart=30  # steps between averages of localsgd
: "${SEEDS:=1 2 3 4 5 6 7 8}" "${LAB_SEEDS:=1 2 3}" "${TEXT_SEEDS:=1 2}" "${STEPS:=1500}" "${BATCH:=32}" "${METHODS:=dense dense-beta c20 c30 c30-beta}" "${RATE:=}" "${FLAGS:=}"
: "${LAB_METHODS:=dense dense-bf16 c20 c30 gravac-int4 gravac accordion topk-10 topk-1000}" "${HOSTS_METHODS:=dense dense-bf16 c20}"
: "${PLAN_METHODS:=dense dense-bf16 int8 int4 efsign topk-10 topk-100 c20}" "${CLIFF_RATES:=1e-2 3e-3}" "${TUNE_RATES:=7e-3 1e-2 1.4e-2 2e-2}"

read_words "-o --name --tacit --text --quick" "loss text lab hosts localsgd cliff plan" "tables tune" "$@"
[ -z "$quick" ] || SEEDS=1 LAB_SEEDS=1 TEXT_SEEDS=1 STEPS=10 CLIFF_RATES=1e-2 TUNE_RATES=1e-2 windows=8 apart=5

# ---- settings -------------------------------------------------------------------------------------------------------

warm_up=$((STEPS / 10)) # of the learning rate
often=$((STEPS >= 120 ? STEPS / 60 : 2)) seldom=$((STEPS >= 12 ? STEPS / 6 : 5)) # steps between evaluations

# method NAME: its flags.
method() {
  local topk="--compress.codec topk" knob
  case $1 in
    dense) ;;
    dense-bf16) echo "--exchange.wire bf16" ;;
    int8 | int4 | signmag2 | efsign | onebit) echo "--compress.codec $1" ;;
    c20) echo "$topk --compress.factor 5 --topk.values int4 --compress.start 2" ;;
    c30) echo "$topk --compress.factor 10 --topk.values int4 --compress.start 2" ;;
    *-beta) knob=$(method "${1%-beta}") && echo "$knob --optim.beta1 0.8" ;;
    accordion-buckets) echo "$topk --adapt.policy accordion --exchange.bucket 150KiB" ;;
    gravac-int4) echo "$topk --topk.values int4 --adapt.policy gravac" ;;
    accordion) echo "$topk --adapt.policy accordion --exchange.bucket 25MiB" ;;
    gravac) echo "$topk --adapt.policy gravac" ;;
    topk-int4-*) echo "$topk --compress.factor ${1#topk-int4-} --topk.values int4" ;;
    topk-*) echo "$topk --compress.factor ${1#topk-}" ;;
    localsgd-f32) echo "--strategy localsgd --localsgd.every $apart" ;;
    localsgd-*) knob=$(method localsgd-f32) && echo "$knob --compress.codec ${1#localsgd-}" ;;
    *) misuse "unknown method \"$1\"" ;;
  esac
}

# rate_of METHOD: its learning rate. Section tune found no better one that holds for other seeds.
rate_of() { echo 1e-2; }

# one FOLDER/NAME LAUNCHER METHOD[:FACTOR] SEED STEPS_BETWEEN_EVALUATIONS LEARNING_RATE [FLAG...]: FACTOR times STEPS steps
one() {
  local answer=$1 launcher=$2 words steps=$STEPS seed=$4 every=$5 lr=$6
  words=$(method "${3%:*}") || exit 2
  case $3 in *:*) steps=$(/usr/bin/env python3 -c "print(round($STEPS * ${3#*:}))") || exit 2 ;; esac
  shift 6
  # shellcheck disable=SC2086 # words
  train_run "$answer" "$launcher" --train.batch "$BATCH" --train.steps "$steps" --optim.warmup "$warm_up" --optim.lr "$lr" \
    --optim.weight_decay 0.2 --optim.beta2 0.99 --optim.clip 1 --train.eval_every "$every" --train.eval_windows $windows \
    --train.seed "$seed" $words $FLAGS "$@"
}

here="$MPIRUN -n 8"

# ---- losses on one machine ------------------------------------------------------------------------------------------

# Dense runs are evaluated often: section lab takes their losses for the time to a loss.
section_loss() {
  local seed which every
  use_text shakespeare
  for seed in $SEEDS; do
    for which in $METHODS; do
      every=$seldom
      case $which in dense*) every=$often ;; esac
      one "loss/$which-$seed" "$here" "$which" "$seed" "$every" "$(rate_of "$which")"
    done
  done
}

section_text() {
  local seed which
  use_text bible
  for seed in $TEXT_SEEDS; do
    for which in $METHODS; do one "text/$which-$seed" "$here" "$which" "$seed" "$seldom" "$(rate_of "$which")"; done
  done
}

section_localsgd() {
  local seed which
  use_text shakespeare
  for seed in $LAB_SEEDS; do
    for which in f32 int4 sparseloco; do one "localsgd/$which-$seed" "$here" "localsgd-$which" "$seed" "$seldom" "$(rate_of localsgd)"; done
  done
}

section_cliff() {
  local lr which settings="dense topk-3 topk-10 topk-30 topk-100 topk-int4-2.5 topk-int4-5 topk-int4-10 topk-int4-20 topk-int4-40 int8 int4
    signmag2 efsign onebit"
  [ -z "$quick" ] || settings="dense topk-10 topk-int4-5 int4 onebit"
  use_text shakespeare
  for lr in $CLIFF_RATES; do
    for which in $settings; do one "cliff/${which}_$lr" "$here" "$which" 1 "$seldom" "$lr"; done
  done
}

section_tune() {
  local lr which
  use_text shakespeare
  for which in dense dense-bf16 c20 c30; do
    for lr in $TUNE_RATES; do one "tune/${which}_$lr" "$here" "$which" 100 "$seldom" "$lr"; done
  done
}

# ---- the lab --------------------------------------------------------------------------------------------------------

# Sets lab_rate: RATE, else the one at which the bytes of a dense f32 all-reduce take 8 times the compute of a step, which a
# run on 8 hosts without shaped links measures.
find_rate() {
  lab_rate=$RATE
  [ -s "$folder/rate/compute.jsonl" ] && [ -s "$folder/shakespeare.json" ] || {
    use_text shakespeare
    lab_up 8 1 none
    STEPS=$((STEPS < 200 ? STEPS : 200)) one rate/compute "$(in_lab)" dense 1 0 1e-2 --profile "$folder/shakespeare.json"
  }
  [ -n "$lab_rate" ] || lab_rate=$(/usr/bin/env python3 scripts/results/compression_tables.py --rate "$folder") || exit 7
  [ -s "$folder/rate/chosen" ] || echo "$lab_rate" >"$folder/rate/chosen"
  [ "$lab_rate" = "$(cat "$folder/rate/chosen")" ] || misuse "$folder has figures of links of $(cat "$folder/rate/chosen"), not $lab_rate"
  echo "links of $lab_rate" >&2
}

# Losses of dense runs are those of section loss, because their bits do not depend on the network: here a quarter of the steps
# gives the seconds of all.
section_lab() {
  local seed which
  find_rate
  use_text shakespeare
  lab_up 8 1 "$lab_rate"
  for seed in $LAB_SEEDS; do
    for which in $LAB_METHODS; do
      case $which in
        dense*) [ "$seed" != 1 ] || one "lab/$which-1" "$(in_lab)" "$which:.25" 1 0 "$(rate_of "$which")" ;;
        *) one "lab/$which-$seed" "$(in_lab)" "$which" "$seed" "$often" "$(rate_of "${which%:*}")" ;;
      esac
    done
  done
}

section_hosts() {
  local which
  find_rate
  use_text shakespeare
  lab_up 4 2 "$lab_rate"
  for which in $HOSTS_METHODS; do one "hosts/$which-1" "$(in_lab)" "$which" 1 "$often" "$(rate_of "$which")"; done
}

# Compute is emulated with the profile of the training run: the plan does not know that ranks share cores. The factor does not rise.
section_plan() {
  local rate which words probe=(probe --no-natives --json) steps=(--blocks 1 --warm-up 20 --rounds 60)
  [ -z "$quick" ] || { probe+=(--quick --seconds 10); steps=(--blocks 1 --warm-up 1 --rounds 3); }
  find_rate
  for rate in "$lab_rate" "$(/usr/bin/env python3 -c "print('%gmbit' % (5 * float('$lab_rate'[:-4])))")"; do
    lab_up 8 1 "$rate"
    # shellcheck disable=SC2046 # words
    record "plan/$rate-probe.json" $(in_lab) "$tacit" "${probe[@]}" || continue
    for which in $PLAN_METHODS; do
      words=$(method "$which") || exit 2
      # shellcheck disable=SC2046,SC2086 # words
      record "plan/$rate-$which-measured.json" $(in_lab) "$tacit" bench step --compute.emulate "$folder/shakespeare.json" $words \
        "${steps[@]}" --json
      # shellcheck disable=SC2086 # words
      record "plan/$rate-$which-predicted.json" "$tacit" plan scripts/results/shakespeare.yaml --cluster "$folder/plan/$rate-probe.json" \
        --compute.emulate "$folder/shakespeare.json" $words --no-jitter --all --json
    done
  done
}

run_sections scripts/results/plot_compression_results.sh "$folder" "$pictures"

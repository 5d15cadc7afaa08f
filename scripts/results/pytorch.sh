#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures tacit under PyTorch against DDP, its hooks, FSDP2 and decent-dp, by the same scripts and torchrun on emulated hosts.
#
#   scripts/results/pytorch.sh [-o FOLDER] [--name NAME] [--text FILE] [--quick] [SECTION ...]
#
# Sections, in the order in which they run when none is named, with minutes on an idle machine of two cores:
#   steps   seconds per step of a GPT of 3.3 M parameters, real compute, 4 hosts at RATE, REPEATS times                 80 min
#   dp      f32 sums against DDP's: that GPT on 4 hosts at 200 Mbit/s, at 1 Gbit/s, and on one host; VGG-16 beside a
#           replayed accelerator, 4 hosts of 2 ranks at 1 Gbit/s                                                        50 min
#   loss    time to the final loss of DDP, at the rate at which its transfers take RATIO times the compute              60 min
#   gravac  the rows of GraVAC's table: bytes, seconds and quality of ResNet, VGG and LSTM after GRAVAC_STEPS           55 min
#   decent  decent-dp and tacit on the same graphs with the same optimizer, AccumAdam                                   35 min
#   tagc    FSDP2 with and without compressed gradients on 2 hosts at TAGC_RATES                                        25 min
#   tables  the tables of what FOLDER holds; always runs at the end
#
#   Example: SEEDS="1 2 3" scripts/results/pytorch.sh -o build/pytorch gravac decent
#
# Methods take turns: each repetition or seed runs all of them, every second one in reverse. FOLDER (default build/pytorch) keeps
# what every launch printed, with its command line beside it. A launch whose answer is there is not repeated: an interrupted run
# goes on where it stopped. A launch that fails leaves its log as NAME.failed, is a remark in its row, and is not tried again
# until that file is removed. --text (default input.txt, else ../shared/data/tinyshakespeare.txt) is tiny-shakespeare; images are
# scikit-learn's digits where that is installed. --quick: one repetition of a few steps, in a folder of its own and without
# touching the page. Needs root, and a Python with torch, decent-dp 0.2.3 and tacit: TACIT_PYTHON, else python3. VGG-16 takes
# 18 GB of memory. Leave the machine alone meanwhile.
#
# Environment, with the figures of the page as defaults: REPEATS (9; dp 9, its VGG-16 and tagc 5), SEEDS ("1 2 3 4 5"),
# RATE (200mbit), BATCH (2), STEPS (40) and WARM_UP (12: steps that do not count) of steps and dp, VGG_STEPS (9, 3 of them
# warm-up), DP_SETTINGS ("200mbit 1gbit host vgg"), RATIO (4), LOSS_STEPS (120; other methods than DDP's f32 a quarter more),
# GRAVAC_EXAMPLES ("resnet vgg lstm"), GRAVAC_STEPS (60; LSTM 100), DECENT_STEPS (100), TAGC_RATES ("200mbit 1gbit 10gbit"), TAGC_HOSTS
# (2), TAGC_STEPS (26), WORDS (more words for every launch), and the methods: METHODS (steps), LOSS_METHODS, GRAVAC_METHODS, DECENT_METHODS,
# TAGC_METHODS
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

: "${RATE:=200mbit}" "${BATCH:=2}" "${WORDS:=}" "${RATIO:=4}"
: "${METHODS:=ddp ddp-fp16 ddp-powersgd decent-exp decent-complete dp bf16 auto auto-now topk exp complete aer alone}"
: "${LOSS_METHODS:=ddp ddp-fp16 ddp-powersgd auto auto-now topk aer}"
: "${GRAVAC_METHODS:=ddp ddp-fp16 ddp-powersgd topk10 topk1000 gravac accordion auto auto-now}"
: "${DECENT_METHODS:=decent-exp exp decent-complete complete aer}"
: "${TAGC_METHODS:=fsdp fsdp-f32 fsdp-tagc fsdp-int8 fsdp-int4 fsdp-auto}"
: "${DP_SETTINGS:=200mbit 1gbit host vgg}" "${GRAVAC_EXAMPLES:=resnet vgg lstm}" "${TAGC_RATES:=200mbit 1gbit 10gbit}" "${TAGC_HOSTS:=2}"

read_words "-o --name --text --quick" "steps dp loss gravac decent tagc" tables "$@"
if [ -n "$quick" ]; then
  : "${REPEATS:=1}" "${SEEDS:=1}" "${STEPS:=14}" "${WARM_UP:=6}" "${VGG_STEPS:=4}" "${LOSS_STEPS:=30}" "${GRAVAC_STEPS:=10}"
  : "${DECENT_STEPS:=10}" "${TAGC_STEPS:=14}"
else
  : "${SEEDS:=1 2 3 4 5}" "${STEPS:=40}" "${WARM_UP:=12}" "${VGG_STEPS:=9}" "${LOSS_STEPS:=120}" "${GRAVAC_STEPS:=60}"
  : "${DECENT_STEPS:=100}" "${TAGC_STEPS:=26}"
fi
"${TACIT_PYTHON:-python3}" -c 'import torch, tacit, decent_dp' 2>/dev/null || {
  echo "pytorch.sh: ${TACIT_PYTHON:-python3} lacks torch, tacit or decent-dp: pip install . torch decent-dp==0.2.3" >&2; exit 7; }
exec {lock}>"$folder/lock"
flock -n "$lock" || { echo "pytorch.sh: another one measures into $folder; wait for it, or choose another folder: -o FOLDER" >&2; exit 7; }

# ---- launches ------------------------------------------------------------------------------------------------------------

# The words of a method. auto-now may select elements, from the first step on, and so do the fixed factors.
method() {
  local select="--with tacit --set compress.warmup=0 --codec"
  case $1 in
    ddp | ddp-fp16 | ddp-powersgd | fsdp) echo "--with $1" ;;
    decent-exp) echo "--with decent-dp --topology one-peer-exp" ;;
    decent-complete) echo "--with decent-dp --topology complete" ;;
    alone) echo "--with tacit --strategy none" ;;
    dp) echo "--with tacit" ;;
    bf16) echo "--with tacit --set wire=bf16" ;;
    auto) echo "--with tacit --codec auto" ;;
    auto-now) echo "$select auto --set compress.loss=4" ;;
    powersgd) echo "--with tacit --codec powersgd" ;;
    topk) echo "$select topk --factor 20 --set values=int4" ;;
    topk10 | topk1000) echo "$select topk --factor ${1#topk}" ;;
    gravac) echo "$select topk --set adapt.policy=gravac --set gravac.window=$((GRAVAC_STEPS / 12 + 1))" ;;
    accordion)
      echo "$select topk --set adapt.policy=accordion --set accordion.high=1000 --set accordion.epoch=$((GRAVAC_STEPS / 12 + 1))" \
        "--set accordion.every=1" ;;
    exp | aer | complete) echo "--with tacit --strategy gossip --topology $1" ;;
    fsdp-f32) echo "--with fsdp --hook wire=f32" ;;
    fsdp-int8 | fsdp-int4 | fsdp-auto) echo "--with fsdp --hook codec=${1#fsdp-}" ;;
    fsdp-tagc) echo "--with fsdp --hook codec=tagc,compress.warmup=0" ;;
    *) misuse "unknown method \"$1\"" ;;
  esac
}

# in_turns NUMBER WORD...: the words, in reverse if the number is even.
in_turns() {
  local number=$1 words=""
  shift
  ((number % 2 == 0)) || { echo "$*"; return; }
  for _; do words="$_ $words"; done
  echo "$words"
}

# launch NAME METHOD EXAMPLE WORD...
launch() {
  local answer=$1 words=$2 example=$3
  [ ! -e "$folder/$answer.failed" ] || return 0
  words=$(method "$2") || exit 2
  shift 3
  # shellcheck disable=SC2086 # words
  record "$answer.json" lab/cluster run --torchrun --timeout 600 --name "$name" -- \
    "examples/pytorch/$example.py" $words "$@" $WORDS || mv "$folder/$answer.json.log" "$folder/$answer.failed"
}

# ---- sections ------------------------------------------------------------------------------------------------------------

# take_turns FOLDER SEEDS METHODS EXAMPLE WORD...: a repetition is a seed, too.
take_turns() {
  local at=$1 seeds=$2 methods=$3 example=$4 seed which
  shift 4
  for seed in $seeds; do
    # shellcheck disable=SC2086 # words
    for which in $(in_turns "$seed" $methods); do
      launch "$at/$which-$seed" "$which" "$example" --seed "$seed" "$@"
    done
  done
}

gpt_words() { echo "--data $text --batch $BATCH --steps $STEPS --warm-up $WARM_UP"; }

section_steps() {
  lab_up 4 1 "$RATE"
  # shellcheck disable=SC2046 # words
  take_turns steps "$(seq "${REPEATS:-9}")" "$METHODS" gpt $(gpt_words)
}

# VGG-16 computes for the 0.149 s that its profile states.
section_dp() {
  local setting
  for setting in $DP_SETTINGS; do
    case $setting in
      host) lab_up 1 4 none ;;
      vgg)
        lab_up 4 2 1gbit
        take_turns dp/vgg "$(seq "${REPEATS:-5}")" "ddp dp" vgg --size paper --emulate 149 --steps "$VGG_STEPS" --warm-up 3
        continue ;;
      *) lab_up 4 1 "$setting" ;;
    esac
    # shellcheck disable=SC2046 # words
    take_turns "dp/$setting" "$(seq "${REPEATS:-9}")" "ddp dp" gpt $(gpt_words)
  done
}

# The rate at which the ring of DDP, f32, takes RATIO times a step without any exchange. It is that of the first run, so that an
# interrupted one goes on at it.
choose_rate() {
  lab_up 4 1 "$RATE"
  # shellcheck disable=SC2046 # words
  launch loss/alone-1 alone gpt $(gpt_words)
  [ -s "$folder/loss/rate" ] || /usr/bin/env python3 scripts/results/pytorch_tables.py --rate "$folder/loss/alone-1.json" "$RATIO" \
    >"$folder/loss/rate" || { rm -f "$folder/loss/rate"; exit 1; }
}

# At --lr 1e-3 dense training stays at the frequencies of bytes for a hundred steps, and when it leaves them is chance; at 3e-4 it does
# not (one rank, one seed).
section_loss() {
  local rate seed which steps
  choose_rate
  rate=$(<"$folder/loss/rate")
  lab_up 4 1 "$rate"
  for seed in $SEEDS; do
    # shellcheck disable=SC2086 # words
    for which in $(in_turns "$seed" $LOSS_METHODS); do
      steps=$LOSS_STEPS
      [ "$which" = ddp ] || steps=$((LOSS_STEPS * 5 / 4))
      launch "loss/$which-$seed" "$which" gpt --seed "$seed" --data "$text" --batch "$BATCH" --lr 3e-4 --steps "$steps" --evaluate 10
    done
  done
}

# Words of an example whose dense run learns in so few steps. The LSTM stays at the frequencies of bytes for the first 60.
gravac_words() {
  case $1 in
    resnet) echo "--batch 4 --lr 3e-3 --steps $GRAVAC_STEPS" ;;
    vgg) echo "--batch 16 --lr 2e-3 --steps $GRAVAC_STEPS" ;;
    lstm) echo "--batch 8 --lr 1e-2 --data $text --steps $((GRAVAC_STEPS * 5 / 3))" ;;
    *) misuse "GRAVAC_EXAMPLES knows resnet, vgg and lstm, not \"$1\"" ;;
  esac
}

section_gravac() {
  local example words
  lab_up 4 1 "$RATE"
  for example in $GRAVAC_EXAMPLES; do
    words=$(gravac_words "$example") || exit 2
    # shellcheck disable=SC2086 # words
    take_turns "gravac/$example" "$SEEDS" "$GRAVAC_METHODS" "$example" $words --warm-up 2
  done
}

section_decent() {
  lab_up 4 1 "$RATE"
  take_turns decent "$SEEDS" "$DECENT_METHODS" gpt --data "$text" --batch "$BATCH" --optimizer accum-adam --steps "$DECENT_STEPS"
}

# Two hosts, as TAGC had: with four the sum of what ranks select does not decode from its sketch.
section_tagc() {
  local rate
  for rate in $TAGC_RATES; do
    lab_up "$TAGC_HOSTS" 1 "$rate"
    take_turns "tagc/$rate" "$(seq "${REPEATS:-5}")" "$TAGC_METHODS" gpt --data "$text" --batch "$BATCH" --steps "$TAGC_STEPS" --warm-up 6
  done
}

[ "${sections[*]}" = tables ] || find_text
for section in "${sections[@]}"; do [ "$section" = tables ] || "section_$section"; done
make_tables || exit 1
[ "$failures" -eq 0 ] || echo "pytorch.sh: $failures launches failed; the tables say which" >&2

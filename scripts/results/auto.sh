#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures compress.codec auto against every form that it chooses from and every other policy: five clusters, three texts.
#
#   scripts/results/auto.sh [-o FOLDER] [--name NAME] [--tacit PROGRAM] [--text FILE] [--quick] [SECTION ...]
#
# Sections, in the order in which they run when none is named:
#   loss      loss of each fixed form, 8 ranks on one machine: bits do not depend on links                                30 min
#   steps     seconds of a step, in turns, on 8 hosts whose dense f32 all-reduce takes so many times the compute, which is emulated
#             with the profile of a run of one rank                                                                       10 min
#   lab       whole runs of what decides by measured times on such hosts, short ones of the fixed forms; compute is real    3 h
#   tables    time to equal loss, of what FOLDER holds; always runs at the end
#
# FOLDER (default build/auto) keeps what every launch printed, with its command line beside it. A launch whose answer is there is
# not repeated: an interrupted section goes on where it stopped; remove FOLDER/SECTION to measure it again. --quick makes every
# launch so short that its figures mean nothing, in a folder of its own. --text (default input.txt, else
# ../shared/data/tinyshakespeare.txt) is tiny-shakespeare; bible is the first 1.2 MB of the King James Bible, pages those of the
# manuals of Debian's package manpages-dev, both of which `apt-get download` fetches to FOLDER at need. Needs root for lab
# (lab/cluster); clusters are taken down at the end, also of an interrupted run. Leave the machine alone meanwhile.
#
# Environment, with the defaults: SEEDS ("1"), STEPS (1500), BATCH (32), TEXTS ("shakespeare bible pages"), RATIOS ("0.1 1 4 8 16":
# communication / compute of dense f32), FIXED ("dense dense-bf16 int8 int4 topk"), CHOOSING ("auto gravac accordion"), WINDOWS (128:
# of validation per evaluation; 0: all, which takes longer than the steps between two), FLAGS (of every run)
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

: "${SEEDS:=1}" "${STEPS:=1500}" "${BATCH:=32}" "${TEXTS:=shakespeare bible pages}" "${RATIOS:=0.1 1 4 8 16}" "${FLAGS:=}" "${WINDOWS:=128}"
: "${FIXED:=dense dense-bf16 int8 int4 topk}" "${CHOOSING:=auto gravac accordion}"

read_words "-o --name --tacit --text --quick" "loss steps lab" tables "$@"
[ -z "$quick" ] || SEEDS=1 STEPS=24 TEXTS="shakespeare pages" RATIOS="0.1 8" FIXED="dense int4" WINDOWS=8

warm_up=$((STEPS / 10)) # of the learning rate
often=$((STEPS >= 120 ? STEPS / 60 : 2))

# method NAME: its flags.
method() {
  local topk="--compress.codec topk --topk.values int4"
  case $1 in
    dense) ;;
    dense-bf16) echo "--exchange.wire bf16" ;;
    int8 | int4 | auto) echo "--compress.codec $1" ;;
    topk) echo "$topk --compress.factor 5" ;;
    gravac | accordion) echo "$topk --adapt.policy $1" ;;
    *) misuse "unknown method \"$1\"" ;;
  esac
}

# one FOLDER/NAME LAUNCHER METHOD SEED STEPS_OF_IT STEPS_BETWEEN_EVALUATIONS [FLAG...]: the schedule is that of STEPS
one() {
  local answer=$1 launcher=$2 words steps=$5
  words=$(method "$3") || exit 2
  # shellcheck disable=SC2086 # words
  train_run "$answer" "$launcher" --train.batch "$BATCH" --train.steps "$steps" --optim.warmup "$warm_up" --optim.lr 1e-2 \
    --optim.weight_decay 0.2 --optim.beta2 0.99 --optim.clip 1 --train.eval_every "$6" --train.eval_windows "$WINDOWS" \
    --train.seed "$4" $words $FLAGS "${@:7}"
}

# Sets rate: at which the bytes of a dense f32 all-reduce take RATIO times what the profile computes.
find_emulated_rate() {
  use_text shakespeare
  [ -s "$folder/profile.json" ] ||
    one profile "$MPIRUN -n 1" dense 1 60 0 --train.batch $((BATCH / 8)) --profile "$folder/profile.json"
  rate=$(/usr/bin/env python3 scripts/results/auto_tables.py --emulated "$folder/profile.json" "$1") || exit 7
}

section_steps() {
  local ratio
  for ratio in $RATIOS; do
    find_emulated_rate "$ratio"
    lab_up 8 1 "$rate"
    # shellcheck disable=SC2046 # words
    record "steps/$ratio.json" $(in_lab) "$tacit" bench step --compute.emulate "$folder/profile.json" --warm-up 60 --rounds 60 --blocks 3 --json \
      --against exchange.wire=bf16 --against compress.codec=int8 --against compress.codec=int4 --against compress.codec=auto \
      --against "compress.codec=topk topk.values=int4 compress.factor=5" --against "compress.codec=auto compress.loss=4"
  done
}

section_loss() {
  local seed which from
  for from in $TEXTS; do
    use_text "$from"
    for seed in $SEEDS; do
      for which in $FIXED; do one "loss/$from-$which-$seed" "$MPIRUN -n 8" "$which" "$seed" "$STEPS" "$often"; done
    done
  done
}

# Sets rate: at which the bytes of a dense f32 all-reduce take RATIO times the compute of a step, which a run on 8 hosts without
# shaped links measures.
find_rate() {
  use_text shakespeare
  [ -s "$folder/rate/compute.jsonl" ] || {
    lab_up 8 1 none
    one rate/compute "$(in_lab)" dense 1 $((STEPS < 200 ? STEPS : 200)) 0
  }
  rate=$(/usr/bin/env python3 scripts/results/auto_tables.py --rate "$folder" "$1") || exit 7
}

# topk takes other bytes while its factor rises: it runs as long as what decides.
section_lab() {
  local ratio from seed which steps
  for ratio in $RATIOS; do
    find_rate "$ratio"
    lab_up 8 1 "$rate"
    echo "links of $rate" >&2
    for from in $TEXTS; do
      use_text "$from"
      for seed in $SEEDS; do
        for which in $FIXED $CHOOSING; do
          steps=$STEPS
          case $which in dense* | int*) steps=$((STEPS / 8 > 10 ? STEPS / 8 : 10)); [ "$from-$seed" = "${TEXTS%% *}-${SEEDS%% *}" ] || continue ;; esac
          one "lab/$ratio-$from-$which-$seed" "$(in_lab)" "$which" "$seed" "$steps" "$often"
        done
      done
    done
  done
}

run_sections

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures tacit under PyTorch against DDP, its hooks and decent-dp, each by the same script and torchrun on emulated hosts.
#
#   scripts/results/pytorch.sh [-o FOLDER] [--name NAME] [--quick] [SECTION ...]
#
# Sections, in the order in which they run when none is named:
#   steps   seconds per step of a GPT of 3.3 M parameters, real compute, 4 hosts at 200 Mbit/s                          60 min
#   tables  the tables of what FOLDER holds; always runs at the end
#
# Methods take turns: each repetition runs all of them. FOLDER (default build/pytorch) keeps what every launch printed, with its
# command line beside it. A launch whose answer is there is not repeated. A method that fails is a row that says so; its log
# stays beside. --quick: two repetitions of a few steps, in a folder of its own and without touching the page. Needs root, and
# a Python with torch, decent-dp 0.2.3 and tacit: TACIT_PYTHON, else python3. Leave the machine alone meanwhile.
#
# Environment, with the figures of the page as defaults: RATE (200mbit), REPEATS (9), STEPS (40), WARM_UP (12: steps that do not
# count), BATCH (2), EXAMPLE (gpt), METHODS (all), WORDS (more words for every launch)
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

folder="" name=pytorch-$$ tacit=tacit text="" quick="" sections=()
: "${RATE:=200mbit}" "${BATCH:=2}" "${EXAMPLE:=gpt}" "${WORDS:=}"
: "${METHODS:=ddp ddp-fp16 ddp-powersgd decent-exp decent-complete dp bf16 auto topk exp aer}"

misuse() { echo "pytorch.sh: $1; see scripts/results/pytorch.sh --help" >&2; exit 2; }

while [ $# -gt 0 ]; do
  case $1 in
    -o | --name)
      [ $# -ge 2 ] || misuse "$1 needs a value"
      case $1 in -o) folder=$2 ;; *) name=$2 ;; esac
      shift 2
      ;;
    --quick) quick=yes; shift ;;
    -h | --help) sed -n '3,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
    steps | tables) sections+=("$1"); shift ;;
    *) misuse "unknown section or option \"$1\"" ;;
  esac
done
[ ${#sections[@]} -gt 0 ] || sections=(steps)
if [ -n "$quick" ]; then
  folder=${folder:-build/pytorch-quick}
  : "${REPEATS:=2}" "${STEPS:=14}" "${WARM_UP:=6}"
else
  folder=${folder:-build/pytorch}
  : "${REPEATS:=9}" "${STEPS:=40}" "${WARM_UP:=12}"
fi
"${TACIT_PYTHON:-python3}" -c 'import torch, tacit, decent_dp' 2>/dev/null || {
  echo "pytorch.sh: ${TACIT_PYTHON:-python3} lacks torch, tacit or decent-dp: pip install . torch decent-dp==0.2.3" >&2; exit 7; }
mkdir -p "$folder" || exit 7
folder=$(realpath "$folder")
failures=0
guard_lab

# The words of a method. `auto` selects elements from the first step on: its warm-up is one for training to a loss.
method() {
  case $1 in
    ddp | ddp-fp16 | ddp-powersgd) echo "--with $1" ;;
    decent-exp) echo "--with decent-dp --topology one-peer-exp" ;;
    decent-complete) echo "--with decent-dp --topology complete" ;;
    dp) echo "--with tacit" ;;
    bf16) echo "--with tacit --set wire=bf16" ;;
    auto) echo "--with tacit --codec auto --set compress.warmup=0" ;;
    topk) echo "--with tacit --codec topk --factor 20 --set values=int4" ;;
    exp | aer) echo "--with tacit --strategy gossip --topology $1" ;;
    *) misuse "unknown method \"$1\"" ;;
  esac
}

section_steps() {
  local repetition which words
  lab_up 4 1 "$RATE"
  for ((repetition = 1; repetition <= REPEATS; repetition++)); do
    for which in $METHODS; do
      words=$(method "$which") || exit 2
      # shellcheck disable=SC2086 # words
      record "steps/$which-$repetition.json" lab/cluster run --torchrun --timeout 300 --name "$name" -- \
        "examples/pytorch/$EXAMPLE.py" $words --batch "$BATCH" --steps "$STEPS" --warm-up "$WARM_UP" --seed "$repetition" $WORDS ||
        mv "$folder/steps/$which-$repetition.json.log" "$folder/steps/$which-$repetition.failed"
    done
  done
}

section_tables() {
  local page=docs/results/pytorch.md
  [ -z "$quick" ] && [ -f "$page" ] || page=""
  # shellcheck disable=SC2086 # no word when there is no page
  /usr/bin/env python3 scripts/results/pytorch_tables.py "$folder" $page
}

for section in "${sections[@]}"; do
  [ "$section" != tables ] || continue
  "section_$section"
done
section_tables || exit 1
[ "$failures" -eq 0 ] || echo "pytorch.sh: $failures launches failed; the table says which" >&2

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how far gossip ends above dense all-reduce on texts and lengths that no setting was searched for; fills the tables
# of docs/results/texts.md.
#
#   scripts/results/texts.sh [-o FOLDER] [--tacit PROGRAM] [--text FILE] [SECTION ...]
#
# Sections, in the order in which they run when none is named; minutes of two cores:
#   rates   dense all-reduce at several learning rates: where its own best is                                              2 min
#   matrix  texts x lengths x methods x seeds                                                                             18 min
#   tables  the tables of what FOLDER holds; always runs at the end
#
# FOLDER (default build/texts) keeps what every launch printed, with its command line beside it; a launch whose answer is there
# is not repeated. --text (default input.txt, else ../shared/data/tinyshakespeare.txt) is tiny-shakespeare. The other text is
# the first 1.2 MB of the King James Bible, from Debian's packages bible-kjv and bible-kjv-text: `apt-get download` fetches
# them to FOLDER at need, nothing is installed.
#
# Environment, with the figures of the page as defaults: TEXTS ("bible shakespeare"), LENGTHS ("400 1000 2000 3000"), SEEDS ("1 2"),
# METHODS ("dense aer-1.5 exp-1.5"; also aer-2.8, exp-2.8, accum-aer), RATES ("6e-3 1e-2 1.6e-2 2.4e-2"), NETWORK (its flags: 2 layers
# of 64 channels; empty: that of gossip.sh), FLAGS (of every run, as --comm.timeout on a busy machine)
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

folder=build/texts tacit=$PWD/build/release/bin/tacit text="" shakespeare="" sections=() failures=0
: "${TEXTS:=bible shakespeare}" "${LENGTHS:=400 1000 2000 3000}" "${SEEDS:=1 2}" "${METHODS:=dense aer-1.5 exp-1.5}"
: "${RATES:=6e-3 1e-2 1.6e-2 2.4e-2}" "${NETWORK=--model.layers 2 --model.channels 64 --model.heads 2}" "${FLAGS:=}"

misuse() { echo "texts.sh: $1; see scripts/results/texts.sh --help" >&2; exit 2; }

while [ $# -gt 0 ]; do
  case $1 in
    -o | --tacit | --text)
      [ $# -ge 2 ] || misuse "$1 needs a value"
      case $1 in -o) folder=$2 ;; --tacit) tacit=$2 ;; --text) shakespeare=$2 ;; esac
      shift 2
      ;;
    -h | --help) sed -n '3,24s/^# \{0,1\}//p' "$0"; exit 0 ;;
    rates | matrix | tables) sections+=("$1"); shift ;;
    *) misuse "unknown section or option \"$1\"" ;;
  esac
done
[ ${#sections[@]} -gt 0 ] || sections=(rates matrix)
[ -x "$tacit" ] || { echo "texts.sh: there is no program $tacit; build it: cmake --preset release && cmake --build build/release" >&2; exit 7; }
tacit=$(realpath "$tacit")
mkdir -p "$folder" || exit 7
folder=$(realpath "$folder")

# one NAME RANKS STEPS SCHEDULE WARM_UP SEED FLAG...: STEPS of a cosine that is laid out for SCHEDULE.
one() {
  local answer=$1 ranks=$2 steps=$3 schedule=$4 warm_up=$5 seed=$6
  shift 6
  # shellcheck disable=SC2086 # words
  train_run "$answer" "$MPIRUN -n $ranks" $NETWORK --train.batch 32 --train.steps "$steps" --optim.decay_steps "$schedule" \
    --optim.warmup "$warm_up" --train.eval_every $((steps / 2)) --train.eval_windows 0 --train.seed "$seed" $FLAGS "$@"
}

gossip="--strategy gossip --gossip.per_host 2 --gossip.start 0 --gossip.denoise 0"
# adam RATE DECAY CLIP [BETA1], accum STEPS RATE DECAY CLIP BETA1 BETA2
adam() { echo "--optim.name adamw --optim.beta1 ${4:-0.9} --optim.beta2 0.99 --optim.lr $1 --optim.weight_decay $2 --optim.clip $3"; }
accum() {
  echo "--optim.name accum-adamw --optim.accum $1 --optim.beta1 $5 --optim.beta2 $6 --optim.lr $2 --optim.weight_decay $3 --optim.clip $4"
}

# Rates of gossip are that of dense all-reduce times 1.5 or sqrt(8), decays as much smaller.
method() {
  case $1 in
    dense) echo "--strategy dp $(adam 1.6e-2 0.1 0.2)" ;;
    *-1.5) echo "$gossip --gossip.topology ${1%-*} --gossip.order atc $(adam 2.4e-2 0.0667 0.2)" ;;
    *-2.8) echo "$gossip --gossip.topology ${1%-*} --gossip.order atc $(adam 4.53e-2 0.0354 0.2)" ;;
    accum-aer) echo "$gossip --gossip.topology aer --gossip.order awc $(accum 4 1.8e-2 0.0668 0.5 0.9 0.96)" ;;
    *) misuse "unknown method \"$1\"" ;;
  esac
}

ranks_of() { case $1 in dense*) echo 1 ;; *) echo 8 ;; esac; }

# A fifth of the run; gossip: at least the memory of the second moment, 2 / (1 - 0.99) steps.
warm_up_of() {
  local steps=$(($2 / 5))
  case $1 in dense) ;; *) [ $steps -ge 200 ] || steps=200 ;; esac
  echo $steps
}

section_matrix() {
  local which seed steps words
  for steps in $LENGTHS; do
    for seed in $SEEDS; do
      for which in $TEXTS; do
        use_text "$which"
        for method in $METHODS; do
          words=$(method "$method") || exit 2
          # shellcheck disable=SC2086 # words
          one "matrix/${which}_${steps}_${method}_$seed" "$(ranks_of "$method")" "$steps" "$steps" "$(warm_up_of "$method" "$steps")" "$seed" $words
        done
      done
    done
  done
}

section_rates() {
  local rate
  use_text bible
  for rate in $RATES; do
    # shellcheck disable=SC2046 # words
    one "rates/$rate" 1 1000 1000 200 100 --strategy dp $(adam "$rate" 0.1 1)
  done
}

for section in "${sections[@]}"; do
  [ "$section" = tables ] || "section_$section"
done
/usr/bin/env python3 scripts/results/texts_tables.py "$folder" docs/results/texts.md || failures=$((failures + 1))
[ "$failures" -eq 0 ] || { echo "texts.sh: $failures failed; run it again to repeat them alone" >&2; exit 1; }

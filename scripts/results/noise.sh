#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how far gossip ends above dense all-reduce with dense's own settings, and what of that a dense start and moments
# without the noise of a rank's share take away; fills the tables of docs/results/noise.md.
#
#   scripts/results/noise.sh [-o FOLDER] [--tacit PROGRAM] [--text FILE] [SECTION ...]
#
# Sections, in the order in which they run when none is named; minutes of two cores:
#   ablation  texts x graphs x orders x variants x seeds, STEPS steps on RANKS ranks                                       15 min
#   lengths   texts x lengths x seeds of gossip as it is by default                                                       20 min
#   codecs    codecs of mixes x numbers of ranks x seeds, CODEC_STEPS steps                                               40 min
#   tables    the tables of what FOLDER holds; always runs at the end
#
# FOLDER (default build/noise) keeps what every launch printed, with its command line beside it; a launch whose answer is there
# is not repeated. --text (default input.txt, else ../shared/data/tinyshakespeare.txt) is tiny-shakespeare. bible is the first
# 1.2 MB of the King James Bible, pages those of the manuals of Debian's package manpages-dev; both are fetched at need.
#
# Environment, with the figures of the page as defaults: TEXTS ("bible shakespeare"), SEEDS ("1 2"), GRAPHS ("base-k"),
# VARIANTS ("plain start denoise both default", of which the last has the integral, and today's start; start and both have one of 0.1;
# -atc behind a name: adapt-then-combine),
# STEPS (1500), LENGTHS ("1000 3000"),
# CODECS (graph:codec ...), CODEC_RANKS ("5 6 8"), CODEC_STEPS (600), CODEC_TEXT (bible), RANKS (6), SAMPLES (5, of each rank), FLAGS (of every run)
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

: "${TEXTS:=bible shakespeare}" "${SEEDS:=1 2}" "${GRAPHS:=base-k}" "${VARIANTS:=plain start denoise both default}"
: "${CODECS:=aer:none aer:int8 aer:int4 aer:signmag2 base-k:none base-k:int4 base-k:signmag2 base-k:powergossip exp-directed:none exp-directed:int8}"
: "${CODEC_RANKS:=5 6 8}" "${CODEC_STEPS:=600}" "${CODEC_TEXT:=bible}"
: "${STEPS:=1500}" "${LENGTHS:=1000 3000}" "${RANKS:=6}" "${SAMPLES:=5}" "${FLAGS:=}"

read_words "-o --tacit --text" "ablation lengths codecs" tables "$@"

# one NAME STEPS SEED FLAG...: the settings are those of dense all-reduce.
one() {
  local answer=$1 steps=$2 seed=$3
  shift 3
  # shellcheck disable=SC2086 # words
  train_run "$answer" "$MPIRUN -n $RANKS" --train.batch $((RANKS * SAMPLES)) --train.steps "$steps" --optim.warmup $((steps / 10)) \
    --optim.lr 1e-2 --optim.weight_decay 0.2 --optim.beta2 0.99 --optim.clip 1 --train.eval_every "$steps" --train.eval_windows 0 \
    --train.seed "$seed" $FLAGS "$@"
}

variant() {
  case ${1%-atc} in
    plain) echo "--gossip.start 0 --gossip.denoise 0" ;;
    start) echo "--gossip.start 0.1 --gossip.denoise 0" ;;
    denoise) echo "--gossip.start 0" ;;
    both) echo "--gossip.start 0.1" ;;
    default) ;;
    *) misuse "unknown variant \"$1\"" ;;
  esac
  case $1 in *-atc) echo "--gossip.order atc" ;; default) ;; *) echo "--gossip.integral 0" ;; esac
}

# all STEPS GRAPHS VARIANTS: of every text and seed.
all() {
  local steps=$1 which seed graph name words
  for seed in $SEEDS; do
    for which in $TEXTS; do
      use_text "$which"
      one "$steps/${which}_dense_dense_$seed" "$steps" "$seed" --strategy dp
      for graph in $2; do
        for name in $3; do
          words=$(variant "$name") || exit 2
          # shellcheck disable=SC2086 # words
          one "$steps/${which}_${graph}_${name}_$seed" "$steps" "$seed" --strategy gossip --gossip.topology "$graph" $words
        done
      done
    done
  done
}

section_ablation() { all "$STEPS" "$GRAPHS" "$VARIANTS"; }

section_lengths() {
  local steps
  for steps in $LENGTHS; do all "$steps" "$GRAPHS" default; done
}

section_codecs() {
  local seed pair RANKS
  use_text "$CODEC_TEXT"
  for seed in $SEEDS; do
    for RANKS in $CODEC_RANKS; do
      for pair in $CODECS; do
        one "codecs/${RANKS}_${pair%:*}_${pair#*:}_$seed" "$CODEC_STEPS" "$seed" --strategy gossip --gossip.topology "${pair%:*}" \
          --gossip.codec "${pair#*:}"
      done
    done
  done
}

run_sections

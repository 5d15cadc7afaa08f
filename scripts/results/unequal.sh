#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a tiny network on data that is unequal between ranks, and fills the table of docs/results/unequal.md.
#
#   scripts/results/unequal.sh [-o FOLDER] [--tacit PROGRAM] [--text FILE] [--quick]
#
# 4 ranks, 6 methods, 3 partitions; two learning rates with the first seed (SGD: one), the better of them with the others: 66
# runs of 10 s or so. FOLDER (default build/unequal) keeps what every run printed, with its command beside it; a run whose answer is
# there is not repeated. --quick makes runs so short that their figures mean nothing, in a folder of its own and without touching
# the page. --text (default input.txt, else ../shared/data/tinyshakespeare.txt) is tiny-shakespeare.
#
# Environment, with the figures of the page as defaults: SEEDS ("1 2 3"), STEPS (300), METHODS, PARTITIONS, RATES (learning
# rates for all methods), TABLE (unequal: the page's table to fill), PREFIX (words before mpirun, such as nice).
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

: "${SEEDS:=1 2 3}" "${STEPS:=300}" "${PREFIX:=}" "${RATES:=}" "${TABLE:=unequal}" "${PARTITIONS:=global dirichlet:0.1 by-rank}"
: "${METHODS:=dense-adam adam accum adam-tracker dense-sgd sgd-atc}"

read_words "-o --tacit --text --quick" "" "" "$@"
find_text
[ -z "$quick" ] || STEPS=10 SEEDS="1 2" METHODS="adam adam-tracker"

# Five fifths of the text, in small letters, each written in an alphabet of its own (bytes 128 and up for all but the first): as if
# the text went through five languages with the same punctuation. The last 10 % of each fifth are for validation.
make_text() {
  [ ! -s "$folder/train.txt" ] || return 0
  /usr/bin/env python3 - "$text" "$folder" <<'PY'
import os, sys
text, folder = open(sys.argv[1], "rb").read().lower(), sys.argv[2]
train, held = b"", b""
for k in range(5):
    letters = bytes(range(97, 123)) if k == 0 else bytes(range(102 + 26 * k, 128 + 26 * k))
    part = text[len(text) * k // 5 : len(text) * (k + 1) // 5].translate(bytes.maketrans(bytes(range(97, 123)), letters))
    train += part[: len(part) * 9 // 10]
    held += part[len(part) * 9 // 10 :]
open(folder + "/held.txt", "wb").write(held)
open(folder + "/train.part", "wb").write(train)
os.rename(folder + "/train.part", folder + "/train.txt")
PY
}

gossip="--strategy gossip --gossip.start 0 --gossip.denoise 0"

# method NAME: its flags; rates NAME: the learning rates that are tried.
method() {
  case $1 in
    dense-adam) echo "--strategy dp" ;;
    adam) echo "$gossip" ;;
    accum) echo "$gossip --optim.name accum-adamw --optim.accum 4" ;;
    adam-tracker) echo "$gossip --gossip.tracker true" ;;
    dense-sgd) echo "--strategy dp --optim.name sgd" ;;
    sgd-atc) echo "$gossip --gossip.order atc --optim.name sgd" ;;
    *) misuse "unknown method \"$1\"" ;;
  esac
}
rates() {
  case $1 in
    *sgd*) echo "${RATES:-0.1}" ;;
    *) echo "${RATES:-8e-3 1.6e-2}" ;;
  esac
}

# train METHOD PARTITION RATE SEED: its metrics become FOLDER/METHOD_PARTITION_RATE_SEED.jsonl, unless they are there.
train() {
  local words
  words=$(method "$1") || exit 2
  # shellcheck disable=SC2086 # words
  keep_run "$1_$2_$3_$4" $PREFIX "$MPIRUN" -n 4 "$tacit" train --model.preset nano --model.context 32 --model.channels 48 --model.dtype f32 \
    --train.threads 1 --train.batch 32 --train.steps "$STEPS" --train.eval_every 0 --train.eval_windows 2048 --train.save_every -1 \
    --train.save_early 0 --run.tensorboard false --optim.warmup 50 $words --optim.lr "$3" --train.seed "$4" --data.partition "$2" \
    --data.train "$folder/train.txt" --data.validation "$folder/held.txt" --run.dir "$folder/run"
}

make_text || exit 7
for partition in $PARTITIONS; do
  for which in $METHODS; do
    for rate in $(rates "$which"); do train "$which" "$partition" "$rate" "${SEEDS%% *}"; done
    best=$(/usr/bin/env python3 scripts/results/unequal_tables.py --best "$folder" "$which" "$partition" "${SEEDS%% *}") || exit 7
    for seed in $SEEDS; do train "$which" "$partition" "$best" "$seed"; done
  done
done
page=${page:+$page $TABLE}
run_sections

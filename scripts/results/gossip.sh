#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures gossip against dense all-reduce and fills the tables and pictures of docs/results/gossip.md.
#
#   scripts/results/gossip.sh [-o FOLDER] [--name NAME] [--tacit PROGRAM] [--text FILE] [--quick] [SECTION ...]
#
# Sections, in the order in which they run when none is named:
#   steps   step times of an emulated transformer-base, 16 ranks on 4 hosts, all-reduce of 1, 2 and 4 times the compute   28 min
#   jitter  what jitter of compute costs, 16 ranks, no transfer to speak of                                                3 min
#   plan    probes the same clusters and predicts every cell of steps and jitter                                           4 min
#   train   validation loss of a Shakespeare GPT after as many steps, 8 ranks, 3 seeds                                    30 min
#   time    time to the dense run's loss at 100 Mbit/s, 4 hosts of 2 ranks                                                15 min
#   tables  tables and pictures of what FOLDER holds; always runs at the end
# and, only when it is named:
#   tune    the search for the hyper-parameters of train, as many runs for each optimizer; train uses the best           40 min
#
# FOLDER (default build/gossip) keeps what every launch printed, with its command line beside it. A launch whose answer is
# there is not repeated: an interrupted section goes on where it stopped; remove FOLDER/SECTION to measure it again. --quick
# makes every launch so short that its figures mean nothing, in a folder of its own and without touching the page. --text
# (default input.txt, else ../shared/data/tinyshakespeare.txt) is tiny-shakespeare. Needs root for steps, plan and time
# (lab/cluster); clusters are taken down at the end, also of an interrupted run. Leave the machine alone meanwhile.
#
# Environment, with the figures of the page as defaults: RATE (500mbit), RATIOS ("1 2 4"), WIRES ("f32 bf16"), BLOCKS (2),
# SEEDS ("1 2 3"), STEPS (3000), BATCH (32), METHODS ("dense accum-aer accum-exp accum-aer-atc adam-aer"; -atc behind a name makes
# it adapt-then-combine, -delay lets its transfers take two steps), TIME_RATE (100mbit), TIME_STEPS (1500), TIME_WIRES (f32),
# TIME_METHODS ("aer:1.15 aer-auto:1.15": steps beside those of dense; aer: as it is by default, -auto: with compress.codec auto)
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

windows=0 time_windows=256 # of validation; 0: all
: "${RATE:=500mbit}" "${RATIOS:=1 2 4}" "${WIRES:=f32 bf16}" "${BLOCKS:=2}" "${SEEDS:=1 2 3}" "${STEPS:=3000}" "${BATCH:=32}"
: "${METHODS:=dense accum-aer accum-exp accum-aer-atc adam-aer}"
: "${TIME_RATE:=100mbit}" "${TIME_STEPS:=1500}" "${TIME_WIRES:=f32}" "${TIME_METHODS:=aer:1.15 aer-auto:1.15}"

read_words "-o --name --tacit --text --quick" "steps jitter plan train time" "tables tune" "$@"
[ -z "$quick" ] || BLOCKS=1 SEEDS=1 STEPS=10 TIME_STEPS=20 WIRES=f32 RATIOS=1 windows=8 time_windows=8

# ---- steps: time per step -------------------------------------------------------------------------------------------

network=transformer-base
# Seconds of forward and backward for the profile's own accelerator, and megabytes of gradients as f32.
network_facts() {
  "$tacit" info profiles --json | /usr/bin/env python3 -c '
import json, sys
p = {p["name"]: p for p in json.load(sys.stdin)}[sys.argv[1]]
print(3 * p["forward_flops"] * p["batch_samples"] / p["rate_flops_per_s"], 4 * p["parameters"] / 1e6)' "$network"
}

# scale_of WIRE RATIO: the factor of compute times with which a dense all-reduce on an idle link takes RATIO times the
# compute. It puts 1.5 times the array on the link of each of 4 hosts; 99.3 % of a link of MTU 9000 are payload.
scale_of() {
  local seconds megabytes
  read -r seconds megabytes <<<"$(network_facts)"
  /usr/bin/env python3 -c '
import sys
wire, ratio, rate, seconds, megabytes = sys.argv[1], float(sys.argv[2]), sys.argv[3], float(sys.argv[4]), float(sys.argv[5])
bits = float(rate[:-4]) * {"k": 1e3, "m": 1e6, "g": 1e9}[rate[-4]]
transfer = 1.5 * megabytes * 8e6 * {"f32": 1.0, "bf16": 0.5}[wire] / (0.993 * bits)
print("%.4g" % (transfer / ratio / seconds))' "$1" "$2" "$RATE" "$seconds" "$megabytes"
}

gossip_on() { echo "strategy=gossip gossip.topology=$1"; }

# Dense and aer take turns in BLOCKS blocks; exp and complete have one block right after them, as exp alone takes longer than
# both. A period of aer on 4 hosts and of exp on 16 ranks is 4 steps; a block is one to warm up and one that counts.
section_steps() {
  local wire ratio scale rounds=4
  [ -z "$quick" ] || rounds=1
  for wire in $WIRES; do
    for ratio in $RATIOS; do
      scale=$(scale_of "$wire" "$ratio") || exit 7
      lab_up 4 4 "$RATE"
      # shellcheck disable=SC2046 # words
      set -- $(in_lab) "$tacit" bench step --compute.emulate $network --compute.scale "$scale" --exchange.wire "$wire" \
        --warm-up $rounds --rounds $rounds --json
      record "steps/$wire-${ratio}x-aer.json" "$@" --blocks "$BLOCKS" --against "$(gossip_on aer)"
      record "steps/$wire-${ratio}x-others.json" "$@" --blocks 1 --strategy gossip --gossip.topology exp \
        --against "$(gossip_on complete)"
    done
  done
}

# ---- jitter ---------------------------------------------------------------------------------------------------------

section_jitter() {
  local rounds=100
  [ -z "$quick" ] || rounds=5
  record jitter/16.json "$MPIRUN" -n 16 "$tacit" bench step --compute.emulate bench/jitter.json \
    --gossip.per_host 4 --warm-up 5 --rounds $rounds --blocks "$BLOCKS" --json --against compute.cv=0.1 \
    --against "$(gossip_on aer)" --against "$(gossip_on aer) compute.cv=0.1" --against "$(gossip_on exp) compute.cv=0.1" \
    --against "$(gossip_on complete) compute.cv=0.1"
}

# ---- predictions ----------------------------------------------------------------------------------------------------

# predict NAME CLUSTER FLAG...: the methods of `tacit plan` for a cell. The file is needed and its network is not used. What
# bench step measures is mixes alone.
predict() {
  local cell=$1 cluster=$2
  shift 2
  record "plan/$cell.json" "$tacit" plan scripts/results/shakespeare.yaml --cluster "$folder/plan/$cluster.json" "$@" --gossip.start 0 --gossip.denoise 0 \
    --all --json
}

# The probe's jitter is that of cores which ranks share. An emulated accelerator has none but --compute.cv.
without_jitter() {
  /usr/bin/env python3 -c '
import json, sys
cluster = json.load(open(sys.argv[1]))
cluster.pop("compute", None)
json.dump(cluster, open(sys.argv[2], "w"), indent=1)' "$folder/plan/$1-probe.json" "$folder/plan/$1.json"
}

section_plan() {
  local wire ratio probe=(probe --no-natives --json)
  [ -z "$quick" ] || probe+=(--quick --seconds 10)
  lab_up 4 4 "$RATE"
  # shellcheck disable=SC2046 # words
  record plan/lab-probe.json $(in_lab) "$tacit" "${probe[@]}" || return 0
  without_jitter lab || exit 1
  for wire in $WIRES; do
    for ratio in $RATIOS; do
      predict "steps-$wire-${ratio}x" lab --compute.emulate $network --compute.scale "$(scale_of "$wire" "$ratio")"
    done
  done
  record plan/host-probe.json "$MPIRUN" -n 16 "$tacit" "${probe[@]}" || return 0
  without_jitter host || exit 1
  predict jitter host --compute.emulate bench/jitter.json --compute.cv 0.1 --gossip.per_host 4
}

# ---- training -------------------------------------------------------------------------------------------------------

gossip="--strategy gossip --gossip.per_host 2 --gossip.start 0 --gossip.denoise 0" # of which the settings were searched

# method NAME: its flags. A name is OPTIMIZER-TOPOLOGY, with -atc behind it for adapt-then-combine or -delay for transfers
# that may take two steps; or aer, or aer-auto: today's defaults with the settings of dense. Topologies see hosts of 2 ranks,
# as in the lab.
method() {
  local words
  case $1 in
    dense) words="--strategy dp" ;;
    aer | aer-*) words="--strategy gossip --gossip.per_host 2 --gossip.topology aer" ;;
    *-aer | *-aer-*) words="$gossip --gossip.topology aer" ;;
    *-exp | *-exp-*) words="$gossip --gossip.topology exp" ;;
    *) misuse "unknown method \"$1\"" ;;
  esac
  case $1 in
    *-atc) words+=" --gossip.order atc" ;;
    *-delay) words+=" --gossip.delay 1 --gossip.gamma 0.5" ;;
    *-auto) words+=" --compress.codec auto" ;;
  esac
  words+=" $(tuned "${1%%-*}")" || return 1
  echo "$words"
}

# tuned OPTIMIZER: its flags, with the best settings of section tune when FOLDER has them, else those found before. Betas of
# accum-adamw count windows of 4 steps.
tuned() {
  local words lr decay=0.2 clip=1 best
  case $1 in
    dense | aer) words="adamw --optim.beta2 0.99" lr=1e-2 ;;
    adam) words="adamw --optim.beta2 0.99" lr=1.6e-2 decay=0.1 ;;
    accum) words="accum-adamw --optim.accum 4 --optim.beta2 0.96" lr=1.6e-2 clip=0.5 ;;
    *) misuse "unknown optimizer \"$1\"" ;;
  esac
  best=$(best_of "$1") || return 1
  [ -z "$best" ] || read -r lr decay clip <<<"$best"
  echo "--optim.name $words --optim.lr $lr --optim.weight_decay $decay --optim.clip $clip"
}

best_of() { /usr/bin/env python3 scripts/results/gossip_tables.py --best "$folder" "$1"; }

section_train() {
  local seed which words
  find_text
  for seed in $SEEDS; do
    for which in $METHODS; do
      words=$(method "$which") || exit 7
      # shellcheck disable=SC2086 # words
      train_run "train/$which-$seed" "$MPIRUN -n 8" $words --train.batch "$BATCH" --train.steps "$STEPS" \
        --train.eval_every $((STEPS / 10)) --train.eval_windows $windows --train.seed "$seed"
    done
  done
}

# tune_run METHOD LR DECAY CLIP. The seed is none of section train's.
tune_run() {
  local words
  words=$(method "$1") || exit 7
  # shellcheck disable=SC2086 # words
  train_run "tune/$1_$2_$3_$4" "$MPIRUN -n 8" ${words%%--optim.lr*} --optim.lr "$2" --optim.weight_decay "$3" --optim.clip "$4" \
    --train.batch "$BATCH" --train.steps "$STEPS" --train.eval_every 0 --train.eval_windows $windows --train.seed 100
}

# Seven runs for each optimizer: three learning rates; at the best of them half and twice the weight decay; at the best of
# these two lower bounds of the gradient's norm.
section_tune() {
  local which rates rate decay clip best
  find_text
  for which in dense accum-aer adam-aer; do
    case $which in
      dense) rates="6e-3 1e-2 1.6e-2" ;;
      accum-aer) rates="1.2e-2 1.6e-2 2.4e-2" ;;
      adam-aer) rates="1.6e-2 2.4e-2 3.2e-2" ;;
    esac
    for rate in $rates; do tune_run $which "$rate" 0.1 1; done
    best=$(best_of "${which%%-*}") || exit 7
    for decay in 0.05 0.2; do tune_run $which "${best%% *}" $decay 1; done
    best=$(best_of "${which%%-*}") || exit 7
    read -r rate decay clip <<<"$best"
    for clip in 0.5 0.3; do tune_run $which "$rate" "$decay" $clip; done
  done
}

# Gossip's rate is laid out for another number of steps than the dense run's, which it has to be as good as.
section_time() {
  local wire entry which steps words
  find_text
  lab_up 4 2 "$TIME_RATE"
  for wire in $TIME_WIRES; do
    for entry in dense:1 $TIME_METHODS; do
      which=${entry%:*}
      steps=$(/usr/bin/env python3 -c "print(round($TIME_STEPS * ${entry#*:}))") || exit 2
      words=$(method "$which") || exit 7
      # shellcheck disable=SC2086 # words
      train_run "time/$which-$wire" "$(in_lab)" $words --exchange.wire "$wire" --train.batch "$BATCH" --train.steps "$steps" \
        --optim.warmup $((TIME_STEPS / 5)) --exchange.bucket 2MiB --train.eval_every $((TIME_STEPS / 50 + 1)) \
        --train.eval_windows $time_windows --train.seed 1
    done
  done
}

run_sections scripts/results/plot_gossip.sh "$folder" "$pictures"

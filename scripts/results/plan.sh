#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures step times on emulated clusters that no figure of the planner was tuned on, predicts them, and fills docs/results/plan.md.
#
#   scripts/results/plan.sh [-o FOLDER] [--name NAME] [--tacit PROGRAM] [SECTION ...]
#
# Sections, in the order in which they run when none is named:
#   measure  steps of emulated networks on every cluster, five methods each                     50 min
#   probe    cluster.json of every cluster, as `tacit probe` measures it                         10 min
#   predict  `tacit plan` with the probe's file for every cell that was measured                 2 min
#   tables   the tables of what FOLDER holds; always runs at the end
#
# FOLDER (default build/plan) keeps what every command printed, with its command line beside it. A command whose answer is
# there is not repeated: remove the file to have it anew. Answers of `tacit bench step --json` from elsewhere may be put to
# FOLDER/measure as CLUSTER-NETWORK-METHOD.json. Needs root (lab/cluster). Leave the machine alone meanwhile.
#
# Environment, with the page's as defaults: CLUSTERS ("6x2-300 3x4-150 5x1-80": hosts x ranks - Mbit/s), NETWORKS
# ("resnet-101:35:f32 lstm-66m:60:bf16": name, factor of compute times, wire)
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
. scripts/mpi-environment.sh
. scripts/results/record.sh

: "${CLUSTERS:=6x2-300 3x4-150 5x1-80}" "${NETWORKS:=resnet-101:35:f32 lstm-66m:60:bf16}"

read_words "-o --name --tacit" "measure probe predict" tables "$@"

# cluster_up HOSTSxRANKS-MBIT
cluster_up() {
  local hosts=${1%%x*} rest=${1#*x}
  lab_up "$hosts" "${rest%-*}" "${rest#*-}mbit"
}

# flags_of METHOD WIRE: exp is measured in bf16 on every network, as in f32 it alone takes longer than all others.
flags_of() {
  case $1 in
    dense) echo "--strategy dp --exchange.wire $2" ;;
    localsgd) echo "--strategy localsgd --localsgd.every 4 --exchange.wire $2" ;;
    exp) echo "--strategy gossip --gossip.topology exp --exchange.wire bf16" ;;
    *) echo "--strategy gossip --gossip.topology $1 --exchange.wire $2" ;;
  esac
}

# for_cells FUNCTION: FUNCTION CLUSTER NETWORK SCALE METHOD FLAGS
for_cells() {
  local cluster network method scale wire
  for cluster in $CLUSTERS; do
    for network in $NETWORKS; do
      IFS=: read -r network scale wire <<<"$network"
      for method in dense complete localsgd aer exp; do
        "$1" "$cluster" "$network" "$scale" "$method" "$(flags_of $method "$wire")"
      done
    done
  done
}

# shellcheck disable=SC2046,SC2086 # words
measure_cell() {
  local rounds=1
  case $4 in dense | complete) rounds=3 ;; localsgd) rounds=4 ;; esac
  [ ! -s "$folder/measure/$1-$2-$4.json" ] || return 0
  cluster_up "$1"
  record "measure/$1-$2-$4.json" $(in_lab) "$tacit" bench step --compute.emulate "$2" --compute.scale "$3" $5 --blocks 1 \
    --warm-up 1 --rounds $rounds --json
}

# shellcheck disable=SC2086 # words
predict_cell() {
  [ -s "$folder/measure/$1-$2-$4.json" ] && [ -s "$folder/probe/$1.json" ] || return 0
  record "predict/$1-$2-$4.json" "$tacit" plan scripts/results/shakespeare.yaml --cluster "$folder/probe/$1.json" \
    --compute.emulate "$2" --compute.scale "$3" $5 --gossip.start 0 --gossip.denoise 0 --no-jitter --all --json
}

section_measure() { for_cells measure_cell; }
section_predict() { for_cells predict_cell; }
section_probe() {
  local cluster
  for cluster in $CLUSTERS; do
    [ ! -s "$folder/probe/$cluster.json" ] || continue
    cluster_up "$cluster"
    # shellcheck disable=SC2046 # words
    record "probe/$cluster.json" $(in_lab) "$tacit" probe --no-natives --json
  done
}

run_sections

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collectives between emulated hosts: the MPI library's own are exact there too, and bench/collectives.sh measures, answers
# and takes its cluster down. Skipped where there can be no cluster. No bound on speed: other things run too.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
find_program
laws=$(dirname "$tacit")/../mpi/mpi_native_laws
need_cluster "collectives between emulated hosts"
own_cluster c

check "a cluster of two hosts" timeout 60 lab/cluster up 2 --rate 1gbit --per-host 2 --name "$ours"
run() { timeout -k 5 100 lab/cluster run --name $ours --timeout 90 "$@"; }

check "the library's own all-reduces on 2 hosts x 2 ranks" run -- "$laws" mpi-default,mpi-ring,mpi-rabenseifner,mpi-han
check "the same where HAN is the default" env OMPI_MCA_coll_han_priority=100 timeout -k 5 100 lab/cluster run --name $ours \
  --timeout 90 -- "$laws" mpi-default,mpi-ring,mpi-rabenseifner,mpi-han
expect "a send goes to the other host" 0 'from rank 0 to rank 2' run -- "$tacit" bench collectives --op send --bytes 1MB --rounds 2
expect "a side is a host" 0 'n = 2 hosts' run -- "$tacit" bench collectives --bytes 8,1MB --rounds 2 --line 1gbit
lab/cluster down --name $ours >/dev/null || fail "down"

sweep() { timeout -k 5 200 bench/collectives.sh --tacit "$tacit" --name $ours -o "$work/out" --hosts 2 --per-host 2 --rates 1gbit --blocks 2 --rounds 2 "$@"; }
gone() { ! ip netns list | grep -E "^$ours-"; }
by=tacit,mpi-default,mpi-ring
! /usr/bin/python3 -c 'import torch' 2>/dev/null || by=$by,gloo
answered() {
  python3 - "$work/out/collectives.json" $by <<'EOF'
import json, sys
answer, by = json.load(open(sys.argv[1])), sys.argv[2].split(",")
assert [row["bytes"] for row in answer["rows"]] == [8, 1000000], answer
for row in answer["rows"]:
    assert (row["hosts"], row["per_host"], row["rate"]) == (2, 2, "1gbit") and row["best_other"] in by[1:], row
    assert sorted(row["figures"]) == sorted(by) and row["send_bps"] > 0
    for figure in row["figures"].values():
        seconds = figure["seconds"]
        assert len(figure["samples_s"]) == 4 and len(figure["launch_medians_s"]) == 2, figure
        assert 0 < seconds["least"] <= seconds["median"] <= seconds["most"] and figure["of_line"] > 0
EOF
}
expect "a sweep on a cluster of its own" 0 'tacit takes [0-9.]+ of the time of' sweep --bytes 8,1MB --by $by
check "has every figure in its answer" answered
check "and takes the cluster down" gone

expect "a launch that fails is told and counted" 1 'not offered for all-reduce' sweep --bytes 8 --by tacit,mpi-rign
check "and its cluster goes too" gone
interrupted() {
  sweep --bytes 64MB >"$work/log" 2>&1 &
  local job=$! i
  for ((i = 0; i < 300; i++)); do ip netns list | grep -q "^$ours-" && break; sleep 0.1; done
  sleep 2
  pkill -INT -P $job bash || kill -INT $job
  wait $job
  gone
}
check "an interrupted sweep leaves no cluster" interrupted
expect "a mistake is refused before anything is made" 2 'unknown option --host' bench/collectives.sh --host 4
finish_checks

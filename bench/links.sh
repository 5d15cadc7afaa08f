#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What an emulated link carries: sends of 64 MB between two hosts, for each rate, as a table. Needs root and a release build
# with tests (mpi_link). Usage: bench/links.sh [up OPTIONS...]     e.g. bench/links.sh --delay 1ms
set -euo pipefail
cd "$(dirname "$0")/.."
repeats=${REPEATS:-7}
name=links$$
link=build/release/mpi/mpi_link
[ -x $link ] || { echo "links.sh: $link is missing: cmake --preset release -DTACIT_TESTS=ON && cmake --build build/release" >&2; exit 7; }
lab/cluster up 2 --name "$name" "$@" >&2
trap 'lab/cluster down --name "$name"' EXIT

echo "| rate, Mbit/s | median | share of the rate | lowest | highest | spread | round trip |"
echo "|---|---|---|---|---|---|---|"
for rate in 100 200 1000 2500; do
  lab/cluster rate ${rate}mbit --name "$name"
  lab/cluster run --name "$name" -n 2 --timeout 120 -- $link 64000000 "$repeats" 2>/dev/null |
    awk -v rate=$rate '/^rtt/ { rtt = $2 } /^send/ {
      printf "| %d | %.1f | %.1f %% | %.1f | %.1f | %.1f %% | %.0f us |\n", rate, $2, 100 * $2 / rate, $5, $NF, 100 * ($NF - $5) / $2, rtt }'
done

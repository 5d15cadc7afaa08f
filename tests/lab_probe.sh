#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tacit probe on an emulated cluster: the shaped rate is found, by two hosts alone and by all ranks of a host together.
# Needs root and network namespaces; without them it says so and skips. Bounds are loose: other things run too.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
find_program

need_cluster "the probe on an emulated cluster"
own_cluster p

# holds PYTHON: assertions about d, the file
holds() { python3 - "$work/cluster.json" "$1" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
links = d["links"]
print(links)
def near(x, rate): return 0.9 * rate < x < 1.02 * rate
exec(sys.argv[2])
PY
}

check "3 hosts at 200 Mbit/s" timeout -k 5 60 lab/cluster up 3 --rate 200mbit --name "$ours"
# What disturbs a measurement can only slow it down: it may be repeated.
probe() {
  timeout -k 5 40 lab/cluster run --name "$ours" -n 6 --per-host 2 --timeout 30 -- \
    "$tacit" probe --quick --seconds 12 -o "$work/cluster.json" || return 1
}
settled() { holds 'assert all(near(links[k], 0.1985) for k in ("host_gbit_per_s", "incast_gbit_per_s"))
assert near(links["between"]["gbit_per_s"], 0.1985)' >/dev/null 2>&1; }
check "probe of 6 ranks on 3 hosts" probe
for _ in 1 2 3; do settled || probe >/dev/null 2>&1; done
check "hosts and ranks" holds 'assert (d["hosts"], d["ranks_per_host"]) == (3, 2), d'
check "two hosts alone reach the rate less headers, within 10 %" holds 'assert near(links["between"]["gbit_per_s"], 0.1985)'
check "two ranks of a host share the same line" holds 'assert near(links["host_gbit_per_s"], 0.1985)'
check "two hosts to one share its line" holds 'assert near(links["incast_gbit_per_s"], 0.1985)'
check "both directions at once reach the line" holds 'assert near(links["duplex_gbit_per_s"], 0.1985)'
check "memory is faster than the line" holds 'assert links["inside"]["gbit_per_s"] > 5 * links["between"]["gbit_per_s"]'
check "collectives take no less than their bytes on the line" holds '
for t in d["collectives"]:
    if t["collective"] == "all_reduce" and t["group"] == "world" and t["bytes"] > 500000:
        assert t["seconds"] > 2 * 2 / 3 * t["bytes"] * 8 / 0.205e9, t'
finish_checks

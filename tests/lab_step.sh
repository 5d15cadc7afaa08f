#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bytes on an emulated cluster: what the engine says it sent to other hosts is what the kernel's interface counters saw, but
# for headers and heartbeats, in both directions and on every host; and a sum sends 2 (n-1)/n of a model, a mix what the planner says.
# Needs root and network namespaces; without them it says so and skips.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
find_program

need_cluster "bytes on an emulated cluster"
own_cluster s
lab() { timeout -k 5 60 lab/cluster "$1" --name "$ours" "${@:2}"; }

# 2.5 million parameters, uneven tensors.
cat >"$work/profile.json" <<'JSON'
{"format": "tacit-profile-1", "name": "bytes", "unit": "seconds", "layers": [
  {"name": "a", "forward_s": 0.002, "backward_s": 0.004, "tensors": [{"name": "a.w", "shape": [1000, 1001]}]},
  {"name": "b", "forward_s": 0.002, "backward_s": 0.004, "tensors": [{"name": "b.w", "shape": [1499, 1000]}, {"name": "b.b", "shape": [7]}]}]}
JSON

# steps HOSTS PER_HOST FILE ARGUMENT...
steps() {
  timeout -k 5 100 lab/cluster run --name "$ours" -n $(($1 * $2)) --per-host "$2" --timeout 90 -- "$tacit" bench step \
    --compute.emulate "$work/profile.json" --blocks 2 --warm-up 2 --rounds 4 "${@:4}" --json >"$work/$3" || return 1
  echo "$1 $2" >"$work/$3.shape"
  "$tacit" info topologies -n $(($1 * $2)) --per-host "$2" --json >"$work/$3.topologies"
}

# agree FILE: for each host, setting and direction: payload <= interface <= 1.02 payload + what beats and headings of small
# messages take; the busiest host sends what a sum or the mixes of a topology take, and half a percent of barriers at most.
agree() {
  python3 - "$work/$1" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
hosts, per_host = map(int, open(sys.argv[1] + ".shape").read().split())
assert len(d["cluster"]["hosts"]) == hosts and {h["ranks"] for h in d["cluster"]["hosts"]} == {per_host}, d["cluster"]
models = {t["name"]: t["nic_mean"] for t in json.load(open(sys.argv[1] + ".topologies"))["topologies"]}
wrong = 0
for s in d["settings"]:
    constant = 20e3 + 40e3 * s["seconds"]["step"]["mean"]  # bytes per step, and per second
    for h in s["bytes_per_step"]["hosts"]:
        for way in ("sent", "received"):
            nic, payload = h["nic_" + way], h["payload_" + way]
            ok = nic is not None and 1e6 < payload <= nic <= 1.02 * payload + constant
            wrong += not ok
            print(f'{s["label"]}: {h["host"]} {way} {nic} by the interface, {payload} by the engine', "" if ok else "<-- wrong")
    sent = max(h["payload_sent"] for h in s["bytes_per_step"]["hosts"])
    least = 2500032 * (2 if s["configuration"]["exchange.wire"] == "bf16" else 4) * models.get(s["method"].get("topology"), 2 * (hosts - 1) / hosts)
    least /= s["method"].get("every", 1)
    ok = 0.9999 * least <= sent <= 1.005 * least
    wrong += not ok
    print(f'{s["label"]}: the busiest host sent {sent}, {least} are needed', "" if ok else "<-- wrong")
sys.exit(wrong != 0)
PY
}

for shape in "2 1" "3 1" "3 2"; do
  read -r hosts per_host <<<"$shape"
  check "up: $hosts hosts" lab up "$hosts" --rate 1gbit
  check "steps on $hosts hosts x $per_host ranks" steps "$hosts" "$per_host" answer --against exchange.wire=bf16 \
    --against "strategy=localsgd localsgd.every=2" --against "strategy=gossip gossip.topology=aer" \
    --against "strategy=gossip gossip.topology=exp exchange.wire=bf16"
  check "$hosts hosts x $per_host ranks: engine and interfaces count the same bytes" agree answer
  lab down 2>/dev/null
done
finish_checks

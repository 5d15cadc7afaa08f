#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/bench_step.sh [PROGRAM]: steps over several ranks of one host: figures that must hold whatever the machine's speed, and
# refusals before anything starts.
set -uo pipefail
. "$(dirname "$0")/check.sh"
find_program "${1:-}"
cd "$(dirname "$0")/.." || exit 1
. scripts/mpi-environment.sh
[ -n "$MPIRUN" ] || { echo "bench step: no mpirun, skipped"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck disable=SC2030,SC2031
export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} # Open MPI's own
failed=0
complain() { echo "bench step: $1"; failed=1; }

cat >"$folder/tiny.json" <<'JSON'
{"format": "tacit-profile-1", "name": "tiny", "unit": "seconds", "update_s": 0.001, "layers": [
  {"name": "a", "forward_s": 0.004, "backward_s": 0.008, "tensors": [{"name": "a.w", "shape": [100, 100]}]},
  {"name": "b", "forward_s": 0.004, "backward_s": 0.008, "tensors": [{"name": "b.w", "shape": [333, 7]}]}]}
JSON

# ranks N ARGUMENT...: the answer of a run in out.json
ranks() {
  local n=$1; shift
  timeout 100 "$MPIRUN" -n "$n" "$tacit" bench step "$@" --json >"$folder/out.json" 2>"$folder/err" ||
    { complain "$n ranks ended with $?: $*"; tail -n 5 "$folder/err"; }
}
holds() { # holds NAME PYTHON: assertions about d, the answer, and s, its settings
  python3 - "$folder/out.json" <<PY || complain "$1"
import json, sys
d = json.load(open(sys.argv[1]))
s = d.get("settings", [])
$2
PY
}
refuses() { # refuses CODE TEXT ARGUMENT...: two ranks, one line
  local code=$1 text=$2 got; shift 2
  timeout 100 "$MPIRUN" -n 2 "$tacit" bench step "$@" >"$folder/out" 2>&1 </dev/null; got=$?
  [ "$got" -eq "$code" ] || complain "exit status $got instead of $code: $*"
  grep -qF -- "$text" "$folder/out" || { complain "not said: $text"; head -n 5 "$folder/out"; }
  [ "$(grep -c 'tacit: .*error' "$folder/out")" -eq 1 ] || complain "said more than once: $text"
}

emulated=(--compute.emulate "$folder/tiny.json" --blocks 2 --rounds 6 --warm-up 2)
ranks 3 "${emulated[@]}" --compute.cv 0.1 --against exchange.wire=bf16 --against "exchange.bucket=4096 exchange.overlap=no" \
  --against compute.cv=0 --against compute.slow=1:2,2:1.5
holds "three ranks on one host" '
assert d["cluster"]["ranks"] == 3 and len(d["cluster"]["hosts"]) == 1 and d["cluster"]["hosts"][0]["ranks"] == 3
assert d["machine"]["cores"] >= 1 and d["compute"]["emulated"] and d["compute"]["parameters"] == 12331
assert abs(d["compute"]["forward_s"] - 0.008) < 1e-12 and d["compute"]["seed"] == 1
assert len(s) == 5 and s[0]["label"] == "base" and s[1]["label"] == "exchange.wire=bf16"
assert s[1]["configuration"]["exchange.wire"] == "bf16" and s[0]["configuration"]["exchange.wire"] == "f32"
assert s[2]["buckets"] > s[0]["buckets"] >= 1
for t in s:
    sec = t["seconds"]
    step = sec["step"]
    assert step["count"] == 12 and sec["block"]["count"] == 2 == t["ratio_to_base"]["count"]
    assert 0 < step["least"] <= step["median"] <= step["most"] and step["least"] <= step["mean"] <= step["most"]
    assert sec["slowest_step"]["mean"] >= step["mean"] >= sec["compute"]["mean"] >= sec["compute"]["asked_mean"] * 0.999
    assert sec["exposed_wait"]["least"] >= 0 and 0 <= t["exposed_share"] < 1 and t["cpu_percent"] >= 0
    assert sec["update"]["least"] >= 0.001
    b = t["bytes_per_step"]
    assert b["rank_sent_least"] <= b["rank_sent"] <= b["rank_sent_most"] and b["rank_formula"] > 0
    assert [h["nic_sent"] for h in b["hosts"]] == [None] and b["hosts"][0]["payload_sent"] == 0
assert s[0]["ratio_to_base"]["mean"] == 1 and s[0]["tokens_per_s"] is None
assert abs(s[3]["seconds"]["compute"]["asked_mean"] - 0.024) < 1e-9 and s[3]["seconds"]["compute"]["asked_cv"] < 1e-9
assert abs(s[4]["seconds"]["compute"]["asked_slowest_mean"] / s[4]["seconds"]["compute"]["asked_mean"] - 2 / 1.5) < 0.2
b = s[0]["bytes_per_step"]
assert 1.9 < b["rank_sent"] / s[1]["bytes_per_step"]["rank_sent"] < 2.1
assert b["rank_sent_least"] <= b["rank_formula"] <= b["rank_sent_most"], b
assert abs(b["rank_sent"] / (2 * 2 / 3 * 4 * 12331) - 1) < 0.02, b  # 2 (N - 1) / N of the gradient
'
# A head that is tied to an embedding of three buckets; what is gathered before the first step is not in the counters.
cat >"$folder/tied.json" <<'JSON'
{"format": "tacit-profile-1", "name": "tied", "unit": "seconds", "update_s": 0.001, "layers": [
  {"name": "embedding", "forward_s": 0, "backward_s": 0, "tensors": [{"name": "e", "shape": [120, 100]}]},
  {"name": "a", "forward_s": 0.004, "backward_s": 0.008, "tensors": [{"name": "a.w", "shape": [90, 100]}]},
  {"name": "b", "forward_s": 0.004, "backward_s": 0.008, "tensors": [{"name": "b.w", "shape": [333, 7]}]},
  {"name": "head", "forward_s": 0.002, "backward_s": 0.004, "tied": true, "tensors": [{"name": "norm", "shape": [100]}]}]}
JSON
ranks 3 --compute.emulate "$folder/tied.json" --blocks 1 --rounds 8 --warm-up 1 --strategy shard --exchange.bucket 16KiB \
  --against exchange.overlap=no --against shard.stage=2 --against shard.stage=1 --against shard.gather=bf16 \
  --against strategy=dp
holds "parts of an emulated network" '
by_rank = [t["bytes_per_step"]["rank_sent"] for t in s]
model = 4 * 2 / 3 * sum(n + -n % 16 for n in (12000, 9000, 2331, 100))
expected = [3 * model - 4 * 2 / 3 * 112, None, 2 * model, 2 * model, None, s[5]["bytes_per_step"]["rank_formula"]]
expected[1], expected[4] = expected[0], model + (expected[0] - model) / 2
for t, sent, want in zip(s, by_rank, expected):
    ahead = 4 * 2 / 3 * 12000 / 9 if t["label"] != "strategy=dp" else 0
    assert want * 0.999 <= sent <= 1.02 * want + ahead, (t["label"], sent, want)
    assert abs(t["bytes_per_step"]["rank_formula"] / want - 1) < 0.001, (t["label"], t["bytes_per_step"], want)
    assert t["seconds"]["step"]["least"] >= 0.030
assert by_rank[0] == by_rank[1], by_rank
'
# steps that differ in what they exchange: blocks of whole periods, bytes as the formula says
ranks 3 "${emulated[@]}" --against "strategy=localsgd localsgd.every=4" \
  --against "strategy=localsgd localsgd.every=1 localsgd.outer_lr=0.7 localsgd.outer_momentum=0.9"
holds "local SGD beside dp" '
assert d["warm_up"] == 4 and d["rounds"] == 8  # 2 and 6, rounded up
dp, four, one = s
assert [t["method"]["period"] for t in s] == [1, 4, 1] and four["method"]["every"] == 4
assert [t["seconds"]["step"]["count"] for t in s] == [16, 4, 16]
for t in s:
    b = t["bytes_per_step"]
    assert abs(b["rank_sent"] - b["rank_formula"]) <= 1, b
    assert t["drift"] is not None and t["seconds"]["block"]["count"] == 2
assert abs(four["bytes_per_step"]["rank_sent"] * 4 / dp["bytes_per_step"]["rank_sent"] - 1) < 1e-9
assert one["bytes_per_step"]["rank_sent"] == dp["bytes_per_step"]["rank_sent"]
assert sum(t["seconds"]["compute"]["asked_mean"] for t in s) > 0.07
'
ranks 5 --strategy gossip --gossip.topology aer "${emulated[@]}" --rounds 5 --against strategy=dp \
  --against "gossip.order=atc exchange.wire=bf16" --against "gossip.topology=exp exchange.overlap=no" \
  --against "gossip.topology=complete gossip.every=2"
holds "gossip beside dp" '
methods = [t["method"] for t in s]
assert [m["strategy"] for m in methods] == ["gossip", "dp", "gossip", "gossip", "gossip"], methods
assert [m.get("topology") for m in methods] == ["aer", None, "aer", "exp", "complete"]
assert [m.get("order") for m in methods] == ["awc", None, "atc", "awc", "awc"]
assert all(d["rounds"] % m["period"] == 0 and d["warm_up"] % m["period"] == 0 for m in methods)
assert d["rounds"] >= 5 and methods[1]["period"] == 1 and methods[4]["period"] == 2
for t in s:
    b = t["bytes_per_step"]
    assert 0 < b["rank_sent"] and abs(b["rank_sent"] - b["rank_formula"]) <= 1, (t["label"], b)
    assert t["seconds"]["step"]["count"] * t["method"]["period"] == 2 * d["rounds"]
assert abs(s[4]["bytes_per_step"]["rank_sent"] * 2 / s[1]["bytes_per_step"]["rank_sent"] - 1) < 1e-3
'
# 40 MB of parameters: a rank holds one such array, whichever strategies take turns
cat >"$folder/large.json" <<'JSON'
{"format": "tacit-profile-1", "name": "large", "unit": "seconds", "layers": [
  {"name": "a", "forward_s": 0.01, "backward_s": 0.02, "tensors": [{"name": "a.w", "shape": [10000, 1000]}]}]}
JSON
large=(--compute.emulate "$folder/large.json" --blocks 1 --rounds 2 --warm-up 0)
ranks 2 "${large[@]}"
alone=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["resident_bytes"])' "$folder/out.json")
ranks 2 "${large[@]}" --against "strategy=localsgd localsgd.every=2" --against "strategy=gossip gossip.topology=complete"
holds "memory of strategies in turns" "assert d['resident_bytes'] < ${alone:-0} + 20e6, (d['resident_bytes'], ${alone:-0})
assert 40e6 < d['predicted_bytes'] < 60e6, d['predicted_bytes']"

ranks 2 --model nano --seq 16 --batch 2 --blocks 1 --rounds 2 --warm-up 0 --strategy localsgd --localsgd.every 2
holds "local SGD of a network" 'assert s[0]["seconds"]["step"]["count"] == 1 and s[0]["drift"] is None'

ranks 2 --model nano --seq 16 --batch 2 --blocks 1 --rounds 3 --warm-up 0
holds "real compute" '
assert not d["compute"]["emulated"] and d["compute"]["model"] == "nano" and d["compute"]["batch"] == 2
assert s[0]["tokens_per_s"] > 0 and s[0]["seconds"]["compute"]["asked_mean"] is None
assert s[0]["seconds"]["step"]["count"] == 3 and s[0]["seconds"]["block"]["cv"] is None
'
ranks 3 --model nano --seq 16 --batch 2 --blocks 2 --rounds 2 --warm-up 0 --strategy shard --against shard.stage=1 \
  --shard.stage 3 --against strategy=dp
holds "a network of which ranks hold parts" '
three, one, dp = [t["bytes_per_step"] for t in s]
assert all(abs(b["rank_sent"] / b["rank_formula"] - 1) < 0.05 for b in (three, one, dp)), s
assert three["rank_formula"] > 1.4 * one["rank_formula"]
'
ranks 2 "${emulated[@]}" --comm.thread=false
holds "without a thread nothing overlaps" 'assert s[0]["overlap"] is None'
timeout 100 "$MPIRUN" -n 2 "$tacit" bench step "${emulated[@]}" >"$folder/out" 2>&1 || complain "text"
grep -q "overlap" "$folder/out" || complain "no table"

# one process: a cluster of one with keys, the machine's arithmetic without
timeout 100 "$tacit" bench step "${emulated[@]}" --json >"$folder/out.json" || complain "a cluster of one"
holds "a cluster of one" 'assert d["cluster"]["ranks"] == 1 and s[0]["bytes_per_step"]["rank_sent"] == 0 and s[0]["overlap"] is None'
timeout 100 "$tacit" bench step --model nano --seq 16 --rounds 1 --json >"$folder/out.json" || complain "alone"
holds "alone" 'assert d["tokens_per_s"] > 0 and d["ratio"]["median"] > 0 and "settings" not in d'

# how long it will take is said before it begins, and an interruption keeps what is complete
said() { grep -qE -- "$1" "$folder/err" || { complain "not said: $1"; cat "$folder/err"; }; }
slow=(--compute.emulate "$folder/tiny.json" --compute.scale 4 --blocks 50 --against "strategy=localsgd localsgd.every=7")
ranks 2 "${emulated[@]}" --against "strategy=localsgd localsgd.every=5"
said '^tacit: 2 blocks of 5 \+ 10 steps of each of 2 settings: about [0-9]+ s$'
holds "nothing was left out" 'assert d["interrupted"] is False and d["blocks"] == 2'

# interrupt SIGNAL SECONDS COMMAND...: so long after it has said how long it will take
interrupt() {
  local signal=$1 seconds=$2 pid tries=0; shift 2
  "$@" >"$folder/out.json" 2>"$folder/err" & pid=$!
  until grep -q "steps of each of" "$folder/err" || [ $((tries += 1)) -gt 300 ]; do sleep 0.1; done
  sleep "$seconds"
  kill -"$signal" "$pid"; wait "$pid"
}
# interrupt_late EARLY SIGNAL SECONDS COMMAND...: the same, but again and later while it says EARLY, that too little was
# complete: a machine that others use needs longer for a block.
interrupt_late() {
  local early=$1 signal=$2 seconds=$3 got tries=0; shift 3
  while :; do
    interrupt "$signal" "$seconds" "$@"; got=$?
    grep -qE -- "$early" "$folder/err" && [ $((tries += 1)) -le 3 ] || return $got
    seconds=$((seconds * 2))
  done
}
nothing="interrupted before the first block was complete"
lone=("$tacit" bench step "${slow[@]}" --warm-up 0)
interrupt_late "$nothing|of each of 1 setting" INT 4 "${lone[@]}" --rounds 7 --json; got=$?
[ "$got" -eq 130 ] || complain "exit status $got instead of 130"
said 'interrupted: [0-9]+ blocks? of each of 2 settings'
holds "what was complete" '
assert d["interrupted"] and 1 <= d["blocks"] < 50 and len(s) == 2
assert s[0]["seconds"]["step"]["count"] == 7 * d["blocks"] and s[1]["seconds"]["step"]["count"] == d["blocks"]'
# the second setting is ten times slower: time enough to be interrupted in
interrupt_late "$nothing" TERM 3 "$tacit" bench step --compute.emulate "$folder/tiny.json" --compute.scale 4 --blocks 50 \
  --against compute.slow=0:10 --rounds 14 --warm-up 0 --json; got=$?
[ "$got" -eq 143 ] || complain "exit status $got instead of 143"
holds "the settings that have a block" 'assert d["interrupted"] and d["blocks"] == 1 and len(s) == 1 and s[0]["label"] == "base"'
interrupt TERM 0.3 "${lone[@]}" --rounds 700 --json; got=$?
[ "$got" -eq 143 ] || complain "exit status $got instead of 143"
said "$nothing"
# mpirun leaves them 4 s to answer
OMPI_MCA_odls_base_sigkill_timeout=4 interrupt_late "$nothing" TERM 4 "$MPIRUN" -n 3 "${lone[@]}" --rounds 7
said 'interrupted: [0-9]+ blocks? of each'
grep -q 'Definitions: docs/bench-step.md' "$folder/out.json" || complain "under mpirun the answer is not complete"
timeout 10 "$tacit" bench step "${slow[@]}" --dry-run >"$folder/out" || complain "a dry run"
grep -q '^B  strategy=localsgd localsgd.every=7' "$folder/out" || complain "settings of a dry run"
timeout 10 "$tacit" bench step "${slow[@]}" --dry-run --json >"$folder/out.json" || complain "a dry run with --json"
holds "settings of a dry run with --json" 'assert d["methods"][1]["settings"].startswith("strategy localsgd, localsgd.every 7")'

# a watcher that is stopped does not keep the job: its worker wakes it when it ends
"$MPIRUN" -n 2 "$tacit" bench step "${emulated[@]}" --compute.scale 10 >"$folder/out" 2>"$folder/err" & job=$!
until watcher=$(pgrep -P "$job" -f '^watch: rank 1'); do sleep 0.05; kill -0 "$job" || break; done
kill -STOP "$watcher"
for _ in $(seq 120); do kill -0 "$job" 2>/dev/null || break; sleep 0.25; done
kill -CONT "$watcher" 2>/dev/null && complain "a stopped watcher kept the job for 30 s"
wait "$job" || complain "a stopped watcher: exit status $?"
said 'has ended; its watcher .* was stopped and is woken'

refuses 3 'did you mean "exchange.wire"?' --against exchange.wier=bf16
refuses 3 'is not KEY=VALUE' --against bf16
refuses 3 'is the same for all settings' --model nano --against model.dropout=0.1
refuses 3 '2 ranks run: 0 to 1' "${emulated[@]}" --compute.slow 2:2
refuses 3 'did you mean "vgg-16"?' --compute.emulate vgg16
refuses 3 'leave --model away' --model nano "${emulated[@]}"
refuses 2 '--batch means nothing with compute.emulate' "${emulated[@]}" --batch 3
refuses 3 '--blocks 0: give a whole number from 1 to 1000' --blocks 0
refuses 2 'takes no words' one
refuses 7 'are available' --model gpt2-350m --batch 100000 --seq 1024
[ "$failed" -eq 0 ] && echo "bench step: figures hold together and mistakes are refused"
exit "$failed"

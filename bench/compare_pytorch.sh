#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tacit and PyTorch in turns on the same training step; prints medians, spread and ratios.
#
#   bench/compare_pytorch.sh [--rounds N] [--steps N] [--models "M ..."] [--dtypes "D ..."] [--threads "N ..."]
#                            [--batch N] [--seq N] [--tacit PROGRAM] [--json FILE]
#
# One round runs tacit, tuned PyTorch and stock PyTorch one after the other, each for --steps timed steps. A ratio is
# formed within a round, because a machine's speed drifts between rounds. Leave the machine alone meanwhile.
set -eu -o pipefail
cd "$(dirname "$0")/.."
. scripts/results/record.sh

rounds=5 steps=5 models="gpt2-30m gpt2-124m" dtypes="f32 bf16" threads="2 1" batch=4 seq=256 json=""
read_words "--rounds --steps --models --dtypes --threads --batch --seq --tacit --json" "" "" "$@"
/usr/bin/python3 -c 'import torch' 2> /dev/null ||
    { echo "compare_pytorch.sh: PyTorch is missing: apt-get install python3-torch libopenblas0-openmp" >&2; exit 7; }

results=$folder/rounds.jsonl
: > "$results"

keep_answer() { # PROGRAM ROUND COMMAND...
    local program=$1 round=$2 line
    shift 2
    line=$("$@") || { echo "compare_pytorch.sh: failed: $*" >&2; exit 1; }
    printf '{"as":"%s","round":%d,"result":%s}\n' "$program" "$round" "$(tr -d '\n' <<< "$line")" >> "$results"
}

for model in $models; do
    for dtype in $dtypes; do
        for n in $threads; do
            shape=(--model "$model" --batch "$batch" --seq "$seq" --dtype "$dtype" --threads "$n" --rounds "$steps" --json)
            for ((round = 1; round <= rounds; round++)); do
                printf '\r%-72s' "$model $dtype $n thread(s): round $round of $rounds" >&2
                keep_answer "tacit $model $dtype $n" "$round" "$tacit" bench step "${shape[@]}"
                keep_answer "tuned $model $dtype $n" "$round" bench/peers/pytorch_gpt.py --mode tuned "${shape[@]}"
                keep_answer "stock $model $dtype $n" "$round" bench/peers/pytorch_gpt.py --mode stock "${shape[@]}"
            done
        done
    done
done
printf '\r%-72s\r' "" >&2

/usr/bin/python3 - "$results" "$json" "$batch" "$seq" << 'PYTHON'
import json, platform, statistics, sys
from collections import defaultdict

results, out, batch, seq = sys.argv[1:]
rates, extra, busy = defaultdict(dict), {}, []
for line in open(results):
    record = json.loads(line)
    program, model, dtype, threads = record["as"].split()
    result = record["result"]
    rates[(model, dtype, threads, program)][record["round"]] = result["tokens_per_s"]
    extra[program] = result
    share = result.get("busy", 1.0)
    busy.append(share["median"] if isinstance(share, dict) else share)


def machine():
    facts = {}
    for line in open("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    memory = next(l.split()[1] for l in open("/proc/meminfo") if l.startswith("MemTotal"))
    flags = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in facts.get("flags", "").split()]
    cores = sum(1 for l in open("/proc/cpuinfo") if l.startswith("processor"))
    return "%s, %d CPUs (%s), %.0f GiB, Linux %s, PyTorch %s" % (
        facts.get("model name", platform.machine()), cores, " ".join(flags), int(memory) / 2**20, platform.release(),
        extra["tuned"]["version"])


def spread(values, form):
    values = sorted(values)
    return (form + " (" + form + "-" + form + ")") % (statistics.median(values), values[0], values[-1])


shapes = list(dict.fromkeys(key[:3] for key in rates))
print("machine: " + machine())
print("training step, batch %s x %s, tokens/s: median (least-most) of rounds; ratios are formed within a round" % (batch, seq))
row = "%-10s %-5s %3s  %-20s %-20s %-20s %-19s %s"
print(row % ("model", "dtype", "thr", "tacit", "PyTorch tuned", "PyTorch stock", "tacit / tuned", "tacit / stock"))
table = []
for shape in shapes:
    per = {program: rates[shape + (program,)] for program in ("tacit", "tuned", "stock")}
    ratio = {p: [per["tacit"][r] / per[p][r] for r in per["tacit"]] for p in ("tuned", "stock")}
    print(row % (*shape, *(spread(per[p].values(), "%.0f") for p in per), *(spread(ratio[p], "%.2f") for p in ratio)))
    table.append({"model": shape[0], "dtype": shape[1], "threads": int(shape[2]), "tokens_per_s": per, "ratio": ratio})
if min(busy) < 0.9:
    print("warning: other programs ran: a program got only %.0f %% of its cores in one round" % (100 * min(busy)))
if out:
    with open(out, "w") as file:
        json.dump({"machine": machine(), "batch": int(batch), "seq": int(seq), "table": table}, file, indent=1)
PYTHON

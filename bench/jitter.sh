#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What jitter costs a strategy in which all ranks meet in every step: measured step / mean compute, less the transfer, beside
# 1 + cv e_N, where e_N is the expected largest of N standard normal numbers.
#
#   bench/jitter.sh ["RANKS ..."] ["CV ..."]      environment: TACIT, RUNS (3), ROUNDS (20), BLOCKS (3), EMULATE (profile)
#
# One host, shared memory, an emulated accelerator of 100 ms per step and 12 KB of gradients. The transfer is the median
# step without jitter less its compute. All settings take turns in blocks, and block b of all settings draws the same normal
# numbers. Every run has a seed of its own. The error is the standard error of the measured mean; "these draws" is what the
# steps that were drawn must cost, so the difference to it has no error of sampling. CPU is of all ranks, 100 % is one core.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
tacit=${TACIT:-build/release/bin/tacit} ranks=${1:-8 16} cvs=${2:-0.05 0.1 0.2} runs=${RUNS:-3}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
against=()
for cv in $cvs; do against+=(--against "compute.cv=$cv"); done
for n in $ranks; do
  for run in $(seq "$runs"); do
    echo "$n ranks, run $run of $runs" >&2
    "$MPIRUN" -n "$n" "$tacit" bench step --compute.emulate "${EMULATE:-bench/jitter.json}" --exchange.overlap false \
      --compute.seed "$run" --rounds "${ROUNDS:-20}" --blocks "${BLOCKS:-3}" "${against[@]}" --json >"$work/$n.$run.json"
  done
done
/usr/bin/env python3 - "$work" "$ranks" "$runs" <<'PY'
import json, math, statistics, sys
def expected_largest(n):
    """The integral of x n phi(x) Phi(x)^(n - 1), by the trapezoidal rule."""
    normal, width = statistics.NormalDist(), 0.01
    return width * sum(x * n * normal.pdf(x) * normal.cdf(x) ** (n - 1) for x in (i * width for i in range(-1200, 1201)))

folder, ranks, runs = sys.argv[1], sys.argv[2].split(), int(sys.argv[3])
print("   N    cv  steps   compute realised   measured +- error   1+cv e_N   diff    these draws   diff   transfer ms   CPU")
for n in ranks:
    results = [json.load(open(f"{folder}/{n}.{run}.json")) for run in range(1, runs + 1)]
    largest = expected_largest(int(n))
    mean = lambda values: sum(values) / len(values)
    for i in range(1, len(results[0]["settings"])):
        cv = results[0]["settings"][i]["configuration"]["compute.cv"]
        steady = [r["settings"][0]["seconds"] for r in results]
        jitter = [r["settings"][i]["seconds"] for r in results]
        compute = results[0]["compute"]["forward_s"] + results[0]["compute"]["backward_s"]
        transfer = mean([s["step"]["median"] - s["compute"]["asked_mean"] for s in steady])
        measured = (mean([s["step"]["mean"] for s in jitter]) - transfer) / compute
        error = math.sqrt(sum(s["step"]["standard_error"] ** 2 for s in jitter)) / len(jitter) / compute
        drawn = mean([s["compute"]["asked_slowest_mean"] for s in jitter]) / compute
        expected = 1 + cv * largest
        realised = mean([s["compute"]["mean"] / s["compute"]["asked_mean"] - 1 for s in jitter])
        cv_error = mean([s["compute"]["cv"] / s["compute"]["asked_cv"] - 1 for s in jitter])
        cpu = mean([r["settings"][i]["cpu_percent"] for r in results])
        steps = sum(s["step"]["count"] for s in jitter)
        print(f"{n:>4} {cv:5.2f} {steps:6d}   {100 * realised:+5.2f} % cv {100 * cv_error:+5.1f} %"
              f"   {measured:6.4f} +- {error:.4f}   {expected:8.4f} {100 * (measured / expected - 1):+5.2f} %"
              f"   {drawn:8.4f} {100 * (measured / drawn - 1):+6.2f} %   {1e3 * transfer:8.3f}      {cpu:4.0f} %")
PY

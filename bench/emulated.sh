#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How true emulated accelerators are, and what they cost: 16 ranks on the cores of this machine, without any exchange.
#
#   bench/emulated.sh [RANKS]      environment: PROGRAM, STEPS (400), CV (0.1), GRADIENTS (transformer-base)
#
# First small gradients at 100, 250 and 400 ms per step, then a real network at 400 ms (4 bytes x parameters x RANKS of
# memory), with its gradients and with nobody who takes them, last all ranks waiting for each other after each step.
# Wanted: mean within 0.5 % and cv within 5 % of what was drawn, less than 5 % of the processor, and the slowest rank
# within 3 % of 1 + cv e_N. Takes about STEPS x 1.6 s. Needs the tests to be built (TACIT_TESTS=ON).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
program=${PROGRAM:-build/release/mpi/mpi_emulated} ranks=${1:-16} steps=${STEPS:-400} cv=${CV:-0.1}
network=${GRADIENTS:-transformer-base} tacit=${TACIT:-build/release/bin/tacit}
measure() { # ranks steps mode profile scale
    "$MPIRUN" -n "$1" "$program" "$2" "$3" --compute.emulate "$4" --compute.scale "$5" --compute.cv "$cv"
    echo
}
for scale in 1 2.5 4; do measure "$ranks" "$steps" free bench/jitter.json "$scale"; done
total_ms=$("$tacit" info profiles --json | /usr/bin/env python3 -c '
import json, sys
p = {p["name"]: p for p in json.load(sys.stdin)}[sys.argv[1]]
print(3e3 * p["forward_flops"] * p["batch_samples"] / p["rate_flops_per_s"])' "$network")
echo "gradients of $network:"
scale=$(/usr/bin/env python3 -c "print(400 / $total_ms)")
for mode in free mute; do measure "$ranks" "$((steps / 4))" "$mode" "$network" "$scale"; done
measure "$ranks" "$steps" barrier bench/jitter.json 1
measure "$((ranks / 2))" "$steps" barrier bench/jitter.json 1

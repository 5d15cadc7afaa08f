#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A random campaign of faults against whole runs, a few at a time: kills, freezes and signals of workers, watchers and
# launchers, in every phase and with every strategy. The seed is printed; equal seeds draw equal injections. The last table
# counts per phase and action what must be zero; each offender comes with the command that repeats it.
# Over tcp `tacit --ranks` starts the ranks, or torchrun's variables do; where there can be emulated hosts some are cut off.
# Usage: tests/campaign.sh [COUNT [SEED[:FIRST]]] [--engine mpi|tcp]
set -uo pipefail
cd "$(dirname "$0")/.."
export OMPI_MCA_odls_base_sigkill_timeout=2 # mpirun waits twice as long after every failure
. scripts/mpi-environment.sh
. tests/check.sh
[ -n "$(lacks_for_cluster)" ] || export CAMPAIGN_CUTS=1
export TACIT=${TACIT:-$PWD/build/release/bin/tacit}
exec python3 tests/campaign.py "$@"

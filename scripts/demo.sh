#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh machine to a sample of text: installs what is missing, builds, trains a small GPT on four MPI ranks with
# this repository's own sources as text, and lets it write. Under five minutes on two cores.
# Usage: scripts/demo.sh [--section.key VALUE ...]   (extra configuration, e.g. --data.train my.txt)
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-dependencies.sh build
. scripts/mpi-environment.sh

echo "building (build/release) ..."
mkdir -p build
quietly() { "$@" >build/demo.log 2>&1 || { cat build/demo.log; exit 1; }; }
quietly cmake --preset release -DTACIT_TESTS=OFF
quietly cmake --build build/release
tacit=build/release/bin/tacit

run=run-demo
rm -rf "$run"
echo "\$ mpirun -n 4 $tacit train examples/demo.yaml --run.dir $run $*"
"$MPIRUN" -n 4 "$tacit" train examples/demo.yaml --run.dir "$run" "$@"
echo
echo "\$ $tacit sample $run --prompt 'static tacit_status ' --tokens 400"
"$tacit" sample "$run" --prompt 'static tacit_status ' --tokens 400 --temperature 0.7
echo
echo "metrics, TensorBoard events and checkpoints: $run"
echo "go on with: mpirun -n 2 $tacit train examples/demo.yaml --run.dir $run --train.steps 2000 --resume"

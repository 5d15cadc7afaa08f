#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package: its table against the header, Parallel on one rank and on several, what it refuses, and ranks that fail.
# $TACIT_PYTHON: an interpreter that has PyTorch (default python3). $TACIT_LIBRARY: libtacit.so (default the release build's).
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
. scripts/mpi-environment.sh
export TACIT_LIBRARY=${TACIT_LIBRARY:-$PWD/build/release/lib/libtacit.so} PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
python=$(command -v "${TACIT_PYTHON:-python3}") || { echo "$0: there is no ${TACIT_PYTHON:-python3}" >&2; exit 2; }
[ -f "$TACIT_LIBRARY" ] || { echo "$0: there is no $TACIT_LIBRARY; cmake --preset release && cmake --build --preset release makes it" >&2; exit 2; }

check "the table follows the header" "$python" scripts/make_python_table.py --check
check "the table is what a C compiler finds" "$python" python/tests/test_table.py
check "tables of results" "$python" python/tests/test_result_tables.py
if ! "$python" -c 'import torch' 2>/dev/null; then
  skip "tacit.torch" "$python has no PyTorch; TACIT_PYTHON names one that has"
  finish_checks; exit
fi

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
torchrun() { "$python" -m torch.distributed.run --nproc-per-node "$1" --master-port $((20000 + $$ % 10000 + 10 * $1 + $2)) "${@:3}"; }
forked() { "$python" python/tests/ranks.py "$@"; } # as under torchrun, but torch is imported once
states() { forked "$1" python/tests/ranks_state.py "$work"; }
doctor() { torchrun 2 3 -m tacit doctor | grep "2 have met" && "$python" -m tacit info codecs | grep "int4"; }
mpi_ranks() { MASTER_PORT=$((31000 + $$ % 1000)) "$MPIRUN" -n "$1" "$python" python/tests/ranks_parallel.py; }
beside "Parallel on one rank" "$python" -W ignore python/tests/test_parallel_alone.py
beside "calls and imports of the wrapper" "$python" -W ignore python/tests/test_costs.py
beside "where ranks meet" "$python" -W ignore python/tests/test_ranks.py
beside "what is refused" "$python" -W ignore python/tests/test_refused.py
beside "ranks that fail" "$python" -W ignore python/tests/test_faults.py
beside "Parallel on 2 ranks of torchrun" torchrun 2 0 python/tests/ranks_parallel.py
for n in 3 5; do beside "Parallel on $n ranks" forked $n python/tests/ranks_parallel.py; done
for n in 1 2 5; do beside "steps as scripts write them on $n ranks" forked $n python/tests/ranks_steps.py; done
for n in 1 3; do beside "checkpoints of other models on $n ranks" forked $n python/tests/ranks_checkpoints.py; done
for n in 2 3; do beside "numpy on $n ranks" forked $n python/tests/ranks_numpy.py; done
for n in 4 8; do beside "bytes that leave 4 hosts of $((n / 4))" forked $n python/tests/ranks_bytes.py; done
beside "python -m tacit" doctor
together
for n in 3 2; do check "states, shard and metrics on $n ranks" states $n; done
if [ -n "$MPIRUN" ]; then
  check "Parallel on 2 ranks of mpirun" mpi_ranks 2
else
  skip "Parallel on ranks of mpirun" "mpirun is not installed"
fi
finish_checks

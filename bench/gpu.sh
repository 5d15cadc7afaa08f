#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tacit.torch on a GPU of NVIDIA's, in ten minutes: builds and installs the package, compares bits and gradients with those of
# the CPU and of DDP, and measures copies, the share of them that is hidden, and steps.
#
#   bench/gpu.sh [--python PYTHON] [--ranks N] [--json FILE] [--here] [--tests]
#
# --python: one whose PyTorch knows CUDA (default python3); the package goes into an environment of its own that sees it.
# --ranks: processes, which share the GPUs of this host (default 2). --here: uses python/ and the library TACIT_LIBRARY, or the
# release build's, in place of installing. --tests: afterwards the tests of python/tests, too, with their tensors on the GPU, as
# many at a time as half of the cores. Exit status 3: no GPU, or a PyTorch without CUDA; 1: a check has failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

python=python3 ranks=2 json="" here="" tests=""
misuse() { echo "gpu.sh: $1; see bench/gpu.sh --help" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --python | --ranks | --json) [ $# -ge 2 ] || misuse "$1 needs a value"; declare "${1#--}=$2"; shift 2 ;;
    --here) here=yes; shift ;;
    --tests) tests=yes; shift ;;
    --help) sed -n '3,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) misuse "unknown option $1" ;;
  esac
done
[[ $ranks =~ ^[1-9][0-9]*$ ]] || misuse "--ranks: \"$ranks\" is not a whole number above 0"
python=$(command -v "$python") || misuse "there is no such Python"
[ -z "$json" ] || json=$(realpath "$json")

"$python" -c 'import torch' 2>/dev/null || { echo "gpu.sh: $python has no PyTorch: pip install torch, or --python PYTHON" >&2; exit 3; }
reason=$("$python" -c '
import torch
if torch.version.cuda is None: print(f"torch {torch.__version__} is built without CUDA: pip install torch from an index for CUDA, or --python PYTHON")
elif not torch.cuda.is_available(): print("torch finds no GPU: nvidia-smi says what the driver finds")')
[ -z "$reason" ] || { echo "gpu.sh: nothing was run: $reason" >&2; exit 3; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "$here" ]; then
  export PYTHONPATH=$PWD/python TACIT_LIBRARY=${TACIT_LIBRARY:-$PWD/build/release/lib/libtacit.so}
else
  "$python" -m venv --system-site-packages "$work/venv" && timeout 300 "$work/venv/bin/python" -m pip install --quiet . ||
    { echo "gpu.sh: the package cannot be installed; build it by hand, and use --here" >&2; exit 1; }
  python=$work/venv/bin/python
  unset PYTHONPATH TACIT_LIBRARY
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
timeout 270 "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" bench/gpu.py ${json:+--json "$json"}
status=$?
[ -n "$tests" ] || exit "$status"

# list_tests: number, ranks, script and name of each.
list_tests() {
  local entry script ranks class
  for entry in ranks_parallel:2:Ranks. ranks_steps:2:Steps. ranks_state:3:States. test_parallel_alone:1:Alone. test_ranks:1:Interface. test_refused:1:Refused. test_hook:2: test_fsdp:2:; do
    IFS=: read -r script ranks class <<<"$entry"
    sed -n "s/^ *def \(test_[a-z0-9_]*\)(.*/$ranks $script $class\1/p" "python/tests/$script.py"
  done | sed -E 's/(test_hook|test_fsdp) test_/\1 /' | nl -w1 -s' '
}

# run_test NUMBER RANKS SCRIPT NAME: those of states have a folder of their own.
run_test() {
  timeout -k 2 120 "$python" -m torch.distributed.run --nproc-per-node "$2" --master-port $((20000 + 10 * $1)) \
    python/tests/on_gpu.py "python/tests/$3.py" "$4" $([ "$3" != ranks_state ] || mktemp -d -p "$work") >"$work/$3.$4" 2>&1 &&
    echo "ok    $3 $4" || { echo "FAIL  $3 $4"; tail -20 "$work/$3.$4"; }
}

export python work PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore OMP_NUM_THREADS=1
export -f run_test
list_tests >"$work/tests"
xargs -P $(($(nproc) / 2 + 1)) -L 1 bash -c 'run_test "$@"' _ <"$work/tests" | tee "$work/summary"
[ "$(grep -c ^ok "$work/summary")" -eq "$(wc -l <"$work/tests")" ] || exit 1
exit "$status"

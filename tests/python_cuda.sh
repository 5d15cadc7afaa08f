#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tacit.torch on a GPU that there is not: a driver over plain memory whose streams are late (python/tests/fake_cuda.c). The
# bits are those of the CPU; each wait that is left out is found; errors of the driver end all ranks. bench/gpu.sh is for a real one.
# TACIT_PYTHON names a Python with PyTorch, else python3; TACIT_LIBRARY a libtacit.so, else the release build's.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
python=${TACIT_PYTHON:-python3}
export TACIT_LIBRARY=${TACIT_LIBRARY:-$PWD/build/release/lib/libtacit.so}
export PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore TORCH_CPP_LOG_LEVEL=ERROR

lacks() {
  [ -f "$TACIT_LIBRARY" ] || { echo "there is no library $TACIT_LIBRARY"; return; }
  command -v "${CC:-cc}" >/dev/null || { echo "there is no compiler ${CC:-cc}"; return; }
  "$python" -c 'import torch.distributed' 2>/dev/null || echo "$python has no PyTorch; TACIT_PYTHON names one that has"
}
reason=$(lacks)
if [ -n "$reason" ]; then
  skip "tensors on a GPU" "$reason"
  finish_checks; exit
fi
cuda() { timeout 400 "$python" python/tests/test_cuda.py "$@"; }
for n in 1 2 3; do check "a GPU has the bits of the CPU on $n ranks" cuda ranks $n; done
check "a GPU has the bits of the CPU on 5 ranks" cuda ranks 5 gradients auto replicas shard averages hook fsdp # what depends on ranks
# Each kind has ranks of its own, forked from one process that has imported PyTorch.
check "with every wait the bits are right, and without one of them they are not" cuda failures none none_inward none_outward \
  copy_after_writes copy_after_reads kernels_after_sums ready_after_copy back_after_sum parameters_after_copy places_after_sums \
  rewrite_after_copy free_after_copies
check "errors of the driver end all ranks" cuda failures dp gossip shard hook
check "a GPU that hangs is named" cuda failures hang
check "what is refused" cuda failures refused
finish_checks

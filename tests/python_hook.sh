#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tacit.torch.hook and tacit.torch.fsdp under torchrun, against PyTorch's own DistributedDataParallel and FSDP2 over gloo.
# TACIT_PYTHON names a Python with PyTorch, else python3; TACIT_LIBRARY a libtacit.so, else the release build's.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
python=${TACIT_PYTHON:-python3}
export TACIT_LIBRARY=${TACIT_LIBRARY:-$PWD/build/release/lib/libtacit.so}
export PYTHONPATH=$PWD/python OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore TORCH_CPP_LOG_LEVEL=ERROR

lacks() {
  [ -f "$TACIT_LIBRARY" ] || { echo "there is no library $TACIT_LIBRARY"; return; }
  "$python" -c 'import torch.distributed' 2>/dev/null || echo "$python has no PyTorch; TACIT_PYTHON names one that has"
}
reason=$(lacks)
if [ -n "$reason" ]; then
  skip "the hook and FSDP2" "$reason"
  finish_checks; exit
fi

run() { timeout 120 "$python" -m torch.distributed.run --standalone --nproc-per-node "$1" "${@:2}"; }
hook() { timeout 120 "$python" python/tests/test_hook.py "$@"; }
fsdp() { timeout 120 "$python" python/tests/test_fsdp.py "$@"; }

check "a hook on 2 ranks of torchrun" run 2 python/tests/test_hook.py
check "a hook alone" hook ranks 1 gradients_are_those_of_ddp numbers_that_are_not_finite refusals
check "a hook on 3 ranks" hook ranks 3
check "a hook on 5 ranks" hook ranks 5 accumulation nothing_is_lost part_of_the_ranks
check "a rank that dies, freezes, raises or leaves is named, and all may leave" hook failures kill stop first raise leave interrupt end all
if "$python" -c 'from torch.distributed.fsdp import FSDPModule as f; f.set_custom_reduce_scatter' 2>/dev/null; then
  check "FSDP2 on 2 ranks of torchrun" run 2 python/tests/test_fsdp.py
  check "FSDP2 on 3 ranks" fsdp ranks 3 gradients_are_those_of_fsdp parameters_arrive_to_the_bit accumulation_and_factors residuals
  check "FSDP2 on a mesh" fsdp ranks 4 models_and_meshes
  check "a rank of FSDP2 that dies is named" fsdp failures kill
else
  skip "FSDP2" "this PyTorch has no set_custom_reduce_scatter: torch 2.9 has"
fi
finish_checks

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The examples for PyTorch: each trains for three steps on two ranks under torchrun, one under mpirun and one alone; and all methods.
# $TACIT_PYTHON is a Python that has PyTorch and finds tacit (default: python3); without it everything is skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
. scripts/mpi-environment.sh
export TACIT_LIBRARY=${TACIT_LIBRARY:-$PWD/build/release/lib/libtacit.so} PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
python=$(command -v "${TACIT_PYTHON:-python3}") # the whole path: mpirun has a PATH of its own
if ! "$python" -c 'import torch' 2>/dev/null; then
  skip "examples for PyTorch" "${TACIT_PYTHON:-python3} has no PyTorch; TACIT_PYTHON names one that has"
  finish_checks; exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

torchrun() { timeout 120 "$python" -m torch.distributed.run --standalone --nproc-per-node "${ranks:-2}" "examples/pytorch/$1.py" "${@:2}"; }

# trained NAME RANKS COMMAND...: it appends one line of results, of as many ranks, with finite losses, and bytes that went out where
# tacit sends them.
trained() {
  local file=$work/$1.json ranks=$2
  "${@:3}" --steps 3 --batch 2 --evaluate 2 --json "$file" || return 1
  "$python" - "$file" "$ranks" <<'PY'
import json, math, sys
lines = open(sys.argv[1]).read().splitlines()
assert len(lines) == 1, lines
found = json.loads(lines[0])
assert found["ranks"] == int(sys.argv[2]), found
assert len(found["steps_s"]) == 3, found
(step, seconds, loss), = found["curve"]
assert step == 2 and 0 < seconds and math.isfinite(loss), found
assert math.isfinite(found["loss"]) and math.isfinite(found["held_loss"]), found
if "--with" not in found["words"] or "tacit" in found["words"]:
    assert found["counters"]["steps"] == 3 and (found["counters"]["bytes_sent"] > 0) == (found["ranks"] > 1), found
PY
}

# The steps in which auto tries its number formats take a half of what dense sums of three ranks send, 4/3 of the gradients a rank.
hooked() {
  ranks=3 torchrun resnet --with ddp --hook codec=auto --steps 16 --batch 2 --json "$work/hook.json" && "$python" - "$work/hook.json" <<'PY'
import json, sys
found = json.load(open(sys.argv[1]))
share = found["counters"]["bytes_sent"] / (found["counters"]["steps"] * 4 * found["parameters"] * 4 / 3)
print(f"{share:.2f} of the bytes of dense sums")
assert found["ranks"] == 3 and found["counters"]["steps"] == 16 and 0.1 < share < 0.8
PY
}

# Parameters and tensors of the papers' models; torchvision and GPT-2's release have the same.
sizes() {
  PYTHONPATH=$PYTHONPATH:examples/pytorch "$python" - <<'PY'
import torch
import gpt, lstm, resnet, transformer, vgg
with torch.device("meta"):
    for build, wanted in ((gpt.GPT, (124_439_808, 148)), (resnet.ResNet, (44_549_160, 314)), (vgg.VGG, (138_357_544, 32)),
                          (lstm.Language, (66_034_000, 11)), (transformer.Transformer, (63_084_544, 185))):
        tensors = list(build(**globals()[build.__module__].SIZES["paper"]).parameters())
        found = sum(p.numel() for p in tensors), len(tensors)
        assert found == wanted, (build, found, wanted)
PY
}

beside "gpt, gossip" trained gpt 2 torchrun gpt --with tacit --strategy gossip --topology aer
beside "resnet, with running means" trained resnet 2 torchrun resnet --with tacit
beside "vgg, auto" trained vgg 2 torchrun vgg --with tacit --codec auto
[ -z "$MPIRUN" ] || beside "lstm under mpirun" trained lstm 2 timeout 120 "$MPIRUN" -n 2 "$python" examples/pytorch/lstm.py --with tacit --codec auto
beside "transformer, top-k" trained transformer 2 torchrun transformer --with tacit --codec topk --factor 20 --set values=int4
beside "lstm under torchrun, a replayed accelerator" torchrun lstm --with tacit --emulate 30 --steps 3
beside "resnet with DDP and a hook" hooked
beside "gpt with FSDP2 and a hook" torchrun gpt --with fsdp --hook codec=int4 --steps 3 --batch 2
for method in ddp-fp16 ddp-powersgd; do beside "lstm with $method" trained $method 2 torchrun lstm --with $method; done
beside "gpt with FSDP2" trained fsdp 2 torchrun gpt --with fsdp
if decent=$("$python" -c 'import decent_dp' 2>&1); then
  beside "lstm with decent-dp" trained decent 2 torchrun lstm --with decent-dp
else
  skip "lstm with decent-dp" "${decent##*$'\n'}"
fi
beside "sizes of the papers' models" sizes
beside "gpt alone" trained alone 1 "$python" examples/pytorch/gpt.py
together
if [ -n "$MPIRUN" ]; then
  expect "a baseline under mpirun says what to type" 1 'needs torchrun: torchrun --nproc-per-node 2' \
    "$MPIRUN" -n 2 "$python" examples/pytorch/gpt.py --with ddp
else
  skip "examples under mpirun" "Open MPI's mpirun is not installed"
fi
expect "a flag of another method" 2 'only --with tacit takes it' "$python" examples/pytorch/gpt.py --with ddp --codec auto
expect "a setting without a value" 2 "--set: 'nix': KEY=VALUE is expected" "$python" examples/pytorch/lstm.py --set nix
expect "a hook without a value" 2 "--hook: 'codec': KEY=VALUE is expected" "$python" examples/pytorch/lstm.py --with ddp --hook codec
expect "no steps" 2 "argument --steps: '0': an integer of 1 or more is expected" "$python" examples/pytorch/lstm.py --steps 0
expect "no samples" 2 "argument --batch: '0': an integer of 1 or more is expected" "$python" examples/pytorch/lstm.py --batch 0
expect "a GPU that is not there" 1 'torch finds no GPU' env CUDA_VISIBLE_DEVICES= "$python" examples/pytorch/gpt.py --device cuda
expect "a measurement that needs a GPU" 3 'gpu.sh: nothing was run: torch .*(no GPU|without CUDA)' \
  env CUDA_VISIBLE_DEVICES= bench/gpu.sh --python "$python"
expect "a text that is too short" 1 '--data FILE wants' "$python" examples/pytorch/gpt.py --data .gitignore
finish_checks

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a test of this folder with its tensors on a GPU: torchrun --nproc-per-node N python/tests/on_gpu.py SCRIPT [WORD...].

What torch makes there is made on the GPU, which ranks share in turns; its sums are those that have the same bits each time.
TACIT_DEVICE=cpu tries the script itself."""
import os
import runpy
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402

device = torch.device(os.environ.get("TACIT_DEVICE", "cuda"))
if device.type == "cuda":
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
torch.use_deterministic_algorithms(True, warn_only=True)
torch.set_default_device(device)
torch.Generator = type("Generator", (torch.Generator,), {"__new__": lambda kind, device=device: super(kind, kind).__new__(kind, device)})
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")

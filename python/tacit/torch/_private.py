# SPDX-License-Identifier: Apache-2.0
"""What is private, or undocumented, in PyTorch. Tested with torch 2.1, 2.4, 2.9 and 2.13; nothing else in this package
uses an underscore of torch."""
import dataclasses
import os

import torch
import torch.distributed as dist
import torch.utils._pytree


def call_after_backward(function):
    """Calls `function` at the end of the backward pass that runs now. Only inside a hook of autograd."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def is_initialized():
    return dist.is_available() and dist.is_initialized()


def default_store():
    """The store of torch.distributed, else that of torchrun's agent, else None."""
    if is_initialized():
        return dist.distributed_c10d._get_default_store()
    if dist.is_available() and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    return None


def list_tensors(outputs):
    """The tensors in what a module returns: in tuples, lists, dictionaries and dataclasses."""
    found = []
    for leaf in torch.utils._pytree.tree_flatten(outputs)[0]:
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            found += list_tensors(list(vars(leaf).values()))
    return found

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
    leaves = torch.utils._pytree.tree_leaves(outputs)
    if any(dataclasses.is_dataclass(leaf) for leaf in leaves):
        leaves = [x for leaf in leaves for x in (vars(leaf).values() if dataclasses.is_dataclass(leaf) else (leaf,))]
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

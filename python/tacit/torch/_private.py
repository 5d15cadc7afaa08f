# SPDX-License-Identifier: Apache-2.0
"""Uses what is private, or undocumented, in PyTorch. Tested with torch 2.1, 2.4, 2.9 and 2.13; nothing else in this package
uses an underscore of torch."""
import dataclasses
import operator
import os

import torch
import torch.distributed as dist
import torch.utils._pytree

from .._library import UnsupportedError

Work = dist.distributed_c10d.Work if dist.is_available() else object


def call_after_backward(function):
    """Calls `function` at the end of the backward pass that runs now. Only inside a hook of autograd."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def try_after_backward(function):
    """Does the same where a backward pass runs; else, as in DDP's join(), nothing."""
    try:
        call_after_backward(function)
    except RuntimeError:
        pass


def shares_memory(tensor):
    """Returns whether another tensor may lie in the same memory, such as the gradient of an activation that a view was added
    to: True where torch cannot tell."""
    count, storage = getattr(torch._C, "_storage_Use_Count", None), tensor.untyped_storage()
    return count is None or count(storage._cdata) > 2  # the tensor and `storage`


def list_versions(tensors):
    """Returns how often PyTorch has changed each."""
    return [t._version for t in tensors]


def is_in_backward():
    """Returns whether this thread is inside a backward pass."""
    return torch._C._current_graph_task_id() != -1


def list_persistent(module):
    """Returns {name: buffer} of those that state_dict() has."""
    left_out = {f"{prefix}.{name}".lstrip(".") for prefix, m in module.named_modules() for name in m._non_persistent_buffers_set}
    return {name: b for name, b in module.named_buffers() if name not in left_out}


def is_initialized():
    return dist.is_available() and dist.is_initialized()


def default_store():
    """Returns the store of torch.distributed, else that of torchrun's agent, else None."""
    if is_initialized():
        return dist.distributed_c10d._get_default_store()
    if dist.is_available() and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    return None


def store_of(group):
    """Returns the store in which the ranks of a process group have met."""
    return dist.distributed_c10d._world.pg_map[group][1]


def list_tensors(outputs):
    """Returns the tensors in what a module returns: in tuples, lists, dictionaries and dataclasses."""
    found = []
    for leaf in torch.utils._pytree.tree_flatten(outputs)[0]:
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            found += list_tensors(list(vars(leaf).values()))
    return found


def list_left_out(ddp):
    """Returns the parameters that DDP does not train though they want a gradient. It looks for those of the model itself, as
    opposed to its parts, with a dot in front."""
    return {name for name, _ in ddp.module.named_parameters()
            if (name if "." in name else "." + name) in ddp.parameters_to_ignore}


class Members:
    """Remembers which modules and parameters a module has, and which of them are frozen. Walking through named_parameters()
    in every step would take 1 us per parameter."""

    def __init__(self, module):
        self.modules, self.parameters = list(module.modules()), list(module.parameters())  # held, so that no id comes twice
        self.tables = [table for m in self.modules for table in (m._modules, m._parameters)]
        self.before = [list(table.values()) for table in self.tables]
        self.frozen = [p for p in self.parameters if not p.requires_grad]

    def are_unchanged(self):
        """Looks at what tables hold, not at the members, which are not in the cache."""
        same = all(len(table) == len(before) and all(map(operator.is_, table.values(), before))
                   for table, before in zip(self.tables, self.before))
        return same and not any(p.requires_grad for p in self.frozen)


def list_fsdp_modules(model):
    """Returns the modules of a model that fully_shard() has made, the outer ones first."""
    try:
        from torch.distributed.fsdp import FSDPModule  # here, for it takes most of a second
    except ImportError:
        FSDPModule = None
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        raise UnsupportedError(f"FSDP2 with other ways to communicate came with torch 2.9, and this is {torch.__version__}; "
                               "type: pip install 'torch>=2.9'")
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def restore_fsdp(module):
    """Puts FSDP's own transfers in the place of others."""
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives as own
    module.set_custom_reduce_scatter(own.DefaultReduceScatter())
    module.set_custom_all_gather(own.DefaultAllGather())


def is_sharded(parameter):
    """Returns whether it is a DTensor, as fully_shard() makes them."""
    return hasattr(parameter, "device_mesh")


def factor_of(op, ranks):
    """Returns by what a reduction of torch multiplies a sum; None: it makes no sum."""
    state = op.__getstate__()  # of PREMUL_SUM the only place that tells its factor
    kind, factor = state if isinstance(state, tuple) else (op, None)
    if kind == dist.ReduceOp.PREMUL_SUM:
        return factor if isinstance(factor, float) else None
    return 1.0 if kind == dist.ReduceOp.SUM else 1 / ranks if kind == dist.ReduceOp.AVG else None


def set_unscaling(optimizer, is_ours):
    """Sets how a GradScaler treats the optimizer. True: it calls step() also where it would leave a step out, and leaves
    scaled gradients to unscale(). Returns what held before."""
    before = getattr(optimizer, "_step_supports_amp_scaling", False)
    optimizer._step_supports_amp_scaling = is_ours
    return before


@torch.no_grad()
def unscale(optimizer):
    """In step(): divides gradients by the scale of the GradScaler that has called it, if one has. Returns whether."""
    scale = getattr(optimizer, "grad_scale", None)
    for p in [p for group in optimizer.param_groups for p in group["params"] if scale is not None and p.grad is not None]:
        p.grad.div_(scale.to(p.device))
    if hasattr(optimizer, "found_inf"):
        optimizer.grad_scale = optimizer.found_inf = None
    return scale is not None


def restore_hooks(optimizer):
    """In torch 2.1 torch._dynamo, which a checkpoint imports, too, takes the hooks out of step() of all classes: back into
    it."""
    step, seen = type(optimizer).step, []
    while step is not None:
        seen.append(getattr(step, "__code__", None))
        step = getattr(step, "__wrapped__", None)
    is_old = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 4)
    if is_old and not any(c and c.co_name == "wrapper" and c.co_filename.endswith("optim/optimizer.py") for c in seen):
        type(optimizer).step = torch.optim.Optimizer.profile_hook_step(type(optimizer).step)

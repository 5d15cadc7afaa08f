# SPDX-License-Identifier: Apache-2.0
"""Reads what Parallel() is given: settings follow from it, and some of it is refused before ranks meet."""
import numbers

import torch

from .._library import UnsupportedError, UsageError, expect
from ..comm import Comm
from ..settings import Settings
from . import _private
from .buffers import check_choice
from .parts import check_optimizer, check_owners

# Strategies whose ranks update by their own gradients. Their step begins and ends with the optimizer's.
REPLICAS = ("gossip", "localsgd", "none")

_DEVICE = "tensors stay where the model is"
_UNUSED = "unused parameters need no search"
_BUFFERS = "or write buffers=\"broadcast\""
_BUCKET = "or write exchange__bucket=\"25MiB\""
OF_DDP = {"device_ids": _DEVICE, "output_device": _DEVICE, "find_unused_parameters": _UNUSED, "static_graph": _UNUSED,
          "broadcast_buffers": _BUFFERS, "bucket_cap_mb": _BUCKET}


def check_module(module):
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"a model is expected first, a torch.nn.Module, and this is {name_kind_of(module)}: "
                         "tacit.Parallel(model, optimizer, ...)")
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        raise UsageError("this model is a DistributedDataParallel, which sends gradients, too: wrap its .module")


def has_first_moments(optimizer):
    return not isinstance(optimizer, torch.optim.SGD) or any(group["momentum"] for group in optimizer.param_groups)


def check_momentum(optimizers):
    for optimizer in filter(has_first_moments, optimizers):
        raise UsageError(f"compress.momentum would be a second momentum beside that of {type(optimizer).__name__}: leave it out, or "
                         "take torch.optim.SGD without momentum")


def has_integral(settings):
    """Returns what the condition of gossip.integral says."""
    return ((settings["gossip.order"], settings["gossip.delay"], settings["gossip.tracker"]) == ("awc", "0", "false") and
            settings["gossip.codec"] != "powergossip")


def choose_settings(optimizers, config, words):
    """Reads what a file and words say, over defaults that suit PyTorch: it clips by itself, and models hold all
    parameters. Without first moments gossip's integral has nothing to take away."""
    ours = {"optim.clip": 0}
    settings = Settings(ours, config, **words)
    if float(settings["compress.momentum"]) > 0:
        check_momentum(optimizers)
        ours["optim.beta1"] = 0  # the optimizer is not the library's
        settings = Settings(ours, config, **words)
    if settings["strategy"] == "gossip" and has_integral(settings):
        plain = optimizers and not any(map(has_first_moments, optimizers))
        return Settings({**ours, "gossip.integral": 0}, config, **words) if plain else settings
    if settings["strategy"] != "shard":
        return settings
    settings = Settings({**ours, "strategy": "shard", "shard.stage": 1}, config, **words)
    if settings["shard.stage"] == "3":
        raise UnsupportedError("shard.stage 3 holds parameters in parts, which a model of PyTorch's cannot: stage=1, or "
                               "tacit.fsdp() on a model of FSDP2")
    return settings


def name_kind_of(value):
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def check_words(words):
    """Refuses what others' wrappers take, in words that help."""
    if "optimizer" in words:
        raise UsageError("the optimizer comes without a name: tacit.Parallel(model, optimizer, ...)")
    for word in OF_DDP:
        if word in words:
            raise UsageError(f"{word} is DistributedDataParallel's: leave it out, {OF_DDP[word]}")


def check_optim(settings, words):
    for word in words:
        key = settings.find_key(word)
        if key.startswith("optim.") and key != "optim.clip":
            raise UsageError(f"{word} is for optimizers of the library: leave it out; the update, its learning rate included, is "
                             "that of your optimizer, and of its scheduler")


def check_steps(steps):
    expect(isinstance(steps, numbers.Integral) and 0 <= steps < 2 ** 63, "steps", steps,
           "the number of steps of the whole run, or 0 where it is unknown,")


def check_optimizers(module, optimizers, settings):
    known, strategy = {id(p) for p in module.parameters()}, settings["strategy"]
    if strategy in REPLICAS + ("shard",) and not optimizers:
        raise UsageError(f"strategy {strategy} needs to know when the optimizer makes its step: "
                         "tacit.Parallel(model, optimizer, ...)")
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"an optimizer is expected after the model, and this is {name_kind_of(optimizer)}: make one, such as "
                             "torch.optim.SGD(model.parameters(), lr=0.1), before you wrap the model")
        if strategy == "shard":
            check_optimizer(optimizer)
        if not any(id(p) in known for group in optimizer.param_groups for p in group["params"]):
            raise UsageError(f"{type(optimizer).__name__} updates no parameter of this model: is it another model's, or was "
                             "the model replaced after the optimizer was made?")
    if strategy == "shard":
        check_owners(module, optimizers)


def read_arguments(module, optimizers, config, comm, steps, buffers, words):
    """Returns the settings."""
    check_module(module)
    check_choice(buffers)
    check_words(words)
    settings = choose_settings(optimizers, config, words)
    check_optim(settings, words)
    check_steps(steps)
    check_optimizers(module, optimizers, settings)
    expect(comm is None or isinstance(comm, Comm), "comm", comm, "a tacit.Comm, as of tacit.open_comm(),")
    return settings

# SPDX-License-Identifier: Apache-2.0
"""--emulate: an accelerator that is replayed. Its passes compute nothing: a clock says when each layer is done, and its
gradients, arbitrary values of the real sizes, appear then. A network and its exchange see what they would see beside a
real accelerator, whose host is free while it computes."""
import copy
import ctypes
import time

import torch
from torch.utils.flop_counter import FlopCounterMode


class Layer(torch.autograd.Function):
    """A layer is done at a time since the start of the step, however long the host has been busy with other things."""

    @staticmethod
    def forward(context, x, clock, done, gradients, *parameters):
        context.clock, context.done, context.gradients = clock, done[1], gradients
        clock.sleep_until(done[0])
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        context.clock.sleep_until(context.done)
        return (gradient, None, None, None, *(fill(room, values) for values, room in context.gradients))


def fill(room, values):
    """The values, over and over: a host has no memory for all gradients of the large models a second time. The tensor's
    storage is its own, for a gradient that shares one is copied, into memory that is new in each step."""
    for piece in room.view(-1).split(len(values)):
        piece.copy_(values[:len(piece)])
    memory = torch.frombuffer((ctypes.c_float * room.numel()).from_address(room.data_ptr()), dtype=torch.float32)
    return torch.empty(0).set_(memory.untyped_storage(), 0, room.size())


class StepClock:
    def start(self):
        self.zero = time.perf_counter()

    def sleep_until(self, seconds):
        time.sleep(max(0, self.zero + seconds - time.perf_counter()))


class Accelerator(torch.nn.Module):
    """A model's parameters, with a third of flags.emulate milliseconds for the forward pass, over layers as their
    multiplications are."""

    def __init__(self, model, data, loss_of, flags):
        super().__init__()
        shares = share_of_layers(model, data.draw(2, torch.Generator()), loss_of)
        self.clock, self.layers, before, seen = StepClock(), [], 0, set()
        values = torch.randn(1 << 18, generator=torch.Generator().manual_seed(1)) * 1e-3
        for i, (name, module) in enumerate(model.named_modules()):
            parameters = [p for p in module.parameters(recurse=False) if id(p) not in seen]
            if parameters:
                seen.update(map(id, parameters))
                after = before + shares[name]
                seconds = flags.emulate / 1e3
                done = (seconds * after / 3, seconds * (1 - 2 * before / 3))
                holder = torch.nn.ParameterList(parameters)
                self.add_module(f"{i}", holder)
                self.layers.append((holder, done, [(values, torch.empty_like(p)) for p in parameters]))
                before = after

    def forward(self, _):
        self.clock.start()
        x = torch.zeros(1)
        for holder, done, gradients in self.layers:
            x = Layer.apply(x, self.clock, done, gradients, *holder)
        return x

    @staticmethod
    def loss_of(model, batch):
        return model(batch).sum()


def share_of_layers(model, batch, loss_of):
    """{name: share of the forward pass} of the modules that own parameters, counted without computing."""
    ghost = copy.deepcopy(model).to("meta")
    batch = batch.to("meta") if isinstance(batch, torch.Tensor) else tuple(t.to("meta") for t in batch)
    with FlopCounterMode(display=False) as counter:
        loss_of(ghost, batch)
    found = {key.partition(".")[2]: sum(ops.values()) for key, ops in counter.get_flop_counts().items()}
    own = {name: found.get(name, 0) for name, module in model.named_modules() if list(module.parameters(recurse=False))}
    total = sum(own.values()) or 1
    return {name: flops / total for name, flops in own.items()}


class NoUpdate(torch.optim.Optimizer):
    """The update of a replayed accelerator takes the host no time."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        pass

# SPDX-License-Identifier: Apache-2.0
"""Models and data of the tests of tacit.torch."""
import dataclasses

import torch
from torch import nn


def make(build, seed=1):
    torch.manual_seed(seed)
    return build()


class PartlyFrozen(nn.Module):
    """A head on a body that is not trained, of other types, orders in memory and sizes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last).requires_grad_(False)
        self.short = nn.Parameter(torch.randn(41).bfloat16(), requires_grad=False)
        self.none = nn.Parameter(torch.zeros(0, 3), requires_grad=False)
        self.mask = nn.Parameter(torch.randint(9, (3, 2)), requires_grad=False)
        self.column = nn.Parameter(torch.randn(7, 3)[:, 1], requires_grad=False)  # a view of more
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.conv(x).mean((2, 3)))

    @staticmethod
    def batch(step, samples=8):
        return torch.randn(samples, 3, 6, 6, generator=torch.Generator().manual_seed(4000 + step))


class OddShapes(nn.Module):
    """Shapes that are no multiples of anything, a scalar, five dimensions, no element at all, one parameter under two
    names, one frozen, one unused."""

    def __init__(self):
        super().__init__()
        self.volume = nn.Conv3d(1, 3, (1, 2, 3))  # of (1, 2, 3, 4): (3, 2, 2, 2)
        self.first = nn.Linear(24, 100)
        self.wide = nn.Linear(100, 41)
        self.narrow = nn.Linear(41, 10)
        self.again = nn.Linear(10, 10)
        self.last = nn.Linear(10, 10)
        self.last.weight = self.again.weight
        self.scale = nn.Parameter(torch.tensor(0.9))
        self.nothing = nn.Parameter(torch.zeros(0, 4))
        self.frozen = nn.Parameter(torch.ones(10), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(7))

    def forward(self, x):
        h = self.volume(x).flatten(1)
        h = torch.tanh(self.wide(torch.tanh(self.first(h)))) * self.scale + self.nothing.sum()
        return self.last(torch.tanh(self.again(self.narrow(h)))) * self.frozen

    @staticmethod
    def batch(step, samples=8):
        generator = torch.Generator().manual_seed(1000 + step)
        return torch.randn(samples, 1, 2, 3, 4, generator=generator)


class Net(nn.Module):
    """Two layers, with a block that checkpoints and compilers like."""

    def __init__(self, block=None):
        super().__init__()
        self.first = nn.Linear(12, 33)
        self.block = block or nn.Sequential(nn.Linear(33, 33), nn.Tanh(), nn.Linear(33, 33))
        self.last = nn.Linear(33, 10)

    def forward(self, x):
        return self.last(torch.tanh(self.block(self.first(x))))

    @staticmethod
    def batch(step, samples=8):
        return torch.randn(samples, 12, generator=torch.Generator().manual_seed(2000 + step))


class ConvNet(nn.Module):
    """Batch norm and 1x1 kernels, whose order in memory is ambiguous."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                                    nn.Conv2d(8, 5, 1), nn.ReLU(), nn.Conv2d(5, 1, 3, padding=1))
        self.last = nn.Linear(36, 10)

    def forward(self, x):
        return self.last(self.layers(x).flatten(1))

    @staticmethod
    def batch(step, samples=8):
        return torch.randn(samples, 3, 6, 6, generator=torch.Generator().manual_seed(3000 + step))


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    more: dict


class Structured(Net):
    """Returns a dataclass with a tensor deep in it."""

    def forward(self, x):
        return Result(logits=None, more={"list": [Result(super().forward(x), {})]})


class Named(Net):
    def forward(self, x):
        return {"loss": super().forward(x).square().mean(), "number": 3}


def loss_of(output):
    return output.float().square().mean()


def state_of(optimizer):
    """Tensors of the optimizer's state, in a fixed order."""
    return [value for _, state in sorted(optimizer.state_dict()["state"].items())
            for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)]


def bits(tensor):
    """As integers, so that NaN equals NaN and -0 does not equal 0."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same_bits(a, b):
    return a.dtype == b.dtype and a.size() == b.size() and bool((bits(a) == bits(b)).all())

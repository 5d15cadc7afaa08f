#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tacit.torch.Parallel costs on one rank: microseconds of its hook per tensor, seconds to import and open it, and its
part of a training step of a ResNet-18 with batches of 8. Interleaved runs on one thread of torch. Times are those of the
training thread on the processor, so that other programs matter little, and for the step those of the clock, too.
Usage: PYTHONPATH=python bench/wrapper.py [STEPS]"""
import statistics
import sys
import time

import torch
from torch import nn

began = time.perf_counter()
import tacit.torch as tacit  # noqa: E402

torch.set_num_threads(1)
comm = tacit.default_comm()
print(f"import and open: {time.perf_counter() - began:.3f} s")


class Block(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.side = nn.Sequential()
        if stride > 1:
            self.side = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(self.body(x) + self.side(x))


def resnet18():
    layers, before = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width in (64, 128, 256, 512):
        layers += [Block(before, width, 1 if width == 64 else 2), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Many(nn.Module):
    """As many tensors as possible, and nothing else."""

    def __init__(self, count):
        super().__init__()
        self.parts = nn.ParameterList(torch.ones(1) for _ in range(count))

    def forward(self):
        return sum(p.sum() for p in self.parts)


def pass_of(model, x):
    def run():
        model.zero_grad()
        (model(x) if x is not None else model()).square().mean().backward()
    return run


def step_of(model, optimizer, x):
    def run():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return run


def compare(bare, wrapped, rounds, clock=time.thread_time):
    """Seconds of both by the clock: medians of the faster half of interleaved runs."""
    times = ([], [])
    for i in range(rounds):
        for which in ((0, 1) if i % 2 else (1, 0)):
            start = clock()
            (bare, wrapped)[which]()
            times[which].append(clock() - start)
    return [statistics.median(sorted(t)[:max(1, len(t) // 2)]) for t in times]


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 12
count = 1000
model = tacit.Parallel(Many(count), comm=comm)
bare, wrapped = compare(pass_of(Many(count), None), pass_of(model, None), 60)
print(f"per tensor: {(wrapped - bare) / count * 1e6:.2f} us, with begin and end of {count} tensors")
model.close()

x = torch.randn(8, 3, 224, 224)
torch.manual_seed(1)
plain, module = resnet18(), resnet18()
model = tacit.Parallel(module, comm=comm)
optimizers = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9) for m in (plain, module)]
for name, clock in (("training thread", time.thread_time), ("clock", time.perf_counter), ("all threads", time.process_time)):
    bare, wrapped = compare(step_of(plain, optimizers[0], x), step_of(model, optimizers[1], x), steps, clock)
    print(f"ResNet-18, batch of 8, {name}: {bare * 1e3:.1f} ms alone, {wrapped * 1e3:.1f} ms wrapped: "
          f"{(wrapped / bare - 1) * 100:+.2f} %")
model.close()

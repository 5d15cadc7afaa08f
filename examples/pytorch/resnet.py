#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A residual network learns digits: 26 layers on 32 x 32 pixels, or with --size paper ResNet-101 on 224 x 224, of 44.5 M
parameters.

    torchrun --nproc-per-node 3 examples/pytorch/resnet.py --with ddp --hook codec=auto
"""
from torch import nn
from torch.nn import functional

import run

SIZES = {"small": dict(width=16, blocks=(2, 2, 2, 2), stride=1, classes=10),
         "paper": dict(width=64, blocks=(3, 4, 23, 3), stride=2, classes=1000)}
SIDES = {"small": 32, "paper": 224}


def convolve(before, after, size, stride=1):
    return nn.Sequential(nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after))


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.first = convolve(before, width, 1)
        self.second = convolve(width, width, 3, stride)
        self.third = convolve(width, 4 * width, 1)
        same = stride == 1 and before == 4 * width
        self.shortcut = nn.Identity() if same else convolve(before, 4 * width, 1, stride)

    def forward(self, x):
        y = functional.relu(self.second(functional.relu(self.first(x))))
        return functional.relu(self.third(y) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width, blocks, stride, classes):
        super().__init__()
        self.stem = convolve(3, width, 7 if stride == 2 else 3, stride)
        self.pool = nn.MaxPool2d(3, 2, 1) if stride == 2 else nn.Identity()
        parts, before = [], width
        for stage, count in enumerate(blocks):
            for i in range(count):
                parts.append(Bottleneck(before, width << stage, 2 if stage > 0 and i == 0 else 1))
                before = 4 * (width << stage)
        self.blocks, self.head = nn.Sequential(*parts), nn.Linear(before, classes)

    def forward(self, images):
        x = self.pool(functional.relu(self.stem(images)))
        return self.head(self.blocks(x).mean((2, 3)))


def loss_of(model, batch):
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


if __name__ == "__main__":
    flags = run.read_flags(__doc__, SIZES, batch=16, lr=1e-3)
    run.train(flags, ResNet(**SIZES[flags.size]), run.Images(flags, SIDES[flags.size]), loss_of)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""VGG-16 learns digits: an eighth of its width on 32 x 32 pixels, or with --size paper its 138 M parameters on 224 x 224.

    lab/cluster run --torchrun -- examples/pytorch/vgg.py --with tacit --codec auto
"""
from torch import nn
from torch.nn import functional

import run

SIZES = {"small": dict(width=8, hidden=512, side=32, classes=10),
         "paper": dict(width=64, hidden=4096, side=224, classes=1000)}
STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # widths, in the first stage's, and convolutions


class VGG(nn.Module):
    def __init__(self, width, hidden, side, classes):
        super().__init__()
        parts, before = [], 3
        for factor, count in STAGES:
            for _ in range(count):
                parts += [nn.Conv2d(before, factor * width, 3, padding=1), nn.ReLU(inplace=True)]
                before = factor * width
            parts.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*parts)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(before * (side // 32) ** 2, hidden), nn.ReLU(), nn.Dropout(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, classes))
        for part in self.features:
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out")
                nn.init.zeros_(part.bias)

    def forward(self, images):
        return self.head(self.features(images))


def loss_of(model, batch):
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


if __name__ == "__main__":
    flags = run.read_flags(__doc__, SIZES, batch=32, lr=1e-3)
    size = SIZES[flags.size]
    run.train(flags, VGG(**size), run.Images(flags, size["side"]), loss_of)

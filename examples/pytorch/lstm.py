#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An LSTM learns the bytes of a text: two layers of 200, or with --size paper the two of 1500 that learnt the Penn Treebank,
with the room for its 10 000 words: 66 M parameters.

    mpirun -n 4 python3 examples/pytorch/lstm.py --with tacit --codec auto
"""
import torch
from torch import nn
from torch.nn import functional

import run

SIZES = {"small": dict(channels=200, tokens=256, dropout=0.0),
         "paper": dict(channels=1500, tokens=10000, dropout=0.65)}


class Language(nn.Module):
    def __init__(self, channels, tokens, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.tokens = nn.Embedding(tokens, channels)
        self.lstm = nn.LSTM(channels, channels, num_layers=2, dropout=dropout, batch_first=True)
        self.head = nn.Linear(channels, tokens)
        for p in self.parameters():
            nn.init.uniform_(p, -0.1, 0.1)

    def forward(self, tokens):
        x, _ = self.lstm(self.drop(self.tokens(tokens)))
        return self.head(self.drop(x))


def loss_of(model, text):
    return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


if __name__ == "__main__":
    flags = run.read_flags(__doc__, SIZES, batch=20, lr=2e-3)
    run.train(flags, Language(**SIZES[flags.size]), run.Text(flags, length=35), loss_of)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An encoder and a decoder: from a piece of a text to the next one. Two layers of 128, or with --size paper the base model
of "Attention is all you need", with the room for its 37 000 tokens: 63 M parameters.

    torchrun --nproc-per-node 2 examples/pytorch/transformer.py --with tacit --codec topk --factor 20 --set values=int4
"""
import math

import torch
from torch import nn
from torch.nn import functional

import run

SIZES = {"small": dict(layers=2, channels=128, heads=4, tokens=256),
         "paper": dict(layers=6, channels=512, heads=8, tokens=37000)}
LENGTH = 32  # of either piece


class Transformer(nn.Module):
    def __init__(self, layers, channels, heads, tokens):
        super().__init__()
        self.tokens = nn.Embedding(tokens, channels)
        self.core = nn.Transformer(channels, heads, layers, layers, 4 * channels, dropout=0.1, batch_first=True)
        self.head = nn.Linear(channels, tokens, bias=False)
        nn.init.normal_(self.tokens.weight, std=channels ** -0.5)
        self.head.weight = self.tokens.weight
        angles = torch.arange(LENGTH)[:, None] * torch.exp(torch.arange(0, channels, 2) * (-math.log(1e4) / channels))
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1), persistent=False)

    def embed(self, tokens):
        return self.tokens(tokens) * math.sqrt(self.tokens.embedding_dim) + self.positions[:tokens.size(1)]

    def forward(self, source, target):
        later = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=target.device)
        return self.head(self.core(self.embed(source), self.embed(target), tgt_mask=later, tgt_is_causal=True))


def loss_of(model, text):
    source, begun, wanted = text[:, :LENGTH], text[:, LENGTH - 1:-2], text[:, LENGTH:-1]
    return functional.cross_entropy(model(source, begun).flatten(0, 1), wanted.flatten())


if __name__ == "__main__":
    flags = run.read_flags(__doc__, SIZES, batch=16, lr=1e-3)
    run.train(flags, Transformer(**SIZES[flags.size]), run.Text(flags, 2 * LENGTH), loss_of)

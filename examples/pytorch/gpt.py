#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT learns the bytes of a text: 3.3 M parameters, or with --size paper the 124 M of GPT-2.

    torchrun --nproc-per-node 4 examples/pytorch/gpt.py --with tacit --strategy gossip --topology aer
"""
import torch
from torch import nn
from torch.nn import functional

import run

SIZES = {"small": dict(layers=4, heads=4, channels=256, context=128, tokens=256),
         "paper": dict(layers=12, heads=12, channels=768, context=1024, tokens=50257)}


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x):
        batch, length, channels = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, channels))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, layers, heads, channels, context, tokens):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, channels), nn.Embedding(context, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, tokens, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[:tokens.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, text):
    return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


if __name__ == "__main__":
    flags = run.read_flags(__doc__, SIZES, batch=8, lr=1e-3)
    size = SIZES[flags.size]
    run.train(flags, GPT(**size), run.Text(flags, size["context"]), loss_of)

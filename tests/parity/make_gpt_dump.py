#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpt_nano.safetensors: parameters, tokens, loss and gradients of a small GPT-2, computed by PyTorch.

    python3 tests/parity/make_gpt_dump.py tests/parity/gpt_nano.safetensors

PyTorch computes in double precision on parameters that are exact in single precision, so the stored gradients are right
to the last bit of an f32 and the test (test_gpt_parity.c) judges tacit's rounding alone. Names are those of Hugging
Face's GPT2LMHeadModel behind "param." and "grad.". Needs PyTorch 1.12 or newer and nothing else.
"""
import json
import struct
import sys

import torch
import torch.nn.functional as F

LAYERS, HEADS, C, V, T, BATCH = 2, 2, 32, 61, 16, 4


def make_parameters(generator):
    def normal(*shape, mean=0.0, scale=0.15):
        values = torch.randn(*shape, generator=generator) * scale + mean
        return values.float().double().requires_grad_()

    p = {"wte.weight": normal(V, C, scale=0.5), "wpe.weight": normal(T, C, scale=0.3)}
    for i in range(LAYERS):
        h = f"h.{i}."
        for name in ("ln_1", "ln_2"):
            p[h + name + ".weight"], p[h + name + ".bias"] = normal(C, mean=1.0), normal(C)
        for name, rows, columns in (("attn.c_attn", C, 3 * C), ("attn.c_proj", C, C), ("mlp.c_fc", C, 4 * C),
                                    ("mlp.c_proj", 4 * C, C)):
            p[h + name + ".weight"], p[h + name + ".bias"] = normal(rows, columns), normal(columns)
    p["ln_f.weight"], p["ln_f.bias"] = normal(C, mean=1.0), normal(C)
    return p


def attention(x, p, h):
    q, k, v = (x @ p[h + "attn.c_attn.weight"] + p[h + "attn.c_attn.bias"]).split(C, dim=-1)
    q, k, v = (y.view(BATCH, T, HEADS, C // HEADS).transpose(1, 2) for y in (q, k, v))
    scores = q @ k.transpose(-1, -2) / (C // HEADS) ** 0.5
    scores = scores.masked_fill(~torch.ones(T, T).bool().tril(), float("-inf"))
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, T, C)
    return y @ p[h + "attn.c_proj.weight"] + p[h + "attn.c_proj.bias"]


def loss_of(p, tokens, targets):
    def norm(x, name):
        return F.layer_norm(x, (C,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    x = p["wte.weight"][tokens] + p["wpe.weight"]
    for i in range(LAYERS):
        h = f"h.{i}."
        x = x + attention(norm(x, h + "ln_1"), p, h)
        y = F.gelu(norm(x, h + "ln_2") @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"], approximate="tanh")
        x = x + y @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
    logits = norm(x, "ln_f") @ p["wte.weight"].T
    return F.cross_entropy(logits.view(-1, V), targets.view(-1), ignore_index=-1, reduction="sum")


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = struct.pack(f"<{tensor.numel()}f", *tensor.detach().double().flatten().tolist())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    generator = torch.Generator().manual_seed(1)
    p = make_parameters(generator)
    tokens = torch.randint(V, (BATCH, T), generator=generator)
    targets = torch.randint(V, (BATCH, T), generator=generator)
    targets[0, 3] = targets[2, 15] = -1
    loss = loss_of(p, tokens, targets)
    loss.backward()
    dump = {"tokens": tokens, "targets": targets, "loss": loss.reshape(1)}
    for name, tensor in p.items():
        dump["param." + name], dump["grad." + name] = tensor, tensor.grad
    write_safetensors(sys.argv[1], dump)
    print(f"loss {loss.item():.9f}, {sum(t.numel() for t in p.values())} parameters")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes one tiny GPT-2 in three formats, without any code of tacit: a Hugging Face folder (Conv1D matrices [in][out],
names with "transformer.", causal masks and the tied head stored as old files do) and llm.c files in f32 and bf16
(matrices [out][in], wte padded to 128 rows). test_weights.c reads all three and compares them.

Usage: make_weights.py FOLDER     (committed: tests/parity/weights)
"""
import json
import os
import struct
import sys

import numpy as np

LAYERS, HEADS, CHANNELS, VOCABULARY, CONTEXT = 2, 2, 8, 61, 12


def tensors():
    rng = np.random.RandomState(20240326)
    c = CHANNELS
    shapes = {"wte.weight": (VOCABULARY, c), "wpe.weight": (CONTEXT, c)}
    for i in range(LAYERS):
        shapes.update({
            f"h.{i}.ln_1.weight": (c,), f"h.{i}.ln_1.bias": (c,),
            f"h.{i}.attn.c_attn.weight": (c, 3 * c), f"h.{i}.attn.c_attn.bias": (3 * c,),
            f"h.{i}.attn.c_proj.weight": (c, c), f"h.{i}.attn.c_proj.bias": (c,),
            f"h.{i}.ln_2.weight": (c,), f"h.{i}.ln_2.bias": (c,),
            f"h.{i}.mlp.c_fc.weight": (c, 4 * c), f"h.{i}.mlp.c_fc.bias": (4 * c,),
            f"h.{i}.mlp.c_proj.weight": (4 * c, c), f"h.{i}.mlp.c_proj.bias": (c,),
        })
    shapes.update({"ln_f.weight": (c,), "ln_f.bias": (c,)})
    return {name: to_bf16_values(rng.standard_normal(shape)) for name, shape in shapes.items()}


def to_bf16_values(x):
    """f32 numbers that bf16 holds exactly, so that all three files hold the same numbers."""
    bits = np.asarray(x, dtype="<f4").view("<u4") & np.uint32(0xFFFF0000)
    return bits.view("<f4")


def write_safetensors(path, named):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, array) in named.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def write_hf(folder, weights):
    os.makedirs(folder, exist_ok=True)
    named = {"transformer." + name: ("F32", array) for name, array in weights.items()}
    mask = np.tril(np.ones((1, 1, CONTEXT, CONTEXT), dtype=np.uint8))
    for i in range(LAYERS):
        named[f"transformer.h.{i}.attn.bias"] = ("U8", mask)
        named[f"transformer.h.{i}.attn.masked_bias"] = ("F32", np.array(-1e4, dtype="<f4"))
    named["lm_head.weight"] = ("F32", weights["wte.weight"])
    write_safetensors(os.path.join(folder, "model.safetensors"), named)
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
              "n_layer": LAYERS, "n_head": HEADS, "n_embd": CHANNELS, "n_positions": CONTEXT, "n_ctx": CONTEXT,
              "vocab_size": VOCABULARY, "layer_norm_epsilon": 1e-05}
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config, out, indent=2)


def write_llmc(path, weights, version):
    padded = (VOCABULARY + 127) // 128 * 128
    header = np.zeros(256, dtype="<i4")
    header[:8] = [20240326, version, CONTEXT, VOCABULARY, LAYERS, HEADS, CHANNELS, padded]
    wte = np.zeros((padded, CHANNELS), dtype="<f4")
    wte[:VOCABULARY] = weights["wte.weight"]
    order = [wte, weights["wpe.weight"]]
    for part in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
                 "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
                 "mlp.c_proj.weight", "mlp.c_proj.bias"):
        for i in range(LAYERS):
            order.append(weights[f"h.{i}.{part}"].T)  # a vector is its own transpose
    order += [weights["ln_f.weight"], weights["ln_f.bias"]]
    with open(path, "wb") as out:
        out.write(header.tobytes())
        for array in order:
            array = np.ascontiguousarray(array, dtype="<f4")
            out.write(array.tobytes() if version == 3 else (array.view("<u4") >> 16).astype("<u2").tobytes())


def main():
    folder = sys.argv[1]
    weights = tensors()
    write_hf(os.path.join(folder, "hf"), weights)
    write_llmc(os.path.join(folder, "f32.bin"), weights, 3)
    write_llmc(os.path.join(folder, "bf16.bin"), weights, 5)


main()

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Training step of GPT-2 in PyTorch on the CPU, with the shapes of tacit's presets: the peer of `tacit bench step`.

`stock` is what a user gets who only calls torch.set_num_threads(). `tuned` is the fastest PyTorch we found with Debian's
build: AVX-512 kernels, an OpenMP BLAS for f32, huge pages and a malloc that keeps them, a vocabulary padded to a multiple
of 64, attention by baddbmm, and AdamW over several tensors at a time. Both compute the same loss and update; README.md
beside this file lists what was tried and what it brought.

The script starts itself again with the environment of its mode, because ATen and BLAS read theirs when they are loaded.
"""
import argparse
import json
import math
import os
import statistics
import sys
import time

# layers, heads, channels, vocabulary, context: the presets of src/model/gpt_options.c
MODELS = {
    "gpt2-124m": (12, 12, 768, 50257, 1024),
    "gpt2-30m": (6, 6, 384, 50257, 1024),
    "byte-10m": (6, 6, 384, 256, 256),
}
WARM_UP_STEPS = 2
OPENMP_BLAS = "/usr/lib/x86_64-linux-gnu/openblas-openmp"
MARK = "TACIT_PEER_MODE"
CLEARED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY")
MALLOC = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=34359738368"
EXIT_RESOURCES = 7


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=4, help="sequences per step (default 4)")
    parser.add_argument("--seq", type=int, default=256, help="tokens per sequence (default 256)")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="bf16: torch.autocast")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--mode", choices=("stock", "tuned"), default="tuned")
    parser.add_argument("--rounds", type=int, default=5, help=f"timed steps, after {WARM_UP_STEPS} that are not")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a line of text")
    options = parser.parse_args()
    if min(options.batch, options.seq, options.threads, options.rounds) < 1:
        parser.error("--batch, --seq, --threads and --rounds must be at least 1")
    if options.seq > MODELS[options.model][4]:
        parser.error(f"--seq {options.seq} is longer than the context of {options.model}, {MODELS[options.model][4]}")
    return options


def fail(message):
    print(f"pytorch_gpt.py: {message}", file=sys.stderr)
    sys.exit(EXIT_RESOURCES)


def has_avx512():
    with open("/proc/cpuinfo") as file:
        return "avx512f" in file.read().split()


def start_again_in_environment(options):
    """Replaces this process by one whose environment is that of the mode."""
    if os.environ.get(MARK) == options.mode:
        return
    environment = {name: value for name, value in os.environ.items() if name not in CLEARED}
    environment[MARK] = options.mode
    if options.mode == "tuned":
        if has_avx512():
            environment["ATEN_CPU_CAPABILITY"] = "avx512"
        environment["GLIBC_TUNABLES"] = MALLOC
        if options.dtype == "f32":
            if not os.path.exists(OPENMP_BLAS + "/libblas.so.3"):
                fail(f"--mode tuned needs {OPENMP_BLAS}/libblas.so.3: apt-get install libopenblas0-openmp")
            environment["LD_LIBRARY_PATH"] = OPENMP_BLAS
    os.execve(sys.executable, [sys.executable] + sys.argv, environment)


def import_torch():
    try:
        import torch
    except ImportError as error:
        fail(f"{sys.executable} has no PyTorch ({error}): apt-get install python3-torch, and run with /usr/bin/python3")
    return torch


def build_model(torch, options):
    nn, functional = torch.nn, torch.nn.functional
    layers, heads, channels, vocabulary, context = MODELS[options.model]
    tuned = options.mode == "tuned"
    rows = (vocabulary + 63) // 64 * 64 if tuned else vocabulary
    head_size, seq, scale = channels // heads, options.seq, 1 / math.sqrt(channels // heads)
    hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    mask = {
        dtype: torch.zeros(seq, seq, dtype=dtype).masked_fill(hidden, float("-inf"))
        for dtype in (torch.float32, torch.bfloat16)
    }

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.c_attn, self.attn_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.c_fc, self.mlp_proj = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

        def attention_stock(self, x):
            batch = x.shape[0]
            q, k, v = (
                t.view(batch, seq, heads, head_size).transpose(1, 2) for t in self.c_attn(x).split(channels, 2)
            )
            scores = (q @ k.transpose(-2, -1) * scale).masked_fill(hidden, float("-inf"))
            y = torch.softmax(scores, -1).to(v.dtype) @ v
            return self.attn_proj(y.transpose(1, 2).reshape(batch, seq, channels))

        def attention_tuned(self, x):
            """One copy brings q, k, v into [batch * heads][seq][head_size]; scale and mask ride on the product."""
            batch = x.shape[0]
            qkv = self.c_attn(x).view(batch, seq, 3, heads, head_size).permute(2, 0, 3, 1, 4)
            q, k, v = qkv.reshape(3, batch * heads, seq, head_size).unbind(0)
            scores = torch.baddbmm(mask[q.dtype].expand(batch * heads, seq, seq), q, k.transpose(1, 2), alpha=scale)
            y = torch.bmm(torch.softmax(scores, -1).to(v.dtype), v)
            return self.attn_proj(y.view(batch, heads, seq, head_size).transpose(1, 2).reshape(batch, seq, channels))

        def forward(self, x):
            normed = self.ln_1(x)
            x = x + (self.attention_tuned(normed) if tuned else self.attention_stock(normed))
            return x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(rows, channels), nn.Embedding(context, channels)
            self.h = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f = nn.LayerNorm(channels)
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    deviation = 0.02 / math.sqrt(2 * layers) if "_proj" in name else 0.02
                    nn.init.normal_(parameter, 0.0, deviation)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight[:seq]
            for block in self.h:
                x = block(x)
            logits = functional.linear(self.ln_f(x), self.wte.weight)
            return functional.cross_entropy(logits.view(-1, rows), targets.view(-1))

    return Gpt()


def make_optimizer(torch, model, options):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, foreach=options.mode == "tuned")


def run_steps(torch, options):
    """Durations of forward, backward and update and the share of our cores that we got, for each timed step, and the
    loss of every step."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = build_model(torch, options)
    optimizer = make_optimizer(torch, model, options)
    vocabulary = MODELS[options.model][3]
    generator = torch.Generator().manual_seed(2)
    window = torch.randint(0, vocabulary, (options.batch, options.seq + 1), generator=generator)
    tokens, targets = window[:, :-1].contiguous(), window[:, 1:].contiguous()
    times, losses = [], []
    for step in range(WARM_UP_STEPS + options.rounds):
        cpu, begin = time.process_time(), time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = model(tokens, targets)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        optimizer.step()
        end = time.perf_counter()
        losses.append(loss.item())
        busy = (time.process_time() - cpu) / ((end - begin) * options.threads)
        if step >= WARM_UP_STEPS:
            times.append((forward - begin, backward - forward, end - backward, busy))
    return times, losses


def flops_per_token(options):
    """6 N + 12 layers channels seq, as taciti_model_flops_per_token(): attention in full, N without positions."""
    layers, _, channels, vocabulary, _ = MODELS[options.model]
    parameters = vocabulary * channels + layers * (12 * channels * channels + 13 * channels) + 2 * channels
    return 6 * parameters + 12 * layers * channels * options.seq


def summarise(torch, options, times, losses):
    steps = [sum(parts[:3]) for parts in times]
    step_s = statistics.median(steps)
    tokens_per_s = options.batch * options.seq / step_s
    return {
        "program": "pytorch",
        "version": torch.__version__,
        "mode": options.mode,
        "model": options.model,
        "dtype": options.dtype,
        "batch": options.batch,
        "seq": options.seq,
        "threads": options.threads,
        "rounds": options.rounds,
        "step_s": step_s,
        "step_s_min": min(steps),
        "step_s_max": max(steps),
        "forward_s": statistics.median(t[0] for t in times),
        "backward_s": statistics.median(t[1] for t in times),
        "update_s": statistics.median(t[2] for t in times),
        "tokens_per_s": tokens_per_s,
        "busy": statistics.median(t[3] for t in times),
        "gflops": tokens_per_s * flops_per_token(options) / 1e9,
        "first_loss": losses[0],
        "last_loss": losses[-1],
    }


def main():
    options = parse_arguments()
    start_again_in_environment(options)
    torch = import_torch()
    result = summarise(torch, options, *run_steps(torch, options))
    if options.json:
        print(json.dumps(result))
        return
    print(
        "PyTorch {version} {mode}, {model} {dtype}, batch {batch} x {seq}, {threads} thread(s): "
        "{tokens_per_s:.0f} tokens/s, {gflops:.0f} GFLOP/s\n"
        "step {step_s:.4f} s (median of {rounds}; {step_s_min:.4f} to {step_s_max:.4f}): "
        "forward {forward_s:.4f}, backward {backward_s:.4f}, update {update_s:.4f}".format(**result)
    )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/gpu.sh runs under torchrun, on one or more ranks: tacit.torch on a GPU of NVIDIA's. Rank 0 prints a table and,
with --json FILE, writes it. Exit status 1: a check has failed."""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tacit.torch as tacit
from tacit import Comm
from tacit.torch import cuda

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
INDEX = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
HIDDEN_MIN, APART_MAX = 0.9, 1e-6
STRATEGIES = {"dp": {}, "dp topk": dict(codec="topk", factor=5, compress__warmup=0), "dp int4": dict(codec="int4"),
              "dp clip": dict(optim__clip=0.5), "gossip": dict(strategy="gossip"),
              "localsgd": dict(strategy="localsgd", every=2),
              "shard 1": dict(strategy="shard", stage=1), "shard 2": dict(strategy="shard", stage=2)}
rows = []


def report(name, value, unit, bar=None, passed=True):
    rows.append({"name": name, "value": value, "unit": unit, "bar": bar, "passed": bool(passed)})
    if RANK == 0:
        print(f"{name:44} {value:12.6g} {unit:8} {'' if bar is None else bar:14} {'ok' if passed else 'FAIL'}", flush=True)


# ---- the same bits -------------------------------------------------------------------------------------------------------

class Given(nn.Module):
    """Gets the gradients that it is given, the same bits on every device. Shapes that are no multiples of anything."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(1)
        shapes = ((41, 100), (10,), (1,), (3, 1, 5), (70001,))
        values = [torch.randn(shape).to(dtype if i % 2 else torch.float32) for i, shape in enumerate(shapes)]
        self.parts = nn.ParameterList([nn.Parameter(value) for value in values])

    def forward(self, step):
        generator = torch.Generator().manual_seed(100 * step + RANK)
        wanted = [torch.randn(p.shape, generator=generator).to(p.dtype).to(p.device) for p in self.parts]
        return sum((p * w).sum().float() for p, w in zip(self.parts, wanted))


def train(device, dtype, settings):
    """Updates by a power of two, so that no device rounds otherwise."""
    module = Given(dtype).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=2.0 ** -6)
    model = tacit.Parallel(module, optimizer, **settings)
    found = []
    for step in range(6):
        optimizer.zero_grad()
        model(step).backward()
        trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        found += [p.grad.detach().clone().cpu() for p in trained]
        optimizer.step()
    found += [p.detach().clone().cpu() for p in module.parameters()]
    model.close()
    return found


def check_bits():
    for name, settings in STRATEGIES.items():
        for dtype in (torch.float32, torch.bfloat16):
            here, there = train("cpu", dtype, settings), train(f"cuda:{INDEX}", dtype, settings)
            assert len(here) == len(there), (name, len(here), len(there))
            pairs = list(zip(here, there))
            other = sum(not torch.equal(a, b) for a, b in pairs)
            report(f"{name}, {str(dtype)[6:]}: other bits than on the CPU", other, "tensors", "0", other == 0)


def check_gradients():
    """Against DDP over gloo."""
    def make():
        torch.manual_seed(2)
        layers = nn.Linear(41, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 10)
        return nn.Sequential(*layers).to(f"cuda:{INDEX}")
    models = {"Parallel": tacit.Parallel(make())}
    hooked = DistributedDataParallel(make(), device_ids=[INDEX])
    state, send = tacit.hook(hooked)
    hooked.register_comm_hook(state, send)
    models["the hook"], plain = hooked, DistributedDataParallel(make(), device_ids=[INDEX])
    apart = dict.fromkeys(models, 0.0)
    for step in range(10):
        x = torch.randn(16, 41, generator=torch.Generator().manual_seed(step * SIZE + RANK)).to(f"cuda:{INDEX}")
        for model in (plain, *models.values()):
            model.zero_grad()
            model(x).square().mean().backward()
        for name, model in models.items():
            for p, q in zip(model.parameters(), plain.parameters()):
                apart[name] = max(apart[name], float((p.grad - q.grad).norm() / q.grad.norm()))
    for name, value in apart.items():
        report(f"gradients of {name} and of DDP over gloo", value, "relative", f"<= {APART_MAX:g}", value <= APART_MAX)
    models["Parallel"].close()
    state.close()


# ---- times ---------------------------------------------------------------------------------------------------------------

def measure_copies(count):
    """Bytes per second from the GPU and to it."""
    device, there = cuda.open_device(INDEX), torch.ones(count // 4, device=f"cuda:{INDEX}")
    host, event, rates = device.allocate(count), device.make_event(), []
    for copy in (device.copy_in, device.copy_out):
        times = []
        for _ in range(7):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            copy([(host, there.data_ptr(), count)], event)
            device.wait(event, 60)
            times.append(time.perf_counter() - begin)
        rates.append(count / statistics.median(times))
    device.free([host], [event])
    return rates


def time_step(model, optimizer, x):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def measure_steps(width, layers, batch, rates):
    """A model whose backward pass takes about three times as long as its copies, alone and with tacit on this rank alone:
    what is longer then are copies that are not hidden."""
    def make():
        torch.manual_seed(3)
        module = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))).to(f"cuda:{INDEX}")
        return module, torch.optim.SGD(module.parameters(), lr=1e-6)
    (plain, one), (module, two) = make(), make()
    copies_s = sum(4 * p.numel() for p in module.parameters()) * (1 / rates[0] + 1 / rates[1])
    x = torch.randn(batch, width, device=f"cuda:{INDEX}")
    for _ in range(3):
        time_step(plain, one, x)
    batch = max(1, int(batch * max(1.0, 4 * copies_s / time_step(plain, one, x))))
    x = torch.randn(batch, width, device=f"cuda:{INDEX}")
    model = tacit.Parallel(module, two, comm=Comm(alone=True))
    times = ([], [])
    for i in range(14):
        for which in ((0, 1) if i % 2 else (1, 0)):
            times[which].append(time_step(*((plain, one), (model, two))[which], x))
    bare, wrapped = (statistics.median(t[4:]) for t in times)
    model.close()
    hidden = 1 - max(0.0, wrapped - bare) / copies_s
    report("step without tacit", bare * 1e3, "ms")
    report("step with tacit, one rank", wrapped * 1e3, "ms")
    report("copies of a step", copies_s * 1e3, "ms")
    report("share of copies hidden", hidden, "", f">= {HIDDEN_MIN:g}", hidden >= HIDDEN_MIN)


def measure_ranks(width, layers, batch):
    """Steps of all ranks, over the links that there are."""
    torch.manual_seed(4)
    module = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))).to(f"cuda:{INDEX}")
    x = torch.randn(batch, width, device=f"cuda:{INDEX}")
    for name, settings in (("dp", {}), ("int4", dict(codec="int4"))):
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-6)
        model = tacit.Parallel(module, optimizer, **settings)
        times = [time_step(model, optimizer, x) for _ in range(8)]
        report(f"step with tacit, {name}, {SIZE} ranks", statistics.median(times[2:]) * 1e3, "ms")
        model.close()
    ddp = DistributedDataParallel(module, device_ids=[INDEX])
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-6)
    times = [time_step(ddp, optimizer, x) for _ in range(8)]
    report(f"step of DDP over gloo, {SIZE} ranks", statistics.median(times[2:]) * 1e3, "ms")


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--json")
    words = words.parse_args()
    torch.cuda.set_device(INDEX)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("gloo")
    if RANK == 0:
        print(f"{torch.cuda.get_device_name(INDEX)}, torch {torch.__version__}, tacit {tacit.__version__}, {SIZE} ranks")
    check_bits()
    check_gradients()
    if RANK == 0:  # the others leave the GPU to it
        rates = measure_copies(256 << 20)
        report("copies from the GPU", rates[0] / 1e9, "GB/s")
        report("copies to the GPU", rates[1] / 1e9, "GB/s")
        measure_steps(2048, 24, 256, rates)
    dist.barrier()
    measure_ranks(2048, 24, 256)
    failed = torch.tensor(sum(not row["passed"] for row in rows))
    dist.all_reduce(failed)
    if RANK == 0 and words.json:
        with open(words.json, "w") as file:
            json.dump({"gpu": torch.cuda.get_device_name(INDEX), "torch": torch.__version__, "tacit": tacit.__version__,
                       "ranks": SIZE, "rows": rows}, file, indent=1)
    dist.destroy_process_group()
    sys.exit(int(failed) > 0)


if __name__ == "__main__":
    main()

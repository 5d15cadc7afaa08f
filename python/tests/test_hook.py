#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hook of DistributedDataParallel against DDP's own sums:

    torchrun --nproc-per-node N python/tests/test_hook.py [NAME...]
    python/tests/test_hook.py ranks N [NAME...]
    python/tests/test_hook.py failures KIND..."""
import contextlib
import itertools
import os
import re
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import tacit.torch as tacit
from tacit import _table
from tacit.settings import list_names
from ranks import run_tests, start_ranks, text_of_fork


takes_bfloat16 = hasattr(torch.amp, "GradScaler")  # gloo, which DDP sends its first parameters by: from torch 2.3 on


class Odd(nn.Module):
    """Odd shapes, a scalar, no elements, a shared parameter, one that a half of the passes leaves out, and layers that run in another
    order than they stand in, so that DDP makes other buckets after its first step."""

    def __init__(self, may_skip=False):
        super().__init__()
        self.last, self.middle, self.first = nn.Linear(100, 10), nn.Linear(41, 100), nn.Linear(41, 41)
        self.again = nn.Linear(41, 41)
        self.again.weight = self.first.weight
        self.factor, self.side = nn.Parameter(torch.tensor(1.5)), nn.Linear(7, 3)
        self.nothing, self.may_skip = nn.Parameter(torch.zeros(0, 5)), may_skip

    def forward(self, x, skip=False):
        y = self.last(torch.tanh(self.middle(self.again(self.first(x))))) * self.factor
        y = y + self.nothing.sum()
        return y if self.may_skip and skip else y + self.side(x[:, :7]).sum()


def make_odd(seed=1, **words):
    torch.manual_seed(seed)
    return Odd(**words)


def data(step, n=5):
    return torch.randn(n, 41, generator=torch.Generator().manual_seed(1000 * step + dist.get_rank()))


def hooked(module, words=None, **options):
    ddp = DDP(module, **options)
    state, function = tacit.hook(ddp, **(words or {}))
    ddp.register_comm_hook(state, function)
    return ddp, state


def grads(model):
    return {n: p.grad for n, p in model.named_parameters()}


def distance(a, b):
    return float((a.double() - b.double()).norm() / max(float(b.double().norm()), 1e-30))


def same_grads(a, b, bound=1e-6):
    for (name, x), y in zip(grads(a).items(), grads(b).values()):
        assert (x is None) == (y is None), name
        assert x is None or distance(x, y) <= bound, f"{name}: {distance(x, y):.3g} apart"


class Given(nn.Module):
    """Gets the gradients that it is given: parameters of these sizes, in an order unlike that of the pass."""

    def __init__(self, *sizes):
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros(n)) for n in sizes])

    def forward(self, wanted):
        pairs = list(zip(self.parts, wanted))
        return sum((p * w).sum() for p, w in pairs[1:] + pairs[:1])


# ---- as DDP's own ------------------------------------------------------------------------------------------------------

def test_gradients_are_those_of_ddp():
    for unused, static, view in itertools.product((False, True), repeat=3):
        options = dict(find_unused_parameters=unused, static_graph=static, gradient_as_bucket_view=view, bucket_cap_mb=0.01)
        may_skip = unused and not static
        plain = DDP(make_odd(may_skip=may_skip), **options)
        ours, state = hooked(make_odd(may_skip=may_skip), **options)
        for step in range(4):
            for model in (plain, ours):
                model.zero_grad()
                model(data(step), skip=step % 2).square().mean().backward()
            same_grads(ours, plain)
        assert state.last_step.number == 4 and not state.last_step.skipped
        state.close()


def test_accumulation():
    plain, (ours, _) = DDP(make_odd()), hooked(make_odd())
    for step in range(6):
        for model in (plain, ours):
            if step % 3 == 0:
                model.zero_grad()
            with model.no_sync() if step % 3 < 2 else contextlib.nullcontext():
                model(data(step)).square().mean().backward()
        if step % 3 == 2:
            same_grads(ours, plain)


def test_sixteen_bits():
    if not takes_bfloat16:
        return
    plain, (ours, _) = DDP(make_odd().bfloat16()), hooked(make_odd().bfloat16())
    for model in (plain, ours):
        model(data(0).bfloat16()).square().mean().backward()
    same_grads(ours, plain, 0.02)
    mixed = make_odd()
    mixed.middle.bfloat16()
    mixed.middle.register_forward_pre_hook(lambda _, x: (x[0].bfloat16(),))
    mixed.middle.register_forward_hook(lambda *x: x[2].float())
    ours, _ = hooked(mixed, bucket_cap_mb=0.01)
    for step in range(3):
        ours(data(step)).square().mean().backward()
    assert mixed.middle.weight.grad.dtype == torch.bfloat16


def test_two_types_in_a_static_graph():
    """Its first pass hands over a bucket for each type, none of which is the last."""
    if not takes_bfloat16:
        return
    def make():
        mixed = make_odd()
        mixed.middle.bfloat16()
        mixed.middle.register_forward_pre_hook(lambda _, x: (x[0].bfloat16(),))
        mixed.middle.register_forward_hook(lambda *x: x[2].float())
        return mixed
    for settings in ({}, {"optim__clip": 1e6}):
        for cap in (0.01, 25):
            options = dict(static_graph=True, bucket_cap_mb=cap)
            plain, (ours, state) = DDP(make(), **options), hooked(make(), settings, **options)
            for step in range(4):
                for model in (plain, ours):
                    model.zero_grad()
                    model(data(step)).square().mean().backward()
                same_grads(ours, plain, 0.02)  # as far as bfloat16 rounds
            assert state.last_step.number == 4
            state.close()
    ours, state = hooked(make(), {"optim__clip": 1e6}, static_graph=True)

    def fail(*_):
        raise tacit.UsageError("no bucket can start")
    state._tensors.sources.start = fail
    try:
        ours(data(0)).square().mean().backward()
    except RuntimeError as error:
        assert "no bucket can start" in str(error)
    else:
        raise AssertionError("a step that cannot begin has ended well")


def test_channels_last():
    def make():
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 2, 3)).to(memory_format=torch.channels_last)
    plain, (ours, _) = DDP(make()), hooked(make())
    x = data(0).view(5, 41)[:, :36].reshape(5, 1, 6, 6).expand(5, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    for step in range(2):
        for model in (plain, ours):
            model.zero_grad()
            model(x * (step + 1)).square().mean().backward()
        same_grads(ours, plain)


def test_models_that_train_together():
    pairs = [(DDP(make_odd(seed)), hooked(make_odd(seed))[0]) for seed in (1, 2)]
    for step in range(3):
        for kind in (0, 1):
            for pair in pairs:
                pair[kind].zero_grad()
            sum(pair[kind](data(step)).square().mean() for pair in pairs).backward()
        for plain, ours in pairs:
            same_grads(ours, plain)


def test_uneven_inputs():
    plain, (ours, _) = DDP(make_odd()), hooked(make_odd())
    for model in (plain, ours):
        with model.join():
            for step in range(2 + dist.get_rank()):
                model.zero_grad()
                model(data(step)).square().mean().backward()
    same_grads(ours, plain)


def test_part_of_the_ranks():
    size = dist.get_world_size()
    groups = [dist.new_group([r for r in range(size) if r % 2 == side]) for side in range(min(2, size))]
    group = groups[dist.get_rank() % 2]
    plain, (ours, _) = DDP(make_odd(), process_group=group), hooked(make_odd(), process_group=group)
    for model in (plain, ours):
        model(data(0)).square().mean().backward()
    same_grads(ours, plain)


def test_frozen_and_left_out():
    def make():
        model = make_odd()
        model.side.requires_grad_(False)
        DDP._set_params_and_buffers_to_ignore_for_model(model, ["factor", "last.bias"])
        return model
    plain, (ours, _) = DDP(make()), hooked(make())
    for model in (plain, ours):
        model(data(0)).square().mean().backward()
    same_grads(ours, plain)


def test_clipping():
    plain, (ours, state) = DDP(make_odd()), hooked(make_odd(), dict(optim__clip=0.25), bucket_cap_mb=0.01)
    for step in range(3):
        for model in (plain, ours):
            model.zero_grad()
            model(data(step)).square().mean().backward()
        norm = float(nn.utils.clip_grad_norm_(plain.parameters(), 0.25))
        assert norm > 0.25 and abs(state.last_step.norm - norm) < 1e-4 * norm
        same_grads(ours, plain, 1e-4)
    state.close()
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("optim:\n  clip: 0.25\n")
        file.flush()
        assert hooked(make_odd(), dict(config=file.name))[1].settings["optim.clip"] == "0.25"
        assert hooked(make_odd(), dict(config=file.name, clip=2))[1].settings["optim.clip"] == "2"


def test_numbers_that_are_not_finite():
    for words in ({}, dict(codec="int4"), dict(codec="topk", factor=4)):
        ours, state = hooked(make_odd(), words, bucket_cap_mb=0.01)
        for step in range(4):
            ours.zero_grad()
            x = data(step)
            if step == 1 and dist.get_rank() == dist.get_world_size() - 1:
                x[0, 0] = float("inf")
            ours(x).square().mean().backward()
            finite = all(bool(g.isfinite().all()) for g in grads(ours).values())
            assert finite == (step != 1), f"{words}, step {step}"
            assert state.last_step.skipped == (step == 1)


# ---- compression -------------------------------------------------------------------------------------------------------

# Energy of the error over that of normal numbers, of codecs that send every element in fewer bits (docs/codecs.md). mixed takes 4 bits
# where it may; qsgd's is its paper's bound, for 7 levels and blocks of 512; signsgd is a vote, not a sum. Others are exact: those that
# select begin their warm-up at factor 1, and powersgd sends vectors as they are.
ERRORS = dict(bf16=2.8e-6, fp16=4.3e-8, int8=4.2e-5, mixed8=4.2e-5, int4=0.0137, mixed=0.0137, mixed4=0.0137, signmag2=0.118, efsign=0.364,
              onebit=0.364, qsgd=3.23, signsgd=float("inf"))


def bound_of(codec):
    """How far a sum may be from the dense one: it is encoded on the way to the owners and on the way back."""
    return 1.1 * ((1 + ERRORS.get(codec, 0)) ** 2 - 1) ** 0.5


def sum_once(**words):
    """The gradient of one step of DDP with a hook, and the mean of the ranks' numbers."""
    ours, state = hooked(Given(4000, 1, 777), words)
    wanted = [[torch.randn(p.numel(), generator=torch.Generator().manual_seed(r)) for p in ours.module.parts]
              for r in range(dist.get_world_size())]
    ours(wanted[dist.get_rank()]).backward()
    state.close()
    return torch.cat([p.grad for p in ours.module.parts]), sum(torch.cat(w) for w in wanted) / len(wanted)


def test_codecs():
    dense, mean = sum_once()
    assert distance(dense, mean) <= 1e-6
    for codec, _ in list_names(_table.LIST_CODECS):
        assert torch.equal(sum_once(codec=codec, factor=1)[0], dense), f"{codec} at factor 1 is not dense"
        apart = distance(sum_once(codec=codec)[0], dense)
        assert apart <= bound_of(codec), f"{codec}: {apart:.3g} apart"


def test_nothing_is_lost():
    """What arrives in the end is what was given, over the step in which DDP makes other buckets: residuals are emptied by
    steps whose gradient is 0."""
    size = dist.get_world_size()
    for words, idle in ((dict(codec="topk", factor=5, warmup=0), 40), (dict(codec="int4"), 25)):
        ours, state = hooked(Given(3000, 500, 1, 900, 1600), words, bucket_cap_mb=0.004)
        layouts, send = [], state.send
        state.send = lambda bucket: (layouts[-1].append([p.numel() for p in bucket.parameters()]), send(bucket))[1]
        arrived = given = 0
        for step in range(5 + idle):
            generators = [torch.Generator().manual_seed(100 * step + r) for r in range(size)]
            wanted = [[torch.randn(p.numel(), generator=g) * (step < 5) for p in ours.module.parts] for g in generators]
            layouts.append([])
            ours.zero_grad()
            ours(wanted[dist.get_rank()]).backward()
            arrived += torch.cat([p.grad for p in ours.module.parts]).double()
            given += sum(torch.cat(w).double() for w in wanted) / size
        assert layouts[0] != layouts[2], "DDP made no other buckets"
        assert distance(arrived, given) < 1e-5, f"{words}: {distance(arrived, given):.3g} apart"
        state.close()


def through_file(state):
    with tempfile.TemporaryFile() as file:
        torch.save(state, file)
        file.seek(0)
        return torch.load(file, weights_only=True)


def test_resume():
    """Bit for bit, though DDP's first step has other buckets; and what the state is of must be the same, but for settings that a
    hook does not read."""
    unread = dict(gossip__delay=1, optim__eps=1e-6)
    for words in (dict(codec="topk", factor=10, values="int4", warmup=5), dict(codec="powersgd", warmup=0),
                  dict(codec="onebit", what="change"), dict(codec="topk", policy="accordion", warmup=0)):
        whole, first = hooked(make_odd(), words)
        for step in range(6):
            whole.zero_grad()
            loss_of(whole, data(step)).backward()
            if step == 2:
                state = through_file(first.state_dict())
                resumed, second = hooked(make_odd(), {**words, **unread})
                second.load_state_dict(state)
            elif step > 2:
                resumed.zero_grad()
                loss_of(resumed, data(step)).backward()
                same_grads(resumed, whole, 0)
        refused(tacit.UsageError, "before the first backward pass", lambda: second.load_state_dict(state))
        first.close()
        second.close()
    fresh = hooked(make_odd(), dict(codec="topk", factor=20))[1]
    fresh.load_state_dict({})
    if dist.get_world_size() > 1:
        refused(tacit.UsageError, "and rank 1 one of steps", lambda: fresh.load_state_dict(state if dist.get_rank() else {}))
    refused(tacit.UsageError, "a tensor of bytes from state_dict()", lambda: fresh.load_state_dict({"state": 3}))
    refused(tacit.DataError, "compress.", lambda: fresh.load_state_dict(state))
    fresh.close()


def test_training():
    """A model learns as with dense gradients."""
    final = {}
    for name, words in dict(dense={}, int4=dict(codec="int4"), auto=dict(codec="auto"),
                            topk=dict(codec="topk", factor=10, warmup=0, values="int4")).items():
        torch.manual_seed(4)
        ours, state = hooked(nn.Sequential(nn.Linear(41, 100), nn.Tanh(), nn.Linear(100, 10)), words)
        optimizer = torch.optim.Adam(ours.parameters(), lr=0.01)
        for step in range(80):
            optimizer.zero_grad()
            loss_of(ours, data(step, 16)).backward()
            optimizer.step()
        with torch.no_grad():
            final[name] = float(loss_of(ours.module, torch.randn(200, 41, generator=torch.Generator().manual_seed(7))))
        state.close()
    assert all(loss < 0.05 for loss in final.values()), final  # it begins with more than 1


def loss_of(model, x):
    return (model(x) - x[:, :10]).square().mean()


def test_messages_leave_during_backward():
    ours, state = hooked(Given(*[300000] * 10), dict(exchange__bucket=600000), bucket_cap_mb=1)  # torch 2.1 takes whole MiB
    wanted, seen = [torch.ones(300000) for _ in range(10)], []
    for step in range(3):
        before = state.counters()["bytes_sent"]
        if step == 2:  # the gradient that comes last
            ours.module.parts[LAST].register_hook(lambda g: (time.sleep(0.5), seen.append(state.counters()["bytes_sent"]), g)[2])
        ours(wanted).backward()
    total = state.counters()["bytes_sent"] - before
    assert dist.get_world_size() == 1 or seen[0] - before >= 0.8 * total, f"{seen[0] - before} of {total} bytes"


LAST = 1  # Given adds up its second part first, so that its gradient is the last one


# ---- refusals ----------------------------------------------------------------------------------------------------------

def refused(error, text, work):
    try:
        work()
    except error as found:
        assert text in str(found), f"{found!r} instead of {text!r}"
    else:
        raise AssertionError(f"no {error.__name__} with {text!r}")


def test_refusals():
    ddp = DDP(make_odd())
    refused(tacit.ConfigError, "strategy gossip is more than a sum", lambda: tacit.hook(ddp, strategy="gossip"))
    refused(tacit.ConfigError, "did you mean", lambda: tacit.hook(ddp, codecc="int4"))
    refused(tacit.UsageError, "needs the DistributedDataParallel", lambda: tacit.hook(ddp.module))
    refused(tacit.ConfigError, "none", lambda: tacit.hook(ddp, codec="nonsense"))
    refused(tacit.ConfigError, "before backward has ended", lambda: tacit.hook(ddp, exchange__overlap=False))
    state, function = tacit.hook(ddp, codec="int4")
    refused(tacit.UsageError, "belongs to another", lambda: tacit.hook(ddp))
    ddp.register_comm_hook(state, function)
    ddp(data(0)).square().mean().backward()
    state.close()
    refused(Exception, "this hook is closed", lambda: ddp(data(0)).square().mean().backward())
    model = make_odd()
    model.side.requires_grad_(False)
    ddp = DDP(model, find_unused_parameters=True)
    model.side.requires_grad_(True)
    ddp.register_comm_hook(*tacit.hook(ddp))
    refused(tacit.UsageError, "side.bias wants a gradient, but DDP", lambda: ddp(data(0)).square().mean().backward())
    ddp, _ = hooked(nn.Sequential(nn.Embedding(9, 4, sparse=True)))
    refused(tacit.UsageError, "sparse=False", lambda: ddp(torch.tensor([1, 2])).sum().backward())


def test_after_fork():
    ours, state = hooked(make_odd())
    for step in range(2):
        for work in (lambda: state.send(None), state.close, state.counters) if step else ():
            text = text_of_fork(work)
            assert text.startswith("UsageError") and "fork" in text, text
        ours(data(step)).square().mean().backward()
    state.close()


# ---- failures ----------------------------------------------------------------------------------------------------------

KINDS = {  # what rank 1 does in the middle of its step, and with which code it ends
    "raise": (lambda: 1 / 0, 1), "kill": (lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
    "stop": (lambda: os.kill(os.getpid(), signal.SIGSTOP), -signal.SIGKILL), "leave": (lambda: sys.exit(3), 3),
    "interrupt": (lambda: os.kill(os.getpid(), signal.SIGINT), -signal.SIGINT), "first": (lambda: os._exit(4), 4),
    "end": (None, 0), "all": (None, 0)}


def fail_rank(kind):
    """Trains two steps, with what `kind` says on rank 1 in the third, or, of "first", in the first."""
    static = kind == "first"  # there DDP sends all gradients behind the end of the backward pass
    ours, _ = hooked(make_odd(), dict(comm__timeout=2, codec="int4"), static_graph=static, bucket_cap_mb=0.01)
    for step in range(3):
        if step == (0 if static else 2):
            if kind == "all":
                return
            if dist.get_rank() == 1:
                if kind == "end":
                    return
                ours.module.factor.register_hook(lambda g: (print("fails at", time.time(), flush=True), KINDS[kind][0]()))
        try:
            ours(data(step)).square().mean().backward()
        except (tacit.PeerError, RuntimeError) as error:
            if dist.get_rank() == 1:
                raise
            print("Error:", type(error).__name__, time.time(), error, flush=True)
            os._exit(5)


def run_failure(kind):
    ranks = 3 if kind in AT_ONCE else 2
    started = start_ranks(ranks)
    if started is None:
        prepare()
        fail_rank(kind)
        return True
    others = [started[r].end(60) for r in range(ranks) if r != 1]
    texts = [others[0], started[1].end(1 if kind == "stop" else 60), *others[1:]]
    for i, (rank, text) in enumerate(zip(started, texts)):
        if i == 1 or kind == "all":
            assert rank.code == KINDS[kind][1], f"{kind}: rank {i}: {rank.code}\n{text}"
            continue
        assert rank.code == 5, f"{kind}: rank {i}: {rank.code}\n{text}"
        name, at, words = next(line for line in text.splitlines() if line.startswith("Error: "))[7:].split(" ", 2)
        assert name == ("RuntimeError" if kind == "first" else "PeerError"), text
        assert "rank 1 on host" in text, text
        if kind in AT_ONCE:
            failed = float(re.search("fails at ([0-9.]+)", texts[1]).group(1))
            assert float(at) - failed <= 3, f"{float(at) - failed} s: {text}"
    return False


AT_ONCE = ("kill", "stop", "first")  # an interpreter takes its time to end


def prepare():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)


if __name__ == "__main__":
    run_tests(globals(), sys.argv[1:], prepare, run_failure)

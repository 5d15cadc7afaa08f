#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over channels against FSDP2 over gloo:

    torchrun --nproc-per-node N python/tests/test_fsdp.py [NAME...]
    python/tests/test_fsdp.py ranks N [NAME...]
    python/tests/test_fsdp.py failures kill"""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

import tacit.torch as tacit
from ranks import run_tests, start_ranks, text_of_fork
from tacit.torch.fsdp import ReduceScatter
from test_hook import data, distance, prepare, refused, through_file


def make(words=None, type=torch.float32, seed=1, **options):
    """A model of odd shapes with three FSDP modules, one of which is called twice; words: with tacit.fsdp."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(41, 100), nn.Tanh(), nn.Linear(100, 41), nn.Tanh())
    model.append(model[0]).append(nn.Linear(100, 10)).to(type)
    for layer in (model[0], model[2]):
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model, None if words is None else tacit.fsdp(model, **words)


def run(model, step, type=torch.float32):
    loss = (model(data(step).to(type)) - 1).square().mean()
    loss.backward()
    return loss.item()


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def same(a, b, bound=1e-6):
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        apart = distance(whole(p.grad), whole(q.grad))
        assert apart <= bound, f"{name}: {apart:.3g} apart"


def compare(bound=1e-6, words=None, type=torch.float32, steps=3, prepare=lambda model: None, **options):
    """Both models update themselves by their own gradients."""
    (plain, _), (ours, channels) = make(None, type, **options), make(words or {}, type, **options)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (plain, ours)]
    for model in (plain, ours):
        prepare(model)
    for step in range(steps):
        losses = [run(model, step, type) for model in (plain, ours)]
        assert abs(losses[0] - losses[1]) <= 10 * bound * losses[0], losses
        same(ours, plain, bound)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    channels.close()


def test_gradients_are_those_of_fsdp():
    compare()
    compare(reshard_after_forward=False)
    compare(words=dict(gather=False))


def test_sixteen_bits():
    compare(0.02, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    compare(0.02, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    compare(0.02, type=torch.bfloat16)
    compare(0.02, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float16))


def test_parameters_arrive_to_the_bit():
    for type in (torch.float32, torch.bfloat16, torch.float16):
        (plain, _), (ours, channels) = make(None, type), make(dict(codec="int4"), type)
        x = data(0).to(type)
        assert torch.equal(plain(x), ours(x))
        channels.close()


def test_accumulation_and_factors():
    def prepare(model):
        model.set_requires_gradient_sync(False)
        run(model, 10)
        model.set_requires_gradient_sync(True)
        model.set_force_sum_reduction_for_comms(True)
        model.set_gradient_divide_factor(3.0)
    compare(prepare=prepare)
    ours, channels = make({})
    ours.set_gradient_divide_factor(2.0)  # torch gives it to the reduction itself, which gloo cannot do
    for module in ours[0], ours[2]:
        module.set_gradient_divide_factor(2.0)
    plain, _ = make()
    for model in (plain, ours):
        run(model, 0)
    for p in plain.parameters():
        p.grad *= dist.get_world_size() / 2.0
    same(ours, plain)
    channels.close()


def test_prefetching():
    def prepare(model):
        model[0].set_modules_to_forward_prefetch([model[2]])
        model[2].set_modules_to_backward_prefetch([model[0]])
        for module in (model, model[0], model[2]):
            module._set_unshard_async_op(True)
        handle = model[0].unshard(async_op=True)
        handle.wait()
        model[0].reshard()
    compare(prepare=prepare)


def test_models_and_meshes():
    size = dist.get_world_size()
    if size % 2 == 0:
        compare(mesh=init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("copy", "shard")))
    pairs = [(make(None, seed=s)[0], make({}, seed=s)[0]) for s in (1, 2)]
    for side in (0, 1):
        sum((pair[side](data(0)) - 1).square().mean() for pair in pairs).backward()
    for plain, ours in pairs:
        same(ours, plain)


def test_training():
    final = {}
    for name, words in dict(plain=None, dense={}, int4=dict(codec="int4"), auto=dict(codec="auto"),
                            topk=dict(codec="topk", factor=4, warmup=0)).items():
        model, channels = make(words)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(50):
            optimizer.zero_grad()
            final[name] = run(model, step)
            optimizer.step()
        if channels:
            channels.close()
    assert all(loss < 0.1 for loss in final.values()), final  # it begins with more than 1


def test_residuals():
    """Steps with one gradient: the mean of what arrives comes to it, for a module keeps what a step has lost."""
    torch.manual_seed(5)
    weight = torch.randn(300, 7)
    model = nn.Linear(7, 300, bias=False)
    fully_shard(model)
    channels, steps, mean = tacit.fsdp(model, codec="topk", factor=10, warmup=0), 40, 0
    wanted = torch.randn(300, 7)
    for step in range(steps):
        model.zero_grad()
        (model(torch.eye(7)) * wanted.t()).sum().backward()
        mean = mean + whole(model.weight.grad) / steps
        if step == 0:
            assert distance(mean * steps, wanted) > 0.3
    assert distance(mean, wanted) < 0.3, distance(mean, wanted)
    channels.close()


def test_resume():
    words = dict(codec="topk", factor=10, values="int4", warmup=5)
    model, channels = make(words)
    for step in range(3):
        model.zero_grad()
        run(model, step)
    state = through_file(channels.state_dict())
    resumed, second = make(words)
    second.load_state_dict(state)
    again = second.state_dict()
    assert again.keys() == state.keys() and all(torch.equal(again[k], state[k]) for k in state if k != "ranks") and len(state) > 3
    for step in range(3, 6):
        for one in model, resumed:
            one.zero_grad()
            run(one, step)
        same(resumed, model, 0)
    refused(tacit.UsageError, "before the first step", lambda: second.load_state_dict(state))
    other, third = make(words)
    for error, text, wrong in ((tacit.DataError, "3 FSDP modules", {**state, "3.100": state}), (tacit.UsageError, "a tensor", {"0.9": 1}),
                               (tacit.DataError, f"of {state['ranks'] + 1} ranks", {**state, "ranks": state["ranks"] + 1})):
        refused(error, text, lambda: third.load_state_dict(wrong))
    assert third.state_dict().keys() == {"ranks"}
    third.load_state_dict({"0.41": state[min(set(state) - {"ranks"})]})  # of a length that the model has no sum of
    run(other, 0)
    for each in channels, second, third:
        each.close()


def test_transfers_under_way_are_counted():
    """Inside of one, as inside of a step, a program that ends says no goodbye."""
    model, channels = make({})
    comm, send = channels.comm_of(dist.group.WORLD), ReduceScatter(channels)
    works = []
    for count in (8, 16):
        source = torch.ones(count * dist.get_world_size())
        works.append(send(torch.empty(count), source, dist.group.WORLD, dist.ReduceOp.SUM, async_op=True))
    assert comm.transfers == 2, comm.transfers
    for left, work in zip((1, 0), works):
        work.wait()
        assert work.is_completed() and comm.transfers == left, comm.transfers
    channels.close()


def test_refusals():
    refused(tacit.UsageError, "fully_shard(model) comes first", lambda: tacit.fsdp(nn.Linear(3, 3)))
    refused(tacit.ConfigError, "unknown setting", lambda: tacit.fsdp(make()[0], codecc="int4"))
    for strategy in ("gossip", "shard"):
        refused(tacit.ConfigError, f"strategy {strategy} is more than FSDP's", lambda: tacit.fsdp(make()[0], strategy=strategy))
    for text, words in (("follows the steps of a job", dict(codec="topk", policy="gravac")),
                        ("needs the sum on all ranks", dict(codec="powersgd"))):
        refused(tacit.ConfigError, text, lambda: tacit.fsdp(make()[0], **words))
    model, channels = make({})
    refused(tacit.UsageError, "has a tacit.fsdp() already", lambda: tacit.fsdp(model))
    refused(tacit.UsageError, "tacit.fsdp(model)", lambda: tacit.Parallel(model))
    model, _ = make({}, torch.float64)
    refused(tacit.UnsupportedError, "reduce_dtype", lambda: run(model, 0, torch.float64))


def test_close():
    """Gives the model back to FSDP's own transfers, and it may have others again."""
    (plain, _), (ours, channels) = make(), make(dict(codec="int4"))
    run(ours, 9)
    channels.close()
    ours.zero_grad()
    for model in plain, ours:
        run(model, 0)
    same(ours, plain)
    ours.zero_grad()
    second = tacit.fsdp(ours)
    run(ours, 0)
    same(ours, plain)
    second.close()


def test_after_fork():
    model, channels = make({})
    run(model, 0)
    text = text_of_fork(lambda: run(model, 1))
    assert text.startswith("UsageError") and "fork" in text, text
    run(model, 1)
    channels.close()


def fail_rank():
    """Rank 1 dies in the middle of a step."""
    model, _ = make(dict(codec="int4", comm__timeout=2))
    for step in range(3):
        if dist.get_rank() == 1 and step == 2:
            model[1].register_full_backward_hook(lambda *_: os._exit(4))
        try:
            run(model, step)
        except tacit.PeerError as error:
            print("PeerError", error, flush=True)
            os._exit(5)


def run_failure(_):
    started = start_ranks(3)
    if started is None:
        prepare()
        fail_rank()
        return True
    texts = [rank.end(60) for rank in started]
    assert [rank.code for rank in started] == [5, 4, 5] and "rank 1 on host" in texts[0], texts
    return False


if __name__ == "__main__":
    run_tests(globals(), sys.argv[1:], prepare, run_failure)

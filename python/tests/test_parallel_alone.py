# SPDX-License-Identifier: Apache-2.0
"""tacit.torch.Parallel on one rank: 50 steps have the bits of the bare model and optimizer, whatever the loop does
between forward and step."""
import copy
import glob
import json
import os
import pathlib
import tempfile
import unittest
from functools import partial

import numpy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tacit as tacit_of
import tacit.numpy as of_numpy
import tacit.torch as tacit
from tacit.torch import _private
from models import ConvNet, Named, Net, OddShapes, Structured, loss_of, make, same_bits, state_of

torch.set_num_threads(1)  # small models, and other tests beside these
STEPS = 50
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)
def has_fused():
    """torch before 2.4 has it on GPUs alone."""
    try:
        return bool(torch.optim.AdamW([nn.Parameter(torch.zeros(1))], fused=True))
    except RuntimeError:
        return False


OPTIMIZERS = {"sgd": SGD, "adamw": partial(torch.optim.AdamW, lr=1e-2),
              "fused": partial(torch.optim.AdamW, lr=1e-2, fused=has_fused()),
              "foreach": partial(torch.optim.AdamW, lr=1e-2, foreach=True)}
if hasattr(torch.optim, "Adafactor"):
    OPTIMIZERS["adafactor"] = partial(torch.optim.Adafactor, lr=1e-2)
STRATEGIES = ({}, {"codec": "int4"}, {"codec": "topk", "factor": 5}, {"strategy": "gossip"}, {"strategy": "localsgd"},
              {"strategy": "none"})


def list_combinations():
    """Every optimizer under dp, and all strategies with one."""
    return [(name, optim, {}) for name, optim in OPTIMIZERS.items()] + [("fused", OPTIMIZERS["fused"], s) for s in STRATEGIES[1:]]


def plain_step(model, optimizer, batch, zero=True):
    optimizer.zero_grad(set_to_none=zero)
    loss = loss_of(model(batch))
    loss.backward()
    optimizer.step()
    return loss


class Calls:
    """Counts calls of a function."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def __call__(self, *words):
        self.count += 1
        return self.function(*words)

    def drain(self):
        count, self.count = self.count, 0
        return count


class Alone(unittest.TestCase):
    def train(self, model, optimizer, run, steps=STEPS):
        return [run(model, optimizer, step).detach().clone() for step in range(steps)]

    def check_same(self, build, run=None, optim=SGD, steps=STEPS, **settings):
        """The model alone and wrapped: losses, parameters, buffers, gradients and the optimizer's state."""
        run = run or (lambda model, optimizer, step: plain_step(model, optimizer, build.batch(step)))
        bare = make(build)
        bare_optimizer = optim(bare.parameters())
        torch.manual_seed(5)
        losses = self.train(bare, bare_optimizer, run, steps)
        module = make(build)
        optimizer = optim(module.parameters())
        model = tacit.Parallel(module, optimizer, **settings)
        torch.manual_seed(5)
        wrapped_losses = self.train(model, optimizer, run, steps)
        for step, (a, b) in enumerate(zip(losses, wrapped_losses)):
            self.assertTrue(same_bits(a, b), f"the loss of step {step}: {a} and {b}")
        for (name, a), (_, b) in zip(bare.state_dict().items(), model.state_dict().items()):
            self.assertTrue(same_bits(a, b), name)
            self.assertEqual(a.stride(), b.stride(), name)
        for (name, a), (_, b) in zip(bare.named_parameters(), model.named_parameters()):
            self.assertEqual(a.grad is None, b.grad is None, name)
            if a.grad is not None:
                self.assertTrue(same_bits(a.grad, b.grad), f"gradient of {name}")
        for i, (a, b) in enumerate(zip(state_of(bare_optimizer), state_of(optimizer))):
            self.assertTrue(same_bits(a, b), f"the optimizer's state {i}")
        self.assertEqual(list(bare.state_dict()), list(model.state_dict()))
        self.last_counters = model.counters()
        model.close()
        return losses

    def test_optimizers_and_strategies(self):
        for name, optim, settings in list_combinations():
            with self.subTest(optimizer=name, **settings):
                build = Net if name == "adafactor" else OddShapes  # it divides by the number of elements
                losses = self.check_same(build, optim=optim, **settings)
                self.assertLess(losses[-1], losses[0])
                self.assertEqual(self.last_counters["steps"], STEPS)

    def test_channels_last_and_batch_norm(self):
        def build():
            return ConvNet().to(memory_format=torch.channels_last)
        build.batch = lambda step: ConvNet.batch(step).to(memory_format=torch.channels_last)
        for settings in STRATEGIES[:2]:
            self.check_same(build, **settings)
        for buffers in ("broadcast", "own"):
            self.check_same(build, buffers=buffers)

    def test_no_sync_and_accumulation(self):
        def run(model, optimizer, step):
            optimizer.zero_grad()
            for part in range(3):
                if part < 2 and isinstance(model, tacit.Parallel):
                    with model.no_sync():
                        loss_of(model(OddShapes.batch(3 * step + part))).backward()
                else:
                    loss = loss_of(model(OddShapes.batch(3 * step + part)))
                    loss.backward()
            optimizer.step()
            return loss
        for settings in STRATEGIES:
            self.check_same(OddShapes, run, **settings)
            self.assertEqual(self.last_counters["steps"], STEPS)

    def test_used_in_no_sync_alone(self):
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = nn.Linear(12, 5), nn.Linear(12, 5)

            def forward(self, x, second):
                return (self.two if second else self.one)(x)

        def run(model, optimizer, step):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            if isinstance(model, tacit.Parallel):
                with model.no_sync():
                    loss_of(model(Net.batch(step), False)).backward()
            else:
                loss_of(model(Net.batch(step), False)).backward()
            loss = loss_of(model(Net.batch(step), True))
            loss.backward()
            optimizer.step()
            return loss
        self.check_same(Branches, run)

    def test_gradients_that_stay(self):
        self.check_same(OddShapes, lambda m, o, s: plain_step(m, o, OddShapes.batch(s), zero=False))
        self.check_same(OddShapes, lambda m, o, s: plain_step(m, o, OddShapes.batch(s), zero=False), strategy="gossip")

    def test_two_passes_and_retained_graph(self):
        def two_passes(model, optimizer, step):
            optimizer.zero_grad()
            loss_of(model(Net.batch(step))).backward()
            loss = loss_of(model(Net.batch(step + 100)))
            loss.backward()
            optimizer.step()
            return loss

        def retained(model, optimizer, step):
            optimizer.zero_grad()
            output = model(Net.batch(step))
            output.abs().mean().backward(retain_graph=True)
            loss = loss_of(output)
            loss.backward()
            optimizer.step()
            return loss

        def interleaved(model, optimizer, step):
            optimizer.zero_grad()
            one, two = model(Net.batch(step)), model(Net.batch(step + 100))
            loss_of(one).backward()
            loss = loss_of(two)
            loss.backward()
            optimizer.step()
            return loss

        def used_twice(model, optimizer, step):
            optimizer.zero_grad()
            loss = loss_of(model(Net.batch(step))) + model(Net.batch(step + 100)).abs().mean()
            loss.backward()
            optimizer.step()
            return loss
        for run, passes in ((two_passes, 2), (retained, 2), (interleaved, 2), (used_twice, 1)):
            with self.subTest(run=run.__name__):
                self.check_same(Net, run)
                self.assertEqual(self.last_counters["steps"], passes * STEPS)
                self.check_same(Net, run, strategy="gossip")
                self.assertEqual(self.last_counters["steps"], STEPS)

    def test_several_optimizers(self):
        class Both:
            def __init__(self, parameters):
                parameters = list(parameters)
                self.parts = (torch.optim.SGD(parameters[::2], lr=0.05, momentum=0.9),
                              torch.optim.AdamW(parameters[1::2], lr=0.01))

            def state_dict(self):
                return {"state": {i: s for i, s in enumerate(s for part in self.parts
                                                             for _, s in sorted(part.state_dict()["state"].items()))}}
        for settings in STRATEGIES:
            bare, module = make(Net), make(Net)
            ours = Both(module.parameters())
            model = tacit.Parallel(module, *ours.parts, **settings)
            for some, both in ((bare, Both(bare.parameters())), (model, ours)):
                for step in range(STEPS):
                    for part in both.parts:
                        part.zero_grad()
                    loss_of(some(Net.batch(step))).backward()
                    for part in both.parts:
                        part.step()
            for (name, a), (_, b) in zip(bare.named_parameters(), model.named_parameters()):
                self.assertTrue(same_bits(a, b), name)
            self.assertEqual(model.counters()["steps"], STEPS)
            model.close()

    def test_autocast_and_bf16(self):
        def autocast(model, optimizer, step):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model(Net.batch(step)))
            loss.backward()
            optimizer.step()
            return loss

        def build():
            return Net().bfloat16()
        build.batch = lambda step: Net.batch(step).bfloat16()

        def mixed():
            net = Net()
            net.last.bfloat16()
            net.last.register_forward_pre_hook(lambda _, inputs: (inputs[0].bfloat16(),))
            return net
        mixed.batch = Net.batch
        for settings in STRATEGIES:
            with self.subTest(**settings):
                self.check_same(Net, autocast, **settings)
                self.check_same(build, **settings)
                self.check_same(build, optim=OPTIMIZERS["adamw"], **settings)
                self.check_same(mixed, **settings)

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "torch before 2.3 scales on GPUs alone")
    def test_clipping_schedule_and_scaler(self):
        def run(model, optimizer, step):
            if step == 0:
                self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
                self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10, growth_interval=10)
            optimizer.zero_grad()
            loss = loss_of(model(Net.batch(step)))
            if step in (7, 20):
                loss = loss * float("inf")
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            self.scaler.step(optimizer)
            self.scaler.update()
            self.schedule.step()
            return loss
        for name, optim, settings in list_combinations():
            with self.subTest(optimizer=name, **settings):
                self.check_same(Net, run, optim=optim, **settings)

    def test_a_step_that_is_not_finite(self):
        """The optimizer makes no update: parameters and state are those of a run without that step."""
        for name, optim, settings in list_combinations():
            with self.subTest(optimizer=name, **settings):
                ours = {}
                for bad in (False, True):
                    module = make(Net)
                    optimizer = optim(module.parameters())
                    model = tacit.Parallel(module, optimizer, **settings)
                    for step in range(20):
                        plain_step(model, optimizer, Net.batch(step))
                        if bad and step == 10:
                            plain_step(model, optimizer, Net.batch(step) * float("nan"))
                            self.assertTrue(model.last_step.skipped)
                    self.assertEqual(model.counters()["skipped"], bad)
                    ours[bad] = [t.detach().clone() for t in (*module.parameters(), *state_of(optimizer))]
                    model.close()
                for a, b in zip(ours[False], ours[True]):
                    self.assertTrue(same_bits(a, b))

    def test_activation_checkpointing(self):
        class Checkpointed(Net):
            reentrant = False

            def forward(self, x):
                h = self.first(x)
                for part in self.block:
                    h = checkpoint(part, h, use_reentrant=self.reentrant)
                return self.last(torch.tanh(h))

        class Reentrant(Checkpointed):
            reentrant = True
        for build in (Checkpointed, Reentrant):
            for settings in STRATEGIES[:2]:
                with self.subTest(build=build.__name__, **settings):
                    self.check_same(build, **settings)
                    self.assertEqual(self.last_counters["steps"], STEPS)

    def test_the_whole_model_in_a_checkpoint(self):
        def run(model, optimizer, step):
            optimizer.zero_grad()
            loss = loss_of(checkpoint(model, Net.batch(step), use_reentrant=False))
            loss.backward()
            optimizer.step()
            return loss
        self.check_same(Net, run)

    def test_compiled_blocks(self):
        """TACIT_COMPILE=inductor compiles to machine code, which needs a C++ compiler and a minute."""
        def build():
            net = Net()
            net.block = torch.compile(net.block, backend=os.environ.get("TACIT_COMPILE", "aot_eager"))
            return net
        build.batch = Net.batch
        self.check_same(build)
        self.check_same(build, strategy="gossip")

    def test_outputs_of_any_kind(self):
        def structured(model, optimizer, step):
            optimizer.zero_grad()
            loss = loss_of(model(Net.batch(step)).more["list"][0].logits)
            loss.backward()
            optimizer.step()
            return loss

        def named(model, optimizer, step):
            optimizer.zero_grad()
            loss = model(Net.batch(step))["loss"]
            loss.backward()
            optimizer.step()
            return loss

        def by_attributes(model, optimizer, step):
            optimizer.zero_grad()
            loss = loss_of(model.last(torch.tanh(model.block(model.first(Net.batch(step))))))
            loss.backward()
            optimizer.step()
            return loss
        self.check_same(Structured, structured)
        self.check_same(Named, named)
        self.check_same(Net, by_attributes)
        self.assertEqual(self.last_counters["steps"], STEPS)

    def test_a_model_that_returns_a_parameter(self):
        class Weights(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(5))

            def forward(self):
                return self.w
        module = Weights()
        model = tacit.Parallel(module)
        for _ in range(3):
            model().square().sum().backward()
        self.assertFalse(module.w._backward_hooks)
        model.close()

    def test_small_gradients_share_a_call(self):
        """A call for each would take 2 us: 1000 of a few bytes, between which two of 1 MiB stand, take a few calls."""
        sizes = [3] * 500 + [1 << 18, 7, 1 << 18] + [3] * 497
        module = nn.ParameterList(torch.ones(size) for size in sizes)
        model = tacit.Parallel(module)
        model._job.report, calls = Calls(model._job.report), []
        for used in (range(1000), range(0, 1000, 2), [999], [0]):
            model.zero_grad()
            sum(model.module[i].sum() * (i + 1) for i in used).backward()
            calls.append(model._job.report.drain())
            for i, p in enumerate(module):
                self.assertTrue(p.grad is None or bool((p.grad == i + 1).all()))
                self.assertEqual(p.grad is None, i not in used)
        self.assertTrue(all(1 <= count <= 4 for count in calls), calls)
        model.close()

    def test_a_gradient_that_a_hook_takes_away(self):
        module = nn.Linear(3, 2)
        model = tacit.Parallel(module)
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
        with self.assertRaisesRegex(tacit.UsageError, "(weight|bias) lost its gradient before backward ended"):
            model(torch.ones(1, 3)).sum().backward()
        model.close()

    def test_a_gradient_that_a_hook_takes_away_once_it_is_under_way(self):
        """What the library reads and writes is held until the pass has ended."""
        module = nn.Sequential(nn.Linear(1, 1 << 16, bias=False), nn.Linear(1 << 16, 1, bias=False))
        model = tacit.Parallel(module)
        handles = [p.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None)) for p in module.parameters()]
        with self.assertRaisesRegex(tacit.UsageError, "[01].weight got another gradient, or None, before backward ended"):
            model(torch.ones(1, 1)).sum().backward()
        for handle in handles:
            handle.remove()
        model(torch.ones(1, 1)).sum().backward()
        self.assertEqual(model._held, [])
        model.close()

    def test_other_hooks_see_the_final_gradient(self):
        """A tensor's own hooks run as without the wrapper, and forward hooks too."""
        def run(model, optimizer, step):
            if step == 0:
                weight = dict(model.named_parameters())["first.weight"]
                weight.register_hook(lambda g: g * 2)
                model.last.register_forward_hook(lambda _, __, output: output * 0.5)
            return plain_step(model, optimizer, Net.batch(step))
        self.check_same(Net, run)

    def test_whether_memory_is_shared(self):
        alone, shared = torch.ones(5), torch.ones(5)
        view = shared.view(1, 5)
        self.assertEqual([_private.shares_memory(t) for t in (alone, shared, view)], [False, True, True])

    def test_an_order_in_memory_that_is_not_dense(self):
        class Strided(nn.Module):
            def __init__(self):
                super().__init__()
                self.transposed = nn.Parameter(torch.randn(12, 9).t() / 9)
                self.every_second = nn.Parameter(torch.randn(9, 10)[:, ::2] / 9)
                self.widened = nn.Parameter(torch.randn(5, 1).expand(5, 4))

            def forward(self, x):
                return x @ self.transposed.t() @ self.every_second @ self.widened
        bare, module = make(Strided), make(Strided)
        bare.widened = nn.Parameter(bare.widened.detach().clone(memory_format=torch.contiguous_format))
        optimizer, ours = torch.optim.SGD(bare.parameters(), lr=0.01), torch.optim.SGD(module.parameters(), lr=0.01)
        model = tacit.Parallel(module, ours)
        for step in range(10):
            plain_step(bare, optimizer, Net.batch(step))
            plain_step(model, ours, Net.batch(step))
        for (name, a), (_, b) in zip(bare.named_parameters(), model.named_parameters()):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
        model.close()

    def test_buffers_of_ones_own(self):
        module = make(Net)
        module.register_buffer("wide", torch.ones(1).expand(5))  # overlaps itself
        model = tacit.Parallel(module, buffers="own")
        with model.average():
            self.assertEqual(module.wide.tolist(), [1] * 5)
        model.close()

    def test_log_names_the_step_under_way(self):
        for strategy in ("dp", "gossip", "shard"):
            with tempfile.TemporaryDirectory() as folder:
                path, module = os.path.join(folder, "metrics.jsonl"), make(Net)
                optimizer = SGD(module.parameters())
                model = tacit.Parallel(module, optimizer, strategy=strategy, metrics=path, progress=True)
                for step in range(3):
                    optimizer.zero_grad()
                    loss = loss_of(model(Net.batch(step)))
                    model.log(before=step)
                    loss.backward()
                    model.log(between=step)
                    optimizer.step()
                    model.log(after=step)
                model.close()
                with open(path) as rows:
                    found = [[row[key] for key in ("step", "before", "between", "after")] for row in map(json.loads, rows)]
            self.assertEqual(found, [[step + 1, step, step, step] for step in range(3)], strategy)

    def test_training_goes_on_after_a_load_that_fails(self):
        for strategy in ("dp", "gossip", "shard"):
            with tempfile.TemporaryDirectory() as folder:
                module = make(Net)
                optimizer = SGD(module.parameters())
                model = tacit.Parallel(module, optimizer, strategy=strategy)
                plain_step(model, optimizer, Net.batch(0))
                tacit.save(folder, model, optimizer)
                for name in glob.glob(os.path.join(folder, "*", "*.safetensors")):
                    os.truncate(name, os.path.getsize(name) - 1)
                before = [p.detach().clone() for p in module.parameters()]
                with self.assertRaises(tacit_of.DataError):
                    tacit.load(folder, model, optimizer)
                self.assertTrue(all(map(same_bits, module.parameters(), before)), strategy)
                for step in range(3):
                    plain_step(model, optimizer, Net.batch(step))
                self.assertFalse(any(map(same_bits, module.parameters(), before)), strategy)
                model.close()

    def test_numbers_of_numpy(self):
        with tempfile.TemporaryDirectory() as folder:
            for strategy in ("dp", "shard"):
                module = make(Net)
                optimizer = SGD(module.parameters())
                model = tacit.Parallel(module, optimizer, strategy=strategy, steps=numpy.int64(50), optim__clip=numpy.float64(3))
                self.assertEqual(float(model.settings["optim.clip"]), 3)
                optimizer.param_groups[0]["lr"] = numpy.float64(0.03)
                plain_step(model, optimizer, Net.batch(0))
                tacit.save(folder, model, optimizer, step=numpy.int64(7))
                self.assertEqual(tacit.load(folder, model, optimizer), 7)
                model.close()

    def test_without_torch(self):
        kept = numpy.arange(5, dtype=numpy.float32)
        with tempfile.TemporaryDirectory() as folder:
            model = of_numpy.Model({"w": (numpy.int64(41), 2)}, optim__lr=numpy.float32(0.5))
            model.start()
            steps = []
            for _ in range(2):
                model.gradients["w"][:] = 1
                model.ready()
                steps.append(model.finish())
            self.assertEqual([step.number for step in steps], [1, 2])
            model.save(pathlib.Path(folder), [tacit_of.Blob("kept", kept.reshape(5, 1))])
            model.close()
            trained = model["w"]
            model, blob = of_numpy.Model({"w": (41, 2)}), tacit_of.Blob("kept")
            self.assertTrue(model.load(os.fsencode(folder), [blob]))
            self.assertEqual(blob.data, kept.tobytes())
            model.comm.close()
            self.assertTrue(trained.all() and (model["w"] == trained).all())

    def test_average_and_revert(self):
        for settings in STRATEGIES:
            module = make(lambda: ConvNet())
            module.last.bfloat16()
            module.last.register_forward_pre_hook(lambda _, inputs: (inputs[0].bfloat16(),))
            optimizer = SGD(module.parameters())
            model = tacit.Parallel(module, optimizer, **settings)
            plain_step(model, optimizer, ConvNet.batch(0))
            before = copy.deepcopy(module.state_dict())
            with model.average() as distance:
                self.assertEqual(distance, 0)
                with torch.no_grad():
                    model.eval()(ConvNet.batch(1))
                for key, value in module.state_dict().items():
                    self.assertTrue(same_bits(before[key], value), key)
            model.train()
            for key, value in module.state_dict().items():
                self.assertTrue(same_bits(before[key], value), key)
            plain_step(model, optimizer, ConvNet.batch(1))
            model.close()

    def test_states_of_parts_that_come_back(self):
        """Nothing stays of the job before: neither its gradients nor a step that has no update."""
        module = make(Net)
        optimizer = SGD(module.parameters())
        model = tacit.Parallel(module, optimizer, strategy="shard")
        plain_step(model, optimizer, Net.batch(0))
        model.load_state_dict(model.state_dict())
        optimizer.zero_grad(set_to_none=False)
        self.assertTrue(all(p.grad is None for group in optimizer.param_groups for p in group["params"]))
        loss_of(model(Net.batch(0))).backward()
        model.load_state_dict(model.state_dict())
        plain_step(model, optimizer, Net.batch(0))
        model.close()

    def test_state_dict_comes_back(self):
        module = make(Net)
        optimizer = SGD(module.parameters())
        model = tacit.Parallel(module, optimizer)
        kept = copy.deepcopy(model.state_dict())
        plain_step(model, optimizer, Net.batch(0))
        model.load_state_dict(kept)
        for key, value in module.state_dict().items():
            self.assertTrue(same_bits(kept[key], value))
        plain_step(model, optimizer, Net.batch(0))
        model.close()
        model = tacit.Parallel(module, optimizer)  # once more, now that it is free
        plain_step(model, optimizer, Net.batch(0))
        model.close()
        model.close()

    def test_the_integral_is_for_first_moments(self):
        for kind, words, gain in ((torch.optim.SGD, dict(lr=0.1), 0), (torch.optim.SGD, dict(lr=0.1, momentum=0.9), 0.2),
                                  (torch.optim.AdamW, {}, 0.2)):
            module = make(Net)
            for asked in (None, 0.05):
                model = tacit.Parallel(module, kind(module.parameters(), **words), strategy="gossip", integral=asked)
                self.assertEqual(float(model.settings["gossip.integral"]), gain if asked is None else asked)
                model.close()

    def test_attributes(self):
        model = tacit.Parallel(make(Net))
        self.assertIs(model.first, model.module.first)
        self.assertIs(model.batch, Net.batch)
        with self.assertRaisesRegex(AttributeError, "'Net' object has no attribute 'lsat'"):
            model.lsat
        self.assertEqual([n for n, _ in model.named_parameters()], [n for n, _ in model.module.named_parameters()])
        model.close()


if __name__ == "__main__":
    unittest.main()

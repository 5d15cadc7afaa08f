# SPDX-License-Identifier: Apache-2.0
"""Checkpoints, strategy shard and metrics on several ranks: torchrun --nproc-per-node 3 python/tests/ranks_state.py
FOLDER, and then on 2 ranks with the same folder, which go on from what 3 have saved."""
import contextlib
import json
import os
import sys
import unittest
from unittest import mock

import numpy
import torch
from torch import nn

import tacit.numpy as arrays
import tacit.torch as tacit
from models import ConvNet, Net, OddShapes, PartlyFrozen, loss_of, make, same_bits
from tacit.torch import checkpoint
from tacit.torch.buffers import write_bytes
from tacit.torch.checkpoint import list_frozen, mean_of
from tacit.torch.moments import join, sum_parts

torch.set_num_threads(1)
RANK, SIZE, FOLDER = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv.pop()
STEPS, SAVED, SAMPLES = 16, 9, 4
STRATEGIES = {"dp": {}, "topk": {"codec": "topk", "factor": 7, "compress__warmup": 4}, "gossip": {"strategy": "gossip"},
              "mixes": {"strategy": "gossip", "topology": "base-k", "codec": "int4"},
              "localsgd": {"strategy": "localsgd", "every": 3}, "shard": {"strategy": "shard"},
              "coded": {"strategy": "shard", "stage": 2, "codec": "int4", "compress__gather": "int8"}}


def adamw(model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def moments_of(optimizer):
    return [value for _, state in sorted(optimizer.state_dict()["state"].items()) for _, value in sorted(state.items())]


class Loop:
    """A model with dropout, an optimizer and a scheduler, and data by the generator of torch."""

    def __init__(self, build=ConvNet, seed=1, optimizer=adamw, **settings):
        self.build, module = build, make(build)
        self.optimizer = optimizer(module)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 5, 0.5)
        self.model = tacit.Parallel(module, self.optimizer, **settings)
        torch.manual_seed(100 * seed + RANK)

    def step(self, clip=True):
        x = torch.randn(self.build.batch(0, SAMPLES).shape)
        self.optimizer.zero_grad()
        loss_of(self.model(x)).backward()
        if clip:
            self.model.clip_grad_norm_(0.5)
        self.optimizer.step()
        self.schedule.step()

    def save(self, folder, step):
        tacit.save(folder, self.model, self.optimizer, self.schedule, step=step)

    def load(self, folder):
        return tacit.load(folder, self.model, self.optimizer, self.schedule)


class Sampler:
    """An object whose state is not that of other ranks."""

    def __init__(self, rank):
        self.seen = list(range(1000 * rank))

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


class States(unittest.TestCase):
    def check_same(self, a, b):
        for (name, x), y in zip(a.state_dict().items(), b.state_dict().values()):
            self.assertTrue(same_bits(x, y), name)

    def test_resumed_is_uninterrupted(self):
        for name, settings in STRATEGIES.items():
            with self.subTest(name):
                folder = os.path.join(FOLDER, f"{name}-{SIZE}")
                whole = Loop(**settings)
                self.assertEqual(whole.load(folder), 0)
                for step in range(STEPS):
                    if step == SAVED:
                        whole.save(folder, step)
                        torch.save(moments_of(whole.optimizer), f"{folder}-{RANK}.moments")
                    whole.step()
                resumed = Loop(seed=7, **settings)
                resumed.step()  # load() forgets it
                self.assertEqual(resumed.load(folder), SAVED)
                for step in range(SAVED, STEPS):
                    resumed.step()
                self.check_same(whole.model, resumed.model)
                self.assertEqual(resumed.optimizer.param_groups[0]["lr"], whole.optimizer.param_groups[0]["lr"])
                whole.model.close()
                resumed.model.close()

    @unittest.skipUnless(SIZE == 2, "goes on from 3 ranks")
    def test_other_numbers_of_ranks(self):
        for name in ("dp", "topk", "gossip", "mixes", "localsgd"):
            with self.subTest(name):
                loop = Loop(seed=7, **STRATEGIES[name])
                self.assertEqual(loop.load(os.path.join(FOLDER, f"{name}-3")), SAVED)
                with loop.model.average() as distance:
                    self.assertEqual(distance, 0)  # all begin with the mean
                saved = [torch.load(os.path.join(FOLDER, f"{name}-3-{rank}.moments")) for rank in range(3)]
                for value, *of_ranks in zip(moments_of(loop.optimizer), *saved):
                    torch.testing.assert_close(value, torch.stack(of_ranks).mean(0), rtol=1e-5, atol=1e-9)
                loop.step()
                loop.model.close()

    def test_gossip_begins_with_steps_of_dp(self):
        """In int8, where the number of steps is known; a checkpoint of them goes on as if nothing had been."""
        folder = os.path.join(FOLDER, f"start-{SIZE}")
        dp, gossip = Loop(codec="int8"), Loop(strategy="gossip", steps=12)
        loops = [dp, gossip]
        for step in range(8):
            if step == 3:
                gossip.save(folder, step)
                loops.append(Loop(seed=7, strategy="gossip", steps=12))
                self.assertEqual(loops[-1].load(folder), step)
            for loop in loops:
                torch.manual_seed(10 * step + RANK)
                loop.step(clip=False)
            if step < 6:
                self.check_same(gossip.model, dp.model)
        self.check_same(gossip.model, loops[2].model)
        self.assertFalse(all(same_bits(a, b) for a, b in zip(gossip.model.parameters(), dp.model.parameters())))
        for loop in loops:
            loop.model.close()

    def test_a_parameter_that_one_rank_uses_in_steps_of_dp(self):
        model = nn.ParameterDict({"all": nn.Parameter(torch.ones(10)), "some": nn.Parameter(torch.ones(41))})
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        parallel = tacit.Parallel(model, optimizer, strategy="gossip", steps=30)
        for _ in range(2):
            optimizer.zero_grad()
            (model["all"].sum() + (model["some"].sum() if RANK == 0 else 0)).backward()
            optimizer.step()
        self.assertLess(float(model["some"].detach().max()), 0.9)
        with parallel.average() as distance:
            self.assertLess(distance, 1e-6)
        parallel.close()

    def test_under_other_strategies(self):
        """What one strategy has saved, another goes on from: with the mean of parameters and optimizers."""
        for former, now in (("gossip", "shard"), ("gossip", "dp"), ("localsgd", "shard"), ("shard", "gossip"), ("dp", "localsgd")):
            with self.subTest(f"{former} to {now}"):
                folder = os.path.join(FOLDER, f"{former}-{now}-{SIZE}")
                saved, loaded = Loop(**STRATEGIES[former]), Loop(seed=7, **STRATEGIES[now])
                for _ in range(5):
                    saved.step()
                saved.save(folder, 5)
                self.assertEqual(loaded.load(folder), 5)
                with saved.model.average(), loaded.model.average():
                    for (name, a), b in zip(saved.model.named_parameters(), loaded.model.parameters()):
                        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8, msg=name)
                self.check_states(self.state_of(loaded), self.state_of(saved), lambda a, b: torch.allclose(a, b, 1e-6, 1e-12))
                self.assertEqual(loaded.schedule.state_dict(), saved.schedule.state_dict())
                loaded.step()
                saved.model.close()
                loaded.model.close()

    def state_of(self, loop):
        return mean_of(loop.model, loop.optimizer, loop.optimizer.state_dict())

    def load_from_three(self, name, **settings):
        loop = Loop(seed=7, **settings)
        self.assertEqual(loop.load(os.path.join(FOLDER, f"{name}-3")), SAVED)
        return loop

    @unittest.skipUnless(SIZE == 2, "goes on from 3 ranks")
    def test_parts_of_other_ranks(self):
        """What 3 ranks had in parts 2 have in theirs, and dp as a whole; and the other way round."""
        dp = self.load_from_three("dp")
        for name in ("shard", "coded"):
            with self.subTest(name):
                whole = self.load_from_three(name)
                parts = self.load_from_three(name, **STRATEGIES[name])
                joined = join(parts.model, parts.optimizer)
                self.check_states(joined, whole.optimizer.state_dict(), same_bits)
                if name == "shard":
                    self.check_states(joined, dp.optimizer.state_dict(), lambda a, b: torch.allclose(a, b, 1e-4, 1e-7))
                whole.step()
                parts.step()
                whole.model.close()
                parts.model.close()
        split = self.load_from_three("dp", strategy="shard")
        self.check_states(join(split.model, split.optimizer), dp.optimizer.state_dict(), same_bits)
        for loop in (split, dp):
            torch.manual_seed(RANK)
            for _ in range(3):
                loop.step()
        with split.model.average():
            for (name, a), b in zip(split.model.named_parameters(), dp.model.parameters()):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=name)
        split.model.close()
        dp.model.close()
        one_group = Loop(optimizer=lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2), strategy="shard")
        with self.assertRaisesRegex(tacit.DataError, "parameters in its groups, and AdamW has"):
            one_group.load(os.path.join(FOLDER, "dp-3"))
        one_group.model.close()

    def check_states(self, a, b, are_same):
        self.assertEqual([g["params"] for g in a["param_groups"]], [g["params"] for g in b["param_groups"]])
        self.assertEqual(sorted(a["state"]), sorted(b["state"]))
        for key, entry in a["state"].items():
            self.assertEqual(sorted(entry), sorted(b["state"][key]))
            for name, value in entry.items():
                self.assertEqual(value.shape, b["state"][key][name].shape)
                self.assertTrue(are_same(value, b["state"][key][name]), f"{name} of {key}")

    def test_parts_begin_inside_of_tensors(self):
        """More floats than one sum moves, and another order in memory: a state of dp that is split and joined is the same, and
        close() gives the optimizer its parameters back, also after load()."""
        def build():
            return nn.ModuleDict({"conv": nn.Conv2d(32, 64, 3).to(memory_format=torch.channels_last), "wide": nn.Linear(1100, 1000)})
        whole, module, folder = build(), build(), os.path.join(FOLDER, f"inside-{SIZE}")
        torch.manual_seed(3)
        for p in whole.parameters():
            p.grad = torch.randn_like(p)
        trained = torch.optim.AdamW(whole.parameters())
        trained.step()
        dp = tacit.Parallel(whole, trained, strategy="dp")
        tacit.save(folder, dp, trained)
        dp.close()
        optimizer = torch.optim.AdamW(module.parameters())
        model = tacit.Parallel(module, optimizer, strategy="shard")
        tacit.load(folder, model, optimizer)
        self.check_states(join(model, optimizer), trained.state_dict(), same_bits)
        model.close()
        self.assertEqual([id(p) for p in optimizer.param_groups[0]["params"]], [id(p) for p in module.parameters()])

    def test_parts_follow_from_settings(self):
        """Ranks have other parts in other buckets: each finds the moments of its own."""
        first, folder = Loop(strategy="shard"), os.path.join(FOLDER, f"buckets-{SIZE}")
        for _ in range(3):
            first.step()
        first.save(folder, 3)
        saved = join(first.model, first.optimizer)
        first.model.close()
        second = Loop(seed=7, strategy="shard", exchange__bucket="1KiB")
        self.assertEqual(second.load(folder), 3)
        self.check_states(join(second.model, second.optimizer), saved, same_bits)
        second.step()
        second.model.close()

    def test_steps_that_count_anew(self):
        """They need another folder, as load() takes the newest."""
        loop, folder = Loop(strategy="gossip"), os.path.join(FOLDER, f"anew-{SIZE}")
        for step in range(3):
            loop.step()
            if step != 1:
                loop.save(folder, step + 1)
        with loop.model.average(), self.assertRaisesRegex(tacit.UsageError, "leave model.average.. before you save"):
            loop.save(folder, 3)
        loop.model.load_state_dict(loop.model.state_dict())
        loop.step()
        with self.assertRaisesRegex(tacit.UsageError, "holds the checkpoint of step 3, .* newer than this one of step 1: save to another"):
            loop.save(folder, 4)
        loop.step()
        loop.save(folder + "-again", 4)
        loop.model.close()
        if RANK == 0:
            os.truncate(os.path.join(folder, "step_00000003", "manifest.json"), 9)
        other = Loop(strategy="gossip")
        self.assertEqual(other.load(folder), 1)
        other.step()
        other.save(folder, 2)
        other.model.close()

    def test_a_part_that_several_ranks_have_counts_once(self):
        loop = Loop(strategy="shard")
        floats = loop.model._tensors.layout.floats
        total = sum_parts(torch.full((floats,), 3.0), [(7, 5)] if RANK > 0 else [], loop.model._tensors, loop.model._rank_buffers)
        self.assertEqual(total.tolist(), [3.0 if 7 <= i < 12 else 3.0 * SIZE for i in range(floats)])
        loop.model.close()

    def test_what_load_refuses(self):
        loop, folder = Loop(), os.path.join(FOLDER, f"other-{SIZE}")
        loop.save(folder, 1)
        with self.assertRaisesRegex(tacit.UsageError, r"holds 2 objects beside the model \(AdamW, StepLR\), and.*1 \(AdamW\)"):
            tacit.load(folder, loop.model, loop.optimizer)
        for objects in ((loop.schedule, loop.optimizer), (loop.optimizer, loop.optimizer)):
            with self.assertRaisesRegex(tacit.UsageError, "AdamW, StepLR in this order.*in the order of save"):
                tacit.load(folder, loop.model, *objects)
        loop.model.close()
        other = Loop(Net)
        with self.assertRaises(tacit.DataError):
            other.load(folder)
        other.model.close()
        larger = tacit.Parallel(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), comm=tacit.default_comm())
        tacit.save(folder + "-larger", larger)
        larger.close()
        smaller = tacit.Parallel(nn.Sequential(nn.Linear(3, 3)), comm=tacit.default_comm())
        with self.assertRaisesRegex(tacit.DataError, "has a trained parameter 1.bias, and the model trains none"):
            tacit.load(folder + "-larger", smaller)
        smaller.close()

    def test_a_checkpoint_in_place_of_its_folder(self):
        for settings in ({}, {"strategy": "gossip"}):
            loop, folder = Loop(**settings), os.path.join(FOLDER, f"step-{SIZE}")
            loop.step()
            loop.save(folder, 1)
            with self.assertRaisesRegex(tacit.UsageError, f"is a checkpoint, and load.. takes.*load.'{folder}'"):
                loop.load(os.path.join(folder, max(os.listdir(folder))))
            loop.step()  # nothing has changed
            self.assertEqual(loop.load(folder), 1)
            loop.model.close()
        model = arrays.Model({"w": (3,)}, comm=tacit.default_comm())
        with self.assertRaisesRegex(tacit.UsageError, "is a checkpoint"):
            model.load(os.path.join(folder, max(os.listdir(folder))))
        model.close()

    def wrap_frozen(self, seed, **settings):
        module = make(PartlyFrozen, seed)
        optimizer = torch.optim.SGD(module.last.parameters(), lr=0.1)
        return module, optimizer, tacit.Parallel(module, optimizer, **settings)

    def save_frozen(self, folder, change=lambda module: None, **settings):
        module, optimizer, model = self.wrap_frozen(1 + RANK, **settings)
        loss_of(model(PartlyFrozen.batch(RANK))).backward()
        optimizer.step()
        with torch.no_grad():
            change(module)
        tacit.save(folder, model, optimizer, step=1)
        model.close()
        return {name: p.detach().clone() for name, p in module.named_parameters() if not p.requires_grad}

    def load_frozen(self, folder, **settings):
        module, optimizer, model = self.wrap_frozen(7, **settings)
        self.assertEqual(tacit.load(folder, model, optimizer), 1)
        model.close()
        return {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}

    def test_frozen_parameters(self):
        for name in ("dp", "gossip", "shard"):
            folder = os.path.join(FOLDER, f"frozen-{name}-{SIZE}")
            saved = self.save_frozen(folder, **STRATEGIES[name])
            for now in (name, "localsgd"):
                loaded = self.load_frozen(folder, **STRATEGIES[now])
                self.assertEqual(list(loaded), ["short", "none", "mask", "column", "conv.weight", "conv.bias"])
                for key, value in loaded.items():
                    self.assertTrue(same_bits(value, saved[key]), f"{key} of {name} under {now}")
                self.assertTrue(loaded["conv.weight"].is_contiguous(memory_format=torch.channels_last))
            if SIZE == 2:
                others = self.load_frozen(os.path.join(FOLDER, f"frozen-{name}-3"), **STRATEGIES[name])
                self.assertTrue(all(same_bits(others[key], saved[key]) for key in saved))

    def test_frozen_parameters_that_differ(self):
        """Those of a teacher that follows its replica: every rank gets its own back, and other strategies the mean. Those
        that are the same on all ranks stand in the checkpoint once."""
        folder, kept = os.path.join(FOLDER, f"teacher-{SIZE}"), []
        with mock.patch.object(checkpoint, "list_frozen", lambda model: kept.append(list_frozen(model)) or kept[-1]):
            saved = self.save_frozen(folder, lambda module: module.short.add_(64.0 * RANK), strategy="gossip")
        self.assertEqual(list(kept[0][1]), ["short"])
        for strategy in ("gossip", "dp"):
            loaded = self.load_frozen(folder, strategy=strategy)
            away = 0 if strategy == "gossip" else 64.0 * ((SIZE - 1) / 2 - RANK)
            torch.testing.assert_close(loaded["short"].float(), saved["short"].float() + away, rtol=0, atol=1)
            self.assertTrue(all(same_bits(loaded[key], saved[key]) for key in saved if key != "short" or strategy == "gossip"))

    def test_frozen_parameters_that_are_missing(self):
        folder = os.path.join(FOLDER, f"missing-{SIZE}")
        self.save_frozen(folder)
        for name, value, text in (("more", torch.ones(3), "more has no requires_grad, and the checkpoint has no such"),
                                  ("short", torch.ones(3), r"has a parameter without requires_grad short of \(41,\)")):
            module = make(PartlyFrozen)
            setattr(module, name, nn.Parameter(value, requires_grad=False))
            model = tacit.Parallel(module)
            optimizer = torch.optim.SGD(module.last.parameters(), lr=0.1)
            with self.assertRaisesRegex(tacit.DataError, text):
                tacit.load(folder, model, optimizer)
            model.close()

    def test_replicas_that_use_different_parameters(self):
        """A mean of moments is one of the ranks that have them; a checkpoint holds the same state whoever writes it."""
        for strategy in ("gossip", "localsgd"):
            folder = os.path.join(FOLDER, f"used-{strategy}-{SIZE}")
            branches = nn.ParameterList([nn.Parameter(torch.ones(7 + i)) for i in range(5)])
            optimizer = torch.optim.NAdam(branches.parameters(), lr=0.01)
            model = tacit.Parallel(branches, optimizer, strategy=strategy)
            for step in range(3):
                optimizer.zero_grad()
                used = [i for i in range(4) if i in (3, RANK) or (i == 2 and RANK != 1)]
                sum((1 + RANK + step) * branches[i].sum() for i in used).backward()
                optimizer.step()
            torch.save(optimizer.state_dict()["state"], f"{folder}-{RANK}.state")
            mean = mean_of(model, optimizer, optimizer.state_dict())
            states = [torch.load(f"{folder}-{rank}.state") for rank in range(SIZE)]
            self.assertEqual(len(states[RANK]), len(used))
            self.assertEqual(sorted(mean["state"]), [0, 1, 2, 3])
            for key, entry in mean["state"].items():
                for name, value in entry.items():
                    of_ranks = [state[key][name] for state in states if key in state]
                    torch.testing.assert_close(value, torch.stack(of_ranks).mean(0), rtol=1e-6, atol=0)
            self.assertEqual(len(set(map(bytes, model._rank_buffers.gather(bytes(write_bytes(mean)))))), 1)
            tacit.save(folder, model, optimizer, step=3)
            model.close()
            for now, wanted in ((strategy, optimizer.state_dict()), ("dp", mean)):
                again = torch.optim.NAdam(branches.parameters(), lr=0.01)
                model = tacit.Parallel(branches, again, strategy=now)
                self.assertEqual(tacit.load(folder, model, again), 3)
                self.check_states(again.state_dict(), wanted, same_bits)
                model.close()

    def test_objects_whose_states_differ(self):
        """Each rank gets its own back, and another number of ranks rank 0's, which may have another size."""
        folder, kept = os.path.join(FOLDER, f"sampler-{SIZE}"), Sampler(RANK)
        model = tacit.Parallel(make(Net))
        tacit.save(folder, model, kept, step=1)
        for name, rank in ((folder, RANK), (os.path.join(FOLDER, "sampler-3"), 0))[:4 - SIZE]:
            sampler = Sampler(9)
            self.assertEqual(tacit.load(name, model, sampler), 1)
            self.assertEqual(sampler.state_dict(), Sampler(rank).state_dict())
        model.close()

    def test_numbers_of_numpy_in_states(self):
        """As schedulers with numpy in their lambda leave them; what load() could not read is not saved at all."""
        folder, optimizer = os.path.join(FOLDER, f"numbers-{SIZE}"), sgd(make(Net))
        optimizer.param_groups[0]["lr"] = numpy.float64(0.25)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: numpy.cos(step / 10))
        model = tacit.Parallel(make(Net))
        tacit.save(folder, model, schedule, Sampler(numpy.int64(0)), step=1)
        self.assertEqual(tacit.load(folder, model, schedule, Sampler(0)), 1)
        self.assertEqual(schedule.get_last_lr(), [0.25])
        odd = Sampler(0)
        odd.seen = {"order": numpy.arange(3)}
        with self.assertRaisesRegex(tacit.DataError, "the state of Sampler holds numpy.*load.. could not read: let state_dict"):
            tacit.save(folder, model, odd)
        model.close()

    def test_buffers_that_no_state_has(self):
        """One that is not persistent may have another shape on every rank and in every step."""
        class Cached(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.BatchNorm1d(12)
                self.inner.register_buffer("cache", torch.zeros(1), persistent=False)

            def forward(self, x):
                self.inner.cache = torch.ones(len(x) + RANK)
                return self.inner(x)
        folder, model = os.path.join(FOLDER, f"cache-{SIZE}"), tacit.Parallel(make(Cached))
        loss_of(model(Net.batch(0))).backward()
        with model.average():
            self.assertEqual(len(model.inner.cache), 8 + RANK)
        tacit.save(folder, model, step=3)
        mean = model.inner.running_mean.clone()
        model.close()
        model = tacit.Parallel(make(Cached))
        self.assertEqual(tacit.load(folder, model), 3)
        self.assertTrue(same_bits(model.inner.running_mean, mean))
        model.close()

    def test_buffers_of_each_ranks_own(self):
        """Of any shape; another number of ranks gets rank 0's."""
        def with_buffer(rank, value):
            module = make(Net)
            module.register_buffer("state", torch.full((3 + 99 * rank,), float(value)))
            return tacit.Parallel(module, buffers="own")
        folder, model = os.path.join(FOLDER, f"own-{SIZE}"), with_buffer(RANK, 10 + RANK)
        tacit.save(folder, model, step=3)
        model.close()
        for name, rank in ((folder, RANK), (os.path.join(FOLDER, "own-3"), 0))[:4 - SIZE]:
            model = with_buffer(rank, 0)
            self.assertEqual(tacit.load(name, model), 3)
            self.assertTrue(torch.equal(model.state, torch.full((3 + 99 * rank,), 10.0 + rank)))
            model.close()

    def run_odd(self, optimizer=adamw, **settings):
        """20 steps with accumulation, two passes in a step, a skipped one, clipping, and an update that is left out."""
        loop = Loop(OddShapes, optimizer=optimizer, **settings)
        model, optimizer = loop.model, loop.optimizer
        for step in range(20):
            x = OddShapes.batch(step, SIZE * SAMPLES)[RANK * SAMPLES:(RANK + 1) * SAMPLES]
            if step == 7 and RANK == SIZE - 1:
                x[0] = float("nan")
            optimizer.zero_grad()
            if step == 3:
                with model.no_sync():
                    loss_of(model(x)).backward()
            loss_of(model(x)).backward()
            if step == 9:
                loss_of(model(x)).backward()
            norm = float(model.clip_grad_norm_(0.3))
            self.assertEqual(norm == norm, step != 7)
            if step != 12:
                optimizer.step()
        with model.average():
            parameters = [p.detach().clone() for p in model.parameters() if p.requires_grad and p.numel()]
        state = sum(v.numel() for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor) and v.dim())
        model.close()
        return parameters, state

    def test_shard_is_dp(self):
        names = [n for n, p in make(OddShapes).named_parameters() if p.requires_grad and p.numel()]
        for optimizer in (adamw, sgd):  # the first hardly feels what clipping does
            dp, all_state = self.run_odd(optimizer)
            for stage in (1, 2):
                shard, state = self.run_odd(optimizer, strategy="shard", stage=stage)
                for name, a, b in zip(names, dp, shard):
                    self.assertLessEqual(float((a - b).norm() / a.norm()), 2e-6, name)
                self.assertLess(state, all_state * (1 / SIZE + 0.1))

    def test_looking_at_16_bits_changes_nothing(self):
        """Their parts have 32, which an evaluation and a checkpoint leave alone."""
        runs = []
        for looks in (False, True):
            module = make(Net).bfloat16()
            optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
            model = tacit.Parallel(module, optimizer, strategy="shard")
            for step in range(8):
                optimizer.zero_grad()
                loss_of(model(Net.batch(step).bfloat16())).backward()
                optimizer.step()
                if looks and step % 2:
                    with model.average():
                        pass
                    tacit.save(os.path.join(FOLDER, f"looks-{SIZE}"), model, optimizer)
            runs.append([p.detach().clone() for p in module.parameters()])
            model.close()
        self.assertTrue(all(same_bits(a, b) for a, b in zip(*runs)))

    def test_what_shard_refuses(self):
        net = make(Net)
        with self.assertRaisesRegex(tacit.UnsupportedError, "LBFGS"):
            tacit.Parallel(net, torch.optim.LBFGS(net.parameters()), strategy="shard")
        with self.assertRaisesRegex(tacit.UnsupportedError, "fsdp"):
            tacit.Parallel(net, adamw(net), strategy="shard", stage=3)
        with self.assertRaisesRegex(tacit.UsageError, "optimizer"):
            tacit.Parallel(net, strategy="shard")
        other = torch.nn.Parameter(torch.ones(41))
        with self.assertRaisesRegex(tacit.UsageError, r"shape \(41,\) that is not the model's"):
            tacit.Parallel(net, torch.optim.SGD([*net.parameters(), other], lr=0.1), strategy="shard")
        tacit.Parallel(net, strategy="dp").close()  # none of them has kept the parameters

    def test_metrics_of_a_file_that_is_not_there(self):
        with self.assertRaisesRegex(tacit.FileError, "metrics='/proc/nowhere/rows': .*No such file"):
            Loop(metrics="/proc/nowhere/rows")

    def test_metrics(self):
        path = os.path.join(FOLDER, f"metrics-{SIZE}-{RANK}", "run", "metrics.jsonl")
        before = Loop(metrics=f"{path}.topk", codec="topk", factor=4, warmup=0)  # over the same communicator
        before.step()
        self.assertEqual(before.model.last_step.factor, 4 if SIZE > 1 else 0)
        before.model.close()
        loop = Loop(metrics=path)
        begin = loop.model.counters()["bytes_sent"]
        for step in range(3):
            loop.step()
            loop.model.log(loss=step + 0.5)
        sent = loop.model.counters()["bytes_sent"] - begin
        loop.model.close()
        self.assertEqual(os.path.exists(path), RANK == 0)
        if RANK == 0:
            with open(path) as file, open(f"{path}.topk") as compressed:
                rows, row = [json.loads(line) for line in file], json.loads(compressed.read())
            self.assertEqual("factor" in row and (row["factor"], 0.1 < row["kept"] < 0.5, 0 < row["gain"] <= 1),
                             SIZE > 1 and (4, True, True), row)
            self.assertEqual([(r["step"], r["loss"]) for r in rows], [(1, 0.5), (2, 1.5), (3, 2.5)])
            self.assertEqual(rows[1]["bytes_sent"], rows[2]["bytes_sent"])  # of one step, not of all so far
            self.assertEqual(sum(r["bytes_sent"] for r in rows), sent)
            self.assertTrue(all(r["grad_norm"] > 0 and r["bytes_sent"] > 0 and r["step_s"] > 0 for r in rows))

    def test_metrics_of_a_step_that_ends_after_its_update(self):
        """Its row has the average, its bytes and the skip, and not the next one's."""
        path = os.path.join(FOLDER, f"rows-{SIZE}-{RANK}")
        loop = Loop(Net, metrics=path, strategy="localsgd", every=2, codec="topk", factor=4, warmup=0)
        for step in range(4):
            loop.optimizer.zero_grad()
            loss_of(loop.model(Net.batch(step) * (float("nan") if step == 2 else 1))).backward()
            loop.optimizer.step()
        loop.model.close()
        if RANK == 0:
            with open(path) as file:
                rows = [json.loads(line) for line in file]
            self.assertEqual([(row["step"], row["skipped"]) for row in rows], [(1, 0), (2, 0), (3, 1), (4, 1)])
            averages = [SIZE > 1 and step % 2 for step in range(4)]
            for key in ("bytes_sent", "gain", "kept"):
                self.assertEqual([row.get(key, 0) > 0 for row in rows], averages, key)


if __name__ == "__main__":
    unittest.main(failfast=True)

# SPDX-License-Identifier: Apache-2.0
"""Steps as scripts write them, on several ranks, against strategy dp or a second way to write them: closures, a GradScaler,
zero_grad() of model and optimizer, several backward passes, parameters that nobody uses. As ranks_parallel.py."""
import logging
import unittest

import torch
import torch.distributed as dist
from torch import nn

import tacit.torch as tacit
from models import Net, loss_of, make, same_bits, state_of
from ranks_parallel import RANK, SAMPLES, SIZE, mine, sgd

ALL = ("dp", "shard", "gossip", "localsgd")
has_scaler = unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "torch before 2.3 scales on GPUs alone")


class Head(nn.Module):
    """A parameter that is used, and one that a forward pass may leave out."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(41, 10), nn.Linear(10, 3)
        self.unused = nn.Parameter(torch.ones(7))
        self.uses_head = True

    def forward(self, x):
        return self.head(self.body(x)) if self.uses_head else self.body(x)


class Small(nn.Module):
    """Less than a part of every rank's in what is used."""

    def __init__(self):
        super().__init__()
        self.last, self.idle = nn.Linear(4, 1), nn.Parameter(torch.ones(200))

    def forward(self, x):
        return self.last(x)


class Unreadable:
    """An object whose state load() could not read."""

    def state_dict(self):
        return {"module": Small}


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.3)


def copies(module):
    return [p.detach().clone() for p in module.parameters()]


def batch(step):
    return mine(Net.batch(step, SIZE * SAMPLES))


class Steps(unittest.TestCase):
    def check_close(self, a, b):
        for x, y in zip(a, b):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)

    def check_same(self, a, b):
        self.assertTrue(all(same_bits(x, y) for x, y in zip(a, b)))

    def both(self, run, optimizer=sgd, before=None):
        """What `run` returns under dp and under shard. before: what is done with the module that is wrapped then."""
        out = []
        for strategy in ("dp", "shard"):
            module = make(Head)
            own = optimizer(module)
            if before is not None:
                before(module)
            model = tacit.Parallel(module, own, strategy=strategy)
            out.append(run(model, own))
            model.close()
        return out

    def test_closures(self):
        """A step with a closure is the one in which backward() comes first; a gradient that is not finite is not applied."""
        for strategy in ALL:
            for bad in (None, 2):
                runs = []
                for with_closure in (False, True):
                    module = make(Net)
                    optimizer = sgd(module)
                    model = tacit.Parallel(module, optimizer, strategy=strategy)
                    for step in range(5):
                        def closure():
                            optimizer.zero_grad()
                            loss = loss_of(model(batch(step) * (float("nan") if step == bad and RANK == SIZE - 1 else 1)))
                            loss.backward()
                            return loss
                        if with_closure:
                            self.assertIsInstance(optimizer.step(closure=closure) if step % 2 else optimizer.step(closure), torch.Tensor)
                        else:
                            closure()
                            optimizer.step()
                    runs.append(copies(module))
                    model.close()
                self.assertTrue(all(bool(p.isfinite().all()) for p in runs[1]), strategy)
                self.check_same(*runs)

    def test_a_closure_that_is_called_again(self):
        """As LBFGS does, here with a gradient that is not finite in the second call alone."""
        class Twice(torch.optim.SGD):
            def step(self, closure=None):
                for _ in range(2):
                    with torch.enable_grad():
                        closure()
                    super().step()

        for strategy in ALL:
            module, calls = make(Net), []
            try:
                optimizer = Twice(module.parameters(), lr=0.05)
                model = tacit.Parallel(module, optimizer, strategy=strategy)
            except tacit.UnsupportedError:
                continue

            def closure():
                calls.append(1)
                optimizer.zero_grad()
                loss_of(model(batch(0) * (float("nan") if len(calls) == 2 and RANK == 0 else 1))).backward()
            optimizer.step(closure)
            self.assertTrue(all(bool(p.isfinite().all()) for p in module.parameters()), strategy)
            model.close()

    @has_scaler
    def test_the_norm_is_that_of_the_gradient_as_it_is(self):
        def run(model, optimizer):
            scaler, norms = torch.amp.GradScaler("cpu", init_scale=1024.0), []
            for step in range(3):
                optimizer.zero_grad()
                scaler.scale(model(torch.ones(2, 41) + RANK).sum()).backward()
                scaler.unscale_(optimizer)
                norms += [model.clip_grad_norm_(3.0), model.clip_grad_norm_(2.0)]
                scaler.step(optimizer)
                scaler.update()
            return norms + copies(model.module)
        dp, shard = self.both(run)
        self.check_close(shard, dp)
        self.assertAlmostEqual(float(dp[1]), 3.0, places=4)

    def test_a_part_that_several_ranks_have_counts_once(self):
        """As with shard.over host."""
        class Twice:
            gather, sum_of = staticmethod(lambda places: [places, places]), staticmethod(lambda squares: 2 * squares)

        module = make(Head)
        optimizer = sgd(module)
        model = tacit.Parallel(module, optimizer, strategy="shard")
        model(torch.ones(2, 41)).sum().backward()
        own = [p.grad.flatten() for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        torch.testing.assert_close(model._parts.norm(Twice()), torch.cat([torch.zeros(1), *own]).norm())
        model.close()

    @has_scaler
    def test_a_scaler_where_ranks_have_no_part(self):
        """Or one that nobody uses. All scales see the overflow of one rank. Nobody who reads the state sees the parameter that
        stands in, and a save() that is refused leaves it."""
        runs = []
        for strategy in ("dp", "shard"):
            module, scaler = make(Small), torch.amp.GradScaler("cpu", init_scale=256.0)
            optimizers = [torch.optim.AdamW([module.last.weight, module.idle]), torch.optim.AdamW([module.last.bias], lr=0.1)]
            model = tacit.Parallel(module, *optimizers, strategy=strategy)
            groups = [[group["params"] for group in o.state_dict()["param_groups"]] for o in optimizers]
            for step in range(5):
                model.zero_grad()
                scaler.scale(model(torch.ones(2, 4) / (step != 2 or RANK < SIZE - 1)).sum()).backward()
                self.assertEqual([[group["params"] for group in o.state_dict()["param_groups"]] for o in optimizers], groups)
                with self.assertRaises(tacit.DataError):
                    tacit.save("never made", model, *optimizers, Unreadable())
                for optimizer in optimizers:
                    optimizer.load_state_dict(optimizer.state_dict())
                    if step % 2:
                        scaler.unscale_(optimizer)
                    scaler.step(optimizer)
                scaler.update()
                self.assertEqual(scaler.get_scale(), 256.0 if step < 2 else 128.0)
            self.assertEqual(model.counters()["skipped"], 1)
            model.close()
            runs.append([*copies(module), *state_of(optimizers[0]), *state_of(optimizers[1])])
        self.assertEqual(len(runs[0]), 3 + 2 * 3)
        self.check_same(*runs)

    @has_scaler
    def test_a_scaler_of_replicas(self):
        """Every rank makes every step; an overflow costs its own rank an update, and no more."""
        for strategy in ("gossip", "localsgd"):
            module = make(Net)
            optimizer, scaler = sgd(module), torch.amp.GradScaler("cpu", init_scale=256.0)
            model = tacit.Parallel(module, optimizer, strategy=strategy)
            for step in range(6):
                optimizer.zero_grad()
                loss = loss_of(model(batch(step))) * (float("inf") if step == 3 and RANK == 0 else 1)
                scaler.scale(loss).backward()
                if step % 2:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
            self.assertEqual(scaler.get_scale(), 128.0 if RANK == 0 else 256.0)
            self.assertEqual((model.counters()["steps"], model.counters()["skipped"]), (6, int(RANK == 0)))
            with model.average():
                self.assertTrue(all(bool(p.isfinite().all()) for p in module.parameters()))
            model.close()
            self.assertFalse(getattr(optimizer, "_step_supports_amp_scaling", False))

    @has_scaler
    def test_a_scaler_of_replicas_changes_no_step(self):
        """Scales are powers of two."""
        for strategy in ("gossip", "localsgd"):
            runs = []
            for scale in (None, 64.0):
                module = make(Net)
                optimizer = adamw(module)
                model = tacit.Parallel(module, optimizer, strategy=strategy)
                scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
                for step in range(4):
                    optimizer.zero_grad()
                    scaler.scale(loss_of(model(batch(step)))).backward()
                    scaler.step(optimizer)
                    scaler.update()
                runs.append(copies(module))
                model.close()
            self.check_same(*runs)

    def test_passes_without_a_step_between_them_in_halves(self):
        """A pass that begins finds its parameters as its forward pass has left them."""
        def run(model, optimizer):
            for step in range(4):
                optimizer.zero_grad()
                for _ in range(2):
                    model(torch.ones(2, 41, dtype=torch.bfloat16) + RANK).sum().backward()
                if step != 1:
                    optimizer.step()
            return copies(model.module)
        dp, shard = self.both(run, before=lambda module: module.bfloat16())
        for a, b in zip(dp, shard):
            torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)

    def test_two_passes_of_which_one_is_not_finite(self):
        def run(model, optimizer):
            before, skipped = copies(model.module), []
            for bad in (0, 1):
                optimizer.zero_grad()
                for number in range(2):
                    model(torch.full((2, 41), float("nan") if number == bad and RANK == 0 else 1.0)).sum().backward()
                skipped.append(bool(model.last_step.skipped))
                optimizer.step()
            self.check_same(copies(model.module), before)
            optimizer.zero_grad()  # the gradient that was not finite is gone
            model(torch.ones(2, 41)).sum().backward()
            optimizer.step()
            return skipped + [bool(model.last_step.skipped)], copies(model.module)
        (told, dp), (told_by_shard, shard) = self.both(run)
        self.assertEqual((told, told_by_shard), ([True, True, False], [True, True, False]))
        self.check_close(shard, dp)

    def test_gradients_that_are_kept(self):
        """Over a pass without a step, and over an evaluation after it: the next pass adds to them."""
        def run(looks, model, optimizer):
            for step in range(6):
                model(torch.ones(2, 41) * (RANK + step)).sum().backward()
                if step != 4:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=step == 1)
                elif looks:
                    with model.average():
                        pass
            return copies(model.module)
        for optimizer in (adamw, sgd):
            for looks in (False, True):
                dp, shard = self.both(lambda *both: run(looks, *both), optimizer)
                self.check_close(shard, dp)

    def test_gradients_that_were_used(self):
        """A step begins without them, however the program clears them; where it does not, the log says so, once."""
        def run(clear, model, optimizer):
            for step in range(4):
                model(torch.ones(2, 41) * (RANK + step)).sum().backward()
                optimizer.step()
                clear(model)
            return copies(model.module)
        clears = (lambda model: model.module.zero_grad(), lambda model: [setattr(p, "grad", None) for p in model.parameters()])
        with self.assertLogs("tacit", "WARNING") as logged:
            for clear in clears:
                dp, shard = self.both(lambda *both: run(clear, *both))
                self.check_close(shard, dp)
        self.assertEqual([line.count("has not cleared") for line in logged.output], [1, 1])

    def test_a_gradient_that_is_not_finite_is_not_kept(self):
        def run(model, optimizer):
            model(torch.full((2, 41), float("nan"))).sum().backward()
            with model.average():
                pass
            model(torch.ones(2, 41)).sum().backward()
            optimizer.step()
            return all(bool(p.isfinite().all()) for p in copies(model.module))
        self.assertEqual(self.both(run), [True, True])

    def test_a_second_step_of_one_pass(self):
        """Under shard the others would not learn of it."""
        module = make(Net)
        optimizer = sgd(module)
        model = tacit.Parallel(module, optimizer, strategy="shard")
        optimizer.step()  # without gradients: nothing to do
        for step in range(2):
            loss_of(model(batch(step))).backward()
            optimizer.step()
            before = copies(module)
            with self.assertRaisesRegex(tacit.UsageError, r'SGD.step\(\) without a backward pass .*call backward\(\) again, .*"dp"'):
                optimizer.step()
            self.check_same(copies(module), before)
            optimizer.zero_grad()
            optimizer.step()
        model.close()

    def test_zero_grad(self):
        """Of the optimizer and of the model, before the model is wrapped and after: what they clear is not applied."""
        def backward(module):
            module(torch.ones(2, 41) * (RANK + 1)).sum().backward()

        def train(name, model, optimizer):
            for _ in range(2):
                if name == "no_sync":
                    with model.no_sync():
                        backward(model)
                if name in ("no_sync", "before"):
                    optimizer.zero_grad()
                backward(model)
                if name.startswith("model"):
                    model.zero_grad(name == "model, to none")
                optimizer.step()
            return copies(model.module)
        for name in ("no_sync", "model, to none", "model, to zero", "before"):
            dp, shard = self.both(lambda *both: train(name, *both), before=backward if name == "before" else None)
            self.check_close(shard, dp)
        self.assertNotIn("zero_grad", vars(self.closed_optimizer()))

    def train_in_turns(self, optimizer, freezes=False, turns=3, **settings):
        """Two steps and close(), three times, or freezes `first` in the second of them; the parameters and the state after."""
        module = make(Net)
        own = optimizer(module)
        for turn in range(turns):
            module.first.requires_grad_(not freezes or turn != 1)
            model = tacit.Parallel(module, own, **settings)
            for step in range(6 // turns):
                loss_of(model(batch(6 // turns * turn + step))).backward()
                own.step()
                model.zero_grad()
            model.close()
        return copies(module) + state_of(own), own

    def test_closing_and_wrapping_again(self):
        """Goes on to the bit, and leaves an optimizer that has the state of whole parameters. With small buckets a rank has several
        parts of a parameter."""
        for optimizer in (adamw, sgd):
            dp, alone = self.train_in_turns(optimizer)
            for stage, bucket in ((1, 0), (2, 0), (2, "2KiB")):
                words = dict(strategy="shard", stage=stage, exchange__bucket=bucket)
                whole, _ = self.train_in_turns(optimizer, turns=1, **words)
                turns, own = self.train_in_turns(optimizer, **words)
                self.assertEqual(len(turns), len(whole))
                self.check_same(turns, whole)
                self.check_close(turns, dp)
                self.assertEqual([list(s) for s in own.state.values()], [list(s) for s in alone.state.values()])
                self.assertTrue(all(a is b for a, b in zip(own.state, own.param_groups[0]["params"])))

    def test_freezing_between(self):
        """A frozen parameter keeps its state, as under dp."""
        for optimizer in (adamw, sgd):
            dp, shard = [self.train_in_turns(optimizer, freezes=True, strategy=s)[0] for s in ("dp", "shard")]
            self.assertEqual(len(shard), len(dp))
            self.check_close(shard, dp)

    def test_closing_after_an_exception(self):
        """Other ranks may be elsewhere, so that the state cannot be gathered; it is dropped, and the log says so."""
        module = make(Net)
        optimizer = adamw(module)
        model = tacit.Parallel(module, optimizer, strategy="shard")
        loss_of(model(batch(0))).backward()
        optimizer.step()
        with self.assertLogs("tacit", "WARNING") as logged:
            try:
                raise KeyError("mine")
            except KeyError:
                model.close()
        self.assertRegex(logged.output[0], "state of the optimizers is lost")
        self.assertEqual(optimizer.state_dict()["state"], {})
        loss_of(module(batch(0))).backward()
        optimizer.step()

    def closed_optimizer(self):
        module = make(Head)
        optimizer = sgd(module)
        tacit.Parallel(module, optimizer, strategy="shard").close()
        return optimizer

    def test_parameters_that_nobody_uses(self):
        """Neither decay nor momentum moves them; what one rank uses is moved on all."""
        def run(model, optimizer):
            for step in range(6):
                model.module.uses_head = step < 2 or (step < 4 and RANK == 0)
                if step == 5:
                    model.module.body.bias.requires_grad_(False)
                    with model.average():
                        self.assertFalse(model.module.body.bias.requires_grad)
                optimizer.zero_grad()
                model(torch.ones(2, 41) * (RANK + step)).sum().backward()
                optimizer.step()
            return copies(model.module)
        for optimizer in (adamw, sgd):
            dp, shard = self.both(run, optimizer)
            self.check_close(shard, dp)
            self.assertTrue(same_bits(shard[0], torch.ones(7)))

    def test_methods_of_an_optimizer_come_back(self):
        module = make(Head)
        optimizer = sgd(module)
        optimizer.zero_grad = own = lambda set_to_none=True: None
        model = tacit.Parallel(module, optimizer, strategy="shard")
        self.assertIsNot(optimizer.zero_grad, own)
        model.close()
        self.assertIs(optimizer.zero_grad, own)
        self.assertTrue({"state_dict", "load_state_dict"}.isdisjoint(vars(optimizer)))

    def test_parameters_without_an_optimizer(self):
        module = make(Head)
        with self.assertRaisesRegex(tacit.UsageError, r"head.weight is trained, and no optimizer .* tacit.Parallel\(model, first, second\)"):
            tacit.Parallel(module, torch.optim.SGD([*module.body.parameters(), module.unused], lr=0.1), strategy="shard")
        optimizer = sgd(module)
        model = tacit.Parallel(module, optimizer, strategy="shard")
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
        model(torch.ones(2, 41)).sum().backward()
        with self.assertRaisesRegex(tacit.UsageError, r"SGD.add_param_group\(\) after the model was wrapped"):
            optimizer.step()
        model.close()

    @unittest.skipUnless(SIZE > 1, "of ranks that differ")
    def test_ranks_that_meet_after_unequal_steps(self):
        module = make(Net)
        optimizer = sgd(module)
        model = tacit.Parallel(module, optimizer, strategy="none")
        for step in range(3 if RANK == 0 else 2):
            optimizer.zero_grad()
            loss_of(model(batch(step))).backward()
            optimizer.step()
        words = "after different numbers of steps: 3 and, on rank 1, 2; every rank makes"
        with self.assertRaisesRegex(tacit.UsageError, words), model.average():
            pass
        with self.assertRaisesRegex(tacit.UsageError, words):
            model.close()

    @unittest.skipUnless(SIZE > 1, "of ranks that mix")
    def test_parameters_that_change_between_steps(self):
        """All become 0.5. Where the next step, which makes no update, undoes that, it says so, once."""
        def fill(model):
            with torch.no_grad():
                for p in model.parameters():
                    p.fill_(0.5)

        def load(model):
            model.load_state_dict({name: torch.full_like(value, 0.5) for name, value in model.state_dict().items()})

        for change, kept, words in ((fill, False, {}), (fill, True, dict(order="atc")), (load, True, {}),
                                    (lambda model: load(model.module), False, {}), (fill, True, dict(exchange__overlap=False)),
                                    (fill, True, dict(every=2)), (fill, True, dict(delay=1, gamma=0.5)),
                                    (fill, False, dict(codec="int4")), (fill, True, dict(steps=20, start=0.3)),
                                    (fill, False, dict(steps=20, start=0.1)), (fill, True, dict(strategy="localsgd"))):
            with self.subTest(words=words, change=change), self.assertLogs("tacit", "WARNING") as logged:
                logging.getLogger("tacit").warning("ours")
                module = make(Net)
                optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
                model = tacit.Parallel(module, optimizer, **{"strategy": "gossip", **words})
                for step in range(6):
                    if step in (2, 4):
                        with model.average():
                            pass
                        change(model)
                    loss_of(model(batch(step))).backward()
                    optimizer.step()
                    if step == 2:
                        self.assertEqual(all(torch.allclose(p, torch.tensor(0.5)) for p in module.parameters()), kept)
                model.close()
            self.assertEqual(sum("changed between two steps" in line for line in logged.output), 0 if kept else 1)

    @unittest.skipUnless(SIZE > 1, "of ranks that mix")
    def test_parameters_that_the_library_changes(self):
        """Those of 16 bits are copies of its own: nobody is told of that."""
        with self.assertLogs("tacit", "WARNING") as logged:
            logging.getLogger("tacit").warning("ours")
            module = make(Net).bfloat16()
            optimizer = sgd(module)
            model = tacit.Parallel(module, optimizer, strategy="gossip")
            for step in range(4):
                with model.average():
                    pass
                loss_of(model(batch(step).bfloat16())).backward()
                optimizer.step()
            model.close()
        self.assertEqual(len(logged.output), 1, logged.output)

    @unittest.skipUnless(SIZE > 1, "of ranks that differ")
    def test_models_whose_buffers_differ(self):
        def with_buffer(value):
            module = make(Net)
            module.register_buffer("state", value)
            return module
        for text, settings, module in (
                ("buffer state: torch.float32", {}, with_buffer(torch.ones(3 + (RANK == 1)))),
                ("buffer state: torch.float32", {}, with_buffer(torch.ones(3)) if RANK == 1 else make(Net)),
                ("buffers='own'", {"buffers": "own" if RANK == 1 else "average"}, with_buffer(torch.ones(3))),
                ("parameter first.weight: torch.bfloat16", {}, make(Net).bfloat16() if RANK == 1 else make(Net))):
            with self.assertRaisesRegex(tacit.UsageError, f"ranks have different models: .*{text}.* on rank"):
                tacit.Parallel(module, **settings)
        tacit.Parallel(with_buffer(torch.ones(3 + RANK)), buffers="own").close()  # each rank its own

    @unittest.skipUnless(SIZE > 1, "of ranks that differ")
    def test_optimizers_that_differ(self):
        for strategy in ALL:
            module = make(Net)
            with self.assertRaisesRegex(tacit.Error, "differ"):
                tacit.Parallel(module, adamw(module) if RANK else sgd(module), strategy=strategy)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    unittest.main(failfast=True)

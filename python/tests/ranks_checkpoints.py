# SPDX-License-Identifier: Apache-2.0
"""What load() takes and refuses of a checkpoint of another model or optimizer, on several ranks: python/tests/ranks.py 2
python/tests/ranks_checkpoints.py."""
import atexit
import logging
import shutil
import tempfile
import unittest

import torch
import torch.distributed as dist

import tacit.torch as tacit
from models import Net, loss_of, make, same_bits, state_of
from ranks_parallel import RANK, SAMPLES, SIZE, mine

STRATEGIES, REPLICAS = ("dp", "shard"), ("gossip", "localsgd", "none")


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def share_folder():
    """The same for all ranks, until the program ends."""
    folders = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folders)
    if RANK == 0:
        atexit.register(shutil.rmtree, folders[0], ignore_errors=True)
    return folders[0]


class Run:
    """A model of which `first` may be frozen, and an optimizer."""

    def __init__(self, optimizer, strategy, seed=1, frozen=False, dtype=torch.float32):
        self.module, self.dtype = make(Net, seed).to(dtype), dtype
        self.module.first.requires_grad_(not frozen)
        self.optimizer, self.strategy = optimizer(self.module.parameters()), strategy
        self.wrap()

    def wrap(self):
        self.model = tacit.Parallel(self.module, self.optimizer, strategy=self.strategy)

    def step(self, number=0):
        self.optimizer.zero_grad()
        loss_of(self.model(mine(Net.batch(number, SIZE * SAMPLES)).to(self.dtype))).backward()
        self.optimizer.step()

    def save(self, step=1):
        self.step()
        folder = share_folder()
        tacit.save(folder, self.model, self.optimizer, step=step)
        return folder

    def load(self, folder):
        return tacit.load(folder, self.model, self.optimizer)

    def values(self):
        return [p.detach().clone() for p in self.module.parameters()] + state_of(self.optimizer)


class Checkpoints(unittest.TestCase):
    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "torch before 2.3 scales on GPUs alone")
    def test_after_a_step_that_a_scaler_has_left_out(self):
        """Where a rank has no part of an optimizer, too."""
        def wrap():
            module = torch.nn.Linear(4, 1)
            parts = adamw([module.weight]), adamw([module.bias])
            return module, parts, tacit.Parallel(module, *parts, strategy="shard")

        module, parts, model = wrap()
        scaler, folder = torch.amp.GradScaler("cpu", init_scale=2.0), share_folder()
        for step in range(3):
            model.zero_grad()
            scaler.scale(model(torch.ones(2, 4) / (step != 2 or RANK < SIZE - 1)).sum()).backward()
            for optimizer in parts:
                scaler.step(optimizer)
            scaler.update()
        tacit.save(folder, model, *parts)
        other, states, again = wrap()
        self.assertEqual(tacit.load(folder, again, *states), model.counters()["steps"])
        for one, two in ((module.parameters(), other.parameters()), *((state_of(a), state_of(b)) for a, b in zip(parts, states))):
            one, two = list(one), list(two)
            self.assertTrue(len(one) == len(two) and all(map(same_bits, one, two)))
        again.close()
        model.close()

    def refuses(self, kind, text, run, folder):
        """And goes on as if load() had not been called."""
        before = run.values()
        with self.assertRaisesRegex(kind, text):
            run.load(folder)
        self.assertTrue(all(same_bits(a, b) for a, b in zip(run.values(), before)))
        run.step(1)
        run.model.close()

    def test_nothing_to_load(self):
        """Between two steps: replicas stay apart, and the exchange goes on."""
        folder = share_folder()
        for strategy in STRATEGIES + REPLICAS:
            with self.subTest(strategy):
                runs = [Run(sgd, strategy) for _ in range(2)]
                for number in range(5):
                    for run in runs:
                        run.step(number)
                    if number == 2:
                        self.assertEqual(runs[1].load(folder), 0)
                self.assertEqual(*[run.model.counters()["steps"] for run in runs])
                self.assertTrue(all(map(same_bits, *[run.values() for run in runs])))
                for run in runs:
                    run.model.close()

    def test_another_optimizer(self):
        for strategy in STRATEGIES + REPLICAS:
            for one, other, text in ((sgd, adamw, "the state of SGD, and .* AdamW, whose groups also need betas, eps: load it into"),
                                     (adamw, sgd, "the state of AdamW, and .* SGD, whose groups also need dampening, momentum")):
                saved = Run(one, strategy)
                folder = saved.save()
                saved.model.close()
                for dtype in (torch.float32, torch.bfloat16):
                    run = Run(other, strategy, seed=2, dtype=dtype)
                    run.step()
                    self.refuses(tacit.UsageError, text, run, folder)

    def test_a_relative_of_the_optimizer(self):
        class Mine(torch.optim.Adam):
            """Its groups are Adam's."""
        saved = Run(adamw, "dp")
        folder = saved.save()
        for kind in (torch.optim.Adam, Mine):
            run = Run(lambda parameters: kind(parameters, lr=0.5), "dp", seed=2)
            self.assertEqual(run.load(folder), 1)
            self.assertTrue(all(same_bits(a, b) for a, b in zip(run.values(), saved.values())))
            run.model.close()
        saved.model.close()

    def test_freezing(self):
        """The way of which the errors tell, in both directions: values and state are those that were saved."""
        for strategy in STRATEGIES:
            for frozen in (True, False):
                saved = Run(adamw, strategy, frozen=frozen)
                folder = saved.save()
                run = Run(adamw, strategy, seed=2, frozen=not frozen)
                run.step()
                self.refuses(tacit.DataError, r"first.bias.*requires_grad has .* as it was saved, load\(\), close\(\), ch", run, folder)
                run = Run(adamw, strategy, seed=2, frozen=frozen)
                self.assertEqual(run.load(folder), 1)
                for one in (run, saved):
                    one.model.close()
                self.assertTrue(all(same_bits(a, b) for a, b in zip(run.values(), saved.values())))
                for one in (run, saved):
                    one.module.first.requires_grad_(frozen)
                    one.wrap()
                    one.step(1)
                    one.model.close()
                self.assertEqual(len(run.values()), len(saved.values()))
                self.assertTrue(all(same_bits(a, b) for a, b in zip(run.values(), saved.values())))

    def test_steps(self):
        run = Run(sgd, "dp")
        for step in (-1, 1.5, "7", torch.tensor(3)):
            with self.assertRaisesRegex(tacit.UsageError, "step is .*: the step where the loop goes on, an integer of 0 or more, is exp"):
                tacit.save("/nowhere", run.model, run.optimizer, step=step)
        self.assertEqual(run.load(run.save(step=0)), 0)
        run.model.close()

    def test_a_checkpoint_of_half_a_step(self):
        """Is told of where it is one; after the step, and without a codec, it is not."""
        for settings, says in (({}, 0), ({"codec": "int4"}, 1), ({"strategy": "shard"}, 1), ({"strategy": "gossip"}, 0)):
            module = make(Net)
            optimizer, folder = sgd(module.parameters()), share_folder()
            model = tacit.Parallel(module, optimizer, **settings)
            with self.assertLogs("tacit", "WARNING") as logged:
                logging.getLogger("tacit").warning("ours")
                for step in range(2):
                    optimizer.zero_grad()
                    loss_of(model(mine(Net.batch(step, SIZE * SAMPLES)))).backward()
                    if step == 1:
                        tacit.save(folder, model, optimizer)
                    else:
                        optimizer.step()
                        tacit.save(folder, model, optimizer)
                self.assertEqual(tacit.load(folder, model, optimizer), model.counters()["steps"])
                tacit.save(folder, model, optimizer)  # of a whole step again
            self.assertEqual(sum("half a step" in line for line in logged.output), says, logged.output)
            model.close()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    unittest.main(failfast=True)

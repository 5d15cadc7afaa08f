# SPDX-License-Identifier: Apache-2.0
"""Ranks that are killed, frozen, interrupted, that raise, or leave early: the others get an exception that names them,
in time, and no process is left. TACIT_KILLS: how often a rank is killed (default 1, and it is frozen as often)."""
import os
import signal
import socket
import sys
import time
import unittest

import torch
from torch.utils.data import DataLoader, Dataset

from launch import free_port, launch
from models import Net, loss_of, make

TIMEOUT = 2.0
MOMENT = 1.0


class Endless(Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        return torch.full((12,), float(i % 7))


def train(rank, steps, strategy="dp", workers=0, at=lambda rank, step, place: None, timeout=TIMEOUT):
    """Trains, and calls `at` between steps ("between"), in backward ("inside") and before the update ("update")."""
    import tacit.torch as tacit
    module = make(Net)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    model = tacit.Parallel(module, optimizer, strategy=strategy, timeout=timeout)
    step = 0
    module.first.weight.register_hook(lambda g: at(rank, step, "inside"))
    loader = iter(DataLoader(Endless(), batch_size=4, num_workers=workers)) if workers else None
    for step in range(steps):
        x = next(loader) if loader else Net.batch(step)
        if step == 3:
            print("begun", os.getpid(), flush=True)
        at(rank, step, "between")
        optimizer.zero_grad()
        loss_of(model(x)).backward()
        at(rank, step, "update")
        optimizer.step()
    print("done", flush=True)


class Faults(unittest.TestCase):
    def tearDown(self):
        for rank in self.ranks:
            rank.kill(signal.SIGCONT)
            rank.kill()
            rank.wait(5)
            rank.log.close()

    def launch(self, *arguments, work=train, size=2, **named):
        self.ranks = launch(work, size, *arguments, **named)
        return self.ranks

    def wait_begun(self):
        end = time.monotonic() + 30
        while not all("begun" in rank.text() for rank in self.ranks):
            self.assertLess(time.monotonic(), end, [r.text() for r in self.ranks])
            time.sleep(0.02)
        time.sleep(0.2)

    def check_named(self, rank, culprit, seconds, began, text=""):
        """The rank has ended with a PeerError that names the culprit, in time."""
        self.assertTrue(rank.wait(seconds), f"still there after {seconds} s: {rank.text()}")
        self.assertEqual(rank.status, 1, rank.text())
        last = [line for line in rank.text().splitlines() if "PeerError" in line]
        self.assertTrue(last, rank.text())
        self.assertRegex(last[-1], rf"rank {culprit}\b.*{text}")
        return rank.ended - began

    def lose(self, number, workers, strategy):
        self.launch(1 << 30, strategy, workers)
        self.wait_begun()
        began = time.monotonic()
        self.ranks[1].kill(number)
        took = self.check_named(self.ranks[0], 1, TIMEOUT + 1 + MOMENT, began)
        self.assertEqual(self.ranks[0].orphans(), [])
        if number == signal.SIGSTOP:
            self.ranks[1].kill(signal.SIGCONT)
            self.assertTrue(self.ranks[1].wait(TIMEOUT + 3), "the rank that was frozen does not end")
        self.assertTrue(self.ranks[1].wait(1))
        self.assertEqual(self.ranks[1].orphans(), [])
        return took

    def test_a_rank_that_is_killed_or_frozen(self):
        took = {}
        for i in range(int(os.environ.get("TACIT_KILLS", "1"))):
            for number in (signal.SIGKILL, signal.SIGSTOP):
                for strategy in ("dp", "gossip"):
                    took.setdefault(number.name, []).append(self.lose(number, 4, strategy))
                    self.assertLessEqual(took[number.name][-1], TIMEOUT + 1, f"{number.name} under {strategy}")
        print("".join(f"\n{name}: {len(t)} of {len(t)} named, after {min(t):.2f} to {max(t):.2f} s" for name, t in took.items()))

    def test_an_exception_on_one_rank(self):
        def fail(rank, step, place):
            if rank == 1 and step == 5 and place == self.place:
                raise KeyError("mine")
        for self.place in ("between", "inside", "update"):
            for strategy in ("dp", "gossip"):
                with self.subTest(place=self.place, strategy=strategy):
                    ranks = self.launch(10, strategy, 0, fail)
                    began = time.monotonic()
                    self.check_named(ranks[0], 1, 10, began)
                    self.assertTrue(ranks[1].wait(2))
                    self.assertIn("KeyError: 'mine'", ranks[1].text())
                    self.tearDown()

    def test_a_rank_that_leaves(self):
        """In mid-step or between steps, while the others go on. They need not wait for comm.timeout."""
        def leave(rank, step, place):
            if rank == 1 and step == 5 and place == self.place:
                print("left", time.monotonic(), flush=True)
                raise self.how
        between, inside, update = ("between", SystemExit(7)), ("inside", SystemExit(7)), ("update", SystemExit(0))
        for size, strategy, ways in ((2, "dp", (between, inside, update, ("between", KeyError("mine")))),
                                     (3, "gossip", (between, inside, update)), (3, "localsgd", (between,))):
            for self.place, self.how in ways:
                with self.subTest(size=size, strategy=strategy, place=self.place, how=self.how):
                    ranks = self.launch(40, strategy, 0, leave, 60.0, size=size)
                    self.assertTrue(ranks[1].wait(20), f"does not leave: {ranks[1].text()}")
                    left = float(ranks[1].text().split("left ")[1].split()[0])
                    for rank in ranks[:1] + ranks[2:]:
                        self.assertLess(self.check_named(rank, 1, 20, left), 6, rank.text())
                    self.assertEqual(ranks[1].status, getattr(self.how, "code", 1), ranks[1].text())
                    self.tearDown()

    def test_interrupted(self):
        """Ctrl-C reaches all ranks, or one alone. No process is left, and the traceback is KeyboardInterrupt's."""
        for all_of_them in (True, False):
            for workers, strategy in ((2, "dp"), (0, "gossip")):
                with self.subTest(all=all_of_them, strategy=strategy):
                    ranks = self.launch(1 << 30, strategy, workers)
                    self.wait_begun()
                    for rank in ranks if all_of_them else ranks[1:]:
                        os.killpg(rank.pid, signal.SIGINT)
                    for rank in ranks:
                        self.assertTrue(rank.wait(TIMEOUT + 3), rank.text())
                        self.assertEqual(rank.orphans(), [])
                    self.assertIn(ranks[1].status, (130, 1), ranks[1].text())
                    self.assertRegex(ranks[1].text(), "KeyboardInterrupt|PeerError: .*rank 0")
                    if not all_of_them:
                        self.assertIn("KeyboardInterrupt", ranks[1].text())
                        self.check_named(ranks[0], 1, 1, time.monotonic())
                    self.tearDown()

    def test_interrupted_while_others_are_frozen(self):
        ranks = self.launch(1 << 30)
        self.wait_begun()
        ranks[1].kill(signal.SIGSTOP)
        time.sleep(0.5)
        os.killpg(ranks[0].pid, signal.SIGINT)
        self.assertTrue(ranks[0].wait(TIMEOUT + 2), ranks[0].text())

    def test_closing_after_a_failure(self):
        """The state of parts is lost, and the log says so; the model and its optimizer are ordinary ones again."""
        def work(rank):
            import tacit.torch as tacit
            module = make(Net)
            optimizer = torch.optim.AdamW(module.parameters())
            model = tacit.Parallel(module, optimizer, strategy="shard", timeout=TIMEOUT)
            loss_of(model(Net.batch(0))).backward()
            optimizer.step()
            if rank == 1:
                os._exit(7)
            try:
                model.close()
            except tacit.PeerError as error:
                print("closed with", len(optimizer.state_dict()["state"]), "PeerError", error, flush=True)
            loss_of(module(Net.batch(0))).backward()
            optimizer.step()
            print("goes on with", len(optimizer.state_dict()["state"]), flush=True)
        rank = self.launch(work=work)[0]
        self.assertTrue(rank.wait(20), rank.text())
        self.assertRegex(rank.text(), "(?s)the state of the optimizers is lost.*closed with 0 PeerError .*rank 1.*goes on with 8")

    def test_the_end_is_well(self):
        for size, strategy in ((3, "gossip"), (2, "dp")):
            for rank in self.launch(6, strategy, size=size):
                self.assertTrue(rank.wait(20), rank.text())
                self.assertEqual(rank.status, 0, rank.text())
                self.assertTrue(rank.text().endswith("done\n"), rank.text())
            self.tearDown()

    def test_refused_on_one_rank(self):
        """A model that one rank alone refuses: the others learn of its end."""
        def work(rank):
            import tacit.torch as tacit
            tacit.default_comm(tacit.Settings(timeout=TIMEOUT))
            module = make(Net)
            tacit.Parallel(module.double() if rank == 1 else module)
        ranks = self.launch(work=work)
        self.check_named(ranks[0], 1, 10, time.monotonic())
        self.assertIn("UnsupportedError", ranks[1].text())

    def test_a_port_that_is_taken(self):
        def work(rank):
            import tacit.torch as tacit
            tacit.default_comm(tacit.Settings({"comm.start": 3}))
        port = free_port()
        with socket.socket() as other:
            other.bind(("127.0.0.1", port + 1))
            other.listen()
            for rank in self.launch(work=work, port=port):
                self.assertTrue(rank.wait(15), rank.text())
                self.assertEqual(rank.status, 1)
                self.assertIn(str(port + 1), rank.text())
            self.assertRegex(self.ranks[0].text(), "in use")

    def test_a_rank_that_never_comes(self):
        def work(rank):
            import tacit.torch as tacit
            if rank != 1:
                tacit.default_comm(tacit.Settings({"comm.start": 2}))
        self.launch(work=work, size=3)
        self.ranks[1].wait(5)
        for rank in (self.ranks[0], self.ranks[2]):
            self.assertTrue(rank.wait(15), rank.text())
            self.assertRegex(rank.text(), "rank 1")


if __name__ == "__main__":
    unittest.main()

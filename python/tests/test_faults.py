# SPDX-License-Identifier: Apache-2.0
"""Ranks that are killed, frozen, interrupted, that raise, or leave early: the others get an exception that names them,
in time, and no process is left. TACIT_KILLS: how often a rank is killed (default 1, and it is frozen as often)."""
import os
import signal
import socket
import subprocess
import sys
import time
import unittest

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from launch import free_port, launch
from models import Net, loss_of, make, same_bits
from ranks import own_folder

LEFT = r"rank 1\b[^;]* in step 2, finish\b.*all ranks must make the same steps"
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


def meet_in_store(rank):
    """Lets ranks meet as under torchrun, in the store of an agent, which is that of rank 0 here."""
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    if rank == 0:
        meet_in_store.store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=True, wait_for_workers=False)


IN_A_STEP, WHERE_RANKS_MEET, LONG = ("dp", "gossip", "shard"), ("open", "called", "store"), 600.0


def wait_for_other(rank, place):
    """A rank waits at this place for the other, which is alive and asleep."""
    import tacit.torch as tacit

    def sleep():
        if rank == (0 if place in ("called", "store") else 1):
            print("asleep", flush=True)
            time.sleep(LONG)

    if place == "store":
        meet_in_store(rank)
    if place in WHERE_RANKS_MEET:
        sleep()
    module = make(Net)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    strategy = place if place in IN_A_STEP else "gossip"
    model = tacit.Parallel(module, optimizer, strategy=strategy, timeout=LONG, comm__start=LONG)
    for step in range(9):
        if step == 3 and place in IN_A_STEP:
            sleep()
        loss_of(model(Net.batch(step))).backward()
        optimizer.step()
        optimizer.zero_grad()
    sleep()
    calls = {"average": model.average().__enter__, "save": lambda: tacit.save("nowhere", model), "close": model.comm.close}
    calls[place]()


def train_on(rank, folder, dies=False):
    """Goes on from the folder to step 6, and leaves the parameters of each rank there. dies: rank 1 does before step 3."""
    import tacit.torch as tacit
    module = make(Net)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    model = tacit.Parallel(module, optimizer, strategy="gossip")
    start = tacit.load(folder, model, optimizer)
    os.write(1, f"begins at {start}\n".encode())  # in one piece: ranks write to one pipe
    for step in range(start, 6):
        if dies and rank == 1 and step == 3:
            os._exit(3)
        optimizer.zero_grad()
        loss_of(model(Net.batch(2 * step + rank))).backward()
        optimizer.step()
        tacit.save(folder, model, optimizer)
    torch.save(module.state_dict(), os.path.join(folder, f"rank{rank}.pt"))


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
        self.wait_told("begun", self.ranks)
        time.sleep(0.2)

    def wait_told(self, word, ranks):
        end = time.monotonic() + 60
        while not all(word in rank.text() for rank in ranks):
            self.assertLess(time.monotonic(), end, [r.text() for r in ranks])
            time.sleep(0.02)

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

    def test_a_rank_that_leaves_before_ranks_have_met(self):
        """Those that go on to their end learn of it there, by close() or at exit, and the rank that has left as well."""
        def work(rank, strategy, closes):
            import tacit.torch as tacit
            module = make(Net)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
            model = tacit.Parallel(module, optimizer, strategy=strategy, timeout=60.0)
            for step in range(8):
                if rank == 1 and step == 3:
                    raise SystemExit(0)
                optimizer.zero_grad()
                loss_of(model(Net.batch(step))).backward()
                optimizer.step()
            if closes:
                model.close()
        for strategy, closes in (("none", True), ("none", False), ("localsgd", True), ("localsgd", False)):
            with self.subTest(strategy=strategy, closes=closes):
                ranks = self.launch(strategy, closes, work=work, size=3)
                for number, rank in enumerate(ranks):
                    self.assertTrue(rank.wait(30), rank.text())
                    self.assertEqual(rank.status, closes and number != 1, rank.text())
                    if number != 1:
                        self.assertRegex(rank.text(), LEFT)
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

    def test_interrupted_while_others_sleep(self):
        """Ctrl-C ends every wait for a rank that is alive, long before comm.timeout, comm.start and comm.stall."""
        places = {place: launch(wait_for_other, 2, place)
                  for place in (*IN_A_STEP, *WHERE_RANKS_MEET, "average", "save", "close")}
        self.ranks = [rank for ranks in places.values() for rank in ranks]
        pairs = {place: ranks[::-1] if place in ("called", "store") else ranks for place, ranks in places.items()}
        self.wait_told("asleep", [sleeper for _, sleeper in pairs.values()])
        time.sleep(2)  # an interrupt that comes before the wait ends the rank as well
        for waiter, _ in pairs.values():
            os.killpg(waiter.pid, signal.SIGINT)
        for place, (waiter, sleeper) in pairs.items():
            with self.subTest(place=place):
                self.assertTrue(waiter.wait(60), f"does not end: {waiter.text()}")
                self.assertEqual(waiter.status, 130, waiter.text())
                self.assertIn("KeyboardInterrupt", waiter.text())
                self.assertFalse(sleeper.wait(0.01), sleeper.text())

    def test_handlers_that_raise_nothing(self):
        """Python handles a signal in a wait, which then goes on."""
        def work(rank):
            import tacit.torch as tacit
            signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
            model = tacit.Parallel(make(Net), timeout=LONG)
            print("met", flush=True)
            while rank == 1 and not os.path.exists(self.file):
                time.sleep(0.02)
            loss_of(model(Net.batch(0))).backward()
            print("done", flush=True)
        with own_folder() as folder:
            self.file = os.path.join(folder, "go")
            first, second = self.launch(work=work)
            self.wait_told("met", self.ranks)
            time.sleep(0.5)
            first.kill(signal.SIGUSR1)
            self.wait_told("handled", [first])
            self.assertNotIn("done", first.text())
            open(self.file, "w").close()
            for rank in (first, second):
                self.assertTrue(rank.wait(60), rank.text())
                self.assertTrue(rank.text().endswith("done\n"), rank.text())

    def test_loader_workers_end_with_their_rank(self):
        """After an exception, and where the rank leaves in mid-step; of the other rank, too."""
        def fail(rank, step, place):
            if rank == 1 and step == 5 and place == "between":
                raise KeyError("mine")

        def leave(rank, step, place):
            if rank == 1 and step == 5 and place == "inside":
                raise SystemExit(7)
        self.ranks = launch(train, 2, 1 << 30, "dp", 4, fail) + launch(train, 2, 1 << 30, "gossip", 4, leave)
        for rank in self.ranks:
            self.assertTrue(rank.wait(60), rank.text())
        for rank, status in zip(self.ranks, (1, 1, 1, 7)):
            self.assertEqual(rank.status, status, rank.text())
            self.assertEqual(rank.orphans(), [])

    def test_started_again_by_torchrun(self):
        """Rank 1 dies, torchrun starts both again, and they end with the bits of a run that nothing has interrupted."""
        with own_folder() as again, own_folder() as at_once:
            for rank in self.launch(at_once, work=train_on):
                self.assertTrue(rank.wait(60), rank.text())
                self.assertEqual(rank.status, 0, rank.text())
            run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                                  "--max-restarts", "1", "--monitor-interval", "0.1", __file__, "train_on", again],
                                 capture_output=True, text=True, timeout=120)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertRegex(run.stdout, "(?s)begins at 0.*begins at [23]")
            for rank in range(2):
                ends = [torch.load(os.path.join(folder, f"rank{rank}.pt"), weights_only=True) for folder in (again, at_once)]
                for name, p in ends[0].items():
                    self.assertTrue(same_bits(p, ends[1][name]), name)

    def test_keys_that_differ(self):
        def work(rank):
            import tacit.torch as tacit
            meet_in_store(rank)
            try:
                tacit.default_comm(tacit.Settings(key_file=os.path.join(self.folder, f"key{rank}"), comm__start=10))
            except tacit.PeerError as error:
                print(error, flush=True)
                time.sleep(LONG)  # rank 0 has the store
        with own_folder() as self.folder:
            for rank in range(2):
                with open(os.path.join(self.folder, f"key{rank}"), "wb", opener=lambda *a: os.open(*a, mode=0o600)) as file:
                    file.write(bytes([rank]) * 32)
            self.wait_told("is of a rank with another comm.key_file", self.launch(work=work))

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

    def test_a_port_that_only_torch_wants(self):
        """Ranks that nobody's store serves meet at the next one."""
        port = free_port()
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()
            for rank in self.launch(3, port=port):
                self.assertTrue(rank.wait(60), rank.text())
                self.assertTrue(rank.text().endswith("done\n"), rank.text())

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
    if sys.argv[1:2] == ["train_on"]:
        train_on(int(os.environ["RANK"]), sys.argv[2], dies=os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
    else:
        unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Bytes that leave a host per step, by the counters, on four hosts that this machine plays, each of as many ranks:
python/tests/ranks.py 8 python/tests/ranks_bytes.py. Only root may play hosts."""
import ctypes
import socket
import unittest

import torch
import torch.distributed as dist
from torch import nn

import tacit.torch as tacit
from models import loss_of, make
from ranks_parallel import RANK, SIZE, gather, sgd

HOSTS, STEPS = 4, 8  # two rounds of all of a topology


def play_host():
    """Gives this thread a host's name of its own, by which ranks of one machine tell hosts apart; False: not allowed."""
    new_names = 0x04000000
    if ctypes.CDLL(None).unshare(new_names) != 0:
        return False
    socket.sethostname(f"host{RANK * HOSTS // SIZE}")
    return True


class Bytes(unittest.TestCase):
    def models_sent(self, **settings):
        """Returns what the busiest host sends to others per step, in float32 models."""
        module = make(lambda: nn.Linear(1000, 400))
        optimizer = sgd(module)
        model = tacit.Parallel(module, optimizer, **settings)
        before = model.counters()["away_sent"]
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model(torch.ones(2, 1000))).backward()
            optimizer.step()
        sent = torch.cat(gather(torch.tensor([float(model.counters()["away_sent"] - before)])))
        model.close()
        return float(sent.view(HOSTS, -1).sum(1).max()) / STEPS / (4 * sum(p.numel() for p in module.parameters()))

    def test_a_sum_crosses_a_link_one_and_a_half_times(self):
        """However many ranks a host has; a ring over all of two ranks per host takes 2 x 7/8."""
        self.assertAlmostEqual(self.models_sent(), 1.5, delta=0.02)

    def test_aer_sends_a_third(self):
        sent = self.models_sent(strategy="gossip", topology="aer")
        self.assertLessEqual(sent, 0.51)
        self.assertGreater(sent, 0.4)  # the last mix may be under way


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if play_host():
        unittest.main(failfast=True)
    print("skipped: only root may play hosts")

# SPDX-License-Identifier: Apache-2.0
"""What the wrapper costs on one rank, counted where bench/wrapper.py measures it: calls per tensor and step, and modules that
its import brings in."""
import sys
import unittest

import torch
from torch import nn

before = set(sys.modules)
import tacit.torch as tacit  # noqa: E402
IMPORTED = {name for name in set(sys.modules) - before if not name.startswith("tacit")}

TENSORS = 1000
torch.set_num_threads(1)


class Many(nn.Module):
    """Has as many tensors as large models, and nothing to compute."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(torch.ones(1) for _ in range(TENSORS))

    def forward(self):
        return sum(p.sum() for p in self.parts)


def count_calls(work):
    """Returns the calls of functions in Python and in C that this thread, which runs the backward pass, too, makes."""
    count = 0

    def see(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def calls_of_step(model, optimizer):
    """Returns those of a step after two that may be unlike the others."""
    def step():
        optimizer.zero_grad()
        model().backward()
        optimizer.step()
    return [count_calls(step) for _ in range(3)][-1]


class Costs(unittest.TestCase):
    def test_calls_per_tensor(self):
        """Of strategies whose hooks run for every gradient, and of one of replicas."""
        bare = Many()
        alone = calls_of_step(bare, torch.optim.SGD(bare.parameters(), lr=0.1))
        for strategy, bound in (("dp", 6), ("shard", 10), ("gossip", 22)):
            module = Many()
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            model = tacit.Parallel(module, optimizer, strategy=strategy)
            more = (calls_of_step(model, optimizer) - alone) / TENSORS
            model.close()
            print(f"{strategy}: {more:.2f} calls per tensor and step beside {alone / TENSORS:.2f} of the model")
            with self.subTest(strategy):
                self.assertLessEqual(more, bound)

    def test_modules_that_are_imported(self):
        self.assertLessEqual(len(IMPORTED), 4, sorted(IMPORTED))


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""tacit.numpy on several ranks: python/tests/ranks.py 2 python/tests/ranks_numpy.py."""
import os
import tempfile
import unittest

import numpy
import torch.distributed as dist

import tacit.numpy as arrays
import tacit.torch as tacit
from tacit.comm import opened
from ranks_parallel import RANK, SIZE


class Arrays(unittest.TestCase):
    def test_models_learn(self):
        rng = numpy.random.default_rng(RANK)
        true = numpy.random.default_rng(99).standard_normal((41, 10))
        for strategy in ("dp", "gossip"):
            model = arrays.Model({"b": (10,), "w": (41, 10), "gain": ()}, {"optim.name": "adamw", "optim.clip": 0},
                                 comm=tacit.default_comm(), strategy=strategy, optim__lr=0.05)
            model["gain"][...] = 1
            model.start()
            for _ in range(300):
                x = rng.standard_normal((8, 41)).astype("f")
                error = x @ model["w"] + model["b"] - x @ true
                model.gradients["w"][:] = x.T @ error / 8 / model.size
                model.gradients["b"][:] = error.mean(0) / model.size
                model.gradients["gain"][...] = 0
                model.ready("b")
                model.ready()
                step = model.finish()
            self.assertEqual(step.number, 300)
            self.assertLess((error ** 2).mean(), 0.2)
            model.close()

    def test_arrays_outlive_their_model(self):
        model = arrays.Model({"w": (410, 1000)}, comm=tacit.default_comm(), strategy="gossip")
        w, g = model["w"], model.gradients["w"]
        w[:], g[:] = 3 + RANK, RANK
        model.start()
        model.close()
        self.assertTrue((w == 3).all() and (g == RANK).all() and model["w"] is w)
        w[:], g[:] = 1, 2

    def test_sums(self):
        total = arrays.Sum(7, comm=tacit.default_comm())
        self.assertEqual(total(numpy.arange(7, dtype="f")).tolist(), [SIZE * i for i in range(7)])
        self.assertEqual(total(numpy.ones(7, "float16"), scale=0.5).tolist(), [SIZE / 2] * 7)
        with self.assertRaisesRegex(tacit.UsageError, "7 float32"):
            total(numpy.ones(8, "f"))
        with self.assertRaisesRegex(tacit.UsageError, "not a list"):
            total([1.0] * 7)
        folder = tempfile.TemporaryDirectory()
        locked, path = numpy.ones(7, "f"), os.path.join(folder.name, "array.npy")
        locked.flags.writeable = False
        numpy.save(path, locked)
        for array in (locked, numpy.load(path, mmap_mode="r"), numpy.frombuffer(bytearray(29), "f", 7, 1)):
            with self.assertRaisesRegex(tacit.UsageError, r"cannot be written to.*array.copy\(\)"):
                total(array)
        self.assertEqual(total(locked.copy()).tolist(), [SIZE] * 7)
        for seconds in (-1, float("nan")):
            with self.assertRaisesRegex(tacit.UsageError, f"seconds is {seconds}: a number of 0 or more is expected"):
                total.wait(seconds)
        total.close()
        folder.cleanup()

    def test_state(self):
        """What int4 has not sent yet arrives later, also after a restore."""
        given = numpy.random.default_rng(RANK).standard_normal(1010).astype("f")
        first = arrays.Sum(1010, comm=tacit.default_comm(), codec="int4", compress__warmup=0)
        first(given.copy())
        state, expected = first.state(), first(given.copy())
        first.close()
        second = arrays.Sum(1010, comm=tacit.default_comm(), codec="int4", compress__warmup=0)
        second.restore(state)
        self.assertEqual(second(given.copy()).tobytes(), expected.tobytes())
        second.close()

    def test_own_communicators(self):
        """What is opened for one object ends with it, and the next one opens another; a caller's stays."""
        before = dict(opened)
        for _ in range(2):
            with arrays.Sum(3) as total:
                self.assertEqual(total(numpy.ones(3, "f")).tolist(), [SIZE] * 3)
            model = arrays.Model({"w": (2,)}, strategy="gossip")
            self.assertEqual(len(opened), len(before) + 1)
            model.close()
            model.close()
            self.assertEqual(opened, before)
        with self.assertRaises(tacit.UsageError):
            arrays.Sum(0)
        self.assertEqual(opened, before)
        arrays.Sum(3, comm=tacit.default_comm()).close()
        self.assertEqual(tacit.default_comm().size, SIZE)
        self.assertIn(tacit.default_comm(), opened.values())
        with self.assertRaises(ZeroDivisionError), arrays.Sum(3) as total:  # the others may be elsewhere
            1 // 0
        self.assertTrue(total.comm._handle)
        total.close()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    unittest.main(failfast=True)

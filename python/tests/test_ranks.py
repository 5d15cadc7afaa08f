# SPDX-License-Identifier: Apache-2.0
"""Where ranks of PyTorch meet, and over which network."""
import os
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch.distributed as dist

import tacit.torch as tacit
from tacit import Comm
from tacit.torch.ranks import choose_interface


class Interface(unittest.TestCase):
    def choose(self, variables, **settings):
        settings = tacit.Settings(**settings)
        with mock.patch.dict(os.environ, variables):
            choose_interface(settings)
        return settings["comm.interface"]

    def test_gloo_and_nccl_have_been_told(self):
        self.assertEqual(self.choose({"GLOO_SOCKET_IFNAME": "lo"}), "lo")
        self.assertEqual(self.choose({"GLOO_SOCKET_IFNAME": "none7,lo"}), "lo")
        self.assertEqual(self.choose({"NCCL_SOCKET_IFNAME": "lo"}), "lo")

    def test_a_setting_comes_first(self):
        self.assertEqual(self.choose({"GLOO_SOCKET_IFNAME": "lo"}, interface="127.0.0.1"), "127.0.0.1")

    def test_names_that_are_none_choose_nothing(self):
        self.assertEqual(self.choose({"GLOO_SOCKET_IFNAME": "", "NCCL_SOCKET_IFNAME": "^docker"}), "")


class Stores(unittest.TestCase):
    def test_those_of_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            first = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            for stores in ((first, dist.TCPStore("127.0.0.1", first.port, is_master=False)), 2 * (dist.HashStore(),),
                           [dist.FileStore(os.path.join(folder, "store"), 2) for _ in range(2)]):
                with ThreadPoolExecutor(2) as pool:
                    comms = list(pool.map(lambda rank: Comm(tacit.Settings(comm__start=30), rank, 2, stores[rank]), range(2)))
                    self.assertEqual([comm.rank for comm in comms], [0, 1])
                    list(pool.map(Comm.close, comms))
                with self.assertRaisesRegex(tacit.PeerError, "rank 0 has not come up within 1 s"):
                    Comm(tacit.Settings(comm__start=1), 1, 2, dist.PrefixStore("another", stores[0]))


if __name__ == "__main__":
    unittest.main()

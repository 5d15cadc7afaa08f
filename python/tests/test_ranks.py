# SPDX-License-Identifier: Apache-2.0
"""Where ranks of PyTorch meet, and over which network."""
import os
import unittest
from unittest import mock

import tacit.torch as tacit
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


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""What cannot be gets an exception with the sentence that helps. One rank; test_faults.py has what needs more."""
import contextlib
import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import warnings

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import tacit
import tacit.torch as parallel
from models import Net, loss_of, make, state_of
from ranks import text_of_fork

torch.set_num_threads(1)


class Squares(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        return torch.full((12,), float(i)) / 32


class Refused(unittest.TestCase):
    def setUp(self):
        self.module = make(Net)
        self.models = []

    def tearDown(self):
        for model in self.models:
            model.close()

    def wrap(self, *optimizers, module=None, **settings):
        self.models.append(parallel.Parallel(module or self.module, *optimizers, **settings))
        return self.models[-1]

    def refuses(self, text, module=None, *optimizers, kind=tacit.Error, **settings):
        with self.assertRaisesRegex(kind, text):
            self.wrap(*optimizers, module=module, **settings)

    def step(self, model, optimizer=None, x=None):
        loss_of(model(Net.batch(0) if x is None else x)).backward()
        if optimizer:
            optimizer.step()

    def test_two_wraps(self):
        model = self.wrap()
        self.refuses("is a tacit.Parallel already", model)
        self.refuses(r"last.bias: this parameter belongs to another tacit.Parallel.*close\(\) the first|first.weight: this", self.module)
        self.refuses("belongs to another", nn.Sequential(self.module.first))
        model.close()
        self.wrap()

    def test_settings_and_optimizers_that_nothing_reads(self):
        self.refuses('topology is gossip.topology, which nothing reads here: add strategy="gossip"', topology="exp")
        self.refuses('values', values="int4")
        self.refuses("did you mean compress.codec", codex="int4")
        self.refuses("AdamW updates no parameter of this model", None, torch.optim.AdamW(make(Net).parameters()))
        self.wrap(torch.optim.AdamW(self.module.parameters()))  # none of them has kept the parameters

    def test_what_is_no_optimizer(self):
        for value, name in ((self.module, "a Net"), (self.module.parameters(), "a generator"), (torch.optim.SGD, "the class SGD")):
            self.refuses(f"an optimizer is expected after the model, and this is {name}: make one", None, value,
                         kind=tacit.UsageError)
        self.refuses(r"tacit.Parallel\(model, optimizer, ...\)", optimizer=torch.optim.SGD(self.module.parameters(), lr=0.1))

    def test_what_is_saved_before_its_folder(self):
        for verb in (parallel.save, parallel.load):
            with self.assertRaisesRegex(tacit.UsageError, "the model comes after the folder, and this is a str"):
                verb(self.wrap(module=make(Net)), "folder")

    def test_what_is_no_model(self):
        optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1)
        for value, name in ((None, "None"), (nn.Linear, "the class Linear"), (optimizer, "a SGD"), ([self.module], "a list")):
            with self.assertRaisesRegex(tacit.UsageError, f"a model is expected first.* this is {name}: tacit.Parallel"):
                parallel.Parallel(value, optimizer)
        self.refuses("an optimizer is expected after the model, and this is None: make one", None, None)

    def test_words_of_ddp(self):
        self.refuses("device_ids is DistributedDataParallel's: leave it out, tensors stay where", device_ids=[0])
        self.refuses("find_unused_parameters is .* unused parameters need no search", find_unused_parameters=True)
        self.refuses('broadcast_buffers is .* buffers="broadcast"', broadcast_buffers=True)
        self.refuses('bucket_cap_mb is .* exchange__bucket="25MiB"', bucket_cap_mb=25)
        self.wrap(exchange__bucket="25MiB", buffers="broadcast")

    def test_a_compiled_wrapper_warns_of_nothing(self):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*(getpid|does not know how to trace).*")
            torch.compile(self.wrap(), backend="eager")(Net.batch(0)).sum().backward()
        self.assertIsNotNone(self.module.first.weight.grad)

    def test_a_forward_pass_of_the_mean(self):
        for strategy in ("dp", "gossip", "localsgd", "shard"):
            for sync in (contextlib.nullcontext, parallel.Parallel.no_sync):
                module = make(Net)
                optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
                model = self.wrap(optimizer, module=module, strategy=strategy)
                before = loss_of(model.module(Net.batch(0)))
                with model.average(), sync(model):
                    loss = loss_of(model(Net.batch(0)))  # without no_grad
                    torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
                    for one in (loss, before):
                        with self.assertRaisesRegex(tacit.UsageError, "parameters are the mean .*leave model.average"):
                            one.backward()
                module.zero_grad()
                self.step(model, optimizer)

    def test_a_model_in_ddp(self):
        import torch.distributed as dist
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
            try:
                self.refuses("wrap its .module", nn.parallel.DistributedDataParallel(self.module))
            finally:
                dist.destroy_process_group()

    def test_parameters_that_cannot_be(self):
        one = make(Net)
        one.last.to("meta")
        self.refuses("last.weight is on meta, and first.weight on cpu|first.weight is on cpu, and", one)
        self.refuses("on meta; parameters on the CPU or on a GPU of NVIDIA.s can be trained: model.cpu", make(Net).to("meta"))
        self.refuses(r"last.bias is torch.float64|is torch.float64; float32.*model.float\(\)", make(Net).double())
        self.refuses("is torch.complex64", nn.Linear(3, 3, dtype=torch.complex64))
        self.refuses("has no parameter with requires_grad", make(Net).requires_grad_(False))
        self.refuses("has no parameter with requires_grad", nn.ReLU())
        self.refuses("has no shape yet: run the model once", nn.LazyLinear(3))
        odd = nn.Module()
        odd.w = nn.Parameter(torch.eye(3).to_sparse())
        self.refuses("w is sparse", odd)
        twins = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
        twins["b"].weight = nn.Parameter(twins["a"].weight)
        self.refuses("[ab].weight and [ab].weight are two tensors in the same memory: let both be one Parameter", twins)
        twins["b"].weight = twins["a"].weight
        twins.register_buffer("tail", twins["a"].bias.detach()[2:])
        self.refuses("tail and a.bias are two tensors in the same memory", twins)
        twins.tail = twins.tail.clone()
        self.wrap(module=twins)
        self.wrap()  # nothing of these is left behind

    def test_words(self):
        self.refuses("topolgy.*topology", topolgy="exp", kind=tacit.ConfigError)
        self.refuses("gosip.*gossip", strategy="gosip", kind=tacit.ConfigError)
        self.refuses("compress.codec|topk", codec="topkk", kind=tacit.ConfigError)
        self.refuses("buffers='mean': one of average, broadcast, own", buffers="mean")
        self.refuses("needs to know when the optimizer.*Parallel\\(model, optimizer", strategy="gossip")
        self.refuses("shard", strategy="shard")
        self.refuses("nowhere.yaml", config="/nowhere.yaml")
        for word, value in (("lr", 0.5), ("optim__lr", 0.5), ("schedule", "constant"), ("weight_decay", 0.1), ("optim__name", "sgd")):
            self.refuses(f"{word} is for optimizers of the library", **{word: value})
        for steps in ("100", 100.5, None, -1):
            self.refuses(f"steps is {steps!r}: the number of steps of the whole run", steps=steps, kind=tacit.UsageError)
        self.refuses("comm is 3: a tacit.Comm, as of tacit.open_comm.., is expected", comm=3)
        self.refuses("warmup: it may be|warmup", warmup="x", kind=tacit.ConfigError)
        self.refuses("factor", factor=-1, kind=tacit.ConfigError)
        with self.assertRaises(ValueError):  # people catch these
            tacit.Settings(codec="nothing")
        self.assertEqual(tacit.Settings(strategy="gossip", topology="aer")["gossip.topology"], "aer")
        self.assertEqual(tacit.Settings({"topk.values": "int4"}, codec="topk", factor=20)["compress.factor"], "20")
        self.assertEqual(tacit.Settings(optim__clip=1)["optim.clip"], "1")
        self.assertEqual(tacit.Settings(timeout=7.5)["comm.timeout"], "7.5")

    def test_settings_of_ranks_that_have_met(self):
        self.wrap()
        self.refuses("comm.key_file is /nowhere.key here, and the ranks have met with none", make(Net), key_file="/nowhere.key",
                     kind=tacit.UsageError)
        self.refuses("comm.timeout is 78 here, and the ranks have met with", make(Net), timeout=78)
        self.wrap(module=make(Net), stall=3)
        with self.assertRaisesRegex(tacit.UsageError, r"this is 5; the step has a name: step="):
            parallel.save("/nowhere", self.models[0], 5)

    def test_gradients_are_cleared_without_a_word(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.wrap(torch.optim.SGD(self.module.parameters(), lr=0.1), strategy="gossip").zero_grad()

    def test_sizes(self):
        import tacit.numpy as arrays
        model = arrays.Model({"w": (3,), "b": ()}, comm=parallel.default_comm())
        with self.assertRaisesRegex(tacit.UsageError, "'x' is no gradient of this model, which has w, b"):
            model.ready("x")
        model.close()
        with self.assertRaisesRegex(tacit.UsageError, "elements is -1: an integer from 1 to 2 .. 63 - 1 is expected"):
            arrays.Sum(-1, comm=parallel.default_comm())
        for name, shape, text in (("a", 3, "a has the shape 3: a tuple"), ("a", ("3",), "a has the shape .'3',.: a tuple"),
                                  ("a", (-1,), r"a has the shape \(-1,\)"), ("a", (3, 0), r"a has the shape \(3, 0\)"),
                                  ("a", (2 ** 64 + 3,), "a has the shape"), ("a", (2 ** 62, 2 ** 62), "a"),
                                  ("", (3,), "tensor 0 has no name"), ("a\0b", (3,), "is no name"), (5, (3,), "5 is no name"),
                                  ("a\n", (3,), "without control characters"), ("\ud800", (3,), "a name is UTF-8"),
                                  ("x" * 1024, (3,), "1 to 1023 bytes"), ("a[0:1/2]", (3,), "no name ends like that")):
            with self.assertRaisesRegex(tacit.ConfigError, text):
                arrays.Model({name: shape}, comm=parallel.default_comm())
        for own in (False, True):  # numpy has no memory: the library says so, on all ranks
            with self.assertRaisesRegex(tacit.OutOfMemoryError, "134217728|268435456"):
                arrays.Model({"w": (2 ** 44,)}, comm=parallel.default_comm(), own_optimizer=own)
        with self.assertRaisesRegex(tacit.UsageError, "a layout of 0 tensors"):
            arrays.Model({}, comm=parallel.default_comm())

    def test_values_of_wrong_types(self):
        """Errors name the argument, the value and what is expected; ctypes does not cut an integer to its bits."""
        import tacit.numpy as arrays
        comm, many, model = parallel.default_comm(), 2 ** 64 + 5, self.wrap()
        total, named = arrays.Sum(3, comm=comm), arrays.Model({"w": (3,), "b": (2,)}, comm=comm)
        for text, work in (("folder is None: a path", lambda: named.save(None)), ("folder is 3: a path", lambda: named.load(3)),
                           ("folder is None: a path", lambda: parallel.save(None, model)),
                           ("folder is None: a path", lambda: parallel.load(None, model)),
                           ("keep is '2': an integer from 1", lambda: named.save("/nowhere", keep="2")),
                           ("keep is 4294967298: an integer", lambda: named.save("/nowhere", keep=2 ** 32 + 2)),
                           ("elements is 'topk': an integer", lambda: arrays.Sum("topk", 8, comm=comm)),
                           (f"elements is {many}: an integer", lambda: arrays.Sum(many, comm=comm)),
                           ("shapes is None: a dictionary", lambda: arrays.Model(None)),
                           (f"steps is {many}: an integer", lambda: arrays.Model({"w": (3,)}, comm=comm, steps=many)),
                           (f"steps is {many}: the number", lambda: self.wrap(module=make(Net), steps=many)),
                           ("threads is '2': an integer", lambda: arrays.Model({"w": (3,)}, comm=comm, threads="2")),
                           ("comm is 3: a tacit.Comm", lambda: arrays.Sum(3, comm=3)),
                           ("seconds is '1': a number of 0 or more", lambda: total.wait("1")),
                           ("scale is '2': a number", lambda: total.start(numpy.ones(3, "f"), "2")),
                           ("state is 'abc': what state.. has", lambda: total.restore("abc")),
                           ("lr is 'x': a number", lambda: named.set_lr("x")),
                           (f"tensor is {many}: an integer", lambda: named.wait(many)),
                           ("a source of settings is 8: a dictionary, or the path", lambda: tacit.Settings(8)),
                           ("a key of settings is 5: a text", lambda: tacit.Settings({5: 3})),
                           ("settings is {}: a tacit.Settings", lambda: parallel.open_comm({})),
                           ("settings is 'x': a tacit.Settings", lambda: tacit.Comm("x")),
                           (r"log\(loss=...\) is 'x': a number", lambda: model.log(loss="x")),
                           (r"log\(f=...\) is tensor\(.*\): a number", lambda: model.log(f=torch.ones(3))),
                           (r"log\(f=...\) is array\(.*\): a number", lambda: model.log(f=numpy.ones(3))),
                           ("a key of settings is 3: a text", lambda: tacit.Settings().find_key(3)),
                           ("a key of settings is 3: a text", lambda: tacit.Settings()[3]),
                           ("store is {}: a store of torch.distributed, or", lambda: tacit.Comm(None, 1, 2, {})),
                           ("model is None: a torch.nn.Module", lambda: parallel.fsdp(None)),
                           ("gather is 'int8': True or False", lambda: parallel.fsdp(make(Net), gather="int8")),
                           ("folder is '': a path", lambda: parallel.load("", model)),
                           (r"folder is 'a.x00b': a path", lambda: parallel.save("a\0b", model)),
                           (r"codec is 'topk.x00': a text", lambda: tacit.Settings(codec="topk\0")),
                           ("store is None: what ranks meet in", lambda: tacit.Comm(None, 1, 3)),
                           ("max_norm is nan: a number of 0", lambda: model.clip_grad_norm_(float("nan"))),
                           (r"max_norm is tensor\(.*\): a number", lambda: model.clip_grad_norm_(torch.ones(3))),
                           ("max_norm is None: a number of 0", lambda: model.clip_grad_norm_(None))):
            with self.assertRaisesRegex(tacit.UsageError, text + ".* expected"):
                work()
        self.assertEqual((list(named), len(named), "w" in named), (["w", "b"], 2, True))
        total.close()
        named.close()

    def test_a_file_of_settings(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.yaml")
            with open(path, "w") as file:
                file.write("optim:\n  clip: 3\nexchange:\n  bucket: 2MiB\n  wire: bf16\n")
            self.assertEqual(self.wrap().settings["optim.clip"], "0")
            settings = self.wrap(module=make(Net), config=path, wire="fp16").settings
            self.assertEqual([settings[k] for k in ("optim.clip", "exchange.wire")], ["3", "fp16"])
            self.assertEqual(settings["exchange.bucket"], tacit.Settings({"exchange.bucket": "2MiB"})["exchange.bucket"])

    def test_a_parameter_that_changes(self):
        for change, text in ((lambda p: p.data.new_zeros(1), r"last.bias had the shape \(10,\).*has \(1,\)"),
                             (lambda p: p.data.double(), "last.bias lies elsewhere since the model was wrapped"),
                             (lambda p: p.data.clone(), "last.bias lies elsewhere")):
            for settings in ({}, {"strategy": "gossip"}):
                module = make(Net)
                optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
                model = self.wrap(optimizer, module=module, **settings)
                self.step(model, optimizer)
                module.last.bias.data = change(module.last.bias)
                module.last.bias.grad = None
                with self.assertRaisesRegex(tacit.UsageError, text):
                    module.to(module.last.bias.dtype)
                    self.step(model, optimizer, Net.batch(0).to(module.last.bias.dtype))

    def test_load_state_dict_by_assignment(self):
        model = self.wrap()
        with self.assertRaisesRegex(tacit.UsageError, "assign=True"):
            model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)

    def test_a_parameter_that_is_unfrozen(self):
        self.module.block.requires_grad_(False)
        for settings in ({}, {"strategy": "gossip"}):
            optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1)
            model = self.wrap(optimizer, **settings)
            self.step(model, optimizer)
            self.module.block.requires_grad_(True)
            self.module.last.requires_grad_(False)  # as many as before
            with self.assertRaisesRegex(tacit.UsageError, "block.0.weight was not trained when the model was wrapped .unfrozen"):
                self.step(model, optimizer)
            self.module.block.requires_grad_(False)
            self.module.last.requires_grad_(True)
            model.close()

    def test_sparse_gradients(self):
        module = nn.Sequential(nn.Embedding(5, 12, sparse=True), nn.Linear(12, 3))
        for settings in ({}, {"strategy": "gossip"}):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            model = self.wrap(optimizer, module=module, **settings)
            with self.assertRaisesRegex(tacit.UsageError, "gradient of 0.weight is sparse; build the layer with sparse=False"):
                self.step(model, optimizer, torch.tensor([1, 2]))
            model.close()
            parallel.default_comm().busy = False

    def test_copies(self):
        model = self.wrap()
        for work in (copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(tacit.UsageError, "model.module"):
                work(model)
        copy.deepcopy(model.module)
        pickle.dumps(model.module)
        self.wrap(module=copy.deepcopy(model.module))  # a copy is nobody's

    def test_an_exception_in_backward(self):
        model = self.wrap()

        def raise_it(_):
            raise KeyError("mine")
        handle = self.module.block[0].weight.register_hook(raise_it)
        with self.assertRaisesRegex(KeyError, "mine"):
            self.step(model)
        handle.remove()
        with self.assertRaisesRegex(tacit.UsageError, "last backward pass has ended with an exception"):
            self.step(model)
        parallel.default_comm().busy = False

    def test_optimizers_out_of_order(self):
        a = torch.optim.SGD(self.module.first.parameters(), lr=0.1)
        b = torch.optim.SGD(self.module.last.parameters(), lr=0.1)
        model = self.wrap(a, b, strategy="gossip")
        self.step(model, a)
        with self.assertRaisesRegex(tacit.UsageError, "an optimizer makes its second step before another one"):
            a.step()
        b.step()

    def test_optimizers_of_parts_that_step_by_turns(self):
        a = torch.optim.SGD(self.module.first.parameters(), lr=0.1)
        b = torch.optim.SGD([*self.module.block.parameters(), *self.module.last.parameters()], lr=0.1)
        model = self.wrap(a, b, strategy="shard")
        self.step(model, a)
        with self.assertRaisesRegex(tacit.UsageError, "an optimizer has made its step and another one has not"):
            self.step(model)
        b.step()
        self.step(model, a)
        b.step()

    def test_parts_outlive_the_communicator(self):
        comm, optimizer = tacit.Comm(alone=True), torch.optim.Adam(self.module.parameters(), lr=0.1)
        model = self.wrap(optimizer, strategy="shard", comm=comm)
        self.step(model, optimizer)
        before, part = [p.clone() for p in self.module.parameters()], optimizer.param_groups[0]["params"][0]
        place = part.data_ptr()
        comm.close()
        self.assertNotEqual(part.data_ptr(), place)
        optimizer.zero_grad(set_to_none=False)
        model.close()
        for p, value in zip(self.module.parameters(), before):
            self.assertTrue(torch.equal(p, value))

    def test_optimizers_of_shard(self):
        class Lars(torch.optim.SGD):
            def step(self, closure=None):
                """By norms of whole tensors."""

        class Rprop(torch.optim.SGD):
            """Not torch's of this name."""
            def step(self, closure=None):
                """By norms of whole tensors."""

        class Named(torch.optim.SGD):
            """Its step() is SGD's."""
        self.refuses(r"for which step\(\) of Lars is not known", None, Lars(self.module.parameters(), lr=0.1), strategy="shard")
        self.refuses(r"for which step\(\) of Rprop is not known", None, Rprop(self.module.parameters(), lr=0.1), strategy="shard")
        Lars.step = lambda self, closure=None: None
        self.refuses(r"for which step\(\) of ", None, Lars(self.module.parameters(), lr=0.1), strategy="shard")
        self.refuses(r"step\(\) of Adagrad", None, torch.optim.Adagrad(self.module.parameters()), strategy="shard")
        for kind in (Named, torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam, torch.optim.NAdam, torch.optim.ASGD,
                     torch.optim.Adadelta, torch.optim.Adamax, torch.optim.RAdam, torch.optim.RMSprop, torch.optim.Rprop):
            self.wrap(kind(self.module.parameters(), lr=0.1), strategy="shard").close()

    def test_after_a_wrap_that_failed(self):
        for strategy in ("dp", "gossip", "shard"):
            optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1, momentum=0.9)
            loss_of(self.module(Net.batch(0))).backward()
            optimizer.step()
            before, state = optimizer.param_groups[0]["params"], state_of(optimizer)
            with self.assertRaises(tacit.FileError):
                self.wrap(optimizer, strategy=strategy, metrics="/proc/nowhere/metrics.jsonl")
            with unittest.mock.patch("tacit.torch.buffers.Buffers.send_first", side_effect=MemoryError):
                with self.assertRaises(MemoryError):
                    self.wrap(optimizer, strategy=strategy)
            self.assertIs(optimizer.param_groups[0]["params"], before)
            self.assertEqual(len(state_of(optimizer)), len(state))
            self.assertTrue(all(a is b for a, b in zip(state_of(optimizer), state)))
            self.step(self.wrap(optimizer, strategy=strategy), optimizer)
            self.models[-1].close()

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "torch before 2.3 scales on GPUs alone")
    def test_a_scaler_of_several_optimizers(self):
        a = torch.optim.SGD(self.module.first.parameters(), lr=0.1)
        b = torch.optim.SGD([*self.module.block.parameters(), *self.module.last.parameters()], lr=0.1)
        model, scaler = self.wrap(a, b, strategy="gossip"), torch.amp.GradScaler("cpu", init_scale=8.0)
        for is_unscaled in (True, False):
            scaler.scale(loss_of(model(Net.batch(0)))).backward()
            for optimizer in (a, b) if is_unscaled else ():
                scaler.unscale_(optimizer)
            scope = contextlib.nullcontext() if is_unscaled else self.assertRaisesRegex(tacit.UsageError, r"scaler.unscale_\(opt")
            with scope:
                scaler.step(a)
                scaler.step(b)
            scaler.update()

    def test_momentum_before_compression(self):
        words = dict(codec="topk", factor=4, compress__momentum=0.9)
        self.refuses("second momentum beside that of Adam", None, torch.optim.Adam(self.module.parameters()), **words)
        self.wrap(torch.optim.SGD(self.module.parameters(), lr=0.1), **words)

    def test_words_of_gossip_without_effect(self):
        """Who gives a start without steps is told so; nobody is told of a word that he has not given."""
        for words, says in ((dict(start=0.3), 1), (dict(start=0.3, steps=10), 0), (dict(start=0), 0), (dict(codec="powergossip"), 0),
                            (dict(tracker=True), 0)):
            with self.assertLogs("tacit", "WARNING") as log:
                logging.getLogger("tacit").warning("ours")
                self.wrap(torch.optim.SGD(self.module.parameters(), lr=0.1), strategy="gossip", **words).close()
            self.assertEqual(len(log.output), 1 + says, log.output)
            self.assertEqual(sum("gossip.start 0.3 has no effect" in line for line in log.output), says)

    def test_steps_of_another_optimizer(self):
        for strategy, says in (("gossip", "parameters have changed"), ("localsgd", "parameters have changed"),
                               ("shard", "8 backward passes, and no step")):
            first = torch.optim.SGD(self.module.parameters(), lr=0.1)
            model = self.wrap(first, strategy=strategy)
            second = torch.optim.SGD(model.parameters(), lr=0.1)
            with self.assertLogs("tacit", "WARNING") as log:
                for _ in range(9):
                    self.step(model, second)
                self.assertEqual(len(log.output), 1)
                with model.average():
                    pass
            self.assertRegex("".join(log.output), says + ".*wrap the model again")
            self.assertEqual(len(log.output), 1)
            model.close()
            model = self.wrap(first, strategy=strategy)
            with self.assertNoLogs("tacit", "WARNING") if hasattr(self, "assertNoLogs") else contextlib.nullcontext():
                for _ in range(9):
                    self.step(model, first)
                    first.zero_grad()
                for _ in range(9):
                    self.step(model)  # accumulates
                with model.average():
                    pass
            model.close()

    def test_closures_that_are_called_many_times(self):
        for strategy in ("gossip", "localsgd", "none", "dp"):
            module = make(Net)
            optimizer = torch.optim.LBFGS(module.parameters(), max_iter=4)
            model = self.wrap(optimizer, module=module, strategy=strategy)

            def closure():
                optimizer.zero_grad()
                loss = loss_of(model(Net.batch(0)))
                loss.backward()
                return loss
            with self.assertLogs("tacit", "WARNING") as log:
                logging.getLogger("tacit").warning("ours")
                for _ in range(2):
                    optimizer.step(closure)
            self.assertEqual(len(log.output), 1, log.output)

    def test_stores_that_fail(self):
        """At once, in the store's own words; one that has no value is asked until comm.start is over."""
        class Store:
            def __init__(self, works=(), what=KeyError("who")):
                self.works, self.what = works, what

            def set(self, key, value):
                self.act("set")

            def get(self, key, seconds):
                return self.act("get")

            def act(self, verb):
                if verb not in self.works:
                    raise self.what
        for rank, store, kind, text in ((1, Store(("set",), ValueError("odd")), tacit.FileError, "^get.'tacit-0-0'.* store .*: ValueError: odd$"),
                                        (0, Store(), tacit.FileError, "^set.'tacit-0-0'.* of the store has failed: KeyError: 'who'$"),
                                        (1, Store(("set", "get")), tacit.FileError, "has returned is None: a value of at most 4096 bytes"),
                                        (1, Store(("set",)), tacit.PeerError, "rank 0 has not come up within 1 s")):
            begin = time.monotonic()
            with self.assertRaisesRegex(kind, text) as caught:
                tacit.Comm(tacit.Settings(comm__start=1 if kind is tacit.PeerError else 60), rank, 2, store)
            self.assertLess(time.monotonic() - begin, 20)
            self.assertEqual(caught.exception.__cause__ is None, kind is tacit.PeerError)

    def test_metrics_that_cannot_be_written(self):
        for path, text in (("/proc/nowhere/metrics.jsonl", "No such file"), (True, "expected str")):
            self.refuses(f"metrics={path!r}: .*{text}", metrics=path)
        with self.assertLogs("tacit", "WARNING") as logged:
            model = self.wrap(metrics="/dev/full")
            for _ in range(3):
                self.step(model)
            model.close()
        self.assertEqual(len(logged.output), 1)
        self.assertRegex(logged.output[0], "No space left.*no more rows of metrics are written")

    def test_names_of_values(self):
        """Those of a row's own keys are taken, whether there is a file or not."""
        with tempfile.TemporaryDirectory() as folder:
            model = self.wrap(metrics=os.path.join(folder, "metrics.jsonl"))
            self.step(model)
            model.log(loss=1.5)
            with self.assertRaisesRegex(tacit.UsageError, r"log\(time=...\): .* other than step, time, grad_norm.*skipped, factor, gain, kept, event"):
                model.log(loss=2.5, time=3)
            model.close()
            with open(os.path.join(folder, "metrics.jsonl")) as file:
                row = json.loads(file.read())
        self.assertEqual(row.pop("loss"), 1.5)
        other = self.wrap()
        for name in [*row, "event"]:
            with self.assertRaisesRegex(tacit.UsageError, f"log.{name}="):
                other.log(**{name: 1})

    def test_closed(self):
        model = self.wrap()
        model.close()
        with self.assertRaisesRegex(tacit.UsageError, "closed"):
            self.step(model)
        for call in (model.counters, lambda: parallel.save("folder", model)):
            with self.assertRaisesRegex(tacit.UsageError, "this is closed"):
                call()
        with torch.no_grad():
            model(Net.batch(0))

    def test_after_fork(self):
        model = self.wrap()
        for batch in DataLoader(Squares(), batch_size=8, num_workers=4):
            self.step(model, x=batch)
        for work in (lambda: self.step(model), model.counters, lambda: parallel.Parallel(make(Net)), model.close,
                     model.average().__enter__, lambda: parallel.save("folder", model), lambda: parallel.load("folder", model)):
            self.assertRegex(text_of_fork(work), "UsageError.*(fork|parent)")
        self.step(model)

    def test_words_of_the_command(self):
        """Where the program is not installed."""
        variables = {**os.environ, "PATH": "/nowhere"}
        variables.pop("TACIT", None)
        for words, code, text in ((["nix"], 2, "unknown command nix; one of doctor, info, probe, plan, train"),
                                  (["plan"], 1, "python -m tacit plan: needs the program tacit"),
                                  (["doctor", "extra"], 2, "doctor: extra is a word too many"),
                                  (["info", "codecs", "extra"], 2, "unknown topic extra; one of options")):
            run = subprocess.run([sys.executable, "-m", "tacit", *words], env=variables, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (code, ""))
            self.assertRegex(run.stderr, text)

    def test_without_the_library(self):
        for path, text in (("/nowhere/libtacit.so", "libtacit cannot be opened.*pip install tacit, or set TACIT_LIBRARY"),
                           ("libm.so.6", "is not libtacit|undefined symbol")):
            run = subprocess.run([sys.executable, "-c", "import tacit"], env={**os.environ, "TACIT_LIBRARY": path},
                                 capture_output=True, text=True)
            self.assertRegex(run.stderr.splitlines()[-1], "ImportError: .*" + text)


if __name__ == "__main__":
    unittest.main()

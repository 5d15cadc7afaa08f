# SPDX-License-Identifier: Apache-2.0
"""A GPU that there is not: fake_cuda.c is its driver, tensors of the CPU stand for those of the GPU, and what writes or reads
them there is queued on a stream, so that too early a copy has wrong bits."""
import contextlib
import ctypes
import os
import pathlib
import subprocess
import threading

import torch

from models import same_bits

SEED = int(os.environ.get("TACIT_SEED", "1"))


def build_driver(folder):
    path = os.path.join(folder, "libfake.so")
    source = pathlib.Path(__file__).with_name("fake_cuda.c")
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread",
                    "-o", path, source], check=True)
    return path


class Future(torch.futures.Future):
    """As torch's for a GPU: who waits for it waits for what the stream of its setter had been given, but only where its
    value has tensors. Callbacks have a stream of their own."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu, self.given, self.is_complete = gpu, None, False

    def set_result(self, value):
        """It counts as complete, and calls nobody, if the event cannot be recorded."""
        if self.is_complete:
            raise RuntimeError("a completed future cannot be completed again")
        self.is_complete = True
        if isinstance(value, torch.Tensor):
            self.given = self.gpu.record()
        super().set_result(value)

    def then(self, callback):
        def run(future):
            thread, before = self.gpu.thread, self.gpu.stream_of(0)
            thread.stream = self.gpu.behind
            if self.given:
                self.gpu.cuda.open_device(0).hold_torch(self.given)
            try:
                return callback(future)
            finally:
                thread.stream = before
        return super().then(run)


class Gpu:
    """Takes the place of what tacit.torch.cuda knows of torch, while it is active. Kernels are host code that runs at once,
    between sync(), which waits for what their stream was given before, and write(), which makes the result come late."""

    def __init__(self, path):
        from tacit.torch import cuda
        self.cuda, self.thread, self.kept, self.keeps_all = cuda, threading.local(), [], False
        self.driver = cuda.open_driver(path)
        self.driver.fake_seed.argtypes = [ctypes.c_uint64, ctypes.c_uint]
        self.driver.fake_fail.argtypes = [ctypes.c_uint64, ctypes.c_int]
        self.driver.fake_kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t]
        self.driver.fake_synchronize.argtypes = [ctypes.c_void_p]
        self.driver.fake_slow.argtypes = [ctypes.c_void_p, ctypes.c_uint]
        self.driver.fake_calls.restype, self.driver.fake_stream_make.restype = ctypes.c_uint64, ctypes.c_void_p
        self.behind = self.driver.fake_stream_make()
        self.driver.fake_seed(SEED * 100 + int(os.environ["RANK"]) + 1, 200)

    @contextlib.contextmanager
    def active(self):
        names = ("device_of", "stream_of", "make_future", "use_own_stream")
        theirs = {name: getattr(self.cuda, name) for name in names}
        for name in names:
            setattr(self.cuda, name, getattr(self, name))
        try:
            yield
        finally:
            for name in names:
                setattr(self.cuda, name, theirs[name])

    @staticmethod
    def device_of(tensor):
        return 0

    def stream_of(self, index):
        return getattr(self.thread, "stream", None)

    def make_future(self, index):
        return Future(self)

    def use_own_stream(self, index):
        self.thread.stream = self.driver.fake_stream_make()

    def record(self):
        """An event behind what this thread's stream has been given."""
        device = self.cuda.open_device(0)
        event = device.make_event()
        with device:
            self.driver.cuEventRecord(event, self.stream_of(0))
        return event

    def sync(self):
        self.driver.fake_synchronize(self.stream_of(0))
        if self.stream_of(0) is None and not self.keeps_all:
            self.kept.clear()

    def slow(self, stream, us):
        """Makes one stream late: None, which is torch's, or "_inward" or "_outward". Memory that kernels were given is kept, so
        that a copy that comes too late writes to nobody else's."""
        self.keeps_all = True
        self.driver.fake_slow(stream and getattr(self.cuda.open_device(0), stream), us)

    @torch.no_grad()
    def write(self, tensor):
        """A kernel has written this; until its stream comes to it, the memory holds something else."""
        flat = tensor.detach().as_strided((tensor.numel(),), (1,))
        if not tensor.numel():
            return
        result = flat.clone()
        flat.fill_(float("nan"))
        self.kept.append((result, tensor))
        self.driver.fake_kernel(self.stream_of(0), flat.data_ptr(), result.data_ptr(), flat.numel() * flat.element_size())

    def read(self, tensor, out):
        """A kernel that is queued now will read it."""
        self.kept.append((out, tensor))
        self.driver.fake_kernel(self.stream_of(0), out.data_ptr(), tensor.data_ptr(), out.numel() * out.element_size())


class OnGpu:
    """A model's hooks, so that gradients and parameters are written and read by kernels."""

    def __init__(self, gpu, module, optimizer):
        self.gpu, self.module, self.optimizer, self.locals, self.seen = gpu, module, optimizer, {}, {}
        trained = [p for p in module.parameters() if p.requires_grad and p.numel()]
        self.count = len(trained)
        for p in trained:
            p.register_post_accumulate_grad_hook(self.write_gradient)
        optimizer.register_step_post_hook(lambda o, *_: [gpu.write(p) for p in self.list_updated(o)])

    def wrapped(self, reads):
        """After the hooks of tacit. reads: kernels behind them read gradients, which are the library's else."""
        for p in self.module.parameters():
            if reads and p.requires_grad and p.numel():
                p.register_post_accumulate_grad_hook(self.read_gradient)
        self.optimizer.register_step_pre_hook(lambda *_: self.gpu.sync())

    def list_updated(self, optimizer):
        return [p for group in optimizer.param_groups for p in group["params"] if p.numel()]

    def write_gradient(self, p):
        self.locals[p] = p.grad.clone()
        if p.grad.stride() == p.stride() and p.grad.dtype == p.dtype:
            self.gpu.write(p.grad)

    def read_gradient(self, p):
        """Behind the last one come kernels that read all of this pass for a while."""
        self.seen[p] = torch.empty_strided(p.grad.size(), p.grad.stride(), dtype=p.grad.dtype)
        for _ in range(8 if len(self.seen) == self.count else 0):
            for other, value in self.seen.items():
                self.gpu.read(other.grad, value)

    def check(self):
        """Whether kernels that came behind the gradients have read them before sums were written over them."""
        right = len(self.seen) < self.count or all(same_bits(value, self.locals[p]) for p, value in self.seen.items())
        self.seen = {}
        return right

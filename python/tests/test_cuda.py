#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tacit.torch on a GPU that there is not (emulated_gpu.py). The reference is the CPU's path.

    python/tests/test_cuda.py ranks N [NAME...]
    python/tests/test_cuda.py failures KIND...    of list_waits() and FAILURES; hang, refused

TACIT_SEED: of the pauses (default 1)."""
import faulthandler
import os
import re
import sys

import torch
from torch import nn

from emulated_gpu import Gpu, OnGpu, build_driver
from models import ConvNet, Net, OddShapes, loss_of, make, same_bits
from ranks import own_folder, run_tests, start_ranks

STEPS, SAMPLES = 4, 4


def rank():
    return int(os.environ["RANK"])


def size():
    return int(os.environ["WORLD_SIZE"])


def mine(batch):
    return batch[rank() * SAMPLES:(rank() + 1) * SAMPLES]


def mixed():
    """Has bfloat16 in the middle."""
    net = Net()
    net.block.bfloat16()
    net.block.register_forward_pre_hook(lambda _, inputs: (inputs[0].bfloat16(),))
    net.last.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
    return net


mixed.batch = Net.batch


def last():
    return ConvNet().to(memory_format=torch.channels_last)


last.batch = lambda *words: ConvNet.batch(*words).to(memory_format=torch.channels_last)


class Run:
    """A model in training: what it holds after each step."""

    def __init__(self, gpu, build, seed=1, **settings):
        import tacit.torch as tacit
        self.gpu, self.build, module = gpu, build, make(build, seed + rank())
        self.optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
        self.at = OnGpu(gpu, module, self.optimizer) if gpu else None
        self.model = tacit.Parallel(module, self.optimizer, **settings)
        if self.at:
            self.at.wrapped(reads=not self.model._sums_early)
        self.found = []

    def sync(self):
        if self.gpu:
            self.gpu.sync()

    def keep(self):
        self.sync()
        gradients = [p.grad for group in self.optimizer.param_groups for p in group["params"]]
        state = [v for s in self.optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
        tensors = [torch.tensor(not self.at or self.at.check()), *self.model.parameters(), *gradients, *state]
        self.found.append([t.detach().clone() for t in tensors if t is not None])

    def backward(self, step):
        self.sync()
        loss_of(self.model(mine(self.build.batch(step, size() * SAMPLES)))).backward()
        self.sync()

    def step(self, step, passes=1, unsynced=0, clip=None):
        self.sync()
        self.optimizer.zero_grad()
        for i in range(unsynced):
            with self.model.no_sync():
                self.backward(100 + step + i)
        for i in range(passes):
            self.backward(step + 10 * i)
        if clip:
            self.model.clip_grad_norm_(clip)
        self.keep()
        self.optimizer.step()
        self.keep()

    def end(self):
        self.sync()
        self.model.close()
        return self.found


def compare(gpu, work, check=True):
    """work(gpu or None) on the CPU and on the GPU: the same bits."""
    expected = work(None)
    with gpu.active():
        found = work(gpu)
    assert len(found) == len(expected)
    right = True
    for i, (a, b) in enumerate(zip(expected, found)):
        assert len(a) == len(b), (len(a), len(b))
        for k, (x, y) in enumerate(zip(a, b)):
            right = right and same_bits(x, y)
            assert right or not check, f"state {i}, tensor {k}: {describe(x, y)}"
    return right


def describe(x, y):
    x, y = x.detach().double().flatten(), y.detach().double().flatten()
    other = (x != y).nonzero().flatten()
    return (f"{len(other)} of {len(x)} elements differ, at {other[:6].tolist()} to {other[-1:].tolist()}: "
            f"{x[other][:4].tolist()} and {y[other][:4].tolist()}")


def train(build=OddShapes, steps=STEPS, words={}, **settings):
    def work(gpu):
        run = Run(gpu, build, **settings)
        for step in range(steps):
            run.step(step, **words)
        return run.end()
    return work


# ---- the same bits -----------------------------------------------------------------------------------------------------

def test_gradients():
    for settings in ({}, dict(codec="topk", factor=5, compress__warmup=0), dict(codec="int4"), dict(wire="bf16"),
                     dict(exchange__overlap=False), dict(optim__clip=0.1)):
        compare(GPU, train(**settings))


def test_gradients_without_a_thread():
    import tacit.torch as tacit
    with tacit.open_comm(tacit.Settings(comm__thread=False)) as comm:
        compare(GPU, train(comm=comm))


def test_auto():
    compare(GPU, train(steps=12, codec="auto"))


def test_types_and_layouts():
    for build in (mixed, last, lambda: Net().bfloat16()):
        if build not in (mixed, last):
            build.batch = lambda *words: Net.batch(*words).bfloat16()
        for settings in ({}, dict(strategy="gossip"), dict(strategy="shard")):
            compare(GPU, train(build, **settings))


def test_passes():
    for settings in ({}, dict(strategy="gossip"), dict(strategy="shard")):
        compare(GPU, train(words=dict(unsynced=1), **settings))
        compare(GPU, train(words=dict(passes=2, clip=0.3), **settings))


def test_replicas():
    for settings in (dict(strategy="gossip", topology="aer"), dict(strategy="gossip", topology="exp"),
                     dict(strategy="localsgd", every=2), dict(strategy="localsgd", every=2, codec="int8"),
                     dict(strategy="none")):
        compare(GPU, train(steps=6, **settings))
        compare(GPU, train(mixed, **settings))


def test_shard():
    for stage in (1, 2):
        for settings in ({}, dict(codec="int4", compress__gather="int8")):
            compare(GPU, train(strategy="shard", stage=stage, words=dict(clip=0.3), **settings))


def test_skipped():
    def work(gpu, **settings):
        run = Run(gpu, Net, **settings)
        batch = Net.batch
        run.build = lambda: None
        run.build.batch = lambda step, n: batch(step, n) * (float("nan") if step == 1 else 1)
        for step in range(3):
            run.step(step)
        return run.end()
    for settings in ({}, dict(strategy="shard"), dict(strategy="gossip")):
        compare(GPU, lambda gpu: work(gpu, **settings))


def test_averages():
    def work(gpu, **settings):
        run = Run(gpu, mixed, **settings)
        for step in range(4):
            run.step(step)
            if step % 2:
                run.sync()
                with run.model.average():
                    run.keep()
                run.keep()
        return run.end()
    for settings in ({}, dict(strategy="gossip"), dict(strategy="localsgd", every=3), dict(strategy="shard")):
        compare(GPU, lambda gpu: work(gpu, **settings))


def test_buffers_and_frozen():
    def build():
        net = ConvNet()
        net.last.bias.requires_grad_(False)
        return net
    build.batch = ConvNet.batch

    def work(gpu, choice):
        run = Run(gpu, build, buffers=choice)
        for step in range(3):
            run.step(step)
        run.found.append([b.clone() for b in run.model.buffers()])
        return run.end()
    for choice in ("average", "broadcast", "own"):
        compare(GPU, lambda gpu: work(gpu, choice))


def test_checkpoints():
    import tacit.torch as tacit
    def work(gpu, **settings):
        place = os.path.join(os.environ["FOLDER"], "-".join(["gpu" if gpu else "cpu", *map(str, settings.values())]))
        run = Run(gpu, mixed, **settings)
        for step in range(4):
            run.step(step)
            if step == 1:
                run.sync()
                tacit.save(place, run.model, run.optimizer, step=step + 1)
        run.end()
        other = Run(gpu, mixed, seed=5, **settings)
        other.step(0)
        other.sync()
        assert tacit.load(place, other.model, other.optimizer) == 2
        for step in (2, 3):
            other.step(step)
        other.end()
        for a, b in zip(run.found[-1], other.found[-1]):
            assert same_bits(a, b), "it goes on otherwise"
        state = other.model.state_dict()
        return other.found[-4:] + [[v.clone() for v in state.values()]]
    for settings in ({}, dict(strategy="gossip"), dict(strategy="localsgd", every=3), dict(strategy="shard")):
        compare(GPU, lambda gpu: work(gpu, **settings))


def test_a_state_that_is_loaded():
    def work(gpu, **settings):
        run = Run(gpu, Net, **settings)
        state = {name: v.clone() for name, v in make(Net, 9).state_dict().items()}
        for step in range(3):
            run.step(step)
            if step == 1:
                run.sync()
                run.model.load_state_dict(state)
        found = run.end()
        run.model.load_state_dict(state)  # of an ordinary model
        return found
    for settings in ({}, dict(strategy="gossip"), dict(strategy="shard")):
        compare(GPU, lambda gpu: work(gpu, **settings))


def test_memory_is_given_back():
    before = GPU.driver.fake_pinned()
    compare(GPU, train())
    assert GPU.driver.fake_pinned() == before


# ---- DDP's hook and FSDP2 ----------------------------------------------------------------------------------------------

def need_group():
    import torch.distributed as dist
    if not dist.is_initialized():
        dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank(), world_size=size())


def with_hook(gpu, module, **words):
    """Buckets are written by kernels; DDP waits for the future, and for its stream."""
    import tacit.torch as tacit
    ddp = nn.parallel.DistributedDataParallel(module, bucket_cap_mb=0.01)
    state, send = tacit.hook(ddp, **words)

    def written(state, bucket):
        gpu.write(bucket.buffer())

        def give(future):
            gpu.driver.fake_synchronize(gpu.behind)
            return future.value()
        return send(state, bucket).then(give)
    ddp.register_comm_hook(state, written if gpu else send)
    return ddp, state


def test_hook():
    def work(gpu, build=Net, **words):
        ddp, state = with_hook(gpu, make(build), **words)
        found = []
        for step in range(4):
            ddp.zero_grad()
            loss_of(ddp(mine(build.batch(step, size() * SAMPLES)))).backward()
            found.append([p.grad.clone() for p in ddp.parameters()] + [torch.tensor(state.last_step.norm)])
        state.close()
        return found
    need_group()
    for words in ({}, dict(codec="topk", factor=5, compress__warmup=0), dict(codec="int4"), dict(optim__clip=0.05)):
        compare(GPU, lambda gpu: work(gpu, **words))
        compare(GPU, lambda gpu: work(gpu, mixed, **words))


def test_fsdp():
    import torch.distributed.fsdp
    if not hasattr(getattr(torch.distributed.fsdp, "FSDPModule", None), "set_custom_reduce_scatter"):
        return  # before torch 2.9
    fsdp = sys.modules["tacit.torch.fsdp"]
    from test_fsdp import data, make, whole
    need_group()

    def late(kind, gpu):
        call = kind.__call__

        def called(self, output_tensor, input_tensor, *words, **named):
            gpu.write(input_tensor)
            result = call(self, output_tensor, input_tensor, *words, **named)
            gpu.sync()
            return result
        return replace(kind, "__call__", called)

    def work(gpu, **words):
        undo = [late(kind, gpu) for kind in (fsdp.ReduceScatter, fsdp.AllGather)] if gpu else []
        model, channels = make(words)
        found = []
        for step in range(3):
            loss = (model(data(step)) - 1).square().mean()
            loss.backward()
            found.append([whole(p.grad).clone() for p in model.parameters()] + [loss.detach()])
        channels.close()
        assert GPU.driver.fake_pinned() == 0
        for each in undo:
            each()
        return found
    for words in ({}, dict(codec="int4"), dict(codec="topk", factor=4, warmup=0)):
        compare(GPU, lambda gpu: work(gpu, **words))


# ---- every wait is needed ----------------------------------------------------------------------------------------------

def averaging(gpu):
    run = Run(gpu, Net, strategy="gossip")
    for step in range(3):
        run.step(step)
        run.sync()
        with run.model.average():
            pass
        run.keep()
    return run.end()


def replace(owner, name, value):
    """Returns what takes the real one's place again."""
    real = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, real)


def inside(function, owner, name, value):
    """The function, during which something else has another value."""
    def call(*words):
        undo = replace(owner, name, value)
        try:
            return function(*words)
        finally:
            undo()
    return call


def leave_out_wait(function, number):
    """The function without this one of the waits in it."""
    from tacit.torch.cuda import Device
    wait = Device.wait

    def call(*words):
        calls = []

        def count(*arguments):
            calls.append(arguments)
            return None if len(calls) == number else wait(*arguments)
        return inside(function, Device, "wait", count)(*words)
    return call


def list_waits():
    """{name of a wait: (what takes it away, a run that needs it, the stream that is late where it is missed)}."""
    from tacit.job import Job
    from tacit.torch.cuda import Device, Staging

    def nothing(*_):
        return None

    def within(owner, name, inner, value=nothing):
        return lambda: replace(owner, name, inside(getattr(owner, name), Device, inner, value))

    def wait_of(name, number):
        return lambda: replace(Staging, name, leave_out_wait(getattr(Staging, name), number))
    plain, of_torch, inward, outward = train(Net), None, "_inward", "_outward"
    return {
        "copy_after_writes": (within(Device, "copy_in", "_follow_torch"), plain, of_torch),
        "copy_after_reads": (within(Device, "copy_out", "_follow_torch"), train(Net, optim__clip=0.1), of_torch),
        "kernels_after_sums": (lambda: replace(Device, "hold_torch", nothing), plain, outward),
        "ready_after_copy": (within(Staging, "deliver", "has_reached", lambda *_: True), plain, inward),
        "back_after_sum": (lambda: replace(Job, "wait", lambda *_: True), plain, inward),
        "parameters_after_copy": (wait_of("fetch", 1), train(Net, strategy="gossip"), inward),
        "places_after_sums": (wait_of("give", 1), train(mixed, strategy="gossip"), outward),
        "rewrite_after_copy": (wait_of("give", 2), averaging, outward),
        "free_after_copies": (within(Staging, "close", "wait"), plain, outward),
        "none": (nothing, plain, of_torch),
        "none_inward": (nothing, averaging, inward),
        "none_outward": (nothing, averaging, outward),
    }


def fail_calls(kind, number, error):
    """In a rank: trains, and on rank 1 a call of the driver fails."""
    prepare()
    settings, steps = dict(FAILURES[kind], comm__timeout=2), STEPS + 2 if number else STEPS  # the others go on
    with GPU.active():
        GPU.driver.fake_fail(number if rank() == 1 else 0, error)
        if kind == "hook":
            need_group()
            ddp, _ = with_hook(GPU, make(Net), **settings)
            for step in range(steps):
                loss_of(ddp(mine(Net.batch(step, size() * SAMPLES)))).backward()
        else:
            train(Net, steps, **settings)(GPU)
        print("calls", GPU.driver.fake_calls())


def run_errors(kind):
    """Whichever call of the driver fails on rank 1, it ends with the error's name, and rank 0 with a PeerError."""
    calls, number, step, found = 0, 0, 0, 0
    while number <= calls:
        error = (2, 700)[found % 2]
        os.environ["MEET"] = os.path.join(os.environ["FOLDER"], f"meet-{kind}-{number}")
        started = start_ranks(2)
        if started is None:
            fail_calls(kind, number, error)
            return True
        texts = [rank.end(60) for rank in started]
        if number == 0:
            assert [rank.code for rank in started] == [0, 0], texts
            calls = int(re.search("calls ([0-9]+)", texts[1]).group(1))
            assert calls >= 5, texts
            number = step = calls // 5
            continue
        name = {2: "OutOfMemoryError: cu.* has failed: CUDA_ERROR_OUT_OF_MEMORY",
                700: "DeviceError: cu.* has failed: CUDA_ERROR_ILLEGAL_ADDRESS.*from a checkpoint"}[error]
        assert [rank.code for rank in started] == [1, 1], f"{kind}, call {number}: {[r.code for r in started]} {texts}"
        assert re.search(name, texts[1]), f"{kind}, call {number}: {texts[1]}"
        assert re.search("PeerError: .*rank 1|rank 1 .*has closed", texts[0]), f"{kind}, call {number}: {texts[0]}"
        found, number = found + 1, number + step
    print(f"{kind}: {found} of {calls} calls have failed, named on both ranks")
    return False


def run_refused():
    """Without a driver, with another library in its place, without memory."""
    import tacit.torch as tacit
    os.environ.update(RANK="0", WORLD_SIZE="1")
    prepare()
    cuda, module = GPU.cuda, make(Net)
    comm = tacit.open_comm()

    def refuses(kind, text, before):
        with GPU.active():
            before()
            try:
                tacit.Parallel(module, comm=comm)
            except kind as error:
                assert re.search(text, str(error)), error
            else:
                raise AssertionError(f"no {kind.__name__} with {text}")
        tacit.Parallel(module, comm=comm).close()  # nothing of it is left behind

    def forget_driver():
        cuda._driver, cuda.LIBRARY = None, "/nowhere/libcuda.so.1"
    refuses(tacit.UnsupportedError, r"cannot be opened \(/nowhere/libcuda.so.1: .*\): install the driver.*model.cpu\(\)",
            forget_driver)
    cuda.LIBRARY = os.environ["TACIT_LIBRARY"]
    refuses(tacit.UnsupportedError, "has no cuInit: a driver of CUDA 11 or later is needed", lambda: None)
    cuda.open_driver(os.environ["FAKE"])
    cuda.open_device(0)
    refuses(tacit.OutOfMemoryError, "cuMemHostAlloc has failed: CUDA_ERROR_OUT_OF_MEMORY .*no [0-9]+ bytes of pinned memory",
            lambda: GPU.driver.fake_fail(1, 2))
    comm.close()
    return False


def run_hang():
    """A GPU that does not go on."""
    started = start_ranks(2)
    if started is None:
        from tacit.torch.cuda import Device
        prepare()
        with GPU.active():
            run = Run(GPU, Net, comm__stall=2, comm__timeout=2)
            run.step(0)
            if rank() == 1:
                replace(Device, "has_reached", lambda *_: False)
            run.step(1)
        return True
    texts = [rank.end(30) for rank in started]
    assert [rank.code for rank in started] == [1, 1], texts
    assert re.search("DeviceError: GPU 0 has not reached a copy for 2 s", texts[1]), texts[1]
    assert re.search("PeerError: .*rank 1", texts[0]), texts[0]
    return False


FAILURES = dict(dp={}, gossip=dict(strategy="gossip"), shard=dict(strategy="shard"), hook={})


def run_failure(kind):
    import tacit.torch  # once for all ranks
    others = {"hang": run_hang, "refused": run_refused}
    return run_errors(kind) if kind in FAILURES else others[kind]() if kind in others else run_without(kind)


def run_without(kind):
    """On two ranks: without this wait at least one finds wrong bits, or does worse. Every gradient is copied by itself."""
    started = start_ranks(2)
    if started is None:
        prepare()
        from tacit.torch import parallel
        parallel.list_ends = lambda parameters: range(len(parameters))
        take_away, work, late = list_waits()[kind]
        expected = work(None)
        take_away()
        GPU.slow(late, 2000 * (rank() + 1))  # a sum of both ranks is later than what rank 0 has
        compare(GPU, lambda gpu: work(gpu) if gpu else expected)
        return True
    texts = [rank.end(60) for rank in started]
    found = [rank.code for rank in started]
    assert any(found) != kind.startswith("none") and -9 not in found, f"{kind}: {found}: {texts}"
    last = [text.strip().splitlines()[-1:] for text in texts]
    print(f"without {kind}: {found}, {last}", flush=True)
    return False


def prepare():
    global GPU
    faulthandler.dump_traceback_later(300, exit=True)
    import torch.distributed as dist
    torch.set_num_threads(1)
    GPU = Gpu(os.environ["FAKE"])


if __name__ == "__main__":
    with own_folder() as folder:
        os.environ["FAKE"] = build_driver(folder)
        os.environ["FOLDER"] = folder
        os.environ["MEET"] = os.path.join(folder, "meet")
        run_tests(globals(), sys.argv[1:], prepare, run_failure)

# SPDX-License-Identifier: Apache-2.0
"""A communication hook of DistributedDataParallel, for those who stay with it:

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(*tacit.hook(ddp, codec="auto"))

Residuals belong to parameters, not to buckets, which DDP makes again after its first step."""
import atexit
import queue
import threading
import weakref

import torch

from .._library import ConfigError, UsageError, check, expect
from ..job import Job
from ..settings import Settings
from . import _private, cuda
from .buffers import Buffers
from .ranks import open_comm
from .tensors import Tensors, read_state, restore_state

LOOK_S = 0.25  # how often the waiting thread looks whether the program ends
MOMENT_S = 0.001  # and whether more gradients have come from a GPU

# Buffers of steps that have failed: late messages may still write to them.
_kept = []
_hooks = weakref.WeakSet()


def hook(ddp, config=None, comm=None, **settings):
    """Returns what ddp.register_comm_hook(*...) takes: a Hook, and the function that DDP calls with it. config, settings: as of
    tacit.Parallel. comm: ranks for this hook alone, else those of DDP's process group. Collective."""
    return Hook(ddp, config, comm, settings), send_bucket


def send_bucket(state, bucket):
    return state.send(bucket)


class Hook:
    """The state of the hook: a job that sums gradients and knows no parameters. `last_step` is what the library says about
    the last step, such as its norm.

    DDP's thread makes gradients ready; a thread of the hook waits for their sums, completes the buckets' futures, and ends
    the step before it completes the last of them, so that no gradient of the next step can be ready earlier."""

    def __init__(self, ddp, config, comm, settings):
        if not isinstance(ddp, torch.nn.parallel.DistributedDataParallel):
            raise UsageError(f"a hook needs the DistributedDataParallel that it is for, not a {type(ddp).__name__}: "
                             "ddp.register_comm_hook(*tacit.hook(ddp))")
        self.settings = Settings({"optim.clip": 0}, config, **settings)
        if self.settings["strategy"] != "dp":
            raise ConfigError(f"strategy {self.settings['strategy']} is more than a sum of gradients, and a hook sees nothing "
                              "else: tacit.Parallel(model, optimizer, ...) in place of DistributedDataParallel")
        if self.settings["exchange.overlap"] != "true":
            raise ConfigError("exchange.overlap=false: DDP wants the sum of a bucket before backward has ended, and nothing would "
                              "leave until then: leave it out")
        self._tensors = Tensors(ddp.module, on_flat=False, left_out=_private.list_left_out(ddp),
                                stall_s=float(self.settings["comm.stall"]))
        self._own_comm, self.comm, self._job = comm is None, comm, None
        try:
            self.comm = comm or open_comm(self.settings, ddp.process_group)
            self._job = Job(self.comm, self.settings, self._tensors.layout, threads=torch.get_num_threads(),
                            gradients_only=True)
        except Exception:
            self._tensors.release()
            if self._job is None:
                self._tensors.close()
            if self._own_comm and self.comm:
                self.comm.close()
            raise
        self._indices = {id(p): i for i, p in enumerate(self._tensors.parameters)}
        self._clips = float(self.settings["optim.clip"]) > 0
        self._missing, self._buffers, self._held = set(), [], []
        self._done, self._started, self._stopping = threading.Event(), False, False
        self._buckets = queue.SimpleQueue()
        self.error = self.last_step = None
        self._thread = threading.Thread(target=self._complete_buckets, name="tacit hook", daemon=True)
        self._thread.start()
        _hooks.add(self)

    # ---- DDP's thread --------------------------------------------------------------------------------------------------

    def send(self, bucket):
        """Starts the sum of a bucket's gradients, in place, and returns its future."""
        self.comm.check_process()
        if not self._job.handle:
            raise UsageError("this hook is closed: make a new DistributedDataParallel")
        if not self._missing:
            self._missing = set(range(len(self._indices)))
            self._buffers, self.comm.busy = [], True
            self._done.clear()
        buffer, future = bucket.buffer(), self._make_future()
        self._buffers.append(buffer)
        try:
            indices = self._make_ready(bucket)
        except Exception as error:
            self._fail(error)
            indices = []
        # The first pass of a static graph hands over its buckets at the end, one for every type, all with index 0.
        is_last = bucket.is_last() or (bucket.index() == 0 and not self._missing)
        if is_last:
            self._missing = set()
            _private.try_after_backward(self._end_backward)
        # C++ knows no exception of Python's: where it waits before _end_backward() does, it raises a RuntimeError with
        # this one's text.
        result = future.then(self._give)
        self._buckets.put((indices, future, buffer, is_last))
        return result

    def _make_future(self):
        return torch.futures.Future() if self._tensors.gpu is None else cuda.make_future(self._tensors.gpu)

    def _make_ready(self, bucket):
        if bucket.buffer().is_sparse:
            raise UsageError("a gradient is sparse; build the layer with sparse=False")
        if self.error:
            return []
        if not self._started:
            self._job.start()
            self._started = True
        pairs = [(p, g) for p, g in zip(bucket.parameters(), bucket.gradients()) if p.numel()]
        try:
            indices = [self._indices[id(p)] for p, _ in pairs]
        except KeyError:
            raise UsageError("DDP trains a parameter that did not want a gradient when the hook was made" + AFRESH) from None
        self._missing.difference_update(indices)
        if bucket.is_last() and self._missing:
            name = self._tensors.names[min(self._missing)]
            raise UsageError(f"{name} wants a gradient, but DDP does not train it: it did not when DDP was made" + AFRESH)
        self._tensors.sources.start(self._job, indices, [g.data_ptr() for _, g in pairs], 1 / self.comm.size)
        return indices

    def _end_backward(self):
        """Raises what has gone wrong, as what it is."""
        self._done.wait()
        if self.error:
            raise self.error

    def _give(self, future):
        if self.error:
            raise self.error
        return future.value()

    # ---- the waiting thread --------------------------------------------------------------------------------------------

    def _complete_buckets(self):
        try:
            if self._tensors.gpu is not None:
                cuda.use_own_stream(self._tensors.gpu)
        except Exception as error:
            self._fail(error)
        for indices, future, buffer, is_last in iter(self._buckets.get, None):
            try:
                if not self.error:
                    self._wait(indices)
                if is_last and not self.error:
                    self._end_step()
            except Exception as error:
                self._fail(error)
            if self._stopping:
                self._fail(UsageError("the hook was closed inside a step"))
                self._done.set()  # a backward pass that waits must end
                return
            self._held.append((indices, future, buffer))
            if is_last or not self._clips or self.error:  # clipping writes all gradients once more
                self._complete_held()
            if is_last:
                self._done.set()

    def _complete_held(self):
        try:
            if not self.error:
                self._tensors.sources.send_back([i for indices, *_ in self._held for i in indices])
        except Exception as error:
            self._fail(error)
        for _, future, buffer in self._held:
            self._complete(future, buffer)
        self._held = []

    def _complete(self, future, buffer):
        """Gives the future its tensor: a waiting thread waits for the GPUs of the tensors in it, and for no others. One that
        has failed may count as complete: backward ends by _done."""
        try:
            future.set_result(None if self.error else buffer)
        except Exception as error:
            self._fail(error)

    def _wait(self, indices):
        sources = self._tensors.sources
        sources.deliver(indices)
        for i in indices:
            while not self._job.wait(i, MOMENT_S if sources.is_busy else LOOK_S):
                if self._stopping:
                    return
                sources.deliver()

    @torch.no_grad()
    def _end_step(self):
        if self._stopping:
            return
        self.last_step = self._job.settle()
        self._job.stepped()
        self.comm.busy = False

    def _fail(self, error):
        if not self.error:
            self.error = error
            _kept.append(self._buffers)

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self):
        """Returns what this rank has not sent yet, and what the codec and the policy remember. Every rank saves its own.
        Between two steps."""
        return {"state": read_state(self._job)} if self._started else {}

    def load_state_dict(self, state):
        """Goes on from the state_dict() of this rank on as many ranks, bit for bit but for what auto has timed. Before the
        first backward pass. Collective."""
        if self._started:
            raise UsageError("load_state_dict() comes before the first backward pass: make a new hook")
        has = self._gather(isinstance(state, dict) and bool(state))
        expect(isinstance(state, dict), "state", state, "what state_dict() has returned")
        if not all(has) and any(has):
            raise UsageError(f"rank {has.index(False)} loads a state that is empty, as of before the first step, and rank "
                             f"{has.index(True)} one of steps: every rank loads its own of the same step")
        if state:
            restore_state(self._job, state.get("state"))
            self._started = True

    def _gather(self, value):
        sums = Buffers(None, self.comm, "own")
        values = sums.gather(value)
        check(sums.shut())
        return values

    # ---- the end -------------------------------------------------------------------------------------------------------

    def counters(self):
        """Returns steps, bytes and seconds of waiting, as tacit_counters names them."""
        return self._job.counters()

    def stop(self):
        """Ends the waiting thread. At the end of the program, or in close()."""
        self._stopping = True
        if not self.comm.is_parents:
            self._buckets.put(None)
            self._thread.join(10 * LOOK_S)

    def close(self):
        """Ends the hook, whose DistributedDataParallel cannot train any more. Between two steps. Collective, unless a peer
        has failed."""
        if not self._job.handle:
            return
        self.stop()
        self._tensors.release()
        try:
            self._job.close()
            self._tensors.close()
        finally:
            if self._own_comm:
                self.comm.close()


AFRESH = "; make DistributedDataParallel and its hook when all parameters are as they will be"


def stop_hooks():
    for each in list(_hooks):
        each.stop()


atexit.register(stop_hooks)

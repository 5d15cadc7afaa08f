# SPDX-License-Identifier: Apache-2.0
"""FSDP2, torch.distributed.fsdp.fully_shard, over channels of the library:

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    tacit.fsdp(model, codec="auto")

Gradients are compressed on their way to their owners, with a residual per module; parameters are gathered as they are."""
import contextlib
import weakref

import torch
import torch.distributed as dist

from .. import _table
from .._library import ConfigError, DataError, Error, PeerError, UnsupportedError, UsageError, check, expect, lib
from ..comm import Comm, logger
from ..job import Channel
from ..settings import Settings
from . import _private, cuda
from .ranks import open_comm
from .tensors import KINDS, check_state, read_state, restore_state

# Numbers on the wire that lose nothing of a gathered type.
WIRES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "fp16"}

# Tensors of transfers that have failed: late messages may still write to them.
_kept = []
_ours = weakref.WeakSet()  # FSDP modules whose sums the library makes


def fsdp(model, config=None, gather=True, **settings):
    """Every FSDP module of the model sums its gradients through the library from now on. config, settings: as of
    tacit.Parallel, of sections exchange, compress and comm. gather: all-gathers of parameters, too, dense and to the bit.
    Returns what close() ends. Before the first step; the ranks meet in the first forward pass. Collective."""
    expect(isinstance(model, torch.nn.Module), "model", model, "a torch.nn.Module")
    expect(isinstance(gather, bool), "gather", gather, "True or False")
    settings = Settings(config, **settings)
    if settings["strategy"] != "dp":
        raise ConfigError(f"strategy {settings['strategy']} is more than FSDP's sums and gathers, and tacit.fsdp() sees nothing "
                          "else: leave it out, or tacit.Parallel(model, optimizer, ...) in place of fully_shard(model)")
    return Fsdp(model, gather, settings)


@_table.tacit_log_callback
def log_nothing(*_):
    pass


def check_sums(settings):
    """Raises what the channels of the first step would. Their warnings come then."""
    comm = Comm(settings, alone=True)
    try:
        check(lib.tacit_comm_log_to(comm._handle, log_nothing, None, _table.LOG_ERROR))
        Channel(comm, settings, _table.REDUCE_SCATTER, 1).close()
    finally:
        comm.close()


class Fsdp:
    """The channels of a model, and the communicators of its process groups."""

    def __init__(self, model, gather, settings):
        self._modules = modules = _private.list_fsdp_modules(model)
        if not modules:
            raise UsageError(f"{type(model).__name__} has no FSDP module: torch.distributed.fsdp.fully_shard(model) comes "
                             "first")
        if not _ours.isdisjoint(modules):
            raise UsageError(f"this {type(model).__name__} has a tacit.fsdp() already: close() that first")
        check_sums(settings)
        self.settings, self.passages, self._comms, self._sums = settings, [], {}, []
        self._gather_settings = {t: Settings({"exchange.wire": w}) for t, w in WIRES.items()}
        try:
            for module in modules:
                self._sums.append(ReduceScatter(self))
                module.set_custom_reduce_scatter(self._sums[-1])
                if gather:
                    module.set_custom_all_gather(AllGather(self))
        except BaseException:
            self._give_back()
            raise
        _ours.update(modules)

    def _give_back(self):
        """Puts FSDP's own transfers in their place again, as far as it lets them."""
        for module in self._modules:
            with contextlib.suppress(ValueError):
                _private.restore_fsdp(module)
            _ours.discard(module)
        self._modules = []

    def comm_of(self, group):
        if group not in self._comms:
            self._comms[group] = open_comm(self.settings, group)
        return self._comms[group]

    def state_dict(self):
        """Returns what this rank has not sent yet, and what the codecs remember: {"ranks": their number,
        "MODULE.ELEMENTS": bytes as a tensor}. Every rank saves its own. Between two steps."""
        states = {f"{i}.{elements}": state for i, sums in enumerate(self._sums) for elements, state in sums.list_states()}
        return {"ranks": dist.get_world_size(), **states}

    def load_state_dict(self, state):
        """Goes on from the state_dict() of this rank on as many ranks, bit for bit but for what auto has timed. Before the
        first step."""
        if any(sums.is_open() for sums in self._sums):
            raise UsageError("load_state_dict() comes before the first step: fully_shard() a new model")
        expect(isinstance(state, dict), "state", state, "what state_dict() has returned")
        states, ranks = dict(state), dist.get_world_size()
        if states.pop("ranks", ranks) != ranks:
            raise DataError(f"the state is of {state['ranks']} ranks, these are {ranks}: begin without load_state_dict(), and what was "
                            "not sent yet is forgotten")
        places = {key: find_place(key, len(self._sums)) for key in states}
        for value in states.values():
            check_state(value)
        for i, sums in enumerate(self._sums):
            sums.saved = {elements: states[key] for key, (module, elements) in places.items() if module == i}

    def close(self):
        """Lets FSDP send by itself again. Between two steps. Collective, unless a peer has failed."""
        self._give_back()
        comms, self._comms = self._comms, {}
        errors = []
        for comm in comms.values():
            try:
                comm.close()
            except Error as error:
                errors.append(error)
        if errors:  # late messages may still write to what has passed
            raise errors[0]
        while self.passages:
            self.passages.pop().close()


def find_place(key, modules):
    """Returns (module, elements) of a key of state_dict()."""
    module, _, elements = str(key).partition(".")
    if not (module.isdigit() and elements.isdigit() and int(module) < modules):
        raise DataError(f"the state has sums {key!r}, and the model has {modules} FSDP modules: this is not the state_dict() of "
                        "tacit.fsdp() of this model")
    return int(module), int(elements)


class Transfers:
    """Sends what an FSDP module has for one direction: a channel per process group, length and settings. Lengths differ where
    not all parameters have gradients."""

    def __init__(self, owner):
        self._owner, self._channels, self._passages, self._works = owner, {}, {}, {}
        self.saved = {}  # {elements: state} for channels that are not open yet

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def is_open(self):
        return bool(self._channels)

    def list_states(self):
        """Returns those of open channels, and those that wait for theirs."""
        return [*self.saved.items(), *((elements, read_state(c)) for (_, elements, _), c in self._channels.items())]

    def _open(self, comm, settings, collective, elements):
        channel, state = Channel(comm, settings, collective, elements), self.saved.get(elements)
        if state is None:
            if self.saved and comm.rank == 0:
                logger.warning("the state that was loaded has sums of %s elements, and none of %d, which begin anew",
                               " and ".join(map(str, self.saved)), elements)
            return channel
        try:
            restore_state(channel, state)
        except BaseException:
            channel.shut()
            raise
        del self.saved[elements]
        return channel

    def _start(self, group, settings, collective, source, target, elements, scale):
        comm, key = self._owner.comm_of(group), (group, elements, id(settings))
        if key not in self._channels:
            channel, gpu = self._open(comm, settings, collective, elements), cuda.device_of(source)
            stall_s = float(self._owner.settings["comm.stall"])
            self._passages[key] = None if gpu is None else cuda.Passage(gpu, source, target, stall_s)
            if gpu is not None:
                self._owner.passages.append(self._passages[key])
            self._channels[key] = channel
        elif key in self._works and not self._works[key].is_completed():
            self._works[key].wait()
        work = self._works[key] = Transfer(self._channels[key], self._passages[key], source, target, scale)
        return work


class Transfer(_private.Work):
    """A transfer that is under way, as FSDP wants to wait for it."""

    def __init__(self, channel, passage, source, target, scale):
        super().__init__()
        self._channel, self._passage, self._tensors = channel, passage, (source, target)
        addresses = source.data_ptr(), target.data_ptr()
        if passage is not None:
            passage.bring(source)
            addresses = passage.source, passage.target
        try:
            channel.start(*addresses, KINDS[source.dtype], scale)
            channel.comm.transfers += 1
        except PeerError:
            channel.comm.transfers += 1
            _kept.append(self._tensors)
            raise

    def _ask(self, seconds):
        try:
            if self._channel and self._channel.wait(seconds):
                self._channel.comm.transfers -= 1
                if self._passage is not None:
                    self._passage.send(self._tensors[1])
                self._channel = self._tensors = None
        except PeerError:
            _kept.append(self._tensors)
            raise
        return self._channel is None

    def is_completed(self):
        return self._ask(0)

    def wait(self, timeout=None):
        seconds = timeout.total_seconds() if timeout else 0
        return self._ask(seconds or float("inf"))


class ReduceScatter(Transfers):
    """Sums gradients, of which each rank gets its part, as torch calls it."""

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        if input_tensor.dtype not in KINDS or input_tensor.device.type not in ("cpu", "cuda"):
            raise UnsupportedError(f"gradients are {input_tensor.dtype} on {input_tensor.device}; float32, bfloat16 and "
                                   "float16 on the CPU or a GPU of NVIDIA's can be summed: "
                                   "MixedPrecisionPolicy(reduce_dtype=torch.float32)")
        scale = _private.factor_of(op, group.size())
        if scale is None:
            raise UnsupportedError(f"FSDP asks for {op}; sums and averages can be had")
        work = self._start(group, self._owner.settings, _table.REDUCE_SCATTER, input_tensor, output_tensor,
                           input_tensor.numel(), scale)
        return finish(work, async_op)


class AllGather(Transfers):
    """Gathers parameters, as torch calls it."""

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        if output_tensor.dtype not in KINDS or output_tensor.device.type not in ("cpu", "cuda"):
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
        settings = self._owner._gather_settings[output_tensor.dtype]
        work = self._start(group, settings, _table.ALL_GATHER, input_tensor, output_tensor, output_tensor.numel(), 1.0)
        return finish(work, async_op)


def finish(work, async_op):
    if async_op:
        return work
    work.wait()
    return None

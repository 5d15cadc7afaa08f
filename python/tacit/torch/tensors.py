# SPDX-License-Identifier: Apache-2.0
"""Parameters of a model as a layout of the library: what is taken, in which order and where it lies."""
import ctypes
import functools
import operator
import weakref

import torch

from .. import _table
from .._library import UnsupportedError, UsageError, lib
from ..job import Layout
from . import _private, cuda

KINDS = {torch.float32: _table.F32, torch.bfloat16: _table.BF16, torch.float16: _table.F16}

# Parameters that belong to a job: {id: weak reference}. Tensors compare element by element, so that no WeakSet will do.
_taken = {}


def is_taken(parameter):
    reference = _taken.get(id(parameter))
    return reference is not None and reference() is parameter


def take(parameters):
    """Marks the parameters. They stay taken until release()."""
    for p in parameters:
        _taken[id(p)] = weakref.ref(p, lambda _, key=id(p): _taken.pop(key, None))


def release(parameters):
    for p in parameters:
        _taken.pop(id(p), None)


def has_no_elements(parameter):
    return not is_uninitialized(parameter) and parameter.numel() == 0


def is_uninitialized(parameter):
    return isinstance(parameter, torch.nn.parameter.UninitializedTensorMixin)


def list_trained(module, left_out=()):
    """Returns [(name, parameter)] of those that want a gradient, the last layer first: in about the order in which a backward
    pass completes them. A parameter with two names stands there once, by its first; one without elements has nothing to
    train. left_out: names of others. Raises for what cannot be trained."""
    named = [(name, p) for name, p in module.named_parameters()
             if p.requires_grad and name not in left_out and not has_no_elements(p)]
    if not named:
        raise UsageError(f"{type(module).__name__} has no parameter with requires_grad")
    first, device = named[0][0], named[0][1].device
    for name, p in named:
        if is_taken(p):
            raise UsageError(f"{name}: this parameter belongs to another tacit.Parallel or hook; wrap a model once, or "
                             "close() the first")
        if _private.is_sharded(p):
            raise UsageError(f"{name} is a DTensor, which cannot be trained here; after fully_shard() tacit.fsdp(model) compresses what "
                             "FSDP2 sends")
        if is_uninitialized(p):
            raise UsageError(f"{name} has no shape yet: run the model once before you wrap it")
        if p.dtype not in KINDS:
            raise UnsupportedError(f"{name} is {p.dtype}; float32, bfloat16 and float16 can be trained: model.float()")
        if p.device != device:
            raise UnsupportedError(f"{name} is on {p.device}, and {first} on {device}; move the model to one device")
        if p.layout != torch.strided:
            raise UnsupportedError(f"{name} is sparse; only dense parameters can be trained")
    if device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"{first} is on {device}; parameters on the CPU or on a GPU of NVIDIA's can be trained: "
                               "model.cpu()")
    return named[::-1]


def check_memory(module, named):
    """Refuses tensors in the memory of a trained parameter, which moves to the flat array without them."""
    trained, end, before = {name for name, _ in named}, 0, None
    others = [(name, t) for name, t in (*module.named_parameters(), *module.named_buffers())
              if name not in trained and t.layout == torch.strided and not is_uninitialized(t)]
    for begin, name, tensor in sorted((t.data_ptr(), name, t) for name, t in named + others if t.numel()):
        if begin < end and not trained.isdisjoint((name, before)):
            raise UsageError(f"{name} and {before} are two tensors in the same memory: let both be one Parameter, as in "
                             "b.weight = a.weight, or clone() one")
        last = begin + tensor.element_size() * (1 + sum((n - 1) * step for n, step in zip(tensor.size(), tensor.stride())))
        end, before = max((end, before), (last, name), key=operator.itemgetter(0))


def list_ends(parameters, portion=64 << 10):
    """Returns the numbers of those with which what has arrived before is reported, too: no more than `portion` bytes
    wait for the next one."""
    waiting, ends = 0, []
    for i, p in enumerate(parameters):
        waiting += 4 * p.numel()
        if waiting >= portion:
            waiting = 0
            ends.append(i)
    return ends


def order_dims(tensor):
    """Returns dimensions as they lie in memory, the slowest first."""
    return sorted(range(tensor.dim()), key=lambda d: (-tensor.stride(d), d))


def is_dense(tensor):
    dims = order_dims(tensor)
    return tensor.permute(dims).is_contiguous() if dims else True


def list_dims(p):
    """Returns dimensions in the order in which the flat array has the elements of a parameter."""
    return order_dims(p) if is_dense(p) else list(range(p.dim()))


def view_floats(address, count):
    """Returns a tensor over memory of the library's."""
    if count == 0:
        return torch.empty(0)
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


class InPlace:
    """Brings gradients of the CPU to the library, which reads and writes them where they are. cuda.Staging does the same for
    those of a GPU, by way of pinned memory. kinds: the types of all tensors."""
    is_busy = False

    def __init__(self, kinds):
        self._kinds = kinds

    def start(self, job, indices, addresses, scale):
        """Reports that gradients of these tensors, times scale, are ready; one at the address 0 is 0."""
        job.report(indices, addresses, self._kinds, scale)

    def deliver(self, indices=()):
        """Reports copies that have ended: there are none."""

    def receive(self, job, early):
        """Waits until all gradients of the step are ready. early: sums arrive before settle()."""

    def send_back(self, indices=None):
        """Puts the sums that have arrived in the place of the gradients, or of these, before torch reads them."""

    def forget(self):
        """Comes in place of send_back(): gradients stay what they are."""

    def close(self):
        """Frees the flat array, if it is not torch's."""


class Tensors:
    """The parameters that are trained, and one flat array of them in host memory.

    A float32 parameter of the CPU becomes a view of `flat` that keeps its shape and its order in memory, such as
    channels_last. One of 16 bits or of a GPU keeps its own memory: push() copies it to `flat`, pull() back. stall_s: how
    long a GPU may take for what it was given."""

    def __init__(self, module, on_flat=True, left_out=(), stall_s=600.0):
        named = list_trained(module, left_out)
        self.names, self.parameters = [n for n, _ in named], [p for _, p in named]
        self.layout = Layout()
        for name, p in named:
            self.layout.add(name, [p.size(d) for d in list_dims(p)], decay=p.dim() > 1)
        self.gpu, floats = cuda.device_of(self.parameters[0]), self.layout.floats if on_flat else 0
        kinds = [KINDS[p.dtype] for p in self.parameters]
        self.sources = InPlace(kinds) if self.gpu is None else cuda.Staging(self.gpu, self.parameters, kinds, floats, stall_s)
        self.dtypes, self.orders = [p.dtype for p in self.parameters], []
        self.flat, self.views, self.copied = None, [], []
        if on_flat:
            check_memory(module, named)
            self._move_to_flat()
        take(self.parameters)

    def _move_to_flat(self):
        self.flat = self._make_flat()
        self.views = [self.view_in(self.flat, i) for i in range(len(self.parameters))]
        stays = [p.dtype != torch.float32 or self.gpu is not None for p in self.parameters]
        self.copied = [(v, p) for v, p, s in zip(self.views, self.parameters, stays) if s]
        self.orders = [None if view.is_contiguous() else view.stride() for view in self.views]
        self.push()
        with torch.no_grad():
            for view, p, s in zip(self.views, self.parameters, stays):
                if not s:
                    view.copy_(p)
                    p.data = view
        self.addresses = [p.data_ptr() for p in self.parameters]

    def _make_flat(self):
        if self.gpu is not None:
            return view_floats(self.sources.flat_address, self.layout.floats)
        room = torch.zeros(self.layout.floats + 16)
        begin = (-room.data_ptr() % 64) // 4  # the library wants multiples of 64 bytes
        return room[begin:begin + self.layout.floats]

    def view_in(self, flat, i):
        """Returns tensor i of a flat array, in the shape and order of its parameter."""
        p, begin = self.parameters[i], self.layout.offset(i)
        dims = list_dims(p)
        piece = flat[begin:begin + p.numel()].view([p.size(d) for d in dims])
        return piece.permute([dims.index(d) for d in range(p.dim())]) if dims else piece

    @functools.cached_property
    def samples(self):
        """Returns places in the flat array of 64 elements of each tensor, at equal distances."""
        count = 64
        begins = torch.tensor([self.layout.offset(i) for i in range(len(self.parameters))])
        sizes = torch.tensor([p.numel() for p in self.parameters])
        return begins[:, None] + (torch.arange(count)[None, :] * sizes[:, None]) // count

    def flatten(self, value, i):
        """Returns elements of a tensor in the shape of parameter i as the flat array has them."""
        return value.permute(list_dims(self.parameters[i])).reshape(-1)

    @torch.no_grad()
    def push(self):
        if self.gpu is not None:
            self.sources.fetch(self._list_pieces(), [p if is_dense(p) else p.contiguous() for _, p in self.copied])
            return
        for view, p in self.copied:
            view.copy_(p)

    @torch.no_grad()
    def pull(self):
        if self.gpu is not None:
            dense = [p if is_dense(p) else torch.empty(p.size(), dtype=p.dtype, device=p.device) for _, p in self.copied]
            self.sources.give(self._list_pieces(), dense)
            for (_, p), there in zip(self.copied, dense):
                if there is not p:
                    p.copy_(there)
            return
        for view, p in self.copied:
            p.copy_(view)

    def _list_pieces(self):
        """Returns the parameters in the flat array, each in its order in memory."""
        begins = [self.layout.offset(i) for i in range(len(self.copied))]
        return [self.flat[begin:begin + p.numel()] for begin, (_, p) in zip(begins, self.copied)]

    def check_places(self):
        """Raises where a parameter was moved since, as by model.to() or load_state_dict(assign=True)."""
        if [p.data_ptr() for p in self.parameters] == self.addresses:
            return
        for name, p, view, address in zip(self.names, self.parameters, self.views, self.addresses):
            if p.size() != view.size():
                raise UsageError(f"{name} had the shape {tuple(view.size())} when the model was wrapped, and has "
                                 f"{tuple(p.size())}: close() the tacit.Parallel and wrap the model again")
            if p.data_ptr() != address:
                raise UsageError(f"{name} lies elsewhere since the model was wrapped (model.to(), or load_state_dict with "
                                 "assign=True?): wrap it afterwards")

    def release(self):
        """Lets the parameters belong to another. Once."""
        release(self.parameters)
        self.parameters = []

    def close(self):
        """Frees the memory. After release(), when the job is closed and has not failed: late messages of one that has may
        arrive."""
        self.flat, self.views, self.copied = None, [], []
        self.sources.close()


def read_state(part):
    """Returns the state of a job or a channel as a tensor of bytes, which torch.load() takes with weights_only."""
    out = torch.empty(part.write_state(), dtype=torch.uint8)
    part.write_state(out.data_ptr(), out.numel())
    return out


def check_state(state):
    if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
        raise UsageError(f"a state is a tensor of bytes from state_dict(), not {state!r:.60}")


def restore_state(part, state):
    check_state(state)
    state = state.cpu().contiguous()
    part.restore((ctypes.c_char * state.numel()).from_address(state.data_ptr()))

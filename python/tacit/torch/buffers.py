# SPDX-License-Identifier: Apache-2.0
"""Buffers of a model, such as running means of batch norm, over ranks."""
import contextlib
import ctypes
import hashlib
import io
import itertools

import torch

from .. import _table
from .._library import UsageError
from ..job import Channel
from ..settings import Settings
from . import _private

CHOICES = ("average", "broadcast", "own")
PIECE = 1 << 20  # floats that one sum moves of what is long
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def group_tensors(tensors):
    """Returns lists of tensors that have PIECE elements or little more together."""
    group = []
    for tensor in tensors:
        group.append(tensor)
        if sum(t.numel() for t in group) >= PIECE:
            yield group
            group = []
    if group:
        yield group


def join(tensors):
    """Returns floats of all tensors in one tensor of the CPU, and where it goes back to: to their GPU, if they are on one."""
    devices = {t.device for t in tensors}
    if len(devices) == 1:
        return torch.cat([t.reshape(-1).float() for t in tensors]).cpu(), devices.pop()
    return torch.cat([t.reshape(-1).float().cpu() for t in tensors]), torch.device("cpu")


def check_choice(choice):
    if choice not in CHOICES:
        raise UsageError(f"buffers={choice!r}: one of {', '.join(CHOICES)}")


class Bytes:
    """A file to write to, whose data others may hold. io.BytesIO will not do: where the collector of Python 3.12 finds one
    together with its getbuffer(), the program ends."""

    def __init__(self):
        self.data = bytearray()

    def write(self, more):
        self.data += more
        return len(more)

    def flush(self):
        """Does nothing: no data waits."""


def write_bytes(value):
    out = Bytes()
    torch.save(value, out)
    return out.data


def read_bytes(data):
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


class Buffers:
    """Sends buffers through a channel that compresses nothing. Collective."""

    def __init__(self, module, comm, choice):
        self._module, self._comm, self._choice, self._channels = module, comm, choice, {}

    def _list(self, list_named=lambda module: dict(module.named_buffers())):
        """Returns those of now: a module may put another tensor in the place of a buffer."""
        return [b for b in list_named(self._module).values() if b.layout == torch.strided and not b.is_complex()]

    def _sum(self, flat):
        """Returns the sum over ranks, in place."""
        if flat.numel() == 0 or self._comm.size == 1:
            return flat
        if flat.numel() not in self._channels:
            self._channels[flat.numel()] = Channel(self._comm, Settings(), _table.ALL_REDUCE, flat.numel())
        channel = self._channels[flat.numel()]
        channel.held = flat  # also after Ctrl-C in wait()
        channel.start(flat.data_ptr(), flat.data_ptr())
        channel.wait()
        return flat

    def sum_long(self, flat):
        """Returns the sum over ranks, of any length: one channel moves it by pieces."""
        if self._comm.size == 1 or flat.numel() <= PIECE:
            return self._sum(flat)
        padded = torch.nn.functional.pad(flat, (0, -flat.numel() % PIECE))
        for piece in padded.split(PIECE):
            self._sum(piece)
        return padded[:flat.numel()]

    def gather(self, value):
        """Returns what every rank gives, by rank: objects that torch.load() takes with weights_only. Those that are the same on
        all ranks do not travel, only their digest."""
        if self._comm.size == 1:
            return [value]
        own = write_bytes(value)
        heads = self._gather_rows(len(own).to_bytes(8, "little") + hashlib.blake2b(own, digest_size=16).digest())
        if len(set(heads)) == 1:
            return [value] * self._comm.size
        counts = [int.from_bytes(head[:8], "little") for head in heads]
        rows = self._gather_rows(bytes(own).ljust(1 << max(counts).bit_length(), b"\0"))  # channels of few lengths
        return [read_bytes(row[:count]) for row, count in zip(rows, counts)]

    def first(self, value):
        """Returns what rank 0 gives: an object that torch.load() takes with weights_only. Other ranks' may have another
        form."""
        if self._comm.size == 1:
            return value
        own = write_bytes(value)
        count = int.from_bytes(self._gather_rows(len(own).to_bytes(8, "little"))[0], "little")
        flat = torch.zeros(1 << count.bit_length())
        if self._comm.rank == 0:
            flat[:count] = torch.frombuffer(own, dtype=torch.uint8)
        row = self.sum_long(flat)[:count].to(torch.uint8)
        return read_bytes(ctypes.string_at(row.data_ptr(), count))

    def _gather_rows(self, own):
        """Returns bytes of every rank, as many of each."""
        table = torch.zeros(self._comm.size, len(own))
        table[self._comm.rank] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        return [bytes(row.tolist()) for row in self.sum_long(table.reshape(-1)).reshape(table.shape).to(torch.uint8)]

    def check_same(self, optimizers):
        """Refuses ranks that differ in what the library does not compare: it compares shapes of trained parameters."""
        lines = [f"buffers={self._choice!r}"] + [f"optimizer {type(optimizer).__name__}" for optimizer in optimizers]
        lines += [f"parameter {name}: {p.dtype}" for name, p in self._module.named_parameters()]
        lines += [f"buffer {name}: {b.dtype} {tuple(b.shape)}" for name, b in self._module.named_buffers() if self._choice != "own"]
        for rank, theirs in enumerate(self.gather(lines)):
            pair = next((pair for pair in itertools.zip_longest(lines, theirs, fillvalue="nothing") if pair[0] != pair[1]), None)
            if pair is not None:
                raise UsageError(f"ranks have different models: {pair[0]} on rank {self._comm.rank}, {pair[1]} on rank {rank}")

    def check_steps(self, count):
        """Refuses ranks that have made different numbers of steps."""
        counts = self.gather(count)
        if min(counts) < max(counts):
            raise UsageError(f"ranks meet after different numbers of steps: {max(counts)} and, on rank {counts.index(min(counts))}, "
                             f"{min(counts)}; every rank makes as many backward passes and steps of the optimizer as the others")

    @torch.no_grad()
    def send_first(self):
        """Every rank gets those of rank 0."""
        if self._choice != "own":
            self._send_all(self._list())

    @torch.no_grad()
    def send_frozen(self):
        """Every rank gets rank 0's parameters that are not trained."""
        self._send_all([p for p in self._module.parameters() if not p.requires_grad and p.layout == torch.strided])

    def _send_all(self, tensors):
        for as_bytes in (False, True):
            for group in group_tensors([t for t in tensors if t.numel() and (t.dtype not in FLOATS) == as_bytes]):
                self._send(group, as_bytes)

    def _send(self, tensors, as_bytes):
        """Sums one rank's numbers and -0.0, which changes no bit of them: floats, or bytes, each of which travels as a float."""
        if self._comm.size == 1:
            return
        flats = [t.detach().contiguous().reshape(-1) for t in tensors]
        flats = [f.view(torch.uint8) if as_bytes else f for f in flats]
        flat, home = join(flats)
        if self._comm.rank > 0:
            flat.fill_(-0.0)
        flat = self.sum_long(flat)[:sum(f.numel() for f in flats)].to(home)
        for tensor, own, piece in zip(tensors, flats, flat.split([f.numel() for f in flats])):
            tensor.copy_(piece.to(own.dtype).view(tensor.dtype).view(tensor.shape))

    def before_forward(self, training):
        if self._choice == "broadcast" and training:
            self.send_first()

    @property
    def is_own(self):
        """Returns whether each rank's may have other shapes."""
        return self._choice == "own"

    @contextlib.contextmanager
    def averaged(self):
        """Makes floats the mean over ranks in here, rank 0's under "broadcast"."""
        kept = [] if self.is_own else [(b, b.clone()) for b in self._list()]
        self.average()
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, own in kept:
                    buffer.copy_(own)

    @torch.no_grad()
    def average(self):
        if self._choice == "broadcast":
            self.send_first()
        if self._choice == "average":
            floats = [b for b in self._list(_private.list_persistent) if b.is_floating_point()]
            for buffer, mean in zip(floats, self.mean_of(floats)):
                buffer.copy_(mean)

    def sum_of(self, number):
        """Returns the sum over ranks of a tensor of one float."""
        return self._sum(number.reshape(1))[0]

    @torch.no_grad()
    def mean_of(self, tensors, counts=None):
        """Returns the means over ranks of tensors of floats, whose shapes are the same on all ranks. counts: of each, how
        many ranks have given a tensor, where others have given zeros."""
        if not tensors:
            return []
        counts, bases = counts or [self._comm.size] * len(tensors), self._find_bases(tensors)
        rests = [t - bases[i] if i in bases else t for i, t in enumerate(tensors)]
        flat, home = join([r.float() / count for r, count in zip(rests, counts)])
        flat = self.sum_long(flat).to(home)
        means = [piece.view(t.shape).to(t) for t, piece in zip(tensors, flat.split([t.numel() for t in tensors]))]
        for i, base in bases.items():
            base *= self._comm.size / counts[i]
            means[i] = torch.where(means[i] == 0, base, base + means[i])  # -0.0 stays
        return means

    def _find_bases(self, tensors):
        """Returns {index: rank 0's} of float64 tensors: what is summed of them is the distance to these, in float32."""
        bases = {i: t.clone() for i, t in enumerate(tensors) if t.dtype == torch.float64}
        if bases:
            self._send(list(bases.values()), as_bytes=True)
        return {i: base.masked_fill(~base.isfinite(), 0) for i, base in bases.items()}

    def shut(self):
        """Returns the status."""
        statuses = [channel.shut() for channel in self._channels.values()]
        self._channels = {}
        return min(statuses, default=0)

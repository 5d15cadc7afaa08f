# SPDX-License-Identifier: Apache-2.0
"""Layouts, jobs and channels of the C interface, as Python objects. Arrays are addresses: tacit.numpy and tacit.torch
know their owners. include/tacit/tacit.h is the reference for every method."""
import ctypes
import functools
import numbers
import operator
import os
import time
from array import array
from ctypes import byref, c_size_t, c_void_p

from . import _table
from ._library import ConfigError, UsageError, check, expect, expect_path, lib, read_integer
from .comm import Comm
from .settings import Settings

SLICE_S = 0.5


def sized(struct, **members):
    return struct(size=ctypes.sizeof(struct), **members)


@functools.lru_cache(maxsize=None)
def array_type(item, count):
    """ctypes forgets a type that nobody holds, and making it again takes 20 us."""
    return item * count


def wait_in_slices(wait, seconds):
    """Returns False if what wait(seconds) waits for is still under way after this time. Python looks for Ctrl-C between
    slices."""
    expect(isinstance(seconds, numbers.Real) and seconds >= 0, "seconds", seconds, "a number of 0 or more")
    end = time.monotonic() + seconds
    while check(wait(min(SLICE_S, max(0.0, end - time.monotonic())))):
        if time.monotonic() >= end:
            return False
    return True


late = []  # what messages that come after a failure may be written to


class Layout:
    """Names and shapes of tensors, in the order in which a backward pass completes their gradients."""

    def __init__(self):
        self._handle, self.count = ctypes.c_void_p(), 0
        check(lib.tacit_layout_create(byref(self._handle)))

    def add(self, name, shape, decay=False):
        """Returns the tensor's index."""
        shape = tuple(shape) if hasattr(shape, "__iter__") else shape
        if not isinstance(name, str) or "\0" in name:
            raise ConfigError(f"{name!r} is no name of a tensor: it is a text without control characters")
        if not isinstance(shape, tuple) or not all(hasattr(n, "__index__") and 1 <= n < 2 ** 64 for n in shape):
            raise ConfigError(f"{name} has the shape {shape!r}: a tuple of integers from 1 to 2 ** 64 - 1 is expected")
        dims = (ctypes.c_size_t * max(1, len(shape)))(*map(operator.index, shape))
        check(lib.tacit_layout_add(self._handle, name.encode(errors="surrogatepass"), len(shape), dims,
                                   _table.DECAY if decay else 0))
        self.count += 1
        return self.count - 1

    def next_unit(self):
        check(lib.tacit_layout_next_unit(self._handle))

    @property
    def floats(self):
        return lib.tacit_layout_floats(self._handle)

    def offset(self, tensor):
        out = ctypes.c_size_t()
        check(lib.tacit_layout_offset(self._handle, read_integer("tensor", tensor, bits=64), byref(out)))
        return out.value

    def __del__(self):
        if getattr(self, "_handle", None):
            lib.tacit_layout_destroy(self._handle)


class Part:
    """Opened with a communicator and closed before it: a job or a channel. The communicator holds it until then: closing is
    collective, and the collector of garbage is not."""
    _shut = None

    def __init__(self, comm, settings):
        expect(isinstance(comm, Comm), "comm", comm, "a tacit.Comm")
        expect(isinstance(settings, Settings), "settings", settings, "a tacit.Settings")
        self.comm, self.handle = comm, ctypes.c_void_p()
        self.held = None  # arrays of the caller that the library reads and writes
        self.on_shut = None  # called before its memory goes

    @property
    def opened(self):
        """Returns the handle, for a call that needs one."""
        if not self.handle:
            raise UsageError("this is closed: open it again")
        return self.handle

    def shut(self):
        """Returns the status. The handle is closed in any case."""
        if not self.handle or not self.comm._handle:
            return 0
        handle, self.handle = self.handle, ctypes.c_void_p()
        self.comm._parts.pop(self)
        if self.on_shut is not None:
            self.on_shut()
        status = self._shut(handle)
        if status < 0:
            late.append(self.held)
        return status

    def close(self):
        check(self.shut())

    def write_state(self, address=None, room=0):
        """Writes the state of this rank to `room` bytes at this address. Returns how many it has; without an address that
        alone."""
        size = ctypes.c_size_t()
        check(self._state(self.opened, address, room, byref(size)))
        return size.value

    def state(self):
        """Returns the state of this rank as bytes."""
        room = ctypes.create_string_buffer(self.write_state())
        size = self.write_state(room, len(room))
        return room.raw[:size]

    def restore(self, state):
        """Goes on from the state of this rank, bytes or an array of ctypes. Collective."""
        expect(isinstance(state, (bytes, ctypes.Array)), "state", state, "what state() has returned")
        check(self._restore(self.opened, state, len(state)))


class Blob:
    """Bytes of the caller in a checkpoint. `data` is what is saved, any buffer; after a load, the bytes that were saved under
    this name, or None. own: every rank has its own, else all have the same."""

    def __init__(self, name, data=None, own=False):
        self.name, self.data, self.own = name, data, own


def borrow_bytes(data):
    """Returns the memory of bytes-like data as a ctypes array; a copy only where it cannot be written to."""
    data = memoryview(data)
    if data.readonly or not data.c_contiguous or data.nbytes == 0:
        return ctypes.create_string_buffer(data.tobytes(), max(1, data.nbytes))
    return (ctypes.c_char * data.nbytes).from_buffer(data)


def check_folder(folder):
    """Returns its name as a text. Refuses a checkpoint: there is none in it, and training would begin at 0 without a word."""
    expect_path("folder", folder)
    folder = os.fsdecode(folder)
    if os.path.exists(os.path.join(folder, "manifest.json")):
        raise UsageError(f"{folder} is a checkpoint, and load() takes the folder that holds it and goes on from the newest: "
                         f"load({os.path.dirname(os.path.realpath(folder))!r}, ...)")
    return folder


class Job(Part):
    """A network that is trained. parameters, gradients: addresses of layout.floats floats, or None. arrays: the owners of
    these, which live until the job is closed."""
    _shut, _state, _restore = lib.tacit_job_close, lib.tacit_job_state, lib.tacit_job_restore

    def __init__(self, comm, settings, layout, arrays=None, steps=0, threads=0, **options):
        super().__init__(comm, settings)
        expect(isinstance(layout, Layout), "layout", layout, "a tacit.Layout")
        options.update(steps=read_integer("steps", steps, bits=63), threads=read_integer("threads", threads))
        self.layout, self.held = layout, arrays
        self._step = sized(_table.tacit_step)
        check(lib.tacit_job_open(comm._handle, settings._handle, layout._handle,
                                 byref(sized(_table.tacit_job_options, **options)), byref(self.handle)))
        comm._parts[self] = None

    @property
    def parameters(self):
        return lib.tacit_job_parameters(self.handle)

    @property
    def gradients(self):
        return lib.tacit_job_gradients(self.handle)

    def start(self):
        check(lib.tacit_job_start(self.opened))

    def parts(self):
        """Returns the ranges that this rank updates, as tacit_part."""
        found = [sized(_table.tacit_part)]
        while lib.tacit_job_part(self.opened, len(found) - 1, byref(found[-1])):
            found.append(sized(_table.tacit_part))
        return found[:-1]

    def ready(self, tensor=_table.ALL_TENSORS):
        check(lib.tacit_job_ready(self.opened, read_integer("tensor", tensor, bits=64)))

    def report(self, tensors, addresses, kinds, scale):
        """Reports that gradients of these tensors are ready at these addresses; one at 0 is 0. kinds: the types of all
        tensors."""
        types, count = {kinds[t] for t in tensors}, len(tensors)
        if len(types) == 1:
            check(lib.tacit_job_ready_list(self.opened, count, array_type(c_size_t, count).from_buffer(array("Q", tensors)),
                                           array_type(c_void_p, count).from_buffer(array("Q", addresses)), *types, scale))
            return
        for kind in types:
            here = [(t, a) for t, a in zip(tensors, addresses) if kinds[t] == kind]
            self.report(*zip(*here), kinds, scale)

    def wait(self, tensor, seconds=float("inf")):
        """Returns False if it is still under way after this time."""
        tensor = read_integer("tensor", tensor, bits=64)
        return wait_in_slices(lambda slice_s: lib.tacit_job_wait(self.opened, tensor, slice_s), seconds)

    def finish(self):
        check(lib.tacit_job_finish(self.opened, byref(self._step)))
        return _table.tacit_step.from_buffer_copy(self._step)

    def settle(self):
        check(lib.tacit_job_settle(self.opened, byref(self._step)))
        return _table.tacit_step.from_buffer_copy(self._step)

    def stepped(self):
        check(lib.tacit_job_stepped(self.opened))

    def set_lr(self, lr):
        expect(isinstance(lr, numbers.Real), "lr", lr, "a number")
        check(lib.tacit_job_set_lr(self.opened, lr))

    def average(self):
        """Returns the consensus distance."""
        distance = ctypes.c_double()
        check(lib.tacit_job_average(self.opened, byref(distance)))
        return distance.value

    def revert(self):
        check(lib.tacit_job_revert(self.opened))

    def counters(self):
        out = sized(_table.tacit_counters)
        check(lib.tacit_job_counters(self.opened, byref(out)))
        return {name: getattr(out, name) for name, _ in out._fields_[1:]}

    def save(self, folder, blobs=(), keep=2):
        expect_path("folder", folder)
        structs = (_table.tacit_blob * max(1, len(blobs)))()
        held = [borrow_bytes(b.data) for b in blobs]
        for struct, blob, bytes_ in zip(structs, blobs, held):
            struct.size, struct.name, struct.own = ctypes.sizeof(struct), blob.name.encode(), blob.own
            struct.bytes, struct.count = ctypes.cast(bytes_, ctypes.c_void_p), memoryview(blob.data).nbytes
        check(lib.tacit_job_save(self.opened, os.fsencode(folder), read_integer("keep", keep, 1), structs, len(blobs)))

    def load(self, folder, blobs=()):
        """Sets `data` of blobs. Returns False if there is no checkpoint."""
        folder = check_folder(folder)
        structs, rooms = (_table.tacit_blob * max(1, len(blobs)))(), [[] for _ in blobs]
        room_type = dict(_table.tacit_blob._fields_)["room"]

        def make_room(held):
            def room(_, count):
                held.append(ctypes.create_string_buffer(max(1, count)))
                return ctypes.addressof(held[-1])
            return room_type(room)

        for struct, blob, held in zip(structs, blobs, rooms):
            struct.size, struct.name, struct.own = ctypes.sizeof(struct), blob.name.encode(), blob.own
            struct.room = make_room(held)
        found = ctypes.c_bool()
        check(lib.tacit_job_load(self.opened, os.fsencode(folder), structs, len(blobs), byref(found)))
        for struct, blob, held in zip(structs, blobs, rooms):  # string_at() takes less than 2 GiB
            blob.data = bytes(memoryview(held[-1])[:struct.count]) if found.value and struct.loaded else None
        return found.value


class Channel(Part):
    """A sum or a gather of arrays of the caller's. collective: _table.ALL_REDUCE, REDUCE_SCATTER or ALL_GATHER."""
    _shut, _state, _restore = lib.tacit_channel_close, lib.tacit_channel_state, lib.tacit_channel_restore

    def __init__(self, comm, settings, collective, elements):
        super().__init__(comm, settings)
        elements = read_integer("elements", elements, 1, 63)
        check(lib.tacit_channel_open(comm._handle, settings._handle, collective, elements, byref(self.handle)))
        comm._parts[self] = None

    def start(self, source, target, kind=_table.F32, scale=1.0):
        expect(isinstance(scale, numbers.Real), "scale", scale, "a number")
        check(lib.tacit_channel_start(self.opened, source, target, kind, scale))

    def wait(self, seconds=float("inf")):
        return wait_in_slices(lambda slice_s: lib.tacit_channel_wait(self.opened, slice_s), seconds)

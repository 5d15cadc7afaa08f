# SPDX-License-Identifier: Apache-2.0
"""Tensors on a GPU of NVIDIA's: copies to pinned memory and back, on a stream of their own, beside what torch computes. The
library then exchanges what lies in pinned memory as it exchanges tensors of the CPU.

The driver's library is opened when the first such tensor is met. Only device_of(), stream_of(), make_future() and
use_own_stream() know torch.cuda: a test replaces them, and opens a driver of its own with open_driver(path)."""
import collections
import ctypes
import math
import threading
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

import torch

from .._library import Error, OutOfMemoryError, UnsupportedError

LIBRARY = "libcuda.so.1"
FUNCTIONS = {"cuInit": [c_uint], "cuDeviceGet": [POINTER(c_int), c_int], "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
             "cuCtxPushCurrent_v2": [c_void_p], "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
             "cuStreamCreate": [POINTER(c_void_p), c_uint], "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
             "cuEventCreate": [POINTER(c_void_p), c_uint], "cuEventRecord": [c_void_p, c_void_p], "cuEventQuery": [c_void_p],
             "cuEventDestroy_v2": [c_void_p], "cuMemHostAlloc": [POINTER(c_void_p), c_size_t, c_uint],
             "cuMemFreeHost": [c_void_p], "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
             "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p], "cuGetErrorName": [c_int, POINTER(c_char_p)],
             "cuGetErrorString": [c_int, POINTER(c_char_p)]}
UNCHECKED = ("cuEventQuery", "cuCtxPopCurrent_v2", "cuGetErrorName", "cuGetErrorString")
OUT_OF_MEMORY, NOT_READY = 2, 600  # CUDA_ERROR_...
NON_BLOCKING, WITHOUT_TIME, PORTABLE = 1, 2, 1  # CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_PORTABLE
NAP_S, MOMENT_S = 5e-5, 1e-3  # between two looks at an event; for a sum, while other gradients are on their way
ALIGNED = 64  # bytes


class DeviceError(Error):
    """The driver of the GPU has reported an error, often that of an earlier kernel."""


# ---- what is torch's -----------------------------------------------------------------------------------------------------


def device_of(tensor):
    """Returns the index of the tensor's GPU; None on the CPU."""
    return tensor.device.index if tensor.device.type == "cuda" else None


def stream_of(index):
    """Returns the stream on which torch's work of this thread runs now, as the driver knows it."""
    return torch.cuda.current_stream(index).cuda_stream


def make_future(index):
    """Returns a future whose waiters wait for what the stream of its setter has been given, too."""
    return torch.futures.Future(devices=[torch.device("cuda", index)])


def use_own_stream(index):
    """Gives this thread a stream of its own, so that its waits hold up no other."""
    torch.cuda.set_stream(torch.cuda.Stream(index))


def random_state(index):
    """Returns that of a GPU; None where torch has used none."""
    return torch.cuda.get_rng_state(index) if index is not None and torch.cuda.is_initialized() else None


# ---- the driver ----------------------------------------------------------------------------------------------------------

_driver = None
_devices = {}


def open_driver(path=None):
    """Opens the driver's library; every tensor of a GPU uses the one that was opened last."""
    global _driver
    try:
        library = ctypes.CDLL(path or LIBRARY)
    except OSError as reason:
        raise UnsupportedError(f"parameters are on a GPU, and its driver cannot be opened ({reason}): install the driver of "
                               "NVIDIA's, or move the model with model.cpu()") from None
    for name, arguments in FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise UnsupportedError(f"{path or LIBRARY} has no {name}: a driver of CUDA 11 or later is needed, or model.cpu()")
        function.restype, function.argtypes = c_int, arguments
        if name not in UNCHECKED:
            function.errcheck = check_result
    _driver = library
    _devices.clear()
    library.cuInit(0)
    return library


def check_result(result, function, arguments):
    if result:
        fail(result, function.__name__, arguments)
    return result


def fail(result, function, arguments=()):
    name, text = c_char_p(), c_char_p()
    _driver.cuGetErrorName(result, byref(name))
    _driver.cuGetErrorString(result, byref(text))
    name, text = (value.value.decode() if value.value else "?" for value in (name, text))
    what = f"{function.partition('_v')[0]} has failed: {name} ({result}), {text}"
    if result == OUT_OF_MEMORY and function == "cuMemHostAlloc":
        raise OutOfMemoryError(f"{what}; the host has no {arguments[1]} bytes of pinned memory: fewer ranks per host, or "
                               "model.cpu()")
    if result == OUT_OF_MEMORY:
        raise OutOfMemoryError(f"{what}; the GPU is full: take a smaller batch")
    raise DeviceError(f"{what}; the error may be that of an earlier kernel: end the program, start it again with "
                      "CUDA_LAUNCH_BLOCKING=1 to see which, and go on from a checkpoint")


def open_device(index):
    """Returns one for all tensors of a GPU."""
    if _driver is None:
        open_driver()
    if index not in _devices:
        _devices[index] = Device(index)
    return _devices[index]


class Device:
    """The streams of a GPU for copies, one in each direction. `with` makes the context of the GPU, which is torch's, too,
    that of this thread, and keeps other threads out."""

    def __init__(self, index):
        self.index, self._lock, self._popped = index, threading.RLock(), c_void_p()
        self._context, self._inward, self._outward, number = c_void_p(), c_void_p(), c_void_p(), c_int()
        _driver.cuDeviceGet(byref(number), index)
        _driver.cuDevicePrimaryCtxRetain(byref(self._context), number)
        with self:
            for stream in (self._inward, self._outward):
                _driver.cuStreamCreate(byref(stream), NON_BLOCKING)
        self._given = self.make_event()

    def __enter__(self):
        self._lock.acquire()
        try:
            _driver.cuCtxPushCurrent_v2(self._context)
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, kind, *_):
        result = _driver.cuCtxPopCurrent_v2(byref(self._popped))
        self._lock.release()
        if result and kind is None:
            fail(result, "cuCtxPopCurrent_v2")

    def make_event(self):
        event = c_void_p()
        with self:
            _driver.cuEventCreate(byref(event), WITHOUT_TIME)
        return event

    def _follow_torch(self, stream):
        """Copies that come now on this stream wait for what torch's stream has been given so far: for the kernels that write
        what is copied, or that still read what is overwritten."""
        _driver.cuEventRecord(self._given, stream_of(self.index))
        _driver.cuStreamWaitEvent(stream, self._given, 0)

    def copy_in(self, copies, event):
        """Starts copies: (address in host memory, address on the GPU, bytes). The event comes behind them."""
        with self:
            self._follow_torch(self._inward)
            for host, there, count in copies:
                _driver.cuMemcpyDtoHAsync_v2(host, there, count, self._inward)
            _driver.cuEventRecord(event, self._inward)

    def copy_out(self, copies, event, at_once=False):
        """Does the same from host memory to the GPU. at_once: no kernel that torch was given writes or reads what is copied
        to."""
        with self:
            if not at_once:
                self._follow_torch(self._outward)
            for host, there, count in copies:
                _driver.cuMemcpyHtoDAsync_v2(there, host, count, self._outward)
            _driver.cuEventRecord(event, self._outward)

    def hold_torch(self, event):
        """Lets what torch's stream is given from now on wait for the event; this thread does not."""
        with self:
            _driver.cuStreamWaitEvent(stream_of(self.index), event, 0)

    def has_reached(self, event):
        with self:
            result = _driver.cuEventQuery(event)
            if result and result != NOT_READY:
                fail(result, "cuEventQuery")
        return not result

    def wait(self, event, seconds):
        """Waits for the event; other threads of Python run."""
        end = time.monotonic() + seconds
        while not self.has_reached(event):
            if time.monotonic() > end:
                raise DeviceError(f"GPU {self.index} has not reached a copy for {seconds:g} s (comm.stall): a kernel hangs, or "
                                  "a step takes longer: comm__stall=... is the time that a step may take")
            time.sleep(NAP_S)

    def allocate(self, count):
        """Returns the address of pinned memory, zeros. It stays until free()."""
        address = c_void_p()
        with self:
            _driver.cuMemHostAlloc(byref(address), max(count, 1), PORTABLE)
        ctypes.memset(address, 0, max(count, 1))
        return address.value

    def free(self, addresses, events):
        """Frees memory and events, when nothing is under way."""
        with self:
            for event in events:
                _driver.cuEventDestroy_v2(event)
            for address in addresses:
                _driver.cuMemFreeHost(address)


# ---- tensors of a model --------------------------------------------------------------------------------------------------


def count_bytes(tensor):
    return tensor.numel() * tensor.element_size()


class Staging:
    """Pinned memory for the tensors of a layout, with a place of its own type for each, and the gradients that are on their
    way through it. tensors: the parameters, and kinds their types. floats: of a flat array in pinned memory, `flat`,
    where f32 parameters have their places. start() and what follows is called as the functions of tensors.InPlace are."""

    def __init__(self, index, parameters, kinds, floats, stall_s):
        self.device, self._kinds, self._stall_s = open_device(index), kinds, stall_s
        self._bytes = [count_bytes(p) for p in parameters]
        offsets = [0]
        for count in self._bytes:
            offsets.append(offsets[-1] + -(-count // ALIGNED) * ALIGNED)
        self._room = self.device.allocate(offsets[-1])
        self._places = [self._room + offset for offset in offsets[:-1]]
        self.flat_address = self.device.allocate(4 * floats) if floats else None
        self._landed = [self.device.make_event() for _ in parameters]
        self._done = self.device.make_event()
        self._flying, self._delivered = collections.deque(), {}

    # ---- gradients -----------------------------------------------------------------------------------------------------

    def start(self, job, indices, addresses, scale):
        """Does what InPlace.start() does, for gradients of the GPU, which deliver() makes ready when their copies have
        landed."""
        unused = [i for i, address in zip(indices, addresses) if address == 0]
        job.report(unused, [0] * len(unused), self._kinds, scale)
        copied = {i: address for i, address in zip(indices, addresses) if address != 0}
        if copied:
            copies = [(self._places[i], address, self._bytes[i]) for i, address in copied.items()]
            self.device.copy_in(copies, self._landed[indices[0]])
            self._flying.append((self._landed[indices[0]], copied, job, scale))

    @property
    def is_busy(self):
        return bool(self._flying)

    def deliver(self, indices=()):
        """Makes gradients ready whose copies have landed, in the order of their start, and waits until these are."""
        missing = set(indices)
        while self._flying:
            landed, copied, job, scale = self._flying[0]
            if missing - self._delivered.keys():
                self.device.wait(landed, self._stall_s)
            elif not self.device.has_reached(landed):
                return
            self._flying.popleft()
            self._delivered.update(copied)
            job.report(copied.keys(), [self._places[i] for i in copied], self._kinds, scale)

    def receive(self, job, early):
        """Lets sums arrive. A gradient is the library's from its hook to the end of backward, so that its sum need not wait
        for kernels of the layers below."""
        while early and (self._flying or self._delivered):
            first = next(iter(self._delivered), None)
            if first is not None and job.wait(first, MOMENT_S if self._flying else math.inf):
                self._copy_back([first], at_once=True)
            self.deliver(self._flying[0][1] if self._flying and not self._delivered else ())
        self.deliver([i for _, copied, *_ in self._flying for i in copied])

    def send_back(self, indices=None):
        self._copy_back(list(self._delivered) if indices is None else indices)
        self.device.hold_torch(self._done)

    def forget(self):
        self._delivered.clear()

    def _copy_back(self, indices, at_once=False):
        copies = [(self._places[i], self._delivered.pop(i), self._bytes[i]) for i in indices]
        self.device.copy_out(copies, self._done, at_once)

    # ---- parameters ----------------------------------------------------------------------------------------------------

    def view_place(self, i, dtype):
        """Returns the place of a tensor, in its order in memory."""
        count = self._bytes[i] // dtype.itemsize
        return torch.frombuffer((ctypes.c_char * self._bytes[i]).from_address(self._places[i]), dtype=dtype, count=count)

    def fetch(self, pieces, tensors):
        """Copies dense tensors of the GPU to pieces of host memory, as they lie in memory, and waits. Where types differ,
        the copy goes by way of the tensor's place: then tensors are those of the layout."""
        pairs = [(self._between(i, piece, t), t) for i, (piece, t) in enumerate(zip(pieces, tensors))]
        self.device.copy_in([(at.data_ptr(), t.data_ptr(), count_bytes(t)) for at, t in pairs], self._done)
        self.device.wait(self._done, self._stall_s)
        for piece, (at, _) in zip(pieces, pairs):
            if at is not piece:
                piece.copy_(at)

    def give(self, pieces, tensors):
        """Does the opposite. Host memory may be written to again on return."""
        between = [self._between(i, piece, t) for i, (piece, t) in enumerate(zip(pieces, tensors))]
        self.device.wait(self._done, self._stall_s)  # sums may be on their way out of the places
        for piece, at in zip(pieces, between):
            if at is not piece:
                at.copy_(piece)
        self.device.copy_out([(at.data_ptr(), t.data_ptr(), count_bytes(t)) for at, t in zip(between, tensors)], self._done)
        self.device.wait(self._done, self._stall_s)

    def _between(self, i, piece, tensor):
        return piece if piece.dtype == tensor.dtype else self.view_place(i, tensor.dtype)

    def close(self):
        """Frees the memory."""
        addresses = [a for a in (self._room, self.flat_address) if a]
        self._room = self.flat_address = None
        if addresses:
            for copy in (self.device.copy_in, self.device.copy_out):
                copy([], self._done)
                self.device.wait(self._done, self._stall_s)
            self.device.free(addresses, [*self._landed, self._done])


class Passage:
    """Pinned memory for transfers of one size, from one tensor of a GPU to another."""

    def __init__(self, index, source, target, stall_s):
        self._device, self._stall_s = open_device(index), stall_s
        self._counts = [count_bytes(source), count_bytes(target)]
        self.source, self.target = (self._device.allocate(count) for count in self._counts)
        self._came, self._left = self._device.make_event(), self._device.make_event()

    def bring(self, source):
        """Brings the source here; what was sent before has left."""
        self._device.copy_in([(self.source, source.data_ptr(), self._counts[0])], self._came)
        for event in (self._came, self._left):
            self._device.wait(event, self._stall_s)

    def send(self, target):
        """Sends the target, for which torch's stream waits."""
        self._device.copy_out([(self.target, target.data_ptr(), self._counts[1])], self._left)
        self._device.hold_torch(self._left)

    def close(self):
        """Frees the memory, when the channel is closed."""
        self._device.wait(self._left, self._stall_s)
        self._device.free([self.source, self.target], [self._came, self._left])

# SPDX-License-Identifier: Apache-2.0
"""Training with numpy and the library's own optimizer, and sums of arrays. Without PyTorch.

    import tacit.numpy as tacit
    model = tacit.Model({"w": (41, 10), "b": (10,)}, strategy="gossip", optim__lr=0.01)
    model["w"][:] = initial                     the library works on these arrays
    model.start()
    for ...:
        model.gradients["w"][:] = ...           summed over ranks it must be the gradient: divide by samples * model.size
        model.ready()
        step = model.finish()
"""
import numpy

from . import _table
from ._library import UsageError, expect, read_integer
from .comm import Comm, is_under_mpi
from .job import Channel, Job, Layout
from .settings import Settings

KINDS = {numpy.dtype("float32"): _table.F32, numpy.dtype("float16"): _table.F16}


def make_floats(count):
    """Returns zeros in an array that begins at a multiple of 64 bytes, as the library wants it."""
    room = numpy.zeros(count + 16, "f")
    begin = -room.ctypes.data % 64 // 4
    return room[begin:begin + count]


class Owner:
    """Opens a communicator for itself, unless the caller has one, and a job or a channel. Close it, or use `with`."""
    _part = None

    def _open(self, comm, open_part):
        self._is_own, self.comm = comm is None, comm or Comm(self.settings)
        try:
            self._part = open_part()
        except Exception:
            self.close()
            raise

    def close(self):
        """The arrays of a model stay. So does, until the process ends, a communicator over MPI, because MPI begins only once
        in it. Collective."""
        if self._is_own and (self.settings["comm.engine"] in ("tcp", "self") or not is_under_mpi()):
            self.comm.close()
        elif self._part is not None:
            self._part.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()


class Model(Owner):
    """Named arrays that are trained together with those of the other ranks. Begins like a dictionary of parameters; the
    same of gradients is `gradients`. shapes: {name: shape}, the last layer's first. settings: as of tacit.Settings.
    own_optimizer: settle() and stepped() in place of finish(), around an update of your own. Collective."""

    def __init__(self, shapes, *sources, comm=None, steps=0, threads=0, own_optimizer=False, **settings):
        self.settings = Settings(*sources, **settings)
        self._layout = Layout()
        expect(hasattr(shapes, "items"), "shapes", shapes, "a dictionary {name: shape}")
        self._index = {name: self._layout.add(name, shape, decay=numpy.size(shape) > 1) for name, shape in shapes.items()}
        self._open(comm, lambda: self._open_job(shapes, steps=steps, threads=threads, own_optimizer=own_optimizer))
        self.rank, self.size = self.comm.rank, self.comm.size

    def __getattr__(self, name):
        """start, finish, settle, stepped, average, revert, save, load, state, restore, counters, set_lr: as of tacit.Job."""
        return getattr(self._part, name)

    def _open_job(self, shapes, **options):
        try:
            flats = [make_floats(self._layout.floats) for _ in range(2)]
        except MemoryError:  # on this rank alone, perhaps: the library looks for as much, and fails on all
            return Job(self.comm, self.settings, self._layout, **options)
        self.parameters, self.gradients = (self._view(flat, shapes) for flat in flats)
        return Job(self.comm, self.settings, self._layout, arrays=flats, parameters=flats[0].ctypes.data,
                   gradients=flats[1].ctypes.data, **options)

    def _view(self, flat, shapes):
        views = {}
        for name, shape in shapes.items():
            begin = self._layout.offset(self._index[name])
            views[name] = flat[begin:begin + int(numpy.prod(shape, dtype=numpy.int64))].reshape(shape)
        return views

    def __getitem__(self, name):
        return self.parameters[name]

    def __iter__(self):
        return iter(self.parameters)

    def __len__(self):
        return len(self.parameters)

    def ready(self, *names):
        """Says that these gradients are final; without names: all that are left. Before finish() or settle()."""
        for name in names:
            if name not in self._index:
                raise UsageError(f"{name!r} is no gradient of this model, which has {', '.join(self._index)}")
            self._part.ready(self._index[name])
        if not names:
            self._part.ready()


class Sum(Owner):
    """Sums arrays of one size over ranks, as often as you like, with a compression of its own: what one call loses is part
    of the next. Collective."""

    def __init__(self, elements, *sources, comm=None, **settings):
        self.elements = read_integer("elements", elements, 1, 63)
        self.settings = Settings(*sources, **settings)
        self._open(comm, lambda: Channel(self.comm, self.settings, _table.ALL_REDUCE, elements))

    def start(self, array, scale=1.0):
        """Starts a sum that travels while you compute; the array is the sum of array * scale when wait() has returned."""
        if not isinstance(array, numpy.ndarray):
            raise UsageError(f"an array of numpy is needed, which is summed in its place, not a {type(array).__name__}")
        if array.dtype not in KINDS or not array.flags.c_contiguous or array.size != self.elements:
            raise UsageError(f"an array of {self.elements} float32 or float16 without gaps is needed, not of {array.size} "
                             f"{array.dtype}")
        if not array.flags.behaved:
            raise UsageError("the sum takes the array's place, and this array cannot be written to, as one of "
                             "numpy.load(..., mmap_mode=\"r\"), or is not aligned: pass array.copy()")
        self._part.start(array.ctypes.data, array.ctypes.data, KINDS[array.dtype], scale)
        self._part.held = array  # until the next start: a refused one leaves it

    def wait(self, seconds=float("inf")):
        """Waits for the sum. Returns False if it is still under way after this time."""
        return self._part.wait(seconds)

    def __call__(self, array, scale=1.0):
        self.start(array, scale)
        self.wait()
        return array

    def state(self):
        """Returns as bytes what this rank remembers, such as the residual. Between two sums."""
        return self._part.state()

    def restore(self, state):
        """Goes on from the state() of this rank, bit for bit but for auto. Before the first sum. Collective."""
        self._part.restore(state)

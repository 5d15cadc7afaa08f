# SPDX-License-Identifier: Apache-2.0
"""Ranks that train together, and the log of the library."""
import atexit
import ctypes
import datetime
import logging
import os
import sys
import threading

from . import _table
from ._library import Error, FileError, PeerError, UsageError, check, expect, lib, read_integer
from .settings import Settings

LEVELS = {_table.LOG_DEBUG: logging.DEBUG, _table.LOG_INFO: logging.INFO, _table.LOG_WARN: logging.WARNING,
          _table.LOG_ERROR: logging.ERROR}
CODES = {name: code for code, name in _table.STATUSES.items()}
logger = logging.getLogger("tacit")


@_table.tacit_log_callback
def log_line(_, level, line):
    logger.log(LEVELS.get(level, logging.INFO), "%s", line.decode(errors="replace"))


def is_under_mpi():
    """Returns whether MPI has started this process, and not a torchrun that it has started."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return False
    return any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"))


class StoreCalls:
    """The store of a Comm, as the library calls it."""

    def __init__(self, store):
        expect(all(callable(getattr(store, name, None)) for name in ("set", "get")), "store", store,
               "a store of torch.distributed, or anything with set(key, bytes) and get(key, seconds) -> bytes,")
        self.store, self.error = store, None  # says what a call has raised
        kinds = dict(_table.tacit_store._fields_)
        self.struct = _table.tacit_store(size=ctypes.sizeof(_table.tacit_store), set=kinds["set"](self._set),
                                         get=kinds["get"](self._get))

    def _set(self, _, key, data, count):
        return self._try("set", key, lambda: self.store.set(key.decode(), ctypes.string_at(data, count)) and None)

    def _get(self, _, key, out, room, count, seconds):
        def copy():
            try:
                value = self._read(key.decode(), seconds)
            except (TimeoutError, KeyError):
                return CODES["E_PEER"]
            expect(isinstance(value, (bytes, bytearray)) and len(value) <= room, "what it has returned", value,
                   f"a value of at most {room} bytes")
            ctypes.memmove(out, bytes(value), len(value))
            count[0] = len(value)
        return self._try("get", key, copy)

    def _read(self, key, seconds):
        if not hasattr(self.store, "wait"):
            return self.store.get(key, seconds)
        try:  # torch's get() takes no time
            self.store.wait([key], datetime.timedelta(seconds=max(seconds, 0.001)))
        except RuntimeError as error:
            if not self.store.check([key]):
                raise TimeoutError from error
        return self.store.get(key)

    def _try(self, verb, key, work):
        try:
            return work() or 0
        except BaseException as error:  # no exception can cross C
            self.error = FileError(f"{verb}({key.decode()!r}, ...) of the store has failed: {type(error).__name__}: {error}")
            self.error.__cause__ = error
            return CODES["E_IO"]


def run_aside(work):
    """Runs it in a thread of its own: where C calls Python, no handler of a signal may raise an exception. One that comes here
    ends the wait there."""
    failed, over = [], []

    def run():
        try:
            lib.tacit_on_wait(answer, None)
            work()
        except BaseException as error:
            failed.append(error)

    answer = _table.tacit_wait_callback(lambda _: len(over))
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.5)
    except BaseException:
        over.append(True)
        raise
    if failed:
        raise failed[0]


class Comm:
    """Ranks that train together: `rank` of `size`.

    Comm(settings)                         all processes of torchrun, mpirun or srun, or this one alone
    Comm(settings, rank, size, store)      ranks that meet in a store
    Comm(settings, alone=True)             this process alone, whoever has started it

    A store is one of torch.distributed, or has set(key, bytes) and get(key, seconds) -> bytes, which waits so long for a value
    and then raises TimeoutError or KeyError. Any other exception ends the meeting.

    Collective. One thread at a time, as the C interface says. Close it after its jobs and channels, or use `with`."""

    def __init__(self, settings=None, rank=None, size=None, store=None, alone=False):
        settings = Settings.of(settings)
        self._handle, self._parts = ctypes.c_void_p(), {}  # parts in the order of their opening, the same on all ranks
        out = ctypes.byref(self._handle)
        if alone:
            check(lib.tacit_open_self(settings._handle, out))
        elif store is not None:
            rank, size = read_integer("rank", rank), read_integer("size", size, 1)
            calls = StoreCalls(store)
            try:
                run_aside(lambda: check(lib.tacit_open_store(settings._handle, rank, size, ctypes.byref(calls.struct), out)))
            except FileError as error:
                raise calls.error or error
            except PeerError as error:
                raise error from calls.error
        else:
            expect(rank is None and size is None, "store", store, "what ranks meet in, beside rank and size,")
            check(lib.tacit_open(settings._handle, out))
        self.rank, self.size = lib.tacit_rank(self._handle), lib.tacit_size(self._handle)
        self.busy, self.transfers = False, 0  # inside a step; channels of FSDP that are under way
        self.is_parents = False  # this process is a fork of the one that has opened it
        opened[id(self)] = self

    def check_process(self):
        if self.is_parents:
            raise UsageError("a child of fork() cannot train the model of its parent")

    def close(self):
        """Closes what was opened with it, too. Collective, unless a peer has failed."""
        if not self._handle or self.is_parents:
            return
        statuses = [part.shut() for part in list(self._parts)]
        handle, self._handle = self._handle, ctypes.c_void_p()
        opened.pop(id(self))
        check(min(statuses + [lib.tacit_close(handle)]))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()


opened = {}


def mark_opened():
    for comm in opened.values():
        comm.is_parents = True


os.register_at_fork(after_in_child=mark_opened)  # asking for the process in every step stops torch.compile()


def close_or_say(comm):
    try:
        comm.close()
    except Error as error:
        logger.error("%s", error)


def close_at_exit():
    """Says goodbye where the program has ended well. After an exception, or inside a step, this rank just ends, and the
    others get a PeerError that names it."""
    failed = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    try:
        for comm in list(opened.values()):
            if not failed and not comm.busy and not comm.transfers:
                close_or_say(comm)
    finally:
        lib.tacit_log_to(_table.tacit_log_callback(), None, _table.LOG_INFO)


check(lib.tacit_log_to(log_line, None, _table.LOG_INFO))
atexit.register(close_at_exit)

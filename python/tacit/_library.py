# SPDX-License-Identifier: Apache-2.0
"""Opens libtacit and turns its statuses into exceptions. Nothing here knows PyTorch or numpy."""
import ctypes
import ctypes.util
import operator
import os
import pathlib

from . import _table

LIBRARY = "libtacit.so.%d.%d" % _table.VERSION[:2]


class Error(RuntimeError):
    """A function of libtacit has failed. `status` is its name, such as "E_PEER"."""
    status = "E_INTERNAL"


class UsageError(Error):
    """A call that cannot be, at this time or at all."""
    status = "E_USAGE"


class ConfigError(Error, ValueError):
    """A setting, or a combination of settings, is refused."""
    status = "E_CONFIG"


class DataError(Error):
    """A checkpoint is damaged or belongs to another network."""
    status = "E_DATA"


class PeerError(Error):
    """Another rank has failed, frozen or left; the text names it. The communicator is of no use any more."""
    status = "E_PEER"


class NumericsError(Error):
    """A number is not finite or out of range."""
    status = "E_NUMERICS"


class OutOfMemoryError(Error):
    """There is not enough memory."""
    status = "E_MEMORY"


class FileError(Error):
    """Reading or writing has failed."""
    status = "E_IO"


class UnsupportedError(Error):
    """This build or machine cannot do it."""
    status = "E_UNSUPPORTED"


class InternalError(Error):
    """A defect in tacit; please report it."""


def expect(holds, name, value, wanted):
    """Raises unless it holds, naming an argument, its value and what is wanted."""
    if not holds:
        raise UsageError(f"{name} is {value!r:.80}: {wanted} is expected")


def expect_path(name, value, wanted="a path"):
    bytes_of = os.fsencode(value) if isinstance(value, (str, bytes, os.PathLike)) else b""
    expect(bytes_of and b"\0" not in bytes_of, name, value, wanted)


def read_integer(name, value, lowest=0, bits=31):
    """Returns an integer. ctypes would cut one that has more bits than C's."""
    found = operator.index(value) if hasattr(value, "__index__") else lowest - 1
    expect(lowest <= found < 2 ** bits, name, value, f"an integer from {lowest} to 2 ** {bits} - 1")
    return found


def read_number(name, value, wanted="a number", lowest=None):
    """Returns a float; of a tensor its only element."""
    try:
        found = float(value) if hasattr(value, "__float__") else None
    except (TypeError, ValueError, RuntimeError, OverflowError):  # it has several, or is too large
        found = None
    expect(found is not None and (lowest is None or found >= lowest), name, value, wanted)
    return found


ERRORS = {error.status: error for error in Error.__subclasses__()}


def list_places():
    """Returns where the library may be, in the order in which the places are tried."""
    if os.environ.get("TACIT_LIBRARY"):
        return [os.environ["TACIT_LIBRARY"]]
    beside = pathlib.Path(__file__).resolve().parent / "_lib" / "libtacit.so"
    return ([str(beside)] if beside.exists() else []) + [LIBRARY]


def open_library():
    reasons = []
    for place in list_places():
        try:
            library = ctypes.CDLL(place)
            break
        except OSError as reason:
            reasons.append(str(reason))
    else:
        raise ImportError(f"libtacit cannot be opened ({'; '.join(reasons)}); type: pip install tacit, or set "
                          "TACIT_LIBRARY to the path of libtacit.so")
    library.tacit_version.restype = ctypes.c_char_p
    version = library.tacit_version().decode()
    if tuple(map(int, version.split(".")[:2])) != _table.VERSION[:2]:
        raise ImportError(f"{place} is tacit {version}, and this package needs {_table.VERSION[0]}.{_table.VERSION[1]}; "
                          "type: pip install --force-reinstall tacit, or unset TACIT_LIBRARY")
    for name, (result, arguments) in _table.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"{place} is an older tacit {version}, without {name}; type: pip install --force-reinstall "
                              "tacit, or unset TACIT_LIBRARY")
        function.restype, function.argtypes = result, arguments
    return library


def run_handlers():
    """Lets Python handle signals, such as Ctrl-C, whenever the library asks in a wait, and yields whether that has raised an
    exception: then the call ends. A generator goes on inside of its try. Where a function begins, and Python looks for signals,
    no try has begun, and ctypes drops what is raised."""
    while True:
        try:
            while True:
                yield bool(raised)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            raised[:] = [error.with_traceback(error.__traceback__.tb_next)]  # who clears its frames must not end this one


lib, raised = open_library(), []  # raised: by a handler, in a call that fails for it
handlers = run_handlers()
next(handlers)
answer_wait = _table.tacit_wait_callback(handlers.send)  # the library has no other reference
lib.tacit_on_wait(answer_wait, None)  # Python handles signals in its first thread


def fail(status):
    """Raises the exception of a status, with the text of the call that has just failed in this thread, or that of a signal."""
    if raised:
        raise raised.pop()
    name = _table.STATUSES.get(status, "E_INTERNAL")
    raise ERRORS.get(name, InternalError)(lib.tacit_error_text().decode(errors="replace"))


def check(status):
    """Returns if the status is OK, True where it is PENDING, and raises otherwise."""
    if status == 0 and not raised:
        return False
    if status > 0:
        return True
    return fail(status)

# SPDX-License-Identifier: Apache-2.0
"""Ranks on this host for tests of faults: forked from this process, which has imported torch already, and connected by
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
import fcntl
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

import torch

from ranks import end_with_parent, free_port, import_torch  # noqa: F401  also of those who import it from here

torch.set_num_threads(1)
import_torch()


class Rank:
    """A forked process that runs `work(rank, ...)` and ends as an interpreter does, atexit included."""

    def __init__(self, work, rank, size, port, arguments):
        self.log = tempfile.TemporaryFile("w+")
        fcntl.fcntl(self.log, fcntl.F_SETFL, os.O_APPEND)  # text() moves the offset that both processes share
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid, self.status = os.fork(), None
        if self.pid == 0:
            end_with_parent()
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for those it starts aside
            os.dup2(self.log.fileno(), 1)
            os.dup2(self.log.fileno(), 2)
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            end_as_interpreter(lambda: work(rank, *arguments))
        self.began = time.monotonic()

    def wait(self, seconds):
        """True: it has ended within this time."""
        end = time.monotonic() + seconds
        while self.status is None and time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status, self.ended = os.waitstatus_to_exitcode(status), time.monotonic()
            else:
                time.sleep(0.01)
        return self.status is not None

    def kill(self, number=signal.SIGKILL):
        if self.status is None:
            os.kill(self.pid, number)

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def orphans(self):
        """Processes of its group that are left, after a moment for those that notice."""
        for _ in range(60):
            left = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[2]) == self.pid and int(pid) != self.pid and fields[0] not in "ZX":
                    left.append(int(pid))
            if not left:
                return []
            time.sleep(0.1)
        return left


def end_as_interpreter(work):
    """Runs it, and what an interpreter does at its end: the traceback, then atexit's functions."""
    import atexit
    code = 0
    try:
        work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        traceback.print_exc()
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def launch(work, size, *arguments, port=None):
    port = port or free_port()
    return [Rank(work, rank, size, port, arguments) for rank in range(size)]

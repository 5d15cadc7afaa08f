# SPDX-License-Identifier: Apache-2.0
"""Ranks of a test without torchrun, which would end those that remain when one has failed, and has every rank import torch
for itself: python/tests/ranks.py N SCRIPT [WORD...] runs a script of torchrun's so."""
import contextlib
import ctypes
import gc
import os
import random
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time


class Rank:
    """A process of start_ranks(). code: how it has ended, minus the signal; None: not yet."""

    def __init__(self, pid, output):
        self.pid, self.output, self.code = pid, output, None

    def end(self, seconds):
        """What it has printed, when it has ended by itself; after this time it is killed."""
        limit = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > limit:
                os.kill(self.pid, signal.SIGKILL)
            else:
                time.sleep(0.01)
        self.output.seek(0)
        return self.output.read()


def free_port():
    """A MASTER_PORT; the library meets at the one after it, which is free, too. Connections of others do not take either,
    as both lie below the ports that the system gives to them."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as s, socket.socket() as after:
            try:
                s.bind(("127.0.0.1", port))
                after.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def end_with_parent():
    """A test that is killed leaves no ranks that train for ever."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def import_torch():
    """Also what it imports when it makes the first optimizer: as long again. Ranks need not look through all of it when they
    end: that takes a second."""
    import torch
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    gc.freeze()


def start_ranks(count):
    """Forks: a list of Rank in the parent; None in each of them, which goes on as a rank that torchrun has started. Nothing
    may be imported that has threads."""
    import_torch()
    port, started = free_port(), []
    for rank in range(count):
        output = tempfile.TemporaryFile("w+")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for those it starts aside
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=str(port))
            return None
        started.append(Rank(pid, output))
    return started


def text_of_fork(work):
    """What a fork of this process raises there."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            text = "nothing raised"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        text = told.read()
    os.waitpid(child, 0)
    return text


@contextlib.contextmanager
def own_folder():
    """A folder that goes with this process; ranks that it has forked leave it alone."""
    folder, owner = tempfile.mkdtemp(), os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def end_ranks(started):
    """Waits for all and prints what they have printed. Ends the program as the worst of them."""
    texts = [rank.end(280) for rank in started]
    print(*texts, sep="\n")
    sys.exit(max(abs(rank.code) for rank in started))


def run_tests(tests, words, prepare, failure):
    """torchrun SCRIPT [NAME...], SCRIPT ranks N [NAME...], or SCRIPT failures [KIND...]: failure(kind) checks one, and is
    True in a rank, which ends with the program."""
    if words[:1] == ["failures"]:
        any(failure(kind) for kind in words[1:])
        return
    if words[:1] == ["ranks"]:
        started = start_ranks(int(words[1]))
        if started:
            end_ranks(started)
        words = words[2:]
    chosen = choose_tests(tests, words)
    prepare()
    for name, test in chosen.items():
        begin = time.monotonic()
        test()
        if os.environ["RANK"] == "0":
            print(f"{name} {time.monotonic() - begin:.2f} s", flush=True)


def choose_tests(tests, words):
    """All, or those that are named; a word that names none ends the program."""
    known = {name: test for name, test in tests.items() if name.startswith("test_")}
    if unknown := [word for word in words if "test_" + word not in known]:
        sys.exit(f"there is no test {' '.join(unknown)}; there are {' '.join(name[5:] for name in known)}")
    return {name: test for name, test in known.items() if not words or name[5:] in words}


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    started = start_ranks(int(sys.argv.pop(0)))
    if started:
        end_ranks(started)
    runpy.run_path(sys.argv[0], run_name="__main__")

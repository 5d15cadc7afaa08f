# SPDX-License-Identifier: Apache-2.0
"""Rows of metrics.jsonl and lines of progress, as the program `tacit train` writes them (docs/metrics.md)."""
import atexit
import contextlib
import json
import math
import os
import sys
import time

from .._library import FileError, UsageError, read_number
from ..comm import logger

PROGRESS_S = 10
COMPRESSION = ("factor", "gain", "kept")  # of a step with a compressed sum
COUNTED = ("wait_s", "bytes_sent", "bytes_received")  # since the step before
# Keys of a row of a step, and the one by which other lines are known.
OWN_KEYS = ("step", "time", "grad_norm", "step_s", *COUNTED, "skipped", *COMPRESSION, "event")


def read_values(values):
    for name in values:
        if name in OWN_KEYS:
            raise UsageError(f"log({name}=...): this key has a meaning of its own in a row; choose a name other than "
                             f"{', '.join(OWN_KEYS)}")
    return {name: read_number(f"log({name}=...)", value) for name, value in values.items()}


class Metrics:
    """Writes the rows of rank 0, and on other ranks nothing. A row is written when the next step has begun, or at close()."""

    def __init__(self, progress, comm):
        self._comm, self._file, self._progress = comm, None, progress and comm.rank == 0
        self._row, self._before, self._began, self._shown = {}, {}, time.monotonic(), 0.0
        self._coming, self.expects_step = {}, True  # values of a step that has begun, as a forward pass says

    def open(self, path, buffers):
        """Raises on all ranks where rank 0 cannot write. Collective."""
        refusal = None
        if path is not None and self._comm.rank == 0:
            try:
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                self._file = open(path, "a", buffering=1)
            except (OSError, TypeError) as error:
                refusal = f"metrics={path!r}: {error}"
            atexit.register(self.close)
        if refusal := buffers.gather(refusal)[0]:
            raise FileError(refusal)

    @property
    def wanted(self):
        return self._file is not None or self._progress

    def start(self, counters):
        """Begins to count: a communicator may have carried what belongs to no step of this model."""
        self._before, self._began = counters, time.monotonic()

    def begin_row(self, step):
        """A step has its gradient."""
        self.write_row()
        if self.wanted:
            self._row, self._coming, self.expects_step = {"step": step.number, "grad_norm": step.norm, **self._coming}, {}, False

    def end_row(self, counters):
        """The step has ended. counters: reads them."""
        if self.wanted:
            before, began = self._before, self._began
            self.start(counters())
            self._row.update({key: self._before[key] - before[key] for key in COUNTED}, time=round(time.time(), 3),
                             step_s=self._began - began, skipped=self._before["skipped"],
                             **{key: self._before[key] for key in COMPRESSION if self._before[key] > 0})

    def add(self, **values):
        (self._coming if self.expects_step else self._row).update(read_values(values))

    def write_row(self):
        if not self._row or self._comm.is_parents:
            return
        row = {name: v for name, v in self._row.items() if math.isfinite(v)}
        try:
            if self._file is not None:
                self._file.write(json.dumps(row) + "\n")
        except OSError as error:
            logger.warning("%s: no more rows of metrics are written", error)
            self._drop_file()
        if self._progress and "step_s" in row and time.monotonic() - self._shown > PROGRESS_S:
            self._shown = time.monotonic()
            loss = f"  loss {row['loss']:.4f}" if "loss" in row else ""
            factor = f"  factor {row['factor']:.3g}" if "factor" in row else ""
            share = 100 * row["wait_s"] / max(row["step_s"], 1e-9)
            print(f"step {row['step']}{loss}  {row['step_s']:.3f} s  wait {share:.0f}%  {row['bytes_sent'] / 1e6:.3f} MB/step"
                  f"{factor}", file=sys.stderr, flush=True)
        self._row = {}

    def close(self):
        self.write_row()
        self._drop_file()
        atexit.unregister(self.close)

    def _drop_file(self):
        file, self._file = self._file, None
        with contextlib.suppress(OSError):  # of a row that it could not write
            if file is not None:
                file.close()

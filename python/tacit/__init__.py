# SPDX-License-Identifier: Apache-2.0
"""tacit: training over links that are slow next to the compute.

    import tacit.torch as tacit            PyTorch: Parallel, hook, fsdp, save, load
    import tacit.numpy                     arrays of numpy, and an optimizer of the library's or of your own
    python -m tacit info                   what can be set

This package is pure Python over libtacit's C interface, include/tacit/tacit.h."""
from . import _table
from ._library import (ConfigError, DataError, Error, FileError, InternalError, NumericsError, OutOfMemoryError, PeerError,
                       UnsupportedError, UsageError, lib)
from .comm import Comm
from .job import Blob, Channel, Job, Layout
from .settings import Settings

__version__ = lib.tacit_version().decode()
__all__ = ["Blob", "Channel", "Comm", "ConfigError", "DataError", "Error", "FileError", "InternalError", "Job", "Layout",
           "NumericsError", "OutOfMemoryError", "PeerError", "Settings", "UnsupportedError", "UsageError"]

# SPDX-License-Identifier: Apache-2.0
"""PyTorch in two lines:

    import tacit.torch as tacit
    model = tacit.Parallel(model, optimizer, strategy="gossip", topology="aer")

and the training loop stays as it is, under torchrun, mpirun, srun or alone. torch.distributed need not be initialised."""
from .. import (ConfigError, DataError, Error, FileError, InternalError, NumericsError, OutOfMemoryError, PeerError,
                Settings, UnsupportedError, UsageError, __version__)
from .checkpoint import load, save
from .cuda import DeviceError
from .fsdp import fsdp
from .hook import hook
from .parallel import Parallel
from .ranks import default_comm, open_comm

__all__ = ["ConfigError", "DataError", "DeviceError", "Error", "FileError", "InternalError", "NumericsError",
           "OutOfMemoryError", "Parallel", "PeerError", "Settings", "UnsupportedError", "UsageError", "default_comm",
           "fsdp", "hook", "load", "open_comm", "save"]

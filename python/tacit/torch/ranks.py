# SPDX-License-Identifier: Apache-2.0
"""The ranks of a PyTorch program."""
import os
import socket

import torch.distributed as dist

from .._library import UsageError
from ..comm import Comm, is_under_mpi
from ..settings import Settings, options
from . import _private

_counts = {}
_default, _default_settings = None, {}


def make_own(store, group=None):
    """Returns a part of a store of torch.distributed for one communicator."""
    count = _counts[group] = _counts.get(group, 0) + 1
    return dist.PrefixStore(f"tacit/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{count}", store)


def is_part(group):
    """Returns whether a process group lacks ranks of the program."""
    return group is not None and dist.get_process_group_ranks(group) != list(range(dist.get_world_size()))


def choose_interface(settings):
    """Takes the network that gloo or NCCL was told to use; comm.interface comes first."""
    if settings["comm.interface"] not in ("", "none"):
        return
    known = {name for _, name in socket.if_nameindex()}
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        for name in os.environ.get(variable, "").split(","):
            if name in known:
                settings["comm.interface"] = name
                return


def open_comm(settings=None, group=None):
    """Returns all ranks of this program: those of mpirun or srun over MPI; else those of torch.distributed or torchrun, which
    meet in its store; else this process alone. group: those of a process group of torch.distributed. Collective."""
    settings = Settings.of(settings)
    if is_part(group):
        choose_interface(settings)
        return Comm(settings, dist.get_rank(group), dist.get_world_size(group), make_own(_private.store_of(group), group))
    store = _private.default_store() if settings["comm.engine"] in ("auto", "tcp") and not is_under_mpi() else None
    if store is None:
        return Comm(settings)
    choose_interface(settings)
    if _private.is_initialized():
        return Comm(settings, dist.get_rank(), dist.get_world_size(), make_own(store))
    return Comm(settings, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), make_own(store))


def read_settings(settings):
    """Returns those of the communicator; every model has its own patience with its tensors, comm.stall."""
    return {key: settings[key] for key, _ in options() if key.startswith("comm.") and key != "comm.stall"}


def check_same(settings):
    """Raises where a later model asks for something that the communicator does not have."""
    defaults = read_settings(Settings())
    for key, value in read_settings(settings).items():
        if value not in (defaults[key], _default_settings[key]):
            raise UsageError(f"{key} is {value} here, and the ranks have met with {_default_settings[key] or 'none'}: give it to the first "
                             "model, or this model a communicator of its own, comm=tacit.open_comm(tacit.Settings(...))")


def default_comm(settings=None):
    """One communicator for all models of the program; the settings of the first open it."""
    global _default, _default_settings
    settings = Settings.of(settings)
    if _default is None or not _default._handle:
        asked = read_settings(settings)
        _default, _default_settings = open_comm(settings), asked
    else:
        check_same(settings)
    return _default

# SPDX-License-Identifier: Apache-2.0
"""The state of an optimizer whose ranks have parts of it, as that of whole parameters: what a checkpoint holds, so that any
number of ranks and strategies dp and shard go on from it, and what close() gives the optimizer back."""
import torch

from .._library import Error
from ..comm import logger

ARRAY = "of the shape of its parameter"
SCALARS = ("step", "eta", "mu", "mu_product")  # of torch.optim: no part of a parameter of one element


@torch.no_grad()
def join(model, optimizer):
    """Returns state_dict() of the optimizer as if it had whole parameters. Collective."""
    parts, tensors, buffers = model._parts, model._tensors, model._rank_buffers
    own, found = {}, {}  # arrays over all tensors, by name; by tensor the names, and values of what is no array
    for piece, begin, count in parts.list_pieces(optimizer):
        entry = found.setdefault(parts.numbers[id(piece)], {})
        for name, value in optimizer.state.get(piece, {}).items():
            entry[name] = value
            if isinstance(value, torch.Tensor) and value.shape == piece.shape:
                entry[name] = ARRAY
                own.setdefault(name, torch.zeros(tensors.layout.floats))[begin:begin + count] = value
    places = [(begin, count) for _, begin, count in parts.list_pieces(optimizer)]
    of_ranks = buffers.gather({"found": found, "places": places})
    values = {}
    for other in reversed(of_ranks):
        for i, entry in other["found"].items():
            values.setdefault(i, {}).update(entry)
    taken = [place for other in of_ranks[:model.comm.rank] for place in other["places"]]
    names = sorted({name for entry in values.values() for name, value in entry.items() if is_array(value)})
    arrays = {name: sum_parts(own.get(name), taken, tensors, buffers) for name in names}
    return number(optimizer, parts, tensors, values, arrays)


def sum_parts(array, taken, tensors, buffers):
    """Returns the array of all ranks. taken: places that ranks before this one have, too."""
    array = torch.zeros(tensors.layout.floats) if array is None else array
    for begin, count in taken:
        array[begin:begin + count] = 0
    return buffers.sum_long(array)


def number(optimizer, parts, tensors, values, arrays):
    members = parts.list_tensors(optimizer)
    trained = {key: {name: tensors.view_in(arrays[name], i).clone() if is_array(value) else value
                     for name, value in values[i].items()}
               for key, i in enumerate(i for group in members for i in group) if values.get(i)}
    return {"state": {**parts.idle.get(optimizer, {}), **trained},
            "param_groups": number_groups(optimizer.param_groups, map(len, members))}


def number_groups(groups, counts):
    """Returns parameter groups with the keys of their state."""
    numbered, key = [], 0
    for group, count in zip(groups, counts):
        numbered.append({**group, "params": list(range(key, key + count))})
        key += count
    return numbered


def is_array(value):
    return isinstance(value, str) and value == ARRAY


@torch.no_grad()
def split(model, optimizer, whole):
    """Returns state_dict() of this rank's parts, out of one of whole parameters. The entries of frozen parameters are left
    out."""
    parts, tensors = model._parts, model._tensors
    members = [i for group in parts.list_tensors(optimizer) for i in group]
    entries = {i: whole["state"][key] for key, i in enumerate(members) if key in whole["state"]}
    state = {}
    for key, (piece, begin, count) in enumerate(parts.list_pieces(optimizer)):
        i = parts.numbers[id(piece)]
        at, shape = begin - tensors.layout.offset(i), tensors.parameters[i].shape
        if i in entries:
            state[key] = {name: tensors.flatten(value, i)[at:at + count].clone() if has_shape(name, value, shape) else copy_of(value)
                          for name, value in entries[i].items()}
    counts = [len(group["params"]) for group in optimizer.param_groups]
    return {"state": state, "param_groups": number_groups(whole["param_groups"], counts)}


def copy_of(value):
    """Gives every part its own: an optimizer counts its steps in place."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def idle_entries(parts, optimizer, whole):
    """Returns what split() leaves out."""
    numbers = [i for group in parts.list_tensors(optimizer) for i in group]
    return {key: whole["state"][key] for key, i in enumerate(numbers) if i is None and key in whole["state"]}


def load(model, optimizer, whole, own=None):
    """Gives this rank's parts their state, out of one of whole parameters. own: state_dict() of the parts, where it is
    known."""
    state = split(model, optimizer, whole) if own is None else own
    model._parts.idle[optimizer] = idle_entries(model._parts, optimizer, whole)
    optimizer.load_state_dict(state)


def join_all(model, is_alone):
    """Returns {optimizer: state} for restore(). Collective, unless is_alone. Then, and where it fails, the state of all
    parameters but the frozen ones is lost."""
    try:
        if not is_alone:
            model._end_parts()
            return {optimizer: join(model, optimizer)["state"] for optimizer in model.optimizers}
    except Error as error:
        logger.warning("%s", error)
    if any(optimizer.state for optimizer in model.optimizers):
        logger.warning("close() after a failure, or while an exception is handled: the state of the optimizers is lost, as every "
                       "rank had a part of it; load a checkpoint before you train on")
    return {optimizer: model._parts.idle.get(optimizer, {}) for optimizer in model.optimizers}


def restore(optimizer, state):
    """Gives an optimizer that has whole parameters again their state."""
    optimizer.state.clear()
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def has_shape(name, value, shape):
    return isinstance(value, torch.Tensor) and value.shape == shape and name not in SCALARS

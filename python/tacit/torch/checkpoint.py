# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a tacit.Parallel: parameters and the state of the strategy as the library writes them, and beside them
optimizers, samplers, schedulers, random generators, buffers and parameters that are not trained. The format is that of
docs/checkpoints.md: any reader of safetensors finds the mean of the parameters as "model.NAME"."""
import contextlib
import hashlib
import numbers
import os
import pickle
import random
import re
from collections import Counter

import torch

from .._library import DataError, UsageError, expect, expect_path
from ..comm import logger
from ..job import Blob, check_folder
from . import _private, cuda, moments
from .buffers import read_bytes, write_bytes

SHARED, OWN = "torch.shared", "torch.rank"
REFROZEN = ("if its requires_grad has changed since: wrap the model as it was saved, load(), close(), change requires_grad, and "
            "wrap it again")


def save(folder, model, *stateful, step=None, keep=2):
    """Writes folder/step_..., complete or not at all, and keeps the newest `keep`.

    stateful: what has state_dict() and load_state_dict(): optimizers, schedulers, GradScaler, samplers; in load() in the
    same order. step: where the caller's loop goes on; else the number of steps. A folder with a newer checkpoint, which this
    model has not loaded, is refused. Between two steps: after backward() alone it holds the state before the update,
    and no gradient. Collective."""
    check_model(model, "save")
    expect_path("folder", folder)
    if model._averaged:
        raise UsageError("parameters and buffers are the mean of the ranks here: leave model.average() before you save")
    if step is not None:
        check_step(step)
    for thing in stateful:
        if not hasattr(thing, "state_dict"):
            raise UsageError(f"after the model come what has a state_dict(), such as optimizers, and this is {thing!r}; the step "
                             "has a name: step=...")
    states = [read_state(thing) for thing in stateful]
    if not model._is_used and (model._parts is not None or model.settings["compress.codec"] != "none"):
        logger.warning("save() comes between backward() and step(), and the checkpoint holds half a step: save after step()")
    model._meet()
    frozen, own_frozen = list_frozen(model)
    shared = {"step": model.counters()["steps"] if step is None else step, "buffers": share_buffers(model),
              "frozen": frozen, "names": list(model._tensors.names), "kinds": name_kinds(stateful),
              "states": share_states(model, stateful, states)}
    own = {"random": random_state(model._tensors.gpu), "buffers": list_buffers(model), "frozen": own_frozen,
           "form": form_of(model), "states": states if form_of(model) != "equal" else leave_optimizers_out(stateful, states),
           "places": [list_places(model, thing) for thing in stateful]}
    refuse_newer(folder, model)
    if model._parts is None:
        model._tensors.push()
    model._job.save(folder, [Blob(SHARED, write_bytes(make_plain(shared))), Blob(OWN, write_bytes(own), own=True)], keep)


def refuse_newer(folder, model):
    """A job that began again counts from 0, and load() would go on from what is there."""
    steps = model._job.counters()["steps"]
    newer = model._rank_buffers.gather(find_newer(folder, model, steps))[0]
    if newer is not None:
        raise UsageError(f"{folder} holds the checkpoint of step {newer}, which load() would take for newer than this one of step "
                         f"{steps}: save to another folder. Steps count from 0 after load_state_dict() and for a model that was "
                         "wrapped again; after load() they go on")


def find_newer(folder, model, steps):
    """Rank 0 looks. After load() from this folder a newer one is damaged. The job's save() tells why it cannot read a
    folder."""
    if model.comm.rank != 0 or model._folder == os.path.realpath(folder):
        return None
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    newest = max((int(name[5:]) for name in names if re.fullmatch(r"step_\d+", name)), default=0)
    return newest if newest > steps else None


def list_places(model, thing):
    """Returns the parts of this rank, which follow from hosts and settings, too."""
    if model._parts is None or not is_optimizer(thing):
        return None
    return [[begin, count] for _, begin, count in model._parts.list_pieces(thing)]


def has_same_parts(model, thing, places, i):
    """Returns whether parts are those of the checkpoint. places: those that it holds."""
    here = list_places(model, thing)
    return here is None or places[i] == here


def read_state(thing):
    """Returns its state, all of which load() can read."""
    state = make_plain(thing.state_dict())
    try:
        read_bytes(write_bytes(make_plain(state, with_tensors=False)))
    except pickle.UnpicklingError as problem:
        kind = re.search(r"(?:GLOBAL|class) ([\w.]+)", str(problem))
        raise DataError(f"the state of {type(thing).__name__} holds {kind[1] if kind else 'an object'}, which load() could not read: "
                        "let state_dict() return tensors, numbers, texts, lists and dictionaries") from None
    return state


def make_plain(value, with_tensors=True):
    """Returns the same with numbers in the place of numpy's."""
    if isinstance(value, torch.Tensor):
        return value if with_tensors else None
    if type(value) in (list, tuple):
        return type(value)(make_plain(v, with_tensors) for v in value)
    if type(value) is dict:
        return {make_plain(k): make_plain(v, with_tensors) for k, v in value.items()}
    is_number = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_number else value


def load(folder, model, *stateful):
    """Goes on from the newest checkpoint in `folder` that is not damaged: returns the `step` of save(), or 0 where there is
    none. On as many ranks as have saved it, bit for bit as if the program had not stopped; on another number, from the
    mean of parameters, optimizers and buffers, and rank 0's samplers. Before the first step or between two. Collective."""
    check_model(model, "load")
    check_folder(folder)
    blobs = [Blob(SHARED), Blob(OWN, own=True)]
    with explain_freezing():
        shared = model._load(folder, blobs, lambda: read_shared(folder, model, stateful, blobs[0].data))
    if shared is None:
        return 0
    model._folder = os.path.realpath(folder)
    own = read_bytes(blobs[1].data) if blobs[1].data is not None else {}
    restore_states(model, stateful, shared["states"], own)
    restore_tensors("buffer", _private.list_persistent(model.module), own.get("buffers", shared["buffers"]))
    restore_frozen(model, shared["frozen"], own)
    if own:
        restore_random(own["random"], model._tensors.gpu)
    return shared["step"]


@contextlib.contextmanager
def explain_freezing():
    """Adds advice to the error of the library, which knows only the parameters that are trained."""
    try:
        yield
    except DataError as error:
        if "is not in this checkpoint" in str(error):
            raise DataError(f"{error}; {REFROZEN}") from None
        raise


def read_shared(folder, model, stateful, data):
    """Returns what all ranks have in common, and refuses what this model or these objects cannot go on from."""
    if data is None:
        raise DataError(f"{folder}: the checkpoint was not written by tacit.save(), which alone has the state of optimizers")
    shared = read_bytes(data)
    check_names(model, shared)
    check_kinds(stateful, shared)
    check_groups(model, stateful, shared)
    return shared


def check_step(step):
    expect(isinstance(step, numbers.Integral) and step >= 0, "step", step,
           "the step where the loop goes on, an integer of 0 or more,")


def check_model(model, verb):
    if not hasattr(model, "_job"):
        raise UsageError(f"the model comes after the folder, and this is a {type(model).__name__}: {verb}(folder, model, "
                         "optimizer, ...) with the model that tacit.Parallel has made")


def check_names(model, shared):
    """Refuses a checkpoint of a larger model, which has what this one needs, too."""
    missing = set(shared["names"]) - set(model._tensors.names)
    if missing:
        raise DataError(f"the checkpoint has a trained parameter {min(missing)}, and the model trains none of this name; "
                        f"{REFROZEN}")


def form_of(model):
    """Names what the optimizers of ranks are to each other."""
    return "parts" if model._parts is not None else "replicas" if model._keeps_replica else "equal"


def is_optimizer(thing):
    return isinstance(thing, torch.optim.Optimizer)


def name_kinds(stateful):
    return [type(thing).__name__ for thing in stateful]


def check_kinds(stateful, shared):
    """An object may be of another class than the one that was saved, but an optimizer needs the state of one, and another
    order is none that was meant: many a load_state_dict() takes what is another's."""
    were = [isinstance(state, dict) and "param_groups" in state for state in shared["states"]]
    saved, here = shared["kinds"], name_kinds(stateful)
    if len(saved) != len(here):
        raise UsageError(f"the checkpoint holds {len(saved)} objects beside the model ({', '.join(saved) or 'none'}), and load() "
                         f"is given {len(here)} ({', '.join(here) or 'none'}): pass those of save()")
    lacks = any(is_optimizer(thing) and not was for thing, was in zip(stateful, were))
    if lacks or (saved != here and sorted(saved) == sorted(here)):
        raise UsageError(f"the checkpoint holds {', '.join(saved)} in this order, and load() is given {', '.join(here)}: pass "
                         "them in the order of save()")


def check_groups(model, stateful, shared):
    """An optimizer cannot work without the numbers of its groups. It sets by itself what is True, False or None, as for
    checkpoints of an older torch."""
    for thing, state, kind in zip(stateful, shared["states"], shared["kinds"]):
        if is_optimizer(thing):
            saved, here = [len(group["params"]) for group in state["param_groups"]], count_parameters(model, thing)
            if saved != here:
                raise DataError(f"the checkpoint has an optimizer with {saved} parameters in its groups, and {type(thing).__name__} "
                                f"has {here}")
            needed = {name for name, value in thing.defaults.items() if value is not None and not isinstance(value, bool)}
            if missing := sorted(needed.difference(*state["param_groups"])):
                raise UsageError(f"the checkpoint holds the state of {kind}, and load() is given {type(thing).__name__}, whose "
                                 f"groups also need {', '.join(missing)}: load it into an optimizer of the class that was saved")


def count_parameters(model, optimizer):
    """Returns numbers by group: whole parameters also where this rank has parts of them."""
    groups = [group["params"] for group in optimizer.param_groups]
    return [len(g) for g in (groups if model._parts is None else model._parts.list_tensors(optimizer))]


def restore_states(model, stateful, shared, own):
    is_same_form = own.get("form") == form_of(model)
    for i, (thing, state) in enumerate(zip(stateful, shared)):
        is_own = bool(own) and (not is_optimizer(thing) or (is_same_form and has_same_parts(model, thing, own["places"], i)))
        of_rank = own["states"][i] if is_own else None
        if is_optimizer(thing) and model._parts is not None:
            moments.load(model, thing, state, of_rank)
        else:
            thing.load_state_dict(state if of_rank is None else of_rank)


# ---- what ranks have in common -------------------------------------------------------------------------------------------


def list_buffers(model):
    return {name: b.detach().clone() for name, b in _private.list_persistent(model.module).items()}


def share_buffers(model):
    """Returns their mean, as far as they have one; rank 0's where each rank has its own."""
    if model._rank_buffers.is_own:
        return model._rank_buffers.first(list_buffers(model))
    with model._rank_buffers.averaged():
        return list_buffers(model)


def leave_optimizers_out(stateful, states):
    return [None if is_optimizer(thing) else state for thing, state in zip(stateful, states)]


def share_states(model, stateful, states):
    """Returns the states that all ranks agree on, any of which may write them: rank 0's of what is no optimizer."""
    others = model._rank_buffers.gather(leave_optimizers_out(stateful, states))[0]
    return [mean_of(model, thing, state) if is_optimizer(thing) else other
            for thing, state, other in zip(stateful, states, others)]


def mean_of(model, optimizer, state):
    """Returns the state of an optimizer: the mean over ranks, where replicas have their own; of whole parameters, where ranks
    have parts of it; else as it is: ranks have the same."""
    if model._parts is not None:
        model._parts.check_groups(optimizer)
        return moments.join(model, optimizer)
    return mean_state(model._rank_buffers, state) if model._keeps_replica and model.comm.size > 1 else state


def mean_state(buffers, state):
    """Returns means of what belongs to the same parameter, over the ranks that have it. A rank whose optimizer has not met the
    parameter knows nothing of its moments: zeros in its place would shrink them, beside a number of steps that says they are
    whole, and are no state at all where one begins with other numbers, as NAdam's and Rprop's do. The first rank
    that has it gives what is no tensor of floats."""
    own = {(key, name): value.detach() for key, entry in state["state"].items() for name, value in entry.items()
           if isinstance(value, torch.Tensor) and value.is_floating_point()}
    rest = {key: {name: value for name, value in entry.items() if (key, name) not in own}
            for key, entry in state["state"].items()}
    of_ranks = buffers.gather({"forms": {place: form_of_tensor(t) for place, t in own.items()}, "rest": rest,
                               "groups": state["param_groups"]})
    entries = {}
    for other in reversed(of_ranks):
        for key, entry in other["rest"].items():
            entries.setdefault(key, {}).update(entry)
    for (key, name), mean in mean_by_place(buffers, own, [other["forms"] for other in of_ranks]).items():
        entries[key][name] = mean
    return {**state, "param_groups": of_ranks[0]["groups"], "state": entries}


def form_of_tensor(tensor):
    return tuple(tensor.shape), tensor.dtype


def mean_by_place(buffers, own, forms_of_ranks):
    """Returns means over the ranks that have a tensor. forms_of_ranks: which tensors every rank has, and their shapes and
    types."""
    forms = {place: form for forms in reversed(forms_of_ranks) for place, form in forms.items()}
    holders = Counter(place for of_rank in forms_of_ranks for place, form in of_rank.items() if form == forms[place])
    places = sorted(forms, key=str)
    tensors = [own[place] if place in own and form_of_tensor(own[place]) == forms[place]
               else torch.zeros(forms[place][0], dtype=forms[place][1]) for place in places]
    return dict(zip(places, buffers.mean_of(tensors, [holders[place] for place in places])))


def restore_tensors(kind, here, saved):
    with torch.no_grad():
        for name, value in saved.items():
            if name not in here or here[name].shape != value.shape:
                raise DataError(f"the checkpoint has a {kind} {name} of {tuple(value.shape)}, and the model has none")
            here[name].copy_(value)


# ---- parameters that are not trained ---------------------------------------------------------------------------------------


def name_frozen(model):
    return {name: p for name, p in model.named_parameters() if id(p) not in model._known}


def list_frozen(model):
    """Returns those that the ranks share; and this rank's, where a program has let ranks differ, as a teacher that follows a
    replica does: they share the mean of these."""
    buffers, frozen = model._rank_buffers, {name: copy_to_save(p) for name, p in name_frozen(model).items()}
    if model.comm.size == 1:
        return frozen, {}
    digests = buffers.gather([hashlib.blake2b(write_bytes(p), digest_size=16).hexdigest() for p in frozen.values()])
    own = {name: p for (name, p), *of_ranks in zip(frozen.items(), *digests) if len(set(of_ranks)) > 1}
    floats = {name: p for name, p in own.items() if p.is_floating_point()}
    return {**frozen, **dict(zip(floats, buffers.mean_of(list(floats.values()))))}, own


def copy_to_save(parameter):
    """Returns it on the CPU, and a copy only where torch.save() would write more than the parameter: all that its memory
    holds."""
    value = parameter.detach().cpu()
    is_all = value.layout == torch.strided and value.untyped_storage().nbytes() == value.numel() * value.element_size()
    return value if is_all else value.clone()


def restore_frozen(model, shared, own):
    here = name_frozen(model)
    if missing := sorted(here.keys() - shared.keys()):
        raise DataError(f"{missing[0]} has no requires_grad, and the checkpoint has no such parameter: make the model as it was "
                        "when it was saved, and add parameters after load()")
    is_same_form = own.get("form") == form_of(model)
    restore_tensors("parameter without requires_grad", here, {**shared, **(own["frozen"] if is_same_form else {})})


# ---- random generators ---------------------------------------------------------------------------------------------------


def random_state(gpu):
    version, numbers, gauss = random.getstate()
    return {"torch": torch.get_rng_state(), "python": [version, list(numbers), gauss], "numpy": numpy_state(),
            "gpu": cuda.random_state(gpu)}


def numpy_state():
    import sys
    if "numpy" not in sys.modules:
        return None
    name, keys, *rest = sys.modules["numpy"].random.get_state()
    return [name, [int(k) for k in keys], *rest]


def restore_random(state, gpu):
    torch.set_rng_state(state["torch"])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if state.get("gpu") is not None and gpu is not None:
        torch.cuda.set_rng_state(state["gpu"], gpu)
    if state["numpy"] is not None:
        import numpy
        name, keys, *rest = state["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))

# SPDX-License-Identifier: Apache-2.0
"""Strategy shard: every rank updates its parts of the parameters, with the optimizer of the caller, whose state is that of
these parts alone (ZeRO, arXiv 1910.02054, section 5)."""
import collections
import functools
import inspect

import torch

from .._library import UnsupportedError, UsageError
from ..comm import logger
from .tensors import is_dense, order_dims, view_floats

# Optimizers that update every element by itself, so that a part of a tensor is a tensor to them.
BY_ELEMENT = {"SGD", "Adam", "AdamW", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"}

# Methods of an optimizer that know of its parts.
METHODS = ("zero_grad", "state_dict", "load_state_dict")


def check_optimizer(optimizer):
    step = inspect.unwrap(type(optimizer).step)
    stepper = step.__qualname__.rpartition(".")[0].rpartition(".")[2] or "a function"  # the class whose step() it is
    if stepper not in BY_ELEMENT or not step.__module__.startswith("torch.optim."):
        raise UnsupportedError(f"strategy shard updates parts of tensors, for which step() of {stepper} is not known: one of "
                               f"{', '.join(sorted(BY_ELEMENT))}, or strategy=\"dp\"")


def check_owners(module, optimizers):
    """Refuses a parameter whose optimizer does not know of parts: it would stay as it is."""
    owned = {id(p): p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    for p in owned.keys() - {id(p) for p in module.parameters()}:
        if owned[p].requires_grad:
            raise UsageError(f"an optimizer has a parameter of shape {tuple(owned[p].shape)} that is not the model's, and strategy "
                             "shard updates those of the model alone: give it an optimizer of its own that does not come with the model")
    for name, p in module.named_parameters():
        if p.requires_grad and id(p) not in owned:
            raise UsageError(f"{name} is trained, and no optimizer that comes with the model updates it: name all of them, "
                             f"tacit.Parallel(model, first, second), or leave it out by requires_grad_(False)")


def clear(parameters):
    for p in parameters:
        p.grad = None


class Parts:
    """Puts this rank's parts in the place of the parameters of the optimizers. Gradients of the model's parameters are those
    of passes in no_sync() alone; zero_grad() of an optimizer, and of the model, clears both."""

    def __init__(self, tensors, optimizers):
        self._tensors = tensors
        # by optimizer and group; the groups themselves are others after load_state_dict()
        self._originals = {o: [group["params"] for group in o.param_groups] for o in optimizers}
        self._methods = {}  # by optimizer: what stood in the places of wrapped methods of its own
        self._has_warned = False
        self.spoiled = False  # a pass before, of the same step, had a gradient that is not finite
        self._copies = None  # by place: how many ranks have it
        self._pieces = []  # (parameter, offset of its first float, floats), the same places in every job
        self.numbers = {}  # by id of a piece: the number of its tensor
        self.idle = {}  # by optimizer: the state of frozen parameters, which stays as it is
        self._stand_in = torch.nn.Parameter(torch.zeros(1, device=tensors.parameters[0].device))

    def bind(self, job):
        """Takes the parts of a job that has started or has loaded a checkpoint."""
        parts = [p for p in job.parts() if p.floats > 0]
        if not self._pieces:
            self._make_pieces(parts)
        for piece, part, begin, count in self._pieces_of(parts):
            at, piece.grad, piece.kept = begin - part.offset, None, None  # those of another job are gone
            piece.host = view_floats(part.parameters + 4 * at, count)
            piece.host_gradient = view_floats(part.gradients + 4 * at, count)
            if self._tensors.gpu is None:
                piece.data, piece.gradient = piece.host, piece.host_gradient
            elif piece.shared is not None and self._is_in_flat(piece.host):
                piece.data = piece.shared
        if self._tensors.gpu is not None:
            self._give("host")

    def leave_memory(self):
        """Gives the parts memory of their own: that of the job goes."""
        for piece in self.list_parameters():
            piece.data, piece.grad = piece.data.clone(), None

    def _make_pieces(self, parts):
        layout, found = self._tensors.layout, {}
        for i, p in enumerate(self._tensors.parameters):
            begin, end = layout.offset(i), layout.offset(i) + p.numel()
            for part in parts:
                first, last = max(begin, part.offset), min(end, part.offset + part.floats)
                if first < last:
                    piece = self._make_piece(p, first - begin, last - begin)
                    self._pieces.append((piece, first, last - first))
                    self.numbers[id(piece)] = i
                    found.setdefault(id(p), []).append(piece)
        for optimizer in self._originals:
            for group in optimizer.param_groups:
                group["params"] = [piece for p in group["params"] for piece in found.get(id(p), [])]
            if optimizer not in self._methods:
                self._wrap_methods(optimizer)

    def _wrap_methods(self, optimizer):
        """Lets zero_grad() of the optimizer clear what passes in no_sync() have left in the parameters of the model, too, and
        its state leave out the stand-in."""
        self._methods[optimizer] = {name: vars(optimizer).get(name) for name in METHODS}
        whole = [p for params in self._originals[optimizer] for p in params]
        clear_parts = optimizer.zero_grad

        @functools.wraps(clear_parts)
        def zero_grad(*args, **kwargs):
            clear_parts(*args, **kwargs)
            clear(whole)
        optimizer.zero_grad = zero_grad
        optimizer.state_dict = self._hide_stand_in(optimizer, optimizer.state_dict)
        optimizer.load_state_dict = self._hide_stand_in(optimizer, optimizer.load_state_dict)

    def _hide_stand_in(self, optimizer, method):
        @functools.wraps(method)
        def hidden(*args, **kwargs):
            groups = self.take_stand_ins(optimizer)
            try:
                return method(*args, **kwargs)
            finally:
                for params in groups:
                    params.append(self._stand_in)
        return hidden

    def check_groups(self, optimizer):
        if len(optimizer.param_groups) != len(self._originals[optimizer]):
            raise UsageError(f"{type(optimizer).__name__}.add_param_group() after the model was wrapped: close() the "
                             "tacit.Parallel, add the group and wrap the model again")

    def check_no_gradients(self, optimizer):
        """Refuses a step without a backward pass of its own, for its update would not reach the other ranks."""
        if any(piece.grad is not None for piece, _, _ in self.list_pieces(optimizer)):
            raise UsageError(f"{type(optimizer).__name__}.step() without a backward pass since the last step, save() or average(): "
                             "under strategy shard an optimizer makes one step after each backward(); call backward() again, "
                             "or use strategy=\"dp\"")

    def _make_piece(self, p, first, last):
        """Makes a parameter of the optimizer. On the CPU bind() gives it memory. On a GPU it has its own, but for a float32
        parameter that is gathered to the bit, where `shared` does."""
        piece = torch.nn.Parameter(torch.empty(last - first, device=p.device))
        piece.kept = piece.shared = None
        if self._tensors.gpu is not None:
            piece.gradient = torch.empty_like(piece.data)
            if is_dense(p) and p.dtype == torch.float32:
                piece.shared = p.detach().permute(order_dims(p)).reshape(-1)[first:last]
        return piece

    def _is_in_flat(self, floats):
        flat = self._tensors.flat
        return flat.data_ptr() <= floats.data_ptr() < flat.data_ptr() + 4 * flat.numel()

    def _give(self, name):
        """Copies from host memory to the GPU: "host" or "host_gradient"."""
        targets = [p.data if name == "host" else p.gradient for p in self.list_parameters()]
        self._tensors.sources.give([getattr(p, name) for p in self.list_parameters()], targets)

    def end_step(self):
        """Lets the library read the parameters that the optimizer has written."""
        self.spoiled = False
        self.take_stand_ins()
        if self._tensors.gpu is not None:
            pieces = self.list_parameters()
            self._tensors.sources.fetch([p.host for p in pieces], [p.data for p in pieces])

    def _pieces_of(self, parts):
        for piece, begin, count in self._pieces:
            part = next(p for p in parts if p.offset <= begin and begin + count <= p.offset + p.floats)
            yield piece, part, begin, count

    def list_parameters(self):
        return [piece for piece, _, _ in self._pieces]

    def list_pieces(self, optimizer):
        """Returns [(parameter, offset of its first float, floats)] of an optimizer, in the order of its state_dict()."""
        places = {id(piece): (piece, begin, count) for piece, begin, count in self._pieces}
        groups = optimizer.param_groups[:len(self._originals[optimizer])]  # close() comes also after add_param_group()
        return [places[id(piece)] for group in groups for piece in group["params"] if piece is not self._stand_in]

    def list_tensors(self, optimizer):
        """Returns by group the numbers of the tensors that an optimizer was made with; None: not trained."""
        numbers = {id(p): i for i, p in enumerate(self._tensors.parameters)}
        return [[numbers.get(id(p)) for p in params] for params in self._originals[optimizer]]

    def keep_gradients(self, skipped):
        """Keeps the gradients that are there, to which another backward pass adds. skipped: what the pass before has ended
        with; its gradients spoil the sum unless they were cleared."""
        pieces = self.list_parameters()
        for piece in pieces:
            piece.kept = None if piece.grad is None else piece.grad.clone()
        self.spoiled = skipped and (not pieces or any(p.kept is not None and not p.kept[0].isfinite() for p in pieces))

    def warn_of_gradients(self):
        """Says once that a step begins without the gradients that an update has used and zero_grad() of the optimizer has
        left."""
        if self._has_warned or not any(p.grad is not None and bool(p.grad.any()) for p in self.list_parameters()):
            return
        self._has_warned = True
        logger.warning("under strategy shard a step begins without gradients: those of the step before, which zero_grad() of the "
                       "optimizer has not cleared, are not added")

    @torch.no_grad()
    def show_gradients(self, skipped, unused):
        """Gives the parts their final gradients, after settle(). After a skipped step they hold a number that is not finite,
        which a GradScaler looks for. unused: by this rank; where nothing has come from others either, there is no
        gradient."""
        clear(self._tensors.parameters)
        if self._tensors.gpu is not None:
            self._give("host_gradient")
        for piece in self.list_parameters():
            if piece.kept is not None:
                piece.gradient.add_(piece.kept)
            if skipped:
                piece.gradient[0] = float("nan")
            is_used = piece.kept is not None or self.numbers[id(piece)] not in unused or bool(piece.gradient.any())
            piece.grad, piece.kept = piece.gradient if is_used else None, None
        self._show_stand_in(skipped)

    def _show_stand_in(self, skipped):
        """A GradScaler wants a gradient of every optimizer, and all ranks' scales are to be the same: until step() an optimizer
        without one on this rank has a parameter more, whose gradient is finite where those of others are."""
        self._stand_in.grad = torch.full_like(self._stand_in, float("nan") if skipped else 0)
        for optimizer in self._originals:
            if all(p.grad is None for group in optimizer.param_groups for p in group["params"]):
                optimizer.param_groups[-1]["params"].append(self._stand_in)

    def take_stand_ins(self, *optimizers):
        """Removes them from these optimizers, or from all, and returns where they were."""
        groups = [group["params"] for o in optimizers or self._originals for group in o.param_groups]
        groups = [params for params in groups if any(p is self._stand_in for p in params)]
        for params in groups:
            params[:] = [p for p in params if p is not self._stand_in]
        return groups

    def zero_grad(self, set_to_none):
        for piece in self.list_parameters():
            if set_to_none or piece.grad is None:
                piece.grad = None
            else:
                piece.grad.zero_()

    @torch.no_grad()
    def norm(self, buffers):
        """Returns that of the gradient as it is now. With shard.over host several ranks have the same part. Collective."""
        if self._copies is None:
            places = buffers.gather([(begin, count) for _, begin, count in self._pieces])
            self._copies = collections.Counter(place for of_rank in places for place in of_rank)
        squares = [torch.zeros((), device=self._tensors.parameters[0].device)]
        squares += [piece.grad.square().sum() / self._copies[begin, count]
                    for piece, begin, count in self._pieces if piece.grad is not None]
        return buffers.sum_of(torch.stack(squares).sum().cpu()).sqrt()

    @torch.no_grad()
    def scale(self, factor):
        for piece in self.list_parameters():
            if piece.grad is not None:
                piece.grad.mul_(factor)

    def release(self):
        for optimizer, originals in self._originals.items():
            for name, before in self._methods.pop(optimizer, {}).items():
                vars(optimizer).pop(name, None)
                if before is not None:
                    setattr(optimizer, name, before)
            for group, params in zip(optimizer.param_groups, originals):
                group["params"] = params

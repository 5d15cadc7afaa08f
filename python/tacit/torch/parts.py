# SPDX-License-Identifier: Apache-2.0
"""Strategy shard: every rank updates its parts of the parameters, with the optimizer of the caller, whose state is that of
these parts alone (ZeRO, arXiv 1910.02054, section 5)."""
import torch

from .._library import UnsupportedError, UsageError
from .tensors import view_floats

# Optimizers that update every element by itself, so that a part of a tensor is a tensor to them.
BY_ELEMENT = {"SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"}


def check_optimizer(optimizer):
    name = type(optimizer).__name__
    if not any(base.__name__ in BY_ELEMENT for base in type(optimizer).__mro__):
        raise UnsupportedError(f"strategy shard updates parts of tensors, which {name} cannot: one of "
                               f"{', '.join(sorted(BY_ELEMENT))}, or strategy=\"dp\"")
    if optimizer.state:
        raise UsageError(f"{name} has made steps already: wrap the model before its first step")


class Parts:
    """Puts this rank's parts in the place of the parameters of the optimizers. zero_grad() then clears the parts, and
    those of the model have no gradient between two steps."""

    def __init__(self, tensors, optimizers):
        self._tensors = tensors
        # by optimizer and group; the groups themselves are others after load_state_dict()
        self._originals = {o: [group["params"] for group in o.param_groups] for o in optimizers}
        self.added = False  # the gradients of this step are sums of several backward passes
        self._pieces = []  # (parameter, offset of its first float, floats), the same places in every job
        self.numbers = {}  # by id of a piece: the number of its tensor

    def bind(self, job):
        """The parts of a job that has started or has loaded a checkpoint."""
        parts = [p for p in job.parts() if p.floats > 0]
        if not self._pieces:
            self._make_pieces(parts)
        for piece, part, begin, count in self._pieces_of(parts):
            at = begin - part.offset
            piece.data = view_floats(part.parameters + 4 * at, count)
            piece.gradient = view_floats(part.gradients + 4 * at, count)

    def _make_pieces(self, parts):
        layout, found = self._tensors.layout, {}
        for i, p in enumerate(self._tensors.parameters):
            begin, end = layout.offset(i), layout.offset(i) + p.numel()
            for part in parts:
                first, last = max(begin, part.offset), min(end, part.offset + part.floats)
                if first < last:
                    piece = torch.nn.Parameter(torch.empty(last - first))
                    piece.kept = None
                    self._pieces.append((piece, first, last - first))
                    self.numbers[id(piece)] = i
                    found.setdefault(id(p), []).append(piece)
        for optimizer in self._originals:
            for group in optimizer.param_groups:
                group["params"] = [piece for p in group["params"] for piece in found.get(id(p), [])]

    def _pieces_of(self, parts):
        for piece, begin, count in self._pieces:
            part = next(p for p in parts if p.offset <= begin and begin + count <= p.offset + p.floats)
            yield piece, part, begin, count

    def list_parameters(self):
        return [piece for piece, _, _ in self._pieces]

    def list_pieces(self, optimizer):
        """[(parameter, offset of its first float, floats)] of an optimizer, in the order of its state_dict()."""
        places = {id(piece): (piece, begin, count) for piece, begin, count in self._pieces}
        return [places[id(piece)] for group in optimizer.param_groups for piece in group["params"]]

    def list_tensors(self, optimizer):
        """By group: numbers of the tensors that an optimizer was made with; None: not trained."""
        numbers = {id(p): i for i, p in enumerate(self._tensors.parameters)}
        return [[numbers.get(id(p)) for p in params] for params in self._originals[optimizer]]

    def keep_gradients(self):
        """Another backward pass adds to the gradients that are there."""
        for piece in self.list_parameters():
            piece.kept = None if piece.grad is None else piece.grad.clone()
        self.added = True

    @torch.no_grad()
    def show_gradients(self, skipped):
        """After settle: gradients of the parts are final. Of a skipped step they hold a number that is not finite, which
        a GradScaler looks for."""
        for p in self._tensors.parameters:
            p.grad = None
        for piece in self.list_parameters():
            if piece.kept is not None:
                piece.gradient.add_(piece.kept)
            if skipped:
                piece.gradient[0] = float("nan")
            piece.grad, piece.kept = piece.gradient, None

    @torch.no_grad()
    def sum_squares(self):
        return torch.stack([torch.zeros(())] + [p.grad.square().sum() for p in self.list_parameters() if p.grad is not None]).sum()

    @torch.no_grad()
    def scale(self, factor):
        for piece in self.list_parameters():
            if piece.grad is not None:
                piece.grad.mul_(factor)

    def release(self):
        for optimizer, originals in self._originals.items():
            for group, params in zip(optimizer.param_groups, originals):
                group["params"] = params

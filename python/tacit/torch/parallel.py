# SPDX-License-Identifier: Apache-2.0
"""Parallel: a model that trains together with those of the other ranks, by any strategy of the library that leaves the
update to the caller's optimizer. The contract is that of DistributedDataParallel: when backward() returns, gradients are
final, so that clipping, GradScaler, schedulers and loggers do what they do there."""
import contextlib
import operator
import sys

import torch

from .._library import Error, UsageError, check, read_number
from ..job import Job
from . import _private, moments
from .arguments import REPLICAS, read_arguments
from .buffers import Buffers
from .changes import Changes, warn_of_steps
from .metrics import Metrics
from .parts import Parts
from .ranks import default_comm
from .tensors import Tensors, list_ends, read_state, restore_state, view_floats

MANY_PASSES = 8  # without a step


class Parallel(torch.nn.Module):
    """module: on all ranks the same, on the CPU or on one GPU; every rank gets the parameters of rank 0.

    optimizers: all that update its parameters, with which gossip and localsgd begin and end their steps; dp skips the
    update of a step whose gradient is not finite. config: a YAML file; settings: keys of `python -m tacit info`, by short
    names or whole ones: strategy="gossip", topology="aer", codec="topk", optim__clip=1. comm: ranks of your own, else all
    of the program. steps: of the whole run, where they are known: gossip begins with half of them as dp.
    buffers, such as running means: "average": the mean over ranks, in average() and save(); "broadcast": those of rank 0,
    before every forward pass of a step, as in DDP; "own". metrics: a file, such as run/metrics.jsonl, to which rank 0 adds
    a row per step (docs/metrics.md), with what log() gets, but no events; progress: a line now and then.

    Collective, as are backward passes outside no_sync() and steps of the optimizers. Attributes, parameters and
    state_dict() are those of the module."""

    def __init__(self, module, *optimizers, config=None, comm=None, steps=0, buffers="average", metrics=None,
                 progress=False, **settings):
        super().__init__()
        if isinstance(module, Parallel):
            raise UsageError("this model is a tacit.Parallel already")
        self.settings = read_arguments(module, optimizers, config, comm, steps, buffers, settings)
        self._keeps_replica, is_shard = self.settings["strategy"] in REPLICAS, self.settings["strategy"] == "shard"
        self.comm = comm or default_comm(self.settings)
        self.module, self.optimizers, self._steps = module, optimizers, operator.index(steps)
        self._rank_buffers = Buffers(module, self.comm, buffers)
        self._tensors, self._job, self._parts = Tensors(module, stall_s=float(self.settings["comm.stall"])), None, None
        self._metrics = Metrics(progress, self.comm)
        self._changes = Changes(self._tensors, self.settings, self.comm.size, self._steps)
        try:
            self._open_job()
            self._job.start()
            self._parts = Parts(self._tensors, optimizers) if is_shard else None
            states = [optimizer.state_dict() for optimizer in optimizers] if is_shard else []
            self._take_parameters()
            self._rank_buffers.check_same(optimizers)
            self._metrics.open(metrics, self._rank_buffers)
            self._rank_buffers.send_frozen()
            self._rank_buffers.send_first()
            self._split_states(states)
            self._metrics.start(self._job.counters())
        except BaseException:
            self._give_back()
            raise
        self._sums_early = (self.settings["strategy"] == "dp" and float(self.settings["optim.clip"]) == 0 and
                            self.settings["exchange.overlap"] == "true")
        self._sync, self._queued, self._averaged = True, False, False
        self._skipped, self._waiting, self._unused_passes, self._applied = False, set(), 0, False
        self.last_step = None
        self._arrived, self._missing, self._all = [], set(), frozenset(range(len(self._tensors.names)))
        self._held = []  # (parameter, gradient): the library reads and writes these until a pass has ended
        self._fresh = ()  # parameters without a gradient when a pass began: ids
        self._indices, self._known_orders = {id(p): i for i, p in enumerate(self._tensors.parameters)}, {}
        self._known = {id(p) for p in module.parameters() if p.requires_grad}
        self._members = _private.Members(module)
        self._gradient_hooks, self._taken_hooks = [] if self._keeps_replica else self._hook_parameters(), []
        self._unscaled = {o: _private.set_unscaling(o, True) for o in optimizers if self._keeps_replica}
        for optimizer in optimizers:
            _private.restore_hooks(optimizer)
            self._taken_hooks.append(optimizer.register_step_pre_hook(self._before_update))
            self._taken_hooks.append(optimizer.register_step_post_hook(self._after_update))

    def _give_back(self):
        """Lets the module, of which no training has begun, be wrapped again."""
        self._metrics.close()
        self._tensors.release()
        if self._parts is not None:
            self._parts.release()
        if self._job is None:
            self._tensors.close()

    def _split_states(self, states):
        """Lets optimizers that have made steps go on from there with their parts."""
        for optimizer, whole in zip(self.optimizers, states):
            if whole["state"]:
                moments.load(self, optimizer, whole)

    def _open_job(self):
        self._job = Job(self.comm, self.settings, self._tensors.layout, arrays=self._tensors.flat,
                        parameters=self._tensors.flat.data_ptr(), steps=self._steps, threads=torch.get_num_threads(),
                        own_optimizer=True)
        self._job.on_shut = lambda: self._parts is not None and self._parts.leave_memory()

    def _take_parameters(self):
        """Takes what the job has written to the flat array."""
        self._folder = None  # that load() has read
        self._is_used = True  # the gradient of the last pass, by an optimizer
        self._tensors.pull()
        self._changes.begin(self._job.counters()["steps"])
        self._metrics.start(self._job.counters())
        if self._parts is not None:
            self._parts.bind(self._job)

    def _begin_anew(self, state=None):
        """Opens another job, which goes on from the state of one, or from the parameters of the flat array alone."""
        self._job.close()
        self._open_job()
        if state is None:
            self._job.start()
        else:
            restore_state(self._job, state)
        self._take_parameters()

    def _load(self, folder, blobs, read):
        """Sets blobs and returns read(), which may refuse what they hold; None where there is no checkpoint. A job loads before
        it starts: it is another one then, which goes on as the one before where it has not loaded."""
        self._check_step_can_begin()
        self._end_parts()
        if self._parts is None:  # else the flat array has more bits than a parameter of 16
            self._tensors.push()
        before = read_state(self._job)
        self._job.close()
        self._open_job()
        try:
            held = read() if self._job.load(folder, blobs) else None
        except Exception:
            with contextlib.suppress(Error):
                self._begin_anew(before)
            raise
        if held is None:
            restore_state(self._job, before)
        self._take_parameters()
        return held

    # ---- the model -----------------------------------------------------------------------------------------------------

    def forward(self, *inputs, **named):
        syncs = self._sync and torch.is_grad_enabled() and not self._averaged
        self._metrics.expects_step |= torch.is_grad_enabled()
        if syncs and self._queued and _private.is_in_backward():  # what a checkpoint around the model computes again
            return self.module(*inputs, **named)
        if syncs:
            self._check_step_can_begin()
            if not self._waiting:  # else a closure is called again, as by LBFGS
                self._changes.look_for_steps(self.counters)
            self._rank_buffers.before_forward(self.training)
        outputs = self.module(*inputs, **named)
        if syncs and not self._keeps_replica:
            for tensor in _private.list_tensors(outputs):
                if tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(self._begin_backward)
        return outputs

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __getstate__(self):
        raise UsageError("a tacit.Parallel can neither be copied nor pickled; what can is the model in it, model.module")

    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none)
        if self._parts is not None:
            self._parts.zero_grad(set_to_none)

    def state_dict(self, *args, **kwargs):
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        """Loads a state that is the same on all ranks. Collective under shard and strategies of replicas: their exchange
        begins again, for older parameters are under way, and steps count from 0 again."""
        if self._averaged:
            raise UsageError("parameters are the mean of the ranks here: leave model.average() before you load others")
        if self._job.handle:
            self._end_parts()
        found = self.module.load_state_dict(*args, **kwargs)
        if not self._job.handle:
            return found
        self._check_parameters()
        self._tensors.push()
        if self._keeps_replica or self._parts is not None:
            self._begin_anew()
        return found

    def named_parameters(self, *args, **kwargs):
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args, **kwargs):
        return self.module.named_buffers(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Lets backward passes in here add to the gradients of this rank, and nothing is sent."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    # ---- backward ------------------------------------------------------------------------------------------------------

    def _check_step_can_begin(self):
        self.comm.check_process()
        if not self._job.handle:
            raise UsageError("this tacit.Parallel is closed")
        if self._averaged:
            raise UsageError("parameters are the mean of the ranks here: leave model.average() before you train")
        if self._queued:
            raise UsageError("the last backward pass has ended with an exception, and a part of its gradients is under "
                             "way: end the program and go on from a checkpoint")

    def _check_parameters(self):
        """Refuses parameters that are not those that were wrapped, or are not where they were."""
        self._tensors.check_places()
        if self._members.are_unchanged():
            return
        for name, p in self.module.named_parameters():
            if p.requires_grad and id(p) not in self._known:
                raise UsageError(f"{name} was not trained when the model was wrapped (unfrozen since, replaced, or "
                                 "load_state_dict with assign=True?): close() the tacit.Parallel and wrap the model again")

    def _hook_parameters(self):
        """Returns a hook for each. They run for many parameters of every pass: mind the microseconds."""
        arrive = self._arrived.append

        def keep(p):
            if not self._queued:
                if not self._sync:
                    return
                self._begin_backward()
            arrive(p)

        def report(p):
            keep(p)
            self._report_arrived()

        ends = set(list_ends(self._tensors.parameters))
        return [p.register_post_accumulate_grad_hook(report if i in ends else keep)
                for i, p in enumerate(self._tensors.parameters)]

    def _report_arrived(self):
        """Reports many gradients in one call, which takes longer than what it does for a small one."""
        arrived = self._arrived.copy()
        self._arrived.clear()
        indices = self._find_indices(arrived)
        new = self._missing.intersection(indices)
        if len(new) < len(indices):
            twice = next(i for k, i in enumerate(indices) if i not in new or i in indices[:k])
            raise UsageError(f"{self._tensors.names[twice]} got its gradient twice in one backward pass; with activation "
                             "checkpointing use use_reentrant=False")
        self._missing.difference_update(new)  # -= would go through the __setattr__ of torch.nn.Module
        if self._fresh:
            self._part_gradients(arrived)
        dtypes, orders = self._tensors.dtypes, self._tensors.orders
        addresses = [
            g.data_ptr() if (g := p.grad) is not None and g.dtype is dtypes[i] and
            (g.is_contiguous() if orders[i] is None else g.stride() == orders[i])  # a sparse one is neither
            else self._find_gradient(i) for i, p in zip(indices, arrived)]
        self._held += [(p, p.grad) for p in arrived]
        self._report(indices, addresses)

    @torch.no_grad()
    def _part_gradients(self, arrived):
        """Sums arrive in gradients while backward runs: one that autograd has made in the memory of another moves."""
        for p in arrived:
            if id(p) in self._fresh and p.grad is not None and p.grad.layout == torch.strided and _private.shares_memory(p.grad):
                p.grad = p.grad.clone()

    def _find_indices(self, arrived):
        """Returns the numbers of parameters, which mostly arrive as they did in the pass before."""
        first = id(arrived[0]) if arrived else None
        before, indices = self._known_orders.get(first, ((), []))
        if len(before) != len(arrived) or not all(map(operator.is_, before, arrived)):
            indices = [self._indices[id(p)] for p in arrived]
            self._known_orders[first] = arrived, indices
        return indices

    def _find_gradient(self, i):
        gradient = self._arrange_gradient(i)
        if gradient is None:
            raise UsageError(f"{self._tensors.names[i]} lost its gradient before backward ended: a hook of yours has set it to "
                             "None; ranks exchange it until backward returns, so update and clear it afterwards")
        return gradient.data_ptr()

    def _report(self, indices, addresses):
        sources = self._tensors.sources
        sources.start(self._job, indices, addresses, 1 / self.comm.size)
        sources.deliver()

    @torch.no_grad()
    def _arrange_gradient(self, i):
        """Returns the gradient, whose order in memory becomes that of its parameter; None where there is none."""
        p, stride = self._tensors.parameters[i], self._tensors.views[i].stride()
        if p.grad is None:
            return None
        if p.grad.layout != torch.strided:
            raise UsageError(f"the gradient of {self._tensors.names[i]} is sparse; build the layer with sparse=False")
        if p.grad.stride() != stride or p.grad.dtype != p.dtype:
            p.grad = torch.empty_strided(p.size(), stride, dtype=p.dtype, device=p.device).copy_(p.grad)
        return p.grad

    def _begin_backward(self, *_):
        """Comes from the first hook of a pass that sends: of an output of forward(), or of a parameter where the module was
        called without it."""
        if self._queued or not self._sync:
            return
        self._check_step_can_begin()
        self._check_parameters()
        if self._parts is not None and 0 < len(self._waiting) < len(self.optimizers):
            raise UsageError("an optimizer has made its step and another one has not; under strategy shard all optimizers of "
                             "the model step once per step")
        if self._parts is not None:
            self._add_to_parts()
        self._queued, self._skipped, self.comm.busy = True, False, True
        self._missing = set(self._all)
        if self._parts is None and self.comm.size > 1:
            self._fresh = {id(p) for p in self._tensors.parameters if p.grad is None}
        _private.call_after_backward(self._end_backward)

    def _add_to_parts(self):
        """Lets a pass add to gradients that no update has used. Those that one has used are dropped: who has cleared the
        model's by hand has not cleared those of the parts."""
        if not self._waiting and self._applied:
            self._parts.warn_of_gradients()
            return
        skipped = self._skipped
        if self._waiting:
            self._unused_passes += 1
            if self._unused_passes == MANY_PASSES:
                warn_of_steps(f"{MANY_PASSES} backward passes")
            self._end_step(updated=False)  # this pass holds the parameters as they are
        self._parts.keep_gradients(skipped)

    def _end_backward(self):
        """Waits until gradients are final."""
        unused = self._make_rest_ready()
        self._settle()
        replaced = next((p for p, gradient in self._held if p.grad is not gradient), None)
        self._held.clear()
        if self._parts is not None:
            self._parts.show_gradients(self._skipped, set(unused))
            self._waiting, self._applied = {id(o) for o in self.optimizers}, False
        else:
            self._fill_unused(unused, self._share_use(unused))
            self._job.stepped()
            self._metrics.end_row(self.counters)
        self._queued = self.comm.busy = False
        self._is_used = self._skipped or not self.optimizers
        if replaced is not None:
            raise UsageError(f"{self._tensors.names[self._indices[id(replaced)]]} got another gradient, or None, before backward "
                             "ended: ranks exchange it until backward returns, so a hook may update and clear it afterwards")

    def _make_rest_ready(self):
        self._report_arrived()
        unused = sorted(self._missing)
        gradients = [self._arrange_gradient(i) for i in unused]  # of passes in no_sync(), if any
        self._held += [(self._tensors.parameters[i], g) for i, g in zip(unused, gradients)]
        self._report(unused, [0 if g is None else g.data_ptr() for g in gradients])
        return [i for i in unused if self._tensors.parameters[i].grad is None]

    def _settle(self):
        self._tensors.sources.receive(self._job, self._sums_early)
        self.last_step = self._job.settle()
        if self._parts is None:
            self._tensors.sources.send_back()
        else:
            self._tensors.sources.forget()
        if self._parts is not None and self._parts.spoiled:
            self.last_step.skipped = 1
        self._skipped = bool(self.last_step.skipped)
        self._metrics.begin_row(self.last_step)

    @torch.no_grad()
    def _share_use(self, unused):
        """Returns numbers of the tensors whose sum is zero that some rank has used. The same on all ranks, as sums are, so
        that each knows whether they meet here. Sums of few elements are looked at first."""
        if self.comm.size == 1 or self._skipped:
            return ()
        sums = self._gradients()
        maybe = (~sums[self._tensors.samples].bool().any(dim=1)).nonzero().flatten().tolist()
        zeros = [i for i in maybe if not bool(self._tensors.view_in(sums, i).any())]
        if not zeros:
            return ()
        used = torch.ones(len(self._all))
        used[unused] = 0
        used = self._rank_buffers.sum_long(used)
        return {i for i in zeros if used[i] > 0}

    @torch.no_grad()
    def _fill_unused(self, unused, used_by_others=()):
        """Gives unused parameters their sums. One that no rank has used keeps its gradient None."""
        for i in unused:
            total = self._tensors.view_in(self._gradients(), i)
            if i in used_by_others or bool(total.any()):
                p = self._tensors.parameters[i]
                p.grad = torch.empty_like(p).copy_(total)

    def _gradients(self):
        return view_floats(self._job.gradients, self._tensors.layout.floats)

    # ---- the update ----------------------------------------------------------------------------------------------------

    def _before_update(self, optimizer, arguments, named):
        """Takes the gradients. A closure has them later: what is done with them then follows it."""
        if self._parts is not None:
            self._parts.check_groups(optimizer)
        if named.get("closure") is not None:
            return arguments, {**named, "closure": self._follow(named["closure"], optimizer)}
        if len(arguments) > 1 and arguments[1] is not None:
            return (arguments[0], self._follow(arguments[1], optimizer), *arguments[2:]), named
        return self._take_gradients(optimizer)

    def _follow(self, closure, optimizer):
        """Returns the closure, which an optimizer may call several times."""
        calls = []

        def followed():
            loss = closure()
            if calls and self._keeps_replica:  # of the mixed parameters
                self._skipped = not all(p.grad is None or bool(p.grad.isfinite().all()) for p in self._tensors.parameters)
                self._drop_skipped()
            else:
                self._take_gradients(optimizer)
            calls.append(loss)
            return loss
        return followed

    def _take_gradients(self, optimizer):
        if self._parts is not None:
            self._parts.take_stand_ins(optimizer)
        if self._keeps_replica:
            self._unscale(optimizer)
            self._begin_replica_step(optimizer)
        elif self._parts is not None and id(optimizer) not in self._waiting:
            self._parts.check_no_gradients(optimizer)
        self._drop_skipped()

    def _unscale(self, optimizer):
        """Divides by the scale of a GradScaler. The step of the first of several optimizers exchanges the gradients of all,
        so that no scale may be left in any."""
        if _private.unscale(optimizer) and len(self.optimizers) > 1:
            raise UsageError(f"strategy {self.settings['strategy']} exchanges the gradients of all optimizers of the model at "
                             "the first one's step: call scaler.unscale_(optimizer) for each before scaler.step()")

    def _drop_skipped(self):
        """Drops gradients that are not finite, which are never applied."""
        if self._skipped:
            for p in self._tensors.parameters if self._parts is None else self._parts.list_parameters():
                p.grad = None

    def _begin_replica_step(self, optimizer):
        if not self._waiting:
            self._check_step_can_begin()
            self._check_parameters()
            self._changes.look_between_steps(self.counters)
            self._tensors.push()
            self._missing = set(self._all)
            self.comm.busy = True
            unused = self._make_rest_ready()
            self._settle()
            self._held.clear()
            self._fill_unused(unused)  # what others have used, in a step of dp
            self._tensors.pull()
            self._waiting = {id(o) for o in self.optimizers}
        if id(optimizer) not in self._waiting:
            raise UsageError("an optimizer makes its second step before another one has made its first; under strategy "
                             f"{self.settings['strategy']} all optimizers of the model step once per step")

    def _after_update(self, optimizer, *_):
        self._is_used = True
        if id(optimizer) not in self._waiting:
            return
        self._waiting.discard(id(optimizer))
        if not self._waiting:
            self._unused_passes = MANY_PASSES  # it is clear who steps: more passes accumulate
            self._applied = True  # by the optimizers, as far as gradients are finite
            self._end_step()

    def _end_step(self, updated=True):
        """Ends a step of replicas or parts; one of dp ends with its backward pass."""
        self._waiting = set()
        if self._parts is None:
            self._tensors.push()
        else:
            self._parts.end_step()
        self._job.stepped()
        self._metrics.end_row(self.counters)
        if updated:
            self._tensors.pull()
        self._changes.note()
        self._skipped, self._is_used, self.comm.busy = False, True, False

    def clip_grad_norm_(self, max_norm):
        """Scales the gradient so that its norm is at most max_norm, and returns the norm: of the whole batch, or, under
        gossip and localsgd, of this rank's. Under shard torch.nn.utils.clip_grad_norm_ cannot: no rank has it all.
        Collective under shard."""
        max_norm = read_number("max_norm", max_norm, "a number of 0 or more", 0)
        if self._parts is None:
            return torch.nn.utils.clip_grad_norm_(self._tensors.parameters, max_norm)
        norm = self._parts.norm(self._rank_buffers)
        self._parts.scale(min(1.0, float(max_norm / (norm + 1e-6))))
        return norm

    # ---- evaluation and the end ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def average(self):
        """Makes parameters and buffers the mean over ranks in here, for an evaluation; gives the consensus distance
        sqrt(1/N sum_i |x_i - mean|^2), 0 under dp. Between two steps: after backward() alone they lack its update. Collective."""
        self._check_step_can_begin()
        self._meet()
        if self._parts is None:  # else the flat array has more bits than a parameter of 16
            self._tensors.push()
        kept = [p.detach().clone() for _, p in self._tensors.copied]
        distance = self._job.average()
        self._tensors.pull()
        self._averaged = True
        hooks = []
        try:
            hooks += [p.register_post_accumulate_grad_hook(lambda _: self._check_step_can_begin())
                      for p in self._tensors.parameters if p.requires_grad]  # replicas and no_sync() have no other hook
            with self._rank_buffers.averaged():
                yield distance
        finally:
            self._averaged = False
            for hook in hooks:
                hook.remove()
            self._job.revert()
            for (_, p), own in zip(self._tensors.copied, kept):
                p.data.copy_(own)
            self._changes.note()

    def _end_parts(self):
        """Ends a step whose update was left out, before what comes between steps."""
        if self._parts is not None and self._waiting:
            self._drop_skipped()
            self._end_step()

    def _meet(self):
        """Lets ranks meet before they do together what comes between steps."""
        self._end_parts()
        self._changes.look_for_steps(self.counters)
        self._changes.look_between_steps(self.counters)
        self._rank_buffers.check_steps(self.counters()["steps"])

    def log(self, **values):
        """Adds values, such as loss=..., to the metrics of the step that is under way, on rank 0. Names of the row's own keys
        are refused."""
        self._metrics.add(**values)

    def counters(self):
        """Returns steps, bytes and seconds of waiting, as tacit_counters names them."""
        return self._job.counters()

    def close(self):
        """Makes the model and its optimizers ordinary ones again. Collective, unless a peer has failed. Under shard the state
        of the optimizers is lost after a failure, or while an exception is handled."""
        try:
            if self._keeps_replica and self._job.handle and not self.comm.busy and sys.exc_info()[0] is None:
                self._rank_buffers.check_steps(self.counters()["steps"])  # ranks may not have met before
        finally:
            self._close()

    def _close(self):
        for hook in self._gradient_hooks + self._taken_hooks:
            hook.remove()
        self._gradient_hooks, self._taken_hooks = [], []
        self._metrics.close()
        for optimizer, before in self._unscaled.items():
            _private.set_unscaling(optimizer, before)
        status = self._close_parts() if self._parts is not None else self._job.shut()
        self._tensors.release()
        check(min(self._rank_buffers.shut(), status))
        self._tensors.close()

    def _close_parts(self):
        """Gives the optimizers the whole parameters and their state back, and returns the status of the job. While an
        exception is handled, other ranks may be elsewhere: then this one does not wait for them."""
        is_alone = self._queued or not self._job.handle or sys.exc_info()[0] is not None
        states = moments.join_all(self, is_alone)
        self._parts.release()
        self._parts = None
        for optimizer, state in states.items():
            moments.restore(optimizer, state)
        return self._job.shut()

# SPDX-License-Identifier: Apache-2.0
"""What the examples of this folder share: flags, data, the loop and its clock, and the method that --with names.

train() is the loop of every method: what tacit adds to it is the line with tacit.Parallel. Fair to all: batch norm's means
stay a rank's own while it trains; threads are the host's cores, shared by its ranks; the first --warm-up steps do not
count, and neither does what --evaluate takes. Rank 0 says on standard error how far it is, and after the last step prints
one line of JSON; the file of --json gets it with the seconds of all steps."""
import argparse
import contextlib
import functools
import inspect
import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

METHODS = ("ddp", "ddp-fp16", "ddp-powersgd", "fsdp", "decent-dp", "tacit")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def integer_from(least):
    def read(text):
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: an integer of {least} or more is expected")
        return int(text)
    return read


def check_pair(text):
    """Returns the text, which is to be KEY=VALUE."""
    key, equals, _ = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: KEY=VALUE is expected, such as codec=auto")
    return text


def check_pairs(text):
    return ",".join(check_pair(part) for part in text.split(","))


def read_flags(about, sizes, batch, lr):
    """The flags of an example. about: its docstring; sizes: the names of --size; batch, lr: defaults."""
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", choices=sizes, default="small", help="paper: the widths of the paper (default: small)")
    p.add_argument("--steps", type=integer_from(1), metavar="N", default=100)
    p.add_argument("--warm-up", type=integer_from(0), default=5, metavar="N", help="first steps that the times leave out (default: 5)")
    p.add_argument("--batch", type=integer_from(1), metavar="N", default=batch,
                   help=f"samples per rank and step (default: {batch})")
    p.add_argument("--lr", type=float, default=lr)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--data", metavar="FILE", default=str(ROOT / "LICENSE"), help="a text (default: the licence of tacit)")
    p.add_argument("--evaluate", type=integer_from(0), default=0, metavar="N", help="loss on a quarter of the held-out samples after "
                   "every N steps, as \"curve\": [step, seconds of training, loss]")
    p.add_argument("--optimizer", choices=("adamw", "accum-adam"), default="adamw", help="accum-adam: that of decent-dp")
    p.add_argument("--json", metavar="FILE", help="the results are appended there, with the seconds of all steps")
    p.add_argument("--device", choices=("cpu", "cuda"), help="ranks of a host share its GPUs (default: cuda where there is one)")
    p.add_argument("--emulate", type=float, metavar="MS", help="replay an accelerator that needs so long for forward and "
                   "backward pass instead of computing: real gradients' bytes, arbitrary values")
    p.add_argument("--with", dest="method", choices=METHODS, default="tacit")
    p.add_argument("--hook", type=check_pairs, metavar="KEY=VALUE,...",
                   help="with ddp and fsdp: tacit's compressed sums, such as codec=auto")
    p.add_argument("--topology", help="tacit with --strategy gossip, and decent-dp: who mixes with whom")
    for name, example in (("strategy", "dp, gossip, localsgd or shard"), ("codec", "auto, int4, topk ..."),
                          ("factor", "elements per element that is sent")):
        p.add_argument("--" + name, help="with tacit: " + example)
    p.add_argument("--set", type=check_pair, metavar="KEY=VALUE", action="append", default=[],
                   help="with tacit: any other setting of it")
    flags = p.parse_args()
    for given, methods in ((flags.hook, ("ddp", "fsdp")), (flags.topology, ("tacit", "decent-dp")),
                           (flags.strategy or flags.codec or flags.factor or flags.set, ("tacit",))):
        if given and flags.method not in methods:
            p.error(f"{given if isinstance(given, str) else ' '.join(given)}: only --with {' or '.join(methods)} takes it")
    if flags.steps <= flags.warm_up:
        flags.warm_up = 0
    if flags.emulate and flags.device == "cuda":
        p.error("--emulate replays an accelerator on the CPU: leave out --device cuda")
    flags.device = choose_device("cpu" if flags.emulate else flags.device)
    torch.manual_seed(flags.seed)
    return flags


# ---- ranks ---------------------------------------------------------------------------------------------------------------


def find(*names, default):
    """The first of these environment variables, as a number: those of torchrun, Open MPI, MPICH."""
    return next((int(os.environ[n]) for n in names if n in os.environ), default)


RANK = find("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", default=0)
RANKS = find("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", default=1)


def choose_device(kind):
    """The GPUs of a host are dealt to its ranks in turns."""
    has_gpu = torch.cuda.is_available()
    if kind == "cuda" and not has_gpu:
        sys.exit("--device cuda: torch finds no GPU; nvidia-smi says what the driver finds")
    if kind == "cpu" or not has_gpu:
        return torch.device("cpu")
    local = find("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", default=0)
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def move(batch, device):
    return batch.to(device) if torch.is_tensor(batch) else tuple(part.to(device) for part in batch)


def share_cores():
    """PyTorch takes all cores in every process; ranks of one host share them."""
    ranks = find("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", default=1)
    if "OMP_NUM_THREADS" not in os.environ or RANKS == 1:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))


def join_gloo(method):
    """torch.distributed, for the methods that need it."""
    if RANKS == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    elif "MASTER_ADDR" in os.environ:
        dist.init_process_group("gloo")
    else:
        sys.exit(f"--with {method} needs torchrun: torchrun --nproc-per-node {RANKS} {' '.join(sys.argv)}")


# ---- methods -------------------------------------------------------------------------------------------------------------


class Method:
    """model: to be called; optimizer: None where the backward pass updates, too; mean(): a context in which the parameters
    are the mean over ranks; counters(): those of tacit, if it counts."""

    def __init__(self, model, optimizer, mean=contextlib.nullcontext, counters=dict):
        self.model, self.optimizer, self.mean, self.counters = model, optimizer, mean, counters


def with_tacit(flags, model, make_optimizer):
    import tacit.torch as tacit
    settings = dict(pair.split("=", 1) for pair in flags.set)
    settings.update({k: getattr(flags, k) for k in ("strategy", "topology", "codec", "factor") if getattr(flags, k)})
    optimizer = make_optimizer(model.parameters())
    model = tacit.Parallel(model, optimizer, steps=flags.steps, **settings)
    return Method(model, optimizer, model.average, model.counters)


def with_ddp(flags, model, make_optimizer):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    join_gloo(flags.method)
    names = inspect.signature(DistributedDataParallel).parameters
    keep_buffers = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
    options = {keep_buffers: False}
    if flags.method == "ddp-powersgd":
        # Its collectives of several buckets begin on threads of gloo's, in another order on each rank: they hang, or sizes differ.
        options["bucket_cap_mb"] = 1 << 12
    ddp = DistributedDataParallel(model, **options)
    if flags.method == "ddp-fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if flags.method == "ddp-powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    counters = dict
    if flags.hook:
        import tacit.torch as tacit
        state, function = tacit.hook(ddp, **dict(pair.split("=", 1) for pair in flags.hook.split(",")))
        ddp.register_comm_hook(state, function)
        counters = state.counters
    return Method(ddp, make_optimizer(ddp.parameters()), counters=counters)


def with_fsdp(flags, model, make_optimizer):
    """FSDP2: a unit for each part of a ModuleList or Sequential that has parameters, and one for the rest."""
    from torch.distributed.fsdp import fully_shard
    join_gloo(flags.method)
    mesh = dist.init_device_mesh(flags.device.type, (RANKS,))
    for unit in list_units(model):
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if flags.hook:
        import tacit.torch as tacit
        tacit.fsdp(model, **dict(pair.split("=", 1) for pair in flags.hook.split(",")))
    return Method(model, make_optimizer(model.parameters()))


def list_units(model):
    for child in model.children():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
            yield from (part for part in child if next(part.parameters(), None) is not None)
        else:
            yield from list_units(child)


def with_decent_dp(flags, model, make_optimizer):
    try:
        from decent_dp.ddp import DecentralizedDataParallel
    except ImportError:
        sys.exit("--with decent-dp needs its package: pip install decent-dp==0.2.3")
    join_gloo(flags.method)
    model = DecentralizedDataParallel(model, lambda named: make_optimizer([p for _, p in named]),
                                      topology=flags.topology or "complete")

    @contextlib.contextmanager
    def mean():
        model.global_avg()
        yield
        model.revert_global_avg()
    return Method(model, None, mean)


def choose(flags, model, make_optimizer):
    functions = {"tacit": with_tacit, "fsdp": with_fsdp, "decent-dp": with_decent_dp}
    return functions.get(flags.method, with_ddp)(flags, model, make_optimizer)


# ---- the loop ------------------------------------------------------------------------------------------------------------


def train(flags, model, data, loss_of):
    """loss_of(model, batch), where batch is one of data.draw(count, generator); data.held has the batches of the end."""
    share_cores()
    parameters = sum(p.numel() for p in model.parameters())
    make_optimizer = functools.partial(find_optimizer(flags), lr=flags.lr)
    if flags.emulate:
        torch.set_num_threads(1)
        from accelerator import Accelerator, NoUpdate
        model, make_optimizer = Accelerator(model, data, loss_of, flags), NoUpdate
        loss_of = Accelerator.loss_of
    method, held = choose(flags, model.to(flags.device), make_optimizer), [move(batch, flags.device) for batch in data.held]
    generator = torch.Generator().manual_seed(1000 * flags.seed + RANK)  # every rank draws samples of its own
    losses, curve, clock, said = [], [], Clock(flags, method.counters), time.perf_counter()
    for step in range(flags.steps):
        batch = move(data.draw(flags.batch, generator), flags.device)
        clock.begin(step)
        loss = loss_of(method.model, batch)
        loss.backward()
        if method.optimizer:
            method.optimizer.step()
            method.optimizer.zero_grad()
        clock.end()
        losses.append(loss.item())
        if RANK == 0 and (step in (0, flags.steps - 1) or time.perf_counter() - said > 5):
            said = time.perf_counter()
            print(f"step {step + 1} of {flags.steps}: loss {losses[-1]:.4f}, {clock.seconds[-1]:.2f} s", file=sys.stderr, flush=True)
        if flags.evaluate and (step + 1) % flags.evaluate == 0:
            with clock.stopped() as seconds:
                curve.append((step + 1, seconds, evaluate(method, held[::4], loss_of)))
    result = dict(example=pathlib.Path(sys.argv[0]).stem, words=sys.argv[1:], ranks=RANKS, device=flags.device.type, parameters=parameters,
                  data=data.name, first_loss=losses[0], loss=statistics.mean(losses[-10:]), curve=curve, **clock.summary())
    if counters := method.counters():
        result["counters"] = counters
    if not flags.emulate:
        result["held_loss"] = evaluate(method, held, loss_of)
        if hasattr(data, "right"):
            result["held_accuracy"] = evaluate(method, held, data.right)
    report(flags, result)
    if dist.is_initialized():
        dist.destroy_process_group()


def find_optimizer(flags):
    if flags.optimizer == "adamw":
        return torch.optim.AdamW
    try:
        from decent_dp.optim import AccumAdam
    except ImportError:
        sys.exit("--optimizer accum-adam needs its package: pip install decent-dp==0.2.3")
    return AccumAdam


@torch.no_grad()
def evaluate(method, batches, score):
    """The mean of score(model, batch). All ranks evaluate all batches, so that they begin the next step together."""
    with method.mean():
        method.model.eval()
        found = statistics.mean(score(method.model, batch).item() for batch in batches)
        method.model.train()
    return found


def report(flags, result):
    if RANK == 0:
        print(json.dumps({key: value for key, value in result.items() if key != "steps_s"}))
        if flags.json:
            with open(flags.json, "a") as file:
                file.write(json.dumps(result) + "\n")


class Clock:
    """Seconds of steps, of the processor, bytes that left this host by the interface that gloo uses, and those of tacit's."""

    def __init__(self, flags, counters):
        self.warm_up, self.on_gpu, self.seconds, self.counters = flags.warm_up, flags.device.type == "cuda", [], counters
        self.interface = os.environ.get("GLOO_SOCKET_IFNAME")

    def begin(self, step):
        if step == 0:
            self.zero = time.perf_counter()
        if step in (0, self.warm_up):
            self.start = self.read()
        self.start_of_step = time.perf_counter()

    def end(self):
        if self.on_gpu:
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.start_of_step)

    @contextlib.contextmanager
    def stopped(self):
        """Nothing in here counts. Gives the seconds since the first step."""
        before = self.read()
        yield before[0] - self.zero
        passed = subtract(self.read(), before)
        self.zero += passed[0]
        self.start = [a if a is None else a + p for a, p in zip(self.start, passed)]

    def read(self):
        return time.perf_counter(), time.process_time(), self.read_bytes(), self.counters().get("bytes_sent")

    def read_bytes(self):
        for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
            name, _, counts = line.partition(":")
            if name.strip() == self.interface:
                return int(counts.split()[8])
        return None

    def summary(self):
        """Means over the steps that count: those of gossip differ in their rounds."""
        steps = len(self.seconds) - self.warm_up
        means = [a if a is None else a / steps for a in subtract(self.read(), self.start)]
        return dict(zip(("step_s", "cpu_s", "sent_bytes", "payload_bytes"), means), steps_s=self.seconds)


def subtract(now, before):
    return [a if a is None else a - b for a, b in zip(now, before)]


# ---- data ----------------------------------------------------------------------------------------------------------------


class Text:
    """Bytes of a file; of each sample's `length` + 1 bytes a model predicts the later ones. The last tenth is held out."""

    def __init__(self, flags, length):
        text = torch.tensor(list(pathlib.Path(flags.data).read_bytes()[:4_000_000]))
        if len(text) < 10 * (length + 1):
            sys.exit(f"{flags.data} has {len(text)} bytes; --data FILE wants {10 * (length + 1)} or more")
        cut = len(text) * 9 // 10
        self.text, self.length = text[:cut], length
        windows = text[cut:].unfold(0, length + 1, length + 1)[:64]
        self.held = windows.split(max(flags.batch, 16))
        self.name = pathlib.Path(flags.data).name

    def draw(self, count, generator):
        starts = torch.randint(len(self.text) - self.length, (count,), generator=generator)
        return torch.stack([self.text[s:s + self.length + 1] for s in starts])


class Images:
    """Handwritten digits if scikit-learn is installed, else ten patterns in noise; `side` x `side`, of three colours."""

    def __init__(self, flags, side):
        try:
            from sklearn.datasets import load_digits
            digits, self.name = load_digits(), "digits"
            images, labels = torch.tensor(digits.images).float() / 8 - 1, torch.tensor(digits.target)
        except ImportError:
            g, self.name = torch.Generator().manual_seed(0), "patterns"
            labels = torch.arange(2000) % 10
            images = torch.randn(10, 8, 8, generator=g)[labels] + torch.randn(2000, 8, 8, generator=g)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        self.images, self.labels, self.side = images[order], labels[order], side
        self.cut = len(labels) * 9 // 10
        held = torch.arange(self.cut, min(len(labels), self.cut + 128))
        self.held = [self.enlarge(part) for part in held.split(max(flags.batch, 16))]

    def enlarge(self, which):
        images = self.images[which][:, None]
        return torch.nn.functional.interpolate(images, self.side).expand(-1, 3, -1, -1), self.labels[which]

    def draw(self, count, generator):
        return self.enlarge(torch.randint(self.cut, (count,), generator=generator))

    @staticmethod
    def right(model, batch):
        """The share of images that the model names."""
        images, labels = batch
        return (model(images).argmax(1) == labels).float().mean()

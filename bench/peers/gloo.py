#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's gloo all-reduce, measured as `tacit bench collectives` measures: every sample behind a barrier, as long as its
slowest rank, its result checked. One process per rank, started by a launcher that sets the variables of Open MPI:

    lab/cluster run -n 8 --per-host 2 -- /usr/bin/python3 bench/peers/gloo.py --bytes 64MB --rounds 5

Rank 0 prints one JSON object with the members of tacit's. MASTER_ADDR and GLOO_SOCKET_IFNAME may be set; else the
rendezvous is at the first host of a lab cluster (NAME-n0), or at this machine when all ranks are on it.
"""
import argparse
import datetime
import json
import os
import re
import socket
import statistics
import sys
import time

SAMPLE_SECONDS = 0.05  # calls are repeated until a sample takes about that long
MOST_CALLS = 10000
PHASES = 4  # contributions are 0 .. PHASES - 1, so that sums are exact in any order
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_bytes(text):
    match = re.fullmatch(r"(\d+) *([KMG]i?B|B|)", text)
    if match is None or int(match[1]) * UNITS[match[2]] % 4 != 0 or int(match[1]) == 0:
        raise argparse.ArgumentTypeError("%r is not a size in multiples of 4 bytes, like 64MB or 1KiB" % text)
    return int(match[1]) * UNITS[match[2]]


def parse_arguments():
    parser = argparse.ArgumentParser(description="PyTorch's gloo all-reduce under a launcher")
    parser.add_argument("--bytes", default="8,1KiB,64KiB,1MiB,64MiB", help="sizes of the f32 array")
    parser.add_argument("--rounds", type=int, default=7, help="samples per size")
    arguments = parser.parse_args()
    arguments.sizes = [parse_bytes(item) for item in arguments.bytes.split(",")]
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    return arguments


def launched(name):
    value = os.environ.get("OMPI_COMM_WORLD_" + name)
    if value is None:
        sys.exit("gloo.py: start it with a launcher: mpirun -n 4 /usr/bin/python3 bench/peers/gloo.py")
    return int(value)


def set_rendezvous():
    """Where rank 0 listens, and the interface that carries the data."""
    several_hosts = launched("LOCAL_SIZE") != launched("SIZE")
    of_lab = re.fullmatch(r"(.+)-n\d+", socket.gethostname())
    if "MASTER_ADDR" not in os.environ:
        if of_lab is None and several_hosts:
            sys.exit("gloo.py: set MASTER_ADDR to the address of rank 0's host")
        os.environ["MASTER_ADDR"] = socket.gethostbyname(of_lab[1] + "-n0") if of_lab else "127.0.0.1"
    os.environ.setdefault("MASTER_PORT", "29417")
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        interfaces = [name for _, name in socket.if_nameindex()]
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0" if several_hosts or (of_lab and "eth0" in interfaces) else "lo"


def contribution(rank):
    return [float((i + rank) % PHASES) for i in range(PHASES)]


class Bench:
    """One size. Numbers repeat after PHASES elements, so the array is the only large thing a process holds."""

    def __init__(self, torch, dist, n):
        self.torch, self.dist, self.n = torch, dist, n
        ranks = range(dist.get_world_size())
        self.mine = torch.tensor(contribution(dist.get_rank()))
        self.expected = torch.tensor([sum(column) for column in zip(*map(contribution, ranks))])
        self.x = torch.empty(n)
        whole = n // PHASES * PHASES
        self.rows, self.rest = self.x[:whole].view(-1, PHASES), self.x[whole:]

    def fill(self):
        self.rows.copy_(self.mine)
        self.rest.copy_(self.mine[: len(self.rest)])

    def is_right(self):
        equal = self.torch.equal(self.rest, self.expected[: len(self.rest)])
        return equal and bool((self.rows == self.expected).all())

    def slowest(self, seconds, right):
        values = self.torch.tensor([seconds, 0.0 if right else 1.0], dtype=self.torch.float64)
        self.dist.all_reduce(values, op=self.dist.ReduceOp.MAX)
        if values[1] > 0:
            sys.exit("gloo.py: rank %d: the result of %d bytes is wrong" % (self.dist.get_rank(), 4 * self.n))
        return float(values[0])

    def calls(self, count):
        self.dist.barrier()
        begin = time.monotonic()
        for _ in range(count):
            self.dist.all_reduce(self.x)
        return time.monotonic() - begin

    def checked_call(self):
        self.fill()
        seconds = self.calls(1)
        return self.slowest(seconds, self.is_right())

    def sample(self, count):
        seconds = self.checked_call()
        if count == 1:
            return seconds
        self.x.zero_()
        return self.slowest(self.calls(count) / count, True)

    def measure(self, rounds):
        for _ in range(3):  # the first calls open connections
            seconds = self.checked_call()
            if seconds >= SAMPLE_SECONDS:
                break
        count = min(MOST_CALLS, int(-(-SAMPLE_SECONDS // seconds)))
        samples = [self.sample(count) for _ in range(rounds)]
        return count, samples


def main():
    arguments = parse_arguments()
    rank, size = launched("RANK"), launched("SIZE")
    set_rendezvous()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=datetime.timedelta(minutes=10))
    hosts = torch.tensor([1.0 if launched("LOCAL_RANK") == 0 else 0.0])
    dist.all_reduce(hosts)
    sides = int(hosts) if hosts > 1 else size
    answer = {"program": "gloo", "library": "PyTorch %s" % torch.__version__, "op": "all-reduce", "wire": "f32",
              "ranks": size, "hosts": int(hosts), "bus_sides": sides, "rounds": arguments.rounds, "sizes": []}
    for size_bytes in arguments.sizes:
        count, samples = Bench(torch, dist, size_bytes // 4).measure(arguments.rounds)
        median = statistics.median(samples)
        figure = {"by": "gloo", "seconds": {"median": median, "least": min(samples), "most": max(samples)},
                  "calls": count, "bus_bps": 2 * (sides - 1) / sides * 8 * size_bytes / median, "samples_s": samples}
        answer["sizes"].append({"bytes": size_bytes, "figures": [figure]})
    if rank == 0:
        print(json.dumps(answer))
    dist.barrier()  # rank 0 holds the store the others still talk to


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The work of tests/same-bits.sh; see there."""
import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading

RANKS = (1, 2, 3, 5, 8)
LIMIT_S = 300
BROKEN = "broken:"  # a launch that neither ran well nor was refused

# A width that is no multiple of 16, and fewer samples than some numbers of ranks.
TRAIN = """--model.preset nano --model.heads 1 --model.channels 41 --model.dtype f32 --train.threads 1 --train.batch 7 --train.seed 3
    --train.steps 6 --train.eval_every 3 --train.eval_windows 3 --train.save_early 0 --train.save_every 3 --train.keep 9
    --optim.warmup 4 --optim.lr 5e-3 --run.tensorboard false --exchange.bucket 64KiB""".split()

# name: (numbers of ranks, flags and variables)
RUNS = {
    "dp": (RANKS, ""),
    "dp-flat": (RANKS, "--exchange.scheme flat"),
    "dp-blocking": ((3,), "--exchange.overlap false"),
    "dp-bf16": ((2, 5), "--exchange.wire bf16 --model.dtype bf16"),
    "dp-accum": ((3,), "--optim.name accum-adamw --optim.accum 2"),
    "dp-nan": ((3,), "TACIT_FAIL_AT=3 --compress.codec topk"),
    "dp-topk": (RANKS, "--compress.codec topk --compress.factor 5 --compress.start 2"),
    "dp-int4": (RANKS, "--compress.codec int4"),
    "dp-momentum": ((2, 5), "--compress.codec onebit --compress.what momentum --optim.freeze 2"),
    "dp-decay": ((3,), "--compress.codec topk --compress.feedback 0.9 --compress.scope bucket"),
    "gravac": ((2, 5), "--compress.codec topk --adapt.policy gravac --gravac.window 2"),
    "accordion": ((3,), "--compress.codec topk --adapt.policy accordion --accordion.every 2"),
    "gossip": (RANKS, "--strategy gossip"),
    "gossip-awc": (RANKS, "--strategy gossip --gossip.order awc"),
    "gossip-atc": (RANKS, "--strategy gossip --gossip.order atc --gossip.topology aer"),
    "gossip-delay": ((3, 8), "--strategy gossip --gossip.order awc --gossip.delay 1 --gossip.gamma 0.5"),
    "gossip-ring": ((5,), "--strategy gossip --gossip.topology ring --gossip.every 2 --exchange.wire bf16"),
    "localsgd": (RANKS, "--strategy localsgd --localsgd.every 2"),
    "localsgd-int4": ((3, 8), "--strategy localsgd --localsgd.every 2 --compress.codec int4"),
    "localsgd-sparseloco": ((3,), "--strategy localsgd --localsgd.every 2 --compress.codec sparseloco"),
    "shard-1": ((2, 3), "--strategy shard --shard.stage 1"),
    "shard-2": ((2, 3), "--strategy shard --shard.stage 2"),
    "shard-3": (RANKS, "--strategy shard"),
    "shard-bf16": ((3,), "--strategy shard --shard.gather bf16 --exchange.wire bf16 --model.dtype bf16"),
    "shard-topk": ((2, 5), "--strategy shard --shard.stage 1 --compress.codec topk --compress.gather topk"),
    "shard-int4": (RANKS, "--strategy shard --compress.codec int4 --compress.gather int8"),
    "shard-sketch": ((3, 5), "--strategy shard --compress.codec sketch --compress.warmup 0"),
    "shard-tagc": ((3,), "--strategy shard --compress.codec tagc"),
}
CODEC_RANKS = (1, 3)
BY_TIME = ("mixed4", "mixed8")  # a controller drives them by measured time
RESUMED = (("dp", 3, 2), ("dp-topk", 3, 3), ("dp-topk", 5, 2), ("gossip-awc", 3, 3), ("localsgd-int4", 3, 3), ("shard-3", 3, 5),
           ("shard-int4", 3, 3), ("gravac", 5, 5))
PLANS = {"": "", "-topk": "--compress.codec topk --compress.factor 20", "-shard": "--strategy shard --compress.codec int4 --compress.gather int8",
         "-cv": "--compute.cv 0.1"}
TOPICS = ("codecs", "controllers", "strategies", "topologies", "presets", "profiles", "options")

# What two runs of one program do not share: times, rates, who was slowest, bytes with the heartbeats among them, memory.
MEASURED = re.compile(r"(^|_)(s|time|seconds)$|^mfu$|^slowest_rank$|^(peak|predicted)_bytes$|^bytes_(sent|received)$|gravac_state")


def without_times(line):
    return {k: v for k, v in json.loads(line).items() if not MEASURED.search(k)}


def tensor_digests(run):
    """{checkpoint/tensor: digest}; where a rank wrote it does not count."""
    out = {}
    for path in sorted(glob.glob(os.path.join(run, "ckpt", "step_*", "*.safetensors"))):
        with open(path, "rb") as file:
            data = file.read()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        for name, tensor in json.loads(data[8:begin]).items():
            if name == "__metadata__" or MEASURED.search(name):
                continue
            first, end = tensor["data_offsets"]
            key = "%s/%s" % (os.path.basename(os.path.dirname(path)), name)
            out[key] = hashlib.sha256(data[begin + first:begin + end]).hexdigest()[:16]
    return out


class Program:
    def __init__(self, path, rename, work):
        self.path = os.path.join(path, "bin", "tacit") if os.path.isdir(path) else path
        if not os.access(self.path, os.X_OK):
            sys.exit("same-bits: there is no program %s; build it: cmake --preset release && cmake --build build/release" % self.path)
        self.path, self.rename = os.path.abspath(self.path), rename
        self.answers = os.path.join(work, self.digest())
        os.makedirs(self.answers, exist_ok=True)

    def digest(self):
        """Of the program and of its plugins, which hold the engine over MPI."""
        found = hashlib.sha256(repr(self.rename).encode())
        plugins = os.path.join(os.path.dirname(os.path.realpath(self.path)), "../lib/libtacit-mpi-*.so")
        for path in (self.path, *sorted(glob.glob(plugins))):
            with open(path, "rb") as file:
                found.update(hashlib.sha256(file.read()).digest())
        return found.hexdigest()[:16]

    def run(self, command, ranks=0):
        environment = dict(word.split("=", 1) for word in command if re.match(r"TACIT_\w+=", word))
        command = [word for word in command if not re.match(r"TACIT_\w+=", word)]
        words = [self.rename.get(word[2:], word[2:]).join(("--", "")) if word.startswith("--") else word for word in command]
        launcher = [os.environ["MPIRUN"], "-n", str(ranks)] if ranks else []
        try:
            run = subprocess.run(launcher + [self.path] + words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
                                 env={**os.environ, **environment})
        except subprocess.TimeoutExpired:
            return None, BROKEN + " did not end within %d s" % LIMIT_S
        if run.returncode == 0:
            return run.stdout, None
        if run.returncode < 0 or run.returncode > 7:
            return None, BROKEN + " ended with status %d" % run.returncode
        lines = [line for line in run.stderr.split("\n") if line.startswith("tacit")] or run.stderr.split("\n")
        return None, lines[0]

    def answer(self, name, case):
        """What the program says to the case; kept for the same program and case."""
        key = hashlib.sha256(repr(case).encode()).hexdigest()[:8]
        path = os.path.join(self.answers, "%s-%s.json" % (name.replace("/", "_"), key))
        if os.path.exists(path):
            with open(path) as file:
                return json.load(file)
        answer = case.ask(self)
        if answer.get("refused", "").startswith(BROKEN):
            return answer  # another launch may end better
        part = "%s.%d-%d" % (path, os.getpid(), threading.get_ident())  # others may ask the same program
        with open(part, "w") as file:
            json.dump(answer, file)
        os.replace(part, path)
        return answer


class Print:
    """A command whose output counts."""

    def __init__(self, command):
        self.command = command

    def __repr__(self):
        return " ".join(self.command)

    def ask(self, program):
        output, refusal = program.run(self.command)
        if refusal is not None:
            return {"refused": refusal}
        return {"values": {"/".join(map(str, key)): value for key, value in leaves(json.loads(output))}}


def leaves(value, key=()):
    """(path, value) of every number and text. Rows of a list that have a key, a name or a label go by it."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from leaves(v, key + (k,))
    elif isinstance(value, list):
        for i, v in enumerate(value):
            name = v.get("key", v.get("name", v.get("label", i))) if isinstance(v, dict) else i
            yield from leaves(v, key + (name,))
    else:
        yield key, value


class Train:
    """A run, which may go on from a checkpoint on other ranks."""

    def __init__(self, flags, ranks, resumed_by=None):
        self.flags, self.ranks, self.resumed_by = flags.split(), ranks, resumed_by

    def __repr__(self):
        return "%d on a text of its own: %s %s" % (self.ranks, " ".join(TRAIN + self.flags), self.resumed_by or "")

    def ask(self, program):
        folder = tempfile.mkdtemp(prefix="same-bits-")
        try:
            with open(os.path.join(folder, "text"), "w") as file:  # the built-in one changes with the documentation
                file.write("\n".join(hashlib.sha256(b"%d" % i).hexdigest() for i in range(1000)))
            return self.ask_in(program, os.path.join(folder, "run"), os.path.join(folder, "text"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def ask_in(self, program, run, text):
        command = ["train"] + TRAIN + ["--data.train", text, "--run.dir", run] + self.flags
        refusal = program.run(command, self.ranks)[1]
        if refusal is None and self.resumed_by:
            shutil.rmtree(os.path.join(run, "ckpt", "step_00000006"))
            refusal = program.run(command + ["--resume"], self.resumed_by)[1]
        if refusal is not None:
            return {"refused": refusal}
        with open(os.path.join(run, "metrics.jsonl")) as file:
            lines = [without_times(line) for line in file]
        values = {"line %d %s" % (i + 1, k): v for i, line in enumerate(lines) for k, v in line.items()}
        values.update(tensor_digests(run))
        return {"values": values}


def cases_of(codecs):
    cases = {}
    for name, (ranks, flags) in RUNS.items():
        for n in ranks:
            cases["train/%s/%d" % (name, n)] = Train(flags, n)
    for codec in codecs:
        for n in CODEC_RANKS:
            cases["codec/%s/%d" % (codec, n)] = Train("--compress.codec " + codec, n)
    for name, n, by in RESUMED:
        cases["resume/%s/%d-%d" % (name, n, by)] = Train(RUNS[name][1], n, by)
    for path in sorted(glob.glob("examples/clusters/*.json")):
        for name, flags in PLANS.items():
            cluster = os.path.basename(path)[:-len(".json")]
            cases["plan/%s%s" % (cluster, name)] = Print(["plan", "examples/gpt2-124m.yaml", "--cluster", path, "--json"] + flags.split())
    for topic in TOPICS:
        cases["info/" + topic] = Print(["info", topic, "--json"])
    return cases


def compare(old, new):
    """None: the same. Else what differs, in a line."""
    if "refused" in old or "refused" in new:
        if old == new:
            return None
        words = ["%s: %s" % (who, answer.get("refused", "runs")) for who, answer in (("old", old), ("new", new))]
        return "; ".join(words)
    old, new = old["values"], new["values"]
    gone, come = [k for k in old if k not in new], [k for k in new if k not in old]
    other = [k for k in old if k in new and old[k] != new[k]]
    if not gone and not come and not other:
        return None
    example = "; first: %s: %s -> %s" % (other[0], old[other[0]], new[other[0]]) if other else ""
    missing = "; gone: %s" % ", ".join(gone[:3]) if gone else ""
    return "%d of %d values differ, %d gone, %d new%s%s" % (len(other), len(old), len(gone), len(come), example, missing)


def main():
    parser = argparse.ArgumentParser(prog="tests/same-bits.sh")
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--only", metavar="PATTERN", default="")
    parser.add_argument("--rename", metavar="NEW_KEY=OLD_KEY", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    work = os.environ.get("TACIT_SAME_BITS", "build/same-bits")
    old = Program(arguments.old, dict(pair.split("=", 1) for pair in arguments.rename), work)
    new = Program(arguments.new, {}, work)
    listed = [json.loads(p.run(["info", "codecs", "--all", "--json"])[0] or p.run(["info", "codecs", "--json"])[0]) for p in (old, new)]
    codecs = [c["name"] for c in listed[0] if c["name"] not in BY_TIME]
    codecs += [c["name"] for c in listed[1] if c["name"] not in codecs and c["name"] not in BY_TIME]
    cases = {name: case for name, case in cases_of(codecs).items() if re.search(arguments.only, name)}
    if not cases:
        sys.exit("same-bits: no case is called %s; --list names them" % arguments.only)
    if arguments.list:
        print("\n".join("%-32s %r" % item for item in cases.items()))
        return 0
    counts = {"same": 0, "different": 0, "refused by one": 0, "refused by both": 0}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        asked = {name: [pool.submit(p.answer, name, case) for p in (old, new)] for name, case in cases.items()}
        for name, answers in asked.items():
            answers = [a.result() for a in answers]
            difference, refusals = compare(*answers), sum("refused" in a for a in answers)
            verdict = ("different", "refused by one", "refused by both")[refusals] if refusals or difference else "same"
            if any(a.get("refused", "").startswith(BROKEN) for a in answers):
                verdict = "different"
            counts[verdict] += 1
            if verdict == "refused by both":
                difference = answers[1]["refused"]
            if verdict != "same":
                print("%s: %s: %s" % (name, verdict, difference), flush=True)
    print("%d cases: %s" % (len(cases), ", ".join("%d %s" % (n, what) for what, n in counts.items())))
    return 1 if counts["different"] + counts["refused by one"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            sys.exit(2)
        raise

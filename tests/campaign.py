# SPDX-License-Identifier: Apache-2.0
"""The injections of tests/campaign.sh. What one must lead to stands in expect(); what is the launcher's own, in own()."""
import argparse, collections, concurrent.futures, itertools, json, os, random, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

PHASES = "start-up", "training", "evaluation", "checkpoint", "finish"
ACTIONS = "KILL", "STOP", "TERM", "USR1", "INT"
TARGETS = "worker", "watcher", "launcher"
STRATEGIES = "dp", "gossip", "localsgd", "shard", "shard --compress.codec int4 --compress.gather int8"
FAULTS = "hang", "code", "unnamed", "late", "left", "unreadable"
AT_ONCE, PATIENCE_S, TIMEOUT_S, START_S = 3, 60, 4, 20
LATEST_S = TIMEOUT_S + 1  # until the culprit is named

# launcher: mpirun; for the engine tcp starter (--ranks), variables (of torchrun, set by hand) or lab (--hosts there). With
# CUT and the lab the target is a host: rank of hosts[rank] is there.
Case = collections.namedtuple("Case", "index phase action target strategy ranks rank delay steps launcher")
# split: the process whose child it is has it already; deaf: it has not begun to hold signals back
Victim = collections.namedtuple("Victim", "pid split deaf hit")
TACIT, MPIRUN = os.environ["TACIT"], os.environ["MPIRUN"]
CUTS = os.environ.get("CAMPAIGN_CUTS") == "1"


def draw(seed, index, engine):
    """All 75 combinations come once before any comes again; the rest is random."""
    combinations = list(itertools.product(PHASES, ACTIONS, TARGETS))
    turn, place = divmod(index, len(combinations))
    random.Random(f"{seed}/turn {turn}").shuffle(combinations)
    phase, action, target = combinations[place]
    rng = random.Random(f"{seed}/{index}")
    ranks = rng.randint(2, 4)
    longest = {"start-up": 0.8, "finish": 0.2}.get(phase, 0.5)
    ends = phase == "finish" or (action, target) == ("STOP", "launcher")
    case = Case(index, phase, action, target, rng.choice(STRATEGIES), ranks, rng.randrange(ranks), rng.uniform(0, longest),
                rng.randint(15, 40) if ends else 1000000, "mpirun")
    if engine == "mpi":
        return case
    if (phase, action, target) == ("training", "STOP", "launcher"):
        case = case._replace(steps=rng.randint(300, 500))  # these steps are fast
    if CUTS and rng.random() < 0.1:  # of the last host's cable; each host has a rank
        return case._replace(launcher="lab", action="CUT", target="host", rank=ranks - 1)
    return case._replace(launcher="variables" if target != "launcher" and rng.random() < 0.25 else "starter")


def command(case, folder):
    flags = {"evaluation": "--train.eval_every 1 --train.eval_windows 2000", "checkpoint": "--train.save_every 1"}
    n = str(case.ranks)
    start = {"mpirun": [MPIRUN, "-n", n, TACIT, "train"], "starter": [TACIT, "train", "--ranks", n],
             "variables": [sys.executable, __file__, "--start", n, TACIT, "train"],
             "lab": ["lab/cluster", "run", "--name", os.path.basename(folder), "--mpi", "none", "--", TACIT, "train"]}
    return start[case.launcher] + (
        "--model.preset nano --model.dtype f32 --train.threads 1 --train.batch 8 --train.eval_every 0 --train.eval_windows 2 "
        f"--run.tensorboard false --comm.timeout {TIMEOUT_S} --comm.start {START_S} --train.save_early 3 "
        f"--train.steps {case.steps} --strategy {case.strategy} {flags.get(case.phase, '')} --run.dir {folder}/run").split()


def start(words):
    """Starts ranks with torchrun's variables. Like it, ends with the code of the first that failed, and with all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1] - 1  # the ranks meet on the one above
    n = int(words[0])
    names = "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"
    ranks = [subprocess.Popen(words[1:], env=dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                                  **dict(zip(names, map(str, (r, r, n, n)))))) for r in range(n)]
    code, failed_at, left = 0, None, dict(enumerate(ranks))
    while left:
        for r, rank in list(left.items()):
            if rank.poll() is None:
                if failed_at and time.time() > failed_at + 5:
                    rank.terminate() if time.time() < failed_at + 10 else rank.kill()
                continue
            del left[r]
            if rank.returncode < 0:
                print(f"process rank {r} with pid {rank.pid} exited on signal {-rank.returncode}", flush=True)
            if rank.returncode != 0 and failed_at is None:
                code, failed_at = rank.returncode, time.time()
        time.sleep(0.05)
    return 128 - code if code < 0 else code


# ---- processes ------------------------------------------------------------------------------------------------------


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task") if os.path.isdir(f"/proc/{pid}/task") else []:
        found += [int(word) for word in read(f"/proc/{pid}/task/{task}/children").split()]
    return sorted(found)


def tagged(tag):
    """Processes that have the tag in their environment: all that a run has started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and f"CAMPAIGN_TAG={tag}\0" in read(f"/proc/{entry}/environ"):
            if " (zombie)" not in read(f"/proc/{entry}/status"):
                found.append(int(entry))
    return found


def rank_of(pid):
    found = re.search(r"(?:^|\0)(?:OMPI_COMM_WORLD_)?RANK=(\d+)\0", read(f"/proc/{pid}/environ"))
    return int(found.group(1)) if found else -1


def find(case, launcher):
    """The watcher is the launcher's child, the worker the watcher's."""
    if case.target == "launcher":
        return launcher
    for watcher in children(launcher):
        if rank_of(watcher) == case.rank:
            below = children(watcher)
            return watcher if case.target == "watcher" else below[0] if below else None
    return None


def is_deaf(pid):
    """Before the program's first instructions signals meet a process that takes none."""
    if read(f"/proc/{pid}/comm").startswith("watch:"):
        return False  # it waits by sigtimedwait(), which shows as a mask that is open
    found = re.search(r"SigBlk:\s*([0-9a-f]+)", read(f"/proc/{pid}/status"))
    return not found or not int(found.group(1), 16) >> (signal.SIGTERM - 1) & 1


# ---- one injection --------------------------------------------------------------------------------------------------


def reached(case, folder):
    if case.phase == "start-up":
        return True
    if case.phase == "finish" and case.launcher == "mpirun":
        return "finished at step" in read(f"{folder}/log")
    if case.phase == "finish":  # without MPI_Finalize it is short: a hit shall meet the last steps, or what comes behind
        return read(f"{folder}/run/metrics.jsonl").count("\n") >= case.steps - 3
    return read(f"{folder}/run/metrics.jsonl").count("\n") >= 5


def cluster(word, folder, *words):
    """Runs lab/cluster on the cluster of this run."""
    subprocess.run(["lab/cluster", word, *words, "--name", os.path.basename(folder)], stdout=subprocess.DEVNULL, check=True)


def inject(case, run, folder):
    until = time.time() + PATIENCE_S
    pid = None
    while time.time() < until and run.poll() is None:
        if reached(case, folder) and case.action == "CUT":
            time.sleep(case.delay)
            cluster("cut", folder, f"n{case.rank}")
            return Victim(None, True, False, run.poll() is None)
        if reached(case, folder):
            pid = find(case, run.pid)
            if pid or case.phase == "finish":
                break
        time.sleep(0.003)
    time.sleep(case.delay)
    if case.phase != "start-up":
        pid = find(case, run.pid)
    if pid is None or run.poll() is not None:
        return Victim(pid, True, False, False)
    split = case.target == "worker" or bool(children(pid))
    deaf = case.target != "launcher" and is_deaf(pid)
    try:
        os.kill(pid, getattr(signal, "SIG" + case.action))
    except ProcessLookupError:
        return Victim(pid, split, deaf, False)
    if (case.action, case.target) == ("STOP", "launcher"):
        time.sleep(2)
        os.kill(pid, signal.SIGCONT)
    return Victim(pid, split, deaf, True)


def names(case, victim, log):
    if case.action == "CUT":  # the other side names it, before they have met without its host
        return re.search(rf"error: .*rank {case.rank} (on host|did not connect|has not come up)", log) is not None
    word = rf"pid {victim.pid}\b|rank {case.rank} on host"
    if re.search(rf"tacit: (rank \d+: )?(error|warning): .*({word})", log):
        return True
    # A worker that has done everything has ended, and nobody but the launcher is left to name its watcher.
    # Nor is anybody before there is a watcher, but the starter.
    alone = case.phase == "finish" and case.target == "watcher" and "finished at step" in log or not victim.split
    return alone and re.search(rf"process rank {case.rank} .*exited on signal", log) is not None


def expect(case, victim, log):
    """Exit codes that are right, and whether a line must name the victim."""
    done = {0} if not victim.hit or case.phase == "finish" and "finished at step" in log else set()
    if (case.action, case.target) == ("STOP", "launcher"):
        return {0}, False
    if case.target == "launcher":
        asked = {0, 1} if case.launcher == "mpirun" and case.action != "USR1" else {0}
        return done | ({-9, 137} if case.action == "KILL" else asked), False
    if case.action == "CUT":
        return done | {5}, True
    if case.action == "KILL":
        return done | {5 if case.target == "worker" or case.launcher == "starter" else 137}, True
    if case.action == "STOP":
        return done | {5}, True
    return {0}, False


def own(case, victim, code, log):
    """What launchers do by themselves: they, or a process before its first instruction, take a signal as the system does."""
    if case.launcher == "lab":
        return False
    number = getattr(signal, "SIG" + case.action)
    if case.launcher != "mpirun":
        early = not victim.split or victim.deaf or (case.target == "launcher" and case.phase == "start-up")
        return early and case.action in ("TERM", "INT", "USR1") and code in (-number, 128 + number, 5)
    if (case.action, case.target) == ("STOP", "launcher"):
        return code == 1 and "finished at step" in log and "exiting improperly" in log
    died = code in (-number, 128 + number)
    if case.target == "launcher":
        return case.action in ("TERM", "INT", "USR1") and not victim.split and (died or code == 0)
    return died and (victim.deaf or not victim.split) and f"exited on signal {number}" in log


def unreadable(folder):
    """Each checkpoint that has its name is whole; of the metrics at most the last line is torn."""
    for line in read(f"{folder}/run/metrics.jsonl").split("\n")[:-1]:
        try:
            json.loads(line)
        except ValueError:
            return True
    steps = [n for n in os.listdir(f"{folder}/run/ckpt") if re.fullmatch(r"step_\d+", n)] if os.path.isdir(
        f"{folder}/run/ckpt") else []
    for step in steps:
        tried = subprocess.run([TACIT, "sample", f"{folder}/run/ckpt/{step}", "--tokens", "1"], capture_output=True)
        if tried.returncode != 0:
            return True
    return False


def sweep(tag, patience_s):
    until = time.time() + patience_s
    while (left := tagged(tag)) and time.time() < until:
        time.sleep(0.05)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return left


def judge(case, victim, code, log, folder, left, deserted, named_s):
    """deserted: mpirun waits although every process of ours has ended. named_s: when the culprit was named, or None."""
    faults = set()
    codes, named = expect(case, victim, log)
    theirs = deserted or own(case, victim, code, log)
    if code is None and not deserted:
        faults.add("hang")
    elif code not in codes and not theirs:
        faults.add("code")
    if named and (deserted or not theirs) and victim.hit and code != 0:
        if named_s is None:
            faults.add("unnamed")
        elif named_s > LATEST_S + (START_S - TIMEOUT_S if (case.action, case.phase) == ("CUT", "start-up") else 0):
            faults.add("late")
    if left and code is not None:
        faults.add("left")
    if unreadable(folder):
        faults.add("unreadable")
    return faults, theirs


running, stopping = set(), threading.Event()


def give_up(number, frame):
    """A campaign that is stopped takes its runs with it, and begins no other."""
    stopping.set()
    for tag in list(running):
        sweep(tag, 0)
        subprocess.run(["lab/cluster", "down", "--name", tag], stderr=subprocess.DEVNULL)
        shutil.rmtree(os.path.join(tempfile.gettempdir(), tag), ignore_errors=True)
    os._exit(128 + number)


class Watch:
    """Waits for the run, and notes when the log names the victim."""

    def __init__(self, case, victim, run, folder):
        self.case, self.victim, self.run, self.folder = case, victim, run, folder
        self.began, self.named_s = time.time(), None

    def look(self):
        if self.named_s is None and names(self.case, self.victim, read(f"{self.folder}/log")):
            self.named_s = time.time() - self.began

    def wait(self, patience_s):
        until = time.time() + patience_s
        while self.run.poll() is None and time.time() < until:
            self.look()
            time.sleep(0.05)
        return self.run.poll()


def attempt(case):
    while stopping.is_set():
        time.sleep(1)
    folder = os.path.join(tempfile.gettempdir(), f"campaign-{os.getpid()}-{case.index}")
    tag = os.path.basename(folder)
    running.add(tag)
    os.mkdir(folder)
    if case.launcher == "lab":
        cluster("up", folder, str(case.ranks))
    with open(f"{folder}/log", "wb") as log:
        run = subprocess.Popen(command(case, folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               env=dict(os.environ, CAMPAIGN_TAG=tag), preexec_fn=os.setpgrp)
    victim = inject(case, run, folder)
    watch = Watch(case, victim, run, folder)
    code = watch.wait(10 if case.target == "launcher" and not victim.split else PATIENCE_S)
    if code is None and not victim.split:
        os.kill(run.pid, signal.SIGUSR1)  # the launcher had nobody to pass the first one on to
        code = watch.wait(PATIENCE_S)
    took = time.time() - watch.began
    deserted = code is None and case.launcher == "mpirun" and set(tagged(tag)) <= {run.pid}
    left = sweep(tag, 0 if code is None else 5)
    run.wait()
    if case.launcher == "lab":
        cluster("down", folder)
    watch.look()
    log = read(f"{folder}/log")
    faults, theirs = judge(case, victim, code, log, folder, left, deserted, watch.named_s)
    shutil.rmtree(folder, ignore_errors=True)
    running.discard(tag)
    return case, victim, code, took, faults, theirs, log


# ---- the table ------------------------------------------------------------------------------------------------------


def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, give_up)
    words = argparse.ArgumentParser(prog="tests/campaign.sh")
    words.add_argument("count", type=int, nargs="?", default=100)
    words.add_argument("seed", nargs="?", default=str(random.randrange(10**6)))
    words.add_argument("--engine", choices=("mpi", "tcp"), default="mpi")
    words = words.parse_args()
    seed, _, first = words.seed.partition(":")
    print(f"campaign of {words.count} injections over {words.engine}, seed {seed}", flush=True)
    table = collections.defaultdict(collections.Counter)
    offenders, slowest = [], 0.0
    cases = [draw(seed, int(first or 0) + i, words.engine) for i in range(words.count)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for case, victim, code, took, faults, theirs, log in pool.map(attempt, cases):
            row = table[case.phase, case.action]
            row["injections"] += 1
            row["missed"] += not victim.hit
            slowest = max(slowest, took)
            row["own"] += theirs
            row.update(faults)
            if not faults:
                continue
            offenders.append(case)
            print(f"{', '.join(sorted(faults))}: {case.action} to the {case.target} of rank {case.rank}/{case.ranks} (pid "
                  f"{victim.pid}) {case.delay:.3f} s into {case.phase}, {case.launcher}, {case.strategy}: exit {code} after "
                  f"{took:.1f} s\n  again: tests/campaign.sh 1 {seed}:{case.index} --engine {words.engine}", flush=True)
            print("".join(f"  | {line}\n" for line in log.splitlines()[-25:]), flush=True)
    columns = ("injections", "missed") + FAULTS + ("own",)
    titles = ("injections", "too late", "hangs", "wrong codes", "unnamed", "named late", "left over", "unreadable", "launcher's own")
    print("\n" + f"{'phase':12}{'action':8}" + "".join(f"{title:>16}" for title in titles))
    for phase, action in itertools.product(PHASES, ACTIONS + ("CUT",)):
        row = table[phase, action]
        if row["injections"]:
            print(f"{phase:12}{action:8}" + "".join(f"{row[column]:16}" for column in columns))
    total = sum(table.values(), collections.Counter())
    print(f"{'all':20}" + "".join(f"{total[column]:16}" for column in columns))
    print(f"the slowest ended after {slowest:.1f} s; {len(offenders)} of {words.count} to look at")
    return 1 if offenders else 0


sys.exit(start(sys.argv[2:]) if sys.argv[1:2] == ["--start"] else main())

# SPDX-License-Identifier: Apache-2.0
"""The injections of tests/campaign.sh. What one must lead to stands in expect(); what is Open MPI's own, in own()."""
import collections, concurrent.futures, itertools, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time

PHASES = "start-up", "training", "evaluation", "checkpoint", "finish"
ACTIONS = "KILL", "STOP", "TERM", "USR1", "INT"
TARGETS = "worker", "watcher", "launcher"
STRATEGIES = "dp", "gossip", "localsgd", "shard", "shard --compress.codec int4 --compress.gather int8"
FAULTS = "hang", "code", "unnamed", "left", "unreadable"
AT_ONCE, PATIENCE_S, TIMEOUT_S = 3, 60, 4

Case = collections.namedtuple("Case", "index phase action target strategy ranks rank delay steps")
# split: the process whose child it is has it already; deaf: it has not begun to hold signals back
Victim = collections.namedtuple("Victim", "pid split deaf hit")
TACIT, MPIRUN = os.environ["TACIT"], os.environ["MPIRUN"]


def draw(seed, index):
    """All 75 combinations come once before any comes again; the rest is random."""
    combinations = list(itertools.product(PHASES, ACTIONS, TARGETS))
    turn, place = divmod(index, len(combinations))
    random.Random(f"{seed}/turn {turn}").shuffle(combinations)
    phase, action, target = combinations[place]
    rng = random.Random(f"{seed}/{index}")
    ranks = rng.randint(2, 4)
    longest = {"start-up": 0.8, "finish": 0.2}.get(phase, 0.5)
    ends = phase == "finish" or (action, target) == ("STOP", "launcher")
    return Case(index, phase, action, target, rng.choice(STRATEGIES), ranks, rng.randrange(ranks), rng.uniform(0, longest),
                rng.randint(15, 40) if ends else 1000000)


def command(case, folder):
    flags = {"evaluation": "--train.eval_every 1 --train.eval_windows 2000", "checkpoint": "--train.save_every 1"}
    return [MPIRUN, "-n", str(case.ranks), TACIT, "train"] + (
        "--model.preset nano --model.dtype f32 --train.threads 1 --train.batch 8 --train.eval_every 0 --train.eval_windows 2 "
        f"--run.tensorboard false --comm.timeout {TIMEOUT_S} --comm.start 20 --train.save_early 3 "
        f"--train.steps {case.steps} --strategy {case.strategy} {flags.get(case.phase, '')} --run.dir {folder}/run").split()


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
    found = re.search(r"OMPI_COMM_WORLD_RANK=(\d+)\0", read(f"/proc/{pid}/environ"))
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
    if case.phase == "finish":
        return "finished at step" in read(f"{folder}/log")
    return read(f"{folder}/run/metrics.jsonl").count("\n") >= 5


def inject(case, run, folder):
    until = time.time() + PATIENCE_S
    pid = None
    while time.time() < until and run.poll() is None:
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
    word = rf"pid {victim.pid}\b|rank {case.rank} on host"
    if re.search(rf"tacit: (rank \d+: )?(error|warning): .*({word})", log):
        return True
    # A worker that has done everything has ended, and nobody but the launcher is left to name its watcher.
    ended = case.phase == "finish" and case.target == "watcher" and "finished at step" in log
    return ended and re.search(rf"process rank {case.rank} .*exited on signal", log) is not None


def expect(case, victim, log):
    """Exit codes that are right, and whether a line must name the victim."""
    done = {0} if not victim.hit or case.phase == "finish" and "finished at step" in log else set()
    if (case.action, case.target) == ("STOP", "launcher"):
        return {0}, False
    if case.target == "launcher":
        return done | {"KILL": {-9, 137}, "USR1": {0}}.get(case.action, {0, 1}), False
    if case.action == "KILL":
        return done | {5 if case.target == "worker" else 137}, True
    if case.action == "STOP":
        return done | {5}, True
    return {0}, False


def own(case, victim, code, log):
    """What Open MPI does by itself: it, or a process before its first instruction, takes a signal as the system does."""
    number = getattr(signal, "SIG" + case.action)
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


def judge(case, victim, code, log, folder, left, deserted):
    """deserted: the launcher waits although every process of ours has ended."""
    faults = set()
    codes, named = expect(case, victim, log)
    theirs = deserted or own(case, victim, code, log)
    if code is None and not deserted:
        faults.add("hang")
    elif code not in codes and not theirs:
        faults.add("code")
    if named and (deserted or not theirs) and victim.hit and code != 0 and not names(case, victim, log):
        faults.add("unnamed")
    if left and code is not None:
        faults.add("left")
    if unreadable(folder):
        faults.add("unreadable")
    return faults, theirs


running = set()


def give_up(number, frame):
    """A campaign that is stopped takes its runs with it."""
    for tag in list(running):
        sweep(tag, 0)
    os._exit(128 + number)


def wait(run, patience_s):
    try:
        return run.wait(patience_s)
    except subprocess.TimeoutExpired:
        return None


def attempt(case):
    folder = tempfile.mkdtemp(prefix="campaign-")
    tag = os.path.basename(folder)
    running.add(tag)
    with open(f"{folder}/log", "wb") as log:
        run = subprocess.Popen(command(case, folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               env=dict(os.environ, CAMPAIGN_TAG=tag), preexec_fn=os.setpgrp)
    victim = inject(case, run, folder)
    hit_at = time.time()
    code = wait(run, 10 if case.target == "launcher" and not victim.split else PATIENCE_S)
    if code is None and not victim.split:
        os.kill(run.pid, signal.SIGUSR1)  # the launcher had nobody to pass the first one on to
        code = wait(run, PATIENCE_S)
    took = time.time() - hit_at
    deserted = code is None and set(tagged(tag)) <= {run.pid}
    left = sweep(tag, 0 if code is None else 5)
    run.wait()
    log = read(f"{folder}/log")
    running.discard(tag)
    faults, theirs = judge(case, victim, code, log, folder, left, deserted)
    shutil.rmtree(folder, ignore_errors=True)
    return case, victim, code, took, faults, theirs, log


# ---- the table ------------------------------------------------------------------------------------------------------


def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, give_up)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed, _, first = (sys.argv[2] if len(sys.argv) > 2 else str(random.randrange(10**6))).partition(":")
    print(f"campaign of {count} injections, seed {seed}", flush=True)
    table = collections.defaultdict(collections.Counter)
    offenders, slowest = [], 0.0
    cases = [draw(seed, int(first or 0) + i) for i in range(count)]
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
            print(f"{', '.join(sorted(faults))}: SIG{case.action} to the {case.target} of rank {case.rank}/{case.ranks} (pid "
                  f"{victim.pid}) {case.delay:.3f} s into {case.phase}, {case.strategy}: exit {code} after {took:.1f} s\n"
                  f"  again: tests/campaign.sh 1 {seed}:{case.index}", flush=True)
            print("".join(f"  | {line}\n" for line in log.splitlines()[-25:]), flush=True)
    columns = ("injections", "missed") + FAULTS + ("own",)
    titles = ("injections", "too late", "hangs", "wrong codes", "unnamed", "left over", "unreadable", "Open MPI's own")
    print("\n" + f"{'phase':12}{'action':8}" + "".join(f"{title:>16}" for title in titles))
    for phase, action in itertools.product(PHASES, ACTIONS):
        row = table[phase, action]
        if row["injections"]:
            print(f"{phase:12}{action:8}" + "".join(f"{row[column]:16}" for column in columns))
    total = sum(table.values(), collections.Counter())
    print(f"{'all':20}" + "".join(f"{total[column]:16}" for column in columns))
    print(f"the slowest ended after {slowest:.1f} s; {len(offenders)} of {count} to look at")
    return 1 if offenders else 0


sys.exit(main())

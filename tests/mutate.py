# SPDX-License-Identifier: Apache-2.0
"""The work of tests/mutate.sh; see there."""
import argparse
import collections
import concurrent.futures
import fcntl
import functools
import hashlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ["src/strategy", "src/adapt", "src/topo", "src/exchange", "src/optim", "src/plan", "src/cluster", "src/advise"]
# Whose tests notice, too: they run what the folder's own tests do not, such as steps whose update is the caller's.
ALSO = {"src/strategy": ["src/driver", "src/api"], "src/exchange": ["src/strategy", "src/driver"], "src/adapt": ["src/strategy"]}
STOPPED = 75

# ---- which changes ---------------------------------------------------------------------------------------------------

# Binary operators stand between blanks (clang-format sees to that), so pointers and signs are not among them.
OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*",
             "&&": "||", "||": "&&", "+=": "-=", "-=": "+="}
OPERATOR = re.compile(r"(?<= )(%s)(?= )" % "|".join(re.escape(o) for o in sorted(OPERATORS, key=len, reverse=True)))
# The smaller or the larger of two: where they are equal both are right, so it is the other way round that is tried.
TERM = r"[\w.>\[\]()*-]+(?: [-+*/] [\w.>\[\]()*-]+)*"
CHOICE = re.compile(r"(%s) ([<>]=?) (%s) \? (?:\1 : \3|\3 : \1)(?![\w.\[(-])" % (TERM, TERM))
NUMBER = re.compile(r"(?<![\w.])(\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+|\d+)(?=[^\w.]|$)")
CONDITION = re.compile(r"\b(?:if|while) \(")
STATEMENT = re.compile(r"^ +((?:\(void\))?[a-zA-Z_][\w.>\[\]()*+-]*(?: [-+*/|&^]?= .*|\(.*\)|\+\+|--)|TACITI_TRY\(.*\));$")
# What no result depends on: memory that is given back, texts, clocks.
SILENT = re.compile(r"^(?:\(void\))?(?:taciti_log|taciti_trace|taciti_comm_announce|\w+_destroy|taciti_free|snprintf)\(|\(void\)\w+;?$")

MESSAGE = re.compile(r"\btaciti_(?:fail|log)\(")  # nor on the values that a message names

Mutant = collections.namedtuple("Mutant", "path offset length text line")


def code_of(text):
    """The text with comments, strings, characters and directives but #define blanked."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^#(?!define)[^\n]*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)


def closing(code, begin):
    depth = 0
    for i in range(begin, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth == 0:
            return i
    return None


def without_messages(code):
    """The code with the arguments of messages blanked."""
    for m in MESSAGE.finditer(code):
        end = closing(code, m.end() - 1)
        if end is not None:
            code = code[:m.end()] + re.sub(r"[^\n]", " ", code[m.end():end]) + code[end:]
    return code


def mutants_of(path):
    with open(os.path.join(ROOT, path)) as file:
        text = file.read()
    code, found = without_messages(code_of(text)), []

    def add(offset, length, new):
        found.append(Mutant(path, offset, length, new, text.count("\n", 0, offset) + 1))

    choices = {m.start(2) for m in CHOICE.finditer(code)}
    for m in OPERATOR.finditer(code):
        add(m.start(), len(m.group()), {"<": ">", ">": "<"}[m.group()[0]] if m.start() in choices else OPERATORS[m.group()])
    for m in NUMBER.finditer(code):
        value = m.group()
        add(m.start(), len(value), {"0": "1", "1": "0"}.get(value, "(%s + 1)" % value))
    for m in CONDITION.finditer(code):
        end = closing(code, m.end() - 1)
        if end is not None:
            add(m.end(), end - m.end(), "!(%s)" % text[m.end():end])
    offset = 0
    for line in code.split("\n"):
        m = STATEMENT.match(line)
        if m and not SILENT.match(m.group(1)) and line.count("(") == line.count(")"):
            add(offset + m.start(1), len(m.group(1)), "(void)0")
        offset += len(line) + 1
    return found


# ---- the copy --------------------------------------------------------------------------------------------------------

# The library becomes a shared one whose symbols are visible. A changed file that is compiled alone and loaded before it
# takes its place, so that no program is linked again.
INSTEAD = {"CMakeLists.txt": (b"add_library(tacit STATIC)", b"add_library(tacit SHARED)"),
           "cmake/TacitFlags.cmake": (b"-fvisibility=hidden", b"-fvisibility=default")}


class Copy:
    def __init__(self, folder):
        self.tree, self.build = os.path.join(folder, "tree"), os.path.join(folder, "build")
        self.times = os.path.join(folder, "times.json")
        self.sources = None  # digest of all below src/
        self.commands = {}  # that compile a file, without its name and output
        self.objects = {}  # of files without a change
        self.running, self.stopped = set(), False

    def sync(self):
        """Only what differs is written, so that only that is built again."""
        digest = hashlib.sha256()
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"], check=True, capture_output=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = os.path.join(ROOT, name), os.path.join(self.tree, name)
            if os.path.isfile(source):
                with open(source, "rb") as file:
                    content = file.read()
                if name in INSTEAD:
                    before, after = INSTEAD[name]
                    if before not in content:
                        sys.exit("mutate: %s has no %s" % (name, before.decode()))
                    content = content.replace(before, after)
                self.write(target, content, os.stat(source).st_mode)
                if name.startswith("src/"):
                    digest.update(name.encode() + b"\0" + content)
            elif os.path.exists(target):
                os.remove(target)
        self.sources = digest.hexdigest()[:16]

    @staticmethod
    def write(path, content, mode):
        if os.path.exists(path):
            with open(path, "rb") as file:
                if file.read() == content:
                    return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)

    def make(self, targets):
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            flags = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O2", "-DTACIT_WERROR=OFF", "-DCMAKE_C_FLAGS=-w", "-DTACIT_TESTS=ON"]
            run = subprocess.run(["cmake", "-G", "Ninja", "-S", self.tree, "-B", self.build] + flags, capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit("mutate: cmake failed:\n" + run.stderr)
        run = subprocess.run(["ninja", "-C", self.build] + targets, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit("mutate: the tests do not build:\n" + run.stdout[-3000:])
        with open(os.path.join(self.build, "compile_commands.json")) as file:
            entries = json.load(file)
        self.commands.clear()
        for entry in entries:  # kernels are compiled once per instruction set
            words = shlex.split(entry["command"].split(" -o ")[0])
            path = os.path.relpath(entry["file"], self.tree)
            self.commands.setdefault(path, []).append([w for w in words if not w.endswith("ccache")])

    def compile(self, path, text, shared):
        """The object code of a file with this text, and the shared library of it alone; None: it does not compile."""
        commands, code = self.commands[path], b""
        found = ["%s.%d.o" % (shared, i) for i in range(len(commands))]
        folder = os.path.join(self.tree, os.path.dirname(path))
        for command, name in zip(commands, found):
            run = subprocess.run(command + ["-x", "c", "-c", "-", "-o", name], input=text, cwd=folder, capture_output=True)
            if run.returncode != 0:
                return None
            with open(name, "rb") as file:
                code += file.read()
        subprocess.run([commands[0][0], "-shared", "-o", shared] + found, check=True)
        return code

    def test(self, name, limit_s, shared=""):
        """Whether a test passes with that library in front; None: it did not end in time."""
        program = os.path.join(self.build, "unit", name)
        process = subprocess.Popen([program], cwd=self.tree, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True, env=dict(os.environ, LD_PRELOAD=shared))
        self.running.add(process)
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.end(process)
            process.wait()
            self.running.discard(process)

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def stop(self):
        self.stopped = True
        for process in list(self.running):
            self.end(process)


def tests_of(folder):
    with open(os.path.join(ROOT, folder, "CMakeLists.txt")) as file:
        lists = file.read()
    names = re.findall(r"tacit_test\((\w+)", lists)
    for group in re.findall(r"foreach\(test ([^)]*)\)", lists):
        names += group.split()
    return ["test_" + name for name in names if os.path.exists(os.path.join(ROOT, folder, "test_%s.c" % name))]


class Folder:
    """The tests of a folder, how long each takes without a change, and which changes each has noticed."""

    def __init__(self, copy, name):
        self.name, self.copy, self.folders = name, copy, [name] + ALSO.get(name, [])
        self.tests = [test for folder in self.folders for test in tests_of(folder)]
        if not self.tests:
            sys.exit("mutate: %s has no unit tests" % name)
        copy.make(self.tests)
        self.seconds = self.time_tests()
        self.kills = collections.Counter()

    @functools.cache
    def basis(self, test):
        """Digest of what a verdict rests on: the test that noticed the change, or all; None: all."""
        digest = hashlib.sha256()
        folders = [os.path.join(ROOT, folder) for folder in self.folders]
        for path in sorted(os.path.join(folder, file) for folder in folders for file in os.listdir(folder)):
            file = os.path.basename(path)
            if file.startswith("test_") and (test is None or file.endswith(".h") or file == test + ".c"):
                with open(path, "rb") as content:
                    digest.update(content.read())
        return digest.hexdigest()[:16]

    def time_tests(self):
        """Once for the same sources: seconds of every test, all of which must pass."""
        key, known = self.name + " " + self.copy.sources, {}
        if os.path.exists(self.copy.times):
            with open(self.copy.times) as file:
                known = json.load(file)
        if key not in known:
            known[key] = {}
            for test in self.tests:
                begin = time.monotonic()
                if not self.copy.test(test, 1800):
                    sys.exit("mutate: %s fails without a change" % test)
                known[key][test] = time.monotonic() - begin
            with open(self.copy.times + ".new", "w") as file:
                json.dump(known, file)
            os.replace(self.copy.times + ".new", self.copy.times)
        return known[key]

    def in_order(self, path):
        """First what has noticed most changes of this file, or is named as it, for its time."""
        name = os.path.basename(path)

        def worth(test):
            alike = len(os.path.commonprefix([test[len("test_"):], name])) / len(name)
            return (0.1 + alike + self.kills[path, test]) / (0.1 + self.seconds[test])

        return sorted(self.tests, key=worth, reverse=True)

    def verdict(self, path, original, changed):
        """What became of a file's changed text, and the test that noticed it; None: the run was stopped."""
        if path not in self.copy.objects:
            with tempfile.TemporaryDirectory() as job:
                self.copy.objects[path] = self.copy.compile(path, original, os.path.join(job, "file.so"))
        with tempfile.TemporaryDirectory() as job:
            shared = os.path.join(job, "file.so")
            code = self.copy.compile(path, changed, shared)
            if code is None:
                return "not built", None
            if code == self.copy.objects[path]:
                return "equivalent", None
            for test in self.in_order(path):
                passed = not self.copy.stopped and self.copy.test(test, 30 + 5 * self.seconds[test], shared)
                if self.copy.stopped:
                    return None
                if passed is None:
                    return "timed out", None
                if not passed:
                    self.kills[path, test] += 1
                    return "killed", test
            return "survived", None


# ---- a run -----------------------------------------------------------------------------------------------------------


def shown(text, m):
    """The changed line, before and after."""
    begin, end = text.rfind("\n", 0, m.offset) + 1, text.find("\n", m.offset + m.length)
    before = text[begin:end]
    after = text[begin:m.offset] + m.text + text[m.offset + m.length:end]
    return " ".join(before.split()), " ".join(after.split())


def sources(names):
    files = []
    for name in names:
        path = os.path.relpath(os.path.abspath(name), ROOT)
        if os.path.isdir(os.path.join(ROOT, path)):
            files += [os.path.join(path, f) for f in sorted(os.listdir(os.path.join(ROOT, path)))
                      if f.endswith(".c") and not f.startswith("test_")]
        elif path.startswith("src/") and path.endswith(".c") and os.path.exists(os.path.join(ROOT, path)):
            files.append(path)
        else:
            print("mutate: %s is no folder or .c file below src/" % name, file=sys.stderr)
            sys.exit(2)
    return files


class Known:
    """The verdicts of this and earlier runs."""

    def __init__(self, path):
        self.verdicts, self.lock = {}, threading.Lock()
        self.file = open(path, "a+")
        self.file.seek(0)
        for line in self.file:
            if line.endswith("]\n"):
                key, *found = json.loads(line)
                self.verdicts[key] = found

    def of(self, key, folder):
        verdict, test, basis = self.verdicts.get(key, (None, None, None))
        return verdict if basis == folder.basis(test) else None

    def add(self, key, folder, verdict, test):
        with self.lock:
            self.verdicts[key] = [verdict, test, folder.basis(test)]
            print(json.dumps([key, *self.verdicts[key]]), file=self.file, flush=True)


def try_all(mutants, copy, known, jobs, deadline):
    """(mutant, verdict, lines) of each, in turn. The verdict is None where a run was stopped or its time is up."""
    folders = {name: Folder(copy, name) for name in sorted({os.path.dirname(m.path) for m in mutants})}

    def attempt(m):
        folder = folders[os.path.dirname(m.path)]
        with open(os.path.join(ROOT, m.path), "rb") as file:
            original = file.read()
        text = original.decode()
        key = "%s %s %d %d %s" % (hashlib.sha256(original).hexdigest()[:16], m.path, m.offset, m.length, m.text)
        if known.of(key, folder) is None and time.monotonic() < deadline and not copy.stopped:
            found = folder.verdict(m.path, original, (text[:m.offset] + m.text + text[m.offset + m.length:]).encode())
            if found:
                known.add(key, folder, *found)
        return m, known.of(key, folder), shown(text, m)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: copy.stop())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(attempt, mutants)


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="tests/mutate.sh")
    parser.add_argument("names", nargs="*", metavar="FOLDER|FILE.c")
    parser.add_argument("--max", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    mutants = [m for path in sources(arguments.names or [os.path.join(ROOT, f) for f in FOLDERS]) for m in mutants_of(path)]
    possible = len(mutants)
    if arguments.max is not None and arguments.max < possible:
        chosen = random.Random(arguments.seed).sample(range(possible), arguments.max)
        mutants = [mutants[i] for i in sorted(chosen)]
    if arguments.list:
        for m in mutants:
            with open(os.path.join(ROOT, m.path)) as file:
                print("%s:%d  %s  ->  %s" % ((m.path, m.line) + shown(file.read(), m)))
        return 0
    work = os.path.abspath(os.environ.get("TACIT_MUTATE", os.path.join(ROOT, "build/mutate")))
    os.makedirs(work, exist_ok=True)
    lock = open(os.path.join(work, "lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("mutate: another run works in %s; name another folder in TACIT_MUTATE" % work, file=sys.stderr)
        return 2
    copy, counts = Copy(work), collections.Counter()
    copy.sync()
    for m, verdict, (before, after) in try_all(mutants, copy, Known(os.path.join(work, "verdicts.jsonl")), arguments.jobs, deadline):
        counts[verdict] += 1
        if verdict in ("survived", "timed out"):
            print("%s:%d  %s  ->  %s%s" % (m.path, m.line, before, after, "  (timed out)" if verdict == "timed out" else ""), flush=True)
    done = sum(counts.values()) - counts[None]
    print("%d of %d mutants (%d possible, seed %d): %s" % (
        done, len(mutants), possible, arguments.seed,
        ", ".join("%d %s" % (counts[v], v) for v in ("killed", "survived", "timed out", "equivalent", "not built"))))
    if done < len(mutants):
        return STOPPED
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            sys.exit(2)
        raise

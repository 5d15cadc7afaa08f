# SPDX-License-Identifier: Apache-2.0
"""The work of tests/mutate.sh; see there."""
import argparse
import collections
import fcntl
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ["src/strategy", "src/topo", "src/exchange", "src/optim", "src/plan"]
STOPPED = 75

# ---- which changes ---------------------------------------------------------------------------------------------------

# Binary operators stand between blanks (clang-format sees to that), so pointers and signs are not among them.
OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*",
             "&&": "||", "||": "&&", "+=": "-=", "-=": "+="}
OPERATOR = re.compile(r"(?<= )(%s)(?= )" % "|".join(re.escape(o) for o in sorted(OPERATORS, key=len, reverse=True)))
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

    for m in OPERATOR.finditer(code):
        add(m.start(), len(m.group()), OPERATORS[m.group()])
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


class Copy:
    def __init__(self, folder):
        self.tree, self.build = os.path.join(folder, "tree"), os.path.join(folder, "build")
        self.times = os.path.join(folder, "times.json")
        self.sources = None  # digest of all below src/

    def sync(self):
        """Only what differs is written, so that only that is built again."""
        digest = hashlib.sha256()
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"], check=True, capture_output=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = os.path.join(ROOT, name), os.path.join(self.tree, name)
            if os.path.isfile(source):
                with open(source, "rb") as file:
                    content = file.read()
                self.write(name, content, os.stat(source).st_mode)
                if name.startswith("src/"):
                    digest.update(name.encode() + b"\0" + content)
            elif os.path.exists(target):
                os.remove(target)
        self.sources = digest.hexdigest()[:16]

    def write(self, name, content, mode=None):
        path = os.path.join(self.tree, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                if file.read() == content:
                    return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        if mode is not None:
            os.chmod(path, mode)

    def make(self, targets):
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            flags = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1", "-DTACIT_WERROR=OFF", "-DCMAKE_C_FLAGS=-w", "-DTACIT_TESTS=ON"]
            run = subprocess.run(["cmake", "-G", "Ninja", "-S", self.tree, "-B", self.build] + flags, capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit("mutate: cmake failed:\n" + run.stderr)
        return subprocess.run(["ninja", "-C", self.build] + targets, capture_output=True, text=True)

    def test(self, name, limit_s):
        """Whether a test passes; None: it did not end in time."""
        program = os.path.join(self.build, "unit", name)
        process = subprocess.Popen([program], cwd=self.tree, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def tests_of(folder):
    with open(os.path.join(ROOT, folder, "CMakeLists.txt")) as file:
        lists = file.read()
    names = re.findall(r"tacit_test\((\w+)", lists)
    for group in re.findall(r"foreach\(test ([^)]*)\)", lists):
        names += group.split()
    return ["test_" + name for name in names if os.path.exists(os.path.join(ROOT, folder, "test_%s.c" % name))]


class Folder:
    """The tests of a folder, and how long each takes without a change."""

    def __init__(self, copy, name):
        self.name, self.copy, self.tests = name, copy, tests_of(name)
        if not self.tests:
            sys.exit("mutate: %s has no unit tests" % name)
        made = copy.make(self.tests)
        if made.returncode != 0:
            sys.exit("mutate: the tests of %s do not build:\n%s" % (name, made.stdout[-3000:]))
        self.seconds = self.time_tests()
        self.killer = None
        digest = hashlib.sha256()
        for file in sorted(os.listdir(os.path.join(ROOT, name))):
            if file.startswith("test_"):
                with open(os.path.join(ROOT, name, file), "rb") as content:
                    digest.update(content.read())
        self.digest = digest.hexdigest()[:16]

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
        """What noticed the last change may well notice this one; then the tests that are named as the file, the quick ones first."""
        name = os.path.basename(path)
        alike = {test: len(os.path.commonprefix([test[len("test_"):], name])) for test in self.tests}
        return sorted(self.tests, key=lambda test: (test != self.killer, -alike[test], self.seconds[test]))

    def verdict(self, path):
        for test in self.in_order(path):  # each is linked only when those before it have passed
            if self.copy.make([test]).returncode != 0:
                return "not built"
            passed = self.copy.test(test, 30 + 5 * self.seconds[test])
            if passed is None:
                return "timed out"
            if not passed:
                self.killer = test
                return "killed"
        return "survived"


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


def try_all(mutants, copy, known, verdicts, deadline):
    """(mutant, verdict) of each, in turn; ends early at the deadline."""
    folders = {}
    for m in mutants:
        name = os.path.dirname(m.path)
        if time.monotonic() > deadline:
            return
        if name not in folders:
            folders[name] = Folder(copy, name)
        with open(os.path.join(ROOT, m.path), "rb") as file:
            original = file.read()
        text = original.decode()
        key = "%s %s %s %d %d %s" % (hashlib.sha256(original).hexdigest()[:16], folders[name].digest, m.path, m.offset, m.length, m.text)
        if key not in known:
            copy.write(m.path, (text[:m.offset] + m.text + text[m.offset + m.length:]).encode())
            known[key] = folders[name].verdict(m.path)
            copy.write(m.path, original)
            print(json.dumps([key, known[key]]), file=verdicts, flush=True)
        yield m, known[key], shown(text, m)


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="tests/mutate.sh")
    parser.add_argument("names", nargs="*", metavar="FOLDER|FILE.c")
    parser.add_argument("--max", type=int)
    parser.add_argument("--seed", type=int, default=1)
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
    copy, counts, known, done = Copy(work), collections.Counter(), {}, 0
    copy.sync()
    verdicts = open(os.path.join(work, "verdicts.jsonl"), "a+")
    verdicts.seek(0)
    for line in verdicts:
        if line.endswith("]\n"):
            key, verdict = json.loads(line)
            known[key] = verdict
    stopped = False
    try:
        for m, verdict, (before, after) in try_all(mutants, copy, known, verdicts, deadline):
            counts[verdict] += 1
            done += 1
            if verdict == "survived":
                print("%s:%d  %s  ->  %s" % (m.path, m.line, before, after), flush=True)
    except KeyboardInterrupt:
        stopped = True
    print("%d of %d mutants (%d possible, seed %d): %d killed, %d survived, %d not built, %d timed out" % (
        done, len(mutants), possible, arguments.seed, counts["killed"], counts["survived"], counts["not built"], counts["timed out"]))
    if stopped or done < len(mutants):
        return STOPPED
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            sys.exit(2)
        raise

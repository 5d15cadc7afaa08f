# SPDX-License-Identifier: Apache-2.0
"""One name, one meaning; no own word where the field has one; no two files that call each other. See check-names.sh.

It reads the sources as text: no build, no compiler. Names that a file keeps to itself (static functions, types and
macros of a .c file without our prefix) may repeat; everything that another file can see may not.
"""
import ast
import collections
import graphlib
import pathlib
import re
import sys

# Own word -> the field's word. An entry "folder/word" holds in that folder only.
DENIED = {
    "fan": "reduce_scatter, all_gather",
    "fans": "reduce_scatter, all_gather",
    "parcel": "job",
    "parcels": "jobs",
    "exchange/spread": "scatter, send",
    "exchange/turn": "round, step",
    "exchange/turns": "rounds, steps",
    "plan/turns": "rounds, steps",
    "exchange/kept": "residual",
    "wish": "request",
    "wished": "requested",
    "most": "max",
    "least": "min",
}

# Beginnings and phrases that leave a reader without a subject; comments say who does what.
FRAGMENT = re.compile(r"^(?:Of|That of|Those of|Half of|This rank's|What|Whose|Who)\b(?!.*\?$)|\b[Ss]o (?:many|much|often)\b(?! (?:as|that)\b)|\b[Aa]new\b")
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*(.*?)\*/|//((?:[^\n]*\n[ \t]*//)*[^\n]*)', re.S)
LONG_FILE = 100 # lines; in longer files a static function's name is verb + object

PREFIX = re.compile(r"^(taciti?_|TACITI?_)")
STRIP = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
WORD = re.compile(r"\b[A-Za-z_][A-Za-z_0-9]*\b")


def blank(match):
    text = match.group(0)
    return ('""' if text[0] == '"' else " ") + "\n" * text.count("\n")


class Source:
    def __init__(self, path):
        self.path, self.header = path, path.suffix == ".h"
        raw = self.raw = path.read_text()
        self.includes = re.findall(r'^\s*#\s*include\s+"([^"]+)"', raw, re.M)
        self.code = STRIP.sub(blank, raw.replace("\\\n", "  "))
        self.lines = self.code.split("\n")
        self.words = set(WORD.findall(self.code))

    def line_of(self, position):
        return self.code.count("\n", 0, position) + 1


def body_end(code, start):
    """Position after the brace that closes the one at `start`."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(code)


def definitions(source):
    """(name, kind, line) of everything that the file defines at file scope."""
    code = source.code
    for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", code, re.M):
        yield match.group(1), "macro", source.line_of(match.start())
    plain = re.sub(r"^[ \t]*#.*$|\bTACITI_PRINTF\([^)]*\)", "", code, flags=re.M)
    for match in re.finditer(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", plain):
        yield match.group(1), "tag", plain.count("\n", 0, match.start()) + 1
    for match in re.finditer(r"^(?:typedef )?enum\b[^;{(]*\{([^}]*)\}", plain, re.M):
        line = plain.count("\n", 0, match.start()) + 1
        for part in re.sub(r"=[^,]*", "", match.group(1)).split(","):
            if "(" not in part and WORD.search(part): # LIST(X) is not a name of this enum
                yield part.strip(), "enumerator", line
    for match in re.finditer(r"^typedef\b", plain, re.M):
        brace, end = plain.find("{", match.end()), plain.find(";", match.end())
        if -1 < brace < end:
            end = plain.find(";", body_end(plain, brace))
        text = re.sub(r"\{.*\}", " ", plain[match.end():end], flags=re.S)
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)|^\s*[\w\s*]*?(\w+)\s*\(", text)
        words = WORD.findall(re.sub(r"\[[^\]]*\]", "", text))
        name = (pointer.group(1) or pointer.group(2)) if pointer else words[-1]
        yield name, "typedef", plain.count("\n", 0, match.start()) + 1
    for match in re.finditer(r"^(?!typedef|#|\s|static\b|extern\b|return\b)[\w*\s]*?\b(\w+)\s*\([^;{}]*\)\s*\{", plain, re.M):
        yield match.group(1), "function", plain.count("\n", 0, match.start(1)) + 1
    for match in re.finditer(r"^static inline [\w*\s]*?\b(\w+)\s*\([^;{}]*\)\s*\{", plain, re.M):
        if source.header:
            yield match.group(1), "function", plain.count("\n", 0, match.start(1)) + 1
    for match in re.finditer(r"^(?!typedef|static\b|extern\b|struct\s+\w+\s*\{|enum\b)\w[\w*\s]*?[\s*](\w+)\s*(?:\[[^\]]*\]\s*)*=", plain, re.M):
        yield match.group(1), "object", plain.count("\n", 0, match.start(1)) + 1


def twice(sources):
    """A name that other files see, defined in two files (or as two kinds of thing)."""
    places = collections.defaultdict(list)
    for source in sources:
        undefined = set(re.findall(r"#\s*undef\s+(\w+)", source.code))
        for name, kind, line in definitions(source):
            if (source.header or PREFIX.match(name)) and not (kind == "macro" and name in undefined):
                places[name].append((source.path, kind, line))
    for name, found in sorted(places.items()):
        files = {path for path, _, _ in found}
        kinds = {"type" if kind in ("tag", "typedef") else kind for _, kind, _ in found}
        tags = [path for path, kind, _ in found if kind == "tag"]
        types = [path for path, kind, _ in found if kind == "typedef"]
        # "typedef struct x x;" in a header and "struct x {...}" in one file are one type.
        opaque = kinds == {"type"} and len(set(tags)) == 1 and len(set(types)) == 1
        if (len(files) > 1 and not opaque) or len(kinds) > 1:
            yield f"twice: {name}: " + ", ".join(f"{path}:{line} ({kind})" for path, kind, line in found)


def own_words(sources):
    for source in sources:
        folder = source.path.parent.name
        for number, line in enumerate(source.lines, 1):
            if re.match(r"\s*#\s*include", line):
                continue
            for name in WORD.findall(line):
                for part in re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", name):
                    word = part.lower()
                    better = DENIED.get(word) or DENIED.get(f"{folder}/{word}")
                    if better:
                        yield f"word: {source.path}:{number}: {name}: \"{word}\" has a standard term: {better}"
        for part in re.split(r"[_-]", source.path.stem):
            better = DENIED.get(part) or DENIED.get(f"{folder}/{part}")
            if better:
                yield f"word: {source.path}: \"{part}\" has a standard term: {better}"


def comments(source):
    """(line, text) of every comment; `//` lines below each other are one comment."""
    for match in COMMENT.finditer(source.raw):
        text = match.group(1) if match.group(1) is not None else match.group(2)
        if text is not None:
            yield source.raw.count("\n", 0, match.start()) + 1, re.sub(r"\s*\n[ \t]*(?:\*|//)?[ \t]*", " ", text).strip(" \t\n*<")


def docstrings(path):
    """(line, text) of every docstring of a Python module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, " ".join(ast.get_docstring(node).split())


def fragments(sources, modules):
    texts = [(s.path, line, text) for s in sources for line, text in comments(s)]
    texts += [(path, line, text) for path in modules for line, text in docstrings(path)]
    for path, line, text in texts:
        for part in [text, *re.findall(r"(?<=[.;:] )[A-Z][^.]*", text)]:
            found = FRAGMENT.search(part)
            if found:
                yield f"english: {path}:{line}: \"{part[:60]}\": \"{found.group()}\": say who does what, in a sentence"
                break


def bare_verbs(sources):
    """A backtrace of `part <- choose <- try` says nothing."""
    for source in sources:
        if source.header or source.raw.count("\n") <= LONG_FILE:
            continue
        for match in re.finditer(r"^static (?!inline\b)[\w*\s]*?\b([a-z0-9]+)\s*\([^;{}]*\)\s*\{", source.code, re.M):
            yield f"english: {source.path}:{source.line_of(match.start(1))}: {match.group(1)}(): a name is verb + object"


def cycles(edges):
    """The nodes of a ring, sorted; of one ring where there are several."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        yield sorted(set(error.args[1]))


def call_cycles(sources):
    """.c files that use each other's functions or objects, directly or in a ring."""
    owner = {}
    for source in sources:
        if not source.header:
            for name, kind, _ in definitions(source):
                if kind in ("function", "object") and PREFIX.match(name):
                    owner[name] = str(source.path)
    edges, why = collections.defaultdict(list), {}
    for source in sources:
        if source.header:
            continue
        for name in sorted(source.words & owner.keys()):
            if owner[name] != str(source.path):
                edges[str(source.path)].append(owner[name])
                why.setdefault((str(source.path), owner[name]), name)
    for ring in cycles(edges):
        uses = [f"{a} uses {why[a, b]} of {b}" for a in ring for b in ring if (a, b) in why]
        yield f"cycle: {' '.join(ring)}\n    " + "\n    ".join(uses)


def include_cycles(sources):
    edges = {str(s.path): [f"src/{i}" for i in s.includes] for s in sources if s.header}
    edges = {path: [i for i in after if i in edges] for path, after in edges.items()}
    for ring in cycles(edges):
        yield f"cycle: {' '.join(ring)} include each other"


def main():
    paths = sorted(pathlib.Path(".").glob("src/**/*.[ch]")) + sorted(pathlib.Path("include").glob("*/*.h"))
    paths += sorted(pathlib.Path("lab").glob("*.[ch]"))
    sources = [Source(p) for p in paths if not p.name.startswith("test_")]
    tests = [Source(p) for p in paths if p.name.startswith("test_")]
    found = [*twice(sources), *own_words(sources), *call_cycles(sources), *include_cycles(sources)]
    modules = sorted(pathlib.Path("python/tacit").glob("**/*.py"))
    found += [*fragments(sources + tests, modules), *bare_verbs(sources)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


sys.exit(main())

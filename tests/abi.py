# SPDX-License-Identifier: Apache-2.0
"""What programs that are built with tacit.h rely on, one line each, compared with a record of it. tests/abi.sh calls it.

  function NAME: RESULT (PARAMETERS)       without the names of parameters
  type NAME: DECLARATION                   other typedefs
  value NAME: NUMBER                       of enums
  macro NAME: TEXT
  member STRUCT.NAME: TYPE at BYTE, BYTES
  struct NAME: BYTES                       of structs without a member `size`, which may not grow
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

WORD = re.compile(r"[A-Za-z_]\w*")
MARK = '__attribute__((visibility("default")))'


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def statements(header):
    """The declarations of the header itself, preprocessed, without what it includes."""
    own, text = False, []
    for line in run("cc", "-E", "-x", "c", str(header)).splitlines():
        if line.startswith("# "):
            own = Path(line.split('"')[1]) == header
        elif own:
            text.append(line)
    depth, start, text = 0, 0, " ".join(" ".join(text).split())
    for i, letter in enumerate(text):
        depth += (letter in "{(") - (letter in "})")
        if letter == ";" and depth == 0:
            yield text[start:i].strip()
            start = i + 1


def split_list(text):
    """The parts between commas that are not inside of parentheses."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def type_of(parameter):
    words = [w for w in WORD.findall(parameter) if w not in ("const", "struct", "enum", "unsigned", "signed")]
    return re.sub(r"\s*\b%s\b" % words[-1], "", parameter).strip() if len(words) > 1 else parameter


def signature(result, parameters):
    return "%s (%s)" % (result.strip(), ", ".join(type_of(p) for p in split_list(parameters)))


def members(body):
    """Name and type of each member."""
    for one in filter(None, (m.strip() for m in re.split(r";", body))):
        pointer = re.fullmatch(r"(.*?)\(\*\s*(\w+)\)\s*\((.*)\)", one)
        if pointer:
            yield pointer[2], "(*) " + signature(pointer[1], pointer[3])
            continue
        first, *more = split_list(one)
        base = re.match(r"((?:const |struct |unsigned )*\w+)\s*(.*)", first)
        for declarator in [base[2], *more]:
            name = WORD.search(declarator)[0]
            yield name, " ".join((base[1] + " " + re.sub(r"\b%s\b" % name, "", declarator)).split())


def probe(header, expressions):
    """The values of integer expressions, as the compiler sees them."""
    lines = ['printf("%%lld\\n", (long long)(%s));' % e for e in expressions]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "probe.c", Path(folder) / "probe"
        source.write_text(
            '#include <stddef.h>\n#include <stdio.h>\n#include "%s"\nint main(void) { %s return 0; }\n'
            % (header, "\n".join(lines))
        )
        run("cc", "-std=c11", "-o", str(program), str(source))
        return run(str(program)).split()


def macros(header):
    for name, text in re.findall(r"^#define (TACIT_\w+) (.+)$", run("cc", "-E", "-dM", str(header)), re.M):
        if not re.search(r"_VERSION_|_API$|_H$", name):
            yield "macro " + name, " ".join(text.split())


def describe_struct(name, body, wanted):
    of = list(members(body))
    if not of or of[0][0] != "size":
        wanted["struct " + name] = ("%s bytes", ["sizeof(%s)" % name])
    for member, kind in of:
        place = "offsetof(%s, %s)" % (name, member), "sizeof(((%s *)0)->%s)" % (name, member)
        wanted["member %s.%s" % (name, member)] = (kind + " at %s, %s bytes", place)


def describe(header):
    """Facts by name."""
    facts, wanted = {}, {}
    for text in statements(header):
        enum = re.fullmatch(r"(?:typedef )?enum \w*\s*\{(.*)\}\s*\w*", text)
        struct = re.fullmatch(r"typedef struct \w*\s*\{(.*)\}\s*(\w+)", text)
        function = re.fullmatch(re.escape(MARK) + r"\s*(.*?)(\w+)\s*\((.*)\)", text)
        callback = re.fullmatch(r"typedef (.*?)(\w+)\s*\((.*)\)", text)
        if enum:
            for name in (WORD.match(e)[0] for e in split_list(enum[1]) if e):
                wanted["value " + name] = ("%s", [name])
        elif struct:
            describe_struct(struct[2], struct[1], wanted)
        elif function or callback:
            one = function or callback
            facts[("function " if function else "type ") + one[2]] = signature(one[1], one[3])
        elif text.startswith("typedef "):
            facts["type " + WORD.findall(text)[-1]] = text
    values = iter(probe(header, [e for _, expressions in wanted.values() for e in expressions]))
    facts.update((key, text % tuple(next(values) for _ in of)) for key, (text, of) in wanted.items())
    facts.update(macros(header))
    return facts


def exported(library):
    return {line.split()[-1] for line in run("nm", "-D", "--defined-only", str(library)).splitlines()}


def broken(before, now):
    """What a program of the record needs and does not find any more."""
    findings = ["gone: %s: %s" % (k, before[k]) for k in before if k not in now]
    return findings + ["changed: %s: %s; it was %s" % (k, now[k], before[k]) for k in before if now.get(k, before[k]) != before[k]]


def compare(before, now, symbols):
    """Says what differs; the number of findings."""
    declared = {key.split()[1] for key in now if key.startswith("function ")}
    findings = ["not exported: %s, which the header declares" % s for s in sorted(declared - symbols)]
    findings += ["not declared: %s, which the library exports" % s for s in sorted(symbols - declared)]
    findings += broken(before, now)
    findings += ["new: %s: %s" % (k, now[k]) for k in now if k not in before]
    print("".join(f + "\n" for f in findings), end="")
    return len(findings)


def main(header, library, record, write):
    """Only what is new is written: a record with something gone or changed is that of another minor version."""
    header, record = Path(header).resolve(), Path(record)
    now = describe(header)
    before = dict(line.split(": ", 1) for line in record.read_text().splitlines()) if record.exists() else {}
    if write and not broken(before, now):
        record.parent.mkdir(exist_ok=True)
        record.write_text("".join("%s: %s\n" % fact for fact in sorted(now.items())))
        before = now
    return compare(before, now, exported(library))


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1], sys.argv[2], sys.argv[3], len(sys.argv) > 4) else 0)

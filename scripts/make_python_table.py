#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes python/tacit/_table.py, the ctypes declarations of include/tacit/tacit.h: statuses, enumerations, structs and
functions. `--check` only says whether the file is up to date. Everything in the header that this script does not
understand is an error."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/tacit/tacit.h"
TABLE = ROOT / "python/tacit/_table.py"
SCALARS = {"int": "c_int", "unsigned int": "c_uint", "size_t": "c_size_t", "int64_t": "c_int64", "uint64_t": "c_uint64",
           "double": "c_double", "float": "c_float", "bool": "c_bool", "char": "c_char", "void": "None"}


def read_header():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    text = text.replace("\\\n", " ")
    return re.sub(r"[ \t]+", " ", text)


class Types:
    """C types by name, as ctypes expressions."""

    def __init__(self, text):
        self.enums = {}  # name: [(member, value)]
        self.structs = {}  # name: body
        self.callbacks = {}  # name: (result, arguments)
        self.handles = set(re.findall(r"typedef struct (\w+) \1;", text))
        for body, name in re.findall(r"typedef enum \w+ \{([^}]*)\} (\w+);", text):
            if "#define" not in body:
                self.enums[name] = number_members(body)
        for body in re.findall(r"(?:^|\n)enum \{([^}]*)\};", text):
            self.enums.setdefault("", []).extend(number_members(body))
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, flags=re.S):
            self.structs[name] = body
        for result, name, arguments in re.findall(r"typedef (void|tacit_status) (\w+)\(([^)]*)\);", text):
            self.callbacks[name] = (result, arguments)

    def expression(self, c):
        base, stars = re.sub(r"\bconst\b|\*", "", c).strip(), "*" * c.count("*")
        if base in self.callbacks:
            assert stars == "*", c
            return base
        if base in ("char", "void", "float") and stars:
            inner = "c_char_p" if base == "char" else "c_void_p"
            return point_to(inner, len(stars) - 1)
        if base in self.handles:
            return point_to("c_void_p", len(stars) - 1)
        if base in self.structs:
            return point_to(base, len(stars))
        if base == "tacit_status" or base in self.enums:
            return point_to("c_int", len(stars))
        return point_to(SCALARS[base], len(stars))


def number_members(body):
    members, value = [], -1
    for part in filter(str.strip, body.split(",")):
        name, _, given = (x.strip() for x in part.partition("="))
        value = int(given) if given else value + 1
        members.append((name, value))
    return members


def point_to(expression, times):
    for _ in range(times):
        expression = f"POINTER({expression})"
    return expression


def split_declaration(text):
    """`const size_t *shape` and `void *(*room)(void *context, size_t count)` as (type, name, arguments or None)."""
    function = re.fullmatch(r"\s*([\w ]+\**)\s*\(\*(\w+)\)\((.*)\)\s*", text, flags=re.S)
    if function:
        return function.group(1).strip(), function.group(2), function.group(3)
    kind, name = re.fullmatch(r"\s*(.*?[ *])(\w+)\s*", text, flags=re.S).groups()
    return kind.strip(), name, None


def list_types(types, arguments):
    if arguments.strip() == "void":
        return []
    return [types.expression(split_declaration(a)[0]) for a in re.sub(r"\s+", " ", arguments).split(",")]


def function_type(types, result, arguments):
    return f"CFUNCTYPE({', '.join([types.expression(result)] + list_types(types, arguments))})"


def write_struct(types, name, body):
    fields = []
    for line in filter(str.strip, re.sub(r"\s+", " ", body).split(";")):
        kind, first, arguments = split_declaration(line.split(",")[0] if "(" not in line else line)
        if arguments is not None:
            fields.append((first, function_type(types, kind, arguments)))
            continue
        fields.append((first, types.expression(kind)))
        for more in line.split(",")[1:]:
            fields.append((more.strip(" *"), types.expression(kind)))
    rows = "".join(f'        ("{field}", {kind}),\n' for field, kind in fields)
    return f"\n\nclass {name}(Structure):\n    _fields_ = [\n{rows}    ]\n"


def write_functions(types, text):
    rows = []
    for result, name, arguments in re.findall(r"TACIT_API ([\w ]+?[ *]+)(\w+)\(([^;]*)\);", text):
        rows.append(f'    "{name}": ({types.expression(result)}, [{", ".join(list_types(types, arguments))}]),\n')
    assert len(rows) == text.count("TACIT_API ") - text.count("#define TACIT_API "), "a function was not understood"
    return "\n\nFUNCTIONS = {  # name: (result, arguments)\n" + "".join(rows) + "}\n"


def write_table():
    text = read_header()
    types = Types(text)
    out = ['# SPDX-License-Identifier: Apache-2.0\n# Written by scripts/make_python_table.py from include/tacit/tacit.h.\n'
           "from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint,\n"
           "                    c_uint64, c_void_p)\n\n"]
    version = [re.search(rf"TACIT_VERSION_{part} (\d+)", text).group(1) for part in ("MAJOR", "MINOR", "PATCH")]
    out.append(f"VERSION = ({', '.join(version)})\n")
    statuses = re.findall(r'X\((\w+), (-?\d+), "', text)
    out.append("STATUSES = {" + ", ".join(f'{value}: "{name}"' for name, value in statuses) + "}\n")
    out.append("ALL_TENSORS = c_size_t(-1).value\n")
    for name, members in types.enums.items():
        out.append(f"\n# {name or 'constants'}\n" + "".join(f"{m.removeprefix('TACIT_')} = {v}\n" for m, v in members))
    for name, (result, arguments) in types.callbacks.items():
        out.append(f"\n{name} = {function_type(types, result, arguments)}\n")
    out += [write_struct(types, name, body) for name, body in types.structs.items()]
    out.append(write_functions(types, text))
    return "".join(out)


if __name__ == "__main__":
    table = write_table()
    if sys.argv[1:] == ["--check"]:
        if not TABLE.exists() or TABLE.read_text() != table:
            sys.exit("python/tacit/_table.py does not follow include/tacit/tacit.h; type: scripts/make_python_table.py")
    else:
        TABLE.write_text(table)

# SPDX-License-Identifier: Apache-2.0
"""tacit/_table.py has the sizes, offsets and values that a C compiler finds in include/tacit/tacit.h."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tacit import _table

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRUCTS = [t for t in vars(_table).values() if isinstance(t, type) and issubclass(t, ctypes.Structure) and t is not ctypes.Structure]
NUMBERS = {name: value for name, value in vars(_table).items() if isinstance(value, int) and name != "ALL_TENSORS"}
COMPILER = next(filter(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")), None)


@unittest.skipUnless(COMPILER, "needs a C compiler")
class Table(unittest.TestCase):
    def ask_compiler(self, expressions):
        """{expression: its value}"""
        lines = "".join(f'printf("%s %lld\\n", "{e}", (long long)({e}));\n' for e in expressions)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "probe.c"
            source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include <tacit/tacit.h>\n"
                              f"int main(void) {{\n{lines}return 0;\n}}\n")
            subprocess.run([COMPILER, "-std=c11", f"-I{ROOT / 'include'}", source, "-o", f"{folder}/probe"], check=True)
            told = subprocess.run([f"{folder}/probe"], check=True, capture_output=True, text=True).stdout
        return {name: int(value) for name, _, value in (line.rpartition(" ") for line in told.splitlines())}

    def test_structs(self):
        expected = {}
        for struct in STRUCTS:
            name = struct.__name__
            expected[f"sizeof({name})"] = ctypes.sizeof(struct)
            for field, kind in struct._fields_:
                expected[f"offsetof({name}, {field})"] = getattr(struct, field).offset
                expected[f"sizeof((({name} *)0)->{field})"] = ctypes.sizeof(kind)
        self.assertGreater(len(expected), 60)
        self.assertEqual(self.ask_compiler(expected), expected)

    def test_values(self):
        expected = {f"TACIT_{name}": value for name, value in NUMBERS.items()}
        expected.update({f"TACIT_{name}": value for value, name in _table.STATUSES.items()})
        expected["(size_t)-1 == TACIT_ALL_TENSORS"] = 1
        expected.update({f"TACIT_VERSION_{part}": value for part, value in zip(("MAJOR", "MINOR", "PATCH"), _table.VERSION)})
        self.assertGreater(len(expected), 30)
        self.assertEqual(self.ask_compiler(expected), expected)

    def test_functions(self):
        """Every function of the header is in the table and in the library."""
        import tacit
        declared = set(re.findall(r"TACIT_API [^;(]*?(tacit_\w+)\(", (ROOT / "include/tacit/tacit.h").read_text()))
        self.assertEqual(declared, set(_table.FUNCTIONS))
        for name in declared:
            self.assertTrue(hasattr(tacit.lib, name))


if __name__ == "__main__":
    unittest.main()

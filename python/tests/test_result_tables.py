# SPDX-License-Identifier: Apache-2.0
"""scripts/results/pytorch_tables.py on answers whose tables are known."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/results/pytorch_tables.py"
ANSWER = dict(step_s=1.0, cpu_s=0.1, sent_bytes=4_000_000, payload_bytes=None, parameters=1_000_000, ranks=4, loss=1.0, held_loss=2.0,
              curve=[])
CURVE = ((10, 1, 3.0), (20, 2, 2.0), (30, 3, 1.0), (40, 4, 1.0), (50, 5, 1.0))  # the mean of three is 1 after 5 seconds
LOST = "`dp` in f32, of DDP's time, GPT, 4 hosts, 200 Mbit/s: median 1.00, upper end 1.02"
TWO = "({0} to {0}, 2 pairs)".format
ROWS = {
    "steps": ["| tacit gossip, aer | 0.400 (0.400 to 0.400) | 0.40 %s | 2.00 | 0.100 |" % TWO("0.40"),
              "| tacit gossip, exp (1 of 1 launches failed) | - | - | - | - |", "- Failed: tacit gossip, exp: RuntimeError: no route"],
    "dp": ["| GPT, 4 hosts, 200 Mbit/s | 1.000 (1.000 to 1.000) | 1.100 (1.100 to 1.100) | 1.100 (1.100 to 1.100) | 1.100 %s |" % TWO("1.100")],
    "loss": ["| tacit dp, `auto` | 1.000 (1.000 to 1.000) | 1.0 (1.0 to 1.0) | 5.00 %s | 1.20 %s | 0.50 |" % (TWO("5.00"), TWO("1.20")),
             "| tacit dp, top-k 20x in int4 | 1.000 (1.000 to 1.000) | not reached by 2 of 2 | - | - | - |",
             "- 100 Mbit/s: the ring of DDP takes 0.483 s there, a step without exchange 0.250 s: 1.9 times."],
    "decent": ["| tacit gossip, exp | 0.900 (0.900 to 0.900) | 0.90 %s | 1.900 (1.900 to 1.900) | -5.00 %% (-5.00 to -5.00, 2 pairs) | 4.00 |" %
               TWO("0.90")],
    "tagc": ["| `tacit.fsdp`, `int8` | 4.00 | 0.300 (0.300 to 0.300) | 0.300 (0.300 to 0.300) | 2154 |"],
    "gravac": ["| tacit dp, top-k 10x | 10.0x | 1.000 | 90.0 ± 0.0 |"],
    "bars": ["| `auto`, time to DDP's final loss, 4 times as much transfer as compute: 2.5 times as fast as DDP | 5.00 %s | met |" % TWO("5.00"),
             "| the same against DDP's PowerSGD hook, where it reaches the loss: 1.3 times | 1.20 %s | **missed** |" % TWO("1.20"),
             "| gossip `aer`, a step: 2 times as fast as DDP | 2.50 %s | met |" % TWO("2.50"),
             "| gossip, never slower than decent-dp: exp | 0.900 (0.900 to 0.900) | met |",
             "| its loss within decent-dp's seeds: exp | 1.900 (1.900 to 1.900) against 2.000 (2.000 to 2.000) | met |",
             "| %s | 1.100 (1.100 to 1.100) | **missed** |" % LOST],
}


def curve(share):
    """DDP's, in this share of its seconds."""
    return [(step, share * seconds, loss) for step, seconds, loss in CURVE]


ANSWERS = {  # what differs from ANSWER; each of two launches
    "steps/ddp": {}, "steps/aer": dict(step_s=0.4, sent_bytes=2_000_000),
    "dp/200mbit/ddp": {}, "dp/200mbit/dp": dict(step_s=1.1),
    "loss/ddp": dict(curve=curve(1)), "loss/ddp-powersgd": dict(curve=curve(0.24)), "loss/alone": dict(step_s=0.25),
    "loss/auto": dict(curve=curve(0.2), payload_bytes=500_000), "loss/topk": dict(curve=curve(1)[:3]),
    "decent/decent-exp": {}, "decent/exp": dict(step_s=0.9, held_loss=1.9),
    "tagc/1gbit/fsdp-f32": dict(step_s=0.4), "tagc/1gbit/fsdp-int8": dict(step_s=0.3),
    "tagc/10gbit/fsdp-f32": dict(step_s=0.2), "tagc/10gbit/fsdp-int8": dict(step_s=0.3),
    "gravac/resnet/ddp": dict(held_accuracy=0.8), "gravac/resnet/topk10": dict(held_accuracy=0.9, sent_bytes=600_000)}


class Tables(unittest.TestCase):
    def setUp(self):
        self.own = tempfile.TemporaryDirectory()
        self.addCleanup(self.own.cleanup)
        self.folder = pathlib.Path(self.own.name)
        for name, differs in ANSWERS.items():
            for number in (1, 2):
                self.write(f"{name}-{number}.json", "gloo says something\n" + json.dumps({**ANSWER, **differs}) + "\n")
        self.write("steps/exp-1.failed", "Traceback\nRuntimeError: no route\n")
        self.write("loss/rate", "100mbit\n")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_script(self, *words, status=0):
        found = subprocess.run([sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True)
        self.assertEqual(found.returncode, status, found.stderr)
        return found.stdout + found.stderr

    def test_rows(self):
        pieces = re.split(r"^(\w+)\n", self.run_script(self.folder), flags=re.M)
        tables = dict(zip(pieces[1::2], pieces[2::2]))
        for name, rows in ROWS.items():
            for row in rows:
                self.assertIn(row + "\n", tables[name])

    def test_a_bar_that_is_lost(self):
        """The page is written all the same; what was not measured stays in it."""
        self.write("page.md", "".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ROWS if name != "bars") +
                   "<!-- bars -->\n| bar | measured |  |\n|---|---|---|\n"
                   f"| older | 1.0 | met |\n| {LOST} | 1.000 (1.000 to 1.000) | met |\n<!-- /bars -->\n")
        page = self.folder / "page.md"
        self.assertIn("no longer met: " + LOST, self.run_script(self.folder, page, status=1))
        for rows in (*ROWS.values(), ["| older | 1.0 | met |"]):
            for row in rows:
                self.assertIn(row + "\n", page.read_text())
        self.run_script(self.folder, page)  # the page calls it missed by now

    def test_a_rate(self):
        self.assertEqual(self.run_script("--rate", self.folder / "loss/alone-1.json", 4), "48mbit\n")


if __name__ == "__main__":
    unittest.main()

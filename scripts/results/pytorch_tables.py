#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pytorch_tables.py FOLDER [PAGE]: the tables of what scripts/results/pytorch.sh has recorded."""
import glob
import json
import os
import statistics
import sys

import record

TITLES = {"ddp": "DDP, f32", "ddp-fp16": "DDP, its fp16 hook", "ddp-powersgd": "DDP, its PowerSGD hook, rank 4",
          "decent-exp": "decent-dp 0.2.3, one-peer-exp", "decent-complete": "decent-dp 0.2.3, complete",
          "dp": "tacit dp, f32", "bf16": "tacit dp, bf16 on the wire", "auto": "tacit dp, `auto`",
          "topk": "tacit dp, top-k 20x in int4", "exp": "tacit gossip, exp", "aer": "tacit gossip, aer"}


def read_answer(path):
    """The line of JSON: gloo prints lines of its own before it."""
    with open(path) as file:
        return json.loads([line for line in file if line.startswith("{")][-1])


def read_section(folder):
    """{method: [answer of each repetition]}, and {method: launches that failed}"""
    answers, failed = {}, {}
    for which in TITLES:
        paths = glob.glob(os.path.join(folder, which + "-[0-9]*.json"))
        answers[which] = {int(path.rpartition("-")[2][:-5]): read_answer(path) for path in paths}
        failed[which] = len(glob.glob(os.path.join(folder, which + "-[0-9]*.failed")))
    return answers, failed


def cells(which, answers, failed):
    """Ratios to DDP are those of launches of one repetition."""
    found, base, lost = answers[which], answers["ddp"], failed[which]
    text = " (%d of %d launches failed)" % (lost, lost + len(found)) if lost else ""
    if not found:
        return [TITLES[which] + text, "-", "-", "-", "-", "-"]
    seconds = [a["step_s"] for a in found.values()]
    ratios = [a["step_s"] / base[i]["step_s"] for i, a in found.items() if i in base]
    return [TITLES[which] + text, "%.3f" % statistics.median(seconds), "%.3f to %.3f" % (min(seconds), max(seconds)),
            "%.2f (%.2f to %.2f)" % (statistics.median(ratios), min(ratios), max(ratios)) if ratios else "-",
            "%.2f" % (statistics.median(a["sent_bytes"] for a in found.values()) / 1e6),
            "%.3f" % statistics.median(a["cpu_s"] for a in found.values())]


def main():
    folder, page = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    answers, failed = read_section(os.path.join(folder, "steps"))
    head = ["method", "seconds per step, median", "lowest to highest", "of DDP's, pairwise", "MB sent per host and step", "CPU s per rank and step"]
    rows = [cells(which, answers, failed) for which in TITLES if answers[which] or failed[which]]
    record.publish({"steps": record.table(head, rows) if rows else None}, page, {})


main()

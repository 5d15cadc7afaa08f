#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/results/texts.md from what scripts/results/texts.sh has recorded.

    scripts/results/texts_tables.py FOLDER PAGE.md

Prints every table for which FOLDER holds runs and puts it between the lines <!-- NAME --> and <!-- /NAME --> of the page.
Tables without runs stay as they are.
"""
import glob
import os
import statistics
import sys

from record import evaluations, publish, read_run, table

METHODS = {
    "dense": "all-reduce, adamw",
    "aer-1.5": "aer atc, adamw, rate x 1.5",
    "exp-1.5": "exp atc, adamw, rate x 1.5",
    "aer-2.8": "aer atc, adamw, rate x 2.8",
    "exp-2.8": "exp atc, adamw, rate x 2.8",
    "accum-aer": "aer awc, accum-adamw of 4, rate x 1.1",
}


def runs(folder, section):
    """{name: steps of a run}"""
    found = sorted(glob.glob(os.path.join(folder, section, "*.jsonl")))
    return {os.path.basename(path)[: -len(".jsonl")]: read_run(path) for path in found}


def last_loss(steps):
    return evaluations(steps)[-1]["val_loss"]


def matrix_table(folder):
    cells = {}  # (text, steps): {method: {seed: loss}}
    for name, steps in runs(folder, "matrix").items():
        text, length, method, seed = name.split("_")
        cells.setdefault((text, int(length)), {}).setdefault(method, {})[seed] = last_loss(steps)
    shown = [m for m in METHODS if any(m in by_method for by_method in cells.values())]
    rows = [[text, "%d" % length] + [matrix_cell(by_method, m) for m in shown] for (text, length), by_method in sorted(cells.items())]
    return table(["text", "steps"] + [METHODS[m] for m in shown], rows) if rows else None


def matrix_cell(by_method, method):
    """Losses of a method by seed, and per cent above dense of the same seeds."""
    dense, losses = by_method.get("dense", {}), by_method.get(method)
    if losses is None:
        return "-"
    above = [100 * (losses[seed] / dense[seed] - 1) for seed in losses if seed in dense] if method != "dense" else []
    gap = ": %+.1f %%" % statistics.mean(above) if above else ""
    if len(above) > 1:
        gap += " (%+.1f to %+.1f)" % (min(above), max(above))
    return ", ".join("%.4f" % losses[seed] for seed in sorted(losses, key=int)) + gap


def rates_table(folder):
    found = {float(name): last_loss(steps) for name, steps in runs(folder, "rates").items()}
    rows = [["%g" % rate, "%.4f" % found[rate]] for rate in sorted(found)]
    return table(["learning rate", "validation loss"], rows) if rows else None


def main():
    folder, page = sys.argv[1:]
    tables = {"rates": rates_table(folder), "matrix": matrix_table(folder)}
    publish(tables, page, {})


if __name__ == "__main__":
    main()

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
CAUSES = {  # graph, order, optimizer, memory of the first moment in steps, rate to dense's, clip
    "dense_clip": ("all-reduce", "-", "adamw", "10", "1", "0.2"),
    "dense": ("all-reduce", "-", "adamw", "10", "1", "1"),
    "dense_accum": ("all-reduce", "-", "accum-adamw of 4", "40", "1", "1"),
    "adamw_atc_clip": ("aer", "atc", "adamw", "10", "2.83", "0.2"),
    "adamw_atc": ("aer", "atc", "adamw", "10", "2.83", "0.5"),
    "adamw_atc_clip4": ("aer", "atc", "adamw", "10", "2.83", "4"),
    "adamw_atc_clip4_complete": ("complete", "atc", "adamw", "10", "2.83", "4"),
    "adamw_atc_clip_rate": ("aer", "atc", "adamw", "10", "2", "0.2"),
    "adamw_awc": ("aer", "awc", "adamw", "10", "2.83", "0.5"),
    "adamw_awc_beta1": ("aer", "awc", "adamw", "38", "2.83", "0.5"),
    "accum2_atc_memory": ("aer", "atc", "accum-adamw of 2", "10", "2", "0.5"),
    "accum_atc_memory": ("aer", "atc", "accum-adamw of 4", "13", "1.5", "0.5"),
    "accum_atc": ("aer", "atc", "accum-adamw of 4", "40", "1.5", "0.5"),
    "accum_atc_complete": ("complete", "atc", "accum-adamw of 4", "40", "1.5", "0.5"),
    "accum_awc_memory": ("aer", "awc", "accum-adamw of 4", "20", "1", "0.2"),
    "accum_awc_rate": ("aer", "awc", "accum-adamw of 4", "40", "0.56", "0.5"),
    "accum_awc_beta1": ("aer", "awc", "accum-adamw of 4", "80", "1.5", "0.5"),
}
SHORT = {  # order, optimizer, memory, rate to 1.6e-2, warm-up; all but the first three: aer
    "dense_1e-2": ("all-reduce", "adamw", "10", "0.63", "80"),
    "dense_1.6e-2": ("all-reduce", "adamw", "10", "1", "80"),
    "dense_2.4e-2": ("all-reduce", "adamw", "10", "1.5", "80"),
    "adamw_atc_1": ("aer atc", "adamw", "10", "1", "80"),
    "adamw_atc_1.5": ("aer atc", "adamw", "10", "1.5", "80"),
    "adamw_atc_2": ("aer atc", "adamw", "10", "2", "80"),
    "adamw_atc_2.8_200": ("aer atc", "adamw", "10", "2.83", "200"),
    "accum_atc_1_memory": ("aer atc", "accum-adamw of 4", "20", "1", "80"),
    "accum_atc_1.5_memory": ("aer atc", "accum-adamw of 4", "20", "1.5", "80"),
    "accum_atc_1": ("aer atc", "accum-adamw of 4", "40", "1", "80"),
    "accum_atc_1.5": ("aer atc", "accum-adamw of 4", "40", "1.5", "80"),
    "adamw_awc_1": ("aer awc", "adamw", "10", "1", "80"),
    "accum_awc_1": ("aer awc", "accum-adamw of 4", "40", "1", "80"),
}


def runs(folder, section):
    """{name: steps of a run}"""
    found = sorted(glob.glob(os.path.join(folder, section, "*.jsonl")))
    return {os.path.basename(path)[: -len(".jsonl")]: read_run(path) for path in found}


def last_loss(steps):
    return evaluations(steps)[-1]["val_loss"]


def last_distances(steps):
    return [m["distance"] for m in evaluations(steps) if "distance" in m]


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


def causes_table(folder):
    found, rows = runs(folder, "causes"), []
    if "dense_clip" not in found:
        return None
    dense = last_loss(found["dense_clip"])
    for name in (name for name in CAUSES if name in found):
        loss, distances = last_loss(found[name]), last_distances(found[name])
        above = "%+.1f %%" % (100 * (loss / dense - 1)) if name != "dense_clip" else "-"
        rows.append(list(CAUSES[name]) + ["%.4f" % loss, above, "%.2f" % distances[-1] if distances else "-"])
    head = ["graph", "order", "optimizer", "memory, steps", "rate / 1.6e-2", "clip", "validation loss", "above the first row", "distance"]
    return table(head, rows)


def short_table(folder):
    found, rows = {name: last_loss(steps) for name, steps in runs(folder, "short").items()}, []
    dense = min((found[name] for name in found if name.startswith("dense")), default=None)
    for name in (name for name in SHORT if name in found and dense):
        above = "%+.1f %%" % (100 * (found[name] / dense - 1)) if found[name] != dense else "-"
        rows.append(list(SHORT[name]) + ["%.4f" % found[name], above])
    head = ["graph, order", "optimizer", "memory, steps", "rate / 1.6e-2", "warm-up", "validation loss", "above the best all-reduce"]
    return table(head, rows) if rows else None


def rates_table(folder):
    found = {float(name): last_loss(steps) for name, steps in runs(folder, "rates").items()}
    rows = [["%g" % rate, "%.4f" % found[rate]] for rate in sorted(found)]
    return table(["learning rate", "validation loss"], rows) if rows else None


def main():
    folder, page = sys.argv[1:]
    tables = {"rates": rates_table(folder), "short": short_table(folder), "causes": causes_table(folder), "matrix": matrix_table(folder)}
    publish(tables, page, {})


if __name__ == "__main__":
    main()

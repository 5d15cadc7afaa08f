#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/results/gossip.md, and the data of its pictures, from what scripts/results/gossip.sh has recorded.

    scripts/results/gossip_tables.py FOLDER [PAGE.md]
    scripts/results/gossip_tables.py --best FOLDER OPTIMIZER    learning rate, weight decay and clip of the best run of section tune

Prints every table for which FOLDER holds launches; with PAGE also puts it between the lines <!-- NAME --> and
<!-- /NAME --> of that page. Tables without launches stay as they are, and so do their pictures. The data of the pictures go to
FOLDER/plot.
"""
import glob
import json
import math
import os
import statistics
import sys

from plan_tables import BAR, rows_of
from record import (evaluations, final_loss, final_losses, load, load_all, machine_line, mean_over_seeds, met, percent_above, publish, reached,
                    runs_by_seed, runs_in, table, write_rows)

RATIOS = ("1", "2", "4")
WIRES = ("f32", "bf16")
BARS = {"1": 1.3, "2": 1.9, "4": 2.2}  # least speed-up of aer
TIME_BARS = {"aer-auto": 5}  # least speed-up of the time to the loss, else 3
LOSS_BAR = 1.0  # most per cent that accum-adamw may lose
TOPOLOGIES = ("aer", "exp", "complete")
PICTURES = {  # of plot_gossip.sh
    "steps": ("gossip-steps", "Times faster than dense all-reduce"),
    "train": ("gossip-loss", "Validation loss and consensus distance"),
    "time": ("gossip-time", "Validation loss against time"),
}
METHODS = {  # of sections train and time
    "dense": "all-reduce, adamw",
    "aer": "aer, adamw",
    "aer-auto": "aer, `compress.codec auto`, adamw",
    "accum-aer": "aer, accum-adamw",
    "accum-exp": "exp, accum-adamw",
    "accum-aer-atc": "aer atc, accum-adamw",
    "accum-aer-delay": "aer delay 1, accum-adamw",
    "accum-exp-atc": "exp atc, accum-adamw",
    "adam-aer": "aer, adamw (DAdam)",
    "adam-exp": "exp, adamw (DAdam)",
}
# Mean step / mean compute at cv 0.1 with 16 ranks, simulated: the runtime model without transfer.
JITTER_MODEL = {"dense": 1.177, "aer": 1.017, "exp": 1.012, "complete": 1.015}


# ---- steps and jitter -----------------------------------------------------------------------------------------------


def method_of(setting):
    configuration = setting["configuration"]
    return configuration["gossip.topology"] if configuration["strategy"] == "gossip" else "dense"


def step_cells(folder):
    """{(wire, ratio): {method: setting of the JSON}}"""
    cells = {}
    for wire in WIRES:
        for ratio in RATIOS:
            for part in ("others", "aer"):
                answer = load(folder, "steps/%s-%sx-%s.json" % (wire, ratio, part))
                if answer is None:
                    continue
                cell = cells.setdefault((wire, ratio), {"parameters": answer["compute"]["parameters"]})
                cell.update({method_of(setting): setting for setting in answer["settings"]})
    return cells


def speedup(cell, method):
    """Dense step / that of a method: median, least, most. aer took turns with dense: block by block."""
    if method == "aer":
        ratio = cell["aer"]["ratio_to_base"]
        return 1 / ratio["median"], 1 / ratio["most"], 1 / ratio["least"]
    return 3 * (cell["dense"]["seconds"]["step"]["mean"] / cell[method]["seconds"]["step"]["mean"],)


def seconds(setting):
    step = setting["seconds"]["step"]
    return "%.2f (%.2f-%.2f)" % (step["mean"], step["least"], step["most"])


def steps_table(folder):
    rows = []
    for (wire, ratio), cell in step_cells(folder).items():
        if "aer" not in cell:
            continue
        median, least, most = speedup(cell, "aer")
        row = [wire, ratio + "x", "%.2f" % cell["dense"]["seconds"]["compute"]["mean"]]
        row += [seconds(cell[m]) if m in cell else "-" for m in ("dense",) + TOPOLOGIES]
        row += ["**%.2f** (%.2f-%.2f)" % (median, least, most), "%.1f %s" % (BARS[ratio], met(median, BARS[ratio]))]
        row += ["%.2f" % speedup(cell, m)[0] if m in cell else "-" for m in TOPOLOGIES[1:]]
        rows.append(row)
    head = ["wire", "all-reduce / compute", "compute, s", "dense, s", "aer", "exp", "complete", "dense / aer", "bar",
            "dense / exp", "dense / complete"]
    return table(head, rows) if rows else None


def jitter_rows(folder):
    answer = load(folder, "jitter/16.json")
    for setting in answer["settings"] if answer else []:
        compute, step = setting["seconds"]["compute"], setting["seconds"]["step"]
        asked = compute["asked_mean"]
        yield method_of(setting), setting["configuration"]["compute.cv"], step["mean"] / asked, step["standard_error"] / asked, setting


def jitter_table(folder):
    rows = []
    for method, cv, share, error, setting in jitter_rows(folder):
        model = JITTER_MODEL[method] if cv else 1.0
        bar = "1.02 " + met(1.02, share) if cv and method != "dense" else ""
        rows.append([method, "%g" % cv, "%.4f +- %.4f" % (share, error), "%.3f" % model, bar,
                     "%d" % setting["seconds"]["step"]["count"], "%.0f %%" % setting["cpu_percent"]])
    return table(["method", "cv", "step / mean compute", "model", "bar", "samples", "CPU"], rows) if rows else None


# ---- predictions ----------------------------------------------------------------------------------------------------


def predictions(folder, name):
    """{method: seconds per step} of one answer of `tacit plan`, by wire."""
    answer = load(folder, "plan/%s.json" % name)
    found = {}
    for method in answer["methods"] if answer else []:
        words = method["label"].split()
        if words[0] == "dense":
            found[words[1], "dense"] = method["seconds"]
        elif words[0] == "gossip" and words[2] == "awc" and words[1] in TOPOLOGIES and method["every"] == 1 and method["delay"] == 0:
            found[words[3], words[1]] = method["seconds"]
    return found


def all_measured(folder):
    """Whether FOLDER holds the measurement of every prediction that it holds: a part of them is no table."""
    cells = step_cells(folder)
    measured = {"steps-%s-%sx" % cell for cell in cells} | ({"jitter"} if load(folder, "jitter/16.json") else set())
    names = {os.path.basename(path)[:-5] for path in glob.glob(os.path.join(folder, "plan/*.json"))}
    return {name for name in names if name == "jitter" or name.startswith("steps-")} <= measured


def predicted_cells(folder):
    """What plan_tables.cells() yields, of sections steps and jitter."""
    for (wire, ratio), cell in step_cells(folder).items():
        found = predictions(folder, "steps-%s-%sx" % (wire, ratio))
        for method in ("dense",) + TOPOLOGIES:
            if method in cell and (wire, method) in found:
                yield "steps", ratio + "x", method, wire, cell[method]["seconds"]["step"]["mean"], found[wire, method]
    found = predictions(folder, "jitter")
    for method, cv, _, _, setting in jitter_rows(folder):
        if cv and ("f32", method) in found:
            yield "jitter", "cv %g" % cv, method, "f32", setting["seconds"]["step"]["mean"], found["f32", method]


def plan_line(folder):
    """How many of the cells of steps and jitter the planner predicts how well."""
    rows = list(rows_of(list(predicted_cells(folder)), 2)) if all_measured(folder) else []
    count = lambda key: sum(row[key] for row in rows)
    return "%d of %d cells are off by more than %.0f %%, the worst by %.1f %%; %d lie outside the printed range; %d verdicts are wrong." % (
        count("miss"), len(rows), BAR, max(row["off"] for row in rows), count("out"), count("wrong")) if rows else None


# ---- training -------------------------------------------------------------------------------------------------------


def train_runs(folder):
    """{method: {seed: steps}}"""
    runs = runs_by_seed(folder, "train")
    return {method: runs[method] for method in METHODS if method in runs}


def mean_above(excess):
    """+0.12 % (-0.30 to +0.54): the mean of seeds, the least and the most; infinite where one diverged."""
    return "%+.2f %% (%+.2f to %+.2f)" % (statistics.mean(excess), min(excess), max(excess)) if excess else "-"


def last_distance(steps):
    """Of the last evaluation, and the largest of all."""
    values = [m["distance"] for m in evaluations(steps) if "distance" in m]
    return (values[-1], max(values)) if values else None


def train_table(folder):
    runs, rows = train_runs(folder), []
    if "dense" not in runs:
        return None
    dense = final_losses(runs["dense"])
    for method, by_seed in runs.items():
        losses = final_losses(by_seed)
        excess = percent_above(losses, dense)
        distances = [d for d in map(last_distance, by_seed.values()) if d]
        row = [METHODS[method], ", ".join("%.4f" % losses[seed] for seed in losses), "%.4f" % statistics.mean(losses.values())]
        row.append(mean_above(excess) if method != "dense" else "-")
        row.append("1 %% %s" % met(LOSS_BAR, statistics.mean(excess)) if excess and method.startswith("accum") else "-")
        row.append("%.3f (at most %.3f)" % tuple(map(statistics.mean, zip(*distances))) if distances else "-")
        rows.append(row)
    seeds = ", ".join(sorted(dense))
    return table(["method", "validation loss, seeds " + seeds, "mean", "above all-reduce", "bar", "consensus distance at the end"], rows)


def tune_runs(folder):
    """{method: {"LR_DECAY_CLIP": loss}}"""
    found = {}
    for name, steps in runs_in(folder, "tune").items():
        method, setting = name.split("_", 1)
        found.setdefault(method, {})[setting] = final_loss(steps)
    return {method: found[method] for method in METHODS if method in found}


def best_settings(folder, optimizer):
    """"LR DECAY CLIP" of the best run of section tune, or an empty text."""
    for method, losses in tune_runs(folder).items():
        if method.split("-")[0] == optimizer:
            return min(losses, key=losses.get).replace("_", " ")
    return ""


def time_runs(folder):
    """{wire: {method: steps}} of wires with a dense run that ended well, and another."""
    by_method = runs_by_seed(folder, "time")
    runs = {wire: {method: by_method[method][wire] for method in METHODS if wire in by_method.get(method, {})} for wire in WIRES}
    return {wire: found for wire, found in runs.items() if math.isfinite(final_loss(found.get("dense"))) and len(found) > 1}


def time_to(there):
    return "%d, %.0f s" % (there["step"], there["elapsed"]) if there else "not reached"


def time_table(folder):
    rows = []
    for wire, runs in time_runs(folder).items():
        end = final_loss(runs["dense"])
        near = end * (1 + LOSS_BAR / 100)
        for method, steps in runs.items():
            row = [wire, METHODS[method], "%d" % len(steps), "%.0f" % (1e3 * steps[-1]["elapsed"] / len(steps)),
                   "%.4f" % min(m["val_loss"] for m in evaluations(steps))]
            for goal in (end, near):
                dense, there = reached(runs["dense"], goal), reached(steps, goal)
                row.append(time_to(there))
                if method != "dense":
                    gain = dense["elapsed"] / there["elapsed"] if there else 0
                    text = "%.2f" % gain if there else "-"
                    bar = TIME_BARS.get(method, 3)
                    row.append("**%s**, %g %s" % (text, bar, met(gain, bar)) if goal == end else text)
                else:
                    row.append("-")
            rows.append(row)
    head = ["wire", "method", "steps laid out", "ms per step", "least loss", "dense's last loss: steps, time", "shorter by, bar",
            "1 % above it: steps, time", "shorter by"]
    return table(head, rows) if rows else None


# ---- pictures -------------------------------------------------------------------------------------------------------


def plot_steps(folder):
    cells = step_cells(folder)
    for wire in WIRES:
        rows = []
        for ratio in RATIOS:
            cell = cells.get((wire, ratio), {})
            row = ["%sx" % ratio]
            for method in TOPOLOGIES:
                row += ["%.4f %.4f %.4f" % speedup(cell, method)] if method in cell and "dense" in cell else ["? ? ?"]
            rows.append(row + [BARS[ratio]])
        if cells:
            write_rows(os.path.join(folder, "plot/steps-" + wire), rows)


def plot_train(folder):
    for method, by_seed in train_runs(folder).items():
        for key in ("val_loss", "distance"):
            rows = mean_over_seeds(by_seed, key)
            if rows:
                write_rows(os.path.join(folder, "plot/%s-%s" % (key, method)), rows)


def plot_time(folder):
    for wire, runs in time_runs(folder).items():
        for method, steps in runs.items():
            rows = [(m["elapsed"], m["val_loss"]) for m in evaluations(steps)]
            write_rows(os.path.join(folder, "plot/time-%s-%s" % (method, wire)), rows)


def main():
    if sys.argv[1] == "--best":
        print(best_settings(*sys.argv[2:]))
        return
    folder = sys.argv[1]
    tables = {"machine": machine_line(load_all(folder, "steps/*.json", "jitter/*.json")) if step_cells(folder) else None, "steps": steps_table(folder),
              "jitter": jitter_table(folder), "plan": plan_line(folder),
              "train": train_table(folder), "time": time_table(folder)}
    for plot in (plot_steps, plot_train, plot_time):
        plot(folder)
    publish(tables, sys.argv[2] if len(sys.argv) > 2 else None, PICTURES)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of compress.codec auto against fixed forms and other policies, from what scripts/results/auto.sh has recorded.

    scripts/results/auto_tables.py FOLDER
    scripts/results/auto_tables.py --rate FOLDER RATIO        rate at which a dense f32 all-reduce takes RATIO times the compute
    scripts/results/auto_tables.py --emulated PROFILE RATIO   the same of 8 hosts that compute what a profile says

Prints one table per cluster. Time to equal loss: seconds until the validation loss is at most 0.5 % above the final one of dense
f32 with the same text and seed.
"""
import glob
import json
import math
import os
import statistics
import sys

from record import lab_rate, reached, runs_in, table

LOSSLESS = 1.005
SHORT = ("dense", "dense-bf16", "int8", "int4")  # whose seconds per step come from a short run, and losses from section loss


def emulated_rate(path, ratio):
    with open(path) as file:
        profile = json.load(file)
    layers = profile["layers"]
    floats = sum(math.prod(t["shape"]) for layer in layers for t in layer.get("tensors", []))
    seconds = sum(layer.get("forward_s", 0) + layer.get("backward_s", 0) for layer in layers) + profile.get("update_s", 0)
    return "%gmbit" % float("%.3g" % (8e-6 * 2 * 7 / 8 * 4 * floats / (ratio * seconds)))


def steps_table(folder):
    """A row per cluster: median of the blocks (least to most) of every setting, ms."""
    paths = sorted(glob.glob(os.path.join(folder, "steps/*.json")), key=lambda path: float(os.path.basename(path)[:-5]))
    rows = []
    for path in paths:
        with open(path) as file:
            settings = json.load(file)["settings"]
        blocks = [s["seconds"]["block"] for s in settings]
        rows.append([os.path.basename(path)[:-5]] + ["%.1f (%.1f-%.1f)" % tuple(1e3 * b[k] for k in ("median", "least", "most")) for b in blocks])
    return table(["dense f32: communication / compute"] + [s["label"] for s in settings], rows) if rows else ""


def step_seconds(steps):
    return statistics.median(m["step_s"] for m in steps[len(steps) // 3 :])


def whole_run(lab, losses, ratio, text, method, seed):
    """Steps with `elapsed` on that cluster: of section lab, or those of section loss at the seconds of a short run."""
    if method not in SHORT:
        return lab.get("%s-%s-%s-%s" % (ratio, text, method, seed))
    short = [steps for name, steps in lab.items() if name.startswith("%s-" % ratio) and name.split("-", 2)[2].rsplit("-", 1)[0] == method]
    whole = losses.get("%s-%s-%s" % (text, method, seed))
    if not short or not whole:
        return None
    seconds = step_seconds(short[0])
    return [dict(m, elapsed=seconds * m["step"]) for m in whole]


def cells(steps, goal):
    """Seconds per step, loss, seconds to the goal."""
    there = reached(steps, goal)
    seconds = steps[-1]["elapsed"] / steps[-1]["step"]
    return seconds, steps[-1].get("val_loss", math.inf), there["elapsed"] if there else math.inf


def figures(lab, losses, ratio, texts, method, seeds):
    """[(text, seconds per step, loss above dense in per cent, seconds to equal loss)], means over seeds."""
    found = []
    for text in texts:
        each = []
        for seed in seeds:
            dense = losses.get("%s-dense-%s" % (text, seed))
            steps = whole_run(lab, losses, ratio, text, method, seed)
            if dense and steps:
                base = dense[-1]["val_loss"]
                step, loss, time = cells(steps, LOSSLESS * base)
                each.append((step, 100 * (loss / base - 1), time))
        found.append([statistics.mean(column) for column in zip(*each)] if each else None)
    return found


def cluster_table(lab, losses, ratio, texts, methods, seeds):
    all_figures = {method: figures(lab, losses, ratio, texts, method, seeds) for method in methods}
    best = [min((f[i][2] for m, f in all_figures.items() if f[i] and m in SHORT + ("topk",)), default=math.inf) for i in range(len(texts))]
    rows = []
    for method, found in all_figures.items():
        row = [method]
        for i, one in enumerate(found):
            if one is None:
                row.append("-")
                continue
            time = "never" if math.isinf(one[2]) else "%.0f s, %.2f of the best fixed form" % (one[2], one[2] / best[i])
            row.append("%.1f ms, %+.2f %%, %s" % (1e3 * one[0], one[1], time))
        rows.append(row)
    return table(["method"] + ["%s: per step, loss above dense, time to equal loss" % text for text in texts], rows)


def main():
    if sys.argv[1] == "--rate":
        print(lab_rate(sys.argv[2], float(sys.argv[3])))
        return
    if sys.argv[1] == "--emulated":
        print(emulated_rate(sys.argv[2], float(sys.argv[3])))
        return
    print(steps_table(sys.argv[1]))
    lab, losses = runs_in(sys.argv[1], "lab"), runs_in(sys.argv[1], "loss")
    texts = list(dict.fromkeys(name.split("-")[0] for name in losses))
    seeds = sorted({name.rsplit("-", 1)[1] for name in losses})
    methods = list(dict.fromkeys(name.split("-", 2)[2].rsplit("-", 1)[0] for name in lab))
    for ratio in sorted({name.split("-")[0] for name in lab}, key=float):
        print("\nDense f32: communication %s of the compute (%s)\n" % (ratio, lab_rate(sys.argv[1], float(ratio))))
        print(cluster_table(lab, losses, ratio, texts, methods, seeds))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/results/compression.md, and the data of its pictures, from what scripts/results/compression.sh has recorded.

    scripts/results/compression_tables.py FOLDER [PAGE.md]
    scripts/results/compression_tables.py --rate FOLDER    rate at which a dense f32 all-reduce takes 8 times the compute

Prints every table for which FOLDER holds launches; with PAGE also puts it between the lines <!-- NAME --> and
<!-- /NAME --> of that page. Tables without launches stay as they are, and so do their pictures. The data of the pictures go to
FOLDER/plot.
"""
import glob
import math
import os
import re
import statistics
import sys

from plan_tables import cell_of, predictions_table, rows_of
from record import (commit_line, compute_seconds, evaluations, final_loss, final_losses, lab_rate, load, load_all, machine_line, merge_rows, met,
                    percent_above, percent_interval, publish, reached, runs_by_seed, runs_in, table, within, write_rows)

RANKS = 8
RATIO = 8  # dense f32 all-reduce / compute in the lab
METHODS = {
    "dense": "dense f32",
    "dense-bf16": "dense bf16",
    "c20": "20x (`c20`)",
    "c30": "30x (`c30`)",
    "c30-beta": "30x, beta1 0.8",
    "dense-beta": "dense f32, beta1 0.8",
    "int4": "`int4`",
    "gravac-int4": "`gravac`, top-k int4",
    "gravac": "`gravac`, top-k",
    "accordion": "`accordion`, top-k, 1 bucket",
    "accordion-buckets": "`accordion`, top-k, 13 buckets",
    "topk-10": "top-k 10x",
    "topk-1000": "top-k 1000x",
}
LOCAL = {"f32": "f32", "int4": "`int4`", "sparseloco": "`sparseloco`, k = 64 of 4096"}
FAMILIES = ("topk", "topk-int4", "bits", "onebit")  # of settings of section cliff
PICTURES = {  # of plot_compression_results.sh
    "lab": ("compression-time", "Validation loss against time"),
    "cliff": ("compression-cliff", "Validation loss against bits per parameter and half"),
}
COMPRESSION_BARS = {"c20": (20, 0.5), "c30": (30, 1.0), "c30-beta": (30, 1.0)}  # least times fewer bytes, most per cent of loss
SEARCHED = {"c30-beta": ", with beta1 0.8, which was searched on Shakespeare after 0.9 had missed"}
SPEED_BARS = {"dense": 6.0, "dense-bf16": 3.2}  # least speed-up of the time to dense's loss
LOCAL_BARS = {"int4": 0.5, "sparseloco": 1.0}


# ---- runs -----------------------------------------------------------------------------------------------------------


def runs_of(folder, section, names):
    """{method: {seed: steps}}"""
    runs = runs_by_seed(folder, section)
    return {method: runs[method] for name in names for method in sorted(runs) if method.split(":")[0] == name}


def title(method):
    """METHOD:FACTOR ran FACTOR times as many steps."""
    name, _, factor = method.partition(":")
    return METHODS[name] + (", %s times the steps" % factor if factor else "")


def sent(steps, keys=("bytes_sent", "bytes_received")):
    """Bytes per step that rank 0 sent and received, mean over the run."""
    return sum(m[key] for m in steps for key in keys) / len(steps)


def dense_bytes(runs):
    """What sent() is for a dense f32 run of the section."""
    return sent(next(iter(runs["dense"].values())))


def fewer(steps, dense):
    """Times fewer bytes than dense f32 over the run, mean over ranks: those of one rank depend on which elements it owns.
    With localsgd a step that averages has that of its whole period, others none. Where no step has it, of rank 0."""
    shares = [1 / m["compression"] for m in steps if m.get("compression")]
    return len(shares) / sum(shares) if shares else dense / sent(steps)


def parameters(runs):
    """A dense all-reduce of f32 sends 2 (N - 1) / N times 4 bytes of each."""
    return dense_bytes(runs) / 2 / (2 * (RANKS - 1) / RANKS * 4)


def spread(values, form):
    """mean (least to most), or the only value."""
    if not values:
        return "-"
    if len(values) == 1 or min(values) == max(values):
        return form % values[0]
    return (form + " (" + form + " to " + form + ")") % (statistics.mean(values), min(values), max(values))


# ---- settings -------------------------------------------------------------------------------------------------------


def flags_of(folder, method):
    """What a recorded command has behind the seed; None: no run of this method."""
    for section in ("lab", "loss"):
        path = os.path.join(folder, section, method + "-1.txt.command")
        if os.path.exists(path):
            with open(path) as file:
                return re.split(r"--train\.seed \S+", file.read())[1].strip()
    return None


def settings_table(folder):
    found = {method: flags_of(folder, method) for method in METHODS}
    rows = [[METHODS[method], "`%s`" % flags if flags else ""] for method, flags in found.items() if flags is not None]
    return table(["method", "flags"], rows) if rows else None


# ---- losses of fixed settings ---------------------------------------------------------------------------------------


def loss_table(folder, section):
    runs = runs_of(folder, section, METHODS)
    if "dense" not in runs:
        return None
    base, dense, rows = final_losses(runs["dense"]), dense_bytes(runs), []
    for method, by_seed in runs.items():
        losses = final_losses(by_seed)
        rows.append([title(method), spread([fewer(steps, dense) for steps in by_seed.values()], "%.1f"),
                     ", ".join("%s: %.4f" % item for item in sorted(losses.items())), "%.4f" % statistics.mean(losses.values()),
                     percent_interval(percent_above(losses, base)) if method != "dense" else "-"])
    return table(["method", "times fewer bytes", "seed: validation loss", "mean", "above dense f32 of the same seed"], rows)


def loss_bars(folder, section, text):
    runs = runs_of(folder, section, METHODS)
    for method, (times, loss) in COMPRESSION_BARS.items():
        if method in runs and "dense" in runs:
            dense = dense_bytes(runs)
            ratio = statistics.mean(fewer(steps, dense) for steps in runs[method].values())
            pairs = percent_above(final_losses(runs[method]), final_losses(runs["dense"]))
            yield ("%s: at least %dx fewer bytes, loss within %g %%%s" % (text, times, loss, SEARCHED.get(method, "")),
                   "%.1fx, %s" % (ratio, percent_interval(pairs)), within(pairs, loss) if ratio >= times else "**missed**")


def local_penalty(n):
    """Loss factor of N replicas of n parameters against one, arXiv 2503.09799 (fit to 35 M - 2.4 B, H = 30): N^r."""
    return RANKS ** (1.0923 * n**-0.2342)


def local_table(folder):
    runs, dense_runs = runs_of(folder, "localsgd", LOCAL), runs_of(folder, "loss", ("dense",))
    if "f32" not in runs or not dense_runs:
        return None
    base, dense, size = final_losses(runs["f32"]), final_losses(dense_runs["dense"]), dense_bytes(dense_runs)
    rows = []
    for wire, by_seed in runs.items():
        losses = final_losses(by_seed)
        rows.append([LOCAL[wire], spread([fewer(steps, size) for steps in by_seed.values()], "%.0f"),
                     ", ".join("%s: %.4f" % item for item in sorted(losses.items())), "%.4f" % statistics.mean(losses.values()),
                     percent_interval(percent_above(losses, base)) if wire != "f32" else "-", percent_interval(percent_above(losses, dense))])
    n = parameters(dense_runs)
    head = ["differences", "times fewer bytes than dense", "seed: validation loss", "mean", "above localsgd f32", "above dense f32"]
    return table(head, rows) + "\n\nThe scaling law expects %+.1f %% for %d replicas of %.2f M parameters (N^r, r = 1.0923 n^-0.2342)." % (
        100 * (local_penalty(n) - 1), RANKS, n / 1e6)


def local_bars(folder):
    runs = runs_of(folder, "localsgd", LOCAL)
    for wire, bar in LOCAL_BARS.items():
        if wire in runs and "f32" in runs:
            values = percent_above(final_losses(runs[wire]), final_losses(runs["f32"]))
            yield ("localsgd, H = 30, %s: at most %g %% above its f32 wire" % (wire, bar), percent_interval(values), within(values, bar))


# ---- the lab --------------------------------------------------------------------------------------------------------


def rate_line(folder):
    path = os.path.join(folder, "rate/chosen")
    if not os.path.exists(path):
        return None
    with open(path) as file:
        rate = float(file.read().strip()[: -len("mbit")])
    seconds, sent_bytes = compute_seconds(folder)
    return ("A step computes for %.1f ms (rank 0, median of a dense run whose links have no limit); a dense f32 all-reduce puts %.3f MB on a "
            "link, which take %.1f times as long at **%g Mbit/s**." % (1e3 * seconds, sent_bytes / 1e6, 8e-6 * sent_bytes / rate / seconds, rate))


def lab_runs(folder, section):
    """Runs of a section of the lab. The dense runs of section lab are short and of seed 1: their seconds are those of every step,
    their losses those of section loss, since bits do not depend on the network."""
    runs = runs_of(folder, section, METHODS)
    elsewhere = runs_of(folder, "loss", ("dense", "dense-bf16")) if section == "lab" else {}
    for method in ("dense", "dense-bf16"):
        if "1" not in runs.get(method, {}):
            continue
        short = runs[method]["1"]
        seconds = short[-1]["elapsed"] / len(short)
        for seed, steps in elsewhere.get(method, {}).items():
            runs[method][seed] = [dict(m, elapsed=seconds * m["step"], step_s=short[i % len(short)]["step_s"]) for i, m in enumerate(steps)]
    return runs if "1" in runs.get("dense", {}) else {}


def seconds_to_loss(runs):
    """{method: {seed: seconds until the final loss of dense f32 of that seed, infinite: never}}, of seeds whose dense run ended well"""
    found = {}
    for method, by_seed in runs.items():
        for seed, steps in by_seed.items():
            if math.isfinite(final_loss(runs["dense"].get(seed))):
                there = reached(steps, final_loss(runs["dense"][seed]))
                found.setdefault(method, {})[seed] = there["elapsed"] if there else math.inf
    return found


def speed_ups(runs, times, method, base):
    """Per seed; 0: never reached. Of a base that does not reach the loss the whole run counts: a lower bound."""
    found = []
    for seed in sorted(times.get(method, {})):
        if seed in times.get(base, {}):
            seconds = min(times[base][seed], runs[base][seed][-1]["elapsed"])
            found.append(seconds / times[method][seed])
    return found


def quartiles(steps):
    low, middle, high = statistics.quantiles([1e3 * m["step_s"] for m in steps], n=4)
    return "%.1f (%.1f-%.1f)" % (middle, low, high)


def lab_table(folder, section):
    runs, rows = lab_runs(folder, section), []
    if not runs:
        return None
    times, dense, base = seconds_to_loss(runs), dense_bytes(runs), final_losses(runs["dense"])
    for method, by_seed in runs.items():
        losses, reach = final_losses(by_seed), times.get(method, {})
        never = sum(math.isinf(s) for s in reach.values())
        to = spread([s for s in reach.values() if math.isfinite(s)], "%.0f") + (", never: %d of %d" % (never, len(reach)) if never else "")
        rows.append([title(method), spread([fewer(steps, dense) for steps in by_seed.values()], "%.1f"),
                     spread([steps[-1]["elapsed"] for steps in by_seed.values()], "%.0f"), quartiles(by_seed.get("1", next(iter(by_seed.values())))),
                     spread(list(losses.values()), "%.4f"), percent_interval(percent_above(losses, base)) if method != "dense" else "-",
                     "never" if never == len(reach) else to] +
                    [spread(speed_ups(runs, times, method, other), "%.2f") if never < len(reach) else "-" for other in ("dense", "dense-bf16")])
    head = ["method", "times fewer bytes", "seconds of the run", "ms per step, seed 1: median (quartiles)", "validation loss",
            "above dense f32 of the same seed", "seconds to dense f32's loss", "dense f32 / it", "dense bf16 / it"]
    return table(head, rows)


def speed_bars(runs, times):
    others = [m for m in times if not m.startswith("dense")]
    for base, bar in SPEED_BARS.items():
        if base in times and others:
            gains = {m: statistics.mean(speed_ups(runs, times, m, base) or [0]) for m in others}
            best = max(gains, key=gains.get)
            yield ("8 hosts: time to dense f32's final loss at least %g times shorter than %s" % (bar, METHODS[base]),
                   "%.2f (%s)" % (gains[best], title(best)) if gains[best] > 0 else "no method reaches it", met(gains[best], bar))


def lab_bars(folder):
    runs = lab_runs(folder, "lab")
    if runs:
        yield from speed_bars(runs, seconds_to_loss(runs))


# ---- the cliff ------------------------------------------------------------------------------------------------------


def family(setting):
    if setting.startswith("topk"):
        return setting.rsplit("-", 1)[0]
    return setting if setting in FAMILIES else "bits"


def cliff_points(folder):
    """{learning rate: {setting: (bits per parameter and half, final loss)}} with dense in it."""
    points = {}
    for name, steps in runs_in(folder, "cliff").items():
        setting, rate = name.split("_")
        points.setdefault(rate, {})[setting] = steps
    points = {rate: found for rate, found in points.items() if "dense" in found}
    return {rate: {setting: (32 / fewer(steps, sent(found["dense"])), final_loss(steps)) for setting, steps in found.items()}
            for rate, found in sorted(points.items(), key=lambda item: -float(item[0]))}


def cliff_table(folder):
    points = cliff_points(folder)
    settings = sorted({s for found in points.values() for s in found}, key=lambda s: -max(f[s][0] for f in points.values() if s in f))
    rows = []
    for setting in settings:
        row = [setting.replace("-int4-", " int4 ").replace("-", " ")]
        for found in points.values():
            bits, loss = found.get(setting, (math.nan, math.nan))
            row += ["%.2f" % bits, "%.4f" % loss, "%+.2f %%" % (100 * (loss / found["dense"][1] - 1))] if setting in found else ["-"] * 3
        rows.append(row)
    head = ["codec"]
    for rate in points:
        head += ["bits, lr " + rate, "loss", "above dense"]
    return table(head, rows) if rows else None


def tune_table(folder):
    losses = {}
    for name, steps in runs_in(folder, "tune").items():
        method, rate = name.split("_")
        losses.setdefault(method, {})[float(rate)] = final_loss(steps)
    rates = sorted({rate for found in losses.values() for rate in found})
    rows = [[METHODS[m]] + [("**%.4f**" if losses[m][r] == min(losses[m].values()) else "%.4f") % losses[m][r] if r in losses[m] else "-" for r in rates]
            for m in METHODS if m in losses]
    return table(["method"] + ["lr %g" % rate for rate in rates], rows) if rows else None


# ---- predictions ----------------------------------------------------------------------------------------------------


def plan_cells(folder):
    """What plan_tables.cells() yields, of section plan."""
    for path in sorted(glob.glob(os.path.join(folder, "plan/*-measured.json")), key=plan_order):
        base = os.path.basename(path)[: -len("-measured.json")]
        predicted = load(folder, "plan/%s-predicted.json" % base)
        if predicted:
            rate, method = base.split("-", 1)
            yield cell_of("8x1, %s Mbit/s" % rate[: -len("mbit")], "GPT", "dense" if method.startswith("dense") else method,
                          load(folder, "plan/%s-measured.json" % base), predicted)


def plan_order(path):
    rate, method = os.path.basename(path).split("-", 1)
    return float(rate[: -len("mbit")]), not method.startswith("dense"), method


def plan_bars(folder):
    rows = list(rows_of(list(plan_cells(folder)), 4))
    if rows:
        yield ("plan: every step within 10 %, no wrong verdict", "%d of %d beyond, the worst %.1f %%; %d wrong" % (
            sum(row["miss"] for row in rows), len(rows), max(row["off"] for row in rows), sum(row["wrong"] for row in rows)),
               met(0, sum(row["miss"] + row["wrong"] for row in rows)))


# ---- pictures -------------------------------------------------------------------------------------------------------


def plot_lab(folder):
    for method, by_seed in lab_runs(folder, "lab").items():
        write_rows(os.path.join(folder, "plot/time-" + method), [(m["elapsed"], m["val_loss"]) for m in evaluations(by_seed["1"])]
                   if "1" in by_seed else [])


def plot_cliff(folder):
    for rate, found in cliff_points(folder).items():
        write_rows(os.path.join(folder, "plot/cliff-dense_" + rate), [(found["dense"][1],)])
        for name in FAMILIES:
            points = sorted(point for setting, point in found.items() if setting != "dense" and family(setting) == name)
            if points:
                write_rows(os.path.join(folder, "plot/cliff-%s_%s" % (name, rate)), points)


# ---- the page -------------------------------------------------------------------------------------------------------


def bars_table(folder, page):
    bars = [*loss_bars(folder, "loss", "Shakespeare"), *loss_bars(folder, "text", "the Bible"), *lab_bars(folder),
            *local_bars(folder), *plan_bars(folder)]
    return table(["asked", "measured", ""], merge_rows(page, "bars", [list(bar) for bar in bars])) if bars else None


def main():
    if sys.argv[1] == "--rate":
        print(lab_rate(sys.argv[2], RATIO))
        return
    folder, page = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    tables = {"machine": machine_line(load_all(folder, "plan/*-measured.json")), "bars": bars_table(folder, page), "settings": settings_table(folder),
              "loss": loss_table(folder, "loss"), "text": loss_table(folder, "text"),
              "rate": rate_line(folder), "lab": lab_table(folder, "lab"), "hosts": lab_table(folder, "hosts"),
              "localsgd": local_table(folder), "cliff": cliff_table(folder), "tune": tune_table(folder),
              "plan": predictions_table(list(plan_cells(folder)), 4)}
    tables["loss commit"] = commit_line(folder, "loss")
    tables["lab commit"] = commit_line(folder, "lab", "rate")
    for plot in (plot_lab, plot_cliff):
        plot(folder)
    publish(tables, page, PICTURES)


if __name__ == "__main__":
    main()

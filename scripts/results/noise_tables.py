#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/results/noise.md from what scripts/results/noise.sh has recorded.

    scripts/results/noise_tables.py FOLDER [PAGE.md]

Prints the table of every number of steps for which FOLDER holds runs, and that of codecs of mixes, and puts each between
the lines <!-- STEPS --> and <!-- /STEPS --> (codecs: <!-- codecs -->) of the page.
"""
import os
import sys

from record import final_loss, percent_above, percent_interval, publish, runs_in, table

VARIANTS = {"plain": "as it was", "start": "dense start", "denoise": "without the noise", "both": "both",
            "default": "by default"}


def losses_in(folder, section):
    """{text: {(graph, variant): {seed: loss}}}"""
    found = {}
    for name, run in runs_in(folder, section).items():
        text, graph, variant, seed = name.split("_")
        found.setdefault(text, {}).setdefault((graph, variant), {})[int(seed)] = final_loss(run)
    return found


def above_dense(losses, dense):
    return percent_interval(percent_above(losses, dense))


def ablation(folder, section):
    rows, texts = [], losses_in(folder, section)
    shown = [v for v in VARIANTS if any(v == key[1].replace("-atc", "") for runs in texts.values() for key in runs)]
    for text, runs in texts.items():
        dense = runs.get(("dense", "dense"), {})
        of_dense = ", ".join("%.4f" % dense[seed] for seed in sorted(dense))
        for graph in sorted({key[0] for key in runs} - {"dense"}):
            for suffix, order in (("", "awc"), ("-atc", "atc")):
                cells = [runs.get((graph, v + suffix)) for v in shown]
                if any(cells):
                    rows.append([text, of_dense, graph, order] + [above_dense(c, dense) if c else "-" for c in cells])
    head = ["text", "dense all-reduce, by seed", "graph", "order"] + [VARIANTS[v] for v in shown]
    return table(head, rows) if rows else None


def codecs_in(folder):
    """{(ranks, graph, codec): {seed: (loss, bytes per step)}}; bytes are those after the dense start."""
    found = {}
    for name, run in runs_in(folder, "codecs").items():
        ranks, graph, codec, seed = name.split("_")
        steps = [r for r in run if "bytes_sent" in r and "step" in r]
        after = [r["bytes_sent"] for r in steps if r["step"] > 0.15 * steps[-1]["step"]]
        found.setdefault((int(ranks), graph, codec), {})[int(seed)] = (
            final_loss(run), sum(after) / len(after))
    return found


def compare(seeds, plain):
    """"7.5 x, +0.1 %": bytes and loss against those of `plain`, over the seeds that both have."""
    pairs = [seed for seed in sorted(seeds) if seed in plain]
    if not pairs:
        return "-"
    fewer = sum(plain[seed][1] / seeds[seed][1] for seed in pairs) / len(pairs)
    return "%.1f x, %s" % (fewer, above_dense(losses_of(seeds), losses_of(plain)))


def losses_of(seeds):
    return {seed: loss for seed, (loss, _) in seeds.items()}


def codecs(folder):
    runs = codecs_in(folder)
    sizes = sorted({key[0] for key in runs})
    rows = [[graph, codec] + [compare(runs.get((ranks, graph, codec), {}), runs.get((ranks, graph, "none"), {})) for ranks in sizes]
            for graph, codec in sorted({key[1:] for key in runs}) if codec != "none"]
    return table(["graph", "codec"] + ["%d ranks" % ranks for ranks in sizes], rows)


def main():
    folder, page = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    lengths = sorted((int(name) for name in os.listdir(folder) if name.isdigit()))
    tables = {str(steps): ablation(folder, str(steps)) for steps in lengths}
    if os.path.isdir(os.path.join(folder, "codecs")):
        tables["codecs"] = codecs(folder)
    publish(tables, page, {})


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/results/noise.md from what scripts/results/noise.sh has recorded.

    scripts/results/noise_tables.py FOLDER [PAGE.md]

Prints the table of every number of steps for which FOLDER holds runs, and that of codecs of mixes, and puts each between
the lines <!-- STEPS --> and <!-- /STEPS --> (codecs: <!-- codecs -->) of the page.
"""
import glob
import os
import sys

from record import evaluations, percent_interval, publish, read_run, table

VARIANTS = {"plain": "as it was", "start": "dense start", "denoise": "without the noise", "both": "both"}


def losses_in(folder):
    """{text: {(graph, variant): {seed: loss}}}"""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        text, graph, variant, seed = os.path.basename(path)[: -len(".jsonl")].split("_")
        loss = evaluations(read_run(path))[-1]["val_loss"]
        found.setdefault(text, {}).setdefault((graph, variant), {})[int(seed)] = loss
    return found


def above_dense(losses, dense):
    return percent_interval([100 * (losses[seed] / dense[seed] - 1) for seed in sorted(losses) if seed in dense])


def ablation(folder):
    rows, texts = [], losses_in(folder)
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
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        ranks, graph, codec, seed = os.path.basename(path)[: -len(".jsonl")].split("_")
        run = read_run(path)
        steps = [r for r in run if "bytes_sent" in r and "step" in r]
        after = [r["bytes_sent"] for r in steps if r["step"] > 0.15 * steps[-1]["step"]]
        found.setdefault((int(ranks), graph, codec), {})[int(seed)] = (
            evaluations(run)[-1]["val_loss"], sum(after) / len(after))
    return found


def codecs(folder):
    runs, rows = codecs_in(folder), []
    for (ranks, graph, codec), seeds in sorted(runs.items()):
        plain = runs.get((ranks, "aer", "none"), {})
        pairs = [s for s in sorted(seeds) if s in plain]
        fewer = sum(plain[s][1] / seeds[s][1] for s in pairs) / len(pairs) if pairs else 0
        rows.append([ranks, graph, codec if codec != "none" else "f32", "%.0f" % (sum(b for _, b in seeds.values()) / len(seeds) / 1000),
                     "%.1f" % fewer, percent_interval([100 * (seeds[s][0] / plain[s][0] - 1) for s in pairs])])
    return table(["ranks", "graph", "`gossip.codec`", "kB sent per rank and step", "times fewer than `aer` f32", "loss above it"], rows)


def main():
    folder, page = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    lengths = sorted((int(name) for name in os.listdir(folder) if name.isdigit()))
    tables = {str(steps): ablation(os.path.join(folder, str(steps))) for steps in lengths}
    if os.path.isdir(os.path.join(folder, "codecs")):
        tables["codecs"] = codecs(os.path.join(folder, "codecs"))
    publish(tables, page, {})


if __name__ == "__main__":
    main()

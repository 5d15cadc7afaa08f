#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of scripts/results/unequal.sh.

unequal_tables.py FOLDER [PAGE TABLE]                 prints the table, or puts it between PAGE's markers of that name
unequal_tables.py --best FOLDER METHOD PARTITION SEED prints the learning rate with the lowest validation loss
"""
import glob, json, math, os, statistics, sys

METHODS = {
    "dense-adam": "`dp`, adamw",
    "adam": "`gossip`, adamw",
    "accum": "`gossip`, accum-adamw, `optim.accum` 4",
    "adam-tracker": "`gossip`, adamw, tracker",
    "dense-sgd": "`dp`, sgd",
    "sgd-atc": "`gossip` atc, sgd",
}
PARTITIONS = ("global", "dirichlet:0.1", "by-rank")
END = "<!-- end -->"


def final(path):
    """Validation loss and consensus distance of the last step; a run that diverged counts as infinitely bad."""
    rows = [r for r in map(json.loads, open(path)) if "event" not in r]
    loss = rows[-1].get("val_loss")
    return (loss if loss is not None and math.isfinite(loss) else math.inf, rows[-1].get("distance"))


def load(folder):
    runs = {}
    for path in glob.glob(folder + "/*.jsonl"):
        method, partition, rate, seed = os.path.basename(path)[: -len(".jsonl")].split("_")
        runs.setdefault((method, partition), {}).setdefault(rate, {})[int(seed)] = final(path)
    return runs


def best(rates, seed):
    return min((r for r in rates if seed in rates[r]), key=lambda r: rates[r][seed][0])


def cell(rates):
    first = min(s for r in rates.values() for s in r)
    rate = best(rates, first)
    losses = [loss for loss, _ in rates[rate].values()]
    spread = max(losses) - min(losses)
    return statistics.mean(losses), f"{statistics.mean(losses):.3f} ± {spread / 2:.3f} ({rate})"


def table(runs):
    shown = [p for p in PARTITIONS if any(q == p for _, q in runs)]
    lines = ["| method | " + " | ".join(f"`{p}`" for p in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for method, words in METHODS.items():
        cells = [cell(runs[method, p])[1] if (method, p) in runs else "" for p in shown]
        if any(cells):
            lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    if sys.argv[1] == "--best":
        folder, method, partition, seed = sys.argv[2:]
        rates = load(folder).get((method, partition))
        if not rates:
            sys.exit(f"unequal_tables.py: no run of {method} on {partition} has ended well in {folder}")
        print(best(rates, int(seed)))
        return
    text = table(load(sys.argv[1]))
    if len(sys.argv) < 3:
        print(text)
        return
    begin = f"<!-- table: {sys.argv[3]} -->"
    page = open(sys.argv[2]).read()
    head, rest = page.split(begin)
    tail = rest.split(END, 1)[1]
    open(sys.argv[2], "w").write(f"{head}{begin}\n{text}\n{END}{tail}")


main()

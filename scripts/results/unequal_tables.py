#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of scripts/results/unequal.sh.

unequal_tables.py FOLDER [PAGE TABLE]                 prints the table, or puts it between PAGE's markers of that name
unequal_tables.py --best FOLDER METHOD PARTITION SEED prints the learning rate with the lowest validation loss
"""
import statistics, sys

from record import final_loss, put_all, runs_in, table

METHODS = {
    "dense-adam": "`dp`, adamw",
    "adam": "`gossip`, adamw",
    "accum": "`gossip`, accum-adamw, `optim.accum` 4",
    "adam-tracker": "`gossip`, adamw, tracker",
    "dense-sgd": "`dp`, sgd",
    "sgd-atc": "`gossip` atc, sgd",
}
PARTITIONS = ("global", "dirichlet:0.1", "by-rank")


def load(folder):
    runs = {}
    for name, steps in runs_in(folder, "").items():
        method, partition, rate, seed = name.split("_")
        runs.setdefault((method, partition), {}).setdefault(rate, {})[int(seed)] = final_loss(steps)
    return runs


def best(rates, seed):
    return min((r for r in rates if seed in rates[r]), key=lambda r: rates[r][seed])


def cell(rates):
    first = min(s for r in rates.values() for s in r)
    rate = best(rates, first)
    losses = rates[rate].values()
    spread = max(losses) - min(losses)
    return f"{statistics.mean(losses):.3f} ± {spread / 2:.3f} ({rate})"


def table_of(runs):
    shown = [p for p in PARTITIONS if any(q == p for _, q in runs)]
    rows = [[words] + [cell(runs[method, p]) if (method, p) in runs else "" for p in shown] for method, words in METHODS.items()]
    return table(["method"] + [f"`{p}`" for p in shown], [row for row in rows if any(row[1:])])


def main():
    if sys.argv[1] == "--best":
        folder, method, partition, seed = sys.argv[2:]
        rates = load(folder).get((method, partition))
        if not rates:
            sys.exit(f"unequal_tables.py: no run of {method} on {partition} has ended well in {folder}")
        print(best(rates, int(seed)))
        return
    text = table_of(load(sys.argv[1]))
    if len(sys.argv) < 3:
        print(text)
    else:
        put_all(sys.argv[2], {sys.argv[3]: text})


main()

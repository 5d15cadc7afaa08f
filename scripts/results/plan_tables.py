#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/results/plan.md from what scripts/results/plan.sh has recorded.

    scripts/results/plan_tables.py FOLDER [PAGE.md]
"""
import glob
import os
import sys

from record import load, put_all, table

BAR = 10.0  # most per cent


def cell_of(where, network, method, measured, predicted):
    """What cells() yields of an answer of `tacit bench step` and one of `tacit plan`."""
    setting, chosen = measured["settings"][0], next(m for m in predicted["methods"] if m["configured"])
    return where, network, method, setting["configuration"]["exchange.wire"], setting["seconds"]["step"]["mean"], chosen["seconds"]


def cells(folder):
    """(cluster, network, method, wire, what was measured, what was predicted)"""
    for path in sorted(glob.glob(os.path.join(folder, "measure/*.json"))):
        base = os.path.basename(path)
        predicted = load(folder, "predict/" + base)
        if predicted:
            size, rate, rest = base[:-5].split("-", 2)
            yield cell_of("%s, %s Mbit/s" % (size, rate), *rest.rsplit("-", 1), load(folder, "measure/" + base), predicted)


def verdict(dense, other):
    return "pays" if other < dense else "does not pay"


def rows_of(found, digits):
    """For each of cells(): row, column and text of the table, and whether it is a miss, out of range or a wrong verdict. A method on
    another wire than the first dense run of its network has a column of its own."""
    dense = {(c, n, w): (m, p["step"]) for c, n, method, w, m, p in found if method == "dense"}
    wires = {(c, n): w for c, n, w in reversed(dense)}
    for cluster, network, method, wire, measured, p in found:
        off = 100 * (p["step"] / measured - 1)
        base, inside = dense.get((cluster, network, wire)), p["low"] <= measured <= p["high"]
        wrong = bool(base) and method != "dense" and verdict(base[1], p["step"]) != verdict(base[0], measured)
        cell = "%.*f (%.*f-%.*f), %.*f, %+.1f %%" % (digits, p["step"], digits, p["low"], digits, p["high"], digits, measured, off)
        usual = wires.get((cluster, network), wire)
        yield {"row": (cluster, "%s, %s" % (network, usual)), "method": method if wire == usual else "%s %s" % (method, wire),
               "cell": "**%s**" % cell if abs(off) > BAR or not inside or wrong else cell,
               "miss": abs(off) > BAR, "out": not inside, "wrong": wrong, "off": abs(off)}


def predictions_table(found, digits=3):
    """A row per cluster and network of what cells() yields, a column per method, and a line that counts misses; None without cells."""
    rows = list(rows_of(found, digits))
    if not rows:
        return None
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = {}
    for row in rows:
        lines.setdefault(row["row"], {})[row["method"]] = row["cell"]
    count = lambda key: sum(row[key] for row in rows)
    return table(["hosts x ranks", "network, wire"] + methods, [list(key) + [cells.get(m, "-") for m in methods] for key, cells in lines.items()]) + (
        "\n\nSeconds: predicted (range), measured, off by. %d of %d cells are within %.0f %%, the worst is off by %.1f %%; %d lie outside the "
        "printed range; %d verdicts are wrong." % (len(rows) - count("miss"), len(rows), BAR, max(row["off"] for row in rows), count("out"), count("wrong")))


def main():
    text = predictions_table(list(cells(sys.argv[1])))
    if text is None:
        return
    print(text)
    if len(sys.argv) > 2:
        put_all(sys.argv[2], {"predictions": text})


if __name__ == "__main__":
    main()

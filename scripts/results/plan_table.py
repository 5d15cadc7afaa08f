#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/results/plan.md from what scripts/results/plan.sh has recorded.

    scripts/results/plan_table.py FOLDER [PAGE.md]
"""
import glob
import os
import sys

from record import load, put_all, table

BAR = 10.0  # most per cent


def cells(folder):
    """(cluster, network, method, wire, what was measured, what was predicted)"""
    for path in sorted(glob.glob(os.path.join(folder, "measure/*.json"))):
        base = os.path.basename(path)
        if not os.path.exists(os.path.join(folder, "predict", base)):
            continue
        size, rate, rest = base[:-5].split("-", 2)
        network, method = rest.rsplit("-", 1)
        setting = load(folder, "measure/" + base)["settings"][0]
        chosen = [m for m in load(folder, "predict/" + base)["methods"] if m["configured"]]
        yield (size + ", " + rate + " Mbit/s", network, method, setting["configuration"]["exchange.wire"],
               setting["seconds"]["step"]["mean"], chosen[0]["seconds"])


def verdict(dense, other):
    return "pays" if other < dense else "does not pay"


def rows_of(found, digits):
    dense = {(c, n, w): (m, p["step"]) for c, n, method, w, m, p in found if method == "dense"}
    for cluster, network, method, wire, measured, p in found:
        off = 100 * (p["step"] / measured - 1)
        inside = p["low"] <= measured <= p["high"]
        base = dense.get((cluster, network, wire))
        said = seen = ""
        if base and method != "dense":
            said, seen = verdict(base[1], p["step"]), verdict(base[0], measured)
        seconds = ["%.*f" % (digits, s) for s in (p["step"], p["low"], p["high"], measured)]
        yield {"text": [cluster, network, method, wire, "%s (%s-%s)" % tuple(seconds[:3]), seconds[3],
                        "%+.1f %%" % off if abs(off) <= BAR else "**%+.1f %%**" % off, "yes" if inside else "**no**",
                        said if said == seen else "**%s; measured: %s**" % (said, seen)],
               "miss": abs(off) > BAR, "out": not inside, "wrong": said != seen, "off": abs(off)}


def predictions_table(found, digits=3):
    """The table of what cells() yields, and a line that counts misses; None without cells."""
    rows = list(rows_of(found, digits))
    if not rows:
        return None
    head = ["hosts x ranks", "network", "method", "wire", "predicted, s", "measured, s", "off by", "in range", "against dense"]
    count = lambda key: sum(row[key] for row in rows)
    return table(head, [row["text"] for row in rows]) + (
        "\n\n%d of %d cells are within %.0f %%, the worst is off by %.1f %%; %d lie outside the printed range; %d verdicts are wrong." %
        (len(rows) - count("miss"), len(rows), BAR, max(row["off"] for row in rows), count("out"), count("wrong")))


def main():
    text = predictions_table(list(cells(sys.argv[1])))
    if text is None:
        return
    print(text)
    if len(sys.argv) > 2:
        put_all(sys.argv[2], {"predictions": text})


if __name__ == "__main__":
    main()

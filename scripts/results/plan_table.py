#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/results/plan.md from what scripts/results/plan.sh has recorded.

    scripts/results/plan_table.py FOLDER [PAGE.md]
"""
import glob
import json
import os
import sys

BAR = 10.0  # most per cent


def load(path):
    with open(path) as file:
        return json.load(file)


def cells(folder):
    """(cluster, network, method, wire, what was measured, what was predicted)"""
    for path in sorted(glob.glob(os.path.join(folder, "measure/*.json"))):
        base = os.path.basename(path)
        other = os.path.join(folder, "predict", base)
        if not os.path.exists(other):
            continue
        size, rate, rest = base[:-5].split("-", 2)
        network, method = rest.rsplit("-", 1)
        setting = load(path)["settings"][0]
        chosen = [m for m in load(other)["methods"] if m["configured"]]
        yield (size + ", " + rate + " Mbit/s", network, method, setting["configuration"]["exchange.wire"],
               setting["seconds"]["step"]["mean"], chosen[0]["seconds"])


def verdict(dense, other):
    return "pays" if other < dense else "does not pay"


def rows_of(folder):
    found = list(cells(folder))
    dense = {(c, n, w): (m, p["step"]) for c, n, method, w, m, p in found if method == "dense"}
    for cluster, network, method, wire, measured, p in found:
        off = 100 * (p["step"] / measured - 1)
        inside = p["low"] <= measured <= p["high"]
        base = dense.get((cluster, network, wire))
        said = seen = ""
        if base and method != "dense":
            said, seen = verdict(base[1], p["step"]), verdict(base[0], measured)
        yield {"text": [cluster, network, method, wire, "%.3f (%.3f-%.3f)" % (p["step"], p["low"], p["high"]), "%.3f" % measured,
                        "%+.1f %%" % off if abs(off) <= BAR else "**%+.1f %%**" % off, "yes" if inside else "**no**",
                        said if said == seen else "**%s; measured: %s**" % (said, seen)],
               "miss": abs(off) > BAR, "out": not inside, "wrong": said != seen, "off": abs(off)}


def table(folder):
    rows = list(rows_of(folder))
    if not rows:
        return None
    head = ["hosts x ranks", "network", "method", "wire", "predicted, s", "measured, s", "off by", "in range", "against dense"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row["text"]) + " |" for row in rows]
    count = lambda key: sum(row[key] for row in rows)
    lines += ["", "%d of %d cells are within %.0f %%, the worst is off by %.1f %%; %d lie outside the printed range; %d verdicts are wrong." %
              (len(rows) - count("miss"), len(rows), BAR, max(row["off"] for row in rows), count("out"), count("wrong"))]
    return "\n".join(lines)


def put(page, text):
    with open(page) as file:
        old = file.read()
    begin, end = old.index("<!-- predictions -->"), old.index("<!-- /predictions -->")
    with open(page + ".part", "w") as file:
        file.write(old[:begin] + "<!-- predictions -->\n" + text + "\n" + old[end:])
    os.replace(page + ".part", page)


def main():
    text = table(sys.argv[1])
    if text is None:
        return
    print(text)
    if len(sys.argv) > 2:
        put(sys.argv[2], text)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Merges the launches of bench/collectives.sh: samples of all blocks together, medians, spread, shares of the line.

    bench/collectives_table.py RUNS.jsonl OUT.json
"""
import json
import statistics
import sys

LATENCY_BYTES = 64 << 10  # up to here the time counts, beyond it the rate
OURS = "tacit"


def read_cells(path):
    """{(hosts, per_host, rate, bytes): {who: {"samples_s": [...], ...}}}, machine, sends by cell."""
    cells, sends, facts = {}, {}, {}
    for text in open(path):
        run = json.loads(text)
        result = run["result"]
        facts.update({key: result[key] for key in ("machine", "line_bps") if key in result and key == "machine"})
        facts.setdefault("libraries", {})[result["library"]] = True
        for size in result["sizes"]:
            cell = (run["hosts"], run["per_host"], run["rate"], size["bytes"])
            for figure in size["figures"]:
                if result["op"] == "send":
                    sends[cell] = figure
                    continue
                entry = cells.setdefault(cell, {}).setdefault(figure["by"], {"samples_s": [], "launch_medians_s": []})
                entry["samples_s"] += figure["samples_s"]
                entry["launch_medians_s"].append(figure["seconds"]["median"])
    return cells, sends, facts


def bits_per_s(rate):
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    return None if rate == "none" else float(rate[:-4]) * units[rate[-4:]]


def summarise(cell, by, send):
    hosts, per_host, rate, size = cell
    sides, line = hosts if hosts > 1 else per_host, bits_per_s(rate)
    for figure in by.values():
        samples = figure["samples_s"]
        figure["seconds"] = {"median": statistics.median(samples), "least": min(samples), "most": max(samples)}
        figure["bus_bps"] = 2 * (sides - 1) / sides * 8 * size / figure["seconds"]["median"]
        figure["of_line"] = figure["bus_bps"] / line if line else None
    row = {"hosts": hosts, "per_host": per_host, "rate": rate, "bytes": size, "figures": by}
    others = [who for who in by if who != OURS]
    if OURS in by and others:
        best = min(others, key=lambda who: by[who]["seconds"]["median"])
        row["best_other"] = best
        row["time_of_best_other"] = by[OURS]["seconds"]["median"] / by[best]["seconds"]["median"]
    if send is not None:
        row["send_bps"] = send["bus_bps"]
        row["send_of_line"] = send["bus_bps"] / line if line else None
    return row


def print_time(seconds):
    unit, factor = ("s ", 1) if seconds >= 0.1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    return "%9.3f %s" % (seconds * factor, unit)


def print_row(row):
    title = "%d hosts x %d ranks, %s, %d bytes" % (row["hosts"], row["per_host"], row["rate"], row["bytes"])
    if row.get("send_of_line") and row["bytes"] > LATENCY_BYTES:
        title += "; one send reaches %.1f %% of the line" % (100 * row["send_of_line"])
    print("\n" + title)
    print("  %-18s %12s %12s %12s %12s %8s" % ("by", "median", "least", "most", "bus Mbit/s", "of line"))
    for who, figure in row["figures"].items():
        rates = row["bytes"] > LATENCY_BYTES
        print(("  %-18s %s %s %s %12s %8s" % (
            who, *(print_time(figure["seconds"][key]) for key in ("median", "least", "most")),
            "%.1f" % (figure["bus_bps"] / 1e6) if rates else "",
            "%.1f %%" % (100 * figure["of_line"]) if rates and figure["of_line"] else "")).rstrip())
    if "best_other" in row:
        print("  tacit takes %.3f of the time of %s, the best of the others" % (row["time_of_best_other"], row["best_other"]))


def main():
    cells, sends, facts = read_cells(sys.argv[1])
    if not cells:
        sys.exit("collectives_table.py: %s holds no all-reduce" % sys.argv[1])
    rows = [summarise(cell, by, sends.get(cell)) for cell, by in cells.items()]
    machine = facts.get("machine")
    if machine:
        print("machine: %s, %d cores, %s, load %.2f at the start" % (
            machine["cpu"], machine["cores"], machine["system"], machine["load"]))
    print("libraries: " + ", ".join(facts["libraries"]))
    print("all-reduce of f32; a sample lasts as long as its slowest rank; medians over all samples of all launches")
    print("bus Mbit/s = 2 (n-1)/n x bits / time, n hosts (ranks on one host); every result was checked")
    for row in rows:
        print_row(row)
    with open(sys.argv[2], "w") as file:
        json.dump({"machine": machine, "libraries": list(facts["libraries"]), "rows": rows}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()

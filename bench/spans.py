#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads traces and metrics of runs for the bench scripts. Standard library only.

spans.py rate RUN            Mbit/s at which a step's bytes take as long as its backward
spans.py hidden DIR ROUNDS   share of communication hidden, from DIR/blocking1.. and DIR/overlapped1..
"""
import json
import statistics
import sys

WARM = 2  # first steps of a run are not counted


def steps(run):
    rows = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    return [r for r in rows if "event" not in r][WARM:]


def backward_s(run):
    """Seconds of backward per step on the slowest rank (median over steps)."""
    spans = [e for e in json.load(open(f"{run}/trace.json"))["traceEvents"] if e["ph"] == "X" and e["name"] == "backward"]
    per_step = {}
    for e in spans:
        key = (e["args"]["step"], e["pid"])
        per_step[key] = per_step.get(key, 0) + e["dur"] * 1e-6
    slowest = {}
    for (step, _), s in per_step.items():
        slowest[step] = max(slowest.get(step, 0), s)
    return statistics.median([slowest[s] for s in sorted(slowest)][WARM:])


def main():
    if sys.argv[1] == "rate":
        run = sys.argv[2]
        sent = statistics.median(r["bytes_sent"] for r in steps(run))
        print(f"{sent * 8e-6 / backward_s(run):.1f}")
        return
    folder, rounds = sys.argv[2], int(sys.argv[3])
    hidden = []
    for i in range(1, rounds + 1):
        blocking, overlapped = f"{folder}/blocking{i}", f"{folder}/overlapped{i}"
        wait = [statistics.median(r["wait_s"] for r in steps(run)) for run in (blocking, overlapped)]
        step = [statistics.median(r["step_s"] for r in steps(run)) for run in (blocking, overlapped)]
        hidden.append(1 - wait[1] / wait[0])
        print(f"round {i}: backward {backward_s(blocking):.3f} s, wait blocking {wait[0]:.3f} s, overlapped {wait[1]:.3f} s, "
              f"step {step[0]:.3f} -> {step[1]:.3f} s, hidden {hidden[-1]:.1%}")
    print(f"hidden: median {statistics.median(hidden):.1%}, {min(hidden):.1%} to {max(hidden):.1%}")


main()

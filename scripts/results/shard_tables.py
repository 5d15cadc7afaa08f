#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of scripts/results/shard.sh: shard_tables.py FOLDER PAGE"""
import glob
import os
import statistics
import sys

import plan_tables
import record

PLANNED = {
    "dp": "dense",
    "s3": "stage 3",
    "s2": "stage 2",
    "s3-int4-int8": "stage 3, int4, gather int8",
    "s2-int4-int4": "stage 2, int4, gather int4",
}

LOSSES = {
    "plain": "uncompressed",
    "tagc80": "`tagc` at 80 % sparsity",
    "topk80": "`topk` at 80 % sparsity",
    "i4i4s2": "stage 2, int4 gradients, int4 changes",
    "i4i8s3": "int4 gradients, int8 parameters (the most that `auto` does)",
    "i4i4s3": "int4 gradients, int4 parameters",
}


def seconds(setting):
    s = setting["seconds"]["step"]
    return "%.2f (%.2f-%.2f)" % (s["median"], s["least"], s["most"])


def goodput(setting, rate):
    """Share of the line that the busiest host fills: its payload over the whole step; of codecs the bytes on its interface."""
    coded = setting["configuration"]["compress.codec"] != "none"
    sent = [max(h["nic_sent"] or 0, h["nic_received"] or 0) if coded else h["payload_sent"] for h in setting["bytes_per_step"]["hosts"]]
    return max(sent) * 8 / setting["seconds"]["step"]["median"] / rate if sent else 0


def megabytes(setting):
    return "%.1f" % (setting["bytes_per_step"]["rank_sent"] / 1e6)


def name_of(setting, base):
    return "`%s`" % (base if setting["label"] == "base" else setting["label"])


def steps(answer, auto, base, rate):
    """Rows of one launch, and of the automatic choice, whose bytes are not those of a step: it has tried others first."""
    if not answer:
        return None

    def times(setting):
        share = setting["seconds"]["step"]["median"] / answer["settings"][0]["seconds"]["step"]["median"]
        return [seconds(setting), "%.2f" % share, "%.2f" % (1 / share)]

    rows = [[name_of(s, base), *times(s), megabytes(s), "%.0f %%" % (100 * goodput(s, rate))] for s in answer["settings"]]
    rows += [["`shard compress.codec=auto`", *times(s), "", ""] for s in (auto["settings"] if auto else [])]
    return record.table(["setting", "s per step: median (least-most)", "times the first", "first / it", "MB sent per rank", "of the line"],
                        rows)


def losses(folder, section, page):
    runs = record.runs_by_seed(folder, section)
    found = {which: {seed: (record.final_loss(run), statistics.harmonic_mean([m["compression"] for m in run if m.get("compression")]))
                     for seed, run in runs[which].items()} for which in LOSSES if which in runs}
    if "plain" not in found:
        return None
    rows, plain = [], {seed: loss for seed, (loss, _) in found["plain"].items()}
    for which, seeds in found.items():
        both = [s for s in seeds if s in found["plain"]]
        above = record.percent_above({s: seeds[s][0] for s in both}, plain)
        fewer = statistics.mean(seeds[s][1] / found["plain"][s][1] for s in both)
        rows.append([LOSSES[which], "%.1f" % fewer, ", ".join("%s: %.4f" % (s, seeds[s][0]) for s in both),
                     "-" if which == "plain" else record.percent_interval(above)])
    return record.table(["traffic", "times fewer bytes", "seed: validation loss", "above uncompressed"], record.merge_rows(page, section, rows))


def planned(folder):
    """Cells of section plan, as plan_tables.cells()."""
    for path in sorted(glob.glob(os.path.join(folder, "plan", "*"))):
        hosts, rate = os.path.basename(path).split("-")
        for name, method in PLANNED.items():
            measured, predicted = record.load(path, name + ".json"), record.load(path, name + "-predicted.json")
            if measured and predicted:
                yield plan_tables.cell_of("%sx1, %s Mbit/s" % (hosts, rate), "gpt2-124m", method, measured, predicted)


def main():
    folder, page = sys.argv[1:]
    load = lambda name: record.load(folder, name)
    answers = [a for a in map(load, ("base/steps.json", "two/steps.json", "two/auto.json", "two/slow.json", "hosts/steps.json", "hosts/auto.json")) if a]
    tables = {
        "machine": record.machine_line(answers),
        "base": steps(load("base/steps.json"), None, "dp", 1e9),
        "two": steps(load("two/steps.json"), load("two/auto.json"), "shard", 2e9),
        "slow": steps(load("two/slow.json"), None, "shard", 1e9),
        "hosts": steps(load("hosts/steps.json"), load("hosts/auto.json"), "shard shard.gather=bf16", 2e8),
        "plan": plan_tables.predictions_table(list(planned(folder)), 2),
        "loss": losses(folder, "loss", page),
        "short": losses(folder, "short", page),
        "loss commit": record.commit_line(folder, "loss", "short"),
    }
    record.publish(tables, page, {})


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pytorch_tables.py FOLDER [PAGE]: the tables of what scripts/results/pytorch.sh has recorded.
pytorch_tables.py --rate ANSWER RATIO: the rate at which DDP's ring takes RATIO times a step of that answer, without exchange.

Ratios and differences are those of launches of one repetition or seed; of these the mean and its 95 % interval. Exit status 1:
a bar that PAGE called met is missed now."""
import glob
import json
import math
import os
import re
import statistics
import sys

import record

TITLES = {"ddp": "DDP, f32", "ddp-fp16": "DDP, its fp16 hook", "ddp-powersgd": "DDP, its PowerSGD hook, rank 4",
          "decent-exp": "decent-dp 0.2.3, one-peer-exp", "decent-complete": "decent-dp 0.2.3, complete",
          "dp": "tacit dp, f32", "bf16": "tacit dp, bf16 on the wire", "powersgd": "tacit dp, `powersgd`, rank 4",
          "auto": "tacit dp, `auto`", "auto-now": "tacit dp, `auto` without its warm-up", "topk": "tacit dp, top-k 20x in int4",
          "topk10": "tacit dp, top-k 10x", "topk1000": "tacit dp, top-k 1000x", "gravac": "tacit dp, GraVAC, 10x to 1000x",
          "accordion": "tacit dp, Accordion, 10x and 1000x", "exp": "tacit gossip, exp", "complete": "tacit gossip, complete",
          "aer": "tacit gossip, aer", "alone": "no exchange", "fsdp": "FSDP2 over gloo", "fsdp-f32": "`tacit.fsdp`, f32",
          "fsdp-tagc": "`tacit.fsdp`, `tagc`", "fsdp-int8": "`tacit.fsdp`, `int8`", "fsdp-int4": "`tacit.fsdp`, `int4`",
          "fsdp-auto": "`tacit.fsdp`, `auto`"}
HOOKS = {"ddp-fp16": "fp16", "ddp-powersgd": "PowerSGD"}  # of PyTorch's own
SHARE = 0.993  # payload of a link of MTU 9000
SMOOTH = 3  # evaluations of which a curve shows the mean


# ---- answers -------------------------------------------------------------------------------------------------------------


def read_answer(path):
    """The line of JSON: gloo prints lines of its own before it."""
    with open(path) as file:
        return json.loads([line for line in file if line.startswith("{")][-1])


def read_reason(path):
    """The last error in the log of a launch that failed."""
    with open(path, errors="replace") as file:
        errors = re.findall(r"\b(\w+(?:Error|Exception): .+|ended after \d+ seconds.*)", file.read())
    return errors[-1][:160].strip() if errors else "no error in its log"


class Section:
    """answers: {method: {repetition or seed: answer}} of those that ended with finite losses; failed: {method: [reasons]}"""

    def __init__(self, folder):
        self.answers, self.failed = {}, {}
        for which in TITLES:
            stem = os.path.join(glob.escape(folder), which + "-[0-9]*")
            self.failed[which] = [read_reason(path) for path in sorted(glob.glob(stem + ".failed"))]
            self.answers[which] = {}
            for path in glob.glob(stem + ".json"):
                answer = read_answer(path)
                if all(math.isfinite(answer.get(key, 0)) for key in ("loss", "held_loss")):
                    self.answers[which][int(path.rpartition("-")[2][:-5])] = answer
                else:
                    self.failed[which].append("the loss is not finite")

    def methods(self):
        return [which for which in TITLES if self.answers[which] or self.failed[which]]

    def lost(self, which):
        return len(self.failed[which])

    def title(self, which):
        lost, count = self.lost(which), len(self.answers[which])
        return TITLES[which] + (" (%d of %d launches failed)" % (lost, lost + count) if lost else "")

    def values(self, which, value):
        return [value(answer) for _, answer in sorted(self.answers[which].items())]

    def pairs(self, which, base, value):
        """[value of one answer, of its partner]"""
        mine, other = self.answers[which], self.answers[base]
        return [(value(mine[i]), value(other[i])) for i in sorted(mine) if i in other]

    def ratios(self, which, base, value):
        return [a / b for a, b in self.pairs(which, base, value)]

    def remarks(self):
        return ["%s: %s" % (TITLES[which], reason) for which in TITLES for reason in sorted(set(self.failed[which]))]


def seconds(answer):
    return answer["step_s"]


def ring_bytes(answer):
    """What a rank sends in an all-reduce of f32 gradients as a ring."""
    return 8 * answer["parameters"] * (answer["ranks"] - 1) / answer["ranks"]


def payload(which, answer):
    """Bytes that a rank sends per step: those that tacit counts, or those of DDP's ring; None: unknown."""
    if answer["payload_bytes"] is not None:
        return answer["payload_bytes"]
    return {"ddp": ring_bytes(answer), "ddp-fp16": ring_bytes(answer) / 2}.get(which)


# ---- cells ---------------------------------------------------------------------------------------------------------------


def middle(values, form="%.3f"):
    """The median, and the range of more than one value."""
    if not values or None in values:
        return "-"
    text = form % statistics.median(values)
    return text + " (" + form % min(values) + " to " + form % max(values) + ")" if len(values) > 1 else text


def median_of(values):
    """Of those that are known."""
    known = [v for v in values if v is not None]
    return "%.3f" % statistics.median(known) if known else "-"


def mean_and_half(values, form="%.1f"):
    """The mean, and half of its 95 % interval of more than one value."""
    if not values:
        return "-"
    mean, half = record.interval(values)
    return form % mean + ("" if math.isinf(half) else " ± " + form % half)


def mean_of(values, form="%.2f"):
    """The mean of ratios and its 95 % interval."""
    if not values:
        return "-"
    mean, half = record.interval(values)
    if math.isinf(half):
        return form % mean + " (1 pair)"
    return (form + " (" + form + " to " + form + ", %d pairs)") % (mean, mean - half, mean + half, len(values))


def megabytes(values):
    return "-" if not values or None in values else "%.2f" % (statistics.median(values) / 1e6)


def percent_to(section, which, base, value):
    return record.percent_interval([100 * (a / b - 1) for a, b in section.pairs(which, base, value)])


def finish(head, rows, sections, *lines):
    """A table, and below it what failed and lines that belong to it; None without rows."""
    if not rows:
        return None
    remarks = list(dict.fromkeys("- Failed: %s" % text.replace("|", "/") for each in sections for text in each.remarks()))
    lines = ["- " + line for line in lines] + remarks
    return record.table(head, rows) + ("\n\n" + "\n".join(lines) if lines else "")


# ---- steps and dp --------------------------------------------------------------------------------------------------------


def steps_table(section):
    head = ["method", "seconds per step, median and range", "of DDP's, pairs and 95 %", "MB sent per host and step", "CPU s per rank and step"]
    rows = [[section.title(w), middle(section.values(w, seconds)), mean_of(section.ratios(w, "ddp", seconds)),
             megabytes(section.values(w, lambda a: a["sent_bytes"])), median_of(section.values(w, lambda a: a["cpu_s"]))]
            for w in section.methods()]
    return finish(head, rows, [section])


SETTINGS = {"200mbit": "GPT, 4 hosts, 200 Mbit/s", "1gbit": "GPT, 4 hosts, 1 Gbit/s", "host": "GPT, 4 ranks of one host",
            "vgg": "VGG-16, 4 hosts of 2 ranks, 1 Gbit/s, replayed accelerator"}


def dp_rows(folder, settings):
    for setting in settings:
        section = Section(os.path.join(folder, "dp", setting))
        ratios = section.ratios("dp", "ddp", seconds)
        if section.methods():
            yield [SETTINGS[setting], middle(section.values("ddp", seconds)), middle(section.values("dp", seconds)),
                   middle(ratios), mean_of(ratios, "%.3f")], section


def dp_table(folder, *settings):
    found = list(dp_rows(folder, settings))
    head = ["setting", "DDP + gloo, seconds per step, median and range", "tacit dp, f32", "of DDP's: median and range of pairs", "mean of pairs and 95 %"]
    return finish(head, [row for row, _ in found], [section for _, section in found])


# ---- time to a loss ------------------------------------------------------------------------------------------------------


def smooth(curve):
    """[(seconds, mean of the last evaluations)]"""
    return [(curve[i][1], statistics.mean(point[2] for point in curve[i - SMOOTH + 1:i + 1])) for i in range(SMOOTH - 1, len(curve))]


def time_to(curve, goal):
    """Seconds until the smooth curve is at a loss, between two evaluations on the line through them; None: never."""
    before = None
    for now, loss in smooth(curve):
        if loss <= goal:
            return now if before is None else before[0] + (now - before[0]) * (before[1] - goal) / (before[1] - loss)
        before = now, loss
    return None


def times_to_goal(section):
    """{method: {seed: seconds until the smooth curve is where that of DDP, f32, ends}}; None: never."""
    goals = {seed: smooth(answer["curve"])[-1][1] for seed, answer in section.answers["ddp"].items()
             if len(answer["curve"]) >= SMOOTH}
    return {which: {seed: time_to(answer["curve"], goals[seed]) for seed, answer in section.answers[which].items() if seed in goals}
            for which in section.methods()}


def speedups(times, which, base):
    """How many times as fast a method reaches the goal, by seed; empty if one of its launches does not."""
    mine, other = times.get(which, {}), times.get(base, {})
    if None in mine.values():
        return []
    return [other[seed] / mine[seed] for seed in sorted(mine) if other.get(seed)]


def best_hook(times):
    """The hook of PyTorch's own that reaches the goal first."""
    hooks = [w for w in HOOKS if times.get(w) and None not in times[w].values()]
    return min(hooks, key=lambda w: statistics.median(times[w].values()), default=None)


def loss_table(section, folder):
    times = times_to_goal(section)
    hook = best_hook(times)
    head = ["method", "seconds per step, median and range", "seconds to DDP's final loss, median and range", "times as fast as DDP, pairs and 95 %",
            "as the best hook", "MB per rank and step"]
    rows = []
    for w in [w for w in section.methods() if w != "alone"]:
        found = list(times[w].values())
        missed = found.count(None)
        rows.append([section.title(w), middle(section.values(w, seconds)),
                     "not reached by %d of %d" % (missed, len(found)) if missed else middle(found, "%.1f"),
                     mean_of(speedups(times, w, "ddp")), mean_of(speedups(times, w, hook)) if hook else "-",
                     megabytes(section.values(w, lambda a: payload(w, a)))])
    return finish(head, rows, [section], *loss_lines(section, folder))


def loss_lines(section, folder):
    path = os.path.join(folder, "loss", "rate")
    if not section.answers["alone"] or not os.path.exists(path):
        return []
    with open(path) as file:
        rate = int(file.read().strip()[:-4])
    alone = section.answers["alone"][1]
    transfer = 8 * ring_bytes(alone) / (SHARE * rate * 1e6)
    return ["%d Mbit/s: the ring of DDP takes %.3f s there, a step without exchange %.3f s: %.1f times." % (
        rate, transfer, alone["step_s"], transfer / alone["step_s"])]


def print_rate(path, ratio):
    alone = read_answer(path)
    print("%dmbit" % max(1, round(8 * ring_bytes(alone) / (SHARE * float(ratio) * alone["step_s"]) / 1e6)))


# ---- GraVAC, decent-dp, TAGC ---------------------------------------------------------------------------------------------


def quality(answer):
    """Held-out: accuracy in percent, or the perplexity of a byte."""
    return 100 * answer["held_accuracy"] if "held_accuracy" in answer else math.exp(answer["held_loss"])


def gravac_table(sections):
    """Of every network: bytes on the wire, seconds and quality, whose intervals are of seeds. step_s null: the launch was not
    alone on the machine."""
    sections = {name: section for name, section in sections.items() if section.methods()}
    head, rows = ["method"], {}
    for name, section in sections.items():
        answer = next(a for found in section.answers.values() for a in found.values())
        head += ["%s: bytes" % name, "seconds per step", "held-out accuracy, %" if "held_accuracy" in answer else "held-out perplexity"]
        for w in section.methods():
            rows.setdefault(w, [TITLES[w]]).extend([fewer(section, w), median_of(section.values(w, seconds)),
                                                    mean_and_half(section.values(w, quality))])
    return finish(head, list(rows.values()), list(sections.values()),
                  "Bytes: times fewer on the wire than f32. Quality: mean and 95 % of seeds.") if rows else None


def fewer(section, which):
    """By the bytes on the wire, which are known of all."""
    found = section.values(which, lambda a: ring_bytes(a) / a["sent_bytes"] if a["sent_bytes"] else None)
    return "-" if not found or None in found else "%.1fx" % statistics.median(found)


GRAPHS = {"exp": "decent-exp", "complete": "decent-complete"}


def decent_table(section):
    head = ["method", "seconds per step, median and range", "of decent-dp's on the same graph, pairs and 95 %", "held-out loss, median and range",
            "against decent-dp's", "MB sent per host and step"]
    rows = []
    for w in section.methods():
        base = GRAPHS.get(w)
        rows.append([section.title(w), middle(section.values(w, seconds)), mean_of(section.ratios(w, base, seconds)) if base else "-",
                     middle(section.values(w, lambda a: a["held_loss"])), percent_to(section, w, base, lambda a: a["held_loss"]) if base else "-",
                     megabytes(section.values(w, lambda a: a["sent_bytes"]))])
    return finish(head, rows, [section])


def rate_mbit(text):
    return float(text[:-4]) * {"k": 1e-3, "m": 1, "g": 1e3}[text[-4]]


def turning_rate(points):
    """points: [(Mbit/s, time of the dense one)]. Where a saving of time becomes a loss, on the line over the logarithm of the rate."""
    points = sorted(points)
    if len(points) < 2:
        return "not known, with one rate"
    for (slow, a), (fast, b) in zip(points, points[1:]):
        if a <= 1 < b:
            return "%.0f" % math.exp(math.log(slow) + (1 - a) / (b - a) * math.log(fast / slow))
    return "beyond %.0f" % points[-1][0] if points[-1][1] <= 1 else "below %.0f" % points[0][0]


def tagc_table(folder):
    rates = sorted((os.path.basename(path) for path in glob.glob(os.path.join(folder, "tagc", "*bit"))), key=rate_mbit)
    sections = {rate: Section(os.path.join(folder, "tagc", rate)) for rate in rates}
    methods = [w for w in TITLES if any(w in section.methods() for section in sections.values())]
    head = ["method", "MB sent per host and step"] + ["%s, seconds per step" % rate for rate in rates]
    head.append("slower than `tacit.fsdp` in f32 from, Mbit/s")
    rows = [[TITLES[w], megabytes(sections[rates[0]].values(w, lambda a: a["sent_bytes"]))] +
            [middle(section.values(w, seconds)) for section in sections.values()] + [turns_at(sections, w)] for w in methods]
    found = {a["ranks"] for section in sections.values() for answers in section.answers.values() for a in answers.values()}
    return finish(head, rows, list(sections.values()), "Ranks, one per host: %s." % ", ".join(map(str, sorted(found))))


def turns_at(sections, which):
    found = {rate: section.ratios(which, "fsdp-f32", seconds) for rate, section in sections.items()}
    points = [(rate_mbit(rate), statistics.median(v)) for rate, v in found.items() if v]
    return "-" if which in ("fsdp", "fsdp-f32") else turning_rate(points)


# ---- bars ----------------------------------------------------------------------------------------------------------------


def bar(text, measured, found, is_met, lost=0):
    """A row; "-" where nothing was found. lost: launches that failed, or did not get there: the bar is not met without them."""
    if lost:
        return [text, "%s; %d did not get there" % (measured, lost), "**missed**"]
    return [text, measured, "-" if not found else "met" if is_met else "**missed**"]


def at_least(text, values, least, lost=0):
    return bar(text, mean_of(values), values, values and statistics.mean(values) >= least, lost)


def dp_bars(folder):
    for setting in ("200mbit", "1gbit", "host"):
        section = Section(os.path.join(folder, "dp", setting))
        ratios = section.ratios("dp", "ddp", seconds)
        met = ratios and round(statistics.median(ratios), 2) <= 1 and max(ratios) <= 1.02
        yield bar("`dp` in f32, of DDP's time, %s: median 1.00, upper end 1.02" % SETTINGS[setting], middle(ratios), ratios, met,
                  section.lost("dp"))
    section = Section(os.path.join(folder, "dp", "vgg"))
    yield at_least("`dp` in f32, %s: 1.15 times as fast as DDP" % SETTINGS["vgg"], section.ratios("ddp", "dp", seconds), 1.15,
                   section.lost("dp"))


def decent_bars(section, steps):
    for mine, other in GRAPHS.items():
        ratios = steps.ratios(mine, other, seconds) or section.ratios(mine, other, seconds)
        losses = section.values(other, lambda a: a["held_loss"])
        own = section.values(mine, lambda a: a["held_loss"])
        met, lost = ratios and statistics.median(ratios) <= 1, section.lost(mine)
        yield bar("gossip, never slower than decent-dp: %s" % other.partition("-")[2], middle(ratios), ratios, met, lost)
        met = own and losses and statistics.mean(own) <= max(losses)
        yield bar("its loss within decent-dp's seeds: %s" % other.partition("-")[2], middle(own) + " against " + middle(losses),
                  own and losses, met, lost)


def list_bars(folder, steps, loss, decent):
    times = times_to_goal(loss)
    lost = loss.lost("auto") + list(times.get("auto", {}).values()).count(None)
    rows = [at_least("`auto`, time to DDP's final loss, 4 times as much transfer as compute: 2.5 times as fast as DDP",
                     speedups(times, "auto", "ddp"), 2.5, lost),
            *(at_least("the same against DDP's %s hook, where it reaches the loss: 1.3 times" % name, speedups(times, "auto", hook), 1.3, lost)
              for hook, name in HOOKS.items()),
            at_least("gossip `aer`, a step: 2 times as fast as DDP", steps.ratios("ddp", "aer", seconds), 2, steps.lost("aer"))]
    return [row for row in rows + [*decent_bars(decent, steps), *dp_bars(folder)] if row[2] != "-"]


def list_lost(rows, page):
    """The bars that these rows miss and the page calls met."""
    if page is None:
        return []
    with open(page) as file:
        met = {old[0] for old in record.rows_in(file.read(), "bars") if "met" in old}
    return [row[0] for row in rows if row[2] == "**missed**" and row[0] in met]


def main():
    if sys.argv[1] == "--rate":
        return print_rate(*sys.argv[2:])
    folder, page = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    steps, loss, decent = (Section(os.path.join(folder, name)) for name in ("steps", "loss", "decent"))
    tables = {"steps": steps_table(steps), "dp": dp_table(folder, *SETTINGS),
              "loss": loss_table(loss, folder), "decent": decent_table(decent), "tagc": tagc_table(folder),
              "gravac": gravac_table({name: Section(os.path.join(folder, "gravac", name.lower())) for name in ("ResNet", "VGG", "LSTM")})}
    tables = {name: text and "\n\n".join(filter(None, (text, record.commit_line(folder, name)))) for name, text in tables.items()}
    bars = list_bars(folder, steps, loss, decent)
    lost = list_lost(bars, page)
    record.publish({"bars": record.table(["bar", "measured", ""], record.merge_rows(page, "bars", bars)), **tables}, page, {})
    if lost:
        sys.exit("pytorch_tables.py: no longer met: " + "; ".join(lost))


main()

# SPDX-License-Identifier: Apache-2.0
"""What the scripts that make tables of recorded launches share: reading answers, tables, pages."""
import glob
import json
import math
import os
import statistics
import sys


# ---- answers --------------------------------------------------------------------------------------------------------


def load(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def load_all(folder, *patterns):
    """The answers whose names match one of the patterns, in the order of their names."""
    return [load("", path) for path in sorted(path for pattern in patterns for path in glob.glob(os.path.join(folder, pattern)))]


def read_run(path):
    """Steps of a metrics file, with `elapsed`: seconds of training so far, evaluations left out."""
    steps, elapsed = [], 0.0
    with open(path) as file:
        for line in file:
            m = json.loads(line)
            if "event" in m or "step" not in m:
                continue
            elapsed += m.get("step_s", 0.0)
            steps.append(dict(m, elapsed=elapsed))
    return steps


def runs_in(folder, section):
    """{name: steps} of the runs of a section, in the order of their names."""
    paths = sorted(glob.glob(os.path.join(folder, section, "*.jsonl")))
    return {os.path.basename(path)[: -len(".jsonl")]: read_run(path) for path in paths}


def runs_by_seed(folder, section):
    """{method: {seed: steps}} of runs that are called METHOD-SEED."""
    runs = {}
    for name, steps in runs_in(folder, section).items():
        method, seed = name.rsplit("-", 1)
        runs.setdefault(method, {})[seed] = steps
    return runs


def evaluations(steps):
    return [m for m in steps if "val_loss" in m]


def final_loss(steps):
    """Infinite if the run diverged, or was not evaluated at its end: a loss that is not finite is left out of its line."""
    return steps[-1].get("val_loss", math.inf) if steps else math.inf


def final_losses(by_seed):
    return {seed: final_loss(steps) for seed, steps in by_seed.items()}


def reached(steps, goal):
    """The first evaluation at or below a loss; None: none, or the run that sets the goal diverged."""
    return next((m for m in evaluations(steps) if m["val_loss"] <= goal < math.inf), None)


def mean_over_seeds(by_seed, key):
    """[(step, mean, least, most)] of what every seed has at a step."""
    values = {}
    for steps in by_seed.values():
        for m in steps:
            if m.get(key) is not None:
                values.setdefault(m["step"], []).append(m[key])
    return [(step, statistics.mean(v), min(v), max(v)) for step, v in sorted(values.items()) if len(v) == len(by_seed)]


def compute_seconds(folder):
    """Median over steps of forward, backward and update of rank 0, 8 hosts on links without a limit; and the dense bytes."""
    steps = read_run(os.path.join(folder, "rate/compute.jsonl"))
    later = steps[len(steps) // 10 :]
    return statistics.median(m["compute_s"] + m["update_s"] for m in later), later[-1]["bytes_sent"]


def lab_rate(folder, ratio):
    """Three digits of 2 (N - 1) / N x bytes of the gradients / (ratio x compute), Mbit/s; rank 0 sends just these bytes."""
    seconds, sent_bytes = compute_seconds(folder)
    return "%gmbit" % float("%.3g" % (8e-6 * sent_bytes / (ratio * seconds)))


def machine_line(answers):
    """The machine of answers of `tacit bench step --json`, and how busy it was when each launch began."""
    if not answers:
        return None
    machine, loads = answers[0]["machine"], [answer["machine"]["load"] for answer in answers]
    return "%d cores of an %s (%s), %.0f GiB, %s, %s, %s; load average at the start of the launches %.1f to %.1f." % (
        machine["cores"], machine["cpu"], machine["isa"], machine["memory_bytes"] / 2**30, machine["system"], machine["compiler"],
        answers[0]["cluster"]["library"], min(loads), max(loads))


def commit_line(folder, *sections):
    """Which commits the launches of these sections ran."""
    found = set()
    for section in sections:
        for name in glob.glob(os.path.join(folder, section, "**", "*.commit"), recursive=True):
            with open(name) as file:
                found.add(file.read().strip())
    return "Measured at commit %s." % ", ".join("`%s`" % commit for commit in sorted(found)) if found else None


# ---- differences of pairs ---------------------------------------------------------------------------------------------

# Quantiles .975 of Student's t for 1, 2, ... degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


def interval(values):
    """Mean of paired differences and half the width of its 95 % interval; infinite for fewer than two pairs."""
    if len(values) < 2:
        return (values[0] if values else math.inf), math.inf
    t = STUDENT[min(len(values) - 1, len(STUDENT)) - 1]
    return statistics.mean(values), t * statistics.stdev(values) / math.sqrt(len(values))


def percent_above(losses, base):
    """By how many per cent losses are above those of the same seed; infinite where only the run itself diverged."""
    return [100 * (losses[seed] / base[seed] - 1) for seed in sorted(losses) if math.isfinite(base.get(seed, math.inf))]


def percent_interval(values):
    """+0.37 % (-0.67 to +1.41, 3 pairs), of finite values; how many are not is said behind it."""
    finite = [value for value in values if math.isfinite(value)]
    lost = len(values) - len(finite)
    return "; ".join(filter(None, ("" if lost and not finite else percent_of_finite(finite), "%d diverged" % lost if lost else "")))


def percent_of_finite(values):
    if not values:
        return "-"
    mean, half = interval(values)
    if math.isinf(half):
        return "%+.2f %% (1 pair)" % mean
    return "%+.2f %% (%+.2f to %+.2f, %d pairs)" % (mean, mean - half, mean + half, len(values))


def within(values, bar):
    """Whether paired differences stay at or below a bar: only if the whole interval does is that established, and not at all if
    a run diverged."""
    if not all(map(math.isfinite, values)):
        return "**missed**"
    mean, half = interval(values)
    if mean > bar:
        return "**missed**"
    return "met" if mean + half <= bar else "met in the mean"


# ---- tables and pages -------------------------------------------------------------------------------------------------


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def met(value, bar):
    return "met" if value >= bar else "**missed**"


def write_rows(path, rows):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        for row in rows:
            print(*row, file=file)


def put(page, name, text):
    begin, end = "<!-- %s -->\n" % name, "<!-- /%s -->" % name
    if begin not in page or end not in page:
        sys.exit("the page lacks the lines %s and %s" % (begin.strip(), end))
    head, rest = page.split(begin, 1)
    return head + begin + text + "\n" + end + rest.split(end, 1)[1]


def rows_in(page, name):
    """The rows of a page's table, as lists of cells."""
    begin, end = "<!-- %s -->\n" % name, "<!-- /%s -->" % name
    lines = page.split(begin, 1)[1].split(end, 1)[0].splitlines() if begin in page else []
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:] if line.startswith("|")]


def merge_rows(path, name, rows):
    """Rows of a page's table with `rows` in place of those that have the same first cell: what was not measured now stays."""
    if path is None:
        return rows
    with open(path) as file:
        old = rows_in(file.read(), name)
    new = {row[0]: row for row in rows}
    kept = [new.pop(row[0], row) for row in old]
    return kept + [row for row in rows if row[0] in new]


def put_all(path, tables):
    with open(path) as file:
        page = file.read()
    for name, text in tables.items():
        if text:
            page = put(page, name, text)
    with open(path, "w") as file:
        file.write(page)


def publish(tables, page, pictures):
    """Prints tables {name: text or None} and puts them into PAGE.md, with a picture {name: (file, title)} behind."""
    for name, text in tables.items():
        if text:
            print("\n%s\n\n%s" % (name, text))
    if page is not None:
        put_all(page, {name: text + "\n\n![%s](../img/%s.svg)" % pictures[name][::-1] if text and name in pictures else text
                       for name, text in tables.items()})

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws a run: loss against time, and where the time of a step went. Usage: scripts/plot_loss.sh RUN [OUT.svg|OUT.png]
set -eu -o pipefail

. "$(dirname "$0")/plot.sh"
open_run loss "$@"

# Time is time spent training: pauses between a stop and a resume are left out (a gap counts as one step).
python3 - "$run/metrics.jsonl" "$data" << 'PYTHON'
import json, sys

KEYS = ("compute_s", "wait_s", "update_s")
steps = [m for m in map(json.loads, open(sys.argv[1])) if "event" not in m and "step" in m]
if not steps:
    sys.exit("plot_loss.sh: no steps in " + sys.argv[1])
elapsed, before, rows = 0.0, None, []
for m in steps:
    step_s = m.get("step_s", 0.0)
    gap = m["time"] - before if before is not None else step_s
    elapsed += gap if 0 <= gap <= 60 + 10 * step_s else step_s
    before = m["time"]
    rows.append((elapsed, m))

minutes = elapsed > 180
unit = 60.0 if minutes else 1.0
bins = 400
width = max(1, len(rows) // bins)


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else None


with open(sys.argv[2] + "/train", "w") as train, open(sys.argv[2] + "/split", "w") as split:
    for i in range(0, len(rows), width):
        chunk = rows[i : i + width]
        at = chunk[-1][0] / unit
        loss = mean(m.get("loss") for _, m in chunk)
        if loss is not None:
            print(at, loss, file=train)
        whole = mean(m.get("step_s") for _, m in chunk)
        parts = [mean(m.get(key) for _, m in chunk) or 0.0 for key in KEYS]
        if whole:
            top = [1e3 * sum(parts[: j + 1]) for j in range(len(parts))] + [1e3 * max(whole, sum(parts))]
            print(at, *top, file=split)
with open(sys.argv[2] + "/validation", "w") as validation:
    points = [(t / unit, m["val_loss"]) for t, m in rows if "val_loss" in m]
    for point in points:
        print(*point, file=validation)
last = points[-1] if points else (0, 0)
losses = [m["loss"] for _, m in rows if "loss" in m]
tail = sorted(losses[len(losses) // 10 :] + [p[1] for p in points])
with open(sys.argv[2] + "/facts", "w") as facts:
    print("unit='%s'" % ("minutes" if minutes else "seconds"), file=facts)
    print("has_validation=%d; last_x=%g; last_y=%g" % (bool(points), last[0], last[1]), file=facts)
    print("steps=%d; rate='%s'" % (steps[-1]["step"], format(int(mean(m.get("tokens_per_s") for _, m in rows) or 0), ",")), file=facts)
    span = tail[-1] - tail[0] or 1.0
    print("low=%g; high=%g; end=%g" % (tail[0] - 0.06 * span, tail[-1] + 0.12 * span, elapsed / unit), file=facts)
PYTHON

gnuplot << GNUPLOT
load '$data/facts'
$(looks 900)
set xrange [0:end]
set xlabel unit.' of training' textcolor rgb ink offset 0,0.4
set key textcolor rgb ink samplen 2 spacing 1.2
set multiplot layout 1,2 margins 0.075,0.985,0.145,0.88 spacing 0.085

set title 'loss, nats per token' textcolor rgb ink offset 0,-0.4
set yrange [low:high]
set key top right
set label 1 (has_validation ? sprintf('{/*1.15 %.3f}', last_y) : '') at last_x,last_y right offset 0,1.1 textcolor rgb '#b3401f'
if (has_validation) {
    plot '$data/train' with lines lw 1.2 lc rgb '#9dbbdc' title 'training', \
         '$data/validation' with linespoints lw 2.4 pt 7 ps 0.45 lc rgb '#b3401f' title 'validation'
} else {
    plot '$data/train' with lines lw 1.6 lc rgb '#3b78b5' title 'training'
}

unset label 1
set title sprintf('milliseconds per step (%d steps, %s tokens/s)', steps, rate) textcolor rgb ink offset 0,-0.4
set yrange [0:*]
set key bottom right width 1 opaque box lc rgb '#ffffff' reverse Left
plot '$data/split' using 1:5 with filledcurves x1 fc rgb '#d9dce0' title 'other', \
     '' using 1:4 with filledcurves x1 fc rgb '#7fae7a' title 'update', \
     '' using 1:3 with filledcurves x1 fc rgb '#e0913f' title 'waiting', \
     '' using 1:2 with filledcurves x1 fc rgb '#5b8fc4' title 'compute'
unset multiplot
GNUPLOT
echo "$out"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws the compression of a run over its steps: factor, gain (energy kept), bytes sent. Usage: scripts/plot_compression.sh RUN [OUT.svg|OUT.png]
set -eu -o pipefail

. "$(dirname "$0")/plot.sh"
open_run compression "$@"

# The factor is drawn step by step, changes with their events; gain and bytes as means of up to 400 intervals.
python3 - "$run/metrics.jsonl" "$data" << 'PYTHON'
import json, math, sys

steps, changes = [], []
for m in map(json.loads, open(sys.argv[1])):
    if m.get("event") == "compression" and m.get("factor", 0) > 0:
        changes.append(m)
    elif "event" not in m and "step" in m:
        steps.append(m)
steps = [m for m in steps if m.get("factor", 0) > 0]
if not steps:
    sys.exit("plot_compression.sh: " + sys.argv[1] + " has no step with a factor: did the run have compress.codec?")
width = max(1, len(steps) // 400)


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else None


unit, name = next(((u, n) for u, n in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
                   if max(m.get("bytes_sent", 0) for m in steps) >= u), (1, "bytes"))
with open(sys.argv[2] + "/factor", "w") as factor:
    for m in steps:
        print(m["step"], m["factor"], file=factor)
with open(sys.argv[2] + "/means", "w") as means:
    for i in range(0, len(steps), width):
        chunk = steps[i : i + width]
        gain, sent = (mean(m.get(key) for m in chunk) for key in ("gain", "bytes_sent"))
        print(chunk[-1]["step"], "NaN" if gain is None else gain, sent / unit if sent else "NaN", file=means)
with open(sys.argv[2] + "/changes", "w") as out:
    for m in changes:
        print(m["step"], m["factor"], file=out)
sent = sum(m.get("bytes_sent", 0) for m in steps)
mean_factor = len(steps) / sum(1 / m["factor"] for m in steps)
with open(sys.argv[2] + "/facts", "w") as facts:
    print("first=%d; last=%d; changes=%d" % (steps[0]["step"] - 1, steps[-1]["step"], len(changes)), file=facts)
    print("mean_factor='%.3g'; unit='%s'; total='%.3g'" % (mean_factor, name, sent / unit), file=facts)
    print("high=%g" % max(2, 1.3 * max(m["factor"] for m in steps)), file=facts)
PYTHON

gnuplot << GNUPLOT
load '$data/facts'
$(looks 1350)
set xrange [first:last]
set xlabel 'steps' textcolor rgb ink offset 0,0.4
set key off
set multiplot layout 1,3 margins 0.05,0.985,0.145,0.88 spacing 0.06

set title sprintf('factor (mean %sx, %d decisions)', mean_factor, changes) textcolor rgb ink offset 0,-0.4
set logscale y
set yrange [0.9:high]
set format y '%g'
set ytics (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e4, 1e5, 1e6)
if (changes > 0) {
    plot '$data/factor' with steps lw 1.8 lc rgb '#3b78b5', '$data/changes' with points pt 7 ps 0.9 lc rgb '#b3401f'
} else {
    plot '$data/factor' with steps lw 1.8 lc rgb '#3b78b5'
}

unset logscale y
set ytics autofreq
set title 'gain: energy that is sent' textcolor rgb ink offset 0,-0.4
set yrange [0:1.05]
plot '$data/means' using 1:2 with lines lw 1.6 lc rgb '#7fae7a'

set title sprintf('%s sent by rank 0 per step (%s %s in all)', unit, total, unit) textcolor rgb ink offset 0,-0.4
set logscale y
set yrange [*:*]
plot '$data/means' using 1:3 with lines lw 1.6 lc rgb '#e0913f'
unset multiplot
GNUPLOT
echo "$out"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws the table of bench/collectives.sh: each all-reduce's share of the line. Usage: scripts/plot_collectives.sh COLLECTIVES.json... OUT.svg
set -eu -o pipefail

. "$(dirname "$0")/plot.sh"
if [ $# -lt 2 ]; then usage; fi
out=${!#}
case $out in *.svg) ;; *) usage ;; esac
need_tools

# One file per rate: a line per arrangement, a column per candidate. Prints the rates, then the candidates.
names=$(python3 - "$data" "${@:1:$#-1}" << 'PYTHON'
import json, sys

rows = [row for path in sys.argv[2:] for row in json.load(open(path))["rows"]]
largest = max(row["bytes"] for row in rows)
rows = [row for row in rows if row["bytes"] == largest and any("of_line" in f for f in row["figures"].values())]
names = list(dict.fromkeys(name for row in rows for name in row["figures"]))
bits = lambda rate: float(rate[:-4]) * {"k": 1e3, "m": 1e6, "g": 1e9}[rate[-4]]
rates = sorted({row["rate"] for row in rows}, key=bits)
for rate in rates:
    with open("%s/%s" % (sys.argv[1], rate), "w") as file:
        for row in sorted((r for r in rows if r["rate"] == rate), key=lambda r: (r["hosts"], r["per_host"])):
            shares = [row["figures"].get(name, {}).get("of_line") for name in names]
            cells = ["?" if share is None else "%.1f" % (100 * share) for share in shares]
            print('"%dx%d"' % (row["hosts"], row["per_host"]), *cells, file=file)
print(" ".join(rates))
print(" ".join(names))
print(largest // 10**6)
PYTHON
)
{ read -r rates; read -r candidates; read -r megabytes; } <<< "$names"

{
    echo "set terminal svg size 900,760 dynamic background rgb 'white' font 'Helvetica,Arial,sans-serif' fontscale 0.85"
    echo "set output '$out'"
    echo "set datafile missing '?'"
    echo "set multiplot layout $(($(wc -w <<< "$rates") / 2 + $(wc -w <<< "$rates") % 2)),2 title 'All-reduce of $megabytes MB: share of what the link of a host carries'"
    echo "set style data histograms; set style histogram clustered gap 1; set style fill solid border -1; set boxwidth 0.95"
    echo "set yrange [0:105]; set ytics 0,25,100; set ylabel 'share of the line, %'; set grid ytics"
    echo "set key horizontal outside bottom center; set border 3; set xtics nomirror scale 0; set ytics nomirror"
    for rate in $rates; do
        text=${rate/mbit/ Mbit/s}
        echo "set title '${text/gbit/ Gbit/s}, hosts x ranks per host'"
        column=1 plots=""
        for name in $candidates; do
            column=$((column + 1))
            case $name in tacit) color=1b6ca8 ;; gloo) color=e08e2b ;; mpi-ring) color=7a9e7e ;; mpi-han) color=b5b5b5 ;; *) color=dddddd ;; esac
            plots+="${plots:+, }'$data/$rate' using $column$([ $column -gt 2 ] || echo ':xtic(1)') title '$name' linecolor rgb '#$color'"
        done
        echo "plot $plots"
    done
    echo "unset multiplot"
} | gnuplot

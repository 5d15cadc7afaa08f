#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws what gossip_tables.py left in FOLDER/plot: gossip-steps.svg, gossip-loss.svg, gossip-time.svg. Usage: scripts/results/plot_gossip.sh FOLDER OUT_FOLDER
set -eu -o pipefail

[ $# -eq 2 ] || { sed -n '3s/^# //p' "$0"; exit 2; }
command -v gnuplot > /dev/null || { echo "plot_gossip.sh: gnuplot is missing: apt-get install gnuplot-nox" >&2; exit 7; }
data=$1/plot out=$2
mkdir -p "$out"

# head FILE WIDTH HEIGHT: what all pictures have in common.
head() {
    cat << GNUPLOT
set terminal svg size $2,$3 dynamic background rgb 'white' font 'Helvetica,Arial,sans-serif' fontscale 0.85
set output '$out/$1'
ink = '#30343b'
set datafile missing '?'
set border 3 lc rgb '#8a9099' lw 1
set tics nomirror out scale 0.5 textcolor rgb ink
set grid y lc rgb '#e6e8eb' lt 1 lw 1
set key textcolor rgb ink samplen 2 spacing 1.2
set pointintervalbox 0
GNUPLOT
}

color_of() {
    case $1 in
        dense) echo "#30343b" ;;
        aer | accum-aer) echo "#1b6ca8" ;;
        exp | accum-exp) echo "#e08e2b" ;;
        complete) echo "#7a9e7e" ;;
        adam-aer) echo "#8fb8da" ;;
        adam-exp) echo "#f0c893" ;;
        *-atc) echo "#8e6bb0" ;;
    esac
}

title_of() {
    case $1 in
        dense) echo "all-reduce, adamw" ;;
        accum-*) echo "${1#accum-}, accum-adamw" ;;
        adam-*) echo "${1#adam-}, adamw" ;;
    esac
}

# Bars of the three topologies with the range of their blocks; the least that aer must reach is a line across its bar.
steps() {
    local wire topology i plots panels=0
    for wire in f32 bf16; do [ ! -s "$data/steps-$wire" ] || panels=$((panels + 1)); done
    [ $panels -gt 0 ] || return 0
    {
        head gossip-steps.svg $((140 + 380 * panels)) 400
        echo "set multiplot layout 1,$panels title 'Dense all-reduce / gossip: time per step, 16 ranks on 4 hosts' textcolor rgb ink"
        echo "set yrange [0:*]; set offsets 0, 0, graph 0.25, 0; set xrange [-0.6:2.6]; set key top left Left reverse; set style fill solid noborder; set boxwidth 0.24"
        echo "set xlabel 'all-reduce / compute' textcolor rgb ink; set ylabel 'times faster' textcolor rgb ink"
        for wire in f32 bf16; do
            [ -s "$data/steps-$wire" ] || continue
            echo "set title '$wire on the wire, both sides' textcolor rgb ink"
            i=0 plots=""
            for topology in aer exp complete; do
                plots+="${plots:+, }'$data/steps-$wire' using (\$0 + 0.26 * ($i - 1)):$((2 + 3 * i))$([ $i -ne 1 ] || echo ':xtic(1)') with boxes lc rgb '$(color_of $topology)' title '$topology'"
                plots+=", '' using (\$0 + 0.26 * ($i - 1)):$((3 + 3 * i)):(0):(\$$((4 + 3 * i)) - \$$((3 + 3 * i))) with vectors nohead lw 1.5 lc rgb '#555b63' notitle"
                i=$((i + 1))
            done
            echo "plot $plots, '' using (\$0 - 0.39):11:(0.26):(0) with vectors nohead lw 2.5 lc rgb '#b3401f' title 'aer must reach', 1 lc rgb '#8a9099' dt 2 notitle"
        done
        echo "unset multiplot"
    } | gnuplot
    echo "$out/gossip-steps.svg"
}

# curves KEY: one line for each method that has the key, with the range over seeds.
curves() {
    local method plots=""
    for method in adam-aer adam-exp accum-exp-atc accum-aer-atc accum-exp accum-aer dense; do
        [ -s "$data/$1-$method" ] || continue
        plots+="${plots:+, }'$data/$1-$method' using 1:3:4 with filledcurves fc rgb '$(color_of $method)' fs transparent solid 0.15 notitle"
        plots+=", '' using 1:2 with lines lw 2 lc rgb '$(color_of $method)' title '$(title_of $method)'"
    done
    echo "plot $plots"
}

loss() {
    [ -s "$data/val_loss-dense" ] || return 0
    {
        head gossip-loss.svg 960 420
        echo "set multiplot layout 1,2 margins 0.07,0.985,0.14,0.88 spacing 0.09"
        echo "set xlabel 'steps' textcolor rgb ink"
        echo "set title 'validation loss, nats per byte' textcolor rgb ink; set key top right"
        curves val_loss
        if compgen -G "$data/distance-*" > /dev/null; then
            echo "set title 'consensus distance' textcolor rgb ink; set yrange [0:*]; set key top right"
            curves distance
        fi
        echo "unset multiplot"
    } | gnuplot
    echo "$out/gossip-loss.svg"
}

against_time() {
    local wire method dash=1 plots=""
    compgen -G "$data/time-*" > /dev/null || return 0
    for wire in f32 bf16; do
        for method in dense accum-aer; do
            [ ! -s "$data/time-$method-$wire" ] || plots+="${plots:+, }'$data/time-$method-$wire' with linespoints lw 2 pt 7 ps 0.3 dt $dash lc rgb '$(color_of $method)' title '$(title_of $method), $wire'"
        done
        dash=2
    done
    {
        head gossip-time.svg 720 420
        echo "set title 'validation loss, nats per byte: 4 hosts of 2 ranks' textcolor rgb ink"
        echo "set xlabel 'seconds of training' textcolor rgb ink; set key top right"
        echo "plot $plots"
    } | gnuplot
    echo "$out/gossip-time.svg"
}

steps
loss
against_time

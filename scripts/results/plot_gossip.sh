#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws what gossip_tables.py left in FOLDER/plot: gossip-steps.svg, gossip-loss.svg, gossip-time.svg, but for those of which
# nothing is there. Usage: scripts/results/plot_gossip.sh FOLDER OUT_FOLDER
set -eu -o pipefail

. "$(dirname "$0")/picture.sh"

color_of() {
    case $1 in
        dense) echo "#30343b" ;;
        aer | accum-aer) echo "#1b6ca8" ;;
        exp | accum-exp) echo "#e08e2b" ;;
        complete) echo "#7a9e7e" ;;
        adam-aer) echo "#8fb8da" ;;
        adam-exp) echo "#f0c893" ;;
        *-atc) echo "#8e6bb0" ;;
        *-delay | aer-auto) echo "#3f8f5f" ;;
    esac
}

title_of() {
    case $1 in
        dense) echo "all-reduce, adamw" ;;
        accum-*) echo "${1#accum-}, accum-adamw" ;;
        adam-*) echo "${1#adam-}, adamw" ;;
        aer-auto) echo "aer, int4, adamw" ;;
        *) echo "$1, adamw" ;;
    esac
}

# Bars of the three topologies with the range of their blocks; the least that aer must reach is a line across its bar. All
# panels have one scale.
steps() {
    local wire topology i=0 t x plots key="" panels=() most
    for wire in f32 bf16; do [ ! -s "$data/steps-$wire" ] || panels+=("$wire"); done
    [ ${#panels[@]} -gt 0 ] || return 0
    most=$(cat "${panels[@]/#/$data/steps-}" | awk '{ for (i = 2; i < 12; i++) if ($i > most) most = $i } END { print 1.08 * most }')
    for topology in aer exp complete; do key+="NaN with boxes lc rgb '$(color_of $topology)' title '$topology', "; done
    key+="NaN with lines lw 2.5 lc rgb '#b3401f' title 'least asked of aer', NaN with lines dt 2 lc rgb '#8a9099' title 'dense all-reduce'"
    {
        echo "set multiplot; unset key"
        echo "set yrange [0:$most]; set xrange [-0.55:2.55]; set style fill solid noborder; set boxwidth 0.26"
        echo "set xlabel 'dense all-reduce / compute' textcolor rgb ink; set ylabel 'dense step / gossip step' textcolor rgb ink"
        for wire in "${panels[@]}"; do
            panel $i ${#panels[@]}
            echo "set title '$wire on the wire, both sides' textcolor rgb ink offset 0,-0.3"
            t=0 plots=""
            for topology in aer exp complete; do
                x="(\$0 + 0.28 * ($t - 1))"
                plots+="${plots:+, }'$data/steps-$wire' using $x:$((2 + 3 * t))$([ $t -ne 1 ] || echo ':xtic(1)') with boxes lc rgb '$(color_of $topology)'"
                plots+=", '' using $x:$((3 + 3 * t)):(0):(\$$((4 + 3 * t)) - \$$((3 + 3 * t))) with vectors nohead lw 1.5 lc rgb ink"
                plots+=", '' using $x:(\$$((4 + 3 * t)) + (\$$((4 + 3 * t)) < 1 ? -0.07 : 0.07)):(sprintf('%.2f', \$$((2 + 3 * t)))) with labels font ',10' textcolor rgb ink"
                t=$((t + 1))
            done
            echo "plot $plots, '' using (\$0 - 0.42):11:(0.28):(0) with vectors nohead lw 2.5 lc rgb '#b3401f', 1 lc rgb '#8a9099' dt 2"
            echo "unset ylabel"
            i=$((i + 1))
        done
        top "Speed-up of a step over dense all-reduce: 16 ranks on 4 hosts" "$key"
        echo "unset multiplot"
    } | draw gossip-steps.svg $((140 + 380 * ${#panels[@]})) 400
}

# curves KEY: one line for each method that has the key, with the range over seeds.
drawn="adam-aer adam-exp accum-exp-atc accum-aer-atc accum-aer-delay accum-exp accum-aer aer aer-auto dense"
curves() {
    local method plots=""
    for method in $drawn; do
        [ -s "$data/$1-$method" ] || continue
        plots+="${plots:+, }'$data/$1-$method' using 1:3:4 with filledcurves fc rgb '$(color_of $method)' fs transparent solid 0.15"
        plots+=", '' using 1:2 with lines lw 2 lc rgb '$(color_of $method)'"
    done
    echo "plot $plots"
}

loss() {
    local method key="" panels=1
    [ -s "$data/val_loss-dense" ] || return 0
    ! compgen -G "$data/distance-*" > /dev/null || panels=2
    for method in $drawn; do
        [ ! -s "$data/val_loss-$method" ] || key="NaN with lines lw 2 lc rgb '$(color_of $method)' title '$(title_of $method)'${key:+, $key}"
    done
    {
        echo "set multiplot; unset key; set xlabel 'steps' textcolor rgb ink"
        panel 0 $panels
        echo "set title 'validation loss, nats per byte' textcolor rgb ink offset 0,-0.3"
        curves val_loss
        if [ $panels -eq 2 ]; then
            panel 1 $panels
            echo "set title 'consensus distance' textcolor rgb ink; set yrange [0:*]"
            curves distance
        fi
        top "Mean over the seeds, with the range from the least to the most" "$key"
        echo "unset multiplot"
    } | draw gossip-loss.svg 960 420
}

against_time() {
    local wire method dash=1 plots=""
    compgen -G "$data/time-*" > /dev/null || return 0
    for wire in f32 bf16; do
        for method in dense aer aer-auto accum-aer accum-aer-delay accum-aer-atc; do
            [ ! -s "$data/time-$method-$wire" ] || plots+="${plots:+, }'$data/time-$method-$wire' with linespoints lw 2 pt 7 ps 0.3 dt $dash lc rgb '$(color_of $method)' title '$(title_of $method), $wire'"
        done
        dash=2
    done
    {
        echo "set title 'validation loss, nats per byte: 4 hosts of 2 ranks' textcolor rgb ink"
        echo "set xlabel 'seconds of training' textcolor rgb ink; set key top right"
        echo "plot $plots"
    } | draw gossip-time.svg 720 400
}

steps
loss
against_time

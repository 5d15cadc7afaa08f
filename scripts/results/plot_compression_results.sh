#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws what compression_tables.py left in FOLDER/plot: compression-time.svg and compression-cliff.svg, but for those of which
# nothing is there. Usage: scripts/results/plot_compression_results.sh FOLDER OUT_FOLDER
set -eu -o pipefail

. "$(dirname "$0")/picture.sh"

color_of() {
    case $1 in
        dense) echo "#30343b" ;;
        dense-bf16) echo "#8a9099" ;;
        c20 | topk-int4) echo "#1b6ca8" ;;
        c30 | bits) echo "#e08e2b" ;;
        gravac | topk) echo "#8e6bb0" ;;
        onebit) echo "#b3401f" ;;
    esac
}

title_of() {
    case $1 in
        dense) echo "dense f32" ;;
        dense-bf16) echo "dense bf16" ;;
        c20) echo "20x" ;;
        c30) echo "30x" ;;
        topk) echo "top-k, f32 values" ;;
        topk-int4) echo "top-k, int4 values" ;;
        bits) echo "all elements" ;;
        *) echo "$1" ;;
    esac
}

against_time() {
    local method plots=""
    [ -s "$data/time-dense" ] || return 0
    for method in dense dense-bf16 c20 c30 gravac; do
        [ ! -s "$data/time-$method" ] || plots+="${plots:+, }'$data/time-$method' with linespoints lw 2 pt 7 ps 0.3 lc rgb '$(color_of $method)' title '$(title_of $method)'"
    done
    {
        echo "set title 'validation loss, nats per byte: 8 hosts, seed 1' textcolor rgb ink"
        echo "set xlabel 'seconds of training' textcolor rgb ink; set key top right; set logscale x"
        echo "plot $plots"
    } | draw compression-time.svg 720 400
}

# The first learning rate has solid lines, the others are dashed. Dense runs are horizontal.
cliff() {
    local file rate dash=0 name plots=""
    for file in $(compgen -G "$data/cliff-dense_*" | sort -t_ -k2,2 -gr); do
        rate=${file##*_} dash=$((dash + 1))
        plots+="${plots:+, }$(cat "$file") dt $dash lw 1.5 lc rgb '$(color_of dense)' title 'dense, lr $rate'"
        for name in topk topk-int4 bits onebit; do
            [ ! -s "$data/cliff-${name}_$rate" ] || plots+=", '$data/cliff-${name}_$rate' with linespoints lw 2 pt $((9 - 2 * dash)) ps 0.5 dt $dash lc rgb '$(color_of $name)' title '$(title_of $name), lr $rate'"
        done
    done
    [ -n "$plots" ] || return 0
    {
        echo "set title 'validation loss after the same steps, nats per byte' textcolor rgb ink"
        echo "set xlabel 'bits per parameter and half' textcolor rgb ink; set logscale x 2; set key outside right top"
        echo "plot $plots"
    } | draw compression-cliff.svg 800 440
}

against_time
cliff

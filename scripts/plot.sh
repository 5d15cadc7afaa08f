# SPDX-License-Identifier: Apache-2.0
# Sourced by the plot scripts: prints their usage, which is their third line, checks what they need, and sets the looks of pictures.
usage() {
    sed -n '3s/^# //p' "$0"
    exit 2
}

need() {
    command -v "$1" > /dev/null || { echo "${0##*/}: $1 is missing: apt-get install $2" >&2; exit 7; }
}

need_tools() {
    need gnuplot gnuplot-nox
    need python3 python3
    data=$(mktemp -d) # for the curves
    trap 'rm -rf "$data"' EXIT
}

# open_run NAME RUN [OUT]: sets run and out, which is RUN/NAME.svg by default.
open_run() {
    if [ $# -lt 2 ] || [ $# -gt 3 ]; then usage; fi
    run=${2%/}
    out=${3:-$run/$1.svg}
    case $out in *.svg | *.png) ;; *) usage ;; esac
    [ -r "$run/metrics.jsonl" ] || { echo "${0##*/}: $run/metrics.jsonl cannot be read" >&2; exit 4; }
    need_tools
}

# looks WIDTH [HEIGHT]: what gnuplot is told first.
looks() {
    case $out in
        *.svg) echo "set terminal svg size $1,${2:-420} dynamic background rgb 'white' font 'Helvetica,Arial,sans-serif' fontscale 0.85" ;;
        *.png) echo "set terminal pngcairo size $((2 * $1)),840 font 'sans,18' linewidth 2" ;;
    esac
    cat << GNUPLOT
set output '$out'
ink = '#30343b'
set border 3 lc rgb '#8a9099' lw 1
set tics nomirror out scale 0.5 textcolor rgb ink
set grid y lc rgb '#e6e8eb' lt 1 lw 1
GNUPLOT
}

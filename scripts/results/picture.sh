# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts that draw pictures of result pages: their words FOLDER OUT_FOLDER, and common looks. Sets data and out,
# the folders of the curves and of the pictures.
[ $# -eq 2 ] || { sed -n '3,4s/^# //p' "$0"; exit 2; }
data=$1/plot out=$2
mkdir -p "$out"
. "$(dirname "${BASH_SOURCE[0]}")/../plot.sh"
need gnuplot gnuplot-nox

# draw FILE WIDTH HEIGHT: a picture, by the commands of stdin. gnuplot titles unnamed curves by the path of their data, which is of
# this machine alone.
draw() {
    {
        out=$out/$1 looks "$2" "$3"
        echo "set datafile missing '?'; set key textcolor rgb ink samplen 2 spacing 1.2; set pointintervalbox 0"
        cat
    } | gnuplot
    sed -i "s#$data/##g" "$out/$1"
    echo "$out/$1"
}

# panel NUMBER OF: where the next plot stands among several side by side, below a title and a key of all.
panel() {
    awk -v i="$1" -v n="$2" 'BEGIN {
        width = (0.985 - 0.075 - 0.065 * (n - 1)) / n; left = 0.075 + i * (width + 0.065)
        printf "set lmargin at screen %.4f; set rmargin at screen %.4f; set bmargin at screen 0.14; set tmargin at screen 0.77\n", left, left + width }'
}

# top TITLE ENTRIES: title and key of all panels, which no plot of theirs would have room for. Comes last.
top() {
    echo "reset; set lmargin at screen 0; set rmargin at screen 1; set bmargin at screen 0.85; set tmargin at screen 0.93"
    echo "unset border; unset tics; set xrange [0:1]; set yrange [0:1]; set style fill solid noborder"
    echo "set label '$1' at screen 0.5, 0.955 center textcolor rgb '#30343b' font ',14'"
    echo "set key center center horizontal maxrows 1 Left reverse samplen 2 width -3 textcolor rgb '#30343b'"
    echo "plot $2"
}

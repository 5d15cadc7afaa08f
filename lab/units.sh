# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by lab/cluster: words of the command line ("2.5gbit", "1ms", "0.1%") to integers and back. Each to_* function
# prints the integer, or returns 1 when the word is not of its kind.

# decimal WORD EXPONENT: WORD times 10^EXPONENT as an integer; digits beyond that are cut off.
decimal() {
  local word=$1 exponent=$2 whole fraction
  [[ $word =~ ^([0-9]{1,9})(\.([0-9]{1,9}))?$ ]] || return 1
  whole=${BASH_REMATCH[1]} fraction=${BASH_REMATCH[3]}000000000000
  echo $((10#$whole$( ((exponent == 0)) || echo "${fraction:0:exponent}")))
}

# Bits per second; "none" is 0: a link without a limit.
to_bps() {
  [ "$1" != none ] || { echo 0; return; }
  local bps=0
  [[ $1 =~ ^([0-9.]+)(kbit|mbit|gbit)$ ]] || return 1
  case ${BASH_REMATCH[2]} in
    kbit) bps=$(decimal "${BASH_REMATCH[1]}" 3) ;;
    mbit) bps=$(decimal "${BASH_REMATCH[1]}" 6) ;;
    gbit) bps=$(decimal "${BASH_REMATCH[1]}" 9) ;;
  esac
  # Below this a single frame of 9000 bytes takes a second; above it no shaper here keeps its word.
  ((${bps:-0} >= 100000 && bps <= 100000000000)) && echo "$bps"
}

from_bps() {
  local bps=$1 unit divisor
  ((bps > 0)) || { echo none; return; }
  if ((bps >= 1000000000)); then unit=gbit divisor=1000000000
  elif ((bps >= 1000000)); then unit=mbit divisor=1000000
  else unit=kbit divisor=1000; fi
  local text fraction
  text=$((bps / divisor))
  fraction=$(printf '%03d' $((bps % divisor * 1000 / divisor)))
  while [[ $fraction == *0 ]]; do fraction=${fraction%0}; done
  echo "$text${fraction:+.$fraction}$unit"
}

to_ns() {
  [ "$1" != 0 ] || { echo 0; return; }
  [[ $1 =~ ^([0-9.]+)(us|ms|s)$ ]] || return 1
  case ${BASH_REMATCH[2]} in
    us) decimal "${BASH_REMATCH[1]}" 3 ;;
    ms) decimal "${BASH_REMATCH[1]}" 6 ;;
    s) decimal "${BASH_REMATCH[1]}" 9 ;;
  esac
}

# Parts per million of a share written as 0.1%.
to_ppm() {
  local ppm
  [[ $1 =~ ^([0-9.]+)%$ ]] || return 1
  ppm=$(decimal "${BASH_REMATCH[1]}" 4) || return 1
  ((ppm <= 1000000)) && echo "$ppm"
}

# Thousandths of a factor such as 2.5; at least 1.
to_permille() {
  local permille
  permille=$(decimal "$1" 3) || return 1
  ((permille >= 1000)) && echo "$permille"
}

# whole WORD LOW HIGH: an integer in that range.
whole() {
  [[ $1 =~ ^[0-9]{1,9}$ ]] || return 1
  ((10#$1 >= $2 && 10#$1 <= $3)) && echo $((10#$1))
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by lab/cluster: every command once. Help, the check of options and the errors about them come from here.
#   define COMMAND "WORDS" "ONE LINE" "OPTIONS" "EXAMPLE"     options: one per line, "NAME VALUE|text"; without VALUE a switch

declare -A WORDS_OF ABOUT OPTIONS_OF EXAMPLE
COMMANDS=()
define() { COMMANDS+=("$1"); WORDS_OF[$1]=$2 ABOUT[$1]=$3 OPTIONS_OF[$1]=$4 EXAMPLE[$1]=$5; }

readonly NAME_OPTION="name NAME|which cluster (default: lab)"

define up "HOSTS" "makes a cluster: hosts that are namespaces, joined by links of one rate" \
  "rate RATE|of each link in each direction: 100mbit, 2.5gbit, none (default: 1gbit)
per-host P|ranks that \`run\` puts on a host by default (default: 1)
mtu BYTES|of the data network (default: 9000)
delay TIME|on the way from host to host: 100us, 1ms (default: 0)
jitter TIME|the delay varies by so much, up and down (default: 0)
loss SHARE|of frames: 0.1% (default: 0%)
schedule FILE|links that change: lines SECONDS HOST|all RATE [DELAY], counted from now
$NAME_OPTION" \
  "lab/cluster up 4 --rate 200mbit --per-host 2"
define rate "RATE [HOST]" "changes the rate of all links, or of one host's" "$NAME_OPTION" "lab/cluster rate 50mbit n2"
define run "-- COMMAND..." "starts ranks on the hosts; signals and the exit status pass through" \
  "n R|ranks (default: hosts x ranks per host)
per-host P|ranks on one host (default: the cluster's; with -n as few as will do)
mpi WHICH|openmpi, mpich or none: tacit starts its own ranks (default: openmpi)
torchrun|the command is a PyTorch script: one torchrun on each host
timeout SECONDS|end the run after so long, with status 124
$NAME_OPTION" \
  "lab/cluster run -n 8 --per-host 2 -- tacit train examples/demo.yaml"
define exec "HOST COMMAND..." "runs one command on one host" "$NAME_OPTION" "lab/cluster exec n0 ip addr"
define cut "HOST" "pulls the data cable of a host; the launcher still reaches it" "$NAME_OPTION" "lab/cluster cut n1"
define heal "HOST" "plugs it in again" "$NAME_OPTION" "lab/cluster heal n1"
define slow "HOST FACTOR" "leaves a host 1/FACTOR of its share of the cores (1: all it can get, as at first)" "$NAME_OPTION" \
  "lab/cluster slow n3 2.5"
define stat "" "rate, bytes, drops and state of every host" "json|as one JSON object
$NAME_OPTION" "lab/cluster stat --json"
define down "" "removes everything that \`up\` made" "$NAME_OPTION" "lab/cluster down"
define list "" "all clusters of this machine" "" "lab/cluster list"

option_lines() {
  local spec text dashes
  while IFS='|' read -r spec text; do
    [ -n "$spec" ] || continue
    dashes=--
    [ "${spec%% *}" != n ] || dashes=-
    printf '  %-20s %s\n' "$dashes$spec" "$text"
  done <<<"${OPTIONS_OF[$1]}"
}

usage_of() {
  echo "lab/cluster $1 ${OPTIONS_OF[$1]:+[OPTIONS] }${WORDS_OF[$1]}"
  echo "  ${ABOUT[$1]}"
  option_lines "$1"
  echo "  example: ${EXAMPLE[$1]}"
}

usage() {
  local command
  echo "lab/cluster: emulated clusters on one machine. Needs root. docs/lab.md tells the whole story."
  echo
  for command in "${COMMANDS[@]}"; do printf '  %-28s %s\n' "$command ${WORDS_OF[$command]}" "${ABOUT[$command]}"; done
  echo
  echo "lab/cluster COMMAND --help shows the options and an example. HOST is n0, n1, ... or 0, 1, ..."
}

misuse() { die 2 "$command: $1
  $(usage_of "$command" | sed -n '1p;$p' | sed '2s/^ */  /')"; }

# kind_of OPTION: "value" or "switch" for the current command.
kind_of() {
  local spec text
  while IFS='|' read -r spec text; do
    [ "${spec%% *}" = "$1" ] || continue
    [[ $spec == *" "* ]] && echo value || echo switch
    return 0
  done <<<"${OPTIONS_OF[$command]}"
  return 1
}

# Options may stand anywhere before -- (for run and exec: before the command). Sets OPTION and WORDS.
declare -A OPTION
WORDS=()
parse() {
  local word key kind most=1000
  case $command in exec) most=2 ;; run) most=1 ;; esac
  while (($# > 0)); do
    word=$1
    case $word in
      --) shift; WORDS+=("$@"); return ;;
      --help | -h) usage_of "$command"; exit 0 ;;
      --?* | -[a-z]*)
        key=${word#-} key=${key#-} key=${key%%=*}
        kind=$(kind_of "$key") || misuse "no option $word; there are:
$(option_lines "$command")"
        if [ "$kind" = switch ]; then OPTION[$key]=yes
        elif [[ $word == *=* ]]; then OPTION[$key]=${word#*=}
        else
          (($# >= 2)) || misuse "$word needs a value"
          OPTION[$key]=$2; shift
        fi ;;
      *)
        WORDS+=("$word")
        ((${#WORDS[@]} < most)) || { shift; WORDS+=("$@"); return; } ;;
    esac
    shift
  done
}

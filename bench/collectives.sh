#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All-reduces side by side on emulated clusters: tacit, Open MPI's own (default, ring, HAN) and PyTorch's gloo.
#
#   bench/collectives.sh [-o FOLDER] [--hosts "N ..."] [--per-host "P ..."] [--rates "RATE ..."] [--bytes LIST]
#                        [--by LIST] [--blocks N] [--rounds N] [--quick] [--name NAME] [--tacit PROGRAM]
#                        [-- FLAGS of tacit bench collectives]
#
# Without options: 64 MB on 4 and 8 hosts of 1, 2 and 4 ranks at 100 Mbit/s, 200 Mbit/s, 1 Gbit/s and 2.5 Gbit/s, which
# takes one to two hours. --quick: 4 hosts of 2 ranks at 1 Gbit/s, one block, a minute. --rates none: links as fast as the
# machine, shares of the line left out. --by: names of `tacit bench collectives`, and gloo.
#
# A block is one launch of `tacit bench collectives`, which runs its candidates in turns, and one of bench/peers/gloo.py;
# odd blocks begin with the one, even blocks with the other. A send from host to host comes first and says what the line
# really carries. FOLDER (default build/collectives, or -quick behind it) receives runs.jsonl (every result as it came), collectives.json and
# table.txt. Needs root, for lab/cluster. The cluster is taken down at the end, also of an interrupted run.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2
. scripts/results/record.sh

hosts="" per_host="" rates="" bytes=64MB by="tacit,mpi-default,mpi-ring,mpi-han,gloo" blocks="" rounds=2
read_words "-o --hosts --per-host --rates --bytes --by --blocks --rounds --quick --name --tacit --" "" "" "$@"
[ -z "$quick" ] || : "${hosts:=4}" "${per_host:=2}" "${rates:=1gbit}" "${blocks:=1}"
: "${hosts:=4 8}" "${per_host:=1 2 4}" "${rates:=100mbit 200mbit 1gbit 2.5gbit}" "${blocks:=3}"
for count in $hosts $per_host $blocks $rounds; do
  [[ $count =~ ^[1-9][0-9]*$ ]] || misuse "\"$count\" is not a whole number above 0"
done

# Who runs where: gloo is not MPI's.
with_gloo="" mpi_by=""
for who in ${by//,/ }; do
  if [ "$who" = gloo ]; then with_gloo=yes; else mpi_by=$mpi_by${mpi_by:+,}$who; fi
done
[ -z "$with_gloo" ] || /usr/bin/python3 -c 'import torch' 2>/dev/null ||
  { echo "collectives.sh: PyTorch is missing: apt-get install python3-torch, or leave gloo out of --by" >&2; exit 7; }

runs=$folder/runs.jsonl
: >"$runs"
log=$folder/last.log

# keep_answer WHAT BLOCK RANKS PER_HOST COMMAND...: runs it on the cluster and keeps the JSON it prints, with the cell it
# belongs to.
keep_answer() {
  local what=$1 block=$2 where=(-n "$3" --per-host "$4") answer
  shift 4
  echo "$(date +%T) $h hosts x $p, $rate: block $block of $blocks: $what" >&2
  if answer=$(lab/cluster run --name "$name" "${where[@]}" --timeout 1800 -- "$@" 2>"$log" </dev/null); then
    printf '{"hosts":%d,"per_host":%d,"rate":"%s","block":%d,"result":%s}\n' "$h" "$p" "$rate" "$block" \
      "$(tr -d '\n' <<<"$answer")" >>"$runs"
  else
    echo "collectives.sh: failed: $*" >&2
    tail -n 20 "$log" >&2
    failures=$((failures + 1))
  fi
}

run_tacit() {
  [ -z "$mpi_by" ] || keep_answer "${mpi_by//,/ }" "$1" $((h * p)) "$p" "$tacit" bench collectives --json --bytes "$bytes" --by "$mpi_by" --rounds "$rounds" \
    "${line[@]}" "${extra[@]}"
}
run_gloo() { [ -z "$with_gloo" ] || keep_answer gloo "$1" $((h * p)) "$p" /usr/bin/python3 "$PWD/bench/peers/gloo.py" --bytes "$bytes" --rounds "$rounds"; }

cell() {
  local block line=()
  [ "$rate" = none ] || line=(--line "$rate")
  # Two ranks alone: others that wait would take the cores from them.
  [ "$h" -lt 2 ] || keep_answer send 0 2 1 "$tacit" bench collectives --op send --json --bytes "$bytes" --rounds 3 "${line[@]}"
  for ((block = 1; block <= blocks; block++)); do
    if ((block % 2)); then run_tacit "$block"; run_gloo "$block"; else run_gloo "$block"; run_tacit "$block"; fi
  done
}

for h in $hosts; do
  # shellcheck disable=SC2086 # the first word of the list
  set -- $rates
  lab_up "$h" 1 "$1"
  for rate in $rates; do
    lab/cluster rate "$rate" --name "$name" >/dev/null || exit $?
    for p in $per_host; do cell; done
  done
done

/usr/bin/python3 bench/collectives_table.py "$runs" "$folder/collectives.json" | tee "$folder/table.txt" || exit 1
rm -f "$log"
[ "$failures" -eq 0 ] || { echo "collectives.sh: $failures launches failed; their samples are missing" >&2; exit 1; }

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/c/gradients.c on ranks that nothing but RANK, WORLD_SIZE and MASTER_ADDR has started: it learns, and all ranks end with the same
# bits, dense, compressed and without overlap. Usage: tests/gradients.sh PROGRAM
set -uo pipefail
program=${1:?usage: tests/gradients.sh PROGRAM}
cd "$(dirname "$0")/.."
. tests/check.sh
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export TACIT_PLUGINS=/nowhere # no MPI can be found
port=$((20000 + $$ % 10000))

# ranks N SETTING...: the outputs of all ranks in $work/out, sorted
ranks() {
  local n=$1 r code=0 jobs=(); shift
  port=$((port + 2))
  for ((r = 0; r < n; r++)); do
    RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 60 "$program" "$@" >"$work/$r" 2>&1 &
    jobs+=($!)
  done
  for r in "${jobs[@]}"; do wait "$r" || code=$?; done
  for ((r = 0; r < n; r++)); do cat "$work/$r"; done >"$work/out"
  return $code
}
# N ranks end with one result, and the last loss is a hundredth of the first that was printed.
learns() {
  ranks "$@" || { cat "$work/out"; return 1; }
  [ "$(grep -c "^rank [0-9]* of $1: " "$work/out")" -eq "$1" ] && [ "$(sed -n 's/^rank.*: //p' "$work/out" | sort -u | wc -l)" -eq 1 ] &&
    awk '/^step/ { if (!n++) first = $4; last = $4 } END { exit !(n == 4 && last * 100 < first) }' "$work/out" || { cat "$work/out"; return 1; }
}

for n in 1 2 3; do
  check "$n ranks" learns $n
  cp "$work/out" "$work/overlapped"
  check "$n ranks without overlap" learns $n exchange.overlap=false
  check "have the same bits" cmp "$work/out" "$work/overlapped"
done
check "3 ranks, compressed" learns 3 compress.codec=int8
check "2 ranks, no communication thread" learns 2 comm.thread=false
refuses() { ! ranks "$@" && grep -q 'a job with gradients_only does not have: strategy=dp' "$work/out"; }
check "2 ranks, gossip" refuses 2 strategy=gossip
finish_checks

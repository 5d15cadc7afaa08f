#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Strangers at the doors of a run over TCP, with and without comm.key_file: two of three ranks are up and wait, and until
# the end of the run every listening port and socket gets HTTP, TLS, random bytes, half a hello and silence, what was
# recorded of other runs and of this one, and 200 connections at once. The run must end with the bits of a run that was
# left alone, and log each reason for a refusal once.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
find_program
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export TMPDIR=$work TACIT_PLUGINS=/nowhere
for name in mine other; do (umask 077; head -c 32 /dev/urandom >"$work/$name"); done

nano=(--data.train LICENSE --model.preset nano --model.heads 1 --model.channels 41 --train.threads 1 --train.batch 7 --run.tensorboard false
      --train.steps 150 --comm.interface lo --comm.start 200)
bits() { (cd "$work/$1/ckpt" && sha256sum */*.safetensors); }
same() { diff <(bits "$1") <(bits "$2") && [ -n "$(bits "$1")" ]; }

# rank R DIR FLAGS...: one of three, which meet at 127.0.0.1:$port
rank() { RANK=$1 WORLD_SIZE=3 timeout 240 "$tacit" train "${nano[@]}" --run.dir "$work/$2" --comm.meet "127.0.0.1:$port" "${@:3}" >"$work/$2.$1.out" 2>&1; }

# trio DIR FLAGS...: all three at once, left alone
trio() {
  local jobs=() r status=0
  for r in 0 1 2; do rank $r "$@" & jobs+=($!); done
  for r in "${jobs[@]}"; do wait "$r" || status=1; done
  [ $status -eq 0 ] || cat "$work/$1".?.out
  return $status
}

recorded() { tests/strangers.py record "$work/$1.tape" -- bash -c "$(declare -f rank trio); $(declare -p nano); work=$work tacit=$tacit port=$port; trio $*"; }

# besieged DIR REACH FLAGS...: strangers come when ranks 0 and 1 wait for rank 2, and go when the run has ended
besieged() {
  local jobs=() r status=0 siege
  for r in 0 1; do rank $r "$1" "${@:3}" & jobs+=($!); done
  tests/strangers.py besiege "run.dir $work/$1 " "$work/$1.gate" "$2" "${tapes[@]}" >"$work/$1.siege" 2>&1 & siege=$!
  for _ in $(seq 900); do [ ! -e "$work/$1.gate" ] || break; sleep 0.1; done
  rank 2 "$1" "${@:3}" & jobs+=($!)
  for r in "${jobs[@]}"; do wait "$r" || status=1; done
  kill -TERM $siege; wait $siege || status=1
  cat "$work/$1.siege" "$work/$1".?.out
  return $status
}

refusals() { sed -nE 's/.*(rank [0-9]+|the meeting place) refuses a connection from .*: (.*)/\1: \2/p' "$work/$1".?.out; }
once() { refusals "$1"; [ -n "$(refusals "$1")" ] && [ -z "$(refusals "$1" | sort | uniq -d)" ]; }
said() { refusals "$1" | grep -q -- "$2" || { refusals "$1"; return 1; }; }

port=$(free_port)
trio quiet >/dev/null
tapes=()
if [ "$(id -u)" -eq 0 ]; then
  for name in open mine other; do
    flags=(); [ $name = open ] || flags=(--comm.key_file "$work/$name")
    port=$(free_port)
    check "a run is recorded ($name)" recorded "tape-$name" "${flags[@]}"
    check "its bits do not depend on the key ($name)" same quiet "tape-$name"
    tapes+=("$work/tape-$name.tape")
  done
else
  skip "recorded runs" "needs root"
fi

port=$(free_port)
check "without a key: a run survives strangers" besieged open-door outside
check "with the same bits" same quiet open-door
check "each reason is logged once" once open-door
check "what does not speak the protocol is refused" said open-door 'it does not speak this protocol'
[ ${#tapes[@]} -eq 0 ] || check "and so is another run" said open-door 'it belongs to another run'
[ ${#tapes[@]} -eq 0 ] || check "and one with a key" said open-door 'it has a comm.key_file, and this rank has none'
port=$(free_port)
check "with a key: a run survives strangers" besieged sealed-door all --comm.key_file "$work/mine"
check "with the same bits" same quiet sealed-door
check "each reason is logged once" once sealed-door
check "what does not speak the protocol is refused" said sealed-door 'it does not speak this protocol'
[ ${#tapes[@]} -eq 0 ] || check "and so is another run with the same key" said sealed-door 'it belongs to another run'
[ ${#tapes[@]} -eq 0 ] || check "and one with another key" said sealed-door 'it has another comm.key_file'
[ ${#tapes[@]} -eq 0 ] || check "and one without a key" said sealed-door 'it has no comm.key_file'
[ ${#tapes[@]} -eq 0 ] || check "the key is not in what was recorded" python3 -c 'import json, sys
key, flows = open(sys.argv[1], "rb").read(), json.load(open(sys.argv[2]))
sys.exit(not flows or any(key in flow.encode("latin-1") for flow in flows))' "$work/mine" "$work/tape-mine.tape"

# ---- --ranks, and mistakes -----------------------------------------------------------------------------------------
alone() { timeout 60 "$tacit" train "${nano[@]}" --run.dir "$work/$1" "${@:2}"; }
check "--ranks seals, over TCP" alone own --ranks 3 --comm.key_file "$work/mine"
check "with the same bits" same quiet own
check "and over Unix-domain sockets" alone unix --ranks 3 --comm.key_file "$work/mine" --comm.interface ''
check "with the same bits" same quiet unix
expect "and says so" 0 'comm.engine tcp .TCP, 1 connection per pair, sealed.' alone says --ranks 2 --comm.key_file "$work/mine"
expect "no such file" 3 '/no/key: No such file or directory; make one with: \(umask 077; head -c 32 /dev/urandom > ~/.tacit.key\)' alone no --ranks 2 --comm.key_file /no/key
chmod 640 "$work/other"
expect "a file that others may read" 3 "others may read or write it .mode 640.; type: chmod 600 $work/other" alone no --ranks 2 --comm.key_file "$work/other"
echo "no key" >"$work/word" && chmod 600 "$work/word"
expect "no key" 3 'it holds neither 32 bytes nor 64 hexadecimal digits' alone no --ranks 2 --comm.key_file "$work/word"
alone no --ranks 3 --comm.key_file "$work/word" >"$work/no.out" 2>&1
check "a mistake is said once" [ "$(wc -l <"$work/no.out")" -eq 1 ]
expect "an engine that seals nothing" 3 'MPI seals nothing' env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$tacit" train "${nano[@]}" --comm.key_file "$work/mine"
finish_checks

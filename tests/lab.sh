#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Emulated clusters: hosts, ranks, shaped and delayed links, cuts, slow hosts, and that nothing is ever left behind.
# Needs root and network namespaces; without them it says so and skips. Bounds on speed are loose: other things run too.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
export OMPI_MCA_odls_base_sigkill_timeout=1 # mpirun waits twice as long after every failure
find_program
link=$(dirname "$tacit")/../mpi/mpi_link
export TACIT_SWITCH; TACIT_SWITCH=$(dirname "$tacit")/tacit-switch

need_cluster "emulated clusters"

ours=t$$ other=u$$ # two clusters; the process number keeps test runs apart
work=$(mktemp -d)
clean() {
  local cluster
  for cluster in "$ours" "$other"; do [ ! -d "/run/tacit-lab/$cluster" ] || lab/cluster down --name "$cluster" 2>/dev/null; done
  ip netns delete "$other-n7" 2>/dev/null
  rm -rf "$work"
}
trap clean EXIT
tag=$(basename "$work") # in the command line of what must not stay

lab() { timeout -k 5 60 lab/cluster "$1" --name "$ours" "${@:2}"; }
run() { timeout -k 5 60 lab/cluster run --name "$ours" --timeout 40 "$@"; }

exits() { "${@:2}"; local got=$?; [ $got -eq "$1" ] || { echo "exit status $got instead of $1"; return 1; }; }

# What this test makes has one of these names, wherever the kernel lists it.
traces() {
  ls /run/netns /run/tacit-lab 2>/dev/null | grep -E "^($ours|$other)(-|\$)"
  grep -E "/run/tacit-lab/($ours|$other)/" /proc/self/mounts
  find /sys/fs/cgroup -maxdepth 3 -name "tacit-lab-$ours-*" -o -maxdepth 3 -name "tacit-lab-$other-*" 2>/dev/null
  pgrep -af "$tag|lab/cluster.*($ours|$other)|tacit-switch.*($ours|$other)" | grep -vE "tests/lab.sh|timeout -k"
}
nothing_left() { for _ in $(seq 30); do [ -n "$(traces)" ] || return 0; sleep 0.1; done; traces; return 1; }
nobody_left() { for _ in $(seq 30); do pgrep -f "$1" >/dev/null || return 0; sleep 0.1; done; pgrep -af "$1"; return 1; }

# --- words that are refused
expect "no command: usage" 2 'up HOSTS' lab/cluster
expect "an unknown command" 2 'there are: up rate run' lab/cluster upp
expect "an unknown option is named, with the legal ones" 2 'no option --rat;.*' lab/cluster up 2 --rat 1gbit
expect "an option without its value" 2 '--rate needs a value' lab/cluster up 2 --rate
for words in "up" "up 2 3" "up 0" "up 65" "up two" "up 2 --rate 10" "up 2 --rate 1bit" "up 2 --rate 1kbit" "up 2 --rate -1mbit" \
  "up 2 --rate 1.2.3mbit" "up 2 --mtu 100" "up 2 --per-host 0" "up 2 --delay 1" "up 2 --delay 3s" "up 2 --jitter 1ms" "up 2 --loss 0.1" \
  "up 2 --loss 101%" "up 2 --schedule no/such/file" "up 2 --name Lab" "up 2 --name a/b"; do
  # shellcheck disable=SC2086 # words
  expect "refused: $words" 2 'lab/cluster: ' lab/cluster $words
done
expect "a cluster that does not exist" 2 "no cluster \"$ours\".*" lab stat
expect "help of a command has an example" 0 'example: lab/cluster run' lab/cluster run --help
printf '1 all 10mbit\n0.5 all 20mbit\n' >"$work/backwards"
expect "a schedule that goes back in time has file and line" 2 'backwards:2: 0\.5 s is earlier' lab/cluster up 2 --name "$ours" --schedule "$work/backwards"
printf '1 n5 10mbit\n' >"$work/stranger"
expect "a schedule for a host that is not there" 2 'stranger:1:' lab/cluster up 2 --name "$ours" --schedule "$work/stranger"
expect "another user is told to become root" 7 'need root' setpriv --reuid=65534 --clear-groups lab/cluster up 2 --name "$ours"
mkdir "$work/bin"; for tool in bash env readlink id dirname basename sed; do ln -s "$(command -v $tool)" "$work/bin/"; done
expect "a program that lacks is named with its package" 7 'ip is missing: apt-get install iproute2' env PATH="$work/bin" lab/cluster up 2 --name "$ours"
expect "a switch that is not built is named with the command that builds it" 7 'not built.*|build build/release --target tacit-switch' \
  env -u TACIT_SWITCH SWITCH_BUILDS=none PATH=/usr/bin:/usr/sbin:/bin:/sbin lab/cluster up 2 --name "$ours" --delay 1ms
check "words that are refused leave nothing" nothing_left
up_stopped() { # SIGNAL
  lab/cluster up 20 --name "$ours" >"$work/stopped" 2>&1 &
  sleep 0.3; kill "-$1" $!; wait $!; local status=$?
  cat "$work/stopped"; echo "exit status $status"
  [ $status -ne 0 ]
}
check "SIGTERM while a cluster is made" up_stopped TERM
check "takes back what was made" nothing_left
check "kill -9 while a cluster is made" up_stopped KILL
expect "leaves a cluster that is named as unfinished" 2 "not finished.*" lab stat
check "and that down removes" lab down
check "wholly" nothing_left

# --- a cluster of shaped links
expect "up" 0 "2 hosts .*links of 200mbit, 2 ranks per host" lab up 2 --rate 200mbit --per-host 2
expect "up twice says what to type" 2 "lab/cluster down --name $ours" lab up 2
expect "list" 0 "^$ours: 2 hosts" lab/cluster list

where='echo "$OMPI_COMM_WORLD_RANK $(cat /proc/sys/kernel/hostname) $OMPI_COMM_WORLD_LOCAL_RANK"'
ranks_are() { # EXPECTED RUN-OPTIONS...
  run "${@:2}" -- sh -c "$where" >"$work/ranks" 2>"$work/errors"; local status=$?
  sort "$work/ranks" | tee "$work/sorted"; cat "$work/errors"
  [ $status -eq 0 ] && [ "$(tr '\n' ',' <"$work/sorted")" = "$1" ]
}
check "all ranks that fit, each with its host's name and local rank" \
  ranks_are "0 $ours-n0 0,1 $ours-n0 1,2 $ours-n1 0,3 $ours-n1 1,"
check "5 ranks on 2 hosts" ranks_are "0 $ours-n0 0,1 $ours-n0 1,2 $ours-n0 2,3 $ours-n1 0,4 $ours-n1 1," -n 5
check "one rank per host" ranks_are "0 $ours-n0 0,1 $ours-n1 0," -n 2 --per-host 1
expect "too many ranks for --per-host" 2 'hold 2' run -n 3 --per-host 1 -- true
expect "a program that does not exist" 2 'neither in PATH' run -- no-such-program
expect "no command to run" 2 'a command is needed' run -n 2
passes() {
  export TACIT_LAB_TEST=kept OMPI_MCA_lab_test=kept
  run -n 2 -- sh -c 'echo "[$TACIT_LAB_TEST $OMPI_MCA_lab_test $PWD $(ls /sys/class/net | tr "\n" " ")]"; exit 9' >"$work/passes" 2>&1
  [ $? -eq 9 ] && [ "$(grep -cF "[kept kept $PWD ctl0 eth0 lo ]" "$work/passes")" -ge 1 ] && return
  cat "$work/passes"; return 1
}
check "environment, folder and exit status pass through; /sys shows the host's devices" passes
expect "standard input reaches rank 0" 0 '^through$' bash -c "echo through | lab/cluster run --name $ours -n 2 -- sh -c '[ \$OMPI_COMM_WORLD_RANK != 0 ] || cat'"
expect "exec: host name and names of the others" 0 "^$ours-n1 10.77.0.1 " lab exec n1 sh -c 'echo "$(cat /proc/sys/kernel/hostname) $(getent hosts '"$ours"'-n0)"'
check "exec passes the exit status" exits 7 lab exec n0 sh -c 'exit 7'
expect "exec on a host that is not there" 2 'n0 to n1' lab exec n2 true

# measured LEAST MOST RANKS: the best send of the link program in Mbit/s (the median knows what else the machine does)
measured() {
  run -n "$3" -- "$link" 4000000 3 >"$work/link" 2>&1; local status=$?
  cat "$work/link"
  [ $status -eq 0 ] && awk -v least="$1" -v most="$2" '/^send/ { good = $NF >= least && $NF <= most } END { exit !good }' "$work/link"
}
check "goodput at 200 Mbit/s" measured 180 200 4
expect "two ranks share a host, the others do not" 0 '^share 2 of 4' cat "$work/link"
check "rate" lab rate 50mbit
check "goodput at 50 Mbit/s" measured 45 50 2
check "rate of one host" lab rate 400mbit n0
expect "stat shows both" 0 "^50000000 400000000 " bash -c "lab/cluster stat --json --name $ours | python3 -c \"import json,sys
hosts = json.load(sys.stdin)['hosts']
assert hosts[0]['bytes_out'] > 12e6 and hosts[1]['bytes_in'] > 12e6 and not hosts[0]['cut'] and hosts[0]['slow'] == 1
print(hosts[1]['rate_bps'], hosts[0]['rate_bps'], '')\""
check "goodput through the slower of two links" measured 45 50 2

# connect SECONDS: 1 when the other host refuses within that time, 124 when nobody answers
connect() { lab exec n0 timeout "$1" bash -c "exec 3<>/dev/tcp/$ours-n1/9"; }
expect "before the cut the other host answers" 1 'refused' connect 10
check "cut" lab cut n1
check "a cut host does not answer" exits 124 connect 1
expect "stat says that it is cut" 0 "^$ours-n1 .* cut\$" lab stat
check "the launcher still reaches a cut host" ranks_are "0 $ours-n0 0,1 $ours-n1 0," -n 2
check "heal" lab heal n1
expect "after it the other host answers again" 1 'refused' connect 10

slowed() {
  local out
  lab slow n0 4 || return 1
  # shellcheck disable=SC2016 # the inner shell expands
  out=$(lab exec n0 bash -c 'TIMEFORMAT="%R %U"; time for ((i = 0; i < 200000; i++)); do :; done' 2>&1); echo "$out"
  lab stat | grep "^$ours-n0 .*slow 4.000" || return 1
  # Of its share, cores / hosts, it has a quarter; the period lets it be a little ahead.
  awk -v cores="$(nproc)" '{ bound = 2 * 4 / cores; if (bound > 8) bound = 8; exit !($1 >= 0.7 * bound * $2 || bound <= 1) }' <<<"$out" || return 1
  run -n 2 -- sh -c 'cat /proc/self/cgroup' | grep -q "tacit-lab-$ours-n0" || { echo "the ranks are not in the group"; return 1; }
  lab slow n0 1 && ! lab exec n0 cat /proc/self/cgroup | grep tacit-lab
}
if lab slow n0 1 >/dev/null 2>"$work/lacking"; then
  check "slow: a quarter of the share, for ranks too, and back" slowed
else
  expect "slow names what lacks" 0 'cpu controller' cat "$work/lacking"
  skip "slow hosts" "$(head -1 "$work/lacking")"
fi
expect "a factor below 1" 2 'at least 1' lab slow n0 0.5

# --- runs that end before their time
ended_by() { # SIGNAL STATUS
  lab/cluster run --name "$ours" --timeout 40 -- sh -c "sleep 300; : $tag" >"$work/ended" 2>&1 &
  local job=$! started
  for _ in $(seq 100); do [ "$(pgrep -fc "sh -c sleep 300; : $tag")" -ge 5 ] && break; sleep 0.1; done
  started=$SECONDS
  kill "-$1" $job
  wait $job; local status=$?
  cat "$work/ended"
  echo "exit status $status after $((SECONDS - started)) s"
  [ $status -eq "$2" ] && [ $((SECONDS - started)) -le 15 ] && nobody_left "sleep 300; : $tag"
}
check "kill -9 of a run leaves no process" ended_by KILL 137
check "SIGTERM ends a run and leaves no process" ended_by TERM 1
# A signal may come before anybody inside of the run can hear it.
ended_early() {
  local pause started=$SECONDS
  for pause in 0.01 0.03 0.06 0.1 0.15 0.2; do
    lab/cluster run --name "$ours" --timeout 40 -- sh -c "sleep 300; : $tag" >"$work/early" 2>&1 &
    sleep $pause; kill -TERM $!; wait $!
    [ $? -ne 0 ] || { echo "status 0 after $pause s"; return 1; }
  done
  echo "$((SECONDS - started)) s"
  [ $((SECONDS - started)) -lt 38 ] && nobody_left "sleep 300; : $tag"
}
check "SIGTERM at any moment ends a run" ended_early
told() {
  # shellcheck disable=SC2016 # the inner shell expands
  lab/cluster run --name "$ours" --timeout 20 -- sh -c 'trap "echo told; exit 0" USR1; echo ready; while :; do sleep 0.1; done' >"$work/told" 2>&1 &
  local job=$!
  for _ in $(seq 100); do [ "$(grep -c ready "$work/told")" -ge 4 ] && break; sleep 0.1; done
  kill -USR1 $job; wait $job; local status=$?
  cat "$work/told"
  [ $status -eq 0 ] && [ "$(grep -c told "$work/told")" -eq 4 ]
}
check "SIGUSR1 reaches the ranks" told
expect "--timeout ends a run with status 124" 124 'after 1 second' run -n 2 --timeout 1 -- sh -c "sleep 300; : $tag"
check "and leaves no process" nobody_left "sleep 300; : $tag"

cut_while_training() { # MPI
  rm -rf "$work/train"
  run --mpi "$1" -n 4 -- "$tacit" train --model.preset nano --model.dtype f32 --train.threads 1 --train.batch 8 --train.eval_every 0 \
    --run.tensorboard false --run.dir "$work/train" --train.steps 1000000 --comm.timeout 4 >"$work/train.log" 2>&1 &
  local job=$! started
  for _ in $(seq 300); do [ -f "$work/train/metrics.jsonl" ] && [ "$(wc -l <"$work/train/metrics.jsonl")" -ge 20 ] && break; sleep 0.1; done
  started=$SECONDS
  lab cut n1
  wait $job; local status=$?
  lab heal n1
  cat "$work/train.log"
  echo "exit status $status after $((SECONDS - started)) s"
  [ $status -eq 5 ] && [ $((SECONDS - started)) -le 12 ] && nobody_left "$tag/train" &&
    grep -qE 'error: rank [01] on host .*-n0|error: rank [23] on host .*-n1' "$work/train.log"
}
check "a host is cut while it trains: exit 5, a rank of the other side is named, nothing left" cut_while_training openmpi
check "the same without MPI" cut_while_training none
expect "ranks on 2 hosts talk over TCP by themselves" 0 '^ranks  *4 on 2 hosts' \
  run -- "$tacit" bench collectives --bytes 8,1MB --rounds 1 --line 50mbit --comm.engine tcp
expect "and start by themselves: 2 and 1" 0 '^ranks  *3 on 2 hosts' run --mpi none -n 3 -- "$tacit" bench collectives --bytes 8 --rounds 1
own_exit() { run --mpi none -- "$tacit" train --model.preset nano --run.dir "$work/no" --train.steps 0; }
expect "the exit status of ranks that start by themselves passes through" 3 'train.steps' own_exit

if command -v mpiexec.mpich >/dev/null; then
  mpich_ranks() {
    # shellcheck disable=SC2016 # the inner shell expands
    run --mpi mpich -n 4 -- sh -c 'echo "$PMI_RANK $(cat /proc/sys/kernel/hostname) $MPI_LOCALRANKID"' | sort | tee "$work/sorted"
    [ "$(tr '\n' ',' <"$work/sorted")" = "0 $ours-n0 0,1 $ours-n0 1,2 $ours-n1 0,3 $ours-n1 1," ]
  }
  check "MPICH's launcher places ranks in the same way" mpich_ranks
else
  skip "MPICH's launcher" "mpich is not installed"
fi

expect "--torchrun and --mpi" 2 'exclude each other' run --torchrun --mpi none -- true
expect "--torchrun without PyTorch" 7 'pip install torch' env TACIT_PYTHON=false lab/cluster run --name "$ours" --torchrun -- true
python=${TACIT_PYTHON:-python3}
if "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
  cat >"$work/where.py" <<'PY'
import os, socket, sys
print(*(os.environ[key] for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GLOO_SOCKET_IFNAME", "TACIT_COMM_INTERFACE")), socket.gethostname())
sys.exit(3 if os.environ["RANK"] == sys.argv[1] else 0)
PY
  torchrun_ranks() {
    run --torchrun -n 3 --per-host 2 -- "$work/where.py" 2 >"$work/ranks" 2>"$work/errors"; local status=$?
    cat "$work/errors" "$work/ranks"
    [ $status -eq 1 ] && grep -q 'exitcode *: 3' "$work/errors" &&
      [ "$(sort "$work/ranks" | tr '\n' ',')" = "0 3 0 eth0 eth0 $ours-n0,1 3 1 eth0 eth0 $ours-n0,2 3 0 eth0 eth0 $ours-n1," ]
  }
  check "torchrun on each host, until the last rank fails" torchrun_ranks
  expect "a script that does not exist" 2 'no file' run --torchrun -- no-such.py
else
  skip "torchrun on each host" "$python has no PyTorch"
fi

# --- two clusters, and what is not ours
ip netns add "$other-n1"
expect "up refuses a namespace that it did not make" 2 "$other-n1 exists already" lab/cluster up 2 --name "$other"
half_gone() { [ "$(ls /run/netns | grep "^$other")" = "$other-n1" ] && [ ! -d "/run/tacit-lab/$other" ]; }
check "and takes back what it had made, but not that one" half_gone
ip netns delete "$other-n1"; ip netns add "$other-n7"
check "a second cluster beside the first" lab/cluster up 2 --name "$other" --rate 30mbit
both() {
  lab/cluster run --name "$other" -- sh -c "sleep 1; $where" >"$work/second" 2>"$work/second-errors" &
  ranks_are "0 $ours-n0 0,1 $ours-n1 0," -n 2; local status=$?
  wait $! && [ $status -eq 0 ] && sort "$work/second" && cat "$work/second-errors" && [ "$(sort "$work/second" | tr '\n' ',')" = "0 $other-n0 0,1 $other-n1 0," ]
}
check "runs in both at once" both
expect "down of one names the namespace that is not its own" 0 "left alone: .*$other-n7" lab/cluster down --name "$other"
first_stays() { [ "$(ls /run/netns | grep "^$other")" = "$other-n7" ] && [ "$(ls /run/netns | grep -c "^$ours-")" -eq 4 ]; }
check "and leaves that and the first cluster" first_stays
ip netns delete "$other-n7"
down_while_running() {
  run -- sh -c "sleep 300; : $tag" >/dev/null 2>&1 &
  local job=$!
  sleep 1
  lab down; local status=$?
  wait $job
  [ $status -eq 0 ] && nothing_left
}
check "down during a run ends it; no namespace, mount, process, group or file is left" down_while_running
expect "down twice" 2 'no cluster' lab down

# --- the switch: delay, loss, changing links
if [ -x "$TACIT_SWITCH" ] && [ -c /dev/net/tun ]; then
  expect "up with a delay" 0 'delay 5ms' lab up 2 --rate 200mbit --delay 5ms
  check "goodput at 200 Mbit/s and 5 ms" measured 100 200 2
  expect "a round trip takes two delays" 0 '^1[0-9]' awk '/^rtt/ { print $2 / 1000 }' "$work/link"
  ask() { timeout 10 "$TACIT_SWITCH" ask "/run/tacit-lab/$ours/switch" "$@"; }
  for words in "rate 2 1" "rate -1 1" "rate 0" "rate 0 x" "rate 0 1000000000000" "delay 0 -5" "delay 0 3000000000" "cut" "cut n1" "heal" \
    "stat now please then" "mend 1"; do
    # shellcheck disable=SC2086 # words
    expect "the switch refuses: $words" 1 '^error: ' ask $words
  done
  expect "and goes on" 0 '^1 [1-9]' ask stat
  expect "nobody at a socket" 7 'no switch answers' timeout 10 "$TACIT_SWITCH" ask "$work/nobody" stat
  check "rate of the switch" lab rate 50mbit
  check "goodput at 50 Mbit/s and 5 ms" measured 25 50 2
  check "cut at the switch" lab cut 1
  check "a host cut at the switch does not answer" exits 124 connect 1
  check "heal at the switch" lab heal 1
  expect "after it the other host answers again" 1 'refused' connect 10
  check "down of the switch" lab down
  check "down of the switch leaves nothing" nothing_left
  printf '0 all 100mbit # at once\n1 n1 20mbit 2ms\n100 all none\n' >"$work/schedule"
  check "up with loss and a schedule" lab up 2 --rate 200mbit --loss 1% --schedule "$work/schedule"
  check "a send over a lossy link completes" measured 1 100 2
  sleep 1
  expect "the schedule changed one link" 0 "^$ours-n1 +20mbit .*delay 2.000 ms" lab stat
  lost_frames() { lab stat | awk '{ drops += $5 } END { print "lost", drops }'; }
  expect "and the frames that were lost are counted" 0 '^lost [1-9]' lost_frames
  kill -KILL "$(awk '$1 == "process" { print $2; exit }' "/run/tacit-lab/$ours/made")"
  expect "a switch that died is named" 7 'switch' lab rate 10mbit
  check "down after the switch died" lab down
else
  skip "delay and loss" "tacit-switch is not built or /dev/net/tun is missing"
fi
check "no namespace, mount, process, group or file is left" nothing_left
finish_checks

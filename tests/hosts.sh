#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --hosts: ranks that a remote shell starts give the run that --ranks gives; signals, failures and the loss of a host end it
# with one code and one line, and nothing stays on the other hosts. The remote shell of this test runs commands on this
# machine, in a session of their own and without the environment; where there is an sshd, a real ssh does so as well.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/check.sh
find_program
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export TACIT_PLUGINS=/nowhere # no MPI can be found
shell="$work/rsh "            # and behind it the mark of a run: the remote shell

# rsh RUN HOST LINE: what ends it does not end what it has started, as with ssh.
printf '#!/bin/bash\nexec env -i PATH=/usr/bin:/bin HOSTS_TEST="$1" setsid --fork --wait sh -c "${*:3}"\n' >"$work/rsh"
printf '#!/bin/sh\nshift\nexec sh -c "$*" </dev/null\n' >"$work/deaf"
printf '#!/bin/sh\nexit 255\n' >"$work/unreachable"
printf '#!/bin/sh\nexit 127\n' >"$work/absent"
chmod +x "$work/rsh" "$work/deaf" "$work/unreachable" "$work/absent"

nano=(--data.train LICENSE --model.preset nano --model.heads 1 --model.channels 41 --train.threads 1 --train.batch 7 --run.tensorboard false)
train() { timeout 120 "$tacit" train "${nano[@]}" --run.dir "$work/$1" "${@:2}"; }
hosts=127.0.0.1,localhost:2
over() { train "$1" --hosts $hosts --rsh "${shell}run-$1" "${@:2}"; }
bits() { (cd "$work/$1/ckpt" && sha256sum */*.safetensors); }
same() { diff <(bits "$1") <(bits "$2") && [ -n "$(bits "$1")" ]; }

expect "three ranks on two hosts train" 0 'comm.engine tcp .*: tacit --hosts started 3 processes' over h3 --train.steps 12
check "three ranks on one host" train r3 --ranks 3 --train.steps 12
check "have the same bits" same h3 r3
hosts=localhost,localhost expect "--ranks counts per host" 0 'tacit --hosts started 4 processes' over h4 --ranks 2 --train.steps 3
hosts=localhost:1 expect "a single rank elsewhere" 0 'finished at step 3' over h1 --train.steps 3
TACIT_TRAIN_STEPS=3 expect "variables and words arrive as they are" 0 'finished at step 3' train "it's \$HOME" --hosts $hosts --rsh "$work/rsh words"

# ---- ends --------------------------------------------------------------------------------------------------------
# Processes that the remote shell has started for a run.
remote() {
  local environment
  for environment in /proc/[0-9]*/environ; do
    ! grep -qsz "^HOSTS_TEST=run-$1\$" "$environment" || basename "$(dirname "$environment")"
  done
}
nobody() { local _; for _ in $(seq 120); do [ -n "$(remote "$1")" ] || return 0; sleep 0.1; done; ps -fp $(remote "$1"); return 1; }
# begin DIR FLAG...: a long run that has taken 20 steps; $starter is its starter.
begin() {
  env --default-signal=INT setsid "$tacit" train "${nano[@]}" --run.dir "$work/$1" --hosts $hosts --rsh "${shell}run-$1" --train.steps 1000000 \
    --comm.timeout 4 "${@:2}" >"$work/$1.out" 2>&1 &
  starter=$!
  local _; for _ in $(seq 200); do [ "$(cat "$work/$1/metrics.jsonl" 2>/dev/null | wc -l)" -lt 20 ] || return 0; sleep 0.1; done
  echo "the run never reached step 20"; cat "$work/$1.out"; return 1
}
# ends DIR CODE TEXT: the run ends so, and its remote part too
ends() {
  local code=0; wait $starter || code=$?
  cat "$work/$1.out"; echo "exit status $code"
  [ $code -eq "$2" ] && grep -qE "$3" "$work/$1.out" && nobody "$1"
}
saved() { ls "$work/$1"/ckpt/step_*; }
one_error() { [ "$(grep -c 'error: ' "$work/$1.out")" -eq 1 ]; }
worker() { pgrep -f "^$tacit train .*run.dir $work/$1 " | grep -vx "$starter" | tail -n 1; } # process numbers may begin anew

silent() { begin silent && kill -STOP $starter && sleep 31 && nobody silent && saved silent; local status=$?; kill -KILL $starter; return $status; }
beside "a starter that is silent for 30 s has gone: all end, and save a checkpoint" silent
told() { begin "told-$1" && kill "-$1" $starter && ends "told-$1" 0 'stopped as asked at step' && saved "told-$1"; }
beside "SIGTERM to the starter ends all, cleanly" told TERM
beside "Ctrl-C likewise" told INT
beside "SIGUSR1 likewise" told USR1
killed() { begin killed && kill -KILL "$(worker killed)" && ends killed 5 'rank . on host .* was killed by signal 9' && one_error killed; }
beside "a killed rank ends all with code 5, and is named once" killed
frozen() { begin frozen && kill -STOP "$(worker frozen)" && ends frozen 5 'rank . on host .* stopped answering' && one_error frozen; }
beside "a frozen rank likewise" frozen
lost() { begin lost && kill -KILL $starter; ends lost 137 . && saved lost; }
beside "ranks end with their starter, and save a checkpoint" lost
cut() { begin cut && kill -KILL "$(pgrep -P $starter | tail -n 1)" && ends cut 5 'the ranks on host .* are lost: .*ended with code 137; try: .*true'; }
beside "a remote shell that is killed ends all" cut
agent() { begin agent && kill -KILL "$(pgrep -f "^$tacit _ranks .*run.dir $work/agent " | tail -n 1)" && ends agent 5 'the ranks on host .* are lost'; }
beside "so does the process that watches a host's ranks" agent
impatient() { # the watchers are stopped, so nothing ends the ranks but the starter's patience
  begin impatient && kill -STOP $(pgrep -f '^watch: rank' | grep -xf <(remote impatient)) && kill -INT $starter && sleep 2 && kill -INT $starter
  ends impatient 130 .
}
beside "a second Ctrl-C waits no longer" impatient
together

# ---- refusals ----------------------------------------------------------------------------------------------------
expect "no names" 2 '--hosts needs names: --hosts a,b:2' train no --hosts
expect "no host" 3 '"b:x" is not a host' train no --hosts a,b:x
expect "a first host that others cannot reach" 3 'b cannot find rank 0 on "localhost"' train no --hosts localhost,b
expect "a remote shell without hosts" 2 '--hosts a,b' train no --rsh ssh
expect "hosts under a launcher" 2 '--hosts starts processes itself' env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$tacit" train "${nano[@]}" --hosts a
expect "a remote shell that does not exist" 3 'no-such-shell cannot be started: No such file' train no --hosts a --rsh no-such-shell
expect "a remote shell that starts nothing" 5 'the ranks on host a are lost: "true a" ended with code 0' train no --hosts a --rsh true
expect "a host that cannot be reached: the command to try" 5 'the ranks on host b are lost: ".*unreachable b" ended with code 255; try: .*unreachable b true$' \
  train no --hosts b --rsh "$work/unreachable"
expect "a host without the program: the command to try" 5 'ended with code 127; try: .*absent b /.*tacit --version$' train no --hosts b --rsh "$work/absent"
expect "a remote shell without standard input" 5 'their starter has gone \(or --rsh closes the standard input, as ssh -n does\)' \
  train no --hosts localhost,localhost --rsh "$work/deaf" --train.steps 1000000
expect "a mistake is said once" 3 '^tacit: error: [^\n]*$' over no --shard.stage 4 --strategy shard
expect "a name that ranks do not find: what to type" 3 'no such name:.*: .*; ranks need that of rank 0, as in comm.meet=10.0.0.1:29500' over no --comm.meet "no such name:1"
expect "tacit's own word" 2 "_ranks is tacit's own" "$tacit" _ranks 0 1

# ---- a real ssh --------------------------------------------------------------------------------------------------
sshd=$(PATH=$PATH:/usr/sbin type -P sshd) || skip "a real ssh" "there is no sshd (openssh-server)"
serve_ssh() { # names of the hosts; everything is in $work, and only this user's new key may enter
  local port=$((20000 + RANDOM % 10000)) _
  [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$work/host" && ssh-keygen -q -t ed25519 -N '' -f "$work/user" || return 1
  printf '%s\n' "Port $port" "ListenAddress 127.0.0.1" "HostKey $work/host" "AuthorizedKeysFile $work/user.pub" "PidFile $work/sshd.pid" \
    "StrictModes no" "UsePAM no" "PasswordAuthentication no" "PermitRootLogin yes" "AcceptEnv HOSTS_TEST" >"$work/sshd.conf"
  printf '%s\n' "Host $*" "HostName 127.0.0.1" "Port $port" "User $(id -un)" "IdentityFile $work/user" "IdentitiesOnly yes" "BatchMode yes" \
    "UserKnownHostsFile $work/known" "StrictHostKeyChecking accept-new" "LogLevel ERROR" >"$work/ssh.conf"
  "$sshd" -f "$work/sshd.conf" -E "$work/sshd.log" || { cat "$work/sshd.log"; return 1; }
  for _ in $(seq 50); do ssh -F "$work/ssh.conf" "$1" true && return 0; sleep 0.1; done
  cat "$work/sshd.log"; return 1
}
stop_ssh() { [ ! -s "$work/sshd.pid" ] || kill "$(cat "$work/sshd.pid")"; }
if [ -n "$sshd" ]; then
  trap 'stop_ssh; rm -rf "$work"' EXIT
  hosts=127.0.0.1,localhost
  check "sshd serves two names" serve_ssh 127.0.0.1 localhost
  shell="ssh -F $work/ssh.conf -o SetEnv=HOSTS_TEST="
  expect "two ranks over ssh train" 0 'tacit --hosts started 2 processes' over s2 --train.steps 12
  check "two ranks on one host" train r2 --ranks 2 --train.steps 12
  check "have the same bits over ssh" same s2 r2
  terminal() { begin terminal && kill -INT -- -$starter && ends terminal 0 'stopped as asked at step' && saved terminal; }
  beside "over ssh Ctrl-C at the terminal ends all, cleanly" terminal
  dead() { begin dead && kill -KILL "$(worker dead)" && ends dead 5 'rank . on host .* was killed by signal 9' && one_error dead; }
  beside "a killed rank ends all and is named" dead
  far() { begin far && kill -KILL "$(pgrep -f "^$tacit _ranks .*run.dir $work/far " | tail -n 1)" && ends far 5 'the ranks on host .* are lost: "ssh .*" ended with code 255'; }
  beside "so does the process that watches a host's ranks" far
  line() { begin line && kill -KILL "$(pgrep -P $starter | tail -n 1)" && ends line 5 'the ranks on host .* are lost: "ssh .*" ended with code 137'; }
  beside "and a killed ssh" line
  gone() { begin gone && kill -KILL $starter; ends gone 137 . && saved gone; }
  beside "ranks end with their starter over ssh" gone
  together
fi
finish_checks

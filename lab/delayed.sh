# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by lab/cluster: the data network where links have delay, jitter or loss, or change over time. In place of veth pairs
# and a bridge, the program tacit-switch holds a TAP device in each host. The rate upwards stays with the host's tbf.

# The build folders that are searched for the program, in this order.
: "${SWITCH_BUILDS:=release dev clang asan-ubsan}"

find_switch() {
  local build
  switch=${TACIT_SWITCH:-}
  for build in $SWITCH_BUILDS; do
    [ -n "$switch" ] || [ ! -x "$here/../build/$build/bin/tacit-switch" ] || switch=$here/../build/$build/bin/tacit-switch
  done
  [ -n "$switch" ] || switch=$(command -v tacit-switch) ||
    die 7 "links with delay, jitter or loss need the program tacit-switch, which is not built; in ${here%/*}:
  cmake --preset release && cmake --build build/release --target tacit-switch"
}

# Without its switch a cluster has no data network any more.
need_switch() {
  find_switch
  "$switch" ask "$state/switch" stat >/dev/null 2>&1 || die 7 "the switch of \"$name\" has ended: $(tail -n 1 "$state/switch.log")
  make the cluster again: lab/cluster down$(name_words "$name") && lab/cluster up $hosts ..."
}

ask_switch() {
  step "asking the switch of \"$name\" to $* (see $state/switch.log)" "$switch" ask "$state/switch" "$@"
}

make_delayed_network() {
  local i namespaces=()
  [ -c /dev/net/tun ] || die 7 "/dev/net/tun is missing (kernel feature CONFIG_TUN): modprobe tun, or allow the device in the container"
  for ((i = 0; i < hosts; i++)); do namespaces+=("/run/netns/$name-n$i"); done
  background switch "$switch" serve "$state/switch" "$mtu" "$1" "$delay_ns" "$jitter_ns" "$loss_ppm" "${namespaces[@]}"
  for i in {1..50}; do
    ! "$switch" ask "$state/switch" stat >/dev/null 2>&1 || break
    [ -d "/proc/$background_pid" ] || die 7 "the switch did not start: $(<"$state/switch.log")"
    sleep 0.1
  done
  ask_switch stat
  for ((i = 0; i < hosts; i++)); do
    address_link "$name-n$i" eth0 "$(data_address "$i")"
    echo "$delay_ns" >"$state/delay.$i"
  done
}

# shape_delayed_host I BPS [DELAY_NS]
shape_delayed_host() {
  tbf "$name-n$1" eth0 "$2"
  ask_switch rate "$1" "$2"
  [ -n "${3:-}" ] || return 0
  ask_switch delay "$1" "$3"
  echo "$3" >"$state/delay.$1"
}

# Sets frames_dropped: by the full queue, by chance and by the cut, on the way to or from host I.
drops_of_switch() {
  local index frames bytes dropped lost discarded
  frames_dropped=0
  while read -r index frames bytes dropped lost discarded; do
    [ "$index" != "$1" ] || frames_dropped=$((dropped + lost + discarded))
  done < <("$switch" ask "$state/switch" stat)
}

# background NAME COMMAND...: starts it, with its output in $state/NAME.log and without the lock. Sets background_pid.
background() {
  local log=$1; shift
  (
    pid=$BASHPID # which in $( ) would be another
    note "process $pid $(start_of "$pid")"
    exec setsid "$@" {lock_fd}>&- </dev/null >"$state/$log.log" 2>&1
  ) &
  background_pid=$!
}

# When a process that still runs started, in ticks since the machine did: with its number, the only sure name of a process.
start_of() {
  local fields
  read -r fields 2>/dev/null <"/proc/$1/stat" || return 1
  # shellcheck disable=SC2086 # columns behind the name of the program, which may hold anything
  set -- ${fields##*) }
  [ "$1" != Z ] && echo "${20}"
}

end_process() {
  local _
  [ "$(start_of "$1")" = "$2" ] || return 0
  kill -TERM "$1"
  for _ in {1..30}; do
    [ "$(start_of "$1")" = "$2" ] || return 0
    sleep 0.1
  done
  kill -KILL "$1"
}

# A schedule: lines SECONDS HOST|all RATE [DELAY], in order of time; # starts a comment. check_schedule sets schedule: the
# lines in plain numbers (MS FIRST END BPS [NS]); and schedule_delays when one has a delay.
check_schedule() {
  local line number=0 words milliseconds last=0 bps delay first end
  schedule=()
  [ -r "$1" ] || die 2 "the schedule $1 cannot be read"
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    read -ra words <<<"${line%%#*}"
    ((${#words[@]} > 0)) || continue
    ((${#words[@]} == 3 || ${#words[@]} == 4)) || die 2 "$1:$number: a line is SECONDS HOST|all RATE [DELAY], such as: 2.5 n1 50mbit 5ms"
    milliseconds=$(decimal "${words[0]}" 3) || die 2 "$1:$number: \"${words[0]}\" is no number of seconds"
    ((milliseconds >= last)) || die 2 "$1:$number: ${words[0]} s is earlier than the line before"
    if [ "${words[1]}" = all ]; then first=0 end=$hosts
    else
      first=$(host_index "${words[1]}") || die 2 "$1:$number: see above"
      end=$((first + 1))
    fi
    bps=$(rate_of "${words[2]}") || die 2 "$1:$number: see above"
    delay=""
    [ -z "${words[3]:-}" ] || { delay=$(duration_of "${words[3]}") || die 2 "$1:$number: see above"; schedule_delays=yes; }
    schedule+=("$milliseconds $first $end $bps $delay")
    last=$milliseconds
  done <"$1"
  ((${#schedule[@]} > 0)) || die 2 "the schedule $1 has no line"
}

# Applies the schedule of a cluster. Waits by reading from a pipe that stays empty, so that no sleep is left when it is ended.
command_schedule() {
  local started=${EPOCHREALTIME/./} milliseconds first end bps delay wait_us empty
  load_cluster "$1" || return
  [ "$network" != switch ] || find_switch
  exec {empty}<> <(:)
  while read -r milliseconds first end bps delay; do
    wait_us=$((milliseconds * 1000 - (${EPOCHREALTIME/./} - started)))
    ((wait_us <= 0)) || read -r -t "$((wait_us / 1000000)).$(printf '%06d' $((wait_us % 1000000)))" -u "$empty"
    (
      lock
      [ -f "$state/conf" ] || exit 0
      for ((; first < end; first++)); do shape_host "$first" "$bps" "$delay"; done
    )
  done <"$state/schedule"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by lab/cluster: namespaces, links and their shape.
#
#   NAME-n0 ... : a host. eth0 10.77.0.(i+1) is the data network, shaped; ctl0 10.78.0.(i+1) carries what the launcher says
#   NAME-head   : where mpirun runs; only ctl0, so that starting ranks and printing takes nothing from the shaped links
#   NAME-sw     : the bridges br0 (data, ports p0 ...) and ctl (ports c0 ..., chead)
#
# No address leaves these namespaces, so that clusters side by side may use the same ones.

data_address() { echo "10.77.0.$(($1 + 1))"; }
control_address() { [ "$1" = head ] && echo 10.78.0.250 || echo "10.78.0.$(($1 + 1))"; }

# step WHAT COMMAND...: a command that has to work; what it says on stderr becomes part of the message.
step() {
  local what=$1 said; shift
  said=$("$@" 2>&1 >/dev/null) || die 7 "$what failed: ${said:-no reason given}
  command: $*"
}

inside() { nsenter --net="/run/netns/$1" "${@:2}"; }

# The journal of what was made, in order, each line before the thing itself, so that a killed `up` leaves nothing unknown. A
# network namespace is known by its inode, which a second line tells: one of the same name that somebody else made is not ours.
note() { echo "$*" >>"$state/made"; }
inode_of() { stat -L -c %i "/run/netns/$1" 2>/dev/null; }

make_namespace() {
  local full=$name-$1
  [ ! -e "/run/netns/$full" ] || die 2 "the network namespace $full exists already and this cluster did not make it
  choose another --name, or remove it: ip netns delete $full"
  note "netns $full new"
  step "making the network namespace $full (needs CAP_SYS_ADMIN and a kernel with CONFIG_NET_NS)" ip netns add "$full"
  note "netns $full $(inode_of "$full")"
  # shellcheck disable=SC2016 # the inner shell expands
  inside "$full" sh -c 'f=/proc/sys/net/ipv6/conf/all/disable_ipv6; [ ! -e $f ] || echo 1 >$f'
  step "starting lo in $full" ip -n "$full" link set lo up
}

make_hostname() {
  local file=$state/uts/$1
  : >"$file"
  note "uts $file"
  # shellcheck disable=SC2016 # the inner shell expands
  step "making the UTS namespace of $name-$1" unshare --uts="$file" sh -c 'echo "$1" >/proc/sys/kernel/hostname' sh "$name-$1"
}

make_bridge() {
  local sw=$name-sw
  step "making a bridge (kernel feature CONFIG_BRIDGE)" ip -n "$sw" link add "$1" mtu "$2" type bridge
  step "starting the bridge" ip -n "$sw" link set "$1" up
}

# make_link HOST DEVICE PORT BRIDGE ADDRESS MTU
make_link() {
  local ns=$name-$1 sw=$name-sw
  step "making a veth pair (kernel feature CONFIG_VETH)" \
    ip link add "$2" netns "$ns" mtu "$6" type veth peer name "$3" netns "$sw" mtu "$6"
  step "plugging $3" ip -n "$sw" link set "$3" master "$4" up
  address_link "$ns" "$2" "$5"
}

# The congestion control of the machine may be anything (bbr keeps its own idea of a shaped rate); a route can name one
# where a sysctl inside of a namespace must not.
address_link() {
  step "addressing $2 of $1" ip -n "$1" addr add "$3/24" dev "$2"
  step "starting $2 of $1" ip -n "$1" link set "$2" up
  step "choosing cubic for $2 of $1 (kernel feature CONFIG_TCP_CONG_CUBIC; modprobe tcp_cubic)" \
    ip -n "$1" route replace "${3%.*}.0/24" dev "$2" src "$3" congctl cubic
}

# burst: one millisecond of the line, so that the timer of the shaper never has to be exact, and never less than two frames.
# queue: 50 ms of the line, at least 1 MB: several windows of a host's peers at once.
burst_bytes() { local b=$(($1 / 8000)) least=$((2 * mtu + 128)); echo $((b > least ? b : least)); }
queue_bytes() { local q=$(($1 / 160)); echo $((q > 1000000 ? q : 1000000)); }

# tbf NAMESPACE DEVICE BPS
tbf() {
  if (($3 == 0)); then
    ip netns exec "$1" tc qdisc del dev "$2" root 2>/dev/null || true
  else
    step "shaping $2 of $1 to $(from_bps "$3") with tbf (kernel feature CONFIG_NET_SCH_TBF; modprobe sch_tbf)" \
      ip netns exec "$1" tc qdisc replace dev "$2" root tbf rate "${3}bit" burst "$(burst_bytes "$3")" limit "$(queue_bytes "$3")"
  fi
}

# shape_host I BPS [DELAY_NS]: both directions of the link of host I.
shape_host() {
  if [ "$network" = switch ]; then
    shape_delayed_host "$@"
  else
    tbf "$name-n$1" eth0 "$2"
    tbf "$name-sw" "p$1" "$2"
  fi
  echo "$2" >"$state/rate.$1"
}

# The data network without delay: veth, bridge, tbf.
make_shaped_network() {
  local i
  make_bridge br0 "$mtu"
  for ((i = 0; i < hosts; i++)); do make_link "n$i" eth0 "p$i" br0 "$(data_address "$i")" "$mtu"; done
}

make_control_network() {
  local i
  make_bridge ctl 9000
  for ((i = 0; i < hosts; i++)); do make_link "n$i" ctl0 "c$i" ctl "$(control_address "$i")" 9000; done
  make_link head ctl0 chead ctl "$(control_address head)" 9000
}

write_names() {
  local i
  echo "127.0.0.1 localhost"
  for ((i = 0; i < hosts; i++)); do
    echo "$(data_address "$i") $name-n$i"
  done
  echo "$(control_address head) $name-head"
}

# Removes what the journal names, last first. Prints what is left because somebody else made it.
unmake() {
  local kind what mark lines=() i
  [ ! -f "$state/made" ] || mapfile -t lines <"$state/made"
  end_processes
  for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
    read -r kind what mark <<<"${lines[i]}"
    case $kind in
      netns) if is_own "$what" "$mark" "$((${#lines[@]} - 1 - i))"; then ip netns delete "$what"; fi ;;
      uts) umount "$what" 2>/dev/null || true ;;
      process) end_process "$what" "$mark" ;;
      cgroup) [ ! -d "$what" ] || remove_group "$what" ;;
    esac
  done
  name_strangers
}

# is_own NAMESPACE MARK LINES-AFTER-IT: made but not yet told by its inode can only be what the last line names.
is_own() {
  [ -e "/run/netns/$1" ] || return 1
  [ "$(inode_of "$1")" = "$2" ] || { [ "$2" = new ] && [ "$3" = 0 ]; }
}

name_strangers() {
  local file base
  for file in /run/netns/"$name"-{sw,head} /run/netns/"$name"-n[0-9]*; do
    [ -e "$file" ] || continue
    base=${file##*/}
    [[ $base =~ ^"$name"-(sw|head|n[0-9]+)$ ]] || continue
    say "left alone: the network namespace $base, which this cluster did not make (ip netns delete $base removes it)"
  done
}

# Processes in our namespaces: asked first, killed after two seconds.
living() {
  local kind what mark
  while read -r kind what mark; do
    [ "$kind" != netns ] || [ "$(inode_of "$what")" != "$mark" ] || ip netns pids "$what" 2>/dev/null
  done <"$state/made"
}

end_processes() {
  local try pids
  [ -f "$state/made" ] || return 0
  for try in {0..40}; do
    pids=$(living)
    [ -n "$pids" ] || return 0
    # shellcheck disable=SC2086 # a list
    case $try in
      0) kill -TERM $pids 2>/dev/null ;;
      20 | 30) kill -KILL $pids 2>/dev/null ;;
    esac
    sleep 0.1
  done
  say "these processes do not end: $(echo "$pids" | tr '\n' ' ')"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by lab/cluster: how commands and MPI ranks get into the hosts, and out again.
#
# A run is one PID namespace:
#
#   lab/cluster run          forwards signals, returns the exit status. When it dies, however that happens,
#     unshare                the kernel kills this (parent-death signal), and then, likewise,
#       lab/cluster _first   the first process of the namespace; with it the kernel ends every other one:
#         timeout, mpirun    in NAME-head
#           _agent, orted, ranks and all that they start
#
# Its mount namespace has a /dev/shm and a session folder of its own: runs never meet, and nothing stays.

# enter HOST COMMAND...: replaces this process. Inside, /sys shows the host's own devices.
enter() {
  local host=$1; shift
  join_slowed_group "$host"
  exec nsenter --uts="$state/uts/$host" ip netns exec "$name-$host" "$@"
}

# Called by the launchers as a remote shell: NAME [OPTIONS] HOST WORDS... where the words are for a shell.
command_agent() {
  load_cluster "$1"; shift
  while [[ $1 == -* ]]; do shift; done
  local host=${1#"$name"-}; shift
  enter "$host" sh -c "$*"
}

command_exec() {
  ((${#WORDS[@]} >= 2)) || misuse "a host and a command are needed"
  find_cluster
  local index
  index=$(host_index "${WORDS[0]}") || exit $?
  add_own_programs
  # shellcheck disable=SC2016 # the inner shell expands
  enter "n$index" sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$state/hosts" "${WORDS[@]:1}"
}

# Programs that were built here are found too, after everything in PATH.
add_own_programs() { PATH=$PATH:$here/../build/release/bin; }

launcher_of() {
  local candidates package candidate
  case $1 in
    openmpi) candidates="mpirun.openmpi mpirun" package=openmpi-bin ;;
    mpich) candidates="mpiexec.mpich mpiexec.hydra" package=mpich ;;
    none) echo none; return ;;
    torchrun) python_with_torch; return ;;
    *) die 2 "--mpi is openmpi, mpich or none, not \"$1\"" ;;
  esac
  for candidate in $candidates; do
    command -v "$candidate" >/dev/null || continue
    if [ "$1" = openmpi ]; then
      case $("$candidate" --version 2>/dev/null) in *"Open MPI"* | *OpenRTE*) ;; *) continue ;; esac
    fi
    echo "$candidate"
    return
  done
  die 7 "no launcher of $1 was found (looked for $candidates): apt-get install $package, or --mpi none with tacit"
}

# The Python that --torchrun starts: $TACIT_PYTHON, else python3.
python_with_torch() {
  local python=${TACIT_PYTHON:-python3}
  "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null ||
    die 7 "$python has no PyTorch: pip install torch, or TACIT_PYTHON=PATH names a Python that has it"
  echo "$python"
}

command_run() {
  ((${#WORDS[@]} >= 1)) || misuse "a command is needed after --"
  find_cluster
  local mpi=${OPTION[mpi]:-openmpi} limit_s=0 launcher
  if [ -n "${OPTION[torchrun]:-}" ]; then
    [ -z "${OPTION[mpi]:-}" ] || die 2 "--torchrun and --mpi exclude each other"
    mpi=torchrun
  fi
  place_ranks
  launcher=$(launcher_of "$mpi") || exit $?
  [ -z "${OPTION[timeout]:-}" ] || limit_s=$(whole "${OPTION[timeout]}" 1 99999999) ||
    die 2 "--timeout is a number of seconds, at least 1, not \"${OPTION[timeout]}\""
  add_own_programs
  if [ "$mpi" = torchrun ]; then
    [ -f "${WORDS[0]}" ] || die 2 "--torchrun starts a Python script, and there is no file \"${WORDS[0]}\""
  else command -v "${WORDS[0]}" >/dev/null || die 2 "the command \"${WORDS[0]}\" is neither in PATH nor in build/release/bin
  (what is built here: cmake --preset release && cmake --build build/release)"
  fi
  supervise "$self" _first "$name" "$mpi" "$launcher" "$ranks" "$ranks_per_host" "$limit_s" "${WORDS[@]}"
}

# Sets ranks and ranks_per_host. Hosts are filled one after the other.
place_ranks() {
  local most
  ranks_per_host=$per_host
  if [ -n "${OPTION[per-host]:-}" ]; then
    ranks_per_host=$(whole "${OPTION[per-host]}" 1 1024) || die 2 "--per-host is a number from 1 to 1024, not \"${OPTION[per-host]}\""
  fi
  ranks=$((hosts * ranks_per_host))
  [ -n "${OPTION[n]:-}" ] || return 0
  most=$ranks
  ranks=$(whole "${OPTION[n]}" 1 65536) || die 2 "-n is a number of ranks, at least 1, not \"${OPTION[n]}\""
  if [ -z "${OPTION[per-host]:-}" ]; then
    ranks_per_host=$(((ranks + hosts - 1) / hosts))
  elif ((ranks > most)); then
    die 2 "$ranks ranks do not fit: $hosts hosts with $ranks_per_host ranks each hold $most; leave out --per-host or start fewer"
  fi
}

# supervise COMMAND...: runs it as the first process of new PID and mount namespaces; forwards signals; returns its status.
# In a session of its own, so that Ctrl-C reaches it once, through us, and not a second time from the terminal.
supervise() {
  local status
  # shellcheck disable=SC2016 # the inner shell expands; it looks whether we died before the parent-death signal was set
  setpriv --pdeathsig KILL setsid env --default-signal sh -c '[ "$PPID" = "$0" ] && exec "$@"' $$ \
    unshare --mount --pid --fork --kill-child --mount-proc "$@" <&0 &
  child=$! ending=""
  forward_signals signal_first
  await "$child"
  exit "$status"
}

# forward_signals FUNCTION: calls it with the name of each signal that a user may send.
forward_signals() {
  local signal
  # shellcheck disable=SC2064 # the names are meant now
  for signal in TERM INT HUP USR1 USR2; do trap "$1 $signal" "$signal"; done
}

signal_first() {
  local first
  interrupted=yes
  case $1 in TERM | INT | HUP) ending=yes ;; esac
  ! first=$(child_of "$child") || kill "-$1" "$first" 2>/dev/null || true
}

# A run that was asked to end has more time than its launcher gets from `timeout`. This is for a signal that came before
# anybody inside could hear it.
end_soon() {
  local _
  for _ in {1..130}; do
    start_of "$child" >/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$child" 2>/dev/null
}

# child_of PID: the first process whose parent it is.
child_of() {
  local file key value
  for file in /proc/[0-9]*/status; do
    while read -r key value; do
      [ "$key" = PPid: ] || continue
      [ "$value" != "$1" ] || { file=${file%/status}; echo "${file#/proc/}"; return 0; }
      break
    done 2>/dev/null <"$file"
  done
  return 1
}

# await PID: sets status to its exit status. A trap ends `wait` early, so it is asked again after each.
await() {
  while :; do
    interrupted=""
    wait "$1"
    status=$?
    [ -n "$interrupted" ] || return 0
    [ -z "$ending" ] || end_soon
  done
}

# The first process of a run: gives it a place of its own, starts the launcher and waits.
command_first() {
  child="" ending=""
  forward_signals signal_launcher
  load_cluster "$1"
  local mpi=$2 launcher=$3 ranks=$4 ranks_per_host=$5 limit_s=$6 status
  shift 6
  local session=$state/session
  step "mounting /dev/shm of the run" mount -t tmpfs -o mode=1777 tacit-lab /dev/shm
  step "mounting the session folder of the run" mount -t tmpfs tacit-lab "$session"
  step "naming the hosts" mount --bind "$state/hosts" /etc/hosts
  printf '#!/bin/sh\nexec "%s" _agent %s "$@"\n' "$self" "$name" >"$session/agent"
  chmod +x "$session/agent"
  # Programs whose ranks talk over TCP by themselves meet in a folder or in torchrun's store, and keep off the launcher's network.
  [ "$mpi" = torchrun ] || export TACIT_COMM_MEET=${TACIT_COMM_MEET:-$session/meet}
  export TACIT_COMM_INTERFACE=${TACIT_COMM_INTERFACE:-eth0}
  "${mpi}_command" "$launcher" "$@"
  SECONDS=0
  # timeout passes a signal on and kills ten seconds later; what then still lives ends with this process.
  env --default-signal timeout --foreground -k 10 "$limit_s" "$self" _head "$name" "${launch[@]}" <&0 &
  child=$!
  await "$child"
  if ((limit_s > 0 && SECONDS >= limit_s)) && ((status == 124 || status == 137)); then
    say "the run was ended after $limit_s seconds, as --timeout asked"
    status=124
  fi
  exit "$status"
}

# SIGUSR1 and SIGUSR2 end a `timeout`, so its child gets them. Who is asked to end before there is a launcher ends.
signal_launcher() {
  local target=$child
  interrupted=yes
  case $1 in
    USR1 | USR2) target=$(child_of "$child") || return 0 ;;
    *) [ -n "$child" ] || exit 143 ;;
  esac
  kill "-$1" "$target" 2>/dev/null || true
}

# The head keeps the machine's /sys: the control groups are mounted there, and what it starts on a host may join one.
command_head() {
  load_cluster "$1"
  exec nsenter --uts="$state/uts/head" --net="/run/netns/$name-head" "${@:2}"
}

# The program starts its ranks itself, as `tacit train --hosts` does.
none_command() {
  local i list=""
  for ((i = 0; i < $(hosts_used); i++)); do
    list+=${list:+,}$name-n$i:$(ranks_on "$i")
  done
  launch=("${@:2}" --hosts "$list" --rsh "$session/agent")
}

# One torchrun per host. Ranks get torchrun's share of the machine's cores, which the hosts have in common.
torchrun_command() {
  local cores=$(($(nproc) / ranks))
  export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-eth0} OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > 0 ? cores : 1))}
  # Hosts here have no name server, of which PyTorch would warn for each connection.
  export TORCH_CPP_LOG_LEVEL=${TORCH_CPP_LOG_LEVEL:-ERROR}
  launch=("$self" _torchrun "$name" "$ranks" "$ranks_per_host" "$@")
}

# In the head: starts them and waits. The store is on the launcher's network. After a failure the others have some seconds
# to notice by themselves and to say whom they miss; a torchrun that waits for another one's end hears no signal but KILL.
command_torchrun() {
  local ranks=$2 ranks_per_host=$3 i first=0 status count
  load_cluster "$1"; shift 3
  count=$(hosts_used) children=()
  forward_signals signal_children
  for ((i = 0; i < count; i++)); do
    (enter "n$i" "$1" -m torch.distributed.run --nnodes "$count" --node-rank "$i" --nproc-per-node "$(ranks_on "$i")" \
      --master-addr "$(control_address 0)" --master-port 29400 "${@:2}" </dev/null) &
    children+=($!)
  done
  while ((${#children[@]} > 0)); do
    ended=""
    wait -n -p ended "${children[@]}"; status=$?
    [ -n "$ended" ] || continue # a signal came
    mapfile -t children < <(printf '%s\n' "${children[@]}" | grep -vx "$ended")
    ((status != 0 && first == 0)) || continue
    first=$status
    (sleep 5; signal_children TERM; sleep 2; signal_children KILL) &
  done
  exit "$first"
}

signal_children() { kill "-$1" "${children[@]}" 2>/dev/null || true; }

ranks_on() { echo $((ranks - $1 * ranks_per_host < ranks_per_host ? ranks - $1 * ranks_per_host : ranks_per_host)); }

hosts_used() { echo $(((ranks + ranks_per_host - 1) / ranks_per_host)); }

# Sets launch. What only works one way here is set; what is a choice keeps the user's value.
openmpi_command() {
  local i
  for ((i = 0; i < $(hosts_used); i++)); do echo "$name-n$i slots=$ranks_per_host"; done >"$session/hostfile"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent=$session/agent OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_routed=direct
  export OMPI_MCA_orte_tmpdir_base=$session OMPI_MCA_oob_tcp_if_include=ctl0 OMPI_MCA_btl_tcp_if_include=eth0
  export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader,tcp}
  # A rank that waits must let the others have the core; Open MPI does so by itself only where it knows of too few slots.
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
  launch=("$1" -n "$ranks" --hostfile "$session/hostfile" --map-by slot --bind-to none "${@:2}")
}

mpich_command() {
  local i
  for ((i = 0; i < $(hosts_used); i++)); do echo "$name-n$i:$ranks_per_host"; done >"$session/hostfile"
  # Inside of a host MPICH has shared memory of its own; UCX would take the hosts for one machine and use memory between them.
  export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0
  launch=("$1" -n "$ranks" -ppn "$ranks_per_host" -f "$session/hostfile" -launcher rsh -launcher-exec "$session/agent" -iface ctl0
    "${@:2}")
}

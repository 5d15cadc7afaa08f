# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by lab/cluster: hosts that compute more slowly, by the cpu controller of cgroup v1 or v2.
#
# A host's share of the machine is cores / hosts: what it gets while all hosts compute. `slow HOST F` lets it use 1/F of
# that. Only a slowed host gets a group: ranks that yield to each other must stand in one queue of the scheduler, and a
# group is a queue of its own.

readonly PERIOD_US=20000 LEAST_QUOTA_US=1000

# mount_of TYPE [OPTION]: where the first such cgroup file system is mounted.
mount_of() {
  local where type options
  while read -r _ where type options _; do
    [ "$type" = "$1" ] || continue
    [ -z "${2:-}" ] || [[ ",$options," == *",$2,"* ]] || continue
    echo "$where"
    return 0
  done </proc/self/mounts
  return 1
}

# Sets cpu_version and cpu_root; otherwise cpu_lack says what is missing.
find_cpu_controller() {
  cpu_lack=""
  if cpu_root=$(mount_of cgroup cpu); then
    cpu_version=1
  elif cpu_root=$(mount_of cgroup2); then
    cpu_version=2
    grep -qw cpu "$cpu_root/cgroup.controllers" || cpu_lack="the controller \"cpu\" is not in $cpu_root/cgroup.controllers"
  else
    cpu_lack="no cgroup file system with the cpu controller is mounted (kernel feature CONFIG_CFS_BANDWIDTH)"
  fi
  [ -n "$cpu_lack" ] || [ -w "$cpu_root/cgroup.procs" ] || cpu_lack="$cpu_root is read-only here, as in most containers"
  [ -z "$cpu_lack" ]
}

group_of() { echo "$cpu_root/tacit-lab-$name-$1"; }

need_cpu_controller() {
  find_cpu_controller || die 7 "slow needs the cpu controller of cgroup v1 or v2: $cpu_lack"
}

# slow_host HOST PERMILLE
slow_host() {
  local group quota period=$PERIOD_US
  group=$(group_of "$1")
  if [ ! -d "$group" ]; then
    [ "$cpu_version" = 1 ] || grep -qw cpu "$cpu_root/cgroup.subtree_control" ||
      step "enabling the cpu controller for groups below $cpu_root" sh -c "echo +cpu >'$cpu_root/cgroup.subtree_control'"
    step "making the cpu group of $name-$1" mkdir "$group"
    note "cgroup $group"
  fi
  quota=$(($(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) * period * 1000 / (hosts * $2)))
  while ((quota < LEAST_QUOTA_US && period < 1000000)); do
    period=$((period * 10)) quota=$((quota * 10))
  done
  ((period <= 1000000)) || period=1000000
  ((quota >= LEAST_QUOTA_US)) || die 2 "the factor is too large: less than $LEAST_QUOTA_US us of computation per second would be left"
  if [ "$cpu_version" = 1 ]; then
    step "limiting the cpu time of $name-$1 (kernel feature CONFIG_CFS_BANDWIDTH)" \
      sh -c "echo $period >'$group/cpu.cfs_period_us' && echo $quota >'$group/cpu.cfs_quota_us'"
  else
    step "limiting the cpu time of $name-$1 (kernel feature CONFIG_CFS_BANDWIDTH)" sh -c "echo '$quota $period' >'$group/cpu.max'"
  fi
  move_processes "$1" "$group"
  echo "$2" >"$state/slow.$1"
}

unslow_host() {
  rm -f "$state/slow.$1"
  [ ! -d "$(group_of "$1")" ] || remove_group "$(group_of "$1")"
}

# Processes of a host that run already. New ones may appear meanwhile, so until none is outside.
move_processes() {
  local pid _
  for _ in 1 2 3; do
    for pid in $(ip netns pids "$name-$1"); do echo "$pid" 2>/dev/null >"$2/cgroup.procs" || true; done
  done 2>/dev/null
}

remove_group() {
  local pid _
  for _ in {1..20}; do
    while read -r pid; do echo "$pid" >"${1%/*}/cgroup.procs" || true; done 2>/dev/null <"$1/cgroup.procs"
    ! rmdir "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  say "the cpu group $1 could not be removed: it still holds processes"
}

# A process that is about to enter a slowed host joins its group.
join_slowed_group() {
  [ -f "$state/slow.$1" ] || return 0
  find_cpu_controller || die 7 "$name-$1 is slowed, but $cpu_lack"
  echo $$ >"$(group_of "$1")/cgroup.procs" || die 7 "joining the cpu group of $name-$1 failed"
}

# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that measure on a cluster of their own, in the root of this repository. They set name, that of the cluster.

# lab_up HOSTS PER_HOST RATE: a cluster with links of that rate; what is up already is kept. Only a cluster that came up is this
# run's: one of the same name may be the user's, and an `up` that fails or is interrupted takes itself back.
up=""
lab_up() {
  local status asked=""
  [ "$up" != "$*" ] || return 0
  lab_down
  trap 'asked=130' INT
  trap 'asked=143' TERM HUP
  lab/cluster up "$1" --per-host "$2" --rate "$3" --name "$name" >&2; status=$?
  [ $status -ne 0 ] || up=$*
  guard_lab
  [ -z "$asked" ] || exit "$asked"
  [ $status -eq 0 ] || exit $status
}
lab_down() { [ -z "$up" ] || lab/cluster down --name "$name" >/dev/null 2>&1; up=""; }
in_lab() { echo lab/cluster run --name "$name" --timeout 3600 --; }
# The cluster of this run is taken down at the end, also of an interrupted run.
guard_lab() {
  trap lab_down EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
}

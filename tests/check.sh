# SPDX-License-Identifier: Apache-2.0
# Source this: a counter of checks for shell tests.
#   check NAME COMMAND...      runs a command; its output is shown when it fails
#   expect NAME STATUS TEXT COMMAND...  the command must exit with STATUS and print TEXT (an extended regular expression)
#   beside NAME COMMAND...     like check, but while other checks run, up to three at a time: for those that mostly wait
#   together                   waits for all of them, and reports them in their order
#   skip NAME REASON           says that a check could not be made here; neither passed nor failed, but not forgotten
#   find_program [PATH]        sets $tacit, an absolute path: PATH, else $TACIT, else the release build; ends the script if there is none
#   free_port                  prints a port of this host that nobody uses
#   need_mpirun NAME           ends the script with a skip where Open MPI's mpirun is missing (scripts/mpi-environment.sh sets MPIRUN)
#   need_cluster NAME          ends the script with a skip where lab/cluster cannot make hosts
#   own_cluster LETTER         names a cluster, $ours, and makes a folder, $work; both go when the script ends
#   run_checks SCRIPT [WORD...]  runs a script of checks in its own process and adds its counts
#   run_checks_beside SCRIPT...  the same for several, two at a time: for those that mostly wait. Their lines come in order, at the end
CHECK_FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CHECKS_PASSED=0
CHECKS_FAILED=0
CHECKS_FAILED_NAMES=()
CHECKS_SKIPPED_NAMES=()

pass() { CHECKS_PASSED=$((CHECKS_PASSED + 1)); echo "ok   $1"; }
fail() {
  CHECKS_FAILED=$((CHECKS_FAILED + 1)); CHECKS_FAILED_NAMES+=("$1"); echo "FAIL $1"
  [ -z "${2:-}" ] || tail -n 40 "$2"
}

skip() { CHECKS_SKIPPED_NAMES+=("$1: $2"); echo "skip $1: $2"; }

check() {
  local name=$1 log; shift
  log=$(mktemp)
  if "$@" >"$log" 2>&1 </dev/null; then pass "$name"; else fail "$name" "$log"; fi
  rm -f "$log"
}

expect() {
  local name=$1 status=$2 text=$3 log got; shift 3
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null
  got=$?
  if [ "$got" -ne "$status" ]; then
    echo "exit status $got instead of $status: $*" >>"$log"; fail "$name" "$log"
  elif ! grep -qE -- "$text" "$log"; then
    echo "no line matches: $text" >>"$log"; fail "$name" "$log"
  else
    pass "$name"
  fi
  rm -f "$log"
}

BESIDE_NAMES=()
BESIDE_FOLDER=
beside() {
  local log; [ -n "$BESIDE_FOLDER" ] || BESIDE_FOLDER=$(mktemp -d)
  log=$BESIDE_FOLDER/${#BESIDE_NAMES[@]}
  BESIDE_NAMES+=("$1"); shift
  while [ "$(jobs -rp | wc -l)" -ge 3 ]; do wait -n; done
  { "$@" >"$log" 2>&1 </dev/null && : >"$log.fine"; } &
}

together() {
  local i
  wait
  for i in "${!BESIDE_NAMES[@]}"; do
    if [ -f "$BESIDE_FOLDER/$i.fine" ]; then pass "${BESIDE_NAMES[i]}"; else fail "${BESIDE_NAMES[i]}" "$BESIDE_FOLDER/$i"; fi
  done
  rm -rf "$BESIDE_FOLDER"
  BESIDE_NAMES=() BESIDE_FOLDER=
}

find_program() {
  local path=${1:-${TACIT:-$(dirname "${BASH_SOURCE[0]}")/../build/release/bin/tacit}}
  tacit=$(realpath -- "$path" 2>/dev/null) || tacit=$path
  [ ! -f "$tacit" ] || [ ! -x "$tacit" ] || return 0
  echo "$0: there is no program $tacit; cmake --preset release && cmake --build --preset release makes it, TACIT=PATH names another" >&2
  exit 2
}

need_mpirun() {
  [ -z "$MPIRUN" ] || return 0
  skip "$1" "Open MPI's mpirun is not installed"
  finish_checks; exit
}

free_port() { PYTHONPATH=$CHECK_FOLDER/../python/tests python3 -B -c 'import ranks; print(ranks.free_port())'; }

lacks_for_cluster() {
  local tool
  [ "$(id -u)" -eq 0 ] || { echo "needs root"; return; }
  for tool in ip tc unshare nsenter setpriv flock; do command -v $tool >/dev/null || { echo "$tool is not installed"; return; }; done
  unshare --net --uts --pid --fork --mount true 2>/dev/null || echo "network namespaces are not allowed here"
}

need_cluster() {
  local reason; reason=$(lacks_for_cluster)
  [ -n "$reason" ] || return 0
  skip "$1" "$reason"
  finish_checks; exit
}

# The process number keeps test runs apart.
own_cluster() {
  ours=$1$$ work=$(mktemp -d)
  trap remove_cluster EXIT
}

remove_cluster() {
  [ ! -d "/run/tacit-lab/$ours" ] || lab/cluster down --name "$ours" 2>/dev/null
  rm -rf "$work"
}

# The counts of a script come back through a file, so that its own `exit` or crash cannot lose them.
run_checks() {
  local counts; counts=$(mktemp)
  CHECKS_FILE=$counts bash "$@"
  add_checks "$counts" "$*"
  rm -f "$counts"
}

add_checks() {
  local passed failed kind named
  [ -s "$1" ] || { fail "$2 ended early"; return; }
  read -r passed failed <"$1"
  CHECKS_PASSED=$((CHECKS_PASSED + passed)); CHECKS_FAILED=$((CHECKS_FAILED + failed))
  while read -r kind named; do
    case $kind in
      failed) CHECKS_FAILED_NAMES+=("$2: $named") ;;
      skipped) CHECKS_SKIPPED_NAMES+=("$2: $named") ;;
    esac
  done < <(tail -n +2 "$1")
}

# SCRIPT may have words behind it here.
run_checks_beside() {
  local folder script; folder=$(mktemp -d)
  # shellcheck disable=SC2016 # the inner shell expands
  printf '%s\n' "$@" | xargs -P 2 -I '{}' bash -c 'CHECKS_FILE="$0/${1////-}.counts" bash $1 >"$0/${1////-}.log" 2>&1 </dev/null; true' "$folder" '{}'
  for script in "$@"; do
    cat "$folder/${script////-}.log"
    add_checks "$folder/${script////-}.counts" "$script"
  done
  rm -rf "$folder"
}

# Last line of every script of checks.
finish_checks() {
  if [ -n "${CHECKS_FILE:-}" ]; then
    {
      echo "$CHECKS_PASSED $CHECKS_FAILED"
      [ "$CHECKS_FAILED" -eq 0 ] || printf 'failed %s\n' "${CHECKS_FAILED_NAMES[@]}"
      [ ${#CHECKS_SKIPPED_NAMES[@]} -eq 0 ] || printf 'skipped %s\n' "${CHECKS_SKIPPED_NAMES[@]}"
    } >"$CHECKS_FILE"
  else
    echo "$CHECKS_PASSED passed, $CHECKS_FAILED failed"
  fi
  [ "$CHECKS_FAILED" -eq 0 ]
}

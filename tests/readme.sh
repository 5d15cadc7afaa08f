#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of README.md and docs/finetune.md as they stand: every line of their ```sh blocks, in order, in a copy of the
# working folder's view (mpirun and tacit on the PATH). The demo and the test command itself are run on their own.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/mpi-environment.sh
. tests/check.sh
find_program
need_mpirun "the commands of README.md"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$(realpath "$tacit")" "$work/bin/tacit"
ln -s "$MPIRUN" "$work/bin/mpirun"
export PATH=$work/bin:$PATH
ln -s "$PWD/examples" "$PWD/src" "$PWD/scripts" "$PWD/README.md" "$work/"
run_page() { # run_page PAGE
  local page=$1 count=0 line command
  while IFS= read -r line; do
    command=${line%%  #*}
    case $command in ''|'#'*|scripts/*|cmake*|ctest*|apt-get*|'sudo '*) continue ;; esac
    count=$((count + 1))
    check "$page: ${command%%  *}" timeout 280 bash -c "cd '$work' && $command"
  done < <(awk '/^```sh$/ {on = 1; next} /^```$/ {on = 0} on' "$page")
  [ "$count" -gt 0 ] || fail "$page has no commands"
}
run_page README.md
run_page docs/finetune.md
finish_checks

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/python_versions.sh [PYTHON:TORCH ...]: the tests of Parallel on one rank and on two under these versions, such as 3.9:2.4.1, as
# a table. No part of scripts/test.sh: every environment takes gigabytes and minutes. It is made, used and removed.
# An interpreter is pythonX.Y of the PATH or of pyenv. $TACIT_LIBRARY: libtacit.so (default the release build's).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
export TACIT_LIBRARY=${TACIT_LIBRARY:-$PWD/build/release/lib/libtacit.so} PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
[ -f "$TACIT_LIBRARY" ] || { echo "$0: there is no $TACIT_LIBRARY; cmake --preset release && cmake --build --preset release makes it" >&2; exit 2; }
[ $# -gt 0 ] || set -- 3.9:2.4.1 3.10:2.4.1 3.11:2.1.2 3.12:2.9.1 3.13:2.13.0 3.14:2.13.0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

find_python() {
  local path
  for path in $(type -P -a "python$1") ~/.pyenv/versions/"$1".*/bin/"python$1"; do
    ! "$path" -c '' 2>/dev/null || { echo "$path"; return; }
  done
  return 1
}

# try PYTHON TORCH: prints what has come of it.
try() {
  local path numpy=numpy script
  path=$(find_python "$1") || { echo "no python$1"; return; }
  case $2 in 2.[0-2].*) numpy='numpy<2' ;; esac # which these were built for
  rm -rf "$work/env"
  "$path" -m venv "$work/env" && "$work/env/bin/pip" install -q --only-binary :all: "torch==$2" "$numpy" >"$work/log" 2>&1 ||
    { echo "cannot be installed: $(grep -m 1 ERROR "$work/log")"; return; }
  for script in test_parallel_alone.py "ranks.py 2 python/tests/ranks_parallel.py"; do
    # shellcheck disable=SC2086 # words
    timeout -k 5 600 "$work/env/bin/python" -W ignore python/tests/$script >"$work/log" 2>&1 ||
      { tail -n 30 "$work/log" >&2; echo "FAILS: ${script##*/}"; return; }
  done
  echo passes
}

printf '| Python | torch | tests |\n|---|---|---|\n'
for pair; do printf '| %s | %s | %s |\n' "${pair%%:*}" "${pair#*:}" "$(try "${pair%%:*}" "${pair#*:}")"; done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/probe.sh [PROGRAM]: the probe with 1, 2 and 3 ranks on one host; what it writes, refuses and leaves alone.
set -uo pipefail
. "$(dirname "$0")/check.sh"
find_program "${1:-}"
cd "$(dirname "$0")/.." || exit 1
. scripts/mpi-environment.sh
[ -n "$MPIRUN" ] || { echo "probe: no mpirun, skipped"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
# shellcheck disable=SC2030,SC2031
export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} # Open MPI's own
failed=0
complain() { echo "probe: $1"; failed=1; }

expect() { # expect CODE TEXT COMMAND ... : the exit code, and TEXT somewhere in the output
  local code=$1 text=$2 got
  shift 2
  timeout 100 "$@" >out 2>&1 </dev/null
  got=$?
  [[ $got == "$code" ]] || complain "'$*' ended with $got instead of $code: $(tail -n 5 out)"
  grep -qF -- "$text" out || complain "'$*' did not say '$text' but: $(tail -n 5 out)"
}
holds() { # holds NAME FILE PYTHON: assertions about d
  python3 - "$2" <<PY || complain "$1"
import json, sys
d = json.load(open(sys.argv[1]))
$3
PY
}

# alone: codecs and jitter, and what to type for the rest
expect 0 "links need ranks: mpirun -n 4 tacit probe -o cluster.json" "$tacit" probe --quick --seconds 2 -o one.json
holds "one rank" one.json '
assert d["format"] == "tacit-cluster-1" and d["hosts"] == 1 and d["ranks_per_host"] == 1 and d["links"] == {}, d
assert d["compression"][0]["codec"] == "f32" and d["compression"][0]["encode_ns"] > 0 and d["compute"]["cv"] >= 0 and "collectives" not in d'

for ranks in 2 3; do
  expect 0 "written: some.json" "$MPIRUN" -n $ranks "$tacit" probe --quick --seconds 8 -o some.json
  holds "$ranks ranks" some.json "
assert d['hosts'] == 1 and d['ranks_per_host'] == $ranks, d
assert 'between' not in d['links'] and 'host_gbit_per_s' not in d['links']
assert 'inside' in d['links'] or any('links.inside is unknown' in n for n in d['notes']), d
groups = {t['group'] for t in d['collectives']}
assert groups == {'world'}, groups
kinds = {t['collective'] for t in d['collectives'] if t['by'] == 'tacit'}
assert kinds == {'all_reduce', 'all_to_all'}, kinds
assert any(t['by'].startswith('mpi-') for t in d['collectives']), d"
done

# --json prints the file and nothing else on the standard output; --no-natives leaves the library out
timeout 100 "$MPIRUN" -n 2 "$tacit" probe --quick --seconds 8 --no-natives --json >answer.json 2>err || complain "--json failed"
holds "--json" answer.json 'assert {t["by"] for t in d["collectives"]} == {"tacit"}, d'
expect 0 "to keep it: mpirun -n 2 tacit probe -o cluster.json" "$MPIRUN" -n 2 "$tacit" probe --quick --seconds 4

# refused before anything is measured; what was there stays
echo '{"mine": 1}' >mine.json
expect 3 "mine.json exists and does not describe a cluster; it is kept" "$tacit" probe -o mine.json
expect 3 "mine.json exists and does not describe a cluster" "$MPIRUN" -n 2 "$tacit" probe -o mine.json
[[ $(cat mine.json) == '{"mine": 1}' ]] || complain "another file was overwritten"
expect 0 "written: one.json" "$tacit" probe --quick --seconds 2 -o one.json
expect 7 "none/x.json: cannot create the file" "$tacit" probe -o none/x.json
expect 7 "/proc/x.json: cannot create the file" "$tacit" probe -o /proc/x.json
mkdir folder
expect 3 "folder is not a plain file" "$tacit" probe -o folder
expect 3 "needs the name of a file" "$tacit" probe --output=
expect 3 "--seconds 0: give a number above 0" "$tacit" probe --seconds 0
expect 3 "--seconds inf: give a number above 0" "$tacit" probe --seconds inf
expect 2 "probe takes no words" "$tacit" probe cluster.json
expect 2 'unknown option "--no-native"; did you mean "--no-natives"?' "$tacit" probe --no-native
[[ -z $(ls -A | grep tmp) ]] || complain "a temporary file was left"

[[ $failed == 0 ]] && echo "probe: 1, 2 and 3 ranks are measured, and what is in the way is refused first"
exit $failed

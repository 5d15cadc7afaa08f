#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kills and freezes ranks at every phase of a run. Every time: the exit code says so, exactly one line names the culprit,
# the job ends in time and no process is left. Usage: faults.sh PROGRAM mpi|tcp
set -u
. "$(dirname "$0")/../../scripts/mpi-environment.sh"
[ "$2" = tcp ] || [ -n "$MPIRUN" ] || exit 77
export OMPI_MCA_odls_base_sigkill_timeout=1 # mpirun waits twice as long after every failure
export TEST_WARN=0.8 TEST_TIMEOUT=2 TEST_START=15
program=$(readlink -f "$1") engine=$2
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
count=0 code_of_watcher=137 # of a killed one: what mpirun returns
start() { timeout --foreground -k 10 30 "$MPIRUN" -n "$1" "$program" "${@:2}"; }
if [ "$engine" = tcp ]; then
    code_of_watcher=5
    start() { timeout --foreground -k 10 30 "$program" --ranks "$1" "${@:2}"; }
fi

# Living processes of a case, watchers included.
left() {
    for environment in /proc/[0-9]*/environ; do
        grep -qsz "^FAULTS_CASE=$1\$" "$environment" && basename "$(dirname "$environment")"
    done
}

# expect RANKS CODE PATTERN PHASE RANK SIGNAL [and COMMAND...]: pattern: of the one line that names the culprit; "": nobody is
# to be named. The command looks at the lines, which are in $errors. Cases run side by side: most of their time is waiting.
expect() {
    count=$((count + 1))
    while [ "$(jobs -rp | wc -l)" -ge 3 ]; do wait -n; done
    attempt "$results/$count" "$@" >"$results/$count.said" 2>&1 &
}

attempt() {
    local errors=$1 ranks=$2 code=$3 pattern=$4 got=0
    shift 4
    complain() { echo "FAILED: $ranks ranks over $engine, ${words[*]}: $*"; sed 's/^/    /' "$errors"; }
    local words=("${@:1:3}")
    FAULTS_CASE=$errors start "$ranks" "${words[@]}" >/dev/null 2>"$errors" || got=$?
    [ "$got" = "$code" ] || complain "exit code $got instead of $code"
    if [ -n "$pattern" ]; then
        [ "$(grep -c "error: rank" "$errors")" = 1 ] || complain "not one line that names a culprit"
        grep -Eq "$pattern" "$errors" || complain "no line like '$pattern'"
    fi
    [ $# -eq 3 ] || "${@:5}" || complain "not true: ${*:5}"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -n "$(left "$errors")" ] || return
        sleep 0.3
    done
    complain "processes left: $(left "$errors")"
    kill -9 $(left "$errors")
}

warned() { grep -Eq "$1" "$errors"; }
nobody_accused() { ! grep -Eq "$1" "$errors"; }

killed='by signal 9 \(Killed\); last seen in'
expect 4 0 '' none 0 0
expect 3 5 "rank 0 on host .* was killed $killed start-up" init 0 9
expect 2 5 "rank 1 on host .* was killed $killed step 7, compute" compute 1 9
expect 4 5 "rank 0 on host .* was killed $killed step 7, compute" compute 0 9
expect 4 5 "rank 2 on host .* was killed $killed step [0-9]+, exchange" reduce 2 9
expect 3 5 "rank 1 on host .* was killed $killed step 40, " finish 1 9
expect 2 5 "rank 0 on host .* was killed by signal 11 .*; last seen in step 7, compute" compute 0 11
expect 3 4 '' leave 1 0
[ "$engine" = tcp ] || expect 4 5 "rank 2 on host .* was killed $killed step 40, bench, all-reduce of the library" native 2 9

frozen='stopped answering [23]\.[0-9] s ago; last seen in'
expect 3 5 "rank 2 on host .* $frozen step [0-9]+, exchange" reduce 2 19
expect 3 5 "rank 0 on host .* $frozen step 7, compute" compute 0 19
expect 2 5 "rank 1 on host .* $frozen step 40, (exchange|finish)" finish 1 19
expect 3 5 "rank 1 on host .* was stopped, has not gone on for [23]\.[0-9] s and is killed; last seen in start-up" init 1 19
expect 3 5 "rank 2 on host .* was stopped, has not gone on for [23]\.[0-9] s and is killed; last seen in step 40, shut down" end 2 19

# The other one of a rank's two processes.
watcher_killed="rank 1 on host .* ends because its watcher \\(pid [0-9]+\\) was killed; last seen in step [78], (compute|exchange)"
[ "$engine" = mpi ] || watcher_killed='rank 1 \(pid [0-9]+\) was killed by signal 9'
expect 3 $code_of_watcher "$watcher_killed" watcher 1 9
expect 3 5 "rank 1 on host .* ends because its watcher \\(pid [0-9]+\\) was stopped and has not gone on for [23]\\.[0-9] s" watcher 1 19
if [ "$engine" = mpi ]; then # a rank that had nothing left to do is not named
    expect 3 137 '' end-watcher 1 9 and nobody_accused 'error: rank'
    # The launcher is ending the job, and a busy watcher has not seen its SIGTERM: a peer is silent, or the rank itself was.
    expect 3 137 '' ended 2 19 and nobody_accused 'its watcher'
    expect 3 137 '' woken 2 19 and nobody_accused 'its watcher'
    # The same in a collective of the library, where nobody hears anybody: exactly one line, of the rank that was killed.
    expect 4 5 "rank 2 on host .* was killed $killed step 40, bench, all-reduce of the library" lost 2 9
else
    expect 3 5 'rank 1 \(pid [0-9]+\) was killed by signal 9' end-watcher 1 9
fi
expect 3 0 '' end-watcher 1 19 and warned 'warning: rank 1 on host .* has ended; its watcher .* was stopped and is woken'

# Inside of a collective of the library nobody hears anybody: the silence of all ends it, after comm.stall, and no rank
# can be named.
deaf='Open MPI .* has not returned for 3.0 s in all-reduce of the library'
[ "$engine" = tcp ] || TEST_STALL=3 expect 3 5 '' native 1 19 and warned "$deaf"

# Stopped for less than comm.timeout: a warning, another when it is back, and the run goes on. The stopped rank, whose own
# clock has jumped, accuses nobody.
back_again() { warned 'warning: rank 1 on host .* has been silent for' && warned 'warning: rank 1 on host .* answers again' &&
    nobody_accused 'rank [02] on host'; }
TEST_TIMEOUT=8 expect 3 0 '' pause 1 0 and back_again

# Stopped before it could split: no watcher of its own, but another one tells.
expect 3 5 "rank 1 on host .* is stopped and has not begun" early 1 19

# Without watchers the launcher's own code is all there is, but nothing may hang.
export TACIT_SUPERVISE=0
expect 3 $code_of_watcher '' compute 1 9
expect 3 5 "rank 2 on host .* $frozen" reduce 2 19
export TEST_THREAD=0
expect 3 5 "rank 1 on host .* $frozen" reduce 1 19
[ "$engine" = tcp ] || TEST_STALL=3 expect 3 5 '' native 1 19
wait
cat "$results"/*.said
[ -z "$(cat "$results"/*.said)" ]

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kills and freezes ranks at every phase of a run. Every time: the exit code says so, exactly one line names the culprit,
# the job ends in time and no process is left. Usage: faults.sh PROGRAM
set -u
. "$(dirname "$0")/../../scripts/mpi-environment.sh"
[ -n "$MPIRUN" ] || exit 77
export OMPI_MCA_odls_base_sigkill_timeout=1 # mpirun waits twice as long after every failure
export TEST_WARN=0.8 TEST_TIMEOUT=2 TEST_START=4
program=$(readlink -f "$1")
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
failed=0
before=() # a program that starts it

complain() {
    echo "FAILED: $*"
    sed 's/^/    /' "$errors"
    failed=1
}

# Living processes of the program, watchers included. Those of other runs of this test are not expected: it is serial.
left() {
    for exe in /proc/[0-9]*/exe; do
        [ "$(readlink "$exe" 2>/dev/null)" = "$program" ] && basename "$(dirname "$exe")"
    done
}

# expect RANKS CODE PATTERN PHASE RANK SIGNAL
expect() {
    local ranks=$1 code=$2 pattern=$3 got=0
    shift 3
    timeout --foreground -k 10 30 "$MPIRUN" -n "$ranks" ${before[@]+"${before[@]}"} "$program" "$@" >/dev/null 2>"$errors" || got=$?
    [ "$got" = "$code" ] || complain "$ranks ranks, $*: exit code $got instead of $code"
    if [ -n "$pattern" ]; then # empty: nobody is to be named
        [ "$(grep -c "error: rank" "$errors")" = 1 ] || complain "$ranks ranks, $*: not one line that names a culprit"
        grep -Eq "$pattern" "$errors" || complain "$ranks ranks, $*: no line like '$pattern'"
    fi
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -z "$(left)" ] && return
        sleep 0.3
    done
    complain "$ranks ranks, $*: processes left: $(left)"
    kill -9 $(left)
}

killed='by signal 9 \(Killed\); last seen in'
expect 4 0 '' none 0 0
expect 3 5 "rank 0 on host .* was killed $killed start-up" init 0 9
expect 2 5 "rank 1 on host .* was killed $killed step 7, compute" compute 1 9
expect 4 5 "rank 0 on host .* was killed $killed step 7, compute" compute 0 9
expect 4 5 "rank 2 on host .* was killed $killed step [0-9]+, exchange" reduce 2 9
expect 3 5 "rank 1 on host .* was killed $killed step 40, " finish 1 9
expect 2 5 "rank 0 on host .* was killed by signal 11 .*; last seen in step 7, compute" compute 0 11
expect 3 4 '' leave 1 0
expect 4 5 "rank 2 on host .* was killed $killed step 40, bench, all-reduce of the library" native 2 9

frozen='stopped answering [23]\.[0-9] s ago; last seen in'
expect 3 5 "rank 2 on host .* $frozen step [0-9]+, exchange" reduce 2 19
expect 3 5 "rank 0 on host .* $frozen step 7, compute" compute 0 19
expect 2 5 "rank 1 on host .* $frozen step 40, (exchange|finish)" finish 1 19
expect 3 5 "rank 1 on host .* was stopped, has not gone on for [23]\.[0-9] s and is killed; last seen in start-up" init 1 19
expect 3 5 "rank 2 on host .* was stopped, has not gone on for [23]\.[0-9] s and is killed; last seen in step 40, shut down" end 2 19

# The other one of a rank's two processes.
expect 3 137 "rank 1 on host .* ends because its watcher \(pid [0-9]+\) was killed; last seen in step [78], (compute|exchange)" watcher 1 9
expect 3 5 "rank 1 on host .* ends because its watcher \(pid [0-9]+\) was stopped and has not gone on for [23]\.[0-9] s" watcher 1 19
expect 3 137 '' end-watcher 1 9
! grep -q "error: rank" "$errors" || complain "end-watcher: a rank that had nothing left to do was named"
expect 3 0 '' end-watcher 1 19
grep -q "warning: rank 1 on host .* has ended; its watcher .* was stopped and is woken" "$errors" || complain "end-watcher: not named"

# Inside of a collective of the library nobody hears anybody: the silence of all ends it, after comm.stall, and no rank
# can be named.
TEST_STALL=3 expect 3 5 '' native 1 19
grep -q "Open MPI .* has not returned for 3.0 s in all-reduce of the library" "$errors" || complain "native: not said why"

# Stopped for less than comm.timeout: a warning, another when it is back, and the run goes on. The stopped rank, whose own
# clock has jumped, accuses nobody.
TEST_TIMEOUT=8 expect 3 0 '' pause 1 0
grep -q "warning: rank 1 on host .* has been silent for" "$errors" || complain "pause: no warning"
grep -q "warning: rank 1 on host .* answers again" "$errors" || complain "pause: not said to be back"
[ "$(grep -c "rank [02] on host" "$errors")" = 0 ] || complain "pause: others were accused"

# Stopped before it could split: no watcher of its own, but another one tells.
early=$(mktemp)
trap 'rm -f "$errors" "$early"' EXIT
printf '#!/bin/bash\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && kill -STOP $$\nexec "$@"\n' >"$early"
chmod +x "$early"
before=("$early")
expect 3 5 "rank 1 on host .* is stopped and has not begun" none 0 0
before=()

# Without watchers the launcher's own code is all there is, but nothing may hang.
export TACIT_SUPERVISE=0
expect 3 137 '' compute 1 9
expect 3 5 "rank 2 on host .* $frozen" reduce 2 19
export TEST_THREAD=0
expect 3 5 "rank 1 on host .* $frozen" reduce 1 19
TEST_STALL=3 expect 3 5 '' native 1 19
exit $failed

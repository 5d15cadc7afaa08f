#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The MPI library's own all-reduces, and `tacit bench collectives` over them. Usage: natives.sh NATIVE_LAWS TACIT MPI_FAMILY
set -eu
. "$(dirname "$0")/../../scripts/mpi-environment.sh"
laws=$1 tacit=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# bench RANKS LAUNCHER FLAGS...: must be JSON, with a figure of every candidate at every size
bench() {
    ranks=$1 launcher=$2
    shift 2
    timeout 60 "$launcher" -n "$ranks" "$tacit" bench collectives --json --rounds 2 "$@" >"$work/out.json"
    python3 - "$work/out.json" "$ranks" "$@" <<'EOF'
import json, math, sys
answer, ranks, flags = json.load(open(sys.argv[1])), int(sys.argv[2]), sys.argv[3:]
given = dict(zip(flags[::2], flags[1::2]))
assert answer["ranks"] == ranks and answer["hosts"] == 1 and answer["bus_sides"] == ranks, answer
assert answer["rounds"] == 2 and answer["machine"]["cores"] >= 1
expected = {"4": 4, "8": 8, "1KiB": 1024, "100kB": 100000}
sizes = [expected[text] for text in given["--bytes"].split(",")]
assert [size["bytes"] for size in answer["sizes"]] == sizes, answer
for size in answer["sizes"]:
    names = [figure["by"] for figure in size["figures"]]
    assert names == given.get("--by", ",".join(names)).split(",") and names[0] == "tacit", names
    assert max(figure["of_best"] for figure in size["figures"]) == 1
    for figure in size["figures"]:
        seconds, samples = figure["seconds"], figure["samples_s"]
        assert len(samples) == 2 and min(samples) == seconds["least"] > 0 and max(samples) == seconds["most"]
        assert math.isclose(sum(samples) / 2, seconds["median"]) and figure["calls"] >= 1
        share = (ranks - 1) / ranks
        factor = {"send": 1, "all-reduce": 2 * share}[given.get("--op", "all-reduce")]
        assert math.isclose(figure["bus_bps"], factor * 8 * size["bytes"] / seconds["median"]), figure
        assert ("of_line" in figure) == ("--line" in given)
        if "--line" in given:
            assert math.isclose(figure["of_line"], figure["bus_bps"] / 2.5e9)
EOF
}

if [ "$3" = mpich ]; then # it spins when ranks share cores
    command -v mpiexec.mpich >/dev/null || exit 77
    timeout 60 mpiexec.mpich -n 2 "$laws" mpi-default
    bench 2 mpiexec.mpich --bytes 8,100kB --by tacit,mpi-default
    exit 0
fi
[ -n "$MPIRUN" ] || exit 77
all=mpi-default,mpi-ring,mpi-rabenseifner,mpi-han
timeout 60 "$laws" ""
for ranks in 2 3 4; do
    timeout 60 "$MPIRUN" -n "$ranks" "$laws" "$all"
    bench "$ranks" "$MPIRUN" --bytes 4,1KiB,100kB
done
TEST_THREAD=0 timeout 60 "$MPIRUN" -n 2 "$laws" "$all"
for thread in 0 1; do
    TEST_THREAD=$thread TEST_TIMEOUT=1 TEST_WARN=0.5 timeout 60 "$MPIRUN" -n 3 "$laws" "$all" long 2>"$work/err" ||
        { cat "$work/err"; exit 1; }
    if grep silent "$work/err"; then exit 1; fi
done
# A user's own choices are obeyed: what cannot be had is not listed.
OMPI_MCA_coll_tuned_use_dynamic_rules=0 timeout 60 "$MPIRUN" -n 2 "$laws" mpi-default,mpi-han
OMPI_MCA_coll='^han' timeout 60 "$MPIRUN" -n 2 "$laws" mpi-default,mpi-ring,mpi-rabenseifner
OMPI_MCA_coll='^tuned' timeout 60 "$MPIRUN" -n 2 "$laws" mpi-default,mpi-han
OMPI_MCA_coll_han_priority=100 timeout 60 "$MPIRUN" -n 4 "$laws" "$all"

bench 3 "$MPIRUN" --bytes 8,100kB --by tacit,mpi-ring --exchange.wire bf16 --line 2.5gbit
bench 2 "$MPIRUN" --bytes 100kB --by tacit --exchange.bucket 4KiB
bench 4 "$MPIRUN" --bytes 8,1KiB --op send
bench 2 "$MPIRUN" --bytes 8 --by tacit,mpi-han --comm.thread false

# refused by every rank, said once
if timeout 60 "$MPIRUN" -n 3 "$tacit" bench collectives --by tacit,mpi-rign 2>"$work/err"; then exit 1; fi
[ "$(grep -c 'mpi-rign.* there are tacit, mpi-default, mpi-ring' "$work/err")" = 1 ] || { cat "$work/err"; exit 1; }

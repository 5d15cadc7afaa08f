#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Emulated accelerators at several numbers of ranks, in all modes. Usage: emulated.sh PROGRAM
set -eu
. "$(dirname "$0")/../../scripts/mpi-environment.sh"
[ -n "$MPIRUN" ] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
profile=$work/profile.json
cat >"$profile" <<'END'
{
  "format": "tacit-profile-1", "name": "test", "unit": "seconds",
  "layers": [
    {"name": "embedding", "forward_s": 0, "backward_s": 0, "tensors": [{"name": "table", "shape": [5000, 33]}]},
    {"name": "body", "forward_s": 0.004, "backward_s": 0.008, "tensors": [{"name": "weight", "shape": [129, 65]}]},
    {"name": "head", "forward_s": 0.003, "backward_s": 0.005, "tensors": [{"name": "bias", "shape": [1]}]}
  ]
}
END
for ranks in 1 2 8; do
    timeout 60 "$MPIRUN" -n "$ranks" "$1" 30 free --compute.emulate "$profile" --compute.cv 0.1
done
timeout 60 "$MPIRUN" -n 3 "$1" 20 barrier --compute.emulate "$profile" --compute.slow 1:2 2:0.5
timeout 60 "$MPIRUN" -n 2 "$1" 20 mute --compute.emulate "$profile" --compute.scale 0.1
if timeout 60 "$MPIRUN" -n 2 "$1" 1 free --compute.emulate "$profile" --compute.slow 2:2 2>"$work/log"; then
    echo "a straggler that does not exist was accepted"
    exit 1
fi
grep -q 'there is no such rank; 2 ranks run: 0 to 1' "$work/log"

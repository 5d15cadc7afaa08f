#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Do two programs compute the same bits? Judges a change that is meant to keep every one of them.
#
#   tests/same-bits.sh OLD NEW [--only PATTERN] [--rename NEW_KEY=OLD_KEY] [--jobs N] [--list]
#
# OLD, NEW: programs, or build folders with bin/tacit. Compared are: metrics.jsonl without what is measured and the tensors of every
# checkpoint, for all strategies, codecs and controllers at 1, 2, 3, 5 and 8 ranks, also resumed; `tacit plan --json` on the
# example clusters; `tacit info TOPIC --json`. What one of the two refuses is listed by itself: keys that went, say. Left out
# is auto, which decides by measured time.
# --only takes the cases whose names contain PATTERN, a regular expression; --rename gives OLD another key (several times).
# Answers stay in build/same-bits (or TACIT_SAME_BITS) under the digest of the program that gave them, and its plugins: OLD runs once.
# Needs Open MPI's mpirun. Exit code 0: the same; 1: something differs; 2: wrong use.
cd "$(dirname "$0")/.." || exit 2
. scripts/mpi-environment.sh
[ -n "$MPIRUN" ] || { echo "same-bits: Open MPI's mpirun is missing: apt-get install openmpi-bin" >&2; exit 2; }
exec python3 tests/same_bits.py "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Would the unit tests notice? Changes one operator, constant, condition or statement of the library at a time, in a copy of
# the tree, and prints the changes that the unit tests of the same folder let pass.
#
#   tests/mutate.sh [FOLDER|FILE.c ...] [--max N] [--seed S] [--jobs J] [--minutes M] [--list]
#
# Without names: src/strategy src/adapt src/topo src/exchange src/optim src/plan src/cluster src/advise. --max samples N
# changes, the same for the same seed (1) and sources; --jobs tries so many at a time (1); --minutes ends in time; --list names
# the changes and tries none. A file's tests are src/FOLDER/test_*.c, and those of the folders above it that call it most (ALSO
# in mutate.py); the first one that fails kills the change. "equivalent" changes have the same object code. A test that does not
# end within 30 s and five times its usual time proves nothing: such changes are printed as well. The copy, its build and all
# verdicts stay in build/mutate (or TACIT_MUTATE): a run that was interrupted goes on where it stopped. A verdict holds until
# the file changes, or the test that killed the change, or any test if none did. Exit code 0: nothing survived; 1: something
# did; 75: stopped early; 2: wrong use or a tree that fails without changes.
exec nice -n 10 python3 "$(dirname "$0")/mutate.py" "$@"

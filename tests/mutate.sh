#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Would the unit tests notice? Changes one operator, constant, condition or statement of the library at a time, in a copy of
# the tree, and prints the changes that the unit tests of the same folder let pass.
#
#   tests/mutate.sh [FOLDER|FILE.c ...] [--max N] [--seed S] [--minutes M] [--list]
#
# Without names: src/strategy src/topo src/exchange src/optim src/plan. --max takes a sample of N changes, the same for the
# same seed (1) and sources; --minutes ends in time; --list names the changes and tries none. The copy, its build and all
# verdicts stay in build/mutate (or TACIT_MUTATE): a run that was interrupted goes on where it stopped, and a verdict holds
# until the file or a test of its folder changes. A file's tests are src/FOLDER/test_*.c.
# Exit code 0: nothing survived; 1: something did; 75: stopped early; 2: wrong use or a tree that fails without changes.
exec nice -n 10 python3 "$(dirname "$0")/mutate.py" "$@"

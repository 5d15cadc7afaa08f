#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests: style, gcc, clang, sanitizers, MPI at 1 2 3 4 5 7 8 ranks, whole training runs, faults, emulated clusters, installation, packages,
# the README's commands. Installs what is missing. The last line says how many passed and failed.
# Usage: scripts/test.sh [STAGE ...]    stages: style gcc mpi train faults python readme mpich lab asan tsan clang
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
scripts/install-dependencies.sh build test || exit $?
export OMPI_MCA_odls_base_sigkill_timeout=1 # launches fail on purpose here, and mpirun waits twice as long after each
. scripts/mpi-environment.sh
. tests/check.sh
export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_DIR=$root/build/ccache CCACHE_DEPEND=1 # the wheel has the objects of the release build
logs=$root/build/test-logs
mkdir -p "$logs"

stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(style gcc mpi train faults python readme mpich lab asan tsan clang)

# compile PRESET [TARGET...]: all of it, or what is named
compile() { cmake --preset "$1" -DTACIT_TESTS=ON -DTACIT_WERROR=ON && cmake --build "build/$1" --target "${@:2}"; }
build() { check "build $1" compile "$1" all; }

# compile_unit PRESET NAMES BUT [TARGET...]: these unit tests without those, and further targets
compile_unit() {
  local targets
  cmake --preset "$1" -DTACIT_TESTS=ON -DTACIT_WERROR=ON || return
  targets=$(ctest --test-dir "build/$1" -N -L '^unit$' -R "$2" -E "$3" | sed -nE 's/.*Test +#[0-9]+: ([^-]*).*/test_\1/p' | sort -u)
  # shellcheck disable=SC2086 # words
  cmake --build "build/$1" --target $targets "${@:4}"
}

# What the address sanitizer leaves out takes long and has no memory of its own, or is there once more, sealed or over another engine: gcc
# runs all. gcc 12 loses masks of AVX-512 under its thread sanitizer (test_select); threads do not depend on them.
asan_but='^(reference|matmul-widened|candidates|payoff_links|work|gossip_noise|priced_sums|predict|stretch|demand|cluster_probe|gossip_laws|optim_ranges|compression_control|tcp_faults.*|comm-over-sockets|(exchange|channel)-over-tcp|.*-polled)$'
tsan_names='^(base|comm|exchange|strategy|optim|matmul|gpt|spans|sources|classes)'
tsan_but='^(.*-polled|exchange-over-tcp|comm-over-sockets|optim_(ranges|accum)|matmul-widened)$'
compile_asan() { compile_unit asan-ubsan . "$asan_but" tacit-program tacit-mpi-openmpi; }
compile_tsan() { compile_unit tsan "$tsan_names" "$tsan_but"; }
compile_clang() { compile clang all; }

# While the first stages run that wait much and measure nothing, processors that have nothing else to do build for the stages that follow.
# What is still to be built then, and what failed, is up to the stage itself.
build_ahead() {
  local stage
  set -m # a process group of its own
  { chrt --idle --pid 0 $BASHPID || exit
    for stage in asan tsan clang; do [[ " ${stages[*]} " != *" $stage "* ]] || compile_$stage; done; } >"$logs/ahead.log" 2>&1 </dev/null &
  ahead=$!
  set +m
}
ahead=
trap '[ -z "$ahead" ] || kill -- "-$ahead" 2>/dev/null' EXIT

# unit PRESET LABELS [NAMES [BUT]]: every ctest case with one of these labels (a name that matches, but not these) counts as one test. Two
# more at a time than there are cores, for many of them wait; what starts ranks or measures has RUN_SERIAL.
unit() {
  local log=$logs/ctest-$1-${2//|/-}.log
  ctest --test-dir "build/$1" -j "$(($(nproc) + 2))" --output-on-failure --no-tests=error -L "^($2)\$" -R "${3:-.}" -E "${4:-^$}" >"$log" 2>&1 </dev/null
  count_cases $? "ctest $1 -L $2" "$log"
}

# count_cases STATUS NAME LOG: what ctest has said of each case, before it ended with this status
count_cases() {
  local status=$1 what=$2 log=$3 line='^ *[0-9]+/[0-9]+ Test ' bad='\*\*\*(Failed|Timeout|Exception|Not Run)' passed failed skipped name
  passed=$(grep -cE "$line.* Passed" "$log")
  failed=$(grep -cE "$line.*$bad" "$log")
  mapfile -t skipped < <(sed -nE "s,$line *#[0-9]+: ([^ ]+) .*\*\*\*Skipped.*,\1,p" "$log")
  CHECKS_PASSED=$((CHECKS_PASSED + passed))
  echo "ok   $passed tests of $what"
  [ $((passed + failed + ${#skipped[@]})) -gt 0 ] || fail "$what ran no test" "$log"
  [ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || fail "$what ended before its tests (exit code $status)" "$log"
  [ "$failed" -eq 0 ] || grep -E "$line.*$bad|FAILED|: error: |ERROR" "$log" | while read -r name; do echo "     $name"; done
  for _ in $(seq "$failed"); do fail "$what" "$log"; done
  for name in "${skipped[@]}"; do skip "$what" "$name cannot run here"; done
}

# PyTorch comes by pip, into an environment of its own, while other stages run.
install_torch() {
  python3 -m venv build/python && build/python/bin/pip install -q torch==2.13.0 numpy
}

program() { TACIT=$root/build/$1/bin/tacit run_checks "${@:2}"; }
programs() { TACIT=$root/build/$1/bin/tacit run_checks_beside "${@:2}"; } # those that take longest come first

style_of_sources() {
  local files
  mapfile -t files < <(git ls-files -co --exclude-standard '*.c' '*.h')
  [ ${#files[@]} -gt 0 ] || { echo "git lists no sources"; return 1; } # without a file clang-format finds nothing wrong
  clang-format --dry-run -Werror "${files[@]}"
}

style() {
  check "clang-format" style_of_sources
  check "layering" scripts/check-layering.sh
  check "names" scripts/check-names.sh
  check "shell syntax" bash -c 'for f in lab/cluster $(git ls-files -co --exclude-standard "*.sh"); do bash -n "$f" || exit 1; done'
}

torch=
[[ " ${stages[*]} " != *" python "* ]] || { install_torch >"$logs/pip.log" 2>&1 & torch=$!; }

for stage in "${stages[@]}"; do
  echo "== $stage"
  started=$SECONDS
  case $stage in
    train | faults | python) [ -n "$ahead" ] || build_ahead ;;
    readme | mpich) ;;
    *) [ -z "$ahead" ] || wait "$ahead" ;;
  esac
  case $stage in
    style) style ;;
    gcc) build release; unit release '(unit|program)' ;;
    mpi) build release; unit release mpi ;;
    train) build release; programs release tests/{train,hosts,compression,shard,folder,ranks}.sh ;;
    faults) build release; programs release "tests/faults.sh mpi" "tests/faults.sh tcp" tests/strangers.sh
      for engine in mpi tcp; do check "campaign of 10 faults over $engine" tests/campaign.sh 10 --engine $engine; done ;;
    lab) build release; program release tests/lab.sh; program release tests/lab_step.sh; program release tests/lab_shard.sh; program release tests/lab_probe.sh; program release tests/lab_collectives.sh ;;
    asan) check "build asan-ubsan" compile_asan; unit asan-ubsan unit . "$asan_but"; program asan-ubsan tests/smoke.sh ;;
    tsan) check "build tsan" compile_tsan; TACIT_ISA=avx2 TSAN_OPTIONS=suppressions=$root/tests/tsan.supp unit tsan unit "$tsan_names" "$tsan_but" ;;
    clang) check "build clang" compile_clang; unit clang unit . '^(mix|reference|feedback|linear|halves|narrow|gaps|work|sketch_reduce|compression.*|gossip.*|sharding.*|comm|fault|tcp_faults|.*-(over|sealed|polled).*|cluster_probe|candidates|priced_sums|restore|unread|channel|state|exchange|async|engine_tcp|together|payoff_links|bootstrap|change|demand|start|strangers|store|localsgd.*)$' ;; # what is long and compiles to nothing special: gcc, asan
    mpich) build release; unit release mpich; program release tests/mpich.sh ;;
    python) build release
      if wait $torch; then python=$root/build/python/bin/python; else skip "PyTorch" "pip cannot install it: $(tail -n 1 "$logs/pip.log")"; fi
      export TACIT_PYTHON=${python:-}
      program release tests/python.sh; programs release tests/{packages,python_cuda,python_hook,python_examples}.sh ;;
    readme) build release; program release tests/readme.sh ;;
    *) echo "unknown stage $stage" >&2; exit 2 ;;
  esac
  echo "-- $stage took $((SECONDS - started)) s"
done
echo
[ ${#CHECKS_SKIPPED_NAMES[@]} -eq 0 ] || printf 'skipped: %s\n' "${CHECKS_SKIPPED_NAMES[@]}"
[ "$CHECKS_FAILED" -eq 0 ] || printf 'failed: %s\n' "${CHECKS_FAILED_NAMES[@]}"
echo "$CHECKS_PASSED passed, $CHECKS_FAILED failed"
[ "$CHECKS_FAILED" -eq 0 ]

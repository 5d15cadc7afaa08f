#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/install.sh BUILD: installs a build by the README's lines, in a home folder of its own, and uses it the way others will:
# C and C++17 programs through pkg-config and through find_package, the command of docs/library.md, the examples on four
# ranks, programs of either MPI, an installation without MPI, manual pages, completion.
set -euo pipefail
build=$(cd "${1:?usage: tests/install.sh BUILD, for instance build/release}" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
fail() {
    echo "install: $1" >&2
    exit 1
}

# The lines of the README from the installation on, with this build.
mkdir "$prefix/home"
export HOME=$prefix/home
usr=$HOME/.local
lines=$(sed -n '/^cmake --install/,/^export/p' "$source/README.md" | sed "s|build/release|'$build'|")
[[ $(wc -l <<< "$lines") == 2 ]] || fail "README.md does not say how to install"
eval "$lines" > "$prefix/log" || { cat "$prefix/log"; fail "cmake --install failed"; }
version=$(tacit --version)
[[ $(command -v tacit) == "$usr/bin/tacit" ]] || fail "the README's PATH does not lead to the program"
[[ $(man -w tacit-doctor) == "$usr"/share/man/* ]] || fail "the README's MANPATH does not lead to the manual pages"

# what is there
for file in bin/tacit include/tacit/tacit.h include/tacit/tacit_mpi.h share/man/man1/tacit.1 share/man/man1/tacit-doctor.1 \
    share/bash-completion/completions/tacit; do
    [[ -s $usr/$file ]] || fail "$file is missing"
done
# one page per verb of the overview
"$usr/bin/tacit" --help | sed -n '/^verbs:/,/^$/p' | sed -n 's/^  \(.*[a-z]\)   *[a-z].*/\1/p' | sed 's/  .*//; s/ *$//; s/ /-/g' > "$prefix/verbs"
[[ $(wc -l < "$prefix/verbs") -ge 3 ]] || fail "the overview lists too few verbs"
while read -r verb; do
    [[ -s $usr/share/man/man1/tacit-$verb.1 ]] || fail "the manual page of $verb is missing"
done < "$prefix/verbs"

# a program of somebody else
mkdir "$prefix/user" && cd "$prefix/user"
cat > use.c <<'EOF'
#include <stdio.h>
#include <tacit/tacit.h>
int main(void) {
    printf("tacit %s\n", tacit_version());
    return tacit_status_exit_code(TACIT_OK);
}
EOF
cp use.c use.cc
cat > CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C CXX)
find_package(tacit 0.2 REQUIRED)
foreach(source use.c use.cc)
  string(REPLACE . _ name ${source})
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE tacit::tacit)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Werror)
endforeach()
set_target_properties(use_c PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
set_target_properties(use_cc PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
EOF

read -ra flags < <(pkg-config --cflags tacit)
read -ra libraries < <(pkg-config --libs tacit)
[[ "tacit $(pkg-config --modversion tacit)" == "$version" ]] || fail "tacit.pc has another version"
strict="-Wall -Wextra -Wpedantic -Werror"
cc -std=c11 $strict "${flags[@]}" use.c -o by_pc_c "${libraries[@]}"
c++ -std=c++17 $strict "${flags[@]}" use.cc -o by_pc_cc "${libraries[@]}"
cmake -S . -B out > "$prefix/log" 2>&1 || { cat "$prefix/log"; fail "find_package failed"; }
cmake --build out > "$prefix/log" 2>&1 || { cat "$prefix/log"; fail "the user's project does not build"; }
for program in ./by_pc_c ./by_pc_cc out/use_c out/use_cc; do
    [[ $($program) == "$version" ]] || fail "$program does not say $version"
done
# what the library shows, and what it must not use: it never ends the process, prints, or takes signals
shared=$(find "$usr" -name 'libtacit.so.*.*.*')
readelf -d "$shared" | grep -q 'SONAME.*\[libtacit\.so\.0\.2\]' || fail "the soname is not libtacit.so.0.2"
nm -D --defined-only "$shared" | awk '{ print $3 }' | sort > "$prefix/symbols"
sed -n 's/^TACIT_API [^(]*[ *]\(tacit_[a-z_]*\)(.*/\1/p' "$usr"/include/tacit/*.h | sort > "$prefix/declared"
[[ $(wc -l < "$prefix/declared") -gt 20 ]] || fail "too few functions are declared"
diff "$prefix/declared" "$prefix/symbols" || fail "the library shows other symbols than its headers declare"
if nm -D --undefined-only "$shared" | awk '{ sub("@.*", "", $2); print $2 }' |
    grep -xE '_?_?exit|_Exit|quick_exit|abort|atexit|signal|sigaction|perror|puts|putchar|(__)?v?printf(_chk)?|stdout|stderr'; then
    fail "the library ends the process, prints or takes signals"
fi

# what they link: no MPI, and what others embed neither matrix products nor OpenMP
if ldd "$shared" | grep -E 'mpi|libgomp|libdnnl'; then fail "libtacit.so links too much"; fi
if ldd "$usr/bin/tacit" | grep mpi; then fail "the program links an MPI"; fi
if grep -i mpi "$(find "$usr" -name tacit.pc)" "$(find "$usr" -name tacitConfig.cmake)"; then fail "users of the library are asked for MPI"; fi
plugins=${shared%/*}/tacit
for plugin in "$build"/lib/libtacit-mpi-*.so; do
    [[ ! -e $plugin || -s $plugins/${plugin##*/} ]] || fail "${plugin##*/} is not installed"
done

# the examples on four ranks, as docs/library.md has them
. "$source/scripts/mpi-environment.sh"
cp "$source"/examples/c/*.c .
cat > CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.20)
project(examples LANGUAGES C)
find_package(tacit 0.2 REQUIRED)
foreach(name gradients own_network own_optimizer)
  add_executable(${name} ${name}.c)
  target_link_libraries(${name} PRIVATE tacit::tacit m)
endforeach()
EOF
if ! { cmake -S . -B examples && cmake --build examples; } > "$prefix/log" 2>&1; then
    cat "$prefix/log"
    fail "the examples do not build by find_package"
fi
for name in gradients own_network own_optimizer; do
    cc -std=c11 $strict "${flags[@]}" $name.c -o $name "${libraries[@]}" -lm
done
# run PROGRAM SETTING...: its output in $prefix/out
run() { timeout 60 "$MPIRUN" -n 4 "$@" > "$prefix/out" 2> "$prefix/err" || { cat "$prefix/err"; fail "$* failed"; }; }
learns() {
    run "$@"
    awk '/^step/ { if (n++ == 0) first = $4; last = $4 } END { exit !(n == 3 && last < first / 2 && last < 0.02) }' \
        "$prefix/out" || { cat "$prefix/out"; fail "$*: the loss does not fall"; }
}
# The answer is 3 and -2, and all ranks deliver the same mean of their replicas.
agrees() {
    run "$@"
    awk '/^rank/ { n++; d = $3 - 3; e = $4 + 2; if (d * d + e * e > 0.01) wrong = 1; if (!(($3, $4) in seen)) kinds++; seen[$3, $4] }
         END { exit !(n == 4 && kinds == 1 && !wrong) }' "$prefix/out" || { cat "$prefix/out"; fail "$*: not the answer"; }
}
mpirun() { "$MPIRUN" "$@"; }
# The command of docs/library.md, as it stands there.
as_documented() {
    local command
    command=$(sed -n '/^cc examples/p' "$source/docs/library.md")
    [[ $command == cc*mpirun* ]] || fail "docs/library.md has no command"
    (cd "$prefix" && ln -s "$source/examples" . && eval "$command" > out 2> err) || { cat "$prefix/err"; fail "$command: failed"; }
    grep -q '^step 300 loss' "$prefix/out" || fail "$command: does not train"
}
nano=(--model.preset nano --train.threads 1 --train.batch 8 --train.steps 4)
# refuses WHAT FOLDER: one line that names the folder, and exit status 3
refuses() {
    local status=0
    timeout 60 "$MPIRUN" -n 2 "$usr/bin/tacit" train "${nano[@]}" --run.dir "$prefix/none" > "$prefix/out" 2> "$prefix/err" || status=$?
    [[ $status == 3 && $(grep -c '^tacit: ' "$prefix/err") == 1 ]] || { cat "$prefix/err"; fail "$1: exit status $status"; }
    grep -q "error: libtacit-mpi-openmpi.so.* is not in .*$2.*apt-get install" "$prefix/err" || { cat "$prefix/err"; fail "$1: not the reason"; }
}
has_plugin() { [[ -s $plugins/libtacit-mpi-$1.so ]]; }
# A program that uses MPI itself.
cat > own_mpi.c <<'EOF'
#include <stdio.h>
#include <tacit/tacit_mpi.h>
int main(void) {
    tacit_comm *comm = NULL;
    int level = 0, rank = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (tacit_open_mpi(MPI_COMM_WORLD, NULL, &comm) != TACIT_OK) {
        puts(tacit_error_text());
        return 1;
    }
    if (tacit_rank(comm) == rank) printf("one of %d\n", tacit_size(comm));
    tacit_close(comm);
    MPI_Finalize();
    return 0;
}
EOF
cp own_mpi.c own_mpi.cc
# own_mpi FAMILY LAUNCHER: built by the compilers of the family, in C and C++
own_mpi() {
    has_plugin "$1" && [[ $(command -v "mpicc.$1" "mpicxx.$1" "$2" | wc -l) == 3 ]] || return 0
    "mpicc.$1" -std=c11 $strict "${flags[@]}" own_mpi.c -o own_mpi_c "${libraries[@]}" || fail "no C program of $1"
    "mpicxx.$1" -std=c++17 "${flags[@]}" own_mpi.cc -o own_mpi_cc "${libraries[@]}" || fail "no C++ program of $1"
    for program in own_mpi_c own_mpi_cc; do
        timeout 60 "$2" -n 2 ./$program > "$prefix/out" || { cat "$prefix/out"; fail "$program of $1 failed"; }
        [[ $(grep -c '^one of 2$' "$prefix/out") == 2 ]] || { cat "$prefix/out"; fail "$program of $1: not two ranks"; }
    done
}
[[ -z $MPIRUN ]] || own_mpi openmpi "$MPIRUN"
own_mpi mpich mpiexec.mpich
if [[ -n $MPIRUN ]] && has_plugin openmpi; then
    as_documented
    timeout 60 "$MPIRUN" -n 2 "$usr/bin/tacit" train "${nano[@]}" --run.dir "$prefix/two" > "$prefix/out" 2>&1 || { cat "$prefix/out"; fail "two ranks"; }
    grep -q 'comm.engine mpi (Open MPI .*): mpirun (Open MPI) started 2 processes' "$prefix/out" || { cat "$prefix/out"; fail "the choice of the engine is not logged"; }
    TACIT_PLUGINS=/nowhere refuses "no plugin in TACIT_PLUGINS" /nowhere
    for strategy in dp gossip "localsgd localsgd.every=8"; do
        learns ./own_network strategy=$strategy optim.lr=0.01
        agrees examples/own_optimizer strategy=$strategy
    done
    learns examples/own_network strategy=gossip gossip.order=atc optim.lr=0.01
    learns examples/own_network strategy=shard shard.stage=1 compress.codec=auto optim.lr=0.01
    agrees ./own_optimizer strategy=gossip gossip.order=atc
fi

# an installation without plugins, as on a machine without MPI
rm -r "$plugins"
"$usr/bin/tacit" train "${nano[@]}" --run.dir "$prefix/alone" > "$prefix/out" 2>&1 || { cat "$prefix/out"; fail "one rank without plugins"; }
"$usr/bin/tacit" info build | grep -q '^MPI  *none' || fail "info build sees an MPI where no plugin is"
[[ -z $MPIRUN ]] || refuses "no plugins" "$usr/bin"

# the next minor version is another interface
sed -i 's/tacit 0.2 /tacit 0.3 /' CMakeLists.txt
if cmake -S . -B out2 > /dev/null 2>&1; then fail "find_package(tacit 0.3) found $version"; fi
echo "install: $version installed by the README and used from C11 and C++17, through pkg-config and find_package; examples on 4 ranks"

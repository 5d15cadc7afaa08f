#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that are missing (Debian 12 and relatives). As root it installs them; as anybody else it prints
# the command and stops. Usage: scripts/install-dependencies.sh [build] [test]
# Open MPI is what most clusters have; a build without libopenmpi-dev works, for one process or under MPICH.
set -euo pipefail

build="gcc cmake ninja-build pkg-config libopenmpi-dev openmpi-bin libdnnl-dev libyaml-dev libjansson-dev libxxhash-dev libsodium-dev libhwloc-dev python3-venv"
test="ccache clang clang-format libclang-rt-14-dev libcmocka-dev libmpich-dev mpich python3 procps iproute2 g++ git man-db bash-completion dpkg-dev file lintian qemu-user openssh-server openssh-client"

[ $# -gt 0 ] || set -- build
wanted=""
for group in "$@"; do
  case $group in
    build) wanted+=" $build" ;;
    test) wanted+=" $test" ;;
    *) echo "unknown group \"$group\": build or test" >&2; exit 2 ;;
  esac
done

missing=""
for package in $wanted; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=" $package"
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends"
if [ "$(id -u)" -ne 0 ]; then
  echo "These packages are missing. Install them, then run this again:" >&2
  echo "  sudo $install$missing" >&2
  exit 7
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
# One unknown name, and apt-get would install nothing: other distributions have other names and versions.
known="" unknown=""
for package in $missing; do
  if apt-cache show "$package" >/dev/null 2>&1; then known+=" $package"; else unknown+=" $package"; fi
done
[ -z "$unknown" ] || echo "unknown to apt here, and left out; install what corresponds to them:$unknown" >&2
[ -n "$known" ] || exit 0
echo "installing:$known"
$install$known >/dev/null

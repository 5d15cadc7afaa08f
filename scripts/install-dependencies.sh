#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that are missing (Debian 12 and relatives). As root it installs them; as anybody else it prints
# the command and stops. Usage: scripts/install-dependencies.sh [build] [test]
# Open MPI is what most clusters have; a build without libopenmpi-dev works, for one process or under MPICH.
set -euo pipefail

build="gcc cmake ninja-build pkg-config libopenmpi-dev openmpi-bin libdnnl-dev libyaml-dev libjansson-dev libxxhash-dev libsodium-dev"
test="ccache clang clang-format libclang-rt-14-dev libcmocka-dev libmpich-dev mpich python3 python3-venv procps iproute2 g++ git man-db bash-completion dpkg-dev file lintian qemu-user openssh-server openssh-client"

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

command="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" -ne 0 ]; then
  echo "These packages are missing. Install them, then run this again:" >&2
  echo "  sudo $command" >&2
  exit 7
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
$command >/dev/null

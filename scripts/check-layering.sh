#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Dependencies point one way. Prints every include that does not, and exits with 1 when there is one.
# src/cli and the tests beside the units may include everything.
set -u
cd "$(dirname "$0")/.." || exit 2
status=0

violation() {
    echo "$1"
    status=1
}

# folder -> folders it may include, beside itself and the public header
declare -A below=(
    [base]=""
    [kernel]="base"
    [tensor]="base"
    [codec]="base kernel"
    [adapt]="base kernel codec"
    [topo]="base"
    [comm]="base"
    [exchange]="base kernel tensor codec adapt topo comm"
    [optim]="base kernel tensor"
    [strategy]="base kernel tensor codec adapt topo comm exchange optim"
    [model]="base kernel tensor optim"
    [data]="base"
    [ckpt]="base kernel tensor comm model"
    [settings]="base kernel tensor codec adapt topo comm exchange optim strategy model"
    [driver]="base kernel tensor codec adapt topo comm exchange optim strategy model settings ckpt"
    [cluster]="base kernel codec topo comm exchange"
    [plan]="base tensor codec topo exchange optim strategy model cluster"
    [advise]="base tensor codec topo optim strategy model settings cluster plan"
    [report]="base comm"
    [train]="base kernel tensor codec adapt topo comm exchange optim strategy model settings driver data ckpt report"
    [api]="base kernel tensor codec adapt topo comm exchange optim strategy model settings driver ckpt"
    [bench]="base kernel tensor codec adapt topo comm exchange optim strategy model settings driver"
)

while IFS=: read -r file line text; do
    folder=${file#src/} folder=${folder%%/*}
    included=${text#*\"} included=${included%%/*}
    [[ $folder == cli || ${file##*/} == test_* || $included == tacit || $included == "$folder" ]] && continue
    if [[ -z ${below[$folder]+known} ]]; then
        violation "$file:$line: the folder src/$folder is not in the order of scripts/check-layering.sh"
    elif [[ " ${below[$folder]} " != *" $included "* ]]; then
        violation "$file:$line: $folder/ must not know $included/"
    fi
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"[a-z0-9_]+/' src --include='*.[ch]')

# An include without a folder hides where it points.
while IFS=: read -r file line _; do
    violation "$file:$line: write the folder: #include \"folder/file.h\""
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"[^"/]+"' src --include='*.[ch]')

while IFS=: read -r file line _; do
    case $file in
    src/comm/engine_mpi.c | include/tacit/tacit_mpi.h) ;;
    *) violation "$file:$line: <mpi.h> belongs to src/comm/engine_mpi.c and include/tacit/tacit_mpi.h" ;;
    esac
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]mpi\.h' src include --include='*.[ch]')

while IFS=: read -r file line _; do
    case $file in
    src/kernel/* | src/model/*) ;;
    *) violation "$file:$line: intrinsics belong to kernel/ and model/" ;;
    esac
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<([a-z0-9]*intrin|arm_neon|arm_sve)\.h>' src include --include='*.[ch]')

# The library prints nothing: what the program shows goes through the streams that it opens here.
while IFS=: read -r file line _; do
    case $file in
    src/cli/* | src/bench/* | src/train/train.c | src/comm/supervise.c | src/base/signals.c | */test_*) ;;
    *) violation "$file:$line: standard streams belong to cli/ and to the program's own files" ;;
    esac
done < <(grep -rnE '\b(stdout|stderr|STDOUT_FILENO|STDERR_FILENO)\b|\bprintf\(' src --include='*.[ch]')

# An attribute that begins with an underscore is torch's, unless it is of an object of this package.
while IFS=: read -r file line text; do
    [[ $file == */_private.py ]] || violation "$file:$line: $text is private, or undocumented, in torch: it belongs to torch/_private.py"
done < <(grep -rnoE "[])A-Za-z0-9_]+\._[a-z]\w*|parameters_to_ignore" python/tacit/torch --include='*.py' |
    grep -vE ':(self|model|comm|_default|_owner)\._')

# The public header stands alone.
while IFS=: read -r file line text; do
    [[ $text == *'"tacit/'* ]] || violation "$file:$line: a public header includes only tacit/ and the system's headers"
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' include --include='*.h')

exit $status

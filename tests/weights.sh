#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# import and export: every way from format to format and back gives the same bytes, bad requests say what is wrong.
# Usage: weights.sh [PROGRAM [WEIGHTS]]     (WEIGHTS: tests/parity/weights)
set -eu
. "$(dirname "$0")/check.sh"
find_program "${1:-}"
weights=$(realpath "${2:-$(dirname "$0")/parity/weights}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# refuse CODE TEXT ARGUMENT...: must end with this exit code and name the reason.
refuse() {
    local code=$1 text=$2 got=0
    shift 2
    "$tacit" "$@" > refused 2>&1 || got=$?
    [ "$got" = "$code" ] || { echo "tacit $*: exit code $got, expected $code"; cat refused; exit 1; }
    grep -qF -- "$text" refused || { echo "tacit $*: does not say: $text"; cat refused; exit 1; }
}

cp -r "$weights/hf" hf
echo '{}' > hf/vocab.json
echo '#version: 0.2' > hf/merges.txt
"$tacit" import hf -o from-hf > /dev/null
"$tacit" import "$weights/f32.bin" -o from-f32 > /dev/null
"$tacit" import "$weights/bf16.bin" -o from-bf16 --json | grep -q '"parameters": 2344'

# The three files hold the same numbers, so whatever was read gives the same llm.c files ...
for run in from-hf from-f32 from-bf16; do
    "$tacit" export $run -o $run.bin > /dev/null
    cmp $run.bin "$weights/f32.bin"
    "$tacit" export $run -o $run-16.bin --dtype bf16 --step 0 > /dev/null
    cmp $run-16.bin "$weights/bf16.bin"
    # ... and the same Hugging Face folders, in one file or in several.
    "$tacit" export $run -o $run-hf > /dev/null
    cmp $run-hf/model.safetensors from-hf-hf/model.safetensors
    cmp $run-hf/config.json from-hf-hf/config.json
    "$tacit" export $run -o $run-shards --shard-bytes 4kB > /dev/null
    [ -e $run-shards/model-00003-of-00003.safetensors ]
    "$tacit" export $run-shards -o $run-back.bin --format llmc > /dev/null
    cmp $run-back.bin "$weights/f32.bin"
done
cmp from-hf/vocab.json hf/vocab.json
cmp from-hf-hf/merges.txt hf/merges.txt
[ ! -e from-f32-hf/vocab.json ]

refuse 2 "holds checkpoints already" import hf -o from-hf
refuse 2 "is a run of tacit already" import from-hf -o other
refuse 2 "name what to read" import hf
refuse 2 "name what to read" export from-hf
refuse 7 "exists already" export from-hf -o from-hf-hf
refuse 3 "not one of" export from-hf -o other --dtype f16
refuse 4 "step_00000005" export from-hf -o other --step 5
refuse 4 "none: cannot open" import none -o other
mkdir empty
refuse 4 "is neither a run folder" import empty -o other
printf 'PK\003\004' > model.pt
refuse 4 "is a pickle" import model.pt -o other
head -c 2000 "$weights/f32.bin" > short.bin
refuse 4 "its header needs 12544 bytes, the file has 2000" import short.bin -o other
shard=from-f32/ckpt/step_00000000/rank-00000.safetensors
printf '\377' | dd of=$shard bs=1 seek=5000 conv=notrunc 2> /dev/null
refuse 4 "rank-00000.safetensors: damaged: XXH3-128 should be" export from-f32 -o other
[ ! -e other ]

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# import and export: every way from format to format and back gives the same bytes, bad requests say what is wrong.
# Usage: weights.sh [PROGRAM [WEIGHTS]]     (WEIGHTS: tests/parity/weights)
set -euo pipefail
. "$(dirname "$0")/check.sh"
find_program "${1:-}"
weights=$(realpath "${2:-$(dirname "$0")/parity/weights}")
root=$(cd "$(dirname "$0")/.." && pwd)
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

# prints TEXT ARGUMENT...: must end well and say this.
prints() {
    local text=$1
    shift
    "$tacit" "$@" > printed 2> /dev/null || { echo "tacit $*: exit code $?, expected 0"; exit 1; }
    grep -qF -- "$text" printed || { echo "tacit $*: does not say: $text"; cat printed; exit 1; }
}

cp -r "$weights/hf" hf
echo '{}' > hf/vocab.json
echo '#version: 0.2' > hf/merges.txt
"$tacit" import hf -o from-hf > /dev/null
"$tacit" import "$weights/f32.bin" -o from-f32 > /dev/null
prints '"parameters": 2344' import "$weights/bf16.bin" -o from-bf16 --json

# The three files hold the same numbers, so whatever was read gives the same llm.c files ...
for run in from-hf from-f32 from-bf16; do
    "$tacit" export $run -o $run.bin > /dev/null
    cmp $run.bin "$weights/f32.bin"
    "$tacit" export $run -o $run-16.bin --dtype bf16 --step 0 > /dev/null
    cmp $run-16.bin "$weights/bf16.bin"
    # ... and the same Hugging Face folders.
    "$tacit" export $run -o $run-hf > /dev/null
    cmp $run-hf/model.safetensors from-hf-hf/model.safetensors
    cmp $run-hf/config.json from-hf-hf/config.json
done
# Several files with an index, as other programs write large models, hold the same numbers.
cp -r from-hf-hf shards
python3 - shards << 'END'
import json, os, struct, sys
os.chdir(sys.argv[1])
raw = open("model.safetensors", "rb").read()
length = struct.unpack("<Q", raw[:8])[0]
header, data, files = json.loads(raw[8:8 + length]), raw[8 + length:], {}
header.pop("__metadata__", None)
for i, (name, entry) in enumerate(header.items()):
    first, end = entry["data_offsets"]
    text = json.dumps({name: entry | {"data_offsets": [0, end - first]}}).encode()
    text += b" " * (-len(text) % 8)
    files[name] = "model-%05d.safetensors" % i
    open(files[name], "wb").write(struct.pack("<Q", len(text)) + text + data[first:end])
json.dump({"metadata": {}, "weight_map": files}, open("model.safetensors.index.json", "w"))
os.remove("model.safetensors")
END
"$tacit" export shards -o shards.bin --format llmc > /dev/null
cmp shards.bin "$weights/f32.bin"
refuse 2 'unknown option "--shard-bytes"' export from-hf -o other --shard-bytes 4kB
cmp from-hf/vocab.json hf/vocab.json
cmp from-hf-hf/merges.txt hf/merges.txt
[ ! -e from-f32-hf/vocab.json ]

refuse 3 "holds checkpoints already" import hf -o from-hf
refuse 3 "is a run of tacit already" import from-hf -o other
refuse 2 "name what to read" import hf
refuse 2 "name what to read" export from-hf
refuse 3 "exists already" export from-hf -o from-hf-hf
mkdir owned # a tokenizer that is there stays, and goes with the same one alone
echo mine > owned/merges.txt
refuse 3 "owned/merges.txt: exists already" export from-hf -o owned
refuse 3 "owned/merges.txt: exists already" import hf -o owned
[ "$(ls owned) $(cat owned/merges.txt)" = "merges.txt mine" ]
cp hf/merges.txt owned
"$tacit" export from-hf -o owned > /dev/null
cmp owned/vocab.json hf/vocab.json
refuse 3 "did you mean" export from-hf -o other --dtype f16
refuse 4 "step_00000005" export from-hf -o other --step 5
refuse 3 "--step: -1 is below 0" export from-hf -o other --step -1
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

# Training takes shape and tokenizer from --train.init, and refuses what contradicts it.
says() { # says CODE TEXT FLAG...: what a dry run of training says
    local code=$1 text=$2 got=0
    shift 2
    "$tacit" train --dry-run "$@" > said 2>&1 || got=$?
    [ "$got" = "$code" ] || { echo "tacit train $*: exit code $got, expected $code"; cat said; exit 1; }
    grep -qE -- "$text" said || { echo "tacit train $*: does not say: $text"; cat said; exit 1; }
}
quiet=(--run.quiet --run.tensorboard false --train.batch 3)
shape=(--model.layers 3 --model.heads 1 --model.channels 41 --model.context 17 --model.tied false)
python3 - << 'END' # 256 bytes as GPT-2 writes them, one merge, and a text
import json
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
names = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in plain)}
json.dump({names[b]: b for b in range(256)} | {"th": 256}, open("vocab.json", "w"))
open("merges.txt", "w").write("#version: 0.2\nt h\n")
open("text", "w").write("the other three then thought that this is the path\n" * 60)
END
"$tacit" train "${quiet[@]}" "${shape[@]}" --data.train text --data.vocab vocab.json --train.steps 2 --run.dir first > /dev/null 2>&1
"$tacit" export first -o hf-bpe > /dev/null
"$tacit" import hf-bpe -o base > /dev/null
"$tacit" train "${quiet[@]}" --train.init base --data.train text --train.steps 2 --run.dir tuned > /dev/null 2>&1
"$tacit" export tuned -o out > /dev/null
cmp out/config.json hf-bpe/config.json
cmp out/merges.txt merges.txt
cmp out/vocab.json vocab.json
if cmp -s out/model.safetensors hf-bpe/model.safetensors; then echo "nothing was trained"; exit 1; fi
says 0 '3 layers, 1 heads, 41 channels, vocabulary 257, context 17' --train.init hf-bpe --data.train text
says 3 'made with --model.channels 41, the run is configured with 42' --train.init base --model.channels 42
says 3 'made with --model.tied false, the run is configured with true' --train.init base --model.tied true
if "$tacit" export base -o base > said 2>&1; then echo "exported into itself"; exit 1; fi
grep -q 'base is the folder that is exported: give another, such as -o base/hf' said
says 3 'made with --model.layers 3, the run is configured with 4' --train.init base --model.preset byte-2m
says 2 '--run.dir tuned --resume goes on with that run' tuned --resume
# A run goes on without the weights that it began from; the folder of a tokenizer keeps its two files.
"$tacit" train "${quiet[@]}" "${shape[@]}" --data.train text --train.steps 1 --run.dir bytes-base > /dev/null 2>&1
for from in base bytes-base; do
    "$tacit" train "${quiet[@]}" --train.init $from --data.train text --train.steps 2 --run.dir on-$from > on 2>&1
    if [ $from = base ]; then rm -r base/ckpt; else rm -r $from; fi
    "$tacit" train "${quiet[@]}" --train.init $from --data.train text --train.steps 3 --run.dir on-$from --resume > on 2>&1 || { cat on; exit 1; }
    if grep -qE 'error|warning' on; then cat on; exit 1; fi
    [ -d on-$from/ckpt/step_00000003 ]
done
# A large vocabulary needs its tokenizer; without other weights it is kept, with a warning.
"$tacit" train "${quiet[@]}" "${shape[@]}" --data.train text --model.vocabulary 5000 --train.steps 1 --run.dir many > /dev/null 2>&1
"$tacit" export many -o hf-many > /dev/null
cp vocab.json hf-many
says 3 'a model of 5000 tokens, but the data .*is read as 256 tokens.*--data.vocab vocab.json with merges.txt beside it' --train.init hf-many --data.train text
"$tacit" train "$root/examples/gpt2-124m.yaml" --dry-run > said 2>&1 || true # whether it fits or not
grep -q 'warning: the model has 50257 tokens' said
grep -q '124.44 M parameters: .*vocabulary 50257' said

# Weights of another program have no step.
prints '"step": null' eval hf-bpe --data.train text --json
prints '"step": 2' eval tuned --data.train text --json
prints '"step": null' sample hf-bpe --prompt the --tokens 1 --json
prints loss eval hf-bpe --data.train text
if grep step printed; then echo "a step of foreign weights"; exit 1; fi

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/plan.sh [PROGRAM]: tacit plan on the examples: verdicts, refusals, JSON and pictures.
set -uo pipefail
. "$(dirname "$0")/check.sh"
find_program "${1:-}"
examples=$(realpath "$(dirname "$0")/../examples")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
complain() {
    echo "plan: $1"
    failed=1
}
expect() { # expect CODE TEXT ARGUMENTS ... : the exit code, and TEXT somewhere in the output
    local code=$1 text=$2 got
    shift 2
    "$tacit" plan "$@" > out 2>&1 < /dev/null
    got=$?
    [[ $got == "$code" ]] || complain "'$*' ended with $got instead of $code: $(head -3 out)"
    grep -qF -- "$text" out || complain "'$*' did not say '$text' but: $(tail -3 out)"
}
gpt=$examples/gpt2-124m.yaml
ethernet=$examples/clusters/8x4-25gbe.json
fast=$examples/clusters/2x8-200gbit.json
mixes="--gossip.start 0 --gossip.denoise 0" # nothing but mixes

expect 0 "gossip pays: " "$gpt" --cluster "$examples/clusters/4x2-1gbe.json"
expect 0 "gossip does not pay: " "$gpt" --cluster "$fast"
grep -q "^keep all-reduce, bf16: --strategy dp --exchange.wire bf16$" out || complain "nothing says what to keep: $(cat out)"
sed 's/"compute":/"collectives": [{"collective": "all_reduce", "group": "world", "by": "nccl", "bytes": 16777216, "seconds": 3e-4}], "compute":/' "$fast" > theirs.json
expect 0 "keep dense nccl f32 (another library's; tacit's own: --strategy dp)" "$gpt" --cluster theirs.json
expect 0 "keep all-reduce, bf16: --strategy dp --exchange.wire bf16 --compress.codec none" "$gpt" --cluster "$fast" --compress.codec int4
expect 0 "* all-reduce, f32 " "$gpt" --cluster "$fast" --compress.codec f32
grep -q "^\* all-reduce, f32 .*lossy" out && complain "a lossless codec is called lossy"

# training takes what a verdict says to type, whatever is configured
for words in "--compress.codec int4" "--compress.codec auto" "--compress.codec int4 --adapt.policy payoff" "--strategy shard --compress.codec int4 --compress.gather int8"; do
    # shellcheck disable=SC2086
    expect 0 "--strategy gossip --gossip.topology aer --gossip.order awc" "$gpt" --cluster "$examples/clusters/4x2-1gbe.json" $words
    flags=$(sed -n '1s/^gossip pays: .*): //p' out)
    # shellcheck disable=SC2086
    "$tacit" train "$examples/shakespeare.yaml" --dry-run $words $flags > trained 2>&1 < /dev/null || complain "train refuses $words $flags: $(cat trained)"
done

# the options of gossip that are configured and that the best row does not have are taken back; those that it has are named
takes_back() { # takes_back FLAGS ARGUMENTS ...: the verdict on gossip ends with FLAGS, and training takes it
    local wanted=$1 flags
    shift
    "$tacit" plan "$gpt" --cluster mixes.json "$@" > out 2>&1
    flags=$(sed -n '1s/^gossip pays: .*): //p' out)
    [[ " $flags " == *" $wanted "* ]] || complain "plan $*: '$wanted' is not in '$flags': $(head -3 out)"
    # shellcheck disable=SC2086
    "$tacit" train "$examples/shakespeare.yaml" --dry-run "$@" $flags > trained 2>&1 < /dev/null || complain "train refuses $* $flags: $(cat trained)"
}
python3 - "$ethernet" << 'PYTHON'
import json, sys
cluster = json.load(open(sys.argv[1]))
cluster["links"] = {"between": {"latency_us": 25, "gbit_per_s": 0.5}, "inside": {"latency_us": 1, "gbit_per_s": 80}}
cluster.pop("collectives", None)
json.dump(cluster, open("mixes.json", "w"))
PYTHON
takes_back "--gossip.codec none" --gossip.codec int4
grep -q "^note .* does not tell how fast int4 is" out && complain "a method that is not configured has a note"
takes_back "--gossip.codec none" --strategy gossip --gossip.codec int4
grep -q "^\\* gossip, .*, int4 .*, speed of the codec unknown" out || complain "nothing marks mixes of unknown speed: $(cat out)"
grep -q "^note .* does not tell how fast int4 is" out || complain "nothing tells that the speed of int4 is unknown"
takes_back "--compress.codec none" --strategy gossip --compress.codec auto # which is int4 for mixes
takes_back "--gossip.degree 0" --gossip.topology torus --gossip.degree 4 --gossip.order atc
expect 0 "speed of the codec unknown" "$gpt" --cluster mixes.json --strategy gossip --gossip.codec int4
sed 's/"format"/"compression": [{"codec": "int4", "factor": 1, "encode_ns": 0.7, "decode_ns": 0.2, "add_ns": 0.2, "bytes": 0.53}], "format"/' mixes.json > told.json
mv told.json mixes.json
takes_back "--gossip.codec int4" --strategy gossip --gossip.codec int4
grep -q "exchange.wire int4" out && complain "int4 is offered as a wire: $(head -1 out)"

expect 0 "does not pay: keep dense" "$gpt" --cluster "$fast" --all
expect 0 "* shard 3 int4, gather f32 " "$gpt" --cluster "$ethernet" --strategy shard --compress.codec int4 --all
expect 0 "* shard 2 topk 20, gather int8 " "$gpt" --cluster "$ethernet" --strategy shard --shard.stage 2 --compress.codec topk --compress.factor 20 --compress.gather int8 --all
expect 0 "* shard 2 topk 20, gather topk 5 " "$gpt" --cluster "$ethernet" --strategy shard --shard.stage 2 --compress.codec topk --compress.factor 20 --compress.gather topk --compress.back 5 --all
expect 0 "* shard 3 f32, gather int8 " "$gpt" --cluster "$ethernet" --strategy shard --compress.gather int8 --all
expect 0 "* shard 1 auto int4, gather int4 " "$gpt" --cluster "$ethernet" --strategy shard --shard.stage 1 --compress.codec auto --all
expect 0 "* shard 3 over host f32 " "$gpt" --cluster "$ethernet" --strategy shard --shard.over host --all
expect 0 "* shard 2 over host auto int4 " "$gpt" --cluster "$ethernet" --strategy shard --shard.over host --shard.stage 2 --compress.codec auto --all
expect 0 "* shard 3 secondary gather bf16 f32 " "$gpt" --cluster "$ethernet" --strategy shard --shard.secondary --shard.gather bf16 --all
expect 0 "* shard 3 over host f32 " "$gpt" --cluster "$ethernet" -n 6 --strategy shard --shard.over host --all # hosts of 4 and 2 ranks
expect 3 "shard.over host has no effect on a single host" "$gpt" --cluster "$ethernet" --hosts 1 --strategy shard --shard.over host
expect 3 "exchange.scheme flat: shard.over host divides by hosts" "$gpt" --cluster "$ethernet" --strategy shard --shard.over host --exchange.scheme flat
expect 0 "* dense auto int4 " "$gpt" --cluster "$ethernet" --compress.codec auto --all
grep -q "auto topk" out && complain "auto may cost 0.5 %, and topk 5 has cost more: $(grep "auto topk" out)"
expect 0 "* dense auto topk 5 " "$gpt" --cluster "$ethernet" --compress.codec auto --compress.loss 4 --all
expect 0 "compress.layers mlp,embedding: 49 of 148 tensors with 76.6 % of the parameters are compressed" "$gpt" --cluster "$ethernet" --compress.codec int4 --compress.layers mlp,embedding
expect 0 "tell no class (the first is classifier.6.bias): they are" "$gpt" --cluster "$ethernet" --compress.codec int4 --compress.layers all,-norm --compute.emulate vgg-16
expect 3 "compress.layers head leaves nothing to compress" "$gpt" --cluster "$ethernet" --compress.codec int4 --compress.layers head
expect 0 "caution     shard 3 int4, gather int4: gathers in int4 round parameters" "$gpt" --cluster "$ethernet" --strategy shard --compress.codec int4 --compress.gather int4
expect 0 "nothing tells how long sketches (tagc) take" "$gpt" --cluster "$ethernet" --strategy shard --compress.codec tagc
expect 0 "nothing tells how long sketches (sketch) take" "$gpt" --cluster "$ethernet" --compress.codec sketch
expect 3 "adds payloads up on all ranks" "$gpt" --cluster "$ethernet" --strategy shard --compress.codec powersgd
expect 3 "none of which may be left out" "$gpt" --cluster "$ethernet" --strategy shard --compress.gather topk
expect 0 "gossip does not pay: one rank has nobody" "$gpt" --cluster "$ethernet" -n 1
expect 0 "does not pay" "$gpt" --cluster "$ethernet" --hosts 1 --no-jitter --compute.rate 1e12
expect 0 "cv 0.0 %" "$gpt" --cluster "$ethernet" --no-jitter --all
expect 0 "cv 0.0 %" "$gpt" --cluster "$ethernet" --no-jitter --compute.cv 0.1 --all
expect 0 "* gossip aer atc bf16" "$gpt" --cluster "$ethernet" --strategy gossip --gossip.topology aer --gossip.order atc --exchange.wire bf16 --all
# --all has every wire.
dense_rows() { "$tacit" plan "$gpt" --cluster "$ethernet" "$@" | grep -vE ' [cC]\??$' | grep -cE '^[* ] dense [a-z0-9]+   '; }
wires=$("$tacit" info options --json | python3 -c "
import json, sys
print(next(len(o['choices']) for o in json.load(sys.stdin) if o['key'] == 'exchange.wire'))")
[[ $(dense_rows --all) == "$wires" ]] || complain "--all has $(dense_rows --all) rows for $wires wires"
expect 0 "the plan is the profile's" "$gpt" --cluster "$ethernet" --compute.emulate vgg-16
printf 'model: {layers: 2}\n' > layers.yaml
"$tacit" plan layers.yaml --cluster "$ethernet" --compute.emulate vgg-16 2>&1 | grep "error:" && complain "sizes that the data give are an error"

# a thousand ranks, 64 thousand million parameters: seconds of a processor, not minutes
printf 'model: {layers: 80, channels: 8192, heads: 64, context: 1024, vocabulary: 50304}\ntrain: {batch: 2000}\ncompute: {rate: 300e12}\n' > large.yaml
(
    ulimit -t 25
    "$tacit" plan large.yaml --cluster "$examples/clusters/125x8.json" --json > large.json 2> err
) || complain "1000 ranks and 64 G parameters: $(cat err)"

# the profile is that beside the file that names it, wherever the planner runs
mkdir -p away/profiles
cp "$examples/profiles/transformer-base-t4.json" away/profiles
printf 'compute: {emulate: profiles/transformer-base-t4.json}\n' > away/t4.yaml
expect 0 "all-reduce, bf16" away/t4.yaml --cluster "$ethernet"
printf 'compute: {emulate: away/profiles/transformer-base-t4.json}\n' > away/here.yaml
expect 0 "all-reduce, bf16" away/here.yaml --cluster "$ethernet" # or else from here
mkdir away/gpt2-124m
printf 'compute: {emulate: gpt2-124m}\n' > away/preset.yaml
expect 0 "all-reduce, bf16" away/preset.yaml --cluster "$ethernet" # a folder is no profile

# refusals say what to type
expect 2 "plan needs one MODEL.yaml"
expect 2 "tacit probe -o cluster.json" "$gpt"
expect 3 "--compute.rate" "$examples/shakespeare.yaml" --cluster "$ethernet"
expect 2 "not both" "$gpt" --cluster "$ethernet" -n 4 --hosts 2
expect 3 "whole number" "$gpt" --cluster "$ethernet" -n 0
expect 0 "* gossip aer awc f32" "$gpt" --cluster "$ethernet" --strategy gossip --gossip.tracker --all
expect 0 "* gossip aer async f32" "$gpt" --cluster "$ethernet" --strategy gossip --gossip.async --all
expect 0 "--strategy gossip --gossip.topology torus --gossip.async" "$gpt" --cluster "$ethernet" --gossip.async --compute.slow 1:5
expect 3 "gossip.codec powergossip sends something else" "$gpt" --cluster "$ethernet" --gossip.codec powergossip
expect 3 "at most 16384 of them: choose a smaller gossip.every" "$gpt" --cluster "$ethernet" --gossip.every 16385
expect 3 "at most 16384 of them: choose a smaller localsgd.every" "$gpt" --cluster "$ethernet" --localsgd.every 1000000000
expect 0 "exp repeats after 5 x 4000 steps" "$gpt" --cluster "$ethernet" --gossip.every 4000 --all
expect 3 'did you mean "gpt2-124m"' "$gpt" --cluster "$ethernet" --compute.emulate gpt2-124

# what training refuses, in the same words
while read -r words; do
    # shellcheck disable=SC2086
    "$tacit" train "$examples/shakespeare.yaml" --dry-run $words > out 2> train.err < /dev/null
    [[ $? == 3 && $(wc -l < train.err) == 1 ]] || complain "train $words is not refused once: $(head -3 train.err)"
    # shellcheck disable=SC2086
    "$tacit" plan "$gpt" --cluster "$ethernet" $words > out 2> plan.err < /dev/null
    [[ $? == 3 ]] && cmp -s train.err plan.err || complain "plan $words: $(head -3 plan.err); train: $(cat train.err)"
done << 'WORDS'
--strategy gossip --compress.codec int4
--strategy gossip --gossip.delay 1 --gossip.order atc
--strategy localsgd --compress.codec onebit --compress.what momentum --optim.freeze 5
--strategy localsgd --compress.codec signsgd --compress.feedback 0
--strategy shard --exchange.lanes 2
--strategy shard --compress.codec topk --compress.what change
--compress.codec topk --compress.start 100
WORDS

# what cannot be is refused, with the field, the value and what can be
damaged() { # damaged CODE TEXT SED [ARGUMENTS]: the example's cluster file, changed
    local code=$1 text=$2
    sed "$3" "$ethernet" > damaged.json
    cmp -s damaged.json "$ethernet" && complain "sed $3 changes nothing"
    shift 3
    expect "$code" "$text" "$gpt" --cluster damaged.json "$@"
}
damaged 3 "compute.cv is 1e+06, expected 0 to 2" 's/"cv": 0.03/"cv": 1e6/'
# shellcheck disable=SC2086
damaged 0 "pays: " 's/"cv": 0.03/"cv": 1e6/' --no-jitter $mixes
damaged 0 "no verdict on gossip: compute.cv 90 % is that of a busy machine; with it " 's/"cv": 0.03/"cv": 0.9/'
damaged 0 "no verdict on gossip: compute.cv 31 % is that of a busy machine; with it " 's/"cv": 0.03/"cv": 0.31/' --hosts 3
grep -q "takes as long within" out && complain "a busy machine recommends sparser gossip: $(head -2 out)"
damaged 0 "no verdict: compute.cv 90 % is that of a busy machine. With it: pays: " 's/"cv": 0.03/"cv": 0.9/' --all
grep -q "Without jitter: .* with gossip\|Without jitter: .* would be" out || complain "nothing tells the verdict without jitter"
# it is planned without jitter first, of which nothing stays
sed 's/"cv": 0.03/"cv": 0.4/' "$ethernet" > busy.json
"$tacit" plan "$gpt" --cluster busy.json --json > busy-plan.json && "$tacit" plan "$gpt" --cluster "$ethernet" --compute.cv 0.4 --json > asked-plan.json
python3 -c 'import json; assert json.load(open("busy-plan.json"))["methods"] == json.load(open("asked-plan.json"))["methods"]' 2> out ||
  complain "methods on a busy machine are not those of its compute.cv: $(tail -1 out)"
damaged 0 "gossip does not pay: one rank has nobody" 's/"cv": 0.03/"cv": 0.9/' -n 1
damaged 3 "links.host_gbit_per_s is 99999, but links.between.gbit_per_s 24.7" 's/"host_gbit_per_s": 24.7/"host_gbit_per_s": 99999/'
damaged 3 "links.host_gbit_per_s is 0.000247, but" 's/"host_gbit_per_s": 24.7/"host_gbit_per_s": 0.000247/'
damaged 3 "links.incast_gbit_per_s is 1e-06, but" 's/"duplex_gbit/"incast_gbit_per_s": 1e-6, "duplex_gbit/'
damaged 3 "collectives[0].seconds is 1e-09, but with these links 16777216 bytes take 0.00" \
    's/"compute":/"collectives": [{"collective": "all_reduce", "group": "world", "by": "tacit", "bytes": 16777216, "seconds": 1e-9}], "compute":/'
damaged 3 'after the key "latency_us"' 's/"latency_us": 25,/"latency_us": NaN,/'
damaged 3 'after the key "latency_us"' 's/"latency_us": 25,/"latency_us": 1e400,/'
expect 0 "train.batch 8 is smaller than the 32 ranks" "$gpt" --cluster "$ethernet" --train.batch 8
expect 3 "--hosts 1600: so many hosts like those of" "$gpt" --cluster "$ethernet" --hosts 1600
expect 2 "describes a cluster and stands where MODEL.yaml does" "$gpt" --cluster "$examples"/clusters/*.json
printf '{"format": "tacit-profile-1", "name": "idle", "unit": "seconds", "layers": [{"name": "l", "forward_s": 0, "backward_s": 0, "tensors": [{"name": "w", "shape": [64]}]}]}' > idle.json
expect 3 "forward_s and backward_s are 0 in all layers" "$gpt" --cluster "$ethernet" --compute.emulate idle.json

# recommended is what mixes fast enough, against dense at its best
# shellcheck disable=SC2086
expect 0 "with gossip aer awc bf16 instead of dense bf16, 8 lanes" "$gpt" --cluster "$examples/clusters/125x8.json" --all $mixes
grep -q "one-peer-ring awc bf16 .* 1e-05 .* m w" out || complain "nothing says that one-peer-ring mixes slowly"
# shellcheck disable=SC2086
expect 0 "with gossip complete awc f32 instead of dense bf16, 2 lanes (aer within 1 % with 3.5 times fewer bytes)" "$gpt" --cluster "$ethernet" --all $mixes
grep -q "speed-up: against dense bf16, 2 lanes, the fastest dense all-reduce" out || complain "nothing names what speed-ups compare with"

# the short answer: verdicts first, then at most ten rows, in words
# shellcheck disable=SC2086
expect 0 "gossip aer takes as long within 1 % and sends 3.5 times less, but mixes more slowly than complete" "$gpt" --cluster "$ethernet" $mixes
head -1 out | grep -q "^gossip pays: 1.21 times the speed of the fastest all-reduce (1.08-1.34): --strategy gossip --gossip.topology complete --gossip.order awc$" ||
    complain "the answer does not begin with the verdict: $(head -1 out)"
rows=$(grep -c "x (" out) # each with a range
((rows >= 5 && rows <= 10)) || complain "the short answer has $rows rows"
grep -q "^\* all-reduce, f32 " out || complain "the configured method has no row"
grep -qE "lane|consensus| H | awc | atc " <(tail -n +2 out) && complain "words that nobody knows: $(grep -E "lane|consensus| H | awc | atc " out)"
for kind in "all-reduce" "gossip" "localsgd" "shard"; do grep -q "^[* ] $kind, " out || complain "no row for $kind"; done
sed 's/"gbit_per_s": 24.7/"gbit_per_s": 1/; /host_gbit_per_s/d; s/"duplex_gbit_per_s": 24.7/"duplex_gbit_per_s": 1/' "$ethernet" > slow.json
expect 0 "but not recommended: ranks go 16 steps alone, and what that costs the loss is not predicted" "$gpt" --cluster slow.json

# what training refuses, planning refuses with the same sentence
printf '0,1\n1,0.5\n' > wrong.csv
for setting in "--gossip.topology exq" "--gossip.topology file" "--gossip.topology file --gossip.file wrong.csv" \
    "--gossip.delay 1" "--gossip.order atc --gossip.delay 1 --gossip.gamma 0.5" "--gossip.topology torus --gossip.degree 3" "--strategy gosip"; do
    # shellcheck disable=SC2086
    "$tacit" train "$examples/demo.yaml" --dry-run --strategy gossip $setting > trained 2>&1 && complain "train accepts $setting"
    # shellcheck disable=SC2086
    "$tacit" plan "$gpt" --cluster "$ethernet" -n 1 --strategy gossip $setting > planned 2>&1 && complain "plan accepts $setting"
    cmp -s <(grep error: trained) <(grep error: planned) || complain "$setting: $(cat trained planned)"
done

# compression: a slow link pays for it, a fast one does not; what a codec costs is told, and what is unknown is not recommended
grow() { # grow GBIT: the cluster with that rate, and the speed of topk
    python3 - "$ethernet" "$1" << 'PYTHON'
import json, sys
c = json.load(open(sys.argv[1]))
c["links"] = {"between": {"latency_us": 25, "gbit_per_s": float(sys.argv[2])}, "inside": {"latency_us": 1, "gbit_per_s": 80}}
c.pop("collectives", None)
c["compression"] = [{"codec": "topk", "factor": f, "encode_ns": e, "decode_ns": d, "add_ns": a, "bytes": b}
                    for f, e, d, a, b in ((10, 1.0, 0.31, 0.27, 0.46), (100, 0.5, 0.07, 0.03, 0.05), (1000, 0.4, 0.04, 0.003, 0.0055))]
json.dump(c, open("grown.json", "w"))
PYTHON
}
grow 0.1
expect 0 "compression pays: " "$gpt" --cluster grown.json
grep -q "^compression pays: .*: --strategy dp --compress.codec topk --compress.factor 100$" out || complain "the verdict on compression: $(head -2 out)"
expect 0 "caution     dense topk 100: 1 of 100 elements" "$gpt" --cluster grown.json
expect 0 "compression pays: " "$gpt" --cluster grown.json --all
grep -q "^compression pays: .* with dense topk 100 instead of dense .*; 1 of 100 elements" out || complain "the verdict on compression: $(tail -1 out)"
expect 0 "* dense topk 100" "$gpt" --cluster grown.json --compress.codec topk --compress.factor 100 --all
expect 0 "caution     dense topk 1000: 1 of 1000 elements" "$gpt" --cluster grown.json --compress.codec topk --compress.factor 1000
expect 0 "the cluster file does not tell how fast int8 is" "$gpt" --cluster grown.json --compress.codec int8
expect 0 "--strategy dp --compress.codec topk --compress.factor 100 --adapt.policy fixed" "$gpt" --cluster grown.json --compress.codec auto --adapt.policy payoff
expect 0 "* all-reduce, topk where it pays, 1 of 20 elements" "$gpt" --cluster grown.json --compress.codec topk --compress.factor 20 --adapt.policy payoff
sed 's/"cv": 0.03/"cv": 0.9/' grown.json > busy.json
expect 0 "no verdict on compression: compute.cv 90 % is that of a busy machine; with it " "$gpt" --cluster busy.json
grep -q " pays: \| takes as long within " out && complain "a busy machine gets a verdict: $(head -3 out)"
expect 0 "no verdict: compute.cv 90 % is that of a busy machine. With it: compression " "$gpt" --cluster busy.json --all
"$tacit" plan "$gpt" --cluster busy.json --json > busy-plan.json 2> err || complain "--json: $(cat err)"
python3 - << 'PYTHON' || complain "the JSON of a busy machine has a verdict"
import json
plan = json.load(open("busy-plan.json"))
for verdict in plan["verdict"], plan["compression"]:
    assert not verdict["pays"] and verdict["text"].startswith("no verdict: compute.cv 90 %"), verdict
PYTHON
expect 0 "--compress.factor 100 --compress.back 0" "$gpt" --cluster grown.json --compress.codec topk --compress.factor 10 --compress.back 10
grow 200
expect 0 "compression does not pay: " "$gpt" --cluster grown.json
expect 0 "compression does not pay: keep dense " "$gpt" --cluster grown.json --all

# the same bytes twice; curves, causes and every method
"$tacit" plan "$gpt" --cluster "$ethernet" --json --svg one.svg > one.json 2> err || complain "--json: $(cat err)"
"$tacit" plan "$gpt" --cluster "$ethernet" --json --svg two.svg > two.json 2> err
cmp -s one.json two.json && cmp -s one.svg two.svg || complain "two plans differ"
python3 - <<'PYTHON' || complain "the JSON or the picture is not what it should be"
import json, math, xml.dom.minidom
plan = json.load(open("one.json"))
methods = {m["label"]: m for m in plan["methods"]}
dense, half = methods["dense f32"], methods["dense bf16"]
assert dense["configured"] and dense["replicas_equal"]
assert math.isclose(dense["nic_bytes_per_step"], 2 * half["nic_bytes_per_step"], rel_tol=1e-6)
for m in plan["methods"]:
    s = m["seconds"]
    assert 0 < s["low"] <= s["step"] <= s["high"], m["label"]
    assert m["model_error"] == 0.1, m["label"]  # nothing was measured on this cluster
    assert math.isclose(s["compute"] + s["exposed"], s["step"], rel_tol=0.02), m["label"]
for name in ("complete", "exp", "aer", "ring"):
    for order in ("awc", "atc"):
        for wire in ("f32", "bf16"):
            assert f"gossip {name} {order} {wire}" in methods, (name, order, wire)
compressed = {m["label"]: m["compression"] for m in plan["methods"] if m["compression"]}
assert compressed["dense topk 1000"]["caution_level"] == "strong" and "accuracy" in compressed["dense topk 1000"]["caution"]
assert not compressed["dense topk 10"]["speed_known"] and plan["compression"] is None  # this cluster file tells no speed
verdict = plan["verdict"]
assert verdict["pays"] == (verdict["low"] > 1) and verdict["low"] <= verdict["speedup"] <= verdict["high"]
assert plan["by_rate"]["gbit_per_s"][0] == 0.1 and math.isclose(plan["by_rate"]["gbit_per_s"][-1], 100)
for line in plan["by_rate"]["lines"]:
    step = line["step_s"]
    assert all(a >= b for a, b in zip(step, step[1:])), line["label"]  # more bandwidth is never slower
xml.dom.minidom.parse("one.svg")
fastest = min(plan["methods"], key=lambda m: m["seconds"]["step"])["label"]
assert fastest in [line["label"] for line in plan["by_rate"]["lines"]], fastest
assert plan["verdict"]["dense"] in [line["label"] for line in plan["by_rate"]["lines"]]
PYTHON

# every picture of an example is drawn in full, and no text lies on another
for cluster in "$examples"/clusters/*.json; do
    expect 0 "drawn: drawn.svg" "$gpt" --cluster "$cluster" --svg drawn.svg
    python3 - << 'PYTHON' || complain "the picture of $cluster"
import re
picture = open("drawn.svg").read()
assert "null" not in picture and "nan" not in picture
lines = re.findall(r'<path class="line" d="[^"]*" stroke="([^"]*)" stroke-width="([^"]*)" stroke-dasharray="([^"]*)"', picture)
styles = set(lines)
assert all(all(style) for style in styles) and len(styles) >= len(lines) / 3, lines  # a style in the legend and each panel
texts = []
for x, y, anchor, text in re.findall(r'<text x="([0-9.]+)" y="([0-9.]+)" ([^>]*)>([^<]*)<', picture):
    width = 6.5 * len(text) * (1.4 if "bold" in anchor else 1)  # more than the font takes
    left = float(x) - (width if '"end"' in anchor else width / 2 if '"middle"' in anchor else 0)
    texts.append((left, left + width, float(y), text))
for i, a in enumerate(texts):
    for b in texts[:i]:
        assert a[1] <= b[0] or b[1] <= a[0] or abs(a[2] - b[2]) >= 13, (a, b)
PYTHON
done

# the arrangement without hosts has one lane, and lines of other libraries go on for other numbers of hosts
"$tacit" plan "$gpt" --cluster "$ethernet" --exchange.scheme flat --sgp 0 --json > flat.json 2> err || complain "flat: $(cat err)"
python3 - << 'PYTHON' || complain "rows or lines of the flat arrangement are not what they should be"
import json
plan = json.load(open("flat.json"))
assert not [m["label"] for m in plan["methods"] if "lane" in m["label"]]
lines = {line["label"]: line["step_s"] for line in plan["by_hosts"]["lines"]}
assert plan["verdict"]["dense"] in lines, lines
assert all(step for label in lines for step in lines[label]), lines
PYTHON

# the cluster itself is in the picture, and a small difference looks small
"$tacit" plan "$gpt" --cluster "$fast" --json --svg fast.svg > fast.json 2> err || complain "$fast: $(cat err)"
python3 - << 'PYTHON' || complain "the picture of a fast cluster misleads"
import json, re
plan, picture = json.load(open("fast.json")), open("fast.svg").read()
rates = plan["by_rate"]["gbit_per_s"]
assert rates[0] < plan["cluster"]["between_gbit_per_s"] < rates[-1], rates
assert "not in the picture" not in picture
for left in (62, 532):  # numbers left of each panel
    ticks = [float(t) for t in re.findall(rf'<text x="{left}.0"[^>]*>([0-9.e+]+)</text>', picture)]
    assert len(ticks) >= 2 and max(ticks) >= 1.9 * min(ticks), ticks
PYTHON

# the plan's own point of the picture is the plan's: 6 ranks, one of them slow; rates are those that transfers are predicted with
"$tacit" plan "$gpt" --cluster "$ethernet" -n 6 --compute.slow 5:1.5 --json > six.json 2> err || complain "-n 6: $(cat err)"
sed 's/"duplex_gbit_per_s": [0-9.]*/"duplex_gbit_per_s": 3/' "$ethernet" > duplex.json
expect 0 "on 32 ranks of 8 hosts with 3 Gbit/s each" "$gpt" --cluster duplex.json
python3 - << 'PYTHON' || complain "the plan's own point of the picture is not the plan's"
import json
plan = json.load(open("six.json"))
own = plan["by_hosts"]["hosts"].index(2)
assert plan["by_hosts"]["ranks"][own] == 6
methods = {m["label"]: m["seconds"]["step"] for m in plan["methods"]}
assert all(line["step_s"][own] == methods[line["label"]] for line in plan["by_hosts"]["lines"])
PYTHON

# without overlap every method waits for all of its transfers
"$tacit" plan "$gpt" --cluster "$ethernet" --no-jitter --no-exchange.overlap --json > blocking.json 2> err || complain "--no-exchange.overlap: $(cat err)"
python3 - << 'PYTHON' || complain "transfers are hidden although nothing overlaps"
import json, math
for m in json.load(open("blocking.json"))["methods"]:
    s = m["seconds"]
    if "NCCL" in m["label"] or m["strategy"] == "sgp":
        continue  # other libraries overlap whatever our options say
    if m["strategy"] == "shard":
        assert 0 < s["exposed"] <= s["transfer"] * 1.000001, m["label"]
        continue  # the next unit is gathered while one is used: only sums wait
    if m["mixing"] is None or m["mixing"]["topology"] == "complete":
        assert math.isclose(s["exposed"], s["transfer"], rel_tol=1e-6), m["label"]
    else:
        assert s["exposed"] > 0, m["label"]
PYTHON

# gossip's step is the mean over a run: of dense steps in int8, of mixes, and of signals in int8
for words in "$mixes" "--gossip.start 0.25 --gossip.denoise 0" "--gossip.start 0 --gossip.denoise 24"; do
    # shellcheck disable=SC2086
    "$tacit" plan "$gpt" --cluster "$ethernet" --no-jitter --compress.codec int8 --json $words || complain "$words"
done > runs.json 2> err
# shellcheck disable=SC2086
"$tacit" plan "$gpt" --cluster "$ethernet" --no-jitter --strategy gossip --gossip.codec int4 --json $mixes > int4.json
"$tacit" plan "$gpt" --cluster "$ethernet" --no-jitter --strategy gossip --gossip.codec int4 --gossip.start 0.25 --gossip.denoise 0 --json > int4_start.json
"$tacit" plan "$gpt" --cluster "$ethernet" --no-jitter --compress.codec int8 --json > int8.json
for words in "$mixes" "--gossip.start 0.25 --gossip.denoise 0"; do # where both have the same gossip in the picture
    # shellcheck disable=SC2086
    "$tacit" plan "$gpt" --cluster "$examples/clusters/4x2-1gbe.json" --no-jitter --json $words
done > slow.json
python3 - << 'PYTHON' || complain "the mean over a run is not what it should be"
import json, math
def read_all(path):
    text = open(path).read().lstrip()
    while text:
        plan, used = json.JSONDecoder().raw_decode(text)
        text = text[used:].lstrip()
        yield plan
of = lambda plan: {m["label"]: m for m in plan["methods"]}
plain, start, signals = map(of, read_all("runs.json"))
packed = of(json.load(open("int8.json")))
same = lambda a, b: math.isclose(a, b, rel_tol=1e-6)
def mean(key, run, mixes, dense):
    return same(run["seconds"][key], 0.75 * mixes["seconds"][key] + 0.25 * dense["seconds"][key])
waited = {}
for graph in ("aer", "exp", "complete", "ring"):
    for order in ("awc", "atc"):
        for wire in ("f32", "bf16"):
            label, dense = f"gossip {graph} {order} {wire}", packed["dense int8"]
            assert all(mean(key, start[label], plain[label], dense) for key in ("step", "compute", "exposed", "transfer")), label
            assert same(start[label]["nic_bytes_per_step"], 0.75 * plain[label]["nic_bytes_per_step"] + 0.25 * dense["nic_bytes_per_step"]), label
            more = 24 * (signals[label]["nic_bytes_per_step"] - plain[label]["nic_bytes_per_step"])
            assert math.isclose(more, packed["dense int8"]["nic_bytes_per_step"], rel_tol=1e-6), (label, more)
            mixes, signal = plain[label]["seconds"], packed["dense int8"]["seconds"]["transfer"]
            waited[label] = 24 * (signals[label]["seconds"]["step"] - mixes["step"])
            beside = max(mixes["step"] - mixes["transfer"], 0)  # what awc leaves free of the links
            assert order == "atc" or math.isclose(waited[label], max(signal - beside, 0), rel_tol=1e-4, abs_tol=1e-9), label
assert min(waited.values()) >= 0 and any(w > 0 for label, w in waited.items() if "awc" in label), waited
curves = [{line["label"]: line["step_s"] for line in plan["by_rate"]["lines"]} for plan in read_all("slow.json")]
shared = [label for label in curves[0] if label in curves[1] and label.startswith("gossip")]
assert shared and all(abs(a - b) > 1e-6 * a for label in shared for a, b in list(zip(curves[0][label], curves[1][label]))[:9]), shared  # slow links
int4, run = of(json.load(open("int4.json"))), of(json.load(open("int4_start.json")))
assert all(mean(key, run["gossip aer atc int4"], int4["gossip aer atc int4"], packed["dense int8"]) for key in ("step", "exposed"))
held = lambda methods, label: methods[label]["memory_bytes"]
assert held(run, "gossip aer atc int4") == held(int4, "gossip aer atc int4") + held(packed, "dense int8") - held(packed, "dense f32")
PYTHON

# what ranks hold in parts, where whole replicas do not fit
python3 - "$ethernet" << 'PYTHON'
import json, sys
cluster = json.load(open(sys.argv[1]))
cluster.setdefault("compute", {"cv": 0})["memory_gib"] = 2
json.dump(cluster, open("small.json", "w"))
PYTHON
expect 0 "a replica does not fit: " "$gpt" --cluster small.json --strategy shard
expect 0 "--strategy shard does: shard " "$gpt" --cluster small.json
expect 0 "methods do not fit: a rank has 537 MB (2 GiB of a host for 4 ranks)" "$gpt" --cluster small.json
grep -qE "^\* all-reduce, f32 .* does not fit into memory" out || complain "the configured method is not marked as too large"
grep -qE "^  .* does not fit into memory" out && complain "what does not fit is offered"
expect 0 "methods do not fit: a rank has 1074 MB (2 GiB of a host for 2 ranks)" "$gpt" --cluster small.json -n 2 # as planned
printf '{"format": "tacit-cluster-1", "hosts": 1, "ranks_per_host": 3, "links": {"inside": {"latency_us": 1, "gbit_per_s": 80}}}' > alone.json
expect 3 "7 ranks need 3 hosts like that of the cluster file, which has 3 ranks and no links.between" "$gpt" --cluster alone.json -n 7
python3 - << 'PYTHON'
import json
cluster = json.load(open("small.json"))
cluster["compute"]["memory_gib"] = 8
cluster["links"]["between"]["gbit_per_s"] = 1
cluster["links"].pop("host_gbit_per_s", None), cluster["links"].pop("duplex_gbit_per_s", None)
cluster["compression"] = [{"codec": c, "factor": 1, "encode_ns": 0.7, "decode_ns": 0.2, "add_ns": 0.2, "bytes": 1} for c in ("int4", "int8")]
json.dump(cluster, open("known.json", "w"))
cluster["compute"]["memory_gib"] = 12
json.dump(cluster, open("middle.json", "w"))
PYTHON
expect 0 "--strategy shard does: shard 2 auto int4, gather int4 takes 1.67 GiB (--shard.stage 2 --compress.codec auto)" "$gpt" --cluster known.json
grep -q "tacit probe" out && complain "a probe is asked for where no replica fits"
grep -q "not recommended" out && complain "what fits is not recommended: $(head -4 out)"
expect 0 "no verdict on compression: no compressed all-reduce fits into memory" "$gpt" --cluster middle.json # replicas do
grep -q "^  localsgd, a mean every 16 steps, bf16 " out || complain "no row for localsgd, which fits without compression"
"$tacit" plan "$gpt" --cluster "$ethernet" --strategy shard --shard.gather bf16 --no-jitter --json > parts.json 2> err || complain "shard: $(cat err)"
"$tacit" plan "$gpt" --cluster small.json --strategy shard --no-jitter --json > fits.json 2> err || complain "shard: $(cat err)"
python3 - << 'PYTHON' || complain "prices of shard do not hold together"
import json
d = json.load(open("parts.json"))
over_all = [m for m in d["methods"] if m["parts"] and m["parts"]["over"] == "all" and not m["parts"]["secondary"]]
parts = {(m["parts"]["gathers"], m["parts"]["gradients"], m["parts"]["gather"], m["wire"]): m for m in over_all if not m["compression"]}
assert [m["label"] for m in d["methods"] if m["configured"]] == ["shard 3 gather bf16 f32"]
dense = d["methods"][0]
three, two, one = (parts[k + ("f32", "f32")] for k in ((2, True), (1, True), (1, False)))
n = 4 * d["model"]["parameters"]
assert three["memory_bytes"] < two["memory_bytes"] < one["memory_bytes"] < dense["memory_bytes"]
assert min(abs(dense["memory_bytes"] / (k * n) - 1) for k in (4, 4.5)) < 0.01 and dense["fits"]
# a mix under way, two arrays of the noise of second moments, under awc the integral, and residuals of the start in int8
mixes = {m["order"]: m["memory_bytes"] - dense["memory_bytes"] for m in d["methods"] if m["mixing"] and m["wire"] == "f32" and not m["delay"]}
assert abs(mixes["awc"] / (6.25 * n) - 1) < 0.01 and abs(mixes["atc"] / (5.25 * n) - 1) < 0.01, mixes
assert 1.3 < three["nic_bytes_per_step"] / two["nic_bytes_per_step"] <= 1.5
assert three["replicas_equal"] and three["seconds"]["low"] < three["seconds"]["step"] < three["seconds"]["high"]
assert parts[2, True, "bf16", "bf16"]["seconds"]["step"] < three["seconds"]["step"]
auto = {m["label"]: m for m in over_all if m["compression"]}
assert sorted(auto) == ["shard 1 auto int4, gather int4", "shard 2 auto int4, gather int4", "shard 3 auto int4, gather int8"]
for stage, plain in ((3, three), (2, two), (1, one)):  # each of 4 ranks per host encodes its share
    m = next(m for m in auto.values() if m["label"].startswith("shard %d" % stage))
    residuals, masters = 2 * n / 4, n / d["cluster"]["ranks"] + (0 if stage == 3 else n)
    assert abs(m["memory_bytes"] / (plain["memory_bytes"] + residuals + masters) - 1) < 0.01, stage
    assert m["parts"]["compression"]["changes"] == (stage < 3) and m["parts"]["compression"]["adapts"]
    assert not m["compression"]["speed_known"] and m["seconds"]["step"] <= plain["seconds"]["step"]
rows = {m["label"]: m for m in d["methods"]}
host, secondary = rows["shard 3 over host f32"], rows["shard 3 secondary gather f32 f32"]
assert host["parts"]["options"] == "--shard.stage 3 --shard.over host" and secondary["parts"]["options"] == "--shard.stage 3 --shard.secondary true"
assert abs(host["nic_bytes_per_step"] / two["nic_bytes_per_step"] - 1) < 0.001
assert abs(secondary["nic_bytes_per_step"] / two["nic_bytes_per_step"] - 1) < 0.001 and secondary["seconds"]["step"] < three["seconds"]["step"]
assert three["memory_bytes"] < secondary["memory_bytes"] < host["memory_bytes"] < dense["memory_bytes"]
topk = next(m for m in d["methods"] if m["label"] == "dense topk 10")  # one lane, 8 hosts: residuals of the array and of the owned result
assert abs(topk["memory_bytes"] / (dense["memory_bytes"] + 2 * (n + n / 8)) - 1) < 0.01, topk["memory_bytes"]
for m in json.load(open("fits.json"))["methods"]:
    if m["order"] == "dense":
        assert not m["fits"]
PYTHON

# ranks have whole sequences, and the fullest is waited for
for batch in 33 64; do
    "$tacit" plan "$gpt" --cluster "$ethernet" --train.batch $batch --all > "of-$batch" 2>&1 || complain "batch $batch: $(head -3 "of-$batch")"
done
cmp -s of-33 of-64 || complain "a batch of 33 on 32 ranks is not planned as one of 64: $(diff of-33 of-64 | head -4)"

# a section `compute` does not disturb training, but emulation is refused
"$tacit" train "$gpt" --compute.emulate vgg-16 --dry-run > out 2>&1 && complain "training was emulated"
grep -q "training computes for real" out || complain "train did not refuse compute.emulate: $(head -1 out)"

[[ $failed == 0 ]] && echo "plan: verdicts, refusals, JSON and pictures are as they should be"
exit $failed

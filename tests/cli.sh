#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/cli.sh [PROGRAM]: exit codes, messages and answers of the program's shell.
set -uo pipefail
. "$(dirname "$0")/check.sh"
tests=$(cd "$(dirname "$0")" && pwd)
find_program "${1:-}"
examples=$tests/../examples
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
unset NO_COLOR TERM
failed=0
complain() {
    echo "cli: $1"
    failed=1
}

brief() { printf '%.160q' "$*"; }

expect() { # expect CODE TEXT COMMAND ... : the exit code, and TEXT somewhere in the output
    local code=$1 text=$2 got
    shift 2
    "$@" > out 2>&1 < /dev/null
    got=$?
    [[ $got == "$code" ]] || complain "'$(brief "$@")' ended with $got instead of $code: $(brief "$(head -3 out)")"
    grep -qF -- "$text" out || complain "'$(brief "$@")' did not say '$text' but: $(brief "$(head -3 out)")"
}
is_json() { # is_json COMMAND ...
    "$@" > out.json 2> err || true
    python3 -m json.tool out.json > /dev/null 2>&1 || complain "'$(brief "$@")' is not JSON: $(brief "$(head -3 out.json)")"
}

expect 0 "tacit 0." "$tacit" --version
expect 0 "verbs:" "$tacit" --help
expect 0 "verbs:" "$tacit" help
expect 2 "verbs:" "$tacit"
expect 2 'tacit: error: unknown verb "docotr"; did you mean "doctor"?' "$tacit" docotr
expect 2 'unknown verb "--versoin"; did you mean "--version"?' "$tacit" --versoin
expect 0 '--topk.values' "$tacit" bench codecs --help
expect 2 'unknown verb "zzz"; `tacit --help` lists all' "$tacit" zzz
expect 2 'unknown verb' "$tacit" "$(printf 'a\nb\033[31m')"
expect 2 'unknown verb' "$tacit" "$(head -c 3000 /dev/zero | tr '\0' x)"
expect 2 'unknown verb ""' "$tacit" ""
expect 2 'unknown verb "bench kernel"; did you mean "bench kernels"?' "$tacit" bench kernel
expect 2 'unknown verb "data prepair"; did you mean "data prepare"?' "$tacit" data prepair --help-me
expect 2 '"bench" needs a second word' "$tacit" bench --json
expect 2 'unknown option "--jsno"; did you mean "--json"?' "$tacit" info --jsno
# an unknown flag is a mistake of usage in every form, a value that is refused one of configuration
expect 2 'unknown option "--train.stpes"; did you mean "--train.steps"?' "$tacit" train --train.stpes 4
expect 2 'unknown option "--train.eval_windows"' "$tacit" eval nowhere --train.eval_windows 50
expect 2 '--int8.block has gone' "$tacit" train --int8.block 4
expect 3 'environment: unknown variable TACIT_TRAIN_STPES' env TACIT_TRAIN_STPES=4 "$tacit" train --dry-run
expect 3 'TACIT_OPTIM_LR: "abc" is not a number' env TACIT_OPTIM_LR=abc "$tacit" bench step
expect 3 '--tokens -3: give a whole number from 0 to 1000000000' "$tacit" sample nowhere --tokens -3
expect 3 '--top-k 0.9: give a whole number' "$tacit" sample nowhere --top-k 0.9
expect 3 'environment: unknown variable TACIT_DATA_VOCABB' env TACIT_DATA_VOCABB=4 "$tacit" eval nowhere
expect 3 '--format: "foo" is not one of hf|llmc' "$tacit" export nowhere -o x --format foo
expect 3 'run.dir is empty, and a run needs a folder: give --run.dir FOLDER' "$tacit" train --model.preset nano --run.dir ""
expect 2 '--json: takes no value' "$tacit" info --json=1
expect 2 'did you mean "options"?' "$tacit" info optoins
expect 2 'name the shell' "$tacit" completion
expect 2 'name the shell' "$tacit" completion tcsh
expect 3 'unknown preset "nanp"; did you mean "nano"?' "$tacit" train --model.preset nanp --dry-run
expect 2 'there is no verb' "$tacit" man nothing
expect 2 'there is no program /none/tacit; cmake' "$tests/completion.sh" /none/tacit
[[ $(wc -l < out) == 1 ]] || complain "a script without its program says more than that"
# a path that leads nowhere is a mistake of whoever typed it, never a lack of resources: 3 for the YAML file, 4 for every other
echo 'model: {preset: nano}' > nano.yaml
expect 3 'none.yaml: cannot open' "$tacit" train none.yaml
expect 3 'none.yaml: cannot open' "$tacit" plan none.yaml
expect 3 'maybe: no such file, and --model.tied is true or false' "$tacit" train --model.tied maybe
expect 3 'run1: no such file, and --resume takes no value: --run.dir run1 names the folder' "$tacit" train nano.yaml --resume run1
expect 3 'run1: no such file, and --dry-run takes no value' "$tacit" train --dry-run run1
echo '{"step": 1}' > lines.jsonl
expect 4 'lines.jsonl: is no model, neither a config.json nor a llm.c file' "$tacit" eval lines.jsonl
expect 3 'optim.lr differs: rank 0 has "0.0006", rank 1 on host' sh -c "RANK=0 WORLD_SIZE=2 '$tacit' train nano.yaml --comm.meet ./meet & RANK=1 WORLD_SIZE=2 '$tacit' train nano.yaml --comm.meet ./meet --optim.lr 0.001 & wait \$!"
echo abcdefghijklmnopqrstuvwxyz0123456789 > other.txt
for _ in 1 2 3 4 5 6 7 8; do cat other.txt other.txt > twice.txt; mv twice.txt other.txt; done
expect 3 'data differs: rank 0 has "digest ' sh -c "RANK=0 WORLD_SIZE=2 '$tacit' train nano.yaml --comm.meet ./meet & RANK=1 WORLD_SIZE=2 '$tacit' train nano.yaml --comm.meet ./meet --data.train other.txt & wait \$!"
expect 4 'none: cannot open' "$tacit" train nano.yaml --data.train none
expect 4 "$folder: is a folder" "$tacit" train nano.yaml --data.train "$folder"
expect 4 'none: cannot open' "$tacit" train nano.yaml --data.vocab none
expect 4 'none: cannot open' "$tacit" train nano.yaml --train.init none
expect 4 'none: cannot open' "$tacit" data prepare none -o prepared
expect 3 '--tokenizer: "foo" is' "$tacit" data prepare letter.txt -o prepared --tokenizer foo
printf a > letter.txt
expect 0 'no run can train on 1 tokens: add text' "$tacit" data prepare letter.txt -o letter
grep -q 'tacit train' out && complain "data prepare recommends a run that must fail"
expect 3 'letter.txt: is a file where a folder is needed; name another folder' "$tacit" data prepare letter.txt -o letter.txt
for verb in eval sample 'export -o x' 'import -o x'; do
    # shellcheck disable=SC2086
    expect 4 'none: cannot open' "$tacit" $verb none
done
# a text is found from everywhere; where it is gone, the message says what it was and what to type
seq 20000 > text.txt
expect 0 'finished' "$tacit" train nano.yaml --data.train text.txt --train.steps 1 --train.batch 2 --train.eval_every -1 --run.dir moving
expect 6 'the average after step 4 is not finite' "$tacit" train nano.yaml --ranks 2 --data.train text.txt --train.steps 6 --train.batch 2 \
    --train.eval_every -1 --run.dir infinite --strategy localsgd --localsgd.every 4 --optim.name sgd --optim.momentum 0 --optim.lr 1000 \
    --optim.clip 1000 --optim.warmup 0 --exchange.wire fp16
mkdir elsewhere
expect 0 'perplexity' env -C elsewhere "$tacit" eval ../moving
expect 0 'parameters are now in hf' "$tacit" export moving -o hf
expect 3 'hf/config.json: exists already; remove it or choose another place' "$tacit" export moving -o hf
expect 0 'parameters' "$tacit" import hf -o imported
expect 3 'imported/ckpt: holds checkpoints already; choose another folder' "$tacit" import hf -o imported
expect 3 'moving: is a run of tacit already' "$tacit" import moving -o other
expect 0 'usage: tacit eval' "$tacit" eval moving -h
# what training held out is what eval measures, in the windows of training; shards stand beside a run of shards
tuned=(--model.dtype f32 --train.steps 2 --train.batch 2 --train.eval_every 2 --train.eval_windows 0)
expect 0 'finished' "$tacit" train nano.yaml --data.train text.txt "${tuned[@]}" --train.seq 7 --data.split 0.03 --run.dir part
expect 0 'tokens/text_val_' "$tacit" data prepare text.txt -o tokens/
grep -q 'tacit train --data.train tokens/.* --model.preset byte-2m --model.vocabulary 256$' out || complain "data prepare recommends: $(tail -n 1 out)"
expect 0 'finished' "$tacit" train nano.yaml --data.train tokens/*train* --data.validation tokens/*val* --model.vocabulary 1500 "${tuned[@]}" --run.dir wide
for run in part wide; do
    is_json "$tacit" eval $run --json
    python3 - $run << 'END' || complain "eval and training differ: $run"
import json, sys
val = [json.loads(l)["val_loss"] for l in open(sys.argv[1] + "/metrics.jsonl") if '"val_loss"' in l][-1]
assert abs(json.load(open("out.json"))["loss"] - val) < 1e-5 * val
END
done
expect 0 'perplexity' "$tacit" eval wide --data.validation tokens/*val*
expect 3 'the model has 1500 tokens but the tokenizer 256' "$tacit" eval wide --data.validation text.txt
is_json "$tacit" sample moving --tokens 2 --prompt $'\xff' --json
timeout 60 "$tacit" train nano.yaml --ranks 2 --data.train text.txt --train.steps 1000000 --train.batch 2 --train.eval_every -1 --run.quiet false \
    --run.dir piped 2>&1 | head -3 > piped.out
{ [ "$(wc -l < piped.out)" -eq 3 ] && ls piped/ckpt/step_*/manifest.json > /dev/null && [ ! -e piped/lock ]; } || complain "a console that goes away: no checkpoint"
mkfifo pipe
expect 7 'pipe: is not a plain file' "$tacit" plan nano.yaml --compute.rate 1e12 --cluster "$examples/clusters/8x4-25gbe.json" --svg pipe
mv text.txt moved.txt
for from in . elsewhere; do
    expect 4 'text.txt: No such file or directory, and the run was trained with it (data.train); name a text with --data.validation FILE' \
        env -C $from "$tacit" eval "$folder/moving"
    expect 0 'perplexity' env -C $from "$tacit" eval "$folder/moving" --data.validation "$folder/moved.txt"
done
cp moved.txt elsewhere/text.txt
expect 0 'perplexity' env -C elsewhere "$tacit" eval ../moving
expect 4 'none.json: cannot open' "$tacit" plan nano.yaml --cluster none.json
expect 4 'none.json: cannot open' "$tacit" bench step --compute.emulate none.json
expect 4 'none: cannot open' "$tacit" plan nano.yaml --cluster "$tests/../examples/clusters/8x4-25gbe.json" --gossip.topology file --gossip.file none
expect 7 '/dev/null' "$tacit" man --all /dev/null/x
expect 7 'cannot write to the standard output' sh -c "'$tacit' info > /dev/full"
expect 0 "optim.lr" "$tacit" info options
expect 0 "one-peer-ring" "$tacit" info topologies
expect 0 "auto           the default: aer" "$tacit" info topologies
expect 0 "awc limit" "$tacit" info topologies -n 16 --per-host 4
expect 0 "base-k              2        2       1.0000           2     1.000 " "$tacit" info topologies -n 9
expect 0 "base-k              7        1       1.0000           7     1.208 " "$tacit" info topologies -n 9 --degree 1
expect 0 '"awc_step_size_limit": 1.2' "$tacit" info topologies -n 9 --json
expect 0 "gamma 0.5, delay 1" "$tacit" info topologies -n 4 --delay 1
expect 2 "--delay 1 goes with --gamma 0.5 or less" "$tacit" info topologies -n 4 --delay 1 --gamma 0.6
expect 0 "ring                1        2        1e-05       never" "$tacit" info topologies ring -n 1000
expect 0 '"awc_step_size_limit": null' "$tacit" info topologies ring -n 257 --json
expect 0 "round 1, nic 1.000: {0 1 2 3 4 5 6 7} {8 9 10 11} {12 13 14 15}" "$tacit" info topologies aer -n 16 --per-host 4
expect 0 "(the last has 1)" "$tacit" info topologies -n 7 --per-host 3
expect 0 "1 rank on 1 host of 1" "$tacit" info topologies -n 1
expect 2 "of how many ranks? tacit info topologies -n 16" "$tacit" info topologies aer
expect 2 "--per-host: of how many ranks?" "$tacit" info topologies --per-host 4
expect 3 "--ranks 0: give a whole number from 1 to 4096" "$tacit" info topologies -n 0
expect 2 '--ranks is for `tacit info topologies`' "$tacit" info codecs -n 4
expect 2 "one topic at a time: tacit info topologies" "$tacit" info topologies aer exp -n 4
expect 3 'did you mean "aer"?' "$tacit" info topologies aar -n 4
expect 3 "5 columns do not divide 16 ranks" "$tacit" info topologies torus -n 16 --degree 5
expect 0 "not possible: torus: 5 columns do not divide 16 ranks" "$tacit" info topologies -n 16 --degree 5
expect 0 "base-k" "$tacit" info topologies -n 16 --degree 5
expect 0 '"reason": "torus: 5 columns' "$tacit" info topologies -n 16 --degree 5 --json
printf '0.5,0.5,0\n0.5,0.5,0\n0,0,0.98\n' > w.csv
expect 3 "w.csv, matrix 0: row 2 sums to 0.98, expected 1" "$tacit" info topologies file -n 3 --file w.csv
printf '0,1\n1,0\n' > w.csv
expect 3 "contraction 1, by the eigenvalue -1" "$tacit" info topologies -n 2 --file w.csv
printf '0.5,0.25,0.5\n0.5,0.5,0\n0,0.25,0.5\n' > w.csv
expect 0 "directed: push-sum" "$tacit" info topologies -n 3 --file w.csv
expect 4 "w.csv, line 1: 3 numbers between commas, expected 4" "$tacit" info topologies file -n 4 --file w.csv
for name in complete one-peer-ring ring exp exp-directed exp-static aer base-k random; do
    for shape in "1 1" "2 1" "5 2" "7 3" "16 16"; do
        read -r n per <<< "$shape"
        "$tacit" info topologies $name -n "$n" --per-host "$per" --json > out && "$tests/../scripts/draw_topology.py" < out > "$name-$n.svg" 2> err ||
            complain "$name of $n ranks: $(brief "$(cat err)")"
    done
done
python3 - << 'END' || complain "a drawing of a topology is not XML, or has no number where one belongs"
import glob, re, xml.dom.minidom
drawings = glob.glob("*.svg")
assert len(drawings) == 9 * 5, drawings
for name in drawings:
    xml.dom.minidom.parse(name)
    assert not re.search(r"null|nan|inf[^o]", open(name).read()), name
for name, rounds, ranks, hosts in (("aer-7", 8, 7, 3), ("random-16", 8, 16, 0), ("complete-1", 1, 1, 0)):
    text = open(name + ".svg").read()
    counts = [len(re.findall(mark, text)) for mark in (">round ", "<circle ", ">host ")]
    assert counts == [rounds, rounds * ranks, rounds * hosts], (name, counts)
END
"$tacit" info topologies -n 16 --json | "$tests/../scripts/draw_topology.py" 2> err && complain "a list of topologies is drawn"
grep -q "not the JSON of one topology" err || complain "a list of topologies: $(cat err)"
grep -q $'\033' <("$tacit" docotr 2>&1) && complain "colour without a terminal"

# every verb explains itself within 79 columns, and its manual page is clean roff
while read -r verb; do
    expect 0 "usage:" "$tacit" $verb --help
    expect 0 "usage:" "$tacit" help $verb
    awk -v verb="$verb" 'length > 79 && !/^  (-|mpirun|tacit)/ { print "cli: " verb " --help has a line of " length " columns: " $0; bad = 1 } END { exit bad }' out || failed=1
    "$tacit" man $verb > page.1 || complain "no manual page of $verb"
    if command -v groff > /dev/null; then
        groff -man -Tutf8 -ww -z page.1 2> warnings
        [[ -s warnings ]] && complain "the manual page of $verb: $(head -2 warnings)"
    fi
done < <("$tacit" --help | sed -n '/^verbs:/,/^$/p' | sed '1d;$d' | cut -c3-20 | sed 's/ *$//')

# completion and manual pages know every verb, flag and key that the help and the tables name
"$tacit" completion bash > completion.bash
"$tacit" info options --json > options.json
rm -rf pages; "$tacit" man --all pages > out 2>&1 || complain "man --all: $(brief "$(cat out)")"
python3 - "$tacit" << 'END' || complain "completion or manual pages lack something"
import glob, json, re, subprocess, sys
show = lambda *words: subprocess.check_output([sys.argv[1], *words], text=True)
verbs = [l[2:20].strip() for l in re.search(r"verbs:\n(.*?)\n\n", show("--help"), re.S).group(1).split("\n")]
script, pages = open("completion.bash").read(), {p: open(p).read().replace("\\-", "-") for p in glob.glob("pages/*")}
assert len(verbs) >= 15 and len(pages) == len(verbs) + 1, (verbs, list(pages))
missing = [o["key"] for o in json.load(open("options.json")) if not o["key"].startswith("compute.") and "--" + o["key"] not in script]
for verb in verbs:
    page = pages["pages/tacit-%s.1" % verb.replace(" ", "-")]
    flags = re.findall(r"^  (?:-., )?(--[a-z-]+)[ \n]", show(*verb.split(), "--help").split("configuration (")[0], re.M)
    missing += [(verb, f) for f in flags if f != "--help" and (f not in page or f not in script)]
    missing += [verb] if verb.split()[0] not in script else []
assert not missing, missing
END

# the help of train shows what the chosen run reads, on a few screens
short() { # short FLAG ... : at most 150 lines and 60 keys
    "$tacit" train "$@" --help > out 2>&1 || complain "train $* --help failed"
    [[ $(wc -l < out) -le 150 ]] || complain "train $* --help has $(wc -l < out) lines"
    [[ $(grep -cE '^  --(strategy|[a-z0-9-]+[.][a-z0-9_]+)( |$)' out) -le 60 ]] || complain "train $* --help has too many keys"
    grep -q 'All keys, with ranges: tacit info options' out || complain "train $* --help does not say where all keys are"
}
short; grep -qE '^  --(gossip|localsgd|shard|topk|gravac|compute)[.]' out && complain "train --help shows what nobody chose"
[[ $(grep -nm1 -- '--train.steps' out | cut -d: -f1) -lt $(grep -nm1 -- '--compress.codec' out | cut -d: -f1) ]] || complain "common keys do not come first"
for strategy in gossip localsgd shard; do
    short --strategy $strategy
    grep -q "^  --$strategy[.]" out || complain "the help of strategy $strategy lacks its keys"
done
for policy in $("$tacit" info controllers --json | python3 -c 'import json, sys; print(*[c["name"] for c in json.load(sys.stdin)])'); do
    short --compress.codec topk --adapt.policy "$policy"
    grep -q '^  --compress.factor\|^  --compress.warmup' out || complain "the help of policy $policy lacks the factor"
done
grep -q '^  --topk.values' out || complain "the help of codec topk lacks its keys"
expect 0 "--gossip.topology" "$tacit" help train --strategy=gossip
expect 0 "usage:" "$tacit" train --strategy gosip --help
printf 'strategy: gossip\ncompress: {codec: topk}\n' > gossip.yaml
expect 0 "--gossip.topology" "$tacit" train gossip.yaml --help
expect 0 "--topk.values" "$tacit" help train --train.steps 3 gossip.yaml
expect 0 "--gossip.topology" "$tacit" plan --cluster "$examples/clusters/8x4-25gbe.json" gossip.yaml --help
expect 0 "--gossip.topology" env TACIT_STRATEGY=gossip "$tacit" train --help
expect 0 "--shard.stage" env TACIT_STRATEGY=gossip "$tacit" train gossip.yaml --strategy shard --help # flags come last
grep -q -- '--gossip' out && complain "the help of strategy shard has keys of gossip"
printf 'strategy: gosip\n' > gosip.yaml
expect 0 "usage:" "$tacit" train gosip.yaml --help
for file in . none.yaml; do expect 0 "usage:" "$tacit" train $file --help; done
expect 2 '--shard.stage: needs a value' "$tacit" train --strategy shard --shard.stage
expect 2 '--data.merges has become data.vocab: merges.txt is read beside vocab.json' "$tacit" data prepare text.txt -o tokens --data.merges merges.txt
expect 0 '`tacit info controllers --all`' "$tacit" info controllers
grep -q -- '--all' <("$tacit" info controllers --all) && complain "info controllers --all names itself"

# info, doctor and what reads a run answer in JSON, too
is_json "$tacit" eval moving --data.validation moved.txt --json
is_json env TACIT_DATA_VALIDATION=moved.txt "$tacit" eval moving --json
is_json "$tacit" sample moving --tokens 5 --json
is_json "$tacit" sample moving --tokens 1 --prompt $'\xc3\xa4\xff' --json
grep -q 'ä?' out.json || complain "a byte that is no UTF-8 takes others with it"
is_json "$tacit" export moving -o exported --json
is_json "$tacit" import exported -o again --json
is_json "$tacit" data prepare moved.txt -o shards --json
is_json "$tacit" info topologies -n 16 --per-host 4 --json
python3 - << 'END' || complain "the figures of 16 ranks on 4 hosts are not those of the theory"
import json
all = {t["name"]: t for t in json.load(open("out.json"))["topologies"]}
for name, mean, peak, exact in (("complete", 1.5, 1.5, 1), ("exp", 2, 4, 4), ("aer", 0.5, 1, 4), ("ring", 2, 2, None)):
    t = all[name]
    assert abs(t["nic_mean"] - mean) < 1e-9 and abs(t["nic_peak"] - peak) < 1e-9, t
    assert t["figures"]["exact_after"] == exact and len(t["position"]) == 16, t
    assert t["alternates"] == (name == "aer"), t
END
is_json "$tacit" info topologies exp-static -n 6 --json
for topic in "" build codecs controllers strategies topologies presets profiles options; do is_json "$tacit" info $topic --json; done
expect 0 '"fixed_size": true' "$tacit" info codecs --json
expect 0 '"options": []' "$tacit" info codecs --json
python3 - "$tacit" <<'EOF' || complain "info codecs tells another story than info options, or lacks a property"
import json, subprocess, sys
show = lambda *words: json.loads(subprocess.check_output([sys.argv[1], "info", *words, "--json"]))
options = {o["key"]: o for o in show("options")}
codecs = {c["name"]: c for c in show("codecs", "--all")}
text = subprocess.check_output([sys.argv[1], "info", "codecs", "--all"], text=True)
for c in codecs.values():
    assert c["class"] in ("sum", "gather", "linear") and c["rounds"] >= 1 and c["help"] and c["source"], c
    for p in ("lossless", "fixed_size", "selects", "thresholds", "number_format", "shared_key", "state"): assert c[p] in (True, False)
    for o in c["options"]: assert o == options[o["key"]] and o["key"] in text, o
    for item in c["preset"].split(): assert item.split("=")[0] in options, c["preset"]
    assert "\n%-11s %s" % (c["name"], c["class"]) in "\n" + text
assert [n for n in codecs if not codecs[n]["reference"]] == options["compress.codec"]["choices"][2:], list(codecs)
assert codecs["dgc"]["reference"] and not codecs["topk"]["reference"]
assert codecs["bf16"]["number_format"] and codecs["bf16"]["fixed_size"] and codecs["f32"]["lossless"]
EOF
python3 - "$tacit" "$tests/../docs/codecs.md" <<'EOF' || complain "a codec has no row in docs/codecs.md"
import json, re, subprocess, sys
rows = {name for line in open(sys.argv[2]) if line.startswith("|") for name in re.findall("`([^`]+)`", line.split("|")[1])}
missing = [c["name"] for c in json.loads(subprocess.check_output([sys.argv[1], "info", "codecs", "--all", "--json"])) if c["name"] not in rows]
assert not missing, missing
EOF
python3 - "$tacit" <<'EOF' || complain "info controllers tells another story than info options, or lacks one"
import json, subprocess, sys
show = lambda *words: json.loads(subprocess.check_output([sys.argv[1], "info", *words, "--json"]))
options = {o["key"]: o for o in show("options")}
controllers = {c["name"]: c for c in show("controllers", "--all")}
text = subprocess.check_output([sys.argv[1], "info", "controllers", "--all"], text=True)
assert [n for n in controllers if not controllers[n]["reference"]] == options["adapt.policy"]["choices"], list(controllers)
for c in controllers.values():
    assert c["help"] in text and c["source"] and "\n%-11s " % c["name"] in "\n" + text, c
    for o in c["options"]: assert o == options[o["key"]] and o["key"] in text and str(o["default"]) != "", o
    assert len(c["options"]) == sum(k.split(".")[0] == c["name"] for k in options), c
assert controllers["accordion"]["per_bucket"] and not controllers["gravac"]["per_bucket"] and controllers["gravac"]["options"]
assert "2305.12201" in controllers["gravac"]["source"] and "2010.16248" in controllers["accordion"]["source"]
EOF
is_json "$tacit" doctor --json
python3 - <<'EOF' || complain "the doctor's JSON lacks members"
import json
d = json.load(open("out.json"))
checks = {c["check"] for c in d["checks"]}
assert {"launcher", "libraries", "cpu", "cores", "memory", "disk"} <= checks, checks
assert all(c["verdict"] in ("ok", "warn", "fail") and c["text"] for c in d["checks"])
assert all(c["advice"] for c in d["checks"] if c["verdict"] != "ok")
EOF

# the doctor finds what is wrong, says how to mend it, and leaves nothing behind
expect 0 "0 to mend" "$tacit" doctor --dir new/run
[[ -e new ]] && complain "the doctor created a folder"
touch file
expect 7 "file: cannot be a folder: a file is in the way" "$tacit" doctor --dir file
expect 7 "choose another folder with --dir" "$tacit" doctor --dir file
expect 7 "fail  disk" "$tacit" doctor --dir file/run
expect 7 "fail  disk" "$tacit" doctor --dir /proc
expect 7 "did you mean TACIT_OPTIM_NAME?" env TACIT_OPTIM_NMAE=x "$tacit" doctor
expect 0 "OMPI_MCA_mpi_yield_when_idle=0" env OMPI_MCA_mpi_yield_when_idle=0 "$tacit" doctor
expect 0 "TACIT_ISA=scalar" env TACIT_ISA=scalar "$tacit" doctor
expect 2 "takes no words" "$tacit" doctor run
ls -A | grep -q tacit-doctor && complain "the doctor left a file"
# MPI is a plugin: who needs it where it is not reads where it was looked for and what brings it
export TACIT_PLUGINS=/nowhere
expect 0 "MPI        none" "$tacit" info build
expect 7 "fail  launcher       mpirun (Open MPI) belongs to openmpi, for which tacit has no plugin" \
    env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 "$tacit" doctor
expect 3 "libtacit-mpi-openmpi.so, through which ranks find each other, is not in /nowhere: " "$tacit" train --model.preset nano --train.steps 1 --run.dir none --comm.engine mpi
unset TACIT_PLUGINS
expect 3 "comm.engine is self, but mpirun (Open MPI) started 4 processes" \
    env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 "$tacit" train --model.preset nano --train.steps 1 --run.dir none --comm.engine self
expect 3 "RANK / WORLD_SIZE started 4 processes, and nothing says where they meet" env RANK=0 WORLD_SIZE=4 "$tacit" train --model.preset nano --train.steps 1 --run.dir none
# a rank that is not the first keeps silent
[[ -z $(OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 "$tacit" doctor) ]] || complain "rank 1 speaks"
expect 2 "tacit: rank 1: error: unknown verb" env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 "$tacit" docotr

# bench codecs: every codec with every instruction set, in pieces and as a whole
expect 3 '--codec: "terngrad" has gone: take --compress.codec qsgd' "$tacit" bench codecs --codec terngrad
expect 3 'there is no codec "topq"' "$tacit" bench codecs --codec topq
expect 3 "--isa mmx is not an instruction set of this CPU" "$tacit" bench codecs --isa mmx
expect 3 "--factor 0.5: elements per element sent, 1 to" "$tacit" bench codecs --factor 0.5
expect 3 "--n 100: give a whole number from 1024" "$tacit" bench codecs -n 100
expect 7 " GiB of memory, and " "$tacit" bench codecs -n 4000000000
expect 0 "kernels: scalar" env TACIT_ISA=scalar "$tacit" bench codecs -n 40000 --rounds 1
is_json "$tacit" bench codecs -n 40000 --rounds 2 --isa all --factor 10 --json
python3 - <<'EOF' || complain "the JSON of bench codecs lacks figures"
import json, subprocess
d = json.load(open("out.json"))
assert d["machine"]["cpu"] and d["floats"] == 40000 and d["factor"] == 10 and d["rounds"] == 2
figures = {(f["codec"], f["isa"], f["whole"]): f for f in d["codecs"]}
assert len(figures) == len(d["codecs"])
assert {(c, "scalar", w) for c in ("f32", "bf16", "fp16") for w in (False, True)} <= set(figures), figures.keys()
for (codec, isa, whole), f in figures.items():
    assert (codec, "scalar", whole) in figures and set(f["passes"]) == {"encode_feedback", "encode", "decode", "decode_add"}
    assert 0 < f["piece_floats"] <= 40000 and (f["piece_floats"] == 40000 or not whole)
    assert 0 < f["payload_bytes_per_float"] <= 4.5 and f["energy_kept"] <= 1 and f["read_bytes_per_s"]["median"] > 0
    assert f["payload_bytes_per_float"] == figures[codec, "scalar", whole]["payload_bytes_per_float"]
    for p in f["passes"].values():
        for figure in p.values(): assert 0 < figure["least"] <= figure["median"] <= figure["most"], (codec, p)
assert figures["bf16", "scalar", True]["payload_bytes_per_float"] == 2 and figures["f32", "scalar", True]["energy_kept"] == 1
EOF

# bench kernels: every array kernel beside its probe; the figures are finite and above 0
expect 0 "kernels: scalar" env TACIT_ISA=scalar "$tacit" bench kernels --floats 0.01 --rounds 1 --threads 1
expect 3 "TACIT_ISA=sse is not an instruction set" env TACIT_ISA=sse "$tacit" bench kernels --floats 0.01
expect 3 "--floats 0: give a number above 0" "$tacit" bench kernels --floats 0
expect 3 "--rounds 102: give a whole number from 1 to 101" "$tacit" bench kernels --rounds 102
expect 7 " GiB of memory, and " "$tacit" bench kernels --floats 1000000
expect 7 "--bytes: that needs " "$tacit" bench collectives --ranks 2 --bytes 900GB --rounds 1
expect 7 "--batch and --model: that needs " "$tacit" bench step --model gpt2-350m --batch 5000
is_json "$tacit" bench kernels --floats 0.01 --rounds 2 --threads 3 --json
python3 - <<'EOF' || complain "the JSON of bench kernels lacks figures"
import json
d = json.load(open("out.json"))
assert d["machine"]["cpu"] and d["machine"]["cores"] >= 1 and d["floats"] >= 10000
kernels = {(k["kernel"], k["threads"]) for k in d["kernels"]}
assert {(k, t) for k in ("add", "bf16_encode", "sum_squares", "adamw", "accum_adamw", "blend", "layernorm") for t in (1, 3)} <= kernels, kernels
for k in d["kernels"]:
    assert 0 < k["ratio"]["least"] <= k["ratio"]["median"] <= k["ratio"]["most"] < 1e6, k
assert any(p["peak"] == "f32 multiply-add" and p["rate"]["least"] > 0 for p in d["peaks"])
EOF

# what nothing reads has one line that says what would read it: train, quiet or not, plan, benchmarks, files that set no key in vain
silent() { # silent COMMAND ... : nothing is unread
    "$@" > out 2>&1 < /dev/null
    ! grep -q "nothing in this run reads" out || complain "'$(brief "$@")' said $(grep "nothing in this run" out)"
}
nano=("$tacit" train --model.preset nano --dry-run)
expect 0 'warning: compress.factor 100: nothing in this run reads it; it needs a compress.codec that selects, such as --compress.codec topk' \
    "${nano[@]}" --run.quiet --compress.factor 100
expect 0 'gossip.order, gossip.every: nothing in this run reads them; they need --strategy gossip' "${nano[@]}" --gossip.order atc --gossip.every 2
expect 0 'optim.accum 4: nothing' env TACIT_OPTIM_ACCUM=4 "${nano[@]}"
expect 0 'gravac.window 9: nothing in this run reads it; it needs --adapt.policy gravac' \
    "$tacit" plan "$examples/gpt2-124m.yaml" --cluster "$examples/clusters/4x2-1gbe.json" --gravac.window 9
expect 0 'topk.values int4: nothing' "$tacit" bench step --dry-run --strategy gossip --topk.values int4
silent "$tacit" bench step --dry-run --strategy gossip --gossip.order atc --against strategy=dp
expect 0 'measuring 1 setting on 1 rank' "$tacit" bench step --model.preset nano --compress.codec topk
silent "$tacit" plan "$examples/gpt2-124m.yaml" --cluster "$examples/clusters/4x2-1gbe.json" --gossip.order atc
for file in "$examples"/*.yaml; do silent "$tacit" train "$file" --dry-run; done
expect 2 "--factor 10: codec int8 has no factor" "$tacit" bench codecs --codec int8 --factor 10
expect 2 "--codec was given twice" "$tacit" bench codecs --codec topk --codec int8
expect 2 "--codec was given, and compress.codec, too" "$tacit" bench codecs --codec topk --compress.codec int8
expect 0 "qsgd.levels 3: nothing" "$tacit" bench codecs --codec topk --qsgd.levels 3 -n 40000 --rounds 1
expect 0 "needs --optim.name accum-adamw or accum-adam)" "$tacit" info options
expect 2 "knee.max has gone: take --compress.codec auto" "${nano[@]}" --compress.codec topk --knee.max 20
expect 3 '--adapt.policy: "knee" has gone: take --compress.codec auto' "${nano[@]}" --compress.codec topk --adapt.policy knee
expect 3 "strategy none does not compress; leave it out, or choose a strategy that compresses: --strategy dp" "${nano[@]}" --strategy none --compress.codec topk
expect 3 '"topkk" is unknown; did you mean "topk"? legal: none|auto|' "${nano[@]}" --compress.codec topkk

# a configuration that is printed reads back
printed() { "$tacit" train "$@" --print-config --json; }
for codec in none tagc sparseloco; do
    set -- --compress.codec $codec --optim.lr 0.003 --run.dir "a: b" --data.train x "y z" --compress.feedback 1
    for form in --print-config --print-config=changed; do
        "$tacit" train "$@" $form > printed.yaml || complain "$form"
        [[ $(printed "$@") == "$(printed printed.yaml)" ]] || complain "$form of codec $codec does not read back"
        silent "$tacit" train printed.yaml --print-config
    done
done
expect 0 "lr: 0.003" "$tacit" train --optim.lr 0.003 --print-config=changed
[[ $(wc -l < out) == 2 ]] || complain "more than what differs is printed: $(brief "$(cat out)")"
for at in x -1 3:0 3: 3:2x; do
    expect 3 "environment: TACIT_FAIL_AT=$at is not STEP or STEP:COUNT" env TACIT_FAIL_AT="$at" "$tacit" train nano.yaml --run.dir poisoned
done
expect 3 "--print-config=all: --print-config, or --print-config=changed" "$tacit" train --print-config=all

# options at the ends of their ranges
expect 3 '--optim.accum: 0 is outside 1..1000000' "$tacit" train --dry-run --optim.accum 0
is_json "$tacit" train --model.preset nano --dry-run --json
expect 0 'MiB per rank' "$tacit" train --model.preset nano --dry-run --run.quiet true
expect 3 '--optim.lr: "1e-400" is not a number' "$tacit" train --model.preset nano --dry-run --optim.lr 1e-400
expect 0 'tacit bench step' "$tacit" bench --help
expect 0 'tacit data prepare' "$tacit" help data
python3 - << 'END' || complain "the sizes of a dry run do not add up"
import json
d = json.load(open("out.json"))
m = d["memory_bytes"]
assert all(type(v) is int for v in m.values()), m
assert d["ranks"] == 1 and d["parameters"] == 34176 and m["limit"] > m["total"] - m["program"], d
assert m["total"] == sum(m[k] for k in "parameters gradients moments copy16 activations workspace exchange program".split()), m
END
expect 2 '--json goes with --dry-run, or with --print-config without =changed' "$tacit" train --json
expect 3 '--optim.lr: 1001 is outside 0..1000' "$tacit" train --dry-run --optim.lr 1001
expect 0 '' "$tacit" train --dry-run --model.preset nano --optim.accum 1 --optim.lr 1000

# bench collectives: one process alone has nobody to talk to; mistakes are refused before MPI starts
expect 2 "a single process has nobody to talk to; start several: tacit bench collectives --ranks 4" "$tacit" bench collectives
expect 3 '--op: "broadcast" is not one of all-reduce|send' "$tacit" bench collectives --op broadcast
expect 3 '--bytes: 6 is not a multiple of 4' "$tacit" bench collectives --bytes 8,6
expect 3 '--bytes: 0 is outside 4..' "$tacit" bench collectives --bytes 0
expect 3 '--bytes: "8x"' "$tacit" bench collectives --bytes 8x
expect 3 '--bytes: name at least one size' "$tacit" bench collectives --bytes ''
expect 3 '--bytes: more than 32 sizes' "$tacit" bench collectives --bytes "$(seq -s, 4 4 400)"
expect 3 '--by: tacit is named twice' "$tacit" bench collectives --by tacit,mpi-ring,tacit
expect 3 '--by: more than 12 names' "$tacit" bench collectives --by a,b,c,d,e,f,g,h,i,j,k,l,m
expect 3 '--rounds 0: give a whole number from 1 to 1001' "$tacit" bench collectives --rounds 0
for line in 1 gbit 0gbit -1gbit 1Gbit 1gbits xgbit; do
    expect 3 "--line $line: give a rate such as 200mbit" "$tacit" bench collectives --line "$line"
done
expect 3 '--exchange.wire: "f64" is not one of f32|bf16' "$tacit" bench collectives --exchange.wire f64
expect 2 'takes no words' "$tacit" bench collectives all-reduce
expect 2 'did you mean "--rounds"?' "$tacit" bench collectives --roudns 2

[[ $failed == 0 ]] && echo "cli: exit codes, messages, help, manual pages, info and doctor are as they should be"
exit $failed

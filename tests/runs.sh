# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# To be sourced: reads what training runs have left in $work.

# look PROGRAM: Python with the readers below; tensors puts parts "name[a:b/n]" together.
look() {
  python3 - "$work" <<PY
import glob, json, math, re, struct, sys
work = sys.argv[1]
def tensors(run, step=8):
    out, parts = {}, {}
    for path in sorted(glob.glob(f"{work}/{run}/ckpt/step_{step:08d}/*.safetensors")):
        data = open(path, "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + size]).items():
            if name == "__metadata__": continue
            begin, end = (8 + size + x for x in t["data_offsets"])
            part = re.fullmatch(r"(.*)\[(\d+):(\d+)/(\d+)\]", name)
            name, first = (part[1], int(part[2])) if part else (name, 0)
            parts.setdefault(name, []).append((first, data[begin:end]))
    for name, list in parts.items():
        at = 0
        for first, data in sorted(list):
            assert 4 * first == at, (run, name, first)
            at += len(data)
        out[name] = b"".join(data for _, data in sorted(list))
    return out
def steps(run): return [r for r in map(json.loads, open(f"{work}/{run}/metrics.jsonl")) if "event" not in r]
def events(run, kind): return [r for r in map(json.loads, open(f"{work}/{run}/metrics.jsonl")) if r.get("event") == kind]
def same(a, b, step=8):
    a, b = tensors(a, step), tensors(b, step)
    assert a and a.keys() == b.keys(), (len(a), len(b), a.keys() ^ b.keys())
    different = [n for n in a if a[n] != b[n]]
    assert not different, different[:3]
def near(a, b, tolerance=1e-5):
    assert steps(a), f"{a} has no steps"
    for x, y in zip(steps(a), steps(b), strict=True):
        assert abs(x["loss"] - y["loss"]) <= tolerance * y["loss"], (x, y)
$1
PY
}

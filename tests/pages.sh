#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/pages.sh [PROGRAM]: commands that pages show are commands that work: every `tacit bench step` of README.md and docs/
# passes --dry-run as printed, and what scripts/results records comes back from the file with its quotes. Every results page names
# the commit that was measured; lists are those of the registries, and links resolve (tests/pages.py).
set -uo pipefail
. "$(dirname "$0")/check.sh"
find_program "${1:-}"
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$tacit" "$work/bin/tacit"
export PATH=$work/bin:$PATH

# Lines that show `tacit bench step` with an argument: indented, in a code block or between backticks; continued lines are
# joined, what stands before the program (mpirun, lab/cluster) and comments are cut off, upper-case placeholders filled in.
commands_of_pages() {
  sed -e ':more' -e '/\\$/{N;s/\\\n *//;b more' -e '}' README.md docs/*.md docs/results/*.md |
    grep -oE "tacit bench step +(--|-m)[^\`#|]*" |
    sed -E 's/ --model M( |$)/ --model gpt2-30m /; s/ --dtype D( |$)/ --dtype f32 /; s/ --threads N( |$)/ --threads 1 /' | sort -u
}
echo '{"format": "tacit-profile-1", "name": "s", "unit": "seconds", "layers": [{"name": "a", "forward_s": 1, "backward_s": 1,
  "tensors": [{"name": "a.w", "shape": [9]}]}]}' | tee "$work/byte-10m.json" >"$work/shakespeare.json"
count=0
while IFS= read -r command; do
  count=$((count + 1))
  measured=${command//shakespeare.json/$work/shakespeare.json}
  check "page: $command" bash -c "${measured//byte-10m.json/$work/byte-10m.json} --dry-run"
done < <(commands_of_pages)
[ "$count" -ge 8 ] || fail "only $count commands were found on the pages"

for page in docs/results/*.md; do check "$page names its commit" grep -qiE 'commit `[0-9a-f]{7}' "$page"; done
check "lists of pages are those of the program, and links resolve" python3 tests/pages.py "$tacit"

# A command is recorded and comes back as the same words.
words=(tacit bench step --against "strategy=gossip gossip.topology=aer" --against compute.cv=0.1 --x 'a$b')
quoted() {
  local failures=0
  # shellcheck disable=SC2034 # of record
  local folder=$work name=none MPIRUN=/none/mpirun text=none
  # shellcheck source=scripts/results/record.sh
  . scripts/results/record.sh
  tacit() { echo answer; }
  tacit=/none/tacit record jitter/1.json "${words[@]}" && cat "$work/jitter/1.json.command" &&
    tacit() { printf '%s\n' "$@" >"$work/words"; } && eval "$(cat "$work/jitter/1.json.command")" &&
    diff "$work/words" <(printf '%s\n' "${words[@]:1}")
}
check "recorded commands keep their words" eval "(quoted)"
finish_checks

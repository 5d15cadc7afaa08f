#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/completion.sh [PROGRAM]: loads the completion script and asks it as bash would.
set -uo pipefail
. "$(dirname "$0")/check.sh"
find_program "${1:-}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
touch "corpus one.txt" gpt.yaml
source <("$tacit" completion bash) || exit 1
failed=0

# complete WORD ... : the last word is being typed; the candidates come back in COMPREPLY
complete_words() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _tacit
}
offers() { # offers CANDIDATE WORD ...
    local wanted=$1 candidate
    shift
    complete_words "$@"
    for candidate in "${COMPREPLY[@]}"; do [[ $candidate == "$wanted" ]] && return; done
    echo "completion: '$*' does not offer '$wanted' but: ${COMPREPLY[*]}"
    failed=1
}
offers_only() { # offers_only "A B" WORD ...
    local wanted=$1
    shift
    complete_words "$@"
    [[ "${COMPREPLY[*]}" == "$wanted" ]] && return
    echo "completion: '$*' offers '${COMPREPLY[*]}' instead of '$wanted'"
    failed=1
}

# every verb of the overview
while read -r verb _; do offers "$verb" tacit ""; done < <("$tacit" --help | sed -n '/^verbs:/,/^$/p' | sed '1d;$d')
offers_only doctor tacit doc
offers_only doctor mpirun -n 4 ./bin/tacit doc
offers_only "" tacit zzz
offers doctor tacit help ""
offers zsh tacit completion ""
offers_only prepare tacit data ""
offers step tacit bench ""
offers_only --json tacit doctor --js
offers_only "" tacit doctor --optim.
offers gpt.yaml tacit doctor --dir ""
offers_only "corpus one.txt" tacit doctor --dir corp
offers --optim.lr tacit train --optim.
offers --resume tacit train gpt.yaml --re
offers_only "adamw sgd adam accum-adamw accum-adam" tacit train --optim.name ""
offers_only sgd tacit train --optim.name = s
offers_only "adamw sgd adam accum-adamw accum-adam" tacit train --optim.name =
offers_only "true false" tacit train --run.trace = ""
offers gpt.yaml tacit train ""
offers gpt.yaml tacit train --run.trace ""  # a switch needs no value
offers_only "" tacit train --optim.lr ""
offers_only "" tacit train --optim.name zzz
offers_only "--data.vocab" tacit sample run --data.vo
offers_only "" tacit sample run --optim.
offers "corpus one.txt" tacit train --data.train ""
offers "corpus one.txt" tacit train --data.train gpt.yaml cor
# zsh is asked in its own words, where it is installed.
"$tacit" completion zsh > zsh.sh || failed=1
lacks() { echo "completion: $1"; failed=1; }
if command -v zsh > /dev/null; then
    zsh -f -c 'source ./zsh.sh && [[ ${_comps[tacit]} == *_tacit* ]]' || lacks "zsh does not know tacit"
    # The function alone, with the arrays that bashcompinit gives it.
    cat > ask.zsh << 'END'
source ./zsh.sh
emulate sh; setopt kshglob noshglob braceexpand
ask() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=(); _tacit
    for word in "${COMPREPLY[@]}"; do [[ $word != "${COMP_WORDS[COMP_CWORD]}"* ]] || printf "%s " $word; done; echo; } # zsh drops the others itself
ask tacit doc; ask tacit data ""; ask tacit train --optim.name acc; ask tacit train --resume-; ask tacit sample run --data.vo
END
    diff <(zsh -f ask.zsh | sed 's/ $//') <(printf '%s\n' doctor prepare "accum-adamw accum-adam" --resume-from-mean --data.vocab) || lacks "zsh offers something else"
fi
[[ $failed == 0 ]] && echo "completion: verbs, flags, keys, values and files are offered"
exit $failed

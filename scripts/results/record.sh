# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder: launches whose answers are kept. They set folder, tacit, text, MPIRUN and failures;
# name: of the lab's cluster, if one is used; text_name: what a command line calls the text.

# record ANSWER COMMAND...: runs the command unless its answer is there. What it prints becomes ANSWER when it has ended
# well, so that ANSWER is never half an answer. The names of this run's cluster and folders are left out of ANSWER.command.
record() {
  local answer=$folder/$1 command
  shift
  [ ! -s "$answer" ] || return 0
  mkdir -p "${answer%/*}"
  printf -v command '%q ' "$@"
  command=${command% }
  command=${command//" --name ${name:-} --timeout 3600"/}
  command=${command//"$text"/${text_name:-input.txt}}
  command=${command//"$folder/"/}
  command=${command//"$tacit"/tacit}
  command=${command//"$MPIRUN"/mpirun}
  echo "$command" >"$answer.command"
  echo "$(date +%T) $command" >&2
  if "$@" >"$answer.part" 2>"$answer.log" </dev/null; then
    mv "$answer.part" "$answer"
  else
    echo "${0##*/}: failed with status $?: $*" >&2
    tail -n 20 "$answer.log" >&2
    failures=$((failures + 1))
    return 1
  fi
}

# train_run FOLDER/NAME PREFIX FLAG...: a run whose metrics become FOLDER/NAME.jsonl, unless they are there. PREFIX is what
# launches the ranks.
train_run() {
  local answer=$folder/$1.jsonl log=$1.txt prefix=$2
  shift 2
  [ ! -s "$answer" ] || return 0
  rm -rf "$folder/run" "${folder:?}/$log"
  # shellcheck disable=SC2086 # words
  record "$log" $prefix "$tacit" train scripts/results/shakespeare.yaml --data.train "$text" --run.dir "$folder/run" "$@" || return 0
  mv "$folder/run/metrics.jsonl" "$answer" || exit 1
}

# Sets text to tiny-shakespeare: what text says already, input.txt, or the file beside the checkout.
find_text() {
  local file
  for file in "$text" input.txt ../shared/data/tinyshakespeare.txt; do
    [ -z "$file" ] || [ ! -r "$file" ] || { text=$(realpath "$file"); return 0; }
  done
  echo "${0##*/}: no text to train on: --text FILE, or put tiny-shakespeare at input.txt" >&2
  exit 7
}

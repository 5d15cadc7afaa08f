# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder, and by some of bench/: their command lines, and launches whose answers are kept.

self=bench/${0##*/}
[ -e "$self" ] || self=scripts/results/${0##*/}
misuse() { echo "${0##*/}: $1; see $self --help" >&2; exit 2; }

# read_words OPTIONS SECTIONS OTHERS WORD...: sets folder (-o), name (of the lab's cluster), tacit, text, shakespeare (--text), quick and what
# else OPTIONS has, --per-host as per_host, by the words; sections to those that are named, or else SECTIONS, of which OTHERS are none by
# default; extra to what follows "--"; failures to 0. page is the script's page of results and pictures the folder of its pictures, which
# quick launches leave alone. A script has a folder of its own below build/, and one more for quick launches. The lab's cluster goes when
# the script ends. --help prints the head of the script.
read_words() {
  local known=" $1 $2 $3 " usual=$2 own=${0##*/} option
  own=${own%.sh}
  folder="" name=$own-$$ tacit=$PWD/build/release/bin/tacit text="" quick="" sections=() extra=() failures=0
  shift 3
  while [ $# -gt 0 ]; do
    case $1 in -h | --help) sed -n '3,${/^#/!q;s/^# \{0,1\}//p}' "$self"; exit 0 ;; esac
    [[ -n $1 && $1 != *" "* && $known == *" $1 "* ]] || case $1 in -*) misuse "unknown option $1" ;; *) misuse "unknown word \"$1\"" ;; esac
    case $1 in
      --quick) quick=yes ;;
      --) extra=("${@:2}"); break ;;
      -*)
        [ $# -ge 2 ] || misuse "$1 needs a value"
        option=${1#--}
        if [ "$1" = -o ]; then folder=$2; else declare -g "${option//-/_}=$2"; fi
        shift
        ;;
      *) sections+=("$1") ;;
    esac
    shift
  done
  [ ${#sections[@]} -gt 0 ] || read -ra sections <<<"$usual"
  shakespeare=$text
  if [[ $known == *" --tacit "* ]]; then
    [ -x "$tacit" ] || { echo "${0##*/}: there is no program $tacit; build it: cmake --preset release && cmake --build build/release" >&2; exit 7; }
    tacit=$(realpath "$tacit")
  fi
  folder=${folder:-build/$own${quick:+-quick}}
  mkdir -p "$folder" || exit 7
  folder=$(realpath "$folder")
  page=docs/results/$own.md pictures=docs/img
  if [ -n "$quick" ] || [ ! -f "$page" ]; then page="" pictures=$folder; fi
  guard_lab
}

# make_tables [COMMAND...]: tables of what FOLDER holds, and COMMAND, which draws their pictures.
make_tables() {
  # shellcheck disable=SC2086 # no word when there is no page
  /usr/bin/env python3 "${self%.sh}_tables.py" "$folder" $page && { [ $# -eq 0 ] || "$@"; }
}

# run_sections [COMMAND...]: the sections of this run, and at the end make_tables.
run_sections() {
  local section
  for section in "${sections[@]}"; do [ "$section" = tables ] || "section_$section"; done
  make_tables "$@" || failures=$((failures + 1))
  [ "$failures" -eq 0 ] || { echo "${0##*/}: $failures failed; run it again to repeat them alone" >&2; exit 1; }
}

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
  command=${command//" --name ${name:-}"/}
  command=${command//"$text"/${text_name:-input.txt}}
  command=${command//"$folder/"/}
  command=${command//"$tacit"/tacit}
  command=${command//"$MPIRUN"/mpirun}
  echo "$command" >"$answer.command"
  git describe --always --dirty >"$answer.commit" 2>/dev/null || rm -f "$answer.commit"
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

# keep_run FOLDER/NAME COMMAND...: a run into the folder $folder/run whose metrics become FOLDER/NAME.jsonl, unless they are there.
keep_run() {
  local answer=$folder/$1.jsonl log=$1.txt
  shift
  [ ! -s "$answer" ] || return 0
  rm -rf "$folder/run" "${folder:?}/$log"
  record "$log" "$@" || return 0
  mv "$folder/run/metrics.jsonl" "$answer" || exit 1
}

# train_run FOLDER/NAME PREFIX FLAG...: such a run of the network of shakespeare.yaml. PREFIX is what launches the ranks.
train_run() {
  local answer=$1 prefix=$2
  shift 2
  # shellcheck disable=SC2086 # words
  keep_run "$answer" $prefix "$tacit" train scripts/results/shakespeare.yaml --data.train "$text" --run.dir "$folder/run" "$@"
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

# Verses in their order without their numbers, from Debian's packages bible-kjv and bible-kjv-text; nothing is installed.
fetch_bible() {
  local kjv=$folder/kjv package
  mkdir -p "$kjv"
  for package in bible-kjv bible-kjv-text; do
    (cd "$kjv" && apt-get download "$package" >&2 && dpkg -x "$package"_*.deb .) || return 1
  done
  "$kjv/usr/bin/bible" -p "$kjv/usr/lib" -f Gen1:1-Rev22:21 </dev/null >"$kjv/verses" || return 1
  sed 's/^[^ ]* //' "$kjv/verses" | head -c 1200000 >"$folder/bible.part"
  mv "$folder/bible.part" "$folder/bible.txt"
}

# The manuals of Debian's package manpages-dev as they are written, in the order of their names.
fetch_pages() {
  local at=$folder/manpages
  mkdir -p "$at"
  (cd "$at" && apt-get download manpages-dev >&2 && dpkg -x manpages-dev_*.deb .) || return 1
  find "$at/usr/share/man/man2" "$at/usr/share/man/man3" -type f -name '*.gz' | LC_ALL=C sort | xargs zcat | head -c 1200000 >"$folder/pages.part"
  mv "$folder/pages.part" "$folder/pages.txt"
}

# use_text shakespeare|bible|pages: sets text and text_name.
use_text() {
  text_name=$1.txt
  case $1 in
    shakespeare) text=$shakespeare && find_text ;;
    bible)
      text=$folder/bible.txt
      [ -s "$text" ] || fetch_bible || { echo "${0##*/}: no $text; put 1.2 MB of English prose there" >&2; exit 7; }
      ;;
    pages)
      text=$folder/pages.txt
      [ -s "$text" ] || fetch_pages || { echo "${0##*/}: no $text; put 1.2 MB of text there" >&2; exit 7; }
      ;;
    *) echo "${0##*/}: unknown text \"$1\"" >&2; exit 2 ;;
  esac
}

. lab/own.sh

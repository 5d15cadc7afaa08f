# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=folder -DLIST=file -DOUTPUT=builtin_text.c -P pack_text.cmake
#
# Packs the text files named in LIST (one path relative to ROOT per line) into a C array, so that a fresh program has
# something to learn from without a download. The array is of big-endian 64-bit words, zero-padded: eight times fewer
# literals than bytes, which the compiler reads in a tenth of a second.
cmake_minimum_required(VERSION 3.20)
file(STRINGS "${LIST}" paths)
file(WRITE "${OUTPUT}.tmp" "/* Made by cmake/pack_text.cmake. */
#include \"data/builtin.h\"

const uint64_t taciti_builtin_words[] = {
")
set(total 0)
set(rest "") # of the files so far, too short for a word
foreach(path IN LISTS paths)
  string(HEX "==== ${path}\n" title)
  file(READ "${ROOT}/${path}" text HEX)
  string(LENGTH "${title}${text}" digits)
  math(EXPR total "${total} + ${digits} / 2")
  set(all "${rest}${title}${text}")
  string(LENGTH "${all}" length)
  math(EXPR whole "${length} / 16 * 16")
  string(SUBSTRING "${all}" ${whole} -1 rest)
  string(SUBSTRING "${all}" 0 ${whole} all)
  string(REGEX REPLACE "................" "0x\\0,\n" words "${all}")
  file(APPEND "${OUTPUT}.tmp" "${words}")
endforeach()
string(SUBSTRING "${rest}0000000000000000" 0 16 last)
file(APPEND "${OUTPUT}.tmp" "0x${last}};
const size_t taciti_builtin_bytes = ${total};
")
file(RENAME "${OUTPUT}.tmp" "${OUTPUT}")

# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=folder -DLIST=file -DOUTPUT=builtin_text.c -P pack_text.cmake
#
# Packs the text files named in LIST (one path relative to ROOT per line) into a C array, so that a fresh program has
# something to learn from without a download. The array is of big-endian 64-bit words, zero-padded: eight times fewer
# literals than bytes, which the compiler reads in a tenth of a second.
cmake_minimum_required(VERSION 3.20)
file(STRINGS "${LIST}" paths)
set(all "")
foreach(path IN LISTS paths)
  string(HEX "==== ${path}\n" title)
  file(READ "${ROOT}/${path}" text HEX)
  string(APPEND all "${title}${text}")
endforeach()
string(LENGTH "${all}" digits)
math(EXPR bytes "${digits} / 2")
string(APPEND all "0000000000000000")
string(REGEX REPLACE "................" "0x\\0,\n" words "${all}")
string(REGEX REPLACE ",\n[0-9a-f]*$" "\n" words "${words}")
file(WRITE "${OUTPUT}.tmp" "/* Made by cmake/pack_text.cmake. */
#include \"data/builtin.h\"

const size_t taciti_builtin_bytes = ${bytes};
const uint64_t taciti_builtin_words[] = {
${words}};
")
file(RENAME "${OUTPUT}.tmp" "${OUTPUT}")

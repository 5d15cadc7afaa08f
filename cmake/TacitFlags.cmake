# SPDX-License-Identifier: Apache-2.0
# One set of flags for the library, the program and the tests. No fast-math, no contraction: two builds of one codec must
# emit the same bytes. Instruction sets are chosen at run time; src/kernel/CMakeLists.txt has their flags.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_library(tacit_flags INTERFACE)
target_compile_options(tacit_flags INTERFACE
  -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion -Wstrict-prototypes
  -Wmissing-prototypes -Wcast-qual -Wcast-align -Wwrite-strings -Wpointer-arith -Wundef -Wvla -Wformat=2 -Wswitch-enum
  -Wimplicit-fallthrough -Wnull-dereference)
if(TACIT_WERROR)
  target_compile_options(tacit_flags INTERFACE -Werror)
endif()
if(TACIT_SANITIZE)
  # Reports need lines. To follow variables through instrumented code would more than double the time of some files.
  set(tacit_san -O1 -fsanitize=${TACIT_SANITIZE} -fno-omit-frame-pointer -g1)
  if(TACIT_SANITIZE MATCHES "undefined")
    list(APPEND tacit_san -fsanitize=float-cast-overflow,float-divide-by-zero -fno-sanitize-recover=all)
  endif()
  # gcc's flow warnings see the instrumented code and invent paths.
  target_compile_options(tacit_flags INTERFACE ${tacit_san} -Wno-null-dereference
    $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
  target_link_options(tacit_flags INTERFACE ${tacit_san})
else()
  target_compile_options(tacit_flags INTERFACE $<$<CONFIG:Release>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2> -fstack-protector-strong)
endif()

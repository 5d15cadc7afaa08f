/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes the place of stdin where a static libjansson is part of the library (cmake/TacitWheel.cmake). Debian's is not
 * position-independent in one respect: json_loadf() compares its file with stdin, to choose a word for messages. The
 * linker's --wrap=stdin sends it here. The library itself does not read stdin.
 */
#include <stdio.h>

extern FILE *__wrap_stdin;
FILE *__wrap_stdin;

/* SPDX-License-Identifier: Apache-2.0
 *
 * The text packed into the library at build time: the project's own sources, headers and docs, each after a line
 * "==== path". The array itself is made by cmake/pack_text.cmake.
 */
#ifndef TACITI_DATA_BUILTIN_H
#define TACITI_DATA_BUILTIN_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

extern const size_t taciti_builtin_bytes;
extern const uint64_t taciti_builtin_words[]; /* byte i is bits 56 - 8 (i mod 8) ... of word i / 8 */

/* The text as bytes; *count receives how many. Returns owned; taciti_free(). */
tacit_status taciti_builtin_text(unsigned char **out, size_t *count);

#endif

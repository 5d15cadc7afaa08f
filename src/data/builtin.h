/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in training text: the project's own sources, headers and docs, each after a line "==== path".
 * cmake/pack_text.cmake generates the array at build time.
 */
#ifndef TACITI_DATA_BUILTIN_H
#define TACITI_DATA_BUILTIN_H

#include <stddef.h>
#include <stdint.h>

extern const size_t taciti_builtin_bytes;
extern const uint64_t taciti_builtin_words[]; /* byte i is bits 56 - 8 (i mod 8) ... of word i / 8 */

#endif

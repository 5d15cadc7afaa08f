/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2's pre-tokenizer: cuts text into pieces that are then merged on their own. It accepts exactly
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * (Radford et al. 2019, encoder.py), alternatives tried in this order, \s being Unicode's White_Space. The pattern
 * never looks back, so text can be cut piece by piece.
 *
 * Where we deviate: any bytes are legal. A byte that is not part of well-formed UTF-8 counts as one character that is
 * neither letter, number nor space, and is kept (the reference would have replaced it before).
 */
#ifndef TACITI_DATA_PRETOKEN_H
#define TACITI_DATA_PRETOKEN_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the first piece of text[0 .. bytes), bytes >= 1. 0: more text must be seen to know where it ends; never
 * when `final` says that none follows. */
size_t taciti_pretoken(const char *text, size_t bytes, bool final);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2's pre-tokenizer: cuts text into pieces that are merged independently. It matches exactly
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * (Radford et al. 2019, encoder.py), alternatives tried in this order, \s being Unicode's White_Space. The pattern
 * never looks back, so text can be cut piece by piece.
 *
 * Where we deviate: any bytes are legal. A byte that is not part of well-formed UTF-8 counts as one character that is
 * neither letter, number nor space, and is preserved; the reference replaces it.
 */
#ifndef TACITI_DATA_PRETOKEN_H
#define TACITI_DATA_PRETOKEN_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the bytes of the first piece of text[0 .. bytes), bytes >= 1. Returns 0 if more text is needed to find its
 * end, which cannot happen if `final` says that no text follows. */
size_t taciti_pretoken(const char *text, size_t bytes, bool final);

#endif

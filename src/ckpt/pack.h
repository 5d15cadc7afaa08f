/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of state (tensor/state.h) of one rank as one string of bytes in memory: the values of its entries, one after
 * the other, without names. They come back bit for bit to a table of the same entries. Padding of whole arrays is part
 * of the string. Any thread, not collective.
 */
#ifndef TACITI_CKPT_PACK_H
#define TACITI_CKPT_PACK_H

#include "tensor/state.h"

size_t taciti_pack_entry_bytes(const taciti_state_entry *entry);

/* The size of the string. E_INTERNAL if the table has more entries than fit. */
tacit_status taciti_pack_bytes(const taciti_state *state, size_t *out);

/* Writes taciti_pack_bytes() bytes; neither they nor `bytes` need be aligned. */
void taciti_pack(const taciti_state *state, unsigned char *out);

/* E_DATA unless taciti_unpack() may have these bytes: no count is below 0. */
tacit_status taciti_pack_check(const taciti_state *state, const unsigned char *bytes);
void taciti_unpack(const taciti_state *state, const unsigned char *bytes);

#endif

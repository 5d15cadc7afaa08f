/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of state (tensor/state.h) of one rank as one string of bytes in memory: the values of its entries, one after
 * the other, without names. They come back bit for bit to a table of the same entries. Padding of whole arrays is part
 * of the string. Any thread, not collective.
 */
#ifndef TACITI_CKPT_PACK_H
#define TACITI_CKPT_PACK_H

#include "base/memory.h"
#include "tensor/state.h"

size_t taciti_pack_entry_bytes(const taciti_state_entry *entry);

/* The size of the string. E_INTERNAL if the table has more entries than fit. */
tacit_status taciti_pack_bytes(const taciti_state *state, size_t *out);

/* Writes taciti_pack_bytes() bytes; neither they nor `bytes` need be aligned. */
void taciti_pack(const taciti_state *state, unsigned char *out);

/* Copies the values to pages of their own, from which taciti_unpack() brings them back. Zeros take no memory there, so
 * the copy of a job that has not started is about as large as its parameters. The caller destroys the pages. */
tacit_status taciti_pack_aside(const taciti_state *state, taciti_pages *out);

/* E_DATA unless taciti_unpack() may have these bytes: no count is below 0. */
tacit_status taciti_pack_check(const taciti_state *state, const unsigned char *bytes);
void taciti_unpack(const taciti_state *state, const unsigned char *bytes);

#endif

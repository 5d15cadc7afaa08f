/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizes text at the start of a run: a segment of bytes becomes a segment of ids in memory. Text that does not fit
 * in memory must be converted to shards with `tacit data prepare`.
 */
#ifndef TACITI_DATA_TEXT_H
#define TACITI_DATA_TEXT_H

#include "data/data.h"
#include "data/tokens.h"

/* Replaces the bytes of a segment, in a file or in memory, by their ids: 2 bytes each if the vocabulary allows, else 4.
 * Leaves the segment unchanged on failure. */
tacit_status taciti_text_encode(const taciti_tokenizer *tokenizer, taciti_segment *segment);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that a run tokenizes by itself: a segment of bytes becomes a segment of ids in memory. For text that is large
 * next to the memory, `tacit data prepare` writes shards once instead.
 */
#ifndef TACITI_DATA_TEXT_H
#define TACITI_DATA_TEXT_H

#include "data/data.h"
#include "data/tokens.h"

/* Replaces the bytes of a segment, in a file or in memory, by their ids: 2 bytes each when the vocabulary allows, else
 * 4. The segment is unchanged on failure. */
tacit_status taciti_text_encode(const taciti_tokenizer *tokenizer, taciti_segment *segment);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes text that is larger than memory through a moving window. An encoder consumes the pieces whose end it can
 * determine and leaves the rest. The ids are those of the whole text, wherever the window ends.
 */
#ifndef TACITI_DATA_TOKENIZER_H
#define TACITI_DATA_TOKENIZER_H

#include "base/file.h"
#include "data/bpe.h"
#include "data/data.h"

struct taciti_tokenizer {
    int32_t vocabulary;
    bool is_bpe;
    taciti_bpe bpe;  /* when is_bpe */
    char bytes[256]; /* else: the piece of id i is bytes[i] */
};

/* Ids in a growing array. */
typedef struct taciti_ids {
    int32_t *ids; /* owned */
    size_t count, capacity;
} taciti_ids;
void taciti_ids_destroy(taciti_ids *ids); /* {0} is fine */

/* A tokenizer with scratch memory and a cache of words. Borrows the tokenizer; one thread. Returns owned. */
typedef struct taciti_encoder taciti_encoder;
tacit_status taciti_encoder_create(const taciti_tokenizer *tokenizer, taciti_encoder **out);
void taciti_encoder_destroy(taciti_encoder *encoder);

/* A window of a text. */
typedef struct taciti_window {
    const char *text;
    size_t bytes;
    size_t stop; /* pieces that begin at or after this byte are not encoded */
    bool final;  /* no text follows the window */
    /* For messages: name of the text (NULL: none) and the window's offset in it. */
    const char *name;
    uint64_t offset_bytes;
} taciti_window;

/* Longest piece, one run of letters, digits, signs or spaces. Real text has none that long; the limit bounds memory. */
#define TACITI_PIECE_BYTES ((size_t)4 << 20)

/* Appends the ids of all pieces whose end is known; *used receives their bytes. *used < stop means that more text is
 * needed. */
tacit_status taciti_encoder_feed(taciti_encoder *encoder, const taciti_window *window, taciti_ids *ids, size_t *used);

/* Encodes the pieces of a file that begin in bytes [from, stop) and passes their ids to `sink`. A piece must begin at
 * `from`; *reached receives the end of the last piece. */
typedef tacit_status taciti_ids_sink(void *context, const int32_t *ids, size_t count, uint64_t bytes_done);
typedef struct taciti_file_range {
    const taciti_view *view;
    uint64_t from, stop;
} taciti_file_range;
tacit_status taciti_encode_file(taciti_encoder *encoder, const taciti_file_range *range, taciti_ids_sink *sink,
                                void *context, uint64_t *reached);

#endif

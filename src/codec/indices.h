/* SPDX-License-Identifier: Apache-2.0
 *
 * Index coders: how a payload stores which k of n elements it holds. Indices are ascending and below n < 2^32.
 */
#ifndef TACITI_CODEC_INDICES_H
#define TACITI_CODEC_INDICES_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

typedef struct taciti_index_coder {
    const char *name, *help, *source;
    int id; /* in payloads; never changes */

    /* Exact bytes of these indices. */
    size_t (*bytes)(const uint32_t *indices, size_t k, size_t n);
    /* Maximum over all sets of k indices. */
    size_t (*bound)(size_t k, size_t n);
    /* Writes bytes() bytes, which may overwrite up to 7 more. */
    void (*encode)(const uint32_t *indices, size_t k, size_t n, void *out);
    /* Returns E_DATA unless `in` holds exactly k ascending indices below n in exactly that many bytes. indices[k] may
     * have been written in either case. */
    tacit_status (*decode)(const void *in, size_t bytes, uint32_t *indices, size_t k, size_t n);
} taciti_index_coder;

extern const taciti_index_coder taciti_index_coder_rice;
const taciti_index_coder *const *taciti_index_coder_list(void); /* ends with NULL; any thread */
const taciti_index_coder *taciti_index_coder_at(int id);        /* NULL: there is none */

/* The coder that needs the fewest bytes for these indices, and that number. */
const taciti_index_coder *taciti_index_coder_best(const uint32_t *indices, size_t k, size_t n, size_t *bytes);

/* log2 of the number of ways to choose k of n, divided by k: bits per index below which no coder gets on average. */
double taciti_index_entropy(size_t k, size_t n);

#endif

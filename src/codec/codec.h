/* SPDX-License-Identifier: Apache-2.0
 *
 * f32[n] <-> bytes, one method per file. A codec knows one array and a random key; it knows no communicator, allocates
 * nothing, prints nothing and keeps no residual (error feedback belongs to the exchange and works for any codec).
 *
 * The aggregation class is part of the type:
 *   SUM     decode_add of every rank's payload, in rank order, is the sum of the arrays
 *   GATHER  payloads of different ranks select different elements; they are decoded one by one
 *   VOTE    payloads are votes that an aggregator combines
 *
 * A new codec is one C file and one line in codec/registry.c.
 */
#ifndef TACITI_CODEC_CODEC_H
#define TACITI_CODEC_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

typedef enum taciti_codec_class { TACITI_CODEC_SUM, TACITI_CODEC_GATHER, TACITI_CODEC_VOTE } taciti_codec_class;

typedef struct taciti_codec {
    const char *name;   /* "f32": option value, payload record, documentation */
    const char *help;   /* one sentence */
    const char *source; /* paper or standard */
    taciti_codec_class aggregation;
    int rounds;   /* exchanges per bucket; 1 for all codecs that need no intermediate result */
    int lossless; /* decode(encode(x)) == x for every finite x */
    int identity; /* payload bytes are the array's bytes: the exchange may send from the array itself */

    /* Most bytes that encode can write for n floats. */
    size_t (*bound)(size_t n);

    /* Encodes x[n] into out (at least bound(n) bytes, like every payload aligned to 4) and returns the bytes written.
     * key: (seed, step, rank, bucket) folded, for stochastic methods. Comm thread; never blocks. */
    size_t (*encode)(const float *x, size_t n, uint64_t key, void *out);

    /* The same in one pass with what the payload lacks: rest[n] = x - decoded payload. */
    size_t (*split)(const float *x, size_t n, uint64_t key, void *out, float *rest);

    /* x[n] = decoded payload. Validates everything before it writes anything; E_DATA says the payload is malformed
     * and leaves x untouched. */
    tacit_status (*decode)(const void *payload, size_t bytes, float *x, size_t n);

    /* x[n] += decoded payload; same contract. */
    tacit_status (*decode_add)(const void *payload, size_t bytes, float *x, size_t n);

    /* Seconds to encode, or to decode_add, n floats where memory moves `bytes_per_s` (reads + writes): the planner's
     * formula. An identity codec whose array is sent directly does not pay for its encode. */
    double (*encode_cost_s)(size_t n, double bytes_per_s);
    double (*decode_cost_s)(size_t n, double bytes_per_s);
} taciti_codec;

/* All codecs, ending with NULL. Any thread. */
const taciti_codec *const *taciti_codec_list(void);

/* The codec called `name`, or NULL. Any thread. */
const taciti_codec *taciti_codec_find(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantisers: codecs of class SUM that turn every element of an array into a code of a few bits. The array is cut into
 * blocks, and each block has a few parameters (a scale, two means). quantiser.c makes the codec's functions from what
 * one method computes, and does everything else: packing, errors, tallies, values that are not finite, checks.
 *
 * Wire layout       bytes                        a decoder rejects
 *   parameters      4 per parameter and block    a block whose parameters are neither all finite nor all NaN, or that
 *                                                the method calls illegal
 *   codes           bits() of n codes            a code that the method does not use; any other size
 *
 * A block with an element that is not finite has parameters NaN and decodes to NaN throughout.
 */
#ifndef TACITI_CODEC_QUANTISER_H
#define TACITI_CODEC_QUANTISER_H

#include "codec/codec.h"

enum {
    TACITI_QUANTISER_PIECE = 640,   /* elements that are quantised at a time; multiple of 16 */
    TACITI_QUANTISER_PARAMETERS = 4 /* maximum per block */
};

typedef struct taciti_quantiser_shape {
    size_t block;      /* elements per block, rounded up to a multiple of 8; 0: the whole array */
    size_t parameters; /* floats per block, 1 .. TACITI_QUANTISER_PARAMETERS */
    unsigned codes;    /* legal codes are 0 .. codes - 1; 2 .. 256, in whole bits */
} taciti_quantiser_shape;

/* Consecutive elements of one block, and the place of the first in the array, which counts random numbers. */
typedef struct taciti_quantiser_part {
    const float *x;
    size_t n, first;
} taciti_quantiser_part;

/* taciti_codec.method of a quantiser. */
typedef struct taciti_quantiser {
    taciti_quantiser_shape (*shape)(const void *options);

    /* Sets the parameters of a block, whose elements are all finite. They must be finite. */
    void (*measure)(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters);

    /* codes[part->n]; parts are whole blocks, or pieces of a block longer than TACITI_QUANTISER_PIECE. */
    void (*quantise)(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                     uint8_t *codes);

    /* Whether a decoder accepts these finite parameters. NULL: any. */
    bool (*legal)(const void *options, const float *parameters);

    /* y[n] = what the codes stand for. */
    void (*restore)(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y);
} taciti_quantiser;

size_t taciti_quantiser_bound(const taciti_codec *codec, const void *options, size_t n);
tacit_status taciti_quantiser_encode(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                                     void *out, float *error, size_t *bytes);
tacit_status taciti_quantiser_decode(const taciti_codec *codec, const taciti_codec_call *call, const void *payload,
                                     size_t bytes, float *x, size_t n, bool add);

/* Fields of a codec with a quantiser. */
#define TACITI_QUANTISER(quantiser)                                                                                    \
    .aggregation = TACITI_CODEC_SUM, .rounds = 1, .fixed_size = true, .method = &(quantiser),                          \
    .bound = taciti_quantiser_bound, .encode = taciti_quantiser_encode, .decode = taciti_quantiser_decode

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Value formats: how a payload stores numbers, all of an array or those that a selector has chosen. A format with
 * blocks stores one scale per block of `block` numbers. A non-finite number makes at least its block decode to
 * non-finite numbers. Payloads are aligned to 4 and little endian.
 */
#ifndef TACITI_CODEC_VALUES_H
#define TACITI_CODEC_VALUES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/rng.h"
#include "kernel/kernel.h"
#include "tacit/tacit.h"

/* Ids of formats, in payloads; they never change. */
enum {
    TACITI_VALUES_F32,
    TACITI_VALUES_BF16,
    TACITI_VALUES_FP16,
    TACITI_VALUES_INT8,
    TACITI_VALUES_INT4,
    TACITI_VALUES_SIGNMAG2,
    TACITI_VALUES_SIGNMEAN,
    TACITI_VALUES_E3M0
};

typedef struct taciti_values_options {
    size_t block;  /* numbers per scale, rounded up to a multiple of 32, up to 4096; 0: the format's default */
    bool hadamard; /* rotate groups of 32 numbers before they are rounded (spreads outliers); for int8 and int4 */
} taciti_values_options;

typedef struct taciti_value_format {
    const char *name, *help, *source;
    int id;        /* TACITI_VALUES_... */
    bool lossless; /* for finite numbers */
    bool rotates;  /* taciti_values_options.hadamard has an effect */

    /* Bytes of n numbers. Grows with n. */
    size_t (*bytes)(const taciti_values_options *options, size_t n);

    /* error[n], if not NULL, receives x - decoded in the same pass; it overlaps neither x nor out. squares, if not
     * NULL, receives |x|^2 and |decoded|^2, the same bits on every instruction set. */
    void (*encode)(const taciti_values_options *options, const float *x, size_t n, void *out, float *error,
                   taciti_squares *squares);

    /* Every content of `payload`, which has bytes(n), is legal. x[n] = decoded, or x[n] += decoded. */
    void (*decode)(const taciti_values_options *options, const void *payload, float *x, size_t n);
    void (*decode_add)(const taciti_values_options *options, const void *payload, float *x, size_t n);
} taciti_value_format;

const taciti_value_format *const *taciti_value_format_list(void); /* ends with NULL; any thread */
const taciti_value_format *taciti_value_format_at(int id);        /* NULL: there is none */
const char *taciti_value_format_name(size_t index);               /* for an option of type NAME */
const taciti_value_format *taciti_value_format_find(const char *name);

#endif

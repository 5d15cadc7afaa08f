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

#include "kernel/kernel.h"

/* Ids of formats, in payloads; they never change. */
enum {
    TACITI_VALUES_F32,
    TACITI_VALUES_BF16,
    TACITI_VALUES_FP16,
    TACITI_VALUES_INT8,
    TACITI_VALUES_INT4,
    TACITI_VALUES_SIGNMAG2,
    TACITI_VALUES_SIGNMEAN
};

typedef struct taciti_value_format taciti_value_format;
struct taciti_value_format {
    const char *name, *help, *source;
    int id;                         /* TACITI_VALUES_... */
    bool lossless;                  /* for finite numbers */
    unsigned bits;                  /* per number, without scales */
    taciti_quantisation quantising; /* of formats with scales; block 0: numbers stand alone */

    /* Functions receive their format first. error[n], if not NULL, receives x - decoded in the same pass; it overlaps
     * neither x nor out, which has taciti_values_bytes(n). squares, if not NULL, receives |x|^2 and |decoded|^2, the
     * same bits on every instruction set. */
    void (*encode)(const taciti_value_format *format, const float *x, size_t n, void *out, float *error,
                   taciti_squares *squares);

    /* Every content of `payload`, which has taciti_values_bytes(n), is legal. x[n] = decoded; add: x[n] += decoded. */
    void (*decode)(const taciti_value_format *format, const void *payload, float *x, size_t n, bool add);
};

/* Bytes of n numbers. Grows with n. Any thread. */
size_t taciti_values_bytes(const taciti_value_format *format, size_t n);

/* The formats of the list, in its order, and int4 of groups of 32 numbers that are rotated before they are rounded,
 * which spreads outliers: codecs of all elements use it. */
extern const taciti_value_format taciti_values_f32, taciti_values_bf16, taciti_values_fp16, taciti_values_int8,
    taciti_values_int4, taciti_values_signmag2, taciti_values_signmean, taciti_values_rotated;

const taciti_value_format *const *taciti_value_format_list(void); /* ends with NULL; any thread */
const taciti_value_format *taciti_value_format_at(int id);        /* NULL: there is none */
const char *taciti_value_format_name(size_t index);               /* for an option of type NAME */
const taciti_value_format *taciti_value_format_find(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A selector chooses the elements of an array that a payload holds. A composed codec consists of a selector, a value
 * format (values.h) and an index coder (indices.h): composed.c makes the codec's functions from these three, and one
 * file per selector registers the result. Its payload:
 *
 *   header   kept elements, value format, index coder, bytes of the indices
 *   indices  by the coder; none if all elements are kept, or if both sides know them (randomk)
 *   values   by the format, in the order of the indices
 */
#ifndef TACITI_CODEC_SELECTOR_H
#define TACITI_CODEC_SELECTOR_H

#include "codec/codec.h"
#include "codec/indices.h"
#include "codec/values.h"

/* The options of a composed codec, or their first member. A codec without options: the selector's values, the shortest
 * indices. */
typedef struct taciti_composed_options {
    taciti_text values;  /* topk.values: name of a value format; empty: the selector's */
    taciti_text indices; /* topk.indices: name of an index coder, or auto or empty: the shortest */
} taciti_composed_options;

const char *taciti_composed_index_name(size_t index);

/* The findings of a selector. The caller provides `indices` and `values`, each with room for n elements and 16 more,
 * sets `error` and `measure`, and zeros the rest. */
typedef struct taciti_selection {
    uint32_t *indices; /* ascending */
    float *values;     /* x[indices[i]], bit for bit */
    float *error;      /* [n]: the selector writes x with 0 where elements were selected; NULL: not wanted */
    bool measure;      /* near and squares are wanted */
    size_t count;      /* of indices. If it is n, the arrays need not be filled */
    double threshold;  /* the smallest magnitude selected, or 0 if magnitudes do not decide */
    uint64_t near;     /* elements with |x| >= threshold / 2; top-k takes a threshold that it estimates from a sample */
    double squares;    /* |x|^2, in double */
} taciti_selection;

typedef struct taciti_estimate {
    uint32_t bits;    /* of the threshold's magnitude (kernel.h) */
    double max_ratio; /* if more than max_ratio times k elements reach it, the k largest of those are sent; 0: never */
} taciti_estimate;

/* taciti_codec.method of a composed codec. largest.h has what selectors by magnitude need. */
typedef struct taciti_selector {
    /* Selects from x[n], n > 0, at least one element unless all are 0 or the setting has a threshold, and every element
     * that is not finite. `scratch` has scratch_bytes(n), aligned to 64. Fills *out. NULL: by `estimate`. */
    void (*select)(const taciti_codec_call *call, const float *x, size_t n, void *scratch, taciti_selection *out);

    /* A threshold that about k elements of x[n] reach, instead of that of the k largest: as many elements as reach it
     * are sent, which the tally tells. x is finite, 0 < k < n; work: n floats. */
    taciti_estimate (*estimate)(const taciti_codec_call *call, const float *x, size_t n, size_t k, float *work);

    size_t (*scratch_bytes)(size_t n); /* NULL: n floats */

    /* Elements that are selected, for predictions. NULL: n / factor. */
    size_t (*kept)(const taciti_codec_call *call, size_t n);

    /* For selectors whose indices both sides can compute: writes them ascending, from a call without a setting.
     * Payloads then hold none. `scratch` as above. NULL: payloads hold indices. */
    void (*known)(const taciti_codec_call *call, size_t n, size_t kept, void *scratch, uint32_t *indices);

    const char *values; /* value format, unless options name one; NULL: f32 */
} taciti_selector;

/* The functions of a composed codec. All n < 2^32. */
size_t taciti_composed_bound(const taciti_codec *codec, const void *options, size_t n);
size_t taciti_composed_scratch_bytes(const taciti_codec *codec, const void *options, size_t n);
tacit_status taciti_composed_encode(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                                    void *out, float *error, size_t *bytes);
tacit_status taciti_composed_decode(const taciti_codec *codec, const taciti_codec_call *call, const void *payload,
                                    size_t bytes, float *x, size_t n, bool add);

/* Mean bytes of a payload with indices at random. */
double taciti_composed_expected_bytes(const taciti_codec *codec, const taciti_codec_call *call, size_t n);

/* Fields of a codec with a selector. */
#define TACITI_COMPOSED(selector)                                                                                      \
    .aggregation = TACITI_CODEC_GATHER, .rounds = 1, .method = &(selector), .bound = taciti_composed_bound,            \
    .expected_bytes = taciti_composed_expected_bytes, .scratch_bytes = taciti_composed_scratch_bytes,                  \
    .encode = taciti_composed_encode, .decode = taciti_composed_decode

/* selected[n] = the elements of x that the codec's selector chooses, 0 elsewhere; error[n], unless NULL, = x -
 * selected. The result is that of an encode with values in f32 and its decode, without a payload; call as of encode. */
void taciti_composed_select(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                            float *selected, float *error);

/* max(1, floor(n / factor)), at most n; factor 0: `fallback`. */
enum { TACITI_FACTOR = 100 };
static inline size_t taciti_kept_of(double factor, double fallback, size_t n) {
    const double used = factor > 0 ? factor : fallback, kept = (double)n / used;
    if (!(kept >= 1)) return n > 0;
    return kept < (double)n ? (size_t)kept : n;
}

#endif

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

/* The first member of the options of every composed codec; TACITI_COMPOSED_OPTIONS lists its keys. */
typedef struct taciti_composed_options {
    taciti_text values;  /* <codec>.values: name of a value format */
    taciti_text indices; /* <codec>.indices: name of an index coder, or auto: the shortest */
    int64_t block;       /* <codec>.block: values per scale */
    bool hadamard;       /* <codec>.hadamard */
} taciti_composed_options;

/* What a selector found. Both arrays have room for n elements and 16 more. */
typedef struct taciti_selection {
    uint32_t *indices; /* ascending */
    float *values;     /* x[indices[i]], bit for bit */
    size_t count;
    double threshold; /* the smallest magnitude selected, or 0 if magnitudes do not decide */
    uint64_t near;    /* elements with |x| >= threshold / 2 */
} taciti_selection;

typedef struct taciti_selector {
    /* Selects from x[n], n > 0, at least one element unless all are 0, and every element that is not finite. `scratch`
     * has scratch_bytes(n). Fills *out, whose arrays the caller provides. */
    void (*select)(const taciti_codec_call *call, const float *x, size_t n, void *scratch, taciti_selection *out);
    size_t (*scratch_bytes)(size_t n); /* NULL: none */

    /* For selectors whose indices both sides can compute: writes them ascending. Payloads then hold none. NULL: not. */
    size_t (*known)(const taciti_codec_call *call, size_t n, size_t kept, uint32_t *indices);
} taciti_selector;

/* composed.c: the functions of a codec; `selector` is that of the codec's file. */
size_t taciti_composed_bound(const void *options, size_t n);
size_t taciti_composed_scratch_bytes(const taciti_selector *selector, size_t n);
double taciti_composed_expected_bytes(const void *options, taciti_codec_setting setting, size_t n);
tacit_status taciti_composed_encode(const taciti_selector *selector, const taciti_codec_call *call, const float *x,
                                    size_t n, void *out, float *error, size_t *bytes);
tacit_status taciti_composed_decode(const taciti_selector *selector, const taciti_codec_call *call, const void *payload,
                                    size_t bytes, float *x, size_t n);
tacit_status taciti_composed_decode_add(const taciti_selector *selector, const taciti_codec_call *call,
                                        const void *payload, size_t bytes, float *x, size_t n);

/* max(1, floor(n / factor)), at most n; factor 0: `fallback`. */
size_t taciti_kept_of(double factor, double fallback, size_t n);

#endif

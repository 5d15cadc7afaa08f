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
    taciti_text values;  /* <codec>.values: name of a value format; empty: f32 */
    taciti_text indices; /* <codec>.indices: name of an index coder, or auto or empty: the shortest */
    int64_t block;       /* <codec>.block: values per scale; 0: the format's default */
    bool hadamard;       /* <codec>.hadamard */
} taciti_composed_options;

/* Rows of an option table whose struct `type` has the member `composed`, with the defaults of values and indices. The
 * first without the indices, for codecs that send none. */
#define TACITI_VALUE_OPTIONS(type, default_values)                                                                     \
    TACITI_OPTION("values", NAME, offsetof(type, composed.values), default_values, .names = taciti_value_format_name,  \
                  .help = "how the selected values are stored"),                                                       \
        TACITI_OPTION("block", INT, offsetof(type, composed.block), "0", .max = 4096, .unit = "values",                \
                      .flags = TACITI_OPTION_EXPERT, .when = "scales",                                                 \
                      .help = "values per scale, for formats with scales; 0: the format's default"),                   \
        TACITI_OPTION("hadamard", BOOL, offsetof(type, composed.hadamard), "false", .flags = TACITI_OPTION_EXPERT,     \
                      .when = "rotation",                                                                              \
                      .help = "rotate groups of 32 values before int8 or int4 rounds them, which spreads outliers")
#define TACITI_COMPOSED_OPTIONS(type, default_values, default_indices)                                                 \
    TACITI_VALUE_OPTIONS(type, default_values),                                                                        \
        TACITI_OPTION("indices", NAME, offsetof(type, composed.indices), default_indices,                              \
                      .names = taciti_composed_index_name, .help = "how the indices are stored; auto: the shortest")
const char *taciti_composed_index_name(size_t index);

/* What a selector found. The caller provides `indices` and `values`, each with room for n elements and 16 more, sets
 * `error` and `measure`, and zeros the rest. */
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

/* largest.h has what selectors by magnitude need. */
typedef struct taciti_selector {
    const char *name; /* of the codec, for errors */

    /* Selects from x[n], n > 0, at least one element unless all are 0 or the setting has a threshold, and every element
     * that is not finite. `scratch` has scratch_bytes(n), aligned to 64. Fills *out. */
    void (*select)(const taciti_codec_call *call, const float *x, size_t n, void *scratch, taciti_selection *out);
    size_t (*scratch_bytes)(size_t n); /* NULL: n + 16 floats */

    /* For selectors whose indices both sides can compute: writes them ascending, from a call without a setting.
     * Payloads then hold none. `scratch` as above. NULL: payloads hold indices. */
    void (*known)(const taciti_codec_call *call, size_t n, size_t kept, void *scratch, uint32_t *indices);
} taciti_selector;

/* The functions of a codec from its selector. All n < 2^32. */
size_t taciti_composed_bound(const void *options, size_t n);
size_t taciti_composed_scratch_bytes(const taciti_selector *selector, size_t n);
tacit_status taciti_composed_encode(const taciti_selector *selector, const taciti_codec_call *call, const float *x,
                                    size_t n, void *out, float *error, size_t *bytes);
tacit_status taciti_composed_decode(const taciti_selector *selector, const taciti_codec_call *call, const void *payload,
                                    size_t bytes, float *x, size_t n);
tacit_status taciti_composed_decode_add(const taciti_selector *selector, const taciti_codec_call *call,
                                        const void *payload, size_t bytes, float *x, size_t n);

/* selected[n] = the elements of x that the selector chooses, 0 elsewhere; error[n], unless NULL, = x - selected. What
 * an encode with values in f32 and its decode would give, without a payload; call as of encode. */
void taciti_composed_select(const taciti_selector *selector, const taciti_codec_call *call, const float *x, size_t n,
                            float *selected, float *error);

/* Mean bytes of a payload at call->setting.factor (0: TACITI_FACTOR), with indices at random. */
double taciti_composed_expected_bytes(const taciti_codec_call *call, size_t n);
/* The same of `kept` elements among n; known: without indices. */
double taciti_composed_mean_bytes(const void *options, size_t kept, size_t n, bool known);

/* Defines the functions scratch_bytes, encode, decode and decode_add of a codec whose selector is SELECTOR; for a file
 * of several codecs, with a prefix. */
#define TACITI_COMPOSED_FUNCTIONS TACITI_COMPOSED_FUNCTIONS_OF(, SELECTOR)
#define TACITI_COMPOSED_FUNCTIONS_OF(prefix, selector)                                                                 \
    static size_t prefix##scratch_bytes(const void *options, size_t n) {                                               \
        (void)options;                                                                                                 \
        return taciti_composed_scratch_bytes(&(selector), n);                                                          \
    }                                                                                                                  \
    static tacit_status prefix##encode(const taciti_codec_call *call, const float *x, size_t n, void *out,             \
                                       float *error, size_t *bytes) {                                                  \
        return taciti_composed_encode(&(selector), call, x, n, out, error, bytes);                                     \
    }                                                                                                                  \
    static tacit_status prefix##decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x,     \
                                       size_t n) {                                                                     \
        return taciti_composed_decode(&(selector), call, payload, bytes, x, n);                                        \
    }                                                                                                                  \
    static tacit_status prefix##decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, \
                                           size_t n) {                                                                 \
        return taciti_composed_decode_add(&(selector), call, payload, bytes, x, n);                                    \
    }

/* max(1, floor(n / factor)), at most n; factor 0: `fallback`. */
enum { TACITI_FACTOR = 100 };
size_t taciti_kept_of(double factor, double fallback, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * inceptionn: every element has 0, 8, 16 or 32 bits, as many as its magnitude needs for an error bound.
 *
 * Source: Li et al., "A Network-Centric Hardware/Algorithm Co-Design to Accelerate Distributed Training of Deep Neural
 * Networks" (INCEPTIONN), MICRO 2018, section 4 and algorithm 2. Magnitudes of 1 or more are sent as floats; those
 * below 2^-bound are not sent; others as fixed-point numbers, truncated: from 2^-ceil(bound / 2) on a sign and 15 bits,
 * below a sign and 7 bits, which begin behind the leading zeros that all of these have. Two bits per element tell
 * which. deviation: magnitudes are in units of the power of two above the largest one (inceptionn.relative), because
 *   gradients here are divided by the tokens of a batch and far below 1. With false the unit is 1, as in the paper.
 *
 * Properties (test_grace.c): the error is below 2^-bound of the unit (inceptionn_keeps_its_bound); class SUM;
 * deterministic. An array with a value that is not finite decodes to NaN.
 *
 * Wire layout            bytes              a decoder rejects
 *   exponent of the unit   4                  anything but INT32_MAX (not finite; nothing follows) and -150 .. 128
 *   tags                   n / 4, rounded up  bits behind the last tag
 *   bodies                 0, 1, 2 or 4 each  a length that is not that of the tags
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "codec/codec.h"
#include "kernel/kernel.h"

enum { TAG_NONE, TAG_8, TAG_16, TAG_32, TAG_BITS = 2, TAGS = 4, EXPONENT_MIN = -150, EXPONENT_MAX = 128 };
static const size_t BODY_BYTES[] = {0, 1, 2, 4};

typedef struct inceptionn_options {
    int64_t bound;
    bool relative;
} inceptionn_options;

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("bound", INT, offsetof(inceptionn_options, bound), "10", .min = 2, .max = 14,
                  .help = "errors stay below 2^-bound of the unit"),
    TACITI_OPTION("relative", BOOL, offsetof(inceptionn_options, relative), "true",
                  .help = "the unit is the power of two above the largest magnitude, not 1"),
};

static const taciti_option_table TABLE = {.section = "inceptionn",
                                          .help = "as many bytes per element as its magnitude needs (INCEPTIONN)",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

/* What the classes of magnitudes are, in units. */
typedef struct classes {
    double unit, smallest, half; /* half: from here on 16 bits */
    double steps8, steps16;      /* codes per unit */
} classes;

static classes classes_of(const inceptionn_options *o, int exponent) {
    const int half = (int)(o->bound + 1) / 2;
    return (classes){.unit = ldexp(1, exponent),
                     .smallest = ldexp(1, -(int)o->bound),
                     .half = ldexp(1, -half),
                     .steps8 = ldexp(1, half + 7),
                     .steps16 = ldexp(1, 15)};
}

static size_t tag_bytes(size_t n) { return (n + TAGS - 1) / TAGS; }

static size_t bound(const void *options, size_t n) {
    (void)options;
    return n > 0 ? sizeof(int32_t) + tag_bytes(n) + n * sizeof(float) : 0;
}

/* Of gradients with a largest magnitude of about 8 deviations, half the elements have 16 bits, the others 8. */
static double expected_bytes(const taciti_codec_call *call, size_t n) {
    (void)call;
    return n > 0 ? sizeof(int32_t) + (double)tag_bytes(n) + 1.5 * (double)n : 0;
}

/* ---- one element ------------------------------------------------------------------------------------------------- */

/* The body of x in `body`. Returns its tag. */
static unsigned write_body(const classes *c, float x, unsigned char *body) {
    const double a = fabs((double)x) / c->unit;
    const unsigned sign = x < 0;
    if (a < c->smallest) return TAG_NONE;
    if (a >= 1) {
        memcpy(body, &x, sizeof x);
        return TAG_32;
    }
    if (a < c->half) {
        body[0] = (unsigned char)(sign << 7 | (unsigned)(a * c->steps8));
        return TAG_8;
    }
    const unsigned word = sign << 15 | (unsigned)(a * c->steps16);
    body[0] = (unsigned char)word;
    body[1] = (unsigned char)(word >> 8);
    return TAG_16;
}

static float read_body(const classes *c, unsigned tag, const unsigned char *body) {
    float x = 0;
    unsigned word = 0;
    switch (tag) {
    case TAG_8:
        word = body[0];
        x = (float)((word & 0x7f) / c->steps8 * c->unit);
        return word >> 7 ? -x : x;
    case TAG_16:
        word = body[0] | (unsigned)body[1] << 8;
        x = (float)((word & 0x7fff) / c->steps16 * c->unit);
        return word >> 15 ? -x : x;
    case TAG_32: memcpy(&x, body, sizeof x); return x;
    default: return 0;
    }
}

static unsigned tag_at(const unsigned char *tags, size_t i) { return tags[i / TAGS] >> (i % TAGS * TAG_BITS) & 3; }

/* ---- arrays ------------------------------------------------------------------------------------------------------ */
static int32_t exponent_of(const inceptionn_options *o, const float *x, size_t n) {
    float largest = 0;
    int exponent = 0;
    if (!taciti_kernels_get()->all_finite(x, n)) return INT32_MAX;
    if (!o->relative) return 0;
    for (size_t i = 0; i < n; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    (void)frexp((double)largest, &exponent);
    return exponent;
}

static void tally(taciti_codec_tally *tally, const float *x, size_t n, double squares_out) {
    tally->squares_in += taciti_kernels_get()->sum_squares(x, n);
    tally->squares_out += squares_out;
    tally->n += n;
    tally->selected += n;
    tally->near += n;
}

static size_t encode_elements(const classes *c, const float *x, size_t n, unsigned char *tags, float *error,
                              double *squares) {
    unsigned char *body = tags + tag_bytes(n);
    memset(tags, 0, tag_bytes(n));
    for (size_t i = 0; i < n; i++) {
        const unsigned tag = write_body(c, x[i], body);
        const float y = read_body(c, tag, body);
        tags[i / TAGS] |= (unsigned char)(tag << (i % TAGS * TAG_BITS));
        body += BODY_BYTES[tag];
        *squares += (double)y * (double)y;
        if (error != NULL) error[i] = x[i] - y;
    }
    return (size_t)(body - tags);
}

static void fill_nan(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = NAN;
}

static tacit_status encode(const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,
                           size_t *bytes) {
    *bytes = 0;
    if (n == 0) return TACIT_OK;
    const int32_t exponent = exponent_of(call->options, x, n);
    double squares = exponent == INT32_MAX ? (double)NAN : 0;
    memcpy(out, &exponent, sizeof exponent);
    *bytes = sizeof exponent;
    if (exponent != INT32_MAX) {
        const classes c = classes_of(call->options, exponent);
        *bytes += encode_elements(&c, x, n, (unsigned char *)out + sizeof exponent, error, &squares);
    } else if (error != NULL) {
        fill_nan(error, n);
    }
    if (call->tally != NULL) tally(call->tally, x, n, squares);
    return TACIT_OK;
}

static tacit_status malformed(size_t bytes, size_t n) {
    return taciti_fail(TACIT_E_DATA, "inceptionn payload of %zu bytes for %zu floats is malformed", bytes, n);
}

static tacit_status check(const void *payload, size_t bytes, size_t n, int32_t *exponent) {
    const unsigned char *tags = (const unsigned char *)payload + sizeof *exponent;
    size_t wanted = sizeof *exponent + tag_bytes(n);
    *exponent = 0;
    if (n == 0) return bytes == 0 ? TACIT_OK : malformed(bytes, n);
    if (bytes < sizeof *exponent) return malformed(bytes, n);
    memcpy(exponent, payload, sizeof *exponent);
    if (*exponent == INT32_MAX) return bytes == sizeof *exponent ? TACIT_OK : malformed(bytes, n);
    if (*exponent < EXPONENT_MIN || *exponent > EXPONENT_MAX || bytes < wanted) return malformed(bytes, n);
    for (size_t i = 0; i < n; i++) wanted += BODY_BYTES[tag_at(tags, i)];
    for (size_t i = n; i < tag_bytes(n) * TAGS; i++)
        if (tag_at(tags, i) != 0) return malformed(bytes, n);
    return bytes == wanted ? TACIT_OK : malformed(bytes, n);
}

static tacit_status decode_into(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n,
                                bool add) {
    int32_t exponent = 0;
    TACITI_TRY(check(payload, bytes, n, &exponent));
    if (exponent == INT32_MAX) {
        fill_nan(x, n);
        return TACIT_OK;
    }
    const classes c = classes_of(call->options, exponent);
    const unsigned char *tags = (const unsigned char *)payload + sizeof exponent, *body = tags + tag_bytes(n);
    for (size_t i = 0; i < n; i++) {
        const unsigned tag = tag_at(tags, i);
        const float y = read_body(&c, tag, body);
        x[i] = add ? x[i] + y : y;
        body += BODY_BYTES[tag];
    }
    return TACIT_OK;
}

static tacit_status decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    return decode_into(call, payload, bytes, x, n, false);
}

static tacit_status decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    return decode_into(call, payload, bytes, x, n, true);
}

extern const taciti_codec taciti_codec_inceptionn;
const taciti_codec taciti_codec_inceptionn = {
    .name = "inceptionn",
    .help = "sends 0, 8, 16 or 32 bits per element, as many as its magnitude needs for an error bound",
    .source = "INCEPTIONN (MICRO 2018), relative to the largest magnitude",
    .options = &TABLE,
    .options_size = sizeof(inceptionn_options),
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .keyless = true,
    .bound = bound,
    .expected_bytes = expected_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};

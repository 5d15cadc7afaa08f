/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of value formats: f32, bf16, fp16, whose numbers stand alone, and those of the quantisers, whose layout and
 * rounding kernel/kernel.h defines.
 *
 * Sources and properties (test_values.c; NMSE: energy of the error by energy, of normal numbers)
 *   int8      NMSE 4.0e-5 in blocks of 128
 *   int4      NMSE 0.0138; with Hadamard 0.0137 whatever the distribution (QuaRot, arXiv 2404.00456, rotates likewise)
 *   e3m0      NMSE 0.0370; 0 and the powers 2^-6 .. 1 of the largest magnitude (Streaming DiLoCo, arXiv 2501.18512)
 *   signmag2  NMSE 0.118; sign and one bit of magnitude, levels of Lloyd (IEEE Trans. Information Theory 28(2), 1982)
 *   signmean  NMSE 1 - mean|x|^2 / mean(x^2), 0.363; EF-SignSGD (arXiv 1901.09847)
 */
#include "codec/values.h"

#include <string.h>

#include "kernel/kernel.h"

/* Elements that are decoded at a time for their squares: they stay in the first cache. */
enum { PIECE = 1024 };

static size_t four_bytes(const taciti_values_options *options, size_t n) {
    (void)options;
    return n * sizeof(float);
}

static size_t two_bytes(const taciti_values_options *options, size_t n) {
    (void)options;
    return n * sizeof(taciti_bf16);
}

static void f32_encode(const taciti_values_options *options, const float *x, size_t n, void *out, float *error,
                       taciti_squares *squares) {
    (void)options;
    if (squares != NULL) squares->in = squares->out = taciti_kernels_get()->sum_squares(x, n);
    if (n == 0) return;
    memcpy(out, x, n * sizeof *x);
    if (error != NULL) memset(error, 0, n * sizeof *error);
}

static void f32_decode(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    if (n > 0) memcpy(x, payload, n * sizeof *x);
}

static void f32_add(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->add(x, payload, n);
}

/* Of 16-bit floats. */
static taciti_squares cast_squares(void (*decode)(float *restrict, const uint16_t *restrict, size_t), const float *x,
                                   const uint16_t *cast, size_t n) {
    float decoded[PIECE];
    taciti_squares squares = {.in = taciti_kernels_get()->sum_squares(x, n)};
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t count = n - at < PIECE ? n - at : PIECE;
        decode(decoded, cast + at, count);
        squares.out += taciti_kernels_get()->sum_squares(decoded, count);
    }
    return squares;
}

static void bf16_encode(const taciti_values_options *options, const float *x, size_t n, void *out, float *error,
                        taciti_squares *squares) {
    (void)options;
    if (error != NULL)
        taciti_kernels_get()->bf16_encode_error(out, error, x, n);
    else
        taciti_kernels_get()->bf16_encode(out, x, n);
    if (squares != NULL) *squares = cast_squares(taciti_kernels_get()->bf16_decode, x, out, n);
}

static void bf16_decode(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->bf16_decode(x, payload, n);
}

static void bf16_add(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->bf16_add(x, payload, n);
}

static void fp16_encode(const taciti_values_options *options, const float *x, size_t n, void *out, float *error,
                        taciti_squares *squares) {
    (void)options;
    if (error != NULL)
        taciti_kernels_get()->fp16_encode_error(out, error, x, n);
    else
        taciti_kernels_get()->fp16_encode(out, x, n);
    if (squares != NULL) *squares = cast_squares(taciti_kernels_get()->fp16_decode, x, out, n);
}

static void fp16_decode(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->fp16_decode(x, payload, n);
}

static void fp16_add(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->fp16_add(x, payload, n);
}

/* ---- the quantisers ---------------------------------------------------------------------------------------------- */
static taciti_quantisation quantisation_of(taciti_quantised_form form, const taciti_values_options *options,
                                           size_t block) {
    const size_t group = TACITI_QUANTISE_GROUP, max = TACITI_QUANTISE_BLOCK_MAX;
    if (options != NULL && options->block > 0) block = options->block < max ? options->block : max;
    return (taciti_quantisation){
        .form = form, .hadamard = options != NULL && options->hadamard, .block = (block + group - 1) / group * group};
}

static size_t quantised_bytes(const taciti_quantisation *q, size_t bits, size_t n) {
    const size_t group = TACITI_QUANTISE_GROUP, blocks = n / q->block + (n % q->block != 0);
    return blocks * sizeof(float) + (n / group + (n % group != 0)) * (group * bits / 8);
}

/* The four functions of a format: bits per number, numbers per scale by default. */
#define QUANTISED(name, form, bits, block)                                                                             \
    static size_t name##_bytes(const taciti_values_options *options, size_t n) {                                       \
        const taciti_quantisation q = quantisation_of(form, options, block);                                           \
        return quantised_bytes(&q, bits, n);                                                                           \
    }                                                                                                                  \
    static void name##_encode(const taciti_values_options *options, const float *x, size_t n, void *out, float *error, \
                              taciti_squares *squares) {                                                               \
        const taciti_quantisation q = quantisation_of(form, options, block);                                           \
        taciti_kernels_get()->quantise(&q, out, error, x, n, squares);                                                 \
    }                                                                                                                  \
    static void name##_decode(const taciti_values_options *options, const void *payload, float *x, size_t n) {         \
        const taciti_quantisation q = quantisation_of(form, options, block);                                           \
        taciti_kernels_get()->dequantise(&q, x, payload, n);                                                           \
    }                                                                                                                  \
    static void name##_add(const taciti_values_options *options, const void *payload, float *x, size_t n) {            \
        const taciti_quantisation q = quantisation_of(form, options, block);                                           \
        taciti_kernels_get()->dequantise_add(&q, x, payload, n);                                                       \
    }

QUANTISED(int8, TACITI_QUANTISE_INT8, 8, 128)
QUANTISED(int4, TACITI_QUANTISE_INT4, 4, 128)
QUANTISED(signmag2, TACITI_QUANTISE_SIGNMAG2, 2, 4096)
QUANTISED(signmean, TACITI_QUANTISE_SIGNMEAN, 1, 4096)
QUANTISED(e3m0, TACITI_QUANTISE_E3M0, 4, 128)
#undef QUANTISED

static const taciti_value_format F32 = {
    .name = "f32",
    .help = "32-bit floats as they are",
    .source = "IEEE 754-2019 binary32",
    .id = TACITI_VALUES_F32,
    .lossless = true,
    .bytes = four_bytes,
    .encode = f32_encode,
    .decode = f32_decode,
    .decode_add = f32_add,
};

static const taciti_value_format BF16 = {
    .name = "bf16",
    .help = "the upper half of every float, rounded to nearest even",
    .source = "bfloat16 (Intel 338302-001), denormals kept",
    .id = TACITI_VALUES_BF16,
    .bytes = two_bytes,
    .encode = bf16_encode,
    .decode = bf16_decode,
    .decode_add = bf16_add,
};

static const taciti_value_format FP16 = {
    .name = "fp16",
    .help = "IEEE half precision, rounded to nearest even",
    .source = "IEEE 754-2019 binary16",
    .id = TACITI_VALUES_FP16,
    .bytes = two_bytes,
    .encode = fp16_encode,
    .decode = fp16_decode,
    .decode_add = fp16_add,
};

static const taciti_value_format INT8 = {
    .name = "int8",
    .help = "8-bit integers and one scale per block",
    .source = "symmetric absmax quantisation",
    .id = TACITI_VALUES_INT8,
    .rotates = true,
    .bytes = int8_bytes,
    .encode = int8_encode,
    .decode = int8_decode,
    .decode_add = int8_add,
};

static const taciti_value_format INT4 = {
    .name = "int4",
    .help = "4-bit integers and one scale per block, on request of Hadamard-rotated groups",
    .source = "QuaRot, arXiv 2404.00456",
    .id = TACITI_VALUES_INT4,
    .rotates = true,
    .bytes = int4_bytes,
    .encode = int4_encode,
    .decode = int4_decode,
    .decode_add = int4_add,
};

static const taciti_value_format SIGNMAG2 = {
    .name = "signmag2",
    .help = "sign and one bit of magnitude, two levels per block",
    .source = "Lloyd, IEEE Trans. Information Theory 28(2), 1982",
    .id = TACITI_VALUES_SIGNMAG2,
    .bytes = signmag2_bytes,
    .encode = signmag2_encode,
    .decode = signmag2_decode,
    .decode_add = signmag2_add,
};

static const taciti_value_format SIGNMEAN = {
    .name = "signmean",
    .help = "sign and the mean magnitude of the block",
    .source = "EF-SignSGD, arXiv 1901.09847",
    .id = TACITI_VALUES_SIGNMEAN,
    .bytes = signmean_bytes,
    .encode = signmean_encode,
    .decode = signmean_decode,
    .decode_add = signmean_add,
};

static const taciti_value_format E3M0 = {
    .name = "e3m0",
    .help = "sign and one of 7 powers of two, or 0, times the largest magnitude of the block",
    .source = "Streaming DiLoCo, arXiv 2501.18512",
    .id = TACITI_VALUES_E3M0,
    .bytes = e3m0_bytes,
    .encode = e3m0_encode,
    .decode = e3m0_decode,
    .decode_add = e3m0_add,
};

static const taciti_value_format *const FORMATS[] = {&F32,      &BF16,     &FP16, &INT8, &INT4,
                                                     &SIGNMAG2, &SIGNMEAN, &E3M0, NULL};
enum { FORMAT_COUNT = sizeof FORMATS / sizeof *FORMATS - 1 };

const taciti_value_format *const *taciti_value_format_list(void) { return FORMATS; }

/* An id is the place in the list. */
const taciti_value_format *taciti_value_format_at(int id) { return id >= 0 && id < FORMAT_COUNT ? FORMATS[id] : NULL; }

const char *taciti_value_format_name(size_t index) { return index < FORMAT_COUNT ? FORMATS[index]->name : NULL; }

const taciti_value_format *taciti_value_format_find(const char *name) {
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (strcmp(FORMATS[i]->name, name) == 0) return FORMATS[i];
    return NULL;
}

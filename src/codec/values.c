/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of value formats: f32, bf16, fp16, whose numbers stand alone, and those of the quantisers, whose layout and
 * rounding kernel/kernel.h defines.
 *
 * Sources and properties (test_values.c; NMSE: energy of the error by energy, of normal numbers)
 *   int8      NMSE 4.0e-5 in blocks of 128
 *   int4      NMSE 0.0138; with Hadamard 0.0137 whatever the distribution (QuaRot, arXiv 2404.00456, rotates likewise)
 *   signmag2  NMSE 0.118; sign and one bit of magnitude, levels of Lloyd (IEEE Trans. Information Theory 28(2), 1982)
 *   signmean  NMSE 1 - mean|x|^2 / mean(x^2), 0.363; EF-SignSGD (arXiv 1901.09847)
 */
#include "codec/values.h"

#include <string.h>

#include "kernel/kernel.h"

/* Elements that are decoded at a time for their squares: they stay in the first cache. */
enum { PIECE = 1024 };

size_t taciti_values_bytes(const taciti_value_format *format, size_t n) {
    const size_t group = TACITI_QUANTISE_GROUP, block = format->quantising.block;
    if (block == 0) return n * (format->bits / 8);
    return (n / block + (n % block != 0)) * sizeof(float) + (n / group + (n % group != 0)) * (group * format->bits / 8);
}

/* ---- f32 --------------------------------------------------------------------------------------------------------- */
static void f32_encode(const taciti_value_format *format, const float *x, size_t n, void *out, float *error,
                       taciti_squares *squares) {
    (void)format;
    if (squares != NULL) squares->in = squares->out = taciti_kernels_get()->sum_squares(x, n);
    if (n == 0) return;
    memcpy(out, x, n * sizeof *x);
    if (error != NULL) memset(error, 0, n * sizeof *error);
}

static void f32_decode(const taciti_value_format *format, const void *payload, float *x, size_t n, bool add) {
    (void)format;
    if (add)
        taciti_kernels_get()->add(x, payload, n);
    else if (n > 0)
        memcpy(x, payload, n * sizeof *x);
}

/* ---- 16-bit floats ----------------------------------------------------------------------------------------------- */
typedef struct casts {
    void (*encode)(uint16_t *restrict out, const float *restrict x, size_t n);
    void (*encode_error)(uint16_t *restrict out, float *restrict error, const float *restrict x, size_t n);
    void (*decode)(float *restrict out, const uint16_t *restrict x, size_t n);
    void (*add)(float *restrict acc, const uint16_t *restrict x, size_t n);
} casts;

static casts casts_of(const taciti_value_format *format) {
    const taciti_kernels *k = taciti_kernels_get();
    if (format->id == TACITI_VALUES_FP16)
        return (casts){k->fp16_encode, k->fp16_encode_error, k->fp16_decode, k->fp16_add};
    return (casts){k->bf16_encode, k->bf16_encode_error, k->bf16_decode, k->bf16_add};
}

static taciti_squares cast_squares(const casts *c, const float *x, const uint16_t *cast, size_t n) {
    float decoded[PIECE];
    taciti_squares squares = {.in = taciti_kernels_get()->sum_squares(x, n)};
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t count = n - at < PIECE ? n - at : PIECE;
        c->decode(decoded, cast + at, count);
        squares.out += taciti_kernels_get()->sum_squares(decoded, count);
    }
    return squares;
}

static void cast_encode(const taciti_value_format *format, const float *x, size_t n, void *out, float *error,
                        taciti_squares *squares) {
    const casts c = casts_of(format);
    if (error != NULL)
        c.encode_error(out, error, x, n);
    else
        c.encode(out, x, n);
    if (squares != NULL) *squares = cast_squares(&c, x, out, n);
}

static void cast_decode(const taciti_value_format *format, const void *payload, float *x, size_t n, bool add) {
    const casts c = casts_of(format);
    (add ? c.add : c.decode)(x, payload, n);
}

/* ---- the quantisers ---------------------------------------------------------------------------------------------- */
static void quantise_blocks(const taciti_value_format *format, const float *x, size_t n, void *out, float *error,
                            taciti_squares *squares) {
    taciti_kernels_get()->quantise(&format->quantising, out, error, x, n, squares);
}

static void dequantise_blocks(const taciti_value_format *format, const void *payload, float *x, size_t n, bool add) {
    const taciti_kernels *k = taciti_kernels_get();
    (add ? k->dequantise_add : k->dequantise)(&format->quantising, x, payload, n);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */
const taciti_value_format taciti_values_f32 = {
    .name = "f32",
    .help = "32-bit floats as they are",
    .source = "IEEE 754-2019 binary32",
    .id = TACITI_VALUES_F32,
    .lossless = true,
    .bits = 32,
    .encode = f32_encode,
    .decode = f32_decode,
};

const taciti_value_format taciti_values_bf16 = {
    .name = "bf16",
    .help = "the upper half of every float, rounded to nearest even",
    .source = "bfloat16 (Intel 338302-001), denormals kept",
    .id = TACITI_VALUES_BF16,
    .bits = 16,
    .encode = cast_encode,
    .decode = cast_decode,
};

const taciti_value_format taciti_values_fp16 = {
    .name = "fp16",
    .help = "IEEE half precision, rounded to nearest even",
    .source = "IEEE 754-2019 binary16",
    .id = TACITI_VALUES_FP16,
    .bits = 16,
    .encode = cast_encode,
    .decode = cast_decode,
};

#define QUANTISED(...) .quantising = {__VA_ARGS__}, .encode = quantise_blocks, .decode = dequantise_blocks

const taciti_value_format taciti_values_int8 = {
    .name = "int8",
    .help = "8-bit integers and one scale per block",
    .source = "symmetric absmax quantisation",
    .id = TACITI_VALUES_INT8,
    .bits = 8,
    QUANTISED(.form = TACITI_QUANTISE_INT8, .block = 128),
};

const taciti_value_format taciti_values_int4 = {
    .name = "int4",
    .help = "4-bit integers and one scale per block",
    .source = "symmetric absmax quantisation",
    .id = TACITI_VALUES_INT4,
    .bits = 4,
    QUANTISED(.form = TACITI_QUANTISE_INT4, .block = 128),
};

const taciti_value_format taciti_values_rotated = {
    .name = "int4",
    .help = "4-bit integers of rotated groups, and one scale per block",
    .source = "QuaRot, arXiv 2404.00456",
    .id = TACITI_VALUES_INT4,
    .bits = 4,
    QUANTISED(.form = TACITI_QUANTISE_INT4, .hadamard = 1, .block = 128),
};

const taciti_value_format taciti_values_signmag2 = {
    .name = "signmag2",
    .help = "sign and one bit of magnitude, two levels per block",
    .source = "Lloyd, IEEE Trans. Information Theory 28(2), 1982",
    .id = TACITI_VALUES_SIGNMAG2,
    .bits = 2,
    QUANTISED(.form = TACITI_QUANTISE_SIGNMAG2, .block = 4096),
};

const taciti_value_format taciti_values_signmean = {
    .name = "signmean",
    .help = "sign and the mean magnitude of the block",
    .source = "EF-SignSGD, arXiv 1901.09847",
    .id = TACITI_VALUES_SIGNMEAN,
    .bits = 1,
    QUANTISED(.form = TACITI_QUANTISE_SIGNMEAN, .block = 4096),
};

static const taciti_value_format *const FORMATS[] = {
    &taciti_values_f32,  &taciti_values_bf16,     &taciti_values_fp16,     &taciti_values_int8,
    &taciti_values_int4, &taciti_values_signmag2, &taciti_values_signmean, NULL};
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

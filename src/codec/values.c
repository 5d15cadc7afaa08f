/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of value formats, and those whose numbers stand alone: f32, bf16, fp16.
 */
#include "codec/values.h"

#include <string.h>

#include "kernel/kernel.h"

static size_t four_bytes(const taciti_values_options *options, size_t n) {
    (void)options;
    return n * sizeof(float);
}

static size_t two_bytes(const taciti_values_options *options, size_t n) {
    (void)options;
    return n * sizeof(taciti_bf16);
}

static void f32_encode(const taciti_values_options *options, const float *x, size_t n, void *out, float *error) {
    (void)options;
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

static void bf16_encode(const taciti_values_options *options, const float *x, size_t n, void *out, float *error) {
    (void)options;
    if (error != NULL)
        taciti_kernels_get()->bf16_encode_error(out, error, x, n);
    else
        taciti_kernels_get()->bf16_encode(out, x, n);
}

static void bf16_decode(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->bf16_decode(x, payload, n);
}

static void bf16_add(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->bf16_add(x, payload, n);
}

static void fp16_encode(const taciti_values_options *options, const float *x, size_t n, void *out, float *error) {
    (void)options;
    if (error != NULL)
        taciti_kernels_get()->fp16_encode_error(out, error, x, n);
    else
        taciti_kernels_get()->fp16_encode(out, x, n);
}

static void fp16_decode(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->fp16_decode(x, payload, n);
}

static void fp16_add(const taciti_values_options *options, const void *payload, float *x, size_t n) {
    (void)options;
    taciti_kernels_get()->fp16_add(x, payload, n);
}

static const taciti_value_format F32 = {
    .name = "f32",
    .help = "32-bit floats as they are",
    .source = "IEEE 754-2019 binary32",
    .id = 0,
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
    .id = 1,
    .bytes = two_bytes,
    .encode = bf16_encode,
    .decode = bf16_decode,
    .decode_add = bf16_add,
};

static const taciti_value_format FP16 = {
    .name = "fp16",
    .help = "IEEE half precision, rounded to nearest even",
    .source = "IEEE 754-2019 binary16",
    .id = 2,
    .bytes = two_bytes,
    .encode = fp16_encode,
    .decode = fp16_decode,
    .decode_add = fp16_add,
};

static const taciti_value_format *const FORMATS[] = {&F32, &BF16, &FP16, NULL};
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

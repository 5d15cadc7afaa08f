/* SPDX-License-Identifier: Apache-2.0
 *
 * Conformance of every registered codec, then the properties of single ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "codec/test_sparse.h"
#include "kernel/kernel.h"

enum { MAX = 5000, GUARD_BYTES = 64 };
static const size_t SIZES[] = {0, 1, 2, 15, 16, 17, 31, 33, 1000, MAX};
enum { SIZE_COUNT = sizeof SIZES / sizeof SIZES[0] };

typedef enum { ZEROS, SPIKE, EQUAL, NORMAL, HEAVY, DENORMAL, HUGE, NONFINITE, ONE_NAN, INPUTS } input;

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float value(input kind, size_t i, uint64_t key) {
    const float u = (float)(taciti_rng_unit(key, i) * 2 - 1);
    switch (kind) {
    case SPIKE: return i == 3 ? -1e4f : 0.0f;
    case EQUAL: return 0.1f;
    case NORMAL: return u;
    case HEAVY: return u / (1.0f - fabsf(u) * 0.99999f);
    case DENORMAL: return u * 1e-40f;
    case HUGE: return u * 3.4e38f;
    case NONFINITE: return i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    case ONE_NAN: return i == 3 ? NAN : u;
    case ZEROS:
    case INPUTS: break;
    }
    return i % 2 ? -0.0f : 0.0f;
}

static void fill(float *x, size_t n, input kind, uint64_t key) {
    for (size_t i = 0; i < n; i++) x[i] = value(kind, i, key);
}

/* Work arrays with a guard behind the payload. */
static float g_x[MAX], g_y[MAX], g_z[MAX + 1], g_sum[MAX];
static _Alignas(64) unsigned char g_payload[16 * MAX + 4096], g_again[16 * MAX + 4096];

/* Arguments of the calls: the codec's default options. */
static _Alignas(64) unsigned char g_options[4096], g_scratch[32 * MAX + 4096];
static unsigned char *g_guard; /* behind the scratch memory */
static taciti_codec_call g_encoder, g_decoder;

static void use_default_options(const taciti_codec *codec) {
    assert_true(codec->options_size <= sizeof g_options);
    g_decoder = (taciti_codec_call){.key = 42, .scratch = g_scratch};
    if (codec->options == NULL) return;
    const taciti_section section = {codec->options, g_options, NULL};
    assert_int_equal(taciti_config_defaults(&(taciti_config){&section, 1}), TACIT_OK);
    g_decoder.options = g_options;
}

/* Both calls for arrays of n floats. Returns the codec's bound. */
static size_t prepare(const taciti_codec *codec, size_t n) {
    use_default_options(codec);
    const size_t scratch = codec->scratch_bytes != NULL ? codec->scratch_bytes(codec, g_decoder.options, n) : 0;
    assert_true(scratch + GUARD_BYTES <= sizeof g_scratch);
    memset(g_scratch, 0xa5, scratch + GUARD_BYTES);
    g_guard = g_scratch + scratch;
    g_encoder = g_decoder;
    return codec->bound(codec, g_decoder.options, n);
}

static void is_guard(const unsigned char *at) {
    for (size_t i = 0; i < GUARD_BYTES; i++) assert_int_equal(at[i], 0xa5);
}

/* One encode between guards; error[n + 1] or NULL. */
static size_t encode_again(const taciti_codec *codec, const float *x, size_t n, unsigned char *out, float *error) {
    const size_t bound = codec->bound(codec, g_encoder.options, n);
    size_t bytes = SIZE_MAX;
    assert_true(bound + GUARD_BYTES <= sizeof g_payload);
    memset(out, 0xa5, bound + GUARD_BYTES);
    if (error != NULL) error[n] = 7;
    assert_int_equal(codec->encode(codec, &g_encoder, x, n, out, error, &bytes), TACIT_OK);
    assert_true(bytes <= bound && (bytes == bound || !codec->fixed_size));
    is_guard(out + bound);
    is_guard(g_guard);
    if (error != NULL) assert_true(error[n] == 7);
    return bytes;
}

/* The same as the first of its kind. */
static size_t encode_guarded(const taciti_codec *codec, const float *x, size_t n, unsigned char *out, float *error) {
    (void)prepare(codec, n);
    return encode_again(codec, x, n, out, error);
}

/* The codecs of the registry, then those of tests alone. Codecs of class LINEAR are tested by rounds
 * (exchange/test_linear.c). */
static const taciti_codec *codec_at(size_t index) {
    size_t others = 0;
    for (const taciti_codec *const *c = taciti_codec_list(); *c != NULL; c++)
        if ((*c)->aggregation != TACITI_CODEC_LINEAR && others++ == index) return *c;
    return index == others ? &test_sparse : NULL;
}

#define FOR_ALL(codec, n, kind)                                                                                        \
    for (size_t c_ = 0; codec_at(c_) != NULL; c_++)                                                                    \
        for (size_t s_ = 0; s_ < SIZE_COUNT; s_++)                                                                     \
            for (int k_ = 0; k_ < INPUTS; k_++)                                                                        \
                for (const taciti_codec *codec = codec_at(c_); codec != NULL; codec = NULL)                            \
                    for (size_t n = SIZES[s_], once = 1; once; once = 0)                                               \
                        for (input kind = (input)k_; once; once = 0)

static void every_codec_is_complete_and_found_by_name(void **state) {
    (void)state;
    size_t count = 0;
    for (const taciti_codec *c; (c = codec_at(count)) != NULL; count++) {
        assert_non_null(c->name);
        assert_non_null(c->help);
        assert_non_null(c->source);
        assert_non_null(c->bound);
        assert_non_null(c->encode);
        assert_non_null(c->decode);
        assert_true(c->rounds >= 1);
        assert_true(!c->identity || c->lossless);
        assert_ptr_equal(taciti_codec_find(c->name), c == &test_sparse ? NULL : c);
        assert_true((c->options == NULL) == (c->options_size == 0));
    }
    assert_true(count >= 3);
    assert_null(taciti_codec_find("no such codec"));
    assert_null(taciti_codec_find(""));
}

/* encode is a function of its arguments: input and state untouched, never beyond the bound, same bytes twice. */
static void encode_stays_in_bounds_and_repeats_itself(void **state) {
    (void)state;
    FOR_ALL(codec, n, kind) {
        fill(g_x, n, kind, 7);
        memcpy(g_y, g_x, n * sizeof *g_x);
        const size_t bytes = encode_guarded(codec, g_x, n, g_payload, NULL);
        assert_memory_equal(g_x, g_y, n * sizeof *g_x);
        assert_int_equal(encode_guarded(codec, g_x, n, g_again, NULL), bytes);
        assert_memory_equal(g_payload, g_again, bytes);
    }
}

/* Whether any payload of the codec depends on the key. */
static bool reads_the_key(const taciti_codec *codec) {
    for (int k = 0; k < INPUTS; k++) {
        fill(g_x, MAX, (input)k, 7);
        const size_t bytes = encode_guarded(codec, g_x, MAX, g_payload, NULL);
        g_encoder.key++;
        if (encode_again(codec, g_x, MAX, g_again, NULL) != bytes || memcmp(g_payload, g_again, bytes) != 0)
            return true;
    }
    return false;
}

/* A key costs time that short arrays feel, so a codec that needs none says so; one that reads it must get it. */
static void a_codec_is_keyless_when_it_ignores_the_key(void **state) {
    (void)state;
    const taciti_codec *codec = NULL;
    for (size_t c = 0; (codec = codec_at(c)) != NULL; c++) assert_true(codec->keyless == !reads_the_key(codec));
}

/* Asking for the error changes no byte of the payload. */
static void the_error_is_x_minus_the_decoded_payload(void **state) {
    (void)state;
    FOR_ALL(codec, n, kind) {
        fill(g_x, n, kind, 13);
        const size_t bytes = encode_guarded(codec, g_x, n, g_payload, NULL);
        assert_int_equal(encode_guarded(codec, g_x, n, g_again, g_z), bytes);
        assert_memory_equal(g_payload, g_again, bytes);
        assert_int_equal(codec->decode(codec, &g_decoder, g_payload, bytes, g_y, n, false), TACIT_OK);
        for (size_t i = 0; i < n; i++)
            if (isfinite(g_x[i]) && !isnan(g_y[i])) assert_true(g_z[i] == g_x[i] - g_y[i]);
    }
}

static void lossless_codecs_keep_every_finite_bit(void **state) {
    (void)state;
    FOR_ALL(codec, n, kind) {
        if (!codec->lossless) continue;
        fill(g_x, n, kind, 9);
        const size_t bytes = encode_guarded(codec, g_x, n, g_payload, NULL);
        assert_int_equal(codec->decode(codec, &g_decoder, g_payload, bytes, g_y, n, false), TACIT_OK);
        for (size_t i = 0; i < n; i++)
            if (isfinite(g_x[i])) assert_int_equal(to_bits(g_x[i]), to_bits(g_y[i]));
    }
}

/* The values by which all ranks skip a step must survive the wire: with a number format itself, with others its block.
 */
static void non_finite_input_stays_non_finite(void **state) {
    (void)state;
    FOR_ALL(codec, n, kind) {
        if (codec->aggregation == TACITI_CODEC_LINEAR) continue;
        fill(g_x, n, kind, 11);
        const size_t bytes = encode_guarded(codec, g_x, n, g_payload, NULL);
        assert_int_equal(codec->decode(codec, &g_decoder, g_payload, bytes, g_y, n, false), TACIT_OK);
        for (size_t i = 0; i < n; i++) assert_true(isfinite(g_x[i]) || !isfinite(g_y[i]));
        for (size_t i = 0; codec->number_format && i < n; i++) {
            assert_int_equal(isnan(g_x[i]) != 0, isnan(g_y[i]) != 0);
            if (isinf(g_x[i])) assert_true(g_y[i] == g_x[i]);
        }
    }
}

/* Adding the decoded payloads of 3 ranks, in rank order, is the sum of what decode gives, in rank order. */
static void decode_add_is_decode_then_add(void **state) {
    (void)state;
    FOR_ALL(codec, n, kind) {
        memset(g_sum, 0, sizeof g_sum);
        memset(g_z, 0, sizeof g_z);
        for (uint64_t rank = 0; rank < 3; rank++) {
            fill(g_x, n, kind, rank);
            const size_t bytes = encode_guarded(codec, g_x, n, g_payload, NULL);
            assert_int_equal(codec->decode(codec, &g_decoder, g_payload, bytes, g_sum, n, true), TACIT_OK);
            assert_int_equal(codec->decode(codec, &g_decoder, g_payload, bytes, g_y, n, false), TACIT_OK);
            for (size_t i = 0; i < n; i++) g_z[i] += g_y[i];
        }
        for (size_t i = 0; i < n; i++)
            if (!isnan(g_z[i]))
                assert_int_equal(to_bits(g_sum[i]), to_bits(g_z[i]));
            else
                assert_true(isnan(g_sum[i]));
    }
}

static char g_error[256];
static void keep_error(void *context, taciti_log_level level, const char *line) {
    (void)context;
    if (level == TACITI_LOG_ERROR) strncpy(g_error, line, sizeof g_error - 1);
}

static void refused(const taciti_codec *codec, size_t bytes, size_t n) {
    for (int add = 0; add < 2; add++) {
        fill(g_y, n, NORMAL, 5);
        memcpy(g_z, g_y, n * sizeof *g_y);
        g_error[0] = '\0';
        const tacit_status status = codec->decode(codec, &g_decoder, g_payload, bytes, g_y, n, add);
        assert_int_equal(status, TACIT_E_DATA);
        assert_true(strstr(g_error, codec->name) != NULL || codec->rungs != NULL); /* whose codec it names */
        assert_memory_equal(g_y, g_z, n * sizeof *g_y);
    }
}

static void a_payload_of_the_wrong_size_is_refused_and_nothing_written(void **state) {
    (void)state;
    taciti_log_set_sink(keep_error, NULL, TACITI_LOG_INFO);
    FOR_ALL(codec, n, kind) {
        fill(g_x, n, kind, 13);
        const size_t bytes = encode_guarded(codec, g_x, n, g_payload, NULL);
        refused(codec, bytes + 1, n);
        refused(codec, bytes + 4096, n);
        if (bytes > 0) refused(codec, bytes - 1, n);
        if (bytes > 1) refused(codec, 0, n);
        if (bytes > 0 && n > 1) refused(codec, bytes / 2, n);
    }
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

static void identity_payload_is_the_array(void **state) {
    (void)state;
    size_t seen = 0;
    FOR_ALL(codec, n, kind) {
        if (!codec->identity) continue;
        fill(g_x, n, kind, 17);
        assert_int_equal(encode_guarded(codec, g_x, n, g_payload, NULL), n * sizeof *g_x);
        assert_memory_equal(g_payload, g_x, n * sizeof *g_x);
        seen++;
    }
    assert_true(seen > 0);
}

/* `exchange.wire` needs a codec of class SUM, fixed size, one round. */
static void dense_names_are_those_of_the_dense_codecs(void **state) {
    (void)state;
    size_t dense = 0;
    for (const taciti_codec *const *it = taciti_codec_list(); *it != NULL; it++) {
        if (!taciti_codec_is_dense(*it)) continue;
        assert_string_equal(taciti_codec_dense_name(dense), (*it)->name);
        assert_true((*it)->aggregation == TACITI_CODEC_SUM && (*it)->fixed_size && (*it)->rounds == 1);
        dense++;
    }
    assert_string_equal(taciti_codec_dense_name(0), "f32");
    assert_null(taciti_codec_dense_name(dense));
}

/* Every part of a key matters, and the shared key is nobody's. */
static void keys_of_ranks_steps_and_buckets_differ(void **state) {
    (void)state;
    const uint64_t key = taciti_codec_key(1, 2, 3, 4);
    assert_true(key == taciti_codec_key(1, 2, 3, 4));
    assert_true(key != taciti_codec_key(2, 2, 3, 4));
    assert_true(key != taciti_codec_key(1, 3, 3, 4));
    assert_true(key != taciti_codec_key(1, 2, 4, 4));
    assert_true(key != taciti_codec_key(1, 2, 3, 5));
    for (int rank = 0; rank < 100; rank++)
        assert_true(taciti_codec_key(1, 2, rank, 4) != taciti_codec_key(1, 2, TACITI_CODEC_ALL_RANKS, 4));
}

/* Golden bytes: the wire format, independent of any kernel. */
static void wire_formats_are_what_they_say(void **state) {
    (void)state;
    const float x[] = {1.0f, -2.5f, from_bits(0x3f808000u), from_bits(0x3f818000u), INFINITY};
    const unsigned char f32[] = {0,    0,    0x80, 0x3f, 0,    0,    0x20, 0xc0, 0,    0x80,
                                 0x80, 0x3f, 0,    0x80, 0x81, 0x3f, 0,    0,    0x80, 0x7f};
    /* the third and fourth are ties: down to even 3f80, up to even 3f82 */
    const unsigned char bf16[] = {0x80, 0x3f, 0x20, 0xc0, 0x80, 0x3f, 0x82, 0x3f, 0x80, 0x7f};
    assert_int_equal(encode_guarded(taciti_codec_find("f32"), x, 5, g_payload, NULL), sizeof f32);
    assert_memory_equal(g_payload, f32, sizeof f32);
    assert_int_equal(encode_guarded(taciti_codec_find("bf16"), x, 5, g_payload, NULL), sizeof bf16);
    assert_memory_equal(g_payload, bf16, sizeof bf16);
}

static void bf16_error_is_at_most_half_an_ulp(void **state) {
    (void)state;
    const taciti_codec *codec = taciti_codec_find("bf16");
    const double largest = 0x1.fep127; /* of bf16; beyond it half an ulp more rounds to Inf */
    for (uint64_t round = 0; round < 40; round++) {
        for (size_t i = 0; i < MAX; i++) g_x[i] = from_bits((uint32_t)taciti_rng_u64(round, i));
        (void)encode_guarded(codec, g_x, MAX, g_payload, NULL);
        assert_int_equal(codec->decode(codec, &g_decoder, g_payload, 2 * MAX, g_y, MAX, false), TACIT_OK);
        for (size_t i = 0; i < MAX; i++) {
            const double x = (double)g_x[i], y = (double)g_y[i];
            if (!isfinite(x) || fabs(x) > largest) continue;
            const int exponent = x == 0 || ilogb(x) < -126 ? -126 : ilogb(x);
            assert_true(fabs(x - y) <= ldexp(1.0, exponent - 8));
        }
    }
}

static void bf16_is_a_projection(void **state) {
    (void)state;
    const taciti_codec *codec = taciti_codec_find("bf16");
    for (uint32_t first = 0; first < 65536; first += 4096) {
        taciti_bf16 y[4096], again[4096];
        for (uint32_t i = 0; i < 4096; i++) y[i] = (taciti_bf16)(first + i);
        assert_int_equal(codec->decode(codec, &g_decoder, y, sizeof y, g_x, 4096, false), TACIT_OK);
        size_t bytes = 0;
        (void)prepare(codec, 4096);
        assert_int_equal(codec->encode(codec, &g_encoder, g_x, 4096, again, NULL, &bytes), TACIT_OK);
        assert_int_equal(bytes, sizeof again);
        for (uint32_t i = 0; i < 4096; i++) {
            const bool signalling = (y[i] & 0x7fffu) > 0x7f80u && (y[i] & 0x40u) == 0;
            assert_int_equal(again[i], signalling ? y[i] | 0x40 : y[i]);
        }
    }
}

/* ---- the codec of tests ------------------------------------------------------------------------------------------ */
static uint32_t field(const unsigned char *payload, size_t index) {
    uint32_t value;
    memcpy(&value, payload + index * sizeof value, sizeof value);
    return value;
}

static void sparse_sends_what_reaches_the_threshold_of_the_call(void **state) {
    (void)state;
    const float x[] = {0.25f, -0.75f, 0.5f, NAN, 2.0f};
    float error[6];
    (void)prepare(&test_sparse, 5);
    /* the options' 0.5: elements 1 to 4 */
    assert_int_equal(encode_again(&test_sparse, x, 5, g_payload, error), 40);
    g_encoder.setting.threshold = 1;
    assert_int_equal(encode_again(&test_sparse, x, 5, g_payload, error), 24);
    const uint32_t golden[] = {2, 42, 3, to_bits(x[3]), 4, to_bits(2.0f)};
    assert_memory_equal(g_payload, golden, sizeof golden);
    assert_true(error[0] == 0.25f && error[1] == -0.75f && error[2] == 0.5f && error[3] == 0 && error[4] == 0);
}

static void sparse_refuses(size_t at, uint32_t value) {
    const uint32_t old = field(g_payload, at);
    memcpy(g_payload + at * sizeof value, &value, sizeof value);
    refused(&test_sparse, 32, 5);
    memcpy(g_payload + at * sizeof value, &old, sizeof old);
}

static void sparse_refuses_malformed_payloads(void **state) {
    (void)state;
    const float x[] = {1, 0, 0, 1, 1};
    taciti_log_set_sink(keep_error, NULL, TACITI_LOG_INFO);
    assert_int_equal(encode_guarded(&test_sparse, x, 5, g_payload, NULL), 32);
    sparse_refuses(0, 2);
    sparse_refuses(0, 4);
    sparse_refuses(0, UINT32_MAX);
    sparse_refuses(1, 43);
    sparse_refuses(4, 0);
    sparse_refuses(4, 4);
    sparse_refuses(6, 5);
    sparse_refuses(6, UINT32_MAX);
    refused(&test_sparse, 32, 2);
    assert_int_equal(test_sparse.decode(&test_sparse, &g_decoder, g_payload, 32, g_y, 5, false), TACIT_OK);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_is_complete_and_found_by_name),
        cmocka_unit_test(encode_stays_in_bounds_and_repeats_itself),
        cmocka_unit_test(a_codec_is_keyless_when_it_ignores_the_key),
        cmocka_unit_test(the_error_is_x_minus_the_decoded_payload),
        cmocka_unit_test(lossless_codecs_keep_every_finite_bit),
        cmocka_unit_test(non_finite_input_stays_non_finite),
        cmocka_unit_test(decode_add_is_decode_then_add),
        cmocka_unit_test(a_payload_of_the_wrong_size_is_refused_and_nothing_written),
        cmocka_unit_test(identity_payload_is_the_array),
        cmocka_unit_test(dense_names_are_those_of_the_dense_codecs),
        cmocka_unit_test(keys_of_ranks_steps_and_buckets_differ),
        cmocka_unit_test(wire_formats_are_what_they_say),
        cmocka_unit_test(bf16_error_is_at_most_half_an_ulp),
        cmocka_unit_test(bf16_is_a_projection),
        cmocka_unit_test(sparse_sends_what_reaches_the_threshold_of_the_call),
        cmocka_unit_test(sparse_refuses_malformed_payloads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

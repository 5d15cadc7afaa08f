/* SPDX-License-Identifier: Apache-2.0
 *
 * Payloads of codecs of class LINEAR: what their decoders refuse, and what encodes tell. Their
 * properties over several ranks are in exchange/test_linear.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "kernel/kernel.h"

enum { N = 3000, RANKS = 3 };
static float g_x[N], g_y[N], g_z[N], g_error[N], g_before[4 * N], g_payload[4 * N];
static _Alignas(64) unsigned char g_scratch[64 * N], g_options[256], g_state[5 * N];

static void silent(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

/* ---- payloads ------------------------------------------------------------------------------------------------------
 */
static const taciti_codec_matrix MATRIX = {.at = 100, .rows = 40, .columns = 50};

/* A call for the last round, after an encode of those before, with factors of this rank. */
static taciti_codec_call prepare(const taciti_codec *codec, const char *rank) {
    const taciti_section section = {.table = codec->options, .values = g_options};
    const taciti_config config = {&section, 1};
    size_t bytes = 0;
    assert_int_equal(taciti_config_defaults(&config), TACIT_OK);
    assert_int_equal(taciti_config_set(&config, "powersgd.rank", rank, "the test"), TACIT_OK);
    taciti_codec_call call = {.options = g_options,
                              .setting = {.factor = 20},
                              .key = 3,
                              .ranks = RANKS,
                              .state = g_state,
                              .scratch = g_scratch,
                              .matrices = &MATRIX,
                              .n_matrices = 1};
    assert_int_equal(codec->rounds, 2);
    assert_true(codec->linear_state_bytes(&call, N) <= sizeof g_state);
    assert_true(codec->scratch_bytes(codec, g_options, N) <= sizeof g_scratch);
    if (codec->payload_n(&call, N) > 0) {
        assert_true(codec->payload_n(&call, N) <= 4 * N);
        assert_int_equal(codec->encode(codec, &call, g_x, N, g_before, NULL, &bytes), TACIT_OK);
        assert_int_equal(bytes, codec->payload_n(&call, N) * sizeof(float));
        call.before = g_before;
    }
    call.round = 1;
    return call;
}

static void refuses(const taciti_codec *codec, const taciti_codec_call *call, size_t bytes) {
    for (int add = 0; add < 2; add++) {
        memcpy(g_z, g_y, sizeof g_y);
        const tacit_status status = codec->decode(codec, call, g_payload, bytes, g_y, N, add);
        assert_int_equal(status, TACIT_E_DATA);
        assert_memory_equal(g_z, g_y, sizeof g_y);
    }
}

static const char *const MATRIX_RANKS[] = {"4", "2"};
enum { MATRIX_RANK_COUNT = sizeof MATRIX_RANKS / sizeof *MATRIX_RANKS };

static void fill(void) {
    for (size_t i = 0; i < N; i++) g_x[i] = (float)(taciti_rng_unit(1, i) - 0.5);
}

static void a_payload_of_another_size_is_refused(void **state) {
    (void)state;
    fill();
    taciti_log_set_sink(silent, NULL, TACITI_LOG_INFO);
    for (int v = 0; v < MATRIX_RANK_COUNT; v++) {
        size_t bytes = 0;
        const taciti_codec *codec = taciti_codec_find("powersgd");
        const taciti_codec_call call = prepare(codec, MATRIX_RANKS[v]);
        assert_int_equal(codec->encode(codec, &call, g_x, N, g_payload, NULL, &bytes), TACIT_OK);
        refuses(codec, &call, 0);
        refuses(codec, &call, bytes - 1);
        refuses(codec, &call, bytes - sizeof(float));
        refuses(codec, &call, bytes + sizeof(float));
        assert_int_equal(codec->decode(codec, &call, g_payload, bytes, g_y, N, false), TACIT_OK);
    }
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

/* The tally names what the payload holds: |x|^2 = |decoded|^2 + |error|^2 where the error is orthogonal. */
static void error_and_tally_are_those_of_the_payload(void **state) {
    (void)state;
    fill();
    for (int v = 0; v < MATRIX_RANK_COUNT; v++) {
        size_t bytes = 0;
        double in = 0, out = 0;
        taciti_codec_tally tally = {0};
        const taciti_codec *codec = taciti_codec_find("powersgd");
        taciti_codec_call call = prepare(codec, MATRIX_RANKS[v]);
        call.tally = &tally;
        assert_int_equal(codec->encode(codec, &call, g_x, N, g_payload, g_error, &bytes), TACIT_OK);
        assert_int_equal(codec->decode(codec, &call, g_payload, bytes, g_y, N, false), TACIT_OK);
        memset(g_z, 0, sizeof g_z);
        assert_int_equal(codec->decode(codec, &call, g_payload, bytes, g_z, N, true), TACIT_OK);
        for (size_t i = 0; i < N; i++) {
            assert_true(fabsf(g_x[i] - g_y[i] - g_error[i]) < 1e-6f);
            assert_true(g_z[i] == g_y[i]);
            in += (double)g_x[i] * (double)g_x[i];
            out += (double)g_y[i] * (double)g_y[i];
        }
        assert_true(fabs(tally.squares_in - in) < 1e-9 * in);
        assert_true(fabs(tally.squares_out - out) < 1e-5 * in);
        assert_int_equal(tally.n, N);
        assert_true(tally.selected > 0 && tally.selected <= N);
    }
}

/* Such a bucket has no first round. */
static void a_matrix_that_is_shorter_than_its_factors_is_sent_whole(void **state) {
    (void)state;
    static const taciti_codec_matrix ROW = {.at = 100, .rows = 1, .columns = 41};
    size_t bytes = 0;
    const taciti_codec *codec = taciti_codec_find("powersgd");
    taciti_codec_call call = prepare(codec, "4");
    fill();
    call.matrices = &ROW;
    call.before = NULL;
    call.round = 0;
    assert_int_equal(codec->payload_n(&call, N), 0);
    call.round = 1;
    assert_int_equal(codec->encode(codec, &call, g_x, N, g_payload, NULL, &bytes), TACIT_OK);
    assert_int_equal(codec->decode(codec, &call, g_payload, bytes, g_y, N, false), TACIT_OK);
    assert_memory_equal(g_x, g_y, sizeof g_x);
}

/* Where one direction holds all but a millionth of a matrix, the columns of P are nearly parallel: Gram-Schmidt once
 * leaves them far from orthogonal, and the product is then no projection, so that it misses what it has seen. */
static void nearly_parallel_columns_become_orthogonal(void **state) {
    (void)state;
    size_t bytes = 0;
    const taciti_codec *codec = taciti_codec_find("powersgd");
    for (size_t i = 0; i < N; i++) g_x[i] = 0;
    for (size_t i = 0; i < MATRIX.rows * MATRIX.columns; i++) {
        const double left = taciti_rng_unit(5, i / MATRIX.columns), right = taciti_rng_unit(6, i % MATRIX.columns);
        g_x[MATRIX.at + i] = (float)(left * right + 1e-6 * taciti_rng_unit(7, i));
    }
    const taciti_codec_call call = prepare(codec, "4");
    assert_int_equal(codec->encode(codec, &call, g_x, N, g_payload, g_error, &bytes), TACIT_OK);
    const double lost = taciti_kernels_get()->sum_squares(g_error, N), all = taciti_kernels_get()->sum_squares(g_x, N);
    assert_true(lost < 1e-11 * all); /* the rest of the matrix has 3e-12 of its squares */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_payload_of_another_size_is_refused),
        cmocka_unit_test(error_and_tally_are_those_of_the_payload),
        cmocka_unit_test(a_matrix_that_is_shorter_than_its_factors_is_sent_whole),
        cmocka_unit_test(nearly_parallel_columns_become_orthogonal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

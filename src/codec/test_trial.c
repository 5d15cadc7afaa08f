/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "codec/trial.h"
#include "kernel/kernel.h"

enum { N = 5 * 4096, LONG = 4 * TACITI_TRIAL_LAYER };
static float g_gradient[LONG];

static double squares(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static void gradient_like_data_are_a_function_of_the_seed_with_heavy_tails(void **state) {
    static float again[LONG];
    double fourth = 0, sum = 0;
    (void)state;
    taciti_gradient_like(1, g_gradient, LONG);
    taciti_gradient_like(1, again, LONG);
    assert_memory_equal(g_gradient, again, sizeof again);
    taciti_gradient_like(2, again, LONG);
    assert_true(memcmp(g_gradient, again, sizeof again) != 0);
    const size_t n = TACITI_TRIAL_LAYER;
    for (size_t i = 0; i < n; i++) {
        const double x = (double)g_gradient[i];
        assert_true(isfinite(x) && x != 0);
        sum += x;
        fourth += x * x * x * x;
    }
    const double variance = squares(g_gradient, n) / (double)n;
    assert_true(fabs(sum) < 5 * sqrt(variance * (double)n));   /* symmetric */
    assert_true(fourth / (double)n > 8 * variance * variance); /* a Laplace distribution has 6 */
    const double other = squares(g_gradient + n, n) / (double)n;
    assert_true(other > 1.2 * variance || variance > 1.2 * other); /* layers differ */
}

/* An exchange relies on this: the decoded array and the error add up to what was encoded, also in the second pass,
 * which encodes the error of the first one, too. */
static void decoded_and_error_are_what_was_encoded(const taciti_codec *codec, size_t piece_n) {
    void *options = NULL;
    taciti_trial t;
    assert_int_equal(taciti_codec_defaults(codec, &options), TACIT_OK);
    assert_int_equal(
        taciti_trial_create(codec, options, (taciti_codec_setting){.factor = 8}, g_gradient, N, piece_n, &t), TACIT_OK);
    const size_t piece = piece_n == 0 ? N : piece_n;
    assert_int_equal(t.n, N / piece * piece);
    static float v[N];
    memcpy(v, g_gradient, sizeof v);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(taciti_trial_run(&t, TACITI_TRIAL_FEEDBACK), TACIT_OK);
        assert_true(t.payload_bytes > 0 && t.payload_bytes <= t.n / piece * codec->bound(codec, t.options, piece));
        assert_int_equal(taciti_trial_run(&t, TACITI_TRIAL_DECODE), TACIT_OK);
        const float *decoded = t.arrays[2].base, *error = taciti_trial_error(&t);
        for (size_t i = 0; i < t.n; i++) {
            const float size = fabsf(v[i]) + fabsf(decoded[i]);
            if (fabsf(v[i] - decoded[i] - error[i]) > 1e-5f * size)
                fail_msg("%s: element %zu is %g, decoded %g, error %g", codec->name, i, (double)v[i],
                         (double)decoded[i], (double)error[i]);
        }
        for (size_t i = 0; i < t.n; i++) v[i] = g_gradient[i] + error[i];
    }
    taciti_trial_destroy(&t);
    taciti_free(options);
}

static void a_trial_encodes_with_error_feedback(void **state) {
    (void)state;
    taciti_gradient_like(1, g_gradient, LONG);
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        if ((*codec)->rounds > 1) continue; /* `before` is that of all ranks there */
        decoded_and_error_are_what_was_encoded(*codec, 0);
        decoded_and_error_are_what_was_encoded(*codec, 4096);
        decoded_and_error_are_what_was_encoded(*codec, 6000); /* 3 of them, and a rest that does not count */
    }
}

static void passes_move_the_bytes_that_they_must(void **state) {
    taciti_trial t;
    (void)state;
    const taciti_codec *codec = taciti_codec_find("bf16");
    taciti_gradient_like(1, g_gradient, LONG);
    assert_int_equal(taciti_trial_create(codec, NULL, (taciti_codec_setting){0}, g_gradient, N, 4096, &t), TACIT_OK);
    assert_int_equal(taciti_trial_run(&t, TACITI_TRIAL_ENCODE), TACIT_OK);
    assert_int_equal(t.payload_bytes, 2 * N);
    const double bytes[TACITI_TRIAL_PASSES] = {14. * N, 6. * N, 6. * N, 10. * N};
    for (int pass = 0; pass < TACITI_TRIAL_PASSES; pass++)
        assert_true(fabs(taciti_trial_moved_bytes(&t, (taciti_trial_pass)pass) - bytes[pass]) < 0.5);
    assert_int_equal(taciti_trial_run(&t, TACITI_TRIAL_DECODE), TACIT_OK);
    static float once[N];
    memcpy(once, t.arrays[2].base, sizeof once);
    assert_int_equal(taciti_trial_run(&t, TACITI_TRIAL_ADD), TACIT_OK);
    for (size_t i = 0; i < N; i++) assert_true(((float *)t.arrays[2].base)[i] == 2 * once[i]);
    taciti_trial_destroy(&t);
}

static void instruction_sets_can_be_switched(void **state) {
    (void)state;
    const char *start = taciti_kernels_get()->isa;
    for (size_t i = 0; taciti_kernels_isa(i) != NULL; i++) {
        const char *isa = taciti_kernels_isa(i);
        assert_true(taciti_kernels_switch(isa) == (taciti_kernels_named(isa) != NULL));
        if (taciti_kernels_named(isa) != NULL) assert_string_equal(taciti_kernels_get()->isa, isa);
    }
    assert_true(taciti_kernels_switch("scalar"));
    assert_false(taciti_kernels_switch("mmx"));
    assert_string_equal(taciti_kernels_get()->isa, "scalar");
    assert_true(taciti_kernels_switch(NULL));
    assert_string_equal(taciti_kernels_get()->isa, start);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_like_data_are_a_function_of_the_seed_with_heavy_tails),
        cmocka_unit_test(a_trial_encodes_with_error_feedback),
        cmocka_unit_test(passes_move_the_bytes_that_they_must),
        cmocka_unit_test(instruction_sets_can_be_switched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

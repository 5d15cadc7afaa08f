/* SPDX-License-Identifier: Apache-2.0
 *
 * A threshold finds the number of elements that is wanted, and keeps it, whatever the distribution.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "strategy/compression.h"

enum { N = 200000 };
#define TWO_PI 6.283185307179586

static double g_x[N], g_residual[N];

static double uniform(uint64_t key, uint64_t i) { return ((double)(taciti_rng_below(key, i, 1u << 30) + 1)) * 0x1p-30; }

static double normal(uint64_t key, uint64_t i) {
    return sqrt(-2 * log(uniform(key, 2 * i))) * cos(TWO_PI * uniform(key, 2 * i + 1));
}

enum { NORMAL, LAPLACE, LOGNORMAL, LAWS };

static double draw(int law, uint64_t key, uint64_t i) {
    if (law == LAPLACE) return log(uniform(key, i));
    return law == LOGNORMAL ? exp(1.5 * normal(key, i)) : normal(key, i);
}

/* One step of a selection by threshold: returns what is kept. */
static int descending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Returns the threshold of an exact selection. */
static double exact(double factor) {
    static double sorted[N];
    for (size_t i = 0; i < N; i++) sorted[i] = fabs(g_x[i]);
    qsort(sorted, N, sizeof *sorted, descending);
    return sorted[(size_t)(N / factor)];
}

static double step_to(taciti_threshold *t, double factor, double next) {
    taciti_threshold_seen seen = {.n = N};
    if (t->value == 0) t->value = exact(factor);
    for (size_t i = 0; i < N; i++) {
        seen.kept += fabs(g_x[i]) >= t->value;
        seen.near += fabs(g_x[i]) >= t->value / 2;
    }
    taciti_threshold_correct(t, &seen, factor, next);
    return seen.kept;
}

static double step_of(taciti_threshold *t, double target) { return step_to(t, N / target, N / target); }

static int steps_until_close(taciti_threshold *t, double target, int max) {
    int close = 0, step = 0;
    for (; step < max && close < 3; step++) close = fabs(step_of(t, target) / target - 1) < 0.05 ? close + 1 : 0;
    return step - close;
}

static void it_converges_and_follows_a_jump_of_the_scale(void **state) {
    (void)state;
    for (int law = 0; law < LAWS; law++)
        for (double factor = 10; factor <= 1000; factor *= 10) {
            for (size_t i = 0; i < N; i++) g_x[i] = draw(law, 7, i);
            taciti_threshold t = {.value = 1};
            const int first = steps_until_close(&t, N / factor, 60);
            if (first > 20) fail_msg("law %d, factor %g: %d steps", law, factor, first);
            for (size_t i = 0; i < N; i++) g_x[i] *= 100;
            const int jump = steps_until_close(&t, N / factor, 60);
            if (jump > 25) fail_msg("law %d, factor %g: %d steps after a jump", law, factor, jump);
            for (size_t i = 0; i < N; i++) g_x[i] *= 1e-6;
            const int fall = steps_until_close(&t, N / factor, 60);
            if (fall > 40) fail_msg("law %d, factor %g: %d steps after a fall", law, factor, fall);
        }
}

static void it_follows_a_change_of_the_factor_at_once(void **state) {
    (void)state;
    static const double FROM[] = {100, 25, 1.5}, TO[] = {25, 100, 1.2}, BOUND[] = {0.2, 0.3, 0.2};
    for (int law = 0; law < LAWS; law++)
        for (int i = 0; i < 3; i++) {
            for (size_t j = 0; j < N; j++) g_x[j] = draw(law, 7, j);
            taciti_threshold t = {.value = 1};
            (void)steps_until_close(&t, N / FROM[i], 60);
            (void)step_to(&t, FROM[i], TO[i]);
            const double kept = step_of(&t, N / TO[i]) * TO[i] / N;
            if (!(fabs(kept - 1) < BOUND[i])) fail_msg("law %d, %g -> %g: %g of the target", law, FROM[i], TO[i], kept);
        }
}

/* Error feedback cuts the distribution off at the last threshold; an undamped correction oscillates over two decades.
 */
static void it_is_steady_with_error_feedback(void **state) {
    static double scales[N], means[N];
    (void)state;
    for (size_t i = 0; i < N; i++) scales[i] = draw(LOGNORMAL, 5, i);
    for (size_t i = 0; i < N; i++) means[i] = 0.3 * normal(6, i);
    for (double factor = 10; factor <= 1000; factor *= 10) {
        const double target = N / factor;
        taciti_threshold t = {.value = 4};
        double sum = 0;
        memset(g_residual, 0, sizeof g_residual);
        for (int step = 0; step < 120; step++) {
            const double scale = exp(0.2 * normal(11, (uint64_t)step));
            for (size_t i = 0; i < N; i++)
                g_x[i] = g_residual[i] + scale * scales[i] * (means[i] + normal(100 + (uint64_t)step, i));
            const double value = t.value, kept = step_of(&t, target);
            for (size_t i = 0; i < N; i++) g_residual[i] = fabs(g_x[i]) >= value ? 0 : g_x[i];
            if (step < 40) continue;
            sum += kept / target / 80;
            if (kept > 8 * target || kept < target / 8) fail_msg("factor %g, step %d: %g", factor, step, kept / target);
        }
        assert_true(sum > 0.7 && sum < 1.6);
    }
}

static void what_is_out_of_reach_is_found(void **state) {
    (void)state;
    for (size_t i = 0; i < N; i++) g_x[i] = draw(NORMAL, 3, i);
    taciti_threshold high = {.value = 1e30}, low = {.value = 1e-30};
    assert_true(steps_until_close(&high, N / 100.0, 60) < 50 && steps_until_close(&low, N / 100.0, 90) < 80);
    memset(g_x, 0, sizeof g_x);
    taciti_threshold none = {.value = 1};
    (void)step_of(&none, N / 100.0);
    assert_true(none.value == 0 && none.error == 0);
    for (size_t i = 0; i < N; i++) g_x[i] = 1e-12 * draw(NORMAL, 3, i);
    assert_true(fabs(step_of(&none, N / 100.0) - N / 100.0) <= 1);
}

static char g_line[512];
static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)strncpy(g_line, line, sizeof g_line - 1);
}

static void refused(taciti_compression_setup setup, const char *message) {
    assert_int_equal(taciti_compression_check(&setup), TACIT_E_CONFIG);
    if (strstr(g_line, message) == NULL) fail_msg("\"%s\" does not contain \"%s\"", g_line, message);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    taciti_compress_options o = {.factor = 10, .feedback = 1};
    const taciti_codec *topk = taciti_codec_find("topk"), *bf16 = taciti_codec_find("bf16");
    const taciti_controller *other = taciti_controller_find("gravac");
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_ERROR);
    assert_int_equal(taciti_compression_check(&(taciti_compression_setup){.sums.codec = topk, .options = &o}),
                     TACIT_OK);
    refused((taciti_compression_setup){.options = &o, .controller = other}, "give --compress.codec topk");
    refused((taciti_compression_setup){.sums.codec = bf16, .options = &o, .controller = other},
            "does not select by their number");
    o.back = 0.5;
    refused((taciti_compression_setup){.sums.codec = topk, .options = &o}, "--compress.back 1");
    o.back = 0, o.what = TACITI_SENDS_CHANGE, o.momentum = 0.5;
    refused((taciti_compression_setup){.sums.codec = topk, .options = &o}, "leave out compress.momentum");
    o.what = TACITI_SENDS_GRADIENT, o.residual = TACITI_RESIDUAL_BF16;
    refused((taciti_compression_setup){.sums.codec = topk, .options = &o}, "or --compress.momentum 0");
    o.residual = TACITI_RESIDUAL_F32;
    refused(
        (taciti_compression_setup){.sums.codec = topk, .options = &o, .controller = taciti_controller_find("payoff")},
        "adapt.policy payoff may send gradients as they are");
    (void)snprintf(o.layers.text, sizeof o.layers.text, "mlp");
    refused((taciti_compression_setup){.sums.codec = topk, .options = &o}, "or --compress.layers all");
    o.layers.text[0] = '\0', o.residual = TACITI_RESIDUAL_BF16;
    o.momentum = 0, o.what = TACITI_SENDS_CHANGE;
    refused((taciti_compression_setup){.sums.codec = topk, .options = &o}, "or --compress.what gradient");
    o.residual = TACITI_RESIDUAL_F32, o.feedback = 0;
    refused((taciti_compression_setup){.sums.codec = taciti_codec_find("qsgd"), .options = &o},
            "--compress.what gradient");
    o.what = TACITI_SENDS_GRADIENT, o.feedback = 1;
    refused((taciti_compression_setup){.sums.codec = taciti_codec_find("qsgd"), .options = &o},
            "--compress.feedback 0");
    assert_int_equal(taciti_compression_check(&(taciti_compression_setup){.sums.codec = topk, .options = &o}),
                     TACIT_OK);
}

static void what_no_exchange_combines_is_refused(void **state) {
    (void)state;
    const taciti_compress_options o = {.factor = 10, .collective = TACITI_WAY_GATHER};
    const taciti_compression_setup none = {.options = &o},
                                   votes = {.sums.codec = taciti_codec_find("signsgd"), .options = &o};
    assert_int_equal(taciti_compression_check(&none), TACIT_OK);
    assert_int_equal(taciti_compression_check(&votes), TACIT_E_CONFIG);
}

/* Gathers have compress.back as their factor, and neither feedback nor momentum. */
static void gathers_have_options_of_their_own(void **state) {
    (void)state;
    const taciti_compress_options sums = {
        .factor = 10, .back = 3, .scope = TACITI_SCOPE_BUCKET, .warmup = 7, .feedback = .5, .momentum = .5};
    for (int selects = 0; selects < 2; selects++) {
        const taciti_compression_setup setup = {.sums.codec = taciti_codec_find("topk"),
                                                .options = &sums,
                                                .gathers.codec = taciti_codec_find(selects ? "topk" : "int8")};
        const taciti_compression_setup gathers = taciti_compression_gather_setup(&setup);
        const taciti_encoding e = taciti_compression_encoding(&gathers);
        assert_true(e.codec == setup.gathers.codec && gathers.phase == TACITI_PHASE_ALL_GATHER);
        assert_true(e.expected.factor == (selects ? 3 : 0) && e.back.factor == 0);
        assert_true(!e.feedback.errors && e.feedback.momentum == 0 && e.feedback.half);
        assert_false(taciti_compression_by_threshold(&gathers)); /* of a bucket, or none */
    }
}

/* log(n / count) of 200 elements above half the threshold is 0.69 of that of one, and of none it counts as of one: the
 * magnitudes are exponential, or a power of 1.88 of that. So a step from 10 to 100 moves the threshold by 2^(1 /
 * power); and none where one in ten is wanted corrects it down by log(0.5 x 10 / 10000) over the slope log2(200). */
static void a_change_of_the_factor_moves_the_threshold(void **state) {
    (void)state;
    const double n = 10000, near = 200;
    for (int kept = 0; kept <= 1; kept++) {
        const taciti_threshold_seen seen = {.n = n, .kept = kept, .near = near};
        taciti_threshold t = {.value = 1};
        taciti_threshold_correct(&t, &seen, 10, 100);
        const double power = log2(log(n) / log(n / near)), slope = log2(near);
        const double correction = log((kept > 0 ? 1 : 0.5) * 10 / n) / slope, change = log(2) / power;
        assert_true(fabs(log(t.value) - (correction + change)) < 1e-12);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_of_the_factor_moves_the_threshold),
        cmocka_unit_test(it_converges_and_follows_a_jump_of_the_scale),
        cmocka_unit_test(it_follows_a_change_of_the_factor_at_once),
        cmocka_unit_test(it_is_steady_with_error_feedback),
        cmocka_unit_test(what_is_out_of_reach_is_found),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(what_no_exchange_combines_is_refused),
        cmocka_unit_test(gathers_have_options_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

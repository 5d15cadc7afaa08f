/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/order.h"
#include "data/partition.h"

enum { K = TACITI_PARTITION_CLASSES, TOKENS = 10007, TIME = 16, SEED = 5 };

static taciti_partition partition_of(const char *text, int rank, int ranks) {
    taciti_partition p;
    assert_int_equal(taciti_partition_parse(text, &p), TACIT_OK);
    taciti_partition_assign(&p, SEED, rank, ranks);
    return p;
}

static uint64_t start_of(const taciti_partition *p, uint64_t sample) {
    return taciti_partition_start(p, TOKENS, TIME, SEED, sample);
}

static void what_is_none_is_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "by-ranks",      "Global",          "dirichlet",      "dirichlet:",     "dirichlet:0",      "dirichlet:-1",
        "dirichlet:nan", "dirichlet:1e400", "dirichlet:0.1x", "dirichlet: 0.1", "dirichlet:0.0009", "dirichlet:1e7"};
    taciti_partition p;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(taciti_partition_parse(wrong[i], &p), TACIT_E_CONFIG);
    assert_int_equal(taciti_partition_parse("", &p), TACIT_OK);
    assert_int_equal(p.kind, TACITI_PARTITION_GLOBAL);
    assert_int_equal(taciti_partition_parse("dirichlet:0.001", &p), TACIT_OK);
    assert_true(p.kind == TACITI_PARTITION_DIRICHLET && p.alpha == 0.001);
}

/* `global`, and by-rank on one rank, draw the sequence of the whole run. */
static void global_is_the_order_of_the_run(void **state) {
    (void)state;
    const taciti_sample_order order = taciti_sample_order_make(TOKENS, TIME);
    const taciti_partition global = partition_of("global", 3, 4), alone = partition_of("by-rank", 0, 1);
    for (uint64_t i = 0; i < 3000; i++) {
        assert_int_equal(start_of(&global, i), taciti_sample_order_start(&order, SEED, i));
        assert_int_equal(start_of(&alone, i), taciti_sample_order_start(&order, SEED, i));
    }
}

/* Parts are disjoint and make up the whole; in an epoch a rank visits each window of its part once. */
static void ranks_stay_in_their_own_parts(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks++)
        for (int r = 0; r < ranks; r++) {
            const taciti_partition p = partition_of("by-rank", r, ranks);
            const uint64_t begin = (uint64_t)TOKENS * (uint64_t)r / (uint64_t)ranks;
            const uint64_t end = (uint64_t)TOKENS * (uint64_t)(r + 1) / (uint64_t)ranks;
            static unsigned char hit[TOKENS];
            memset(hit, 0, sizeof hit);
            const uint64_t windows = taciti_sample_order_make(end - begin, TIME).windows;
            assert_true(taciti_partition_min_tokens(&p, TOKENS) <= end - begin);
            for (uint64_t i = 0; i < windows; i++) {
                const uint64_t at = start_of(&p, i);
                assert_true(at >= begin && at + TIME + 1 <= end);
                assert_int_equal(hit[at]++, 0);
            }
        }
}

/* Ranks whose parts are equally long do not walk through them in step. */
static void ranks_have_orders_of_their_own(void **state) {
    (void)state;
    const taciti_partition a = partition_of("by-rank", 0, 2), b = partition_of("by-rank", 1, 2);
    int same = 0;
    for (uint64_t i = 0; i < 300; i++) same += start_of(&b, i) - TOKENS / 2 == start_of(&a, i);
    assert_true(same < 10);
}

/* Mean 1 / K and variance (1 / K) (1 - 1 / K) / (K alpha + 1) of each share; bounds are 5 standard errors. */
static void shares_have_the_moments_of_a_dirichlet(void **state) {
    (void)state;
    static const double alphas[] = {0.01, 0.1, 1, 10, 1000};
    enum { RANKS = 20000 };
    for (size_t a = 0; a < sizeof alphas / sizeof *alphas; a++) {
        double sums[K] = {0}, squares = 0;
        const double mean = 1.0 / K, variance = mean * (1 - mean) / (K * alphas[a] + 1);
        for (int r = 0; r < RANKS; r++) {
            double q[K], sum = 0;
            taciti_partition_probabilities(SEED, r, alphas[a], q);
            for (int k = 0; k < K; k++) {
                assert_true(q[k] >= 0 && q[k] <= 1);
                sum += q[k];
                sums[k] += q[k];
                squares += (q[k] - mean) * (q[k] - mean);
            }
            assert_true(fabs(sum - 1) <= 1e-15 * K);
        }
        for (int k = 0; k < K; k++) assert_true(fabs(sums[k] / RANKS - mean) <= 5 * sqrt(variance / RANKS));
        assert_true(fabs(squares / RANKS / K / variance - 1) <= 0.03);
    }
}

/* The same bits from every compiler and on every CPU: ranks compute them for themselves. */
static void shares_are_golden(void **state) {
    (void)state;
    static const double golden[2][3] = {{0x1.1ae339a1f27e1p-23, 0x1.2178ac4cf216p-9, 0x1.96d7964dfb761p-38},
                                        {0x1.edd1e60e5ccp-8, 0x1.972aee6d1c6dfp-16, 0x1.cf54de3f8fc11p-6}};
    for (int r = 0; r < 2; r++) {
        double q[K];
        taciti_partition_probabilities(1, r, 0.1, q);
        for (int k = 0; k < 3; k++)
            if (!(q[k] >= golden[r][k] && q[k] <= golden[r][k])) fail_msg("rank %d, class %d: %a", r, k, q[k]);
    }
}

/* Samples fall into the regions as often as the shares say, to 5 standard errors, and never cross a border. */
static void samples_follow_the_shares(void **state) {
    (void)state;
    enum { SAMPLES = 20000 };
    for (int r = 0; r < 4; r++) {
        const taciti_partition p = partition_of("dirichlet:0.3", r, 4);
        double q[K], counts[K] = {0};
        taciti_partition_probabilities(SEED, r, 0.3, q);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            const uint64_t at = start_of(&p, i);
            uint64_t k = 0;
            while (at >= (uint64_t)TOKENS * (k + 1) / K) k++;
            assert_true(at + TIME + 1 <= (uint64_t)TOKENS * (k + 1) / K);
            counts[k]++;
        }
        for (int k = 0; k < K; k++)
            assert_true(fabs(counts[k] / SAMPLES - q[k]) <= 5 * sqrt(q[k] * (1 - q[k]) / SAMPLES) + 1e-12);
    }
}

static void other_seeds_and_ranks_give_other_shares(void **state) {
    (void)state;
    double a[K], b[K], c[K];
    taciti_partition_probabilities(1, 0, 1, a);
    taciti_partition_probabilities(2, 0, 1, b);
    taciti_partition_probabilities(1, 1, 1, c);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
}

static void nothing_overflows(void **state) {
    (void)state;
    const taciti_partition last = partition_of("by-rank", 4095, 4096), mixed = partition_of("dirichlet:1e6", 1, 2);
    const uint64_t tokens = UINT64_C(1) << 62;
    for (uint64_t i = 0; i < 200; i++) {
        assert_true(taciti_partition_start(&last, tokens, TIME, SEED, i) >= tokens / 4096 * 4095);
        assert_true(taciti_partition_start(&mixed, tokens, TIME, SEED, i) < tokens - TIME);
    }
}

static void words_name_the_mixture(void **state) {
    (void)state;
    char text[512], few[8];
    taciti_partition p = partition_of("dirichlet:0.1", 0, 4);
    taciti_partition_describe(&p, TOKENS, SEED, text, sizeof text);
    assert_non_null(strstr(text, "each of 4 ranks draws from 10 regions"));
    taciti_partition_describe(&p, TOKENS, SEED, few, sizeof few);
    assert_int_equal(strlen(few), sizeof few - 1);
    p = partition_of("by-rank", 0, 4);
    taciti_partition_describe(&p, TOKENS, SEED, text, sizeof text);
    assert_non_null(strstr(text, "2501 tokens"));
    p = partition_of("global", 0, 4);
    taciti_partition_describe(&p, TOKENS, SEED, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(global_is_the_order_of_the_run),
        cmocka_unit_test(ranks_stay_in_their_own_parts),
        cmocka_unit_test(ranks_have_orders_of_their_own),
        cmocka_unit_test(shares_have_the_moments_of_a_dirichlet),
        cmocka_unit_test(shares_are_golden),
        cmocka_unit_test(samples_follow_the_shares),
        cmocka_unit_test(other_seeds_and_ranks_give_other_shares),
        cmocka_unit_test(nothing_overflows),
        cmocka_unit_test(words_name_the_mixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

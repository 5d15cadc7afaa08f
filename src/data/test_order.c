/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka wants the first four above first */
#include <cmocka.h>

#include "data/order.h"

enum { MAX = 5000 };

static void a_permutation_hits_every_element_once(void **state) {
    (void)state;
    const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4095, 4096, 4097, MAX};
    static unsigned char hit[MAX];
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (uint64_t key = 0; key < 5; key++) {
            memset(hit, 0, sizeof hit);
            for (uint64_t i = 0; i < sizes[s]; i++) {
                const uint64_t to = taciti_sample_order_permute(key, sizes[s], i);
                assert_true(to < sizes[s]);
                assert_int_equal(hit[to]++, 0);
            }
        }
    }
}

static void huge_domains_stay_inside(void **state) {
    (void)state;
    const uint64_t n = (UINT64_C(1) << 61) + 12345;
    for (uint64_t i = 0; i < 100; i++) assert_true(taciti_sample_order_permute(9, n, n - 1 - i) < n);
    assert_int_not_equal(taciti_sample_order_permute(9, n, 0), taciti_sample_order_permute(9, n, 1));
}

/* Over many keys element 0 lands everywhere equally often: chi-square with 6 degrees of freedom, 0.1 % point 22.5. */
static void permutations_of_seven_are_spread_evenly(void **state) {
    (void)state;
    const double keys = 7000.0;
    double counts[7] = {0}, square = 0.0;
    for (uint64_t key = 0; key < 7000; key++) counts[taciti_sample_order_permute(key * 1000003, 7, 0)] += 1.0;
    for (size_t i = 0; i < 7; i++) square += (counts[i] - keys / 7) * (counts[i] - keys / 7) / (keys / 7);
    assert_true(square < 22.5);
}

static void check_epoch(const taciti_sample_order *order, uint64_t tokens, uint64_t seed, uint64_t epoch) {
    static unsigned char hit[MAX];
    memset(hit, 0, sizeof hit);
    uint64_t phase = UINT64_MAX;
    for (uint64_t i = 0; i < order->windows; i++) {
        const uint64_t start = taciti_sample_order_start(order, seed, epoch * order->windows + i);
        assert_true(start + order->time + 1 <= tokens);
        if (phase == UINT64_MAX) phase = start % order->time;
        assert_int_equal(start % order->time, phase % order->time);
        assert_int_equal(hit[start]++, 0);
    }
    /* Windows of one phase without a gap: count of starts between the first and the last. */
    uint64_t first = 0;
    while (hit[first] == 0) first++;
    assert_true(first < order->phases);
    for (uint64_t w = 0; w < order->windows; w++) assert_int_equal(hit[first + w * order->time], 1);
}

static void every_epoch_visits_every_window_once(void **state) {
    (void)state;
    const uint64_t times[] = {1, 2, 3, 7, 16, 64};
    for (size_t t = 0; t < 6; t++) {
        for (uint64_t tokens = times[t] + 1; tokens < times[t] + 300; tokens += 1 + tokens / 13) {
            const taciti_sample_order order = taciti_sample_order_make(tokens, times[t]);
            assert_true(order.windows >= 1 && order.phases >= 1 && order.phases < 2 * times[t]);
            for (uint64_t epoch = 0; epoch < 4; epoch++) check_epoch(&order, tokens, 11, epoch);
        }
    }
}

static void epochs_reach_the_first_and_the_last_token(void **state) {
    (void)state;
    const uint64_t tokens = 103, time = 8;
    const taciti_sample_order order = taciti_sample_order_make(tokens, time);
    uint64_t min = UINT64_MAX, max = 0;
    for (uint64_t sample = 0; sample < 60 * order.windows; sample++) {
        const uint64_t start = taciti_sample_order_start(&order, 5, sample);
        min = start < min ? start : min;
        max = start + time > max ? start + time : max;
    }
    assert_int_equal(min, 0);
    assert_int_equal(max, tokens - 1);
}

static void seeds_and_epochs_differ(void **state) {
    (void)state;
    const taciti_sample_order order = taciti_sample_order_make(100000, 32);
    size_t same_seed = 0, same_epoch = 0;
    for (uint64_t i = 0; i < 500; i++) {
        const uint64_t start = taciti_sample_order_start(&order, 1, i);
        same_seed += start == taciti_sample_order_start(&order, 2, i);
        same_epoch += start == taciti_sample_order_start(&order, 1, i + order.windows);
        assert_int_equal(start, taciti_sample_order_start(&order, 1, i));
    }
    assert_true(same_seed < 5 && same_epoch < 5);
    (void)taciti_sample_order_start(&order, 1, UINT64_MAX); /* the endless sequence has no bad index */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_permutation_hits_every_element_once),
        cmocka_unit_test(huge_domains_stay_inside),
        cmocka_unit_test(permutations_of_seven_are_spread_evenly),
        cmocka_unit_test(every_epoch_visits_every_window_once),
        cmocka_unit_test(epochs_reach_the_first_and_the_last_token),
        cmocka_unit_test(seeds_and_epochs_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

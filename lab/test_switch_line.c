/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "switch_line.h"

static void serial_time_is_bits_over_rate(void **state) {
    (void)state;
    assert_int_equal(taciti_shaped_link_serial_ns(1000000000, 125), 1000);
    assert_int_equal(taciti_shaped_link_serial_ns(100000, 65536), 5242880000);
    assert_int_equal(taciti_shaped_link_serial_ns(0, 65536), 0);
    assert_int_equal(taciti_shaped_link_serial_ns(1000, 0), 0);
}

/* Frames that come in at once leave one serial time apart: the rate holds over any number of them. */
static void a_port_keeps_its_rate(void **state) {
    (void)state;
    taciti_port_queue queue = {0};
    const taciti_shaped_link link = {.rate_bps = 200000000};
    uint64_t leaves_ns = 0;
    for (uint64_t i = 1; i <= 100; i++) {
        assert_true(taciti_port_enqueue(&queue, &link, 500, 9014, &leaves_ns));
        assert_int_equal(leaves_ns, 500 + i * taciti_shaped_link_serial_ns(link.rate_bps, 9014));
    }
    assert_true(taciti_port_enqueue(&queue, &link, 1000000000, 9014, &leaves_ns)); /* an idle port gives no credit */
    assert_int_equal(leaves_ns, 1000000000 + taciti_shaped_link_serial_ns(link.rate_bps, 9014));
}

static void a_full_port_drops(void **state) {
    (void)state;
    taciti_port_queue queue = {0};
    const taciti_shaped_link link = {.rate_bps = 100000000};
    uint64_t leaves_ns = 0;
    size_t taken = 0;
    while (taken < 10000 && taciti_port_enqueue(&queue, &link, 0, 10000, &leaves_ns)) taken++;
    assert_int_equal(taken, taciti_shaped_link_queue_bytes(link.rate_bps) / 10000 + 1); /* one is being sent */
    assert_true(taciti_port_enqueue(&queue, &link, 1000000, 10000, &leaves_ns)); /* room again a frame's time later */
}

static void a_port_without_limit_is_never_full(void **state) {
    (void)state;
    taciti_port_queue queue = {.free_ns = 1000000000};
    const taciti_shaped_link link = {0};
    uint64_t leaves_ns = 0;
    assert_true(taciti_port_enqueue(&queue, &link, 7, 65536, &leaves_ns));
    assert_int_equal(leaves_ns, 7);
}

static void a_path_has_half_of_both_delays(void **state) {
    (void)state;
    taciti_link_noise noise = {.state = 1};
    uint64_t last_ns[2] = {0};
    const taciti_shaped_link near = {.delay_ns = 1000000}, far = {.delay_ns = 5000000};
    assert_int_equal(taciti_shaped_link_arrival_ns(&near, &far, &noise, &last_ns[1], 100), 3000100);
    assert_int_equal(taciti_shaped_link_arrival_ns(&near, &near, &noise, &last_ns[0], 200), 1000200);
    assert_int_equal(taciti_shaped_link_arrival_ns(&near, &near, &noise, &last_ns[0], 4000000), 5000000);
}

/* A shorter delay holds for frames that enter after it, and none of them overtakes one before. */
static void a_path_that_becomes_shorter_keeps_its_order(void **state) {
    (void)state;
    taciti_link_noise noise = {.state = 1};
    uint64_t last_ns = 0;
    const taciti_shaped_link near = {.delay_ns = 1000000}, far = {.delay_ns = 10000000};
    assert_int_equal(taciti_shaped_link_arrival_ns(&far, &far, &noise, &last_ns, 0), 10000000);
    assert_int_equal(taciti_shaped_link_arrival_ns(&near, &near, &noise, &last_ns, 8000000), 10000000);
    assert_int_equal(taciti_shaped_link_arrival_ns(&near, &near, &noise, &last_ns, 9500000), 10500000);
}

static void jitter_stays_in_its_range_and_keeps_the_order(void **state) {
    (void)state;
    taciti_link_noise noise = {.state = 99};
    const taciti_shaped_link link = {.delay_ns = 2000000, .jitter_ns = 500000};
    uint64_t path_ns = 0, last_ns = 0, min = UINT64_MAX, max = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        const uint64_t now_ns = i * 3000000;
        const uint64_t at_ns = taciti_shaped_link_arrival_ns(&link, &link, &noise, &path_ns, now_ns);
        assert_true(at_ns >= last_ns);
        last_ns = at_ns;
        if (at_ns - now_ns < min) min = at_ns - now_ns;
        if (at_ns - now_ns > max) max = at_ns - now_ns;
    }
    assert_in_range(min, 1500000, 1510000);
    assert_in_range(max, 2490000, 2500000);
    for (uint64_t i = 0; i < 1000; i++) { /* closely behind each other */
        const uint64_t at_ns = taciti_shaped_link_arrival_ns(&link, &link, &noise, &path_ns, 40000000000 + i * 1000);
        assert_true(at_ns >= last_ns);
        last_ns = at_ns;
    }
}

static void jitter_larger_than_the_delay_never_goes_back_in_time(void **state) {
    (void)state;
    taciti_link_noise noise = {.state = 5};
    uint64_t last_ns = 0;
    const taciti_shaped_link link = {.delay_ns = 10, .jitter_ns = 1000000};
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(taciti_shaped_link_arrival_ns(&link, &link, &noise, &last_ns, i * 2000000) >= i * 2000000);
}

/* 100000 draws of p = 1 %: the mean is 1000, four standard deviations are 126. */
static void losses_have_their_share(void **state) {
    (void)state;
    taciti_link_noise noise = {.state = 12345};
    const taciti_shaped_link none = {0}, some = {.loss_ppm = 10000}, all = {.loss_ppm = 1000000};
    size_t lost = 0;
    for (int i = 0; i < 100000; i++) lost += taciti_shaped_link_loses(&some, &noise);
    assert_in_range(lost, 874, 1126);
    for (int i = 0; i < 100; i++) assert_false(taciti_shaped_link_loses(&none, &noise));
    for (int i = 0; i < 100; i++) assert_true(taciti_shaped_link_loses(&all, &noise));
}

static void an_agenda_goes_by_time_and_then_by_arrival(void **state) {
    (void)state;
    taciti_agenda agenda = {0};
    static int things[5000];
    for (uint64_t i = 0; i < 5000; i++) {
        things[i] = (int)i;
        assert_true(taciti_agenda_put(&agenda, i * 7919 % 100, &things[i]));
    }
    uint64_t last_at = 0;
    int last_thing = -1;
    for (int i = 0; i < 5000; i++) {
        const uint64_t at_ns = agenda.heap[0].at_ns;
        const int thing = *(int *)taciti_agenda_take(&agenda);
        assert_true(at_ns > last_at || (at_ns == last_at && thing > last_thing) || i == 0);
        assert_int_equal((uint64_t)thing * 7919 % 100, at_ns);
        last_at = at_ns;
        last_thing = thing;
    }
    assert_int_equal(agenda.count, 0);
    free(agenda.heap);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serial_time_is_bits_over_rate),
        cmocka_unit_test(a_port_keeps_its_rate),
        cmocka_unit_test(a_full_port_drops),
        cmocka_unit_test(a_port_without_limit_is_never_full),
        cmocka_unit_test(a_path_has_half_of_both_delays),
        cmocka_unit_test(a_path_that_becomes_shorter_keeps_its_order),
        cmocka_unit_test(jitter_stays_in_its_range_and_keeps_the_order),
        cmocka_unit_test(jitter_larger_than_the_delay_never_goes_back_in_time),
        cmocka_unit_test(losses_have_their_share),
        cmocka_unit_test(an_agenda_goes_by_time_and_then_by_arrival),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

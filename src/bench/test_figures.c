/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "bench/figures.h"
#include "bench/interface_counters.h"

enum { RANKS = 3, BLOCKS = 2, ROUNDS = 4, WARM_UP = 1 };
static int g_host_of[RANKS] = {0, 0, 1};
static const taciti_hosts HOSTS = {.ranks = RANKS, .count = 2, .host_of = g_host_of};
static const taciti_cluster_shape SHAPE = {
    .ranks = RANKS, .blocks = BLOCKS, .rounds = ROUNDS, .warm_up = WARM_UP, .hosts = &HOSTS};

static taciti_cluster_records g_records, g_base;
static taciti_setting_figures g_figures;

static taciti_step_record *at(taciti_cluster_records *records, size_t block, size_t rank, size_t round) {
    return &records->steps[(block * RANKS + rank) * ROUNDS + round];
}

/* Rank r takes 1 + r seconds per step, a tenth more in the second block; half of it is compute, a quarter is wait. */
static void fill(taciti_cluster_records *records, double factor) {
    for (size_t b = 0; b < BLOCKS; b++)
        for (size_t r = 0; r < RANKS; r++) {
            for (size_t i = 0; i < ROUNDS; i++) {
                const double step_s = factor * (1 + (double)r) * (b == 1 ? 1.1 : 1);
                *at(records, b, r, i) = (taciti_step_record){.step_s = step_s,
                                                             .compute_s = step_s / 2,
                                                             .asked_s = (double)NAN,
                                                             .wait_s = step_s / 4,
                                                             .transfer_s = step_s / 2,
                                                             .update_s = step_s / 8};
            }
            records->blocks[b * RANKS + r] = (taciti_block_record){.wall_s = 4,
                                                                   .cpu_s = 2,
                                                                   .payload_bytes = 100 * (ROUNDS + WARM_UP) * (r + 1),
                                                                   .away_sent_bytes = 50 * (ROUNDS + WARM_UP),
                                                                   .away_received_bytes = 60 * (ROUNDS + WARM_UP),
                                                                   .formula_bytes = 100 * (r + 1)};
        }
}

static int set_up(void **state) {
    (void)state;
    g_records.period = g_base.period = 1;
    if (taciti_cluster_records_create(&SHAPE, &g_records) != TACIT_OK ||
        taciti_cluster_records_create(&SHAPE, &g_base) != TACIT_OK)
        return 1;
    fill(&g_records, 1);
    fill(&g_base, 2);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    taciti_cluster_records_destroy(&g_records);
    taciti_cluster_records_destroy(&g_base);
    taciti_setting_figures_destroy(&g_figures);
    return 0;
}

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

static void make(bool has_thread) {
    taciti_setting_figures_destroy(&g_figures);
    assert_int_equal(taciti_cluster_figures_of(&SHAPE, &g_records, &g_base, has_thread, &g_figures), TACIT_OK);
}

static void a_step_is_the_mean_of_the_ranks_or_the_slowest(void **state) {
    (void)state;
    make(true);
    assert_true(near(g_figures.step_s.mean, 2 * 1.05) && g_figures.step_s.count == BLOCKS * ROUNDS);
    assert_true(near(g_figures.step_s.statistics.min, 2) && near(g_figures.step_s.statistics.max, 2.2));
    assert_true(near(g_figures.slowest_s.mean, 3 * 1.05));
    assert_true(near(g_figures.block_s.statistics.min, 2) && near(g_figures.block_s.statistics.max, 2.2));
    assert_true(near(g_figures.wait_share, 0.25) && near(g_figures.overlap, 0.5));
    assert_true(near(g_figures.update_s.mean, 2 * 1.05 / 8));
    make(false);
    assert_true(isnan(g_figures.overlap)); /* without a thread there is nothing to hide behind */
}

/* Ranks of lasting difference have no jitter; a rank whose steps differ has. */
static void compute_varies_within_ranks_only(void **state) {
    (void)state;
    for (size_t b = 0; b < BLOCKS; b++)
        for (size_t r = 0; r < RANKS; r++)
            for (size_t i = 0; i < ROUNDS; i++) at(&g_records, b, r, i)->compute_s = (double)(1 + r);
    make(true);
    assert_true(near(g_figures.compute.mean_s, 2) && near(g_figures.compute.cv, 0));
    assert_true(near(g_figures.compute.slowest_s, 3));
    assert_true(isnan(g_figures.compute.asked_mean_s) && isnan(g_figures.compute.asked_cv));
    for (size_t b = 0; b < BLOCKS; b++)
        for (size_t i = 0; i < ROUNDS; i++) {
            for (size_t r = 0; r < RANKS; r++) at(&g_records, b, r, i)->asked_s = (double)(1 + r);
            at(&g_records, b, 0, i)->asked_s = i % 2 == 0 ? 0.5 : 1.5;
        }
    make(true);
    assert_true(near(g_figures.compute.asked_mean_s, 2));
    assert_true(near(g_figures.compute.asked_cv, sqrt(8 * 0.25 / 7 / RANKS))); /* one of three, 8 samples */
    assert_true(near(g_figures.compute.asked_slowest_s, 3));
}

/* Every other step exchanges: 3 seconds and 1. Means over whole periods do not vary, those of single steps do. */
static void a_period_is_one_sample(void **state) {
    (void)state;
    for (size_t b = 0; b < BLOCKS; b++)
        for (size_t r = 0; r < RANKS; r++)
            for (size_t i = 0; i < ROUNDS; i++) at(&g_records, b, r, i)->step_s = (i % 2 == 0 ? 3 : 1) + (double)r;
    make(true);
    assert_true(g_figures.period == 1 && g_figures.step_s.count == BLOCKS * ROUNDS);
    assert_true(near(g_figures.step_s.mean, 3) && near(g_figures.step_s.statistics.max, 4));
    g_records.period = 2;
    make(true);
    assert_true(g_figures.period == 2 && g_figures.step_s.count == BLOCKS * ROUNDS / 2);
    assert_true(near(g_figures.step_s.statistics.min, 3) && near(g_figures.step_s.statistics.max, 3));
    assert_true(near(g_figures.slowest_s.mean, 4) && near(g_figures.slowest_s.cv, 0));
    g_records.period = ROUNDS;
    make(true);
    assert_true(g_figures.step_s.count == BLOCKS && near(g_figures.step_s.mean, 3));
    assert_true(near(g_figures.block_s.statistics.median, 3));
}

/* fill() makes the second block a tenth slower. */
static void drift_is_from_early_blocks_to_late(void **state) {
    (void)state;
    make(true);
    assert_true(near(g_figures.drift, 0.1));
    taciti_setting_figures one;
    taciti_cluster_shape shape = SHAPE;
    shape.blocks = 1;
    assert_int_equal(taciti_cluster_figures_of(&shape, &g_records, &g_base, true, &one), TACIT_OK);
    assert_true(isnan(one.drift));
    taciti_setting_figures_destroy(&one);
}

static void ratios_are_of_blocks_beside_each_other(void **state) {
    (void)state;
    make(true);
    assert_true(near(g_figures.ratio.mean, 0.5) && near(g_figures.ratio.statistics.max, 0.5));
    for (size_t r = 0; r < RANKS; r++)
        for (size_t i = 0; i < ROUNDS; i++) at(&g_base, 1, r, i)->step_s /= 2;
    make(true);
    assert_true(near(g_figures.ratio.statistics.min, 0.5) && near(g_figures.ratio.statistics.max, 1));
    assert_true(g_figures.ratio.count == BLOCKS);
}

static void bytes_and_cores_are_per_step_and_host(void **state) {
    (void)state;
    make(true);
    assert_true(near(g_figures.payload_bytes, 200) && near(g_figures.payload_min_bytes, 100));
    assert_true(near(g_figures.payload_max_bytes, 300) && near(g_figures.formula_bytes, 200));
    assert_true(near(g_figures.cpu_cores, RANKS * 0.5));
    assert_true(near(g_figures.hosts[0].payload_sent, 100) && near(g_figures.hosts[1].payload_sent, 50));
    assert_true(near(g_figures.hosts[0].payload_received, 120) && near(g_figures.hosts[1].payload_received, 60));
    assert_false(g_figures.hosts[0].measured || g_figures.hosts[1].measured);
    for (size_t b = 0; b < BLOCKS; b++) {
        taciti_block_record *leader = &g_records.blocks[b * RANKS + 2];
        leader->has_nic = 1;
        leader->nic_sent_bytes = 55 * (ROUNDS + WARM_UP);
        leader->nic_received_bytes = 66 * (ROUNDS + WARM_UP);
    }
    make(true);
    assert_true(!g_figures.hosts[0].measured && g_figures.hosts[1].measured);
    assert_true(near(g_figures.hosts[1].sent, 55) && near(g_figures.hosts[1].received, 66));
}

static void interface_lines_are_read_or_refused(void **state) {
    (void)state;
    char name[TACITI_INTERFACE_BYTES] = "untouched";
    uint64_t received = 1, sent = 2;
    static const char *const wrong[] = {
        "",
        "Inter-|   Receive                                                |  Transmit",
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets",
        "eth0:",
        "eth0: 1 2 3 4 5 6 7 8",
        ": 1 2 3 4 5 6 7 8 9 10",
        "eth0: a b c d e f g h i j",
        "a-name-of-more-than-thirty-one-bytes: 1 2 3 4 5 6 7 8 9 10",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(taciti_traffic_line(wrong[i], name, &received, &sent));
    assert_true(strcmp(name, "untouched") == 0 && received == 1 && sent == 2);
    assert_true(taciti_traffic_line("  eth0: 18446744073709551615 1 0 0 0 0 0 0 4294967296 7 0 0 0 0 0 0\n", name,
                                    &received, &sent));
    assert_string_equal(name, "eth0");
    assert_true(received == UINT64_MAX && sent == UINT64_C(4294967296));
    assert_true(taciti_traffic_line("lo:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0", name, &received, &sent));
    assert_true(strcmp(name, "lo") == 0 && received == 5 && sent == 6);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_step_is_the_mean_of_the_ranks_or_the_slowest),
        TEST(compute_varies_within_ranks_only),
        TEST(a_period_is_one_sample),
        TEST(drift_is_from_early_blocks_to_late),
        TEST(ratios_are_of_blocks_beside_each_other),
        TEST(bytes_and_cores_are_per_step_and_host),
        cmocka_unit_test(interface_lines_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

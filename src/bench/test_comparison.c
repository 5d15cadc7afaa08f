/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison on ranks that are threads: what it counts, and that all settings take the same whole periods.
 */
#include "bench/comparison.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "comm/test_engine.h"

enum { RANKS = 3, SETTINGS = 4 };

static const char *const CHANGES[SETTINGS] = {NULL, "exchange.wire=bf16", "strategy=localsgd localsgd.every=2",
                                              "strategy=gossip gossip.topology=one-peer-ring"};

static void create_settings(taciti_bench_settings *out, const char *const *changes) {
    CHECK(taciti_bench_settings_create(out) == TACIT_OK);
    for (size_t i = 0; i < SETTINGS; i++) {
        taciti_bench_setting *setting = NULL;
        CHECK(taciti_bench_settings_add(out, i == 0 ? "base" : changes[i], &setting) == TACIT_OK);
        CHECK(taciti_config_set(&setting->job.config, "model.preset", "nano", "test") == TACIT_OK);
        CHECK(taciti_model_resolve(&setting->job.model) == TACIT_OK);
        if (i > 0) CHECK(taciti_bench_setting_change(setting, changes[i]) == TACIT_OK);
    }
}

static taciti_cluster_options options_for(const taciti_bench_settings *settings) {
    return (taciti_cluster_options){
        .settings = settings, .length = {.blocks = 2, .rounds = 4, .warm_up = 1}, .batch = 2, .time = 7, .threads = 1};
}

static bool is(double a, double b) { return a >= b && a <= b; }

/* 2 steps and 3 repeat after 6: rounds and warm-up are rounded up to it. A dense step sends 4/3 of the 111744 bytes of
 * a gradient. */
static void check_bench(const taciti_cluster_bench *b) {
    static const size_t PERIODS[SETTINGS] = {1, 1, 2, 3};
    static const double BETWEEN[SETTINGS] = {111744, 55872, 55872, 74496};
    CHECK(b->setting_count == SETTINGS && b->ranks == RANKS && b->hosts == 2 && b->parameters == 27936);
    CHECK(b->blocks == 2 && b->rounds == 6 && b->warm_up == 6 && !b->interrupted && b->threads == 1);
    CHECK(b->host_ranks[0] == 2 && b->host_ranks[1] == 1 && b->predicted_bytes > (size_t)4 * 4 * 27936);
    for (size_t i = 0; i < SETTINGS; i++) {
        const taciti_setting_figures *f = &b->figures[i];
        CHECK(f->period == PERIODS[i] && f->step_s.count == 12 / PERIODS[i] && f->block_s.count == 2);
        CHECK(f->ratio.count == 2 && f->step_s.mean > 0 && f->wait_s.mean >= 0 && b->buckets[i] >= 1);
        CHECK(is(f->payload_bytes, f->formula_bytes) && f->payload_min_bytes <= f->payload_bytes);
        CHECK(is(f->hosts[0].payload_sent, BETWEEN[i]));
    }
    const taciti_setting_figures *f = b->figures;
    CHECK(is(f[0].ratio.mean, 1) && is(f[0].ratio.statistics.min, 1) && is(f[0].ratio.statistics.max, 1));
    CHECK(is(f[0].payload_bytes, 148992) && is(f[1].payload_bytes, 111744)); /* f32 inside of the host of two */
    CHECK(is(f[2].payload_bytes, 74496) && is(f[3].payload_bytes, 74496));   /* every other step; two ranks of three */
}

static void run_comparison(taciti_comm *comm, void *context) {
    taciti_bench_settings settings;
    taciti_cluster_bench bench = {0};
    (void)context;
    create_settings(&settings, CHANGES);
    const taciti_cluster_options options = options_for(&settings);
    CHECK(taciti_cluster_bench_run(comm, &options, &bench) == TACIT_OK);
    check_bench(&bench);
    taciti_cluster_bench_destroy(&bench);
    taciti_bench_settings_destroy(&settings);
}

static void a_comparison_counts_what_its_settings_send(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_ranks_per_host(2);
    test_world_run(RANKS, &options, run_comparison, NULL);
    test_ranks_per_host(0);
}

/* One rank has another setting, or cannot say how long all of it may take. */
static void run_refused(taciti_comm *comm, void *context) {
    const char *const others[SETTINGS] = {NULL, "exchange.wire=fp16", CHANGES[2], CHANGES[3]};
    const char *const long_periods[SETTINGS] = {NULL, "strategy=localsgd localsgd.every=997",
                                                "strategy=localsgd localsgd.every=991", CHANGES[3]};
    taciti_bench_settings settings;
    taciti_cluster_bench bench = {0};
    (void)context;
    create_settings(&settings, taciti_comm_rank(comm) == 1 ? others : CHANGES);
    taciti_cluster_options options = options_for(&settings);
    CHECK(taciti_cluster_bench_run(comm, &options, &bench) == TACIT_E_CONFIG && bench.figures == NULL);
    taciti_bench_settings_destroy(&settings);
    create_settings(&settings, long_periods); /* 997 x 991 steps are too many for a block */
    options = options_for(&settings);
    CHECK(taciti_cluster_bench_run(comm, &options, &bench) == TACIT_E_CONFIG && bench.figures == NULL);
    taciti_bench_settings_destroy(&settings);
}

static void what_cannot_be_compared_is_refused_on_all_ranks(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(RANKS, &options, run_refused, NULL);
}

/* Lists that differ in the last of `items`. */
static tacit_status agree_on_lists(taciti_comm *comm, const taciti_config *config, size_t items, const char *last) {
    char list[8192] = "";
    for (size_t i = 0; i < items; i++) taciti_text_add(list, sizeof list, "0:1.25 ");
    taciti_text_add(list, sizeof list, "%s", taciti_comm_rank(comm) == 1 ? last : "0:1.5");
    CHECK(taciti_config_set(config, "compute.slow", list, "test") == TACIT_OK);
    return taciti_agree_on_configuration(comm, config);
}

static void run_long_lists(taciti_comm *comm, void *context) {
    taciti_bench_settings settings;
    (void)context;
    create_settings(&settings, CHANGES);
    const taciti_config *config = &settings.list[0].job.config;
    for (size_t items = 0; items < 1000; items += 110) { /* of 7 bytes: behind those of a short text, and a whole one */
        CHECK(agree_on_lists(comm, config, items, "0:1.5") == TACIT_OK);
        CHECK(agree_on_lists(comm, config, items, "0:1.75") == TACIT_E_CONFIG);
        CHECK(agree_on_lists(comm, config, items, "0:1.5 1:2") == TACIT_E_CONFIG);
    }
    taciti_bench_settings_destroy(&settings);
}

static void lists_are_compared_to_their_ends(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(RANKS, &options, run_long_lists, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_comparison_counts_what_its_settings_send),
        cmocka_unit_test(what_cannot_be_compared_is_refused_on_all_ranks),
        cmocka_unit_test(lists_are_compared_to_their_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

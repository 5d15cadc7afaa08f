/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of a plan on many ranks, and the results that its predictions share (plan/reuse.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "advise/test_stage.h"
#include "plan/reuse.h"

typedef struct shape {
    int hosts, ranks_per_host;
} shape;

/* Predicts all methods of vgg-16 with jitter, and the curves, and adds up the work. */
static void plan_shape(shape s, taciti_reuse *reuse) {
    static int sizes[1000];
    taciti_hosts hosts;
    taciti_plan_curves curves;
    taciti_candidates_destroy(&g.candidates);
    for (int h = 0; h < s.hosts; h++) sizes[h] = s.ranks_per_host;
    taciti_cluster cluster = g.cluster;
    cluster.hosts = s.hosts;
    cluster.ranks_per_host = sizes;
    cluster.compute_cv = 0.03;
    assert_int_equal(taciti_cluster_hosts(&cluster, s.hosts * s.ranks_per_host, &hosts), TACIT_OK);
    assert_int_equal(taciti_candidates_create(&g.settings, &hosts, NULL, &g.candidates), TACIT_OK);
    taciti_candidates_add_others(&g.candidates, &cluster, &hosts, -1);
    const taciti_scene scene = {.profile = &g.profile, .layout = &g.layout, .cluster = &cluster, .hosts = &hosts};
    const taciti_plan_options options = {.seed = 1, .cv = -1, .reuse = reuse};
    assert_int_equal(taciti_candidates_predict(&g.candidates, &scene, &options, NULL, NULL), TACIT_OK);
    assert_int_equal(taciti_plan_curves_compute(&g.settings, &g.candidates, &scene, &options, &curves), TACIT_OK);
    taciti_hosts_destroy(&hosts);
}

/* Two seconds for any shape of a thousand ranks: an event is two to five nanoseconds, a draw some fifty, and traffic of
 * a rank and round some two hundred. The longest period, of pairs among an odd number of ranks, has as many rounds as
 * ranks.
 */
static void a_thousand_ranks_are_little_work(void **state) {
    (void)state;
    static const struct {
        shape shape;
        size_t events, draws, arranged;
    } MOST[] = {{{125, 8}, 96000000, 85000, 320000},
                {{333, 3}, 98000000, 73000, 340000},
                {{111, 9}, 95000000, 85000, 320000},
                {{997, 1}, 105000000, 81000, 400000}};
    for (size_t i = 0; i < sizeof MOST / sizeof *MOST; i++) {
        taciti_reuse reuse = {0};
        plan_shape(MOST[i].shape, &reuse);
        assert_in_range(reuse.draws.events, 1, MOST[i].events);
        assert_in_range(reuse.draws.drawn, 1, MOST[i].draws);
        assert_in_range(reuse.arranged, 1, MOST[i].arranged);
        taciti_reuse_destroy(&reuse);
    }
}

/* A ring of 129 ranks repeats after 129 rounds and is never recommended; who asks for it has it priced. */
static void long_rounds_are_for_who_asks(void **state) {
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        taciti_reuse reuse = {0};
        if (asks) {
            set("strategy", "gossip");
            set("gossip.topology", "one-peer-ring");
            set("gossip.order", "atc");
        }
        plan_shape((shape){43, 3}, &reuse);
        size_t rows = 0, refused = 0;
        for (size_t i = 0; i < g.candidates.count; i++)
            rows += strcmp(g.candidates.list[i].topology, "one-peer-ring") == 0;
        for (size_t i = 0; i < g.candidates.refused_count; i++)
            refused += strstr(g.candidates.refused[i].reason, "one-peer-ring repeats after 129 rounds") != NULL;
        assert_true((rows > 0) == asks && refused == (asks ? 0 : 1));
        taciti_reuse_destroy(&reuse);
    }
}

/* The results that are kept change no bit of any prediction. */
static void reuse_changes_nothing(void **state) {
    (void)state;
    taciti_reuse reuse = {0};
    make(NULL);
    g.options = (taciti_plan_options){.seed = 1, .cv = 0.1, .reuse = &reuse};
    predict();
    g.options.reuse = NULL;
    for (size_t i = 0; i < g.candidates.count; i++) {
        const taciti_candidate *c = &g.candidates.list[i];
        taciti_prediction alone;
        assert_int_equal(taciti_predict(&g.scene, &c->method, &g.options, &alone), TACIT_OK);
        assert_true(alone.step_s == c->prediction.step_s && alone.compute_s == c->prediction.compute_s);
        assert_true(alone.low_s == c->prediction.low_s && alone.high_s == c->prediction.high_s);
        assert_true(alone.nic_bytes == c->prediction.nic_bytes && alone.transfer_s == c->prediction.transfer_s);
    }
    taciti_reuse_destroy(&reuse);
}

/* Rounds of a topology are kept for stretches of the same lengths, and come without the times of another method. */
static void rounds_are_kept_for_equal_lengths(void **state) {
    (void)state;
    taciti_reuse reuse = {0};
    taciti_stretches here, there;
    taciti_rounds *rounds = NULL;
    make(NULL);
    size_t i = 0;
    while (g.candidates.list[i].method.topology == NULL) i++;
    const taciti_method *method = &g.candidates.list[i].method;
    assert_int_equal(taciti_stretches_create(&g.layout, TACITI_STRETCHES_SINGLE, false, &here), TACIT_OK);
    assert_int_equal(taciti_stretches_create(&g.layout, TACITI_STRETCHES_SINGLE, false, &there), TACIT_OK);
    assert_int_equal(taciti_reuse_rounds(&reuse, &g.scene, method, &here, &rounds), TACIT_OK);
    rounds->transfer_s[0] = rounds->behind_s[0] = 3;
    const size_t arranged = reuse.arranged;
    assert_int_equal(taciti_reuse_rounds(&reuse, &g.scene, method, &there, &rounds), TACIT_OK);
    assert_int_equal(reuse.arranged, arranged);
    assert_true(rounds->transfer_s[0] == 0 && rounds->behind_s[0] == 0);
    there.lengths[0]--;
    assert_int_equal(taciti_reuse_rounds(&reuse, &g.scene, method, &there, &rounds), TACIT_OK);
    assert_int_equal(reuse.arranged, 2 * arranged);
    taciti_reuse_destroy(&reuse);
    taciti_stretches_destroy(&here);
    taciti_stretches_destroy(&there);
}
int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_stage, close_stage)
    const struct CMUnitTest tests[] = {
        TEST(reuse_changes_nothing),
        TEST(rounds_are_kept_for_equal_lengths),
        TEST(a_thousand_ranks_are_little_work),
        TEST(long_rounds_are_for_who_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

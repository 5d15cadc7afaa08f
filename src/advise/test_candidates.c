/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/test_stage.h"

static void every_method_is_there_once(void **state) {
    (void)state;
    make(NULL);
    const taciti_candidates *c = &g.candidates;
    assert_true(c->count > 20 && c->topology_count > 5);
    assert_string_equal(c->list[0].strategy, "dp");
    assert_string_equal(c->list[0].method.wire->name, "f32");
    assert_null(c->list[0].method.topology);
    for (size_t i = 0; i < c->count; i++) {
        for (size_t k = 0; k < i; k++) assert_string_not_equal(c->list[i].method.label, c->list[k].method.label);
        assert_ptr_equal(taciti_candidates_find(c, &c->list[i]), &c->list[i]);
        assert_int_equal(c->list[i].method.topology != NULL, c->list[i].topology[0] != 0);
        assert_int_equal(taciti_candidate_topology(c, &c->list[i]) != NULL, c->list[i].topology[0] != 0);
    }
}

/* exp-directed gossip on an f32 wire is what stochastic gradient push does, so others are compared with it too. */
static void others_are_marked_and_never_recommended(void **state) {
    (void)state;
    make(NULL);
    const size_t own = g.candidates.count;
    taciti_candidates_add_others(&g.candidates, &g.cluster, &g.hosts, 0.01);
    assert_true(g.candidates.count >= own + 2);
    for (size_t i = 0; i < g.candidates.count; i++) assert_int_equal(g.candidates.list[i].theirs, i >= own);
    predict();
    for (size_t i = 0; i < g.candidates.count; i++) assert_true(isfinite(g.candidates.list[i].verdict.low));
    assert_false(taciti_candidates_gossip(&g.candidates)->theirs);
    char text[TACITI_VERDICT_BYTES];
    (void)taciti_candidates_verdict(&g.candidates, text);
    assert_null(strstr(text, "another library's"));
    taciti_prediction *ring = &g.candidates.list[own].prediction;
    ring->step_s = ring->slow_links_s = ring->fast_links_s = 1e-6; /* there is something to type all the same */
    (void)taciti_candidates_verdict(&g.candidates, text);
    assert_non_null(
        strstr(text, "keep dense ring as NCCL/Gloo f32 all-reduce (another library's; tacit's own: --strategy dp);"));
}

static void only_this_is_marked(const char *topology) {
    make(NULL);
    size_t marked = 0;
    for (size_t i = 0; i < g.candidates.count; i++) {
        const taciti_candidate *c = &g.candidates.list[i];
        if (!c->configured) continue;
        marked++;
        assert_string_equal(c->topology, topology);
        assert_string_equal(c->method.wire->name, "bf16");
        assert_int_equal(c->method.order, TACITI_ORDER_ATC);
    }
    assert_int_equal(marked, 1);
    taciti_candidates_destroy(&g.candidates);
}

/* With gossip.topology auto that of these hosts. */
static void exactly_the_configured_method_is_marked(void **state) {
    (void)state;
    set("strategy", "gossip");
    set("gossip.order", "atc");
    set("exchange.wire", "bf16");
    set("gossip.per_host", "2");
    only_this_is_marked("aer");
    set("gossip.per_host", "1");
    only_this_is_marked("exp");
    set("gossip.topology", "ring");
    only_this_is_marked("ring");
    make(NULL);
}

static void the_best_are_the_fastest_that_mix(void **state) {
    (void)state;
    make(NULL);
    predict();
    const taciti_candidates *c = &g.candidates;
    const taciti_candidate *dense = taciti_candidates_dense(c), *gossip = taciti_candidates_gossip(c);
    assert_non_null(gossip);
    assert_true(taciti_candidate_mixes(c, gossip));
    for (size_t i = 0; i < c->count; i++) {
        const taciti_candidate *other = &c->list[i];
        if (other->method.order == TACITI_ORDER_DENSE && other->method.compression.encoding.codec == NULL)
            assert_true(dense->prediction.step_s <= other->prediction.step_s);
        if (other->topology[0] != 0 && taciti_candidate_mixes(c, other))
            assert_true(gossip->prediction.step_s <= 1.0101 * other->prediction.step_s);
        const double speedup = dense->prediction.step_s / other->prediction.step_s;
        assert_true(fabs(other->verdict.speedup - speedup) < 1e-9);
    }
}

static void the_verdict_says_what_pays_and_how_much(void **state) {
    (void)state;
    char text[TACITI_VERDICT_BYTES];
    make(NULL);
    predict();
    taciti_verdict v = taciti_candidates_verdict(&g.candidates, text); /* a slow link */
    assert_true(v.pays && v.low > 1 && v.low <= v.speedup && v.speedup <= v.high);
    assert_int_equal(strncmp(text, "pays: ", 6), 0);
    assert_non_null(strstr(text, taciti_candidates_gossip(&g.candidates)->method.label));
    g.cluster.between.beta_s_per_byte /= 1000; /* a fast one */
    predict();
    v = taciti_candidates_verdict(&g.candidates, text);
    assert_false(v.pays);
    assert_int_equal(strncmp(text, "does not pay: keep ", 19), 0);
}

/* ---- compression ------------------------------------------------------------------------------------------------- */

/* The speed of topk at three factors, as a probe writes it. */
static void tell_speed_of_topk(void) {
    const taciti_cluster_compression rows[] = {{"topk", 10, 1.4e-9, 4e-10, 3e-10, 0.46},
                                               {"topk", 100, 6e-10, 9e-11, 3e-11, 0.05},
                                               {"topk", 1000, 5e-10, 6e-11, 3e-12, 0.0055}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(taciti_cluster_add_compression(&g.cluster, &rows[i]), TACIT_OK);
}

static const taciti_candidate *find_label(const char *label) {
    for (size_t i = 0; i < g.candidates.count; i++)
        if (strcmp(g.candidates.list[i].method.label, label) == 0) return &g.candidates.list[i];
    fail_msg("there is no %s", label);
    return &g.candidates.list[0];
}

static void a_slow_link_pays_for_compression_and_a_fast_one_does_not(void **state) {
    (void)state;
    char text[TACITI_VERDICT_BYTES];
    tell_speed_of_topk();
    make(NULL);
    g.cluster.between.beta_s_per_byte = 8e-9 / 0.1;
    predict();
    taciti_verdict v = taciti_candidates_compression_verdict(&g.candidates, text);
    const taciti_candidate *best = taciti_candidates_compressed(&g.candidates);
    assert_true(v.pays && v.low > 3);
    assert_string_equal(best->method.label, "dense topk 100"); /* 1000 is faster, and known to cost accuracy */
    assert_true(find_label("dense topk 1000")->prediction.step_s < best->prediction.step_s);
    assert_int_equal(find_label("dense topk 1000")->caution, TACITI_CAUTION_STRONG);
    assert_int_equal(strncmp(text, "compression pays: ", 18), 0);
    assert_non_null(strstr(text, "topk 100 instead of dense"));
    assert_non_null(strstr(text, "1 of 100 elements"));
    g.cluster.between.beta_s_per_byte = 8e-9 / 400;
    predict();
    v = taciti_candidates_compression_verdict(&g.candidates, text);
    assert_false(v.pays);
    assert_int_equal(strncmp(text, "compression does not pay: keep dense ", 37), 0);
}

/* Steps at factor 1 are dense, whatever the codec is; its rows stay for comparison. */
static void factor_one_is_dense(void **state) {
    (void)state;
    static const char *const CODECS[] = {"int4", "topk", "mixed"};
    for (size_t i = 0; i < sizeof CODECS / sizeof *CODECS; i++) {
        set("compress.codec", CODECS[i]);
        set("compress.factor", "1");
        make(NULL);
        assert_true(g.candidates.list[0].configured && g.candidates.list[0].method.compression.encoding.codec == NULL);
        assert_false(find_label("dense int4")->configured);
        assert_false(find_label("dense topk 10")->configured);
        taciti_candidates_destroy(&g.candidates);
        set("compress.factor", "10");
        make(NULL);
        assert_false(g.candidates.list[0].configured);
        taciti_candidates_destroy(&g.candidates);
    }
    g.candidates = (taciti_candidates){.count = 0};
}

/* A codec whose speed nobody knows looks free: it has a row, and is never recommended. */
static void codecs_of_unknown_speed_are_not_recommended(void **state) {
    (void)state;
    char text[TACITI_VERDICT_BYTES];
    make(NULL);
    predict();
    assert_false(find_label("dense topk 100")->priced);
    assert_null(taciti_candidates_compressed(&g.candidates));
    assert_false(taciti_candidates_compression_verdict(&g.candidates, text).pays);
    assert_string_equal(text, "");
}

/* Without the speed of the codec of mixes its rows are marked, and a wire is recommended; with it the codec is. */
static void mixes_of_unknown_speed_are_not_recommended(void **state) {
    const taciti_cluster_compression speed = {"int4", 1, 1e-10, 1e-10, 1e-10, 0.53};
    (void)state;
    set("strategy", "gossip");
    set("gossip.codec", "int4");
    make(NULL);
    predict();
    assert_false(find_label("gossip complete awc int4")->priced);
    assert_true(find_label("gossip complete awc bf16")->priced);
    assert_true(taciti_codec_is_dense(taciti_candidates_gossip(&g.candidates)->method.wire));
    assert_int_equal(taciti_cluster_add_compression(&g.cluster, &speed), TACIT_OK);
    predict();
    assert_string_equal(taciti_candidates_gossip(&g.candidates)->method.wire->name, "int4");
}

/* More rate never makes a step longer, and what compression gains only shrinks. */
static void compressed_steps_are_monotonic_in_the_rate(void **state) {
    enum { RATES = 6 };
    static const double rates[RATES] = {1e8, 3e8, 1e9, 3e9, 1e10, 1e11};
    static const char *const labels[] = {"dense f32", "dense topk 10", "dense topk 100", "localsgd every 16 topk 100"};
    double step_s[4][RATES];
    (void)state;
    tell_speed_of_topk();
    make(NULL);
    for (size_t l = 0; l < 4; l++) {
        const taciti_candidate *c = find_label(labels[l]);
        assert_non_null(c);
        assert_int_equal(taciti_predict_rates(&g.scene, &c->method, &g.options, rates, RATES, step_s[l]), TACIT_OK);
        for (size_t r = 1; r < RATES; r++) assert_true(step_s[l][r] <= step_s[l][r - 1] * (1 + 1e-9));
    }
    for (size_t r = 1; r < RATES; r++)
        assert_true(step_s[0][r] / step_s[2][r] <= step_s[0][r - 1] / step_s[2][r - 1] * (1 + 1e-9));
    assert_true(step_s[2][0] < step_s[1][0] && step_s[1][0] < step_s[0][0]);
}

/* One threshold for the model: some owners get more than others, the less the longer the tensors are. The range holds
 * even payloads, and the busiest link with twice their bytes. */
static void uneven_payloads_widen_the_range(void **state) {
    taciti_prediction even, uneven;
    (void)state;
    g.options.brief = false;
    tell_speed_of_topk();
    make(NULL);
    assert_int_equal(taciti_predict(&g.scene, &find_label("dense topk 10")->method, &g.options, &uneven), TACIT_OK);
    taciti_candidates_destroy(&g.candidates);
    set("compress.scope", "bucket");
    make(NULL);
    assert_int_equal(taciti_predict(&g.scene, &find_label("dense topk 10")->method, &g.options, &even), TACIT_OK);
    assert_true(uneven.nic_bytes > 0.8 * even.nic_bytes && uneven.nic_bytes < TACITI_PLAN_UNEVEN * even.nic_bytes);
    assert_true(uneven.fast_links_s <= 1.001 * even.fast_links_s && uneven.step_s < uneven.slow_links_s);
    assert_true(uneven.slow_links_s > even.slow_links_s + 0.9 * even.transfer_s);
    assert_true(uneven.high_s > 1.3 * even.high_s);
}

static void compressed_rows_of_all_codecs_are_listed_once(void **state) {
    (void)state;
    make(NULL);
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        size_t dense = 0, local = 0;
        for (size_t i = 0; i < g.candidates.count; i++) {
            const taciti_candidate *c = &g.candidates.list[i];
            if (c->method.compression.encoding.codec != *codec) continue;
            assert_ptr_equal(taciti_candidates_find(&g.candidates, c), c);
            if (c->method.compression.adapts) continue;
            dense += strcmp(c->strategy, "dp") == 0;
            local += strcmp(c->strategy, "localsgd") == 0;
        }
        const bool listed = !taciti_codec_is_dense(*codec) && !(*codec)->sketches && (*codec)->rungs == NULL;
        const size_t expected = !listed || (*codec)->reference ? 0 : (*codec)->selects ? 3 : 1;
        assert_true(dense == expected && local == expected);
    }
}

/* compress.codec auto of dp: the row of its codec, or dense, whichever sends for less time; and it keeps its residuals.
 */
static void the_automatic_choice_is_the_shorter_one(void **state) {
    static const double RATES[] = {1e8, 1e9, 1e13};
    const taciti_cluster_compression speed = {"int4", 1, 1.5e-9, 1e-9, 1e-9, 0.53};
    double step_s[3];
    (void)state;
    set("compress.codec", "auto");
    assert_int_equal(taciti_cluster_add_compression(&g.cluster, &speed), TACIT_OK);
    make(NULL);
    const taciti_candidate *automatic = find_label("dense auto int4"), *coded = find_label("dense int4"),
                           *dense = find_label("dense f32");
    assert_true(automatic->configured && !dense->configured && !coded->configured);
    assert_int_equal(taciti_predict_rates(&g.scene, &automatic->method, &g.options, RATES, 3, step_s), TACIT_OK);
    for (size_t r = 0; r < 3; r++) {
        g.cluster.between.beta_s_per_byte = 8 / RATES[r];
        predict();
        const taciti_candidate *same = r < 2 ? coded : dense;
        assert_true(fabs(automatic->prediction.nic_bytes / same->prediction.nic_bytes - 1) < 1e-9);
        assert_true(automatic->prediction.step_s >= same->prediction.step_s); /* it goes on to tell what it sees */
        assert_true(automatic->prediction.step_s < 1.001 * same->prediction.step_s);
        assert_true(fabs(step_s[r] / automatic->prediction.step_s - 1) < 0.01); /* short messages: at 1 Gbit/s */
        assert_true(fabs(automatic->prediction.memory_bytes - coded->prediction.memory_bytes) < 1);
        assert_ptr_not_equal(taciti_candidates_compressed(&g.candidates), automatic);
    }
}

/* The name auto stands for its own codecs: topk where it pays is named. */
static void flags_name_the_codec_that_adapts(void **state) {
    static const struct {
        const char *codec, *label, *flags;
    } ROWS[] = {{"auto", "shard 3 auto int4, gather int8", "--shard.stage 3 --compress.codec auto"},
                {"topk", "shard 3 auto topk 20, gather f32",
                 "--shard.stage 3 --compress.codec topk --compress.factor 20 --adapt.policy payoff"},
                {"signmag2", "shard 3 auto signmag2, gather f32",
                 "--shard.stage 3 --compress.codec signmag2 --adapt.policy payoff"}};
    char flags[TACITI_FLAGS_BYTES];
    (void)state;
    set("strategy", "shard");
    set("compress.factor", "20");
    set("adapt.policy", "payoff");
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        set("compress.codec", ROWS[i].codec);
        taciti_candidates_destroy(&g.candidates);
        make(NULL);
        assert_true(find_label(ROWS[i].label)->configured);
        taciti_method_flags(&find_label(ROWS[i].label)->method, flags, sizeof flags);
        assert_string_equal(flags, ROWS[i].flags);
    }
}

/* The answer's fastest fits; the fastest of the curves need not. */
static void the_fastest_of_those_that_fit_is_found(void **state) {
    static const int KINDS[] = {0, TACITI_FASTEST_PERIODIC};
    (void)state;
    make(NULL);
    for (size_t k = 0; k < 2; k++) {
        predict();
        const taciti_candidate *fastest = taciti_candidates_fastest(&g.candidates, KINDS[k]);
        assert_ptr_equal(taciti_candidates_fastest(&g.candidates, KINDS[k] | TACITI_FASTEST_FITS), fastest);
        g.candidates.list[fastest - g.candidates.list].prediction.fits = false;
        const taciti_candidate *fitting = taciti_candidates_fastest(&g.candidates, KINDS[k] | TACITI_FASTEST_FITS);
        assert_ptr_equal(taciti_candidates_fastest(&g.candidates, KINDS[k]), fastest);
        assert_true(fitting != NULL && fitting->prediction.fits);
        assert_true(fitting->prediction.step_s >= fastest->prediction.step_s);
    }
}

static void one_rank_has_nobody_to_exchange_with(void **state) {
    (void)state;
    char text[TACITI_VERDICT_BYTES];
    taciti_hosts_destroy(&g.hosts);
    assert_int_equal(taciti_cluster_hosts(&g.cluster, 1, &g.hosts), TACIT_OK);
    make(NULL);
    predict();
    assert_null(taciti_candidates_gossip(&g.candidates));
    assert_false(taciti_candidates_verdict(&g.candidates, text).pays);
    assert_non_null(strstr(text, "nobody to exchange with"));
}

/* Replicas that fit, but no gossip that does, or none that mixes: on many ranks the reason is another. */
static void why_no_gossip_is_recommended_is_true(void **state) {
    (void)state;
    char text[TACITI_VERDICT_BYTES];
    make(NULL);
    predict();
    for (size_t i = 0; i < g.candidates.count; i++)
        if (g.candidates.list[i].method.topology != NULL) g.candidates.list[i].prediction.fits = false;
    assert_false(taciti_candidates_verdict(&g.candidates, text).pays);
    assert_non_null(strstr(text, "no gossip fits into the memory of a host"));
    predict();
    for (size_t t = 0; t < g.candidates.topology_count; t++) g.candidates.topologies[t].gap = 1e-6;
    assert_false(taciti_candidates_verdict(&g.candidates, text).pays);
    assert_non_null(strstr(text, "no topology of gossip mixes fast enough"));
}

static taciti_candidate *named(const char *label) {
    size_t i = 0;
    while (i < g.candidates.count && strcmp(g.candidates.list[i].method.label, label) != 0) i++;
    assert_in_range(i, 0, g.candidates.count - 1);
    return &g.candidates.list[i];
}

/* A row that training would refuse is left out: two bits lose a third of a difference, and a ring bears a quarter. */
static void mixes_have_the_rows_and_the_memory_of_training(void **state) {
    (void)state;
    set("strategy", "gossip");
    set("gossip.topology", "base-k");
    set("gossip.codec", "signmag2");
    g.scene.optim = &g.settings.optim;
    make(NULL);
    predict();
    for (size_t i = 0; i < g.candidates.count; i++) {
        const taciti_candidate *c = &g.candidates.list[i];
        const bool edges = strcmp(c->topology, "ring") == 0 || strcmp(c->topology, "exp-static") == 0;
        assert_false(edges && strcmp(c->method.wire->name, "signmag2") == 0);
    }
    const taciti_candidate *packed = named("gossip base-k awc signmag2"), *plain = named("gossip base-k awc f32");
    const double array = (double)(g.layout.n * sizeof(float)), more = packed->prediction.memory_bytes;
    assert_true(packed->configured && !plain->configured);
    /* Pairs inside hosts encode nothing: two groups, and one array more. */
    assert_true(fabs(more - plain->prediction.memory_bytes - 3 * array) < 1);
    taciti_candidates_destroy(&g.candidates);
    set("gossip.codec", "bf16");
    make(NULL);
    predict();
    packed = named("gossip base-k awc bf16");
    assert_true(packed->configured && packed->prediction.memory_bytes == more);
}

/* The best mixer of those that tie also on slow links; a tie that sends far less is named. Speed-ups and verdict have
 * one baseline. */
static void a_tie_names_what_sends_less(void **state) {
    (void)state;
    char text[TACITI_VERDICT_BYTES];
    make(NULL);
    predict();
    for (size_t i = 0; i < g.candidates.count; i++) {
        taciti_prediction *p = &g.candidates.list[i].prediction;
        if (g.candidates.list[i].method.topology != NULL) p->step_s = p->slow_links_s = p->fast_links_s = 1;
    }
    taciti_candidate *complete = named("gossip complete awc f32"), *aer = named("gossip aer awc f32");
    complete->prediction.step_s = complete->prediction.slow_links_s = 0.101;
    aer->prediction.step_s = aer->prediction.slow_links_s = 0.1;
    complete->prediction.nic_bytes = 7 * aer->prediction.nic_bytes;
    taciti_candidate *narrow = named("gossip aer awc bf16"); /* of another wire: fewer bits are not named */
    narrow->prediction.step_s = narrow->prediction.slow_links_s = 0.1;
    narrow->prediction.nic_bytes = aer->prediction.nic_bytes / 2;
    assert_ptr_equal(taciti_candidates_gossip(&g.candidates), complete);
    (void)taciti_candidates_verdict(&g.candidates, text);
    assert_non_null(strstr(text, " (aer within 1 % with 7.0 times fewer bytes)"));
    complete->prediction.slow_links_s = 0.12;
    assert_ptr_equal(taciti_candidates_gossip(&g.candidates), aer);
    assert_true(taciti_candidates_dense(&g.candidates)->verdict.speedup == 1);
}

static void only_wanted_topologies_are_made(void **state) {
    (void)state;
    static const char *const WANTED[] = {"aer", "exp", NULL};
    make(WANTED);
    assert_int_equal(g.candidates.topology_count, 2);
    for (size_t t = 0; t < 2; t++) assert_true(isnan(g.candidates.topologies[t].gap));
}

/* Steps get no longer on faster links, and the curves pass through what the plan itself says. */
static void curves_pass_through_the_plan(void **state) {
    (void)state;
    taciti_plan_curves *curves = calloc(1, sizeof *curves);
    assert_non_null(curves);
    make(NULL);
    predict();
    assert_int_equal(taciti_plan_curves_compute(&g.settings, &g.candidates, &g.scene, &g.options, curves), TACIT_OK);
    assert_true(curves->line_count >= 2 && curves->rate.count > 4 && curves->hosts.count > 3);
    assert_ptr_equal(curves->lines[0], &g.candidates.list[0]);
    for (size_t l = 0; l < curves->line_count; l++) {
        for (size_t p = 1; p < curves->rate.count; p++) {
            assert_true(curves->rate.x[p] > curves->rate.x[p - 1]);
            assert_true(curves->rate.step_s[l][p] <= curves->rate.step_s[l][p - 1] * (1 + 1e-9));
        }
        for (size_t p = 0; p < curves->hosts.count; p++) {
            assert_int_equal(curves->hosts.ranks[p], 2 * (int)curves->hosts.x[p]);
            if (curves->hosts.ranks[p] == 8)
                assert_true(fabs(curves->hosts.step_s[l][p] - curves->lines[l]->prediction.step_s) < 1e-12);
        }
    }
    assert_true(fabs(curves->hosts.here - 4) < 1e-12 && fabs(curves->rate.here - 1) < 1e-9);
    free(curves);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_stage, close_stage)
    const struct CMUnitTest tests[] = {
        TEST(every_method_is_there_once),
        TEST(others_are_marked_and_never_recommended),
        TEST(exactly_the_configured_method_is_marked),
        TEST(the_best_are_the_fastest_that_mix),
        TEST(the_verdict_says_what_pays_and_how_much),
        TEST(one_rank_has_nobody_to_exchange_with),
        TEST(why_no_gossip_is_recommended_is_true),
        TEST(mixes_have_the_rows_and_the_memory_of_training),
        TEST(a_tie_names_what_sends_less),
        TEST(a_slow_link_pays_for_compression_and_a_fast_one_does_not),
        TEST(factor_one_is_dense),
        TEST(codecs_of_unknown_speed_are_not_recommended),
        TEST(mixes_of_unknown_speed_are_not_recommended),
        TEST(compressed_steps_are_monotonic_in_the_rate),
        TEST(uneven_payloads_widen_the_range),
        TEST(compressed_rows_of_all_codecs_are_listed_once),
        TEST(the_automatic_choice_is_the_shorter_one),
        TEST(flags_name_the_codec_that_adapts),
        TEST(the_fastest_of_those_that_fit_is_found),
        TEST(only_wanted_topologies_are_made),
        TEST(curves_pass_through_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

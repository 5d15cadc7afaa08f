/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed gradients and parameters in parts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "codec/sketch.h"
#include "codec/trial.h"
#include "strategy/test_sharding.h"

typedef struct pair {
    const char *codec, *gather;
} pair;

/* Codecs of both ways; NULL: none. */
static void compress(trial *t, const char *codec, const char *gather, double factor) {
    void *options = NULL;
    t->compress = (taciti_compress_options){.factor = factor, .start = factor, .feedback = 1};
    t->compression = (taciti_compression_setup){.options = &t->compress};
    if (codec != NULL) {
        t->compression.sums.codec = taciti_codec_find(codec);
        CHECK(taciti_codec_defaults(t->compression.sums.codec, &options) == TACIT_OK);
        t->compression.sums.options = options;
    }
    if (gather == NULL) return;
    t->compression.gathers.codec = taciti_codec_find(gather);
    CHECK(taciti_codec_defaults(t->compression.gathers.codec, &options) == TACIT_OK);
    t->compression.gathers.options = options;
}

static void store_in(const trial *t, const char *format) {
    const taciti_codec *codec = t->compression.sums.codec;
    const taciti_section section = {.table = codec->options, .values = (void *)(uintptr_t)t->compression.sums.options};
    CHECK(taciti_config_set(&(taciti_config){&section, 1}, "topk.values", format, "test") == TACIT_OK);
}

static void discard(trial *t) {
    taciti_free((void *)(uintptr_t)t->compression.sums.options);
    taciti_free((void *)(uintptr_t)t->compression.gathers.options);
    forget(t);
}

static void all_ranks_have_the_same(const trial *t) {
    for (int r = 1; r < t->ranks; r++) assert_memory_equal(t->parameters[r], t->parameters[0], t->n * sizeof(float));
}

static void factor_one_is_dp_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++) {
        trial dp = trial_of(RANKS[i], 0);
        play(&dp);
        for (int stage = 1; stage <= 3; stage++) {
            trial t = trial_of(RANKS[i], stage);
            compress(&t, "topk", stage < 3 ? "topk" : NULL, 1);
            agrees(&t, &dp);
            taciti_free((void *)(uintptr_t)t.compression.sums.options);
            taciti_free((void *)(uintptr_t)t.compression.gathers.options);
        }
        forget(&dp);
    }
}

/* The largest difference of two runs in a unit; 0: the same bits. */
static double difference(const trial *a, const trial *b, size_t unit) {
    taciti_layout layout;
    double most = 0;
    make_layout(true, 0, &layout);
    const taciti_range r = taciti_layout_unit(&layout, unit);
    taciti_layout_destroy(&layout);
    for (size_t i = r.at; i < r.at + r.n; i++)
        most = fmax(most, (double)fabsf(a->parameters[0][i] - b->parameters[0][i]));
    return most;
}

static trial with_plain(const trial *like, unsigned plain) {
    trial t = trial_of(like->ranks, like->stage);
    t.compress = like->compress;
    t.compression = like->compression;
    t.compression.options = &like->compress;
    t.plain = plain;
    return t;
}

/* Units 1 and 3 are plain: they are as without a codec, but for roundings where changes are gathered, and the others as
 * with one everywhere. Buckets of dp do not end where units end, so there the others have other blocks of int4. */
static void layers_that_are_not_compressed_are_dense(void **state) {
    (void)state;
    static const pair PAIRS[] = {{"int4", "int4"}, {"topk", "topk"}, {"sketch", NULL}};
    for (size_t p = 0; p < sizeof PAIRS / sizeof *PAIRS; p++)
        for (int stage = 0; stage <= 2; stage++) {
            trial dp = trial_of(3, 0), all = trial_of(3, stage);
            compress(&all, PAIRS[p].codec, stage > 0 ? PAIRS[p].gather : NULL, 4);
            if (all.compression.sums.codec->selects) all.compress.scope = TACITI_SCOPE_BUCKET;
            trial some = with_plain(&all, 1u << 1 | 1u << 3), none = with_plain(&all, ~0u);
            play(&dp);
            play(&all);
            play(&some);
            play(&none);
            all_ranks_have_the_same(&some);
            for (size_t u = 0; u < UNITS; u++) {
                const bool plain = some.plain >> u & 1;
                const double rounding = all.compression.gathers.codec != NULL ? 1e-6 : 0,
                             seen = difference(&some, &dp, u);
                assert_true(plain ? seen <= rounding : seen > 1e-4);
                assert_true(difference(&none, &dp, u) <= rounding);
                if (stage > 0 && !plain) assert_true(difference(&some, &all, u) == 0);
            }
            for (int s = 0; s < STEPS && p == 0; s++) assert_true(some.reports[0][s].bytes > all.reports[0][s].bytes);
            forget(&dp);
            forget(&some);
            forget(&none);
            discard(&all);
        }
}

/* Which units are gathered ahead, and when, changes no bit. */
static void no_schedule_changes_the_bits(void **state) {
    (void)state;
    static const pair PAIRS[] = {{"topk", "topk"}, {"int4", "int4"}, {"topk", NULL},
                                 {NULL, "int8"},   {"sketch", NULL}, {"tagc", "int4"}};
    for (int i = 0; i < RANK_COUNT; i++)
        for (size_t p = 0; p < sizeof PAIRS / sizeof *PAIRS; p++) {
            if (test_spares(i + (int)p)) continue;
            trial first = trial_of(RANKS[i], 1);
            compress(&first, PAIRS[p].codec, PAIRS[p].gather, 4);
            play(&first);
            all_ranks_have_the_same(&first);
            for (int kind = 0; kind < 5; kind++) {
                trial t = trial_of(RANKS[i], 1 + kind % 2);
                t.compress = first.compress;
                t.compression = first.compression;
                t.blocking = kind == 1;
                t.no_thread = kind == 2;
                t.evaluates = kind == 3;
                t.whole = kind == 4;
                agrees(&t, &first);
            }
            discard(&first);
        }
}

/* Two hosts of two ranks, three of two: only what travels between hosts is compressed, and all replicas agree.
 * Parameters that are gathered once for both passes equal those that are gathered twice. */
static void by_hosts_no_schedule_changes_the_bits(void **state) {
    (void)state;
    static const pair PAIRS[] = {{"topk", NULL}, {"int4", "int8"}, {"sketch", NULL}};
    static const int HOSTS[][MAX_RANKS] = {{0, 0, 1, 1}, {0, 1, 2, 0, 1, 2}};
    for (int i = 0; i < 2; i++)
        for (int over = TACITI_SHARD_OVER_ALL; over <= TACITI_SHARD_OVER_HOST; over++)
            for (size_t p = (size_t)i; p < (i == 0 ? 3 : 2); p++) {
                trial first = trial_of(4 + 2 * i, 3);
                const bool all = over == TACITI_SHARD_OVER_ALL;
                first.hosts = HOSTS[i];
                first.over = over;
                compress(&first, PAIRS[p].codec, all ? PAIRS[p].gather : NULL, 4);
                play(&first);
                all_ranks_have_the_same(&first);
                for (int kind = 0; kind < 4; kind++) {
                    trial t = with_plain(&first, 0);
                    t.hosts = first.hosts;
                    t.over = over;
                    t.blocking = kind == 1;
                    t.evaluates = kind == 2;
                    t.secondary = all && kind > 1;
                    if (kind == 0 && PAIRS[p].gather == NULL) t.stage = 2;
                    agrees(&t, &first);
                }
                discard(&first);
            }
}

/* The owner computes with what the others decode, in the forward and in the backward pass. */
static void stage_three_computes_with_what_it_sends(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++) {
        trial dp = trial_of(RANKS[i], 0), first = trial_of(RANKS[i], 3);
        double most = 0;
        play(&dp);
        compress(&first, NULL, "int8", 10);
        play(&first);
        all_ranks_have_the_same(&first);
        for (size_t k = 0; k < dp.n; k++)
            most = fmax(most, (double)fabsf(first.parameters[0][k] - dp.parameters[0][k]));
        assert_true(RANKS[i] == 1 ? most == 0 : most > 0 && most < 0.005);
        trial t = trial_of(RANKS[i], 3);
        t.compress = first.compress;
        t.compression = first.compression;
        t.blocking = t.evaluates = true;
        agrees(&t, &first);
        discard(&first);
        forget(&dp);
    }
}

/* The next gather sends what a gather loses: once the owners stand still, all ranks arrive where they are. */
static void what_is_not_sent_arrives_later(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 7; ranks += 5)
        for (int stage = 1; stage <= 2; stage++) {
            trial dp = trial_of(ranks, 0), t = trial_of(ranks, stage);
            dp.ends_at_rest = t.ends_at_rest = true;
            play(&dp);
            t.steps = MAX_STEPS;
            compress(&t, NULL, "topk", 4);
            play(&t);
            assert_true(memcmp(t.path[1], dp.path[1], t.n * sizeof(float)) != 0);
            assert_memory_equal(t.parameters[ranks - 1], dp.parameters[0], t.n * sizeof(float));
            discard(&t);
            forget(&dp);
        }
}

/* Neither residuals nor what the ranks have of the parameters. */
static void a_skipped_step_changes_nothing(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int stage = 1; stage <= 2; stage++) {
            trial t = trial_of(ranks, stage);
            t.bad = NAN;
            t.bad_rank = ranks - 1;
            compress(&t, "topk", "topk", 4);
            play(&t);
            for (int s = 0; s < STEPS; s++) assert_true(t.reports[0][s].skipped == (s == BAD_STEP));
            assert_memory_equal(t.path[BAD_STEP], t.path[BAD_STEP - 1], t.n * sizeof(float));
            for (size_t k = 0; k < t.n; k++) assert_true(isfinite(t.parameters[0][k]));
            all_ranks_have_the_same(&t);
            discard(&t);
        }
}

static void bytes_of_both_ways_are_counted(void **state) {
    (void)state;
    trial plain = trial_of(3, 2), sums = plain, both = plain;
    compress(&sums, "int4", NULL, 1e6);
    compress(&both, "int4", "int4", 1e6);
    play(&sums);
    play(&both);
    const double f32 = 2.0 / 3 * (double)both.n * sizeof(float);
    for (int s = 1; s < STEPS; s++) {
        assert_in_range(sums.reports[0][s].bytes, 1.1 * f32, 1.2 * f32);
        assert_in_range(both.reports[0][s].bytes, 0.25 * f32, 0.35 * f32);
    }
    discard(&sums);
    discard(&both);
    trial dense_back = trial_of(3, 2), back = dense_back;
    compress(&dense_back, "topk", "topk", 8);
    compress(&back, "topk", "topk", 8);
    dense_back.compress.back = 1;
    play(&dense_back);
    play(&back);
    assert_true(dense_back.reports[0][STEPS - 1].bytes > f32);
    assert_true(back.reports[0][STEPS - 1].bytes <
                0.7 * f32); /* Adam's first changes are alike, and pass the threshold together */
    discard(&dense_back);
    discard(&back);
}

/* Where changes are gathered, a checkpoint without an evaluation before it holds parameters that are old, and one after
 * an evaluation has new ones. The run that goes on must know which. */
static void a_resumed_run_is_the_run_that_went_on(void **state) {
    (void)state;
    static const pair PAIRS[] = {{NULL, NULL}, {"topk", "topk"}, {"int4", "int4"}, {NULL, "int8"}, {"sketch", NULL}};
    static const int SOME[] = {1, 2, 5};
    for (int i = 0; i < 3; i++)
        for (size_t p = 0; p < sizeof PAIRS / sizeof *PAIRS; p++)
            for (int stage = 1; stage <= (PAIRS[p].gather == NULL || p == 3 ? 3 : 2); stage++) {
                trial first = trial_of(SOME[i], stage);
                compress(&first, PAIRS[p].codec, PAIRS[p].gather, 4);
                play(&first);
                for (int kind = 0; kind < 3; kind++) {
                    trial t = with_plain(&first, 0);
                    t.stops_after = 1 + kind;
                    t.evaluates = kind == 1;
                    t.whole = kind == 2;
                    agrees(&t, &first);
                }
                discard(&first);
            }
}

/* Changes are changes of parameters that all ranks have, so the first gather after a start on other ranks is whole;
 * also if the run stops again before. */
static void other_ranks_begin_with_the_same_parameters(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks += 3) {
        trial dp = trial_of(ranks, 0), t = trial_of(ranks, 2);
        play(&dp);
        t.expected = &t;
        t.scattered = true;
        t.stops_after = 2;
        compress(&t, NULL, "int8", 10);
        play(&t);
        all_ranks_have_the_same(&t);
        for (size_t k = 0; k < t.n; k++) assert_true(fabsf(t.parameters[0][k] - dp.parameters[0][k]) < 0.01F);
        discard(&t);
        forget(&dp);
    }
}

/* T18: two hops, of which int4 travels in the second. Where all numbers are multiples of the quantum nothing is lost.
 */
static void hops_without_rounding_are_as_none(void **state) {
    (void)state;
    static const int HOSTS[][MAX_RANKS] = {{0, 0, 1, 1}, {0, 1, 2, 0, 1, 2}};
    for (int i = 0; i < 2; i++) {
        trial plain = trial_of(4 + 2 * i, 3), t;
        plain.hosts = HOSTS[i];
        plain.gradients = QUANTA;
        t = plain;
        play(&plain);
        compress(&t, "topk", NULL, 1);
        store_in(&t, "int4");
        agrees(&t, &plain);
        assert_true(t.reports[0][0].bytes > 0 && t.per_step[0] < plain.per_step[0]);
        taciti_free((void *)(uintptr_t)t.compression.sums.options);
        forget(&plain);
    }
}

/* tagc's preset leaves compress.warmup alone (codec/test_registry.c), and with a warm-up it starts dense. */
static void the_factor_rises_from_one(void **state) {
    (void)state;
    trial t = trial_of(3, 2);
    compress(&t, "tagc", NULL, 5);
    t.compress.start = 1;
    t.compress.warmup = 3;
    t.compress.scope = TACITI_SCOPE_BUCKET;
    play(&t);
    assert_true(t.reports[0][0].factor == 1 && t.reports[0][STEPS - 1].factor == 5);
    for (int s = 1; s < STEPS; s++) assert_true(t.reports[0][s].factor > t.reports[0][s - 1].factor);
    discard(&t);
}

/* A sketch that is too small is followed by all values: a step may send that much, and nearly does. */
static void bytes_of_sketches_are_bounded(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks += 3) {
        trial t = trial_of(ranks, 1);
        double bound = 0;
        compress(&t, "tagc", NULL, 1.01);
        ((taciti_sketch_options *)(uintptr_t)t.compression.sums.options)->ratio = 1.1;
        t.compress.scope = TACITI_SCOPE_BUCKET;
        play(&t);
        for (int r = 0; r < ranks; r++) bound += (double)t.per_step[r] / ranks;
        assert_in_range(t.reports[0][STEPS - 1].bytes, 0.9 * bound, bound);
        discard(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factor_one_is_dp_bit_for_bit),
        cmocka_unit_test(layers_that_are_not_compressed_are_dense),
        cmocka_unit_test(no_schedule_changes_the_bits),
        cmocka_unit_test(by_hosts_no_schedule_changes_the_bits),
        cmocka_unit_test(stage_three_computes_with_what_it_sends),
        cmocka_unit_test(what_is_not_sent_arrives_later),
        cmocka_unit_test(a_skipped_step_changes_nothing),
        cmocka_unit_test(bytes_of_both_ways_are_counted),
        cmocka_unit_test(a_resumed_run_is_the_run_that_went_on),
        cmocka_unit_test(other_ranks_begin_with_the_same_parameters),
        cmocka_unit_test(bytes_of_sketches_are_bounded),
        cmocka_unit_test(hops_without_rounding_are_as_none),
        cmocka_unit_test(the_factor_rises_from_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

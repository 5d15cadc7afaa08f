/* SPDX-License-Identifier: Apache-2.0
 *
 * What controllers are shown, and what becomes of what they decide: trials select as the factor that is tried would
 * send; time is the number of steps that were taken; all ranks follow rank 0.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "strategy/test_control.h"

/* ---- trials ------------------------------------------------------------------------------------------------------ */

typedef struct scoring {
    const char *codec;
    double sigma;
    taciti_compress_scope scope;
    script_options script;
    double sent, trial[2]; /* gains in the last even step that sent, and of the trials of even and odd steps */
} scoring;

static double gain_of(const taciti_codec_tally *tally) { return tally->squares_out / tally->squares_in; }

static void score(taciti_comm *comm, void *context) {
    enum { STEPS = 30 };
    scoring *t = context;
    const taciti_compress_options options = {.factor = 10, .scope = (int)t->scope, .start = 1};
    const taciti_compression_setup setup = {.sums.codec = taciti_codec_find(t->codec),
                                            .options = &options,
                                            .controller = &SCRIPT,
                                            .controller_options = &t->script};
    bench b;
    open_bench(comm, &setup, 9000, &b);
    for (int64_t step = 0; step < STEPS; step++) {
        fill_layers(&b, t->sigma);
        exchange_all(&b);
        settle(&b, true);
        if (taciti_comm_rank(comm) > 0) continue;
        const taciti_tally *seen = &last(&b)->model;
        if (step % 2 == 0) t->sent = gain_of(&seen->sent);
        CHECK((t->script.trial[step % 2] > 0) == (seen->trial.n > 0));
        if (seen->trial.n > 0) t->trial[step % 2] = gain_of(&seen->trial);
    }
    close_bench(&b);
}

static scoring scored(int ranks, const scoring *with) {
    scoring t = *with;
    run_ranks(ranks, score, &t);
    return t;
}

static void expect_gain(const scoring *t, const char *what, double gain, double sent) {
    static const double TOLERANCE = 0.01; /* of a threshold that has converged: one element in a hundred */
    if (!(fabs(gain / sent - 1) < TOLERANCE))
        fail_msg("%s, sigma %g, %s: gain of the trial %.4f, of what is sent %.4f", t->codec, t->sigma, what, gain,
                 sent);
}

/* The gain of a trial is the gain of that factor when it is sent: beside another factor, smaller or larger, and in
 * dense steps, which try two factors in turns. */
static void a_trial_scores_what_would_be_sent(void **state) {
    (void)state;
    static const double SIGMAS[] = {0, .5, 1, 1.5};
    static const char *const CODECS[] = {"topk", "topk", "topk", "sketch"};
    for (int i = 0; i < 4; i++)
        for (int ranks = 3; ranks <= 5; ranks += 2) {
            const scoring base = {.codec = CODECS[i], .sigma = SIGMAS[i]};
            scoring t = base;
            t.script = (script_options){.factor = {10, 10}, .trial = {100, 100}};
            const scoring low = scored(ranks, &t);
            t.script = (script_options){.factor = {100, 100}, .trial = {10, 10}};
            const scoring high = scored(ranks, &t);
            t.script = (script_options){.factor = {1, 1}, .trial = {10, 100}};
            const scoring dense = scored(ranks, &t);
            t.script = (script_options){.factor = {10, 10}, .trial = {100, 100}};
            t.scope = TACITI_SCOPE_BUCKET;
            const scoring pieces = scored(ranks, &t);
            expect_gain(&t, "larger than what is sent", low.trial[0], high.sent);
            expect_gain(&t, "smaller than what is sent", high.trial[0], low.sent);
            expect_gain(&t, "dense, first", dense.trial[0], low.sent);
            expect_gain(&t, "dense, second", dense.trial[1], high.sent);
            if (SIGMAS[i] > 0) assert_true(pieces.trial[0] < .95 * low.trial[0]);
        }
}

/* When the factor that was tried is sent, its threshold is known at once, and the other way round. */
static void what_was_tried_is_sent_with_its_threshold(void **state) {
    (void)state;
    scoring t = {.codec = "topk", .sigma = 1, .script = {.factor = {10, 10}, .trial = {100, 100}}};
    const scoring low = scored(3, &t);
    t.script = (script_options){.factor = {10, 100}, .trial = {100, 10}};
    const scoring turns = scored(3, &t);
    expect_gain(&t, "sent in turns", turns.sent, low.sent);
    expect_gain(&t, "tried in turns", turns.trial[0], low.trial[0]);
    expect_gain(&t, "tried in turns", turns.trial[1], low.sent);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

enum { TAKEN = 22 };

typedef struct watching {
    int skipped; /* a step that is not taken before this one; -1: none */
    const char *controller;
    const void *options;
    int64_t period;
    taciti_decision decisions[TAKEN];
    double factors[TAKEN], squares[TAKEN];
} watching;

/* Ranks begin alike and steps have the same gradients; only the skipped one is put in between. */
static void watch(taciti_comm *comm, void *context) {
    watching *t = context;
    const taciti_compress_options options = {.factor = 10, .feedback = 1, .start = 1};
    const script_options script = {.factor = {10, 10}, .period = PERIOD};
    const bool scripted = t->controller == NULL;
    const taciti_compression_setup setup = {.sums.codec = taciti_codec_find("topk"),
                                            .options = &options,
                                            .controller = scripted ? &SCRIPT : taciti_controller_find(t->controller),
                                            .controller_options = scripted ? (const void *)&script : t->options};
    bench b;
    open_bench(comm, &setup, 9000, &b);
    CHECK(taciti_compression_start(b.c, 0, false) == TACIT_OK);
    for (int step = 0; step < TAKEN; step++)
        for (int again = step == t->skipped; again >= 0; again--) {
            fill_integers(&b, step / 7); /* changes now and then */
            exchange_all(&b);
            settle(&b, again == 0);
            if (again > 0 || taciti_comm_rank(comm) > 0) continue;
            t->decisions[step] = b.c->decision;
            t->factors[step] = b.c->factors[0];
            if (scripted) t->squares[step] = last(&b)->model.squares_period;
        }
    close_bench(&b);
}

static void same_decisions(const watching *base) {
    watching whole = *base;
    whole.skipped = -1;
    run_ranks(3, watch, &whole);
    int changes = 0;
    for (int at = 1; at < TAKEN; at++)
        changes += whole.decisions[at].factor != whole.decisions[at - 1].factor ||
                   whole.decisions[at].trial != whole.decisions[at - 1].trial;
    assert_true(changes > 0 || base->controller == NULL);
    for (int skipped = 3; skipped < 11; skipped++) { /* beginnings and ends of periods are among them */
        watching with = *base;
        with.skipped = skipped;
        run_ranks(3, watch, &with);
        for (int at = 0; at < TAKEN; at++) {
            assert_true(with.decisions[at].factor == whole.decisions[at].factor);
            assert_true(with.decisions[at].trial == whole.decisions[at].trial);
            assert_true(with.factors[at] == whole.factors[at] && with.squares[at] == whole.squares[at]);
        }
    }
}

/* A skipped step shifts every decision by one step, and changes none. */
static void time_is_steps_that_were_taken(void **state) {
    (void)state;
    static const struct {
        double low, high, threshold;
        int64_t epoch, every;
    } accordion = {2, 8, .2, PERIOD, 1};
    static const struct {
        double floor, ceiling, epsilon, omega;
        int64_t window;
        int policy;
    } gravac = {2, 1000, .01, 0, 6, 1};
    assert_int_equal(sizeof accordion, taciti_controller_find("accordion")->options_size);
    assert_int_equal(sizeof gravac, taciti_controller_find("gravac")->options_size);
    same_decisions(&(watching){.controller = NULL});
    same_decisions(&(watching){.controller = "accordion", .options = &accordion});
    same_decisions(&(watching){.controller = "gravac", .options = &gravac});
}

/* |sum over a period|^2 at its last step alone, and every period begins with nothing. */
static void a_period_is_summed_up(void **state) {
    (void)state;
    watching t = {.skipped = -1};
    run_ranks(3, watch, &t);
    for (int at = 0; at < TAKEN; at++) assert_true((t.squares[at] > 0) == (at % PERIOD == PERIOD - 1));
    assert_true(t.squares[4] < 4 * t.squares[9] && t.squares[9] < 4 * t.squares[4]);
    assert_true(t.squares[14] < 4 * t.squares[4] && t.squares[19] < 4 * t.squares[4]);
}

/* ---- facts and decisions ----------------------------------------------------------------------------------------- */

enum { SECONDS = 1000 }; /* a step; so long that the time of the test itself is nothing */

static void look_at_facts(taciti_comm *comm, void *context) {
    (void)context;
    const script_options script = {.factor = {10, 10}, .period = 50};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    for (int64_t step = 0; step < 4; step++) {
        fill_integers(&b, step);
        exchange_all(&b);
        b.c->settled_ns = taciti_now_ns() - SECONDS * INT64_C(1000000000);
        settle(&b, true);
        const taciti_adapt_facts *facts = last(&b);
        const taciti_codec_tally *sent = &facts->model.sent;
        CHECK(facts->step == step && sent->squares_in > sent->squares_out);
        CHECK(facts->seconds.step >= SECONDS); /* the mean of all ranks, not their sum, which is five times that */
        CHECK(facts->seconds.step < 3 * SECONDS);
        double logs = 0, n = 0; /* the threshold of the model: the geometric mean of the buckets' by what they sent */
        for (size_t k = 0; k < b.layout.bucket_count; k++) {
            const taciti_codec_tally *one = &b.c->tallies[k].sent;
            if (one->threshold > 0) logs += (double)one->n * log(one->threshold), n += (double)one->n;
        }
        CHECK(n == 0 || fabs(sent->threshold - exp(logs / n)) <= 1e-9 * sent->threshold);
        CHECK(n > 0 || step > 0);
    }
    close_bench(&b);
}

/* In a dense step everything is sent: all of the sum, whose norm is 3. */
static void look_at_dense_facts(taciti_comm *comm, void *context) {
    (void)context;
    const script_options script = {.factor = {1, 1}, .period = 50};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    fill_integers(&b, 0);
    exchange_all(&b);
    settle(&b, true);
    const taciti_adapt_facts *facts = last(&b);
    CHECK(fabs(facts->model.sent.squares_in - 9) < 1e-9);
    CHECK(facts->model.sent.squares_out == facts->model.sent.squares_in);
    close_bench(&b);
}

static void facts_are_those_of_the_step(void **state) {
    (void)state;
    run_ranks(5, look_at_facts, NULL);
    run_ranks(5, look_at_dense_facts, NULL);
}

/* An evaluation, say. */
static void pause_once(taciti_comm *comm, void *context) {
    (void)context;
    const script_options script = {.factor = {10, 10}, .period = 5};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    for (int64_t step = 0; step < 6; step++) {
        if (step == 5) taciti_sleep_ns(TACITI_NS_PER_S);
        fill_integers(&b, step);
        exchange_all(&b);
        settle(&b, true);
    }
    CHECK(taciti_comm_rank(comm) > 0 || (last(&b)->seconds.step > 0 && last(&b)->seconds.step < 0.5));
    close_bench(&b);
}

static void a_pause_is_no_step(void **state) {
    (void)state;
    run_ranks(2, pause_once, NULL);
}

static void disagree(taciti_comm *comm, void *context) {
    (void)context;
    const int rank = taciti_comm_rank(comm);
    const script_options script = {
        .factor = {10 + rank, 10 + rank}, .trial = {40 + rank, 40 + rank}, .period = 50, .bucket = 20 + rank};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    fill_integers(&b, 0);
    exchange_all(&b);
    settle(&b, true);
    CHECK(b.c->decision.factor == 10 && b.c->decision.trial == 40);
    for (size_t k = 0; k < b.layout.bucket_count; k++) CHECK(b.c->factors[k] == 20);
    close_bench(&b);
}

static void all_ranks_follow_rank_0(void **state) {
    (void)state;
    run_ranks(3, disagree, NULL);
}

static void be_alone(taciti_comm *comm, void *context) {
    (void)context;
    char event[512];
    const script_options script = {.factor = {10, 20}, .trial = {40, 40}, .period = 5};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    CHECK(taciti_compression_start(b.c, 0, false) == TACIT_OK);
    for (int64_t step = 0; step < 3; step++) {
        fill_integers(&b, step);
        CHECK(taciti_compression_is_dense(b.c));
        exchange_all(&b);
        settle(&b, true);
        CHECK(b.report.factor == 1 && b.report.gain == 1 && b.report.kept == 1 && b.report.bytes == 0);
        CHECK(!taciti_compression_event(b.c, event, sizeof event) && noted(&b)->shown == 0);
    }
    close_bench(&b);
}

static void one_rank_is_dense(void **state) {
    (void)state;
    run_ranks(1, be_alone, NULL);
}

/* A fixed factor tells what a controller that keeps it is told, though its ranks send one tally for all buckets. */
static void tell_the_same(taciti_comm *comm, void *context) {
    static const script_options SAME = {.factor = {10, 10}};
    const taciti_compression_setup script = scripted(&SAME), fixed = {.sums = script.sums, .options = script.options};
    bench one, many;
    (void)context;
    open_bench(comm, &fixed, 9000, &one);
    open_bench(comm, &script, 9000, &many);
    for (int64_t step = 0; step < 4; step++) {
        for (int i = 0; i < 2; i++) {
            fill_integers(i ? &many : &one, step);
            exchange_all(i ? &many : &one);
            settle(i ? &many : &one, true);
        }
        CHECK(one.layout.bucket_count > 1 && many.report.kept > 0.02 && many.report.kept < 0.5);
        CHECK(one.report.kept == many.report.kept && one.report.bytes == many.report.bytes);
        CHECK(fabs(one.report.gain / many.report.gain - 1) < 1e-12);
    }
    close_bench(&one);
    close_bench(&many);
}

static void one_tally_tells_as_much_as_many(void **state) {
    (void)state;
    run_ranks(3, tell_the_same, NULL);
}

/* The planner counts the same bytes: five costs and, of every bucket and both kinds, 14 figures. */
static void ranks_tell_each_other_few_numbers(void **state) {
    (void)state;
    assert_int_equal(taciti_compression_statistics_bytes(0, true), 5 * sizeof(double));
    assert_int_equal(taciti_compression_statistics_bytes(7, true), (5 + 2 * 7 * 14) * sizeof(double));
    assert_int_equal(taciti_compression_statistics_bytes(7, false), (5 + 2 * 14) * sizeof(double));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trial_scores_what_would_be_sent),
        cmocka_unit_test(what_was_tried_is_sent_with_its_threshold),
        cmocka_unit_test(time_is_steps_that_were_taken),
        cmocka_unit_test(a_period_is_summed_up),
        cmocka_unit_test(facts_are_those_of_the_step),
        cmocka_unit_test(a_pause_is_no_step),
        cmocka_unit_test(all_ranks_follow_rank_0),
        cmocka_unit_test(one_rank_is_dense),
        cmocka_unit_test(one_tally_tells_as_much_as_many),
        cmocka_unit_test(ranks_tell_each_other_few_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

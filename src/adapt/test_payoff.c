/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "adapt/adapt.h"
#include "base/memory.h"

/* A link: seconds of a dense exchange, and of the codec, which sends an eighth of the bytes. */
typedef struct run {
    const taciti_controller *controller;
    void *state;
    taciti_decision decision;
    int64_t step, coded, events;
    int64_t rises; /* steps in which the codec sends all but everything: its factor rises */
} run;

static void begin(run *r, double factor) {
    *r = (run){.controller = taciti_controller_find("payoff")};
    const taciti_adapt_start start = {.factor = factor, .buckets = 1};
    r->state = taciti_calloc(1, r->controller->state_bytes(1));
    r->controller->start(NULL, &start, r->state, &r->decision, NULL);
    assert_true(r->decision.factor == 1);
}

static void go(run *r, int64_t steps, double dense, double codec) {
    for (int64_t i = 0; i < steps; i++, r->step++) {
        const double jitter = r->step % 7 == 3 ? 3 : 1; /* one step in seven takes three times as long */
        const bool coded = r->decision.factor > 1 && r->step >= r->rises;
        const taciti_adapt_facts facts = {.step = r->step,
                                          .factor = coded ? r->decision.factor : fmin(r->decision.factor, 1.01),
                                          .bytes = coded ? 1 : 8,
                                          .seconds = {.step = 0.1 + dense,
                                                      .busy = jitter * (coded ? codec + dense / 8 : dense),
                                                      .encode = coded ? jitter * codec : 0}};
        r->coded += r->decision.factor > 1;
        r->controller->decide(NULL, &facts, r->state, &r->decision, NULL);
        r->events += r->decision.changed;
    }
}

/* Three buckets: a long one that the codec makes faster, a short one that it does not, and one that it does when the
 * link is slow. */
static void buckets_that_the_codec_slows_stay_dense(void **state) {
    (void)state;
    run r = {.controller = taciti_controller_find("payoff")};
    const taciti_adapt_start start = {.factor = 8, .buckets = 3};
    double factors[3] = {0};
    r.state = taciti_calloc(1, r.controller->state_bytes(3));
    r.controller->start(NULL, &start, r.state, &r.decision, factors);
    for (; r.step < 2000; r.step++) {
        const bool slow = r.step >= 1000, coded = r.decision.factor > 1;
        const double dense[3] = {slow ? 0.8 : 0.2, 0.001, slow ? 0.08 : 0.02}, codec[3] = {0.02, 0.003, 0.03};
        static const size_t bucket_bytes[3] = {1000, 1, 100};
        double busy[3], sum = 0, encode = 0;
        for (int b = 0; b < 3; b++) {
            const bool through = coded && factors[b] != 1;
            busy[b] = through ? codec[b] + dense[b] / 8 : dense[b];
            sum += busy[b];
            encode += through ? codec[b] : 0;
        }
        const taciti_adapt_facts facts = {.step = r.step,
                                          .factor = r.decision.factor,
                                          .buckets = 3,
                                          .bucket_busy = busy,
                                          .bucket_bytes = bucket_bytes,
                                          .seconds = {.step = 0.3, .busy = sum, .encode = encode}};
        r.controller->decide(NULL, &facts, r.state, &r.decision, factors);
        if (r.step < 20 || slow) continue;
        assert_true(factors[0] == 0 && factors[1] == 1 && factors[2] == 1);
        assert_non_null(strstr(r.decision.reason, "2 of 3 buckets do otherwise"));
    }
    assert_true(r.decision.factor > 1 && factors[0] == 0 && factors[1] == 1 && factors[2] == 0);
    taciti_free(r.state);
}

static void end(run *r) { taciti_free(r->state); }

static void a_slow_link_is_compressed(void **state) {
    (void)state;
    run r;
    begin(&r, 1);
    go(&r, 20, 0.2, 0.025);
    assert_true(r.decision.factor > 1);
    assert_int_equal(r.events, 1);
    assert_non_null(strstr(r.decision.reason, "saves at most"));
    r.coded = 0;
    go(&r, 5000, 0.2, 0.025);
    assert_in_range(r.coded, 4950, 4997); /* the others are trials */
    assert_int_equal(r.events, 1);
    end(&r);
}

/* The warm-up of a factor says nothing of the codec. */
static void a_factor_that_rises_is_not_measured(void **state) {
    (void)state;
    run r;
    begin(&r, 8);
    r.rises = 100;
    go(&r, 120, 0.2, 0.025);
    assert_true(r.decision.factor == 8);
    assert_int_equal(r.events, 1);
    r.coded = 0;
    go(&r, 1000, 0.2, 0.025);
    assert_true(r.coded > 950);
    end(&r);
}

static void a_fast_link_is_left_alone(void **state) {
    (void)state;
    run r;
    begin(&r, 8);
    go(&r, 20, 0.01, 0.0086); /* hardly less */
    assert_true(r.decision.factor == 1);
    assert_non_null(strstr(r.decision.reason, "costs at most 0 %"));
    r.coded = 0;
    go(&r, 5000, 0.01, 0.0086);
    assert_in_range(r.coded, 2, 400);
    assert_in_range(r.events, 1, 12); /* they are all but equal */
    assert_true(r.decision.factor == 1);
    end(&r);
}

static void a_link_that_changes_is_noticed(void **state) {
    (void)state;
    run r;
    begin(&r, 8);
    go(&r, 300, 0.01, 0.05);
    assert_true(r.decision.factor == 1);
    r.coded = 0;
    go(&r, 5, 1, 0.05); /* the one in use shows it in two steps */
    assert_true(r.decision.factor == 8);
    assert_in_range(r.coded, 2, 3);
    go(&r, 600, 1, 0.05);
    assert_true(r.decision.factor == 8);
    go(&r, 40, 0.01, 0.05);
    assert_true(r.decision.factor == 1);
    assert_int_equal(r.events, 3);
    end(&r);
}

/* A kind that takes four times as long is tried for at most a hundredth of the time. */
static void trials_become_rare(void **state) {
    (void)state;
    run r;
    begin(&r, 8);
    go(&r, 2000, 0.2, 0.025);
    r.coded = 0;
    go(&r, 20000, 0.2, 0.025);
    assert_in_range(20000 - r.coded, 4, 100);
    end(&r);
}

/* State and decision are plain bytes: a copy goes on as the original. */
static void a_copy_goes_on_alike(void **state) {
    (void)state;
    for (int64_t at = 0; at < 600; at += 37) {
        run a, b;
        begin(&a, 4);
        go(&a, at, 0.2, 0.025);
        begin(&b, 4);
        memcpy(b.state, a.state, a.controller->state_bytes(1));
        b.decision = a.decision;
        b.step = a.step;
        a.coded = 0;
        go(&a, 700, 0.2, 0.025);
        go(&b, 700, 0.2, 0.025);
        assert_int_equal(a.coded, b.coded);
        end(&a);
        end(&b);
    }
}

/* ---- codecs with rungs ------------------------------------------------------------------------------------------- */

static const taciti_codec_rung RUNGS[] = {{.factor = 2}, {.factor = 4}, {.factor = 8}, {.factor = 0}};
enum { KINDS = 4, BUCKETS = 2 };
static const double FACTORS[KINDS] = {1, 2, 4, 8};

/* Seconds of the exchange of two buckets at each factor, and those that training waits for it. */
typedef struct cluster {
    double busy[KINDS][BUCKETS], exposed[KINDS];
} cluster;

typedef struct ladder {
    void *state;
    taciti_decision decision;
    double factors[BUCKETS];
    int64_t step, steps[KINDS]; /* by the factor of the decision */
    int64_t events, every;      /* steps of the run between exchanges */
} ladder;

static void climb_by(ladder *l, const taciti_codec_rung *rungs) {
    const taciti_controller *payoff = taciti_controller_find("payoff");
    const taciti_adapt_start start = {.factor = 10, .rungs = rungs, .loss = 5, .selects_at = 1000, .buckets = BUCKETS};
    *l = (ladder){.state = taciti_calloc(1, payoff->state_bytes(BUCKETS))};
    payoff->start(NULL, &start, l->state, &l->decision, l->factors);
}

static void climb(ladder *l) { climb_by(l, RUNGS); }

static size_t kind_of(double factor) {
    size_t k = 0;
    while (k < KINDS && FACTORS[k] != factor) k++;
    assert_true(k < KINDS);
    return k;
}

static void climb_on(ladder *l, int64_t steps, const cluster *c) {
    static const size_t bucket_bytes[BUCKETS] = {1000, 50};
    for (int64_t i = 0; i < steps; i++, l->step++) {
        const size_t k = kind_of(l->decision.factor);
        double busy[BUCKETS], sum = 0;
        for (size_t b = 0; b < BUCKETS; b++) {
            busy[b] = c->busy[l->factors[b] > 0 ? kind_of(l->factors[b]) : k][b];
            sum += busy[b];
        }
        const taciti_adapt_facts facts = {.step = l->step,
                                          .at = l->every * l->step,
                                          .factor = l->decision.factor,
                                          .buckets = BUCKETS,
                                          .bucket_bytes = bucket_bytes,
                                          .bucket_busy = busy,
                                          .seconds = {.step = 1, .busy = sum, .exposed = c->exposed[k]}};
        l->steps[k]++;
        taciti_controller_find("payoff")->decide(NULL, &facts, l->state, &l->decision, l->factors);
        l->events += l->decision.changed;
    }
}

/* The most accurate numbers whose exchange is not slower by more than a twentieth. */
static void no_more_bits_are_dropped_than_pay(void **state) {
    (void)state;
    static const struct {
        cluster c;
        double factor;
    } CASES[] = {{{.busy = {{0.8}, {0.77}, {0.9}, {0.9}}}, 1},
                 {{.busy = {{0.8}, {0.75}, {0.9}, {0.9}}}, 2},
                 {{.busy = {{0.8}, {0.4}, {0.2}, {0.1}}}, 8},
                 {{.busy = {{0.8}, {0.4}, {0.2}, {0.195}}}, 4},
                 {{.busy = {{0.8}, {0.4}, {0.39}, {0.385}}}, 2},
                 {{.busy = {{0.8}, {0.79}, {0.78}, {0.9}}}, 1},
                 {{.busy = {{0.8}, {0.9}, {0.3}, {0.6}}}, 4},
                 {{.busy = {{0.8}, {0.4}, {0.2}, {0.1}}, .exposed = {0.5, 0.3, 0.01, 0.005}}, 4},
                 {{.busy = {{0.8}, {0.4}, {0.2}, {0.1}}, .exposed = {0.01, 0.01, 0.01, 0.01}}, 1}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        ladder l;
        climb(&l);
        climb_on(&l, 40, &CASES[i].c);
        assert_true(l.decision.factor == CASES[i].factor);
        assert_int_equal(l.events, 1);
        climb_on(&l, 3000, &CASES[i].c);
        assert_true(l.steps[kind_of(CASES[i].factor)] > 2900); /* the others are trials */
        assert_int_equal(l.events, 1);
        for (size_t k = 0; k < KINDS; k++) assert_true(l.steps[k] >= 3); /* of which all kinds have some */
        taciti_free(l.state);
    }
}

/* The second bucket is short: its time is that of messages and of the codec. */
static void each_bucket_has_its_own_numbers(void **state) {
    (void)state;
    static const cluster LINE = {.busy = {{0.8, 0.02}, {0.4, 0.01}, {0.2, 0.03}, {0.1, 0.05}}};
    ladder l;
    climb(&l);
    climb_on(&l, 1200, &LINE);
    assert_true(l.decision.factor == 8 && l.factors[0] == 0 && l.factors[1] == 2);
    assert_non_null(strstr(l.decision.reason, "at factor 8"));
    assert_non_null(strstr(l.decision.reason, "1 of 2 buckets do otherwise"));
    taciti_free(l.state);
}

static void a_link_that_recovers_gets_its_bits_back(void **state) {
    (void)state;
    static const cluster SLOW = {.busy = {{0.8}, {0.4}, {0.2}, {0.1}}, .exposed = {0.7, 0.3, 0.1, 0.05}},
                         FAST = {.busy = {{0.08}, {0.04}, {0.03}, {0.029}}, .exposed = {0.07, 0.01, 0.01, 0.01}};
    ladder l;
    climb(&l);
    climb_on(&l, 100, &SLOW);
    assert_true(l.decision.factor == 8);
    climb_on(&l, 60, &FAST);
    assert_true(l.decision.factor == 2); /* nothing to gain beyond it */
    climb_on(&l, 60, &SLOW);
    assert_true(l.decision.factor == 8);
    taciti_free(l.state);
}

/* With three kinds, too, one that is better is soon compared with the others. */
static void a_better_kind_is_not_yet_the_best(void **state) {
    (void)state;
    static const taciti_codec_rung TWO[] = {{.factor = 2}, {.factor = 4}, {.factor = 0}};
    static const cluster FAST = {.busy = {{0.08}, {0.09}, {0.1}}}, SLOW = {.busy = {{0.8}, {0.4}, {0.2}}};
    ladder l;
    climb_by(&l, TWO);
    climb_on(&l, 100, &FAST);
    assert_true(l.decision.factor == 1);
    climb_on(&l, 60, &SLOW);
    assert_true(l.decision.factor == 4);
    taciti_free(l.state);
}

/* With local SGD an exchange is not a step. */
static void kinds_that_select_join_at_a_step_of_the_run(void **state) {
    (void)state;
    static const taciti_codec_rung TWO[] = {{.factor = 2}, {.factor = 4, .selects = 5}, {.factor = 0}};
    static const cluster SLOW = {.busy = {{0.8}, {0.4}, {0.2}}, .exposed = {0.8, 0.4, 0.2}};
    ladder l;
    climb_by(&l, TWO);
    l.every = 100;
    climb_on(&l, 10, &SLOW);
    assert_true(l.decision.factor == 2 && l.steps[2] == 0);
    climb_on(&l, 20, &SLOW);
    assert_true(l.decision.factor == 4);
    taciti_free(l.state);
}

static void buckets_take_equal_parts_of_the_state(void **state) {
    (void)state;
    const taciti_controller *payoff = taciti_controller_find("payoff");
    const size_t one = payoff->state_bytes(1), two = payoff->state_bytes(2);
    assert_true(two > one && payoff->state_bytes(10) == one + 9 * (two - one));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_link_is_compressed),
        cmocka_unit_test(a_factor_that_rises_is_not_measured),
        cmocka_unit_test(a_fast_link_is_left_alone),
        cmocka_unit_test(a_link_that_changes_is_noticed),
        cmocka_unit_test(buckets_that_the_codec_slows_stay_dense),
        cmocka_unit_test(trials_become_rare),
        cmocka_unit_test(a_copy_goes_on_alike),
        cmocka_unit_test(no_more_bits_are_dropped_than_pay),
        cmocka_unit_test(each_bucket_has_its_own_numbers),
        cmocka_unit_test(a_link_that_recovers_gets_its_bits_back),
        cmocka_unit_test(a_better_kind_is_not_yet_the_best),
        cmocka_unit_test(kinds_that_select_join_at_a_step_of_the_run),
        cmocka_unit_test(buckets_take_equal_parts_of_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

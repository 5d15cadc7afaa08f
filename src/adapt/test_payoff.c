/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <string.h>

#include "adapt/adapt.h"
#include "base/memory.h"

/* A link: seconds of an exchange, dense and through the codec. */
typedef struct run {
    const taciti_controller *controller;
    void *state;
    taciti_decision decision;
    int64_t step, coded, events;
} run;

static void begin(run *r, double factor) {
    *r = (run){.controller = taciti_controller_find("payoff")};
    const taciti_adapt_start start = {.factor = factor, .buckets = 1, .ranks = 4, .lanes = 4};
    r->state = taciti_calloc(1, r->controller->state_bytes(NULL, 1));
    r->controller->start(NULL, &start, r->state, &r->decision, NULL);
    assert_true(r->decision.factor == 1);
}

static void go(run *r, int64_t steps, double dense, double coded) {
    for (int64_t i = 0; i < steps; i++, r->step++) {
        const double jitter = r->step % 7 == 3 ? 3 : 1; /* one step in seven takes three times as long */
        const taciti_adapt_facts facts = {
            .step = r->step,
            .factor = r->decision.factor,
            .seconds = {.step = 0.1 + dense, .busy = jitter * (r->decision.factor > 1 ? coded : dense)}};
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
    const taciti_adapt_start start = {.factor = 1, .buckets = 3, .ranks = 4, .lanes = 4};
    double factors[3] = {0};
    r.state = taciti_calloc(1, r.controller->state_bytes(NULL, 3));
    r.controller->start(NULL, &start, r.state, &r.decision, factors);
    for (; r.step < 2000; r.step++) {
        const bool slow = r.step >= 1000, coded = r.decision.factor > 1;
        const double dense[3] = {slow ? 0.8 : 0.2, 0.001, slow ? 0.08 : 0.02}, through[3] = {0.05, 0.003, 0.03};
        double busy[3], sum = 0;
        for (int b = 0; b < 3; b++) {
            busy[b] = coded && factors[b] != 1 ? through[b] : dense[b];
            sum += busy[b];
        }
        const taciti_adapt_facts facts = {.step = r.step,
                                          .factor = r.decision.factor,
                                          .buckets = 3,
                                          .bucket_busy = busy,
                                          .seconds = {.step = 0.3, .busy = sum}};
        r.controller->decide(NULL, &facts, r.state, &r.decision, factors);
        if (r.step < 20 || slow) continue;
        assert_true(factors[0] == 0 && factors[1] == 1 && factors[2] == 1);
        assert_non_null(strstr(r.decision.reason, "2 of 3 buckets stay dense"));
    }
    assert_true(r.decision.factor > 1 && factors[0] == 0 && factors[1] == 1 && factors[2] == 0);
    taciti_free(r.state);
}

static void end(run *r) { taciti_free(r->state); }

static void a_slow_link_is_compressed(void **state) {
    (void)state;
    run r;
    begin(&r, 1);
    go(&r, 20, 0.2, 0.05);
    assert_true(r.decision.factor > 1);
    assert_int_equal(r.events, 1);
    assert_non_null(strstr(r.decision.reason, "saves at most"));
    r.coded = 0;
    go(&r, 5000, 0.2, 0.05);
    assert_in_range(r.coded, 4970, 4995); /* the others are trials */
    assert_int_equal(r.events, 1);
    end(&r);
}

static void a_fast_link_is_left_alone(void **state) {
    (void)state;
    run r;
    begin(&r, 8);
    go(&r, 20, 0.01, 0.0099); /* hardly less */
    assert_true(r.decision.factor == 1);
    r.coded = 0;
    go(&r, 5000, 0.01, 0.0099);
    assert_in_range(r.coded, 2, 12);
    assert_int_equal(r.events, 1);
    assert_non_null(strstr(r.decision.reason, "would cost"));
    end(&r);
}

static void a_link_that_changes_is_noticed(void **state) {
    (void)state;
    run r;
    begin(&r, 8);
    go(&r, 300, 0.01, 0.05);
    assert_true(r.decision.factor == 1);
    go(&r, 20, 0.4, 0.05); /* the one in use shows it */
    assert_true(r.decision.factor == 8);
    go(&r, 600, 0.4, 0.05);
    go(&r, 1100, 0.01, 0.05); /* only a trial shows it */
    assert_true(r.decision.factor == 1);
    assert_int_equal(r.events, 3);
    end(&r);
}

/* State and decision are plain bytes: a copy goes on as the original. */
static void a_copy_goes_on_alike(void **state) {
    (void)state;
    for (int64_t at = 0; at < 600; at += 37) {
        run a, b;
        begin(&a, 4);
        go(&a, at, 0.2, 0.05);
        begin(&b, 4);
        memcpy(b.state, a.state, a.controller->state_bytes(NULL, 1));
        b.decision = a.decision;
        b.step = a.step;
        a.coded = 0;
        go(&a, 700, 0.2, 0.05);
        go(&b, 700, 0.2, 0.05);
        assert_int_equal(a.coded, b.coded);
        end(&a);
        end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_link_is_compressed),      cmocka_unit_test(a_fast_link_is_left_alone),
        cmocka_unit_test(a_link_that_changes_is_noticed), cmocka_unit_test(buckets_that_the_codec_slows_stay_dense),
        cmocka_unit_test(a_copy_goes_on_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Accordion's rule per bucket, its rule for the learning rate; fixed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "adapt/test_controller.h"

enum { BUCKETS = 2, EPOCH = 4, EVERY = 3, WINDOW = EPOCH * EVERY };
static const taciti_adapt_start BEGIN = {.factor = 30, .buckets = BUCKETS};

static driven accordion(void) {
    driven d = driven_create("accordion");
    driven_set(&d, "accordion.epoch", "4");
    driven_set(&d, "accordion.every", "3");
    driven_start(&d, &BEGIN);
    return d;
}

/* period: norms of the sums over an epoch. */
static void step(driven *d, int64_t at, double lr, const double *period) {
    static const size_t bytes[BUCKETS] = {300, 100};
    taciti_tally bucket[BUCKETS];
    memset(bucket, 0, sizeof bucket);
    for (int b = 0; b < BUCKETS && (at + 1) % EPOCH == 0; b++) bucket[b].squares_period = period[b] * period[b];
    const taciti_adapt_facts facts = {.step = at,
                                      .factor = d->decision.factor,
                                      .lr = lr,
                                      .ranks = 4,
                                      .buckets = BUCKETS,
                                      .bucket = bucket,
                                      .bucket_bytes = bytes};
    driven_decide(d, &facts);
}

static void run(driven *d, int64_t from, int64_t to, double lr, const double *period) {
    for (int64_t s = from; s < to; s++) step(d, s, lr, period);
}

static void expect(const driven *d, double first, double second) {
    assert_true(d->factors[0] == first);
    assert_true(d->factors[1] == second);
    assert_true(d->factors[BUCKETS] == 0); /* which is nobody's */
}

static void test_critical_per_bucket(void **state) {
    (void)state;
    driven d = accordion();
    const double one[] = {1, 1}, first[] = {8, 8}, later[] = {7, 4}, last[] = {7, 1.9};
    expect(&d, 10, 10);
    run(&d, 0, EPOCH, 1, first);
    expect(&d, 10, 10);
    run(&d, EPOCH, WINDOW - 1, 1, one); /* sums between decisions do not count */
    expect(&d, 10, 10);
    run(&d, WINDOW - 1, WINDOW, 1, later);
    expect(&d, 100, 10); /* 8 -> 7: 12.5 %; 8 -> 4: exactly the 50 % that is critical */
    assert_true(d.decision.changed);
    assert_true(fabs(d.decision.factor - 400 / (3 + 10.0)) < 1e-12);
    assert_non_null(strstr(d.decision.reason, "1 of 2 buckets"));
    run(&d, WINDOW, 2 * WINDOW, 1, later);
    expect(&d, 100, 100);
    run(&d, 2 * WINDOW, 3 * WINDOW - 1, 1, last);
    expect(&d, 100, 100);
    run(&d, 3 * WINDOW - 1, 3 * WINDOW, 1, last);
    expect(&d, 100, 10);
    driven_destroy(&d);
}

static void test_learning_rate_falls(void **state) {
    (void)state;
    driven d = accordion();
    const double same[] = {2, 3};
    run(&d, 0, 2, .5, same); /* warm-up is no fall */
    assert_non_null(strstr(d.decision.reason, "at the start"));
    run(&d, 2, WINDOW + 1, 1, same);
    expect(&d, 100, 100);
    step(&d, WINDOW + 1, .51, same);
    expect(&d, 100, 100);
    step(&d, WINDOW + 2, .5, same);
    expect(&d, 10, 10);
    assert_true(d.decision.changed);
    assert_non_null(strstr(d.decision.reason, "learning rate"));
    run(&d, WINDOW + 3, 2 * WINDOW - 1, .4, same);
    expect(&d, 10, 10);
    step(&d, 2 * WINDOW - 1, .4, same);
    expect(&d, 100, 100);
    driven_destroy(&d);
}

static void test_zeros_are_calm(void **state) {
    (void)state;
    driven d = accordion();
    const double none[] = {0, 0}, some[] = {0, 1};
    run(&d, 0, WINDOW, 1, none);
    expect(&d, 100, 100);
    run(&d, WINDOW, 2 * WINDOW, 1, some);
    expect(&d, 100, 10);
    driven_destroy(&d);
}

static void test_fixed(void **state) {
    (void)state;
    driven d = driven_create("fixed");
    driven_start(&d, &BEGIN);
    const taciti_adapt_facts facts = {.factor = 5};
    for (int i = 0; i < 3; i++) {
        assert_true(d.decision.factor == 30 && !d.decision.changed && d.decision.trial == 0);
        driven_decide(&d, &facts);
    }
    driven_destroy(&d);
}

static void test_registry(void **state) {
    (void)state;
    size_t count = 0; /* a NULL stands between those that are shown and those for reference */
    for (const taciti_controller *const *c = taciti_controller_list(); *c != NULL; c++, count++) {
        if ((*c)->reference && taciti_controller_name(count) == NULL) count++;
        assert_string_equal(taciti_controller_name(count), (*c)->name);
        assert_ptr_equal(taciti_controller_find((*c)->name), *c);
        assert_true((*c)->options == NULL || strcmp((*c)->options->section, (*c)->name) == 0);
    }
    assert_null(taciti_controller_name(count));
    assert_null(taciti_controller_find("none"));
}

static tacit_status check_of(const char *name, const char *key, const char *value, const char *key2,
                             const char *value2) {
    driven d = driven_create(name);
    driven_set(&d, key, value);
    if (key2 != NULL) driven_set(&d, key2, value2);
    const tacit_status status = d.controller->check(d.options);
    free(d.options);
    return status;
}

static void test_contradictions_are_refused(void **state) {
    (void)state;
    assert_int_equal(check_of("gravac", "gravac.floor", "500", "gravac.ceiling", "20"), TACIT_E_CONFIG);
    assert_int_equal(check_of("gravac", "gravac.floor", "1", "gravac.ceiling", "1"), TACIT_E_CONFIG);
    assert_int_equal(check_of("gravac", "gravac.floor", "20", "gravac.ceiling", "20"), TACIT_OK);
    assert_int_equal(check_of("accordion", "accordion.low", "100", "accordion.high", "10"), TACIT_E_CONFIG);
    assert_int_equal(check_of("accordion", "accordion.low", "1", "accordion.high", "1"), TACIT_E_CONFIG);
    assert_int_equal(check_of("accordion", "accordion.low", "10", "accordion.high", "10"), TACIT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_critical_per_bucket),
                                       cmocka_unit_test(test_learning_rate_falls),
                                       cmocka_unit_test(test_zeros_are_calm),
                                       cmocka_unit_test(test_fixed),
                                       cmocka_unit_test(test_registry),
                                       cmocka_unit_test(test_contradictions_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

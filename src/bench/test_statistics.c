/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "bench/statistics.h"

static void one_sample_has_no_deviation(void **state) {
    (void)state;
    double one[] = {3};
    const taciti_moments m = taciti_moments_of(one, 1);
    assert_true(m.mean == 3 && m.statistics.median == 3 && m.statistics.min == 3 && m.statistics.max == 3 &&
                m.count == 1);
    assert_true(isnan(m.cv) && isnan(m.standard_error));
}

/* 2 4 4 4 5 5 7 9: mean 5, squares around it add up to 32. */
static void mean_cv_and_error_are_those_of_the_formulas(void **state) {
    (void)state;
    double samples[] = {9, 2, 5, 4, 4, 7, 4, 5};
    const taciti_moments m = taciti_moments_of(samples, 8);
    assert_true(fabs(m.mean - 5) < 1e-12 && m.statistics.median == 4.5 && m.statistics.min == 2 &&
                m.statistics.max == 9);
    assert_true(fabs(m.cv - sqrt(32.0 / 7) / 5) < 1e-12);
    assert_true(fabs(m.standard_error - sqrt(32.0 / 7 / 8)) < 1e-12);
    for (size_t i = 1; i < 8; i++) assert_true(samples[i - 1] <= samples[i]);
}

static void equal_samples_zeros_and_opposites(void **state) {
    (void)state;
    double equal[] = {0.5, 0.5, 0.5}, zeros[] = {0, 0}, opposites[] = {-1, 1};
    assert_true(taciti_moments_of(equal, 3).cv == 0 && taciti_moments_of(equal, 3).standard_error == 0);
    assert_true(isnan(taciti_moments_of(zeros, 2).cv) && taciti_moments_of(zeros, 2).standard_error == 0);
    assert_true(isnan(taciti_moments_of(opposites, 2).cv)); /* relative to nothing */
}

/* The law behind the use of the error: n equal copies of a sample divide it by about sqrt(n). */
static void the_error_falls_with_the_root_of_the_count(void **state) {
    (void)state;
    double few[4] = {1, 2, 3, 4}, many[400];
    for (size_t i = 0; i < 400; i++) many[i] = few[i % 4];
    const taciti_moments a = taciti_moments_of(few, 4), b = taciti_moments_of(many, 400);
    assert_true(fabs(a.mean - b.mean) < 1e-12);
    assert_true(fabs(a.standard_error / b.standard_error - sqrt(399.0 / 3)) < 1e-9);
}

static void what_is_not_finite_is_null_in_json(void **state) {
    (void)state;
    double one[] = {3};
    const taciti_moments m = taciti_moments_of(one, 1);
    json_t *object = taciti_moments_json(&m);
    assert_non_null(object);
    assert_true(json_is_null(json_object_get(object, "cv")));
    assert_true(json_is_null(json_object_get(object, "standard_error")));
    assert_true(json_real_value(json_object_get(object, "mean")) == 3);
    assert_int_equal(json_integer_value(json_object_get(object, "count")), 1);
    json_decref(object);
    json_t *infinite = taciti_real_json((double)INFINITY);
    assert_true(json_is_null(infinite));
    json_decref(infinite);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sample_has_no_deviation),
        cmocka_unit_test(mean_cv_and_error_are_those_of_the_formulas),
        cmocka_unit_test(equal_samples_zeros_and_opposites),
        cmocka_unit_test(the_error_falls_with_the_root_of_the_count),
        cmocka_unit_test(what_is_not_finite_is_null_in_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

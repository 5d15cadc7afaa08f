/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/collective_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

enum { N = 5000 };

static float *floats(void) {
    float *x = taciti_calloc(N, sizeof *x);
    assert_non_null(x);
    return x;
}

/* Every element is somebody's, and sums stay below 256, where each integer is exact in bf16. */
static void sums_are_the_sums_of_contributions(void **state) {
    (void)state;
    const int ranks[] = {1, 2, 3, 8, 63, 64, 65, 128, 300};
    float *x = floats(), *sum = floats();
    for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
        taciti_numbers numbers;
        float max = 0;
        assert_int_equal(taciti_numbers_create(ranks[k], &numbers), TACIT_OK);
        memset(sum, 0, N * sizeof *sum);
        for (int r = 0; r < ranks[k]; r++) {
            taciti_numbers_write(&numbers, r, x, N);
            assert_true(taciti_numbers_are(&numbers, r, x, N));
            for (size_t i = 0; i < N; i++) sum[i] += x[i];
        }
        for (size_t i = 0; i < N; i++) max = sum[i] > max ? sum[i] : max;
        assert_true(taciti_numbers_are(&numbers, ranks[k], sum, N));
        assert_true(max >= 3 && max < 256);
        taciti_numbers_destroy(&numbers);
    }
    taciti_free(x);
    taciti_free(sum);
}

static void one_wrong_number_is_noticed_and_so_are_shifts_and_strangers(void **state) {
    (void)state;
    taciti_numbers numbers;
    float *x = floats();
    assert_int_equal(taciti_numbers_create(4, &numbers), TACIT_OK);
    taciti_numbers_write(&numbers, 2, x, N);
    assert_false(taciti_numbers_are(&numbers, 2, x + 1, N - 1));
    assert_false(taciti_numbers_are(&numbers, 1, x, N));
    assert_false(taciti_numbers_are(&numbers, 4, x, N));
    const size_t spots[] = {0, 1, N / 2, N - 1};
    for (size_t k = 0; k < sizeof spots / sizeof *spots; k++) {
        const float kept = x[spots[k]];
        x[spots[k]] = kept + 1;
        assert_false(taciti_numbers_are(&numbers, 2, x, N));
        x[spots[k]] = kept;
    }
    assert_true(taciti_numbers_are(&numbers, 2, x, N));
    assert_true(taciti_numbers_are(&numbers, 2, x, 0));
    taciti_numbers_destroy(&numbers);
    taciti_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_sums_of_contributions),
        cmocka_unit_test(one_wrong_number_is_noticed_and_so_are_shifts_and_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of sketches of which nothing is selected: in single ranges, in all of a bucket, in several steps running. The
 * sums and residuals are those of sparse payloads, to the bit, in every form and arrangement.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "exchange/test_sketches.h"

/* By ratio: sketches of the union's size, which are packed where ranges are short; packed everywhere; too small. */
static const double RATIOS[] = {0, 1, 20};
enum { RATIO_COUNT = sizeof RATIOS / sizeof *RATIOS };

static void ranges_of_which_nothing_is_selected_sum_to_zero(void **state) {
    (void)state;
    for (int r = 0; r < RATIO_COUNT; r++) {
        const trial t = {
            .codec = "tagc", .ratio = RATIOS[r], .feedback = ERRORS, .factor = 6, .threshold = 90, .rare = true};
        try_all(compare_with_topk, &t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_of_which_nothing_is_selected_sum_to_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

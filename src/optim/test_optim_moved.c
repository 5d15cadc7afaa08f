/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "optim/test_fixture.h"

/* A blend in one pass with an update counts the same distance as a blend alone: the update does not count. Ranges
 * within a tensor, over several and over the padding between them. */
static void an_update_in_the_same_pass_does_not_count_as_moved(void **state) {
    (void)state;
    const taciti_optim_options options[] = {
        {.name = TACITI_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
        {.name = TACITI_OPTIM_SGD, .momentum = 0.9}};
    const size_t ranges[][2] = {{0, 48}, {0, SIZE_MAX}, {64, 4096}, {69984, 70048}, {16, 16}};
    for (size_t k = 0; k < 2; k++)
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
            for (int threads = 1; threads <= 3; threads += 2) {
                double moved[2];
                for (int update = 0; update < 2; update++) {
                    fixture f;
                    set_up(&f, &options[k], threads);
                    randomise(&f, f.p, 1);
                    randomise(&f, f.g, 2);
                    float *arrived = taciti_calloc(f.layout.n, sizeof *arrived);
                    assert_non_null(arrived);
                    randomise(&f, arrived, 3);
                    for (size_t i = 0; i < f.layout.n; i++) arrived[i] += 0.25f; /* between tensors too */
                    const size_t offset = ranges[r][0], left = f.layout.n - offset;
                    const size_t n = ranges[r][1] < left ? ranges[r][1] : left;
                    taciti_blend blend = {.arrived = arrived, .keep = 0.5f, .share = 0.5f, .moved = 2};
                    taciti_optim_begin(f.optim, 0.1, 1);
                    if (update)
                        taciti_optim_update_range(f.optim, f.p, f.g, f.copy, offset, n, &blend);
                    else
                        taciti_optim_blend_range(f.optim, f.p, f.copy, offset, n, &blend);
                    moved[update] = blend.moved;
                    taciti_free(arrived);
                    tear_down(&f);
                }
                assert_true(moved[0] > 2);
                assert_true(fabs(moved[1] - moved[0]) <= moved[0] * 0x1p-34); /* sums in another order */
            }
}

static void states_have_names_and_nothing_else_has(void **state) {
    (void)state;
    for (int name = TACITI_OPTIM_ADAMW; name <= TACITI_OPTIM_SGD; name++) {
        const taciti_optim_options options = {.name = name, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
        fixture f;
        set_up(&f, &options, 1);
        static const char *const names[] = {"optim.m", "optim.v", "optim.a"};
        const int count = taciti_optim_state_count(f.optim);
        taciti_state listed = {.count = 0};
        taciti_optim_list_state(f.optim, TACITI_STATE_SHARED, &listed);
        assert_int_equal(listed.count, count + 1);
        assert_int_equal(taciti_state_find(&listed, "updates")->kind, TACITI_STATE_COUNT);
        for (int i = 0; i < 3; i++) assert_int_equal(taciti_state_find(&listed, names[i]) != NULL, i < count);
        for (size_t i = 0; i < listed.count; i++) {
            assert_int_equal(listed.entries[i].owner, TACITI_STATE_SHARED);
            assert_int_equal(listed.entries[i].regroup, TACITI_STATE_MEAN);
        }
        tear_down(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_in_the_same_pass_does_not_count_as_moved),
        cmocka_unit_test(states_have_names_and_nothing_else_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

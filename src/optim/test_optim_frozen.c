/* SPDX-License-Identifier: Apache-2.0
 *
 * Second moments that are frozen, and first moments that are made outside, as 1-bit Adam does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "optim/test_fixture.h"

static const taciti_optim_options ADAMW = {
    .name = TACITI_OPTIM_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

/* One step of AdamW from (p, m, v, g) whose v is that of update `freeze`. */
static void check_frozen(int64_t t, int64_t freeze, bool decay, const double before[4], const float after[3]) {
    const double b1 = (double)0.9f, b2 = (double)0.95f;
    const double m = b1 * before[1] + (1 - b1) * before[3], root = sqrt(before[2] / (1 - pow(b2, (double)freeze)));
    const double direction = m / (1 - pow(b1, (double)t)) / (root + 1e-8);
    const double p = before[0] - 1e-3 * (direction + (decay ? 0.1 : 0) * before[0]);
    assert_true(fabs((double)after[1] - m) <= 1e-6 * (fabs(before[1]) + fabs(before[3])) + 1e-44);
    assert_true((double)after[2] == before[2]);
    assert_true(fabs((double)after[0] - p) <= 1e-6 * fabs(p) + 1e-3 * 1e-5 * (fabs(direction) + 1));
}

static void frozen_second_moments_stay_bit_for_bit(void **state) {
    (void)state;
    enum { FREEZE = 3, UPDATES = 6 };
    taciti_optim_options options = ADAMW;
    fixture f;
    options.freeze = FREEZE;
    set_up(&f, &options, 2);
    randomise(&f, f.p, 1);
    const float *m = state_of(f.optim, 0), *v = state_of(f.optim, 1);
    double(*before)[4] = taciti_calloc(f.layout.n, sizeof *before);
    assert_non_null(before);
    for (int64_t t = 1; t <= UPDATES; t++) {
        assert_true(taciti_optim_is_frozen(f.optim) == (t > FREEZE));
        randomise(&f, f.g, (uint64_t)(100 + t));
        if (t == UPDATES) f.g[0] = 1e30f; /* its square overflows */
        FOR_TENSOR_ELEMENTS(&f, tensor, i) {
            const float now[4] = {f.p[i], m[i], v[i], f.g[i]};
            for (size_t k = 0; k < 4; k++) before[i][k] = (double)now[k];
        }
        taciti_optim_update(f.optim, f.p, f.g, NULL, 1e-3, 1);
        FOR_TENSOR_ELEMENTS(&f, tensor, i) {
            const float after[3] = {f.p[i], m[i], v[i]};
            if (t > FREEZE) check_frozen(t, FREEZE, tensor->decay, before[i], after);
        }
    }
    taciti_free(before);
    tear_down(&f);
}

/* The gradient's way to the first moment, in two halves. */
static void a_momentum_that_was_made_outside_gives_the_same_update(void **state) {
    (void)state;
    taciti_optim_options options = ADAMW;
    fixture ours, theirs;
    options.freeze = 2;
    set_up(&ours, &options, 2);
    set_up(&theirs, &options, 1);
    randomise(&ours, ours.p, 1);
    randomise(&theirs, theirs.p, 1);
    for (uint64_t t = 1; t <= 5; t++) {
        randomise(&ours, ours.g, t);
        randomise(&theirs, theirs.g, t);
        taciti_optim_update(ours.optim, ours.p, ours.g, ours.copy, 1e-3, 1);
        if (t <= 2)
            taciti_optim_update(theirs.optim, theirs.p, theirs.g, theirs.copy, 1e-3, 1);
        else {
            for (size_t b = 0; b < theirs.layout.bucket_count; b++)
                taciti_optim_to_momentum(theirs.optim, theirs.g, 1, theirs.layout.buckets[b].offset,
                                         theirs.layout.buckets[b].n);
            taciti_optim_update_by_momentum(theirs.optim, theirs.p, theirs.g, theirs.copy, 1e-3);
        }
    }
    assert_memory_equal(ours.p, theirs.p, ours.layout.n * sizeof *ours.p);
    assert_memory_equal(ours.copy, theirs.copy, ours.layout.n * sizeof *ours.copy);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(state_of(ours.optim, i), state_of(theirs.optim, i), ours.layout.n * sizeof(float));
    tear_down(&ours);
    tear_down(&theirs);
}

static void only_adam_has_moments_to_freeze(void **state) {
    (void)state;
    taciti_optim_options options = ADAMW;
    options.accum = 4;
    for (options.name = 0; options.name <= TACITI_OPTIM_ACCUM_ADAM; options.name++) {
        const bool has = options.name == TACITI_OPTIM_ADAMW || options.name == TACITI_OPTIM_ADAM;
        options.freeze = 0;
        assert_int_equal(taciti_optim_check(&options), TACIT_OK);
        options.freeze = 1;
        assert_int_equal(taciti_optim_check(&options), has ? TACIT_OK : TACIT_E_CONFIG);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_second_moments_stay_bit_for_bit),
        cmocka_unit_test(a_momentum_that_was_made_outside_gives_the_same_update),
        cmocka_unit_test(only_adam_has_moments_to_freeze),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

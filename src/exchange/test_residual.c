/* SPDX-License-Identifier: Apache-2.0
 *
 * The effect of residuals on a contribution, without ranks: momentum with and without error feedback, narrow residuals.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <string.h>

#include "exchange/residual.h"

enum { N = 4 };
static _Alignas(64) char g_memory[TACITI_RESIDUAL_ARRAYS][2][64];
static const taciti_residual_place PLACE = {.kind = TACITI_PAYLOAD_CONTRIBUTION, .n = N};
static const bool ALL[TACITI_RESIDUAL_ARRAYS] = {true, true, true};

static taciti_residual residual_of(taciti_feedback feedback) {
    taciti_residual r = {.encodes = true, .feedback = feedback};
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
        r.arrays[a].bytes = taciti_residual_bytes(&r, (taciti_residual_array)a, N);
        if (r.arrays[a].bytes == 0) continue;
        assert_true(r.arrays[a].bytes <= sizeof g_memory[a][0]);
        for (int v = 0; v < 2; v++) r.arrays[a].at[v] = memset(g_memory[a][v], 0, sizeof g_memory[a][v]);
    }
    return r;
}

/* One step with contribution x of which the codec sends the first elements. `expected` is what it gets to encode. */
static void step(taciti_residual *r, const float *x, size_t sent, const float *expected, bool taken) {
    float v[N];
    memcpy(v, x, sizeof v);
    taciti_residual_begin(r, false, v, N);
    taciti_codec_call call = {0};
    float *error = taciti_residual_enter(r, &PLACE, v);
    assert_memory_equal(v, expected, sizeof v);
    assert_true((error != NULL) == r->feedback.errors);
    for (size_t i = 0; error != NULL && i < N; i++) error[i] = i < sent ? 0 : v[i];
    assert_int_equal(taciti_residual_leave(r, &PLACE, v, taciti_codec_find("f32"), &call, (taciti_payload){0}),
                     TACIT_OK);
    if (taken)
        taciti_residual_commit(r, ALL);
    else
        taciti_residual_drop(r);
}

/* u = m u + x is encoded in every step, whatever is sent of it. */
static void momentum_alone_stays_where_it_is_sent(void **state) {
    (void)state;
    taciti_residual r = residual_of((taciti_feedback){.decay = 1, .momentum = .5});
    const float x[] = {8, -8, 4, 0}, first[] = {8, -8, 4, 0}, second[] = {12, -12, 6, 0}, third[] = {14, -14, 7, 0};
    step(&r, x, N, first, true);
    step(&r, x, N, second, false); /* dropped: the same again */
    step(&r, x, N, second, true);
    step(&r, x, N, third, true);
}

/* u = m u + x, v = u + r; where v is sent, u and r become 0. */
static void momentum_with_errors_stops_where_it_is_sent(void **state) {
    (void)state;
    taciti_residual r = residual_of((taciti_feedback){.errors = true, .decay = 1, .momentum = .5});
    const float x[] = {8, -8, 4, 0}, first[] = {8, -8, 4, 0}, second[] = {8, -20, 10, 0};
    step(&r, x, 1, first, true);
    step(&r, x, 1, second, true);
}

/* A dense step takes x + m u + r, after which u and r are 0, whether other buckets have written to their arrays or not;
 * unless it is dropped. */
static void a_flush_empties_everything(void **state) {
    (void)state;
    static const bool NONE[TACITI_RESIDUAL_ARRAYS] = {false};
    const float x[] = {8, -8, 4, 0}, flushed[] = {8, -20, 10, 0};
    for (int other = 0; other < 2; other++) {
        taciti_residual r = residual_of((taciti_feedback){.errors = true, .decay = 1, .momentum = .5});
        step(&r, x, 1, x, true);
        for (int taken = 0; taken < 2; taken++) {
            float v[N];
            memcpy(v, x, sizeof v);
            taciti_residual_begin(&r, true, v, N);
            assert_memory_equal(v, flushed, sizeof v);
            if (taken)
                taciti_residual_commit(&r, other ? ALL : NONE);
            else
                taciti_residual_drop(&r);
        }
        step(&r, x, 1, x, true);
        step(&r, x, 1, flushed, true);
    }
}

/* Residuals that move to other places are flushed into what is encoded. The element that is not sent then is a
 * residual, once, and no momentum: x + r follows, not x + m r + r. */
static void a_flush_before_an_encoding_counts_once(void **state) {
    (void)state;
    const float x[] = {8, -8, 4, 0}, flushed[] = {8, -20, 10, 0}, next[] = {8, -28, 14, 0};
    taciti_residual r = residual_of((taciti_feedback){.errors = true, .decay = 1, .momentum = .5});
    step(&r, x, 1, x, true);
    float v[N];
    memcpy(v, x, sizeof v);
    taciti_residual_begin(&r, true, v, N);
    taciti_codec_call call = {0};
    float *error = taciti_residual_enter(&r, &PLACE, v);
    assert_memory_equal(v, flushed, sizeof v);
    for (size_t i = 0; i < N; i++) error[i] = i < 1 ? 0 : v[i];
    assert_int_equal(taciti_residual_leave(&r, &PLACE, v, taciti_codec_find("f32"), &call, (taciti_payload){0}),
                     TACIT_OK);
    taciti_residual_commit(&r, ALL);
    step(&r, x, 1, next, true);
}

/* In a step in which only other buckets are encoded, versions change places and the content stays. */
static void what_is_not_written_stays(void **state) {
    (void)state;
    const float x[] = {8, -8, 4, 0}, v[] = {8, -20, 10, 0};
    taciti_residual r = residual_of((taciti_feedback){.errors = true, .decay = 1, .momentum = .5});
    taciti_residual_commit(&r, ALL);
    step(&r, x, 1, x, true);
    for (int i = 0; i < 3; i++) taciti_residual_commit(&r, ALL);
    step(&r, x, 1, v, true);
}

/* A contribution's residual decays, a result's does not; nor does what a dense step adds of it. */
static void only_contributions_decay(void **state) {
    (void)state;
    const taciti_residual_place result = {.kind = TACITI_PAYLOAD_RESULT, .n = N};
    const float x[] = {8, -8, 4, 0}, decayed[] = {12, -12, 6, 0}, whole[] = {16, -16, 8, 0};
    taciti_residual r = residual_of((taciti_feedback){.errors = true, .decay = .5});
    step(&r, x, 0, x, true);
    step(&r, x, 0, decayed, false);
    r = residual_of((taciti_feedback){.errors = true, .decay = .5});
    r.results = true;
    r.arrays[TACITI_RESIDUAL_RESULT] = r.arrays[TACITI_RESIDUAL_CONTRIBUTION];
    r.arrays[TACITI_RESIDUAL_CONTRIBUTION] = (taciti_versions){.bytes = 0};
    for (int flush = 0; flush < 2; flush++) {
        float v[N];
        memcpy(v, x, sizeof v);
        float *error = taciti_residual_enter(&r, &result, v);
        memcpy(error, flush == 0 ? v : x, sizeof v);
        taciti_residual_commit(&r, ALL);
        memcpy(v, x, sizeof v);
        if (flush)
            taciti_residual_begin(&r, true, v, N);
        else
            (void)taciti_residual_enter(&r, &result, v);
        assert_memory_equal(v, whole, sizeof v);
        taciti_residual_drop(&r);
    }
}

/* ---- narrow forms ------------------------------------------------------------------------------------------------ */
/* Nothing is sent, so v = x + residual is the next residual, rounded: 130.4 and 0.3 become bf16 130 and 0.30078125, or
 * as int8, whose scale is 2, 130 and 0. A dropped step and a flush that is dropped leave the stored bits as they are.
 */
static void narrow_residuals_are_rounded_when_they_are_left(void **state) {
    (void)state;
    static const float ROUNDED[][2] = {{130, 0.30078125F}, {130, 0}};
    const float x[N] = {130.4F, 0.3F, 0, 0}, zeros[N] = {0};
    for (int form = TACITI_RESIDUAL_BF16; form <= TACITI_RESIDUAL_INT8; form++) {
        float scratch[16], v[N] = {0};
        taciti_residual r =
            residual_of((taciti_feedback){.errors = true, .decay = 1, .stored = (taciti_residual_form)form});
        r.scratch = scratch;
        r.scratch_n = 16;
        const float *rounded = ROUNDED[form - TACITI_RESIDUAL_BF16], kept[N] = {rounded[0], rounded[1], 0, 0};
        step(&r, x, 0, x, true);
        step(&r, zeros, 2, kept, false);
        taciti_residual_begin(&r, true, v, N);
        assert_memory_equal(v, kept, sizeof v);
        taciti_residual_drop(&r);
        step(&r, zeros, 2, kept, true);
        step(&r, zeros, 0, zeros, true); /* all was sent */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(momentum_alone_stays_where_it_is_sent),
        cmocka_unit_test(momentum_with_errors_stops_where_it_is_sent),
        cmocka_unit_test(a_flush_before_an_encoding_counts_once),
        cmocka_unit_test(a_flush_empties_everything),
        cmocka_unit_test(what_is_not_written_stays),
        cmocka_unit_test(only_contributions_decay),
        cmocka_unit_test(narrow_residuals_are_rounded_when_they_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of this folder: a small state of two arrays whose values are a function of the step, so that a
 * checkpoint mixed from two steps shows.
 */
#ifndef TACITI_CKPT_TEST_STATE_H
#define TACITI_CKPT_TEST_STATE_H

#include "ckpt/ckpt.h"
#include "ckpt/test_folder.h"
#include "tensor/layout.h"

typedef struct test_state {
    taciti_layout layout;
    taciti_ckpt_array arrays[2];
    float *flat[2]; /* of the arrays */
    taciti_ckpt_state state;
    char meta[64];
} test_state;

/* Tensor shapes with 1 to 4 dimensions; `scale` multiplies the first one. */
static inline void state_create_scaled(test_state *out, size_t scale) {
    *out = (test_state){.arrays = {{.prefix = "model."}, {.prefix = "optim.m."}}};
    assert_int_equal(taciti_layout_create(4, &out->layout), TACIT_OK);
    const size_t big[] = {7 * scale, 5}, cube[] = {2, 3, 2}, four[] = {2, 1, 3, 1}, one[] = {1};
    assert_int_equal(taciti_layout_append(&out->layout, "wte.weight", 2, big, true), TACIT_OK);
    assert_int_equal(taciti_layout_append(&out->layout, "h.0.cube", 3, cube, true), TACIT_OK);
    assert_int_equal(taciti_layout_append(&out->layout, "h.0.four", 4, four, true), TACIT_OK);
    assert_int_equal(taciti_layout_append(&out->layout, "ln_f.bias", 1, one, false), TACIT_OK);
    assert_int_equal(taciti_layout_seal(&out->layout, 1 << 20), TACIT_OK);
    for (int a = 0; a < 2; a++) {
        out->flat[a] = taciti_calloc(out->layout.n, sizeof(float));
        assert_non_null(out->flat[a]);
        out->arrays[a].entry = (taciti_state_entry){.layout = &out->layout, .data = out->flat[a]};
    }
    out->state = (taciti_ckpt_state){.arrays = out->arrays, .array_count = 2, .meta_json = out->meta};
    (void)snprintf(out->meta, sizeof out->meta, "{}");
}

static inline void state_create(test_state *out) { state_create_scaled(out, 1); }

static inline void state_destroy(test_state *state) {
    for (int a = 0; a < 2; a++) taciti_free(state->flat[a]);
    taciti_layout_destroy(&state->layout);
}

static inline float state_value(int array, size_t i, int64_t step) {
    return (float)(step % 65536) + (float)array * 0.25f + (float)(i % 997) * 0x1p-12f;
}

static inline void state_fill(test_state *state, int64_t step) {
    for (int a = 0; a < 2; a++)
        for (size_t t = 0; t < state->layout.tensor_count; t++)
            for (size_t i = 0; i < state->layout.tensors[t].n; i++)
                state->flat[a][state->layout.tensors[t].offset + i] = state_value(a, i + t, step);
    (void)snprintf(state->meta, sizeof state->meta, "{\"step\":%lld}", (long long)step);
}

static inline void state_expect_array(const test_state *state, int a, int64_t step) {
    for (size_t t = 0; t < state->layout.tensor_count; t++)
        for (size_t i = 0; i < state->layout.tensors[t].n; i++)
            assert_true(state->flat[a][state->layout.tensors[t].offset + i] == state_value(a, i + t, step));
}

static inline void state_expect(const test_state *state, int64_t step) {
    for (int a = 0; a < 2; a++) state_expect_array(state, a, step);
}

static inline void state_expect_meta(const char *meta, int64_t step) {
    char expected[64];
    (void)snprintf(expected, sizeof expected, "{\"step\":%lld}", (long long)step);
    assert_string_equal(meta, expected);
}

#endif

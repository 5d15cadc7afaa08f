/* SPDX-License-Identifier: Apache-2.0
 *
 * An optimizer over a few tensors of awkward sizes, for the tests of this folder. Include after cmocka.h.
 */
#ifndef TACITI_OPTIM_TEST_FIXTURE_H
#define TACITI_OPTIM_TEST_FIXTURE_H

#include <math.h>

#include "base/memory.h"
#include "base/rng.h"
#include "optim/optim.h"

/* Matrices decay, vectors do not; the padding behind 37, 5 and 70001 floats belongs to nobody. */
enum { TENSORS = 5 };
static const size_t SHAPES[TENSORS][2] = {{37, 1}, {1000, 70}, {5, 1}, {70001, 1}, {64, 64}};

typedef struct fixture {
    taciti_layout layout;
    taciti_pool *pool;
    taciti_optim *optim;
    float *p, *g;
    taciti_bf16 *copy;
} fixture;

static inline void set_up(fixture *f, const taciti_optim_options *options, int threads) {
    assert_int_equal(taciti_layout_create(TENSORS, &f->layout), TACIT_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        const char name[2] = {(char)('a' + (int)i), 0};
        assert_int_equal(taciti_layout_append(&f->layout, name, 2, SHAPES[i], SHAPES[i][1] > 1), TACIT_OK);
    }
    assert_int_equal(taciti_layout_seal(&f->layout, 1 << 20), TACIT_OK);
    assert_int_equal(taciti_pool_create(threads, 0, &f->pool), TACIT_OK);
    assert_int_equal(taciti_optim_create(options, &f->layout, f->pool, &f->optim), TACIT_OK);
    f->p = taciti_calloc(f->layout.n, sizeof *f->p);
    f->g = taciti_calloc(f->layout.n, sizeof *f->g);
    f->copy = taciti_calloc(f->layout.n, sizeof *f->copy);
    assert_true(f->p != NULL && f->g != NULL && f->copy != NULL);
}

static inline void tear_down(fixture *f) {
    taciti_free(f->p);
    taciti_free(f->g);
    taciti_free(f->copy);
    taciti_optim_destroy(f->optim);
    taciti_pool_destroy(f->pool);
    taciti_layout_destroy(&f->layout);
}

/* State i of the optimizer, or NULL. */
static inline float *state_of(taciti_optim *optim, int i) {
    taciti_state listed = {.count = 0};
    taciti_optim_list_state(optim, TACITI_STATE_SHARED, &listed);
    return i < taciti_optim_state_count(optim) ? listed.entries[i].data : NULL;
}

#define FOR_TENSOR_ELEMENTS(f, t, i)                                                                                   \
    for (const taciti_tensor *t = (f)->layout.tensors; t < (f)->layout.tensors + TENSORS; t++)                         \
        for (size_t i = t->offset; i < t->offset + t->n; i++)

/* Values over many magnitudes, both signs, some zeros. */
static inline void randomise(const fixture *f, float *x, uint64_t key) {
    FOR_TENSOR_ELEMENTS(f, t, i) {
        const double u = taciti_rng_unit(key, 2 * i) * 2 - 1, magnitude = taciti_rng_unit(key, 2 * i + 1);
        x[i] = i % 17 == 0 ? 0.0f : (float)(u * pow(10, -8 * magnitude));
    }
}

#endif

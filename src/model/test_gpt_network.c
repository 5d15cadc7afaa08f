/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPT as a network: units of parameters that are there only while they are needed, and steps of several passes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants the four above first. */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "model/model.h"

enum { BATCH = 4, TIME = 8, MAX_UNITS = 8 };

struct fixture {
    taciti_model_options options;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    int32_t tokens[BATCH * TIME], targets[BATCH * TIME];
    taciti_model_batch batch;
};

static struct fixture *begin(bool tied, int dtype) {
    struct fixture *f = taciti_calloc(1, sizeof *f);
    assert_non_null(f);
    f->options = (taciti_model_options){.preset = {"nano"}, .tied = tied, .dropout = 0.1, .dtype = dtype};
    assert_int_equal(taciti_model_resolve(&f->options), TACIT_OK);
    assert_int_equal(taciti_model_layout(&f->options, 4096, &f->layout), TACIT_OK);
    assert_int_equal(taciti_pool_create(2, 0, &f->pool), TACIT_OK);
    assert_int_equal(
        taciti_model_create(&f->options, &f->layout, f->pool, BATCH, TIME, TACITI_MODEL_TRAINING, &f->model), TACIT_OK);
    taciti_model_init(f->model, 1);
    for (size_t i = 0; i < BATCH * TIME; i++) {
        f->tokens[i] = (int32_t)taciti_rng_below(5, i, (uint64_t)f->options.vocabulary);
        f->targets[i] = (int32_t)taciti_rng_below(6, i, (uint64_t)f->options.vocabulary);
    }
    f->batch = (taciti_model_batch){
        .tokens = f->tokens, .targets = f->targets, .batch = BATCH, .time = TIME, .scale = 0.25F, .dropout_key = 99};
    return f;
}

static void end(struct fixture *f) {
    taciti_model_destroy(f->model);
    taciti_pool_destroy(f->pool);
    taciti_layout_destroy(&f->layout);
    taciti_free(f);
}

static double train(struct fixture *f) {
    double loss = (double)NAN;
    assert_int_equal(taciti_model_train(f->model, &f->batch, NULL, &loss), TACIT_OK);
    return loss;
}

static float *copy_gradients(struct fixture *f) {
    float *copy = taciti_calloc(f->layout.n, sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, taciti_model_gradients(f->model), f->layout.n * sizeof *copy);
    return copy;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* Parameters that are there only while they are needed: NaN otherwise. */
struct units {
    struct fixture *f;
    float *kept;
    int needed[MAX_UNITS];
    bool written[MAX_UNITS];
    char calls[256];
};

static void note(struct units *u, char what, size_t unit) {
    const size_t at = strlen(u->calls);
    (void)snprintf(u->calls + at, sizeof u->calls - at, "%c%zu ", what, unit);
}

static void fill_unit(const struct units *u, size_t unit, bool there) {
    float *p = taciti_model_parameters(u->f->model);
    taciti_bf16 *copy = taciti_model_copy16(u->f->model);
    for (size_t t = 0; t < u->f->layout.tensor_count; t++) {
        const taciti_tensor *tensor = &u->f->layout.tensors[t];
        for (size_t i = tensor->offset; tensor->unit == unit && i < tensor->offset + tensor->n; i++) {
            p[i] = there ? u->kept[i] : NAN;
            if (copy != NULL) taciti_kernels_get()->bf16_encode(&copy[i], &p[i], 1);
        }
    }
}

static tacit_status need(void *context, size_t unit) {
    struct units *u = context;
    note(u, '+', unit);
    if (u->needed[unit]++ == 0) fill_unit(u, unit, true);
    return TACIT_OK;
}

static void release(void *context, size_t unit) {
    struct units *u = context;
    note(u, '-', unit);
    assert_true(u->needed[unit] > 0);
    if (--u->needed[unit] == 0) fill_unit(u, unit, false);
}

/* Before it is announced nobody has written, and what is there then does not matter. */
static tacit_status write_unit(void *context, size_t unit) {
    struct units *u = context;
    float *g = taciti_model_gradients(u->f->model);
    const taciti_range r = taciti_layout_unit(&u->f->layout, unit);
    for (size_t i = r.at; !u->written[unit] && i < r.at + r.n; i++) {
        assert_true(isinf(g[i]));
        g[i] = 0; /* padding */
    }
    for (size_t t = 0; !u->written[unit] && t < u->f->layout.tensor_count; t++) {
        const taciti_tensor *tensor = &u->f->layout.tensors[t];
        for (size_t i = tensor->offset; tensor->unit == unit && i < tensor->offset + tensor->n; i++) g[i] = NAN;
    }
    u->written[unit] = true;
    return TACIT_OK;
}

static void announce_units(struct units *u, struct fixture *f) {
    for (size_t unit = 0; unit < f->layout.unit_count; unit++) u->written[unit] = false;
    for (size_t i = 0; i < f->layout.n; i++) taciti_model_gradients(f->model)[i] = INFINITY;
    u->calls[0] = 0;
    f->batch.hooks = (taciti_network_hooks){.need = need, .release = release, .write = write_unit, .units = u};
}

/* A rank without samples makes the same calls. */
static void check_empty(struct units *u, struct fixture *f, const char *calls) {
    announce_units(u, f);
    f->batch.batch = 0;
    assert_true(fabs(train(f)) <= 0);
    assert_string_equal(u->calls, calls);
    for (size_t i = 0; i < f->layout.n; i++) assert_true(fabsf(taciti_model_gradients(f->model)[i]) <= 0);
}

/* An evaluation needs what a forward pass needs, and leaves nothing behind. */
static void check_loss(struct units *u, struct fixture *f, const char *calls) {
    const char *end = strstr(calls, "-0 +1");
    double loss = 0;
    for (size_t count = 0; count < 2; count++) {
        announce_units(u, f);
        assert_int_equal(taciti_model_loss(f->model, f->tokens, f->targets, count, TIME, &f->batch.hooks, &loss),
                         TACIT_OK);
        assert_true(end != NULL && isfinite(loss) && (loss > 0) == (count > 0));
        assert_int_equal(strlen(u->calls), end - calls + 3);
        assert_memory_equal(u->calls, calls, strlen(u->calls));
    }
}

static void check_units(bool tied, int dtype, const char *calls) {
    struct fixture *f = begin(tied, dtype);
    const size_t bytes = f->layout.n * sizeof(float);
    const double loss = train(f);
    struct units u = {.f = f, .kept = taciti_calloc(1, bytes)};
    float *want = copy_gradients(f);
    assert_true(u.kept != NULL && f->layout.unit_count <= MAX_UNITS);
    memcpy(u.kept, taciti_model_parameters(f->model), bytes);
    for (size_t unit = 0; unit < f->layout.unit_count; unit++) fill_unit(&u, unit, false);
    announce_units(&u, f);
    assert_true(fabs(train(f) - loss) <= 0);
    assert_memory_equal(taciti_model_gradients(f->model), want, bytes);
    assert_string_equal(u.calls, calls);
    check_empty(&u, f, calls);
    check_loss(&u, f, calls);
    for (size_t unit = 0; unit < f->layout.unit_count; unit++) assert_int_equal(u.needed[unit], 0);
    taciti_free(u.kept);
    taciti_free(want);
    end(f);
}

/* Units in layout order: 0 the head, 1 and 2 the blocks from above, 3 the embeddings. Each unit's parameters are needed
 * whenever they are read, and at most two units at a time, three where the head is tied. */
static void units_are_needed_around_every_use(void **state) {
    (void)state;
    for (int dtype = TACITI_DTYPE_F32; dtype <= TACITI_DTYPE_BF16; dtype++) {
        check_units(false, dtype, "+3 +2 -3 +1 -2 +0 -1 +0 -0 -0 +1 -1 +2 -2 ");
        check_units(true, dtype, "+3 +2 -3 +1 -2 +0 -1 +3 -3 -0 +1 -1 +2 -2 ");
    }
}

static tacit_status refuse_second(void *context, size_t unit) {
    struct units *u = context;
    note(u, '+', unit);
    return strlen(u->calls) > 3 ? TACIT_E_PEER : TACIT_OK;
}

static void a_unit_that_cannot_be_had_ends_the_pass(void **state) {
    (void)state;
    struct fixture *f = begin(true, TACITI_DTYPE_F32);
    struct units u = {.f = f};
    double loss = 0;
    f->batch.hooks = (taciti_network_hooks){.need = refuse_second, .units = &u};
    assert_int_equal(taciti_model_train(f->model, &f->batch, NULL, &loss), TACIT_E_PEER);
    assert_string_equal(u.calls, "+3 +2 ");
    end(f);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

enum { PASSES = 3 };
static const size_t COUNTS[PASSES] = {2, 1, 1};

struct source {
    struct fixture *f;
    size_t passes, ready, ready_in_pass;
    tacit_status status;
};

static tacit_status next_batch(void *context, int64_t step, size_t pass, taciti_model_batch *out, bool *last) {
    struct source *s = context;
    assert_int_equal(step, 7);
    assert_int_equal(pass, s->passes++);
    size_t first = 0;
    for (size_t p = 0; p < pass; p++) first += COUNTS[p];
    *out = s->f->batch;
    out->tokens += first * TIME;
    out->targets += first * TIME;
    out->batch = COUNTS[pass];
    out->first_sample = first;
    *last = pass + 1 == PASSES;
    return s->status;
}

static void count_ready(void *context, size_t tensor) {
    struct source *s = context;
    assert_int_equal(tensor, s->ready++);
    s->ready_in_pass = s->passes;
}

/* Micro-batches are passes that add up, and only the last one's gradients are final. */
static void a_step_adds_up_its_passes(void **state) {
    (void)state;
    struct fixture *f = begin(true, TACITI_DTYPE_F32);
    struct source s = {.f = f};
    taciti_model_network model = {.model = f->model, .batch = next_batch, .context = &s};
    const taciti_network network = taciti_model_as_network(&model);
    double want_loss = 0, loss = 0;
    for (s.passes = 0; s.passes < PASSES;) {
        bool last = false;
        const bool accumulate = s.passes > 0;
        assert_int_equal(next_batch(&s, 7, s.passes, &f->batch, &last), TACIT_OK);
        f->batch.accumulate = accumulate;
        want_loss += train(f);
        f->batch = (taciti_model_batch){.tokens = f->tokens, .targets = f->targets, .time = TIME, .scale = 0.25F};
        f->batch.dropout_key = 99;
    }
    float *want = copy_gradients(f);
    s.passes = 0;
    const taciti_network_hooks hooks = {.ready = count_ready, .context = &s};
    assert_int_equal(network.verbs->step(network.self, 7, &hooks, NULL, &loss), TACIT_OK);
    assert_int_equal(s.passes, PASSES);
    assert_int_equal(s.ready, f->layout.tensor_count);
    assert_int_equal(s.ready_in_pass, PASSES);
    assert_true(fabs(loss - want_loss) <= 0);
    assert_memory_equal(network.verbs->arrays(network.self).gradients, want, f->layout.n * sizeof *want);
    assert_ptr_equal(network.verbs->layout(network.self), &f->layout);
    taciti_free(want);
    end(f);
}

static void samples_that_cannot_be_read_end_the_step(void **state) {
    (void)state;
    struct fixture *f = begin(true, TACITI_DTYPE_F32);
    struct source s = {.f = f, .status = TACIT_E_DATA};
    taciti_model_network model = {.model = f->model, .batch = next_batch, .context = &s};
    const taciti_network network = taciti_model_as_network(&model);
    const taciti_network_hooks hooks = {.ready = count_ready, .context = &s};
    double loss = 0;
    assert_int_equal(network.verbs->step(network.self, 7, &hooks, NULL, &loss), TACIT_E_DATA);
    assert_int_equal(s.ready, 0);
    end(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_needed_around_every_use),
        cmocka_unit_test(a_unit_that_cannot_be_had_ends_the_pass),
        cmocka_unit_test(a_step_adds_up_its_passes),
        cmocka_unit_test(samples_that_cannot_be_read_end_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of the model: its gradients are those of an independent double-precision forward pass, and its results do
 * not depend on how work is cut into micro-batches, threads and chunks.
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
#include "model/test_reference.h"

enum { BATCH = 3, TIME = 12, MAX_TOKENS = 1024 };

struct fixture {
    taciti_model_options options;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    int32_t tokens[MAX_TOKENS], targets[MAX_TOKENS];
    taciti_model_batch batch;
};

static taciti_model_options nano(bool tied, double dropout, int dtype) {
    taciti_model_options o = {.preset = {"nano"}, .tied = tied, .dropout = dropout, .dtype = dtype};
    assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
    return o;
}

/* Weights large enough that softmax, GELU and norms leave their linear ranges; biases and norms away from 0 and 1. */
static void scatter(taciti_model *model, const taciti_layout *layout) {
    float *flat = taciti_model_parameters(model);
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const taciti_tensor *t = &layout->tensors[i];
        const bool norm = t->dims == 1 && strstr(t->name, "ln_") != NULL && strstr(t->name, "weight") != NULL;
        for (size_t j = 0; j < t->n; j++)
            flat[t->offset + j] = (float)((norm ? 1 : 0) + 0.5 * (taciti_rng_unit(77 + i, j) - 0.5));
    }
    taciti_model_refresh(model);
}

static struct fixture *begin(taciti_model_options options, size_t batch, size_t time, int threads) {
    struct fixture *f = taciti_calloc(1, sizeof *f);
    f->options = options;
    assert_int_equal(taciti_model_layout(&f->options, 4096, &f->layout), TACIT_OK);
    assert_int_equal(taciti_pool_create(threads, 0, &f->pool), TACIT_OK);
    assert_int_equal(
        taciti_model_create(&f->options, &f->layout, f->pool, batch, time, TACITI_MODEL_TRAINING, &f->model), TACIT_OK);
    scatter(f->model, &f->layout);
    for (size_t i = 0; i < batch * time; i++) {
        f->tokens[i] = (int32_t)taciti_rng_below(5, i, (uint64_t)options.vocabulary);
        f->targets[i] = i % 7 == 3 ? -1 : (int32_t)taciti_rng_below(6, i, (uint64_t)options.vocabulary);
    }
    f->batch = (taciti_model_batch){.tokens = f->tokens,
                                    .targets = f->targets,
                                    .batch = batch,
                                    .time = time,
                                    .scale = 0.25F,
                                    .dropout_key = 99,
                                    .first_sample = 40};
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
    memcpy(copy, taciti_model_gradients(f->model), f->layout.n * sizeof *copy);
    return copy;
}

/* |x - y| / |y| over one tensor */
static double relative_distance(const float *x, const float *y, size_t n) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        norm += (double)y[i] * (double)y[i];
    }
    return sqrt(difference) / (sqrt(norm) + 1e-30);
}

static void assert_close(const struct fixture *f, const float *x, const float *y, double bound) {
    for (size_t i = 0; i < f->layout.tensor_count; i++) {
        const taciti_tensor *t = &f->layout.tensors[i];
        const double distance = relative_distance(x + t->offset, y + t->offset, t->n);
        if (!(distance <= bound)) fail_msg("%s differs by %.3g, bound %.3g", t->name, distance, bound);
    }
}

/* ---- gradients -----------------------------------------------------------------------------------------------------
 */

/* Central difference of the reference loss along `direction` of one tensor. */
static double slope(struct fixture *f, double *flat, const taciti_tensor *t, const double *direction, double h) {
    double loss[2];
    for (int side = 0; side < 2; side++) {
        const double step = side == 0 ? h : -h;
        for (size_t i = 0; i < t->n; i++) flat[t->offset + i] += step * direction[i];
        loss[side] = reference_loss(&f->options, &f->layout, flat, &f->batch, true);
        for (size_t i = 0; i < t->n; i++) flat[t->offset + i] -= step * direction[i];
    }
    return (loss[0] - loss[1]) / (2 * h) * (double)f->batch.scale;
}

/* Along the gradient the slope must be its length, along random directions its projection. Together they leave no room
 * for a wrong element. Difference quotient: O(h^2) = 1e-10; f32 passes: some hundred roundings of 6e-8, so 1e-4 of the
 * gradient's length is ample and still 1000 times below any mistake in a formula. */
static void check_tensor(struct fixture *f, double *flat, const taciti_tensor *t, const float *gradient) {
    double *direction = taciti_calloc(t->n, sizeof *direction), length = 0, projection = 0;
    for (size_t i = 0; i < t->n; i++) length += (double)gradient[i] * (double)gradient[i];
    length = sqrt(length);
    if (!(length > 1e-6)) fail_msg("%s has no gradient", t->name);
    for (size_t i = 0; i < t->n; i++) direction[i] = (double)gradient[i] / length;
    const double along = slope(f, flat, t, direction, 1e-5);
    if (!(fabs(along - length) <= 1e-4 * length)) fail_msg("%s: slope %.9g, length %.9g", t->name, along, length);
    for (size_t i = 0; i < t->n; i++) {
        direction[i] = (taciti_rng_u64(3, i) & 1) != 0 ? 1 : -1;
        direction[i] /= sqrt((double)t->n);
        projection += direction[i] * (double)gradient[i];
    }
    const double across = slope(f, flat, t, direction, 1e-5);
    if (!(fabs(across - projection) <= 1e-4 * length))
        fail_msg("%s: random slope %.9g, projection %.9g", t->name, across, projection);
    taciti_free(direction);
}

static void check_gradients(taciti_model_options options, int threads) {
    struct fixture *f = begin(options, BATCH, TIME, threads);
    const double loss = train(f);
    double *flat = taciti_calloc(f->layout.n, sizeof *flat);
    for (size_t i = 0; i < f->layout.n; i++) flat[i] = (double)taciti_model_parameters(f->model)[i];
    const double want = reference_loss(&f->options, &f->layout, flat, &f->batch, true);
    assert_true(fabs(loss - want) <= 1e-5 * want);
    for (size_t i = 0; i < f->layout.tensor_count; i++)
        check_tensor(f, flat, &f->layout.tensors[i], taciti_model_gradients(f->model) + f->layout.tensors[i].offset);
    taciti_free(flat);
    end(f);
}

static void gradients_match_differences_tied(void **state) {
    (void)state;
    check_gradients(nano(true, 0, TACITI_DTYPE_F32), 2);
}

static void gradients_match_differences_untied(void **state) {
    (void)state;
    check_gradients(nano(false, 0, TACITI_DTYPE_F32), 1);
}

static void gradients_match_differences_with_dropout(void **state) {
    (void)state;
    check_gradients(nano(true, 0.2, TACITI_DTYPE_F32), 2);
}

/* Odd sizes: nothing is a multiple of a vector. */
static void gradients_match_differences_odd_sizes(void **state) {
    (void)state;
    taciti_model_options o = nano(false, 0.1, TACITI_DTYPE_F32);
    o.layers = 1;
    o.heads = 3;
    o.channels = 21;
    o.vocabulary = 19;
    check_gradients(o, 3);
}

/* To first order, each bf16 operand of a product adds a relative error of at most 2^-9, two operands 2^-8 per product;
 * a gradient has passed through at most 2 (4 L + 1) products. */
static void bf16_is_close_to_f32(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct fixture *wide = begin(nano(tied != 0, 0.1, TACITI_DTYPE_F32), BATCH, TIME, 2);
        struct fixture *narrow = begin(nano(tied != 0, 0.1, TACITI_DTYPE_BF16), BATCH, TIME, 2);
        const double want = train(wide), got = train(narrow), products = 2 * (4 * (double)wide->options.layers + 1);
        assert_true(fabs(got - want) <= products * 0x1p-8 * want);
        assert_true(got != want);
        assert_close(wide, taciti_model_gradients(narrow->model), taciti_model_gradients(wide->model),
                     products * 0x1p-8);
        end(wide);
        end(narrow);
    }
}

/* ---- independence --------------------------------------------------------------------------------------------------
 */

/* Sums of the same terms in another order: (terms) x 2^-24, and no more than 1e-5 for these sizes. */
#define REORDERED 1e-5

static void accumulation_adds(void **state) {
    (void)state;
    for (int dtype = TACITI_DTYPE_F32; dtype <= TACITI_DTYPE_BF16; dtype++) {
        struct fixture *f = begin(nano(true, 0.1, dtype), BATCH, TIME, 2);
        (void)train(f);
        float *once = copy_gradients(f);
        f->batch.accumulate = true;
        (void)train(f);
        for (size_t i = 0; i < f->layout.n; i++) once[i] *= 2;
        assert_close(f, taciti_model_gradients(f->model), once, REORDERED);
        f->batch.accumulate = false;
        (void)train(f);
        for (size_t i = 0; i < f->layout.n; i++) once[i] /= 2;
        assert_memory_equal(taciti_model_gradients(f->model), once, f->layout.n * sizeof *once);
        taciti_free(once);
        end(f);
    }
}

static void splitting_the_batch_changes_nothing(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct fixture *f = begin(nano(tied != 0, 0.3, TACITI_DTYPE_F32), BATCH, TIME, 2);
        const double whole = train(f);
        float *want = copy_gradients(f);
        const taciti_model_batch all = f->batch;
        double sum = 0;
        for (size_t i = 0; i < all.batch; i++) {
            f->batch = all;
            f->batch.batch = 1;
            f->batch.tokens += i * TIME;
            f->batch.targets += i * TIME;
            f->batch.first_sample += i;
            f->batch.accumulate = i > 0;
            sum += train(f);
        }
        assert_true(fabs(sum - whole) <= REORDERED * whole);
        assert_close(f, taciti_model_gradients(f->model), want, REORDERED);
        taciti_free(want);
        end(f);
    }
}

static void threads_change_only_the_order_of_sums(void **state) {
    (void)state;
    for (int dtype = TACITI_DTYPE_F32; dtype <= TACITI_DTYPE_BF16; dtype++) {
        struct fixture *one = begin(nano(true, 0.1, dtype), BATCH, TIME, 1);
        const double loss = train(one);
        for (int threads = 2; threads <= 5; threads++) {
            struct fixture *many = begin(nano(true, 0.1, dtype), BATCH, TIME, threads);
            assert_true(fabs(train(many) - loss) <= REORDERED * loss);
            /* In bf16 a different last bit of an f32 sum may round an operand the other way. */
            assert_close(one, taciti_model_gradients(many->model), taciti_model_gradients(one->model),
                         dtype == TACITI_DTYPE_F32 ? REORDERED : 0x1p-8);
            end(many);
        }
        end(one);
    }
}

static void same_call_same_bytes(void **state) {
    (void)state;
    for (int dtype = TACITI_DTYPE_F32; dtype <= TACITI_DTYPE_BF16; dtype++) {
        struct fixture *f = begin(nano(false, 0.1, dtype), BATCH, TIME, 3);
        const double loss = train(f);
        float *want = copy_gradients(f);
        memset(taciti_model_gradients(f->model), 0x7f, f->layout.n * sizeof *want); /* stale gradients must not show */
        for (size_t i = 0; i < f->layout.tensor_count; i++) {                       /* padding stays zero for ever */
            const size_t last = f->layout.tensors[i].offset + f->layout.tensors[i].n;
            const size_t next = i + 1 < f->layout.tensor_count ? f->layout.tensors[i + 1].offset : f->layout.n;
            memset(taciti_model_gradients(f->model) + last, 0, (next - last) * sizeof *want);
        }
        assert_true(train(f) == loss);
        assert_memory_equal(taciti_model_gradients(f->model), want, f->layout.n * sizeof *want);
        taciti_free(want);
        end(f);
    }
}

/* Rows beyond one chunk of logits (256), with a last chunk that is not full. */
static void chunks_of_the_head_add_up(void **state) {
    (void)state;
    taciti_model_options o = nano(true, 0, TACITI_DTYPE_F32);
    struct fixture *f = begin(o, 40, 16, 2);
    const double whole = train(f);
    float *want = copy_gradients(f);
    const taciti_model_batch all = f->batch;
    double sum = 0;
    for (size_t i = 0; i < 40; i += 8) {
        f->batch = all;
        f->batch.batch = 8;
        f->batch.tokens += i * 16;
        f->batch.targets += i * 16;
        f->batch.accumulate = i > 0;
        sum += train(f);
    }
    assert_true(fabs(sum - whole) <= REORDERED * whole);
    assert_close(f, taciti_model_gradients(f->model), want, REORDERED);
    taciti_free(want);
    end(f);
}

/* ---- readiness -----------------------------------------------------------------------------------------------------
 */

struct ready {
    struct fixture *f;
    size_t next;
    float *want; /* final gradients, or NULL */
};

static void mark(void *context, size_t tensor) {
    struct ready *r = context;
    assert_int_equal(tensor, r->next);
    r->next++;
    const taciti_tensor *t = &r->f->layout.tensors[tensor];
    if (r->want != NULL)
        assert_memory_equal(taciti_model_gradients(r->f->model) + t->offset, r->want + t->offset, t->n * sizeof(float));
}

static void every_tensor_is_reported_once_in_order_and_final(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct fixture *f = begin(nano(tied != 0, 0.1, TACITI_DTYPE_F32), BATCH, TIME, 2);
        (void)train(f);
        struct ready r = {f, 0, copy_gradients(f)};
        f->batch.hooks.ready = mark;
        f->batch.hooks.context = &r;
        (void)train(f);
        assert_int_equal(r.next, f->layout.tensor_count);
        taciti_free(r.want);
        end(f);
    }
}

static void an_empty_batch_zeroes_and_reports(void **state) {
    (void)state;
    struct fixture *f = begin(nano(true, 0, TACITI_DTYPE_F32), BATCH, TIME, 2);
    (void)train(f);
    float *before = copy_gradients(f);
    struct ready r = {f, 0, NULL};
    f->batch.batch = 0;
    f->batch.hooks.ready = mark;
    f->batch.hooks.context = &r;
    f->batch.accumulate = true;
    assert_true(train(f) == 0);
    assert_memory_equal(taciti_model_gradients(f->model), before, f->layout.n * sizeof *before);
    r.next = 0;
    f->batch.accumulate = false;
    assert_true(train(f) == 0);
    assert_int_equal(r.next, f->layout.tensor_count);
    for (size_t i = 0; i < f->layout.n; i++) assert_true(taciti_model_gradients(f->model)[i] == 0.0F);
    taciti_free(before);
    end(f);
}

/* ---- leaving a pass -----------------------------------------------------------------------------------------------
 */

struct leaving {
    struct ready ready; /* first: mark() sees it */
    int questions, last;
};

static bool leave_at_last(void *context) {
    struct leaving *l = context;
    return ++l->questions > l->last;
}

/* A pass can be left before every layer, forward and backward; what is reported until then is final, the last tensor
 * never is; and the next pass is as if nothing had been. */
static void a_pass_can_be_left(void **state) {
    (void)state;
    struct fixture *f = begin(nano(true, 0, TACITI_DTYPE_F32), BATCH, TIME, 2);
    (void)train(f);
    float *want = copy_gradients(f);
    double loss = 0;
    int left = 0;
    tacit_status status = TACIT_PENDING;
    for (; status == TACIT_PENDING; left++) {
        struct leaving l = {.ready = {f, 0, want}, .last = left};
        f->batch.hooks.ready = mark;
        f->batch.hooks.leave = leave_at_last;
        f->batch.hooks.context = &l;
        status = taciti_model_train(f->model, &f->batch, NULL, &loss);
        assert_int_equal(l.ready.next == f->layout.tensor_count, status == TACIT_OK);
    }
    assert_int_equal(status, TACIT_OK);
    assert_int_equal(left - 1, 2 * f->options.layers + 1);
    assert_memory_equal(taciti_model_gradients(f->model), want, f->layout.n * sizeof *want);
    taciti_free(want);
    end(f);
}

/* ---- evaluation and sampling ---------------------------------------------------------------------------------------
 */

static void loss_ignores_dropout_and_matches_the_reference(void **state) {
    (void)state;
    struct fixture *f = begin(nano(true, 0.4, TACITI_DTYPE_F32), BATCH, TIME, 2);
    double *flat = taciti_calloc(f->layout.n, sizeof *flat), loss;
    for (size_t i = 0; i < f->layout.n; i++) flat[i] = (double)taciti_model_parameters(f->model)[i];
    const double want = reference_loss(&f->options, &f->layout, flat, &f->batch, false);
    assert_int_equal(taciti_model_loss(f->model, f->tokens, f->targets, BATCH, TIME, NULL, &loss), TACIT_OK);
    assert_true(fabs(loss - want) <= 1e-5 * want);
    taciti_free(flat);
    end(f);
}

static taciti_model *same_for_evaluation(struct fixture *f, size_t time) {
    taciti_model *model;
    assert_int_equal(taciti_model_create(&f->options, &f->layout, f->pool, 1, time, TACITI_MODEL_INFERENCE, &model),
                     TACIT_OK);
    memcpy(taciti_model_parameters(model), taciti_model_parameters(f->model), f->layout.n * sizeof(float));
    taciti_model_refresh(model);
    return model;
}

/* The logits of a position give the loss of that position; a model without training memory agrees. */
static void next_logits_agree_with_the_loss(void **state) {
    (void)state;
    for (int dtype = TACITI_DTYPE_F32; dtype <= TACITI_DTYPE_BF16; dtype++) {
        struct fixture *f = begin(nano(false, 0.1, dtype), BATCH, TIME, 2);
        taciti_model *lean = same_for_evaluation(f, TIME);
        for (size_t time = 1; time <= TIME; time++) {
            float logits[61];
            int32_t targets[TIME];
            double loss, max = (double)-INFINITY, sum = 0;
            for (size_t i = 0; i < time; i++) targets[i] = i + 1 == time ? 17 : -1;
            assert_int_equal(taciti_model_loss(f->model, f->tokens, targets, 1, time, NULL, &loss), TACIT_OK);
            assert_int_equal(taciti_model_next_logits(lean, f->tokens, time, logits), TACIT_OK);
            for (size_t i = 0; i < 61; i++) max = fmax(max, (double)logits[i]);
            for (size_t i = 0; i < 61; i++) sum += exp((double)logits[i] - max);
            /* Another shape of product may sum in another order, and bf16 may then round another way. */
            assert_true(fabs(max + log(sum) - (double)logits[17] - loss) <=
                        (dtype == TACITI_DTYPE_F32 ? 1e-5 : 0x1p-6) * (1 + loss));
        }
        taciti_model_destroy(lean);
        end(f);
    }
}

/* ---- refusals ------------------------------------------------------------------------------------------------------
 */

static void wrong_input_is_refused(void **state) {
    (void)state;
    struct fixture *f = begin(nano(true, 0, TACITI_DTYPE_F32), BATCH, TIME, 1);
    double loss = -1;
    float logits[61];
    f->tokens[5] = 61;
    assert_int_equal(taciti_model_train(f->model, &f->batch, NULL, &loss), TACIT_E_DATA);
    assert_int_equal(taciti_model_next_logits(f->model, f->tokens, 6, logits), TACIT_E_DATA);
    f->tokens[5] = -1;
    assert_int_equal(taciti_model_loss(f->model, f->tokens, f->targets, 1, TIME, NULL, &loss), TACIT_E_DATA);
    f->tokens[5] = 0;
    f->targets[2] = 61;
    assert_int_equal(taciti_model_train(f->model, &f->batch, NULL, &loss), TACIT_E_DATA);
    f->targets[2] = -1;
    f->batch.batch = BATCH + 1;
    assert_int_equal(taciti_model_train(f->model, &f->batch, NULL, &loss), TACIT_E_USAGE);
    assert_int_equal(taciti_model_next_logits(f->model, f->tokens, 0, logits), TACIT_E_USAGE);
    assert_int_equal(taciti_model_next_logits(f->model, f->tokens, TIME + 1, logits), TACIT_E_USAGE);
    assert_true(loss == -1);
    taciti_model *model;
    assert_int_equal(taciti_model_create(&f->options, &f->layout, f->pool, 1, 17, TACITI_MODEL_TRAINING, &model),
                     TACIT_E_CONFIG);
    assert_int_equal(taciti_model_create(&f->options, &f->layout, f->pool, 1, 0, TACITI_MODEL_TRAINING, &model),
                     TACIT_E_CONFIG);
    taciti_model *lean = same_for_evaluation(f, TIME);
    f->batch.batch = 1;
    assert_int_equal(taciti_model_train(lean, &f->batch, NULL, &loss), TACIT_E_USAGE);
    taciti_model_destroy(lean);
    end(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences_tied),
        cmocka_unit_test(gradients_match_differences_untied),
        cmocka_unit_test(gradients_match_differences_with_dropout),
        cmocka_unit_test(gradients_match_differences_odd_sizes),
        cmocka_unit_test(bf16_is_close_to_f32),
        cmocka_unit_test(accumulation_adds),
        cmocka_unit_test(splitting_the_batch_changes_nothing),
        cmocka_unit_test(threads_change_only_the_order_of_sums),
        cmocka_unit_test(same_call_same_bytes),
        cmocka_unit_test(chunks_of_the_head_add_up),
        cmocka_unit_test(every_tensor_is_reported_once_in_order_and_final),
        cmocka_unit_test(an_empty_batch_zeroes_and_reports),
        cmocka_unit_test(a_pass_can_be_left),
        cmocka_unit_test(loss_ignores_dropout_and_matches_the_reference),
        cmocka_unit_test(next_logits_agree_with_the_loss),
        cmocka_unit_test(wrong_input_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

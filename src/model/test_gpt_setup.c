/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, layout, memory prediction and initial values of the model.
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
#include "model/model.h"

static taciti_model_options preset(const char *name) {
    taciti_model_options o = {.tied = true};
    (void)snprintf(o.preset.text, sizeof o.preset.text, "%s", name);
    return o;
}

static void presets_resolve_and_explicit_keys_override(void **state) {
    (void)state;
    for (size_t i = 0; taciti_model_presets()[i] != NULL; i++) {
        taciti_model_options o = preset(taciti_model_presets()[i]);
        assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
        assert_true(o.layers > 0 && o.heads > 0 && o.channels > 0 && o.vocabulary > 0 && o.context > 0);
        o = preset(taciti_model_presets()[i]);
        o.layers = 3;
        o.vocabulary = 7;
        assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
        assert_true(o.layers == 3 && o.vocabulary == 7);
    }
}

static void assert_refused(taciti_model_options o) {
    const taciti_model_options before = o;
    assert_int_equal(taciti_model_resolve(&o), TACIT_E_CONFIG);
    assert_memory_equal(&o, &before, sizeof o);
}

static void bad_options_are_refused(void **state) {
    (void)state;
    assert_refused(preset("gpt5"));
    assert_refused(preset(""));
    taciti_model_options o = preset("nano");
    o.heads = 3;
    assert_refused(o);
    o = preset("nano");
    o.layers = -1;
    assert_refused(o);
    o = preset("nano");
    o.dropout = 1;
    assert_refused(o);
    o.dropout = (double)NAN;
    assert_refused(o);
    o = preset("nano");
    o.dtype = 2;
    assert_refused(o);
    o = preset("nano");
    o.dropout = 0.1;
    o.context = 65536;
    assert_refused(o);
    o.dropout = 0;
    assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
}

/* Sizes published for GPT-2: 124,439,808 and 354,823,168 parameters. */
static void layouts_have_the_published_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t parameters;
    } known[] = {{"gpt2-124m", 124439808}, {"gpt2-350m", 354823168}};
    for (size_t i = 0; i < 2; i++) {
        taciti_model_options o = preset(known[i].name);
        taciti_layout layout;
        assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
        assert_int_equal(taciti_model_layout(&o, 4 << 20, &layout), TACIT_OK);
        assert_int_equal(layout.parameters, known[i].parameters);
        assert_int_equal(taciti_layout_find(&layout, "wte.weight"), layout.tensor_count - 1);
        taciti_layout_destroy(&layout);
        o.tied = false;
        assert_int_equal(taciti_model_layout(&o, 4 << 20, &layout), TACIT_OK);
        assert_int_equal(layout.parameters, known[i].parameters + (size_t)(o.vocabulary * o.channels));
        assert_int_equal(taciti_layout_find(&layout, "lm_head.weight"), 0);
        taciti_layout_destroy(&layout);
    }
}

static void flops_follow_the_formula(void **state) {
    (void)state;
    taciti_model_options o = preset("gpt2-124m");
    assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
    const double n = 124439808.0 - 1024 * 768;
    assert_true(fabs(taciti_model_flops_per_token(&o, 256) - (6 * n + 12.0 * 12 * 768 * 256)) < 1);
    o.tied = false; /* the head takes the place of the embedding in the count */
    assert_true(fabs(taciti_model_flops_per_token(&o, 256) - (6 * n + 12.0 * 12 * 768 * 256)) < 1);
}

/* Every byte that is predicted is one that the process comes to hold: the growth of the resident set over a training
 * step is the prediction within 5 % (plus what the matrix library and page rounding take, 24 MiB). */
static void prediction_meets_the_resident_set(void **state) {
    (void)state;
    taciti_model_options o = preset("byte-10m");
    o.dropout = 0.1;
    o.layers = 3;
    assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    enum { BATCH = 4, TIME = 192 };
    static int32_t tokens[BATCH * TIME];
    assert_int_equal(taciti_model_layout(&o, 1 << 20, &layout), TACIT_OK);
    assert_int_equal(taciti_pool_create(2, 0, &pool), TACIT_OK);
    const size_t before = taciti_peak_resident_bytes();
    assert_int_equal(taciti_model_create(&o, &layout, pool, BATCH, TIME, TACITI_MODEL_TRAINING, &model), TACIT_OK);
    taciti_model_init(model, 1);
    double loss;
    const taciti_model_batch batch = {.tokens = tokens, .targets = tokens, .batch = BATCH, .time = TIME, .scale = 1};
    assert_int_equal(taciti_model_train(model, &batch, NULL, &loss), TACIT_OK);
    const double grown = (double)(taciti_peak_resident_bytes() - before);
    const taciti_model_memory m = taciti_model_predict(&o, &layout, BATCH, TIME, 2, true);
    const double predicted = (double)(m.parameters + m.gradients + m.copy16 + m.activations + m.workspace);
    assert_true(m.parameters == layout.n * 4 && m.gradients == m.parameters && m.copy16 == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (!(grown >= 0.95 * predicted && grown <= 1.05 * predicted + (24 << 20)))
        fail_msg("grown by %.1f MB, predicted %.1f MB", grown / 1e6, predicted / 1e6);
#else
    assert_true(grown >= 0.95 * predicted);
#endif
    taciti_model_destroy(model);
    taciti_pool_destroy(pool);
    taciti_layout_destroy(&layout);
}

static void evaluation_needs_less_memory(void **state) {
    (void)state;
    taciti_model_options o = preset("byte-10m");
    taciti_layout layout;
    assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
    assert_int_equal(taciti_model_layout(&o, 1 << 20, &layout), TACIT_OK);
    const taciti_model_memory training = taciti_model_predict(&o, &layout, 4, 256, 2, true);
    const taciti_model_memory lean = taciti_model_predict(&o, &layout, 4, 256, 2, false);
    assert_true(lean.gradients == 0 && lean.activations * 4 < training.activations);
    o.dtype = TACITI_DTYPE_BF16;
    assert_true(taciti_model_predict(&o, &layout, 4, 256, 2, true).copy16 == layout.n * 2);
    taciti_layout_destroy(&layout);
}

struct moments {
    double mean, deviation, kurtosis, correlation;
};

static struct moments moments_of(const float *x, size_t n) {
    struct moments m = {0};
    double fourth = 0, next = 0;
    for (size_t i = 0; i < n; i++) m.mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - m.mean;
        m.deviation += d * d / (double)n;
        fourth += d * d * d * d / (double)n;
        if (i + 1 < n) next += d * ((double)x[i + 1] - m.mean) / (double)n;
    }
    m.kurtosis = fourth / (m.deviation * m.deviation);
    m.correlation = next / m.deviation;
    m.deviation = sqrt(m.deviation);
    return m;
}

/* Standard errors for n samples: mean sigma / sqrt(n), deviation sigma / sqrt(2 n), kurtosis sqrt(24 / n),
 * autocorrelation 1 / sqrt(n); five of each. */
static void initial_values_are_normal(void **state) {
    (void)state;
    taciti_model_options o = preset("byte-2m");
    assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    assert_int_equal(taciti_model_layout(&o, 1 << 20, &layout), TACIT_OK);
    assert_int_equal(taciti_pool_create(2, 0, &pool), TACIT_OK);
    assert_int_equal(taciti_model_create(&o, &layout, pool, 1, 8, TACITI_MODEL_INFERENCE, &model), TACIT_OK);
    taciti_model_init(model, 7);
    for (size_t i = 0; i < layout.tensor_count; i++) {
        const taciti_tensor *t = &layout.tensors[i];
        const float *x = taciti_model_parameters(model) + t->offset;
        if (t->dims == 1) {
            const float want = strstr(t->name, "ln_") != NULL && strstr(t->name, "weight") != NULL ? 1 : 0;
            for (size_t j = 0; j < t->n; j++) assert_true(x[j] == want);
            continue;
        }
        const struct moments m = moments_of(x, t->n);
        const double n = (double)t->n;
        const double sigma = strstr(t->name, "c_proj") != NULL ? 0.02 / sqrt(2 * 4) : 0.02;
        assert_true(fabs(m.mean) < 5 * sigma / sqrt(n));
        assert_true(fabs(m.deviation - sigma) < 5 * sigma / sqrt(2 * n));
        assert_true(fabs(m.kurtosis - 3) < 5 * sqrt(24 / n));
        assert_true(fabs(m.correlation) < 5 / sqrt(n));
    }
    taciti_model_destroy(model);
    taciti_pool_destroy(pool);
    taciti_layout_destroy(&layout);
}

static float *initial(const char *name, uint64_t seed, int threads, const char *tensor, size_t *n) {
    taciti_model_options o = preset(name);
    o.vocabulary = 61; /* an odd number of elements in some tensor */
    o.channels = 6;
    o.heads = 1;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    assert_int_equal(taciti_model_resolve(&o), TACIT_OK);
    assert_int_equal(taciti_model_layout(&o, 1 << 20, &layout), TACIT_OK);
    assert_int_equal(taciti_pool_create(threads, 0, &pool), TACIT_OK);
    assert_int_equal(taciti_model_create(&o, &layout, pool, 1, 8, TACITI_MODEL_INFERENCE, &model), TACIT_OK);
    taciti_model_init(model, seed);
    const taciti_tensor *t = &layout.tensors[taciti_layout_find(&layout, tensor)];
    float *copy = taciti_calloc(t->n, sizeof *copy);
    memcpy(copy, taciti_model_parameters(model) + t->offset, t->n * sizeof *copy);
    *n = t->n;
    taciti_model_destroy(model);
    taciti_pool_destroy(pool);
    taciti_layout_destroy(&layout);
    return copy;
}

/* Values depend on seed, name and element: not on threads, nor on which other tensors the model has. */
static void initial_values_are_a_function_of_seed_name_and_element(void **state) {
    (void)state;
    size_t n, m;
    float *one = initial("nano", 3, 1, "wte.weight", &n), *many = initial("byte-2m", 3, 5, "wte.weight", &m);
    float *other_seed = initial("nano", 4, 1, "wte.weight", &m), *other_name = initial("nano", 3, 1, "wpe.weight", &m);
    assert_memory_equal(one, many, n * sizeof *one);
    assert_memory_not_equal(one, other_seed, 16 * sizeof *one);
    assert_memory_not_equal(one, other_name, 16 * sizeof *one);
    taciti_free(one);
    taciti_free(many);
    taciti_free(other_seed);
    taciti_free(other_name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prediction_meets_the_resident_set), /* first: it reads the peak of the process */
        cmocka_unit_test(presets_resolve_and_explicit_keys_override),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(layouts_have_the_published_sizes),
        cmocka_unit_test(flops_follow_the_formula),
        cmocka_unit_test(evaluation_needs_less_memory),
        cmocka_unit_test(initial_values_are_normal),
        cmocka_unit_test(initial_values_are_a_function_of_seed_name_and_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The same small GPT-2 in PyTorch (tests/parity/make_gpt_dump.py): same parameters and tokens, so same loss and
 * gradients.
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
#include "ckpt/safetensors.h"
#include "model/model.h"

enum { BATCH = 4, TIME = 16, TOKENS = BATCH * TIME };

static void read_tensor(const taciti_safe_file *file, const char *prefix, const char *name, float *out, size_t n) {
    char full[128];
    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    const taciti_safe_entry *entry = taciti_safe_find(file, full);
    if (entry == NULL) fail_msg("%s is not in the dump", full);
    assert_int_equal(taciti_safe_read_f32(file, entry, out, n), TACIT_OK);
}

static void read_integers(const taciti_safe_file *file, const char *name, int32_t out[TOKENS]) {
    float values[TOKENS];
    read_tensor(file, "", name, values, TOKENS);
    for (size_t i = 0; i < TOKENS; i++) out[i] = (int32_t)values[i];
}

/* |gradient - want| / |want| over one tensor */
static double distance(const float *gradient, const float *want, size_t n) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)gradient[i] - (double)want[i]) * ((double)gradient[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / norm);
}

/* PyTorch worked in double. Ours: a value passes through about 20 sums of up to 128 terms on its way there and back;
 * rounding errors of 2^-24 each, adding up at random, stay below 20 sqrt(128) 2^-24 = 1.4e-5. In bf16 each of 18
 * products adds at most 2^-8 (test_gpt.c). */
static void check(int dtype, double loss_bound, double bound) {
    taciti_safe_file file;
    taciti_model_options options = {.preset = {"nano"}, .tied = true, .dtype = dtype};
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    int32_t tokens[TOKENS], targets[TOKENS];
    float want_loss;
    double loss;
    assert_int_equal(taciti_safe_open("tests/parity/gpt_nano.safetensors", &file), TACIT_OK);
    assert_int_equal(taciti_model_resolve(&options), TACIT_OK);
    assert_int_equal(taciti_model_layout(&options, 1 << 20, &layout), TACIT_OK);
    assert_int_equal(taciti_pool_create(2, 0, &pool), TACIT_OK);
    assert_int_equal(taciti_model_create(&options, &layout, pool, BATCH, TIME, TACITI_MODEL_TRAINING, &model),
                     TACIT_OK);
    for (size_t i = 0; i < layout.tensor_count; i++)
        read_tensor(&file, "param.", layout.tensors[i].name, taciti_model_parameters(model) + layout.tensors[i].offset,
                    layout.tensors[i].n);
    taciti_model_refresh(model);
    read_integers(&file, "tokens", tokens);
    read_integers(&file, "targets", targets);
    read_tensor(&file, "", "loss", &want_loss, 1);
    const taciti_model_batch batch = {.tokens = tokens, .targets = targets, .batch = BATCH, .time = TIME, .scale = 1};
    assert_int_equal(taciti_model_train(model, &batch, NULL, &loss), TACIT_OK);
    assert_true(fabs(loss - (double)want_loss) <= loss_bound * (double)want_loss);
    float *want = taciti_calloc(layout.n, sizeof *want);
    for (size_t i = 0; i < layout.tensor_count; i++) {
        const taciti_tensor *t = &layout.tensors[i];
        read_tensor(&file, "grad.", t->name, want, t->n);
        const double off = distance(taciti_model_gradients(model) + t->offset, want, t->n);
        if (!(off <= bound)) fail_msg("gradient of %s is off by %.3g, bound %.3g", t->name, off, bound);
    }
    taciti_free(want);
    taciti_model_destroy(model);
    taciti_pool_destroy(pool);
    taciti_layout_destroy(&layout);
    taciti_safe_close(&file);
}

static void f32_agrees_with_pytorch(void **state) {
    (void)state;
    check(TACITI_DTYPE_F32, 1e-6, 1.4e-5);
}

static void bf16_agrees_with_pytorch(void **state) {
    (void)state;
    check(TACITI_DTYPE_BF16, 18 * 0x1p-8, 18 * 0x1p-8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_agrees_with_pytorch),
        cmocka_unit_test(bf16_agrees_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of the C interface on one rank: structs with a size, gradients in the caller's memory, waits, learning rates,
 * jobs without parameters, and tensors of any name and shape.
 */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/test_scene.h"
#include "ckpt/test_folder.h"

static void test_structs(void **state) {
    const scene *s = *state;
    tacit_job *job = NULL;
    struct {
        tacit_job_options known;
        int64_t unknown;
    } newer = {.known = {.size = sizeof newer, .own_optimizer = true}};
    tacit_job_options older = {.size = offsetof(tacit_job_options, steps), .steps = -1, .own_optimizer = true};
    tacit_step step = {.size = 0, .number = -1}, half = {.size = offsetof(tacit_step, norm), .norm = -1};
    refused(tacit_job_open(s->comm, s->settings, s->layout, &(tacit_job_options){.steps = 1}, &job), TACIT_E_USAGE,
            "tacit_job_options: its size is 0; begin with tacit_job_options x = {.size = sizeof x}");
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &older, &job), TACIT_OK);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
    refused(tacit_job_finish(job, &step), TACIT_E_USAGE, "tacit_step: its size is 0");
    assert_int_equal(tacit_job_finish(job, &half),
                     TACIT_OK); /* an older program's own_optimizer lies behind its size */
    assert_int_equal(half.number, 1);
    assert_int_equal(half.size, offsetof(tacit_step, norm));
    assert_float_equal(half.norm, -1, 0);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &newer.known, &job), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    newer.unknown = 1;
    refused(tacit_job_open(s->comm, s->settings, s->layout, &newer.known, &job), TACIT_E_UNSUPPORTED, "a newer one");
}

/* A refused source does not count: the tensor is still to come. */
static void test_sources(void **state) {
    tacit_job *job = ((scene *)*state)->job;
    float source[3] = {0};
    refused(tacit_job_ready_from(NULL, 0, source, TACIT_F32, 1), TACIT_E_USAGE, "tacit_job is NULL");
    refused(tacit_job_ready_from(job, 0, source, TACIT_F32, 1), TACIT_E_USAGE, "before tacit_job_start()");
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    refused(tacit_job_ready_from(job, 2, source, TACIT_F32, 1), TACIT_E_USAGE, "tensor 2 of a layout of 2");
    refused(tacit_job_ready_from(job, TACIT_ALL_TENSORS, NULL, TACIT_F32, 1), TACIT_E_USAGE, "of a layout of 2");
    refused(tacit_job_ready_from(job, 0, source, (tacit_type)3, 1), TACIT_E_USAGE, "3 is no tacit_type");
    refused(tacit_job_ready_from(job, 0, source, (tacit_type)-1, 1), TACIT_E_USAGE, "-1 is no tacit_type");
    refused(tacit_job_ready_from(job, 0, source, TACIT_F32, (double)NAN), TACIT_E_USAGE, "is no finite f32");
    refused(tacit_job_ready_from(job, 0, source, TACIT_F32, 1e39), TACIT_E_USAGE, "is no finite f32");
    refused(tacit_job_ready_from(job, 0, (char *)source + 2, TACIT_F32, 1), TACIT_E_USAGE, "element, 4 bytes");
    refused(tacit_job_ready_from(job, 0, (char *)source + 1, TACIT_F16, 1), TACIT_E_USAGE, "element, 2 bytes");
    assert_int_equal(tacit_job_ready_from(job, 0, source, TACIT_F32, 1), TACIT_OK);
    refused(tacit_job_ready_from(job, 0, source, TACIT_F32, 1), TACIT_E_USAGE, "(out) was ready before");
    refused(tacit_job_ready(job, 0), TACIT_E_USAGE, "(out) was ready before");
    refused(tacit_job_finish(job, NULL), TACIT_E_USAGE, "the first is 1 (in)");
    assert_int_equal(tacit_job_ready_from(job, 1, NULL, TACIT_F32, 1), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, NULL), TACIT_OK);
}

static void test_arrays_apart(void **state) {
    const scene *s = *state;
    float *array = taciti_calloc(1024, sizeof *array);
    tacit_job *job = NULL;
    tacit_job_options options = {.size = sizeof options, .parameters = array, .gradients = array};
    refused(tacit_job_open(s->comm, s->settings, s->layout, &options, &job), TACIT_E_USAGE,
            "parameters and gradients overlap");
    options.gradients = array + 16;
    refused(tacit_job_open(s->comm, s->settings, s->layout, &options, &job), TACIT_E_USAGE,
            "parameters and gradients overlap");
    options.gradients = array + 64;
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &options, &job), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    taciti_free(array);
}

/* The first that is refused ends the list, and those before it are ready. */
static void test_lists_of_sources(void **state) {
    tacit_job *job = ((scene *)*state)->job;
    float source[3] = {0};
    const size_t tensors[] = {1, 0}, twice[] = {1, 1}, outside[] = {0, 2};
    void *const sources[] = {NULL, source}, *const odd[] = {NULL, (char *)source + 2};
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    refused(tacit_job_ready_list(NULL, 2, tensors, sources, TACIT_F32, 1), TACIT_E_USAGE, "tacit_job is NULL");
    refused(tacit_job_ready_list(job, 2, NULL, sources, TACIT_F32, 1), TACIT_E_USAGE, "tensors is NULL");
    refused(tacit_job_ready_list(job, 2, tensors, NULL, TACIT_F32, 1), TACIT_E_USAGE, "sources is NULL");
    refused(tacit_job_ready_list(job, 2, tensors, odd, TACIT_F32, 1), TACIT_E_USAGE,
            "tensor 0 (out): a source begins at a multiple of its element, 4 bytes");
    assert_int_equal(tacit_job_ready_from(job, 0, source, TACIT_F32, 1), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, NULL), TACIT_OK);
    refused(tacit_job_ready_list(job, 0, NULL, NULL, (tacit_type)3, 1), TACIT_E_USAGE, "3 is no tacit_type");
    assert_int_equal(tacit_job_ready_list(job, 0, NULL, NULL, TACIT_F32, 1), TACIT_OK);
    assert_int_equal(tacit_job_ready_list(job, 2, tensors, sources, TACIT_F32, 1), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, NULL), TACIT_OK);
    refused(tacit_job_ready_list(job, 2, twice, sources, TACIT_F32, 1), TACIT_E_USAGE, "(in) was ready before");
    assert_int_equal(tacit_job_ready_from(job, 0, source, TACIT_F32, 1), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, NULL), TACIT_OK);
    refused(tacit_job_ready_list(job, 2, outside, sources, TACIT_F32, 1), TACIT_E_USAGE, "tensor 2 of a layout of 2");
    refused(tacit_job_ready_from(job, 0, source, TACIT_F32, 1), TACIT_E_USAGE, "(out) was ready before");
}

/* On one rank the sum is the gradient; a source of 16 bits holds it rounded. Exact numbers stay what they are, and what
 * overflows f16 becomes infinite. */
static void test_sources_of_every_type(void **state) {
    static const uint16_t BF16[3] = {0x3f80, 0xc040, 0x4780}, F16[3] = {0x3c00, 0xc200, 0x7bff}; /* 1, -3, large */
    static const float FROM_BF16[3] = {2, -6, 131072}, FROM_F16[3] = {2, -6, 131008};
    static const uint16_t TWICE_BF16[3] = {0x4000, 0xc0c0, 0x4800}, TWICE_F16[3] = {0x4000, 0xc600, 0x7c00};
    float plain[20];
    uint16_t half[2][3];
    memcpy(half[0], BF16, sizeof BF16);
    memcpy(half[1], F16, sizeof F16);
    for (size_t i = 0; i < 20; i++) plain[i] = (float)i;
    tacit_job *job = open_own(*state, "optim.clip=0");
    const float *gradients = tacit_job_gradients(job);
    for (int type = 0; type < 2; type++) {
        assert_int_equal(tacit_job_ready_from(job, 1, plain, TACIT_F32, -0.5), TACIT_OK);
        assert_int_equal(tacit_job_ready_from(job, 0, half[type], type == 0 ? TACIT_BF16 : TACIT_F16, 2), TACIT_OK);
        assert_int_equal(tacit_job_settle(job, NULL), TACIT_OK);
        assert_memory_equal(gradients, type == 0 ? FROM_BF16 : FROM_F16, sizeof FROM_F16);
        assert_memory_equal(half[type], type == 0 ? TWICE_BF16 : TWICE_F16, sizeof TWICE_F16);
        assert_memory_equal(plain, gradients + 16, sizeof plain);
        assert_float_equal(plain[3], type == 0 ? -1.5 : 0.75,
                           0); /* the result of the first step is the second's source */
        assert_int_equal(tacit_job_stepped(job), TACIT_OK);
    }
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

static void test_waits(void **state) {
    const scene *s = *state;
    tacit_job *job = open_own(s, "optim.clip=0.5");
    float source[3] = {3, 0, 4};
    refused(tacit_job_wait(NULL, 0, 0), TACIT_E_USAGE, "tacit_job is NULL");
    refused(tacit_job_wait(job, 0, 0), TACIT_E_USAGE, "tensor 0 (out) is not ready in this step");
    assert_int_equal(tacit_job_ready_from(job, 0, source, TACIT_F32, 1), TACIT_OK);
    assert_int_equal(tacit_job_wait(job, 0, 0), TACIT_PENDING); /* its bucket waits for the other tensor */
    assert_int_equal(tacit_job_wait(job, 0, 0.01), TACIT_PENDING);
    refused(tacit_job_wait(job, 1, 0), TACIT_E_USAGE, "tensor 1 (in) is not ready in this step");
    refused(tacit_job_wait(job, 2, 0), TACIT_E_USAGE, "tensor 2 of a layout of 2");
    refused(tacit_job_wait(job, 0, -1), TACIT_E_USAGE, "-1 seconds");
    refused(tacit_job_wait(job, 0, (double)NAN), TACIT_E_USAGE, "nan seconds");
    assert_int_equal(tacit_job_ready_from(job, 1, NULL, TACIT_F32, 1), TACIT_OK);
    assert_int_equal(tacit_job_wait(job, 0, (double)INFINITY), TACIT_OK);
    assert_float_equal(source[2], 4, 0); /* not clipped yet */
    assert_int_equal(tacit_job_settle(job, NULL), TACIT_OK);
    assert_float_equal(source[2], 0.4, 1e-7);
    assert_int_equal(tacit_job_stepped(job), TACIT_OK);
    assert_int_equal(tacit_job_wait(job, 0, 0), TACIT_OK); /* of the last step */
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    job = open_own(s, "strategy=localsgd");
    assert_int_equal(tacit_job_ready_from(job, 0, source, TACIT_F32, 1), TACIT_OK);
    refused(tacit_job_wait(job, 0, 0), TACIT_E_CONFIG, "this job has strategy localsgd");
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    assert_int_equal(tacit_job_start(s->job), TACIT_OK);
    refused(tacit_job_wait(s->job, 0, 0), TACIT_E_CONFIG, "strategy dp and the optimizer of the library");
}

static void count_line(void *context, tacit_log_level level, const char *line) {
    (void)level;
    *(int *)context += strstr(line, "is not ready in this step") != NULL;
}

static void test_polls_leave_no_lines(void **state) {
    const scene *s = *state;
    tacit_job *job = open_own(s, "optim.clip=0");
    int lines = 0;
    assert_int_equal(tacit_log_to(count_line, &lines, TACIT_LOG_DEBUG), TACIT_OK);
    for (int i = 0; i < 9; i++) refused(tacit_job_wait(job, 1, 0), TACIT_E_USAGE, "(in) is not ready in this step");
    assert_int_equal(lines, 0);
    refused(tacit_job_wait(job, 1, 0.1), TACIT_E_USAGE, "(in) is not ready in this step");
    assert_int_equal(lines, 1);
    assert_int_equal(tacit_log_to(NULL, NULL, TACIT_LOG_DEBUG), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

static void test_the_learning_rate(void **state) {
    static const double RATES[] = {0.25, 0, (double)NAN};
    const scene *s = *state;
    tacit_step step = {.size = sizeof step};
    tacit_job *job = NULL;
    assert_int_equal(tacit_settings_set(s->settings, "optim.name=sgd"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "optim.momentum=0"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "optim.lr=0.5"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "optim.warmup=0"), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, NULL, &job), TACIT_OK);
    refused(tacit_job_set_lr(NULL, 1), TACIT_E_USAGE, "tacit_job is NULL");
    refused(tacit_job_set_lr(job, -1), TACIT_E_USAGE, "-1");
    refused(tacit_job_set_lr(job, (double)INFINITY), TACIT_E_USAGE, "inf");
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    float *x = tacit_job_parameters(job);
    for (size_t i = 0; i < 3; i++) {
        const float before = x[0];
        assert_int_equal(tacit_job_set_lr(job, RATES[i]), TACIT_OK);
        tacit_job_gradients(job)[0] = 0.5F;
        assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
        assert_int_equal(tacit_job_finish(job, &step), TACIT_OK);
        assert_true(step.lr >= (i == 2 ? 0.5 : RATES[i]) && step.lr <= (i == 2 ? 0.5 : RATES[i]));
        assert_float_equal(x[0], before - (float)step.lr * 0.5F, 0);
    }
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

static void test_gradients_only(void **state) {
    const scene *s = *state;
    _Alignas(64) float mine[48];
    tacit_job *job = NULL;
    tacit_job_options options = {.size = sizeof options, .gradients_only = true, .parameters = mine};
    refused(tacit_job_open(s->comm, s->settings, s->layout, &options, &job), TACIT_E_USAGE, "leave them NULL");
    options = (tacit_job_options){.size = sizeof options, .gradients_only = true, .gradients = mine};
    for (size_t i = 0; i < 3; i++) {
        static const char *const OTHERS[] = {"strategy=gossip", "strategy=localsgd", "strategy=shard"};
        assert_int_equal(tacit_settings_set(s->settings, OTHERS[i]), TACIT_OK);
        refused(tacit_job_open(s->comm, s->settings, s->layout, &options, &job), TACIT_E_CONFIG, OTHERS[i] + 9);
    }
    assert_int_equal(tacit_settings_set(s->settings, "strategy=dp"), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &options, &job), TACIT_OK);
    assert_null(tacit_job_parameters(job));
    assert_ptr_equal(tacit_job_gradients(job), mine);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    assert_int_equal(tacit_job_average(job, NULL), TACIT_OK);
    assert_int_equal(tacit_job_revert(job), TACIT_OK);
    assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
    refused(tacit_job_finish(job, NULL), TACIT_E_USAGE, "with own_optimizer");
    assert_int_equal(tacit_job_settle(job, NULL), TACIT_OK);
    assert_int_equal(tacit_job_stepped(job), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

/* Layers that freeze: a job with fewer tensors goes on from the parameters of the old one. */
static void test_another_set_of_tensors(void **state) {
    const scene *s = *state;
    tacit_layout *fewer = NULL;
    tacit_job *job = NULL;
    assert_int_equal(tacit_job_start(s->job), TACIT_OK);
    for (size_t i = 0; i < 36; i++) tacit_job_gradients(s->job)[i] = 1;
    assert_int_equal(tacit_job_ready(s->job, TACIT_ALL_TENSORS), TACIT_OK);
    assert_int_equal(tacit_job_finish(s->job, NULL), TACIT_OK);
    assert_int_equal(tacit_layout_create(&fewer), TACIT_OK);
    refused(tacit_job_open(s->comm, s->settings, fewer, NULL, &job), TACIT_E_USAGE, "0 tensors");
    assert_int_equal(tacit_layout_add(fewer, "in", 2, (const size_t[]){5, 4}, TACIT_DECAY), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, fewer, NULL, &job), TACIT_OK);
    const float *old = tacit_job_parameters(s->job) + 16;
    float *x = tacit_job_parameters(job);
    memcpy(x, old, 20 * sizeof *x);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    assert_int_equal(tacit_job_ready_from(job, 0, NULL, TACIT_F32, 1), TACIT_OK);
    assert_int_equal(tacit_job_set_lr(job, 0), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, NULL), TACIT_OK);
    assert_memory_equal(x, old, 20 * sizeof *x);
    assert_true(x[19] < 0);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    tacit_layout_destroy(fewer);
}

static tacit_job *open_odd(const scene *s, const tacit_layout *layout) {
    tacit_job *job = NULL;
    assert_int_equal(tacit_job_open(s->comm, s->settings, layout, NULL, &job), TACIT_OK);
    return job;
}

/* Names that JSON escapes, that look like others' keys, and one as long as can be; scalars and nine dimensions. */
static void test_checkpoints_of_any_name_and_shape(void **state) {
    static const size_t MANY[9] = {1, 1, 3, 1, 1, 1, 41, 1, 1};
    const scene *s = *state;
    const test_path folder = folder_create();
    char name[1024] = "";
    bool found = false;
    tacit_layout *layout = NULL;
    memset(name, '[', 1023);
    assert_int_equal(tacit_layout_create(&layout), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, name, 9, MANY, TACIT_DECAY), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, "\xe5\xb1\x82 \"w\"\\/model.x", 0, NULL, 0), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, "__metadata__", 0, NULL, 0), TACIT_OK);
    const size_t n = tacit_layout_floats(layout);
    tacit_job *job = open_odd(s, layout);
    for (size_t i = 0; i < n; i++) tacit_job_parameters(job)[i] = i < 123 || i % 16 == 0 ? (float)i : 0;
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    assert_int_equal(tacit_job_save(job, folder.text, 1, NULL, 0), TACIT_OK);
    tacit_job *again = open_odd(s, layout);
    assert_int_equal(tacit_job_load(again, folder.text, NULL, 0, &found), TACIT_OK);
    assert_true(found);
    assert_memory_equal(tacit_job_parameters(again), tacit_job_parameters(job), n * sizeof(float));
    assert_int_equal(tacit_job_close(again), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    tacit_layout_destroy(layout);
    folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_structs),
        TEST(test_sources),
        TEST(test_lists_of_sources),
        TEST(test_arrays_apart),
        TEST(test_sources_of_every_type),
        TEST(test_waits),
        TEST(test_polls_leave_no_lines),
        TEST(test_the_learning_rate),
        TEST(test_gradients_only),
        TEST(test_another_set_of_tensors),
        TEST(test_checkpoints_of_any_name_and_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "base/json_text.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "ckpt/run.h"
#include "ckpt/test_folder.h"
#include "ckpt/weights.h"

static test_path g_folder;
static taciti_model_options g_options;
static taciti_layout g_layout;
static float *g_flat, *g_again;

static int set_up(void **state) {
    (void)state;
    g_folder = folder_create();
    g_options = (taciti_model_options){.layers = 1, .heads = 2, .channels = 8, .vocabulary = 20, .context = 5};
    g_options.tied = true;
    assert_int_equal(taciti_model_layout(&g_options, 1 << 20, &g_layout), TACIT_OK);
    g_flat = taciti_calloc(g_layout.n, sizeof(float));
    g_again = taciti_calloc(g_layout.n, sizeof(float));
    assert_true(g_flat != NULL && g_again != NULL);
    for (size_t t = 0; t < g_layout.tensor_count; t++)
        for (size_t i = 0; i < g_layout.tensors[t].n; i++)
            g_flat[g_layout.tensors[t].offset + i] = (float)(t + i) * 0.5f;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    taciti_layout_destroy(&g_layout);
    taciti_free(g_flat);
    taciti_free(g_again);
    folder_remove(&g_folder);
    return 0;
}

/* A run folder with one checkpoint, whose description holds `config`. */
static test_path put_run(int64_t step, const char *config) {
    char meta[1024];
    const test_path run = path_in(g_folder.text, "run"), ckpt = path_in(run.text, "ckpt");
    const taciti_ckpt_array arrays[2] = {{.prefix = "model.", .entry = {.layout = &g_layout, .data = g_flat}},
                                         {.prefix = "optim.m.", .entry = {.layout = &g_layout, .data = g_flat}}};
    char *model = taciti_json_dump(taciti_run_describe_model(&g_options), JSON_COMPACT);
    assert_non_null(model);
    (void)snprintf(meta, sizeof meta, "{\"step\":%d,\"model\":%s,\"config\":%s}", (int)step, model, config);
    taciti_free(model);
    const taciti_ckpt_state state = {.arrays = arrays, .array_count = 2, .meta_json = meta};
    assert_int_equal(taciti_ckpt_save(NULL, ckpt.text, step, 2, &state), TACIT_OK);
    return run;
}

static void expect_opens(const char *path, int64_t step) {
    taciti_run_info info;
    assert_int_equal(taciti_run_open(path, &info), TACIT_OK);
    assert_int_equal(info.step, step);
    assert_int_equal(info.model.layers, 1);
    assert_int_equal(info.model.heads, 2);
    assert_int_equal(info.model.channels, 8);
    assert_int_equal(info.model.vocabulary, 20);
    assert_int_equal(info.model.context, 5);
    assert_true(info.model.tied);
    memset(g_again, 0, g_layout.n * sizeof(float));
    assert_int_equal(taciti_run_weights(&info, &g_layout, g_again), TACIT_OK);
    assert_memory_equal(g_again, g_flat, g_layout.n * sizeof(float));
    taciti_run_close(&info);
}

static void every_source_opens(void **state) {
    (void)state;
    const test_path run = put_run(7, "{}"), step = path_in(run.text, "ckpt/step_00000007");
    const test_path hf = path_in(g_folder.text, "hf"), llmc = path_in(g_folder.text, "model.bin");
    const taciti_weights_write_options as_hf = {.format = TACITI_WEIGHTS_HF}, as_llmc = {.format = TACITI_WEIGHTS_LLMC};
    assert_int_equal(taciti_weights_write(hf.text, &as_hf, &g_options, &g_layout, g_flat), TACIT_OK);
    assert_int_equal(taciti_weights_write(llmc.text, &as_llmc, &g_options, &g_layout, g_flat), TACIT_OK);
    expect_opens(run.text, 7);
    expect_opens(step.text, 7);
    expect_opens(hf.text, -1);
    expect_opens(llmc.text, -1);
    g_flat[0] = 3.0f;
    (void)put_run(9, "{}");
    expect_opens(run.text, 9);
}

/* Contents of an opened path. */
static void expect_in_meta(const char *path, const char *expected) {
    taciti_run_info info;
    assert_int_equal(taciti_run_open(path, &info), TACIT_OK);
    char *meta = taciti_json_dump(json_incref(info.meta), JSON_COMPACT);
    if (strstr(meta, expected) == NULL) fail_msg("%s is not in %s", expected, meta);
    taciti_free(meta);
    taciti_run_close(&info);
}

/* The text of data.vocab that an opened path carries, or "" */
static void expect_vocab(const char *path, const char *expected) {
    expect_in_meta(path, expected[0] == 0 ? "\"config\":{}" : expected);
}

static void a_tokenizer_beside_is_found(void **state) {
    (void)state;
    const test_path run = put_run(7, "{}"), step = path_in(run.text, "ckpt/step_00000007");
    expect_vocab(run.text, "");
    file_put(path_in(run.text, "vocab.json").text, "{}", 2);
    expect_vocab(run.text, ""); /* it takes both files */
    file_put(path_in(run.text, "merges.txt").text, "", 0);
    expect_vocab(run.text, "run/vocab.json");
    expect_vocab(step.text, "step_00000007/../../vocab.json");
    (void)put_run(8, "{\"data.vocab\":\"mine.json\"}");
    expect_vocab(run.text, "\"data.vocab\":\"mine.json\"");
}

/* Relative paths begin where the run was started, if a file is there; in a deep folder, too, as far as a value has
 * room. */
static void paths_are_found_where_the_run_was_started(void **state) {
    (void)state;
    char name[201] = "", config[1024], expected[1024];
    memset(name, 'd', sizeof name - 1);
    const test_path deep = path_in(g_folder.text, name);
    assert_int_equal(taciti_file_make_folder(deep.text), TACIT_OK);
    memset(name, 'f', 100);
    name[100] = 0;
    file_put(path_in(deep.text, name).text, "x", 1);
    file_put(path_in(deep.text, "v").text, "x", 1);
    (void)snprintf(config, sizeof config,
                   "{\"data.train\":[\"none\",\"%s\",\"/x\"],\"data.vocab\":\"v\"},\"directory\":\"%s\"", name,
                   deep.text);
    const test_path run = put_run(7, config);
    (void)snprintf(expected, sizeof expected, "[\"none\",\"%s/%s\",\"/x\"]", deep.text, name);
    expect_in_meta(run.text, expected);
    (void)snprintf(expected, sizeof expected, "\"data.vocab\":\"%s/v\"", deep.text);
    expect_in_meta(run.text, expected);
}

/* A network of the C interface has no model that this program could build. */
static void another_network_is_refused(void **state) {
    (void)state;
    char reason[TACITI_REASON_BYTES];
    taciti_run_info info;
    const taciti_ckpt_array array = {.prefix = "model.", .entry = {.layout = &g_layout, .data = g_flat}};
    const taciti_ckpt_state saved = {
        .arrays = &array, .array_count = 1, .meta_json = "{\"step\": 3, \"strategy\": \"dp\", \"config\": {}}"};
    assert_int_equal(taciti_ckpt_save(NULL, g_folder.text, 3, 2, &saved), TACIT_OK);
    taciti_log_capture(reason);
    assert_int_equal(taciti_run_open(path_in(g_folder.text, "step_00000003").text, &info), TACIT_E_DATA);
    taciti_log_capture(NULL);
    assert_non_null(strstr(reason, "is no checkpoint of a GPT"));
}

static void what_is_no_source_is_refused(void **state) {
    (void)state;
    taciti_run_info info = {.step = 55};
    const test_path empty = path_in(g_folder.text, "empty"), begun = path_in(g_folder.text, "begun/ckpt");
    assert_int_equal(taciti_file_make_folder(empty.text), TACIT_OK);
    assert_int_equal(taciti_file_make_folder(begun.text), TACIT_OK);
    assert_int_equal(taciti_run_open(path_in(g_folder.text, "none").text, &info), TACIT_E_DATA);
    assert_int_equal(taciti_run_open(empty.text, &info), TACIT_E_DATA);
    assert_int_equal(taciti_run_open(path_in(g_folder.text, "begun").text, &info), TACIT_E_DATA);
    assert_int_equal(info.step, 55);
}

static void descriptions_without_a_model_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "{}",
        "{\"model\":7}",
        "{\"model\":{\"layers\":1,\"heads\":2,\"channels\":8,\"vocabulary\":20,\"context\":5}}",
        "{\"model\":{\"layers\":1,\"heads\":3,\"channels\":8,\"vocabulary\":20,\"context\":5,\"tied\":true}}",
        "{\"model\":{\"layers\":-1,\"heads\":2,\"channels\":8,\"vocabulary\":20,\"context\":5,\"tied\":true}}",
        "{\"model\":{\"layers\":\"1\",\"heads\":2,\"channels\":8,\"vocabulary\":20,\"context\":5,\"tied\":true}}",
    };
    const test_path run = path_in(g_folder.text, "run"), ckpt = path_in(run.text, "ckpt");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        taciti_run_info info;
        const taciti_ckpt_state state_of = {.meta_json = bad[i]};
        assert_int_equal(taciti_ckpt_save(NULL, ckpt.text, (int64_t)i, 1, &state_of), TACIT_OK);
        if (taciti_run_open(run.text, &info) != TACIT_E_DATA) fail_msg("accepted: %s", bad[i]);
    }
}

static void every_size_must_match(void **state) {
    (void)state;
    const taciti_model_options found = g_options;
    assert_int_equal(taciti_run_match("x", &found, &found), TACIT_OK);
    for (int i = 0; i < 6; i++) {
        taciti_model_options other = g_options;
        int64_t *const sizes[] = {&other.layers, &other.heads, &other.channels, &other.vocabulary, &other.context};
        if (i < 5)
            (*sizes[i])++;
        else
            other.tied = false;
        assert_int_equal(taciti_run_match("x", &found, &other), TACIT_E_CONFIG);
    }
    taciti_model_options same = g_options;
    same.dropout = 0.5;
    same.dtype = TACITI_DTYPE_BF16;
    assert_int_equal(taciti_run_match("x", &found, &same), TACIT_OK);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_source_opens),
        TEST(a_tokenizer_beside_is_found),
        TEST(paths_are_found_where_the_run_was_started),
        TEST(another_network_is_refused),
        TEST(what_is_no_source_is_refused),
        TEST(every_size_must_match),
        TEST(descriptions_without_a_model_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

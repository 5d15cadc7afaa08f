/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "report/appender.h"
#include "report/report.h"

static char g_folder[64], g_path[128];

static int make_folder(void **state) {
    (void)state;
    strcpy(g_folder, "/tmp/tacit-metrics-XXXXXX");
    if (mkdtemp(g_folder) == NULL) return -1;
    snprintf(g_path, sizeof g_path, "%s/metrics.jsonl", g_folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    return taciti_file_remove(g_folder);
}

static void write_text(const char *text) {
    FILE *file = fopen(g_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_text(const char *expected) {
    char *text = NULL;
    size_t count = 0;
    assert_int_equal(taciti_file_read(g_path, 1 << 20, &text, &count), TACIT_OK);
    assert_string_equal(text, expected);
    taciti_free(text);
}

/* Parses line `index` of the file; every line must be one JSON object. */
static json_t *read_line(size_t index) {
    FILE *file = fopen(g_path, "r");
    assert_non_null(file);
    char line[4096];
    json_t *wanted = NULL;
    for (size_t i = 0; fgets(line, sizeof line, file) != NULL; i++) {
        assert_int_equal(line[strlen(line) - 1], '\n');
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_true(json_is_object(object));
        if (i == index)
            wanted = object;
        else
            json_decref(object);
    }
    fclose(file);
    return wanted;
}

static taciti_metrics *open_metrics(int64_t resume_step) {
    taciti_metrics *metrics = NULL;
    assert_int_equal(taciti_metrics_open(g_folder, resume_step, false, &metrics), TACIT_OK);
    return metrics;
}

static taciti_step_metrics sample(int64_t step) {
    return (taciti_step_metrics){.step = step,
                                 .loss = 2.5,
                                 .val_loss = (double)NAN,
                                 .lr = 6e-4,
                                 .grad_norm = 1.25,
                                 .consensus = 0.5,
                                 .distance = 0.25,
                                 .tokens_per_s = 12345.678,
                                 .step_s = 0.1,
                                 .compute_s = 0.07,
                                 .encode_s = 0.001,
                                 .wait_s = 0.02,
                                 .update_s = 0.005,
                                 .bytes_sent = UINT64_C(1) << 40,
                                 .bytes_received = 7,
                                 .mfu = (double)NAN,
                                 .slowest_rank = 3,
                                 .slowest_s = 0.09,
                                 .fastest_s = 0.06,
                                 .tokens = 1024,
                                 .compression = 1};
}

static void write_loss(taciti_metrics *metrics, double loss) {
    taciti_step_metrics m = sample(1);
    m.loss = loss;
    assert_int_equal(taciti_metrics_step(metrics, &m), TACIT_OK);
}

static double read_loss(FILE *file) {
    char line[4096];
    assert_non_null(fgets(line, sizeof line, file));
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_number(json_object_get(object, "loss")));
    const double loss = json_number_value(json_object_get(object, "loss"));
    json_decref(object);
    return loss;
}

static void numbers_survive(void **state) {
    (void)state;
    const double values[] = {0, -0.0, 1, -1.5, 1e-300, 5e-324, 1.7976931348623157e308, 6e-4, 123456789, 0.1};
    enum { COUNT = sizeof values / sizeof *values };
    taciti_metrics *metrics = open_metrics(0);
    for (size_t i = 0; i < COUNT; i++) write_loss(metrics, values[i]);
    taciti_metrics_close(metrics);
    FILE *file = fopen(g_path, "r");
    for (size_t i = 0; i < COUNT; i++) assert_true(fabs(read_loss(file) - values[i]) <= 5e-9 * fabs(values[i]));
    fclose(file);
}

/* Any float keeps its bits through nine digits. */
static void floats_round_trip(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    static float values[COUNT];
    taciti_metrics *metrics = open_metrics(0);
    uint32_t bits = 1;
    for (int i = 0; i < COUNT; i++) {
        do {
            bits = bits * 1664525u + 1013904223u;
            memcpy(&values[i], &bits, sizeof bits);
        } while (!isfinite(values[i]));
        write_loss(metrics, (double)values[i]);
    }
    taciti_metrics_close(metrics);
    FILE *file = fopen(g_path, "r");
    for (int i = 0; i < COUNT; i++) {
        const float back = (float)read_loss(file);
        assert_memory_equal(&back, &values[i], sizeof back);
    }
    fclose(file);
}

static void a_step_line_has_the_promised_keys(void **state) {
    (void)state;
    taciti_metrics *metrics = open_metrics(0);
    taciti_step_metrics m = sample(1);
    assert_int_equal(taciti_metrics_step(metrics, &m), TACIT_OK);
    m.step = 2;
    m.val_loss = 2.25;
    m.mfu = 0.75;
    assert_int_equal(taciti_metrics_step(metrics, &m), TACIT_OK);
    taciti_metrics_close(metrics);

    static const char *const KEYS[] = {"step",         "time",       "loss",      "lr",       "grad_norm",
                                       "tokens_per_s", "step_s",     "compute_s", "encode_s", "wait_s",
                                       "update_s",     "bytes_sent", "skipped",   "tokens",   "mfu",
                                       "slowest_rank", "slowest_s",  "fastest_s", "val_loss", "bytes_received",
                                       "compression",  "consensus",  "distance"};
    json_t *second = read_line(1);
    assert_int_equal(json_object_size(second), sizeof KEYS / sizeof KEYS[0]);
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
        assert_true(json_is_number(json_object_get(second, KEYS[i])));
    assert_int_equal(json_integer_value(json_object_get(second, "bytes_sent")), INT64_C(1) << 40);
    assert_true(json_number_value(json_object_get(second, "val_loss")) == 2.25);
    assert_true(json_number_value(json_object_get(second, "time")) > 1.6e9);
    json_decref(second);

    json_t *first = read_line(0);
    assert_null(json_object_get(first, "val_loss"));
    assert_null(json_object_get(first, "mfu"));
    assert_int_equal(json_integer_value(json_object_get(first, "step")), 1);
    json_decref(first);
}

static void what_is_not_finite_is_left_out(void **state) {
    (void)state;
    taciti_metrics *metrics = open_metrics(0);
    taciti_step_metrics m = sample(1);
    m.loss = (double)INFINITY;
    m.grad_norm = (double)NAN;
    m.slowest_rank = -1;
    m.compression = 0;
    m.consensus = m.distance = (double)NAN; /* replicas are equal */
    assert_int_equal(taciti_metrics_step(metrics, &m), TACIT_OK);
    taciti_metrics_close(metrics);
    json_t *line = read_line(0);
    assert_null(json_object_get(line, "loss"));
    assert_null(json_object_get(line, "grad_norm"));
    assert_null(json_object_get(line, "slowest_rank"));
    assert_null(json_object_get(line, "compression"));
    assert_null(json_object_get(line, "consensus"));
    assert_null(json_object_get(line, "distance"));
    json_decref(line);
}

static void events_take_members_and_refuse_what_is_not_json(void **state) {
    (void)state;
    taciti_metrics *metrics = open_metrics(0);
    assert_int_equal(taciti_metrics_event(metrics, 3, "saved \"it\"", "\"path\": \"a\\nb\",\n\"bytes\": [1, 2]"),
                     TACIT_OK);
    assert_int_equal(taciti_metrics_event(metrics, 4, "skipped", NULL), TACIT_OK);
    assert_int_equal(taciti_metrics_event(metrics, 4, "skipped", " \n"), TACIT_OK);
    assert_int_equal(taciti_metrics_event(metrics, 5, "bad", "\"path\": "), TACIT_E_INTERNAL);
    assert_int_equal(taciti_metrics_event(metrics, 5, "bad", "}\n{"), TACIT_E_INTERNAL);
    assert_int_equal(taciti_metrics_event(metrics, 5, "bad", "\"step\": 6"), TACIT_E_INTERNAL);
    taciti_metrics_close(metrics);
    json_t *saved = read_line(0);
    assert_string_equal(json_string_value(json_object_get(saved, "event")), "saved \"it\"");
    assert_string_equal(json_string_value(json_object_get(saved, "path")), "a\nb");
    assert_int_equal(json_array_size(json_object_get(saved, "bytes")), 2);
    json_decref(saved);
    json_t *last = read_line(2);
    assert_int_equal(json_integer_value(json_object_get(last, "step")), 4);
    json_decref(last);
    assert_null(read_line(3));
}

static void resume_cuts_back_to_its_step(void **state) {
    (void)state;
    write_text("{\"step\":1}\n{\"event\":\"saved\",\"step\":2}\n{\"step\":3}\n{\"note\":1}\n{\"step\":2}\n");
    taciti_metrics_close(open_metrics(2));
    assert_text("{\"step\":1}\n{\"event\":\"saved\",\"step\":2}\n{\"note\":1}\n{\"step\":2}\n");
}

static void a_new_run_starts_with_an_empty_file(void **state) {
    (void)state;
    write_text("{\"step\":1}\n{\"event\":\"start\",\"step\":0}\n");
    taciti_metrics_close(open_metrics(0));
    assert_text("");
}

static void torn_and_damaged_lines_go_away(void **state) {
    (void)state;
    write_text("{\"step\":1}\n\n{\"step\":\n[1]\n{\"step\":2}\n{\"step\":3,\"loss\":2");
    taciti_metrics_close(open_metrics(9));
    assert_text("{\"step\":1}\n{\"step\":2}\n");
    write_text("{\"step\":1}\n{\"step\":2}"); /* whole JSON, but its newline is missing */
    taciti_metrics_close(open_metrics(9));
    assert_text("{\"step\":1}\n");
}

static void what_needs_no_cut_is_not_rewritten(void **state) {
    (void)state;
    write_text("{\"step\":1}\n");
    FILE *before = fopen(g_path, "r");
    taciti_metrics *metrics = open_metrics(1);
    assert_int_equal(taciti_metrics_event(metrics, 1, "go", ""), TACIT_OK);
    taciti_metrics_close(metrics);
    char text[256] = {0};
    assert_true(fread(text, 1, sizeof text - 1, before) > strlen("{\"step\":1}\n")); /* still the same file */
    fclose(before);
}

static void a_line_that_does_not_fit_is_taken_back(void **state) {
    (void)state;
    taciti_metrics *metrics = open_metrics(0);
    assert_int_equal(taciti_metrics_event(metrics, 1, "first", ""), TACIT_OK);
    char *before = NULL;
    size_t count = 0;
    assert_int_equal(taciti_file_read(g_path, 4096, &before, &count), TACIT_OK);

    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit tight = {.rlim_cur = count + 10, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const tacit_status status = taciti_metrics_event(metrics, 2, "second", "");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, TACIT_E_IO);
    assert_text(before);
    taciti_free(before);
    assert_int_equal(taciti_metrics_event(metrics, 3, "third", ""), TACIT_OK); /* and it goes on */
    taciti_metrics_close(metrics);
    json_t *third = read_line(1);
    assert_int_equal(json_integer_value(json_object_get(third, "step")), 3);
    json_decref(third);
}

static void failures_name_the_path(void **state) {
    (void)state;
    taciti_metrics *metrics = NULL;
    assert_int_equal(taciti_metrics_open("/nonexistent/folder", 0, false, &metrics), TACIT_E_IO);
    assert_null(metrics);
    taciti_appender full;
    assert_int_equal(taciti_appender_open("/dev/full", &full), TACIT_OK);
    assert_int_equal(taciti_appender_put(&full, "x", 1), TACIT_E_IO);
    taciti_appender_close(&full);
    char path[8192];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(taciti_appender_open(path, &full), TACIT_E_IO);
}

int main(void) {
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(numbers_survive),
        WITH_FOLDER(floats_round_trip),
        WITH_FOLDER(a_step_line_has_the_promised_keys),
        WITH_FOLDER(what_is_not_finite_is_left_out),
        WITH_FOLDER(events_take_members_and_refuse_what_is_not_json),
        WITH_FOLDER(resume_cuts_back_to_its_step),
        WITH_FOLDER(a_new_run_starts_with_an_empty_file),
        WITH_FOLDER(torn_and_damaged_lines_go_away),
        WITH_FOLDER(what_needs_no_cut_is_not_rewritten),
        WITH_FOLDER(a_line_that_does_not_fit_is_taken_back),
        WITH_FOLDER(failures_name_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

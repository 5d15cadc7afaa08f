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
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "report/report.h"
#include "report/spans.h"

static char g_folder[64], g_path[128];

static int make_folder(void **state) {
    (void)state;
    strcpy(g_folder, "/tmp/tacit-spans-XXXXXX");
    if (mkdtemp(g_folder) == NULL) return -1;
    snprintf(g_path, sizeof g_path, "%s/trace.json", g_folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    return taciti_file_remove(g_folder);
}

static json_t *load_trace(void) {
    json_t *root = json_load_file(g_path, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_array(json_object_get(root, "traceEvents")));
    return root;
}

static json_t *find_event(const json_t *root, const char *phase, const char *name, int pid) {
    size_t i = 0;
    json_t *event = NULL;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), phase) == 0 &&
            strcmp(json_string_value(json_object_get(event, "name")), name) == 0 &&
            json_integer_value(json_object_get(event, "pid")) == pid)
            return event;
    }
    return NULL;
}

static double number(const json_t *event, const char *key) { return json_number_value(json_object_get(event, key)); }

/* Two ranks see the same instant on clocks that differ by an hour: in the file it is one instant. */
static void all_ranks_are_on_the_clock_of_rank_0(void **state) {
    (void)state;
    const int64_t hour_ns = INT64_C(3600000000000);
    const taciti_trace_process processes[] = {{.rank = 0, .pid = 17, .host = "alpha"},
                                              {.rank = 1, .pid = 18, .host = "be\"ta", .offset_ns = hour_ns}};
    const taciti_span here = {.begin_ns = 5001234, .end_ns = 7001234, .kind = TACITI_SPAN_BACKWARD, .detail = -1};
    const taciti_span there = {.begin_ns = 5001234 + hour_ns,
                               .end_ns = 5001235 + hour_ns,
                               .kind = TACITI_SPAN_TRANSFER,
                               .detail = 3,
                               .step = 9};
    taciti_trace_file file;
    assert_int_equal(taciti_trace_file_open(g_path, 5000000, &file), TACIT_OK);
    for (int i = 0; i < 2; i++) taciti_trace_file_process(&file, &processes[i]);
    taciti_trace_file_spans(&file, &processes[0], TACITI_TRACK_COMPUTE, &here, 1);
    taciti_trace_file_spans(&file, &processes[1], TACITI_TRACK_COMMUNICATION, &there, 1);
    assert_int_equal(access(g_path, F_OK), -1); /* the name appears with the whole file only */
    assert_int_equal(taciti_trace_file_close(&file, 5), TACIT_OK);

    json_t *root = load_trace();
    const json_t *backward = find_event(root, "X", "backward", 0);
    const json_t *transfer = find_event(root, "X", "transfer", 1);
    assert_non_null(backward);
    assert_non_null(transfer);
    assert_true(fabs(number(backward, "ts") - 1.234) < 1e-9);
    assert_true(fabs(number(backward, "dur") - 2000) < 1e-9);
    assert_true(fabs(number(transfer, "ts") - 1.234) < 1e-9);
    assert_true(fabs(number(transfer, "dur") - 0.001) < 1e-12);
    assert_int_equal(json_integer_value(json_object_get(backward, "tid")), 0);
    assert_int_equal(json_integer_value(json_object_get(transfer, "tid")), 1);
    const json_t *arguments = json_object_get(transfer, "args");
    assert_int_equal(json_integer_value(json_object_get(arguments, "step")), 9);
    assert_int_equal(json_integer_value(json_object_get(arguments, "index")), 3);
    assert_null(json_object_get(json_object_get(backward, "args"), "index"));
    const json_t *name = json_object_get(find_event(root, "M", "process_name", 1), "args");
    assert_string_equal(json_string_value(json_object_get(name, "name")), "rank 1 (be\"ta, pid 18)");
    assert_non_null(find_event(root, "M", "thread_name", 0));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "otherData"), "spans_not_kept")), 5);
    json_decref(root);
}

static void an_empty_trace_is_valid(void **state) {
    (void)state;
    taciti_trace_file file;
    assert_int_equal(taciti_trace_file_open(g_path, 0, &file), TACIT_OK);
    assert_int_equal(taciti_trace_file_close(&file, 0), TACIT_OK);
    json_t *root = load_trace();
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), 0);
    json_decref(root);
}

static void extreme_times_stay_numbers(void **state) {
    (void)state;
    const taciti_trace_process process = {.rank = 0, .host = ""};
    const taciti_span spans[] = {
        {.begin_ns = -1, .end_ns = 0, .kind = TACITI_SPAN_WAIT, .detail = -1},
        {.begin_ns = INT64_MIN / 2, .end_ns = INT64_MAX / 2, .kind = TACITI_SPAN_STEP, .detail = INT32_MAX},
        {.begin_ns = 0, .end_ns = 1, .kind = TACITI_SPAN_KINDS, .detail = 0}, /* no such kind */
        {.begin_ns = 0, .end_ns = 1, .kind = -1, .detail = 0},
    };
    taciti_trace_file file;
    assert_int_equal(taciti_trace_file_open(g_path, 0, &file), TACIT_OK);
    taciti_trace_file_spans(&file, &process, TACITI_TRACK_COMPUTE, spans, 4);
    assert_int_equal(taciti_trace_file_close(&file, 0), TACIT_OK);
    json_t *root = load_trace();
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), 2);
    assert_true(fabs(number(find_event(root, "X", "wait", 0), "ts") + 0.001) < 1e-12);
    json_decref(root);
}

static void nothing_remains_of_a_trace_that_failed(void **state) {
    (void)state;
    taciti_trace_file file;
    assert_int_equal(taciti_trace_file_open("/nonexistent/trace.json", 0, &file), TACIT_E_IO);
    assert_int_equal(taciti_trace_file_open(g_path, 0, &file), TACIT_OK);
    taciti_trace_file_discard(&file);
    taciti_trace_file_discard(&file); /* harmless */
    assert_int_equal(taciti_trace_file_open(g_path, 0, &file), TACIT_OK);
    strcpy(file.path, "/nonexistent/trace.json");
    assert_int_equal(taciti_trace_file_close(&file, 0), TACIT_E_IO);
    assert_int_equal(rmdir(g_folder), 0); /* empty */
}

static void the_summary_adds_up(void **state) {
    (void)state;
    taciti_trace compute = {0}, communication = {0};
    compute.run_ns[TACITI_SPAN_FORWARD] = 2500000000;
    compute.run_ns[TACITI_SPAN_BACKWARD] = 6000000000;
    compute.run_ns[TACITI_SPAN_WAIT] = 500000000;
    compute.run_ns[TACITI_SPAN_STEP] = 10000000000;
    communication.run_ns[TACITI_SPAN_ENCODE] = 1000000000;
    communication.run_ns[TACITI_SPAN_TRANSFER] = 3000000000;
    char text[1024];
    taciti_trace_summary(&compute, &communication, text, sizeof text);
    assert_non_null(strstr(text, "  forward                     2.500   25.0%\n"));
    assert_non_null(strstr(text, "  wait                        0.500    5.0%\n"));
    assert_non_null(strstr(text, "  transfer                    3.000   75.0%\n"));
    assert_null(strstr(text, "update"));
    char small[64];
    for (size_t size = 0; size <= sizeof small; size++) {
        memset(small, 'x', sizeof small);
        taciti_trace_summary(&compute, NULL, small, size);
        if (size > 0) assert_memory_equal(small, text, strlen(small));
        if (size > 0) assert_int_equal(strlen(small), size - 1);
        if (size < sizeof small) assert_int_equal(small[size], 'x');
    }
    taciti_trace nothing = {0};
    taciti_trace_summary(&nothing, NULL, text, sizeof text);
    assert_null(strstr(text, "nan"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_ranks_are_on_the_clock_of_rank_0, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(an_empty_trace_is_valid, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(extreme_times_stay_numbers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(nothing_remains_of_a_trace_that_failed, make_folder, remove_folder),
        cmocka_unit_test(the_summary_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

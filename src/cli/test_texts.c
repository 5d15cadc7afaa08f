/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that --help, `info` and the doctor are made of, against texts by hand.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/doctor.h"
#include "cli/option_text.h"

static void assert_wrapped(int indent, const char *text, const char *expected) {
    char *got = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&got, &bytes);
    assert_non_null(out);
    taciti_print_wrapped(out, indent, text);
    (void)fclose(out);
    assert_string_equal(got, expected);
    free(got);
}

#define TEN "123456789 "
#define SEVENTY TEN TEN TEN TEN TEN TEN TEN

static void lines_end_at_column_79(void **state) {
    (void)state;
    assert_wrapped(0, "a b", "a b\n");
    assert_wrapped(2, "a\n\nb", "  a\n\n  b\n");
    assert_wrapped(0, SEVENTY "123456789 x", SEVENTY "123456789\nx\n"); /* 79 fit */
    assert_wrapped(0, SEVENTY "1234567890 x",
                   "123456789 123456789 123456789 123456789 123456789 123456789 123456789\n"
                   "1234567890 x\n"); /* 80 do not */
}

static taciti_place find(const char *key) {
    taciti_place place;
    if (!taciti_config_find(taciti_cli_options(), key, &place)) fail_msg("%s: there is no such key", key);
    return place;
}

static const taciti_option *option(taciti_option_type type, double min, double max) {
    static taciti_option o;
    o = (taciti_option){.key = "k", .type = type, .fallback = "3", .help = "a; b", .unit = "s", .min = min, .max = max};
    return &o;
}

static void ranges_are_written_as_they_are(void **state) {
    char text[TACITI_OPTION_TEXT_BYTES];
    (void)state;
    taciti_option_range(option(TACITI_OPTION_INT, 1, 5), text, sizeof text);
    assert_string_equal(text, "1..5");
    taciti_option_range(option(TACITI_OPTION_REAL, 0.5, TACITI_UNBOUNDED), text, sizeof text);
    assert_string_equal(text, "at least 0.5");
    taciti_option_range(option(TACITI_OPTION_TEXT, 0, 0), text, sizeof text);
    assert_string_equal(text, "");
    const taciti_place lr = find("optim.lr"), wire = find("exchange.wire"), overlap = find("exchange.overlap");
    taciti_option_usage(&lr, text, sizeof text);
    assert_string_equal(text, "--optim.lr X");
    taciti_option_usage(&wire, text, sizeof text);
    assert_string_equal(text, "--exchange.wire f32|bf16|fp16");
    taciti_option_usage(&overlap, text, sizeof text);
    assert_string_equal(text, "--exchange.overlap");
    taciti_option_shorten(&overlap, text, sizeof text);
    assert_string_equal(text, "exchange while backward still runs (true)");
}

/* Every key of the program: its JSON is whole, and its texts fit, so that nothing of them is cut off. */
static void every_key_is_described_in_full(void **state) {
    char text[TACITI_OPTION_TEXT_BYTES], key[TACITI_KEY_BYTES];
    taciti_place place;
    size_t count = 0;
    (void)state;
    for (; taciti_config_at(taciti_cli_options(), count, &place); count++) {
        taciti_option_explain(&place, text, sizeof text);
        assert_true(strlen(text) < sizeof text - 1 && text[strlen(text) - 1] == ')' && strstr(text, "(null)") == NULL);
        assert_memory_equal(text, place.option->help, strlen(place.option->help));
        json_t *json = taciti_option_json(&place);
        assert_non_null(json);
        assert_string_equal(json_string_value(json_object_get(json, "key")), taciti_place_key(&place, key));
        assert_string_equal(json_string_value(json_object_get(json, "default")), place.option->fallback);
        assert_true(strcmp(json_string_value(json_object_get(json, "type")), "unknown") != 0);
        assert_true((json_object_get(json, "least") != NULL) == taciti_option_bounded(place.option));
        json_decref(json);
    }
    assert_true(count > 50);
}

static void ranks_of_this_host_are_what_the_launcher_says(void **state) {
    (void)state;
    assert_int_equal(taciti_local_ranks(), 1);
    assert_int_equal(setenv("SLURM_NTASKS_PER_NODE", "5", 1), 0);
    assert_int_equal(taciti_local_ranks(), 5);
    assert_int_equal(setenv("LOCAL_WORLD_SIZE", "6", 1), 0); /* torchrun in a batch job of Slurm */
    assert_int_equal(taciti_local_ranks(), 6);
    assert_int_equal(setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "7", 1), 0);
    assert_int_equal(taciti_local_ranks(), 7);
    assert_int_equal(setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "many", 1), 0);
    assert_int_equal(taciti_local_ranks(), 6);
    (void)unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    (void)unsetenv("LOCAL_WORLD_SIZE");
    (void)unsetenv("SLURM_NTASKS_PER_NODE");
}

/* A diagnosis that is full keeps its last finding, never more than there is room for. */
static void a_diagnosis_has_an_end(void **state) {
    static taciti_diagnosis d;
    (void)state;
    for (int i = 0; i < TACITI_FINDINGS_MAX + 3; i++)
        taciti_finding_advise(taciti_diagnosis_add(&d, "cpu", "finding %d", i), TACITI_SEVERITY_WARN, "mend %d", i);
    assert_int_equal(d.count, TACITI_FINDINGS_MAX);
    assert_string_equal(d.findings[0].text, "finding 0");
    assert_string_equal(d.findings[TACITI_FINDINGS_MAX - 1].text, "finding 98");
    assert_string_equal(d.findings[TACITI_FINDINGS_MAX - 1].advice, "mend 98");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_at_column_79),
        cmocka_unit_test(ranges_are_written_as_they_are),
        cmocka_unit_test(every_key_is_described_in_full),
        cmocka_unit_test(ranks_of_this_host_are_what_the_launcher_says),
        cmocka_unit_test(a_diagnosis_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

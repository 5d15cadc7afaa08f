/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "bench/block.h"
#include "cli/option_text.h"
#include "cli/step_settings.h"

static char g_line[512];
static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

static taciti_bench_settings g_settings;
static taciti_arguments g_arguments;

/* Words are separated by '|', as blanks belong to them. */
static tacit_status read(int ranks, const char *line) {
    enum { WORDS = 32 };
    static char copy[1024];
    char *argv[WORDS + 1] = {0};
    int argc = 0;
    taciti_bench_settings_destroy(&g_settings);
    (void)snprintf(copy, sizeof copy, "step|%s", line);
    for (char *word = strtok(copy, "|"); word != NULL && argc < WORDS; word = strtok(NULL, "|")) argv[argc++] = word;
    g_line[0] = '\0';
    return taciti_step_settings_read(taciti_verb_find(taciti_verbs(), "bench step"), argc, argv, ranks, &g_arguments,
                                     &g_settings);
}

static int set_up(void **state) {
    (void)state;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    taciti_bench_settings_destroy(&g_settings);
    return 0;
}

static void settings_are_the_base_with_changes(void **state) {
    (void)state;
    assert_int_equal(read(4, "--exchange.bucket|1MiB|--against|exchange.wire=bf16  exchange.overlap=no|--against|"
                             "exchange.bucket=2MiB"),
                     TACIT_OK);
    assert_int_equal(g_settings.count, 3);
    const taciti_bench_setting *s = g_settings.list;
    assert_string_equal(s[0].label, "base");
    assert_string_equal(s[1].label, "exchange.wire=bf16  exchange.overlap=no");
    assert_true(s[0].job.exchange.bucket_bytes == 1 << 20 && s[1].job.exchange.bucket_bytes == 1 << 20);
    assert_true(s[2].job.exchange.bucket_bytes == 2 << 20);
    assert_string_equal(s[0].job.exchange.wire.text, "f32");
    assert_string_equal(s[1].job.exchange.wire.text, "bf16");
    assert_string_equal(s[2].job.exchange.wire.text, "f32");
    assert_true(s[0].job.exchange.overlap && !s[1].job.exchange.overlap && s[2].job.exchange.overlap);
    assert_string_equal(s[1].job.strategy.text, "dp");
    assert_false(taciti_bench_setting_emulated(&s[0]));
}

static void nothing_given_is_the_base_of_defaults(void **state) {
    (void)state;
    assert_int_equal(read(1, ""), TACIT_OK);
    assert_int_equal(g_settings.count, 1);
    char text[256];
    taciti_bench_setting_text(&g_settings.list[0], text, sizeof text);
    assert_string_equal(text, "strategy dp");
    assert_int_equal(read(1, "--exchange.wire|bf16|--compute.emulate|vgg-16|--compute.cv|0.1"), TACIT_OK);
    taciti_bench_setting_text(&g_settings.list[0], text, sizeof text);
    assert_string_equal(text, "strategy dp, exchange.wire bf16, compute.emulate vgg-16, compute.cv 0.1");
    taciti_bench_setting_text(&g_settings.list[0], text, 16); /* cut, never beyond */
    assert_true(strlen(text) < 16);
}

static void the_environment_comes_before_flags(void **state) {
    (void)state;
    (void)setenv("TACIT_EXCHANGE_WIRE", "bf16", 1);
    assert_int_equal(read(1, "--against|exchange.wire=f32"), TACIT_OK);
    assert_string_equal(g_settings.list[0].job.exchange.wire.text, "bf16");
    assert_string_equal(g_settings.list[1].job.exchange.wire.text, "f32");
    assert_int_equal(read(1, "--exchange.wire|f32"), TACIT_OK);
    assert_string_equal(g_settings.list[0].job.exchange.wire.text, "f32");
    (void)unsetenv("TACIT_EXCHANGE_WIRE");
}

static void lists_are_separated_by_commas(void **state) {
    (void)state;
    assert_int_equal(read(4, "--compute.emulate|vgg-16|--against|compute.slow=0:2,3:1.5 compute.cv=0.1"), TACIT_OK);
    const taciti_compute_options *compute = &g_settings.list[1].job.compute;
    assert_int_equal(compute->slow.count, 2);
    assert_string_equal(compute->slow.items[0], "0:2");
    assert_string_equal(compute->slow.items[1], "3:1.5");
    assert_int_equal(g_settings.list[0].job.compute.slow.count, 0);
}

static void refused(int ranks, const char *line, tacit_status status, const char *message) {
    assert_int_equal(read(ranks, line), status);
    if (strstr(g_line, message) == NULL) fail_msg("\"%s\" does not contain \"%s\"", g_line, message);
}

static void mistakes_are_refused_before_anything_starts(void **state) {
    (void)state;
    refused(4, "--against|exchange.wier=bf16", TACIT_E_CONFIG, "did you mean \"exchange.wire\"?");
    refused(4, "--against|train.steps=1", TACIT_E_CONFIG, "unknown key");
    refused(4, "--against|exchange.wire=f64", TACIT_E_CONFIG, "f32|bf16");
    refused(4, "--against|bf16", TACIT_E_CONFIG, "\"bf16\" is not KEY=VALUE");
    refused(4, "--against|exchange.wire=bf16 overlap", TACIT_E_CONFIG, "\"overlap\" is not KEY=VALUE");
    refused(4, "--against|=bf16", TACIT_E_CONFIG, "is not KEY=VALUE");
    refused(4, "--against| ", TACIT_E_CONFIG, "nothing is changed");
    refused(4, "--against|comm.rate=5", TACIT_E_CONFIG, "is the same for all settings");
    refused(4, "--against|model.layers=2", TACIT_E_CONFIG, "is the same for all settings");
    refused(4, "--against|strategy=gosip", TACIT_E_CONFIG, "did you mean \"gossip\"?");
    refused(4, "--against|strategy=localsgd localsgd.outer_lr=0", TACIT_E_CONFIG, "localsgd.outer_lr is 0");
    refused(4, "--strategy|nobody", TACIT_E_CONFIG, "--strategy: \"nobody\" is not one of dp|gossip|localsgd");
    refused(4, "--compute.emulate|vgg-16|--compute.slow|4:2", TACIT_E_CONFIG, "4 ranks run: 0 to 3");
    refused(1, "--compute.emulate|vgg-16|--against|compute.slow=1:2", TACIT_E_CONFIG, "there is no such rank");
    refused(4, "--compute.cv|0.1", TACIT_E_CONFIG, "compute.cv needs compute.emulate");
    refused(4, "--against|compute.slow=1:2", TACIT_E_CONFIG, "compute.slow needs compute.emulate");
    refused(4, "--train.steps|3", TACIT_E_USAGE, "unknown option");
}

static void settings_have_an_end(void **state) {
    (void)state;
    char line[1024] = "";
    for (int i = 1; i < TACITI_SETTINGS_MAX; i++) (void)strcat(line, "--against=strategy=dp|");
    assert_int_equal(read(1, line), TACIT_OK);
    assert_int_equal(g_settings.count, TACITI_SETTINGS_MAX);
    (void)strcat(line, "--against=strategy=dp|");
    refused(1, line, TACIT_E_USAGE, "at most 16 settings");
}

/* The parser takes the keys that --help lists. */
static void listed_keys_are_accepted_keys(void **state) {
    (void)state;
    assert_int_equal(read(1, ""), TACIT_OK);
    const taciti_verb *verb = taciti_verb_find(taciti_verbs(), "bench step");
    const taciti_config *config = &g_settings.list[0].job.config;
    taciti_place place, found;
    char key[TACITI_KEY_BYTES];
    size_t accepted = 0;
    for (size_t i = 0; taciti_config_at(taciti_cli_options(), i, &place); i++) {
        const bool listed = taciti_option_accepted(verb->keys, &place);
        assert_int_equal(listed, taciti_config_find(config, taciti_place_key(&place, key), &found));
        accepted += listed;
    }
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) accepted--;
    assert_int_equal(accepted, 0);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(settings_are_the_base_with_changes),
        TEST(nothing_given_is_the_base_of_defaults),
        TEST(the_environment_comes_before_flags),
        TEST(lists_are_separated_by_commas),
        TEST(mistakes_are_refused_before_anything_starts),
        TEST(settings_have_an_end),
        TEST(listed_keys_are_accepted_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

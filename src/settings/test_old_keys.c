/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys that there were: from wherever one comes, it is refused with what to type instead, and that is legal. A
 * checkpoint that has one is told of where it mattered.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "settings/changes.h"
#include "train/train.h"

enum { LINE_BYTES = 600, NAME_BYTES = 128 };

static taciti_train_settings g_settings;
static char g_line[LINE_BYTES];
static size_t g_lines;

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
    g_lines++;
}

static int open_settings(void **state) {
    (void)state;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    return taciti_train_settings_init(&g_settings) == TACIT_OK ? 0 : -1;
}

static int close_settings(void **state) {
    (void)state;
    taciti_settings_destroy(&g_settings.job);
    return 0;
}

static const taciti_config *config(void) { return &g_settings.job.config; }

/* ---- where a key may come from ----------------------------------------------------------------------------------- */

static tacit_status from_file(const char *key) {
    char path[] = "/tmp/tacit-old-key-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    const size_t section = strcspn(key, ".");
    (void)fprintf(file, "%.*s:\n  %s: 1\n", (int)section, key, key[section + 1] == '\0' ? "any" : key + section + 1);
    assert_int_equal(fclose(file), 0);
    const tacit_status status = taciti_config_file(config(), path);
    (void)unlink(path);
    return status;
}

static tacit_status from_flag(const char *key, const char *prefix) {
    char flag[NAME_BYTES], value[] = "1";
    char *const words[] = {flag, value};
    int next = 0;
    (void)snprintf(flag, sizeof flag, "--%s%s", prefix, key);
    return taciti_config_flag(config(), 2, words, &next);
}

static tacit_status from_environment(const char *key) {
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "TACIT_%s", key);
    for (char *c = name; *c != '\0'; c++) *c = *c == '.' || *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    assert_int_equal(setenv(name, "1", 1), 0);
    const tacit_status status = taciti_config_environment(config());
    assert_int_equal(unsetenv(name), 0);
    return status;
}

static void refused(const taciti_old_key *old, tacit_status status) {
    char text[TACITI_OLD_KEY_BYTES];
    assert_int_equal(status, TACIT_E_CONFIG);
    if (strstr(g_line, taciti_old_key_text(old, text)) == NULL) fail_msg("\"%s\" does not say \"%s\"", g_line, text);
    g_line[0] = '\0';
}

static void every_old_key_is_refused_with_the_new_one(void **state) {
    (void)state;
    for (const taciti_old_key *old = taciti_old_keys(); old->key != NULL; old++) {
        refused(old, taciti_config_set(config(), old->key, "1", "tacit_settings_set")); /* as the C interface */
        refused(old, from_file(old->key));
        refused(old, from_flag(old->key, ""));
        refused(old, from_flag(old->key, "no-"));
        refused(old, from_environment(old->key));
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Every word with a dot is a key. */
static void only_keys(const char *text) {
    char word[NAME_BYTES];
    taciti_place place;
    for (; *text != '\0'; text += strspn(text, " ")) {
        const size_t length = strcspn(text, " ");
        (void)snprintf(word, sizeof word, "%.*s", (int)length, text);
        if (strchr(word, '.') != NULL && !taciti_config_find(config(), word, &place)) fail_msg("there is no %s", word);
        text += length;
    }
}

static void what_is_said_is_true(void **state) {
    (void)state;
    taciti_place place;
    for (const taciti_old_key *old = taciti_old_keys(); old->key != NULL; old++) {
        if (taciti_config_find(config(), old->key, &place)) fail_msg("%s is still there", old->key);
        assert_ptr_equal(taciti_old_key_find(old->key), old); /* none twice, none behind its section */
        if (old->now != NULL) only_keys(old->now);
        assert_true(strlen(old->text) > 0 && old->text[strlen(old->text) - 1] != '.');
    }
    assert_null(taciti_old_key_find("optim.lr"));
    assert_null(taciti_old_key_find("TACIT_OPTIM_LR"));
}

/* A codec that went is named by its section. */
static void a_codec_that_went_is_refused_with_another(void **state) {
    (void)state;
    assert_int_equal(taciti_config_set(config(), "compress.codec", "u8bit", "--compress.codec"), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "--compress.codec: \"u8bit\" has gone: take --compress.codec int8"));
    assert_int_equal(taciti_config_set(config(), "compress.codec", "u9bit", "--compress.codec"), TACIT_E_CONFIG);
    assert_null(strstr(g_line, "has gone"));
    assert_int_equal(taciti_config_set(config(), "compress.codec", "dgc", "--compress.codec"), TACIT_OK);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static size_t lines_of(const char *key, const char *value) {
    char text[LINE_BYTES];
    taciti_changes changes;
    (void)snprintf(text, sizeof text, "{\"config\": {\"%s\": %s}}", key, value);
    json_t *meta = json_loads(text, 0, NULL);
    assert_non_null(meta);
    assert_int_equal(taciti_changes_create(meta, taciti_config_values(config(), 1), &changes), TACIT_OK);
    g_lines = 0;
    taciti_changes_say(&changes);
    taciti_changes_destroy(&changes);
    json_decref(meta);
    return g_lines;
}

static void a_checkpoint_tells_of_keys_that_mattered(void **state) {
    (void)state;
    for (const taciti_old_key *old = taciti_old_keys(); old->key != NULL; old++) {
        char text[TACITI_OLD_KEY_BYTES];
        assert_int_equal(lines_of(old->key, "\"other\""), 1);
        assert_non_null(strstr(g_line, taciti_old_key_text(old, text)));
        assert_non_null(strstr(g_line, "it was \"other\" in the checkpoint"));
        if (old->was != NULL) assert_int_equal(lines_of(old->key, old->was), 0);
    }
    assert_int_equal(lines_of("foreign.key", "1"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_settings, close_settings)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_old_key_is_refused_with_the_new_one),
        TEST(what_is_said_is_true),
        TEST(a_codec_that_went_is_refused_with_another),
        TEST(a_checkpoint_tells_of_keys_that_mattered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

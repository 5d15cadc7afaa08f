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

static const char *variable_of(const char *key, char name[NAME_BYTES]) {
    (void)snprintf(name, NAME_BYTES, "TACIT_%s", key);
    for (char *c = name; *c != '\0'; c++) *c = *c == '.' || *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return name;
}

static tacit_status from_environment(const char *key) {
    char name[NAME_BYTES];
    assert_int_equal(setenv(variable_of(key, name), "1", 1), 0);
    const tacit_status status = taciti_config_environment(config());
    assert_int_equal(unsetenv(name), 0);
    return status;
}

/* An unknown flag is a mistake of usage. */
static void refused(const taciti_old_key *old, const char *name, tacit_status status) {
    char text[TACITI_OLD_KEY_BYTES];
    assert_int_equal(status, strncmp(g_line, "--", 2) == 0 ? TACIT_E_USAGE : TACIT_E_CONFIG);
    if (strstr(g_line, taciti_old_key_text(old, name, text)) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", g_line, text);
    g_line[0] = '\0';
}

static void every_old_key_is_refused_with_the_new_one(void **state) {
    (void)state;
    char name[NAME_BYTES];
    for (const taciti_old_key *old = taciti_old_keys(); old->key != NULL; old++) {
        refused(old, old->key,
                taciti_config_set(config(), old->key, "1", "tacit_settings_set")); /* as the C interface */
        const bool section = old->key[strlen(old->key) - 1] == '.';
        (void)snprintf(name, sizeof name, "%s%s", old->key, section ? "any" : "");
        refused(old, name, from_file(old->key));
        refused(old, old->key, from_flag(old->key, ""));
        refused(old, old->key, from_flag(old->key, "no-"));
        refused(old, variable_of(old->key, name), from_environment(old->key));
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

/* The message names the key that was typed and not its section. */
static void the_typed_key_is_named(void **state) {
    (void)state;
    assert_int_equal(from_flag("int8.block", ""), TACIT_E_USAGE);
    assert_string_equal(g_line, "--int8.block has gone: blocks always have 128 elements, which are not rotated");
    assert_int_equal(taciti_config_set(config(), "int8.block", "1", "C"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "C: int8.block has gone: blocks always have 128 elements, which are not rotated");
    assert_int_equal(from_environment("int8.block"), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "environment: TACIT_INT8_BLOCK has gone: blocks"));
    assert_int_equal(from_file("int8.block"), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, ": int8.block has gone: blocks"));
    assert_int_equal(from_flag("accordion.fall", ""), TACIT_E_USAGE);
    assert_string_equal(g_line, "--accordion.fall has gone: it is always 0.5");
    assert_int_equal(from_flag("sketch.ring", ""), TACIT_E_USAGE); /* not what its section has become */
    assert_string_equal(g_line, "--sketch.ring has gone: counters are always floats");
    assert_int_equal(from_flag("sketch.ratio", ""), TACIT_E_USAGE);
    assert_non_null(strstr(g_line, "--sketch.ratio has become tagc.ratio: with --compress.codec tagc"));
}

static void the_start_of_an_old_key_is_none(void **state) {
    (void)state;
    assert_null(taciti_old_key_find("compress."));
    assert_null(taciti_old_key_find("TACIT_COMPRESS_"));
    assert_int_equal(from_flag("compress.", ""), TACIT_E_USAGE);
    assert_null(strstr(g_line, "has become"));
}

/* A codec or controller that went is named by its section. */
static void a_codec_that_went_is_refused_with_another(void **state) {
    (void)state;
    assert_int_equal(taciti_config_set(config(), "compress.codec", "u8bit", "--compress.codec"), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "--compress.codec: \"u8bit\" has gone: take --compress.codec int8"));
    assert_int_equal(taciti_config_set(config(), "compress.codec", "sidco", "--compress.codec"), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "--compress.codec: \"sidco\" has gone: take --compress.codec topk"));
    assert_int_equal(taciti_config_set(config(), "sidco.fit", "gamma", "C"), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "C: sidco.fit has gone: take --compress.codec topk"));
    assert_int_equal(taciti_config_set(config(), "compress.codec", "u9bit", "--compress.codec"), TACIT_E_CONFIG);
    assert_null(strstr(g_line, "has gone"));
    assert_int_equal(taciti_config_set(config(), "compress.codec", "dgc", "--compress.codec"), TACIT_OK);
    assert_int_equal(taciti_config_set(config(), "adapt.policy", "knee", "--adapt.policy"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "--adapt.policy: \"knee\" has gone: take --compress.codec auto");
    assert_int_equal(taciti_config_set(config(), "gossip.codec", "sketch", "--gossip.codec"), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "--gossip.codec: \"sketch\" is"));
    assert_null(strstr(g_line, "has gone")); /* its options have, and the codec is one of others */
}

/* The names of codecs mean nothing to other options. */
static void other_options_list_what_they_take(void **state) {
    (void)state;
    static const char *const given[][3] = {
        {"exchange.wire", "int8", "f32|bf16|fp16"},
        {"shard.gather", "int8", "f32|bf16"},
        {"compress.residual", "int4", "int8"},
        {"gossip.topology", "shared", "ring"},
    };
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        assert_int_equal(taciti_config_set(config(), given[i][0], given[i][1], "C"), TACIT_E_CONFIG);
        assert_null(strstr(g_line, "has gone"));
        assert_non_null(strstr(g_line, given[i][2]));
    }
}

/* compress.feedback was a boolean, and shard.stage had a 0. */
static void a_value_that_was_legal_is_refused_with_the_new_one(void **state) {
    (void)state;
    assert_int_equal(taciti_config_set(config(), "compress.feedback", "true", "C"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "C: \"true\" is not a number; true is 1 here");
    assert_int_equal(taciti_config_set(config(), "compress.feedback", "no", "C"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "C: \"no\" is not a number; no is 0 here");
    assert_int_equal(from_flag("compress.feedback", "no-"), TACIT_E_USAGE);
    assert_string_equal(g_line,
                        "--no-compress.feedback: compress.feedback takes a number; write --compress.feedback 0");
    assert_int_equal(from_flag("compress.codec", "no-"), TACIT_E_USAGE);
    assert_non_null(strstr(g_line, "unknown option \"--no-compress.codec\""));
    assert_int_equal(taciti_config_set(config(), "shard.stage", "0", "C"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "C: 0 is outside 1..3; to hold nothing in parts, --strategy dp");
    assert_int_equal(taciti_config_set(config(), "shard.stage", "4", "C"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "C: 4 is outside 1..3");
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* Lines about a checkpoint with this key, which was made with this codec. */
static size_t lines_with(const char *codec, const char *key, const char *value) {
    char text[LINE_BYTES];
    taciti_changes changes;
    assert_int_equal(taciti_config_set(config(), "compress.codec", codec, "C"), TACIT_OK);
    (void)snprintf(text, sizeof text, "{\"config\": {\"compress.codec\": \"%s\", \"%s\": %s}}", codec, key, value);
    json_t *meta = json_loads(text, 0, NULL);
    assert_non_null(meta);
    assert_int_equal(taciti_changes_create(meta, taciti_config_values(config(), 1), &changes), TACIT_OK);
    g_lines = 0;
    taciti_changes_say(&changes);
    taciti_changes_destroy(&changes);
    json_decref(meta);
    return g_lines;
}

static size_t lines_of(const char *key, const char *value) { return lines_with("none", key, value); }

static void a_checkpoint_tells_of_keys_that_mattered(void **state) {
    (void)state;
    for (const taciti_old_key *old = taciti_old_keys(); old->key != NULL; old++) {
        char text[TACITI_OLD_KEY_BYTES];
        if (old->key[strlen(old->key) - 1] == '.') continue; /* no key of a checkpoint */
        assert_int_equal(lines_of(old->key, "\"other\""), 1);
        assert_non_null(strstr(g_line, taciti_old_key_text(old, old->key, text)));
        assert_non_null(strstr(g_line, "it was \"other\" in the checkpoint"));
        if (old->was != NULL) assert_int_equal(lines_of(old->key, old->was), 0);
    }
    assert_int_equal(lines_of("foreign.key", "1"), 0);
}

/* The keys of a codec that is still there, in checkpoints that it made. */
static void a_checkpoint_tells_of_its_codec_alone(void **state) {
    (void)state;
    static const char *const keys[][4] = {
        /* codec, key, value that changes nothing, value that does */
        {"int8", "int8.block", "128", "64"},
        {"int8", "int8.hadamard", "false", "true"},
        {"int4", "int4.block", "128", "64"},
        {"int4", "int4.hadamard", "true", "false"},
        {"signmag2", "signmag2.block", "4096", "512"},
        {"efsign", "efsign.block", "4096", "512"},
        {"randomk", "randomk.values", "\"f32\"", "\"int8\""},
        {"randomk", "randomk.block", "0", "64"},
        {"dgc", "dgc.indices", "\"auto\"", "\"bitmap\""},
        {"dgc", "dgc.sample", "0.01", "0.1"},
        {"redsync", "redsync.search", "\"bisection\"", "\"other\""},
        {"redsync", "redsync.max_ratio", "2", "3"},
        {"onebit", "onebit.block", "512", "64"},
        {"onebit", "onebit.values", "\"means\"", "\"rms\""},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        assert_int_equal(lines_with(keys[i][0], keys[i][1], keys[i][2]), 0);
        assert_int_equal(lines_with(keys[i][0], keys[i][1], keys[i][3]), 1);
        assert_int_equal(lines_of(keys[i][1], keys[i][3]), 0);
    }
    assert_int_equal(lines_with("int8", "int8.block", "64"), 1);
    assert_string_equal(g_line, "resume: int8.block has gone: blocks always have 128 elements, which are not rotated "
                                "(it was 64 in the checkpoint)");
}

/* compress.feedback was a boolean. */
static void true_has_become_one(void **state) {
    (void)state;
    assert_int_equal(lines_of("compress.feedback", "true"), 0);
    assert_int_equal(lines_of("compress.feedback", "false"), 1);
    assert_int_equal(taciti_config_set(config(), "compress.feedback", "0", "C"), TACIT_OK);
    assert_int_equal(lines_of("compress.feedback", "false"), 0);
    assert_int_equal(lines_of("compress.feedback", "true"), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_settings, close_settings)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_old_key_is_refused_with_the_new_one),
        TEST(what_is_said_is_true),
        TEST(the_typed_key_is_named),
        TEST(the_start_of_an_old_key_is_none),
        TEST(a_codec_that_went_is_refused_with_another),
        TEST(other_options_list_what_they_take),
        TEST(a_value_that_was_legal_is_refused_with_the_new_one),
        TEST(a_checkpoint_tells_of_keys_that_mattered),
        TEST(a_checkpoint_tells_of_its_codec_alone),
        TEST(true_has_become_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

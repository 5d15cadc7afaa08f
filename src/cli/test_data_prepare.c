/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "data/test_scratch.h"

#include <unistd.h>

#include "cli/verbs.h"

#define WORDS "tests/parity/bpe/words/"

enum { WORDS_MAX = 16 };

static char g_text[512], g_folder[512];

/* Runs the verb with the words up to the first NULL; standard output goes away meanwhile. */
static int prepare(const char *const *words) {
    char *argv[WORDS_MAX + 2], first[] = "prepare", storage[WORDS_MAX][512];
    int argc = 1;
    argv[0] = first;
    for (size_t i = 0; words[i] != NULL; i++) {
        (void)snprintf(storage[i], sizeof storage[i], "%s", words[i]);
        argv[argc++] = storage[i];
    }
    argv[argc] = NULL;
    (void)fflush(stdout);
    const int kept = dup(STDOUT_FILENO);
    assert_non_null(freopen("/dev/null", "w", stdout));
    const int code =
        tacit_status_exit_code(taciti_verb_data_prepare(taciti_verb_find(taciti_verbs(), "data prepare"), argc, argv));
    (void)fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    assert_int_equal(close(kept), 0);
    return code;
}

static bool is_there(const char *name) {
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/%s", g_folder, name);
    return access(path, R_OK) == 0;
}

static void begin(const char *folder) {
    (void)snprintf(g_text, sizeof g_text, "%s", scratch_file("text.txt", "The fox jumps over the lazy dog.", 32));
    (void)snprintf(g_folder, sizeof g_folder, "%s/%s", g_scratch, folder);
}

static void shards_appear(void **state) {
    (void)state;
    begin("bytes");
    const char *plain[] = {g_text, "-o", g_folder, "--shard-tokens", "20", "--split=0.25", NULL};
    assert_int_equal(prepare(plain), 0);
    assert_true(is_there("text_train_000000.bin") && is_there("text_train_000001.bin"));
    assert_false(is_there("text_train_000002.bin"));
    assert_true(is_there("text_val_000000.bin"));
    assert_int_equal(prepare(plain), 3);
    assert_error_has("text_train_");
    const char *bpe[] = {g_text,         "--output",         g_folder, "--name", "words",
                         "--data.vocab", WORDS "vocab.json", "--json", NULL};
    assert_int_equal(prepare(bpe), 0);
    assert_true(is_there("words_train_000000.bin") && is_there("words_val_000000.bin"));
}

static void refused(const char *const *words, int code, const char *part) {
    g_error[0] = '\0';
    assert_int_equal(prepare(words), code);
    assert_error_has(part);
    assert_int_equal(access(g_folder, F_OK), -1);
}

static void bad_words_are_refused(void **state) {
    (void)state;
    begin("bad");
    refused((const char *[]){NULL}, 2, "name the text files");
    refused((const char *[]){g_text, NULL}, 2, "name the folder");
    refused((const char *[]){g_text, "-o", g_folder, "--split", "1", NULL}, 3, "--split: \"1\"");
    refused((const char *[]){g_text, "-o", g_folder, "--split", "x", NULL}, 3, "--split: \"x\"");
    refused((const char *[]){g_text, "-o", g_folder, "--shard-tokens", "0", NULL}, 3, "--shard-tokens 0:");
    refused((const char *[]){g_text, "-o", g_folder, "--shard-tokens", "2147483648", NULL}, 3, "2147483648");
    refused((const char *[]){g_text, "-o", g_folder, "--tokenizer", "gpt3", NULL}, 3, "\"gpt3\"");
    refused((const char *[]){g_text, "-o", g_folder, "--tokenizer", "gpt2", NULL}, 2, "--data.vocab");
    refused((const char *[]){g_text, "-o", g_folder, "--data.vocab", "v", NULL}, 4, "v: cannot open");
    refused((const char *[]){g_text, "-o", g_folder, "--tokenizer", "byte", "--data.vocab", "v", NULL}, 2, "gpt2");
    refused((const char *[]){g_text, "-o", g_folder, "--data.split", "0.1", NULL}, 2, "--data.split");
    refused((const char *[]){scratch_file("empty.txt", "", 0), "-o", g_folder, NULL}, 4, "empty.txt");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_appear),
        cmocka_unit_test(bad_words_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_begin, scratch_end);
}

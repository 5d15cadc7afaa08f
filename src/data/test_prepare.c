/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "data/test_scratch.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rng.h"
#include "data/data.h"

#define WORDS "tests/parity/bpe/words/"

enum { TEXT_BYTES = 300000 };

static char g_text[TEXT_BYTES];

static void make_text(void) {
    static const char *const words[] = {"the ", "fox",  " jumps",       "\n", "\xc3\xbc",
                                        "  ",   "1234", "\xe5\xad\xa6", "'s", "."};
    size_t at = 0;
    for (uint64_t i = 0; at < TEXT_BYTES; i++) {
        const char *word = words[taciti_rng_below(1, i, 10)];
        for (; *word != '\0' && at < TEXT_BYTES; word++) g_text[at++] = *word;
    }
}

static size_t count_entries(const char *folder) {
    DIR *entries = opendir(folder);
    if (entries == NULL) return 0;
    size_t count = 0;
    while (readdir(entries) != NULL) count++;
    (void)closedir(entries);
    return count - 2;
}

static const char *out_folder(const char *name) {
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", g_scratch, name);
    return path;
}

/* All tokens of the shards of one part. */
static size_t read_shards(const char *folder, const char *part, uint64_t shards, int32_t *out) {
    size_t count = 0;
    for (uint64_t i = 0; i < shards; i++) {
        char path[600], *paths[] = {path};
        (void)snprintf(path, sizeof path, "%s/t_%s_%06d.bin", folder, part, (int)i);
        const taciti_data_options options = {.train = {.items = paths, .count = 1}, .split = 0.0};
        taciti_data *data = NULL;
        assert_int_equal(taciti_data_open(&options, &data), TACIT_OK);
        const size_t n = (size_t)taciti_data_describe(data).train_tokens;
        if (n == 1) {
            assert_true(taciti_data_describe(data).vocabulary > 0);
            out[count] = taciti_data_describe(data).vocabulary - 1;
        } else {
            int32_t *targets = malloc(n * sizeof *targets);
            assert_non_null(targets);
            assert_int_equal(taciti_data_train(data, 0, 0, 1, n - 1, out + count, targets), TACIT_OK);
            out[count + n - 1] = targets[n - 2];
            free(targets);
        }
        count += n;
        taciti_data_close(data);
    }
    return count;
}

/* Prepares g_text cut into three files and compares with encoding it at once. */
static void check_prepare(const taciti_tokenizer *tokenizer, double split, uint64_t shard_tokens, const char *folder) {
    const size_t cuts[] = {0, 100001, 100003, TEXT_BYTES};
    const char *files[3];
    int32_t *expected = NULL, *got = malloc(TEXT_BYTES * sizeof *got);
    assert_non_null(got);
    size_t count = 0;
    for (size_t f = 0; f < 3; f++) {
        char name[32];
        (void)snprintf(name, sizeof name, "part%zu.txt", f);
        files[f] = scratch_file(name, g_text + cuts[f], cuts[f + 1] - cuts[f]);
        assert_int_equal(taciti_tokenizer_encode(tokenizer, g_text + cuts[f], cuts[f + 1] - cuts[f], &expected, &count),
                         TACIT_OK);
    }
    const taciti_prepare_options options = {
        .tokenizer = tokenizer, .folder = folder, .name = "t", .split = split, .shard_tokens = shard_tokens};
    taciti_prepare_result result;
    assert_int_equal(taciti_data_prepare(&options, files, 3, &result), TACIT_OK);
    assert_int_equal(result.bytes, TEXT_BYTES);
    assert_int_equal(result.train_tokens + result.validation_tokens, count);
    assert_int_equal(result.train_shards, (result.train_tokens + shard_tokens - 1) / shard_tokens);
    assert_int_equal(count_entries(folder), result.train_shards + result.validation_shards);
    const size_t train = read_shards(folder, "train", result.train_shards, got);
    assert_int_equal(train, result.train_tokens);
    assert_int_equal(read_shards(folder, "val", result.validation_shards, got + train), result.validation_tokens);
    assert_memory_equal(got, expected, count * sizeof *got);
    const double share = (double)result.validation_tokens / (double)count;
    assert_true(share > split - 0.02 && share < split + 0.02);
    taciti_free(expected);
    free(got);
}

static void shards_hold_the_ids_of_the_text(void **state) {
    (void)state;
    make_text();
    taciti_tokenizer *bytes = NULL, *words = NULL;
    assert_int_equal(taciti_tokenizer_byte(&bytes), TACIT_OK);
    assert_int_equal(taciti_tokenizer_bpe(WORDS "vocab.json", WORDS "merges.txt", &words), TACIT_OK);
    check_prepare(bytes, 0.1, 1 << 20, out_folder("one"));
    check_prepare(bytes, 0.0, 40000, out_folder("split"));
    check_prepare(bytes, 0.9, 30000, out_folder("exact"));
    check_prepare(words, 0.1, 10000, out_folder("bpe"));
    check_prepare(words, 0.66667, 12345, out_folder("cut"));
    taciti_tokenizer_destroy(bytes);
    taciti_tokenizer_destroy(words);
}

static void one_token_per_shard(void **state) {
    (void)state;
    taciti_tokenizer *bytes = NULL;
    assert_int_equal(taciti_tokenizer_byte(&bytes), TACIT_OK);
    const char *file = scratch_file("five.txt", "\0\x01\x02\xff\x04", 5);
    const taciti_prepare_options options = {
        .tokenizer = bytes, .folder = out_folder("single"), .name = "t", .split = 0.5, .shard_tokens = 1};
    taciti_prepare_result result;
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_OK);
    assert_int_equal(result.train_shards, 3);
    assert_int_equal(result.validation_shards, 2);
    int32_t got[5];
    (void)read_shards(options.folder, "train", 3, got);
    (void)read_shards(options.folder, "val", 2, got + 3);
    const int32_t expected[] = {0, 1, 2, 255, 4};
    assert_memory_equal(got, expected, sizeof got);
    /* A second run would mix its shards with these. */
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_E_CONFIG);
    assert_error_has("exists");
    assert_int_equal(count_entries(options.folder), 5);
    taciti_tokenizer_destroy(bytes);
}

static void bad_wishes_are_refused(void **state) {
    (void)state;
    taciti_tokenizer *bytes = NULL;
    assert_int_equal(taciti_tokenizer_byte(&bytes), TACIT_OK);
    const char *file = scratch_file("good.txt", "text", 4), *missing = "/nonexistent/text";
    const taciti_prepare_options good = {
        .tokenizer = bytes, .folder = out_folder("bad"), .name = "t", .split = 0.1, .shard_tokens = 10};
    taciti_prepare_options options = good;
    taciti_prepare_result result;
    options.split = 1.0;
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_E_CONFIG);
    options.split = -0.1;
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_E_CONFIG);
    options = good;
    options.shard_tokens = 0;
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_E_CONFIG);
    options.shard_tokens = (uint64_t)INT32_MAX + 1;
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_E_CONFIG);
    options = good;
    options.name = "a/b";
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_E_CONFIG);
    assert_int_equal(taciti_data_prepare(&good, &file, 0, &result), TACIT_E_USAGE);
    assert_int_not_equal(taciti_data_prepare(&good, &missing, 1, &result), TACIT_OK);
    const char *empty = scratch_file("empty.txt", "", 0);
    assert_int_equal(taciti_data_prepare(&good, &empty, 1, &result), TACIT_E_DATA);
    const char *shard = scratch_file("odd.bin", "abcd", 4);
    assert_int_equal(taciti_data_prepare(&good, &shard, 1, &result), TACIT_E_DATA);
    assert_error_has("tokens already");
    assert_int_equal(access(good.folder, F_OK), -1);
    taciti_tokenizer_destroy(bytes);
}

/* A disk that is full, played by the limit on the size of files: nothing remains. */
static void failures_leave_nothing_behind(void **state) {
    (void)state;
    make_text();
    taciti_tokenizer *bytes = NULL;
    assert_int_equal(taciti_tokenizer_byte(&bytes), TACIT_OK);
    const char *file = scratch_file("large.txt", g_text, TEXT_BYTES);
    const taciti_prepare_options options = {
        .tokenizer = bytes, .folder = out_folder("full"), .name = "t", .split = 0.1, .shard_tokens = 1 << 20};
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 200000;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    taciti_prepare_result result;
    const tacit_status status = taciti_data_prepare(&options, &file, 1, &result);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TACIT_E_IO);
    assert_int_equal(count_entries(options.folder), 0);
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_OK);
    taciti_tokenizer_destroy(bytes);
}

/* A word that is longer than the window that moves over the file. */
static void long_words_fit_or_are_named(void **state) {
    (void)state;
    const size_t bytes = (size_t)6 << 20;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'a', bytes);
    text[1000] = text[bytes / 2 + 5] = ' ';
    taciti_tokenizer *words = NULL;
    assert_int_equal(taciti_tokenizer_bpe(WORDS "vocab.json", WORDS "merges.txt", &words), TACIT_OK);
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(taciti_tokenizer_encode(words, text, bytes, &ids, &count), TACIT_OK);
    const char *file = scratch_file("long.txt", text, bytes);
    const taciti_prepare_options options = {
        .tokenizer = words, .folder = out_folder("long"), .name = "t", .split = 0.0, .shard_tokens = INT32_MAX};
    taciti_prepare_result result;
    assert_int_equal(taciti_data_prepare(&options, &file, 1, &result), TACIT_OK);
    assert_int_equal(result.train_tokens, count);
    int32_t *got = malloc(count * sizeof *got);
    assert_non_null(got);
    assert_int_equal(read_shards(options.folder, "train", 1, got), count);
    assert_memory_equal(got, ids, count * sizeof *got);
    text[bytes / 2 + 5] = 'a';
    file = scratch_file("endless.txt", text, bytes);
    taciti_prepare_options other = options;
    other.name = "other";
    assert_int_equal(taciti_data_prepare(&other, &file, 1, &result), TACIT_E_DATA);
    assert_error_has("endless.txt: byte 1000");
    assert_int_equal(count_entries(options.folder), 1);
    taciti_free(ids);
    free(got);
    free(text);
    taciti_tokenizer_destroy(words);
}

static uint64_t g_done, g_total;
static void note_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    assert_ptr_equal(context, &g_done);
    assert_true(done_bytes >= g_done && done_bytes <= total_bytes);
    g_done = done_bytes;
    g_total = total_bytes;
}

static void progress_reaches_the_end(void **state) {
    (void)state;
    make_text();
    taciti_tokenizer *bytes = NULL;
    assert_int_equal(taciti_tokenizer_byte(&bytes), TACIT_OK);
    const char *files[] = {scratch_file("a.txt", g_text, 1000), scratch_file("b.txt", g_text, TEXT_BYTES)};
    const taciti_prepare_options options = {.tokenizer = bytes,
                                            .folder = out_folder("progress"),
                                            .name = "t",
                                            .split = 0.5,
                                            .shard_tokens = 1 << 20,
                                            .progress = note_progress,
                                            .context = &g_done};
    taciti_prepare_result result;
    assert_int_equal(taciti_data_prepare(&options, files, 2, &result), TACIT_OK);
    assert_int_equal(g_done, TEXT_BYTES + 1000);
    assert_int_equal(g_total, TEXT_BYTES + 1000);
    taciti_tokenizer_destroy(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_hold_the_ids_of_the_text), cmocka_unit_test(one_token_per_shard),
        cmocka_unit_test(bad_wishes_are_refused),          cmocka_unit_test(failures_leave_nothing_behind),
        cmocka_unit_test(long_words_fit_or_are_named),     cmocka_unit_test(progress_reaches_the_end),
    };
    return cmocka_run_group_tests(tests, scratch_begin, scratch_end);
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "data/test_scratch.h"

#include <unistd.h>

#include "data/builtin.h"
#include "data/data.h"

enum { TIME = 8 };

static taciti_data *open_files(char **train, size_t train_count, char **validation, size_t validation_count,
                               double split) {
    const taciti_data_options options = {.train = {.items = train, .count = train_count},
                                         .validation = {.items = validation, .count = validation_count},
                                         .split = split};
    taciti_data *data = NULL;
    assert_int_equal(taciti_data_open(&options, &data), TACIT_OK);
    return data;
}

/* A text whose byte at i is i, so that a window shows where it was cut. */
static char *counting_file(const char *name, size_t count, size_t from) {
    unsigned char bytes[256];
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)(from + i);
    return scratch_file(name, bytes, count);
}

static void windows_are_shifted_by_one_and_follow_each_other(void **state) {
    (void)state;
    char *path = counting_file("a.txt", 200, 0);
    taciti_data *data = open_files(&path, 1, NULL, 0, 0.1);
    assert_int_equal(taciti_data_describe(data).train_tokens, 180);
    assert_int_equal(taciti_data_describe(data).validation_tokens, 20);
    assert_int_equal(taciti_data_describe(data).vocabulary, 256);
    assert_true(taciti_data_describe(data).vocabulary_known);
    int32_t tokens[50][TIME], targets[50][TIME];
    assert_int_equal(taciti_data_train(data, 3, 0, 50, TIME, tokens[0], targets[0]), TACIT_OK);
    for (size_t s = 0; s < 50; s++) {
        for (int t = 0; t < TIME; t++) {
            assert_int_equal(tokens[s][t], tokens[s][0] + t);
            assert_int_equal(targets[s][t], tokens[s][t] + 1);
            assert_true(targets[s][t] < 180); /* never a held-out token */
        }
    }
    taciti_data_close(data);
}

/* 180 train tokens: 60 for each of 3 ranks, 18 in each of 10 regions. Held-out tokens belong to nobody. */
static void a_partition_gives_every_rank_its_part(void **state) {
    (void)state;
    char *path = counting_file("a.txt", 200, 0);
    taciti_data_options options = {.train = {.items = &path, .count = 1}, .split = 0.1};
    int32_t tokens[50][TIME], targets[50][TIME], global[50][TIME];
    for (int dirichlet = 0; dirichlet < 2; dirichlet++) {
        taciti_data *data = NULL;
        (void)snprintf(options.partition.text, sizeof options.partition.text, "%s",
                       dirichlet ? "dirichlet:0.1" : "by-rank");
        assert_int_equal(taciti_data_open(&options, &data), TACIT_OK);
        assert_false(taciti_data_partitioned(data)); /* as long as nobody has said for whom */
        assert_int_equal(taciti_data_train(data, 3, 0, 50, TIME, global[0], targets[0]), TACIT_OK);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(taciti_data_assign(data, 3, rank, 3, TIME), TACIT_OK);
            assert_true(taciti_data_partitioned(data));
            assert_int_equal(taciti_data_train(data, 3, 0, 50, TIME, tokens[0], targets[0]), TACIT_OK);
            assert_memory_not_equal(tokens, global, sizeof tokens);
            for (size_t s = 0; s < 50; s++) {
                const int part = dirichlet ? 18 : 60, begin = tokens[s][0] / part * part;
                assert_true(targets[s][TIME - 1] < begin + part && (dirichlet || begin == rank * part));
            }
        }
        assert_int_equal(taciti_data_assign(data, 3, 0, 3, dirichlet ? 18 : 60), TACIT_E_DATA);
        taciti_data_close(data);
    }
}

static void what_is_missing_is_known_before_the_first_sample(void **state) {
    (void)state;
    char *path = counting_file("a.txt", 20, 0);
    taciti_data *data = open_files(&path, 1, NULL, 0, 0.1); /* 18 and 2 */
    assert_int_equal(taciti_data_check(data, 17, true), TACIT_OK);
    assert_int_equal(taciti_data_check(data, 18, true), TACIT_E_DATA);
    assert_error_has("18 train tokens, but one sample of train.seq 18 needs 19");
    taciti_data_close(data);
    data = open_files(&path, 1, NULL, 0, 0.05); /* one token has no target */
    assert_int_equal(taciti_data_check(data, 4, true), TACIT_E_DATA);
    assert_error_has("1 validation tokens");
    assert_error_has("data.split");
    assert_int_equal(taciti_data_check(data, 4, false), TACIT_OK);
    taciti_data_close(data);
    char *one = counting_file("one.txt", 1, 0);
    data = open_files(&path, 1, &one, 1, 0.1);
    assert_int_equal(taciti_data_check(data, 4, true), TACIT_E_DATA);
    assert_error_has("one.txt: 1 validation tokens");
    taciti_data_close(data);
}

static void files_that_are_written_to_are_noticed(void **state) {
    (void)state;
    char *path = counting_file("a.txt", 200, 0), *other = counting_file("b.txt", 200, 0);
    for (int validation = 0; validation < 2; validation++) {
        taciti_data *data = open_files(&path, 1, &other, 1, 0);
        assert_int_equal(taciti_data_unchanged(data), TACIT_OK);
        assert_int_equal(truncate(validation ? other : path, 201 + validation), 0);
        assert_int_equal(taciti_data_unchanged(data), TACIT_E_DATA);
        assert_error_has(validation ? "b.txt" : "a.txt");
        taciti_data_close(data);
    }
}

static void any_split_into_calls_gives_the_same_batch(void **state) {
    (void)state;
    char *path = counting_file("a.txt", 200, 0);
    taciti_data *data = open_files(&path, 1, NULL, 0, 0.0);
    int32_t tokens[24][TIME], targets[24][TIME], part_tokens[24][TIME], part_targets[24][TIME];
    assert_int_equal(taciti_data_train(data, 3, 7, 24, TIME, tokens[0], targets[0]), TACIT_OK);
    for (size_t step = 1; step <= 24; step++) {
        for (size_t at = 0; at < 24; at += step) {
            const size_t n = 24 - at < step ? 24 - at : step;
            assert_int_equal(taciti_data_train(data, 3, 7 + at, n, TIME, part_tokens[at], part_targets[at]), TACIT_OK);
        }
        assert_memory_equal(tokens, part_tokens, sizeof tokens);
        assert_memory_equal(targets, part_targets, sizeof targets);
    }
    assert_int_equal(taciti_data_train(data, 3, 0, 0, TIME, NULL, NULL), TACIT_OK);
    taciti_data_close(data);
}

static void files_are_one_sequence(void **state) {
    (void)state;
    char *whole = counting_file("whole.txt", 200, 0);
    char *parts[] = {counting_file("p0.txt", 1, 0), counting_file("p1.txt", 99, 1), counting_file("p2.txt", 2, 100),
                     counting_file("p3.txt", 98, 102)};
    taciti_data *one = open_files(&whole, 1, NULL, 0, 0.2), *four = open_files(parts, 4, NULL, 0, 0.2);
    int32_t tokens[2][40][TIME], targets[2][40][TIME];
    assert_int_equal(taciti_data_train(one, 1, 0, 40, TIME, tokens[0][0], targets[0][0]), TACIT_OK);
    assert_int_equal(taciti_data_train(four, 1, 0, 40, TIME, tokens[1][0], targets[1][0]), TACIT_OK);
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    taciti_data_close(one);
    taciti_data_close(four);
}

static void check_validation(const taciti_data *data, int first, int count) {
    int32_t tokens[TIME], targets[TIME];
    int next = first;
    const uint64_t windows = taciti_data_validation_windows(data, TIME);
    for (uint64_t w = 0; w < windows; w++) {
        assert_int_equal(taciti_data_validation(data, w, 1, TIME, tokens, targets), TACIT_OK);
        for (int t = 0; t < TIME; t++, next++) {
            const int inside = next + 1 < first + count;
            assert_int_equal(tokens[t], inside ? next : 0);
            assert_int_equal(targets[t], inside ? next + 1 : -1);
        }
    }
    assert_true(next >= first + count - 1 && next < first + count - 1 + TIME);
    assert_int_equal(taciti_data_validation(data, windows, 1, TIME, tokens, targets), TACIT_E_USAGE);
    assert_int_equal(taciti_data_validation(data, windows, 0, TIME, tokens, targets), TACIT_OK);
}

static void validation_covers_what_was_held_out(void **state) {
    (void)state;
    char *path = counting_file("a.txt", 200, 0);
    for (int held = 2; held < 40; held++) {
        taciti_data *data = open_files(&path, 1, NULL, 0, ((double)held + 0.5) / 200.0);
        assert_int_equal(taciti_data_describe(data).validation_tokens, held);
        check_validation(data, 200 - held, held);
        taciti_data_close(data);
    }
}

static void validation_files_leave_all_train_tokens(void **state) {
    (void)state;
    char *path = counting_file("a.txt", 100, 0), *other = counting_file("b.txt", 50, 150);
    taciti_data *data = open_files(&path, 1, &other, 1, 0.5);
    assert_int_equal(taciti_data_describe(data).train_tokens, 100);
    check_validation(data, 150, 50);
    taciti_data_close(data);
}

static void nothing_held_out_means_no_windows(void **state) {
    (void)state;
    char *path = counting_file("a.txt", 100, 0);
    taciti_data *data = open_files(&path, 1, NULL, 0, 0.0);
    assert_int_equal(taciti_data_validation_windows(data, TIME), 0);
    taciti_data_close(data);
    data = open_files(&path, 1, NULL, 0, 0.015); /* one token has no target */
    assert_int_equal(taciti_data_describe(data).validation_tokens, 1);
    assert_int_equal(taciti_data_validation_windows(data, TIME), 0);
    taciti_data_close(data);
}

static void tiny_texts_name_what_is_needed(void **state) {
    (void)state;
    int32_t tokens[2 * TIME], targets[2 * TIME];
    for (size_t n = 1; n <= TIME + 2; n++) {
        char *path = counting_file("tiny.txt", n, 0);
        taciti_data *data = open_files(&path, 1, NULL, 0, 0.0);
        const tacit_status expected = n > TIME ? TACIT_OK : TACIT_E_DATA;
        assert_int_equal(taciti_data_train(data, 0, 5, 2, TIME, tokens, targets), expected);
        if (expected != TACIT_OK) assert_error_has("tiny.txt");
        if (expected != TACIT_OK) assert_error_has("needs 9");
        assert_int_equal(taciti_data_train(data, 0, 5, 2, 0, tokens, targets), TACIT_E_USAGE);
        taciti_data_close(data);
    }
}

static void a_file_that_shrinks_is_an_error(void **state) {
    (void)state;
    char *path = counting_file("shrink.txt", 200, 0);
    taciti_data *data = open_files(&path, 1, NULL, 0, 0.0);
    int32_t tokens[64 * TIME], targets[64 * TIME];
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(taciti_data_train(data, 0, 0, 64, TIME, tokens, targets), TACIT_E_DATA);
    assert_error_has("shrink.txt");
    taciti_data_close(data);
}

static void the_digest_knows_content_and_order(void **state) {
    (void)state;
    char *files[] = {counting_file("a.txt", 100, 0), counting_file("b.txt", 100, 1)};
    char *swapped[] = {files[1], files[0]};
    taciti_data *ab = open_files(files, 2, NULL, 0, 0.1), *ba = open_files(swapped, 2, NULL, 0, 0.1);
    taciti_data *again = open_files(files, 2, NULL, 0, 0.1);
    assert_string_equal(taciti_data_describe(ab).digest, taciti_data_describe(again).digest);
    assert_string_not_equal(taciti_data_describe(ab).digest, taciti_data_describe(ba).digest);
    assert_int_equal(strlen(taciti_data_describe(ab).digest), 32);
    taciti_data *apart = open_files(files, 1, files + 1, 1, 0.1);
    assert_string_not_equal(taciti_data_describe(ab).digest, taciti_data_describe(apart).digest);
    taciti_data_close(apart);
    taciti_data_close(ab);
    taciti_data_close(ba);
    taciti_data_close(again);
}

static void the_digest_of_large_files_sees_ends_and_size(void **state) {
    (void)state;
    const size_t bytes = (size_t)3 << 20, spots[] = {0, (1 << 20) - 1, (2 << 20), bytes - 1};
    char *text = malloc(bytes), before[33];
    assert_non_null(text);
    memset(text, 'x', bytes);
    char *path = scratch_file("large.txt", text, bytes);
    taciti_data *data = open_files(&path, 1, NULL, 0, 0.1);
    (void)snprintf(before, sizeof before, "%s", taciti_data_describe(data).digest);
    taciti_data_close(data);
    for (size_t i = 0; i < 5; i++) {
        if (i < 4) text[spots[i]] ^= 1;
        path = scratch_file("large.txt", text, i < 4 ? bytes : bytes - 1);
        data = open_files(&path, 1, NULL, 0, 0.1);
        assert_string_not_equal(taciti_data_describe(data).digest, before);
        taciti_data_close(data);
        if (i < 4) text[spots[i]] ^= 1;
    }
    free(text);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    char missing[] = "/nonexistent/text", *paths[] = {missing};
    taciti_data *data = NULL;
    taciti_data_options options = {.train = {.items = paths, .count = 1}};
    assert_int_not_equal(taciti_data_open(&options, &data), TACIT_OK);
    assert_error_has("/nonexistent/text");
    paths[0] = scratch_file("empty.txt", "", 0);
    assert_int_equal(taciti_data_open(&options, &data), TACIT_E_DATA);
    assert_error_has("empty.txt");
    assert_null(data);
}

static void bytes_are_their_own_ids(void **state) {
    (void)state;
    taciti_tokenizer *tokenizer = NULL;
    assert_int_equal(taciti_tokenizer_byte(&tokenizer), TACIT_OK);
    assert_int_equal(taciti_tokenizer_vocabulary(tokenizer), 256);
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(taciti_tokenizer_encode(tokenizer, "", 0, &ids, &count), TACIT_OK);
    assert_int_equal(count, 0);
    assert_int_equal(taciti_tokenizer_encode(tokenizer, "a\0\xff", 3, &ids, &count), TACIT_OK);
    assert_int_equal(taciti_tokenizer_encode(tokenizer, "z", 1, &ids, &count), TACIT_OK);
    const int32_t expected[] = {'a', 0, 255, 'z'};
    assert_int_equal(count, 4);
    assert_memory_equal(ids, expected, sizeof expected);
    size_t bytes = 0;
    for (int32_t id = 0; id < 256; id++) {
        const char *piece = taciti_tokenizer_piece(tokenizer, id, &bytes);
        assert_int_equal(bytes, 1);
        assert_int_equal((unsigned char)*piece, id);
    }
    assert_null(taciti_tokenizer_piece(tokenizer, 256, &bytes));
    assert_null(taciti_tokenizer_piece(tokenizer, -1, &bytes));
    free(ids);
    taciti_tokenizer_destroy(tokenizer);
}

static tacit_status open_bpe(char **train, size_t count, const char *vocab, taciti_data **out) {
    taciti_data_options options = {.train = {.items = train, .count = count}};
    (void)snprintf(options.vocab.text, sizeof options.vocab.text, "%s", vocab);
    return taciti_data_open(&options, out);
}

#define VOCAB "tests/parity/bpe/words/vocab.json"
#define MERGES "tests/parity/bpe/words/merges.txt"

static void text_becomes_ids_of_the_tokenizer(void **state) {
    (void)state;
    const char text[] = "The workers exchange what they have learnt and wait for it.";
    const unsigned char shard[] = {5, 0, 6, 0, 7, 1};
    char *paths[] = {scratch_file("t.txt", text, sizeof text - 1), scratch_file("s.bin", shard, sizeof shard)};
    taciti_data *data = NULL;
    assert_int_equal(open_bpe(paths, 2, VOCAB, &data), TACIT_OK);
    const taciti_data_info info = taciti_data_describe(data);
    taciti_tokenizer *tokenizer = NULL;
    assert_int_equal(taciti_tokenizer_bpe(VOCAB, MERGES, &tokenizer), TACIT_OK);
    assert_int_equal(info.vocabulary, taciti_tokenizer_vocabulary(tokenizer));
    assert_true(info.vocabulary_known);
    int32_t *ids = NULL, tokens[64], targets[64];
    size_t count = 0;
    assert_int_equal(taciti_tokenizer_encode(tokenizer, text, sizeof text - 1, &ids, &count), TACIT_OK);
    assert_int_equal(info.train_tokens, count + 3);
    assert_true(count > 10 && count < 40);
    assert_int_equal(taciti_data_train(data, 0, 0, 1, count + 2, tokens, targets), TACIT_OK);
    assert_memory_equal(tokens, ids, count * sizeof *ids);
    const int32_t rest[] = {5, 6, 0x107};
    assert_memory_equal(targets + count - 1, rest, sizeof rest);
    free(ids);
    taciti_tokenizer_destroy(tokenizer);
    taciti_data_close(data);
    assert_int_equal(open_bpe(NULL, 0, VOCAB, &data), TACIT_OK); /* the built-in text */
    assert_true(taciti_data_describe(data).train_tokens < taciti_builtin_bytes);
    taciti_data_close(data);
}

static void a_tokenizer_needs_both_files(void **state) {
    (void)state;
    taciti_data *data = NULL;
    char *alone = scratch_file("vocab.json", "{}", 2);
    assert_int_equal(open_bpe(NULL, 0, MERGES, &data), TACIT_E_DATA);
    assert_int_equal(open_bpe(NULL, 0, alone, &data), TACIT_E_DATA);
    assert_null(data);
}

/* Reads a file of the source tree (tests run in its root). */
static char *source_text(const char *path, size_t *count) {
    char *text = NULL;
    assert_int_equal(taciti_file_read(path, 1 << 24, &text, count), TACIT_OK);
    return text;
}

static const char *find(const unsigned char *text, size_t bytes, const char *part, size_t part_bytes) {
    for (size_t i = 0; i + part_bytes <= bytes; i++)
        if (memcmp(text + i, part, part_bytes) == 0) return (const char *)text + i;
    return NULL;
}

static void the_built_in_text_is_the_sources(void **state) {
    (void)state;
    const size_t bytes = taciti_builtin_bytes;
    unsigned char *text = malloc(bytes);
    size_t count = 0;
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) text[i] = (unsigned char)(taciti_builtin_words[i / 8] >> (56 - 8 * (i % 8)));
    const char *const files[] = {"include/tacit/tacit.h", "src/data/data.c", "src/base/rng.h"};
    for (size_t f = 0; f < 3; f++) {
        char *source = source_text(files[f], &count);
        const char *at = find(text, bytes, source, count);
        assert_non_null(at);
        assert_memory_equal(at - strlen(files[f]) - 1, files[f], strlen(files[f]));
        free(source);
    }
    free(text);
}

static void no_files_means_the_built_in_text(void **state) {
    (void)state;
    taciti_data *data = open_files(NULL, 0, NULL, 0, 0.1);
    const taciti_data_info info = taciti_data_describe(data);
    assert_string_equal(info.source, "built-in sources and docs");
    assert_int_equal(info.train_tokens + info.validation_tokens, taciti_builtin_bytes);
    assert_int_equal(info.vocabulary, 256);
    int32_t tokens[64], targets[64];
    assert_int_equal(taciti_data_train(data, 1, 0, 1, 64, tokens, targets), TACIT_OK);
    assert_memory_equal(tokens + 1, targets, 63 * sizeof *tokens);
    taciti_data_close(data);
}

static void shakespeare_is_cut_where_it_should(void **state) {
    (void)state;
    char path[] = "../shared/data/tinyshakespeare.txt", *paths[] = {path};
    if (access(path, R_OK) != 0) {
        print_message("%s is not there: skipped\n", path);
        skip();
    }
    taciti_data *data = open_files(paths, 1, NULL, 0, 0.1);
    const taciti_data_info info = taciti_data_describe(data);
    assert_int_equal(info.train_tokens + info.validation_tokens, 1115394);
    assert_int_equal(info.validation_tokens, 111539);
    int32_t tokens[4 * 64], targets[4 * 64];
    assert_int_equal(taciti_data_train(data, 1, 0, 4, 64, tokens, targets), TACIT_OK);
    for (size_t i = 0; i + 1 < 64; i++) assert_int_equal(tokens[i + 1], targets[i]);
    taciti_data_close(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_shifted_by_one_and_follow_each_other),
        cmocka_unit_test(a_partition_gives_every_rank_its_part),
        cmocka_unit_test(what_is_missing_is_known_before_the_first_sample),
        cmocka_unit_test(files_that_are_written_to_are_noticed),
        cmocka_unit_test(any_split_into_calls_gives_the_same_batch),
        cmocka_unit_test(files_are_one_sequence),
        cmocka_unit_test(validation_covers_what_was_held_out),
        cmocka_unit_test(validation_files_leave_all_train_tokens),
        cmocka_unit_test(nothing_held_out_means_no_windows),
        cmocka_unit_test(tiny_texts_name_what_is_needed),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(the_digest_knows_content_and_order),
        cmocka_unit_test(the_digest_of_large_files_sees_ends_and_size),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(bytes_are_their_own_ids),
        cmocka_unit_test(text_becomes_ids_of_the_tokenizer),
        cmocka_unit_test(a_tokenizer_needs_both_files),
        cmocka_unit_test(the_built_in_text_is_the_sources),
        cmocka_unit_test(no_files_means_the_built_in_text),
        cmocka_unit_test(shakespeare_is_cut_where_it_should),
    };
    return cmocka_run_group_tests(tests, scratch_begin, scratch_end);
}

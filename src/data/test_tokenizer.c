/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "data/test_scratch.h"

#include <jansson.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rng.h"
#include "data/pretoken.h"
#include "data/tokenizer.h"

#define WORDS "tests/parity/bpe/words/"
#define SHUFFLED "tests/parity/bpe/shuffled/"

enum { MAX = 1 << 16 };

static taciti_tokenizer *load(const char *folder) {
    char vocab[128], merges[128];
    (void)snprintf(vocab, sizeof vocab, "%svocab.json", folder);
    (void)snprintf(merges, sizeof merges, "%smerges.txt", folder);
    taciti_tokenizer *tokenizer = NULL;
    assert_int_equal(taciti_tokenizer_bpe(vocab, merges, &tokenizer), TACIT_OK);
    return tokenizer;
}

static json_t *load_cases(const char *folder) {
    char path[128];
    (void)snprintf(path, sizeof path, "%scases.json", folder);
    json_t *cases = json_load_file(path, 0, NULL);
    assert_non_null(cases);
    assert_true(json_array_size(cases) > 100);
    return cases;
}

static size_t bytes_of(const json_t *one, char *out) {
    const char *hex = json_string_value(json_object_get(one, "hex"));
    const size_t n = strlen(hex) / 2;
    assert_true(n < MAX);
    for (size_t i = 0; i < n; i++) {
        unsigned value;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        const unsigned char byte = (unsigned char)value;
        memcpy(out + i, &byte, 1);
    }
    return n;
}

static void check_ids(const json_t *one, const int32_t *ids, size_t count) {
    const json_t *expected = json_object_get(one, "ids");
    const char *hex = json_string_value(json_object_get(one, "hex"));
    if (count != json_array_size(expected))
        fail_msg("%zu ids, expected %zu, for %s", count, json_array_size(expected), hex);
    for (size_t i = 0; i < count; i++)
        if (ids[i] != (int32_t)json_integer_value(json_array_get(expected, i)))
            fail_msg("id %zu is %d for %s", i, (int)ids[i], hex);
}

static void check_round_trip(const taciti_tokenizer *tokenizer, const int32_t *ids, size_t count, const char *text,
                             size_t bytes) {
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = 0;
        const char *piece = taciti_tokenizer_piece(tokenizer, ids[i], &n);
        assert_non_null(piece);
        assert_true(n <= bytes - at);
        assert_memory_equal(piece, text + at, n);
        at += n;
    }
    assert_int_equal(at, bytes);
}

static void check_folder(const char *folder) {
    static char text[MAX];
    taciti_tokenizer *tokenizer = load(folder);
    json_t *cases = load_cases(folder), *one;
    size_t i;
    json_array_foreach(cases, i, one) {
        const size_t bytes = bytes_of(one, text);
        int32_t *ids = NULL;
        size_t count = 0;
        assert_int_equal(taciti_tokenizer_encode(tokenizer, text, bytes, &ids, &count), TACIT_OK);
        check_ids(one, ids, count);
        check_round_trip(tokenizer, ids, count, text, bytes);
        taciti_free(ids);
    }
    json_decref(cases);
    taciti_tokenizer_destroy(tokenizer);
}

static void ids_are_those_of_the_reference(void **state) {
    (void)state;
    check_folder(WORDS);
}

static void rules_in_any_order_follow_the_reference(void **state) {
    (void)state;
    check_folder(SHUFFLED);
}

/* Feeds the text through a window of `room` bytes that grows only when nothing can be decided. */
static void feed_all(taciti_encoder *encoder, const char *text, size_t bytes, size_t room, taciti_ids *ids) {
    for (size_t at = 0, wide = room; at < bytes;) {
        const size_t left = bytes - at;
        /* A block of its own, so that a sanitizer sees a read beyond the window. */
        const size_t n = left < wide ? left : wide;
        char *block = malloc(n);
        assert_non_null(block);
        memcpy(block, text + at, n);
        const taciti_window window = {.text = block, .bytes = n, .stop = bytes, .final = n == left};
        size_t used = 0;
        assert_int_equal(taciti_encoder_feed(encoder, &window, ids, &used), TACIT_OK);
        free(block);
        assert_true(used > 0 || !window.final);
        wide = used == 0 ? wide + 1 : room;
        at += used;
    }
}

static void windows_do_not_change_the_ids(void **state) {
    (void)state;
    static char text[MAX];
    taciti_tokenizer *tokenizer = load(WORDS);
    taciti_encoder *encoder = NULL;
    assert_int_equal(taciti_encoder_create(tokenizer, &encoder), TACIT_OK);
    json_t *cases = load_cases(WORDS), *one;
    size_t i;
    json_array_foreach(cases, i, one) {
        const size_t bytes = bytes_of(one, text);
        for (size_t room = 1; room <= 16; room = room * 3 / 2 + 1) {
            taciti_ids ids = {0};
            feed_all(encoder, text, bytes, room, &ids);
            check_ids(one, ids.ids, ids.count);
            taciti_ids_destroy(&ids);
        }
    }
    json_decref(cases);
    taciti_encoder_destroy(encoder);
    taciti_tokenizer_destroy(tokenizer);
}

static void stop_cuts_between_pieces(void **state) {
    (void)state;
    const char text[] = "one two  three";
    const size_t starts[] = {0, 3, 7, 8, 14};
    taciti_tokenizer *tokenizer = load(WORDS);
    taciti_encoder *encoder = NULL;
    assert_int_equal(taciti_encoder_create(tokenizer, &encoder), TACIT_OK);
    for (size_t stop = 0; stop < sizeof text; stop++) {
        const taciti_window window = {.text = text, .bytes = sizeof text - 1, .stop = stop, .final = true};
        taciti_ids ids = {0};
        size_t used = 0, expected = 0;
        assert_int_equal(taciti_encoder_feed(encoder, &window, &ids, &used), TACIT_OK);
        while (starts[expected] < stop) expected++;
        assert_int_equal(used, starts[expected]);
        taciti_ids_destroy(&ids);
    }
    taciti_encoder_destroy(encoder);
    taciti_tokenizer_destroy(tokenizer);
}

/* Long words of every kind end in n log n steps and say what they are made of. */
static void long_words_are_fine(void **state) {
    (void)state;
    const char *const patterns[] = {"a", "the", "ab", "abcde", " ", "\xe5\xad\xa6", "\xff", "0"};
    const size_t bytes = (size_t)1 << 20;
    char *text = malloc(bytes);
    assert_non_null(text);
    taciti_tokenizer *tokenizer = load(WORDS);
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        const size_t n = strlen(patterns[p]), used = bytes / n * n;
        for (size_t i = 0; i < used; i++) text[i] = patterns[p][i % n];
        int32_t *ids = NULL;
        size_t count = 0;
        assert_int_equal(taciti_tokenizer_encode(tokenizer, text, used, &ids, &count), TACIT_OK);
        check_round_trip(tokenizer, ids, count, text, used);
        taciti_free(ids);
    }
    taciti_tokenizer_destroy(tokenizer);
    free(text);
}

static void endless_words_are_refused(void **state) {
    (void)state;
    const size_t bytes = TACITI_PIECE_BYTES + 1;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'a', bytes);
    taciti_tokenizer *tokenizer = load(WORDS);
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(taciti_tokenizer_encode(tokenizer, text, bytes, &ids, &count), TACIT_E_DATA);
    assert_null(ids);
    text[bytes / 2] = ' ';
    assert_int_equal(taciti_tokenizer_encode(tokenizer, text, bytes, &ids, &count), TACIT_OK);
    taciti_free(ids);
    taciti_tokenizer_destroy(tokenizer);
    free(text);
}

static void ids_are_appended(void **state) {
    (void)state;
    taciti_tokenizer *tokenizer = load(WORDS);
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(taciti_tokenizer_encode(tokenizer, "", 0, &ids, &count), TACIT_OK);
    assert_int_equal(taciti_tokenizer_encode(tokenizer, "the", 3, &ids, &count), TACIT_OK);
    const size_t first = count;
    assert_int_equal(taciti_tokenizer_encode(tokenizer, " fox", 4, &ids, &count), TACIT_OK);
    assert_true(first > 0 && count > first);
    check_round_trip(tokenizer, ids, count, "the fox", 7);
    size_t bytes;
    assert_null(taciti_tokenizer_piece(tokenizer, -1, &bytes));
    assert_null(taciti_tokenizer_piece(tokenizer, taciti_tokenizer_vocabulary(tokenizer), &bytes));
    taciti_free(ids);
    taciti_tokenizer_destroy(tokenizer);
}

/* ---- files that must be refused ---------------------------------------------------------------------------------- */

static void read_fixture(const char *path, char **text, size_t *bytes) {
    assert_int_equal(taciti_file_read(path, 1 << 20, text, bytes), TACIT_OK);
}

/* vocab.json of the fixture with `from` replaced by `to`. */
static char *changed_vocab(const char *from, const char *to) {
    size_t bytes = 0;
    char *text = NULL, changed[1 << 14];
    read_fixture(SHUFFLED "vocab.json", &text, &bytes);
    const char *at = strstr(text, from);
    assert_non_null(at);
    (void)snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    taciti_free(text);
    return scratch_file("vocab.json", changed, strlen(changed));
}

static void vocab_refused(const char *from, const char *to, const char *part) {
    taciti_tokenizer *tokenizer = NULL;
    assert_int_equal(taciti_tokenizer_bpe(changed_vocab(from, to), SHUFFLED "merges.txt", &tokenizer), TACIT_E_DATA);
    assert_null(tokenizer);
    assert_error_has("vocab.json");
    assert_error_has(part);
}

static void bad_vocabularies_are_refused(void **state) {
    (void)state;
    vocab_refused("\"a\": 97", "\"a\": 98", "\"a\" and \"b\"");
    vocab_refused("\"a\": 97", "\"a\": 9700", "\"a\" must be an integer");
    vocab_refused("\"a\": 97", "\"a\": -1", "\"a\" must be an integer");
    vocab_refused("\"a\": 97", "\"a\": \"97\"", "\"a\" must be an integer");
    vocab_refused("\"a\": 97", "\"a\": 97.0", "\"a\" must be an integer");
    vocab_refused("\"a\": 97", "\"a\": 97, \"a\": 1000", "duplicate");
    vocab_refused("\"a\": 97", "\"zz\": 97", "0x61");
    vocab_refused("\"a\": 97", "\"\": 97", "token 97");
    vocab_refused("\"a\": 97", "\"\\u4e2d\": 97", "token 97");
    vocab_refused("\"a\": 97", "\"a b\": 97", "token 97");
    vocab_refused("\"a\": 97,", "\"a\": 97", "expected");
    taciti_tokenizer *tokenizer = NULL;
    const char *const whole[] = {"", "[]", "{}", "null", "{\"a\": 0}", "{\"a\": 0", "\xff"};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        char *path = scratch_file("vocab.json", whole[i], strlen(whole[i]));
        assert_int_equal(taciti_tokenizer_bpe(path, SHUFFLED "merges.txt", &tokenizer), TACIT_E_DATA);
        assert_error_has("vocab.json");
    }
    assert_int_not_equal(taciti_tokenizer_bpe("/nonexistent/vocab.json", "x", &tokenizer), TACIT_OK);
    assert_error_has("/nonexistent/vocab.json");
    assert_int_not_equal(taciti_tokenizer_bpe(SHUFFLED "vocab.json", "/nonexistent/m", &tokenizer), TACIT_OK);
    assert_error_has("/nonexistent/m");
}

static void merges_give(const char *text, tacit_status expected, const char *part) {
    taciti_tokenizer *tokenizer = NULL;
    char *path = scratch_file("merges.txt", text, strlen(text));
    assert_int_equal(taciti_tokenizer_bpe(SHUFFLED "vocab.json", path, &tokenizer), expected);
    if (expected != TACIT_OK) assert_error_has(part);
    taciti_tokenizer_destroy(expected == TACIT_OK ? tokenizer : NULL);
}

static void bad_merges_are_refused(void **state) {
    (void)state;
    merges_give("", TACIT_OK, NULL);
    merges_give("#version: 0.2\n", TACIT_OK, NULL);
    merges_give("b a\n", TACIT_OK, NULL);
    merges_give("#version: 0.2\r\nb a\r\n", TACIT_OK, NULL);
    merges_give("b a", TACIT_OK, NULL);
    merges_give("b a\nb a\n", TACIT_E_DATA, "merges.txt:2: \"b a\": the pair comes twice");
    merges_give("b  a\n", TACIT_E_DATA, "one space");
    merges_give("ba\n", TACIT_E_DATA, "merges.txt:1: \"ba\"");
    merges_give(" a\n", TACIT_E_DATA, "one space");
    merges_give("a \n", TACIT_E_DATA, "one space");
    merges_give("a b a\n", TACIT_E_DATA, "one space");
    merges_give("b a\n\nb a\n", TACIT_E_DATA, "merges.txt:2");
    merges_give("b a\n#version: 0.2\n", TACIT_E_DATA, "merges.txt:2");
    merges_give("z z\n", TACIT_E_DATA, "the merged pair is no token");
    merges_give("zz a\n", TACIT_E_DATA, "a side of the pair is no token");
    merges_give("\xe4\xb8\xad a\n", TACIT_E_DATA, "stands for no byte");
    merges_give("b\ta a\n", TACIT_E_DATA, "stands for no byte");
    merges_give("\xc3 a\n", TACIT_E_DATA, "stands for no byte");
}

/* Random damage: refused with a message, or a tokenizer that gives back every text it is given. */
static void mutate(char *bytes, size_t count, uint64_t round) {
    static const char alphabet[] = "{}[]\",:0123456789ab \n\\u\xc3\xff";
    const uint64_t flips = 1 + taciti_rng_below(1, round, 3);
    for (uint64_t f = 0; f < flips; f++) {
        const size_t at = (size_t)taciti_rng_below(2, round * 8 + f, count);
        bytes[at] = alphabet[taciti_rng_below(3, round * 8 + f, sizeof alphabet - 1)];
    }
}

static void damaged_files_never_lie(void **state) {
    (void)state;
    size_t sizes[2], accepted = 0;
    char *good[2] = {NULL, NULL};
    read_fixture(SHUFFLED "vocab.json", &good[0], &sizes[0]);
    read_fixture(SHUFFLED "merges.txt", &good[1], &sizes[1]);
    const char *const names[] = {"vocab.json", "merges.txt"};
    for (uint64_t round = 0; round < 1500; round++) {
        const size_t which = round % 2;
        char *bytes = malloc(sizes[which]);
        assert_non_null(bytes);
        memcpy(bytes, good[which], sizes[which]);
        mutate(bytes, sizes[which], round);
        const size_t cut =
            taciti_rng_below(4, round, 4) != 0 ? sizes[which] : (size_t)taciti_rng_below(5, round, sizes[which]);
        char *path = scratch_file(names[which], bytes, cut);
        free(bytes);
        taciti_tokenizer *tokenizer = NULL;
        g_error[0] = '\0';
        const tacit_status status = taciti_tokenizer_bpe(which == 0 ? path : SHUFFLED "vocab.json",
                                                         which == 1 ? path : SHUFFLED "merges.txt", &tokenizer);
        if (status != TACIT_OK) {
            assert_int_equal(status, TACIT_E_DATA);
            assert_error_has(which == 0 && strstr(g_error, "merges") == NULL ? "vocab.json" : "merges.txt");
            continue;
        }
        accepted++;
        int32_t *ids = NULL;
        size_t count = 0;
        const char text[] = "abcabccbaabcabcbcbcaacb";
        assert_int_equal(taciti_tokenizer_encode(tokenizer, text, sizeof text, &ids, &count), TACIT_OK);
        check_round_trip(tokenizer, ids, count, text, sizeof text);
        taciti_free(ids);
        taciti_tokenizer_destroy(tokenizer);
    }
    assert_in_range(accepted, 10, 1490);
    taciti_free(good[0]);
    taciti_free(good[1]);
}

/* Any bytes: pieces tile the text, and a prefix that is decided stays decided. */
static void pieces_tile_random_bytes(void **state) {
    (void)state;
    static const char soup[] = " \n'stre\xe2\x82\xac\xc3\xa9\xf0\x9f\x99\x82\xff 1\xc2\xa0";
    for (uint64_t round = 0; round < 3000; round++) {
        char text[24];
        const size_t n = 1 + (size_t)taciti_rng_below(1, round, sizeof text);
        for (size_t i = 0; i < n; i++) text[i] = soup[taciti_rng_below(2, round * 64 + i, sizeof soup - 1)];
        const size_t whole = taciti_pretoken(text, n, true);
        assert_in_range(whole, 1, n);
        for (size_t seen = 1; seen <= n; seen++) {
            const size_t part = taciti_pretoken(text, seen, false);
            if (part != 0) assert_int_equal(part, whole);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_reference),
        cmocka_unit_test(rules_in_any_order_follow_the_reference),
        cmocka_unit_test(windows_do_not_change_the_ids),
        cmocka_unit_test(stop_cuts_between_pieces),
        cmocka_unit_test(long_words_are_fine),
        cmocka_unit_test(endless_words_are_refused),
        cmocka_unit_test(ids_are_appended),
        cmocka_unit_test(bad_vocabularies_are_refused),
        cmocka_unit_test(bad_merges_are_refused),
        cmocka_unit_test(damaged_files_never_lie),
        cmocka_unit_test(pieces_tile_random_bytes),
    };
    return cmocka_run_group_tests(tests, scratch_begin, scratch_end);
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "data/test_scratch.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/rng.h"
#include "data/data.h"
#include "data/shard.h"

enum { TIME = 16, HEADER = TACITI_SHARD_HEADER_BYTES };

/* A llm.c shard of ids from, from + 1, ...; `out` has room for HEADER + 2 count bytes. */
static size_t make_shard(unsigned char *out, size_t count, size_t from) {
    taciti_shard_header(count, out);
    for (size_t i = 0; i < count; i++) {
        out[HEADER + 2 * i] = (unsigned char)(from + i);
        out[HEADER + 2 * i + 1] = (unsigned char)((from + i) >> 8);
    }
    return HEADER + 2 * count;
}

static tacit_status try_open(char *path, taciti_data **out) {
    const taciti_data_options options = {.train = {.items = &path, .count = 1}};
    return taciti_data_open(&options, out);
}

static void refused(char *path, const char *part, const char *other) {
    taciti_data *data = NULL;
    g_error[0] = '\0';
    assert_int_equal(try_open(path, &data), TACIT_E_DATA);
    assert_null(data);
    assert_error_has(path);
    assert_error_has(part);
    assert_error_has(other);
}

static void the_header_is_llm_c_s(void **state) {
    (void)state;
    unsigned char header[HEADER];
    taciti_shard_header(0x01020304, header);
    const unsigned char expected[12] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 4, 3, 2, 1};
    assert_memory_equal(header, expected, sizeof expected);
    for (size_t i = 12; i < HEADER; i++) assert_int_equal(header[i], 0);
}

static void shards_and_raw_tokens_read_alike(void **state) {
    (void)state;
    unsigned char bytes[HEADER + 2000];
    const size_t size = make_shard(bytes, 1000, 300);
    char *paths[] = {scratch_file("a.bin", bytes, size), scratch_file("train.bin", bytes + HEADER, size - HEADER),
                     scratch_file("no_extension", bytes, size)};
    for (size_t p = 0; p < 3; p++) {
        taciti_data *data = NULL;
        assert_int_equal(try_open(paths[p], &data), TACIT_OK);
        const taciti_data_info info = taciti_data_describe(data);
        assert_int_equal(info.train_tokens, 1000);
        assert_int_equal(info.vocabulary, 1300);
        assert_false(info.vocabulary_known);
        int32_t tokens[40][TIME], targets[40][TIME];
        assert_int_equal(taciti_data_train(data, 1, 0, 40, TIME, tokens[0], targets[0]), TACIT_OK);
        for (size_t s = 0; s < 40; s++) {
            assert_in_range(tokens[s][0], 300, 1299 - TIME);
            for (int t = 0; t < TIME; t++) assert_int_equal(targets[s][t], tokens[s][0] + t + 1);
        }
        taciti_data_close(data);
    }
}

static void shards_may_follow_raw_tokens(void **state) {
    (void)state;
    unsigned char a[HEADER + 200], b[HEADER + 200];
    const size_t size = make_shard(a, 100, 0);
    (void)make_shard(b, 100, 100);
    char *paths[] = {scratch_file("a.bin", a, size), scratch_file("b.bin", b + HEADER, size - HEADER)};
    const taciti_data_options options = {.train = {.items = paths, .count = 2}, .split = 0.5};
    taciti_data *data = NULL;
    assert_int_equal(taciti_data_open(&options, &data), TACIT_OK);
    int32_t tokens[99], targets[99];
    assert_int_equal(taciti_data_validation(data, 0, 1, 99, tokens, targets), TACIT_OK);
    for (int t = 0; t < 99; t++) assert_int_equal(targets[t], 101 + t);
    assert_int_equal(taciti_data_train(data, 0, 0, 1, 99, tokens, targets), TACIT_OK);
    for (int t = 0; t < 99; t++) assert_int_equal(targets[t], 1 + t);
    taciti_data_close(data);
}

static void broken_headers_are_refused(void **state) {
    (void)state;
    unsigned char good[HEADER + 200], bad[HEADER + 200];
    const size_t size = make_shard(good, 100, 0);
    memcpy(bad, good, size);
    refused(scratch_file("cut.bin", good, size - 2), "100 tokens", "1222");
    refused(scratch_file("odd.bin", good, size - 1), "1224", "1223");
    refused(scratch_file("half.bin", bad, size - 100), "1224", "1124");
    refused(scratch_file("head.bin", good, 700), "700", "1024");
    refused(scratch_file("empty.bin", good, 0), "empty", "empty");
    bad[0] ^= 1;
    refused(scratch_file("magic.bin", bad, size), "20240521", "20240520");
    memcpy(bad, good, size);
    bad[4] = 7;
    refused(scratch_file("version.bin", bad, size), "version 7", "version 1");
    bad[4] = 1;
    bad[11] = 0xff;
    refused(scratch_file("count.bin", bad, size), "4278190180 tokens", "1224");
    (void)make_shard(bad, 0, 0);
    refused(scratch_file("none.bin", bad, HEADER), "0 tokens", "0 tokens");
    refused(scratch_file("odd_raw.bin", good + HEADER, 199), "199", "odd");
}

static void text_and_tokens_do_not_mix(void **state) {
    (void)state;
    unsigned char shard[HEADER + 200];
    char *paths[] = {scratch_file("t.txt", "text", 4), scratch_file("s.bin", shard, make_shard(shard, 100, 0))};
    taciti_data *data = NULL;
    taciti_data_options options = {.train = {.items = paths, .count = 2}};
    assert_int_equal(taciti_data_open(&options, &data), TACIT_E_DATA);
    assert_error_has("t.txt");
    assert_error_has("s.bin");
    options.train.count = 1;
    options.validation = (taciti_list){.items = paths + 1, .count = 1};
    assert_int_equal(taciti_data_open(&options, &data), TACIT_E_DATA);
    assert_null(data);
}

static void ids_beyond_the_vocabulary_are_named(void **state) {
    (void)state;
    unsigned char bytes[HEADER + 200];
    const size_t size = make_shard(bytes, 100, 0);
    bytes[HEADER + 2 * 37] = 0x39;
    bytes[HEADER + 2 * 37 + 1] = 0x30; /* token 37 is 12345 */
    char *path = scratch_file("ids.bin", bytes, size);
    taciti_data *data = NULL;
    assert_int_equal(try_open(path, &data), TACIT_OK);
    int32_t tokens[99], targets[99];
    assert_int_equal(taciti_data_train(data, 0, 0, 1, 99, tokens, targets), TACIT_OK);
    taciti_data_limit_vocabulary(data, 12346);
    assert_int_equal(taciti_data_train(data, 0, 0, 1, 99, tokens, targets), TACIT_OK);
    taciti_data_limit_vocabulary(data, 12345);
    assert_int_equal(taciti_data_train(data, 0, 0, 1, 99, tokens, targets), TACIT_E_DATA);
    assert_error_has("ids.bin: token 37 is 12345");
    taciti_data_limit_vocabulary(data, 99);
    bytes[HEADER + 2 * 37] = 0;
    taciti_data_close(data);
    path = scratch_file("last.bin", bytes, size); /* the last target alone is out of range */
    assert_int_equal(try_open(path, &data), TACIT_OK);
    taciti_data_limit_vocabulary(data, 99);
    assert_int_equal(taciti_data_train(data, 0, 0, 1, 98, tokens, targets), TACIT_E_DATA);
    taciti_data_close(data);
}

/* A sparse file: nothing but its last tokens takes room on the disk. */
static char *sparse_file(const char *name, uint64_t tokens, bool header) {
    unsigned char head[HEADER], tail[8] = {1, 0, 2, 0, 3, 0, 4, 0};
    taciti_shard_header(tokens, head);
    char *path = scratch_file(name, head, header ? HEADER : 0);
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    const off_t end = (off_t)(2 * tokens + (header ? HEADER : 0));
    if (!header) assert_int_equal(pwrite(fd, tail, 1, HEADER / 2), 1); /* no header of llm.c is so */
    assert_int_equal(pwrite(fd, tail, sizeof tail, end - (off_t)sizeof tail), sizeof tail);
    assert_int_equal(close(fd), 0);
    return path;
}

static void check_tail(char *path, uint64_t count) {
    const double split = 100.5 / (double)count;
    const taciti_data_options options = {.train = {.items = &path, .count = 1}, .split = split};
    taciti_data *data = NULL;
    assert_int_equal(taciti_data_open(&options, &data), TACIT_OK);
    const taciti_data_info info = taciti_data_describe(data);
    assert_int_equal(info.train_tokens + info.validation_tokens, count);
    int32_t tokens[TIME], targets[TIME];
    const uint64_t windows = taciti_data_validation_windows(data, TIME);
    const size_t last = (size_t)((info.validation_tokens - 2) % TIME);
    assert_int_equal(taciti_data_validation(data, windows - 1, 1, TIME, tokens, targets), TACIT_OK);
    assert_int_equal(targets[last], 4);
    assert_int_equal(tokens[last], 3);
    assert_int_equal(taciti_data_train(data, 1, 0, 1, TIME, tokens, targets), TACIT_OK);
    assert_int_equal(targets[0], 0);
    taciti_data_close(data);
    assert_int_equal(unlink(path), 0);
}

static void files_beyond_2_and_4_gib_are_read_to_the_end(void **state) {
    (void)state;
    const uint64_t over_2_gib = (UINT64_C(1) << 30) + 1000, over_4_gib = (UINT64_C(1) << 31) + 1000;
    check_tail(sparse_file("two.bin", over_2_gib, true), over_2_gib);
    check_tail(sparse_file("four.bin", over_4_gib, true), over_4_gib);
    check_tail(sparse_file("raw.bin", over_4_gib, false), over_4_gib);
}

/* Whatever is flipped, cut or added: refused, or exactly what its header says. */
static void mutated_shards_never_lie(void **state) {
    (void)state;
    unsigned char good[HEADER + 400], bytes[HEADER + 400];
    const size_t size = make_shard(good, 100, 0);
    size_t accepted = 0;
    for (uint64_t round = 0; round < 400; round++) {
        memcpy(bytes, good, sizeof good);
        const uint64_t flips = taciti_rng_below(1, round, 3);
        for (uint64_t f = 0; f < flips; f++) {
            const uint64_t range = taciti_rng_below(2, round * 4 + f, 2) == 0 ? 16 : sizeof bytes;
            bytes[taciti_rng_below(3, round * 4 + f, range)] ^= (unsigned char)(1u << taciti_rng_below(4, round, 8));
        }
        const size_t cut = taciti_rng_below(5, round, 2) == 0 ? size : (size_t)taciti_rng_below(6, round, sizeof bytes);
        char *path = scratch_file("mutant.bin", bytes, cut);
        taciti_data *data = NULL;
        if (try_open(path, &data) != TACIT_OK) continue;
        accepted++;
        const uint64_t tokens = taciti_data_describe(data).train_tokens;
        assert_true(tokens == cut / 2 || (cut >= HEADER && tokens == (cut - HEADER) / 2));
        int32_t in[TIME], out[TIME];
        if (tokens > TIME) assert_int_equal(taciti_data_train(data, round, 0, 1, TIME, in, out), TACIT_OK);
        taciti_data_close(data);
    }
    assert_in_range(accepted, 20, 399);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_is_llm_c_s),
        cmocka_unit_test(shards_and_raw_tokens_read_alike),
        cmocka_unit_test(shards_may_follow_raw_tokens),
        cmocka_unit_test(broken_headers_are_refused),
        cmocka_unit_test(text_and_tokens_do_not_mix),
        cmocka_unit_test(ids_beyond_the_vocabulary_are_named),
        cmocka_unit_test(files_beyond_2_and_4_gib_are_read_to_the_end),
        cmocka_unit_test(mutated_shards_never_lie),
    };
    return cmocka_run_group_tests(tests, scratch_begin, scratch_end);
}

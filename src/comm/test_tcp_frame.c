/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <string.h>
#include <xxhash.h>

#include "base/rng.h"
#include "comm/tcp_frame.h"

enum { EPOCH = 7, NUMBER = 41 };

/* All tests run without a key, and with one. */
static const taciti_seal_key *g_key;
static const uint8_t BEFORE[TACITI_SEAL_PROOF_BYTES] = "the hello that was answered";

static const taciti_frame FRAMES[] = {
    {TACITI_FRAME_EAGER, 1, 0, 0, 0},
    {TACITI_FRAME_EAGER, -5, TACITI_FRAME_EAGER_BYTES, 12, 0},
    {TACITI_FRAME_ASK, 2, 0, 1, SIZE_MAX / 2},
    {TACITI_FRAME_GO, 0, 0, UINT64_MAX, 0},
    {TACITI_FRAME_CHUNK, 0, 1, 3, SIZE_MAX / 2},
    {TACITI_FRAME_CHUNK, 0, TACITI_FRAME_CHUNK_BYTES, 3, 1},
    {TACITI_FRAME_CREDIT, 0, 0, 0, TACITI_FRAME_WINDOW_BYTES},
    {TACITI_FRAME_ABORT, 0, 0, 0, 255},
    {TACITI_FRAME_GOODBYE, 0, 0, 0, 0},
};

enum { FRAME_COUNT = sizeof FRAMES / sizeof *FRAMES };

static void frames_come_back_as_they_were(void **state) {
    (void)state;
    for (int i = 0; i < FRAME_COUNT; i++) {
        uint8_t header[TACITI_FRAME_HEADER_BYTES];
        taciti_frame frame = {0};
        taciti_frame_write(&FRAMES[i], EPOCH, NUMBER, header);
        assert_null(taciti_frame_read(header, EPOCH, NUMBER, &frame));
        assert_int_equal(frame.kind, FRAMES[i].kind);
        assert_int_equal(frame.tag, FRAMES[i].tag);
        assert_int_equal(frame.bytes, FRAMES[i].bytes);
        assert_true(frame.message == FRAMES[i].message && frame.value == FRAMES[i].value);
    }
}

static void every_changed_bit_is_found(void **state) {
    (void)state;
    for (int i = 0; i < FRAME_COUNT; i++)
        for (unsigned bit = 0; bit < 8 * TACITI_FRAME_HEADER_BYTES; bit++) {
            uint8_t header[TACITI_FRAME_HEADER_BYTES];
            taciti_frame frame = {.tag = 99};
            taciti_frame_write(&FRAMES[i], EPOCH, NUMBER, header);
            header[bit / 8] = (uint8_t)(header[bit / 8] ^ 1u << bit % 8);
            assert_string_equal(taciti_frame_read(header, EPOCH, NUMBER, &frame), "a frame with a wrong checksum");
            assert_int_equal(frame.tag, 99);
        }
}

/* A header with a right checksum that no rank would write. */
static const char *read_bad(const taciti_frame *bad, uint32_t epoch, uint32_t number) {
    uint8_t header[TACITI_FRAME_HEADER_BYTES];
    taciti_frame frame;
    taciti_frame_write(bad, epoch, number, header);
    return taciti_frame_read(header, EPOCH, NUMBER, &frame);
}

static void impossible_frames_are_refused_with_the_reason(void **state) {
    (void)state;
    static const taciti_frame LONG[] = {{TACITI_FRAME_EAGER, 1, TACITI_FRAME_EAGER_BYTES + 1, 0, 0},
                                        {TACITI_FRAME_ASK, 1, 1, 0, 0},
                                        {TACITI_FRAME_GO, 0, 1, 0, 0},
                                        {TACITI_FRAME_CHUNK, 0, 0, 0, 0},
                                        {TACITI_FRAME_CHUNK, 0, TACITI_FRAME_CHUNK_BYTES + 1, 0, 0},
                                        {TACITI_FRAME_CREDIT, 0, 1, 0, 0},
                                        {TACITI_FRAME_ABORT, 0, UINT32_MAX, 0, 0},
                                        {TACITI_FRAME_GOODBYE, 0, 1, 0, 0}};
    static const taciti_frame LARGE[] = {{TACITI_FRAME_EAGER, 1, 0, 0, 1},
                                         {TACITI_FRAME_ASK, 1, 0, 0, SIZE_MAX / 2 + 1},
                                         {TACITI_FRAME_GO, 0, 0, 0, SIZE_MAX},
                                         {TACITI_FRAME_CHUNK, 0, 1, 0, SIZE_MAX / 2 + 1},
                                         {TACITI_FRAME_CREDIT, 0, 0, 0, TACITI_FRAME_WINDOW_BYTES + 1},
                                         {TACITI_FRAME_ABORT, 0, 0, 0, 256},
                                         {TACITI_FRAME_GOODBYE, 0, 0, 0, 1}};
    for (size_t i = 0; i < sizeof LONG / sizeof *LONG; i++)
        assert_string_equal(read_bad(&LONG[i], EPOCH, NUMBER), "a frame of an impossible length");
    for (size_t i = 0; i < sizeof LARGE / sizeof *LARGE; i++)
        assert_string_equal(read_bad(&LARGE[i], EPOCH, NUMBER), "a frame with an impossible value");
    assert_string_equal(read_bad(&FRAMES[0], EPOCH, NUMBER + 1), "a frame out of order");
    assert_string_equal(read_bad(&FRAMES[0], EPOCH + 1, NUMBER), "a frame of another epoch");
    assert_string_equal(read_bad(&(taciti_frame){.kind = (taciti_frame_kind)0}, EPOCH, NUMBER),
                        "a frame of an unknown kind");
    assert_string_equal(read_bad(&(taciti_frame){.kind = (taciti_frame_kind)8}, EPOCH, NUMBER),
                        "a frame of an unknown kind");
}

static void random_bytes_are_no_frame(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        uint8_t bytes[TACITI_FRAME_HEADER_BYTES];
        taciti_frame frame;
        for (uint64_t k = 0; k < 5; k++) {
            const uint64_t x = taciti_rng_u64(1, 5 * i + k);
            memcpy(bytes + 8 * k, &x, sizeof x);
        }
        if (i % 2 == 0) { /* with a right checksum, the other checks meet the rest */
            const uint32_t sum = (uint32_t)XXH3_64bits(bytes + 4, sizeof bytes - 4);
            memcpy(bytes, &sum, sizeof sum);
        }
        assert_non_null(taciti_frame_read(bytes, EPOCH, NUMBER, &frame));
    }
}

/* ---- hello ------------------------------------------------------------------------------------------------------- */
static const taciti_hello HELLO = {.cookie = "0123456789abcdef", .epoch = 2, .from = 3, .to = 1, .size = 4};

static taciti_hello make_hello(void) {
    taciti_hello hello = HELLO;
    if (g_key == NULL) return hello;
    hello.cipher = TACITI_CIPHER_XCHACHA20;
    memset(hello.random, 'r', sizeof hello.random);
    return hello;
}

static void write_hello(taciti_hello *hello, const taciti_seal_key *key, const uint8_t *before,
                        uint8_t bytes[TACITI_HELLO_BYTES]) {
    taciti_hello_complete(hello, key, before);
    memcpy(bytes, hello, sizeof *hello);
}

static const char *read_hello(taciti_hello hello, taciti_hello expected) {
    uint8_t bytes[TACITI_HELLO_BYTES];
    taciti_hello out;
    write_hello(&hello, g_key, BEFORE, bytes);
    return taciti_hello_read(bytes, &expected, g_key, BEFORE, &out);
}

static void hellos_come_back_as_they_were(void **state) {
    (void)state;
    uint8_t bytes[TACITI_HELLO_BYTES];
    taciti_hello hello = make_hello(), out;
    write_hello(&hello, g_key, BEFORE, bytes);
    assert_null(taciti_hello_read(bytes, &HELLO, g_key, BEFORE, &out));
    assert_memory_equal(&out, &hello, sizeof out);
    for (size_t n = 0; n <= sizeof bytes; n++) assert_true(taciti_hello_may_begin(bytes, n));
    assert_false(taciti_hello_may_begin((const uint8_t *)"GET / HTTP", 10));
    assert_false(taciti_hello_may_begin((const uint8_t *)"G", 1));
}

static void hellos_of_others_are_refused_with_the_reason(void **state) {
    (void)state;
    taciti_hello h = make_hello();
    h.cookie[15]++;
    assert_string_equal(read_hello(h, HELLO), "it belongs to another run");
    h = make_hello(), h.epoch++;
    assert_string_equal(read_hello(h, HELLO), "it belongs to another epoch");
    h = make_hello(), h.to = 2;
    assert_string_equal(read_hello(h, HELLO), "it looks for another rank");
    h = make_hello(), h.size = 5;
    assert_string_equal(read_hello(h, HELLO), "it believes in another number of ranks");
    static const int IMPOSSIBLE[] = {4, -1, 1};
    for (size_t i = 0; i < sizeof IMPOSSIBLE / sizeof *IMPOSSIBLE; i++) {
        h = make_hello(), h.from = IMPOSSIBLE[i];
        assert_string_equal(read_hello(h, HELLO), "its hello has impossible numbers");
    }
}

static void every_changed_bit_of_a_hello_is_found(void **state) {
    (void)state;
    for (unsigned bit = 0; bit < 8 * TACITI_HELLO_BYTES; bit++) {
        uint8_t bytes[TACITI_HELLO_BYTES];
        taciti_hello hello = make_hello(), out;
        write_hello(&hello, g_key, BEFORE, bytes);
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        assert_non_null(taciti_hello_read(bytes, &HELLO, g_key, BEFORE, &out));
        const uint64_t sum = XXH3_64bits(bytes, sizeof bytes - sizeof sum); /* who changes a bit can also do that */
        memcpy(bytes + sizeof bytes - sizeof sum, &sum, sizeof sum);
        if (g_key != NULL && bit < 8 * (sizeof bytes - sizeof sum))
            assert_non_null(taciti_hello_read(bytes, &HELLO, g_key, BEFORE, &out));
    }
}

static const char *read_between(const taciti_seal_key *writer, const taciti_seal_key *reader, const uint8_t *before) {
    uint8_t bytes[TACITI_HELLO_BYTES];
    taciti_hello hello = make_hello(), out;
    if (writer == NULL) hello = HELLO;
    write_hello(&hello, writer, before, bytes);
    return taciti_hello_read(bytes, &HELLO, reader, BEFORE, &out);
}

static void hellos_prove_the_key(void **state) {
    (void)state;
    taciti_seal_key other;
    if (g_key == NULL) skip();
    assert_int_equal(taciti_seal_key_make((const uint8_t *)"another key of the same 32 bytes", &other), TACIT_OK);
    assert_null(read_between(g_key, g_key, BEFORE));
    assert_string_equal(read_between(g_key, g_key, NULL), "it has another comm.key_file"); /* answers another hello */
    assert_string_equal(read_between(&other, g_key, BEFORE), "it has another comm.key_file");
    assert_string_equal(read_between(NULL, g_key, BEFORE), "it has no comm.key_file");
    assert_string_equal(read_between(g_key, NULL, BEFORE), "it has a comm.key_file, and this rank has none");
    taciti_hello hello = make_hello();
    hello.cipher = (taciti_cipher)3;
    assert_string_equal(read_hello(hello, HELLO), "it has an unknown cipher");
}

/* ---- record ------------------------------------------------------------------------------------------------------ */
static const taciti_tcp_record RECORD = {.cookie = "0123456789abcdef",
                                         .host = "host",
                                         .local = "tacit-0123456789",
                                         .epoch = 1,
                                         .rank = 2,
                                         .size = 3,
                                         .port = 4711,
                                         .addresses = 2,
                                         .address = {{4, {127, 0, 0, 1}}, {6, {0xfe, 0x80}}}};

static void write_record(taciti_tcp_record record, const taciti_seal_key *key, uint8_t bytes[TACITI_RECORD_BYTES]) {
    taciti_tcp_record_complete(&record, key);
    memcpy(bytes, &record, sizeof record);
}

static const char *read_record(const taciti_tcp_record *record) {
    uint8_t bytes[TACITI_RECORD_BYTES];
    taciti_tcp_record out;
    write_record(*record, g_key, bytes);
    return taciti_tcp_record_read(bytes, sizeof bytes, g_key, &out);
}

static void records_come_back_as_they_were(void **state) {
    (void)state;
    uint8_t bytes[TACITI_RECORD_BYTES];
    taciti_tcp_record out;
    write_record(RECORD, g_key, bytes);
    assert_null(taciti_tcp_record_read(bytes, sizeof bytes, g_key, &out));
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.port, 4711);
    assert_string_equal(out.local, RECORD.local);
    assert_memory_equal(out.address, RECORD.address, sizeof out.address);
    for (size_t n = 0; n < sizeof bytes; n++) assert_non_null(taciti_tcp_record_read(bytes, n, g_key, &out));
    for (unsigned bit = 0; bit < 8 * TACITI_RECORD_BYTES; bit++) {
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        assert_non_null(taciti_tcp_record_read(bytes, sizeof bytes, g_key, &out));
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
    }
}

static void impossible_records_are_refused(void **state) {
    (void)state;
    taciti_tcp_record r = RECORD;
    r.rank = 3;
    assert_string_equal(read_record(&r), "has impossible numbers");
    r = RECORD, r.port = 0;
    assert_string_equal(read_record(&r), "has impossible numbers");
    r = RECORD, r.zero = 1;
    assert_string_equal(read_record(&r), "has impossible numbers");
    r = RECORD, r.addresses = 0;
    assert_string_equal(read_record(&r), "has impossible addresses");
    r = RECORD, r.address[1].family = 5;
    assert_string_equal(read_record(&r), "has impossible addresses");
    r = RECORD, r.local[0] = 0;
    assert_string_equal(read_record(&r), "has an impossible name of a socket");
    r = RECORD, memset(r.local, 'x', sizeof r.local);
    assert_string_equal(read_record(&r), "has an impossible name of a socket");
}

static void records_prove_the_key(void **state) {
    (void)state;
    uint8_t bytes[TACITI_RECORD_BYTES];
    taciti_tcp_record out;
    taciti_seal_key other;
    if (g_key == NULL) skip();
    assert_int_equal(taciti_seal_key_make((const uint8_t *)"another key of the same 32 bytes", &other), TACIT_OK);
    write_record(RECORD, g_key, bytes);
    assert_string_equal(taciti_tcp_record_read(bytes, sizeof bytes, NULL, &out),
                        "is of a rank with a comm.key_file, and this rank has none");
    assert_string_equal(taciti_tcp_record_read(bytes, sizeof bytes, &other, &out),
                        "is of a rank with another comm.key_file");
    for (unsigned bit = 0; bit < 8 * 248; bit++) {
        write_record(RECORD, g_key, bytes);
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        const uint64_t sum = XXH3_64bits(bytes, 248);
        memcpy(bytes + 248, &sum, sizeof sum);
        assert_non_null(taciti_tcp_record_read(bytes, sizeof bytes, g_key, &out));
    }
    write_record(RECORD, NULL, bytes);
    assert_string_equal(taciti_tcp_record_read(bytes, sizeof bytes, g_key, &out),
                        "is of a rank without a comm.key_file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_back_as_they_were),
        cmocka_unit_test(every_changed_bit_is_found),
        cmocka_unit_test(impossible_frames_are_refused_with_the_reason),
        cmocka_unit_test(random_bytes_are_no_frame),
        cmocka_unit_test(hellos_come_back_as_they_were),
        cmocka_unit_test(hellos_of_others_are_refused_with_the_reason),
        cmocka_unit_test(every_changed_bit_of_a_hello_is_found),
        cmocka_unit_test(hellos_prove_the_key),
        cmocka_unit_test(records_come_back_as_they_were),
        cmocka_unit_test(impossible_records_are_refused),
        cmocka_unit_test(records_prove_the_key),
    };
    taciti_seal_key key;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (taciti_seal_key_make((const uint8_t *)"a key of a file has 32 bytes ...", &key) != TACIT_OK) return 1;
    g_key = &key;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>

#include "ckpt/safetensors.h"
#include "ckpt/sink.h"
#include "ckpt/test_folder.h"

static test_path g_folder;

static int set_up(void **state) {
    (void)state;
    g_folder = folder_create();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    folder_remove(&g_folder);
    return 0;
}

/* A file of this header and `data_bytes` bytes of data 0, 1, 2, ... */
static test_path put_file(const char *header, size_t data_bytes) {
    const size_t length = strlen(header);
    unsigned char *bytes = taciti_calloc(8 + length + data_bytes, 1);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++) bytes[8 + length + i] = (unsigned char)i;
    const test_path path = path_in(g_folder.text, "x.safetensors");
    file_put(path.text, bytes, 8 + length + data_bytes);
    taciti_free(bytes);
    return path;
}

static void what_is_written_is_read(void **state) {
    (void)state;
    const float odd[6] = {0.0f, -0.0f, INFINITY, 1e-42f, -3.4e38f, 1.0f / 3.0f};
    const float exact[4] = {1.0f, -2.5f, 0x1p-133f, INFINITY}; /* bf16 holds these */
    const taciti_safe_tensor tensors[] = {
        {.name = "matrix", .dims = 2, .shape = (const size_t[]){2, 3}, .data = odd, .dtype = TACITI_SAFE_F32},
        {.name = "half \"quoted\" \xc3\xa4",
         .dims = 1,
         .shape = (const size_t[]){4},
         .data = exact,
         .dtype = TACITI_SAFE_BF16},
        {.name = "scalar", .dims = 0, .data = odd + 5, .dtype = TACITI_SAFE_F32},
        {.name = "none", .dims = 2, .shape = (const size_t[]){0, 7}, .data = odd, .dtype = TACITI_SAFE_F32},
    };
    const char *const metadata[] = {"format", "pt", NULL};
    const test_path path = path_in(g_folder.text, "x.safetensors");
    uint64_t bytes = 0;
    char digest[33], again[33], block_digest[33];
    assert_int_equal(taciti_safe_write(path.text, tensors, 4, metadata, &bytes, digest), TACIT_OK);

    size_t count = 0;
    char *whole = file_get(path.text, &count);
    taciti_digest_block(whole, count, block_digest);
    taciti_free(whole);
    assert_int_equal(count, bytes);
    assert_string_equal(digest, block_digest);
    assert_int_equal(taciti_digest_file(path.text, &bytes, again), TACIT_OK);
    assert_string_equal(digest, again);

    taciti_safe_file file;
    assert_int_equal(taciti_safe_open(path.text, &file), TACIT_OK);
    assert_int_equal(file.count, 4);
    assert_null(taciti_safe_find(&file, "__metadata__"));
    for (size_t t = 0; t < 4; t++) {
        size_t n = 1;
        for (int i = 0; i < tensors[t].dims; i++) n *= tensors[t].shape[i];
        float out[8] = {0};
        const taciti_safe_entry *entry = taciti_safe_find(&file, tensors[t].name);
        assert_non_null(entry);
        assert_int_equal(entry->dims, tensors[t].dims);
        assert_int_equal(entry->dtype, tensors[t].dtype);
        assert_int_equal(taciti_safe_read_f32(&file, entry, out, n), TACIT_OK);
        assert_memory_equal(out, tensors[t].data, n * sizeof(float));
        assert_int_equal(taciti_safe_read_f32(&file, entry, out, n + 1), TACIT_E_DATA);
    }
    taciti_safe_close(&file);
}

static void no_tensors_are_a_file_too(void **state) {
    (void)state;
    const test_path path = path_in(g_folder.text, "x.safetensors");
    uint64_t bytes = 0;
    char digest[33];
    taciti_safe_file file;
    assert_int_equal(taciti_safe_write(path.text, NULL, 0, NULL, &bytes, digest), TACIT_OK);
    assert_int_equal(taciti_safe_open(path.text, &file), TACIT_OK);
    assert_int_equal(file.count, 0);
    taciti_safe_close(&file);
}

/* More than one block of the writer, so that hashing and converting in parts is covered. */
static void large_tensors_are_streamed(void **state) {
    (void)state;
    const size_t n = 300001;
    float *x = taciti_calloc(n, sizeof *x), *y = taciti_calloc(n, sizeof *y);
    assert_true(x != NULL && y != NULL);
    for (size_t i = 0; i < n; i++) x[i] = (float)(i % 251); /* exact in bf16 */
    for (int half = 0; half < 2; half++) {
        const taciti_safe_tensor tensor = {.name = "x",
                                           .dims = 1,
                                           .shape = (const size_t[]){n},
                                           .data = x,
                                           .dtype = half ? TACITI_SAFE_BF16 : TACITI_SAFE_F32};
        const test_path path = path_in(g_folder.text, "x.safetensors");
        uint64_t bytes = 0;
        char digest[33], again[33];
        taciti_safe_file file;
        assert_int_equal(taciti_safe_write(path.text, &tensor, 1, NULL, &bytes, digest), TACIT_OK);
        assert_int_equal(taciti_digest_file(path.text, &bytes, again), TACIT_OK);
        assert_string_equal(digest, again);
        assert_int_equal(taciti_safe_open(path.text, &file), TACIT_OK);
        assert_int_equal(taciti_safe_read_f32(&file, &file.entries[0], y, n), TACIT_OK);
        assert_memory_equal(x, y, n * sizeof *x);
        taciti_safe_close(&file);
    }
    taciti_free(x);
    taciti_free(y);
}

/* All 65536 binary16 values against their definition, (-1)^s 2^(e-15) (1 + f/1024). */
static void f16_is_read_exactly(void **state) {
    (void)state;
    static uint16_t all[65536];
    static float out[65536];
    for (size_t i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    const char header[] = "{\"h\":{\"dtype\":\"F16\",\"shape\":[256,256],\"data_offsets\":[0,131072]}}   ";
    const test_path path = put_file(header, sizeof all);
    size_t count = 0;
    char *bytes = file_get(path.text, &count);
    memcpy(bytes + 8 + sizeof header - 1, all, sizeof all);
    file_put(path.text, bytes, count);
    taciti_free(bytes);
    taciti_safe_file file;
    assert_int_equal(taciti_safe_open(path.text, &file), TACIT_OK);
    assert_int_equal(taciti_safe_read_f32(&file, &file.entries[0], out, 65536), TACIT_OK);
    taciti_safe_close(&file);
    for (int i = 0; i < 65536; i++) {
        const int e = i >> 10 & 31, f = i & 1023;
        const double magnitude = e == 0 ? ldexp(f, -24) : ldexp(1024 + f, e - 25);
        const double expected = i & 0x8000 ? -magnitude : magnitude;
        if (e == 31 && f != 0)
            assert_true(isnan(out[i]));
        else if (e == 31)
            assert_true(isinf(out[i]) && (out[i] < 0) == ((i & 0x8000) != 0));
        else
            assert_true((double)out[i] == expected && !signbit(out[i]) == !(i & 0x8000));
    }
}

#define F32_8 "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":"

static void headers_that_lie_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
    } cases[] = {
        {"", 0},
        {"{", 8},
        {"[]", 0},
        {" {}", 0},
        {"{}x", 0},
        {"{}", 1},                                                                       /* unnamed bytes */
        {"{\"a\":{" F32_8 "[0,8]},\"a\":{" F32_8 "[0,8]}}", 8},                          /* duplicate */
        {"{\"a\":{" F32_8 "[0,8]},\"b\":{" F32_8 "[4,12]}}", 12},                        /* overlap */
        {"{\"a\":{" F32_8 "[0,8]},\"b\":{" F32_8 "[0,8]}}", 8},                          /* alias */
        {"{\"a\":{" F32_8 "[0,8]},\"b\":{" F32_8 "[12,20]}}", 20},                       /* hole */
        {"{\"a\":{" F32_8 "[4,12]}}", 12},                                               /* hole at the start */
        {"{\"a\":{" F32_8 "[0,8]}}", 12},                                                /* rest at the end */
        {"{\"a\":{" F32_8 "[0,8]}}", 7},                                                 /* beyond the end */
        {"{\"a\":{" F32_8 "[8,0]}}", 8},                                                 /* reversed */
        {"{\"a\":{" F32_8 "[-8,0]}}", 8},                                                /* negative */
        {"{\"a\":{" F32_8 "[0,8,9]}}", 8},                                               /* three offsets */
        {"{\"a\":{" F32_8 "[0,8.0]}}", 8},                                               /* not an integer */
        {"{\"a\":{" F32_8 "[0,4]}}", 4},                                                 /* shape too large */
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8},         /* unknown dtype */
        {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8},               /* dtype not a text */
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8},                       /* no shape */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"offsets\":[0,8]}}", 8},              /* no offsets */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"z\":1}}", 8}, /* unknown member */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8},        /* negative size */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8},           /* not an array */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0}, /* 2^66 = 0 */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551618],\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":[]}", 0},
        {"{\"a\":null}", 0},
        {"{\"__metadata__\":[]}", 0},
        {"{\"__metadata__\":{\"a\":1}}", 0},
        {"{\"a\\u0000b\":{" F32_8 "[0,8]}}", 8}, /* a name that ends early */
        {"{\"\xff\":{" F32_8 "[0,8]}}", 8},      /* not UTF-8 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        taciti_safe_file file = {.count = 77};
        const test_path path = put_file(cases[i].header, cases[i].data_bytes);
        if (taciti_safe_open(path.text, &file) != TACIT_E_DATA) fail_msg("accepted: %s", cases[i].header);
        assert_int_equal(file.count, 77);
    }
}

static void legal_oddities_are_accepted(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes, count;
    } cases[] = {
        {"{}   \n", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, 1},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, 0},
        {"{\"b\":{" F32_8 "[8,16]},\"a\":{" F32_8 "[0,8]}}", 16, 2}, /* not in file order */
        {"{\"z\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[8,8]},\"a\":{" F32_8 "[0,8]}}", 8, 2},
        {"{\"z\":{\"dtype\":\"F64\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]}}", 0, 1},
        {"{\"\":{\"dtype\":\"BOOL\",\"shape\":[1,1,2,2],\"data_offsets\":[0,4]}}", 4, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        taciti_safe_file file;
        const test_path path = put_file(cases[i].header, cases[i].data_bytes);
        if (taciti_safe_open(path.text, &file) != TACIT_OK) fail_msg("refused: %s", cases[i].header);
        assert_int_equal(file.count, cases[i].count);
        for (size_t e = 1; e < file.count; e++) assert_true(file.entries[e - 1].offset <= file.entries[e].offset);
        taciti_safe_close(&file);
    }
}

static void other_dtypes_are_not_read_as_numbers(void **state) {
    (void)state;
    taciti_safe_file file;
    float out[1];
    const test_path path = put_file("{\"a\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    assert_int_equal(taciti_safe_open(path.text, &file), TACIT_OK);
    assert_int_equal(taciti_safe_read_f32(&file, &file.entries[0], out, 1), TACIT_E_DATA);
    taciti_safe_close(&file);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    size_t count = 0;
    const test_path path = put_file("{\"a\":{" F32_8 "[0,8]}}", 8);
    char *bytes = file_get(path.text, &count);
    for (size_t cut = 0; cut < count; cut++) {
        taciti_safe_file file;
        file_put(path.text, bytes, cut);
        assert_int_equal(taciti_safe_open(path.text, &file), TACIT_E_DATA);
    }
    taciti_free(bytes);
}

/* The length field alone must not make the reader allocate or read anything. */
static void long_headers_are_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0, 1, 100000001, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    const test_path path = path_in(g_folder.text, "x.safetensors");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        taciti_safe_file file;
        file_put(path.text, &lengths[i], sizeof lengths[i]);
        assert_int_equal(truncate(path.text, 200000000), 0);
        assert_int_equal(taciti_safe_open(path.text, &file), TACIT_E_DATA);
    }
}

static void names_must_be_unique(void **state) {
    (void)state;
    const float x = 1.0f;
    const taciti_safe_tensor same[] = {{.name = "a", .data = &x}, {.name = "a", .data = &x}};
    const taciti_safe_tensor reserved = {.name = "__metadata__", .data = &x};
    const test_path path = path_in(g_folder.text, "unique.safetensors");
    uint64_t bytes = 0;
    char digest[33];
    assert_int_equal(taciti_safe_write(path.text, same, 2, NULL, &bytes, digest), TACIT_E_INTERNAL);
    assert_int_equal(taciti_safe_write(path.text, &reserved, 1, NULL, &bytes, digest), TACIT_E_INTERNAL);
    assert_false(file_exists(path.text));
}

static void missing_places_are_errors(void **state) {
    (void)state;
    const test_path path = path_in(g_folder.text, "no/such/folder");
    taciti_safe_file file;
    uint64_t bytes = 0;
    char digest[33];
    assert_int_equal(taciti_safe_open(path.text, &file), TACIT_E_DATA);
    assert_int_equal(taciti_safe_open(g_folder.text, &file), TACIT_E_DATA);
    assert_int_equal(taciti_safe_write(path.text, NULL, 0, NULL, &bytes, digest), TACIT_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(no_tensors_are_a_file_too),
        cmocka_unit_test(large_tensors_are_streamed),
        cmocka_unit_test(f16_is_read_exactly),
        cmocka_unit_test(headers_that_lie_are_refused),
        cmocka_unit_test(legal_oddities_are_accepted),
        cmocka_unit_test(other_dtypes_are_not_read_as_numbers),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(long_headers_are_refused),
        cmocka_unit_test(names_must_be_unique),
        cmocka_unit_test(missing_places_are_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <string.h>

#include "tensor/layout.h"

static void build(taciti_layout *layout, const size_t *sizes, size_t count, size_t bucket_bytes) {
    assert_int_equal(taciti_layout_create(count, layout), TACIT_OK);
    for (size_t i = 0; i < count; i++) {
        const char name[2] = {(char)('a' + (int)i), 0};
        assert_int_equal(taciti_layout_append(layout, name, 1, &sizes[i], true), TACIT_OK);
    }
    assert_int_equal(taciti_layout_seal(layout, bucket_bytes), TACIT_OK);
}

/* Names and shapes are copies, and the list grows beyond its capacity. */
static void tensors_have_any_name_and_shape(void **state) {
    (void)state;
    taciti_layout layout;
    char name[1024], text[TACITI_SHAPE_TEXT_BYTES];
    size_t shape[9] = {2, 1, 3, 1, 1, 1, 1, 1, 7};
    assert_int_equal(taciti_layout_create(1, &layout), TACIT_OK);
    for (int dims = 0; dims <= 9; dims++) {
        memset(name, 'a' + dims, sizeof name - 1);
        name[1023 - dims] = 0;
        assert_int_equal(taciti_layout_append(&layout, name, dims, shape, true), TACIT_OK);
    }
    memset(shape, 0, sizeof shape);
    assert_int_equal(layout.tensor_count, 10);
    assert_int_equal(layout.tensors[0].n, 1);
    assert_int_equal(layout.tensors[9].n, 42);
    assert_int_equal(layout.tensors[9].shape[8], 7);
    assert_int_equal(layout.tensors[9].offset, 9 * 16);
    assert_int_equal(strlen(layout.tensors[3].name), 1020);
    assert_int_equal(taciti_layout_find(&layout, name), 9);
    assert_string_equal(taciti_shape_text(0, layout.tensors[0].shape, text), "[]");
    assert_string_equal(taciti_shape_text(9, layout.tensors[9].shape, text), "[2][1][3][1][1][1][1][1][7]");
    assert_int_equal(taciti_layout_append(&layout, "x", -1, shape, true), TACIT_E_CONFIG);
    assert_int_equal(taciti_layout_append(&layout, "x", 1, shape, true), TACIT_E_CONFIG); /* a size of 0 */
    assert_int_equal(layout.tensor_count, 10);
    taciti_layout_destroy(&layout);
}

static void buckets_tile_the_array_for_any_bucket_size(void **state) {
    (void)state;
    const size_t sizes[] = {3, 100, 1, 1000, 16, 17};
    for (size_t bytes = 4; bytes < 6000; bytes = bytes * 3 / 2 + 1) {
        taciti_layout layout;
        build(&layout, sizes, 6, bytes);
        size_t at = 0;
        for (size_t b = 0; b < layout.bucket_count; b++) {
            assert_int_equal(layout.buckets[b].offset, at);
            assert_true(layout.buckets[b].n > 0);
            at += layout.buckets[b].n;
        }
        assert_int_equal(at, layout.n);
        assert_int_equal(layout.parameters, 1137);
        taciti_layout_destroy(&layout);
    }
}

/* Ones stay in every range of every bucket, but for the elements that belong to no tensor. */
/* The larger half has at most one bucket more than the other, also where every second tensor is a short one. */
static void halves_are_as_equal_as_buckets_allow(void **state) {
    (void)state;
    const size_t equal[] = {64, 64, 64, 64, 64}, stack[] = {41, 4096, 41, 4096, 41, 4096, 41, 4096};
    taciti_layout layout;
    build(&layout, equal, 5, 64 * sizeof(float));
    for (size_t b = 0; b < layout.bucket_count; b++) assert_int_equal(layout.buckets[b].half, b % 2);
    taciti_layout_destroy(&layout);
    for (size_t bytes = 4; bytes < 60000; bytes = bytes * 2 + 1) {
        size_t sums[2] = {0}, max = 0;
        build(&layout, stack, 8, bytes);
        for (size_t b = 0; b < layout.bucket_count; b++) {
            sums[layout.buckets[b].half] += layout.buckets[b].n;
            max = layout.buckets[b].n > max ? layout.buckets[b].n : max;
        }
        assert_true(sums[0] <= sums[1] + max && sums[1] <= sums[0] + max);
        taciti_layout_destroy(&layout);
    }
}

static void gaps_are_cleared_and_nothing_else(void **state) {
    (void)state;
    enum { N = 192 };
    const size_t sizes[] = {41, 10, 1, 16, 48, 3, 17};
    for (size_t bytes = 64; bytes < 1000; bytes += 64) {
        taciti_layout layout;
        build(&layout, sizes, 7, bytes);
        assert_int_equal(layout.n, N);
        bool tensor[N] = {false};
        for (size_t t = 0; t < 7; t++)
            for (size_t i = 0; i < sizes[t]; i++) tensor[layout.tensors[t].offset + i] = true;
        for (size_t b = 0; b < layout.bucket_count; b++)
            for (size_t at = 0; at <= layout.buckets[b].n; at += 3)
                for (size_t n = 0; at + n <= layout.buckets[b].n; n += 5) {
                    float x[N + 1];
                    for (size_t i = 0; i < n + 1; i++) x[i] = 1;
                    taciti_layout_clear_gaps(&layout, b, (taciti_range){at, n}, x);
                    for (size_t i = 0; i < n; i++)
                        assert_true(x[i] == (tensor[layout.buckets[b].offset + at + i] ? 1 : 0));
                    assert_true(x[n] == 1);
                }
        taciti_layout_destroy(&layout);
    }
}

/* Tensors 1, 2 and 4 are plain. */
static void no_bucket_has_plain_tensors_beside_others(void **state) {
    (void)state;
    const size_t sizes[] = {3, 100, 1, 1000, 16, 17};
    for (size_t bytes = 4; bytes < 12000; bytes = bytes * 3 / 2 + 1) {
        taciti_layout layout;
        build(&layout, sizes, 6, bytes);
        layout.tensors[1].plain = layout.tensors[2].plain = layout.tensors[4].plain = true;
        assert_int_equal(taciti_layout_seal(&layout, bytes), TACIT_OK);
        size_t at = 0, plain = 0;
        for (size_t b = 0; b < layout.bucket_count; at += layout.buckets[b++].n) {
            const taciti_bucket *bucket = &layout.buckets[b];
            assert_int_equal(bucket->offset, at);
            assert_int_equal(layout.tensors[bucket->first].plain, bucket->plain);
            assert_int_equal(layout.tensors[bucket->last].plain, bucket->plain);
            plain += bucket->plain ? bucket->n : 0;
        }
        assert_int_equal(at, layout.n);
        assert_int_equal(plain, 112 + 16 + 16);
        if (bytes > 6000) assert_int_equal(layout.bucket_count, 5);
        taciti_layout_destroy(&layout);
    }
}

/* Two tensors per unit: every bucket lies in one unit, and the units tile the array. */
static void sealed_by_units_no_bucket_belongs_to_two(void **state) {
    (void)state;
    const size_t sizes[] = {3, 100, 1, 1000, 16, 17};
    for (size_t bytes = 4; bytes < 12000; bytes = bytes * 3 / 2 + 1) {
        taciti_layout layout;
        assert_int_equal(taciti_layout_create(6, &layout), TACIT_OK);
        for (size_t i = 0; i < 6; i++) {
            const char name[2] = {(char)('a' + (int)i), 0};
            if (i % 2 == 0) taciti_layout_next_unit(&layout);
            assert_int_equal(taciti_layout_append(&layout, name, 1, &sizes[i], true), TACIT_OK);
        }
        assert_int_equal(taciti_layout_seal(&layout, bytes), TACIT_OK);
        assert_int_equal(taciti_layout_seal_units(&layout, bytes), TACIT_OK);
        size_t at = 0;
        for (size_t unit = 0; unit < layout.unit_count; unit++) {
            assert_int_equal(taciti_layout_unit(&layout, unit).at, at);
            at += taciti_layout_unit(&layout, unit).n;
        }
        assert_int_equal(at, layout.n);
        assert_int_equal(taciti_layout_unit(&layout, layout.unit_count).n, 0);
        at = 0;
        for (size_t b = 0; b < layout.bucket_count; at += layout.buckets[b++].n) {
            const taciti_bucket *bucket = &layout.buckets[b];
            assert_int_equal(bucket->offset, at);
            assert_true(bucket->n > 0);
            assert_int_equal(layout.tensors[bucket->first].unit, layout.tensors[bucket->last].unit);
        }
        assert_int_equal(at, layout.n);
        taciti_layout_destroy(&layout);
    }
}

static size_t g_full[256], g_full_count;
static void note(void *context, size_t bucket) {
    (void)context;
    g_full[g_full_count++] = bucket;
}

static void every_bucket_fills_once_in_order(void **state) {
    (void)state;
    const size_t sizes[] = {3, 100, 1, 1000, 16, 17};
    for (size_t bytes = 64; bytes < 6000; bytes = bytes * 3 / 2 + 1) {
        taciti_layout layout;
        build(&layout, sizes, 6, bytes);
        taciti_readiness readiness;
        assert_int_equal(taciti_readiness_create(&layout, &readiness), TACIT_OK);
        g_full_count = 0;
        for (size_t t = 0; t < 6; t++) taciti_readiness_mark(&readiness, t, note, NULL);
        assert_int_equal(g_full_count, layout.bucket_count);
        for (size_t b = 0; b < layout.bucket_count; b++) assert_int_equal(g_full[b], b);
        taciti_readiness_destroy(&readiness);
        taciti_layout_destroy(&layout);
    }
}

static void tensors_are_found_by_name(void **state) {
    (void)state;
    const size_t sizes[] = {5, 6};
    taciti_layout layout;
    build(&layout, sizes, 2, 1024);
    assert_int_equal(taciti_layout_find(&layout, "b"), 1);
    assert_int_equal(taciti_layout_find(&layout, "c"), 2);
    assert_int_equal(layout.tensors[1].offset % 16, 0);
    taciti_layout_destroy(&layout);
}

/* Layers of one tensor each. */
static size_t chosen_buckets(size_t layers, size_t floats, bool coded) {
    taciti_layout layout;
    assert_int_equal(taciti_layout_create(layers, &layout), TACIT_OK);
    for (size_t i = 0; i < layers; i++)
        assert_int_equal(taciti_layout_append(&layout, "x", 1, &floats, true), TACIT_OK);
    const size_t bytes = coded ? taciti_layout_choose_bucket(&layout, true) : 0;
    assert_int_equal(taciti_layout_seal(&layout, bytes), TACIT_OK);
    const size_t count = layout.bucket_count;
    taciti_layout_destroy(&layout);
    return count;
}

/* Ten in a model of a usual size, fewer below 2.5 MiB, more above 250. */
static void buckets_that_nobody_chose_follow_the_size_of_the_model(void **state) {
    (void)state;
    enum { KIB = 256, MIB = 1024 * KIB }; /* floats */
    assert_int_equal(chosen_buckets(30, 7 * KIB, false), 1);
    assert_int_equal(chosen_buckets(30, 64 * KIB, false), 8);
    assert_int_equal(chosen_buckets(30, 1 * MIB, false), 10);
    assert_int_equal(chosen_buckets(7, 6 * MIB, false), 14); /* each is cut */
    assert_int_equal(chosen_buckets(32, 25 * MIB, false), 32);
    assert_int_equal(chosen_buckets(1, 800 * MIB, false), 32);
    assert_int_equal(chosen_buckets(30, 64 * KIB, true), 2);
    assert_int_equal(chosen_buckets(32, 1 * MIB, true), 4);
    assert_int_equal(chosen_buckets(32, 25 * MIB, true), 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_have_any_name_and_shape),
        cmocka_unit_test(buckets_tile_the_array_for_any_bucket_size),
        cmocka_unit_test(halves_are_as_equal_as_buckets_allow),
        cmocka_unit_test(gaps_are_cleared_and_nothing_else),
        cmocka_unit_test(no_bucket_has_plain_tensors_beside_others),
        cmocka_unit_test(sealed_by_units_no_bucket_belongs_to_two),
        cmocka_unit_test(every_bucket_fills_once_in_order),
        cmocka_unit_test(tensors_are_found_by_name),
        cmocka_unit_test(buckets_that_nobody_chose_follow_the_size_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

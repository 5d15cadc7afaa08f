/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of state as bytes: every kind of entry comes back bit for bit, and nothing beside it is touched.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/pack.h"

enum { FLOATS = 9000 };

static void read_raised(void *object, int which, size_t at, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = ((const float *)object)[at + i] + (float)which;
}

static void write_raised(void *object, int which, size_t at, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) ((float *)object)[at + i] = x[i] - (float)which;
}

/* The values that a table refers to. */
typedef struct values {
    taciti_layout layout;
    float whole[FLOATS], part[FLOATS], other[FLOATS];
    double numbers[3];
    int64_t count;
    char bytes[5];
} values;

static const taciti_range WRITTEN[] = {{3, 2}, {100, 0}, {200, 50}}, HELD[] = {{3, 4}, {100, 7}, {200, 50}};

static values *create_values(int seed) {
    values *v = calloc(1, sizeof *v);
    assert_non_null(v);
    v->layout.n = FLOATS;
    for (size_t i = 0; i < FLOATS; i++) v->whole[i] = v->part[i] = v->other[i] = (float)((int)i * seed);
    for (size_t i = 0; i < 3; i++) v->numbers[i] = i == 0 ? HUGE_VAL : seed / (double)i;
    v->count = 7 * seed;
    memset(v->bytes, seed, sizeof v->bytes);
    return v;
}

static taciti_state list_values(values *v) {
    taciti_state s = {.count = 0};
    taciti_state_add(&s, (taciti_state_entry){.name = "bytes", .kind = TACITI_STATE_BYTES, .data = v->bytes, .n = 5});
    taciti_state_add_array(&s, "whole", TACITI_STATE_OWN, TACITI_STATE_RESET, &v->layout, v->whole);
    taciti_state_add_ranges(&s, "part", TACITI_STATE_SHARED, TACITI_STATE_MEAN, &v->layout, v->part, WRITTEN, 3);
    s.entries[2].held = HELD;
    taciti_state_add(&s, (taciti_state_entry){.name = "count", .kind = TACITI_STATE_COUNT, .data = &v->count});
    taciti_state_add_array(&s, "other", TACITI_STATE_OWN, TACITI_STATE_RESET, &v->layout, NULL);
    s.entries[4].access = (taciti_state_access){v->other, 1, read_raised, write_raised};
    taciti_state_add_numbers(&s, "numbers", TACITI_STATE_SHARED, TACITI_STATE_RESET, v->numbers, 3);
    return s;
}

static void every_kind_comes_back(void **state) {
    values *from = create_values(1), *to = create_values(2), *expected = create_values(2);
    const taciti_state source = list_values(from), target = list_values(to);
    size_t bytes = 0, again = 0;
    (void)state;
    memcpy(expected->whole, from->whole, sizeof from->whole);
    for (size_t i = 0; i < 3; i++)
        memcpy(expected->part + HELD[i].at, from->part + HELD[i].at, HELD[i].n * sizeof(float));
    memcpy(expected->other, from->other, sizeof from->other);
    memcpy(expected->numbers, from->numbers, sizeof from->numbers);
    memcpy(expected->bytes, from->bytes, sizeof from->bytes);
    expected->count = from->count;
    assert_int_equal(taciti_pack_bytes(&source, &bytes), TACIT_OK);
    assert_int_equal(taciti_pack_bytes(&target, &again), TACIT_OK);
    assert_int_equal(bytes, 5 + 4 * FLOATS + 4 * (4 + 7 + 50) + 8 + 4 * FLOATS + 3 * 8);
    assert_int_equal(bytes, again);
    unsigned char *string = malloc(bytes + 1); /* at an odd address */
    taciti_pack(&source, string + 1);
    assert_int_equal(taciti_pack_check(&target, string + 1), TACIT_OK);
    taciti_unpack(&target, string + 1);
    assert_memory_equal(to, expected, sizeof *to);
    free(string), free(from), free(to), free(expected);
}

static void a_count_below_0_is_refused(void **state) {
    values *v = create_values(-1);
    const taciti_state table = list_values(v);
    unsigned char *string = NULL;
    size_t bytes = 0;
    (void)state;
    assert_int_equal(taciti_pack_bytes(&table, &bytes), TACIT_OK);
    string = malloc(bytes);
    taciti_pack(&table, string);
    assert_int_equal(taciti_pack_check(&table, string), TACIT_E_DATA);
    free(string), free(v);
}

static void too_many_entries_are_refused(void **state) {
    const taciti_state table = {.count = TACITI_STATE_MAX_ENTRIES + 1};
    size_t bytes = 77;
    (void)state;
    assert_int_equal(taciti_pack_bytes(&table, &bytes), TACIT_E_INTERNAL);
    assert_int_equal(bytes, 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back),
        cmocka_unit_test(a_count_below_0_is_refused),
        cmocka_unit_test(too_many_entries_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

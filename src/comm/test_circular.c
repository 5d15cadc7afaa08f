/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/circular.h"
#include "comm/test_engine.h"

enum { ROUNDS = 60, MAX = 4 };

typedef struct record {
    int32_t rank, number;
    double value;
} record;

static record record_of(int rank, int number) {
    return (record){rank, number, (double)taciti_rng_below((uint64_t)rank, (uint64_t)number, 1000)};
}

static void take_and_check(taciti_comm *comm, taciti_circular *circular, int number) {
    const int size = taciti_comm_size(comm);
    record *all = taciti_calloc((size_t)size, sizeof *all);
    CHECK(taciti_circular_take(circular, all) == TACIT_OK);
    for (int r = 0; r < size; r++) {
        const record expected = record_of(r, number);
        CHECK(all[r].rank == expected.rank && all[r].number == expected.number && all[r].value == expected.value);
    }
    taciti_free(all);
}

/* *context: how many records stay untaken. Every rank dawdles in its own way; other traffic passes between. */
static void drift(taciti_comm *comm, void *context) {
    const int lag = *(const int *)context;
    const int rank = taciti_comm_rank(comm);
    taciti_circular *circular = NULL;
    int taken = 0;
    CHECK(taciti_circular_create(comm, sizeof(record), MAX, &circular) == TACIT_OK);
    for (int i = 0; i < ROUNDS; i++) {
        const record mine = record_of(rank, i);
        if (taciti_rng_below((uint64_t)rank + 77, (uint64_t)i, 8) == 0) taciti_sleep_ns(300 * 1000);
        CHECK(taciti_circular_post(circular, &mine) == TACIT_OK);
        const bool all = i % 20 == 19; /* as before a checkpoint */
        while (i + 1 - taken > (all ? 0 : lag)) take_and_check(comm, circular, taken++);
        if (i % 7 == 0) CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    }
    CHECK(taken == ROUNDS);
    taciti_circular_destroy(circular);
}

static void every_record_reaches_every_rank_in_order(void **state) {
    (void)state;
    static const int SIZES[] = {1, 2, 3, 4, 5, 7, 8};
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int thread = 0; thread < 2; thread++)
            for (int lag = 0; lag < MAX; lag++) {
                const taciti_comm_options options = test_comm_options(thread == 1);
                test_world_run(SIZES[s], &options, drift, &lag);
            }
}

/* Rank 1 posts nothing before rank 0 has posted twice. */
static void post_ahead(taciti_comm *comm, void *context) {
    _Atomic int *ahead = context;
    const int rank = taciti_comm_rank(comm);
    taciti_circular *circular = NULL;
    CHECK(taciti_circular_create(comm, sizeof(record), MAX, &circular) == TACIT_OK);
    while (rank == 1 && atomic_load(ahead) == 0) taciti_sleep_ns(TACITI_NS_PER_MS);
    for (int i = 0; i < 2; i++) {
        const record mine = record_of(rank, i);
        CHECK(taciti_circular_post(circular, &mine) == TACIT_OK);
    }
    if (rank == 0) atomic_store(ahead, 1);
    for (int i = 0; i < 2; i++) take_and_check(comm, circular, i);
    taciti_circular_destroy(circular);
}

static void nobody_waits_for_the_slowest_to_post(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    _Atomic int ahead = 0;
    test_world_run(2, &options, post_ahead, &ahead);
    assert_int_equal(atomic_load(&ahead), 1);
}

static void overflow(taciti_comm *comm, void *context) {
    (void)context;
    taciti_circular *circular = NULL;
    const record mine = record_of(taciti_comm_rank(comm), 0);
    record all[2];
    CHECK(taciti_circular_create(comm, sizeof(record), MAX, &circular) == TACIT_OK);
    CHECK(taciti_circular_take(circular, all) == TACIT_E_INTERNAL);
    for (int i = 0; i < MAX; i++) CHECK(taciti_circular_post(circular, &mine) == TACIT_OK);
    CHECK(taciti_circular_post(circular, &mine) == TACIT_E_INTERNAL);
    for (int i = 0; i < MAX; i++) CHECK(taciti_circular_take(circular, all) == TACIT_OK);
    CHECK(taciti_circular_take(circular, all) == TACIT_E_INTERNAL);
    taciti_circular_destroy(circular);
}

static void too_many_and_too_few_are_refused(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_log_keep();
    test_world_run(2, &options, overflow, NULL);
    assert_int_equal(test_log_count("more than 4 records"), 2);
    test_log_drop();
    taciti_circular_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_record_reaches_every_rank_in_order),
        cmocka_unit_test(nobody_waits_for_the_slowest_to_post),
        cmocka_unit_test(too_many_and_too_few_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/test_engine.h"
#include "exchange/group.h"

static const size_t LENGTHS[] = {0, 1, 15, 16, 17, 144, 1000, 20001};
enum { LENGTH_COUNT = sizeof LENGTHS / sizeof *LENGTHS, MAX = 20001, CELL = 4999 };

/* Five ranks on two hosts, in no order. */
static const int SCATTERED[] = {1, 0, 1, 1, 0};

static float wild(int rank, size_t i) {
    const uint64_t key = taciti_rng_key(6, (uint64_t)rank);
    return (float)ldexp(taciti_rng_unit(key, 2 * i) - 0.5, (int)taciti_rng_below(key, 2 * i + 1, 40) - 20);
}

/* ---- membership -------------------------------------------------------------------------------------------------- */
static void look_at_groups(taciti_comm *comm, void *context) {
    (void)context;
    const int rank = taciti_comm_rank(comm);
    static const int HOST1[] = {0, 2, 3}, HOST0[] = {1, 4}, FIRST[] = {0, 1}, SECOND[] = {2, 4}, THIRD[] = {3};
    static const int *const HOST[] = {HOST1, HOST0, HOST1, HOST1, HOST0};
    static const int *const CROSS[] = {FIRST, FIRST, SECOND, THIRD, SECOND};
    taciti_group world, host, cross;
    CHECK(taciti_group_world(comm, &world) == TACIT_OK && taciti_group_host(comm, &host) == TACIT_OK);
    CHECK(taciti_group_cross(comm, &cross) == TACIT_OK);
    CHECK(world.size == 5 && world.me == rank && world.ranks[rank] == rank);
    CHECK(host.size == (SCATTERED[rank] == 1 ? 3 : 2) && host.ranks[host.me] == rank);
    CHECK(memcmp(host.ranks, HOST[rank], (size_t)host.size * sizeof(int)) == 0);
    CHECK(cross.size == (rank == 3 ? 1 : 2) && cross.ranks[cross.me] == rank);
    CHECK(memcmp(cross.ranks, CROSS[rank], (size_t)cross.size * sizeof(int)) == 0);
    taciti_group_destroy(&world);
    taciti_group_destroy(&host);
    taciti_group_destroy(&cross);
    taciti_group_destroy(&cross);
}

static void members_are_found_in_any_arrangement(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(false);
    test_hosts(SCATTERED);
    test_world_run(5, &options, look_at_groups, NULL);
    test_hosts(NULL);
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */
typedef struct work {
    const taciti_group *group;
    float *x, *scratch;
    size_t n;
    char *in, *out;
} work;

static tacit_status reduce_and_gather(taciti_comm *comm, void *context) {
    const work *w = context;
    TACITI_TRY(taciti_group_reduce_scatter(comm, w->group, w->x, w->n, w->scratch));
    return taciti_group_all_gather(comm, w->group, w->x, w->n);
}

static tacit_status all_to_all(taciti_comm *comm, void *context) {
    const work *w = context;
    return taciti_group_all_to_all(comm, w->group, w->in, w->out, w->n);
}

static void run_on_thread(taciti_comm *comm, tacit_status (*run)(taciti_comm *comm, void *context), work *w) {
    taciti_job job = {.run = run, .context = w, .name = "test", .detail = -1};
    CHECK(taciti_job_submit(comm, &job) == TACIT_OK && taciti_job_wait(comm, &job) == TACIT_OK);
}

/* Reduce-scatter and all-gather together are the sum in the order of the group, the same bits everywhere. */
static void sum_over(taciti_comm *comm, const taciti_group *group) {
    work w = {.group = group, .x = taciti_calloc(MAX + 1, sizeof(float))};
    for (size_t l = 0; l < LENGTH_COUNT; l++) {
        w.n = LENGTHS[l];
        const size_t scratch_n = taciti_group_scratch_n(group, w.n);
        CHECK(scratch_n < w.n + 16 * (size_t)group->size); /* chunks of all others, in blocks of 16 */
        w.scratch = taciti_calloc(scratch_n + 1, sizeof(float));
        w.scratch[scratch_n] = w.x[w.n] = 12345.0f;
        for (size_t i = 0; i < w.n; i++) w.x[i] = wild(taciti_comm_rank(comm), i);
        run_on_thread(comm, reduce_and_gather, &w);
        for (size_t i = 0; i < w.n; i++) {
            float sum = wild(group->ranks[0], i);
            for (int m = 1; m < group->size; m++) sum += wild(group->ranks[m], i);
            CHECK(memcmp(&sum, &w.x[i], sizeof sum) == 0);
        }
        CHECK(w.x[w.n] == 12345.0f && w.scratch[scratch_n] == 12345.0f);
        taciti_free(w.scratch);
    }
    taciti_free(w.x);
}

static char letter(int from, int to, size_t i) { return (char)(17 * from + 5 * to + (int)(i % 31)); }

static void swap_all(taciti_comm *comm, const taciti_group *group) {
    static const size_t BYTES[] = {0, 1, 64, CELL};
    const size_t max = (size_t)group->size * CELL;
    work w = {.group = group, .in = taciti_calloc(max, 1), .out = taciti_calloc(max, 1)};
    for (size_t b = 0; b < sizeof BYTES / sizeof *BYTES; b++) {
        w.n = BYTES[b];
        for (int m = 0; m < group->size; m++)
            for (size_t i = 0; i < w.n; i++) w.in[(size_t)m * w.n + i] = letter(group->me, m, i);
        const uint64_t before = taciti_comm_count(comm).bytes_sent;
        run_on_thread(comm, all_to_all, &w);
        CHECK(taciti_comm_count(comm).bytes_sent - before == (uint64_t)(group->size - 1) * w.n);
        for (int m = 0; m < group->size; m++)
            for (size_t i = 0; i < w.n; i++) CHECK(w.out[(size_t)m * w.n + i] == letter(m, group->me, i));
    }
    taciti_free(w.in);
    taciti_free(w.out);
}

static void work_in_all_groups(taciti_comm *comm, void *context) {
    tacit_status (*const *make)(const taciti_comm *, taciti_group *) = context;
    taciti_group group;
    CHECK((*make)(comm, &group) == TACIT_OK);
    sum_over(comm, &group);
    swap_all(comm, &group);
    taciti_group_destroy(&group);
}

static void collectives_hold_in_every_group_and_arrangement(void **state) {
    (void)state;
    static tacit_status (*const MAKE[])(const taciti_comm *, taciti_group *) = {taciti_group_world, taciti_group_host,
                                                                                taciti_group_cross};
    for (size_t m = 0; m < sizeof MAKE / sizeof *MAKE; m++) {
        tacit_status (*make)(const taciti_comm *, taciti_group *) = MAKE[m];
        const taciti_comm_options options = test_comm_options(true);
        for (int size = 1; size <= 8; size++) {
            test_ranks_per_host(size > 3 ? 3 : 0);
            test_world_run(size, &options, work_in_all_groups, &make);
        }
        test_hosts(SCATTERED);
        test_world_run(5, &options, work_in_all_groups, &make);
        test_hosts(NULL);
    }
    test_ranks_per_host(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_found_in_any_arrangement),
        cmocka_unit_test(collectives_hold_in_every_group_and_arrangement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Averaging without waiting: the sum over ranks is kept, replicas come together, nobody waits for a rank or for a link,
 * and a run repeats bit for bit from its log.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rng.h"
#include "comm/test_engine.h"
#include "exchange/async.h"

#define ROUNDING 0x1p-24 /* of one addition to a number below 1 */

enum { MAX_RANKS = 8, FLOATS = 5003, PATH_BYTES = 512 };

typedef struct trial {
    int ranks;
    const char *topology;
    int64_t steps, meet_every; /* of the clock */
    bool dawdle, no_thread;
    bool gradients; /* every step adds noise of its own */
    int slow;       /* rank that takes `slow_ms` in every step; -1: none */
    long slow_ms;
    const char *record, *replay; /* folders */
    uint64_t digest;

    /* results */
    float x[MAX_RANKS][FLOATS];
    int64_t made[MAX_RANKS];
    tacit_status opened[MAX_RANKS], ended[MAX_RANKS];
} trial;

static void rest(long ns) {
    const struct timespec pause = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)nanosleep(&pause, NULL);
}

/* Multiples of 1/8, of which sums are exact. */
static double noise(int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(5, (uint64_t)rank), (uint64_t)step);
    return ((double)taciti_rng_below(key, i, 17) - 8) / 8;
}

static void delay(const trial *t, int rank, int64_t step) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(11, (uint64_t)rank), (uint64_t)step);
    if (t->dawdle) rest((long)taciti_rng_below(key, t->replay != NULL ? 1 : 0, 3000000));
    if (rank == t->slow) rest(t->slow_ms * 1000000);
}

static tacit_status open_log(const trial *t, int rank, taciti_arrivals **out) {
    const taciti_arrivals_run run = {.rank = rank, .ranks = t->ranks, .digest = t->digest};
    if (t->record != NULL) return taciti_arrivals_record(t->record, &run, out);
    return t->replay != NULL ? taciti_arrivals_replay(t->replay, &run, out) : TACIT_OK;
}

static tacit_status make_steps(trial *t, taciti_async *a, int rank) {
    float *x = t->x[rank];
    double moved = 0;
    for (int64_t clock = 0, step = 0, met = 0; step < t->steps; step = clock) {
        delay(t, rank, step);
        TACITI_TRY(taciti_async_take(a, step, x, &clock, &moved));
        for (size_t i = 0; t->gradients && i < FLOATS; i++) x[i] += (float)noise(rank, step, i);
        TACITI_TRY(taciti_async_offer(a, step, clock, x));
        t->made[rank]++;
        if (clock < t->steps && clock / t->meet_every == met && !taciti_async_called(a)) continue;
        TACITI_TRY(taciti_async_meet(a, x, &clock, &moved));
        met = clock / t->meet_every;
    }
    return TACIT_OK;
}

static void run_rank(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    const taciti_topo_request request = {.name = t->topology, .ranks = t->ranks};
    taciti_topology topology;
    taciti_pool *pool = NULL;
    taciti_arrivals *log = NULL;
    taciti_async *a = NULL;
    CHECK(taciti_topology_create(&request, &topology) == TACIT_OK && taciti_pool_create(2, 0, &pool) == TACIT_OK);
    t->opened[rank] = taciti_comm_agree(comm, open_log(t, rank, &log));
    if (t->opened[rank] == TACIT_OK) {
        const taciti_async_setup setup = {
            .comm = comm, .pool = pool, .topology = &topology, .gamma = 1, .n = FLOATS, .arrivals = log};
        CHECK(taciti_async_create(&setup, &a) == TACIT_OK);
        t->ended[rank] = make_steps(t, a, rank);
        taciti_async_destroy(a);
    }
    CHECK(taciti_arrivals_close(log) == TACIT_OK);
    taciti_pool_destroy(pool);
    taciti_topology_destroy(&topology);
}

static void run_trial(trial *t) {
    const taciti_comm_options options = test_comm_options(!t->no_thread);
    for (int r = 0; r < t->ranks; r++) {
        t->made[r] = 0;
        for (size_t i = 0; i < FLOATS; i++) t->x[r][i] = (float)noise(r, 1000, i);
    }
    test_world_run(t->ranks, &options, run_rank, t);
}

static trial trial_of(int ranks, const char *topology) {
    return (trial){.ranks = ranks, .topology = topology, .steps = 60, .meet_every = 1000, .dawdle = true, .slow = -1};
}

static double spread_of(const trial *t) {
    double max = 0;
    for (size_t i = 0; i < FLOATS; i++)
        for (int r = 1; r < t->ranks; r++) max = fmax(max, fabs((double)t->x[r][i] - (double)t->x[0][i]));
    return max;
}

/* Without steps of their own, ranks keep the sum, but for the rounding of every addition, and come together. */
static void ranks_agree_on_the_mean(void **state) {
    static const int SIZES[] = {1, 2, 3, 5, 6, 8};
    static const char *const GRAPHS[] = {"base-k", "ring", "complete", "exp"};
    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (size_t k = 0; k < sizeof GRAPHS / sizeof *GRAPHS; k++) {
            trial t = trial_of(SIZES[s], GRAPHS[k]);
            t.no_thread = k == 1;
            t.meet_every = 7;
            run_trial(&t);
            for (size_t i = 0; i < FLOATS; i++) {
                double before = 0, after = 0;
                for (int r = 0; r < t.ranks; r++) before += noise(r, 1000, i), after += (double)t.x[r][i];
                if (fabs(after - before) > ROUNDING * (double)(t.steps * t.ranks * t.ranks))
                    fail_msg("%s, %d ranks: sum %g, was %g", GRAPHS[k], SIZES[s], after, before);
            }
            for (int r = 0; r < t.ranks; r++) assert_int_equal(t.ended[r], TACIT_OK);
            if (!(spread_of(&t) < 0.05)) fail_msg("%s, %d ranks are %g apart", GRAPHS[k], SIZES[s], spread_of(&t));
        }
}

/* A rank that is 20 times slower makes fewer steps and passes over the others; nobody waits for it. */
static void a_slow_rank_holds_nobody(void **state) {
    (void)state;
    trial t = trial_of(5, "base-k");
    t.gradients = true;
    t.slow = 2;
    t.slow_ms = 30;
    t.steps = 100;
    run_trial(&t);
    for (int r = 0; r < t.ranks; r++) {
        assert_int_equal(t.ended[r], TACIT_OK);
        if (r != t.slow) assert_true(t.made[r] > 3 * t.made[t.slow]);
    }
    assert_true(t.made[t.slow] >= 2);
}

static void remove_log(const char *folder, int ranks) {
    char path[PATH_BYTES];
    for (int r = 0; r < ranks; r++) {
        (void)snprintf(path, sizeof path, "%s/rank-%d.log", folder, r);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

/* Whatever the delays are the second time. */
static void a_log_repeats_a_run(void **state) {
    static const int SIZES[] = {2, 3, 5};
    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        char folder[] = "/tmp/tacit-arrivals-XXXXXX";
        assert_non_null(mkdtemp(folder));
        trial t = trial_of(SIZES[s], s == 1 ? "ring" : "base-k");
        t.gradients = true;
        t.meet_every = 23;
        t.record = folder;
        run_trial(&t);
        trial again = t;
        again.record = NULL;
        again.replay = folder;
        run_trial(&again);
        for (int r = 0; r < t.ranks; r++) {
            assert_int_equal(again.ended[r], TACIT_OK);
            assert_int_equal(again.made[r], t.made[r]);
            assert_memory_equal(again.x[r], t.x[r], sizeof t.x[r]);
        }
        remove_log(folder, t.ranks);
    }
}

static void a_log_of_another_run_is_refused(void **state) {
    (void)state;
    char folder[] = "/tmp/tacit-arrivals-XXXXXX";
    assert_non_null(mkdtemp(folder));
    trial t = trial_of(2, "ring");
    t.record = folder;
    run_trial(&t);
    test_log_keep();
    t.record = NULL;
    t.replay = folder;
    t.digest = 7;
    run_trial(&t);
    assert_int_equal(t.opened[0], TACIT_E_CONFIG);
    assert_int_equal(test_log_count("is not the log of this run"), 2);
    test_log_drop();
    remove_log(folder, t.ranks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_agree_on_the_mean),
        cmocka_unit_test(a_slow_rank_holds_nobody),
        cmocka_unit_test(a_log_repeats_a_run),
        cmocka_unit_test(a_log_of_another_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

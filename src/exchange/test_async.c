/* SPDX-License-Identifier: Apache-2.0
 *
 * Averaging without waiting: the sum over ranks is kept, replicas come together, nobody waits for a rank or for a link,
 * not even where a meeting is due, and a run repeats bit for bit from its log.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/test_engine.h"
#include "exchange/async.h"
#include "exchange/test_async_reference.h"

#define ROUNDING 0x1p-24 /* of one addition to a number below 1 */

enum { MAX_RANKS = TEST_ASYNC_RANKS, FLOATS = 5003, PATH_BYTES = 512, HOLDS = 2, MEETINGS = 512 };

/* This rank makes step number `at` only when each other has made `until`, and those of a set (bits) are in a meeting.
 */
typedef struct hold {
    int rank;
    int64_t at, until[MAX_RANKS];
    unsigned meeting;
} hold;

typedef struct trial {
    int ranks;
    const char *topology;
    size_t n; /* floats */
    double gamma;
    int64_t steps, meet_every; /* of the clock */
    bool dawdle, no_thread;
    bool gradients; /* every step adds noise of its own */
    int64_t pace;   /* a rank waits for others that are more than this number of steps behind; 0: for none */
    int slow;       /* rank that makes one step while every other makes slow_factor; -1: none */
    int64_t slow_factor;
    const char *record, *replay; /* folders */
    uint64_t digest;
    hold holds[HOLDS];
    size_t hold_count;
    int leaver; /* after leave_after meetings, when all ranks have made leave_at steps, it waits for the others and all
                 * end; -1: nobody */
    int64_t leave_at;
    size_t leave_after;
    int64_t break_at; /* after this number of its own steps a rank ends without a meeting; 0: none */

    /* results */
    float x[MAX_RANKS][FLOATS];
    _Atomic int64_t made[MAX_RANKS];
    _Atomic unsigned meeting;         /* set of ranks */
    int64_t met[MAX_RANKS][MEETINGS]; /* clocks */
    size_t meetings[MAX_RANKS];
    double moved[MAX_RANKS];
    taciti_comm_counters count[MAX_RANKS]; /* at the end */
    tacit_status opened[MAX_RANKS], ended[MAX_RANKS], health[MAX_RANKS];
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
}

static bool is_released(const trial *t, const hold *h) {
    bool released = (atomic_load(&t->meeting) & h->meeting) == h->meeting;
    for (int r = 0; r < t->ranks; r++) released = released && atomic_load(&t->made[r]) >= h->until[r];
    return released;
}

static bool is_late(const trial *t, int rank) {
    bool late = rank == t->slow;
    for (size_t i = 0; i < t->hold_count; i++) late = late || rank == t->holds[i].rank;
    return late;
}

/* A busy machine decides nothing: a late rank waits for the others' steps, and these for each other. One that is in a
 * meeting makes none. */
static bool may_begin(const trial *t, int rank) {
    const int64_t made = atomic_load(&t->made[rank]);
    bool may = true;
    for (size_t i = 0; i < t->hold_count; i++) {
        const hold *h = &t->holds[i];
        may = may && (h->rank != rank || h->at != made || is_released(t, h));
    }
    for (int r = 0; r < t->ranks; r++) {
        if (r == rank || (atomic_load(&t->meeting) >> r & 1) != 0) continue;
        if (rank == t->slow) may = may && atomic_load(&t->made[r]) >= t->slow_factor * (made + 1);
        if (t->pace > 0 && !is_late(t, rank) && !is_late(t, r)) may = may && atomic_load(&t->made[r]) >= made - t->pace;
    }
    return may;
}

/* A rank that never may is one that holds the others. */
static void wait_for_steps(const trial *t, int rank) {
    const int64_t limit_ns = taciti_now_ns() + 30 * TACITI_NS_PER_S;
    while (!may_begin(t, rank)) {
        CHECK(taciti_now_ns() < limit_ns);
        rest(200000);
    }
}

static tacit_status open_log(const trial *t, int rank, taciti_arrivals **out) {
    const taciti_arrivals_run run = {.rank = rank, .ranks = t->ranks, .digest = t->digest};
    if (t->record != NULL) return taciti_arrivals_record(t->record, &run, out);
    return t->replay != NULL ? taciti_arrivals_replay(t->replay, &run, out) : TACIT_OK;
}

static bool shall_leave(const trial *t, int rank) {
    bool leaves = rank == t->leaver && t->meetings[rank] >= t->leave_after;
    for (int r = 0; r < t->ranks; r++) leaves = leaves && atomic_load(&t->made[r]) >= t->leave_at;
    return leaves;
}

/* *ends: some rank leaves. */
static tacit_status meet(trial *t, taciti_comm *comm, taciti_async *a, bool leaves, int64_t *clock, bool *ends) {
    const int rank = taciti_comm_rank(comm);
    double leaver = leaves ? 1 : 0;
    atomic_fetch_or(&t->meeting, 1u << rank);
    TACITI_TRY(taciti_async_meet(a, t->x[rank], clock, &t->moved[rank], &(bool){false}));
    TACITI_TRY(taciti_comm_allreduce_f64(comm, &leaver, 1, TACITI_OP_MAX));
    atomic_fetch_and(&t->meeting, ~(1u << rank));
    CHECK(t->meetings[rank] < MEETINGS);
    t->met[rank][t->meetings[rank]++] = *clock;
    *ends = leaver > 0;
    return TACIT_OK;
}

static tacit_status make_steps(trial *t, taciti_comm *comm, taciti_async *a) {
    const int rank = taciti_comm_rank(comm);
    float *x = t->x[rank];
    bool ends = false;
    for (int64_t clock = 0, step = 0, met = 0; step < t->steps && !ends; step = clock) {
        delay(t, rank, step);
        wait_for_steps(t, rank);
        TACITI_TRY(taciti_async_take(a, step, x, &clock, &t->moved[rank]));
        for (size_t i = 0; t->gradients && i < t->n; i++) x[i] += (float)noise(rank, step, i);
        TACITI_TRY(taciti_async_offer(a, step, clock, x));
        atomic_fetch_add(&t->made[rank], 1);
        const bool leaves = shall_leave(t, rank);
        if (atomic_load(&t->made[rank]) == t->break_at) return TACIT_OK;
        const bool due = clock / t->meet_every > met;
        if (clock < t->steps && !leaves && !taciti_async_answer(a, due)) continue;
        TACITI_TRY(meet(t, comm, a, leaves, &clock, &ends));
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
            .comm = comm, .pool = pool, .topology = &topology, .gamma = t->gamma, .n = t->n, .arrivals = log};
        CHECK(taciti_async_create(&setup, &a) == TACIT_OK);
        t->ended[rank] = make_steps(t, comm, a);
        taciti_async_destroy(a);
        t->health[rank] = taciti_comm_health(comm);
        t->count[rank] = taciti_comm_count(comm);
    }
    CHECK(taciti_arrivals_close(log) == TACIT_OK);
    taciti_pool_destroy(pool);
    taciti_topology_destroy(&topology);
}

static void run_trial(trial *t) {
    const taciti_comm_options options = test_comm_options(!t->no_thread);
    for (int r = 0; r < t->ranks; r++) {
        t->made[r] = 0;
        t->meetings[r] = 0;
        t->moved[r] = 0;
        for (size_t i = 0; i < t->n; i++) t->x[r][i] = (float)noise(r, 1000, i);
    }
    test_world_run(t->ranks, &options, run_rank, t);
}

static trial trial_of(int ranks, const char *topology) {
    return (trial){.ranks = ranks,
                   .topology = topology,
                   .n = FLOATS,
                   .gamma = 1,
                   .steps = 60,
                   .meet_every = 1000,
                   .dawdle = true,
                   .pace = 2,
                   .slow = -1,
                   .leaver = -1};
}

static double spread_of(const trial *t) {
    double max = 0;
    for (size_t i = 0; i < t->n; i++)
        for (int r = 1; r < t->ranks; r++) max = fmax(max, fabs((double)t->x[r][i] - (double)t->x[0][i]));
    return max;
}

/* Without steps of their own, ranks keep the sum, but for the rounding of every addition, and come together in 60 steps
 * of each. */
static void ranks_agree_on_the_mean(void **state) {
    static const int SIZES[] = {1, 2, 3, 5, 6, 8};
    static const char *const GRAPHS[] = {"base-k", "ring", "complete", "exp"};
    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (size_t k = 0; k < sizeof GRAPHS / sizeof *GRAPHS; k++) {
            trial t = trial_of(SIZES[s], GRAPHS[k]);
            t.no_thread = k == 1;
            t.steps = INT64_MAX;
            t.meet_every = 7;
            t.leaver = 0;
            t.leave_at = 60;
            run_trial(&t);
            const int64_t clock = t.met[0][t.meetings[0] - 1];
            for (size_t i = 0; i < t.n; i++) {
                double before = 0, after = 0;
                for (int r = 0; r < t.ranks; r++) before += noise(r, 1000, i), after += (double)t.x[r][i];
                if (fabs(after - before) > ROUNDING * (double)(clock * t.ranks * t.ranks))
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
    t.slow_factor = 20;
    t.steps = 100;
    run_trial(&t);
    for (int r = 0; r < t.ranks; r++) {
        assert_int_equal(t.ended[r], TACIT_OK);
        if (r != t.slow) assert_true(t.made[r] > 3 * t.made[t.slow]);
    }
    assert_true(t.made[t.slow] >= 2);
}

/* Rank 1 makes no step until the others have made `until`. */
static trial frozen_trial(int ranks, const char *topology, int64_t until) {
    trial t = trial_of(ranks, topology);
    t.hold_count = 1;
    t.holds[0] = (hold){.rank = 1};
    for (int r = 0; r < ranks; r++) t.holds[0].until[r] = r == 1 ? 0 : until;
    return t;
}

/* Whatever share of the weights the edges have. */
static void a_frozen_rank_leaves_the_others_mixing(void **state) {
    static const int SIZES[] = {3, 5, 7};
    static const char *const GRAPHS[] = {"complete", "exp", "base-k"};
    (void)state;
    for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; k++)
        for (size_t g = 0; g < sizeof GRAPHS / sizeof *GRAPHS; g++) {
            trial t = frozen_trial(SIZES[k], GRAPHS[g], 100);
            t.break_at = 100;
            t.no_thread = true; /* the messages of a step move in it */
            t.steps = t.meet_every = INT64_MAX;
            run_trial(&t);
            for (int r = 0; r < t.ranks; r++)
                if (r != 1 && t.count[r].messages_sent < 25)
                    fail_msg("%s, %d ranks: rank %d sent %d messages in 100 steps", GRAPHS[g], t.ranks, r,
                             (int)t.count[r].messages_sent);
        }
}

/* All have offered it the mean of theirs, and the meeting completes all of these at once: with their whole weights it
 * would go beyond. */
static void a_late_rank_stays_on_its_side_at_a_meeting(void **state) {
    (void)state;
    for (int ranks = 3; ranks <= 8; ranks++) {
        trial t = frozen_trial(ranks, "exp", 0);
        t.holds[0].meeting = ((1u << ranks) - 1) & ~2u;
        run_trial(&t);
        if (!(spread_of(&t) < 2)) fail_msg("%d ranks are %g apart, and were 2", ranks, spread_of(&t));
    }
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

static double first_value(int rank, size_t i) { return noise(rank, 1000, i); }

/* Every rounding of either array, of numbers below 128. */
static double tolerance_of(const trial *t) {
    double operations = 0;
    for (int r = 0; r < t->ranks; r++) operations += (double)t->made[r] * (1 + 3.0 * (t->ranks - 1));
    return 128 * ROUNDING * operations;
}

static void compare_with(const trial *t, const test_async_reference *expected) {
    for (int r = 0; r < t->ranks; r++) {
        assert_int_equal(t->made[r], expected->made[r]);
        assert_int_equal(t->met[r][t->meetings[r] - 1], expected->clock);
        if (fabs(t->moved[r] - expected->moved[r]) > 1e-3 * expected->moved[r])
            fail_msg("%s, %d ranks: rank %d moved by %g, not %g", t->topology, t->ranks, r, t->moved[r],
                     expected->moved[r]);
        for (size_t i = 0; i < t->n; i++)
            if (fabs((double)t->x[r][i] - expected->x[r][i]) > tolerance_of(t))
                fail_msg("%s, %d ranks, %zu floats: rank %d has %g instead of %g", t->topology, t->ranks, t->n, r,
                         (double)t->x[r][i], expected->x[r][i]);
    }
}

static void check_by_reference(trial *t) {
    char folder[] = "/tmp/tacit-arrivals-XXXXXX";
    const taciti_topo_request request = {.name = t->topology, .ranks = t->ranks};
    taciti_topology topology;
    assert_non_null(mkdtemp(folder));
    t->record = folder;
    run_trial(t);
    assert_int_equal(taciti_topology_create(&request, &topology), TACIT_OK);
    test_async_reference expected = {
        .folder = folder, .topology = &topology, .gamma = t->gamma, .n = t->n, .start = first_value, .update = noise};
    for (int r = 0; r < t->ranks; r++) {
        expected.x[r] = test_calloc(t->n, sizeof(double));
        assert_int_equal(t->ended[r], TACIT_OK);
    }
    if (!test_async_compute(&expected)) fail_msg("%s, %d ranks: %s", t->topology, t->ranks, expected.why);
    compare_with(t, &expected);
    for (int r = 0; r < t->ranks; r++) test_free(expected.x[r]);
    taciti_topology_destroy(&topology);
    remove_log(folder, t->ranks);
}

/* For all numbers of ranks, and sizes that no vector divides. */
static void a_run_is_what_its_logs_say(void **state) {
    static const int RANKS[] = {1, 2, 3, 5, 6, 7, 8};
    static const size_t SIZES[] = {1, 10, 41, 100, 1025};
    static const char *const GRAPHS[] = {"base-k", "exp", "ring", "complete"};
    (void)state;
    for (size_t k = 0; k < sizeof RANKS / sizeof *RANKS; k++)
        for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
            trial t = trial_of(RANKS[k], GRAPHS[(k + s) % (sizeof GRAPHS / sizeof *GRAPHS)]);
            t.n = SIZES[s];
            t.gamma = s % 2 == 0 ? 1 : 0.7;
            t.gradients = true;
            t.steps = 40;
            t.meet_every = 13;
            t.no_thread = s == 3;
            t.slow = t.ranks - 1;
            t.slow_factor = 4;
            check_by_reference(&t);
        }
}

/* ---- meetings ---------------------------------------------------------------------------------------------------- */

static trial held_trial(int ranks) {
    trial t = trial_of(ranks, ranks % 2 == 0 ? "ring" : "base-k");
    t.n = 41;
    t.gradients = true;
    t.meet_every = 10;
    t.steps = 1000000; /* the leaver ends it */
    t.dawdle = false;
    return t;
}

static void check_meetings(const trial *t) {
    for (int r = 0; r < t->ranks; r++) {
        assert_int_equal(t->ended[r], TACIT_OK);
        assert_int_equal(t->meetings[r], t->meetings[0]);
        for (size_t m = 0; m < t->meetings[0]; m++) {
            assert_int_equal(t->met[r][m], t->met[0][m]);
            assert_true(m == 0 || t->met[r][m] > t->met[r][m - 1]);
            assert_true(t->met[r][m] <= t->steps);
        }
    }
}

/* Whichever rank it is: five meetings become one, when it is back. */
static void a_meeting_does_not_wait_for_a_late_rank(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 7; ranks++)
        for (int late = 0; late < ranks; late++) {
            trial t = held_trial(ranks);
            t.no_thread = late == 1;
            t.hold_count = 1;
            t.holds[0] = (hold){.rank = late};
            for (int r = 0; r < ranks; r++) t.holds[0].until[r] = r == late ? 0 : 60;
            t.leaver = late;
            t.leave_after = 3;
            run_trial(&t);
            check_meetings(&t);
            assert_true(t.met[0][0] >= 60);
        }
}

/* A rank that has come, and is late when the one that all waited for is back, does not hold them either. */
static void two_late_ranks_hold_nobody_in_turns(void **state) {
    (void)state;
    for (int ranks = 3; ranks <= 7; ranks++)
        for (int first = 0; first < ranks; first++) {
            const int second = (first + 1) % ranks;
            trial t = held_trial(ranks);
            t.hold_count = 2;
            t.holds[0] = (hold){.rank = first};
            t.holds[1] = (hold){.rank = second, .at = 60};
            for (int r = 0; r < ranks; r++) {
                t.holds[0].until[r] = r == first ? 0 : 60;
                t.holds[1].until[r] = r == second ? 0 : r == first ? 20 : 80;
            }
            t.leaver = second;
            t.leave_after = 1;
            run_trial(&t);
            check_meetings(&t);
            assert_true(t.met[0][0] >= 80);
        }
}

/* Ranks that end in mid-run, with arrays on their way, receive all that was sent before they go; and none waits for one
 * that waits for another. */
static void nothing_is_on_its_way_at_the_end(void **state) {
    (void)state;
    for (int k = 0; k < 250; k++) {
        trial t = held_trial(k < 4 ? k + 1 : k % 3 + 5);
        uint64_t sent = 0, received = 0;
        t.topology = k % 2 == 0 ? "base-k" : "exp";
        t.n = FLOATS;
        t.pace = 0;
        t.break_at = 15 + k % 20;
        t.meet_every = INT64_MAX;
        t.no_thread = k % 5 == 4;
        run_trial(&t);
        for (int r = 0; r < t.ranks; r++) {
            assert_int_equal(t.health[r], TACIT_OK);
            sent += t.count[r].messages_sent;
            received += t.count[r].messages_received;
        }
        assert_int_equal(received, sent);
    }
}

/* A rank that leaves is joined at the end of a step, whoever else is late. (The late one has nobody below it.) */
static void ranks_wait_with_one_that_leaves(void **state) {
    (void)state;
    for (int leaver = 0; leaver < 5; leaver++) {
        trial t = held_trial(5);
        t.meet_every = INT64_MAX;
        t.leaver = leaver;
        t.hold_count = 1;
        t.holds[0] = (hold){.rank = leaver == 4 ? 3 : 4};
        t.holds[0].meeting = 31u & ~(1u << t.holds[0].rank);
        run_trial(&t);
        check_meetings(&t);
        assert_int_equal(t.meetings[0], 1);
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
        cmocka_unit_test(a_frozen_rank_leaves_the_others_mixing),
        cmocka_unit_test(a_late_rank_stays_on_its_side_at_a_meeting),
        cmocka_unit_test(a_log_repeats_a_run),
        cmocka_unit_test(a_run_is_what_its_logs_say),
        cmocka_unit_test(a_meeting_does_not_wait_for_a_late_rank),
        cmocka_unit_test(two_late_ranks_hold_nobody_in_turns),
        cmocka_unit_test(ranks_wait_with_one_that_leaves),
        cmocka_unit_test(nothing_is_on_its_way_at_the_end),
        cmocka_unit_test(a_log_of_another_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

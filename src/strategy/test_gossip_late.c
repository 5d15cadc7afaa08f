/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that is late: how many steps the others can finish before they wait for it. No clock decides: the late rank
 * goes on when the others have come as far as the dependencies of the method allow, and none may have come further.
 *
 *   dp    step t of a rank needs step t of all
 *   atc   needs step t of the members of its group in round t (their update, before the mix)
 *   awc   needs step t - 1 of them: one iteration of slack in every meeting
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "strategy/test_replicas.h"
#include "topo/topo.h"

enum { LATE_STEP = 3, STEPS = 24, LATE_RANK = 0 };
enum { DP, ATC, AWC, WAYS };

typedef struct wait_for {
    int ranks;
    int expected[TEST_MAX_RANKS]; /* finished steps */
    atomic_int finished[TEST_MAX_RANKS];
    int seen[TEST_MAX_RANKS]; /* when the late rank goes on */
} wait_for;

static void rest(long ms) {
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&pause, NULL);
}

static bool all_there(const wait_for *w) {
    for (int r = 0; r < w->ranks; r++)
        if (atomic_load(&w->finished[r]) < w->expected[r]) return false;
    return true;
}

/* Gives up after a minute: then seen differs from expected, which fails the test. */
static void before_step(void *context, int rank, int step) {
    wait_for *w = context;
    atomic_store(&w->finished[rank], step);
    if (rank != LATE_RANK || step != LATE_STEP) return;
    for (int i = 0; i < 12000 && !all_there(w); i++) rest(5);
    rest(30); /* time to go too far */
    for (int r = 0; r < w->ranks; r++) w->seen[r] = atomic_load(&w->finished[r]);
}

/* Whether `rank` can finish step t, when all have finished what done[] says. */
static bool can_finish(const taciti_topology *t, int way, int rank, int step, const int *done) {
    for (int j = 0; j < t->ranks; j++) {
        const bool meets = way == DP || taciti_topology_weight(t, (size_t)step % t->period, rank, j) > 0;
        if (!meets && j != rank) continue;
        const int needed = way == AWC && j != rank ? step : step + (j == LATE_RANK && step >= LATE_STEP ? 1 : 0);
        if (done[j] < needed) return false;
    }
    return true;
}

static void expect(const taciti_topology *t, int way, int *done) {
    memset(done, 0, (size_t)t->ranks * sizeof *done);
    for (bool news = true; news;) {
        news = false;
        for (int r = 0; r < t->ranks; r++) {
            if (r == LATE_RANK && done[r] == LATE_STEP) continue;
            if (done[r] == STEPS || !can_finish(t, way, r, done[r], done)) continue;
            done[r]++;
            news = true;
        }
    }
}

static int steps_finished_meanwhile(const char *topology, int ranks, int way) {
    wait_for w = {.ranks = ranks};
    taciti_topology t;
    const taciti_topo_request request = {.name = topology, .ranks = ranks};
    assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
    expect(&t, way, w.expected);
    taciti_topology_destroy(&t);
    test_replicas run = test_replicas_of(ranks, STEPS);
    run.floats = 40;
    run.strategy = way == DP ? "dp" : "gossip";
    run.gossip.order = way == ATC ? TACITI_GOSSIP_ATC : TACITI_GOSSIP_AWC;
    run.before_step = before_step;
    run.before_context = &w;
    test_topology(&run, topology);
    test_replicas_run(&run);
    test_replicas_free(&run);
    int sum = 0;
    for (int r = 0; r < ranks; r++) {
        if (w.seen[r] != w.expected[r])
            fail_msg("%s, %d ranks, way %d: rank %d had finished %d steps instead of %d", topology, ranks, way, r,
                     w.seen[r], w.expected[r]);
        sum += w.seen[r];
    }
    return sum;
}

static void slack_is_that_of_the_dependencies(void **state) {
    (void)state;
    const struct {
        const char *topology;
        int ranks;
        bool sparse;
    } cases[] = {{"exp", 8, true}, {"one-peer-ring", 8, true}, {"ring", 6, true},
                 {"exp", 9, true}, {"complete", 4, false},     {"base-k", 6, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int finished[WAYS];
        for (int way = 0; way < WAYS; way++)
            finished[way] = steps_finished_meanwhile(cases[i].topology, cases[i].ranks, way);
        assert_int_equal(finished[DP], cases[i].ranks * LATE_STEP);
        assert_true(cases[i].sparse ? finished[ATC] > finished[DP] : finished[ATC] == finished[DP]);
        assert_true(finished[AWC] > finished[ATC]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slack_is_that_of_the_dependencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

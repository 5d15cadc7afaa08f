/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that have made different numbers of steps, or call something else: all of them learn which two ranks do what.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/state.h"
#include "comm/test_engine.h"

enum { OTHER = 1 }; /* the rank that is elsewhere */

typedef struct place {
    int64_t step;
    const char *doing;
} place;

typedef struct trial {
    place others, other;
    const char *text;
} trial;

/* Rank 0 expects numbers of all ranks, and of one come more bytes. */
static void meet_elsewhere(taciti_comm *comm, void *context) {
    const trial *t = context;
    const bool other = taciti_comm_rank(comm) == OTHER;
    const place *here = other ? &t->other : &t->others;
    double numbers[2] = {0};
    char all[64 * 8] = "", mine[64] = "";
    taciti_comm_announce(comm, here->step, here->doing);
    CHECK((other ? taciti_comm_allgather(comm, mine, sizeof mine, all)
                 : taciti_comm_allreduce_f64(comm, numbers, 2, TACITI_OP_SUM)) == TACIT_E_PEER);
    CHECK(taciti_comm_health(comm) == TACIT_E_PEER);
    CHECK(strstr(taciti_error_text(), t->text) != NULL);
    CHECK(strstr(taciti_error_text(), "rank 0 on host") != NULL &&
          strstr(taciti_error_text(), "rank 1 on host") != NULL);
}

static void all_ranks_learn_who_is_elsewhere(void **state) {
    (void)state;
    static trial trials[] = {
        {{8, "exchange"}, {7, "checkpoint"}, " is in step 8, exchange, all-reduce of numbers, and rank 1 on host "},
        {{8, "exchange"}, {7, "checkpoint"}, " in step 7, checkpoint, all-gather; all ranks must make the same steps"},
        {{9, "average of replicas"}, {7, "average of replicas"}, " in step 7, average of replicas, all-gather; all"},
        {{7, "checkpoint"}, {7, "exchange"}, " in step 7, exchange, all-gather; all ranks"}};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        for (int ranks = 2; ranks <= 5; ranks++) {
            const taciti_comm_options options = test_comm_options(ranks % 2 == 0);
            test_log_keep();
            test_world_run(ranks, &options, meet_elsewhere, &trials[i]);
            assert_true(test_log_count("ranks do different things: rank 0 on host") >= 1);
            assert_int_equal(test_log_count("a message of"), 0);
            test_log_drop();
        }
}

enum { MANY = 34, SLOW = 0, NEAR = 4, FAR = 3 }; /* ranks; FAR gets no heartbeats of rank SLOW */

/* One rank waits for rank SLOW, and all others, that one as well, wait for it. */
static void wait_for_a_slow_rank(taciti_comm *comm, void *context) {
    const int rank = taciti_comm_rank(comm), judge = *(const int *)context;
    char byte;
    if (rank == judge) comm->options.stall_s = 0.5;
    taciti_comm_announce(comm, 8, "exchange");
    CHECK(taciti_comm_receive(comm, rank == judge ? SLOW : judge, &byte, 1) == TACIT_E_PEER);
    if (rank != judge) return;
    CHECK(strstr(taciti_error_text(), "rank 0 on host") != NULL &&
          strstr(taciti_error_text(), " is alive but") != NULL);
    CHECK((strstr(taciti_error_text(), "; last seen in step 8, exchange") != NULL) == (judge == NEAR));
}

/* With more than 32 ranks, not every rank hears the heartbeats of every other one. */
static void nothing_is_said_of_a_rank_that_is_not_heard(void **state) {
    (void)state;
    static const int JUDGES[] = {NEAR, FAR};
    const taciti_comm_options options = test_comm_options(false);
    for (size_t i = 0; i < sizeof JUDGES / sizeof *JUDGES; i++) {
        int judge = JUDGES[i];
        test_log_keep();
        test_world_run(MANY, &options, wait_for_a_slow_rank, &judge);
        test_log_drop();
    }
}

/* Every rank waits for the next one, and the last of four for *next, or, below 0, for none. */
static void wait_in_a_row(taciti_comm *comm, void *context) {
    const int rank = taciti_comm_rank(comm), next = rank == 3 ? *(const int *)context : rank + 1;
    char byte;
    if (rank == 0) comm->options.stall_s = 3;
    taciti_comm_announce(comm, 8, next < 0 ? "compute" : "exchange");
    while (next < 0 && taciti_comm_health(comm) == TACIT_OK) (void)taciti_comm_rest(comm);
    if (next >= 0) CHECK(taciti_comm_receive(comm, next, &byte, 1) == TACIT_E_PEER);
}

/* Rank 0, whose patience ends first, waits for rank 1, which waits as well. */
static void the_rank_that_keeps_all_waiting_is_named(void **state) {
    (void)state;
    static const char *const TEXTS[] = {"rank 3 on host", "rank 1 on host"};
    const taciti_comm_options options = test_comm_options(false);
    for (int i = 0; i < 2; i++) {
        int next = i == 0 ? -1 : 1; /* a circle of ranks 1 to 3 */
        test_log_keep();
        test_world_run(4, &options, wait_in_a_row, &next);
        assert_int_equal(test_log_count(TEXTS[i]), 1);
        assert_int_equal(test_log_count("is alive but has kept rank 0 waiting for "), 1);
        test_log_drop();
    }
}

/* Rank 1 has left, and rank 0 waits for it: all others learn of both. */
static void wait_for_who_has_left(taciti_comm *comm, void *context) {
    const int rank = taciti_comm_rank(comm);
    char byte;
    (void)context;
    taciti_comm_announce(comm, rank == 0 ? 9 : 8, rank == 0 ? "exchange" : "finish");
    CHECK((rank == 0 ? taciti_comm_receive(comm, 1, &byte, 1) : taciti_detector_goodbye(comm)) == TACIT_E_PEER);
    CHECK(strstr(taciti_error_text(), rank == 0 ? " has left the job in step 8, finish" : "do different things") !=
          NULL);
    CHECK(rank == 0 || (strstr(taciti_error_text(), "is in step 9, exchange, and rank 1 on") != NULL &&
                        strstr(taciti_error_text(), " in step 8, finish; all") != NULL));
}

static void all_learn_of_a_step_more(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(false);
    test_log_keep();
    test_world_run(3, &options, wait_for_who_has_left, NULL);
    assert_int_equal(test_log_count("all ranks must make the same steps"), 1);
    test_log_drop();
}

/* The next regular beat of rank 1 is far away. */
static void begin_steps(taciti_comm *comm, void *context) {
    _Atomic bool *seen = context;
    const bool tells = taciti_comm_rank(comm) == 1;
    const int64_t end_ns = taciti_now_ns() + 20 * TACITI_NS_PER_S;
    if (tells) comm->detector.next_beat_ns = end_ns;
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    if (tells) taciti_comm_announce(comm, 0, "compute");
    while (!atomic_load(seen)) {
        CHECK(taciti_comm_rest(comm) == TACIT_OK && taciti_now_ns() < end_ns);
        if (!tells) atomic_store(seen, comm->detector.link_of[1]->seen.doing[0] != 0);
    }
}

static void peers_learn_at_once_that_steps_have_begun(void **state) {
    (void)state;
    _Atomic bool seen = false;
    const taciti_comm_options options = test_comm_options(false);
    test_world_run(2, &options, begin_steps, &seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ranks_learn_who_is_elsewhere),
                                       cmocka_unit_test(nothing_is_said_of_a_rank_that_is_not_heard),
                                       cmocka_unit_test(the_rank_that_keeps_all_waiting_is_named),
                                       cmocka_unit_test(all_learn_of_a_step_more),
                                       cmocka_unit_test(peers_learn_at_once_that_steps_have_begun)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

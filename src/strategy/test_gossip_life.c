/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a run with gossip: start, averages, checkpoints at any step, bytes, refusals.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "exchange/test_wire.h"
#include "strategy/test_replicas.h"

/* One of the ways to mix: 0 .. WAYS - 1; the later half are the others on a topology that alternates. */
enum { ORDINARY = 12, WAYS = 2 * ORDINARY, COMPRESSED = 7, POWER = 11 };
static test_replicas way(int which, int ranks, int steps) {
    static const char *const GRAPHS[ORDINARY] =
        {[3] = "ring", [7] = "base-k", [8] = "ring", [9] = "file", [POWER] = "base-k"},
                             *const CODECS[ORDINARY] = {[7] = "int4", [8] = "int8", [9] = "int8", [10] = "signmag2"};
    const bool alternates = which >= ORDINARY;
    which %= ORDINARY;
    test_replicas t = test_replicas_of_adam(ranks, steps, GRAPHS[which] != NULL ? GRAPHS[which] : "exp");
    if (alternates) test_topology(&t, "aer");
    if (alternates) t.gossip.per_host = 2;
    t.codec = CODECS[which];
    if (which == POWER) t.gossip.codec = (taciti_text){TACITI_GOSSIP_POWER};
    t.gossip.order = which == 1 || which == 10 ? TACITI_GOSSIP_ATC : TACITI_GOSSIP_AWC;
    t.gossip.integral = which % 2 == 0 ? 0.1 : 0.3;
    if (which == 2 || which == 3 || which == 8) t.gossip.every = 3;
    if (which == 4) t.gossip.tracker = true;
    if (which == 5) t.exchange.wire = test_wire(1);
    if (which == 6) {
        t.gossip.delay = 1;
        t.gossip.gamma = 0.5;
    }
    return t;
}

/* Steps 1 to 9 cover every place in a window of the optimizer, in gossip.every and in the topology's period. */
static void resumed_is_uninterrupted_at_any_step(void **state) {
    (void)state;
    for (int which = 0; which < WAYS; which++)
        for (int stop = 1; stop < 10; stop += which < 3 ? 1 : 2) {
            test_replicas whole = way(which, 5, 13), cut = whole;
            cut.stop_after = stop;
            assert_true(test_replicas_agree(&whole, &cut));
        }
}

enum { NUMBER, MASS }; /* places in the numbers of a checkpoint */

/* On one rank, and all of them learn of it. */
static void damaged_numbers_are_refused(void **state) {
    (void)state;
    const struct {
        int number;
        double value;
    } cases[] = {{NUMBER, (double)NAN}, {NUMBER, -1}, {NUMBER, 1e300}, {MASS, 0}, {MASS, (double)NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_replicas t = test_replicas_of_adam(3, 4, "exp");
        t.stop_after = 2;
        t.wrong_rank = 1;
        t.wrong_number = cases[i].number;
        t.wrong_value = cases[i].value;
        test_log_keep();
        test_replicas_run(&t);
        for (int r = 0; r < 3; r++) assert_int_equal(t.started[r], TACIT_E_DATA);
        assert_int_equal(test_log_count("numbers of strategy gossip"), 1);
        test_log_drop();
        test_replicas_free(&t);
    }
}

static void every_way_overlapped_is_blocking(void **state) {
    (void)state;
    for (int which = 0; which < WAYS; which++)
        for (int ranks = 1; ranks <= 8; ranks += ranks < 3 ? 1 : 5) {
            test_replicas overlapped = way(which, ranks, 9), blocking = overlapped;
            overlapped.dawdle = true;
            blocking.exchange.overlap = false;
            assert_true(test_replicas_agree(&overlapped, &blocking));
        }
}

/* Nothing that is under way is disturbed, and the outcome is that of a run without. */
static void averaging_leaves_no_trace(void **state) {
    (void)state;
    for (int which = 0; which < WAYS; which++) {
        test_replicas plain = way(which, 3, 8), looked_at = plain;
        looked_at.average_at = 5;
        test_replicas_run(&plain);
        test_replicas_run(&looked_at);
        assert_true(test_replicas_same(&plain, &looked_at));
        for (int r = 0; r < 3; r++) {
            assert_memory_equal(looked_at.averages[r], looked_at.averages[0], plain.n * sizeof(float));
            assert_true(looked_at.distance[r] > 0 && isfinite(looked_at.distance[r]));
        }
        test_replicas_free(&plain);
        test_replicas_free(&looked_at);
    }
}

static void a_complete_mix_leaves_no_distance(void **state) {
    (void)state;
    test_replicas t = test_replicas_of(4, 3);
    test_topology(&t, "complete");
    t.scattered = true;
    t.lr = 0;
    t.average_at = 2;
    test_replicas_run(&t);
    for (int r = 0; r < 4; r++) assert_true(t.distance[r] == 0);
    test_replicas_free(&t);
}

/* Blocking, so that the bytes of a step are sent within the step; whole periods, whose mean is promised. */
static void bytes_are_as_predicted(void **state) {
    (void)state;
    static const char *const topologies[] = {"complete", "ring", "exp", "exp-directed", "aer", "base-k", "file"};
    for (int per_host = 1; per_host <= 3; per_host++)
        for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++)
            for (int kind = 0; kind < 4; kind++) {
                test_replicas t = test_replicas_of_adam(6, 48, topologies[i]);
                t.exchange.overlap = kind == 1; /* atc ends every transfer within its step anyway */
                t.exchange.wire = test_wire(kind % 2);
                t.gossip.order = kind == 1 ? TACITI_GOSSIP_ATC : TACITI_GOSSIP_AWC;
                t.gossip.every = kind == 2 ? 2 : 1;
                t.gossip.tracker = kind == 3;
                t.check_bytes = true;
                test_ranks_per_host(per_host);
                test_replicas_run(&t);
                test_ranks_per_host(0);
                assert_true(t.status == TACIT_OK && t.n > 0);
                test_replicas_free(&t);
            }
}

/* Beside its mix a channel has one array; a rank that hands over has its own as well, a tracker two more. */
static void every_array_is_predicted(void **state) {
    (void)state;
    enum { PLAIN, EVERY = 2, TRACKER = 4, DELAY = 6 };
    size_t bytes[COMPRESSED], array = 0;
    for (int which = 0; which < COMPRESSED; which += 2) {
        test_replicas t = way(which, 5, 3);
        test_replicas_run(&t);
        bytes[which] = t.own_bytes;
        array = t.n * sizeof(float);
        test_replicas_free(&t);
    }
    const size_t mix = bytes[DELAY] - bytes[EVERY] - array;
    assert_true(bytes[PLAIN] > mix + array);
    assert_int_equal(bytes[EVERY] - bytes[PLAIN], array);
    assert_int_equal(bytes[TRACKER] - bytes[PLAIN], mix + 3 * array);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    const struct {
        const char *topology, *says;
        taciti_gossip_options with;
    } cases[] = {
        {"exq", "exq", {.gamma = 1}},
        {"exp", "gossip.delay 1 mixes", {.gamma = 1, .delay = 1}},
        {"exp", "gossip.order awc", {.gamma = .5, .delay = 1, .order = TACITI_GOSSIP_ATC}},
        {"exp", "gossip.every 1", {.gamma = .5, .delay = 1, .every = 2}},
        {"exp", "gossip.tracker", {.gamma = .5, .delay = 1, .tracker = true}},
        {"exp", "gossip.every 1", {.gamma = 1, .tracker = true, .every = 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_replicas t = test_replicas_of_adam(4, 2, cases[i].topology);
        const taciti_text topology = t.gossip.topology;
        t.gossip = cases[i].with;
        t.gossip.topology = topology;
        if (t.gossip.every == 0) t.gossip.every = 1;
        test_log_keep();
        test_replicas_run(&t);
        assert_true(t.status == TACIT_E_CONFIG && t.predicted == TACIT_E_CONFIG);
        assert_true(test_log_count(cases[i].says) >= 1);
        test_log_drop();
        test_replicas_free(&t);
    }
}

/* ---- an alternating graph ------------------------------------------------------------------------------------------
 */

/* x of every rank becomes W x, of the round of this bucket. */
static void mix_expected(const taciti_topology *topology, int64_t number, int half, double *x) {
    double mixed[TEST_MAX_RANKS];
    taciti_topology_mix(topology, taciti_topology_round(topology, number, half), x, mixed);
    memcpy(x, mixed, (size_t)topology->ranks * sizeof *x);
}

/* Element 0 is in the first of two buckets, the last tensor in the other one. */
static void assert_mixed(test_replicas *before, test_replicas *after, const taciti_topology *topology, int steps,
                         int half) {
    const size_t at = half == 0 ? 0 : before->n - 20;
    for (size_t i = at; i < at + 4; i++) {
        double x[TEST_MAX_RANKS];
        for (int r = 0; r < before->ranks; r++) x[r] = (double)before->parameters[r][i];
        for (int64_t step = 0; step < steps; step++) mix_expected(topology, step, half, x);
        for (int r = 0; r < before->ranks; r++) assert_true(fabs((double)after->parameters[r][i] - x[r]) < 0x1p-20);
    }
}

static void buckets_of_an_alternating_graph_have_the_weights_of_their_rounds(void **state) {
    (void)state;
    for (int ranks = 3; ranks <= 7; ranks++)
        for (int steps = 1; steps <= 5; steps++) {
            test_replicas before = test_replicas_of(ranks, 0), after;
            before.scattered = true;
            before.lr = 0;
            before.gossip.per_host = 2;
            test_topology(&before, "aer");
            after = before;
            after.steps = steps;
            test_replicas_run(&before);
            test_replicas_run(&after);
            const taciti_topo_request request = {.name = "aer", .ranks = ranks, .per_host = 2};
            taciti_topology topology;
            assert_int_equal(taciti_topology_create(&request, &topology), TACIT_OK);
            for (int half = 0; half < 2; half++) assert_mixed(&before, &after, &topology, steps, half);
            taciti_topology_destroy(&topology);
            test_replicas_free(&before);
            test_replicas_free(&after);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_is_uninterrupted_at_any_step),
        cmocka_unit_test(damaged_numbers_are_refused),
        cmocka_unit_test(every_way_overlapped_is_blocking),
        cmocka_unit_test(buckets_of_an_alternating_graph_have_the_weights_of_their_rounds),
        cmocka_unit_test(averaging_leaves_no_trace),
        cmocka_unit_test(a_complete_mix_leaves_no_distance),
        cmocka_unit_test(bytes_are_as_predicted),
        cmocka_unit_test(every_array_is_predicted),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

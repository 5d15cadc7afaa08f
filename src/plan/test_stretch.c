/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of buckets taken together, against every bucket by itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>

#include "plan/recursion.h"
#include "plan/stretch.h"

enum { RANKS = 8, ROUNDS = 3, MAX_BUCKETS = 1024, LENGTHS_MAX = 8, FLOATS = 16 };

/* Buckets of lengths that repeat after `different`: 1, 2, ... times 16 floats. */
static void make_layout(taciti_layout *layout, size_t buckets, size_t different) {
    static taciti_bucket list[MAX_BUCKETS];
    *layout = (taciti_layout){.buckets = list, .bucket_count = buckets};
    for (size_t k = 0; k < buckets; k++) {
        list[k] = (taciti_bucket){.offset = layout->n, .n = FLOATS * (1 + k % different), .half = (int)(k % 2)};
        layout->n += list[k].n;
    }
}

typedef struct trial {
    taciti_order order;
    bool overlap, edges;
    bool alternates; /* half of the pairs rest in each of two rounds, of which half of the buckets take the other */
    int every;
    double cv, transfers; /* seconds of all transfers of a round, per second of computing */
    size_t buckets, different;
} trial;

static const int PAIRS[ROUNDS][RANKS] = {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 2, 1, 3, 4, 6, 5, 7}, {0, 4, 1, 5, 2, 6, 3, 7}};

/* Lists the meetings of a round: pairs, or each rank and its neighbours on a ring. */
static size_t meet(const trial *t, size_t round, int ring[RANKS][3], taciti_meeting *out) {
    for (int i = 0; i < RANKS && t->edges; i++) {
        ring[i][0] = i;
        ring[i][1] = (i + 1) % RANKS;
        ring[i][2] = (i + RANKS - 1) % RANKS;
        out[i] = (taciti_meeting){.members = ring[i], .count = 3, .taker = i};
    }
    if (t->edges) return RANKS;
    size_t count = 0;
    for (size_t i = 0; i < RANKS / 2; i++)
        if (!t->alternates || i % 2 == round)
            out[count++] =
                (taciti_meeting){.members = &PAIRS[t->alternates ? 0 : round][2 * i], .count = 2, .taker = -1};
    return count;
}

static double step_of(const trial *t, size_t single) {
    static double own[MAX_BUCKETS], behind[MAX_BUCKETS], ready[MAX_BUCKETS], update[MAX_BUCKETS],
        update_behind[MAX_BUCKETS];
    static double wide[2][MAX_BUCKETS * TACITI_SCENARIOS];
    static bool other[MAX_BUCKETS];
    taciti_draws draws = {0};
    taciti_layout layout;
    taciti_stretches s;
    taciti_meeting meetings[ROUNDS][RANKS];
    taciti_meetings rounds[ROUNDS];
    int ring[RANKS][3];
    double of_length[LENGTHS_MAX];
    make_layout(&layout, t->buckets, t->different);
    assert_int_equal(taciti_stretches_create(&layout, single, t->order == TACITI_ORDER_AWC && !t->overlap, &s),
                     TACIT_OK);
    assert_int_equal(s.length_count, t->different);
    for (size_t i = 0; i < s.length_count; i++) of_length[i] = t->transfers * (double)s.lengths[i] / (double)layout.n;
    taciti_stretches_fill(&s, of_length, own, behind);
    for (size_t i = 0; i < s.count * TACITI_SCENARIOS; i++) {
        wide[0][i] = own[i / TACITI_SCENARIOS];
        wide[1][i] = behind[i / TACITI_SCENARIOS];
    }
    for (size_t i = 0; i < s.length_count; i++) of_length[i] *= 0.2 / t->transfers;
    taciti_stretches_fill(&s, of_length, update, update_behind);
    for (size_t k = 0; k < s.count; k++) {
        const taciti_bucket *last = &layout.buckets[s.list[k].last];
        other[k] = s.list[k].half == 1;
        ready[k] = 1.0 / 3 + 2.0 / 3 * (double)(last->offset + last->n) / (double)layout.n;
    }
    for (size_t r = 0; r < ROUNDS; r++) {
        rounds[r] = (taciti_meetings){.list = meetings[r], .count = meet(t, r, ring, meetings[r])};
        for (size_t m = 0; m < rounds[r].count; m++) {
            meetings[r][m].transfer_s = wide[0];
            meetings[r][m].behind_s = wide[1];
        }
    }
    const taciti_recursion r = {.order = t->order,
                                .overlap = t->overlap,
                                .every = t->every,
                                .ranks = RANKS,
                                .buckets = s.count,
                                .period = t->alternates ? 2 : ROUNDS,
                                .rounds = rounds,
                                .other = t->alternates ? other : NULL,
                                .compute_s = 1,
                                .ready_s = ready,
                                .update_s = update,
                                .update_behind_s = update_behind,
                                .cv = t->cv,
                                .seed = 5,
                                .draws = &draws,
                                .steps = 300};
    taciti_recursion_times times[TACITI_SCENARIOS];
    assert_int_equal(taciti_recursion_run(&r, times), TACIT_OK);
    taciti_draws_destroy(&draws);
    taciti_stretches_destroy(&s);
    return times[0].step_s;
}

static void compare(trial t, double share) {
    static const double transfers[] = {0.3, 0.9, 1.1, 3};
    for (int order = t.edges || t.alternates ? TACITI_ORDER_AWC : TACITI_ORDER_DENSE; order <= TACITI_ORDER_ATC;
         order++)
        for (int overlap = 0; overlap < 2; overlap++)
            for (size_t i = 0; i < sizeof transfers / sizeof *transfers; i++) {
                t.order = (taciti_order)order;
                t.overlap = overlap > 0;
                t.transfers = transfers[i];
                const double every = step_of(&t, SIZE_MAX), some = step_of(&t, TACITI_STRETCHES_SINGLE);
                if (!(fabs(some - every) <= share * every))
                    fail_msg("order %d overlap %d transfers %.1f: %.6f instead of %.6f, off by %.4f %%", order, overlap,
                             transfers[i], some, every, 100 * (some / every - 1));
            }
}

static void equal_buckets_lose_nothing(void **state) {
    (void)state;
    compare((trial){.every = 1, .buckets = 640, .different = 1}, 1e-9);
    compare((trial){.every = 1, .buckets = 640, .different = 1, .cv = 0.1}, 1e-9);
    compare((trial){.every = 2, .buckets = 321, .different = 1, .cv = 0.1}, 1e-9);
}

static void irregular_ones_lose_little(void **state) {
    (void)state;
    compare((trial){.every = 1, .buckets = 600, .different = 7}, 0.003);
    compare((trial){.every = 1, .buckets = 600, .different = 7, .cv = 0.1}, 0.003);
}

/* Runs have both halves in the program and take turns here: what differs is a few buckets at both ends. */
static void runs_that_alternate_lose_little(void **state) {
    (void)state;
    compare((trial){.every = 1, .buckets = 640, .different = 1, .alternates = true}, 0.01);
    compare((trial){.every = 1, .buckets = 600, .different = 7, .alternates = true, .cv = 0.1}, 0.01);
}

static void along_edges_delays_travel_less_far(void **state) {
    (void)state;
    compare((trial){.every = 1, .buckets = 640, .different = 1, .edges = true}, 1e-9);
    compare((trial){.every = 1, .buckets = 600, .different = 7, .edges = true, .cv = 0.1}, 0.01);
}

static void few_buckets_are_taken_one_by_one(void **state) {
    (void)state;
    taciti_layout layout;
    taciti_stretches s;
    make_layout(&layout, TACITI_STRETCHES_SINGLE, 3);
    assert_int_equal(taciti_stretches_create(&layout, TACITI_STRETCHES_SINGLE, false, &s), TACIT_OK);
    assert_int_equal(s.count, TACITI_STRETCHES_SINGLE);
    taciti_stretches_destroy(&s);
    make_layout(&layout, MAX_BUCKETS, 3);
    assert_int_equal(taciti_stretches_create(&layout, TACITI_STRETCHES_SINGLE, false, &s), TACIT_OK);
    assert_int_equal(s.count, 2 * TACITI_STRETCHES_RUNS);
    assert_int_equal(s.list[0].first, 0);
    for (size_t i = 1; i < s.count; i++) assert_int_equal(s.list[i].first, s.list[i - 1].last + 1);
    assert_int_equal(s.list[s.count - 1].last, MAX_BUCKETS - 1);
    taciti_stretches_destroy(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_buckets_lose_nothing),       cmocka_unit_test(irregular_ones_lose_little),
        cmocka_unit_test(runs_that_alternate_lose_little),  cmocka_unit_test(along_edges_delays_travel_less_far),
        cmocka_unit_test(few_buckets_are_taken_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The properties of the recursion. Published values: arXiv 2410.11998's model, simulated for compute times that are
 * normal with mean 1, one bucket, transfers of `c`; see the table of golden numbers below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "plan/recursion.h"

enum { MAX_RANKS = 32, MAX_ROUNDS = 8, MAX_BUCKETS = 8, STEPS = 4000 };

/* A schedule by hand: rounds of groups. */
typedef struct schedule {
    taciti_recursion r;
    taciti_meetings rounds[MAX_ROUNDS];
    taciti_meeting meetings[MAX_ROUNDS][MAX_RANKS];
    int members[MAX_ROUNDS][MAX_RANKS];
    double transfer_s[MAX_ROUNDS][MAX_BUCKETS], ready_s[MAX_BUCKETS], update_s[MAX_BUCKETS];
} schedule;

/* One bucket, no update, one unit of computing. */
static void begin(schedule *s, taciti_order order, int ranks, double cv) {
    memset(s, 0, sizeof *s);
    s->ready_s[0] = 1;
    s->r = (taciti_recursion){.order = order,
                              .overlap = true,
                              .every = 1,
                              .ranks = ranks,
                              .buckets = 1,
                              .rounds = s->rounds,
                              .compute_s = 1,
                              .ready_s = s->ready_s,
                              .update_s = s->update_s,
                              .update_behind_s = s->update_s,
                              .cv = cv,
                              .seed = 1,
                              .steps = STEPS};
}

/* Appends a round whose groups are ranks of equal group_of(). */
static void append(schedule *s, const int *group_of, double transfer_s) {
    const size_t round = s->r.period++;
    taciti_meetings *meetings = &s->rounds[round];
    int *next = s->members[round];
    meetings->list = s->meetings[round];
    for (size_t k = 0; k < MAX_BUCKETS; k++) s->transfer_s[round][k] = transfer_s;
    for (int g = 0; g < s->r.ranks; g++) {
        taciti_meeting meeting = {.members = next, .taker = -1};
        for (int i = 0; i < s->r.ranks; i++)
            if (group_of[i] == g) next[meeting.count++] = i;
        next += meeting.count;
        if (meeting.count > 1) s->meetings[round][meetings->count++] = meeting;
    }
}

static void complete(schedule *s, double transfer_s) {
    const int all[MAX_RANKS] = {0};
    append(s, all, transfer_s);
}

static void exponential(schedule *s, double transfer_s) {
    for (int bit = 1; bit < s->r.ranks; bit *= 2) {
        int group_of[MAX_RANKS];
        for (int i = 0; i < s->r.ranks; i++) group_of[i] = i & ~bit;
        append(s, group_of, transfer_s);
    }
}

/* Hosts of `local` ranks; pairs of hosts take turns in joining: arXiv 2410.11998, figure 12. */
static void alternating(schedule *s, int local, double transfer_s) {
    const int hosts = s->r.ranks / local;
    for (int bit = 1; bit < hosts; bit *= 2)
        for (int turn = 0; turn < 2; turn++) {
            int group_of[MAX_RANKS], pair = 0, number[MAX_RANKS];
            for (int h = 0; h < hosts; h++)
                if ((h & bit) == 0) number[h] = number[h | bit] = pair++;
            for (int i = 0; i < s->r.ranks; i++) {
                const int h = i / local;
                group_of[i] = number[h] % 2 == turn ? h : h & ~bit;
            }
            append(s, group_of, transfer_s);
        }
}

/* All scenarios are the same, and buckets follow each other without a gap. */
static taciti_recursion_times run(schedule *s) {
    static double wide[MAX_ROUNDS][MAX_BUCKETS * TACITI_SCENARIOS];
    taciti_draws draws = {0};
    taciti_recursion_times times[TACITI_SCENARIOS];
    for (size_t round = 0; round < s->r.period; round++) {
        for (size_t i = 0; i < MAX_BUCKETS * TACITI_SCENARIOS; i++)
            wide[round][i] = s->transfer_s[round][i / TACITI_SCENARIOS];
        for (size_t g = 0; g < s->rounds[round].count; g++)
            s->meetings[round][g].transfer_s = s->meetings[round][g].behind_s = wide[round];
    }
    s->r.draws = &draws;
    assert_int_equal(taciti_recursion_run(&s->r, times), TACIT_OK);
    taciti_draws_destroy(&draws);
    for (int c = 1; c < TACITI_SCENARIOS; c++) assert_memory_equal(&times[c], &times[0], sizeof times[0]);
    return times[0];
}

static double step_of(schedule *s) {
    const taciti_recursion_times times = run(s);
    assert_true(times.compute_s <= times.step_s * (1 + 1e-9));
    return times.step_s;
}

static void assert_within(double value, double expected, double share) {
    if (!(fabs(value - expected) <= share * expected))
        fail_msg("%.4f instead of %.4f: off by %+.2f %%", value, expected, 100 * (value / expected - 1));
}

/* ---- golden numbers ---------------------------------------------------------------------------------------------- */

typedef void build_topology(schedule *s, double transfer_s);
static void alternating4(schedule *s, double transfer_s) { alternating(s, 4, transfer_s); }

static double simulate(taciti_order order, int ranks, double cv, build_topology *build, double transfer_s) {
    schedule s;
    begin(&s, order, ranks, cv);
    build(&s, transfer_s);
    return step_of(&s);
}

static void table_of_jitter_without_transfers(void **state) {
    (void)state;
    static const struct {
        int ranks;
        double cv, dense, atc_exp, awc_exp, awc_complete, awc_aer;
    } rows[] = {
        {8, .05, 1.071, 1.043, 1.004, 1.004, 1.002},  {8, .10, 1.142, 1.087, 1.011, 1.014, 1.013},
        {8, .20, 1.285, 1.172, 1.036, 1.049, 1.042},  {16, .10, 1.177, 1.093, 1.012, 1.015, 1.017},
        {16, .20, 1.353, 1.186, 1.045, 1.058, 1.054}, {32, .10, 1.207, 1.099, 1.012, 1.020, 1.020},
        {32, .20, 1.414, 1.197, 1.048, 1.076, 1.060},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int n = rows[i].ranks;
        const double cv = rows[i].cv;
        assert_within(simulate(TACITI_ORDER_DENSE, n, cv, complete, 0), rows[i].dense, .01);
        assert_within(simulate(TACITI_ORDER_ATC, n, cv, exponential, 0), rows[i].atc_exp, .01);
        assert_within(simulate(TACITI_ORDER_AWC, n, cv, exponential, 0), rows[i].awc_exp, .01);
        assert_within(simulate(TACITI_ORDER_AWC, n, cv, complete, 0), rows[i].awc_complete, .01);
        assert_within(simulate(TACITI_ORDER_AWC, n, cv, alternating4, 0), rows[i].awc_aer, .01);
    }
}

static void table_of_transfers_with_jitter(void **state) {
    (void)state;
    static const struct {
        double c, dense, complete, exponential;
    } rows[] = {{.5, 1.68, 1.03, 1.02}, {.9, 2.08, 1.08, 1.05}, {1, 2.18, 1.11, 1.08}, {1.5, 2.68, 1.50, 1.50}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_within(simulate(TACITI_ORDER_DENSE, 16, .1, complete, rows[i].c), rows[i].dense, .01);
        assert_within(simulate(TACITI_ORDER_AWC, 16, .1, complete, rows[i].c), rows[i].complete, .01);
        assert_within(simulate(TACITI_ORDER_AWC, 16, .1, exponential, rows[i].c), rows[i].exponential, .01);
    }
}

static void table_for_several_seeds_is_no_accident(void **state) {
    (void)state;
    for (int64_t seed = 2; seed < 6; seed++) {
        schedule s;
        begin(&s, TACITI_ORDER_AWC, 16, .2);
        complete(&s, 0);
        s.r.seed = seed;
        assert_within(step_of(&s), 1.058, .01);
    }
}

/* ---- without jitter: steady states ------------------------------------------------------------------------------- */

static void dense_exposes_what_backward_cannot_hide(void **state) {
    (void)state;
    static const double backward[4] = {.1, .3, .2, .1}, transfer[4] = {.25, .05, .4, .15};
    schedule s;
    begin(&s, TACITI_ORDER_DENSE, 4, 0);
    complete(&s, 0);
    s.r.buckets = 4;
    double ready = .3, exposed = 0;
    for (int k = 0; k < 4; k++) s.ready_s[k] = ready += backward[k];
    for (int k = 0; k < 4; k++) s.transfer_s[0][k] = transfer[k];
    for (int k = 0; k < 4; k++) s.update_s[k] = .01;
    for (int k = 0; k < 4; k++) {
        double left = 0;
        for (int l = k; l < 4; l++) left += transfer[l] - (l > k ? backward[l] : 0);
        exposed = fmax(exposed, left);
    }
    s.r.compute_s = ready;
    const taciti_recursion_times times = run(&s);
    assert_within(times.step_s - times.compute_s, exposed, 1e-9);
    assert_within(times.step_s, ready + 4 * .01 + exposed, 1e-9);
    s.r.overlap = false;
    assert_within(step_of(&s), ready + 4 * .01 + .85, 1e-9);
}

/* Mean over rounds of max(C, c of the round). */
static void awc_has_a_whole_iteration_for_a_transfer(void **state) {
    (void)state;
    schedule s;
    begin(&s, TACITI_ORDER_AWC, 8, 0);
    alternating(&s, 4, 0);
    s.r.buckets = 4;
    for (int k = 0; k < 4; k++) s.ready_s[k] = 1;
    for (int k = 0; k < 4; k++) s.transfer_s[0][k] = .1;
    for (int k = 0; k < 4; k++) s.transfer_s[1][k] = .6;
    assert_within(step_of(&s), (1 + 2.4) / 2, 1e-9);
    for (int k = 0; k < 4; k++) s.transfer_s[1][k] = .25;
    assert_within(step_of(&s), 1, 1e-9);
    for (int k = 0; k < 4; k++) s.update_s[k] = .05; /* max(C, sum of c) with C = 1.2 */
    assert_within(step_of(&s), 1.2, 1e-9);
    for (int k = 0; k < 4; k++) s.transfer_s[0][k] = s.transfer_s[1][k] = .5;
    assert_within(step_of(&s), 2, 1e-9);
}

static void awc_bounds_a_single_bucket_by_transfer_and_update(void **state) {
    (void)state;
    schedule s;
    begin(&s, TACITI_ORDER_AWC, 4, 0);
    complete(&s, 3);
    s.update_s[0] = .25;
    assert_within(step_of(&s), 3.25, 1e-9); /* c + u > C */
}

static void atc_hides_nothing_but_later_updates(void **state) {
    (void)state;
    schedule s;
    begin(&s, TACITI_ORDER_ATC, 4, 0);
    complete(&s, .5);
    s.r.buckets = 2;
    s.update_s[0] = s.update_s[1] = .2;
    s.ready_s[1] = 1;
    assert_within(step_of(&s), 1 + .2 + .5 + .5, 1e-9);
    s.transfer_s[0][0] = s.transfer_s[0][1] = .1;
    assert_within(step_of(&s), 1 + .2 + .2 + .1, 1e-9);
}

static void rare_exchanges_cost_their_share(void **state) {
    (void)state;
    schedule s;
    begin(&s, TACITI_ORDER_ATC, 4, 0);
    complete(&s, 4);
    s.r.every = 8;
    assert_within(step_of(&s), 1 + 4. / 8, 1e-9);
    s.r.order = TACITI_ORDER_AWC; /* waited for eight steps later */
    assert_within(step_of(&s), 1, 1e-9);
    s.transfer_s[0][0] = 12;
    assert_within(step_of(&s), 12. / 8, 1e-9);
}

/* Whatever the order: compute, updates and transfers one after the other. */
static void without_overlap_everything_adds_up(void **state) {
    (void)state;
    static const taciti_order orders[] = {TACITI_ORDER_DENSE, TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    for (size_t o = 0; o < 3; o++) {
        schedule s;
        begin(&s, orders[o], 4, 0);
        complete(&s, .5);
        s.r.overlap = false;
        s.r.buckets = 2;
        s.r.delay = orders[o] == TACITI_ORDER_AWC; /* which gains nothing then */
        s.update_s[0] = s.update_s[1] = .2;
        s.ready_s[1] = 1;
        assert_within(step_of(&s), 1 + .4 + 2 * .5, 1e-9);
        s.r.every = 8;
        assert_within(step_of(&s), 1 + .4 + 2 * .5 / 8, 1e-9);
    }
}

static void a_delay_gives_transfers_more_time(void **state) {
    (void)state;
    schedule s;
    begin(&s, TACITI_ORDER_AWC, 8, 0);
    alternating(&s, 4, .2);
    s.transfer_s[1][0] = 1.7;
    assert_within(step_of(&s), (1 + 1.7) / 2, 1e-9);
    s.r.delay = 1; /* now only the channel counts: 1.9 of it in two steps */
    assert_within(step_of(&s), 1, 1e-9);
}

/* ---- properties
 * -------------------------------------------------------------------------------------------------------- */

static void longer_transfers_never_make_a_step_shorter(void **state) {
    (void)state;
    static const taciti_order orders[] = {TACITI_ORDER_DENSE, TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    for (size_t o = 0; o < 3; o++) {
        double before = 0;
        for (int i = 0; i <= 20; i++) {
            const double step = simulate(orders[o], 8, .1, alternating4, .1 * i);
            assert_true(step >= before);
            before = step;
        }
    }
}

static void one_rank_waits_for_nobody(void **state) {
    (void)state;
    static const taciti_order orders[] = {TACITI_ORDER_DENSE, TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    for (size_t o = 0; o < 3; o++) {
        schedule s;
        begin(&s, orders[o], 1, 0);
        complete(&s, 5);
        s.update_s[0] = .25;
        assert_within(step_of(&s), 1.25, 1e-9);
    }
}

static void idle_ranks_and_no_compute_are_fine(void **state) {
    (void)state;
    schedule s;
    const int pair_and_two_alone[4] = {0, 0, 1, 2};
    begin(&s, TACITI_ORDER_DENSE, 4, 0);
    append(&s, pair_and_two_alone, 1);
    s.r.compute_s = s.ready_s[0] = 0;
    const taciti_recursion_times times = run(&s);
    assert_within(times.step_s, .5, 1e-9); /* 1 for two of four */
    assert_true(times.compute_s == 0);
}

static void a_rank_that_takes_from_others_leaves_their_channels_alone(void **state) {
    (void)state;
    schedule s;
    begin(&s, TACITI_ORDER_AWC, 2, 0);
    complete(&s, 3);
    s.meetings[0][0].taker = 1; /* 0 receives nothing */
    const taciti_recursion_times times = run(&s);
    assert_within(times.step_s, 2, 1e-9); /* 1 and 3 */
}

/* Two ranks meet in every second round only, with one of two buckets in each mix: 1 to transfer and 1 to compute, one
 * after the other in atc, side by side in awc. */
static void halves_of_the_buckets_take_turns(void **state) {
    (void)state;
    static const bool OTHER[][2] = {{false, true}, {true, false}};
    const int alone[2] = {0, 1}, together[2] = {0, 0};
    for (int first = 0; first < 2; first++)
        for (int awc = 0; awc < 2; awc++) {
            schedule s;
            begin(&s, awc ? TACITI_ORDER_AWC : TACITI_ORDER_ATC, 2, 0);
            append(&s, alone, 1);
            append(&s, together, 1);
            s.r.buckets = 2;
            s.ready_s[1] = 1;
            s.r.other = OTHER[first];
            assert_within(step_of(&s), awc ? 1 : 2, 1e-9);
            s.r.other = NULL;
            assert_within(step_of(&s), awc ? 1.5 : 2, 1e-9); /* both buckets in every second mix */
        }
}

/* A third rank's channel is free where it meets nobody, whichever bucket it met somebody with before. */
static void who_rests_in_a_bucket_has_its_channel_free(void **state) {
    (void)state;
    static const bool OTHER[] = {false, true, false, true};
    const int first[3] = {0, 0, 1}, second[3] = {0, 1, 1};
    schedule s;
    begin(&s, TACITI_ORDER_AWC, 3, 0);
    append(&s, first, 1);
    append(&s, second, 1);
    s.r.buckets = 4;
    s.r.compute_s = s.ready_s[0] = 0;
    s.r.other = OTHER;
    assert_within(step_of(&s), 4, 1e-9); /* rank 1 is in all four */
}

static void the_same_answer_twice(void **state) {
    (void)state;
    const double first = simulate(TACITI_ORDER_AWC, 16, .3, exponential, .9);
    const double second = simulate(TACITI_ORDER_AWC, 16, .3, exponential, .9);
    assert_memory_equal(&first, &second, sizeof first);
}

static void a_straggler_that_stays_holds_everybody_up(void **state) {
    (void)state;
    const double slow[8] = {1, 1, 1, 1.5, 1, 1, 1, 1};
    static const taciti_order orders[] = {TACITI_ORDER_DENSE, TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    for (size_t o = 0; o < 3; o++) {
        schedule s;
        begin(&s, orders[o], 8, 0);
        complete(&s, 0);
        s.r.slow = slow;
        assert_within(step_of(&s), 1.5, 1e-9);
    }
    schedule pairs;
    begin(&pairs, TACITI_ORDER_AWC, 8, 0);
    exponential(&pairs, 0);
    pairs.r.slow = slow;
    assert_within(step_of(&pairs), 1.5, 1e-2); /* through the others, after a while */
    pairs.r.order = TACITI_ORDER_ASYNC;
    assert_within(step_of(&pairs), 8 / (7 + 1 / 1.5), 1e-9); /* unless they wait for nobody */
}

/* Whom all wait for may be any rank: numbers mean nothing. */
static void ranks_are_alike(void **state) {
    (void)state;
    enum { N = 4 };
    static const taciti_order orders[] = {TACITI_ORDER_DENSE, TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    for (size_t o = 0; o < 3; o++)
        for (int variant = 0; variant < 4; variant++) {
            double first = 0;
            for (int slowest = 0; slowest < N; slowest++) {
                double slow[N] = {1, 1, 1, 1};
                schedule s;
                begin(&s, orders[o], N, 0);
                s.r.overlap = variant % 2 == 0;
                s.update_s[0] = 0.5;
                slow[slowest] = 3;
                s.r.slow = slow;
                (variant < 2 ? complete : exponential)(&s, 0.25);
                const double step_s = step_of(&s);
                if (slowest == 0) first = step_s;
                assert_within(step_s, first, 1e-9);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_alike),
        cmocka_unit_test(table_of_jitter_without_transfers),
        cmocka_unit_test(table_of_transfers_with_jitter),
        cmocka_unit_test(table_for_several_seeds_is_no_accident),
        cmocka_unit_test(dense_exposes_what_backward_cannot_hide),
        cmocka_unit_test(awc_has_a_whole_iteration_for_a_transfer),
        cmocka_unit_test(awc_bounds_a_single_bucket_by_transfer_and_update),
        cmocka_unit_test(atc_hides_nothing_but_later_updates),
        cmocka_unit_test(rare_exchanges_cost_their_share),
        cmocka_unit_test(without_overlap_everything_adds_up),
        cmocka_unit_test(a_delay_gives_transfers_more_time),
        cmocka_unit_test(longer_transfers_never_make_a_step_shorter),
        cmocka_unit_test(one_rank_waits_for_nobody),
        cmocka_unit_test(idle_ranks_and_no_compute_are_fine),
        cmocka_unit_test(a_rank_that_takes_from_others_leaves_their_channels_alone),
        cmocka_unit_test(halves_of_the_buckets_take_turns),
        cmocka_unit_test(who_rests_in_a_bucket_has_its_channel_free),
        cmocka_unit_test(the_same_answer_twice),
        cmocka_unit_test(a_straggler_that_stays_holds_everybody_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

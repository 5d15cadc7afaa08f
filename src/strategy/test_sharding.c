/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that hold parts: against dp, which holds everything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "base/clock.h"
#include "strategy/test_sharding.h"

/* ---- properties
 * -------------------------------------------------------------------------------------------------------- */

static void every_stage_is_dp_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++)
        for (size_t passes = 1; passes <= 2; passes++) {
            trial dp = trial_of(RANKS[i], 0);
            dp.passes = passes;
            play(&dp);
            for (int stage = 1; stage <= 3; stage++)
                for (int kind = 0; kind < 8; kind++) {
                    if (test_spares((int)passes + stage + kind / 2)) continue;
                    trial t = trial_of(RANKS[i], stage);
                    t.passes = passes;
                    t.blocking = kind % 2 == 1;
                    t.evaluates = kind / 2 % 2 == 1;
                    t.no_thread = kind == 4;
                    t.whole = kind >= 6;
                    agrees(&t, &dp);
                }
            forget(&dp);
        }
}

/* Pairs, triples, hosts of different sizes, and every way to hold parts. */
static void parts_by_hosts_are_dp_by_hosts(void **state) {
    (void)state;
    static const int HOSTS[][MAX_RANKS] = {{0, 1, 0, 1}, {0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 1, 1, 0, 1}};
    static const int SIZES[] = {4, 6, 6, 5};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        trial dp = trial_of(SIZES[i], 0);
        dp.hosts = HOSTS[i];
        play(&dp);
        for (int kind = 0; kind < 3; kind++)
            for (int stage = kind == 2 ? 3 : 1; stage <= 3; stage++)
                for (int way = 0; way < (stage == 3 && i % 2 == 0 ? 3 : 1); way++) {
                    trial t = trial_of(SIZES[i], stage);
                    t.hosts = HOSTS[i];
                    t.over = kind == 1 ? TACITI_SHARD_OVER_HOST : TACITI_SHARD_OVER_ALL;
                    t.secondary = kind == 2;
                    t.blocking = way == 1;
                    t.evaluates = way == 2;
                    if (kind == 0 && i == 3) continue; /* flat, in another order than dp */
                    agrees(&t, &dp);
                }
        forget(&dp);
    }
}

/* A run that is one step longer. NORM: messages of a sum of doubles. */
static void bytes_of_a_step_are_predicted(void **state) {
    (void)state;
    static const int HOSTS[][MAX_RANKS] = {{0, 0, 1, 1, 2, 2}, {0, 1, 1, 0, 1}};
    static const int SIZES[] = {6, 5};
    enum { NORM = 3 * sizeof(double) };
    for (size_t i = 0; i < 2; i++)
        for (int kind = 0; kind < 9; kind++) {
            trial dp = trial_of(SIZES[i], 0), t[2];
            uint64_t away[MAX_RANKS] = {0};
            dp.hosts = HOSTS[i];
            play(&dp);
            for (int k = 0; k < 2; k++) {
                t[k] = trial_of(SIZES[i], 3 - kind % 3);
                t[k].hosts = HOSTS[i];
                t[k].over = kind / 3 == 1 ? TACITI_SHARD_OVER_HOST : TACITI_SHARD_OVER_ALL;
                t[k].secondary = kind == 6;
                t[k].gather = kind == 7 ? TACITI_SHARD_BF16 : TACITI_SHARD_F32;
                t[k].steps = STEPS - 1 + k;
                t[k].expected = kind < 7 && !(i == 1 && kind < 3) ? &dp : &t[k];
                play(&t[k]);
            }
            for (int r = 0; r < SIZES[i]; r++) {
                assert_in_range(t[1].sent[r] - t[0].sent[r], t[1].per_step[r], t[1].per_step[r] + NORM);
                away[HOSTS[i][r]] += t[1].away[r] - t[0].away[r];
            }
            uint64_t most = 0;
            for (int h = 0; h < SIZES[i]; h++) most = away[h] > most ? away[h] : most;
            /* parts of a bucket are multiples of 16 floats, and 8 or 6 pairs of ranks talk across a link */
            assert_true(fabs((double)most - t[1].planned) <= t[1].transfers * 8 * 64 + SIZES[i] * NORM);
            forget(&dp);
            for (int k = 0; k < 2; k++) forget(&t[k]);
        }
}

static void every_optimizer_is_updated_in_parts(void **state) {
    (void)state;
    static const int NAMES[] = {TACITI_OPTIM_SGD, TACITI_OPTIM_ADAM, TACITI_OPTIM_ACCUM_ADAMW, TACITI_OPTIM_ACCUM_ADAM};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        trial dp = trial_of(3, 0);
        dp.optim.name = NAMES[i];
        dp.optim.accum = 3;
        dp.optim.momentum = 0.9;
        play(&dp);
        trial t = trial_of(3, 3);
        t.optim = dp.optim;
        agrees(&t, &dp);
        forget(&dp);
    }
}

/* The squares are added in another order. */
static void clipping_is_that_of_dp_up_to_rounding(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++) {
        trial dp = trial_of(RANKS[i], 0);
        dp.optim.clip = 0.5;
        play(&dp);
        for (int stage = 1; stage <= 3; stage++) {
            trial t = trial_of(RANKS[i], stage);
            t.optim = dp.optim;
            play(&t);
            for (int r = 0; r < t.ranks; r++) {
                assert_memory_equal(t.parameters[r], t.parameters[0], t.n * sizeof(float));
                for (int s = 0; s < STEPS; s++) assert_true(t.reports[r][s].grad_norm > dp.optim.clip);
            }
            for (size_t k = 0; k < t.n; k++) assert_true(fabsf(t.parameters[0][k] - dp.parameters[0][k]) <= 1e-5F);
            forget(&t);
        }
        forget(&dp);
    }
}

static void a_bad_gradient_anywhere_makes_all_skip(void **state) {
    (void)state;
    static const float BAD[] = {NAN, INFINITY};
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int bad_rank = 0; bad_rank < ranks; bad_rank++) {
            trial dp = trial_of(ranks, 0);
            dp.bad = BAD[bad_rank % 2];
            dp.bad_rank = bad_rank;
            play(&dp);
            for (int s = 0; s < STEPS; s++) assert_true(dp.reports[0][s].skipped == (s == BAD_STEP));
            for (int stage = 1; stage <= 3; stage++) {
                trial t = trial_of(ranks, stage);
                t.bad = dp.bad;
                t.bad_rank = bad_rank;
                agrees(&t, &dp);
            }
            forget(&dp);
        }
}

/* Gradients on a 16-bit wire are rounded once, then added in f32: the ranks agree, whatever the stage. */
static void stages_agree_on_every_wire_and_gather(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks += 3)
        for (int kind = 1; kind < 4; kind++) {
            trial first = trial_of(ranks, 1);
            first.wire = kind & 1;
            first.gather = kind >> 1;
            play(&first);
            for (int stage = 1; stage <= 3; stage++) {
                trial t = trial_of(ranks, stage);
                t.wire = first.wire;
                t.gather = first.gather;
                t.blocking = stage == 1;
                agrees(&t, &first);
            }
            forget(&first);
        }
}

/* T14: a rank's gradient is divided by the number of ranks before the sum. All send ones: where that number is a power
 * of two, the sum of squares is the number of parameters; elsewhere N equal terms have been rounded. */
static void the_mean_of_ones_is_one(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++)
        for (int stage = 0; stage <= 3; stage++) {
            trial t = trial_of(RANKS[i], stage);
            const double count = 17 + 5 + 9000 + 33 + 7000 + 1 + 12000, n = RANKS[i];
            const bool exact = (RANKS[i] & (RANKS[i] - 1)) == 0;
            t.gradients = MEANS;
            play(&t);
            for (int s = 0; s < STEPS; s++) {
                const double norm = t.reports[0][s].grad_norm;
                assert_true(exact ? norm * norm - count < 1e-9 * count && norm == sqrt(count)
                                  : fabs(norm / sqrt(count) - 1) <= n * 0x1p-24);
            }
            forget(&t);
        }
}

/* T10, as the cut is here: lines of 16 floats go to ranks, and the last part may end with a short one. No padding. */
static void parts_of_a_bucket_cover_it(void **state) {
    (void)state;
    static const size_t SIZES[] = {2359296, 768, 100, 17, 16, 15, 4, 1, 0};
    for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; k++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            const taciti_bucket bucket = {.offset = 48, .n = SIZES[k]};
            size_t at = bucket.offset, min = SIZE_MAX, max = 0;
            for (int r = 0; r < ranks; r++) {
                const taciti_range part = taciti_shard_range(&bucket, (taciti_shard_part){r, ranks});
                assert_true(part.n == 0 || part.at == at);
                assert_true(part.n % 16 == 0 || at + part.n == bucket.offset + bucket.n);
                at += part.n;
                min = part.n < min ? part.n : min;
                max = part.n > max ? part.n : max;
            }
            assert_int_equal(at, bucket.offset + bucket.n);
            assert_true(max - min <= 16);
        }
    const taciti_bucket unit = {.n = 2359296}; /* the specification pads to 471,860 and 337,043 floats */
    assert_int_equal(taciti_shard_range(&unit, (taciti_shard_part){0, 5}).n, 471856);
    assert_int_equal(taciti_shard_range(&unit, (taciti_shard_part){0, 7}).n, 337040);
    assert_int_equal(taciti_shard_range(&unit, (taciti_shard_part){-1, 7}).n, 0);
}

/* An evaluation, or a network that asks in another order, may find the room taken by units that were fetched ahead. */
static void room_is_not_made_of_what_is_in_use(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++) {
        trial dp = trial_of(RANKS[i], 0), t = trial_of(RANKS[i], 3);
        play(&dp);
        t.strays = true;
        agrees(&t, &dp);
        forget(&dp);
    }
}

#define LATE_NS TACITI_NS_PER_S /* a busy machine must not hide it */
#define HOUR_NS (3600 * TACITI_NS_PER_S)

/* Rank 1 updates late, so rank 0 waits for its part of the gather behind the update. */
static void update_late(taciti_comm *comm, void *context) {
    seat s;
    taciti_step_report report;
    open_seat(context, comm, &s);
    initialise(&s);
    CHECK(s.strategy->start(s.self, 0, false) == TACIT_OK);
    CHECK(((taciti_shard *)s.self)->wait_ns == 0); /* what a start has waited for is no step's */
    taciti_readiness_reset(&s.readiness);
    pass(&s, 0);
    CHECK(s.strategy->settle(s.self, 0.01, &report) == TACIT_OK);
    if (s.rank == 1) taciti_sleep_ns(LATE_NS);
    const int64_t before_ns = report.wait_ns;
    CHECK(s.strategy->stepped(s.self, &report) == TACIT_OK);
    CHECK(s.rank == 1 || report.wait_ns - before_ns > LATE_NS / 2);
    CHECK(((taciti_shard *)s.self)->wait_ns == 0); /* the next step has waited for nothing yet */
    ((taciti_shard *)s.self)->behind_ns = HOUR_NS; /* as if that gather had lasted so long */
    taciti_readiness_reset(&s.readiness);
    pass(&s, 1);
    CHECK(s.strategy->settle(s.self, 0.01, &report) == TACIT_OK && report.wait_ns >= 0 && report.wait_ns < HOUR_NS);
    CHECK(s.strategy->stepped(s.self, &report) == TACIT_OK);
    close_seat(&s);
}

static void a_wait_counts_in_its_own_step(void **state) {
    (void)state;
    trial t = trial_of(2, 1);
    t.whole = true;
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(t.ranks, &options, update_late, &t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_is_dp_bit_for_bit),
        cmocka_unit_test(parts_by_hosts_are_dp_by_hosts),
        cmocka_unit_test(bytes_of_a_step_are_predicted),
        cmocka_unit_test(every_optimizer_is_updated_in_parts),
        cmocka_unit_test(clipping_is_that_of_dp_up_to_rounding),
        cmocka_unit_test(a_bad_gradient_anywhere_makes_all_skip),
        cmocka_unit_test(stages_agree_on_every_wire_and_gather),
        cmocka_unit_test(the_mean_of_ones_is_one),
        cmocka_unit_test(parts_of_a_bucket_cover_it),
        cmocka_unit_test(room_is_not_made_of_what_is_in_use),
        cmocka_unit_test(a_wait_counts_in_its_own_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

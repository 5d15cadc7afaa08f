/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks tell each other about a step: sums and the slowest are the same on every rank, and become known at once
 * where replicas are equal, some steps later where they differ.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "comm/test_engine.h"
#include "train/trainer.h"

enum { RANKS = 3, STEPS = 40, BATCH = 6, TIME = 5 };

typedef struct trial {
    taciti_strategy strategy;
    taciti_train_settings settings;
    size_t lag;
    size_t late; /* expected */
} trial;

static taciti_trainer trainer_of(trial *t, taciti_comm *comm) {
    taciti_trainer trainer = {.comm = comm, .settings = &t->settings, .strategy = &t->strategy, .time = TIME};
    trainer.rank = taciti_comm_rank(comm);
    trainer.ranks = taciti_comm_size(comm);
    CHECK(taciti_reports_create(&trainer, t->lag) == TACIT_OK);
    CHECK(trainer.reports.late == t->late);
    return trainer;
}

/* Rank 1 is the slowest of even steps, rank 2 of odd ones; rank 0 skips every fourth step. */
static taciti_rank_report report_of(int rank, int step) {
    return (taciti_rank_report){.loss_sum = 30.0 * (rank + 1) * (step + 1),
                                .compute_s = rank == 1 + step % 2 ? 5 : 1 + rank,
                                .skipped = rank == 0 && step % 4 == 0,
                                .moved = rank + step};
}

static void expect_entry(const trial *t, const taciti_step_entry *entry, int step, int64_t skipped) {
    const taciti_step_metrics *m = &entry->metrics;
    const bool skips = step % 4 == 0;
    CHECK(entry->known && !entry->stop && !entry->abandoned);
    CHECK(entry->skips == (skips ? 1 : 0) && m->skipped == skipped + (skips ? 1 : 0));
    CHECK(m->loss == 30.0 * 6 * (step + 1) / (BATCH * TIME));
    CHECK(m->slowest_rank == 1 + step % 2 && m->slowest_s == 5 && m->fastest_s == 1);
    if (t->strategy.replicas == NULL)
        CHECK(isnan(m->consensus));
    else
        CHECK(m->consensus == sqrt((3.0 + 3.0 * step) / RANKS));
}

static void report_steps(taciti_comm *comm, void *context) {
    trial *t = context;
    taciti_trainer trainer = trainer_of(t, comm);
    int known = 0;
    int64_t skipped = 0;
    for (int step = 0; step < STEPS; step++) {
        const taciti_rank_report mine = report_of(trainer.rank, step);
        taciti_step_entry *entry = NULL;
        CHECK(taciti_reports_put(&trainer, &mine, &entry) == TACIT_OK);
        CHECK(entry == taciti_reports_newest(&trainer.reports) && !entry->known);
        if (step + 1 == STEPS) CHECK(taciti_reports_collect(&trainer, 0) == TACIT_OK);
        CHECK(taciti_reports_collect(&trainer, t->late) == TACIT_OK);
        while ((entry = taciti_reports_oldest_known(&trainer.reports)) != NULL) {
            expect_entry(t, entry, known++, skipped);
            skipped = entry->metrics.skipped;
            taciti_reports_drop_oldest(&trainer.reports);
        }
        CHECK(known == (step + 1 == STEPS ? STEPS : (size_t)step + 1 > t->late ? step + 1 - (int)t->late : 0));
    }
    CHECK(trainer.position.skipped == skipped && skipped == STEPS / 4);
    taciti_reports_destroy(&trainer.reports);
}

static const taciti_replica_verbs OWN; /* of replicas that differ; nobody calls them */

static void run(int ranks, bool equal, size_t lag, size_t late, test_rank *rank) {
    const taciti_comm_options options = test_comm_options(true);
    static trial t;
    t = (trial){.strategy = {.replicas = equal ? NULL : &OWN}, .lag = lag, .late = late};
    assert_int_equal(taciti_train_settings_init(&t.settings), TACIT_OK);
    t.settings.train.batch = BATCH;
    test_world_run(ranks, &options, rank, &t);
    taciti_settings_destroy(&t.settings.job);
}

static void reports_are_known_when_they_should_be(void **state) {
    (void)state;
    run(RANKS, true, 0, 0, report_steps);
    run(RANKS, true, 7, 0, report_steps);
    run(RANKS, false, 0, 2, report_steps);
    run(RANKS, false, 1, 3, report_steps);
    run(RANKS, false, 7, 9, report_steps);
    run(RANKS, false, 8, 10, report_steps);
    run(RANKS, false, 50, 10, report_steps); /* a stop must not take longer */
}

static void put(taciti_trainer *trainer, taciti_rank_report mine, taciti_step_entry **entry) {
    CHECK(taciti_reports_put(trainer, &mine, entry) == TACIT_OK);
    CHECK(taciti_reports_collect(trainer, 0) == TACIT_OK);
}

/* One rank asks to stop; one leaves a step, which then is nobody's. */
static void report_wishes(taciti_comm *comm, void *context) {
    taciti_trainer trainer = trainer_of(context, comm);
    const bool last = trainer.rank == RANKS - 1;
    taciti_step_entry *entry = NULL;
    put(&trainer, (taciti_rank_report){.skipped = 1}, &entry);
    CHECK(!taciti_reports_stop(&trainer.reports) && entry->skips == 1);
    taciti_reports_drop_oldest(&trainer.reports);
    put(&trainer, (taciti_rank_report){.stop = last, .abandoned = last, .skipped = 1}, &entry);
    CHECK(taciti_reports_stop(&trainer.reports) && entry->stop && entry->abandoned && entry->skips == 0);
    taciti_reports_take_back(&trainer.reports);
    CHECK(trainer.reports.count == 0 && taciti_reports_stop(&trainer.reports)); /* the wish stays known */
    CHECK(taciti_reports_oldest_known(&trainer.reports) == NULL && trainer.position.skipped == 1);
    taciti_reports_destroy(&trainer.reports);
}

static void wishes_to_stop_are_known_to_all(void **state) {
    (void)state;
    run(RANKS, true, 0, 0, report_wishes);
}

/* A report of skipped updates counts as at most one, whatever arrives. */
static void report_nonsense(taciti_comm *comm, void *context) {
    static const double values[] = {-3, 1e300, (double)INFINITY};
    static const int64_t expected[] = {0, RANKS, RANKS};
    taciti_trainer trainer = trainer_of(context, comm);
    for (size_t i = 0; i < 3; i++) {
        taciti_step_entry *entry = NULL;
        put(&trainer, (taciti_rank_report){.skipped = values[i]}, &entry);
        CHECK(entry->skips == expected[i]);
        taciti_reports_drop_oldest(&trainer.reports);
    }
    taciti_reports_destroy(&trainer.reports);
}

static void skips_are_at_most_one_per_rank(void **state) {
    (void)state;
    run(RANKS, false, 0, 2, report_nonsense);
}

static void fill_up(taciti_comm *comm, void *context) {
    taciti_trainer trainer = trainer_of(context, comm);
    const taciti_rank_report mine = {.stop = 0};
    taciti_step_entry *entry = NULL;
    CHECK(taciti_reports_put(&trainer, &mine, &entry) == TACIT_OK);
    CHECK(taciti_reports_put(&trainer, &mine, &entry) == TACIT_OK);
    CHECK(taciti_reports_put(&trainer, &mine, &entry) == TACIT_E_INTERNAL);
    taciti_reports_destroy(&trainer.reports);
}

static void steps_without_a_line_are_limited(void **state) {
    (void)state;
    run(1, true, 0, 0, fill_up);
    run(1, false, 5, 0, fill_up); /* alone, nothing is on its way */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_are_known_when_they_should_be),
        cmocka_unit_test(wishes_to_stop_are_known_to_all),
        cmocka_unit_test(skips_are_at_most_one_per_rank),
        cmocka_unit_test(steps_without_a_line_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

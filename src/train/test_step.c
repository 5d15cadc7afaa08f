#define _POSIX_C_SOURCE 200809L
/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of a trainer: samples and micro-batches, steps that are skipped, what a step's entry says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/test_engine.h"
#include "train/trainer.h"

enum { MAX_RANKS = 3, MAX_STEPS = 4, TIME = 4 };

/* A task for the ranks, and its outcome. */
typedef struct trial {
    int ranks, steps;
    const char *const *settings; /* key, value, ..., NULL */
    float *parameters[MAX_RANKS][MAX_STEPS + 1];
    taciti_step_metrics metrics[MAX_RANKS][MAX_STEPS];
    int64_t skips[MAX_STEPS];
    taciti_position position[MAX_RANKS];
    size_t spans[MAX_RANKS]; /* of data: one per micro-batch */
    size_t n;
    taciti_strategy_figures figures[MAX_RANKS];
} trial;

static void set(taciti_train_settings *settings, const char *key, const char *value) {
    CHECK(taciti_config_set(&settings->job.config, key, value, "test") == TACIT_OK);
}

static void configure(const trial *t, taciti_train_settings *settings) {
    static const char *const small[] = {"run.quiet",
                                        "true",
                                        "run.trace",
                                        "true",
                                        "model.layers",
                                        "1",
                                        "model.heads",
                                        "1",
                                        "model.channels",
                                        "4",
                                        "model.context",
                                        "4",
                                        "train.threads",
                                        "1",
                                        "exchange.bucket",
                                        "1KiB",
                                        "optim.warmup",
                                        "0",
                                        "train.batch",
                                        "6",
                                        NULL};
    CHECK(taciti_train_settings_init(settings) == TACIT_OK);
    for (size_t i = 0; small[i] != NULL; i += 2) set(settings, small[i], small[i + 1]);
    for (size_t i = 0; t->settings[i] != NULL; i += 2) set(settings, t->settings[i], t->settings[i + 1]);
}

static float *copy_parameters(const taciti_trainer *trainer) {
    float *copy = taciti_calloc(trainer->layout.n, sizeof *copy);
    CHECK(copy != NULL);
    memcpy(copy, taciti_model_parameters(trainer->model), trainer->layout.n * sizeof *copy);
    return copy;
}

/* The entry of the newest step, which is known by the end of it or of the next. */
static void make_step(trial *t, taciti_trainer *trainer, int step) {
    CHECK(taciti_trainer_step(trainer, false) == TACIT_OK);
    CHECK(taciti_reports_collect(trainer, 0) == TACIT_OK);
    const taciti_step_entry *entry = taciti_reports_oldest_known(&trainer->reports);
    CHECK(entry != NULL);
    t->metrics[trainer->rank][step] = entry->metrics;
    if (trainer->rank == 0) t->skips[step] = entry->skips;
    taciti_reports_drop_oldest(&trainer->reports);
}

static void run_rank(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    const taciti_train_request request = {.resume = false};
    taciti_train_settings settings;
    taciti_trainer trainer;
    configure(t, &settings);
    CHECK(taciti_trainer_prepare(&trainer, comm, &settings, &request) == TACIT_OK);
    CHECK(taciti_trainer_build(&trainer) == TACIT_OK && taciti_trainer_initialise(&trainer) == TACIT_OK);
    t->parameters[rank][0] = copy_parameters(&trainer);
    for (int step = 0; step < t->steps; step++) {
        make_step(t, &trainer, step);
        t->parameters[rank][step + 1] = copy_parameters(&trainer);
    }
    for (size_t i = 0; i < trainer.trace.count; i++) t->spans[rank] += trainer.trace.spans[i].kind == TACITI_SPAN_DATA;
    const taciti_strategy_context c = taciti_trainer_context(&trainer);
    CHECK(trainer.strategy->describe(&c, taciti_driver_strategy(trainer.driver), &t->figures[rank]) == TACIT_OK);
    t->position[rank] = trainer.position;
    if (rank == 0) t->n = trainer.layout.n;
    taciti_trainer_close(&trainer);
    taciti_settings_destroy(&settings.job);
}

static trial play(int ranks, const char *const *settings) {
    const taciti_comm_options options = test_comm_options(true);
    trial t = {.ranks = ranks, .steps = MAX_STEPS, .settings = settings};
    test_log_keep();
    test_world_run(ranks, &options, run_rank, &t);
    test_log_drop();
    return t;
}

static void forget(trial *t) {
    for (int r = 0; r < t->ranks; r++)
        for (int s = 0; s <= t->steps; s++) taciti_free(t->parameters[r][s]);
}

static bool same(const trial *t, int rank, int step, int other_rank, int other_step) {
    return memcmp(t->parameters[rank][step], t->parameters[other_rank][other_step], t->n * sizeof(float)) == 0;
}

static void near(double a, double b) { assert_true(fabs(a - b) <= 1e-5 * fabs(b)); }

/* Six samples as 3 + 3, 2 + 1 and so on: the same samples, loss and norm of the gradient, as many passes. */
static void samples_do_not_depend_on_ranks_and_micro_batches(void **state) {
    (void)state;
    static const char *const whole[] = {NULL}, *const small[] = {"train.micro_batch", "2", NULL};
    trial one = play(1, whole);
    assert_int_equal(one.spans[0], MAX_STEPS);
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        trial t = play(ranks, small);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(t.spans[r], MAX_STEPS * ((6 / ranks + 1) / 2));
            assert_int_equal(t.position[r].step, MAX_STEPS);
            assert_int_equal(t.position[r].tokens, MAX_STEPS * 6 * TIME);
            for (int s = 0; s < MAX_STEPS; s++) {
                near(t.metrics[r][s].loss, one.metrics[0][s].loss);
                near(t.metrics[r][s].grad_norm, one.metrics[0][s].grad_norm);
                assert_true(same(&t, r, s + 1, 0, s + 1));
                assert_false(same(&t, r, s + 1, r, s));
            }
        }
        forget(&t);
    }
    forget(&one);
}

/* A rank that has no sample takes part all the same. */
static void a_rank_without_samples_makes_an_empty_pass(void **state) {
    (void)state;
    static const char *const settings[] = {"train.batch", "1", NULL};
    trial one = play(1, settings), three = play(3, settings);
    for (int r = 0; r < 3; r++)
        for (int s = 0; s < MAX_STEPS; s++) {
            near(three.metrics[r][s].loss, one.metrics[0][s].loss);
            assert_true(same(&three, r, s + 1, 0, s + 1));
        }
    forget(&one);
    forget(&three);
}

/* The last rank's gradient of two steps is not finite: with dp nobody updates, with replicas that differ that rank
 * alone does not. */
static void a_step_that_is_not_finite_is_skipped(void **state) {
    (void)state;
    static const char *const dp[] = {NULL};
    static const char *const local[] = {"strategy", "localsgd", "localsgd.every", "100", NULL};
    assert_int_equal(setenv("TACIT_FAIL_AT", "1:2", 1), 0);
    trial all = play(2, dp), alone = play(2, local);
    assert_int_equal(unsetenv("TACIT_FAIL_AT"), 0);
    for (int s = 0; s < MAX_STEPS; s++) {
        const bool bad = s == 1 || s == 2;
        assert_int_equal(all.skips[s], bad ? 1 : 0);
        assert_int_equal(alone.skips[s], bad ? 1 : 0);
        assert_int_equal(isfinite(all.metrics[0][s].grad_norm) != 0, !bad);
        assert_int_equal(same(&all, 0, s + 1, 0, s), bad);
        assert_int_equal(same(&all, 1, s + 1, 1, s), bad);
        assert_false(same(&alone, 0, s + 1, 0, s));
        assert_int_equal(same(&alone, 1, s + 1, 1, s), bad);
    }
    assert_int_equal(all.position[0].skipped, 2);
    forget(&all);
    forget(&alone);
}

static void an_entry_tells_times_and_bytes(void **state) {
    (void)state;
    static const char *const settings[] = {NULL};
    trial t = play(2, settings);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < MAX_STEPS; s++) {
            const taciti_step_metrics *m = &t.metrics[r][s];
            assert_true(m->compute_s > 0 && m->update_s > 0 && m->wait_s >= 0);
            assert_true(m->step_s >= m->compute_s + m->update_s && m->tokens_per_s > 0);
            assert_true(m->bytes_sent >= t.figures[r].sent_bytes && m->bytes_sent < t.figures[r].sent_bytes + 1024);
            assert_int_equal(m->step, s + 1);
        }
    forget(&t);
}

/* Mixes are under way between two steps as well, where nothing else is sent. */
static void bytes_between_steps_count(void **state) {
    (void)state;
    static const char *const settings[] = {
        "strategy", "gossip", "gossip.topology", "complete", "gossip.start", "0", "gossip.denoise", "0", NULL};
    trial t = play(2, settings);
    for (int r = 0; r < 2; r++) {
        uint64_t sent = 0, mixes = (uint64_t)MAX_STEPS * t.figures[r].sent_bytes;
        for (int s = 0; s < MAX_STEPS; s++) sent += t.metrics[r][s].bytes_sent;
        assert_true(sent >= mixes && sent <= mixes + t.figures[r].sent_bytes + MAX_STEPS * 1024);
    }
    forget(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_do_not_depend_on_ranks_and_micro_batches),
        cmocka_unit_test(a_rank_without_samples_makes_an_empty_pass),
        cmocka_unit_test(a_step_that_is_not_finite_is_skipped),
        cmocka_unit_test(an_entry_tells_times_and_bytes),
        cmocka_unit_test(bytes_between_steps_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

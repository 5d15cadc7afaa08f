/* SPDX-License-Identifier: Apache-2.0
 *
 * A compressed job that goes on at another number of ranks: what the former ranks have not sent moves the parameters as
 * far as it would have moved them there.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>

#include "api/test_jobs.h"
#include "base/rng.h"
#include "ckpt/test_folder.h"

enum { FORMERS = 3, STEPS = 4, FLOATS = 320 };
#define LR 0.125

typedef struct trial {
    const char *strategy, *stored; /* settings */
    double rounding;               /* by which sums may differ */
    const char *folder;
} trial;

static double gradient(int rank, int step, size_t i) {
    return (double)taciti_rng_below(taciti_rng_key((uint64_t)rank, (uint64_t)step), i, 9) - 4;
}

/* Returns the value that SGD reaches from 0 where everything is sent. */
static double expected(size_t i) {
    double sum = 0;
    for (int step = 0; step < STEPS; step++)
        for (int rank = 0; rank < FORMERS; rank++) sum += gradient(rank, step, i);
    return -LR * sum;
}

static double largest_defect(tacit_job *job) {
    double max = 0;
    for (size_t i = 0; i < FLOATS; i++) max = fmax(max, fabs((double)tacit_job_parameters(job)[i] - expected(i)));
    return max;
}

static tacit_job *open_trial(tacit_comm *comm, const trial *t, const char *factor) {
    const char *const settings[] = {t->strategy,          t->stored,           factor,
                                    "localsgd.every=1",   "optim.name=sgd",    "optim.momentum=0",
                                    "optim.lr=0.125",     "optim.clip=0",      "optim.weight_decay=0",
                                    "optim.warmup=0",     "compress.warmup=0", "optim.schedule=constant",
                                    "compress.codec=topk"};
    tacit_settings *made = NULL;
    tacit_layout *layout = NULL;
    tacit_job *job = NULL;
    const tacit_job_options options = {.size = sizeof options, .threads = 1};
    OK(tacit_settings_create(&made));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) OK(tacit_settings_set(made, settings[i]));
    OK(tacit_layout_create(&layout));
    OK(tacit_layout_add(layout, "all", 1, (const size_t[]){FLOATS}, 0));
    OK(tacit_job_open(comm, made, layout, &options, &job));
    tacit_layout_destroy(layout);
    tacit_settings_destroy(made);
    return job;
}

static void save_trial(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    tacit_job *job = open_trial(seat_of(comm, &seat), t, "compress.factor=40");
    OK(tacit_job_start(job));
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < FLOATS; i++)
            tacit_job_gradients(job)[i] = (float)gradient(taciti_comm_rank(comm), step, i);
        OK(tacit_job_ready(job, TACIT_ALL_TENSORS));
        OK(tacit_job_finish(job, NULL));
    }
    CHECK(largest_defect(job) > 0.5);
    OK(tacit_job_save(job, t->folder, 1, NULL, 0));
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

/* A dense step sends what is left. */
static void go_on(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    bool found = false;
    tacit_job *job = open_trial(seat_of(comm, &seat), t, "compress.factor=1");
    OK(tacit_job_load(job, t->folder, NULL, 0, &found));
    CHECK(found && largest_defect(job) > 0.5);
    memset(tacit_job_gradients(job), 0, FLOATS * sizeof(float));
    OK(tacit_job_ready(job, TACIT_ALL_TENSORS));
    OK(tacit_job_finish(job, NULL));
    CHECK(largest_defect(job) <= t->rounding);
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

/* The sum of localsgd is divided by the number of ranks, and that of the others is not. */
static void what_was_not_sent_moves_as_far_on_other_ranks(void **state) {
    static const trial TRIALS[] = {{"strategy=localsgd", "compress.residual=f32", 1e-5, NULL},
                                   {"strategy=localsgd", "compress.residual=bf16", 0.05, NULL},
                                   {"strategy=localsgd", "compress.residual=int8", 0.15, NULL},
                                   {"strategy=dp", "compress.residual=f32", 1e-5, NULL},
                                   {"strategy=shard", "compress.residual=f32", 1e-5, NULL}};
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    for (size_t i = 0; i < sizeof TRIALS / sizeof *TRIALS; i++) {
        const test_path folder = folder_create();
        trial t = TRIALS[i];
        t.folder = folder.text;
        test_world_run(FORMERS, &options, save_trial, &t);
        for (int ranks = 2; ranks <= 5; ranks++) test_world_run(ranks, &options, go_on, &t);
        folder_remove(&folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_not_sent_moves_as_far_on_other_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

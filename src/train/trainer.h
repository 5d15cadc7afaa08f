/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run in memory, shared by the files of this folder.
 */
#ifndef TACITI_TRAIN_TRAINER_H
#define TACITI_TRAIN_TRAINER_H

#include "base/log.h"
#include "ckpt/lock.h"
#include "ckpt/state.h"
#include "comm/circular.h"
#include "driver/driver.h"
#include "model/profile.h"
#include "report/report.h"
#include "strategy/strategy.h"
#include "train/train.h"

/* What a checkpoint restores besides arrays. Batches and dropout masks are functions of (seed, step). */
typedef struct taciti_position {
    int64_t step;    /* finished steps, skipped ones included */
    int64_t skipped; /* of these; where replicas differ: updates that single ranks skipped, summed over ranks */
    uint64_t tokens; /* consumed */
} taciti_position;

/* Bytes a rank will hold, before anything large is allocated. */
typedef struct taciti_memory_plan {
    taciti_model_memory model;
    size_t moments, exchange, process;
    size_t total;
} taciti_memory_plan;

/* What each rank tells all others about a step. */
typedef struct taciti_rank_report {
    double loss_sum;  /* nats, over this rank's tokens */
    double compute_s; /* forward and backward */
    double stop;      /* 1: asked to stop */
    double abandoned; /* 1: left the step, whose update nobody makes */
    double skipped;   /* 1: did not update its parameters */
    double moved;     /* taciti_step_report */
} taciti_rank_report;

/* A finished step whose line is not written yet. */
typedef struct taciti_step_entry {
    taciti_step_metrics metrics;
    bool known;     /* the reports of all ranks are in it */
    bool stop;      /* some rank was asked to stop */
    bool abandoned; /* some rank left the step */
    int64_t skips;  /* updates that did not happen, as `skipped` of taciti_position counts them */
} taciti_step_entry;

/* Reports on their way, oldest first. */
typedef struct taciti_reports {
    taciti_circular *circular;  /* NULL: every step waits for the reports of all ranks; owned */
    taciti_rank_report *all;    /* by rank; owned */
    taciti_rank_report mine;    /* without a circular */
    size_t late;                /* steps whose reports are not awaited yet; 0 without a circular */
    taciti_step_entry *entries; /* [most]; owned */
    size_t max, first, count;
    bool stop; /* told otherwise than by an entry that is still here */
} taciti_reports;

/* What --profile has measured so far. */
typedef struct taciti_profiling {
    const char *path; /* NULL: nothing is measured */
    taciti_profile profile;
    int64_t steps, updates;              /* made, and measured */
    size_t first_span, dropped;          /* of the recorder when the step began */
    int64_t reported;                    /* steps of all ranks */
    double count, sum_s, sum_squares_s2; /* of compute times over ranks and steps */
} taciti_profiling;

typedef struct taciti_trainer {
    taciti_comm *comm;
    taciti_train_settings *settings;
    int rank, ranks, threads;
    size_t time;           /* tokens per sequence */
    size_t first, share;   /* this rank's samples of each global batch: [first, first + share) */
    size_t sample, stride; /* data's index of this rank's first sample of step 0, and what a step adds to it */
    size_t micro;          /* sequences per pass */
    taciti_data *data;
    taciti_data_info data_info;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    taciti_model_network network; /* the model, and the micro-batches of a step */
    const taciti_strategy *strategy;
    taciti_driver *driver;
    taciti_trace trace;
    taciti_metrics *metrics;   /* rank 0 only */
    taciti_console console;    /* rank 0 only */
    int32_t *tokens, *targets; /* one micro-batch */
    taciti_position position;
    int64_t saved_step; /* of the newest checkpoint, or where the run began */
    taciti_reports reports;
    taciti_profiling profiling;
    bool from_mean;           /* replicas of a checkpoint are not taken up one by one */
    int64_t skipped_in_a_row; /* steps in which somebody skipped */
    double peak_flops;        /* of all ranks together, measured; 0 when unknown */
    taciti_memory_plan memory;
    taciti_lock lock; /* of run.dir, rank 0 only */
} taciti_trainer;

/* trainer.c: build in two stages, so that --dry-run and refusals come before large allocations. `prepare` opens data,
 * resolves options, agrees with the other ranks; `build` allocates. Collective. */
tacit_status taciti_trainer_prepare(taciti_trainer *trainer, taciti_comm *comm, taciti_train_settings *settings,
                                    const taciti_train_request *request);
tacit_status taciti_trainer_build(taciti_trainer *trainer);
void taciti_trainer_close(taciti_trainer *trainer);

/* identity.c: refuses ranks that differ in build, configuration, model or data. Collective. */
tacit_status taciti_trainer_agree(const taciti_trainer *trainer);

/* The same parameters on all ranks: files differ, memory fails. Collective. */
tacit_status taciti_trainer_agree_on_parameters(const taciti_trainer *trainer);

/* folder.c: the run folder. claim locks it (E_CONFIG when another run works there); check, once the trainer is built,
 * finds out whether it has room for a checkpoint and is seen by all ranks that write parts of their own. Nothing in it
 * changes yet. Collective. */
tacit_status taciti_trainer_claim_folder(taciti_trainer *trainer);
tacit_status taciti_trainer_check_folder(const taciti_trainer *trainer);

/* A new run in the folder of an old one: what it holds goes to the first free name beside it. Rank 0. */
tacit_status taciti_set_old_run_aside(const char *folder);

/* step.c: the driver of a trainer that is built otherwise. context: without what the driver fills in. Collective. */
tacit_status taciti_trainer_create_driver(taciti_trainer *trainer, const taciti_strategy_context *context);

/* One optimizer step; its entry goes to the reports. stop_requested: this rank was asked to stop. Where replicas are
 * equal and a signal comes, all ranks abandon the step: position and parameters stay those of the step before, and no
 * entry is made. Collective. */
tacit_status taciti_trainer_step(taciti_trainer *trainer, bool stop_requested);

/* reports.c: entries of steps. lag: by how many steps a transfer of the strategy may outlast the end of its step. */
tacit_status taciti_reports_create(taciti_trainer *trainer, size_t lag);
void taciti_reports_destroy(taciti_reports *reports);

/* Sends this rank's report of the step that ends and opens its entry. Blocks nowhere. Collective. */
tacit_status taciti_reports_put(taciti_trainer *trainer, const taciti_rank_report *mine, taciti_step_entry **out);

/* Takes in what all ranks have reported until at most `late` steps are not known yet. The outcome is the same on every
 * rank. Collective. */
tacit_status taciti_reports_collect(taciti_trainer *trainer, size_t late);

/* The newest entry goes; that it asks to stop stays known. */
void taciti_reports_take_back(taciti_reports *reports);

bool taciti_reports_stop(taciti_reports *reports);                 /* some known entry asks to stop, or did */
taciti_step_entry *taciti_reports_newest(taciti_reports *reports); /* right after a step: there is one */
taciti_step_entry *taciti_reports_oldest_known(taciti_reports *reports);
void taciti_reports_drop_oldest(taciti_reports *reports);

/* profiling.c: check refuses what leaves no step to measure; begin and end enclose a step; add_reports takes the
 * compute times of all ranks, on all of them; write makes the file, on rank 0. */
tacit_status taciti_profiling_create(taciti_trainer *trainer);
void taciti_profiling_destroy(taciti_profiling *profiling);
tacit_status taciti_profiling_check(const taciti_trainer *trainer);
void taciti_profiling_begin(taciti_trainer *trainer);
void taciti_profiling_end(taciti_trainer *trainer, double update_s);
void taciti_profiling_add_reports(taciti_trainer *trainer);
tacit_status taciti_profiling_write(taciti_trainer *trainer);

/* evaluate.c: mean loss over validation windows [0, windows), 0: all. When a signal asks some rank to stop, evaluation
 * ends with NaN and the reports say so. Collective. */
tacit_status taciti_trainer_evaluate(taciti_trainer *trainer, double *out_loss);

/* snapshot.c: while the parameters are the mean of replicas, taciti_driver_average(). Collective. */
tacit_status taciti_trainer_save(taciti_trainer *trainer);

/* restore.c: collective. Both end with the strategy started. */
tacit_status taciti_trainer_resume(taciti_trainer *trainer, bool *found);
tacit_status taciti_trainer_initialise(taciti_trainer *trainer); /* seed or train.init */

/* state.c: what a checkpoint holds: the strategy's table and the shared "model". Saving happens between average and
 * revert, so the shared model is the mean; where ranks have models of their own, these are what restoring fills. */
void taciti_trainer_list_state(const taciti_trainer *trainer, bool saving, taciti_state *out);

/* say.c: one line on rank 0, unless the run is quiet. */
void taciti_trainer_say(const taciti_trainer *trainer, const char *format, ...) TACITI_PRINTF(2, 3);

#endif

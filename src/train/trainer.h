/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run in memory, shared by the files of this folder.
 */
#ifndef TACITI_TRAIN_TRAINER_H
#define TACITI_TRAIN_TRAINER_H

#include "ckpt/ckpt.h"
#include "report/report.h"
#include "strategy/strategy.h"
#include "train/train.h"

/* What a checkpoint restores besides arrays. Batches and dropout masks are functions of (seed, step). */
typedef struct taciti_position {
    int64_t step;    /* finished steps, skipped ones included */
    int64_t skipped; /* of these */
    uint64_t tokens; /* consumed */
} taciti_position;

/* Bytes a rank will hold, before anything large is allocated. */
typedef struct taciti_memory_plan {
    taciti_model_memory model;
    size_t moments, exchange, process;
    size_t total;
} taciti_memory_plan;

typedef struct taciti_trainer {
    taciti_comm *comm;
    taciti_settings *settings;
    int rank, ranks, threads;
    size_t time;         /* tokens per sequence */
    size_t first, share; /* this rank's samples of each global batch: [first, first + share) */
    size_t micro;        /* sequences per pass */
    taciti_data *data;
    taciti_data_info data_info;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    taciti_optim *optim;
    const taciti_strategy *strategy;
    void *strategy_self;
    taciti_readiness readiness;
    taciti_trace trace;
    taciti_metrics *metrics;   /* rank 0 only */
    taciti_console console;    /* rank 0 only */
    int32_t *tokens, *targets; /* one micro-batch */
    taciti_position position;
    int64_t skipped_in_a_row;
    double peak_flops; /* of all ranks together, measured; 0 when unknown */
    taciti_memory_plan memory;
    tacit_status ready_status; /* first failure inside a readiness callback */
} taciti_trainer;

/* trainer.c: build in two stages, so that --dry-run and refusals come before large allocations. `prepare` opens data,
 * resolves options, agrees with the other ranks; `build` allocates. Collective. */
tacit_status taciti_trainer_prepare(taciti_trainer *trainer, taciti_comm *comm, taciti_settings *settings);
tacit_status taciti_trainer_build(taciti_trainer *trainer);
void taciti_trainer_close(taciti_trainer *trainer);

/* identity.c: refuses ranks that differ in build, configuration, model or data. Collective. */
tacit_status taciti_trainer_agree(const taciti_trainer *trainer);
tacit_status taciti_agree_on_build(taciti_comm *comm);
tacit_status taciti_agree_on_configuration(taciti_comm *comm, const taciti_config *config);

/* step.c: one optimizer step and its metrics (rank 0 fills all of them). stop_wish: this rank was asked to stop;
 * *stop: some rank was. Collective. */
tacit_status taciti_trainer_step(taciti_trainer *trainer, bool stop_wish, taciti_step_metrics *out, bool *stop);

/* evaluate.c: mean loss over validation windows [0, windows), 0: all. Collective. */
tacit_status taciti_trainer_evaluate(taciti_trainer *trainer, double *out_loss);

/* snapshot.c: collective. */
tacit_status taciti_trainer_save(taciti_trainer *trainer);
tacit_status taciti_trainer_resume(taciti_trainer *trainer, bool *found);
tacit_status taciti_trainer_initialise(taciti_trainer *trainer); /* seed or train.init */

#endif

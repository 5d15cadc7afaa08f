/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop connects data, model, driver, checkpoints and reports. It holds the state of a run and decides when
 * to evaluate, save and stop. It neither sends messages nor accesses elements of arrays.
 */
#ifndef TACITI_TRAIN_TRAIN_H
#define TACITI_TRAIN_TRAIN_H

#include "base/option.h"
#include "comm/comm.h"
#include "data/data.h"
#include "settings/settings.h"

typedef struct taciti_train_options {
    int64_t steps;        /* train.steps */
    int64_t batch;        /* train.batch: sequences per step, over all ranks */
    int64_t micro_batch;  /* train.micro_batch: sequences per rank and pass; 0: all of the rank's share */
    int64_t time;         /* train.seq: tokens per sequence; 0: model.context */
    int64_t threads;      /* train.threads: per rank; 0: cores / ranks that share them */
    int64_t eval_every;   /* train.eval_every: steps; 0: only at the end; -1: never */
    int64_t eval_windows; /* train.eval_windows: validation windows per evaluation; 0: all */
    int64_t save_every;   /* train.save_every: steps; 0: only after save_early and at the end */
    int64_t save_early;   /* train.save_early: first checkpoint after this step (default 10) */
    int64_t keep;         /* train.keep: checkpoints kept (default 2) */
    double max_minutes;   /* train.max_minutes: save a checkpoint and stop after this time; 0: never */
    int64_t seed;         /* train.seed */
    taciti_text init;     /* train.init: weights to start from (HF folder, llm.c file or run folder) */
} taciti_train_options;
extern const taciti_option_table taciti_train_option_table; /* section "train" */

typedef struct taciti_run_options {
    taciti_text dir;      /* run.dir */
    bool trace;           /* run.trace: write trace.json at the end */
    bool tensorboard;     /* run.tensorboard */
    bool quiet;           /* run.quiet */
    taciti_text arrivals; /* run.arrivals: folder of the log of an asynchronous run; "": none */
} taciti_run_options;
extern const taciti_option_table taciti_run_option_table; /* section "run" */

/* The whole configuration of a run. */
typedef struct taciti_train_settings {
    taciti_settings job; /* with the sections below; job.config is the whole configuration */
    taciti_train_options train;
    taciti_run_options run;
    taciti_data_options data;
} taciti_train_settings;

/* Composes the sections and sets all options to their defaults. The struct must not move afterwards. Call
 * taciti_settings_destroy(&settings->job), also after an error. */
tacit_status taciti_train_settings_init(taciti_train_settings *settings);

/* Returns whether ranks count their own steps: gossip.async. */
bool taciti_train_is_asynchronous(const taciti_train_settings *settings);

/* As taciti_settings_complete(). A rank that may be late may be silent for longer: comm.timeout is 60 s then. */
tacit_status taciti_train_settings_complete(taciti_train_settings *settings);

/* Parameters of one call that are not part of the run's configuration. */
typedef struct taciti_train_request {
    bool resume;           /* from the newest valid checkpoint of run.dir; without one, log it and start a new run */
    bool from_mean;        /* if the replicas of the checkpoint differ, all ranks continue from their mean */
    bool dry_run;          /* print sizes, memory and bytes per step, and return */
    struct json_t **sizes; /* receives sizes and memory as an object on rank 0, owned by the caller; NULL: no */
    const char *file;      /* of the configuration; NULL: none */
    const char *replay;    /* repeat the run of this log of arrivals; NULL: no */
    const char *profile;   /* write the measured compute profile to this file; NULL: no */
} taciti_train_request;

/* Trains. Collective. */
tacit_status taciti_train(taciti_comm *comm, taciti_train_settings *settings, const taciti_train_request *request);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run in memory, private to this folder.
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

#define TACITI_MIB (1.0 / 1048576.0)

/* Where a run is: what a checkpoint restores besides the table of state. Batches and dropout masks are functions of
 * (seed, step). */
typedef struct taciti_position {
    int64_t step;    /* finished steps, skipped ones included */
    int64_t skipped; /* of these; if replicas differ: skipped updates, summed over ranks */
    uint64_t tokens; /* consumed by all ranks */
} taciti_position;

/* Predicted memory of a rank in bytes, computed before large allocations. */
typedef struct taciti_memory_plan {
    taciti_model_memory model;
    size_t moments, exchange, process;
    size_t total;
    size_t mapped; /* private memory that is mapped before these allocations, touched or not */
} taciti_memory_plan;

/* The report of a rank to all others about a step. Numbers, because they are sent as an array. */
typedef struct taciti_rank_report {
    double loss_sum;  /* nats, over this rank's tokens */
    double compute_s; /* forward and backward */
    double stop;      /* 1: a signal asked this rank to stop */
    double abandoned; /* 1: this rank left the step early, so that no rank updates */
    double skipped;   /* 1: did not update its parameters */
    double moved;     /* taciti_step_report */
} taciti_rank_report;

/* A finished step whose metrics are not written yet. */
typedef struct taciti_step_entry {
    taciti_step_metrics metrics;
    bool known;     /* it contains the reports of all ranks */
    bool stop;      /* at least one rank was asked to stop */
    bool abandoned; /* at least one rank left the step early */
    int64_t skips;  /* skipped updates, counted as in taciti_position.skipped */
} taciti_step_entry;

/* Steps without a line: those whose reports travel, the one that ends, and one until its line is written. */
enum { TACITI_REPORTS_MAX = 12 };

/* The reports of recent steps, oldest first. */
typedef struct taciti_reports {
    taciti_circular *circular; /* owned; NULL: every step waits for the reports of all ranks */
    taciti_rank_report *all;   /* by rank; owned */
    taciti_rank_report mine;   /* without a circular */
    size_t late;               /* number of steps whose reports may be outstanding; 0 without a circular */
    taciti_step_entry entries[TACITI_REPORTS_MAX];
    size_t count;
    bool stop; /* a stop was requested by an entry that has been removed */
} taciti_reports;

/* The measurements of --profile so far. */
typedef struct taciti_profiling {
    const char *path; /* NULL: nothing is measured */
    taciti_profile profile;
    int64_t steps, updates;              /* steps made; updates measured */
    size_t first_span, dropped;          /* of the trace when the step began */
    int64_t reported;                    /* steps whose reports of all ranks were added */
    double count, sum_s, sum_squares_s2; /* of compute times over ranks and steps */
} taciti_profiling;

/* The work of this rank since the ranks last met, where they count their own steps. */
typedef struct taciti_alone {
    bool active;
    int64_t made, skipped; /* steps; updates */
    uint64_t tokens;
    taciti_position met; /* when they met */
} taciti_alone;

typedef struct taciti_trainer {
    taciti_comm *comm;
    taciti_train_settings *settings;
    int rank, ranks, threads;
    size_t time;           /* tokens per sequence */
    size_t first, share;   /* this rank's samples of each global batch: [first, first + share) */
    size_t sample, stride; /* index in the data of this rank's first sample of step 0; increment per step */
    size_t micro;          /* sequences per micro-batch */
    size_t passes;         /* micro-batches of the rank with the most samples */
    taciti_data *data;
    taciti_data_info data_info;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    taciti_model_network network; /* the model, and the micro-batches of a step */
    const taciti_strategy *strategy;
    taciti_strategy_figures figures; /* known before the strategy is created */
    taciti_driver *driver;
    taciti_trace trace;
    taciti_metrics *metrics;   /* rank 0 only */
    bool metrics_lost;         /* they could not be written to the end; rank 0 only */
    taciti_console console;    /* rank 0 only */
    int32_t *tokens, *targets; /* one micro-batch */
    taciti_position position;
    int64_t saved_step;           /* of the newest checkpoint, or the first step of the run */
    taciti_comm_counters counted; /* what the metrics of steps hold */
    taciti_reports reports;
    taciti_profiling profiling;
    taciti_alone alone;
    const char *replay;            /* taciti_train_request.replay */
    uint64_t digest;               /* of all that decides the course of the run */
    bool from_mean, dry_run;       /* taciti_train_request.from_mean, .dry_run */
    int64_t fault_at, fault_steps; /* for tests: these steps of this rank fail */
    int64_t skipped_in_a_row;      /* consecutive steps in which at least one rank skipped */
    double peak_flops;             /* of all ranks together, measured; 0 if unknown */
    taciti_memory_plan memory;
    taciti_lock lock;     /* of run.dir, rank 0 only */
    taciti_lock log_lock; /* of run.arrivals, rank 0 only */
} taciti_trainer;

/* trainer.c: sets up in two stages, so that --dry-run and errors precede large allocations. `prepare` opens data,
 * resolves options and compares them between ranks; `build` allocates. Collective. */
tacit_status taciti_trainer_prepare(taciti_trainer *trainer, taciti_comm *comm, taciti_train_settings *settings,
                                    const taciti_train_request *request);
tacit_status taciti_trainer_build(taciti_trainer *trainer);

/* Refuses a run that the memory of its hosts, or a limit of its processes, does not allow; one rank says so. Call it
 * between prepare and build. Collective. */
tacit_status taciti_trainer_check_memory(const taciti_trainer *trainer);

/* Private memory that this rank will map, touched or not: what RLIMIT_DATA must allow. */
double taciti_trainer_mapped_bytes(const taciti_trainer *trainer);
void taciti_trainer_close(taciti_trainer *trainer);

/* identity.c: refuses ranks that differ in build, configuration, model or data. Collective. */
tacit_status taciti_trainer_agree(const taciti_trainer *trainer);

/* The same parameters on all ranks: files differ, memory fails. _digest: of parameters that were hashed in pieces.
 * Collective. */
tacit_status taciti_trainer_agree_on_parameters(const taciti_trainer *trainer);
tacit_status taciti_trainer_agree_on_digest(const taciti_trainer *trainer, uint64_t digest);

/* folder.c: the run folder. claim locks it, and that of run.arrivals (E_CONFIG when another run works there); check,
 * once the trainer is built, finds out whether it has room for a checkpoint and is seen by all ranks that write parts
 * of their own. Nothing in it changes yet. Collective. */
tacit_status taciti_trainer_claim_folder(taciti_trainer *trainer);
tacit_status taciti_trainer_check_folder(const taciti_trainer *trainer);

/* Refuses a run.dir that is empty, a file, in a file, or checkpoints of a run. */
tacit_status taciti_check_run_folder(const char *folder);
/* Refuses a new run that would move away what it reads, or the log that it writes, with an old run, and one that goes
 * on where it cannot write its metrics. */
tacit_status taciti_check_run_inputs(const taciti_train_settings *settings, const taciti_train_request *request);

/* A new run in the folder of an old one: what it holds goes to the first free name beside it. resume: what was asked
 * for, although there was no checkpoint. Rank 0. */
tacit_status taciti_set_old_run_aside(const char *folder, bool resume);

/* In the same way: what an older run.arrivals left there; other files stay. One rank per host. */
tacit_status taciti_set_old_log_aside(const char *folder);

/* Writes "; did you mean "run.dir"?" for the most similar name of a folder with checkpoints beside this one; "" if none
 * is close. */
void taciti_find_similar_run(const char *folder, char *out, size_t out_bytes);

/* step.c: the driver of a trainer that is built otherwise. context: without what the driver fills in. Collective. */
tacit_status taciti_trainer_create_driver(taciti_trainer *trainer, const taciti_strategy_context *context);

/* One optimizer step; its entry goes to the reports. stop_requested: this rank was asked to stop. Where replicas are
 * equal and a signal comes, all ranks abandon the step: position and parameters stay those of the step before, and no
 * entry is made. Collective. */
tacit_status taciti_trainer_step(taciti_trainer *trainer, bool stop_requested);

/* reports.c: entries of steps. lag: by how many steps a transfer of the strategy may outlast the end of its step. */
tacit_status taciti_reports_create(taciti_trainer *trainer, size_t lag);
void taciti_reports_destroy(taciti_reports *reports);

/* Sends this rank's report of the step that ends and adds an entry for it. With a circular, does not block while there
 * is a communication thread; without one, waits for the reports of all ranks. Collective. */
tacit_status taciti_reports_put(taciti_trainer *trainer, const taciti_rank_report *mine, taciti_step_entry **out);

/* Receives reports until at most `late` entries are not known. The entries are the same on every rank. Collective. */
tacit_status taciti_reports_collect(taciti_trainer *trainer, size_t late);

/* Removes the newest entry, but keeps its request to stop. */
void taciti_reports_take_back(taciti_reports *reports);

bool taciti_reports_stop(taciti_reports *reports);                 /* a known entry, removed or not, requests a stop */
taciti_step_entry *taciti_reports_newest(taciti_reports *reports); /* call after a step, when there is one */
taciti_step_entry *taciti_reports_oldest_known(taciti_reports *reports);
void taciti_reports_drop_oldest(taciti_reports *reports);

/* profiling.c: check returns an error if no step would be measured; begin and end enclose a step; add_reports adds the
 * compute times of all ranks, on every rank; write writes the file, on rank 0. */
tacit_status taciti_profiling_create(taciti_trainer *trainer);
tacit_status taciti_profiling_check(const taciti_trainer *trainer);
void taciti_profiling_begin(taciti_trainer *trainer);
void taciti_profiling_end(taciti_trainer *trainer, double update_s);
void taciti_profiling_add_reports(taciti_trainer *trainer);
tacit_status taciti_profiling_write(taciti_trainer *trainer);

/* evaluate.c: mean loss over the first train.eval_windows validation windows; 0: all. If a signal asks a rank to stop,
 * the evaluation ends early, the loss is NaN and the reports record the request. Collective. */
tacit_status taciti_trainer_evaluate(taciti_trainer *trainer, double *out_loss);

/* restore.c: saves a checkpoint. Call it while the parameters are the mean (taciti_driver_average()). Collective. */
tacit_status taciti_trainer_save(taciti_trainer *trainer);

/* restore.c: set the parameters and start the strategy. Collective. */
tacit_status taciti_trainer_resume(taciti_trainer *trainer, bool *found);
tacit_status taciti_trainer_initialise(taciti_trainer *trainer); /* seed or train.init */

/* With train.init, sets shape and tokenizer of the model there as defaults; with `resume`, those of the checkpoint in
 * run.dir, if it has one. Returns E_CONFIG, with both values, for a key that was given, or a size of a preset, that
 * says otherwise. Not collective. */
tacit_status taciti_trainer_take_shape(const taciti_trainer *trainer, bool resume);

/* meeting.c, for steps that report a clock: counts a step of this rank, and what all ranks have done since the last
 * meeting, with an event that has the steps of every rank since then. Meet is collective. */
tacit_status taciti_trainer_step_alone(taciti_trainer *trainer);
tacit_status taciti_trainer_meet(taciti_trainer *trainer);

/* trainer.c: what the strategy gets, but for arrays and optimizer, which the driver adds. Borrows. */
taciti_strategy_context taciti_trainer_context(taciti_trainer *trainer);

/* Prints a line on rank 0, unless run.quiet. */
void taciti_trainer_say(const taciti_trainer *trainer, const char *format, ...) TACITI_PRINTF(2, 3);

#endif

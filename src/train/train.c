/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "train/train.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/stop.h"
#include "train/trainer.h"

enum { LINE_BYTES = 512, MAX_SKIPS = 100 };
#define SECONDS_PER_MINUTE 60.0
#define COUNT_MAX 0x1p62 /* sizes that nobody can have are larger than an integer */

static void announce_run(const taciti_trainer *trainer) {
    const taciti_train_settings *s = trainer->settings;
    taciti_trainer_say(trainer, "tacit %s, %s, %d rank%s x %d thread%s, kernels %s", tacit_version(),
                       taciti_comm_engine(trainer->comm)->library, trainer->ranks, trainer->ranks == 1 ? "" : "s",
                       trainer->threads, trainer->threads == 1 ? "" : "s", taciti_kernels_get()->isa);
    taciti_trainer_say(trainer,
                       "model  %.2f M parameters: %" PRId64 " layers, %" PRId64 " heads, %" PRId64
                       " channels, vocabulary %" PRId64 ", context %" PRId64 ", %s",
                       (double)trainer->layout.parameters * 1e-6, s->job.model.layers, s->job.model.heads,
                       s->job.model.channels, s->job.model.vocabulary, s->job.model.context,
                       s->job.model.dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32");
    taciti_trainer_say(trainer, "data   %s: %" PRIu64 " train and %" PRIu64 " validation tokens",
                       trainer->data_info.source, trainer->data_info.train_tokens,
                       trainer->data_info.validation_tokens);
    char partition[LINE_BYTES];
    taciti_data_describe_partition(trainer->data, (uint64_t)s->train.seed, partition, sizeof partition);
    if (partition[0] != '\0') taciti_trainer_say(trainer, "data   %s: %s", s->data.partition.text, partition);
    taciti_trainer_say(trainer, "run    %s: strategy %s, %" PRId64 " steps of %" PRId64 " x %zu tokens, seed %" PRId64,
                       s->run.dir.text, s->job.strategy.text, s->train.steps, s->train.batch, trainer->time,
                       s->train.seed);
}

/* Describes the tensors that compress.layers leaves out; "" if there are none. */
static void describe_plain(const taciti_layout *layout, char *out, size_t size) {
    double plain = 0;
    size_t tensors = 0;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        plain += layout->tensors[t].plain ? (double)layout->tensors[t].n : 0;
        tensors += layout->tensors[t].plain;
    }
    out[0] = '\0';
    if (tensors == 0) return;
    (void)snprintf(out, size, ", but for %zu of %zu tensors, %.3g %% of the parameters", tensors, layout->tensor_count,
                   100 * plain / (double)layout->parameters);
}

/* Each kind of traffic: what it is compressed with, and by whose decision. */
static void announce_traffic(taciti_trainer *trainer) {
    const taciti_compression_setup setup = taciti_settings_compression(&trainer->settings->job);
    const char *policy = setup.controller == NULL ? "fixed" : setup.controller->name;
    const taciti_traffic_class *rows = trainer->figures.traffic;
    const size_t count = trainer->figures.traffic_count;
    char plain[LINE_BYTES];
    describe_plain(&trainer->layout, plain, sizeof plain);
    if (setup.sums.codec != NULL && taciti_comm_size(trainer->comm) == 1) {
        taciti_trainer_say(trainer, "sends  nothing: one rank computes as without %s", setup.sums.codec->name);
        return;
    }
    if (setup.sums.codec != NULL && count == 0)
        taciti_trainer_say(trainer, "sends  sums through %s (%s)%s", setup.sums.codec->name, policy, plain);
    for (size_t i = 0; i < count; i++) {
        const bool decides =
            strcmp(rows[i].what, "gradients") == 0 || (setup.controller != NULL && setup.controller->switches);
        char how[LINE_BYTES] = "";
        if (rows[i].compressed) (void)snprintf(how, sizeof how, " (%s)%s", decides ? policy : "fixed", plain);
        taciti_trainer_say(trainer, "sends  %-10s %-13s at most %.4g MB per %s: %s%s", rows[i].what, rows[i].where,
                           (double)rows[i].bytes * 1e-6, rows[i].compressed ? "compressed step" : "step", rows[i].codec,
                           how);
    }
}

/* Sizes and memory that announce_run() and announce_memory() log; memory in bytes. */
static json_t *describe_sizes(const taciti_trainer *trainer) {
    const taciti_memory_plan *plan = &trainer->memory;
    const taciti_model_memory *m = &plan->model;
    return json_pack("{s:i, s:i, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "ranks",
                     trainer->ranks, "threads", trainer->threads, "parameters", (json_int_t)trainer->layout.parameters,
                     "train_tokens", (json_int_t)trainer->data_info.train_tokens, "validation_tokens",
                     (json_int_t)trainer->data_info.validation_tokens, "memory_bytes", "total", (json_int_t)plan->total,
                     "parameters", (json_int_t)m->parameters, "gradients", (json_int_t)m->gradients, "moments",
                     (json_int_t)plan->moments, "copy16", (json_int_t)m->copy16, "activations",
                     (json_int_t)m->activations, "workspace", (json_int_t)m->workspace, "exchange",
                     (json_int_t)plan->exchange, "program", (json_int_t)plan->process, "limit",
                     (json_int_t)fmin(taciti_trainer_mapped_bytes(trainer), COUNT_MAX));
}

#define EVALUATION_MUCH 0.2
#define EVALUATION_LITTLE 0.05
#define PASSES_PER_STEP 3.0 /* backward computes twice as much as forward; an evaluation is a forward pass */

/* Counted in samples that pass forward, so it is known before the first step. */
static void announce_evaluation(const taciti_trainer *trainer) {
    const taciti_train_options *o = &trainer->settings->train;
    const double all = (double)taciti_data_validation_windows(trainer->data, trainer->time);
    const double windows = o->eval_windows > 0 && (double)o->eval_windows < all ? (double)o->eval_windows : all;
    const int64_t every = o->eval_every > 0 && o->eval_every < o->steps ? o->eval_every : o->steps;
    const double training = PASSES_PER_STEP * (double)o->batch * (double)every;
    const double share = windows / (windows + training);
    if (o->eval_every < 0 || share < EVALUATION_MUCH) return;
    taciti_trainer_say(trainer,
                       "eval   about %.0f %% of the compute goes to evaluation, of %.0f windows every %" PRId64
                       " steps; --train.eval_windows %.0f: %.0f %%",
                       100 * share, windows, every, ceil(EVALUATION_LITTLE * training), 100 * EVALUATION_LITTLE);
}

static void announce_memory(const taciti_trainer *trainer) {
    const taciti_memory_plan plan = trainer->memory;
    const taciti_model_memory *m = &plan.model;
    taciti_trainer_say(
        trainer,
        "memory %.0f MiB per rank: parameters %.1f, gradients %.1f, moments %.1f, bf16 copy %.1f, activations %.1f, "
        "workspace %.1f, exchange %.1f, program %.1f; a limit (ulimit -d) must allow %.0f",
        (double)plan.total * TACITI_MIB, (double)m->parameters * TACITI_MIB, (double)m->gradients * TACITI_MIB,
        (double)plan.moments * TACITI_MIB, (double)m->copy16 * TACITI_MIB, (double)m->activations * TACITI_MIB,
        (double)m->workspace * TACITI_MIB, (double)plan.exchange * TACITI_MIB, (double)plan.process * TACITI_MIB,
        taciti_trainer_mapped_bytes(trainer) * TACITI_MIB);
}

/* A full disk must not end a run of days: metrics stop with one loud line, training goes on. */
static void lose_metrics(taciti_trainer *trainer, int64_t step) {
    taciti_log(TACITI_LOG_ERROR, "metrics are not written any more from step %" PRId64 " on; training goes on", step);
    taciti_metrics_close(trainer->metrics);
    trainer->metrics = NULL;
    trainer->metrics_lost = true;
}

/* format: of the members of the event, as JSON. */
TACITI_PRINTF(4, 5)
static void record_event(taciti_trainer *trainer, int64_t step, const char *event, const char *format, ...) {
    char members[2 * LINE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(members, sizeof members, format, args);
    va_end(args);
    if (trainer->metrics == NULL || taciti_metrics_event(trainer->metrics, step, event, members) == TACIT_OK) return;
    lose_metrics(trainer, step);
}

/* Saves the mean of the replicas. A checkpoint that fails is loud, but older ones are intact and training goes on. */
static tacit_status save_checkpoint(taciti_trainer *trainer) {
    double distance = 0;
    TACITI_TRY(taciti_driver_average(trainer->driver, &distance));
    if (trainer->rank == 0) taciti_console_break(&trainer->console);
    const int64_t begin = taciti_now_ns();
    const tacit_status status = taciti_trainer_save(trainer);
    record_event(trainer, trainer->position.step, "checkpoint", "\"status\": \"%s\", \"seconds\": %.3f",
                 tacit_status_name(status), (double)(taciti_now_ns() - begin) * 1e-9);
    if (status == TACIT_OK) trainer->saved_step = trainer->position.step;
    if (status != TACIT_OK && status != TACIT_E_PEER && trainer->rank == 0)
        taciti_log(TACITI_LOG_ERROR, "checkpoint of step %" PRId64 " failed; older ones are intact",
                   trainer->position.step);
    return status;
}

static bool has_checkpoints(const taciti_trainer *trainer) { return trainer->settings->train.save_every >= 0; }

static tacit_status open_reports(taciti_trainer *trainer, bool resume) {
    const taciti_run_options *run = &trainer->settings->run;
    tacit_status status = TACIT_OK;
    if (trainer->rank == 0) {
        if (trainer->position.step == 0) status = taciti_set_old_run_aside(run->dir.text, resume);
        if (status == TACIT_OK)
            status = taciti_metrics_open(run->dir.text, trainer->position.step, run->tensorboard, &trainer->metrics);
        taciti_console_open(&trainer->console, stdout, run->quiet, trainer->settings->train.steps,
                            trainer->position.step);
    }
    return taciti_comm_agree(trainer->comm, status);
}

/* Hosts may share the folder or not: one after the other moves away what it sees there. */
static tacit_status begin_log(taciti_trainer *trainer) {
    const char *folder = trainer->settings->run.arrivals.text;
    const int hosts = taciti_comm_hosts(trainer->comm)->count;
    const int mine = taciti_comm_hosts(trainer->comm)->host_of[trainer->rank];
    const bool first = taciti_comm_peer(trainer->comm, trainer->rank)->local_rank == 0;
    if (folder[0] == '\0') return TACIT_OK;
    for (int h = 0; h < hosts; h++) {
        const bool moves = first && h == mine;
        TACITI_TRY(taciti_comm_agree(trainer->comm, moves ? taciti_set_old_log_aside(folder) : TACIT_OK));
    }
    return trainer->strategy->replicas->begin_log(taciti_driver_strategy(trainer->driver));
}

static tacit_status restore_or_initialise(taciti_trainer *trainer, bool resume) {
    bool found = false;
    if (resume) TACITI_TRY(taciti_trainer_resume(trainer, &found));
    if (!found) TACITI_TRY(taciti_trainer_initialise(trainer));
    if (!resume) return TACIT_OK;
    if (found) {
        taciti_trainer_say(trainer, "resume at step %" PRId64 " of %" PRId64, trainer->position.step,
                           trainer->settings->train.steps);
        return TACIT_OK;
    }
    /* Where a run was to go on, a new one may be due to a misspelt folder. */
    const char *folder = trainer->settings->run.dir.text;
    char similar[LINE_BYTES] = "";
    if (trainer->rank != 0) return TACIT_OK;
    taciti_find_similar_run(folder, similar, sizeof similar);
    taciti_log(TACITI_LOG_WARN, "resume: no checkpoint in %s, a new run begins there%s", folder, similar);
    return TACIT_OK;
}

static void report_skips(taciti_trainer *trainer, const taciti_step_entry *entry) {
    const taciti_step_metrics *m = &entry->metrics;
    taciti_console_break(&trainer->console);
    if (trainer->strategy->replicas == NULL) {
        taciti_log(TACITI_LOG_WARN,
                   "step %" PRId64 " skipped on every rank: its gradient is not finite (%" PRId64 " skipped so far)",
                   m->step, m->skipped);
        record_event(trainer, m->step, "skipped", "\"reason\": \"gradient is not finite\"");
        return;
    }
    taciti_log(TACITI_LOG_WARN,
               "step %" PRId64 ": %" PRId64 " of %d ranks skipped their update: their gradient is not finite (%" PRId64
               " updates skipped so far)",
               m->step, entry->skips, trainer->ranks, m->skipped);
    record_event(trainer, m->step, "skipped", "\"reason\": \"gradient is not finite\", \"ranks\": %" PRId64,
                 entry->skips);
}

static void report_step(taciti_trainer *trainer, const taciti_step_entry *entry) {
    if (trainer->rank != 0) return;
    const taciti_step_metrics *m = &entry->metrics;
    if (entry->skips > 0) report_skips(trainer, entry);
    taciti_console_step(&trainer->console, m, entry->skips > 0 || !isnan(m->val_loss) || m->step == 1);
    if (trainer->metrics == NULL || taciti_metrics_step(trainer->metrics, m) == TACIT_OK) return;
    lose_metrics(trainer, m->step);
}

/* Steps that are skipped one after the other mean that parameters or data are beyond repair: every rank sees the same
 * count and gives up. Where replicas are equal, the last checkpoint is older than the first of them or equal to it in
 * every parameter. */
static tacit_status check_progress(taciti_trainer *trainer, const taciti_step_entry *entry) {
    trainer->skipped_in_a_row = entry->skips > 0 ? trainer->skipped_in_a_row + 1 : 0;
    if (trainer->skipped_in_a_row < MAX_SKIPS) return TACIT_OK;
    if (trainer->rank != 0 && !trainer->alone.active) return TACIT_E_NUMERICS;
    char how[LINE_BYTES] = "begin again: there is no checkpoint to go on from";
    if (trainer->saved_step > 0)
        (void)snprintf(how, sizeof how,
                       "go on from step %" PRId64 " with --resume, or begin again if the loss had risen by then",
                       trainer->saved_step);
    return taciti_fail(TACIT_E_NUMERICS,
                       "%" PRId64 " steps in a row had a gradient that is not finite; lower optim.lr and %s",
                       trainer->skipped_in_a_row, how);
}

/* Writes the lines of all steps whose reports are there. `ends`: the run ends early, whatever they say. */
static tacit_status report_steps(taciti_trainer *trainer, bool ends) {
    const taciti_step_entry *entry = NULL;
    while ((entry = taciti_reports_oldest_known(&trainer->reports)) != NULL) {
        report_step(trainer, entry);
        const tacit_status status = ends ? TACIT_OK : check_progress(trainer, entry);
        taciti_reports_drop_oldest(&trainer->reports);
        TACITI_TRY(status);
    }
    return TACIT_OK;
}

/* The work that is due after a step; every rank comes to the same decisions. */
typedef struct agenda {
    bool evaluation, save, leaving;
} agenda;

/* Returns whether a multiple of `every` is above `since`, and not above `step`. */
static bool is_due(int64_t every, int64_t since, int64_t step) { return every > 0 && step / every > since / every; }

/* since: the step after which ranks last looked at what is due, of which they may have passed over some. */
static agenda plan_step(const taciti_trainer *trainer, int64_t since, bool stop) {
    const taciti_train_options *train = &trainer->settings->train;
    const int64_t step = trainer->position.step;
    const bool last = step >= train->steps, leaving = last || stop;
    const bool evaluation = step == train->steps || is_due(train->eval_every, since, step);
    const bool save =
        is_due(train->save_every, since, step) || (since < train->save_early && step >= train->save_early);
    return (agenda){
        /* A run that was asked to stop has little time: the checkpoint comes first, and alone. */
        .evaluation = train->eval_every >= 0 && evaluation && (last || !stop),
        .save = has_checkpoints(trainer) && step != trainer->saved_step && (save || leaving),
        .leaving = leaving,
    };
}

static tacit_status evaluate_newest(taciti_trainer *trainer) {
    taciti_step_metrics *m = &taciti_reports_newest(&trainer->reports)->metrics;
    TACITI_TRY(taciti_driver_average(trainer->driver, &m->distance));
    return taciti_trainer_evaluate(trainer, &m->val_loss);
}

/* A rank that leaves waits for the others; for anything else, ranks meet when all are ready to. A run that is repeated
 * from a log stops, when it is asked to, at a meeting of the log. */
static bool shall_meet(const taciti_trainer *trainer, int64_t since, agenda due) {
    if (trainer->replay != NULL) due = plan_step(trainer, since, false);
    void *strategy = taciti_driver_strategy(trainer->driver);
    return due.leaving || trainer->strategy->replicas->answer(strategy, due.evaluation || due.save);
}

/* Records what the strategy has decided about compression. */
static void record_decision(taciti_trainer *trainer) {
    const taciti_strategy *strategy = trainer->strategy;
    char decision[2 * LINE_BYTES];
    if (strategy->event != NULL && strategy->event(taciti_driver_strategy(trainer->driver), decision, sizeof decision))
        record_event(trainer, trainer->position.step, "compression", "%s", decision);
}

/* Before a loss or a checkpoint claims to be of this data. */
static tacit_status check_data(const taciti_trainer *trainer) {
    tacit_status status = taciti_data_unchanged(trainer->data);
    if (status != TACIT_OK)
        status = taciti_fail(TACIT_E_DATA,
                             "the data changed in the middle of the run, before step %" PRId64
                             ": no checkpoint is made of that; put the old file back and use --resume, or begin anew",
                             trainer->position.step);
    return taciti_comm_agree(trainer->comm, status);
}

/* An evaluation that fails ends the run, but costs no step of it. */
static tacit_status do_what_is_due(taciti_trainer *trainer, int64_t since, agenda due, bool *stop) {
    tacit_status evaluated = TACIT_OK, saved = TACIT_OK;
    if (due.evaluation || due.save) TACITI_TRY(check_data(trainer));
    if (due.evaluation) {
        evaluated = evaluate_newest(trainer);
        if (evaluated == TACIT_E_PEER) return evaluated;
        due = plan_step(trainer, since, taciti_reports_stop(&trainer->reports)); /* it may have been left */
    }
    *stop = taciti_reports_stop(&trainer->reports);
    TACITI_TRY(report_steps(trainer, false));
    const bool leaving = due.leaving || evaluated != TACIT_OK;
    const bool unsaved = has_checkpoints(trainer) && trainer->position.step != trainer->saved_step;
    if (due.save || (leaving && unsaved)) saved = save_checkpoint(trainer);
    if (!leaving) taciti_driver_revert(trainer->driver); /* the final model is the average */
    return saved == TACIT_E_PEER || (leaving && saved != TACIT_OK) ? saved : evaluated;
}

/* One pass of the loop. *stop: some rank was asked to stop: leave after this step. */
static tacit_status make_step(taciti_trainer *trainer, int64_t deadline_ns, bool *stop) {
    const bool lost = trainer->rank == 0 && taciti_console_lost(&trainer->console);
    const bool requested = lost || taciti_stop_signal() != 0 || (deadline_ns > 0 && taciti_now_ns() > deadline_ns);
    TACITI_TRY(taciti_trainer_step(trainer, requested));
    record_decision(trainer);
    const int64_t since = trainer->alone.active ? trainer->alone.met.step : trainer->position.step - 1;
    agenda due = plan_step(trainer, since, taciti_reports_stop(&trainer->reports));
    if (trainer->alone.active) {
        *stop = false;
        if (!shall_meet(trainer, since, due)) return report_steps(trainer, false);
        TACITI_TRY(taciti_trainer_meet(trainer));
    } else if (due.evaluation || due.save || due.leaving) {
        TACITI_TRY(taciti_reports_collect(trainer, 0));
    }
    due = plan_step(trainer, since, taciti_reports_stop(&trainer->reports)); /* the last reports may ask to stop, too */
    return do_what_is_due(trainer, since, due, stop);
}

static void announce_end(const taciti_trainer *trainer, bool stop, int64_t first) {
    const taciti_train_settings *s = trainer->settings;
    const bool saved = s->train.save_every >= 0 && trainer->saved_step == trainer->position.step;
    const bool fresh = trainer->position.step > first;
    if (trainer->rank != 0 || (s->run.quiet && !stop)) return; /* who asks for a stop wants to know where it was */
    taciti_log(TACITI_LOG_INFO, "%s at step %" PRId64 " of %" PRId64 "%s%s%s",
               stop && trainer->position.step < s->train.steps ? "stopped as asked" : "finished",
               trainer->position.step, s->train.steps,
               !fresh                    ? ": no step was finished, nothing to save"
               : saved                   ? "; checkpoint in "
               : s->train.save_every < 0 ? ", nothing saved as asked"
                                         : "; the checkpoint failed",
               fresh && saved ? s->run.dir.text : "", fresh && saved ? "/ckpt" : "");
}

static tacit_status run_steps(taciti_trainer *trainer) {
    const double minutes = trainer->settings->train.max_minutes;
    const int64_t deadline_ns =
        minutes > 0 ? taciti_now_ns() + (int64_t)(minutes * SECONDS_PER_MINUTE * (double)TACITI_NS_PER_S) : 0;
    tacit_status status = TACIT_OK;
    const int64_t first = trainer->saved_step = trainer->position.step;
    double asked = taciti_stop_signal() != 0 ? 1 : 0; /* by signals that came while the run was built */
    TACITI_TRY(taciti_comm_allreduce_f64(trainer->comm, &asked, 1, TACITI_OP_MAX));
    bool stop = asked > 0;
    while (status == TACIT_OK && trainer->position.step < trainer->settings->train.steps && !stop)
        status = make_step(trainer, deadline_ns, &stop);
    if (status != TACIT_OK && trainer->alone.active) taciti_comm_give_up(trainer->comm);
    if (status != TACIT_OK && status != TACIT_E_PEER && !trainer->alone.active) {
        /* A run that ends early still has a line for each step, and leaves no report on its way. Every rank ends alike.
         */
        TACITI_TRY(taciti_reports_collect(trainer, 0));
        TACITI_TRY(report_steps(trainer, true));
    }
    TACITI_TRY(status);
    if (trainer->rank == 0) taciti_console_break(&trainer->console);
    announce_end(trainer, stop, first);
    return TACIT_OK;
}

static void log_summary(taciti_trainer *trainer) {
    if (trainer->rank != 0 || trainer->settings->run.quiet) return;
    char table[4 * LINE_BYTES];
    taciti_trace_summary(&trainer->trace, taciti_comm_trace(trainer->comm), table, sizeof table);
    char *rest = NULL;
    for (char *line = strtok_r(table, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        taciti_log(TACITI_LOG_INFO, "%s", line);
}

/* Compares the memory that was predicted before the first allocation with the largest that a rank took. Collective. */
static tacit_status compare_memory(taciti_trainer *trainer) {
    double peak = (double)taciti_peak_resident_bytes();
    TACITI_TRY(taciti_comm_allreduce_f64(trainer->comm, &peak, 1, TACITI_OP_MAX));
    const double predicted = (double)trainer->memory.total;
    record_event(trainer, trainer->position.step, "memory", "\"peak_bytes\": %.0f, \"predicted_bytes\": %.0f", peak,
                 predicted);
    taciti_trainer_say(trainer, "memory: %.0f MiB resident at most per rank, %.0f MiB predicted", peak * TACITI_MIB,
                       predicted * TACITI_MIB);
    return TACIT_OK;
}

/* Writes the files of the end. The status of a log or of metrics that were lost comes last: training went on. */
static tacit_status end_run(taciti_trainer *trainer) {
    const bool logs = trainer->settings->run.arrivals.text[0] != '\0';
    void *strategy = taciti_driver_strategy(trainer->driver);
    const tacit_status logged = logs ? trainer->strategy->replicas->end_log(strategy) : TACIT_OK;
    TACITI_TRY(compare_memory(trainer));
    log_summary(trainer);
    char path[TACITI_PATH_BYTES];
    if (trainer->settings->run.trace) {
        TACITI_TRY(taciti_path_join(path, sizeof path, trainer->settings->run.dir.text, "trace.json"));
        TACITI_TRY(taciti_trace_write(trainer->comm, &trainer->trace, taciti_comm_trace(trainer->comm), path));
    }
    TACITI_TRY(taciti_comm_agree(trainer->comm, taciti_profiling_write(trainer)));
    TACITI_TRY(logged);
    return taciti_comm_agree(trainer->comm, trainer->metrics_lost ? TACIT_E_IO : TACIT_OK);
}

static tacit_status train_built(taciti_trainer *trainer, bool resume) {
    TACITI_TRY(restore_or_initialise(trainer, resume));
    const bool complete = trainer->position.step >= trainer->settings->train.steps;
    if (!complete) TACITI_TRY(taciti_comm_agree(trainer->comm, taciti_profiling_check(trainer)));
    TACITI_TRY(open_reports(trainer, resume));
    if (complete) {
        if (trainer->rank == 0)
            taciti_log(TACITI_LOG_WARN,
                       "nothing left to do: the checkpoint is at step %" PRId64 " and train.steps is %" PRId64
                       "; to go on, --train.steps N with N above %" PRId64,
                       trainer->position.step, trainer->settings->train.steps, trainer->position.step);
        return TACIT_OK;
    }
    TACITI_TRY(begin_log(trainer));
    const tacit_status status = run_steps(trainer);
    if (status == TACIT_E_PEER) taciti_comm_abort(trainer->comm, status);
    TACITI_TRY(status);
    return end_run(trainer);
}

tacit_status taciti_train(taciti_comm *comm, taciti_train_settings *settings, const taciti_train_request *request) {
    taciti_trainer trainer;
    tacit_status status = taciti_trainer_prepare(&trainer, comm, settings, request);
    if (status == TACIT_OK) {
        announce_run(&trainer);
        announce_evaluation(&trainer);
        announce_traffic(&trainer);
        announce_memory(&trainer);
        const bool asked = request->sizes != NULL && trainer.rank == 0;
        if (asked) *request->sizes = describe_sizes(&trainer);
        status = taciti_comm_agree(comm, asked && *request->sizes == NULL ? TACIT_E_MEMORY : TACIT_OK);
        if (status == TACIT_OK) status = taciti_trainer_check_memory(&trainer);
    }
    if (status == TACIT_OK && !request->dry_run) status = taciti_trainer_claim_folder(&trainer);
    if (status == TACIT_OK && !request->dry_run) status = taciti_trainer_build(&trainer);
    if (status == TACIT_OK && !request->dry_run) status = taciti_trainer_check_folder(&trainer);
    if (status == TACIT_OK && !request->dry_run) status = train_built(&trainer, request->resume);
    taciti_trainer_close(&trainer);
    return status;
}

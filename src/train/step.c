/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "train/stop.h"
#include "train/trainer.h"

enum { DROPOUT_STREAM = 'd' };

/* For tests: TACIT_FAIL_AT=STEP or STEP:COUNT in the environment makes the last rank's gradient of these steps not
 * finite. */
static tacit_status read_fault(taciti_trainer *trainer) {
    const char *text = getenv("TACIT_FAIL_AT");
    long long first = 0, count = 1;
    int end = 0;
    if (text == NULL) return TACIT_OK;
    if (sscanf(text, "%lld%n:%lld%n", &first, &end, &count, &end) < 1 || text[end] != '\0' || first < 0 || count < 1)
        return taciti_fail(TACIT_E_CONFIG, "environment: TACIT_FAIL_AT=%.80s is not STEP or STEP:COUNT", text);
    trainer->fault_at = first;
    trainer->fault_steps = trainer->rank == trainer->ranks - 1 ? count : 0;
    return TACIT_OK;
}

/* Reads the samples of this rank, micro-batch by micro-batch. A rank without samples still makes one empty pass: its
 * gradient is zero and its buckets are ready. */
static tacit_status next_batch(void *context, int64_t step, size_t pass, taciti_model_batch *out, bool *last) {
    taciti_trainer *trainer = context;
    const taciti_train_settings *s = trainer->settings;
    const uint64_t seed = (uint64_t)s->train.seed, number = (uint64_t)step;
    const size_t own = trainer->share == 0 ? 1 : (trainer->share + trainer->micro - 1) / trainer->micro;
    /* Empty passes before this rank's first: where ranks gather parameters, all make as many passes. */
    const size_t idle = trainer->strategy->units != NULL ? trainer->passes - own : 0;
    const size_t done = pass < idle ? 0 : (pass - idle) * trainer->micro;
    const size_t left = trainer->share - done, max = pass < idle ? 0 : trainer->micro;
    const size_t count = left < max ? left : max;
    const int64_t begin = taciti_now_ns();
    TACITI_TRY(taciti_data_train(trainer->data, seed, number * trainer->stride + trainer->sample + done, count,
                                 trainer->time, trainer->tokens, trainer->targets));
    (void)taciti_trace_add(&trainer->trace, TACITI_SPAN_DATA, -1, begin);
    const double scale = 1.0 / ((double)s->train.batch * (double)trainer->time);
    const bool faulty = step >= trainer->fault_at && step - trainer->fault_at < trainer->fault_steps;
    *last = pass >= idle && count == left;
    *out = (taciti_model_batch){
        .tokens = trainer->tokens,
        .targets = trainer->targets,
        .batch = count,
        .time = trainer->time,
        .scale = faulty ? NAN : (float)scale,
        .dropout_key = taciti_rng_key(taciti_rng_key(seed, DROPOUT_STREAM), number),
        .first_sample = trainer->first + done,
    };
    return TACIT_OK;
}

static bool wants_to_leave(void *caller) {
    (void)caller;
    return taciti_stop_signal() != 0;
}

tacit_status taciti_trainer_create_driver(taciti_trainer *trainer, const taciti_strategy_context *context) {
    TACITI_TRY(taciti_comm_agree(trainer->comm, read_fault(trainer)));
    trainer->network = (taciti_model_network){.model = trainer->model, .batch = next_batch, .context = trainer};
    const taciti_driver_setup setup = {.strategy = trainer->strategy,
                                       .context = *context,
                                       .network = taciti_model_as_network(&trainer->network),
                                       .leave = wants_to_leave};
    return taciti_driver_create(&setup, &trainer->driver);
}

static void fill_times(const taciti_trainer *trainer, int64_t begin, const taciti_driver_record *record,
                       taciti_step_metrics *out) {
    const double tokens = (double)trainer->settings->train.batch * (double)trainer->time;
    out->step_s = (double)(taciti_now_ns() - begin) * 1e-9;
    out->compute_s = record->compute_s;
    out->encode_s = record->encode_s;
    out->wait_s = record->wait_s;
    out->update_s = record->update_s;
    out->tokens_per_s = tokens / out->step_s;
    const double flops = taciti_model_flops_per_token(&trainer->settings->job.model, trainer->time) * out->tokens_per_s;
    out->mfu = trainer->peak_flops > 0 ? flops / trainer->peak_flops : (double)NAN;
}

/* Fills in the figures that this rank knows by itself. */
static void fill_own(taciti_trainer *trainer, double lr, const taciti_step_report *report, taciti_step_metrics *out) {
    out->step = trainer->position.step;
    out->val_loss = out->distance = (double)NAN;
    out->lr = lr;
    out->grad_norm = report->grad_norm;
    out->tokens = trainer->position.tokens;
    /* Original / sent, where the original is the f32 all-reduce of all gradients: what dense data parallelism sends. */
    const double ranks = trainer->ranks,
                 original = 2 * (ranks - 1) / ranks * (double)(trainer->layout.n * sizeof(float));
    out->compression = report->bytes > 0 ? original / report->bytes : (double)NAN;
    out->factor = report->factor;
    out->gain = report->gain;
    out->kept = report->kept;
    out->pending = report->pending;
}

/* Counts from the end of the last step on, because mixes are under way between two steps. Reports of ranks count. */
static void count_bytes(taciti_trainer *trainer, taciti_step_metrics *out) {
    const taciti_comm_counters now = taciti_comm_count(trainer->comm), before = trainer->counted;
    out->bytes_sent = now.bytes_sent - before.bytes_sent;
    out->bytes_received = now.bytes_received - before.bytes_received;
    trainer->counted = now;
}

tacit_status taciti_trainer_step(taciti_trainer *trainer, bool stop_requested) {
    const int64_t begin = taciti_now_ns(), step = trainer->position.step;
    const double lr = taciti_optim_lr(&trainer->settings->job.optim, step, trainer->settings->train.steps);
    taciti_driver_record record;
    taciti_step_entry *entry = NULL;
    taciti_profiling_begin(trainer);
    TACITI_TRY(taciti_driver_step(trainer->driver, step, lr, &record));
    const taciti_rank_report mine = {.loss_sum = record.loss,
                                     .compute_s = record.compute_s,
                                     .stop = stop_requested || taciti_stop_signal() != 0 ? 1 : 0,
                                     .abandoned = record.abandoned ? 1 : 0,
                                     .skipped = record.report.skipped ? 1 : 0,
                                     .moved = record.report.moved};
    if (record.report.clock > 0) TACITI_TRY(taciti_trainer_step_alone(trainer));
    trainer->position.step = record.report.clock > 0 ? record.report.clock : step + 1;
    trainer->position.tokens += (uint64_t)trainer->settings->train.batch * trainer->time;
    TACITI_TRY(taciti_reports_put(trainer, &mine, &entry));
    fill_own(trainer, lr, &record.report, &entry->metrics);
    TACITI_TRY(taciti_reports_collect(trainer, trainer->reports.late));
    if (entry->abandoned) {
        /* As if the step had not been begun; its number and its samples are those of the next attempt. */
        taciti_reports_take_back(&trainer->reports);
        trainer->position.step--;
        trainer->position.tokens -= (uint64_t)trainer->settings->train.batch * trainer->time;
        return TACIT_OK;
    }
    count_bytes(trainer, &entry->metrics);
    fill_times(trainer, begin, &record, &entry->metrics);
    taciti_profiling_end(trainer, entry->metrics.update_s);
    return TACIT_OK;
}

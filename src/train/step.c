/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "train/stop.h"
#include "train/trainer.h"

enum { DROPOUT_STREAM = 'd' };

static void bucket_full(void *context, size_t bucket) {
    taciti_trainer *trainer = context;
    if (trainer->ready_status != TACIT_OK || trainer->strategy->ready == NULL) return;
    trainer->ready_status = trainer->strategy->ready(trainer->strategy_self, bucket);
}

static void poison(taciti_trainer *trainer, size_t tensor) {
    const taciti_train_settings *s = trainer->settings;
    const int64_t since = trainer->position.step - s->train.fail_at;
    if (s->train.fail_at < 0 || since < 0 || since >= s->train.fail_steps || trainer->rank != trainer->ranks - 1)
        return;
    taciti_model_gradients(trainer->model)[trainer->layout.tensors[tensor].offset] = NAN;
}

static void tensor_ready(void *context, size_t tensor) {
    taciti_trainer *trainer = context;
    trainer->ready_tensors = tensor + 1;
    poison(trainer, tensor);
    taciti_readiness_mark(&trainer->readiness, tensor, bucket_full, trainer);
}

/* Replicas that differ finish the step: others have mixed with what it makes. */
static bool wants_to_leave(void *context) {
    const taciti_trainer *trainer = context;
    return trainer->strategy->replicas_equal && taciti_stop_signal() != 0;
}

/* All ranks wait for this one's buckets, so they leave as they are; a gradient that is not finite lets everybody skip
 * the update. The last tensor cannot have been ready. */
static void abandon(taciti_trainer *trainer) {
    const size_t count = trainer->layout.tensor_count;
    taciti_model_gradients(trainer->model)[trainer->layout.tensors[count - 1].offset] = NAN;
    while (trainer->ready_tensors < count) tensor_ready(trainer, trainer->ready_tensors);
}

/* Forward and backward of this rank's samples, pass by pass; buckets leave during the last pass's backward. A rank
 * without samples still makes one empty pass: its gradient is zero and its buckets are ready. TACIT_PENDING: left. */
static tacit_status make_passes(taciti_trainer *trainer, double *loss_sum) {
    const taciti_train_settings *s = trainer->settings;
    const uint64_t batch = (uint64_t)s->train.batch, step = (uint64_t)trainer->position.step;
    const uint64_t key = taciti_rng_key(taciti_rng_key((uint64_t)s->train.seed, DROPOUT_STREAM), step);
    taciti_readiness_reset(&trainer->readiness);
    trainer->ready_status = TACIT_OK;
    trainer->ready_tensors = 0;
    *loss_sum = 0;
    size_t done = 0;
    do {
        const size_t left = trainer->share - done, count = left < trainer->micro ? left : trainer->micro;
        const int64_t begin = taciti_now_ns();
        TACITI_TRY(taciti_data_train(trainer->data, (uint64_t)s->train.seed,
                                     step * trainer->stride + trainer->sample + done, count, trainer->time,
                                     trainer->tokens, trainer->targets));
        (void)taciti_trace_add(&trainer->trace, TACITI_SPAN_DATA, -1, begin);
        const bool last = done + count >= trainer->share;
        const taciti_model_batch pass = {
            .tokens = trainer->tokens,
            .targets = trainer->targets,
            .batch = count,
            .time = trainer->time,
            .scale = (float)(1.0 / ((double)batch * (double)trainer->time)),
            .accumulate = done > 0,
            .dropout_key = key,
            .first_sample = trainer->first + done,
            .ready = last ? tensor_ready : NULL,
            .leave = wants_to_leave,
            .context = trainer,
        };
        double pass_loss = 0;
        TACITI_TRY(taciti_model_train(trainer->model, &pass, &trainer->trace, &pass_loss));
        *loss_sum += pass_loss;
        done += count;
    } while (done < trainer->share);
    return trainer->ready_status;
}

static tacit_status compute(taciti_trainer *trainer, taciti_rank_report *mine) {
    const tacit_status status = make_passes(trainer, &mine->loss_sum);
    if (status != TACIT_PENDING) return status;
    mine->abandoned = 1;
    abandon(trainer);
    return trainer->ready_status;
}

/* As if the step had not been begun; its number and its samples are those of the next attempt. */
static void take_back(taciti_trainer *trainer) {
    taciti_reports_take_back(&trainer->reports);
    trainer->position.step--;
    trainer->position.tokens -= (uint64_t)trainer->settings->train.batch * trainer->time;
}

static void fill_times(taciti_trainer *trainer, int64_t begin, int64_t compute_ns, const taciti_step_report *report,
                       taciti_step_metrics *out) {
    int64_t main[TACITI_SPAN_KINDS], wire[TACITI_SPAN_KINDS];
    taciti_trace_take_totals(&trainer->trace, main);
    taciti_trace_take_totals(taciti_comm_trace(trainer->comm), wire);
    const double per_ns = 1e-9;
    const double tokens = (double)trainer->settings->train.batch * (double)trainer->time;
    out->step_s = (double)(taciti_now_ns() - begin) * per_ns;
    out->compute_s = (double)compute_ns * per_ns;
    out->encode_s = (double)(wire[TACITI_SPAN_ENCODE] + wire[TACITI_SPAN_DECODE]) * per_ns;
    out->wait_s = (double)report->wait_ns * per_ns;
    out->update_s = (double)main[TACITI_SPAN_UPDATE] * per_ns;
    out->tokens_per_s = tokens / out->step_s;
    const double flops = taciti_model_flops_per_token(&trainer->settings->job.model, trainer->time) * out->tokens_per_s;
    out->mfu = trainer->peak_flops > 0 ? flops / trainer->peak_flops : (double)NAN;
}

/* Original / sent, where the original is the f32 all-reduce of all gradients: what dense data parallelism sends. */
static double compression_factor(const taciti_trainer *trainer) {
    const double sent = (double)trainer->strategy->bytes_per_step(trainer->strategy_self);
    const double ranks = (double)trainer->ranks;
    return sent > 0 ? 2 * (ranks - 1) / ranks * (double)(trainer->layout.n * sizeof(float)) / sent : (double)NAN;
}

/* What this rank knows of the step by itself. */
static void fill_own(taciti_trainer *trainer, double lr, const taciti_step_report *report, taciti_step_metrics *out) {
    out->step = trainer->position.step;
    out->val_loss = out->distance = (double)NAN;
    out->lr = lr;
    out->grad_norm = report->grad_norm;
    out->tokens = trainer->position.tokens;
    out->compression = compression_factor(trainer);
}

tacit_status taciti_trainer_step(taciti_trainer *trainer, bool stop_wish) {
    const int64_t begin = taciti_now_ns();
    const taciti_comm_counters before = taciti_comm_count(trainer->comm);
    trainer->trace.step = trainer->position.step;
    taciti_profiling_begin(trainer);
    taciti_rank_report mine = {.stop = 0};
    taciti_comm_announce(trainer->comm, trainer->position.step, "compute");
    const tacit_status computed = compute(trainer, &mine);
    /* What goes wrong on one rank alone would leave the others waiting: the job ends as a whole. */
    if (computed != TACIT_OK && trainer->ranks > 1) taciti_comm_abort(trainer->comm, computed);
    TACITI_TRY(computed);
    const int64_t compute_ns = taciti_now_ns() - begin;
    mine.compute_s = (double)compute_ns * 1e-9;
    taciti_comm_announce(trainer->comm, trainer->position.step, "exchange");
    const double lr =
        taciti_optim_lr(&trainer->settings->job.optim, trainer->position.step, trainer->settings->train.steps);
    taciti_step_report report = {0};
    taciti_step_entry *entry = NULL;
    TACITI_TRY(trainer->strategy->finish(trainer->strategy_self, lr, &report));
    mine.stop = stop_wish || taciti_stop_signal() != 0 ? 1 : 0;
    mine.skipped = report.skipped ? 1 : 0;
    mine.moved = report.moved;
    trainer->position.step++;
    trainer->position.tokens += (uint64_t)trainer->settings->train.batch * trainer->time;
    TACITI_TRY(taciti_reports_put(trainer, &mine, &entry));
    fill_own(trainer, lr, &report, &entry->metrics);
    TACITI_TRY(taciti_reports_collect(trainer, trainer->reports.late));
    if (entry->abandoned) {
        take_back(trainer);
        return TACIT_OK;
    }
    const taciti_comm_counters after = taciti_comm_count(trainer->comm);
    entry->metrics.bytes_sent = after.bytes_sent - before.bytes_sent;
    entry->metrics.bytes_received = after.bytes_received - before.bytes_received;
    fill_times(trainer, begin, compute_ns, &report, &entry->metrics);
    taciti_profiling_end(trainer, entry->metrics.update_s);
    return TACIT_OK;
}

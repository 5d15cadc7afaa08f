/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "bench/block.h"

#include <math.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "bench/interface_counters.h"

enum { TOKEN_KEY = 2, MODEL_SEED = 1, DROPOUT_KEY = 1 };

/* ---- plans ------------------------------------------------------------------------------------------------------ */

tacit_status taciti_bench_plan_create(const taciti_bench_setting *setting, taciti_bench_plan *out) {
    const taciti_settings *job = &setting->job;
    *out = (taciti_bench_plan){.setting = setting, .strategy = taciti_settings_strategy(job)};
    const size_t bucket_bytes = (size_t)job->exchange.bucket_bytes;
    if (!taciti_bench_setting_emulated(setting)) return taciti_model_layout(&job->model, bucket_bytes, &out->layout);
    TACITI_TRY(taciti_compute_profile(&job->compute, &out->profile));
    return taciti_profile_layout(&out->profile, bucket_bytes, &out->layout);
}

void taciti_bench_plan_destroy(taciti_bench_plan *plan) {
    taciti_layout_destroy(&plan->layout);
    taciti_profile_destroy(&plan->profile);
    *plan = (taciti_bench_plan){0};
}

/* ---- the worker ------------------------------------------------------------------------------------------------- */

static tacit_status create_model(taciti_bench_worker *worker, const taciti_bench_plan *base) {
    const taciti_model_options *options = &base->setting->job.model;
    const size_t tokens = worker->batch * worker->time + 1;
    const uint64_t key = taciti_rng_key(TOKEN_KEY, (uint64_t)taciti_comm_rank(worker->comm));
    TACITI_TRY(
        taciti_model_create(options, &base->layout, worker->pool, worker->batch, worker->time, true, &worker->model));
    worker->window = taciti_calloc(tokens, sizeof *worker->window);
    if (worker->window == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < tokens; i++)
        worker->window[i] = (int32_t)taciti_rng_below(key, i, (uint64_t)options->vocabulary);
    return TACIT_OK;
}

tacit_status taciti_bench_worker_create(taciti_comm *comm, const taciti_bench_plan *base, size_t batch, size_t time,
                                        int threads, taciti_bench_worker *out) {
    *out = (taciti_bench_worker){.comm = comm, .batch = batch, .time = time};
    TACITI_TRY(taciti_pool_create(threads, 0, &out->pool)); /* no spinning: the communication thread needs a core */
    TACITI_TRY(taciti_trace_create(0, &out->trace));
    return taciti_bench_setting_emulated(base->setting) ? TACIT_OK : create_model(out, base);
}

void taciti_bench_worker_destroy(taciti_bench_worker *worker) {
    taciti_emulated_destroy(worker->emulated);
    taciti_model_destroy(worker->model);
    taciti_free(worker->window);
    taciti_trace_destroy(&worker->trace);
    taciti_pool_destroy(worker->pool);
}

/* The accelerator of this plan. Arrays of one, whatever the number of settings: the last one goes first. One whose
 * gradients were written goes, too, before a strategy that has a buffer of its own and does not want them: the memory
 * of a rank is that of its hungriest setting, not the sum of two. */
static tacit_status choose_accelerator(taciti_bench_worker *worker, const taciti_bench_plan *plan) {
    const bool wanted = plan->strategy->ready != NULL, full = worker->gradients_written && !wanted;
    if (plan->machine != worker->emulates || full) {
        taciti_emulated_destroy(worker->emulated);
        worker->emulated = NULL;
        worker->emulates = NULL;
        worker->gradients_written = false;
        TACITI_TRY(taciti_emulated_create(&plan->machine->setting->job.compute, &plan->machine->profile,
                                          &plan->machine->layout, taciti_comm_rank(worker->comm), &worker->emulated));
        worker->emulates = plan->machine;
    }
    if (wanted && !worker->gradients_written) taciti_emulated_touch_gradients(worker->emulated);
    worker->gradients_written = wanted;
    return TACIT_OK;
}

/* ---- a block's objects ------------------------------------------------------------------------------------------ */

static tacit_status open_alone(taciti_bench_worker *worker, const taciti_bench_plan *plan) {
    worker->plan = plan;
    TACITI_TRY(taciti_readiness_create(&plan->layout, &worker->readiness));
    if (worker->model == NULL) {
        TACITI_TRY(choose_accelerator(worker, plan));
        return taciti_optim_create_emulated(plan->machine->profile.update_s, &plan->layout, &worker->optim);
    }
    taciti_model_init(worker->model, MODEL_SEED); /* what earlier blocks learned must not favour later ones */
    return taciti_optim_create(&plan->setting->job.optim, &plan->layout, worker->pool, &worker->optim);
}

taciti_strategy_context taciti_bench_plan_context(const taciti_bench_plan *plan, taciti_comm *comm) {
    const taciti_settings *setting = &plan->setting->job;
    return (taciti_strategy_context){
        .comm = comm,
        .layout = &plan->layout,
        .optim_options = &setting->optim,
        .exchange_options = &setting->exchange,
        .options = taciti_settings_options(setting, plan->strategy->options),
    };
}

/* Collective. */
static tacit_status open_strategy(taciti_bench_worker *worker) {
    taciti_model *model = worker->model;
    taciti_strategy_context context = taciti_bench_plan_context(worker->plan, worker->comm);
    context.pool = worker->pool;
    context.optim = worker->optim;
    context.parameters = model != NULL ? taciti_model_parameters(model) : taciti_emulated_parameters(worker->emulated);
    context.gradients = model != NULL ? taciti_model_gradients(model) : taciti_emulated_gradients(worker->emulated);
    context.copy16 = model != NULL ? taciti_model_copy16(model) : NULL;
    context.trace = &worker->trace;
    return worker->plan->strategy->create(&context, &worker->strategy);
}

static void close_block(taciti_bench_worker *worker) {
    if (worker->strategy != NULL) worker->plan->strategy->destroy(worker->strategy);
    taciti_optim_destroy(worker->optim);
    taciti_readiness_destroy(&worker->readiness);
    worker->strategy = NULL;
    worker->optim = NULL;
    worker->readiness = (taciti_readiness){0};
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static void bucket_full(void *context, size_t bucket) {
    taciti_bench_worker *worker = context;
    if (worker->ready_status != TACIT_OK || worker->plan->strategy->ready == NULL) return;
    worker->ready_status = worker->plan->strategy->ready(worker->strategy, bucket);
}

static void tensor_ready(void *context, size_t tensor) {
    taciti_bench_worker *worker = context;
    taciti_readiness_mark(&worker->readiness, tensor, bucket_full, worker);
}

static tacit_status pass_of_model(taciti_bench_worker *worker) {
    const double tokens = (double)worker->batch * (double)worker->time;
    const taciti_model_batch batch = {
        .tokens = worker->window,
        .targets = worker->window + 1,
        .batch = worker->batch,
        .time = worker->time,
        .scale = (float)(1 / (tokens * taciti_comm_size(worker->comm))),
        .dropout_key = DROPOUT_KEY,
        .ready = tensor_ready,
        .context = worker,
    };
    double loss = 0;
    return taciti_model_train(worker->model, &batch, &worker->trace, &loss);
}

static tacit_status compute(taciti_bench_worker *worker, int64_t step) {
    taciti_readiness_reset(&worker->readiness);
    worker->ready_status = TACIT_OK;
    if (worker->model != NULL)
        TACITI_TRY(pass_of_model(worker));
    else
        TACITI_TRY(taciti_emulated_step(worker->emulated, step, &worker->trace,
                                        worker->plan->strategy->ready != NULL ? tensor_ready : NULL, worker));
    return worker->ready_status;
}

/* One step; *previous_ns, the end of the step before, becomes the end of this one. */
static tacit_status run_step(taciti_bench_worker *worker, int64_t step, int64_t *previous_ns, taciti_step_record *out) {
    int64_t main_ns[TACITI_SPAN_KINDS], wire_ns[TACITI_SPAN_KINDS];
    taciti_step_report report = {0};
    const double per_ns = 1e-9;
    taciti_comm_announce(worker->comm, step, "compute");
    const int64_t begin_ns = taciti_now_ns();
    const tacit_status computed = compute(worker, step);
    /* What goes wrong on one rank alone would leave the others waiting: the job ends as a whole. */
    if (computed != TACIT_OK && taciti_comm_size(worker->comm) > 1) taciti_comm_abort(worker->comm, computed);
    TACITI_TRY(computed);
    const int64_t computed_ns = taciti_now_ns();
    taciti_comm_announce(worker->comm, step, "exchange");
    TACITI_TRY(worker->plan->strategy->finish(worker->strategy, worker->plan->setting->job.optim.lr, &report));
    const int64_t end_ns = taciti_now_ns();
    taciti_trace_take_totals(&worker->trace, main_ns);
    taciti_trace_take_totals(taciti_comm_trace(worker->comm), wire_ns);
    *out = (taciti_step_record){
        .step_s = (double)(end_ns - *previous_ns) * per_ns,
        .compute_s = (double)(computed_ns - begin_ns) * per_ns,
        .asked_s = worker->model != NULL ? (double)NAN : taciti_emulated_step_s(worker->emulated, step),
        .wait_s = (double)report.wait_ns * per_ns,
        .transfer_s = (double)wire_ns[TACITI_SPAN_TRANSFER] * per_ns,
        .update_s = (double)main_ns[TACITI_SPAN_UPDATE] * per_ns,
    };
    *previous_ns = end_ns;
    return TACIT_OK;
}

/* Processor time of this process, all threads. */
static double process_cpu_s(void) {
    struct rusage use;
    if (getrusage(RUSAGE_SELF, &use) != 0) return (double)NAN;
    return (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec +
           1e-6 * ((double)use.ru_utime.tv_usec + (double)use.ru_stime.tv_usec);
}

static tacit_status run_steps(taciti_bench_worker *worker, const taciti_bench_span *span, taciti_step_record *steps,
                              taciti_block_record *block) {
    int64_t previous_ns = taciti_now_ns(), begin_ns = previous_ns;
    double begin_cpu_s = process_cpu_s();
    for (size_t i = 0; i < span->warm_up + span->rounds; i++) {
        if (i == span->warm_up) {
            begin_ns = previous_ns;
            begin_cpu_s = process_cpu_s();
        }
        taciti_step_record *record = &steps[i < span->warm_up ? 0 : i - span->warm_up];
        TACITI_TRY(run_step(worker, span->first + (int64_t)i, &previous_ns, record));
    }
    block->cpu_s = process_cpu_s() - begin_cpu_s;
    block->wall_s = (double)(previous_ns - begin_ns) * 1e-9;
    return TACIT_OK;
}

/* ---- bytes between hosts ---------------------------------------------------------------------------------------- */

typedef struct reading {
    taciti_traffic nic;
    bool has_nic;
    taciti_comm_counters engine;
} reading;

/* Between two barriers nothing is under way, not even what a strategy sends during the next step, for a barrier queues
 * up behind it: what the kernel counted is what the engine counted, and that is of whole steps. */
static tacit_status read_traffic(taciti_bench_worker *worker, reading *out) {
    const taciti_peer *me = taciti_comm_peer(worker->comm, taciti_comm_rank(worker->comm));
    *out = (reading){0};
    TACITI_TRY(taciti_comm_barrier(worker->comm));
    if (me->local_rank == 0 && me->local_size < taciti_comm_size(worker->comm))
        out->has_nic = taciti_traffic_read(&out->nic);
    out->engine = taciti_comm_count(worker->comm);
    return taciti_comm_barrier(worker->comm);
}

static void note_traffic(const reading *before, const reading *after, taciti_block_record *block) {
    block->payload_bytes = after->engine.bytes_sent - before->engine.bytes_sent;
    block->away_sent_bytes = after->engine.away_bytes_sent - before->engine.away_bytes_sent;
    block->away_received_bytes = after->engine.away_bytes_received - before->engine.away_bytes_received;
    block->has_nic = before->has_nic && after->has_nic;
    if (block->has_nic == 0) return;
    block->nic_sent_bytes = after->nic.sent_bytes - before->nic.sent_bytes;
    block->nic_received_bytes = after->nic.received_bytes - before->nic.received_bytes;
}

/* ---- a block ---------------------------------------------------------------------------------------------------- */

static tacit_status run_open_block(taciti_bench_worker *worker, const taciti_bench_span *span,
                                   taciti_step_record *steps, taciti_block_record *block) {
    reading before, after;
    const taciti_strategy *strategy = worker->plan->strategy;
    TACITI_TRY(taciti_comm_agree(worker->comm, open_strategy(worker)));
    if (strategy->start != NULL) TACITI_TRY(strategy->start(worker->strategy, 0, NULL));
    block->formula_bytes = strategy->bytes_per_step(worker->strategy);
    block->nic_formula_bytes = strategy->nic_bytes_per_step(worker->strategy);
    TACITI_TRY(read_traffic(worker, &before));
    TACITI_TRY(run_steps(worker, span, steps, block));
    TACITI_TRY(read_traffic(worker, &after));
    note_traffic(&before, &after, block);
    return TACIT_OK;
}

tacit_status taciti_bench_plan_period(taciti_bench_worker *worker, const taciti_bench_plan *plan, size_t *out) {
    const taciti_strategy *strategy = plan->strategy;
    *out = 1;
    if (strategy->period == NULL) return TACIT_OK;
    tacit_status status = taciti_comm_agree(worker->comm, open_alone(worker, plan));
    if (status == TACIT_OK) status = taciti_comm_agree(worker->comm, open_strategy(worker));
    if (status == TACIT_OK) *out = strategy->period(worker->strategy);
    close_block(worker);
    return status;
}

tacit_status taciti_bench_block_run(taciti_bench_worker *worker, const taciti_bench_plan *plan,
                                    const taciti_bench_span *span, taciti_step_record *steps,
                                    taciti_block_record *block) {
    *block = (taciti_block_record){0};
    tacit_status status = taciti_comm_agree(worker->comm, open_alone(worker, plan));
    if (status == TACIT_OK) status = run_open_block(worker, span, steps, block);
    close_block(worker);
    return status;
}

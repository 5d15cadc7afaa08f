/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/block.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "bench/interface_counters.h"

enum { TOKEN_KEY = 2, MODEL_SEED = 1, DROPOUT_KEY = 1 };

/* ---- variants ---------------------------------------------------------------------------------------------------- */

tacit_status taciti_bench_variant_create(const taciti_bench_setting *setting, const taciti_hosts *hosts,
                                         taciti_bench_variant *out) {
    const taciti_settings *job = &setting->job;
    *out = (taciti_bench_variant){.setting = setting, .strategy = taciti_settings_strategy(job)};
    out->compress = job->compress;
    if (out->compress.warmup < 0) out->compress.warmup = 0; /* what is measured lasts */
    TACITI_TRY(taciti_settings_check(job, hosts, TACITI_READER_BENCH));
    if (taciti_bench_setting_emulated(setting)) {
        TACITI_TRY(taciti_compute_profile(&job->compute, &out->profile));
        TACITI_TRY(taciti_profile_layout(&out->profile, (size_t)job->exchange.bucket_bytes, &out->layout));
    } else {
        TACITI_TRY(taciti_model_layout(&job->model, (size_t)job->exchange.bucket_bytes, &out->layout));
    }
    return taciti_settings_seal(job, &out->layout);
}

void taciti_bench_variant_destroy(taciti_bench_variant *variant) {
    taciti_layout_destroy(&variant->layout);
    taciti_profile_destroy(&variant->profile);
    *variant = (taciti_bench_variant){0};
}

/* ---- the worker ------------------------------------------------------------------------------------------------- */

tacit_status taciti_bench_worker_create(taciti_comm *comm, const taciti_bench_variant *base, bool parts, size_t batch,
                                        size_t time, int threads, taciti_bench_worker *out) {
    *out = (taciti_bench_worker){.comm = comm, .batch = batch, .time = time};
    TACITI_TRY(taciti_pool_create(threads, 0, &out->pool)); /* no spinning: the communication thread needs a core */
    TACITI_TRY(taciti_trace_create(0, &out->trace));
    if (taciti_bench_setting_emulated(base->setting)) return TACIT_OK;
    const taciti_model_options *options = &base->setting->job.model;
    const size_t tokens = batch * time + 1;
    const uint64_t key = taciti_rng_key(TOKEN_KEY, (uint64_t)taciti_comm_rank(comm));
    const taciti_model_use use = parts ? TACITI_MODEL_TRAINING_PARTS : TACITI_MODEL_TRAINING;
    TACITI_TRY(taciti_model_create(options, &base->layout, out->pool, batch, time, use, &out->model));
    out->window = taciti_calloc(tokens, sizeof *out->window);
    if (out->window == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < tokens; i++)
        out->window[i] = (int32_t)taciti_rng_below(key, i, (uint64_t)options->vocabulary);
    return TACIT_OK;
}

void taciti_bench_worker_destroy(taciti_bench_worker *worker) {
    taciti_model_destroy(worker->model);
    taciti_free(worker->window);
    taciti_trace_destroy(&worker->trace);
    taciti_pool_destroy(worker->pool);
}

/* ---- a block's objects ------------------------------------------------------------------------------------------ */

static tacit_status next_batch(void *context, int64_t step, size_t pass, taciti_model_batch *out, bool *last) {
    const taciti_bench_worker *worker = context;
    const double tokens = (double)worker->batch * (double)worker->time;
    (void)step, (void)pass;
    *last = true;
    *out = (taciti_model_batch){.tokens = worker->window,
                                .targets = worker->window + 1,
                                .batch = worker->batch,
                                .time = worker->time,
                                .scale = (float)(1 / (tokens * taciti_comm_size(worker->comm))),
                                .dropout_key = DROPOUT_KEY};
    return TACIT_OK;
}

taciti_strategy_context taciti_bench_variant_context(const taciti_bench_variant *variant, taciti_comm *comm) {
    taciti_strategy_context context = taciti_settings_context(&variant->setting->job);
    context.comm = comm;
    context.layout = &variant->layout;
    context.compression.options = &variant->compress;
    return context;
}

static tacit_status commit_all(const taciti_pages *pages, const char *what) {
    return pages == NULL ? TACIT_OK : taciti_pages_commit(pages, 0, pages->bytes, what);
}

/* A block before this one may have given parts of it back. */
static tacit_status hold_model(taciti_network *network) {
    const taciti_network_arrays arrays = network->verbs->arrays(network->self);
    TACITI_TRY(commit_all(arrays.parameter_pages, "parameters"));
    TACITI_TRY(commit_all(arrays.gradient_pages, "gradients"));
    return commit_all(arrays.copy16_pages, "bf16 parameters");
}

/* The network of a block. A model is initialised for every block, since what earlier blocks have learned must not
 * favour later ones. */
static tacit_status open_network(taciti_bench_worker *worker, taciti_network *out) {
    const taciti_bench_variant *variant = worker->variant;
    if (worker->model != NULL) {
        worker->network = (taciti_model_network){.model = worker->model, .batch = next_batch, .context = worker};
        *out = taciti_model_as_network(&worker->network);
        TACITI_TRY(hold_model(out));
        taciti_model_init(worker->model, MODEL_SEED);
        return TACIT_OK;
    }
    TACITI_TRY(taciti_emulated_create(&variant->setting->job.compute, &variant->profile, &variant->layout,
                                      taciti_comm_rank(worker->comm), &worker->emulated));
    if (variant->strategy->sums_gradients) taciti_emulated_touch_gradients(worker->emulated);
    *out = taciti_emulated_network(worker->emulated);
    return TACIT_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

/* One step; *previous_ns, the end of the step before, becomes the end of this one. */
static tacit_status run_step(taciti_bench_worker *worker, int64_t step, int64_t *previous_ns, taciti_step_record *out) {
    taciti_driver_record record;
    TACITI_TRY(taciti_driver_step(worker->driver, step, worker->variant->setting->job.optim.lr, &record));
    const int64_t end_ns = taciti_now_ns();
    *out = (taciti_step_record){
        .step_s = (double)(end_ns - *previous_ns) * 1e-9,
        .compute_s = record.compute_s,
        .asked_s = worker->model != NULL ? (double)NAN : taciti_emulated_step_s(worker->emulated, step),
        .wait_s = record.wait_s,
        .transfer_s = record.transfer_s,
        .update_s = record.update_s,
    };
    *previous_ns = end_ns;
    return TACIT_OK;
}

static tacit_status run_steps(taciti_bench_worker *worker, const taciti_bench_span *span, taciti_step_record *steps,
                              taciti_block_record *block) {
    int64_t previous_ns = taciti_now_ns(), begin_ns = previous_ns, begin_cpu_ns = taciti_process_ns();
    for (size_t i = 0; i < span->warm_up + span->rounds; i++) {
        if (i == span->warm_up) {
            begin_ns = previous_ns;
            begin_cpu_ns = taciti_process_ns();
        }
        taciti_step_record *record = &steps[i < span->warm_up ? 0 : i - span->warm_up];
        TACITI_TRY(run_step(worker, span->first + (int64_t)i, &previous_ns, record));
    }
    block->cpu_s = (double)(taciti_process_ns() - begin_cpu_ns) * 1e-9;
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
    taciti_strategy_figures figures;
    const taciti_bench_variant *variant = worker->variant;
    const taciti_strategy_context context = taciti_bench_variant_context(variant, worker->comm);
    TACITI_TRY(taciti_driver_start(worker->driver, 0, false));
    TACITI_TRY(variant->strategy->describe(&context, taciti_driver_strategy(worker->driver), &figures));
    block->formula_bytes = figures.sent_bytes;
    TACITI_TRY(read_traffic(worker, &before));
    TACITI_TRY(run_steps(worker, span, steps, block));
    TACITI_TRY(read_traffic(worker, &after));
    note_traffic(&before, &after, block);
    return TACIT_OK;
}

tacit_status taciti_bench_block_run(taciti_bench_worker *worker, const taciti_bench_variant *variant,
                                    const taciti_bench_span *span, taciti_step_record *steps,
                                    taciti_block_record *block) {
    taciti_driver_setup setup = {.strategy = variant->strategy,
                                 .context = taciti_bench_variant_context(variant, worker->comm)};
    setup.context.pool = worker->pool;
    setup.context.trace = &worker->trace;
    worker->variant = variant;
    *block = (taciti_block_record){0};
    tacit_status status = taciti_comm_agree(worker->comm, open_network(worker, &setup.network));
    if (status == TACIT_OK) status = taciti_driver_create(&setup, &worker->driver);
    if (status == TACIT_OK) status = run_open_block(worker, span, steps, block);
    taciti_driver_destroy(worker->driver);
    taciti_emulated_destroy(worker->emulated);
    worker->driver = NULL;
    worker->emulated = NULL;
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/comparison.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"
#include "bench/block.h"
#include "bench/interface_counters.h"
#include "settings/settings.h"

enum { BOOT_BYTES = 40 };
#define GIB (1.0 / 0x1p30)

/* One comparison on one rank. */
struct taciti_cluster_run {
    const taciti_cluster_options *options;
    taciti_comm *comm;
    taciti_cluster_shape shape;
    taciti_bench_variant variants[TACITI_SETTINGS_MAX];
    taciti_cluster_records records[TACITI_SETTINGS_MAX];
    size_t period; /* the least that is a whole number of each one's */
    size_t variant_count;
    taciti_bench_worker worker;
    int machine_ranks; /* that share this machine, whatever hosts they believe to be on */
    int core_ranks;    /* of these, those that may use the same cores as this one */
    bool speaks;       /* this rank is the first of them */
    double machine_available_bytes;
    int64_t blocks_begin_ns;
    double step_sum_s;          /* a step of each setting, one after the other; rank 0's estimate */
    atomic_size_t blocks_done;  /* of all settings; their records are complete */
    taciti_cluster_bench facts; /* what is known of the answer before the first block */
};
typedef taciti_cluster_run run;

static bool is_emulated(const run *r) { return taciti_bench_setting_emulated(&r->options->settings->list[0]); }

/* ---- who is where ------------------------------------------------------------------------------------------------ */

typedef struct rank_memory {
    char boot[BOOT_BYTES]; /* the same on all emulated hosts of one machine */
    double available_bytes;
    uint64_t cores; /* digest of those that it may use */
} rank_memory;

/* Emulated hosts share the memory and the cores of one machine: its kernel's boot tells them apart. */
static tacit_status find_machine(run *r) {
    rank_memory mine = {.available_bytes = taciti_meminfo_bytes(TACITI_MEMINFO, "MemAvailable"),
                        .cores = taciti_usable_cores_key()};
    if (!taciti_system_line("/proc/sys/kernel/random/boot_id", mine.boot, sizeof mine.boot))
        (void)snprintf(mine.boot, sizeof mine.boot, "%.*s", (int)sizeof mine.boot - 1,
                       taciti_comm_peer(r->comm, taciti_comm_rank(r->comm))->host);
    rank_memory *all = taciti_calloc(r->shape.ranks, sizeof *all);
    tacit_status status = taciti_comm_agree(r->comm, all == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = taciti_comm_allgather(r->comm, &mine, sizeof mine, all);
    r->machine_available_bytes = mine.available_bytes;
    for (size_t i = 0; status == TACIT_OK && i < r->shape.ranks; i++) {
        if (strcmp(all[i].boot, mine.boot) != 0) continue;
        r->speaks = r->machine_ranks > 0 ? r->speaks : (int)i == taciti_comm_rank(r->comm);
        r->machine_ranks++;
        r->core_ranks += all[i].cores == mine.cores;
        if (all[i].available_bytes < r->machine_available_bytes) r->machine_available_bytes = all[i].available_bytes;
    }
    taciti_free(all);
    return status;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Computes the bytes that a block of this variant holds. An emulated accelerator touches only gradients that
 * are exchanged and parameters that are gathered; the strategy owns whatever else travels. */
static tacit_status variant_bytes(const run *r, const taciti_bench_variant *variant, size_t *period, size_t *out) {
    const taciti_settings *s = &variant->setting->job;
    taciti_strategy_context context = taciti_bench_variant_context(variant, r->comm);
    taciti_strategy_figures figures;
    context.idle_optimizer = is_emulated(r);
    TACITI_TRY(variant->strategy->describe(&context, NULL, &figures));
    const size_t own = figures.own_bytes;
    const size_t arrays = (variant->strategy->sums_gradients ? 1U : 0U) + (variant->strategy->units != NULL ? 1U : 0U);
    *period = figures.period;
    *out = own + arrays * variant->layout.n * sizeof(float);
    if (is_emulated(r)) return TACIT_OK;
    const taciti_model_memory m =
        taciti_model_predict(&s->model, &variant->layout, r->options->batch, r->options->time, r->facts.threads, true);
    *out = m.parameters + m.gradients + m.copy16 + m.activations + m.workspace + own +
           variant->layout.n * taciti_optim_bytes_per_float(&s->optim);
    return TACIT_OK;
}

static tacit_status check_memory(run *r) {
    const taciti_bench_length *asked = &r->options->length;
    size_t max = 0;
    for (size_t i = 0; i < r->variant_count; i++) {
        size_t bytes = 0;
        TACITI_TRY(taciti_comm_agree(r->comm, variant_bytes(r, &r->variants[i], &r->records[i].period, &bytes)));
        if (bytes > max) max = bytes;
    }
    const size_t rounds = asked->rounds > 0 ? asked->rounds : TACITI_LENGTH_AUTO_MAX;
    const size_t predicted = max + asked->blocks * r->shape.ranks * r->variant_count *
                                       (rounds * sizeof(taciti_step_record) + sizeof(taciti_block_record));
    const double needed = (double)predicted * r->machine_ranks, available = r->machine_available_bytes;
    r->facts.predicted_bytes = predicted;
    const bool fits = available <= 0 || needed <= available;
    const tacit_status worst = taciti_comm_agree(r->comm, fits ? TACIT_OK : TACIT_E_MEMORY);
    if (fits || !r->speaks) return worst;
    return taciti_fail(TACIT_E_MEMORY,
                       "the %d rank%s of this machine would need %.2f GiB (%.2f GiB each) and %.2f GiB are available: "
                       "take a smaller network, fewer ranks or fewer steps",
                       r->machine_ranks, r->machine_ranks == 1 ? "" : "s", needed * GIB, (double)predicted * GIB,
                       available * GIB);
}

/* ---- variants ---------------------------------------------------------------------------------------------------- */

static tacit_status create_variants(run *r) {
    for (size_t i = 0; i < r->options->settings->count; i++)
        TACITI_TRY(taciti_bench_variant_create(&r->options->settings->list[i], taciti_comm_hosts(r->comm),
                                               &r->variants[r->variant_count++]));
    return TACIT_OK;
}

/* Ranks that measure different things would wait for each other for ever. */
static tacit_status agree_on_comparison(run *r) {
    char text[256];
    const taciti_cluster_options *o = r->options;
    TACITI_TRY(taciti_agree_on_build(r->comm));
    (void)snprintf(text, sizeof text, "%zu settings, %zu blocks of %zu + %zu steps, %zu x %zu tokens", r->variant_count,
                   o->length.blocks, o->length.warm_up, o->length.rounds, o->batch, o->time);
    TACITI_TRY(taciti_comm_agree_text(r->comm, "measurement", text));
    for (size_t i = 0; i < r->variant_count; i++) {
        const taciti_bench_variant *variant = &r->variants[i];
        TACITI_TRY(taciti_agree_on_configuration(r->comm, &variant->setting->job.config));
        (void)snprintf(text, sizeof text, "%zu parameters in %zu tensors and %zu buckets, %.9g s of compute",
                       variant->layout.parameters, variant->layout.tensor_count, variant->layout.bucket_count,
                       taciti_profile_forward_s(&variant->profile) + taciti_profile_backward_s(&variant->profile));
        TACITI_TRY(taciti_comm_agree_text(r->comm, "network", text));
    }
    return TACIT_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static double seconds_since(int64_t begin_ns) { return (double)(taciti_now_ns() - begin_ns) * 1e-9; }

static void tell_progress(const run *r, size_t done, size_t setting, double step_s) {
    if (r->options->progress == NULL || taciti_comm_rank(r->comm) != 0) return;
    const size_t total = r->variant_count * r->shape.blocks;
    const double elapsed_s = seconds_since(r->blocks_begin_ns);
    const taciti_cluster_progress progress = {.done = done,
                                              .total = total,
                                              .label = r->variants[setting].setting->label,
                                              .step_s = step_s,
                                              .elapsed_s = elapsed_s,
                                              .left_s = elapsed_s / (double)done * (double)(total - done)};
    r->options->progress(r->options->context, &progress);
}

/* Runs one block; every rank receives the records of all. */
static tacit_status run_block(run *r, size_t setting, size_t block, taciti_step_record *steps) {
    taciti_block_record mine;
    const taciti_cluster_shape *shape = &r->shape;
    const taciti_bench_span span = {.first = (int64_t)(block * (shape->warm_up + shape->rounds)),
                                    .warm_up = shape->warm_up,
                                    .rounds = shape->rounds};
    taciti_cluster_records *records = &r->records[setting];
    TACITI_TRY(taciti_bench_block_run(&r->worker, &r->variants[setting], &span, steps, &mine));
    TACITI_TRY(taciti_comm_allgather(r->comm, steps, shape->rounds * sizeof *steps,
                                     &records->steps[block * shape->ranks * shape->rounds]));
    TACITI_TRY(taciti_comm_allgather(r->comm, &mine, sizeof mine, &records->blocks[block * shape->ranks]));
    const size_t done = atomic_load_explicit(&r->blocks_done, memory_order_relaxed) + 1;
    atomic_store_explicit(&r->blocks_done, done, memory_order_release);
    tell_progress(r, done, setting, mine.wall_s / (double)shape->rounds);
    return TACIT_OK;
}

/* All settings take the same steps, so a block must be whole periods of every one of them. */
static tacit_status find_period(run *r) {
    r->period = 1;
    for (size_t i = 0; i < r->variant_count; i++) {
        const size_t before = r->period;
        while (r->period % r->records[i].period != 0 && r->period <= TACITI_CLUSTER_MAX_ROUNDS) r->period += before;
        if (r->period <= TACITI_CLUSTER_MAX_ROUNDS) continue;
        return taciti_comm_rank(r->comm) != 0
                   ? TACIT_E_CONFIG
                   : taciti_fail(TACIT_E_CONFIG,
                                 "%s: what is exchanged repeats after %zu steps, which with the settings before it "
                                 "makes blocks of more than %d steps: compare such settings in runs of their own",
                                 r->variants[i].setting->label, r->records[i].period, TACITI_CLUSTER_MAX_ROUNDS);
    }
    return TACIT_OK;
}

/* ---- how long it takes ------------------------------------------------------------------------------------------- */

/* A few steps of each setting: a period where that is short and nobody said how many steps to take, more when they are
 * over at once. All ranks follow rank 0. */
static tacit_status time_steps(run *r) {
    enum { MANY = TACITI_LENGTH_AUTO_MAX / 2 };
    const double soon_s = 0.1;
    taciti_step_record records[TACITI_LENGTH_AUTO_MAX];
    taciti_block_record block;
    for (size_t i = 0; i < r->variant_count; i++) {
        const size_t period = r->records[i].period;
        const bool whole = r->options->length.rounds == 0 && period <= TACITI_LENGTH_AUTO_MAX;
        taciti_bench_span span = {.first = 0, .warm_up = 1, .rounds = whole ? period : 1};
        for (bool again = true; again; span.rounds = MANY) {
            TACITI_TRY(taciti_bench_block_run(&r->worker, &r->variants[i], &span, records, &block));
            TACITI_TRY(taciti_comm_broadcast(r->comm, 0, &block.wall_s, sizeof block.wall_s));
            again = span.rounds < MANY && block.wall_s < soon_s;
            if (!again) r->step_sum_s += block.wall_s / (double)span.rounds;
        }
    }
    return TACIT_OK;
}

static tacit_status choose_length(run *r) {
    taciti_bench_length length = r->options->length;
    TACITI_TRY(time_steps(r));
    if (length.rounds == 0) taciti_bench_length_choose(&length, r->step_sum_s);
    const taciti_bench_length before = length;
    /* Whole periods, so that what is measured of a block is the mean over all that a strategy does in turns. */
    const bool longer = taciti_bench_length_round_up(&length, r->period), speaks = taciti_comm_rank(r->comm) == 0;
    if (longer && speaks)
        taciti_log(TACITI_LOG_INFO,
                   "what is exchanged repeats after %zu steps: blocks of %zu + %zu steps instead of %zu + %zu",
                   r->period, length.warm_up, length.rounds, before.warm_up, before.rounds);
    const double seconds = taciti_bench_length_seconds(&length, r->step_sum_s);
    const bool minutes = seconds >= 120;
    if (speaks)
        taciti_log(TACITI_LOG_INFO, "%zu block%s of %zu + %zu steps of each of %zu setting%s: about %.0f %s",
                   length.blocks, length.blocks == 1 ? "" : "s", length.warm_up, length.rounds, r->variant_count,
                   r->variant_count == 1 ? "" : "s", minutes ? seconds / 60 : seconds, minutes ? "min" : "s");
    r->shape.blocks = length.blocks;
    r->shape.rounds = length.rounds;
    r->shape.warm_up = length.warm_up;
    return TACIT_OK;
}

static tacit_status run_blocks(run *r) {
    taciti_step_record *steps = taciti_calloc(r->shape.rounds, sizeof *steps);
    tacit_status status = taciti_comm_agree(r->comm, steps == NULL ? TACIT_E_MEMORY : TACIT_OK);
    r->blocks_begin_ns = taciti_now_ns();
    for (size_t b = 0; b < r->shape.blocks && status == TACIT_OK; b++)
        for (size_t i = 0; i < r->variant_count && status == TACIT_OK; i++)
            status = run_block(r, (b + i) % r->variant_count, b, steps);
    taciti_free(steps);
    if (status == TACIT_E_PEER && r->shape.ranks > 1) taciti_comm_abort(r->comm, status);
    return status;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static tacit_status describe_hosts(const run *r, taciti_cluster_bench *out) {
    out->ranks = r->shape.ranks;
    out->hosts = (size_t)r->shape.hosts->count;
    (void)snprintf(out->library, sizeof out->library, "%s", taciti_comm_engine(r->comm)->library);
    out->host_names = taciti_calloc(out->hosts, sizeof *out->host_names);
    out->host_ranks = taciti_calloc(out->hosts, sizeof *out->host_ranks);
    if (out->host_names == NULL || out->host_ranks == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < out->ranks; i++) {
        const int host = r->shape.hosts->host_of[i];
        if (out->host_ranks[host]++ == 0)
            (void)snprintf(out->host_names[host], TACITI_HOST_BYTES, "%s", taciti_comm_peer(r->comm, (int)i)->host);
    }
    taciti_traffic traffic;
    if (out->hosts > 1 && taciti_traffic_read(&traffic))
        (void)snprintf(out->interfaces, sizeof out->interfaces, "%s", traffic.names);
    return TACIT_OK;
}

/* The first block of each setting is run in the order of the settings. */
static tacit_status make_figures(const run *r, size_t blocks_done, taciti_cluster_bench *out) {
    const taciti_comm_options *comm = &r->variants[0].setting->job.comm;
    const bool has_thread = r->shape.ranks > 1 && comm->thread && taciti_comm_engine(r->comm)->any_thread;
    const size_t settings = blocks_done < r->variant_count ? blocks_done : r->variant_count;
    taciti_cluster_shape shape = r->shape;
    out->blocks = shape.blocks = blocks_done / settings;
    out->rounds = shape.rounds;
    out->warm_up = shape.warm_up;
    out->figures = taciti_calloc(settings, sizeof *out->figures);
    out->buckets = taciti_calloc(settings, sizeof *out->buckets);
    if (out->figures == NULL || out->buckets == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < settings; i++) {
        TACITI_TRY(taciti_cluster_figures_of(&shape, &r->records[i], &r->records[0], has_thread, &out->figures[i]));
        out->buckets[i] = r->variants[i].layout.bucket_count;
        out->setting_count++;
    }
    return TACIT_OK;
}

static tacit_status make_answer(const run *r, taciti_cluster_bench *out) {
    const size_t done = atomic_load_explicit(&r->blocks_done, memory_order_acquire);
    if (done == 0) return TACIT_E_DATA;
    *out = r->facts;
    out->interrupted = done < r->variant_count * r->shape.blocks;
    out->parameters = r->variants[0].layout.parameters;
    if (is_emulated(r)) {
        const taciti_profile *profile = &r->variants[0].profile;
        out->forward_s = taciti_profile_forward_s(profile);
        out->backward_s = taciti_profile_backward_s(profile);
        (void)snprintf(out->profile, sizeof out->profile, "%s", profile->name);
        (void)snprintf(out->profile_source, sizeof out->profile_source, "%s", profile->source);
    }
    TACITI_TRY(describe_hosts(r, out));
    return make_figures(r, done, out);
}

tacit_status taciti_cluster_run_figures(const taciti_cluster_run *r, taciti_cluster_bench *out) {
    taciti_cluster_bench bench = {0};
    const tacit_status status = make_answer(r, &bench);
    if (status == TACIT_OK)
        *out = bench;
    else
        taciti_cluster_bench_destroy(&bench);
    return status;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static bool holds_parts(const run *r) {
    size_t v = 0;
    while (v < r->variant_count && r->variants[v].strategy->units == NULL) v++;
    return v < r->variant_count;
}

static tacit_status prepare_run(run *r) {
    taciti_cluster_bench *facts = &r->facts;
    r->shape.ranks = (size_t)taciti_comm_size(r->comm);
    r->shape.hosts = taciti_comm_hosts(r->comm);
    TACITI_TRY(find_machine(r));
    TACITI_TRY(taciti_comm_agree(r->comm, create_variants(r)));
    TACITI_TRY(agree_on_comparison(r));
    const int share = taciti_usable_cores() / r->core_ranks, asked = r->options->threads;
    facts->threads = is_emulated(r) || share < 1 ? 1 : share;
    if (!is_emulated(r) && asked > 0) facts->threads = asked;
    TACITI_TRY(check_memory(r));
    const tacit_status status = taciti_bench_worker_create(r->comm, &r->variants[0], holds_parts(r), r->options->batch,
                                                           r->options->time, facts->threads, &r->worker);
    return taciti_comm_agree(r->comm, status);
}

static void show_run(const run *r, const run *now) {
    if (r->options->running != NULL && taciti_comm_rank(r->comm) == 0) r->options->running(r->options->context, now);
}

static tacit_status measure_run(run *r) {
    TACITI_TRY(find_period(r));
    TACITI_TRY(choose_length(r));
    tacit_status status = TACIT_OK;
    for (size_t i = 0; status == TACIT_OK && i < r->variant_count; i++)
        status = taciti_cluster_records_create(&r->shape, &r->records[i]);
    TACITI_TRY(taciti_comm_agree(r->comm, status));
    r->facts.resident_bytes = taciti_peak_resident_bytes();
    show_run(r, r);
    status = run_blocks(r);
    show_run(r, NULL);
    TACITI_TRY(status);
    double peak = (double)taciti_peak_resident_bytes();
    TACITI_TRY(taciti_comm_allreduce_f64(r->comm, &peak, 1, TACITI_OP_MAX));
    r->facts.resident_bytes = (size_t)peak;
    return TACIT_OK;
}

tacit_status taciti_cluster_bench_run(taciti_comm *comm, const taciti_cluster_options *options,
                                      taciti_cluster_bench *out) {
    run *r = taciti_calloc(1, sizeof *r);
    if (r != NULL) *r = (run){.options = options, .comm = comm};
    tacit_status status = taciti_comm_agree(comm, r == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = prepare_run(r);
    if (status == TACIT_OK) status = measure_run(r);
    if (status == TACIT_OK) status = taciti_cluster_run_figures(r, out);
    if (r == NULL || !taciti_comm_let_go(comm)) return status; /* messages may still be written to its arrays */
    taciti_bench_worker_destroy(&r->worker);
    for (size_t i = 0; i < r->variant_count; i++) {
        taciti_cluster_records_destroy(&r->records[i]);
        taciti_bench_variant_destroy(&r->variants[i]);
    }
    taciti_free(r);
    return status;
}

void taciti_cluster_bench_destroy(taciti_cluster_bench *bench) {
    for (size_t i = 0; i < bench->setting_count; i++) taciti_setting_figures_destroy(&bench->figures[i]);
    taciti_free(bench->figures);
    taciti_free(bench->buckets);
    taciti_free(bench->host_names);
    taciti_free(bench->host_ranks);
    *bench = (taciti_cluster_bench){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer.h"

#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "kernel/probe.h"

enum {
    SPANS_PER_RUN = 1 << 18,      /* 10 MiB when run.trace is on */
    SPANS_PER_PROFILED = 1 << 14, /* 640 KiB for the spans of one step */
    SPIN_ALONE_US = 50,           /* a pool that owns its cores */
};
#define PROBE_SECONDS 0.02
/* Memory that libraries take later on: generated code, stacks, message buffers. Measured: 11 to 18 MiB. */
#define LIBRARIES_BYTES ((size_t)15 << 20)
/* Memory that they and the threads map, of which much is never touched: alignment, stacks, arenas. Measured: 23 to 31
 * MiB, and 12 MiB more for each further thread. */
#define MAPPED_BYTES ((double)(24 << 20))
#define MAPPED_PER_THREAD_BYTES ((double)(12 << 20))

/* A byte, or a token of a small tokenizer, has no meaning in a model of many more tokens. */
static tacit_status check_tokenizer(const taciti_trainer *trainer) {
    const taciti_train_settings *s = trainer->settings;
    const taciti_data_info *data = &trainer->data_info;
    const long long tokens = s->job.model.vocabulary;
    if (!data->vocabulary_known || tokens <= (long long)data->vocabulary) return TACIT_OK;
    const bool others = tokens > 4 * (long long)data->vocabulary, bytes = data->vocabulary == TACITI_BYTE_TOKENS;
    if (others && s->train.init.text[0] != '\0')
        return taciti_fail(TACIT_E_CONFIG,
                           "train.init %s is a model of %lld tokens, but the data (%s) is read as %d tokens: name "
                           "its tokenizer, --data.vocab vocab.json with merges.txt beside it",
                           s->train.init.text, tokens, data->source, data->vocabulary);
    if (trainer->rank == 0 && (others || (bytes && s->train.init.text[0] != '\0')))
        taciti_log(TACITI_LOG_WARN,
                   "the model has %lld tokens, but the data (%s) is read as %d: the others are never trained; name "
                   "the tokenizer with --data.vocab, or --model.vocabulary %d makes it smaller",
                   tokens, data->source, data->vocabulary, data->vocabulary);
    return TACIT_OK;
}

/* A size that was asked for, by a preset too, is not made smaller. */
static tacit_status resolve_vocabulary(taciti_trainer *trainer) {
    taciti_model_options *model = &trainer->settings->job.model;
    const taciti_data_info *data = &trainer->data_info;
    const bool open = model->vocabulary == 0 && data->vocabulary_known;
    if (open && model->preset.text[0] == '\0') model->vocabulary = data->vocabulary;
    TACITI_TRY(taciti_model_resolve(model));
    if (open && model->vocabulary < data->vocabulary) model->vocabulary = data->vocabulary;
    if (model->vocabulary < data->vocabulary)
        return taciti_fail(
            TACIT_E_CONFIG,
            "model.vocabulary is %lld but the data (%s) uses %d tokens: --model.vocabulary N, the size of its "
            "tokenizer (bytes: 256)",
            (long long)model->vocabulary, data->source, data->vocabulary);
    return check_tokenizer(trainer);
}

static tacit_status resolve_sizes(taciti_trainer *trainer) {
    taciti_train_settings *s = trainer->settings;
    TACITI_TRY(resolve_vocabulary(trainer));
    trainer->time = (size_t)(s->train.time > 0 ? s->train.time : s->job.model.context);
    if ((int64_t)trainer->time > s->job.model.context)
        return taciti_fail(TACIT_E_CONFIG, "train.seq is %zu but model.context allows %lld positions", trainer->time,
                           (long long)s->job.model.context);
    const size_t batch = (size_t)s->train.batch, rank = (size_t)trainer->rank, ranks = (size_t)trainer->ranks;
    trainer->first = batch * rank / ranks;
    trainer->share = batch * (rank + 1) / ranks - trainer->first;
    const size_t largest = (batch + ranks - 1) / ranks, asked = (size_t)s->train.micro_batch;
    trainer->micro = asked == 0 || asked > largest ? largest : asked;
    trainer->passes = largest == 0 ? 1 : (largest + trainer->micro - 1) / trainer->micro;
    return TACIT_OK;
}

/* With a partition every rank counts its own samples, so each must have some. */
static tacit_status assign_samples(taciti_trainer *trainer) {
    const taciti_train_settings *s = trainer->settings;
    TACITI_TRY(
        taciti_data_assign(trainer->data, (uint64_t)s->train.seed, trainer->rank, trainer->ranks, trainer->time));
    const bool own = taciti_data_partitioned(trainer->data);
    trainer->sample = own ? 0 : trainer->first;
    trainer->stride = own ? trainer->share : (size_t)s->train.batch;
    if (!own || s->train.batch >= trainer->ranks) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "data.partition %s: with train.batch %lld some of %d ranks have no sample in a step, and their "
                       "data is never seen; --train.batch %d or more",
                       s->data.partition.text, (long long)s->train.batch, trainer->ranks, trainer->ranks);
}

static tacit_status check_arrivals(const taciti_trainer *trainer) {
    const bool records = trainer->settings->run.arrivals.text[0] != '\0', replays = trainer->replay != NULL;
    if (records && replays)
        return taciti_fail(TACIT_E_CONFIG, "--replay %s repeats a run that has its log; leave run.arrivals out",
                           trainer->replay);
    if ((records || replays) && !taciti_train_is_asynchronous(trainer->settings))
        return taciti_fail(TACIT_E_CONFIG,
                           "%s: only ranks that wait for nobody have arrivals to log; add --strategy "
                           "gossip --gossip.async, or leave it out",
                           records ? "run.arrivals" : "--replay");
    if (trainer->profiling.path == NULL || !taciti_train_is_asynchronous(trainer->settings)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "--profile measures steps that all ranks make together; --no-gossip.async, or "
                                       "--strategy dp");
}

static tacit_status digest_run(taciti_trainer *trainer) {
    char *text = taciti_config_json(&trainer->settings->job.config, 1);
    if (text == NULL) return TACIT_E_MEMORY;
    trainer->digest = XXH3_64bits_withSeed(text, strlen(text),
                                           XXH3_64bits(trainer->data_info.digest, strlen(trainer->data_info.digest)));
    taciti_free(text);
    return TACIT_OK;
}

/* Prepares this rank by itself; the caller agrees on the outcome. */
static tacit_status prepare_alone(taciti_trainer *trainer, bool resume) {
    /* The section `compute` describes a machine to others than the trainer. */
    const char *emulate = trainer->settings->job.compute.emulate.text;
    if (emulate[0] != '\0')
        return taciti_fail(TACIT_E_CONFIG,
                           "compute.emulate %s: training computes for real; steps of an emulated accelerator: tacit "
                           "bench step --compute.emulate %s, or tacit plan",
                           emulate, emulate);
    trainer->strategy = taciti_settings_strategy(&trainer->settings->job);
    TACITI_TRY(taciti_settings_check(&trainer->settings->job, taciti_comm_hosts(trainer->comm), TACITI_READER_TRAIN));
    TACITI_TRY(check_arrivals(trainer));
    TACITI_TRY(taciti_trainer_take_shape(trainer, resume));
    TACITI_TRY(taciti_data_open(&trainer->settings->data, &trainer->data));
    trainer->data_info = taciti_data_describe(trainer->data);
    TACITI_TRY(resolve_sizes(trainer));
    TACITI_TRY(taciti_data_check(trainer->data, trainer->time, trainer->settings->train.eval_every >= 0));
    TACITI_TRY(assign_samples(trainer));
    taciti_data_limit_vocabulary(trainer->data, (int32_t)trainer->settings->job.model.vocabulary);
    const taciti_settings *job = &trainer->settings->job;
    TACITI_TRY(taciti_model_layout(&job->model, (size_t)job->exchange.bucket_bytes, &trainer->layout));
    TACITI_TRY(taciti_settings_seal(job, &trainer->layout));
    TACITI_TRY(digest_run(trainer));
    return trainer->rank == 0 ? taciti_settings_warn_unread(&job, 1, TACITI_READER_TRAIN) : TACIT_OK;
}

taciti_strategy_context taciti_trainer_context(taciti_trainer *trainer) {
    taciti_strategy_context context = taciti_settings_context(&trainer->settings->job);
    context.comm = trainer->comm;
    context.layout = &trainer->layout;
    context.pool = trainer->pool;
    context.trace = &trainer->trace;
    context.total_steps = trainer->settings->train.steps;
    context.follows_clock = true;
    context.replays = trainer->replay != NULL;
    const char *arrivals = trainer->settings->run.arrivals.text;
    context.arrivals = context.replays ? trainer->replay : arrivals[0] != '\0' ? arrivals : NULL;
    context.run = trainer->digest;
    return context;
}

static tacit_status predict_memory(taciti_trainer *trainer, taciti_memory_plan *out) {
    const taciti_train_settings *s = trainer->settings;
    const taciti_strategy_context context = taciti_trainer_context(trainer);
    taciti_memory_plan plan = {0};
    plan.model =
        taciti_model_predict(&s->job.model, &trainer->layout, trainer->micro, trainer->time, trainer->threads, true);
    plan.moments = trainer->layout.n * taciti_optim_bytes_per_float(&s->job.optim);
    if (trainer->strategy->units != NULL) {
        taciti_strategy_memory parts;
        trainer->strategy->units->memory(&context, trainer->passes, &parts);
        plan.moments = parts.moments;
        plan.model.parameters = parts.parameters;
        plan.model.gradients = parts.gradients;
        if (plan.model.copy16 > 0) plan.model.copy16 = parts.copy16;
    }
    TACITI_TRY(trainer->strategy->describe(&context, NULL, &trainer->figures));
    plan.exchange = trainer->figures.own_bytes;
    plan.process = taciti_peak_resident_bytes() + LIBRARIES_BYTES;
    plan.mapped = taciti_data_bytes();
    plan.total = plan.model.parameters + plan.model.gradients + plan.model.copy16 + plan.model.activations +
                 plan.model.workspace + plan.moments + plan.exchange + plan.process;
    *out = plan;
    return TACIT_OK;
}

/* Bytes that the run will still allocate; in doubles, as sizes that nobody can have would wrap around. */
static double coming_bytes(const taciti_trainer *trainer) {
    const taciti_model_options *m = &trainer->settings->job.model;
    const double tokens = (double)trainer->micro * (double)trainer->time;
    const double parts = trainer->strategy->units != NULL ? trainer->ranks : 1;
    const double min = (double)trainer->layout.n * (2 * sizeof(float)) / parts +
                       tokens * (double)m->channels * (double)m->layers * sizeof(float);
    const double arrays = (double)trainer->memory.total - (double)trainer->memory.process;
    return arrays > min ? arrays : min;
}

/* Returns what a user may do against a lack of memory. */
static const char *advise_on_memory(const taciti_trainer *trainer) {
    taciti_place stage;
    const bool finds = taciti_config_find(&trainer->settings->job.config, "shard.stage", &stage);
    const bool shards = strcmp(trainer->settings->job.strategy.text, "shard") == 0;
    if (trainer->ranks == 1) return "a smaller model, --train.micro_batch or more ranks";
    if (!shards) return "--strategy shard, which holds parts, a smaller model, --train.micro_batch or more hosts";
    if (finds && *(const int64_t *)stage.value < 3)
        return "--shard.stage 3, which holds all in parts, a smaller model, --train.micro_batch or more ranks";
    return "a smaller model, --train.micro_batch or more ranks";
}

double taciti_trainer_mapped_bytes(const taciti_trainer *trainer) {
    return (double)trainer->memory.mapped + coming_bytes(trainer) + MAPPED_BYTES +
           (double)trainer->threads * MAPPED_PER_THREAD_BYTES;
}

static tacit_status refuse_limit(const taciti_trainer *trainer, double missing) {
    return taciti_fail(TACIT_E_MEMORY,
                       "rank %d maps %.0f MiB of private memory, of which its libraries have %.0f MiB already, and its "
                       "limit is %.0f MiB (RLIMIT_DATA: prlimit --data, ulimit -d): %.0f bytes are missing; %s",
                       trainer->rank, taciti_trainer_mapped_bytes(trainer) * TACITI_MIB,
                       (double)trainer->memory.mapped * TACITI_MIB, (double)taciti_data_limit_bytes() * TACITI_MIB,
                       missing, advise_on_memory(trainer));
}

static tacit_status refuse_host(const taciti_trainer *trainer, double each) {
    const taciti_peer *me = taciti_comm_peer(trainer->comm, trainer->rank);
    return taciti_fail(
        TACIT_E_MEMORY, "host %s: %d rank%s with %.0f MiB each need %.0f MiB of memory, %.0f MiB are available; %s",
        me->host, me->local_size, me->local_size == 1 ? "" : "s", each * TACITI_MIB, each * me->local_size * TACITI_MIB,
        (double)taciti_available_bytes() * TACITI_MIB, advise_on_memory(trainer));
}

/* Memory is given on first use, so without this a run would be killed in its first step, after minutes of work. The
 * rank that misses most speaks for all; of a host's memory, which changes from look to look, its first rank speaks. */
tacit_status taciti_trainer_check_memory(const taciti_trainer *trainer) {
    const double each = coming_bytes(trainer) + LIBRARIES_BYTES;
    const double available = (double)taciti_available_bytes(), limit = (double)taciti_data_limit_bytes();
    const taciti_peer *me = taciti_comm_peer(trainer->comm, trainer->rank);
    const double in_limit = taciti_data_limit_bytes() == SIZE_MAX ? 0 : taciti_trainer_mapped_bytes(trainer) - limit;
    const double on_host = me->local_rank > 0 || available <= 0 ? 0 : each * me->local_size - available;
    const double mine = in_limit > 0 ? in_limit : on_host;
    double max = mine, speaker = trainer->ranks;
    TACITI_TRY(taciti_comm_allreduce_f64(trainer->comm, &max, 1, TACITI_OP_MAX));
    if (!(max > 0)) return TACIT_OK;
    if (mine >= max) speaker = trainer->rank;
    TACITI_TRY(taciti_comm_allreduce_f64(trainer->comm, &speaker, 1, TACITI_OP_MIN));
    tacit_status status = TACIT_E_MEMORY;
    if (trainer->rank == (int)speaker)
        status = in_limit > 0 ? refuse_limit(trainer, in_limit) : refuse_host(trainer, each);
    return taciti_comm_agree(trainer->comm, status);
}

tacit_status taciti_trainer_prepare(taciti_trainer *trainer, taciti_comm *comm, taciti_train_settings *settings,
                                    const taciti_train_request *request) {
    *trainer = (taciti_trainer){.comm = comm,
                                .settings = settings,
                                .from_mean = request->from_mean,
                                .dry_run = request->dry_run,
                                .replay = request->replay,
                                .profiling = {.path = request->profile},
                                .lock = {.fd = -1},
                                .log_lock = {.fd = -1}};
    trainer->rank = taciti_comm_rank(comm);
    trainer->ranks = taciti_comm_size(comm);
    const int share = taciti_comm_cores(comm);
    trainer->threads = settings->train.threads > 0 ? (int)settings->train.threads : share > 1 ? share : 1;
    tacit_status status = taciti_check_run_folder(settings->run.dir.text);
    if (status == TACIT_OK) status = taciti_check_run_inputs(settings, request);
    if (status == TACIT_OK) status = prepare_alone(trainer, request->resume);
    TACITI_TRY(taciti_comm_agree(comm, status));
    TACITI_TRY(taciti_trainer_agree(trainer));
    TACITI_TRY(taciti_comm_agree(comm, predict_memory(trainer, &trainer->memory)));
    if (settings->train.batch < trainer->ranks && trainer->rank == 0)
        taciti_log(TACITI_LOG_WARN, "train.batch %lld is smaller than the %d ranks: %lld have nothing to compute",
                   (long long)settings->train.batch, trainer->ranks, trainer->ranks - (long long)settings->train.batch);
    if ((int64_t)trainer->time < settings->job.model.context && trainer->rank == 0)
        taciti_log(TACITI_LOG_WARN, "train.seq %zu is shorter than model.context %lld: later positions stay untrained",
                   trainer->time, (long long)settings->job.model.context);
    return TACIT_OK;
}

static tacit_status build_alone(taciti_trainer *trainer) {
    taciti_train_settings *s = trainer->settings;
    const int spin_us = trainer->threads <= taciti_comm_cores(trainer->comm) ? SPIN_ALONE_US : 0;
    TACITI_TRY(taciti_pool_create(trainer->threads, spin_us, &trainer->pool));
    const size_t spans = s->run.trace ? SPANS_PER_RUN : trainer->profiling.path != NULL ? SPANS_PER_PROFILED : 0;
    TACITI_TRY(taciti_trace_create(spans, &trainer->trace));
    TACITI_TRY(taciti_profiling_create(trainer));
    const taciti_model_use use = trainer->strategy->units != NULL ? TACITI_MODEL_TRAINING_PARTS : TACITI_MODEL_TRAINING;
    TACITI_TRY(taciti_model_create(&s->job.model, &trainer->layout, trainer->pool, trainer->micro, trainer->time, use,
                                   &trainer->model));
    trainer->tokens = taciti_calloc(trainer->micro * trainer->time, sizeof *trainer->tokens);
    trainer->targets = taciti_calloc(trainer->micro * trainer->time, sizeof *trainer->targets);
    return trainer->tokens == NULL || trainer->targets == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

tacit_status taciti_trainer_build(taciti_trainer *trainer) {
    TACITI_TRY(taciti_comm_agree(trainer->comm, build_alone(trainer)));
    double flops = trainer->settings->job.model.dtype == TACITI_DTYPE_BF16
                       ? taciti_probe_bf16_flops(trainer->pool, PROBE_SECONDS)
                       : taciti_probe_fma_flops(trainer->pool, PROBE_SECONDS);
    TACITI_TRY(taciti_comm_allreduce_f64(trainer->comm, &flops, 1, TACITI_OP_SUM));
    trainer->peak_flops = flops;
    const taciti_strategy_context context = taciti_trainer_context(trainer);
    TACITI_TRY(taciti_trainer_create_driver(trainer, &context));
    return taciti_comm_agree(trainer->comm, taciti_reports_create(trainer, trainer->figures.lag));
}

/* After a failure, messages may still be written to the arrays of a library that cannot let go of them. */
void taciti_trainer_close(taciti_trainer *trainer) {
    taciti_metrics_close(trainer->metrics);
    taciti_lock_release(&trainer->lock);
    if (trainer->comm != NULL && !taciti_comm_let_go(trainer->comm)) return;
    taciti_driver_destroy(trainer->driver);
    taciti_lock_release(&trainer->log_lock);
    taciti_reports_destroy(&trainer->reports);
    taciti_profile_destroy(&trainer->profiling.profile);
    taciti_free(trainer->tokens);
    taciti_free(trainer->targets);
    taciti_model_destroy(trainer->model);
    taciti_trace_destroy(&trainer->trace);
    taciti_pool_destroy(trainer->pool);
    taciti_layout_destroy(&trainer->layout);
    taciti_data_close(trainer->data);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "api/object.h"
#include "strategy/gossip.h"

#define ALIGNMENT 64

/* ---- the network, whose step the caller makes -------------------------------------------------------------------- */

static const taciti_layout *layout_of(const void *self) { return &((const tacit_job *)self)->layout; }

static taciti_network_arrays arrays_of(void *self) { return ((tacit_job *)self)->arrays; }

static const taciti_network_verbs NETWORK = {.layout = layout_of, .arrays = arrays_of},
                                  BY_UNITS = {.layout = layout_of, .arrays = arrays_of, .by_units = true};

/* ---- open -------------------------------------------------------------------------------------------------------- */

static tacit_status copy_layout(tacit_job *job, const taciti_settings *settings, const taciti_layout *from) {
    if (from->tensor_count == 0) return taciti_fail(TACIT_E_USAGE, "a layout of 0 tensors: nothing to train");
    TACITI_TRY(taciti_layout_create(from->tensor_count, &job->layout));
    for (size_t i = 0; i < from->tensor_count; i++) {
        const taciti_tensor *t = &from->tensors[i];
        if (i > 0 && t->unit > t[-1].unit) taciti_layout_next_unit(&job->layout);
        TACITI_TRY(taciti_layout_append(&job->layout, t->name, t->dims, t->shape, t->decay));
    }
    return taciti_settings_seal(settings, &job->layout);
}

static tacit_status copy_settings(tacit_job *job, const tacit_settings *settings) {
    taciti_settings *s = &job->settings;
    TACITI_TRY(taciti_settings_copy(&settings->values, s));
    job->strategy = taciti_settings_strategy(s);
    if (job->total_steps == 0 && s->optim.decay_steps == 0) s->optim.decay_steps = -1;
    job->config = job->gradients_only ? taciti_settings_read_json(&settings->values, TACITI_READER_OWN_OPTIMIZER)
                                      : taciti_config_json(&settings->config, 1);
    return job->config == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

static tacit_status choose_array(tacit_job *job, float *callers, const char *what, int index, float **out) {
    if (callers == NULL) {
        TACITI_TRY(taciti_pages_create(job->layout.n * sizeof(float), what, &job->pages[index]));
        *out = job->pages[index].base;
        return TACIT_OK;
    }
    if ((uintptr_t)callers % ALIGNMENT != 0)
        return taciti_fail(TACIT_E_USAGE,
                           "the array of %s does not begin at a multiple of %d bytes: aligned_alloc(%d, "
                           "...) does, or leave it NULL",
                           what, ALIGNMENT, ALIGNMENT);
    *out = callers;
    return TACIT_OK;
}

static void clear_padding(const tacit_job *job, float *flat) {
    for (size_t b = 0; b < job->layout.bucket_count && flat != NULL; b++) {
        const taciti_bucket *bucket = &job->layout.buckets[b];
        taciti_layout_clear_gaps(&job->layout, b, (taciti_range){0, bucket->n}, flat + bucket->offset);
    }
}

/* Where replicas differ or a rank updates a part, the strategy itself works on parameters. */
static tacit_status check_gradients_only(const tacit_job *job, const tacit_job_options *options) {
    if (!options->gradients_only) return TACIT_OK;
    if (options->parameters != NULL)
        return taciti_fail(TACIT_E_USAGE,
                           "tacit_job_options: a job with gradients_only has no parameters; leave them NULL");
    if (job->strategy->replicas == NULL && job->strategy->units == NULL) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "strategy %s exchanges parameters, which a job with gradients_only does not have: strategy=dp, "
                       "or own_optimizer alone",
                       job->strategy->name);
}

/* Arrays whose parts the strategy holds when they are needed; padding is 0 in them at first. */
static tacit_status reserve_arrays(tacit_job *job, const tacit_job_options *options) {
    const size_t bytes = job->layout.n * sizeof(float);
    if (job->strategy->units == NULL)
        return taciti_fail(TACIT_E_CONFIG, "by_units: with strategy %s every rank holds all parameters: strategy=shard",
                           job->strategy->name);
    if (options->parameters != NULL || options->gradients != NULL)
        return taciti_fail(TACIT_E_USAGE, "by_units: the library reserves both arrays; leave parameters and gradients "
                                          "NULL");
    job->units = taciti_calloc(job->layout.unit_count, sizeof *job->units);
    if (job->units == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(taciti_pages_reserve(bytes, "parameters", &job->pages[0]));
    TACITI_TRY(taciti_pages_reserve(bytes, "gradients", &job->pages[1]));
    job->arrays = (taciti_network_arrays){.parameters = job->pages[0].base,
                                          .gradients = job->pages[1].base,
                                          .parameter_pages = &job->pages[0],
                                          .gradient_pages = &job->pages[1]};
    return TACIT_OK;
}

/* Counts the arrays that the library allocates for sure; the exchange and the strategy have more. */
static tacit_status check_room(const tacit_job *job, const taciti_layout *layout, const tacit_job_options *options) {
    const double whole = (double)layout->n * sizeof(float), ranks = taciti_comm_size(job->comm->comm);
    const double parts = job->strategy->units != NULL ? ranks : 1; /* a rank holds one of them at least */
    const bool parameters = options->parameters == NULL && !job->gradients_only, gradients = options->gradients == NULL;
    double bytes = ((parameters ? whole : 0) + (gradients ? whole : 0)) / (options->by_units ? parts : 1);
    if (!job->own_optimizer)
        bytes += (double)layout->n * (double)taciti_optim_bytes_per_float(&job->settings.optim) / parts;
    return taciti_room_check(job->comm, "a job", bytes);
}

static tacit_status check_apart(const tacit_job *job) {
    const uintptr_t x = (uintptr_t)job->arrays.parameters, g = (uintptr_t)job->arrays.gradients;
    const size_t bytes = job->layout.n * sizeof(float);
    if (x == 0 || x + bytes <= g || g + bytes <= x) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "tacit_job_options: parameters and gradients overlap; each is an array of %zu "
                       "floats of its own",
                       job->layout.n);
}

static tacit_status create_arrays(tacit_job *job, const tacit_job_options *options) {
    if (options->by_units) return reserve_arrays(job, options);
    if (!job->gradients_only)
        TACITI_TRY(choose_array(job, options->parameters, "parameters", 0, &job->arrays.parameters));
    TACITI_TRY(choose_array(job, options->gradients, "gradients", 1, &job->arrays.gradients));
    TACITI_TRY(check_apart(job));
    clear_padding(job, job->arrays.parameters);
    clear_padding(job, job->arrays.gradients);
    return TACIT_OK;
}

/* A share of the run needs its steps. */
static tacit_status warn_unread(const tacit_job *job, const tacit_settings *settings, taciti_reader reader) {
    const taciti_settings *values = &settings->values;
    const taciti_gossip_options *gossip = taciti_settings_options(values, &taciti_gossip_option_table);
    taciti_place start;
    const bool given = taciti_config_find(&settings->config, "gossip.start", &start) &&
                       *start.given == TACITI_GIVEN_TYPED && taciti_settings_reads(values, reader, &start);
    if (given && gossip->start > 0 && job->total_steps == 0)
        taciti_log(TACITI_LOG_WARN,
                   "gossip.start %g has no effect: it is a share of the run's steps, and this job has none: "
                   "give tacit_job_open() steps, or Parallel(..., steps=)",
                   gossip->start);
    return taciti_settings_warn_unread(&values, 1, reader);
}

static tacit_status build_alone(tacit_job *job, const tacit_settings *settings, const tacit_layout *layout,
                                const tacit_job_options *options) {
    if (options->steps < 0 || options->threads < 0)
        return taciti_fail(TACIT_E_USAGE, "tacit_job_options: steps %lld and threads %d must not be negative",
                           (long long)options->steps, options->threads);
    job->total_steps = options->steps;
    job->gradients_only = options->gradients_only;
    job->own_optimizer = options->own_optimizer || job->gradients_only;
    job->lr = (double)NAN;
    TACITI_TRY(copy_settings(job, settings));
    TACITI_TRY(check_gradients_only(job, options));
    const taciti_settings *values = &settings->values;
    const taciti_reader reader = job->own_optimizer ? TACITI_READER_OWN_OPTIMIZER : TACITI_READER_LIBRARY;
    TACITI_TRY(taciti_settings_check(values, taciti_comm_hosts(job->comm->comm), reader));
    if (taciti_comm_rank(job->comm->comm) == 0) TACITI_TRY(warn_unread(job, settings, reader));
    TACITI_TRY(check_room(job, &layout->layout, options));
    TACITI_TRY(copy_layout(job, values, &layout->layout));
    TACITI_TRY(create_arrays(job, options));
    const int cores = taciti_comm_cores(job->comm->comm), share = cores > 1 ? cores : 1;
    TACITI_TRY(taciti_pool_create(options->threads > 0 ? options->threads : share, 0, &job->pool));
    return taciti_trace_create(0, &job->trace);
}

/* Compares what must be equal on all ranks. Section comm is left out, as it belongs to the communicator. */
static tacit_status agree_on_job(const tacit_job *job, const tacit_settings *settings) {
    taciti_comm *comm = job->comm->comm;
    char steps[24];
    TACITI_TRY(taciti_comm_agree_text(comm, "libtacit", tacit_version()));
    TACITI_TRY(taciti_comm_agree_text(comm, "own optimizer", job->own_optimizer ? "yes" : "no"));
    TACITI_TRY(taciti_comm_agree_text(comm, "gradients only", job->gradients_only ? "yes" : "no"));
    TACITI_TRY(taciti_comm_agree_text(comm, "by units", job->units != NULL ? "yes" : "no"));
    (void)snprintf(steps, sizeof steps, "%lld", (long long)job->total_steps);
    TACITI_TRY(taciti_comm_agree_text(comm, "steps of the run", steps));
    TACITI_TRY(taciti_agree_on_tensors(comm, &job->layout));
    TACITI_TRY(taciti_agree_on_configuration(comm, &settings->config));
    return taciti_agree_on_layout(comm, &job->layout);
}

/* The others wait for this rank's part of a step that it cannot make. */
static void give_up(void *caller, tacit_status status) {
    (void)status;
    taciti_comm_give_up(((tacit_job *)caller)->comm->comm);
}

/* Refuses arguments that this rank alone may have wrong. */
static tacit_status check_arguments(const tacit_settings *settings, const tacit_layout *layout, tacit_job *const *out,
                                    const tacit_job_options *options, tacit_job_options *copy) {
    TACITI_TRY(taciti_handle_check(settings, TACITI_HANDLE_SETTINGS));
    TACITI_TRY(taciti_handle_check(layout, TACITI_HANDLE_LAYOUT));
    TACITI_TRY(taciti_argument_check(out, "out"));
    return options == NULL ? TACIT_OK : taciti_struct_read(options, "tacit_job_options", sizeof *copy, copy);
}

static tacit_status create_job(tacit_comm *comm, tacit_job **out) {
    tacit_job *job = taciti_calloc(1, sizeof *job);
    if (job == NULL) return TACIT_E_MEMORY;
    job->comm = comm;
    (void)pthread_mutex_init(&job->lock, NULL);
    *out = job;
    return TACIT_OK;
}

/* The part after which all ranks go on or none. */
static tacit_status build_together(tacit_job *job, const tacit_settings *settings) {
    taciti_comm *comm = job->comm->comm;
    TACITI_TRY(agree_on_job(job, settings));
    taciti_driver_setup setup = {.strategy = job->strategy,
                                 .context = taciti_settings_context(&job->settings),
                                 .network = {job->units != NULL ? &BY_UNITS : &NETWORK, job},
                                 .sources = true,
                                 .failed = give_up,
                                 .caller = job};
    setup.context.comm = comm;
    setup.context.layout = &job->layout;
    setup.context.pool = job->pool;
    setup.context.own_optimizer = job->own_optimizer;
    setup.context.total_steps = job->total_steps;
    setup.context.trace = &job->trace;
    return taciti_driver_create(&setup, &job->driver);
}

/* NULL is fine. */
static void release_job(tacit_job *job) {
    if (job == NULL || !taciti_comm_let_go(job->comm->comm)) return;
    taciti_driver_destroy(job->driver);
    taciti_pool_destroy(job->pool);
    taciti_trace_destroy(&job->trace);
    taciti_layout_destroy(&job->layout);
    taciti_pages_destroy(&job->pages[0]);
    taciti_pages_destroy(&job->pages[1]);
    taciti_settings_destroy(&job->settings);
    (void)pthread_mutex_destroy(&job->lock);
    taciti_free(job->config);
    taciti_free(job->units);
    taciti_free(job);
}

tacit_status tacit_job_open(tacit_comm *comm, const tacit_settings *settings, const tacit_layout *layout,
                            const tacit_job_options *options, tacit_job **out) {
    tacit_job_options copy = {.size = sizeof copy};
    tacit_job *job = NULL;
    TACITI_TRY(taciti_handle_check(comm, TACITI_HANDLE_COMM));
    taciti_api_log_together(comm);
    tacit_status mine = check_arguments(settings, layout, out, options, &copy);
    taciti_log_about(comm->comm);
    if (mine == TACIT_OK) mine = create_job(comm, &job);
    if (mine == TACIT_OK) mine = build_alone(job, settings, layout, &copy);
    tacit_status status = taciti_comm_agree(comm->comm, mine); /* the others must not wait for a rank that refuses */
    if (mine == TACIT_OK && status == TACIT_OK) status = build_together(job, settings);
    taciti_api_log_alone();
    if (mine != TACIT_OK || status != TACIT_OK) {
        release_job(job);
        return taciti_api_report(comm, status);
    }
    comm->jobs++;
    taciti_handle_open(&job->handle, TACITI_HANDLE_JOB);
    *out = job;
    return TACIT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

float *tacit_job_parameters(tacit_job *job) {
    return taciti_handle_check(job, TACITI_HANDLE_JOB) == TACIT_OK ? job->arrays.parameters : NULL;
}

float *tacit_job_gradients(tacit_job *job) {
    return taciti_handle_check(job, TACITI_HANDLE_JOB) == TACIT_OK ? job->arrays.gradients : NULL;
}

tacit_status taciti_job_check(const tacit_job *job, taciti_job_phase phase, taciti_job_phase other,
                              const char *function) {
    static const char *const PHASES[] = {"before tacit_job_start()",   "between two steps",
                                         "inside of a step",           "between settle and stepped",
                                         "between average and revert", "while another thread is in a function of it"};
    const tacit_status health = taciti_comm_health(job->comm->comm);
    if (health != TACIT_OK) return taciti_api_report(job->comm, health);
    if (job->phase == phase || job->phase == other) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "%s: called %s, allowed %s", function, PHASES[job->phase], PHASES[phase]);
}

tacit_status taciti_job_enter(tacit_job *job, taciti_job_phase phase, taciti_job_phase other, const char *function) {
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    (void)pthread_mutex_lock(&job->lock);
    const tacit_status status = taciti_job_check(job, phase, other, function);
    if (status == TACIT_OK) {
        job->before = job->phase;
        job->phase = TACITI_JOB_BUSY;
    }
    (void)pthread_mutex_unlock(&job->lock);
    return status;
}

tacit_status taciti_job_leave(tacit_job *job, taciti_job_phase next, tacit_status status) {
    (void)pthread_mutex_lock(&job->lock);
    job->phase = status == TACIT_OK ? next : job->before;
    (void)pthread_mutex_unlock(&job->lock);
    return taciti_api_report(job->comm, status);
}

tacit_status taciti_units_check_released(const tacit_job *job, const char *function) {
    for (size_t u = 0; job->units != NULL && u < job->layout.unit_count; u++)
        if (job->units[u].users > 0)
            return taciti_fail(TACIT_E_USAGE, "%s: unit %zu is needed: call tacit_job_release() first", function, u);
    return TACIT_OK;
}

tacit_status tacit_job_start(tacit_job *job) {
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_NEW, TACITI_JOB_NEW, "tacit_job_start"));
    tacit_status status = taciti_units_check_released(job, "tacit_job_start");
    if (status == TACIT_OK && !job->gradients_only && job->units == NULL)
        status = taciti_comm_broadcast(job->comm->comm, 0, job->arrays.parameters,
                                       job->layout.n * sizeof *job->arrays.parameters);
    if (status == TACIT_OK) status = taciti_driver_start(job->driver, 0, false);
    return taciti_job_leave(job, TACITI_JOB_BETWEEN, status);
}

tacit_status tacit_job_close(tacit_job *job) {
    if (job == NULL) return TACIT_OK;
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    tacit_comm *comm = job->comm;
    taciti_handle_close(&job->handle);
    taciti_driver_close_waits(job->driver);
    taciti_handle_drain(&job->handle);
    comm->jobs--;
    release_job(job);
    return taciti_api_report(comm, taciti_comm_health(comm->comm));
}

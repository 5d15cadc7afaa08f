/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/driver.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

typedef enum phase { BETWEEN_STEPS, COMPUTING, SETTLED } phase;

struct taciti_driver {
    taciti_driver_setup setup; /* with a complete context */
    taciti_network_arrays arrays;
    taciti_optim *optim;
    void *strategy;
    taciti_network_hooks hooks;
    taciti_sources *sources; /* owned; NULL without setup.sources */
    bool averaged;

    /* of the step that runs */
    phase phase;
    int64_t step; /* or that comes next */
    int64_t begin_ns, compute_ns;
    int64_t waited_ns; /* in the whole run, when the step began */
    taciti_driver_record record;
    taciti_readiness readiness;
    bool *reported;            /* per tensor; owned */
    bool *full;                /* per bucket; owned */
    size_t next;               /* bucket that leaves next */
    tacit_status ready_status; /* the first error of the strategy's ready() */
};

/* ---- readiness --------------------------------------------------------------------------------------------------- */

/* Buckets leave in ascending order, whatever the order of the tensors: so all ranks submit the same sequence. */
static void bucket_full(void *context, size_t bucket) {
    taciti_driver *d = context;
    const taciti_strategy *strategy = d->setup.strategy;
    d->full[bucket] = true;
    for (; d->next < d->readiness.layout->bucket_count && d->full[d->next]; d->next++)
        if (strategy->ready != NULL && d->ready_status == TACIT_OK)
            d->ready_status = strategy->ready(d->strategy, d->next);
}

static void mark_tensor(taciti_driver *d, size_t tensor) {
    d->reported[tensor] = true;
    taciti_readiness_mark(&d->readiness, tensor, bucket_full, d);
}

static void mark_rest(taciti_driver *d) {
    for (size_t t = 0; t < d->readiness.layout->tensor_count; t++)
        if (!d->reported[t]) mark_tensor(d, t);
}

bool taciti_driver_is_ready(const taciti_driver *driver, size_t tensor) {
    return driver->phase == COMPUTING && driver->reported[tensor];
}

static tacit_status check_tensor(const taciti_driver *driver, size_t tensor) {
    const taciti_layout *layout = driver->readiness.layout;
    if (driver->phase != COMPUTING || tensor >= layout->tensor_count)
        return taciti_fail(TACIT_E_USAGE, "tensor %zu of %zu is reported ready %s", tensor, layout->tensor_count,
                           driver->phase != COMPUTING ? "outside of a step: begin one first" : "but does not exist");
    if (!driver->reported[tensor]) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "tensor %s is reported ready twice in step %lld; with several micro-batches report it in the "
                       "last one alone",
                       layout->tensors[tensor].name, (long long)driver->step);
}

tacit_status taciti_driver_ready_from(taciti_driver *driver, size_t tensor, const taciti_source *source) {
    TACITI_TRY(check_tensor(driver, tensor));
    if (driver->sources != NULL) taciti_sources_take(driver->sources, tensor, source);
    mark_tensor(driver, tensor);
    return driver->ready_status;
}

tacit_status taciti_driver_ready(taciti_driver *driver, size_t tensor) {
    return taciti_driver_ready_from(driver, tensor, NULL);
}

tacit_status taciti_driver_wait(taciti_driver *driver, size_t tensor, double seconds) {
    return taciti_sources_wait(driver->sources, tensor, seconds);
}

void taciti_driver_close_waits(taciti_driver *driver) { taciti_sources_close(driver->sources); }

/* ---- hooks ------------------------------------------------------------------------------------------------------- */

static bool wants_to_leave(void *context) {
    const taciti_driver *d = context;
    return d->setup.leave(d->setup.caller);
}

static void tensor_ready(void *context, size_t tensor) {
    taciti_driver *d = context;
    const tacit_status status = taciti_driver_ready(d, tensor);
    if (d->ready_status == TACIT_OK) d->ready_status = status;
}

static bool reads_early(const taciti_driver *d) {
    const taciti_strategy *strategy = d->setup.strategy;
    return strategy->ready != NULL && (strategy->reads_early == NULL || strategy->reads_early(d->strategy));
}

/* A hook that nobody listens to stays NULL, `ready` from step to step. Replicas that differ finish the step, because
 * others have mixed with its result. Ranks that gather parameters finish it, too, because others wait for their parts.
 */
static taciti_network_hooks hooks_of(taciti_driver *d) {
    const taciti_strategy *strategy = d->setup.strategy;
    const taciti_unit_verbs *units = strategy->units;
    return (taciti_network_hooks){
        .leave = d->setup.leave != NULL && strategy->replicas == NULL && units == NULL ? wants_to_leave : NULL,
        .context = d,
        .need = units != NULL ? units->need : NULL,
        .release = units != NULL ? units->release : NULL,
        .write = units != NULL ? units->write : NULL,
        .units = d->strategy,
    };
}

const taciti_network_hooks *taciti_driver_hooks(const taciti_driver *driver) { return &driver->hooks; }

/* ---- life -------------------------------------------------------------------------------------------------------- */

void taciti_driver_destroy(taciti_driver *driver) {
    if (driver == NULL) return;
    if (driver->strategy != NULL) driver->setup.strategy->destroy(driver->strategy);
    taciti_optim_destroy(driver->optim);
    taciti_sources_destroy(driver->sources);
    taciti_readiness_destroy(&driver->readiness);
    taciti_free(driver->reported);
    taciti_free(driver->full);
    taciti_free(driver);
}

/* An update of the caller's needs no moments here. */
static tacit_status create_optimizer(taciti_driver *d) {
    static const taciti_optim_options NO_STATE = {.name = TACITI_OPTIM_SGD};
    const taciti_driver_setup *s = &d->setup;
    if (s->network.verbs->optimizer != NULL) return s->network.verbs->optimizer(s->network.self, &d->optim);
    return (s->strategy->units != NULL ? taciti_optim_create_parts : taciti_optim_create)(
        s->context.own_optimizer ? &NO_STATE : s->context.optim_options, s->context.layout, s->context.pool, &d->optim);
}

static tacit_status create_sources(taciti_driver *d) {
    taciti_strategy_context *c = &d->setup.context;
    const taciti_sources_setup setup = {.comm = c->comm,
                                        .layout = c->layout,
                                        .flat = c->gradients,
                                        .by_bucket = d->setup.strategy->sums_gradients,
                                        .write_back = c->own_optimizer,
                                        .overlap = c->exchange_options->overlap};
    if (!d->setup.sources) return TACIT_OK;
    TACITI_TRY(taciti_sources_create(&setup, &d->sources));
    if (setup.by_bucket) c->hooks = taciti_sources_hooks(d->sources);
    return TACIT_OK;
}

static tacit_status create_alone(taciti_driver *d) {
    taciti_strategy_context *c = &d->setup.context;
    const taciti_network *network = &d->setup.network;
    if (c->layout == NULL) c->layout = network->verbs->layout(network->self);
    d->arrays = network->verbs->arrays(network->self);
    c->parameters = d->arrays.parameters;
    c->gradients = d->arrays.gradients;
    c->copy16 = d->arrays.copy16;
    c->parameter_pages = d->arrays.parameter_pages;
    c->gradient_pages = d->arrays.gradient_pages;
    c->copy16_pages = d->arrays.copy16_pages;
    c->by_units = network->verbs->by_units;
    c->idle_optimizer = network->verbs->optimizer != NULL;
    TACITI_TRY(create_optimizer(d));
    TACITI_TRY(create_sources(d));
    c->optim = d->optim;
    TACITI_TRY(taciti_readiness_create(c->layout, &d->readiness));
    d->reported = taciti_calloc(c->layout->tensor_count, sizeof *d->reported);
    d->full = taciti_calloc(c->layout->bucket_count, sizeof *d->full);
    return d->reported == NULL || d->full == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

tacit_status taciti_driver_create(const taciti_driver_setup *setup, taciti_driver **out) {
    taciti_comm *comm = setup->context.comm;
    taciti_driver *d = taciti_calloc(1, sizeof *d);
    tacit_status status = d == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        d->setup = *setup;
        status = create_alone(d);
    }
    status = taciti_comm_agree(comm, status);
    if (status == TACIT_OK) status = taciti_comm_agree(comm, setup->strategy->create(&d->setup.context, &d->strategy));
    if (status == TACIT_OK) d->hooks = hooks_of(d);
    if (status == TACIT_OK)
        *out = d;
    else
        taciti_driver_destroy(d);
    return status;
}

tacit_status taciti_driver_start(taciti_driver *driver, int64_t step, bool restored) {
    const taciti_strategy *strategy = driver->setup.strategy;
    driver->step = step;
    if (strategy->start == NULL) return TACIT_OK;
    return taciti_comm_agree(driver->setup.context.comm, strategy->start(driver->strategy, step, restored));
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Nanoseconds in which this thread has waited for messages. */
static int64_t waited_ns(const taciti_driver *d) {
    return atomic_load_explicit(&d->setup.context.trace->run_ns[TACITI_SPAN_WAIT], memory_order_relaxed);
}

void taciti_driver_begin(taciti_driver *driver, int64_t step) {
    taciti_driver *d = driver;
    const taciti_layout *layout = d->readiness.layout;
    d->phase = COMPUTING;
    d->hooks.ready = reads_early(d) ? tensor_ready : NULL;
    d->step = d->setup.context.trace->step = step;
    d->record = (taciti_driver_record){.loss = (double)NAN};
    d->next = 0;
    d->ready_status = TACIT_OK;
    memset(d->reported, 0, layout->tensor_count * sizeof *d->reported);
    memset(d->full, 0, layout->bucket_count * sizeof *d->full);
    taciti_readiness_reset(&d->readiness);
    if (d->sources != NULL) taciti_sources_begin(d->sources);
    taciti_comm_announce(d->setup.context.comm, step, "compute");
    d->waited_ns = waited_ns(d);
    d->begin_ns = taciti_now_ns();
}

/* An error on one rank alone would leave the others waiting, so the job ends as a whole. */
static tacit_status fail_alone(taciti_driver *d, tacit_status status) {
    taciti_comm *comm = d->setup.context.comm;
    if (status == TACIT_OK) return TACIT_OK;
    d->phase = BETWEEN_STEPS;
    if (d->setup.failed != NULL)
        d->setup.failed(d->setup.caller, status);
    else if (taciti_comm_size(comm) > 1)
        taciti_comm_abort(comm, status);
    return status;
}

tacit_status taciti_driver_compute(taciti_driver *driver) {
    const taciti_network *network = &driver->setup.network;
    tacit_status status = network->verbs->step(network->self, driver->step, &driver->hooks, driver->setup.context.trace,
                                               &driver->record.loss);
    if (status == TACIT_PENDING) {
        /* All ranks wait for this one's buckets, so they leave as they are; a gradient that is not finite lets
         * everybody skip the update. The last tensor of a step that was left cannot have been ready. */
        const taciti_layout *layout = driver->readiness.layout;
        driver->record.abandoned = true;
        driver->arrays.gradients[layout->tensors[layout->tensor_count - 1].offset] = NAN;
        mark_rest(driver);
        status = TACIT_OK;
    }
    if (status == TACIT_OK) status = driver->ready_status;
    return fail_alone(driver, status);
}

/* The backward pass is over, and with it what this rank can do alone. */
static tacit_status end_compute(taciti_driver *d) {
    if (d->phase != COMPUTING)
        return taciti_fail(TACIT_E_USAGE, "a step is finished or settled that was not begun, or was already");
    mark_rest(d);
    TACITI_TRY(fail_alone(d, d->ready_status));
    d->compute_ns = taciti_now_ns() - d->begin_ns - (waited_ns(d) - d->waited_ns);
    taciti_comm_announce(d->setup.context.comm, d->step, "exchange");
    return TACIT_OK;
}

static void end_step(taciti_driver *d, taciti_driver_record *out) {
    const double per_ns = 1e-9;
    taciti_comm *comm = d->setup.context.comm;
    int64_t main_ns[TACITI_SPAN_KINDS], wire_ns[TACITI_SPAN_KINDS];
    taciti_driver_record *r = &d->record;
    taciti_trace_take_totals(d->setup.context.trace, main_ns);
    taciti_trace_take_totals(taciti_comm_trace(comm), wire_ns);
    r->compute_s = (double)d->compute_ns * per_ns;
    r->wait_s = (double)r->report.wait_ns * per_ns;
    r->update_s = (double)main_ns[TACITI_SPAN_UPDATE] * per_ns;
    r->encode_s = (double)(wire_ns[TACITI_SPAN_ENCODE] + wire_ns[TACITI_SPAN_DECODE]) * per_ns;
    r->transfer_s = (double)wire_ns[TACITI_SPAN_TRANSFER] * per_ns;
    d->phase = BETWEEN_STEPS;
    d->step++;
    *out = *r;
}

tacit_status taciti_driver_finish(taciti_driver *driver, double lr, taciti_driver_record *out) {
    if (driver->setup.context.own_optimizer)
        return taciti_fail(TACIT_E_USAGE, "with an optimizer of your own a step ends with settle and stepped");
    TACITI_TRY(end_compute(driver));
    TACITI_TRY(driver->setup.strategy->finish(driver->strategy, lr, &driver->record.report));
    end_step(driver, out);
    return TACIT_OK;
}

tacit_status taciti_driver_step(taciti_driver *driver, int64_t step, double lr, taciti_driver_record *out) {
    taciti_driver_begin(driver, step);
    TACITI_TRY(taciti_driver_compute(driver));
    return taciti_driver_finish(driver, lr, out);
}

tacit_status taciti_driver_settle(taciti_driver *driver, double lr, taciti_driver_record *out) {
    if (!driver->setup.context.own_optimizer)
        return taciti_fail(TACIT_E_USAGE, "a step is settled only where the optimizer is your own");
    TACITI_TRY(end_compute(driver));
    TACITI_TRY(driver->setup.strategy->settle(driver->strategy, lr, &driver->record.report));
    if (driver->sources != NULL && (!driver->setup.strategy->sums_gradients || driver->record.report.clipped))
        taciti_sources_write_all(driver->sources, driver->optim);
    driver->phase = SETTLED;
    *out = driver->record;
    return TACIT_OK;
}

tacit_status taciti_driver_stepped(taciti_driver *driver, taciti_driver_record *out) {
    const taciti_driver_setup *s = &driver->setup;
    taciti_step_report *report = &driver->record.report;
    if (driver->phase != SETTLED) return taciti_fail(TACIT_E_USAGE, "stepped comes after settle, once per step");
    if (s->network.verbs->refresh != NULL) s->network.verbs->refresh(s->network.self);
    if (s->strategy->stepped != NULL) TACITI_TRY(s->strategy->stepped(driver->strategy, report));
    end_step(driver, out);
    return TACIT_OK;
}

/* ---- the mean of replicas ---------------------------------------------------------------------------------------- */

tacit_status taciti_driver_average(taciti_driver *driver, double *distance) {
    const taciti_strategy *strategy = driver->setup.strategy;
    if (driver->averaged) return TACIT_OK;
    *distance = (double)NAN;
    if (strategy->replicas == NULL) return TACIT_OK;
    taciti_comm_announce(driver->setup.context.comm, driver->step, "average of replicas");
    TACITI_TRY(strategy->replicas->average(driver->strategy, distance));
    driver->averaged = true;
    return TACIT_OK;
}

void taciti_driver_revert(taciti_driver *driver) {
    if (driver->averaged) driver->setup.strategy->replicas->revert(driver->strategy);
    driver->averaged = false;
}

void taciti_driver_list_state(taciti_driver *driver, bool saving, taciti_state *out) {
    driver->setup.strategy->state(driver->strategy, out);
    if (driver->arrays.parameters == NULL) return;
    const taciti_state_entry *own = taciti_state_find(out, "model");
    if (own == NULL || (saving && own->owner == TACITI_STATE_OWN))
        taciti_state_add_array(out, "model", TACITI_STATE_SHARED, TACITI_STATE_MEAN, driver->setup.context.layout,
                               driver->arrays.parameters);
}

const taciti_layout *taciti_driver_layout(const taciti_driver *driver) { return driver->readiness.layout; }

bool taciti_driver_part(const taciti_driver *driver, size_t index, taciti_part *out) {
    const taciti_strategy *strategy = driver->setup.strategy;
    if (strategy->units != NULL) return strategy->units->part(driver->strategy, index, out);
    if (index > 0) return false;
    *out = (taciti_part){{0, driver->readiness.layout->n}, driver->arrays.parameters, driver->arrays.gradients};
    return true;
}

taciti_optim *taciti_driver_optim(taciti_driver *driver) { return driver->optim; }

void *taciti_driver_strategy(taciti_driver *driver) { return driver->strategy; }

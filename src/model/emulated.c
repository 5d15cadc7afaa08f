/* SPDX-License-Identifier: Apache-2.0 */
#include "model/emulated.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/synthetic.h"

/* Elements that are written between two looks at the clock: some 30 us. */
enum { CHUNK = 8 * TACITI_SYNTHETIC_BLOCK };

static const double MIN_FACTOR = 0.1;        /* no step is shorter than a tenth of the mean */
static const double GRADIENT_TYPICAL = 1e-3; /* median magnitude of a tensor's gradient */

#define NONE SIZE_MAX

/* Parts of keys, one for each kind of random number. */
enum { STREAM_TIME = 'c', STREAM_TENSOR = 't', STREAM_GRADIENT = 'g' };

struct taciti_emulated {
    const taciti_profile *profile; /* borrows */
    const taciti_layout *layout;   /* borrows */
    taciti_synthetic *noise;
    taciti_pages parameters, gradients;
    size_t *unit_of;              /* [layers] unit of a layer's tensors, NONE if it has none; owned */
    double forward_s, backward_s; /* without deviation, with the rank's slowness */
    double slow, cv;
    int64_t seed;
    int rank;
    uint64_t gradient_key;
    bool punctual; /* the owner thread has asked for short turns */
};

/* The next element of this step's gradients to be written. */
typedef struct cursor {
    size_t tensor, element;
    uint64_t key; /* of the step */
} cursor;

void taciti_emulated_destroy(taciti_emulated *emulated) {
    if (emulated == NULL) return;
    taciti_synthetic_destroy(emulated->noise);
    taciti_pages_destroy(&emulated->parameters);
    taciti_pages_destroy(&emulated->gradients);
    taciti_free(emulated->unit_of);
    taciti_free(emulated);
}

static tacit_status allocate_arrays(taciti_emulated *e, int64_t seed) {
    const size_t bytes = e->layout->n * sizeof(float);
    e->unit_of = taciti_calloc(e->profile->layer_count, sizeof *e->unit_of);
    if (e->unit_of == NULL) return TACIT_E_MEMORY;
    size_t unit = 0; /* of the last layer with tensors */
    for (size_t l = e->profile->layer_count; l-- > 0;)
        e->unit_of[l] = e->profile->layers[l].tensor_count > 0 ? unit++ : NONE;
    TACITI_TRY(taciti_synthetic_create(seed, &e->noise));
    TACITI_TRY(taciti_pages_create(bytes, "emulated parameters", &e->parameters));
    TACITI_TRY(taciti_pages_create(bytes, "emulated gradients", &e->gradients));
    e->parameters.kept = e->gradients.kept = true;
    return TACIT_OK;
}

double taciti_compute_deviation(int64_t seed, double cv, int rank, int64_t step) {
    const uint64_t key = taciti_rng_key(taciti_rng_key((uint64_t)seed, STREAM_TIME), (uint64_t)rank);
    const double factor = 1 + cv * taciti_synthetic_normal(key, (uint64_t)step);
    return factor > MIN_FACTOR ? factor : MIN_FACTOR;
}

double taciti_compute_magnitude(int64_t seed, size_t tensor) {
    return GRADIENT_TYPICAL * exp(taciti_synthetic_normal(taciti_rng_key((uint64_t)seed, STREAM_TENSOR), tensor));
}

static double step_deviation(const taciti_emulated *e, int64_t step) {
    return taciti_compute_deviation(e->seed, e->cv, e->rank, step);
}

double taciti_emulated_step_s(const taciti_emulated *emulated, int64_t step) {
    return (emulated->forward_s + emulated->backward_s) * step_deviation(emulated, step);
}

static void write_chunk(taciti_emulated *e, cursor *c) {
    const taciti_tensor *tensor = &e->layout->tensors[c->tensor];
    const double magnitude = taciti_compute_magnitude(e->seed, c->tensor);
    const size_t left = tensor->n - c->element, n = left < CHUNK ? left : CHUNK;
    taciti_synthetic_write(e->noise, taciti_rng_key(c->key, c->tensor), (float)magnitude, c->element, c->element + n,
                           (float *)e->gradients.base + tensor->offset);
    c->element += n;
    if (c->element < tensor->n) return;
    c->element = 0;
    c->tensor++;
}

/* All tensors before `end`, and more while there is time: early in a step the processor is idle, later it has to serve
 * the exchange; and a large tensor of a layer without operations (an embedding) would else be late. */
static void write_until(taciti_emulated *e, cursor *c, size_t end, int64_t deadline_ns) {
    while (c->tensor < end || (c->tensor < e->layout->tensor_count && taciti_now_ns() < deadline_ns)) write_chunk(e, c);
}

tacit_status taciti_emulated_create(const taciti_compute_options *options, const taciti_profile *profile,
                                    const taciti_layout *layout, int rank, taciti_emulated **out) {
    taciti_emulated *e = taciti_calloc(1, sizeof *e);
    if (e == NULL) return TACIT_E_MEMORY;
    const uint64_t seed = (uint64_t)options->seed;
    *e = (taciti_emulated){
        .profile = profile,
        .layout = layout,
        .slow = taciti_compute_slow(options, rank),
        .cv = options->cv,
        .seed = options->seed,
        .rank = rank,
        .gradient_key = taciti_rng_key(taciti_rng_key(seed, STREAM_GRADIENT), (uint64_t)rank),
    };
    e->forward_s = taciti_profile_forward_s(profile) * e->slow;
    e->backward_s = taciti_profile_backward_s(profile) * e->slow;
    const tacit_status status = allocate_arrays(e, options->seed);
    if (status == TACIT_OK)
        *out = e;
    else
        taciti_emulated_destroy(e);
    return status;
}

void taciti_emulated_touch_gradients(taciti_emulated *emulated) {
    cursor first_touch = {.key = emulated->gradient_key};
    write_until(emulated, &first_touch, emulated->layout->tensor_count, 0);
}

static int64_t to_ns(double seconds) { return (int64_t)(seconds * (double)TACITI_NS_PER_S); }

static tacit_status run_whole(taciti_emulated *e, int64_t step, const taciti_network_hooks *hooks,
                              taciti_trace *trace) {
    const int64_t start_ns = taciti_now_ns();
    const double factor = step_deviation(e, step), layer_factor = e->slow * factor;
    double elapsed_s = e->forward_s * factor;
    int64_t deadline_ns = start_ns + to_ns(elapsed_s);
    cursor written = {.key = taciti_rng_key(e->gradient_key, (uint64_t)step)};
    size_t begin = 0, end = 0, full = 0; /* full: buckets whose tensors are all ready */
    if (hooks->ready != NULL) write_until(e, &written, 0, deadline_ns);
    taciti_sleep_until_ns(deadline_ns);
    int64_t span_ns = taciti_trace_add(trace, TACITI_SPAN_FORWARD, -1, start_ns);
    for (size_t l = e->profile->layer_count; l-- > 0;) {
        const taciti_profile_layer *layer = &e->profile->layers[l];
        end += layer->tensor_count;
        elapsed_s += layer->backward_s * layer_factor;
        const size_t before = full;
        while (full < e->layout->bucket_count && e->layout->buckets[full].last < end) full++;
        if (full == before && l > 0) continue;
        deadline_ns = start_ns + to_ns(elapsed_s);
        if (hooks->ready != NULL) write_until(e, &written, end, deadline_ns);
        taciti_sleep_until_ns(deadline_ns);
        span_ns = taciti_trace_add(trace, TACITI_SPAN_BACKWARD, (int)l, span_ns);
        for (; begin < end; begin++)
            if (hooks->ready != NULL) hooks->ready(hooks->context, begin);
    }
    return TACIT_OK;
}

/* ---- a step by units --------------------------------------------------------------------------------------------- */

typedef struct pass {
    taciti_emulated *e;
    const taciti_network_hooks *hooks;
    taciti_trace *trace;
    double factor; /* of the profile's times in this step */
    double elapsed_s;
    int64_t start_ns;  /* plus what the hooks have blocked for: the accelerator stands still meanwhile */
    size_t first_unit; /* of the first layer with tensors */
    cursor tied;       /* where its gradients have come to, which may be written once a tied layer has asked for them */
    bool may_write_tied;
} pass;

static tacit_status ask_hook(pass *p, tacit_status (*hook)(void *units, size_t unit), size_t unit) {
    if (hook == NULL || unit == NONE) return TACIT_OK;
    const int64_t begin_ns = taciti_now_ns();
    const tacit_status status = hook(p->hooks->units, unit);
    p->start_ns += taciti_now_ns() - begin_ns;
    return status;
}

static void release_unit(pass *p, size_t unit) {
    if (p->hooks->release == NULL || unit == NONE) return;
    const int64_t begin_ns = taciti_now_ns();
    p->hooks->release(p->hooks->units, unit);
    p->start_ns += taciti_now_ns() - begin_ns;
}

/* The unit that a layer uses besides its own. */
static size_t tied_unit(const pass *p, size_t layer) {
    const bool other = p->e->profile->layers[layer].tied && p->e->unit_of[layer] != p->first_unit;
    return other ? p->first_unit : NONE;
}

/* Writes tensors [*at, end), then what a tied layer has asked for, until the layer's time has passed. */
static void pass_layer(pass *p, double seconds, cursor *c, size_t end) {
    p->elapsed_s += seconds * p->factor;
    const int64_t deadline_ns = p->start_ns + to_ns(p->elapsed_s);
    if (p->hooks->ready != NULL) write_until(p->e, c, end, 0);
    if (p->hooks->ready != NULL && p->may_write_tied) write_until(p->e, &p->tied, 0, deadline_ns);
    taciti_sleep_until_ns(deadline_ns);
}

/* The last layer keeps what it has: its backward pass comes next. */
static tacit_status forward_layer(pass *p, size_t l) {
    const size_t unit = p->e->unit_of[l], tied = tied_unit(p, l);
    cursor nothing = {.key = 0};
    TACITI_TRY(ask_hook(p, p->hooks->need, unit));
    TACITI_TRY(ask_hook(p, p->hooks->need, tied));
    const int64_t begin_ns = taciti_now_ns();
    pass_layer(p, p->e->profile->layers[l].forward_s, &nothing, 0);
    (void)taciti_trace_add(p->trace, TACITI_SPAN_FORWARD, (int)l, begin_ns);
    if (l + 1 == p->e->profile->layer_count) return TACIT_OK;
    release_unit(p, tied);
    release_unit(p, unit);
    return TACIT_OK;
}

/* tensors [begin, end). The first layer's parameters are of no use here: nobody needs the gradient of its input. */
static tacit_status backward_layer(pass *p, size_t l, size_t begin, size_t end) {
    const size_t unit = p->e->unit_of[l], tied = tied_unit(p, l);
    const bool held = l + 1 == p->e->profile->layer_count, reads = held || unit != p->first_unit;
    cursor own = {.tensor = begin, .key = p->tied.key}, *written = unit == p->first_unit ? &p->tied : &own;
    if (!held && reads) TACITI_TRY(ask_hook(p, p->hooks->need, unit));
    if (!held) TACITI_TRY(ask_hook(p, p->hooks->need, tied));
    TACITI_TRY(ask_hook(p, p->hooks->write, unit));
    TACITI_TRY(ask_hook(p, p->hooks->write, tied));
    p->may_write_tied = p->may_write_tied || tied != NONE;
    const int64_t begin_ns = taciti_now_ns();
    pass_layer(p, p->e->profile->layers[l].backward_s, written, end);
    (void)taciti_trace_add(p->trace, TACITI_SPAN_BACKWARD, (int)l, begin_ns);
    release_unit(p, tied);
    if (reads) release_unit(p, unit);
    for (size_t t = begin; t < end && p->hooks->ready != NULL; t++) p->hooks->ready(p->hooks->context, t);
    return TACIT_OK;
}

static tacit_status run_units(taciti_emulated *e, int64_t step, const taciti_network_hooks *hooks,
                              taciti_trace *trace) {
    const taciti_layout *layout = e->layout;
    pass p = {.e = e, .hooks = hooks, .trace = trace, .factor = e->slow * step_deviation(e, step)};
    size_t begin = 0;
    p.first_unit = layout->tensors[layout->tensor_count - 1].unit;
    p.tied = (cursor){.tensor = layout->tensor_count, .key = taciti_rng_key(e->gradient_key, (uint64_t)step)};
    while (p.tied.tensor > 0 && layout->tensors[p.tied.tensor - 1].unit == p.first_unit) p.tied.tensor--;
    p.start_ns = taciti_now_ns();
    for (size_t l = 0; l < e->profile->layer_count; l++) TACITI_TRY(forward_layer(&p, l));
    for (size_t l = e->profile->layer_count; l-- > 0;) {
        const size_t end = begin + e->profile->layers[l].tensor_count;
        TACITI_TRY(backward_layer(&p, l, begin, end));
        begin = end;
    }
    return TACIT_OK;
}

static tacit_status run_step(void *self, int64_t step, const taciti_network_hooks *hooks, taciti_trace *trace,
                             double *loss) {
    taciti_emulated *e = self;
    if (!e->punctual) taciti_thread_short_turns();
    e->punctual = true;
    *loss = (double)NAN;
    return (hooks->need != NULL ? run_units : run_whole)(e, step, hooks, trace);
}

/* ---- the optimizer ----------------------------------------------------------------------------------------------- */

/* Returns the time after which an update reaches this float; the parts of any cut add up to the whole to the
 * nanosecond. */
static int64_t updated_ns(const taciti_emulated *e, size_t offset) {
    return (int64_t)((double)to_ns(e->profile->update_s) * ((double)offset / (double)e->layout->n));
}

static void wait_for_update(void *self, size_t offset, size_t n) {
    const int64_t part_ns = updated_ns(self, offset + n) - updated_ns(self, offset);
    taciti_sleep_until_ns(taciti_now_ns() + part_ns);
}

static tacit_status create_optimizer(void *self, taciti_optim **out) {
    return taciti_optim_create_idle(wait_for_update, self, ((const taciti_emulated *)self)->layout, out);
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

static const taciti_layout *layout_of(const void *self) { return ((const taciti_emulated *)self)->layout; }

static taciti_network_arrays arrays_of(void *self) {
    const taciti_emulated *e = self;
    return (taciti_network_arrays){.parameters = e->parameters.base,
                                   .gradients = e->gradients.base,
                                   .parameter_pages = &e->parameters,
                                   .gradient_pages = &e->gradients};
}

taciti_network taciti_emulated_network(taciti_emulated *emulated) {
    static const taciti_network_verbs VERBS = {
        .layout = layout_of, .arrays = arrays_of, .step = run_step, .optimizer = create_optimizer, .by_units = true};
    return (taciti_network){&VERBS, emulated};
}

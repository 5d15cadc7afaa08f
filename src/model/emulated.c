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

/* What is drawn, as part of keys. */
enum { STREAM_TIME = 'c', STREAM_TENSOR = 't', STREAM_GRADIENT = 'g' };

struct taciti_emulated {
    const taciti_profile *profile; /* borrows */
    const taciti_layout *layout;   /* borrows */
    taciti_synthetic *noise;
    taciti_pages parameters, gradients;
    double forward_s, backward_s; /* without deviation, with the rank's slowness */
    double slow, cv;
    int64_t seed;
    int rank;
    uint64_t gradient_key;
    bool punctual; /* the owner thread has asked for short turns */
};

/* Where the writing of this step's gradients has come to. */
typedef struct cursor {
    size_t tensor, element;
    uint64_t key; /* of the step */
} cursor;

void taciti_emulated_destroy(taciti_emulated *emulated) {
    if (emulated == NULL) return;
    taciti_synthetic_destroy(emulated->noise);
    taciti_pages_destroy(&emulated->parameters);
    taciti_pages_destroy(&emulated->gradients);
    taciti_free(emulated);
}

static tacit_status allocate(taciti_emulated *e, int64_t seed) {
    const size_t bytes = e->layout->n * sizeof(float);
    TACITI_TRY(taciti_synthetic_create(seed, &e->noise));
    TACITI_TRY(taciti_pages_create(bytes, "emulated parameters", &e->parameters));
    return taciti_pages_create(bytes, "emulated gradients", &e->gradients);
}

double taciti_compute_deviation(int64_t seed, double cv, int rank, int64_t step) {
    const uint64_t key = taciti_rng_key(taciti_rng_key((uint64_t)seed, STREAM_TIME), (uint64_t)rank);
    const double factor = 1 + cv * taciti_synthetic_normal(key, (uint64_t)step);
    return factor > MIN_FACTOR ? factor : MIN_FACTOR;
}

double taciti_compute_magnitude(int64_t seed, size_t tensor) {
    return GRADIENT_TYPICAL * exp(taciti_synthetic_normal(taciti_rng_key((uint64_t)seed, STREAM_TENSOR), tensor));
}

static double deviation(const taciti_emulated *e, int64_t step) {
    return taciti_compute_deviation(e->seed, e->cv, e->rank, step);
}

double taciti_emulated_step_s(const taciti_emulated *emulated, int64_t step) {
    return (emulated->forward_s + emulated->backward_s) * deviation(emulated, step);
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
    const tacit_status status = allocate(e, options->seed);
    if (status != TACIT_OK) {
        taciti_emulated_destroy(e);
        return status;
    }
    *out = e;
    return TACIT_OK;
}

void taciti_emulated_touch_gradients(taciti_emulated *emulated) {
    cursor first_touch = {.key = emulated->gradient_key};
    write_until(emulated, &first_touch, emulated->layout->tensor_count, 0);
}

/* Whether a bucket is full when tensors [0, end) are ready that was not before; *bucket is the first that is not. */
static bool fills_bucket(const taciti_layout *layout, size_t end, size_t *bucket) {
    const size_t before = *bucket;
    while (*bucket < layout->bucket_count && layout->buckets[*bucket].last < end) (*bucket)++;
    return *bucket > before;
}

static int64_t to_ns(double seconds) { return (int64_t)(seconds * (double)TACITI_NS_PER_S); }

static tacit_status run_step(void *self, int64_t step, const taciti_network_hooks *hooks, taciti_trace *trace,
                             double *loss) {
    taciti_emulated *e = self;
    const int64_t start_ns = taciti_now_ns();
    const double factor = deviation(e, step), layer_factor = e->slow * factor;
    double elapsed_s = e->forward_s * factor;
    int64_t deadline_ns = start_ns + to_ns(elapsed_s);
    cursor written = {.key = taciti_rng_key(e->gradient_key, (uint64_t)step)};
    size_t begin = 0, end = 0, bucket = 0;
    if (!e->punctual) taciti_thread_short_turns();
    e->punctual = true;
    if (hooks->ready != NULL) write_until(e, &written, 0, deadline_ns);
    taciti_sleep_until_ns(deadline_ns);
    int64_t span_ns = taciti_trace_add(trace, TACITI_SPAN_FORWARD, -1, start_ns);
    for (size_t l = e->profile->layer_count; l-- > 0;) {
        const taciti_profile_layer *layer = &e->profile->layers[l];
        end += layer->tensor_count;
        elapsed_s += layer->backward_s * layer_factor;
        if (!fills_bucket(e->layout, end, &bucket) && l > 0) continue;
        deadline_ns = start_ns + to_ns(elapsed_s);
        if (hooks->ready != NULL) write_until(e, &written, end, deadline_ns);
        taciti_sleep_until_ns(deadline_ns);
        span_ns = taciti_trace_add(trace, TACITI_SPAN_BACKWARD, (int)l, span_ns);
        for (; begin < end; begin++)
            if (hooks->ready != NULL) hooks->ready(hooks->context, begin);
    }
    *loss = (double)NAN;
    return TACIT_OK;
}

/* ---- the optimizer ----------------------------------------------------------------------------------------------- */

static double sum_nothing(void *self, const float *x, size_t n) {
    (void)self, (void)x, (void)n;
    return 0;
}

/* When an update has come to this float; the parts of any cut add up to the whole to the nanosecond. */
static int64_t updated_ns(const taciti_emulated *e, size_t offset) {
    return (int64_t)((double)to_ns(e->profile->update_s) * ((double)offset / (double)e->layout->n));
}

static void pass_time(void *self, const taciti_optim_range *range, taciti_blend *blend) {
    (void)blend;
    if (range->gradients == NULL) return;
    const int64_t part_ns = updated_ns(self, range->offset + range->n) - updated_ns(self, range->offset);
    taciti_sleep_until_ns(taciti_now_ns() + part_ns);
}

static void run_nothing(void *self, taciti_pool_job *job, void *context) { (void)self, (void)job, (void)context; }

static tacit_status create_optimizer(void *self, taciti_optim **out) {
    static const taciti_optim_passes PASSES = {sum_nothing, pass_time, run_nothing};
    return taciti_optim_create_with(&PASSES, self, ((const taciti_emulated *)self)->layout, out);
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

static const taciti_layout *layout_of(const void *self) { return ((const taciti_emulated *)self)->layout; }

static taciti_network_arrays arrays_of(void *self) {
    const taciti_emulated *e = self;
    return (taciti_network_arrays){.parameters = e->parameters.base, .gradients = e->gradients.base};
}

taciti_network taciti_emulated_network(taciti_emulated *emulated) {
    static const taciti_network_verbs VERBS = {
        .layout = layout_of, .arrays = arrays_of, .step = run_step, .optimizer = create_optimizer};
    return (taciti_network){&VERBS, emulated};
}

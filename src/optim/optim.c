/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam, AdamW, their accumulating forms and SGD on the flat parameter array, alone or with mixing.
 *
 * AdamW: Loshchilov & Hutter, arXiv 1711.05101, algorithm 2 (lines 7 to 12) with the decay scaled by the learning rate.
 *   beta1, beta2, eps -> the same names;  m_t, v_t -> state 0, 1;  t -> updates;  lambda -> weight_decay;
 *   alpha eta_t -> lr
 * Adam: Kingma & Ba, arXiv 1412.6980, algorithm 1; the decay is part of the gradient (L2), as in PyTorch.
 * AccumAdam(W): Wang et al., arXiv 2410.11998. A window has s = accum steps;  M, V -> state 0, 1, the moments of the
 *   windows that have ended, stored as they are (the authors' library stores beta M);  A -> state 2, 0 whenever s
 *   divides t. The corrections count windows, ceil(t / s). With s = 1 it is Adam(W) to the bit.
 * Frozen second moments: Tang et al., "1-bit Adam", arXiv 2102.02888, algorithm 1. With T = freeze, from update T + 1
 * on v, and its correction 1 / (1 - beta2^T), stay.  deviation: the paper corrects neither moment; here m's goes on.
 * A share of v: what multiplies v in the update alone, so that the noise of a rank's share of the batch does not count.
 * SGD: Sutskever et al., "On the importance of initialization and momentum", ICML 2013, in the form of PyTorch.
 *
 * Bias corrections are taken from the float values of beta that the kernels use, so that at t = 1 the corrected moments
 * are the gradient and its square up to rounding.
 */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* Units in which sums are formed, so that they do not depend on threads. Small ranges, too, shall occupy all threads.
 */
enum { FLOATS_PER_LINE = 16, NORM_FLOATS = 65536, BLEND_FLOATS = 16384 };

static const char STATE[] = "optimizer state";

struct taciti_optim {
    taciti_optim_wait *wait; /* instead of passes over elements; NULL: none */
    void *self;              /* of `wait`; borrows */
    taciti_optim_options options;
    const taciti_layout *layout; /* borrows */
    taciti_pool *pool;           /* borrows */
    const taciti_kernels *kernels;
    taciti_pages states[TACITI_OPTIM_MAX_STATES]; /* layout->n floats each */
    int state_count;
    double *block_sums; /* one per BLEND_FLOATS floats of the layout */
    int64_t updates;
    const float *share;     /* of second moments that counts; borrows; NULL: all */
    taciti_accum_step adam; /* of the update that has begun */
    taciti_sgd_step sgd;
};

static bool accumulates_windows(const taciti_optim_options *options) {
    return options->name == TACITI_OPTIM_ACCUM_ADAMW || options->name == TACITI_OPTIM_ACCUM_ADAM;
}

tacit_status taciti_optim_check(const taciti_optim_options *options) {
    if (accumulates_windows(options) && options->accum < 1)
        return taciti_fail(TACIT_E_CONFIG, "optim.accum: a window has at least 1 step, not %lld",
                           (long long)options->accum);
    if (options->freeze == 0 || options->name == TACITI_OPTIM_ADAMW || options->name == TACITI_OPTIM_ADAM)
        return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "optim.freeze %lld: only adam and adamw have second moments that can be frozen; "
                       "--optim.name adamw, or leave optim.freeze out",
                       (long long)options->freeze);
}

static int states_of(const taciti_optim_options *options) {
    if (options->name == TACITI_OPTIM_SGD) return options->momentum > 0 ? 1 : 0;
    return accumulates_windows(options) ? 3 : 2;
}

size_t taciti_optim_bytes_per_float(const taciti_optim_options *options) {
    return sizeof(float) * (size_t)states_of(options);
}

void taciti_optim_destroy(taciti_optim *optim) {
    if (optim == NULL) return;
    for (int i = 0; i < optim->state_count; i++) taciti_pages_destroy(&optim->states[i]);
    taciti_free(optim->block_sums);
    taciti_free(optim);
}

/* ---- norm ---------------------------------------------------------------------------------------------------- */

typedef struct norm_job {
    const taciti_optim *optim;
    const float *x;
    size_t n;
} norm_job;

static void sum_blocks(void *context, int thread, int threads) {
    const norm_job *job = context;
    size_t begin = 0, end = 0;
    taciti_pool_part(job->n, NORM_FLOATS, thread, threads, &begin, &end);
    for (size_t at = begin; at < end; at += NORM_FLOATS) {
        const size_t left = end - at, n = left < NORM_FLOATS ? left : NORM_FLOATS;
        job->optim->block_sums[at / NORM_FLOATS] = job->optim->kernels->sum_squares(job->x + at, n);
    }
}

double taciti_optim_sum_squares(taciti_optim *optim, const float *flat, size_t offset, size_t n) {
    if (optim->wait != NULL) return 0;
    norm_job job = {.optim = optim, .x = flat + offset, .n = n};
    taciti_pool_run(optim->pool, sum_blocks, &job);
    double sum = 0;
    for (size_t block = 0; block * NORM_FLOATS < n; block++) sum += optim->block_sums[block];
    return sum;
}

/* ---- update -------------------------------------------------------------------------------------------------- */

/* 1 / (1 - beta^t) with IEEE products only: pow() differs between CPUs. */
static float bias_correction(double beta, int64_t t) {
    double power = 1, base = (double)(float)beta;
    for (; t > 0; t /= 2) {
        if (t % 2 == 1) power *= base;
        base *= base;
    }
    return (float)(1 / (1 - power));
}

bool taciti_optim_is_frozen(const taciti_optim *optim) {
    return optim->options.freeze > 0 && optim->updates >= optim->options.freeze;
}

void taciti_optim_begin(taciti_optim *optim, double lr, double grad_scale) {
    const taciti_optim_options *o = &optim->options;
    const bool frozen = taciti_optim_is_frozen(optim);
    const int64_t t = ++optim->updates;
    const int64_t steps = accumulates_windows(o) ? o->accum : 1, windows = (t + steps - 1) / steps;
    optim->adam = (taciti_accum_step){
        .adamw = {.lr = (float)lr,
                  .beta1 = (float)o->beta1,
                  .beta2 = frozen ? 1 : (float)o->beta2, /* 1: v stays, bit for bit */
                  .eps = (float)o->eps,
                  .weight_decay = (float)o->weight_decay,
                  .correction1 = bias_correction(o->beta1, windows),
                  .correction2 = bias_correction(o->beta2, frozen ? o->freeze : windows),
                  .grad_scale = (float)grad_scale,
                  .coupled = o->name == TACITI_OPTIM_ADAM || o->name == TACITI_OPTIM_ACCUM_ADAM},
        .share = (float)(1 / (double)steps),
        .window_ends = t % steps == 0,
    };
    optim->sgd = (taciti_sgd_step){.lr = (float)lr,
                                   .momentum = (float)o->momentum,
                                   .weight_decay = (float)o->weight_decay,
                                   .grad_scale = (float)grad_scale};
}

/* One pass over floats [offset, offset + n) of the flat arrays: update, blend or both. */
typedef struct pass_job {
    taciti_optim *optim;
    float *parameters;
    const float *gradients; /* NULL: no update */
    taciti_bf16 *copy16;    /* or NULL */
    size_t offset, n;
    taciti_blend *blend; /* or NULL */
} pass_job;

static float *state_at(const taciti_optim *optim, int i, size_t at) {
    return i < optim->state_count ? (float *)optim->states[i].base + at : NULL;
}

static taciti_bf16 *copy_at(const pass_job *job, size_t at) { return job->copy16 != NULL ? job->copy16 + at : NULL; }

/* blend (may be NULL) begins where the floats do. */
static void update_floats(const pass_job *job, size_t begin, size_t end, bool decay, taciti_blend *blend) {
    const taciti_optim *optim = job->optim;
    float *p = job->parameters + begin;
    const float *g = job->gradients + begin;
    const taciti_accum_state state = {state_at(optim, 0, begin), state_at(optim, 1, begin), state_at(optim, 2, begin)};
    taciti_accum_step adam = optim->adam;
    taciti_sgd_step sgd = optim->sgd;
    adam.adamw.blend = sgd.blend = blend;
    adam.adamw.share = optim->share == NULL ? NULL : optim->share + begin;
    if (!decay) adam.adamw.weight_decay = sgd.weight_decay = 0;
    if (optim->options.name == TACITI_OPTIM_SGD)
        optim->kernels->sgd(&sgd, p, g, state.m, copy_at(job, begin), end - begin);
    else if (accumulates_windows(&optim->options))
        optim->kernels->accum_adamw(&adam, p, g, &state, copy_at(job, begin), end - begin);
    else
        optim->kernels->adamw(&adam.adamw, p, g, state.m, state.v, copy_at(job, begin), end - begin);
}

/* The first tensor that reaches beyond `at`. */
static size_t tensor_beyond(const taciti_layout *layout, size_t at) {
    size_t low = 0, high = layout->tensor_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const taciti_tensor *t = &layout->tensors[middle];
        if (t->offset + t->n > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The blend of floats from `at` on. */
static taciti_blend blend_at(const taciti_blend *blend, size_t at) {
    taciti_blend out = *blend;
    if (out.arrived != NULL) out.arrived += at;
    if (out.integral != NULL) out.integral += at;
    if (out.leaving != NULL) out.leaving += at;
    out.moved = 0;
    return out;
}

/* Blends floats that belong to no tensor or are not updated; returns the distance that they moved. */
static double blend_floats(const pass_job *job, size_t begin, size_t end) {
    if (job->blend == NULL || begin == end) return 0;
    taciti_blend blend = blend_at(job->blend, begin);
    job->optim->kernels->blend(&blend, job->parameters + begin, copy_at(job, begin), end - begin);
    return blend.moved;
}

/* Passes over the tensors one by one, so that padding between them is never updated; returns the distance moved. */
static double pass_floats(const pass_job *job, size_t begin, size_t end) {
    const taciti_layout *layout = job->optim->layout;
    double moved = 0;
    for (size_t i = tensor_beyond(layout, begin); i < layout->tensor_count && layout->tensors[i].offset < end; i++) {
        const taciti_tensor *t = &layout->tensors[i];
        const size_t first = t->offset > begin ? t->offset : begin;
        const size_t last = t->offset + t->n < end ? t->offset + t->n : end;
        moved += blend_floats(job, begin, first);
        taciti_blend blend = job->blend != NULL ? blend_at(job->blend, first) : (taciti_blend){0};
        update_floats(job, first, last, t->decay, job->blend != NULL ? &blend : NULL);
        moved += blend.moved;
        begin = last;
    }
    return moved + blend_floats(job, begin, end);
}

static void pass_part(void *context, int thread, int threads) {
    const pass_job *job = context;
    const size_t unit = job->blend != NULL ? BLEND_FLOATS : FLOATS_PER_LINE;
    size_t begin = 0, end = 0;
    taciti_pool_part(job->n, unit, thread, threads, &begin, &end);
    if (job->blend == NULL) (void)pass_floats(job, job->offset + begin, job->offset + end);
    for (size_t at = begin; job->blend != NULL && at < end; at += BLEND_FLOATS) {
        const size_t first = job->offset + at,
                     last = end - at < BLEND_FLOATS ? job->offset + end : first + BLEND_FLOATS;
        job->optim->block_sums[at / BLEND_FLOATS] =
            job->gradients != NULL ? pass_floats(job, first, last) : blend_floats(job, first, last);
    }
}

static void run_pass(pass_job *job) {
    const taciti_optim *optim = job->optim;
    if (optim->wait != NULL) {
        if (job->gradients != NULL) optim->wait(optim->self, job->offset, job->n);
        return;
    }
    taciti_pool_run(optim->pool, pass_part, job);
    for (size_t block = 0; job->blend != NULL && block * BLEND_FLOATS < job->n; block++)
        job->blend->moved += optim->block_sums[block];
}

void taciti_optim_update_range(taciti_optim *optim, float *parameters, const float *gradients, taciti_bf16 *copy16,
                               size_t offset, size_t n, taciti_blend *blend) {
    run_pass(&(pass_job){optim, parameters, gradients, copy16, offset, n, blend});
}

void taciti_optim_blend_range(taciti_optim *optim, float *parameters, taciti_bf16 *copy16, size_t offset, size_t n,
                              taciti_blend *blend) {
    run_pass(&(pass_job){optim, parameters, NULL, copy16, offset, n, blend});
}

void taciti_optim_update(taciti_optim *optim, float *parameters, const float *gradients, taciti_bf16 *copy16, double lr,
                         double grad_scale) {
    taciti_optim_begin(optim, lr, grad_scale);
    taciti_optim_update_range(optim, parameters, gradients, copy16, 0, optim->layout->n, NULL);
}

/* ---- momentum ------------------------------------------------------------------------------------------------ */

void taciti_optim_to_momentum(const taciti_optim *optim, float *x, double share, size_t offset, size_t n) {
    const float beta1 = (float)optim->options.beta1;
    optim->kernels->scale(x + offset, 1.0f - beta1, n);
    optim->kernels->add_scaled(x + offset, state_at(optim, 0, offset), (float)((double)beta1 * share), n);
}

/* With beta1 0 the array of gradients becomes the first moment; the correction is still that of optim.beta1. */
void taciti_optim_update_by_momentum(taciti_optim *optim, float *parameters, const float *momentum, taciti_bf16 *copy16,
                                     double lr) {
    taciti_optim_begin(optim, lr, 1);
    optim->adam.adamw.beta1 = 0;
    taciti_optim_update_range(optim, parameters, momentum, copy16, 0, optim->layout->n, NULL);
}

/* ---- noise --------------------------------------------------------------------------------------------------- */

void taciti_optim_discount(taciti_optim *optim, const float *share) { optim->share = share; }

float *taciti_optim_second_moments(taciti_optim *optim) {
    return optim->state_count < 2 ? NULL : state_at(optim, 1, 0);
}

typedef struct signal_job {
    const taciti_optim *optim;
    float *out;
    float correction1, correction2;
} signal_job;

static void write_signal(void *context, int thread, int threads) {
    const signal_job *job = context;
    const float *m = state_at(job->optim, 0, 0), *v = state_at(job->optim, 1, 0);
    size_t begin = 0, end = 0;
    taciti_pool_part(job->optim->layout->n, FLOATS_PER_LINE, thread, threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float root = sqrtf(v[i] * job->correction2);
        job->out[i] = root > 0 ? m[i] * job->correction1 / root : 0;
    }
}

void taciti_optim_signal(taciti_optim *optim, float *out) {
    const taciti_optim_options *o = &optim->options;
    const int64_t windows = optim->updates / (accumulates_windows(o) ? o->accum : 1);
    const int64_t seen = taciti_optim_is_frozen(optim) ? o->freeze : windows;
    if (windows == 0 || optim->state_count < 2) { /* or emulated */
        memset(out, 0, optim->layout->n * sizeof *out);
        return;
    }
    signal_job job = {optim, out, bias_correction(o->beta1, windows), bias_correction(o->beta2, seen)};
    taciti_optim_run(optim, write_signal, &job);
}

/* ---- jobs of others ------------------------------------------------------------------------------------------ */

void taciti_optim_run(taciti_optim *optim, taciti_pool_job *job, void *context) {
    if (optim->wait == NULL) taciti_pool_run(optim->pool, job, context);
}

typedef struct scale_job {
    const taciti_optim *optim;
    float *x;
    float factor;
} scale_job;

static void scale_part(void *context, int thread, int threads) {
    const scale_job *job = context;
    size_t begin = 0, end = 0;
    taciti_pool_part(job->optim->layout->n, FLOATS_PER_LINE, thread, threads, &begin, &end);
    job->optim->kernels->scale(job->x + begin, job->factor, end - begin);
}

void taciti_optim_scale(taciti_optim *optim, float *flat, double factor) {
    scale_job job = {.optim = optim, .x = flat, .factor = (float)factor};
    if (job.factor < 1 || job.factor > 1) taciti_optim_run(optim, scale_part, &job);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

typedef tacit_status make_pages(size_t bytes, const char *what, taciti_pages *out);

static tacit_status create_on_pages(const taciti_optim_options *options, const taciti_layout *layout, taciti_pool *pool,
                                    make_pages *pages, taciti_optim **out) {
    TACITI_TRY(taciti_optim_check(options));
    taciti_optim *optim = taciti_calloc(1, sizeof *optim);
    if (optim == NULL) return TACIT_E_MEMORY;
    *optim = (taciti_optim){.options = *options, .layout = layout, .pool = pool, .kernels = taciti_kernels_get()};
    optim->block_sums = taciti_calloc(layout->n / BLEND_FLOATS + 1, sizeof *optim->block_sums);
    tacit_status status = optim->block_sums == NULL ? TACIT_E_MEMORY : TACIT_OK;
    while (status == TACIT_OK && optim->state_count < states_of(options)) {
        status = pages(layout->n * sizeof(float), STATE, &optim->states[optim->state_count]);
        if (status == TACIT_OK) optim->state_count++;
    }
    if (status == TACIT_OK)
        *out = optim;
    else
        taciti_optim_destroy(optim);
    return status;
}

tacit_status taciti_optim_create(const taciti_optim_options *options, const taciti_layout *layout, taciti_pool *pool,
                                 taciti_optim **out) {
    return create_on_pages(options, layout, pool, taciti_pages_create, out);
}

tacit_status taciti_optim_create_parts(const taciti_optim_options *options, const taciti_layout *layout,
                                       taciti_pool *pool, taciti_optim **out) {
    return create_on_pages(options, layout, pool, taciti_pages_reserve, out);
}

tacit_status taciti_optim_hold(taciti_optim *optim, taciti_range range) {
    for (int i = 0; i < optim->state_count; i++)
        TACITI_TRY(taciti_pages_commit(&optim->states[i], range.at * sizeof(float), range.n * sizeof(float), STATE));
    return TACIT_OK;
}

tacit_status taciti_optim_create_idle(taciti_optim_wait *wait, void *self, const taciti_layout *layout,
                                      taciti_optim **out) {
    taciti_optim *optim = taciti_calloc(1, sizeof *optim);
    if (optim == NULL) return TACIT_E_MEMORY;
    *optim = (taciti_optim){.wait = wait, .self = self, .layout = layout};
    *out = optim;
    return TACIT_OK;
}

/* ---- state --------------------------------------------------------------------------------------------------- */

int taciti_optim_state_count(const taciti_optim *optim) { return optim->state_count; }

/* A sum of gradients has another name than a mean of them, so that no optimizer goes on from the other's state. */
static const char *name_of_state(const taciti_optim *optim, int i) {
    static const char *const NAMES[TACITI_OPTIM_MAX_STATES] = {"optim.m", "optim.v", "optim.a"};
    return optim->options.name == TACITI_OPTIM_SGD ? "optim.momentum" : NAMES[i];
}

/* ranges NULL: the whole arrays. */
static void list_entries(taciti_optim *optim, taciti_state_owner owner, const taciti_range *ranges, size_t range_count,
                         taciti_state *out) {
    for (int i = 0; i < optim->state_count; i++)
        taciti_state_add_ranges(out, name_of_state(optim, i), owner, TACITI_STATE_MEAN, optim->layout,
                                optim->states[i].base, ranges, range_count);
    taciti_state_add(out, (taciti_state_entry){.name = "updates",
                                               .kind = TACITI_STATE_COUNT,
                                               .owner = owner,
                                               .regroup = TACITI_STATE_MEAN,
                                               .data = &optim->updates});
}

void taciti_optim_list_state(taciti_optim *optim, taciti_state_owner owner, taciti_state *out) {
    list_entries(optim, owner, NULL, 0, out);
}

void taciti_optim_list_ranges(taciti_optim *optim, const taciti_range *ranges, size_t range_count, taciti_state *out) {
    list_entries(optim, TACITI_STATE_SHARED, ranges, range_count, out);
}

int64_t taciti_optim_updates(const taciti_optim *optim) { return optim->updates; }

void taciti_optim_set_updates(taciti_optim *optim, int64_t updates) { optim->updates = updates; }

/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW and SGD on the flat parameter array.
 *
 * AdamW: Loshchilov & Hutter, arXiv 1711.05101, algorithm 2 (lines 7 to 12) with the decay scaled by the learning rate.
 *   beta1, beta2, eps -> the same names;  m_t, v_t -> state 0, 1;  t -> updates;  lambda -> weight_decay;
 *   alpha eta_t -> lr
 * SGD: Sutskever et al., "On the importance of initialization and momentum", ICML 2013, in the form of PyTorch.
 *
 * Bias corrections are taken from the float values of beta that the kernels use, so that at t = 1 the corrected moments
 * are the gradient and its square up to rounding.
 */
#include "optim/optim.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

enum { MOST_STATES = 2, BLOCK_FLOATS = 65536, FLOATS_PER_LINE = 16 };

static const char *const STATE_NAMES[MOST_STATES] = {"m", "v"};

struct taciti_optim {
    taciti_optim_options options;
    const taciti_layout *layout; /* borrows */
    taciti_pool *pool;           /* borrows */
    const taciti_kernels *kernels;
    taciti_pages states[MOST_STATES]; /* layout->n floats each */
    int state_count;
    double *block_sums; /* one per BLOCK_FLOATS floats of the layout */
    int64_t updates;
    bool emulated;     /* all of the above but updates is zero */
    int64_t update_ns; /* of an emulated one */
};

static int states_of(const taciti_optim_options *options) {
    if (options->name == TACITI_OPTIM_ADAMW) return 2;
    return options->momentum > 0 ? 1 : 0;
}

size_t taciti_optim_bytes_per_float(const taciti_optim_options *options) {
    return sizeof(float) * (size_t)states_of(options);
}

tacit_status taciti_optim_create(const taciti_optim_options *options, const taciti_layout *layout, taciti_pool *pool,
                                 taciti_optim **out) {
    taciti_optim *optim = taciti_calloc(1, sizeof *optim);
    if (optim == NULL) return TACIT_E_MEMORY;
    *optim = (taciti_optim){.options = *options, .layout = layout, .pool = pool, .kernels = taciti_kernels_get()};
    optim->block_sums = taciti_calloc(layout->n / BLOCK_FLOATS + 1, sizeof *optim->block_sums);
    tacit_status status = optim->block_sums == NULL ? TACIT_E_MEMORY : TACIT_OK;
    while (status == TACIT_OK && optim->state_count < states_of(options)) {
        status = taciti_pages_create(layout->n * sizeof(float), "optimizer state", &optim->states[optim->state_count]);
        if (status == TACIT_OK) optim->state_count++;
    }
    if (status != TACIT_OK) {
        taciti_optim_destroy(optim);
        return status;
    }
    *out = optim;
    return TACIT_OK;
}

tacit_status taciti_optim_create_emulated(double update_s, taciti_optim **out) {
    taciti_optim *optim = taciti_calloc(1, sizeof *optim);
    if (optim == NULL) return TACIT_E_MEMORY;
    optim->emulated = true;
    optim->update_ns = (int64_t)(update_s * (double)TACITI_NS_PER_S);
    *out = optim;
    return TACIT_OK;
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
    taciti_pool_part(job->n, BLOCK_FLOATS, thread, threads, &begin, &end);
    for (size_t at = begin; at < end; at += BLOCK_FLOATS) {
        const size_t left = end - at, n = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
        job->optim->block_sums[at / BLOCK_FLOATS] = job->optim->kernels->sum_squares(job->x + at, n);
    }
}

double taciti_optim_sum_squares(taciti_optim *optim, const float *flat, size_t offset, size_t n) {
    if (optim->emulated) return 0;
    norm_job job = {.optim = optim, .x = flat + offset, .n = n};
    taciti_pool_run(optim->pool, sum_blocks, &job);
    double sum = 0;
    for (size_t block = 0; block * BLOCK_FLOATS < n; block++) sum += optim->block_sums[block];
    return sum;
}

/* ---- update -------------------------------------------------------------------------------------------------- */

typedef struct update_job {
    taciti_optim *optim;
    taciti_adamw_step adamw;
    taciti_sgd_step sgd;
    float *parameters;
    const float *gradients;
    taciti_bf16 *copy16;
} update_job;

static void update_range(const update_job *job, size_t begin, size_t end, bool decay) {
    taciti_optim *optim = job->optim;
    float *p = job->parameters + begin;
    const float *g = job->gradients + begin;
    float *m = optim->state_count > 0 ? (float *)optim->states[0].base + begin : NULL;
    taciti_bf16 *copy = job->copy16 != NULL ? job->copy16 + begin : NULL;
    if (optim->options.name == TACITI_OPTIM_ADAMW) {
        taciti_adamw_step step = job->adamw;
        if (!decay) step.weight_decay = 0;
        optim->kernels->adamw(&step, p, g, m, (float *)optim->states[1].base + begin, copy, end - begin);
    } else {
        taciti_sgd_step step = job->sgd;
        if (!decay) step.weight_decay = 0;
        optim->kernels->sgd(&step, p, g, m, copy, end - begin);
    }
}

/* Tensor by tensor, so that padding between them is never touched. */
static void update_part(void *context, int thread, int threads) {
    const update_job *job = context;
    const taciti_layout *layout = job->optim->layout;
    size_t begin = 0, end = 0;
    taciti_pool_part(layout->n, FLOATS_PER_LINE, thread, threads, &begin, &end);
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const taciti_tensor *t = &layout->tensors[i];
        const size_t first = t->offset > begin ? t->offset : begin;
        const size_t last = t->offset + t->n < end ? t->offset + t->n : end;
        if (first < last) update_range(job, first, last, t->decay);
    }
}

/* 1 / (1 - beta^t) with IEEE products only: pow() differs between CPUs. */
static float correction(double beta, int64_t t) {
    double power = 1, base = (double)(float)beta;
    for (; t > 0; t /= 2) {
        if (t % 2 == 1) power *= base;
        base *= base;
    }
    return (float)(1 / (1 - power));
}

void taciti_optim_update(taciti_optim *optim, float *parameters, const float *gradients, taciti_bf16 *copy16, double lr,
                         double grad_scale) {
    const taciti_optim_options *o = &optim->options;
    const int64_t t = ++optim->updates;
    if (optim->emulated) {
        taciti_sleep_until_ns(taciti_now_ns() + optim->update_ns);
        return;
    }
    update_job job = {
        .optim = optim,
        .adamw = {.lr = (float)lr,
                  .beta1 = (float)o->beta1,
                  .beta2 = (float)o->beta2,
                  .eps = (float)o->eps,
                  .weight_decay = (float)o->weight_decay,
                  .correction1 = correction(o->beta1, t),
                  .correction2 = correction(o->beta2, t),
                  .grad_scale = (float)grad_scale},
        .sgd = {.lr = (float)lr,
                .momentum = (float)o->momentum,
                .weight_decay = (float)o->weight_decay,
                .grad_scale = (float)grad_scale,
                .nesterov = o->nesterov},
        .parameters = parameters,
        .gradients = gradients,
        .copy16 = copy16,
    };
    taciti_pool_run(optim->pool, update_part, &job);
}

/* ---- state --------------------------------------------------------------------------------------------------- */

int taciti_optim_state_count(const taciti_optim *optim) { return optim->state_count; }

const char *taciti_optim_state_name(const taciti_optim *optim, int i) {
    return i >= 0 && i < optim->state_count ? STATE_NAMES[i] : NULL;
}

float *taciti_optim_state(taciti_optim *optim, int i) {
    return i >= 0 && i < optim->state_count ? optim->states[i].base : NULL;
}

int64_t taciti_optim_updates(const taciti_optim *optim) { return optim->updates; }

void taciti_optim_set_updates(taciti_optim *optim, int64_t updates) { optim->updates = updates; }

/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers, clipping and learning-rate schedules on flat arrays. Equal inputs give equal bits on every CPU and with
 * any number of threads (element-wise kernels without fma; norms over fixed blocks).
 */
#ifndef TACITI_OPTIM_OPTIM_H
#define TACITI_OPTIM_OPTIM_H

#include "base/option.h"
#include "base/pool.h"
#include "kernel/kernel.h"
#include "tensor/layout.h"
#include "tensor/state.h"

enum {
    TACITI_OPTIM_ADAMW,
    TACITI_OPTIM_SGD,
    TACITI_OPTIM_ADAM,        /* the decay is part of the gradient (L2) */
    TACITI_OPTIM_ACCUM_ADAMW, /* moments follow the mean gradient of `accum` steps; every step updates parameters */
    TACITI_OPTIM_ACCUM_ADAM
};

enum { TACITI_SCHEDULE_COSINE, TACITI_SCHEDULE_INVERSE_SQRT, TACITI_SCHEDULE_CONSTANT };

typedef struct taciti_optim_options {
    int name;             /* optim.name: "adamw|sgd|adam|accum-adamw|accum-adam" */
    double lr;            /* optim.lr: peak learning rate */
    double lr_min;        /* optim.lr_min: floor of the cosine, as a fraction of lr (default 0.1) */
    int schedule;         /* optim.schedule: "cosine|inverse-sqrt|constant", after the warm-up */
    int64_t warmup_steps; /* optim.warmup: linear warm-up steps */
    int64_t decay_steps;  /* optim.decay_steps: step of the floor; 0: train.steps; -1: constant after warm-up */
    double restart;       /* optim.restart: each further cosine is this many times as long; 0: one cosine only */
    double beta1, beta2, eps;
    int64_t freeze;      /* optim.freeze: updates after which adam(w)'s second moments stay as they are; 0: never */
    int64_t accum;       /* optim.accum: steps of a window of accum-adam(w); 1 is adam(w) */
    double momentum;     /* sgd */
    double weight_decay; /* on tensors whose `decay` is set */
    double clip;         /* optim.clip: global-norm bound; 0: none */
} taciti_optim_options;
extern const taciti_option_table taciti_optim_option_table; /* section "optim" */

/* Learning rate of step `step` (0-based); total_steps resolves decay_steps 0. Linear warm-up, then one of
 *   cosine        to lr_min * lr, and with optim.restart > 0 again from the peak, each cycle that many times as long
 *                 (Loshchilov & Hutter 1608.03983, equation 5 and T_mult)
 *   inverse-sqrt  lr * sqrt(w / (step + 1)), w the steps of the warm-up or 1 (Vaswani et al. 1706.03762, equation 3)
 *   constant
 * Pure; the same bits on every CPU. */
double taciti_optim_lr(const taciti_optim_options *options, int64_t step, int64_t total_steps);

/* Returns the factor that reduces a gradient of this norm to a norm of at most optim.clip. Pure. */
double taciti_optim_clip_scale(const taciti_optim_options *options, double norm);

/* Returns E_CONFIG, with what to type, for options that do not go together. Pure. */
tacit_status taciti_optim_check(const taciti_optim_options *options);

typedef struct taciti_optim taciti_optim;

enum { TACITI_OPTIM_MAX_STATES = 3 };

/* Allocates the moments: two flat arrays for adam and adamw, three for their accumulating forms, one for sgd with
 * momentum, none without. Borrows layout and pool. Not collective. */
tacit_status taciti_optim_create(const taciti_optim_options *options, const taciti_layout *layout, taciti_pool *pool,
                                 taciti_optim **out);
void taciti_optim_destroy(taciti_optim *optim);

/* For ranks that update parts of the parameters. create_parts: the moments have addresses but no memory. hold: these
 * floats have moments from now on, 0 at first; others must not be updated. */
tacit_status taciti_optim_create_parts(const taciti_optim_options *options, const taciti_layout *layout,
                                       taciti_pool *pool, taciti_optim **out);
tacit_status taciti_optim_hold(taciti_optim *optim, taciti_range range);

/* Runs a job of the caller on the threads of the pool. */
void taciti_optim_run(taciti_optim *optim, taciti_pool_job *job, void *context);

/* flat *= factor, all floats of the layout; a factor of 1 costs nothing. */
void taciti_optim_scale(taciti_optim *optim, float *flat, double factor);

/* Sum of squares of flat[offset, offset + n), n at most the layout's floats, as a double that depends neither on
 * threads nor on the CPU. */
double taciti_optim_sum_squares(taciti_optim *optim, const float *flat, size_t offset, size_t n);

/* One update of all parameters. gradients are multiplied by grad_scale first; copy16 (may be NULL) receives the bf16
 * copy of the new parameters. Advances the optimizer's step count t (t = 1 at the first update). */
void taciti_optim_update(taciti_optim *optim, float *parameters, const float *gradients, taciti_bf16 *copy16, double lr,
                         double grad_scale);

/* ---- updates in ranges, with mixing --------------------------------------------------------------------------------
 * For strategies whose replicas differ: one pass over memory blends a range's parameters with those received from other
 * ranks, updates them, and copies them for sending. A blend (kernel.h) points to flat arrays; padding is blended as
 * well and stays 0 where 0 arrives. */

/* One update in ranges: begin advances t; then update_range must cover each float of the layout once, in ranges that
 * begin and end at bucket boundaries, or, without blending, each float that this rank updates. blend may be NULL.
 * Without blending the result equals that of taciti_optim_update() bit for bit. Weight decay uses the blended
 * parameters. */
void taciti_optim_begin(taciti_optim *optim, double lr, double grad_scale);
void taciti_optim_update_range(taciti_optim *optim, float *parameters, const float *gradients, taciti_bf16 *copy16,
                               size_t offset, size_t n, taciti_blend *blend);

/* Blends without an update: moments and t do not change; copy16 is updated. */
void taciti_optim_blend_range(taciti_optim *optim, float *parameters, taciti_bf16 *copy16, size_t offset, size_t n,
                              taciti_blend *blend);

/* ---- momentum instead of gradients ---------------------------------------------------------------------------------
 * 1-bit Adam (arXiv 2102.02888): once second moments are frozen, adam(w) is linear in the gradient up to its last line,
 * so ranks may exchange their first moments. With m the same on all ranks, beta1 m + (1 - beta1) mean(g_i) is the mean
 * of beta1 m + (1 - beta1) g_i. */

/* Whether the next update leaves the second moments as they are. Between two updates the answer stays. */
bool taciti_optim_is_frozen(const taciti_optim *optim);

/* x[offset, offset + n) = (1 - beta1) x + share * beta1 m, for adam(w). Shares of all ranks add up to 1, so the sum
 * over ranks of what their gradients become is the new first moment. Training thread, not between begin and the end of
 * an update. */
void taciti_optim_to_momentum(const taciti_optim *optim, float *x, double share, size_t offset, size_t n);

/* The update of adam(w) whose new first moment is `momentum`; second moments stay. Advances t. Decay that is part of
 * the gradient is not supported: `adam` only without decay. */
void taciti_optim_update_by_momentum(taciti_optim *optim, float *parameters, const float *momentum, taciti_bf16 *copy16,
                                     double lr);

/* ---- the noise of a rank's share of the batch ----------------------------------------------------------------------
 * For replicas that update with gradients of their own, whose second moments are larger than those of the mean gradient
 * (strategy/gossip_noise.c). */

/* From now on every update multiplies the second moment by this array, as it is then; the stored one stays what it is.
 * Borrowed; NULL: by nothing. For adam(w) and their accumulating forms. Not during an update. */
void taciti_optim_discount(taciti_optim *optim, const float *share);

/* out = m / sqrt(v) of all floats, both corrected, where v is not 0: the mean of what each element's gradient has been
 * lately, over its root mean square. 0 elsewhere, and before the first window has ended. */
void taciti_optim_signal(taciti_optim *optim, float *out);

/* The second moments; NULL: there are none. Borrowed. */
float *taciti_optim_second_moments(taciti_optim *optim);

/* Lists what a checkpoint must hold: the arrays "optim.m", "optim.v" and "optim.a" (the running mean of a window), or
 * "optim.momentum" of sgd, as far as the optimizer has them, and the count "updates", from which the place in a window
 * follows. */
void taciti_optim_list_state(taciti_optim *optim, taciti_state_owner owner, taciti_state *out);
/* The same with these ranges of the arrays, borrowed; the ranges of all ranks are one whole. */
void taciti_optim_list_ranges(taciti_optim *optim, const taciti_range *ranges, size_t range_count, taciti_state *out);
/* Number of these arrays. */
int taciti_optim_state_count(const taciti_optim *optim);
int64_t taciti_optim_updates(const taciti_optim *optim);
void taciti_optim_set_updates(taciti_optim *optim, int64_t updates);

/* ---- no passes -----------------------------------------------------------------------------------------------------
 * For an accelerator that only pretends to compute (model/emulated.h): no state, and no pass over elements. Sums of
 * squares are 0, blends move 0, jobs are left out, and an update is a wait. */

/* Waits as long as an update of these floats takes. */
typedef void taciti_optim_wait(void *self, size_t offset, size_t n);

/* Borrows self and layout. */
tacit_status taciti_optim_create_idle(taciti_optim_wait *wait, void *self, const taciti_layout *layout,
                                      taciti_optim **out);

/* Bytes of state per parameter float (adamw 8, accum-adamw 12, sgd with momentum 4): for the memory prediction. */
size_t taciti_optim_bytes_per_float(const taciti_optim_options *options);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam without the noise of a rank's share of the batch.
 *
 * The gradient of rank i is g + xi_i, where the variance s^2 of xi_i is N times that of the mean gradient. So Adam's
 * second moment tends to g^2 + s^2, that of dense training to g^2 + s^2 / N: steps of a replica are up to sqrt(N) too
 * short, by another factor for every element, and no learning rate mends that. So a share of v counts in the update:
 *
 *   r_i    m_i / sqrt(v_i)                         the signal of rank i, in [-1, 1] but for rare gradients
 *   q      min((mean over ranks of r_i)^2, 1)      g^2 / v where all variance is noise
 *   share  1 - a kappa (1 - 1/N) (1 - q)           (g^2 + s^2 / N) / (g^2 + s^2) where a and kappa are 1
 *
 * kappa, of a tensor, says how much of the variance in time is the rank's own. The rest, such as that of parameters
 * which oscillate, is in the mean gradient, too. Independent noise lets the signals of ranks differ by the variance f
 * (1 - q), f = (1 - beta1) / (1 + beta1), once the first moments of equal replicas are forgotten; kappa is their
 * variance over that one. Ranks with equal gradients have kappa 0 and make the steps of Adam, to the bit.
 *
 * a is how much of v replicas have seen: (1 - beta2^k) / (1 - beta2^t), k of t windows after dense steps, else 1. The
 * rest has the noise of the mean gradient, so kappa may be up to 1 / (a + (1 - a) / N) there.
 *
 * The signals are summed over all ranks every `denoise` steps, as int8: one array of a byte per float. They leave a
 * quarter of that time after a multiple of it, before the next mix, and are used from half of it on.
 *
 * The norm of a rank's gradient is larger than that of the mean gradient; optim.clip is compared with the latter. A
 * window of w steps has a w-th of the noise of a gradient, of which v speaks.
 *
 * Properties (test_gossip_noise.c): the share is in [1/N, 1], 1 for equal gradients, 1/N for noise alone; one rank
 * makes Adam's steps; overlapped equals blocking and resumed equals uninterrupted, bit for bit.
 */
#include <math.h>

#include "base/clock.h"
#include "strategy/gossip_state.h"

/* Below, kappa counts as 0, and above this part of its maximum as that: few ranks and short tensors show it inexactly.
 */
#define MIN_KAPPA 0.125
#define MAX_KAPPA 0.75
#define MIN_VARIANCE 0.02 /* of the signals' mean square: int8 may add 1.6 % */

static bool has_second_moments(const taciti_strategy_context *context) {
    const bool ours = !context->own_optimizer && !context->idle_optimizer;
    return ours && context->optim_options->name != TACITI_OPTIM_SGD;
}

bool taciti_gossip_denoises(const taciti_strategy_context *context) {
    const taciti_gossip_options *o = context->options;
    return o->denoise > 0 && !o->tracker && taciti_comm_size(context->comm) > 1 && has_second_moments(context);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

const taciti_codec *taciti_gossip_sum_codec(void) { return taciti_codec_find("int8"); }

taciti_encoding taciti_gossip_sum_encoding(void) {
    const taciti_codec *codec = taciti_gossip_sum_codec();
    return (taciti_encoding){.codec = codec, .expected = taciti_codec_setting_of(codec, (taciti_codec_setting){0})};
}

/* One float per tensor. */
static tacit_status make_tensor_layout(size_t tensors, taciti_layout *out) {
    TACITI_TRY(taciti_layout_create(1, out));
    TACITI_TRY(taciti_layout_append(out, "energy", 1, &tensors, false));
    return taciti_layout_seal(out, SIZE_MAX / 2);
}

tacit_status taciti_gossip_noise_allocate(taciti_gossip *g) {
    taciti_gossip_noise *noise = &g->noise;
    const size_t tensors = g->context.layout->tensor_count;
    noise->norm = 1;
    if (!noise->active) return TACIT_OK;
    TACITI_TRY(make_tensor_layout(tensors, &noise->tensors));
    noise->energy = taciti_calloc(noise->tensors.n, sizeof *noise->energy);
    noise->sums = taciti_calloc(2 * tensors, sizeof *noise->sums);
    return noise->energy == NULL || noise->sums == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

tacit_status taciti_gossip_noise_connect(taciti_gossip *g) {
    taciti_gossip_noise *noise = &g->noise;
    const taciti_strategy_context *c = &g->context;
    const taciti_exchange_options options = taciti_exact_options(c->exchange_options);
    const taciti_encoding encoding = taciti_gossip_sum_encoding();
    if (!noise->active) return TACIT_OK;
    TACITI_TRY(taciti_exchange_create(c->comm, c->layout, &options, &encoding, &noise->signals));
    return taciti_exchange_create(c->comm, &noise->tensors, &options, NULL, &noise->energies);
}

void taciti_gossip_noise_destroy(taciti_gossip *g) {
    taciti_exchange_destroy(g->noise.signals);
    taciti_exchange_destroy(g->noise.energies);
    taciti_layout_destroy(&g->noise.tensors);
    taciti_free(g->noise.energy);
    taciti_free(g->noise.sums);
}

size_t taciti_gossip_noise_predict_bytes(const taciti_strategy_context *context) {
    const taciti_exchange_options options = taciti_exact_options(context->exchange_options);
    const taciti_encoding encoding = taciti_gossip_sum_encoding();
    if (!taciti_gossip_denoises(context)) return 0;
    return 2 * context->layout->n * sizeof(float) +
           taciti_exchange_predict_bytes(context->comm, context->layout, &options, &encoding);
}

/* ---- the transfer ------------------------------------------------------------------------------------------------ */

/* The mean square of a tensor's signal. */
static void measure_energies(void *context, int thread, int threads) {
    const taciti_gossip *g = context;
    const taciti_layout *layout = g->context.layout;
    size_t begin = 0, end = 0;
    taciti_pool_part(layout->tensor_count, 1, thread, threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const taciti_tensor *t = &layout->tensors[i];
        const double squares = taciti_kernels_get()->sum_squares(g->noise.signal + t->offset, t->n);
        g->noise.energy[i] = (float)(squares / (double)t->n);
    }
}

static tacit_status wait_for_signals(taciti_gossip *g) {
    taciti_gossip_noise *noise = &g->noise;
    const int64_t begin_ns = taciti_now_ns();
    if (!noise->under_way) return TACIT_OK;
    for (size_t b = 0; b < g->context.layout->bucket_count; b++) TACITI_TRY(taciti_exchange_wait(noise->signals, b));
    TACITI_TRY(taciti_exchange_wait(noise->energies, 0));
    g->wait_ns += taciti_trace_add(g->context.trace, TACITI_SPAN_WAIT, -1, begin_ns) - begin_ns;
    TACITI_TRY(taciti_exchange_settle(noise->signals, true));
    TACITI_TRY(taciti_exchange_settle(noise->energies, true));
    noise->under_way = false;
    return TACIT_OK;
}

static tacit_status send_signals(taciti_gossip *g) {
    taciti_gossip_noise *noise = &g->noise;
    taciti_optim_signal(g->context.optim, noise->signal);
    taciti_optim_run(g->context.optim, measure_energies, g);
    taciti_exchange_at(noise->signals, g->step, NULL); /* of the keys */
    for (size_t b = 0; b < g->context.layout->bucket_count; b++)
        TACITI_TRY(taciti_exchange_begin(noise->signals, noise->signal, b));
    TACITI_TRY(taciti_exchange_begin(noise->energies, noise->energy, 0));
    noise->under_way = noise->pending = true;
    return g->context.exchange_options->overlap ? TACIT_OK : wait_for_signals(g);
}

/* ---- the share --------------------------------------------------------------------------------------------------- */

static int64_t window_of(const taciti_optim_options *o) {
    return o->name == TACITI_OPTIM_ACCUM_ADAMW || o->name == TACITI_OPTIM_ACCUM_ADAM ? o->accum : 1;
}

/* The weight in a second moment of its last `windows`, not corrected. */
static double weight_of(double beta2, int64_t windows) {
    double before = 1;
    for (double power = beta2; windows > 0; windows /= 2, power *= power) before *= windows % 2 == 1 ? power : 1;
    return 1 - before;
}

/* The part of v that replicas have seen. */
static double part_seen(const taciti_gossip *g) {
    const taciti_optim_options *o = g->context.optim_options;
    const int64_t window = window_of(o), since = (g->step - g->apart_since) / window, all = g->step / window;
    return g->noise.after_dense && all > 0 ? weight_of(o->beta2, since) / weight_of(o->beta2, all) : 1;
}

/* Returns `a kappa` of a tensor. energy: a sum of mean squares over ranks. */
static double own_noise(const taciti_gossip *g, const float *signal, size_t n, float energy) {
    const double ranks = g->topology.ranks, beta1 = g->context.optim_options->beta1, seen = part_seen(g);
    const double independent = (1 - beta1) / (1 + beta1) * (ranks - 1) / ranks, max = 1 / (seen + (1 - seen) / ranks);
    double squares = 0, rest = 0;
    for (size_t i = 0; i < n; i++) {
        const double mean = (double)signal[i] / ranks, square = mean * mean;
        squares += square;
        rest += square < 1 ? 1 - square : 0;
    }
    const double variance = (double)energy / ranks - squares / (double)n, expected = independent * rest / (double)n;
    if (!(variance > MIN_KAPPA * expected && variance > MIN_VARIANCE * squares / (double)n)) return 0;
    return seen * (variance < MAX_KAPPA * max * expected ? variance / expected : max);
}

/* share = 1 - noise (1 - q); signal: a sum over `ranks` of them. */
static void write_share(float *share, const float *signal, size_t n, float ranks, float noise) {
    for (size_t i = 0; i < n; i++) {
        const float mean = signal[i] / ranks, square = mean * mean;
        share[i] = square < 1 ? 1 - noise * (1 - square) : 1;
    }
}

/* Adds up the squares of a rank's gradient and of the mean gradient, as v and its share let expect them. */
static void add_squares(const taciti_gossip *g, const float *v, const float *share, size_t n, double sums[2]) {
    const double window = (double)window_of(g->context.optim_options), others = 1 - 1 / (double)g->topology.ranks;
    sums[0] = sums[1] = 0;
    for (size_t i = 0; i < n; i++) {
        const double rest = 1 - (double)share[i], all = (double)v[i] * (1 + (window - 1) * rest / others);
        if (!isfinite(v[i])) continue;
        sums[0] += all;
        sums[1] += all - (double)v[i] * window * rest;
    }
}

static void add_squares_of_tensors(void *context, int thread, int threads) {
    const taciti_gossip *g = context;
    const taciti_gossip_noise *noise = &g->noise;
    const taciti_layout *layout = g->context.layout;
    const float *v = taciti_optim_second_moments(g->context.optim);
    size_t begin = 0, end = 0;
    taciti_pool_part(layout->tensor_count, 1, thread, threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const size_t at = layout->tensors[i].offset;
        add_squares(g, v + at, noise->share + at, layout->tensors[i].n, &noise->sums[2 * i]);
    }
}

/* The share holds from now on. */
static void begin_discount(taciti_gossip *g) {
    taciti_gossip_noise *noise = &g->noise;
    double all = 0, mean = 0;
    taciti_optim_run(g->context.optim, add_squares_of_tensors, g);
    for (size_t i = 0; i < g->context.layout->tensor_count; i++) {
        all += noise->sums[2 * i];
        mean += noise->sums[2 * i + 1];
    }
    noise->norm = all > 0 && mean > 0 && mean < all ? sqrt(mean / all) : 1;
    noise->used = true;
    taciti_optim_discount(g->context.optim, noise->share);
}

static void update_shares(void *context, int thread, int threads) {
    const taciti_gossip *g = context;
    const taciti_gossip_noise *noise = &g->noise;
    const taciti_layout *layout = g->context.layout;
    const float ranks = (float)g->topology.ranks;
    size_t begin = 0, end = 0;
    taciti_pool_part(layout->tensor_count, 1, thread, threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const taciti_tensor *t = &layout->tensors[i];
        const double kappa = own_noise(g, noise->signal + t->offset, t->n, noise->energy[i]);
        write_share(noise->share + t->offset, noise->signal + t->offset, t->n, ranks,
                    (float)(kappa * (1 - 1 / (double)ranks)));
    }
}

/* As long as first moments remember what they had in common, signals differ too little. */
static bool has_forgotten(const taciti_gossip *g) {
    const taciti_optim_options *o = g->context.optim_options;
    return (double)(g->step - g->apart_since) * (1 - o->beta1) >= (double)window_of(o);
}

static tacit_status use_signals(taciti_gossip *g) {
    TACITI_TRY(wait_for_signals(g));
    g->noise.pending = false;
    taciti_optim_run(g->context.optim, update_shares, g);
    begin_discount(g);
    return TACIT_OK;
}

tacit_status taciti_gossip_noise_look(taciti_gossip *g) {
    if (!g->noise.active || !has_forgotten(g)) return TACIT_OK;
    TACITI_TRY(send_signals(g));
    return use_signals(g);
}

tacit_status taciti_gossip_noise_step(taciti_gossip *g) {
    const int64_t every = g->options.denoise, place = every > 0 ? g->step % every : 0;
    if (!g->noise.active) return TACIT_OK;
    TACITI_TRY(g->noise.status);
    if (place == every / 2 && g->noise.pending) TACITI_TRY(use_signals(g));
    return place == every / 4 && has_forgotten(g) ? send_signals(g) : TACIT_OK;
}

/* ---- start and checkpoints --------------------------------------------------------------------------------------- */

void taciti_gossip_noise_begin(taciti_gossip *g) {
    double *noisy = taciti_average_noisy(g->average);
    g->noise.after_dense = g->noise.active && *noisy < 0.5 && taciti_optim_updates(g->context.optim) > 0;
    *noisy = 1;
    g->apart_since = g->step;
}

double taciti_gossip_noise_state(const taciti_gossip_noise *noise) {
    return (noise->used ? 1 : 0) + (noise->pending ? 2 : 0) + (noise->after_dense ? 4 : 0);
}

void taciti_gossip_noise_await(taciti_gossip *g) { g->noise.status = wait_for_signals(g); }

void taciti_gossip_noise_restore(taciti_gossip *g, double state, double norm) {
    const int bits = (int)state;
    if (!g->noise.active) return;
    g->noise.used = (bits & 1) != 0 && g->noise.share[0] > 0;
    g->noise.pending = (bits & 2) != 0;
    g->noise.after_dense = (bits & 4) != 0;
    g->noise.norm = norm > 0 ? norm : 1;
    if (g->noise.used) taciti_optim_discount(g->context.optim, g->noise.share);
}

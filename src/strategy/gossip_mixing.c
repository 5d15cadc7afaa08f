/* SPDX-License-Identifier: Apache-2.0
 *
 * One mix of one bucket. A rank hands a copy of its array over, in which `sum over others` arrives, and blends:
 *
 *   plain         x <- k x + s buffer                  k, s: the bucket's weights of W' = gamma W + (1 - gamma) I
 *   lagging       x <- x + (k - 1) own + s buffer                  x has changed since `own` was handed over
 *
 * Push-sum (Assran et al., arXiv 1811.10792): parameters hold z = x / w, copies are w z, and a mix that
 * takes w to w' divides its weights by w'. The weights of all ranks follow from the topology and the number of the mix
 * alone, so every rank computes all of them for itself, with the same bits, and no message is needed.
 */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "strategy/gossip_state.h"

/* Weights this close to 1 change no float; where they cannot be kept they are dropped. */
#define NO_WEIGHT 1e-9

double taciti_gossip_mass(const taciti_gossip *g) {
    return g->masses == NULL ? 1 : g->masses[taciti_comm_rank(g->context.comm)];
}

static bool takes_no_masses(const taciti_gossip *g) {
    const taciti_gossip_options *o = &g->options;
    return o->async || o->delay > 0 || o->tracker || g->context.own_optimizer;
}

void taciti_gossip_take_whole_rounds(taciti_gossip *g) {
    g->whole = true;
    g->topology.alternates = false;
}

/* The same on every rank, as all weights are known to all. */
static tacit_status refuse_masses(const taciti_gossip *g, double apart) {
    if (apart <= NO_WEIGHT || !takes_no_masses(g)) return TACIT_OK;
    return TACITI_FAIL_TOGETHER(
        taciti_comm_rank(g->context.comm), TACIT_E_CONFIG,
        "the checkpoint was made on a graph that needs push-sum: its weights are up to %.3g away from 1. "
        "gossip.async, gossip.delay, gossip.tracker and an optimizer of your own do not go with weights; resume "
        "without them, or go on from the mean of the replicas with --resume-from-mean",
        apart);
}

tacit_status taciti_gossip_restore_masses(taciti_gossip *g, double mine) {
    const size_t ranks = (size_t)g->topology.ranks;
    const bool needed = g->masses != NULL;
    double apart = 0;
    if (!needed) g->masses = taciti_calloc(2 * ranks, sizeof *g->masses);
    TACITI_TRY(taciti_comm_agree(g->context.comm, g->masses == NULL ? TACIT_E_MEMORY : TACIT_OK));
    TACITI_TRY(taciti_comm_allgather(g->context.comm, &mine, sizeof mine, g->masses));
    for (size_t r = 0; r < ranks; r++) apart = fmax(apart, fabs(g->masses[r] - 1));
    const tacit_status status = refuse_masses(g, apart);
    if (needed) return status;
    if (apart > 0 && !takes_no_masses(g)) {
        taciti_gossip_take_whole_rounds(g); /* weights belong to them */
        return status;
    }
    taciti_free(g->masses);
    g->masses = NULL;
    return status;
}

taciti_gossip_channel *taciti_gossip_channel_of(taciti_gossip *g, int64_t number) {
    return &g->channels[g->options.delay > 0 && number % 2 != 0];
}

taciti_gossip_channel *taciti_gossip_tracker_channel(taciti_gossip *g) { return &g->channels[2]; }

/* w <- W' w of all ranks. */
static void mix_masses(taciti_gossip *g, int64_t number, double gamma) {
    const int ranks = g->topology.ranks;
    double *mixed = g->masses + ranks;
    taciti_topology_mix(&g->topology, (size_t)number % g->topology.period, g->masses, mixed);
    for (int r = 0; r < ranks; r++) g->masses[r] = gamma * mixed[r] + (1 - gamma) * g->masses[r];
}

void taciti_gossip_advance_masses(taciti_gossip *g) {
    g->mass_before = taciti_gossip_mass(g);
    if (g->masses != NULL && g->number >= 0) mix_masses(g, g->number, g->options.gamma);
}

/* By the optimizer's pool of threads; an emulated optimizer copies nothing. */
void taciti_gossip_copy(const taciti_gossip *g, float *to, float *from, double scale, size_t bucket) {
    const taciti_bucket *b = &g->context.layout->buckets[bucket];
    taciti_blend copy = {.arrived = NULL, .leaving = to, .leaving_scale = (float)scale};
    taciti_optim_blend_range(g->context.optim, from, NULL, b->offset, b->n, &copy);
}

tacit_status taciti_gossip_begin(taciti_gossip_channel *channel, size_t bucket, int64_t number) {
    return taciti_mix_begin(channel->mix, channel->buffer, bucket, number);
}

tacit_status taciti_gossip_launch(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, double scale,
                                  int64_t number) {
    for (size_t b = 0; b < g->context.layout->bucket_count; b++) {
        taciti_gossip_copy(g, channel->buffer, flat, scale, b);
        TACITI_TRY(taciti_gossip_begin(channel, b, number));
    }
    return TACIT_OK;
}

/* A mix that is late has its copy of the parameters since they were handed over. */
static bool is_late(const taciti_gossip *g, const float *flat) {
    return g->own != NULL && flat == g->context.parameters;
}

tacit_status taciti_gossip_collect(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, size_t bucket) {
    if (g->number < 0) return TACIT_OK;
    if (!g->context.exchange_options->overlap) {
        taciti_gossip_copy(g, channel->buffer, is_late(g, flat) ? g->own : flat, g->mass_before, bucket);
        TACITI_TRY(taciti_gossip_begin(channel, bucket, g->number));
    }
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(taciti_mix_wait(channel->mix, channel->buffer, bucket, g->number));
    g->wait_ns += taciti_trace_add(g->context.trace, TACITI_SPAN_WAIT, (int)bucket, begin_ns) - begin_ns;
    return TACIT_OK;
}

/* to <- keep to + share from */
static void blend_bucket(taciti_gossip *g, float *to, double keep, const float *from, double share, size_t bucket) {
    const taciti_bucket *b = &g->context.layout->buckets[bucket];
    taciti_blend blend = {.arrived = from, .keep = (float)keep, .share = (float)share};
    taciti_optim_blend_range(g->context.optim, to, NULL, b->offset, b->n, &blend);
}

/* Returns the weights of W' = gamma W + (1 - gamma) I in the mix of the step that runs. */
static taciti_mix_weights weights_of(const taciti_gossip *g, const taciti_gossip_channel *channel, size_t bucket) {
    const double gamma = g->options.gamma;
    if (g->number < 0) return (taciti_mix_weights){.keep = 1, .share = 0};
    const taciti_mix_weights w = taciti_mix_weights_of(channel->mix, bucket, g->number);
    return (taciti_mix_weights){.keep = (float)(1 - gamma + gamma * (double)w.keep),
                                .share = (float)(gamma * (double)w.share)};
}

static bool changes_nothing(taciti_mix_weights w) { return !(w.keep < 1 || w.keep > 1) && !(fabsf(w.share) > 0); }

static taciti_blend late_blend(taciti_gossip *g, float *buffer, float *flat, taciti_mix_weights w, size_t bucket) {
    const double after = taciti_gossip_mass(g);
    taciti_blend blend = {.arrived = NULL, .keep = 1};
    if (!changes_nothing(w)) {
        const double ratio = g->mass_before / after;
        blend_bucket(g, buffer, (double)w.share / after, g->own, ((double)w.keep - 1) * ratio, bucket);
        blend = (taciti_blend){.arrived = buffer, .keep = (float)ratio, .share = 1};
    }
    if (g->options.delay > 0) taciti_gossip_copy(g, g->own, flat, 1, bucket);
    return blend;
}

static taciti_blend prompt_blend(const taciti_gossip *g, const float *buffer, taciti_mix_weights w) {
    const double after = taciti_gossip_mass(g);
    if (changes_nothing(w)) return (taciti_blend){.arrived = NULL, .keep = 1};
    return (taciti_blend){.arrived = buffer,
                          .keep = (float)((double)w.keep * g->mass_before / after),
                          .share = (float)((double)w.share / after)};
}

taciti_blend taciti_gossip_arrive(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, size_t bucket) {
    const taciti_mix_weights w = weights_of(g, channel, bucket);
    taciti_blend blend =
        is_late(g, flat) ? late_blend(g, channel->buffer, flat, w, bucket) : prompt_blend(g, channel->buffer, w);
    if (flat == g->context.parameters) taciti_gossip_integrate(g, channel->buffer, &blend);
    return blend;
}

tacit_status taciti_gossip_mix(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, taciti_bf16 *copy16,
                               double *moved) {
    const taciti_layout *layout = g->context.layout;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        TACITI_TRY(taciti_gossip_collect(g, channel, flat, b));
        taciti_blend blend = taciti_gossip_arrive(g, channel, flat, b);
        taciti_optim_blend_range(g->context.optim, flat, copy16, layout->buckets[b].offset, layout->buckets[b].n,
                                 &blend);
        *moved += blend.moved;
    }
    return TACIT_OK;
}

double taciti_gossip_norm(const taciti_gossip *g, const float *flat) {
    return g->topology.ranks * sqrt(taciti_optim_sum_squares(g->context.optim, flat, 0, g->context.layout->n));
}

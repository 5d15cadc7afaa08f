/* SPDX-License-Identifier: Apache-2.0
 *
 * What mixes have moved a replica, it moves again: integral action.
 *
 *   e = W' x - x             what a mix moves, of the arrays that travel
 *   c <- leak c + gain e     c: integral
 *   x <- x + e + c - step
 *
 * Noise of a rank's share of the batch pushes it away from the others for some 1 / (1 - beta1) steps in about the same
 * direction, because it goes through the first moments. Mixes alone leave a distance that lasts as long as the push;
 * the integral learns the push from them and takes it back. Nothing more is sent. For noise with beta1 0.9 and a gain
 * of 0.2 squared distances are 0.35 to 0.5 of those without (test_gossip_integral.c).
 *
 * The sum of e over ranks is 0 where the columns of W' sum to 1, so the sum of c is, too: the mean of replicas is not
 * touched. With push-sum the weighted sum is what is kept, so there is no integral. Nor with PowerGossip and
 * codecs that select, which move a few columns or elements at a time: 300 steps ended 10 % above dense instead of 1 %.
 *
 * Source: W. Shi, Q. Ling, G. Wu, W. Yin, "EXTRA", arXiv 1404.6264, whose correction is such an integral with leak 1,
 * for one fixed matrix. Ours forgets, because gradients change, and so it bears matrices that alternate.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "strategy/gossip_state.h"

#define SLOWEST 0.92    /* disagreement shrinks by this factor per mix at least, unless it does not without either */
#define SMALLEST 0.0625 /* of the gain that is wanted */
#define ROUNDING 1e-24  /* squares that mean nothing beside those of numbers of size 1 */
enum { MIXES = 96 };    /* at least, of which the later half is looked at */

/* SGD pushes nowhere for long without momentum, and bears smaller steps with an integral: the awc limit is without.
 * Nobody knows here what an optimizer of the caller's does. */
bool taciti_gossip_wants_integral(const taciti_strategy_context *context) {
    const bool sgd = context->optim_options->name == TACITI_OPTIM_SGD && !context->own_optimizer;
    return taciti_gossip_may_integrate(context->options) && !context->idle_optimizer && !sgd;
}

bool taciti_gossip_integrates(const taciti_strategy_context *context) {
    return taciti_gossip_wants_integral(context) && taciti_comm_size(context->comm) > 1;
}

/* The disagreement of all ranks in one number each. */
typedef struct trial {
    const taciti_topology *topology;
    double gamma, gain;
    int half;                     /* of the array (topo/topo.h) */
    double *x, *integral, *mixed; /* [ranks] in one allocation */
} trial;

static void begin_trial(const trial *t) {
    const size_t ranks = (size_t)t->topology->ranks;
    double mean = 0;
    memset(t->integral, 0, ranks * sizeof *t->integral);
    for (size_t r = 0; r < ranks; r++) mean += (t->x[r] = taciti_rng_unit(1, r)) / (double)ranks;
    for (size_t r = 0; r < ranks; r++) t->x[r] -= mean;
}

static void mix_once(const trial *t, size_t round) {
    taciti_topology_mix(t->topology, round, t->x, t->mixed);
    for (int r = 0; r < t->topology->ranks; r++) {
        const double moved = t->gamma * (t->mixed[r] - t->x[r]);
        t->integral[r] = TACITI_GOSSIP_LEAK * t->integral[r] + t->gain * moved;
        t->x[r] += moved + t->integral[r];
    }
}

static double measure_square(const trial *t) {
    double sum = 0;
    for (int r = 0; r < t->topology->ranks; r++) sum += t->x[r] * t->x[r] + t->integral[r] * t->integral[r];
    return sum;
}

/* Returns the part of the squared disagreement that the later `looked` mixes leave; 0 where as many before have left
 * nothing but rounding. */
static double measure_rest_of_half(trial *t, double gain, size_t looked) {
    double before = 0;
    t->gain = gain;
    begin_trial(t);
    for (size_t i = 0; i < 2 * looked; i++) {
        if (i == looked) before = measure_square(t);
        mix_once(t, taciti_topology_round(t->topology, (int64_t)i, t->half));
    }
    return before > ROUNDING ? measure_square(t) / before : 0;
}

static double measure_rest(trial *t, double gain, size_t looked) {
    double rest = 0;
    for (t->half = 0; t->half <= (int)t->topology->alternates; t->half++)
        rest = fmax(rest, measure_rest_of_half(t, gain, looked));
    return rest;
}

/* This does not look at curvature, with which rounds that alternate can resonate: on exp with 8 ranks and a gain of 0.2
 * disagreement grows by up to 1.03 per step where (1 - beta1) lr times the curvature is 0.46 to 0.82, and without
 * integral only above 1.9. Training ends alike with and without it (docs/results/noise.md).
 *
 * Every rank finds the same gain: nothing here rounds in another way on another machine. */
tacit_status taciti_gossip_find_gain(const taciti_topology *topology, double gamma, double gain, double *out) {
    const size_t ranks = (size_t)topology->ranks, period = topology->period;
    const size_t half = (MIXES / 2 + period - 1) / period * period;
    double *arrays = taciti_calloc(3 * ranks, sizeof *arrays), allowed = 1;
    if (arrays == NULL) return TACIT_E_MEMORY;
    trial t = {topology, gamma, 0, 0, arrays, arrays + ranks, arrays + 2 * ranks};
    for (size_t i = 0; i < half; i++) allowed *= SLOWEST * SLOWEST;
    const double without = measure_rest(&t, 0, half), max = without > allowed ? without : allowed;
    *out = gain;
    while (*out > 0 && !(measure_rest(&t, *out, half) <= max)) *out = *out > SMALLEST * gain ? *out / 2 : 0;
    taciti_free(arrays);
    return TACIT_OK;
}

/* A rank that has no partner in a round goes on moving. */
void taciti_gossip_integrate(const taciti_gossip *g, const float *buffer, taciti_blend *blend) {
    if (g->integral == NULL || g->masses != NULL) return;
    if (blend->arrived == NULL) {
        blend->arrived = buffer;
        blend->share = 0;
    }
    blend->integral = g->integral;
    blend->leak = (float)TACITI_GOSSIP_LEAK;
    blend->gain = (float)g->gain;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the strategy `gossip`, shared by its files:
 *
 *   gossip.c           the steps: awc, atc; start, what a checkpoint holds; the table of verbs
 *   gossip_setup.c     create and destroy: topology, refusals, arrays
 *   gossip_mixing.c    one mix of one bucket: weights, waiting, what is blended
 *   gossip_tracker.c   the estimate of the mean gradient (DeTAG)
 *   gossip_control.c   consensus control: mixes per step from the distance of the replicas
 */
#ifndef TACITI_STRATEGY_GOSSIP_STATE_H
#define TACITI_STRATEGY_GOSSIP_STATE_H

#include "base/memory.h"
#include "exchange/group.h"
#include "exchange/mix.h"
#include "strategy/average.h"
#include "strategy/gossip.h"
#include "strategy/strategy.h"

enum { TACITI_GOSSIP_CHANNELS = 3 };

/* An array on its way: buckets of a copy of it, in which the result arrives. They begin and arrive in their order. */
typedef struct taciti_gossip_channel {
    taciti_mix *mix;       /* owned */
    float *buffer;         /* layout->n floats, in pages */
    taciti_pages pages;    /* owned */
    size_t begun, arrived; /* buckets since the strategy was made */
} taciti_gossip_channel;

/* What mix number `number` does to an array of this rank: x <- keep x + share buffer, with W' = gamma W + (1 - gamma) I
 * folded in. The weights of push-sum before and after it are 1 unless the topology needs them. */
typedef struct taciti_gossip_plan {
    int64_t number;
    float keep, share;
    double mass_before, mass_after;
} taciti_gossip_plan;

/* Consensus control; see gossip_control.c. */
typedef struct taciti_gossip_control {
    taciti_group world;
    taciti_job job;
    double *mine, *all; /* [2 ranks] each: what is sent to everybody, what arrived; owned */
    double factor;      /* consensus distance <= factor * root mean square of what a mix moves */
    int64_t window;     /* mixing steps per decision */
    double moved;       /* sum over the mixing steps of this window */
    int64_t counted;    /* mixing steps of it so far */
    bool pending;       /* a reduction is under way; its result counts from the next mixing step on */
} taciti_gossip_control;

enum { TACITI_GOSSIP_NUMBERS = 8 };

typedef struct taciti_gossip {
    taciti_strategy_context context;
    taciti_gossip_options options;
    taciti_topology topology;
    taciti_average *average;
    taciti_gossip_channel channels[TACITI_GOSSIP_CHANNELS]; /* parameters of even and odd numbers (odd: delay only),
                                                             * tracker */
    taciti_pages own_pages, before_pages, tracker_pages, gradient_pages;
    float *own;      /* what this rank handed over; NULL where parameters do not change until it arrives */
    float *before;   /* the last but one mix, for extrapolation; NULL without */
    float *tracker;  /* estimate of the mean gradient; NULL without */
    float *gradient; /* last gradient that went into it */
    double eta;      /* extrapolation */
    double *masses;  /* [2 ranks] push-sum weights of all ranks, and scratch; NULL: all are 1; owned */
    taciti_gossip_control control;

    int64_t step;                                      /* finished steps */
    int64_t number;                                    /* first mix of the next mixing step; below 0: nothing arrives */
    int64_t mixes;                                     /* of the next mixing step */
    taciti_gossip_plan plans[TACITI_GOSSIP_MAX_MIXES]; /* of the step that runs */
    double gamma;                                      /* of the step that runs */
    int64_t wait_ns;                                   /* of the step that runs */
    double numbers[TACITI_GOSSIP_NUMBERS];             /* the counters above, for a checkpoint */
} taciti_gossip;

/* ---- gossip_setup.c ---------------------------------------------------------------------------------------------- */
tacit_status taciti_gossip_create(const taciti_strategy_context *context, void **out);
void taciti_gossip_destroy(void *self);
tacit_status taciti_gossip_predict_bytes(const taciti_strategy_context *context, size_t *out);

/* ---- gossip_mixing.c --------------------------------------------------------------------------------------------- */
double taciti_gossip_mass(const taciti_gossip *g); /* this rank's push-sum weight */

/* Every rank's weight comes back from a checkpoint, `mine` on this one. A graph that needs none keeps weights that are
 * not all 1 running: push-sum holds on any graph whose columns sum to 1, and dropping them would move the mean.
 * E_CONFIG where a setting does not go with weights. Collective. */
tacit_status taciti_gossip_restore_masses(taciti_gossip *g, double mine);

/* The channel that carries mix `number` of the parameters. */
taciti_gossip_channel *taciti_gossip_channel_of(taciti_gossip *g, int64_t number);
taciti_gossip_channel *taciti_gossip_tracker_channel(taciti_gossip *g);

/* Weights of the `mixes` mixes of the step that begins, into plans[]; push-sum weights advance. */
void taciti_gossip_plan_step(taciti_gossip *g, double lr);

/* to <- scale from, one bucket; from stays as it is. */
void taciti_gossip_copy(const taciti_gossip *g, float *to, float *from, double scale, size_t bucket);

/* The next bucket of the buffer leaves; the bucket that is due is waited for. */
tacit_status taciti_gossip_begin(taciti_gossip_channel *channel, size_t bucket, int64_t number);
tacit_status taciti_gossip_wait(taciti_gossip *g, taciti_gossip_channel *channel, size_t bucket);
/* Waits for all that is under way: before the buffer goes. */
void taciti_gossip_drain(taciti_gossip *g, taciti_gossip_channel *channel);

/* buffer <- scale flat of all buckets, and off it goes. */
tacit_status taciti_gossip_launch(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, double scale,
                                  int64_t number);

/* Waits for one bucket of plans[r]; what is not overlapped begins here, with a copy of `flat`. */
tacit_status taciti_gossip_collect(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, size_t r,
                                   size_t bucket);

/* What is left to do with an array of which that bucket has arrived: the caller blends it into `flat`, alone or with an
 * update. The buffer may be changed, and what the next mixes need of flat is put aside. */
taciti_blend taciti_gossip_arrive(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, size_t r,
                                  size_t bucket);

/* The first mixes of a step, of which each changes as much as tells how far replicas are apart: those of one period at
 * most, for what comes then has been mixed by all rounds already. */
size_t taciti_gossip_telling_mixes(const taciti_gossip *g);

/* All mixes plans[first] .. plans[last - 1] of a flat array, each waited for; the copy of the result of the last one is
 * not handed on. Adds to *moved what those of them changed that tell. */
tacit_status taciti_gossip_mix_through(taciti_gossip *g, taciti_gossip_channel *channel, float *flat,
                                       taciti_bf16 *copy16, size_t first, size_t last, double *moved);

/* ---- gossip_tracker.c -------------------------------------------------------------------------------------------- */
/* tracker <- W tracker + gradients - last gradients; a gradient that is not finite stays outside. */
tacit_status taciti_gossip_track(taciti_gossip *g, bool finite);
/* Hands one bucket of it over, for the next step. */
tacit_status taciti_gossip_track_on(taciti_gossip *g, size_t bucket);

/* ---- gossip_control.c -------------------------------------------------------------------------------------------- */
tacit_status taciti_gossip_control_create(taciti_gossip *g, const taciti_topo_figures *figures);
void taciti_gossip_control_destroy(taciti_gossip *g);
/* Before a mixing step: takes in the reduction that is under way, and decides on g->mixes. */
tacit_status taciti_gossip_control_decide(taciti_gossip *g);
/* After a mixing step whose telling mixes moved this rank's parameters by that much (sum of squares, their mean). */
tacit_status taciti_gossip_control_note(taciti_gossip *g, double moved);
/* After the numbers of a checkpoint are back. */
tacit_status taciti_gossip_control_start(taciti_gossip *g);

#endif

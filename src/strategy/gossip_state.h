/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the strategy `gossip`, shared by its files:
 *
 *   gossip.c           the steps: awc, atc; start, what a checkpoint holds; the table of verbs
 *   gossip_setup.c     create and destroy: topology, refusals, among them of too large a step size, arrays
 *   gossip_mixing.c    one mix of one bucket: weights, waiting, what is blended
 *   gossip_codec.c     compressed mixes: the form of what travels
 *   gossip_integral.c  what mixes have moved, moved again
 *   gossip_tracker.c   the estimate of the mean gradient (DeTAG)
 *   gossip_dense.c     the steps of dp at the start
 *   gossip_async.c     steps of ranks that wait for nobody
 *   gossip_noise.c     Adam's second moments without the noise of a rank's share of the batch
 */
#ifndef TACITI_STRATEGY_GOSSIP_STATE_H
#define TACITI_STRATEGY_GOSSIP_STATE_H

#include "base/memory.h"
#include "exchange/async.h"
#include "exchange/mix.h"
#include "strategy/average.h"
#include "strategy/gossip.h"
#include "strategy/strategy.h"

enum { TACITI_GOSSIP_CHANNELS = 3, TACITI_GOSSIP_ARRAYS = 9 };

/* A transfer of an array: a copy whose buckets are exchanged in place. */
typedef struct taciti_gossip_channel {
    taciti_mix *mix; /* owned */
    float *buffer;   /* layout->n floats */
} taciti_gossip_channel;

/* Knowledge of the noise in second moments, from sums of signals over all ranks. */
typedef struct taciti_gossip_noise {
    bool active;
    taciti_exchange *signals, *energies; /* of `signal` and `energy`; owned */
    taciti_layout tensors;               /* a float for each tensor; owned */
    float *signal;                       /* flat: of this rank, on its way, or the sum over ranks */
    float *share;                        /* flat: of second moments that counts */
    float *energy;       /* per tensor: the mean square of signals; this rank's, or the sum over ranks; owned */
    double *sums;        /* [2 tensors] of second moments: all, and what counts; owned */
    bool under_way;      /* signals have not been waited for */
    bool pending;        /* they have not been used */
    bool used;           /* `share` holds */
    bool after_dense;    /* second moments began with those of the mean gradient */
    double norm;         /* of the mean gradient over that of a rank's */
    tacit_status status; /* of a wait for a checkpoint */
} taciti_gossip_noise;

enum { TACITI_GOSSIP_NUMBERS = 8 }; /* in a checkpoint; seven are used, the last is 0 */

typedef struct taciti_gossip {
    taciti_strategy_context context;
    taciti_gossip_options options;
    taciti_topology topology;
    taciti_average *average;
    taciti_gossip_channel channels[TACITI_GOSSIP_CHANNELS]; /* parameters of even and odd numbers (odd: delay only),
                                                             * tracker */
    taciti_pages pages[TACITI_GOSSIP_ARRAYS]; /* of all flat arrays, those of channels and noise, too; owned */
    size_t arrays;
    float *own;      /* the parameters that this rank has sent; NULL if they do not change until the result arrives */
    float *tracker;  /* estimate of the mean gradient; NULL without */
    float *gradient; /* the gradient last added to it */
    float *integral; /* of what mixes have moved; NULL without */
    double gain;     /* of it */
    bool whole;      /* all buckets take the same round, as push-sum weights do, although the topology alternates */
    double *masses;  /* [2 ranks] push-sum weights of all ranks, and scratch; NULL: all are 1; owned */
    taciti_async *async;       /* NULL: all ranks make the same steps; owned */
    taciti_arrivals *arrivals; /* of async; owned */
    void *dense;               /* dp, as long as its steps are made; NULL afterwards; owned */
    taciti_gossip_noise noise;

    int64_t step;                          /* finished steps */
    int64_t number;                        /* of the next mix, or of that of the step; below 0: nothing arrives */
    double mass_before;                    /* this rank's push-sum weight before the mix of the step that runs */
    int64_t wait_ns;                       /* of the step that runs */
    double numbers[TACITI_GOSSIP_NUMBERS]; /* the counters above, for a checkpoint */
    uint64_t digest;                       /* of the topology and of the hosts of its ranks */
    uint64_t knowledge;                    /* digest of what decides who knows what of whom; 0: nothing is known */
    int64_t apart_since;                   /* step: replicas have been different from it on */
} taciti_gossip;

/* ---- gossip_setup.c ---------------------------------------------------------------------------------------------- */
tacit_status taciti_gossip_create(const taciti_strategy_context *context, void **out);
void taciti_gossip_destroy(void *self);
/* Predicts the figures that are known before create(). */
tacit_status taciti_gossip_predict(const taciti_strategy_context *context, taciti_strategy_figures *out);
/* Returns E_CONFIG, with what to type, for options that exclude each other or have no effect together and, if hosts is
 * not NULL, for a topology that cannot be used on these ranks. */
tacit_status taciti_gossip_check(const taciti_strategy_context *context, const taciti_hosts *hosts);
/* As taciti_gossip_check_codec(); refuses also what this codec cannot mix on this topology, such as a gossip.gamma with
 * which replicas may go apart. Sets *arrays as taciti_strategy.mixes. */
tacit_status taciti_gossip_check_mixes(const taciti_strategy_context *context, const taciti_hosts *hosts,
                                       const taciti_topology *topology, size_t *arrays);

/* ---- gossip_async.c ---------------------------------------------------------------------------------------------- */
/* Returns E_CONFIG, with what to type, for what does not go with gossip.async. */
tacit_status taciti_gossip_check_async(const taciti_strategy_context *context, const taciti_topology *topology);
tacit_status taciti_gossip_async_create(taciti_gossip *g); /* does nothing without gossip.async; collective */
void taciti_gossip_async_destroy(taciti_gossip *g);
tacit_status taciti_gossip_async_finish(taciti_gossip *g, double lr, taciti_step_report *out);
/* The verbs of replicas that have a clock. */
bool taciti_gossip_async_answer(void *self, bool due);
tacit_status taciti_gossip_async_meet(void *self, int64_t *clock, bool *ends);
tacit_status taciti_gossip_begin_log(void *self);
tacit_status taciti_gossip_end_log(void *self);

/* ---- gossip_mixing.c --------------------------------------------------------------------------------------------- */
/* Returns the norm of the gradient of this rank's own share of the batch; the same for any size of buckets. */
double taciti_gossip_norm(const taciti_gossip *g, const float *flat);
double taciti_gossip_mass(const taciti_gossip *g);      /* this rank's push-sum weight */
void taciti_gossip_take_whole_rounds(taciti_gossip *g); /* from now on; the same on all ranks */

/* Restores the push-sum weights of all ranks from a checkpoint; `mine` is this rank's. Weights that are not all 1 stay
 * in use on a topology that does not need them: push-sum is valid on any graph whose columns sum to 1, and dropping the
 * weights would change the mean. Returns E_CONFIG if a setting does not support weights. Collective. */
tacit_status taciti_gossip_restore_masses(taciti_gossip *g, double mine);

/* The channel that carries mix `number` of the parameters. */
taciti_gossip_channel *taciti_gossip_channel_of(taciti_gossip *g, int64_t number);
taciti_gossip_channel *taciti_gossip_tracker_channel(taciti_gossip *g);

/* Advances the push-sum weights by the mix of the step that begins. */
void taciti_gossip_advance_masses(taciti_gossip *g);

/* to <- scale * from, one bucket. */
void taciti_gossip_copy(const taciti_gossip *g, float *to, float *from, double scale, size_t bucket);

/* Starts the exchange of a bucket of the buffer. */
tacit_status taciti_gossip_begin(taciti_gossip_channel *channel, size_t bucket, int64_t number);

/* Copies scale * flat into the buffer and starts the exchange of all buckets. */
tacit_status taciti_gossip_launch(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, double scale,
                                  int64_t number);

/* Waits for one bucket of the mix. One that is not overlapped starts here, with a copy of `flat`. */
tacit_status taciti_gossip_collect(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, size_t bucket);

/* Returns the blend of an arrived bucket, which the caller applies to `flat`, alone or together with an update. May
 * change the buffer; stores what the next mix needs of flat. */
taciti_blend taciti_gossip_arrive(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, size_t bucket);

/* Applies the mix to a flat array and waits for it; does not send the result. Adds to *moved how far it moved. */
tacit_status taciti_gossip_mix(taciti_gossip *g, taciti_gossip_channel *channel, float *flat, taciti_bf16 *copy16,
                               double *moved);

/* ---- gossip_integral.c ------------------------------------------------------------------------------------------- */
#define TACITI_GOSSIP_LEAK 0.9 /* what is left of the integral after a step: the time of beta1 0.9 */

/* Whether these settings ask for the integral of what mixes move; context->comm may be NULL. */
bool taciti_gossip_wants_integral(const taciti_strategy_context *context);
/* Whether a run adds it, unless the graph needs push-sum. */
bool taciti_gossip_integrates(const taciti_strategy_context *context);
/* The gain at most `gain` with which replicas come together on the graph, by mixes with this consensus factor, about as
 * fast as without; 0 if there is none above a sixteenth of it. */
tacit_status taciti_gossip_find_gain(const taciti_topology *topology, double gamma, double gain, double *out);
/* Adds the integral to the blend of a bucket; `buffer` may hold anything if nothing has arrived. */
void taciti_gossip_integrate(const taciti_gossip *g, const float *buffer, taciti_blend *blend);

/* ---- gossip_codec.c ---------------------------------------------------------------------------------------------- */
/* Returns how mixes travel: in exchange.wire, or by gossip.codec. */
taciti_mix_form taciti_gossip_form(const taciti_strategy_context *context);
/* Returns gossip.codec, or what `auto` means. */
const char *taciti_gossip_codec(const void *options, bool automatic);
/* Returns E_CONFIG, with what to type, for a codec under which replicas need not agree in the end. */
tacit_status taciti_gossip_check_codec(const taciti_strategy_context *context);

/* ---- gossip_tracker.c -------------------------------------------------------------------------------------------- */
/* tracker <- W tracker + gradients - last gradients. Ignores a gradient that is not finite. */
tacit_status taciti_gossip_track(taciti_gossip *g, bool finite);
/* Starts the exchange of one bucket of the tracker for the next step. */
tacit_status taciti_gossip_track_on(taciti_gossip *g, size_t bucket);

/* ---- gossip_dense.c ---------------------------------------------------------------------------------------------- */
/* Returns the number of steps at the start that are those of dp. */
int64_t taciti_gossip_dense_steps(const taciti_strategy_context *context);
size_t taciti_gossip_dense_predict_bytes(const taciti_strategy_context *context);
extern const taciti_strategy taciti_strategy_dp;           /* of these steps; `self` is g->dense */
tacit_status taciti_gossip_dense_create(taciti_gossip *g); /* collective, as is destroy */
void taciti_gossip_dense_destroy(taciti_gossip *g);
/* Lists the residuals of the sums; after these steps nothing. Not collective. */
void taciti_gossip_dense_list(const taciti_gossip *g, taciti_state *out);

/* ---- gossip_noise.c ---------------------------------------------------------------------------------------------- */
/* Returns whether the noise of second moments is taken out. */
bool taciti_gossip_denoises(const taciti_strategy_context *context);
taciti_encoding taciti_gossip_sum_encoding(void); /* through taciti_gossip_sum_codec() */
size_t taciti_gossip_noise_predict_bytes(const taciti_strategy_context *context);
tacit_status taciti_gossip_noise_allocate(taciti_gossip *g); /* all but its flat arrays; if it is active */
tacit_status taciti_gossip_noise_connect(taciti_gossip *g);  /* collective */
void taciti_gossip_noise_destroy(taciti_gossip *g);

/* Replicas go apart from here on. */
void taciti_gossip_noise_begin(taciti_gossip *g);
/* A look between two steps at which all ranks are, with sums that are waited for. Collective. */
tacit_status taciti_gossip_noise_look(taciti_gossip *g);
/* At the end of step g->step: sends signals, or uses what has arrived, when it is time. Collective. */
tacit_status taciti_gossip_noise_step(taciti_gossip *g);

/* Waits for what is under way, before a checkpoint; the next step returns an error of the wait. */
void taciti_gossip_noise_await(taciti_gossip *g);
/* The number for a checkpoint, besides the arrays and `norm`. */
double taciti_gossip_noise_state(const taciti_gossip_noise *noise);
void taciti_gossip_noise_restore(taciti_gossip *g, double state, double norm);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the strategy `gossip`: every rank trains its own replica and mixes it with those of a few neighbours.
 *
 *   awc   adapt while communicate: x(t+1) = W x(t) - step(gradient at x(t)). Mixing has a whole iteration to finish
 *   atc   adapt then combine:      x(t+1) = W (x(t) - step(gradient at x(t))). Mixing is waited for in the same step
 *
 * Adam's moments see the noise of a rank's share of the batch; gossip_noise.c takes it out.
 *
 * Source: Wang et al., arXiv 2410.11998 (DAdam, AccumAdam, alternating exponential ring); directed graphs: Assran et
 * al., arXiv 1811.10792; gradient tracking: Lu & De Sa, arXiv 2006.08085 (DeTAG).
 */
#ifndef TACITI_STRATEGY_GOSSIP_H
#define TACITI_STRATEGY_GOSSIP_H

#include <stdint.h>

#include "base/option.h"
#include "strategy/pattern.h"
#include "topo/topo.h"

enum { TACITI_GOSSIP_AWC, TACITI_GOSSIP_ATC };

#define TACITI_GOSSIP_POWER "powergossip" /* of gossip.codec: exchange/power.h */

enum { TACITI_GOSSIP_SEED = 1 }; /* of the topologies `random` */

typedef struct taciti_gossip_options {
    taciti_text topology; /* gossip.topology: `tacit info topologies` */
    taciti_text file;     /* gossip.file: the matrix of topology `file` */
    taciti_text codec;    /* gossip.codec: what is mixed is compressed with it, as differences; "none", "auto" */
    int64_t columns;      /* gossip.columns: of the factors of gossip.codec powergossip */
    int order;            /* gossip.order: "awc|atc" */
    int64_t degree;       /* gossip.degree: see taciti_topo_request */
    int64_t per_host;     /* gossip.per_host: ranks per host as the topology sees them; 0: as they are */
    double gamma;         /* gossip.gamma: consensus factor, W' = gamma W + (1 - gamma) I */
    int64_t every;        /* gossip.every: steps per mix */
    bool tracker;         /* gossip.tracker: mix a gradient tracker too (DeTAG) */
    int64_t delay;        /* gossip.delay: additional iterations that a transfer may take (awc) */
    double start;         /* gossip.start: share of the run's steps that are those of dp, before replicas differ */
    double integral;      /* gossip.integral: gain of the integral of what mixes move; 0: none (gossip_integral.c) */
    bool async;           /* gossip.async: nobody waits for anybody (exchange/async.h) */
    int64_t denoise;      /* gossip.denoise: steps between two looks at the noise of second moments; 0: none */
} taciti_gossip_options;
extern const taciti_option_table taciti_gossip_option_table; /* section "gossip" */

/* Whether mixes can go through this codec at all; and whether they go by PowerGossip. */
bool taciti_gossip_takes(const taciti_codec *codec);
/* Returns what signals and gradients of the dense start are summed as: int8. */
const taciti_codec *taciti_gossip_sum_codec(void);
bool taciti_gossip_is_power(const taciti_gossip_options *options);
bool taciti_gossip_is_auto(const taciti_gossip_options *options); /* the hosts decide the topology, and no option */

/* A run with these options has this many transfers under way at once at most, keeps what a rank handed over, holds this
 * many flat arrays for all that, a tracker's included, and may have an integral of what mixes move. */
size_t taciti_gossip_channels(const taciti_gossip_options *options);
bool taciti_gossip_keeps_own(const taciti_gossip_options *options);
bool taciti_gossip_may_integrate(const taciti_gossip_options *options);
size_t taciti_gossip_arrays(const taciti_gossip_options *options);

/* Lists a pattern for every topology and order, with the other options unchanged. */
tacit_status taciti_gossip_patterns(const void *options, const taciti_hosts *hosts,
                                    taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count);

/* Creates the topology of the options for these hosts. Refuses options and topologies that cannot be used for training.
 * Returns owned. Any thread. */
tacit_status taciti_gossip_topology(const taciti_gossip_options *options, const taciti_hosts *hosts,
                                    taciti_topology *out);

#endif

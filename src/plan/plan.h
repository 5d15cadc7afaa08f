/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step would take on a described cluster (plan/cluster.h) for a network with a compute profile
 * (model/profile.h). The formulas of an exchange live beside the code they describe (exchange/demand.h); this folder
 * turns them into seconds of this cluster's links and lets the steps of all ranks wait for each other.
 */
#ifndef TACITI_PLAN_PLAN_H
#define TACITI_PLAN_PLAN_H

#include "codec/codec.h"
#include "exchange/demand.h"
#include "model/profile.h"
#include "plan/cluster.h"
#include "strategy/pattern.h"
#include "tensor/layout.h"
#include "topo/topo.h"

/* The least time that the described links allow for a collective of `bytes` per rank, latency left out: for the world
 * and groups across hosts the bytes that must cross the busiest host's link, each array once per host where members
 * share one (both directions work at once); for groups inside of a host the bytes that a rank must send. 0 when no
 * message is needed or the link is unknown. Any thread. */
double taciti_cluster_bound_s(const taciti_cluster *cluster, taciti_collective collective, taciti_group_kind group,
                              size_t bytes);

/* ---- the runtime model ----------------------------------------------------------------------------------------------
 * Every rank's step is forward, backward bucket by bucket, updates; every bucket's exchange begins when the ranks that
 * make it have handed it over and the channel is free, and takes what the links it uses need. Who waits for whom:
 * plan/recursion.h. Where the seconds of a transfer come from: plan/links.h. docs/plan.md has both on one page. */

/* Whole periods are simulated: all rounds of a topology, one in every so many steps. E_CONFIG, in the name of `what`,
 * when those are more steps than a plan should take. */
enum { TACITI_PLAN_PERIOD_MAX = 1 << 14 };
tacit_status taciti_plan_check_period(const char *what, size_t rounds, int every);

/* Whose all-reduce a dense method is, where it is not ours. */
typedef enum taciti_library {
    TACITI_LIBRARY_OURS,
    TACITI_LIBRARY_RING,    /* one ring of all ranks, host by host, as in NCCL and Gloo: by formula */
    TACITI_LIBRARY_MEASURED /* as `collectives` of the cluster file has it */
} taciti_library;

/* A way to train, as far as time is concerned. */
typedef struct taciti_method {
    char label[96];                  /* "gossip aer awc, f32" */
    taciti_order order;              /* who waits for whom */
    const taciti_topology *topology; /* NULL: all-reduce among all ranks; borrowed */
    const taciti_codec *wire;
    int lanes;       /* without a topology: instead of the scene's; 0: those */
    bool overlap;    /* exchange.overlap: exchange while something else is done */
    int every;       /* steps per exchange: 1 but for localsgd and gossip.every */
    int delay;       /* awc: steps more that a transfer may take (gossip.delay) */
    double serial_s; /* of every step beside forward, backward and update: what a method computes or copies more */
    taciti_library library; /* dense only */
    const char *by;         /* LIBRARY_MEASURED: the name in the file; borrowed */
} taciti_method;

/* What is trained, and where. Everything is borrowed. */
typedef struct taciti_scene {
    const taciti_profile *profile; /* in seconds */
    const taciti_layout *layout;   /* of taciti_profile_layout() */
    const taciti_cluster *cluster; /* its links */
    const taciti_hosts *hosts;     /* the ranks: those of the cluster, or another number of them */
    taciti_placement placement;
    const double *slow;       /* [ranks] persistent stragglers; NULL: none */
    double between_bit_per_s; /* instead of the cluster's own rate between hosts; 0: that */
} taciti_scene;

/* What compute times may differ by on a cluster of which nobody knows. */
#define TACITI_PLAN_DOUBTFUL_CV 0.1

typedef struct taciti_plan_options {
    int64_t seed; /* of the jitter */
    double cv;  /* of compute times; < 0: the cluster's; unknown there: 0, and `uneven_s` tells what more would cost */
    bool brief; /* only the means: no low and high, no causes */
} taciti_plan_options;

/* What holds a step up. */
typedef enum taciti_bottleneck {
    TACITI_BOTTLENECK_COMPUTE,
    TACITI_BOTTLENECK_LINK,       /* bytes */
    TACITI_BOTTLENECK_LATENCY,    /* messages that wait for each other */
    TACITI_BOTTLENECK_STRAGGLERS, /* compute times that differ */
    TACITI_BOTTLENECKS
} taciti_bottleneck;
const char *taciti_bottleneck_name(taciti_bottleneck bottleneck);

typedef struct taciti_prediction {
    double step_s;                     /* mean over ranks and steps; exposed and compute make it up */
    double compute_s;                  /* forward, backward, update */
    double exposed_s;                  /* waiting */
    double transfer_s;                 /* of all buckets one after the other, longest of a round; mean per step */
    double nic_bytes;                  /* per step, of the busiest host, per direction */
    double link_error;                 /* share by which transfers may be off */
    double model_error;                /* share of the step by which the formulas may be off */
    double fast_links_s, slow_links_s; /* the step with transfers that much shorter or longer */
    double uneven_s;                   /* the step at a cv of TACITI_PLAN_DOUBTFUL_CV where none is known; else 0 */
    double low_s, high_s;              /* these, and the model's own error */
    double cost_s[TACITI_BOTTLENECKS]; /* what a step would lose without it; compute: what it takes by itself */
    taciti_bottleneck bottleneck;      /* the largest of them */
    bool calibrated;                   /* measured collectives of the cluster file were used */
} taciti_prediction;

/* Any thread, pure: the same answer everywhere. E_CONFIG when the links that ranks would need are not in the
 * description, or a period is too long. */
tacit_status taciti_predict(const taciti_scene *scene, const taciti_method *method, const taciti_plan_options *options,
                            taciti_prediction *out);

/* The mean steps with these rates between hosts instead of the cluster's own: step_s[count]. As above. */
tacit_status taciti_predict_rates(const taciti_scene *scene, const taciti_method *method,
                                  const taciti_plan_options *options, const double *bit_per_s, size_t count,
                                  double *step_s);

/* The formulas are wrong by so much, each method on its own, as a share of the step: where transfers of such groups and
 * sizes were measured on the cluster, and where nothing was. */
#define TACITI_PLAN_MODEL_ERROR 0.05
#define TACITI_PLAN_MODEL_ERROR_UNMEASURED 0.10

/* Whether `other` instead of `dense` pays: dense's step / other's, and where the uncertainties leave it. Links that are
 * slower than described are so for both; the model's own error is not shared. */
typedef struct taciti_verdict {
    double speedup, low, high;
    bool pays; /* low > 1 */
} taciti_verdict;
taciti_verdict taciti_verdict_of(const taciti_prediction *dense, const taciti_prediction *other);

/* Seconds per byte that exchanges between hosts are predicted with: both directions at once where that is known, else
 * one, else those of two ranks. 0: one host, unknown. */
double taciti_plan_wire_beta_s(const taciti_cluster *cluster);

#endif

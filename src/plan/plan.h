/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step would take on a described cluster (plan/cluster.h) for a network with a compute profile
 * (model/profile.h). The formulas of an exchange live beside the code they describe (exchange/demand.h); this folder
 * turns them into seconds of this cluster's links and lets the steps of all ranks wait for each other.
 */
#ifndef TACITI_PLAN_PLAN_H
#define TACITI_PLAN_PLAN_H

#include "model/profile.h"
#include "plan/cluster.h"
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
 * make it have handed it over and the channel is free, and takes what the links it uses need. The recursion of
 * arXiv 2410.11998, in the form of the dependencies of our own code: see predict.c. */

typedef enum taciti_order { TACITI_ORDER_DENSE, TACITI_ORDER_AWC, TACITI_ORDER_ATC } taciti_order;

/* A way to train, as far as time is concerned. */
typedef struct taciti_method {
    char label[96];                  /* "gossip aer awc, f32" */
    taciti_order order;              /* who waits for whom */
    const taciti_topology *topology; /* NULL for dense; borrowed */
    const char *wire;                /* codec */
    bool overlap;                    /* dense: exchange while backward runs */
    int every;                       /* steps per exchange: 1 but for localsgd and gossip.every */
} taciti_method;

typedef struct taciti_plan_options {
    size_t steps; /* that are simulated; 0: chosen */
    int64_t seed; /* of the jitter */
    double cv;    /* of compute times; < 0: the cluster's (0 when unknown) */
} taciti_plan_options;

typedef struct taciti_prediction {
    double step_s;        /* mean over ranks and steps */
    double low_s, high_s; /* where the cluster file's own uncertainty (fit, spread) leaves it */
    double compute_s;     /* forward, backward, update */
    double exposed_s;     /* waiting */
    double nic_bytes;     /* per step, of the busiest host, per direction */
} taciti_prediction;

/* profile in seconds; layout of the buckets that are exchanged. Any thread, pure: the same answer everywhere. */
tacit_status taciti_predict(const taciti_profile *profile, const taciti_layout *layout, const taciti_cluster *cluster,
                            const taciti_method *method, const taciti_plan_options *options, taciti_prediction *out);

/* Whether `b` instead of `a` (dense) pays: a's step / b's, and where the uncertainties leave it. */
typedef struct taciti_verdict {
    double speedup, low, high;
    bool pays; /* low > 1 */
} taciti_verdict;
taciti_verdict taciti_verdict_of(const taciti_prediction *dense, const taciti_prediction *other);

#endif

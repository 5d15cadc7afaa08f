/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a cluster: cluster.json. `tacit probe` writes it, people and other programs may, the planner reads
 * it. The schema with units and an example is docs/cluster.md. Only hosts and links are required; what is not given is
 * unknown (count 0 or a negative number), never guessed.
 */
#ifndef TACITI_PLAN_CLUSTER_H
#define TACITI_PLAN_CLUSTER_H

#include <stddef.h>

#include "tacit/tacit.h"

/* A message of b bytes takes alpha_s + b * beta_s_per_byte. */
typedef struct taciti_link_cost {
    double alpha_s, beta_s_per_byte;
} taciti_link_cost;

typedef enum taciti_collective {
    TACITI_COLLECTIVE_ALL_REDUCE,
    TACITI_COLLECTIVE_REDUCE_SCATTER,
    TACITI_COLLECTIVE_ALL_GATHER,
    TACITI_COLLECTIVE_ALL_TO_ALL,
    TACITI_COLLECTIVES
} taciti_collective;
const char *taciti_collective_name(taciti_collective collective); /* "all_reduce", ... */

/* Who takes part in a measured collective. */
typedef enum taciti_group_kind {
    TACITI_GROUP_WORLD, /* all ranks */
    TACITI_GROUP_HOST,  /* the ranks of each host, all hosts at once */
    TACITI_GROUP_CROSS, /* ranks of equal number within their hosts, all such groups at once */
    TACITI_GROUP_KINDS
} taciti_group_kind;
const char *taciti_group_kind_name(taciti_group_kind kind); /* "world", "host", "cross" */

typedef struct taciti_cluster_timing {
    taciti_collective collective;
    taciti_group_kind group;
    char by[24];            /* who did it: "tacit", "mpi-default", "mpi-ring", "mpi-han", ... */
    size_t bytes;           /* of the array on each rank */
    double seconds, spread; /* median; (most - least) / median */
} taciti_cluster_timing;

typedef struct taciti_cluster_codec {
    char name[24];
    double encode_bytes_per_s, decode_bytes_per_s; /* of f32 data, one rank alone on its core */
} taciti_cluster_codec;

typedef struct taciti_cluster {
    char name[64], source[128];
    int hosts;
    int *ranks_per_host; /* [hosts]; owned */

    taciti_link_cost inside;       /* two ranks of one host; alpha_s < 0: unknown (one rank per host) */
    taciti_link_cost between;      /* two ranks of different hosts, alone on their links; alpha_s < 0: one host */
    double host_beta_s_per_byte;   /* all ranks of a host at once through its link: seconds per byte of all together */
    double duplex_beta_s_per_byte; /* sending and receiving at once, per direction */
    double incast_beta_s_per_byte; /* several hosts to one: at the receiver, of all together */

    taciti_cluster_timing *timings; /* owned */
    size_t timing_count;
    taciti_cluster_codec *codecs; /* owned */
    size_t codec_count;

    double compute_cv;          /* of equal pieces of computation, pooled over ranks; < 0: unknown */
    double compute_lag1;        /* autocorrelation of neighbours in time; near 1: persistent stragglers */
    double compute_rank_spread; /* (slowest - fastest rank's mean) / mean */
} taciti_cluster;

int taciti_cluster_ranks(const taciti_cluster *cluster);

/* Refuses with file, line (of a syntax error) or field (of a wrong value), what is wrong and what is legal. Returns
 * owned. Any thread, not collective. */
tacit_status taciti_cluster_load(const char *path, taciti_cluster *out);
/* Atomic: temporary name, then rename. */
tacit_status taciti_cluster_save(const taciti_cluster *cluster, const char *path);
void taciti_cluster_destroy(taciti_cluster *cluster);

#endif

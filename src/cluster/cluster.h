/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a cluster, cluster.json. `tacit probe` or a person writes it, the planner reads it.
 * docs/cluster.md has the schema with units and examples. Only the hosts and the link between them are required;
 * anything else may be unknown (count 0 or a negative number).
 */
#ifndef TACITI_CLUSTER_CLUSTER_H
#define TACITI_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hosts.h"
#include "base/log.h"
#include "tacit/tacit.h"

/* A message of b bytes takes alpha_s + b * beta_s_per_byte. */
typedef struct taciti_link_cost {
    double alpha_s, beta_s_per_byte;
    double fit_error; /* worst |measured - line| / line over all measured sizes; < 0: unknown */
} taciti_link_cost;

typedef enum taciti_collective {
    TACITI_COLLECTIVE_ALL_REDUCE,
    TACITI_COLLECTIVE_ALL_TO_ALL,
    TACITI_COLLECTIVES
} taciti_collective;
extern const char *const taciti_collective_names[TACITI_COLLECTIVES]; /* "all_reduce", ... */

/* The participants of a measured collective. */
typedef enum taciti_group_kind {
    TACITI_GROUP_WORLD,     /* all ranks */
    TACITI_GROUP_HOST,      /* the ranks of each host, all hosts at once */
    TACITI_GROUP_PAIR,      /* a rank of a host and one of the next, all such pairs at once; an odd last host is idle */
    TACITI_GROUP_TWO_HOSTS, /* the ranks of two neighbouring hosts, all such groups at once; an odd last host is idle */
    TACITI_GROUP_KINDS
} taciti_group_kind;
extern const char *const taciti_group_kind_names[TACITI_GROUP_KINDS]; /* "world", "host", "pair", "two-hosts" */

typedef struct taciti_cluster_timing {
    taciti_collective collective;
    taciti_group_kind group;
    char by[24];            /* implementation: "tacit", "mpi-default", "mpi-ring", "mpi-han", ... */
    size_t bytes;           /* of the array on each rank */
    double seconds, spread; /* median; (max - min) / median, < 0: unknown */
} taciti_cluster_timing;

/* A codec on gradient-like data, at a factor; seconds per float of one rank alone on its core. */
typedef struct taciti_cluster_compression {
    char codec[24];
    double factor;   /* elements per element sent; 1 for codecs without a factor */
    double encode_s; /* in pieces as an exchange; with error feedback, but for number formats */
    double decode_s; /* to an array */
    double add_s;    /* to an array, added */
    double bytes;    /* of payload per float */
} taciti_cluster_compression;

typedef struct taciti_cluster {
    char name[64], source[128];
    char **notes; /* [note_count]; owned, as are the texts */
    size_t note_count;
    int hosts;
    int *ranks_per_host; /* [hosts]; owned */

    taciti_link_cost inside;       /* two ranks of one host; alpha_s < 0: unknown (one rank per host) */
    taciti_link_cost between;      /* two ranks of different hosts, alone on their links; alpha_s < 0: one host */
    double host_beta_s_per_byte;   /* all ranks of a host at once: seconds per byte of their total */
    double duplex_beta_s_per_byte; /* the same, sending and receiving at once, per direction */
    double incast_beta_s_per_byte; /* several hosts to one, at the receiver: seconds per byte of the total */
    double busy_alpha_s;           /* latency while all ranks exchange: between hosts, or inside of the only one */

    taciti_cluster_timing *timings; /* owned */
    size_t timing_count;
    taciti_cluster_compression *compressions; /* owned */
    size_t compression_count;

    double compute_cv;   /* of equal pieces of computation, pooled over ranks; < 0: unknown */
    double compute_lag1; /* autocorrelation of neighbours in time; near 1: persistent stragglers; < -1: unknown */
    double compute_rank_spread; /* (slowest - fastest rank's mean) / mean; < 0: unknown */
    double compute_core_share;  /* of a core, that a rank has while all ranks compute; < 0: unknown */
    double memory_gib;          /* of the smallest host; 0: unknown */
    double hand_over_s;         /* from the end of computing to the first message, and from the last one back, on the
                                   slowest rank; < 0: unknown */
} taciti_cluster;

/* Format name and limits of the file. A description beyond these limits can be neither read nor written. */
#define TACITI_CLUSTER_FORMAT "tacit-cluster-1"
enum {
    TACITI_CLUSTER_MAX_HOSTS = 100000,
    TACITI_CLUSTER_MAX_RANKS_PER_HOST = 10000,
    TACITI_CLUSTER_MAX_TIMINGS = 4096,
    TACITI_CLUSTER_MAX_COMPRESSIONS = 1024,
    TACITI_CLUSTER_MAX_NOTES = 64,
    TACITI_CLUSTER_NOTE_BYTES = 1024
};

/* Returns a description in which everything is unknown and which owns nothing. */
taciti_cluster taciti_cluster_unknown(void);

int taciti_cluster_ranks(const taciti_cluster *cluster);

/* The size of the largest host. */
int taciti_cluster_max_ranks_per_host(const taciti_cluster *cluster);

/* Returns the number of ranks on `hosts` hosts, or max + 1 if they are more than max. If the description has fewer
 * hosts, their sizes repeat. */
int taciti_cluster_ranks_on(const taciti_cluster *cluster, int64_t hosts, int max);

/* Assigns `ranks` ranks to hosts in the order of the description; if it has too few hosts, their sizes repeat. Returns
 * owned. */
tacit_status taciti_cluster_hosts(const taciti_cluster *cluster, int ranks, taciti_hosts *out);

/* Reads a description. Error messages name file, line (of a syntax error) or field (of a wrong value), the error and
 * the legal values. Returns owned; writes *out only on success. Any thread, not collective. */
tacit_status taciti_cluster_load(const char *path, taciti_cluster *out);

/* The same from text; `path` is used in messages. */
tacit_status taciti_cluster_parse(const char *path, const char *text, size_t bytes, taciti_cluster *out);

/* Writes the file atomically. Refuses what taciti_cluster_load() would refuse. Texts and integers come back exactly,
 * numbers to five decimal digits: of a file that was written and read the text is the same again. */
tacit_status taciti_cluster_save(const taciti_cluster *cluster, const char *path);

/* Formats the file; hosts >= 1. Returns owned, release with taciti_free(); NULL, after logging, if memory is exhausted.
 */
char *taciti_cluster_format(const taciti_cluster *cluster);

/* Returns true if the file is a cluster description, even one with errors; logs nothing. */
bool taciti_cluster_recognise(const char *path);

/* {0} is fine. */
void taciti_cluster_destroy(taciti_cluster *cluster);

/* The row of a number format; NULL: its speed is unknown. */
const taciti_cluster_compression *taciti_cluster_format_speed(const taciti_cluster *cluster, const char *name);

/* Append to the lists of a description; E_MEMORY if memory is exhausted. The note is formatted and truncated to
 * TACITI_CLUSTER_NOTE_BYTES - 1 bytes. */
tacit_status taciti_cluster_add_timing(taciti_cluster *cluster, const taciti_cluster_timing *timing);
tacit_status taciti_cluster_add_compression(taciti_cluster *cluster, const taciti_cluster_compression *compression);
tacit_status taciti_cluster_add_note(taciti_cluster *cluster, const char *format, ...) TACITI_PRINTF(2, 3);

/* Returns the minimum time of a collective of `bytes` per rank on the described links, without latency. For the world
 * and groups across hosts it follows from the bytes that must cross the busiest host's link, each array once per host,
 * both directions at the same time; for groups inside a host, from the bytes that a rank must send. 0 if no message is
 * needed or the link is unknown. Any thread. */
double taciti_cluster_bound_s(const taciti_cluster *cluster, taciti_collective collective, taciti_group_kind group,
                              size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of f32 arrays and bytes among a group of ranks. Members are numbered 0 .. size - 1. All functions but the
 * constructors run inside a job (communication thread) and are collective over the group; disjoint groups may be active
 * at the same time.
 */
#ifndef TACITI_EXCHANGE_GROUP_H
#define TACITI_EXCHANGE_GROUP_H

#include <stddef.h>

#include "comm/comm.h"

typedef struct taciti_group {
    int *ranks; /* [size], ascending; owned */
    int size;
    int me;                          /* my number */
    taciti_engine_request *requests; /* [size] receives, then sends of the collective that is running; owned */
} taciti_group;

/* Create the group of all ranks, of the ranks of my host, or of the ranks with my number within their hosts (hosts with
 * fewer ranks have none). Return owned. Not collective. */
tacit_status taciti_group_world(const taciti_comm *comm, taciti_group *out);
tacit_status taciti_group_host(const taciti_comm *comm, taciti_group *out);
tacit_status taciti_group_cross(const taciti_comm *comm, taciti_group *out);
void taciti_group_destroy(taciti_group *group);

/* Chunk i of an array of n floats belongs to member i: [*begin, *end). */
void taciti_group_chunk(const taciti_group *group, size_t n, int member, size_t *begin, size_t *end);

/* Floats of scratch memory that a reduce-scatter of n floats needs: slightly more than n. */
size_t taciti_group_scratch_n(const taciti_group *group, size_t n);

/* Chunk i of x on member i receives the sum over the group, added in the order of members; the rest of x is unchanged.
 */
tacit_status taciti_group_reduce_scatter(taciti_comm *comm, const taciti_group *group, float *x, size_t n,
                                         float *scratch);
/* Sends chunk i of member i to all members. */
tacit_status taciti_group_all_gather(taciti_comm *comm, const taciti_group *group, float *x, size_t n);
/* Sends `bytes` bytes from each member to each: in and out have size * bytes and must not overlap. */
tacit_status taciti_group_all_to_all(taciti_comm *comm, const taciti_group *group, const void *in, void *out,
                                     size_t bytes);

#endif

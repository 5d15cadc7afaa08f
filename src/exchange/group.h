/* SPDX-License-Identifier: Apache-2.0
 *
 * A group of ranks that do a collective together, and the collectives of plain f32 arrays and bytes over one. The
 * members see each other by their number in the group, 0 .. size - 1. Everything here runs inside of a job
 * (communication thread) and is collective over the group; several groups may be active at once when they are disjoint.
 */
#ifndef TACITI_EXCHANGE_GROUP_H
#define TACITI_EXCHANGE_GROUP_H

#include <stddef.h>

#include "comm/comm.h"

typedef struct taciti_group {
    int *ranks; /* [size], ascending; owned */
    int size;
    int me;                          /* my number */
    taciti_engine_request *requests; /* [2 size], of the collective that is running; owned */
} taciti_group;

/* All ranks; the ranks of my host; the ranks with my number within their hosts (hosts with fewer ranks have none).
 * Returns owned. Not collective: every rank knows where all ranks are. */
tacit_status taciti_group_world(const taciti_comm *comm, taciti_group *out);
tacit_status taciti_group_host(const taciti_comm *comm, taciti_group *out);
tacit_status taciti_group_cross(const taciti_comm *comm, taciti_group *out);
void taciti_group_destroy(taciti_group *group);

/* Chunk i of an array of n floats belongs to member i: [*begin, *end). */
void taciti_group_chunk(const taciti_group *group, size_t n, int member, size_t *begin, size_t *end);

/* Floats of the scratch that a reduce-scatter of n floats needs: a little more than n. */
size_t taciti_group_scratch_n(const taciti_group *group, size_t n);

/* Member i ends with the sum over the group in chunk i of x, added in the order of the group; the rest of x stays. */
tacit_status taciti_group_reduce_scatter(taciti_comm *comm, const taciti_group *group, float *x, size_t n,
                                         float *scratch);
/* Chunk i of member i goes to all. */
tacit_status taciti_group_all_gather(taciti_comm *comm, const taciti_group *group, float *x, size_t n);
/* `bytes` from each member to each: in and out have size * bytes and do not overlap. */
tacit_status taciti_group_all_to_all(taciti_comm *comm, const taciti_group *group, const void *in, void *out,
                                     size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter and all-gather among some ranks, piece by piece, in four steps that a caller may spread over time. In
 * every piece each member owns a range of the array (an empty one is fine):
 *
 *   scatter   encode the others' ranges, send each to its owner; post the receives of my range
 *   combine   await my range from all members, add in the order of the members
 *   spread    encode the sum once, send it to all; post the receives of the other ranges
 *   collect   await and decode the other ranges
 *
 * Sends go in phases (outbox.h): the k-th goes to the member k behind me. Every member makes the same steps in the
 * same order, so messages between two ranks match by their order alone. Steps of a fan block in waits; two fans of
 * different members do not disturb each other.
 */
#ifndef TACITI_EXCHANGE_FAN_H
#define TACITI_EXCHANGE_FAN_H

#include "codec/codec.h"
#include "exchange/arrangement.h"
#include "exchange/outbox.h"

/* Which part of a piece a member owns. */
typedef taciti_range taciti_fan_range(const taciti_arrangement *place, const taciti_cut *cut, size_t piece, int member);

typedef struct taciti_fan_shape {
    const taciti_codec *codec;
    const taciti_arrangement *place; /* borrows */
    taciti_fan_range *range;
    int count, me;
    size_t range_n; /* floats of the longest range */
    size_t slots;   /* pieces between scatter and combine, and between spread and collect, and one more */
    size_t lag;     /* pieces between combine and spread */
    size_t window;  /* sends under way */
} taciti_fan_shape;

typedef struct taciti_fan {
    taciti_comm *comm; /* borrows */
    taciti_fan_shape shape;
    int *ranks; /* [count]; owned */
    size_t stride_bytes;
    char *memory;   /* borrows; all buffers, one after the other */
    char *arriving; /* [slots][count] payloads of my range, by member */
    char *leaving;  /* [slots][count] my payloads for the others; NULL when the codec is the identity */
    char *sum;      /* [slots] payload of my range's sum; NULL when identity */
    char *sums;     /* [slots][count] payloads of the other ranges' sums; NULL when identity */
    float *prefix;  /* sum of the members before me, or scratch; NULL when identity */
    taciti_engine_request *scatter_in, *gather_in; /* [slots][count]; owned by the first */
    taciti_outbox sends;                           /* its requests are in the same block */
    size_t *scattered, *spread; /* [slots + lag], [slots]: `posted` after that step; owned by the first */
} taciti_fan;

/* What both directions of one piece are about. */
typedef struct taciti_turn {
    float *x;
    float *kept; /* what encoding took, see residual.h; written where this rank encodes. NULL: forgotten */
    const taciti_cut *cut;
    size_t piece;
} taciti_turn;

/* Bytes of workspace of such a fan. */
size_t taciti_fan_memory_bytes(const taciti_fan_shape *shape);

/* ranks[count]: copied. memory: borrowed, zeroed or used by a fan that has finished. Not collective. A fan of one
 * member has no workspace and its steps do nothing. */
tacit_status taciti_fan_create(taciti_comm *comm, const taciti_fan_shape *shape, const int *ranks, void *memory,
                               taciti_fan *out);
void taciti_fan_destroy(taciti_fan *fan);

tacit_status taciti_fan_scatter(taciti_fan *fan, const taciti_turn *t);
tacit_status taciti_fan_combine(taciti_fan *fan, const taciti_turn *t);
tacit_status taciti_fan_spread(taciti_fan *fan, const taciti_turn *t);
tacit_status taciti_fan_collect(taciti_fan *fan, const taciti_turn *t);

/* Returns when what was spread of that piece has left, at most slots - 1 pieces later. */
tacit_status taciti_fan_await_spread(taciti_fan *fan, const taciti_turn *t);

/* Returns when every send has left: the array is the caller's again. */
tacit_status taciti_fan_finish(taciti_fan *fan);

/* Bytes that `member` sends for one piece. */
uint64_t taciti_fan_bytes(const taciti_fan_shape *shape, const taciti_cut *cut, size_t piece, int member);

#endif

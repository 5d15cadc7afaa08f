/* SPDX-License-Identifier: Apache-2.0
 *
 * The buckets of a flat array as jobs of the communication thread: what every exchange of buckets has in common.
 */
#ifndef TACITI_EXCHANGE_PARCEL_H
#define TACITI_EXCHANGE_PARCEL_H

#include "comm/comm.h"
#include "tensor/layout.h"

/* Moves one bucket, on the communication thread. number: as given to taciti_parcels_send(). */
typedef tacit_status taciti_parcel_move(void *owner, float *x, size_t n, int64_t number);

typedef struct taciti_parcel {
    taciti_parcel_move *move;
    void *owner; /* borrows */
    float *x;
    size_t n;
    int64_t number;
    bool under_way, skipped;
    taciti_job job;
} taciti_parcel;

typedef struct taciti_parcels {
    taciti_comm *comm;           /* borrows */
    const taciti_layout *layout; /* borrows */
    taciti_parcel *all;          /* one per bucket; owned */
} taciti_parcels;

/* name: of the jobs, for error messages: "all-reduce of bucket". Not collective. */
tacit_status taciti_parcels_create(taciti_comm *comm, const taciti_layout *layout, taciti_parcel_move *move,
                                   void *owner, const char *name, taciti_parcels *out);
void taciti_parcels_destroy(taciti_parcels *parcels); /* {0} is fine */

/* Starts one bucket of the flat array; it must not be under way. Owner thread, never blocks. */
tacit_status taciti_parcels_send(taciti_parcels *parcels, float *flat, size_t bucket, int64_t number);
/* The same where nothing is to be done: the bucket is under way until it is waited for. */
tacit_status taciti_parcels_skip(taciti_parcels *parcels, size_t bucket);
/* Blocks until the bucket has been moved. Owner thread. */
tacit_status taciti_parcels_wait(taciti_parcels *parcels, size_t bucket);
/* All buckets, blocking; a single one runs on the calling thread when the communication thread is idle. */
tacit_status taciti_parcels_run(taciti_parcels *parcels, float *flat, int64_t number);

#endif

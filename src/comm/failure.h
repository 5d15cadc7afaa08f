/* SPDX-License-Identifier: Apache-2.0
 *
 * The failure detector. No MPI reports a dead, frozen or cut-off peer, so every rank sends small heartbeats to its
 * neighbours over the engine itself, idle or not, and watches the age of what it hears. Up to 32 ranks everybody is
 * everybody's neighbour, beyond that the ranks at distances 1, 2, 4, ... on a ring.
 *
 *   silent > comm.warn      the lowest neighbour that is well says so once, and says so when the peer is back
 *   silent > comm.timeout   the lowest neighbour that is well names the peer, tells the others and ends communication;
 *                           the next neighbour does it one second later if that one failed too, and so on
 *   alive, but a wait for it has lasted comm.stall: named as well
 *
 * Until all ranks have introduced themselves, comm.start takes the place of both limits.
 *
 * A process that was itself stopped (a gap between two looks) does not accuse the others of its own silence. Everything
 * here belongs to the owner of the engine.
 */
#ifndef TACITI_COMM_FAILURE_H
#define TACITI_COMM_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"

typedef struct taciti_beat {
    int32_t kind;    /* enum in failure.c */
    int32_t culprit; /* of a death that is told: rank */
    taciti_sight sight;
} taciti_beat;

/* A neighbour. */
typedef struct taciti_link {
    int peer;
    bool warned;
    bool gone; /* it said goodbye */
    bool said; /* so did we, or we told it of a death */
    bool receiving, sending, leaving;
    int64_t heard_ns;
    taciti_sight seen;
    taciti_beat in, out, last; /* last: the last word has its own place, so that it never waits for a beat to leave */
    taciti_engine_request in_request, out_request, last_request;
} taciti_link;

typedef struct taciti_detector {
    taciti_link *links; /* owned */
    int count;
    int *link_of; /* by rank: index of its link or -1; owned */
    int64_t last_look_ns, next_look_ns, next_beat_ns;
    int64_t rearmed_ns; /* when we last noticed that this process had been stopped */
    bool leaving;
} taciti_detector;

tacit_status taciti_detector_create(taciti_comm *comm);
void taciti_detector_destroy(taciti_comm *comm);

/* Cheap when called too early. Exchanges heartbeats, judges ages, obeys an abort asked for by another thread. Returns
 * the health of the communicator. */
tacit_status taciti_detector_tick(taciti_comm *comm);

/* This rank cannot go on: tells its neighbours. */
void taciti_detector_tell(taciti_comm *comm);

/* After a failure, before the engine is left alone: until the last words have left, but only for a moment. */
void taciti_detector_last_words(taciti_comm *comm);

/* A message of `peer` has arrived. */
void taciti_detector_heard(taciti_comm *comm, int peer);

/* This process did not listen until now: ages and waits count from here. */
void taciti_detector_forgive(taciti_comm *comm);

/* A wait for `peer` began at begin_ns and has not ended: E_PEER when that is too long, else OK. */
tacit_status taciti_detector_stall(taciti_comm *comm, int peer, int64_t begin_ns);

/* Says goodbye to all neighbours and waits for theirs: after it no message is under way. Collective. */
tacit_status taciti_detector_goodbye(taciti_comm *comm);

#endif

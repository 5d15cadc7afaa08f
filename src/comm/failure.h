/* SPDX-License-Identifier: Apache-2.0
 *
 * The failure detector. MPI does not report a peer that is dead, frozen or cut off. So every rank sends heartbeats to
 * its neighbours through the engine, whether or not it has work, and checks how long each neighbour has been silent. Up
 * to 32 ranks, all ranks are neighbours; with more, the neighbours are the ranks at distances 1, 2, 4, ... on a ring.
 *
 *   silent > timeout / 5    the lowest healthy neighbour logs a warning, and another line when the peer answers again
 *   silent > comm.timeout   the lowest healthy neighbour names the peer, notifies the others and ends communication;
 *                           if that neighbour has failed too, the next one does so a second later, and so on
 *   connection lost         an engine that can tell (taciti_engine.lost) knows at once: the same, without the wait, as
 *                           a warning where a watcher says more
 *   alive                   but a wait for it has lasted comm.stall: handled like comm.timeout
 *   left                    a rank that has said goodbye, and all that it has sent has arrived: after a second
 *   elsewhere               a message of another length has come from a rank in another step or call: both are named
 *
 * A peer that is alive may itself wait for another rank. Then that one is named, or the one for which it waits in turn,
 * if heartbeats lead to one that waits for none; else the peer.
 *
 * Until all ranks have introduced themselves, comm.start replaces comm.timeout and comm.stall.
 *
 * A process that was itself stopped (detected by a gap between two checks) restarts the measurement of silence. Only
 * the owner of the engine calls these functions.
 */
#ifndef TACITI_COMM_FAILURE_H
#define TACITI_COMM_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"

typedef struct taciti_beat {
    int32_t kind;    /* enum in failure.c */
    int32_t culprit; /* the failed rank, in a report of a failure; the rank that is elsewhere */
    uint64_t sent;   /* with a goodbye: all messages to this neighbour, beats apart */
    taciti_sight sight;
    taciti_sight other; /* of a rank that is elsewhere */
    int32_t awaited;    /* the rank for which the sender waits; -1: none */
    int32_t finder;     /* the rank that has noticed that: the sight is its own */
} taciti_beat;

/* A neighbour. */
typedef struct taciti_link {
    int peer;
    bool warned;
    bool gone;    /* the peer has said goodbye */
    bool watched; /* its watcher names it when its process ends */
    bool said;    /* this rank has said goodbye, or reported a failure to the peer */
    bool receiving, sending, leaving;
    int awaited; /* the rank for which the peer waited when it last beat; -1: none */
    int64_t heard_ns;
    int64_t lost_ns;         /* when the engine was seen to have lost the connection; 0: it has not */
    uint64_t beats;          /* that have come */
    uint64_t sent, received; /* messages, beats apart */
    taciti_sight seen;
    taciti_beat in, out, last; /* last: goodbye or report of a failure; it need not wait until `out` has been sent */
    taciti_engine_request in_request, out_request, last_request;
} taciti_link;

typedef struct taciti_detector {
    taciti_link *links; /* owned */
    int count;
    taciti_link **link_of; /* by rank: its link; NULL: no neighbour; owned */
    int64_t last_look_ns, next_look_ns, next_beat_ns;
    int64_t rearmed_ns; /* when the measurement of silence was last restarted */
    int awaited;        /* the rank for which a transfer of this rank has waited for a second; -1: none */
    bool leaving;
    bool begun; /* a beat has said that this rank makes steps */
} taciti_detector;

tacit_status taciti_detector_create(taciti_comm *comm);
void taciti_detector_destroy(taciti_comm *comm);

/* Exchanges heartbeats, checks the silence of peers, and executes an abort that another thread has requested. Returns
 * taciti_comm_health(). now_ns: the clock as the caller has just read it. Cheap if the next check is not due yet. */
tacit_status taciti_detector_tick(taciti_comm *comm, int64_t now_ns);

/* Tells the neighbours that this rank cannot continue. */
void taciti_detector_tell(taciti_comm *comm);

/* After a failure: blocks until the reports to the neighbours have been sent, for half a second at most. The engine is
 * not used after it. */
void taciti_detector_last_words(taciti_comm *comm);

/* Counts a message to `peer`. */
void taciti_detector_sent(taciti_comm *comm, int peer);

/* Notes that a message from `peer` has arrived. now_ns: as of tick. */
void taciti_detector_heard(taciti_comm *comm, int peer, int64_t now_ns);

/* Called while a wait for `peer` finds that the engine has lost the connection to it. Returns E_PEER when it has been
 * decided that the peer has failed; neighbours of the peer speak one after the other. */
tacit_status taciti_detector_lost(taciti_comm *comm, int peer);

/* Called when a message from `peer` has another length than this rank's job expects. Waits until the peer has said what
 * it does, for half a second at most. If that is another step or call, returns E_PEER with a text that names both
 * ranks, which all ranks receive; else, or where the peer has said nothing meanwhile, OK. */
tacit_status taciti_detector_compare(taciti_comm *comm, int peer);

/* Restarts the measurement of silence and waits, because this process did not listen until now. */
void taciti_detector_forgive(taciti_comm *comm);

/* Returns E_PEER if a wait for `peer` that began at begin_ns has lasted too long or the program ends it, else OK. */
tacit_status taciti_detector_stall(taciti_comm *comm, int peer, int64_t begin_ns);

/* Says goodbye to all neighbours and waits for their goodbyes. No message is under way afterwards. Collective. */
tacit_status taciti_detector_goodbye(taciti_comm *comm);

/* After it: returns E_USAGE, naming a neighbour, if that was in another step than this rank when it said goodbye. */
tacit_status taciti_detector_compare_ends(const taciti_comm *comm);

#endif

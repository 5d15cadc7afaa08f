/* SPDX-License-Identifier: Apache-2.0
 *
 * Averaging over the edges of a graph, without waiting. Each edge is on its own: when its two ranks have both offered
 * their arrays, each of them adds w (theirs - mine), where `mine` is the array that it offered, at the end of its next
 * step. Both subtract the same two arrays, so the sum over all ranks is kept, up to rounding, however late a message
 * is.
 *
 *   training thread   end of step: take(): adds what has arrived | update | offer(): copies the array | next step ...
 *   communication     | the job of offer(): sends, receives ----------------------------------------- | ends in take()
 *
 * Who offers when:
 *   - to the neighbours of the current round of the topology, at own initiative, as long as the weights of own
 *     initiatives that have no answer stay within a half
 *   - of these, neighbours that are late, which took more than four steps to answer, have a half of their own: they
 *     keep nobody from mixing with the others
 *   - to a neighbour whose offer has arrived, within another half, but to one at least: so no offer waits for ever
 * The weights under way stay within 1, and within 3/2 with those of late neighbours, below the pi/2 at which averages
 * of old arrays begin to swing (Hayes 1950); a neighbour that becomes late adds its own once. At a meeting, where all
 * come in together, both ends of an edge take a smaller weight, so that those of a rank sum to 1 at most.
 *
 * A slow rank or link keeps one offer of each neighbour, nothing else. Steps are counted by a logical clock (Lamport
 * 1978): a rank that takes in the array of one that is ahead goes on from that one's step.
 *
 * Source: pairwise averaging without barriers, Lian et al., arXiv 1710.06952 (AD-PSGD). Ours: the difference of the two
 * offered arrays, by which no rank must stand still for another, and which can be repeated from a log.
 */
#ifndef TACITI_EXCHANGE_ASYNC_H
#define TACITI_EXCHANGE_ASYNC_H

#include "base/pool.h"
#include "comm/comm.h"
#include "exchange/arrivals.h"
#include "topo/topo.h"

typedef struct taciti_async taciti_async;

typedef struct taciti_async_setup {
    taciti_comm *comm;               /* borrows */
    taciti_pool *pool;               /* borrows */
    const taciti_topology *topology; /* borrowed for the call */
    double gamma;                    /* factor of all weights */
    size_t n;                        /* floats of the array */
    taciti_arrivals *arrivals;       /* to write, or to follow; borrows; NULL: neither */
} taciti_async_setup;

/* Neighbours in any round of the rank with the most, and the bytes that create() allocates there: two arrays for each.
 */
size_t taciti_async_neighbours(const taciti_topology *topology);
size_t taciti_async_predict_bytes(const taciti_topology *topology, size_t n);
/* Bytes that a rank sends per step if nobody is late: the mean over the rounds. hosts: only to other hosts; NULL: all.
 */
uint64_t taciti_async_bytes(const taciti_topology *topology, int rank, size_t n, const taciti_hosts *hosts);
/* The same, of all ranks of a host to other hosts. */
uint64_t taciti_async_nic_bytes(const taciti_topology *topology, int host, size_t n, const taciti_hosts *hosts);

/* Edges are used in both directions, with half the sum of both weights. E_UNSUPPORTED for arrays that do not fit into a
 * message. Collective. */
tacit_status taciti_async_create(const taciti_async_setup *setup, taciti_async **out);
/* Says goodbye to the neighbours, unless communication has failed. NULL is fine. Collective. */
void taciti_async_destroy(taciti_async *async);

/* Writes this log from now on; NULL: none. As setup.arrivals; before the first step, or after the last one. */
void taciti_async_set_log(taciti_async *async, taciti_arrivals *arrivals);

/* At the end of a step: adds to x what has arrived since the last one. *clock: the steps that this rank has made or
 * passed over, step + 1 or more. Adds the squares of x's changes to *moved. When a log is followed, waits for what it
 * says. Training thread; not collective. */
tacit_status taciti_async_take(taciti_async *async, int64_t step, float *x, int64_t *clock, double *moved);
/* After take, with the x that is to be offered. clock: that of take. */
tacit_status taciti_async_offer(taciti_async *async, int64_t step, int64_t clock, float *x);

/* After offer. due: this rank has reason to meet; it then calls the others. Returns whether it is to meet now: all
 * ranks have answered, or one waits in meet() (calls.h); when a log is followed, what that says. Not collective. */
bool taciti_async_answer(taciti_async *async, bool due);
/* All ranks together: completes what is under way, and sets *clock to the maximum. Nothing is under way afterwards.
 * *ends: a log is followed, and that of every rank ends here, as that of a run that was stopped does.
 * Collective; ranks that make steps are called. E_CONFIG, on some ranks, where a log has no meeting. */
tacit_status taciti_async_meet(taciti_async *async, float *x, int64_t *clock, double *moved, bool *ends);

#endif

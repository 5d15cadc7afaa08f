/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: seconds of what an exchange asks of the links (exchange/demand.h) of a described cluster.
 *
 *   c = e (alpha_wire x turns + alpha_inside x turns + max(wire, inside + codec))
 *
 *   wire    the longer of two: bytes of the busiest host's link x seconds per byte of a host, and bytes of the busiest
 *           rank x seconds per byte of one rank (`between`). Exchanges send and receive at once, so a host's are those
 * of `duplex_gbit_per_s` when they are known, else of `host_gbit_per_s`, else of the line of two ranks; where a host
 * receives from two others or more, not less than those of `incast_gbit_per_s`. A rank is at least as fast as its part
 * of a host inside  bytes that a rank sends within its host x seconds per byte there: free when `links.inside` is
 * unknown codec   what the communication thread encodes and adds: free when the codec's rates are unknown e       how
 * much longer than that our own all-reduce took in groups of this kind where the file has them measured
 *           ("tacit"): pairs across hosts, two hosts, the ranks of a host; the world for all others. Between two
 * measured sizes both times are taken as lines in bytes; up to 16 times beyond the measured sizes as at the nearest
 * one; farther away a measurement says nothing (a short array is late for other reasons than a long one). Where nothing
 * was measured e is 1, and the transfer may be off by as much as the world's e is from 1
 *
 * The three run at the same time in pieces (exchange/allreduce.h), hence the maximum; inside and codec share a thread.
 *
 * All-reduces of other libraries: a ring sends 2 (N - 1) / N of the array from every rank to the next, host by host, in
 * 2 (N - 1) turns, of which 2 x hosts cross hosts, and loses what the world's e says
 * of ours; a measured one takes what the file says, in lines between its sizes.
 */
#ifndef TACITI_PLAN_LINKS_H
#define TACITI_PLAN_LINKS_H

#include "plan/plan.h"

/* One array on its way among some ranks. */
typedef struct taciti_transfer {
    taciti_demand demand;
    int hosts, ranks; /* that take part */
    size_t f32_bytes;
    const taciti_codec *codec;
    taciti_library library; /* whose; the demand is then not looked at */
    const char *by;
} taciti_transfer;

/* An all-reduce of this size: as it was measured, and as the links describe it. */
typedef struct taciti_efficiency {
    double bytes, measured_s, described_s, spread;
} taciti_efficiency;

typedef struct taciti_links {
    const taciti_cluster *cluster; /* borrows */
    double wire_alpha_s, wire_beta_s, flow_beta_s, crowd_beta_s, local_alpha_s, local_beta_s;
    taciti_efficiency *measured[TACITI_GROUP_KINDS]; /* ascending in bytes; owned */
    size_t measured_count[TACITI_GROUP_KINDS];
} taciti_links;

/* Borrows the scene's parts. Returns owned. */
tacit_status taciti_links_create(const taciti_scene *scene, taciti_links *out);
void taciti_links_destroy(taciti_links *links);

/* Seconds of it that hang on the number of messages in a row, and those that hang on bytes. */
typedef struct taciti_transfer_time {
    double latency_s, bytes_s;
    double error;    /* share by which it may be off */
    bool calibrated; /* a measurement speaks for such groups and sizes */
} taciti_transfer_time;
taciti_transfer_time taciti_links_time(const taciti_links *links, const taciti_transfer *transfer);

/* Along edges: who hears from one rank and tells one is in a pair with each, on links that nobody else crowds. */
static inline void taciti_links_as_pair(taciti_transfer *transfer) {
    transfer->ranks = 2;
    if (transfer->hosts > 2) transfer->hosts = 2;
}

/* What a ring of all ranks asks of the links, host by host. */
taciti_demand taciti_links_ring(int ranks, int hosts, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: seconds of what an exchange asks of the links (exchange/demand.h) of a described cluster.
 *
 *   c = e(bytes) (alpha_wire x turns + alpha_inside x turns + max(wire, inside + codec))
 *
 *   wire    bytes of the busiest host's link x its seconds per byte. Exchanges send and receive at once, so those of
 *           `duplex_gbit_per_s` when they are known, else of `host_gbit_per_s`, else of the line of two ranks; where a
 *           host receives from two others or more, not less than those of `incast_gbit_per_s`
 *   inside  bytes that a rank sends within its host x seconds per byte there: free when `links.inside` is unknown
 *   codec   what the communication thread encodes and adds: free when the codec's rates are unknown
 *   e       how much longer than that our own all-reduce took where the file has it measured ("tacit"): of group `host`
 *           for ranks of one host, of `world` for others. Between two measured sizes both times are taken as lines in
 *           bytes; up to 16 times beyond the measured sizes as at the nearest one; farther away a measurement says
 *           nothing (a short array is late for other reasons than a long one), and e is 1
 *
 * The three run at the same time in pieces (exchange/allreduce.h), hence the maximum; inside and codec share a thread.
 */
#ifndef TACITI_PLAN_LINKS_H
#define TACITI_PLAN_LINKS_H

#include "plan/plan.h"

/* One array on its way among some ranks. */
typedef struct taciti_transfer {
    taciti_demand demand;
    int hosts; /* that take part */
    size_t f32_bytes;
    const taciti_codec *codec;
} taciti_transfer;

/* An all-reduce of this size: as it was measured, and as the links describe it. */
typedef struct taciti_efficiency {
    double bytes, measured_s, described_s, spread;
} taciti_efficiency;

typedef struct taciti_links {
    const taciti_cluster *cluster; /* borrows */
    double wire_alpha_s, wire_beta_s, crowd_beta_s, local_alpha_s, local_beta_s;
    taciti_efficiency *measured[2]; /* inside of a host, between hosts; ascending in bytes; owned */
    size_t measured_count[2];
} taciti_links;

/* Borrows the scene's parts. Returns owned. */
tacit_status taciti_links_create(const taciti_scene *scene, taciti_links *out);
void taciti_links_destroy(taciti_links *links);

/* Seconds of it that hang on the number of messages in a row, and those that hang on bytes. */
typedef struct taciti_transfer_time {
    double latency_s, bytes_s;
} taciti_transfer_time;
taciti_transfer_time taciti_links_time(const taciti_links *links, const taciti_transfer *transfer);

/* Whether a measurement speaks for arrays of this size, and the share by which their transfers may be off. */
bool taciti_links_calibrated(const taciti_links *links, bool several_hosts, size_t f32_bytes);
double taciti_links_error(const taciti_links *links, bool several_hosts, size_t f32_bytes);

/* On how many hosts these members are. */
int taciti_links_hosts(const taciti_where *where, const int *members, size_t count);

#endif

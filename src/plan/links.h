/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* Inside of the planner: seconds of what an exchange asks of the links (exchange/demand.h) of a described cluster.
 *
 *   c = e (alpha_wire x hops + alpha_inside x hops + max(wire, inside + codec))
 *
 *   wire    the longer of two:
 *             - bytes of the busiest host's link x seconds per byte of a host. Exchanges send and receive at once, so
 *               the rate is `duplex_gbit_per_s` when it is known, else `host_gbit_per_s`, else that of two ranks
 *               (`between`); where a host receives from two others or more, `incast_gbit_per_s` when that is lower
 *             - bytes of the busiest rank x seconds per byte of two ranks (`between`); a rank is at least as fast as
 *               its equal share of the host's rate
 *   inside  bytes that a rank sends within its host x seconds per byte there; 0 when `links.inside` is unknown
 *   codec   what the communication thread encodes and adds; 0 when the codec's rates are unknown
 *   e       measured / described time of our own all-reduce (`by` = "tacit") in groups of this kind: pairs across
 *           hosts, two hosts, the ranks of a host; the world for all others.
 *             - between two measured sizes both times are taken as lines in bytes
 *             - up to 16 times below or above the measured sizes the nearest one counts
 *             - farther away none does: a short array is late for other reasons than a long one
 *             - where nothing was measured e is 1, and the transfer may be off by as much as the world's e is from 1;
 *               so may one of more than twice the measured hosts, for which the world's e counts
 *
 * The three run at the same time in pieces (exchange/allreduce.h), hence the maximum; inside and codec share a thread.
 * For a compressed sum (plan/compressed.h)
 *
 *   - e scales the bytes on the wire alone
 *   - messages have the latency that they have while all ranks exchange (`links.busy_latency_us`)
 *   - messages are more and shorter than those of a dense array of as many bytes, so what a rank needs for one counts:
 *     the shortest all-to-all that was measured, of 16 KiB at most, without its latency and its bytes, divided by its
 *     messages. They are handled while others travel
 *   - of wire and codec the shorter one counts as well, by its part that fills the pipeline of messages: all of it where
 *     an array is not longer than that
 *
 * All-reduces of other libraries:
 *
 *   ring      every rank sends 2 (N - 1) / N of the array to the next one, host by host, in 2 (N - 1) hops, of which
 *             2 x hosts cross hosts. Its e is that of our world, at least 1
 *   measured  the times of the file, with lines between its sizes
 */
/* clang-format on */
#ifndef TACITI_PLAN_LINKS_H
#define TACITI_PLAN_LINKS_H

#include "exchange/route.h"
#include "plan/plan.h"

/* The exchange of one array among some ranks. */
typedef struct taciti_transfer {
    taciti_demand demand;
    int hosts, ranks;          /* that take part */
    taciti_price price;        /* of the array; unless it is compressed, only its f32_bytes count */
    bool compressed;           /* the price counts instead of the codec's rates */
    const taciti_codec *codec; /* NULL: nothing is encoded or added */
    taciti_library library;    /* implementation; if not ours, the demand is ignored */
    const char *by;
} taciti_transfer;

/* An all-reduce of this size: measured time, and time computed from the links. */
typedef struct taciti_efficiency {
    double bytes, measured_s, described_s, spread;
} taciti_efficiency;

typedef struct taciti_links {
    const taciti_cluster *cluster; /* borrows */
    double message_s;              /* what a rank needs for a message, sent and received, while all ranks exchange */
    double wire_alpha_s, wire_beta_s, flow_beta_s, crowd_beta_s, local_alpha_s, local_beta_s;
    taciti_efficiency *measured[TACITI_GROUP_KINDS]; /* ascending in bytes; owned */
    size_t measured_count[TACITI_GROUP_KINDS];
} taciti_links;

/* Returns for how many seconds these bytes occupy the link of one host: at the described rate, or at that of the
 * longest measured all-reduce of the world if it is higher. */
double taciti_links_busy_s(const taciti_links *links, double bytes);

/* Describes the links of the scene's cluster, at its own rate. Borrows the cluster. Returns owned. */
tacit_status taciti_links_create(const taciti_scene *scene, taciti_links *out);
void taciti_links_destroy(taciti_links *links); /* {0} is fine */

/* Returns the same links at another rate between hosts; 0: their own. Borrows their tables. */
taciti_links taciti_links_at(const taciti_links *links, double bit_per_s);

/* The parts of a transfer's time that depend on the number of consecutive messages and on bytes. */
typedef struct taciti_transfer_time {
    double latency_s, bytes_s;
    double error;    /* relative uncertainty */
    bool calibrated; /* groups of this kind and size were measured */
} taciti_transfer_time;
taciti_transfer_time taciti_links_time(const taciti_links *links, const taciti_transfer *transfer);

/* Returns the time of short messages one after the other, of `bytes` together, while all ranks exchange. */
double taciti_links_messages_s(const taciti_links *links, const taciti_hosts *hosts, int messages, double bytes);

/* The demand of a ring of all ranks, ordered by host. */
taciti_demand taciti_links_ring(int ranks, int hosts, size_t bytes);

#endif

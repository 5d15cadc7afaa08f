/* SPDX-License-Identifier: Apache-2.0
 *
 * The routes of a sum: how the contributions of all ranks become one result on all of them. A route is described by a
 * taciti_encoding, which goes unchanged from the options to the codec, and is one of four:
 *
 *   dense     floats in the number format exchange.wire, to the owners of ranges and back            allreduce.h
 *   payload   contributions as payloads to the owners, who add them and encode the result for all; or
 *             (TACITI_WAY_GATHER) from all to all                                                    allreduce.h
 *   linear    payloads are floats that add up: every round is a dense all-reduce                     linear.h
 *   sketch    contributions as sketches, which owners add up and decode; results as payloads         sketch_reduce.h
 *
 * The way of a bucket. Its exchange holds two routes and does not know which they are; plain buckets and dense steps
 * take the first, which is dense.
 *
 *   begin(bucket, phase)          strategy/ : what a step does is a taciti_bucket_task
 *     the communication thread    exchange.c: clears gaps, chooses the route, measures time; calls hooks around the
 *                                 bucket where the route does not call them by piece
 *       residual + x              residual.h: what encodings have left before
 *       run                       the route : encodes, sends, adds, decodes; fills the tallies
 *   wait, settle(taken)           exchange.c: residuals and state of the step become those of the next, or are dropped
 *
 * The same tables answer the planner, without a communicator: how many bytes and messages a sum takes, and how long its
 * codec works. So what a route sends and what is said about it stand in one file.
 *
 * A new route is one file and one line in route.c.
 */
#ifndef TACITI_EXCHANGE_ROUTE_H
#define TACITI_EXCHANGE_ROUTE_H

#include "exchange/allreduce.h"
#include "exchange/demand.h"
#include "exchange/store.h"

/* The ranks, the buckets and the sum that a route is for. Borrows what it points to. */
typedef struct taciti_route_setup {
    const taciti_hosts *hosts;
    int rank; /* whose view it is */
    size_t segment_bytes;
    const taciti_layout *layout;
    taciti_placement placement;
    const taciti_codec *wire; /* exchange.wire: of dense steps, of the floats of linear codecs */
    taciti_encoding encoding; /* codec NULL: the sum is dense */
} taciti_route_setup;

/* Seconds per float of one thread, contributions with error feedback. */
typedef struct taciti_codec_rates {
    double encode_s, decode_s, add_s;
} taciti_codec_rates;

/* Returns the rates of a codec at a factor; zeros: unknown. */
typedef taciti_codec_rates taciti_rates_at(const void *context, const taciti_codec *codec, double factor);

/* The mean cost of a sum of n floats. */
typedef struct taciti_price {
    taciti_length length; /* of an array whose dense all-reduce would send and add as much */
    double codec_s;       /* encoding and decoding on the communication thread of a lane; 0: unknown */
    double busiest;       /* bytes of the busiest host's link / those that `length` says; linear: of all rounds */
    bool by_owners;       /* contributions go to owners, some of whom may receive more than others */
    size_t fillings;      /* how often the pipeline of messages is filled: only later messages overlap with encoding */
    size_t messages;      /* that a lane sends to other hosts, and receives */
    int wire_hops;        /* messages between hosts that wait for each other */
} taciti_price;

struct taciti_route;

/* Slots that take a setup or an encoding, and those with `const`, may be called by any thread; the others as they say.
 */
typedef struct taciti_route_verbs {
    bool phases;  /* the phases of an all-reduce run on their own, too */
    bool whole;   /* every rank encodes whole buckets, and nobody encodes results */
    bool results; /* results are encoded at a setting of their own */
    bool pieces;  /* run calls the hooks of the task */
    bool probed;  /* its arithmetic is encode, decode and add of the codec, so a probe of the codec tells its time */

    /* Returns E_CONFIG, with what to type, for an encoding that the route does not carry. */
    tacit_status (*check)(const taciti_encoding *encoding);

    /* Sets route->reduce, and what else the formulas need, from route->setup, without buffers. All ranks describe the
     * same. */
    tacit_status (*describe)(struct taciti_route *route);

    /* Returns the bytes that open allocates on this rank for a described route. NULL: none. */
    size_t (*memory_bytes)(const struct taciti_route *route);

    /* Makes a described route ready to run. Borrows comm and workspace, which has taciti_allreduce_workspace_bytes() of
     * route->reduce; routes that do not run at the same time may share it. Not collective. After an error, only close
     * may be called. */
    tacit_status (*open)(struct taciti_route *route, taciti_comm *comm, void *workspace);
    void (*close)(struct taciti_route *route); /* whether described or opened */

    /* x[n] of task->bucket becomes the result, or what task->phase makes of it (taciti_allreduce_run). residual: of the
     * bucket; NULL: none. Communication thread. Collective. */
    tacit_status (*run)(struct taciti_route *route, float *x, size_t n, const taciti_bucket_task *task,
                        taciti_residual *residual);

    /* Adds to the task's tallies what the codec would see in x[n]. Nothing is sent. Communication thread.
     */
    tacit_status (*observe)(struct taciti_route *route, float *x, size_t n, const taciti_bucket_task *task);

    /* Ends a step: its state replaces the one before, or is forgotten. No run may be under way. NULL: there is none
     * besides that of the residuals, in this slot and the next two. */
    void (*settle)(struct taciti_route *route, bool taken);
    void *(*state)(const struct taciti_route *route, size_t *bytes); /* for checkpoints */
    void (*restored)(struct taciti_route *route);                    /* call it after writing to the state */

    /* Bytes that this rank sends for a bucket in the next step at that setting; the maximum if they vary. */
    uint64_t (*bytes)(const struct taciti_route *route, size_t bucket, taciti_codec_setting setting);

    /* Mean bytes that this rank sends for a bucket at these settings[TACITI_PAYLOAD_KINDS]; NULL: of a dense sum.
     * Slot NULL: they follow from the data. */
    double (*expected_bytes)(const struct taciti_route *route, size_t bucket, const taciti_codec_setting *settings);

    /* Maximum bytes that travel between an owner and a member for the reduce-scatter of a range of n floats, or their
     * all-gather. NULL: see that of the codec of exchange.wire. */
    uint64_t (*range_bytes)(const taciti_encoding *encoding, size_t n);

    /* The price of that phase for an array of n > 0 floats. Returns E_MEMORY if memory is exhausted. */
    tacit_status (*price)(const taciti_route_setup *setup, taciti_phase phase, size_t n, taciti_rates_at *rates,
                          const void *context, taciti_price *out);
} taciti_route_verbs;

typedef struct taciti_route {
    const taciti_route_verbs *verbs;
    taciti_route_setup setup;
    taciti_allreduce reduce; /* of the payloads; linear: the dense one of every round */
    void *own;               /* of the route; owned */
} taciti_route;

extern const taciti_route_verbs taciti_route_dense, taciti_route_payload, taciti_route_linear, taciti_route_sketch;

/* Returns the route of a codec's sums; NULL: dense. */
const taciti_route_verbs *taciti_route_of(const taciti_codec *codec);

/* Chooses the route of setup->encoding and describes it. It must not move afterwards; close it, whatever is returned.
 */
tacit_status taciti_route_describe(const taciti_route_setup *setup, taciti_route *out);
void taciti_route_close(taciti_route *route); /* {0} is allowed */

/* Whether anything is encoded. If not, a store only takes what a checkpoint holds, and the first step adds that. */
bool taciti_route_encodes(const taciti_route *route);

/* Creates what a rank keeps of its encodings from step to step; and predicts its bytes. */
tacit_status taciti_route_create_store(const taciti_route *route, taciti_store *out);
size_t taciti_route_store_bytes(const taciti_route *route);

/* Whether payloads of an AUTO sum go from all to all, which between two hosts is one encoding less. */
static inline bool taciti_way_gathers(int hosts, double scatter_bytes, double gather_bytes) {
    return hosts == 2 || gather_bytes < scatter_bytes;
}

#endif

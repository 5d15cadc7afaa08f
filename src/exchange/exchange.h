/* SPDX-License-Identifier: Apache-2.0
 *
 * bucket x codec x collective: the all-reduce with any codec that is not a vote, and its two halves, each alone. In one
 * of two arrangements:
 *
 *   flat    the bucket is cut into one chunk per rank. reduce-scatter: every rank encodes its part of chunk j and sends
 *           it to rank j, which adds the decoded payloads in rank order 0..N-1 (f32 accumulation). all-gather: rank j
 *           encodes the sum once and sends it to all; everybody, rank j included, decodes that payload
 *   hosts   the same among hosts: the ranks of a host first add their parts in rank order (f32, nothing is encoded
 *           inside a host), then hosts take the place of ranks, in the order of their lowest ranks
 *
 * So the result is the same bits on every rank, does not depend on arrival order, and a 16-bit wire rounds each
 * contribution - of a rank, or of a host - once and the sum once. Bytes per rank (flat) or host (hosts) and direction:
 * 2 (N-1)/N of the encoded bucket, N ranks or hosts: the bound for any all-reduce. Inside a host of P ranks each rank
 * sends 2 (P-1)/P of the bucket more.
 */
#ifndef TACITI_EXCHANGE_EXCHANGE_H
#define TACITI_EXCHANGE_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include <stdbool.h>

#include "base/option.h"
#include "exchange/arrangement.h"
#include "exchange/payload.h"
#include "tensor/layout.h"

typedef struct taciti_exchange_options {
    taciti_text wire;     /* exchange.wire: the name of a dense codec; "": f32 */
    int64_t bucket_bytes; /* exchange.bucket: default 25 MiB */
    int scheme;           /* exchange.scheme: taciti_scheme */
    int64_t lanes;        /* exchange.lanes: ranks of a host that talk to other hosts; 0: chosen */
    bool overlap;         /* exchange.overlap: false submits every bucket only at the end of backward (blocking) */
} taciti_exchange_options;
extern const taciti_option_table taciti_exchange_option_table; /* section "exchange" */

const taciti_codec *taciti_exchange_wire(const taciti_exchange_options *options);
taciti_placement taciti_exchange_placement(const taciti_exchange_options *options);

typedef struct taciti_exchange taciti_exchange;

/* Workspaces are sized here; nothing is allocated later. Borrows comm and layout. Collective. */
tacit_status taciti_exchange_create(taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_exchange_options *options, taciti_exchange **out);
/* The same with any codec of class SUM or GATHER instead of the wire's; NULL: the wire's. feedback: every rank keeps
 * what its encodings lose and adds it to what it encodes in the next step: its contribution in each range, and the
 * result where it owns it (error feedback; residual.h). */
tacit_status taciti_exchange_create_encoded(taciti_comm *comm, const taciti_layout *layout,
                                            const taciti_exchange_options *options, const taciti_encoding *encoding,
                                            bool feedback, taciti_exchange **out);
void taciti_exchange_destroy(taciti_exchange *exchange); /* waits for buckets that are under way; NULL is fine */

/* What is begun from now on belongs to this step (of the codec's keys), with this setting of the codec. At first step 0
 * and setting 0. Owner thread, not collective; the same on all ranks. */
void taciti_exchange_at(taciti_exchange *exchange, int64_t step, double setting);

/* Starts the all-reduce (sum) of one bucket of the flat array; buckets in the same order on all ranks. The array must
 * not be touched until taciti_exchange_wait() for that bucket. Owner thread, never blocks. */
tacit_status taciti_exchange_begin(taciti_exchange *exchange, float *flat, size_t bucket);

/* One half of it. Reduce-scatter: the bucket then holds the sum in the ranges that this rank owns, and nothing
 * specified elsewhere. All-gather: takes those ranges from their owners to all ranks; an owner, too, keeps what the
 * others decode. One after the other they are the all-reduce, bit for bit, for codecs whose payload does not depend on
 * key or length of a short array. */
tacit_status taciti_reduce_scatter_begin(taciti_exchange *exchange, float *flat, size_t bucket);
tacit_status taciti_all_gather_begin(taciti_exchange *exchange, float *flat, size_t bucket);

/* The index-th range of the flat array that this rank owns in that bucket, ascending; may be empty. False: there are
 * not so many. Where ranks share hosts, only those that talk to other hosts own anything. Any thread. */
bool taciti_exchange_owned(const taciti_exchange *exchange, size_t bucket, size_t index, taciti_range *out);

/* Ends the step, after all waits and before the next step's begins. Taken: the errors of this step's encodings become
 * the residuals. Not taken: residuals and the codec's state stay as they were, bit for bit. Then step + 1 begins. Costs
 * nothing. Owner thread, not collective; the same on all ranks. */
tacit_status taciti_exchange_settle(taciti_exchange *exchange, bool taken);

/* This rank's residuals of one kind in that bucket, *n floats: what a checkpoint saves and restores between steps. */
float *taciti_exchange_residual(const taciti_exchange *exchange, size_t bucket, taciti_payload_kind kind, size_t *n);

/* Blocks until that bucket holds the result. Owner thread. */
tacit_status taciti_exchange_wait(taciti_exchange *exchange, size_t bucket);

/* All buckets of the flat array, blocking. A single one is exchanged by the calling thread itself when the
 * communication thread is idle: short arrays are not delayed by a hand-over. Owner thread. */
tacit_status taciti_exchange_run(taciti_exchange *exchange, float *flat);

/* Bytes this rank sends per step for this layout: the cost formula beside the code; the maximum if the codec does not
 * fix them. */
uint64_t taciti_exchange_bytes_per_step(const taciti_exchange *exchange);

/* Bytes that all ranks of this rank's host together send to other hosts per step: what its network card carries, but
 * for protocol headers and heartbeats. */
uint64_t taciti_exchange_nic_bytes_per_step(const taciti_exchange *exchange);

/* Bytes that an exchange holds on this rank, before it exists: workspace, residuals and the codec's state. For the
 * memory prediction; the arguments are those of create and create_encoded. Not collective. */
size_t taciti_exchange_predict_bytes(const taciti_comm *comm, const taciti_layout *layout,
                                     const taciti_exchange_options *options);
size_t taciti_exchange_predict_encoded_bytes(const taciti_comm *comm, const taciti_layout *layout,
                                             const taciti_exchange_options *options, const taciti_encoding *encoding,
                                             bool feedback);

#endif

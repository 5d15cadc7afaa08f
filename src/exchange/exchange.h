/* SPDX-License-Identifier: Apache-2.0
 *
 * The all-reduce of buckets by any route (route.h), and its phases on their own, in one of two arrangements:
 *
 *   flat    the bucket is cut into one chunk per rank. reduce-scatter: every rank encodes its part of chunk j and sends
 *           it to rank j, which adds the decoded payloads in rank order 0..N-1 (f32 accumulation). all-gather: rank j
 *           encodes the sum once and sends it to all; everybody, rank j included, decodes that payload
 *   hosts   the same among hosts, in the order of their lowest ranks, after the ranks of each host have added their
 *           parts in rank order (f32, without encoding)
 *
 * The result is bit-equal on every rank and does not depend on the order of arrival. A 16-bit wire rounds each
 * contribution (of a rank, or of a host) once and the sum once. Each rank (flat) or host (hosts) sends and receives
 * 2 (N-1)/N of the encoded bucket among N ranks or hosts, which is the lower bound of an all-reduce. Inside a host of P
 * ranks each rank sends another 2 (P-1)/P of the bucket.
 */
#ifndef TACITI_EXCHANGE_EXCHANGE_H
#define TACITI_EXCHANGE_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include <stdbool.h>

#include "base/option.h"
#include "exchange/arrangement.h"
#include "exchange/residual.h"
#include "tensor/layout.h"
#include "tensor/state.h"

typedef struct taciti_exchange_options {
    taciti_text wire;     /* exchange.wire: the name of a dense codec; "": f32 */
    int64_t bucket_bytes; /* exchange.bucket; 0: taciti_layout_choose_bucket */
    int scheme;           /* exchange.scheme: taciti_scheme */
    int64_t lanes;        /* exchange.lanes: ranks of a host that talk to other hosts; 0: chosen */
    bool overlap;         /* exchange.overlap: false submits every bucket only at the end of backward (blocking) */
    bool contiguous;      /* taciti_placement.contiguous; no option: strategies that own parts of arrays set it */
} taciti_exchange_options;
extern const taciti_option_table taciti_exchange_option_table; /* section "exchange" */

const taciti_codec *taciti_exchange_wire(const taciti_exchange_options *options);
taciti_placement taciti_exchange_placement(const taciti_exchange_options *options);
/* Bytes of a bucket; coded: of sums, gathers or mixes that are compressed. */
size_t taciti_exchange_bucket(const taciti_exchange_options *options, const taciti_layout *layout, bool coded);

typedef struct taciti_exchange taciti_exchange;

/* Allocates all workspaces; nothing is allocated later. Borrows comm and layout. Collective.
 *
 * encoding: compresses what travels between hosts, or, if all ranks share one host, between ranks, but for buckets that
 * are plain, which are dense in every step. Gaps of the layout are then 0 after every exchange, and in what is stored;
 * what lies in them before changes nothing. NULL: all sums are dense. */
tacit_status taciti_exchange_create(taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_exchange_options *options, const taciti_encoding *encoding,
                                    taciti_exchange **out);
void taciti_exchange_destroy(taciti_exchange *exchange); /* waits for buckets under way; NULL is allowed */

/* Calls these hooks for every bucket from now on; borrowed. Before the first begin. */
void taciti_exchange_attend(taciti_exchange *exchange, const taciti_bucket_hooks *hooks);

/* Sets the step (for the codec's keys) and what all following begins do: the settings, the trial and dense of a
 * task. NULL: {0}, as in the beginning, at step 0. The same on all ranks. Submitting thread, not collective. */
void taciti_exchange_at(taciti_exchange *exchange, int64_t step, const taciti_bucket_task *task);

/* Starts the all-reduce (sum) of one bucket of the flat array; all ranks start buckets in the same order. The bucket
 * must not be accessed until taciti_exchange_wait() for it has returned. Submitting thread. With a communication
 * thread, does not block; without one, the bucket holds the result on return. */
tacit_status taciti_exchange_begin(taciti_exchange *exchange, float *flat, size_t bucket);

/* Starts a phase of an all-reduce, under the same contract. Reduce-scatter: the ranges of the bucket that
 * this rank owns receive the sum; the rest of the bucket is unspecified. All-gather: all ranks receive those ranges
 * from their owners; an owner replaces its own range by what the others decode. Both in sequence are bit-equal to the
 * all-reduce, for codecs whose payload does not depend on the key or on the length of a short array. */
tacit_status taciti_exchange_begin_phase(taciti_exchange *exchange, float *flat, size_t bucket, taciti_phase phase);

/* Sets *out to the index-th range of the flat array that this rank owns in that bucket, in ascending order; it may be
 * empty. Returns false if there is none. If ranks share hosts, only lanes own ranges. Any thread. */
bool taciti_exchange_owned(const taciti_exchange *exchange, size_t bucket, size_t index, taciti_range *out);

/* Ends the step; call it after all waits and before the next step's begins. taken: the encoding errors of this step
 * become the residuals. Not taken: residuals and the codec's state remain as before the step, bit for bit. The step
 * number increases by one. `taken` is the same on all ranks. Submitting thread, not collective. */
tacit_status taciti_exchange_settle(taciti_exchange *exchange, bool taken);

/* Returns tallies[TACITI_PAYLOAD_KINDS] of this rank: of that bucket's last exchange; of all-gathers that began alone,
 * of all since the last settle. Dense: bytes and times alone; with a trial also the contributions, all of
 * which count as sent. Valid from its wait to its next begin. Zeros without compression. */
const taciti_tally *taciti_exchange_tally_of(const taciti_exchange *exchange, size_t bucket);

/* Return, for checkpoints, what is stored between two steps: an array of the layout's flat array (residual.h), which is
 * 0 wherever this rank encodes nothing; and the codec's state. NULL, *bytes = 0: there is none, on any rank. Between
 * two steps, until the next settle. */
float *taciti_exchange_residual(const taciti_exchange *exchange, taciti_residual_array which);
/* The same for errors in a narrow form (taciti_feedback.stored), of which taciti_exchange_residual() has none. Borrows
 * the exchange. Returns false if there are none. */
bool taciti_exchange_narrow_residual(taciti_exchange *exchange, taciti_residual_array which, taciti_state_access *out);
void *taciti_exchange_codec_state(const taciti_exchange *exchange, size_t *bytes);

/* Call it after writing to these arrays, before the first step. moved: they are those of another number of ranks or of
 * another arrangement: each rank then adds its residuals to its own array in the first step that is taken, wherever
 * they lie, so their sum over ranks arrives; estimates and the codec's state must be zeros. */
void taciti_exchange_restored(taciti_exchange *exchange, bool moved);

/* Blocks until that bucket holds the result. Submitting thread. */
tacit_status taciti_exchange_wait(taciti_exchange *exchange, size_t bucket);

/* All-reduces all buckets of the flat array and waits. If the communication thread is idle, a single bucket is
 * exchanged on the calling thread, which saves a hand-over for short arrays. Submitting thread. */
tacit_status taciti_exchange_run(taciti_exchange *exchange, float *flat);

/* Returns the mean bytes that this rank sends for an all-reduce of all buckets but the plain ones, at these
 * settings[TACITI_PAYLOAD_KINDS] of a codec that does not sketch; NULL: in a dense step. Any thread. */
double taciti_exchange_expected_bytes(const taciti_exchange *exchange, const taciti_codec_setting *settings);

/* Payload bytes that this rank sends per step for this layout, with compression if there is one; the maximum if
 * payloads vary in size. */
uint64_t taciti_exchange_bytes_per_step(const taciti_exchange *exchange);

/* Returns the way that auto has chosen. */
taciti_way taciti_exchange_way(const taciti_exchange *exchange);

/* Returns E_CONFIG for a compression that no exchange can have, whatever its ranks and its layout. */
tacit_status taciti_exchange_check(const taciti_encoding *encoding);

/* Predicts the bytes that an exchange will allocate on this rank: workspace, residuals and the codec's state. The
 * arguments are those of create. Not collective. */
size_t taciti_exchange_predict_bytes(const taciti_comm *comm, const taciti_layout *layout,
                                     const taciti_exchange_options *options, const taciti_encoding *encoding);

#endif

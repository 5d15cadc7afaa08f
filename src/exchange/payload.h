/* SPDX-License-Identifier: Apache-2.0
 *
 * Payloads on the wire: how an exchange makes them, and what each belongs to. Everything in exchange/ calls a codec
 * through this file.
 */
#ifndef TACITI_EXCHANGE_PAYLOAD_H
#define TACITI_EXCHANGE_PAYLOAD_H

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "codec/encoding.h"
#include "codec/tally.h"
#include "comm/comm.h"
#include "kernel/kernel.h"
#include "tensor/layout.h"

/* An all-reduce, or a phase of one. Its steps: inside hosts to lanes, between hosts to owners, back to lanes, back to
 * all. */
typedef enum taciti_phase {
    TACITI_PHASE_ALL_REDUCE,
    TACITI_PHASE_REDUCE_SCATTER,  /* the first two steps */
    TACITI_PHASE_ALL_GATHER,      /* the last two */
    TACITI_PHASE_REDUCE_TO_LANES, /* the first three: every lane has the sum of its share */
    TACITI_PHASE_GATHER_TO_LANES, /* the third: from owners to the lanes */
    TACITI_PHASE_GATHER_IN_HOST   /* the last: from the lanes of a host to all of its ranks */
} taciti_phase;
static inline bool taciti_phase_sums(taciti_phase phase) {
    return phase == TACITI_PHASE_ALL_REDUCE || phase == TACITI_PHASE_REDUCE_SCATTER ||
           phase == TACITI_PHASE_REDUCE_TO_LANES;
}

/* A rank encodes its contribution to a sum, and the result where it owns it. */
typedef enum taciti_payload_kind { TACITI_PAYLOAD_CONTRIBUTION, TACITI_PAYLOAD_RESULT } taciti_payload_kind;
enum { TACITI_PAYLOAD_KINDS = 2 };

/* Moves a bucket between the array that ranks exchange and other memory, on the thread that exchanges it. Routes that
 * can (taciti_route_verbs.pieces) call the first two for ranges that do not overlap and begin at multiples of 16, in
 * no particular order, so that the copies of a piece hide behind the transfers of others; else they get the whole
 * bucket once. After an error some ranges may have arrived. */
typedef struct taciti_bucket_hooks {
    /* Writes the range, which is about to be read, but for the gaps of the layout. A gather asks for the ranges that
     * this rank owns; in a whole bucket it reads nothing else. */
    void (*leaving)(void *context, size_t bucket, taciti_range range);
    /* The range holds the result. A phase of a sum gives the ranges that this rank then owns; a whole bucket also has
     * the others, whose values are not specified. NULL: no need. */
    void (*arrived)(void *context, size_t bucket, taciti_range range);
    /* All ranges have arrived, or never will (status). Not called for a bucket that begins after communication has
     * failed. NULL: no need. */
    void (*ended)(void *context, size_t bucket, tacit_status status);
    void *context;
} taciti_bucket_hooks;

/* The work of an exchange on a bucket in a step. The first four members come from the strategy (taciti_exchange_at());
 * the exchange sets the others. */
typedef struct taciti_bucket_task {
    taciti_codec_setting setting[TACITI_PAYLOAD_KINDS]; /* {0}: the codec's default */
    taciti_codec_setting trial; /* contributions are also encoded at this setting, for the tally only; factor 0:
                                   not wanted */
    bool dense;                 /* the number format exchange.wire instead of the codec; residuals are sent along, and
                                   empty afterwards; estimates stay as they are */
    size_t bucket;
    int64_t step;
    taciti_phase phase;
    taciti_tally *tallies;            /* [TACITI_PAYLOAD_KINDS], added to; NULL: not wanted */
    const taciti_layout *layout;      /* whose gaps are 0 in what is decoded; borrows; NULL: there are none */
    const taciti_bucket_hooks *hooks; /* borrows; NULL: there are none */
} taciti_bucket_task;

static inline void taciti_bucket_leaves(const taciti_bucket_task *task, taciti_range range) {
    if (task->hooks != NULL) task->hooks->leaving(task->hooks->context, task->bucket, range);
}

static inline void taciti_bucket_arrives(const taciti_bucket_task *task, taciti_range range) {
    if (task->hooks != NULL && task->hooks->arrived != NULL)
        task->hooks->arrived(task->hooks->context, task->bucket, range);
}

typedef struct taciti_payload {
    void *data;
    size_t bytes;
} taciti_payload;

/* Returns E_CONFIG for a codec that no exchange supports. */
static inline tacit_status taciti_encoding_check(const taciti_encoding *encoding) {
    if (taciti_codec_suits(encoding->codec, TACITI_USE_SUMS)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "codec %s cannot carry an all-reduce: it needs class SUM or GATHER and one round",
                       encoding->codec->name);
}

/* Returns the call for the payload that `rank` encodes, of the part of the array that begins at element `at`. */
static inline taciti_codec_call taciti_payload_call(const taciti_encoding *encoding, const taciti_bucket_task *task,
                                                    int rank, taciti_payload_kind kind, size_t at) {
    return taciti_encoding_call(encoding, task->setting[kind], task->step, rank, task->bucket,
                                at * TACITI_PAYLOAD_KINDS + kind);
}

/* Adds to the total of a kind; single encodings are too short and too many to be spans. Communication thread. */
static inline void taciti_payload_time(taciti_comm *comm, taciti_span_kind kind, int64_t spent_ns) {
    taciti_trace_count(taciti_comm_trace(comm), kind, spent_ns);
}

/* Encodes x[n] into out->data and sets out->bytes. error[n], if not NULL, receives x - decode(payload). */
static inline tacit_status taciti_payload_encode(taciti_comm *comm, const taciti_codec *codec,
                                                 const taciti_codec_call *call, const float *x, size_t n, float *error,
                                                 taciti_payload *out) {
    const taciti_payload_length length = taciti_codec_length(codec, call->options, n);
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(codec->encode(codec, call, x, n, out->data, error, &out->bytes));
    taciti_payload_time(comm, TACITI_SPAN_ENCODE, taciti_now_ns() - begin_ns);
    if (length.exact ? out->bytes == length.max : out->bytes <= length.max) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "codec %s wrote %zu bytes for %zu floats where its bound is %zu", codec->name,
                       out->bytes, n, length.max);
}

/* Counts what the task's trial would send of a contribution x[n]. Its payload is written to `buffer` (bound() bytes),
 * which the next encode overwrites. */
static inline tacit_status taciti_payload_observe(taciti_comm *comm, const taciti_codec *codec,
                                                  const taciti_bucket_task *task, taciti_codec_call call,
                                                  const float *x, size_t n, void *buffer) {
    taciti_payload payload = {.data = buffer};
    if (task->trial.factor <= 0) return TACIT_OK;
    call.setting = task->trial;
    call.tally = &task->tallies[TACITI_PAYLOAD_CONTRIBUTION].trial;
    return taciti_payload_encode(comm, codec, &call, x, n, NULL, &payload);
}

/* Posts the receive for the payload of n floats: of exactly bound() bytes if payloads have fixed size, else of up to
 * bound() bytes. */
static inline tacit_status taciti_payload_receive(taciti_comm *comm, const taciti_encoding *encoding, int rank,
                                                  void *into, size_t n, taciti_engine_request *out) {
    const taciti_payload_length length = taciti_codec_length(encoding->codec, encoding->options, n);
    return (length.exact ? taciti_comm_irecv : taciti_comm_irecv_up_to)(comm, rank, into, length.max, out);
}

/* If `status` is the error of a decoder, logs whose payload it has refused. Returns `status`. */
static inline tacit_status taciti_payload_refused(tacit_status status, const taciti_encoding *encoding,
                                                  const taciti_bucket_task *task, int rank, size_t bytes) {
    if (status == TACIT_OK) return status;
    return taciti_fail(status, "bucket %zu of step %" PRId64 ": the %s payload of rank %d (%zu bytes) is malformed",
                       task->bucket, task->step, encoding->codec->name, rank, bytes);
}

#endif

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
#include "codec/tally.h"
#include "comm/comm.h"
#include "kernel/kernel.h"
#include "tensor/layout.h"

/* How payloads travel between hosts (between ranks, in the flat arrangement). */
typedef enum taciti_way {
    TACITI_WAY_AUTO,    /* whichever sends fewer bytes; gather between two */
    TACITI_WAY_SCATTER, /* parts to their owners, who encode the sum for all: two encodings */
    TACITI_WAY_GATHER   /* everything to all: one encoding; only contributions have residuals */
} taciti_way;

typedef enum taciti_residual_form {
    TACITI_RESIDUAL_F32,
    TACITI_RESIDUAL_BF16,
    TACITI_RESIDUAL_INT8
} taciti_residual_form;

/* What a rank keeps of its encodings for the next step (residual.h). {0}: nothing. */
typedef struct taciti_feedback {
    bool errors;                 /* errors are added to what is encoded next */
    double decay;                /* factor of a contribution's residual; 1: nothing is forgotten */
    double momentum;             /* of contributions; 0: none. Without errors u itself is encoded, and stays (Signum) */
    bool estimates;              /* EF21 instead: without errors, decay and momentum */
    bool half;                   /* results have none: what ranks own is not the sum that they gather */
    taciti_residual_form stored; /* how errors are; other than f32: without estimates and momentum */
} taciti_feedback;

/* A sum, from the options to the codec: what is not said is 0. */
typedef struct taciti_encoding {
    const taciti_codec *codec;
    const void *options;           /* the codec's; borrowed; NULL if it has none */
    uint64_t seed;                 /* of the keys */
    taciti_codec_setting expected; /* messages are sized for payloads at this setting; every other one is legal, too */
    taciti_codec_setting back;     /* what predictions expect of results; factor 0: as `expected` */
    taciti_feedback feedback;
    taciti_way way; /* of payloads between their owners */
} taciti_encoding;

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

/* What an exchange does with a bucket in a step. */
typedef struct taciti_bucket_task {
    size_t bucket;
    int64_t step;
    taciti_codec_setting setting[TACITI_PAYLOAD_KINDS];
    taciti_phase phase;
    bool dense;                  /* the number format exchange.wire instead of the codec */
    taciti_codec_setting trial;  /* contributions are also encoded at this setting, for the tally only; factor 0:
                                    not wanted */
    uint64_t *histogram;         /* contributions are added to its 2048 bins; NULL: not wanted */
    taciti_tally *tallies;       /* [TACITI_PAYLOAD_KINDS], added to; NULL: not wanted */
    const taciti_layout *layout; /* whose gaps are 0 in what is decoded; borrows; NULL: there are none */
} taciti_bucket_task;

typedef struct taciti_payload {
    void *data;
    size_t bytes;
} taciti_payload;

/* Returns E_CONFIG for a codec that no exchange supports. */
static inline tacit_status taciti_encoding_check(const taciti_encoding *encoding) {
    const taciti_codec *codec = encoding->codec;
    if (codec->aggregation != TACITI_CODEC_LINEAR && codec->rounds == 1) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "codec %s cannot carry an all-reduce: it needs class SUM or GATHER and one round", codec->name);
}

enum { TACITI_EXPECTED_FACTOR = 100 }; /* where no factor is given */

/* Elements per element sent of contributions, as expected; 1 for codecs without a factor. */
double taciti_encoding_factor(const taciti_encoding *encoding);

/* The setting of a result of so many contributions: it has no more elements than they have together. */
taciti_codec_setting taciti_encoding_result_setting(const taciti_encoding *encoding, int contributions);

/* Mean bytes of a payload of n floats, between that many ranks. Matrices count as ones of 1024 columns. */
double taciti_encoding_expected_bytes(const taciti_encoding *encoding, taciti_codec_setting setting, size_t n,
                                      int ranks);

static inline size_t taciti_payload_bound(const taciti_encoding *encoding, size_t n) {
    return encoding->codec->bound(encoding->codec, encoding->options, n);
}

/* Bytes of scratch memory for encoding or decoding up to n floats, a multiple of 64. */
static inline size_t taciti_payload_scratch_bytes(const taciti_encoding *encoding, size_t n) {
    if (encoding->codec->scratch_bytes == NULL) return 0;
    return taciti_round_up(encoding->codec->scratch_bytes(encoding->codec, encoding->options, n), TACITI_ALIGN_BYTES);
}

static inline size_t taciti_payload_state_bytes(const taciti_encoding *encoding, size_t n) {
    return encoding->codec->state_bytes == NULL ? 0 : encoding->codec->state_bytes(encoding->options, n);
}

/* Returns the call for the payload that `rank` encodes, of the part of the array that begins at element `at`. */
static inline taciti_codec_call taciti_payload_call(const taciti_encoding *encoding, const taciti_bucket_task *task,
                                                    int rank, taciti_payload_kind kind, size_t at) {
    taciti_codec_call call = {.options = encoding->options, .setting = task->setting[kind]};
    if (encoding->codec->keyless) return call; /* 40 ns, which short arrays would feel */
    const int who = encoding->codec->shared_key ? (int)TACITI_CODEC_ALL_RANKS : rank;
    const uint64_t key = taciti_codec_key(encoding->seed, task->step, who, task->bucket);
    call.key = taciti_rng_key(key, at * TACITI_PAYLOAD_KINDS + kind);
    return call;
}

/* Adds to the total of a kind; single encodings are too short and too many to be spans. Communication thread. */
static inline void taciti_payload_time(taciti_comm *comm, taciti_span_kind kind, int64_t spent_ns) {
    taciti_trace_count(taciti_comm_trace(comm), kind, spent_ns);
}

/* Encodes x[n] into out->data and sets out->bytes. error[n], if not NULL, receives x - decode(payload). */
static inline tacit_status taciti_payload_encode(taciti_comm *comm, const taciti_codec *codec,
                                                 const taciti_codec_call *call, const float *x, size_t n, float *error,
                                                 taciti_payload *out) {
    const size_t bound = codec->bound(codec, call->options, n);
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(codec->encode(codec, call, x, n, out->data, error, &out->bytes));
    taciti_payload_time(comm, TACITI_SPAN_ENCODE, taciti_now_ns() - begin_ns);
    if (codec->fixed_size ? out->bytes == bound : out->bytes <= bound) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "codec %s wrote %zu bytes for %zu floats where its bound is %zu", codec->name,
                       out->bytes, n, bound);
}

/* Bins of magnitudes: bits 30 .. 20 of a float; of one in four lines. */
enum { TACITI_HISTOGRAM_SHIFT = 20, TACITI_HISTOGRAM_STRIDE = 4 };

/* Counts what the task wants to know of a contribution x[n] besides its encoding: the histogram, and what the trial
 * would send. The trial's payload is written to `buffer` (bound() bytes), which the next encode overwrites. */
static inline tacit_status taciti_payload_observe(taciti_comm *comm, const taciti_codec *codec,
                                                  const taciti_bucket_task *task, taciti_codec_call call,
                                                  const float *x, size_t n, void *buffer) {
    taciti_payload payload = {.data = buffer};
    if (task->histogram != NULL)
        taciti_kernels_get()->histogram(task->histogram, x, n, TACITI_HISTOGRAM_SHIFT, TACITI_HISTOGRAM_STRIDE);
    if (task->trial.factor <= 0) return TACIT_OK;
    call.setting = task->trial;
    call.tally = &task->tallies[TACITI_PAYLOAD_CONTRIBUTION].trial;
    return taciti_payload_encode(comm, codec, &call, x, n, NULL, &payload);
}

/* Posts the receive for the payload of n floats: of exactly bound() bytes if payloads have fixed size, else of up to
 * bound() bytes. */
static inline tacit_status taciti_payload_receive(taciti_comm *comm, const taciti_encoding *encoding, int rank,
                                                  void *into, size_t n, taciti_engine_request *out) {
    const size_t bound = taciti_payload_bound(encoding, n);
    if (encoding->codec->fixed_size) return taciti_comm_irecv(comm, rank, into, bound, out);
    return taciti_comm_irecv_up_to(comm, rank, into, bound, out);
}

/* If `status` is the error of a decoder, logs whose payload it has refused. Returns `status`. */
static inline tacit_status taciti_payload_refused(tacit_status status, const taciti_encoding *encoding,
                                                  const taciti_bucket_task *task, int rank, size_t bytes) {
    if (status == TACIT_OK) return status;
    return taciti_fail(status, "bucket %zu of step %" PRId64 ": the %s payload of rank %d (%zu bytes) is malformed",
                       task->bucket, task->step, encoding->codec->name, rank, bytes);
}

#endif

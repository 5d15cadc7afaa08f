/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding for the wire, and the time that codecs take.
 */
#ifndef TACITI_EXCHANGE_PAYLOAD_H
#define TACITI_EXCHANGE_PAYLOAD_H

#include "base/clock.h"
#include "base/log.h"
#include "codec/codec.h"
#include "comm/comm.h"

/* Too short and too many to be spans of their own. Communication thread. */
static inline void taciti_payload_time(taciti_comm *comm, taciti_span_kind kind, int64_t spent_ns) {
    taciti_trace_count(taciti_comm_trace(comm), kind, spent_ns);
}

/* Encodes x[n] into out; dense codecs have payloads of one size, which is what receivers expect. error[n], if not NULL,
 * receives x - decode(payload). */
static inline tacit_status taciti_payload_encode(taciti_comm *comm, const taciti_codec *codec, const float *x, size_t n,
                                                 void *out, float *error) {
    const taciti_codec_call call = {0};
    const int64_t begin_ns = taciti_now_ns();
    size_t bytes = 0;
    TACITI_TRY(codec->encode(&call, x, n, out, error, &bytes));
    taciti_payload_time(comm, TACITI_SPAN_ENCODE, taciti_now_ns() - begin_ns);
    if (bytes == codec->bound(NULL, n)) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "codec %s wrote %zu bytes for %zu floats instead of %zu", codec->name, bytes,
                       n, codec->bound(NULL, n));
}

#endif

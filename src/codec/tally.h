/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks encoded of an array, in counts and times: one struct from the exchange, which fills it, to controllers and
 * the report of a step. A new figure is a member and a line of the table here, and the place that counts it.
 */
#ifndef TACITI_CODEC_TALLY_H
#define TACITI_CODEC_TALLY_H

#include "codec/codec.h"

/* Counts about one array, a bucket or the whole model: on one rank, or over ranks as the table says. 0: unknown, or
 * none. */
typedef struct taciti_tally {
    taciti_codec_tally sent;  /* at the factor that was used; x is gradient + residual */
    taciti_codec_tally trial; /* of the same x, by the selection that is tried; n = 0: not measured */
    double squares_period;    /* at the last step of a period (taciti_controller.period): |sum over the period of the
                                 gradient that the optimizer got|^2 */
    uint64_t bytes;           /* of the payloads that were sent, once per receiver */
    uint64_t pending;         /* contributions as sketches: sums that did not decode and were fetched */
    int64_t encode_ns, decode_ns; /* of these payloads and of those that were received; of one rank */
    int64_t run_ns;               /* the exchange, waits and hooks included */
} taciti_tally;

/* The members that ranks tell each other: X(how they combine over ranks, type, member). */
#define TACITI_TALLY_FIELDS(X)                                                                                         \
    X(SUM, double, sent.squares_in)                                                                                    \
    X(SUM, double, sent.squares_out)                                                                                   \
    X(SUM, uint64_t, sent.n)                                                                                           \
    X(SUM, uint64_t, sent.selected)                                                                                    \
    X(SUM, uint64_t, sent.near)                                                                                        \
    X(SUM, uint64_t, bytes)                                                                                            \
    X(SUM, uint64_t, pending)                                                                                          \
    X(SUM, int64_t, run_ns)                                                                                            \
    X(SUM, double, trial.squares_out)                                                                                  \
    X(SUM, uint64_t, trial.n)                                                                                          \
    X(SUM, uint64_t, trial.selected)                                                                                   \
    X(SUM, uint64_t, trial.near)                                                                                       \
    X(MAX, double, sent.threshold)                                                                                     \
    X(MAX, double, trial.threshold)

#endif

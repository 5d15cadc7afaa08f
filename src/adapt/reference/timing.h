/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds of a step at any factor, from steps at a few factors.
 *
 *   exchange(F) = latency + bytes(F) / rate + encode(F)   the communication thread is busy
 *   step(F)     = base + max(exchange(F) - hidden, share exchange(F))
 *
 * latency and rate: the line through two levels, a level being a factor that was used, one of them dense if the link
 * has not changed since; encode likewise, from compressed ones. base: what a step takes besides waiting; another one in
 * dense steps, because encoding takes time from computation. hidden: what backward hides. share: the last bucket's part
 * of the bytes, which nothing hides. Times are those of the slowest rank, so all ranks fit the same model.
 *
 * What steps did take corrects that: step(F) is multiplied by measured / predicted, which is averaged over dense and
 * over compressed steps. So where a factor was used, its time is the measured one, and the noise of that ratio says how
 * well dense and compressed steps can be told apart. {0} knows nothing. Plain bytes.
 */
#ifndef TACITI_ADAPT_REFERENCE_TIMING_H
#define TACITI_ADAPT_REFERENCE_TIMING_H

#include "adapt/adapt.h"
#include "adapt/change.h"

/* The median of the first three samples, which hold start-up costs; then a moving average. */
typedef struct taciti_timing_mean {
    double value, min, second; /* of the first two samples */
    int64_t samples;
} taciti_timing_mean;

typedef struct taciti_timing_level {
    double factor;                       /* 0: none */
    double bytes;                        /* of an exchange */
    taciti_timing_mean transfer, encode; /* seconds of an exchange without encode and decode; of those two */
    int64_t steps;                       /* that the averages hold; 0: they must be measured again */
    taciti_change change;                /* of the transfer */
} taciti_timing_level;

typedef struct taciti_timing {
    taciti_timing_level now, other; /* other: the last one with other bytes */
    taciti_timing_level dense;      /* the last dense one */
    taciti_timing_level coded;      /* the compressed one that was left last */
    double latency, seconds_per_byte;
    taciti_timing_mean base[2];     /* [0] dense, [1] compressed; 0: unknown */
    taciti_timing_mean measured[2]; /* likewise: seconds of a step over those predicted */
    taciti_noise noise;             /* of that ratio, of both kinds of steps */
    double encode_all, encode_sent; /* encode(F) = encode_all + encode_sent / F */
    double hidden, share;
    double statistics; /* seconds that gathering the statistics of one step takes; 0: unknown */
} taciti_timing;

/* Takes facts in. Returns the factor by which transfers have changed (adapt/change.h), 1: not at all. Latency and rate
 * then follow in proportion, until another level is measured again. The first step of a run is left out, unless it
 * waited for most of its time. */
double taciti_timing_observe(taciti_timing *timing, const taciti_adapt_facts *facts);

/* Whether dense and compressed steps were seen. */
bool taciti_timing_known(const taciti_timing *timing);

/* Bytes of an exchange and seconds of a step at a factor; 1: dense. taciti_timing_known() must hold. */
double taciti_timing_bytes(const taciti_timing *timing, double factor);
double taciti_timing_seconds(const taciti_timing *timing, double factor);

/* Standard error of the ratio of a compressed step's time to a dense one's, as far as noise makes it. */
double taciti_timing_error(const taciti_timing *timing);

#endif

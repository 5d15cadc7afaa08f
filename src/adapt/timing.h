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
 * of the bytes, which nothing hides. Times are those of the slowest rank, so all ranks fit the same model. {0} knows
 * nothing. Plain bytes.
 */
#ifndef TACITI_ADAPT_TIMING_H
#define TACITI_ADAPT_TIMING_H

#include "adapt/adapt.h"

typedef struct taciti_timing_level {
    double factor;   /* 0: none */
    double bytes;    /* of an exchange */
    double transfer; /* seconds of an exchange without encode and decode */
    double encode;   /* seconds of encode and decode */
    int64_t steps;   /* that the averages hold; 0: they are to be measured anew */
} taciti_timing_level;

typedef struct taciti_timing {
    taciti_timing_level now, other; /* other: the last one with other bytes */
    taciti_timing_level dense;      /* the last dense one; bytes 0: none was seen */
    double latency, seconds_per_byte;
    double base[2];                 /* [0] dense, [1] compressed; 0: unknown */
    double encode_all, encode_sent; /* encode(F) = encode_all + encode_sent / F */
    double hidden, share;
    int strange;             /* successive steps whose transfer is not what the level's was */
    double strange_transfer; /* their minimum */
} taciti_timing;

/* Takes a step in. Returns true if the link has changed: three successive transfers differ from the average of their
 * level by 30 % or more, in the same direction. Latency and rate then follow in proportion, until another level is
 * measured again. The first step of a run is left out, unless it waited for most of its time. */
bool taciti_timing_observe(taciti_timing *timing, const taciti_adapt_facts *facts);

/* Whether dense and compressed steps were seen. */
bool taciti_timing_known(const taciti_timing *timing);

/* Bytes of an exchange and seconds of a step at a factor; 1: dense. taciti_timing_known() must hold. */
double taciti_timing_bytes(const taciti_timing *timing, double factor);
double taciti_timing_seconds(const taciti_timing *timing, double factor);

#endif

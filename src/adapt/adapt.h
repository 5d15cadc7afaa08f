/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the codec setting from statistics. The contract of an adapter, to which later controllers (GraVAC, TAGC's
 * dynamic sparsification) are written. It sees reports of codecs, never bytes or ranks; what it returns was computed
 * from reduced numbers and is therefore the same on every rank.
 */
#ifndef TACITI_ADAPT_ADAPT_H
#define TACITI_ADAPT_ADAPT_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

/* What the exchange knows of one bucket after a step; every number is already reduced over ranks. */
typedef struct taciti_adapt_report {
    int64_t step;
    size_t bucket, n;      /* floats */
    double squares_before; /* sum of squares of the compensated gradient */
    double squares_after;  /* of what was sent */
    double payload_bytes;  /* mean over ranks */
    double seconds;        /* slowest rank: encode + transfer + decode */
} taciti_adapt_report;

typedef struct taciti_adapter {
    const char *name, *help, *source;
    size_t state_bytes; /* plain memory, saved in checkpoints as it is; zeroed at the start */
    /* Compression factor (original / sent, >= 1) for the next step of this bucket. Pure in (state, report). */
    double (*next_factor)(void *state, const taciti_adapt_report *report);
} taciti_adapter;

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Formulas of the route of sketches (route_sketch.c).
 */
#ifndef TACITI_EXCHANGE_ROUTE_SKETCH_H
#define TACITI_EXCHANGE_ROUTE_SKETCH_H

#include "codec/sketch.h"

typedef struct taciti_sketched {
    double contribution_bytes; /* a member to the owner */
    double pending_bytes;      /* index to, or from, a member and its values; 0: everything decodes */
    double reply_bytes;
} taciti_sketched;

/* Returns the bytes for a range of n > 0 floats among `members`. Pure. */
taciti_sketched taciti_sketched_of(const taciti_sketch_options *options, size_t n, int members, double factor);

/* Share of elements that do not decode at that load, elements per counter. */
double taciti_sketched_pending(double load);

#endif

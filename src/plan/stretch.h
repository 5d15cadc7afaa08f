/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: buckets as the recursion sees them. A few are taken one by one. Where there are more, runs of
 * about equal length in bytes are taken together, each as two stretches: its first bucket, and all the others behind
 * it.
 *
 * Why two suffice: within a run of equal buckets, seconds at which they are handed over and have arrived are convex in
 * the bucket's number (they are maxima of lines), so what holds the last one up is the run's first bucket with all
 * transfers in between, or its own handing over:
 *
 *   E_last = max(E_first + sum of c behind the first, h_last + c_last)
 *
 * Exact for equal buckets in groups. Otherwise what is left out is shorter than a run's irregularities; 600 buckets of
 * seven lengths, with jitter: below 0.3 % of a step (test_stretch.c).
 *
 * Where each transfer is waited for before the next begins (awc without overlap), a run is one stretch: everything in
 * it adds up. So do all buckets that leave together (dense without overlap).
 */
#ifndef TACITI_PLAN_STRETCH_H
#define TACITI_PLAN_STRETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/layout.h"

enum { TACITI_STRETCHES_SINGLE = 64, TACITI_STRETCHES_RUNS = 12 };

/* Buckets first .. last. The stretch's own transfer is that of the last bucket. */
typedef struct taciti_stretch {
    size_t first, last;
    int half; /* of its buckets (tensor/layout.h); runs, which have both, take turns */
} taciti_stretch;

typedef struct taciti_stretches {
    taciti_stretch *list; /* owned, as all below */
    size_t count;
    size_t *lengths; /* [length_count] floats: the different lengths of buckets, plain ones apart */
    size_t *buckets; /* [length_count] how many have it */
    bool *plain;     /* [length_count] these are not compressed */
    size_t length_count;
    size_t *length_of; /* [buckets] which of them */
    bool whole;        /* a stretch's own transfer is that of all its buckets */
} taciti_stretches;

/* single: most buckets that are taken one by one; 0: all are one stretch. Returns owned. */
tacit_status taciti_stretches_create(const taciti_layout *layout, size_t single, bool whole, taciti_stretches *out);
void taciti_stretches_destroy(taciti_stretches *stretches); /* {0} is fine */

/* A key of their number and of the lengths of buckets. */
uint64_t taciti_stretches_key(const taciti_stretches *stretches);

/* A quantity that every bucket of the same entry of `lengths` has: of a stretch's own, and of all its buckets, [count]
 * each. */
void taciti_stretches_fill(const taciti_stretches *stretches, const double *of_length, double *own, double *behind);

#endif

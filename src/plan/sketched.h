/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: what a member of a sum of sketches (exchange/sketch_reduce.h) sends, in the steps after the
 * first.
 *
 *   p = 1 / factor   share of elements that a member selects, of N members at independent places
 *   u = 1 - (1-p)^N  share of the union
 *   counters         n / ratio; ratio 0: as the union needs (taciti_sketch_room), about u n 17/16 / 0.78
 *   contribution     n bits of index and the counters, or n floats if that is no longer
 *   pending          elements that do not decode: none below a load (u n / counters) of 0.8185; above it those of the
 *                    2-core of a random 3-uniform hypergraph of that load c, u n q^3 with the largest solution of
 *                    q = 1 - exp(-3 c q^2) (Molloy, "Cores in random hypergraphs and Boolean formulas", 2005). They
 *                    cost an index of n bits on its way to the members, and a number from each of these
 */
#ifndef TACITI_PLAN_SKETCHED_H
#define TACITI_PLAN_SKETCHED_H

#include "codec/sketch.h"

typedef struct taciti_sketched {
    double contribution_bytes; /* a member to the owner */
    double pending_bytes;      /* index to, or from, a member and its values; 0: everything decodes */
    double reply_bytes;
} taciti_sketched;

/* Of a range of n > 0 floats among so many members. Pure. */
taciti_sketched taciti_sketched_of(const taciti_sketch_options *options, size_t n, int members, double factor);

/* Share of elements that do not decode at that load, elements per counter. */
double taciti_sketched_pending(double load);

#endif

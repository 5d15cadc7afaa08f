/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: a method's rounds as meetings (plan/recursion.h) whose transfers take what the links need.
 */
#ifndef TACITI_PLAN_ROUNDS_H
#define TACITI_PLAN_ROUNDS_H

#include "plan/links.h"
#include "plan/recursion.h"

typedef struct taciti_rounds {
    taciti_meetings *list; /* [period]; owned, as all below */
    size_t period;
    taciti_meeting *meetings;
    size_t meeting_count, buckets;
    int *members;
    taciti_transfer_time *times; /* [meetings][buckets] */
    double *transfer_s;          /* [meetings][buckets]: what the meetings point to */
} taciti_rounds;

/* Borrows scene and method. Returns owned. */
tacit_status taciti_rounds_create(const taciti_scene *scene, const taciti_method *method, const taciti_links *links,
                                  taciti_rounds *out);
void taciti_rounds_destroy(taciti_rounds *rounds); /* {0} is fine */

/* Transfers become latency x latency part + bytes x bytes part. */
void taciti_rounds_weigh(taciti_rounds *rounds, double latency, double bytes);

/* Seconds of all buckets, of the busiest meeting of a round; mean over rounds. */
double taciti_rounds_transfer_s(const taciti_rounds *rounds);

#endif

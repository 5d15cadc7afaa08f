/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to the planner: the rounds of a method as meetings (plan/recursion.h) with the times of their transfers.
 * Meetings of a round with equal demand share these times.
 */
#ifndef TACITI_PLAN_ROUNDS_H
#define TACITI_PLAN_ROUNDS_H

#include "plan/links.h"
#include "plan/recursion.h"
#include "plan/stretch.h"

typedef struct taciti_rounds {
    const taciti_stretches *stretches; /* borrows */
    const taciti_topology *topology;   /* NULL: all ranks meet; borrowed, as the next */
    const taciti_codec *wire;
    uint64_t stretches_key; /* of those that the tables below were made of */
    double nic_bytes;       /* with a topology: of the busiest host's link per step, mean over a period */
    taciti_meetings *list;  /* [period]; owned, as all below */
    size_t period;
    taciti_meeting *meetings;
    size_t *kind_of;     /* [meetings] */
    size_t *meetings_of; /* [kinds] number of meetings; in the same block */
    size_t meeting_count, kind_count;
    int *members;
    taciti_transfer *transfers;      /* [kinds][lengths] */
    double spread[TACITI_SCENARIOS]; /* factors of the time of compressed bytes */
    double *transfer_s, *behind_s;   /* [kinds][stretches][TACITI_SCENARIOS]: what the meetings point to */
} taciti_rounds;

/* Borrows scene, method and stretches. Returns owned; all transfer times are 0. */
tacit_status taciti_rounds_create(const taciti_scene *scene, const taciti_method *method,
                                  const taciti_stretches *stretches, taciti_rounds *out);
/* Makes the rounds those of another method with the same topology and a wire of the same length, and of stretches with
 * the same key; all transfer times become 0. Borrows the stretches. */
void taciti_rounds_adopt(taciti_rounds *rounds, const taciti_method *method, const taciti_stretches *stretches);

void taciti_rounds_destroy(taciti_rounds *rounds); /* {0} is fine */

/* Sets the transfer times of a scenario: latency x latency part + bytes x bytes part of the time on these links. */
tacit_status taciti_rounds_time(taciti_rounds *rounds, size_t scenario, const taciti_links *links, double latency,
                                double bytes);

/* Folds the times, and which meeting has which, into a key (plan/reuse.h). */
uint64_t taciti_rounds_key(const taciti_rounds *rounds, uint64_t key);

/* Shares of the total transfer time: its uncertainty, and the part covered by measurements. */
void taciti_rounds_doubts(const taciti_rounds *rounds, const taciti_links *links, double *error, double *calibrated);

/* Seconds of all buckets in a scenario, of the busiest meeting of a round, or of two where the topology alternates;
 * mean over mixes. */
double taciti_rounds_transfer_s(const taciti_rounds *rounds, size_t scenario);

#endif

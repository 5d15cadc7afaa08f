/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: how candidates are made.
 */
#ifndef TACITI_ADVISE_CANDIDATES_BUILD_H
#define TACITI_ADVISE_CANDIDATES_BUILD_H

#include "advise/candidates.h"

/* The sources of candidates. */
typedef struct taciti_candidates_builder {
    const taciti_settings *settings;
    const taciti_hosts *hosts;
    const char *const *wanted;
    taciti_candidates *out;
    /* at hand: */
    const taciti_strategy *strategy;
    const taciti_pattern *pattern;
    bool asked; /* the settings ask for the topology of the pattern */
    bool ours;  /* the settings have this strategy */
} taciti_candidates_builder;

/* Returns the new candidate, or NULL if there is no room for one. */
taciti_candidate *taciti_candidates_append(taciti_candidates *candidates, const char *strategy, const char *topology,
                                           const taciti_method *method);

/* Fills in the label of a method that is otherwise complete. */
void taciti_method_label(const taciti_pattern *pattern, taciti_method *method);

/* candidates_compressed.c: appends those with compressed traffic. */
void taciti_candidates_compress(const taciti_candidates_builder *builder);

/* Whether the settings compress traffic of this pattern; factor 1 is dense. */
bool taciti_candidates_is_compressed(const taciti_settings *settings, const taciti_pattern *pattern);

bool taciti_plan_compression_equal(const taciti_plan_compression *a, const taciti_plan_compression *b);

#endif

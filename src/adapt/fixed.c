/* SPDX-License-Identifier: Apache-2.0
 *
 * fixed: the configured factor, in every step.
 */
#include "adapt/adapt.h"

static size_t state_bytes(size_t buckets) {
    (void)buckets;
    return 0;
}

static void start(const void *options, const taciti_adapt_start *begin, void *state, taciti_decision *decision,
                  double *factors) {
    (void)options;
    (void)state;
    (void)factors;
    *decision = (taciti_decision){.factor = begin->factor};
}

static void decide(const void *options, const taciti_adapt_facts *facts, void *state, taciti_decision *decision,
                   double *factors) {
    (void)options;
    (void)facts;
    (void)state;
    (void)factors;
    decision->changed = false;
}

const taciti_controller taciti_controller_fixed = {
    .name = "fixed",
    .help = "the factor compress.factor in every step",
    .source = "-",
    .state_bytes = state_bytes,
    .start = start,
    .decide = decide,
};

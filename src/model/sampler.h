/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the next token from logits.
 */
#ifndef TACITI_MODEL_SAMPLER_H
#define TACITI_MODEL_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

typedef struct taciti_sampler {
    double temperature; /* 0: always the most likely token */
    size_t top_k;       /* only the k most likely; 0: all */
    double top_p;       /* the smallest set with this probability (Holtzman et al. 1904.09751); 1: all */
} taciti_sampler;

/* Returns the index of the chosen token, or -1 if no logit is finite. Overwrites logits[n]; order[n] is scratch. unit:
 * a uniform random number in [0, 1). Any thread. */
int32_t taciti_sampler_choose(const taciti_sampler *sampler, float *logits, int32_t *order, size_t n, double unit);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Cost formulas: what a step would take on a described cluster. The formulas of a codec, an exchange or a strategy live
 * beside the code they describe; this folder only composes them.
 */
#ifndef TACITI_PLAN_PLAN_H
#define TACITI_PLAN_PLAN_H

#include <stddef.h>

/* A link as two numbers: seconds per message and seconds per byte. */
typedef struct taciti_link {
    double alpha_s, beta_s_per_byte;
} taciti_link;

/* When each bucket's gradient is ready, counted from the start of backward, and how large it is. */
typedef struct taciti_profile_bucket {
    double ready_s;
    size_t n; /* floats */
} taciti_profile_bucket;

typedef struct taciti_profile {
    double forward_s, backward_s, update_s;
    const taciti_profile_bucket *buckets;
    size_t bucket_count;
} taciti_profile;

#endif

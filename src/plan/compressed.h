/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* Inside of the planner: what a compressed sum over all ranks sends and computes (exchange/: `compress`).
 *
 *   H hosts (ranks, where ranks are arranged flat or share one host), L lanes of each; an array of n floats is cut into
 *   shares of n / L, one per lane, and chunks of n / (L H). e_f(m): mean payload of m floats at the factor f
 *
 *   scatter   a lane sends e_f(chunk) to each other host and, as owner, e_b(chunk) of the sum; b: the factor back
 *   gather    a lane sends e_f(share) to each other host; everybody adds all of them
 *   linear    the payload of the whole array, of floats, goes through the dense all-reduce; once per round
 *
 *   codec     scatter  n/L encode + n/(LH) (decode + (H-1) add + encode_b) + n/L decode_b
 *             gather   n/L (encode + decode + (H-1) add)
 *             linear   n (encode + decode)
 *
 *   A sum of H arrays of which each has a share p of elements that are not 0 has 1 - (1-p)^H of them: on its way back
 *   no more than these are sent.
 *
 * Seconds per float are those of the cluster file (`compression`), lines between its factors in log(factor).
 */
/* clang-format on */
#ifndef TACITI_PLAN_COMPRESSED_H
#define TACITI_PLAN_COMPRESSED_H

#include "plan/plan.h"

typedef struct taciti_compressed_sum {
    taciti_length length; /* of an array whose dense all-reduce would send and add as much */
    double codec_s;       /* encoding and decoding on the communication thread of a lane; 0: unknown */
    size_t fillings;      /* of the pipeline of messages: all but the first are encoded while others travel */
    int wire_hops;        /* messages between hosts that wait for each other */
} taciti_compressed_sum;

/* Of an array of n > 0 floats. Returns E_MEMORY if memory is exhausted. */
tacit_status taciti_compressed_sum_of(const taciti_scene *scene, const taciti_method *method, size_t n,
                                      taciti_compressed_sum *out);

#endif

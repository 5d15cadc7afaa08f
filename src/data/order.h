/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of samples, a pure function of (seed, sample index): any rank can compute any sample of the run.
 *
 * `tokens` train tokens hold W = max(1, floor((tokens - time) / time)) windows of `time` tokens (each also needs the
 * token after it, the last target). Sample g is window perm(g mod W) of epoch floor(g / W). All cuts of an epoch are
 * shifted by a phase of 0 .. phases - 1 = tokens - W time - 1, so over the epochs every token is seen in every
 * position; W is one less than the windows that would fit, which leaves room for any phase. perm is a Feistel network
 * over the smallest power of four >= W, iterated until the result is below W (cycle walking; Black and Rogaway 2002,
 * "Ciphers with arbitrary finite domains"): a permutation of [0, W) without a table.
 */
#ifndef TACITI_DATA_ORDER_H
#define TACITI_DATA_ORDER_H

#include <stdint.h>

typedef struct taciti_sample_order {
    uint64_t windows; /* per epoch, >= 1 */
    uint64_t phases;  /* legal shifts, 1 .. 2 time - 1 */
    uint64_t time;
} taciti_sample_order;

/* Needs time >= 1 and tokens >= time + 1. */
taciti_sample_order taciti_sample_order_make(uint64_t tokens, uint64_t time);

/* Returns the position of the first token of sample g, at most tokens - time - 1. */
uint64_t taciti_sample_order_start(const taciti_sample_order *order, uint64_t seed, uint64_t sample);

/* Returns element i of the keyed permutation of [0, n); i < n <= 2^62. */
uint64_t taciti_sample_order_permute(uint64_t key, uint64_t n, uint64_t i);

#endif

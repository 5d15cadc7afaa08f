/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers that collectives are checked with: small integers held in floats, so that every order of additions and
 * every wire format gives the exact sum. They repeat, so that filling and checking cost little.
 */
#ifndef TACITI_BENCH_COLLECTIVE_NUMBERS_H
#define TACITI_BENCH_COLLECTIVE_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "tacit/tacit.h"

typedef struct taciti_numbers {
    int ranks;
    size_t period_n;
    float *table; /* [ranks + 1][period_n]: what each rank contributes, and the sum; owned */
} taciti_numbers;

/* Sums are at most 255: exact in bf16, too. */
tacit_status taciti_numbers_create(int ranks, taciti_numbers *out);
void taciti_numbers_destroy(taciti_numbers *numbers); /* {0} is fine */

/* Write, or compare x with, the first n elements of the contribution of rank `whose`; of the sum if whose == ranks. */
void taciti_numbers_write(const taciti_numbers *numbers, int whose, float *x, size_t n);
bool taciti_numbers_are(const taciti_numbers *numbers, int whose, const float *x, size_t n);

#endif

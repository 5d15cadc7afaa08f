/* SPDX-License-Identifier: Apache-2.0
 *
 * An asynchronous run computed again, in doubles, on one thread, and from the logs of its ranks alone. It shares no
 * code with the exchange, nor the reader of logs: the rule is written down a second time.
 */
#ifndef TACITI_EXCHANGE_TEST_ASYNC_REFERENCE_H
#define TACITI_EXCHANGE_TEST_ASYNC_REFERENCE_H

#include "topo/topo.h"

enum { TEST_ASYNC_RANKS = 8 };

typedef struct test_async_reference {
    const char *folder; /* of the logs */
    const taciti_topology *topology;
    double gamma;
    size_t n;
    double (*start)(int rank, size_t i);                /* x before the first step */
    double (*update)(int rank, int64_t step, size_t i); /* is added in every step */

    /* results */
    double *x[TEST_ASYNC_RANKS]; /* [n]; the caller's */
    int64_t made[TEST_ASYNC_RANKS], clock;
    double moved[TEST_ASYNC_RANKS]; /* sum of the squares of all changes by neighbours */
    char why[128];                  /* the logs make no sense */
} test_async_reference;

/* Returns false, with `why`, for logs that do not fit the rule. */
bool test_async_compute(test_async_reference *reference);

#endif

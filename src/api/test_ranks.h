/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of the C interface as processes of their own, for tests: forks of the test, which meet in a store in memory
 * that all of them share.
 */
#ifndef TACITI_API_TEST_RANKS_H
#define TACITI_API_TEST_RANKS_H

#include <stdio.h>
#include <unistd.h>

#include "tacit/tacit.h"

/* cmocka's assertions are of no use in a fork: what fails there ends it. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (condition) break;                                                                                          \
        (void)fprintf(stderr, "%s:%d: not true: %s; %s\n", __FILE__, __LINE__, #condition, tacit_error_text());        \
        _exit(1);                                                                                                      \
    } while (0)
#define OK(call) CHECK((call) == TACIT_OK)

/* Memory that forks share, filled with 0; lives as long as the test. */
void *test_shared(size_t bytes);

/* An empty store. */
typedef struct test_store test_store;
test_store *test_store_create(void);
tacit_store test_store_of(test_store *store);

/* Runs the function in `ranks` processes, but not in `absent` (-1: in all), and ends the test unless all of them return
 * within a minute. */
typedef void test_rank(int rank, int ranks, void *context);
void test_ranks_run(int ranks, int absent, test_rank *run, void *context);

/* Opens the communicator of a rank; settings NULL: with a start and a timeout that suit a test. */
tacit_comm *test_ranks_open(test_store *store, const tacit_settings *settings, int rank, int ranks);

#endif

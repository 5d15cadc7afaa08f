/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as threads of one process, for tests: a world of mailboxes under one lock. Small messages are copied at once;
 * larger ones are read from the sender's array only when the receiver has matched them, as MPI does, so that a schedule
 * which touches an array too early is found by the thread sanitizer or by wrong sums.
 */
#ifndef TACITI_COMM_TEST_ENGINE_H
#define TACITI_COMM_TEST_ENGINE_H

#include <stdio.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "comm/seal.h"

/* cmocka's assertions end the test with a long jump, which only works on the test's own thread: what fails on a rank's
 * thread ends the program. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct test_world test_world;

test_world *test_world_create(int size);
void test_world_destroy(test_world *world);

/* Rank `rank` of the world. */
taciti_engine test_world_seat(test_world *world, int rank);

/* The work of one rank; runs on its own thread, with its communicator open. Closes nothing. */
typedef void test_rank(taciti_comm *comm, void *context);

/* Opens a communicator per rank, runs `rank` on all of them and closes them. If the environment says
 * TACIT_TEST_ENGINE=tcp, the ranks are connected by the TCP engine instead: by shared memory, with TACIT_TEST_SOCKETS
 * by Unix-domain sockets, with TACIT_TEST_TCP over TCP. TACIT_TEST_ENGINE=poll: the engine cannot sleep until something
 * moves, as MPI. */
void test_world_run(int size, const taciti_comm_options *options, test_rank *rank, void *context);

/* Memory that two ranks share, Unix-domain sockets or TCP carry the bytes of the TCP engine. */
typedef enum test_way { TEST_OVER_MEMORY, TEST_OVER_SOCKETS, TEST_OVER_TCP, TEST_WAYS } test_way;

/* The key that ranks connected by sockets have. The environment chooses its cipher: TACIT_TEST_KEY=aes (where the CPU
 * has it) or xchacha; NULL without it. Borrowed. */
const taciti_seal_key *test_seal_key(void);

/* A key of 32 such bytes. */
taciti_seal_key test_seal_key_of(uint8_t byte);

/* True if test_world_run() uses sockets. */
bool test_over_tcp(void);

/* The address sanitizer makes trials three times slower: whether one of many, whose indices have this sum, is left out
 * there. All pairs of two indices are left of those of three. */
static inline bool test_spares(int sum) {
#if defined(__SANITIZE_ADDRESS__)
    return sum % 2 != 0;
#else
    (void)sum;
    return false;
#endif
}

/* From now on `count` ranks claim to share a host; 0, as at first: all of them. */
void test_ranks_per_host(int count);

/* From now on rank r claims to be on host number hosts[r]; borrowed. NULL: test_ranks_per_host() counts again. */
void test_hosts(const int *hosts);

/* Bytes of data messages that the rank of this communicator has sent to ranks that claim another host, since its
 * world began. */
uint64_t test_bytes_to_other_hosts(const taciti_comm *comm);

/* Returns the most bytes that ranks of one host have sent to other hosts since each had sent `before`. Collective. */
double test_bytes_of_busiest_host(taciti_comm *comm, uint64_t before);

/* Options fit for tests: no waiting for ever, a small segment. */
taciti_comm_options test_comm_options(bool thread);

/* Log lines at warning and above are kept here. */
void test_log_keep(void);
int test_log_count(const char *needle); /* lines that contain it */
void test_log_drop(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the MPI test programs share: checks that name the rank, and a log on stderr.
 */
#ifndef TACIT_TESTS_MPI_CHECK_H
#define TACIT_TESTS_MPI_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/comm.h"
#include "comm/guard.h"

static int g_rank = -1;

/* Ends the whole job: the launcher kills the others when one process ends with an error. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "%s:%d: rank %d: not true: %s\n", __FILE__, __LINE__, g_rank, #condition);           \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static inline void print_line(void *context, taciti_log_level level, const char *line) {
    static const char *const NAMES[] = {"debug", "info", "warning", "error"};
    (void)context;
    (void)fprintf(stderr, "%s: %s\n", NAMES[level], line);
}

/* Opens with the defaults changed by TEST_THREAD, TEST_TIMEOUT, TEST_WARN, TEST_RATE, TEST_SEGMENT and TACIT_COMM_MEET.
 */
static inline taciti_comm *open_comm(void) {
    const char *v = NULL;
    taciti_comm_options options = {
        .thread = true, .timeout_s = 15, .warn_s = 3, .start_s = 60, .stall_s = 60, .segment_bytes = 1 << 16};
    if ((v = getenv("TEST_THREAD")) != NULL) options.thread = *v == '1';
    if ((v = getenv("TEST_TIMEOUT")) != NULL) options.timeout_s = strtod(v, NULL);
    if ((v = getenv("TEST_WARN")) != NULL) options.warn_s = strtod(v, NULL);
    if ((v = getenv("TEST_START")) != NULL) options.start_s = strtod(v, NULL);
    if ((v = getenv("TEST_STALL")) != NULL) options.stall_s = strtod(v, NULL);
    if ((v = getenv("TEST_RATE")) != NULL) options.rate_mbps = strtod(v, NULL);
    if ((v = getenv("TEST_SEGMENT")) != NULL) options.segment_bytes = strtoll(v, NULL, 10);
    if ((v = getenv("TACIT_COMM_MEET")) != NULL) (void)snprintf(options.meet.text, sizeof options.meet.text, "%s", v);
    taciti_guard_install(_exit);
    taciti_log_set_sink(print_line, NULL, TACITI_LOG_INFO);
    taciti_comm *comm = NULL;
    const tacit_status status = taciti_comm_open(&options, &comm);
    if (status != TACIT_OK) exit(tacit_status_exit_code(status));
    g_rank = taciti_comm_rank(comm);
    return comm;
}

#endif

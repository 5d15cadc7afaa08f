/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs say facts. The library formats a line and hands it to the sink that the program installed; without a sink the
 * line is dropped, so the library itself never prints. Whoever decides an error logs it once, through taciti_fail();
 * callers only forward the status.
 */
#ifndef TACITI_BASE_LOG_H
#define TACITI_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "tacit/tacit.h"

typedef enum taciti_log_level {
    TACITI_LOG_DEBUG,
    TACITI_LOG_INFO,
    TACITI_LOG_WARN,
    TACITI_LOG_ERROR,
} taciti_log_level;

#if defined(__GNUC__)
#define TACITI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TACITI_PRINTF(fmt, args)
#endif

/* Receives one line without its newline. May be called by any thread; must not call back into the log. */
typedef void taciti_log_sink(void *context, taciti_log_level level, const char *line);

/* Installs the sink (NULL: none) and the lowest level that reaches it. Call before threads start. */
void taciti_log_set_sink(taciti_log_sink *sink, void *context, taciti_log_level lowest);

/* Any thread. Lines longer than 2047 bytes are cut. */
void taciti_log(taciti_log_level level, const char *format, ...) TACITI_PRINTF(2, 3);

/* Logs at level error and returns `status`: `return taciti_fail(TACIT_E_DATA, "%s: ...", path);` Any thread. */
tacit_status taciti_fail(tacit_status status, const char *format, ...) TACITI_PRINTF(2, 3);

/* Of several processes that work together, what all of them refuse alike is said once. */
typedef enum taciti_log_mode {
    TACITI_LOG_DIRECT, /* lines of taciti_fail() go to the sink; as at first */
    TACITI_LOG_KEEP,   /* so they do, and are kept for the comparison */
    TACITI_LOG_HOLD,   /* they wait for taciti_log_settle(); not those of E_PEER, which are of one process anyway */
} taciti_log_mode;
void taciti_log_set_mode(taciti_log_mode mode);

/* A digest of the lines kept or waiting; 0: there are none. Any thread. */
uint64_t taciti_log_held(void);

/* Lines that wait go to the sink (show) or are dropped; what was kept is forgotten. Any thread. */
void taciti_log_settle(bool show);

/* Forwards an error that was logged where it was decided. */
#define TACITI_TRY(expression)                                                                                         \
    do {                                                                                                               \
        const tacit_status taciti_try_status_ = (expression);                                                          \
        if (taciti_try_status_ != TACIT_OK) return taciti_try_status_;                                                 \
    } while (0)

#endif

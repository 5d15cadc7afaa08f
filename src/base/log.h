/* SPDX-License-Identifier: Apache-2.0
 *
 * Logging. The library formats a line and passes it to the sink that the program has installed. Without a sink the line
 * is dropped: the library itself never prints. The function that detects an error logs it once, with taciti_fail(); its
 * callers only forward the status.
 */
#ifndef TACITI_BASE_LOG_H
#define TACITI_BASE_LOG_H

#include <stdarg.h>

#include "tacit/tacit.h"

/* Levels and sinks are those of the C interface. */
typedef tacit_log_level taciti_log_level;
#define TACITI_LOG_DEBUG TACIT_LOG_DEBUG
#define TACITI_LOG_INFO TACIT_LOG_INFO
#define TACITI_LOG_WARN TACIT_LOG_WARN
#define TACITI_LOG_ERROR TACIT_LOG_ERROR

#if defined(__GNUC__)
#define TACITI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TACITI_PRINTF(fmt, args)
#endif

/* Receives one line without its newline. Called by any thread, but by one at a time; must not log itself. */
typedef tacit_log_callback taciti_log_sink;

/* Installs the sink (NULL: none) and the lowest level passed to it. Any thread. */
void taciti_log_set_sink(taciti_log_sink *sink, void *context, taciti_log_level lowest);

/* Where the lines about a subject go instead: a communicator has a sink of its own. The threads that work for a subject
 * name it; a thread that names none, or one without a route, logs to the sink above. */
typedef struct taciti_log_route {
    struct taciti_log_route *next; /* used by the log */
    const void *subject;
    taciti_log_sink *sink;
    void *context;
    taciti_log_level lowest;
} taciti_log_route;

/* Replaces the route by *value; NULL: the subject has none from now on. The route is zero at first, and borrowed while
 * it has a value. Returns when no line is on its way through the old one. Any thread. */
void taciti_log_set_route(taciti_log_route *route, const taciti_log_route *value);

/* From now on lines of this thread are about this subject, which is compared only; NULL, as at first: about none. */
void taciti_log_about(const void *subject);
const void *taciti_log_subject(void);

/* Logs one line; lines longer than 2047 bytes are truncated. Any thread. */
void taciti_log(taciti_log_level level, const char *format, ...) TACITI_PRINTF(2, 3);
void taciti_log_list(taciti_log_level level, const char *format, va_list args) TACITI_PRINTF(2, 0);

/* Logs at level error and returns `status`: `return taciti_fail(TACIT_E_DATA, "%s: ...", path);` Any thread. */
tacit_status taciti_fail(tacit_status status, const char *format, ...) TACITI_PRINTF(2, 3);

/* Until the call with NULL, lines of this thread reach no sink, and `reason` holds the newest error: why something that
 * may be impossible was refused. */
enum { TACITI_REASON_BYTES = 256 };
void taciti_log_capture(char reason[TACITI_REASON_BYTES]);

/* The line of the last taciti_fail() of this thread, "" before the first. Valid until the next one. */
enum { TACITI_ERROR_BYTES = 2048 };
const char *taciti_error_text(void);

/* Sets that text without a line in the log: of an error that another thread or rank has logged. */
void taciti_error_set(const char *format, ...) TACITI_PRINTF(1, 2);

/* An error that all ranks share is logged by rank 0; the others return it with its text. */
#define TACITI_FAIL_TOGETHER(rank, status, ...)                                                                        \
    ((rank) == 0 ? taciti_fail((status), __VA_ARGS__) : (taciti_error_set(__VA_ARGS__), (status)))

/* Deduplication across processes: an error that every process of a job reports identically is printed once. */
typedef enum taciti_log_mode {
    TACITI_LOG_DIRECT, /* lines of taciti_fail() go to the sink (default) */
    TACITI_LOG_KEEP,   /* as DIRECT, and their digest is recorded for the comparison */
    TACITI_LOG_HOLD,   /* held back until taciti_log_settle(), except E_PEER, which concerns one process */
} taciti_log_mode;
void taciti_log_set_mode(taciti_log_mode mode);

/* Digest of the recorded or held lines; 0 if there are none. Any thread. */
uint64_t taciti_log_held(void);

/* Passes held lines to the sink if `show`, else drops them, and clears the record. Any thread. */
void taciti_log_settle(bool show);

/* Returns the status of `expression` to the caller unless it is OK. The error has already been logged. */
#define TACITI_TRY(expression)                                                                                         \
    do {                                                                                                               \
        const tacit_status taciti_try_status_ = (expression);                                                          \
        if (taciti_try_status_ != TACIT_OK) return taciti_try_status_;                                                 \
    } while (0)

#endif

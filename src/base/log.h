/* SPDX-License-Identifier: Apache-2.0
 *
 * Logging. The library formats a line and passes it to the sink that the program has installed. Without a sink the line
 * is dropped: the library itself never prints. The function that detects an error logs it once, with taciti_fail(); its
 * callers only forward the status.
 */
#ifndef TACITI_BASE_LOG_H
#define TACITI_BASE_LOG_H

#include <stdarg.h>
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

/* Receives one line without its newline. Called by any thread, but by one at a time; must not log itself. */
typedef void taciti_log_sink(void *context, taciti_log_level level, const char *line);

/* Installs the sink (NULL: none) and the lowest level passed to it. Any thread. */
void taciti_log_set_sink(taciti_log_sink *sink, void *context, taciti_log_level lowest);

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

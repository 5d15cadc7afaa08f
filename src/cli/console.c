/* SPDX-License-Identifier: Apache-2.0
 *
 * The log on the console. Each line goes out in one write, so that the lines of several ranks and threads on one
 * terminal do not mix.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "cli/cli.h"

/* Longest line of the log, and what stands around it. */
enum { LINE_BYTES = 2048 + 128 };

static const int64_t PROGRESS_NS = TACITI_NS_PER_S / 5;

typedef struct console_state {
    int rank;
    bool terminal, colour;
} console_state;
static console_state g_console;

static const char *const PREFIXES[] = {
    [TACITI_LOG_INFO] = "", [TACITI_LOG_WARN] = "warning: ", [TACITI_LOG_ERROR] = "error: "};

static void show_line(void *context, taciti_log_level level, const char *line) {
    const bool shown = g_console.rank == 0 || level == TACITI_LOG_ERROR;
    const bool coloured = g_console.colour && level >= TACITI_LOG_WARN;
    const char *colour = level == TACITI_LOG_ERROR ? "\033[1;31m" : "\033[1;33m";
    char rank[32] = "", out[LINE_BYTES];
    (void)context;
    if (!shown) return;
    if (g_console.rank > 0) (void)snprintf(rank, sizeof rank, "rank %d: ", g_console.rank);
    /* A live line of progress may stand there; the next step draws it again. */
    const int length = snprintf(out, sizeof out, "%stacit: %s%s%s%s%s\n", g_console.terminal ? "\r\033[K" : "", rank,
                                coloured ? colour : "", PREFIXES[level], coloured ? "\033[0m" : "", line);
    if (length < 0) return;
    const size_t bytes = (size_t)length < sizeof out ? (size_t)length : sizeof out - 1;
    (void)fflush(stdout);
    (void)!write(STDERR_FILENO, out, bytes);
}

void taciti_cli_log_init(int rank) {
    g_console = (console_state){
        .rank = rank, .terminal = taciti_terminal_live(stderr), .colour = taciti_terminal_colour(stderr)};
    taciti_log_set_sink(show_line, NULL, TACITI_LOG_INFO);
}

void taciti_cli_progress(const char *format, ...) {
    static int64_t shown_ns; /* or when the first call came; 0: nothing is under way */
    const int64_t now_ns = taciti_now_ns();
    if (shown_ns == 0 && format != NULL) shown_ns = now_ns;
    if (!g_console.terminal || (format == NULL ? shown_ns == 0 : now_ns - shown_ns < PROGRESS_NS)) return;
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("\r\033[K", stderr);
    if (format != NULL) (void)vfprintf(stderr, format, arguments);
    (void)fflush(stderr);
    va_end(arguments);
    shown_ns = format == NULL ? 0 : now_ns;
}

tacit_status taciti_cli_print_json(json_t *value) {
    char *text = taciti_json_dump(value, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (text == NULL)
        return taciti_fail(TACIT_E_MEMORY,
                           "the answer cannot be written as JSON: a name in it is not UTF-8, or memory is short");
    puts(text);
    taciti_free(text);
    return TACIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The console's one line per step. It never takes the last column of a terminal: some wrap there.
 */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "base/text.h"
#include "report/report.h"

enum { FIELD_BYTES = 48, LINE_BYTES = 512, COLUMNS_DEFAULT = 80 };

static const int64_t LIVE_INTERVAL_NS = 100 * TACITI_NS_PER_MS;
static const int64_t PLAIN_INTERVAL_NS = 10 * TACITI_NS_PER_S;

/* ---- text ------------------------------------------------------------------------------------------------------- */
typedef struct step_line {
    char *text;
    size_t limit; /* bytes without the end */
} step_line;

/* Appends a field, behind two blanks. One that does not fit ends the line; the first is cut. */
TACITI_PRINTF(2, 3) static void add(step_line *l, const char *format, ...) {
    char field[FIELD_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(field, sizeof field, format, arguments);
    va_end(arguments);
    const bool first = l->text[0] == '\0';
    if (!first && strlen(l->text) + 2 + strlen(field) > l->limit) l->limit = 0;
    if (first || l->limit > 0) taciti_text_add(l->text, l->limit + 1, "%s%s", first ? "" : "  ", field);
}

/* 0 -> "0", 950 -> "950", 12345 -> "12.3k", 2e6 -> "2M": three digits. */
static void count_text(double value, char *out, size_t size) {
    static const char *const UNITS[] = {"", "k", "M", "G", "T"};
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof UNITS / sizeof UNITS[0]) {
        value /= 1000;
        unit++;
    }
    snprintf(out, size, "%.3g%s", value, UNITS[unit]);
}

static void duration_text(double seconds, char *out, size_t size) {
    const int64_t s = seconds < 1e9 ? (int64_t)(seconds + 0.5) : INT64_C(1000000000);
    if (s < 60)
        snprintf(out, size, "%" PRId64 "s", s);
    else if (s < 3600)
        snprintf(out, size, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, size, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(out, size, "%" PRId64 "d%02" PRId64 "h", s / 86400, s / 3600 % 24);
}

void taciti_console_line(const taciti_step_metrics *m, int64_t steps, double eta_s, size_t width, char *out,
                         size_t size) {
    if (size == 0) return;
    char number[24];
    step_line l = {out, width < size - 1 ? width : size - 1};
    out[0] = '\0';
    add(&l, "step %" PRId64 "/%" PRId64, m->step, steps);
    if (isfinite(m->loss)) add(&l, "loss %.4f", m->loss);
    if (!isfinite(m->loss)) add(&l, "loss not finite");
    if (isfinite(m->val_loss)) add(&l, "val %.4f", m->val_loss);
    if (isfinite(m->tokens_per_s)) {
        count_text(m->tokens_per_s, number, sizeof number);
        add(&l, "%s tok/s", number);
    }
    if (isfinite(m->wait_s) && m->step_s > 0) add(&l, "wait %.0f%%", 100 * m->wait_s / m->step_s);
    if (m->skipped > 0) add(&l, "skipped %" PRId64, m->skipped);
    if (eta_s >= 0 && isfinite(eta_s)) {
        duration_text(eta_s, number, sizeof number);
        add(&l, "ETA %s", number);
    }
    add(&l, "%.3g MB/step", (double)m->bytes_sent / 1e6);
    if (m->compression > 0 && isfinite(m->compression))
        add(&l, m->factor > 1 ? "%.3gx (factor %.3g)" : "%.3gx", m->compression, m->factor);
}

/* ---- terminal --------------------------------------------------------------------------------------------------- */
static size_t terminal_columns(FILE *stream) {
    struct winsize size = {0};
    const int fd = fileno(stream);
    if (fd < 0 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return COLUMNS_DEFAULT;
    return size.ws_col;
}

void taciti_console_open(taciti_console *console, FILE *stream, bool quiet, int64_t steps, int64_t start_step) {
    *console = (taciti_console){.stream = stream,
                                .terminal = taciti_terminal_live(stream),
                                .color = taciti_terminal_colour(stream),
                                .quiet = quiet,
                                .steps = steps,
                                .start_ns = taciti_now_ns(),
                                .start_step = start_step};
}

void taciti_console_break(taciti_console *console) {
    if (!console->live) return;
    fputc('\n', console->stream);
    fflush(console->stream);
    console->live = false;
}

bool taciti_console_lost(const taciti_console *console) {
    struct pollfd end = {.fd = console->quiet ? -1 : fileno(console->stream)};
    return poll(&end, 1, 0) > 0 && (end.revents & POLLERR) != 0;
}

static double eta_s(const taciti_console *console, int64_t step, int64_t now_ns) {
    const int64_t done = step - console->start_step;
    if (done <= 0 || console->steps < step) return -1;
    return (double)(now_ns - console->start_ns) / 1e9 / (double)done * (double)(console->steps - step);
}

/* The first word in bold, so that the eye finds the line's start among other text. */
static void print_line(const taciti_console *console, const char *line) {
    if (!console->color) {
        fputs(line, console->stream);
        return;
    }
    const char *rest = strstr(line, "  ");
    const size_t head = rest == NULL ? strlen(line) : (size_t)(rest - line);
    fprintf(console->stream, "\033[1m%.*s\033[0m%s", (int)head, line, line + head);
}

void taciti_console_step(taciti_console *console, const taciti_step_metrics *m, bool important) {
    const int64_t now_ns = taciti_now_ns();
    const int64_t interval_ns = console->terminal ? LIVE_INTERVAL_NS : PLAIN_INTERVAL_NS;
    const bool due = important || console->last_ns == 0 || now_ns - console->last_ns >= interval_ns;
    if (console->quiet || !due) return;
    const size_t width = console->terminal ? terminal_columns(console->stream) - 1 : LINE_BYTES - 1;
    char line[LINE_BYTES];
    taciti_console_line(m, console->steps, eta_s(console, m->step, now_ns), width, line, sizeof line);
    if (console->terminal) fputs("\r\033[K", console->stream);
    print_line(console, line);
    const bool stays = important || !console->terminal;
    if (stays) fputc('\n', console->stream);
    fflush(console->stream);
    console->live = !stays;
    console->last_ns = now_ns;
}

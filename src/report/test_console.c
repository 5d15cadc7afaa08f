/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "report/report.h"

static const taciti_step_metrics STEP = {.step = 120,
                                         .loss = 2.34567,
                                         .val_loss = (double)NAN,
                                         .tokens_per_s = 12345,
                                         .step_s = 0.1,
                                         .wait_s = 0.012,
                                         .bytes_sent = 1234567,
                                         .compression = 1};

static void a_wide_line_says_everything(void **state) {
    (void)state;
    char line[256];
    taciti_console_line(&STEP, 5000, 252, 200, line, sizeof line);
    assert_string_equal(line, "step 120/5000  loss 2.3457  12.3k tok/s  wait 12%  ETA 4m12s  1.23 MB/step  1x");
}

static void what_happened_is_shown(void **state) {
    (void)state;
    taciti_step_metrics m = STEP;
    m.val_loss = 2.5;
    m.skipped = 3;
    m.loss = (double)NAN;
    m.compression = 0;
    char line[256];
    taciti_console_line(&m, 5000, -1, 200, line, sizeof line);
    assert_string_equal(line,
                        "step 120/5000  loss not finite  val 2.5000  12.3k tok/s  wait 12%  skipped 3  1.23 MB/step");
}

static void a_line_is_never_too_wide(void **state) {
    (void)state;
    taciti_step_metrics m = {.step = INT64_MAX,
                             .loss = -1.7e308,
                             .val_loss = 1.7e308,
                             .tokens_per_s = 1e300,
                             .step_s = 1e-300,
                             .wait_s = 1e300,
                             .bytes_sent = UINT64_MAX,
                             .skipped = INT64_MAX,
                             .compression = 1e300};
    char line[256];
    for (size_t width = 0; width < 300; width++)
        for (size_t size = 1; size <= sizeof line; size += 51) {
            taciti_console_line(&m, INT64_MAX, 1e300, width, line, size);
            assert_true(strlen(line) <= width && strlen(line) < size);
            taciti_console_line(&STEP, 5000, 252, width, line, size);
            assert_true(strlen(line) <= width && strlen(line) < size);
        }
    taciti_console_line(&STEP, 5000, 252, 40, line, sizeof line);
    assert_string_equal(line, "step 120/5000  loss 2.3457  12.3k tok/s");
    taciti_console_line(&STEP, 5000, 252, 70, line, sizeof line); /* 64 columns would take "  1x", the field behind */
    assert_string_equal(line, "step 120/5000  loss 2.3457  12.3k tok/s  wait 12%  ETA 4m12s");
    taciti_console_line(&STEP, 5000, 252, 8, line, sizeof line);
    assert_string_equal(line, "step 120");
}

static void durations_and_counts_are_short(void **state) {
    (void)state;
    taciti_step_metrics m = STEP;
    char line[256];
    static const struct {
        double eta_s;
        const char *text;
    } CASES[] = {{0, "  ETA 0s  "},       {59.4, "  ETA 59s  "},    {59.6, "  ETA 1m00s  "},
                 {3600, "  ETA 1h00m  "}, {90061, "  ETA 1d01h  "}, {(double)INFINITY, "wait 12%  1.23 MB"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        taciti_console_line(&m, 5000, CASES[i].eta_s, 200, line, sizeof line);
        assert_non_null(strstr(line, CASES[i].text));
    }
    static const struct {
        double tokens_per_s;
        const char *text;
    } RATES[] = {{0, "  0 tok/s"},    {0.5, "  0.5 tok/s"},    {999.4, "  999 tok/s"},       {999.6, "  1k tok/s"},
                 {1e6, "  1M tok/s"}, {1.5e13, "  15T tok/s"}, {(double)NAN, "2.3457  wait"}};
    for (size_t i = 0; i < sizeof RATES / sizeof RATES[0]; i++) {
        m.tokens_per_s = RATES[i].tokens_per_s;
        taciti_console_line(&m, 5000, 1, 200, line, sizeof line);
        assert_non_null(strstr(line, RATES[i].text));
    }
}

static void a_file_gets_plain_lines_and_not_too_many(void **state) {
    (void)state;
    char *text = NULL;
    size_t count = 0;
    FILE *stream = open_memstream(&text, &count);
    taciti_console console;
    taciti_console_open(&console, stream, false, 5000, 0);
    assert_false(console.terminal);
    taciti_console_step(&console, &STEP, false); /* the first always */
    taciti_console_step(&console, &STEP, false); /* too soon */
    taciti_console_step(&console, &STEP, true);
    console.last_ns -= 11 * TACITI_NS_PER_S;
    taciti_console_step(&console, &STEP, false);
    taciti_console_break(&console);
    fclose(stream);
    size_t lines = 0;
    for (size_t i = 0; i < count; i++) lines += text[i] == '\n';
    assert_int_equal(lines, 3);
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\r'));
    free(text);
}

static void quiet_means_nothing(void **state) {
    (void)state;
    char *text = NULL;
    size_t count = 0;
    FILE *stream = open_memstream(&text, &count);
    taciti_console console;
    taciti_console_open(&console, stream, true, 5000, 0);
    taciti_console_step(&console, &STEP, true);
    fclose(stream);
    assert_int_equal(count, 0);
    free(text);
}

/* A pseudo terminal of `columns`; what was shown on it comes back in out. */
static void show_on_terminal(unsigned short columns, bool important, char *out, size_t size) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) | unlockpt(master), 0);
    const struct winsize window = {.ws_row = 24, .ws_col = columns};
    FILE *stream = fopen(ptsname(master), "w");
    assert_non_null(stream);
    assert_int_equal(ioctl(fileno(stream), TIOCSWINSZ, &window), 0);
    taciti_console console;
    taciti_console_open(&console, stream, false, 5000, 119);
    assert_true(console.terminal);
    taciti_console_step(&console, &STEP, important);
    assert_int_equal(console.live, !important);
    taciti_console_break(&console);
    assert_false(console.live);
    taciti_console_break(&console); /* nothing stands there: nothing happens */
    const ssize_t count = read(master, out, size - 1);
    assert_true(count > 0);
    out[count] = '\0';
    fclose(stream);
    close(master);
}

static size_t visible_columns(const char *text) {
    size_t columns = 0;
    for (; *text != '\0'; text++) {
        if (*text == '\033')
            while (*text != 'm' && *text != 'K') text++;
        else
            columns += *text >= ' ';
    }
    return columns;
}

static void a_terminal_gets_a_live_line_that_fits(void **state) {
    (void)state;
    char shown[512];
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    for (unsigned short columns = 1; columns < 120; columns = (unsigned short)(columns + 13)) {
        show_on_terminal(columns, false, shown, sizeof shown);
        assert_true(visible_columns(shown) < columns);
    }
    show_on_terminal(120, false, shown, sizeof shown);
    static const char HEAD[] = "\r\033[K\033[1mstep 120/5000\033[0m  loss";
    assert_memory_equal(shown, HEAD, sizeof HEAD - 1);
    show_on_terminal(0, true, shown, sizeof shown); /* unknown width: 80 */
    assert_true(visible_columns(shown) > 40 && visible_columns(shown) < 80);
}

static void no_color_means_no_color(void **state) {
    (void)state;
    char shown[512];
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    show_on_terminal(80, true, shown, sizeof shown);
    assert_null(strstr(shown, "\033[1m"));
    setenv("NO_COLOR", "", 1); /* empty counts as not set */
    show_on_terminal(80, true, shown, sizeof shown);
    assert_non_null(strstr(shown, "\033[1m"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wide_line_says_everything),
        cmocka_unit_test(what_happened_is_shown),
        cmocka_unit_test(a_line_is_never_too_wide),
        cmocka_unit_test(durations_and_counts_are_short),
        cmocka_unit_test(a_file_gets_plain_lines_and_not_too_many),
        cmocka_unit_test(quiet_means_nothing),
        cmocka_unit_test(a_terminal_gets_a_live_line_that_fits),
        cmocka_unit_test(no_color_means_no_color),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows the last meeting of a log: nothing, a line that a crash has cut off, or something that is refused.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/test_engine.h"
#include "exchange/arrivals.h"

enum { PATH_BYTES = 128, LINE_AFTER = 5 };

static const taciti_arrivals_run RUN = {.rank = 1, .ranks = 3, .digest = 77, .stamp = 5};

typedef struct scene {
    char folder[PATH_BYTES], path[2 * PATH_BYTES];
    int take[3], offer[3];
} scene;

/* A log whose four lines end with a meeting after step 2, and `rest` behind them. */
static scene write_log(const char *rest) {
    scene s = {.folder = "/tmp/tacit-arrivals-XXXXXX"};
    taciti_arrivals *log = NULL;
    int peers[] = {0, 2};
    assert_non_null(mkdtemp(s.folder));
    (void)snprintf(s.path, sizeof s.path, "%s/rank-1.log", s.folder);
    assert_int_equal(taciti_arrivals_record(s.folder, &RUN, &log), TACIT_OK);
    assert_int_equal(taciti_arrivals_begin(log, 0), TACIT_OK);
    taciti_arrivals_write(log,
                          &(taciti_arrivals_step){.step = 1, .taken = 2, .offered = 1, .take = peers, .offer = peers});
    taciti_arrivals_write(log, &(taciti_arrivals_step){.step = 2, .meet = true});
    assert_int_equal(taciti_arrivals_check(log), TACIT_OK);
    assert_int_equal(taciti_arrivals_close(log), TACIT_OK);
    FILE *file = fopen(s.path, "a");
    assert_non_null(file);
    assert_true(fputs(rest, file) >= 0 && fclose(file) == 0);
    return s;
}

/* Follows the log up to its meeting, and returns what is said of the rest. *ended: as far as the log knows. */
static tacit_status follow(scene *s, bool *ended) {
    taciti_arrivals *log = NULL;
    taciti_arrivals_step step = {.take = s->take, .offer = s->offer};
    assert_int_equal(taciti_arrivals_replay(s->folder, &RUN, &log), TACIT_OK);
    assert_int_equal(taciti_arrivals_begin(log, 0), TACIT_OK);
    for (step.step = 1; step.step <= 2; step.step++) assert_int_equal(taciti_arrivals_read(log, &step), TACIT_OK);
    assert_true(taciti_arrivals_meets(log, 2));
    taciti_arrivals_write(log, &(taciti_arrivals_step){.step = 2, .meet = true});
    const tacit_status status = taciti_arrivals_check(log);
    *ended = taciti_arrivals_ended(log);
    step.step = 3;
    assert_int_equal(taciti_arrivals_read(log, &step), TACIT_E_DATA);
    assert_int_equal(taciti_arrivals_close(log), TACIT_OK);
    return status;
}

static void expect(const char *rest, bool fits) {
    scene s = write_log(rest);
    bool ended = false;
    char line[PATH_BYTES];
    (void)snprintf(line, sizeof line, "rank-1.log, line %d: the log is damaged", LINE_AFTER);
    test_log_keep();
    const tacit_status status = follow(&s, &ended);
    const int lines = test_log_count(line);
    test_log_drop();
    if (status != (fits ? TACIT_OK : TACIT_E_DATA) || lines != !fits) fail_msg("\"%s\": %d", rest, (int)status);
    assert_true(ended == (rest[0] == '\0'));
    assert_true(unlink(s.path) == 0 && rmdir(s.folder) == 0);
}

static void the_end_of_a_log_may_be_cut_off(void **state) {
    (void)state;
    static const char *const LINES[] = {"3 take 0 2 offer 2 ~1f03a9c2", "30 meet ~7745be01", "3 take offer 0 ~7745be01",
                                        "12 begin ~90d1c3f5"};
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++)
        for (size_t n = 0; n <= strlen(LINES[i]); n++) {
            char cut[PATH_BYTES];
            (void)snprintf(cut, sizeof cut, "%.*s", (int)n, LINES[i]);
            expect(cut, true);
        }
}

static void what_is_no_line_is_refused(void **state) {
    (void)state;
    static const char *const GARBAGE[] = {
        "x",        "\n",       "garbage\n", "3 take 0 offer 2\n", "3 meet ~7745be01\n", "3 mete", " meet",
        "3 take x", "3 meet 4", "-3 meet",   "3 take 0 offer 2 x", "3 take 0\n4 take"};
    for (size_t i = 0; i < sizeof GARBAGE / sizeof *GARBAGE; i++) expect(GARBAGE[i], false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_log_may_be_cut_off),
        cmocka_unit_test(what_is_no_line_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

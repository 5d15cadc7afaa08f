/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of the user's: read as they are, or refused with what was expected and what was found.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "topo/topo.h"

static char g_said[2048], g_path[] = "/tmp/tacit-matrix-XXXXXX";

static void listen(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_said, sizeof g_said, "%s", line);
}

static tacit_status load(const void *bytes, size_t count, int ranks, taciti_topology *out) {
    assert_int_equal(taciti_file_write(g_path, bytes, count), TACIT_OK);
    g_said[0] = '\0';
    return taciti_topology_create(&(taciti_topo_request){.name = "file", .ranks = ranks, .file = g_path}, out);
}

static taciti_topology accepted(const void *bytes, size_t count, int ranks) {
    taciti_topology t;
    if (load(bytes, count, ranks, &t) != TACIT_OK) fail_msg("%s", g_said);
    return t;
}

static void refused(const void *bytes, size_t count, int ranks, tacit_status status, const char *text) {
    taciti_topology t;
    assert_int_equal(load(bytes, count, ranks, &t), status);
    if (strstr(g_said, text) == NULL) fail_msg("'%s' does not say '%s'", g_said, text);
}

static void refused_text(const char *csv, int ranks, tacit_status status, const char *text) {
    refused(csv, strlen(csv), ranks, status, text);
}

/* Row 0 hears 1, row 1 hears 2, row 2 hears 0: no two of its elements are alike when transposed. */
static const double CYCLE[9] = {.75, .25, 0, 0, .75, .25, .25, 0, .75};

static void assert_cycle(const taciti_topology *t) {
    assert_true(t->period == 1 && !t->directed && t->rounds[0].groups == 0);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) assert_true(taciti_topology_weight(t, 0, i, j) == CYCLE[i * 3 + j]);
}

/* ---- .csv -------------------------------------------------------------------------------------------------------- */

static taciti_topology accepted_text(const char *csv, int ranks) { return accepted(csv, strlen(csv), ranks); }

static void test_csv(void **state) {
    (void)state;
    taciti_topology t = accepted_text("# cycle\n.75,.25,0\r\n 0 ,\t0.75, 2.5e-1\n0.25,0,0.75", 3);
    assert_cycle(&t);
    taciti_topology_destroy(&t);
    t = accepted_text("\n.5,.5\n.5,.5\n\n\n1,0\n# idle\n0,1\n", 2);
    assert_true(t.period == 2 && t.rounds[0].groups == 1 && t.rounds[1].groups == 0 && t.rounds[1].edge_count == 0);
    taciti_topology_destroy(&t);
    t = accepted_text("1", 1);
    assert_true(t.period == 1 && taciti_topology_weight(&t, 0, 0, 0) == 1);
    taciti_topology_destroy(&t);
}

/* A mean is stored as a group, whatever wrote it; what is not quite one, is not. */
static void test_means_become_groups(void **state) {
    (void)state;
    taciti_topology t = accepted_text("0.333333333333,0.333333333333,0.333333333334\n0.333333333333,0.333333333334,"
                                      "0.333333333333\n0.333333333334,0.333333333333,0.333333333333\n",
                                      3);
    const int *members = NULL;
    assert_int_equal(taciti_topology_group(&t, 0, 1, &members), 3);
    assert_true(taciti_topology_weight(&t, 0, 2, 0) == 1.0 / 3);
    taciti_topology_destroy(&t);
    t = accepted_text("0.4,0.3,0.3\n0.3,0.4,0.3\n0.3,0.3,0.4\n", 3);
    assert_true(t.rounds[0].groups == 0 && t.rounds[0].edge_count == 6);
    assert_true(taciti_topology_weight(&t, 0, 2, 2) == 0.4 && taciti_topology_weight(&t, 0, 2, 0) == 0.3);
    taciti_topology_destroy(&t);
    /* 0 and 2, crosswise with 1 and 3 */
    t = accepted_text(".5,0,.5,0\n0,.5,0,.5\n.5,0,.5,0\n0,.5,0,.5\n\n.5,.5,0,0\n.5,.5,0,0\n0,0,.5,.5\n0,0,.5,.5\n", 4);
    assert_true(t.rounds[0].groups == 2 && t.rounds[1].groups == 2);
    assert_int_equal(taciti_topology_group(&t, 0, 2, &members), 2);
    assert_true(members[0] == 0 && members[1] == 2);
    taciti_topology_destroy(&t);
}

/* Columns alone: directed, mass is conserved, and push-sum's ratio finds the mean. */
static void test_directed(void **state) {
    (void)state;
    taciti_topology t = accepted_text("0.5,0.25,0.5\n0.5,0.5,0\n0,0.25,0.5\n", 3);
    double x[3] = {3, -1, 7}, w[3] = {1, 1, 1}, y[3];
    assert_true(t.directed);
    for (int step = 0; step < 100; step++) {
        taciti_topology_mix(&t, 0, x, y);
        memcpy(x, y, sizeof x);
        taciti_topology_mix(&t, 0, w, y);
        memcpy(w, y, sizeof w);
        assert_true(fabs(x[0] + x[1] + x[2] - 9) <= 1e-12 && fabs(w[0] + w[1] + w[2] - 3) <= 1e-12);
    }
    for (int i = 0; i < 3; i++) assert_true(fabs(x[i] / w[i] - 3) <= 1e-12 && fabs(w[i] - 1) > 0.05);
    taciti_topo_figures f;
    assert_int_equal(taciti_topology_figures(&t, &f), TACIT_OK);
    assert_true(f.contraction > 0.1 && f.contraction < 1 && f.exact_after == 0 && f.max_partners == 2);
    taciti_topology_destroy(&t);
}

/* Law 8: an eigenvalue l of W is 1 - gamma (1 - l) of gamma W + (1 - gamma) I. */
static void test_lazy_ring(void **state) {
    (void)state;
    enum { N = 8 };
    for (int tenth = 1; tenth <= 10; tenth++) {
        const double gamma = tenth / 10.0, second = (1 + sqrt(2)) / 3, min = -1.0 / 3;
        char file[N * N * 25];
        size_t length = 0;
        for (int i = 0; i < N * N; i++) {
            const int apart = (i / N - i % N + N) % N;
            const double w = apart == 0 ? 1 - gamma * 2 / 3 : apart == 1 || apart == N - 1 ? gamma / 3 : 0;
            length += (size_t)snprintf(file + length, sizeof file - length, "%.17g%c", w, i % N == N - 1 ? '\n' : ',');
        }
        taciti_topology t = accepted(file, length, N);
        taciti_topo_figures f;
        assert_int_equal(taciti_topology_figures(&t, &f), TACIT_OK);
        assert_true(fabs(f.contraction - (1 - gamma * (1 - second))) <= 1e-12);
        assert_true(fabs(f.min_eigenvalue - (1 - gamma * (1 - min))) <= 1e-12);
        taciti_topology_destroy(&t);
    }
}

/* Row i is rank i, wherever the launcher put it, and also where moving ranks would spare a link. */
static void test_rows_are_ranks(void **state) {
    (void)state;
    static const char csv[] = ".5,0,.5,0\n0,.5,0,.5\n.5,0,.5,0\n0,.5,0,.5\n\n.5,.5,0,0\n.5,.5,0,0\n0,0,1,0\n0,0,0,1\n";
    static int host_of[2][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}};
    assert_int_equal(taciti_file_write(g_path, csv, strlen(csv)), TACIT_OK);
    for (int k = 0; k < 2; k++) {
        taciti_topology t;
        const taciti_topo_request request = {
            .name = "file", .ranks = 4, .hosts = &(taciti_hosts){.ranks = 4, .host_of = host_of[k]}, .file = g_path};
        assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(t.position[i], i);
            for (int j = 0; j < 4; j++)
                assert_true(taciti_topology_weight(&t, 0, i, j) == ((i - j) % 2 == 0 ? 0.5 : 0));
        }
        assert_true(taciti_topology_weight(&t, 1, 0, 1) == 0.5 && taciti_topology_weight(&t, 1, 2, 2) == 1);
        taciti_topology_destroy(&t);
    }
}

/* Strongly connected, but the product of a period has a second eigenvalue of modulus 1. */
static void test_what_never_agrees(void **state) {
    (void)state;
    static const char swap[] = "0,1\n1,0\n", cycle[] = "0,1,0\n0,0,1\n1,0,0\n";
    refused_text(swap, 2, TACIT_E_CONFIG, "contraction 1, by the eigenvalue -1,");
    refused_text("0,.5,0,.5\n.5,0,.5,0\n0,.5,0,.5\n.5,0,.5,0\n", 4, TACIT_E_CONFIG, "the product of its 1 round has");
    refused_text("0,.5,0,.5\n.5,0,.5,0\n0,.5,0,.5\n.5,0,.5,0\n", 4, TACIT_E_CONFIG, "the eigenvalue -1,");
    refused_text(cycle, 3, TACIT_E_CONFIG, "by the eigenvalue -0.5 + 0.866 i,");
    refused_text("0,1\n1,0\n\n0,1\n1,0\n", 2, TACIT_E_CONFIG, "product of its 2 rounds");
    refused_text("0,1\n1,0\n\n0,1\n1,0\n", 2, TACIT_E_CONFIG, "1, which it has more than once");
    refused_text("0,1\n1,0\n\n1,0\n0,1\n", 2, TACIT_E_CONFIG, "the eigenvalue -1,");
    refused_text("1e-10,.9999999999\n.9999999999,1e-10\n", 2, TACIT_E_CONFIG,
                 "the eigenvalue -1,"); /* a rounding of 0 */
    /* directed: 0 gives all to 1 and 2, both all to 0 */
    refused_text("0,1,1\n.5,0,0\n.5,0,0\n", 3, TACIT_E_CONFIG, "the eigenvalue -1,");
    /* directed, connected over its rounds, but at the end of a period nothing is left with rank 1 */
    refused_text("1,1\n0,0\n\n.5,.5\n.5,.5\n\n1,1\n0,0\n", 2, TACIT_E_CONFIG, "never agree");
}

/* Zeros on the diagonal are no sin. */
static void test_what_agrees_without_keeping(void **state) {
    (void)state;
    static const char *const csv[] = {
        "0,.5,.5\n.5,0,.5\n.5,.5,0\n",                      /* cycles of two and of three */
        "0,1,0\n0,0,1\n1,0,0\n\n.5,.5,0\n.5,.5,0\n0,0,1\n", /* turned between the rounds */
        ".5,0,1\n.5,0,0\n0,1,0\n",                          /* directed, one loop */
    };
    for (size_t i = 0; i < sizeof csv / sizeof *csv; i++) {
        taciti_topology t = accepted_text(csv[i], 3);
        taciti_topo_figures f;
        assert_int_equal(taciti_topology_figures(&t, &f), TACIT_OK);
        taciti_topology_destroy(&t);
    }
    taciti_topology t = accepted_text(".5,0,.5,0\n.5,0,.5,0\n0,.5,0,.5\n0,.5,0,.5\n", 4); /* de Bruijn: exact after 2 */
    taciti_topo_figures f;
    assert_int_equal(taciti_topology_figures(&t, &f), TACIT_OK);
    assert_int_equal(f.exact_after, 2);
    taciti_topology_destroy(&t);
}

static void test_bad_csv(void **state) {
    (void)state;
    refused_text("0.5,0.5,0\n0.5,0.5,0\n0,0,0.98\n", 3, TACIT_E_CONFIG, "row 2 sums to 0.98, expected 1");
    refused_text("0.5,0.5,0\n0.5,0.5,0\n0,0,0\n", 3, TACIT_E_CONFIG, "this rank is missing");
    refused_text("0.333,0.333,0.333\n0.333,0.333,0.333\n0.333,0.333,0.333\n", 3, TACIT_E_CONFIG,
                 "row 0 sums to 0.999, expected 1");
    refused_text(".33333333,.33333333,.33333333\n.33333333,.33333333,.33333333\n.33333333,.33333333,.33333333\n", 3,
                 TACIT_E_CONFIG, "row 0 sums to 0.99999999, expected 1, within 1e-9; write more digits");
    refused_text("0.5,0.5\n0.9,0.1\n", 2, TACIT_E_CONFIG, "column 0 sums to 1.4, expected 1");
    refused_text("1.5,-0.5\n-0.5,1.5\n", 2, TACIT_E_CONFIG, "row 0, column 1 is -0.5, expected 0 or more");
    refused_text("1,0\n0,1\n", 2, TACIT_E_CONFIG, "never agree");
    refused_text(".5,.5\n.5,.5\n\n.5,.5\n.5,.4\n", 2, TACIT_E_CONFIG, "matrix 1: row 1 sums to 0.9, expected 1");
    refused_text("0.5,nan\n0.5,0.5\n", 2, TACIT_E_DATA, "line 1, column 1: expected a finite number, found \"nan\"");
    refused_text("0.5,inf\n0.5,0.5\n", 2, TACIT_E_DATA, "found \"inf\"");
    refused_text("0.5,1e999\n0.5,0.5\n", 2, TACIT_E_DATA, "found \"1e999\"");
    refused_text("0.5,\n0.5,0.5\n", 2, TACIT_E_DATA, "line 1, column 1: expected a finite number, found \"\"");
    refused_text(",\n,\n,\n,\n,\n,\n", 2, TACIT_E_DATA, "line 1, column 0");
    refused_text("0.5 0.5\n0.5 0.5\n", 2, TACIT_E_DATA, "line 1: 1 numbers between commas, expected 2");
    refused_text("0.5,0.5,0\n0.5,0.5,0\n", 2, TACIT_E_DATA, "line 1: 3 numbers between commas, expected 2");
    refused_text("0.5,0.5\n0.5\n", 2, TACIT_E_DATA, "line 2: 1 numbers between commas, expected 2");
    refused_text("0.5,0.5\n0.5,0.5\n1,0\n", 2, TACIT_E_DATA, "3 rows, expected 2 for every matrix");
    refused_text("0.5,0.5\n\n0.5,0.5\n", 2, TACIT_E_DATA, "line 2: empty after 1 rows of a matrix that should have 2");
    refused_text("", 2, TACIT_E_DATA, "0 rows, expected 2");
    refused_text("# nothing\n", 2, TACIT_E_DATA, "0 rows, expected 2");
    refused("0.5,0.5\0\n0.5,0.5\n", 17, 2, TACIT_E_DATA, "zero byte");
    refused("\x93NUMPY\x01\0\x76\0{'descr': '<f8'", 25, 2, TACIT_E_DATA,
            "numpy.savetxt(FILE, W, fmt='%.17g', delimiter=',')");
    refused_text("0.50000000000000000000000000000000000000000000000000000000000000000,.5\n.5,.5", 2, TACIT_E_DATA,
                 "line 1, column 0");
    taciti_topology t;
    const taciti_topo_request none = {.name = "file", .ranks = 2};
    const taciti_topo_request away = {.name = "file", .ranks = 2, .file = "/nonexistent/w.csv"};
    assert_int_equal(taciti_topology_create(&none, &t), TACIT_E_CONFIG);
    assert_non_null(strstr(g_said, "matrix of 2 x 2"));
    assert_int_equal(taciti_topology_create(&away, &t), TACIT_E_DATA);
    assert_non_null(strstr(g_said, "/nonexistent/w.csv"));
}

int main(void) {
    const int file = mkstemp(g_path);
    if (file < 0) return 1;
    (void)close(file);
    taciti_log_set_sink(listen, NULL, TACITI_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_means_become_groups),
        cmocka_unit_test(test_directed),
        cmocka_unit_test(test_bad_csv),
        cmocka_unit_test(test_lazy_ring),
        cmocka_unit_test(test_rows_are_ranks),
        cmocka_unit_test(test_what_never_agrees),
        cmocka_unit_test(test_what_agrees_without_keeping),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(g_path);
    return failed;
}

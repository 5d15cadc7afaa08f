/* SPDX-License-Identifier: Apache-2.0
 *
 * The step size that awc bears: in closed form where there is one, and by running quadratics on both sides of it.
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
#include "base/rng.h"
#include "topo/topo.h"

enum { RANKS = 24 };

static char g_said[2048], g_path[] = "/tmp/tacit-limit-XXXXXX";

static void listen(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_said, sizeof g_said, "%s", line);
}

static taciti_topology make(const char *name, int n) {
    const taciti_topo_request request = {.name = name, .ranks = n, .seed = 7, .file = g_path};
    taciti_topology t;
    if (taciti_topology_create(&request, &t) != TACIT_OK) fail_msg("%s at %d ranks: %s", name, n, g_said);
    return t;
}

static taciti_topology make_file(const char *csv, int n) {
    assert_int_equal(taciti_file_write(g_path, csv, strlen(csv)), TACIT_OK);
    return make("file", n);
}

static double limit_of(const taciti_topology *t, const taciti_topo_awc *how) {
    double limit = -1;
    if (taciti_topology_awc_limit(t, how, &limit) != TACIT_OK) fail_msg("%s at %d: %s", t->name, t->ranks, g_said);
    return limit;
}

static double limit_of_base_k(int n, int degree) {
    const taciti_topo_request request = {.name = "base-k", .ranks = n, .degree = degree};
    taciti_topology t;
    assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
    const double limit = limit_of(&t, &(taciti_topo_awc){.gamma = 1});
    taciti_topology_destroy(&t);
    return limit;
}

static double limit_of_one(const char *name, int n) {
    taciti_topology t = make(name, n);
    const double limit = limit_of(&t, &(taciti_topo_awc){.gamma = 1});
    taciti_topology_destroy(&t);
    return limit;
}

static void assert_close(double x, double expected, double tolerance) {
    if (!(fabs(x - expected) <= tolerance)) fail_msg("%.17g is not %.17g", x, expected);
}

/* One matrix W that stays: 1 + its least eigenvalue when it is symmetric. */
static void test_closed_forms(void **state) {
    (void)state;
    const double pi = acos(-1);
    for (int n = 2; n <= RANKS; n++) {
        assert_close(limit_of_one("complete", n), 1, 1e-9);
        if (n >= 3) assert_close(limit_of_one("ring", n), 1 + (1 + 2 * cos(2 * pi * (n / 2) / n)) / 3, 1e-9);
        if (n % 2 == 0) assert_close(limit_of_one("one-peer-ring", n), 1, 1e-6);
        if ((n & (n - 1)) == 0) assert_close(limit_of_one("exp", n), 1, 1e-6);
        assert_close(limit_of_one("file", 1), 2, 0);
    }
    assert_close(limit_of_one("one-peer-ring", 3), (1 + sqrt(5)) / 2, 1e-6);
    assert_close(limit_of_one("torus", 25), 1 + (1 + 4 * cos(4 * pi / 5)) / 5, 1e-9);
    assert_close(limit_of_base_k(9, 1), 1.208, 5e-4); /* spectral radii of the product, by numpy */
    assert_close(limit_of_base_k(17, 1), 1.189, 5e-4);
    assert_close(limit_of_base_k(33, 1), 1.173, 5e-4);
}

/* A directed cycle: eigenvalues a + (1 - a) w, w the third roots of 1. */
static void test_cycle(void **state) {
    (void)state;
    taciti_topology t = make_file(".02,.98,0\n0,.02,.98\n.98,0,.02\n", 3);
    const double re = .02 - .98 / 2, im = .98 * sqrt(3) / 2;
    const double limit = limit_of(&t, &(taciti_topo_awc){.gamma = 1});
    assert_close(limit, re + sqrt(1 - im * im), 1e-9);
    assert_close(limit, 0.059, 5e-4);
    taciti_topology_destroy(&t);
}

/* ---- both sides of the limit (law 19) ---------------------------------------------------------------------------- */

typedef struct run_state {
    double x[RANKS], late[RANKS], w[RANKS];
    size_t mix;
} run_state;

static void mix(const taciti_topology *t, const taciti_topo_awc *how, size_t number, double *x) {
    double y[RANKS];
    taciti_topology_mix(t, number % t->period, x, y);
    for (int i = 0; i < t->ranks; i++) x[i] = how->gamma * y[i] + (1 - how->gamma) * x[i];
}

/* awc on x^2 s / 2 as the strategy runs it: the gradient of a step is taken where the step begins, with push-sum at
 * x / w. */
static void step(const taciti_topology *t, const taciti_topo_awc *how, double s, run_state *r) {
    double begin[RANKS], y[RANKS], z[RANKS];
    memcpy(begin, r->x, sizeof begin);
    for (int i = 0; i < t->ranks; i++) z[i] = r->x[i] / r->w[i];
    if (!how->delayed) {
        mix(t, how, r->mix, r->x);
        mix(t, how, r->mix, r->w);
    } else {
        memcpy(y, r->late, sizeof y);
        mix(t, how, r->mix, y);
        for (int i = 0; i < t->ranks; i++) r->x[i] += y[i] - r->late[i];
    }
    for (int i = 0; i < t->ranks; i++) r->x[i] -= s * z[i];
    memcpy(r->late, begin, sizeof begin);
    r->mix++;
}

/* Mean growth per step of log |x|, of what is left when the first half of the steps is over. Disagreement alone, where
 * that is a mode of its own. */
static double growth(const taciti_topology *t, const taciti_topo_awc *how, double s) {
    enum { STEPS = 6000 };
    run_state r = {.mix = 0};
    double grown = 0;
    for (int i = 0; i < t->ranks; i++) r.x[i] = r.late[i] = taciti_rng_unit(11, (uint64_t)i) - 0.5;
    for (int i = 0; i < t->ranks; i++) r.w[i] = 1;
    for (int k = 0; k < STEPS; k++) {
        double norm = 0, mean = 0, late = 0;
        step(t, how, s, &r);
        for (int i = 0; i < t->ranks && !t->directed; i++) mean += r.x[i] / t->ranks, late += r.late[i] / t->ranks;
        for (int i = 0; i < t->ranks; i++) {
            r.x[i] -= mean;
            r.late[i] -= late;
            norm += r.x[i] * r.x[i] + r.late[i] * r.late[i];
        }
        norm = sqrt(norm);
        if (norm < 1e-250) return -(double)INFINITY; /* exact */
        for (int i = 0; i < t->ranks; i++) {
            r.x[i] /= norm;
            r.late[i] /= norm;
        }
        if (k >= STEPS / 2) grown += log(norm);
    }
    return grown / (STEPS - STEPS / 2);
}

static void assert_both_sides(const taciti_topology *t, const taciti_topo_awc *how) {
    const double limit = limit_of(t, how);
    assert_true(limit >= 0 && limit <= 2);
    for (int part = 1; part <= 9; part++)
        if (!(growth(t, how, limit * part / 10) < 0))
            fail_msg("%s at %d ranks: grows at %g, limit %g", t->name, t->ranks, limit * part / 10, limit);
    if (!(growth(t, how, 0.98 * limit) < 0))
        fail_msg("%s at %d ranks, gamma %g: grows at 0.98 of %g", t->name, t->ranks, how->gamma, limit);
    if (limit < 1.96 && !(growth(t, how, 1.02 * limit) > 0))
        fail_msg("%s at %d ranks, gamma %g: shrinks at 1.02 of %g", t->name, t->ranks, how->gamma, limit);
}

static void test_every_family(void **state) {
    (void)state;
    static const int ranks[] = {2, 3, 5, 6, 8, 9, 12, 17};
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++)
        for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
            if (strcmp(kind->name, "file") == 0) continue; /* below */
            taciti_topology t = make(kind->name, ranks[k]);
            assert_both_sides(&t, &(taciti_topo_awc){.gamma = 1});
            assert_both_sides(&t, &(taciti_topo_awc){.gamma = 0.7});
            assert_both_sides(&t, &(taciti_topo_awc){.gamma = 0.5, .delayed = true});
            taciti_topology_destroy(&t);
        }
}

/* Doubly stochastic ones that are not symmetric, one round and two; symmetric ones with eigenvalues below 0; weights
 * that need push-sum. */
static void test_files(void **state) {
    (void)state;
    static const char *const csv[] = {
        ".02,.98,0\n0,.02,.98\n.98,0,.02\n",
        ".2,.8,0\n0,.2,.8\n.8,0,.2\n\n.5,.5,0\n.5,.5,0\n0,0,1\n",
        ".1,.9,0\n.9,.1,0\n0,0,1\n\n1,0,0\n0,.1,.9\n0,.9,.1\n",
        "0.5,0.25,0.5\n0.5,0.5,0\n0,0.25,0.5\n",
        ".9,.05,.3\n.1,.9,0\n0,.05,.7\n",
    };
    for (size_t i = 0; i < sizeof csv / sizeof *csv; i++) {
        taciti_topology t = make_file(csv[i], 3);
        assert_both_sides(&t, &(taciti_topo_awc){.gamma = 1});
        assert_both_sides(&t, &(taciti_topo_awc){.gamma = 0.4});
        taciti_topology_destroy(&t);
    }
}

static void test_too_many_ranks(void **state) {
    (void)state;
    double limit = 7;
    taciti_topology t = make("exp", TACITI_TOPO_LIMIT_MAX + 1), half = make("exp", TACITI_TOPO_LIMIT_MAX / 2 + 1);
    assert_int_equal(taciti_topology_awc_limit(&t, &(taciti_topo_awc){.gamma = 1}, &limit), TACIT_E_UNSUPPORTED);
    assert_non_null(strstr(g_said, "on 257 ranks; it is computed for up to 256"));
    assert_int_equal(taciti_topology_awc_limit(&half, &(taciti_topo_awc){.gamma = .5, .delayed = true}, &limit),
                     TACIT_E_UNSUPPORTED);
    assert_true(limit == 7);
    taciti_topology_destroy(&t);
    taciti_topology_destroy(&half);
}

/* Odd buckets make two rounds in the other order, and bear as much. */
static void test_alternating(void **state) {
    (void)state;
    for (int hosts = 2; hosts <= 6; hosts++)
        for (int each = 1; each <= 4; each++)
            for (int delayed = 0; delayed < 2; delayed++) {
                const taciti_topo_request request = {.name = "aer", .ranks = hosts * each, .per_host = each};
                const taciti_topo_awc how = {.gamma = delayed ? 0.5 : 1, .delayed = delayed};
                taciti_topology t;
                assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
                const double limit = limit_of(&t, &how);
                for (size_t r = 0; r < t.period; r += 2) {
                    const taciti_round first = t.rounds[r];
                    t.rounds[r] = t.rounds[r + 1];
                    t.rounds[r + 1] = first;
                }
                assert_true(fabs(limit_of(&t, &how) - limit) < 2e-6);
                taciti_topology_destroy(&t);
            }
}

int main(void) {
    const int file = mkstemp(g_path);
    if (file < 0 || write(file, "1\n", 2) != 2) return 1;
    (void)close(file);
    taciti_log_set_sink(listen, NULL, TACITI_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_cycle), cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_alternating),  cmocka_unit_test(test_files), cmocka_unit_test(test_too_many_ranks),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(g_path);
    return failed;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of `exp` for numbers that are no power of two, of what a matrix must connect, and of the default.
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

#include "base/log.h"
#include "topo/topo.h"

enum { RANKS = 65 };
static char g_said[2048];

static void hear(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_said, sizeof g_said, "%s", line);
}

static int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

/* ---- exp for other numbers ------------------------------------------------------------------------------------------
 */

/* N / 2^j rounded to the nearest where N is even, 2^k where it is odd. */
static int distance_of(int n, int distances, int k) {
    return n % 2 != 0 ? 1 << k : (int)floor((double)n / (1 << (distances - k)) + 0.5);
}

/* Sets partner[i] to the partner of rank i in a round; -1: nobody. */
static void partners_of(const taciti_topology *t, size_t round, int *partner) {
    for (int i = 0; i < t->ranks; i++) {
        const int *members;
        const size_t count = taciti_topology_group(t, round, i, &members);
        assert_true(count == 1 || count == 2);
        partner[i] = count == 1 ? -1 : members[0] == i ? members[1] : members[0];
    }
}

/* Round k and round k + D: pairs at one distance, all but one rank of each odd cycle, and both together every edge of
 * the distance but one of each odd cycle. */
static void the_two_matchings_of_a_distance_share_its_edges(void **state) {
    (void)state;
    for (int n = 3; n < RANKS; n++) {
        if ((n & (n - 1)) == 0) continue;
        taciti_topology t;
        const taciti_topo_request request = {.name = "exp", .ranks = n};
        assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
        const int distances = (int)ceil(log2(n));
        assert_int_equal(t.period, 2 * distances);
        for (int k = 0; k < distances; k++) {
            const int d = distance_of(n, distances, k), cycles = gcd(n, d), length = n / cycles;
            int met[RANKS] = {0}, first[RANKS], second[RANKS], idle[2] = {0, 0};
            partners_of(&t, (size_t)k, first);
            partners_of(&t, (size_t)(k + distances), second);
            for (int i = 0; i < n; i++)
                for (int way = 0; way < 2; way++) {
                    const int p = way == 0 ? first[i] : second[i];
                    idle[way] += p < 0;
                    assert_true(p < 0 || p == (i + d) % n || i == (p + d) % n);
                    if (p == (i + d) % n) met[i] |= 1 << way;
                }
            int edges = 0, both = 0;
            for (int i = 0; i < n; i++) {
                edges += met[i] != 0;
                both += met[i] == 3;
            }
            assert_int_equal(idle[0], length % 2 * cycles);
            assert_int_equal(idle[1], length % 2 * cycles);
            if (length == 2) continue; /* its one edge, both times */
            assert_int_equal(edges, n - length % 2 * cycles);
            assert_int_equal(both, 0);
        }
        taciti_topology_destroy(&t);
    }
}

/* The gaps that the choice of distances was made by (exponential.c): least 0.096 of all up to 1024 ranks. */
static void other_numbers_mix_as_fast_as_was_chosen(void **state) {
    (void)state;
    double sum = 0;
    int count = 0, slow = 0;
    for (int n = 3; n <= 128; n++) {
        if ((n & (n - 1)) == 0) continue;
        taciti_topology t;
        taciti_topo_figures f;
        const taciti_topo_request request = {.name = "exp", .ranks = n};
        assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
        assert_int_equal(taciti_topology_figures(&t, &f), TACIT_OK);
        assert_true(f.spectral_gap >= 0.096);
        slow += f.spectral_gap < 0.15;
        sum += f.spectral_gap;
        count++;
        taciti_topology_destroy(&t);
    }
    assert_true(sum / count >= 0.2 && slow <= 8);
}

/* ---- what is connected in one direction only
 * ------------------------------------------------------------------------- */

static tacit_status try_matrix(int ranks, const char *csv) {
    char path[] = "/tmp/tacit-matrix-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    assert_true(fputs(csv, file) >= 0);
    assert_int_equal(fclose(file), 0);
    taciti_topology t = {.period = 0};
    const taciti_topo_request request = {.name = "file", .ranks = ranks, .file = path};
    g_said[0] = '\0';
    const tacit_status status = taciti_topology_create(&request, &t);
    if (status == TACIT_OK) taciti_topology_destroy(&t);
    (void)unlink(path);
    return status;
}

static void what_goes_one_way_only_is_refused(void **state) {
    (void)state;
    /* columns sum to 1: rank 0 tells rank 1 and hears nobody; it hears rank 1 and tells nobody; a directed cycle */
    assert_int_equal(try_matrix(3, "0.5,0,0\n0.5,0.5,0.5\n0,0.5,0.5\n"), TACIT_E_CONFIG);
    assert_true(g_said[0] != '\0');
    assert_int_equal(try_matrix(3, "1,0.25,0\n0,0.5,0.5\n0,0.25,0.5\n"), TACIT_E_CONFIG);
    assert_true(g_said[0] != '\0');
    assert_int_equal(try_matrix(3, "0.5,0,0.5\n0.5,0.5,0\n0,0.5,0.5\n"), TACIT_OK);
    /* the same of ranks that are not the first: 2 hears nobody, 2 tells nobody */
    assert_int_equal(try_matrix(3, "0.5,0.5,0.25\n0.5,0.5,0\n0,0,0.75\n"), TACIT_E_CONFIG);
    assert_int_equal(try_matrix(3, "0.5,0.25,0\n0.5,0.5,0\n0,0.25,1\n"), TACIT_E_CONFIG);
}

/* A later round may connect the ranks that one round leaves apart. */
static void rounds_connect_together(void **state) {
    (void)state;
    const char *first = "0.5,0.5,0,0\n0.5,0.5,0,0\n0,0,0.5,0.5\n0,0,0.5,0.5\n";
    const char *second = "1,0,0,0\n0,0.5,0.5,0\n0,0.5,0.5,0\n0,0,0,1\n";
    char both[512];
    (void)snprintf(both, sizeof both, "%s%s", first, second);
    assert_int_equal(try_matrix(4, both), TACIT_OK);
    assert_int_equal(try_matrix(4, first), TACIT_E_CONFIG);
    assert_int_equal(try_matrix(4, second), TACIT_E_CONFIG);
}

/* ---- how near replicas stay -------------------------------------------------------------------------------------- */

enum { NEAR_RANKS = 24, NEAR_STEPS = 150 };
static const double BETA1 = 0.9;

/* The squared distance to the mean, summed over steps, that a gradient of this rank in this round leaves behind under
 * awc: x <- W x - m, m <- beta1 m + (1 - beta1) g. */
static double answer_to(const taciti_topology *t, int rank, size_t round) {
    double x[NEAR_RANKS] = {0}, mixed[NEAR_RANKS], m = 1 - BETA1, sum = 0;
    for (size_t step = 0; step < NEAR_STEPS; step++, m *= BETA1) {
        double squares = 0, total = 0;
        taciti_topology_mix(t, (round + step) % t->period, x, mixed);
        mixed[rank] -= m;
        for (int i = 0; i < t->ranks; i++) {
            x[i] = mixed[i];
            squares += x[i] * x[i];
            total += x[i];
        }
        sum += squares - total * total / t->ranks;
    }
    return sum;
}

/* With independent noise in all ranks' gradients, of variance 1: per degree of freedom, the mean over rounds. */
static double distance_on(const char *name, int ranks, int degree) {
    taciti_topology t;
    const taciti_topo_request request = {.name = name, .ranks = ranks, .degree = degree};
    double sum = 0;
    assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
    for (size_t round = 0; round < t.period; round++)
        for (int rank = 0; rank < ranks; rank++) sum += answer_to(&t, rank, round);
    sum /= (double)t.period * (ranks - 1);
    taciti_topology_destroy(&t);
    return sum;
}

/* So exp is what `auto` takes: with one partner, base-k is exact after a period, and further apart until then. */
static void exp_is_nearer_than_base_k_of_one_partner(void **state) {
    (void)state;
    const double six = distance_on("base-k", 6, 1), exp_six = distance_on("exp", 6, 0);
    assert_true(fabs(six - 0.228) < 0.001 && fabs(exp_six - 0.196) < 0.001); /* by covariances, in numpy */
    for (int n = 3; n <= NEAR_RANKS; n++) {
        const double ratio = distance_on("exp", n, 0) / distance_on("base-k", n, 1);
        if ((n & (n - 1)) == 0)
            assert_true(fabs(ratio - 1) < 1e-9);
        else
            assert_true(ratio > 0.6 && ratio < 0.9);
    }
}

/* Without a degree base-k is that of 2 or 3 where replicas are nearer than on exp then. */
static void base_k_is_nearer_than_exp_without_a_degree(void **state) {
    (void)state;
    static const int OF_ONE[] = {13, 14, 22, 23}, OF_THREE[] = {7, 17, 19, 21};
    for (int n = 3; n <= NEAR_RANKS; n++) {
        int degree = 2;
        for (size_t i = 0; i < sizeof OF_ONE / sizeof *OF_ONE; i++)
            degree = n == OF_ONE[i] ? 1 : n == OF_THREE[i] ? 3 : degree;
        const double own = distance_on("base-k", n, 0);
        assert_true(fabs(own - distance_on("base-k", n, degree)) < 1e-12);
        assert_true(degree == 1 || own < (1 + 1e-9) * distance_on("exp", n, 0));
    }
}

static int set_up(void **state) {
    (void)state;
    taciti_log_set_sink(hear, NULL, TACITI_LOG_INFO);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_two_matchings_of_a_distance_share_its_edges),
        cmocka_unit_test(other_numbers_mix_as_fast_as_was_chosen),
        cmocka_unit_test(what_goes_one_way_only_is_refused),
        cmocka_unit_test(rounds_connect_together),
        cmocka_unit_test(exp_is_nearer_than_base_k_of_one_partner),
        cmocka_unit_test(base_k_is_nearer_than_exp_without_a_degree),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of `exp` for numbers that are no power of two, and of what a matrix must connect.
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

/* Who talks to whom in a round; -1: nobody. */
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

/* What one round leaves apart another may connect. */
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

/* A rank that meets twice is named with both of its groups, whichever they are. */
static void a_rank_of_two_groups_is_named_with_both(void **state) {
    (void)state;
    enum { GROUPS = 4, N = 9 };
    const size_t first[] = {0, 2, 4, 6, 8};
    for (int one = 0; one < GROUPS; one++)
        for (int other = one + 1; other < GROUPS; other++) {
            int members[2 * GROUPS];
            for (int g = 0; g < GROUPS; g++) {
                members[2 * g] = g;
                members[2 * g + 1] = g == one || g == other ? N - 1 : GROUPS + g;
            }
            taciti_round round = {.members = members, .first = first, .groups = GROUPS};
            const taciti_topology t = {.name = "twice", .ranks = N, .rounds = &round, .period = 1};
            char expected[64];
            (void)snprintf(expected, sizeof expected, "rank %d is in group %d and in group %d", N - 1, one, other);
            assert_int_equal(taciti_topology_check(&t), TACIT_E_CONFIG);
            assert_non_null(strstr(g_said, expected));
        }
}

static void assert_says(const taciti_round *round, const char *text) {
    taciti_round copy = *round;
    const taciti_topology t = {.name = "broken", .ranks = 4, .rounds = &copy, .period = 1};
    g_said[0] = '\0';
    assert_int_equal(taciti_topology_check(&t), text == NULL ? TACIT_OK : TACIT_E_CONFIG);
    if (text != NULL && strstr(g_said, text) == NULL) fail_msg("'%s' does not say '%s'", g_said, text);
}

/* Each group of two is legal, or wrong in one thing; so is each list of edges. */
static void what_is_wrong_with_groups_is_named(void **state) {
    (void)state;
    static const struct {
        int members[4];
        const char *says;
    } two[] = {
        {{0, 1, 2, 3}, NULL},
        {{0, 3, 1, 2}, NULL},
        {{0, 4, 1, 2}, "group 0 has rank 4; ranks are 0 to 3"},
        {{-1, 0, 1, 2}, "group 0 has rank -1;"},
        {{0, 1, 2, 4}, "group 1 has rank 4;"},
        {{1, 0, 2, 3}, "group 0 lists rank 1 before 0"},
        {{0, 1, 3, 2}, "group 1 lists rank 3 before 2"},
        {{2, 3, 0, 1}, "group 1 begins with rank 0, the one before with 2"},
        {{0, 0, 1, 2}, "rank 0 is in group 0 and in group 0"},
    };
    static const size_t first[] = {0, 2, 4}, alone[] = {0, 2, 3};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        assert_says(&(taciti_round){.members = two[i].members, .first = first, .groups = 2}, two[i].says);
    assert_says(&(taciti_round){.members = two[0].members, .first = alone, .groups = 2}, "group 1 has fewer than 2");
}

static void what_is_wrong_with_edges_is_named(void **state) {
    (void)state;
    static const double self[] = {0.5, 0.5, 0.5, 0.5};
    static const struct {
        taciti_edge edges[4];
        const char *says;
    } rings[] = {
        {{{3, 0, .5}, {0, 1, .5}, {1, 2, .5}, {2, 3, .5}}, NULL},
        {{{4, 0, .5}, {0, 1, .5}, {1, 2, .5}, {2, 3, .5}}, "edge from rank 4 to 0; two different ranks of 0 to 3"},
        {{{-1, 0, .5}, {0, 1, .5}, {1, 2, .5}, {2, 3, .5}}, "edge from rank -1 to 0;"},
        {{{3, 0, .5}, {0, 1, .5}, {1, 2, .5}, {2, 4, .5}}, "edge from rank 2 to 4;"},
        {{{3, -1, .5}, {0, 1, .5}, {1, 2, .5}, {2, 3, .5}}, "edge from rank 3 to -1;"},
        {{{0, 0, .5}, {0, 1, .5}, {1, 2, .5}, {2, 3, .5}}, "edge from rank 0 to 0;"},
        {{{0, 1, .5}, {3, 0, .5}, {1, 2, .5}, {2, 3, .5}}, "the edge to 0 from 3 follows the one to 1 from 0"},
        {{{3, 0, .25}, {3, 0, .25}, {0, 1, .5}, {1, 2, .5}}, "the edge to 0 from 3 follows the one to 0 from 3"},
        {{{3, 0, .25}, {2, 0, .25}, {0, 1, .5}, {1, 2, .5}}, "the edge to 0 from 2 follows the one to 0 from 3"},
        {{{3, 0, 0}, {0, 1, .5}, {1, 2, .5}, {2, 3, .5}}, "weight 0 from rank 3 to 0; expected above 0, up to 1"},
        {{{3, 0, 1.1}, {0, 1, .5}, {1, 2, .5}, {2, 3, .5}}, "weight 1.1 from rank 3 to 0;"},
        {{{3, 0, .5}, {0, 1, .5}, {1, 2, .5}, {1, 3, .5}}, "column 1 sums to 1.5"},
        {{{3, 0, .5}, {0, 1, .25}, {2, 1, .25}, {1, 2, .5}}, "column 0 sums to 0.75"},
    };
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++)
        assert_says(&(taciti_round){.edges = rings[i].edges, .edge_count = 4, .self = self}, rings[i].says);
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
        cmocka_unit_test(a_rank_of_two_groups_is_named_with_both),
        cmocka_unit_test(what_is_wrong_with_groups_is_named),
        cmocka_unit_test(what_is_wrong_with_edges_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

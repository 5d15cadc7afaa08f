/* SPDX-License-Identifier: Apache-2.0
 *
 * Every topology at every size and on every kind of cluster is what it must be; and the properties of each.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "topo/placement.h"
#include "topo/topo.h"

enum { RANKS = 64 };

static char g_said[2048];

static void listen(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_said, sizeof g_said, "%s", line);
}

/* ---- clusters ---------------------------------------------------------------------------------------------------- */

enum { BLOCKS_OF_4, BLOCKS_OF_3, ONE_EACH, ROUND_ROBIN, UNEQUAL, ONE_HOST, CLUSTERS };

/* Which host each of n ranks is on; NULL for one host. */
static int *cluster(int kind, int n, int host_of[RANKS]) {
    if (kind == ONE_HOST) return NULL;
    for (int r = 0, host = 0, left = 1; r < n; r++) {
        if (kind == BLOCKS_OF_4) host_of[r] = r / 4;
        if (kind == BLOCKS_OF_3) host_of[r] = r / 3;
        if (kind == ONE_EACH) host_of[r] = r;
        if (kind == ROUND_ROBIN) host_of[r] = r % (n < 3 ? n : 3);
        if (kind == UNEQUAL) { /* 1, 2, 3, ... ranks */
            host_of[r] = host;
            if (--left == 0) left = ++host + 1;
        }
    }
    return host_of;
}

static char g_path[] = "/tmp/tacit-topo-XXXXXX"; /* of topology `file` */

/* Rank i keeps 1/4, hears i + 1 with 1/2 and i + 2 with 1/4: doubly stochastic, not symmetric. */
static void write_matrix(int n) {
    FILE *file = fopen(g_path, "w");
    assert_non_null(file);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const double w = (j == i ? .25 : 0) + (j == (i + 1) % n ? .5 : 0) + (j == (i + 2) % n ? .25 : 0);
            (void)fprintf(file, "%g%s", w, j + 1 < n ? "," : "\n");
        }
    assert_int_equal(fclose(file), 0);
}

static taciti_topology make(const char *name, int n, int *host_of) {
    const taciti_hosts hosts = {.ranks = n, .host_of = host_of};
    const taciti_topo_request request = {
        .name = name, .ranks = n, .hosts = host_of != NULL ? &hosts : NULL, .seed = 7, .file = g_path};
    if (strcmp(name, "file") == 0) write_matrix(n);
    taciti_topology topology;
    if (taciti_topology_create(&request, &topology) != TACIT_OK) fail_msg("%s at %d ranks: %s", name, n, g_said);
    return topology;
}

/* Ranks p * per_host .. on host p. */
static taciti_topology make_on(const char *name, int hosts, int per_host) {
    int host_of[RANKS];
    for (int r = 0; r < hosts * per_host; r++) host_of[r] = r / per_host;
    return make(name, hosts * per_host, host_of);
}

/* ---- properties of all
 * ------------------------------------------------------------------------------------------------- */

/* Row and column sums by asking for every weight; mix() agrees with it, and keeps the mean. */
static void assert_matrix(const taciti_topology *t, size_t round) {
    double x[RANKS], y[RANKS], total = 0, mixed = 0;
    for (int i = 0; i < t->ranks; i++) total += x[i] = taciti_rng_unit(round, (uint64_t)i) - 0.5;
    taciti_topology_mix(t, round, x, y);
    for (int i = 0; i < t->ranks; i++) {
        double row = 0, column = 0, sum = 0;
        for (int k = 0; k < t->ranks; k++) {
            const double w = taciti_topology_weight(t, round, i, k);
            assert_true(w >= 0 && w <= 1);
            row += w;
            column += taciti_topology_weight(t, round, k, i);
            sum += w * x[k];
        }
        assert_true(fabs(row - 1) <= 1e-12 && fabs(column - 1) <= 1e-12 && fabs(sum - y[i]) <= 1e-12);
        mixed += y[i];
    }
    assert_true(fabs(total - mixed) <= 1e-12);
}

/* Members of a group see the same group; groups are symmetric projections. */
static void assert_groups(const taciti_topology *t, size_t round) {
    if (t->rounds[round].self != NULL) return;
    double x[RANKS], y[RANKS], z[RANKS];
    for (int i = 0; i < t->ranks; i++) x[i] = taciti_rng_unit(1, (uint64_t)i);
    taciti_topology_mix(t, round, x, y);
    taciti_topology_mix(t, round, y, z);
    for (int i = 0; i < t->ranks; i++) {
        const int *members = NULL, *other = NULL;
        const size_t count = taciti_topology_group(t, round, i, &members);
        assert_true((members == NULL) == (count == 1));
        for (size_t k = 0; members != NULL && k < count; k++) {
            assert_true(taciti_topology_group(t, round, members[k], &other) == count && other == members);
            assert_true(y[members[k]] == y[i]);
        }
        if (members == NULL) assert_true(y[i] == x[i]);
        assert_true(fabs(z[i] - y[i]) <= 1e-15);
    }
}

/* Positions are a permutation. */
static void assert_seats(const taciti_topology *t) {
    bool taken[RANKS] = {false};
    for (int r = 0; r < t->ranks; r++) {
        assert_true(t->position[r] >= 0 && t->position[r] < t->ranks && !taken[t->position[r]]);
        taken[t->position[r]] = true;
    }
}

static void test_every_topology_is_valid(void **state) {
    (void)state;
    int host_of[RANKS];
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++) {
        for (int n = 1; n <= 40; n++)
            for (int layout = 0; layout < CLUSTERS; layout++) {
                taciti_topology t = make(kind->name, n, cluster(layout, n, host_of));
                assert_string_equal(t.name, kind->name);
                assert_true(t.ranks == n && !t.directed && t.period >= 1);
                assert_seats(&t);
                for (size_t r = 0; r < t.period; r++) {
                    assert_matrix(&t, r);
                    assert_groups(&t, r);
                }
                taciti_topology_destroy(&t);
            }
    }
}

/* Everybody's disagreement after rounds first .. first + count - 1, from a random start. */
static double disagreement(const taciti_topology *t, size_t first, size_t count) {
    double x[RANKS], y[RANKS], mean = 0, max = 0;
    for (int i = 0; i < t->ranks; i++) mean += (x[i] = taciti_rng_unit(3, (uint64_t)i)) / t->ranks;
    for (size_t r = first; r < first + count; r++) {
        taciti_topology_mix(t, r % t->period, x, y);
        memcpy(x, y, (size_t)t->ranks * sizeof *x);
    }
    for (int i = 0; i < t->ranks; i++) max = fmax(max, fabs(x[i] - mean));
    return max;
}

static void assert_exact(const taciti_topology *t, size_t first, size_t count) {
    assert_true(disagreement(t, first, count) <= 1e-14);
    assert_true(disagreement(t, first, count - 1) > 1e-4);
}

/* ---- properties of one
 * ------------------------------------------------------------------------------------------------- */

/* Law 3: any log2 N rounds of exp. */
static void test_exp_is_exact(void **state) {
    (void)state;
    for (int k = 1; k <= 6; k++) {
        taciti_topology t = make("exp", 1 << k, NULL);
        assert_int_equal(t.period, k);
        for (int first = 0; first < k; first++) assert_exact(&t, (size_t)first, (size_t)k);
        for (int r = 0; r < k; r++)
            for (int i = 0; i < 1 << k; i++) assert_true(taciti_topology_weight(&t, (size_t)r, i, i ^ 1 << r) == 0.5);
        taciti_topology_destroy(&t);
    }
}

/* Sum of the squares of P - J over N - 1, P the product of rounds 0 .. m - 1: by what a random start's squared
 * disagreement is multiplied on average. */
static double mean_square(const taciti_topology *t, size_t m) {
    double sum = 0;
    for (int i = 0; i < t->ranks; i++) {
        double x[RANKS] = {0}, y[RANKS];
        x[i] = 1;
        for (size_t r = 0; r < m; r++) {
            taciti_topology_mix(t, r, x, y);
            memcpy(x, y, sizeof x);
        }
        for (int k = 0; k < t->ranks; k++) sum += (x[k] - 1.0 / t->ranks) * (x[k] - 1.0 / t->ranks);
    }
    return sum / (t->ranks - 1);
}

/* Laws 2 and 3: one matching does nothing for the worst start, and (2^-m - 1/N) / (1 - 1/N) for a random one after m.
 */
static void test_matchings_on_their_own(void **state) {
    (void)state;
    for (int k = 1; k <= 6; k++) {
        const int n = 1 << k;
        taciti_topology t = make("exp", n, NULL), one = t;
        taciti_topo_figures f;
        one.period = 1;
        assert_int_equal(taciti_topology_figures(&one, &f), TACIT_OK);
        assert_true(fabs(f.contraction - (n >= 4 ? 1 : 0)) <= 1e-12);
        for (int m = 0; m <= k; m++)
            assert_true(fabs(mean_square(&t, (size_t)m) - (pow(2, -m) - 1.0 / n) / (1 - 1.0 / n)) <= 1e-12);
        taciti_topology_destroy(&t);
    }
}

/* Law 5: alternating exponential ring, from an even round 2 log2 n, from an odd one 2 log2 n + 1; n = 2: 1. */
static void test_aer_is_exact(void **state) {
    (void)state;
    static const int sizes[][2] = {{2, 4}, {4, 4}, {8, 4}, {4, 8}, {8, 8}, {4, 1}, {8, 2}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int n = sizes[s][0], log2n = n == 2 ? 1 : n == 4 ? 2 : 3;
        if (n == 2 && sizes[s][1] == 1) continue;
        taciti_topology t = make_on("aer", n, sizes[s][1]);
        assert_int_equal(t.period, 2 * log2n);
        for (size_t first = 0; first < t.period; first += 2) assert_exact(&t, first, t.period);
        for (size_t first = 1; first < t.period && sizes[s][1] > 1; first += 2)
            assert_exact(&t, first, n == 2 ? 1 : t.period + 1);
        taciti_topology_destroy(&t);
    }
}

/* The rounds of four hosts of four ranks, as the paper draws them. */
static void test_aer_rounds(void **state) {
    (void)state;
    static const int sizes[4][16] = {
        /* size of the group of each rank, by round; hosts (0, 1) are pair 0, (2, 3) pair 1; then (0, 2) and (1, 3) */
        {4, 4, 4, 4, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8},
        {8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4},
        {4, 4, 4, 4, 8, 8, 8, 8, 4, 4, 4, 4, 8, 8, 8, 8},
        {8, 8, 8, 8, 4, 4, 4, 4, 8, 8, 8, 8, 4, 4, 4, 4},
    };
    taciti_topology t = make_on("aer", 4, 4);
    assert_int_equal(t.period, 4);
    for (size_t r = 0; r < 4; r++)
        for (int i = 0; i < 16; i++) {
            const int *members = NULL;
            assert_int_equal(taciti_topology_group(&t, r, i, &members), sizes[r][i]);
            assert_int_equal(members[0] / 4,
                             r < 2 ? (sizes[r][i] == 8 ? i / 8 * 2 : i / 4) : (sizes[r][i] == 8 ? i / 4 % 2 : i / 4));
        }
    taciti_topology_destroy(&t);
}

/* W of two rounds, in the other order, is the same: what odd buckets get after both is what even ones get. */
static void assert_twos_commute(const taciti_topology *t) {
    for (size_t r = 0; r < t->period; r += 2)
        for (int from = 0; from < t->ranks; from++) {
            double x[64] = {0}, between[64], first[64], second[64];
            x[from] = 1;
            taciti_topology_mix(t, r, x, between);
            taciti_topology_mix(t, r + 1, between, first);
            taciti_topology_mix(t, r + 1, x, between);
            taciti_topology_mix(t, r, between, second);
            for (int to = 0; to < t->ranks; to++) assert_true(fabs(first[to] - second[to]) < 1e-12);
        }
}

static void test_aer_alternates(void **state) {
    (void)state;
    for (int hosts = 1; hosts <= 7; hosts++)
        for (int each = 1; each <= 4; each++) {
            taciti_topology t = make_on("aer", hosts, each);
            assert_true(t.alternates == (hosts > 1));
            assert_true(!t.alternates || t.period % 2 == 0);
            for (int64_t number = 0; number < 2 * (int64_t)t.period; number++) {
                const size_t round = (size_t)number % t.period;
                assert_int_equal(taciti_topology_round(&t, number, 0), round);
                assert_int_equal(taciti_topology_round(&t, number, 1), t.alternates ? round ^ 1 : round);
            }
            if (t.alternates) assert_twos_commute(&t);
            taciti_topology_destroy(&t);
        }
    static const char *const OTHERS[] = {"exp", "base-k", "ring", "complete", "random", "exp-directed"};
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        taciti_topology t = make_on(OTHERS[i], 4, 2);
        assert_true(!t.alternates);
        assert_int_equal(taciti_topology_round(&t, 5, 1), 5 % t.period);
        taciti_topology_destroy(&t);
    }
}

/* Law 6. */
static void test_complete_is_the_mean(void **state) {
    (void)state;
    for (int n = 2; n <= 16; n++) {
        taciti_topology t = make("complete", n, NULL);
        assert_int_equal(t.period, 1);
        assert_exact(&t, 0, 1);
        taciti_topology_destroy(&t);
    }
}

/* Odd: everybody is left over once in a period, and every edge of the ring is used. */
static void test_one_peer_ring(void **state) {
    (void)state;
    for (int n = 3; n <= 40; n++) {
        taciti_topology t = make("one-peer-ring", n, NULL);
        int idle[RANKS] = {0}, met[RANKS] = {0};
        for (size_t r = 0; r < t.period; r++)
            for (int i = 0; i < n; i++) {
                idle[i] += taciti_topology_weight(&t, r, i, i) == 1;
                met[i] += taciti_topology_weight(&t, r, i, (i + 1) % n) == 0.5;
            }
        for (int i = 0; i < n; i++) {
            assert_int_equal(idle[i], n % 2);
            assert_true(met[i] > 0);
        }
        taciti_topology_destroy(&t);
    }
}

/* Takezawa et al., theorem 1: exact for every n and k, at most 2 log_{k+1}(n) + 2 rounds, at most k partners. */
static void test_base_k_is_exact(void **state) {
    (void)state;
    for (int n = 1; n <= RANKS; n++)
        for (int k = 1; k <= 5; k++) {
            const taciti_topo_request request = {.name = "base-k", .ranks = n, .degree = k};
            taciti_topology t;
            taciti_topo_figures f;
            assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
            assert_true((double)t.period <= 2 * log(n) / log(k + 1) + 2 + 1e-9);
            for (int i = 0; i < n; i++) { /* the product of a period, column by column, is J */
                double x[RANKS] = {0}, y[RANKS];
                x[i] = 1;
                for (size_t r = 0; r < t.period; r++) {
                    taciti_topology_mix(&t, r, x, y);
                    memcpy(x, y, sizeof x);
                }
                for (int j = 0; j < n; j++) assert_true(fabs(x[j] - 1.0 / n) <= 1e-15);
            }
            assert_int_equal(taciti_topology_figures(&t, &f), TACIT_OK);
            assert_int_equal(f.exact_after, t.period);
            assert_true(f.max_partners <= (size_t)k && f.contraction == 0 && f.spectral_gap == 1);
            taciti_topology_destroy(&t);
        }
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static taciti_topo_figures figures(const char *name, int n) {
    taciti_topology t = make(name, n, NULL);
    taciti_topo_figures f;
    assert_int_equal(taciti_topology_figures(&t, &f), TACIT_OK);
    assert_true(fabs(f.spectral_gap - (1 - pow(f.contraction, 1 / (double)t.period))) <= 1e-15);
    taciti_topology_destroy(&t);
    return f;
}

static void assert_near(double x, double expected) {
    if (!(fabs(x - expected) <= 1e-12)) fail_msg("%.17g is not %.17g", x, expected);
}

/* Laws 4, 5, 6 and 7: singular values in closed form. */
static void test_figures(void **state) {
    (void)state;
    const double pi = acos(-1);
    for (int n = 4; n <= 128; n *= 2) {
        const double k = log2(n);
        assert_near(figures("one-peer-ring", n).contraction, n == 4 ? 0 : cos(2 * pi / n));
        assert_near(figures("ring", n).contraction, (1 + 2 * cos(2 * pi / n)) / 3);
        assert_near(figures("ring", n).min_eigenvalue, -1.0 / 3);
        assert_near(figures("exp-static", n).contraction, (k - 1) / (k + 1));
        assert_int_equal(figures("exp", n).exact_after, k);
        assert_int_equal(figures("exp-directed", n).exact_after, k);
        assert_int_equal(figures("complete", n).exact_after, 1);
        assert_int_equal(figures("complete", n).max_partners, n - 1);
        assert_near(figures("exp", n).contraction, 0);
        assert_near(figures("exp", n).min_eigenvalue, 0);
    }
    assert_int_equal(figures("one-peer-ring", 4).exact_after, 2);
    assert_true(fabs(figures("exp-directed", 6).contraction - .216506) <= 1e-6);
    assert_true(fabs(figures("exp-directed", 12).contraction - .209129) <= 1e-6);
    for (int n = 3; n <= 40; n++) {
        assert_near(figures("ring", n).contraction, n == 3 ? 0 : fabs((1 + 2 * cos(2 * pi / n)) / 3));
        if ((n & (n - 1)) != 0) assert_true(figures("exp", n).contraction < 0.5);
    }
    assert_near(figures("torus", 25).contraction, (3 + 2 * cos(2 * pi / 5)) / 5);
    assert_near(figures("torus", 64).contraction, (3 + 2 * cos(2 * pi / 8)) / 5);
}

/* One rank: nothing to agree on. Many: bounded, and close to the closed form. */
static void test_figures_at_the_ends(void **state) {
    (void)state;
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++) {
        const taciti_topo_figures one = figures(kind->name, 1), two = figures(kind->name, 2);
        assert_true(one.contraction == 0 && one.spectral_gap == 1 && one.min_eigenvalue == 1);
        assert_true(one.exact_after == 1 && one.max_partners == 0);
        assert_true(two.contraction == 0 && two.exact_after == 1 && two.max_partners == 1);
        assert_true(two.min_eigenvalue == 0);
    }
    assert_true(fabs(figures("ring", 1024).contraction - (1 + 2 * cos(2 * acos(-1) / 1024)) / 3) <= 1e-6);
    taciti_topology t = make("ring", 2049, NULL);
    taciti_topo_figures f;
    assert_int_equal(taciti_topology_figures(&t, &f), TACIT_E_UNSUPPORTED);
    assert_non_null(strstr(g_said, "2049 ranks; they are computed for up to 2048"));
    taciti_topology_destroy(&t);
}

/* All on one host, but for what the request assumes. */
static void test_assumed_hosts_are_as_given_ones(void **state) {
    (void)state;
    const taciti_topo_request request = {.name = "aer", .ranks = 8, .per_host = 2, .seed = 7};
    taciti_topology given = make_on("aer", 4, 2), assumed;
    assert_int_equal(taciti_topology_create(&request, &assumed), TACIT_OK);
    assert_int_equal(assumed.period, given.period);
    for (size_t r = 0; r < given.period; r++)
        for (int pair = 0; pair < 8 * 8; pair++)
            assert_true(taciti_topology_weight(&assumed, r, pair / 8, pair % 8) ==
                        taciti_topology_weight(&given, r, pair / 8, pair % 8));
    taciti_topology_destroy(&assumed);
    taciti_topology_destroy(&given);
}

static void test_auto_suits_the_hosts(void **state) {
    (void)state;
    static const struct {
        int ranks, per_host;
        const char *name;
    } CASES[] = {{1, 1, "exp"}, {2, 1, "exp"}, {2, 2, "aer"}, {3, 2, "aer"}, {4, 2, "aer"},
                 {5, 5, "aer"}, {7, 1, "exp"}, {7, 2, "aer"}, {7, 4, "aer"}, {16, 4, "aer"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        taciti_topology t;
        taciti_hosts hosts;
        taciti_topo_request request = {.name = TACITI_TOPO_AUTO, .ranks = CASES[i].ranks};
        assert_int_equal(taciti_hosts_by_size(request.ranks, CASES[i].per_host, &hosts), TACIT_OK);
        request.hosts = &hosts;
        assert_string_equal(taciti_topology_name(&request), CASES[i].name);
        assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
        assert_string_equal(t.name, CASES[i].name);
        taciti_topology_destroy(&t);
        taciti_hosts_destroy(&hosts);
        request.hosts = NULL; /* all on one, but for what is assumed */
        assert_string_equal(taciti_topology_name(&request), request.ranks == 1 ? "exp" : "aer");
        request.per_host = CASES[i].per_host;
        assert_string_equal(taciti_topology_name(&request), CASES[i].name);
        request.name = "ring";
        assert_string_equal(taciti_topology_name(&request), "ring");
    }
}

/* A cluster whose hosts hold every third rank: pairs of the first rounds still are on one host. */
static void test_seats_follow_hosts(void **state) {
    (void)state;
    int host_of[RANKS];
    for (int r = 0; r < 16; r++) host_of[r] = r % 4;
    taciti_topology t = make("exp", 16, host_of);
    for (int r = 0; r < 16; r++) {
        const int *members = NULL;
        assert_int_equal(t.position[r], r % 4 * 4 + r / 4);
        for (size_t round = 0; round < 2; round++) {
            assert_int_equal(taciti_topology_group(&t, round, r, &members), 2);
            assert_int_equal(host_of[members[0]], host_of[members[1]]);
        }
    }
    taciti_topology_destroy(&t);
}

/* Pairs (0 2) and (1 3), every second round (0 1): on hosts {0 1} and {2 3} both pairs would cross, seated well only
 * the link of the last round does. */
static void test_heavy_edges_stay_inside(void **state) {
    (void)state;
    static int host_of[4] = {0, 0, 1, 1};
    const taciti_topo_request request = {
        .name = "none of the list", .ranks = 4, .hosts = &(taciti_hosts){.ranks = 4, .host_of = host_of}};
    taciti_draft draft;
    taciti_seating seating;
    assert_int_equal(taciti_draft_create(4, &draft), TACIT_OK);
    assert_int_equal(taciti_seating_create(&request, &seating), TACIT_OK);
    taciti_draft_pair(&draft, 0, 2);
    taciti_draft_pair(&draft, 1, 3);
    taciti_draft_close(&draft);
    taciti_draft_pair(&draft, 0, 1);
    taciti_draft_close(&draft);
    assert_int_equal(taciti_seating_improve(&draft, &seating), TACIT_OK);
    for (int place = 0; place < 2; place++)
        assert_int_equal(host_of[seating.rank_at[place]], host_of[seating.rank_at[place + 2]]);
    taciti_seating_destroy(&seating);
    taciti_draft_destroy(&draft);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void assert_refused(const taciti_topo_request *request, const char *text) {
    taciti_topology topology;
    assert_int_equal(taciti_topology_create(request, &topology), TACIT_E_CONFIG);
    if (strstr(g_said, text) == NULL) fail_msg("'%s' does not say '%s'", g_said, text);
}

static void test_bad_requests(void **state) {
    (void)state;
    static int high[2] = {0, 2}, low[2] = {0, -1};
    assert_refused(&(taciti_topo_request){.name = "exq", .ranks = 2}, "did you mean \"exp\"?");
    assert_refused(&(taciti_topo_request){.name = "", .ranks = 2}, "topology \"\" is not known");
    assert_refused(&(taciti_topo_request){.name = "exp", .ranks = 0}, "0 ranks; it is made for 1 to");
    assert_refused(
        &(taciti_topo_request){.name = "exp", .ranks = 2, .hosts = &(taciti_hosts){.ranks = 2, .host_of = high}},
        "rank 1 is on host 2");
    assert_refused(
        &(taciti_topo_request){.name = "exp", .ranks = 2, .hosts = &(taciti_hosts){.ranks = 2, .host_of = low}},
        "rank 1 is on host -1");
    assert_refused(&(taciti_topo_request){.name = "torus", .ranks = 16, .degree = 5},
                   "5 columns do not divide 16 ranks");
    assert_refused(&(taciti_topo_request){.name = "base-k", .ranks = 8, .degree = -1}, "degree -1");
    assert_refused(&(taciti_topo_request){.name = "base-k", .ranks = 1, .degree = INT_MAX},
                   "degree 2147483647; give 0 (default) or more, up to 65536");
}

int main(void) {
    const int file = mkstemp(g_path);
    if (file < 0) return 1;
    (void)close(file);
    taciti_log_set_sink(listen, NULL, TACITI_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_topology_is_valid),
        cmocka_unit_test(test_exp_is_exact),
        cmocka_unit_test(test_matchings_on_their_own),
        cmocka_unit_test(test_aer_is_exact),
        cmocka_unit_test(test_aer_rounds),
        cmocka_unit_test(test_aer_alternates),
        cmocka_unit_test(test_complete_is_the_mean),
        cmocka_unit_test(test_one_peer_ring),
        cmocka_unit_test(test_base_k_is_exact),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_figures_at_the_ends),
        cmocka_unit_test(test_assumed_hosts_are_as_given_ones),
        cmocka_unit_test(test_auto_suits_the_hosts),
        cmocka_unit_test(test_seats_follow_hosts),
        cmocka_unit_test(test_heavy_edges_stay_inside),
        cmocka_unit_test(test_bad_requests),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(g_path);
    return failed;
}

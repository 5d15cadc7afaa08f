/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of mixing mode by mode, of fixed points and noise for any matrix, and of clipping and the consensus
 * factor.
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

#include "strategy/test_replicas.h"
#include "topo/topo.h"

#define PI 3.14159265358979323846
#define ROUNDINGS 0x1p-20 /* some dozens of floats of size 1 */

static const char *const TOPOLOGIES[] = {"complete",     "one-peer-ring", "ring", "torus",  "exp",
                                         "exp-directed", "exp-static",    "aer",  "random", "base-k"};
enum { TOPOLOGY_COUNT = sizeof TOPOLOGIES / sizeof *TOPOLOGIES };

static void assert_near(double x, double expected, double tolerance) {
    if (!(fabs(x - expected) <= tolerance)) fail_msg("%.9g is not %.9g +- %.3g", x, expected, tolerance);
}

/* Replicas that differ, and nothing but mixing. */
static test_replicas mixing(int ranks, int steps, const char *topology) {
    test_replicas t = test_replicas_of(ranks, steps);
    t.floats = 50;
    t.scattered = true;
    t.lr = 0;
    test_topology(&t, topology);
    return t;
}

/* One element per rank, f_r(x) = (x - c_r)^2 / 2. */
static test_replicas quadratic(int ranks, int steps, const double *c) {
    test_replicas t = test_replicas_of(ranks, steps);
    t.floats = 1;
    t.problem = TEST_QUADRATIC;
    t.c = c;
    return t;
}

/* ---- modes: laws 7 and 8 -------------------------------------------------------------------------------------------
 */

/* Element `i` in the direction cos(2 pi mode (rank + 1/8) / N), an eigenvector of every symmetric circulant matrix. */
static double mode_of(const test_replicas *t, int mode, size_t i) {
    double sum = 0;
    for (int r = 0; r < t->ranks; r++) sum += cos(2 * PI * mode * (r + 0.125) / t->ranks) * (double)t->parameters[r][i];
    return sum;
}

/* A mix multiplies a mode by 1 - gamma (1 - lambda). */
static void assert_eigenvalue(const char *topology, int ranks, int mode, double lambda, double gamma) {
    test_replicas after = mixing(ranks, 1, topology), before = mixing(ranks, 0, topology);
    after.gossip.gamma = gamma;
    test_replicas_run(&before);
    test_replicas_run(&after);
    for (size_t i = 0; i < 50; i++)
        assert_near(mode_of(&after, mode, i), (1 - gamma * (1 - lambda)) * mode_of(&before, mode, i), 8 * ROUNDINGS);
    test_replicas_free(&before);
    test_replicas_free(&after);
}

static void modes_shrink_by_their_eigenvalue(void **state) {
    (void)state;
    const double gammas[] = {1, 0.5, 0.3, 0};
    for (int g = 0; g < 4; g++)
        for (int n = 4; n <= 16; n *= 2) {
            const double k = log2(n);
            for (int mode = 0; mode <= n / 2; mode++) {
                assert_eigenvalue("ring", n, mode, (1 + 2 * cos(2 * PI * mode / n)) / 3, gammas[g]);
                assert_eigenvalue("complete", n, mode, mode == 0, gammas[g]);
            }
            /* neighbours at odd distances have the other sign: one of them */
            assert_eigenvalue("exp-static", n, n / 2, (k - 1) / (k + 1), gammas[g]);
        }
}

/* ---- matrices of a file: law 9 -------------------------------------------------------------------------------------
 */

/* Everybody keeps w and hears (1 - w) / (N - 1) of each other: the mean stays, what differs from it is multiplied by
 * w - (1 - w) / (N - 1). */
static void write_matrix(const char *path, int ranks, double w) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int to = 0; to < ranks; to++)
        for (int from = 0; from < ranks; from++)
            (void)fprintf(file, "%.17g%c", to == from ? w : (1 - w) / (ranks - 1), from + 1 < ranks ? ',' : '\n');
    assert_int_equal(fclose(file), 0);
}

static void a_share_of_ones_own_is_an_eigenvalue(void **state) {
    (void)state;
    char path[] = "/tmp/tacit-matrix-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    const double shares[] = {0.3, 0.125, 0.5, 0.02};
    const int ranks[] = {3, 4, 7, 8, 9, 12, 16};
    for (int s = 0; s < 4; s++)
        for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
            const double w = shares[s], lambda = w - (1 - w) / (ranks[k] - 1);
            test_replicas after = mixing(ranks[k], 1, "file"), before = mixing(ranks[k], 0, "complete");
            write_matrix(path, ranks[k], w);
            (void)snprintf(after.gossip.file.text, sizeof after.gossip.file.text, "%s", path);
            test_replicas_run(&before);
            test_replicas_run(&after);
            assert_int_equal(after.status, TACIT_OK);
            for (size_t i = 0; i < 50; i++) {
                double mean = 0;
                for (int r = 0; r < ranks[k]; r++) mean += (double)before.parameters[r][i] / ranks[k];
                for (int r = 0; r < ranks[k]; r++)
                    assert_near((double)after.parameters[r][i],
                                mean + lambda * ((double)before.parameters[r][i] - mean), 8 * ROUNDINGS);
            }
            test_replicas_free(&before);
            test_replicas_free(&after);
        }
    (void)unlink(path);
}

/* ---- one worker, equal workers: law 10 -----------------------------------------------------------------------------
 */

static void one_rank_is_dense(void **state) {
    (void)state;
    for (int i = 0; i < TOPOLOGY_COUNT; i++)
        for (int order = 0; order < 2; order++) {
            test_replicas gossip = test_replicas_of_adam(1, 8, TOPOLOGIES[i]), dense = gossip;
            gossip.gossip.order = order;
            dense.strategy = "dp";
            assert_true(test_replicas_agree(&gossip, &dense));
        }
}

/* A mean of equal numbers is exact where numbers are added in pairs or each is a power of two of the whole. */
static void equal_data_keep_more_replicas_equal(void **state) {
    (void)state;
    for (int i = 0; i < TOPOLOGY_COUNT; i++)
        for (int ranks = 9; ranks <= 16; ranks++) {
            test_replicas t = test_replicas_of_adam(ranks, 4, TOPOLOGIES[i]), one = test_replicas_of_adam(1, 4, "exp");
            t.problem = one.problem = TEST_EQUAL;
            t.floats = one.floats = 40;
            test_replicas_run(&t);
            test_replicas_run(&one);
            const bool exact = ranks == 16 && strcmp(TOPOLOGIES[i], "torus") != 0;
            for (int r = 0; r < ranks; r++)
                for (size_t k = 0; k < t.n; k++) {
                    assert_near((double)t.parameters[r][k], (double)one.parameters[0][k], 4 * ROUNDINGS);
                    if (exact) assert_true(t.parameters[r][k] == t.parameters[0][k]);
                }
            test_replicas_free(&t);
            test_replicas_free(&one);
        }
}

/* ---- SGD: laws 16 and 18 -------------------------------------------------------------------------------------------
 */

/* Integers and powers of two: exact in any order. */
static void complete_atc_is_dense_sgd_with_momentum(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        test_replicas dense = test_replicas_of(ranks, 6), gossip;
        dense.problem = TEST_INTEGERS;
        dense.optim.lr = dense.lr = 0x1p-6;
        dense.optim.momentum = 0.5;
        gossip = dense;
        dense.strategy = "dp";
        test_topology(&gossip, "complete");
        gossip.gossip.order = TACITI_GOSSIP_ATC;
        assert_true(test_replicas_agree(&dense, &gossip));
    }
}

/* Where a mode of eigenvalue lambda comes to rest, in units of the same mode of c. */
static double rest_of(double lambda, double lr, int order) {
    return order == TACITI_GOSSIP_AWC ? lr / (1 - lambda + lr) : lr * lambda / (1 - (1 - lr) * lambda);
}

static void rings_rest_mode_by_mode(void **state) {
    (void)state;
    double c[16];
    for (int r = 0; r < 16; r++) c[r] = sin(3 * r) + 0.3 * (r % 3);
    const double golden_c[] = {1, -3, 2, .5}, golden[] = {.155712841254, -.199191102123, .286147623862, .257330637007};
    for (int n = 4; n <= 16; n *= 2)
        for (int order = 0; order < 2; order++) {
            test_replicas t = quadratic(n, 400, c);
            test_topology(&t, "ring");
            t.gossip.order = order;
            test_replicas_run(&t);
            for (int mode = 0; mode <= n / 2; mode++) {
                double expected = 0;
                for (int r = 0; r < n; r++) expected += cos(2 * PI * mode * (r + 0.125) / n) * c[r];
                expected *= rest_of((1 + 2 * cos(2 * PI * mode / n)) / 3, t.lr, order);
                assert_near(mode_of(&t, mode, 0), expected, 64 * ROUNDINGS);
            }
            test_replicas_free(&t);
        }
    test_replicas t = quadratic(4, 300, golden_c);
    test_topology(&t, "ring");
    test_replicas_run(&t);
    for (int r = 0; r < 4; r++) assert_near((double)t.parameters[r][0], golden[r], ROUNDINGS);
    test_replicas_free(&t);
}

/* ---- noise: law 20 --------------------------------------------------------------------------------------------------
 */

/* Disagreement after `steps` steps of unit noise from equal replicas, by the matrices: C <- W C W' + I (awc) or
 * W (C + I) W' (atc). */
static double disagreement(const char *topology, int ranks, int per_host, int order, int steps) {
    int host_of[TEST_MAX_RANKS];
    static double c[TEST_MAX_RANKS][TEST_MAX_RANKS], half[TEST_MAX_RANKS][TEST_MAX_RANKS];
    for (int r = 0; r < ranks; r++) host_of[r] = per_host > 0 ? r / per_host : 0;
    taciti_topology t;
    const taciti_topo_request request = {
        .name = topology, .ranks = ranks, .hosts = &(taciti_hosts){.ranks = ranks, .host_of = host_of}};
    assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
    memset(c, 0, sizeof c);
    for (int s = 0; s < steps; s++) {
        for (int r = 0; r < ranks && order == TACITI_GOSSIP_ATC; r++) c[r][r] += 1;
        for (int pass = 0; pass < 2; pass++) { /* C <- (W C)' twice */
            for (int j = 0; j < ranks; j++) {
                double x[TEST_MAX_RANKS], y[TEST_MAX_RANKS];
                for (int i = 0; i < ranks; i++) x[i] = c[i][j];
                taciti_topology_mix(&t, (size_t)s % t.period, x, y);
                for (int i = 0; i < ranks; i++) half[j][i] = y[i];
            }
            memcpy(c, half, sizeof c);
        }
        for (int r = 0; r < ranks && order == TACITI_GOSSIP_AWC; r++) c[r][r] += 1;
    }
    double trace = 0, sum = 0;
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < ranks; j++) {
            trace += i == j ? c[i][j] : 0;
            sum += c[i][j];
        }
    taciti_topology_destroy(&t);
    return (trace - sum / ranks) / ranks;
}

/* Spec values of long runs, from both rounds where two take turns. */
static void noise_of_matrices_is_as_published(void **state) {
    (void)state;
    const struct {
        const char *topology;
        int ranks, per_host;
        double awc[2], atc[2];
    } cases[] = {{"exp", 16, 0, {1.625, 1.625}, {.6875, .6875}},
                 {"one-peer-ring", 16, 0, {2.25, 2.25}, {1.3125, 1.3125}},
                 {"one-peer-ring", 8, 0, {1.5, 1.5}, {.625, .625}},
                 {"aer", 8, 4, {1, .875}, {.125, 0}},
                 {"aer", 16, 4, {1.1875, 1.15625}, {.25, .21875}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int order = 0; order < 2; order++) {
            const double *e = order == TACITI_GOSSIP_AWC ? cases[i].awc : cases[i].atc;
            const double a = disagreement(cases[i].topology, cases[i].ranks, cases[i].per_host, order, 401);
            const double b = disagreement(cases[i].topology, cases[i].ranks, cases[i].per_host, order, 402);
            assert_near(fmax(a, b), e[0], 1e-9);
            assert_near(fmin(a, b), e[1], 1e-9);
        }
}

/* FLOATS independent coordinates: the relative deviation of the mean square is at most sqrt(2 / FLOATS) = 0.018, since
 * a coordinate has at least one degree of freedom; 4 of it are allowed. Not in a long run: after as many steps. */
enum { FLOATS = 6000, NOISE_STEPS = 13 };
static void assert_noise(const char *topology, int ranks, int per_host, int order) {
    test_replicas t = test_replicas_of(ranks, NOISE_STEPS);
    t.floats = FLOATS;
    t.bucket_bytes = 1 << 20;
    t.problem = TEST_NOISE;
    t.start = 0;
    t.lr = 1;
    t.gossip.order = order;
    t.gossip.per_host = per_host;
    test_topology(&t, topology);
    test_replicas_run(&t);
    double sum = 0;
    for (size_t i = 0; i < FLOATS; i++) {
        double mean = 0;
        for (int r = 0; r < ranks; r++) mean += (double)t.parameters[r][i] / ranks;
        for (int r = 0; r < ranks; r++) sum += pow((double)t.parameters[r][i] - mean, 2);
    }
    test_replicas_free(&t);
    /* the first awc mix is of equal replicas: a run of n steps has passed n - 1 mixes of noise, from round 1 on */
    const double expected = disagreement(topology, ranks, per_host, order, NOISE_STEPS);
    assert_near(sum / ranks / FLOATS, expected, 4 * sqrt(2.0 / FLOATS) * expected + 1e-9);
}

static void noise_is_that_of_the_matrices(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        for (int i = 0; i < TOPOLOGY_COUNT; i++) {
            if (strcmp(TOPOLOGIES[i], "random") == 0) continue; /* drawn with the options of the request */
            assert_noise(TOPOLOGIES[i], 7, 0, order);
        }
        assert_noise("exp", 16, 0, order);
        assert_noise("aer", 16, 4, order);
    }
}

/* ---- bias of local moments: law 21 ----------------------------------------------------------------------------------
 */

/* The equations in double: the mean of two DAdam workers on (x - c)^2 / 2, complete graph, a rate that falls to 0. */
static double mean_of_two_dadam_workers(const double c[2], double peak, int steps, int order) {
    double x[2] = {0, 0}, m[2] = {0, 0}, v[2] = {0, 0};
    for (int t = 1; t <= steps; t++) {
        const double lr = peak * (1 - (double)(t - 1) / steps), mean = (x[0] + x[1]) / 2;
        for (int i = 0; i < 2; i++) {
            const double g = x[i] - c[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            const double d = m[i] / (1 - pow(0.9, t)) / (sqrt(v[i] / (1 - pow(0.999, t))) + 1e-8);
            x[i] = (order == TACITI_GOSSIP_AWC ? mean : x[i]) - lr * d;
        }
        if (order == TACITI_GOSSIP_ATC) x[0] = x[1] = (x[0] + x[1]) / 2;
    }
    return (x[0] + x[1]) / 2;
}

/* A few hundredths above 0 (awc) or at 0 (atc), where dense Adam finds -1: characterised, not wished for. */
static void local_adam_stays_where_its_equations_say(void **state) {
    (void)state;
    const double c[] = {1, -3};
    for (int steps = 1000; steps <= 4000; steps *= 2)
        for (int order = 0; order < 2; order++) {
            test_replicas t = quadratic(2, steps, c);
            t.start = 0;
            t.optim.name = TACITI_OPTIM_ADAM;
            t.lr = -0.1; /* falls to 0 */
            t.gossip.order = order;
            test_topology(&t, "complete");
            test_replicas_run(&t);
            const double mean = ((double)t.parameters[0][0] + (double)t.parameters[1][0]) / 2;
            const double expected = mean_of_two_dadam_workers(c, 0.1, steps, order);
            assert_near(mean, expected, 1e-4);
            assert_true(order == TACITI_GOSSIP_AWC ? expected > 0.03 && expected < 0.045 : fabs(expected) < 1e-6);
            test_replicas_free(&t);
        }
}

/* ---- clipping: law 22 -----------------------------------------------------------------------------------------------
 */

static double sign_clip(double g, double clip) { return clip > 0 && fabs(g) > clip ? copysign(clip, g) : g; }

/* The gradient of a rank's own share of the batch, whatever the number of ranks, clipped by its own norm. */
static void a_rank_clips_its_own_gradient(void **state) {
    (void)state;
    const double c[] = {1, -3, 2, .75, -1}, clips[] = {0, .4, 2, 100};
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int order = 0; order < 2; order++)
            for (int k = 0; k < 4; k++) {
                float path[1][TEST_MAX_RANKS];
                test_replicas t = quadratic(ranks, 1, c);
                t.gossip.gamma = 0; /* what each rank's update did is what is seen */
                t.gossip.order = order;
                t.optim.clip = clips[k];
                t.path = path;
                test_replicas_run(&t);
                for (int r = 0; r < ranks; r++) {
                    const double g = t.start - c[r];
                    assert_near(t.reports[r][0].grad_norm, fabs(g), ROUNDINGS);
                    assert_near((double)path[0][r], t.start - t.lr * sign_clip(g, clips[k]), ROUNDINGS);
                }
                test_replicas_free(&t);
            }
}

/* One norm for all buckets. */
static void a_clipped_step_has_the_length_of_the_bound(void **state) {
    (void)state;
    for (size_t bytes = 256; bytes <= 1 << 16; bytes *= 16)
        for (int order = 0; order < 2; order++) {
            test_replicas t = test_replicas_of(3, 1);
            t.gossip.gamma = 0;
            t.gossip.order = order;
            t.optim.clip = 0.25;
            t.bucket_bytes = bytes;
            test_replicas_run(&t);
            for (int r = 0; r < 3; r++) {
                double squares = 0;
                for (size_t i = 0; i < t.n; i++)
                    if (t.parameters[r][i] < 0 || t.parameters[r][i] > 0)
                        squares += pow((double)t.parameters[r][i] - t.start, 2);
                assert_true(t.reports[r][0].grad_norm > 1);
                assert_near(sqrt(squares), t.lr * 0.25, 1e-5);
            }
            test_replicas_free(&t);
        }
}

/* Complete graph, from equal replicas: y0 = g0, x1 = x0 - lr clip(y0); y1 = mean of y0 + g1 - g0 and g1 - g0 = x1 - x0;
 * x2 = mean of x1 - lr clip(y1). The estimate is clipped, by its own norm. */
static void the_tracker_is_clipped_by_its_own_norm(void **state) {
    (void)state;
    const double c[] = {1, -3, 2, .75}, clips[] = {0, .6};
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int k = 0; k < 2; k++) {
            float path[2][TEST_MAX_RANKS];
            test_replicas t = quadratic(ranks, 2, c);
            t.gossip.tracker = true;
            t.optim.clip = clips[k];
            t.path = path;
            test_topology(&t, "complete");
            test_replicas_run(&t);
            double mean_y = 0, mean_x = 0, moved[TEST_MAX_RANKS];
            for (int r = 0; r < ranks; r++) {
                moved[r] = -t.lr * sign_clip(t.start - c[r], clips[k]);
                mean_y += (t.start - c[r]) / ranks;
                mean_x += (t.start + moved[r]) / ranks;
            }
            for (int r = 0; r < ranks; r++) {
                const double y = mean_y + moved[r];
                assert_near(t.reports[r][0].grad_norm, fabs(t.start - c[r]), ROUNDINGS);
                assert_near(t.reports[r][1].grad_norm, fabs(y), 4 * ROUNDINGS);
                assert_near((double)path[0][r], t.start + moved[r], ROUNDINGS);
                assert_near((double)path[1][r], mean_x - t.lr * sign_clip(y, clips[k]), ROUNDINGS);
            }
            test_replicas_free(&t);
        }
}

/* ---- the consensus factor: law 8 --------------------------------------------------------------------------------- */

/* Two ranks with one minimum: what differs is multiplied by 1 - gamma - lr (awc) or (1 - gamma) (1 - lr) (atc). */
static void the_consensus_factor_says_how_far_a_mix_goes(void **state) {
    (void)state;
    enum { STEPS = 10 };
    const double c[] = {1, 1};
    for (int order = 0; order < 2; order++) {
        float path[STEPS][TEST_MAX_RANKS];
        test_replicas t = quadratic(2, STEPS, c);
        test_topology(&t, "complete");
        t.scattered = true;
        t.gossip.order = order;
        t.gossip.gamma = 0.4;
        t.path = path;
        test_replicas_run(&t);
        for (int s = 1; s < STEPS; s++) {
            const double factor = order == TACITI_GOSSIP_AWC ? 0.6 - t.lr : 0.6 * (1 - t.lr);
            const double before = (double)path[s - 1][0] - (double)path[s - 1][1];
            assert_near((double)path[s][0] - (double)path[s][1], factor * before, ROUNDINGS);
        }
        assert_true(fabs((double)path[0][0] - (double)path[0][1]) > 0.1);
        test_replicas_free(&t);
    }
}

/* A late mix is stable up to gamma 1/2, and that is where it is refused from. */
static void a_late_mix_is_refused_where_it_swings_up(void **state) {
    (void)state;
    const double gammas[] = {0.5, 0.5000001};
    for (int k = 0; k < 2; k++) {
        test_replicas t = mixing(4, 60, "complete");
        t.gossip.delay = 1;
        t.gossip.gamma = gammas[k];
        if (k > 0) test_log_keep();
        test_replicas_run(&t);
        assert_int_equal(t.status, k == 0 ? TACIT_OK : TACIT_E_CONFIG);
        assert_int_equal(t.predicted, t.status);
        for (int r = 0; k == 0 && r < 4; r++) assert_near((double)t.parameters[r][0], (double)t.parameters[0][0], 4);
        if (k > 0) assert_true(test_log_count("gossip.gamma is 0.5 or less") >= 1);
        if (k > 0) test_log_drop();
        test_replicas_free(&t);
    }
}

/* ---- ranks that disagree about the topology -------------------------------------------------------------------------
 */

static void ranks_with_other_topologies_are_refused(void **state) {
    (void)state;
    const struct {
        const char *topology, *odd;
        int64_t degree;
    } cases[] = {
        {"exp", "one-peer-ring", 0},       /* other groups, other periods */
        {"base-k", "base-k", 3},           /* the same name, other rounds */
        {"ring", "exp-static", 0},         /* other edges */
        {"exp-directed", "exp-static", 0}, /* edges, other rounds */
        {"complete", "ring", 0},           /* groups and edges */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int odd = 0; odd < 8; odd += 7) {
            test_replicas t = mixing(8, 2, cases[i].topology);
            taciti_gossip_options other = t.gossip;
            (void)snprintf(other.topology.text, sizeof other.topology.text, "%s", cases[i].odd);
            other.degree = cases[i].degree;
            t.odd = &other;
            t.odd_rank = odd;
            test_log_keep();
            test_replicas_run(&t);
            for (int r = 0; r < 8; r++) assert_int_equal(t.created[r], TACIT_E_CONFIG);
            assert_true(test_log_count("gossip topology") >= 1);
            test_log_drop();
            test_replicas_free(&t);
        }
}

/* Weights between ranks 2, 3 and 0, 1 that keep all sums and what ranks keep of their own. */
static void write_twisted_matrix(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs(".25,.25,.25,.25\n.25,.25,.25,.25\n.26,.24,.25,.25\n.24,.26,.25,.25\n", file);
    assert_int_equal(fclose(file), 0);
}

static void ranks_with_other_weights_are_refused(void **state) {
    (void)state;
    char paths[4][32];
    for (int k = 0; k < 4; k++) {
        (void)snprintf(paths[k], sizeof paths[k], "/tmp/tacit-matrix-XXXXXX");
        const int fd = mkstemp(paths[k]);
        assert_true(fd >= 0);
        (void)close(fd);
    }
    write_matrix(paths[0], 4, 0.3);
    write_matrix(paths[1], 4, 0.30000000000001);
    write_matrix(paths[2], 4, 0.25);
    write_twisted_matrix(paths[3]);
    for (int k = 0; k < 4; k++) {
        test_replicas t = mixing(4, 2, "file");
        (void)snprintf(t.gossip.file.text, sizeof t.gossip.file.text, "%s", paths[k < 2 ? 0 : 2]);
        taciti_gossip_options other = t.gossip;
        (void)snprintf(other.file.text, sizeof other.file.text, "%s", paths[k]);
        t.odd = &other;
        t.odd_rank = 2;
        if (k % 2 > 0) test_log_keep();
        test_replicas_run(&t);
        for (int r = 0; r < 4; r++) assert_int_equal(t.created[r], k % 2 == 0 ? TACIT_OK : TACIT_E_CONFIG);
        if (k % 2 > 0) test_log_drop();
        test_replicas_free(&t);
    }
    for (int k = 0; k < 4; k++) (void)unlink(paths[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_shrink_by_their_eigenvalue),
        cmocka_unit_test(a_share_of_ones_own_is_an_eigenvalue),
        cmocka_unit_test(one_rank_is_dense),
        cmocka_unit_test(equal_data_keep_more_replicas_equal),
        cmocka_unit_test(complete_atc_is_dense_sgd_with_momentum),
        cmocka_unit_test(rings_rest_mode_by_mode),
        cmocka_unit_test(noise_of_matrices_is_as_published),
        cmocka_unit_test(noise_is_that_of_the_matrices),
        cmocka_unit_test(local_adam_stays_where_its_equations_say),
        cmocka_unit_test(a_rank_clips_its_own_gradient),
        cmocka_unit_test(a_clipped_step_has_the_length_of_the_bound),
        cmocka_unit_test(the_tracker_is_clipped_by_its_own_norm),
        cmocka_unit_test(the_consensus_factor_says_how_far_a_mix_goes),
        cmocka_unit_test(a_late_mix_is_refused_where_it_swings_up),
        cmocka_unit_test(ranks_with_other_topologies_are_refused),
        cmocka_unit_test(ranks_with_other_weights_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * knee on simulated clusters: against the best fixed factor in hindsight, dense and gravac, over link rates and compute
 * times (it prints the table); links and learning rates that change; the step-size limit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adapt/reference/staleness.h"
#include "adapt/reference/test_cluster.h"

enum { PROGRESS = 1500, STEPS_MAX = 20000 };

static const double RATES[] = {.1, .3, 1, 3, 10, 25}, COMPUTES[] = {.03, .1, .3, 1};
enum { RATE_COUNT = sizeof RATES / sizeof *RATES, COMPUTE_COUNT = sizeof COMPUTES / sizeof *COMPUTES };
#define PENALTY .03 /* default of knee.penalty: a fixed factor above it does not train as well */

static cluster make(double gbit_per_s, double compute) {
    return (cluster){.elements = 1e7,
                     .compute = compute,
                     .bits_per_s = gbit_per_s * 1e9,
                     .latency = 100e-6,
                     .encode = 1e-9,
                     .ranks = 8,
                     .curvature = .0015,
                     .noise = .02};
}

static driven controller(const char *name, double factor) {
    driven d = driven_create(name);
    const taciti_adapt_start begin = {
        .factor = factor, .selects = true, .buckets = CLUSTER_BUCKETS, .ranks = 8, .lanes = 8};
    driven_start(&d, &begin);
    return d;
}

static training train(const cluster *c, const char *name, double factor, double *last) {
    driven d = controller(name, factor);
    training t = {0};
    while (t.progress < PROGRESS && t.step < STEPS_MAX) cluster_step(c, &t, &d, 1, 1);
    if (last != NULL) *last = d.decision.factor;
    driven_destroy(&d);
    return t;
}

/* The fixed factor of the fewest seconds, among those that train as well. */
static double best_fixed(const cluster *c, double *factor) {
    double best = HUGE_VAL;
    for (int j = 0; j < 40; j++) {
        const double f = exp2(j / 4.0);
        if (cluster_penalty(c, f, 1) > PENALTY) break;
        const double seconds = train(c, "fixed", f, NULL).seconds;
        if (seconds < best) best = seconds, *factor = f;
    }
    return best;
}

static void test_grid(void **state) {
    (void)state;
    double worst = 0;
    printf("| Gbit/s | compute, s | dense, s | best factor | best, s | knee's factor | knee / best | knee / dense | "
           "gravac / knee |\n|---|---|---|---|---|---|---|---|---|\n");
    for (int r = 0; r < RATE_COUNT; r++)
        for (int k = 0; k < COMPUTE_COUNT; k++) {
            const cluster c = make(RATES[r], COMPUTES[k]);
            double factor = 1, last;
            const double best = best_fixed(&c, &factor), dense = train(&c, "fixed", 1, NULL).seconds;
            const training knee = train(&c, "knee", 10, &last);
            const double gravac = train(&c, "gravac", 10, NULL).seconds;
            printf("| %g | %g | %.0f | %.3g | %.1f | %.3g | %.3f | %.3f | %.2f |\n", RATES[r], COMPUTES[k], dense,
                   factor, best, last, knee.seconds / best, knee.seconds / dense, gravac / knee.seconds);
            assert_false(knee.unstable);
            assert_true(knee.seconds <= 1.05 * best);
            assert_true(knee.seconds <= 1.02 * dense);
            if (best < .6 * dense) assert_true(gravac >= 1.5 * knee.seconds);
            worst = fmax(worst, knee.seconds / best);
        }
    printf("worst knee / best: %.3f\n", worst);
}

/* GraVAC's gate opens where little energy waits: then it goes on to factors that cost loss. Equal progress all the
 * same. */
static void test_open_gate(void **state) {
    (void)state;
    for (int r = 0; r < RATE_COUNT; r++) {
        cluster c = make(RATES[r], .1);
        c.waiting = .01;
        double last, gravac_last;
        const training knee = train(&c, "knee", 10, &last), gravac = train(&c, "gravac", 10, &gravac_last);
        printf("%g Gbit/s: knee %.3gx %.1f s, gravac %.3gx %.1f s, its penalty %.0f %%\n", RATES[r], last, knee.seconds,
               gravac_last, gravac.seconds, 100 * cluster_penalty(&c, gravac_last, 1));
        assert_true(knee.seconds <= 1.05 * gravac.seconds || cluster_penalty(&c, gravac_last, 1) > PENALTY);
    }
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    double seconds; /* per unit of progress */
    int changes;    /* of the factor */
    double factor;
} outcome;

static outcome go(const cluster *c, driven *d, training *t, int steps, double lr, double lr_max) {
    outcome o = {0, 0, 0};
    const double seconds = t->seconds, progress = t->progress;
    for (int i = 0; i < steps; i++) {
        const double before = d->decision.factor;
        cluster_step(c, t, d, lr, lr_max);
        o.changes += d->decision.factor != before;
    }
    o.seconds = (t->seconds - seconds) / (t->progress - progress);
    o.factor = d->decision.factor;
    return o;
}

/* The link slows 8x and recovers: the factor follows within steps, and knee loses little on the best of each phase.
 * Where it ends is where it was, or as fast. */
static void test_link_changes(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        const double rate = k == 0 ? 25 : k == 1 ? 8 : 2;
        const cluster fast = make(rate, .1), slow = make(rate / 8, .1);
        driven d = controller("knee", 10);
        training t = {0};
        double ideal[2], seconds[2] = {0, 0};
        double factor;
        ideal[0] = best_fixed(&fast, &factor) / PROGRESS, ideal[1] = best_fixed(&slow, &factor) / PROGRESS;
        double factors[3], times[3];
        for (int phase = 0; phase < 3; phase++) {
            const cluster *now = phase == 1 ? &slow : &fast;
            const outcome o = go(now, &d, &t, 600, 1, 1);
            seconds[phase == 1] += o.seconds;
            factors[phase] = o.factor, times[phase] = o.seconds;
            assert_true(o.changes <= 16);
        }
        printf("%g Gbit/s, 8x slower, back: factors %.3g %.3g %.3g; %.3f and %.3f of the ideal\n", rate, factors[0],
               factors[1], factors[2], seconds[0] / 2 / ideal[0], seconds[1] / ideal[1]);
        assert_true(factors[1] > factors[0]);
        assert_true(factors[2] < factors[1]);
        assert_true(factors[2] < 1.5 * factors[0] || times[2] < times[0]);
        assert_true(seconds[0] / 2 < 1.06 * ideal[0] && seconds[1] < 1.08 * ideal[1]);
        driven_destroy(&d);
    }
}

/* No flapping: after the search the factor stays, but for announced probes. */
static void test_hysteresis(void **state) {
    (void)state;
    for (int r = 0; r < RATE_COUNT; r++) {
        cluster c = make(RATES[r], .1);
        c.noise = .05;
        driven d = controller("knee", 10);
        training t = {0};
        (void)go(&c, &d, &t, 300, 1, 1);
        const outcome later = go(&c, &d, &t, 2000, 1, 1);
        if (later.changes > 4 * 2 + 8) fail_msg("%g Gbit/s: %d changes", RATES[r], later.changes); /* 4 probes */
        driven_destroy(&d);
    }
}

/* The limit is in proportion to the learning rate; it falls at once, before the factor costs anything. */
static void test_learning_rate(void **state) {
    (void)state;
    const cluster c = make(.1, .03); /* more compression always pays */
    driven d = controller("knee", 10);
    training t = {0};
    const outcome high = go(&c, &d, &t, 600, 1, 1), low = go(&c, &d, &t, 600, .1, 1);
    assert_true(cluster_penalty(&c, high.factor, 1) <= 1.15 * PENALTY && high.factor > 12);
    assert_true(cluster_penalty(&c, low.factor, .1) <= 1.15 * PENALTY && low.factor > 5 * high.factor);
    assert_true(cluster_penalty(&c, low.factor, 1) > 5 * PENALTY); /* what a restart would cost if nothing happened */
    const outcome once = go(&c, &d, &t, 1, 1, 1);
    assert_true(cluster_penalty(&c, once.factor, 1) <= 1.3 * PENALTY);
    assert_non_null(strstr(d.decision.reason, "limit"));
    driven_destroy(&d);
}

/* Warm-up of the rate counts as its maximum: the start of training is not the time to compress most. */
static void test_warm_up(void **state) {
    (void)state;
    cluster c = make(.1, .03);
    c.curvature = 1e-9; /* nothing to measure */
    driven d = controller("knee", 10);
    training t = {0};
    for (int i = 0; i < 250; i++) {
        cluster_step(&c, &t, &d, fmin((i + 1) / 100.0, 1), 1);
        if (i < 98) assert_true(d.decision.factor <= 4.001);
        if (i == 150) assert_true(d.decision.factor > 4.001);
        if (i < 197) assert_true(d.decision.factor <= 4.001 * pow(2.5, fmax(0, i - 97) / 98));
    }
    assert_true(d.decision.factor > 10.001);
    driven_destroy(&d);
}

/* Adam: a small penalty or learning rate is no reason to go beyond the safe factor, a large one to stay below it. */
static void test_adaptive(void **state) {
    (void)state;
    static const double CURVATURES[] = {1e-9, .01};
    for (int k = 0; k < 2; k++) {
        cluster c = make(.1, .03);
        c.curvature = CURVATURES[k];
        c.adaptive = true;
        driven d = controller("knee", 10);
        training t = {0};
        for (int i = 0; i < 300; i++) cluster_step(&c, &t, &d, 1, 1);
        assert_true(d.decision.factor <= 10.001);
        assert_true(k == 0 ? d.decision.factor > 5 : d.decision.factor < 5);
        for (int i = 0; k == 0 && i < 100; i++) cluster_step(&c, &t, &d, .1, 1);
        assert_true(d.decision.factor <= 10.001);
        driven_destroy(&d);
    }
}

/* ---- noise ------------------------------------------------------------------------------------------------------- */

/* Ranks that share cores: transfers spread, encoding takes time from computation, dense is best. */
static cluster shared_cores(double spread) {
    cluster c = make(25, .03);
    c.noise = .05;
    c.spread = spread;
    c.slowdown = .3;
    c.adaptive = true;
    return c;
}

static void test_shared_cores(void **state) {
    (void)state;
    static const double SPREADS[] = {0, .1, .3, .5};
    for (int k = 0; k < 4; k++) {
        const cluster c = shared_cores(SPREADS[k]);
        driven knee = controller("knee", 10), dense = controller("fixed", 1);
        training t = {0}, u = {0};
        const outcome o = go(&c, &knee, &t, 3000, 1, 1);
        (void)go(&c, &dense, &u, 3000, 1, 1);
        printf("spread %g: knee / dense %.4f, %d changes, %d of 3000 steps shown\n", SPREADS[k], t.seconds / u.seconds,
               o.changes, (int)t.shown);
        assert_true(t.seconds < 1.005 * u.seconds);
        assert_true(o.factor == 1 && o.changes <= 20);
        assert_true(t.shown < 1000);
        const cluster slow = {.elements = c.elements,
                              .compute = c.compute,
                              .bits_per_s = c.bits_per_s / 16,
                              .latency = c.latency,
                              .encode = c.encode,
                              .ranks = c.ranks,
                              .curvature = c.curvature,
                              .noise = c.noise,
                              .spread = c.spread,
                              .slowdown = c.slowdown,
                              .adaptive = true};
        int steps = 0;
        while (knee.decision.factor == 1 && steps < 1000) cluster_step(&slow, &t, &knee, 1, 1), steps++;
        printf("16x slower: left dense after %d steps\n", steps);
        assert_true(steps <= 30);
        const outcome after = go(&slow, &knee, &t, 300, 1, 1);
        assert_true(after.factor > 2);
        driven_destroy(&knee);
        driven_destroy(&dense);
    }
}

/* Noise of transfers costs little where compression pays. */
static void test_noisy_link(void **state) {
    (void)state;
    static const double GBITS[] = {.1, .3, 1, 3};
    for (int r = 0; r < 4; r++) {
        cluster c = make(GBITS[r], .1);
        c.spread = .3;
        double factor = 1, last;
        const double best = best_fixed(&c, &factor);
        const training knee = train(&c, "knee", 10, &last);
        printf("%g Gbit/s, spread 0.3: knee %.3gx, best %.3gx; knee / best %.3f\n", GBITS[r], last, factor,
               knee.seconds / best);
        assert_true(knee.seconds <= 1.05 * best);
    }
}

/* Without transfers, as on one rank, or without bytes nothing is divided by zero. */
static void test_no_transfers(void **state) {
    (void)state;
    cluster c = make(25, .1);
    c.ranks = 1;
    c.latency = 0;
    driven d = controller("knee", 10);
    training t = {0};
    for (int i = 0; i < 300; i++) {
        cluster_step(&c, &t, &d, 1, 1);
        assert_true(d.decision.factor >= 1 && isfinite(d.decision.factor));
    }
    assert_true(d.decision.factor == 1);
    driven_destroy(&d);
}

/* ---- the step-size limit ----------------------------------------------------------------------------------------- */

enum { MODES = 400 };

typedef struct quadratic {
    double w[MODES], r[MODES], lr, excess, sent, gradient;
} quadratic;

static double normal(uint64_t i, uint64_t stream) {
    const double u = ((double)(taciti_rng_key(taciti_rng_key(3, stream), i) >> 11) + .5) * 0x1p-53;
    const double v = ((double)(taciti_rng_key(taciti_rng_key(4, stream), i) >> 11) + .5) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* One step of noisy descent on sum of w^2 / 2 with random-k: error feedback as the exchange has it. */
static void quadratic_step(quadratic *q, int factor, int64_t step, taciti_adapt_facts *facts) {
    double in = 0, out = 0, gradient = 0, residual = 0;
    for (int i = 0; i < MODES; i++) {
        const double g = q->w[i] + normal((uint64_t)i, (uint64_t)step);
        const double e = g + q->r[i];
        const bool send = taciti_rng_key((uint64_t)step, (uint64_t)i) % (uint64_t)factor == 0;
        gradient += g * g, residual += q->r[i] * q->r[i], in += e * e, out += send ? e * e : 0;
        q->r[i] = send ? 0 : e;
        if (send) q->w[i] -= q->lr * e;
        q->excess += q->w[i] * q->w[i];
    }
    q->sent += out, q->gradient += gradient;
    *facts = (taciti_adapt_facts){.step = step, .factor = factor, .lr = q->lr, .ranks = 1, .lanes = 1};
    facts->model.sent = (taciti_codec_tally){.squares_in = in, .squares_out = out, .n = MODES};
    facts->model.squares_gradient = gradient;
    facts->model.squares_residual = residual;
}

/* The penalty that is measured is what the curvature says, x / (1 - x), and what the loss shows; at half the factor it
 * already predicts the cliff at x = 1. */
static void test_penalty_of_a_quadratic(void **state) {
    (void)state;
    static const double xs[] = {.1, .3, .5, .7};
    enum { FACTOR = 20, STEPS = 6000 };
    for (int i = 0; i < 4; i++) {
        quadratic q = {.lr = xs[i] / FACTOR}, dense = {.lr = xs[i] / FACTOR};
        taciti_staleness all = {0};
        double mean = 0, twice = 0;
        taciti_adapt_facts facts;
        for (int64_t s = 0; s < STEPS; s++) {
            if (s == STEPS / 2) q.excess = q.sent = q.gradient = dense.excess = 0;
            quadratic_step(&dense, 1, s, &facts);
            quadratic_step(&q, FACTOR, s, &facts);
            taciti_staleness_observe(&all, &facts);
            if (s < STEPS / 2) continue;
            mean += taciti_staleness_penalty(&all, 1, q.lr) / (STEPS / 2);
            twice += fmin(taciti_staleness_penalty(&all, 2, q.lr), 100) / (STEPS / 2);
        }
        const double theory = xs[i] / (1 - xs[i]), loss = q.excess / dense.excess - 1;
        if (fabs(loss - theory) > .15 * theory + .05) fail_msg("x %g: loss %g, theory %g", xs[i], loss, theory);
        if (fabs(mean - theory) > .2 * theory + .05) fail_msg("x %g: penalty %g, theory %g", xs[i], mean, theory);
        assert_true(xs[i] < .5 ? fabs(twice / (2 * xs[i] / (1 - 2 * xs[i])) - 1) < .5 : twice > 5);
    }
}

static void test_penalty_edges(void **state) {
    (void)state;
    taciti_staleness s = {0};
    assert_true(taciti_staleness_penalty(&s, 10, 1) == 0);
    taciti_adapt_facts facts = {.factor = 10, .lr = 1, .lanes = 4};
    facts.model.sent = cluster_tally(3, 2);
    taciti_staleness_observe(&s, &facts); /* |gradient|^2 is unknown */
    assert_true(taciti_staleness_steps(&s) == 0);
    facts.model.squares_gradient = 1;
    facts.model.squares_residual = 2;
    facts.model.squares_total = 4 * facts.model.sent.squares_out; /* all four ranks sent the same */
    for (int i = 0; i < 3; i++) taciti_staleness_observe(&s, &facts);
    assert_true(taciti_staleness_penalty(&s, 1, 1) == 0); /* 3 = 1 + 2: nothing crossed */
    facts.model.sent = cluster_tally(4, 2);
    facts.model.squares_total = 4 * facts.model.sent.squares_out;
    for (int i = 0; i < 600; i++) taciti_staleness_observe(&s, &facts);
    assert_true(fabs(taciti_staleness_penalty(&s, 1, 1) - 1) < 1e-3);
    assert_true(taciti_staleness_penalty(&s, 2, 1) > 1e3);
    assert_true(fabs(taciti_staleness_penalty(&s, 1, .5) - 1.0 / 3) < 1e-3);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* Without |gradient|^2 nothing is measured: the safe factor at the maximum rate; at a tenth of it, ten times as far. */
static void test_without_evidence(void **state) {
    (void)state;
    cluster c = make(.1, .03);
    c.curvature = 1e-9;
    for (int blind = 0; blind < 2; blind++) {
        c.blind = blind;
        driven d = controller("knee", 10);
        training t = {0};
        const outcome high = go(&c, &d, &t, 500, 1, 1), low = go(&c, &d, &t, 500, .1, 1);
        assert_true(blind ? high.factor > 7 && high.factor <= 10.001 : high.factor > 50);
        assert_true(blind ? low.factor > 50 && low.factor <= 91.001 : low.factor > 50);
        driven_destroy(&d);
    }
}

/* Three compressed steps tell what the codec costs. */
static void test_exploring(void **state) {
    (void)state;
    const cluster c = make(.1, .03);
    driven d = controller("knee", 10);
    training t = {0};
    int steps = 0;
    for (int i = 0; i < 10; i++) {
        cluster_step(&c, &t, &d, 1, 1);
        steps += strstr(d.decision.reason, "3 steps at 4x measure the codec") != NULL;
    }
    assert_int_equal(steps, 3);
    driven_destroy(&d);
}

/* A measurement at a factor is evidence for twice that factor, and for no more. */
static void test_evidence_reaches_twice_as_far(void **state) {
    (void)state;
    cluster c = make(.1, .03); /* more compression always pays */
    c.curvature = 1e-9;
    driven d = controller("knee", 10);
    training t = {0};
    double max = 10;
    for (int i = 0; i < 300; i++) {
        cluster_step(&c, &t, &d, 1, 1);
        assert_true(d.decision.factor <= 2.001 * max);
        max = fmax(max, d.decision.factor);
    }
    assert_true(max > 80);
    driven_destroy(&d);
}

/* A codec without factors: dense where that is faster, else the codec. */
static void test_codec_without_factors(void **state) {
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        const cluster c = make(slow ? .3 : 25, .3);
        driven d = driven_create("knee");
        const taciti_adapt_start begin = {.factor = 2, .buckets = CLUSTER_BUCKETS, .ranks = 8, .lanes = 8};
        driven_start(&d, &begin);
        training t = {0};
        for (int i = 0; i < 300; i++) {
            cluster_step(&c, &t, &d, 1, 1);
            assert_true(d.decision.factor == 1 || d.decision.factor == 2);
        }
        assert_true(d.decision.factor == (slow ? 2 : 1));
        driven_destroy(&d);
    }
}

/* Histograms are asked for; a curve that falls steeply makes the limit fall below what is linear. */
static void test_histogram_counts(void **state) {
    (void)state;
    double counts[TACITI_MAGNITUDE_BINS] = {0}, factor[2];
    counts[1016] = 9e5, counts[1048] = 1e5; /* a tenth of the elements is 16 times as large: 96.6 % of the energy */
    for (int seen = 0; seen < 2; seen++) {
        cluster c = make(.1, .03);
        c.histogram = seen ? counts : NULL;
        driven d = controller("knee", 10);
        training t = {0};
        int wanted = 0;
        for (int i = 0; i < 200; i++) {
            cluster_step(&c, &t, &d, 1, 1);
            wanted += d.decision.histogram;
        }
        assert_true(wanted >= 15 && wanted <= 25);
        factor[seen] = d.decision.factor;
        driven_destroy(&d);
    }
    assert_true(factor[1] < factor[0]);
}

static void test_resumed(void **state) {
    (void)state;
    const cluster c = make(1, .1);
    driven a = controller("knee", 10), b = controller("knee", 10);
    training t = {0};
    (void)go(&c, &a, &t, 123, 1, 1);
    memcpy(b.state, a.state, a.state_bytes);
    b.decision = a.decision;
    training u = t;
    for (int i = 0; i < 600; i++) {
        cluster_step(&c, &t, &a, 1, 1);
        cluster_step(&c, &u, &b, 1, 1);
        assert_memory_equal(a.state, b.state, a.state_bytes);
        assert_memory_equal(&a.decision, &b.decision, sizeof a.decision);
    }
    driven_destroy(&a);
    driven_destroy(&b);
}

/* Every change says why, with numbers. */
static void test_reasons(void **state) {
    (void)state;
    const cluster c = make(1, .1);
    driven d = controller("knee", 10);
    training t = {0};
    int probes = 0;
    for (int i = 0; i < 1700; i++) { /* probes after 500 steps, then 1000 more */
        const double before = d.decision.factor;
        const bool was_probe = strstr(d.decision.reason, "one step at") != NULL && d.decision.changed;
        cluster_step(&c, &t, &d, 1, 1);
        if (d.decision.factor != before && !was_probe) assert_true(d.decision.changed);
        if (d.decision.changed) {
            assert_null(strpbrk(d.decision.reason, "\"\n\\"));
            assert_true(strlen(d.decision.reason) > 20 && strlen(d.decision.reason) < TACITI_DECISION_BYTES - 1);
            probes += strstr(d.decision.reason, "one step at") != NULL;
        }
    }
    assert_true(probes == 2);
    driven_destroy(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid),
                                       cmocka_unit_test(test_open_gate),
                                       cmocka_unit_test(test_link_changes),
                                       cmocka_unit_test(test_hysteresis),
                                       cmocka_unit_test(test_shared_cores),
                                       cmocka_unit_test(test_noisy_link),
                                       cmocka_unit_test(test_no_transfers),
                                       cmocka_unit_test(test_learning_rate),
                                       cmocka_unit_test(test_warm_up),
                                       cmocka_unit_test(test_adaptive),
                                       cmocka_unit_test(test_penalty_of_a_quadratic),
                                       cmocka_unit_test(test_penalty_edges),
                                       cmocka_unit_test(test_without_evidence),
                                       cmocka_unit_test(test_exploring),
                                       cmocka_unit_test(test_evidence_reaches_twice_as_far),
                                       cmocka_unit_test(test_codec_without_factors),
                                       cmocka_unit_test(test_histogram_counts),
                                       cmocka_unit_test(test_resumed),
                                       cmocka_unit_test(test_reasons)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

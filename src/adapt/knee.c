/* SPDX-License-Identifier: Apache-2.0
 *
 * knee: the smallest factor beyond which training gets no faster.
 *
 * It weighs seconds against progress: the cost of a factor F is
 *
 *   cost(F) = step(F) (1 + penalty(F))       step: adapt/timing.h; penalty of stale elements: adapt/staleness.h
 *
 * and it takes the smallest allowed F whose cost is within knee.tolerance of the minimum, dense within five times that:
 * more compression would cost energy and buy nothing. A factor is allowed if
 *
 *   penalty(F) <= knee.penalty, and
 *   F - 1 <= (knee.safe - 1) (maximum learning rate / learning rate), or the penalty was measured at half of F or more
 *
 * Of Adam and its kin a small penalty or learning rate is no evidence, because elements have scales of their own: there
 * knee.safe is the limit.
 *
 * So the limit falls at once with a rising learning rate, and rises with a falling one. A high factor at the start does
 * lasting harm (docs/adaptive.md): until the learning rate has reached its maximum the limit is knee.start, and then,
 * for as long again, it rises exponentially to knee.safe, whatever was measured. With Adam it rises to knee.safe from
 * 1, during twice the warm-up of the learning rate and 200 steps or more.
 *
 * It starts with dense steps, then one compressed level; a line through both is the link. A change of the link shows in
 * three steps; then, and every knee.probe steps, one step at another factor tells latency from rate. It changes the
 * factor for a gain of twice the tolerance, or to one that is 1.4 times smaller at the same cost; and at once if the
 * factor is no longer allowed.
 */
#include <math.h>
#include <stdio.h>

#include "adapt/adapt.h"
#include "adapt/curve.h"
#include "adapt/staleness.h"
#include "adapt/timing.h"

enum { GRID = 80 };                        /* factors 2^(j/4) */
enum { DENSE_STEPS = 4, FIRST_STEPS = 3 }; /* that explore: dense ones, at most; compressed ones */
enum { STEPS_OF_EVIDENCE = 20, SLACK_OF_DENSE = 5 };

typedef struct knee_options {
    double max, start, safe, penalty, tolerance;
    int64_t window, probe;
} knee_options;

#define AT(field) offsetof(knee_options, field)
static const taciti_option OPTIONS[] = {
    TACITI_OPTION("max", REAL, AT(max), "1000", .min = 1, .max = 1e6, .help = "largest factor"),
    TACITI_OPTION("start", REAL, AT(start), "4", .min = 1, .max = 1e6,
                  .help = "largest factor until the learning rate has reached its maximum"),
    TACITI_OPTION("safe", REAL, AT(safe), "10", .min = 1, .max = 1e6,
                  .help = "factor that needs no evidence at the maximum learning rate"),
    TACITI_OPTION("penalty", REAL, AT(penalty), "0.03", .max = 10,
                  .help = "allowed growth of the stationary excess loss by stale elements"),
    TACITI_OPTION("tolerance", REAL, AT(tolerance), "0.01", .max = 1,
                  .help = "relative difference of time that counts as none"),
    TACITI_OPTION("window", INT, AT(window), "10", .min = 1, .max = 1e6, .unit = "steps",
                  .help = "steps between decisions"),
    TACITI_OPTION("probe", INT, AT(probe), "500", .min = 1, .max = 1e9, .unit = "steps",
                  .help = "steps between single steps at another factor, which measure the link"),
};

static const taciti_option_table OPTION_TABLE = {.section = "knee",
                                                 .help = "options of adapt.policy knee",
                                                 .options = OPTIONS,
                                                 .count = sizeof OPTIONS / sizeof *OPTIONS};

typedef struct knee_state {
    taciti_timing timing;
    taciti_staleness staleness;
    double gain[GRID];       /* of the grid's factors in the last histogram; 0: none */
    double target;           /* the factor that was chosen; another one is used while probing */
    double only;             /* > 0: a codec without factors knows dense and this */
    double lr_seen;          /* maximum so far */
    int64_t steps;           /* that were taken */
    int64_t warm;            /* those of them until the learning rate had reached its maximum */
    int64_t explored;        /* the step at which exploring ends; 0: it is still dense */
    int64_t decided, probed; /* when */
    bool probing, link_changed;
} knee_state;

static double grid_factor(const knee_state *s, int j) { return j == 0 ? 1 : s->only > 0 ? s->only : exp2(j / 4.0); }

static bool warms_up(const knee_state *s, const taciti_adapt_facts *facts) { return s->lr_seen < .99 * facts->lr_max; }

/* The factor that needs no evidence at the maximum learning rate. With Adam it rises as a fixed factor does by default,
 * which does not know how long the warm-up will be and takes what has passed of it. */
static double safe_factor(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    const double steps = (double)s->steps, warm = (double)s->warm, start = fmin(o->start, o->safe);
    if (facts->adaptive) {
        const double rising = pow(o->safe, fmin(1, steps / fmax(TACITI_ADAPT_MIN_RISE, 2 * warm)));
        return warms_up(s, facts) ? fmin(start, rising) : rising;
    }
    if (warms_up(s, facts)) return start;
    return steps >= 2 * warm ? o->safe : start * pow(o->safe / start, (steps - warm) / warm);
}

/* The learning rate in relation to its maximum, at which knee.safe is meant. */
static double relative_rate(const knee_state *s, const taciti_adapt_facts *facts) {
    if (!(s->lr_seen > 0)) return 1;
    return fmax(facts->lr / s->lr_seen, 1e-6);
}

/* The grid's entry at or above the factor. */
static int grid_index(double factor) {
    const int j = (int)ceil(4 * log2(factor) - 1e-9);
    return j < 0 ? 0 : j < GRID ? j : GRID - 1;
}

/* How much longer energy waits at a factor than in the steps seen: in proportion to factor - 1, as for random-k, or to
 * the energy kept back over the energy sent, as the gain curve has it; the larger one. */
static double stretch(const knee_state *s, double factor) {
    const double seen = taciti_staleness_factor(&s->staleness);
    if (factor <= 1 || seen <= 1) return 0;
    const double linear = (factor - 1) / (seen - 1), there = s->gain[grid_index(factor)],
                 here = s->gain[grid_index(seen)];
    if (!(there > 0) || !(here > 0) || here >= 1 || factor <= seen) return linear;
    return fmax(linear, (1 / there - 1) / (1 / here - 1));
}

static double penalty(const knee_state *s, const taciti_adapt_facts *facts, double factor) {
    return s->only > 0 ? 0 : taciti_staleness_penalty(&s->staleness, stretch(s, factor), facts->lr);
}

static bool is_allowed(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts, double factor) {
    if (factor == 1 || s->only > 0) return true;
    if (factor > o->max * 1.0001 || penalty(s, facts, factor) > o->penalty) return false;
    if (warms_up(s, facts) || facts->adaptive) return factor <= safe_factor(o, s, facts) * 1.0001;
    const double safe = 1 + (safe_factor(o, s, facts) - 1) / relative_rate(s, facts);
    const bool measured = s->steps >= 2 * s->warm && taciti_staleness_steps(&s->staleness) >= STEPS_OF_EVIDENCE;
    return factor <= safe * 1.0001 || (measured && factor <= 2.0001 * s->target);
}

static double cost(const knee_state *s, const taciti_adapt_facts *facts, double factor) {
    return taciti_timing_seconds(&s->timing, factor) * (1 + penalty(s, facts, factor));
}

static double best_factor(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    const int count = s->only > 0 ? 2 : GRID;
    double min_cost = HUGE_VAL;
    for (int j = 0; j < count; j++)
        if (is_allowed(o, s, facts, grid_factor(s, j))) min_cost = fmin(min_cost, cost(s, facts, grid_factor(s, j)));
    for (int j = 0; j < count; j++) {
        const double factor = grid_factor(s, j);
        const double slack = (factor == 1 ? SLACK_OF_DENSE : 1) * o->tolerance;
        if (is_allowed(o, s, facts, factor) && cost(s, facts, factor) <= (1 + slack) * min_cost) return factor;
    }
    return 1;
}

static double max_allowed(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    double max = 1;
    for (int j = 1; j < (s->only > 0 ? 2 : GRID); j++)
        if (is_allowed(o, s, facts, grid_factor(s, j))) max = grid_factor(s, j);
    return max;
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

static void explain(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts, const char *why,
                    taciti_decision *decision) {
    const taciti_timing *t = &s->timing;
    const double next = s->target == 1 ? grid_factor(s, 8) : 2 * s->target;
    char rate[32] = "of any rate"; /* more bytes took no longer */
    if (t->seconds_per_byte > 0) (void)snprintf(rate, sizeof rate, "%.3g Gbit/s", 8e-9 / t->seconds_per_byte);
    taciti_decision_explain(decision,
                            "%s: %.4g s per step at %.4gx, dense %.4g s, %.4gx %.4g s; link %s + %.2g ms; "
                            "limit %.4gx, penalty %.2g %%",
                            why, taciti_timing_seconds(t, s->target), s->target, taciti_timing_seconds(t, 1), next,
                            taciti_timing_seconds(t, next), rate, 1e3 * t->latency, max_allowed(o, s, facts),
                            100 * penalty(s, facts, s->target));
}

static void choose(const knee_options *o, knee_state *s, const taciti_adapt_facts *facts, taciti_decision *decision) {
    const double best = best_factor(o, s, facts), now = s->target;
    const double gained = 1 - cost(s, facts, best) / cost(s, facts, now);
    const char *why = NULL;
    if (!is_allowed(o, s, facts, now)) {
        why = "the limit of stale elements fell";
    } else if (best != now && gained > 2 * o->tolerance) {
        why = s->link_changed ? "the link changed" : "faster";
    } else if (best * 1.4 < now) {
        why = "as fast with less compression";
    }
    s->decided = s->steps;
    s->link_changed = false;
    if (why == NULL) return;
    s->target = best;
    explain(o, s, facts, why, decision);
}

/* The factor of a step that tells latency from rate; 0: none is due. */
static double probe_factor(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    const bool due = s->steps - s->probed >= o->probe || (s->timing.other.steps == 0 && s->timing.now.steps >= 2);
    if (!due) return 0;
    if (s->only > 0) return s->target == 1 ? s->only : 1;
    if (s->target > 1) return fmax(s->target / 4, 2) < s->target ? fmax(s->target / 4, 2) : 2 * s->target;
    double factor = 2; /* dense: worth a step only if compression may be close */
    for (int j = 3; j < GRID && is_allowed(o, s, facts, grid_factor(s, j)); j++)
        if (taciti_timing_seconds(&s->timing, grid_factor(s, j)) < .99 * taciti_timing_seconds(&s->timing, factor))
            factor = grid_factor(s, j);
    return taciti_timing_seconds(&s->timing, factor) < 1.3 * taciti_timing_seconds(&s->timing, 1) ? factor : 0;
}

static void take_in(knee_state *s, const taciti_adapt_facts *facts) {
    s->steps++;
    s->lr_seen = fmax(s->lr_seen, facts->lr);
    if (warms_up(s, facts)) s->warm = s->steps;
    s->link_changed |= taciti_timing_observe(&s->timing, facts);
    taciti_staleness_observe(&s->staleness, facts);
    if (facts->histogram == NULL) return;
    taciti_curve curve;
    taciti_curve_build(facts->histogram, &curve);
    for (int j = 0; j < GRID; j++) s->gain[j] = taciti_curve_gain(&curve, exp2(j / 4.0));
}

static size_t state_bytes(const void *options, size_t buckets) {
    (void)options;
    (void)buckets;
    return sizeof(knee_state);
}

static void start(const void *options, const taciti_adapt_start *begin, void *state, taciti_decision *decision,
                  double *factors) {
    (void)options;
    (void)factors;
    *(knee_state *)state = (knee_state){.target = 1, .only = begin->selects ? 0 : fmax(begin->factor, 2)};
    *decision = (taciti_decision){.factor = 1};
    taciti_decision_explain(decision, "dense steps measure the link");
}

/* Dense first, shortly where most of a step is waiting; then one compressed level. */
static void explore(const knee_options *o, const taciti_adapt_facts *facts, knee_state *s, taciti_decision *decision) {
    const bool waits = facts->seconds.exposed > .75 * facts->seconds.step;
    if (s->explored == 0 && s->timing.base[0] > 0 && (waits || s->steps >= DENSE_STEPS)) {
        s->explored = s->steps + FIRST_STEPS;
        s->target = s->only > 0 ? s->only : fmin(fmin(4, o->start), fmin(o->safe, o->max));
        taciti_decision_explain(decision, "%d steps at %.4gx measure the codec", FIRST_STEPS, s->target);
    }
    decision->factor = s->target;
    s->probed = s->steps;
}

static void decide(const void *options, const taciti_adapt_facts *facts, void *state, taciti_decision *decision,
                   double *factors) {
    const knee_options *o = options;
    knee_state *s = state;
    (void)factors;
    take_in(s, facts);
    decision->changed = false;
    decision->histogram = (s->steps + 1) % o->window == 0;
    if (s->explored == 0 || s->steps < s->explored || !taciti_timing_known(&s->timing)) {
        explore(o, facts, s, decision);
        return;
    }
    if (s->steps == s->explored || s->link_changed || s->steps - s->decided >= o->window ||
        !is_allowed(o, s, facts, s->target))
        choose(o, s, facts, decision);
    decision->factor = s->target;
    const double probe = s->probing ? 0 : probe_factor(o, s, facts);
    s->probing = probe > 0;
    if (!s->probing) return;
    s->probed = s->steps;
    decision->factor = probe;
    taciti_decision_explain(decision, "one step at %.4gx measures the link, then %.4gx again", probe, s->target);
}

const taciti_controller taciti_controller_knee = {
    .name = "knee",
    .help = "the smallest factor beyond which training gets no faster; dense where that is as fast",
    .source = "-",
    .options = &OPTION_TABLE,
    .options_size = sizeof(knee_options),
    .state_bytes = state_bytes,
    .start = start,
    .decide = decide,
};

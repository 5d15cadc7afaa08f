/* SPDX-License-Identifier: Apache-2.0
 *
 * knee: the smallest factor beyond which training gets no faster.
 *
 * It weighs seconds against progress: the cost of a factor F is
 *
 *   cost(F) = step(F) (1 + penalty(F))       step: timing.h; penalty of stale elements: staleness.h
 *
 * and it takes the smallest allowed F whose cost is within TOLERANCE of the minimum, dense within five times that:
 * more compression would cost energy and buy nothing. A factor is allowed if
 *
 *   penalty(F) <= knee.penalty, and
 *   F - 1 <= (knee.safe - 1) (maximum learning rate / learning rate), or the penalty was measured at half of F or more
 *
 * Of Adam and its kin a small penalty or learning rate is no evidence, because elements have scales of their own: there
 * knee.safe is the limit.
 *
 * So the limit falls at once with a rising learning rate, and rises with a falling one. A high factor at the start does
 * lasting harm (docs/adaptive.md): until the learning rate has reached its maximum the limit is 4, and then,
 * for as long again, it rises exponentially to knee.safe, whatever was measured. With Adam it rises to knee.safe from
 * 1, during twice the warm-up of the learning rate and 200 steps or more.
 *
 * It starts with dense steps, then one compressed level; a line through both is the link. A change of the link is told
 * from noise (adapt/change.h); then, and after PROBE steps, one step at another factor tells latency from rate.
 * While such steps change nothing, each comes after twice as many steps as the one before. It changes the factor for a
 * gain of twice the tolerance, or to one that is 1.4 times smaller at the same cost; and at once if the factor is no
 * longer allowed.
 *
 * It leaves dense only for a gain of five times the tolerance that is also above the noise, twice the standard error of
 * the times that were measured; and each time that measured steps then send it back it asks for as much more, up to
 * half. It looks at no more of consecutive dense steps than that gathering their facts takes less than
 * STATISTICS_SHARE of the time.
 */
#include <math.h>
#include <stdio.h>

#include "adapt/adapt.h"
#include "adapt/reference/curve.h"
#include "adapt/reference/staleness.h"
#include "adapt/reference/timing.h"
#include "base/log.h"

enum { GRID = 80 };                        /* factors 2^(j/4) */
enum { DENSE_STEPS = 4, FIRST_STEPS = 3 }; /* that explore: dense ones, at most; compressed ones */
enum { STEPS_OF_EVIDENCE = 20, SLACK_OF_DENSE = 5 };
enum { STEPS_OF_SUCCESS = 100 };   /* compressed ones, after which leaving dense was right */
enum { LONGEST_PAUSE = 16 };       /* between probes, in PROBE */
enum { WINDOW = 10, PROBE = 500 }; /* steps between decisions; between single steps at another factor */
#define TOLERANCE .01              /* relative difference of time that counts as none */
#define AFFORDABLE 1.5             /* times the seconds of a step: a dense one that may be as fast is a probe */
#define STATISTICS_SHARE .002
#define START 4.0        /* largest factor until the learning rate has reached its maximum */
#define LARGEST_DOUBT .5 /* gain that is always worth a try */

typedef struct knee_options {
    double max, safe, penalty;
} knee_options;

#define AT(field) offsetof(knee_options, field)
static const taciti_option OPTIONS[] = {
    TACITI_OPTION("max", REAL, AT(max), "1000", .min = 1, .max = 1e6, .help = "largest factor"),
    TACITI_OPTION("safe", REAL, AT(safe), "10", .min = 1, .max = 1e6,
                  .help = "factor that needs no evidence at the maximum learning rate"),
    TACITI_OPTION("penalty", REAL, AT(penalty), "0.03", .max = 10,
                  .help = "allowed growth of the stationary excess loss by stale elements"),
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
    int64_t left;            /* when dense was left last */
    int64_t failed;          /* times that it was left in vain, in a row */
    int64_t pause;           /* between probes, in PROBE */
    int64_t last;            /* step that was shown last */
    double changed;          /* factor by which transfers have changed since the last decision; 1: they have not */
    bool probing;
} knee_state;

static double grid_factor(const knee_state *s, int j) { return j == 0 ? 1 : s->only > 0 ? s->only : exp2(j / 4.0); }

static bool warms_up(const knee_state *s, const taciti_adapt_facts *facts) { return s->lr_seen < .99 * facts->lr_max; }

/* The factor that needs no evidence at the maximum learning rate. With Adam it rises as a fixed factor does by default,
 * which does not know how long the warm-up will be and takes what has passed of it. */
static double safe_factor(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    const double steps = (double)s->steps, warm = (double)s->warm, start = fmin(START, o->safe);
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
static double stretch_of(const knee_state *s, double factor) {
    const double seen = taciti_staleness_factor(&s->staleness);
    if (seen <= 1) return 0;
    const double linear = (factor - 1) / (seen - 1), there = s->gain[grid_index(factor)],
                 here = s->gain[grid_index(seen)];
    if (!(there > 0) || !(here > 0) || here >= 1 || factor <= seen) return linear;
    return fmax(linear, (1 / there - 1) / (1 / here - 1));
}

static double penalty_at(const knee_state *s, const taciti_adapt_facts *facts, double factor) {
    return s->only > 0 ? 0 : taciti_staleness_penalty(&s->staleness, stretch_of(s, factor), facts->lr);
}

static bool is_allowed(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts, double factor) {
    if (factor == 1 || s->only > 0) return true;
    if (factor > o->max * 1.0001 || penalty_at(s, facts, factor) > o->penalty) return false;
    if (warms_up(s, facts) || facts->adaptive) return factor <= safe_factor(o, s, facts) * 1.0001;
    const double safe = 1 + (safe_factor(o, s, facts) - 1) / relative_rate(s, facts);
    const bool measured = s->steps >= 2 * s->warm && taciti_staleness_steps(&s->staleness) >= STEPS_OF_EVIDENCE;
    return factor <= safe * 1.0001 || (measured && factor <= 2.0001 * s->target);
}

static double cost_of(const knee_state *s, const taciti_adapt_facts *facts, double factor) {
    return taciti_timing_seconds(&s->timing, factor) * (1 + penalty_at(s, facts, factor));
}

/* The gain for which dense is left. */
static double doubt_of(const knee_state *s) {
    const double noise = 2 * taciti_timing_error(&s->timing);
    return fmin(fmax(SLACK_OF_DENSE * TOLERANCE, noise) * (double)(1 + s->failed), LARGEST_DOUBT);
}

static double best_factor(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    const int count = s->only > 0 ? 2 : GRID;
    const double dense = s->target == 1 ? 1 / (1 - doubt_of(s)) : 1 + SLACK_OF_DENSE * TOLERANCE;
    double min_cost = HUGE_VAL;
    for (int j = 0; j < count; j++)
        if (is_allowed(o, s, facts, grid_factor(s, j))) min_cost = fmin(min_cost, cost_of(s, facts, grid_factor(s, j)));
    for (int j = 0; j < count; j++) {
        const double factor = grid_factor(s, j);
        const double slack = factor == 1 ? dense : 1 + TOLERANCE;
        if (is_allowed(o, s, facts, factor) && cost_of(s, facts, factor) <= slack * min_cost) return factor;
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

static void explain_choice(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts, const char *why,
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
                            100 * penalty_at(s, facts, s->target));
}

/* Whether leaving dense was right shows afterwards. */
static void enter_factor(knee_state *s, double factor, bool allowed) {
    const bool is_dense = factor == 1, was_dense = s->target == 1;
    if (was_dense && !is_dense) s->left = s->steps;
    if (is_dense && !was_dense && allowed) s->failed = s->steps - s->left < STEPS_OF_SUCCESS ? s->failed + 1 : 0;
    s->target = factor;
    s->pause = 1;
}

static void choose_factor(const knee_options *o, knee_state *s, const taciti_adapt_facts *facts,
                          taciti_decision *decision) {
    const double best = best_factor(o, s, facts), now = s->target;
    const double gained = 1 - cost_of(s, facts, best) / cost_of(s, facts, now);
    const bool allowed = is_allowed(o, s, facts, now);
    const char *why = NULL;
    if (!allowed) {
        why = "the limit of stale elements fell";
    } else if (best != now && gained > 2 * TOLERANCE) {
        why = s->changed != 1 ? "the link changed" : "faster";
    } else if (best * 1.4 < now) {
        why = "as fast with less compression";
    } else if (s->decided == 0) {
        explain_choice(o, s, facts, "no factor is faster by more than the noise", decision);
    } else if (s->changed != 1) {
        taciti_decision_explain(decision, "transfers take %.3g times as long: the link changed; %.4gx stays",
                                s->changed, now);
    }
    s->decided = s->steps;
    s->changed = 1;
    if (why == NULL) return;
    enter_factor(s, best, allowed);
    explain_choice(o, s, facts, why, decision);
}

/* Dense: the fastest factor, as far as it is known. */
static double fastest_factor(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    double factor = 2;
    for (int j = 3; j < GRID && is_allowed(o, s, facts, grid_factor(s, j)); j++)
        if (taciti_timing_seconds(&s->timing, grid_factor(s, j)) < .99 * taciti_timing_seconds(&s->timing, factor))
            factor = grid_factor(s, j);
    return factor;
}

/* Compressed: dense, if that may be as fast; else what tells latency from rate. */
static double another_factor(const knee_state *s) {
    const double now = taciti_timing_seconds(&s->timing, s->target);
    if (s->only > 0 || taciti_timing_seconds(&s->timing, 1) < AFFORDABLE * now) return 1;
    return fmax(s->target / 4, 2) < s->target ? fmax(s->target / 4, 2) : 2 * s->target;
}

/* The factor of a step that measures; 0: none is due. After PROBE steps; soon, if the link has changed or if noise
 * is all that speaks against leaving dense. Dense: only if compression may be close. */
static double probe_factor(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    const int64_t since = s->steps - s->probed;
    if (since < s->pause * WINDOW && since < s->pause * PROBE) return 0;
    const bool long_ago = since >= s->pause * PROBE;
    if (s->target > 1) {
        const bool is_new = s->timing.other.steps == 0 && s->timing.now.steps >= 2;
        return long_ago || is_new ? another_factor(s) : 0;
    }
    const double factor = s->only > 0 ? s->only : fastest_factor(o, s, facts);
    const double ratio = taciti_timing_seconds(&s->timing, factor) / taciti_timing_seconds(&s->timing, 1);
    const bool promises = ratio < 1 - SLACK_OF_DENSE * TOLERANCE;
    return (long_ago && ratio < 1.3) || (promises && is_allowed(o, s, facts, factor)) ? factor : 0;
}

static void take_in(knee_state *s, const taciti_adapt_facts *facts) {
    s->steps += s->steps > 0 && facts->step > s->last ? facts->step - s->last : 1;
    s->last = facts->step;
    s->lr_seen = fmax(s->lr_seen, facts->lr);
    if (warms_up(s, facts)) s->warm = s->steps;
    s->changed *= taciti_timing_observe(&s->timing, facts);
    taciti_staleness_observe(&s->staleness, facts);
    if (facts->histogram == NULL) return;
    taciti_curve curve;
    taciti_curve_build(facts->histogram, &curve);
    for (int j = 0; j < GRID; j++) s->gain[j] = taciti_curve_gain(&curve, exp2(j / 4.0));
}

static tacit_status check_options(const void *options) {
    const knee_options *o = options;
    if (!(o->max > 1))
        return taciti_fail(
            TACIT_E_CONFIG,
            "knee.max 1 compresses nothing: leave adapt.policy and compress.codec out, or give a factor above 1");
    return TACIT_OK;
}

static size_t state_bytes(const void *options, size_t buckets) {
    (void)options;
    (void)buckets;
    return sizeof(knee_state);
}

static void start_knee(const void *options, const taciti_adapt_start *begin, void *state, taciti_decision *decision,
                       double *factors) {
    (void)options;
    (void)factors;
    *(knee_state *)state =
        (knee_state){.target = 1, .changed = 1, .pause = 1, .only = begin->selects ? 0 : fmax(begin->factor, 2)};
    *decision = (taciti_decision){.factor = 1};
    taciti_decision_explain(decision, "dense steps measure the link");
}

/* Dense first, shortly where most of a step is waiting; then one compressed level. */
static void explore_link(const knee_options *o, const taciti_adapt_facts *facts, knee_state *s,
                         taciti_decision *decision) {
    const bool waits = facts->seconds.exposed > .75 * facts->seconds.step;
    if (s->explored == 0 && s->timing.base[0].samples > 0 && (waits || s->steps >= DENSE_STEPS)) {
        s->explored = s->steps + FIRST_STEPS;
        s->target = s->only > 0 ? s->only : fmin(START, fmin(o->safe, o->max));
        taciti_decision_explain(decision, "%d steps at %.4gx measure the codec", FIRST_STEPS, s->target);
    }
    decision->factor = s->target;
    s->probed = s->steps;
}

/* The step that is wanted next. */
static int64_t next_look(const knee_state *s, const taciti_adapt_facts *facts) {
    const double step = taciti_timing_seconds(&s->timing, 1), each = s->timing.statistics;
    if (s->steps < 2 * STEPS_OF_EVIDENCE) return 0; /* how much noise there is */
    const double apart = step > 0 ? ceil(each / (STATISTICS_SHARE * step)) : 1;
    return facts->step + (int64_t)fmin(fmax(apart, 1), (double)WINDOW);
}

static bool is_due(const knee_options *o, const knee_state *s, const taciti_adapt_facts *facts) {
    return s->decided == 0 || s->changed != 1 || s->steps - s->decided >= WINDOW || !is_allowed(o, s, facts, s->target);
}

static void decide_factor(const void *options, const taciti_adapt_facts *facts, void *state, taciti_decision *decision,
                          double *factors) {
    const knee_options *o = options;
    knee_state *s = state;
    (void)factors;
    take_in(s, facts);
    decision->changed = false;
    decision->look = 0;
    decision->histogram = false;
    if (s->explored == 0 || s->steps < s->explored || !taciti_timing_known(&s->timing)) {
        explore_link(o, facts, s, decision);
        return;
    }
    if (s->decided == 0) s->target = 1; /* exploring was no choice */
    if (is_due(o, s, facts)) choose_factor(o, s, facts, decision);
    decision->factor = s->target;
    const double probe = s->probing ? 0 : probe_factor(o, s, facts);
    s->probing = probe > 0;
    if (s->probing) {
        s->probed = s->steps;
        s->pause = s->pause < LONGEST_PAUSE ? 2 * s->pause : s->pause;
        decision->factor = probe;
        taciti_decision_explain(decision, "one step at %.4gx measures the link, then %.4gx again", probe, s->target);
    }
    decision->histogram = decision->factor > 1 && (s->steps + 1) % WINDOW == 0; /* dense: nobody reads the gains */
    if (decision->factor == 1 && s->target == 1) decision->look = next_look(s, facts);
}

const taciti_controller taciti_controller_knee = {
    .name = "knee",
    .help = "the smallest factor beyond which training gets no faster; dense where that is as fast",
    .source = "-",
    .reference = true,
    .options = &OPTION_TABLE,
    .options_size = sizeof(knee_options),
    .check = check_options,
    .state_bytes = state_bytes,
    .start = start_knee,
    .decide = decide_factor,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * gravac: one factor for the model, gated by the part of the energy that it keeps, searched by throughput x gain.
 *
 * Tyagi, Swany, "GraVAC: Adaptive Compression for Communication-Efficient Distributed DL Training", arXiv 2305.12201,
 * IEEE CLOUD 2023. theta_min -> floor, theta_s -> scale, theta_s theta_min -> candidate, theta_max -> ceiling,
 * delta -> gain |C(e)|^2 / |e|^2 with e = gradient + residual, T_comp -> throughput table.
 *
 * Every step:
 * - gain of the candidate >= epsilon: the candidate's factor is sent; else gain of the floor >= epsilon: the floor's;
 *   else the step is dense, residuals included
 * - throughput[factor sent] = gain / seconds
 *
 * Every window:
 * - the scale grows: squared (exponential) or doubled (geometric)
 * - gains of floor and candidate within omega: the candidate becomes the floor
 * - the two best throughputs within omega: the candidate becomes the second one
 *
 * Corrections, of what the paper leaves open:
 *   - the floor is promoted before the candidate moves, to a factor that was scored, and never above the ceiling
 *   - saturation ends the search with the smallest factor within omega of the best, be it dense or below the floor
 *   - moving averages have no bias to their first sample, start again with a new candidate, and average throughputs
 * Deviations (docs/adaptive.md has the reasons): gains are sums over ranks and one step old; the caller measures the
 * second level from e, by the selection that would be sent, and not from the first level; in dense steps the two levels
 * are measured in turn; a candidate stays between floor and ceiling.
 */
#include <math.h>

#include "adapt/adapt.h"
#include "adapt/reference/ewma.h"
#include "base/log.h"

enum { EXPONENTIAL, GEOMETRIC };
enum { ENTRIES = 64 };

typedef struct gravac_options {
    double floor, ceiling, epsilon, omega;
    int64_t window;
    int policy;
} gravac_options;

#define AT(field) offsetof(gravac_options, field)
static const taciti_option OPTIONS[] = {
    TACITI_OPTION("floor", REAL, AT(floor), "10", .min = 1, .max = 1e6, .help = "smallest factor, theta_min"),
    TACITI_OPTION("ceiling", REAL, AT(ceiling), "1000", .min = 1, .max = 1e6, .help = "largest factor, theta_max"),
    TACITI_OPTION("epsilon", REAL, AT(epsilon), "0.7", .max = 1,
                  .help = "a factor is sent if its gain is this or more"),
    TACITI_OPTION("omega", REAL, AT(omega), "0.01", .max = 1, .help = "relative difference that counts as none"),
    TACITI_OPTION("window", INT, AT(window), "500", .min = 1, .max = 1e9, .unit = "steps",
                  .help = "steps between changes of the candidate"),
    TACITI_OPTION("policy", ENUM, AT(policy), "exponential", .choices = "exponential|geometric",
                  .help = "how the candidate grows: its multiple of the floor is squared, or doubled"),
};

static const taciti_option_table OPTION_TABLE =
    TACITI_OPTION_TABLE("gravac", "options of adapt.policy gravac", OPTIONS);

typedef struct level {
    taciti_ewma sent, all;
} level;

typedef struct gravac_state {
    double floor, candidate, scale;
    level low, high; /* of floor and candidate */
    double factor[ENTRIES];
    taciti_ewma throughput[ENTRIES];
    int entries;
    bool settled; /* the search is over */
} gravac_state;

/* ---- averages ---------------------------------------------------------------------------------------------------- */

static void add_sample(taciti_ewma *e, int ranks, double x) { taciti_ewma_add(e, fmin(ranks / 100.0, 1), x); }

static double gain_of(const level *l) { /* -1: not known */
    if (!(l->sent.weight > 0)) return -1;
    return l->all.value > 0 ? l->sent.value / l->all.value : 1;
}

/* A floor of 1 keeps everything, and nothing measures it. */
static double gain_of_floor(const gravac_state *s) { return s->floor == 1 ? 1 : gain_of(&s->low); }

static void observe_step(level *l, int ranks, const taciti_codec_tally *tally) {
    if (tally->n == 0) return;
    add_sample(&l->sent, ranks, tally->squares_out);
    add_sample(&l->all, ranks, tally->squares_in);
}

static void observe_factor(gravac_state *s, double factor, int ranks, const taciti_codec_tally *tally) {
    if (factor == s->floor) observe_step(&s->low, ranks, tally);
    if (factor == s->candidate) observe_step(&s->high, ranks, tally);
}

/* ---- throughput -------------------------------------------------------------------------------------------------- */

static void record_throughput(gravac_state *s, const taciti_adapt_facts *facts) {
    const double factor = facts->factor;
    const double d = factor == 1              ? 1
                     : factor == s->candidate ? gain_of(&s->high)
                     : factor == s->floor     ? gain_of(&s->low)
                                              : -1;
    if (d < 0 || !(facts->seconds.step > 0)) return;
    int at = 0;
    while (at < s->entries && s->factor[at] != factor) at++;
    if (at == ENTRIES) return;
    if (at == s->entries) s->factor[s->entries++] = factor;
    add_sample(&s->throughput[at], facts->ranks, d / facts->seconds.step); /* every step has as many samples */
}

/* The entry with the largest throughput besides `but`; -1: there is none. */
static int best_entry(const gravac_state *s, int but) {
    int best = -1;
    for (int i = 0; i < s->entries; i++)
        if (i != but && (best < 0 || s->throughput[i].value > s->throughput[best].value)) best = i;
    return best;
}

/* The factor at which the search ends, 1 being dense; 0: not yet. */
static double saturation_of(const gravac_options *o, const gravac_state *s) {
    const int first = best_entry(s, -1), second = best_entry(s, first);
    if (second < 0) return 0;
    const double best = s->throughput[first].value, next = s->throughput[second].value;
    if (!(best - next <= o->omega * next)) return 0;
    double smallest = s->factor[first];
    for (int i = 0; i < s->entries; i++)
        if (best - s->throughput[i].value <= o->omega * s->throughput[i].value) smallest = fmin(smallest, s->factor[i]);
    return smallest;
}

/* ---- every window ------------------------------------------------------------------------------------------------ */

static bool same_gain(const gravac_options *o, const gravac_state *s) {
    const double low = gain_of_floor(s), high = gain_of(&s->high);
    return low >= 0 && high >= 0 && fabs(low - high) <= o->omega * low;
}

static double grow_candidate(const gravac_options *o, double scale) {
    return o->policy == GEOMETRIC ? 2 * scale : scale * scale;
}

static void set_candidate(const gravac_options *o, gravac_state *s, double scale) {
    const double before = s->candidate;
    s->candidate = fmax(fmin(scale * s->floor, o->ceiling), s->floor);
    s->scale = s->candidate / s->floor;
    if (s->candidate != before) s->high = (level){0};
    if (s->candidate == s->floor) s->high = s->low;
}

/* For good; the floor follows a factor below it. */
static void settle_search(const gravac_options *o, gravac_state *s, double ideal) {
    s->settled = true;
    if (ideal < s->floor) {
        s->floor = ideal;
        s->low = (level){0};
    }
    set_candidate(o, s, ideal / s->floor);
}

static void check_window(const gravac_options *o, gravac_state *s) {
    const double scored = s->scale;
    if (s->candidate > s->floor && same_gain(o, s)) {
        s->floor = s->candidate;
        s->low = s->high;
    }
    if (s->settled) return;
    const double ideal = saturation_of(o, s);
    if (ideal > 0) {
        settle_search(o, s, ideal);
    } else if (s->candidate < o->ceiling) {
        set_candidate(o, s, grow_candidate(o, scored));
    }
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

static void choose_factor(const gravac_options *o, const gravac_state *s, int64_t step, taciti_decision *decision) {
    const double low = gain_of_floor(s), high = gain_of(&s->high);
    const double before = decision->factor;
    const char *about = s->settled ? "search ended" : "search";
    if (s->candidate == 1) {
        *decision = (taciti_decision){.factor = 1};
        taciti_decision_explain(decision, "%s: no factor has more throughput x gain than dense", about);
    } else if (high >= o->epsilon) {
        *decision = (taciti_decision){.factor = s->candidate, .trial = s->floor};
        taciti_decision_explain(decision, "%s: candidate %gx keeps %.3f of the energy, %g or more", about, s->candidate,
                                high, o->epsilon);
    } else if (low >= o->epsilon || low < 0) {
        *decision = (taciti_decision){.factor = s->floor, .trial = s->candidate};
        if (high < 0) {
            taciti_decision_explain(decision, "%s: floor %gx while candidate %gx is measured", about, s->floor,
                                    s->candidate);
        } else {
            taciti_decision_explain(decision, "%s: floor %gx keeps %.3f of the energy, candidate %gx %.3f, below %g",
                                    about, s->floor, low, s->candidate, high, o->epsilon);
        }
    } else {
        *decision = (taciti_decision){.factor = 1, .trial = step % 2 == 0 ? s->floor : s->candidate};
        taciti_decision_explain(decision, "%s: dense, for floor %gx keeps only %.3f of the energy, below %g", about,
                                s->floor, low, o->epsilon);
    }
    if (decision->trial == decision->factor) decision->trial = 0;
    decision->changed = decision->factor != before;
}

static tacit_status check_options(const void *options) {
    const gravac_options *o = options;
    if (o->floor > o->ceiling)
        return taciti_fail(TACIT_E_CONFIG,
                           "gravac.floor %g is above gravac.ceiling %g: lower the floor, or raise the ceiling",
                           o->floor, o->ceiling);
    if (o->ceiling > 1) return TACIT_OK;
    return taciti_fail(
        TACIT_E_CONFIG,
        "gravac.ceiling 1 compresses nothing: leave adapt.policy and compress.codec out, or give a ceiling above 1");
}

static size_t state_bytes(size_t buckets) {
    (void)buckets;
    return sizeof(gravac_state);
}

static void start_gravac(const void *options, const taciti_adapt_start *begin, void *state, taciti_decision *decision,
                         double *factors) {
    const gravac_options *o = options;
    gravac_state *s = state;
    (void)begin;
    (void)factors;
    *s = (gravac_state){.floor = fmin(o->floor, o->ceiling)};
    set_candidate(o, s, 2);
    *decision = (taciti_decision){.factor = s->floor, .trial = s->candidate == s->floor ? 0 : s->candidate};
    taciti_decision_explain(decision, "search: floor %gx first, candidate %gx is measured", s->floor, s->candidate);
}

static void decide_factor(const void *options, const taciti_adapt_facts *facts, void *state, taciti_decision *decision,
                          double *factors) {
    const gravac_options *o = options;
    gravac_state *s = state;
    (void)factors;
    if (facts->factor > 1) observe_factor(s, facts->factor, facts->ranks, &facts->model.sent);
    if (decision->trial > 0) observe_factor(s, decision->trial, facts->ranks, &facts->model.trial);
    record_throughput(s, facts);
    const double floor = s->floor, candidate = s->candidate;
    if ((facts->step + 1) % o->window == 0) check_window(o, s);
    choose_factor(o, s, facts->step, decision);
    if (s->floor != floor || s->candidate != candidate) decision->changed = true;
}

const taciti_controller taciti_controller_gravac = {
    .name = "gravac",
    .reference = true,
    .help = "one factor for the model: the largest whose gain passes a threshold, searched by throughput x gain",
    .source = "Tyagi, Swany, arXiv 2305.12201",
    .options = &OPTION_TABLE,
    .options_size = sizeof(gravac_options),
    .check = check_options,
    .state_bytes = state_bytes,
    .start = start_gravac,
    .decide = decide_factor,
};

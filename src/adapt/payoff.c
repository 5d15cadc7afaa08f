/* SPDX-License-Identifier: Apache-2.0
 *
 * payoff: which of its *kinds* a step takes: dense, or the codec at one of the factors that it has (taciti_codec.rungs;
 * a codec without has one). For each half of the traffic of strategy shard on its own. It takes the first, and so the
 * most accurate kind
 *
 *   that no other beats: the exchange keeps the communication thread busy for at most a twentieth longer than
 * another's; or that leaves nothing to gain: training waits for less than a fiftieth of a step.
 *
 * Buckets for which a kind before it is faster by a twentieth take that: short ones, whose time is that of messages,
 * stay dense.
 *
 * A run begins with a few steps of each kind. Later the others are tried again, one after the other, when the one in
 * use has changed by half, and after 256 steps; after twice as many each time that nothing changes, up to 4096. A trial
 * is two steps, the second of which counts: the first fills caches and residuals. If it speaks for a change, the trial
 * goes on until five have counted.
 *
 * The time of an exchange holds encoding, decoding and waits for other ranks, so what it saves is at most what a step
 * saves.
 */
#include <math.h>
#include <stdio.h>

#include "adapt/adapt.h"

enum { SAMPLES = 5, FIRST_TRIAL = 256, LAST_TRIAL = 4096, KINDS = 1 + TACITI_CODEC_RUNGS };
static const double MARGIN = 0.95, CHANGE = 1.5, HIDDEN = 0.02;

typedef struct kind {
    double factor;           /* of the decision; 1: dense */
    double seconds[SAMPLES]; /* of an exchange, the last ones */
    double waits[SAMPLES];   /* for it, of a step's time; 0: unknown */
    int64_t seen;            /* steps that have counted */
} kind;

typedef struct state {
    kind kinds[KINDS];             /* ascending factors */
    int64_t count, used, shown;    /* kinds; the one in use; that of the step under way */
    int64_t run;                   /* steps with this decision without a break */
    int64_t apart, trial_at;       /* steps between trials; the next one */
    int64_t tried;                 /* steps of the trial under way that have counted */
    double chosen;                 /* median of the one in use when it was chosen */
    bool decided;                  /* for the first time */
    size_t buckets, other_buckets; /* other: than the kind in use */
    double bucket_seconds[];       /* [count][buckets][SAMPLES], as `seconds` */
} state;

static size_t state_bytes(const void *options, size_t buckets) {
    (void)options;
    return sizeof(state) + KINDS * SAMPLES * buckets * sizeof(double);
}

static void start(const void *options, const taciti_adapt_start *begin, void *memory, taciti_decision *decision,
                  double *factors) {
    (void)options;
    (void)factors;
    state *s = memory;
    s->kinds[s->count++].factor = 1;
    for (const taciti_codec_rung *r = begin->rungs; r != NULL && r->factor > 0 && s->count < KINDS; r++)
        s->kinds[s->count++].factor = r->factor;
    /* Without a factor any number above 1 says: the codec. */
    if (s->count == 1) s->kinds[s->count++].factor = fmax(begin->factor, 2);
    s->apart = FIRST_TRIAL;
    s->buckets = begin->buckets;
    *decision = (taciti_decision){.factor = 1};
}

/* ---- what steps show --------------------------------------------------------------------------------------------- */

static double median(const double x[SAMPLES]) {
    double sorted[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > x[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = x[i];
    }
    return sorted[SAMPLES / 2];
}

static void keep(double ring[SAMPLES], int64_t seen, double value) {
    ring[seen % SAMPLES] = value;
    for (int i = 1; seen == 0 && i < SAMPLES; i++) ring[i] = value;
}

static double *ring_of(state *s, int64_t k, size_t bucket) {
    return s->bucket_seconds + (s->buckets * (size_t)k + bucket) * SAMPLES;
}

/* factors: of the step; NULL: buckets have none of their own. */
static void take(state *s, int64_t k, const taciti_adapt_facts *facts, const double *factors) {
    const taciti_adapt_seconds *t = &facts->seconds;
    if (s->run++ == 0 || t->busy <= 0) return; /* the first step after a change */
    const int64_t seen = s->kinds[k].seen++;
    keep(s->kinds[k].seconds, seen, t->busy);
    keep(s->kinds[k].waits, seen, t->step > 0 ? t->exposed / t->step : 0);
    for (size_t b = 0; b < s->buckets && facts->bucket_busy != NULL; b++)
        if (factors == NULL || factors[b] == 0 || factors[b] == s->kinds[k].factor)
            keep(ring_of(s, k, b), seen, facts->bucket_busy[b]);
}

static double time_of(const state *s, int64_t k) { return median(s->kinds[k].seconds); }

static bool is_hidden(double waits) { return waits > 0 && waits < HIDDEN; }

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static int64_t best_of(const state *s) {
    double min = HUGE_VAL;
    int64_t k = 0;
    for (int64_t i = 0; i < s->count; i++) min = fmin(min, time_of(s, i));
    while (k < s->count - 1 && min < MARGIN * time_of(s, k) && !is_hidden(median(s->kinds[k].waits))) k++;
    return k;
}

/* Buckets that a kind before the one in use makes faster get its factor. What they would take as the others do is not
 * measured any more then; so if their time grows past that, they follow the others again. */
static void part(state *s, double *factors) {
    s->other_buckets = 0;
    for (size_t b = 0; b < s->buckets && factors != NULL; b++) {
        double min = MARGIN * median(ring_of(s, s->used, b));
        factors[b] = 0;
        for (int64_t k = 0; k < s->used; k++) {
            const double own = median(ring_of(s, k, b));
            if (!(own > 0 && own < min)) continue;
            factors[b] = s->kinds[k].factor;
            min = own;
        }
        s->other_buckets += factors[b] > 0;
    }
}

static void show(state *s, taciti_decision *decision, int64_t k) {
    if (k != s->shown) s->run = 0;
    s->shown = k;
    decision->factor = s->kinds[k].factor;
}

/* The fastest kind but the one in use. */
static int64_t rival_of(const state *s) {
    int64_t rival = s->used == 0 ? 1 : 0;
    for (int64_t k = 0; k < s->count; k++)
        if (k != s->used && time_of(s, k) < time_of(s, rival)) rival = k;
    return rival;
}

static void name(const state *s, int64_t k, char *out, size_t size) {
    if (k == 0)
        (void)snprintf(out, size, "dense");
    else if (s->count == 2)
        (void)snprintf(out, size, "through the codec");
    else
        (void)snprintf(out, size, "at factor %g", s->kinds[k].factor);
}

static void explain(const state *s, taciti_decision *decision, double step) {
    enum { BYTES = 32 };
    char used[BYTES], other[BYTES];
    const int64_t rival = s->used == 0 ? rival_of(s) : 0;
    const double here = time_of(s, s->used), there = time_of(s, rival);
    name(s, s->used, used, sizeof used);
    name(s, rival, other, sizeof other);
    taciti_decision_explain(decision,
                            "an exchange takes %.3g ms %s and %.3g ms %s: %s at most %.0f %% of a step; %zu of %zu "
                            "buckets do otherwise",
                            1e3 * here, used, 1e3 * there, other, here < there ? "saves" : "costs",
                            100 * fmin(1, fabs(there - here) / fmax(step, 1e-9)), s->other_buckets, s->buckets);
}

static void choose(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, int64_t k, double *factors) {
    const bool news = !s->decided || k != s->used;
    s->apart = news ? FIRST_TRIAL : s->apart < LAST_TRIAL ? 2 * s->apart : LAST_TRIAL;
    s->trial_at = facts->step + s->apart;
    s->used = k;
    s->chosen = time_of(s, k);
    s->decided = true;
    part(s, factors);
    if (news) explain(s, decision, facts->seconds.step);
    show(s, decision, k);
}

static void begin_run(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, double *factors) {
    for (int64_t k = 0; k < s->count; k++)
        if (s->kinds[k].seen < SAMPLES) {
            show(s, decision, k);
            return;
        }
    choose(s, decision, facts, best_of(s), factors);
}

/* Whether the step that was taken, of a kind that is not in use, speaks for that kind. */
static bool is_better(const state *s, const taciti_adapt_facts *facts) {
    const double here = facts->seconds.busy, there = time_of(s, s->used);
    if (s->shown > s->used) return here < MARGIN * there && !is_hidden(median(s->kinds[s->used].waits));
    return !(there < MARGIN * here) || is_hidden(facts->seconds.exposed / fmax(facts->seconds.step, 1e-9));
}

/* After the last kind the trial has ended. */
static void try_next(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, int64_t next,
                     double *factors) {
    if (next == s->used) next++;
    s->tried = 0;
    if (next < s->count)
        show(s, decision, next);
    else
        choose(s, decision, facts, s->used, factors);
}

static void try_soon(state *s, int64_t step) {
    s->trial_at = step;
    s->apart = FIRST_TRIAL / 2; /* which the trial doubles if nothing changes */
}

static void try(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, double *factors) {
    const bool better = is_better(s, facts);
    if (s->run < 2) return;
    s->tried++;
    if (!better) {
        try_next(s, decision, facts, s->shown + 1, factors);
    } else if (s->tried == SAMPLES) {
        choose(s, decision, facts, s->shown, factors);
        if (s->count > 2) try_soon(s, facts->step + 1); /* another may be better still */
    }
}

static bool has_changed(const state *s) {
    const double now = time_of(s, s->used);
    return now > CHANGE * s->chosen || CHANGE * now < s->chosen;
}

static void decide(const void *options, const taciti_adapt_facts *facts, void *memory, taciti_decision *decision,
                   double *factors) {
    (void)options;
    state *s = memory;
    decision->changed = false;
    take(s, s->shown, facts, factors);
    if (!s->decided)
        begin_run(s, decision, facts, factors);
    else if (s->shown != s->used)
        try(s, decision, facts, factors);
    else if (facts->step >= s->trial_at || has_changed(s)) {
        if (facts->step < s->trial_at) try_soon(s, facts->step);
        try_next(s, decision, facts, 0, factors);
    }
}

const taciti_controller taciti_controller_payoff = {
    .name = "payoff",
    .help = "the codec, at the factors that it has, or dense where that is faster; for codecs without a factor, too",
    .source = "ours",
    .per_bucket = true,
    .switches = true,
    .state_bytes = state_bytes,
    .start = start,
    .decide = decide,
};

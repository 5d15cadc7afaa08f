/* SPDX-License-Identifier: Apache-2.0
 *
 * payoff: the codec or nothing, whichever keeps the communication thread busy for less time. For codecs without a
 * factor, and for each half of the traffic of strategy shard on its own. Where the codec is used, buckets that it makes
 * slower stay dense: short ones, whose time is that of messages.
 *
 * A run begins with a few dense steps and as many through the codec. From then on the shorter one is used. The other is
 * tried again when the one in use has changed by half, and after 256 steps; after twice as many each time that nothing
 * changes, up to 4096. A trial is two steps, the second of which counts: the first fills caches and residuals. If it
 * speaks for a change, the trial goes on until five have counted.
 *
 * The time of an exchange holds encoding, decoding and waits for other ranks, so what it saves is at most what a step
 * saves; backward may have hidden it. Where both take the same, up to a twentieth, nothing is compressed.
 */
#include <math.h>

#include "adapt/adapt.h"

enum { SAMPLES = 5, FIRST_TRIAL = 256, LAST_TRIAL = 4096 };
static const double MARGIN = 0.95, CHANGE = 1.5;

typedef struct state {
    double seconds[2][SAMPLES]; /* [0] dense, [1] codec: of an exchange, the last ones */
    double coded_factor;
    int64_t seen[2];               /* steps of each kind that have counted */
    int64_t run;                   /* steps with this decision without a break */
    int64_t apart, trial_at;       /* steps between trials; the next one */
    int64_t tried;                 /* steps of the trial under way that have counted */
    double chosen;                 /* median of the one in use when it was chosen */
    bool coded, decided;           /* the choice; made for the first time */
    size_t buckets, dense_buckets; /* dense: while the codec is used */
    double bucket_seconds[];       /* [2][buckets][SAMPLES], as `seconds` */
} state;

static size_t state_bytes(const void *options, size_t buckets) {
    (void)options;
    return sizeof(state) + 2 * SAMPLES * buckets * sizeof(double);
}

static void start(const void *options, const taciti_adapt_start *begin, void *memory, taciti_decision *decision,
                  double *factors) {
    (void)options;
    (void)factors;
    state *s = memory;
    s->coded_factor = fmax(begin->factor, 2); /* without a factor any number above 1 says: the codec */
    s->apart = FIRST_TRIAL;
    s->buckets = begin->buckets;
    *decision = (taciti_decision){.factor = 1};
}

static double median(const double x[SAMPLES]) {
    double sorted[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > x[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = x[i];
    }
    return sorted[SAMPLES / 2];
}

static void keep(double ring[SAMPLES], int64_t seen, double seconds) {
    ring[seen % SAMPLES] = seconds;
    for (int i = 1; seen == 0 && i < SAMPLES; i++) ring[i] = seconds;
}

static double *ring_of(state *s, bool coded, size_t bucket) {
    return s->bucket_seconds + (s->buckets * coded + bucket) * SAMPLES;
}

/* factors: of the step; NULL: buckets have none of their own. A bucket that stayed dense shows nothing of the codec. */
static void take(state *s, bool coded, const taciti_adapt_facts *facts, const double *factors) {
    if (s->run++ == 0 || facts->seconds.busy <= 0) return; /* the first step after a change */
    const int64_t seen = s->seen[coded]++;
    keep(s->seconds[coded], seen, facts->seconds.busy);
    for (size_t b = 0; b < s->buckets && facts->bucket_busy != NULL; b++)
        if (!coded || factors == NULL || factors[b] != 1) keep(ring_of(s, coded, b), seen, facts->bucket_busy[b]);
}

/* Sets the factor of every bucket that is faster without the codec to 1. What a bucket took through the codec is not
 * measured any more then; so if its dense time grows past that, it is compressed again. */
static void part(state *s, double *factors) {
    s->dense_buckets = 0;
    for (size_t b = 0; b < s->buckets && factors != NULL; b++) {
        const double dense = median(ring_of(s, false, b)), coded = median(ring_of(s, true, b));
        const bool stays = s->coded && dense > 0 && dense < MARGIN * coded;
        factors[b] = stays ? 1 : 0;
        s->dense_buckets += stays;
    }
}

static void use(state *s, taciti_decision *decision, bool coded) {
    if ((decision->factor > 1) != coded) s->run = 0;
    decision->factor = coded ? s->coded_factor : 1;
}

static void explain(const state *s, taciti_decision *decision, double step) {
    const double dense = median(s->seconds[0]), coded = median(s->seconds[1]);
    taciti_decision_explain(decision,
                            "an exchange takes %.3g ms through the codec and %.3g ms without it: %s at most %.0f %% of "
                            "a step; %zu of %zu buckets stay dense",
                            1e3 * coded, 1e3 * dense, s->coded ? "saves" : "the codec would cost",
                            100 * fmin(1, fabs(dense - coded) / fmax(step, 1e-9)),
                            s->coded ? s->dense_buckets : s->buckets, s->buckets);
}

static bool is_worth(double coded, double dense) { return coded < MARGIN * dense; }

static void choose(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, bool coded, double *factors) {
    const bool news = !s->decided || coded != s->coded;
    s->apart = news ? FIRST_TRIAL : s->apart < LAST_TRIAL ? 2 * s->apart : LAST_TRIAL;
    s->trial_at = facts->step + s->apart;
    s->coded = coded;
    s->chosen = median(s->seconds[coded]);
    s->decided = true;
    part(s, factors);
    if (news) explain(s, decision, facts->seconds.step);
    use(s, decision, coded);
}

static void begin_run(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, double *factors) {
    if (s->seen[0] < SAMPLES)
        use(s, decision, false);
    else if (s->seen[1] < SAMPLES)
        use(s, decision, true);
    else
        choose(s, decision, facts, is_worth(median(s->seconds[1]), median(s->seconds[0])), factors);
}

/* A step of the kind that is not in use. */
static void try(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, double *factors) {
    const double here = facts->seconds.busy, there = median(s->seconds[s->coded]);
    const bool other = s->coded ? !is_worth(there, here) : is_worth(here, there);
    if (s->run < 2) return;
    s->tried++;
    if (!other || s->tried == SAMPLES) choose(s, decision, facts, other ? !s->coded : s->coded, factors);
}

static bool has_changed(const state *s) {
    const double now = median(s->seconds[s->coded]);
    return now > CHANGE * s->chosen || CHANGE * now < s->chosen;
}

static void decide(const void *options, const taciti_adapt_facts *facts, void *memory, taciti_decision *decision,
                   double *factors) {
    (void)options;
    state *s = memory;
    const bool coded = facts->factor > 1;
    decision->changed = false;
    take(s, coded, facts, factors);
    if (!s->decided)
        begin_run(s, decision, facts, factors);
    else if (coded != s->coded)
        try(s, decision, facts, factors);
    else if (facts->step >= s->trial_at || has_changed(s)) {
        if (facts->step < s->trial_at) s->apart = FIRST_TRIAL / 2;
        s->tried = 0;
        use(s, decision, !s->coded);
    }
}

const taciti_controller taciti_controller_payoff = {
    .name = "payoff",
    .help = "the codec, or dense where that is faster; for codecs without a factor, too",
    .source = "ours",
    .per_bucket = true,
    .switches = true,
    .state_bytes = state_bytes,
    .start = start,
    .decide = decide,
};

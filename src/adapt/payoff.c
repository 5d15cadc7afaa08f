/* SPDX-License-Identifier: Apache-2.0
 *
 * payoff: the codec or nothing, whichever keeps the communication thread busy for less time. For codecs without a
 * factor, and for each half of the traffic of strategy shard on its own.
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
    int64_t seen[2];         /* steps of each kind that have counted */
    int64_t run;             /* steps with this decision without a break */
    int64_t apart, trial_at; /* steps between trials; the next one */
    int64_t tried;           /* steps of the trial under way that have counted */
    double chosen;           /* median of the one in use when it was chosen */
    bool coded, decided;     /* the choice; made for the first time */
} state;

static size_t state_bytes(const void *options, size_t buckets) {
    (void)options;
    (void)buckets;
    return sizeof(state);
}

static void start(const void *options, const taciti_adapt_start *begin, void *memory, taciti_decision *decision,
                  double *factors) {
    (void)options;
    (void)factors;
    state *s = memory;
    s->coded_factor = fmax(begin->factor, 2); /* without a factor any number above 1 says: the codec */
    s->apart = FIRST_TRIAL;
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

static void take(state *s, bool coded, double seconds) {
    if (s->run++ == 0 || seconds <= 0) return; /* the first step after a change */
    const int64_t seen = s->seen[coded]++;
    s->seconds[coded][seen % SAMPLES] = seconds;
    for (int i = 1; seen == 0 && i < SAMPLES; i++) s->seconds[coded][i] = seconds;
}

static void use(state *s, taciti_decision *decision, bool coded) {
    if ((decision->factor > 1) != coded) s->run = 0;
    decision->factor = coded ? s->coded_factor : 1;
}

static void explain(const state *s, taciti_decision *decision, double step) {
    const double dense = median(s->seconds[0]), coded = median(s->seconds[1]);
    taciti_decision_explain(decision,
                            "an exchange takes %.3g ms through the codec and %.3g ms without it: %s at most %.0f %% of "
                            "a step",
                            1e3 * coded, 1e3 * dense, s->coded ? "saves" : "the codec would cost",
                            100 * fmin(1, fabs(dense - coded) / fmax(step, 1e-9)));
}

static bool is_worth(double coded, double dense) { return coded < MARGIN * dense; }

static void choose(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, bool coded) {
    const bool news = !s->decided || coded != s->coded;
    s->apart = news ? FIRST_TRIAL : s->apart < LAST_TRIAL ? 2 * s->apart : LAST_TRIAL;
    s->trial_at = facts->step + s->apart;
    s->coded = coded;
    s->chosen = median(s->seconds[coded]);
    s->decided = true;
    if (news) explain(s, decision, facts->seconds.step);
    use(s, decision, coded);
}

static void begin_run(state *s, taciti_decision *decision, const taciti_adapt_facts *facts) {
    if (s->seen[0] < SAMPLES)
        use(s, decision, false);
    else if (s->seen[1] < SAMPLES)
        use(s, decision, true);
    else
        choose(s, decision, facts, is_worth(median(s->seconds[1]), median(s->seconds[0])));
}

/* A step of the kind that is not in use. */
static void try(state *s, taciti_decision *decision, const taciti_adapt_facts *facts) {
    const double here = facts->seconds.busy, there = median(s->seconds[s->coded]);
    const bool other = s->coded ? !is_worth(there, here) : is_worth(here, there);
    if (s->run < 2) return;
    s->tried++;
    if (!other || s->tried == SAMPLES) choose(s, decision, facts, other ? !s->coded : s->coded);
}

static bool has_changed(const state *s) {
    const double now = median(s->seconds[s->coded]);
    return now > CHANGE * s->chosen || CHANGE * now < s->chosen;
}

static void decide(const void *options, const taciti_adapt_facts *facts, void *memory, taciti_decision *decision,
                   double *factors) {
    (void)options;
    (void)factors;
    state *s = memory;
    const bool coded = facts->factor > 1;
    decision->changed = false;
    take(s, coded, facts->seconds.busy);
    if (!s->decided)
        begin_run(s, decision, facts);
    else if (coded != s->coded)
        try(s, decision, facts);
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
    .switches = true,
    .state_bytes = state_bytes,
    .start = start,
    .decide = decide,
};

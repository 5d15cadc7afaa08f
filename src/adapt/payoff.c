/* SPDX-License-Identifier: Apache-2.0
 *
 * payoff: which of its *kinds* a step takes: dense, or the codec at one of the factors that it has (taciti_codec.rungs;
 * a codec without has one). For each half of the traffic of strategy shard on its own. It takes the first, and so the
 * most accurate kind
 *
 *   that no other beats: the exchange keeps the communication thread busy for at most a twentieth longer than
 *   another's; or that leaves nothing to gain: training waits for less than a fiftieth of a step.
 *
 * Buckets for which a kind before it is faster by a twentieth take that: short ones, whose time is that of messages,
 * stay dense.
 *
 * Theory (ours). An exchange takes the seconds of its codec, which are measured in every step, and a transfer
 * T = F + s B: B bytes, s seconds per byte of the link, F for what does not depend on it, as waiting for other ranks.
 * T and B of each kind are measured once; then F and B stay, and only s changes. So when T of the kind of a step moves,
 * s' = s + (T' - T) / B tells what every other kind takes now without trying it: T + (s' - s) B. Busy machines multiply
 * all T instead. The prediction is a weighted geometric mean of the two, and half of their distance is its doubt.
 *
 * - Noise: T is a mean of logarithms over up to 50 steps; the variance of one is measured, that of the mean is smaller
 * by their number. A prediction counts as the number of samples that would have its doubt. A kind is left only for an
 * advantage beyond the standard error.
 * - A change of the link is one if two or more steps say so: CUSUM of log(T / its mean), over steps of all kinds, with
 *   the error rates of adapt/change.h. A sample that may be one is not folded into a mean.
 * - Kinds that select elements join late, because they lose most while gradients change fast: after selects_at, and
 *   only where the shortest of the others is in use and leaves something to gain.
 * - A trial of another kind pays if an advantage is within its standard error (the optimism of Auer et al.,
 *   "Finite-time analysis of the multiarmed bandit problem", 2002), or if it takes less than a hundredth of the time
 *   since the kind was last measured: F may have changed. The times between trials double.
 *
 * Bars and what comes out: test_payoff_links.c.
 *
 * The time of an exchange holds waits for other ranks, so what it saves is at most what a step saves. Times belong to a
 * process: a run that resumes measures again.
 */
#include <math.h>
#include <stdio.h>

#include "adapt/adapt.h"
#include "adapt/change.h"

enum { KINDS = 1 + TACITI_CODEC_RUNGS };     /* a codec without rungs has one */
enum { MEMORY = 50 };                        /* samples of a mean, which drifts follow */
enum { TOUR = 2, TRIED = 3 };                /* samples of each kind at first; of a trial at most */
enum { FIRST_TRIAL = 8, LAST_TRIAL = 4096 }; /* steps between trials */
enum { OLD = 256 };                          /* steps after which a time may no longer hold */
enum { PAIR = 2 }; /* steps of a sample as adapt/change.h counts them: two samples may be a change */
static const double MARGIN = 0.95, HIDDEN = 0.02; /* the twentieth and the fiftieth above */
static const double TRIAL_SHARE = 0.01;           /* of the time, for trials without hope */
static const double NEWEST = 0.2;                 /* weight of a sample in averages of encoding and waiting */
static const double MIN_SHARE = 0.02;             /* of an exchange that is transfer, whatever encoding takes */
static const double MIN_NOISE = 0.01;             /* clocks and schedulers are no better */
static const double GUESS = 0.2;                  /* doubt of every prediction; */
static const double BY_RATE = 0.75; /* weight of s' in one: links change more often than machines. Both found
                                       by test_payoff_links */

/* A geometric mean; the variance of its logarithm is that of one sample / samples. 0 seconds: unknown. */
typedef struct level {
    double seconds, samples; /* samples: MEMORY at most; of a prediction as many as are as certain as it is */
} level;

typedef struct kind {
    double factor; /* of the decision; 1: dense */
    level transfer;
    double encode;         /* seconds of encoding and decoding */
    double bytes, exposed; /* exposed: seconds for which training waited; 0: unknown */
    int64_t seen_at;       /* step of the newest sample */
} kind;

typedef struct state {
    kind kinds[KINDS];             /* ascending factors */
    taciti_change link;            /* of transfers over what their kinds took */
    int64_t count, used, shown;    /* kinds so far; the one in use; that of the step under way */
    int64_t all, selects_at;       /* kinds; step of the run at which those that select may join */
    int64_t run;                   /* steps with this decision without a break */
    int64_t apart, trial_at;       /* steps between trials; the next one */
    int64_t tried;                 /* steps of the trial under way that have counted */
    double rest;                   /* seconds of a step besides waiting for the exchange */
    bool decided;                  /* for the first time */
    size_t buckets, other_buckets; /* other: than the kind in use */
    level bucket[];                /* [count][buckets] */
} state;

static size_t state_bytes(size_t buckets) { return sizeof(state) + KINDS * buckets * sizeof(level); }

static void start_payoff(const void *options, const taciti_adapt_start *begin, void *memory, taciti_decision *decision,
                         double *factors) {
    (void)options;
    (void)factors;
    state *s = memory;
    s->count = s->all = 1;
    s->kinds[0].factor = 1;
    for (const taciti_codec_rung *r = begin->rungs; r != NULL && r->factor > 0 && r->loss <= begin->loss; r++) {
        s->kinds[s->all++].factor = r->factor;
        s->count += r->selects == 0;
    }
    /* Without a factor any number above 1 says: the codec. */
    if (begin->rungs == NULL) {
        s->kinds[1].factor = begin->factor > 1 ? begin->factor : 2;
        s->count = s->all = 2;
    }
    for (int64_t k = 0; k < s->all; k++) s->kinds[k].bytes = 1 / s->kinds[k].factor; /* until they are measured */
    s->selects_at = begin->selects_at;
    s->buckets = begin->buckets;
    *decision = (taciti_decision){.factor = 1};
}

/* ---- what steps show --------------------------------------------------------------------------------------------- */

/* Standard deviation of the logarithm of one transfer. */
static double noise_of(const state *s) { return fmax(taciti_noise_deviation(&s->link.noise) / sqrt(PAIR), MIN_NOISE); }

static double time_of(const state *s, int64_t k) { return s->kinds[k].transfer.seconds + s->kinds[k].encode; }

/* Standard deviation of the logarithm of what a sample may differ by from the mean. */
static double spread_of(const level *l, double noise) { return noise * sqrt(1 + 1 / l->samples); }

/* A sample counts for at most three standard deviations. */
static void add_sample(level *l, double x, double noise) {
    const bool known = l->seconds > 0;
    const double limit = known ? 3 * spread_of(l, noise) : 0, d = known ? log(x / l->seconds) : 0;
    l->samples = fmin(l->samples + 1, MEMORY);
    l->seconds = known ? l->seconds * exp(fmin(fmax(d, -limit), limit) / l->samples) : x;
}

static level predict_level(double seconds, double doubt, double noise) {
    return (level){seconds, noise / doubt * noise / doubt};
}

/* samples: that are in the mean. */
static void follow_average(double *mean, double x, double samples) {
    *mean += fmax(NEWEST, 1 / (samples + 1)) * (x - *mean);
}

static level *bucket_of(state *s, int64_t k, size_t bucket) { return s->bucket + s->buckets * (size_t)k + bucket; }

static int64_t kind_of(const state *s, double factor, int64_t otherwise) {
    for (int64_t k = 0; k < s->count && factor > 0; k++)
        if (s->kinds[k].factor == factor) return k;
    return otherwise;
}

static void observe_buckets(state *s, const taciti_adapt_facts *facts, const double *factors) {
    for (size_t b = 0; b < s->buckets && facts->bucket_busy != NULL; b++) {
        const int64_t k = kind_of(s, factors == NULL ? 0 : factors[b], s->shown);
        if (facts->bucket_busy[b] > 0) add_sample(bucket_of(s, k, b), facts->bucket_busy[b], noise_of(s));
    }
}

/* By how much the link has slowed since, as this transfer and those before it say; 1: not at all. A transfer is
 * compared with the mean of its kind, so steps of several kinds are samples of the same. */
static double observe_link(state *s, double transfer) {
    const level *l = &s->kinds[s->shown].transfer;
    if (!(l->seconds > 0)) return 1;
    const double scale = spread_of(l, noise_of(s)) / noise_of(s), mean = s->link.mean;
    const double ratio = taciti_change_observe(&s->link, exp(log(transfer / l->seconds) / scale), PAIR);
    return ratio == 1 ? 1 : exp(scale * (log(ratio) + mean));
}

/* Takes a step in; the first one after a change of the decision fills caches and residuals and does not count, nor does
 * one whose factor still rises: until then the first choice waits. A sample that may show a change of the link is not
 * folded in, unless nothing is known of the kind. Returns by how much the link has slowed. */
static double observe_step(state *s, const taciti_adapt_facts *facts, const double *factors) {
    const taciti_adapt_seconds *t = &facts->seconds;
    kind *k = &s->kinds[s->shown];
    if (s->run++ == 0 || !(t->busy > 0) || facts->factor != k->factor) return 1;
    const double transfer = fmax(t->busy - t->encode, MIN_SHARE * t->busy), ratio = observe_link(s, transfer);
    follow_average(&k->encode, t->encode, k->encode > 0 ? MEMORY : 0);
    follow_average(&k->exposed, t->exposed, k->transfer.samples);
    follow_average(&s->rest, fmax(t->step - t->exposed, 0), s->rest > 0 ? MEMORY : 0);
    if (facts->bytes > 0 && s->other_buckets == 0) k->bytes = facts->bytes;
    k->seen_at = facts->step;
    if (k->transfer.samples > 0 && (ratio != 1 || s->link.seen[0] + s->link.seen[1] > 0)) return ratio;
    add_sample(&k->transfer, transfer, noise_of(s));
    observe_buckets(s, facts, factors);
    return 1;
}

/* ---- changes of the link ----------------------------------------------------------------------------------------- */

/* Seconds per byte: the line through all kinds, of the same relative error each; F is not negative. */
static double rate_of(const state *s) {
    double w = 0, wb = 0, wbb = 0, wt = 0, wbt = 0, max = HUGE_VAL;
    for (int64_t k = 0; k < s->count; k++) {
        const double t = s->kinds[k].transfer.seconds, b = s->kinds[k].bytes, weight = t > 0 ? 1 / (t * t) : 0;
        w += weight, wb += weight * b, wbb += weight * b * b, wt += weight * t, wbt += weight * b * t;
        if (t > 0) max = fmin(max, t / b);
    }
    const double slope = (w * wbt - wb * wt) / fmax(w * wbb - wb * wb, 1e-300);
    return fmin(fmax(slope, max / 16), max);
}

typedef struct move {
    double rate, now, ratio; /* seconds per byte before and now; of the transfer of the kind that shows it */
} move;

/* Predicts the transfer of these bytes that took these seconds before the change. */
static level move_transfer(const move *m, double seconds, double bytes, double noise) {
    const double all = m->ratio * seconds, fixed = seconds - m->rate * bytes;
    const double by_rate = m->now <= 0 ? all : fixed > 0 ? fixed + m->now * bytes : seconds * m->now / m->rate;
    const double distance = log(by_rate / all);
    return predict_level(all * exp(BY_RATE * distance), GUESS + fabs(distance) / 2, noise);
}

static void move_buckets(state *s, const move *m, const taciti_adapt_facts *facts) {
    double all = 0;
    for (size_t b = 0; b < s->buckets && facts->bucket_busy != NULL; b++) all += (double)facts->bucket_bytes[b];
    for (size_t i = 0; i < (size_t)s->count * s->buckets && all > 0; i++) {
        level *l = &s->bucket[i];
        const kind *k = &s->kinds[i / s->buckets];
        const double share = (double)facts->bucket_bytes[i % s->buckets] / all;
        const double transfer = fmax(l->seconds - share * k->encode, MIN_SHARE * l->seconds),
                     rest = l->seconds - transfer;
        if (!(l->seconds > 0)) continue;
        *l = move_transfer(m, transfer, share * k->bytes, noise_of(s));
        l->seconds += rest;
    }
}

/* Moves all kinds, as the one of the step shows it. Backward hides as much as before. */
static void move_kinds(state *s, const taciti_adapt_facts *facts, double ratio) {
    level *shown = &s->kinds[s->shown].transfer;
    const double rate = rate_of(s), seconds = ratio * shown->seconds;
    const move m = {rate, rate + (seconds - shown->seconds) / s->kinds[s->shown].bytes, ratio};
    double hidden = 0;
    for (int64_t k = 0; k < s->count; k++)
        if (s->kinds[k].exposed > 0) hidden = fmax(hidden, time_of(s, k) - s->kinds[k].exposed);
    for (int64_t k = 0; k < s->count; k++) {
        kind *each = &s->kinds[k];
        if (!(each->transfer.seconds > 0)) continue;
        each->transfer = move_transfer(&m, each->transfer.seconds, each->bytes, noise_of(s));
        if (each->exposed > 0) each->exposed = fmax(time_of(s, k) - hidden, 1e-9);
    }
    *shown = (level){seconds, 1};
    move_buckets(s, &m, facts);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static bool is_hidden(const state *s, int64_t k) {
    const double exposed = s->kinds[k].exposed;
    return exposed > 0 && exposed < HIDDEN * (s->rest + exposed);
}

/* Standard error of the logarithm of a time. */
static double error_of(const state *s, int64_t k) {
    const level *l = &s->kinds[k].transfer;
    return noise_of(s) / sqrt(l->samples) * l->seconds / time_of(s, k);
}

/* Logarithm of how much faster than the one in use, beyond what makes it worth while. */
static double advantage_of(const state *s, int64_t k) {
    return log(time_of(s, s->used) / time_of(s, k)) + (k < s->used ? -log(MARGIN) : log(MARGIN));
}

/* Standard error of advantage_of(). Not hypot(): that of newer C libraries keeps packages from older systems. */
static double doubt_of(const state *s, int64_t k) {
    const double used = error_of(s, s->used), other = error_of(s, k);
    return sqrt(used * used + other * other);
}

/* The first kind that no other beats, or the one in use if the difference may be noise. */
static int64_t best_of(const state *s) {
    double min = HUGE_VAL;
    int64_t k = 0;
    for (int64_t i = 0; i < s->count; i++) min = fmin(min, time_of(s, i));
    while (k < s->count - 1 && min < MARGIN * time_of(s, k) && !is_hidden(s, k)) k++;
    if (!s->decided || (k < s->used && is_hidden(s, k))) return k;
    return advantage_of(s, k) > doubt_of(s, k) ? k : s->used;
}

/* The kind of a bucket: one before the kind in use that makes it faster, beyond the noise. */
static int64_t bucket_kind(state *s, size_t b, int64_t now) {
    const level *used = bucket_of(s, s->used, b);
    double min = MARGIN * used->seconds;
    int64_t best = s->used;
    for (int64_t k = 0; k < s->used; k++) {
        const level *own = bucket_of(s, k, b);
        if (!(own->seconds > 0 && used->seconds > 0)) continue;
        const double error = noise_of(s) * sqrt(1 / own->samples + 1 / used->samples);
        const double margin = k == now ? 1 : exp(-error);
        if (!(own->seconds < margin * min)) continue;
        best = k;
        min = own->seconds;
    }
    return best;
}

/* Gives buckets kinds of their own. The time of the exchange follows. */
static void choose_bucket_kinds(state *s, double *factors) {
    double before = 0, after = 0;
    s->other_buckets = 0;
    for (size_t b = 0; b < s->buckets && factors != NULL; b++) {
        const int64_t now = kind_of(s, factors[b], s->used), k = bucket_kind(s, b, now);
        before += bucket_of(s, now, b)->seconds;
        after += bucket_of(s, k, b)->seconds;
        factors[b] = k == s->used ? 0 : s->kinds[k].factor;
        s->other_buckets += k != s->used;
    }
    if (!(before > 0) || after == before) return;
    s->kinds[s->used].transfer = predict_level(s->kinds[s->used].transfer.seconds * after / before, GUESS, noise_of(s));
    s->run = 0;
}

static void show_kind(state *s, taciti_decision *decision, int64_t k) {
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

static void name_kind(const state *s, int64_t k, char *out, size_t size) {
    if (k == 0)
        (void)snprintf(out, size, "dense");
    else if (s->count == 2)
        (void)snprintf(out, size, "through the codec");
    else
        (void)snprintf(out, size, "at factor %g", s->kinds[k].factor);
}

static void explain_choice(const state *s, taciti_decision *decision, double step) {
    enum { BYTES = 32 };
    char used[BYTES], other[BYTES];
    const int64_t rival = s->used == 0 ? rival_of(s) : 0;
    const double here = time_of(s, s->used), there = time_of(s, rival);
    name_kind(s, s->used, used, sizeof used);
    name_kind(s, rival, other, sizeof other);
    taciti_decision_explain(decision,
                            "an exchange takes %.3g ms %s and %.3g ms %s: %s at most %.0f %% of a step; %zu of %zu "
                            "buckets do otherwise",
                            1e3 * here, used, 1e3 * there, other, here < there ? "saves" : "costs",
                            100 * fmin(1, fabs(there - here) / fmax(step, 1e-9)), s->other_buckets, s->buckets);
}

static void plan_trial(state *s, int64_t step, int64_t apart) {
    s->apart = apart < LAST_TRIAL ? apart : LAST_TRIAL;
    s->trial_at = step + s->apart;
    s->tried = 0;
}

static void choose_kind(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, int64_t k,
                        double *factors) {
    const bool news = !s->decided || k != s->used;
    s->used = k;
    s->decided = true;
    show_kind(s, decision, k);
    choose_bucket_kinds(s, factors);
    plan_trial(s, facts->step, news ? FIRST_TRIAL : 2 * s->apart);
    if (news) explain_choice(s, decision, facts->seconds.step);
}

static void begin_run(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, double *factors) {
    for (int64_t k = 0; k < s->count; k++)
        if (s->kinds[k].transfer.samples < TOUR) {
            show_kind(s, decision, k);
            return;
        }
    choose_kind(s, decision, facts, best_of(s), factors);
}

/* ---- trials ------------------------------------------------------------------------------------------------------ */

static double hope_of(const state *s, int64_t k) { return advantage_of(s, k) + error_of(s, k); }

static bool is_worth_a_trial(const state *s, int64_t k, int64_t step) {
    const int64_t age = step - s->kinds[k].seen_at;
    const double cost = 2 * (time_of(s, k) / time_of(s, s->used) - 1);
    if (k == s->used || (k > s->used && is_hidden(s, s->used))) return false;
    return hope_of(s, k) > 0 || (age >= OLD && cost < TRIAL_SHARE * (double)age);
}

static void begin_trial(state *s, taciti_decision *decision, int64_t step) {
    int64_t best = s->used;
    for (int64_t k = 0; k < s->count; k++)
        if (is_worth_a_trial(s, k, step) && (best == s->used || hope_of(s, k) > hope_of(s, best))) best = k;
    show_kind(s, decision, best);
}

/* The next kind that selects elements joins, with a trial, where the shortest so far leaves something to gain. */
static bool may_join(const state *s, int64_t at) {
    return s->count < s->all && at >= s->selects_at && s->used == s->count - 1 && !is_hidden(s, s->used);
}

static void begin_joining(state *s, taciti_decision *decision) {
    s->tried = 0;
    show_kind(s, decision, s->count++);
}

/* Ends when there is no hope left, or after some steps. */
static void continue_trial(state *s, taciti_decision *decision, const taciti_adapt_facts *facts, double *factors) {
    if (s->run < 2 || !(s->kinds[s->shown].transfer.seconds > 0)) return;
    const bool ends = ++s->tried >= TRIED || hope_of(s, s->shown) <= 0;
    if (ends) choose_kind(s, decision, facts, best_of(s), factors);
}

static void decide_kind(const void *options, const taciti_adapt_facts *facts, void *memory, taciti_decision *decision,
                        double *factors) {
    (void)options;
    state *s = memory;
    decision->changed = false;
    const double ratio = observe_step(s, facts, factors);
    if (ratio != 1) move_kinds(s, facts, ratio);
    if (!s->decided) {
        begin_run(s, decision, facts, factors);
    } else if (ratio != 1 || (s->shown == s->used && best_of(s) != s->used)) {
        choose_kind(s, decision, facts, best_of(s), factors);
        plan_trial(s, facts->step, FIRST_TRIAL);
    } else if (s->shown != s->used) {
        continue_trial(s, decision, facts, factors);
    } else if (may_join(s, facts->at)) {
        begin_joining(s, decision);
    } else if (facts->step >= s->trial_at) {
        begin_trial(s, decision, facts->step);
    }
}

const taciti_controller taciti_controller_payoff = {
    .name = "payoff",
    .help = "the codec, at the factors that it has, or dense where that is faster; for codecs without a factor, too",
    .source = "ours",
    .per_bucket = true,
    .switches = true,
    .measures = true,
    .state_bytes = state_bytes,
    .start = start_payoff,
    .decide = decide_kind,
};

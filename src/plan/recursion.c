/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recursion.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "model/emulated.h"

enum { WARM_UP_SHARE = 8 };

/* Steps repeat when all ranks have moved on alike within this share. */
static const double REPEATS = 1e-9;

/* Seconds in all scenarios. */
typedef struct moment {
    double at[TACITI_SCENARIOS];
} moment;

/* Tables are [ranks] or as told; all in one block. What the next step depends on comes first. */
typedef struct state {
    const taciti_recursion *r;
    moment *begin;    /* s_i */
    moment *free_s;   /* when a rank's channel is free */
    moment *arrived;  /* E_ik; awc with overlap: [delay + 1][buckets][ranks], of the newest exchanges, as a ring */
    size_t kept;      /* moments of these three */
    moment *end;      /* of backward */
    moment *was_free; /* before this bucket */
    moment *handed;   /* h_ik of the bucket at hand */
    moment compute_s; /* sum over ranks and steps */
    size_t scenarios;
    const double *behind_s; /* of updates */
    double update_s;        /* all */
} state;

static inline double latest(double a, double b) { return a > b ? a : b; }

static inline void wait_for(moment *at, const moment *other) {
    for (int s = 0; s < TACITI_SCENARIOS; s++) at->at[s] = latest(at->at[s], other->at[s]);
}

static inline moment later(const moment *at, double seconds) {
    moment m;
    for (int s = 0; s < TACITI_SCENARIOS; s++) m.at[s] = at->at[s] + seconds;
    return m;
}

/* ---- one exchange ------------------------------------------------------------------------------------------------ */

static void add_seconds(moment *at, const double *seconds, size_t bucket, size_t scenarios) {
    for (size_t s = 0; s < scenarios; s++) at->at[s] += seconds[bucket * scenarios + s];
}

/* free_s[ranks]: before this bucket. */
static moment meet(const state *s, const taciti_meeting *meeting, size_t bucket, const moment *free_s) {
    moment handed = {{0}}, idle = {{0}};
    for (size_t m = 0; m < meeting->count; m++) {
        const int rank = meeting->members[m];
        wait_for(&handed, &s->handed[rank]);
        wait_for(&idle, &free_s[rank]);
    }
    add_seconds(&handed, meeting->transfer_s, bucket, s->scenarios);
    add_seconds(&idle, meeting->behind_s == NULL ? meeting->transfer_s : meeting->behind_s, bucket, s->scenarios);
    wait_for(&handed, &idle);
    return handed;
}

static void arrive(const state *s, moment *arrived, int rank, const moment *at) {
    arrived[rank] = s->free_s[rank] = *at;
}

/* One bucket of a round, into arrived[ranks]. Who meets nobody has it when it hands it over. Only a taker's channel may
 * be asked for by others after it. */
static void exchange_bucket(const state *s, size_t round, size_t k, moment *arrived) {
    const taciti_meetings *meetings = &s->r->rounds[round];
    const size_t bytes = (size_t)s->r->ranks * sizeof *arrived;
    const bool takers = meetings->count > 0 && meetings->list[0].taker >= 0;
    const moment *free_s = takers ? s->was_free : s->free_s;
    memcpy(arrived, s->handed, bytes);
    if (takers) memcpy(s->was_free, s->free_s, bytes);
    for (size_t g = 0; g < meetings->count; g++) {
        const taciti_meeting *meeting = &meetings->list[g];
        const moment at = meet(s, meeting, k, free_s);
        if (meeting->taker >= 0) arrive(s, arrived, meeting->taker, &at);
        for (size_t m = 0; m < meeting->count && meeting->taker < 0; m++) arrive(s, arrived, meeting->members[m], &at);
    }
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static double factor(const taciti_recursion *r, int rank, size_t step) {
    const double slow = r->slow == NULL ? 1 : r->slow[rank];
    return r->cv > 0 ? slow * taciti_compute_deviation(r->seed, r->cv, rank, (int64_t)step) : slow;
}

static void compute(const state *s, size_t t) {
    const taciti_recursion *r = s->r;
    for (int i = 0; i < r->ranks; i++) {
        const double seconds = r->compute_s * factor(r, i, t);
        for (size_t c = 0; c < TACITI_SCENARIOS; c++)
            s->end[i].at[c] = s->begin[i].at[c] + (r->even[c] ? r->compute_s : seconds);
    }
}

/* All ranks' steps end at these moments. */
static void finish(state *s, const moment *at) {
    for (int i = 0; i < s->r->ranks; i++)
        for (int c = 0; c < TACITI_SCENARIOS; c++) {
            s->compute_s.at[c] += s->end[i].at[c] - s->begin[i].at[c] + s->update_s;
            s->begin[i].at[c] = at[i].at[c];
        }
}

/* What is left of backward when the bucket is ready takes as much longer as the whole step's computing does. */
static void step_dense(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    for (size_t k = 0; k < r->buckets; k++) {
        const double left = r->overlap && r->compute_s > 0 ? (r->compute_s - r->ready_s[k]) / r->compute_s : 0;
        for (int i = 0; i < r->ranks; i++)
            for (int c = 0; c < TACITI_SCENARIOS; c++)
                s->handed[i].at[c] = s->end[i].at[c] - left * (s->end[i].at[c] - s->begin[i].at[c]);
        exchange_bucket(s, number % r->period, k, s->arrived);
    }
    for (int i = 0; i < r->ranks; i++) {
        wait_for(&s->arrived[i], &s->end[i]);
        s->handed[i] = later(&s->arrived[i], s->update_s);
    }
    finish(s, s->handed);
}

/* A mix is begun as soon as the one before has been used, and waited for `every` steps later. */
static void step_awc(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks, next = number + 1;
    moment *slot = s->arrived + next % ((size_t)r->delay + 1) * r->buckets * ranks; /* the ring's oldest */
    memcpy(s->handed, s->end, ranks * sizeof *s->handed);
    for (size_t k = 0; k < r->buckets; k++, slot += ranks) {
        for (size_t i = 0; i < ranks; i++) {
            const moment mixed = later(&slot[i], r->update_s[k]);
            s->handed[i] = later(&s->handed[i], s->behind_s[k]);
            wait_for(&s->handed[i], &mixed);
        }
        exchange_bucket(s, next % r->period, k, slot);
    }
    finish(s, s->handed);
}

/* Bucket by bucket: hand over, wait, update. A transfer is waited for where it begins, so a delay gains nothing. */
static void step_awc_blocking(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks;
    memcpy(s->handed, s->end, ranks * sizeof *s->handed);
    for (size_t k = 0; k < r->buckets; k++) {
        exchange_bucket(s, number % r->period, k, s->arrived);
        for (size_t i = 0; i < ranks; i++) s->handed[i] = later(&s->arrived[i], r->update_s[k]);
    }
    finish(s, s->handed);
}

static void step_atc(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    for (int i = 0; i < r->ranks; i++) s->handed[i] = r->overlap ? s->end[i] : later(&s->end[i], s->update_s);
    for (size_t k = 0; k < r->buckets; k++) {
        for (int i = 0; i < r->ranks && r->overlap; i++) s->handed[i] = later(&s->handed[i], s->behind_s[k]);
        exchange_bucket(s, number % r->period, k, s->arrived);
    }
    for (int i = 0; i < r->ranks; i++) {
        const moment updated = later(&s->end[i], s->update_s);
        wait_for(&s->arrived[i], &updated);
    }
    finish(s, s->arrived);
}

/* Nobody waits for anybody. */
static void step_alone(state *s) {
    for (int i = 0; i < s->r->ranks; i++) s->handed[i] = later(&s->end[i], s->update_s);
    finish(s, s->handed);
}

static void step(state *s, size_t t) {
    const taciti_recursion *r = s->r;
    const size_t every = (size_t)r->every, number = t / every;
    compute(s, t);
    if (t % every != every - 1) {
        step_alone(s);
        return;
    }
    switch (r->order) {
    case TACITI_ORDER_DENSE: step_dense(s, number); break;
    case TACITI_ORDER_AWC: (r->overlap ? step_awc : step_awc_blocking)(s, number); break;
    case TACITI_ORDER_ATC: step_atc(s, number); break;
    case TACITI_ORDER_PARTS: break; /* plan/parts.c */
    }
}

/* ---- steps that repeat ------------------------------------------------------------------------------------------- */

static bool is_random(const taciti_recursion *r) { return r->cv > 0; }

/* Whether everything has moved on alike since `then`; by how much in *moved. */
static bool repeats(const state *s, const moment *then, moment *moved) {
    for (int c = 0; c < TACITI_SCENARIOS; c++) moved->at[c] = s->begin[0].at[c] - then[0].at[c];
    for (size_t i = 0; i < s->kept; i++)
        for (int c = 0; c < TACITI_SCENARIOS; c++)
            if (!(fabs(s->begin[i].at[c] - then[i].at[c] - moved->at[c]) <= REPEATS * moved->at[c])) return false;
    return true;
}

/* As if what has happened since `then` had happened so many times more. */
static void move_on(state *s, const moment *moved, const moment *computed, double times) {
    for (int c = 0; c < TACITI_SCENARIOS; c++) {
        for (size_t i = 0; i < s->kept; i++) s->begin[i].at[c] += times * moved->at[c];
        s->compute_s.at[c] += times * (s->compute_s.at[c] - computed->at[c]);
    }
}

/* Steps first .. end - 1. then[kept]: workspace, NULL when nothing can repeat. */
static void run_steps(state *s, size_t first, size_t end, moment *then) {
    const taciti_recursion *r = s->r;
    const size_t period = r->period * (size_t)r->every * ((size_t)r->delay + 1);
    moment computed = s->compute_s, moved;
    if (then != NULL) memcpy(then, s->begin, s->kept * sizeof *then);
    for (size_t t = first; t < end;) {
        step(s, t++);
        if (then == NULL || (t - first) % period != 0) continue;
        const size_t times = (end - t) / period;
        if (times > 0 && repeats(s, then, &moved)) {
            move_on(s, &moved, &computed, (double)times);
            t += times * period;
        }
        memcpy(then, s->begin, s->kept * sizeof *then);
        computed = s->compute_s;
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static moment mean_begin(const state *s) {
    moment mean = {{0}};
    for (int c = 0; c < TACITI_SCENARIOS; c++) {
        for (int i = 0; i < s->r->ranks; i++) mean.at[c] += s->begin[i].at[c];
        mean.at[c] /= s->r->ranks;
    }
    return mean;
}

static size_t whole_periods(size_t steps, size_t period) { return (steps + period - 1) / period * period; }

static void simulate(state *s, moment *then, taciti_recursion_times *out) {
    const taciti_recursion *r = s->r;
    const size_t period = r->period * (size_t)r->every, steps = whole_periods(r->steps, period);
    const size_t warm_up = whole_periods(steps / WARM_UP_SHARE + (size_t)r->delay + 1, period);
    run_steps(s, 0, warm_up, then);
    s->compute_s = (moment){{0}};
    const moment begin = mean_begin(s);
    run_steps(s, warm_up, warm_up + steps, then);
    const moment end = mean_begin(s);
    for (size_t c = 0; c < s->scenarios; c++)
        out[c] = (taciti_recursion_times){.step_s = (end.at[c] - begin.at[c]) / (double)steps,
                                          .compute_s = s->compute_s.at[c] / (double)steps / r->ranks};
}

tacit_status taciti_recursion_run(const taciti_recursion *recursion, taciti_recursion_times *out) {
    const taciti_recursion *r = recursion;
    const size_t ranks = (size_t)r->ranks;
    const bool remembers = r->order == TACITI_ORDER_AWC && r->overlap;
    state s = {.r = r, .scenarios = r->scenarios > 0 ? r->scenarios : 1};
    s.kept = 2 * ranks + (remembers ? ((size_t)r->delay + 1) * r->buckets * ranks : 0);
    const size_t moments = s.kept + (remembers ? 0 : ranks) + 3 * ranks + (is_random(r) ? 0 : s.kept);
    s.begin = taciti_calloc(moments, sizeof *s.begin);
    if (s.begin == NULL) return TACIT_E_MEMORY;
    s.free_s = s.begin + ranks;
    s.arrived = s.free_s + ranks;
    s.end = s.begin + s.kept + (remembers ? 0 : ranks);
    s.was_free = s.end + ranks;
    s.handed = s.was_free + ranks;
    s.behind_s = r->update_behind_s == NULL ? r->update_s : r->update_behind_s;
    for (size_t k = 0; k < r->buckets; k++) s.update_s += s.behind_s[k];
    simulate(&s, is_random(r) ? NULL : s.handed + ranks, out);
    taciti_free(s.begin);
    return TACIT_OK;
}

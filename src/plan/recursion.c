/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recursion.h"

#include <string.h>

#include "base/memory.h"
#include "model/emulated.h"

enum { WARM_UP_SHARE = 8 };

/* Tables are [buckets][ranks] or [ranks]; all in one block. */
typedef struct state {
    const taciti_recursion *r;
    double *begin;    /* s_i */
    double *end;      /* of backward */
    double *free_s;   /* when a rank's channel is free */
    double *was_free; /* before this bucket */
    double *handed;   /* h_ik */
    double *arrived;  /* [delay + 1][buckets][ranks] E_ik of the newest exchanges, as a ring */
    double compute_s;
} state;

static double latest(double a, double b) { return a > b ? a : b; }

/* ---- one exchange ------------------------------------------------------------------------------------------------ */

static double meet(const state *s, const taciti_meeting *meeting, size_t bucket) {
    const double *handed = s->handed + bucket * (size_t)s->r->ranks;
    double at = 0;
    for (size_t m = 0; m < meeting->count; m++) {
        const int rank = meeting->members[m];
        at = latest(at, latest(handed[rank], s->was_free[rank]));
    }
    return at + meeting->transfer_s[bucket];
}

static void arrive(state *s, double *arrived, int rank, double at) {
    arrived[rank] = at;
    s->free_s[rank] = at;
}

/* One bucket of a round. Who meets nobody has it when it hands it over. */
static void exchange_bucket(state *s, size_t round, size_t k, double *arrived) {
    const taciti_meetings *meetings = &s->r->rounds[round];
    const size_t ranks = (size_t)s->r->ranks;
    arrived += k * ranks;
    memcpy(arrived, s->handed + k * ranks, ranks * sizeof *arrived);
    memcpy(s->was_free, s->free_s, ranks * sizeof *s->was_free);
    for (size_t g = 0; g < meetings->count; g++) {
        const taciti_meeting *meeting = &meetings->list[g];
        const double at = meet(s, meeting, k);
        if (meeting->taker >= 0) arrive(s, arrived, meeting->taker, at);
        for (size_t m = 0; m < meeting->count && meeting->taker < 0; m++) arrive(s, arrived, meeting->members[m], at);
    }
}

static void exchange(state *s, size_t round, double *arrived) {
    for (size_t k = 0; k < s->r->buckets; k++) exchange_bucket(s, round, k, arrived);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static double *slot(const state *s, size_t number) {
    const taciti_recursion *r = s->r;
    return s->arrived + number % ((size_t)r->delay + 1) * r->buckets * (size_t)r->ranks;
}

static double factor(const taciti_recursion *r, int rank, size_t step) {
    const double slow = r->slow == NULL ? 1 : r->slow[rank];
    return slow * taciti_compute_deviation(r->seed, r->cv, rank, (int64_t)step);
}

/* The end of a rank's step: `busy` of it was computing. */
static void finish(state *s, int rank, double at, double busy_s) {
    s->compute_s += busy_s;
    s->begin[rank] = at;
}

static double update_s(const taciti_recursion *r) {
    double sum = 0;
    for (size_t k = 0; k < r->buckets; k++) sum += r->update_s[k];
    return sum;
}

/* Of this step, to the mean. */
static double pace(const state *s, int rank) {
    return s->r->compute_s > 0 ? (s->end[rank] - s->begin[rank]) / s->r->compute_s : 1;
}

static void step_dense(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks;
    for (int i = 0; i < r->ranks; i++)
        for (size_t k = 0; k < r->buckets; k++)
            s->handed[k * ranks + (size_t)i] =
                r->overlap ? s->end[i] - (r->compute_s - r->ready_s[k]) * pace(s, i) : s->end[i];
    double *arrived = slot(s, number);
    exchange(s, number % r->period, arrived);
    const double update = update_s(r);
    for (int i = 0; i < r->ranks; i++) {
        const double busy = s->end[i] - s->begin[i] + update;
        finish(s, i, latest(s->end[i], arrived[(r->buckets - 1) * ranks + (size_t)i]) + update, busy);
    }
}

/* A mix is begun as soon as the one before has been used, and waited for `every` steps later. */
static void step_awc(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks, next = number + 1;
    const double *arrived = slot(s, next); /* the ring's oldest: `delay` exchanges before the newest */
    const double update = update_s(r);
    for (int i = 0; i < r->ranks; i++) {
        double at = s->end[i];
        for (size_t k = 0; k < r->buckets; k++) {
            at = latest(at, arrived[k * ranks + (size_t)i]) + r->update_s[k];
            s->handed[k * ranks + (size_t)i] = at;
        }
        finish(s, i, at, s->end[i] - s->begin[i] + update);
    }
    exchange(s, next % r->period, slot(s, next));
}

/* Bucket by bucket: hand over, wait, update. A transfer is waited for where it begins, so a delay gains nothing. */
static void step_awc_blocking(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks;
    const double update = update_s(r);
    double *arrived = slot(s, number);
    memcpy(s->handed, s->end, ranks * sizeof *s->handed);
    for (size_t k = 0; k < r->buckets; k++) {
        exchange_bucket(s, number % r->period, k, arrived);
        for (size_t i = k * ranks; i < (k + 1) * ranks && k + 1 < r->buckets; i++)
            s->handed[i + ranks] = arrived[i] + r->update_s[k];
    }
    for (int i = 0; i < r->ranks; i++)
        finish(s, i, arrived[(r->buckets - 1) * ranks + (size_t)i] + r->update_s[r->buckets - 1],
               s->end[i] - s->begin[i] + update);
}

static void step_atc(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks;
    const double update = update_s(r);
    double *arrived = slot(s, number);
    for (int i = 0; i < r->ranks; i++) {
        double at = s->end[i];
        for (size_t k = 0; k < r->buckets; k++) {
            at += r->update_s[k];
            s->handed[k * ranks + (size_t)i] = r->overlap ? at : s->end[i] + update;
        }
    }
    exchange(s, number % r->period, arrived);
    for (int i = 0; i < r->ranks; i++)
        finish(s, i, latest(s->end[i] + update, arrived[(r->buckets - 1) * ranks + (size_t)i]),
               s->end[i] - s->begin[i] + update);
}

/* Nobody waits for anybody. */
static void step_alone(state *s) {
    const double update = update_s(s->r);
    for (int i = 0; i < s->r->ranks; i++) finish(s, i, s->end[i] + update, s->end[i] - s->begin[i] + update);
}

static void step(state *s, size_t t) {
    const taciti_recursion *r = s->r;
    const size_t every = (size_t)r->every, number = t / every;
    for (int i = 0; i < r->ranks; i++) s->end[i] = s->begin[i] + r->compute_s * factor(r, i, t);
    if (t % every != every - 1) {
        step_alone(s);
        return;
    }
    switch (r->order) {
    case TACITI_ORDER_DENSE: step_dense(s, number); break;
    case TACITI_ORDER_AWC: (r->overlap ? step_awc : step_awc_blocking)(s, number); break;
    case TACITI_ORDER_ATC: step_atc(s, number); break;
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static double mean_begin(const state *s) {
    double sum = 0;
    for (int i = 0; i < s->r->ranks; i++) sum += s->begin[i];
    return sum / s->r->ranks;
}

static size_t whole_periods(size_t steps, size_t period) { return (steps + period - 1) / period * period; }

tacit_status taciti_recursion_run(const taciti_recursion *recursion, taciti_recursion_times *out) {
    const taciti_recursion *r = recursion;
    const size_t ranks = (size_t)r->ranks, tables = 1 + (size_t)r->delay + 1;
    double *block = taciti_calloc(ranks * (4 + tables * r->buckets), sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    state s = {
        .r = r, .begin = block, .end = block + ranks, .free_s = block + 2 * ranks, .was_free = block + 3 * ranks};
    s.handed = block + 4 * ranks;
    s.arrived = s.handed + r->buckets * ranks;
    const size_t period = r->period * (size_t)r->every, steps = whole_periods(r->steps, period);
    const size_t warm_up = whole_periods(steps / WARM_UP_SHARE + (size_t)r->delay + 1, period);
    for (size_t t = 0; t < warm_up; t++) step(&s, t);
    s.compute_s = 0;
    const double begin_s = mean_begin(&s), count = (double)steps;
    for (size_t t = warm_up; t < warm_up + steps; t++) step(&s, t);
    *out = (taciti_recursion_times){.step_s = (mean_begin(&s) - begin_s) / count,
                                    .compute_s = s.compute_s / count / r->ranks};
    taciti_free(block);
    return TACIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recursion.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/doubles2.h"

enum { WARM_UP_SHARE = 8 };

/* Steps repeat when all ranks have moved on alike within this share. */
static const double REPEATS = 1e-9;

/* Seconds in all scenarios; two at once where thousands of ranks hand buckets over. */
typedef union moment {
    double at[TACITI_SCENARIOS];
    doubles2 in[TACITI_SCENARIOS / 2];
} moment;
_Static_assert(TACITI_SCENARIOS % 2 == 0, "scenarios go in twos");

/* Tables are [ranks] or as told; all in one block. What the next step depends on comes first. */
typedef struct state {
    const taciti_recursion *r;
    moment *begin;    /* s_i */
    moment *free_s;   /* when a rank's channel is free */
    moment *arrived;  /* E_ik; awc with overlap: [delay + 1][ranks][buckets], of the newest exchanges, as a ring */
    size_t kept;      /* moments of these three */
    moment *end;      /* of backward */
    moment *handed;   /* h_ik of the bucket at hand */
    moment *busy;     /* of a round of edges: until when a rank's channel is busy, the bucket at hand not counted; */
    moment *ready;    /* the same or h_ik, whichever is later; */
    moment *met;      /* and E_ik of the bucket at hand */
    moment *slot;     /* awc with overlap: the exchange of `arrived` at hand */
    double *factor;   /* of compute times in this step */
    double *left;     /* [buckets] share of computing that is left when the bucket is ready */
    size_t *seen;     /* the last exchange in which the rank met somebody, + 1 */
    moment compute_s; /* sum over ranks and steps */
    size_t scenarios;
    const double *behind_s; /* of updates */
    double update_s;        /* all */
    size_t exchanges;       /* simulated */
} state;

enum { TWOS = TACITI_SCENARIOS / 2 };

static inline void wait_for(moment *at, const moment *other) {
    for (int c = 0; c < TWOS; c++) at->in[c] = max2(at->in[c], other->in[c]);
}

static inline moment later(const moment *at, double seconds) {
    moment m;
    for (int c = 0; c < TWOS; c++) m.in[c] = add2(at->in[c], splat2(seconds));
    return m;
}

/* ---- one bucket of one rank -------------------------------------------------------------------------------------- */

static inline bool is_remembered(const taciti_recursion *r) { return r->order == TACITI_ORDER_AWC && r->overlap; }

/* What is left of backward when the bucket is ready takes as much longer as the whole step's computing does. */
static inline moment gradient_of(const state *s, size_t k, size_t i) {
    const moment *end = &s->end[i], *begin = &s->begin[i];
    moment m;
    for (int c = 0; c < TWOS; c++) m.in[c] = sub2(end->in[c], mul2(splat2(s->left[k]), sub2(end->in[c], begin->in[c])));
    return m;
}

/* The mix that has arrived is used, which begins the next one. */
static inline moment mix_of(const state *s, size_t k, size_t i) {
    const moment mixed = later(&s->slot[i * s->r->buckets + k], s->r->update_s[k]);
    moment m = later(&s->handed[i], s->behind_s[k]);
    wait_for(&m, &mixed);
    return m;
}

static inline void hand_over(const state *s, size_t k, size_t i) {
    if (s->r->order == TACITI_ORDER_DENSE)
        s->handed[i] = gradient_of(s, k, i);
    else if (s->slot != NULL)
        s->handed[i] = mix_of(s, k, i);
    else if (s->r->order == TACITI_ORDER_ATC && s->r->overlap)
        s->handed[i] = later(&s->handed[i], s->behind_s[k]);
}

/* A bucket has arrived. Each transfer is waited for where it begins in awc without overlap. */
static inline void settle(const state *s, size_t k, size_t i, const moment *at) {
    const bool blocks = s->slot == NULL && s->r->order == TACITI_ORDER_AWC;
    if (s->slot != NULL)
        s->slot[i * s->r->buckets + k] = *at;
    else if (blocks)
        s->handed[i] = later(at, s->r->update_s[k]);
    else
        s->arrived[i] = *at;
}

/* ---- one exchange ------------------------------------------------------------------------------------------------ */

static inline void add_seconds(moment *at, const double *seconds, size_t bucket, size_t scenarios) {
    if (scenarios == TACITI_SCENARIOS)
        for (size_t c = 0; c < TWOS; c++)
            at->in[c] = add2(at->in[c], load2(seconds + bucket * TACITI_SCENARIOS + 2 * c));
    else
        for (size_t s = 0; s < scenarios; s++) at->at[s] += seconds[bucket * scenarios + s];
}

static const double *behind_of(const taciti_meeting *meeting) {
    return meeting->behind_s == NULL ? meeting->transfer_s : meeting->behind_s;
}

/* All buckets of a group, whose channels are free at the same time after the first of them. */
static void exchange_group(const state *s, const taciti_meeting *meeting) {
    moment idle = {{0}};
    for (size_t m = 0; m < meeting->count; m++) wait_for(&idle, &s->free_s[meeting->members[m]]);
    for (size_t k = 0; k < s->r->buckets; k++) {
        moment at = {{0}};
        for (size_t m = 0; m < meeting->count; m++) {
            hand_over(s, k, (size_t)meeting->members[m]);
            wait_for(&at, &s->handed[meeting->members[m]]);
        }
        add_seconds(&at, meeting->transfer_s, k, s->scenarios);
        add_seconds(&idle, behind_of(meeting), k, s->scenarios);
        wait_for(&at, &idle);
        for (size_t m = 0; m < meeting->count; m++) settle(s, k, (size_t)meeting->members[m], &at);
        idle = at;
    }
    for (size_t m = 0; m < meeting->count; m++) s->free_s[meeting->members[m]] = idle;
}

/* Who meets nobody has a bucket when it hands it over. */
static void exchange_alone(const state *s, size_t i) {
    for (size_t k = 0; k < s->r->buckets; k++) {
        hand_over(s, k, i);
        settle(s, k, i, &s->handed[i]);
    }
}

static void exchange_groups(const state *s, const taciti_meetings *meetings) {
    for (size_t g = 0; g < meetings->count; g++) {
        const taciti_meeting *meeting = &meetings->list[g];
        exchange_group(s, meeting);
        for (size_t m = 0; m < meeting->count; m++) s->seen[meeting->members[m]] = s->exchanges;
    }
    for (int i = 0; i < s->r->ranks; i++)
        if (s->seen[i] != s->exchanges) exchange_alone(s, (size_t)i);
}

static bool is_one_bucket(const state *s, const taciti_meeting *meeting, size_t k) {
    const double *own = meeting->transfer_s + k * s->scenarios, *behind = behind_of(meeting) + k * s->scenarios;
    return memcmp(own, behind, s->scenarios * sizeof *own) == 0;
}

/* When the bucket of a taker and its neighbours has arrived. */
static moment meet(const state *s, const taciti_meeting *meeting, size_t k) {
    moment at = {{0}}, idle = {{0}};
    if (is_one_bucket(s, meeting, k)) {
        for (size_t m = 0; m < meeting->count; m++) wait_for(&at, &s->ready[meeting->members[m]]);
        add_seconds(&at, meeting->transfer_s, k, s->scenarios);
        return at;
    }
    for (size_t m = 0; m < meeting->count; m++) {
        wait_for(&at, &s->handed[meeting->members[m]]);
        wait_for(&idle, &s->busy[meeting->members[m]]);
    }
    add_seconds(&at, meeting->transfer_s, k, s->scenarios);
    add_seconds(&idle, behind_of(meeting), k, s->scenarios);
    wait_for(&at, &idle);
    return at;
}

/* A taker's channel may be asked for by others after it. */
static void exchange_edges(const state *s, const taciti_meetings *meetings) {
    const size_t ranks = (size_t)s->r->ranks;
    for (size_t k = 0; k < s->r->buckets; k++) {
        memcpy(s->busy, s->free_s, ranks * sizeof *s->busy);
        for (size_t i = 0; i < ranks; i++) {
            hand_over(s, k, i);
            s->met[i] = s->ready[i] = s->handed[i];
            wait_for(&s->ready[i], &s->busy[i]);
        }
        for (size_t g = 0; g < meetings->count; g++) {
            const int taker = meetings->list[g].taker;
            s->met[taker] = s->free_s[taker] = meet(s, &meetings->list[g], k);
        }
        for (size_t i = 0; i < ranks; i++) settle(s, k, i, &s->met[i]);
    }
}

/* All buckets of a round. */
static void exchange(state *s, size_t number) {
    const taciti_meetings *meetings = &s->r->rounds[number % s->r->period];
    s->exchanges++;
    if (meetings->count > 0 && meetings->list[0].taker >= 0)
        exchange_edges(s, meetings);
    else
        exchange_groups(s, meetings);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static void compute(const state *s, size_t t) {
    const taciti_recursion *r = s->r;
    if (r->cv > 0) taciti_draws_of(r->draws, r->seed, r->cv, r->ranks, t, s->factor);
    for (int i = 0; i < r->ranks; i++) {
        const double slow = r->slow == NULL ? 1 : r->slow[i];
        const double seconds = r->compute_s * (r->cv > 0 ? slow * s->factor[i] : slow);
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

static void step_dense(state *s, size_t number) {
    exchange(s, number);
    for (int i = 0; i < s->r->ranks; i++) {
        wait_for(&s->arrived[i], &s->end[i]);
        s->handed[i] = later(&s->arrived[i], s->update_s);
    }
    finish(s, s->handed);
}

/* A mix is begun as soon as the one before has been used, and waited for `every` steps later. Without overlap each is
 * waited for where it begins, so a delay gains nothing. */
static void step_awc(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks, next = number + 1;
    memcpy(s->handed, s->end, ranks * sizeof *s->handed);
    if (is_remembered(r)) s->slot = s->arrived + next % ((size_t)r->delay + 1) * r->buckets * ranks; /* the oldest */
    exchange(s, is_remembered(r) ? next : number);
    finish(s, s->handed);
}

static void step_atc(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    for (int i = 0; i < r->ranks; i++) s->handed[i] = r->overlap ? s->end[i] : later(&s->end[i], s->update_s);
    exchange(s, number);
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
    case TACITI_ORDER_AWC: step_awc(s, number); break;
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

/* One block of all tables. */
static tacit_status allocate(state *s) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks, arrivals = is_remembered(r) ? ((size_t)r->delay + 1) * r->buckets : 1;
    const size_t moments = (2 + arrivals + 5) * ranks + (is_random(r) ? 0 : s->kept);
    const size_t others = ranks * (sizeof *s->factor + sizeof *s->seen) + r->buckets * sizeof *s->left;
    s->begin = taciti_calloc(1, moments * sizeof *s->begin + others);
    if (s->begin == NULL) return TACIT_E_MEMORY;
    s->free_s = s->begin + ranks;
    s->arrived = s->free_s + ranks;
    s->end = s->arrived + arrivals * ranks;
    s->handed = s->end + ranks;
    s->busy = s->handed + ranks;
    s->ready = s->busy + ranks;
    s->met = s->ready + ranks;
    s->factor = (double *)(s->begin + moments);
    s->left = s->factor + ranks;
    s->seen = (size_t *)(void *)(s->left + r->buckets);
    return TACIT_OK;
}

tacit_status taciti_recursion_run(const taciti_recursion *recursion, taciti_recursion_times *out) {
    const taciti_recursion *r = recursion;
    const size_t ranks = (size_t)r->ranks;
    state s = {.r = r, .scenarios = r->scenarios > 0 ? r->scenarios : 1};
    s.kept = 2 * ranks + (is_remembered(r) ? ((size_t)r->delay + 1) * r->buckets * ranks : 0);
    TACITI_TRY(allocate(&s));
    s.behind_s = r->update_behind_s == NULL ? r->update_s : r->update_behind_s;
    for (size_t k = 0; k < r->buckets; k++) {
        s.update_s += s.behind_s[k];
        s.left[k] = r->overlap && r->compute_s > 0 ? (r->compute_s - r->ready_s[k]) / r->compute_s : 0;
    }
    simulate(&s, is_random(r) ? NULL : s.met + ranks, out);
    if (r->draws != NULL) r->draws->events += s.exchanges * ranks * r->buckets;
    taciti_free(s.begin);
    return TACIT_OK;
}

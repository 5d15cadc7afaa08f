/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recursion.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"

enum { WARM_UP_SHARE = 8 };

/* Steps repeat when all ranks have moved on alike within this share. */
static const double REPEATS = 1e-9;

/* Seconds in all scenarios. Loops over them have a constant length, which compilers turn into vector instructions. */
typedef struct moment {
    double at[TACITI_SCENARIOS];
} moment;

/* Tables are [ranks] or as told; all in one block. The tables on which the next step depends come first. */
typedef struct state {
    const taciti_recursion *r;
    moment *begin;   /* s_i */
    moment *free_s;  /* when a rank's channel is free */
    moment *arrived; /* E_ik; awc with overlap: [delay + 1] times [ranks][buckets] or [buckets][ranks], of the newest
                        exchanges, as a ring */
    size_t kept;     /* moments of these three */
    moment *end;     /* of backward */
    moment *handed;  /* h_ik of the bucket at hand */
    moment *busy;    /* bucket by bucket: the other table of when channels are free */
    moment *ready;   /* when a channel is free, or h_ik, whichever is later */
    moment *row;     /* [buckets] of a group: when its last member has handed each over, then when it has arrived */
    moment *slot;    /* awc with overlap: the exchange of `arrived` at hand */
    size_t of_rank, of_bucket; /* strides of a slot */
    double *factor;            /* of compute times in this step */
    double *left;              /* [buckets] share of computing that is left when the bucket is ready */
    size_t *seen;              /* the last exchange in which the rank met somebody, + 1 */
    moment random, fixed;      /* C_i = random x its seconds + fixed: 1 and 0, or 0 and the seconds of all */
    moment compute_s;          /* sum over ranks and steps */
    double update_s;           /* all */
    size_t exchanges;          /* simulated */
} state;

static inline void wait_for(moment *at, const moment *other) {
    const moment from = *other;
    moment to = *at;
    for (int c = 0; c < TACITI_SCENARIOS; c++) to.at[c] = taciti_max_real(to.at[c], from.at[c]);
    *at = to;
}

static inline moment later(const moment *at, double seconds) {
    moment m;
    for (int c = 0; c < TACITI_SCENARIOS; c++) m.at[c] = at->at[c] + seconds;
    return m;
}

static inline void add_seconds(moment *at, const double *seconds, size_t bucket) {
    moment to = *at, more;
    memcpy(&more, seconds + bucket * TACITI_SCENARIOS, sizeof more);
    for (int c = 0; c < TACITI_SCENARIOS; c++) to.at[c] += more.at[c];
    *at = to;
}

static inline bool is_remembered(const taciti_recursion *r) { return r->order == TACITI_ORDER_AWC && r->overlap; }

/* Each transfer is waited for where it begins. */
static inline bool blocks(const taciti_recursion *r) { return r->order == TACITI_ORDER_AWC && !r->overlap; }

/* ---- one exchange of groups ---------------------------------------------------------------------------------------
 */

/* The rest of backward after the bucket is ready takes as much longer as the whole step's computing does. */
static void hand_over_gradients(const state *s, size_t i) {
    const size_t buckets = s->r->buckets;
    const double *left = s->left;
    const moment end = s->end[i], *begin = &s->begin[i];
    moment took, *row = s->row;
    for (int c = 0; c < TACITI_SCENARIOS; c++) took.at[c] = end.at[c] - begin->at[c];
    for (size_t k = 0; k < buckets; k++)
        for (int c = 0; c < TACITI_SCENARIOS; c++)
            row[k].at[c] = taciti_max_real(row[k].at[c], end.at[c] - left[k] * took.at[c]);
}

/* The mix that has arrived is used, which begins the next one. */
static void hand_over_mixes(const state *s, size_t i) {
    const size_t buckets = s->r->buckets, of_bucket = s->of_bucket;
    const double *update_s = s->r->update_s, *behind_s = s->r->update_behind_s;
    const moment *slot = s->slot + i * s->of_rank;
    moment at = s->handed[i], *row = s->row;
    for (size_t k = 0; k < buckets; k++) {
        const moment mixed = later(&slot[k * of_bucket], update_s[k]);
        at = later(&at, behind_s[k]);
        wait_for(&at, &mixed);
        wait_for(&row[k], &at);
    }
    s->handed[i] = at;
}

static inline void hand_over(const state *s, size_t i) {
    if (s->slot != NULL)
        hand_over_mixes(s, i);
    else
        hand_over_gradients(s, i);
}

/* Buckets have arrived at a rank at the moments of `row`. */
static inline void settle(const state *s, size_t i) {
    const size_t buckets = s->r->buckets;
    if (s->slot == NULL) s->arrived[i] = s->row[buckets - 1];
    for (size_t k = 0; k < buckets && s->slot != NULL; k++) s->slot[i * s->of_rank + k * s->of_bucket] = s->row[k];
}

/* All buckets of a group, whose channels are free at the same time after the first of them. Members hand over at
 * moments of their own: the last of them counts. */
static void exchange_rows(const state *s, const taciti_meeting *meeting) {
    const size_t buckets = s->r->buckets;
    moment idle = {{0}}, *row = s->row;
    memset(row, 0, buckets * sizeof *row);
    for (size_t m = 0; m < meeting->count; m++) {
        const size_t i = (size_t)meeting->members[m];
        wait_for(&idle, &s->free_s[i]);
        hand_over(s, i);
    }
    for (size_t k = 0; k < buckets; k++) {
        add_seconds(&row[k], meeting->transfer_s, k);
        add_seconds(&idle, meeting->behind_s, k);
        wait_for(&idle, &row[k]);
        row[k] = idle;
    }
    for (size_t m = 0; m < meeting->count; m++) {
        s->free_s[meeting->members[m]] = idle;
        settle(s, (size_t)meeting->members[m]);
    }
}

/* The same where updates are all that lies between buckets: who hands the first one over last is last with each.
 * meeting NULL: one rank, which meets nobody and has a bucket when it hands it over. */
static void exchange_updates(const state *s, const int *members, size_t count, const taciti_meeting *meeting) {
    const taciti_recursion *r = s->r;
    const bool updates = r->order == TACITI_ORDER_ATC && r->overlap;
    moment last = {{0}}, idle = {{0}}, at = {{0}};
    for (size_t m = 0; m < count; m++) {
        wait_for(&last, &s->handed[members[m]]);
        wait_for(&idle, &s->free_s[members[m]]);
    }
    for (size_t k = 0; k < r->buckets; k++) {
        if (updates) last = later(&last, s->r->update_behind_s[k]);
        at = last;
        if (meeting != NULL) {
            add_seconds(&at, meeting->transfer_s, k);
            add_seconds(&idle, meeting->behind_s, k);
            wait_for(&at, &idle);
            idle = at;
        }
        if (blocks(r)) last = later(&at, r->update_s[k]);
    }
    for (size_t m = 0; m < count; m++) {
        if (meeting != NULL) s->free_s[members[m]] = idle;
        if (blocks(r))
            s->handed[members[m]] = last;
        else
            s->arrived[members[m]] = at;
    }
}

static void exchange_group(const state *s, const taciti_meeting *meeting) {
    const bool rows = s->slot != NULL || s->r->order == TACITI_ORDER_DENSE;
    if (!rows)
        exchange_updates(s, meeting->members, meeting->count, meeting);
    else
        exchange_rows(s, meeting);
}

static void exchange_groups(const state *s, const taciti_meetings *meetings) {
    for (size_t g = 0; g < meetings->count; g++) {
        const taciti_meeting *meeting = &meetings->list[g];
        for (size_t m = 0; m < meeting->count; m++) s->seen[meeting->members[m]] = s->exchanges;
        exchange_group(s, meeting);
    }
    for (int i = 0; i < s->r->ranks; i++) {
        if (s->seen[i] == s->exchanges) continue;
        if (s->slot == NULL && s->r->order != TACITI_ORDER_DENSE) {
            exchange_updates(s, &i, 1, NULL);
            continue;
        }
        memset(s->row, 0, s->r->buckets * sizeof *s->row);
        hand_over(s, (size_t)i);
        settle(s, (size_t)i);
    }
}

/* ---- one exchange, bucket by bucket -------------------------------------------------------------------------------
 */

/* Finds when ranks hand one bucket over, and then the later of that and of the moment when their channels are free. */
static void hand_over_bucket(const state *s, size_t k, const moment *busy, moment *met, size_t stride) {
    const double update_s = s->r->update_s[k], behind_s = s->r->update_behind_s[k];
    const bool updates = s->slot != NULL || (s->r->order == TACITI_ORDER_ATC && s->r->overlap), mixes = s->slot != NULL;
    for (size_t i = 0; i < (size_t)s->r->ranks; i++) {
        moment at = updates ? later(&s->handed[i], behind_s) : s->handed[i];
        if (mixes) {
            const moment mixed = later(&met[i * stride], update_s);
            wait_for(&at, &mixed);
        }
        met[i * stride] = s->handed[i] = at;
        wait_for(&at, &busy[i]);
        s->ready[i] = at;
    }
}

/* When the bucket of a group, or of a taker and its neighbours, has arrived. */
static inline moment meet(const state *s, const taciti_meeting *meeting, size_t k, const moment *busy,
                          bool one_bucket) {
    moment at = {{0}}, idle = {{0}};
    if (one_bucket) {
        for (size_t m = 0; m < meeting->count; m++) wait_for(&at, &s->ready[meeting->members[m]]);
        add_seconds(&at, meeting->transfer_s, k);
        return at;
    }
    for (size_t m = 0; m < meeting->count; m++) {
        wait_for(&at, &s->handed[meeting->members[m]]);
        wait_for(&idle, &busy[meeting->members[m]]);
    }
    add_seconds(&at, meeting->transfer_s, k);
    add_seconds(&idle, meeting->behind_s, k);
    wait_for(&at, &idle);
    return at;
}

static const taciti_meetings *meetings_of(const state *s, size_t number, size_t bucket) {
    const taciti_recursion *r = s->r;
    const size_t round = number % r->period;
    return &r->rounds[r->other != NULL && r->other[bucket] ? round ^ 1 : round];
}

/* A taker's channel may be asked for by others after it: what it becomes stands apart, and both tables change places
 * with every bucket. Ranks that take nothing have the same in both. */
static void exchange_bucket_by_bucket(const state *s, size_t number) {
    const size_t ranks = (size_t)s->r->ranks, stride = s->slot == NULL ? 1 : s->of_rank;
    moment *busy = s->free_s, *next = s->busy;
    for (size_t k = 0; k < s->r->buckets; k++) {
        moment *met = s->slot != NULL ? s->slot + k * s->of_bucket : blocks(s->r) ? s->row : s->arrived;
        moment *newest = next;
        const taciti_meetings *meetings = meetings_of(s, number, k);
        const double *kind = NULL;
        bool one_bucket = true;
        if (k == 0 || s->r->other != NULL) memcpy(next, busy, ranks * sizeof *next); /* else takers stay the same */
        hand_over_bucket(s, k, busy, met, stride);
        for (size_t g = 0; g < meetings->count; g++) {
            const taciti_meeting *meeting = &meetings->list[g];
            const int *takers = meeting->taker < 0 ? meeting->members : &meeting->taker;
            const size_t count = meeting->taker < 0 ? meeting->count : 1;
            if (meeting->transfer_s != kind)
                one_bucket =
                    memcmp(meeting->transfer_s + k * TACITI_SCENARIOS, meeting->behind_s + k * TACITI_SCENARIOS,
                           TACITI_SCENARIOS * sizeof *meeting->transfer_s) == 0;
            kind = meeting->transfer_s;
            const moment at = meet(s, meeting, k, busy, one_bucket);
            for (size_t m = 0; m < count; m++) met[(size_t)takers[m] * stride] = next[takers[m]] = at;
        }
        for (size_t i = 0; i < ranks && blocks(s->r); i++) s->handed[i] = later(&met[i], s->r->update_s[k]);
        next = busy;
        busy = newest;
    }
    if (busy != s->free_s) memcpy(s->free_s, busy, ranks * sizeof *busy);
}

static bool is_of_edges(const taciti_meetings *meetings) { return meetings->count > 0 && meetings->list[0].taker >= 0; }

/* All buckets of a round. */
static void exchange_buckets(state *s, size_t number) {
    const taciti_meetings *meetings = meetings_of(s, number, 0);
    s->exchanges++;
    if (s->r->other != NULL || is_of_edges(meetings))
        exchange_bucket_by_bucket(s, number);
    else
        exchange_groups(s, meetings);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static void compute_ends(const state *s, size_t t) {
    const taciti_recursion *r = s->r;
    if (r->cv > 0) taciti_draws_of(r->draws, r->seed, r->cv, r->ranks, t, s->factor);
    for (int i = 0; i < r->ranks; i++) {
        const double slow = r->slow == NULL ? 1 : r->slow[i];
        const double seconds = r->compute_s * (r->cv > 0 ? slow * s->factor[i] : slow);
        for (int c = 0; c < TACITI_SCENARIOS; c++)
            s->end[i].at[c] = s->begin[i].at[c] + (s->random.at[c] * seconds + s->fixed.at[c]);
    }
}

/* All ranks' steps end at these moments. */
static void finish_step(state *s, const moment *at) {
    moment sum = s->compute_s;
    for (int i = 0; i < s->r->ranks; i++)
        for (int c = 0; c < TACITI_SCENARIOS; c++) {
            sum.at[c] += s->end[i].at[c] - s->begin[i].at[c] + s->update_s;
            s->begin[i].at[c] = at[i].at[c];
        }
    s->compute_s = sum;
}

static void step_dense(state *s, size_t number) {
    exchange_buckets(s, number);
    for (int i = 0; i < s->r->ranks; i++) {
        wait_for(&s->arrived[i], &s->end[i]);
        s->handed[i] = later(&s->arrived[i], s->update_s);
    }
    finish_step(s, s->handed);
}

/* A mix is begun as soon as the one before has been used, and waited for `every` steps later. Without overlap each is
 * waited for where it begins, so a delay gains nothing. */
static void step_awc(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks, next = number + 1;
    memcpy(s->handed, s->end, ranks * sizeof *s->handed);
    if (is_remembered(r)) s->slot = s->arrived + next % ((size_t)r->delay + 1) * r->buckets * ranks; /* the oldest */
    exchange_buckets(s, is_remembered(r) ? next : number);
    finish_step(s, s->handed);
}

static void step_atc(state *s, size_t number) {
    const taciti_recursion *r = s->r;
    for (int i = 0; i < r->ranks; i++) s->handed[i] = r->overlap ? s->end[i] : later(&s->end[i], s->update_s);
    exchange_buckets(s, number);
    for (int i = 0; i < r->ranks; i++) {
        const moment updated = later(&s->end[i], s->update_s);
        wait_for(&s->arrived[i], &updated);
        if (r->other != NULL)
            wait_for(&s->arrived[i], &s->free_s[i]); /* of a bucket before the last, in other rounds */
    }
    finish_step(s, s->arrived);
}

static void make_step(state *s, size_t t) {
    const taciti_recursion *r = s->r;
    const size_t every = (size_t)r->every, number = t / every;
    compute_ends(s, t);
    if (t % every != every - 1) {
        for (int i = 0; i < r->ranks; i++) s->handed[i] = later(&s->end[i], s->update_s); /* nobody waits */
        finish_step(s, s->handed);
        return;
    }
    switch (r->order) {
    case TACITI_ORDER_DENSE: step_dense(s, number); break;
    case TACITI_ORDER_AWC: step_awc(s, number); break;
    case TACITI_ORDER_ATC: step_atc(s, number); break;
    case TACITI_ORDER_PARTS: break; /* plan/parts.c */
    case TACITI_ORDER_ASYNC: break; /* add_rates() */
    }
}

/* ---- steps that repeat ------------------------------------------------------------------------------------------- */

static bool is_random(const taciti_recursion *r) { return r->cv > 0; }

/* Whether everything has moved on alike since `then`. Sets *moved to how far. */
static bool has_repeated(const state *s, const moment *then, moment *moved) {
    for (int c = 0; c < TACITI_SCENARIOS; c++) moved->at[c] = s->begin[0].at[c] - then[0].at[c];
    for (size_t i = 0; i < s->kept; i++)
        for (int c = 0; c < TACITI_SCENARIOS; c++)
            if (!(fabs(s->begin[i].at[c] - then[i].at[c] - moved->at[c]) <= REPEATS * moved->at[c])) return false;
    return true;
}

/* Moves everything on as if the steps since `then` had been made `times` times more. */
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
        make_step(s, t++);
        if (then == NULL || (t - first) % period != 0) continue;
        const size_t times = (end - t) / period;
        if (times > 0 && has_repeated(s, then, &moved)) {
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

static void simulate_steps(state *s, moment *then, taciti_recursion_times *out) {
    const taciti_recursion *r = s->r;
    const size_t period = r->period * (size_t)r->every, steps = whole_periods(r->steps, period);
    const size_t warm_up = whole_periods(steps / WARM_UP_SHARE + (size_t)r->delay + 1, period);
    run_steps(s, 0, warm_up, then);
    s->compute_s = (moment){{0}};
    const moment begin = mean_begin(s);
    run_steps(s, warm_up, warm_up + steps, then);
    const moment end = mean_begin(s);
    for (size_t c = 0; c < TACITI_SCENARIOS; c++)
        out[c] = (taciti_recursion_times){.step_s = (end.at[c] - begin.at[c]) / (double)steps,
                                          .compute_s = s->compute_s.at[c] / (double)steps / r->ranks};
}

/* Allocates one block of all tables. */
static tacit_status allocate_tables(state *s) {
    const taciti_recursion *r = s->r;
    const size_t ranks = (size_t)r->ranks, arrivals = is_remembered(r) ? ((size_t)r->delay + 1) * r->buckets : 1;
    const size_t moments = (2 + arrivals + 5) * ranks + r->buckets + (is_random(r) ? 0 : s->kept);
    const size_t others = ranks * (sizeof *s->factor + sizeof *s->seen) + r->buckets * sizeof *s->left;
    s->begin = taciti_calloc(1, moments * sizeof *s->begin + others);
    if (s->begin == NULL) return TACIT_E_MEMORY;
    s->free_s = s->begin + ranks;
    s->arrived = s->free_s + ranks;
    s->end = s->arrived + arrivals * ranks;
    s->handed = s->end + ranks;
    s->busy = s->handed + ranks;
    s->ready = s->busy + ranks;
    s->row = s->ready + ranks;
    s->factor = (double *)(s->begin + moments);
    s->left = s->factor + ranks;
    s->seen = (size_t *)(void *)(s->left + r->buckets);
    return TACIT_OK;
}

/* Ranks that wait for nobody: steps of all per second are the sum of what each makes. */
static void add_rates(const state *s, taciti_recursion_times *out) {
    const taciti_recursion *r = s->r;
    for (size_t c = 0; c < TACITI_SCENARIOS; c++) {
        double rate = 0;
        for (int i = 0; i < r->ranks; i++)
            rate += 1 / (r->compute_s * (r->slow == NULL || r->even[c] ? 1 : r->slow[i]) + s->update_s);
        out[c].step_s = out[c].compute_s = r->ranks / rate;
    }
}

tacit_status taciti_recursion_run(const taciti_recursion *recursion, taciti_recursion_times *out) {
    const taciti_recursion *r = recursion;
    const size_t ranks = (size_t)r->ranks;
    state s = {.r = r};
    s.kept = 2 * ranks + (is_remembered(r) ? ((size_t)r->delay + 1) * r->buckets * ranks : 0);
    TACITI_TRY(allocate_tables(&s));
    bool edges = true; /* or groups bucket by bucket */
    for (size_t t = 0; t < r->period; t++) edges = edges && (r->other != NULL || is_of_edges(&r->rounds[t]));
    /* Neighbours in memory are what an exchange takes one after the other: buckets of a rank, or ranks along edges. */
    s.of_rank = edges ? 1 : r->buckets;
    s.of_bucket = edges ? ranks : 1;
    for (int c = 0; c < TACITI_SCENARIOS; c++) {
        s.random.at[c] = !r->even[c];
        s.fixed.at[c] = r->even[c] ? r->compute_s : 0;
    }
    for (size_t k = 0; k < r->buckets; k++) {
        s.update_s += r->update_behind_s[k];
        s.left[k] = r->overlap && r->compute_s > 0 ? (r->compute_s - r->ready_s[k]) / r->compute_s : 0;
    }
    if (r->order == TACITI_ORDER_ASYNC)
        add_rates(&s, out);
    else
        simulate_steps(&s, is_random(r) ? NULL : s.row + ranks + r->buckets, out);
    r->draws->events += s.exchanges * ranks * r->buckets;
    taciti_free(s.begin);
    return TACIT_OK;
}

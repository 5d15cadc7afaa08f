/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of strategy shard, unit by unit: gathered (shard.h) before they are needed, in the order that the
 * first step has recorded, and in stage 3 dropped afterwards.
 *
 * All decisions depend on the calls of need() and release() alone, which come in the same order on every rank, and not
 * on time: so all ranks begin the same sequence of gathers.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/kernel.h"
#include "strategy/shard.h"

static const char PARAMETERS[] = "parameters", COPY[] = "bf16 parameters";

/* ---- pages ------------------------------------------------------------------------------------------------------- */

void taciti_shard_drop(const taciti_pages *pages, const taciti_shard *s, const taciti_shard_unit *unit,
                       taciti_shard_part keep) {
    size_t at = unit->floats.at;
    for (size_t b = unit->first; b < unit->first + unit->count; b++) {
        const taciti_range r = taciti_shard_range(&s->context.layout->buckets[b], keep);
        if (r.n == 0) continue;
        taciti_pages_drop(pages, at * sizeof(float), (r.at - at) * sizeof(float));
        at = r.at + r.n;
    }
    taciti_pages_drop(pages, at * sizeof(float), (unit->floats.at + unit->floats.n - at) * sizeof(float));
}

static tacit_status commit_unit(const taciti_shard *s, const taciti_shard_unit *unit) {
    const taciti_range r = unit->floats;
    if (!taciti_shard_drops_parameters(s)) return TACIT_OK;
    TACITI_TRY(taciti_pages_commit(s->context.parameter_pages, r.at * sizeof(float), r.n * sizeof(float), PARAMETERS));
    if (s->context.copy16_pages == NULL) return TACIT_OK;
    return taciti_pages_commit(s->context.copy16_pages, r.at * sizeof(taciti_bf16), r.n * sizeof(taciti_bf16), COPY);
}

static void drop_unit(taciti_shard *s, taciti_shard_unit *unit) {
    const taciti_range r = unit->floats;
    unit->state = TACITI_UNIT_ABSENT;
    taciti_shard_drop(s->context.parameter_pages, s, unit, unit->shared ? s->place.share : s->place.own);
    if (s->context.copy16_pages != NULL)
        taciti_pages_drop(s->context.copy16_pages, r.at * sizeof(taciti_bf16), r.n * sizeof(taciti_bf16));
}

/* ---- gathers ----------------------------------------------------------------------------------------------------- */

static taciti_unit_gather kind_of(const taciti_shard *s, const taciti_shard_unit *unit) {
    if (unit->shared || s->options.over == TACITI_SHARD_OVER_HOST) return TACITI_GATHERS_SHARE;
    if (s->coded == NULL || s->whole || taciti_compression_is_dense(s->coded)) return TACITI_GATHERS_WHOLE;
    return s->options.stage < 3 ? TACITI_GATHERS_CHANGES : TACITI_GATHERS_VALUES;
}

/* Copies what this rank sends of a bucket into the array that is gathered, and returns it. A share is there already. */
static float *prepare_bucket(const taciti_shard *s, const taciti_shard_unit *unit, size_t bucket) {
    if (unit->gather == TACITI_GATHERS_SHARE) return s->context.parameters;
    const taciti_range own = s->own[bucket];
    const float *masters = taciti_shard_masters(s) + own.at;
    const bool changes = unit->gather == TACITI_GATHERS_CHANGES;
    float *flat = changes ? s->changes.base : s->context.parameters;
    if (flat + own.at != masters) memcpy(flat + own.at, masters, own.n * sizeof *flat);
    if (changes) taciti_kernels_get()->add_scaled(flat + own.at, s->context.parameters + own.at, -1, own.n);
    return flat;
}

static tacit_status begin_gather(taciti_shard *s, taciti_shard_unit *unit) {
    TACITI_TRY(commit_unit(s, unit));
    unit->gather = kind_of(s, unit);
    const bool share = unit->gather == TACITI_GATHERS_SHARE;
    unit->through_coded =
        s->coded != NULL && !s->whole && !share; /* also what is whole because nothing is compressed yet */
    for (size_t b = unit->first; b < unit->first + unit->count; b++) {
        float *flat = prepare_bucket(s, unit, b);
        if (unit->through_coded)
            TACITI_TRY(taciti_compression_begin(s->coded, flat, b));
        else
            TACITI_TRY(taciti_exchange_begin_phase(s->gather, flat, b,
                                                   share ? TACITI_PHASE_GATHER_IN_HOST : TACITI_PHASE_ALL_GATHER));
    }
    s->coded_begun = s->coded_begun || unit->through_coded;
    unit->state = TACITI_UNIT_GATHERING;
    unit->gathered++;
    return TACIT_OK;
}

typedef struct take_job {
    const taciti_shard *s;
    const taciti_shard_unit *unit;
} take_job;

/* parameters += changes; and their copy. */
static void take_part(void *context, int thread, int threads) {
    const take_job *job = context;
    const taciti_strategy_context *c = &job->s->context;
    size_t begin_at = 0, end = 0;
    taciti_pool_part(job->unit->floats.n, 1024, thread, threads, &begin_at, &end);
    const size_t at = job->unit->floats.at + begin_at, n = end - begin_at;
    if (job->unit->gather == TACITI_GATHERS_CHANGES)
        taciti_kernels_get()->add(c->parameters + at, (const float *)job->s->changes.base + at, n);
    if (c->copy16 != NULL) taciti_kernels_get()->bf16_encode(c->copy16 + at, c->parameters + at, n);
}

/* Nothing is under way, and nothing will be before the update. */
static bool has_gathered_all(const taciti_shard *s) {
    for (size_t b = 0; b < s->context.layout->bucket_count; b++)
        if (s->begun[b]) return false;
    for (size_t u = 0; u < s->context.layout->unit_count; u++)
        if (s->units[u].count > 0 && s->units[u].state != TACITI_UNIT_PRESENT) return false;
    return true;
}

tacit_status taciti_shard_settle_gathers(taciti_shard *s) {
    taciti_step_report gathers = {.wait_ns = 0};
    TACITI_TRY(taciti_compression_settle(s->coded, true, 0, 0, &gathers));
    s->gathered_bytes += gathers.bytes;
    s->coded_begun = false;
    return TACIT_OK;
}

/* As soon as all ranks have everything, the gathers are settled: a checkpoint that is saved then, after an evaluation,
 * needs no account of what they have seen. Stage 3 gathers twice, and settles at the end of the step. */
static tacit_status await_gather(taciti_shard *s, taciti_shard_unit *unit) {
    const int64_t begin_ns = taciti_now_ns();
    taciti_exchange *exchange = unit->through_coded ? taciti_compression_exchange(s->coded) : s->gather;
    for (size_t b = unit->first; b < unit->first + unit->count; b++) TACITI_TRY(taciti_exchange_wait(exchange, b));
    s->wait_ns += taciti_trace_add(s->context.trace, TACITI_SPAN_WAIT, (int)unit->first, begin_ns) - begin_ns;
    if (s->context.copy16 != NULL || unit->gather == TACITI_GATHERS_CHANGES)
        taciti_optim_run(s->context.optim, take_part, &(take_job){s, unit});
    unit->state = TACITI_UNIT_PRESENT;
    unit->shared = s->options.secondary;
    return s->coded_begun && has_gathered_all(s) ? taciti_shard_settle_gathers(s) : TACIT_OK;
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

/* A unit is small if it has less than a SMALL-th of the floats of the largest. */
enum { SMALL = 16 };

size_t taciti_shard_room(const taciti_layout *layout) {
    size_t largest = 0, pair = 0, before = 0, small = 0;
    for (size_t u = 0; u < layout->unit_count; u++) {
        const size_t n = taciti_layout_unit(layout, u).n;
        if (n > largest) largest = n;
    }
    for (size_t u = 0; u < layout->unit_count; u++) {
        const size_t n = taciti_layout_unit(layout, u).n;
        if (n < largest / SMALL) {
            small += n;
            continue;
        }
        if (before + n > pair) pair = before + n;
        before = n;
    }
    return pair + small;
}

static bool has_room(const taciti_shard *s, const taciti_shard_unit *unit) {
    size_t n = unit->floats.n;
    for (size_t u = 0; u < s->context.layout->unit_count; u++)
        if (s->units[u].state != TACITI_UNIT_ABSENT) n += s->units[u].floats.n;
    return !taciti_shard_drops_parameters(s) || n <= taciti_shard_room(s->context.layout);
}

/* Units that were gathered ahead and then not needed, as evaluations do not go on with a backward pass. */
static tacit_status make_room(taciti_shard *s, const taciti_shard_unit *unit) {
    for (size_t u = 0; u < s->context.layout->unit_count && !has_room(s, unit); u++) {
        if (s->units[u].state == TACITI_UNIT_ABSENT || s->units[u].users > 0) continue;
        if (s->units[u].state == TACITI_UNIT_GATHERING) TACITI_TRY(await_gather(s, &s->units[u]));
        drop_unit(s, &s->units[u]);
    }
    return TACIT_OK;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

static tacit_status append_unit(taciti_shard *s, size_t unit) {
    size_t *order = taciti_with_room(s->order, s->order_count, sizeof *order);
    if (order == NULL) return TACIT_E_MEMORY;
    s->order = order;
    s->order[s->order_count++] = unit;
    return TACIT_OK;
}

/* Sets the position behind this unit: the next time it comes, else the first. */
static void follow_order(taciti_shard *s, size_t unit) {
    for (size_t i = 0; i < s->order_count; i++) {
        const size_t at = (s->position + i) % s->order_count;
        if (s->order[at] != unit) continue;
        s->position = at + 1;
        return;
    }
}

/* The next unit of the step begins its way while this one is used. */
static tacit_status prefetch_next(taciti_shard *s) {
    if (!s->recorded || s->position >= s->order_count) return TACIT_OK;
    taciti_shard_unit *next = &s->units[s->order[s->position]];
    return next->state == TACITI_UNIT_ABSENT && has_room(s, next) ? begin_gather(s, next) : TACIT_OK;
}

/* ---- what the network calls ------------------------------------------------------------------------------------- */

tacit_status taciti_shard_need(void *self, size_t unit) {
    taciti_shard *s = self;
    taciti_shard_unit *u = &s->units[unit];
    if (!s->started) {
        u->users++;
        return commit_unit(s, u);
    }
    if (u->users++ > 0) return TACIT_OK;
    if (!s->recorded) TACITI_TRY(append_unit(s, unit));
    if (s->recorded) follow_order(s, unit);
    if (s->position == 1) s->wait_ns = 0; /* what an evaluation waited for is not the step's */
    if (u->state == TACITI_UNIT_ABSENT) {
        TACITI_TRY(make_room(s, u));
        TACITI_TRY(begin_gather(s, u));
    }
    TACITI_TRY(prefetch_next(s));
    return u->state == TACITI_UNIT_GATHERING ? await_gather(s, u) : TACIT_OK;
}

/* Errors of a gather that begins here come back from the need that waits for it. */
void taciti_shard_release(void *self, size_t unit) {
    taciti_shard *s = self;
    taciti_shard_unit *u = &s->units[unit];
    if (u->users == 0 || --u->users > 0 || !taciti_shard_drops_parameters(s)) return;
    drop_unit(s, u);
    if (s->started) (void)prefetch_next(s);
}

tacit_status taciti_shard_forget(taciti_shard *s) {
    for (size_t u = 0; u < s->context.layout->unit_count; u++) {
        taciti_shard_unit *unit = &s->units[u];
        if (unit->state == TACITI_UNIT_GATHERING) TACITI_TRY(await_gather(s, unit));
        const bool holds = unit->state == TACITI_UNIT_PRESENT || unit->shared;
        unit->shared = false;
        if (holds && taciti_shard_drops_parameters(s)) drop_unit(s, unit);
        unit->state = TACITI_UNIT_ABSENT;
        unit->users = 0;
    }
    return TACIT_OK;
}

/* Units that a checkpoint has brought back are PRESENT: another gather of changes would change them. */
static tacit_status gather_all(taciti_shard *s) {
    const size_t units = s->context.layout->unit_count;
    for (size_t u = units; u-- > 0;)
        if (s->units[u].state == TACITI_UNIT_ABSENT) TACITI_TRY(begin_gather(s, &s->units[u]));
    for (size_t u = units; u-- > 0;)
        if (s->units[u].state == TACITI_UNIT_GATHERING) TACITI_TRY(await_gather(s, &s->units[u]));
    return TACIT_OK;
}

tacit_status taciti_shard_ahead(taciti_shard *s) {
    s->position = 0;
    return s->context.by_units ? prefetch_next(s) : gather_all(s);
}

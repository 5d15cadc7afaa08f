/* SPDX-License-Identifier: Apache-2.0
 *
 * shard: data parallel with parts. Every rank owns one range of each bucket and holds the optimizer's moments of these
 * ranges only (stage 1), their gradients only (stage 2) and their parameters only (stage 3). Gradients are summed by a
 * reduce-scatter during backward, each rank updates what it owns, and parameters are gathered unit by unit before they
 * are read.
 *
 * Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, arXiv
 * 1910.02054, section 5 (the stages); Y. Zhao et al., "PyTorch FSDP", VLDB 2023, arXiv 2304.11277, sections 3.2 and 3.3
 * (units, prefetch in the recorded order, at most two units at once).
 *
 * Deviations: gathers are lazy in every stage, so that in stages 1 and 2, too, they overlap the forward pass; micro-
 * batches add up in whole gradients, which are reduced once.
 *
 * Properties (test_sharding.c): without clipping every stage is bit-equal to dp, overlapped or blocking; a gradient
 * that is not finite on any rank makes every rank skip the step and change nothing; no rank holds more than its parts
 * and the units of taciti_shard_room().
 */
#include "strategy/shard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

static const char GRADIENTS[] = "gradients", MASTERS[] = "f32 parameters", CHANGES[] = "changes of parameters";

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void shard_destroy(void *self) {
    taciti_shard *s = self;
    if (s == NULL) return;
    taciti_compression_destroy(s->reduce);
    taciti_exchange_destroy(s->gather);
    taciti_compression_destroy(s->coded);
    taciti_pages_destroy(&s->masters);
    taciti_pages_destroy(&s->changes);
    taciti_arrangement_destroy(&s->arrangement);
    taciti_free(s->units);
    taciti_free(s->own);
    taciti_free(s->begun);
    taciti_free(s->order);
    taciti_free(s);
}

static tacit_status check_layout(const taciti_layout *layout) {
    for (size_t b = 0; b < layout->bucket_count; b++)
        if (layout->tensors[layout->buckets[b].first].unit != layout->tensors[layout->buckets[b].last].unit)
            return taciti_fail(TACIT_E_INTERNAL, "shard: bucket %zu belongs to two units", b);
    return TACIT_OK;
}

/* Commits the pages of an array: all, or those with floats of this rank. */
static tacit_status hold_pages(const taciti_shard *s, const taciti_pages *pages, size_t float_bytes, bool parts,
                               const char *what) {
    if (pages == NULL) return TACIT_OK;
    if (!parts) return taciti_pages_commit(pages, 0, pages->bytes, what);
    for (size_t b = 0; b < s->context.layout->bucket_count; b++)
        TACITI_TRY(taciti_pages_commit(pages, s->own[b].at * float_bytes, s->own[b].n * float_bytes, what));
    return TACIT_OK;
}

static tacit_status hold_all(taciti_shard *s) {
    const taciti_strategy_context *c = &s->context;
    const bool parameters = taciti_shard_drops_parameters(s);
    TACITI_TRY(hold_pages(s, c->parameter_pages, sizeof(float), parameters, "parameters"));
    TACITI_TRY(hold_pages(s, c->gradient_pages, sizeof(float), taciti_shard_drops_gradients(s), GRADIENTS));
    if (!parameters) TACITI_TRY(hold_pages(s, c->copy16_pages, sizeof(taciti_bf16), false, "bf16 parameters"));
    for (size_t b = 0; b < c->layout->bucket_count; b++) TACITI_TRY(taciti_optim_hold(c->optim, s->own[b]));
    if (taciti_shard_sends_changes(c))
        TACITI_TRY(taciti_pages_create(c->layout->n * sizeof(float), CHANGES, &s->changes));
    if (!taciti_shard_has_masters(c)) return TACIT_OK;
    TACITI_TRY(taciti_pages_reserve(c->layout->n * sizeof(float), MASTERS, &s->masters));
    return hold_pages(s, &s->masters, sizeof(float), true, MASTERS);
}

static tacit_status describe_units(taciti_shard *s) {
    const taciti_layout *layout = s->context.layout;
    for (size_t u = 0; u < layout->unit_count; u++) {
        s->units[u].floats = taciti_layout_unit(layout, u);
        s->units[u].first = layout->bucket_count;
        s->units[u].per_step = s->context.by_units ? taciti_shard_gathers(layout, u, s->options.stage) : 1;
    }
    for (size_t b = 0; b < layout->bucket_count; b++) {
        taciti_shard_unit *unit = &s->units[layout->tensors[layout->buckets[b].first].unit];
        if (unit->count++ == 0) unit->first = b;
        s->own[b] = taciti_shard_range(&layout->buckets[b], s->place.own);
        s->single[b] = taciti_shard_range(&layout->buckets[b], s->place.single);
    }
    return hold_all(s);
}

static tacit_status create_alone(const taciti_strategy_context *c, taciti_shard **out) {
    taciti_shard *s = taciti_calloc(1, sizeof *s);
    *out = s;
    if (s == NULL) return TACIT_E_MEMORY;
    s->context = *c;
    s->options = *(const taciti_shard_options *)c->options;
    TACITI_TRY(taciti_shard_arrange(c, &s->arrangement));
    s->place = taciti_shard_place_of(&s->arrangement, &s->options);
    s->units = taciti_calloc(c->layout->unit_count + 1, sizeof *s->units + 1);
    s->own = taciti_calloc(2 * c->layout->bucket_count, sizeof *s->own);
    s->begun = taciti_calloc(2 * c->layout->bucket_count, sizeof *s->begun);
    if (s->units == NULL || s->own == NULL || s->begun == NULL) return TACIT_E_MEMORY;
    s->single = s->own + c->layout->bucket_count;
    s->drained = s->begun + c->layout->bucket_count;
    s->saved = (uint8_t *)(s->units + c->layout->unit_count + 1);
    s->saved[c->layout->unit_count] = true; /* a checkpoint of a run without changes says nothing else */
    TACITI_TRY(check_layout(c->layout));
    return describe_units(s);
}

static tacit_status create_exchanges(taciti_shard *s) {
    const taciti_exchange_options reduce = taciti_shard_reduce_options(&s->context),
                                  gather = taciti_shard_gather_options(&s->context);
    taciti_strategy_context half = s->context;
    half.exchange_options = &reduce;
    half.compression.phase = taciti_shard_reduce_phase(&s->options);
    TACITI_TRY(taciti_compression_create(&half, &s->reduce));
    half.exchange_options = &gather;
    TACITI_TRY(taciti_exchange_create(half.comm, half.layout, half.exchange_options, NULL, &s->gather));
    if (s->context.compression.gathers.codec == NULL) return TACIT_OK;
    half.hooks = NULL;
    half.compression = taciti_compression_gather_setup(&s->context.compression);
    return taciti_compression_create(&half, &s->coded);
}

static tacit_status shard_create(const taciti_strategy_context *context, void **out) {
    taciti_shard *s = NULL;
    tacit_status status = taciti_comm_agree(context->comm, create_alone(context, &s));
    if (status == TACIT_OK) status = create_exchanges(s);
    if (status != TACIT_OK) {
        shard_destroy(s);
        return status;
    }
    *out = s;
    return TACIT_OK;
}

/* Values from a checkpoint are in the array of model_array() already. */
static void set_masters(const taciti_shard *s, bool restored) {
    const float *from = s->context.parameters;
    float *to = taciti_shard_masters(s);
    if (to == from || (taciti_shard_sends_changes(&s->context) && (restored || s->filled))) return;
    for (size_t b = 0; b < s->context.layout->bucket_count; b++)
        memcpy(to + s->own[b].at, from + s->own[b].at, s->own[b].n * sizeof *to);
}

/* A unit that was there when the checkpoint was saved; its copy is not in the checkpoint. */
static void take_up(const taciti_shard *s, taciti_shard_unit *unit) {
    const taciti_strategy_context *c = &s->context;
    const taciti_range r = unit->floats;
    unit->state = TACITI_UNIT_PRESENT;
    if (c->copy16 != NULL) taciti_kernels_get()->bf16_encode(c->copy16 + r.at, c->parameters + r.at, r.n);
}

/* From here on the masters count; what others own is gathered. Changes go on from parameters that a checkpoint of as
 * many ranks has restored; otherwise every rank must have the same ones first. */
static tacit_status shard_start(void *self, int64_t step, bool restored) {
    taciti_shard *s = self;
    const bool goes_on = restored && taciti_shard_sends_changes(&s->context);
    set_masters(s, restored);
    for (size_t u = 0; u < s->context.layout->unit_count; u++) {
        s->units[u].users = 0;
        if (goes_on && s->saved[u]) take_up(s, &s->units[u]);
    }
    s->whole = taciti_shard_sends_changes(&s->context) && (!goes_on || s->saved[s->context.layout->unit_count]);
    s->step = step;
    s->started = true;
    TACITI_TRY(taciti_compression_start(s->reduce, step, restored));
    if (s->coded != NULL) TACITI_TRY(taciti_compression_start(s->coded, step, restored));
    TACITI_TRY(taciti_shard_ahead(s));
    s->wait_ns = 0; /* what is gathered here belongs to no step */
    return TACIT_OK;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* The unit's gradients are summed; only this rank's part is of use now. */
static tacit_status drain_unit(taciti_shard *s, taciti_shard_unit *unit) {
    for (size_t b = unit->first; b < unit->first + unit->count; b++) {
        if (s->drained[b]) continue;
        const int64_t begin_ns = taciti_now_ns();
        TACITI_TRY(taciti_exchange_wait(taciti_compression_exchange(s->reduce), b));
        s->wait_ns += taciti_trace_add(s->context.trace, TACITI_SPAN_WAIT, (int)b, begin_ns) - begin_ns;
        s->drained[b] = true;
    }
    if (taciti_shard_drops_gradients(s)) taciti_shard_drop(s->context.gradient_pages, s, unit, s->place.own);
    unit->writable = false;
    return TACIT_OK;
}

static bool is_begun(const taciti_shard *s, const taciti_shard_unit *unit) {
    for (size_t b = unit->first; b < unit->first + unit->count; b++)
        if (!s->begun[b]) return false;
    return unit->count > 0;
}

/* At most one unit's sum stays under way. */
static tacit_status drain_older(taciti_shard *s) {
    const taciti_shard_unit *newest = NULL;
    for (size_t u = 0; u < s->context.layout->unit_count; u++)
        if (s->units[u].writable && is_begun(s, &s->units[u])) newest = &s->units[u];
    for (size_t u = 0; u < s->context.layout->unit_count; u++)
        if (s->units[u].writable && &s->units[u] != newest && is_begun(s, &s->units[u]))
            TACITI_TRY(drain_unit(s, &s->units[u]));
    return TACIT_OK;
}

static tacit_status shard_write(void *self, size_t unit) {
    taciti_shard *s = self;
    taciti_shard_unit *u = &s->units[unit];
    if (u->writable || !taciti_shard_drops_gradients(s)) return TACIT_OK;
    TACITI_TRY(drain_older(s));
    TACITI_TRY(taciti_pages_commit(s->context.gradient_pages, u->floats.at * sizeof(float), u->floats.n * sizeof(float),
                                   GRADIENTS));
    u->writable = true;
    return TACIT_OK;
}

static tacit_status begin_sum(taciti_shard *s, size_t bucket) {
    if (s->begun[bucket]) return TACIT_OK;
    TACITI_TRY(shard_write(s, s->context.layout->tensors[s->context.layout->buckets[bucket].first].unit));
    s->begun[bucket] = true;
    return taciti_compression_begin(s->reduce, s->context.gradients, bucket);
}

static tacit_status shard_ready(void *self, size_t bucket) {
    taciti_shard *s = self;
    return s->context.exchange_options->overlap ? begin_sum(s, bucket) : TACIT_OK;
}

/* ---- the end of a step ------------------------------------------------------------------------------------------- */

/* Sum of the squares of all gradients, the same on all ranks. */
static tacit_status sum_squares(taciti_shard *s, double *out) {
    double squares = 0;
    for (size_t b = 0; b < s->context.layout->bucket_count; b++)
        squares += taciti_optim_sum_squares(s->context.optim, s->context.gradients, s->single[b].at, s->single[b].n);
    TACITI_TRY(taciti_comm_allreduce_f64(s->context.comm, &squares, 1, TACITI_OP_SUM));
    *out = squares;
    return TACIT_OK;
}

static tacit_status drain_all(taciti_shard *s) {
    const taciti_layout *layout = s->context.layout;
    for (size_t b = 0; b < layout->bucket_count; b++) TACITI_TRY(begin_sum(s, b));
    for (size_t u = 0; u < layout->unit_count; u++) TACITI_TRY(drain_unit(s, &s->units[u]));
    memset(s->begun, 0, 2 * layout->bucket_count * sizeof *s->begun);
    return TACIT_OK;
}

static void update_own(taciti_shard *s, double lr, double scale) {
    const taciti_strategy_context *c = &s->context;
    const int64_t begin_ns = taciti_now_ns();
    float *masters = taciti_shard_masters(s);
    taciti_optim_begin(c->optim, lr, scale);
    for (size_t b = 0; b < c->layout->bucket_count; b++)
        taciti_optim_update_range(c->optim, masters, c->gradients, NULL, s->own[b].at, s->own[b].n, NULL);
    (void)taciti_trace_add(c->trace, TACITI_SPAN_UPDATE, -1, begin_ns);
}

/* The units that the first step has needed are those of every step. */
static void end_record(taciti_shard *s) {
    s->recorded = s->recorded || s->order_count > 0;
    for (size_t u = 0; u < s->context.layout->unit_count; u++) {
        if (s->units[u].gathered > 0) s->units[u].per_step = s->units[u].gathered;
        s->units[u].gathered = 0;
    }
}

/* The bytes of a step are those of its sums and of the gathers since the last update. */
static tacit_status settle_step(taciti_shard *s, double lr, taciti_step_report *out) {
    const bool sums = s->context.compression.sums.codec != NULL, gathers = s->coded != NULL;
    TACITI_TRY(taciti_compression_settle(s->reduce, !out->skipped, lr, out->grad_norm, out));
    if (out->skipped) return TACIT_OK;
    TACITI_TRY(taciti_shard_forget(s));
    if (s->coded_begun) TACITI_TRY(taciti_shard_settle_gathers(s));
    if (!sums && gathers) out->bytes = (double)taciti_shard_reduce_bytes(s);
    if (sums || gathers) out->bytes += gathers ? s->gathered_bytes : (double)taciti_shard_gather_bytes(s);
    s->gathered_bytes = 0;
    if (!gathers) return TACIT_OK;
    if (!taciti_compression_event(s->coded, s->gather_event, sizeof s->gather_event)) s->gather_event[0] = '\0';
    taciti_compression_at(s->coded, s->step + 1);
    return TACIT_OK;
}

/* Moves what this rank has waited to a report. */
static void take_waits(taciti_shard *s, taciti_step_report *out) {
    out->wait_ns += s->wait_ns;
    s->wait_ns = 0;
}

/* All sums have arrived. *scale: of the gradients, by optim.clip. */
static tacit_status end_sums(taciti_shard *s, double lr, taciti_step_report *out, double *scale) {
    double squares = 0;
    *out = (taciti_step_report){.wait_ns = 0};
    s->gather_event[0] = '\0';
    TACITI_TRY(drain_all(s));
    TACITI_TRY(sum_squares(s, &squares));
    out->grad_norm = sqrt(squares);
    out->skipped = !isfinite(squares);
    *scale = out->skipped ? 1 : taciti_optim_clip_scale(s->context.optim_options, out->grad_norm);
    take_waits(s, out);
    out->wait_ns += s->behind_ns; /* the policy sees the wait of the last gather, and the row of that step has it */
    TACITI_TRY(settle_step(s, lr, out));
    out->wait_ns -= s->behind_ns;
    s->step++;
    if (out->skipped) s->position = 0;
    if (!out->skipped) s->whole = false;
    return TACIT_OK;
}

/* Parameters are gathered from the next step's reads on. */
static tacit_status end_update(taciti_shard *s, taciti_step_report *out) {
    end_record(s);
    if (s->context.compression.sums.codec == NULL && out->bytes == 0)
        out->bytes = (double)(taciti_shard_reduce_bytes(s) + taciti_shard_gather_bytes(s));
    if (!out->skipped) TACITI_TRY(taciti_shard_ahead(s));
    s->behind_ns = s->wait_ns;
    take_waits(s, out);
    return TACIT_OK;
}

static tacit_status shard_finish(void *self, double lr, taciti_step_report *out) {
    double scale = 1;
    TACITI_TRY(end_sums(self, lr, out, &scale));
    if (!out->skipped) update_own(self, lr, scale);
    return end_update(self, out);
}

static tacit_status shard_settle(void *self, double lr, taciti_step_report *out) {
    taciti_shard *s = self;
    double scale = 1;
    TACITI_TRY(end_sums(s, lr, out, &scale));
    for (size_t b = 0; b < s->context.layout->bucket_count && scale < 1; b++)
        taciti_kernels_get()->scale(s->context.gradients + s->own[b].at, (float)scale, s->own[b].n);
    return TACIT_OK;
}

static tacit_status shard_stepped(void *self, taciti_step_report *out) { return end_update(self, out); }

static bool shard_part(const void *self, size_t index, taciti_part *out) {
    const taciti_shard *s = self;
    if (index >= s->context.layout->bucket_count) return false;
    const taciti_range own = s->own[index];
    *out = (taciti_part){own, taciti_shard_masters(s) + own.at, s->context.gradients + own.at};
    return true;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* Before start(), which makes masters of them, values go to `parameters`; but not where these are something else. */
static float *model_array(const taciti_shard *s) {
    return s->started || taciti_shard_sends_changes(&s->context) ? taciti_shard_masters(s) : s->context.parameters;
}

/* Lists the parameters that the next changes refer to, and which units have them. */
static void add_parameters(taciti_shard *s, taciti_state *out) {
    const size_t units = s->context.layout->unit_count;
    for (size_t u = 0; u < units && s->started; u++) s->saved[u] = s->units[u].state == TACITI_UNIT_PRESENT;
    if (s->started) s->saved[units] = s->whole;
    taciti_state_add_array(out, "strategy.parameters", TACITI_STATE_SHARED, TACITI_STATE_RESET, s->context.layout,
                           s->context.parameters)
        ->optional = true;
    taciti_state_add_bytes(out, "strategy.present", TACITI_STATE_SHARED, s->saved, units + 1)->optional = true;
}

/* Before start() what this rank needs from a checkpoint; afterwards what it alone writes. */
static void shard_state(void *self, taciti_state *out) {
    taciti_shard *s = self;
    const size_t buckets = s->context.layout->bucket_count;
    const taciti_range *ranges = s->started ? s->single : s->own;
    taciti_optim_list_ranges(s->context.optim, ranges, buckets, out);
    taciti_state_add_ranges(out, "model", TACITI_STATE_SHARED, TACITI_STATE_MEAN, s->context.layout, model_array(s),
                            ranges, buckets);
    taciti_compression_state(s->reduce, out);
    if (s->coded != NULL) taciti_compression_state(s->coded, out);
    if (taciti_shard_sends_changes(&s->context)) add_parameters(s, out);
    for (size_t i = 0; i < out->count && i < TACITI_STATE_MAX_ENTRIES; i++) {
        if (out->entries[i].ranges == ranges) out->entries[i].held = s->own;
        if (strcmp(out->entries[i].name, "model") == 0) out->entries[i].filled = &s->filled;
    }
}

/* Writes the decisions about the sums, the gathers, or both. */
static bool shard_event(const void *self, char *out, size_t size) {
    const taciti_shard *s = self;
    const bool sums = taciti_compression_event(s->reduce, out, size);
    const size_t length = sums ? strlen(out) : 0;
    if (s->gather_event[0] != '\0')
        (void)snprintf(out + length, size - length, "%s\"gather\": {%s}", sums ? ", " : "", s->gather_event);
    return sums || s->gather_event[0] != '\0';
}

extern const taciti_strategy taciti_strategy_shard;
const taciti_strategy taciti_strategy_shard = {
    .name = "shard",
    .help = "every rank holds parts of moments, gradients and parameters",
    .source = "arXiv 1910.02054",
    .options = &taciti_shard_option_table,
    .options_size = sizeof(taciti_shard_options),
    .label = "stage",
    .sums_gradients = true,
    .compresses = true,
    .units = &(const taciti_unit_verbs){.need = taciti_shard_need,
                                        .release = taciti_shard_release,
                                        .write = shard_write,
                                        .memory = taciti_shard_memory,
                                        .part = shard_part},
    .check = taciti_shard_check,
    .patterns = taciti_shard_patterns,
    .describe = taciti_shard_describe,
    .create = shard_create,
    .destroy = shard_destroy,
    .start = shard_start,
    .ready = shard_ready,
    .finish = shard_finish,
    .settle = shard_settle,
    .stepped = shard_stepped,
    .state = shard_state,
    .event = shard_event,
};

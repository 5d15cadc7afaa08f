/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy/compression.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "strategy/compression_state.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

static tacit_status allocate_arrays(taciti_compression *c) {
    const size_t buckets = c->layout->bucket_count;
    c->state_bytes = c->controller->state_bytes(buckets);
    c->shown_buckets = c->state_bytes > 0 ? buckets : 1;
    c->statistics_n = taciti_compression_statistics_bytes(buckets, c->state_bytes > 0) / sizeof *c->statistics;
    c->statistics = taciti_calloc(c->statistics_n, sizeof *c->statistics);
    c->operations = taciti_calloc(c->statistics_n, sizeof *c->operations);
    c->factors = taciti_calloc(2 * buckets, sizeof *c->factors);
    c->tallies = taciti_calloc(TACITI_PAYLOAD_KINDS * buckets, sizeof *c->tallies);
    c->bucket_bytes = taciti_calloc(buckets, sizeof *c->bucket_bytes);
    c->state = taciti_calloc(c->state_bytes + 1, 1);
    if (c->statistics == NULL || c->operations == NULL || c->factors == NULL || c->tallies == NULL ||
        c->bucket_bytes == NULL || c->state == NULL)
        return TACIT_E_MEMORY;
    c->bucket_busy = c->factors + buckets;
    for (size_t b = 0; b < buckets; b++) c->bucket_bytes[b] = c->layout->buckets[b].n * sizeof(float);
    taciti_compression_list_operations(c->operations, c->statistics_n);
    if (c->controller->period == NULL) return TACIT_OK;
    c->period_sum = taciti_calloc(c->layout->n, sizeof *c->period_sum);
    return c->period_sum == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

/* Where this rank stores residuals of results: another placement has other ranges, or owners. */
static int64_t placement_of(const taciti_compression *c) {
    uint64_t key = (uint64_t)taciti_exchange_way(c->exchange);
    taciti_range range;
    for (size_t b = 0; b < c->layout->bucket_count; b++)
        for (size_t i = 0; taciti_exchange_owned(c->exchange, b, i, &range); i++)
            key = taciti_rng_key(taciti_rng_key(key, range.at), range.n);
    return (int64_t)(key >> 1);
}

static void start_controller(taciti_compression *c) {
    const taciti_adapt_start start = {.factor = taciti_compression_asked_factor(&c->setup),
                                      .rungs = c->encoding.codec->rungs,
                                      .loss = c->setup.options->loss,
                                      .selects_at = taciti_compression_safe_step(c),
                                      .buckets = c->layout->bucket_count};
    c->controller->start(c->setup.controller_options, &start, c->state, &c->decision, c->factors);
    c->taken = 0;
}

#define MORE 1.01 /* headers alone are nothing to mend */

/* Warns where indices, or the factors of small matrices, take more bytes than the elements. Phases of strategies that
 * own parts are not looked at. */
static void warn_of_more_bytes(const taciti_compression *c) {
    const taciti_encoding *e = &c->encoding;
    const taciti_codec *codec = e->codec;
    const taciti_codec_setting settings[TACITI_PAYLOAD_KINDS] = {[TACITI_PAYLOAD_CONTRIBUTION] = e->expected,
                                                                 [TACITI_PAYLOAD_RESULT] =
                                                                     e->back.factor > 0 ? e->back : e->expected};
    if (c->setup.phase != TACITI_PHASE_ALL_REDUCE || c->setup.options->factor <= 1 || taciti_comm_rank(c->comm) > 0)
        return;
    const double dense = taciti_exchange_expected_bytes(c->exchange, NULL);
    const double coded = taciti_exchange_expected_bytes(c->exchange, settings);
    const char *other = e->expected.factor > 0   ? ", or raise compress.factor"
                        : codec->options != NULL ? ", or give it other options: `tacit info codecs` lists them"
                                                 : "";
    if (coded > MORE * dense)
        taciti_log(TACITI_LOG_WARN,
                   "codec %s sends %.4g MB per step, more than the %.4g MB without it: leave compress.codec out%s",
                   codec->name, coded * 1e-6, dense * 1e-6, other);
    else if (coded * MORE > dense && taciti_compression_is_lossy(&c->setup))
        taciti_log(TACITI_LOG_WARN,
                   "codec %s saves nothing of the %.4g MB per step without it: leave compress.codec out%s", codec->name,
                   dense * 1e-6, other);
}

/* Warns of a run that ends before its warm-up. Gathers have that of sums, whose warning counts for both. */
static void warn_of_warmup(const taciti_compression *c, int64_t steps) {
    const int64_t warmup = taciti_compression_warmup(c);
    const taciti_codec *sums = c->setup.sums.codec;
    const bool told = c->setup.phase == TACITI_PHASE_ALL_GATHER && sums != NULL && sums->selects;
    const double factor = taciti_compression_asked_factor(&c->setup);
    if (steps == 0 || warmup < steps || c->setup.options->start >= factor || told) return;
    if (taciti_comm_rank(c->comm) > 0 || taciti_comm_size(c->comm) == 1) return;
    taciti_log(TACITI_LOG_WARN,
               "compress.warmup: the factor rises for %lld steps and the run has %lld, so it never reaches %g: "
               "--compress.warmup N, with N below that",
               (long long)warmup, (long long)steps, factor);
}

static tacit_status build_exchange(taciti_compression *c, const taciti_exchange_options *options) {
    if (c->encoding.codec == NULL) return taciti_exchange_create(c->comm, c->layout, options, NULL, &c->exchange);
    TACITI_TRY(taciti_comm_agree(c->comm, allocate_arrays(c)));
    TACITI_TRY(taciti_exchange_create(c->comm, c->layout, options, &c->encoding, &c->exchange));
    warn_of_more_bytes(c);
    c->placement = c->saved_placement = placement_of(c);
    start_controller(c);
    return TACIT_OK;
}

static tacit_status check_optimizer(const taciti_strategy_context *context) {
    if (context->compression.sums.codec == NULL) return TACIT_OK;
    if (taciti_compression_what(&context->compression) != TACITI_SENDS_MOMENTUM) return TACIT_OK;
    if (taciti_optim_state_count(context->optim) > 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "compress.what momentum: this run's optimizer keeps no moments here, because the "
                       "caller makes the updates or they are emulated; --compress.what gradient");
}

tacit_status taciti_compression_create(const taciti_strategy_context *context, taciti_compression **out) {
    TACITI_TRY(check_optimizer(context)); /* the same on all ranks */
    taciti_compression *c = taciti_calloc(1, sizeof *c);
    if (c != NULL)
        *c = (taciti_compression){.setup = context->compression,
                                  .comm = context->comm,
                                  .layout = context->layout,
                                  .optim = context->optim,
                                  .optim_options = context->optim_options,
                                  .gradients = context->gradients,
                                  .hooks = context->hooks,
                                  .encoding = taciti_compression_encoding(&context->compression),
                                  .controller = taciti_compression_controller(&context->compression)};
    tacit_status status = taciti_comm_agree(context->comm, c == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = build_exchange(c, context->exchange_options);
    if (status == TACIT_OK && c->encoding.codec != NULL) warn_of_warmup(c, context->total_steps);
    if (status != TACIT_OK) {
        taciti_compression_destroy(c);
        return status;
    }
    taciti_exchange_attend(c->exchange, c->hooks);
    *out = c;
    return TACIT_OK;
}

void taciti_compression_destroy(taciti_compression *c) {
    if (c == NULL) return;
    taciti_exchange_destroy(c->exchange);
    taciti_free(c->statistics);
    taciti_free(c->operations);
    taciti_free(c->factors);
    taciti_free(c->tallies);
    taciti_free(c->bucket_bytes);
    taciti_free(c->state);
    taciti_free(c->period_sum);
    taciti_free(c);
}

size_t taciti_compression_predict_bytes(const taciti_strategy_context *context) {
    const taciti_compression_setup *setup = &context->compression;
    const taciti_exchange_options *options = context->exchange_options;
    const taciti_encoding encoding = taciti_compression_encoding(setup);
    if (encoding.codec == NULL) return taciti_exchange_predict_bytes(context->comm, context->layout, options, NULL);
    const size_t sum = taciti_compression_controller(setup)->period == NULL ? 0 : context->layout->n * sizeof(float);
    return sum + taciti_exchange_predict_bytes(context->comm, context->layout, options, &encoding);
}

taciti_exchange *taciti_compression_exchange(const taciti_compression *compression) { return compression->exchange; }

/* ---- steps ------------------------------------------------------------------------------------------------------- */

void taciti_compression_at(taciti_compression *c, int64_t step) {
    c->step = step;
    c->decision.changed = false;
    if (c->encoding.codec == NULL) taciti_exchange_at(c->exchange, step, NULL);
}

static taciti_codec_setting setting_of(const taciti_compression *c, size_t bucket, double factor,
                                       const taciti_threshold *threshold) {
    const bool own = c->factors[bucket] > 0; /* the threshold is that of the model */
    return taciti_codec_setting_of(c->encoding.codec,
                                   (taciti_codec_setting){factor, own || factor <= 1 ? 0 : threshold->value});
}

/* Returns the setting that would be sent at the factor that the controller tries. */
static taciti_codec_setting trial_of(const taciti_compression *c, size_t bucket) {
    static const taciti_threshold NONE = {0};
    const double factor = c->decision.trial;
    return setting_of(c, bucket, factor, c->tried[0].factor == factor ? &c->tried[0].threshold : &NONE);
}

bool taciti_compression_is_dense(const taciti_compression *c) {
    return c->encoding.codec == NULL || taciti_compression_factor(c, c->layout->bucket_count) <= 1;
}

tacit_status taciti_compression_begin(taciti_compression *c, float *flat, size_t bucket) {
    const taciti_bucket *b = &c->layout->buckets[bucket];
    const bool momentum = taciti_compression_sends_momentum(c);
    if (momentum && c->hooks != NULL) c->hooks->leaving(c->hooks->context, bucket, (taciti_range){.n = b->n});
    if (momentum) taciti_optim_to_momentum(c->optim, flat, 1.0 / taciti_comm_size(c->comm), b->offset, b->n);
    if (c->encoding.codec != NULL) {
        const double factor = taciti_compression_factor(c, bucket), back = taciti_compression_back_factor(c, factor);
        const taciti_threshold sent = taciti_compression_threshold(c, TACITI_PAYLOAD_CONTRIBUTION, factor),
                               result = taciti_compression_threshold(c, TACITI_PAYLOAD_RESULT, back);
        const taciti_bucket_task task = {
            .setting = {setting_of(c, bucket, factor, &sent), setting_of(c, bucket, back, &result)},
            .trial = trial_of(c, bucket),
            .dense = factor <= 1};
        taciti_exchange_at(c->exchange, c->step, &task);
    }
    return taciti_exchange_begin_phase(c->exchange, flat, bucket, c->setup.phase);
}

tacit_status taciti_compression_settle(taciti_compression *c, bool taken, double lr, double norm,
                                       taciti_step_report *report) {
    TACITI_TRY(taciti_exchange_settle(c->exchange, taken));
    c->decision.changed = false;
    if (c->encoding.codec != NULL && taken) return taciti_compression_learn(c, lr, norm, report);
    taciti_compression_advance(c, false);
    return TACIT_OK;
}

bool taciti_compression_event(const taciti_compression *c, char *out, size_t size) {
    if (!c->decision.changed) return false;
    (void)snprintf(out, size, "\"policy\": \"%s\", \"factor\": %.6g, \"reason\": \"%s\"", c->controller->name,
                   c->decision.factor, c->decision.reason);
    return true;
}

enum { LEVEL_N = sizeof(taciti_level) / sizeof(double) };

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static bool is_of_gathers(const taciti_compression *c) { return c->setup.phase == TACITI_PHASE_ALL_GATHER; }

static bool has_estimates(const taciti_compression *c) { return c->encoding.feedback.estimates; }

static void add_residuals(taciti_compression *c, taciti_state *out) {
    static const char *const NAMES[2][3] = {
        {"strategy.residual", "strategy.residual_result", "strategy.residual_memory"},
        {"strategy.estimate", "strategy.estimate_result", "strategy.estimate_memory"}};
    const taciti_state_regroup total = c->setup.averages ? TACITI_STATE_TERM : TACITI_STATE_SUM,
                               rule = has_estimates(c) ? TACITI_STATE_RESET : total;
    for (int i = 0; i <= TACITI_RESIDUAL_MEMORY; i++) {
        float *residual = taciti_exchange_residual(c->exchange, (taciti_residual_array)i);
        taciti_state_access access = {.read = NULL};
        if (residual == NULL && !taciti_exchange_narrow_residual(c->exchange, (taciti_residual_array)i, &access))
            continue;
        taciti_state_entry *entry =
            taciti_state_add_array(out, NAMES[has_estimates(c)][i], TACITI_STATE_OWN, rule, c->layout, residual);
        entry->access = access;
        entry->optional = true;
    }
}

static void add_bytes(taciti_state *out, const char *name, taciti_state_owner owner, void *bytes, size_t n) {
    if (n > 0) taciti_state_add_bytes(out, name, owner, bytes, n)->optional = true;
}

/* The names contain that of the controller, so another one starts from its first state. Controllers that measure times
 * are left out: every process measures for itself. */
static void add_controller(taciti_compression *c, taciti_state *out) {
    static const char *const WHAT[] = {"state", "decision", "factors", "taken", "identity"};
    void *const data[] = {c->state, &c->decision, c->factors, &c->taken, c->saved_identity};
    const size_t bytes[] = {c->state_bytes, sizeof c->decision, c->layout->bucket_count * sizeof *c->factors,
                            sizeof c->taken, sizeof c->saved_identity};
    for (int i = 0; i < 5 && c->state_bytes > 0 && !c->controller->measures; i++) {
        (void)snprintf(c->names[i], sizeof c->names[i], "strategy.%s%s_%s", is_of_gathers(c) ? "gather_" : "",
                       c->controller->name, WHAT[i]);
        add_bytes(out, c->names[i], TACITI_STATE_SHARED, data[i], bytes[i]);
    }
}

static void add_levels(taciti_state *out, const char *name, taciti_level *list, size_t count) {
    taciti_state_add_numbers(out, name, TACITI_STATE_SHARED, TACITI_STATE_RESET, &list[0].factor, count * LEVEL_N)
        ->optional = true;
}

static void add_thresholds(taciti_compression *c, taciti_state *out) {
    const bool gathers = is_of_gathers(c);
    add_levels(out, gathers ? "strategy.gather_sent" : "strategy.sent", c->sent, TACITI_PAYLOAD_KINDS);
    if (!gathers) add_levels(out, "strategy.tried", c->tried, 2); /* only what is summed is tried */
}

void taciti_compression_state(taciti_compression *c, taciti_state *out) {
    if (c->encoding.codec == NULL) return;
    add_thresholds(c, out);
    add_controller(c, out);
    if (is_of_gathers(c) && !c->setup.gather_feedback) return; /* nothing else is remembered */
    size_t bytes = 0;
    void *codec = taciti_exchange_codec_state(c->exchange, &bytes);
    add_residuals(c, out);
    (void)snprintf(c->codec_name, sizeof c->codec_name, "strategy.codec_%s", c->encoding.codec->name);
    add_bytes(out, c->codec_name, TACITI_STATE_OWN, codec, bytes); /* another codec's means nothing */
    taciti_state_add(out, (taciti_state_entry){.name = "strategy.placement",
                                               .kind = TACITI_STATE_COUNT,
                                               .owner = TACITI_STATE_OWN,
                                               .data = &c->saved_placement,
                                               .optional = true});
    if (c->period_sum != NULL)
        taciti_state_add_array(out, "strategy.period_sum", TACITI_STATE_SHARED, TACITI_STATE_RESET, c->layout,
                               c->period_sum)
            ->optional = true;
}

static uint64_t digest_bytes(const void *bytes, size_t n) {
    const unsigned char *byte = bytes;
    uint64_t key = n;
    for (size_t i = 0; i < n; i++) key = taciti_rng_key(key, byte[i]);
    return key;
}

/* The values as they are written: the padding of structs is nobody's. NULL: no options. */
static uint64_t digest_options(const taciti_option_table *table, const void *values) {
    uint64_t key = 0;
    const taciti_section section = {.table = table, .values = (void *)(uintptr_t)values};
    const taciti_config config = {.sections = &section, .count = table == NULL || values == NULL ? 0 : 1};
    taciti_place place;
    for (size_t i = 0; taciti_config_at(&config, i, &place); i++) {
        char text[TACITI_VALUE_BYTES];
        (void)taciti_place_text(&place, text);
        key = taciti_rng_key(key, digest_bytes(text, strlen(text)));
    }
    return key;
}

static uint64_t digest_buckets(const taciti_layout *layout) {
    uint64_t key = layout->bucket_count;
    for (size_t b = 0; b < layout->bucket_count; b++)
        key = taciti_rng_key(taciti_rng_key(key, layout->buckets[b].offset), layout->buckets[b].n);
    return key;
}

static void identify_controller(const taciti_compression *c, uint64_t out[TACITI_IDENTITY_PARTS]) {
    const taciti_codec *codec = c->encoding.codec;
    const void *options = c->setup.controller_options;
    const double factor = taciti_compression_keeps_factor(&c->setup) ? taciti_compression_asked_factor(&c->setup) : 0;
    out[0] = TACITI_ADAPT_VERSION;
    out[1] = digest_bytes(codec->name, strlen(codec->name));
    out[2] = digest_options(codec->options, c->encoding.options);
    out[3] = (uint64_t)taciti_comm_size(c->comm);
    out[4] = digest_buckets(c->layout);
    out[5] = taciti_rng_key(digest_options(c->controller->options, options), digest_bytes(&factor, sizeof factor));
}

/* Resets the controller, with a line on rank 0, unless the checkpoint's had the same identity: gains of another
 * run mean nothing, and neither do thresholds of factors that it chose. */
static void recognise_controller(taciti_compression *c, int64_t step) {
    static const char *const OTHERS[] = {"no state of it that this version reads",
                                         "another codec",
                                         "other options of the codec",
                                         "another number of ranks",
                                         "other buckets",
                                         "other options of it"};
    uint64_t identity[TACITI_IDENTITY_PARTS];
    size_t part = 0;
    identify_controller(c, identity);
    while (part < TACITI_IDENTITY_PARTS && identity[part] == c->saved_identity[part]) part++;
    memcpy(c->saved_identity, identity, sizeof identity);
    const bool measures = c->controller->measures;
    if (c->state_bytes == 0 || (part == TACITI_IDENTITY_PARTS && !measures) || step == 0) return;
    const bool told = measures && c->setup.gather_feedback; /* there may be hundreds of channels */
    if (taciti_comm_rank(c->comm) == 0 && !told)
        taciti_log(measures ? TACITI_LOG_INFO : TACITI_LOG_WARN, "resume: adapt.policy %s begins anew%s: %s%s",
                   c->controller->name, is_of_gathers(c) ? " for gathers" : "",
                   measures ? "it measures how fast these links are now" : "the checkpoint has ",
                   measures ? "" : OTHERS[part]);
    memset(c->state, 0, c->state_bytes);
    memset(c->factors, 0, c->layout->bucket_count * sizeof *c->factors);
    memset(c->sent, 0, sizeof c->sent);
    memset(c->tried, 0, sizeof c->tried);
    if (c->period_sum != NULL) memset(c->period_sum, 0, c->layout->n * sizeof *c->period_sum);
    start_controller(c);
}

/* Sets state that belongs to positions to zero: it was stored for other ranks or buckets. */
static void forget_positions(taciti_compression *c) {
    size_t bytes = 0;
    if (has_estimates(c) && taciti_comm_rank(c->comm) == 0)
        taciti_log(TACITI_LOG_WARN, "resume: the estimates of compress.what change begin anew, at zero: the checkpoint "
                                    "has none of this number of ranks and these buckets");
    void *codec = taciti_exchange_codec_state(c->exchange, &bytes);
    if (codec != NULL) memset(codec, 0, bytes);
    for (int i = 0; has_estimates(c) && i <= TACITI_RESIDUAL_MEMORY; i++) {
        float *estimate = taciti_exchange_residual(c->exchange, (taciti_residual_array)i);
        if (estimate != NULL) memset(estimate, 0, c->layout->n * sizeof *estimate);
    }
}

tacit_status taciti_compression_start(taciti_compression *c, int64_t step, bool restored) {
    if (c->encoding.codec != NULL) recognise_controller(c, step);
    taciti_compression_at(c, step);
    if (c->encoding.codec == NULL || step == 0) return TACIT_OK;
    double moved = !restored || c->saved_placement != c->placement ? 1 : 0;
    TACITI_TRY(taciti_comm_allreduce_f64(c->comm, &moved, 1, TACITI_OP_MAX));
    c->saved_placement = c->placement;
    if (moved > 0) forget_positions(c);
    taciti_exchange_restored(c->exchange, moved > 0);
    return TACIT_OK;
}

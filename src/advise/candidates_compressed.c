/* SPDX-License-Identifier: Apache-2.0
 *
 * Candidates whose traffic is compressed: as configured, and alternatives.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advise/candidates_build.h"
#include "exchange/route.h"

/* ---- what is configured ------------------------------------------------------------------------------------------ */

/* A controller that takes the codec or nothing. */
static bool adapts(const taciti_compression_setup *setup) {
    return setup->controller != NULL && setup->controller->switches;
}

/* Replaces a codec of several number formats by the one that is priced: the one at its factor; if a controller chooses,
 * the shortest, because others are taken where they cost hardly any time. */
static void resolve(const taciti_settings *settings, const taciti_compression_setup *setup, taciti_encoding *of) {
    if (of->codec == NULL) return;
    of->codec = taciti_codec_at(of->codec, adapts(setup) ? 0 : taciti_compression_asked_factor(setup));
    of->options = taciti_settings_options(settings, of->codec->options);
}

static void resolve_both(const taciti_settings *settings, taciti_compression_setup *setup) {
    const taciti_compression_setup gathers = taciti_compression_gather_setup(setup);
    resolve(settings, setup, &setup->sums);
    resolve(settings, &gathers, &setup->gathers);
}

/* What a setup compresses with; codec NULL: nothing. */
static taciti_plan_compression compression_of(const taciti_compression_setup *setup) {
    taciti_plan_compression c = {.encoding = taciti_compression_encoding(setup), .adapts = adapts(setup)};
    if (c.encoding.codec != NULL) c.uneven = taciti_compression_by_threshold(setup);
    return c;
}

/* compress.codec and its factors. */
static taciti_plan_compression configured_compression(const taciti_settings *settings) {
    taciti_compression_setup setup = taciti_settings_compression(settings);
    resolve_both(settings, &setup);
    return compression_of(&setup);
}

bool taciti_plan_compression_equal(const taciti_plan_compression *a, const taciti_plan_compression *b) {
    const taciti_encoding *of_a = &a->encoding, *of_b = &b->encoding;
    if (of_a->codec == NULL || of_a->codec != of_b->codec) return of_a->codec == of_b->codec;
    if (a->adapts != b->adapts) return false;
    const double x = taciti_plan_factor(a), y = taciti_plan_factor(b);
    return fabs(x - y) < 1e-9 * x && fabs(of_a->back.factor - of_b->back.factor) < 1e-9 * x;
}

/* Factor 1 of a codec that has a factor is dense. */
static bool sends_payloads(const taciti_codec *codec, double factor) {
    if (codec == NULL) return false;
    const double used = taciti_codec_setting_of(codec, (taciti_codec_setting){.factor = factor}).factor;
    return used == 0 || used > 1;
}

/* Whether sums are compressed as configured. */
static bool compresses(const taciti_settings *settings) {
    const taciti_plan_compression own = configured_compression(settings);
    return sends_payloads(own.encoding.codec, taciti_plan_factor(&own));
}

/* What order PARTS compresses with. */
static taciti_compression_setup setup_of_parts(const taciti_settings *settings) {
    taciti_compression_setup setup = taciti_settings_compression(settings);
    resolve_both(settings, &setup);
    const taciti_compression_setup gathers = taciti_compression_gather_setup(&setup);
    if (!sends_payloads(setup.sums.codec, taciti_compression_asked_factor(&setup))) setup.sums.codec = NULL;
    if (!sends_payloads(setup.gathers.codec, taciti_compression_asked_factor(&gathers))) setup.gathers.codec = NULL;
    return setup;
}

bool taciti_candidates_is_compressed(const taciti_settings *settings, const taciti_pattern *pattern) {
    if (pattern->order != TACITI_ORDER_PARTS) return compresses(settings);
    const taciti_compression_setup setup = setup_of_parts(settings);
    return setup.sums.codec != NULL || setup.gathers.codec != NULL;
}

/* ---- compression ------------------------------------------------------------------------------------------------- */

static taciti_candidate *append_compression(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                            const taciti_pattern *pattern, const taciti_plan_compression *compression) {
    char caution[TACITI_CAUTION_BYTES];
    taciti_method method = {.order = pattern->order,
                            .wire = taciti_exchange_wire(&b->settings->exchange),
                            .compression = *compression,
                            .overlap = b->settings->exchange.overlap,
                            .every = pattern->every};
    taciti_method_label(pattern, &method);
    taciti_candidate *c = taciti_candidates_append(b->out, strategy->name, "", &method);
    if (c != NULL) c->caution = taciti_method_caution(&method, caution, sizeof caution);
    return c;
}

/* What compress.codec auto is, whatever is configured. */
static taciti_compression_setup automatic_sums(const taciti_settings *settings) {
    taciti_settings other = *settings; /* borrows the sections */
    other.compress.codec = (taciti_text){"auto"};
    other.adapt.policy = (taciti_text){"fixed"};
    taciti_compression_setup setup = taciti_settings_compression(&other);
    setup.options = &settings->compress;
    resolve_both(settings, &setup);
    return setup;
}

static void append_automatic(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                             const taciti_pattern *pattern, const taciti_plan_compression *own) {
    const taciti_compression_setup setup = automatic_sums(b->settings);
    const taciti_plan_compression c = compression_of(&setup);
    if (!taciti_plan_compression_equal(&c, own)) (void)append_compression(b, strategy, pattern, &c);
}

/* The configured codec, compress.codec auto, then others that results recommend, at a few factors. Number formats are
 * wires; the union that sizes a sketch is not known before a run; formats that a factor chooses have rows of their own.
 */
static void append_compressions(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                const taciti_pattern *pattern) {
    static const double FACTORS[] = {10, 100, 1000};
    const taciti_plan_compression own = configured_compression(b->settings);
    if (compresses(b->settings)) {
        taciti_candidate *c = append_compression(b, strategy, pattern, &own);
        if (c != NULL) c->configured = pattern->configured && strategy == taciti_settings_strategy(b->settings);
    }
    append_automatic(b, strategy, pattern, &own);
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        const taciti_compression_setup setup = {
            .sums = {.codec = *codec, .options = taciti_settings_options(b->settings, (*codec)->options)},
            .options = &b->settings->compress};
        taciti_plan_compression c = compression_of(&setup);
        if (!taciti_codec_suits(*codec, TACITI_USE_BY_ITSELF) || !taciti_route_of(*codec)->probed) continue;
        c.encoding.back.factor = 0;
        for (size_t i = 0; i < sizeof FACTORS / sizeof *FACTORS; i++) {
            c.encoding.expected = taciti_codec_setting_of(*codec, (taciti_codec_setting){.factor = FACTORS[i]});
            if (!taciti_plan_compression_equal(&c, &own)) (void)append_compression(b, strategy, pattern, &c);
            if (taciti_plan_factor(&c) == 1) break; /* it sends all elements at any factor */
        }
    }
}

/* ---- compression in parts ---------------------------------------------------------------------------------------- */

static taciti_candidate *append_parts(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                      const taciti_pattern *pattern, const taciti_compression_setup *setup) {
    taciti_compression_setup sums = *setup, gathers = taciti_compression_gather_setup(setup);
    char caution[TACITI_CAUTION_BYTES];
    sums.phase = pattern->parts.replicas ? TACITI_PHASE_REDUCE_TO_LANES : TACITI_PHASE_REDUCE_SCATTER;
    taciti_method method = {.order = pattern->order,
                            .wire = taciti_exchange_wire(&b->settings->exchange),
                            .compression = compression_of(&sums),
                            .gather = compression_of(&gathers),
                            .overlap = b->settings->exchange.overlap,
                            .every = pattern->every,
                            .parts = pattern->parts};
    taciti_method_label(pattern, &method);
    taciti_candidate *c = taciti_candidates_append(b->out, strategy->name, "", &method);
    if (c != NULL) c->caution = taciti_method_caution(&method, caution, sizeof caution);
    return c;
}

/* What compress.codec auto is with this pattern. */
static taciti_compression_setup automatic_parts(const taciti_settings *settings, const taciti_pattern *pattern) {
    taciti_compression_setup setup = automatic_sums(settings);
    setup.gathers.codec = pattern->parts.automatic;
    resolve_both(settings, &setup);
    return setup;
}

static bool is_same_setup(const taciti_compression_setup *a, const taciti_compression_setup *b) {
    return a->sums.codec == b->sums.codec && a->gathers.codec == b->gathers.codec && a->controller == b->controller;
}

/* What is configured, and compress.codec auto in every stage. */
static void append_compressed_parts(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                    const taciti_pattern *pattern) {
    const taciti_compression_setup own = setup_of_parts(b->settings);
    const taciti_compression_setup automatic = automatic_parts(b->settings, pattern);
    const bool ours = pattern->configured && strategy == taciti_settings_strategy(b->settings);
    if (ours && (own.sums.codec != NULL || own.gathers.codec != NULL)) {
        taciti_candidate *c = append_parts(b, strategy, pattern, &own);
        if (c != NULL) c->configured = true;
        if (is_same_setup(&own, &automatic)) return;
    }
    if (taciti_codec_narrow_name(pattern->parts.gather) == NULL) (void)append_parts(b, strategy, pattern, &automatic);
}

void taciti_candidates_compress(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                const taciti_pattern *pattern) {
    if (pattern->order == TACITI_ORDER_PARTS)
        append_compressed_parts(b, strategy, pattern);
    else
        append_compressions(b, strategy, pattern);
}

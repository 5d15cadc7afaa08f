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

static double gather_factor(const taciti_compress_options *o) { return o->back > 0 ? o->back : o->factor; }

/* The numbers that a setup sends. Where a controller chooses among them, the shortest: it takes others where that costs
 * hardly any time. */
static void resolve(const taciti_settings *settings, taciti_compression_setup *setup) {
    if (setup->codec != NULL) {
        setup->codec = taciti_codec_at(setup->codec, adapts(setup) ? 0 : setup->options->factor);
        setup->codec_options = taciti_settings_options(settings, setup->codec->options);
    }
    if (setup->gather != NULL) {
        setup->gather = taciti_codec_at(setup->gather, adapts(setup) ? 0 : gather_factor(setup->options));
        setup->gather_options = taciti_settings_options(settings, setup->gather->options);
    }
}

/* What a setup compresses with; codec NULL: nothing. */
static taciti_plan_compression compression_of(const taciti_compression_setup *setup) {
    taciti_plan_compression c = {.adapts = adapts(setup)};
    if (setup->codec == NULL) return c;
    c.encoding = taciti_compression_encoding(setup);
    c.uneven = taciti_compression_by_threshold(setup);
    return c;
}

/* compress.codec and its factors. */
static taciti_plan_compression configured_compression(const taciti_settings *settings) {
    taciti_compression_setup setup = taciti_settings_compression(settings);
    resolve(settings, &setup);
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
    const double used = taciti_codec_setting_of(codec, (taciti_codec_setting){.factor = factor}).factor;
    return used == 0 || used > 1;
}

/* Whether sums are compressed as configured. */
static bool compresses(const taciti_settings *settings) {
    const taciti_plan_compression own = configured_compression(settings);
    return own.encoding.codec != NULL && sends_payloads(own.encoding.codec, taciti_plan_factor(&own));
}

/* What order PARTS compresses with. */
static taciti_compression_setup setup_of_parts(const taciti_settings *settings) {
    taciti_compression_setup setup = taciti_settings_compression(settings);
    resolve(settings, &setup);
    if (setup.codec != NULL && !sends_payloads(setup.codec, setup.options->factor)) setup.codec = NULL;
    if (setup.gather != NULL && !sends_payloads(setup.gather, gather_factor(setup.options))) setup.gather = NULL;
    return setup;
}

bool taciti_candidates_is_compressed(const taciti_settings *settings, const taciti_pattern *pattern) {
    if (pattern->order != TACITI_ORDER_PARTS) return compresses(settings);
    const taciti_compression_setup setup = setup_of_parts(settings);
    return setup.codec != NULL || setup.gather != NULL;
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
    resolve(settings, &setup);
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
        const taciti_compression_setup setup = {.codec = *codec,
                                                .codec_options =
                                                    taciti_settings_options(b->settings, (*codec)->options),
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
    taciti_compress_options options;
    taciti_compression_setup sums = *setup, gathers = taciti_compression_gather_setup(setup, &options);
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
    setup.gather = pattern->parts.automatic;
    resolve(settings, &setup);
    return setup;
}

static bool is_same_setup(const taciti_compression_setup *a, const taciti_compression_setup *b) {
    return a->codec == b->codec && a->gather == b->gather && a->controller == b->controller;
}

/* What is configured, and compress.codec auto in every stage. */
static void append_compressed_parts(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                    const taciti_pattern *pattern) {
    const taciti_compression_setup own = setup_of_parts(b->settings);
    const taciti_compression_setup automatic = automatic_parts(b->settings, pattern);
    const bool ours = pattern->configured && strategy == taciti_settings_strategy(b->settings);
    if (ours && (own.codec != NULL || own.gather != NULL)) {
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

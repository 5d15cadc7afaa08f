/* SPDX-License-Identifier: Apache-2.0
 *
 * Candidates whose traffic is compressed: as configured, and alternatives.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/candidates_build.h"

/* ---- what is configured ------------------------------------------------------------------------------------------ */

/* The value of a key of the section `compress`, or NULL. */
static const void *compress_value(const taciti_settings *settings, const char *key) {
    taciti_place place;
    return taciti_config_find(&settings->config, key, &place) ? place.value : NULL;
}

/* compress.scope: 0 is `model`. */
static bool is_uneven(const taciti_settings *settings, const taciti_codec *codec) {
    const int *scope = compress_value(settings, "compress.scope");
    return codec->thresholds && scope != NULL && *scope == 0;
}

/* What a rank keeps of its encodings, as strategies open their exchange (strategy/compression.c). */
static taciti_feedback feedback_of(const taciti_settings *settings, const taciti_codec *codec) {
    const taciti_compress_options *o = &settings->compress;
    return (taciti_feedback){.errors = o->feedback && !o->estimate && !codec->lossless,
                             .decay = o->decay,
                             .momentum = o->momentum,
                             .estimates = o->estimate,
                             .stored = (taciti_residual_form)o->residual};
}

/* A controller that takes the codec or nothing. */
static bool adapts(const taciti_compression_setup *setup) {
    return setup->controller != NULL && setup->controller->switches;
}

static double gather_factor(const taciti_compress_options *o) { return o->back > 0 ? o->back : o->factor; }

/* The numbers that a setup sends. Where a controller chooses among them, the shortest: it takes others where that costs
 * hardly any time. */
static void resolve(const taciti_settings *settings, taciti_compression_setup *setup) {
    if (setup->codec != NULL && setup->codec->rungs != NULL) {
        setup->codec = taciti_codec_at(setup->codec, adapts(setup) ? 0 : setup->options->factor);
        setup->codec_options = taciti_settings_options(settings, setup->codec->options);
    }
    if (setup->gather != NULL && setup->gather->rungs != NULL) {
        setup->gather = taciti_codec_at(setup->gather, adapts(setup) ? 0 : gather_factor(setup->options));
        setup->gather_options = taciti_settings_options(settings, setup->gather->options);
    }
}

/* compress.codec and its factors; codec NULL: none is configured. */
static taciti_plan_compression configured_compression(const taciti_settings *settings) {
    taciti_compression_setup setup = taciti_settings_compression(settings);
    const double *factor = compress_value(settings, "compress.factor"),
                 *back = compress_value(settings, "compress.back");
    const int *way = compress_value(settings, "compress.collective");
    resolve(settings, &setup);
    taciti_plan_compression c = {.codec = setup.codec, .adapts = adapts(&setup)};
    if (c.codec == NULL) return c;
    c.options = taciti_settings_options(settings, c.codec->options);
    c.feedback = feedback_of(settings, c.codec);
    if (factor != NULL && c.codec->selects) c.forth.factor = *factor;
    if (back != NULL && c.codec->selects) c.back.factor = *back;
    if (way != NULL) c.way = (taciti_way)*way;
    c.uneven = is_uneven(settings, c.codec);
    return c;
}

bool taciti_plan_compression_equal(const taciti_plan_compression *a, const taciti_plan_compression *b) {
    if (a->codec == NULL || a->codec != b->codec) return a->codec == b->codec;
    if (a->adapts != b->adapts) return false;
    const double x = taciti_plan_factor(a), y = taciti_plan_factor(b);
    return fabs(x - y) < 1e-9 * x && fabs(a->back.factor - b->back.factor) < 1e-9 * x;
}

/* Whether sums are compressed as configured; factor 1 is dense. */
static bool compresses(const taciti_settings *settings) {
    const taciti_plan_compression own = configured_compression(settings);
    return own.codec != NULL && (!own.codec->selects || taciti_plan_factor(&own) > 1);
}

/* What order PARTS compresses with; factor 1 is dense. */
static taciti_compression_setup setup_of_parts(const taciti_settings *settings) {
    taciti_compression_setup setup = taciti_settings_compression(settings);
    resolve(settings, &setup);
    if (setup.codec != NULL && setup.codec->selects && setup.options->factor <= 1) setup.codec = NULL;
    if (setup.gather != NULL && setup.gather->selects && gather_factor(setup.options) <= 1) setup.gather = NULL;
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
    const taciti_plan_compression c = {.codec = setup.codec,
                                       .options = setup.codec_options,
                                       .feedback = feedback_of(b->settings, setup.codec),
                                       .way = own->way,
                                       .adapts = true};
    if (!taciti_plan_compression_equal(&c, own)) (void)append_compression(b, strategy, pattern, &c);
}

/* The configured codec, compress.codec auto, then every other one at a few factors. Number formats are wires; the union
 * that sizes a sketch is not known before a run; formats that a factor chooses have rows of their own. */
static void append_compressions(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                const taciti_pattern *pattern) {
    static const double FACTORS[] = {10, 100, 1000};
    const taciti_plan_compression own = configured_compression(b->settings);
    if (compresses(b->settings)) {
        taciti_candidate *c = append_compression(b, strategy, pattern, &own);
        if (c != NULL) c->configured = pattern->configured && strategy == taciti_settings_strategy(b->settings);
    }
    append_automatic(b, strategy, pattern, &own);
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        for (size_t i = 0; i < sizeof FACTORS / sizeof *FACTORS; i++) {
            taciti_plan_compression c = {.codec = *codec,
                                         .options = taciti_settings_options(b->settings, (*codec)->options),
                                         .feedback = feedback_of(b->settings, *codec),
                                         .way = own.way,
                                         .uneven = is_uneven(b->settings, *codec)};
            if (taciti_codec_is_dense(*codec) || (*codec)->sketches || (*codec)->rungs != NULL) continue;
            if (!(*codec)->selects && i > 0) continue;
            if ((*codec)->selects) c.forth.factor = FACTORS[i];
            if (!taciti_plan_compression_equal(&c, &own)) (void)append_compression(b, strategy, pattern, &c);
        }
}

/* ---- compression in parts ---------------------------------------------------------------------------------------- */

static taciti_candidate *append_parts(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                      const taciti_pattern *pattern, const taciti_compression_setup *setup) {
    const taciti_compress_options *o = setup->options;
    char caution[TACITI_CAUTION_BYTES];
    taciti_method method = {
        .order = pattern->order,
        .wire = taciti_exchange_wire(&b->settings->exchange),
        .compression = {.codec = setup->codec, .options = setup->codec_options, .adapts = adapts(setup)},
        .gather = {.codec = setup->gather, .options = setup->gather_options, .adapts = adapts(setup)},
        .overlap = b->settings->exchange.overlap,
        .every = pattern->every,
        .parts = pattern->parts};
    if (setup->codec != NULL) {
        method.compression.feedback = feedback_of(b->settings, setup->codec);
        method.compression.feedback.half = !pattern->parts.replicas;
        method.compression.uneven = is_uneven(b->settings, setup->codec);
        if (setup->codec->selects) method.compression.forth.factor = o->factor;
        if (setup->codec->selects && pattern->parts.replicas) method.compression.back.factor = o->back;
    }
    if (setup->gather != NULL && setup->gather->selects) method.gather.forth.factor = gather_factor(o);
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
    if (pattern->parts.gather->identity) (void)append_parts(b, strategy, pattern, &automatic);
}

void taciti_candidates_compress(const taciti_candidates_builder *b, const taciti_strategy *strategy,
                                const taciti_pattern *pattern) {
    if (pattern->order == TACITI_ORDER_PARTS)
        append_compressed_parts(b, strategy, pattern);
    else
        append_compressions(b, strategy, pattern);
}

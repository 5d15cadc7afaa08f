/* SPDX-License-Identifier: Apache-2.0
 *
 * Candidates whose traffic is compressed: as configured, and alternatives.
 */
#include <math.h>

#include "advise/candidates_build.h"

/* ---- what is configured ------------------------------------------------------------------------------------------ */

/* A controller that takes the codec or nothing. */
static bool is_adaptive(const taciti_compression_setup *setup) {
    return setup->controller != NULL && setup->controller->switches;
}

/* The shortest form of a codec of several, or of those that send all elements: a controller takes others where that
 * costs hardly any time. NULL: the codec has no choice. */
static const taciti_codec_rung *form_of(const taciti_compression_setup *setup, const taciti_codec *codec,
                                        bool selecting) {
    if (codec->rungs == NULL) return NULL;
    if (is_adaptive(setup)) return taciti_codec_rung_within(codec, setup->options->loss, selecting);
    return taciti_codec_rung_at(codec, taciti_compression_asked_factor(setup));
}

/* Returns the compression of a setup; codec NULL: none. selecting: a controller may choose forms that select elements.
 */
static taciti_plan_compression compression_of(const taciti_compression_setup *setup, bool selecting) {
    taciti_plan_compression c = {.encoding = taciti_compression_encoding(setup), .adapts = is_adaptive(setup)};
    if (c.encoding.codec == NULL) return c;
    c.uneven = taciti_compression_by_threshold(setup);
    const taciti_codec_rung *form = form_of(setup, c.encoding.codec, selecting);
    if (form == NULL) return c;
    c.automatic = c.adapts;
    c.encoding.codec = form->codec;
    c.encoding.options = form->options;
    c.encoding.expected = (taciti_codec_setting){.factor = form->selects};
    c.encoding.back = (taciti_codec_setting){.factor = 0};
    return c;
}

bool taciti_plan_compression_equal(const taciti_plan_compression *a, const taciti_plan_compression *b) {
    const taciti_encoding *of_a = &a->encoding, *of_b = &b->encoding;
    if (of_a->codec == NULL || of_a->codec != of_b->codec) return of_a->codec == of_b->codec;
    if (a->adapts != b->adapts) return false;
    const double x = taciti_plan_factor(a), y = taciti_plan_factor(b);
    return fabs(x - y) < 1e-9 * x && fabs(of_a->back.factor - of_b->back.factor) < 1e-9 * x;
}

/* Returns the configured setup, without codecs of which no payload is sent. */
static taciti_compression_setup setup_in_use(const taciti_settings *settings) {
    taciti_compression_setup setup = taciti_settings_compression(settings);
    const taciti_compression_setup gathers = taciti_compression_gather_setup(&setup);
    if (!taciti_compression_sends_payloads(&setup)) setup.sums.codec = NULL;
    if (!taciti_compression_sends_payloads(&gathers)) setup.gathers.codec = NULL;
    return setup;
}

bool taciti_candidates_is_compressed(const taciti_settings *settings, const taciti_pattern *pattern) {
    const taciti_compression_setup setup = setup_in_use(settings);
    return setup.sums.codec != NULL || (pattern->order == TACITI_ORDER_PARTS && setup.gathers.codec != NULL);
}

/* ---- compression ------------------------------------------------------------------------------------------------- */

static const taciti_plan_compression NONE = {.adapts = false};

static taciti_candidate *append_compression(const taciti_candidates_builder *b, const taciti_plan_compression *sums,
                                            const taciti_plan_compression *gathers) {
    const taciti_pattern *pattern = b->pattern;
    char caution[TACITI_CAUTION_BYTES];
    taciti_method method = {.order = pattern->order,
                            .wire = taciti_exchange_wire(&b->settings->exchange),
                            .compression = *sums,
                            .gather = *gathers,
                            .overlap = b->settings->exchange.overlap,
                            .every = pattern->every,
                            .parts = pattern->parts};
    taciti_method_label(pattern, &method);
    taciti_candidate *c = taciti_candidates_append(b->out, b->strategy->name, "", &method);
    if (c != NULL) c->caution = taciti_method_caution(&method, caution, sizeof caution);
    return c;
}

/* Returns the setup that compress.codec auto stands for, whatever is configured. */
static taciti_compression_setup automatic_sums(const taciti_settings *settings) {
    taciti_settings other = *settings; /* borrows the sections */
    other.compress.codec = (taciti_text){"auto"};
    other.adapt.policy = (taciti_text){"fixed"};
    taciti_compression_setup setup = taciti_settings_compression(&other);
    setup.options = &settings->compress;
    return setup;
}

/* Appends a setup twice: where a controller selects no elements, and where it may. */
static void append_forms(const taciti_candidates_builder *b, const taciti_compression_setup *setup, bool configured) {
    const bool parts = b->pattern->order == TACITI_ORDER_PARTS;
    taciti_compression_setup sums = *setup, gathers = taciti_compression_gather_setup(setup);
    const taciti_plan_compression all = compression_of(setup, false), some = compression_of(setup, true);
    const int forms = taciti_plan_compression_equal(&all, &some) ? 1 : 2;
    if (parts) sums.phase = b->pattern->parts.replicas ? TACITI_PHASE_REDUCE_TO_LANES : TACITI_PHASE_REDUCE_SCATTER;
    for (int selecting = 0; selecting < forms; selecting++) {
        const taciti_plan_compression sent = compression_of(&sums, selecting);
        const taciti_plan_compression gathered = parts ? compression_of(&gathers, selecting) : NONE;
        taciti_candidate *c = append_compression(b, &sent, &gathered);
        if (c != NULL) c->configured = configured;
    }
}

/* The configured codec, compress.codec auto, then others that results recommend, at a few factors. Number formats are
 * wires; the union that sizes a sketch is not known before a run; forms that a factor chooses have rows of their own.
 */
static void append_compressions(const taciti_candidates_builder *b) {
    static const double FACTORS[] = {10, 100, 1000};
    const taciti_compression_setup configured = setup_in_use(b->settings), automatic = automatic_sums(b->settings);
    const taciti_plan_compression own = compression_of(&configured, true), other = compression_of(&automatic, true);
    if (configured.sums.codec != NULL) append_forms(b, &configured, b->ours && b->pattern->configured);
    if (!taciti_plan_compression_equal(&own, &other)) append_forms(b, &automatic, false);
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        const taciti_compression_setup setup = {
            .sums = {.codec = *codec, .options = taciti_settings_options(b->settings, (*codec)->options)},
            .options = &b->settings->compress};
        taciti_plan_compression c = compression_of(&setup, false);
        if (!taciti_codec_suits(*codec, TACITI_USE_BY_ITSELF) || !taciti_plan_can_price(*codec)) continue;
        c.encoding.back.factor = 0;
        for (size_t i = 0; i < sizeof FACTORS / sizeof *FACTORS; i++) {
            c.encoding.expected = taciti_codec_setting_of(*codec, (taciti_codec_setting){.factor = FACTORS[i]});
            if (!taciti_plan_compression_equal(&c, &own)) (void)append_compression(b, &c, &NONE);
            if (taciti_plan_factor(&c) == 1) break; /* it sends all elements at any factor */
        }
    }
}

/* ---- compression in parts ---------------------------------------------------------------------------------------- */

/* Appends the configured compression, and compress.codec auto in every stage. */
static void append_compressed_parts(const taciti_candidates_builder *b) {
    const taciti_compression_setup own = setup_in_use(b->settings);
    taciti_compression_setup automatic = automatic_sums(b->settings); /* compress.codec auto with this pattern */
    automatic.gathers.codec = b->pattern->parts.automatic;
    if (b->ours && b->pattern->configured && (own.sums.codec != NULL || own.gathers.codec != NULL)) {
        append_forms(b, &own, true);
        if (own.sums.codec == automatic.sums.codec && own.gathers.codec == automatic.gathers.codec &&
            own.controller == automatic.controller)
            return;
    }
    if (taciti_codec_narrow_name(b->pattern->parts.gather) == NULL) append_forms(b, &automatic, false);
}

void taciti_candidates_compress(const taciti_candidates_builder *b) {
    if (b->pattern->order == TACITI_ORDER_PARTS)
        append_compressed_parts(b);
    else
        append_compressions(b);
}

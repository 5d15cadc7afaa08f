/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "settings/settings.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "tensor/choice.h"

static const taciti_option STRATEGY_OPTIONS[] = {
    TACITI_OPTION("strategy", NAME, 0, "dp", .names = taciti_strategy_name,
                  .help = "what is exchanged and when; `tacit info strategies` lists them"),
};
const taciti_option_table taciti_strategy_option_table =
    TACITI_OPTION_TABLE("", "how the ranks work together", STRATEGY_OPTIONS);

/* ---- what registries bring --------------------------------------------------------------------------------------- */

typedef struct registered {
    const taciti_option_table *table;
    size_t bytes; /* of its values, up to the next table's */
} registered;

typedef enum registry { STRATEGIES, CODECS, CONTROLLERS, REGISTRIES } registry;

/* Sets *out to the index-th table of a registry. Returns false behind the last. */
static bool table_at(registry of, size_t index, registered *out) {
    const size_t unit = alignof(max_align_t); /* values of the next table begin aligned for any member */
    for (size_t i = 0;; i++) {
        const taciti_strategy *strategy = of == STRATEGIES ? taciti_strategy_list()[i] : NULL;
        const taciti_codec *codec = of == CODECS ? taciti_codec_list()[i] : NULL;
        const taciti_controller *controller = of == CONTROLLERS ? taciti_controller_list()[i] : NULL;
        if (strategy == NULL && codec == NULL && controller == NULL) return false;
        if (strategy != NULL) *out = (registered){strategy->options, strategy->options_size};
        if (codec != NULL) *out = (registered){codec->options, codec->options_size};
        if (controller != NULL) *out = (registered){controller->options, controller->options_size};
        out->bytes = (out->bytes + unit - 1) / unit * unit;
        if (out->table != NULL && index-- == 0) return true;
    }
}

bool taciti_settings_registered(const taciti_option_table *table) {
    registered r;
    for (registry of = 0; of < REGISTRIES; of++)
        for (size_t i = 0; table_at(of, i, &r); i++)
            if (r.table == table) return true;
    return false;
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

typedef struct own_sections {
    const taciti_own_section *list;
    size_t count;
} own_sections;

static void append_section(taciti_settings *s, const own_sections *own, const taciti_option_table *table,
                           void *values) {
    for (size_t i = 0; i < own->count; i++)
        if (own->list[i].before == table) s->sections[s->config.count++] = own->list[i].section;
    s->sections[s->config.count++] = (taciti_section){.table = table, .values = values};
}

/* Returns the place of the values behind these. */
static char *append_registered(taciti_settings *s, const own_sections *own, registry of, char *values) {
    registered r;
    for (size_t i = 0; table_at(of, i, &r); values += r.bytes, i++) append_section(s, own, r.table, values);
    return values;
}

static void compose_sections(taciti_settings *s, const own_sections *own) {
    char *values = s->registered;
    append_section(s, own, &taciti_strategy_option_table, &s->strategy);
    append_section(s, own, &taciti_model_option_table, &s->model);
    append_section(s, own, &taciti_optim_option_table, &s->optim);
    append_section(s, own, &taciti_exchange_option_table, &s->exchange);
    values = append_registered(s, own, STRATEGIES, values);
    append_section(s, own, &taciti_compress_option_table, &s->compress);
    values = append_registered(s, own, CODECS, values);
    append_section(s, own, &taciti_adapt_option_table, &s->adapt);
    (void)append_registered(s, own, CONTROLLERS, values);
    append_section(s, own, &taciti_comm_option_table, &s->comm);
    append_section(s, own, &taciti_compute_option_table, &s->compute);
    s->config.sections = s->sections;
}

tacit_status taciti_settings_init(taciti_settings *settings, const taciti_own_section *own, size_t count) {
    enum { FIXED = 8 };
    const own_sections mine = {own, count};
    size_t bytes = 1, tables = 0, options = 0;
    registered r;
    for (registry of = 0; of < REGISTRIES; of++)
        for (size_t i = 0; table_at(of, i, &r); i++, tables++) bytes += r.bytes;
    memset(settings, 0, sizeof *settings);
    settings->registered = taciti_calloc(bytes, 1);
    settings->sections = taciti_calloc(FIXED + tables + count, sizeof *settings->sections);
    if (settings->registered == NULL || settings->sections == NULL) return TACIT_E_MEMORY;
    compose_sections(settings, &mine);
    for (size_t i = 0; i < settings->config.count; i++) options += settings->sections[i].table->count;
    taciti_given *given = settings->given = taciti_calloc(options, sizeof *given);
    if (given == NULL) return TACIT_E_MEMORY;
    for (taciti_section *s = settings->sections; s < settings->sections + settings->config.count; s++) {
        s->given = given;
        given += s->table->count;
    }
    return taciti_config_defaults(&settings->config);
}

/* Texts of values read back as the same values, but for lists of words with blanks, which no job reads. */
tacit_status taciti_settings_copy(const taciti_settings *from, taciti_settings *out) {
    taciti_place theirs, mine;
    TACITI_TRY(taciti_settings_init(out, NULL, 0));
    for (size_t i = 0; taciti_config_at(&from->config, i, &theirs) && taciti_config_at(&out->config, i, &mine); i++) {
        char *text = taciti_place_whole_text(&theirs);
        const tacit_status status =
            text == NULL ? TACIT_E_MEMORY : taciti_value_set(mine.option, mine.option->key, text, mine.value);
        taciti_free(text);
        TACITI_TRY(status);
        *mine.given = *theirs.given;
    }
    return TACIT_OK;
}

void taciti_settings_destroy(taciti_settings *settings) {
    taciti_config_destroy(&settings->config);
    taciti_free(settings->sections);
    taciti_free(settings->registered);
    taciti_free(settings->given);
    settings->config = (taciti_config){0};
    settings->sections = NULL;
    settings->registered = NULL;
    settings->given = NULL;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

const taciti_strategy *taciti_settings_strategy(const taciti_settings *settings) {
    return taciti_strategy_find(settings->strategy.text);
}

const void *taciti_settings_options(const taciti_settings *settings, const taciti_option_table *table) {
    for (size_t i = 0; i < settings->config.count && table != NULL; i++)
        if (settings->sections[i].table == table) return settings->sections[i].values;
    return NULL;
}

/* compress.codec auto stands for this codec, which costs no accuracy on any network that was measured (docs/results).
 */
#define AUTO_CODEC "mixed"
#define AUTO_POLICY "payoff"

static bool is_auto(const taciti_text *text) { return strcmp(text->text, "auto") == 0; }

/* Returns the codec that compress.codec auto means for gathers of parameters, which is a matter of the pattern. */
static const taciti_codec *automatic_gather(const taciti_settings *settings, const taciti_strategy *strategy) {
    taciti_pattern patterns[TACITI_PATTERNS_MAX];
    size_t count = 0, i = 0;
    if (strategy->units == NULL ||
        strategy->patterns(taciti_settings_options(settings, strategy->options), NULL, patterns, &count) != TACIT_OK)
        return NULL;
    while (i < count && !patterns[i].configured) i++;
    return i < count ? patterns[i].parts.automatic : NULL;
}

/* codec NULL: none. */
static taciti_encoding encoding_by(const taciti_settings *settings, const taciti_codec *codec) {
    return (taciti_encoding){.codec = codec,
                             .options = codec == NULL ? NULL : taciti_settings_options(settings, codec->options)};
}

static taciti_compression_setup compression_of(const taciti_settings *settings, const taciti_strategy *strategy) {
    const bool chosen = is_auto(&settings->compress.codec) && !taciti_strategy_mixes_only(strategy);
    const taciti_codec *codec = taciti_codec_find(chosen ? AUTO_CODEC : settings->compress.codec.text);
    const taciti_codec *gather = taciti_codec_find(settings->compress.gather.text);
    if (is_auto(&settings->compress.gather)) gather = chosen ? automatic_gather(settings, strategy) : NULL;
    const taciti_codec *mixes = NULL;
    if (strategy->codec != NULL)
        mixes = taciti_codec_find(
            strategy->codec(taciti_settings_options(settings, strategy->options), is_auto(&settings->compress.codec)));
    taciti_compression_setup setup = {.sums = encoding_by(settings, codec),
                                      .gathers = encoding_by(settings, gather),
                                      .mixes = encoding_by(settings, mixes),
                                      .options = &settings->compress,
                                      .controller = taciti_controller_find(settings->adapt.policy.text)};
    if (chosen && taciti_compression_is_fixed(&setup)) setup.controller = taciti_controller_find(AUTO_POLICY);
    if (setup.controller != NULL)
        setup.controller_options = taciti_settings_options(settings, setup.controller->options);
    return setup;
}

taciti_compression_setup taciti_settings_compression(const taciti_settings *settings) {
    return compression_of(settings, taciti_settings_strategy(settings));
}

taciti_compression_setup taciti_settings_sums(const taciti_settings *settings) {
    taciti_compression_setup setup = compression_of(settings, taciti_strategy_find("dp"));
    setup.gathers = setup.mixes = (taciti_encoding){.codec = NULL};
    return setup;
}

taciti_strategy_context taciti_settings_context(const taciti_settings *settings) {
    return (taciti_strategy_context){
        .optim_options = &settings->optim,
        .exchange_options = &settings->exchange,
        .compression = taciti_settings_compression(settings),
        .options = taciti_settings_options(settings, taciti_settings_strategy(settings)->options)};
}

/* ---- presets ----------------------------------------------------------------------------------------------------- */

enum { PRESET_BYTES = 512 };

/* Sets the keys of a codec's preset, or sets them back to the defaults of their tables. */
static tacit_status apply_preset(const taciti_settings *settings, const taciti_codec *codec, bool back) {
    char text[PRESET_BYTES], origin[PRESET_BYTES], *rest = NULL;
    if (codec == NULL || codec->preset == NULL) return TACIT_OK;
    (void)snprintf(text, sizeof text, "%s", codec->preset);
    (void)snprintf(origin, sizeof origin, "preset of codec %s", codec->name);
    for (char *key = strtok_r(text, " ", &rest); key != NULL; key = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(key, '=');
        if (value == NULL) return taciti_fail(TACIT_E_INTERNAL, "%s: \"%s\" has no value", origin, key);
        *value++ = '\0';
        TACITI_TRY(taciti_config_preset(&settings->config, key, back ? NULL : value, origin));
    }
    return TACIT_OK;
}

tacit_status taciti_settings_complete(taciti_settings *settings) {
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        TACITI_TRY(apply_preset(settings, *codec, true));
    const taciti_compression_setup setup = taciti_settings_compression(settings);
    TACITI_TRY(apply_preset(settings, setup.sums.codec, false));
    return setup.mixes.codec == setup.sums.codec ? TACIT_OK : apply_preset(settings, setup.mixes.codec, false);
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

tacit_status taciti_settings_mark_layers(const taciti_settings *settings, taciti_layout *layout) {
    const char *layers = settings->compress.layers.text;
    size_t compressed = 0;
    bool *chosen = taciti_calloc(layout->tensor_count + 1, sizeof *chosen);
    if (chosen == NULL) return TACIT_E_MEMORY;
    const tacit_status status = taciti_tensors_choose(layout, "compress.layers", layers, chosen);
    for (size_t t = 0; t < layout->tensor_count; t++) {
        layout->tensors[t].plain = !chosen[t];
        compressed += chosen[t];
    }
    taciti_free(chosen);
    if (status != TACIT_OK || compressed > 0) return status;
    return taciti_fail(TACIT_E_CONFIG, "compress.layers %s leaves nothing to compress: --compress.codec none", layers);
}

tacit_status taciti_settings_seal(const taciti_settings *settings, taciti_layout *layout) {
    const taciti_compression_setup setup = taciti_settings_compression(settings),
                                   gathers = taciti_compression_gather_setup(&setup);
    const bool has_layers = setup.sums.codec != NULL || setup.gathers.codec != NULL,
               sends = taciti_compression_sends_payloads(&setup) || taciti_compression_sends_payloads(&gathers),
               coded = sends || setup.mixes.codec != NULL;
    if (has_layers) TACITI_TRY(taciti_settings_mark_layers(settings, layout));
    for (size_t t = 0; t < layout->tensor_count && !sends; t++) layout->tensors[t].plain = false;
    const size_t bucket_bytes = taciti_exchange_bucket(&settings->exchange, layout, coded);
    return taciti_settings_strategy(settings)->units != NULL ? taciti_layout_seal_units(layout, bucket_bytes)
                                                             : taciti_layout_seal(layout, bucket_bytes);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* A warm-up that begins above its end would be cut there. */
static tacit_status check_start(const taciti_settings *settings) {
    const taciti_compress_options *o = &settings->compress;
    const taciti_compression_setup setup = taciti_settings_compression(settings);
    const bool fixed = taciti_compression_is_fixed(&setup);
    const bool rises = fixed && setup.sums.codec != NULL && taciti_codec_suits(setup.sums.codec, TACITI_USE_FACTORS);
    if (!rises || o->start <= o->factor) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "compress.start %g is above compress.factor %g, to which the warm-up rises: --compress.start 1, "
                       "or a larger factor",
                       o->start, o->factor);
}

/* Sums of votes on the direction of a step have no scale: only sums of gradients take them. `other`: the name of a
 * strategy that sums something else, or NULL. auto chooses by measured time; to keep every step the same takes a codec
 * with a name. */
static tacit_status check_codec(const taciti_settings *settings, const taciti_codec *codec, const char *other) {
    taciti_place policy;
    if (codec != NULL && !taciti_codec_suits(codec, TACITI_USE_MAGNITUDES) && other != NULL)
        return taciti_fail(
            TACIT_E_CONFIG,
            "compress.codec %s: ranks vote on the sign of every gradient, which strategy %s does not sum for "
            "all ranks: --strategy dp, or --compress.codec efsign",
            codec->name, other);
    if (!is_auto(&settings->compress.codec) || strcmp(settings->adapt.policy.text, "fixed") != 0 ||
        !taciti_config_find(&settings->config, "adapt.policy", &policy) || *policy.given != TACITI_GIVEN_TYPED)
        return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "adapt.policy fixed: compress.codec auto chooses by measured time: leave "
                                       "adapt.policy out, or name a codec, such as --compress.codec int4");
}

/* Controllers measure compressed sums over all ranks. */
static tacit_status check_policy(const taciti_compression_setup *setup, const taciti_strategy *strategy) {
    const bool chosen = setup->controller != NULL && !taciti_compression_is_fixed(setup);
    if (!chosen || strategy->compresses || setup->sums.codec != NULL) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "adapt.policy %s chooses how sums over all ranks are compressed, and strategy %s does not "
                       "compress any: --adapt.policy fixed, or --strategy dp",
                       setup->controller->name, strategy->name);
}

static tacit_status check_compression(const taciti_settings *settings, const taciti_strategy *strategy) {
    const taciti_compression_setup setup = taciti_settings_compression(settings);
    /* Differences between averages are no gradients, and owners of parts have no whole gradient. */
    const bool sums_gradients = strategy->replicas == NULL && strategy->units == NULL;
    TACITI_TRY(check_start(settings));
    TACITI_TRY(check_policy(&setup, strategy));
    TACITI_TRY(taciti_compression_check(&setup));
    if (setup.options->what == TACITI_SENDS_MOMENTUM && !sums_gradients)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.what momentum: strategy %s has no momentum of the whole model to send; "
                           "--compress.what gradient, or --strategy dp",
                           strategy->name);
    TACITI_TRY(taciti_compression_check_momentum(&setup, &settings->optim));
    if (setup.gathers.codec != NULL && strategy->units == NULL)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.gather %s: strategy %s gathers no parameters; leave it out, or --strategy shard",
                           setup.gathers.codec->name, strategy->name);
    const taciti_compression_setup gathers = taciti_compression_gather_setup(&setup);
    if (setup.gathers.codec != NULL) TACITI_TRY(taciti_compression_check(&gathers));
    if (strategy->compresses) return check_codec(settings, setup.sums.codec, sums_gradients ? NULL : strategy->name);
    if (setup.sums.codec == NULL) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "compress.codec %s: strategy %s does not compress%s; leave it out, or %s",
                       settings->compress.codec.text, strategy->name,
                       strategy->codec != NULL ? " sums over all ranks" : "",
                       strategy->codec != NULL ? "compress its mixes: --gossip.codec int4"
                                               : "choose a strategy that compresses: --strategy dp");
}

/* The planner prices all strategies: their options must be legal, too, whatever is compressed. */
static tacit_status check_others(const taciti_settings *settings, const taciti_hosts *hosts) {
    static const taciti_exchange_options EXCHANGE = {.overlap = true};
    const taciti_strategy *own = taciti_settings_strategy(settings);
    for (const taciti_strategy *const *s = taciti_strategy_list(); *s != NULL; s++) {
        const taciti_strategy_context context = {.follows_clock = true,
                                                 .optim_options = &settings->optim,
                                                 .exchange_options = &EXCHANGE,
                                                 .options = taciti_settings_options(settings, (*s)->options)};
        if (*s != own && (*s)->check != NULL) TACITI_TRY((*s)->check(&context, hosts));
    }
    return TACIT_OK;
}

tacit_status taciti_settings_check(const taciti_settings *settings, const taciti_hosts *hosts, taciti_reader reader) {
    const taciti_strategy *strategy = taciti_settings_strategy(settings);
    taciti_strategy_context context = taciti_settings_context(settings);
    context.own_optimizer = reader == TACITI_READER_OWN_OPTIMIZER;
    context.follows_clock = reader == TACITI_READER_TRAIN || reader == TACITI_READER_PLAN;
    TACITI_TRY(taciti_optim_check(&settings->optim));
    TACITI_TRY(check_compression(settings, strategy));
    if (strategy->check != NULL) TACITI_TRY(strategy->check(&context, hosts));
    return reader == TACITI_READER_PLAN ? check_others(settings, hosts) : TACIT_OK;
}

bool taciti_settings_label(const taciti_settings *settings, size_t index, taciti_place *out) {
    const taciti_strategy *strategy = taciti_settings_strategy(settings);
    char key[TACITI_KEY_BYTES];
    const char *word = strategy->label;
    for (; word != NULL && index > 0; index--) word = (word = strchr(word, ' ')) == NULL ? NULL : word + 1;
    if (word == NULL) return false;
    (void)snprintf(key, sizeof key, "%s.%.*s", strategy->options->section, (int)strcspn(word, " "), word);
    return taciti_config_find(&settings->config, key, out);
}

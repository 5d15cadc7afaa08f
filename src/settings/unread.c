/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that were given and that nothing reads. Every option has a condition under which it is read (base/option.h):
 * that of its row, that of its table, and for the sections of registries that their member is in use. A condition is
 * evaluated here, and put into words: what a user would have to type for the option to be read.
 */
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "exchange/route.h"
#include "settings/settings.h"
#include "strategy/gossip.h"

typedef struct inquiry {
    const taciti_settings *settings;
    taciti_reader reader;
    const taciti_place *place; /* of the option */
    const taciti_strategy *strategy;
    taciti_compression_setup setup;
} inquiry;

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* The planner prices every codec beside the configured one. */
static bool is_plan(const inquiry *q) { return q->reader == TACITI_READER_PLAN; }

/* Returns the parts of a setting that the codec reads; nothing without a codec. */
static taciti_codec_setting read_by(const taciti_encoding *encoding) {
    const taciti_codec_setting all = {.factor = 1, .threshold = 1}, none = {.factor = 0};
    return encoding->codec != NULL ? taciti_codec_setting_of(encoding->codec, all) : none;
}

static bool compresses_sums(const inquiry *q) { return q->setup.sums.codec != NULL || is_plan(q); }

static bool compresses_any(const inquiry *q) { return compresses_sums(q) || q->setup.gathers.codec != NULL; }

static bool is_lossy(const inquiry *q) {
    return compresses_sums(q) && (q->setup.sums.codec == NULL || taciti_compression_is_lossy(&q->setup));
}

static bool sums_by_factor(const inquiry *q) { return read_by(&q->setup.sums).factor > 0; }

static bool gathers_by_factor(const inquiry *q) { return read_by(&q->setup.gathers).factor > 0; }

static bool selects_elements(const inquiry *q) { return sums_by_factor(q) || gathers_by_factor(q); }

/* In gathers compress.back takes the place of compress.factor. With factor 1 every codec sends dense steps. */
static bool knows_factor(const inquiry *q) {
    const taciti_compress_options *o = q->setup.options;
    return sums_by_factor(q) || read_by(&q->setup.mixes).factor > 0 || (gathers_by_factor(q) && !(o->back > 0)) ||
           (q->setup.sums.codec != NULL && o->factor <= 1);
}

static bool keeps_factor(const inquiry *q) {
    const taciti_compression_setup *s = &q->setup, gathers = taciti_compression_gather_setup(s);
    return (s->sums.codec != NULL && taciti_compression_keeps_factor(s)) || s->mixes.codec != NULL ||
           (s->gathers.codec != NULL && !(s->options->back > 0) && taciti_compression_keeps_factor(&gathers));
}

static bool is_automatic(const inquiry *q) {
    return strcmp(q->settings->compress.codec.text, "auto") == 0 && !taciti_strategy_mixes_only(q->strategy);
}

static bool factor_rises(const inquiry *q) {
    const taciti_compression_setup *s = &q->setup;
    if (s->options->warmup >= 0) return s->options->warmup > 0;
    return s->controller == NULL || s->controller->state_bytes(1) == 0;
}

static bool returns_by_factor(const inquiry *q) {
    return gathers_by_factor(q) || (sums_by_factor(q) && taciti_route_of(q->setup.sums.codec)->results &&
                                    q->strategy->units == NULL && q->setup.options->collective != TACITI_WAY_GATHER);
}

static bool has_thresholds(const inquiry *q) {
    return is_plan(q) || read_by(&q->setup.sums).threshold > 0 || read_by(&q->setup.gathers).threshold > 0;
}

static bool chooses_whole(const inquiry *q) { return q->setup.controller == NULL || !q->setup.controller->per_bucket; }

static bool sends_payloads(const inquiry *q) {
    return compresses_sums(q) && (q->setup.sums.codec == NULL || !taciti_route_of(q->setup.sums.codec)->whole);
}

static bool sums_everywhere(const inquiry *q) { return is_plan(q) || q->strategy->units == NULL; }

static bool gathers_plainly(const inquiry *q) { return q->setup.gathers.codec == NULL; }

/* A file of training may describe the machine for the planner. */
static bool emulates_compute(const inquiry *q) {
    return is_plan(q) || *q->place->given == TACITI_GIVEN_IN_FILE ||
           (q->reader == TACITI_READER_BENCH && q->settings->compute.emulate.text[0] != '\0');
}

typedef struct fact {
    const char *name;
    bool (*holds)(const inquiry *q);
    const char *words;
} fact;

static const fact FACTS[] = {
    {"compressed", compresses_sums, "a compress.codec, such as --compress.codec topk"},
    {"compressed-any", compresses_any, "a compress.codec, such as --compress.codec topk"},
    {"lossy", is_lossy, "a compress.codec that loses something, such as --compress.codec topk"},
    {"selects", selects_elements, "a compress.codec that selects, such as --compress.codec topk"},
    {"factor", knows_factor, "a compress.codec that selects, such as --compress.codec topk"},
    {"fixed-factor", keeps_factor,
     "a factor that no controller chooses: --adapt.policy fixed, and not --compress.codec auto"},
    {"automatic", is_automatic, "--compress.codec auto"},
    {"rising", factor_rises, "a warm-up of the factor, such as --compress.warmup 200"},
    {"back", returns_by_factor,
     "a compress.codec that selects and whose sums it sends back, such as --compress.codec topk, and not "
     "--compress.collective gather"},
    {"threshold", has_thresholds, "a compress.codec with thresholds, such as --compress.codec topk"},
    {"whole-model", chooses_whole, "an adapt.policy with one factor for the whole model, such as --adapt.policy fixed"},
    {"payloads", sends_payloads, "a compress.codec without an all-reduce of its own, such as --compress.codec topk"},
    {"sums-everywhere", sums_everywhere, "a strategy that gives sums to all ranks, such as --strategy dp"},
    {"plain-gather", gathers_plainly, "--compress.gather none"},
    {"emulation", emulates_compute, "tacit plan, or tacit bench step with --compute.emulate PROFILE"},
};

static const fact *find_fact(const char *name) {
    for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++)
        if (strcmp(FACTS[i].name, name) == 0) return &FACTS[i];
    return NULL;
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

typedef struct term {
    char key[TACITI_KEY_BYTES]; /* or the name of a fact */
    char values[TACITI_KEY_BYTES];
    bool compares, differs; /* key=values, key!=values */
} term;

/* Reads the first term of the condition. Returns what follows it, or NULL if there is none. */
static const char *next_term(const char *when, term *out) {
    if (when == NULL || *(when += strspn(when, " ")) == '\0') return NULL;
    const size_t length = strcspn(when, " "), name = strcspn(when, "!= ");
    const char *equals = when + name + (when[name] == '!');
    *out = (term){.compares = name < length, .differs = when[name] == '!'};
    (void)snprintf(out->key, sizeof out->key, "%.*s", (int)name, when);
    if (out->compares)
        (void)snprintf(out->values, sizeof out->values, "%.*s", (int)(when + length - equals - 1), equals + 1);
    return when + length;
}

static bool term_holds(const inquiry *q, const term *t) {
    char value[TACITI_VALUE_BYTES];
    taciti_place other;
    const bool is_of_gossip = q->place->table == &taciti_gossip_option_table; /* which knows no optimizer of a caller */
    if (q->reader == TACITI_READER_OWN_OPTIMIZER && is_of_gossip && strcmp(t->key, "optim.name") == 0) return true;
    if (t->compares)
        return taciti_config_find(&q->settings->config, t->key, &other) &&
               taciti_text_among(taciti_place_text(&other, value), t->values) != t->differs;
    const fact *known = find_fact(t->key);
    return known != NULL && known->holds(q);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

#define add(out, ...) taciti_text_add(out, TACITI_NEEDS_BYTES, __VA_ARGS__)

/* "--key a, b or c" */
static void add_values(const term *t, char out[TACITI_NEEDS_BYTES]) {
    add(out, "--%s%s", t->key, t->differs ? " other than" : "");
    for (const char *word = t->values; word != NULL; word = strchr(word, '|')) {
        word += *word == '|';
        const char *joint = word == t->values ? " " : strchr(word, '|') == NULL ? " or " : ", ";
        add(out, "%s%.*s", joint, (int)strcspn(word, "|"), word);
    }
}

static void add_term(const term *t, char out[TACITI_NEEDS_BYTES]) {
    const fact *known = find_fact(t->key);
    if (t->compares && t->values[0] == '\0')
        add(out, t->differs ? "--%s" : "no --%s", t->key);
    else if (t->compares)
        add_values(t, out);
    else
        add(out, "%s", known == NULL ? "?" : known->words);
}

const char *taciti_settings_needs(const taciti_place *place, char out[TACITI_NEEDS_BYTES]) {
    const char *const conditions[] = {place->table->when, place->option->when};
    term t;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
        for (const char *rest = conditions[i]; (rest = next_term(rest, &t)) != NULL;) {
            if (out[0] != '\0') add(out, ", and ");
            add_term(&t, out);
        }
    return out;
}

/* ---- registries -------------------------------------------------------------------------------------------------- */

/* The members of registries that have this table. Returns whether one is in use, or else names the first in `out`. */
static bool member_is_used(const inquiry *q, const taciti_option_table *table, char out[TACITI_NEEDS_BYTES]) {
    const bool all = is_plan(q) || (q->reader == TACITI_READER_CODECS && q->setup.sums.codec == NULL);
    out[0] = '\0';
    for (const taciti_strategy *const *s = taciti_strategy_list(); *s != NULL; s++) {
        if ((*s)->options != table) continue;
        if (is_plan(q) || *s == q->strategy) return true;
        if (out[0] == '\0') add(out, "--strategy %s", (*s)->name);
    }
    for (const taciti_codec *const *c = taciti_codec_list(); *c != NULL; c++) {
        if ((*c)->options != table) continue;
        if (all || *c == q->setup.sums.codec || *c == q->setup.gathers.codec || *c == q->setup.mixes.codec) return true;
        const bool mixes =
            taciti_strategy_mixes_only(q->strategy) && taciti_codec_suits(*c, TACITI_USE_SUMS) && !(*c)->sketches;
        if (out[0] == '\0') add(out, "--%s.codec %s", mixes ? q->strategy->name : "compress", (*c)->name);
    }
    for (const taciti_controller *const *c = taciti_controller_list(); *c != NULL; c++) {
        if ((*c)->options != table) continue;
        if (*c == q->setup.controller) return true;
        if (out[0] == '\0') add(out, "--adapt.policy %s", (*c)->name);
    }
    return out[0] == '\0';
}

/* ---- the caller's own optimizer ---------------------------------------------------------------------------------- */

/* Whether the option describes the learning rate or the clipping, or else the momentum for compress.momentum, which
 * allows no other. */
static bool guides_own_optimizer(const inquiry *q, const char *key) {
    static const char RATE[] = "lr|schedule|lr_min|warmup|decay_steps|restart|clip", MOMENTUM[] = "name|beta1|momentum";
    const bool knows_momentum = q->setup.sums.codec != NULL && q->settings->compress.momentum > 0;
    return taciti_text_among(key, RATE) || (taciti_text_among(key, MOMENTUM) && knows_momentum);
}

/* Whether the option changes the state of an optimizer of the library. */
static bool needs_our_optimizer(const inquiry *q) {
    const taciti_place *place = q->place;
    if (place->table == &taciti_gossip_option_table) return strcmp(place->option->key, "denoise") == 0;
    return place->table == &taciti_optim_option_table && !guides_own_optimizer(q, place->option->key);
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

bool taciti_settings_of_codec(const taciti_option_table *table) {
    for (const taciti_codec *const *c = taciti_codec_list(); *c != NULL; c++)
        if ((*c)->options == table) return true;
    return false;
}

static bool suits_channel(const taciti_place *place) {
    const taciti_option_table *table = place->table;
    return table == &taciti_comm_option_table || table == &taciti_exchange_option_table ||
           (table == &taciti_compress_option_table && strcmp(place->option->key, "gather") != 0) ||
           taciti_settings_of_codec(table) ||
           (table == &taciti_adapt_option_table && strcmp(place->option->key, "policy") == 0) ||
           (table == &taciti_optim_option_table && strcmp(place->option->key, "warmup") == 0);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Says what is missing for a term. Mixes read the factor alone of the section `compress`. */
static void add_missing(const inquiry *q, const term *t, char needs[TACITI_NEEDS_BYTES]) {
    if (!taciti_strategy_mixes_only(q->strategy) || q->place->table != &taciti_compress_option_table)
        add_term(t, needs);
    else if (strcmp(t->key, "factor") == 0)
        add(needs, "a gossip.codec that selects, such as --gossip.codec topk");
    else
        add(needs, "a strategy that sums gradients, such as --strategy dp: gossip.codec reads compress.factor alone");
}

/* Whether anything reads the option; if not, `needs` receives the first condition that does not hold. */
static bool is_read(const inquiry *q, char needs[TACITI_NEEDS_BYTES]) {
    const taciti_place *place = q->place;
    const bool registered = taciti_settings_registered(place->table);
    const char *const conditions[] = {place->table->when, place->option->when};
    term t;
    needs[0] = '\0';
    if (q->reader == TACITI_READER_CHANNEL && !suits_channel(place)) {
        add(needs, "a job, which has steps; a channel has none");
        return false;
    }
    if (!member_is_used(q, place->table, needs)) return false;
    needs[0] = '\0'; /* members in front of the one in use have left theirs */
    if (q->reader == TACITI_READER_CODECS && !registered) {
        add(needs, "tacit train, plan or bench step");
        return false;
    }
    if (q->reader == TACITI_READER_OWN_OPTIMIZER && needs_our_optimizer(q)) {
        add(needs, "a job without own_optimizer");
        return false;
    }
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions && !(is_plan(q) && registered); i++)
        for (const char *rest = conditions[i]; (rest = next_term(rest, &t)) != NULL;)
            if (!term_holds(q, &t)) {
                add_missing(q, &t, needs);
                return false;
            }
    return true;
}

/* A channel has the sums of dp, whatever its settings say of a strategy. */
static inquiry inquiry_of(const taciti_settings *settings, taciti_reader reader, const taciti_place *place) {
    return (inquiry){.settings = settings,
                     .reader = reader,
                     .place = place,
                     .strategy = reader == TACITI_READER_CHANNEL ? taciti_strategy_find("dp")
                                                                 : taciti_settings_strategy(settings),
                     .setup = reader == TACITI_READER_CHANNEL ? taciti_settings_sums(settings)
                                                              : taciti_settings_compression(settings)};
}

bool taciti_settings_reads(const taciti_settings *settings, taciti_reader reader, const taciti_place *place) {
    char needs[TACITI_NEEDS_BYTES];
    const inquiry q = inquiry_of(settings, reader, place);
    return is_read(&q, needs);
}

char *taciti_settings_read_json(const taciti_settings *settings, taciti_reader reader) {
    json_t *values = taciti_config_values(&settings->config, 1);
    char key[TACITI_KEY_BYTES], needs[TACITI_NEEDS_BYTES];
    taciti_place place;
    const inquiry q = inquiry_of(settings, reader, &place);
    for (size_t i = 0; taciti_config_at(&settings->config, i, &place); i++)
        if (!is_read(&q, needs)) (void)json_object_del(values, taciti_place_key(&place, key));
    return taciti_json_dump(values, JSON_COMPACT);
}

typedef struct finding {
    taciti_place place;
    char needs[TACITI_NEEDS_BYTES];
} finding;

/* A default that a file records was not meant to change anything. */
static bool is_meant(const taciti_place *place) {
    return place->given != NULL && *place->given != TACITI_GIVEN_NOT &&
           (*place->given == TACITI_GIVEN_TYPED || !taciti_place_is_default(place));
}

/* Whether the index-th option was given in some settings and is read in none. */
static bool find_unread(const taciti_settings *const *settings, size_t count, taciti_reader reader, size_t index,
                        finding *out) {
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        finding one;
        const inquiry q = inquiry_of(settings[i], reader, &one.place);
        if (!taciti_config_at(&settings[i]->config, index, &one.place) || !is_meant(&one.place)) continue;
        if (is_read(&q, one.needs)) return false;
        if (!found) *out = one;
        found = true;
    }
    return found;
}

/* Logs one line about all findings that need the same as the first. */
static void warn_of_unread(finding *findings, size_t count) {
    char keys[TACITI_NEEDS_BYTES] = "", key[TACITI_KEY_BYTES], value[TACITI_VALUE_BYTES], needs[TACITI_NEEDS_BYTES];
    size_t same = 0;
    (void)snprintf(needs, sizeof needs, "%s", findings->needs);
    (void)taciti_place_text(&findings->place, value);
    for (size_t i = 0; i < count; i++) {
        if (findings[i].place.option == NULL || strcmp(findings[i].needs, needs) != 0) continue;
        add(keys, "%s%s", same++ > 0 ? ", " : "", taciti_place_key(&findings[i].place, key));
        findings[i].place.option = NULL; /* told */
    }
    if (same == 1)
        taciti_log(TACITI_LOG_WARN, "%s %s: nothing in this run reads it; it needs %s", keys, value, needs);
    else
        taciti_log(TACITI_LOG_WARN, "%s: nothing in this run reads them; they need %s", keys, needs);
}

tacit_status taciti_settings_warn_unread(const taciti_settings *const *settings, size_t count, taciti_reader reader) {
    size_t options = 0, found = 0;
    for (size_t i = 0; i < settings[0]->config.count; i++) options += settings[0]->config.sections[i].table->count;
    finding *findings = taciti_calloc(options, sizeof *findings);
    if (findings == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < options; i++) found += find_unread(settings, count, reader, i, &findings[found]);
    for (size_t i = 0; i < found; i++)
        if (findings[i].place.option != NULL) warn_of_unread(&findings[i], found - i);
    taciti_free(findings);
    return TACIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that is built in, from the tables the code itself uses.
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/libraries.h"
#include "cli/option_text.h"
#include "cli/topology_sheet.h"
#include "cli/verbs.h"
#include "codec/indices.h"
#include "codec/values.h"
#include "kernel/kernel.h"
#include "model/matmul.h"
#include "model/model.h"
#include "model/profile.h"
#include "strategy/strategy.h"

const taciti_flag taciti_info_flags[] = {
    {"--json", NULL, NULL, "answer as one JSON object"},
    {"--all", NULL, NULL, "codecs, controllers: those to compare with, too"},
    {"--ranks", "-n", "N", "topologies: their figures at this number of ranks"},
    {"--per-host", NULL, "P", "topologies: ranks on each host (default 1), the last host may have fewer"},
    {"--degree", NULL, "K", "topologies: most partners per round of base-k, columns of torus"},
    {"--file", NULL, "FILE", "topologies: the matrix of the topology file, .csv"},
    {"--gamma", NULL, "G",
     "topologies: consensus factor, for the step size that awc bears (default 1; 0.5 with --delay 1)"},
    {"--delay", NULL, "STEPS", "topologies: gossip.delay, for the same (default 0)"},
    {NULL, NULL, NULL, NULL},
};

/* A topic shows what it lists: in a JSON value, which it returns, or as text. all: those to compare with, too. */

/* ---- options --------------------------------------------------------------------------------------------------- */

/* Text is wrapped for people; grep gets a line per key. */
static json_t *show_options(bool json, bool all) {
    json_t *list = json ? json_array() : NULL;
    const taciti_option_table *table = NULL;
    taciti_place place;
    char usage[TACITI_OPTION_TEXT_BYTES], text[TACITI_OPTION_TEXT_BYTES];
    (void)all;
    for (size_t i = 0; taciti_config_at(taciti_cli_options(), i, &place); i++) {
        if (json) {
            (void)json_array_append_new(list, taciti_option_json(&place));
            continue;
        }
        if (place.table != table)
            printf("%s%s%s%s\n", table == NULL ? "" : "\n", place.table->section,
                   *place.table->section == '\0' ? "" : ": ", place.table->help);
        table = place.table;
        taciti_option_usage(&place, usage, sizeof usage);
        taciti_option_explain(&place, text, sizeof text);
        if (isatty(STDOUT_FILENO))
            taciti_print_entry(stdout, usage + 2, text);
        else
            printf("  %-32s %s\n", usage + 2, text);
    }
    return list;
}

/* ---- codecs ------------------------------------------------------------------------------------------------------ */

static json_t *codec_json(const taciti_codec *c) {
    char letter = '-';
    const char *name = NULL;
    json_t *codec = json_pack("{s:s, s:b, s:s, s:s, s:s, s:i}", "name", c->name, "reference", c->reference, "class",
                              taciti_codec_class_name(c), "help", c->help, "source", c->source, "rounds", c->rounds);
    for (size_t i = 0; (name = taciti_codec_property(c, i, &letter)) != NULL; i++)
        (void)json_object_set_new(codec, name, json_boolean(letter != '-'));
    (void)json_object_set_new(codec, "state", json_boolean(c->linear_state_bytes != NULL));
    (void)json_object_set_new(codec, "preset", json_string(c->preset == NULL ? "" : c->preset));
    (void)json_object_set_new(codec, "options", taciti_table_json(c->options));
    return codec;
}

static void print_codec(const taciti_codec *c) {
    char letters[16] = "";
    for (size_t i = 0; taciti_codec_property(c, i, &letters[i]) != NULL; i++) letters[i + 1] = '\0';
    printf("%-11s %-7s %-6s %-6d %s (%s)\n", c->name, taciti_codec_class_name(c), letters, c->rounds, c->help,
           c->source);
    taciti_table_print(c->options);
    if (c->preset != NULL) printf("%11s presets: %s\n", "", c->preset);
}

static void print_codec_legend(bool all) {
    if (!all) printf("\n`tacit info codecs --all` lists those to compare with, too.\n");
    printf("\nvalue formats of codecs that select:\n");
    for (const taciti_value_format *const *f = taciti_value_format_list(); *f != NULL; f++)
        printf("  %-9s %s\n", (*f)->name, (*f)->help);
    printf("index coders:\n");
    for (const taciti_index_coder *const *c = taciti_index_coder_list(); *c != NULL; c++)
        printf("  %-9s %s\n", (*c)->name, (*c)->help);
    /* clang-format off */
    printf(
        "\n"
        "class: sum, payloads cover all elements; gather, each selects its own; linear, an all-reduce adds payloads.\n"
        "has: l lossless, f payloads of a fixed size, s selects elements (has a factor), t also by a threshold, n a number\n"
        "format that exchange.wire takes, k all ranks share the key. presets: defaults of other sections for this codec.\n");
    /* clang-format on */
}

static json_t *show_codecs(bool json, bool all) {
    json_t *list = json ? json_array() : NULL;
    if (!json) printf("%-11s %-7s %-6s %-6s %s\n", "name", "class", "has", "rounds", "what it does (source)");
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        if ((*codec)->reference && !all) continue;
        if (json)
            (void)json_array_append_new(list, codec_json(*codec));
        else
            print_codec(*codec);
    }
    if (!json) print_codec_legend(all);
    return list;
}

/* ---- controllers ----------------------------------------------------------------------------------------------- */

static json_t *show_controllers(bool json, bool all) {
    json_t *list = json ? json_array() : NULL;
    for (const taciti_controller *const *next = taciti_controller_list(); *next != NULL; next++) {
        const taciti_controller *c = *next;
        if (c->reference && !all) continue;
        if (json) {
            (void)json_array_append_new(list,
                                        json_pack("{s:s, s:b, s:s, s:s, s:b, s:o}", "name", c->name, "reference",
                                                  c->reference, "help", c->help, "source", c->source, "per_bucket",
                                                  c->per_bucket, "options", taciti_table_json(c->options)));
            continue;
        }
        printf("%-11s %s%s (%s)\n", c->name, c->help, c->per_bucket ? "; for every bucket" : "", c->source);
        taciti_table_print(c->options);
    }
    if (!json && !all) printf("\n`tacit info controllers --all` lists those to compare with, too.\n");
    return list;
}

/* ---- strategies, presets --------------------------------------------------------------------------------------- */

static json_t *show_strategies(bool json, bool all) {
    json_t *list = json ? json_array() : NULL;
    (void)all;
    for (const taciti_strategy *const *next = taciti_strategy_list(); *next != NULL; next++) {
        const taciti_strategy *s = *next;
        if (json)
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "name", s->name, "help", s->help,
                                                        "source", s->source, "replicas_equal", s->replicas == NULL));
        else
            printf("%-10s %s (%s)\n", s->name, s->help, s->source);
    }
    return list;
}

static json_t *show_presets(bool json, bool all) {
    json_t *list = json ? json_array() : NULL;
    (void)all;
    for (const char *const *preset = taciti_model_presets(); *preset != NULL; preset++)
        if (json)
            (void)json_array_append_new(list, json_string(*preset));
        else
            printf("%s\n", *preset);
    return list;
}

/* ---- compute profiles ------------------------------------------------------------------------------------------ */

static double forward_flops(const taciti_profile *profile) {
    double sum = 0;
    for (size_t l = 0; l < profile->layer_count; l++) sum += profile->layers[l].forward_flops;
    return sum;
}

static json_t *profile_json(const taciti_profile *p) {
    return json_pack("{s:s, s:s, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:s}", "name", p->name, "help",
                     taciti_profile_preset_help(p->name), "parameters", (json_int_t)taciti_profile_parameters(p),
                     "layers", (int)p->layer_count, "forward_flops", forward_flops(p), "rate_flops_per_s", p->rate,
                     "batch_samples", p->batch, "sample_tokens", p->sample_tokens, "update_s", p->update_s, "source",
                     p->source);
}

static json_t *show_profiles(bool json, bool all) {
    json_t *list = json ? json_array() : NULL;
    (void)all;
    for (const char *const *name = taciti_profile_presets(); *name != NULL; name++) {
        taciti_profile p;
        if (taciti_profile_load(*name, &p) != TACIT_OK) break;
        if (json) {
            (void)json_array_append_new(list, profile_json(&p));
        } else {
            taciti_profile_to_seconds(&p, p.rate, p.batch);
            printf("%-17s %s; %g samples at %g TFLOP/s: forward %.1f ms, backward %.1f ms, update %.1f ms\n", *name,
                   taciti_profile_preset_help(*name), p.batch, p.rate / 1e12, taciti_profile_forward_s(&p) * 1e3,
                   taciti_profile_backward_s(&p) * 1e3, p.update_s * 1e3);
        }
        taciti_profile_destroy(&p);
    }
    return list;
}

/* `tacit info profiles NAME`: the file, to begin an own one with. */
static tacit_status print_profile(const char *name) {
    taciti_profile profile;
    TACITI_TRY(taciti_profile_load(name, &profile));
    char *text = taciti_profile_format(&profile);
    taciti_profile_destroy(&profile);
    if (text == NULL) return taciti_fail(TACIT_E_MEMORY, "no memory for the text of a profile");
    (void)fputs(text, stdout);
    taciti_free(text);
    return TACIT_OK;
}

/* ---- build ----------------------------------------------------------------------------------------------------- */

#ifdef TACITI_PYTHON
#define BF16_PATH "none" /* of a program without networks */
#else
#define BF16_PATH taciti_matmul_bf16_path()
#endif

static json_t *show_build(bool json, bool all) {
    taciti_linked_library libraries[TACITI_LIBRARIES];
    const size_t count = taciti_libraries(libraries);
    const char *const path = BF16_PATH;
    const bool native = strcmp(path, "native") == 0;
    json_t *list = json ? json_object() : NULL;
    (void)all;
    for (size_t i = 0; i < count && json; i++)
        (void)json_object_set_new(list, libraries[i].name, json_string(libraries[i].version));
    if (json)
        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "version", tacit_version(), "compiler", TACIT_BUILD_COMPILER,
                         "type", TACIT_BUILD_TYPE, "isa", taciti_kernels_get()->isa, "bf16_products", path, "libraries",
                         list);
    printf("%-10s %s\n%-10s %s\n%-10s %s\n%-10s %s\n", "tacit", tacit_version(), "compiler", TACIT_BUILD_COMPILER,
           "build", TACIT_BUILD_TYPE, "kernels", taciti_kernels_get()->isa);
    if (strcmp(path, "none") != 0)
        printf("%-10s %s\n", "bf16", native ? "products by oneDNN" : "products widened to f32: slower than f32 here");
    for (size_t i = 0; i < count; i++) printf("%-10s %s\n", libraries[i].name, libraries[i].version);
    return NULL;
}

/* ---- the verb -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    json_t *(*show)(bool json, bool all);
} TOPICS[] = {
    {"build", show_build},
    {"codecs", show_codecs},
    {"controllers", show_controllers},
    {"strategies", show_strategies},
    {"presets", show_presets},
    {"profiles", show_profiles},
    {"topologies", taciti_topologies_list},
    {"options", show_options},
};
enum { TOPICS_COUNT = sizeof TOPICS / sizeof *TOPICS };

static tacit_status find_topic(const char *name, size_t *out) {
    taciti_nearest nearest = {0};
    char quoted[TACITI_QUOTED_BYTES];
    for (*out = 0; *out < TOPICS_COUNT; ++*out) {
        if (strcmp(name, TOPICS[*out].name) == 0) return TACIT_OK;
        taciti_nearest_offer(&nearest, name, TOPICS[*out].name);
    }
    return taciti_fail(
        TACIT_E_USAGE,
        "info knows build, codecs, controllers, strategies, topologies, presets, profiles and options, not %s%s",
        taciti_quote(name, quoted), nearest.hint);
}

static tacit_status show_topics(bool json, bool all) {
    json_t *root = json ? json_object() : NULL;
    for (size_t i = 0; i < TOPICS_COUNT; i++) {
        if (!json) printf("%s%s:\n", i > 0 ? "\n" : "", TOPICS[i].name);
        json_t *topic = TOPICS[i].show(json, all);
        if (json) (void)json_object_set_new(root, TOPICS[i].name, topic);
    }
    return json ? taciti_cli_print_json(root) : TACIT_OK;
}

tacit_status taciti_verb_info(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments parsed;
    const taciti_arguments *arguments = &parsed;
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &parsed));
    const bool json = taciti_arguments_get(arguments, "--json") != NULL;
    const bool all = taciti_arguments_get(arguments, "--all") != NULL;
    const char *flag = taciti_topologies_flag(arguments);
    size_t topic = 0;
    if (arguments->positional_count > 0) TACITI_TRY(find_topic(arguments->positional[0], &topic));
    const bool topologies = arguments->positional_count > 0 && TOPICS[topic].show == taciti_topologies_list;
    if (flag != NULL && !topologies) return taciti_fail(TACIT_E_USAGE, "%s is for `tacit info topologies`", flag);
    if (arguments->positional_count == 0) return show_topics(json, all);
    if (topologies && arguments->positional_count <= 2 && (flag != NULL || arguments->positional_count == 2))
        return taciti_topologies_show(arguments, arguments->positional_count == 2 ? arguments->positional[1] : NULL);
    if (arguments->positional_count == 2 && TOPICS[topic].show == show_profiles)
        return print_profile(arguments->positional[1]);
    if (arguments->positional_count > 1)
        return taciti_fail(TACIT_E_USAGE, "one topic at a time: tacit info %s", TOPICS[topic].name);
    json_t *value = TOPICS[topic].show(json, all);
    return json ? taciti_cli_print_json(value) : TACIT_OK;
}

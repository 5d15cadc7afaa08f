/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/codec_info.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/option_text.h"
#include "codec/codec.h"
#include "codec/indices.h"
#include "codec/values.h"

static const char *class_name(taciti_codec_class aggregation) {
    switch (aggregation) {
    case TACITI_CODEC_SUM: return "sum";
    case TACITI_CODEC_GATHER: return "gather";
    case TACITI_CODEC_LINEAR: return "linear";
    }
    return "unknown";
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *codec_json(const taciti_codec *c) {
    return json_pack("{s:s, s:b, s:s, s:s, s:s, s:i, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:s, s:o}", "name", c->name,
                     "reference", c->reference, "class", class_name(c->aggregation), "help", c->help, "source",
                     c->source, "rounds", c->rounds, "lossless", c->lossless, "fixed_size", c->fixed_size, "selects",
                     c->selects, "thresholds", c->thresholds, "number_format", c->number_format, "shared_key",
                     c->shared_key, "state", c->state_bytes != NULL, "preset", c->preset == NULL ? "" : c->preset,
                     "options", taciti_table_json(c->options));
}

json_t *taciti_codecs_json(bool all) {
    json_t *array = json_array();
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        if (all || !(*codec)->reference) (void)json_array_append_new(array, codec_json(*codec));
    return array;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* A letter for every property that the codec has, in the order of the legend. */
static const char *properties_of(const taciti_codec *c, char out[16]) {
    const struct {
        bool has;
        char letter;
    } properties[] = {{c->fixed_size, 'f'}, {c->lossless, 'l'},      {c->selects, 's'},
                      {c->thresholds, 't'}, {c->number_format, 'n'}, {c->shared_key, 'k'}};
    enum { COUNT = sizeof properties / sizeof *properties };
    for (size_t i = 0; i < COUNT; i++) out[i] = properties[i].has ? properties[i].letter : '-';
    out[COUNT] = '\0';
    return out;
}

static void print_parts(void) {
    printf("\nvalue formats of codecs that select:\n");
    for (const taciti_value_format *const *f = taciti_value_format_list(); *f != NULL; f++)
        printf("  %-9s %s\n", (*f)->name, (*f)->help);
    printf("index coders:\n");
    for (const taciti_index_coder *const *c = taciti_index_coder_list(); *c != NULL; c++)
        printf("  %-9s %s\n", (*c)->name, (*c)->help);
}

void taciti_codecs_print(bool all) {
    char properties[16];
    printf("%-11s %-7s %-6s %-6s %s\n", "name", "class", "has", "rounds", "what it does (source)");
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        const taciti_codec *c = *codec;
        if (c->reference && !all) continue;
        printf("%-11s %-7s %-6s %-6d %s (%s)\n", c->name, class_name(c->aggregation), properties_of(c, properties),
               c->rounds, c->help, c->source);
        taciti_table_print(c->options);
        if (c->preset != NULL) printf("%11s presets: %s\n", "", c->preset);
    }
    if (!all) printf("\n`tacit info codecs --all` lists those to compare with, too.\n");
    print_parts();
    /* clang-format off */
    printf(
        "\n"
        "class: sum, payloads cover all elements; gather, each selects its own; linear, an all-reduce adds payloads.\n"
        "has: f payloads of a fixed size, l lossless, s selects elements (has a factor), t also by a threshold, n a number\n"
        "format that exchange.wire takes, k all ranks share the key. presets: defaults of other sections for this codec.\n");
    /* clang-format on */
}

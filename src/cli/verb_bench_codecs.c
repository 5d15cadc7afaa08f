/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "bench/codecs.h"
#include "bench/machine_block.h"
#include "cli/verbs.h"
#include "kernel/kernel.h"
#include "settings/settings.h"

const taciti_flag taciti_bench_codecs_flags[] = {
    {"--json", NULL, NULL, "answer as one JSON object"},
    {"--n", "-n", "COUNT", "floats of the array (default 44500000)"},
    {"--codec", "-c", "NAME", "one codec, with all instruction sets (default: all codecs, with the widest set)"},
    {"--factor", "-f", "FACTOR", "elements per element sent, for codecs that select (default 100)"},
    {"--isa", "-i", "SET", "scalar, avx2, avx512, or all"},
    {"--rounds", "-r", "COUNT", "rounds of probe and passes per figure (default 7; slow figures: 3)"},
    {NULL, NULL, NULL, NULL},
};

#define GB 1e9
static const double FACTOR = 100, FACTOR_MAX = 1e6;
static const int64_t FLOATS = 44500000, FLOATS_MIN = 1024;

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void print_figure(const taciti_codec_figure *f) {
    char piece[32];
    (void)snprintf(piece, sizeof piece, "%zu", f->piece_n);
    printf("%-15s %-7s %10s %7.4f %7.4f %6.1f", f->codec->name, f->isa, f->whole ? "whole" : piece,
           f->payload_bytes_per_float, f->energy_kept, f->read_bytes_per_s.median / GB);
    for (int pass = 0; pass < TACITI_TRIAL_PASSES; pass++) {
        const taciti_codec_rate *rate = &f->rate[pass];
        printf(" | %6.2f %5.2f", rate->input_bytes_per_s.median / GB, rate->moved_share.median);
        if (pass == TACITI_TRIAL_FEEDBACK)
            printf(" %2.0f %%", 100 * (rate->moved_share.max - rate->moved_share.min) / rate->moved_share.median);
    }
    printf("\n");
}

static void print_indices(const taciti_codec_bench *bench) {
    for (size_t i = 0; i < bench->count; i++) {
        const taciti_codec_figure *f = &bench->figures[i];
        if (f->isa != bench->figures[0].isa || isnan(f->index_bits)) continue;
        printf("%-15s %s: %.5f of the elements are sent; %.3f bits per index, entropy %.3f\n", f->codec->name,
               f->whole ? "whole" : "in pieces", f->kept_share, f->index_bits, f->index_entropy);
    }
}

static void print_text(const taciti_machine *machine, const taciti_codec_bench_options *options,
                       const taciti_codec_bench *bench) {
    taciti_machine_print(machine);
    printf("\n%zu floats like those of a gradient, factor %g; per pass: GB/s of input, and the share of the rate at\n"
           "which this core reads that the bytes make which it must move\n\n",
           options->n, options->setting.factor);
    printf("%-15s %-7s %10s %7s %7s %6s | %17s | %12s | %12s | %12s\n", "codec", "set", "piece", "bytes/", "energy",
           "read", "encode, feedback", "encode", "decode", "decode-add");
    printf("%-15s %-7s %10s %7s %7s %6s | %6s %11s | %6s %5s | %6s %5s | %6s %5s\n", "", "", "", "float", "kept",
           "GB/s", "GB/s", "share", "GB/s", "share", "GB/s", "share", "GB/s", "share");
    for (size_t i = 0; i < bench->count; i++) print_figure(&bench->figures[i]);
    print_indices(bench);
    /* clang-format off */
    printf(
        "\n"
        "One thread, processor time, medians of up to %d rounds; in %% the spread of the share. A piece is what one\n"
        "message of the exchange takes; whole: the array at once. encode, feedback: v = gradient + error, encode(v) and\n"
        "its error. Bytes that must move: gradient and error read, error written, payload written, and so on. energy\n"
        "kept: 1 - |x - decoded|^2 / |x|^2 of one encode.\n",
        options->rounds);
    /* clang-format on */
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *passes_json(const taciti_codec_figure *f) {
    json_t *passes = json_object();
    for (int pass = 0; pass < TACITI_TRIAL_PASSES; pass++) {
        const taciti_codec_rate *rate = &f->rate[pass];
        (void)json_object_set_new(passes, taciti_trial_pass_names[pass],
                                  json_pack("{s:o, s:o}", "input_bytes_per_s",
                                            taciti_statistics_json(&rate->input_bytes_per_s), "moved_share_of_read",
                                            taciti_statistics_json(&rate->moved_share)));
    }
    return passes;
}

static json_t *figures_json(const taciti_codec_bench *bench) {
    json_t *list = json_array();
    for (size_t i = 0; i < bench->count; i++) {
        const taciti_codec_figure *f = &bench->figures[i];
        (void)json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:I, s:b, s:f, s:o, s:f, s:o, s:o, s:o, s:o}", "codec", f->codec->name, "isa", f->isa,
                      "piece_floats", (json_int_t)f->piece_n, "whole", f->whole, "payload_bytes_per_float",
                      f->payload_bytes_per_float, "energy_kept", taciti_real_json(f->energy_kept), "kept_share",
                      f->kept_share, "index_bits", taciti_real_json(f->index_bits), "index_entropy_bits",
                      taciti_real_json(f->index_entropy), "read_bytes_per_s",
                      taciti_statistics_json(&f->read_bytes_per_s), "passes", passes_json(f)));
    }
    return list;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static const void *options_of(const void *context, const taciti_codec *codec) {
    return taciti_settings_options(context, codec->options);
}

static void show_progress(const void *context, const char *codec, const char *isa, size_t done, size_t count) {
    (void)context;
    taciti_cli_progress(done < count ? "bench codecs: %zu of %zu figures, %s %s" : NULL, done, count, codec, isa);
}

static tacit_status find_codec(const char *name, const taciti_codec **out) {
    taciti_nearest nearest = {0};
    char quoted[TACITI_QUOTED_BYTES], section[TACITI_KEY_BYTES];
    *out = name == NULL ? NULL : taciti_codec_find(name);
    if (name == NULL || *out != NULL) return TACIT_OK;
    (void)snprintf(section, sizeof section, "%s.", name); /* a codec that went has a section that went */
    const taciti_old_key *old = taciti_old_key_find(section);
    if (old != NULL && strcmp(old->key, section) == 0)
        return taciti_fail(TACIT_E_CONFIG, "--codec: %s has gone: %s", taciti_quote(name, quoted), old->text);
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        taciti_nearest_offer(&nearest, name, (*codec)->name);
    return taciti_fail(TACIT_E_CONFIG, "--codec: there is no codec %s%s; `tacit info codecs` lists all",
                       taciti_quote(name, quoted), nearest.hint);
}

/* All sets for one codec, the one in use for all codecs. */
static tacit_status find_isa(const taciti_arguments *arguments, const taciti_codec *codec, const char **out) {
    const char *given = taciti_arguments_get(arguments, "--isa");
    *out = given != NULL || codec != NULL ? given : taciti_kernels_get()->isa;
    if (given == NULL) return TACIT_OK;
    if (strcmp(given, "all") == 0)
        *out = NULL;
    else if (taciti_kernels_named(given) == NULL)
        return taciti_fail(TACIT_E_CONFIG,
                           "--isa %s is not an instruction set of this CPU: scalar, avx2, avx512 or all", given);
    return TACIT_OK;
}

/* Refuses flags that one codec cannot use, and warns of options that it does not read. */
static tacit_status check_codec(const taciti_arguments *arguments, taciti_settings *settings,
                                const taciti_codec *codec) {
    const char *factor = taciti_arguments_get(arguments, "--factor");
    if (taciti_arguments_each(arguments, "--codec", 1) != NULL)
        return taciti_fail(TACIT_E_USAGE, "--codec was given twice: one codec, or leave it out for all of them");
    taciti_place place;
    const bool named = taciti_config_find(&settings->config, "compress.codec", &place) && place.given != NULL &&
                       *place.given != TACITI_GIVEN_NOT;
    if (codec != NULL && named)
        return taciti_fail(TACIT_E_USAGE,
                           "--codec was given, and compress.codec, too: one of them, or neither for all codecs");
    if (codec != NULL && factor != NULL &&
        taciti_codec_setting_of(codec, (taciti_codec_setting){.factor = 1}).factor == 0)
        return taciti_fail(TACIT_E_USAGE, "--factor %s: codec %s has no factor; leave it out, or --codec topk", factor,
                           codec->name);
    const char *name = codec == NULL ? "none" : codec->name;
    TACITI_TRY(taciti_config_preset(&settings->config, "compress.codec", name, "--codec"));
    return taciti_settings_warn_unread(&(const taciti_settings *){settings}, 1, TACITI_READER_CODECS);
}

static tacit_status read_options(const taciti_arguments *arguments, taciti_settings *settings,
                                 taciti_codec_bench_options *out) {
    int64_t n = 0, rounds = 0;
    *out = (taciti_codec_bench_options){
        .options_of = options_of, .progress = show_progress, .context = settings, .setting = {.factor = FACTOR}};
    TACITI_TRY(taciti_arguments_no_words(arguments));
    TACITI_TRY(find_codec(taciti_arguments_get(arguments, "--codec"), &out->codec));
    TACITI_TRY(find_isa(arguments, out->codec, &out->isa));
    TACITI_TRY(taciti_arguments_count(arguments, "--n", FLOATS, FLOATS_MIN, UINT32_MAX, &n));
    TACITI_TRY(taciti_arguments_count(arguments, "--rounds", 7, 1, TACITI_CODEC_BENCH_MAX_ROUNDS, &rounds));
    TACITI_TRY(taciti_arguments_number(arguments, "--factor", FACTOR, false, FACTOR_MAX, &out->setting.factor));
    if (out->setting.factor < 1)
        return taciti_fail(TACIT_E_CONFIG, "--factor %g: elements per element sent, 1 to %g", out->setting.factor,
                           FACTOR_MAX);
    TACITI_TRY(check_codec(arguments, settings, out->codec));
    out->n = (size_t)n;
    out->rounds = (int)rounds;
    return TACIT_OK;
}

static tacit_status bench_codecs(const taciti_verb *verb, int argc, char **argv, taciti_settings *settings) {
    taciti_arguments arguments;
    taciti_machine machine;
    taciti_codec_bench_options options;
    taciti_codec_bench figures;
    TACITI_TRY(taciti_settings_init(settings, NULL, 0));
    TACITI_TRY(taciti_config_environment(&settings->config));
    TACITI_TRY(taciti_arguments_parse(verb, &settings->config, argc, argv, &arguments));
    TACITI_TRY(read_options(&arguments, settings, &options));
    TACITI_TRY(taciti_machine_has_room("--n", taciti_codec_bench_memory_bytes(&options)));
    taciti_machine_read(&machine);
    TACITI_TRY(taciti_codec_bench_run(&options, &figures));
    tacit_status status = TACIT_OK;
    if (taciti_arguments_get(&arguments, "--json") != NULL)
        status = taciti_cli_print_json(json_pack("{s:o, s:I, s:f, s:i, s:o}", "machine", taciti_machine_json(&machine),
                                                 "floats", (json_int_t)options.n, "factor", options.setting.factor,
                                                 "rounds", options.rounds, "codecs", figures_json(&figures)));
    else
        print_text(&machine, &options, &figures);
    taciti_codec_bench_destroy(&figures);
    return status;
}

tacit_status taciti_verb_bench_codecs(const taciti_verb *verb, int argc, char **argv) {
    static taciti_settings settings;
    const tacit_status status = bench_codecs(verb, argc, argv, &settings);
    taciti_settings_destroy(&settings);
    return status;
}

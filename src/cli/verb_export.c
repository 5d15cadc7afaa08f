/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of a run, for other programs. The sources of import are legal here as well, so this also converts
 * between the foreign formats.
 */
#include <jansson.h>
#include <stdio.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "ckpt/run.h"
#include "ckpt/stage.h"
#include "ckpt/weights.h"
#include "cli/verbs.h"

const taciti_flag taciti_export_flags[] = {
    {"--output", "-o", "PATH", "the folder (hf) or file (llmc) to create"},
    {"--format", NULL, "FORMAT",
     "hf: a Hugging Face folder; llmc: a llm.c file (default: llmc when PATH ends in .bin)"},
    {"--dtype", NULL, "TYPE", "f32 or bf16 (default f32)"},
    {"--step", NULL, "N", "the checkpoint of this step (default: the newest)"},
    {"--json", NULL, NULL, "answer as one JSON object"},
    {NULL, NULL, NULL, NULL},
};

/* The flags' values, parsed as configuration values are. */
typedef struct export_options {
    int format, dtype;
    int64_t step;
} export_options;

enum { FORMAT_HF, FORMAT_LLMC };

#define AT(field) offsetof(export_options, field)
static const taciti_option option_list[] = {
    TACITI_OPTION("format", ENUM, AT(format), "hf", .choices = "hf|llmc", .help = "format"),
    TACITI_OPTION("dtype", ENUM, AT(dtype), "f32", .choices = "f32|bf16", .help = "type of the numbers"),
    TACITI_OPTION("step", INT, AT(step), "0", .max = 9e18, .unit = "steps", .help = "step"),
};
static const taciti_option_table option_table = TACITI_OPTION_TABLE("export", "flags of export", option_list);

static tacit_status read_options(const taciti_arguments *arguments, export_options *out) {
    static const char *const names[][2] = {
        {"--format", "export.format"}, {"--dtype", "export.dtype"}, {"--step", "export.step"}};
    const taciti_section section = {&option_table, out, NULL};
    const taciti_config config = {&section, 1};
    TACITI_TRY(taciti_config_defaults(&config));
    out->step = -1; /* the newest */
    const char *to = taciti_arguments_get(arguments, "--output");
    if (to != NULL && taciti_text_ends_with(to, ".bin")) out->format = FORMAT_LLMC;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = taciti_arguments_get(arguments, names[i][0]);
        if (value != NULL) TACITI_TRY(taciti_config_set(&config, names[i][1], value, names[i][0]));
    }
    return TACIT_OK;
}

static tacit_status convert_weights(const taciti_run_info *source, const char *to,
                                    const taciti_weights_write_options *how, taciti_flat_model *model) {
    if (how->format == TACITI_WEIGHTS_HF) TACITI_TRY(taciti_flat_model_check_tokenizer(source->meta, to));
    TACITI_TRY(taciti_flat_model_create(&source->model, model));
    TACITI_TRY(taciti_run_weights(source, &model->layout, model->flat));
    TACITI_TRY(taciti_weights_write(to, how, &source->model, &model->layout, model->flat));
    if (how->format != TACITI_WEIGHTS_HF) return TACIT_OK;
    return taciti_flat_model_copy_tokenizer(source->meta, to); /* where their libraries look for it */
}

static tacit_status report_export(const taciti_run_info *source, const char *to,
                                  const taciti_weights_write_options *how, size_t parameters, bool json) {
    const char *format = how->format == TACITI_WEIGHTS_HF ? "hf" : "llmc";
    const char *dtype = how->dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32";
    if (json)
        return taciti_cli_print_json(json_pack("{s:s, s:I, s:s, s:s, s:s, s:I}", "source", source->path, "step",
                                               (json_int_t)source->step, "output", to, "format", format, "dtype", dtype,
                                               "parameters", (json_int_t)parameters));
    printf("%s: %zu parameters are now in %s (%s, %s)\n", source->path, parameters, to, format, dtype);
    return TACIT_OK;
}

static tacit_status export_run(const char *from, const char *to, const export_options *options, bool json) {
    const taciti_weights_write_options how = {
        .format = options->format == FORMAT_LLMC ? TACITI_WEIGHTS_LLMC : TACITI_WEIGHTS_HF, .dtype = options->dtype};
    taciti_run_info source;
    taciti_flat_model model = {.flat = NULL};
    /* Files of the one would lie among those of the other, and the next to read the folder would take them for its
     * weights. */
    if (taciti_file_lies_in(from, to) && taciti_file_lies_in(to, from))
        return taciti_fail(TACIT_E_CONFIG, "%s is the folder that is exported: give another, such as -o %s/hf", to, to);
    char folder[TACITI_PATH_BYTES], path[TACITI_PATH_BYTES];
    if (options->step >= 0) {
        TACITI_TRY(taciti_path_join(folder, sizeof folder, from, "ckpt"));
        TACITI_TRY(taciti_stage_path(folder, options->step, "", path));
    }
    TACITI_TRY(taciti_run_open(options->step >= 0 ? path : from, &source));
    tacit_status status = convert_weights(&source, to, &how, &model);
    if (status == TACIT_OK) status = report_export(&source, to, &how, model.layout.parameters, json);
    taciti_flat_model_destroy(&model);
    taciti_run_close(&source);
    return status;
}

tacit_status taciti_verb_export(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments arguments;
    export_options options;
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &arguments));
    TACITI_TRY(read_options(&arguments, &options));
    const char *to = taciti_arguments_get(&arguments, "--output");
    if (arguments.positional_count != 1 || to == NULL || to[0] == '\0')
        return taciti_fail(TACIT_E_USAGE, "name what to read and where to put it: tacit export run/ -o gpt2/");
    return export_run(arguments.positional[0], to, &options, taciti_arguments_get(&arguments, "--json") != NULL);
}

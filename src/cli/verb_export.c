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

static tacit_status read_flags(const taciti_arguments *arguments, taciti_weights_write_options *how, int64_t *step) {
    static const taciti_option STEP = {.type = TACITI_OPTION_INT, .max = 9e18};
    const char *to = taciti_arguments_get(arguments, "--output"), *text = taciti_arguments_get(arguments, "--step");
    const bool file = to != NULL && taciti_text_ends_with(to, ".bin");
    int format = 0;
    TACITI_TRY(taciti_arguments_choice(arguments, "--format", TACITI_WEIGHTS_CHOICES,
                                       file ? TACITI_WEIGHTS_LLMC : TACITI_WEIGHTS_HF, &format));
    TACITI_TRY(taciti_arguments_choice(arguments, "--dtype", TACITI_DTYPE_CHOICES, TACITI_DTYPE_F32, &how->dtype));
    how->format = (taciti_weights_format)format;
    *step = -1; /* the newest */
    return text == NULL ? TACIT_OK : taciti_value_set(&STEP, "--step", text, step);
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

static tacit_status export_run(const char *from, const char *to, const taciti_weights_write_options *how, int64_t step,
                               bool json) {
    taciti_run_info source;
    taciti_flat_model model = {.flat = NULL};
    /* Files of the one would lie among those of the other, and the next to read the folder would take them for its
     * weights. */
    if (taciti_file_lies_in(from, to) && taciti_file_lies_in(to, from))
        return taciti_fail(TACIT_E_CONFIG, "%s is the folder that is exported: give another, such as -o %s/hf", to, to);
    char folder[TACITI_PATH_BYTES], path[TACITI_PATH_BYTES];
    if (step >= 0) {
        TACITI_TRY(taciti_path_join(folder, sizeof folder, from, "ckpt"));
        TACITI_TRY(taciti_stage_path(folder, step, "", path));
    }
    TACITI_TRY(taciti_run_open(step >= 0 ? path : from, &source));
    tacit_status status = convert_weights(&source, to, how, &model);
    if (status == TACIT_OK) status = report_export(&source, to, how, model.layout.parameters, json);
    taciti_flat_model_destroy(&model);
    taciti_run_close(&source);
    return status;
}

tacit_status taciti_verb_export(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments arguments;
    taciti_weights_write_options how;
    int64_t step;
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &arguments));
    TACITI_TRY(read_flags(&arguments, &how, &step));
    const char *to = taciti_arguments_get(&arguments, "--output");
    if (arguments.positional_count != 1 || to == NULL || to[0] == '\0')
        return taciti_fail(TACIT_E_USAGE, "name what to read and where to put it: tacit export run/ -o gpt2/");
    return export_run(arguments.positional[0], to, &how, step, taciti_arguments_get(&arguments, "--json") != NULL);
}

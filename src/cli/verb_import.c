/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of another program become a run folder with one checkpoint, at step 0.
 */
#include <jansson.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "ckpt/run.h"
#include "ckpt/stage.h"
#include "cli/verbs.h"

const taciti_flag taciti_import_flags[] = {
    {"--output", "-o", "FOLDER", "the run folder to create"},
    {"--json", NULL, NULL, "answer as one JSON object"},
    {NULL, NULL, NULL, NULL},
};

static tacit_status save_run(const taciti_run_info *source, const char *from, const char *folder,
                             const taciti_flat_model *model) {
    const taciti_ckpt_array parameters = {.prefix = "model.", .entry = {.layout = &model->layout, .data = model->flat}};
    /* The description that training writes as well; nothing has been trained yet. */
    char *meta = taciti_json_dump(json_pack("{s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:{}}", "step", 0, "updates", 0,
                                            "skipped", 0, "tokens", 0, "seed", 0, "imported", from, "model",
                                            taciti_run_describe_model(&source->model), "config"),
                                  JSON_COMPACT);
    if (meta == NULL) return taciti_fail(TACIT_E_DATA, "%s: the path is not UTF-8", from);
    const taciti_ckpt_state state = {.arrays = &parameters, .array_count = 1, .meta_json = meta};
    const tacit_status status = taciti_ckpt_save(NULL, folder, 0, 1, &state);
    taciti_free(meta);
    return status;
}

static tacit_status convert_weights(const taciti_run_info *source, const char *from, const char *run,
                                    taciti_flat_model *model) {
    char folder[TACITI_PATH_BYTES];
    int64_t *steps = NULL;
    size_t count = 0;
    TACITI_TRY(taciti_path_join(folder, sizeof folder, run, "ckpt"));
    TACITI_TRY(taciti_stage_list(folder, &steps, &count));
    taciti_free(steps);
    if (count > 0) return taciti_fail(TACIT_E_CONFIG, "%s: holds checkpoints already; choose another folder", folder);
    TACITI_TRY(taciti_flat_model_check_tokenizer(source->meta, run));
    TACITI_TRY(taciti_flat_model_create(&source->model, model));
    TACITI_TRY(taciti_run_weights(source, &model->layout, model->flat));
    TACITI_TRY(taciti_file_make_folder(run));
    TACITI_TRY(taciti_flat_model_copy_tokenizer(source->meta, run)); /* a run folder is complete by itself */
    return save_run(source, from, folder, model);
}

static tacit_status report_import(const taciti_run_info *source, const char *from, const char *run, size_t parameters,
                                  bool json) {
    if (!json) {
        printf("%s: %zu parameters (%lld layers, %lld channels, vocabulary %lld) are now in %s\n", from, parameters,
               (long long)source->model.layers, (long long)source->model.channels, (long long)source->model.vocabulary,
               run);
        return TACIT_OK;
    }
    return taciti_cli_print_json(json_pack("{s:s, s:s, s:I, s:o}", "source", from, "run", run, "parameters",
                                           (json_int_t)parameters, "model", taciti_run_describe_model(&source->model)));
}

tacit_status taciti_verb_import(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments arguments;
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &arguments));
    const char *from = arguments.positional[0], *run = taciti_arguments_get(&arguments, "--output");
    const bool json = taciti_arguments_get(&arguments, "--json") != NULL;
    if (arguments.positional_count != 1 || run == NULL || run[0] == '\0')
        return taciti_fail(TACIT_E_USAGE, "name what to read and where to put it: tacit import gpt2/ -o run/");
    taciti_run_info source;
    taciti_flat_model model = {.flat = NULL};
    TACITI_TRY(taciti_run_open(from, &source));
    tacit_status status = TACIT_OK;
    if (source.step >= 0)
        status = taciti_fail(TACIT_E_CONFIG, "%s: is a run of tacit already; --train.init takes it as it is", from);
    if (status == TACIT_OK) status = convert_weights(&source, from, run, &model);
    if (status == TACIT_OK) status = report_import(&source, from, run, model.layout.parameters, json);
    taciti_flat_model_destroy(&model);
    taciti_run_close(&source);
    return status;
}

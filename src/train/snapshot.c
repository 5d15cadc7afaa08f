/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/run.h"
#include "train/trainer.h"

enum { PATH_BYTES = 4096, MOST_ARRAYS = 4, PREFIX_BYTES = 32 };

/* The flat arrays a run must remember: parameters, then the optimizer's moments. */
typedef struct array_list {
    taciti_ckpt_array arrays[MOST_ARRAYS];
    char prefixes[MOST_ARRAYS][PREFIX_BYTES];
    size_t count;
} array_list;

static void list_arrays(taciti_trainer *trainer, array_list *out) {
    out->count = 0;
    out->arrays[out->count++] =
        (taciti_ckpt_array){"model.", &trainer->layout, taciti_model_parameters(trainer->model)};
    for (int i = 0; i < taciti_optim_state_count(trainer->optim) && out->count < MOST_ARRAYS; i++) {
        char *prefix = out->prefixes[out->count];
        (void)snprintf(prefix, PREFIX_BYTES, "optim.%s.", taciti_optim_state_name(trainer->optim, i));
        out->arrays[out->count++] =
            (taciti_ckpt_array){prefix, &trainer->layout, taciti_optim_state(trainer->optim, i)};
    }
}

static json_t *describe_model(const taciti_model_options *model) {
    char *text = taciti_run_describe_model(model);
    json_t *value = text == NULL ? NULL : json_loads(text, 0, NULL);
    taciti_free(text);
    return value;
}

/* Everything but arrays. Returns owned; free(). */
static char *describe_run(const taciti_trainer *trainer) {
    const taciti_settings *s = trainer->settings;
    char *config = taciti_config_json(&s->config, 0);
    json_t *values = config == NULL ? NULL : json_loads(config, 0, NULL);
    taciti_free(config);
    json_t *meta =
        values == NULL
            ? NULL
            : json_pack("{s:I,s:I,s:I,s:I,s:I,s:i,s:s,s:s,s:o,s:o}", "step", (json_int_t)trainer->position.step,
                        "updates", (json_int_t)taciti_optim_updates(trainer->optim), "skipped",
                        (json_int_t)trainer->position.skipped, "tokens", (json_int_t)trainer->position.tokens, "seed",
                        (json_int_t)s->train.seed, "ranks", trainer->ranks, "strategy", s->strategy.text, "data",
                        trainer->data_info.digest, "model", describe_model(&s->model), "config", values);
    char *text = meta == NULL ? NULL : json_dumps(meta, JSON_INDENT(1));
    json_decref(meta);
    return text;
}

static tacit_status checkpoint_folder(const taciti_trainer *trainer, char *path) {
    return taciti_path_join(path, PATH_BYTES, trainer->settings->run.dir.text, "ckpt");
}

tacit_status taciti_trainer_save(taciti_trainer *trainer) {
    const int64_t begin = taciti_now_ns();
    taciti_comm_announce(trainer->comm, trainer->position.step, "checkpoint");
    char folder[PATH_BYTES];
    TACITI_TRY(checkpoint_folder(trainer, folder));
    array_list list;
    list_arrays(trainer, &list);
    char *meta = describe_run(trainer);
    TACITI_TRY(taciti_comm_agree(trainer->comm, meta == NULL ? TACIT_E_MEMORY : TACIT_OK));
    const taciti_ckpt_state state = {.arrays = list.arrays, .array_count = list.count, .meta_json = meta};
    const tacit_status status =
        taciti_ckpt_save(trainer->comm, folder, trainer->position.step, (int)trainer->settings->train.keep, &state);
    free(meta);
    (void)taciti_trace_add(&trainer->trace, TACITI_SPAN_CHECKPOINT, -1, begin);
    return status;
}

static tacit_status read_number(const json_t *meta, const char *key, int64_t *out) {
    const json_t *value = json_object_get(meta, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return taciti_fail(TACIT_E_DATA, "checkpoint: \"%s\" is missing from its description", key);
    *out = (int64_t)json_integer_value(value);
    return TACIT_OK;
}

/* A resumed run is the same run only with the same sample sequence; other changes are the user's to make. */
static tacit_status check_same_run(const taciti_trainer *trainer, const json_t *meta) {
    int64_t seed = 0;
    if (json_object_get(meta, "imported") != NULL)
        return taciti_fail(TACIT_E_CONFIG,
                           "%s: was imported, there is no training to resume; start a run from it with "
                           "--train.init %s --run.dir FOLDER",
                           trainer->settings->run.dir.text, trainer->settings->run.dir.text);
    TACITI_TRY(read_number(meta, "seed", &seed));
    if (seed != trainer->settings->train.seed)
        return taciti_fail(TACIT_E_CONFIG, "train.seed is %lld but the checkpoint was made with %lld",
                           (long long)trainer->settings->train.seed, (long long)seed);
    const char *data = json_string_value(json_object_get(meta, "data"));
    if (data != NULL && strcmp(data, trainer->data_info.digest) != 0 && trainer->rank == 0)
        taciti_log(TACITI_LOG_WARN,
                   "the data differs from that of the checkpoint (digest %s, now %s): going on with the new", data,
                   trainer->data_info.digest);
    return TACIT_OK;
}

static tacit_status restore_position(taciti_trainer *trainer, const json_t *meta) {
    int64_t updates = 0, tokens = 0;
    TACITI_TRY(check_same_run(trainer, meta));
    TACITI_TRY(read_number(meta, "step", &trainer->position.step));
    TACITI_TRY(read_number(meta, "updates", &updates));
    TACITI_TRY(read_number(meta, "skipped", &trainer->position.skipped));
    TACITI_TRY(read_number(meta, "tokens", &tokens));
    trainer->position.tokens = (uint64_t)tokens;
    taciti_optim_set_updates(trainer->optim, updates);
    return TACIT_OK;
}

static tacit_status restore(taciti_trainer *trainer, const char *path, const char *meta_json) {
    taciti_model_options model;
    TACITI_TRY(taciti_run_parse_model(path, meta_json, &model));
    TACITI_TRY(taciti_run_match(path, &model, &trainer->settings->model));
    json_t *meta = json_loads(meta_json, 0, NULL);
    if (meta == NULL) return taciti_fail(TACIT_E_DATA, "%s: its description is not JSON", path);
    const tacit_status status = restore_position(trainer, meta);
    json_decref(meta);
    TACITI_TRY(status);
    array_list list;
    list_arrays(trainer, &list);
    TACITI_TRY(taciti_ckpt_load(path, list.arrays, list.count));
    taciti_model_refresh(trainer->model);
    return TACIT_OK;
}

tacit_status taciti_trainer_resume(taciti_trainer *trainer, bool *found) {
    char folder[PATH_BYTES], path[PATH_BYTES];
    char *meta = NULL;
    int64_t step = -1;
    *found = false;
    TACITI_TRY(checkpoint_folder(trainer, folder));
    const tacit_status status = taciti_ckpt_find(trainer->comm, folder, path, sizeof path, &step, &meta);
    if (status == TACIT_E_DATA && step < 0) return TACIT_OK;
    TACITI_TRY(status);
    const tacit_status restored = taciti_comm_agree(trainer->comm, restore(trainer, path, meta));
    taciti_free(meta);
    *found = restored == TACIT_OK;
    return restored;
}

/* Reads foreign or earlier weights; their shape must be the configured one. */
static tacit_status read_weights(taciti_trainer *trainer, const char *from) {
    taciti_run_info info;
    TACITI_TRY(taciti_run_open(from, &info));
    tacit_status status = taciti_run_match(from, &info.model, &trainer->settings->model);
    if (status == TACIT_OK)
        status = taciti_run_weights(&info, &trainer->layout, taciti_model_parameters(trainer->model));
    taciti_run_close(&info);
    return status;
}

tacit_status taciti_trainer_initialise(taciti_trainer *trainer) {
    const char *from = trainer->settings->train.init.text;
    if (from[0] == '\0') {
        taciti_model_init(trainer->model, (uint64_t)trainer->settings->train.seed);
        return TACIT_OK;
    }
    TACITI_TRY(taciti_comm_agree(trainer->comm, read_weights(trainer, from)));
    taciti_model_refresh(trainer->model);
    return TACIT_OK;
}

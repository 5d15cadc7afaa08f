/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run begins: from a checkpoint (driver/resume.h), from foreign weights, or from the seed; and the checkpoints
 * that it saves.
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "ckpt/run.h"
#include "ckpt/stage.h"
#include "driver/resume.h"
#include "train/trainer.h"

/* Where the run stood. */
typedef struct saved_position {
    int64_t seed, step, skipped, tokens;
} saved_position;

#define COUNT(key)                                                                                                     \
    { #key, true, taciti_strict_integer, offsetof(saved_position, key), 0, 0x1p63, "an integer from 0 on", NULL }
static const taciti_strict_field POSITION_FIELDS[] = {COUNT(seed), COUNT(step), COUNT(skipped), COUNT(tokens), {0}};

/* A resumed run is the same run only with the same sample sequence; other changes are the user's to make. */
static tacit_status check_same_run(const taciti_trainer *trainer, const json_t *meta, int64_t seed) {
    if (seed != trainer->settings->train.seed)
        return taciti_fail(
            TACIT_E_CONFIG,
            "train.seed is %lld but the checkpoint was made with %lld: resume with --train.seed %lld, or begin a "
            "new run in another --run.dir",
            (long long)trainer->settings->train.seed, (long long)seed, (long long)seed);
    const char *data = json_string_value(json_object_get(meta, "data"));
    if (data != NULL && strcmp(data, trainer->data_info.digest) != 0 && trainer->rank == 0)
        taciti_log(TACITI_LOG_WARN,
                   "the data differs from that of the checkpoint (digest %s, now %s): going on with the new", data,
                   trainer->data_info.digest);
    return TACIT_OK;
}

static tacit_status restore_position(taciti_trainer *trainer, const char *path, const json_t *meta) {
    taciti_strict_reader reader = {.file = path, .status = TACIT_E_DATA, .open = true};
    saved_position saved;
    if (json_object_get(meta, "imported") != NULL)
        return taciti_fail(TACIT_E_CONFIG,
                           "%s: was imported, there is no training to resume; start a run from it with "
                           "--train.init %s --run.dir FOLDER",
                           trainer->settings->run.dir.text, trainer->settings->run.dir.text);
    TACITI_TRY(taciti_strict_object(&reader, meta, POSITION_FIELDS, "an object", &saved));
    TACITI_TRY(check_same_run(trainer, meta, saved.seed));
    trainer->position =
        (taciti_position){.step = saved.step, .skipped = saved.skipped, .tokens = (uint64_t)saved.tokens};
    return TACIT_OK;
}

static tacit_status restore_state(taciti_trainer *trainer, const char *path, const json_t *meta,
                                  taciti_beginning *out) {
    taciti_state state = {.count = 0};
    taciti_resume resume = {
        .ckpt = {.path = path, .meta = meta, .rank = trainer->rank, .ranks = trainer->ranks},
        .driver = trainer->driver,
        .strategy = trainer->strategy,
        .from_mean = trainer->from_mean,
        .advice = "go on from the mean of the replicas with --resume-from-mean",
        .optim_advice = "start a new run from its weights with --train.init and another --run.dir",
    };
    taciti_driver_list_state(trainer->driver, false, &state);
    const json_int_t ranks = json_integer_value(json_object_get(meta, "ranks"));
    if (taciti_data_partitioned(trainer->data) && ranks != trainer->ranks) /* a partition is over the ranks of a run */
        taciti_trainer_say(trainer,
                           "resume: data.partition %s is over %d ranks now, over %lld in the checkpoint: every rank "
                           "has other data",
                           trainer->settings->data.partition.text, trainer->ranks, (long long)ranks);
    tacit_status status = taciti_resume_open(&resume, taciti_config_values(&trainer->settings->job.config, 1));
    if (status == TACIT_OK) status = taciti_resume_restore(&resume, &state, out);
    taciti_resume_close(&resume);
    return status;
}

static tacit_status restore_run(taciti_trainer *trainer, const char *path, const char *meta_json,
                                taciti_beginning *out) {
    taciti_model_options model;
    const taciti_strict_reader reader = {.file = path, .status = TACIT_E_DATA};
    json_t *meta = NULL;
    TACITI_TRY(taciti_strict_parse(&reader, meta_json, strlen(meta_json), &meta));
    tacit_status status = taciti_run_parse_model(path, meta, &model);
    if (status == TACIT_OK) status = taciti_run_match(path, &model, &trainer->settings->job.model);
    if (status == TACIT_OK) status = restore_position(trainer, path, meta);
    if (status == TACIT_OK) status = restore_state(trainer, path, meta, out);
    json_decref(meta);
    TACITI_TRY(status);
    if (trainer->strategy->units == NULL) taciti_model_refresh(trainer->model);
    return TACIT_OK;
}

/* Parameters that must be equal are; then the strategy starts what it has under way between steps. A rank that owns
 * parts has read its own. */
static tacit_status start_strategy(taciti_trainer *trainer, taciti_beginning how) {
    if (how.equal && trainer->strategy->units == NULL) TACITI_TRY(taciti_trainer_agree_on_parameters(trainer));
    trainer->counted = taciti_comm_count(trainer->comm);
    return taciti_driver_start(trainer->driver, trainer->position.step, how.restored);
}

tacit_status taciti_trainer_resume(taciti_trainer *trainer, bool *found) {
    char folder[TACITI_PATH_BYTES], path[TACITI_PATH_BYTES];
    char *meta = NULL;
    int64_t step = -1;
    taciti_beginning how = {.restored = false};
    *found = false;
    TACITI_TRY(taciti_path_join(folder, sizeof folder, trainer->settings->run.dir.text, "ckpt"));
    const tacit_status status = taciti_ckpt_find(trainer->comm, folder, path, sizeof path, &step, &meta);
    if (status == TACIT_E_DATA && step < 0) return TACIT_OK;
    TACITI_TRY(status);
    const tacit_status restored = taciti_comm_agree(trainer->comm, restore_run(trainer, path, meta, &how));
    taciti_free(meta);
    TACITI_TRY(restored);
    if (trainer->rank == 0) taciti_stage_set_aside(folder, trainer->position.step);
    *found = true;
    return start_strategy(trainer, how);
}

/* ---- from other weights ------------------------------------------------------------------------------------------ */

/* The sizes of a preset were asked for, but for the vocabulary, which is the tokenizer's. */
static tacit_status set_shape(const taciti_settings *job, const taciti_model_options *model) {
    const bool preset = job->model.preset.text[0] != '\0';
    for (size_t i = 0; i < TACITI_MODEL_SIZES; i++) {
        const char *name = NULL;
        char key[TACITI_KEY_BYTES], text[32];
        (void)snprintf(text, sizeof text, "%" PRId64, taciti_model_size(model, i, &name));
        (void)snprintf(key, sizeof key, "model.%s", name);
        if (!preset || strcmp(name, "vocabulary") == 0)
            TACITI_TRY(taciti_config_preset(&job->config, key, text, "train.init"));
    }
    return preset ? TACIT_OK
                  : taciti_config_preset(&job->config, "model.tied", model->tied ? "true" : "false", "train.init");
}

/* Opens the newest checkpoint of run.dir, in silence: the resume that follows reports damage, once for all ranks. */
static bool open_own_run(const taciti_trainer *trainer, taciti_run_info *info) {
    char reason[TACITI_REASON_BYTES];
    taciti_log_capture(reason);
    const tacit_status status = taciti_run_open(trainer->settings->run.dir.text, info);
    taciti_log_capture(NULL);
    if (status != TACIT_OK) return false;
    if (info->step < 0) taciti_run_close(info); /* weights of another program */
    return info->step >= 0;
}

tacit_status taciti_trainer_take_shape(const taciti_trainer *trainer, bool resume) {
    const char *from = trainer->settings->train.init.text;
    taciti_settings *job = &trainer->settings->job;
    taciti_run_info info;
    if (from[0] == '\0') return TACIT_OK;
    if (!resume || !open_own_run(trainer, &info)) TACITI_TRY(taciti_run_open(from, &info));
    tacit_status status = set_shape(job, &info.model);
    taciti_model_options wanted = job->model;
    if (status == TACIT_OK) status = taciti_model_resolve(&wanted);
    if (status == TACIT_OK) status = taciti_run_match(info.path, &info.model, &wanted);
    const char *file = json_string_value(json_object_get(json_object_get(info.meta, "config"), "data.vocab"));
    if (status == TACIT_OK && file != NULL)
        status = taciti_config_preset(&job->config, "data.vocab", file, "train.init");
    taciti_run_close(&info);
    return status;
}

static tacit_status read_weights(taciti_trainer *trainer, const char *from) {
    taciti_run_info info;
    TACITI_TRY(taciti_run_open(from, &info));
    tacit_status status = taciti_run_match(from, &info.model, &trainer->settings->job.model);
    if (status == TACIT_OK)
        status = taciti_run_weights(&info, &trainer->layout, taciti_model_parameters(trainer->model));
    taciti_run_close(&info);
    return status;
}

/* Unit by unit, so that no rank ever holds all parameters. */
static tacit_status initialise_units(taciti_trainer *trainer, uint64_t *digest) {
    void *strategy = taciti_driver_strategy(trainer->driver);
    XXH3_state_t *hash = XXH3_createState();
    tacit_status status = hash == NULL || XXH3_64bits_reset(hash) == XXH_ERROR ? TACIT_E_MEMORY : TACIT_OK;
    for (size_t u = 0; status == TACIT_OK && u < trainer->layout.unit_count; u++) {
        const taciti_range r = taciti_layout_unit(&trainer->layout, u);
        status = trainer->strategy->units->need(strategy, u);
        if (status != TACIT_OK) break;
        taciti_model_init_unit(trainer->model, u, (uint64_t)trainer->settings->train.seed);
        (void)XXH3_64bits_update(hash, taciti_model_parameters(trainer->model) + r.at, r.n * sizeof(float));
        trainer->strategy->units->release(strategy, u);
    }
    if (status == TACIT_OK) *digest = XXH3_64bits_digest(hash);
    (void)XXH3_freeState(hash);
    return status;
}

static tacit_status initialise_parts(taciti_trainer *trainer, const char *from) {
    void *strategy = taciti_driver_strategy(trainer->driver);
    uint64_t digest = 0;
    if (from[0] == '\0') {
        TACITI_TRY(taciti_comm_agree(trainer->comm, initialise_units(trainer, &digest)));
        TACITI_TRY(taciti_trainer_agree_on_digest(trainer, digest));
    } else {
        tacit_status status = TACIT_OK; /* files of weights are read as a whole */
        for (size_t u = 0; u < trainer->layout.unit_count && status == TACIT_OK; u++)
            status = trainer->strategy->units->need(strategy, u);
        if (status == TACIT_OK) status = read_weights(trainer, from);
        TACITI_TRY(taciti_comm_agree(trainer->comm, status));
        TACITI_TRY(taciti_trainer_agree_on_parameters(trainer));
        for (size_t u = 0; u < trainer->layout.unit_count; u++) trainer->strategy->units->release(strategy, u);
    }
    return start_strategy(trainer, (taciti_beginning){.equal = true});
}

tacit_status taciti_trainer_initialise(taciti_trainer *trainer) {
    const char *from = trainer->settings->train.init.text;
    if (trainer->strategy->units != NULL) return initialise_parts(trainer, from);
    if (from[0] == '\0') {
        taciti_model_init(trainer->model, (uint64_t)trainer->settings->train.seed);
    } else {
        TACITI_TRY(taciti_comm_agree(trainer->comm, read_weights(trainer, from)));
        taciti_model_refresh(trainer->model);
    }
    return start_strategy(trainer, (taciti_beginning){.equal = true});
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/* Everything but the state. Returns owned. The folder in which relative paths of the configuration begin is no part of
 * the run's identity; one whose name is not UTF-8 is left out. */
static json_t *describe_run(const taciti_trainer *trainer) {
    const taciti_train_settings *s = trainer->settings;
    char directory[TACITI_PATH_BYTES];
    json_t *values = taciti_config_values(&s->job.config, 0);
    return values == NULL
               ? NULL
               : json_pack("{s:I,s:I,s:I,s:I,s:i,s:s,s:s,s:o*,s:o,s:o}", "step", (json_int_t)trainer->position.step,
                           "skipped", (json_int_t)trainer->position.skipped, "tokens",
                           (json_int_t)trainer->position.tokens, "seed", (json_int_t)s->train.seed, "ranks",
                           trainer->ranks, "strategy", trainer->strategy->name, "data", trainer->data_info.digest,
                           "directory", json_string(getcwd(directory, sizeof directory)), "model",
                           taciti_run_describe_model(&s->job.model), "config", values);
}

tacit_status taciti_trainer_save(taciti_trainer *trainer) {
    const int64_t begin = taciti_now_ns();
    taciti_comm_announce(trainer->comm, trainer->position.step, "checkpoint");
    char folder[TACITI_PATH_BYTES];
    taciti_state state = {.count = 0};
    TACITI_TRY(taciti_path_join(folder, sizeof folder, trainer->settings->run.dir.text, "ckpt"));
    taciti_driver_list_state(trainer->driver, true, &state);
    json_t *meta = describe_run(trainer);
    tacit_status status = taciti_comm_agree(trainer->comm, meta == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK)
        status = taciti_ckpt_save_state(trainer->comm, folder, trainer->position.step,
                                        (int)trainer->settings->train.keep, meta, &state);
    json_decref(meta);
    (void)taciti_trace_add(&trainer->trace, TACITI_SPAN_CHECKPOINT, -1, begin);
    return status;
}

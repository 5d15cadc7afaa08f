/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run begins: from a checkpoint, from foreign weights, or from the seed. A checkpoint of replicas that differ is
 * taken up rank by rank when strategy and number of ranks are the same; otherwise all ranks begin with the mean.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "ckpt/run.h"
#include "train/changes.h"
#include "train/trainer.h"

enum { PATH_BYTES = 4096, CHANGES_BYTES = 512 };

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
        return taciti_fail(TACIT_E_CONFIG, "train.seed is %lld but the checkpoint was made with %lld",
                           (long long)trainer->settings->train.seed, (long long)seed);
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

/* What a checkpoint says about the run that made it. */
typedef struct origin {
    taciti_ckpt_origin ckpt;
    const char *strategy;
    int replicas;           /* ranks with values of their own; 0: all was shared */
    taciti_changes changes; /* of the configuration since */
} origin;

/* ---- what a changed configuration means -------------------------------------------------------------------------- */

/* Where an entry is missing because keys of its section have changed, they are named. The same on every rank. */
static tacit_status check_lacking(const taciti_trainer *trainer, const origin *from, const taciti_state *state) {
    const taciti_state_entry *lacking = NULL;
    char changes[CHANGES_BYTES], section[CHANGES_BYTES];
    TACITI_TRY(taciti_ckpt_find_lacking(&from->ckpt, state, &lacking));
    const char *name = lacking == NULL ? NULL : strchr(lacking->name, '.');
    if (name == NULL) return TACIT_OK;
    const bool optim = strncmp(lacking->name, "optim.", strlen("optim.")) == 0;
    (void)snprintf(section, sizeof section, "%s.", optim ? "optim" : trainer->strategy->name);
    taciti_changes_text(&from->changes, section, changes, sizeof changes);
    if (changes[0] == '\0') return TACIT_OK; /* damage: loading says what is missing */
    if (trainer->rank != 0) return TACIT_E_CONFIG;
    return taciti_fail(TACIT_E_CONFIG,
                       "%s: cannot go on exactly, it holds no state \"%s\" of %s: %s; resume with the old value, or %s",
                       from->ckpt.path, name + 1, optim ? "the optimizer" : trainer->strategy->name, changes,
                       optim ? "start a new run from its weights with --train.init and another --run.dir"
                             : "go on from the mean of the replicas with --resume-from-mean");
}

/* All replicas had made the same number of updates, or every rank has its own back. */
static bool stood_together(const origin *from) {
    const json_t *replicas = json_object_get(from->ckpt.meta, "replicas");
    const json_t *first = json_object_get(json_array_get(replicas, 0), "updates");
    bool together = true;
    for (size_t r = 1; r < json_array_size(replicas); r++) {
        const json_t *one = json_object_get(json_array_get(replicas, r), "updates");
        together = together && json_integer_value(one) == json_integer_value(first);
    }
    return together || from->ckpt.resumption == TACITI_RESUME_EXACTLY;
}

/* The optimizer has made that many updates. Where a window of AccumAdam has another length now, or ranks stood at
 * different places in it, it begins anew: M and V keep the windows that have ended, and their number is what the bias
 * correction counts; gradients of the unfinished window stay outside, as their share in A was for the old length. */
static tacit_status resume_updates(taciti_trainer *trainer, const origin *from, const taciti_state *state) {
    taciti_optim *optim = taciti_driver_optim(trainer->driver);
    const int64_t updates = taciti_optim_updates(optim);
    const int64_t before = taciti_changes_window_before(&from->changes), windows = updates / before;
    const int64_t now = taciti_changes_window_now(&from->changes);
    const bool together = stood_together(from);
    const taciti_state_entry *unfinished = taciti_state_find(state, "optim.a");
    if (before == now && (together || now == 1)) return TACIT_OK;
    if (windows > INT64_MAX / now)
        return taciti_fail(TACIT_E_DATA, "%s: %" PRId64 " updates are too many", from->ckpt.path, updates);
    taciti_range r;
    for (size_t i = 0; unfinished != NULL && taciti_state_range(unfinished, i, &r); i++)
        memset((float *)unfinished->data + r.at, 0, r.n * sizeof(float));
    taciti_optim_set_updates(optim, windows * now);
    if (updates % before != 0 || !together)
        taciti_trainer_warn(trainer,
                            "resume: the optimizer's window begins anew; the last %" PRId64
                            " gradients are not in the moments, which hold %" PRId64 " windows",
                            updates % before, windows);
    return TACIT_OK;
}

/* ---- which of them ----------------------------------------------------------------------------------------------- */

static taciti_resumption resumption_of(const taciti_trainer *trainer, const origin *from) {
    const json_int_t ranks = json_integer_value(json_object_get(from->ckpt.meta, "ranks"));
    const json_int_t formers = from->replicas > 0 ? from->replicas : ranks;
    const taciti_strategy *former = taciti_strategy_find(from->strategy), *now = trainer->strategy;
    const bool same = strcmp(from->strategy, now->name) == 0;
    /* Of equal replicas only residuals belong to ranks, and these mean the same. */
    const bool alike = former != NULL && former->replicas_equal && now->replicas_equal;
    if (trainer->from_mean || (!same && !alike)) return TACITI_RESUME_FROM_MEAN;
    if (!same) return TACITI_RESUME_REGROUPED;
    return formers == trainer->ranks ? TACITI_RESUME_EXACTLY : TACITI_RESUME_REGROUPED;
}

static tacit_status read_origin(const taciti_trainer *trainer, const char *path, const json_t *meta, origin *out) {
    const char *strategy = json_string_value(json_object_get(meta, "strategy"));
    *out = (origin){.ckpt = {.path = path, .meta = meta, .rank = trainer->rank, .ranks = trainer->ranks},
                    .strategy = strategy == NULL ? "" : strategy};
    TACITI_TRY(taciti_ckpt_former_ranks(&out->ckpt, &out->replicas));
    out->ckpt.resumption = resumption_of(trainer, out);
    return TACIT_OK;
}

/* A partition is over the ranks of this run. */
static void say_partition(const taciti_trainer *trainer, const origin *from) {
    const json_int_t ranks = json_integer_value(json_object_get(from->ckpt.meta, "ranks"));
    if (!taciti_data_partitioned(trainer->data) || ranks == trainer->ranks) return;
    taciti_trainer_say(trainer,
                       "resume: data.partition %s is over %d ranks now, over %lld in the checkpoint: every rank has "
                       "other data",
                       trainer->settings->data.partition.text, trainer->ranks, (long long)ranks);
}

/* Whether ranks of the checkpoint had an array of that name. */
static tacit_status had(const taciti_trainer *trainer, const origin *from, const char *name, bool *out) {
    char what[TACITI_STATE_NAME_BYTES], prefix[TACITI_CKPT_PREFIX_BYTES];
    (void)snprintf(what, sizeof what, "%s.", name);
    taciti_ckpt_own_prefix(0, what, prefix);
    const taciti_ckpt_array array = {.prefix = prefix, .layout = &trainer->layout, .own = true};
    return taciti_ckpt_find_held(from->ckpt.path, &array, 1, out);
}

/* What residuals of compression become; they belong to ranks even where replicas are equal. */
static tacit_status say_residuals(const taciti_trainer *trainer, const origin *from, const taciti_state *state) {
    static const char gradients[] = "strategy.residual", sums[] = "strategy.residual_result";
    const json_t *config = json_object_get(from->ckpt.meta, "config");
    const char *codec = json_string_value(json_object_get(config, "compress.codec"));
    const bool keeps = taciti_state_find(state, gradients) != NULL, keeps_sums = taciti_state_find(state, sums) != NULL;
    const bool lost = !keeps || from->ckpt.resumption == TACITI_RESUME_FROM_MEAN || trainer->ranks == 1;
    bool some, some_sums;
    TACITI_TRY(had(trainer, from, gradients, &some));
    TACITI_TRY(had(trainer, from, sums, &some_sums));
    if (some && lost)
        taciti_trainer_warn(trainer, "resume: the residuals of %d ranks (compress.codec %s) are dropped%s",
                            from->replicas, codec == NULL ? "?" : codec,
                            keeps ? "" : "; resume with that codec to send them");
    else if (some && from->ckpt.resumption == TACITI_RESUME_REGROUPED)
        taciti_trainer_say(trainer,
                           "resume: the residuals of %d ranks go on at %d: their sum is part of the next sum of ranks",
                           from->replicas, trainer->ranks);
    if (some_sums && !lost && !keeps_sums)
        taciti_trainer_warn(trainer, "resume: the residuals of sums are dropped: this run keeps none");
    return TACIT_OK;
}

/* Where a run does not go on exactly as it was, it says so. */
static void say_origin(const taciti_trainer *trainer, const origin *from, bool own_model) {
    const taciti_strategy *former = taciti_strategy_find(from->strategy);
    if (from->ckpt.resumption == TACITI_RESUME_EXACTLY) return;
    if (from->replicas > 0 && (former == NULL || !former->replicas_equal))
        taciti_trainer_warn(trainer,
                            "resume: the checkpoint holds %d replicas of strategy %s; this run (%s, %d rank%s) goes on "
                            "from their mean, with the mean of their optimizer states",
                            from->replicas, from->strategy, trainer->strategy->name, trainer->ranks,
                            trainer->ranks == 1 ? "" : "s");
    else if (own_model)
        taciti_trainer_say(trainer, "resume: the checkpoint is of strategy %s; all replicas of %s start from its model",
                           from->strategy, trainer->strategy->name);
}

/* How a restored run starts. */
typedef struct beginning {
    bool restored; /* every entry of the strategy is as it was */
    bool equal;    /* the parameters must be the same on all ranks */
} beginning;

static tacit_status restore_state(taciti_trainer *trainer, const origin *from, beginning *out) {
    taciti_state state = {.count = 0};
    taciti_trainer_list_state(trainer, false, &state);
    const bool own_model = taciti_state_find(&state, "model")->owner == TACITI_STATE_OWN;
    TACITI_TRY(say_residuals(trainer, from, &state));
    say_origin(trainer, from, own_model);
    say_partition(trainer, from);
    taciti_changes_say(&from->changes, trainer);
    TACITI_TRY(check_lacking(trainer, from, &state));
    TACITI_TRY(taciti_ckpt_restore_state(&from->ckpt, &state));
    out->restored = from->ckpt.resumption == TACITI_RESUME_EXACTLY;
    out->equal = !out->restored || !own_model;
    return resume_updates(trainer, from, &state);
}

static tacit_status restore(taciti_trainer *trainer, const char *path, const char *meta_json, beginning *out) {
    taciti_model_options model;
    origin from;
    const taciti_strict_reader reader = {.file = path, .status = TACIT_E_DATA};
    json_t *meta = NULL;
    TACITI_TRY(taciti_strict_parse(&reader, meta_json, strlen(meta_json), &meta));
    tacit_status status = taciti_run_parse_model(path, meta, &model);
    if (status == TACIT_OK) status = taciti_run_match(path, &model, &trainer->settings->job.model);
    if (status == TACIT_OK) status = restore_position(trainer, path, meta);
    if (status == TACIT_OK) status = read_origin(trainer, path, meta, &from);
    if (status == TACIT_OK) status = taciti_changes_create(trainer, meta, &from.changes);
    if (status == TACIT_OK) {
        status = restore_state(trainer, &from, out);
        taciti_changes_destroy(&from.changes);
    }
    json_decref(meta);
    TACITI_TRY(status);
    if (!trainer->strategy->parts) taciti_model_refresh(trainer->model);
    return TACIT_OK;
}

/* Parameters that must be equal are; then the strategy starts what it has under way between steps. Of parts, each has
 * read its own. */
static tacit_status start(taciti_trainer *trainer, beginning how) {
    if (how.equal && !trainer->strategy->parts) TACITI_TRY(taciti_trainer_agree_on_parameters(trainer));
    return taciti_driver_start(trainer->driver, trainer->position.step, how.restored);
}

tacit_status taciti_trainer_resume(taciti_trainer *trainer, bool *found) {
    char folder[PATH_BYTES], path[PATH_BYTES];
    char *meta = NULL;
    int64_t step = -1;
    beginning how = {.restored = false};
    *found = false;
    TACITI_TRY(taciti_path_join(folder, sizeof folder, trainer->settings->run.dir.text, "ckpt"));
    const tacit_status status = taciti_ckpt_find(trainer->comm, folder, path, sizeof path, &step, &meta);
    if (status == TACIT_E_DATA && step < 0) return TACIT_OK;
    TACITI_TRY(status);
    const tacit_status restored = taciti_comm_agree(trainer->comm, restore(trainer, path, meta, &how));
    taciti_free(meta);
    TACITI_TRY(restored);
    *found = true;
    return start(trainer, how);
}

/* ---- from other weights ------------------------------------------------------------------------------------------ */

static tacit_status set_count(const taciti_config *config, const char *key, int64_t value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    return taciti_config_preset(config, key, text, "train.init");
}

/* The sizes of a preset were asked for, but for the vocabulary, which is the tokenizer's. */
static tacit_status set_shape(const taciti_settings *job, const taciti_model_options *model) {
    const taciti_config *config = &job->config;
    TACITI_TRY(set_count(config, "model.vocabulary", model->vocabulary));
    if (job->model.preset.text[0] != '\0') return TACIT_OK;
    TACITI_TRY(set_count(config, "model.layers", model->layers));
    TACITI_TRY(set_count(config, "model.heads", model->heads));
    TACITI_TRY(set_count(config, "model.channels", model->channels));
    TACITI_TRY(set_count(config, "model.context", model->context));
    return taciti_config_preset(config, "model.tied", model->tied ? "true" : "false", "train.init");
}

static tacit_status match_shape(const taciti_settings *job, const char *from, const taciti_model_options *model) {
    taciti_model_options wanted = job->model;
    TACITI_TRY(taciti_model_resolve(&wanted));
    return taciti_run_match(from, model, &wanted);
}

static tacit_status set_tokenizer(const taciti_config *config, const json_t *meta) {
    static const char *const KEYS[] = {"data.vocab", "data.merges"};
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        const char *file = json_string_value(json_object_get(json_object_get(meta, "config"), KEYS[i]));
        if (file != NULL) TACITI_TRY(taciti_config_preset(config, KEYS[i], file, "train.init"));
    }
    return TACIT_OK;
}

tacit_status taciti_trainer_take_shape(const taciti_trainer *trainer) {
    const char *from = trainer->settings->train.init.text;
    taciti_settings *job = &trainer->settings->job;
    taciti_run_info info;
    if (from[0] == '\0') return TACIT_OK;
    TACITI_TRY(taciti_run_open(from, &info));
    tacit_status status = set_shape(job, &info.model);
    if (status == TACIT_OK) status = match_shape(job, from, &info.model);
    if (status == TACIT_OK) status = set_tokenizer(&job->config, info.meta);
    taciti_run_close(&info);
    return status;
}

static tacit_status read_weights(taciti_trainer *trainer, const char *from) {
    taciti_run_info info;
    TACITI_TRY(taciti_run_open(from, &info));
    const tacit_status status = taciti_run_weights(&info, &trainer->layout, taciti_model_parameters(trainer->model));
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
        status = trainer->strategy->need(strategy, u);
        if (status != TACIT_OK) break;
        taciti_model_init_unit(trainer->model, u, (uint64_t)trainer->settings->train.seed);
        (void)XXH3_64bits_update(hash, taciti_model_parameters(trainer->model) + r.at, r.n * sizeof(float));
        trainer->strategy->release(strategy, u);
    }
    if (status == TACIT_OK) *digest = XXH3_64bits_digest(hash);
    (void)XXH3_freeState(hash);
    return status;
}

/* Files of weights are read as a whole. */
static tacit_status read_parts(taciti_trainer *trainer, const char *from) {
    void *strategy = taciti_driver_strategy(trainer->driver);
    for (size_t u = 0; u < trainer->layout.unit_count; u++) TACITI_TRY(trainer->strategy->need(strategy, u));
    return read_weights(trainer, from);
}

static tacit_status initialise_parts(taciti_trainer *trainer, const char *from) {
    void *strategy = taciti_driver_strategy(trainer->driver);
    uint64_t digest = 0;
    if (from[0] == '\0') {
        TACITI_TRY(taciti_comm_agree(trainer->comm, initialise_units(trainer, &digest)));
        TACITI_TRY(taciti_trainer_agree_on_digest(trainer, digest));
    } else {
        TACITI_TRY(taciti_comm_agree(trainer->comm, read_parts(trainer, from)));
        TACITI_TRY(taciti_trainer_agree_on_parameters(trainer));
        for (size_t u = 0; u < trainer->layout.unit_count; u++) trainer->strategy->release(strategy, u);
    }
    return start(trainer, (beginning){.equal = true});
}

tacit_status taciti_trainer_initialise(taciti_trainer *trainer) {
    const char *from = trainer->settings->train.init.text;
    if (trainer->strategy->parts) return initialise_parts(trainer, from);
    if (from[0] == '\0') {
        taciti_model_init(trainer->model, (uint64_t)trainer->settings->train.seed);
    } else {
        TACITI_TRY(taciti_comm_agree(trainer->comm, read_weights(trainer, from)));
        taciti_model_refresh(trainer->model);
    }
    return start(trainer, (beginning){.equal = true});
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run begins: from a checkpoint, from foreign weights, or from the seed. A checkpoint of replicas that differ is
 * taken up rank by rank when strategy and number of ranks are the same; otherwise all ranks begin with the mean.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/run.h"
#include "kernel/kernel.h"
#include "train/changes.h"
#include "train/trainer.h"

enum { PATH_BYTES = 4096, CHANGES_BYTES = 512 };

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
    int64_t tokens = 0;
    TACITI_TRY(check_same_run(trainer, meta));
    TACITI_TRY(read_number(meta, "step", &trainer->position.step));
    TACITI_TRY(read_number(meta, "skipped", &trainer->position.skipped));
    TACITI_TRY(read_number(meta, "tokens", &tokens));
    trainer->position.tokens = (uint64_t)tokens;
    return TACIT_OK;
}

/* What a checkpoint says about its ranks. */
typedef struct origin {
    const char *path, *strategy;
    const json_t *meta, *replicas; /* replicas NULL: they were equal */
    int count;                     /* of replicas */
    taciti_changes changes;        /* of the configuration since */
} origin;

/* ---- what a changed configuration means -------------------------------------------------------------------------- */

/* An array that this run needs is missing because keys of this section have changed. The same on every rank. */
static tacit_status refuse_changes(const taciti_trainer *trainer, const origin *from, const char *what,
                                   const char *section, const char *way_out) {
    char changes[CHANGES_BYTES];
    taciti_changes_text(&from->changes, section, changes, sizeof changes);
    if (changes[0] == '\0') return TACIT_OK; /* damage: loading says what is missing */
    if (trainer->rank != 0) return TACIT_E_CONFIG;
    return taciti_fail(TACIT_E_CONFIG, "%s: cannot go on exactly, it holds no %s: %s; resume with the old value, or %s",
                       from->path, what, changes, way_out);
}

static const char *state_name(const taciti_trainer *trainer, int i) {
    taciti_state state = {.count = 0};
    taciti_optim_list_state(trainer->optim, TACITI_STATE_SHARED, &state);
    return state.entries[i].name + strlen("optim.");
}

/* The states of the optimizer, of rank 0 or of all (owner < 0). */
static tacit_status check_moments(const taciti_trainer *trainer, const origin *from, int owner) {
    taciti_state_list list = {.count = 0};
    size_t missing = 0;
    char what[CHANGES_BYTES];
    for (int i = 0; i < taciti_optim_state_count(trainer->optim); i++)
        taciti_state_add_moment(trainer, owner, i, taciti_optim_state(trainer->optim, i), &list);
    TACITI_TRY(taciti_ckpt_find_missing(from->path, list.arrays, list.count, &missing));
    if (missing == list.count) return TACIT_OK;
    (void)snprintf(what, sizeof what, "state \"%s\" of the optimizer", state_name(trainer, (int)missing));
    return refuse_changes(trainer, from, what, "optim.",
                          "start a new run from its weights with --train.init and another --run.dir");
}

/* The arrays of the strategy, of rank 0. */
static tacit_status check_strategy_arrays(const taciti_trainer *trainer, const origin *from) {
    taciti_state_list list = {.count = 0};
    size_t missing = 0;
    char what[CHANGES_BYTES], section[CHANGES_BYTES];
    taciti_state_add_strategy(trainer, 0, &list);
    TACITI_TRY(taciti_ckpt_find_missing(from->path, list.arrays, list.count, &missing));
    if (missing >= list.count) return TACIT_OK;
    const char *name = strstr(list.prefixes[missing], "strategy.") + strlen("strategy.");
    (void)snprintf(what, sizeof what, "array \"%.*s\" of strategy %s", (int)strlen(name) - 1, name,
                   trainer->strategy->name);
    (void)snprintf(section, sizeof section, "%s.", trainer->strategy->name);
    return refuse_changes(trainer, from, what, section, "go on from the mean of the replicas with --resume-from-mean");
}

/* The optimizer has made that many updates. Where a window of AccumAdam has another length now, or ranks stood at
 * different places in it, it begins anew: M and V keep the windows that have ended, and their number is what the bias
 * correction counts; gradients of the unfinished window stay outside, as their share in A was for the old length. */
static tacit_status resume_updates(taciti_trainer *trainer, const origin *from, int64_t updates, bool together) {
    const int64_t before = taciti_changes_window_before(&from->changes), windows = updates / before;
    const int64_t now = taciti_changes_window_now(&from->changes);
    if (before == now && (together || now == 1)) {
        taciti_optim_set_updates(trainer->optim, updates);
        return TACIT_OK;
    }
    if (windows > INT64_MAX / now)
        return taciti_fail(TACIT_E_DATA, "%s: %" PRId64 " updates are too many", from->path, updates);
    for (int i = 0; i < taciti_optim_state_count(trainer->optim); i++)
        if (strcmp(state_name(trainer, i), "a") == 0)
            memset(taciti_optim_state(trainer->optim, i), 0, trainer->layout.n * sizeof(float));
    taciti_optim_set_updates(trainer->optim, windows * now);
    if (updates % before != 0 || !together)
        taciti_trainer_say(trainer,
                           "resume: the optimizer's window begins anew; the last %" PRId64
                           " gradients are not in the moments, which hold %" PRId64 " windows",
                           updates % before, windows);
    return TACIT_OK;
}

/* ---- all ranks as they were -------------------------------------------------------------------------------------- */

static tacit_status read_strategy_numbers(const taciti_trainer *trainer, const origin *from) {
    const json_t *list = json_object_get(json_array_get(from->replicas, (size_t)trainer->rank), "numbers");
    taciti_state state = {.count = 0};
    trainer->strategy->state(trainer->strategy_self, &state);
    const taciti_state_entry *numbers = taciti_state_find(&state, "numbers");
    if (!json_is_array(list) || json_array_size(list) != (numbers == NULL ? 0 : numbers->n))
        return taciti_fail(TACIT_E_DATA, "%s: replicas[%d].numbers must be a list of %zu numbers", from->path,
                           trainer->rank, numbers == NULL ? 0 : numbers->n);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value) && !json_is_null(value))
            return taciti_fail(TACIT_E_DATA, "%s: replicas[%d].numbers[%zu] is not a number", from->path, trainer->rank,
                               i);
        ((double *)numbers->data)[i] = json_is_null(value) ? (double)NAN : json_number_value(value);
    }
    return TACIT_OK;
}

static tacit_status restore_own(taciti_trainer *trainer, const origin *from) {
    int64_t updates = 0;
    TACITI_TRY(read_number(json_array_get(from->replicas, (size_t)trainer->rank), "updates", &updates));
    TACITI_TRY(check_moments(trainer, from, 0));
    TACITI_TRY(check_strategy_arrays(trainer, from));
    taciti_state_list list = {.count = 0};
    taciti_state_add_own(trainer, trainer->rank, taciti_model_parameters(trainer->model), &list);
    TACITI_TRY(taciti_ckpt_load(from->path, list.arrays, list.count));
    TACITI_TRY(read_strategy_numbers(trainer, from)); /* last, as listing them anew would overwrite them */
    return resume_updates(trainer, from, updates, true);
}

/* ---- the mean of other ranks ------------------------------------------------------------------------------------- */

/* The mean over the old ranks of one state of the optimizer; `gradients` is free before the first step. */
static tacit_status restore_mean_moment(taciti_trainer *trainer, const origin *from, int state) {
    const taciti_kernels *kernels = taciti_kernels_get();
    float *sum = taciti_optim_state(trainer->optim, state), *one = taciti_model_gradients(trainer->model);
    for (int r = 0; r < from->count; r++) {
        taciti_state_list list = {.count = 0};
        taciti_state_add_moment(trainer, r, state, r == 0 ? sum : one, &list);
        TACITI_TRY(taciti_ckpt_load(from->path, list.arrays, list.count));
        if (r > 0) kernels->add(sum, one, trainer->layout.n);
    }
    kernels->scale(sum, (float)(1.0 / from->count), trainer->layout.n);
    return TACIT_OK;
}

static tacit_status restore_mean(taciti_trainer *trainer, const origin *from) {
    double sum = 0;
    int64_t first = 0;
    bool together = true;
    for (int r = 0; r < from->count; r++) {
        int64_t updates = 0;
        TACITI_TRY(read_number(json_array_get(from->replicas, (size_t)r), "updates", &updates));
        if (r == 0) first = updates;
        together = together && updates == first;
        sum += (double)updates;
    }
    TACITI_TRY(check_moments(trainer, from, 0));
    taciti_state_list list = {.count = 0};
    taciti_state_add_model(trainer, &list);
    TACITI_TRY(taciti_ckpt_load(from->path, list.arrays, list.count));
    for (int i = 0; i < taciti_optim_state_count(trainer->optim); i++)
        TACITI_TRY(restore_mean_moment(trainer, from, i));
    memset(taciti_model_gradients(trainer->model), 0, trainer->layout.n * sizeof(float));
    return resume_updates(trainer, from, llround(sum / from->count), together);
}

/* ---- one model for all ------------------------------------------------------------------------------------------- */

static tacit_status restore_equal(taciti_trainer *trainer, const origin *from) {
    int64_t updates = 0;
    TACITI_TRY(read_number(from->meta, "updates", &updates));
    TACITI_TRY(check_moments(trainer, from, -1));
    taciti_state_list list = {.count = 0};
    taciti_state_add_model(trainer, &list);
    taciti_state_add_moments(trainer, &list);
    TACITI_TRY(taciti_ckpt_load(from->path, list.arrays, list.count));
    return resume_updates(trainer, from, updates, true);
}

/* ---- which of them ----------------------------------------------------------------------------------------------- */

static tacit_status read_origin(const char *path, const json_t *meta, origin *out) {
    const char *strategy = json_string_value(json_object_get(meta, "strategy"));
    const json_t *replicas = json_object_get(meta, "replicas");
    *out = (origin){.path = path, .strategy = strategy == NULL ? "" : strategy, .meta = meta, .replicas = replicas};
    if (replicas == NULL) return TACIT_OK;
    if (!json_is_array(replicas) || json_array_size(replicas) == 0 || json_array_size(replicas) > INT32_MAX)
        return taciti_fail(TACIT_E_DATA, "%s: \"replicas\" must be a list with an entry for each rank", path);
    out->count = (int)json_array_size(replicas);
    return TACIT_OK;
}

static bool continues(const taciti_trainer *trainer, const origin *from) {
    return !trainer->from_mean && from->replicas != NULL && from->count == trainer->ranks &&
           strcmp(from->strategy, trainer->strategy->name) == 0;
}

/* A partition is over the ranks of this run. */
static void say_partition(const taciti_trainer *trainer, const origin *from) {
    const json_int_t ranks = json_integer_value(json_object_get(from->meta, "ranks"));
    if (!taciti_data_partitioned(trainer->data) || ranks == trainer->ranks) return;
    taciti_trainer_say(trainer,
                       "resume: data.partition %s is over %d ranks now, over %lld in the checkpoint: every rank has "
                       "other data",
                       trainer->settings->data.partition.text, trainer->ranks, (long long)ranks);
}

/* Where a run does not go on exactly as it was, it says so. */
static void say_origin(const taciti_trainer *trainer, const origin *from) {
    if (continues(trainer, from)) return;
    if (from->replicas != NULL)
        taciti_trainer_say(trainer,
                           "resume: the checkpoint holds %d replicas of strategy %s; this run (%s, %d rank%s) goes on "
                           "from their mean, with the mean of their optimizer states",
                           from->count, from->strategy, trainer->strategy->name, trainer->ranks,
                           trainer->ranks == 1 ? "" : "s");
    else if (!trainer->strategy->replicas_equal)
        taciti_trainer_say(trainer, "resume: the checkpoint is of strategy %s; all replicas of %s start from its model",
                           from->strategy, trainer->strategy->name);
}

static tacit_status restore_arrays(taciti_trainer *trainer, const origin *from) {
    say_origin(trainer, from);
    say_partition(trainer, from);
    taciti_changes_say(&from->changes, trainer);
    if (continues(trainer, from)) return restore_own(trainer, from);
    return from->replicas != NULL ? restore_mean(trainer, from) : restore_equal(trainer, from);
}

/* *exact: every rank is as it was. */
static tacit_status restore(taciti_trainer *trainer, const char *path, const char *meta_json, bool *exact) {
    taciti_model_options model;
    origin from;
    TACITI_TRY(taciti_run_parse_model(path, meta_json, &model));
    TACITI_TRY(taciti_run_match(path, &model, &trainer->settings->job.model));
    json_t *meta = json_loads(meta_json, 0, NULL);
    if (meta == NULL) return taciti_fail(TACIT_E_DATA, "%s: its description is not JSON", path);
    tacit_status status = restore_position(trainer, meta);
    if (status == TACIT_OK) status = read_origin(path, meta, &from);
    if (status == TACIT_OK) status = taciti_changes_create(trainer, meta, &from.changes);
    if (status == TACIT_OK) {
        status = restore_arrays(trainer, &from);
        taciti_changes_destroy(&from.changes);
    }
    if (status == TACIT_OK) *exact = continues(trainer, &from);
    json_decref(meta);
    TACITI_TRY(status);
    taciti_model_refresh(trainer->model);
    return TACIT_OK;
}

/* Parameters that must be equal are; then the strategy starts what it has under way between steps. */
static tacit_status start(taciti_trainer *trainer, bool restored) {
    if (!restored || trainer->strategy->replicas_equal) TACITI_TRY(taciti_trainer_agree_on_parameters(trainer));
    if (trainer->strategy->start == NULL) return TACIT_OK;
    const tacit_status status = trainer->strategy->start(trainer->strategy_self, trainer->position.step, restored);
    return taciti_comm_agree(trainer->comm, status);
}

tacit_status taciti_trainer_resume(taciti_trainer *trainer, bool *found) {
    char folder[PATH_BYTES], path[PATH_BYTES];
    char *meta = NULL;
    int64_t step = -1;
    bool exact = false;
    *found = false;
    TACITI_TRY(taciti_path_join(folder, sizeof folder, trainer->settings->run.dir.text, "ckpt"));
    const tacit_status status = taciti_ckpt_find(trainer->comm, folder, path, sizeof path, &step, &meta);
    if (status == TACIT_E_DATA && step < 0) return TACIT_OK;
    TACITI_TRY(status);
    const tacit_status restored = taciti_comm_agree(trainer->comm, restore(trainer, path, meta, &exact));
    taciti_free(meta);
    TACITI_TRY(restored);
    *found = true;
    return start(trainer, exact);
}

/* Reads foreign or earlier weights; their shape must be the configured one. */
static tacit_status read_weights(taciti_trainer *trainer, const char *from) {
    taciti_run_info info;
    TACITI_TRY(taciti_run_open(from, &info));
    tacit_status status = taciti_run_match(from, &info.model, &trainer->settings->job.model);
    if (status == TACIT_OK)
        status = taciti_run_weights(&info, &trainer->layout, taciti_model_parameters(trainer->model));
    taciti_run_close(&info);
    return status;
}

tacit_status taciti_trainer_initialise(taciti_trainer *trainer) {
    const char *from = trainer->settings->train.init.text;
    if (from[0] == '\0') {
        taciti_model_init(trainer->model, (uint64_t)trainer->settings->train.seed);
    } else {
        TACITI_TRY(taciti_comm_agree(trainer->comm, read_weights(trainer, from)));
        taciti_model_refresh(trainer->model);
    }
    return start(trainer, false);
}

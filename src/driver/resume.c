/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint of replicas that differ is taken up rank by rank when strategy and number of ranks are the same;
 * otherwise all ranks begin with the mean.
 */
#include "driver/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

enum { TEXT_BYTES = 512 };

static bool is_speaker(const taciti_resume *resume) { return resume->ckpt.rank == 0; }

/* ---- which values are taken -------------------------------------------------------------------------------------- */

static taciti_resumption resumption_of(const taciti_resume *resume) {
    const json_int_t ranks = json_integer_value(json_object_get(resume->ckpt.meta, "ranks"));
    const json_int_t formers = resume->replicas > 0 ? resume->replicas : ranks;
    const taciti_strategy *former = taciti_strategy_find(resume->former);
    const bool same = strcmp(resume->former, resume->strategy->name) == 0;
    /* Where replicas are equal, only residuals belong to ranks, and they mean the same in both strategies. */
    const bool alike = former != NULL && former->replicas == NULL && resume->strategy->replicas == NULL;
    if (resume->from_mean || (!same && !alike)) return TACITI_RESUME_FROM_MEAN;
    if (!same) return TACITI_RESUME_REGROUPED;
    return formers == resume->ckpt.ranks ? TACITI_RESUME_EXACTLY : TACITI_RESUME_REGROUPED;
}

tacit_status taciti_resume_open(taciti_resume *resume, json_t *now) {
    const char *former = json_string_value(json_object_get(resume->ckpt.meta, "strategy"));
    resume->former = former == NULL ? "" : former;
    TACITI_TRY(taciti_changes_create(resume->ckpt.meta, now, &resume->changes));
    TACITI_TRY(taciti_ckpt_former_ranks(&resume->ckpt, &resume->replicas));
    resume->ckpt.resumption = resumption_of(resume);
    return TACIT_OK;
}

void taciti_resume_close(taciti_resume *resume) { taciti_changes_destroy(&resume->changes); }

/* ---- what is said ------------------------------------------------------------------------------------------------ */

/* Sets *out to whether ranks of the checkpoint had an array of that name. */
static tacit_status find_array(const taciti_resume *resume, const taciti_layout *layout, const char *name, bool *out) {
    char what[TACITI_STATE_NAME_BYTES], prefix[TACITI_CKPT_PREFIX_BYTES];
    (void)snprintf(what, sizeof what, "%s.", name);
    taciti_ckpt_own_prefix(0, what, prefix);
    const taciti_ckpt_array array = {.prefix = prefix, .entry = {.layout = layout}, .own = true};
    return taciti_ckpt_find_held(resume->ckpt.path, &array, 1, out, NULL);
}

/* Writes the changed keys without which a run keeps residuals, and what to do about them; "" if there is none. */
static void advise_residuals(const taciti_resume *resume, char out[TEXT_BYTES]) {
    static const char *const KEYS[] = {"compress.codec", "compress.feedback", "compress.what"};
    char changes[TEXT_BYTES];
    out[0] = '\0';
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        taciti_changes_text(&resume->changes, KEYS[i], changes, sizeof changes);
        if (changes[0] != '\0') taciti_text_add(out, TEXT_BYTES, "%s%s", out[0] != '\0' ? ", " : ": ", changes);
    }
    if (out[0] != '\0') taciti_text_add(out, TEXT_BYTES, "; resume with the old value to send them");
}

/* Says what becomes of the residuals of compression, which belong to ranks even where replicas are equal. */
static tacit_status say_residuals(const taciti_resume *resume, const taciti_state *state) {
    static const char gradients[] = "strategy.residual", sums[] = "strategy.residual_result";
    const taciti_layout *layout = taciti_driver_layout(resume->driver);
    const json_t *config = json_object_get(resume->ckpt.meta, "config");
    const char *codec = json_string_value(json_object_get(config, "compress.codec"));
    const bool keeps = taciti_state_find(state, gradients) != NULL, keeps_sums = taciti_state_find(state, sums) != NULL;
    const bool lost = !keeps || resume->ckpt.resumption == TACITI_RESUME_FROM_MEAN;
    const bool start = strcmp(resume->former, "gossip") == 0;                         /* whose mixes have none */
    const bool alone = resume->ckpt.ranks == 1 && resume->strategy->replicas != NULL; /* it keeps none */
    bool some, some_sums;
    TACITI_TRY(find_array(resume, layout, gradients, &some));
    TACITI_TRY(find_array(resume, layout, sums, &some_sums));
    char advice[TEXT_BYTES] = "";
    if (!keeps && !alone && resume->ckpt.resumption != TACITI_RESUME_FROM_MEAN) advise_residuals(resume, advice);
    if (some && lost && is_speaker(resume))
        taciti_log(TACITI_LOG_WARN, "resume: the residuals of %d ranks (%s%s) are dropped%s", resume->replicas,
                   start ? "gossip.start" : "compress.codec ", start || codec == NULL ? "" : codec, advice);
    else if (some && !lost && resume->ckpt.resumption == TACITI_RESUME_REGROUPED && is_speaker(resume))
        taciti_log(TACITI_LOG_INFO,
                   "resume: the residuals of %d ranks go on at %d: what ranks have not sent is part of their next sum",
                   resume->replicas, resume->ckpt.ranks);
    if (some_sums && !lost && !keeps_sums && is_speaker(resume))
        taciti_log(TACITI_LOG_WARN,
                   "resume: the residuals of sums are dropped (of ranks, they stay): this run encodes no sums");
    return TACIT_OK;
}

/* Where a run does not go on exactly as it was, it says so. */
static void say_origin(const taciti_resume *resume, bool own_model) {
    const taciti_strategy *former = taciti_strategy_find(resume->former);
    if (resume->ckpt.resumption == TACITI_RESUME_EXACTLY) return;
    const bool replicas = resume->replicas > 0 && (former == NULL || former->replicas != NULL);
    if (replicas && is_speaker(resume))
        taciti_log(
            TACITI_LOG_WARN,
            "resume: the checkpoint holds %d replicas of strategy %s; this run (%s, %d rank%s) goes on from their "
            "mean, with the mean of their optimizer states",
            resume->replicas, resume->former, resume->strategy->name, resume->ckpt.ranks,
            resume->ckpt.ranks == 1 ? "" : "s");
    else if (!replicas && own_model && is_speaker(resume))
        taciti_log(TACITI_LOG_INFO, "resume: the checkpoint is of strategy %s; all replicas of %s start from its model",
                   resume->former, resume->strategy->name);
}

/* ---- what a changed configuration means -------------------------------------------------------------------------- */

/* A checkpoint of another model is refused with the name of a parameter, which callers know, before arrays of the
 * optimizer and the strategy are looked for. */
static tacit_status check_model(const taciti_resume *resume, const taciti_state_entry *model) {
    if (model == NULL) return TACIT_OK; /* gradients alone */
    const taciti_ckpt_array array = {.prefix = "model.", .entry = *model};
    return taciti_ckpt_check_arrays(resume->ckpt.path, &array, 1);
}

/* Earlier versions saved the momentum of sgd as the mean of adam. */
static tacit_status check_renamed(const taciti_resume *resume, const taciti_state_entry *lacking) {
    const json_t *name = json_object_get(json_object_get(resume->ckpt.meta, "config"), "optim.name");
    taciti_state former = {.entries = {*lacking}, .count = 1};
    const taciti_state_entry *absent = NULL;
    if (strcmp(lacking->name, "optim.momentum") != 0 || !json_is_string(name) ||
        strcmp(json_string_value(name), "sgd") != 0)
        return TACIT_OK;
    former.entries[0].name = "optim.m";
    TACITI_TRY(taciti_ckpt_find_lacking(&resume->ckpt, &former, &absent));
    if (absent != NULL) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s: saved before the momentum of sgd was renamed; %s", resume->ckpt.path,
                       resume->optim_advice);
}

/* Where an entry is missing because keys of its section have changed, they are named. The same on every rank. */
static tacit_status check_lacking(const taciti_resume *resume, const taciti_state *state) {
    const taciti_state_entry *lacking = NULL;
    char changes[TEXT_BYTES], section[TEXT_BYTES];
    TACITI_TRY(taciti_ckpt_find_lacking(&resume->ckpt, state, &lacking));
    const char *name = lacking == NULL ? NULL : strchr(lacking->name, '.');
    if (name == NULL) return TACIT_OK;
    TACITI_TRY(check_renamed(resume, lacking));
    const bool optim = strncmp(lacking->name, "optim.", strlen("optim.")) == 0;
    (void)snprintf(section, sizeof section, "%s.", optim ? "optim" : resume->strategy->name);
    taciti_changes_text(&resume->changes, section, changes, sizeof changes);
    if (changes[0] == '\0') return TACIT_OK; /* damage: loading says what is missing */
    return taciti_fail(TACIT_E_CONFIG,
                       "%s: cannot go on exactly, it holds no state \"%s\" of %s: %s; resume with the old value, or %s",
                       resume->ckpt.path, name + 1, optim ? "the optimizer" : resume->strategy->name, changes,
                       optim ? resume->optim_advice : resume->advice);
}

/* Names an array that may begin at zero, with the keys that have made it necessary. State of codecs and controllers
 * goes by its own words. */
static tacit_status say_begun(const taciti_resume *resume, const taciti_state *state) {
    taciti_state arrays = {.count = 0};
    const taciti_state_entry *lacking = NULL;
    char changes[TEXT_BYTES], section[TEXT_BYTES];
    (void)snprintf(section, sizeof section, "%s.", resume->strategy->name);
    taciti_changes_text(&resume->changes, section, changes, sizeof changes);
    for (size_t i = 0; i < state->count; i++) {
        const taciti_state_entry *entry = &state->entries[i];
        const bool of_codec = strstr(entry->name, ".estimate") != NULL || strstr(entry->name, ".period_sum") != NULL;
        if (!entry->optional || entry->kind != TACITI_STATE_ARRAY || entry->regroup != TACITI_STATE_RESET || of_codec)
            continue;
        taciti_state_add(&arrays, *entry);
        arrays.entries[arrays.count - 1].optional = false;
    }
    if (changes[0] != '\0') TACITI_TRY(taciti_ckpt_find_lacking(&resume->ckpt, &arrays, &lacking));
    if (lacking != NULL && is_speaker(resume))
        taciti_log(TACITI_LOG_WARN, "resume: the checkpoint holds no state \"%s\" of %s, which begins at zero: %s",
                   strchr(lacking->name, '.') + 1, resume->strategy->name, changes);
    return TACIT_OK;
}

/* Whether all replicas had made the same number of updates, or every rank has its own back. */
static bool updated_together(const taciti_resume *resume) {
    const json_t *replicas = json_object_get(resume->ckpt.meta, "replicas");
    const json_t *first = json_object_get(json_array_get(replicas, 0), "updates");
    for (size_t r = 1; r < json_array_size(replicas); r++)
        if (json_integer_value(json_object_get(json_array_get(replicas, r), "updates")) != json_integer_value(first))
            return resume->ckpt.resumption == TACITI_RESUME_EXACTLY;
    return true;
}

/* Restores the optimizer's count of updates. Where a window of AccumAdam has another length now, or ranks stood at
 * different places in it, a new one begins: M and V keep the windows that have ended, and their number is what the bias
 * correction counts; gradients of the unfinished window stay outside, as their share in A was for the old length. */
static tacit_status resume_updates(taciti_resume *resume, const taciti_state *state) {
    taciti_optim *optim = taciti_driver_optim(resume->driver);
    const int64_t updates = taciti_optim_updates(optim);
    if (taciti_state_find(state, "optim.v") != NULL && !taciti_changes_keep_frozen(&resume->changes, updates))
        return taciti_fail(TACIT_E_CONFIG,
                           "%s: after %" PRId64 " updates its second moments hold another number of them than this "
                           "optim.freeze says: resume with the old value, or %s",
                           resume->ckpt.path, updates, resume->optim_advice);
    const int64_t before = taciti_changes_window_before(&resume->changes), windows = updates / before;
    const int64_t now = taciti_changes_window_now(&resume->changes);
    const bool together = updated_together(resume);
    if (before == now && (together || now == 1)) return TACIT_OK;
    if (windows > INT64_MAX / now)
        return taciti_fail(TACIT_E_DATA, "%s: %" PRId64 " updates are too many", resume->ckpt.path, updates);
    const taciti_state_entry *unfinished = taciti_state_find(state, "optim.a");
    taciti_range r;
    for (size_t i = 0; unfinished != NULL && taciti_state_range(unfinished, i, &r); i++)
        memset((float *)unfinished->data + r.at, 0, r.n * sizeof(float));
    taciti_optim_set_updates(optim, windows * now);
    if ((updates % before != 0 || !together) && is_speaker(resume))
        taciti_log(TACITI_LOG_WARN,
                   "resume: the optimizer's window begins anew; the last %" PRId64
                   " gradients are not in the moments, which hold %" PRId64 " windows",
                   updates % before, windows);
    return TACIT_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

tacit_status taciti_resume_restore(taciti_resume *resume, const taciti_state *state, taciti_beginning *out) {
    const taciti_state_entry *model = taciti_state_find(state, "model");
    const bool own_model = model != NULL && model->owner == TACITI_STATE_OWN;
    TACITI_TRY(check_model(resume, model));
    TACITI_TRY(check_lacking(resume, state));
    TACITI_TRY(say_residuals(resume, state));
    TACITI_TRY(say_begun(resume, state));
    say_origin(resume, own_model);
    if (is_speaker(resume)) taciti_changes_say(&resume->changes);
    TACITI_TRY(taciti_ckpt_restore_state(&resume->ckpt, state));
    out->restored = resume->ckpt.resumption == TACITI_RESUME_EXACTLY;
    out->equal = !out->restored || !own_model;
    return resume_updates(resume, state);
}

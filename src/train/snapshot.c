/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/run.h"
#include "train/trainer.h"

enum { PATH_BYTES = 4096, MAX_NUMBERS = 8 };

static json_t *describe_model(const taciti_model_options *model) {
    char *text = taciti_run_describe_model(model);
    json_t *value = text == NULL ? NULL : json_loads(text, 0, NULL);
    taciti_free(text);
    return value;
}

/* What a rank must remember besides arrays, where ranks differ. */
typedef struct own_numbers {
    int64_t updates;
    double numbers[MAX_NUMBERS];
    int64_t count;
} own_numbers;

/* JSON knows no infinity: a number that is not finite comes back as NaN. */
static json_t *real_json(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *own_json(const own_numbers *own) {
    json_t *numbers = json_array();
    for (size_t i = 0; i < (size_t)own->count; i++) (void)json_array_append_new(numbers, real_json(own->numbers[i]));
    return json_pack("{s:I, s:o}", "updates", (json_int_t)own->updates, "numbers", numbers);
}

/* "replicas": a list by rank. Collective; on rank 0 (which writes the manifest) the list is whole. */
static tacit_status add_replicas(const taciti_trainer *trainer, json_t *meta) {
    own_numbers mine = {.updates = taciti_optim_updates(trainer->optim)};
    taciti_state state = {.count = 0};
    trainer->strategy->state(trainer->strategy_self, &state);
    const taciti_state_entry *numbers = taciti_state_find(&state, "numbers");
    for (size_t i = 0; numbers != NULL && i < numbers->n; i++) mine.numbers[i] = ((const double *)numbers->data)[i];
    mine.count = numbers != NULL ? (int64_t)numbers->n : 0;
    own_numbers *all = taciti_calloc((size_t)trainer->ranks, sizeof *all);
    tacit_status status = taciti_comm_agree(trainer->comm, all == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = taciti_comm_allgather(trainer->comm, &mine, sizeof mine, all);
    json_t *replicas = json_array();
    for (int r = 0; status == TACIT_OK && r < trainer->ranks; r++)
        if (json_array_append_new(replicas, own_json(&all[r])) != 0) status = TACIT_E_MEMORY;
    taciti_free(all);
    (void)json_object_set_new(meta, "replicas", replicas);
    return status;
}

/* Everything but arrays. Returns owned. */
static json_t *describe_run(const taciti_trainer *trainer) {
    const taciti_train_settings *s = trainer->settings;
    char *config = taciti_config_json(&s->job.config, 0);
    json_t *values = config == NULL ? NULL : json_loads(config, 0, NULL);
    taciti_free(config);
    return values == NULL
               ? NULL
               : json_pack("{s:I,s:I,s:I,s:I,s:I,s:i,s:s,s:s,s:o,s:o}", "step", (json_int_t)trainer->position.step,
                           "updates", (json_int_t)taciti_optim_updates(trainer->optim), "skipped",
                           (json_int_t)trainer->position.skipped, "tokens", (json_int_t)trainer->position.tokens,
                           "seed", (json_int_t)s->train.seed, "ranks", trainer->ranks, "strategy", s->job.strategy.text,
                           "data", trainer->data_info.digest, "model", describe_model(&s->job.model), "config", values);
}

/* Collective; owned text, free(). */
static tacit_status describe(const taciti_trainer *trainer, char **out) {
    json_t *meta = describe_run(trainer);
    tacit_status status = taciti_comm_agree(trainer->comm, meta == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK && !trainer->strategy->replicas_equal)
        status = taciti_comm_agree(trainer->comm, add_replicas(trainer, meta));
    char *text = meta == NULL ? NULL : json_dumps(meta, JSON_INDENT(1));
    json_decref(meta);
    if (status == TACIT_OK) status = taciti_comm_agree(trainer->comm, text == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK)
        *out = text;
    else
        free(text);
    return status;
}

/* The model is the mean of the replicas; this rank's own parameters lie in `gradients` meanwhile. */
static void list_arrays(taciti_trainer *trainer, taciti_state_list *list) {
    taciti_state_add_model(trainer, list);
    if (trainer->strategy->replicas_equal)
        taciti_state_add_moments(trainer, list);
    else
        taciti_state_add_own(trainer, trainer->rank, taciti_model_gradients(trainer->model), list);
}

tacit_status taciti_trainer_save(taciti_trainer *trainer) {
    const int64_t begin = taciti_now_ns();
    taciti_comm_announce(trainer->comm, trainer->position.step, "checkpoint");
    char folder[PATH_BYTES], *meta = NULL;
    TACITI_TRY(taciti_path_join(folder, sizeof folder, trainer->settings->run.dir.text, "ckpt"));
    TACITI_TRY(describe(trainer, &meta));
    taciti_state_list list = {.count = 0};
    list_arrays(trainer, &list);
    const taciti_ckpt_state state = {.arrays = list.arrays, .array_count = list.count, .meta_json = meta};
    const tacit_status status =
        taciti_ckpt_save(trainer->comm, folder, trainer->position.step, (int)trainer->settings->train.keep, &state);
    free(meta);
    (void)taciti_trace_add(&trainer->trace, TACITI_SPAN_CHECKPOINT, -1, begin);
    return status;
}

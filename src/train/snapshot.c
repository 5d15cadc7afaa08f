/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "ckpt/run.h"
#include "train/trainer.h"

/* Everything but the state. Returns owned. The folder in which relative paths of the configuration begin is no part of
 * the run's identity. */
static json_t *describe_run(const taciti_trainer *trainer) {
    const taciti_train_settings *s = trainer->settings;
    char directory[TACITI_PATH_BYTES];
    json_t *values = taciti_config_values(&s->job.config, 0);
    return values == NULL
               ? NULL
               : json_pack("{s:I,s:I,s:I,s:I,s:i,s:s,s:s,s:s*,s:o,s:o}", "step", (json_int_t)trainer->position.step,
                           "skipped", (json_int_t)trainer->position.skipped, "tokens",
                           (json_int_t)trainer->position.tokens, "seed", (json_int_t)s->train.seed, "ranks",
                           trainer->ranks, "strategy", trainer->strategy->name, "data", trainer->data_info.digest,
                           "directory", getcwd(directory, sizeof directory), "model",
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

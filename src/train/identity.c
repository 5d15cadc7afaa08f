/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#include "train/trainer.h"

enum { TEXT_BYTES = 1024 };

/* Keys that a run does not resume by, but that say when all ranks come together. */
static tacit_status agree_on_meetings(const taciti_trainer *trainer) {
    const taciti_train_options *t = &trainer->settings->train;
    const struct {
        const char *what;
        int64_t value;
    } keys[] = {{"configuration key train.eval_every", t->eval_every},
                {"configuration key train.eval_windows", t->eval_windows},
                {"configuration key train.save_every", t->save_every},
                {"configuration key train.save_early", t->save_early},
                {"configuration key run.trace", trainer->settings->run.trace},
                {"whether run.arrivals is set", trainer->settings->run.arrivals.text[0] != '\0'}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char value[TEXT_BYTES];
        (void)snprintf(value, sizeof value, "%" PRId64, keys[i].value);
        TACITI_TRY(taciti_comm_agree_text(trainer->comm, keys[i].what, value));
    }
    return TACIT_OK;
}

tacit_status taciti_trainer_agree(const taciti_trainer *trainer) {
    char text[TEXT_BYTES];
    TACITI_TRY(taciti_agree_on_build(trainer->comm));
    TACITI_TRY(taciti_agree_on_configuration(trainer->comm, &trainer->settings->job.config));
    TACITI_TRY(agree_on_meetings(trainer));
    TACITI_TRY(taciti_agree_on_layout(trainer->comm, &trainer->layout));
    /* The digest comes first: a message shows the beginning of what differs. */
    (void)snprintf(text, sizeof text, "digest %s, %llu train and %llu validation tokens, %s", trainer->data_info.digest,
                   (unsigned long long)trainer->data_info.train_tokens,
                   (unsigned long long)trainer->data_info.validation_tokens, trainer->data_info.source);
    return taciti_comm_agree_text(trainer->comm, "data", text);
}

tacit_status taciti_trainer_agree_on_digest(const taciti_trainer *trainer, uint64_t digest) {
    char text[TEXT_BYTES];
    (void)snprintf(text, sizeof text, "digest %016llx of %zu parameters", (unsigned long long)digest,
                   trainer->layout.parameters);
    return taciti_comm_agree_text(trainer->comm, "initial model", text);
}

tacit_status taciti_trainer_agree_on_parameters(const taciti_trainer *trainer) {
    const float *parameters = taciti_model_parameters(trainer->model);
    return taciti_trainer_agree_on_digest(trainer, XXH3_64bits(parameters, trainer->layout.n * sizeof *parameters));
}

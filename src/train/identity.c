/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <xxhash.h>

#include "base/log.h"
#include "train/trainer.h"

enum { TEXT_BYTES = 1024 };

/* Names, shapes, offsets and buckets: two ranks with the same digest exchange the same bytes. */
static uint64_t layout_digest(const taciti_layout *layout) {
    uint64_t digest = 0;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const taciti_tensor *t = &layout->tensors[i];
        digest = XXH3_64bits_withSeed(t->name, sizeof t->name, digest);
        digest = XXH3_64bits_withSeed(t->shape, sizeof t->shape, digest);
        digest = XXH3_64bits_withSeed(&t->offset, sizeof t->offset, digest);
    }
    for (size_t b = 0; b < layout->bucket_count; b++)
        digest = XXH3_64bits_withSeed(&layout->buckets[b].n, sizeof layout->buckets[b].n, digest);
    return digest;
}

tacit_status taciti_trainer_agree(const taciti_trainer *trainer) {
    char text[TEXT_BYTES];
    TACITI_TRY(taciti_agree_on_build(trainer->comm));
    TACITI_TRY(taciti_agree_on_configuration(trainer->comm, &trainer->settings->job.config));
    (void)snprintf(text, sizeof text, "%zu parameters in %zu tensors and %zu buckets, digest %016llx",
                   trainer->layout.parameters, trainer->layout.tensor_count, trainer->layout.bucket_count,
                   (unsigned long long)layout_digest(&trainer->layout));
    TACITI_TRY(taciti_comm_agree_text(trainer->comm, "model", text));
    (void)snprintf(text, sizeof text, "%s: %llu train and %llu validation tokens, digest %s", trainer->data_info.source,
                   (unsigned long long)trainer->data_info.train_tokens,
                   (unsigned long long)trainer->data_info.validation_tokens, trainer->data_info.digest);
    return taciti_comm_agree_text(trainer->comm, "data", text);
}

tacit_status taciti_trainer_agree_on_parameters(const taciti_trainer *trainer) {
    char text[TEXT_BYTES];
    const float *parameters = taciti_model_parameters(trainer->model);
    (void)snprintf(text, sizeof text, "digest %016llx of %zu parameters",
                   (unsigned long long)XXH3_64bits(parameters, trainer->layout.n * sizeof *parameters),
                   trainer->layout.parameters);
    return taciti_comm_agree_text(trainer->comm, "initial model", text);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "settings/settings.h"

enum { TEXT_BYTES = 1024 };
#define PROGRAM_LIMIT_BYTES ((size_t)1 << 30)

/* The version and a digest of the running program itself: what was built from other sources or with other flags
 * differs. */
tacit_status taciti_agree_on_build(taciti_comm *comm) {
    char text[TEXT_BYTES], *program = NULL;
    size_t bytes = 0;
    const tacit_status status = taciti_file_read("/proc/self/exe", PROGRAM_LIMIT_BYTES, &program, &bytes);
    const uint64_t digest = status == TACIT_OK ? XXH3_64bits(program, bytes) : 0;
    taciti_free(program);
    TACITI_TRY(taciti_comm_agree(comm, status));
    (void)snprintf(text, sizeof text, "tacit %s, program digest %016llx", tacit_version(), (unsigned long long)digest);
    return taciti_comm_agree_text(comm, "build", text);
}

/* Key by key, so that the message names the one that differs and not the whole configuration. */
static tacit_status agree_on_keys(taciti_comm *comm, json_t *values) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(values, key, value) {
        char what[TEXT_BYTES];
        (void)snprintf(what, sizeof what, "configuration key %s", key);
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        tacit_status status = taciti_comm_agree(comm, text == NULL ? TACIT_E_MEMORY : TACIT_OK);
        if (status == TACIT_OK) status = taciti_comm_agree_text(comm, what, text);
        free(text);
        TACITI_TRY(status);
    }
    return TACIT_OK;
}

tacit_status taciti_agree_on_configuration(taciti_comm *comm, const taciti_config *config) {
    json_t *values = taciti_config_values(config, 1);
    tacit_status status = taciti_comm_agree(comm, values == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = agree_on_keys(comm, values);
    json_decref(values);
    return status;
}

tacit_status taciti_agree_on_layout(taciti_comm *comm, const taciti_layout *layout) {
    char text[TEXT_BYTES];
    uint64_t digest = 0; /* of names, shapes, offsets, units and buckets: equal ones exchange the same bytes */
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const taciti_tensor *t = &layout->tensors[i];
        digest = XXH3_64bits_withSeed(t->name, strlen(t->name) + 1, digest);
        digest = XXH3_64bits_withSeed(t->shape, (size_t)t->dims * sizeof *t->shape, digest);
        digest = XXH3_64bits_withSeed(&t->offset, sizeof t->offset, digest);
        digest = XXH3_64bits_withSeed(&t->unit, sizeof t->unit, digest);
    }
    for (size_t b = 0; b < layout->bucket_count; b++)
        digest = XXH3_64bits_withSeed(&layout->buckets[b].n, sizeof layout->buckets[b].n, digest);
    (void)snprintf(text, sizeof text, "%zu parameters in %zu tensors and %zu buckets, digest %016llx",
                   layout->parameters, layout->tensor_count, layout->bucket_count, (unsigned long long)digest);
    return taciti_comm_agree_text(comm, "model", text);
}

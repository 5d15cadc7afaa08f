/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "settings/settings.h"

enum { TEXT_BYTES = 1024, TENSOR_BYTES = 2048 };
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

/* Lists may be longer than what is compared at once. Ranks that had equal texts so far go on together. */
static tacit_status agree_on_value(taciti_comm *comm, const taciti_place *place, const char *value) {
    char key[TACITI_KEY_BYTES], what[TEXT_BYTES];
    (void)snprintf(what, sizeof what, "configuration key %s", taciti_place_key(place, key));
    for (;; value += TACITI_COMPARED_BYTES) {
        TACITI_TRY(taciti_comm_agree_text(comm, what, value));
        if (strlen(value) < TACITI_COMPARED_BYTES) return TACIT_OK;
    }
}

static tacit_status write_values(const taciti_config *config, char **values) {
    taciti_place place;
    if (values == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) {
        values[i] = taciti_place_whole_text(&place);
        if (values[i] == NULL) return TACIT_E_MEMORY;
    }
    return TACIT_OK;
}

/* Key by key, so that the message names the one that differs and not the whole configuration. */
tacit_status taciti_agree_on_configuration(taciti_comm *comm, const taciti_config *config) {
    taciti_place place;
    size_t count = 0;
    while (taciti_config_at(config, count, &place)) count++;
    char **values = taciti_calloc(count, sizeof *values);
    tacit_status status = taciti_comm_agree(comm, write_values(config, values));
    for (size_t i = 0; status == TACIT_OK && taciti_config_at(config, i, &place); i++)
        if ((place.option->flags & TACITI_OPTION_NO_DIGEST) == 0) status = agree_on_value(comm, &place, values[i]);
    for (size_t i = 0; values != NULL && i < count; i++) taciti_free(values[i]);
    taciti_free(values);
    return status;
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

/* Digests the first `count` tensors, or all if there are fewer, and their number: ranks with equal digests exchange and
 * update the same. */
static uint64_t digest_tensors(const taciti_layout *layout, size_t count) {
    const size_t n = taciti_min(count, layout->tensor_count);
    uint64_t digest = n;
    for (size_t i = 0; i < n; i++) {
        const taciti_tensor *t = &layout->tensors[i];
        digest = XXH3_64bits_withSeed(t->name, strlen(t->name) + 1, digest);
        digest = XXH3_64bits_withSeed(t->shape, (size_t)t->dims * sizeof *t->shape, digest);
        digest = XXH3_64bits_withSeed(&t->offset, sizeof t->offset, digest);
        digest = XXH3_64bits_withSeed(&t->unit, sizeof t->unit, digest);
        digest = XXH3_64bits_withSeed(&t->decay, sizeof t->decay, digest);
    }
    return digest;
}

static uint64_t digest_buckets(const taciti_layout *layout, uint64_t digest) {
    for (size_t b = 0; b < layout->bucket_count; b++)
        digest = XXH3_64bits_withSeed(&layout->buckets[b].n, sizeof layout->buckets[b].n, digest);
    return digest;
}

static tacit_status compare_digests(taciti_comm *comm, uint64_t mine, bool *equal) {
    const double high = (double)(mine >> 32), low = (double)(uint32_t)mine;
    double max[] = {high, low, -high, -low};
    TACITI_TRY(taciti_comm_allreduce_f64(comm, max, 4, TACITI_OP_MAX));
    *equal = !(max[0] > -max[2]) && !(max[1] > -max[3]);
    return TACIT_OK;
}

/* Writes "mid [41][100] in unit 2, with decay". */
static void describe_tensor(const taciti_layout *layout, size_t i, char text[TENSOR_BYTES]) {
    char shape[TACITI_SHAPE_TEXT_BYTES];
    if (i >= layout->tensor_count) {
        (void)snprintf(text, TENSOR_BYTES, "none: %zu tensors", layout->tensor_count);
        return;
    }
    const taciti_tensor *t = &layout->tensors[i];
    (void)snprintf(text, TENSOR_BYTES, "%s %s in unit %zu, with%s decay", t->name,
                   taciti_shape_text(t->dims, t->shape, shape), t->unit, t->decay ? "" : "out");
}

/* Finds the first tensor that differs by halving. */
static tacit_status name_difference(taciti_comm *comm, const taciti_layout *layout) {
    char what[TEXT_BYTES], text[TENSOR_BYTES];
    double max = (double)layout->tensor_count;
    TACITI_TRY(taciti_comm_allreduce_f64(comm, &max, 1, TACITI_OP_MAX));
    size_t same = 0, differs = (size_t)max + 1; /* tensors, from the first on */
    while (differs - same > 1) {
        bool equal = false;
        const size_t middle = same + (differs - same) / 2;
        TACITI_TRY(compare_digests(comm, digest_tensors(layout, middle), &equal));
        *(equal ? &same : &differs) = middle;
    }
    describe_tensor(layout, same, text);
    const bool exists = same < layout->tensor_count;
    (void)snprintf(what, sizeof what, "tensor %zu%s%.900s%s", same, exists ? " (" : "",
                   exists ? layout->tensors[same].name : "", exists ? ")" : "");
    return taciti_comm_agree_text(comm, what, text);
}

tacit_status taciti_agree_on_tensors(taciti_comm *comm, const taciti_layout *layout) {
    bool equal = false;
    TACITI_TRY(compare_digests(comm, digest_tensors(layout, layout->tensor_count), &equal));
    return equal ? TACIT_OK : name_difference(comm, layout);
}

tacit_status taciti_agree_on_layout(taciti_comm *comm, const taciti_layout *layout) {
    char text[TEXT_BYTES];
    bool equal = false;
    const uint64_t digest = digest_buckets(layout, digest_tensors(layout, layout->tensor_count));
    TACITI_TRY(compare_digests(comm, digest, &equal));
    if (equal) return TACIT_OK;
    TACITI_TRY(name_difference(comm, layout));
    (void)snprintf(text, sizeof text, "%zu parameters in %zu tensors and %zu buckets, digest %016llx",
                   layout->parameters, layout->tensor_count, layout->bucket_count, (unsigned long long)digest);
    return taciti_comm_agree_text(comm, "model", text);
}

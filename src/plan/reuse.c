/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/reuse.h"

#include <string.h>

/* Rounds of more meetings are not kept beside others. */
enum { MEETINGS_MAX = 1 << 20 };

void taciti_reuse_destroy(taciti_reuse *reuse) {
    taciti_draws_destroy(&reuse->draws);
    taciti_links_destroy(&reuse->links);
    for (size_t i = 0; i <= TACITI_REUSE_ROUNDS; i++) taciti_rounds_destroy(&reuse->rounds[i]);
    reuse->result_count = reuse->sums_count = 0;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static bool has_rounds_of(const taciti_rounds *r, const taciti_method *method, const taciti_stretches *s) {
    if (r->topology == NULL || r->topology != method->topology || r->stretches_key != taciti_stretches_key(s))
        return false;
    for (size_t i = 0; i < s->length_count; i++)
        if (taciti_codec_length(r->wire, NULL, s->lengths[i]).max !=
            taciti_codec_length(method->wire, NULL, s->lengths[i]).max)
            return false;
    return true;
}

tacit_status taciti_reuse_rounds(taciti_reuse *reuse, const taciti_scene *scene, const taciti_method *method,
                                 const taciti_stretches *stretches, taciti_rounds **out) {
    for (size_t i = 0; i < TACITI_REUSE_ROUNDS; i++) {
        *out = &reuse->rounds[i];
        if (!has_rounds_of(*out, method, stretches)) continue;
        taciti_rounds_adopt(*out, method, stretches);
        return TACIT_OK;
    }
    *out = &reuse->rounds[TACITI_REUSE_ROUNDS]; /* without a topology: not kept */
    if (method->topology != NULL) {
        *out = &reuse->rounds[reuse->next_rounds];
        reuse->next_rounds = (reuse->next_rounds + 1) % TACITI_REUSE_ROUNDS;
    }
    taciti_rounds_destroy(*out);
    TACITI_TRY(taciti_rounds_create(scene, method, stretches, *out));
    reuse->arranged += (*out)->period * (size_t)scene->hosts->ranks;
    return TACIT_OK;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

const taciti_recursion_times *taciti_reuse_find(const taciti_reuse *reuse, uint64_t key) {
    const size_t kept = reuse->result_count < TACITI_REUSE_RESULTS ? reuse->result_count : TACITI_REUSE_RESULTS;
    for (size_t i = 0; i < kept; i++)
        if (reuse->results[i].key == key) return reuse->results[i].times;
    return NULL;
}

void taciti_reuse_keep(taciti_reuse *reuse, uint64_t key, const taciti_recursion_times *times) {
    struct taciti_result *result = &reuse->results[reuse->result_count++ % TACITI_REUSE_RESULTS];
    result->key = key;
    memcpy(result->times, times, sizeof result->times);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

struct taciti_sums *taciti_reuse_sums(taciti_reuse *reuse, double cv) {
    for (size_t i = 0; i < reuse->sums_count; i++)
        if (reuse->sums[i].cv == cv) return &reuse->sums[i];
    if (reuse->sums_count == TACITI_REUSE_SUMS) return NULL;
    reuse->sums[reuse->sums_count] = (struct taciti_sums){.cv = cv};
    return &reuse->sums[reuse->sums_count++];
}

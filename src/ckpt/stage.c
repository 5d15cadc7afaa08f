/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* renameat2 */
#include "ckpt/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "ckpt/part.h"
#include "ckpt/safetensors.h"

static const char step_prefix[] = "step_", manifest_name[] = "manifest.json";

/* ---- names ------------------------------------------------------------------------------------------------------- */

tacit_status taciti_stage_path(const char *folder, int64_t step, const char *suffix, char path[TACITI_PATH_BYTES]) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s%08" PRId64 "%s", step_prefix, step, suffix);
    return taciti_path_join(path, TACITI_PATH_BYTES, folder, name);
}

/* The step of "step_00000100"; -1 for any other name. */
static int64_t step_of(const char *name) {
    char again[64];
    if (strncmp(name, step_prefix, sizeof step_prefix - 1) != 0) return -1;
    const int64_t step = strtoll(name + sizeof step_prefix - 1, NULL, 10);
    (void)snprintf(again, sizeof again, "%s%08" PRId64, step_prefix, step);
    return step >= 0 && strcmp(name, again) == 0 ? step : -1;
}

static int newest_first(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a < b) - (a > b);
}

static int is_step(const struct dirent *entry) { return step_of(entry->d_name) >= 0; }

tacit_status taciti_stage_list(const char *folder, int64_t **out, size_t *count) {
    struct dirent **entries = NULL;
    const int found = scandir(folder, &entries, is_step, NULL);
    if (found < 0 && errno != ENOENT)
        return taciti_fail(TACIT_E_IO, "%s: cannot be listed: %s", folder, strerror(errno));
    const size_t n = found < 0 ? 0 : (size_t)found;
    int64_t *steps = taciti_calloc(n, sizeof *steps);
    for (size_t i = 0; i < n; i++) {
        if (steps != NULL) steps[i] = step_of(entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    if (steps == NULL) return TACIT_E_MEMORY;
    qsort(steps, n, sizeof *steps, newest_first);
    *out = steps;
    *count = n;
    return TACIT_OK;
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

/* A leftover may stay, as on NFS while somebody has a file of it open: only that of this step is in the way. */
static tacit_status remove_stale(const char *folder) {
    DIR *listing = opendir(folder);
    if (listing == NULL) return taciti_fail(TACIT_E_IO, "%s: cannot be listed: %s", folder, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        char path[TACITI_PATH_BYTES];
        if (strncmp(entry->d_name, step_prefix, sizeof step_prefix - 1) != 0) continue;
        if (!taciti_text_ends_with(entry->d_name, ".tmp")) continue;
        if (taciti_path_join(path, sizeof path, folder, entry->d_name) == TACIT_OK) (void)taciti_file_remove(path);
    }
    (void)closedir(listing);
    return TACIT_OK;
}

tacit_status taciti_stage_begin(const char *folder, const char *tmp) {
    TACITI_TRY(taciti_file_make_folder(folder));
    TACITI_TRY(remove_stale(folder));
    if (mkdir(tmp, 0777) == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_IO, "%s: cannot be made: %s", tmp, strerror(errno));
}

/* ---- write ------------------------------------------------------------------------------------------------------- */

typedef struct piece {
    size_t size, index;
} piece;

static int largest_first(const void *left, const void *right) {
    const piece *a = left, *b = right;
    if (a->size != b->size) return a->size < b->size ? 1 : -1;
    return a->index < b->index ? -1 : 1;
}

tacit_status taciti_stage_assign(const size_t *sizes, size_t count, int writers, int *owner) {
    piece *pieces = taciti_calloc(count, sizeof *pieces);
    size_t *loads = taciti_calloc((size_t)writers, sizeof *loads);
    const bool fine = pieces != NULL && loads != NULL;
    for (size_t i = 0; fine && i < count; i++) pieces[i] = (piece){sizes[i], i};
    if (fine) qsort(pieces, count, sizeof *pieces, largest_first);
    for (size_t i = 0; fine && i < count; i++) {
        int min = 0;
        for (int w = 1; w < writers; w++)
            if (loads[w] < loads[min]) min = w;
        loads[min] += pieces[i].size;
        owner[pieces[i].index] = min;
    }
    taciti_free(pieces);
    taciti_free(loads);
    return fine ? TACIT_OK : TACIT_E_MEMORY;
}

/* All tensors of a state, in array and layout order, those that all ranks hold first; and memory for choosing among
 * them. */
typedef struct inventory {
    taciti_safe_tensor *tensors;
    char **names;
    size_t *lengths; /* elements */
    size_t *sizes;   /* bytes */
    int *owner;
    size_t count, shared;
} inventory;

static void inventory_destroy(inventory *all) {
    for (size_t i = 0; i < all->count; i++) taciti_free(all->names[i]);
    taciti_free(all->tensors); /* the block of all arrays */
}

static tacit_status add_part(inventory *all, const taciti_ckpt_array *array, const taciti_ckpt_part *part) {
    const size_t i = all->count;
    taciti_safe_tensor *out = &all->tensors[i];
    all->names[i] = taciti_ckpt_part_name(array, part);
    if (all->names[i] == NULL) return TACIT_E_MEMORY;
    const taciti_state_entry *entry = &array->entry;
    const bool bytes = entry->kind == TACITI_STATE_BYTES, other_form = entry->access.read != NULL;
    *out = (taciti_safe_tensor){.name = all->names[i],
                                .dtype = bytes ? TACITI_SAFE_U8 : TACITI_SAFE_F32,
                                .dims = 1,
                                .shape = &all->lengths[i],
                                .data = bytes || other_form ? entry->data : (const float *)entry->data + part->at,
                                .access = other_form ? &entry->access : NULL,
                                .at = part->at};
    if (!bytes && taciti_ckpt_part_is_whole(part)) {
        out->dims = part->tensor->dims;
        out->shape = part->tensor->shape;
    }
    all->lengths[i] = part->n;
    all->sizes[i] = part->n * (bytes ? 1 : sizeof(float));
    all->count++;
    return TACIT_OK;
}

static tacit_status add_arrays(inventory *all, const taciti_ckpt_state *state, bool of_rank) {
    for (size_t a = 0; a < state->array_count; a++) {
        const taciti_ckpt_array *array = &state->arrays[a];
        taciti_ckpt_part part;
        for (size_t i = 0; taciti_ckpt_part_of_rank(array) == of_rank && i < taciti_ckpt_part_count(array); i++)
            if (taciti_ckpt_part_get(array, i, &part)) TACITI_TRY(add_part(all, array, &part));
    }
    return TACIT_OK;
}

static tacit_status inventory_create(const taciti_ckpt_state *state, inventory *all) {
    size_t count = 0;
    for (size_t a = 0; a < state->array_count; a++) count += taciti_ckpt_part_count(&state->arrays[a]);
    *all = (inventory){.tensors = NULL};
    const size_t each = sizeof *all->tensors + sizeof *all->names + 2 * sizeof(size_t) + sizeof *all->owner;
    all->tensors = taciti_calloc(count, each);
    if (all->tensors == NULL) return TACIT_E_MEMORY;
    all->names = (char **)(void *)(all->tensors + count);
    all->lengths = (size_t *)(void *)(all->names + count);
    all->sizes = all->lengths + count;
    all->owner = (int *)(void *)(all->sizes + count);
    TACITI_TRY(add_arrays(all, state, false));
    all->shared = all->count;
    return add_arrays(all, state, true);
}

/* Reads back what it has written: only then may that replace an older checkpoint. */
static tacit_status write_file(const char *tmp, int64_t step, const inventory *all, size_t count,
                               taciti_stage_share *share) {
    char path[TACITI_PATH_BYTES], text[32], digest[TACITI_DIGEST_BYTES];
    uint64_t bytes = 0;
    (void)snprintf(text, sizeof text, "%" PRId64, step);
    const char *const metadata[] = {"format", "tacit", "step", text, NULL};
    TACITI_TRY(taciti_path_join(path, sizeof path, tmp, share->name));
    TACITI_TRY(taciti_safe_write(path, all->tensors, count, metadata, &share->bytes, share->digest));
    TACITI_TRY(taciti_digest_file(path, &bytes, digest));
    if (bytes != share->bytes || strcmp(digest, share->digest) != 0)
        return taciti_fail(TACIT_E_IO, "%s: reads back as XXH3-128 %s, %s was written: the disk is failing", path,
                           digest, share->digest);
    share->tensors = count;
    return TACIT_OK;
}

tacit_status taciti_stage_write(const char *tmp, int64_t step, const taciti_ckpt_state *state, int writer, int writers,
                                taciti_stage_share *out) {
    inventory all;
    taciti_stage_share share = {.tensors = 0};
    (void)snprintf(share.name, sizeof share.name, "rank-%05d.safetensors", writer);
    tacit_status status = inventory_create(state, &all);
    if (status == TACIT_OK) status = taciti_stage_assign(all.sizes, all.shared, writers, all.owner);
    size_t count = 0; /* the writer's share and its own tensors move to the front */
    for (size_t i = 0; status == TACIT_OK && i < all.count; i++)
        if (i >= all.shared || all.owner[i] == writer) all.tensors[count++] = all.tensors[i];
    if (count > 0) status = write_file(tmp, step, &all, count, &share);
    inventory_destroy(&all);
    if (status == TACIT_OK) *out = share;
    return status;
}

/* ---- commit ------------------------------------------------------------------------------------------------------ */

/* A checkpoint of the same step makes way: it is damaged or from a run that was resumed before it. One of the two has
 * the name at any time, where the file system can exchange names. */
static tacit_status publish_folder(const char *folder, int64_t step, const char *tmp) {
    char path[TACITI_PATH_BYTES], old[TACITI_PATH_BYTES];
    TACITI_TRY(taciti_stage_path(folder, step, "", path));
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        TACITI_TRY(taciti_file_sync_folder(folder));
        (void)taciti_file_remove(tmp); /* it is published, whatever becomes of the older one */
        return TACIT_OK;
    }
    TACITI_TRY(taciti_stage_path(folder, step, ".old.tmp", old));
    if (rename(path, old) != 0 && errno != ENOENT)
        return taciti_fail(TACIT_E_IO, "%s: cannot be replaced: %s", path, strerror(errno));
    if (rename(tmp, path) != 0) {
        const int error = errno;
        (void)rename(old, path);
        return taciti_fail(TACIT_E_IO, "%s: cannot be renamed: %s", tmp, strerror(error));
    }
    TACITI_TRY(taciti_file_sync_folder(folder));
    (void)taciti_file_remove(old);
    return TACIT_OK;
}

/* Every share must be visible here, at its size: hosts that do not share the folder are found now, not at resume. */
static tacit_status commit_folder(const char *folder, const char *tmp, const taciti_manifest *manifest) {
    if (!taciti_manifest_complete(tmp, manifest))
        return taciti_fail(TACIT_E_IO,
                           "%s: files that other ranks have written are not here; checkpoints need a folder that all "
                           "hosts share",
                           tmp);
    char path[TACITI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    TACITI_TRY(taciti_path_join(path, sizeof path, tmp, manifest_name));
    TACITI_TRY(taciti_manifest_format(manifest, &text, &bytes));
    const tacit_status status = taciti_file_write(path, text, bytes);
    taciti_free(text);
    TACITI_TRY(status);
    TACITI_TRY(taciti_file_sync_folder(tmp));
    return publish_folder(folder, manifest->step, tmp);
}

tacit_status taciti_stage_commit(const char *folder, const char *tmp, int64_t step, const char *meta_json,
                                 const taciti_stage_share *shares, int writers) {
    taciti_manifest manifest = {.step = step, .world = writers};
    manifest.files = taciti_calloc((size_t)writers, sizeof *manifest.files);
    manifest.meta_json = taciti_strdup(meta_json);
    tacit_status status = manifest.files == NULL || manifest.meta_json == NULL ? TACIT_E_MEMORY : TACIT_OK;
    for (int w = 0; w < writers && status == TACIT_OK; w++) {
        if (shares[w].tensors == 0) continue;
        manifest.files[manifest.count++] = shares[w];
        manifest.tensors += shares[w].tensors;
    }
    if (status == TACIT_OK) status = commit_folder(folder, tmp, &manifest);
    taciti_manifest_destroy(&manifest);
    return status;
}

void taciti_stage_set_aside(const char *folder, int64_t step) {
    int64_t *steps = NULL;
    size_t count = 0;
    if (taciti_stage_list(folder, &steps, &count) != TACIT_OK) return;
    for (size_t i = 0; i < count && steps[i] > step; i++) {
        char path[TACITI_PATH_BYTES], aside[TACITI_PATH_BYTES];
        if (taciti_stage_path(folder, steps[i], "", path) != TACIT_OK) continue;
        if (taciti_stage_path(folder, steps[i], ".damaged", aside) != TACIT_OK) continue;
        if (rename(path, aside) == 0)
            taciti_log(TACITI_LOG_WARN, "%s cannot be loaded: it is now %s", path, aside);
        else
            taciti_log(TACITI_LOG_WARN, "%s cannot be loaded, nor set aside: %s; remove it", path, strerror(errno));
    }
    taciti_free(steps);
}

/* ---- rotate ------------------------------------------------------------------------------------------------------ */

/* Renames first: a kill in the middle leaves a temporary folder, not a damaged checkpoint. */
static tacit_status remove_step(const char *folder, int64_t step) {
    char path[TACITI_PATH_BYTES], old[TACITI_PATH_BYTES];
    TACITI_TRY(taciti_stage_path(folder, step, "", path));
    TACITI_TRY(taciti_stage_path(folder, step, ".old.tmp", old));
    if (rename(path, old) != 0) return taciti_fail(TACIT_E_IO, "%s: cannot be removed: %s", path, strerror(errno));
    return taciti_file_remove(old);
}

static bool is_complete(const char *folder, int64_t step) {
    char path[TACITI_PATH_BYTES];
    taciti_manifest manifest;
    if (taciti_stage_path(folder, step, "", path) != TACIT_OK) return false;
    if (taciti_manifest_read(path, &manifest) != TACIT_OK) return false;
    const bool complete = taciti_manifest_complete(path, &manifest);
    taciti_manifest_destroy(&manifest);
    return complete;
}

tacit_status taciti_stage_rotate(const char *folder, int64_t step, int keep) {
    int64_t *steps = NULL;
    size_t count = 0;
    int kept = 1;
    tacit_status status = taciti_stage_list(folder, &steps, &count);
    for (size_t i = 0; i < count && status == TACIT_OK; i++) {
        if (steps[i] >= step) continue;
        if (kept >= keep)
            status = remove_step(folder, steps[i]);
        else
            kept += is_complete(folder, steps[i]);
    }
    taciti_free(steps);
    return status;
}

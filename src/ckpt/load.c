/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads arrays from the shards of a checkpoint. First the pieces of the wanted arrays are listed and checked: dtype,
 * shape, no float twice, none missing. Only then is the first element overwritten.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "ckpt/manifest.h"
#include "ckpt/part.h"
#include "ckpt/safetensors.h"
#include "kernel/kernel.h"

enum { CHUNK_FLOATS = 4096 };

/* A stored tensor that a wanted array needs, or a piece of one. */
typedef struct piece {
    size_t array, file, entry; /* indices */
    taciti_ckpt_part part;     /* all that is stored */
} piece;

typedef struct shards {
    const char *path;
    taciti_manifest manifest;
    const taciti_ckpt_array *arrays;
    size_t array_count;
    bool *other;   /* [array_count] set for optional bytes of another size; NULL: they are refused */
    piece *pieces; /* owned; sorted by array, tensor and first float when all are there */
    size_t count;
} shards;

static void shards_close(shards *s) {
    taciti_manifest_destroy(&s->manifest);
    taciti_free(s->pieces);
}

/* ---- the pieces in the shards ------------------------------------------------------------------------------------ */

static tacit_status check_entry(const char *file, const taciti_safe_entry *entry, const taciti_ckpt_part *part) {
    char stored[TACITI_SHAPE_TEXT_BYTES], needed[TACITI_SHAPE_TEXT_BYTES];
    const bool tensor = part->tensor != NULL && taciti_ckpt_part_is_whole(part);
    const int dims = tensor ? part->tensor->dims : 1;
    const size_t *shape = tensor ? part->tensor->shape : &part->n;
    const taciti_safe_dtype dtype = part->tensor == NULL ? TACITI_SAFE_U8 : TACITI_SAFE_F32;
    if (!taciti_shape_equals(entry->dims, entry->shape, dims, shape))
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s has shape %s, the run needs %s", file, entry->name,
                           taciti_shape_text(entry->dims, entry->shape, stored),
                           taciti_shape_text(dims, shape, needed));
    if (entry->dtype != dtype)
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s is not of dtype %s", file, entry->name,
                           part->tensor == NULL ? "U8" : "F32");
    return TACIT_OK;
}

static bool has_other_size(const taciti_state_entry *wanted, const taciti_safe_entry *stored) {
    return wanted->kind == TACITI_STATE_BYTES && wanted->optional && stored->dtype == TACITI_SAFE_U8 &&
           stored->bytes != wanted->n;
}

/* Adds a piece for every array that wants something of the entry. */
static tacit_status note_entry(shards *s, size_t file, const taciti_safe_file *open, size_t entry) {
    for (size_t a = 0; a < s->array_count; a++) {
        piece one = {.array = a, .file = file, .entry = entry};
        if (!taciti_ckpt_part_parse(&s->arrays[a], open->entries[entry].name, &one.part)) continue;
        if (s->other != NULL && has_other_size(&s->arrays[a].entry, &open->entries[entry])) {
            s->other[a] = true;
            continue;
        }
        TACITI_TRY(check_entry(open->view.path, &open->entries[entry], &one.part));
        piece *pieces = taciti_with_room(s->pieces, s->count, sizeof *pieces);
        if (pieces == NULL) return TACIT_E_MEMORY;
        s->pieces = pieces;
        s->pieces[s->count++] = one;
    }
    return TACIT_OK;
}

static tacit_status open_file(const shards *s, size_t file, taciti_safe_file *out) {
    const taciti_manifest_file *expected = &s->manifest.files[file];
    char name[TACITI_PATH_BYTES];
    TACITI_TRY(taciti_path_join(name, sizeof name, s->path, expected->name));
    TACITI_TRY(taciti_safe_open(name, out));
    if (out->count == expected->tensors) return TACIT_OK;
    const tacit_status status = taciti_fail(TACIT_E_DATA, "%s: holds %zu tensors, the manifest says %" PRIu64, name,
                                            out->count, expected->tensors);
    taciti_safe_close(out);
    return status;
}

static int by_place(const void *left, const void *right) {
    const piece *a = left, *b = right;
    if (a->array != b->array) return a->array < b->array ? -1 : 1;
    if (a->part.tensor != b->part.tensor) return a->part.tensor < b->part.tensor ? -1 : 1;
    if (a->part.first != b->part.first) return a->part.first < b->part.first ? -1 : 1;
    return 0;
}

/* No float of a tensor may be stored twice. */
static tacit_status check_twice(const shards *s) {
    for (size_t i = 1; i < s->count; i++) {
        const piece *before = &s->pieces[i - 1], *one = &s->pieces[i];
        if (before->array != one->array || before->part.tensor != one->part.tensor) continue;
        if (one->part.first < before->part.first + before->part.n || one->part.tensor == NULL)
            return taciti_fail(TACIT_E_DATA, "%s/%s: tensor %s%s is stored twice", s->path,
                               s->manifest.files[one->file].name, s->arrays[one->array].prefix,
                               one->part.tensor == NULL ? "" : one->part.tensor->name);
    }
    return TACIT_OK;
}

static tacit_status list_pieces(shards *s) {
    for (size_t f = 0; f < s->manifest.count; f++) {
        taciti_safe_file file;
        TACITI_TRY(open_file(s, f, &file));
        tacit_status status = TACIT_OK;
        for (size_t i = 0; i < file.count && status == TACIT_OK; i++) status = note_entry(s, f, &file, i);
        taciti_safe_close(&file);
        TACITI_TRY(status);
    }
    if (s->count > 1) qsort(s->pieces, s->count, sizeof *s->pieces, by_place);
    return check_twice(s);
}

/* `out` is to be closed whatever comes back. */
static tacit_status shards_open(const char *path, const taciti_ckpt_array *arrays, size_t array_count, bool *other,
                                shards *out) {
    *out = (shards){.path = path, .arrays = arrays, .array_count = array_count, .other = other};
    TACITI_TRY(taciti_manifest_read(path, &out->manifest));
    return list_pieces(out);
}

/* ---- is it enough ------------------------------------------------------------------------------------------------ */

/* The first piece of an array's tensor; s->count: there is none. */
static size_t first_piece(const shards *s, size_t array, const taciti_tensor *tensor) {
    const piece key = {.array = array, .part = {.tensor = tensor}};
    size_t low = 0, high = s->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_place(&s->pieces[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Pieces of the part's tensor follow one another without a hole from its first float to its last. */
static bool is_held(const shards *s, size_t array, const taciti_ckpt_part *part) {
    size_t end = part->first;
    bool any = false;
    for (size_t i = first_piece(s, array, part->tensor); i < s->count; i++) {
        const taciti_ckpt_part *stored = &s->pieces[i].part;
        if (s->pieces[i].array != array || stored->tensor != part->tensor || stored->first > end) break;
        if (stored->first + stored->n > end) end = stored->first + stored->n;
        any = true;
    }
    return any && end >= part->first + part->n;
}

/* The first part of an array that is not there; false: all are. */
static bool find_missing(const shards *s, size_t array, taciti_ckpt_part *out) {
    for (size_t i = 0; i < taciti_ckpt_part_count(&s->arrays[array]); i++)
        if (taciti_ckpt_part_get(&s->arrays[array], i, out) && !is_held(s, array, out)) return true;
    return false;
}

tacit_status taciti_ckpt_find_held(const char *path, const taciti_ckpt_array *arrays, size_t array_count, bool *held,
                                   bool *other) {
    shards s;
    taciti_ckpt_part part;
    const tacit_status status = shards_open(path, arrays, array_count, other, &s);
    for (size_t a = 0; status == TACIT_OK && a < array_count; a++) held[a] = !find_missing(&s, a, &part);
    shards_close(&s);
    return status;
}

/* As shards_open(), for arrays of which nothing is missing. */
static tacit_status shards_open_complete(const char *path, const taciti_ckpt_array *arrays, size_t array_count,
                                         shards *out) {
    taciti_ckpt_part part;
    TACITI_TRY(shards_open(path, arrays, array_count, NULL, out));
    for (size_t a = 0; a < array_count; a++)
        if (find_missing(out, a, &part))
            return taciti_fail(TACIT_E_DATA, "%s: tensor %s%s is not in this checkpoint", path, arrays[a].prefix,
                               part.tensor == NULL ? "" : part.tensor->name);
    return TACIT_OK;
}

tacit_status taciti_ckpt_check_arrays(const char *path, const taciti_ckpt_array *arrays, size_t array_count) {
    shards s;
    const tacit_status status = shards_open_complete(path, arrays, array_count, &s);
    shards_close(&s);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Reads n floats from a byte of the file to float `at` of the array, or adds them. */
static tacit_status read_floats(const taciti_ckpt_array *array, size_t at, const taciti_view *view, size_t offset,
                                size_t n) {
    const taciti_state_entry *entry = &array->entry;
    float chunk[CHUNK_FLOATS], before[CHUNK_FLOATS];
    if (entry->access.read == NULL && !array->add)
        return taciti_view_read(view, offset, n * sizeof *chunk, (float *)entry->data + at);
    for (size_t i = 0; i < n; i += CHUNK_FLOATS) {
        const size_t part = taciti_min(n - i, CHUNK_FLOATS);
        TACITI_TRY(taciti_view_read(view, offset + i * sizeof *chunk, part * sizeof *chunk, chunk));
        if (array->add) {
            taciti_state_read(entry, at + i, before, part);
            taciti_kernels_get()->add(chunk, before, part);
        }
        taciti_state_write(entry, at + i, chunk, part);
    }
    return TACIT_OK;
}

/* Reads the floats of the stored piece that the array wants. */
static tacit_status read_piece(const taciti_ckpt_array *array, const taciti_ckpt_part *stored,
                               const taciti_safe_file *file, const taciti_safe_entry *entry) {
    taciti_ckpt_part want;
    if (array->entry.kind == TACITI_STATE_BYTES)
        return taciti_view_read(&file->view, entry->offset, array->entry.n, array->entry.data);
    const size_t ranges = taciti_ckpt_ranges(array), tensor = (size_t)(stored->tensor - array->entry.layout->tensors);
    for (size_t r = 0; r < ranges; r++) {
        if (!taciti_ckpt_part_get(array, tensor * ranges + r, &want)) continue;
        const size_t first = taciti_max(stored->first, want.first);
        const size_t end = taciti_min(stored->first + stored->n, want.first + want.n);
        const size_t offset = entry->offset + (first - stored->first) * sizeof(float);
        if (first < end)
            TACITI_TRY(read_floats(array, want.at + (first - want.first), &file->view, offset, end - first));
    }
    return TACIT_OK;
}

static int by_file(const void *left, const void *right) {
    const piece *a = left, *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

/* Every file is opened once more, and read from front to back. */
static tacit_status read_pieces(shards *s) {
    tacit_status status = TACIT_OK;
    if (s->count > 1) qsort(s->pieces, s->count, sizeof *s->pieces, by_file);
    for (size_t i = 0; i < s->count && status == TACIT_OK;) {
        const size_t f = s->pieces[i].file;
        taciti_safe_file file;
        TACITI_TRY(open_file(s, f, &file));
        for (; i < s->count && s->pieces[i].file == f && status == TACIT_OK; i++)
            status = read_piece(&s->arrays[s->pieces[i].array], &s->pieces[i].part, &file,
                                &file.entries[s->pieces[i].entry]);
        taciti_safe_close(&file);
    }
    return status;
}

tacit_status taciti_ckpt_load(const char *path, const taciti_ckpt_array *arrays, size_t array_count) {
    shards s;
    tacit_status status = shards_open_complete(path, arrays, array_count, &s);
    if (status == TACIT_OK) status = read_pieces(&s);
    shards_close(&s);
    return status;
}

tacit_status taciti_ckpt_find_bytes(const char *path, const char *prefix, bool *held, size_t *bytes) {
    shards s = {.path = path};
    tacit_status status = taciti_manifest_read(path, &s.manifest);
    *held = false;
    for (size_t f = 0; status == TACIT_OK && f < s.manifest.count && !*held; f++) {
        taciti_safe_file file;
        status = open_file(&s, f, &file);
        if (status != TACIT_OK) break;
        const taciti_safe_entry *entry = taciti_safe_find(&file, prefix);
        *held = entry != NULL && entry->dtype == TACITI_SAFE_U8;
        if (*held) *bytes = entry->bytes;
        taciti_safe_close(&file);
    }
    shards_close(&s);
    return status;
}

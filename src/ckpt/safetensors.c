/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ckpt/sink.h"
#include "kernel/kernel.h"

enum {
    PREFIX_BYTES = 8,             /* the header's length */
    HEADER_MAX_BYTES = 100000000, /* the reference implementation's cap */
    CHUNK_FLOATS = 4096
};
static const char metadata_key[] = "__metadata__";

static const struct {
    const char *name;
    taciti_safe_dtype dtype;
    size_t bytes;
} dtypes[] = {
    {"F32", TACITI_SAFE_F32, 4},    {"BF16", TACITI_SAFE_BF16, 2},     {"F16", TACITI_SAFE_F16, 2},
    {"I64", TACITI_SAFE_OTHER, 8},  {"U8", TACITI_SAFE_U8, 1},         {"F64", TACITI_SAFE_OTHER, 8},
    {"I32", TACITI_SAFE_OTHER, 4},  {"I16", TACITI_SAFE_OTHER, 2},     {"I8", TACITI_SAFE_OTHER, 1},
    {"U64", TACITI_SAFE_OTHER, 8},  {"U32", TACITI_SAFE_OTHER, 4},     {"U16", TACITI_SAFE_OTHER, 2},
    {"BOOL", TACITI_SAFE_OTHER, 1}, {"F8_E4M3", TACITI_SAFE_OTHER, 1}, {"F8_E5M2", TACITI_SAFE_OTHER, 1},
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0] };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool read_size(const json_t *value, size_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (size_t)json_integer_value(value);
    return true;
}

/* Bytes that dtype x shape needs, in *bytes; the product is guarded against overflow. */
static tacit_status parse_shape(const char *path, const json_t *shape, size_t item_bytes, taciti_safe_entry *entry,
                                size_t *bytes) {
    if (!json_is_array(shape))
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s: \"shape\" must be an array of sizes", path, entry->name);
    entry->dims = (int)json_array_size(shape); /* the header limits it */
    entry->shape = taciti_calloc(json_array_size(shape), sizeof *entry->shape);
    if (entry->shape == NULL) return TACIT_E_MEMORY;
    *bytes = item_bytes;
    for (int i = 0; i < entry->dims; i++) {
        size_t size = 0;
        if (!read_size(json_array_get(shape, (size_t)i), &size) || (size > 0 && *bytes > SIZE_MAX / 2 / size))
            return taciti_fail(TACIT_E_DATA, "%s: tensor %s: size of dimension %d is out of range", path, entry->name,
                               i);
        entry->shape[i] = size;
        *bytes *= size;
    }
    return TACIT_OK;
}

static tacit_status parse_range(const char *path, const json_t *range, size_t data_at, size_t data_bytes,
                                taciti_safe_entry *entry) {
    size_t begin = 0, end = 0;
    if (!json_is_array(range) || json_array_size(range) != 2 || !read_size(json_array_get(range, 0), &begin) ||
        !read_size(json_array_get(range, 1), &end))
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s: \"data_offsets\" must be two offsets", path, entry->name);
    if (begin > end || end > data_bytes)
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s: offsets %zu to %zu do not lie in the %zu bytes of data", path,
                           entry->name, begin, end, data_bytes);
    entry->offset = data_at + begin;
    entry->bytes = end - begin;
    return TACIT_OK;
}

static tacit_status parse_dtype(const char *path, const json_t *dtype, taciti_safe_entry *entry, size_t *item_bytes) {
    const char *name = json_string_value(dtype);
    for (size_t i = 0; name != NULL && i < DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) != 0) continue;
        entry->dtype = dtypes[i].dtype;
        *item_bytes = dtypes[i].bytes;
        return TACIT_OK;
    }
    return taciti_fail(TACIT_E_DATA, "%s: tensor %s: unknown dtype %.32s", path, entry->name,
                       name == NULL ? "(not a text)" : name);
}

static tacit_status parse_entry(const char *path, const json_t *value, size_t data_at, size_t data_bytes,
                                taciti_safe_entry *entry) {
    if (!json_is_object(value) || json_object_size(value) != 3)
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s: must have dtype, shape and data_offsets and nothing else",
                           path, entry->name);
    size_t item_bytes = 0, needed = 0;
    TACITI_TRY(parse_dtype(path, json_object_get(value, "dtype"), entry, &item_bytes));
    TACITI_TRY(parse_shape(path, json_object_get(value, "shape"), item_bytes, entry, &needed));
    TACITI_TRY(parse_range(path, json_object_get(value, "data_offsets"), data_at, data_bytes, entry));
    if (needed != entry->bytes)
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s: dtype and shape need %zu bytes, the offsets hold %zu", path,
                           entry->name, needed, entry->bytes);
    return TACIT_OK;
}

static tacit_status check_metadata(const char *path, json_t *metadata) {
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(metadata)) return taciti_fail(TACIT_E_DATA, "%s: %s is not an object", path, metadata_key);
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return taciti_fail(TACIT_E_DATA, "%s: %s: %s is not a text", path, metadata_key, key);
    }
    return TACIT_OK;
}

static int by_offset(const void *left, const void *right) {
    const taciti_safe_entry *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Tensors must cover the data without holes or overlaps: then no two names share bytes and no byte is unnamed. */
static tacit_status check_tiling(const char *path, taciti_safe_file *file, size_t data_at) {
    if (file->count > 1) qsort(file->entries, file->count, sizeof *file->entries, by_offset);
    size_t at = data_at;
    for (size_t i = 0; i < file->count; i++) {
        const taciti_safe_entry *entry = &file->entries[i];
        if (entry->offset != at)
            return taciti_fail(TACIT_E_DATA, "%s: tensor %s begins at byte %zu where %zu was expected: %s", path,
                               entry->name, entry->offset, at, entry->offset < at ? "tensors overlap" : "a hole");
        at += entry->bytes;
    }
    if (at != file->view.bytes)
        return taciti_fail(TACIT_E_DATA, "%s: tensors end at byte %zu of %zu", path, at, file->view.bytes);
    return TACIT_OK;
}

static tacit_status parse_header(const char *path, json_t *header, size_t data_at, taciti_safe_file *file) {
    const char *key = NULL;
    json_t *value = NULL;
    file->entries = taciti_calloc(json_object_size(header), sizeof *file->entries);
    if (file->entries == NULL) return TACIT_E_MEMORY;
    json_object_foreach(header, key, value) {
        if (strcmp(key, metadata_key) == 0) {
            TACITI_TRY(check_metadata(path, value));
            continue;
        }
        taciti_safe_entry *entry = &file->entries[file->count++];
        entry->name = taciti_strdup(key);
        if (entry->name == NULL) return TACIT_E_MEMORY;
        TACITI_TRY(parse_entry(path, value, data_at, file->view.bytes - data_at, entry));
    }
    return check_tiling(path, file, data_at);
}

static tacit_status read_header(const char *path, taciti_safe_file *file) {
    uint64_t length = 0;
    if (file->view.bytes < PREFIX_BYTES)
        return taciti_fail(TACIT_E_DATA, "%s: %zu bytes are too few for a safetensors file", path, file->view.bytes);
    TACITI_TRY(taciti_view_read(&file->view, 0, sizeof length, &length));
    if (length < 2 || length > HEADER_MAX_BYTES || length > file->view.bytes - PREFIX_BYTES)
        return taciti_fail(TACIT_E_DATA, "%s: header of %llu bytes does not fit a safetensors file of %zu bytes", path,
                           (unsigned long long)length, file->view.bytes);
    char *text = taciti_calloc((size_t)length, 1);
    if (text == NULL) return TACIT_E_MEMORY;
    json_error_t error = {0};
    json_t *header = NULL;
    tacit_status status = taciti_view_read(&file->view, PREFIX_BYTES, (size_t)length, text);
    if (status == TACIT_OK) {
        header = text[0] == '{' ? json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error) : NULL;
        status = header == NULL
                     ? taciti_fail(TACIT_E_DATA, "%s: header is not a JSON object: %s (byte %d)", path,
                                   error.text[0] != 0 ? error.text : "it does not begin with '{'", error.position)
                     : parse_header(path, header, PREFIX_BYTES + (size_t)length, file);
    }
    json_decref(header);
    taciti_free(text);
    return status;
}

tacit_status taciti_safe_open(const char *path, taciti_safe_file *out) {
    taciti_safe_file file = {0};
    TACITI_TRY(taciti_view_open(path, &file.view));
    const tacit_status status = read_header(path, &file);
    if (status == TACIT_OK)
        *out = file;
    else
        taciti_safe_close(&file);
    return status;
}

void taciti_safe_close(taciti_safe_file *file) {
    for (size_t i = 0; i < file->count; i++) {
        taciti_free(file->entries[i].name);
        taciti_free(file->entries[i].shape);
    }
    taciti_free(file->entries);
    taciti_view_close(&file->view);
    *file = (taciti_safe_file){.view = {.fd = -1}};
}

const taciti_safe_entry *taciti_safe_find(const taciti_safe_file *file, const char *name) {
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
    return NULL;
}

tacit_status taciti_safe_read_half(const taciti_view *view, size_t offset, taciti_safe_dtype dtype, float *out,
                                   size_t n) {
    uint16_t half[CHUNK_FLOATS];
    for (size_t at = 0; at < n; at += CHUNK_FLOATS) {
        const size_t part = n - at < CHUNK_FLOATS ? n - at : CHUNK_FLOATS;
        TACITI_TRY(taciti_view_read(view, offset + at * sizeof half[0], part * sizeof half[0], half));
        if (dtype == TACITI_SAFE_BF16)
            taciti_kernels_get()->bf16_decode(out + at, half, part);
        else
            taciti_kernels_get()->fp16_decode(out + at, half, part);
    }
    return TACIT_OK;
}

static size_t count_elements(int dims, const size_t *shape) {
    size_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    return n;
}

tacit_status taciti_safe_read_f32(const taciti_safe_file *file, const taciti_safe_entry *entry, float *out, size_t n) {
    const size_t elements = count_elements(entry->dims, entry->shape);
    if (elements != n)
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s has %zu elements, not %zu", file->view.path, entry->name,
                           elements, n);
    if (entry->dtype == TACITI_SAFE_F32) return taciti_view_read(&file->view, entry->offset, entry->bytes, out);
    if (entry->dtype != TACITI_SAFE_BF16 && entry->dtype != TACITI_SAFE_F16)
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s is not of dtype F32, BF16 or F16", file->view.path,
                           entry->name);
    return taciti_safe_read_half(&file->view, entry->offset, entry->dtype, out, n);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Adds {"dtype", "shape", "data_offsets"} of one tensor that begins at *at. */
static tacit_status describe_tensor(json_t *header, const char *path, const taciti_safe_tensor *tensor, size_t *at) {
    if (tensor->dtype != TACITI_SAFE_F32 && tensor->dtype != TACITI_SAFE_BF16 && tensor->dtype != TACITI_SAFE_U8)
        return taciti_fail(TACIT_E_INTERNAL, "%s: tensor %s: only F32, BF16 and U8 are written", path, tensor->name);
    if (json_object_get(header, tensor->name) != NULL || strcmp(tensor->name, metadata_key) == 0)
        return taciti_fail(TACIT_E_INTERNAL, "%s: tensor name %s is taken", path, tensor->name);
    size_t d = 0;
    while (dtypes[d].dtype != tensor->dtype) d++;
    json_t *shape = json_array();
    for (int i = 0; i < tensor->dims; i++)
        (void)json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    const size_t end = *at + count_elements(tensor->dims, tensor->shape) * dtypes[d].bytes;
    json_t *value = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[d].name, "shape", shape, "data_offsets",
                              (json_int_t)*at, (json_int_t)end);
    if (value == NULL || json_object_set_new(header, tensor->name, value) != 0)
        return taciti_fail(TACIT_E_INTERNAL, "%s: tensor %s cannot be described in JSON", path, tensor->name);
    *at = end;
    return TACIT_OK;
}

static tacit_status describe_all(json_t *header, const char *path, const taciti_safe_tensor *tensors, size_t count,
                                 const char *const *metadata) {
    if (metadata != NULL && metadata[0] != NULL) {
        json_t *texts = json_object();
        if (texts == NULL || json_object_set_new(header, metadata_key, texts) != 0) return TACIT_E_MEMORY;
        for (size_t i = 0; metadata[i] != NULL; i += 2)
            if (json_object_set_new(texts, metadata[i], json_string(metadata[i + 1])) != 0)
                return taciti_fail(TACIT_E_INTERNAL, "%s: metadata %s is not UTF-8", path, metadata[i]);
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) TACITI_TRY(describe_tensor(header, path, &tensors[i], &at));
    return TACIT_OK;
}

/* Length, text and blanks, so that the data begins on a multiple of 64 bytes. */
static tacit_status write_header(taciti_sink *sink, const char *text) {
    static const char blanks[64] = "                                                                ";
    const size_t bytes = strlen(text), padded = taciti_round_up(PREFIX_BYTES + bytes, sizeof blanks) - PREFIX_BYTES;
    if (padded > HEADER_MAX_BYTES)
        return taciti_fail(TACIT_E_INTERNAL, "%s: header of %zu bytes is too long", sink->path, padded);
    const uint64_t length = padded;
    TACITI_TRY(taciti_sink_bytes(sink, &length, sizeof length));
    TACITI_TRY(taciti_sink_bytes(sink, text, bytes));
    return taciti_sink_bytes(sink, blanks, padded - bytes);
}

static tacit_status write_tensor(taciti_sink *sink, const taciti_safe_tensor *tensor) {
    const taciti_state_access *access = tensor->access;
    const size_t n = count_elements(tensor->dims, tensor->shape);
    const int half = tensor->dtype == TACITI_SAFE_BF16;
    float chunk[CHUNK_FLOATS];
    if (tensor->dtype == TACITI_SAFE_U8) return taciti_sink_bytes(sink, tensor->data, n);
    if (access == NULL) return taciti_sink_floats(sink, tensor->data, n, half);
    for (size_t at = 0; at < n; at += CHUNK_FLOATS) {
        const size_t part = n - at < CHUNK_FLOATS ? n - at : CHUNK_FLOATS;
        access->read(access->object, access->which, tensor->at + at, chunk, part);
        TACITI_TRY(taciti_sink_floats(sink, chunk, part, half));
    }
    return TACIT_OK;
}

tacit_status taciti_safe_write(const char *path, const taciti_safe_tensor *tensors, size_t count,
                               const char *const *metadata, uint64_t *out_bytes, char out_digest[33]) {
    taciti_sink sink = {.fd = -1};
    char *text = NULL;
    json_t *header = json_object();
    tacit_status status = header == NULL ? TACIT_E_MEMORY : describe_all(header, path, tensors, count, metadata);
    if (status == TACIT_OK && (text = json_dumps(header, JSON_COMPACT)) == NULL) status = TACIT_E_MEMORY;
    if (status == TACIT_OK) status = taciti_sink_open(path, &sink);
    if (status == TACIT_OK) status = write_header(&sink, text);
    for (size_t i = 0; i < count && status == TACIT_OK; i++) status = write_tensor(&sink, &tensors[i]);
    if (status == TACIT_OK) status = taciti_sink_finish(&sink, out_bytes, out_digest);
    taciti_sink_abandon(&sink);
    free(text);
    json_decref(header);
    return status;
}

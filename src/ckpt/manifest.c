/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "base/text.h"

/* Leaves room for millions of files and for any configuration; a larger manifest is not ours. */
enum { MANIFEST_MAX_BYTES = 256 << 20 };

static const char manifest_name[] = "manifest.json";
static const char line_begin[] = "{\"digest\": \"", line_end[] = "\",\n";
enum {
    LINE_BEGIN_BYTES = sizeof line_begin - 1,
    LINE_END_BYTES = sizeof line_end - 1,
    HEX_BYTES = TACITI_DIGEST_BYTES - 1,
    LINE_BYTES = LINE_BEGIN_BYTES + HEX_BYTES + LINE_END_BYTES
};

void taciti_manifest_destroy(taciti_manifest *manifest) {
    taciti_free(manifest->files);
    taciti_free(manifest->meta_json);
    *manifest = (taciti_manifest){0};
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static json_t *files_json(const taciti_manifest *manifest) {
    json_t *files = json_array();
    for (size_t i = 0; i < manifest->count; i++) {
        const taciti_manifest_file *file = &manifest->files[i];
        json_t *value = json_pack("{s:s, s:I, s:s, s:I}", "name", file->name, "bytes", (json_int_t)file->bytes, "xxh3",
                                  file->digest, "tensors", (json_int_t)file->tensors);
        if (json_array_append_new(files, value) != 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

/* The manifest without its digest, as text of jansson's. */
static tacit_status body_text(const taciti_manifest *manifest, char **out) {
    json_error_t error = {0};
    json_t *meta = json_loads(manifest->meta_json, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(meta)) {
        json_decref(meta);
        return taciti_fail(TACIT_E_INTERNAL, "checkpoint: meta data is not a JSON object: %s", error.text);
    }
    json_t *files = files_json(manifest);
    json_t *body = json_pack("{s:i, s:s, s:I, s:i, s:I, s:o, s:o}", "format", (int)TACITI_MANIFEST_FORMAT, "tacit",
                             tacit_version(), "step", (json_int_t)manifest->step, "world", manifest->world, "tensors",
                             (json_int_t)manifest->tensors, "files", files, "meta", meta);
    char *text = taciti_json_dump(body, JSON_INDENT(1));
    if (text == NULL) return taciti_fail(TACIT_E_MEMORY, "checkpoint: no memory for the manifest");
    *out = text;
    return TACIT_OK;
}

tacit_status taciti_manifest_format(const taciti_manifest *manifest, char **out, size_t *out_bytes) {
    char *body = NULL, digest[TACITI_DIGEST_BYTES], line[LINE_BYTES + 1];
    TACITI_TRY(body_text(manifest, &body));
    const size_t rest_bytes = strlen(body) - 1; /* without "{\n", with a final line feed */
    char *text = taciti_calloc(LINE_BYTES + rest_bytes + 1, 1);
    if (text != NULL) {
        (void)snprintf(text + LINE_BYTES, rest_bytes + 1, "%s\n", body + 2);
        taciti_digest_block(text + LINE_BYTES, rest_bytes, digest);
        (void)snprintf(line, sizeof line, "%s%s%s", line_begin, digest, line_end);
        memcpy(text, line, LINE_BYTES);
        *out = text;
        *out_bytes = LINE_BYTES + rest_bytes;
    }
    taciti_free(body);
    return text == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static tacit_status check_digest(const char *path, const char *text, size_t bytes) {
    char actual[TACITI_DIGEST_BYTES];
    if (bytes < LINE_BYTES || memcmp(text, line_begin, LINE_BEGIN_BYTES) != 0 ||
        memcmp(text + LINE_BEGIN_BYTES + HEX_BYTES, line_end, LINE_END_BYTES) != 0)
        return taciti_fail(TACIT_E_DATA, "%s: damaged: it does not begin with its digest", path);
    taciti_digest_block(text + LINE_BYTES, bytes - LINE_BYTES, actual);
    if (memcmp(actual, text + LINE_BEGIN_BYTES, HEX_BYTES) != 0)
        return taciti_fail(TACIT_E_DATA, "%s: damaged: XXH3-128 should be %.32s, is %s", path, text + LINE_BEGIN_BYTES,
                           actual);
    return TACIT_OK;
}

/* Reads a plain name: nothing that could leave the folder. */
static tacit_status read_name(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                              void *out) {
    static const char LEGAL[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    if (name[0] == '.' || strspn(name, LEGAL) != strlen(name) || !taciti_text_ends_with(name, ".safetensors"))
        return taciti_strict_refuse(r, value, field->legal);
    return taciti_strict_text(r, value, field, out);
}

static tacit_status read_digest(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    if (strlen(text) != HEX_BYTES || strspn(text, "0123456789abcdef") != HEX_BYTES)
        return taciti_strict_refuse(r, value, field->legal);
    return taciti_strict_text(r, value, field, out);
}

#define INTEGER 0, 0x1p63, "an integer from 0 on", NULL
static const taciti_strict_field FILE_FIELDS[] = {
    {"name", true, read_name, offsetof(taciti_manifest_file, name), 1, TACITI_MANIFEST_NAME_BYTES,
     "a plain file name that ends with .safetensors", NULL},
    {"xxh3", true, read_digest, offsetof(taciti_manifest_file, digest), 1, TACITI_DIGEST_BYTES, "32 hexadecimal digits",
     NULL},
    {"bytes", true, taciti_strict_size, offsetof(taciti_manifest_file, bytes), INTEGER},
    {"tensors", true, taciti_strict_size, offsetof(taciti_manifest_file, tensors), 0, INT32_MAX,
     "an integer from 0 to 2147483647", NULL},
    {0},
};

static int by_name(const void *left, const void *right) {
    const taciti_manifest_file *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* No file twice, and as many tensors as all of them say. */
static tacit_status check_files(const taciti_strict_reader *r, taciti_manifest *manifest) {
    const size_t count = manifest->count;
    uint64_t tensors = 0;
    for (size_t i = 0; i < count; i++) tensors += manifest->files[i].tensors;
    if (count > 1) qsort(manifest->files, count, sizeof *manifest->files, by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(manifest->files[i - 1].name, manifest->files[i].name) == 0)
            return taciti_fail(TACIT_E_DATA, "%s: %s is listed twice", r->file, manifest->files[i].name);
    if (tensors != manifest->tensors)
        return taciti_fail(TACIT_E_DATA, "%s: the files hold %" PRIu64 " tensors, not %" PRIu64, r->file, tensors,
                           manifest->tensors);
    return TACIT_OK;
}

static tacit_status read_files(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                               void *out) {
    taciti_manifest *manifest = out;
    if (!json_is_array(value)) return taciti_strict_refuse(r, value, field->legal);
    manifest->files = taciti_calloc(json_array_size(value), sizeof *manifest->files);
    if (manifest->files == NULL) return TACIT_E_MEMORY;
    manifest->count = json_array_size(value);
    for (size_t i = 0; i < manifest->count; i++) {
        const size_t length = taciti_strict_enter_item(r, i);
        TACITI_TRY(taciti_strict_object(r, json_array_get(value, i), FILE_FIELDS, "an object with name, bytes, xxh3",
                                        &manifest->files[i]));
        taciti_strict_leave(r, length);
    }
    return check_files(r, manifest);
}

static tacit_status read_format(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    (void)out;
    int64_t format = 0;
    TACITI_TRY(taciti_strict_integer(r, value, field, &format));
    if (format == TACITI_MANIFEST_FORMAT) return TACIT_OK;
    const tacit_status status = format > TACITI_MANIFEST_FORMAT ? TACIT_E_UNSUPPORTED : TACIT_E_DATA;
    return taciti_fail(status, "%s: format %" PRId64 " is not known to tacit %s, which reads format %d", r->file,
                       format, tacit_version(), (int)TACITI_MANIFEST_FORMAT);
}

static tacit_status read_meta(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                              void *out) {
    if (!json_is_object(value)) return taciti_strict_refuse(r, value, field->legal);
    char *text = json_dumps(value, JSON_COMPACT);
    char *copy = text == NULL ? NULL : taciti_strdup(text);
    free(text);
    *(char **)out = copy;
    return copy == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

/* Read in this order: the format says what the rest means, and files are compared with `tensors`. */
static const taciti_strict_field FIELDS[] = {
    {"format", true, read_format, 0, INTEGER},
    {"step", true, taciti_strict_integer, offsetof(taciti_manifest, step), INTEGER},
    {"world", true, taciti_strict_count, offsetof(taciti_manifest, world), 0, INT32_MAX,
     "an integer from 0 to 2147483647", NULL},
    {"tensors", true, taciti_strict_size, offsetof(taciti_manifest, tensors), INTEGER},
    {"files", true, read_files, 0, 0, 0, "a list of files", NULL},
    {"meta", true, read_meta, offsetof(taciti_manifest, meta_json), 0, 0, "an object", NULL},
    {0},
};

tacit_status taciti_manifest_parse(const char *path, const char *text, size_t bytes, taciti_manifest *out) {
    taciti_strict_reader reader = {.file = path, .status = TACIT_E_DATA, .open = true};
    taciti_manifest manifest = {0};
    json_t *body = NULL;
    TACITI_TRY(check_digest(path, text, bytes));
    TACITI_TRY(taciti_strict_parse(&reader, text, bytes, &body));
    const tacit_status status = taciti_strict_object(&reader, body, FIELDS, "an object", &manifest);
    json_decref(body);
    if (status == TACIT_OK)
        *out = manifest;
    else
        taciti_manifest_destroy(&manifest);
    return status;
}

tacit_status taciti_manifest_read(const char *folder, taciti_manifest *out) {
    char path[TACITI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, manifest_name));
    if (access(path, R_OK) != 0 && errno == EACCES) return taciti_file_fail("cannot be read", path);
    TACITI_TRY(taciti_file_read(path, MANIFEST_MAX_BYTES, &text, &bytes));
    const tacit_status status = taciti_manifest_parse(path, text, bytes, out);
    taciti_free(text);
    return status;
}

/* ---- against the files ------------------------------------------------------------------------------------------- */

static tacit_status verify_file(const char *folder, const taciti_manifest_file *file) {
    char path[TACITI_PATH_BYTES], digest[TACITI_DIGEST_BYTES];
    struct stat info;
    uint64_t bytes = 0;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, file->name));
    if (lstat(path, &info) != 0)
        return taciti_fail(errno == ENOENT ? TACIT_E_DATA : TACIT_E_IO, "%s: missing: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return taciti_fail(TACIT_E_DATA, "%s: is not a plain file", path);
    if ((uint64_t)info.st_size != file->bytes)
        return taciti_fail(TACIT_E_DATA, "%s: damaged: should have %" PRIu64 " bytes, has %" PRIu64, path, file->bytes,
                           (uint64_t)info.st_size);
    TACITI_TRY(taciti_digest_file(path, &bytes, digest));
    if (bytes != file->bytes || strcmp(digest, file->digest) != 0)
        return taciti_fail(TACIT_E_DATA, "%s: damaged: XXH3-128 should be %s, is %s", path, file->digest, digest);
    return TACIT_OK;
}

tacit_status taciti_manifest_verify(const char *folder, const taciti_manifest *manifest) {
    for (size_t i = 0; i < manifest->count; i++) TACITI_TRY(verify_file(folder, &manifest->files[i]));
    return TACIT_OK;
}

int taciti_manifest_complete(const char *folder, const taciti_manifest *manifest) {
    for (size_t i = 0; i < manifest->count; i++) {
        char path[TACITI_PATH_BYTES];
        struct stat info;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, manifest->files[i].name);
        if (length < 0 || (size_t)length >= sizeof path || lstat(path, &info) != 0) return 0;
        if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != manifest->files[i].bytes) return 0;
    }
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

/* Leaves room for millions of files and for any configuration; a larger manifest is not ours. */
enum { MANIFEST_MAX_BYTES = 256 << 20, PATH_BYTES = 4096 };

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
    char *text = body == NULL ? NULL : json_dumps(body, JSON_INDENT(1));
    json_decref(body);
    if (text == NULL) return taciti_fail(TACIT_E_MEMORY, "checkpoint: no memory for the manifest");
    *out = text;
    return TACIT_OK;
}

tacit_status taciti_manifest_format(const taciti_manifest *manifest, char **out, size_t *out_bytes) {
    char *body = NULL, digest[TACITI_DIGEST_BYTES];
    TACITI_TRY(body_text(manifest, &body));
    const size_t rest_bytes = strlen(body) - 1; /* without "{\n", with a final line feed */
    char *text = taciti_calloc(LINE_BYTES + rest_bytes + 1, 1);
    if (text != NULL) {
        memcpy(text + LINE_BYTES, body + 2, rest_bytes - 1);
        text[LINE_BYTES + rest_bytes - 1] = '\n';
        taciti_digest_block(text + LINE_BYTES, rest_bytes, digest);
        memcpy(text, line_begin, LINE_BEGIN_BYTES);
        memcpy(text + LINE_BEGIN_BYTES, digest, HEX_BYTES);
        memcpy(text + LINE_BEGIN_BYTES + HEX_BYTES, line_end, LINE_END_BYTES);
        *out = text;
        *out_bytes = LINE_BYTES + rest_bytes;
    }
    free(body);
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

/* Non-negative integer member `key` in [0, most]. */
static tacit_status read_integer(const char *path, const json_t *object, const char *key, int64_t max, int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > max)
        return taciti_fail(TACIT_E_DATA, "%s: \"%s\" must be an integer from 0 to %" PRId64, path, key, max);
    *out = json_integer_value(value);
    return TACIT_OK;
}

/* Plain names only: nothing that could leave the folder. */
static bool name_is_plain(const char *name) {
    static const char suffix[] = ".safetensors";
    const size_t bytes = strlen(name);
    if (bytes <= sizeof suffix - 1 || bytes >= TACITI_MANIFEST_NAME_BYTES || name[0] == '.') return false;
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != bytes) return false;
    return strcmp(name + bytes - (sizeof suffix - 1), suffix) == 0;
}

static tacit_status parse_file(const char *path, const json_t *value, taciti_manifest_file *out) {
    int64_t bytes = 0, tensors = 0;
    const char *name = json_string_value(json_object_get(value, "name"));
    const char *digest = json_string_value(json_object_get(value, "xxh3"));
    if (name == NULL || !name_is_plain(name))
        return taciti_fail(TACIT_E_DATA, "%s: \"%.80s\" is not a legal file name in a checkpoint", path,
                           name == NULL ? "" : name);
    if (digest == NULL || strlen(digest) != HEX_BYTES || strspn(digest, "0123456789abcdef") != HEX_BYTES)
        return taciti_fail(TACIT_E_DATA, "%s: %s: \"xxh3\" must be 32 hexadecimal digits", path, name);
    TACITI_TRY(read_integer(path, value, "bytes", INT64_MAX, &bytes));
    TACITI_TRY(read_integer(path, value, "tensors", INT32_MAX, &tensors));
    out->bytes = (uint64_t)bytes;
    out->tensors = (uint64_t)tensors;
    memcpy(out->name, name, strlen(name) + 1);
    memcpy(out->digest, digest, sizeof out->digest);
    return TACIT_OK;
}

static int by_name(const void *left, const void *right) {
    const taciti_manifest_file *a = left, *b = right;
    return strcmp(a->name, b->name);
}

static tacit_status parse_files(const char *path, const json_t *files, taciti_manifest *out) {
    const size_t count = json_array_size(files);
    uint64_t tensors = 0;
    if (!json_is_array(files)) return taciti_fail(TACIT_E_DATA, "%s: \"files\" must be an array", path);
    out->files = taciti_calloc(count, sizeof *out->files);
    if (out->files == NULL) return TACIT_E_MEMORY;
    out->count = count;
    for (size_t i = 0; i < count; i++) {
        TACITI_TRY(parse_file(path, json_array_get(files, i), &out->files[i]));
        tensors += out->files[i].tensors;
    }
    if (count > 1) qsort(out->files, count, sizeof *out->files, by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(out->files[i - 1].name, out->files[i].name) == 0)
            return taciti_fail(TACIT_E_DATA, "%s: %s is listed twice", path, out->files[i].name);
    if (tensors != out->tensors)
        return taciti_fail(TACIT_E_DATA, "%s: the files hold %" PRIu64 " tensors, not %" PRIu64, path, tensors,
                           out->tensors);
    return TACIT_OK;
}

static tacit_status parse_body(const char *path, const json_t *body, taciti_manifest *out) {
    int64_t format = 0, world = 0, tensors = 0;
    TACITI_TRY(read_integer(path, body, "format", INT32_MAX, &format));
    if (format != TACITI_MANIFEST_FORMAT)
        return taciti_fail(TACIT_E_DATA, "%s: format %" PRId64 " is not known to tacit %s, which reads format %d", path,
                           format, tacit_version(), (int)TACITI_MANIFEST_FORMAT);
    TACITI_TRY(read_integer(path, body, "step", INT64_MAX, &out->step));
    TACITI_TRY(read_integer(path, body, "world", INT32_MAX, &world));
    TACITI_TRY(read_integer(path, body, "tensors", INT64_MAX, &tensors));
    out->world = (int)world;
    out->tensors = (uint64_t)tensors;
    TACITI_TRY(parse_files(path, json_object_get(body, "files"), out));
    const json_t *meta = json_object_get(body, "meta");
    if (!json_is_object(meta)) return taciti_fail(TACIT_E_DATA, "%s: \"meta\" must be an object", path);
    char *text = json_dumps(meta, JSON_COMPACT);
    out->meta_json = text == NULL ? NULL : taciti_strdup(text);
    free(text);
    return out->meta_json == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

tacit_status taciti_manifest_parse(const char *path, const char *text, size_t bytes, taciti_manifest *out) {
    taciti_manifest manifest = {0};
    json_error_t error = {0};
    TACITI_TRY(check_digest(path, text, bytes));
    json_t *body = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (body == NULL)
        return taciti_fail(TACIT_E_DATA, "%s:%d:%d: not JSON: %s", path, error.line, error.column, error.text);
    const tacit_status status = parse_body(path, body, &manifest);
    json_decref(body);
    if (status == TACIT_OK)
        *out = manifest;
    else
        taciti_manifest_destroy(&manifest);
    return status;
}

tacit_status taciti_manifest_read(const char *folder, taciti_manifest *out) {
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, manifest_name));
    TACITI_TRY(taciti_file_read(path, MANIFEST_MAX_BYTES, &text, &bytes));
    const tacit_status status = taciti_manifest_parse(path, text, bytes, out);
    taciti_free(text);
    return status;
}

/* ---- against the files ------------------------------------------------------------------------------------------- */

static tacit_status verify_file(const char *folder, const taciti_manifest_file *file) {
    char path[PATH_BYTES], digest[TACITI_DIGEST_BYTES];
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
        char path[PATH_BYTES];
        struct stat info;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, manifest->files[i].name);
        if (length < 0 || (size_t)length >= sizeof path || lstat(path, &info) != 0) return 0;
        if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != manifest->files[i].bytes) return 0;
    }
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/formats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"

tacit_status taciti_formats_parent(const char *path, char out[TACITI_PATH_BYTES]) {
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - path);
    if (length >= TACITI_PATH_BYTES) return taciti_fail(TACIT_E_IO, "%s: the path is too long", path);
    memcpy(out, length > 0 ? path : slash != NULL ? "/" : ".", length > 0 ? length : 1);
    out[length > 0 ? length : 1] = 0;
    return TACIT_OK;
}

tacit_status taciti_formats_tensor(const taciti_layout *layout, const char *name, const taciti_tensor **out) {
    const size_t t = taciti_layout_find(layout, name);
    if (t == layout->tensor_count) return taciti_fail(TACIT_E_INTERNAL, "the model has no tensor %s", name);
    *out = &layout->tensors[t];
    return TACIT_OK;
}

tacit_status taciti_formats_temporary(const char *path, char out[TACITI_PATH_BYTES]) {
    const int length = snprintf(out, TACITI_PATH_BYTES, "%s.tmp", path);
    if (length > 0 && length < TACITI_PATH_BYTES) return TACIT_OK;
    return taciti_fail(TACIT_E_IO, "%s: the path is too long", path);
}

tacit_status taciti_formats_publish(const char *temporary, const char *path) {
    char parent[TACITI_PATH_BYTES];
    TACITI_TRY(taciti_formats_parent(path, parent));
    if (rename(temporary, path) != 0)
        return taciti_fail(TACIT_E_IO, "%s: cannot be renamed to %s: %s", temporary, path, strerror(errno));
    return taciti_file_sync_folder(parent);
}

tacit_status taciti_formats_refuse_existing(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s: exists already; remove it or choose another place", path);
}

tacit_status taciti_formats_refuse_pickle(const char *path) {
    return taciti_fail(TACIT_E_DATA,
                       "%s: is a pickle, which can run code and is never loaded; convert it where it comes from: "
                       "model.save_pretrained(FOLDER, safe_serialization=True)",
                       path);
}

tacit_status taciti_formats_resolve(const char *path, taciti_model_options *options) {
    if (taciti_model_resolve(options) == TACIT_OK) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "%s: describes a model that cannot be built", path);
}

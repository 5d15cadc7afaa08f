/* SPDX-License-Identifier: Apache-2.0
 *
 * A bootstrap store in a folder that all ranks see.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/bootstrap.h"

/* The mode tells every rank that one of them has made the folder, which may inherit its group. */
enum { PATH_BYTES = 4096, CREATE_TURNS = 100, MODE_BITS = 05777, MADE_MODE = 01700 };

typedef struct folder_store {
    char folder[PATH_BYTES];
} folder_store;

/* Writes the path of a key's file, or of the file of this process that will become it. */
static tacit_status format_path(const folder_store *store, const char *key, bool temporary, char out[PATH_BYTES]) {
    const int n = temporary ? snprintf(out, PATH_BYTES, "%s/.%s.%ld", store->folder, key, (long)getpid())
                            : snprintf(out, PATH_BYTES, "%s/%s", store->folder, key);
    if (n > 0 && n < PATH_BYTES) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "the path %s is too long", store->folder);
}

/* A rank that closes its store removes the folder if it is empty just then. */
static int create_file(const folder_store *store, const char *path) {
    for (int turn = 0;; turn++) {
        const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file >= 0 || errno != ENOENT || turn == CREATE_TURNS) return file;
        (void)mkdir(store->folder, MADE_MODE);
    }
}

static tacit_status write_file(const folder_store *store, const char *path, const void *bytes, size_t n) {
    const int file = create_file(store, path);
    if (file < 0) return taciti_file_fail("cannot create the file", path);
    const bool written = write(file, bytes, n) == (ssize_t)n;
    if (close(file) == 0 && written) return TACIT_OK;
    return taciti_file_fail("cannot write", path);
}

static tacit_status folder_set(void *self, const char *key, const void *bytes, size_t n) {
    char path[PATH_BYTES], temporary[PATH_BYTES];
    TACITI_TRY(format_path(self, key, false, path));
    TACITI_TRY(format_path(self, key, true, temporary));
    TACITI_TRY(write_file(self, temporary, bytes, n));
    return rename(temporary, path) == 0 ? TACIT_OK : taciti_file_fail("cannot rename", path);
}

/* E_PEER: there is no such file yet. */
static tacit_status read_file(const char *path, void *bytes, size_t max, size_t *n) {
    uint8_t text[TACITI_BOOTSTRAP_ROOM_BYTES + 1];
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) return TACIT_E_PEER;
    if (file < 0) return taciti_file_fail("cannot open", path);
    const ssize_t got = read(file, text, sizeof text);
    (void)close(file);
    if (got < 0) return taciti_file_fail("cannot read", path);
    if ((size_t)got > max || (size_t)got >= sizeof text)
        return taciti_fail(TACIT_E_DATA, "%s has more than %zu bytes", path, max);
    memcpy(bytes, text, (size_t)got);
    *n = (size_t)got;
    return TACIT_OK;
}

static tacit_status folder_get(void *self, const char *key, void *bytes, size_t max, size_t *n, double timeout_s) {
    char path[PATH_BYTES];
    TACITI_TRY(format_path(self, key, false, path));
    const int64_t begin_ns = taciti_now_ns(), end_ns = begin_ns + (int64_t)(timeout_s * 1e9);
    int64_t nap_ns = 0;
    tacit_status status;
    do {
        TACITI_TRY(taciti_interrupt_check(begin_ns));
        status = read_file(path, bytes, max, n);
    } while (status == TACIT_E_PEER && taciti_sleep_between_looks(end_ns, &nap_ns));
    if (status == TACIT_E_PEER) taciti_error_set("there is no %s", path);
    return status;
}

static void folder_forget(void *self, const char *key) {
    char path[PATH_BYTES];
    if (format_path(self, key, false, path) == TACIT_OK) (void)unlink(path);
}

tacit_status taciti_bootstrap_folder_open(const char *folder, taciti_bootstrap *out) {
    if (strlen(folder) >= PATH_BYTES) return taciti_fail(TACIT_E_CONFIG, "the path %s is too long", folder);
    if (mkdir(folder, MADE_MODE) != 0 && errno != EEXIST) return taciti_file_fail("cannot create the folder", folder);
    folder_store *store = taciti_calloc(1, sizeof *store);
    if (store == NULL) return TACIT_E_MEMORY;
    (void)snprintf(store->folder, sizeof store->folder, "%s", folder);
    *out = (taciti_bootstrap){.self = store, .set = folder_set, .get = folder_get, .forget = folder_forget};
    return TACIT_OK;
}

static bool is_made_here(const char *folder) {
    struct stat info;
    return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && (info.st_mode & MODE_BITS) == MADE_MODE;
}

void taciti_bootstrap_folder_close(taciti_bootstrap *bootstrap) {
    const folder_store *store = bootstrap->self;
    if (store != NULL && is_made_here(store->folder)) (void)rmdir(store->folder);
    taciti_free(bootstrap->self);
    bootstrap->self = NULL;
}

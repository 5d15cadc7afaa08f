/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

enum { TEMPORARY_TRIES = 1000, TEMPORARY_BYTES = TACITI_PATH_BYTES + 64, MODE_FILE = 0666, MODE_FOLDER = 0777 };

/* Linux moves at most 2 GiB per call. */
#define CALL_BYTES ((size_t)1 << 30)

tacit_status taciti_file_fail(const char *what, const char *path) {
    return taciti_fail(TACIT_E_IO, "%s: %s: %s", path, what, strerror(errno));
}

void taciti_file_allow(size_t count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
    limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- folders --------------------------------------------------------------------------------------------------- */

static tacit_status make_one_folder(const char *path) {
    if (mkdir(path, MODE_FOLDER) == 0) return TACIT_OK;
    const int reason = errno;
    struct stat status;
    if (stat(path, &status) == 0) {
        if (S_ISDIR(status.st_mode)) return TACIT_OK;
        return taciti_fail(TACIT_E_IO, "%s: is a file where a folder is needed; name another folder", path);
    }
    if (lstat(path, &status) == 0)
        return taciti_fail(TACIT_E_IO, "%s: is a link to something that does not exist; remove it or make its target",
                           path);
    errno = reason;
    return taciti_file_fail("cannot create the folder", path);
}

tacit_status taciti_file_make_folder(const char *path) {
    char *partial = taciti_strdup(path);
    if (partial == NULL) return TACIT_E_MEMORY;
    tacit_status status = TACIT_OK;
    for (char *slash = partial; status == TACIT_OK && *slash != '\0';) {
        slash += strspn(slash, "/");
        slash += strcspn(slash, "/");
        const char end = *slash;
        *slash = '\0';
        status = make_one_folder(partial);
        *slash = end;
    }
    if (*path == '\0') status = taciti_fail(TACIT_E_IO, "cannot create a folder with an empty name");
    taciti_free(partial);
    return status;
}

tacit_status taciti_file_sync_folder(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return taciti_file_fail("cannot open the folder", path);
    /* Some network file systems cannot sync a folder and say EINVAL; they make renames durable themselves. */
    const int failed = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP;
    const tacit_status status = failed ? taciti_file_fail("cannot sync the folder", path) : TACIT_OK;
    (void)close(fd);
    return status;
}

tacit_status taciti_path_parent(const char *path, char out[TACITI_PATH_BYTES]) {
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - path);
    if (length >= TACITI_PATH_BYTES) return taciti_fail(TACIT_E_IO, "%s: the path is too long", path);
    memcpy(out, length > 0 ? path : slash != NULL ? "/" : ".", length > 0 ? length : 1);
    out[length > 0 ? length : 1] = '\0';
    return TACIT_OK;
}

tacit_status taciti_file_sync_parent(const char *path) {
    char parent[TACITI_PATH_BYTES];
    TACITI_TRY(taciti_path_parent(path, parent));
    return taciti_file_sync_folder(parent);
}

static tacit_status remove_below(int folder, const char *path);

static tacit_status remove_entry(int folder, const char *name, const char *path) {
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT || errno == ENOTDIR) return TACIT_OK; /* none is there */
    if (errno != EISDIR && errno != EPERM) return taciti_file_fail("cannot remove", path);
    const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return taciti_file_fail("cannot remove", path);
    TACITI_TRY(remove_below(fd, path));
    if (unlinkat(folder, name, AT_REMOVEDIR) != 0 && errno != ENOENT) return taciti_file_fail("cannot remove", path);
    return TACIT_OK;
}

/* Takes the descriptor of the folder. */
static tacit_status remove_below(int folder, const char *path) {
    DIR *entries = fdopendir(folder);
    if (entries == NULL) {
        (void)close(folder);
        return taciti_file_fail("cannot list", path);
    }
    tacit_status status = TACIT_OK;
    for (const struct dirent *entry; status == TACIT_OK && (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char below[PATH_MAX];
        status = taciti_path_join(below, sizeof below, path, entry->d_name);
        if (status == TACIT_OK) status = remove_entry(dirfd(entries), entry->d_name, below);
    }
    (void)closedir(entries);
    return status;
}

tacit_status taciti_file_remove(const char *path) { return remove_entry(AT_FDCWD, path, path); }

bool taciti_file_lies_in(const char *path, const char *folder) {
    char *inner = realpath(path, NULL), *outer = realpath(folder, NULL);
    const size_t length = outer == NULL ? 0 : strlen(outer);
    const bool lies = inner != NULL && outer != NULL && strncmp(inner, outer, length) == 0 &&
                      (inner[length] == '\0' || inner[length] == '/');
    free(inner);
    free(outer);
    return lies;
}

tacit_status taciti_path_copy(char *out, size_t size, const char *path) {
    if (strlen(path) >= size) return taciti_fail(TACIT_E_IO, "%s: the path is too long", path);
    memcpy(out, path, strlen(path) + 1);
    return TACIT_OK;
}

tacit_status taciti_path_join(char *joined, size_t size, const char *a, const char *b) {
    const size_t length = strlen(a);
    const char *between = length == 0 || a[length - 1] == '/' ? "" : "/";
    const int written = snprintf(joined, size, "%s%s%s", a, between, b);
    if (written < 0 || (size_t)written >= size) return taciti_fail(TACIT_E_IO, "%s/%s: the path is too long", a, b);
    return TACIT_OK;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* A new file beside `path`; the name is never one that exists, so that ranks of several hosts may write one folder. */
static int create_temporary(const char *path, char name[TEMPORARY_BYTES]) {
    for (int i = 0; i < TEMPORARY_TRIES; i++) {
        (void)snprintf(name, TEMPORARY_BYTES, "%s.tmp.%ld.%d", path, (long)getpid(), i);
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, MODE_FILE);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

bool taciti_file_put(int fd, const void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        const size_t left = count - done;
        const ssize_t n = write(fd, (const char *)bytes + done, left < CALL_BYTES ? left : CALL_BYTES);
        if (n < 0 && errno != EINTR) return false;
        if (n > 0) done += (size_t)n;
    }
    return true;
}

/* A new file replaces nothing, or a plain file, which may be the one that a link leads to. */
static tacit_status find_target(const char *path, char out[PATH_MAX]) {
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return taciti_fail(TACIT_E_IO, "%s: is %s; name another file", path,
                           S_ISDIR(info.st_mode) ? "a folder" : "not a plain file");
    return realpath(path, out) != NULL ? TACIT_OK : taciti_path_copy(out, PATH_MAX, path);
}

tacit_status taciti_file_write(const char *path, const void *bytes, size_t count) {
    char name[TEMPORARY_BYTES], target[PATH_MAX];
    TACITI_TRY(find_target(path, target));
    const int fd = create_temporary(target, name);
    if (fd < 0) return taciti_file_fail("cannot create the file", path);
    const bool wrong = !taciti_file_put(fd, bytes, count) || fsync(fd) != 0;
    tacit_status status = wrong ? taciti_file_fail("cannot write", path) : TACIT_OK;
    if (close(fd) != 0 && !wrong) status = taciti_file_fail("cannot write", path);
    if (status == TACIT_OK && rename(name, target) != 0) status = taciti_file_fail("cannot replace the file", path);
    if (status == TACIT_OK) return taciti_file_sync_parent(target);
    (void)unlink(name);
    return status;
}

tacit_status taciti_file_check_writable(const char *path) {
    char name[TEMPORARY_BYTES], target[PATH_MAX];
    TACITI_TRY(find_target(path, target));
    const int fd = create_temporary(target, name);
    if (fd < 0) return taciti_file_fail("cannot create the file", path);
    (void)unlink(name);
    (void)close(fd);
    return TACIT_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

tacit_status taciti_file_refuse(const char *path) {
    const int reason = errno;
    const bool no_such_input =
        reason == ENOENT || reason == ENOTDIR || reason == ELOOP || reason == ENAMETOOLONG || reason == EACCES;
    return taciti_fail(no_such_input ? TACIT_E_DATA : TACIT_E_IO, "%s: cannot open: %s", path, strerror(reason));
}

bool taciti_file_is_plain(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, R_OK) == 0;
}

bool taciti_file_exists_in(const char *folder, const char *name) {
    char path[TACITI_PATH_BYTES];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

/* Reads up to `count` bytes at `offset`; fewer only at the end of the file. -1 on failure. */
static ssize_t read_at(int fd, size_t offset, size_t count, char *out) {
    size_t got = 0;
    while (got < count) {
        const size_t want = count - got < CALL_BYTES ? count - got : CALL_BYTES;
        const ssize_t n = pread(fd, out + got, want, (off_t)(offset + got));
        if (n < 0 && errno != EINTR) return -1;
        if (n == 0) break;
        if (n > 0) got += (size_t)n;
    }
    return (ssize_t)got;
}

static int64_t write_time_ns(const struct stat *info) {
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

/* A regular file. Non-blocking, so that a pipe without a writer is refused and not waited for. */
tacit_status taciti_view_open(const char *path, taciti_view *out) {
    struct stat info = {.st_size = 0};
    taciti_view view = {.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    tacit_status status = TACIT_OK;
    if (view.fd < 0) return taciti_file_refuse(path);
    if (fstat(view.fd, &info) != 0)
        status = taciti_file_fail("cannot open", path);
    else if (!S_ISREG(info.st_mode))
        status = taciti_fail(TACIT_E_DATA, "%s: is %s, not a regular file", path,
                             S_ISDIR(info.st_mode) ? "a folder" : "a pipe or device");
    view.bytes = (size_t)info.st_size;
    view.written_ns = write_time_ns(&info);
    if (status == TACIT_OK && (view.path = taciti_strdup(path)) == NULL) status = TACIT_E_MEMORY;
    if (status == TACIT_OK)
        *out = view;
    else
        taciti_view_close(&view);
    return status;
}

void taciti_view_close(taciti_view *view) {
    if (view->fd >= 0) (void)close(view->fd);
    taciti_free(view->path);
    *view = (taciti_view){.fd = -1};
}

tacit_status taciti_file_read(const char *path, size_t limit, char **out, size_t *out_count) {
    taciti_view view;
    TACITI_TRY(taciti_view_open(path, &view));
    const size_t bytes = view.bytes;
    tacit_status status = TACIT_OK;
    if (bytes > limit)
        status = taciti_fail(TACIT_E_DATA, "%s: has %zu bytes, at most %zu are expected here", path, bytes, limit);
    char *block = status == TACIT_OK ? taciti_calloc(bytes + 1, 1) : NULL;
    const ssize_t got = block == NULL ? 0 : read_at(view.fd, 0, bytes, block);
    if (status == TACIT_OK && block == NULL) status = TACIT_E_MEMORY;
    if (got < 0) status = taciti_file_fail("cannot read", path);
    taciti_view_close(&view);
    if (status != TACIT_OK) {
        taciti_free(block);
        return status;
    }
    block[got] = '\0';
    *out = block;
    if (out_count != NULL) *out_count = (size_t)got;
    return TACIT_OK;
}

tacit_status taciti_view_check(const taciti_view *view) {
    struct stat info;
    if (fstat(view->fd, &info) != 0) return taciti_file_fail("cannot be looked at", view->path);
    if ((size_t)info.st_size == view->bytes && write_time_ns(&info) == view->written_ns) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "%s: was written to while it was in use (%zu bytes before, %zu now)", view->path,
                       view->bytes, (size_t)info.st_size);
}

tacit_status taciti_view_read(const taciti_view *view, size_t offset, size_t count, void *out) {
    if (offset > view->bytes || count > view->bytes - offset)
        return taciti_fail(TACIT_E_DATA, "%s: %zu bytes at offset %zu reach beyond its end at %zu", view->path, count,
                           offset, view->bytes);
    const ssize_t got = read_at(view->fd, offset, count, out);
    if (got < 0) return taciti_file_fail("cannot read", view->path);
    if ((size_t)got < count)
        return taciti_fail(TACIT_E_DATA, "%s: has shrunk from %zu to %zu bytes while it was read", view->path,
                           view->bytes, offset + (size_t)got);
    return TACIT_OK;
}

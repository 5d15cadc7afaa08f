/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* locks that belong to an open file */
#include "ckpt/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"

enum { TRIES = 100, HOST_BYTES = 64, TEXT_BYTES = 256 };

/* Contents of the file: "host pid start\n". The start is the process's, in ticks since the machine's, so that another
 * process of the same number is told apart. pid 0: nobody. */
typedef struct owner {
    char host[HOST_BYTES];
    long pid;
    unsigned long long start;
} owner;

/* ---- owners ------------------------------------------------------------------------------------------------------ */

/* 0: there is no such process, or it only waits for its parent to take note of its end. */
static unsigned long long start_of(long pid) {
    char line[TACITI_PROCESS_BYTES];
    const char *state = taciti_process_field(pid, TACITI_PROCESS_STATE, line);
    if (state == NULL || *state == 'Z') return 0;
    const char *start = taciti_process_field(pid, TACITI_PROCESS_START, line);
    return start == NULL ? 0 : strtoull(start, NULL, 10);
}

static owner this_process(void) {
    owner me = {.pid = (long)getpid()};
    (void)gethostname(me.host, sizeof me.host - 1);
    me.start = start_of(me.pid);
    return me;
}

static owner read_owner(int fd) {
    char text[TEXT_BYTES] = "";
    owner found = {.pid = 0};
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0 || sscanf(text, "%63s %ld %llu", found.host, &found.pid, &found.start) != 3 || found.pid < 1)
        return (owner){.host = "?"};
    return found;
}

static tacit_status write_owner(const char *path, int fd) {
    const owner me = this_process();
    char text[TEXT_BYTES];
    const int length = snprintf(text, sizeof text, "%s %ld %llu\n", me.host, me.pid, me.start);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length || fsync(fd) != 0)
        return taciti_fail(TACIT_E_IO, "%s: cannot write: %s", path, strerror(errno));
    return TACIT_OK;
}

/* Known to have ended: this host has no such process any more. */
static bool is_gone(const owner *who) {
    const owner me = this_process();
    return who->pid > 0 && strcmp(who->host, me.host) == 0 && start_of(who->pid) != who->start;
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

static int lock_open_file(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) == 0) return 0;
    return errno == EACCES ? EAGAIN : errno;
}

/* Whoever ends removes the file: what was locked may not be what the name stands for any more. */
static bool is_still(int fd, const char *path) {
    struct stat held, named;
    return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

static tacit_status refuse_folder(const char *folder, const char *option, const char *path, const owner *who,
                                  bool kernel) {
    if (kernel)
        return taciti_fail(TACIT_E_CONFIG,
                           "%s: another run works in this folder (host %s, pid %ld); wait for its end, or use another "
                           "--%s",
                           folder, who->host, who->pid, option);
    return taciti_fail(TACIT_E_CONFIG,
                       "%s: another run works in this folder (host %s, pid %ld); use another --%s, or, if that "
                       "process has ended: rm %s",
                       folder, who->host, who->pid, option, path);
}

/* Returns PENDING if the file changed hands meanwhile, to be tried again. */
static tacit_status claim_lock(const char *folder, const char *option, const char *path, taciti_lock_call *call,
                               int file, bool created) {
    const int error = call(file);
    const bool kernel = error == 0 || error == EAGAIN;
    const owner before = read_owner(file);
    if (!is_still(file, path)) return TACIT_PENDING;
    if (error == EAGAIN || (!kernel && !created && !is_gone(&before)))
        return refuse_folder(folder, option, path, &before, kernel);
    if (before.pid > 0)
        taciti_log(TACITI_LOG_WARN,
                   "%s: the run of host %s, pid %ld ended without cleaning up; its folder is taken over", folder,
                   before.host, before.pid);
    if (kernel || created) return write_owner(path, file);
    (void)unlink(path); /* its next maker owns it */
    return TACIT_PENDING;
}

static tacit_status try_lock(const char *folder, const char *option, const char *path, taciti_lock_call *call,
                             int *fd) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    const bool created = file >= 0;
    if (!created && errno == EEXIST) file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 && errno == ENOENT) return TACIT_PENDING;
    if (file < 0) return taciti_fail(TACIT_E_IO, "%s: cannot be created: %s", path, strerror(errno));
    const tacit_status status = claim_lock(folder, option, path, call, file, created);
    if (status == TACIT_OK)
        *fd = file;
    else
        (void)close(file);
    return status;
}

tacit_status taciti_lock_take(const char *folder, const char *option, taciti_lock_call *call, taciti_lock *out) {
    char path[TACITI_PATH_BYTES];
    taciti_lock lock = {.fd = -1, .made = access(folder, F_OK) != 0};
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, "lock"));
    TACITI_TRY(taciti_file_make_folder(folder));
    tacit_status status = TACIT_PENDING;
    for (int i = 0; i < TRIES && status == TACIT_PENDING; i++)
        status = try_lock(folder, option, path, call == NULL ? lock_open_file : call, &lock.fd);
    if (status == TACIT_PENDING) return taciti_fail(TACIT_E_IO, "%s: changes hands all the time", path);
    TACITI_TRY(status);
    lock.path = taciti_strdup(path);
    if (lock.path == NULL) {
        (void)close(lock.fd);
        return TACIT_E_MEMORY;
    }
    *out = lock;
    return TACIT_OK;
}

void taciti_lock_release(taciti_lock *lock) {
    if (lock->fd >= 0) {
        (void)unlink(lock->path);
        (void)close(lock->fd);
    }
    if (lock->fd >= 0 && lock->made) {
        *strrchr(lock->path, '/') = '\0';
        (void)rmdir(lock->path); /* refused by the system when something was written there */
    }
    taciti_free(lock->path);
    *lock = (taciti_lock){.fd = -1};
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "report/appender.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

tacit_status taciti_appender_open(const char *path, taciti_appender *out) {
    taciti_appender appender = {.fd = -1};
    if (strlen(path) >= sizeof appender.path)
        return taciti_fail(TACIT_E_IO, "%.64s...: the path is longer than %zu bytes", path, sizeof appender.path - 1);
    memcpy(appender.path, path, strlen(path) + 1);
    appender.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    struct stat status;
    if (appender.fd < 0 || fstat(appender.fd, &status) != 0) {
        const int reason = errno;
        taciti_appender_close(&appender);
        return taciti_fail(TACIT_E_IO, "%s: cannot open it for appending: %s", path, strerror(reason));
    }
    appender.size_bytes = status.st_size;
    *out = appender;
    return TACIT_OK;
}

tacit_status taciti_appender_put(taciti_appender *appender, const void *record, size_t count) {
    ssize_t written = 0;
    do written = write(appender->fd, record, count);
    while (written < 0 && errno == EINTR);
    if (written >= 0 && (size_t)written == count) {
        appender->size_bytes += written;
        return TACIT_OK;
    }
    const int reason = written < 0 ? errno : ENOSPC;
    /* A regular file takes part of a record only when the disk is full or a limit is reached: take it back. */
    const char *left = written > 0 && ftruncate(appender->fd, appender->size_bytes) != 0 ? "; a torn end remains" : "";
    return taciti_fail(TACIT_E_IO, "%s: cannot append %zu bytes: %s%s", appender->path, count, strerror(reason), left);
}

void taciti_appender_close(taciti_appender *appender) {
    if (appender->fd >= 0) close(appender->fd);
    appender->fd = -1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The run folder: writable, large enough, and how long it takes until bytes are safe there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/doctor.h"

enum { TMPFS = 0x01021994 }; /* as in the kernel's magic.h, which not every system installs */

/* The folder itself, or the nearest one above it that exists: there it will be created. */
static bool existing_folder(const char *folder, char out[PATH_MAX]) {
    struct stat status;
    if (snprintf(out, PATH_MAX, "%s", *folder == '\0' ? "." : folder) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    while (stat(out, &status) != 0) {
        char *slash = strrchr(out, '/');
        if (errno != ENOENT || strcmp(out, ".") == 0 || strcmp(out, "/") == 0) return false;
        if (slash == NULL)
            (void)snprintf(out, PATH_MAX, ".");
        else if (slash == out)
            out[1] = '\0';
        else
            *slash = '\0';
    }
    errno = ENOTDIR; /* if it is not one */
    return S_ISDIR(status.st_mode);
}

/* Seconds to write `bytes` and fsync them, or a negative errno. The file has no name left while it is written. */
static double sync_seconds(const char *folder, size_t bytes) {
    char path[PATH_MAX];
    static char block[1 << 16];
    if (snprintf(path, sizeof path, "%s/.tacit-doctor-XXXXXX", folder) >= (int)sizeof path) return -ENAMETOOLONG;
    const int fd = mkstemp(path);
    if (fd < 0) return -errno;
    (void)unlink(path);
    memset(block, 0x5a, sizeof block); /* zeros might never reach the disk */
    const int64_t begin = taciti_now_ns();
    double result = 0;
    for (size_t done = 0; result >= 0 && done < bytes; done += sizeof block)
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block) result = errno == 0 ? -ENOSPC : -errno;
    if (result >= 0 && fsync(fd) != 0) result = -errno;
    if (result >= 0) result = (double)(taciti_now_ns() - begin) / (double)TACITI_NS_PER_S;
    (void)close(fd);
    return result;
}

static void check_speed(taciti_diagnosis *diagnosis, const char *folder) {
    enum { MIB = 4 };
    const double seconds = sync_seconds(folder, (size_t)MIB << 20);
    if (seconds < 0) {
        taciti_finding_advise(
            taciti_diagnosis_add(diagnosis, "disk", "%s: cannot write: %s", folder, strerror((int)-seconds)),
            TACITI_SEVERITY_FAIL, "choose another folder with --dir, or mend its permissions");
        return;
    }
    taciti_finding *finding =
        taciti_diagnosis_add(diagnosis, "disk", "%d MiB written and synced in %.3g ms", MIB, seconds * 1e3);
    if (seconds < 2) return;
    taciti_finding_advise(finding, TACITI_SEVERITY_WARN,
                          "checkpoints will be slow here; a local disk as --run.dir is quicker");
}

void taciti_check_disk(taciti_diagnosis *diagnosis, const char *folder) {
    char existing[PATH_MAX];
    struct statfs status;
    if (!existing_folder(folder, existing) || statfs(existing, &status) != 0) {
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "disk", "%.200s: cannot be a folder: %s", folder,
                                                   errno == ENOTDIR ? "a file is in the way" : strerror(errno)),
                              TACITI_SEVERITY_FAIL, "choose another folder with --dir");
        return;
    }
    const double free_bytes = (double)status.f_bavail * (double)status.f_frsize;
    taciti_finding *finding =
        taciti_diagnosis_add(diagnosis, "disk", "%.200s: %.3g GiB free", existing, free_bytes / 0x1p30);
    if (status.f_type == TMPFS)
        taciti_finding_advise(finding, TACITI_SEVERITY_WARN, "this is memory: checkpoints die with the machine");
    if (free_bytes < 0x1p30) {
        taciti_finding_advise(finding, TACITI_SEVERITY_WARN,
                              "less than 1 GiB; two checkpoints take about 24 bytes per parameter");
    }
    check_speed(diagnosis, existing);
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/control_group.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/system.h"
#include "base/text.h"

static const double NO_LIMIT = (double)INFINITY;

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Returns the path in a line of the list, "4:cpu,cpuacct:/path" or, in version 2, "0::/path", if it is that of the
 * controller; NULL otherwise. */
static const char *path_of(char *line, const char *controller) {
    char *names = strchr(line, ':'), *path = names == NULL ? NULL : strchr(names + 1, ':'), *rest = NULL;
    if (path == NULL) return NULL;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (names[1] == '\0') return *controller == '\0' ? path : NULL;
    for (char *name = strtok_r(names + 1, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, controller) == 0) return path;
    return NULL;
}

/* Finds the folder of the process's own group; controller "": of version 2. *mount: the length of the part of it that
 * is the mount. */
static bool find_folder(const taciti_group_files *files, const char *controller, char folder[TACITI_PATH_BYTES],
                        size_t *mount) {
    char line[TACITI_PATH_BYTES];
    const char *path = NULL;
    FILE *list = fopen(files->list, "r");
    while (list != NULL && path == NULL && fgets(line, sizeof line, list) != NULL) path = path_of(line, controller);
    if (list != NULL) (void)fclose(list);
    if (path == NULL) return false;
    *mount = strlen(files->mount) + (*controller == '\0' ? 0 : 1) + strlen(controller);
    return snprintf(folder, TACITI_PATH_BYTES, "%s%s%s%s", files->mount, *controller == '\0' ? "" : "/", controller,
                    path) < TACITI_PATH_BYTES;
}

/* Returns the minimal value of the groups. value: of the group in a folder; NO_LIMIT: there is none. */
static double find_min(const taciti_group_files *files, const char *controller, double (*value)(const char *folder)) {
    char folder[TACITI_PATH_BYTES];
    size_t mount = 0;
    double min = NO_LIMIT;
    if (!find_folder(files, controller, folder, &mount)) return min;
    for (char *end = folder + strlen(folder); end != NULL; end = strrchr(folder + mount, '/')) {
        *end = '\0';
        min = fmin(min, value(folder));
    }
    return min;
}

static bool join_path(char path[TACITI_PATH_BYTES], const char *folder, const char *name) {
    return snprintf(path, TACITI_PATH_BYTES, "%s/%s", folder, name) < TACITI_PATH_BYTES;
}

static bool read_number(const char *folder, const char *name, double *out) {
    char path[TACITI_PATH_BYTES];
    return join_path(path, folder, name) && taciti_system_number(path, out);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static double read_limit(const char *folder, const char *name) {
    double limit = 0;
    return read_number(folder, name, &limit) ? limit : NO_LIMIT;
}

static double read_left(const char *folder, const char *limit_name, const char *used_name, const char *cache_key) {
    char path[TACITI_PATH_BYTES];
    double used = 0;
    uint64_t cache = 0;
    if (!read_number(folder, used_name, &used)) return NO_LIMIT;
    if (join_path(path, folder, "memory.stat")) (void)taciti_system_field(path, cache_key, &cache);
    return fmax(read_limit(folder, limit_name) - fmax(used - (double)cache, 0), 0);
}

static double read_limit_v1(const char *folder) { return read_limit(folder, "memory.limit_in_bytes"); }

static double read_limit_v2(const char *folder) { return read_limit(folder, "memory.max"); }

static double read_left_v1(const char *folder) {
    return read_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ");
}

static double read_left_v2(const char *folder) {
    return read_left(folder, "memory.max", "memory.current", "inactive_file ");
}

double taciti_group_memory(const taciti_group_files *files) {
    return fmin(find_min(files, "", read_limit_v2), find_min(files, "memory", read_limit_v1));
}

double taciti_group_memory_left(const taciti_group_files *files) {
    return fmin(find_min(files, "", read_left_v2), find_min(files, "memory", read_left_v1));
}

/* ---- cores ------------------------------------------------------------------------------------------------------- */

static double divide_quota(double quota, double period) { return quota > 0 && period > 0 ? quota / period : NO_LIMIT; }

static double read_cores_v1(const char *folder) {
    double quota = 0, period = 0; /* a quota of -1: no limit */
    const bool found =
        read_number(folder, "cpu.cfs_quota_us", &quota) && read_number(folder, "cpu.cfs_period_us", &period);
    return found ? divide_quota(quota, period) : NO_LIMIT;
}

/* "50000 100000", or "max 100000". */
static double read_cores_v2(const char *folder) {
    char path[TACITI_PATH_BYTES], line[64], *blank = NULL;
    double quota = 0, period = 0;
    if (!join_path(path, folder, "cpu.max") || !taciti_system_line(path, line, sizeof line) ||
        (blank = strchr(line, ' ')) == NULL)
        return NO_LIMIT;
    *blank = '\0';
    return taciti_real_parse(line, &quota) && taciti_real_parse(blank + 1, &period) ? divide_quota(quota, period)
                                                                                    : NO_LIMIT;
}

double taciti_group_cores(const taciti_group_files *files) {
    return fmin(find_min(files, "", read_cores_v2), find_min(files, "cpu", read_cores_v1));
}

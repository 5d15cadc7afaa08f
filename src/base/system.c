/* SPDX-License-Identifier: Apache-2.0 */
#include "base/system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

bool taciti_system_line(const char *path, char *out, size_t size) {
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    const bool found = fgets(out, (int)size, file) != NULL;
    (void)fclose(file);
    if (found) out[strcspn(out, "\n")] = '\0';
    return found;
}

bool taciti_system_number(const char *path, double *out) {
    char line[64];
    return taciti_system_line(path, line, sizeof line) && taciti_real_parse(line, out);
}

bool taciti_system_field(const char *path, const char *key, uint64_t *out) {
    char line[256];
    bool found = false;
    const size_t length = strlen(key);
    FILE *file = fopen(path, "r");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, length) != 0) continue;
        char *end = NULL;
        *out = strtoull(line + length, &end, 10);
        found = end != line + length;
    }
    if (file != NULL) (void)fclose(file);
    return found;
}

double taciti_meminfo_bytes(const char *path, const char *key) {
    char label[64];
    uint64_t kib = 0;
    (void)snprintf(label, sizeof label, "%s:", key);
    return taciti_system_field(path, label, &kib) ? (double)kib * 1024 : 0;
}

const char *taciti_process_field(long pid, int field, char line[TACITI_PROCESS_BYTES]) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return NULL;
    const size_t n = fread(line, 1, TACITI_PROCESS_BYTES - 1, file);
    (void)fclose(file);
    line[n] = 0;
    /* Field 2, the name in parentheses, may hold anything. */
    const char *at = strrchr(line, ')');
    for (int i = 2; at != NULL && i < field; i++) at = strchr(at + 1, ' ');
    return at == NULL ? NULL : at + 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/system.h"

#include <stdio.h>
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

double taciti_meminfo_bytes(const char *path, const char *key) {
    char line[128];
    double found = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long kib = 0;
        const size_t length = strlen(key);
        if (strncmp(line, key, length) == 0 && line[length] == ':' && sscanf(line + length + 1, "%llu", &kib) == 1)
            found = (double)kib * 1024;
    }
    (void)fclose(file);
    return found;
}

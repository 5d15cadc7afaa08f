/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include <stdio.h>
#include <string.h>

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

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "bench/machine_block.h"
#include "base/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"
#include "kernel/kernel.h"

#if defined(__clang__)
#define COMPILER ""
#else
#define COMPILER "gcc "
#endif

static void read_cpu(char *out, size_t bytes) {
    (void)snprintf(out, bytes, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) return;
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(out, bytes, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    (void)fclose(file);
}

static bool read_cache(int index, const char *what, char *out, size_t bytes) {
    char path[96];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
    return taciti_system_line(path, out, bytes);
}

static void read_caches(char *out, size_t bytes) {
    size_t used = 0;
    (void)snprintf(out, bytes, "unknown");
    for (int i = 0; i < 8 && used < bytes; i++) {
        char level[8], type[32], size[32];
        if (!read_cache(i, "level", level, sizeof level)) return;
        if (!read_cache(i, "type", type, sizeof type) || strcmp(type, "Instruction") == 0) continue;
        if (!read_cache(i, "size", size, sizeof size)) continue;
        const int wrote = snprintf(out + used, bytes - used, "%sL%s%s %sB", used > 0 ? ", " : "", level,
                                   strcmp(type, "Data") == 0 ? "d" : "", size);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}

/* The file lists all choices and marks the active one: "always [madvise] never". */
static void read_huge_pages(char *out, size_t bytes) {
    char line[96];
    (void)snprintf(out, bytes, "unknown");
    if (!taciti_system_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line)) return;
    const char *begin = strchr(line, '[');
    if (begin != NULL) (void)snprintf(out, bytes, "%.*s", (int)strcspn(begin + 1, "]"), begin + 1);
}

void taciti_machine_read(taciti_machine *out) {
    *out = (taciti_machine){.isa = taciti_kernels_get()->isa, .cores = taciti_usable_cores(), .load = -1};
    read_cpu(out->cpu, sizeof out->cpu);
    read_caches(out->caches, sizeof out->caches);
    read_huge_pages(out->huge_pages, sizeof out->huge_pages);
    struct utsname system;
    (void)snprintf(out->kernel, sizeof out->kernel, "unknown");
    if (uname(&system) == 0)
        (void)snprintf(out->kernel, sizeof out->kernel, "%.32s %.96s %.32s", system.sysname, system.release,
                       system.machine);
    (void)snprintf(out->compiler, sizeof out->compiler, COMPILER "%s", __VERSION__);
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0) out->memory_bytes = (size_t)pages * (size_t)page_bytes;
    double load = 0;
    if (getloadavg(&load, 1) == 1) out->load = load;
}

tacit_status taciti_machine_has_room(const char *flag, double bytes) {
    const double there = (double)taciti_available_bytes();
    if (there <= 0 || bytes <= 0.9 * there) return TACIT_OK;
    return taciti_fail(
        TACIT_E_MEMORY,
        "%s: that needs %.1f GiB of memory, and %.1f are free, of which a tenth is left alone: give a smaller one",
        flag, bytes / 0x1p30, there / 0x1p30);
}

void taciti_machine_print(const taciti_machine *m) {
    printf("cpu         %s, %d cores, kernels: %s\n", m->cpu, m->cores, m->isa);
    printf("caches      %s\n", m->caches);
    printf("memory      %.1f GiB, transparent huge pages: %s\n", (double)m->memory_bytes / 0x1p30, m->huge_pages);
    printf("system      %s, load %.2f\n", m->kernel, m->load);
    printf("compiler    %s\n", m->compiler);
}

json_t *taciti_machine_json(const taciti_machine *m) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:f}", "cpu", m->cpu, "caches", m->caches, "system",
                     m->kernel, "compiler", m->compiler, "huge_pages", m->huge_pages, "isa", m->isa, "memory_bytes",
                     (json_int_t)m->memory_bytes, "cores", m->cores, "load", m->load);
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/control_group.h"
#include "base/log.h"
#include "base/system.h"

#define HUGE_BYTES ((size_t)2 << 20)

/* Says what to type if the address space is limited, which may be why memory was refused; else "". */
static const char *limit_advice(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
    return "; the address space is limited (RLIMIT_AS: prlimit --as, ulimit -v): ulimit -v unlimited, for large arrays "
           "are reserved before they are used";
}

void *taciti_calloc(size_t count, size_t size) {
    if (size != 0 && count > (SIZE_MAX - TACITI_ALIGN_BYTES) / size) {
        (void)taciti_fail(TACIT_E_MEMORY, "out of memory: %zu items of %zu bytes overflow the address space", count,
                          size);
        return NULL;
    }
    const size_t bytes = taciti_round_up(count * size + (count * size == 0), TACITI_ALIGN_BYTES);
    void *block = aligned_alloc(TACITI_ALIGN_BYTES, bytes);
    if (block == NULL) {
        (void)taciti_fail(TACIT_E_MEMORY, "out of memory: %zu bytes asked for%s", bytes, limit_advice());
        return NULL;
    }
    return memset(block, 0, bytes);
}

void taciti_free(void *block) { free(block); }

void *taciti_with_room(void *block, size_t count, size_t size) {
    if (count > 0 && (count & (count - 1)) != 0) return block;
    void *larger = taciti_calloc(count == 0 ? 1 : 2 * count, size);
    if (larger == NULL) return NULL;
    if (count > 0) memcpy(larger, block, count * size);
    taciti_free(block);
    return larger;
}

void *taciti_reserve(void *block, size_t count, size_t more, size_t size, size_t *room) {
    const size_t needed = count + more, larger_room = needed + needed / 2 + 8;
    if (block != NULL && needed <= *room) return block;
    void *larger = taciti_calloc(larger_room, size);
    if (larger == NULL) return NULL;
    if (count > 0) memcpy(larger, block, count * size);
    taciti_free(block);
    *room = larger_room;
    return larger;
}

char *taciti_strdup(const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = taciti_calloc(bytes, 1);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

static tacit_status map_pages(size_t bytes, const char *what, int access, int use, taciti_pages *out) {
    if (bytes > SIZE_MAX - 2 * HUGE_BYTES) return taciti_fail(TACIT_E_MEMORY, "%s: %zu bytes asked for", what, bytes);
    const size_t map_bytes = taciti_round_up(bytes + (bytes == 0), HUGE_BYTES) + HUGE_BYTES;
    void *map = mmap(NULL, map_bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return taciti_fail(TACIT_E_MEMORY, "%s: the system refused %zu MiB%s", what, bytes >> 20, limit_advice());
    char *base = (char *)map + (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;
    /* Advice: without huge pages everything works, a little slower. */
    (void)madvise(base, taciti_round_up(bytes + (bytes == 0), HUGE_BYTES), use);
    *out = (taciti_pages){.base = base, .bytes = bytes, .map = map, .map_bytes = map_bytes};
    return TACIT_OK;
}

tacit_status taciti_pages_create(size_t bytes, const char *what, taciti_pages *out) {
    return map_pages(bytes, what, PROT_READ | PROT_WRITE, MADV_HUGEPAGE, out);
}

tacit_status taciti_pages_create_small(size_t bytes, const char *what, taciti_pages *out) {
    return map_pages(bytes, what, PROT_READ | PROT_WRITE, MADV_NOHUGEPAGE, out);
}

tacit_status taciti_pages_reserve(size_t bytes, const char *what, taciti_pages *out) {
    return map_pages(bytes, what, PROT_NONE, MADV_HUGEPAGE, out);
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

tacit_status taciti_pages_commit(const taciti_pages *pages, size_t at, size_t bytes, const char *what) {
    const size_t page = page_bytes(), first = at & ~(page - 1), end = taciti_round_up(at + bytes, page);
    if (bytes == 0 || pages->kept || mprotect((char *)pages->base + first, end - first, PROT_READ | PROT_WRITE) == 0)
        return TACIT_OK;
    return taciti_fail(TACIT_E_MEMORY, "%s: the system refused %zu MiB: %s%s", what, (end - first) >> 20,
                       strerror(errno), limit_advice());
}

/* A mapping that cannot be split any more keeps its pages: nothing is lost but memory. */
void taciti_pages_drop(const taciti_pages *pages, size_t at, size_t bytes) {
    const size_t page = page_bytes(), first = taciti_round_up(at, page), end = (at + bytes) & ~(page - 1);
    if (first >= end || pages->kept) return;
    (void)madvise((char *)pages->base + first, end - first, MADV_DONTNEED);
    (void)mprotect((char *)pages->base + first, end - first, PROT_NONE);
}

void taciti_pages_destroy(taciti_pages *pages) {
    if (pages->map != NULL) (void)munmap(pages->map, pages->map_bytes);
    *pages = (taciti_pages){0};
}

size_t taciti_peak_resident_bytes(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0 || usage.ru_maxrss < 0) return 0;
    return (size_t)usage.ru_maxrss * 1024;
}

size_t taciti_available_bytes(void) {
    uint64_t available = 0, swap = 0;
    if (!taciti_system_field("/proc/meminfo", "MemAvailable:", &available)) return 0;
    if (taciti_system_field("/proc/meminfo", "SwapFree:", &swap)) available += swap;
    return (size_t)fmin((double)available * 1024, taciti_group_memory_left(TACITI_GROUPS));
}

size_t taciti_data_bytes(void) {
    uint64_t used_kib = 0;
    (void)taciti_system_field("/proc/self/status", "VmData:", &used_kib);
    return (size_t)used_kib * 1024;
}

size_t taciti_data_limit_bytes(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)limit.rlim_cur;
}

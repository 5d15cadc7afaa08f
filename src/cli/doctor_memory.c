/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, huge pages, shared memory and limits.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "base/control_group.h"
#include "cli/doctor.h"

#define GIB 0x1p30

static void check_amount(taciti_diagnosis *diagnosis) {
    const double total = taciti_meminfo_bytes(TACITI_MEMINFO, "MemTotal"),
                 available = taciti_meminfo_bytes(TACITI_MEMINFO, "MemAvailable");
    char granted[64] = "";
    const double limit = taciti_group_memory(TACITI_GROUPS);
    if (limit < total) (void)snprintf(granted, sizeof granted, ", %.3g GiB granted by the control group", limit / GIB);
    taciti_finding *finding = taciti_diagnosis_add(diagnosis, "memory", "%.3g of %.3g GiB available%s", available / GIB,
                                                   total / GIB, granted);
    if (available <= 0 || available >= GIB) return;
    taciti_finding_advise(finding, TACITI_SEVERITY_WARN,
                          "less than 1 GiB is free; `tacit train CONFIG --dry-run` shows what a run needs");
}

static void check_huge_pages(taciti_diagnosis *diagnosis) {
    char modes[64];
    if (!taciti_system_line("/sys/kernel/mm/transparent_hugepage/enabled", modes, sizeof modes)) return;
    taciti_finding *finding = taciti_diagnosis_add(diagnosis, "huge pages", "transparent huge pages: %s", modes);
    if (strstr(modes, "[never]") == NULL) return;
    taciti_finding_advise(
        finding, TACITI_SEVERITY_WARN,
        "worth 5-10 %% of a step: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
}

/* Ranks of one host talk through it; containers often get 64 MiB. */
static void check_shared_memory(taciti_diagnosis *diagnosis) {
    struct statvfs status;
    const int ranks = taciti_local_ranks();
    if (statvfs("/dev/shm", &status) != 0) return;
    const double free_bytes = (double)status.f_bavail * (double)status.f_frsize, wanted = 32.0 * 0x1p20 * ranks;
    taciti_finding *finding =
        taciti_diagnosis_add(diagnosis, "shared memory", "%.3g GiB free in /dev/shm", free_bytes / GIB);
    if (free_bytes >= wanted) return;
    taciti_finding_advise(finding, TACITI_SEVERITY_WARN, "%d rank%s want about %.0f MiB; containers: --shm-size=1g",
                          ranks, ranks == 1 ? "" : "s", wanted / 0x1p20);
}

static void check_limits(taciti_diagnosis *diagnosis) {
    struct rlimit files, space;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 512)
        taciti_finding_advise(
            taciti_diagnosis_add(diagnosis, "limits", "only %llu open files", (unsigned long long)files.rlim_cur),
            TACITI_SEVERITY_WARN, "ulimit -n 4096: every peer is a socket");
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "limits", "the address space is limited to %.3g GiB",
                                                   (double)space.rlim_cur / GIB),
                              TACITI_SEVERITY_WARN,
                              "ulimit -v unlimited: large arrays are reserved before they are used");
}

void taciti_check_memory(taciti_diagnosis *diagnosis) {
    check_amount(diagnosis);
    check_huge_pages(diagnosis);
    check_shared_memory(diagnosis);
    check_limits(diagnosis);
}

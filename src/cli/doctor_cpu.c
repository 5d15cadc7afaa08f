/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores, instruction sets, topology and the clock.
 */
#define _GNU_SOURCE
#include <dnnl.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/doctor.h"
#include "comm/engine.h"
#include "kernel/kernel.h"

enum { LINE_BYTES = 8192 };

/* ---- cores ----------------------------------------------------------------------------------------------------- */

/* Cores that this process may use by its affinity; `most` when the system does not say. */
static int allowed_cores(int max) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : max;
}

/* Cores' worth of time that the control group grants, 0 for no limit. */
static double group_quota(void) {
    char line[64];
    double quota = 0, period = 0;
    if (taciti_system_line("/sys/fs/cgroup/cpu.max", line, sizeof line)) {
        char *blank = strchr(line, ' ');
        if (blank == NULL) return 0;
        *blank = '\0';
        if (!taciti_real_parse(line, &quota) || !taciti_real_parse(blank + 1, &period)) return 0;
    } else if (!taciti_system_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota) ||
               !taciti_system_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period)) {
        return 0;
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

static void check_cores(taciti_diagnosis *diagnosis) {
    const int online = (int)sysconf(_SC_NPROCESSORS_ONLN), allowed = allowed_cores(online);
    const int ranks = taciti_local_ranks();
    const double quota = group_quota();
    if (quota > 0 && quota < allowed)
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "cores", TACITI_SEVERITY_WARN,
                                                   "the control group grants %.2g cores' time of %d", quota, allowed),
                              "raise the limit of the container or job, or set train.threads to it");
    if (ranks > online) {
        const bool mpich = strcmp(taciti_engine_mpi_family(), "mpich") == 0;
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "cores",
                                                   mpich ? TACITI_SEVERITY_FAIL : TACITI_SEVERITY_WARN,
                                                   "%d ranks share %d cores%s", ranks, online,
                                                   mpich ? ", and MPICH spins without yielding" : ""),
                              "fine for trying things out; for speed start at most one rank per core");
    } else if (allowed < online && ranks * allowed < online) {
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "cores", TACITI_SEVERITY_WARN,
                                                   "each of %d ranks is bound to %d of %d cores: the rest is idle",
                                                   ranks, allowed, online),
                              "mpirun --bind-to none, or --map-by ppr:%d:node:PE=%d", ranks, online / ranks);
    } else {
        (void)taciti_diagnosis_add(diagnosis, "cores", TACITI_SEVERITY_OK, "%d of %d usable, %d rank%s on this host",
                                   allowed, online, ranks, ranks == 1 ? "" : "s");
    }
}

/* ---- instruction sets ------------------------------------------------------------------------------------------ */

/* The value of a line "key : value" of /proc/cpuinfo, of the first CPU. */
static bool cpu_line(const char *key, char *out, size_t size) {
    static char line[LINE_BYTES];
    FILE *file = fopen("/proc/cpuinfo", "r");
    bool found = false;
    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        found = strncmp(line, key, strlen(key)) == 0 && colon != NULL;
        if (found)
            (void)snprintf(out, size, "%.*s", (int)strcspn(colon + 1 + (colon[1] == ' '), "\n"),
                           colon + 1 + (colon[1] == ' '));
    }
    (void)fclose(file);
    return found;
}

static bool has_word(const char *list, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

static void check_instructions(taciti_diagnosis *diagnosis) {
    static const char *const interesting[] = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16"};
    static char flags[LINE_BYTES];
    char model[96] = "unknown CPU", list[128] = "";
    (void)cpu_line("model name", model, sizeof model);
    const bool known = cpu_line("flags", flags, sizeof flags);
    for (size_t i = 0; known && i < sizeof interesting / sizeof *interesting; i++)
        if (has_word(flags, interesting[i]))
            (void)snprintf(list + strlen(list), sizeof list - strlen(list), " %s", interesting[i]);
    const char *isa = taciti_kernels_get()->isa, *best = "scalar";
    if (taciti_kernels_named("avx2") != NULL) best = "avx2";
    if (taciti_kernels_named("avx512") != NULL) best = "avx512";
    taciti_finding *finding = taciti_diagnosis_add(diagnosis, "cpu", TACITI_SEVERITY_OK, "%s; %s kernels;%s", model,
                                                   isa, *list == '\0' ? " no vector sets known" : list);
    if (strcmp(isa, best) == 0) return;
    finding->severity = TACITI_SEVERITY_WARN;
    taciti_finding_advise(finding, "unset TACIT_ISA: this CPU can do %s", best);
}

/* ---- topology -------------------------------------------------------------------------------------------------- */

static void check_topology(taciti_diagnosis *diagnosis) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        const int packages = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
        const int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
        const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        const int units = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
        const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L3CACHE, 0);
        taciti_finding *finding =
            taciti_diagnosis_add(diagnosis, "topology", TACITI_SEVERITY_OK,
                                 "%d package%s, %d memory node%s, %d cores, %d hardware threads, %.3g MiB L3", packages,
                                 packages == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s", cores, units,
                                 cache == NULL ? 0 : (double)cache->attr->cache.size / 0x1p20);
        if (nodes > 1 && taciti_local_ranks() == 1) {
            finding->severity = TACITI_SEVERITY_WARN;
            taciti_finding_advise(finding, "one rank per memory node is faster: mpirun --map-by numa --bind-to numa");
        }
    }
    hwloc_topology_destroy(topology);
}

void taciti_check_cpu(taciti_diagnosis *diagnosis) {
    check_instructions(diagnosis);
    check_cores(diagnosis);
    check_topology(diagnosis);
}

/* ---- clock ----------------------------------------------------------------------------------------------------- */

/* A read of the clock, nanoseconds; the least of several series, so that a pause does not count. */
static double clock_cost_ns(void) {
    enum { SERIES = 5, READS = 1000 };
    int64_t min = INT64_MAX;
    for (int s = 0; s < SERIES; s++) {
        const int64_t begin = taciti_now_ns();
        for (int i = 1; i < READS; i++) (void)taciti_now_ns();
        const int64_t took = taciti_now_ns() - begin;
        min = took < min ? took : min;
    }
    return (double)min / READS;
}

void taciti_check_clock(taciti_diagnosis *diagnosis) {
    char source[64] = "unknown";
    (void)taciti_system_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
    const double cost_ns = clock_cost_ns();
    taciti_finding *finding =
        taciti_diagnosis_add(diagnosis, "clock", TACITI_SEVERITY_OK, "%s, %.0f ns per read", source, cost_ns);
    if (cost_ns < 500) return;
    finding->severity = TACITI_SEVERITY_WARN;
    taciti_finding_advise(finding,
                          "reading the clock is a system call here: traces cost time; prefer tsc or kvm-clock");
}

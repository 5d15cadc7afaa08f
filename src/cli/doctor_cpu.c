/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores, instruction sets and topology.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <unistd.h>
#ifndef TACITI_PYTHON
#include <hwloc.h>
#endif

#include "base/control_group.h"
#include "base/text.h"
#include "bench/machine_block.h"
#include "cli/doctor.h"
#include "comm/engine.h"
#include "kernel/kernel.h"

/* ---- cores ----------------------------------------------------------------------------------------------------- */

static void check_cores(taciti_diagnosis *diagnosis) {
    const int online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;
    const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online;
    const int ranks = taciti_local_ranks();
    const double quota = taciti_group_cores(TACITI_GROUPS);
    if (quota < allowed)
        taciti_finding_advise(
            taciti_diagnosis_add(diagnosis, "cores", "the control group grants %.2g cores' time of %d", quota, allowed),
            TACITI_SEVERITY_WARN, "raise the limit of the container or job; ranks share what it grants");
    if (ranks > online) {
        const taciti_launcher launcher = taciti_launcher_detect();
        const bool mpich = strcmp(taciti_engine_family(&launcher), "mpich") == 0;
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "cores", "%d ranks share %d cores%s", ranks, online,
                                                   mpich ? ", and MPICH spins without yielding" : ""),
                              mpich ? TACITI_SEVERITY_FAIL : TACITI_SEVERITY_WARN,
                              "fine for trying things out; for speed start at most one rank per core");
    } else if (allowed < online && ranks * allowed < online) {
        taciti_finding_advise(
            taciti_diagnosis_add(diagnosis, "cores", "each of %d ranks is bound to %d of %d cores: the rest is idle",
                                 ranks, allowed, online),
            TACITI_SEVERITY_WARN, "mpirun --bind-to none, or --map-by ppr:%d:node:PE=%d", ranks, online / ranks);
    } else {
        (void)taciti_diagnosis_add(diagnosis, "cores", "%d of %d usable, %d rank%s on this host", allowed, online,
                                   ranks, ranks == 1 ? "" : "s");
    }
}

/* ---- instruction sets ------------------------------------------------------------------------------------------ */

static void check_kernels(taciti_diagnosis *diagnosis) {
    taciti_machine machine;
    const char *best = "scalar";
    taciti_machine_read(&machine);
    if (taciti_kernels_named("avx2") != NULL) best = "avx2";
    if (taciti_kernels_named("avx512") != NULL) best = "avx512";
    taciti_finding *finding = taciti_diagnosis_add(diagnosis, "cpu", "%s; %s kernels", machine.cpu, machine.isa);
    if (strcmp(machine.isa, best) != 0)
        taciti_finding_advise(finding, TACITI_SEVERITY_WARN, "unset TACIT_ISA: this CPU can do %s", best);
}

/* ---- topology -------------------------------------------------------------------------------------------------- */

static void check_topology(taciti_diagnosis *diagnosis) {
#ifdef TACITI_PYTHON /* without hwloc */
    (void)diagnosis;
#else
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        const int packages = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
        const int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
        const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        const int units = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
        const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L3CACHE, 0);
        taciti_finding *finding = taciti_diagnosis_add(
            diagnosis, "topology", "%d package%s, %d memory node%s, %d cores, %d hardware threads, %.3g MiB L3",
            packages, packages == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s", cores, units,
            cache == NULL ? 0 : (double)cache->attr->cache.size / 0x1p20);
        if (nodes > 1 && taciti_local_ranks() == 1) {
            taciti_finding_advise(finding, TACITI_SEVERITY_WARN,
                                  "one rank per memory node is faster: mpirun --map-by numa --bind-to numa");
        }
    }
    hwloc_topology_destroy(topology);
#endif
}

void taciti_check_cpu(taciti_diagnosis *diagnosis) {
    check_kernels(diagnosis);
    check_cores(diagnosis);
    check_topology(diagnosis);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores, instruction sets and memory nodes.
 */
#define _GNU_SOURCE
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    const double quota = taciti_cpu_quota();
    if (quota > 0 && quota < allowed)
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

/* ---- memory nodes ---------------------------------------------------------------------------------------------- */

/* Returns the memory node of a core, or -1. */
static int find_node(size_t core) {
    char pattern[64];
    glob_t found;
    (void)snprintf(pattern, sizeof pattern, "/sys/devices/system/cpu/cpu%zu/node[0-9]*", core);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) return -1;
    const int node = (int)strtol(strrchr(found.gl_pathv[0], '/') + strlen("/node"), NULL, 10);
    globfree(&found);
    return node;
}

/* Returns the number of memory nodes to which the cores of this process belong; 0: the system does not say. */
static int count_memory_nodes(void) {
    cpu_set_t mine;
    bool seen[CPU_SETSIZE] = {false};
    int count = 0;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 0;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        const int node = CPU_ISSET(core, &mine) ? find_node(core) : -1;
        if (node < 0 || node >= CPU_SETSIZE || seen[node]) continue;
        seen[node] = true;
        count++;
    }
    return count;
}

static void check_memory_nodes(taciti_diagnosis *diagnosis) {
    const int nodes = count_memory_nodes();
    if (nodes == 0) return;
    taciti_finding *finding =
        taciti_diagnosis_add(diagnosis, "topology", "%d memory node%s", nodes, nodes == 1 ? "" : "s");
    if (nodes > 1 && taciti_local_ranks() == 1)
        taciti_finding_advise(finding, TACITI_SEVERITY_WARN,
                              "one rank per memory node is faster: mpirun --map-by numa --bind-to numa");
}

void taciti_check_cpu(taciti_diagnosis *diagnosis) {
    check_kernels(diagnosis);
    check_cores(diagnosis);
    check_memory_nodes(diagnosis);
}

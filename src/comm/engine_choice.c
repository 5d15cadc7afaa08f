/* SPDX-License-Identifier: Apache-2.0
 *
 * Which engine a process uses, and why.
 *
 *   comm.engine   mpirun, srun started several   torchrun, --ranks started several   otherwise
 *   auto          mpi                            tcp                                 self
 *   mpi           mpi                            refused: MPI would see one rank     mpi, with one rank
 *   tcp           tcp                            tcp                                 self
 *   self          refused: each rank would be alone                                  self
 *
 * Where the caller brings a store (tacit_open_store()): tcp, or self with one rank; mpi and self are refused.
 *
 * The MPI library is that which the program is linked with, else that of the launcher, else the first whose plugin
 * exists.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "comm/plugin.h"

const char *taciti_engine_family(const taciti_launcher *launcher) {
    const char *family = taciti_plugin_linked();
    if (family == NULL) family = launcher->family;
    if (family == NULL) family = taciti_plugin_first();
    return family == NULL ? "openmpi" : family;
}

/* Where a launcher of MPI and torchrun both speak, they must mean the same ranks. */
static tacit_status check_torch(const taciti_launcher *launcher, const taciti_launcher *torch) {
    if (!launcher->mpi || torch->name == NULL) return TACIT_OK;
    if (launcher->size != torch->size)
        return TACITI_FAIL_TOGETHER(
            launcher->rank, TACIT_E_USAGE,
            "%s started %d process%s, but WORLD_SIZE is %d: use one launcher, or unset RANK and "
            "WORLD_SIZE",
            launcher->name, launcher->size, launcher->size == 1 ? "" : "es", torch->size);
    if (launcher->rank != torch->rank)
        return taciti_fail(TACIT_E_USAGE,
                           "this process is rank %d of %s, but RANK is %d: use one launcher, or unset RANK and "
                           "WORLD_SIZE",
                           launcher->rank, launcher->name, torch->rank);
    return TACIT_OK;
}

static tacit_status check_count(int rank, int size) {
    if (rank < 0 || rank >= size)
        return taciti_fail(TACIT_E_USAGE, "rank %d of %d cannot be: ranks count from 0", rank, size);
    if (size <= TACITI_COMM_RANKS_MAX) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "%d ranks; %d is the maximum", size, (int)TACITI_COMM_RANKS_MAX);
}

/* Variables that name no rank would leave each process alone, to train a model of its own. */
static tacit_status check_variables(const taciti_launcher *torch) {
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    const bool none = (rank == NULL || *rank == 0) && (size == NULL || *size == 0);
    if (torch->name != NULL) return check_count(torch->rank, torch->size);
    if (none) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "RANK is \"%s\" and WORLD_SIZE \"%s\": a rank needs both, RANK from 0 to WORLD_SIZE - 1; unset "
                       "both to run alone",
                       rank == NULL ? "" : rank, size == NULL ? "" : size);
}

static void choose_self(const taciti_launcher *launcher, bool named, taciti_engine_choice *out) {
    *out = (taciti_engine_choice){.kind = TACITI_ENGINE_SELF};
    if (launcher->name == NULL || named)
        (void)snprintf(out->reason, sizeof out->reason, "%s",
                       named ? "the configuration says so" : "no launcher started this process");
    else
        (void)snprintf(out->reason, sizeof out->reason, "%s started one process", launcher->name);
}

static void choose_joined(const taciti_launcher *launcher, taciti_engine_kind kind, taciti_engine_choice *out) {
    *out = (taciti_engine_choice){.kind = kind};
    if (kind == TACITI_ENGINE_MPI) out->family = taciti_engine_family(launcher);
    if (launcher->size > 1)
        (void)snprintf(out->reason, sizeof out->reason, "%s started %d processes", launcher->name, launcher->size);
    else
        (void)snprintf(out->reason, sizeof out->reason, "the configuration says so");
}

tacit_status taciti_engine_choose(int wanted, const taciti_launcher *launcher, taciti_engine_choice *out) {
    const taciti_launcher torch = taciti_launcher_torch();
    const bool several = launcher->size > 1;
    if (!launcher->mpi && wanted != TACITI_ENGINE_SELF) TACITI_TRY(check_variables(&torch));
    TACITI_TRY(check_torch(launcher, &torch));
    if (wanted == TACITI_ENGINE_SELF && several)
        return TACITI_FAIL_TOGETHER(
            launcher->rank, TACIT_E_CONFIG,
            "comm.engine is self, but %s started %d processes, and each would train alone: leave it at "
            "auto, or start one process",
            launcher->name, launcher->size);
    if (wanted == TACITI_ENGINE_MPI && several && !launcher->mpi)
        return TACITI_FAIL_TOGETHER(launcher->rank, TACIT_E_CONFIG,
                                    "comm.engine is mpi, but %s started %d processes, and MPI would see one: leave it "
                                    "at auto, or start them with mpirun -n %d",
                                    launcher->name, launcher->size, launcher->size);
    if (wanted == TACITI_ENGINE_AUTO && several) wanted = launcher->mpi ? TACITI_ENGINE_MPI : TACITI_ENGINE_TCP;
    if (wanted == TACITI_ENGINE_MPI || (wanted == TACITI_ENGINE_TCP && several))
        choose_joined(launcher, (taciti_engine_kind)wanted, out);
    else
        choose_self(launcher, wanted == TACITI_ENGINE_SELF, out);
    return TACIT_OK;
}

tacit_status taciti_engine_choose_store(const taciti_comm_options *options, int rank, int size,
                                        taciti_engine_choice *out) {
    const bool tcp = options->engine == TACITI_ENGINE_AUTO || options->engine == TACITI_ENGINE_TCP;
    TACITI_TRY(check_count(rank, size));
    if (!tcp)
        return taciti_fail(TACIT_E_CONFIG, "comm.engine is %s, but ranks that meet in a store are connected by tcp",
                           options->engine == TACITI_ENGINE_MPI ? "mpi" : "self");
    if (*options->meet.text != 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "comm.meet is %s, but the ranks meet in a store of the caller's: leave it out",
                           options->meet.text);
    *out = (taciti_engine_choice){.kind = size > 1 ? TACITI_ENGINE_TCP : TACITI_ENGINE_SELF};
    (void)snprintf(out->reason, sizeof out->reason, "%d rank%s of the caller's store", size, size == 1 ? "" : "s");
    return TACIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which engine a process uses, and why.
 *
 *   comm.engine   a launcher started several ranks         otherwise
 *   auto          mpi                                      self
 *   mpi           mpi                                      mpi, with one rank
 *   self          refused: each rank would be alone        self
 *
 * The MPI library is that which the program is linked with, else that of the launcher, else the first whose plugin
 * exists.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/plugin.h"

const char *taciti_engine_family(const taciti_launcher *launcher) {
    const char *family = taciti_plugin_linked();
    if (family == NULL) family = launcher->family;
    if (family == NULL) family = taciti_plugin_first();
    return family == NULL ? "openmpi" : family;
}

/* A mistake that all processes share is logged by one of them; the others return it with its text. */
#define FAIL_TOGETHER(rank, status, ...)                                                                               \
    ((rank) == 0 ? taciti_fail((status), __VA_ARGS__) : (taciti_error_set(__VA_ARGS__), (status)))

/* Where a launcher of MPI and torchrun both speak, they must mean the same ranks. */
static tacit_status check_torch(const taciti_launcher *launcher, const taciti_launcher *torch) {
    if (launcher->name == NULL && torch->size > 1)
        return FAIL_TOGETHER(
            torch->rank, TACIT_E_UNSUPPORTED,
            "RANK and WORLD_SIZE tell of %d processes, but only a launcher of MPI can join them: start "
            "them with mpirun -n %d, or unset both variables",
            torch->size, torch->size);
    if (launcher->name == NULL || torch->name == NULL) return TACIT_OK;
    if (launcher->size != torch->size)
        return FAIL_TOGETHER(launcher->rank, TACIT_E_USAGE,
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

static void choose_self(const taciti_launcher *launcher, bool named, taciti_engine_choice *out) {
    *out = (taciti_engine_choice){.kind = TACITI_ENGINE_SELF};
    if (launcher->name == NULL || named)
        (void)snprintf(out->reason, sizeof out->reason, "%s",
                       named ? "the configuration says so" : "no launcher started this process");
    else
        (void)snprintf(out->reason, sizeof out->reason, "%s started one process", launcher->name);
}

static void choose_mpi(const taciti_launcher *launcher, taciti_engine_choice *out) {
    *out = (taciti_engine_choice){.kind = TACITI_ENGINE_MPI, .family = taciti_engine_family(launcher)};
    if (launcher->size > 1)
        (void)snprintf(out->reason, sizeof out->reason, "%s started %d processes", launcher->name, launcher->size);
    else
        (void)snprintf(out->reason, sizeof out->reason, "the configuration says so");
}

tacit_status taciti_engine_choose(int wanted, const taciti_launcher *launcher, taciti_engine_choice *out) {
    const taciti_launcher torch = taciti_launcher_torch();
    const bool several = launcher->size > 1;
    TACITI_TRY(check_torch(launcher, &torch));
    if (wanted == TACITI_ENGINE_SELF && several)
        return FAIL_TOGETHER(
            launcher->rank, TACIT_E_CONFIG,
            "comm.engine is self, but %s started %d processes, and each would train alone: leave it at "
            "auto, or start one process",
            launcher->name, launcher->size);
    if (wanted == TACITI_ENGINE_MPI || (wanted == TACITI_ENGINE_AUTO && several))
        choose_mpi(launcher, out);
    else
        choose_self(launcher, wanted == TACITI_ENGINE_SELF, out);
    return TACIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "comm/launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/engine.h"

enum { COMMAND_BYTES = 1024 };

/* In the order in which they are believed. Slurm's SLURM_NTASKS is not among them: a batch script has it too. */
static const struct {
    const char *name, *rank, *size;
} LAUNCHERS[] = {
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"srun (Slurm)", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"mpiexec (MPICH)", "PMI_RANK", "PMI_SIZE"},
};

static bool read_count(const char *variable, int min, int *out) {
    const char *text = getenv(variable);
    if (text == NULL || *text == 0) return false;
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || *end != 0 || value < min || value > INT_MAX) return false;
    *out = (int)value;
    return true;
}

taciti_launcher taciti_launcher_detect(void) {
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++) {
        taciti_launcher found = {.name = LAUNCHERS[i].name};
        if (read_count(LAUNCHERS[i].rank, 0, &found.rank) && read_count(LAUNCHERS[i].size, 1, &found.size))
            return found;
    }
    return (taciti_launcher){.size = 1};
}

/* The command line of this process, words separated by blanks. */
static void own_command(char out[COMMAND_BYTES]) {
    (void)snprintf(out, COMMAND_BYTES, "tacit ...");
    FILE *file = fopen("/proc/self/cmdline", "r");
    if (file == NULL) return;
    const size_t n = fread(out, 1, COMMAND_BYTES - 1, file);
    (void)fclose(file);
    for (size_t i = 0; i < n; i++)
        if (out[i] == 0) out[i] = i + 1 < n ? ' ' : 0;
    out[n] = 0;
}

bool taciti_launcher_find(const char *program, char *out, size_t size) {
    const char *path = getenv("PATH");
    while (path != NULL && *path != 0) {
        const size_t length = strcspn(path, ":");
        char file[PATH_MAX], resolved[PATH_MAX];
        const int written = snprintf(file, sizeof file, "%.*s/%s", (int)length, path, program);
        const bool fits = written > 0 && (size_t)written < sizeof file;
        if (fits && access(file, X_OK) == 0 && realpath(file, resolved) != NULL && strlen(resolved) < size) {
            memcpy(out, resolved, strlen(resolved) + 1);
            return true;
        }
        path += length + (path[length] == ':');
    }
    return false;
}

static bool is_in_path(const char *program) {
    char file[PATH_MAX];
    return taciti_launcher_find(program, file, sizeof file);
}

/* The launcher of the MPI family this build was made with, by the name it has on this machine. */
static const char *right_launcher(const taciti_launcher *launcher) {
    const bool mpich = strcmp(taciti_engine_mpi_family(), "mpich") == 0;
    if (strcmp(launcher->name, "srun (Slurm)") == 0) return mpich ? "srun --mpi=pmi2" : "srun --mpi=pmix";
    if (mpich) return is_in_path("mpiexec.mpich") ? "mpiexec.mpich" : "mpiexec";
    return is_in_path("mpirun.openmpi") ? "mpirun.openmpi" : "mpirun";
}

tacit_status taciti_launcher_refuse(const taciti_launcher *launcher, const char *library) {
    if (launcher->rank != 0) return TACIT_E_USAGE;
    char command[COMMAND_BYTES];
    own_command(command);
    return taciti_fail(TACIT_E_USAGE,
                       "%s started %d processes, but they do not find each other: this program was built with %s; "
                       "start it with: %s -n %d %s",
                       launcher->name, launcher->size, library, right_launcher(launcher), launcher->size, command);
}

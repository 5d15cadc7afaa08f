/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "comm/launcher.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"

enum { COMMAND_BYTES = 1024 };

/* In the order in which they are believed. Slurm's SLURM_NTASKS is not among them: a batch script has it too. */
static const struct {
    const char *name, *rank, *size, *local_rank, *local_size, *family;
} LAUNCHERS[] = {
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "openmpi"},
    {"srun (Slurm)", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE", NULL},
    {"mpiexec (MPICH)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpich"},
};

static bool read_count(const char *variable, int min, int *out) {
    const char *text = getenv(variable);
    int64_t value = 0;
    if (text == NULL || !taciti_integer_parse(text, &value) || value < min || value > INT_MAX) return false;
    *out = (int)value;
    return true;
}

/* Slurm serves the library for which it was asked to set variables (srun --mpi). */
static const char *slurm_family(void) {
    if (getenv("PMIX_RANK") != NULL) return "openmpi";
    return getenv("PMI_RANK") != NULL || getenv("PMI_FD") != NULL ? "mpich" : NULL;
}

taciti_launcher taciti_launcher_torch(void) {
    const taciti_launcher none = {.size = 1, .first_of_host = true};
    const char *starter = getenv("TACIT_STARTER"); /* set by cli/ranks.c */
    taciti_launcher found = {.name = starter != NULL                         ? starter
                                     : getenv("TORCHELASTIC_RUN_ID") != NULL ? "torchrun"
                                                                             : "RANK / WORLD_SIZE",
                             .names_killed = starter != NULL};
    int local_rank = 0;
    if (!read_count("RANK", 0, &found.rank) || !read_count("WORLD_SIZE", 1, &found.size)) return none;
    found.first_of_host = !read_count("LOCAL_RANK", 0, &local_rank) || local_rank == 0;
    (void)read_count("LOCAL_WORLD_SIZE", 1, &found.local_size);
    return found;
}

taciti_launcher taciti_launcher_detect(void) {
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++) {
        taciti_launcher found = {.name = LAUNCHERS[i].name, .family = LAUNCHERS[i].family, .mpi = true};
        int local_rank = 0;
        if (!read_count(LAUNCHERS[i].rank, 0, &found.rank) || !read_count(LAUNCHERS[i].size, 1, &found.size)) continue;
        if (found.family == NULL) found.family = slurm_family();
        found.first_of_host = !read_count(LAUNCHERS[i].local_rank, 0, &local_rank) || local_rank == 0;
        (void)read_count(LAUNCHERS[i].local_size, 1, &found.local_size);
        return found;
    }
    return taciti_launcher_torch();
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

/* The launcher of a family, by the name it has on this machine. */
static const char *right_launcher(const taciti_launcher *launcher, const char *family) {
    const bool mpich = strcmp(family, "mpich") == 0;
    if (strcmp(launcher->name, "srun (Slurm)") == 0) return mpich ? "srun --mpi=pmi2" : "srun --mpi=pmix";
    if (mpich) return is_in_path("mpiexec.mpich") ? "mpiexec.mpich" : "mpiexec";
    return is_in_path("mpirun.openmpi") ? "mpirun.openmpi" : "mpirun";
}

tacit_status taciti_launcher_refuse(const taciti_launcher *launcher, const char *family, const char *library) {
    if (launcher->rank != 0) return TACIT_E_USAGE;
    char command[COMMAND_BYTES];
    own_command(command);
    return taciti_fail(TACIT_E_USAGE,
                       "%s started %d processes, but they do not find each other: %s sees one of them; "
                       "start it with: %s -n %d %s",
                       launcher->name, launcher->size, library, right_launcher(launcher, family), launcher->size,
                       command);
}

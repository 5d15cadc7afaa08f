/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects from the environment how this process was started, before any MPI call.
 */
#ifndef TACITI_COMM_LAUNCHER_H
#define TACITI_COMM_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"
#include "tacit/tacit.h"

typedef struct taciti_launcher {
    const char *name;   /* "mpirun (Open MPI)", "srun (Slurm)", ...; NULL: started by hand */
    const char *family; /* of the MPI library that it serves, "openmpi" or "mpich"; NULL: not known */
    bool mpi;           /* it starts processes of MPI */
    bool names_killed;  /* it tells which of its processes a signal has killed */
    int rank, size;     /* 0 and 1 when started by hand */
    int local_size;     /* processes on this host; 0: not known */
    bool first_of_host; /* no lower rank is on this host, as far as the launcher tells */
} taciti_launcher;

/* Checks Open MPI's variables first, because its mpirun inside a Slurm job leaves Slurm's set, and those of torchrun
 * last. Any thread. */
taciti_launcher taciti_launcher_detect(void);

/* Returns what RANK and WORLD_SIZE say, which torchrun and tacit --ranks set. Any thread. */
taciti_launcher taciti_launcher_torch(void);

/* Finds a program in PATH and resolves links. Returns false if it is not in PATH. Any thread. */
bool taciti_launcher_find(const char *program, char *out, size_t size);

/* Reports that a launcher started several processes but the MPI library sees only one, with the command that works for
 * this family. Only rank 0 of the launcher logs. */
tacit_status taciti_launcher_refuse(const taciti_launcher *launcher, const char *family, const char *library);

#endif

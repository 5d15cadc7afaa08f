/* SPDX-License-Identifier: Apache-2.0
 *
 * What the environment says about how this process was started, before any MPI call.
 */
#ifndef TACITI_COMM_LAUNCHER_H
#define TACITI_COMM_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "tacit/tacit.h"

typedef struct taciti_launcher {
    const char *name; /* "mpirun (Open MPI)", "srun (Slurm)", ...; NULL: started by hand */
    int rank, size;   /* 0 and 1 when started by hand */
} taciti_launcher;

/* Open MPI's variables come first, because its mpirun inside a Slurm job leaves Slurm's in place. Any thread. */
taciti_launcher taciti_launcher_detect(void);

/* Where the shell would find a program, links resolved; false when it is not in PATH. Any thread. */
bool taciti_launcher_find(const char *program, char *out, size_t size);

/* A launcher started several processes, but the MPI library knows of one: refuses, with the command that works. Only
 * the launcher's rank 0 logs. */
tacit_status taciti_launcher_refuse(const taciti_launcher *launcher, const char *library);

#endif

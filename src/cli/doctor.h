/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks of `tacit doctor`. Each check reports findings: one line says what it found, another how to fix it. A
 * check changes nothing, does not start MPI and does not wait for other processes.
 */
#ifndef TACITI_CLI_DOCTOR_H
#define TACITI_CLI_DOCTOR_H

#include <stddef.h>

#include "base/log.h"
#include "base/system.h"

typedef enum taciti_severity { TACITI_SEVERITY_OK, TACITI_SEVERITY_WARN, TACITI_SEVERITY_FAIL } taciti_severity;

enum { TACITI_FINDINGS_MAX = 96, TACITI_FINDING_BYTES = 320 };

typedef struct taciti_finding {
    const char *check; /* "cpu" */
    taciti_severity severity;
    char text[TACITI_FINDING_BYTES];   /* what was found */
    char advice[TACITI_FINDING_BYTES]; /* how to fix it; "" if nothing is wrong */
} taciti_finding;

typedef struct taciti_diagnosis {
    taciti_finding findings[TACITI_FINDINGS_MAX];
    size_t count;
} taciti_diagnosis;

/* Adds a finding with a formatted text, which is ok until it is advised otherwise. When there are TACITI_FINDINGS_MAX,
 * it replaces the last one. */
taciti_finding *taciti_diagnosis_add(taciti_diagnosis *diagnosis, const char *check, const char *format, ...)
    TACITI_PRINTF(3, 4);

/* Sets the severity of a finding, and how to fix it. */
void taciti_finding_advise(taciti_finding *finding, taciti_severity severity, const char *format, ...)
    TACITI_PRINTF(3, 4);

/* Returns the number of this run's ranks on this host according to the launcher; 1 if it does not tell. */
int taciti_local_ranks(void);

/* The checks. `folder` is the run folder. */
void taciti_check_launch(taciti_diagnosis *diagnosis);
void taciti_check_cpu(taciti_diagnosis *diagnosis);
void taciti_check_memory(taciti_diagnosis *diagnosis);
void taciti_check_network(taciti_diagnosis *diagnosis);
void taciti_check_disk(taciti_diagnosis *diagnosis, const char *folder);

#endif

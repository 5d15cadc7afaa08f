/* SPDX-License-Identifier: Apache-2.0
 *
 * What `tacit doctor` looks at. A check looks, decides and says in one line what is the matter and in another how to
 * mend it; it changes nothing, starts no MPI and never waits for anybody else.
 */
#ifndef TACITI_CLI_DOCTOR_H
#define TACITI_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"
#include "base/system.h"

typedef enum taciti_severity { TACITI_SEVERITY_OK, TACITI_SEVERITY_WARN, TACITI_SEVERITY_FAIL } taciti_severity;

enum { TACITI_FINDINGS_MAX = 96, TACITI_FINDING_BYTES = 320 };

typedef struct taciti_finding {
    const char *check; /* "cpu" */
    taciti_severity severity;
    char text[TACITI_FINDING_BYTES];   /* what was found */
    char advice[TACITI_FINDING_BYTES]; /* how to mend it; "" when nothing is wrong */
} taciti_finding;

typedef struct taciti_diagnosis {
    taciti_finding findings[TACITI_FINDINGS_MAX];
    size_t count;
} taciti_diagnosis;

/* Adds a finding; the text is formatted. Returns it so that an advice can be added. Findings beyond the most are
 * dropped into the last place. */
taciti_finding *taciti_diagnosis_add(taciti_diagnosis *diagnosis, const char *check, taciti_severity severity,
                                     const char *format, ...) TACITI_PRINTF(4, 5);

/* Sets how to mend it. */
void taciti_finding_advise(taciti_finding *finding, const char *format, ...) TACITI_PRINTF(2, 3);

/* Ranks of this run on this host as the launcher says, 1 when it does not. */
int taciti_local_ranks(void);

/* The checks. `folder` is the run folder. */
void taciti_check_launcher(taciti_diagnosis *diagnosis);
void taciti_check_libraries(taciti_diagnosis *diagnosis);
void taciti_check_environment(taciti_diagnosis *diagnosis);
void taciti_check_cpu(taciti_diagnosis *diagnosis);
void taciti_check_clock(taciti_diagnosis *diagnosis);
void taciti_check_memory(taciti_diagnosis *diagnosis);
void taciti_check_network(taciti_diagnosis *diagnosis);
void taciti_check_disk(taciti_diagnosis *diagnosis, const char *folder);

#endif

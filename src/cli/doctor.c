/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

taciti_finding *taciti_diagnosis_add(taciti_diagnosis *diagnosis, const char *check, const char *format, ...) {
    if (diagnosis->count < TACITI_FINDINGS_MAX) diagnosis->count++;
    taciti_finding *finding = &diagnosis->findings[diagnosis->count - 1];
    *finding = (taciti_finding){.check = check, .severity = TACITI_SEVERITY_OK};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
    return finding;
}

void taciti_finding_advise(taciti_finding *finding, taciti_severity severity, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(finding->advice, sizeof finding->advice, format, arguments);
    va_end(arguments);
    finding->severity = severity;
}

int taciti_local_ranks(void) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE",
                                            "SLURM_NTASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i]);
        int64_t ranks = 0;
        if (text != NULL && taciti_integer_parse(text, &ranks) && ranks > 0 && ranks < 100000) return (int)ranks;
    }
    return 1;
}

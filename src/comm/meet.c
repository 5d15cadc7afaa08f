/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "comm/meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"

enum { PORT_MAX = 65535 };

static tacit_status format_place(taciti_meeting_place *out, int length) {
    if (length > 0 && (size_t)length < sizeof out->place) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "the place where ranks meet (comm.meet) is longer than %zu bytes",
                       sizeof out->place - 1);
}

/* torchrun keeps MASTER_PORT for its own store. False: the environment names no master. */
static bool find_master(const taciti_launcher *launcher, taciti_meeting_place *out, tacit_status *status) {
    const char *host = getenv("MASTER_ADDR"), *text = getenv("MASTER_PORT");
    if (host == NULL || *host == 0 || text == NULL || *text == 0) return false;
    char quoted[TACITI_QUOTED_BYTES];
    int64_t port = 0;
    if (!taciti_integer_parse(text, &port) || port < 1 || port >= PORT_MAX) {
        *status = TACITI_FAIL_TOGETHER(launcher->rank, TACIT_E_CONFIG,
                                       "MASTER_PORT is %s: a number from 1 to %d is possible, for ranks meet at the "
                                       "port after it",
                                       taciti_quote(text, quoted), PORT_MAX - 1);
        return true;
    }
    const bool brackets = strchr(host, ':') != NULL && *host != '[';
    out->by_port = true;
    out->origin = "MASTER_ADDR and the port after MASTER_PORT";
    *status = format_place(out, snprintf(out->place, sizeof out->place, "%s%s%s:%d", brackets ? "[" : "", host,
                                         brackets ? "]" : "", (int)port + 1));
    return true;
}

/* A name that the ranks of this job share and other jobs do not have; false: this launcher gives none. */
static bool name_job(char *out, size_t bytes) {
    const char *job = getenv("PMIX_NAMESPACE"), *slurm = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    int n = 0;
    if (job != NULL && *job != 0)
        n = snprintf(out, bytes, "%s", job);
    else if (slurm != NULL && step != NULL)
        n = snprintf(out, bytes, "%s.%s", slurm, step);
    if (n <= 0 || (size_t)n >= bytes) return false;
    for (char *at = out; *at != 0; at++)
        if (*at == '/') *at = '_';
    return true;
}

tacit_status taciti_meet_find(const taciti_comm_options *options, const taciti_launcher *launcher,
                              taciti_meeting_place *out) {
    tacit_status status = TACIT_OK;
    char job[TACITI_MEET_BYTES / 2];
    *out = (taciti_meeting_place){0};
    if (*options->meet.text != 0) {
        out->by_port = strchr(options->meet.text, '/') == NULL;
        out->origin = "comm.meet";
        return format_place(out, snprintf(out->place, sizeof out->place, "%s", options->meet.text));
    }
    if (!launcher->mpi && find_master(launcher, out, &status)) return status;
    if (launcher->local_size == launcher->size && name_job(job, sizeof job))
        return format_place(out, snprintf(out->place, sizeof out->place, "/tmp/tacit-%ld-%s", (long)getuid(), job));
    return TACITI_FAIL_TOGETHER(launcher->rank, TACIT_E_CONFIG,
                                "%s started %d processes, and nothing says where they meet: set comm.meet to HOST:PORT "
                                "of rank 0, or to a folder that all of them see",
                                launcher->name, launcher->size);
}

/* Anybody can foresee the name of a job's folder below /tmp: what another user has put there is not believed. */
static tacit_status check_owner(const char *folder) {
    struct stat info;
    if (lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == getuid()) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s is not a folder of this user: set comm.meet to another one", folder);
}

tacit_status taciti_meet_open(const taciti_comm_options *options, const taciti_launcher *launcher,
                              const taciti_seal_key *key, taciti_meeting_place *out) {
    TACITI_TRY(taciti_meet_find(options, launcher, out));
    if (!out->by_port) {
        TACITI_TRY(taciti_bootstrap_folder_open(out->place, &out->store));
        const tacit_status status = *options->meet.text != 0 ? TACIT_OK : check_owner(out->place);
        if (status != TACIT_OK) taciti_bootstrap_folder_close(&out->store);
        return status;
    }
    TACITI_TRY(taciti_bootstrap_port_open(out->place, out->origin, launcher->rank, launcher->size, options->start_s,
                                          key, &out->store));
    taciti_bootstrap_port_local_address(&out->store, out->local, sizeof out->local);
    return TACIT_OK;
}

void taciti_meet_close(taciti_meeting_place *meeting) {
    if (meeting->by_port)
        taciti_bootstrap_port_close(&meeting->store);
    else
        taciti_bootstrap_folder_close(&meeting->store);
}

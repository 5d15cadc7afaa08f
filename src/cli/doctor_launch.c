/* SPDX-License-Identifier: Apache-2.0
 *
 * Launcher, libraries and the variables that change how a run goes.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/doctor.h"
#include "cli/libraries.h"
#include "cli/option_text.h"
#include "comm/plugin.h"

enum { GRACE_MIN_S = 3 };

/* ---- launcher -------------------------------------------------------------------------------------------------- */

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value != NULL && *value != '\0';
}

/* The family of a launcher by the name of its file; "" when that does not tell. */
static const char *family_of(const char *path) {
    static const char *const names[][2] = {
        {"openmpi", "openmpi"}, {"orterun", "openmpi"}, {"prterun", "openmpi"}, {"mpich", "mpich"}, {"hydra", "mpich"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(path, names[i][0]) != NULL) return names[i][1];
    return "";
}

/* Returns whether the plugin of the launcher's family can be opened; if not, adds a finding. */
static bool check_plugin(taciti_diagnosis *diagnosis, const char *launcher, const char *family,
                         taciti_severity severity) {
    char reason[TACITI_REASON_BYTES];
    const taciti_plugin *plugin = NULL;
    taciti_log_capture(reason);
    const tacit_status status = taciti_plugin_open(family, &plugin);
    taciti_log_capture(NULL);
    if (status == TACIT_OK) return true;
    taciti_finding_advise(
        taciti_diagnosis_add(diagnosis, "launcher",
                             "%s belongs to %s, for which tacit has no plugin here: its ranks cannot find each other",
                             launcher, family),
        severity, "%s", taciti_error_text());
    return false;
}

/* Started by hand: is there a launcher, and a plugin for its library? */
static void check_installed_launcher(taciti_diagnosis *diagnosis) {
    char path[PATH_MAX];
    if (!taciti_launcher_find("mpirun", path, sizeof path) && !taciti_launcher_find("mpiexec", path, sizeof path)) {
        taciti_finding_advise(
            taciti_diagnosis_add(diagnosis, "launcher", "neither mpirun nor mpiexec is in PATH: one rank only"),
            TACITI_SEVERITY_WARN, "install it (Debian: apt-get install openmpi-bin) or load the cluster's MPI module");
        return;
    }
    const char *found = family_of(path);
    if (*found == '\0' || check_plugin(diagnosis, path, found, TACITI_SEVERITY_WARN))
        (void)taciti_diagnosis_add(diagnosis, "launcher", "started by hand; mpirun is %s", path);
}

static void check_running_launcher(taciti_diagnosis *diagnosis, const taciti_launcher *launcher) {
    if (launcher->family != NULL && launcher->size > 1 &&
        !check_plugin(diagnosis, launcher->name, launcher->family, TACITI_SEVERITY_FAIL))
        return;
    if (launcher->family == NULL && launcher->size > 1) {
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "launcher",
                                                   "srun started %d processes without PMIx: each will believe to be "
                                                   "alone",
                                                   launcher->size),
                              TACITI_SEVERITY_FAIL,
                              "srun --mpi=pmix (srun --mpi=list shows what there is), or mpirun inside the allocation");
    } else {
        (void)taciti_diagnosis_add(diagnosis, "launcher", "%s, %d rank%s, %d on this host", launcher->name,
                                   launcher->size, launcher->size == 1 ? "" : "s", taciti_local_ranks());
    }
}

#define GRACE_VARIABLE "OMPI_MCA_odls_base_sigkill_timeout"

/* Time for a checkpoint when the launcher is told to end: Open MPI's mpirun waits so long before it passes SIGTERM on,
 * and as long again until SIGKILL. */
static void check_grace(taciti_diagnosis *diagnosis, const taciti_launcher *launcher, const char *family) {
    if (strcmp(family, "openmpi") != 0) return;
    if (launcher->name != NULL && strstr(launcher->name, "Open MPI") == NULL) return;
    int64_t seconds = 0;
    const char *text = getenv(GRACE_VARIABLE);
    if (text != NULL && taciti_integer_parse(text, &seconds) && seconds >= GRACE_MIN_S) {
        (void)taciti_diagnosis_add(diagnosis, "launcher",
                                   "mpirun told to end leaves ranks %lld s to save (" GRACE_VARIABLE ")",
                                   (long long)seconds);
        return;
    }
    taciti_finding_advise(
        taciti_diagnosis_add(diagnosis, "launcher",
                             "mpirun told to end by SIGTERM leaves ranks %s s to save (" GRACE_VARIABLE " is %s)",
                             text == NULL ? "1" : text, text == NULL ? "not set" : "short"),
        TACITI_SEVERITY_WARN,
        "export " GRACE_VARIABLE "=%d, or more where a checkpoint takes longer; or send SIGUSR1, which is passed on at "
        "once and leaves all the time",
        (int)GRACE_MIN_S);
}

static void check_launcher(taciti_diagnosis *diagnosis) {
    const taciti_launcher launcher = taciti_launcher_detect();
    const char *family = taciti_engine_family(&launcher);
    check_grace(diagnosis, &launcher, family);
    if (launcher.name == NULL)
        check_installed_launcher(diagnosis);
    else
        check_running_launcher(diagnosis, &launcher);
    const bool allowed = is_set("OMPI_ALLOW_RUN_AS_ROOT") && is_set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    if (launcher.name == NULL && geteuid() == 0 && strcmp(family, "openmpi") == 0 && !allowed)
        taciti_finding_advise(
            taciti_diagnosis_add(diagnosis, "launcher", "you are root: Open MPI's mpirun will refuse"),
            TACITI_SEVERITY_WARN,
            "work as a user, or export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 (containers)");
}

/* ---- libraries ------------------------------------------------------------------------------------------------- */

static void check_libraries(taciti_diagnosis *diagnosis) {
    taciti_linked_library libraries[TACITI_LIBRARIES];
    const size_t count = taciti_libraries(libraries);
    char list[TACITI_FINDING_BYTES] = "";
    for (size_t i = 0; i < count; i++)
        taciti_text_add(list, sizeof list, "%s%s %s", i > 0 ? ", " : "", libraries[i].name, libraries[i].version);
    (void)taciti_diagnosis_add(diagnosis, "libraries", "%s", list);
}

/* ---- environment ----------------------------------------------------------------------------------------------- */

/* Variables that were seen to cost a factor or an afternoon. value NULL: any. */
static const struct {
    const char *name, *value, *effect, *advice;
} TRAPS[] = {
    {"OMPI_MCA_mpi_yield_when_idle", "0", "ranks that share cores wait a thousand times longer", "unset it"},
    {"OMPI_MCA_btl", NULL, "only the transports named there are used", "unset it unless you mean it"},
    {"OMPI_MCA_pml", NULL, "only the messaging layer named there is used", "unset it unless you mean it"},
    {"UCX_TLS", NULL, "only the transports named there are used", "unset it unless you mean it"},
    {"OMP_WAIT_POLICY", "active", "idle threads spin and take the cores from others", "set it to passive or unset it"},
    {"OMP_WAIT_POLICY", "ACTIVE", "idle threads spin and take the cores from others", "set it to passive or unset it"},
    {"GOMP_CPU_AFFINITY", NULL, "every rank's threads are bound to the same cores", "unset it"},
    {"KMP_AFFINITY", NULL, "every rank's threads are bound to the same cores", "unset it"},
    {"OMP_PROC_BIND", "true", "every rank's threads may be bound to the same cores", "unset it"},
    {"GOMP_SPINCOUNT", NULL, "idle threads may spin and take the cores from others", "unset it"},
    {"OMP_NUM_THREADS", NULL, "libraries may start threads of their own", "unset it; train.threads says how many"},
    {"OPENBLAS_CORETYPE", NULL, "other programs of a comparison run slower kernels", "unset it for fair comparisons"},
    {"DNNL_MAX_CPU_ISA", NULL, "matrix products use less than this CPU has", "unset it"},
    {"ONEDNN_MAX_CPU_ISA", NULL, "matrix products use less than this CPU has", "unset it"},
    {"DNNL_VERBOSE", NULL, "oneDNN prints a line per call", "unset it"},
    {"ONEDNN_VERBOSE", NULL, "oneDNN prints a line per call", "unset it"},
    {"TACIT_ISA", NULL, "the kernels use this instruction set and no better one", "unset it"},
    {"LD_PRELOAD", NULL, "another library is put before all others", "unset it unless you mean it"},
    {"MALLOC_CHECK_", NULL, "every allocation is checked", "unset it"},
};

static char g_refusal[TACITI_FINDING_BYTES];

static void keep_refusal(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_refusal, sizeof g_refusal, "%.300s", line);
}

static void check_environment(taciti_diagnosis *diagnosis) {
    const size_t before = diagnosis->count;
    for (size_t i = 0; i < sizeof TRAPS / sizeof *TRAPS; i++) {
        const char *value = getenv(TRAPS[i].name);
        if (value == NULL || *value == '\0') continue;
        if (TRAPS[i].value != NULL && strcmp(value, TRAPS[i].value) != 0) continue;
        taciti_finding_advise(
            taciti_diagnosis_add(diagnosis, "environment", "%s=%.60s: %s", TRAPS[i].name, value, TRAPS[i].effect),
            TACITI_SEVERITY_WARN, "%s", TRAPS[i].advice);
    }
    taciti_log_set_sink(keep_refusal, NULL, TACITI_LOG_ERROR); /* of what `tacit train` would refuse */
    const tacit_status status = taciti_config_environment(taciti_cli_options());
    taciti_cli_log_init(taciti_launcher_detect().rank);
    if (status != TACIT_OK)
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "environment", "%s", g_refusal), TACITI_SEVERITY_FAIL,
                              "`tacit info options` shows all keys and their ranges");
    if (diagnosis->count == before)
        (void)taciti_diagnosis_add(diagnosis, "environment", "no variable stands in the way");
}

void taciti_check_launch(taciti_diagnosis *diagnosis) {
    check_launcher(diagnosis);
    check_libraries(diagnosis);
    check_environment(diagnosis);
}

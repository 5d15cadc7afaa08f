/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>

#include "base/terminal.h"
#include "cli/doctor.h"
#include "cli/verbs.h"
#include "comm/launcher.h"

const taciti_flag taciti_doctor_flags[] = {
    {"--json", NULL, NULL, "answer as one JSON object"},
    {"--dir", "-d", "FOLDER", "the run folder to look at (default: run)"},
    {NULL, NULL, NULL, NULL},
};

static const char *const SEVERITIES[] = {"ok", "warn", "fail"};
static const char *const COLOURS[] = {"\033[32m", "\033[33m", "\033[31m"};

static size_t count_of(const taciti_diagnosis *diagnosis, taciti_severity severity) {
    size_t count = 0;
    for (size_t i = 0; i < diagnosis->count; i++) count += diagnosis->findings[i].severity == severity;
    return count;
}

static void print_plain(const taciti_diagnosis *diagnosis) {
    const bool colour = taciti_terminal_colour(stdout);
    for (size_t i = 0; i < diagnosis->count; i++) {
        const taciti_finding *finding = &diagnosis->findings[i];
        printf("%s%-5s%s %-14s %s\n", colour ? COLOURS[finding->severity] : "", SEVERITIES[finding->severity],
               colour ? "\033[0m" : "", finding->check, finding->text);
        if (finding->advice[0] != '\0') printf("%22s%s\n", "-> ", finding->advice);
    }
    printf("\n%zu ok, %zu to look at, %zu to mend\n", count_of(diagnosis, TACITI_SEVERITY_OK),
           count_of(diagnosis, TACITI_SEVERITY_WARN), count_of(diagnosis, TACITI_SEVERITY_FAIL));
}

static tacit_status print_json(const taciti_diagnosis *diagnosis) {
    json_t *checks = json_array();
    for (size_t i = 0; i < diagnosis->count; i++) {
        const taciti_finding *finding = &diagnosis->findings[i];
        (void)json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s}", "check", finding->check, "verdict",
                                                      SEVERITIES[finding->severity], "text", finding->text, "advice",
                                                      finding->advice));
    }
    json_t *root = json_pack("{s:b, s:o}", "ok", count_of(diagnosis, TACITI_SEVERITY_FAIL) == 0, "checks", checks);
    return taciti_cli_print_json(root);
}

tacit_status taciti_verb_doctor(const taciti_verb *verb, int argc, char **argv) {
    static taciti_diagnosis diagnosis;
    taciti_arguments arguments;
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &arguments));
    TACITI_TRY(taciti_arguments_no_words(&arguments));
    if (taciti_launcher_detect().rank != 0) return TACIT_OK; /* one voice per run */
    const char *folder = taciti_arguments_get(&arguments, "--dir");
    taciti_check_launch(&diagnosis);
    taciti_check_cpu(&diagnosis);
    taciti_check_memory(&diagnosis);
    taciti_check_network(&diagnosis);
    taciti_check_disk(&diagnosis, folder == NULL ? "run" : folder);
    if (taciti_arguments_get(&arguments, "--json") != NULL)
        TACITI_TRY(print_json(&diagnosis));
    else
        print_plain(&diagnosis);
    return count_of(&diagnosis, TACITI_SEVERITY_FAIL) > 0 ? TACIT_E_IO : TACIT_OK;
}

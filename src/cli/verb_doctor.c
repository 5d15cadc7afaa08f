/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void diagnose(taciti_diagnosis *diagnosis, const char *folder) {
    taciti_check_launcher(diagnosis);
    taciti_check_libraries(diagnosis);
    taciti_check_environment(diagnosis);
    taciti_check_cpu(diagnosis);
    taciti_check_clock(diagnosis);
    taciti_check_memory(diagnosis);
    taciti_check_network(diagnosis);
    taciti_check_disk(diagnosis, folder);
}

static size_t count_of(const taciti_diagnosis *diagnosis, taciti_severity severity) {
    size_t count = 0;
    for (size_t i = 0; i < diagnosis->count; i++) count += diagnosis->findings[i].severity == severity;
    return count;
}

static void print_plain(const taciti_diagnosis *diagnosis) {
    const bool colour = taciti_cli_has_colour(stdout);
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

int taciti_verb_doctor(const taciti_verb *verbs, int argc, char **argv) {
    taciti_arguments arguments;
    tacit_status status = taciti_arguments_parse(taciti_verb_find(verbs, "doctor"), NULL, argc, argv, &arguments);
    if (status == TACIT_OK && arguments.positional_count > 0)
        status = taciti_fail(TACIT_E_USAGE, "doctor takes no words, but \"%s\" was given", arguments.positional[0]);
    if (status != TACIT_OK) return tacit_status_exit_code(status);
    if (taciti_launcher_detect().rank != 0) return 0; /* one voice per run */
    const char *folder = taciti_arguments_get(&arguments, "--dir");
    taciti_diagnosis *diagnosis = calloc(1, sizeof *diagnosis);
    if (diagnosis == NULL) return tacit_status_exit_code(taciti_fail(TACIT_E_MEMORY, "out of memory"));
    diagnose(diagnosis, folder == NULL ? "run" : folder);
    if (taciti_arguments_get(&arguments, "--json") == NULL)
        print_plain(diagnosis);
    else
        status = print_json(diagnosis);
    if (status == TACIT_OK && count_of(diagnosis, TACITI_SEVERITY_FAIL) > 0) status = TACIT_E_IO;
    free(diagnosis);
    return tacit_status_exit_code(status);
}

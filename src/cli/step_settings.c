/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/step_settings.h"

#include "base/log.h"

/* One more setting: the command line, and then `changes`; NULL: none, the base. */
static tacit_status read_one(const taciti_verb *verb, int argc, char **argv, int ranks, const char *changes,
                             taciti_arguments *arguments, taciti_bench_settings *out) {
    taciti_bench_setting *setting = NULL;
    TACITI_TRY(taciti_bench_settings_add(out, changes == NULL ? "base" : changes, &setting));
    TACITI_TRY(taciti_config_environment(&setting->job.config));
    TACITI_TRY(taciti_arguments_parse(verb, &setting->job.config, argc, argv, arguments));
    if (changes != NULL) TACITI_TRY(taciti_bench_setting_change(setting, changes));
    TACITI_TRY(taciti_settings_complete(&setting->job));
    return taciti_bench_setting_check(setting, ranks);
}

tacit_status taciti_step_settings_read(const taciti_verb *verb, int argc, char **argv, int ranks,
                                       taciti_arguments *arguments, taciti_bench_settings *out) {
    const char *changes = NULL;
    TACITI_TRY(taciti_bench_settings_create(out));
    TACITI_TRY(read_one(verb, argc, argv, ranks, NULL, arguments, out));
    for (size_t i = 0; (changes = taciti_arguments_each(arguments, "--against", i)) != NULL; i++)
        TACITI_TRY(read_one(verb, argc, argv, ranks, changes, arguments, out));
    const taciti_settings *jobs[TACITI_SETTINGS_MAX];
    for (size_t i = 0; i < out->count; i++) jobs[i] = &out->list[i].job;
    return taciti_settings_warn_unread(jobs, out->count,
                                       TACITI_READER_BENCH); /* the console drops all ranks' but 0's */
}

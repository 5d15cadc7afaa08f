/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "comm/launcher.h"
#include "comm/supervise.h"
#include "train/stop.h"
#include "train/train.h"

const taciti_flag taciti_train_flags[] = {
    TACITI_RANKS_FLAGS,
    {"--resume", NULL, NULL, "go on from the newest valid checkpoint of run.dir, with any number of ranks"},
    {"--resume-from-mean", NULL, NULL,
     "as --resume, but where the replicas of the checkpoint differ all ranks go on from their mean"},
    {"--dry-run", NULL, NULL,
     "print sizes and memory per rank, refuse options that the run would refuse, then stop; run.dir and "
     "checkpoints are not read"},
    {"--replay", NULL, "FOLDER",
     "repeat a run of ranks that did not wait, bit for bit, from the log that run.arrivals FOLDER wrote"},
    {"--profile", NULL, "FILE",
     "write what forward and backward of this model cost here, for `tacit plan` and compute.emulate"},
    {"--print-config", NULL, "[=changed]",
     "print the resolved configuration as YAML that train reads back, all of it or what differs from the defaults; "
     "then stop"},
    {"--json", NULL, NULL, "with --print-config or --dry-run: as JSON"},
    {NULL, NULL, NULL, NULL},
};

static const taciti_flag *find_switch(const taciti_verb *verb, const char *word) {
    for (const taciti_flag *flag = verb->flags; flag->name != NULL; flag++)
        if (flag->argument == NULL && strcmp(flag->name, word) == 0) return flag;
    return NULL;
}

/* The word names no file: was it meant as a value of the switch before it? */
static tacit_status refuse_value(const taciti_verb *verb, const taciti_config *config, const char *before,
                                 const char *word) {
    taciti_place place;
    if (strncmp(before, "--resume", strlen("--resume")) == 0)
        return taciti_fail(TACIT_E_CONFIG, "%s: no such file, and %s takes no value: --run.dir %s names the folder",
                           word, before, word);
    if (find_switch(verb, before) != NULL)
        return taciti_fail(TACIT_E_CONFIG, "%s: no such file, and %s takes no value", word, before);
    if (strncmp(before, "--", 2) == 0 && taciti_config_find(config, before + 2, &place) &&
        place.option->type == TACITI_OPTION_BOOL)
        return taciti_fail(TACIT_E_CONFIG, "%s: no such file, and %s is true or false", word, before);
    return TACIT_OK;
}

static tacit_status check_values(const taciti_verb *verb, const taciti_config *config, int argc, char **argv,
                                 const taciti_arguments *arguments) {
    struct stat info;
    for (size_t i = 0; i < arguments->positional_count; i++)
        for (int at = 2; at < argc; at++)
            if (argv[at] == arguments->positional[i] && stat(argv[at], &info) != 0)
                TACITI_TRY(refuse_value(verb, config, argv[at - 1], argv[at]));
    return TACIT_OK;
}

/* Other verbs take the folder of a run, and --resume takes nothing. */
static tacit_status check_files(const taciti_arguments *arguments) {
    for (size_t i = 0; i < arguments->positional_count; i++) {
        const char *path = arguments->positional[i];
        struct stat info;
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            return taciti_fail(TACIT_E_USAGE,
                               "%s is a folder, not a configuration: --run.dir %s --resume goes on with that run, "
                               "--train.init %s starts another from its weights",
                               path, path, path);
    }
    if (arguments->positional_count > 1)
        return taciti_fail(TACIT_E_USAGE, "one configuration file at most; \"%s\" is the second",
                           arguments->positional[1]);
    return TACIT_OK;
}

/* The file comes before environment and flags, but its name stands among the flags: they are read twice. */
static tacit_status read_configuration(const taciti_verb *verb, int argc, char **argv, taciti_train_settings *settings,
                                       taciti_arguments *arguments) {
    TACITI_TRY(taciti_train_settings_init(settings));
    TACITI_TRY(taciti_arguments_parse(verb, &settings->job.config, argc, argv, arguments));
    TACITI_TRY(check_values(verb, &settings->job.config, argc, argv, arguments));
    TACITI_TRY(check_files(arguments));
    taciti_config_destroy(&settings->job.config);
    TACITI_TRY(taciti_config_defaults(&settings->job.config));
    const char *path = arguments->positional_count == 1 ? arguments->positional[0] : NULL;
    if (path != NULL) TACITI_TRY(taciti_config_file(&settings->job.config, path));
    TACITI_TRY(taciti_config_environment(&settings->job.config));
    TACITI_TRY(taciti_arguments_parse(verb, &settings->job.config, argc, argv, arguments));
    return taciti_train_settings_complete(settings);
}

static tacit_status check_flags(const taciti_arguments *arguments) {
    const char *form = taciti_arguments_get(arguments, "--print-config");
    const bool json = taciti_arguments_get(arguments, "--json") != NULL, whole = form == NULL || *form == '\0';
    if (!whole && strcmp(form, "changed") != 0)
        return taciti_fail(TACIT_E_CONFIG, "--print-config=%s: --print-config, or --print-config=changed", form);
    const bool dry = taciti_arguments_get(arguments, "--dry-run") != NULL;
    if (json && !(form != NULL ? whole : dry))
        return taciti_fail(TACIT_E_USAGE, "--json goes with --dry-run, or with --print-config without =changed");
    if (!dry || taciti_arguments_get(arguments, "--profile") == NULL) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "--profile measures steps and --dry-run makes none; leave one of them out");
}

static tacit_status print_config(const taciti_config *config, const taciti_arguments *arguments) {
    const bool json = taciti_arguments_get(arguments, "--json") != NULL;
    const bool changed = *taciti_arguments_get(arguments, "--print-config") != '\0';
    if (taciti_launcher_detect().rank > 0) return TACIT_OK; /* the first rank speaks for all */
    char *text = json ? taciti_config_json(config, 0) : taciti_config_yaml(config, changed);
    if (text == NULL) return TACIT_E_MEMORY;
    printf("%s%s", text, json ? "\n" : "");
    taciti_free(text);
    return TACIT_OK;
}

static tacit_status train_over(taciti_train_settings *settings, const taciti_arguments *arguments) {
    taciti_witness *witness = taciti_supervise(settings->job.comm.timeout_s); /* from here on this is the worker */
    taciti_comm *comm = NULL;
    TACITI_TRY(taciti_stop_listen(settings->train.save_every >= 0));
    TACITI_TRY(taciti_comm_open(&settings->job.comm, &comm));
    if (witness != NULL) taciti_comm_attach(comm, witness);
    taciti_cli_log_init(taciti_comm_rank(comm));
    const bool from_mean = taciti_arguments_get(arguments, "--resume-from-mean") != NULL;
    const bool json = taciti_arguments_get(arguments, "--json") != NULL;
    struct json_t *sizes = NULL;
    const taciti_train_request request = {.resume = from_mean || taciti_arguments_get(arguments, "--resume") != NULL,
                                          .from_mean = from_mean,
                                          .dry_run = taciti_arguments_get(arguments, "--dry-run") != NULL,
                                          .file = arguments->positional_count == 1 ? arguments->positional[0] : NULL,
                                          .replay = taciti_arguments_get(arguments, "--replay"),
                                          .profile = taciti_arguments_get(arguments, "--profile"),
                                          .sizes = json ? &sizes : NULL};
    tacit_status status = taciti_train(comm, settings, &request);
    if (sizes != NULL) {
        const tacit_status printed = taciti_cli_print_json(sizes);
        if (status == TACIT_OK) status = printed;
    }
    taciti_comm_close(comm);
    return status;
}

tacit_status taciti_verb_train(const taciti_verb *verb, int argc, char **argv) {
    taciti_train_settings settings;
    taciti_arguments arguments;
    taciti_stop_block();
    (void)signal(SIGPIPE, SIG_IGN); /* a run whose console goes away ends with a checkpoint */
    tacit_status status = read_configuration(verb, argc, argv, &settings, &arguments);
    if (status == TACIT_OK) status = check_flags(&arguments);
    if (status == TACIT_OK && taciti_arguments_get(&arguments, "--print-config") != NULL)
        status = print_config(&settings.job.config, &arguments);
    else if (status == TACIT_OK)
        status = train_over(&settings, &arguments);
    taciti_settings_destroy(&settings.job);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit VERB ...: finds the verb in the table and runs it. Nothing here knows what a verb does.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "comm/comm.h"
#include "comm/guard.h"
#include "comm/launcher.h"
#include "comm/supervise.h"
#include "kernel/kernel.h"

enum { NAME_BYTES = 128 };

/* A verb may be two words: "data prepare". Returns how many it is, 0 for none. */
static int find_verb(int argc, char **argv, const taciti_verb **out) {
    char name[NAME_BYTES];
    for (int words = argc < 2 ? argc : 2; words > 0; words--) {
        const int length =
            snprintf(name, sizeof name, "%s%s%s", argv[0], words == 2 ? " " : "", words == 2 ? argv[1] : "");
        if (length < 0 || (size_t)length >= sizeof name) continue;
        *out = taciti_verb_find(taciti_verbs(), name);
        if (*out != NULL) return words;
    }
    return 0;
}

static bool begins_with(const taciti_verb *verb, const char *word) {
    const size_t length = strlen(word);
    return strncmp(verb->name, word, length) == 0 && verb->name[length] == ' ';
}

/* "data", "data --help": returns whether verbs begin with the word. out NULL: prints nothing. */
static bool show_second_words(const char *word, FILE *out) {
    bool any = false;
    for (const taciti_verb *verb = taciti_verbs(); verb->name != NULL; verb++) {
        if (!begins_with(verb, word)) continue;
        if (out != NULL) (void)fprintf(out, "tacit %-18s %s\n", verb->name, verb->summary);
        any = true;
    }
    if (any && out != NULL) (void)fprintf(out, "\n`tacit %s WORD --help` shows options and examples.\n", word);
    return any;
}

static tacit_status fail_unknown_verb(int argc, char **argv) {
    FILE *list = taciti_launcher_detect().rank <= 0 ? stderr : NULL;
    const bool first = show_second_words(argv[0], list), second = argc > 1 && argv[1][0] != '-';
    if (first && !second) return taciti_fail(TACIT_E_USAGE, "\"%s\" needs a second word", argv[0]);
    char two[NAME_BYTES] = "", quoted[TACITI_QUOTED_BYTES];
    if (argc > 1) (void)snprintf(two, sizeof two, "%.60s %.60s", argv[0], argv[1]);
    taciti_nearest nearest = {0};
    for (const taciti_verb *verb = taciti_verbs(); verb->name != NULL; verb++)
        if (!verb->hidden) taciti_nearest_offer(&nearest, strchr(verb->name, ' ') == NULL ? argv[0] : two, verb->name);
    taciti_nearest_offer(&nearest, argv[0], "--version");
    taciti_nearest_offer(&nearest, argv[0], "--help");
    return taciti_fail(TACIT_E_USAGE, "unknown verb %s%s", taciti_quote(first ? two : argv[0], quoted),
                       *nearest.hint == '\0' ? "; `tacit --help` lists all" : nearest.hint);
}

static bool wants_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static tacit_status show_help(int argc, char **argv) {
    const taciti_verb *verb = NULL;
    const int words = argc == 0 ? 0 : find_verb(argc, argv, &verb);
    if (argc > 0 && words == 0) return show_second_words(argv[0], stdout) ? TACIT_OK : fail_unknown_verb(argc, argv);
    if (argc == 0)
        taciti_overview(taciti_verbs(), stdout);
    else
        taciti_verb_help(verb, argc - words, argv + words);
    return TACIT_OK;
}

/* argc and argv without the program's name. */
static tacit_status run_verb(int argc, char **argv) {
    if (argc == 0) {
        taciti_overview(taciti_verbs(), stderr);
        return TACIT_E_USAGE;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0 || strcmp(argv[0], "help") == 0)
        return show_help(argc - 1, argv + 1);
    if (strcmp(argv[0], "--version") == 0 || strcmp(argv[0], "-V") == 0) {
        printf("tacit %s\n", tacit_version());
        return TACIT_OK;
    }
    const taciti_verb *verb = NULL;
    const int words = find_verb(argc, argv, &verb);
    if (words == 0 && wants_help(argc, argv) && show_second_words(argv[0], stdout)) return TACIT_OK;
    if (words == 0) return fail_unknown_verb(argc, argv);
    if (wants_help(argc - words + 1, argv + words - 1)) {
        taciti_verb_help(verb, argc - words, argv + words);
        return TACIT_OK;
    }
    TACITI_TRY(taciti_kernels_check());
    if (!verb->collective) taciti_log_set_mode(TACITI_LOG_DIRECT); /* each process works for itself */
    return verb->run(verb, argc - words + 1, argv + words - 1);
}

/* Mistakes in arguments and files are usually those of all ranks: where a launcher has started several, one says them.
 * Once the ranks have met (taciti_comm_open()), no line is left here. */
static tacit_status dispatch_together(int argc, char **argv) {
    const taciti_launcher launcher = taciti_launcher_detect();
    taciti_cli_log_init(launcher.rank);
    if (launcher.size > 1) taciti_log_set_mode(launcher.rank == 0 ? TACITI_LOG_KEEP : TACITI_LOG_HOLD);
    const tacit_status status = run_verb(argc, argv);
    if (status != TACIT_OK && taciti_log_held() != 0) taciti_comm_refuse(status, argc, argv);
    taciti_log_set_mode(TACITI_LOG_DIRECT);
    return status;
}

/* One process is enough, and says nothing of where ranks would meet. */
static bool only_prints(int argc, char **argv) {
    static const char FLAG[] = "--print-config";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], FLAG, sizeof FLAG - 1) == 0) return true;
    return false;
}

/* Takes --ranks and --hosts from the command line of a verb that may run on several ranks. */
static tacit_status take_ranks(int *argc, char **argv, taciti_ranks *ranks) {
    const taciti_verb *verb = NULL;
    *ranks = (taciti_ranks){0};
    if (*argc < 2 || find_verb(*argc - 1, argv + 1, &verb) == 0 || !verb->collective) return TACIT_OK;
    if (wants_help(*argc, argv)) return TACIT_OK;
    taciti_cli_log_init(0);
    TACITI_TRY(taciti_ranks_take(argc, argv, ranks));
    if (only_prints(*argc, argv)) *ranks = (taciti_ranks){0};
    const taciti_launcher launcher = taciti_launcher_detect();
    if ((ranks->ranks == 0 && ranks->hosts == NULL) || launcher.name == NULL) return TACIT_OK;
    if (launcher.rank > 0) return TACIT_E_USAGE;
    return taciti_fail(TACIT_E_USAGE, "%s starts processes itself: leave it out, since %s has started %d",
                       ranks->hosts == NULL ? "--ranks" : "--hosts", launcher.name, launcher.size);
}

int main(int argc, char **argv) {
    taciti_ranks ranks;
    if (argc > 1 && strcmp(argv[1], TACITI_RANKS_SERVE) == 0) return taciti_ranks_serve(argc, argv);
    const tacit_status taken = take_ranks(&argc, argv, &ranks);
    if (taken != TACIT_OK) return tacit_status_exit_code(taken);
    if (ranks.ranks > 1 || ranks.hosts != NULL) return taciti_ranks_run(&ranks, argv);
    taciti_guard_install(_exit);
    tacit_status status = dispatch_together(argc > 0 ? argc - 1 : 0, argv + 1);
    const bool written = fflush(stdout) == 0 && ferror(stdout) == 0;
    if (!written) (void)taciti_fail(TACIT_E_IO, "cannot write to the standard output");
    if (!written && status == TACIT_OK) status = TACIT_E_IO;
    taciti_supervise_finish();
    return tacit_status_exit_code(status);
}

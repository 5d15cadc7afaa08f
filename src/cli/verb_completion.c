/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion scripts from the tables of verbs, flags and options. bash splits words at "=", so that "--optim.name=s"
 * arrives as three words. zsh runs the script of bash.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/option_text.h"
#include "cli/verbs.h"

static void print_words_of_verbs(const taciti_verb *verbs) {
    printf("    local verbs=\"help --help --version");
    for (const taciti_verb *verb = verbs; verb->name != NULL; verb++) {
        /* A verb of two words, such as "data prepare", offers its first word once. */
        const size_t length = strcspn(verb->name, " ");
        bool seen = false;
        for (const taciti_verb *other = verbs; other < verb; other++)
            seen = seen || (strcspn(other->name, " ") == length && strncmp(other->name, verb->name, length) == 0);
        if (!seen && !verb->hidden) printf(" %.*s", (int)length, verb->name);
    }
    printf("\"\n");
}

static void print_second_words(const taciti_verb *verbs) {
    for (const taciti_verb *verb = verbs; verb->name != NULL; verb++) {
        const char *second = strchr(verb->name, ' ');
        if (second == NULL || verb->hidden) continue;
        const int length = (int)(second - verb->name);
        printf("    [[ $first == %.*s ]] && seconds=\"$seconds %s\"\n", length, verb->name, second + 1);
    }
}

static void print_flags_of_verbs(const taciti_verb *verbs) {
    taciti_place place;
    char key[TACITI_KEY_BYTES];
    printf("    case $verb in\n");
    for (const taciti_verb *verb = verbs; verb->name != NULL; verb++) {
        if (verb->hidden) continue;
        printf("    \"%s\") flags=\"--help", verb->name);
        for (const taciti_flag *flag = verb->flags; flag->name != NULL; flag++) printf(" %s", flag->name);
        for (size_t i = 0; taciti_config_at(taciti_cli_options(), i, &place); i++)
            if (taciti_option_accepted(verb->keys, &place)) printf(" --%s", taciti_place_key(&place, key));
        printf("\" ;;\n");
    }
    printf("    esac\n");
}

/* Values of a key: choices, true and false, or files. Numbers have no completion. */
static void print_values(void) {
    taciti_place place;
    char key[TACITI_KEY_BYTES], choice[TACITI_CHOICE_BYTES];
    printf("    case $flag in\n");
    for (size_t i = 0; taciti_config_at(taciti_cli_options(), i, &place); i++) {
        const taciti_option_type type = place.option->type;
        if (type == TACITI_OPTION_BOOL) printf("    --%s) values=\"true false\" ;;\n", taciti_place_key(&place, key));
        if (type == TACITI_OPTION_INT || type == TACITI_OPTION_REAL || type == TACITI_OPTION_BYTES)
            printf("    --%s) values=\" \" ;;\n", taciti_place_key(&place, key));
        if (!taciti_option_choice(place.option, 0, choice)) continue;
        printf("    --%s) values=\"", taciti_place_key(&place, key));
        for (int c = 0; taciti_option_choice(place.option, c, choice); c++) printf("%s%s", c > 0 ? " " : "", choice);
        printf("\" ;;\n");
    }
    printf("    esac\n");
}

/* Flags of verbs that take a value: nothing is known about it but that it may be a file. */
static void print_arguments(const taciti_verb *verbs) {
    printf("    case \"$verb $flag\" in\n");
    for (const taciti_verb *verb = verbs; verb->name != NULL; verb++)
        for (const taciti_flag *flag = verb->flags; flag->name != NULL && !verb->hidden; flag++) {
            if (flag->argument == NULL || *flag->argument == '[') continue;
            printf("    \"%s %s\"", verb->name, flag->name);
            if (flag->alias != NULL) printf("|\"%s %s\"", verb->name, flag->alias);
            printf(") takes=1 ;;\n");
        }
    printf("    esac\n");
}

static void print_bash(const taciti_verb *verbs) {
    printf("_tacit() {\n");
    print_words_of_verbs(verbs);
    printf(
        "    local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} start=1 joined=0\n"
        "    local first verb flags=\"--help\" seconds=\"\" values=\"\" takes=0\n"
        "    COMPREPLY=()\n"
        "    # Behind mpirun the program's own words begin later.\n"
        "    while ((start < COMP_CWORD)) && [[ ${COMP_WORDS[start-1]##*/} != tacit ]]; do start=$((start + 1)); done\n"
        "    if [[ $cur == \"=\" ]]; then cur=\"\" joined=1\n"
        "    elif [[ $flag == \"=\" ]]; then flag=${COMP_WORDS[COMP_CWORD-2]} joined=1; fi\n"
        "    if ((COMP_CWORD == start)); then COMPREPLY=($(compgen -W \"$verbs\" -- \"$cur\")); return; fi\n"
        "    first=${COMP_WORDS[start]} verb=$first\n");
    print_second_words(verbs);
    printf(
        "    if [[ -n $seconds ]]; then\n"
        "        if ((COMP_CWORD == start + 1)); then COMPREPLY=($(compgen -W \"$seconds\" -- \"$cur\")); return; fi\n"
        "        verb=\"$first ${COMP_WORDS[start+1]}\"\n"
        "    fi\n"
        "    if [[ $first == help ]]; then COMPREPLY=($(compgen -W \"$verbs\" -- \"$cur\")); return; fi\n"
        "    if [[ $first == completion ]]; then COMPREPLY=($(compgen -W \"bash zsh\" -- \"$cur\")); return; "
        "fi\n");
    print_flags_of_verbs(verbs);
    print_values();
    print_arguments(verbs);
    printf("    if [[ -n $values && $cur != -* ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
           "        # A switch may stand alone: then a file may follow.\n"
           "        [[ $values == \"true false\" ]] && ((!joined)) || return\n"
           "    fi\n"
           "    if ((!takes && !joined)) && [[ $cur == -* ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
           "        return\n"
           "    fi\n"
           "    local IFS=$'\\n'\n"
           "    compopt -o filenames 2>/dev/null\n"
           "    COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
           "}\n"
           "complete -F _tacit tacit\n");
}

static void print_zsh(const taciti_verb *verbs) {
    printf("(( $+functions[compdef] )) || { autoload -U compinit && compinit; }\n"
           "autoload -U +X bashcompinit && bashcompinit\n");
    print_bash(verbs);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*print)(const taciti_verb *verbs);
} SHELLS[] = {{"bash", print_bash}, {"zsh", print_zsh}};
enum { SHELL_COUNT = sizeof SHELLS / sizeof *SHELLS };

tacit_status taciti_verb_completion(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments arguments;
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &arguments));
    for (int i = 0; i < SHELL_COUNT && arguments.positional_count == 1; i++) {
        if (strcmp(arguments.positional[0], SHELLS[i].name) != 0) continue;
        printf("# %s completion for tacit %s; printed by `tacit completion %s`\n", SHELLS[i].name, tacit_version(),
               SHELLS[i].name);
        SHELLS[i].print(verb->all);
        return TACIT_OK;
    }
    return taciti_fail(TACIT_E_USAGE, "name the shell: tacit completion bash or zsh");
}

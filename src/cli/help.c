/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit --help, tacit VERB --help and the text of manual pages, from the tables of verbs, flags and options.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/option_text.h"

enum { COLUMNS = 79, NAME_COLUMNS = 24, USAGE_BYTES = 512 };

/* Up to the next blank that is not inside brackets: "[--dir FOLDER]" stays on one line. */
static size_t word_length(const char *text, const char *end) {
    size_t length = 0;
    for (int depth = 0; text + length < end && (text[length] != ' ' || depth > 0); length++) {
        depth += text[length] == '[';
        depth -= text[length] == ']';
    }
    return length;
}

/* Prints text from column `column` on, wrapping at blanks; following lines start behind `indent` blanks. Ends the line.
 */
static void print_paragraph(FILE *out, int indent, int column, const char *text, size_t length) {
    const char *end = text + length;
    while (text < end) {
        const size_t word = word_length(text, end);
        if (column > indent && column + 1 + (int)word > COLUMNS) {
            (void)fputc('\n', out);
            column = 0;
        }
        if (column < indent)
            column += fprintf(out, "%*s", indent - column, "");
        else if (column > indent)
            column += fprintf(out, " ");
        column += fprintf(out, "%.*s", (int)word, text);
        text += word;
        text += text < end;
    }
    (void)fputc('\n', out);
}

void taciti_print_wrapped(FILE *out, int indent, const char *text) {
    while (*text != '\0') {
        const size_t length = strcspn(text, "\n");
        if (length == 0 || *text == ' ')
            (void)fprintf(out, "%*s%.*s\n", length == 0 ? 0 : indent, "", (int)length, text);
        else
            print_paragraph(out, indent, 0, text, length);
        text += length;
        text += *text != '\0';
    }
}

/* "  --json        text": the text wrapped in its column; behind a name that is too wide if that fills one line, or
 * else on the next. */
void taciti_print_entry(FILE *out, const char *name, const char *text) {
    int column = fprintf(out, "  %s", name);
    if (column > NAME_COLUMNS - 2 && column + 2 + (int)strlen(text) <= COLUMNS) {
        (void)fprintf(out, "  %s\n", text);
        return;
    }
    if (column > NAME_COLUMNS - 2) {
        (void)fputc('\n', out);
        column = 0;
    }
    column += fprintf(out, "%*s", NAME_COLUMNS - column, "");
    print_paragraph(out, NAME_COLUMNS, column, text, strlen(text));
}

static void print_flags(FILE *out, const taciti_verb *verb) {
    char usage[USAGE_BYTES];
    (void)fprintf(out, "\noptions:\n");
    for (const taciti_flag *flag = verb->flags; flag->name != NULL; flag++) {
        const bool named = flag->argument != NULL;
        (void)snprintf(usage, sizeof usage, "%s%s%s%s%s", flag->alias == NULL ? "" : flag->alias,
                       flag->alias == NULL ? "" : ", ", flag->name, !named || *flag->argument == '[' ? "" : " ",
                       named ? flag->argument : "");
        taciti_print_entry(out, usage, flag->help);
    }
    taciti_print_entry(out, "-h, --help", "show this text");
}

/* ---- configuration ----------------------------------------------------------------------------------------------- */

/* Sets what flags set and, if asked for, files among the other words: of those, only a configuration can be read. */
static void read_words(int argc, char **argv, bool files) {
    for (int next = 0; next < argc;) {
        const bool is_flag = strncmp(argv[next], "--", 2) == 0;
        if (is_flag && taciti_config_flag(taciti_cli_options(), argc, argv, &next) == TACIT_OK) continue;
        if (files && taciti_file_is_plain(argv[next])) (void)taciti_config_file(taciti_cli_options(), argv[next]);
        next++;
    }
}

/* Sets what the run on the command line would set. Its mistakes are for the verb to tell. */
static void read_run(const taciti_verb *verb, int argc, char **argv) {
    char reason[TACITI_REASON_BYTES];
    taciti_log_capture(reason);
    if (strstr(verb->synopsis, ".yaml") != NULL) read_words(argc, argv, true);
    (void)taciti_config_environment(taciti_cli_options());
    read_words(argc, argv, false); /* flags come last */
    taciti_log_capture(NULL);
}

/* Options that the run on the command line would read, or all that the verb accepts; verbs without a run of their own
 * measure or predict any. */
static bool is_shown(const taciti_verb *verb, bool all, const taciti_place *place) {
    const bool trains = taciti_settings_registered(place->table) || strcmp(verb->name, "train") == 0;
    const taciti_reader reader = strcmp(verb->keys, "codecs.") == 0 ? TACITI_READER_CODECS
                                 : trains                           ? TACITI_READER_TRAIN
                                                                    : TACITI_READER_PLAN;
    if (!taciti_option_accepted(verb->keys, place)) return false;
    const bool common = (place->option->flags & TACITI_OPTION_EXPERT) == 0;
    return all || (common && taciti_settings_reads(taciti_cli_settings(), reader, place));
}

/* The options of registered sections (strategies, codecs, controllers), or all others. */
static void print_sections(FILE *out, const taciti_verb *verb, bool all, bool registered) {
    char usage[TACITI_OPTION_TEXT_BYTES], text[TACITI_OPTION_TEXT_BYTES];
    const taciti_option_table *table = NULL;
    taciti_place place;
    for (size_t i = 0; taciti_config_at(taciti_cli_options(), i, &place); i++) {
        if (taciti_settings_registered(place.table) != registered || !is_shown(verb, all, &place)) continue;
        if (place.table != table && *place.table->section != '\0') {
            const int column = fprintf(out, " %s:", place.table->section);
            print_paragraph(out, 1, column, place.table->help, strlen(place.table->help));
        }
        table = place.table;
        taciti_option_usage(&place, usage, sizeof usage);
        (all ? taciti_option_explain : taciti_option_shorten)(&place, text, sizeof text);
        taciti_print_entry(out, usage, text);
    }
}

static void print_options(FILE *out, const taciti_verb *verb, bool all) {
    (void)fprintf(out, "\nconfiguration (defaults in brackets):\n");
    print_sections(out, verb, all, false);
    print_sections(out, verb, all, true);
    if (all) return;
    (void)fprintf(out, "\nAll keys, with ranges: tacit info options\n");
    if (*verb->keys == '\0' || strstr(verb->keys, "registered.") != NULL)
        (void)fprintf(out,
                      "Those of a strategy, a codec or a policy:\n"
                      "  tacit %s --strategy gossip --help\n"
                      "  tacit %s --compress.codec topk --help\n",
                      verb->name, verb->name);
}

static void print_examples(FILE *out, const char *lines) {
    (void)fprintf(out, "\nexamples:\n");
    while (*lines != '\0') {
        const size_t length = strcspn(lines, "\n");
        (void)fprintf(out, "  %.*s\n", (int)length, lines);
        lines += length + (lines[length] != '\0');
    }
}

void taciti_print_verb(FILE *out, const taciti_verb *verb, bool all) {
    char usage[USAGE_BYTES];
    const int column = fprintf(out, "tacit %s:", verb->name);
    print_paragraph(out, 1, column, verb->summary, strlen(verb->summary));
    (void)snprintf(usage, sizeof usage, "%stacit %s %s", verb->collective ? "[mpirun -n N] " : "", verb->name,
                   verb->synopsis);
    const int begin = fprintf(out, "\nusage: ") - 1; /* following lines stand below the first word behind it */
    print_paragraph(out, begin, begin, usage, strlen(usage));
    (void)fputc('\n', out);
    taciti_print_wrapped(out, 0, verb->description);
    print_flags(out, verb);
    if (*verb->example != '\0') print_examples(out, verb->example);
    if (verb->keys != NULL) print_options(out, verb, all);
}

void taciti_verb_help(const taciti_verb *verb, int argc, char **argv) {
    if (verb->keys != NULL) read_run(verb, argc, argv);
    taciti_print_verb(stdout, verb, false);
}

void taciti_overview(const taciti_verb *verbs, FILE *out) {
    (void)fprintf(out,
                  "tacit %s: training over links that are slow next to the compute\n\n"
                  "usage: [mpirun -n N] tacit VERB [ARGUMENT ...]\n\nverbs:\n",
                  tacit_version());
    for (const taciti_verb *verb = verbs; verb->name != NULL; verb++)
        if (!verb->hidden) (void)fprintf(out, "  %-18s %s\n", verb->name, verb->summary);
    (void)fprintf(
        out, "\n`tacit VERB --help` shows a verb's options and examples; `tacit --version` the version.\n"
             "exit codes: 0 ok, 1 defect, 2 usage, 3 configuration, 4 data, 5 peer failure, 6 numerics, 7 resources\n");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit --help and tacit VERB --help, from the tables of verbs, flags and options.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/option_text.h"

enum { COLUMNS = 79, NAME_COLUMNS = 24 };

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
        if (length == 0 || *text == ' ') {
            (void)fprintf(out, "%*s%.*s\n", length == 0 ? 0 : indent, "", (int)length, text);
        } else {
            print_paragraph(out, indent, 0, text, length);
        }
        text += length;
        text += *text != '\0';
    }
}

/* "  --json        text", the text wrapped in its column, on the next line when the name is too wide. */
static void print_entry(const char *name, const char *text) {
    int column = printf("  %s", name);
    if (column > NAME_COLUMNS - 2) {
        (void)putchar('\n');
        column = 0;
    }
    column += printf("%*s", NAME_COLUMNS - column, "");
    print_paragraph(stdout, NAME_COLUMNS, column, text, strlen(text));
}

static void print_flags(const taciti_verb *verb) {
    char name[128];
    printf("\noptions:\n");
    for (const taciti_flag *flag = verb->flags; flag->name != NULL; flag++) {
        (void)snprintf(name, sizeof name, "%s%s%s%s%s", flag->alias == NULL ? "" : flag->alias,
                       flag->alias == NULL ? "" : ", ", flag->name,
                       flag->argument == NULL || *flag->argument == '[' ? "" : " ",
                       flag->argument == NULL ? "" : flag->argument);
        print_entry(name, flag->help);
    }
    print_entry("-h, --help", "show this text");
}

static void print_option(const taciti_place *place) {
    char name[TACITI_OPTION_TEXT_BYTES], text[TACITI_OPTION_TEXT_BYTES];
    if ((place->option->flags & TACITI_OPTION_EXPERT) != 0) return;
    taciti_option_usage(place, name, sizeof name);
    taciti_option_explain(place, text, sizeof text);
    print_entry(name, text);
}

static void print_options(const char *keys) {
    const taciti_config *config = taciti_cli_options();
    const taciti_option_table *table = NULL;
    taciti_place place;
    printf("\nconfiguration:\n");
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) {
        if (!taciti_option_accepted(keys, &place)) continue;
        if (place.table != table)
            printf("\n %s%s%s\n", place.table->section, *place.table->section == '\0' ? "" : ": ", place.table->help);
        table = place.table;
        print_option(&place);
    }
}

/* Following lines stand below the first word behind "usage:". */
static void print_usage(const taciti_verb *verb) {
    enum { INDENT = sizeof "usage: " - 1 };
    char line[512];
    (void)snprintf(line, sizeof line, "%stacit %s %s", verb->collective ? "[mpirun -n N] " : "", verb->name,
                   verb->synopsis);
    const int column = printf("usage: ");
    print_paragraph(stdout, INDENT, column, line, strlen(line));
    (void)putchar('\n');
}

void taciti_verb_help(const taciti_verb *verb) {
    const int column = printf("tacit %s:", verb->name);
    print_paragraph(stdout, 1, column, verb->summary, strlen(verb->summary));
    (void)putchar('\n');
    print_usage(verb);
    taciti_print_wrapped(stdout, 0, verb->description);
    print_flags(verb);
    if (verb->keys != NULL) print_options(verb->keys);
    if (*verb->example != '\0') {
        printf("\nexamples:\n");
        const char *line = verb->example;
        while (*line != '\0') {
            const size_t length = strcspn(line, "\n");
            printf("  %.*s\n", (int)length, line);
            line += length + (line[length] != '\0');
        }
    }
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Manual pages from the tables of verbs, flags and options, in the man(7) macros.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/option_text.h"
#include "cli/verbs.h"

const taciti_flag taciti_man_flags[] = {
    {"--all", NULL, "FOLDER", "write the pages of all verbs into this folder"},
    {NULL, NULL, NULL, NULL},
};

enum { NAME_BYTES = 128, PATH_BYTES = 4096 };

/* Escapes what roff would read as its own: backslashes, dots and quotes at the start of a line, minus signs. */
static void print_text(FILE *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const bool starts = i == 0 || text[i - 1] == '\n';
        if (starts && (text[i] == '.' || text[i] == '\'')) (void)fputs("\\&", out);
        if (text[i] == '\\')
            (void)fputs("\\e", out);
        else if (text[i] == '-')
            (void)fputs("\\-", out);
        else
            (void)fputc(text[i], out);
    }
}

static void print_line(FILE *out, const char *text) {
    print_text(out, text, strlen(text));
    (void)fputc('\n', out);
}

static void print_paragraphs(FILE *out, const char *text) {
    while (*text != '\0') {
        const size_t length = strcspn(text, "\n");
        if (length == 0)
            (void)fputs(".PP\n", out);
        else if (*text == ' ')
            (void)fputs(".br\n", out);
        print_text(out, text, length);
        if (length > 0) (void)fputc('\n', out);
        text += length;
        text += *text != '\0';
    }
}

static void print_item(FILE *out, const char *term, const char *text) {
    (void)fputs(".TP\n.B ", out);
    print_line(out, term);
    print_line(out, text);
}

/* "tacit-data-prepare" */
static void page_name(const taciti_verb *verb, char *out, size_t size) {
    (void)snprintf(out, size, "tacit-%s", verb->name);
    for (char *c = out; *c != '\0'; c++)
        if (*c == ' ') *c = '-';
}

static void print_title(FILE *out, const char *name, const char *summary) {
    (void)fputs(".TH ", out);
    print_text(out, name, strlen(name));
    (void)fprintf(out, " 1 \"\" \"tacit %s\" \"tacit\"\n.SH NAME\n", tacit_version());
    print_text(out, name, strlen(name));
    (void)fputs(" \\- ", out);
    print_line(out, summary);
}

static void print_flags(FILE *out, const taciti_verb *verb) {
    char usage[TACITI_FLAG_USAGE_BYTES];
    (void)fputs(".SH OPTIONS\n", out);
    for (const taciti_flag *flag = verb->flags; flag->name != NULL; flag++) {
        taciti_flag_usage(flag, usage, sizeof usage);
        print_item(out, usage, flag->help);
    }
    print_item(out, "-h, --help", "show a short text");
}

static void print_options(FILE *out, const char *keys) {
    const taciti_config *config = taciti_cli_options();
    const taciti_option_table *table = NULL;
    taciti_place place;
    char name[TACITI_OPTION_TEXT_BYTES], text[TACITI_OPTION_TEXT_BYTES];
    (void)fputs(".SH CONFIGURATION\n", out);
    print_line(out,
               "Keys of the YAML file are flags and environment variables as well: the key lr of the section optim "
               "is --optim.lr and TACIT_OPTIM_LR. Later wins: default, file, environment, flag.");
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) {
        if (!taciti_option_accepted(keys, &place)) continue;
        if (place.table != table) {
            (void)fputs(".SS ", out);
            print_line(out, *place.table->section == '\0' ? "top level" : place.table->section);
            print_line(out, place.table->help);
        }
        table = place.table;
        taciti_option_usage(&place, name, sizeof name);
        taciti_option_explain(&place, text, sizeof text);
        print_item(out, name, text);
    }
}

static void print_exit_status(FILE *out) {
    (void)fputs(".SH EXIT STATUS\n", out);
    print_line(out, "0 success, 2 wrong usage, 3 configuration refused, 4 data refused, 5 a peer failed, 6 a number is "
                    "not finite, 7 memory, disk or another resource failed, 1 a defect in tacit.");
}

static void print_verb(FILE *out, const taciti_verb *verb) {
    char name[NAME_BYTES];
    page_name(verb, name, sizeof name);
    print_title(out, name, verb->summary);
    (void)fputs(".SH SYNOPSIS\n", out);
    if (verb->collective) (void)fputs("[\\fBmpirun\\fR \\-n N] ", out);
    (void)fprintf(out, "\\fBtacit %s\\fR ", verb->name);
    print_line(out, verb->synopsis);
    (void)fputs(".SH DESCRIPTION\n", out);
    print_paragraphs(out, verb->description);
    print_flags(out, verb);
    if (verb->keys != NULL) print_options(out, verb->keys);
    if (*verb->example != '\0') {
        (void)fputs(".SH EXAMPLES\n.EX\n", out);
        print_line(out, verb->example);
        (void)fputs(".EE\n", out);
    }
    print_exit_status(out);
    (void)fputs(".SH SEE ALSO\n.BR tacit (1)\n", out);
}

static void print_program(FILE *out, const taciti_verb *verbs) {
    char name[NAME_BYTES];
    print_title(out, "tacit", "training over links that are slow next to the compute");
    (void)fputs(".SH SYNOPSIS\n[\\fBmpirun\\fR \\-n N] \\fBtacit\\fR VERB [\\fB\\-\\-ranks\\fR N] [ARGUMENT ...]\n.SH "
                "DESCRIPTION\n",
                out);
    print_line(out, "tacit trains neural networks over links that are slow next to the compute. It sends fewer bytes "
                    "between workers, keeps the loss, and tells beforehand whether that pays.");
    (void)fputs(".SH VERBS\n", out);
    for (const taciti_verb *verb = verbs; verb->name != NULL; verb++)
        if (!verb->hidden) print_item(out, verb->name, verb->summary);
    (void)fputs(".SH ENVIRONMENT\n", out);
    print_item(out, "TACIT_SECTION_KEY", "sets a key of the configuration; see tacit-train(1)");
    print_item(out, "TACIT_ISA", "scalar, avx2 or avx512: the instruction set of the kernels (default: the best)");
    print_item(out, "TACIT_PLUGINS",
               "the folder of the plugins for MPI libraries (default: where they were installed)");
    print_item(out, "NO_COLOR", "when set, no colour on the terminal");
    print_exit_status(out);
    (void)fputs(".SH SEE ALSO\n", out);
    const char *separator = "";
    for (const taciti_verb *verb = verbs; verb->name != NULL; verb++) {
        if (verb->hidden) continue;
        page_name(verb, name, sizeof name);
        (void)fprintf(out, "%s.BR ", separator);
        print_text(out, name, strlen(name));
        (void)fputs(" (1)", out);
        separator = " ,\n";
    }
    (void)fputc('\n', out);
}

/* verb NULL: the program's own page. */
static void print_page(FILE *out, const taciti_verb *verbs, const taciti_verb *verb) {
    if (verb == NULL)
        print_program(out, verbs);
    else
        print_verb(out, verb);
}

static tacit_status write_page(const char *folder, const taciti_verb *verbs, const taciti_verb *verb) {
    char name[NAME_BYTES] = "tacit", path[PATH_BYTES];
    if (verb != NULL) page_name(verb, name, sizeof name);
    (void)snprintf(name + strlen(name), sizeof name - strlen(name), ".1");
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, name));
    FILE *out = fopen(path, "w");
    if (out == NULL) return taciti_fail(TACIT_E_IO, "%s: cannot be written", path);
    print_page(out, verbs, verb);
    const bool wrong = ferror(out) != 0;
    return fclose(out) == 0 && !wrong ? TACIT_OK : taciti_fail(TACIT_E_IO, "%s: cannot be written", path);
}

static tacit_status write_pages(const char *folder, const taciti_verb *verbs) {
    TACITI_TRY(taciti_file_make_folder(folder));
    TACITI_TRY(write_page(folder, verbs, NULL));
    for (const taciti_verb *next = verbs; next->name != NULL; next++)
        if (!next->hidden) TACITI_TRY(write_page(folder, verbs, next));
    return TACIT_OK;
}

tacit_status taciti_verb_man(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments arguments;
    char name[NAME_BYTES] = "";
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &arguments));
    const char *folder = taciti_arguments_get(&arguments, "--all");
    const size_t words = arguments.positional_count;
    if (folder != NULL) return write_pages(folder, verb->all);
    if (words > 0)
        (void)snprintf(name, sizeof name, "%s%s%s", arguments.positional[0], words > 1 ? " " : "",
                       words > 1 ? arguments.positional[1] : "");
    const taciti_verb *wanted = taciti_verb_find(verb->all, name);
    if (wanted == NULL && words > 0)
        return taciti_fail(TACIT_E_USAGE, "there is no verb \"%s\"; `tacit --help` lists all", name);
    print_page(stdout, verb->all, wanted);
    return TACIT_OK;
}

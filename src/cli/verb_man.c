/* SPDX-License-Identifier: Apache-2.0
 *
 * Manual pages in the man(7) macros: the texts of --help, with every key and its range.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/verbs.h"

const taciti_flag taciti_man_flags[] = {
    {"--all", NULL, "FOLDER", "write the pages of all verbs into this folder"},
    {NULL, NULL, NULL, NULL},
};

enum { NAME_BYTES = 128 };

typedef struct page {
    const taciti_verb *verbs, *verb; /* verb NULL: the program's own page */
} page;

static void print_help(FILE *out, const void *object) {
    const page *p = object;
    if (p->verb != NULL) {
        taciti_print_verb(out, p->verb, true);
        return;
    }
    taciti_overview(p->verbs, out);
    (void)fputs("\nenvironment:\n", out);
    taciti_print_entry(out, "TACIT_SECTION_KEY",
                       "sets a key of the configuration, as --section.key does; see tacit-train(1)");
    taciti_print_entry(out, "TACIT_ISA",
                       "scalar, avx2 or avx512: the instruction set of the kernels (default: the best)");
    taciti_print_entry(out, "TACIT_PLUGINS",
                       "the folder of the plugins for MPI libraries (default: where they were installed)");
    taciti_print_entry(out, "NO_COLOR", "when set, no colour on the terminal");
}

/* Escapes what roff would read as its own: backslashes, dots and quotes at the start of a line, minus signs. */
static void print_text(FILE *out, const char *text) {
    for (const char *c = text; *c != '\0'; c++) {
        const bool starts = c == text || c[-1] == '\n';
        if (starts && (*c == '.' || *c == '\'')) (void)fputs("\\&", out);
        if (*c == '\\')
            (void)fputs("\\e", out);
        else if (*c == '-')
            (void)fputs("\\-", out);
        else
            (void)fputc(*c, out);
    }
}

/* "tacit-data-prepare" */
static void page_name(const taciti_verb *verb, char out[NAME_BYTES]) {
    (void)snprintf(out, NAME_BYTES, "tacit%s%s", verb == NULL ? "" : " ", verb == NULL ? "" : verb->name);
    for (char *c = out; *c != '\0'; c++)
        if (*c == ' ') *c = '-';
}

static tacit_status print_page(FILE *out, const page *p) {
    char name[NAME_BYTES], *help = taciti_text_of(print_help, p);
    if (help == NULL) return taciti_fail(TACIT_E_MEMORY, "no memory for the text of a manual page");
    page_name(p->verb, name);
    (void)fputs(".TH ", out);
    print_text(out, name);
    (void)fprintf(out, " 1 \"\" \"tacit %s\" \"tacit\"\n.SH NAME\n", tacit_version());
    print_text(out, name);
    (void)fputs(" \\- ", out);
    print_text(out, p->verb == NULL ? "training over links that are slow next to the compute" : p->verb->summary);
    (void)fputs("\n.SH DESCRIPTION\n.nf\n.in 0\n", out); /* the text has lines of its own, as wide as a terminal */
    print_text(out, help);
    (void)fprintf(out, ".fi\n.SH SEE ALSO\n.BR %s (1)\n", p->verb == NULL ? "tacit\\-VERB" : "tacit");
    taciti_free(help);
    return TACIT_OK;
}

static tacit_status write_page(const char *folder, const page *p) {
    char name[NAME_BYTES], path[TACITI_PATH_BYTES];
    page_name(p->verb, name);
    (void)snprintf(name + strlen(name), sizeof name - strlen(name), ".1");
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, name));
    FILE *out = fopen(path, "w");
    if (out == NULL) return taciti_file_fail("cannot be written", path);
    const tacit_status status = print_page(out, p);
    const bool wrong = ferror(out) != 0;
    return fclose(out) == 0 && !wrong ? status : taciti_fail(TACIT_E_IO, "%s: cannot be written", path);
}

static tacit_status write_pages(const char *folder, const taciti_verb *verbs) {
    TACITI_TRY(taciti_file_make_folder(folder));
    TACITI_TRY(write_page(folder, &(const page){verbs, NULL}));
    for (const taciti_verb *next = verbs; next->name != NULL; next++)
        if (!next->hidden) TACITI_TRY(write_page(folder, &(const page){verbs, next}));
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
    return print_page(stdout, &(const page){verb->all, wanted});
}

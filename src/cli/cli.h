/* SPDX-License-Identifier: Apache-2.0
 *
 * Verbs. One table serves dispatch, --help, man pages and completion; one file per verb.
 */
#ifndef TACITI_CLI_CLI_H
#define TACITI_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/option.h"

/* A flag of one verb that is not a configuration key: --json, -o FILE, --prompt TEXT. */
typedef struct taciti_flag {
    const char *name;     /* "--json"; alias "-o" in `alias` */
    const char *alias;    /* or NULL */
    const char *argument; /* "FILE", or NULL for a switch */
    const char *help;
} taciti_flag;

typedef struct taciti_verb {
    const char *name;         /* "train", or "data prepare" for a sub-verb */
    const char *synopsis;     /* "[CONFIG.yaml] [--section.key VALUE ...] [--resume]" */
    const char *summary;      /* one line, lower case */
    const char *description;  /* paragraphs for man page and --help */
    const char *example;      /* shown by --help; one or more command lines with comments */
    const taciti_flag *flags; /* ends with a NULL name */
    /* Configuration keys that are flags: NULL none, "" all, else words: "strategy" that key, "data." those of a section
     */
    const char *keys;
    bool collective; /* meant to run under mpirun */
    bool hidden;     /* for scripts: not in overview, man pages and completion */
    /* verbs: the table of all verbs. argv[0] is the verb's last word. Returns the process's exit code. */
    int (*run)(const struct taciti_verb *verbs, int argc, char **argv);
} taciti_verb;

/* All verbs, ends with a NULL name. */
const taciti_verb *taciti_verbs(void);

/* The verb of this name ("data prepare"), or NULL. */
const taciti_verb *taciti_verb_find(const taciti_verb *verbs, const char *name);

enum { TACITI_FLAGS_MAX = 32, TACITI_POSITIONAL_MAX = 4096, TACITI_GIVEN_MAX = 256 };

/* Parsed flags of a verb: looks names up in the table, refuses unknown ones with the nearest legal flag. */
typedef struct taciti_arguments {
    const taciti_verb *verb;
    const char
        *values[TACITI_FLAGS_MAX]; /* by index in verb->flags; "" for a switch that was given, NULL when absent */
    struct {
        size_t flag; /* index in verb->flags */
        const char *value;
    } given[TACITI_GIVEN_MAX]; /* every flag in the order of the command line, for those that may be repeated */
    size_t given_count;
    const char *positional[TACITI_POSITIONAL_MAX];
    size_t positional_count;
} taciti_arguments;

/* Flags and words in any order; "--" ends the flags; later flags win. config may be NULL; its keys are flags too, in
 * the syntax of taciti_config_flag(). Borrows argv. Errors are logged; TACIT_E_USAGE or E_CONFIG. */
tacit_status taciti_arguments_parse(const taciti_verb *verb, const taciti_config *config, int argc, char **argv,
                                    taciti_arguments *out);
/* Value of a flag by name, or NULL. */
const char *taciti_arguments_get(const taciti_arguments *arguments, const char *flag);
/* Value of the index-th time that a flag was given, or NULL: for flags that may be repeated. */
const char *taciti_arguments_each(const taciti_arguments *arguments, const char *flag, size_t index);

/* A flag that is a whole number from `least` to `most`, or a number above 0 and up to `most`. The fallback, which need
 * not be within, when it was not given. E_USAGE names flag, value and range. */
tacit_status taciti_arguments_count(const taciti_arguments *arguments, const char *flag, int64_t fallback, int64_t min,
                                    int64_t max, int64_t *out);
tacit_status taciti_arguments_number(const taciti_arguments *arguments, const char *flag, double fallback, double max,
                                     double *out);
/* Refuses words for a verb that takes flags only. */
tacit_status taciti_arguments_no_words(const taciti_arguments *arguments);

/* Prints a verb's help (options from the same tables the code uses). */
void taciti_verb_help(const taciti_verb *verb);

/* Prints what the program is and all its verbs. */
void taciti_overview(const taciti_verb *verbs, FILE *out);

/* Text of several paragraphs, wrapped at 79 columns behind `indent` blanks; lines that begin with a blank are kept. */
void taciti_print_wrapped(FILE *out, int indent, const char *text);

/* The console sink for the log: "tacit: error: ..." on stderr, in colour on a terminal unless NO_COLOR is set.
 * Information and warnings are shown by rank 0 only, errors by every rank, which then says who it is. verbose: debug
 * lines too. */
void taciti_cli_log_init(int rank, bool verbose);

/* Whether text on this stream may be coloured: a terminal that can, and NO_COLOR is not set. */
bool taciti_cli_has_colour(FILE *stream);

/* Prints and releases a jansson value on the standard output; NULL (memory was short when it was made) is E_MEMORY. */
struct json_t;
tacit_status taciti_cli_print_json(struct json_t *value);

#endif

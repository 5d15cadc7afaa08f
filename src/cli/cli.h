/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs of the program, one file each. One table serves dispatch, --help, man pages and completion.
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
    const char *argument; /* "FILE"; "[=WORD]": may be left out; NULL: a switch */
    const char *help;
} taciti_flag;

typedef struct taciti_verb {
    const char *name;         /* "train", or "data prepare" for a sub-verb */
    const char *synopsis;     /* "[CONFIG.yaml] [--section.key VALUE ...] [--resume]" */
    const char *summary;      /* one line, lower case */
    const char *description;  /* paragraphs for man page and --help */
    const char *example;      /* shown by --help; one or more command lines with comments */
    const taciti_flag *flags; /* ends with a NULL name */
    /* Configuration keys that are also flags of this verb. NULL: none; "": all; else words: "strategy" is that key,
     * "data." all keys of that section. */
    const char *keys;
    bool collective;               /* runs under mpirun */
    bool hidden;                   /* for scripts: absent from overview, man pages and completion */
    const struct taciti_verb *all; /* all verbs, for those that describe them; NULL in others */
    /* verb: itself. argv[0] is the last word of the verb. */
    tacit_status (*run)(const struct taciti_verb *verb, int argc, char **argv);
} taciti_verb;

/* All verbs, ends with a NULL name. */
const taciti_verb *taciti_verbs(void);

/* The verb of this name ("data prepare"), or NULL. */
const taciti_verb *taciti_verb_find(const taciti_verb *verbs, const char *name);

enum { TACITI_FLAGS_MAX = 32, TACITI_POSITIONAL_MAX = 4096, TACITI_GIVEN_MAX = 256 };

/* The parsed command line of a verb. */
typedef struct taciti_arguments {
    const taciti_verb *verb;
    const char *values[TACITI_FLAGS_MAX]; /* by index in verb->flags; "" for a switch that was given, NULL if absent */
    struct {
        size_t flag; /* index in verb->flags */
        const char *value;
    } given[TACITI_GIVEN_MAX]; /* every flag in the order of the command line, for those that may be repeated */
    size_t given_count;
    const char *positional[TACITI_POSITIONAL_MAX];
    size_t positional_count;
} taciti_arguments;

/* Parses flags and words, in any order; "--" ends the flags, and of repeated flags the last one counts. If config is
 * not NULL, its keys are flags too, in the syntax of taciti_config_flag(). Borrows argv. Returns E_USAGE, which names
 * the nearest flag, or E_CONFIG for a value that is refused. */
tacit_status taciti_arguments_parse(const taciti_verb *verb, const taciti_config *config, int argc, char **argv,
                                    taciti_arguments *out);
/* Value of a flag by name, or NULL. */
const char *taciti_arguments_get(const taciti_arguments *arguments, const char *flag);
/* Value of the index-th occurrence of a flag, or NULL; for flags that may be repeated. */
const char *taciti_arguments_each(const taciti_arguments *arguments, const char *flag, size_t index);

/* Parse the value of a flag: count, an integer in min..max; number, a number above 0, or 0 if `zero`, and up to max.
 * Without the flag, *out = fallback, which may be outside of the range. E_CONFIG names flag, value and range. */
tacit_status taciti_arguments_count(const taciti_arguments *arguments, const char *flag, int64_t fallback, int64_t min,
                                    int64_t max, int64_t *out);
tacit_status taciti_arguments_number(const taciti_arguments *arguments, const char *flag, double fallback, bool zero,
                                     double max, double *out);
/* Sets *out to the index of the flag's value among `choices`, such as "hf|llmc"; to `fallback` without the flag.
 * E_CONFIG names flag, value and choices. */
tacit_status taciti_arguments_choice(const taciti_arguments *arguments, const char *flag, const char *choices,
                                     int fallback, int *out);
/* Returns E_USAGE if words were given, for verbs that take flags only. */
tacit_status taciti_arguments_no_words(const taciti_arguments *arguments);

/* Prints the help of a verb; options come from the option tables. argv: the words behind the verb, which choose the
 * strategy, codec and policy whose options are shown, as do the environment and a configuration file among them. */
void taciti_verb_help(const taciti_verb *verb, int argc, char **argv);

/* Prints the same text: with the options that a run with the settings so far would read or, if `all`, with every option
 * and its range. */
void taciti_print_verb(FILE *out, const taciti_verb *verb, bool all);

/* Prints a description of the program and a list of all verbs. */
void taciti_overview(const taciti_verb *verbs, FILE *out);

/* Prints paragraphs wrapped at 79 columns and indented by `indent` blanks. Lines that begin with a blank are not
 * wrapped.
 */
void taciti_print_wrapped(FILE *out, int indent, const char *text);

/* Prints a name and, beside it, what it means, wrapped at 79 columns. */
void taciti_print_entry(FILE *out, const char *name, const char *text);

/* Directs the log to stderr: "tacit: error: ...", in colour on a terminal unless NO_COLOR is set. Rank 0 prints
 * information and warnings; every rank prints its errors, with its number. */
void taciti_cli_log_init(int rank);

/* Shows a line of progress on standard error, if that is a terminal, in place of the one before; at most five per
 * second, and the first call shows none, so that what is over at once shows none. NULL wipes it. */
void taciti_cli_progress(const char *format, ...) TACITI_PRINTF(1, 2);

/* Prints a jansson value to standard output and releases it. Returns E_MEMORY if value is NULL. */
struct json_t;
tacit_status taciti_cli_print_json(struct json_t *value);

#endif

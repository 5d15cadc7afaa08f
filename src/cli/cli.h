/* SPDX-License-Identifier: Apache-2.0
 *
 * Verbs. One table serves dispatch, --help, man pages and completion; one file per verb.
 */
#ifndef TACITI_CLI_CLI_H
#define TACITI_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

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
    bool configured;          /* takes configuration keys as flags */
    bool collective;          /* meant to run under mpirun */
    /* argv[0] is the verb's last word. Returns the process's exit code. */
    int (*run)(int argc, char **argv);
} taciti_verb;

/* All verbs, ends with a NULL name. */
const taciti_verb *taciti_verbs(void);

/* Parsed flags of a verb: looks names up in the table, refuses unknown ones with the nearest legal flag. */
typedef struct taciti_arguments {
    const taciti_verb *verb;
    const char *values[32]; /* by index in verb->flags; "" for a switch that was given, NULL when absent */
    const char *positional[64];
    size_t positional_count;
} taciti_arguments;

/* config may be NULL; configuration flags (--a.b) go there. Errors are logged; TACIT_E_USAGE or E_CONFIG. */
tacit_status taciti_arguments_parse(const taciti_verb *verb, const taciti_config *config, int argc, char **argv,
                                    taciti_arguments *out);
/* Value of a flag by name, or NULL. */
const char *taciti_arguments_get(const taciti_arguments *arguments, const char *flag);

/* Prints a verb's help (options from the same tables the code uses). */
void taciti_verb_help(const taciti_verb *verb);

/* The console sink for the log: "tacit: error: ..." on stderr, ends a live line first. */
void taciti_cli_log_init(int rank, bool verbose);

#endif

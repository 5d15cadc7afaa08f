/* SPDX-License-Identifier: Apache-2.0
 *
 * One option table per module is the single source of YAML keys, flags, environment variables, --help, `tacit info
 * options`, the documentation and the record in checkpoints.
 *
 *   key "optim.name"  =  YAML  optim: {name: adamw}  =  --optim.name adamw  =  TACIT_OPTIM_NAME=adamw
 *
 * Later wins: default < configuration file < environment < flag. Unknown keys, wrong types and values out of range are
 * errors that name file, line, column and the nearest legal key.
 */
#ifndef TACITI_BASE_OPTION_H
#define TACITI_BASE_OPTION_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

typedef enum taciti_option_type {
    TACITI_OPTION_BOOL,  /* bool: true/false/yes/no/on/off/1/0; a flag without a value means true */
    TACITI_OPTION_INT,   /* int64_t */
    TACITI_OPTION_REAL,  /* double */
    TACITI_OPTION_BYTES, /* int64_t; accepts suffixes KiB MiB GiB kB MB GB */
    TACITI_OPTION_ENUM,  /* int: index into `choices` */
    TACITI_OPTION_TEXT,  /* taciti_text */
    TACITI_OPTION_LIST,  /* taciti_list: YAML sequence, or a flag followed by one or more words */
} taciti_option_type;

/* Text values live in fixed storage, so that option structs can be copied and compared as plain memory. */
typedef struct taciti_text {
    char text[256];
} taciti_text;

/* A list of texts. Owned by the configuration that filled it; released by taciti_config_destroy(). */
typedef struct taciti_list {
    char **items;
    size_t count;
} taciti_list;

/* What is not part of a run's identity (output folders, log level, threads) is left out of the configuration digest. */
#define TACITI_OPTION_NO_DIGEST 1u
/* Rarely needed: listed by `tacit info options`, not by --help. */
#define TACITI_OPTION_EXPERT 2u

typedef struct taciti_option {
    const char *key; /* without the section: "name" */
    taciti_option_type type;
    size_t offset;        /* of the value in the module's option struct */
    const char *fallback; /* default, in the same syntax as a flag's value; "" for an empty text or list */
    double least, most;   /* range of INT, REAL and BYTES; both 0: any */
    const char *choices;  /* ENUM: "sgd|adamw" in enum order */
    const char *unit;     /* "steps", "bytes", "nats", or "" */
    const char *help;     /* one sentence, lower case, no full stop */
    unsigned flags;
} taciti_option;

typedef struct taciti_option_table {
    const char *section; /* "optim"; YAML top-level key and flag prefix. "" puts keys at top level (`strategy`) */
    const char *help;    /* what the section is about, one sentence */
    const taciti_option *options;
    size_t count;
} taciti_option_table;

/* A table and the struct it fills. A configuration is an array of them. */
typedef struct taciti_section {
    const taciti_option_table *table;
    void *values;
} taciti_section;

typedef struct taciti_config {
    const taciti_section *sections; /* borrows */
    size_t count;
} taciti_config;

/* Everything below: any thread, not collective; errors are logged with file:line:column and the nearest legal key. */

/* Writes every default. Call first. */
tacit_status taciti_config_defaults(const taciti_config *config);

/* Reads one strict YAML file: a mapping of sections to mappings of scalars or sequences of scalars. Aliases, tags,
 * duplicate keys and multiple documents are errors. */
tacit_status taciti_config_file(const taciti_config *config, const char *path);

/* Reads TACIT_<SECTION>_<KEY> variables; an unknown TACIT_ variable with a known section is an error. */
tacit_status taciti_config_environment(const taciti_config *config);

/* Consumes leading "--section.key value", "--section.key=value", "--key" arguments from argv[*next]; stops at the
 * first argument that is not a flag or is "--" (which it consumes). "--no-section.key" is accepted for BOOL. A LIST
 * flag takes every following word up to the next one that begins with "--". */
tacit_status taciti_config_flags(const taciti_config *config, int argc, char *const *argv, int *next);

/* Sets one key from text, as if by a flag; `origin` names where it comes from in errors ("--optim.name"). */
tacit_status taciti_config_set(const taciti_config *config, const char *key, const char *value, const char *origin);

/* The whole configuration as canonical JSON object text {"optim.name": "adamw", ...}, keys in table order, values as
 * numbers, booleans, strings or arrays. digest_only leaves out NO_DIGEST options. Returns owned; taciti_free(). */
char *taciti_config_json(const taciti_config *config, int digest_only);

/* The nearest legal full key to `key` by edit distance, or NULL when nothing is close. Borrowed from a static table
 * of this call's thread; valid until the next call. */
const char *taciti_config_nearest(const taciti_config *config, const char *key);

/* Releases lists. */
void taciti_config_destroy(const taciti_config *config);

#endif

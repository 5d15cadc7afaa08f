/* SPDX-License-Identifier: Apache-2.0
 *
 * One option table per module is the single source of YAML keys, flags, environment variables, --help, `tacit info
 * options`, the documentation and the record in checkpoints.
 *
 *   key "optim.name"  =  YAML  optim: {name: adamw}  =  --optim.name adamw  =  TACIT_OPTIM_NAME=adamw
 *
 * Later wins: default < configuration file < environment < flag. Unknown keys, wrong types and values out of range are
 * errors that name file, line, column and the nearest legal key, or what has taken the place of an old one.
 */
#ifndef TACITI_BASE_OPTION_H
#define TACITI_BASE_OPTION_H

#include "base/text.h"
#include "tacit/tacit.h"

typedef enum taciti_option_type {
    TACITI_OPTION_BOOL,  /* bool: true/false/yes/no/on/off/1/0; a flag without a value means true */
    TACITI_OPTION_INT,   /* int64_t (or a uint64_t whose range ends at INT64_MAX) */
    TACITI_OPTION_REAL,  /* double; always finite */
    TACITI_OPTION_BYTES, /* int64_t; accepts suffixes KiB MiB GiB kB MB GB */
    TACITI_OPTION_ENUM,  /* int: index into `choices` */
    TACITI_OPTION_NAME,  /* taciti_text: one of the names that `names` lists, those of a registry */
    TACITI_OPTION_TEXT,  /* taciti_text; valid UTF-8 */
    TACITI_OPTION_LIST,  /* taciti_list: YAML sequence, or a flag followed by one or more words. From one text (default,
                          * environment, taciti_config_set) items are separated by blanks */
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

/* Not part of a run's identity (output folders, log level, threads): left out of the configuration digest. */
#define TACITI_OPTION_NO_DIGEST 1u
/* Rarely needed: listed by `tacit info options`, not by --help. */
#define TACITI_OPTION_EXPERT 2u
/* NAME: of a codec or controller; one that earlier versions had is refused with what to take instead (option_old.c). */
#define TACITI_OPTION_MEMBER 4u

typedef struct taciti_option {
    const char *key; /* without the section: "name" */
    taciti_option_type type;
    size_t offset;        /* of the value in the module's option struct */
    const char *fallback; /* default, in the same syntax as a flag's value; "" for an empty text or list */
    double min, max;      /* range of INT, REAL and BYTES; both 0: any */
    bool zero;            /* 0 is legal below min, too */
    const char *below;    /* what to type for a number below the range; NULL: nothing is meant by one */
    const char *choices;  /* ENUM: "sgd|adamw" in enum order */
    const char *unit;     /* "steps", "bytes"; NULL: none */
    const char *help;     /* one sentence, lower case, no full stop */
    unsigned flags;
    const char *(*names)(size_t index); /* NAME: the index-th legal name; NULL behind the last that is shown; names
                                           that are not shown follow, and then NULL */
    const char *when;                   /* the condition under which anything reads the value; NULL: always */
} taciti_option;

/* A condition is a list of terms separated by blanks, all of which must hold. A term is "key=value|value" or
 * "key!=value", with a full key of the configuration and values as taciti_place_text() writes them, or the name of a
 * fact (settings/unread.c). It serves evaluation, messages, `tacit info options` and --help. */

/* One row of a table: TACITI_OPTION("lr", REAL, offsetof(...), "6e-4", .max = 1e3, .help = "peak learning rate"). */
#define TACITI_OPTION(name, kind, place, value, ...)                                                                   \
    { .key = (name), .type = TACITI_OPTION_##kind, .offset = (place), .fallback = (value), __VA_ARGS__ }

typedef struct taciti_option_table {
    const char *section; /* "optim"; YAML top-level key and flag prefix. "" puts keys at top level (`strategy`) */
    const char *help;    /* what the section is about, one sentence */
    const taciti_option *options;
    size_t count;
    const char *when; /* the condition of all options, as in taciti_option; NULL: none */
} taciti_option_table;

/* A table of the rows of an array, without a condition. */
#define TACITI_OPTION_TABLE(name, about, rows)                                                                         \
    { .section = (name), .help = (about), .options = (rows), .count = sizeof(rows) / sizeof *(rows) }

/* Origin of a value. A file may record a whole configuration; values that were typed are meant. */
typedef enum taciti_given { TACITI_GIVEN_NOT, TACITI_GIVEN_IN_FILE, TACITI_GIVEN_TYPED } taciti_given;

/* A table and the struct it fills. A configuration is an array of them. */
typedef struct taciti_section {
    const taciti_option_table *table;
    void *values;
    taciti_given *given; /* [table->count]; borrowed. NULL: not recorded */
} taciti_section;

typedef struct taciti_config {
    const taciti_section *sections; /* borrows */
    size_t count;
} taciti_config;

/* Everything below: any thread, not collective; errors are logged with file:line:column and the nearest legal key.
 * After an error the values are those from before plus what was read up to the error. */

/* Writes every default. Call first. */
tacit_status taciti_config_defaults(const taciti_config *config);

/* Reads one strict YAML file: a mapping of sections to mappings of scalars or sequences of scalars. Aliases, tags,
 * duplicate keys, quoted numbers and multiple documents are errors, and so is a file over 1 MiB. An empty file or
 * section sets nothing. */
tacit_status taciti_config_file(const taciti_config *config, const char *path);

/* Reads TACIT_<SECTION>_<KEY> variables; an unknown TACIT_ variable with a known section, or nearly the name of a key,
 * is an error. */
tacit_status taciti_config_environment(const taciti_config *config);

/* Consumes the flag at argv[*next], which begins with "--": "--section.key value", "--section.key=value", "--key".
 * "--no-section.key" is accepted for BOOL. A BOOL flag takes the next word only when that is a boolean; a LIST flag
 * takes every following word up to the next one that begins with "--", or just the text behind "=". E_USAGE for an
 * unknown flag or a missing value, E_CONFIG for a value that is refused. */
tacit_status taciti_config_flag(const taciti_config *config, int argc, char *const *argv, int *next);

/* Sets one key from text, as if by a flag; `origin` names where it comes from in errors ("--optim.name"). */
tacit_status taciti_config_set(const taciti_config *config, const char *key, const char *value, const char *origin);

/* Sets one key from text unless it was given, and does not count as giving it: for defaults that depend on another
 * option. value NULL: the default of the table. A value that was given
 * in a file counts as typed if it is another one. */
tacit_status taciti_config_preset(const taciti_config *config, const char *key, const char *value, const char *origin);

/* Parses the text, checks the range and stores the value; releases the old items of a LIST. Stores nothing on error,
 * whose message begins with `where`. */
tacit_status taciti_value_set(const taciti_option *option, const char *where, const char *text, void *value);

/* One option of a configuration. */
typedef struct taciti_place {
    const taciti_option_table *table;
    const taciti_option *option;
    void *value;
    taciti_given *given; /* NULL: not recorded */
    size_t index;        /* in table order over the whole configuration */
} taciti_place;

/* The index-th option, or the one with this full key; false when there is none. */
bool taciti_config_at(const taciti_config *config, size_t index, taciti_place *out);
bool taciti_config_find(const taciti_config *config, const char *key, taciti_place *out);

/* As find; E_CONFIG, with the nearest legal key, when there is none. origin as for taciti_config_set(). */
tacit_status taciti_config_need(const taciti_config *config, const char *key, const char *origin, taciti_place *out);

/* "optim.name". */
enum { TACITI_KEY_BYTES = 96 };
const char *taciti_place_key(const taciti_place *place, char out[TACITI_KEY_BYTES]);

/* The value as a flag takes it, cut where `out` ends: "0.5", "true", "topk", the items of a LIST between blanks. */
enum { TACITI_VALUE_BYTES = 512 };
const char *taciti_place_text(const taciti_place *place, char out[TACITI_VALUE_BYTES]);
/* All of it. Returns owned; taciti_free(). NULL when memory is short. */
char *taciti_place_whole_text(const taciti_place *place);

/* Whether the value is what the text says; whether it is the default of the table. */
bool taciti_place_is(const taciti_place *place, const char *text);
bool taciti_place_is_default(const taciti_place *place);

/* Whether `min` and `max` bound the value; a bound of TACITI_UNBOUNDED or more is no upper bound. */
#define TACITI_UNBOUNDED 9e18
bool taciti_option_bounded(const taciti_option *option);

/* The index-th choice of an ENUM or NAME; false behind the last, and for other types. */
enum { TACITI_CHOICE_BYTES = 64 };
bool taciti_option_choice(const taciti_option *option, int index, char out[TACITI_CHOICE_BYTES]);

/* All of them: "sgd|adamw"; "" for other types. */
enum { TACITI_CHOICES_BYTES = 512 };
const char *taciti_option_choices(const taciti_option *option, char out[TACITI_CHOICES_BYTES]);

/* The whole configuration as canonical JSON object text {"optim.name": "adamw", ...}, keys in table order, values as
 * numbers, booleans, strings or arrays. digest_only leaves out NO_DIGEST options. Reals have the fewest digits that
 * read back as the same double, whatever the locale, so that equal configurations give equal bytes. Returns owned;
 * taciti_free(). NULL when memory is short. */
char *taciti_config_json(const taciti_config *config, int digest_only);

/* The same as an object of jansson's; json_decref(). */
struct json_t *taciti_config_values(const taciti_config *config, int digest_only);

/* The whole configuration as YAML that taciti_config_file() reads back to the same values. only_changed: without
 * options that have the default of their table. Returns owned; taciti_free(). NULL when memory is short. */
char *taciti_config_yaml(const taciti_config *config, bool only_changed);

/* A key that earlier versions had (option_old.c). It is refused with what to type instead: "KEY has become NOW:
 * TEXT", or without `now` "KEY has gone: TEXT". A key that ends with a dot stands for all keys of its section. */
typedef struct taciti_old_key {
    const char *key, *now;
    const char *was;  /* the value, as JSON, with which a run was what it is now; NULL: none. A section
                         whose codec is still there has the values of all its keys: "128|true" */
    const char *text; /* a clause without a full stop */
} taciti_old_key;

/* All of them; the last one has a NULL key. */
const taciti_old_key *taciti_old_keys(void);

/* The old key with this name, "compress.ratio", or with the variable of that name, "TACIT_COMPRESS_RATIO", or the
 * section of that key. NULL: there is none. */
const taciti_old_key *taciti_old_key_find(const char *name);

/* Writes what to type instead, as errors say it: "NAME has gone: ...", where `name` was typed. */
enum { TACITI_OLD_KEY_BYTES = 400 };
const char *taciti_old_key_text(const taciti_old_key *old, const char *name, char out[TACITI_OLD_KEY_BYTES]);

/* The nearest legal full key to `key` by edit distance. */
taciti_nearest taciti_config_nearest(const taciti_config *config, const char *key);

/* Releases lists. */
void taciti_config_destroy(const taciti_config *config);

#endif

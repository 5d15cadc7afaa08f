/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the configuration as text, for --help, `info options` and the manual pages.
 */
#ifndef TACITI_CLI_OPTION_TEXT_H
#define TACITI_CLI_OPTION_TEXT_H

#include <stdbool.h>

#include "settings/settings.h"

enum { TACITI_OPTION_TEXT_BYTES = 1024 };

/* Return the settings of training with their defaults, and all options of all verbs, which are its configuration.
 * Borrowed; valid until the process ends. One thread. */
const taciti_settings *taciti_cli_settings(void);
const taciti_config *taciti_cli_options(void);

/* Returns whether a verb with these keys (taciti_verb.keys) accepts the option. "registered." stands for the sections
 * of all strategies and codecs, "codecs." for those of all codecs. */
bool taciti_option_accepted(const char *keys, const taciti_place *place);

/* "--optim.name adamw|sgd", "--comm.thread", "--data.train TEXT ..." */
void taciti_option_usage(const taciti_place *place, char *out, size_t size);

/* "0..1", "at least 0" or "". */
void taciti_option_range(const taciti_option *option, char *out, size_t size);

/* "peak learning rate (0..1; default 6e-4)" */
void taciti_option_explain(const taciti_place *place, char *out, size_t size);

/* Writes the help up to its first semicolon, and the default: "peak learning rate (6e-4)". */
void taciti_option_shorten(const taciti_place *place, char *out, size_t size);

/* Key, type, default, range, choices, ...: an element of `info options --json`. Returns owned. */
struct json_t;
struct json_t *taciti_option_json(const taciti_place *place);

/* The options of a table that tacit knows, as a JSON array, and indented, one per line. table NULL: none. */
struct json_t *taciti_table_json(const taciti_option_table *table);
void taciti_table_print(const taciti_option_table *table);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the value of one option and writes it as text. Private to base/.
 */
#ifndef TACITI_BASE_OPTION_VALUE_H
#define TACITI_BASE_OPTION_VALUE_H

#include <stdio.h>

#include "base/option.h"

/* The origin of a value, "--optim.lr" or "train.yaml:4:9: optim.lr". Every message about the value begins with it. */
enum { TACITI_WHERE_BYTES = 512 };

/* Stores the words as a LIST. */
tacit_status taciti_value_set_list(const char *where, char *const *items, size_t count, void *value);

/* The same for an option of a configuration, which is given from then on. */
tacit_status taciti_place_set(const taciti_place *place, const char *where, const char *text);
tacit_status taciti_place_set_list(const taciti_place *place, const char *where, char *const *items, size_t count);

/* Writes the value: numbers with the fewest digits that read back, texts by `quote`, a LIST as [a, b]. */
typedef void taciti_quoter(FILE *out, const char *text);
void taciti_value_write(FILE *out, const taciti_option *option, const void *value, taciti_quoter *quote);

/* Sets an empty value. The storage may be uninitialised. */
void taciti_value_clear(const taciti_option *option, void *value);

#define TACITI_VARIABLE_PREFIX "TACIT_"

/* "optim.name" -> "TACIT_OPTIM_NAME" */
void taciti_variable_name(const char *key, char *out, size_t size);

/* Whether text is one of true, false, yes, no, on, off, 1, 0. */
bool taciti_boolean_parse(const char *text, bool *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * One value of one option: from text into its storage, and back into JSON. Private to base/.
 */
#ifndef TACITI_BASE_OPTION_VALUE_H
#define TACITI_BASE_OPTION_VALUE_H

#include "base/option.h"

/* "--optim.lr" or "train.yaml:4:9: optim.lr": stands in front of every message about a value. */
enum { TACITI_WHERE_BYTES = 512 };

/* Parses, checks the range and stores. Only a value that passed is stored; a LIST's old items are released. */
tacit_status taciti_value_set(const taciti_option *option, const char *where, const char *text, void *value);

/* A LIST from words. */
tacit_status taciti_value_set_list(const char *where, char *const *items, size_t count, void *value);

/* Without looking at what is there (uninitialised storage). */
void taciti_value_clear(const taciti_option *option, void *value);

/* Whether text is one of true, false, yes, no, on, off, 1, 0. */
bool taciti_boolean_parse(const char *text, bool *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings that a comparison compares. Each is a configuration of strategy, exchange, compute and optimizer. The
 * first is the base, set by configuration keys on the command line; the others are the base with some keys changed:
 *
 *   --against "exchange.wire=bf16 exchange.bucket=4MiB"
 */
#ifndef TACITI_BENCH_SETTINGS_H
#define TACITI_BENCH_SETTINGS_H

#include "settings/settings.h"

enum { TACITI_SETTINGS_MAX = 16, TACITI_LABEL_BYTES = 96 };

typedef struct taciti_bench_setting {
    char label[TACITI_LABEL_BYTES]; /* "base", or the changes as they were given */
    taciti_settings job;            /* `model` and `comm` are the same in all settings; it must not move */
} taciti_bench_setting;

typedef struct taciti_bench_settings {
    taciti_bench_setting *list; /* owned; the first is the base */
    size_t count;
} taciti_bench_settings;

/* An empty list. Returns owned. */
tacit_status taciti_bench_settings_create(taciti_bench_settings *out);
void taciti_bench_settings_destroy(taciti_bench_settings *settings); /* {0} is fine */

/* Appends a setting of defaults. */
tacit_status taciti_bench_settings_add(taciti_bench_settings *settings, const char *label, taciti_bench_setting **out);

/* Checks what can be known before a rank starts: the strategy's options, profiles, and that stragglers are among
 * `ranks`. Not collective. */
tacit_status taciti_bench_setting_check(const taciti_bench_setting *setting, int ranks);

/* Sets the keys of "KEY=VALUE KEY=VALUE ..."; items of a list are separated by commas. `text` names itself in errors.
 */
tacit_status taciti_bench_setting_change(taciti_bench_setting *setting, const char *text);

/* Whether forward and backward are emulated. */
bool taciti_bench_setting_emulated(const taciti_bench_setting *setting);

/* The strategy and all other keys that differ from their defaults, but for the network's: "strategy dp, exchange.wire
 * bf16". */
void taciti_bench_setting_text(const taciti_bench_setting *setting, char *out, size_t size);

/* How the setting's replicas differ: "topology aer, order awc", "every 16, outer lr 0.7, outer momentum 0.9", or "". */
void taciti_bench_setting_method(const taciti_bench_setting *setting, char *out, size_t size);

#endif

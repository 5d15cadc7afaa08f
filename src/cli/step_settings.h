/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the settings of `bench step` from the command line.
 */
#ifndef TACITI_CLI_STEP_SETTINGS_H
#define TACITI_CLI_STEP_SETTINGS_H

#include "bench/settings.h"
#include "cli/cli.h"

/* The keys that a verb with settings takes, for taciti_verb.keys. */
#define TACITI_SETTING_KEYS "strategy model. optim. exchange. compress. adapt. registered. comm. compute."

/* Applies, in this order, defaults, TACIT_ variables, the command line and the changes of each --against. Checks all
 * that can be checked before ranks start. Returns owned; call the destructor also after an error. Not collective. */
tacit_status taciti_step_settings_read(const taciti_verb *verb, int argc, char **argv, int ranks,
                                       taciti_arguments *arguments, taciti_bench_settings *out);

#endif

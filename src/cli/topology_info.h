/* SPDX-License-Identifier: Apache-2.0
 *
 * `tacit info topologies`: the list, the figures of all of them at some size, one of them round by round, its drawing.
 */
#ifndef TACITI_CLI_TOPOLOGY_INFO_H
#define TACITI_CLI_TOPOLOGY_INFO_H

#include "cli/cli.h"
#include "plan/topology_sheet.h"

struct json_t;

/* Names and help, without a size. */
struct json_t *taciti_topologies_json(void);
void taciti_topologies_print(void);

/* What the flags of `info` that are about topologies ask for: `name` is one topology, or NULL for all. */
tacit_status taciti_topologies_show(const taciti_arguments *arguments, const char *name);

/* Whether one of those flags was given; its name, or NULL. */
const char *taciti_topologies_flag(const taciti_arguments *arguments);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * `tacit info topologies`: a list of names, figures of all topologies for a number of ranks, or one topology round by
 * round and as a drawing.
 */
#ifndef TACITI_CLI_TOPOLOGY_INFO_H
#define TACITI_CLI_TOPOLOGY_INFO_H

#include "cli/cli.h"
#include "cli/topology_sheet.h"

struct json_t;

/* Names and help of all topologies: a topic of `info`. */
struct json_t *taciti_topologies_list(bool json, bool all);

/* Prints what the flags of `info` for topologies request. name: one topology; NULL: all. */
tacit_status taciti_topologies_show(const taciti_arguments *arguments, const char *name);

/* Returns the name of such a flag that was given, or NULL. */
const char *taciti_topologies_flag(const taciti_arguments *arguments);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A topology on given hosts with its figures: mixing rate and traffic.
 */
#ifndef TACITI_CLI_TOPOLOGY_SHEET_H
#define TACITI_CLI_TOPOLOGY_SHEET_H

#include "cli/cli.h"
#include "topo/topo.h"

typedef struct taciti_topology_sheet {
    taciti_topology topology;
    bool has_figures; /* up to TACITI_TOPO_FIGURES_MAX ranks */
    taciti_topo_figures figures;
    bool has_limit;            /* up to TACITI_TOPO_LIMIT_MAX ranks */
    double awc_limit;          /* awc converges for lr L below this */
    double *nic;               /* [period] model sizes on the link of the round's busiest host, per direction */
    double nic_mean, nic_peak; /* the busiest host's mean over the rounds; the max in a round */
    int moved;                 /* ranks that the placement moved from host order */
    const taciti_hosts *hosts; /* borrowed */
} taciti_topology_sheet;

/* Creates a sheet. request->hosts must not be NULL and is borrowed for the life of the sheet. Refuses what
 * taciti_topology_create() refuses. Returns owned. Any thread. */
tacit_status taciti_topology_sheet_create(const taciti_topo_request *request, const taciti_topo_awc *awc,
                                          taciti_topology_sheet *out);
void taciti_topology_sheet_destroy(taciti_topology_sheet *sheet);

/* ---- topology_info.c: `tacit info topologies` ---- */

/* Names and help of all topologies: a topic of `info`. */
struct json_t *taciti_topologies_list(bool json, bool all);

/* Prints what the flags of `info` for topologies request. name: one topology; NULL: all. */
tacit_status taciti_topologies_show(const taciti_arguments *arguments, const char *name);

/* Returns the name of such a flag that was given, or NULL. */
const char *taciti_topologies_flag(const taciti_arguments *arguments);

#endif

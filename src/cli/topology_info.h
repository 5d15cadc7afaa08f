/* SPDX-License-Identifier: Apache-2.0
 *
 * `tacit info topologies`: the list, the figures of all of them at some size, one of them round by round, its drawing.
 */
#ifndef TACITI_CLI_TOPOLOGY_INFO_H
#define TACITI_CLI_TOPOLOGY_INFO_H

#include "cli/cli.h"
#include "exchange/demand.h"

struct json_t;

/* A topology on a cluster, and all that is said about it. */
typedef struct taciti_topology_sheet {
    taciti_topology topology;
    bool has_figures; /* up to TACITI_TOPO_FIGURES_MAX ranks */
    taciti_topo_figures figures;
    bool has_limit;            /* up to TACITI_TOPO_LIMIT_MAX ranks */
    double awc_limit;          /* awc converges for lr L below this */
    double *nic;               /* [period] model sizes on the link of the round's busiest host, per direction */
    double nic_mean, nic_peak; /* the busiest host's mean over the rounds; the most in a round */
    int moved;                 /* ranks that do not sit where filling hosts in order would have put them */
    taciti_hosts hosts;        /* borrowed */
} taciti_topology_sheet;

/* Names and help, without a size. */
struct json_t *taciti_topologies_json(void);
void taciti_topologies_print(void);

/* What the flags of `info` that are about topologies ask for: `name` is one topology, or NULL for all. */
tacit_status taciti_topologies_show(const taciti_arguments *arguments, const char *name);

/* Whether one of those flags was given; its name, or NULL. */
const char *taciti_topologies_flag(const taciti_arguments *arguments);

/* The drawing as text, owned: taciti_free(). NULL when memory is short. */
char *taciti_topology_draw(const taciti_topology_sheet *sheet);

#endif

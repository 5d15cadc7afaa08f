/* SPDX-License-Identifier: Apache-2.0
 *
 * The section `gossip` of a configuration.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "strategy/gossip.h"

#define AT(member) offsetof(taciti_gossip_options, member)

static const char *topology_name(size_t index) {
    const taciti_topo_kind *kind = taciti_topo_kinds();
    while (kind->name != NULL && index-- > 0) kind++;
    return kind->name;
}

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("topology", NAME, AT(topology), "exp", .names = topology_name,
                  .help = "who mixes with whom; `tacit info topologies` lists all"),
    TACITI_OPTION("file", TEXT, AT(file), "", .when = "gossip.topology=file",
                  .help = "mixing matrices of topology `file`, .csv or .npy"),
    TACITI_OPTION("order", ENUM, AT(order), "awc", .choices = "awc|atc",
                  .help =
                      "awc: mix while the next step computes; bears smaller learning rates (awc limit of `tacit info "
                      "topologies -n N`). atc: update, then mix and wait"),
    TACITI_OPTION("degree", INT, AT(degree), "0", .max = 1024, .unit = "ranks", .when = "gossip.topology=base-k|torus",
                  .help = "base-k: most partners per round; torus: columns; 0: the topology's own"),
    TACITI_OPTION("period", INT, AT(period), "0", .max = 4096, .unit = "rounds", .when = "gossip.topology=random",
                  .help = "random: rounds drawn before they repeat; 0: the topology's own"),
    TACITI_OPTION("seed", INT, AT(seed), "1", .max = TACITI_UNBOUNDED, .when = "gossip.topology=random",
                  .help = "random: the rounds are a function of it"),
    TACITI_OPTION("per_host", INT, AT(per_host), "0", .max = 4096, .unit = "ranks",
                  .help = "ranks per host as the topology sees them; 0: as they are"),
    TACITI_OPTION("gamma", REAL, AT(gamma), "1", .max = 1,
                  .help = "consensus factor: how far a mix goes, from 0 (not at all) to 1"),
    TACITI_OPTION("gamma_power", REAL, AT(gamma_power), "0", .max = 16,
                  .help = "from gamma_start on gamma follows (lr / peak lr) to this power; 0: constant"),
    TACITI_OPTION("gamma_floor", REAL, AT(gamma_floor), "0", .max = 1, .when = "gossip.gamma_power!=0",
                  .help = "least share of gamma that the schedule leaves"),
    TACITI_OPTION("gamma_start", INT, AT(gamma_start), "-1", .min = -1, .max = 1e12, .unit = "steps",
                  .when = "gossip.gamma_power!=0",
                  .help = "step from which on gamma follows the learning rate; -1: the end of the warm-up"),
    TACITI_OPTION(
        "every", INT, AT(every), "1", .min = 1, .max = 1e6, .unit = "steps",
        .help = "steps per mix; with order awc a transfer may take as many iterations, for one more array of memory"),
    TACITI_OPTION("mixes", INT, AT(mixes), "1", .min = 1, .max = TACITI_GOSSIP_MAX_MIXES, .unit = "mixes",
                  .help = "mixes per step; all but the first are waited for in the step"),
    TACITI_OPTION("accelerate", BOOL, AT(accelerate), "false",
                  .help = "extrapolate between the mixes of a step (symmetric topologies of one round)"),
    TACITI_OPTION(
        "tracker", BOOL, AT(tracker), "false",
        .help =
            "update with a mixed estimate of the mean gradient, for unequal data; twice the bytes, three more arrays"),
    TACITI_OPTION(
        "target", REAL, AT(target), "0", .max = 1e3,
        .help = "consensus distance, relative to the parameters' norm, above which a step makes more mixes; 0: off"),
    TACITI_OPTION("delay", INT, AT(delay), "0", .max = 1, .unit = "iterations",
                  .help = "iterations more that a transfer may take; 1 needs gamma 0.5 or less and two more arrays"),
};

const taciti_option_table taciti_gossip_option_table = {.section = "gossip",
                                                        .help =
                                                            "replicas that mix with a few neighbours (strategy gossip)",
                                                        .options = OPTIONS,
                                                        .count = sizeof OPTIONS / sizeof *OPTIONS};

/* ---- what the planner prices ------------------------------------------------------------------------------------- */

/* What changes the number of mixes in a step is in no pattern. */
static tacit_status refuse_more_mixes(const taciti_gossip_options *o) {
    const char *key = o->mixes > 1 ? "gossip.mixes 1" : o->tracker ? "no-gossip.tracker" : NULL;
    if (o->target > 0) key = "gossip.target 0";
    if (key == NULL) return TACIT_OK;
    return taciti_fail(
        TACIT_E_CONFIG,
        "plan predicts one mix of the parameters per step, but gossip.mixes is %lld, gossip.tracker %s and "
        "gossip.target %g; plan without: --%s",
        (long long)o->mixes, o->tracker ? "on" : "off", o->target, key);
}

/* A topology has its options where they are given for it. */
static taciti_pattern pattern_of(const taciti_gossip_options *o, const char *topology, int order) {
    const bool configured = strcmp(o->topology.text, topology) == 0, awc = order == TACITI_GOSSIP_AWC;
    taciti_pattern pattern = {.order = awc ? TACITI_ORDER_AWC : TACITI_ORDER_ATC,
                              .topology = {.name = topology, .per_host = (int)o->per_host, .seed = (uint64_t)o->seed},
                              .every = (int)o->every,
                              .delay = awc ? (int)o->delay : 0,
                              .configured = configured && o->order == order};
    if (configured) {
        pattern.topology.degree = (int)o->degree;
        pattern.topology.period = (int)o->period;
        pattern.topology.file = o->file.text[0] == '\0' ? NULL : o->file.text;
    }
    (void)snprintf(pattern.label, sizeof pattern.label, "gossip %s %s", topology, awc ? "awc" : "atc");
    return pattern;
}

tacit_status taciti_gossip_patterns(const void *options, taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count) {
    const taciti_gossip_options *o = options;
    TACITI_TRY(refuse_more_mixes(o));
    *count = 0;
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++)
        for (int order = TACITI_GOSSIP_AWC; order <= TACITI_GOSSIP_ATC && *count < TACITI_PATTERNS_MAX; order++)
            if (o->file.text[0] != '\0' || strcmp(kind->name, "file") != 0)
                out[(*count)++] = pattern_of(o, kind->name, order);
    return TACIT_OK;
}

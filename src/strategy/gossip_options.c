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
    if (index-- == 0) return TACITI_TOPO_AUTO;
    const taciti_topo_kind *kind = taciti_topo_kinds();
    while (kind->name != NULL && index-- > 0) kind++;
    return kind->name;
}

/* Lists the codecs that mixes can go through; NULL stands before those that are not shown, and at the end. */
static const char *codec_name(size_t index) {
    static const char *const WORDS[] = {"none", "auto", TACITI_GOSSIP_POWER};
    const size_t words = sizeof WORDS / sizeof *WORDS;
    if (index < words) return WORDS[index];
    index -= words;
    for (size_t i = 0, ends = 0; ends < 2; i++) {
        const char *name = taciti_codec_name(i);
        if (name != NULL && !taciti_gossip_takes(taciti_codec_find(name))) continue;
        if (index-- == 0) return name;
        ends += name == NULL;
    }
    return NULL;
}

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("topology", NAME, AT(topology), TACITI_TOPO_AUTO, .names = topology_name,
                  .help = "who mixes with whom; `tacit info topologies` lists all. auto: " TACITI_TOPO_AUTO_RULE),
    TACITI_OPTION("file", TEXT, AT(file), "", .when = "gossip.topology=file",
                  .help = "mixing matrices of topology `file`, .csv"),
    TACITI_OPTION("order", ENUM, AT(order), "awc", .choices = "awc|atc",
                  .help =
                      "awc: mix while the next step computes; bears smaller learning rates (awc limit of `tacit info "
                      "topologies -n N`). atc: update, then mix and wait"),
    TACITI_OPTION("codec", NAME, AT(codec), "none", .names = codec_name,
                  .help =
                      "what mixes are compressed with, as differences to what neighbours know: int4 (auto) sends 7.5 "
                      "times fewer bytes than f32, topk by compress.factor; an array more for every group of a rank. "
                      "powergossip: matrices as products of low rank",
                  .flags = TACITI_OPTION_MEMBER),
    TACITI_OPTION("columns", INT, AT(columns), "4", .min = 1, .max = 1024, .when = "gossip.codec=" TACITI_GOSSIP_POWER,
                  .help = "columns of both factors of a matrix: more come closer to the mean, for as many more bytes"),
    TACITI_OPTION("degree", INT, AT(degree), "0", .max = 1024, .unit = "ranks", .when = "gossip.topology=base-k|torus",
                  .help = "base-k: most partners per round; torus: columns; 0: 1 to 3, or as square as it can be"),
    TACITI_OPTION("per_host", INT, AT(per_host), "0", .max = 4096, .unit = "ranks",
                  .help = "ranks per host as the topology sees them; 0: as they are"),
    TACITI_OPTION("gamma", REAL, AT(gamma), "1", .max = 1,
                  .help = "consensus factor: how far a mix goes, from 0 (not at all) to 1"),
    TACITI_OPTION(
        "every", INT, AT(every), "1", .min = 1, .max = 1e6, .unit = "steps",
        .help = "steps per mix; with order awc a transfer may take as many iterations, for one more array of memory"),
    TACITI_OPTION(
        "tracker", BOOL, AT(tracker), "false",
        .help =
            "update with a mixed estimate of the mean gradient, for unequal data; twice the bytes, three more arrays"),
    TACITI_OPTION("delay", INT, AT(delay), "0", .max = 1, .unit = "iterations",
                  .help = "iterations more that a transfer may take; 1 needs gamma 0.5 or less and two more arrays"),
    TACITI_OPTION("integral", REAL, AT(integral), "0.2", .max = 0.5,
                  .when = "gossip.order=awc gossip.delay=0 gossip.async=false gossip.tracker=false "
                          "gossip.codec!=" TACITI_GOSSIP_POWER " optim.name!=sgd",
                  .help =
                      "share of what mixes have moved a replica that it moves again in every step, so that replicas "
                      "stay nearer to each other; smaller by itself where a graph bears less; one more array"),
    TACITI_OPTION("async", BOOL, AT(async), "false",
                  .help = "neighbours mix when both have offered, and nobody waits: a rank that is late passes over "
                          "steps. Of `tacit train`"),
    TACITI_OPTION(
        "start", REAL, AT(start), "0.5", .max = 1,
        .help = "share of the run's steps, if they are known, in which replicas are equal, as in dp, before they go "
                "apart"),
    TACITI_OPTION(
        "denoise", INT, AT(denoise), "24", .max = 1e6, .unit = "steps",
        .when = "optim.name=adamw|adam|accum-adamw|accum-adam",
        .help = "steps between two sums that show how much of Adam's second moments is noise of a rank's "
                "share of the batch, which does not count; 0: all counts; two more arrays. Not with gossip.tracker"),
};

const taciti_option_table taciti_gossip_option_table =
    TACITI_OPTION_TABLE("gossip", "replicas that mix with a few neighbours (strategy gossip)", OPTIONS);

/* ---- what the planner prices ------------------------------------------------------------------------------------- */

bool taciti_gossip_is_auto(const taciti_gossip_options *options) {
    return strcmp(options->topology.text, TACITI_TOPO_AUTO) == 0;
}

bool taciti_gossip_keeps_own(const taciti_gossip_options *o) {
    return o->order == TACITI_GOSSIP_AWC && (o->every > 1 || o->delay > 0);
}

/* Codecs that select and PowerGossip move a few elements or columns at a time. */
static bool moves_all(const taciti_gossip_options *o) {
    const taciti_codec *codec = taciti_codec_find(o->codec.text);
    return !taciti_gossip_is_power(o) && (codec == NULL || codec->fixed_size);
}

bool taciti_gossip_may_integrate(const taciti_gossip_options *o) {
    return o->integral > 0 && o->gamma > 0 && o->order == TACITI_GOSSIP_AWC && o->delay == 0 && !o->async &&
           !o->tracker && moves_all(o);
}

size_t taciti_gossip_channels(const taciti_gossip_options *o) {
    return (o->async ? 0U : 1U) + (o->delay > 0 ? 1U : 0U) + (o->tracker ? 1U : 0U);
}

size_t taciti_gossip_arrays(const taciti_gossip_options *o) {
    return taciti_gossip_channels(o) + (taciti_gossip_keeps_own(o) ? 1U : 0U) + (o->tracker ? 2U : 0U);
}

/* Counts those of a run with Adam. Only awc has a delay. */
static size_t arrays_of(const taciti_gossip_options *options, int order) {
    taciti_gossip_options o = *options;
    o.order = order;
    if (order != TACITI_GOSSIP_AWC) o.delay = 0;
    return taciti_gossip_arrays(&o) + (o.denoise > 0 && !o.tracker ? 2U : 0U) +
           (taciti_gossip_may_integrate(&o) ? 1U : 0U);
}

/* `asked` is what the options mean. A topology has its options where it is named. */
static taciti_pattern pattern_of(const taciti_gossip_options *o, const char *asked, const char *topology, int order) {
    const bool configured = strcmp(asked, topology) == 0, awc = order == TACITI_GOSSIP_AWC;
    taciti_pattern pattern = {.order = awc ? TACITI_ORDER_AWC : TACITI_ORDER_ATC,
                              .topology = {.name = topology, .per_host = (int)o->per_host, .seed = TACITI_GOSSIP_SEED},
                              .every = (int)o->every,
                              .shorten = "gossip.every",
                              .delay = awc ? (int)o->delay : 0,
                              .also_mixed = o->tracker ? 1 : 0,
                              .common = {o->start, o->tracker ? 0 : o->denoise, taciti_gossip_sum_codec()},
                              .arrays = arrays_of(o, order),
                              .configured = configured && o->order == order};
    if (o->async) {
        pattern.order = TACITI_ORDER_ASYNC;
        pattern.common.every = 0; /* where ranks meet anyway */
    }
    if (strcmp(o->topology.text, topology) == 0) {
        pattern.topology.degree = (int)o->degree;
        pattern.topology.file = o->file.text[0] == '\0' ? NULL : o->file.text;
    }
    (void)snprintf(pattern.label, sizeof pattern.label, "gossip %s %s", topology,
                   o->async ? "async"
                   : awc    ? "awc"
                            : "atc");
    return pattern;
}

tacit_status taciti_gossip_patterns(const void *options, const taciti_hosts *hosts,
                                    taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count) {
    const taciti_gossip_options *o = options;
    if (!moves_all(o))
        return taciti_fail(TACIT_E_CONFIG,
                           "plan prices mixes of arrays, and gossip.codec %s sends something else; plan with "
                           "--gossip.codec none, int8, int4 or signmag2",
                           o->codec.text);
    const taciti_topo_request request = {.name = o->topology.text,
                                         .ranks = hosts == NULL ? 0 : hosts->ranks,
                                         .hosts = hosts,
                                         .per_host = (int)o->per_host};
    const char *asked = taciti_topology_name(&request);
    const int last = o->async ? TACITI_GOSSIP_AWC : TACITI_GOSSIP_ATC;
    *count = 0;
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++)
        for (int order = TACITI_GOSSIP_AWC; order <= last && *count < TACITI_PATTERNS_MAX; order++)
            if (o->file.text[0] != '\0' || strcmp(kind->name, "file") != 0)
                out[(*count)++] = pattern_of(o, asked, kind->name, order);
    return TACIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the planner prices of strategy shard: every stage with all ways to hold parts, and with every number format of
 * gathers that has an effect.
 */
#include <stdio.h>

#include "strategy/shard.h"

/* Returns the codec of gathers with auto: changes allow fewer bits than values. Replicas gather inside hosts. */
static const taciti_codec *automatic_gather(const taciti_shard_options *o) {
    return o->over == TACITI_SHARD_OVER_HOST ? NULL : taciti_codec_find(o->stage < 3 ? "mixed4" : "mixed8");
}

/* shard.gather is not read where compress.gather is. */
static void write_flags(const taciti_parts *parts, char *out, size_t size) {
    const char *narrow = parts->coded ? NULL : taciti_codec_narrow_name(parts->gather);
    (void)snprintf(out, size, "--shard.stage %d%s%s%s%s", taciti_parts_stage(parts),
                   parts->replicas ? " --shard.over host" : "", parts->secondary ? " --shard.secondary true" : "",
                   narrow != NULL ? " --shard.gather " : "", narrow != NULL ? narrow : "");
}

/* The pattern of these options; its label is what they say, as far as it is not the default. */
static taciti_pattern pattern_of(const taciti_shard_options *o) {
    static const char *const GATHERS[] = {[TACITI_SHARD_F32] = "f32", [TACITI_SHARD_BF16] = "bf16"};
    const bool replicas = o->over == TACITI_SHARD_OVER_HOST, by_hosts = replicas || o->secondary;
    taciti_pattern p = {.order = TACITI_ORDER_PARTS,
                        .every = 1,
                        .parts = {.passes = o->stage == 3 ? 2 : 1,
                                  .gradients = o->stage >= 2,
                                  .gather = taciti_codec_find(GATHERS[o->gather]),
                                  .automatic = automatic_gather(o),
                                  .replicas = replicas,
                                  .secondary = o->secondary,
                                  .placement = by_hosts ? taciti_shard_placement_by_hosts : taciti_shard_placement,
                                  .memory = taciti_shard_memory_of_parts,
                                  .flags = write_flags},
                        .compresses = true};
    (void)snprintf(p.label, sizeof p.label, "shard %d%s", (int)o->stage,
                   replicas       ? " over host"
                   : o->secondary ? " secondary"
                                  : "");
    return p;
}

/* Whether check_places() of shard_options.c allows the options. */
static bool is_possible(const taciti_shard_options *o) {
    const bool replicas = o->over == TACITI_SHARD_OVER_HOST;
    return !(replicas && (o->gather != TACITI_SHARD_F32 || o->secondary)) && !(o->secondary && o->stage < 3);
}

static bool is_same(const taciti_shard_options *a, const taciti_shard_options *b) {
    return a->stage == b->stage && a->gather == b->gather && a->over == b->over && a->secondary == b->secondary;
}

static void append_stages(taciti_shard_options way, const taciti_shard_options *configured, taciti_pattern *out,
                          size_t *count) {
    for (way.stage = 3; way.stage > 0; way.stage--)
        for (way.gather = TACITI_SHARD_F32; way.gather <= TACITI_SHARD_BF16; way.gather++) {
            if (!is_possible(&way)) continue;
            out[*count] = pattern_of(&way);
            out[(*count)++].configured = is_same(&way, configured);
        }
}

tacit_status taciti_shard_patterns(const void *options, const taciti_hosts *hosts,
                                   taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count) {
    (void)hosts;
    *count = 0;
    append_stages((taciti_shard_options){.over = TACITI_SHARD_OVER_ALL}, options, out, count);
    append_stages((taciti_shard_options){.over = TACITI_SHARD_OVER_HOST}, options, out, count);
    append_stages((taciti_shard_options){.secondary = true}, options, out, count);
    return TACIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "strategy/shard.h"

#define AT(member) offsetof(taciti_shard_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("stage", INT, AT(stage), "3", .min = 0, .max = 3,
                  .help = "what ranks hold in parts: 1 moments, 2 also gradients, 3 also parameters; 0 is strategy dp"),
    TACITI_OPTION("gather", ENUM, AT(gather), "f32", .choices = "f32|bf16",
                  .help = "number format in which parameters travel; updates are made in f32"),
};

const taciti_option_table taciti_shard_option_table = {.section = "shard",
                                                       .help = "what every rank holds a part of",
                                                       .options = OPTIONS,
                                                       .count = sizeof OPTIONS / sizeof *OPTIONS};

static tacit_status check_reduce(const taciti_compression_setup *c) {
    if (c->codec == NULL) return TACIT_OK;
    if (c->codec->aggregation == TACITI_CODEC_LINEAR)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.codec %s adds payloads up on all ranks, and strategy shard gives each sum to its "
                           "owner: --compress.codec topk or int4, or --strategy dp",
                           c->codec->name);
    if (c->options->estimate)
        return taciti_fail(TACIT_E_CONFIG, "compress.estimate keeps estimates of sums on all ranks, and strategy shard "
                                           "gives each sum to its owner: leave it out, or --strategy dp");
    if (c->options->collective != TACITI_ROUTE_GATHER) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "compress.collective gather sends everything to all ranks, and strategy shard "
                                       "gives each sum to its owner: leave it out, or --strategy dp");
}

static tacit_status check_gather(const taciti_shard_options *o, const taciti_compression_setup *c) {
    if (c->gather == NULL) return TACIT_OK;
    if (c->gather->aggregation == TACITI_CODEC_LINEAR || c->gather->rounds != 1 || c->gather->state_bytes != NULL ||
        c->gather->sketches)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.gather %s: this codec is for sums of gradients; --compress.gather int4, or topk "
                           "with shard.stage 1 or 2",
                           c->gather->name);
    if (o->stage < 3 || !c->gather->selects) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "compress.gather %s: stage 3 gathers values of parameters, none of which may be left out; "
                       "--compress.gather int8, or --shard.stage 2, which gathers changes",
                       c->gather->name);
}

tacit_status taciti_shard_check(const taciti_shard_options *options, const taciti_compression_setup *compression) {
    TACITI_TRY(check_reduce(compression));
    return check_gather(options, compression);
}

const char *taciti_shard_gather_codec(const void *options) {
    return ((const taciti_shard_options *)options)->stage < 3 ? "int4" : "int8";
}

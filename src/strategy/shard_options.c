/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "exchange/route.h"
#include "strategy/shard.h"

#define AT(member) offsetof(taciti_shard_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("stage", INT, AT(stage), "3", .min = 1, .max = 3, .below = "to hold nothing in parts, --strategy dp",
                  .help = "what ranks hold in parts: 1 moments, 2 also gradients, 3 also parameters"),
    TACITI_OPTION("gather", ENUM, AT(gather), "f32", .choices = "f32|bf16", .when = "plain-gather",
                  .help = "number format in which parameters travel; updates are made in f32"),
    TACITI_OPTION(
        "over", ENUM, AT(over), "all", .choices = "all|host",
        .help = "who holds the parts of a model: all ranks; or the ranks of a host, with a replica on every host"),
    TACITI_OPTION("secondary", BOOL, AT(secondary), "false",
                  .help =
                      "stage 3: the ranks of a host keep between them what the forward pass has gathered, so that the "
                      "backward pass gathers inside hosts"),
};

const taciti_option_table taciti_shard_option_table =
    TACITI_OPTION_TABLE("shard", "what every rank holds a part of", OPTIONS);

static tacit_status check_reduce(const taciti_compression_setup *c) {
    if (c->sums.codec == NULL) return TACIT_OK;
    if (!taciti_route_of(c->sums.codec)->phases)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.codec %s adds payloads up on all ranks, and strategy shard gives each sum to its "
                           "owner: --compress.codec topk or int4, or --strategy dp",
                           c->sums.codec->name);
    if (c->options->what == TACITI_SENDS_CHANGE)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.what change keeps estimates of sums on all ranks, and strategy shard "
                           "gives each sum to its owner: leave it out, or --strategy dp");
    if (c->controller != NULL && c->controller->period != NULL)
        return taciti_fail(TACIT_E_CONFIG,
                           "adapt.policy %s adds up gradients of the whole model, and a rank of strategy shard has "
                           "parts of them: leave it out, or --strategy dp",
                           c->controller->name);
    if (c->options->collective != TACITI_WAY_GATHER) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "compress.collective gather sends everything to all ranks, and strategy shard "
                                       "gives each sum to its owner: leave it out, or --strategy dp");
}

static tacit_status check_gather(const taciti_shard_options *o, const taciti_compression_setup *c) {
    if (c->gathers.codec == NULL) return TACIT_OK;
    if (!taciti_route_of(c->gathers.codec)->results)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.gather %s: this codec is for sums of gradients; --compress.gather int4, or topk "
                           "with shard.stage 1 or 2",
                           c->gathers.codec->name);
    if (!taciti_codec_suits(c->gathers.codec, TACITI_USE_FEEDBACK))
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.gather %s: what is lost of a parameter would grow from step to step; "
                           "--compress.gather int8",
                           c->gathers.codec->name);
    if (o->stage < 3 || taciti_codec_suits(c->gathers.codec, TACITI_USE_VALUES)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "compress.gather %s: stage 3 gathers values of parameters, none of which may be left out; "
                       "--compress.gather int8, or --shard.stage 2, which gathers changes",
                       c->gathers.codec->name);
}

static tacit_status check_places(const taciti_shard_options *o, const taciti_compression_setup *c) {
    if (o->over == TACITI_SHARD_OVER_HOST && (o->gather != TACITI_SHARD_F32 || c->gathers.codec != NULL))
        return taciti_fail(
            TACIT_E_CONFIG,
            "shard.over host gathers parameters inside hosts, as they are: leave out %s, or --shard.over "
            "all",
            c->gathers.codec != NULL ? "compress.gather" : "shard.gather");
    if (o->secondary && (o->stage < 3 || o->over == TACITI_SHARD_OVER_HOST))
        return taciti_fail(TACIT_E_CONFIG, "shard.secondary has no effect %s: leave it out",
                           o->stage < 3 ? "below stage 3, which gathers parameters once"
                                        : "with shard.over host, where all gathers stay inside hosts");
    return TACIT_OK;
}

static tacit_status check_hosts(const taciti_shard_options *o, const taciti_hosts *hosts) {
    if (hosts->count == 1 && (o->over == TACITI_SHARD_OVER_HOST || o->secondary))
        return taciti_fail(TACIT_E_CONFIG, "shard.%s has no effect on a single host: leave it out",
                           o->secondary ? "secondary" : "over host");
    if (taciti_hosts_sizes(hosts).min > 1) return TACIT_OK;
    if (o->over == TACITI_SHARD_OVER_HOST)
        return taciti_fail(TACIT_E_CONFIG,
                           "shard.over host divides the model among the ranks of a host, and a host has "
                           "only one: --shard.over all, or start more ranks per host");
    if (!o->secondary) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "shard.secondary keeps parts on the ranks of a host, and a host has only one: leave "
                       "it out, or start more ranks per host");
}

static tacit_status check_exchange(const taciti_shard_options *o, const taciti_exchange_options *exchange) {
    const bool by_hosts = o->over == TACITI_SHARD_OVER_HOST || o->secondary;
    if (by_hosts && exchange->scheme == TACITI_SCHEME_FLAT)
        return taciti_fail(TACIT_E_CONFIG, "exchange.scheme flat: shard.%s divides by hosts; leave one of them out",
                           o->secondary ? "secondary" : "over host");
    if (exchange->lanes == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "exchange.lanes %lld: ranks beyond them would hold no parts; leave it out",
                       (long long)exchange->lanes);
}

tacit_status taciti_shard_check(const taciti_strategy_context *context, const taciti_hosts *hosts) {
    const taciti_shard_options *o = context->options;
    TACITI_TRY(check_places(o, &context->compression));
    TACITI_TRY(check_reduce(&context->compression));
    TACITI_TRY(check_gather(o, &context->compression));
    TACITI_TRY(check_exchange(o, context->exchange_options));
    return hosts == NULL ? TACIT_OK : check_hosts(o, hosts);
}

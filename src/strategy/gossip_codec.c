/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed mixes: gossip.codec, with compress.factor where it selects. Ranks send differences to what
 * neighbours know (exchange/reference.h), or with powergossip products of low rank (exchange/power.h).
 */
#include <string.h>

#include "base/log.h"
#include "exchange/mix_ways.h"
#include "strategy/gossip_state.h"

enum { SEED = 1 }; /* of codecs that draw random numbers */

bool taciti_gossip_is_power(const taciti_gossip_options *options) {
    return strcmp(options->codec.text, TACITI_GOSSIP_POWER) == 0;
}

/* Int4 ends within the noise of seeds of f32 (docs/results/noise.md). */
const char *taciti_gossip_codec(const void *options, bool automatic) {
    const char *named = ((const taciti_gossip_options *)options)->codec.text;
    return strcmp(named, "auto") == 0 || (automatic && strcmp(named, "none") == 0) ? "int4" : named;
}

taciti_mix_form taciti_gossip_form(const taciti_strategy_context *context) {
    taciti_mix_form form = {.encoding = context->compression.mixes, .differences = true};
    const taciti_compress_options *options = context->compression.options;
    const taciti_gossip_options *gossip = context->options;
    if (taciti_gossip_is_power(gossip))
        return (taciti_mix_form){.power = (size_t)(gossip->columns > 0 ? gossip->columns : 1)};
    if (form.encoding.codec == NULL || options == NULL) return (taciti_mix_form){.differences = false};
    form.encoding.seed = SEED;
    form.encoding.expected =
        taciti_codec_setting_of(form.encoding.codec, (taciti_codec_setting){.factor = options->factor});
    return form;
}

static bool is_decoded_alone(const taciti_codec *codec) {
    return taciti_codec_suits(codec, TACITI_USE_SUMS) && !codec->sketches;
}

bool taciti_gossip_takes(const taciti_codec *codec) {
    return is_decoded_alone(codec) && taciti_codec_suits(codec, TACITI_USE_FEEDBACK) &&
           taciti_codec_suits(codec, TACITI_USE_MAGNITUDES);
}

/* Neighbours know of a rank what its mixes have told them, one after the other, so all ranks make the same mixes. */
static tacit_status check_company(const taciti_strategy_context *context) {
    const taciti_gossip_options *o = context->options;
    const bool named = o->codec.text[0] != '\0' && strcmp(o->codec.text, "none") != 0;
    const char *key = named ? "gossip.codec" : "compress.codec";
    const struct {
        bool given;
        const char *what, *without;
    } others[] = {
        {o->async, "gossip.async, whose ranks make unequal steps", "--no-gossip.async"},
        {o->tracker, "gossip.tracker, which mixes gradients beside parameters", "--no-gossip.tracker"},
        {o->delay > 0, "gossip.delay 1, whose transfers overlap", "--gossip.delay 0"},
    };
    if (!named && context->compression.mixes.codec == NULL) return TACIT_OK;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return taciti_fail(TACIT_E_CONFIG,
                               "%s %s: mixes go as differences to what neighbours know, and do not go with %s: %s, or "
                               "--%s none",
                               key, named ? o->codec.text : "auto", others[i].what, others[i].without, key);
    return TACIT_OK;
}

/* Mixes in f32 with a wire that asks for something else: what was meant is not known. */
static tacit_status check_wire(const taciti_strategy_context *context) {
    const taciti_gossip_options *o = context->options;
    const taciti_codec *codec = context->compression.mixes.codec,
                       *wire = taciti_exchange_wire(context->exchange_options);
    const bool power = taciti_gossip_is_power(o), exact = codec != NULL && taciti_codec_suits(codec, TACITI_USE_COPIES);
    if ((!power && !exact) || taciti_codec_suits(wire, TACITI_USE_COPIES)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "gossip.codec %s sends %s in f32, and exchange.wire is %s: --exchange.wire f32, or %s",
                       o->codec.text, power ? "factors, whose sums have to be exact," : "parameters", wire->name,
                       power ? "--gossip.codec int4" : "--gossip.codec none");
}

tacit_status taciti_gossip_check_codec(const taciti_strategy_context *context) {
    const taciti_codec *codec = context->compression.mixes.codec;
    TACITI_TRY(check_company(context));
    if (codec == NULL || taciti_gossip_takes(codec)) return check_wire(context);
    if (!is_decoded_alone(codec))
        return taciti_fail(TACIT_E_CONFIG,
                           "gossip.codec %s: mixes need a codec whose payloads every receiver decodes by itself: "
                           "--gossip.codec int4",
                           codec->name);
    return taciti_fail(TACIT_E_CONFIG,
                       "gossip.codec %s: what it loses of a difference may be larger than the difference (it does not "
                       "contract), so replicas would not come together: --gossip.codec int4",
                       codec->name);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed mixes: gossip.codec, with compress.factor where it selects. Ranks send differences to what
 * neighbours know (exchange/reference.h), or with powergossip products of low rank (exchange/power.h).
 *
 * Groups and pairs need no step size. On other edges gossip.gamma is the step size of CHOCO, and there is one that is
 * too large. Let a codec turn every difference d into (1 + s) d, so that it errs by the share s of it. Then a mode of W
 * with the eigenvalue 1 - m follows
 *
 *   x <- (1 - g m) x + g m e,   e <- s g m x - s (1 + g m) e      e: what is not yet known of x
 *
 * whose characteristic polynomial z^2 - (1 - s - g m (1 + s)) z - s has a root at -1 for g m (1 + s) = 2 (1 - s): above
 * that replicas go apart. So the limit is 2 (1 - s) / ((1 + s) m) for the largest m of the graph, with the s that the
 * codec has on normally distributed numbers. It is a measure of codecs and no proof for each of them: in simulations (3
 * to 12 ranks on a ring; 8, 4 and 2 bits, signs, the largest 25, 10 and 1 %) all converged at the limit, and those that
 * select or have two bits diverged at two to three times of it.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
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

/* Sets *out to the largest m of the rounds whose edges are not of pairs, by Gershgorin's circles; 0: there are none. */
static tacit_status find_largest_mode(const taciti_topology *topology, double *out) {
    int *partners = taciti_calloc((size_t)topology->ranks, sizeof *partners);
    *out = 0;
    if (partners == NULL) return TACIT_E_MEMORY;
    for (size_t r = 0; r < topology->period; r++) {
        const taciti_round *round = &topology->rounds[r];
        if (round->edge_count == 0) continue;
        taciti_round_partners(round, topology->ranks, partners);
        for (int rank = 0; rank < topology->ranks; rank++)
            if (!taciti_partners_are_pair(partners, rank)) *out = fmax(*out, 2 * (1 - round->self[rank]));
    }
    taciti_free(partners);
    return TACIT_OK;
}

/* The mode -1, at which replicas begin to swing: with integral a mix takes it further by this factor. */
static double find_overshoot(const taciti_strategy_context *context) {
    const taciti_gossip_options *o = context->options;
    return taciti_gossip_wants_integral(context) ? 1 + o->integral / (1 + TACITI_GOSSIP_LEAK) : 1;
}

static tacit_status check_step_size(const taciti_strategy_context *context, const taciti_topology *topology) {
    const taciti_mix_form form = taciti_gossip_form(context);
    const double gamma = ((const taciti_gossip_options *)context->options)->gamma;
    double lost = 0, max = 0;
    if (form.power > 0 && !taciti_mix_takes_power(topology))
        return taciti_fail(TACIT_E_CONFIG,
                           "gossip.codec powergossip mixes groups, and pairs with equal weights, and topology %s has "
                           "other edges: --gossip.topology base-k, or --gossip.codec int4",
                           topology->name);
    if (form.encoding.codec == NULL) return TACIT_OK;
    TACITI_TRY(find_largest_mode(topology, &max));
    if (!(max > 0)) return TACIT_OK;
    TACITI_TRY(taciti_encoding_loss(&form.encoding, &lost));
    const double limit = 2 * (1 - lost) / ((1 + lost) * max * find_overshoot(context));
    if (gamma <= limit) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "gossip.gamma %g is above %.3g, the limit of codec %s on topology %s: it loses %.2g of a "
                       "difference, and with larger steps replicas go apart; --gossip.gamma %.2g, or a topology of "
                       "groups and pairs, which has no limit: --gossip.topology base-k",
                       gamma, limit, form.encoding.codec->name, topology->name, lost, 0.95 * limit);
}

tacit_status taciti_gossip_check_mixes(const taciti_strategy_context *context, const taciti_hosts *hosts,
                                       const taciti_topology *topology, size_t *arrays) {
    const taciti_mix_form form = taciti_gossip_form(context);
    const taciti_codec *codec = form.encoding.codec;
    *arrays = 0;
    TACITI_TRY(taciti_gossip_check_codec(context));
    TACITI_TRY(check_step_size(context, topology));
    if (form.power == 0 && (codec == NULL || taciti_codec_suits(codec, TACITI_USE_COPIES))) return TACIT_OK;
    return taciti_mix_check_ways(hosts, topology, taciti_exchange_placement(context->exchange_options), codec, arrays);
}

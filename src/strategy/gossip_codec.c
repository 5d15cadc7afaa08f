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
#include "strategy/gossip_state.h"

enum { SEED = 1 }; /* of codecs that draw random numbers */

const char *taciti_gossip_codec(const void *options) { return ((const taciti_gossip_options *)options)->codec.text; }

taciti_mix_form taciti_gossip_form(const taciti_strategy_context *context) {
    taciti_mix_form form = {.encoding = context->compression.mixes, .differences = true};
    const taciti_compress_options *options = context->compression.options;
    const taciti_gossip_options *gossip = context->options;
    if (strcmp(gossip->codec.text, TACITI_GOSSIP_POWER) == 0)
        return (taciti_mix_form){.power = (size_t)(gossip->columns > 0 ? gossip->columns : 1)};
    if (form.encoding.codec == NULL || options == NULL) return (taciti_mix_form){.differences = false};
    form.encoding.seed = SEED;
    form.encoding.expected =
        taciti_codec_setting_of(form.encoding.codec, (taciti_codec_setting){.factor = options->factor});
    return form;
}

tacit_status taciti_gossip_check_codec(const taciti_strategy_context *context) {
    const taciti_codec *codec = context->compression.mixes.codec;
    if (codec == NULL) return TACIT_OK;
    if (!taciti_codec_suits(codec, TACITI_USE_SUMS) || codec->sketches)
        return taciti_fail(TACIT_E_CONFIG,
                           "gossip.codec %s: mixes need a codec whose payloads every receiver decodes by itself: "
                           "--gossip.codec int4",
                           codec->name);
    if (taciti_codec_suits(codec, TACITI_USE_FEEDBACK) && taciti_codec_suits(codec, TACITI_USE_MAGNITUDES))
        return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "gossip.codec %s: what it loses of a difference may be larger than the difference (it does not "
                       "contract), so replicas would not come together: --gossip.codec int4",
                       codec->name);
}

/* Returns the largest m of the rounds whose edges are not of pairs, by Gershgorin's circles; 0: there are none. */
static double largest_mode(const taciti_topology *topology) {
    double max = 0;
    for (size_t r = 0; r < topology->period; r++)
        for (int rank = 0; topology->rounds[r].edge_count > 0 && rank < topology->ranks; rank++)
            if (!taciti_mix_is_pair(&topology->rounds[r], rank))
                max = fmax(max, 2 * (1 - topology->rounds[r].self[rank]));
    return max;
}

tacit_status taciti_gossip_check_step_size(const taciti_strategy_context *context, const taciti_topology *topology) {
    const taciti_mix_form form = taciti_gossip_form(context);
    const double gamma = ((const taciti_gossip_options *)context->options)->gamma, max = largest_mode(topology);
    double lost = 0;
    if (form.power > 0 && !taciti_mix_takes_power(topology))
        return taciti_fail(TACIT_E_CONFIG,
                           "gossip.codec powergossip mixes groups, and pairs with equal weights, and topology %s has "
                           "other edges: --gossip.topology base-k, or --gossip.codec int4",
                           topology->name);
    if (form.encoding.codec == NULL || !(max > 0)) return TACIT_OK;
    TACITI_TRY(taciti_encoding_loss(&form.encoding, &lost));
    const double limit = 2 * (1 - lost) / ((1 + lost) * max);
    if (gamma <= limit) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "gossip.gamma %g is above %.3g, the limit of codec %s on topology %s: it loses %.2g of a "
                       "difference, and with larger steps replicas go apart; --gossip.gamma %.2g, or a topology of "
                       "groups and pairs, which has no limit: --gossip.topology base-k",
                       gamma, limit, form.encoding.codec->name, topology->name, lost, 0.95 * limit);
}

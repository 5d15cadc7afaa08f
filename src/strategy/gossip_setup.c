/* SPDX-License-Identifier: Apache-2.0
 *
 * Create and destroy: the topology of the options, what is refused, and the arrays that the options need.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "exchange/mix_ways.h"
#include "strategy/gossip_state.h"

#define ROUNDING 1e-9 /* of sums of weights */

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static tacit_status check_options(const taciti_gossip_options *o) {
    const bool late = o->delay > 0;
    if (late && o->order != TACITI_GOSSIP_AWC)
        return taciti_fail(TACIT_E_CONFIG, "gossip.delay 1 is for gossip.order awc: with atc every step waits for its "
                                           "own mix; --gossip.order awc or --gossip.delay 0");
    if (late && o->gamma > 0.5)
        return taciti_fail(TACIT_E_CONFIG, "gossip.delay 1 mixes with parameters of the step before, which swings up "
                                           "unless gossip.gamma is 0.5 or less; add --gossip.gamma 0.5");
    if (late && o->every > 1)
        return taciti_fail(TACIT_E_CONFIG, "gossip.delay 1 needs gossip.every 1: with several steps per mix a transfer "
                                           "has as many iterations anyway; --gossip.delay 0");
    if (late && o->tracker)
        return taciti_fail(TACIT_E_CONFIG, "gossip.delay 1 does not go with gossip.tracker; --gossip.delay 0");
    if (o->tracker && o->every > 1)
        return taciti_fail(TACIT_E_CONFIG, "gossip.tracker needs gossip.every 1: the estimate takes in every step's "
                                           "gradient; --gossip.every 1");
    return TACIT_OK;
}

/* Regular directed graphs keep all weights of push-sum at 1 and need none. */
static bool needs_push_sum(const taciti_topology *t) {
    bool regular = true;
    for (size_t r = 0; t->directed && r < t->period; r++)
        for (int to = 0; to < t->ranks; to++) {
            double sum = 0;
            for (int from = 0; from < t->ranks; from++) sum += taciti_topology_weight(t, r, to, from);
            regular = regular && fabs(sum - 1) < ROUNDING;
        }
    return !regular;
}

static tacit_status check_topology(const taciti_gossip_options *o, const taciti_topology *t) {
    if (!(o->delay > 0 || o->tracker) || !needs_push_sum(t)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "gossip.delay and gossip.tracker need a topology whose rows and columns both sum "
                       "to 1; this one needs push-sum");
}

/* ---- topology ---------------------------------------------------------------------------------------------------- */

tacit_status taciti_gossip_topology(const taciti_gossip_options *options, const taciti_hosts *hosts,
                                    taciti_topology *out) {
    const taciti_gossip_options *o = options;
    const taciti_topo_request request = {.name = o->topology.text,
                                         .ranks = hosts->ranks,
                                         .hosts = hosts,
                                         .per_host = (int)o->per_host,
                                         .degree = taciti_gossip_is_auto(o) ? 0 : (int)o->degree,
                                         .seed = TACITI_GOSSIP_SEED,
                                         .file = o->file.text[0] != '\0' ? o->file.text : NULL};
    taciti_topology topology = {.period = 0};
    TACITI_TRY(check_options(o));
    TACITI_TRY(taciti_topology_create(&request, &topology));
    const tacit_status status = check_topology(o, &topology);
    if (status == TACIT_OK)
        *out = topology;
    else
        taciti_topology_destroy(&topology);
    return status;
}

/* ---- the step size of coded edges -------------------------------------------------------------------------------- */

/* Groups and pairs need no step size. On other edges gossip.gamma is the step size of CHOCO, and there is one that is
 * too large. Let a codec turn every difference d into (1 + s) d, so that it errs by the share s of it. Then a mode of W
 * with the eigenvalue 1 - m follows
 *
 *   x <- (1 - g m) x + g m e,   e <- s g m x - s (1 + g m) e      e: what is not yet known of x
 *
 * whose characteristic polynomial z^2 - (1 - s - g m (1 + s)) z - s has a root at -1 for g m (1 + s) = 2 (1 - s): above
 * that replicas go apart. So the limit is 2 (1 - s) / ((1 + s) m) for the largest m of the graph, with the s that the
 * codec has on normally distributed numbers. It is a measure of codecs and no proof for each of them: in simulations (3
 * to 12 ranks on a ring; 8, 4 and 2 bits, signs, the largest 25, 10 and 1 %) all converged at the limit, and those that
 * select or have two bits diverged at two to three times of it. */

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

/* ---- what is legal ----------------------------------------------------------------------------------------------- */

static tacit_status check_masses(const taciti_strategy_context *context, const taciti_topology *topology) {
    if (!context->own_optimizer || !needs_push_sum(topology)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "gossip.topology %s needs push-sum, whose weights enter the learning rate: not with an "
                       "optimizer of your own; choose another topology (aer, exp, ring) or one of our optimizers",
                       topology->name);
}

tacit_status taciti_gossip_check(const taciti_strategy_context *context, const taciti_hosts *hosts) {
    taciti_topology topology;
    size_t arrays = 0;
    TACITI_TRY(taciti_gossip_check_async(context, NULL));
    TACITI_TRY(taciti_gossip_check_codec(context));
    if (hosts == NULL) return check_options(context->options);
    TACITI_TRY(taciti_gossip_topology(context->options, hosts, &topology));
    tacit_status status = check_masses(context, &topology);
    if (status == TACIT_OK) status = taciti_gossip_check_async(context, &topology);
    if (status == TACIT_OK) status = taciti_gossip_check_mixes(context, hosts, &topology, &arrays);
    taciti_topology_destroy(&topology);
    return status;
}

/* Returns a digest of the graph and of the places of ranks on it. */
static uint64_t digest_of(const taciti_topology *t, const taciti_hosts *hosts) {
    uint64_t digest = XXH3_64bits(hosts->host_of, (size_t)t->ranks * sizeof *hosts->host_of);
    for (size_t r = 0; r < t->period; r++) {
        const taciti_round *round = &t->rounds[r];
        if (round->groups > 0) {
            digest = XXH3_64bits_withSeed(round->first, (round->groups + 1) * sizeof *round->first, digest);
            digest = XXH3_64bits_withSeed(round->members, round->first[round->groups] * sizeof *round->members, digest);
        }
        if (round->self != NULL)
            digest = XXH3_64bits_withSeed(round->self, (size_t)t->ranks * sizeof *round->self, digest);
        if (round->edge_count > 0)
            digest = XXH3_64bits_withSeed(round->edges, round->edge_count * sizeof *round->edges, digest);
    }
    return digest;
}

/* Returns a digest of what decides which entry of a checkpoint is known to whom; 0: nothing is remembered. */
static uint64_t digest_of_knowledge(const taciti_gossip *g) {
    const taciti_mix_form form = taciti_gossip_form(&g->context);
    const taciti_codec *codec = form.encoding.codec;
    const bool remembers = form.power > 0 || (codec != NULL && !taciti_codec_suits(codec, TACITI_USE_COPIES));
    const taciti_exchange_options *e = g->context.exchange_options;
    const int64_t what[] = {(int64_t)g->digest, e->scheme, e->lanes, form.power > 0};
    return remembers ? XXH3_64bits(what, sizeof what) : 0;
}

/* A matrix file may differ from host to host. */
static tacit_status agree_on_topology(taciti_gossip *g) {
    char text[128];
    g->digest = digest_of(&g->topology, taciti_comm_hosts(g->context.comm));
    g->knowledge = digest_of_knowledge(g);
    (void)snprintf(text, sizeof text, "%s, %zu rounds, digest %016llx", g->topology.name, g->topology.period,
                   (unsigned long long)g->digest);
    return taciti_comm_agree_text(g->context.comm, "gossip topology", text);
}

static void say_choice(const taciti_gossip *g) {
    const taciti_hosts *hosts = taciti_comm_hosts(g->context.comm);
    const char *s = hosts->ranks == 1 ? "" : "s";
    if (taciti_comm_rank(g->context.comm) != 0 || !taciti_gossip_is_auto(&g->options)) return;
    if (g->options.per_host > 0)
        taciti_log(TACITI_LOG_INFO, "gossip.topology auto: %s, for %d rank%s, as if on hosts of %d", g->topology.name,
                   hosts->ranks, s, (int)g->options.per_host);
    else
        taciti_log(TACITI_LOG_INFO, "gossip.topology auto: %s, for %d rank%s on %d host%s", g->topology.name,
                   hosts->ranks, s, hosts->count, hosts->count == 1 ? "" : "s");
}

static tacit_status make_masses(taciti_gossip *g) {
    if (!needs_push_sum(&g->topology)) return TACIT_OK;
    const size_t ranks = (size_t)g->topology.ranks;
    g->masses = taciti_calloc(2 * ranks, sizeof *g->masses);
    if (g->masses == NULL) return TACIT_E_MEMORY;
    for (size_t r = 0; r < ranks; r++) g->masses[r] = 1;
    return TACIT_OK;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* Touched at once: else the first transfers of a run, on the communication thread, wait for the system to clear pages
 * (seconds for 500 MB on a small machine, and with gossip.delay in the second step, when nobody expects it). */
static tacit_status make_array(taciti_gossip *g, bool wanted, const char *what, float **out) {
    taciti_pages *pages = &g->pages[g->arrays];
    if (!wanted) return TACIT_OK;
    TACITI_TRY(taciti_pages_create(g->context.layout->n * sizeof **out, what, pages));
    g->arrays++;
    *out = pages->base;
    memset(pages->base, 0, pages->bytes);
    return TACIT_OK;
}

static bool wants_channel(const taciti_gossip_options *o, int channel) {
    return (channel == 0 && !o->async) || (channel == 1 && o->delay > 0) || (channel == 2 && o->tracker);
}

static tacit_status make_arrays(taciti_gossip *g) {
    const taciti_gossip_options *o = &g->options;
    taciti_gossip_noise *noise = &g->noise;
    noise->active = taciti_gossip_denoises(&g->context);
    for (int c = 0; c < TACITI_GOSSIP_CHANNELS; c++)
        TACITI_TRY(make_array(g, wants_channel(o, c), "parameters on their way", &g->channels[c].buffer));
    TACITI_TRY(make_array(g, taciti_gossip_keeps_own(o), "parameters handed over", &g->own));
    TACITI_TRY(make_array(g, o->tracker, "gradient tracker", &g->tracker));
    TACITI_TRY(make_array(g, o->tracker, "gradient of the step before", &g->gradient));
    TACITI_TRY(make_array(g, g->gain > 0, "integral of mixes", &g->integral));
    TACITI_TRY(make_array(g, noise->active, "signals of moments", &noise->signal));
    TACITI_TRY(make_array(g, noise->active, "shares of moments", &noise->share));
    return taciti_gossip_noise_allocate(g);
}

tacit_status taciti_gossip_predict(const taciti_strategy_context *context, taciti_strategy_figures *out) {
    const taciti_gossip_options *o = context->options;
    taciti_topology topology;
    TACITI_TRY(taciti_gossip_topology(o, taciti_comm_hosts(context->comm), &topology));
    const taciti_mix_form form = taciti_gossip_form(context);
    const size_t mix_bytes =
        taciti_mix_predict_bytes(context->comm, context->layout, &topology, context->exchange_options, &form);
    const size_t async_bytes = o->async ? taciti_async_predict_bytes(&topology, context->layout->n) : 0;
    *out = (taciti_strategy_figures){
        .own_bytes = async_bytes + taciti_gossip_channels(o) * mix_bytes +
                     (taciti_gossip_arrays(o) + (taciti_gossip_integrates(context) ? 1 : 0)) * context->layout->n *
                         sizeof(float) +
                     taciti_average_predict_bytes(context) + taciti_gossip_dense_predict_bytes(context) +
                     taciti_gossip_noise_predict_bytes(context),
        .period = topology.period * (size_t)o->every,
        .lag = o->order == TACITI_GOSSIP_AWC ? (size_t)(o->every * (1 + o->delay)) - 1 : 0};
    taciti_topology_destroy(&topology);
    return TACIT_OK;
}

static tacit_status set_up(taciti_gossip *g) {
    TACITI_TRY(taciti_gossip_topology(&g->options, taciti_comm_hosts(g->context.comm), &g->topology));
    TACITI_TRY(make_masses(g));
    if (taciti_gossip_integrates(&g->context) && g->masses == NULL)
        TACITI_TRY(taciti_gossip_find_gain(&g->topology, g->options.gamma, g->options.integral, &g->gain));
    return make_arrays(g);
}

static tacit_status connect_channels(taciti_gossip *g) {
    const taciti_strategy_context *c = &g->context;
    const taciti_mix_form form = taciti_gossip_form(c);
    TACITI_TRY(agree_on_topology(g));
    say_choice(g);
    for (int i = 0; i < TACITI_GOSSIP_CHANNELS; i++)
        if (wants_channel(&g->options, i))
            TACITI_TRY(
                taciti_mix_create(c->comm, c->layout, &g->topology, c->exchange_options, &form, &g->channels[i].mix));
    TACITI_TRY(taciti_gossip_async_create(g));
    TACITI_TRY(taciti_average_create(c, &g->average));
    *taciti_average_noisy(g->average) = 0;
    TACITI_TRY(taciti_gossip_noise_connect(g));
    return taciti_gossip_dense_create(g);
}

tacit_status taciti_gossip_create(const taciti_strategy_context *context, void **out) {
    taciti_gossip *g = taciti_calloc(1, sizeof *g);
    tacit_status status = g == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        g->context = *context;
        g->options = *(const taciti_gossip_options *)context->options;
        status = set_up(g);
    }
    status = taciti_comm_agree(context->comm, status);
    if (status == TACIT_OK) status = connect_channels(g);
    if (status == TACIT_OK)
        *out = g;
    else
        taciti_gossip_destroy(g);
    return status;
}

void taciti_gossip_destroy(void *self) {
    taciti_gossip *g = self;
    if (g == NULL) return;
    taciti_gossip_dense_destroy(g);
    taciti_gossip_noise_destroy(g);
    taciti_gossip_async_destroy(g);
    taciti_average_destroy(g->average);
    for (int c = 0; c < TACITI_GOSSIP_CHANNELS; c++) taciti_mix_destroy(g->channels[c].mix);
    for (size_t i = 0; i < g->arrays; i++) taciti_pages_destroy(&g->pages[i]);
    taciti_topology_destroy(&g->topology);
    taciti_free(g->masses);
    taciti_free(g);
}

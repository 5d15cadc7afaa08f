/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of ranks that wait for nobody (exchange/async.h):
 *
 *   x <- x + sum over the neighbours that have answered of w (theirs - mine), as offered, - step(gradient at the old x)
 *
 * then x is offered to the neighbours of the round. The mean of all replicas moves by the mean of all updates, whatever
 * is late: a rank that makes a fifth of the steps contributes a fifth of the updates. So with f_i the loss on the data
 * of rank i, and s_i its share of the steps, training minimises sum s_i f_i. Data in common (data.partition same)
 * makes that the loss itself.
 *
 * Looks at the noise of second moments are sums over all ranks, so they are taken where all ranks meet anyway: before
 * an evaluation, a checkpoint and the end.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "strategy/gossip_state.h"

static tacit_status refuse_with(const char *key, const char *why, const char *instead) {
    return taciti_fail(TACIT_E_CONFIG, "gossip.async does not go with %s: %s; %s, or --no-gossip.async", key, why,
                       instead);
}

static tacit_status check_options(const taciti_gossip_options *o) {
    if (o->order != TACITI_GOSSIP_AWC)
        return refuse_with("gossip.order atc", "no step waits for a mix", "--gossip.order awc");
    if (o->every > 1) return refuse_with("gossip.every", "neighbours mix when both are ready", "--gossip.every 1");
    if (o->delay > 0) return refuse_with("gossip.delay", "a transfer may take any time", "--gossip.delay 0");
    if (o->tracker) return refuse_with("gossip.tracker", "it counts on equal steps", "--no-gossip.tracker");
    return TACIT_OK;
}

tacit_status taciti_gossip_check_async(const taciti_strategy_context *context, const taciti_topology *topology) {
    const taciti_gossip_options *o = context->options;
    const taciti_exchange_options *e = context->exchange_options;
    if (!o->async) return TACIT_OK;
    TACITI_TRY(check_options(o));
    if (!context->follows_clock)
        return taciti_fail(TACIT_E_CONFIG, "gossip.async is for `tacit train`, which lets ranks count their own steps; "
                                           "--no-gossip.async");
    if (e->wire.text[0] != '\0' && strcmp(e->wire.text, "f32") != 0)
        return refuse_with("a narrower exchange.wire", "arrays travel as f32", "--exchange.wire f32");
    if (topology != NULL && topology->directed)
        return taciti_fail(TACIT_E_CONFIG,
                           "gossip.async averages pairs, and gossip.topology %s is directed; choose base-k, exp, ring, "
                           "torus, aer or complete",
                           topology->name);
    return TACIT_OK;
}

static taciti_arrivals_run describe_run(const taciti_gossip *g, uint64_t stamp) {
    const taciti_strategy_context *c = &g->context;
    return (taciti_arrivals_run){.rank = taciti_comm_rank(c->comm),
                                 .ranks = taciti_comm_size(c->comm),
                                 .digest = c->run ^ g->digest,
                                 .stamp = stamp};
}

/* Collective. */
static tacit_status follow_log(taciti_gossip *g) {
    const taciti_strategy_context *c = &g->context;
    const taciti_arrivals_run run = describe_run(g, 0);
    if (c->arrivals == NULL || !c->replays) return TACIT_OK;
    TACITI_TRY(taciti_comm_agree(c->comm, taciti_arrivals_replay(c->arrivals, &run, &g->arrivals)));
    uint64_t stamp = taciti_arrivals_stamp(g->arrivals);
    TACITI_TRY(taciti_comm_broadcast(c->comm, 0, &stamp, sizeof stamp));
    const bool same = stamp == taciti_arrivals_stamp(g->arrivals);
    return taciti_comm_agree(
        c->comm, same ? TACIT_OK
                      : taciti_fail(TACIT_E_CONFIG,
                                    "%s: the log of rank %d is of another run than that of rank 0; --replay a folder "
                                    "that holds the logs of one run",
                                    c->arrivals, taciti_comm_rank(c->comm)));
}

static bool writes_log(const taciti_gossip *g) {
    return g->async != NULL && g->context.arrivals != NULL && !g->context.replays;
}

tacit_status taciti_gossip_begin_log(void *self) {
    taciti_gossip *g = self;
    const taciti_strategy_context *c = &g->context;
    const uint64_t now = (uint64_t)taciti_now_ns();
    if (!writes_log(g)) return TACIT_OK;
    uint64_t stamp = XXH3_64bits_withSeed(&now, sizeof now, (uint64_t)getpid());
    TACITI_TRY(taciti_comm_broadcast(c->comm, 0, &stamp, sizeof stamp));
    const taciti_arrivals_run run = describe_run(g, stamp);
    TACITI_TRY(taciti_comm_agree(c->comm, taciti_arrivals_record(c->arrivals, &run, &g->arrivals)));
    taciti_async_set_log(g->async, g->arrivals);
    return TACIT_OK;
}

tacit_status taciti_gossip_end_log(void *self) {
    taciti_gossip *g = self;
    if (!writes_log(g)) return TACIT_OK;
    const tacit_status status = taciti_arrivals_close(g->arrivals);
    g->arrivals = NULL;
    taciti_async_set_log(g->async, NULL);
    return taciti_comm_agree(g->context.comm, status);
}

tacit_status taciti_gossip_async_create(taciti_gossip *g) {
    const taciti_strategy_context *c = &g->context;
    if (!g->options.async) return TACIT_OK;
    TACITI_TRY(follow_log(g));
    const taciti_async_setup setup = {.comm = c->comm,
                                      .pool = c->pool,
                                      .topology = &g->topology,
                                      .gamma = g->options.gamma,
                                      .n = c->layout->n,
                                      .arrivals = g->arrivals};
    return taciti_async_create(&setup, &g->async);
}

void taciti_gossip_async_destroy(taciti_gossip *g) {
    taciti_async_destroy(g->async);
    (void)taciti_arrivals_close(g->arrivals);
}

/* Updates all parameters, or renews copy16 alone. */
static void update_all(const taciti_gossip *g, bool update) {
    const taciti_strategy_context *c = &g->context;
    const int64_t begin_ns = taciti_now_ns();
    taciti_blend nothing = {.arrived = NULL};
    if (update)
        taciti_optim_update_range(c->optim, c->parameters, c->gradients, c->copy16, 0, c->layout->n, &nothing);
    else
        taciti_optim_blend_range(c->optim, c->parameters, c->copy16, 0, c->layout->n, &nothing);
    (void)taciti_trace_add(c->trace, TACITI_SPAN_UPDATE, -1, begin_ns);
}

tacit_status taciti_gossip_async_finish(taciti_gossip *g, double lr, taciti_step_report *out) {
    const taciti_strategy_context *c = &g->context;
    const double norm = taciti_gossip_norm(g, c->gradients);
    *out = (taciti_step_report){.grad_norm = norm, .skipped = !isfinite(norm)};
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(taciti_async_take(g->async, g->step, c->parameters, &out->clock, &out->moved));
    out->wait_ns = taciti_now_ns() - begin_ns;
    if (!out->skipped)
        taciti_optim_begin(c->optim, lr,
                           g->topology.ranks * taciti_optim_clip_scale(c->optim_options, g->noise.norm * norm));
    update_all(g, !out->skipped);
    TACITI_TRY(taciti_async_offer(g->async, g->step, out->clock, c->parameters));
    out->bytes = (double)taciti_async_bytes(&g->topology, taciti_comm_rank(c->comm), c->layout->n, NULL);
    g->step = out->clock;
    return TACIT_OK;
}

bool taciti_gossip_async_answer(void *self, bool due) {
    return taciti_async_answer(((taciti_gossip *)self)->async, due);
}

tacit_status taciti_gossip_async_meet(void *self, int64_t *clock, bool *ends) {
    taciti_gossip *g = self;
    double moved = 0;
    *clock = g->step;
    TACITI_TRY(taciti_async_meet(g->async, g->context.parameters, clock, &moved, ends));
    g->step = *clock;
    update_all(g, false);
    return taciti_gossip_noise_look(g);
}

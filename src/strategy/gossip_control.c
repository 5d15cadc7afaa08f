/* SPDX-License-Identifier: Apache-2.0
 *
 * Consensus control: while the replicas are further apart than gossip.target allows, a step makes more mixes.
 *
 * Source: Kong et al., arXiv 2102.04828 (consensus distance, critical value, local proxy). Distances here are
 * root mean squares over ranks:  Xi^2 = 1/N sum |x_i - mean|^2,  Theta^2 = 1/N sum |(W x)_i - x_i|^2.
 *
 * The constant. Let V be the product of the P matrices of a period and c its contraction (topo.h). For replicas that do
 * not change in between, I - V = sum over r of V_r (I - W_r) with products V_r of doubly stochastic matrices, whose
 * norm is 1; for replicas X_r that these mixes alone change, (I - V) X = sum over r of (I - W_r) X_r. Either way
 * (1 - c) Xi <= |(I - V) X| <= sum of Theta_r <= P (root mean square of Theta_r over the period):
 *
 *   Xi <= factor * rms Theta,   factor = P / (1 - c)
 *
 * It is exact for the complete graph (factor 1), and pessimistic by up to sqrt(P) elsewhere: the target is kept rather
 * too well than too badly. A mix moves gamma Theta, which is divided out. Replicas do change in between; a window spans
 * few steps, so that they change little. Of a step with more than P mixes the first P tell, so that each round counts
 * as often as any other.
 *
 * Every window of at least WINDOW mixing steps (a multiple of the period), every rank tells all others two numbers,
 * what its mixes moved and its |x|^2, by a job behind the transfers that are under way. It is waited for at the
 * beginning of the next mixing step: no barrier, but for that once per window no rank is more than one mixing step
 * ahead of the slowest. All ranks add up the same numbers in the same order, so all decide alike: twice as many mixes
 * above the target, one less below RELEASE of it, never fewer than gossip.mixes.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "strategy/gossip_state.h"

enum { WINDOW = 4, NUMBERS = 2 };
#define RELEASE 0.5
#define NEVER 1e-6 /* contractions closer to 1 than this do not bring replicas together in any time */

static tacit_status run(taciti_comm *comm, void *context) {
    const taciti_gossip_control *c = context;
    return taciti_group_all_to_all(comm, &c->world, c->mine, c->all, NUMBERS * sizeof *c->mine);
}

tacit_status taciti_gossip_control_create(taciti_gossip *g, const taciti_topo_figures *figures) {
    taciti_gossip_control *c = &g->control;
    const size_t ranks = (size_t)g->topology.ranks, period = g->topology.period;
    if (ranks > 1 && figures->contraction > 1 - NEVER)
        return taciti_fail(
            TACIT_E_CONFIG,
            "gossip.target: topology %s never brings all %zu ranks together (its contraction is %g, below "
            "1 is needed); choose another topology or --gossip.target 0",
            g->topology.name, ranks, figures->contraction);
    c->factor = ranks > 1 ? (double)period / (1 - figures->contraction) : 0;
    c->window = (int64_t)(period * ((WINDOW + period - 1) / period));
    c->job = (taciti_job){.run = run, .context = c, .name = "consensus control", .detail = -1};
    c->mine = taciti_calloc(NUMBERS * ranks, sizeof *c->mine);
    c->all = taciti_calloc(NUMBERS * ranks, sizeof *c->all);
    if (c->mine == NULL || c->all == NULL) return TACIT_E_MEMORY;
    return taciti_group_world(g->context.comm, &c->world);
}

void taciti_gossip_control_destroy(taciti_gossip *g) {
    if (g->control.pending) (void)taciti_job_wait(g->context.comm, &g->control.job);
    taciti_group_destroy(&g->control.world);
    taciti_free(g->control.mine);
    taciti_free(g->control.all);
}

static tacit_status submit(taciti_gossip *g) {
    taciti_gossip_control *c = &g->control;
    for (int r = 1; r < g->topology.ranks; r++) memcpy(c->mine + NUMBERS * r, c->mine, NUMBERS * sizeof *c->mine);
    c->pending = true;
    return taciti_job_submit(g->context.comm, &c->job);
}

tacit_status taciti_gossip_control_start(taciti_gossip *g) { return g->control.pending ? submit(g) : TACIT_OK; }

/* Of this many mixes, where the distance is `apart` of the target. */
static int64_t next_mixes(const taciti_gossip *g, double apart) {
    const int64_t min = g->options.mixes, more = g->mixes * 2, fewer = g->mixes - 1;
    if (apart > 1) return more < TACITI_GOSSIP_MAX_MIXES ? more : TACITI_GOSSIP_MAX_MIXES;
    if (apart < RELEASE) return fewer > min ? fewer : min;
    return g->mixes;
}

tacit_status taciti_gossip_control_decide(taciti_gossip *g) {
    taciti_gossip_control *c = &g->control;
    if (!c->pending) return TACIT_OK;
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(taciti_job_wait(g->context.comm, &c->job));
    g->wait_ns += taciti_trace_add(g->context.trace, TACITI_SPAN_WAIT, -1, begin_ns) - begin_ns;
    c->pending = false;
    double moved = 0, squares = 0;
    for (int r = 0; r < g->topology.ranks; r++) {
        moved += c->all[NUMBERS * r];
        squares += c->all[NUMBERS * r + 1];
    }
    g->mixes = next_mixes(g, squares > 0 ? c->factor * sqrt(moved / squares) / g->options.target : 0);
    return TACIT_OK;
}

tacit_status taciti_gossip_control_note(taciti_gossip *g, double moved) {
    taciti_gossip_control *c = &g->control;
    if (g->gamma > 0) c->moved += moved / (g->gamma * g->gamma);
    if (++c->counted < c->window) return TACIT_OK;
    c->mine[0] = c->moved / (double)c->counted;
    c->mine[1] = taciti_optim_sum_squares(g->context.optim, g->context.parameters, 0, g->context.layout->n);
    c->moved = 0;
    c->counted = 0;
    return submit(g);
}

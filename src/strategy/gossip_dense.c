/* SPDX-License-Identifier: Apache-2.0
 *
 * The first steps of a run are those of dp, so that replicas go apart when the loss falls slowly: replicas that are
 * apart leave a plateau later (docs/results/noise.md). The moments of these steps belong to the mean gradient, and
 * gossip goes on with them. The memory of dp is released after its last step. Its sums are int8, whose errors are added
 * in the next step: they take about as long as mixes in f32.
 */
#include <math.h>
#include <string.h>

#include "strategy/gossip_state.h"

/* dp has no options. */
static taciti_strategy_context context_of_dp(const taciti_strategy_context *context) {
    static const taciti_compress_options PLAIN = {.factor = 2, .start = 1, .feedback = 1}; /* a factor that is not 1 */
    taciti_strategy_context out = *context;
    out.options = NULL;
    out.compression = (taciti_compression_setup){.options = &PLAIN, .sums = taciti_gossip_sum_encoding()};
    return out;
}

/* 0.07 of 100 steps are 7, although the product is a little more. */
int64_t taciti_gossip_dense_steps(const taciti_strategy_context *context) {
    const taciti_gossip_options *o = context->options;
    const double steps = o->start * (double)context->total_steps;
    return taciti_comm_size(context->comm) > 1 ? (int64_t)ceil(steps * (1 - 1e-12)) : 0;
}

size_t taciti_gossip_dense_predict_bytes(const taciti_strategy_context *context) {
    const taciti_strategy_context dp = context_of_dp(context);
    return taciti_gossip_dense_steps(context) > 0 ? taciti_compression_predict_bytes(&dp) : 0;
}

tacit_status taciti_gossip_dense_create(taciti_gossip *g) {
    const taciti_strategy_context dp = context_of_dp(&g->context);
    return taciti_gossip_dense_steps(&g->context) > 0 ? taciti_strategy_dp.create(&dp, &g->dense) : TACIT_OK;
}

void taciti_gossip_dense_destroy(taciti_gossip *g) {
    taciti_strategy_dp.destroy(g->dense);
    g->dense = NULL;
}

void taciti_gossip_dense_list(const taciti_gossip *g, taciti_state *out) {
    taciti_state all = {.count = 0};
    if (g->dense == NULL) return;
    taciti_strategy_dp.state(g->dense, &all);
    for (size_t i = 0; i < all.count; i++)
        if (strncmp(all.entries[i].name, "strategy.", strlen("strategy.")) == 0) taciti_state_add(out, all.entries[i]);
}

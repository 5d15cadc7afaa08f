/* SPDX-License-Identifier: Apache-2.0
 *
 * none: every rank trains its own replica on its own samples and sends nothing. Evaluations, checkpoints and the end
 * see the mean of the replicas. The gain of a strategy by communication is its gain over this one.
 *
 *   every step:  x_i <- x_i - step(own gradient)
 *   at the end:  x = 1/N sum x_i
 *
 * Source: M. Zinkevich et al., "Parallelized stochastic gradient descent", NIPS 2010, algorithm 3.
 *
 * Properties (test_none.c): one rank is dp to the bit; every replica is gossip's with gossip.gamma 0 to the bit; the
 * mean is the same bits on all ranks, and revert is exact; a run that was stopped goes on to the bit; steps send no
 * byte.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "strategy/average.h"
#include "strategy/strategy.h"

typedef struct none {
    taciti_strategy_context context;
    taciti_average *average; /* owned */
} none;

static void none_destroy(void *self) {
    none *n = self;
    if (n == NULL) return;
    taciti_average_destroy(n->average);
    taciti_free(n);
}

static tacit_status none_create(const taciti_strategy_context *context, void **out) {
    none *n = taciti_calloc(1, sizeof *n);
    if (n != NULL) n->context = *context;
    tacit_status status = taciti_comm_agree(context->comm, n == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = taciti_average_create(context, &n->average);
    if (status == TACIT_OK)
        *out = n;
    else
        none_destroy(n);
    return status;
}

static tacit_status none_describe(const taciti_strategy_context *context, const void *self,
                                  taciti_strategy_figures *out) {
    (void)self;
    *out = (taciti_strategy_figures){.own_bytes = taciti_average_predict_bytes(context), .period = 1};
    return TACIT_OK;
}

/* The planner has no prices of a step that waits for nobody. */
static tacit_status none_patterns(const void *options, const taciti_hosts *hosts,
                                  taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count) {
    (void)hosts;
    (void)options;
    (void)out;
    *count = 0;
    return TACIT_OK;
}

static tacit_status none_finish(void *self, double lr, taciti_step_report *out) {
    const none *n = self;
    const taciti_strategy_context *c = &n->context;
    const double scale = taciti_own_gradient(&n->context, out);
    if (out->skipped) return TACIT_OK;
    const int64_t begin_ns = taciti_now_ns();
    taciti_optim_update(c->optim, c->parameters, c->gradients, c->copy16, lr, scale);
    (void)taciti_trace_add(c->trace, TACITI_SPAN_UPDATE, -1, begin_ns);
    return TACIT_OK;
}

static tacit_status none_settle(void *self, double lr, taciti_step_report *out) {
    const none *n = self;
    (void)lr;
    taciti_optim_scale(n->context.optim, n->context.gradients, taciti_own_gradient(&n->context, out));
    return TACIT_OK;
}

static tacit_status none_average(void *self, double *distance) {
    return taciti_average_run(((none *)self)->average, NULL, distance);
}

static void none_revert(void *self) { taciti_average_revert(((none *)self)->average); }

static void none_state(void *self, taciti_state *out) {
    const none *n = self;
    taciti_average_list_model(n->average, out);
    taciti_optim_list_state(n->context.optim, TACITI_STATE_OWN, out);
}

extern const taciti_strategy taciti_strategy_none;
const taciti_strategy taciti_strategy_none = {
    .name = "none",
    .help = "every rank trains alone; the mean of all replicas is the result (the floor of comparisons)",
    .source = "Zinkevich et al., NIPS 2010",
    .replicas = &(const taciti_replica_verbs){.average = none_average, .revert = none_revert},
    .patterns = none_patterns,
    .describe = none_describe,
    .create = none_create,
    .destroy = none_destroy,
    .finish = none_finish,
    .settle = none_settle,
    .state = none_state,
};

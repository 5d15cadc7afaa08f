/* SPDX-License-Identifier: Apache-2.0
 *
 * gossip: every rank keeps a replica of its own and mixes it with a few neighbours'. No step waits for all ranks.
 *
 *   awc   x(t+1) = W x(t) - step(gradient at x(t))
 *   atc   x(t+1) = W (x(t) - step(gradient at x(t)))
 *
 * Source: Wang, Zhang, Wu, Johansson, arXiv 2410.11998 (DAdam, AccumAdam). The order within an awc step is theirs:
 * gradient at the own parameters, mix, decay and update of the mixed ones. Where we deviate, and why:
 *   - the gradient is clipped by its global norm, not bucket by bucket: results do not depend on the size of buckets,
 *     but for the halves of aer. The norm is that of the rank's own gradient, so nobody waits for it
 *   - rounds are used in order from round 0 on, and no step at the start is special
 *   - what is under way lives in a buffer of its own, so parameters can be averaged or saved at any time
 *
 * The time line of a bucket (awc). Its transfer has from one update to the next, a whole step:
 *
 *   training thread   |-- forward, backward t --|- wait, blend, update -|-- forward, backward t + 1 --|- wait, ...
 *   communication                                         '--> x(t+1) to neighbours, theirs arrive --'
 *
 * Scaling. A rank's gradient is scaled so that the sum over ranks is the gradient of the global batch: the gradient of
 * its own share is N times as large. Push-sum: an update changes x = w z, so its learning rate is divided by w.
 *
 * Properties (test_gossip.c): overlapped equals blocking and resumed equals uninterrupted, bit for bit; the mean of all
 * replicas follows SGD; equal data keep replicas equal. A rank whose own gradient is not finite mixes and does not
 * update.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "strategy/gossip_state.h"

/* ---- start ------------------------------------------------------------------------------------------------------- */

/* Places in taciti_gossip.numbers. */
enum { NUMBER, MASS, NOISE, NORM, APART, KNOWLEDGE, WHOLE };

#define MAX_COUNT 0x1p53 /* a double counts exactly up to here */

static tacit_status check_numbers(const taciti_gossip *g) {
    const double *v = g->numbers, first = (double)-g->options.delay;
    const bool counts = v[NUMBER] >= first && v[NUMBER] <= MAX_COUNT && v[NOISE] >= 0 && v[NOISE] <= 7 &&
                        v[APART] >= 0 && v[APART] <= MAX_COUNT;
    if (counts && v[MASS] > 0 && isfinite(v[MASS]) && v[NORM] >= 0 && v[NORM] <= 1) return TACIT_OK;
    return taciti_fail(
        TACIT_E_DATA,
        "numbers of strategy gossip in the checkpoint: mix %g (from %g on), weight %g (above 0), noise %g "
        "(0 to 7), norm %g (0 to 1) and first step %g (from 0 on) were read; expected is what stands in "
        "brackets",
        v[NUMBER], first, v[MASS], v[NOISE], v[NORM], v[APART]);
}

/* A double counts exactly up to 2^53. */
static double knowledge_number(const taciti_gossip *g) { return (double)(g->knowledge >> 11); }

static void set_references(const taciti_gossip *g, const float *x) {
    if (g->async == NULL) taciti_mix_set_references(g->channels[0].mix, x);
}

/* Otherwise a rank meets others than those that know what the checkpoint says. */
static void forget_other_knowledge(taciti_gossip *g) {
    const double saved = g->numbers[KNOWLEDGE], now = knowledge_number(g);
    if (saved >= now && saved <= now) return; /* a damaged number is not the same */
    set_references(g, NULL);
    if (now > 0 && taciti_comm_rank(g->context.comm) == 0)
        taciti_log(
            TACITI_LOG_WARN,
            "gossip.codec: the checkpoint does not say what neighbours know on this graph, so replicas go apart "
            "until they have learnt it, some ten to some hundred steps; --resume-from-mean begins with equal ones");
}

static tacit_status restore_numbers(taciti_gossip *g) {
    TACITI_TRY(taciti_comm_agree(g->context.comm, check_numbers(g)));
    g->number = (int64_t)g->numbers[NUMBER];
    g->apart_since = (int64_t)g->numbers[APART];
    *taciti_average_noisy(g->average) = 1;
    forget_other_knowledge(g);
    if (g->numbers[WHOLE] > 0) taciti_gossip_take_whole_rounds(g);
    TACITI_TRY(taciti_gossip_restore_masses(g, g->numbers[MASS])); /* may refuse, before the optimizer is told */
    taciti_gossip_noise_restore(g, g->numbers[NOISE], g->numbers[NORM]);
    return TACIT_OK;
}

/* A run that begins, with equal replicas: nothing is under way. */
static void begin_anew(taciti_gossip *g) {
    const size_t bytes = g->context.layout->n * sizeof(float);
    g->number = -g->options.delay;
    if (g->own != NULL) memcpy(g->own, g->context.parameters, bytes);
    if (g->tracker != NULL) memset(g->tracker, 0, bytes);
    if (g->gradient != NULL) memset(g->gradient, 0, bytes);
    if (g->integral != NULL) memset(g->integral, 0, bytes);
    set_references(g, g->context.parameters);
    taciti_gossip_noise_begin(g);
}

/* Starts the transfers that are under way between two steps, from nothing but what a checkpoint holds. */
static tacit_status launch_transfers(taciti_gossip *g) {
    const double mass = taciti_gossip_mass(g);
    float *x = g->context.parameters;
    if (!g->context.exchange_options->overlap || g->async != NULL) return TACIT_OK;
    if (g->options.order == TACITI_GOSSIP_AWC) {
        float *handed = g->own != NULL ? g->own : x;
        if (g->number >= 0)
            TACITI_TRY(taciti_gossip_launch(g, taciti_gossip_channel_of(g, g->number), handed, mass, g->number));
        if (g->options.delay > 0)
            TACITI_TRY(taciti_gossip_launch(g, taciti_gossip_channel_of(g, g->number + 1), x, mass, g->number + 1));
    }
    if (g->tracker == NULL) return TACIT_OK;
    return taciti_gossip_launch(g, taciti_gossip_tracker_channel(g), g->tracker, 1, g->number);
}

static bool is_in_dense_steps(const taciti_gossip *g) {
    return g->dense != NULL && g->step < taciti_gossip_dense_steps(&g->context);
}

/* Replicas that have gone apart do not come together again, whatever gossip.start is now. */
static void say_apart(const taciti_gossip *g) {
    if (is_in_dense_steps(g) && taciti_comm_rank(g->context.comm) == 0)
        taciti_log(TACITI_LOG_WARN,
                   "gossip.start %g has no effect: the replicas of the checkpoint have been apart since step %lld and "
                   "stay so; --resume-from-mean begins with equal ones",
                   g->options.start, (long long)g->apart_since);
}

static tacit_status gossip_start(void *self, int64_t step, bool restored) {
    taciti_gossip *g = self;
    const bool apart = restored && !(*taciti_average_noisy(g->average) < 0.5);
    g->step = step;
    g->number = -g->options.delay;
    if (apart) {
        TACITI_TRY(restore_numbers(g));
        say_apart(g);
    }
    if (!apart && is_in_dense_steps(g)) return taciti_strategy_dp.start(g->dense, step, restored);
    taciti_gossip_dense_destroy(g);
    if (!apart) begin_anew(g);
    return launch_transfers(g);
}

/* After a step of dp, of which the last lets replicas go apart; from then on ranks may count their own steps. */
static tacit_status end_dense_step(taciti_gossip *g, taciti_step_report *out) {
    g->step++;
    *taciti_average_noisy(g->average) = 0;
    if (is_in_dense_steps(g)) return TACIT_OK;
    taciti_gossip_dense_destroy(g);
    begin_anew(g);
    if (g->async != NULL) out->clock = g->step;
    return launch_transfers(g);
}

/* optional: a checkpoint without it is taken, and it begins at 0; the sum of integrals over ranks is 0 then, too. */
static void list_array(const char *name, taciti_state_owner owner, bool optional, const taciti_layout *layout,
                       float *flat, taciti_state *out) {
    if (flat != NULL) taciti_state_add_array(out, name, owner, TACITI_STATE_RESET, layout, flat)->optional = optional;
}

static void gossip_state(void *self, taciti_state *out) {
    taciti_gossip *g = self;
    const taciti_layout *layout = g->context.layout;
    g->numbers[NUMBER] = (double)g->number;
    g->numbers[MASS] = taciti_gossip_mass(g);
    g->numbers[NOISE] = taciti_gossip_noise_state(&g->noise);
    g->numbers[NORM] = g->noise.norm;
    g->numbers[APART] = (double)g->apart_since;
    g->numbers[KNOWLEDGE] = knowledge_number(g);
    g->numbers[WHOLE] = g->whole ? 1 : 0;
    taciti_average_list_model(g->average, out);
    taciti_optim_list_state(g->context.optim, TACITI_STATE_OWN, out);
    list_array("strategy.handed", TACITI_STATE_OWN, false, layout, g->own, out);
    list_array("strategy.tracker", TACITI_STATE_OWN, false, layout, g->tracker, out);
    list_array("strategy.gradient", TACITI_STATE_OWN, false, layout, g->gradient, out);
    list_array("strategy.integral", TACITI_STATE_OWN, true, layout, g->integral, out);
    if (g->async == NULL) taciti_mix_list(g->channels[0].mix, "known", out);
    taciti_gossip_noise_await(g);
    list_array("strategy.signal", TACITI_STATE_SHARED, true, layout, g->noise.signal, out);
    list_array("strategy.share", TACITI_STATE_SHARED, true, layout, g->noise.share, out);
    list_array("strategy.energy", TACITI_STATE_SHARED, true, &g->noise.tensors, g->noise.energy, out);
    taciti_gossip_dense_list(g, out);
    taciti_state_add_numbers(out, "numbers", TACITI_STATE_OWN, TACITI_STATE_RESET, g->numbers, TACITI_GOSSIP_NUMBERS);
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

/* Returns the mean over a period, without the sums of signals: they are 1 to 3 % of it. */
static uint64_t per_step(const taciti_gossip *g, uint64_t (*bytes_of)(const taciti_mix *mix, int64_t number)) {
    uint64_t sum = 0;
    for (size_t r = 0; r < g->topology.period; r++) sum += bytes_of(g->channels[0].mix, (int64_t)r);
    const uint64_t arrays = g->tracker != NULL ? 2 : 1;
    return sum * arrays / (g->topology.period * (uint64_t)g->options.every);
}

static tacit_status gossip_describe(const taciti_strategy_context *context, const void *self,
                                    taciti_strategy_figures *out) {
    TACITI_TRY(taciti_gossip_predict(context, out));
    const taciti_gossip *g = self;
    if (g == NULL) return TACIT_OK;
    if (g->async != NULL)
        out->sent_bytes = taciti_async_bytes(&g->topology, taciti_comm_rank(context->comm), context->layout->n, NULL);
    else
        out->sent_bytes = per_step(g, taciti_mix_bytes);
    return TACIT_OK;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The work of a step, decided before it touches anything. */
typedef struct decision {
    bool mixing;            /* this step mixes */
    bool update;            /* the gradient is finite */
    double lr, scale;       /* of the update: for the parameters as they are then; of the direction */
    const float *direction; /* the gradient, or the tracker's estimate of it */
} decision;

/* Blends, updates and hands on one bucket. */
static void update_bucket(taciti_gossip *g, const decision *d, size_t bucket, taciti_blend *blend) {
    const taciti_strategy_context *c = &g->context;
    const taciti_bucket *b = &c->layout->buckets[bucket];
    const int64_t begin_ns = taciti_now_ns();
    if (d->update)
        taciti_optim_update_range(c->optim, c->parameters, d->direction, c->copy16, b->offset, b->n, blend);
    else
        taciti_optim_blend_range(c->optim, c->parameters, c->copy16, b->offset, b->n, blend);
    (void)taciti_trace_add(c->trace, TACITI_SPAN_UPDATE, (int)bucket, begin_ns);
}

/* Last mix and update of a bucket; a copy of the outcome is under way at once. */
static tacit_status mix_and_update(taciti_gossip *g, const decision *d, size_t bucket, double *moved) {
    const int64_t next = g->number + 1 + g->options.delay;
    float *x = g->context.parameters;
    taciti_blend blend = {.arrived = NULL};
    taciti_gossip_channel *channel = taciti_gossip_channel_of(g, g->number);
    const bool hand_on = d->mixing && g->context.exchange_options->overlap;
    if (d->mixing) {
        TACITI_TRY(taciti_gossip_collect(g, channel, x, bucket));
        blend = taciti_gossip_arrive(g, channel, x, bucket);
    }
    blend.leaving = hand_on ? taciti_gossip_channel_of(g, next)->buffer : NULL;
    blend.leaving_scale = (float)taciti_gossip_mass(g);
    update_bucket(g, d, bucket, &blend);
    *moved += blend.moved;
    if (d->mixing && g->own != NULL && g->options.delay == 0) taciti_gossip_copy(g, g->own, x, 1, bucket);
    return hand_on ? taciti_gossip_begin(taciti_gossip_channel_of(g, next), bucket, next) : TACIT_OK;
}

static tacit_status adapt_while_communicating(taciti_gossip *g, const decision *d, double *moved) {
    for (size_t b = 0; b < g->context.layout->bucket_count; b++) {
        TACITI_TRY(mix_and_update(g, d, b, moved));
        if (g->tracker != NULL) TACITI_TRY(taciti_gossip_track_on(g, b));
    }
    return TACIT_OK;
}

static tacit_status adapt_then_combine(taciti_gossip *g, const decision *d, double *moved) {
    taciti_gossip_channel *channel = &g->channels[0];
    const bool hand_on = d->mixing && g->context.exchange_options->overlap;
    for (size_t b = 0; b < g->context.layout->bucket_count; b++) {
        taciti_blend blend = {.leaving = hand_on ? channel->buffer : NULL, .leaving_scale = (float)g->mass_before};
        update_bucket(g, d, b, &blend);
        if (hand_on) TACITI_TRY(taciti_gossip_begin(channel, b, g->number));
    }
    if (d->mixing) TACITI_TRY(taciti_gossip_mix(g, channel, g->context.parameters, g->context.copy16, moved));
    for (size_t b = 0; g->tracker != NULL && b < g->context.layout->bucket_count; b++)
        TACITI_TRY(taciti_gossip_track_on(g, b));
    return TACIT_OK;
}

static bool is_mixing(const taciti_gossip *g) { return (g->step + 1) % g->options.every == 0; }

static bool gossip_reads_early(const void *self) { return ((const taciti_gossip *)self)->dense != NULL; }

/* A caller that reports gradients does so in every step. */
static tacit_status gossip_ready(void *self, size_t bucket) {
    const taciti_gossip *g = self;
    return g->dense == NULL ? TACIT_OK : taciti_strategy_dp.ready(g->dense, bucket);
}

static tacit_status decide_work(taciti_gossip *g, double lr, decision *out, taciti_step_report *report) {
    const double own_norm = taciti_gossip_norm(g, g->context.gradients), mass = taciti_gossip_mass(g);
    *out = (decision){.mixing = is_mixing(g), .direction = g->context.gradients};
    g->wait_ns = 0;
    out->update = isfinite(own_norm);
    if (out->mixing) taciti_gossip_advance_masses(g);
    *report = (taciti_step_report){.grad_norm = own_norm, .skipped = !out->update};
    if (g->tracker != NULL) {
        TACITI_TRY(taciti_gossip_track(g, out->update));
        out->direction = g->tracker;
        if (out->update) report->grad_norm = taciti_gossip_norm(g, g->tracker);
    }
    out->lr = lr / (g->options.order == TACITI_GOSSIP_AWC ? taciti_gossip_mass(g) : mass);
    out->scale =
        g->topology.ranks * taciti_optim_clip_scale(g->context.optim_options, g->noise.norm * report->grad_norm);
    return TACIT_OK;
}

static tacit_status end_step(taciti_gossip *g, taciti_step_report *report) {
    if (is_mixing(g)) g->number++;
    report->bytes = (double)per_step(g, taciti_mix_sent);
    g->step++;
    TACITI_TRY(taciti_gossip_noise_step(g));
    report->wait_ns = g->wait_ns;
    return TACIT_OK;
}

static tacit_status gossip_finish(void *self, double lr, taciti_step_report *out) {
    taciti_gossip *g = self;
    decision d;
    if (g->dense != NULL) {
        TACITI_TRY(taciti_strategy_dp.finish(g->dense, lr, out));
        return end_dense_step(g, out);
    }
    if (g->async != NULL) return taciti_gossip_async_finish(g, lr, out);
    TACITI_TRY(decide_work(g, lr, &d, out));
    if (d.update) taciti_optim_begin(g->context.optim, d.lr, d.scale);
    if (g->options.order == TACITI_GOSSIP_AWC)
        TACITI_TRY(adapt_while_communicating(g, &d, &out->moved));
    else
        TACITI_TRY(adapt_then_combine(g, &d, &out->moved));
    return end_step(g, out);
}

/* awc mixes before the update, atc after it. */
static tacit_status gossip_settle(void *self, double lr, taciti_step_report *out) {
    taciti_gossip *g = self;
    const taciti_strategy_context *c = &g->context;
    decision d;
    if (g->dense != NULL) return taciti_strategy_dp.settle(g->dense, lr, out);
    TACITI_TRY(decide_work(g, lr, &d, out));
    for (size_t b = 0; g->tracker != NULL && d.update && b < c->layout->bucket_count; b++)
        taciti_gossip_copy(g, c->gradients, g->tracker, 1, b);
    if (d.update) taciti_optim_scale(c->optim, c->gradients, d.scale);
    if (!d.mixing || g->options.order != TACITI_GOSSIP_AWC) return TACIT_OK;
    return taciti_gossip_mix(g, taciti_gossip_channel_of(g, g->number), c->parameters, c->copy16, &out->moved);
}

/* The parameters of a mixing step leave, for mix `number`. */
static tacit_status hand_on(taciti_gossip *g, int64_t number, double mass) {
    taciti_gossip_channel *channel = taciti_gossip_channel_of(g, number);
    return g->context.exchange_options->overlap ? taciti_gossip_launch(g, channel, g->context.parameters, mass, number)
                                                : TACIT_OK;
}

static tacit_status gossip_stepped(void *self, taciti_step_report *out) {
    taciti_gossip *g = self;
    const taciti_strategy_context *c = &g->context;
    const bool mixing = is_mixing(g), awc = g->options.order == TACITI_GOSSIP_AWC;
    if (g->dense != NULL) return end_dense_step(g, out);
    for (size_t b = 0; mixing && g->own != NULL && g->options.delay == 0 && b < c->layout->bucket_count; b++)
        taciti_gossip_copy(g, g->own, c->parameters, 1, b);
    if (mixing) TACITI_TRY(hand_on(g, awc ? g->number + 1 + g->options.delay : g->number, taciti_gossip_mass(g)));
    if (mixing && !awc) TACITI_TRY(taciti_gossip_mix(g, &g->channels[0], c->parameters, c->copy16, &out->moved));
    for (size_t b = 0; g->tracker != NULL && b < c->layout->bucket_count; b++) TACITI_TRY(taciti_gossip_track_on(g, b));
    return end_step(g, out);
}

/* ---- average ----------------------------------------------------------------------------------------------------- */

static tacit_status gossip_average(void *self, double *distance) {
    const taciti_gossip *g = self;
    taciti_average_weigh(g->average, taciti_gossip_mass(g));
    return taciti_average_run(g->average, NULL, distance);
}

static void gossip_revert(void *self) { taciti_average_revert(((taciti_gossip *)self)->average); }

extern const taciti_strategy taciti_strategy_gossip;
const taciti_strategy taciti_strategy_gossip = {
    .name = "gossip",
    .help = "every rank updates a replica of its own and mixes it with a few neighbours'; no step waits for all",
    .source = "arXiv 2410.11998",
    .options = &taciti_gossip_option_table,
    .options_size = sizeof(taciti_gossip_options),
    .label = "topology order",
    .replicas = &(const taciti_replica_verbs){.average = gossip_average,
                                              .revert = gossip_revert,
                                              .answer = taciti_gossip_async_answer,
                                              .meet = taciti_gossip_async_meet,
                                              .begin_log = taciti_gossip_begin_log,
                                              .end_log = taciti_gossip_end_log},
    .check = taciti_gossip_check,
    .codec = taciti_gossip_codec,
    .mixes = taciti_gossip_check_mixes,
    .patterns = taciti_gossip_patterns,
    .describe = gossip_describe,
    .create = taciti_gossip_create,
    .destroy = taciti_gossip_destroy,
    .start = gossip_start,
    .ready = gossip_ready,
    .reads_early = gossip_reads_early,
    .finish = gossip_finish,
    .settle = gossip_settle,
    .stepped = gossip_stepped,
    .state = gossip_state,
};

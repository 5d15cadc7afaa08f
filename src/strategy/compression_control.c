/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step has shown, over all ranks, and what follows for the next one.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "kernel/kernel.h"
#include "strategy/compression_state.h"

/* ---- thresholds -------------------------------------------------------------------------------------------------- */

/* log(threshold at `next` / threshold at `factor`), where log(n / count) is a power of the magnitude: 1 of a Laplace
 * distribution, 2 of the tails of a normal one, less of heavier tails. */
static double change_of(const taciti_threshold_seen *seen, double factor, double next) {
    static const double MIN_POWER = 0.25, MAX_POWER = 4;
    const double here = log(seen->n / fmax(seen->kept, 1)), half = log(seen->n / fmax(seen->near, 1));
    if (next == factor) return 0;
    const double power = here > half && half > 0 ? log2(here / half) : 1;
    return log(log(next) / log(factor)) / fmin(fmax(power, MIN_POWER), MAX_POWER);
}

/* Between half the threshold and the threshold, the number of elements is taken for a power of the magnitude. With
 * error feedback that overshoots: what stays behind lies just below the last threshold. So the correction is damped as
 * long as it changes direction, and the damping ends when it does not.
 *
 * Half the threshold is taken to have 4 (MIN_SLOPE 2) to 2^16 times the elements; fewer, as at factors below 10, would
 * give a correction that overshoots. A step moves the threshold up to 8 times up or down (MAX_CHANGE, log 8), since
 * counts say nothing of magnitudes further away. A threshold that swings halves its correction, down to a twentieth;
 * one that lags has it back within four steps for every halving. How exact it is is decided by the scale of gradients,
 * which changes by more from step to step (docs/compression.md). */
void taciti_threshold_correct(taciti_threshold *t, const taciti_threshold_seen *seen, double factor, double next) {
    static const double MIN_SLOPE = 2, MAX_SLOPE = 16, MAX_CHANGE = 2.08, DAMPED = 0.5, FREED = 1.2, MIN_GAIN = 0.05;
    const double before = t->error, slope = log2(fmax(seen->near, 1) / fmax(seen->kept, 1));
    t->error = log(fmax(seen->kept, 0.5) * factor / seen->n);
    const bool turned = before * t->error < 0;
    t->gain = t->gain > 0 ? fmin(fmax(t->gain * (turned ? DAMPED : FREED), MIN_GAIN), 1) : 1;
    const double correction = t->gain * t->error / fmin(fmax(slope, MIN_SLOPE), MAX_SLOPE);
    const double change = correction + change_of(seen, factor, next);
    t->value *= exp(fmin(fmax(change, -MAX_CHANGE), MAX_CHANGE));
    if (seen->near < 1) *t = (taciti_threshold){0};
}

/* ---- factors ----------------------------------------------------------------------------------------------------- */

/* ratio^(step / warmup). From square roots, which IEEE 754 rounds correctly: pow() differs between processors, and
 * payloads whose length depends on the factor would not match. */
static double power_of(double ratio, int64_t step, int64_t warmup) {
    enum { BITS = 32 };
    double root = ratio, power = 1;
    for (int bit = 0; bit < BITS; bit++) {
        root = sqrt(root);
        step *= 2;
        if (step < warmup) continue;
        step -= warmup;
        power *= root;
    }
    return power;
}

/* A large factor does its harm while gradients change fast, which is about as long as the learning rate rises and as
 * long again, and not only some steps (docs/compression.md). */
int64_t taciti_compression_safe_step(const taciti_compression *c) {
    enum { MIN_RISE = 200 };
    const int64_t min = MIN_RISE, twice = 2 * c->optim_options->warmup_steps;
    return c->setup.options->warmup >= 0 ? c->setup.options->warmup : twice > min ? twice : min;
}

/* Controllers have rules of their own, and number formats need no rise. */
int64_t taciti_compression_warmup(const taciti_compression *c) {
    const bool own_rules = c->setup.options->warmup < 0 && c->state_bytes > 0;
    const bool rises = !own_rules && taciti_encoding_factor(&c->encoding) != 1;
    return rises ? taciti_compression_safe_step(c) : 0;
}

/* Returns the factor of this step during the warm-up. */
static double risen_factor(const taciti_compression *c, double factor) {
    const int64_t warmup = taciti_compression_warmup(c);
    const double start = fmin(c->setup.options->start, factor);
    return c->step >= warmup ? factor : start * power_of(factor / start, c->step, warmup);
}

bool taciti_compression_sends_momentum(const taciti_compression *c) {
    return c->encoding.codec != NULL && taciti_compression_what(&c->setup) == TACITI_SENDS_MOMENTUM &&
           taciti_optim_is_frozen(c->optim);
}

double taciti_compression_factor(const taciti_compression *c, size_t bucket) {
    const bool waits = taciti_compression_what(&c->setup) == TACITI_SENDS_MOMENTUM && !taciti_optim_is_frozen(c->optim);
    if (taciti_comm_size(c->comm) == 1 || waits) return 1; /* nothing is sent; dense before the moments are frozen */
    const bool own = bucket < c->layout->bucket_count && c->factors[bucket] > 0;
    const double factor = fmax(1, own ? c->factors[bucket] : c->decision.factor);
    return risen_factor(c, factor);
}

double taciti_compression_back_factor(const taciti_compression *c, double factor) {
    const double back = c->setup.phase == TACITI_PHASE_ALL_GATHER ? 0 : c->setup.options->back;
    return back > 0 ? risen_factor(c, back) : factor;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

#define OPERATION(how, name) TACITI_OP_##how,
static const taciti_op OF_COSTS[] = {TACITI_COSTS_FIELDS(OPERATION)};
#undef OPERATION
#define OPERATION(how, type, name) TACITI_OP_##how,
static const taciti_op OF_TALLY[] = {TACITI_TALLY_FIELDS(OPERATION)};
#undef OPERATION
enum { COSTS_N = sizeof OF_COSTS / sizeof *OF_COSTS, TALLY_N = sizeof OF_TALLY / sizeof *OF_TALLY };

size_t taciti_compression_statistics_bytes(size_t buckets, bool adapts) {
    return (COSTS_N + TACITI_PAYLOAD_KINDS * (adapts ? buckets : 1) * TALLY_N) * sizeof(double);
}

void taciti_compression_list_operations(taciti_op *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = i < COSTS_N ? OF_COSTS[i] : OF_TALLY[(i - COSTS_N) % TALLY_N];
}

static double *fields_of(const taciti_compression *c, int kind, size_t bucket) {
    return c->statistics + COSTS_N + ((size_t)kind * c->shown_buckets + bucket) * TALLY_N;
}

static taciti_tally *tally_of(const taciti_compression *c, int kind, size_t bucket) {
    return &c->tallies[(size_t)kind * c->layout->bucket_count + bucket];
}

static taciti_costs *costs_of(const taciti_compression *c) { return (taciti_costs *)(void *)c->statistics; }

static void pack_tally(const taciti_tally *tally, double *out) {
#define PACK(how, type, member) *out++ = (double)tally->member;
    TACITI_TALLY_FIELDS(PACK)
#undef PACK
}

static taciti_tally unpack_tally(const double *fields) {
    taciti_tally tally = {.bytes = 0};
#define UNPACK(how, type, member) tally.member = (type)*fields++;
    TACITI_TALLY_FIELDS(UNPACK)
#undef UNPACK
    if (tally.trial.n > 0) tally.trial.squares_in = tally.sent.squares_in;
    return tally;
}

/* Besides its wait for the exchange, a step counts as twice the mean at most: an evaluation or a checkpoint lies in the
 * time of the step after it, and says nothing of steps. 0: unknown. */
static double seconds_of_step(taciti_compression *c, double wait_s) {
    const double own_s = fmax((double)(taciti_now_ns() - c->settled_ns) * 1e-9 - wait_s, 0);
    if (c->settled_ns == 0) return 0;
    const double counted = c->own_s > 0 ? fmin(own_s, 2 * c->own_s) : own_s;
    c->own_s += (c->own_s > 0 ? 0.2 : 1) * (counted - c->own_s);
    return wait_s + counted;
}

/* The mean of logarithms, weighted by elements; 0: there is none. */
typedef struct log_mean {
    double sum, weight;
} log_mean;

static void add_log(log_mean *mean, double value, double weight) {
    if (!(value > 0)) return;
    mean->sum += weight * log(value);
    mean->weight += weight;
}

static double value_of(const log_mean *mean) { return mean->weight > 0 ? exp(mean->sum / mean->weight) : 0; }

/* The first `buckets` of a kind; of thresholds the mean. */
static taciti_tally sum_of(const taciti_compression *c, int kind, size_t buckets) {
    double sum[TALLY_N] = {0}, one[TALLY_N];
    log_mean sent = {0}, tried = {0};
    for (size_t b = 0; b < buckets; b++) {
        const taciti_tally *t = tally_of(c, kind, b);
        pack_tally(t, one);
        for (size_t i = 0; i < TALLY_N; i++) sum[i] += OF_TALLY[i] == TACITI_OP_SUM ? one[i] : 0;
        add_log(&sent, t->sent.threshold, (double)t->sent.n);
        add_log(&tried, t->trial.threshold, (double)t->sent.n);
    }
    taciti_tally all = unpack_tally(sum);
    all.sent.threshold = value_of(&sent);
    all.trial.threshold = value_of(&tried);
    return all;
}

/* Fills in what this rank has seen. */
static void fill_statistics(taciti_compression *c, const taciti_step_report *report) {
    const double per_ns = 1e-9;
    const size_t buckets = c->layout->bucket_count;
    taciti_costs *costs = costs_of(c);
    *costs = (taciti_costs){0};
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++) {
        for (size_t b = 0; b < buckets; b++) {
            const taciti_tally *one = tally_of(c, kind, b);
            *tally_of(c, kind, b) = taciti_exchange_tally_of(c->exchange, b)[kind];
            costs->busy_s += (double)one->run_ns * per_ns;
            costs->bytes += (double)one->bytes;
            costs->encode_s += (double)(one->encode_ns + one->decode_ns) * per_ns;
        }
        const taciti_tally all = sum_of(c, kind, buckets);
        for (size_t b = 0; b < c->shown_buckets; b++)
            pack_tally(c->shown_buckets < buckets ? &all : tally_of(c, kind, b), fields_of(c, kind, b));
    }
    costs->exposed_s = (double)report->wait_ns * per_ns;
    costs->step_s = seconds_of_step(c, costs->exposed_s);
}

/* The statistics, and the tallies, become those over all ranks, combined in rank order: the same bits everywhere. */
static tacit_status reduce_statistics(taciti_compression *c) {
    TACITI_TRY(taciti_comm_allreduce_by(c->comm, c->statistics, c->statistics_n, c->operations));
    costs_of(c)->step_s /= taciti_comm_size(c->comm);
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++)
        for (size_t b = 0; b < c->shown_buckets; b++) *tally_of(c, kind, b) = unpack_tally(fields_of(c, kind, b));
    return TACIT_OK;
}

/* ---- the next step ----------------------------------------------------------------------------------------------- */

/* In a dense step nothing is encoded: everything is sent. The norm is that of the sum. */
static void count_dense(taciti_compression *c, double norm) {
    for (size_t b = 0; b < c->layout->bucket_count; b++) {
        taciti_codec_tally *sent = &tally_of(c, TACITI_PAYLOAD_CONTRIBUTION, b)->sent;
        const double share = (double)c->layout->buckets[b].n / (double)c->layout->n;
        if (sent->n > 0 || c->layout->buckets[b].plain || taciti_compression_factor(c, b) > 1) continue;
        sent->n = sent->selected = sent->near = c->layout->buckets[b].n;
        sent->squares_in = sent->squares_out = share * norm * norm;
    }
}

/* |sum of the gradients over a period|^2 at its last step, per bucket and of the model. */
static void add_period(taciti_compression *c, taciti_tally *model) {
    const int64_t period = c->period_sum == NULL ? 0 : c->controller->period(c->setup.controller_options);
    if (period < 1) return;
    taciti_kernels_get()->add(c->period_sum, c->gradients, c->layout->n);
    if ((c->taken + 1) % period != 0) return;
    for (size_t b = 0; b < c->layout->bucket_count; b++) {
        const taciti_bucket *bucket = &c->layout->buckets[b];
        c->tallies[b].squares_period = taciti_optim_sum_squares(c->optim, c->period_sum, bucket->offset, bucket->n);
        model->squares_period += c->tallies[b].squares_period;
    }
    memset(c->period_sum, 0, c->layout->n * sizeof *c->period_sum);
}

/* Rank 0 decides: logarithms differ between processors in the last bit. */
static tacit_status share_decision(taciti_compression *c) {
    TACITI_TRY(taciti_comm_broadcast(c->comm, 0, &c->decision, sizeof c->decision));
    if (!c->controller->per_bucket) return TACIT_OK;
    return taciti_comm_broadcast(c->comm, 0, c->factors, c->layout->bucket_count * sizeof *c->factors);
}

static tacit_status decide_step(taciti_compression *c, double lr, const taciti_tally *contributions) {
    const taciti_costs *costs = costs_of(c);
    taciti_tally model = *contributions;
    for (size_t b = 0; b < c->layout->bucket_count; b++) {
        c->bucket_busy[b] = 0;
        for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++)
            c->bucket_busy[b] += (double)tally_of(c, kind, b)->run_ns * 1e-9 / taciti_comm_size(c->comm);
    }
    add_period(c, &model);
    const taciti_adapt_facts facts = {
        .step = c->taken,
        .at = c->step,
        .factor = taciti_compression_factor(c, c->layout->bucket_count),
        .lr = lr,
        .bytes = costs->bytes,
        .ranks = taciti_comm_size(c->comm),
        .buckets = c->layout->bucket_count,
        .model = model,
        .bucket = c->tallies,
        .bucket_bytes = c->bucket_bytes,
        .bucket_busy = c->bucket_busy,
        .seconds = {.step = costs->step_s,
                    .encode = costs->encode_s,
                    .exposed = costs->exposed_s,
                    .busy = costs->busy_s},
    };
    c->controller->decide(c->setup.controller_options, &facts, c->state, &c->decision, c->factors);
    return share_decision(c);
}

/* A threshold and what the step has shown of it. seen.n = 0: nothing. */
typedef struct seen_level {
    taciti_level is;
    taciti_threshold_seen seen;
    double measured; /* the threshold of an exact selection */
} seen_level;

taciti_threshold taciti_compression_threshold(const taciti_compression *c, taciti_payload_kind kind, double factor) {
    return c->sent[kind].factor == factor ? c->sent[kind].threshold : (taciti_threshold){0};
}

static taciti_threshold_seen counts_of(const taciti_codec_tally *tally) {
    return (taciti_threshold_seen){(double)tally->n, (double)tally->selected, (double)tally->near};
}

/* The threshold for the factor `next` of the step that comes: that of the same factor, else that of the nearest one
 * that was seen. */
static taciti_threshold threshold_for(const taciti_compression *c, const seen_level *levels, size_t count,
                                      double next) {
    const bool used = taciti_compression_by_threshold(&c->setup);
    const seen_level *best = NULL;
    for (size_t i = 0; i < count && used; i++) {
        const seen_level *l = &levels[i];
        const bool is_same = l->is.factor == next, is_seen = l->seen.n >= 1;
        if (next <= 1 || l->is.factor <= 1 || !(is_seen || is_same)) continue;
        if (best == NULL || fabs(log(l->is.factor / next)) < fabs(log(best->is.factor / next))) best = l;
    }
    if (best == NULL) return (taciti_threshold){0};
    taciti_threshold out = best->is.threshold;
    if (best->seen.n < 1) return out;
    if (out.value == 0) out.value = best->measured;
    if (out.value > 0) taciti_threshold_correct(&out, &best->seen, best->is.factor, next);
    return out;
}

/* Returns what the step has shown of a kind of payloads that had this factor. */
static seen_level level_of(const taciti_compression *c, taciti_payload_kind kind, const taciti_tally *t,
                           double factor) {
    return (seen_level){
        {factor, taciti_compression_threshold(c, kind, factor)}, counts_of(&t->sent), t->sent.threshold};
}

/* Corrects the threshold of results, which are never tried. A dense step sends all residuals, so
 * the step after it has no threshold.
 */
static void correct_results(taciti_compression *c, const taciti_tally *t, double factor, double next) {
    const seen_level sent = level_of(c, TACITI_PAYLOAD_RESULT, t, factor);
    c->sent[TACITI_PAYLOAD_RESULT] = (taciti_level){next, threshold_for(c, &sent, 1, next)};
}

/* Corrects the thresholds of contributions: the one that is sent with next, and the one that is tried. Two factors that
 * are tried in turns keep their thresholds. */
static void correct_contributions(taciti_compression *c, const taciti_tally *t, double factor, double next) {
    enum { LEVELS = 3 };
    const seen_level levels[LEVELS] = {level_of(c, TACITI_PAYLOAD_CONTRIBUTION, t, factor),
                                       {c->tried[0], counts_of(&t->trial), t->trial.threshold},
                                       {c->tried[1], {.n = 0}, 0}};
    const double trial = c->decision.trial, before = c->tried[0].factor;
    c->sent[TACITI_PAYLOAD_CONTRIBUTION] = (taciti_level){next, threshold_for(c, levels, LEVELS, next)};
    if (before != trial) c->tried[1] = (taciti_level){before, threshold_for(c, levels, LEVELS, before)};
    c->tried[0] = (taciti_level){trial, threshold_for(c, levels, LEVELS, trial)};
}

void taciti_compression_advance(taciti_compression *c, bool taken) {
    c->taken += taken;
    c->step += c->setup.every > 0 ? c->setup.every : 1;
    c->settled_ns = taciti_now_ns();
}

/* Adds the tallies of all buckets up, by kind. */
static void report_sums(const taciti_compression *c, taciti_tally sums[TACITI_PAYLOAD_KINDS],
                        taciti_step_report *report) {
    const taciti_tally *contributions = &sums[TACITI_PAYLOAD_CONTRIBUTION];
    const taciti_codec_tally *sent = &contributions->sent;
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++) {
        sums[kind] = sum_of(c, kind, c->shown_buckets);
        report->bytes += (double)sums[kind].bytes / taciti_comm_size(c->comm);
    }
    if (sent->squares_in > 0) report->gain = sent->squares_out / sent->squares_in;
    if (sent->n > 0) report->kept = (double)sent->selected / (double)sent->n;
    report->pending = (double)contributions->pending;
}

tacit_status taciti_compression_learn(taciti_compression *c, double lr, double norm, taciti_step_report *report) {
    const size_t all = c->layout->bucket_count;
    const double factor = taciti_compression_factor(c, all), back = taciti_compression_back_factor(c, factor);
    taciti_tally sums[TACITI_PAYLOAD_KINDS];
    report->factor = c->encoding.expected.factor > 0 || factor <= 1 ? factor : 0;
    report->gain = report->kept = 1;
    fill_statistics(c, report);
    if (factor <= 1 && (taciti_comm_size(c->comm) == 1 || c->state_bytes == 0)) { /* nobody learns from this step */
        report->bytes = costs_of(c)->bytes;
        memset(c->sent, 0, sizeof c->sent); /* the dense step has sent the residuals, too */
        taciti_compression_advance(c, true);
        return TACIT_OK;
    }
    TACITI_TRY(reduce_statistics(c));
    if (c->state_bytes > 0) count_dense(c, norm);
    report_sums(c, sums, report);
    if (c->state_bytes > 0) TACITI_TRY(decide_step(c, lr, &sums[TACITI_PAYLOAD_CONTRIBUTION]));
    taciti_compression_advance(c, true);
    const double next = taciti_compression_factor(c, all), next_back = taciti_compression_back_factor(c, next);
    correct_contributions(c, &sums[TACITI_PAYLOAD_CONTRIBUTION], factor, next);
    correct_results(c, &sums[TACITI_PAYLOAD_RESULT], back, next_back);
    return TACIT_OK;
}

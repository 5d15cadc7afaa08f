/* SPDX-License-Identifier: Apache-2.0
 *
 * shared: k of n elements, the same on all ranks, so that payloads hold values alone and add up in an all-reduce.
 *
 *   support    chosen by
 *   seed       the key: one element of each of k equal parts of the array, drawn anew in every step
 *   cyclic     turns: blocks of k elements, one after the other
 *   leader     rank (step mod N): its k largest elements, which it sends to all in a first round
 *   momentum   the largest elements of a moving average of the results, which all ranks know; a share of the support
 *              goes by turns, so that no element waits for ever
 *
 * Source: seed: Wangni et al. (arXiv 1710.09854) with a shared seed; leader: ScaleCom's CLT-k (Chen et al., NeurIPS
 * 2020); momentum: SCAPE (arXiv 2607.01678), section on the support. Coding of the leader's indices: support.h.
 *   deviations: seed draws from parts of the array instead of from all of it, which takes time in proportion to k.
 *   ScaleCom's filter of the residuals is compress.feedback. SCAPE takes the moment of the optimizer; here the codec
 * keeps an average of its own, so it suits every optimizer.
 *
 * Properties (exchange/test_linear.c): the support is the same on all ranks bit for bit; selection commutes with the
 * sum; factor 1 is dense bit for bit; by turns, every element is sent within ceil(n / own share of k) steps; what is
 * sent arrives bit for bit on a wire of f32; class LINEAR; deterministic. Not unbiased: error feedback makes up for it.
 * An array with a value that is not finite sends NaN in its first element.
 *
 * Payload, round 0    floats                     round 1    floats
 *   leader: indices   taciti_support_coded_n     values     k = max(1, floor(n / factor))
 * A decoder rejects any other size, and indices that are not ascending or not below n.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "codec/selector.h"
#include "codec/support.h"
#include "kernel/kernel.h"

typedef enum { BY_SEED, BY_TURNS, BY_LEADER, BY_MOMENTUM } choice;

typedef struct shared_options {
    int support;
    double beta, explore;
} shared_options;

static const shared_options DEFAULTS = {BY_SEED, 0.9, 0.25};

#define AT(member) offsetof(shared_options, member)
static const taciti_option OPTIONS[] = {
    TACITI_OPTION("support", ENUM, AT(support), "seed", .choices = "seed|cyclic|leader|momentum",
                  .help = "how all ranks choose the same elements: drawn from a shared seed; by turns; the largest of "
                          "one rank, by turns; the largest of the averaged results"),
    TACITI_OPTION("beta", REAL, AT(beta), "0.9", .min = 0, .max = 0.9999, .when = "shared.support=momentum",
                  .help = "support momentum: weight of the past in the average of results"),
    TACITI_OPTION("explore", REAL, AT(explore), "0.25", .min = 0, .max = 1, .when = "shared.support=momentum",
                  .help = "support momentum: share of the elements that are chosen by turns"),
};
static const taciti_option_table TABLE = {
    .section = "shared", .help = "the codec shared", .options = OPTIONS, .count = sizeof OPTIONS / sizeof *OPTIONS};

static const shared_options *options_of(const void *options) { return options == NULL ? &DEFAULTS : options; }

/* The same on all ranks; the averages of results follow it. */
typedef struct head {
    uint64_t turn;   /* steps taken */
    uint64_t cursor; /* next element by turns */
    uint64_t unused[6];
} head;
_Static_assert(sizeof(head) == TACITI_ALIGN_BYTES, "averages begin on a line");

static const float *averages(const void *state) { return (const float *)(const void *)((const head *)state + 1); }

/* ---- sizes ---------------------------------------------------------------------------------------------------------
 */
static size_t kept(const taciti_codec_call *call, size_t n) {
    return taciti_kept_of(call->setting.factor, TACITI_FACTOR, n);
}

static size_t payload_n(const taciti_codec_call *call, size_t n) {
    const size_t k = kept(call, n);
    if (call->round == 1) return k;
    return options_of(call->options)->support == BY_LEADER && k < n ? taciti_support_coded_n(n, k) : 0;
}

static size_t bound(const void *options, size_t n) {
    (void)options;
    return n * sizeof(float);
}

static size_t scratch_bytes(const void *options, size_t n) {
    (void)options;
    return taciti_support_bytes(n);
}

static size_t state_bytes(const taciti_codec_call *call, size_t n) {
    const int by = options_of(call->options)->support;
    return by == BY_SEED ? 0 : sizeof(head) + (by == BY_MOMENTUM ? n * sizeof(float) : 0);
}

/* ---- the support ---------------------------------------------------------------------------------------------------
 */
static size_t by_turns(const taciti_codec_call *call, size_t k) {
    const shared_options *o = options_of(call->options);
    if (o->support == BY_TURNS) return k;
    const size_t share = (size_t)ceil(o->explore * (double)k);
    return share < 1 ? 1 : share < k ? share : k;
}

/* Fills s->indices; *cursor: where turns go on in the next step. */
static tacit_status find(const taciti_codec_call *call, size_t n, const taciti_support *s, size_t *cursor) {
    const size_t k = kept(call, n);
    const int by = options_of(call->options)->support;
    const float *average = by == BY_MOMENTUM && call->state != NULL ? averages(call->state) : NULL;
    *cursor = call->state == NULL ? 0 : (size_t)((const head *)call->state)->cursor;
    if (by == BY_LEADER && k < n) return taciti_support_decode(s, call->before, n, k);
    if (by == BY_SEED || k == n)
        taciti_support_draw(s, call->key, n, k);
    else
        taciti_support_fill(s, average, n, average == NULL ? 0 : k - by_turns(call, k), k, cursor);
    return TACIT_OK;
}

static tacit_status check_call(const taciti_codec_call *call, size_t n) {
    taciti_codec_call first = *call;
    first.round = 0;
    if (call->scratch != NULL && (call->round == 0 || call->before != NULL || payload_n(&first, n) == 0))
        return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "shared is called in round %d without scratch memory or the sum before it",
                       call->round);
}

/* ---- encoding ------------------------------------------------------------------------------------------------------
 */
/* The leader's indices; zeros of all others. */
static void encode_indices(const taciti_codec_call *call, const float *x, size_t n, float *out) {
    const taciti_support s = taciti_support_in(call->scratch, n);
    const size_t k = kept(call, n), ranks = call->ranks > 0 ? (size_t)call->ranks : 1;
    const uint64_t turn = call->state == NULL ? 0 : ((const head *)call->state)->turn;
    size_t cursor = 0;
    memset(out, 0, payload_n(call, n) * sizeof *out);
    if (payload_n(call, n) == 0 || turn % ranks != (uint64_t)call->rank) return;
    taciti_support_fill(&s, x, n, k, k, &cursor);
    taciti_support_encode(&s, n, k, out);
}

static void add_to_tally(const taciti_codec_call *call, const float *x, size_t n, const float *values, size_t k) {
    if (call->tally == NULL) return;
    call->tally->squares_in += taciti_kernels_get()->sum_squares(x, n);
    call->tally->squares_out += taciti_kernels_get()->sum_squares(values, k);
    call->tally->n += n;
    call->tally->selected += k;
}

static tacit_status encode(const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,
                           size_t *bytes) {
    const size_t k = kept(call, n);
    float *values = out;
    size_t cursor = 0;
    *bytes = payload_n(call, n) * sizeof(float);
    if (n == 0) return TACIT_OK;
    TACITI_TRY(check_call(call, n));
    if (call->round == 0) {
        encode_indices(call, x, n, out);
        return TACIT_OK;
    }
    const taciti_support s = taciti_support_in(call->scratch, n);
    TACITI_TRY(find(call, n, &s, &cursor));
    taciti_kernels_get()->gather(values, x, s.indices, k);
    if (error != NULL) {
        memset(s.values, 0, k * sizeof *s.values);
        memcpy(error, x, n * sizeof *x);
        taciti_kernels_get()->scatter(error, s.indices, s.values, k);
    }
    add_to_tally(call, x, n, values, k);
    if (!taciti_kernels_get()->all_finite(x, n)) values[0] = NAN;
    return TACIT_OK;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------
 */
/* average = beta average + (1 - beta) result, in which elements outside of the support are 0. s->values is overwritten.
 */
static void write_next(const taciti_codec_call *call, const taciti_support *s, const float *values, size_t n,
                       size_t cursor) {
    const shared_options *o = options_of(call->options);
    const taciti_kernels *kernels = taciti_kernels_get();
    const size_t k = kept(call, n);
    head *next = call->next;
    if (next == NULL || o->support == BY_SEED) return;
    *next = (head){.turn = (call->state == NULL ? 0 : ((const head *)call->state)->turn) + 1, .cursor = cursor};
    if (o->support != BY_MOMENTUM) return;
    float *average = (float *)(void *)(next + 1);
    memset(average, 0, n * sizeof *average);
    if (call->state != NULL) kernels->add_scaled(average, averages(call->state), (float)o->beta, n);
    memset(s->values, 0, k * sizeof *s->values);
    kernels->add_scaled(s->values, values, (float)(1 - o->beta), k);
    kernels->scatter_add(average, s->indices, s->values, k);
}

/* What the support is; in round 0 nothing is decoded. */
static tacit_status receive(const taciti_codec_call *call, const void *payload, size_t bytes, bool add, float *x,
                            size_t n) {
    const size_t k = kept(call, n);
    size_t cursor = 0;
    if (bytes != payload_n(call, n) * sizeof(float))
        return taciti_fail(TACIT_E_DATA, "shared payload of %zu bytes where %zu of %zu floats need %zu", bytes, k, n,
                           payload_n(call, n) * sizeof(float));
    if (n == 0) return TACIT_OK;
    TACITI_TRY(check_call(call, n));
    const taciti_support s = taciti_support_in(call->scratch, n);
    if (call->round == 1) TACITI_TRY(find(call, n, &s, &cursor));
    if (!add) memset(x, 0, n * sizeof *x);
    if (call->round == 0) return TACIT_OK;
    if (add)
        taciti_kernels_get()->scatter_add(x, s.indices, payload, k);
    else
        taciti_kernels_get()->scatter(x, s.indices, payload, k);
    write_next(call, &s, payload, n, cursor);
    return TACIT_OK;
}

static tacit_status decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    return receive(call, payload, bytes, false, x, n);
}

static tacit_status decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    return receive(call, payload, bytes, true, x, n);
}

extern const taciti_codec taciti_codec_shared;
const taciti_codec taciti_codec_shared = {
    .name = "shared",
    .help = "sends elements that all ranks choose alike, so that no indices travel and payloads add up",
    .source = "random-k with a shared seed (arXiv 1710.09854), CLT-k (ScaleCom, 2020), SCAPE (arXiv 2607.01678)",
    .options = &TABLE,
    .options_size = sizeof(shared_options),
    .aggregation = TACITI_CODEC_LINEAR,
    .rounds = 2,
    .fixed_size = true,
    .selects = true,
    .shared_key = true,
    .exact_rounds = 1u << 0,
    .bound = bound,
    .scratch_bytes = scratch_bytes,
    .payload_n = payload_n,
    .linear_state_bytes = state_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};

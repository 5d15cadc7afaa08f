/* SPDX-License-Identifier: Apache-2.0
 *
 * powersgd: sends every matrix of the model as a product of two thin ones, found by one step of subspace iteration.
 *
 * Source: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
 * arXiv 1905.13727, algorithms 1 and 2; the rule which matrices pay is that of PyTorch's powerSGD_hook.
 *
 *   M (rows x columns)  of a rank, residual included   Q (columns x r)  right factor, from the step before
 *   P = sum M Q         first round                    Phat             orthonormalised P
 *   Q = sum M^T Phat    second round                   Phat Q^T         result
 *
 *   deviations: factors are summed and not averaged, because results are sums (Phat does not depend on the scale). A
 *   column of Q that has vanished is drawn again from the key, so a matrix whose rank grows is followed. Columns of Q
 *   have norm 1 in the state, so nothing overflows. The error of a rank is M - Phat Q_own^T, with Q_own its share of Q,
 *   instead of M - (mean result): the sum over ranks is the same, and the disagreement between ranks does not stay in
 *   the residuals for ever.
 *
 * Properties (exchange/test_linear.c): a matrix of rank <= r arrives exactly up to rounding; with a constant matrix and
 * without error feedback the factors converge to the r largest singular directions; results + errors = sum of inputs up
 * to rounding; the same bits on all ranks; class LINEAR; deterministic. Elements of no matrix travel as they are.
 *
 * Payload, round 0      floats                  round 1                    floats
 *   P per matrix        rank x rows               Q per matrix             rank x columns
 *                                                 the rest of the array    as many as it has
 * A decoder rejects any other size.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "codec/low_rank.h"
#include "kernel/kernel.h"

typedef struct powersgd_options {
    int64_t rank;
} powersgd_options;

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("rank", INT, offsetof(powersgd_options, rank), "4", .min = 1, .max = 1024,
                  .help = "columns of both factors of a matrix"),
};
static const taciti_option_table TABLE = TACITI_OPTION_TABLE("powersgd", "the codec powersgd", OPTIONS);

static size_t rank_of(const void *options) {
    return options == NULL ? 4 : (size_t)((const powersgd_options *)options)->rank;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */
/* The array as a sequence of matrices and of what is between them. */
typedef struct part {
    size_t at, n;         /* of the array */
    size_t rows, columns; /* 0: not a matrix that is compressed */
} part;

/* Begins with {0}; *next: the matrix to look at, at first 0. */
static bool next_part(const taciti_codec_call *call, size_t n, size_t *next, part *p) {
    const size_t at = p->at + p->n, rank = rank_of(call->options);
    const size_t count = call->matrices == NULL ? 0 : call->n_matrices;
    while (*next < count && !taciti_low_rank_pays(&call->matrices[*next], rank)) (*next)++;
    const taciti_codec_matrix *m = *next < count ? &call->matrices[*next] : NULL;
    *p = (part){.at = at, .n = (m != NULL ? m->at : n) - at};
    if (m != NULL && m->at == at) {
        *p = (part){.at = at, .n = m->rows * m->columns, .rows = m->rows, .columns = m->columns};
        (*next)++;
    }
    return p->n > 0;
}

/* Floats of Q, which the state has of every matrix. */
static size_t right_n(const taciti_codec_call *call, const part *p) { return rank_of(call->options) * p->columns; }

static size_t state_bytes(const taciti_codec_call *call, size_t n) {
    size_t bytes = 0, next = 0;
    for (part p = {0}; next_part(call, n, &next, &p);)
        if (p.rows > 0) bytes += right_n(call, &p) * sizeof(float);
    return bytes;
}

static size_t payload_n(const taciti_codec_call *call, size_t n) {
    const bool last = call->round == 1;
    size_t count = 0, next = 0;
    for (part p = {0}; next_part(call, n, &next, &p);) {
        if (p.rows == 0)
            count += last ? p.n : 0;
        else
            count += rank_of(call->options) * (last ? p.columns : p.rows);
    }
    return count;
}

/* A factor that pays is shorter than its matrix. */
static size_t bound_payload(const taciti_codec *codec, const void *options, size_t n) {
    (void)codec;
    (void)options;
    return n * sizeof(float);
}

static size_t scratch_bytes(const taciti_codec *codec, const void *options, size_t n) {
    return bound_payload(codec, options, n);
}

/* ---- one matrix of a call ------------------------------------------------------------------------------------------
 */
/* Where the factors of the current matrix are; advances from matrix to matrix. */
typedef struct walk {
    part p;
    size_t next;
    const float *state, *before;
    float *next_state;
} walk;

static walk walk_of(const taciti_codec_call *call) {
    return (walk){.before = call->before, .state = call->state, .next_state = call->next};
}

static bool walk_on(const taciti_codec_call *call, size_t n, walk *w) {
    const size_t passed = w->p.rows == 0 ? 0 : right_n(call, &w->p);
    if (w->state != NULL) w->state += passed;
    if (w->next_state != NULL) w->next_state += passed;
    if (w->before != NULL && w->p.rows > 0) w->before += rank_of(call->options) * w->p.rows;
    return next_part(call, n, &w->next, &w->p);
}

/* Writes to scratch the factor that both sides know: Q before the first round, Phat before the second. */
static float *known_factor(const taciti_codec_call *call, const walk *w) {
    const size_t rank = rank_of(call->options);
    const bool right = call->round == 1;
    const size_t n = right ? w->p.rows : w->p.columns;
    const float *from = right ? w->before : w->state;
    float *factor = call->scratch;
    if (from == NULL)
        memset(factor, 0, rank * n * sizeof *factor);
    else
        memcpy(factor, from, rank * n * sizeof *factor);
    if (right)
        taciti_low_rank_orthonormalise(factor, n, rank);
    else
        (void)taciti_low_rank_draw_missing(factor, n, rank, taciti_rng_key(call->key, w->p.at));
    return factor;
}

/* Where no matrix is longer than its factors there is no first round, and no sum of it. */
static tacit_status check_call(const taciti_codec_call *call, size_t n) {
    taciti_codec_call first = *call;
    first.round = 0;
    const bool needs_sum = call->round == 1 && payload_n(&first, n) > 0;
    if (call->scratch != NULL && (!needs_sum || call->before != NULL)) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "powersgd is called in round %d without scratch memory or the sum before it",
                       call->round);
}

/* The matrix's part of the payload; returns its floats. Only the last round knows the error. */
static size_t encode_matrix(const taciti_codec_call *call, const walk *w, const float *m, float *out, float *error) {
    const size_t rank = rank_of(call->options);
    const float *known = known_factor(call, w);
    const bool right = call->round == 1;
    if (right)
        taciti_low_rank_times_left(out, m, known, w->p.rows, w->p.columns, rank);
    else
        taciti_low_rank_times_right(out, m, known, w->p.rows, w->p.columns, rank);
    if (right && error != NULL) {
        memcpy(error, m, w->p.n * sizeof *m);
        taciti_low_rank_add_product(error, known, out, -1, w->p.rows, w->p.columns, rank);
    }
    return rank * (right ? w->p.columns : w->p.rows);
}

static tacit_status encode_factor(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                                  void *out, float *error, size_t *bytes) {
    (void)codec;
    const bool last = call->round == 1;
    float *to = out;
    walk w = walk_of(call);
    if (call->n_matrices > 0) TACITI_TRY(check_call(call, n));
    while (walk_on(call, n, &w)) {
        const float *from = x + w.p.at;
        float *wrong = error == NULL ? NULL : error + w.p.at;
        if (w.p.rows > 0) {
            to += encode_matrix(call, &w, from, to, wrong);
        } else {
            if (last) memcpy(to, from, w.p.n * sizeof *x);
            if (last) to += w.p.n;
            if (wrong != NULL) memset(wrong, 0, w.p.n * sizeof *x);
        }
    }
    *bytes = (size_t)(to - (float *)out) * sizeof *to;
    if (call->tally == NULL) return TACIT_OK;
    call->tally->squares_in += taciti_kernels_get()->sum_squares(x, n);
    call->tally->squares_out += taciti_kernels_get()->sum_squares(out, *bytes / sizeof *to);
    call->tally->n += n;
    call->tally->selected += *bytes / sizeof *to;
    return TACIT_OK;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------
 */
/* The state of the next step: the factor that has arrived, with columns of norm 1. */
static void keep_factor(float *state, const float *factor, size_t n, size_t rank) {
    for (size_t k = 0; k < rank; k++) {
        const double norm = sqrt(taciti_kernels_get()->dot(factor + k * n, factor + k * n, n));
        memset(state + k * n, 0, n * sizeof *state);
        if (norm >= (double)FLT_MIN && isfinite(norm)) /* its inverse is an f32 */
            taciti_kernels_get()->add_scaled(state + k * n, factor + k * n, (float)(1 / norm), n);
    }
}

static size_t decode_matrix(const taciti_codec_call *call, const walk *w, const float *payload, float *x) {
    const size_t rank = rank_of(call->options);
    taciti_low_rank_add_product(x, known_factor(call, w), payload, 1, w->p.rows, w->p.columns, rank);
    if (w->next_state != NULL) keep_factor(w->next_state, payload, w->p.columns, rank);
    return rank * w->p.columns;
}

static tacit_status decode_sum(const taciti_codec *codec, const taciti_codec_call *call, const void *payload,
                               size_t bytes, float *x, size_t n, bool add) {
    (void)codec;
    const float *from = payload;
    const size_t want = payload_n(call, n) * sizeof(float);
    walk w = walk_of(call);
    if (bytes != want)
        return taciti_fail(TACIT_E_DATA, "powersgd payload of %zu bytes where %zu floats need %zu", bytes, n, want);
    if (call->n_matrices > 0) TACITI_TRY(check_call(call, n));
    if (call->next != NULL) memset(call->next, 0, state_bytes(call, n));
    while (walk_on(call, n, &w)) {
        float *to = x + w.p.at;
        if (w.p.rows > 0) {
            if (!add) memset(to, 0, w.p.n * sizeof *x);
            from += decode_matrix(call, &w, from, to);
            continue;
        }
        if (add) taciti_kernels_get()->add(to, from, w.p.n);
        if (!add) memcpy(to, from, w.p.n * sizeof *x);
        from += w.p.n;
    }
    return TACIT_OK;
}

extern const taciti_codec taciti_codec_powersgd;
const taciti_codec taciti_codec_powersgd = {
    .name = "powersgd",
    .reference = true,
    .help = "sends every matrix as a product of two thin ones, improved from step to step",
    .source = "PowerSGD (arXiv 1905.13727)",
    .options = &TABLE,
    .options_size = sizeof(powersgd_options),
    .aggregation = TACITI_CODEC_LINEAR,
    .rounds = 2,
    .fixed_size = true,
    .shared_key = true,
    .bound = bound_payload,
    .scratch_bytes = scratch_bytes,
    .payload_n = payload_n,
    .linear_state_bytes = state_bytes,
    .encode = encode_factor,
    .decode = decode_sum,
};

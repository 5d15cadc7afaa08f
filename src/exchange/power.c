/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding. X_i and A_i are large beside their deviations. If the Q_i added up to a rounding error e of mean A instead
 * of 0, sum B would contain mean X e, which hides the deviations D as soon as |D|^2 < 2^-24 |X|^2. So all that the Q_i
 * share is computed without rounding: A_i is cut to so few bits that n numbers of about the same size have an exact sum
 * S, and Q_i = (n A_i - S) / n, where n A_i is exact and the rest has errors relative to Q_i. Numbers that are not
 * of the same size are as large as their deviations, and so are their errors. A cut A_i is off by a part of 2^-22 with
 * two members, one bit more for every doubling: replicas come that close, and the sum over members is not affected.
 *
 * Payload, round 0          floats             round 1       floats
 *   A_i per matrix          width x longer       B_i per matrix  width x shorter
 *   the rest of the bucket  as many as it has
 */
#include "exchange/power.h"

#include <string.h>

#include "base/number.h"
#include "codec/low_rank.h"
#include "exchange/linear.h"

enum { FLOAT_BITS = 24, GUARD_BITS = 1, BEFORE_ALL = -1 };

/* ---- shapes ------------------------------------------------------------------------------------------------------ */
static size_t shorter_n(const taciti_power *power, const taciti_codec_matrix *m) {
    return power->setup.width * taciti_min(m->rows, m->columns);
}

static size_t longer_n(const taciti_power *power, const taciti_codec_matrix *m) {
    return power->setup.width * taciti_max(m->rows, m->columns);
}

/* The part of the bucket's n floats between matrix number index - 1 and the one after it. */
static taciti_range rest_before(const taciti_power_bucket *b, size_t index, size_t n) {
    const taciti_codec_matrix *last = index > 0 ? &b->matrices[index - 1] : NULL;
    const size_t at = last == NULL ? 0 : last->at + last->rows * last->columns;
    return (taciti_range){.at = at, .n = (index < b->count ? b->matrices[index].at : n) - at};
}

/* Writes the matrices of a bucket that pay. */
static size_t choose_matrices(const taciti_power_setup *setup, size_t bucket, taciti_codec_matrix *out) {
    const bool plain = setup->layout->buckets[bucket].plain;
    const size_t all = plain ? 0 : taciti_linear_matrices(setup->layout, bucket, out);
    size_t count = 0;
    for (size_t i = 0; i < all; i++)
        if (taciti_low_rank_pays(&out[i], setup->width)) out[count++] = out[i];
    return count;
}

/* Sizes of a bucket whose matrices are set. */
static void size_bucket(taciti_power *power, taciti_power_bucket *b, size_t n) {
    b->at = power->factors_n;
    for (size_t i = 0; i < b->count; i++) {
        b->own_n += longer_n(power, &b->matrices[i]);
        b->second_n += shorter_n(power, &b->matrices[i]);
    }
    b->first_n = b->own_n;
    for (size_t i = 0; i <= b->count; i++) b->first_n += rest_before(b, i, n).n;
    power->factors_n += b->second_n;
    if (b->count == 0) return; /* needs no buffer */
    power->payload_n = taciti_max(power->payload_n, b->first_n);
    power->own_n = taciti_max(power->own_n, b->own_n);
}

static tacit_status describe_buckets(taciti_power *power) {
    const taciti_layout *layout = power->setup.layout;
    size_t found = 0;
    for (size_t b = 0; b < layout->bucket_count; b++) found += taciti_linear_matrices(layout, b, NULL);
    power->buckets = taciti_calloc(layout->bucket_count, sizeof *power->buckets);
    power->matrices = taciti_calloc(found, sizeof *power->matrices);
    if (power->buckets == NULL || power->matrices == NULL) return TACIT_E_MEMORY;
    taciti_codec_matrix *matrices = power->matrices;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        power->buckets[b].matrices = matrices;
        power->buckets[b].count = choose_matrices(&power->setup, b, matrices);
        matrices += power->buckets[b].count;
        size_bucket(power, &power->buckets[b], layout->buckets[b].n);
    }
    return TACIT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
tacit_status taciti_power_describe(const taciti_power_setup *setup, taciti_power *out) {
    const taciti_encoding f32 = {.codec = taciti_codec_find("f32")};
    *out = (taciti_power){.setup = *setup};
    if (setup->width == 0)
        return taciti_fail(TACIT_E_CONFIG, "mixing by factors without columns; their number must be 1 or more");
    TACITI_TRY(taciti_allreduce_describe(setup->hosts, setup->members, setup->rank, &f32, setup->placement,
                                         setup->segment_bytes, &out->reduce));
    return describe_buckets(out);
}

static size_t buffer_bytes(size_t n) { return taciti_round_up(n * sizeof(float), TACITI_ALIGN_BYTES); }

static size_t reduce_bytes(const taciti_power *power) {
    return taciti_round_up(taciti_allreduce_workspace_bytes(&power->reduce), TACITI_ALIGN_BYTES);
}

size_t taciti_power_workspace_bytes(const taciti_power *power) {
    return reduce_bytes(power) + buffer_bytes(power->payload_n) + buffer_bytes(power->own_n);
}

size_t taciti_power_factor_bytes(const taciti_power *power) { return 2 * power->factors_n * sizeof(float); }

static uint64_t key_of(const taciti_power *power, int64_t step, size_t bucket, const taciti_codec_matrix *m) {
    return taciti_rng_key(taciti_codec_key(power->setup.seed, step, TACITI_CODEC_ALL_RANKS, bucket), m->at);
}

/* Makes the columns of P orthonormal; those without a direction of their own are drawn. */
static void complete_factor(const taciti_power *power, float *p, const taciti_codec_matrix *m, uint64_t key) {
    const size_t rows = taciti_min(m->rows, m->columns), width = power->setup.width;
    taciti_low_rank_orthonormalise(p, rows, width);
    if (taciti_low_rank_draw_missing(p, rows, width, key)) taciti_low_rank_orthonormalise(p, rows, width);
}

/* Completes the factors p of a bucket. */
static void complete_factors(const taciti_power *power, float *p, size_t bucket, int64_t step) {
    const taciti_power_bucket *b = &power->buckets[bucket];
    for (size_t i = 0; i < b->count; p += shorter_n(power, &b->matrices[i++]))
        complete_factor(power, p, &b->matrices[i], key_of(power, step, bucket, &b->matrices[i]));
}

void taciti_power_begin_anew(taciti_power *power) {
    memset(power->factors, 0, power->factors_n * sizeof *power->factors);
    for (size_t b = 0; b < power->setup.layout->bucket_count; b++) {
        complete_factors(power, power->factors + power->buckets[b].at, b, BEFORE_ALL);
        power->buckets[b].pending = false;
    }
}

tacit_status taciti_power_open(taciti_power *power, taciti_comm *comm, void *workspace) {
    power->comm = comm;
    power->factors = taciti_calloc(2 * power->factors_n, sizeof *power->factors);
    if (power->factors == NULL) return TACIT_E_MEMORY;
    power->coming = power->factors + power->factors_n;
    if (workspace == NULL) {
        TACITI_TRY(taciti_pages_create(taciti_power_workspace_bytes(power) + 1, "mixing by low rank", &power->memory));
        workspace = power->memory.base;
    }
    power->payload = (float *)(void *)((char *)workspace + reduce_bytes(power));
    power->own = power->payload + buffer_bytes(power->payload_n) / sizeof(float);
    taciti_power_begin_anew(power);
    return taciti_allreduce_open(&power->reduce, comm, workspace);
}

void taciti_power_destroy(taciti_power *power) {
    taciti_allreduce_destroy(&power->reduce);
    taciti_free(power->buckets);
    taciti_free(power->matrices);
    taciti_free(power->factors);
    taciti_pages_destroy(&power->memory);
    *power = (taciti_power){0};
}

/* ---- products, with the shorter side as the rows ----------------------------------------------------------------- */
/* out = X^T P */
static void times_shorter(const taciti_power *power, const taciti_codec_matrix *m, const float *x, const float *p,
                          float *out) {
    (m->rows <= m->columns ? taciti_low_rank_times_left : taciti_low_rank_times_right)(out, x, p, m->rows, m->columns,
                                                                                       power->setup.width);
}

/* out = X Q */
static void times_longer(const taciti_power *power, const taciti_codec_matrix *m, const float *x, const float *q,
                         float *out) {
    (m->rows <= m->columns ? taciti_low_rank_times_right : taciti_low_rank_times_left)(out, x, q, m->rows, m->columns,
                                                                                       power->setup.width);
}

/* X -= P Q^T */
static void subtract_product(const taciti_power *power, const taciti_codec_matrix *m, float *x, const float *p,
                             const float *q) {
    const bool wide = m->rows <= m->columns;
    taciti_low_rank_add_product(x, wide ? p : q, wide ? q : p, -1, m->rows, m->columns, power->setup.width);
}

/* ---- first round ------------------------------------------------------------------------------------------------- */
/* Rounds x[n] to the bits that leave the sum of numbers of one size exact: (c x) - (c x - x) with c = 2^bits + 1
 * (Dekker, Numerische Mathematik 18, 1971). out receives a copy. */
static void cut_bits(float *x, float *out, size_t n, size_t members) {
    const taciti_kernels *kernels = taciti_kernels_get();
    size_t bits = GUARD_BITS;
    while (bits < FLOAT_BITS - 1 && (size_t)1 << (bits - GUARD_BITS) < members) bits++;
    memcpy(out, x, n * sizeof *x);
    kernels->scale(out, (float)(((size_t)1 << bits) + 1), n);
    kernels->add_scaled(x, out, -1, n);
    kernels->add(out, x, n);
    memcpy(x, out, n * sizeof *x);
}

/* The payload; A_i also in `own`. */
static void write_first(taciti_power *power, const taciti_power_bucket *b, const float *x, size_t n) {
    const float *p = power->factors + b->at;
    float *to = power->payload;
    for (size_t i = 0; i < b->count; i++) {
        times_shorter(power, &b->matrices[i], x + b->matrices[i].at, p, to);
        p += shorter_n(power, &b->matrices[i]);
        to += longer_n(power, &b->matrices[i]);
    }
    cut_bits(power->payload, power->own, b->own_n, (size_t)power->reduce.arrangement.size);
    for (size_t i = 0; i <= b->count; i++) {
        const taciti_range rest = rest_before(b, i, n);
        memcpy(to, x + rest.at, rest.n * sizeof *x);
        to += rest.n;
    }
}

/* x[n] = sum / members, as a dense mix has it. */
static void divide_by_members(const taciti_power *power, float *x, size_t n) {
    taciti_kernels_get()->scale(x, 1 / (float)power->reduce.arrangement.size, n);
}

/* `own` becomes Q_i; the rest of x becomes its mean. */
static void read_first(taciti_power *power, const taciti_power_bucket *b, float *x, size_t n) {
    const taciti_kernels *kernels = taciti_kernels_get();
    float *from = power->payload + b->own_n;
    kernels->scale(power->own, (float)power->reduce.arrangement.size, b->own_n);
    kernels->add_scaled(power->own, power->payload, -1, b->own_n);
    divide_by_members(power, power->own, b->own_n);
    divide_by_members(power, from, b->first_n - b->own_n);
    for (size_t i = 0; i <= b->count; i++) {
        const taciti_range rest = rest_before(b, i, n);
        memcpy(x + rest.at, from, rest.n * sizeof *x);
        from += rest.n;
    }
}

/* ---- second round ------------------------------------------------------------------------------------------------ */
/* X_i -= P Q_i^T; the payload becomes B_i. */
static void write_second(taciti_power *power, const taciti_power_bucket *b, float *x) {
    const float *p = power->factors + b->at, *q = power->own;
    float *to = power->payload;
    for (size_t i = 0; i < b->count; i++) {
        const taciti_codec_matrix *m = &b->matrices[i];
        subtract_product(power, m, x + m->at, p, q);
        times_longer(power, m, x + m->at, q, to);
        p += shorter_n(power, m);
        to += shorter_n(power, m);
        q += longer_n(power, m);
    }
}

static void read_second(taciti_power *power, size_t bucket, int64_t step) {
    taciti_power_bucket *b = &power->buckets[bucket];
    float *coming = power->coming + b->at;
    memcpy(coming, power->payload, b->second_n * sizeof *coming);
    complete_factors(power, coming, bucket, step);
    b->pending = true;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */
/* Adds the time since *since_ns, which becomes now. */
static void count_time(taciti_power *power, taciti_span_kind kind, int64_t *since_ns) {
    const int64_t now_ns = taciti_now_ns();
    taciti_payload_time(power->comm, kind, now_ns - *since_ns);
    *since_ns = now_ns;
}

static tacit_status mix_elements(taciti_power *power, float *x, size_t n, const taciti_bucket_task *task) {
    TACITI_TRY(taciti_allreduce_run(&power->reduce, x, n, task, NULL));
    divide_by_members(power, x, n);
    return TACIT_OK;
}

static tacit_status mix_matrices(taciti_power *power, float *x, size_t n, const taciti_bucket_task *task) {
    const taciti_power_bucket *b = &power->buckets[task->bucket];
    int64_t since_ns = taciti_now_ns();
    write_first(power, b, x, n);
    count_time(power, TACITI_SPAN_ENCODE, &since_ns);
    TACITI_TRY(taciti_allreduce_run(&power->reduce, power->payload, b->first_n, task, NULL));
    since_ns = taciti_now_ns();
    read_first(power, b, x, n);
    count_time(power, TACITI_SPAN_DECODE, &since_ns);
    write_second(power, b, x);
    count_time(power, TACITI_SPAN_ENCODE, &since_ns);
    TACITI_TRY(taciti_allreduce_run(&power->reduce, power->payload, b->second_n, task, NULL));
    since_ns = taciti_now_ns();
    read_second(power, task->bucket, task->step);
    count_time(power, TACITI_SPAN_DECODE, &since_ns);
    return TACIT_OK;
}

tacit_status taciti_power_run(taciti_power *power, float *x, size_t n, const taciti_bucket_task *task) {
    const taciti_bucket_task plain = {.bucket = task->bucket, .step = task->step};
    if (n != power->setup.layout->buckets[task->bucket].n)
        return taciti_fail(TACIT_E_INTERNAL, "a mix of %zu floats where bucket %zu has %zu", n, task->bucket,
                           power->setup.layout->buckets[task->bucket].n);
    if (power->reduce.arrangement.size == 1 || n == 0) return TACIT_OK;
    return (power->buckets[task->bucket].count == 0 ? mix_elements : mix_matrices)(power, x, n, &plain);
}

void taciti_power_settle(taciti_power *power, size_t bucket) {
    taciti_power_bucket *b = &power->buckets[bucket];
    if (b->pending) memcpy(power->factors + b->at, power->coming + b->at, b->second_n * sizeof *power->factors);
    b->pending = false;
}

float *taciti_power_factors(taciti_power *power, size_t *n) {
    *n = power->factors_n;
    return power->factors;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */
uint64_t taciti_power_bytes(const taciti_power *power, size_t bucket) {
    return taciti_allreduce_bytes(&power->reduce, power->buckets[bucket].first_n) +
           taciti_allreduce_bytes(&power->reduce, power->buckets[bucket].second_n);
}

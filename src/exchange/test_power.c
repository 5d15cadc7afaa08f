/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of mixing by low rank (power.h): what one mix computes, what many do to deviations, that nothing is lost,
 * and that a mix is a function of replicas, factors and its number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "codec/low_rank.h"
#include "exchange/demand.h"
#include "exchange/test_power.h"

/* ---- one mix, by loops in double --------------------------------------------------------------------------------- */
/* Element (i, j) of a matrix with the shorter side as rows, and its position. */
static size_t position_of(const taciti_codec_matrix *m, size_t i, size_t j) {
    return m->rows <= m->columns ? i * m->columns + j : j * m->columns + i;
}

/* A matrix of the test: deviations D of this rank, factor P, and their products, column by column. */
typedef struct reference {
    const taciti_codec_matrix *m;
    size_t rows, columns;
    double *d, *p, *q, *b;
} reference;

static reference make_reference(const bench *b, size_t k, const taciti_codec_matrix *m, const float *p) {
    reference r = {.m = m, .rows = taciti_min(m->rows, m->columns), .columns = taciti_max(m->rows, m->columns)};
    r.d = taciti_calloc(r.rows * r.columns, sizeof *r.d);
    r.p = taciti_calloc(r.rows * WIDTH, sizeof *r.p);
    r.q = taciti_calloc(r.columns * WIDTH, sizeof *r.q);
    r.b = taciti_calloc(r.rows * WIDTH, sizeof *r.b);
    for (size_t i = 0; i < r.rows; i++)
        for (size_t j = 0; j < r.columns; j++) {
            const size_t at = b->layout.buckets[k].offset + m->at + position_of(m, i, j);
            r.d[i * r.columns + j] = (double)b->x[at] - b->mean[at];
        }
    for (size_t i = 0; i < r.rows * WIDTH; i++) r.p[i] = (double)p[i];
    return r;
}

static void drop_reference(reference *r) {
    taciti_free(r->d);
    taciti_free(r->p);
    taciti_free(r->q);
    taciti_free(r->b);
}

/* D -= P Q^T with Q = D^T P; then b = sum over ranks of D Q. */
static void take_reference_step(const bench *b, reference *r) {
    for (size_t k = 0; k < WIDTH; k++)
        for (size_t j = 0; j < r->columns; j++)
            for (size_t i = 0; i < r->rows; i++)
                r->q[k * r->columns + j] += r->d[i * r->columns + j] * r->p[k * r->rows + i];
    for (size_t k = 0; k < WIDTH; k++)
        for (size_t i = 0; i < r->rows; i++)
            for (size_t j = 0; j < r->columns; j++)
                r->d[i * r->columns + j] -= r->p[k * r->rows + i] * r->q[k * r->columns + j];
    for (size_t k = 0; k < WIDTH; k++)
        for (size_t i = 0; i < r->rows; i++)
            for (size_t j = 0; j < r->columns; j++)
                r->b[k * r->rows + i] += r->d[i * r->columns + j] * r->q[k * r->columns + j];
    add_over_ranks(b, r->b, r->rows * WIDTH);
}

static double product_of(const double *x, const double *y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void orthonormalise_reference(double *b, size_t n) {
    for (size_t k = 0; k < WIDTH; k++) {
        for (size_t j = 0; j < k; j++) {
            const double share = product_of(b + k * n, b + j * n, n);
            for (size_t i = 0; i < n; i++) b[k * n + i] -= share * b[j * n + i];
        }
        const double norm = sqrt(product_of(b + k * n, b + k * n, n));
        for (size_t i = 0; i < n; i++) b[k * n + i] /= norm;
    }
}

/* x: the mixed bucket; p: the factor after it. Numbers are about 1, sums have up to 76 of them. */
static void compare_with_reference(const bench *b, size_t k, const reference *r, const float *p) {
    for (size_t i = 0; i < r->rows; i++)
        for (size_t j = 0; j < r->columns; j++) {
            const size_t at = b->layout.buckets[k].offset + r->m->at + position_of(r->m, i, j);
            CHECK(fabs((double)b->x[at] - b->mean[at] - r->d[i * r->columns + j]) < 4e-6);
        }
    for (size_t i = 0; i < r->rows * WIDTH; i++) CHECK(fabs((double)p[i] - r->b[i]) < 1e-5);
}

static void follow_loops(taciti_comm *comm, void *context) {
    enum { MIXES = 2 }; /* after three, 7 rows have a single direction left, and the second column is noise */
    bench b;
    set_up(comm, *(int *)context, &b);
    fill(&b, 1);
    for (int64_t number = 0; number < MIXES; number++) {
        size_t matrices = 0;
        for (size_t k = 0; k < b.layout.bucket_count; k++) {
            const taciti_power_bucket *bucket = &b.power.buckets[k];
            reference all[MAX_MATRICES];
            const float *p = b.power.factors + bucket->at;
            for (size_t i = 0; i < bucket->count; p += all[i].rows * WIDTH, i++) {
                all[i] = make_reference(&b, k, &bucket->matrices[i], p);
                take_reference_step(&b, &all[i]);
                orthonormalise_reference(all[i].b, all[i].rows);
            }
            mix_bucket(&b, &b.power, number, k, b.x);
            taciti_power_settle(&b.power, k);
            p = b.power.factors + bucket->at;
            for (size_t i = 0; i < bucket->count; p += all[i].rows * WIDTH, i++) {
                compare_with_reference(&b, k, &all[i], p);
                drop_reference(&all[i]);
            }
            matrices += bucket->count;
        }
        CHECK(matrices == 6);
    }
    tear_down(&b);
}

static void a_mix_is_that_of_plain_loops(void **state) {
    (void)state;
    try_all(follow_loops);
}

/* ---- means and sums ---------------------------------------------------------------------------------------------- */
static void mix_the_rest(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    fill(&b, 1);
    size_t outside = 0;
    mix_once(&b, &b.power, 0, b.x);
    for (size_t i = 0; i < b.layout.n; i++) {
        if (b.inside[i]) continue;
        CHECK(fabs((double)b.x[i] - b.mean[i]) <= (b.size + 2) * (double)FLT_EPSILON);
        outside++;
    }
    CHECK(outside >= 10 + 9 + 700);
    tear_down(&b);
}

static void elements_of_no_matrix_become_their_mean(void **state) {
    (void)state;
    try_all(mix_the_rest);
}

/* Replicas have elements of up to 1.25, and every mix rounds each of them WIDTH times. */
static void keep_the_sum(taciti_comm *comm, void *context) {
    enum { MIXES = 30 };
    bench b;
    set_up(comm, *(int *)context, &b);
    fill(&b, 1);
    mix_often(&b, MIXES);
    for (size_t i = 0; i < b.layout.n; i++) b.sum[i] = (double)b.x[i] / b.size;
    add_over_ranks(&b, b.sum, b.layout.n);
    for (size_t i = 0; i < b.layout.n; i++)
        CHECK(fabs(b.sum[i] - b.mean[i]) <= (WIDTH + 1) * MIXES * (double)FLT_EPSILON);
    tear_down(&b);
}

static void the_sum_over_members_is_kept(void **state) {
    (void)state;
    try_all(keep_the_sum);
}

static void keep_equals(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    fill(&b, 0);
    float *before = taciti_calloc(b.layout.n, sizeof *before);
    float *drawn = taciti_calloc(b.power.factors_n, sizeof *drawn); /* all columns: there are no deviations */
    memcpy(before, b.x, b.layout.n * sizeof *before);
    for (int64_t number = 0; number < 4; number++) {
        mix_once(&b, &b.power, number, b.x);
        settle_all(&b, &b.power);
        CHECK(memcmp(drawn, b.power.factors, b.power.factors_n * sizeof *drawn) != 0);
        memcpy(drawn, b.power.factors, b.power.factors_n * sizeof *drawn);
    }
    taciti_free(drawn);
    has_rank_0s_bits(&b, b.x, b.layout.n);
    for (size_t i = 0; i < b.layout.n; i++) {
        const double off = fabs((double)b.x[i] - (double)before[i]);
        CHECK(off <= (b.inside[i] ? 0 : 4 * (b.size + 2) * (double)FLT_EPSILON));
    }
    taciti_free(before);
    tear_down(&b);
}

static void equal_replicas_stay_equal_and_their_matrices_as_they_are(void **state) {
    (void)state;
    try_all(keep_equals);
}

/* ---- deviations -------------------------------------------------------------------------------------------------- */
static void contract(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    fill(&b, 1);
    double before = distance_of(&b);
    const double start = before;
    for (int64_t number = 0; number < 25; number++) {
        mix_once(&b, &b.power, number, b.x);
        settle_all(&b, &b.power);
        const double after = distance_of(&b);
        CHECK(after <= before + 1e-5 * start);
        before = after;
    }
    CHECK(start > 1 && before < 1e-4 * start);
    tear_down(&b);
}

/* The shorter sides have up to 40 rows, of which every mix settles WIDTH. */
static void repeated_mixes_reach_the_mean(void **state) {
    (void)state;
    try_all(contract);
}

/* x += scale * u v^T with u shared by the ranks, WIDTH times, for every matrix. */
static void deviate_by_low_rank(bench *b, float scale) {
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        for (size_t t = 0; t < b->power.buckets[k].count; t++) {
            const taciti_codec_matrix *m = &b->power.buckets[k].matrices[t];
            float *x = b->x + b->layout.buckets[k].offset + m->at;
            for (size_t r = 0; r < WIDTH; r++) {
                float *u = taciti_calloc(m->rows, sizeof *u), *v = taciti_calloc(m->columns, sizeof *v);
                const bool wide = m->rows <= m->columns;
                for (size_t i = 0; i < m->rows; i++) u[i] = draw(wide ? 200 + r : 10 * r + (size_t)b->rank, i + k);
                for (size_t j = 0; j < m->columns; j++) v[j] = draw(wide ? 10 * r + (size_t)b->rank : 200 + r, j + k);
                taciti_low_rank_add_product(x, u, v, 4 * scale, m->rows, m->columns, 1);
                taciti_free(u);
                taciti_free(v);
            }
        }
    find_mean(b);
}

static void remove_low_rank(taciti_comm *comm, int scheme, float scale, double left) {
    bench b;
    set_up(comm, scheme, &b);
    fill(&b, 0);
    deviate_by_low_rank(&b, scale);
    const double start = distance_of(&b);
    CHECK(start > 4 * (double)scale);
    mix_often(&b, 1);
    CHECK(distance_of(&b) > 0.3 * start);
    mix_once(&b, &b.power, 1, b.x);
    CHECK(distance_of(&b) < left * start);
    tear_down(&b);
}

static void remove_large(taciti_comm *comm, void *context) { remove_low_rank(comm, *(int *)context, 1, 1e-4); }

/* 2^-24 of the replicas' squares is more than the squares of these deviations. */
static void remove_small(taciti_comm *comm, void *context) { remove_low_rank(comm, *(int *)context, 1e-4F, 0.1); }

/* x of a matrix becomes 2 times the first column of P in every column, and a small number: elements of the first column
 * of A_i lie on both sides of 2. */
static void straddle_two(bench *b, size_t k, const taciti_codec_matrix *m, const float *p) {
    float *x = b->x + b->layout.buckets[k].offset + m->at;
    const size_t rows = taciti_min(m->rows, m->columns), columns = taciti_max(m->rows, m->columns);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) x[position_of(m, i, j)] = 2 * p[i] + 1e-4F * own_value(b, i * columns + j);
}

/* The last bucket with matrices; its Q_i stay in the workspace. */
static void add_up_to_nothing(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    for (size_t k = 0; k < b.layout.bucket_count; k++) {
        const taciti_power_bucket *bucket = &b.power.buckets[k];
        const float *p = b.power.factors + bucket->at;
        for (size_t i = 0; i < bucket->count; i++) {
            straddle_two(&b, k, &bucket->matrices[i], p);
            p += WIDTH * taciti_min(bucket->matrices[i].rows, bucket->matrices[i].columns);
        }
        mix_bucket(&b, &b.power, 0, k, b.x);
        double largest = 0;
        for (size_t i = 0; i < bucket->own_n; i++) {
            b.sum[i] = (double)b.power.own[i];
            largest = fmax(largest, fabs(b.sum[i]));
        }
        add_over_ranks(&b, b.sum, bucket->own_n);
        CHECK(taciti_comm_allreduce_f64(comm, &largest, 1, TACITI_OP_MAX) == TACIT_OK);
        CHECK(bucket->count == 0 || (largest > 1e-5 && largest < 1e-2));
        for (size_t i = 0; i < bucket->own_n; i++) CHECK(fabs(b.sum[i]) <= 4 * b.size * (double)FLT_EPSILON * largest);
    }
    tear_down(&b);
}

static void parts_of_deviations_add_up_to_nothing(void **state) {
    (void)state;
    try_all(add_up_to_nothing);
}

static void deviations_of_low_rank_vanish_in_two_mixes(void **state) {
    (void)state;
    try_all(remove_large);
}

static void small_deviations_are_not_hidden_by_rounding(void **state) {
    (void)state;
    try_all(remove_small);
}

/* ---- factors ----------------------------------------------------------------------------------------------------- */
static void check_orthonormal(const float *p, size_t n) {
    for (size_t k = 0; k < WIDTH; k++)
        for (size_t j = 0; j <= k; j++) {
            double dot = 0;
            for (size_t i = 0; i < n; i++) dot += (double)p[k * n + i] * (double)p[j * n + i];
            CHECK(fabs(dot - (j == k)) < 1e-6);
        }
}

static void check_factors(bench *b) {
    size_t n = 0, found = 0;
    const float *p = taciti_power_factors(&b->power, &n);
    has_rank_0s_bits(b, p, n);
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        for (size_t i = 0; i < b->power.buckets[k].count; i++) {
            const taciti_codec_matrix *m = &b->power.buckets[k].matrices[i];
            check_orthonormal(p + found, taciti_min(m->rows, m->columns));
            found += WIDTH * taciti_min(m->rows, m->columns);
        }
    CHECK(found == n && n > 0);
}

/* Replicas that differ, that are equal, that differ in few directions, and of which one is not finite. */
static void share_factors(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    check_factors(&b);
    for (int kind = 0; kind < 4; kind++) {
        fill(&b, kind == 1 || kind == 2 ? 0 : 1);
        if (kind == 2) deviate_by_low_rank(&b, 1);
        for (int64_t number = 0; number < 3; number++) {
            if (kind == 3 && b.rank == 0) b.x[number] = number == 0 ? NAN : INFINITY;
            mix_once(&b, &b.power, number, b.x);
            settle_all(&b, &b.power);
            check_factors(&b);
        }
    }
    tear_down(&b);
}

static void members_have_the_same_orthonormal_factors(void **state) {
    (void)state;
    try_all(share_factors);
}

static void stop_at_its_row(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    fill(&b, 1);
    if (b.rank == 1) b.x[7 * 3 + 2] = NAN; /* a row of the shorter side's length */
    mix_once(&b, &b.power, 0, b.x);
    CHECK(isnan(b.x[7 * 3 + 2]));
    for (size_t i = 0; i < b.layout.n; i++) CHECK(i / 7 == 3 || isfinite(b.x[i]));
    tear_down(&b);
}

static void a_number_that_is_not_finite_stays_in_its_row(void **state) {
    (void)state;
    try_all(stop_at_its_row);
}

/* A run that is not settled changes no factor, and is repeated bit for bit, also by another object with the same
 * factors. */
static void repeat_runs(taciti_comm *comm, void *context) {
    bench b, other;
    set_up(comm, *(int *)context, &b);
    set_up(comm, *(int *)context, &other);
    fill(&b, 1);
    size_t n = 0;
    float *before = taciti_calloc(b.layout.n, sizeof *before);
    for (int64_t number = 0; number < 4; number++) {
        memcpy(before, b.x, b.layout.n * sizeof *before);
        mix_once(&b, &b.power, number, b.x);
        for (int again = 0; again < 2; again++) {
            taciti_power *power = again == 0 ? &b.power : &other.power;
            memcpy(taciti_power_factors(power, &n), b.power.factors, n * sizeof(float));
            memcpy(other.x, before, b.layout.n * sizeof *before);
            mix_once(&b, power, number, other.x);
            CHECK(memcmp(other.x, b.x, b.layout.n * sizeof *before) == 0);
        }
        settle_all(&b, &b.power);
        settle_all(&b, &b.power);
        settle_all(&b, &other.power);
        CHECK(memcmp(other.power.factors, b.power.factors, n * sizeof(float)) == 0);
    }
    other.power.factors[0] = 7; /* as a checkpoint does */
    settle_all(&b, &other.power);
    CHECK(other.power.factors[0] == 7);
    taciti_power_begin_anew(&other.power);
    memcpy(before, other.power.factors, n * sizeof *before);
    mix_once(&b, &other.power, 9, other.x);
    taciti_power_begin_anew(&other.power); /* it forgets that run */
    settle_all(&b, &other.power);
    CHECK(memcmp(before, other.power.factors, n * sizeof *before) == 0);
    taciti_free(before);
    tear_down(&b);
    tear_down(&other);
}

static void a_run_without_settling_leaves_no_trace(void **state) {
    (void)state;
    try_all(repeat_runs);
}

/* ---- bytes, groups, memory --------------------------------------------------------------------------------------- */
/* Returns the bytes that the planner predicts of its two sums of every bucket, on the busiest host's link. *bound:
 * pairs of ranks that may talk are off by 96 floats in a sum that is not short (demand.c). */
static double planned_bytes(const taciti_power *power, double *bound) {
    const taciti_power_setup *s = &power->setup;
    const double pairs = (double)(s->members.count * s->members.count) / 4;
    double bytes = *bound = 0;
    for (size_t b = 0; b < s->layout->bucket_count; b++) {
        const size_t sums[] = {power->buckets[b].first_n * sizeof(float), power->buckets[b].second_n * sizeof(float)};
        for (size_t i = 0; i < 2; i++) {
            bytes +=
                taciti_allreduce_demand(s->hosts, s->members.ranks, s->members.count, s->placement, sums[i], sums[i])
                    .host_bytes;
            if (!taciti_small_pays(&power->reduce.arrangement, sums[i] / sizeof(float)))
                *bound += 96 * sizeof(float) * pairs;
        }
    }
    return bytes;
}

/* Group `number` of two ways to divide the ranks: everybody, or even and odd ones. Its ranks, and whether I belong to
 * it. */
static bool list_members(const bench *b, int number, int *ranks, taciti_members *out) {
    bool me = false;
    *out = (taciti_members){.ranks = ranks};
    for (int r = 0; r < b->size; r++) {
        if (number > 0 && r % 2 != number - 1) continue;
        ranks[out->count++] = r;
        me = me || r == b->rank;
    }
    return me;
}

static void count_bytes(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    for (int number = 0; number < 3; number++) {
        int ranks[MAX_RANKS];
        taciti_members members;
        const bool belongs = list_members(&b, number, ranks, &members);
        const taciti_power_setup setup = setup_of(&b, members, *(int *)context);
        taciti_power power;
        CHECK(taciti_power_describe(&setup, &power) == TACIT_OK);
        if (belongs) CHECK(taciti_power_open(&power, comm, NULL) == TACIT_OK);
        fill(&b, 1);
        const uint64_t before = taciti_comm_count(comm).bytes_sent, nic_before = test_bytes_to_other_hosts(comm);
        if (belongs) mix_once(&b, &power, 0, b.x);
        const uint64_t sent = taciti_comm_count(comm).bytes_sent - before;
        uint64_t own = 0;
        for (size_t bucket = 0; belongs && bucket < b.layout.bucket_count; bucket++)
            own += taciti_power_bytes(&power, bucket);
        CHECK(sent == own);
        CHECK(!belongs || members.count == 1 || sent > 0);
        double bound = 0;
        const double planned = planned_bytes(&power, &bound);
        CHECK(fabs(test_bytes_of_busiest_host(comm, nic_before) - planned) <= bound);
        taciti_power_destroy(&power);
    }
    tear_down(&b);
}

static void bytes_are_as_predicted_for_all_groups(void **state) {
    (void)state;
    try_all(count_bytes);
}

/* Two objects mix by turns in one workspace, and give the bits of those that have their own. */
static void share_workspace(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    taciti_power_setup setup = setup_of(&b, (taciti_members){0}, *(int *)context);
    taciti_power all[4];
    taciti_pages pages;
    CHECK(taciti_pages_create(taciti_power_workspace_bytes(&b.power), "a test", &pages) == TACIT_OK);
    CHECK(taciti_power_workspace_bytes(&b.power) % TACITI_ALIGN_BYTES == 0);
    CHECK(taciti_power_factor_bytes(&b.power) == 2 * b.power.factors_n * sizeof(float));
    for (size_t i = 0; i < 4; i++) {
        setup.seed = SEED + i % 2;
        CHECK(taciti_power_describe(&setup, &all[i]) == TACIT_OK);
        CHECK(taciti_power_open(&all[i], comm, i < 2 ? pages.base : NULL) == TACIT_OK);
    }
    float *results[4];
    for (size_t i = 0; i < 4; i++) {
        fill(&b, 1);
        results[i] = taciti_calloc(b.layout.n, sizeof(float));
        memcpy(results[i], b.x, b.layout.n * sizeof(float));
    }
    for (int64_t number = 0; number < 3; number++)
        for (size_t i = 0; i < 4; i++) {
            mix_once(&b, &all[i], number, results[i]);
            settle_all(&b, &all[i]);
        }
    for (size_t i = 0; i < 2; i++) CHECK(memcmp(results[i], results[i + 2], b.layout.n * sizeof(float)) == 0);
    CHECK(memcmp(results[0], results[1], b.layout.n * sizeof(float)) != 0);
    for (size_t i = 0; i < 4; i++) {
        taciti_power_destroy(&all[i]);
        taciti_free(results[i]);
    }
    taciti_pages_destroy(&pages);
    tear_down(&b);
}

static void groups_may_share_a_workspace(void **state) {
    (void)state;
    try_all(share_workspace);
}

/* Buckets of plain tensors are not compressed. */
static void leave_plain_tensors(taciti_comm *comm, void *context) {
    bench b = {.comm = comm, .rank = taciti_comm_rank(comm), .size = taciti_comm_size(comm)};
    make_layout(&b.layout);
    b.layout.tensors[4].plain = true;
    CHECK(taciti_layout_seal(&b.layout, BUCKET_BYTES) == TACIT_OK);
    const taciti_power_setup setup = setup_of(&b, (taciti_members){0}, *(int *)context);
    CHECK(taciti_power_describe(&setup, &b.power) == TACIT_OK);
    size_t plain = 0;
    for (size_t k = 0; k < b.layout.bucket_count; k++) {
        if (!b.layout.buckets[k].plain) continue;
        CHECK(b.power.buckets[k].count == 0 && b.power.buckets[k].first_n == b.layout.buckets[k].n);
        if (plain == 0) CHECK(b.power.payload_n < b.layout.buckets[k].n); /* they are mixed in place */
        plain++;
    }
    CHECK(plain > 0);
    taciti_power_destroy(&b.power);
    taciti_layout_destroy(&b.layout);
}

static void plain_tensors_are_not_compressed(void **state) {
    (void)state;
    int scheme = TACITI_SCHEME_AUTO;
    const taciti_comm_options options = test_comm_options(false);
    test_world_run(2, &options, leave_plain_tensors, &scheme);
}

static void refuse_misuse(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, *(int *)context, &b);
    taciti_power_setup setup = setup_of(&b, (taciti_members){0}, *(int *)context);
    setup.width = 0;
    taciti_power power;
    CHECK(taciti_power_describe(&setup, &power) == TACIT_E_CONFIG);
    taciti_power_destroy(&power);
    taciti_power_destroy(&power);
    const taciti_bucket_task task = {.bucket = 0};
    CHECK(taciti_power_run(&b.power, b.x, 5, &task) == TACIT_E_INTERNAL);
    tear_down(&b);
}

static void misuse_is_refused(void **state) {
    (void)state;
    int scheme = TACITI_SCHEME_AUTO;
    test_log_keep();
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(2, &options, refuse_misuse, &scheme);
    assert_int_equal(test_log_count("factors without columns"), 2);
    assert_int_equal(test_log_count("a mix of 5 floats where bucket 0 has"), 2);
    test_log_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mix_is_that_of_plain_loops),
        cmocka_unit_test(elements_of_no_matrix_become_their_mean),
        cmocka_unit_test(the_sum_over_members_is_kept),
        cmocka_unit_test(equal_replicas_stay_equal_and_their_matrices_as_they_are),
        cmocka_unit_test(repeated_mixes_reach_the_mean),
        cmocka_unit_test(deviations_of_low_rank_vanish_in_two_mixes),
        cmocka_unit_test(parts_of_deviations_add_up_to_nothing),
        cmocka_unit_test(small_deviations_are_not_hidden_by_rounding),
        cmocka_unit_test(members_have_the_same_orthonormal_factors),
        cmocka_unit_test(a_number_that_is_not_finite_stays_in_its_row),
        cmocka_unit_test(a_run_without_settling_leaves_no_trace),
        cmocka_unit_test(bytes_are_as_predicted_for_all_groups),
        cmocka_unit_test(groups_may_share_a_workspace),
        cmocka_unit_test(plain_tensors_are_not_compressed),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

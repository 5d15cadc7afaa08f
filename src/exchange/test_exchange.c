/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/trial.h"
#include "comm/test_engine.h"
#include "exchange/allreduce.h"
#include "exchange/bucket_job.h"
#include "exchange/demand.h"
#include "exchange/exchange.h"
#include "exchange/test_layout.h"
#include "exchange/test_wire.h"

static const size_t LENGTHS[] = {0, 1, 15, 16, 17, 48, 100, 1000, 8192, 20001};
enum { LENGTH_COUNT = sizeof LENGTHS / sizeof *LENGTHS, MAX = 20001 };

typedef float values[MAX];

/* The contributions of every rank are drawn once, because the tests below read them many times. */
static values small_integers[8], wild_values[8];

/* Small integers: exact in any order and, up to 256, in bf16. */
static float draw_small_integer(int rank, size_t i) {
    return (float)((int)taciti_rng_below(taciti_rng_key(5, (uint64_t)rank), i, 17) - 8);
}

static float draw_wild(int rank, size_t i) {
    const uint64_t key = taciti_rng_key(6, (uint64_t)rank);
    const double u = taciti_rng_unit(key, 2 * i) - 0.5;
    const float x =
        (float)ldexp(u, (int)taciti_rng_below(key, 2 * i + 1, 40) - 27); /* sums stay below 65504, the largest fp16 */
    return i % 101 == 0 ? 0.0f : i % 103 == 0 ? 0x1p-140f : x;
}

static void draw_values(void) {
    for (int rank = 0; rank < 8; rank++)
        for (size_t i = 0; i < MAX; i++) {
            small_integers[rank][i] = draw_small_integer(rank, i);
            wild_values[rank][i] = draw_wild(rank, i);
        }
}

static float small_integer(int rank, size_t i) { return small_integers[rank][i]; }
static float wild(int rank, size_t i) { return wild_values[rank][i]; }

/* ---- sums -------------------------------------------------------------------------------------------------------- */
static tacit_status run(taciti_comm *comm, void *context) {
    (void)comm;
    struct {
        taciti_allreduce *reduce;
        float *x;
        size_t n;
    } *c = context;
    return taciti_allreduce_run(c->reduce, c->x, c->n, NULL, NULL);
}

static void reduce_on_thread(taciti_comm *comm, taciti_allreduce *reduce, float *x, size_t n) {
    struct {
        taciti_allreduce *reduce;
        float *x;
        size_t n;
    } c = {reduce, x, n};
    taciti_job job = {.run = run, .context = &c, .name = "test", .detail = -1};
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == TACIT_OK);
}

/* One trial: a codec and the requested placement. */
typedef struct trial {
    const taciti_codec *codec;
    taciti_placement requested;
} trial;

/* Arrangements of ranks on hosts, in no order; rank r is on host ARRANGEMENTS[i][r]. */
static const int ARRANGEMENTS[][8] = {
    {0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 1, 1, 2, 2, 3, 3},
    {1, 0, 1, 1, 0, 0, 1, 1}, {2, 2, 2, 0, 1, 1, 2, 2}, {0, 1, 1, 1, 1, 1, 1, 1},
};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS };

/* The thread sanitizer makes a message thirty times slower, that of addresses three times; there every third and every
 * other number of ranks have to do. */
#if defined(__SANITIZE_THREAD__)
enum { SIZE_STEP = 3 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SIZE_STEP = 2 };
#else
enum { SIZE_STEP = 1 };
#endif

/* Every number format, scheme and arrangement, at this number of ranks. */
static void try_all(int size, const taciti_comm_options *options, test_rank *rank) {
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        for (int scheme = TACITI_SCHEME_AUTO; scheme <= TACITI_SCHEME_HOSTS; scheme++)
            for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
                if (!taciti_codec_is_dense(*codec)) continue;
                trial t = {.codec = *codec, .requested = {.scheme = (taciti_scheme)scheme, .lanes = i % 3}};
                test_hosts(ARRANGEMENTS[i]);
                test_world_run(size, options, rank, &t);
            }
    test_hosts(NULL);
}

/* Pairs of ranks on a host and elsewhere that talk to each other, of the host with the most of them. */
static size_t pairs_of(const taciti_arrangement *p) {
    size_t max = 0;
    for (int at = 0; at < p->hosts; at++) {
        const int host = p->host_of[p->first[at]];
        size_t pairs = 0;
        for (int here = 0; here < p->hosts; here++)
            for (int there = 0; there < p->hosts; there++)
                pairs += p->host_of[p->first[here]] == host && p->host_of[p->first[there]] != host;
        if (pairs > max) max = pairs;
    }
    return max * (size_t)p->lanes;
}

/* Returns whether the planner says so of a sum of n floats: exactly if it is short, else up to what demand.c says. */
static bool is_planned(const taciti_comm *comm, const trial *t, const taciti_allreduce *reduce, size_t n, double sent) {
    const bool small = !reduce->halves_only && taciti_small_pays(&reduce->arrangement, n);
    const size_t f32_bytes = reduce->halves_only ? SIZE_MAX : n * sizeof(float);
    const taciti_demand demand = taciti_allreduce_demand(taciti_comm_hosts(comm), NULL, 0, t->requested,
                                                         t->codec->bound(t->codec, NULL, n), f32_bytes);
    const double float_bytes = (double)t->codec->bound(t->codec, NULL, 1);
    const double bound = small ? 0 : 2 * 48 * float_bytes * (double)pairs_of(&reduce->arrangement);
    return fabs(sent - demand.host_bytes) <= bound;
}

static void sum_integers(taciti_comm *comm, void *context) {
    const trial *t = context;
    const int size = taciti_comm_size(comm), rank = taciti_comm_rank(comm);
    taciti_allreduce reduce;
    CHECK(taciti_allreduce_create(comm, &(taciti_encoding){.codec = t->codec}, (taciti_members){0}, t->requested,
                                  taciti_comm_segment_bytes(comm), &reduce) == TACIT_OK);
    float *x = taciti_calloc(MAX + 1, sizeof *x);
    for (size_t l = 0; l < 2 * LENGTH_COUNT; l++) {
        const size_t n = LENGTHS[l % LENGTH_COUNT];
        if (l == LENGTH_COUNT) reduce.halves_only = true; /* short arrays by halves as well */
        for (size_t i = 0; i < n; i++) x[i] = small_integer(rank, i);
        x[n] = 12345.0f;
        const uint64_t before = taciti_comm_count(comm).bytes_sent, nic_before = test_bytes_to_other_hosts(comm);
        reduce_on_thread(comm, &reduce, x, n);
        CHECK(taciti_comm_count(comm).bytes_sent - before == taciti_allreduce_bytes(&reduce, n));
        CHECK(is_planned(comm, t, &reduce, n, test_bytes_of_busiest_host(comm, nic_before)));
        for (size_t i = 0; i < n; i++) {
            float sum = 0;
            for (int r = 0; r < size; r++) sum += small_integer(r, i);
            CHECK(x[i] == sum);
        }
        CHECK(x[n] == 12345.0f);
    }
    taciti_free(x);
    taciti_allreduce_destroy(&reduce);
}

static void integers_sum_exactly_for_any_ranks_length_wire_and_arrangement(void **state) {
    (void)state;
    for (int size = 1; size <= 8; size += SIZE_STEP) {
        taciti_comm_options options = test_comm_options(true);
        options.segment_bytes = size % 2 == 0 ? 1024 : 16384;
        try_all(size, &options, sum_integers);
    }
}

/* sum[n] through the wire and back. */
static void pass_wire(const taciti_codec *codec, float *sum, size_t n) {
    void *payload = taciti_calloc(codec->bound(codec, NULL, n) + 1, 1);
    size_t bytes = 0;
    CHECK(codec->encode(codec, &(taciti_codec_call){0}, sum, n, payload, NULL, &bytes) == TACIT_OK);
    CHECK(codec->decode(codec, &(taciti_codec_call){0}, payload, bytes, sum, n, false) == TACIT_OK);
    taciti_free(payload);
}

/* The sum of what one host contributes, in rank order; a host of the flat scheme is one rank. */
static void sum_host(const taciti_comm *comm, int leader, bool flat, float *part, size_t n) {
    for (size_t i = 0; i < n; i++) part[i] = wild(leader, i);
    for (int r = leader + 1; r < taciti_comm_size(comm) && !flat; r++)
        for (size_t i = 0; i < n && taciti_comm_same_host(comm, leader, r); i++) part[i] += wild(r, i);
}

/* The definition, sequentially: every host's part through the wire, added in the order of the hosts, the sum through
 * the wire; nothing is rounded when there is no wire. */
static void define(const taciti_comm *comm, const taciti_codec *codec, bool flat, float *sum, size_t n) {
    float *part = taciti_calloc(n + 1, sizeof *part);
    int hosts = 0;
    for (int r = 0; r < taciti_comm_size(comm); r++) hosts += flat || taciti_comm_peer(comm, r)->local_rank == 0;
    for (int r = 0, host = 0; r < taciti_comm_size(comm); r++) {
        if (!flat && taciti_comm_peer(comm, r)->local_rank != 0) continue;
        sum_host(comm, r, flat, part, n);
        if (hosts > 1) pass_wire(codec, part, n);
        for (size_t i = 0; i < n; i++) sum[i] = host == 0 ? part[i] : sum[i] + part[i];
        host++;
    }
    if (hosts > 1) pass_wire(codec, sum, n);
    taciti_free(part);
}

static bool is_flat(const taciti_comm *comm, taciti_scheme scheme) {
    bool alone = true;
    for (int r = 0; r < taciti_comm_size(comm); r++) alone = alone && taciti_comm_peer(comm, r)->local_size == 1;
    const bool together = taciti_comm_peer(comm, 0)->local_size == taciti_comm_size(comm);
    return scheme == TACITI_SCHEME_FLAT || (scheme == TACITI_SCHEME_AUTO && (alone || together));
}

static void compare_with_definition(taciti_comm *comm, void *context) {
    const trial *t = context;
    taciti_allreduce reduce;
    CHECK(taciti_allreduce_create(comm, &(taciti_encoding){.codec = t->codec}, (taciti_members){0}, t->requested,
                                  taciti_comm_segment_bytes(comm), &reduce) == TACIT_OK);
    float *x = taciti_calloc(MAX, sizeof *x), *expected = taciti_calloc(MAX, sizeof *x);
    for (size_t l = 0; l < 2 * LENGTH_COUNT; l++) {
        const size_t n = LENGTHS[l % LENGTH_COUNT];
        if (l == LENGTH_COUNT) reduce.halves_only = true; /* the same bits on both ways */
        for (size_t i = 0; i < n; i++) x[i] = wild(taciti_comm_rank(comm), i);
        define(comm, t->codec, is_flat(comm, t->requested.scheme), expected, n);
        reduce_on_thread(comm, &reduce, x, n);
        CHECK(memcmp(x, expected, n * sizeof *x) == 0);
    }
    taciti_free(x);
    taciti_free(expected);
    taciti_allreduce_destroy(&reduce);
}

static void every_rank_holds_the_bits_of_the_definition(void **state) {
    (void)state;
    for (int size = 2; size <= 7; size += SIZE_STEP) {
        taciti_comm_options options = test_comm_options(size % 3 != 0);
        options.segment_bytes = 2048;
        try_all(size, &options, compare_with_definition);
    }
}

/* One run, on the thread, that gives the errors back. */
typedef struct giving {
    taciti_allreduce *reduce;
    float *x;
    size_t n;
    taciti_residual *errors;
} giving;

static tacit_status run_giving(taciti_comm *comm, void *context) {
    const giving *g = context;
    (void)comm;
    return taciti_allreduce_run(g->reduce, g->x, g->n, NULL, g->errors);
}

static void reduce_and_give_back(taciti_comm *comm, giving g) {
    taciti_job job = {.run = run_giving, .context = &g, .name = "test", .detail = -1};
    for (size_t i = 0; i < g.n; i++) g.x[i] = wild(taciti_comm_rank(comm), i);
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == TACIT_OK);
}

/* The result of all but what is given back, which the sum of the inputs lacks. */
static void check_errors(taciti_comm *comm, taciti_allreduce *reduce, taciti_residual *errors, float *block, size_t n) {
    float *x = block, *y = x + MAX;
    double *given = taciti_calloc(n, sizeof *given);
    const int size = taciti_comm_size(comm);
    reduce_and_give_back(comm, (giving){reduce, x, n, NULL});
    reduce_and_give_back(comm, (giving){reduce, y, n, errors});
    for (size_t i = 0; i < n; i++) given[i] = (double)y[i] - (double)x[i];
    CHECK(taciti_comm_allreduce_f64(comm, given, n, TACITI_OP_SUM) == TACIT_OK);
    for (size_t i = 0; i < n; i++) {
        double sum = 0, length = 0;
        for (int r = 0; r < size; r++) {
            sum += (double)wild(r, i);
            length += fabs((double)wild(r, i));
        }
        CHECK(fabs((double)x[i] + given[i] - sum) <= 2 * size * ((double)FLT_EPSILON * length + 0x1p-149));
        CHECK(!reduce->encoding.codec->identity || y[i] == x[i]);
    }
    taciti_free(given);
}

static void give_errors_back(taciti_comm *comm, void *context) {
    const trial *t = context;
    taciti_allreduce reduce;
    CHECK(taciti_allreduce_create(comm, &(taciti_encoding){.codec = t->codec}, (taciti_members){0}, t->requested,
                                  taciti_comm_segment_bytes(comm), &reduce) == TACIT_OK);
    taciti_residual errors = taciti_allreduce_errors(&reduce, 1);
    errors.scratch = taciti_calloc(reduce.segment_n + MAX, sizeof *errors.scratch);
    errors.errors = errors.scratch + reduce.segment_n;
    float *block = taciti_calloc((size_t)MAX * 2, sizeof *block);
    for (size_t l = 0; l < 2 * LENGTH_COUNT; l++) {
        const size_t n = LENGTHS[l % LENGTH_COUNT];
        if (n > 1000 && n < MAX) continue;
        if (l == LENGTH_COUNT) reduce.halves_only = true;
        check_errors(comm, &reduce, &errors, block, n);
    }
    taciti_free(block);
    taciti_free(errors.scratch);
    taciti_allreduce_destroy(&reduce);
}

static void errors_given_back_make_the_sum_whole(void **state) {
    (void)state;
    for (int size = 1; size <= 7; size += SIZE_STEP + 1) {
        taciti_comm_options options = test_comm_options(size % 3 != 0);
        options.segment_bytes = 2048;
        try_all(size, &options, give_errors_back);
    }
}

static void spread_infinity(taciti_comm *comm, void *context) {
    taciti_allreduce reduce;
    CHECK(taciti_allreduce_create(comm, &(taciti_encoding){.codec = context}, (taciti_members){0},
                                  (taciti_placement){.scheme = TACITI_SCHEME_AUTO, .lanes = 0}, 4096,
                                  &reduce) == TACIT_OK);
    float x[40];
    for (size_t i = 0; i < 40; i++) x[i] = (float)i;
    if (taciti_comm_rank(comm) == 1) {
        x[3] = INFINITY;
        x[30] = NAN;
    }
    reduce_on_thread(comm, &reduce, x, 40);
    CHECK(isinf(x[3]) && isnan(x[30]) && x[4] == 4.0f * (float)taciti_comm_size(comm));
    taciti_allreduce_destroy(&reduce);
}

static void what_is_not_finite_arrives_everywhere(void **state) {
    (void)state;
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        taciti_codec one = **codec;
        if (!taciti_codec_is_dense(&one)) continue;
        const taciti_comm_options options = test_comm_options(true);
        test_world_run(3, &options, spread_infinity, &one);
    }
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */
typedef struct plan {
    int wire;
    bool blocking;
    float *results[8]; /* per rank */
} plan;

static void exchange_buckets(taciti_comm *comm, void *context) {
    plan *p = context;
    taciti_layout layout;
    test_layout_of_five(&layout);
    const taciti_exchange_options options = {
        .wire = test_wire(p->wire), .bucket_bytes = 10000, .overlap = !p->blocking};
    taciti_exchange *exchange = NULL;
    CHECK(taciti_exchange_create(comm, &layout, &options, NULL, &exchange) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x);
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < layout.n; i++) x[i] = draw_wild(taciti_comm_rank(comm) + 10 * step, i);
        const uint64_t before = taciti_comm_count(comm).bytes_sent;
        for (size_t b = 0; b < layout.bucket_count; b++) {
            CHECK(taciti_exchange_begin(exchange, x, b) == TACIT_OK);
            if (p->blocking) CHECK(taciti_exchange_wait(exchange, b) == TACIT_OK);
        }
        for (size_t b = 0; b < layout.bucket_count && !p->blocking; b++)
            CHECK(taciti_exchange_wait(exchange, b) == TACIT_OK);
        CHECK(taciti_comm_count(comm).bytes_sent - before == taciti_exchange_bytes_per_step(exchange));
    }
    CHECK((taciti_exchange_predict_bytes(comm, &layout, &options, NULL) > 0) == (taciti_comm_size(comm) > 1));
    taciti_exchange_destroy(exchange);
    taciti_layout_destroy(&layout);
    p->results[taciti_comm_rank(comm)] = x;
}

static void overlapped_equals_blocking_bit_for_bit(void **state) {
    (void)state;
    taciti_layout layout;
    test_layout_of_five(&layout);
    for (int wire = 0; wire < 2; wire++)
        for (int size = 1; size <= 5; size++) {
            const taciti_comm_options options = test_comm_options(true);
            plan overlapped = {.wire = wire}, blocking = {.wire = wire, .blocking = true};
            test_world_run(size, &options, exchange_buckets, &overlapped);
            test_world_run(size, &options, exchange_buckets, &blocking);
            for (int r = 0; r < size; r++) {
                assert_memory_equal(overlapped.results[r], blocking.results[0], layout.n * sizeof(float));
                if (r > 0) taciti_free(blocking.results[r]);
                taciti_free(overlapped.results[r]);
            }
            taciti_free(blocking.results[0]);
        }
    taciti_layout_destroy(&layout);
}

static void misuse_is_refused(void **state) {
    (void)state;
    taciti_layout layout;
    test_layout_of_five(&layout);
    taciti_comm_options options = test_comm_options(false);
    taciti_comm *comm = NULL;
    taciti_exchange *exchange = NULL;
    assert_int_equal(taciti_comm_open(&options, &comm), TACIT_OK);
    const taciti_exchange_options exchange_options = {.overlap = true};
    assert_int_equal(taciti_exchange_create(comm, &layout, &exchange_options, NULL, &exchange), TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x);
    assert_int_equal(taciti_exchange_wait(exchange, 0), TACIT_E_INTERNAL);
    assert_int_equal(taciti_exchange_begin(exchange, x, 0), TACIT_OK);
    assert_int_equal(taciti_exchange_begin(exchange, x, 0), TACIT_E_INTERNAL);
    assert_int_equal(taciti_exchange_wait(exchange, 0), TACIT_OK);
    assert_int_equal(taciti_exchange_bytes_per_step(exchange), 0);
    taciti_codec linear = **taciti_codec_list();
    linear.aggregation = TACITI_CODEC_LINEAR;
    taciti_allreduce reduce;
    assert_int_equal(taciti_allreduce_create(comm, &(taciti_encoding){.codec = &linear}, (taciti_members){0},
                                             (taciti_placement){.scheme = TACITI_SCHEME_AUTO, .lanes = 0}, 4096,
                                             &reduce),
                     TACIT_E_CONFIG);
    taciti_free(x);
    taciti_exchange_destroy(exchange);
    taciti_exchange_destroy(NULL);
    taciti_comm_close(comm);
    taciti_layout_destroy(&layout);
}

static void look_at_costs(taciti_comm *comm, void *context) {
    (void)context;
    taciti_allreduce reduce;
    CHECK(taciti_allreduce_create(comm, &(taciti_encoding){.codec = taciti_codec_find("f32")}, (taciti_members){0},
                                  (taciti_placement){.scheme = TACITI_SCHEME_AUTO, .lanes = 0}, 4096,
                                  &reduce) == TACIT_OK);
    const taciti_arrangement *p = &reduce.arrangement;
    CHECK(p->hosts < p->size || taciti_small_pays(p, 2));
    CHECK(!taciti_small_pays(p, taciti_small_max_n(p) + 1));
    /* Eight ranks at most: some messages of tens of microseconds each, inside hosts as well as between them. */
    CHECK(taciti_small_halves_cost_s(p, 1) > 0 && taciti_small_halves_cost_s(p, 1) < 5e-3);
    for (size_t n = 1; n < 100000; n *= 3) {
        CHECK(taciti_small_cost_s(p, 3 * n) > taciti_small_cost_s(p, n));
        CHECK(taciti_small_halves_cost_s(p, 3 * n) > taciti_small_halves_cost_s(p, n));
        CHECK(!taciti_small_pays(p, n) || taciti_small_cost_s(p, n) < taciti_small_halves_cost_s(p, n));
    }
    taciti_allreduce_destroy(&reduce);
}

static void short_arrays_take_the_way_that_costs_less(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(false);
    for (int size = 2; size <= 8; size++)
        for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
            test_hosts(ARRANGEMENTS[i]);
            test_world_run(size, &options, look_at_costs, NULL);
        }
    test_hosts(NULL);
}

static void look_at_memory(taciti_comm *comm, void *context) {
    (void)context;
    static const size_t SEGMENTS[] = {1, 64, 1000, 1 << 18, 1 << 30};
    for (size_t i = 0; i < sizeof SEGMENTS / sizeof *SEGMENTS; i++) {
        for (int scheme = TACITI_SCHEME_AUTO; scheme <= TACITI_SCHEME_HOSTS; scheme++) {
            taciti_allreduce reduce;
            CHECK(taciti_allreduce_describe(taciti_comm_hosts(comm), (taciti_members){0}, taciti_comm_rank(comm),
                                            &(taciti_encoding){.codec = taciti_codec_find("f32")},
                                            (taciti_placement){.scheme = (taciti_scheme)scheme}, SEGMENTS[i],
                                            &reduce) == TACIT_OK);
            const size_t bytes = taciti_allreduce_workspace_bytes(&reduce);
            taciti_allreduce_destroy(&reduce);
            CHECK(bytes > 0 && bytes <= (size_t)128 << 20);
        }
    }
}

static void staging_stays_bounded(void **state) {
    (void)state;
    for (int size = 2; size <= 16; size *= 2)
        for (int per_host = 0; per_host < 2; per_host++) {
            const taciti_comm_options options = test_comm_options(false);
            test_ranks_per_host(per_host);
            test_world_run(size, &options, look_at_memory, NULL);
        }
    test_ranks_per_host(0);
}

/* A bucket that is still being moved when its jobs are destroyed. */
static tacit_status move_slowly(void *owner, float *x, size_t n, const taciti_bucket_task *task) {
    (void)task;
    taciti_sleep_until_ns(taciti_now_ns() + TACITI_NS_PER_S / 50);
    for (size_t i = 0; i < n; i++) x[i]++;
    ++*(size_t *)owner;
    return TACIT_OK;
}

static void destroy_while_under_way(taciti_comm *comm, void *context) {
    (void)context;
    taciti_layout layout;
    taciti_bucket_jobs jobs;
    size_t moved = 0;
    test_layout_of_five(&layout);
    float *x = taciti_calloc(layout.n, sizeof *x);
    CHECK(taciti_bucket_jobs_create(comm, &layout, move_slowly, &moved, &jobs) == TACIT_OK);
    for (size_t b = 0; b < 3; b++)
        CHECK(taciti_bucket_begin(&jobs, x, &(taciti_bucket_task){.bucket = b}, "test of bucket") == TACIT_OK);
    taciti_bucket_jobs_destroy(&jobs);
    CHECK(moved == 3 && x[0] > 0);
    taciti_free(x);
    taciti_layout_destroy(&layout);
}

static void destroying_waits_for_what_is_under_way(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(2, &options, destroy_while_under_way, NULL);
}

static void begin_twice(taciti_comm *comm, void *context) {
    (void)context;
    taciti_layout layout;
    test_layout_of_five(&layout);
    const taciti_exchange_options options = {.bucket_bytes = 10000, .overlap = true};
    taciti_exchange *exchange = NULL;
    CHECK(taciti_exchange_create(comm, &layout, &options, NULL, &exchange) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x);
    for (size_t i = 0; i < layout.n; i++) x[i] = 1;
    CHECK(taciti_exchange_wait(exchange, 0) == TACIT_E_INTERNAL);
    CHECK(taciti_exchange_begin(exchange, x, 0) == TACIT_OK);
    CHECK(taciti_exchange_begin(exchange, x, 0) == TACIT_E_INTERNAL);
    CHECK(taciti_exchange_wait(exchange, 0) == TACIT_OK);
    CHECK(x[0] == (float)taciti_comm_size(comm));
    taciti_free(x);
    taciti_exchange_destroy(exchange);
    taciti_layout_destroy(&layout);
}

static void a_bucket_is_begun_once_and_waited_for_once(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_log_keep();
    test_world_run(2, &options, begin_twice, NULL);
    assert_int_equal(test_log_count("bucket 0 is not being exchanged"), 2);
    assert_int_equal(test_log_count("bucket 0 is already being exchanged"), 2);
    test_log_drop();
}

int main(void) {
    draw_values();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_is_begun_once_and_waited_for_once),
        cmocka_unit_test(integers_sum_exactly_for_any_ranks_length_wire_and_arrangement),
        cmocka_unit_test(every_rank_holds_the_bits_of_the_definition),
        cmocka_unit_test(errors_given_back_make_the_sum_whole),
        cmocka_unit_test(what_is_not_finite_arrives_everywhere),
        cmocka_unit_test(destroying_waits_for_what_is_under_way),
        cmocka_unit_test(overlapped_equals_blocking_bit_for_bit),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(short_arrays_take_the_way_that_costs_less),
        cmocka_unit_test(staging_stays_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of the exchange for every codec that it can carry: the dense ones of the registry, and one of variable
 * size with options, settings and keys (codec/test_sparse.h). Numbers are small integers, so that sums are exact
 * in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/test_sparse.h"
#include "comm/state.h"
#include "comm/test_engine.h"
#include "exchange/exchange.h"
#include "exchange/test_layout.h"

#define THRESHOLDS(t)                                                                                                  \
    {                                                                                                                  \
        .setting[TACITI_PAYLOAD_CONTRIBUTION] = {.threshold = (t)}, .setting[TACITI_PAYLOAD_RESULT] = {                \
            .threshold = (t)                                                                                           \
        }                                                                                                              \
    }
static const taciti_bucket_task EVERYTHING = THRESHOLDS(1e-9), SOME = THRESHOLDS(5.0); /* 1e-9: but zeros */
static const taciti_feedback NONE = {.errors = false}, ERRORS = {.errors = true, .decay = 1};

static const test_sparse_options THRESHOLD = {.threshold = 3};

#define SPARSE                                                                                                         \
    { .codec = &test_sparse, .options = &THRESHOLD, .seed = 1 }

/* One trial: a codec, a scheme, and the layout. */
typedef struct trial {
    taciti_encoding encoding;
    int scheme;
    int64_t lanes;
    bool contiguous, no_gaps;
} trial;

/* Rank r is on host ARRANGEMENTS[i][r]: all alone; unequal hosts; pairs; all together. */
static const int ARRANGEMENTS[][8] = {
    {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 0}};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS };

/* 0 in gaps, as always. */
static float small_integer(const taciti_layout *layout, int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(9, (uint64_t)rank), (uint64_t)step);
    return test_is_gap(layout, i) ? 0 : (float)((int)taciti_rng_below(key, i, 17) - 8);
}

static void fill(taciti_comm *comm, int64_t step, float *x, const taciti_layout *layout) {
    for (size_t i = 0; i < layout->n; i++) x[i] = small_integer(layout, taciti_comm_rank(comm), step, i);
}

/* One law, over an exchange of five tensors in several buckets. */
typedef struct bench {
    taciti_comm *comm;
    taciti_layout layout;
    taciti_exchange_options options;
    taciti_exchange *exchange;
    float *x, *y;
    double *sum; /* what results should add up to, and what they do */
} bench;

static void set_up(taciti_comm *comm, const trial *t, taciti_feedback feedback, bench *b) {
    *b = (bench){
        .comm = comm,
        .options = {.bucket_bytes = 10000, .scheme = t->scheme, .lanes = t->lanes, .contiguous = t->contiguous}};
    static const size_t WHOLE_LINES[] = {5008, 16, 12000, 704, 64};
    if (t->no_gaps)
        test_layout(WHOLE_LINES, 5, 10000, &b->layout);
    else
        test_layout_of_five(&b->layout);
    taciti_encoding compression = t->encoding;
    compression.feedback = feedback;
    compression.way = TACITI_WAY_SCATTER;
    CHECK(taciti_exchange_create(comm, &b->layout, &b->options, &compression, &b->exchange) == TACIT_OK);
    b->x = taciti_calloc(b->layout.n, sizeof *b->x);
    b->y = taciti_calloc(b->layout.n, sizeof *b->y);
    b->sum = taciti_calloc(b->layout.n, sizeof *b->sum);
}

static void tear_down(bench *b) {
    taciti_exchange_destroy(b->exchange);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->x);
    taciti_free(b->y);
    taciti_free(b->sum);
}

static void run_part(const bench *b, taciti_phase phase, float *x) {
    for (size_t i = 0; i < b->layout.bucket_count; i++)
        CHECK(taciti_exchange_begin_phase(b->exchange, x, i, phase) == TACIT_OK);
    for (size_t i = 0; i < b->layout.bucket_count; i++) CHECK(taciti_exchange_wait(b->exchange, i) == TACIT_OK);
}

static void has_rank_0s_bits(const bench *b, const float *x) {
    float *first = taciti_calloc(b->layout.n, sizeof *first);
    memcpy(first, x, b->layout.n * sizeof *x);
    CHECK(taciti_comm_broadcast(b->comm, 0, first, b->layout.n * sizeof *first) == TACIT_OK);
    CHECK(memcmp(first, x, b->layout.n * sizeof *x) == 0);
    taciti_free(first);
}

/* Every codec, scheme and arrangement at 1 to 7 ranks. */
static void try_all(test_rank *law) {
    const taciti_codec *codecs[16] = {&test_sparse};
    int count = 1;
    for (const taciti_codec *const *c = taciti_codec_list(); *c != NULL && count < 16; c++)
        if (taciti_codec_is_dense(*c)) codecs[count++] = *c;
    for (int size = 1; size <= 7; size++) {
        taciti_comm_options options = test_comm_options(size % 3 != 0);
        options.segment_bytes = size % 2 == 0 ? 1024 : 16384;
        for (int c = 0; c < count; c++)
            for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
                if (test_spares(size + c + i / 2)) continue;
                trial t = {.encoding = {.codec = codecs[c],
                                        .options = codecs[c] == &test_sparse ? &THRESHOLD : NULL,
                                        .seed = 77},
                           .scheme = (c + i + size) % 3,
                           .contiguous = (c + i) % 2 == 1,
                           .lanes = i % 3};
                test_hosts(ARRANGEMENTS[i]);
                test_world_run(size, &options, law, &t);
            }
    }
    test_hosts(NULL);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */
static void sum_exactly(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, NONE, &b);
    for (int64_t step = 0; step < 2; step++) {
        taciti_exchange_at(b.exchange, step, &EVERYTHING);
        fill(comm, step, b.x, &b.layout);
        const taciti_comm_counters before = taciti_comm_count(comm);
        run_part(&b, TACITI_PHASE_ALL_REDUCE, b.x);
        const uint64_t sent = taciti_comm_count(comm).bytes_sent - before.bytes_sent;
        const uint64_t bytes = taciti_exchange_bytes_per_step(b.exchange);
        CHECK(t->encoding.codec->fixed_size ? sent == bytes : sent <= bytes);
        for (size_t i = 0; i < b.layout.n; i++) {
            float sum = 0;
            for (int r = 0; r < taciti_comm_size(comm); r++) sum += small_integer(&b.layout, r, step, i);
            CHECK(b.x[i] == sum);
        }
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
    }
    tear_down(&b);
}

static void every_codec_sums_small_integers_exactly(void **state) {
    (void)state;
    try_all(sum_exactly);
}

/* ---- halves ------------------------------------------------------------------------------------------------------ */
/* Marks what this rank owns; over all ranks every element is marked once. */
static void owners_share_the_array(const bench *b) {
    taciti_range r;
    memset(b->sum, 0, b->layout.n * sizeof *b->sum);
    for (size_t k = 0; k < b->layout.bucket_count; k++) {
        size_t i = 0;
        for (; taciti_exchange_owned(b->exchange, k, i, &r); i++)
            for (size_t e = r.at; e < r.at + r.n; e++) b->sum[e]++;
        CHECK(i == 1 || !b->options.contiguous);
    }
    CHECK(taciti_comm_allreduce_f64(b->comm, b->sum, b->layout.n, TACITI_OP_SUM) == TACIT_OK);
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        for (size_t e = 0; e < b->layout.buckets[k].n; e++) CHECK(b->sum[b->layout.buckets[k].offset + e] == 1);
}

static void owners_hold_the_sum(const bench *b, const trial *t, int64_t step) {
    taciti_range r;
    for (size_t k = 0; k < b->layout.bucket_count && t->encoding.codec->fixed_size; k++)
        for (size_t i = 0; taciti_exchange_owned(b->exchange, k, i, &r); i++)
            for (size_t e = r.at; e < r.at + r.n; e++) {
                float sum = 0;
                for (int rank = 0; rank < taciti_comm_size(b->comm); rank++)
                    sum += small_integer(&b->layout, rank, step, e);
                CHECK(b->y[e] == sum);
            }
}

static void compare_halves(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench whole, halves;
    set_up(comm, t, ERRORS, &whole);
    set_up(comm, t, ERRORS, &halves);
    owners_share_the_array(&halves);
    for (int64_t step = 0; step < 3; step++) {
        taciti_exchange_at(whole.exchange, step, &SOME);
        taciti_exchange_at(halves.exchange, step, &SOME);
        fill(comm, step, whole.x, &whole.layout);
        fill(comm, step, halves.y, &halves.layout);
        const uint64_t before = taciti_comm_count(comm).bytes_sent;
        run_part(&whole, TACITI_PHASE_ALL_REDUCE, whole.x);
        const uint64_t between = taciti_comm_count(comm).bytes_sent;
        run_part(&halves, TACITI_PHASE_REDUCE_SCATTER, halves.y);
        owners_hold_the_sum(&halves, t, step);
        run_part(&halves, TACITI_PHASE_ALL_GATHER, halves.y);
        CHECK(taciti_comm_count(comm).bytes_sent - between == between - before);
        CHECK(memcmp(whole.x, halves.y, whole.layout.n * sizeof(float)) == 0);
        CHECK(taciti_exchange_settle(whole.exchange, true) == TACIT_OK);
        CHECK(taciti_exchange_settle(halves.exchange, true) == TACIT_OK);
    }
    tear_down(&whole);
    tear_down(&halves);
}

/* The same in the steps that stay inside hosts and those between them. */
static void compare_steps(taciti_comm *comm, void *context) {
    static const taciti_phase WAYS[2][3] = {
        {TACITI_PHASE_REDUCE_SCATTER, TACITI_PHASE_GATHER_TO_LANES, TACITI_PHASE_GATHER_IN_HOST},
        {TACITI_PHASE_REDUCE_TO_LANES, TACITI_PHASE_GATHER_IN_HOST, TACITI_PHASE_GATHER_IN_HOST}};
    bench whole, parts;
    set_up(comm, context, ERRORS, &whole);
    for (int way = 0; way < 2; way++) {
        set_up(comm, context, ERRORS, &parts);
        fill(comm, 0, whole.x, &whole.layout);
        fill(comm, 0, parts.x, &parts.layout);
        taciti_exchange_at(whole.exchange, 0, &SOME);
        taciti_exchange_at(parts.exchange, 0, &SOME);
        run_part(&whole, TACITI_PHASE_ALL_REDUCE, whole.x);
        for (int i = 0; i < 3; i++) run_part(&parts, WAYS[way][i], parts.x);
        CHECK(memcmp(whole.x, parts.x, whole.layout.n * sizeof(float)) == 0);
        CHECK(taciti_exchange_settle(whole.exchange, false) == TACIT_OK);
        tear_down(&parts);
    }
    tear_down(&whole);
}

static void steps_one_after_the_other_are_the_all_reduce(void **state) {
    (void)state;
    try_all(compare_steps);
}

static void halves_one_after_the_other_are_the_all_reduce(void **state) {
    (void)state;
    try_all(compare_halves);
}

/* ---- residuals --------------------------------------------------------------------------------------------------- */
/* All of a rank's residuals, one after the other; sized by the caller. NULL: counts. */
static size_t copy_residuals(const bench *b, float *out) {
    size_t count = 0;
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
        const float *from = taciti_exchange_residual(b->exchange, (taciti_residual_array)a);
        if (from == NULL) continue;
        if (out != NULL) memcpy(out + count, from, b->layout.n * sizeof *from);
        count += b->layout.n;
    }
    return count;
}

static void exchange_step(const bench *b, int64_t step, taciti_bucket_task setting, float *x) {
    taciti_exchange_at(b->exchange, step, &setting);
    fill(b->comm, step, x, &b->layout);
    run_part(b, TACITI_PHASE_ALL_REDUCE, x);
    has_rank_0s_bits(b, x);
}

/* A step that is dropped leaves every residual as it was, and the codec's state: made again it is the same. */
static void drop_and_repeat(const bench *b, int64_t step) {
    const size_t count = copy_residuals(b, NULL);
    float *before = taciti_calloc(count, sizeof *before), *after = taciti_calloc(count, sizeof *after);
    (void)copy_residuals(b, before);
    exchange_step(b, step, SOME, b->y);
    CHECK(taciti_exchange_settle(b->exchange, false) == TACIT_OK);
    (void)copy_residuals(b, after);
    CHECK(memcmp(before, after, count * sizeof *before) == 0);
    exchange_step(b, step, SOME, b->x);
    CHECK(memcmp(b->x, b->y, b->layout.n * sizeof *b->x) == 0);
    taciti_free(before);
    taciti_free(after);
}

static void add_up(const bench *b, int64_t step) {
    for (size_t i = 0; i < b->layout.n; i++) {
        b->sum[i] -= (double)b->x[i];
        for (int r = 0; r < taciti_comm_size(b->comm) && step >= 0; r++)
            b->sum[i] += (double)small_integer(&b->layout, r, step, i);
    }
}

static bool encodes(const bench *b, const trial *t) {
    double count = (double)copy_residuals(b, NULL);
    CHECK(taciti_comm_allreduce_f64(b->comm, &count, 1, TACITI_OP_SUM) == TACIT_OK);
    return count > 0 && t->encoding.codec == &test_sparse;
}

static size_t predict(const bench *b, const taciti_encoding *encoding, taciti_feedback feedback) {
    taciti_encoding compression = *encoding;
    compression.feedback = feedback;
    compression.way = TACITI_WAY_SCATTER;
    return taciti_exchange_predict_bytes(b->comm, &b->layout, &b->options, &compression);
}

/* Residuals are held twice, as they are and as the step leaves them: of what this rank encodes and of what it owns. */
static void residuals_are_predicted(const bench *b, const trial *t) {
    const size_t without = predict(b, &t->encoding, NONE), with = predict(b, &t->encoding, ERRORS);
    double bytes = (double)(with - without), hosts = 0;
    for (int r = 0; r < taciti_comm_size(b->comm); r++) {
        bool first = b->options.scheme != TACITI_SCHEME_FLAT;
        for (int q = 0; q < r && first; q++) first = !taciti_comm_same_host(b->comm, q, r);
        hosts += first;
    }
    CHECK(taciti_comm_allreduce_f64(b->comm, &bytes, 1, TACITI_OP_SUM) == TACIT_OK);
    const bool stored = taciti_exchange_residual(b->exchange, TACITI_RESIDUAL_RESULT) != NULL;
    const double own = 2.0 * (double)b->layout.n * sizeof(float);
    if (b->options.scheme == TACITI_SCHEME_HOSTS) CHECK(bytes == (stored ? (hosts + 1) * own : 0));
}

/* Some steps of feedback, one of them dropped, then a step of zeros in which everything is sent: then the results add
 * up to the inputs of the steps that were taken, element by element, and no residual is left. */
static void lose_nothing(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, ERRORS, &b);
    for (int64_t step = 0; step < 5; step++) {
        if (step == 2) drop_and_repeat(&b, step);
        if (step == 3) { /* its gradients are not those of the step that follows */
            exchange_step(&b, 1000, SOME, b.y);
            CHECK(taciti_exchange_settle(b.exchange, false) == TACIT_OK);
        }
        if (step != 2) exchange_step(&b, step, SOME, b.x);
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
        add_up(&b, step);
    }
    residuals_are_predicted(&b, t);
    double lost = 0;
    for (size_t i = 0; i < b.layout.n; i++) lost += b.sum[i] != 0;
    CHECK((lost > 0) == encodes(&b, t)); /* something was held back */
    memset(b.x, 0, b.layout.n * sizeof *b.x);
    taciti_exchange_at(b.exchange, 5, &EVERYTHING);
    run_part(&b, TACITI_PHASE_ALL_REDUCE, b.x);
    CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
    add_up(&b, -1);
    for (size_t i = 0; i < b.layout.n; i++) CHECK(b.sum[i] == 0);
    const size_t count = copy_residuals(&b, NULL);
    float *left = taciti_calloc(count, sizeof *left);
    (void)copy_residuals(&b, left);
    for (size_t i = 0; i < count; i++) CHECK(left[i] == 0);
    taciti_free(left);
    tear_down(&b);
}

static void feedback_loses_nothing_and_a_dropped_step_leaves_no_trace(void **state) {
    (void)state;
    try_all(lose_nothing);
}

static void keys_tell_seed_step_rank_bucket_kind_and_element_apart(void **state) {
    (void)state;
    enum { CHOICES = 64 };
    uint64_t keys[CHOICES];
    taciti_codec shared = test_sparse;
    shared.shared_key = true;
    for (unsigned i = 0; i < CHOICES; i++) {
        const taciti_bucket_task task = {
            .bucket = i & 1, .step = i >> 1 & 1, .setting = {{.threshold = 7}, {.threshold = 7}}};
        const int rank = i >> 2 & 1;
        const taciti_payload_kind kind = (i & 8) != 0 ? TACITI_PAYLOAD_RESULT : TACITI_PAYLOAD_CONTRIBUTION;
        const taciti_encoding e = {.codec = &test_sparse, .options = &THRESHOLD, .seed = i >> 4 & 1};
        taciti_encoding all = e;
        all.codec = &shared;
        const taciti_codec_call call = taciti_payload_call(&e, &task, rank, kind, i >> 5 & 1);
        keys[i] = call.key;
        for (unsigned j = 0; j < i; j++) assert_true(keys[j] != keys[i]);
        assert_true(call.setting.threshold == 7 && call.options == &THRESHOLD);
        assert_true(taciti_payload_call(&all, &task, 0, kind, 9).key ==
                    taciti_payload_call(&all, &task, 1, kind, 9).key);
    }
}

static void settle_early(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, ERRORS, &b);
    CHECK(taciti_exchange_begin(b.exchange, b.x, 0) == TACIT_OK);
    CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_E_INTERNAL);
    CHECK(taciti_exchange_wait(b.exchange, 0) == TACIT_OK);
    CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
    tear_down(&b);
}

static void a_step_under_way_is_not_settled(void **state) {
    (void)state;
    trial t = {.encoding = SPARSE};
    const taciti_comm_options options = test_comm_options(true);
    test_log_keep();
    test_world_run(2, &options, settle_early, &t);
    assert_int_equal(test_log_count("step 0 is settled before all of its buckets were waited for"), 2);
    test_log_drop();
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */
/* The payload of zeros holds no element, that of eights all of them. */
static void count_bytes(taciti_comm *comm, void *context) {
    enum { HEAD_BYTES = 8 };
    bench b;
    set_up(comm, context, NONE, &b);
    taciti_exchange_at(b.exchange, 0, &SOME);
    for (int value = 0; value <= 8; value += 8) {
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = (float)value;
        const uint64_t away = test_bytes_to_other_hosts(comm);
        const taciti_comm_counters before = taciti_comm_count(comm);
        run_part(&b, TACITI_PHASE_ALL_REDUCE, b.x);
        const taciti_comm_counters after = taciti_comm_count(comm);
        const uint64_t sent = after.bytes_sent - before.bytes_sent;
        double balance = (double)sent - (double)(after.bytes_received - before.bytes_received);
        CHECK(sent == test_bytes_to_other_hosts(comm) - away);
        CHECK(value == 0 ? sent == HEAD_BYTES * (after.messages_sent - before.messages_sent)
                         : sent == taciti_exchange_bytes_per_step(b.exchange));
        CHECK(taciti_comm_allreduce_f64(comm, &balance, 1, TACITI_OP_SUM) == TACIT_OK);
        CHECK(balance == 0);
    }
    tear_down(&b);
}

static void bytes_that_vary_are_counted_as_they_are(void **state) {
    (void)state;
    trial t = {.encoding = SPARSE, .scheme = TACITI_SCHEME_FLAT, .no_gaps = true};
    const taciti_comm_options options = test_comm_options(true);
    test_hosts(ARRANGEMENTS[0]);
    for (int size = 2; size <= 5; size++) test_world_run(size, &options, count_bytes, &t);
    test_hosts(NULL);
}

/* ---- votes ------------------------------------------------------------------------------------------------------- */
static void count_votes(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, NONE, &b);
    taciti_encoding compression = t->encoding;
    compression.way = TACITI_WAY_GATHER;
    taciti_exchange_destroy(b.exchange);
    CHECK(taciti_exchange_create(comm, &b.layout, &b.options, &compression, &b.exchange) == TACIT_E_CONFIG);
    compression.way = TACITI_WAY_AUTO;
    CHECK(taciti_exchange_create(comm, &b.layout, &b.options, &compression, &b.exchange) == TACIT_OK);
    fill(comm, 0, b.x, &b.layout);
    taciti_exchange_at(b.exchange, 0, &EVERYTHING);
    run_part(&b, TACITI_PHASE_ALL_REDUCE, b.x);
    for (size_t i = 0; i < b.layout.n; i++) {
        int votes = 0;
        for (int r = 0; r < taciti_comm_size(comm); r++) votes += small_integer(&b.layout, r, 0, i) >= 0 ? 1 : -1;
        CHECK(test_is_gap(&b.layout, i) || b.x[i] == (votes >= 0 ? 1.0f : -1.0f));
    }
    tear_down(&b);
}

/* The result of a vote is +1 or -1 on any number of ranks, also on two, where other codecs gather payloads. */
static void a_vote_is_the_majority_of_all_ranks(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    trial t = {.encoding = {.codec = taciti_codec_find("signsgd")}};
    test_log_keep();
    test_hosts(ARRANGEMENTS[0]);
    for (int size = 2; size <= 7; size++) test_world_run(size, &options, count_votes, &t);
    test_hosts(NULL);
    test_log_drop();
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */
/* Rank 1 sends these bytes in place of its payloads. */
typedef struct fault {
    size_t bytes;
    tacit_status expected;
} fault;

static tacit_status send_nonsense(taciti_comm *comm, void *context) {
    static const char nonsense[100000] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
    return taciti_comm_send(comm, 0, nonsense, *(const size_t *)context);
}

static void meet_nonsense(taciti_comm *comm, void *context) {
    const fault *f = context;
    const trial t = {.encoding = SPARSE};
    bench b;
    set_up(comm, &t, NONE, &b);
    if (taciti_comm_rank(comm) == 1) {
        size_t bytes = f->bytes;
        taciti_job job = {.run = send_nonsense, .context = &bytes, .name = "nonsense", .detail = -1};
        taciti_job_submit(comm, &job);
        CHECK(taciti_job_wait(comm, &job) == TACIT_OK);
        if (f->expected == TACIT_E_PEER) (void)taciti_comm_break(comm, TACIT_E_PEER); /* as at rank 0 */
    } else {
        taciti_exchange_at(b.exchange, 6, &SOME);
        CHECK(taciti_exchange_begin(b.exchange, b.x, 2) == TACIT_OK);
        CHECK(taciti_exchange_wait(b.exchange, 2) == f->expected);
    }
    tear_down(&b);
}

static void a_bad_payload_names_rank_and_bucket(void **state) {
    (void)state;
    fault malformed = {12, TACIT_E_DATA}, empty = {0, TACIT_E_DATA}, overlong = {100000, TACIT_E_PEER};
    const taciti_comm_options options = test_comm_options(true);
    test_log_keep();
    test_world_run(2, &options, meet_nonsense, &malformed);
    assert_int_equal(test_log_count("bucket 2 of step 6: the sparse payload of rank 1 (12 bytes) is malformed"), 1);
    test_world_run(2, &options, meet_nonsense, &empty);
    assert_int_equal(test_log_count("bucket 2 of step 6: the sparse payload of rank 1 (0 bytes) is malformed"), 1);
    test_world_run(2, &options, meet_nonsense, &overlong);
    assert_int_equal(test_log_count("all-reduce of bucket 2): a message of more than"), 1);
    test_log_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_sums_small_integers_exactly),
        cmocka_unit_test(halves_one_after_the_other_are_the_all_reduce),
        cmocka_unit_test(steps_one_after_the_other_are_the_all_reduce),
        cmocka_unit_test(feedback_loses_nothing_and_a_dropped_step_leaves_no_trace),
        cmocka_unit_test(keys_tell_seed_step_rank_bucket_kind_and_element_apart),
        cmocka_unit_test(a_step_under_way_is_not_settled),
        cmocka_unit_test(bytes_that_vary_are_counted_as_they_are),
        cmocka_unit_test(a_vote_is_the_majority_of_all_ranks),
        cmocka_unit_test(a_bad_payload_names_rank_and_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

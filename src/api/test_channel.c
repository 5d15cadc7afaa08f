/* SPDX-License-Identifier: Apache-2.0
 *
 * Channels between ranks that are threads of this process, on hosts that they claim: the bits of a job of one tensor,
 * conservation of what was given, and the end of every wait.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "api/test_seat.h"
#include "base/clock.h"
#include "base/rng.h"
#include "kernel/kernel.h"

enum { MAX_RANKS = 7, STARTS = 5, BAD_START = 2, LONG = 1000001 };

static const int RANKS[] = {1, 2, 3, 5, 6, 7};
static const size_t LENGTHS[] = {1, 10, 41, 100, 4097};
static const int HOSTS[][MAX_RANKS] = {{0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6}, {0, 0, 1, 1, 2, 2, 0}};
enum { RANK_COUNT = sizeof RANKS / sizeof *RANKS, LENGTH_COUNT = 5, HOST_COUNT = 3 };

typedef struct trial {
    int ranks;
    size_t n; /* of the whole array */
    tacit_collective collective;
    const char *settings[8]; /* the rest NULL */
    bool quanta;             /* numbers are small integers, so that sums of what codecs select are exact */
    bool bad;                /* rank 1 has a number that is not finite in start BAD_START */
    bool in_place;
    _Atomic int seen; /* by rank 0, that nothing arrives while rank 1 has not started */

    /* what came of it, by rank */
    float *given[MAX_RANKS][STARTS], *got[MAX_RANKS][STARTS], *left[MAX_RANKS];
} trial;

static tacit_settings *settings_of(const char *const *list) {
    tacit_settings *settings = NULL;
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "exchange.bucket=4KiB"));
    OK(tacit_settings_set(settings, "optim.clip=0"));
    OK(tacit_settings_set(settings, "compress.warmup=0"));
    for (; *list != NULL; list++) OK(tacit_settings_set(settings, *list));
    return settings;
}

static size_t part_of(const trial *t) { return t->n / (size_t)t->ranks; }
static size_t length_in(const trial *t) { return t->collective == TACIT_ALL_GATHER ? part_of(t) : t->n; }
static size_t length_out(const trial *t) { return t->collective == TACIT_REDUCE_SCATTER ? part_of(t) : t->n; }

static float *draw(const trial *t, int rank, int start) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(5, (uint64_t)rank), (uint64_t)start);
    float *x = taciti_calloc(length_in(t), sizeof *x);
    for (size_t i = 0; i < length_in(t); i++)
        x[i] = t->quanta ? (float)((int)taciti_rng_below(key, i, 201) - 100) : (float)(taciti_rng_unit(key, i) - 0.5);
    if (t->bad && rank == 1 && start == BAD_START) x[length_in(t) / 2] = (float)INFINITY;
    return x;
}

static tacit_channel *open_channel(const trial *t, tacit_comm *comm) {
    tacit_channel *channel = NULL;
    tacit_settings *settings = settings_of(t->settings);
    OK(tacit_channel_open(comm, settings, t->collective, t->n, &channel));
    tacit_settings_destroy(settings);
    return channel;
}

/* Returns source or target for an array in place: that array, or this rank's part of it. */
static float *mine(const trial *t, float *array, int rank) {
    return array + (t->collective == TACIT_ALL_REDUCE ? 0 : (size_t)rank * part_of(t));
}

static void play_start(const trial *t, tacit_channel *channel, int rank, const float *given, float *got) {
    float *array = taciti_calloc(t->n + 1, sizeof *array), *both = array + 1; /* aligned to its element alone */
    float *source = t->collective == TACIT_ALL_GATHER ? mine(t, both, rank) : both;
    float *target = t->collective == TACIT_REDUCE_SCATTER ? mine(t, both, rank) : both;
    memcpy(source, given, length_in(t) * sizeof *source);
    OK(tacit_channel_start(channel, source, t->in_place ? target : got, TACIT_F32, 1));
    OK(tacit_channel_wait(channel, (double)INFINITY));
    if (t->in_place) memcpy(got, target, length_out(t) * sizeof *got);
    taciti_free(array);
}

/* Adds what the channel has not sent yet to left[n]: elements of this rank's contributions and of the results it owns.
 */
static void add_left(const trial *t, const tacit_channel *c, float *left) {
    for (int which = 0; which < TACITI_RESIDUAL_MEMORY; which++) {
        const float *r =
            taciti_exchange_residual(taciti_compression_exchange(c->compression), (taciti_residual_array)which);
        for (size_t b = 0; r != NULL && b < c->layout.bucket_count; b++)
            for (int place = 0; place < c->parts; place++) {
                const taciti_bucket *bucket = &c->layout.buckets[b];
                const size_t slot = bucket->n / (size_t)c->parts, at = bucket->offset / (size_t)c->parts;
                for (size_t i = 0; i < slot && at + i < c->part_n; i++)
                    left[(size_t)c->part_of[place] * (t->n / (size_t)c->parts) + at + i] +=
                        r[bucket->offset + (size_t)place * slot + i];
            }
    }
}

static void play_channel(taciti_comm *comm, void *context) {
    trial *t = context;
    tacit_comm seat;
    const int rank = taciti_comm_rank(comm);
    tacit_channel *channel = open_channel(t, seat_of(comm, &seat));
    for (int s = 0; s < STARTS; s++) {
        t->given[rank][s] = draw(t, rank, s);
        t->got[rank][s] = taciti_calloc(length_out(t), sizeof(float));
        play_start(t, channel, rank, t->given[rank][s], t->got[rank][s]);
    }
    t->left[rank] = taciti_calloc(t->n, sizeof(float));
    add_left(t, channel, t->left[rank]);
    OK(tacit_channel_close(channel));
    taciti_handle_close(&seat.handle);
}

static void forget(trial *t) {
    for (int r = 0; r < t->ranks; r++) {
        for (int s = 0; s < STARTS; s++) taciti_free(t->given[r][s]);
        for (int s = 0; s < STARTS; s++) taciti_free(t->got[r][s]);
        taciti_free(t->left[r]);
    }
}

static void play(trial *t, const int *hosts, test_rank *rank) {
    const taciti_comm_options options = test_comm_options(true);
    test_hosts(hosts);
    test_world_run(t->ranks, &options, rank, t);
    test_hosts(NULL);
}

/* ---- the bits of a job ------------------------------------------------------------------------------------------- */

/* The sums of a job of one tensor in `got`. */
static void play_job(taciti_comm *comm, void *context) {
    trial *t = context;
    tacit_comm seat;
    tacit_job *job = NULL;
    tacit_layout *layout = NULL;
    const int rank = taciti_comm_rank(comm);
    tacit_settings *settings = settings_of(t->settings);
    const tacit_job_options options = {.size = sizeof options, .own_optimizer = true};
    OK(tacit_layout_create(&layout));
    OK(tacit_layout_add(layout, "x", 1, &t->n, TACIT_DECAY));
    OK(tacit_job_open(seat_of(comm, &seat), settings, layout, &options, &job));
    OK(tacit_job_start(job));
    for (int s = 0; s < STARTS; s++) {
        float *x = draw(t, rank, s);
        tacit_step step = {.size = sizeof step};
        memcpy(tacit_job_gradients(job), x, t->n * sizeof *x);
        OK(tacit_job_ready(job, 0));
        OK(tacit_job_settle(job, &step));
        CHECK(step.skipped == (t->bad && t->ranks > 1 && s == BAD_START));
        memcpy(x, tacit_job_gradients(job), t->n * sizeof *x);
        t->got[rank][s] = x;
        OK(tacit_job_stepped(job));
    }
    OK(tacit_job_close(job));
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
    taciti_handle_close(&seat.handle);
}

/* A NaN has no bits that could be compared. */
static bool same(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(isnan(a[i]) && isnan(b[i])) && memcmp(&a[i], &b[i], sizeof *a) != 0) return false;
    return true;
}

static void equals_job(const trial *like, const int *hosts) {
    trial t = *like, job = *like;
    play(&t, hosts, play_channel);
    play(&job, hosts, play_job);
    for (int s = 0; s < STARTS; s++)
        for (int r = 0; r < t.ranks; r++) {
            const bool bad = t.bad && t.ranks > 1 && s == BAD_START;
            assert_true(same(t.got[r][s], job.got[0][s], t.n));
            assert_true(!bad || !taciti_kernels_get()->all_finite(t.got[r][s], t.n));
        }
    forget(&t);
    forget(&job);
}

static void dense_sums_have_the_bits_of_a_job(void **state) {
    (void)state;
    for (int r = 0; r < RANK_COUNT; r++)
        for (int h = 0; h < HOST_COUNT; h++)
            for (int l = 0; l < LENGTH_COUNT; l++) {
                if (test_spares(r + h + l)) continue;
                trial t = {.ranks = RANKS[r], .n = LENGTHS[l], .in_place = l % 2, .bad = h == 1};
                equals_job(&t, HOSTS[h]);
            }
    equals_job(&(trial){.ranks = 3, .n = LONG, .in_place = true, .settings = {"exchange.bucket=1MiB"}}, HOSTS[0]);
    equals_job(&(trial){.ranks = 3, .n = 4097, .settings = {"exchange.wire=bf16"}}, HOSTS[1]);
}

static void coded_sums_have_the_bits_of_a_job(void **state) {
    static const char *const CODECS[][4] = {{"compress.codec=topk", "compress.factor=4"},
                                            {"compress.codec=topk", "topk.values=int4", "compress.back=2"},
                                            {"compress.codec=int4"},
                                            {"compress.codec=int4", "compress.residual=int8"},
                                            {"compress.codec=topk", "compress.what=change"},
                                            {"compress.codec=efsign", "compress.collective=scatter"},
                                            {"compress.codec=topk", "compress.warmup=3"},
                                            {"compress.codec=powersgd"},
                                            {"compress.codec=sketch"}};
    (void)state;
    for (size_t c = 0; c < sizeof CODECS / sizeof *CODECS; c++)
        for (int r = 0; r < RANK_COUNT; r++) {
            trial t = {.ranks = RANKS[r], .n = LENGTHS[(c + (size_t)r) % LENGTH_COUNT], .bad = r % 2 == 1};
            if (r == 2) t.n = 20011;
            memcpy(t.settings, CODECS[c], sizeof CODECS[c]);
            equals_job(&t, HOSTS[(c + (size_t)r) % HOST_COUNT]);
        }
    trial large = {.ranks = 2, .n = LONG, .settings = {"exchange.bucket=1MiB", "compress.codec=topk"}};
    for (int i = 0; i < 2; i++, large.in_place = true) equals_job(&large, HOSTS[1]);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* The sum over ranks of what was given for element i, in rank order; of a gather what its owner gave. */
static float given_sum(const trial *t, int start, size_t i) {
    if (t->collective == TACIT_ALL_GATHER) return t->given[i / part_of(t)][start][i % part_of(t)];
    float sum = 0;
    for (int r = 0; r < t->ranks; r++) sum += t->given[r][start][i];
    return sum;
}

/* Element i as it has arrived at the rank that has it. */
static float arrived(const trial *t, int start, size_t i) {
    if (t->collective == TACIT_REDUCE_SCATTER) return t->got[i / part_of(t)][start][i % part_of(t)];
    return t->got[0][start][i];
}

static void finds_parts(trial *t, const int *hosts) {
    play(t, hosts, play_channel);
    for (int s = 0; s < STARTS; s++)
        for (size_t i = 0; i < t->n; i++) assert_true(arrived(t, s, i) == given_sum(t, s, i));
    forget(t);
}

static void dense_parts_are_where_they_belong(void **state) {
    (void)state;
    for (int kind = TACIT_REDUCE_SCATTER; kind <= (int)TACIT_ALL_GATHER; kind++)
        finds_parts(&(trial){.ranks = 2, .n = 2 * LONG, .collective = (tacit_collective)kind, .quanta = true},
                    HOSTS[1]);
    for (int r = 0; r < RANK_COUNT; r++)
        for (int h = 0; h < HOST_COUNT; h++)
            for (int l = 0; l < 2 * LENGTH_COUNT; l++) {
                if (test_spares(r + h + l / 2)) continue;
                trial t = {.ranks = RANKS[r],
                           .n = LENGTHS[l / 2] * (size_t)RANKS[r],
                           .collective = l % 2 ? TACIT_REDUCE_SCATTER : TACIT_ALL_GATHER,
                           .quanta = true,
                           .in_place = (l / 2 + h) % 2};
                finds_parts(&t, HOSTS[h]);
            }
}

/* ---- conservation ------------------------------------------------------------------------------------------------ */

/* sum of what arrived + residuals = sum of what was given. With small integers and a codec that selects every number in
 * it is exact; else each of the `roundings` of a start is half an ulp of a number that is not above `max`. */
static void conserves(trial *t, const int *hosts, double max) {
    bool finite = true;
    play(t, hosts, play_channel);
    const double roundings = 2.0 * t->ranks + 4, allowed = max * STARTS * roundings * (double)FLT_EPSILON / 2;
    double lost = 0;
    for (size_t i = 0; i < t->n; i++) {
        double balance = 0;
        for (int s = 0; s < STARTS; s++)
            if (!t->bad || s != BAD_START) balance += (double)given_sum(t, s, i) - (double)arrived(t, s, i);
        lost += fabs(balance);
        for (int r = 0; r < t->ranks; r++) balance -= (double)t->left[r][i];
        assert_true(fabs(balance) <= allowed);
        finite = finite && isfinite(arrived(t, BAD_START, i));
    }
    assert_true(finite == !t->bad && (t->ranks == 1 || lost > 0));
    for (int s = 0; s < STARTS && t->collective != TACIT_REDUCE_SCATTER && !t->bad; s++)
        for (int r = 1; r < t->ranks; r++) assert_memory_equal(t->got[r][s], t->got[0][s], t->n * sizeof(float));
    forget(t);
}

static trial selecting_trial(int ranks, int collective) {
    return (trial){.ranks = ranks,
                   .n = 1041 * (size_t)ranks,
                   .collective = (tacit_collective)collective,
                   .quanta = true,
                   .settings = {"compress.codec=topk", "compress.factor=4"}};
}

static void what_is_lost_waits_in_the_residuals(void **state) {
    (void)state;
    for (int r = 0; r < RANK_COUNT; r++)
        for (int h = 0; h < HOST_COUNT; h++)
            for (int collective = TACIT_ALL_REDUCE; collective <= (int)TACIT_ALL_GATHER; collective++) {
                if (test_spares(r + h + collective)) continue;
                trial exact = selecting_trial(RANKS[r], collective);
                conserves(&exact, HOSTS[h], 0);
                for (int chooses = 0; chooses < (collective == TACIT_ALL_GATHER ? 1 : 2); chooses++) {
                    trial rounded = {.ranks = exact.ranks, .n = exact.n, .collective = exact.collective};
                    rounded.settings[0] = chooses ? "compress.codec=auto" : "compress.codec=int4";
                    conserves(&rounded, HOSTS[h], STARTS * RANKS[r]);
                }
            }
}

/* A start that is not finite leaves the residuals as they are: its neighbours conserve what was given without it. */
static void a_start_that_is_not_finite_does_not_count(void **state) {
    (void)state;
    for (int collective = TACIT_ALL_REDUCE; collective <= (int)TACIT_ALL_GATHER; collective++) {
        trial t = selecting_trial(3, collective);
        t.bad = true;
        conserves(&t, HOSTS[1], 0);
    }
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static void play_types(taciti_comm *comm, void *context) {
    trial *t = context;
    tacit_comm seat;
    tacit_channel *channel = open_channel(t, seat_of(comm, &seat));
    const int ranks = taciti_comm_size(comm);
    uint16_t x[1 + 100];
    const taciti_kernels *k = taciti_kernels_get();
    for (int type = TACIT_BF16; type <= (int)TACIT_F16; type++) {
        const bool bf16 = type == TACIT_BF16;
        float floats[100], sums[100];
        for (int i = 0; i < 100; i++) floats[i] = (float)(i - taciti_comm_rank(comm));
        (bf16 ? k->bf16_encode : k->fp16_encode)(x + 1, floats, 100);
        OK(tacit_channel_start(channel, x + 1, x + 1, (tacit_type)type, 0.5));
        OK(tacit_channel_wait(channel, (double)INFINITY));
        (bf16 ? k->bf16_decode : k->fp16_decode)(sums, x + 1, 100);
        for (int i = 0; i < 100; i++) {
            const float sum = 0.5F * (float)(ranks * i - ranks * (ranks - 1) / 2);
            CHECK(fabsf(sums[i] - sum) <= fabsf(sum) * (bf16 ? 0x1p-8F : 0x1p-11F));
        }
    }
    OK(tacit_channel_close(channel));
    taciti_handle_close(&seat.handle);
}

static void narrow_arrays_are_summed_in_f32(void **state) {
    (void)state;
    for (int r = 0; r < RANK_COUNT; r++) play(&(trial){.ranks = RANKS[r], .n = 100}, HOSTS[2], play_types);
}

/* ---- several at once, and waits ---------------------------------------------------------------------------------- */

typedef struct waiter {
    tacit_channel *channel;
    tacit_status status;
} waiter;

static void *wait_elsewhere(void *argument) {
    waiter *w = argument;
    w->status = tacit_channel_wait(w->channel, (double)INFINITY);
    return NULL;
}

static void play_pending(taciti_comm *comm, void *context) {
    trial *t = context;
    tacit_comm seat;
    tacit_channel *channels[3];
    float x[3][41];
    const trial kinds[3] = {{.n = 41}, {.n = 41, .settings = {"compress.codec=int8"}}, {.n = 10}};
    (void)seat_of(comm, &seat);
    for (int i = 0; i < 3; i++) channels[i] = open_channel(&kinds[i], &seat);
    while (taciti_comm_rank(comm) == 1 && t->seen == 0) taciti_sleep_ns(TACITI_NS_PER_MS);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 41; k++) x[i][k] = (float)(i + 1);
        OK(tacit_channel_start(channels[i], x[i], x[i], TACIT_F32, 1));
    }
    if (taciti_comm_rank(comm) == 0) {
        CHECK(tacit_channel_wait(channels[2], 0) == TACIT_PENDING);
        CHECK(tacit_channel_wait(channels[0], 0.02) == TACIT_PENDING && channels[0]->wait_ns >= 20 * TACITI_NS_PER_MS);
        CHECK(tacit_channel_start(channels[0], x[0], x[0], TACIT_F32, 1) == TACIT_E_USAGE);
        t->seen = 1;
    }
    pthread_t thread;
    waiter w = {.channel = channels[1]};
    CHECK(pthread_create(&thread, NULL, wait_elsewhere, &w) == 0);
    OK(tacit_channel_wait(channels[2], 60));
    OK(tacit_channel_wait(channels[0], 60));
    CHECK(pthread_join(thread, NULL) == 0 && w.status == TACIT_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(fabsf(x[i][9] - (float)(2 * (i + 1))) <= 0x1p-6F * (float)(i + 1));
        OK(tacit_channel_close(channels[i]));
    }
    taciti_handle_close(&seat.handle);
}

static void a_wait_ends_in_time_and_in_any_thread(void **state) {
    (void)state;
    play(&(trial){.ranks = 2}, NULL, play_pending);
}

static void play_close(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    float *x = taciti_calloc(t->n, sizeof *x);
    tacit_channel *channel = open_channel(t, seat_of(comm, &seat));
    x[t->n - 1] = 1;
    OK(tacit_channel_start(channel, x, x, TACIT_F32, 1));
    CHECK(tacit_close(&seat) == TACIT_E_USAGE);
    OK(tacit_channel_close(channel));
    CHECK(x[t->n - 1] == (float)taciti_comm_size(comm)); /* it has arrived */
    CHECK(tacit_channel_wait(channel, 0) == TACIT_E_USAGE);
    CHECK(tacit_channel_close(channel) == TACIT_E_USAGE);
    taciti_free(x);
    taciti_handle_close(&seat.handle);
}

static void close_waits_for_what_was_started(void **state) {
    (void)state;
    for (int thread = 0; thread < 2; thread++) {
        trial t = {.ranks = 3, .n = 4097};
        const taciti_comm_options options = test_comm_options(thread);
        test_world_run(t.ranks, &options, play_close, &t);
    }
}

/* Everybody has seen the failure before buffers are freed, into which the others of this process may write. */
static void meet(_Atomic int *count, int ranks) {
    (*count)++;
    while (*count < ranks) taciti_sleep_ns(TACITI_NS_PER_MS);
}

static void play_failure(taciti_comm *comm, void *context) {
    static _Atomic int ended;
    const trial *t = context;
    tacit_comm seat;
    float *x = taciti_calloc(t->n, sizeof *x);
    tacit_channel *channel = open_channel(t, seat_of(comm, &seat));
    (void)taciti_comm_barrier(comm); /* all have opened; the last one leaves */
    if (taciti_comm_rank(comm) == t->ranks - 1) {
        (void)taciti_fail(TACIT_E_PEER, "this rank leaves");
        taciti_comm_give_up(comm);
    } else {
        const tacit_status started = tacit_channel_start(channel, x, x, TACIT_F32, 1);
        CHECK(started == TACIT_OK || started == TACIT_E_PEER);
        if (started == TACIT_OK) CHECK(tacit_channel_wait(channel, (double)INFINITY) == TACIT_E_PEER);
        CHECK(tacit_channel_start(channel, x, x, TACIT_F32, 1) == TACIT_E_PEER);
    }
    meet(&ended, t->ranks);
    CHECK(tacit_channel_close(channel) == TACIT_E_PEER);
    taciti_handle_close(&seat.handle);
    taciti_free(x);
}

static void a_peer_that_fails_ends_the_wait(void **state) {
    (void)state;
    play(&(trial){.ranks = 3, .n = 4097, .settings = {"compress.codec=int4"}}, HOSTS[0], play_failure);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void play_length(taciti_comm *comm, void *context) {
    tacit_comm seat;
    tacit_channel *channel = NULL;
    const size_t n = 100 + (taciti_comm_rank(comm) == 2);
    tacit_settings *settings = settings_of(&(const char *){NULL});
    (void)context;
    CHECK(tacit_channel_open(seat_of(comm, &seat), settings, TACIT_ALL_REDUCE, n, &channel) == TACIT_E_CONFIG);
    CHECK(strstr(tacit_error_text(), "rank 2") != NULL && strstr(tacit_error_text(), "100 elements") != NULL &&
          strstr(tacit_error_text(), "101 elements") != NULL);
    const tacit_collective kind = taciti_comm_rank(comm) == 1 ? TACIT_ALL_GATHER : TACIT_ALL_REDUCE;
    CHECK(tacit_channel_open(&seat, settings, kind, 99, &channel) == TACIT_E_CONFIG);
    CHECK(strstr(tacit_error_text(), "all-gather") != NULL);
    CHECK(tacit_channel_open(&seat, settings, TACIT_REDUCE_SCATTER, 100, &channel) == TACIT_E_USAGE);
    CHECK(strstr(tacit_error_text(), "3 ranks do not divide") != NULL);
    CHECK(channel == NULL && seat.jobs == 0);
    tacit_settings_destroy(settings);
    taciti_handle_close(&seat.handle);
}

static void another_length_is_refused_by_name(void **state) {
    (void)state;
    play(&(trial){.ranks = 3}, NULL, play_length);
}

static void refuse(tacit_comm *comm, tacit_collective kind, const char *a, const char *b, const char *text) {
    tacit_channel *channel = NULL;
    const char *const list[] = {a, b, NULL};
    tacit_settings *settings = settings_of(list);
    assert_int_equal(tacit_channel_open(comm, settings, kind, 16, &channel), TACIT_E_CONFIG);
    if (strstr(tacit_error_text(), text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, tacit_error_text());
    tacit_settings_destroy(settings);
}

static void settings_that_no_channel_can_have_are_refused(void **state) {
    (void)state;
    tacit_comm *comm = NULL;
    assert_int_equal(tacit_open_self(NULL, &comm), TACIT_OK);
    refuse(comm, TACIT_ALL_GATHER, "compress.codec=auto", NULL, "compress.codec auto is for sums");
    refuse(comm, TACIT_ALL_REDUCE, "compress.codec=topk", "adapt.policy=gravac", "adapt.policy gravac");
    refuse(comm, TACIT_ALL_REDUCE, "compress.codec=onebit", "compress.what=momentum", "compress.what momentum");
    refuse(comm, TACIT_ALL_REDUCE, "compress.codec=topk", "compress.layers=all,-norm", "compress.layers all,-norm");
    refuse(comm, TACIT_REDUCE_SCATTER, "compress.codec=powersgd", NULL, "needs the sum on all ranks");
    refuse(comm, TACIT_REDUCE_SCATTER, "compress.codec=topk", "compress.what=change", "compress.what change");
    refuse(comm, TACIT_REDUCE_SCATTER, "compress.codec=topk", "compress.collective=gather", "collective gather");
    refuse(comm, TACIT_ALL_GATHER, "compress.codec=sketch", NULL, "compress.codec sketch");
    refuse(comm, TACIT_ALL_GATHER, "compress.codec=signsgd", NULL, "compress.codec signsgd");
    refuse(comm, TACIT_ALL_GATHER, "compress.codec=topk", "compress.feedback=0.5", "compress.feedback");
    refuse(comm, TACIT_ALL_GATHER, "compress.codec=topk", "compress.momentum=0.5", "compress.momentum");
    assert_int_equal(tacit_close(comm), TACIT_OK);
}

static int g_warnings;

static void count_warning(void *context, tacit_log_level level, const char *line) {
    (void)context;
    g_warnings += level == TACIT_LOG_WARN && strstr(line, "nothing in this run reads") != NULL;
}

/* Once for all channels with these settings, whatever others are opened between them. */
static void settings_that_no_channel_reads_are_named_once(void **state) {
    (void)state;
    static const char *const LISTS[][3] = {
        {"shard.stage=2"}, {"exchange.wire=bf16"}, {"optim.lr=1", "gossip.gamma=0.5"}};
    tacit_comm *comm = NULL;
    assert_int_equal(tacit_open_self(NULL, &comm), TACIT_OK);
    assert_int_equal(tacit_comm_log_to(comm, count_warning, NULL, TACIT_LOG_WARN), TACIT_OK);
    g_warnings = 0;
    for (int i = 0; i < 6; i++) {
        tacit_channel *channel = NULL;
        tacit_settings *settings = NULL;
        assert_int_equal(tacit_settings_create(&settings), TACIT_OK);
        for (const char *const *word = LISTS[i % 3]; *word != NULL; word++)
            assert_int_equal(tacit_settings_set(settings, *word), TACIT_OK);
        assert_int_equal(tacit_channel_open(comm, settings, TACIT_ALL_REDUCE, 16, &channel), TACIT_OK);
        tacit_settings_destroy(settings);
        assert_int_equal(tacit_channel_close(channel), TACIT_OK);
    }
    assert_int_equal(g_warnings, 2);
    assert_int_equal(tacit_close(comm), TACIT_OK);
}

static void wrong_calls_change_nothing(void **state) {
    (void)state;
    tacit_comm *comm = NULL;
    tacit_channel *channel = NULL;
    tacit_settings *settings = settings_of(&(const char *){NULL});
    float x[21] = {[20] = 3};
    assert_int_equal(tacit_open_self(NULL, &comm), TACIT_OK);
    assert_int_equal(tacit_channel_open(comm, settings, TACIT_ALL_REDUCE, 0, &channel), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_open(comm, settings, (tacit_collective)3, 1, &channel), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_open(comm, settings, TACIT_ALL_REDUCE, 20, NULL), TACIT_E_USAGE);
    assert_null(channel);
    assert_int_equal(tacit_channel_open(comm, settings, TACIT_ALL_REDUCE, 20, &channel), TACIT_OK);
    assert_int_equal(tacit_channel_wait(channel, 0), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_start(channel, NULL, x, TACIT_F32, 1), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_start(channel, x, NULL, TACIT_F32, 1), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_start(channel, x, x + 1, TACIT_F32, 1), TACIT_E_USAGE); /* they overlap */
    assert_int_equal(tacit_channel_start(channel, (char *)x + 2, (char *)x + 2, TACIT_F32, 1), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_start(channel, x, x, (tacit_type)3, 1), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_start(channel, x, x, TACIT_F32, (double)NAN), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_start(channel, x, x, TACIT_F32, 1e300), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_start(channel, x + 1, x + 1, TACIT_F32, -2), TACIT_OK);
    assert_int_equal(tacit_channel_wait(channel, -1), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_wait(channel, (double)NAN), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_wait(channel, 1), TACIT_OK);
    assert_int_equal(tacit_channel_wait(channel, 1), TACIT_E_USAGE);
    assert_float_equal(x[20], -6, 0);
    assert_int_equal(tacit_close(comm), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_close((tacit_channel *)comm), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_close(channel), TACIT_OK);
    assert_int_equal(tacit_channel_start(channel, x, x, TACIT_F32, 1), TACIT_E_USAGE);
    assert_int_equal(tacit_channel_close(NULL), TACIT_OK);
    assert_int_equal(tacit_close(comm), TACIT_OK);
    tacit_settings_destroy(settings);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_sums_have_the_bits_of_a_job),
        cmocka_unit_test(coded_sums_have_the_bits_of_a_job),
        cmocka_unit_test(dense_parts_are_where_they_belong),
        cmocka_unit_test(what_is_lost_waits_in_the_residuals),
        cmocka_unit_test(a_start_that_is_not_finite_does_not_count),
        cmocka_unit_test(narrow_arrays_are_summed_in_f32),
        cmocka_unit_test(a_wait_ends_in_time_and_in_any_thread),
        cmocka_unit_test(close_waits_for_what_was_started),
        cmocka_unit_test(a_peer_that_fails_ends_the_wait),
        cmocka_unit_test(another_length_is_refused_by_name),
        cmocka_unit_test(settings_that_no_channel_can_have_are_refused),
        cmocka_unit_test(settings_that_no_channel_reads_are_named_once),
        cmocka_unit_test(wrong_calls_change_nothing),
    };
    (void)taciti_kernels_get(); /* the first call must come from a single thread */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

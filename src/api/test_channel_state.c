/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a channel as bytes: a channel that goes on from them has the bits of one that never ended, and bytes of
 * another channel, rank or moment are refused, on all ranks, and change nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/test_seat.h"
#include "base/rng.h"
#include "kernel/kernel.h"

enum { MAX_RANKS = 5, STOP = 3, STARTS = 7 };

static const int HOSTS[][MAX_RANKS] = {{0, 0, 0, 0, 0}, {0, 1, 2, 3, 4}, {0, 0, 1, 1, 1}};
enum { HOST_COUNT = sizeof HOSTS / sizeof *HOSTS };

typedef struct trial {
    tacit_collective collective;
    const char *settings[6]; /* the rest NULL */
    size_t n;
    bool bare; /* nothing is remembered */
} trial;

typedef struct string {
    unsigned char *bytes;
    size_t count;
} string;

static tacit_channel *open_channel(const trial *t, tacit_comm *comm) {
    tacit_channel *channel = NULL;
    tacit_settings *settings = NULL;
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "exchange.bucket=4KiB"));
    for (const char *const *s = t->settings; *s != NULL; s++) OK(tacit_settings_set(settings, *s));
    OK(tacit_channel_open(comm, settings, t->collective, t->n, &channel));
    tacit_settings_destroy(settings);
    return channel;
}

/* Every rank and start gives other numbers. out: t->n floats, of which the collective writes some. */
static void start_once(const trial *t, tacit_channel *channel, const tacit_comm *comm, int start, float *out) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(11, (uint64_t)tacit_rank(comm)), (uint64_t)start);
    float *given = taciti_calloc(t->n, sizeof *given);
    for (size_t i = 0; i < t->n; i++) given[i] = (float)(taciti_rng_unit(key, i) - 0.5);
    memset(out, 0, t->n * sizeof *out);
    OK(tacit_channel_start(channel, given, out, TACIT_F32, 1));
    OK(tacit_channel_wait(channel, (double)INFINITY));
    taciti_free(given);
}

static string state_of(tacit_channel *channel) {
    string s = {.bytes = NULL};
    OK(tacit_channel_state(channel, NULL, 0, &s.count));
    s.bytes = malloc(s.count);
    CHECK(s.bytes != NULL);
    CHECK(tacit_channel_state(channel, s.bytes, s.count - 1, &s.count) == TACIT_E_USAGE);
    OK(tacit_channel_state(channel, s.bytes, s.count, &s.count));
    return s;
}

static void play_resume(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    float *one = taciti_calloc(t->n, sizeof *one), *two = taciti_calloc(t->n, sizeof *two);
    tacit_channel *whole = open_channel(t, seat_of(comm, &seat));
    for (int s = 0; s < STOP; s++) start_once(t, whole, &seat, s, one);
    const string state = state_of(whole);
    tacit_channel *resumed = open_channel(t, &seat), *forgetful = open_channel(t, &seat);
    OK(tacit_channel_restore(resumed, state.bytes, state.count));
    double forgot = 0;
    for (int s = STOP; s < STARTS; s++) {
        start_once(t, whole, &seat, s, one);
        start_once(t, resumed, &seat, s, two);
        CHECK(memcmp(one, two, t->n * sizeof *one) == 0);
        start_once(t, forgetful, &seat, s, two);
        forgot += memcmp(one, two, t->n * sizeof *one) != 0;
    }
    OK(taciti_comm_allreduce_f64(comm, &forgot, 1, TACITI_OP_SUM));
    CHECK((forgot > 0) == (!t->bare && tacit_size(&seat) > 1)); /* so the state is what makes them equal */
    OK(tacit_channel_close(whole));
    OK(tacit_channel_close(resumed));
    OK(tacit_channel_close(forgetful));
    free(state.bytes);
    taciti_free(one);
    taciti_free(two);
    taciti_handle_close(&seat.handle);
}

static void a_channel_goes_on_from_its_bytes(void **state) {
    static const int RANKS[] = {1, 2, 3, 5};
    static const trial TRIALS[] = {
        {TACIT_ALL_REDUCE, {NULL}, 41, true},
        {TACIT_ALL_REDUCE, {"compress.codec=topk", "compress.factor=10", "compress.warmup=0"}, 4100, false},
        {TACIT_ALL_REDUCE, {"compress.codec=topk", "compress.factor=10", "compress.warmup=5"}, 4100, false},
        {TACIT_ALL_REDUCE, {"compress.codec=int4"}, 101, false},
        {TACIT_ALL_REDUCE, {"compress.codec=onebit", "compress.what=change"}, 4100, false},
        {TACIT_ALL_REDUCE, {"compress.codec=sketch", "compress.warmup=0"}, 4100, false},
        {TACIT_ALL_REDUCE, {"compress.codec=topk", "compress.momentum=0.9", "compress.warmup=0"}, 410, false},
        {TACIT_REDUCE_SCATTER, {"compress.codec=topk", "topk.values=int4", "compress.warmup=0"}, 3000, false},
        {TACIT_REDUCE_SCATTER, {"compress.codec=int4"}, 30, false},
        {TACIT_ALL_GATHER, {"compress.codec=int4"}, 3000, false},
        {TACIT_ALL_GATHER, {"compress.codec=topk", "compress.factor=10", "compress.warmup=0"}, 3000, false},
    };
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    for (size_t i = 0; i < sizeof TRIALS / sizeof *TRIALS; i++)
        for (size_t r = 0; r < sizeof RANKS / sizeof *RANKS; r++)
            for (int h = 0; h < HOST_COUNT; h++) {
                trial t = TRIALS[i];
                test_hosts(HOSTS[h]);
                test_world_run(RANKS[r], &options, play_resume, &t);
            }
    test_hosts(NULL);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static const trial TOPK = {TACIT_ALL_REDUCE, {"compress.codec=topk", "compress.warmup=0"}, 300, false};

static void refuse(tacit_channel *channel, const string *s, const char *text) {
    CHECK(tacit_channel_restore(channel, s->bytes, s->count) == TACIT_E_DATA);
    if (strstr(tacit_error_text(), text) != NULL) return;
    (void)fprintf(stderr, "\"%s\" is not in \"%s\"\n", text, tacit_error_text());
    abort();
}

static void refuse_by_another(const trial *t, tacit_comm *comm, const string *s, const char *text) {
    tacit_channel *channel = open_channel(t, comm);
    refuse(channel, s, text);
    OK(tacit_channel_close(channel));
}

static void play_refusals(taciti_comm *comm, void *context) {
    tacit_comm seat;
    float out[300];
    trial other = TOPK;
    (void)context;
    tacit_channel *channel = open_channel(&TOPK, seat_of(comm, &seat)), *fresh = open_channel(&TOPK, &seat);
    start_once(&TOPK, channel, &seat, 0, out);
    const string s = state_of(channel);
    other.n = 303;
    refuse_by_another(&other, &seat, &s, "of a channel with other elements");
    other = TOPK;
    other.collective = TACIT_REDUCE_SCATTER;
    refuse_by_another(&other, &seat, &s, "of a channel with other collective");
    other = TOPK;
    other.settings[1] = "compress.factor=20";
    refuse_by_another(&other, &seat, &s, "compress.factor was 10 and is 20 now");
    other = TOPK;
    other.settings[2] = "topk.values=int4";
    refuse_by_another(&other, &seat, &s, "topk.values was \"f32\" and is \"int4\" now");
    other.settings[2] = "adapt.policy=payoff";
    refuse_by_another(&other, &seat, &s, "adapt.policy was \"fixed\" and is \"payoff\" now");
    other.settings[0] = "compress.codec=int4";
    other.settings[2] = NULL;
    refuse_by_another(&other, &seat, &s, "compress.codec was \"topk\" and is \"int4\" now");
    if (tacit_rank(&seat) == 1) s.bytes[s.count / 2] ^= 1;
    refuse(fresh, &s, "damaged");
    if (tacit_rank(&seat) == 1) s.bytes[s.count / 2] ^= 1;
    CHECK(tacit_channel_restore(channel, s.bytes, s.count) == TACIT_E_USAGE); /* it has sent */
    CHECK(tacit_channel_restore(tacit_rank(&seat) == 1 ? channel : fresh, s.bytes, s.count) == TACIT_E_USAGE);
    OK(tacit_channel_restore(fresh, s.bytes, s.count));
    CHECK(tacit_channel_restore(fresh, s.bytes, s.count) == TACIT_E_USAGE); /* it has a state */
    OK(tacit_channel_close(fresh));
    OK(tacit_channel_close(channel));
    free(s.bytes);
    taciti_handle_close(&seat.handle);
}

/* A channel goes on although settings that no channel reads have changed. */
static void play_unread(taciti_comm *comm, void *context) {
    static const char *const UNREAD[] = {"optim.lr=0.5",    "strategy=shard",  "gossip.delay=1",
                                         "qsgd.levels=9",   "optim.clip=0",    "comm.timeout=7",
                                         "compress.loss=4", "strategy=gossip", "compress.gather=int4"};
    tacit_comm seat;
    float out[300];
    trial other = TOPK;
    (void)context;
    tacit_channel *channel = open_channel(&TOPK, seat_of(comm, &seat));
    start_once(&TOPK, channel, &seat, 0, out);
    const string s = state_of(channel);
    for (size_t i = 0; i < sizeof UNREAD / sizeof *UNREAD; i++) {
        other.settings[2] = UNREAD[i];
        tacit_channel *resumed = open_channel(&other, &seat);
        OK(tacit_channel_restore(resumed, s.bytes, s.count));
        OK(tacit_channel_close(resumed));
    }
    OK(tacit_channel_close(channel));
    free(s.bytes);
    taciti_handle_close(&seat.handle);
}

static void settings_that_no_channel_reads_may_change(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(2, &options, play_unread, NULL);
}

static void bytes_of_another_channel_are_refused(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(3, &options, play_refusals, NULL);
}

static void play_wrong_calls(taciti_comm *comm, void *context) {
    tacit_comm seat;
    float x[300] = {1};
    size_t bytes = 0;
    (void)context;
    tacit_channel *channel = open_channel(&TOPK, seat_of(comm, &seat));
    CHECK(tacit_channel_state(channel, NULL, 0, NULL) == TACIT_E_USAGE);
    OK(tacit_channel_start(channel, x, x, TACIT_F32, 1));
    CHECK(tacit_channel_state(channel, NULL, 0, &bytes) == TACIT_E_USAGE && bytes == 0);
    CHECK(tacit_channel_restore(channel, x, sizeof x) == TACIT_E_USAGE);
    OK(tacit_channel_wait(channel, (double)INFINITY));
    OK(tacit_channel_close(channel));
    CHECK(tacit_channel_state(channel, NULL, 0, &bytes) == TACIT_E_USAGE);
    taciti_handle_close(&seat.handle);
}

static const float *residual_of(const tacit_channel *c) {
    return taciti_exchange_residual(taciti_compression_exchange(c->compression), TACITI_RESIDUAL_CONTRIBUTION);
}

/* The choice of auto is not part of the state, and what it has lost is. */
static void play_auto(taciti_comm *comm, void *context) {
    const trial t = {TACIT_REDUCE_SCATTER, {"compress.codec=auto"}, 300, false};
    tacit_comm seat;
    float x[300];
    (void)context;
    tacit_channel *channel = open_channel(&t, seat_of(comm, &seat)), *resumed = open_channel(&t, &seat);
    for (int s = 0; s < STARTS; s++) start_once(&t, channel, &seat, s, x);
    const string state = state_of(channel);
    OK(tacit_channel_restore(resumed, state.bytes, state.count));
    const float *lost = residual_of(channel), *found = residual_of(resumed);
    CHECK(lost != NULL && found != NULL && memcmp(lost, found, channel->layout.n * sizeof *lost) == 0);
    start_once(&t, resumed, &seat, STARTS, x);
    OK(tacit_channel_close(resumed));
    OK(tacit_channel_close(channel));
    free(state.bytes);
    taciti_handle_close(&seat.handle);
}

static void auto_begins_anew_with_its_residual(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(3, &options, play_auto, NULL);
}

/* A transfer that has failed is neither made nor not. */
static void play_failure(taciti_comm *comm, void *context) {
    tacit_comm seat;
    size_t bytes = 0;
    (void)context;
    tacit_channel *channel = open_channel(&TOPK, seat_of(comm, &seat));
    (void)taciti_fail(TACIT_E_PEER, "this rank leaves");
    taciti_comm_give_up(comm);
    CHECK(tacit_channel_state(channel, NULL, 0, &bytes) == TACIT_E_PEER && bytes == 0);
    CHECK(tacit_channel_close(channel) == TACIT_E_PEER);
    taciti_handle_close(&seat.handle);
}

static void a_channel_that_has_failed_has_no_state(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(1, &options, play_failure, NULL);
}

static void a_channel_under_way_has_no_state(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(2, &options, play_wrong_calls, NULL);
}

/* A bucket that comes whole gives and takes the part of this rank alone. */
static void play_whole_bucket(taciti_comm *comm, void *context) {
    const trial t = {TACIT_REDUCE_SCATTER, {NULL}, 300, false};
    tacit_comm seat;
    float part[300] = {0};
    (void)context;
    tacit_channel *c = open_channel(&t, seat_of(comm, &seat));
    float *flat = c->flat.base;
    const size_t n = c->layout.buckets[0].n, slot_n = n / (size_t)c->parts;
    for (size_t i = 0; i < n; i++) flat[i] = (float)(1 + c->part_of[i / slot_n]);
    c->target = (char *)part;
    c->type = TACIT_F32;
    c->hooks.arrived(c, 0, (taciti_range){.n = n});
    for (size_t i = 0; i < 300; i++) CHECK(part[i] == (i < c->part_n ? (float)(1 + tacit_rank(&seat)) : 0));
    OK(tacit_channel_close(c));
    taciti_handle_close(&seat.handle);
}

static void a_whole_bucket_gives_the_own_part_alone(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(3, &options, play_whole_bucket, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_bucket_gives_the_own_part_alone),
        cmocka_unit_test(a_channel_goes_on_from_its_bytes),
        cmocka_unit_test(bytes_of_another_channel_are_refused),
        cmocka_unit_test(a_channel_under_way_has_no_state),
        cmocka_unit_test(a_channel_that_has_failed_has_no_state),
        cmocka_unit_test(auto_begins_anew_with_its_residual),
        cmocka_unit_test(settings_that_no_channel_reads_may_change),
    };
    (void)taciti_kernels_get(); /* the first call must come from a single thread */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

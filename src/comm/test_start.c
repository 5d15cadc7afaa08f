/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that come late, do not come, or leave before the others: under the engine between threads alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "comm/state.h"
#include "comm/test_engine.h"

static int set_up(void **state) {
    (void)state;
    test_log_keep();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    test_log_drop();
    return 0;
}

typedef struct newcomer {
    taciti_engine engine;
    const taciti_comm_options *options;
    int64_t delay_ns;
} newcomer;

static void *come_late(void *argument) {
    const newcomer *it = argument;
    taciti_comm *comm = NULL;
    taciti_sleep_ns(it->delay_ns);
    CHECK(taciti_comm_open_engine(it->options, &it->engine, &comm) == TACIT_OK);
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    taciti_comm_close(comm);
    return NULL;
}

static void who_comes_late_has_comm_start_and_not_comm_timeout(void **state) {
    (void)state;
    taciti_comm_options options = test_comm_options(false);
    options.warn_s = 0.3;
    options.timeout_s = 0.6;
    test_world *world = test_world_create(2);
    newcomer late = {test_world_seat(world, 1), &options, 1500 * TACITI_NS_PER_MS},
             first = {test_world_seat(world, 0), &options, 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, come_late, &late), 0);
    (void)come_late(&first);
    (void)pthread_join(thread, NULL);
    assert_int_equal(test_log_count("rank 1 (not yet introduced) has been silent"), 1);
    assert_int_equal(test_log_count("counts as failed after 60.0 s"), 1);
    test_world_destroy(world);
}

static void who_does_not_come_is_named_after_comm_start(void **state) {
    (void)state;
    taciti_comm_options options = test_comm_options(false);
    options.start_s = 1;
    test_world *world = test_world_create(2);
    const taciti_engine engine = test_world_seat(world, 0);
    taciti_comm *comm = NULL;
    const int64_t begin_ns = taciti_now_ns();
    assert_int_equal(taciti_comm_open_engine(&options, &engine, &comm), TACIT_E_PEER);
    assert_true(taciti_now_ns() - begin_ns < 20 * TACITI_NS_PER_S); /* comm.timeout is 60 s here */
    assert_int_equal(test_log_count("rank 1 (not yet introduced)"), 1);
    assert_int_equal(test_log_count("not come up within 1 s; --comm.start"), 1);
    const taciti_engine late = test_world_seat(world, 1);
    taciti_engine_request request;
    char beat[64] = ""; /* rank 0 has freed what its receive would write to */
    assert_int_equal(late.isend(late.self, 0, TACITI_TAG_BEAT, beat, sizeof beat, &request), TACIT_OK);
    test_world_destroy(world);
}

static tacit_status refuse_receive(void *self, int peer, int tag, void *bytes, size_t count,
                                   taciti_engine_request *out) {
    (void)self, (void)peer, (void)tag, (void)bytes, (void)count, (void)out;
    return TACIT_E_MEMORY;
}

static void who_cannot_open_tells_the_others(void **state) {
    (void)state;
    taciti_comm_options options = test_comm_options(false);
    options.start_s = 1;
    test_world *world = test_world_create(2);
    const taciti_engine engine = test_world_seat(world, 0);
    taciti_engine broken = test_world_seat(world, 1);
    taciti_comm *comm = NULL;
    broken.irecv = refuse_receive;
    assert_int_equal(taciti_comm_open_engine(&options, &broken, &comm), TACIT_E_MEMORY);
    assert_int_equal(taciti_comm_open_engine(&options, &engine, &comm), TACIT_E_PEER);
    assert_non_null(strstr(taciti_error_text(), "rank 1 (not yet introduced) has failed, as rank 1"));
    assert_int_equal(test_log_count("not come up within"), 0);
    test_world_destroy(world);
}

/* A rank leaves after step 3 of one job, while its message of step 9 of another one is under way for 2.5 s. With two
 * messages expected, it has sent one too few. */
typedef struct leaver {
    int expected;
    tacit_status (*test)(void *self, taciti_engine_request *request, bool *done);
    const taciti_engine_request *held;
    int64_t arrives_ns;
} leaver;

static leaver g_leaver;

static tacit_status test_late(void *self, taciti_engine_request *request, bool *done) {
    const tacit_status status = g_leaver.test(self, request, done);
    if (request == g_leaver.held && taciti_now_ns() < g_leaver.arrives_ns) *done = false;
    return status;
}

static void leave_early(taciti_comm *comm) {
    char byte = 7;
    taciti_comm_announce(comm, 9, "exchange");
    CHECK(taciti_comm_send(comm, 0, &byte, 1) == TACIT_OK);
    taciti_comm_announce(comm, 3, "exchange");
    CHECK(taciti_comm_close(comm) == (g_leaver.expected == 1 ? TACIT_OK : TACIT_E_PEER));
}

static void wait_for_leaver(taciti_comm *comm) {
    taciti_engine_request request;
    tacit_status status = TACIT_OK;
    taciti_comm_announce(comm, 9, "exchange");
    g_leaver.test = comm->engine.test;
    g_leaver.arrives_ns = taciti_now_ns() + 2500 * TACITI_NS_PER_MS;
    comm->engine.test = test_late;
    for (int i = 0; i < g_leaver.expected && status == TACIT_OK; i++) {
        char byte = 0;
        g_leaver.held = &request;
        CHECK(taciti_comm_irecv(comm, 1, &byte, 1, &request) == TACIT_OK);
        status = taciti_comm_await(comm, &request);
        CHECK(i > 0 || (status == TACIT_OK && byte == 7));
    }
    CHECK(status == (g_leaver.expected == 1 ? TACIT_OK : TACIT_E_PEER));
    (void)taciti_comm_close(comm);
}

static void *play_leaver(void *argument) {
    const newcomer *it = argument;
    taciti_comm *comm = NULL;
    CHECK(taciti_comm_open_engine(it->options, &it->engine, &comm) == TACIT_OK);
    if (it->engine.rank == 1)
        leave_early(comm);
    else
        wait_for_leaver(comm);
    return NULL;
}

static void run_pair(const taciti_comm_options *options, void *(*play)(void *)) {
    test_world *world = test_world_create(2);
    newcomer second = {test_world_seat(world, 1), options, 0}, first = {test_world_seat(world, 0), options, 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, play, &second), 0);
    (void)play(&first);
    (void)pthread_join(thread, NULL);
    test_world_destroy(world);
}

static void who_has_left_is_named_when_all_its_messages_have_arrived(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(false);
    for (int expected = 1; expected <= 2; expected++) {
        const int64_t begin_ns = taciti_now_ns();
        g_leaver = (leaver){.expected = expected};
        run_pair(&options, play_leaver);
        assert_int_equal(test_log_count("has left the job in step 3, finish, but rank 0 waits for it in step 9"),
                         expected - 1);
        assert_true(taciti_now_ns() - begin_ns < 30 * TACITI_NS_PER_S); /* comm.timeout is 60 s here */
    }
}

/* Rank 1 has begun step 3 last, or none, and rank 0 step 9. */
static void *end_in_own_step(void *argument) {
    const newcomer *it = argument;
    taciti_comm *comm = NULL;
    CHECK(taciti_comm_open_engine(it->options, &it->engine, &comm) == TACIT_OK);
    if (it->engine.rank == 0) taciti_comm_announce(comm, 9, "exchange");
    if (it->engine.rank == 1 && g_leaver.expected > 0) taciti_comm_announce(comm, 3, "exchange");
    CHECK(taciti_comm_close(comm) == (it->options->same_steps ? TACIT_E_USAGE : TACIT_OK));
    return NULL;
}

static void who_has_made_other_steps_is_named_at_the_end(void **state) {
    (void)state;
    taciti_comm_options options = test_comm_options(false);
    for (int expected = 0; expected <= 2; expected++) {
        options.same_steps = expected < 2;
        g_leaver = (leaver){.expected = expected};
        run_pair(&options, end_in_own_step);
    }
    assert_int_equal(test_log_count("has left the job in finish, and rank 0 in step 9, finish"), 1);
    assert_int_equal(test_log_count("has left the job in step 3, finish, and rank 0 in step 9, finish"), 1);
    assert_int_equal(test_log_count("has left the job in step 9, finish, and rank 1 in "), 2);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(who_comes_late_has_comm_start_and_not_comm_timeout),
        TEST(who_does_not_come_is_named_after_comm_start),
        TEST(who_cannot_open_tells_the_others),
        TEST(who_has_left_is_named_when_all_its_messages_have_arrived),
        TEST(who_has_made_other_steps_is_named_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

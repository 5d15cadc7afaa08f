/* SPDX-License-Identifier: Apache-2.0
 *
 * The TCP engine between the threads of this process: the contract of the engine's table over both stores, and how
 * ranks meet. test_strangers.c has who is kept out, test_tcp_faults.c what needs processes.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <poll.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "base/rng.h"
#include "comm/tcp_link.h"
#include "comm/tcp_memory.h"
#include "comm/test_tcp_world.h"

enum { TAGS = 3, NAP_NS = 10000000 };

/* ---- random messages --------------------------------------------------------------------------------------------- */
enum { MESSAGES = 24 };

typedef struct letter {
    int peer, tag;
    bool receive, posted, done;
    size_t bytes;
    uint64_t key;
    char *array;
    taciti_engine_request request;
} letter;

/* Message number i from one rank to another: both compute the same. */
static letter describe_letter(const world *w, int from, int to, int i) {
    const uint64_t key = taciti_rng_key(w->seed, (uint64_t)from << 40 | (uint64_t)to << 20 | (uint64_t)(unsigned)i);
    static const size_t SPECIAL[] = {0, 1, 16384, 65536, 65537, 262144, 262145};
    const uint64_t draw = taciti_rng_below(key, 0, 10);
    letter out = {.tag = (int)taciti_rng_below(key, 1, TAGS), .key = key};
    if (draw < 4)
        out.bytes = SPECIAL[taciti_rng_below(key, 2, sizeof SPECIAL / sizeof *SPECIAL)];
    else if (draw < 9)
        out.bytes = (size_t)taciti_rng_below(key, 2, 40000);
    else
        out.bytes = (size_t)taciti_rng_below(key, 2, w->max_bytes);
    return out;
}

static void fill_letter(const letter *l) {
    for (size_t i = 0; i + 8 <= l->bytes; i += 8) {
        const uint64_t x = taciti_mix64(l->key + i);
        memcpy(l->array + i, &x, 8);
    }
    for (size_t i = l->bytes / 8 * 8; i < l->bytes; i++) l->array[i] = (char)(l->key + i);
}

static void check_letter(const letter *l) {
    CHECK(!l->receive || l->request.bytes == l->bytes);
    for (size_t i = 0; i + 8 <= l->bytes; i += 8) {
        const uint64_t x = taciti_mix64(l->key + i);
        CHECK(memcmp(l->array + i, &x, 8) == 0);
    }
    for (size_t i = l->bytes / 8 * 8; i < l->bytes; i++) CHECK(l->array[i] == (char)(l->key + i));
}

static void post_letter(taciti_engine *e, letter *l) {
    l->posted = true;
    CHECK((l->receive ? e->irecv(e->self, l->peer, l->tag, l->array, l->bytes, &l->request)
                      : e->isend(e->self, l->peer, l->tag, l->array, l->bytes, &l->request)) == TACIT_OK);
}

/* Returns how many are not done. */
static int test_letters(taciti_engine *e, letter *letters, int count) {
    int left = 0;
    for (int i = 0; i < count; i++) {
        letter *l = &letters[i];
        if (l->posted && !l->done) {
            CHECK(e->test(e->self, &l->request, &l->done) == TACIT_OK);
            if (l->done) check_letter(l);
        }
        left += !l->done;
    }
    return left;
}

/* Sends and receives are posted in a random order, in which those of a peer keep theirs. Now and then some are tested
 * in between. */
static void exchange_letters(seat *s) {
    const world *w = s->world;
    enum { LISTS = 2 * RANKS_MAX };
    const int lists = 2 * w->size, count = lists * MESSAGES;
    letter *letters = taciti_calloc((size_t)count, sizeof *letters);
    int next[LISTS] = {0}, left = 0;
    for (int k = 0; k < lists; k++) {
        const int peer = k / 2;
        const bool receive = k % 2 == 1;
        for (int i = 0; i < MESSAGES && peer != s->rank; i++, left++) {
            letter *l = &letters[k * MESSAGES + i];
            *l = receive ? describe_letter(w, peer, s->rank, i) : describe_letter(w, s->rank, peer, i);
            l->peer = peer, l->receive = receive;
            l->array = taciti_calloc(l->bytes, 1);
            CHECK(l->array != NULL);
            if (!receive) fill_letter(l);
        }
        if (peer == s->rank) next[k] = MESSAGES;
        for (int i = 0; i < MESSAGES && peer == s->rank; i++) letters[k * MESSAGES + i].done = true;
    }
    for (uint64_t draw = 0; left > 0; draw++) {
        const int k =
            (int)taciti_rng_below(taciti_rng_key(w->seed, (uint64_t)(unsigned)s->rank), draw, (uint64_t)lists);
        if (next[k] < MESSAGES) post_letter(&s->engine, &letters[k * MESSAGES + next[k]++]), left--;
        if (draw % 16 == 0) (void)test_letters(&s->engine, letters, count);
    }
    while (test_letters(&s->engine, letters, count) > 0) CHECK(s->engine.wait(s->engine.self, NAP_NS) == TACIT_OK);
    for (int i = 0; i < count; i++) taciti_free(letters[i].array);
    taciti_free(letters);
}

static void messages_arrive_whole_and_in_order(void **state) {
    (void)state;
    static const int SIZES[] = {2, 3, 5, 8};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < TEST_WAYS; k++) {
            world w;
            prepare_world(&w, SIZES[i], (test_way)k, (i + k) % 2 == 0);
            w.seed = 10 * i + k;
            w.max_bytes = SIZES[i] <= 3 ? 8 << 20 : 1 << 20;
            run_world(&w, exchange_letters);
        }
}

/* Rank 1 has no memory for others. */
static void some_ranks_may_share_no_memory(void **state) {
    (void)state;
    world w;
    prepare_world(&w, 4, TEST_OVER_MEMORY, false);
    w.seats[1].request.no_memory = true;
    w.seed = 77, w.max_bytes = 1 << 20;
    run_world(&w, exchange_letters);
    assert_int_equal(test_log_count(""), 0);
}

/* The system refuses it to all ranks, and one of them says so. */
static void without_memory_there_are_sockets(void **state) {
    (void)state;
    struct rlimit old;
    world w;
    prepare_world(&w, 3, TEST_OVER_MEMORY, false);
    w.seed = 78, w.max_bytes = 1 << 20;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit small = {.rlim_cur = TACITI_TCP_RING_BYTES, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    run_world(&w, exchange_letters);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(test_log_count("rank 0 does not share memory"), 1);
    assert_int_equal(test_log_count(""), 1);
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */
/* The wait of a minute ends when the message comes; without one it lasts as long as it should, and needs no core. */
static void sleep_for_a_message(seat *s) {
    taciti_engine_request request;
    char word[8] = "";
    if (s->rank == 0) {
        taciti_sleep_ns(200 * TACITI_NS_PER_MS);
        CHECK(s->engine.isend(s->engine.self, 1, 1, "message", 8, &request) == TACIT_OK);
        finish_request(s, &request);
        CHECK(s->engine.irecv(s->engine.self, 1, 1, word, 8, &request) == TACIT_OK);
        finish_request(s, &request);
        return;
    }
    const int64_t begin_ns = taciti_now_ns(), cpu_ns = taciti_thread_ns();
    CHECK(s->engine.irecv(s->engine.self, 0, 1, word, sizeof word, &request) == TACIT_OK);
    CHECK(s->engine.wait(s->engine.self, 20 * TACITI_NS_PER_MS) == TACIT_OK);
    CHECK(taciti_now_ns() - begin_ns >= 20 * TACITI_NS_PER_MS);
    finish_request(s, &request);
    CHECK(strcmp(word, "message") == 0 && taciti_now_ns() - begin_ns < 30 * TACITI_NS_PER_S);
    CHECK(taciti_thread_ns() - cpu_ns < (taciti_now_ns() - begin_ns) / 2);
    CHECK(s->engine.isend(s->engine.self, 0, 1, word, 8, &request) == TACIT_OK);
    finish_request(s, &request);
}

static void a_wait_sleeps_until_something_moves(void **state) {
    (void)state;
    for (test_way way = 0; way < TEST_WAYS; way++) {
        world w;
        prepare_world(&w, 2, way, false);
        run_world(&w, sleep_for_a_message);
    }
}

static void refuse_strange_peers(seat *s) {
    taciti_engine_request request;
    char byte = 0;
    static const int BAD[] = {-1, 2, 99};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        CHECK(s->engine.isend(s->engine.self, BAD[i], 1, &byte, 1, &request) == TACIT_E_INTERNAL);
        CHECK(s->engine.irecv(s->engine.self, BAD[i], 1, &byte, 1, &request) == TACIT_E_INTERNAL);
    }
    CHECK(s->engine.isend(s->engine.self, s->rank, 1, &byte, 1, &request) == TACIT_E_INTERNAL);
    CHECK(s->engine.lost(s->engine.self, 1 - s->rank) == NULL);
}

static void there_are_no_other_peers(void **state) {
    (void)state;
    world w;
    prepare_world(&w, 2, TEST_OVER_TCP, false);
    run_world(&w, refuse_strange_peers);
}

/* ---- meeting ----------------------------------------------------------------------------------------------------- */
static void missing_ranks_are_named(void **state) {
    (void)state;
    for (int port = 0; port < 2; port++)
        for (int missing = 0; missing < 3; missing++) {
            world w;
            char needle[64];
            prepare_world(&w, 3, TEST_OVER_TCP, port == 1);
            test_log_keep();
            for (int i = 0; i < 3; i++) w.seats[i].request.start_s = 0.6;
            for (int i = 0; i < 3; i++)
                if (i != missing) start_seat(&w.seats[i]);
            for (int i = 0; i < 3; i++)
                if (i != missing) (void)pthread_join(w.seats[i].thread, NULL);
            for (int i = 0; i < 3; i++) assert_int_equal(w.seats[i].status, i == missing ? TACIT_OK : TACIT_E_PEER);
            (void)snprintf(needle, sizeof needle, ": rank %d", missing);
            assert_true(test_log_count(needle) >= 1);
            assert_true(test_log_count("within 0.6 s (comm.start)") + test_log_count("cannot be reached for 0.6 s") >=
                        1);
            assert_int_equal(test_log_count(""), 2); /* a line per rank */
            remove_world(&w);
        }
}

static void impossible_requests_are_refused(void **state) {
    (void)state;
    static const int BAD[][2] = {{0, 0}, {-1, 2}, {2, 2}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        taciti_engine engine;
        const taciti_tcp_request request = {.rank = BAD[i][0], .size = BAD[i][1]};
        assert_int_equal(taciti_engine_tcp_open(&request, &engine), TACIT_E_CONFIG);
    }
    world w;
    prepare_world(&w, 2, TEST_OVER_TCP, false);
    w.seats[0].request.interface = "no-such-interface";
    start_seat(&w.seats[0]);
    (void)pthread_join(w.seats[0].thread, NULL);
    assert_int_equal(w.seats[0].status, TACIT_E_CONFIG);
    assert_int_equal(test_log_count("no interface or address \"no-such-interface\""), 1);
    remove_world(&w);
}

/* The linker sends calls of the library here. */
void *__wrap_taciti_calloc(size_t count, size_t size);
void *__real_taciti_calloc(size_t count, size_t size);
static _Atomic bool g_refuses_links;

void *__wrap_taciti_calloc(size_t count, size_t size) {
    if (!g_refuses_links || count != TACITI_TCP_STAGE_BYTES) return __real_taciti_calloc(count, size);
    (void)taciti_fail(TACIT_E_MEMORY, "no memory for a link");
    return NULL;
}

static void a_rank_without_memory_ends_at_once(void **state) {
    (void)state;
    world w;
    const int64_t begin_ns = taciti_now_ns();
    prepare_world(&w, 2, TEST_OVER_TCP, false);
    g_refuses_links = true;
    for (int i = 0; i < 2; i++) start_seat(&w.seats[i]);
    for (int i = 0; i < 2; i++) (void)pthread_join(w.seats[i].thread, NULL);
    g_refuses_links = false;
    for (int i = 0; i < 2; i++) assert_int_equal(w.seats[i].status, TACIT_E_MEMORY);
    for (int i = 0; i < 2; i++) assert_string_equal(w.seats[i].why, "no memory for a link");
    assert_true(taciti_now_ns() - begin_ns < 20 * TACITI_NS_PER_S); /* comm.start is 30 s here */
    remove_world(&w);
}

/* Ranks that believe in another number of ranks do not meet, and each of them says why. */
static void different_ideas_of_a_run_do_not_meet(void **state) {
    (void)state;
    world w;
    prepare_world(&w, 2, TEST_OVER_TCP, false);
    w.seats[0].request.start_s = w.seats[1].request.start_s = 0.5;
    w.seats[1].request.size = 3;
    for (int i = 0; i < 2; i++) start_seat(&w.seats[i]);
    for (int i = 0; i < 2; i++) (void)pthread_join(w.seats[i].thread, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(w.seats[i].status, TACIT_E_PEER);
    assert_int_equal(test_log_count("is of a run with another number of ranks"), 2);
    remove_world(&w);
}

/* The higher ranks come first and find the records of the run before. */
static void records_of_an_earlier_run_do_no_harm(void **state) {
    (void)state;
    world w;
    prepare_world(&w, 4, TEST_OVER_TCP, false);
    w.play = exchange_one_word;
    for (int run = 0; run < 3; run++) {
        for (int i = 3; i >= 0; i--) {
            start_seat(&w.seats[i]);
            if (run > 0) taciti_sleep_ns(100 * TACITI_NS_PER_MS);
        }
        for (int i = 0; i < 4; i++) (void)pthread_join(w.seats[i].thread, NULL);
        for (int i = 0; i < 4; i++) assert_int_equal(w.seats[i].status, TACIT_OK);
    }
    remove_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_arrive_whole_and_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(some_ranks_may_share_no_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_memory_there_are_sockets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wait_sleeps_until_something_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(there_are_no_other_peers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missing_ranks_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(impossible_requests_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_without_memory_ends_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(different_ideas_of_a_run_do_not_meet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(records_of_an_earlier_run_do_no_harm, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

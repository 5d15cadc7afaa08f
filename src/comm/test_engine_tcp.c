/* SPDX-License-Identifier: Apache-2.0
 *
 * The TCP engine between the threads of this process: the contract of the engine's table over both stores, how ranks
 * meet, and who is kept out. test_tcp_faults.c has what needs processes.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/engine_tcp.h"
#include "comm/tcp_address.h"
#include "comm/tcp_memory.h"
#include "comm/test_engine.h"

enum { RANKS_MAX = 8, TAGS = 3, NAP_NS = 10000000 };

typedef struct world world;

typedef struct seat {
    world *world;
    int rank;
    pthread_t thread;
    taciti_tcp_request request;
    tacit_status status; /* of the open */
    char why[256];       /* the text of its error */
    taciti_engine engine;
} seat;

struct world {
    int size, streams; /* streams 0: shared memory; -1: Unix-domain sockets */
    uint64_t seed;
    size_t max_bytes;
    char folder[32], port[32];
    void (*play)(seat *s);
    pthread_barrier_t end;
    seat seats[RANKS_MAX];
};

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

/* ---- worlds ------------------------------------------------------------------------------------------------------ */
static void find_port(char out[32]) {
    const taciti_tcp_address loopback = {4, {127, 0, 0, 1}};
    taciti_socket_name name = taciti_socket_name_of(&loopback, 0);
    const int fd = taciti_socket_listen(&name, false);
    CHECK(fd >= 0 && getsockname(fd, (struct sockaddr *)&name.storage, &name.bytes) == 0);
    (void)snprintf(out, 32, "127.0.0.1:%u", (unsigned)taciti_socket_name_port(&name));
    (void)close(fd);
}

static void prepare_world(world *w, int size, int streams, bool port) {
    *w = (world){.size = size, .streams = streams};
    (void)snprintf(w->folder, sizeof w->folder, "/tmp/tacit-test-XXXXXX");
    CHECK(mkdtemp(w->folder) != NULL);
    if (port) find_port(w->port);
    for (int i = 0; i < size; i++) {
        w->seats[i] = (seat){.world = w, .rank = i};
        w->seats[i].request = (taciti_tcp_request){.rank = i,
                                                   .size = size,
                                                   .streams = streams > 0 ? streams : 0,
                                                   .interface = "127.0.0.1",
                                                   .start_s = 30,
                                                   .key = test_seal_key(),
                                                   .only_tcp = streams > 0,
                                                   .no_memory = streams < 0};
    }
}

static void open_store(seat *s) {
    const world *w = s->world;
    if (w->port[0] != 0)
        CHECK(taciti_bootstrap_port_open(w->port, NULL, s->rank, w->size, s->request.start_s, s->request.key,
                                         &s->request.bootstrap) == TACIT_OK);
    else
        CHECK(taciti_bootstrap_folder_open(w->folder, &s->request.bootstrap) == TACIT_OK);
}

static void close_store(seat *s) {
    if (s->world->port[0] != 0)
        taciti_bootstrap_port_close(&s->request.bootstrap);
    else
        taciti_bootstrap_folder_close(&s->request.bootstrap);
}

static void *run_seat(void *argument) {
    seat *s = argument;
    open_store(s);
    s->status = taciti_engine_tcp_open(&s->request, &s->engine);
    (void)snprintf(s->why, sizeof s->why, "%.255s", taciti_error_text());
    close_store(s);
    if (s->status != TACIT_OK || s->world->play == NULL) return NULL;
    CHECK(strcmp(s->engine.name, "tcp") == 0 && s->engine.rank == s->rank && s->engine.size == s->world->size);
    s->world->play(s);
    s->engine.close(s->engine.self);
    return NULL;
}

static void start_seat(seat *s) { CHECK(pthread_create(&s->thread, NULL, run_seat, s) == 0); }

static void remove_world(const world *w) {
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", w->folder);
    CHECK(system(command) == 0);
}

static void run_world(world *w, void (*play)(seat *s)) {
    w->play = play;
    for (int i = 0; i < w->size; i++) start_seat(&w->seats[i]);
    for (int i = 0; i < w->size; i++) (void)pthread_join(w->seats[i].thread, NULL);
    for (int i = 0; i < w->size; i++) CHECK(w->seats[i].status == TACIT_OK);
    remove_world(w);
}

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
    static const int STREAMS[] = {0, 1, 3, 8, -1};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 5; k++) {
            world w;
            prepare_world(&w, SIZES[i], STREAMS[k], (i + k) % 2 == 0);
            w.seed = 10 * i + k;
            w.max_bytes = SIZES[i] <= 3 ? 8 << 20 : 1 << 20;
            run_world(&w, exchange_letters);
        }
}

/* Rank 1 has no memory for others, and one connection of several carries what memory does not. */
static void some_ranks_may_share_no_memory(void **state) {
    (void)state;
    for (int streams = 0; streams < 3; streams += 2) {
        world w;
        prepare_world(&w, 4, 0, false);
        for (int i = 0; i < 4; i++) w.seats[i].request.streams = streams;
        w.seats[1].request.no_memory = true;
        w.seed = 77, w.max_bytes = 1 << 20;
        run_world(&w, exchange_letters);
        assert_int_equal(test_log_count(""), 0);
    }
}

/* The system refuses it to all ranks, and one of them says so. */
static void without_memory_there_are_sockets(void **state) {
    (void)state;
    struct rlimit old;
    world w;
    prepare_world(&w, 3, 0, false);
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
static void finish_request(seat *s, taciti_engine_request *request) {
    for (bool done = false; !done;) {
        CHECK(s->engine.test(s->engine.self, request, &done) == TACIT_OK);
        if (!done) CHECK(s->engine.wait(s->engine.self, 60 * TACITI_NS_PER_S) == TACIT_OK);
    }
}

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
    for (int streams = -1; streams < 3; streams++) {
        world w;
        prepare_world(&w, 2, streams, false);
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
    prepare_world(&w, 2, 1, false);
    run_world(&w, refuse_strange_peers);
}

/* ---- meeting ----------------------------------------------------------------------------------------------------- */
static void missing_ranks_are_named(void **state) {
    (void)state;
    for (int port = 0; port < 2; port++)
        for (int missing = 0; missing < 3; missing++) {
            world w;
            char needle[64];
            prepare_world(&w, 3, 1, port == 1);
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
    static const int BAD[][3] = {{0, 0, 1}, {-1, 2, 1}, {2, 2, 1}, {0, 2, -1}, {0, 2, 9}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        taciti_engine engine;
        const taciti_tcp_request request = {.rank = BAD[i][0], .size = BAD[i][1], .streams = BAD[i][2]};
        assert_int_equal(taciti_engine_tcp_open(&request, &engine), TACIT_E_CONFIG);
    }
    world w;
    prepare_world(&w, 2, 1, false);
    w.seats[0].request.interface = "no-such-interface";
    start_seat(&w.seats[0]);
    (void)pthread_join(w.seats[0].thread, NULL);
    assert_int_equal(w.seats[0].status, TACIT_E_CONFIG);
    assert_int_equal(test_log_count("no interface or address \"no-such-interface\""), 1);
    remove_world(&w);
}

/* Ranks that believe in another number of ranks, or other streams, do not meet, and each of them says why. */
static void different_ideas_of_a_run_do_not_meet(void **state) {
    (void)state;
    for (int what = 0; what < 2; what++) {
        world w;
        prepare_world(&w, 2, 1, false);
        test_log_keep();
        w.seats[0].request.start_s = w.seats[1].request.start_s = 0.5;
        if (what == 0) w.seats[1].request.size = 3;
        if (what == 1) w.seats[1].request.streams = 2;
        for (int i = 0; i < 2; i++) start_seat(&w.seats[i]);
        for (int i = 0; i < 2; i++) (void)pthread_join(w.seats[i].thread, NULL);
        for (int i = 0; i < 2; i++) assert_int_equal(w.seats[i].status, TACIT_E_PEER);
        assert_int_equal(test_log_count(what == 0 ? "is of a run with another number of ranks"
                                                  : "is of a run with other comm.streams"),
                         2);
        remove_world(&w);
    }
}

static void exchange_one_word(seat *s) {
    taciti_engine_request in, out;
    for (int peer = 0; peer < s->world->size; peer++) {
        int word = -1;
        if (peer == s->rank) continue;
        CHECK(s->engine.irecv(s->engine.self, peer, 7, &word, sizeof word, &in) == TACIT_OK);
        CHECK(s->engine.isend(s->engine.self, peer, 7, &s->rank, sizeof s->rank, &out) == TACIT_OK);
        finish_request(s, &in);
        finish_request(s, &out);
        CHECK(word == peer);
    }
}

/* The higher ranks come first and find the records of the run before. */
static void records_of_an_earlier_run_do_no_harm(void **state) {
    (void)state;
    world w;
    prepare_world(&w, 4, 2, false);
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

/* ---- strangers --------------------------------------------------------------------------------------------------- */
static taciti_tcp_record read_record_of(const seat *s) {
    uint8_t bytes[TACITI_RECORD_BYTES];
    size_t n = 0;
    taciti_tcp_record record = {0};
    taciti_bootstrap store;
    assert_int_equal(taciti_bootstrap_folder_open(s->world->folder, &store), TACIT_OK);
    assert_int_equal(store.get(store.self, "tacit-0-0", bytes, sizeof bytes, &n, 20), TACIT_OK);
    assert_null(taciti_tcp_record_read(bytes, n, s->request.key, &record));
    taciti_bootstrap_folder_close(&store);
    return record;
}

static int knock_at(const taciti_tcp_record *record, bool local, const void *bytes, size_t n) {
    const taciti_socket_name name =
        local ? taciti_socket_name_local(record->local) : taciti_socket_name_of(&record->address[0], record->port);
    const int fd = taciti_socket_connect(&name);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    assert_true(fd >= 0 && poll(&p, 1, 5000) == 1 && taciti_socket_connect_error(fd) == 0);
    if (n > 0) assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
    return fd;
}

static void expect_closed_door(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char answer;
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_true(recv(fd, &answer, 1, 0) <= 0); /* not a byte of an answer */
    (void)close(fd);
}

static int knock_with(const taciti_tcp_record *record, const taciti_seal_key *key, taciti_hello *hello) {
    uint8_t bytes[TACITI_HELLO_BYTES];
    if (key != NULL) hello->cipher = key->best;
    taciti_hello_write(hello, key, NULL, bytes);
    return knock_at(record, false, bytes, sizeof bytes);
}

/* While rank 0 waits for rank 1. */
static void strangers_are_kept_out(void **state) {
    (void)state;
    world w;
    prepare_world(&w, 2, 1, false);
    w.play = exchange_one_word;
    start_seat(&w.seats[0]);
    const taciti_tcp_record record = read_record_of(&w.seats[0]);
    static const uint8_t TLS[100] = {22, 3, 1, 0, 95, 1};
    uint8_t noise[4096];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)taciti_rng_u32(5, (uint32_t)i);
    for (int local = 0; local < 2; local++) {
        expect_closed_door(knock_at(&record, local == 1, "GET / HTTP/1.1\r\n\r\n", 18));
        expect_closed_door(knock_at(&record, local == 1, TLS, sizeof TLS));
        expect_closed_door(knock_at(&record, local == 1, noise, sizeof noise));
    }
    taciti_hello hello = {.from = 1, .to = 0, .size = 2, .streams = 1};
    const taciti_seal_key *key = test_seal_key();
    expect_closed_door(knock_with(&record, key, &hello)); /* no cookie */
    memcpy(hello.cookie, record.cookie, sizeof hello.cookie);
    hello.epoch = 1;
    expect_closed_door(knock_with(&record, key, &hello));
    hello.epoch = 0, hello.from = 0;
    expect_closed_door(knock_with(&record, key, &hello));
    assert_int_equal(test_log_count("it does not speak this protocol"),
                     1); /* 6 of them: a flood does not fill the log */
    assert_int_equal(test_log_count("it belongs to another run"), 1);
    assert_int_equal(test_log_count("it belongs to another epoch"), 1);
    assert_int_equal(test_log_count("rank 0 refuses a connection from "), 4);
    assert_int_equal(test_log_count(""), 4);
    start_seat(&w.seats[1]);
    for (int i = 0; i < 2; i++) (void)pthread_join(w.seats[i].thread, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(w.seats[i].status, TACIT_OK);
    remove_world(&w);
}

/* More of them than rank 0 looks at; they say nothing, or not enough, and after 5 s they must go. */
static void silent_strangers_do_not_block_the_door(void **state) {
    (void)state;
    enum { COUNT = 100 };
    world w;
    int fds[COUNT];
    prepare_world(&w, 2, 1, false);
    w.play = exchange_one_word;
    start_seat(&w.seats[0]);
    const taciti_tcp_record record = read_record_of(&w.seats[0]);
    for (int i = 0; i < COUNT; i++) fds[i] = knock_at(&record, false, "\xb5tacith\2", i % 2 == 0 ? 0 : 8);
    start_seat(&w.seats[1]);
    for (int i = 0; i < 2; i++) (void)pthread_join(w.seats[i].thread, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(w.seats[i].status, TACIT_OK);
    for (int i = 0; i < COUNT; i++) (void)close(fds[i]);
    remove_world(&w);
}

/* A hello that was seen on the wire is of no use while its rank is there, and nobody listens any more later. */
static void repeated_hellos_are_refused(void **state) {
    (void)state;
    world w;
    prepare_world(&w, 3, 1, false);
    w.play = exchange_one_word;
    start_seat(&w.seats[0]);
    const taciti_tcp_record record = read_record_of(&w.seats[0]);
    start_seat(&w.seats[1]);
    taciti_sleep_ns(500 * TACITI_NS_PER_MS); /* rank 1 is connected, rank 2 is not */
    taciti_hello hello = {.from = 1, .to = 0, .size = 3, .streams = 1};
    memcpy(hello.cookie, record.cookie, sizeof hello.cookie);
    expect_closed_door(knock_with(&record, test_seal_key(), &hello));
    assert_int_equal(test_log_count("it is connected already"), 1);
    start_seat(&w.seats[2]);
    for (int i = 0; i < 3; i++) (void)pthread_join(w.seats[i].thread, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(w.seats[i].status, TACIT_OK);
    const taciti_socket_name name = taciti_socket_name_of(&record.address[0], record.port);
    const int fd = taciti_socket_connect(&name);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    assert_true(fd < 0 || (poll(&p, 1, 5000) == 1 && taciti_socket_connect_error(fd) != 0));
    if (fd >= 0) (void)close(fd);
    remove_world(&w);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */
static void exchange_sealed_word(seat *s) {
    CHECK((strstr(s->engine.library, "sealed") != NULL) == (s->request.key != NULL));
    exchange_one_word(s);
}

/* A rank whose CPU has no AES meets others. */
static void ranks_agree_on_a_cipher(void **state) {
    (void)state;
    for (int lacks = 0; lacks < 3; lacks++) {
        taciti_seal_key keys[3];
        world w;
        for (int i = 0; i < 3; i++) keys[i] = test_seal_key_of('k');
        prepare_world(&w, 3, 2, lacks == 1);
        keys[lacks].best = TACITI_CIPHER_XCHACHA20;
        for (int i = 0; i < 3; i++) w.seats[i].request.key = &keys[i];
        run_world(&w, exchange_sealed_word);
    }
}

/* Rank 1 has another key than rank 0, or one of both has none. The error of each says why they do not meet. */
static void meet_in_vain(bool port, const taciti_seal_key *first, const taciti_seal_key *second, const char *of_first,
                         const char *of_second) {
    world w;
    prepare_world(&w, 2, 1, port);
    test_log_keep();
    w.seats[0].request.key = first, w.seats[1].request.key = second;
    w.seats[0].request.start_s = w.seats[1].request.start_s = 0.5;
    for (int i = 0; i < 2; i++) start_seat(&w.seats[i]);
    for (int i = 0; i < 2; i++) (void)pthread_join(w.seats[i].thread, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(w.seats[i].status, TACIT_E_PEER);
    assert_non_null(strstr(w.seats[0].why, of_first));
    assert_non_null(strstr(w.seats[0].why, "rank 1"));
    assert_non_null(strstr(w.seats[1].why, of_second));
    assert_int_equal(test_log_count(""), port ? 3 : 2);
    remove_world(&w);
}

static void only_holders_of_the_key_meet(void **state) {
    (void)state;
    const taciti_seal_key mine = test_seal_key_of('k'), other = test_seal_key_of('o');
    static const char OTHER[] = "is of a rank with another comm.key_file", NO_KEY[] = "without a comm.key_file",
                      KEY[] = "is of a rank with a comm.key_file, and this rank has none",
                      UNPROVEN[] = "does not prove this rank's comm.key_file";
    meet_in_vain(false, &mine, &other, OTHER, OTHER);
    meet_in_vain(false, &mine, NULL, NO_KEY, KEY);
    meet_in_vain(false, NULL, &mine, KEY, NO_KEY);
    meet_in_vain(true, &mine, &other, "it has another comm.key_file", UNPROVEN);
    meet_in_vain(true, &mine, NULL, "it has no comm.key_file", "gives no answer (has it a comm.key_file?)");
    meet_in_vain(true, NULL, &mine, "it has a comm.key_file, and this rank has none", UNPROVEN);
}

/* Reads what rank 0 answers to a hello. */
static void expect_answer(int fd, uint8_t bytes[TACITI_HELLO_BYTES]) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (size_t n = 0; n < TACITI_HELLO_BYTES;) {
        assert_int_equal(poll(&p, 1, 20000), 1);
        const ssize_t got = recv(fd, bytes + n, TACITI_HELLO_BYTES - n, 0);
        assert_true(got > 0);
        n += (size_t)got;
    }
}

/* The recorded hello of rank 1 is answered, for it is right, but cannot take its place: neither with what rank 1 said
 * next at that time, nor with silence. Another's hellos are not answered. */
static void recorded_hellos_take_no_place(void **state) {
    (void)state;
    const taciti_seal_key mine = test_seal_key_of('k'), other = test_seal_key_of('o');
    uint8_t answer[TACITI_HELLO_BYTES];
    world w;
    prepare_world(&w, 2, 1, false);
    w.play = exchange_sealed_word;
    for (int i = 0; i < 2; i++) w.seats[i].request.key = &mine;
    start_seat(&w.seats[0]);
    const taciti_tcp_record record = read_record_of(&w.seats[0]);
    taciti_hello hello = {.from = 1, .to = 0, .size = 2, .streams = 1};
    memcpy(hello.cookie, record.cookie, sizeof hello.cookie);
    expect_closed_door(knock_with(&record, &other, &hello));
    taciti_hello open = {.from = 1, .to = 0, .size = 2, .streams = 1};
    memcpy(open.cookie, record.cookie, sizeof open.cookie);
    expect_closed_door(knock_with(&record, NULL, &open));
    const int silent = knock_with(&record, &mine, &hello), repeats = knock_with(&record, &mine, &hello);
    expect_answer(silent, answer);
    expect_answer(repeats, answer);
    assert_int_equal(send(repeats, answer, TACITI_SEAL_PROOF_BYTES, MSG_NOSIGNAL), TACITI_SEAL_PROOF_BYTES);
    expect_closed_door(repeats);
    assert_int_equal(test_log_count("it has another comm.key_file"), 1);
    assert_int_equal(test_log_count("it has no comm.key_file"), 1);
    assert_int_equal(test_log_count("it repeats what another has said"), 1);
    start_seat(&w.seats[1]);
    for (int i = 0; i < 2; i++) (void)pthread_join(w.seats[i].thread, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(w.seats[i].status, TACIT_OK);
    assert_int_equal(test_log_count(""), 3);
    (void)close(silent);
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
        cmocka_unit_test_setup_teardown(different_ideas_of_a_run_do_not_meet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(records_of_an_earlier_run_do_no_harm, set_up, tear_down),
        cmocka_unit_test_setup_teardown(strangers_are_kept_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silent_strangers_do_not_block_the_door, set_up, tear_down),
        cmocka_unit_test_setup_teardown(repeated_hellos_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_agree_on_a_cipher, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_holders_of_the_key_meet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(recorded_hellos_take_no_place, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The two bootstrap stores: what every store must do, and what strangers may do to a port.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/bootstrap.h"
#include "comm/tcp_address.h"
#include "comm/test_engine.h"

enum { READERS = 6, STRANGERS = 21 /* more than the server has connections for 2 ranks */ };

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

/* ---- every store ------------------------------------------------------------------------------------------------- */
typedef struct reader {
    pthread_t thread;
    taciti_bootstrap store;
    int number;
} reader;

static void *read_late_value(void *argument) {
    reader *r = argument;
    char text[16] = "", key[16];
    size_t n = 0;
    (void)snprintf(key, sizeof key, "reader-%d", r->number);
    CHECK(r->store.set(r->store.self, key, key, strlen(key)) == TACIT_OK);
    CHECK(r->store.get(r->store.self, "late", text, sizeof text, &n, 20) == TACIT_OK);
    CHECK(n == 5 && memcmp(text, "value", 5) == 0);
    return NULL;
}

static void exchange_values(reader *readers) {
    const taciti_bootstrap mine = readers[0].store;
    size_t n = 99;
    char text[TACITI_BOOTSTRAP_VALUE_BYTES] = "", key[16];
    for (int i = 1; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_late_value, &readers[i]), 0);
    for (int i = 1; i < READERS; i++) {
        (void)snprintf(key, sizeof key, "reader-%d", i);
        assert_int_equal(mine.get(mine.self, key, text, sizeof text, &n, 20), TACIT_OK);
        assert_int_equal(n, strlen(key));
        assert_memory_equal(text, key, n);
    }
    taciti_sleep_ns(20 * TACITI_NS_PER_MS);
    assert_int_equal(mine.set(mine.self, "late", "value", 5), TACIT_OK);
    for (int i = 1; i < READERS; i++) (void)pthread_join(readers[i].thread, NULL);
}

static void keep_contract(const taciti_bootstrap *store) {
    static char large[TACITI_BOOTSTRAP_VALUE_BYTES], text[TACITI_BOOTSTRAP_VALUE_BYTES];
    size_t n = 99;
    test_log_keep();
    const int64_t begin_ns = taciti_now_ns();
    assert_int_equal(store->get(store->self, "missing", text, sizeof text, &n, 0), TACIT_E_PEER);
    assert_int_equal(store->get(store->self, "missing", text, sizeof text, &n, 0.1), TACIT_E_PEER);
    assert_true(taciti_now_ns() - begin_ns >= 100 * TACITI_NS_PER_MS);
    assert_int_equal(n, 99);
    assert_int_equal(test_log_count(""), 0);
    memset(large, 'x', sizeof large);
    assert_int_equal(store->set(store->self, "large", large, sizeof large), TACIT_OK);
    assert_int_equal(store->get(store->self, "large", text, sizeof text, &n, 0), TACIT_OK);
    assert_int_equal(n, sizeof large);
    assert_memory_equal(text, large, n);
    assert_int_equal(store->get(store->self, "large", text, 10, &n, 0), TACIT_E_DATA);
    assert_int_equal(store->set(store->self, "large", "", 0), TACIT_OK); /* replaces */
    assert_int_equal(store->get(store->self, "large", text, 10, &n, 0), TACIT_OK);
    assert_int_equal(n, 0);
}

static void a_folder_is_a_store(void **state) {
    (void)state;
    char folder[] = "/tmp/tacit-test-XXXXXX", below[64];
    reader readers[READERS];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(below, sizeof below, "%s/meet", folder);
    for (int i = 0; i < READERS; i++) {
        readers[i].number = i;
        assert_int_equal(taciti_bootstrap_folder_open(below, &readers[i].store), TACIT_OK);
    }
    keep_contract(&readers[0].store);
    exchange_values(readers);
    for (int i = 0; i < READERS; i++) taciti_bootstrap_folder_close(&readers[i].store);
    taciti_bootstrap store;
    assert_int_equal(taciti_bootstrap_folder_open("/proc/no/such/folder", &store), TACIT_E_IO);
    (void)snprintf(below, sizeof below, "rm -rf %s", folder);
    assert_int_equal(system(below), 0);
}

/* A folder that was there, empty as it may be, is the caller's. */
static void a_store_removes_the_folder_that_it_made(void **state) {
    (void)state;
    char folder[] = "/tmp/tacit-test-XXXXXX", below[64];
    taciti_bootstrap first, second;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(below, sizeof below, "%s/meet", folder);
    for (int made = 0; made < 2; made++) {
        if (made == 0) assert_int_equal(mkdir(below, 0700), 0);
        assert_int_equal(taciti_bootstrap_folder_open(below, &first), TACIT_OK);
        assert_int_equal(taciti_bootstrap_folder_open(below, &second), TACIT_OK);
        assert_int_equal(second.set(second.self, "k", "v", 1), TACIT_OK);
        taciti_bootstrap_folder_close(&first);
        assert_int_equal(access(below, F_OK), 0);
        second.forget(second.self, "k");
        taciti_bootstrap_folder_close(&second);
        assert_int_equal(access(below, F_OK) == 0, made == 0);
        if (made == 0) assert_int_equal(rmdir(below), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* ---- the port ---------------------------------------------------------------------------------------------------- */
/* A port that was free a moment ago. */
static void find_port(char out[32]) {
    const taciti_tcp_address loopback = {4, {127, 0, 0, 1}};
    taciti_socket_name name = taciti_socket_name_of(&loopback, 0);
    const int fd = taciti_socket_listen(&name, false);
    assert_true(fd >= 0);
    assert_int_equal(getsockname(fd, &name.address, &name.bytes), 0);
    (void)snprintf(out, 32, "127.0.0.1:%u", (unsigned)taciti_socket_name_port(&name));
    (void)close(fd);
}

static void rank_0_serves_a_store(void **state) {
    (void)state;
    char address[32], local[64];
    reader readers[READERS];
    find_port(address);
    for (int i = 0; i < READERS; i++) {
        readers[i].number = i;
        assert_int_equal(taciti_bootstrap_port_open(address, NULL, i, READERS, 20, test_seal_key(), &readers[i].store),
                         TACIT_OK);
    }
    keep_contract(&readers[0].store);
    keep_contract(&readers[1].store);
    exchange_values(readers);
    for (int i = 0; i < READERS; i++) {
        taciti_bootstrap_port_local_address(&readers[i].store, local, sizeof local);
        assert_string_equal(local, "127.0.0.1");
    }
    for (int i = READERS - 1; i >= 0; i--) taciti_bootstrap_port_close(&readers[i].store);
}

static int connect_to(const char *address) {
    taciti_socket_name name;
    assert_int_equal(taciti_socket_name_resolve(address, NULL, &name), TACIT_OK);
    const int fd = taciti_socket_connect(&name);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    assert_true(fd >= 0 && poll(&p, 1, 5000) == 1);
    return fd;
}

enum {
    BYTES_AT = 4 + TACITI_BOOTSTRAP_KEY_BYTES,
    WORD_BYTES = BYTES_AT + 2 + TACITI_BOOTSTRAP_VALUE_BYTES,
    SIGNED_BYTES = WORD_BYTES + TACITI_SEAL_PROOF_BYTES
};

/* A question or an answer without its proof. */
typedef struct word {
    uint8_t bytes[WORD_BYTES];
} word;

/* The value is of `n` zeros. A key of more than 63 bytes has no end. */
static word make_word(char op, const char *key, size_t n) {
    word w = {.bytes = {0xb5, 't', 'B', (uint8_t)op, [BYTES_AT] = (uint8_t)n, (uint8_t)(n >> 8)}};
    memcpy(w.bytes + 4, key, strnlen(key, TACITI_BOOTSTRAP_KEY_BYTES));
    return w;
}

/* Sends the bytes and, with a key, the proof of them. */
static void say(int fd, const void *bytes, size_t n, uint8_t proof[TACITI_SEAL_PROOF_BYTES]) {
    uint8_t all[SIGNED_BYTES];
    memcpy(all, bytes, n);
    if (test_seal_key() != NULL) {
        taciti_seal_prove(test_seal_key(), TACITI_SEAL_STORE, proof, all, n, proof);
        memcpy(all + n, proof, TACITI_SEAL_PROOF_BYTES);
        n += TACITI_SEAL_PROOF_BYTES;
    }
    assert_int_equal(send(fd, all, n, MSG_NOSIGNAL), n);
}

static size_t hear(int fd, void *out, size_t max) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    const ssize_t got = recv(fd, out, max, 0);
    return got > 0 ? (size_t)got : 0;
}

/* Connects and, with a key, begins the conversation. */
static int begin_talk(const char *address, uint8_t proof[TACITI_SEAL_PROOF_BYTES]) {
    const word greeting = make_word('H', "", TACITI_SEAL_RANDOM_BYTES);
    uint8_t answer[SIGNED_BYTES];
    const int fd = connect_to(address);
    memset(proof, 0, TACITI_SEAL_PROOF_BYTES);
    if (test_seal_key() == NULL) return fd;
    say(fd, greeting.bytes, WORD_BYTES, proof);
    assert_int_equal(hear(fd, answer, sizeof answer), sizeof answer);
    memcpy(proof, answer + WORD_BYTES, TACITI_SEAL_PROOF_BYTES);
    return fd;
}

static void expect_silence(int fd) {
    char answer[16];
    assert_int_equal(hear(fd, answer, sizeof answer), 0);
    (void)close(fd);
}

/* Says the bytes; the server must close the connection without an answer. */
static void expect_refusal(const char *address, const void *bytes, size_t n) {
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
    const int fd = begin_talk(address, proof);
    say(fd, bytes, n, proof);
    expect_silence(fd);
}

static void expect_refused_word(const char *address, char op, const char *key, size_t n) {
    const word w = make_word(op, key, n);
    expect_refusal(address, w.bytes, sizeof w.bytes);
}

static void strangers_at_the_port_do_no_harm(void **state) {
    (void)state;
    char address[32], text[16], longer[TACITI_BOOTSTRAP_KEY_BYTES + 1] = "";
    uint8_t answer[SIGNED_BYTES];
    taciti_bootstrap server, client;
    size_t n = 0;
    find_port(address);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 0, 2, 20, test_seal_key(), &server), TACIT_OK);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 1, 2, 20, test_seal_key(), &client), TACIT_OK);
    expect_refusal(address, "GET / HTTP/1.1\r\n\r\n", 18);
    memset(longer, 'k', TACITI_BOOTSTRAP_KEY_BYTES);
    expect_refused_word(address, 'X', "k", 0);
    expect_refused_word(address, 'G', longer, 0);
    expect_refused_word(address, 'S', "k", TACITI_BOOTSTRAP_VALUE_BYTES + 1);
    expect_refused_word(address, 'V', "k", 0); /* an answer */
    expect_refused_word(address, 'G', "k", 1); /* a get with a value */
    for (char i = 0; i < 8; i++) {             /* 4 values per rank, no more */
        const word set = make_word('S', (char[]){(char)('a' + i), 0}, 0);
        uint8_t proof[TACITI_SEAL_PROOF_BYTES];
        const int fd = begin_talk(address, proof);
        say(fd, set.bytes, sizeof set.bytes, proof);
        assert_true(hear(fd, answer, sizeof answer) > 0);
        (void)close(fd);
    }
    expect_refused_word(address, 'S', "z", 0);
    assert_int_equal(client.set(client.self, "a", "x", 1), TACIT_OK); /* known already */
    assert_int_equal(client.get(client.self, "a", text, sizeof text, &n, 5), TACIT_OK);
    taciti_bootstrap_port_close(&client);
    taciti_bootstrap_port_close(&server);
}

/* They take all connections; a rank gets one when the first of them have been silent for 5 s. The connection of a rank
 * that was as silent is closed as well, and its next question is answered all the same, though it asks once. */
static void silent_strangers_are_sent_away(void **state) {
    (void)state;
    char address[32], text[16];
    int fds[STRANGERS];
    taciti_bootstrap server, client, idle;
    size_t n = 0;
    find_port(address);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 0, 2, 60, test_seal_key(), &server), TACIT_OK);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 1, 2, 60, test_seal_key(), &client), TACIT_OK);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 1, 2, 60, test_seal_key(), &idle), TACIT_OK);
    assert_int_equal(server.set(server.self, "k", "value", 5), TACIT_OK);
    assert_int_equal(idle.get(idle.self, "k", text, sizeof text, &n, 60), TACIT_OK);
    for (int i = 0; i < STRANGERS; i++) fds[i] = connect_to(address);
    assert_int_equal(client.get(client.self, "k", text, sizeof text, &n, 60), TACIT_OK);
    for (int i = 0; i < STRANGERS; i++) (void)close(fds[i]);
    assert_int_equal(idle.get(idle.self, "k", text, sizeof text, &n, 0), TACIT_OK);
    taciti_bootstrap_port_close(&idle);
    taciti_bootstrap_port_close(&client);
    taciti_bootstrap_port_close(&server);
}

/* One that sends a byte now and then is no better. */
static void slow_strangers_are_sent_away(void **state) {
    (void)state;
    char address[32], answer;
    taciti_bootstrap server;
    find_port(address);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 0, 2, 60, test_seal_key(), &server), TACIT_OK);
    const int fd = connect_to(address);
    const word w = make_word(test_seal_key() == NULL ? 'S' : 'H', "k", 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const int64_t begin_ns = taciti_now_ns();
    for (size_t i = 0; i < WORD_BYTES && poll(&p, 1, 500) == 0; i++) (void)send(fd, &w.bytes[i], 1, MSG_NOSIGNAL);
    assert_true(recv(fd, &answer, 1, 0) <= 0);
    assert_true(taciti_now_ns() - begin_ns < 20 * TACITI_NS_PER_S);
    (void)close(fd);
    taciti_bootstrap_port_close(&server);
}

/* ---- keys at the port -------------------------------------------------------------------------------------------- */
/* Nobody else can use the words of a rank, not even in their order. */
static void recorded_words_are_refused(void **state) {
    (void)state;
    char address[32], text[16] = "";
    const word greeting = make_word('H', "", TACITI_SEAL_RANDOM_BYTES), set = make_word('S', "k", 0);
    uint8_t proof[TACITI_SEAL_PROOF_BYTES], answer[SIGNED_BYTES], said[SIGNED_BYTES];
    taciti_bootstrap server;
    size_t n = 0;
    if (test_seal_key() == NULL) skip();
    find_port(address);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 0, 2, 20, test_seal_key(), &server), TACIT_OK);
    assert_int_equal(server.set(server.self, "k", "value", 5), TACIT_OK);
    for (int again = 0; again < 2; again++) { /* first by hand, then what was recorded, which overwrites nothing */
        const int fd = connect_to(address);
        memset(proof, 0, sizeof proof);
        say(fd, greeting.bytes, WORD_BYTES, proof);
        assert_int_equal(hear(fd, answer, sizeof answer), sizeof answer);
        if (again == 0) {
            memcpy(said, set.bytes, WORD_BYTES);
            taciti_seal_prove(test_seal_key(), TACITI_SEAL_STORE, answer + WORD_BYTES, said, WORD_BYTES,
                              said + WORD_BYTES);
        }
        assert_int_equal(send(fd, said, sizeof said, MSG_NOSIGNAL), sizeof said);
        if (again == 0) assert_true(hear(fd, answer, sizeof answer) > 0), (void)close(fd);
        if (again == 0) assert_int_equal(server.set(server.self, "k", "value", 5), TACIT_OK);
        if (again == 1) expect_silence(fd);
    }
    assert_int_equal(server.get(server.self, "k", text, sizeof text, &n, 0), TACIT_OK);
    assert_int_equal(n, 5);
    assert_int_equal(test_log_count("the meeting place refuses a connection from 127.0.0.1:"), 1);
    taciti_bootstrap_port_close(&server);
}

/* The server has a key or none, the client another or none: both say so. */
static void talk_in_vain(const taciti_seal_key *first, const taciti_seal_key *second, const char *of_server,
                         const char *of_client) {
    char address[32];
    taciti_bootstrap server, client;
    test_log_keep();
    find_port(address);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 0, 2, 20, first, &server), TACIT_OK);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 1, 2, 0.3, second, &client), TACIT_OK);
    assert_int_equal(client.set(client.self, "k", "v", 1), TACIT_E_PEER);
    assert_int_equal(test_log_count(of_server), 1);
    assert_int_equal(test_log_count(of_client), 1);
    assert_int_equal(test_log_count(""), 2); /* though it tried several times */
    taciti_bootstrap_port_close(&client);
    taciti_bootstrap_port_close(&server);
}

static void only_holders_of_the_key_are_answered(void **state) {
    (void)state;
    const taciti_seal_key mine = test_seal_key_of('k'), other = test_seal_key_of('o');
    talk_in_vain(&mine, &other, "it has another comm.key_file", "does not prove this rank's comm.key_file for 0.3 s");
    talk_in_vain(&mine, NULL, "it has no comm.key_file", "gives no answer (has it a comm.key_file?) for 0.3 s");
    talk_in_vain(NULL, &mine, "it has a comm.key_file, and this rank has none",
                 "does not prove this rank's comm.key_file");
}

static void impossible_addresses_are_refused(void **state) {
    (void)state;
    static const char *const BAD[] = {"",
                                      "host",
                                      ":1",
                                      "127.0.0.1:",
                                      "127.0.0.1:x",
                                      "no such host:1",
                                      "127.0.0.1:0",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:99999",
                                      "127.0.0.1:-1"};
    taciti_bootstrap store;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        assert_int_equal(taciti_bootstrap_port_open(BAD[i], NULL, 0, 2, 1, test_seal_key(), &store), TACIT_E_CONFIG);
}

static void errors_name_who_has_given_the_address(void **state) {
    (void)state;
    char address[32];
    taciti_bootstrap first, second;
    find_port(address);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 0, 2, 1, test_seal_key(), &first), TACIT_OK);
    assert_int_equal(taciti_bootstrap_port_open(address, "MASTER_PORT", 0, 2, 1, test_seal_key(), &second),
                     TACIT_E_CONFIG);
    assert_non_null(strstr(taciti_error_text(), "(MASTER_PORT): Address already in use; start the ranks"));
    assert_non_null(strstr(taciti_error_text(), "set comm.meet to HOST:PORT of rank 0 with a free port"));
    taciti_bootstrap_port_close(&first);
    assert_int_equal(taciti_bootstrap_port_open("no such host:1", "MASTER_ADDR", 1, 2, 1, NULL, &second),
                     TACIT_E_CONFIG);
    assert_non_null(strstr(taciti_error_text(), "MASTER_ADDR: cannot find the address no such host:1"));
    assert_int_equal(taciti_bootstrap_port_open(address, "MASTER_ADDR", 1, 2, 0.2, NULL, &second), TACIT_OK);
    assert_int_equal(second.set(second.self, "k", "v", 1), TACIT_E_PEER);
    assert_non_null(strstr(taciti_error_text(), "(MASTER_ADDR) cannot be reached for 0.2 s"));
    taciti_bootstrap_port_close(&second);
}

/* Whoever meets on the loopback interface listens there alone, also before rank 0 has come up. */
static void a_rank_knows_its_address_before_rank_0_is_up(void **state) {
    (void)state;
    static const char *const CASES[][2] = {{"127.0.0.1:4711", "127.0.0.1"}, {"127.0.1.1:4711", "127.0.0.1"}};
    taciti_bootstrap store;
    char text[64];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(taciti_bootstrap_port_open(CASES[i][0], NULL, 1, 2, 1, NULL, &store), TACIT_OK);
        taciti_bootstrap_port_local_address(&store, text, sizeof text);
        assert_string_equal(text, CASES[i][1]);
        taciti_bootstrap_port_close(&store);
    }
    char address[32], other[32] = "127.0.1.1";
    find_port(address);
    (void)strcat(other, strrchr(address, ':'));
    assert_int_equal(taciti_bootstrap_port_open(other, NULL, 0, 2, 1, NULL, &store), TACIT_OK);
    taciti_bootstrap_port_local_address(&store, text, sizeof text);
    assert_string_equal(text, ""); /* no interface has it */
    taciti_bootstrap_port_close(&store);
}

static void a_missing_rank_0_is_named(void **state) {
    (void)state;
    char address[32], text[16];
    taciti_bootstrap client;
    size_t n = 0;
    find_port(address);
    assert_int_equal(taciti_bootstrap_port_open(address, NULL, 3, 4, 0.2, test_seal_key(), &client), TACIT_OK);
    assert_int_equal(client.set(client.self, "k", "v", 1), TACIT_E_PEER);
    assert_int_equal(client.get(client.self, "k", text, sizeof text, &n, 0.2), TACIT_E_PEER);
    assert_non_null(strstr(taciti_error_text(), "rank 0 at 127.0.0.1:"));
    assert_int_equal(test_log_count(""), 1);
    assert_int_equal(test_log_count("rank 3: rank 0 at 127.0.0.1:"), 1);
    taciti_bootstrap_port_close(&client);
}

/* /etc/hosts of Debian gives a host's own name the address 127.0.1.1, which other hosts do not reach. */
static void an_own_name_of_the_host_means_all_its_addresses(void **state) {
    (void)state;
    static const struct {
        const char *text, *address;
        bool shared;
    } CASES[] = {{"localhost:4711", "127.0.0.1:4711", true},
                 {"127.0.1.1:4711", "127.0.1.1:4711", true},
                 {"node1:4711", "127.0.1.1:4711", false},
                 {"node1:4711", "[::1]:4711", false},
                 {"[::1]:4711", "[::1]:4711", true},
                 {"node1:4711", "10.0.0.1:4711", true},
                 {"localhost.lab:4711", "127.0.0.1:4711", false}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        taciti_socket_name name;
        assert_int_equal(taciti_socket_name_resolve(CASES[i].address, NULL, &name), TACIT_OK);
        assert_int_equal(taciti_socket_name_is_shared(CASES[i].text, &name), CASES[i].shared);
    }
}

/* An open that fails closes what it has opened, and nothing else. */
static void without_files_there_is_no_meeting_place(void **state) {
    (void)state;
    const int low = dup(2), zero = dup2(low, 0);
    char address[32];
    struct rlimit old;
    taciti_bootstrap store;
    find_port(address);
    assert_int_equal(zero, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    const struct rlimit few = {.rlim_cur = 1, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const tacit_status status = taciti_bootstrap_port_open(address, NULL, 0, 2, 1, test_seal_key(), &store);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(status, TACIT_E_MEMORY);
    assert_true(fcntl(0, F_GETFD) >= 0);
    assert_int_equal(test_log_count("rank 0 cannot open the meeting place: Too many open files"), 1);
    (void)close(low);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_folder_is_a_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_store_removes_the_folder_that_it_made, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rank_0_serves_a_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(strangers_at_the_port_do_no_harm, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silent_strangers_are_sent_away, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slow_strangers_are_sent_away, set_up, tear_down),
        cmocka_unit_test_setup_teardown(recorded_words_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_holders_of_the_key_are_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(errors_name_who_has_given_the_address, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_knows_its_address_before_rank_0_is_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(impossible_addresses_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_own_name_of_the_host_means_all_its_addresses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_files_there_is_no_meeting_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_rank_0_is_named, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

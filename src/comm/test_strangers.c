/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is kept out of a run of the TCP engine: strangers, and ranks without its key.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <poll.h>

#include "base/rng.h"
#include "comm/test_tcp_world.h"

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
    if (key != NULL) hello->cipher = key->best;
    taciti_hello_complete(hello, key, NULL);
    return knock_at(record, false, hello, sizeof *hello);
}

/* While rank 0 waits for rank 1. */
static void strangers_are_kept_out(void **state) {
    (void)state;
    world w;
    prepare_world(&w, 2, TEST_OVER_TCP, false);
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
    taciti_hello hello = {.from = 1, .to = 0, .size = 2};
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
    prepare_world(&w, 2, TEST_OVER_TCP, false);
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
    prepare_world(&w, 3, TEST_OVER_TCP, false);
    w.play = exchange_one_word;
    start_seat(&w.seats[0]);
    const taciti_tcp_record record = read_record_of(&w.seats[0]);
    start_seat(&w.seats[1]);
    taciti_sleep_ns(500 * TACITI_NS_PER_MS); /* rank 1 is connected, rank 2 is not */
    taciti_hello hello = {.from = 1, .to = 0, .size = 3};
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

/* Rank 1 is killed when rank 0 has answered: its connection ends with a reset, and its place is free. */
static void a_rank_comes_again_after_a_reset(void **state) {
    (void)state;
    const struct linger now = {.l_onoff = 1};
    world w;
    if (test_seal_key() != NULL) skip();
    prepare_world(&w, 3, TEST_OVER_TCP, false);
    w.play = exchange_one_word;
    start_seat(&w.seats[0]);
    const taciti_tcp_record record = read_record_of(&w.seats[0]);
    taciti_hello hello = {.from = 1, .to = 0, .size = 3};
    memcpy(hello.cookie, record.cookie, sizeof hello.cookie);
    const int fd = knock_with(&record, NULL, &hello);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    (void)close(fd);
    start_seat(&w.seats[1]);
    taciti_sleep_ns(500 * TACITI_NS_PER_MS); /* rank 1 is connected, rank 2 is not */
    start_seat(&w.seats[2]);
    for (int i = 0; i < 3; i++) (void)pthread_join(w.seats[i].thread, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(w.seats[i].status, TACIT_OK);
    assert_int_equal(test_log_count(""), 0);
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
        prepare_world(&w, 3, TEST_OVER_TCP, lacks == 1);
        keys[lacks].best = TACITI_CIPHER_XCHACHA20;
        for (int i = 0; i < 3; i++) w.seats[i].request.key = &keys[i];
        run_world(&w, exchange_sealed_word);
    }
}

/* Rank 1 has another key than ranks 0 and 2, or one of both has none. The error of each says why they do not meet. */
static void meet_in_vain(bool port, const taciti_seal_key *first, const taciti_seal_key *second, const char *of_first,
                         const char *of_second) {
    world w;
    prepare_world(&w, 3, TEST_OVER_TCP, port);
    test_log_keep();
    for (int i = 0; i < 3; i++) w.seats[i].request.key = i == 1 ? second : first;
    for (int i = 0; i < 3; i++) w.seats[i].request.start_s = 0.5;
    for (int i = 0; i < 3; i++) start_seat(&w.seats[i]);
    for (int i = 0; i < 3; i++) (void)pthread_join(w.seats[i].thread, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(w.seats[i].status, TACIT_E_PEER);
    for (int i = 0; i < 3; i += 2) {
        assert_non_null(strstr(w.seats[i].why, "rank 1"));
        if (strstr(w.seats[i].why, of_first) == NULL) fail_msg("rank %d: %s", i, w.seats[i].why);
    }
    assert_non_null(strstr(w.seats[1].why, of_second));
    assert_int_equal(test_log_count(""), port ? 4 : 3);
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
    prepare_world(&w, 2, TEST_OVER_TCP, false);
    w.play = exchange_sealed_word;
    for (int i = 0; i < 2; i++) w.seats[i].request.key = &mine;
    start_seat(&w.seats[0]);
    const taciti_tcp_record record = read_record_of(&w.seats[0]);
    taciti_hello hello = {.from = 1, .to = 0, .size = 2};
    memcpy(hello.cookie, record.cookie, sizeof hello.cookie);
    expect_closed_door(knock_with(&record, &other, &hello));
    taciti_hello open = {.from = 1, .to = 0, .size = 2};
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
        cmocka_unit_test_setup_teardown(strangers_are_kept_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silent_strangers_do_not_block_the_door, set_up, tear_down),
        cmocka_unit_test_setup_teardown(repeated_hellos_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_comes_again_after_a_reset, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_agree_on_a_cipher, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_holders_of_the_key_meet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(recorded_hellos_take_no_place, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

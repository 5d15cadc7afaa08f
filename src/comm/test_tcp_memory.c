/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory between two ends on one thread: the bytes come out as they went in, the bell rings when somebody sleeps, and
 * neither a spoilt ring nor a file of somebody else's making is believed.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/tcp_memory.h"

enum { ROUNDS = 4000, PARTS = 5, KEY = 11 };

typedef struct ends {
    int fds[2];
    taciti_tcp_memory *a, *b;
} ends;

static ends open_ends(void) {
    ends e = {{-1, -1}, NULL, NULL};
    const char *why = NULL;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, e.fds), 0);
    assert_int_equal(taciti_tcp_memory_offer(e.fds[0], true, &e.a, &why), TACIT_OK);
    assert_int_equal(taciti_tcp_memory_accept(e.fds[1], true, INT64_MAX, &e.b, &why), TACIT_OK);
    assert_int_equal(taciti_tcp_memory_confirm(e.fds[0], INT64_MAX, &e.a), TACIT_OK);
    assert_true(e.a != NULL && e.b != NULL && why == NULL);
    return e;
}

static void close_ends(const ends *e) {
    taciti_tcp_memory_destroy(e->a);
    taciti_tcp_memory_destroy(e->b);
    (void)close(e->fds[0]);
    (void)close(e->fds[1]);
}

static char byte_at(uint64_t i) { return (char)(taciti_mix64(KEY + i / 8) >> (8 * (i % 8))); }

/* Cuts `n` bytes into parts, some of them empty. */
static void cut_parts(struct iovec parts[PARTS], char *bytes, size_t n, uint64_t draw) {
    size_t at = 0;
    for (int i = 0; i < PARTS; i++) {
        const size_t left = n - at,
                     part = i == PARTS - 1 ? left : taciti_rng_below(KEY, 100 * draw + (unsigned)i, left + 1);
        parts[i] = (struct iovec){.iov_base = bytes + at, .iov_len = part};
        at += part;
    }
}

static ssize_t write_some(taciti_tcp_memory *m, char *scratch, uint64_t written, size_t n, uint64_t draw) {
    struct iovec parts[PARTS];
    for (size_t i = 0; i < n; i++) scratch[i] = byte_at(written + i);
    cut_parts(parts, scratch, n, draw);
    return taciti_tcp_memory_write(m, parts, PARTS);
}

static ssize_t read_some(taciti_tcp_memory *m, char *scratch, uint64_t read, size_t n, uint64_t draw) {
    struct iovec parts[PARTS];
    cut_parts(parts, scratch, n, draw);
    const ssize_t got = taciti_tcp_memory_read(m, parts, PARTS);
    for (ssize_t i = 0; i < got; i++)
        if (scratch[i] != byte_at(read + (uint64_t)i)) fail_msg("byte %zd is wrong", i);
    return got;
}

static size_t draw_length(uint64_t draw, uint64_t what) {
    const uint64_t max = taciti_rng_below(KEY + 1, 2 * draw + what, 8) == 0 ? TACITI_TCP_RING_BYTES + 100 : 3000;
    return 1 + (size_t)taciti_rng_below(KEY + 2, 2 * draw + what, max);
}

/* Reads and writes of random lengths, in both directions at once. */
static void bytes_come_out_as_they_went_in(void **state) {
    (void)state;
    const ends e = open_ends();
    char *scratch = taciti_calloc(TACITI_TCP_RING_BYTES + 200, 1);
    taciti_tcp_memory *sides[2] = {e.a, e.b};
    uint64_t written[2] = {0, 0}, read[2] = {0, 0}, full = 0, empty = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        const int from = (int)(i % 2);
        const size_t out_n = draw_length(i, 0), in_n = draw_length(i, 1);
        const ssize_t out = write_some(sides[from], scratch, written[from], out_n, i);
        const size_t room = TACITI_TCP_RING_BYTES - (size_t)(written[from] - read[from]);
        if (out < 0) assert_int_equal(errno, EAGAIN);
        assert_int_equal(out < 0 ? 0 : out, out_n < room ? out_n : room);
        written[from] += out < 0 ? 0 : (uint64_t)out, full += out < (ssize_t)out_n;
        const ssize_t in = read_some(sides[1 - from], scratch, read[from], in_n, i);
        const size_t held = (size_t)(written[from] - read[from]);
        if (in < 0) assert_int_equal(errno, EAGAIN);
        assert_int_equal(in < 0 ? 0 : in, in_n < held ? in_n : held);
        read[from] += in < 0 ? 0 : (uint64_t)in, empty += in < (ssize_t)in_n;
        assert_int_equal(taciti_tcp_memory_has_bytes(sides[1 - from]), written[from] > read[from]);
    }
    assert_true(full > 10 && empty > 10 && read[0] > 20 * TACITI_TCP_RING_BYTES);
    taciti_free(scratch);
    close_ends(&e);
}

/* ---- the bell ---------------------------------------------------------------------------------------------------- */
static int count_rings(int fd) {
    char rings[16];
    const ssize_t got = recv(fd, rings, sizeof rings, MSG_DONTWAIT);
    return got < 0 ? 0 : (int)got;
}

static void write_n(taciti_tcp_memory *m, size_t n) {
    static char bytes[TACITI_TCP_RING_BYTES];
    const struct iovec part = {.iov_base = bytes, .iov_len = n};
    assert_int_equal(taciti_tcp_memory_write(m, &part, 1), n);
}

static void read_n(taciti_tcp_memory *m, size_t n) {
    static char bytes[TACITI_TCP_RING_BYTES];
    const struct iovec part = {.iov_base = bytes, .iov_len = n};
    assert_int_equal(taciti_tcp_memory_read(m, &part, 1), n);
}

/* Once for a sleep, and never for one that is awake. */
static void the_bell_wakes_a_reader(void **state) {
    (void)state;
    const ends e = open_ends();
    write_n(e.a, 10);
    assert_int_equal(count_rings(e.fds[1]), 0);
    taciti_tcp_memory_sleep(e.b, false);
    assert_true(taciti_tcp_memory_has_bytes(e.b)); /* what came before does not ring */
    assert_int_equal(count_rings(e.fds[1]), 0);
    write_n(e.a, 10);
    write_n(e.a, 10);
    assert_int_equal(count_rings(e.fds[1]), 1);
    taciti_tcp_memory_sleep(e.b, false);
    taciti_tcp_memory_wake(e.b);
    write_n(e.a, 10);
    assert_int_equal(count_rings(e.fds[1]), 0);
    assert_true(taciti_tcp_memory_hear(e.b));
    (void)shutdown(e.fds[0], SHUT_RDWR);
    assert_false(taciti_tcp_memory_hear(e.b));
    close_ends(&e);
}

/* It is worth waking when half of the ring is free. */
static void the_bell_wakes_a_writer(void **state) {
    (void)state;
    const ends e = open_ends();
    write_n(e.a, TACITI_TCP_RING_BYTES);
    assert_false(taciti_tcp_memory_has_room(e.a));
    taciti_tcp_memory_sleep(e.a, true);
    read_n(e.b, TACITI_TCP_RING_BYTES / 2 - 1);
    assert_int_equal(count_rings(e.fds[0]), 0);
    assert_false(taciti_tcp_memory_has_room(e.a));
    read_n(e.b, 1);
    assert_int_equal(count_rings(e.fds[0]), 1);
    assert_true(taciti_tcp_memory_has_room(e.a));
    write_n(e.a, TACITI_TCP_RING_BYTES / 2);
    taciti_tcp_memory_sleep(e.a, false);
    read_n(e.b, TACITI_TCP_RING_BYTES);
    assert_int_equal(count_rings(e.fds[0]), 0);
    close_ends(&e);
}

/* ---- what is not believed ---------------------------------------------------------------------------------------- */
/* Overwrites the first bytes of the first ring, its two counters among them. */
static void spoilt_counters_are_found(void **state) {
    (void)state;
    struct iovec part = {.iov_base = (char[10]){0}, .iov_len = 10};
    ends e = open_ends();
    memset(e.a->rings, 0xee, 128);
    assert_int_equal(taciti_tcp_memory_read(e.b, &part, 1), -1);
    assert_int_equal(errno, EPROTO);
    close_ends(&e);
    e = open_ends();
    write_n(e.a, TACITI_TCP_RING_BYTES);
    memset(e.a->rings, 0xee, 128);
    assert_int_equal(taciti_tcp_memory_write(e.a, &part, 1), -1);
    assert_int_equal(errno, EPROTO);
    close_ends(&e);
}

static void send_file(int fd, int file) {
    char control[CMSG_SPACE(sizeof file)] = {0}, word = 1;
    struct iovec part = {.iov_base = &word, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &file, sizeof file);
    assert_int_equal(sendmsg(fd, &message, 0), 1);
}

/* A file that may shrink, or is too short, would kill whoever reads it. */
static void strange_files_are_refused(void **state) {
    (void)state;
    for (int what = 0; what < 2; what++) {
        int fds[2];
        const char *why = NULL;
        taciti_tcp_memory *memory = NULL;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        const int file = memfd_create("test", MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(file, what == 0 ? 4 * TACITI_TCP_RING_BYTES : 4096), 0);
        if (what == 1) assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        send_file(fds[0], file);
        assert_int_equal(taciti_tcp_memory_accept(fds[1], true, INT64_MAX, &memory, &why), TACIT_OK);
        assert_true(memory == NULL && why != NULL);
        (void)close(file), (void)close(fds[0]), (void)close(fds[1]);
    }
}

static void nobody_need_take_memory(void **state) {
    (void)state;
    for (int who = 0; who < 3; who++) {
        ends e = {{-1, -1}, NULL, NULL};
        const char *why = "before";
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, e.fds), 0);
        assert_int_equal(taciti_tcp_memory_offer(e.fds[0], who == 1, &e.a, &why), TACIT_OK);
        assert_string_equal(why, "before");
        assert_int_equal(taciti_tcp_memory_accept(e.fds[1], who == 2, INT64_MAX, &e.b, &why), TACIT_OK);
        if (who == 2) assert_null(why); /* the other one knows */
        assert_int_equal(taciti_tcp_memory_confirm(e.fds[0], INT64_MAX, &e.a), TACIT_OK);
        assert_true(e.a == NULL && e.b == NULL);
        close_ends(&e);
    }
}

/* An end that says nothing, or goes away, is given up. */
static void silence_has_an_end(void **state) {
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        ends e = {{-1, -1}, NULL, NULL};
        const char *why = NULL;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, e.fds), 0);
        if (gone == 1) (void)shutdown(e.fds[0], SHUT_RDWR);
        const int64_t end_ns = taciti_now_ns() + 50 * TACITI_NS_PER_MS;
        assert_int_equal(taciti_tcp_memory_accept(e.fds[1], true, end_ns, &e.b, &why), TACIT_E_PEER);
        assert_int_equal(taciti_tcp_memory_confirm(e.fds[1], end_ns, &e.b), TACIT_E_PEER);
        if (gone == 1) assert_int_equal(taciti_tcp_memory_offer(e.fds[1], true, &e.b, &why), TACIT_E_PEER);
        assert_null(e.b);
        close_ends(&e);
    }
}

static void ignore_signal(int number) { (void)number; }

static void *speak_late(void *argument) {
    const ends *e = argument;
    taciti_sleep_ns(100 * TACITI_NS_PER_MS);
    return send(e->fds[0], "", 1, MSG_NOSIGNAL) == 1 ? argument : NULL;
}

/* A signal every 5 ms, while the word takes 100. */
static void signals_do_not_end_the_wait(void **state) {
    (void)state;
    ends e = {{-1, -1}, NULL, NULL};
    const struct sigaction deed = {.sa_handler = ignore_signal};
    const struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    const char *why = NULL;
    sigset_t alarm;
    pthread_t thread;
    void *spoken = NULL;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, e.fds), 0);
    (void)sigemptyset(&alarm);
    (void)sigaddset(&alarm, SIGALRM);
    (void)pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* this thread alone gets them */
    assert_int_equal(pthread_create(&thread, NULL, speak_late, &e), 0);
    assert_int_equal(sigaction(SIGALRM, &deed, NULL) + setitimer(ITIMER_REAL, &often, NULL), 0);
    (void)pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    const tacit_status status = taciti_tcp_memory_accept(e.fds[1], true, INT64_MAX, &e.b, &why);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    (void)pthread_join(thread, &spoken);
    assert_non_null(spoken);
    assert_int_equal(status, TACIT_OK);
    assert_null(e.b);
    close_ends(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_as_they_went_in),
        cmocka_unit_test(the_bell_wakes_a_reader),
        cmocka_unit_test(the_bell_wakes_a_writer),
        cmocka_unit_test(spoilt_counters_are_found),
        cmocka_unit_test(strange_files_are_refused),
        cmocka_unit_test(nobody_need_take_memory),
        cmocka_unit_test(silence_has_an_end),
        cmocka_unit_test(signals_do_not_end_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

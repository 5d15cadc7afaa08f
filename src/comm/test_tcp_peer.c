/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a pair over socket pairs, on one thread: matching and order.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/test_tcp_pair.h"

/* ---- messages ---------------------------------------------------------------------------------------------------- */
static const size_t SIZES[] = {
    0, 1, TACITI_FRAME_EAGER_BYTES, TACITI_FRAME_EAGER_BYTES + 1, TACITI_FRAME_CHUNK_BYTES, LONG_BYTES - 1};

/* posted_first: the receive is there before the message. room: of the receive. */
static void pass_message(size_t n, size_t room, bool posted_first, bool memory) {
    pair *p = create_pair(false);
    if (memory) share_memory(p);
    char *in = taciti_calloc(n + room + 1, 1), *out = taciti_calloc(n + 1, 1);
    fill_bytes(out, n, n);
    memset(in, 'x', n + room + 1);
    taciti_tcp_message *receive = posted_first ? receive_on(p, 5, in, room) : NULL;
    taciti_tcp_message *sent = send_on(p, 5, out, n);
    if (!posted_first) {
        move_both(p);
        assert_int_equal(sent->done, n <= TACITI_FRAME_EAGER_BYTES); /* a longer one waits for its receive */
        receive = receive_on(p, 5, in, room);
    }
    move_both(p);
    assert_true(sent->done && receive->done);
    assert_int_equal(receive->total, n);
    assert_memory_equal(in, out, n < room ? n : room);
    for (size_t i = n < room ? n : room; i < n + room + 1; i++) assert_int_equal(in[i], 'x');
    assert_false(p->peers[0].lost || p->peers[1].lost);
    assert_null(p->peers[1].arriving.first);
    assert_int_equal(p->peers[1].asked_held, 0);
    assert_int_equal(p->peers[0].asked, 0);
    assert_int_equal(p->peers[1].window_held, 0);
    taciti_free(in);
    taciti_free(out);
    destroy_pair(p);
}

static void messages_of_all_lengths_arrive(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int how = 0; how < 4; how++) {
            const bool posted_first = how % 2 == 1, memory = how >= 2;
            pass_message(SIZES[i], SIZES[i], posted_first, memory);
            pass_message(SIZES[i], SIZES[i] + 1, posted_first, memory);
            pass_message(SIZES[i] + 1, SIZES[i], posted_first, memory);
            pass_message(SIZES[i], 0, posted_first, memory);
            pass_message(SIZES[i], SIZES[i] / 2, posted_first, memory);
        }
}

/* ---- work -------------------------------------------------------------------------------------------------------- */
static uint64_t calls_of(const pair *p) { return p->peers[0].link.system_calls + p->peers[1].link.system_calls; }

/* Up to TACITI_TCP_OUT_FRAMES messages that wait leave together and are read together: a call for each side, and one
 * that finds nothing more to read. Through memory there is none. */
static void short_messages_share_system_calls(void **state) {
    (void)state;
    for (int memory = 0; memory < 2; memory++) {
        char in[TACITI_TCP_OUT_FRAMES] = "", out[TACITI_TCP_OUT_FRAMES] = "letters";
        pair *p = create_pair(false);
        if (memory == 1) share_memory(p);
        for (int i = 0; i < TACITI_TCP_OUT_FRAMES; i++) (void)receive_on(p, 1, in + i, 1);
        for (int i = 0; i < TACITI_TCP_OUT_FRAMES; i++) (void)send_on(p, 1, out + i, 1);
        taciti_tcp_peer_write(&p->peers[0]);
        taciti_tcp_peer_read(&p->peers[1]);
        assert_memory_equal(in, out, sizeof in);
        assert_in_range(calls_of(p), memory == 1 ? 0 : 2, memory == 1 ? 0 : 3);
        destroy_pair(p);
    }
}

/* A long message takes a write and a read for each of its parts, and a few for what announces it. */
static void long_messages_take_two_system_calls_a_part(void **state) {
    (void)state;
    enum { PARTS = LONG_BYTES / TACITI_FRAME_CHUNK_BYTES };
    static char in[LONG_BYTES], out[LONG_BYTES];
    for (int memory = 0; memory < 2; memory++) {
        pair *p = create_pair(false);
        const int room = 4 * TACITI_FRAME_CHUNK_BYTES;
        assert_int_equal(setsockopt(p->peers[0].link.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        if (memory == 1) share_memory(p);
        const taciti_tcp_message *receive = receive_on(p, 1, in, sizeof in);
        (void)send_on(p, 1, out, sizeof out);
        for (int turn = 0; !receive->done; turn++) {
            assert_true(turn < 100);
            taciti_tcp_peer_write(&p->peers[turn % 2]);
            taciti_tcp_peer_read(&p->peers[1 - turn % 2]);
        }
        assert_in_range(calls_of(p), 0, memory == 1 ? 0 : 3 * PARTS);
        destroy_pair(p);
    }
}

/* The exchange keeps up to 16 messages of 60 KiB under way to a peer. One that has to ask first waits behind all the
 * others, and then for the answer. */
static void messages_of_the_exchange_leave_without_asking(void **state) {
    (void)state;
    enum { COUNT = 200, UNDER_WAY = 16, BYTES = 60 << 10 };
    static char in[BYTES], out[BYTES];
    pair *p = create_pair(false);
    for (int i = 0; i < COUNT; i++) {
        (void)send_on(p, 1, out, sizeof out);
        assert_int_equal(p->peers[0].asked, 0);
        if (i < UNDER_WAY) continue;
        const taciti_tcp_message *m = receive_on(p, 1, in, sizeof in);
        for (int turn = 0; turn < 8 || !m->done; turn++) move_side(p, turn % 2);
    }
    destroy_pair(p);
}

static void messages_of_a_tag_keep_their_order(void **state) {
    (void)state;
    enum { COUNT = 400, LONG = TACITI_FRAME_EAGER_BYTES + 1000 };
    pair *p = create_pair(false);
    static char in[COUNT][LONG], out[LONG];
    taciti_tcp_message *sent[COUNT], *received[COUNT];
    memset(in, 0, sizeof in);
    for (uint64_t i = 0; i < COUNT; i++) {
        const size_t n = (size_t)taciti_rng_below(3, i, 4) == 0 ? sizeof out : (size_t)taciti_rng_below(4, i, 5000);
        sent[i] = send_on(p, (int)(i % 3), out, n);
        if (i % 7 == 0) move_both(p);
    }
    for (int tag = 2; tag >= 0; tag--) /* another order of tags than that of the sends */
        for (int i = tag; i < COUNT; i += 3) received[i] = receive_on(p, tag, in[i], sizeof in[i]);
    for (int i = 0; i < 20; i++) move_both(p);
    for (int i = 0; i < COUNT; i++) {
        assert_true(sent[i]->done && received[i]->done);
        assert_int_equal(received[i]->total, sent[i]->count);
    }
    destroy_pair(p);
}

static void a_long_message_does_not_hold_up_a_short_one(void **state) {
    (void)state;
    pair *p = create_pair(false);
    char *out = taciti_calloc(LONG_BYTES, 1), *in = taciti_calloc(LONG_BYTES, 1), word[5] = "";
    const taciti_tcp_message *unwanted = send_on(p, 3, out, LONG_BYTES); /* nobody receives it */
    const taciti_tcp_message *arriving = receive_on(p, 1, in, LONG_BYTES);
    const taciti_tcp_message *sent = send_on(p, 1, out, LONG_BYTES);
    for (int turn = 0; turn < 4; turn++) move_side(p, turn % 2); /* the long one is on its way */
    assert_true(arriving->claimed > 0);
    const taciti_tcp_message *answer = receive_on(p, 2, word, sizeof word);
    (void)send_on(p, 2, "word", 5);
    while (!answer->done) move_side(p, 0), move_side(p, 1);
    assert_false(arriving->done || sent->done || unwanted->done);
    assert_string_equal(word, "word");
    move_both(p);
    assert_true(arriving->done && sent->done && !unwanted->done);
    taciti_free(in);
    taciti_free(out);
    destroy_pair(p);
}

static void the_peer_keeps_a_window_and_no_more(void **state) {
    (void)state;
    enum { COUNT = 1000 };
    pair *p = create_pair(false);
    static char out[TACITI_FRAME_EAGER_BYTES], in[TACITI_FRAME_EAGER_BYTES];
    const taciti_tcp_message *sent[COUNT];
    for (int i = 0; i < COUNT; i++) sent[i] = send_on(p, 1, out, sizeof out);
    move_both(p);
    assert_true(p->peers[1].window_held > TACITI_FRAME_WINDOW_BYTES - 2 * sizeof out);
    assert_true(p->peers[1].window_held <= TACITI_FRAME_WINDOW_BYTES);
    for (int i = 0; i < COUNT; i++) {
        const taciti_tcp_message *m = receive_on(p, 1, in, sizeof in);
        for (int turn = 0; !m->done; turn++) {
            assert_true(turn < 100);
            move_side(p, 0), move_side(p, 1);
        }
    }
    for (int i = 0; i < COUNT; i++) assert_true(sent[i]->done);
    move_both(p);
    assert_int_equal(p->peers[1].window_held, 0);
    assert_int_equal(p->peers[0].window_used, p->peers[1].credit);
    destroy_pair(p);
}

static void there_is_a_bound_on_messages_that_nobody_receives(void **state) {
    (void)state;
    pair *p = create_pair(false);
    taciti_tcp_message *m = NULL;
    static char out[TACITI_FRAME_EAGER_BYTES + 1];
    test_log_keep();
    for (int i = 0; i < TACITI_TCP_ASKED_MAX; i++) (void)send_on(p, 1, out, sizeof out);
    assert_int_equal(taciti_tcp_peer_send(&p->peers[0], 1, out, sizeof out, &m), TACIT_E_INTERNAL);
    assert_int_equal(test_log_count("65536 messages to rank 1 wait for their receives"), 1);
    test_log_drop();
    destroy_pair(p);
}

static void a_goodbye_is_no_failure(void **state) {
    (void)state;
    pair *p = create_pair(false);
    assert_int_equal(taciti_tcp_peer_tell(&p->peers[0], TACITI_FRAME_GOODBYE, 0), TACIT_OK);
    move_both(p);
    assert_true(p->peers[1].heard_goodbye);
    taciti_tcp_link_close(&p->peers[0].link);
    taciti_tcp_peer_read(&p->peers[1]);
    assert_false(p->peers[1].lost);
    destroy_pair(p);
}

/* The end of the process is read in the same pass as its last words. */
static void an_abort_is_heard_before_the_end_of_its_connection(void **state) {
    (void)state;
    pair *p = create_pair(false);
    assert_int_equal(taciti_tcp_peer_tell(&p->peers[0], TACITI_FRAME_ABORT, 7), TACIT_OK);
    taciti_tcp_peer_write(&p->peers[0]);
    taciti_tcp_link_close(&p->peers[0].link);
    taciti_tcp_peer_read(&p->peers[1]);
    assert_true(p->peers[1].lost);
    assert_int_equal(p->peers[1].abort_code, 7);
    assert_string_equal(p->peers[1].why, "it has ended the job with exit code 7");
    destroy_pair(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_all_lengths_arrive),
        cmocka_unit_test(short_messages_share_system_calls),
        cmocka_unit_test(long_messages_take_two_system_calls_a_part),
        cmocka_unit_test(messages_of_the_exchange_leave_without_asking),
        cmocka_unit_test(messages_of_a_tag_keep_their_order),
        cmocka_unit_test(a_long_message_does_not_hold_up_a_short_one),
        cmocka_unit_test(the_peer_keeps_a_window_and_no_more),
        cmocka_unit_test(there_is_a_bound_on_messages_that_nobody_receives),
        cmocka_unit_test(a_goodbye_is_no_failure),
        cmocka_unit_test(an_abort_is_heard_before_the_end_of_its_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

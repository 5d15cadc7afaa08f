/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a pair: what a peer may not do, random frames, and with a key (test_seal_key()) what changes on the
 * way.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdlib.h>

#include "comm/test_tcp_pair.h"

enum { RANDOM_ROUNDS = 3000 };

/* ---- what a peer may not do -------------------------------------------------------------------------------------- */
/* Sends a block, sealed if there is a key. */
static void write_block(pair *p, const void *bytes, size_t n) {
    static uint8_t sealed[TACITI_FRAME_CHUNK_BYTES + TACITI_SEAL_TAG_BYTES];
    if (p->seal != NULL) {
        taciti_seal_close(p->seal, bytes, n, sealed);
        bytes = sealed, n += TACITI_SEAL_TAG_BYTES;
    }
    assert_int_equal(send(p->raw, bytes, n, MSG_NOSIGNAL), n);
}

static void write_raw(pair *p, const taciti_frame *frame, const void *payload) {
    uint8_t header[TACITI_FRAME_HEADER_BYTES];
    taciti_frame_write(frame, EPOCH, p->number++, header);
    write_block(p, header, sizeof header);
    if (payload != NULL) write_block(p, payload, frame->bytes);
}

static void expect_loss(pair *p, const char *why) {
    move_side(p, 0);
    assert_true(p->peers[0].lost);
    if (strcmp(p->peers[0].why, why) != 0) print_error("%s\n", p->peers[0].why);
    assert_string_equal(p->peers[0].why, why);
    assert_int_equal(p->peers[0].link.fd, -1);
    destroy_pair(p);
}

static void refuse_frame(taciti_frame frame, const char *why) {
    pair *p = create_pair(true);
    write_raw(p, &frame, NULL);
    expect_loss(p, why);
}

static void impossible_answers_lose_the_peer(void **state) {
    (void)state;
    refuse_frame((taciti_frame){.kind = TACITI_FRAME_GO}, "it answers what nobody asked");
    refuse_frame((taciti_frame){.kind = TACITI_FRAME_CREDIT, .value = 1}, "it frees more than it was sent");
    refuse_frame((taciti_frame){.kind = TACITI_FRAME_ASK, .message = 1}, "a message out of order");
    refuse_frame((taciti_frame){.kind = TACITI_FRAME_EAGER, .message = 1}, "a message out of order");
    refuse_frame((taciti_frame){.kind = TACITI_FRAME_CHUNK, .bytes = 1}, "a part of a message that nobody receives");
    pair *p = create_pair(true);
    write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_GOODBYE}, NULL);
    write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_ASK}, NULL);
    expect_loss(p, "a frame after a goodbye");
    p = create_pair(true);
    (void)send_on(p, 1, "", 0);
    (void)send_on(p, 1, p, TACITI_FRAME_EAGER_BYTES + 1);
    move_side(p, 0);
    write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_GO, .message = 0}, NULL); /* the eager one */
    expect_loss(p, "it answers what nobody asked");
    p = create_pair(true);
    (void)send_on(p, 1, p, TACITI_FRAME_EAGER_BYTES + 1);
    move_side(p, 0);
    write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_GO, .value = TACITI_FRAME_EAGER_BYTES + 2}, NULL);
    expect_loss(p, "it wants more than there is");
}

/* A receive of 100 bytes is answered with GO; then a part of its message comes that does not fit. */
static void refuse_chunk(uint32_t first_bytes, uint64_t offset, uint32_t bytes) {
    pair *p = create_pair(true);
    char in[100], part[100] = "";
    taciti_tcp_message *m = NULL;
    assert_int_equal(taciti_tcp_peer_receive(&p->peers[0], 1, in, sizeof in, &m), TACIT_OK);
    write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_ASK, .tag = 1, .value = 200}, NULL);
    if (first_bytes > 0) write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_CHUNK, .bytes = first_bytes}, part);
    write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_CHUNK, .bytes = bytes, .value = offset}, NULL);
    expect_loss(p, "a part outside of its message");
}

static void parts_stay_inside_their_message(void **state) {
    (void)state;
    refuse_chunk(0, 0, 101);
    refuse_chunk(0, 100, 1);
    refuse_chunk(0, 50, 51);
    refuse_chunk(0, UINT64_MAX / 2, 1);
    refuse_chunk(60, 0, 41); /* together more than the message */
}

static void a_peer_cannot_fill_the_memory(void **state) {
    (void)state;
    static char payload[TACITI_FRAME_EAGER_BYTES];
    pair *p = create_pair(true);
    enum { COUNT = TACITI_FRAME_WINDOW_BYTES / TACITI_FRAME_EAGER_BYTES };
    for (uint64_t i = 0; i < COUNT; i++) {
        write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_EAGER, .bytes = sizeof payload, .message = i}, payload);
        move_side(p, 0);
        if (i < COUNT - 1) assert_false(p->peers[0].lost);
    }
    expect_loss(p, "it sends more than it may");
    p = create_pair(true);
    for (uint64_t i = 0; i <= TACITI_TCP_ASKED_MAX; i++) {
        write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_ASK, .message = i, .value = SIZE_MAX / 2}, NULL);
        if (i % 64 == 0) move_side(p, 0);
        if (i % 64 == 0) assert_false(p->peers[0].lost && i < TACITI_TCP_ASKED_MAX);
    }
    expect_loss(p, "it announces more messages than it may");
}

static void the_end_of_a_connection_is_named(void **state) {
    (void)state;
    pair *p = create_pair(true);
    (void)shutdown(p->raw, SHUT_RDWR);
    expect_loss(p, "it has closed the connection");
    p = create_pair(true);
    assert_int_equal(send(p->raw, "abc", 3, 0), 3);
    (void)shutdown(p->raw, SHUT_RDWR);
    move_side(p, 0);
    expect_loss(p, "the connection ended within a frame");
    p = create_pair(true);
    write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_EAGER, .bytes = 10}, NULL);
    (void)shutdown(p->raw, SHUT_RDWR);
    move_side(p, 0);
    expect_loss(p, "the connection ended within a frame");
    p = create_pair(true);
    assert_int_equal(send(p->raw, "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*, text/html\r\n\r\n", 60, 0), 60);
    expect_loss(p, test_seal_key() == NULL ? "a frame with a wrong checksum" : "a frame whose seal is broken");
    p = create_pair(true);
    (void)shutdown(p->raw, SHUT_RDWR);
    (void)send_on(p, 1, "x", 1);
    taciti_tcp_peer_write(&p->peers[0]); /* and no SIGPIPE */
    expect_loss(p, "Broken pipe");
}

/* The connection still holds what the peer said before it ended. */
static void last_words_are_read_before_the_peer_is_lost(void **state) {
    (void)state;
    pair *p = create_pair(true);
    char word[5] = "";
    taciti_tcp_message *m = NULL;
    assert_int_equal(taciti_tcp_peer_receive(&p->peers[0], 2, word, sizeof word, &m), TACIT_OK);
    write_raw(p, &(taciti_frame){.kind = TACITI_FRAME_EAGER, .tag = 2, .bytes = 5}, "word");
    (void)shutdown(p->raw, SHUT_RDWR);
    taciti_tcp_peer_read(&p->peers[0]);
    taciti_tcp_peer_read(&p->peers[0]);
    assert_true(p->peers[0].lost && m->done);
    assert_string_equal(word, "word");
    destroy_pair(p);
}

/* ---- what changes on the way ------------------------------------------------------------------------------------- */
/* The bytes of two short messages and of one that asks, as they are on the wire. */
enum { WORD_BYTES = 9, BLOCK = TACITI_FRAME_HEADER_BYTES + TACITI_SEAL_TAG_BYTES };
enum { FRAME_BYTES = BLOCK + WORD_BYTES + TACITI_SEAL_TAG_BYTES, TAPE_BYTES = 2 * FRAME_BYTES + BLOCK };

static void record_frames(uint8_t tape[TAPE_BYTES]) {
    static const char LONG[TACITI_FRAME_EAGER_BYTES + 1];
    pair *p = create_pair(true);
    (void)send_on(p, 1, "a word!!", WORD_BYTES);
    (void)send_on(p, 1, "another.", WORD_BYTES);
    (void)send_on(p, 1, LONG, sizeof LONG);
    taciti_tcp_peer_write(&p->peers[0]);
    assert_int_equal(recv(p->raw, tape, TAPE_BYTES, MSG_WAITALL), TAPE_BYTES);
    destroy_pair(p);
}

/* Side 1 of a new pair reads these bytes. Returns how many of its receives of 9 bytes are done, and why side 0 was
 * lost; "": it was not. */
static int play_tape(const uint8_t *tape, size_t n, char why[TACITI_TCP_WHY_BYTES]) {
    pair *p = create_pair(false);
    const taciti_tcp_message *received[3];
    char words[3][WORD_BYTES];
    int done = 0;
    for (int i = 0; i < 3; i++) received[i] = receive_on(p, 1, words[i], WORD_BYTES);
    assert_int_equal(send(p->peers[0].link.fd, tape, n, MSG_NOSIGNAL), n);
    move_side(p, 1);
    for (int i = 0; i < 3; i++) done += received[i]->done;
    if (done > 0) assert_string_equal(words[0], "a word!!");
    if (done > 1) assert_string_equal(words[1], "another.");
    (void)snprintf(why, TACITI_TCP_WHY_BYTES, "%s", p->peers[1].lost ? p->peers[1].why : "");
    destroy_pair(p);
    return done;
}

static void expect_broken_seal(const uint8_t *tape, size_t n, int done) {
    char why[TACITI_TCP_WHY_BYTES];
    assert_int_equal(play_tape(tape, n, why), done);
    assert_string_equal(why, "a frame whose seal is broken");
}

static void changed_frames_lose_the_peer(void **state) {
    (void)state;
    uint8_t tape[TAPE_BYTES], other[2 * TAPE_BYTES];
    char why[TACITI_TCP_WHY_BYTES];
    if (test_seal_key() == NULL) skip();
    record_frames(tape);
    assert_int_equal(play_tape(tape, sizeof tape, why), 2);
    assert_string_equal(why, "");
    for (size_t i = 0; i < sizeof tape; i++) { /* every byte counts */
        memcpy(other, tape, sizeof tape);
        other[i] = (uint8_t)(other[i] ^ (1U << i % 8));
        expect_broken_seal(other, sizeof tape, (int)(i / FRAME_BYTES));
    }
    memcpy(other, tape, FRAME_BYTES); /* the same frame again */
    memcpy(other + FRAME_BYTES, tape, FRAME_BYTES);
    expect_broken_seal(other, (size_t)2 * FRAME_BYTES, 1);
    memcpy(other, tape + FRAME_BYTES, FRAME_BYTES); /* in another order */
    memcpy(other + FRAME_BYTES, tape, FRAME_BYTES);
    expect_broken_seal(other, (size_t)2 * FRAME_BYTES, 0);
    memcpy(other, tape, FRAME_BYTES); /* without the second */
    memcpy(other + FRAME_BYTES, tape + (size_t)2 * FRAME_BYTES, BLOCK);
    expect_broken_seal(other, FRAME_BYTES + BLOCK, 1);
}

/* A side refuses its own frames, and those of another connection. */
static void frames_belong_to_their_connection(void **state) {
    (void)state;
    uint8_t tape[TAPE_BYTES];
    if (test_seal_key() == NULL) skip();
    record_frames(tape);
    pair *p = create_pair(true);
    assert_int_equal(send(p->raw, tape, sizeof tape, MSG_NOSIGNAL), sizeof tape);
    expect_loss(p, "a frame whose seal is broken");
    g_session++;
    p = create_pair(false);
    assert_int_equal(send(p->peers[0].link.fd, tape, sizeof tape, MSG_NOSIGNAL), sizeof tape);
    move_side(p, 1);
    assert_string_equal(p->peers[1].why, "a frame whose seal is broken");
    destroy_pair(p);
}

/* The network must not see what is sent. */
static void frames_cannot_be_read(void **state) {
    (void)state;
    uint8_t tape[TAPE_BYTES];
    if (test_seal_key() == NULL) skip();
    record_frames(tape);
    assert_null(memmem(tape, sizeof tape, "a word", 6));
}

/* ---- random frames ----------------------------------------------------------------------------------------------- */
/* Frames with right checksums and numbers, and anything else in them, some damaged: the peer may be lost, and nothing
 * worse. The receives have exact arrays, so that the address sanitizer sees what is written outside. */
static uint64_t throw_frames(uint64_t seed) {
    static uint8_t payload[TACITI_FRAME_CHUNK_BYTES];
    static const size_t LENGTHS[] = {0, 1, 100, 20000, 300000};
    pair *p = create_pair(true);
    char *in[8];
    for (uint64_t i = 0; i < 8; i++) {
        const size_t n = LENGTHS[taciti_rng_below(seed, i, 5)];
        taciti_tcp_message *m = NULL;
        in[i] = taciti_calloc(n, 1);
        assert_int_equal(taciti_tcp_peer_receive(&p->peers[0], (int)(i % 3), in[i], n, &m), TACIT_OK);
        (void)send_on(p, 1, payload, LENGTHS[taciti_rng_below(seed, 20 + i, 5)]);
    }
    uint64_t count = 0;
    for (uint64_t i = 0; i < 40 && !p->peers[0].lost; i++, count++) {
        const uint64_t draw = taciti_rng_u64(seed, 100 + i);
        const taciti_frame_kind kind = (taciti_frame_kind)(1 + draw % 5);
        const bool has_bytes = kind == TACITI_FRAME_EAGER || kind == TACITI_FRAME_CHUNK;
        taciti_frame frame = {.kind = kind, .tag = (int)(draw >> 16 & 3), .message = draw >> 20 & 3};
        if (kind == TACITI_FRAME_EAGER || kind == TACITI_FRAME_ASK) frame.message = p->peers[0].in_number;
        if (has_bytes) frame.bytes = (uint32_t)(draw >> 32 & 0xfff) + 1;
        if (kind != TACITI_FRAME_EAGER) frame.value = draw >> 44 & 0xfff;
        write_raw(p, &frame, has_bytes ? payload : NULL);
        static char sink[1 << 16];
        while (recv(p->raw, sink, sizeof sink, MSG_DONTWAIT) > 0) { /* the answers are of no interest */
        }
        move_side(p, 0);
    }
    destroy_pair(p);
    for (int i = 0; i < 8; i++) taciti_free(in[i]);
    return count;
}

static void random_frames_do_no_harm(void **state) {
    (void)state;
    const char *rounds = getenv("TACIT_FUZZ_ROUNDS");
    const uint64_t count = rounds == NULL ? RANDOM_ROUNDS : strtoull(rounds, NULL, 10);
    uint64_t frames = 0;
    for (uint64_t seed = 0; seed < count; seed++) frames += throw_frames(seed);
    print_message("%llu random frames\n", (unsigned long long)frames);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_answers_lose_the_peer),
        cmocka_unit_test(parts_stay_inside_their_message),
        cmocka_unit_test(a_peer_cannot_fill_the_memory),
        cmocka_unit_test(the_end_of_a_connection_is_named),
        cmocka_unit_test(last_words_are_read_before_the_peer_is_lost),
        cmocka_unit_test(changed_frames_lose_the_peer),
        cmocka_unit_test(frames_belong_to_their_connection),
        cmocka_unit_test(frames_cannot_be_read),
        cmocka_unit_test(random_frames_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

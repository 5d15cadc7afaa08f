/* SPDX-License-Identifier: Apache-2.0
 *
 * A pair of peers over socket pairs, with the key test_seal_key(); include behind cmocka.h, with _GNU_SOURCE defined.
 */
#ifndef TACITI_COMM_TEST_TCP_PAIR_H
#define TACITI_COMM_TEST_TCP_PAIR_H

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rng.h"
#include "comm/tcp_peer.h"
#include "comm/test_engine.h"

enum { EPOCH = 4, STREAMS = 2, LONG_BYTES = 3 << 20 };

/* Two ranks that hold each other as peers; side 1 may be played by hand through raw[]. */
typedef struct pair {
    taciti_tcp_link links[2][STREAMS];
    taciti_tcp_pool pools[2];
    taciti_tcp_peer peers[2];
    int raw[STREAMS];
    uint32_t numbers[STREAMS];
    taciti_seal *seals[STREAMS]; /* of the side that is played by hand */
} pair;

static inline taciti_seal *create_seal(int side, int stream) {
    const uint8_t proof[TACITI_SEAL_PROOF_BYTES] = {(uint8_t)stream};
    const taciti_seal_key *key = test_seal_key();
    return key == NULL ? NULL : taciti_seal_create(key, key->best, proof, side == 0);
}

static inline void create_side(pair *p, int side, const int *fds) {
    p->peers[side] = (taciti_tcp_peer){
        .rank = 1 - side, .streams = STREAMS, .links = p->links[side], .pool = &p->pools[side], .abort_code = -1};
    (void)snprintf(p->peers[side].name, sizeof p->peers[side].name, "rank %d", 1 - side);
    for (int s = 0; s < STREAMS; s++)
        assert_int_equal(taciti_tcp_link_create(fds[s], 0, s, EPOCH, create_seal(side, s), &p->links[side][s]),
                         TACIT_OK);
}

/* Both sides use the memory then, and the first connection only. */
static inline void share_memory(pair *p) {
    const char *why = NULL;
    taciti_tcp_link *a = &p->links[0][0], *b = &p->links[1][0];
    assert_int_equal(taciti_tcp_memory_offer(a->fd, true, &a->memory, &why), TACIT_OK);
    assert_int_equal(taciti_tcp_memory_accept(b->fd, true, INT64_MAX, &b->memory, &why), TACIT_OK);
    assert_int_equal(taciti_tcp_memory_confirm(a->fd, INT64_MAX, &a->memory), TACIT_OK);
    assert_true(a->memory != NULL && b->memory != NULL && why == NULL);
    for (int side = 0; side < 2; side++) {
        taciti_tcp_link_close(&p->links[side][1]);
        p->peers[side].streams = 1;
    }
}

static inline pair *create_pair(bool by_hand) {
    pair *p = taciti_calloc(1, sizeof *p);
    int fds[2][STREAMS];
    assert_non_null(p);
    for (int s = 0; s < STREAMS; s++) {
        int both[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both), 0);
        fds[0][s] = both[0], fds[1][s] = p->raw[s] = both[1];
    }
    create_side(p, 0, fds[0]);
    if (!by_hand) create_side(p, 1, fds[1]);
    for (int s = 0; s < STREAMS && by_hand; s++) p->seals[s] = create_seal(1, s);
    return p;
}

static inline void destroy_pair(pair *p) {
    for (int side = 0; side < 2; side++) {
        for (int s = 0; s < STREAMS && p->peers[side].streams > 0; s++) taciti_tcp_link_close(&p->links[side][s]);
        taciti_tcp_pool_destroy(&p->pools[side]);
    }
    for (int s = 0; s < STREAMS && p->peers[1].streams == 0; s++) (void)close(p->raw[s]);
    for (int s = 0; s < STREAMS; s++) taciti_seal_destroy(p->seals[s]);
    taciti_free(p);
}

static inline void move_side(pair *p, int side) {
    for (int s = 0; s < STREAMS; s++)
        if (p->links[side][s].fd >= 0) taciti_tcp_peer_read(&p->peers[side], &p->links[side][s]);
    taciti_tcp_peer_write(&p->peers[side]);
}

static inline void move_both(pair *p) {
    for (int turn = 0; turn < 200; turn++) move_side(p, turn % 2);
}

static inline taciti_tcp_message *send_on(pair *p, int tag, const void *bytes, size_t n) {
    taciti_tcp_message *m = NULL;
    assert_int_equal(taciti_tcp_peer_send(&p->peers[0], tag, bytes, n, &m), TACIT_OK);
    return m;
}

static inline taciti_tcp_message *receive_on(pair *p, int tag, void *bytes, size_t n) {
    taciti_tcp_message *m = NULL;
    assert_int_equal(taciti_tcp_peer_receive(&p->peers[1], tag, bytes, n, &m), TACIT_OK);
    return m;
}

static inline void fill_bytes(char *out, size_t n, uint64_t key) {
    for (size_t i = 0; i < n; i++) out[i] = (char)taciti_rng_u32(key, (uint32_t)i);
}

#endif

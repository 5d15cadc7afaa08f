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

enum { EPOCH = 4, LONG_BYTES = 3 << 20 };

/* Two ranks that hold each other as peers; side 1 may be played by hand through raw[]. */
typedef struct pair {
    taciti_tcp_pool pools[2];
    taciti_tcp_peer peers[2];
    int raw;
    uint32_t number;
    taciti_seal *seal; /* of the side that is played by hand */
} pair;

static uint8_t g_session; /* pairs of different sessions have different seals */

static inline taciti_seal *create_seal(int side) {
    const uint8_t proof[TACITI_SEAL_PROOF_BYTES] = {g_session};
    const taciti_seal_key *key = test_seal_key();
    return key == NULL ? NULL : taciti_seal_create(key, key->best, proof, side == 0);
}

static inline void create_side(pair *p, int side, int fd) {
    p->peers[side] = (taciti_tcp_peer){.rank = 1 - side, .pool = &p->pools[side], .abort_code = -1};
    (void)snprintf(p->peers[side].name, sizeof p->peers[side].name, "rank %d", 1 - side);
    assert_int_equal(taciti_tcp_link_create(fd, EPOCH, create_seal(side), &p->peers[side].link), TACIT_OK);
}

/* Both sides use the memory then. */
static inline void share_memory(pair *p) {
    const char *why = NULL;
    taciti_tcp_link *a = &p->peers[0].link, *b = &p->peers[1].link;
    assert_int_equal(taciti_tcp_memory_offer(a->fd, true, &a->memory, &why), TACIT_OK);
    assert_int_equal(taciti_tcp_memory_accept(b->fd, true, INT64_MAX, &b->memory, &why), TACIT_OK);
    assert_int_equal(taciti_tcp_memory_confirm(a->fd, INT64_MAX, &a->memory), TACIT_OK);
    assert_true(a->memory != NULL && b->memory != NULL && why == NULL);
}

static inline pair *create_pair(bool by_hand) {
    pair *p = taciti_calloc(1, sizeof *p);
    int both[2];
    assert_non_null(p);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both), 0);
    p->raw = by_hand ? both[1] : -1;
    create_side(p, 0, both[0]);
    if (by_hand)
        p->seal = create_seal(1);
    else
        create_side(p, 1, both[1]);
    return p;
}

static inline void destroy_pair(pair *p) {
    taciti_tcp_link_close(&p->peers[0].link);
    if (p->raw < 0) taciti_tcp_link_close(&p->peers[1].link);
    if (p->raw >= 0) (void)close(p->raw);
    for (int side = 0; side < 2; side++) taciti_tcp_pool_destroy(&p->pools[side]);
    taciti_seal_destroy(p->seal);
    taciti_free(p);
}

static inline void move_side(pair *p, int side) {
    taciti_tcp_peer_read(&p->peers[side]);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of the TCP engine as threads of this process; include behind cmocka.h, with _GNU_SOURCE defined.
 */
#ifndef TACITI_COMM_TEST_TCP_WORLD_H
#define TACITI_COMM_TEST_TCP_WORLD_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/engine_tcp.h"
#include "comm/tcp_address.h"
#include "comm/test_engine.h"

enum { RANKS_MAX = 8 };

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
    int size;
    uint64_t seed;
    size_t max_bytes;
    char folder[32], port[32];
    void (*play)(seat *s);
    pthread_barrier_t end;
    seat seats[RANKS_MAX];
};

static inline int set_up(void **state) {
    (void)state;
    test_log_keep();
    return 0;
}

static inline int tear_down(void **state) {
    (void)state;
    test_log_drop();
    return 0;
}

/* ---- worlds ------------------------------------------------------------------------------------------------------ */
static inline void find_port(char out[32]) {
    const taciti_tcp_address loopback = {4, {127, 0, 0, 1}};
    taciti_socket_name name = taciti_socket_name_of(&loopback, 0);
    const int fd = taciti_socket_listen(&name, false);
    CHECK(fd >= 0 && getsockname(fd, &name.address, &name.bytes) == 0);
    (void)snprintf(out, 32, "127.0.0.1:%u", (unsigned)taciti_socket_name_port(&name));
    (void)close(fd);
}

static inline void prepare_world(world *w, int size, test_way way, bool port) {
    *w = (world){.size = size};
    (void)snprintf(w->folder, sizeof w->folder, "/tmp/tacit-test-XXXXXX");
    CHECK(mkdtemp(w->folder) != NULL);
    if (port) find_port(w->port);
    for (int i = 0; i < size; i++) {
        w->seats[i] = (seat){.world = w, .rank = i};
        w->seats[i].request = (taciti_tcp_request){.rank = i,
                                                   .size = size,
                                                   .interface = "127.0.0.1",
                                                   .start_s = 30,
                                                   .key = test_seal_key(),
                                                   .only_tcp = way == TEST_OVER_TCP,
                                                   .no_memory = way == TEST_OVER_SOCKETS};
    }
}

static inline void open_store(seat *s) {
    const world *w = s->world;
    if (w->port[0] != 0)
        CHECK(taciti_bootstrap_port_open(w->port, NULL, s->rank, w->size, s->request.start_s, s->request.key,
                                         &s->request.bootstrap) == TACIT_OK);
    else
        CHECK(taciti_bootstrap_folder_open(w->folder, &s->request.bootstrap) == TACIT_OK);
}

static inline void close_store(seat *s) {
    if (s->world->port[0] != 0)
        taciti_bootstrap_port_close(&s->request.bootstrap);
    else
        taciti_bootstrap_folder_close(&s->request.bootstrap);
}

static inline void finish_request(seat *s, taciti_engine_request *request) {
    for (bool done = false; !done;) {
        CHECK(s->engine.test(s->engine.self, request, &done) == TACIT_OK);
        if (!done) CHECK(s->engine.wait(s->engine.self, 60 * TACITI_NS_PER_S) == TACIT_OK);
    }
}

static inline void exchange_one_word(seat *s) {
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

static inline void *run_seat(void *argument) {
    seat *s = argument;
    open_store(s);
    s->status = taciti_engine_tcp_open(&s->request, &s->engine);
    (void)snprintf(s->why, sizeof s->why, "%.255s", taciti_error_text());
    if (s->status == TACIT_OK) exchange_one_word(s); /* all are connected then */
    close_store(s);
    if (s->status != TACIT_OK || s->world->play == NULL) return NULL;
    CHECK(strcmp(s->engine.name, "tcp") == 0 && s->engine.rank == s->rank && s->engine.size == s->world->size);
    s->world->play(s);
    s->engine.close(s->engine.self);
    return NULL;
}

static inline void start_seat(seat *s) { CHECK(pthread_create(&s->thread, NULL, run_seat, s) == 0); }

static inline void remove_world(const world *w) {
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", w->folder);
    CHECK(system(command) == 0);
}

static inline void run_world(world *w, void (*play)(seat *s)) {
    w->play = play;
    for (int i = 0; i < w->size; i++) start_seat(&w->seats[i]);
    for (int i = 0; i < w->size; i++) (void)pthread_join(w->seats[i].thread, NULL);
    for (int i = 0; i < w->size; i++) CHECK(w->seats[i].status == TACIT_OK);
    remove_world(w);
}

#endif

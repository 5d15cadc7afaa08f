/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/tcp_connect.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/tcp_address.h"

#define STRANGER_NS (5 * TACITI_NS_PER_S)
#define LAST_LOOK_S 1                    /* for a store to say what a missing rank has published */
#define CONNECT_NS (3 * TACITI_NS_PER_S) /* for an address that does not answer at all */
#define GREET_NS (10 * TACITI_NS_PER_S)  /* for a rank that still waits for others' records */
#define RETRY_NS (50 * TACITI_NS_PER_MS)

enum { LISTENERS = 2, LOOK_MS = 50, REASON_BYTES = 320 };

/* A connection on its way: to a lower rank, or from somebody who has not said who it is. */
typedef struct attempt {
    enum { IDLE, CONNECTING, GREETING, CONFIRMING, CONNECTED } state;
    int fd, peer; /* peer: -1 for a stranger */
    int address;  /* which of the peer's addresses; -1: its Unix-domain socket */
    int64_t next_ns, end_ns;
    size_t count;
    uint8_t bytes[TACITI_HELLO_BYTES];
    taciti_hello mine; /* what this rank has said */
} attempt;

typedef struct mesh {
    const taciti_tcp_request *request;
    taciti_tcp_peer *peers; /* [rank] */
    int64_t end_ns;
    taciti_tcp_record mine;
    taciti_tcp_record *records; /* [rank]: of those below */
    uint8_t cookie[TACITI_COOKIE_BYTES];
    int listeners[LISTENERS];
    attempt *attempts; /* [rank] outgoing, then strangers */
    int outgoing, count, connected;
    taciti_refusals refusals;
    struct pollfd *polls;      /* [LISTENERS + count] */
    char reason[REASON_BYTES]; /* why the last attempt failed */
    tacit_status broken;       /* this rank's own store or memory has failed: no attempt will help */
} mesh;

static taciti_cipher best_cipher(const mesh *m) {
    return m->request->key != NULL ? m->request->key->best : TACITI_CIPHER_NONE;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */
static void name_key(const mesh *m, int rank, char out[TACITI_BOOTSTRAP_KEY_BYTES]) {
    (void)snprintf(out, TACITI_BOOTSTRAP_KEY_BYTES, "tacit-%" PRIu32 "-%d", m->request->epoch, rank);
}

static bool draw_random(void *out, size_t n) { return getrandom(out, n, 0) == (ssize_t)n; }

/* The listening address: that of the chosen interface, or all of the family of the first one. */
static tacit_status listen_for_ranks(mesh *m) {
    const char *interface = m->request->interface != NULL ? m->request->interface : "";
    m->mine.addresses = taciti_tcp_addresses_find(interface, m->mine.address);
    if (m->mine.addresses == 0)
        return taciti_fail(TACIT_E_CONFIG, "rank %d: no interface or address \"%s\" is up on this host",
                           m->request->rank, interface);
    taciti_socket_name name = taciti_socket_name_of(&m->mine.address[0], 0);
    if (interface[0] == 0) name = taciti_socket_name_any(&name);
    m->listeners[0] = taciti_socket_listen(&name, false);
    const taciti_socket_name local = taciti_socket_name_local(m->mine.local);
    if (m->listeners[0] >= 0) m->listeners[1] = taciti_socket_listen(&local, false);
    if (m->listeners[1] < 0 || getsockname(m->listeners[0], &name.address, &name.bytes) != 0)
        return taciti_fail(TACIT_E_IO, "rank %d cannot listen: %s", m->request->rank, strerror(errno));
    m->mine.port = taciti_socket_name_port(&name);
    char text[TACITI_ADDRESS_TEXT_BYTES];
    name = taciti_socket_name_of(&m->mine.address[0], m->mine.port);
    taciti_socket_name_text(&name, text);
    taciti_log(TACITI_LOG_DEBUG, "rank %d listens on %s%s", m->request->rank, text,
               interface[0] == 0 ? " and its other addresses (comm.interface chooses one)" : "");
    return TACIT_OK;
}

static tacit_status publish_record(mesh *m) {
    _Static_assert(sizeof m->mine <= TACITI_BOOTSTRAP_VALUE_BYTES, "a meeting place takes a record");
    char key[TACITI_BOOTSTRAP_KEY_BYTES];
    uint64_t number = 0;
    m->mine.epoch = m->request->epoch, m->mine.rank = m->request->rank, m->mine.size = m->request->size;
    taciti_host_identity(m->mine.host);
    if (!draw_random(m->mine.cookie, TACITI_COOKIE_BYTES) || !draw_random(&number, sizeof number))
        return taciti_fail(TACIT_E_IO, "the system has no random numbers: %s", strerror(errno));
    (void)snprintf(m->mine.local, sizeof m->mine.local, "tacit-%016" PRIx64, number);
    memcpy(m->cookie, m->mine.cookie, sizeof m->cookie);
    TACITI_TRY(listen_for_ranks(m));
    taciti_tcp_record_complete(&m->mine, m->request->key);
    name_key(m, m->request->rank, key);
    return m->request->bootstrap.set(m->request->bootstrap.self, key, &m->mine, sizeof m->mine);
}

/* All are connected, so nobody reads it any more. */
static void forget_record(const mesh *m) {
    char key[TACITI_BOOTSTRAP_KEY_BYTES];
    const taciti_bootstrap *store = &m->request->bootstrap;
    name_key(m, m->request->rank, key);
    if (store->forget != NULL) store->forget(store->self, key);
}

/* E_PEER: there is none yet, or one of another run; m->reason says what was found. */
static tacit_status look_up_record(mesh *m, int rank, double timeout_s, taciti_tcp_record *out) {
    char key[TACITI_BOOTSTRAP_KEY_BYTES];
    uint8_t bytes[TACITI_BOOTSTRAP_ROOM_BYTES];
    size_t n = 0;
    taciti_tcp_record record;
    name_key(m, rank, key);
    const taciti_bootstrap *store = &m->request->bootstrap;
    const tacit_status status = store->get(store->self, key, bytes, sizeof bytes, &n, timeout_s);
    if (status == TACIT_E_PEER) (void)snprintf(m->reason, sizeof m->reason, "%.300s", taciti_error_text());
    if (status != TACIT_OK && status != TACIT_E_PEER) m->broken = status;
    if (status != TACIT_OK) return status;
    const char *refusal = taciti_tcp_record_read(bytes, n, m->request->key, &record);
    if (refusal == NULL && (record.rank != rank || record.epoch != m->request->epoch)) refusal = "is of another rank";
    if (refusal == NULL && record.size != m->request->size) refusal = "is of a run with another number of ranks";
    if (refusal != NULL) {
        (void)snprintf(m->reason, sizeof m->reason, "what it has published %s", refusal);
        return TACIT_E_PEER;
    }
    *out = record;
    return TACIT_OK;
}

/* The same, of a lower rank, from now on. */
static tacit_status read_record(mesh *m, int rank, double timeout_s) {
    taciti_tcp_record record;
    TACITI_TRY(look_up_record(m, rank, timeout_s, &record));
    m->records[rank] = record;
    if (rank == 0) memcpy(m->cookie, record.cookie, sizeof m->cookie);
    return TACIT_OK;
}

/* Waits for the record of a lower rank. */
static tacit_status await_record(mesh *m, int rank) {
    for (;;) {
        const double left_s = (double)(m->end_ns - taciti_now_ns()) * 1e-9;
        const tacit_status status = read_record(m, rank, left_s > 0 ? left_s : 0);
        if (status != TACIT_E_PEER) return status;
        if (left_s <= 0)
            return taciti_fail(TACIT_E_PEER, "rank %d: rank %d has not come up within %g s (comm.start): %s",
                               m->request->rank, rank, m->request->start_s, m->reason);
        taciti_sleep_ns(RETRY_NS);
    }
}

/* ---- attempts ---------------------------------------------------------------------------------------------------- */
static void end_attempt(attempt *a, int64_t now) {
    if (a->fd >= 0) (void)close(a->fd);
    a->fd = -1;
    a->state = IDLE;
    a->count = 0;
    a->next_ns = now + RETRY_NS;
}

/* before: the proof of the hello that this one answers; NULL: there is none. */
static bool send_hello(const mesh *m, attempt *a, int peer, taciti_cipher cipher, const uint8_t *before) {
    a->mine = (taciti_hello){
        .epoch = m->request->epoch, .from = m->request->rank, .to = peer, .size = m->request->size, .cipher = cipher};
    memcpy(a->mine.cookie, m->cookie, sizeof a->mine.cookie);
    if (m->request->key != NULL && !taciti_seal_draw(a->mine.random)) return false;
    taciti_hello_complete(&a->mine, m->request->key, before);
    return send(a->fd, &a->mine, sizeof a->mine, MSG_NOSIGNAL) == (ssize_t)sizeof a->mine;
}

/* The proof by which the caller confirms, and from which the session begins. answer: the second hello. */
static void prove_end(const mesh *m, const taciti_hello *last, uint8_t out[TACITI_SEAL_PROOF_BYTES]) {
    taciti_seal_prove(m->request->key, TACITI_SEAL_HELLO, last->proof, NULL, 0, out);
}

/* The connection is a rank's from now on. answer: the second hello, of either side. */
static bool adopt_connection(mesh *m, attempt *a, int peer, const taciti_hello *answer) {
    taciti_tcp_peer *it = &m->peers[peer];
    taciti_socket_name name = {.bytes = sizeof name.storage};
    char address[TACITI_ADDRESS_TEXT_BYTES] = "";
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
    taciti_seal *seal = NULL;
    if (m->request->key != NULL) {
        prove_end(m, answer, proof);
        seal = taciti_seal_create(m->request->key, answer->cipher, proof, answer != &a->mine);
        if (seal == NULL) m->broken = TACIT_E_MEMORY;
    }
    if (m->broken == TACIT_OK) m->broken = taciti_tcp_link_create(a->fd, m->request->epoch, seal, &it->link);
    if (m->broken != TACIT_OK) {
        taciti_seal_destroy(seal);
        return false;
    }
    if (getpeername(a->fd, &name.address, &name.bytes) == 0) taciti_socket_name_text(&name, address);
    (void)snprintf(it->name, sizeof it->name, "rank %d (%s)", peer, address);
    taciti_socket_tune(a->fd, 2 * (m->request->timeout_s > 0 ? m->request->timeout_s : 15));
    m->connected++;
    a->fd = -1;
    return true;
}

/* Reads no more than `n` bytes. Returns 1 when they are complete, 0 while more must come, -1 when they never will; *why
 * is then not NULL. */
static int read_bytes(attempt *a, size_t n, const char **why) {
    const ssize_t got = recv(a->fd, a->bytes + a->count, n - a->count, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) *why = "it has closed the connection";
    if (got <= 0) return -1;
    a->count += (size_t)got;
    return a->count == n;
}

/* Returns what read_bytes() does. before: the proof of the hello that this one answers; NULL: there is none. */
static int read_hello(const mesh *m, attempt *a, const uint8_t *before, taciti_hello *out, const char **why) {
    const int state = read_bytes(a, sizeof a->bytes, why);
    if (state < 0) return -1;
    if (taciti_hello_may_begin(a->bytes, a->count) == 0) *why = "it does not speak this protocol";
    if (*why != NULL || state == 0) return *why == NULL ? 0 : -1;
    taciti_hello expected = {.epoch = m->request->epoch, .to = m->request->rank, .size = m->request->size};
    memcpy(expected.cookie, m->cookie, sizeof expected.cookie);
    *why = taciti_hello_read(a->bytes, &expected, m->request->key, before, out);
    return *why == NULL ? 1 : -1;
}

/* ---- to lower ranks ---------------------------------------------------------------------------------------------- */
static bool shares_host(const mesh *m, int peer) {
    return !m->request->only_tcp && memcmp(m->records[peer].host, m->mine.host, sizeof m->mine.host) == 0;
}

static void note_failure(mesh *m, attempt *a, const char *why, int64_t now) {
    (void)snprintf(m->reason, sizeof m->reason, "rank %d: %.100s", a->peer, why);
    end_attempt(a, now);
    if (++a->address < m->records[a->peer].addresses || m->broken != TACIT_OK) return;
    a->address = shares_host(m, a->peer) ? -1 : 0;
    (void)read_record(m, a->peer, 0); /* the old one may be of an earlier run */
    if (a->peer != 0 && m->broken == TACIT_OK) (void)read_record(m, 0, 0);
}

static void begin_connect(mesh *m, attempt *a, int64_t now) {
    const taciti_tcp_record *record = &m->records[a->peer];
    const taciti_socket_name name = a->address < 0 ? taciti_socket_name_local(record->local)
                                                   : taciti_socket_name_of(&record->address[a->address], record->port);
    a->fd = taciti_socket_connect(&name);
    a->state = CONNECTING;
    a->end_ns = now + CONNECT_NS;
    if (a->fd < 0) note_failure(m, a, strerror(errno), now);
}

static void go_on_connecting(mesh *m, attempt *a, int64_t now) {
    const int error = taciti_socket_connect_error(a->fd);
    a->state = GREETING;
    a->end_ns = now + GREET_NS;
    if (error != 0)
        note_failure(m, a, strerror(error), now);
    else if (!send_hello(m, a, a->peer, best_cipher(m), NULL))
        note_failure(m, a, strerror(errno), now);
}

/* With a key: says that this hello is no recorded one. */
static bool confirm_hello(const mesh *m, attempt *a, const taciti_hello *answer) {
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
    if (m->request->key == NULL) return true;
    prove_end(m, answer, proof);
    return send(a->fd, proof, sizeof proof, MSG_NOSIGNAL) == (ssize_t)sizeof proof;
}

static void hear_greeting(mesh *m, attempt *a, int64_t now) {
    taciti_hello hello;
    const char *why = NULL;
    const int state = read_hello(m, a, a->mine.proof, &hello, &why);
    if (state == 0) return;
    if (state > 0 && hello.from != a->peer) why = "it is another rank";
    if (why == NULL && hello.cipher > a->mine.cipher) why = "it has chosen a cipher that this rank does not have";
    if (why == NULL && !confirm_hello(m, a, &hello)) why = strerror(errno);
    if (why == NULL && !adopt_connection(m, a, a->peer, &hello)) why = "there is no memory";
    if (why != NULL)
        note_failure(m, a, why, now);
    else
        a->state = CONNECTED;
}

static void drive_attempt(mesh *m, attempt *a, short events, int64_t now) {
    if (a->state == IDLE && now >= a->next_ns)
        begin_connect(m, a, now);
    else if (a->state == CONNECTING && events != 0)
        go_on_connecting(m, a, now);
    else if (a->state == GREETING && events != 0)
        hear_greeting(m, a, now);
    else if (a->fd >= 0 && now > a->end_ns)
        note_failure(m, a, "it does not answer", now);
}

/* ---- strangers --------------------------------------------------------------------------------------------------- */
static void accept_strangers(mesh *m, int64_t now) {
    for (int i = m->outgoing, k = 0; i < m->count && k < LISTENERS; i++) {
        attempt *a = &m->attempts[i];
        if (a->fd >= 0) continue;
        while (k < LISTENERS && (a->fd = taciti_socket_accept(m->listeners[k])) < 0) k++;
        if (a->fd < 0) return;
        a->state = GREETING;
        a->count = 0;
        a->end_ns = now + STRANGER_NS;
    }
}

static void refuse_stranger(mesh *m, attempt *a, const char *why, int64_t now) {
    char who[32];
    (void)snprintf(who, sizeof who, "rank %d", m->request->rank);
    taciti_socket_refuse(&m->refusals, who, a->fd, why);
    end_attempt(a, now);
}

/* A rank that gave a connection up, or was killed, may come again; nobody may take the place of one that is there. */
static bool is_taken(const mesh *m, int peer) {
    char byte;
    const int fd = m->peers[peer].link.fd;
    if (fd < 0) return false;
    const ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

static void leave_place(mesh *m, int peer) {
    if (m->peers[peer].link.fd < 0) return;
    taciti_tcp_link_close(&m->peers[peer].link);
    m->connected--;
}

/* Gives the place of the rank that this rank has answered to the stranger. */
static const char *admit_rank(mesh *m, attempt *a) {
    const int peer = a->mine.to;
    if (is_taken(m, peer)) return "it is connected already";
    leave_place(m, peer);
    return adopt_connection(m, a, peer, &a->mine) ? NULL : "there is no memory";
}

/* Answers a hello. Without a key that is all. */
static const char *answer_hello(mesh *m, attempt *a, const taciti_hello *hello) {
    const taciti_cipher own = best_cipher(m), cipher = hello->cipher < own ? hello->cipher : own;
    if (hello->from < m->request->rank) return "it should wait for this rank's call";
    if (is_taken(m, hello->from)) return "it is connected already";
    if (!send_hello(m, a, hello->from, cipher, hello->proof)) return "it does not take an answer";
    a->state = CONFIRMING;
    a->count = 0;
    return m->request->key == NULL ? admit_rank(m, a) : NULL;
}

static const char *check_confirmation(mesh *m, attempt *a) {
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
    prove_end(m, &a->mine, proof);
    if (!taciti_seal_proofs_match(proof, a->bytes)) return "it repeats what another has said";
    return admit_rank(m, a);
}

static void hear_stranger(mesh *m, attempt *a, int64_t now) {
    taciti_hello hello;
    const char *why = NULL;
    const bool confirms = a->state == CONFIRMING;
    const int state = confirms ? read_bytes(a, TACITI_SEAL_PROOF_BYTES, &why) : read_hello(m, a, NULL, &hello, &why);
    if (state == 0) return;
    if (state > 0) why = confirms ? check_confirmation(m, a) : answer_hello(m, a, &hello);
    if (why != NULL)
        refuse_stranger(m, a, why, now);
    else if (a->fd < 0)
        end_attempt(a, now);
}

static void drive_stranger(mesh *m, attempt *a, short events, int64_t now) {
    if (a->fd < 0) return;
    if (events != 0) hear_stranger(m, a, now);
    if (a->fd >= 0 && now > a->end_ns) refuse_stranger(m, a, "it says nothing", now);
}

/* ---- all together ------------------------------------------------------------------------------------------------ */
static void poll_all(mesh *m) {
    const int64_t now = taciti_now_ns();
    int timeout_ms = LOOK_MS;
    bool room = false;
    for (int i = 0; i < m->count; i++) {
        const attempt *a = &m->attempts[i];
        m->polls[LISTENERS + i] = (struct pollfd){.fd = a->fd, .events = a->state == CONNECTING ? POLLOUT : POLLIN};
        room = room || (i >= m->outgoing && a->fd < 0);
        if (i < m->outgoing && a->state == IDLE && a->next_ns <= now) timeout_ms = 0;
    }
    for (int k = 0; k < LISTENERS; k++)
        m->polls[k] = (struct pollfd){.fd = room ? m->listeners[k] : -1, .events = POLLIN};
    (void)poll(m->polls, (nfds_t)(LISTENERS + m->count), timeout_ms);
}

/* Why a higher rank has not called: it cannot believe this one's record, as this one cannot believe its own, or it was
 * refused at the door. */
static void find_reason(mesh *m, int peer) {
    taciti_tcp_record record;
    if (peer > m->request->rank && look_up_record(m, peer, LAST_LOOK_S, &record) != TACIT_OK) return;
    if (m->reason[0] == 0) (void)snprintf(m->reason, sizeof m->reason, "%s", m->refusals.last);
}

static tacit_status name_missing(mesh *m) {
    int first = -1, missing = 0;
    char more[32] = "";
    for (int peer = 0; peer < m->request->size; peer++)
        if (peer != m->request->rank && m->peers[peer].link.fd < 0 && missing++ == 0) first = peer;
    if (missing > 1) (void)snprintf(more, sizeof more, " and %d more", missing - 1);
    find_reason(m, first);
    return taciti_fail(TACIT_E_PEER, "rank %d: rank %d%s did not connect within %g s (comm.start)%s%s",
                       m->request->rank, first, more, m->request->start_s, m->reason[0] == 0 ? "" : "; ", m->reason);
}

static tacit_status connect_all(mesh *m) {
    const int wanted = m->request->size - 1;
    const int64_t begin_ns = taciti_now_ns();
    while (m->connected < wanted) {
        TACITI_TRY(taciti_interrupt_check(begin_ns));
        poll_all(m);
        const int64_t now = taciti_now_ns();
        for (int i = 0; i < m->outgoing; i++) drive_attempt(m, &m->attempts[i], m->polls[LISTENERS + i].revents, now);
        for (int i = m->outgoing; i < m->count; i++)
            drive_stranger(m, &m->attempts[i], m->polls[LISTENERS + i].revents, now);
        accept_strangers(m, now);
        if (m->broken != TACIT_OK) return m->broken;
        if (m->connected < wanted && now > m->end_ns) return name_missing(m);
    }
    return TACIT_OK;
}

static tacit_status meet_ranks(mesh *m) {
    const int rank = m->request->rank;
    TACITI_TRY(publish_record(m));
    for (int peer = 0; peer < rank; peer++) TACITI_TRY(await_record(m, peer));
    for (int i = 0; i < m->count; i++) {
        attempt *a = &m->attempts[i];
        a->peer = i < m->outgoing ? i : -1;
        if (i < m->outgoing && shares_host(m, a->peer)) a->address = -1;
    }
    m->reason[0] = 0;
    return connect_all(m);
}

static void clean_up(mesh *m, bool failed) {
    for (int k = 0; k < LISTENERS; k++)
        if (m->listeners[k] >= 0) (void)close(m->listeners[k]);
    for (int i = 0; m->attempts != NULL && i < m->count; i++)
        if (m->attempts[i].fd >= 0) (void)close(m->attempts[i].fd);
    for (int peer = 0; failed && peer < m->request->size; peer++) leave_place(m, peer);
    taciti_free(m->records);
    taciti_free(m->attempts);
    taciti_free(m->polls);
}

tacit_status taciti_tcp_connect(const taciti_tcp_request *request, int64_t end_ns, taciti_tcp_peer *peers) {
    mesh m = {.request = request, .peers = peers, .end_ns = end_ns, .listeners = {-1, -1}};
    m.outgoing = request->rank;
    m.count = m.outgoing + TACITI_TCP_STRANGERS_MAX;
    m.records = taciti_calloc((size_t)request->rank + 1, sizeof *m.records);
    m.attempts = taciti_calloc((size_t)m.count, sizeof *m.attempts);
    m.polls = taciti_calloc((size_t)(LISTENERS + m.count), sizeof *m.polls);
    for (int i = 0; m.attempts != NULL && i < m.count; i++) m.attempts[i].fd = -1;
    tacit_status status = TACIT_E_MEMORY;
    if (m.records != NULL && m.attempts != NULL && m.polls != NULL) status = meet_ranks(&m);
    if (status == TACIT_OK) forget_record(&m);
    clean_up(&m, status != TACIT_OK);
    return status == TACIT_PENDING ? TACIT_E_PEER : status; /* the program has ended a wait */
}

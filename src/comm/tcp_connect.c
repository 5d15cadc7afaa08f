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
#include "base/log.h"
#include "base/memory.h"

#define STRANGER_NS (5 * TACITI_NS_PER_S)
#define CONNECT_NS (3 * TACITI_NS_PER_S) /* for an address that does not answer at all */
#define GREET_NS (10 * TACITI_NS_PER_S)  /* for a rank that still waits for others' records */
#define RETRY_NS (50 * TACITI_NS_PER_MS)

enum { LISTENERS = 2, LOOK_MS = 50, REFUSALS_LOGGED = 8, REASON_BYTES = 160 };

/* A connection on its way: to a lower rank, or from somebody who has not said who it is. */
typedef struct attempt {
    enum { IDLE, CONNECTING, GREETING, CONNECTED } state;
    int fd, peer, stream; /* peer: -1 for a stranger */
    int address;          /* which of the peer's addresses; -1: its Unix-domain socket */
    int64_t next_ns, end_ns;
    size_t count;
    uint8_t bytes[TACITI_HELLO_BYTES];
} attempt;

typedef struct mesh {
    const taciti_tcp_request *request;
    taciti_tcp_mesh *out;
    int64_t end_ns;
    int streams;
    taciti_tcp_record mine;
    taciti_tcp_record *records; /* [rank]: of those below */
    uint8_t cookie[TACITI_COOKIE_BYTES];
    int listeners[LISTENERS];
    attempt *attempts; /* [rank * streams] outgoing, then strangers */
    int outgoing, count, connected, refusals;
    struct pollfd *polls;      /* [LISTENERS + count] */
    char reason[REASON_BYTES]; /* why the last attempt failed */
} mesh;

static int *connection_of(const mesh *m, int peer, int stream) { return &m->out->fds[peer * m->streams + stream]; }

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
    if (m->listeners[1] < 0 || getsockname(m->listeners[0], (struct sockaddr *)&name.storage, &name.bytes) != 0)
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
    char key[TACITI_BOOTSTRAP_KEY_BYTES];
    uint8_t bytes[TACITI_RECORD_BYTES];
    uint64_t number = 0;
    m->mine.epoch = m->request->epoch, m->mine.rank = m->request->rank, m->mine.size = m->request->size;
    m->mine.streams = m->streams;
    taciti_host_identity(m->mine.host);
    if (!draw_random(m->mine.cookie, TACITI_COOKIE_BYTES) || !draw_random(&number, sizeof number))
        return taciti_fail(TACIT_E_IO, "the system has no random numbers: %s", strerror(errno));
    (void)snprintf(m->mine.local, sizeof m->mine.local, "tacit-%016" PRIx64, number);
    memcpy(m->cookie, m->mine.cookie, sizeof m->cookie);
    TACITI_TRY(listen_for_ranks(m));
    taciti_tcp_record_write(&m->mine, bytes);
    name_key(m, m->request->rank, key);
    return m->request->bootstrap.set(m->request->bootstrap.self, key, bytes, sizeof bytes);
}

/* All are connected, so nobody reads it any more. */
static void forget_record(const mesh *m) {
    char key[TACITI_BOOTSTRAP_KEY_BYTES];
    const taciti_bootstrap *store = &m->request->bootstrap;
    name_key(m, m->request->rank, key);
    if (store->forget != NULL) store->forget(store->self, key);
}

/* E_PEER: there is none yet, or one of another run; m->reason says what was found. */
static tacit_status read_record(mesh *m, int rank, double timeout_s) {
    char key[TACITI_BOOTSTRAP_KEY_BYTES];
    uint8_t bytes[TACITI_BOOTSTRAP_VALUE_BYTES];
    size_t n = 0;
    taciti_tcp_record record;
    name_key(m, rank, key);
    const taciti_bootstrap *store = &m->request->bootstrap;
    const tacit_status status = store->get(store->self, key, bytes, sizeof bytes, &n, timeout_s);
    if (status == TACIT_E_PEER) (void)snprintf(m->reason, sizeof m->reason, "%.150s", taciti_error_text());
    if (status != TACIT_OK) return status;
    const char *refusal = taciti_tcp_record_read(bytes, n, &record);
    if (refusal == NULL && (record.rank != rank || record.epoch != m->request->epoch)) refusal = "is of another rank";
    if (refusal == NULL && record.size != m->request->size) refusal = "is of a run with another number of ranks";
    if (refusal == NULL && record.streams != m->streams) refusal = "is of a run with other comm.streams";
    if (refusal != NULL) {
        (void)snprintf(m->reason, sizeof m->reason, "what it has published %s", refusal);
        return TACIT_E_PEER;
    }
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

static void write_hello(const mesh *m, int peer, int stream, uint8_t out[TACITI_HELLO_BYTES]) {
    taciti_hello hello = {.epoch = m->request->epoch,
                          .from = m->request->rank,
                          .to = peer,
                          .size = m->request->size,
                          .stream = stream,
                          .streams = m->streams};
    memcpy(hello.cookie, m->cookie, sizeof hello.cookie);
    taciti_hello_write(&hello, out);
}

static bool send_hello(const mesh *m, int fd, int peer, int stream) {
    uint8_t bytes[TACITI_HELLO_BYTES];
    write_hello(m, peer, stream, bytes);
    return send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes;
}

/* The connection is a rank's from now on. */
static void adopt_connection(mesh *m, attempt *a, int peer, int stream) {
    taciti_socket_name name = {.bytes = sizeof name.storage};
    if (getpeername(a->fd, (struct sockaddr *)&name.storage, &name.bytes) == 0)
        taciti_socket_name_text(&name, m->out->names[peer]);
    taciti_socket_tune(a->fd, 2 * (m->request->timeout_s > 0 ? m->request->timeout_s : 15));
    *connection_of(m, peer, stream) = a->fd;
    m->connected++;
    a->fd = -1;
}

/* Returns 1 when the hello is complete, 0 while more must come, -1 when it never will; *why is then not NULL. */
static int read_hello(const mesh *m, attempt *a, taciti_hello *out, const char **why) {
    const ssize_t got = recv(a->fd, a->bytes + a->count, sizeof a->bytes - a->count, 0);
    *why = "it has closed the connection";
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) return -1;
    a->count += (size_t)got;
    *why = "it does not speak this protocol";
    if (taciti_hello_may_begin(a->bytes, a->count) == 0) return -1;
    if (a->count < sizeof a->bytes) return 0;
    taciti_hello expected = {
        .epoch = m->request->epoch, .to = m->request->rank, .size = m->request->size, .streams = m->streams};
    memcpy(expected.cookie, m->cookie, sizeof expected.cookie);
    *why = taciti_hello_read(a->bytes, &expected, out);
    return *why == NULL ? 1 : -1;
}

/* ---- to lower ranks ---------------------------------------------------------------------------------------------- */
static bool shares_host(const mesh *m, int peer) {
    return !m->request->only_tcp && memcmp(m->records[peer].host, m->mine.host, sizeof m->mine.host) == 0;
}

static void note_failure(mesh *m, attempt *a, const char *why, int64_t now) {
    (void)snprintf(m->reason, sizeof m->reason, "rank %d: %.100s", a->peer, why);
    end_attempt(a, now);
    if (++a->address < m->records[a->peer].addresses) return;
    a->address = shares_host(m, a->peer) ? -1 : 0;
    (void)read_record(m, a->peer, 0); /* the old one may be of an earlier run */
    if (a->peer != 0) (void)read_record(m, 0, 0);
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
    else if (!send_hello(m, a->fd, a->peer, a->stream))
        note_failure(m, a, strerror(errno), now);
}

static void hear_greeting(mesh *m, attempt *a, int64_t now) {
    taciti_hello hello;
    const char *why = NULL;
    int state = read_hello(m, a, &hello, &why);
    if (state > 0 && (hello.from != a->peer || hello.stream != a->stream)) state = -1, why = "it is another rank";
    if (state < 0) note_failure(m, a, why, now);
    if (state <= 0) return;
    adopt_connection(m, a, a->peer, a->stream);
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
    taciti_socket_name name = {.bytes = sizeof name.storage};
    char text[TACITI_ADDRESS_TEXT_BYTES] = "somewhere";
    if (getpeername(a->fd, (struct sockaddr *)&name.storage, &name.bytes) == 0) taciti_socket_name_text(&name, text);
    if (m->refusals++ < REFUSALS_LOGGED)
        taciti_log(TACITI_LOG_WARN, "rank %d refuses a connection from %s: %s", m->request->rank, text, why);
    end_attempt(a, now);
}

/* A rank that gave a connection up may come again; nobody may take the place of one that is there. */
static bool take_place(const mesh *m, int peer, int stream) {
    char byte;
    int *fd = connection_of(m, peer, stream);
    if (*fd < 0) return true;
    if (recv(*fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0) return false;
    (void)close(*fd);
    *fd = -1;
    return true;
}

static void hear_stranger(mesh *m, attempt *a, int64_t now) {
    taciti_hello hello;
    const char *why = NULL;
    const int state = read_hello(m, a, &hello, &why);
    if (state == 0) return;
    if (state > 0 && hello.from < m->request->rank) why = "it should wait for this rank's call";
    const bool fits = why == NULL, was_there = fits && *connection_of(m, hello.from, hello.stream) >= 0;
    if (fits && !take_place(m, hello.from, hello.stream)) why = "it is connected already";
    if (fits && was_there && why == NULL) m->connected--;
    if (why == NULL && !send_hello(m, a->fd, hello.from, hello.stream)) why = "it does not take an answer";
    if (why != NULL) {
        refuse_stranger(m, a, why, now);
        return;
    }
    adopt_connection(m, a, hello.from, hello.stream);
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

static tacit_status name_missing(const mesh *m) {
    int first = -1, missing = 0;
    char more[32] = "";
    for (int peer = 0; peer < m->request->size; peer++) {
        bool here = true;
        for (int s = 0; s < m->streams && peer != m->request->rank; s++) here = here && *connection_of(m, peer, s) >= 0;
        if (!here && missing++ == 0) first = peer;
    }
    if (missing > 1) (void)snprintf(more, sizeof more, " and %d more", missing - 1);
    return taciti_fail(TACIT_E_PEER, "rank %d: rank %d%s did not connect within %g s (comm.start)%s%s",
                       m->request->rank, first, more, m->request->start_s, m->reason[0] == 0 ? "" : "; ", m->reason);
}

static tacit_status connect_all(mesh *m) {
    const int wanted = (m->request->size - 1) * m->streams;
    while (m->connected < wanted) {
        poll_all(m);
        const int64_t now = taciti_now_ns();
        for (int i = 0; i < m->outgoing; i++) drive_attempt(m, &m->attempts[i], m->polls[LISTENERS + i].revents, now);
        for (int i = m->outgoing; i < m->count; i++)
            drive_stranger(m, &m->attempts[i], m->polls[LISTENERS + i].revents, now);
        accept_strangers(m, now);
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
        a->peer = i < m->outgoing ? i / m->streams : -1;
        a->stream = i % m->streams;
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
    for (int i = 0; failed && i < m->request->size * m->streams; i++) {
        if (m->out->fds[i] >= 0) (void)close(m->out->fds[i]);
        m->out->fds[i] = -1;
    }
    taciti_free(m->records);
    taciti_free(m->attempts);
    taciti_free(m->polls);
}

tacit_status taciti_tcp_connect(const taciti_tcp_request *request, int64_t end_ns, taciti_tcp_mesh *out) {
    mesh m = {.request = request, .out = out, .end_ns = end_ns, .listeners = {-1, -1}};
    m.streams = request->streams > 0 ? request->streams : 1;
    m.outgoing = request->rank * m.streams;
    m.count = m.outgoing + TACITI_TCP_STRANGERS_MAX;
    for (int i = 0; i < request->size * m.streams; i++) out->fds[i] = -1;
    m.records = taciti_calloc((size_t)request->rank + 1, sizeof *m.records);
    m.attempts = taciti_calloc((size_t)m.count, sizeof *m.attempts);
    m.polls = taciti_calloc((size_t)(LISTENERS + m.count), sizeof *m.polls);
    for (int i = 0; m.attempts != NULL && i < m.count; i++) m.attempts[i].fd = -1;
    tacit_status status = TACIT_E_MEMORY;
    if (m.records != NULL && m.attempts != NULL && m.polls != NULL) status = meet_ranks(&m);
    if (status == TACIT_OK) forget_record(&m);
    clean_up(&m, status != TACIT_OK);
    return status;
}

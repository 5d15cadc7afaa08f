/* SPDX-License-Identifier: Apache-2.0
 *
 * A bootstrap store in the memory of rank 0, served on a port. A request and its answer have the same form, `talk`.
 *
 * With a key (seal.h) each carries a proof behind the proofs of all before it, and a connection begins with 'H' of
 * either side, whose value is a random number: what was recorded is of no use.
 *
 * A get is answered at once; the reader asks again until its time is over, so that the server keeps no waiters.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/bootstrap.h"
#include "comm/quiet.h"
#include "comm/tcp_address.h"

#define IDLE_NS (5 * TACITI_NS_PER_S)

enum { VALUES_PER_RANK = 4, SPARE_CONNECTIONS = 16, OWN_FDS = 2, LOOK_MS = 1000, ANSWER_MS = 5000 };

static const uint8_t MAGIC[3] = {0xb5, 't', 'B'};

/* It travels as it lies in memory (the machine is little-endian: ckpt/sink.c insists), without a key up to `proof`. */
typedef struct talk {
    uint8_t magic[sizeof MAGIC];
    char op; /* 'S': set. 'G': get. Answers: 'V': done, or the value; 'N': none, but the line about the last connection
                that was refused */
    char key[TACITI_BOOTSTRAP_KEY_BYTES];
    uint16_t bytes; /* of the value */
    uint8_t value[TACITI_BOOTSTRAP_VALUE_BYTES];
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
} talk;

_Static_assert(sizeof(talk) == 6 + TACITI_BOOTSTRAP_KEY_BYTES + TACITI_BOOTSTRAP_VALUE_BYTES + TACITI_SEAL_PROOF_BYTES,
               "no gaps");

/* With a key: the last proof of a connection. */
typedef struct chain {
    bool begun; /* both sides have said 'H' */
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
} chain;

typedef struct connection {
    int64_t heard_ns;
    chain chain;
    size_t count; /* bytes of the question that have come */
    talk question;
} connection;

typedef struct port_store {
    taciti_socket_name name;
    char address[192];  /* as given and by whom, for messages */
    bool shared;        /* all hosts know `name` as this one does */
    int rank, size, fd; /* fd: rank 0's listener, or the connection to it or -1 */
    double timeout_s;
    bool sealed;
    taciti_seal_key key;
    taciti_refusals refusals; /* of other ranks: the last one that rank 0 has told */

    /* ---- other ranks ---- */
    chain chain;
    const char *trouble; /* what is wrong with rank 0 */
    bool answered;       /* rank 0 has answered once at least */

    /* ---- rank 0 ---- */
    pthread_t thread;
    int stop;             /* eventfd */
    pthread_mutex_t lock; /* of entries and refusals */
    talk *entries;        /* as they were set */
    int entry_count, entry_max;
    struct pollfd *polls; /* [OWN_FDS + connection_max]: listener, stop, connections */
    connection *connections;
    int connection_max;
} port_store;

/* ---- words ------------------------------------------------------------------------------------------------------- */

static talk make_talk(char op, const char *key, const void *value, size_t n) {
    talk t = {.op = op, .bytes = (uint16_t)n};
    memcpy(t.magic, MAGIC, sizeof MAGIC);
    (void)snprintf(t.key, sizeof t.key, "%s", key);
    if (n > 0) memcpy(t.value, value, n);
    return t;
}

static size_t talk_bytes(const port_store *store) { return store->sealed ? sizeof(talk) : offsetof(talk, proof); }

/* Returns true while `n` bytes may be the beginning of one. */
static bool may_begin(const talk *t, size_t n) { return memcmp(t, MAGIC, n < sizeof MAGIC ? n : sizeof MAGIC) == 0; }

/* ---- proofs ------------------------------------------------------------------------------------------------------ */
static void sign_talk(const port_store *store, chain *c, talk *t) {
    if (!store->sealed) return;
    taciti_seal_prove(&store->key, TACITI_SEAL_STORE, c->proof, t, offsetof(talk, proof), c->proof);
    memcpy(t->proof, c->proof, sizeof t->proof);
}

static bool check_talk(const port_store *store, chain *c, const talk *t) {
    if (!store->sealed) return true;
    taciti_seal_prove(&store->key, TACITI_SEAL_STORE, c->proof, t, offsetof(talk, proof), c->proof);
    return taciti_seal_proofs_match(c->proof, t->proof);
}

static bool make_greeting(talk *out) {
    uint8_t random[TACITI_SEAL_RANDOM_BYTES] = {0};
    const bool drawn = taciti_seal_draw(random);
    *out = make_talk('H', "", random, sizeof random);
    return drawn;
}

/* ---- the store, on rank 0 ---------------------------------------------------------------------------------------- */
static talk *find_entry(port_store *store, const char *key) {
    for (int i = 0; i < store->entry_count; i++)
        if (strcmp(store->entries[i].key, key) == 0) return &store->entries[i];
    return NULL;
}

/* With the lock. */
static bool put_entry(port_store *store, const talk *set) {
    talk *e = find_entry(store, set->key);
    if (e == NULL && store->entry_count == store->entry_max) return false;
    if (e == NULL) e = &store->entries[store->entry_count++];
    *e = *set;
    return true;
}

/* False: the question is refused. */
static bool answer_question(port_store *store, const talk *question, talk *answer) {
    const bool sets = question->op == 'S', gets = question->op == 'G' && question->bytes == 0;
    if (memchr(question->key, 0, sizeof question->key) == NULL || (!sets && !gets)) return false;
    (void)pthread_mutex_lock(&store->lock);
    const talk *e = gets ? find_entry(store, question->key) : NULL;
    const char *refusal = store->refusals.last;
    const bool fine = gets || put_entry(store, question);
    if (gets && e == NULL)
        *answer = make_talk('N', "", refusal, strlen(refusal));
    else
        *answer = make_talk('V', "", e == NULL ? NULL : e->value, e == NULL ? 0 : e->bytes);
    (void)pthread_mutex_unlock(&store->lock);
    return fine;
}

/* ---- the server -------------------------------------------------------------------------------------------------- */
static void drop_connection(port_store *store, int i) {
    (void)close(store->polls[OWN_FDS + i].fd);
    store->polls[OWN_FDS + i].fd = -1;
}

static void accept_connections(port_store *store, int64_t now) {
    for (int i = 0; i < store->connection_max; i++) {
        if (store->polls[OWN_FDS + i].fd >= 0) continue;
        const int fd = taciti_socket_accept(store->fd);
        if (fd < 0) return;
        store->polls[OWN_FDS + i] = (struct pollfd){.fd = fd, .events = POLLIN};
        store->connections[i].heard_ns = now;
        store->connections[i].count = 0;
        store->connections[i].chain = (chain){0};
    }
}

/* Returns why the connection is not answered, as far as its first bytes tell, or NULL. */
static const char *judge_head(const port_store *store, const connection *c) {
    const bool greets = c->count > sizeof MAGIC && c->question.op == 'H';
    if (!may_begin(&c->question, c->count)) return "it does not speak this protocol";
    if (c->count <= sizeof MAGIC || greets == (store->sealed && !c->chain.begun)) return NULL;
    if (!store->sealed) return "it has a comm.key_file, and this rank has none";
    return greets ? "it begins twice" : "it has no comm.key_file";
}

/* False: the question is refused. */
static bool answer_connection(port_store *store, connection *c, talk *answer) {
    if (c->question.op != 'H') return answer_question(store, &c->question, answer);
    c->chain.begun = make_greeting(answer);
    return c->chain.begun;
}

/* Returns why the connection shall be closed, or NULL. */
static const char *serve_connection(port_store *store, int i, int64_t now) {
    connection *c = &store->connections[i];
    const int fd = store->polls[OWN_FDS + i].fd;
    const size_t bytes = talk_bytes(store);
    const ssize_t got = recv(fd, (uint8_t *)&c->question + c->count, bytes - c->count, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return NULL;
    if (got <= 0) return "";
    c->count += (size_t)got;
    const char *refusal = judge_head(store, c);
    if (refusal != NULL || c->count < bytes) return refusal;
    if (c->question.bytes > sizeof c->question.value) return "it asks what cannot be";
    if (!check_talk(store, &c->chain, &c->question)) return "it has another comm.key_file";
    talk answer;
    if (!answer_connection(store, c, &answer)) return "it asks what cannot be";
    sign_talk(store, &c->chain, &answer);
    c->count = 0;
    c->heard_ns = now;
    return send(fd, &answer, bytes, MSG_NOSIGNAL) == (ssize_t)bytes ? NULL : "";
}

/* Serves the connection if it has said something; closes it if it must. */
static void drive_connection(port_store *store, int i, int64_t now) {
    const struct pollfd *p = &store->polls[OWN_FDS + i];
    const char *refusal = p->revents != 0 ? serve_connection(store, i, now) : NULL;
    if (refusal == NULL && now - store->connections[i].heard_ns < IDLE_NS) return;
    if (refusal != NULL && *refusal != 0) {
        (void)pthread_mutex_lock(&store->lock);
        taciti_socket_refuse(&store->refusals, "the meeting place", p->fd, refusal);
        (void)pthread_mutex_unlock(&store->lock);
    }
    drop_connection(store, i);
}

/* The listener is looked at only while there is room. */
static bool has_room(const port_store *store) {
    for (int i = 0; i < store->connection_max; i++)
        if (store->polls[OWN_FDS + i].fd < 0) return true;
    return false;
}

static void *serve_store(void *argument) {
    port_store *store = argument;
    for (;;) {
        store->polls[0].events = has_room(store) ? POLLIN : 0;
        (void)poll(store->polls, (nfds_t)(OWN_FDS + store->connection_max), LOOK_MS);
        if (store->polls[1].revents != 0) return NULL;
        const int64_t now = taciti_now_ns();
        for (int i = 0; i < store->connection_max; i++)
            if (store->polls[OWN_FDS + i].fd >= 0) drive_connection(store, i, now);
        accept_connections(store, now);
    }
}

static void destroy_server(port_store *store) {
    for (int i = 0; store->polls != NULL && i < store->connection_max; i++)
        if (store->polls[OWN_FDS + i].fd >= 0) drop_connection(store, i);
    taciti_free(store->entries);
    taciti_free(store->polls);
    taciti_free(store->connections);
    if (store->stop >= 0) (void)close(store->stop);
}

/* Others may know this host by an address that no interface has, like that of a router. */
static int listen_at(const port_store *store) {
    const taciti_socket_name any = taciti_socket_name_any(&store->name);
    const int fd = taciti_socket_listen(store->shared ? &store->name : &any, true);
    return fd < 0 && errno == EADDRNOTAVAIL ? taciti_socket_listen(&any, true) : fd;
}

static tacit_status allocate_server(port_store *store) {
    store->entry_max = VALUES_PER_RANK * store->size;
    store->connection_max = store->size + SPARE_CONNECTIONS;
    store->entries = taciti_calloc((size_t)store->entry_max, sizeof *store->entries);
    store->connections = taciti_calloc((size_t)store->connection_max, sizeof *store->connections);
    store->polls = taciti_calloc((size_t)(OWN_FDS + store->connection_max), sizeof *store->polls);
    for (int i = 0; store->polls != NULL && i < store->connection_max; i++) store->polls[OWN_FDS + i].fd = -1;
    if (store->entries == NULL || store->connections == NULL || store->polls == NULL) return TACIT_E_MEMORY;
    store->stop = eventfd(0, EFD_CLOEXEC);
    if (store->stop >= 0) return TACIT_OK;
    return taciti_fail(TACIT_E_MEMORY, "rank 0 cannot open the meeting place: %s", strerror(errno));
}

static tacit_status start_server(port_store *store) {
    TACITI_TRY(allocate_server(store));
    store->fd = listen_at(store);
    if (store->fd < 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "rank 0 cannot listen on %s: %s; start the ranks with another port, or set comm.meet to "
                           "HOST:PORT of rank 0 with a free port, or to a folder that all ranks see",
                           store->address, strerror(errno));
    store->polls[0] = (struct pollfd){.fd = store->fd, .events = POLLIN};
    store->polls[1] = (struct pollfd){.fd = store->stop, .events = POLLIN};
    const int error = taciti_thread_start_quiet(&store->thread, serve_store, store);
    if (error == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_MEMORY, "the system refused a thread: %s", strerror(error));
}

/* ---- a client ---------------------------------------------------------------------------------------------------- */
static void hang_up(port_store *store) {
    if (store->fd >= 0) (void)close(store->fd);
    store->fd = -1;
    store->chain = (chain){0};
}

static bool wait_for(int fd, short events, int timeout_ms) {
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, timeout_ms) == 1;
}

static bool connect_once(port_store *store) {
    if (store->fd >= 0) return true;
    store->fd = taciti_socket_connect(&store->name);
    if (store->fd >= 0 && wait_for(store->fd, POLLOUT, ANSWER_MS) && taciti_socket_connect_error(store->fd) == 0)
        return true;
    hang_up(store);
    return false;
}

/* Sends a question and reads its answer. Returns false, without a connection, if that fails. */
static bool exchange_words(port_store *store, talk *question, talk *answer) {
    const size_t bytes = talk_bytes(store);
    sign_talk(store, &store->chain, question);
    bool fine = send(store->fd, question, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
    for (size_t n = 0; fine && n < bytes;) {
        const bool heard = wait_for(store->fd, POLLIN, ANSWER_MS);
        const ssize_t got = heard ? recv(store->fd, (uint8_t *)answer + n, bytes - n, 0) : 0;
        if (got > 0) n += (size_t)got;
        fine = got > 0 && may_begin(answer, n);
    }
    fine = fine && answer->bytes <= sizeof answer->value && check_talk(store, &store->chain, answer);
    if (!fine) hang_up(store);
    return fine;
}

/* With a key: begins the conversation. */
static bool greet_server(port_store *store) {
    talk greeting, answer;
    if (!store->sealed || store->chain.begun) return true;
    store->chain.begun = make_greeting(&greeting) && exchange_words(store, &greeting, &answer) && answer.op == 'H';
    return store->chain.begun;
}

/* As exchange_words(), from the beginning. */
static bool ask_rank_0(port_store *store, talk *question, talk *answer) {
    if (!connect_once(store)) return false;
    if (!store->answered)
        store->trouble =
            store->sealed ? "does not prove this rank's comm.key_file" : "gives no answer (has it a comm.key_file?)";
    return greet_server(store) && exchange_words(store, question, answer);
}

/* Rank 0 asks itself. It has closed a connection that asked nothing for a while: that it still answers, a fresh one
 * shows. */
static bool ask_once(port_store *store, talk *question, talk *answer) {
    if (store->rank == 0) return answer_question(store, question, answer);
    const bool open = store->fd >= 0;
    const bool fine = ask_rank_0(store, question, answer) || (open && ask_rank_0(store, question, answer));
    if (fine) store->trouble = "no longer answers"; /* what an error says from now on */
    store->answered = store->answered || fine;
    return fine;
}

/* A rank that is missing may be one that rank 0 has refused. */
static void note_refusal(port_store *store, const talk *answer) {
    if (store->rank == 0) return;
    (void)snprintf(store->refusals.last, sizeof store->refusals.last, "%.*s", (int)answer->bytes,
                   (const char *)answer->value);
}

/* Asks until the answer is 'V'. E_PEER: it is not, after timeout_s; PENDING: the program has ended the wait. *reached:
 * rank 0 has answered. */
static tacit_status ask_until(port_store *store, talk *question, double timeout_s, talk *answer, bool *reached) {
    const int64_t begin_ns = taciti_now_ns(), end_ns = begin_ns + (int64_t)(timeout_s * 1e9);
    if (!store->answered) store->trouble = "cannot be reached";
    int64_t nap_ns = 0;
    do {
        *reached = ask_once(store, question, answer);
        if (*reached && answer->op == 'V') return TACIT_OK;
        if (*reached) note_refusal(store, answer);
        TACITI_TRY(taciti_interrupt_check(begin_ns));
    } while (taciti_sleep_between_looks(end_ns, &nap_ns));
    return TACIT_E_PEER;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */
static tacit_status port_set(void *self, const char *key, const void *bytes, size_t n) {
    port_store *store = self;
    talk question = make_talk('S', key, bytes, n), answer;
    bool reached = false;
    const tacit_status status = ask_until(store, &question, store->rank == 0 ? 0 : store->timeout_s, &answer, &reached);
    if (status != TACIT_E_PEER) return status;
    if (store->rank == 0) return taciti_fail(TACIT_E_INTERNAL, "more than %d bootstrap values", store->entry_max);
    return taciti_fail(TACIT_E_PEER, "rank %d: rank 0 at %s %s for %g s", store->rank, store->address, store->trouble,
                       store->timeout_s);
}

/* Sets the error text to these words and the last connection that rank 0 has refused. */
static void say_missing(port_store *store, const char *subject, const char *what) {
    (void)pthread_mutex_lock(&store->lock);
    const char *refusal = store->refusals.last;
    taciti_error_set("%s %s%s%s", subject, what, *refusal == 0 ? "" : "; ", refusal);
    (void)pthread_mutex_unlock(&store->lock);
}

static tacit_status port_get(void *self, const char *key, void *bytes, size_t max, size_t *n, double timeout_s) {
    port_store *store = self;
    talk question = make_talk('G', key, NULL, 0), answer;
    bool reached = false;
    const tacit_status status = ask_until(store, &question, timeout_s, &answer, &reached);
    if (status == TACIT_PENDING) return status;
    if (status != TACIT_OK) {
        char server[sizeof store->address + 16];
        (void)snprintf(server, sizeof server, "rank 0 at %s", store->address);
        say_missing(store, reached ? key : server, reached ? "has published nothing" : store->trouble);
        return TACIT_E_PEER;
    }
    if (answer.bytes > max) return taciti_fail(TACIT_E_DATA, "%s has more than %zu bytes", key, max);
    memcpy(bytes, answer.value, answer.bytes);
    *n = answer.bytes;
    return TACIT_OK;
}

static void destroy_store(port_store *store) {
    destroy_server(store);
    hang_up(store);
    taciti_seal_key_forget(&store->key);
    (void)pthread_mutex_destroy(&store->lock);
    taciti_free(store);
}

tacit_status taciti_bootstrap_port_open(const char *address, const char *origin, int rank, int size, double timeout_s,
                                        const taciti_seal_key *key, taciti_bootstrap *out) {
    port_store *store = taciti_calloc(1, sizeof *store);
    if (store == NULL) return TACIT_E_MEMORY;
    store->rank = rank, store->size = size, store->timeout_s = timeout_s;
    store->fd = store->stop = -1;
    store->sealed = key != NULL;
    if (key != NULL) store->key = *key;
    (void)snprintf(store->address, sizeof store->address, "%s%s%s%s", address, origin == NULL ? "" : " (",
                   origin == NULL ? "" : origin, origin == NULL ? "" : ")");
    (void)pthread_mutex_init(&store->lock, NULL);
    tacit_status status = taciti_socket_name_resolve(address, origin, &store->name);
    store->shared = status == TACIT_OK && taciti_socket_name_is_shared(address, &store->name);
    if (status == TACIT_OK && rank == 0) status = start_server(store);
    if (status == TACIT_OK)
        *out = (taciti_bootstrap){.self = store, .set = port_set, .get = port_get};
    else
        destroy_store(store);
    return status;
}

void taciti_bootstrap_port_close(taciti_bootstrap *bootstrap) {
    port_store *store = bootstrap->self;
    if (store == NULL) return;
    if (store->rank == 0) {
        (void)eventfd_write(store->stop, 1);
        (void)pthread_join(store->thread, NULL);
    }
    destroy_store(store);
    bootstrap->self = NULL;
}

void taciti_bootstrap_port_local_address(const taciti_bootstrap *bootstrap, char *out, size_t bytes) {
    const port_store *store = bootstrap->self;
    taciti_socket_name mine = {.bytes = sizeof mine.storage};
    taciti_tcp_address addresses[TACITI_RECORD_ADDRESSES];
    /* Rank 0 may not have come up yet: the system's routes tell. */
    const bool known = store->rank == 0 ? getsockname(store->fd, &mine.address, &mine.bytes) == 0
                                        : taciti_socket_name_towards(&store->name, &mine);
    out[0] = 0;
    if (known && store->shared)
        (void)getnameinfo(&mine.address, mine.bytes, out, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST);
    if (taciti_tcp_addresses_find(out, addresses) == 0) out[0] = 0;
}

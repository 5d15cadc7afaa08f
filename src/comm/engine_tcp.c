/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/engine_tcp.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/guard.h"
#include "comm/tcp_connect.h"
#include "comm/tcp_peer.h"

#define ABORT_NS (TACITI_NS_PER_S / 5)
#define CLOSE_NS (5 * TACITI_NS_PER_S)
#define NAP_MAX_NS (10 * TACITI_NS_PER_MS)

/* A rank that waits for another one of its host looks at the memory they share for so long before it sleeps, if waits
 * have been shorter than that lately. */
#define SPIN_NS INT64_C(100000)
#define POLL_NS (5 * TACITI_NS_PER_MS)

enum {
    EVENTS = 64,
    SPARE_FILES = 256,    /* those of the meeting place, of strangers and of the caller */
    WAITS_KEPT = 4,       /* of which a mean is taken */
    SPINS_PER_POLL = 32,  /* looks at memory for one at the sockets, if there are peers on other hosts */
    SPINS_PER_YIELD = 32, /* where each rank may have a core */
    SPINS_PER_CLOCK = 16
};

typedef struct engine_tcp {
    struct engine_tcp *next; /* of those that are open in this process */
    int rank, size;
    int epoll;
    bool forked;            /* this process is a fork of the one that opened it */
    taciti_tcp_peer *peers; /* [size] */
    taciti_tcp_pool pool;

    taciti_tcp_peer **local; /* [local_count]: those that share memory with this rank */
    int local_count;
    int sockets;       /* other peers */
    bool crowded;      /* this host has more ranks than cores */
    bool looked;       /* a wait has looked at everything just now */
    int64_t polled_ns; /* when a test last looked at the sockets of peers that share memory */
    int64_t wait_ns;   /* how long something took to move: mean of the last few waits */
} engine_tcp;

/* ---- fork --------------------------------------------------------------------------------------------------------
 * A child that kept the sockets open would hide the end of its parent from the peers, and two processes that write to
 * one connection would spoil it. */
static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    engine_tcp *first;
} g_open = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void lock_engines(void) { (void)pthread_mutex_lock(&g_open.lock); }

static void unlock_engines(void) { (void)pthread_mutex_unlock(&g_open.lock); }

static void leave_sockets_to_parent(void) {
    for (engine_tcp *tcp = g_open.first; tcp != NULL; tcp = tcp->next) {
        for (int i = 0; i < tcp->size; i++) taciti_tcp_link_close(&tcp->peers[i].link);
        (void)close(tcp->epoll);
        tcp->epoll = -1;
        tcp->forked = true;
    }
    unlock_engines();
}

static void watch_forks(void) { (void)pthread_atfork(lock_engines, unlock_engines, leave_sockets_to_parent); }

static void register_engine(engine_tcp *tcp) {
    (void)pthread_once(&g_open.once, watch_forks);
    lock_engines();
    tcp->next = g_open.first;
    g_open.first = tcp;
    unlock_engines();
}

static void unregister_engine(const engine_tcp *tcp) {
    lock_engines();
    engine_tcp **at = &g_open.first;
    while (*at != NULL && *at != tcp) at = &(*at)->next;
    if (*at != NULL) *at = tcp->next;
    unlock_engines();
}

static tacit_status refuse_fork(const engine_tcp *tcp) {
    return taciti_fail(TACIT_E_USAGE,
                       "this process is a fork of rank %d and cannot use its connections: open a communicator of its "
                       "own, or start it before the parent opens one",
                       tcp->rank);
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */
static bool watch_peer(const engine_tcp *tcp, taciti_tcp_peer *peer, int operation, bool out) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    if (out) event.events |= EPOLLOUT;
    peer->link.watches_out = out;
    return peer->link.fd < 0 || epoll_ctl(tcp->epoll, operation, peer->link.fd, &event) == 0;
}

/* Nobody waits for a socket to take more where memory carries the bytes: look_at_memory() sees the room, and a sleeper
 * hears the bell. */
static void write_peer(const engine_tcp *tcp, taciti_tcp_peer *peer) {
    taciti_tcp_peer_write(peer);
    const bool out = peer->link.memory == NULL && taciti_tcp_peer_wants_out(peer);
    if (out != peer->link.watches_out) (void)watch_peer(tcp, peer, EPOLL_CTL_MOD, out);
}

static void serve_peer(const engine_tcp *tcp, taciti_tcp_peer *peer, bool readable) {
    if (readable) taciti_tcp_peer_read(peer);
    if (peer->abort_code >= 0) taciti_guard_end_process(peer->abort_code);
    write_peer(tcp, peer);
}

/* Looks at every connection where something can move, once; waits for one for up to timeout_ms. Returns false if there
 * was none. */
static bool look_at_sockets(const engine_tcp *tcp, int timeout_ms) {
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(tcp->epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) {
        taciti_tcp_peer *peer = events[i].data.ptr;
        if (peer->link.fd < 0) continue; /* closed by an event before this one */
        if (peer->link.memory != NULL) taciti_tcp_link_hear(&peer->link);
        serve_peer(tcp, peer, (events[i].events & ~(uint32_t)EPOLLOUT) != 0);
    }
    return count > 0;
}

static bool can_move(const taciti_tcp_peer *peer) {
    const taciti_tcp_memory *memory = peer->link.memory;
    if (memory == NULL) return false; /* lost */
    return taciti_tcp_memory_has_bytes(memory) ||
           (taciti_tcp_peer_wants_out(peer) && taciti_tcp_memory_has_room(memory));
}

/* The same for memory. */
static bool look_at_memory(const engine_tcp *tcp) {
    bool moved = false;
    for (int i = 0; i < tcp->local_count; i++) {
        if (!can_move(tcp->local[i])) continue;
        serve_peer(tcp, tcp->local[i], true);
        moved = true;
    }
    return moved;
}

/* The sockets of peers that share memory only tell of their end. */
static void make_progress(engine_tcp *tcp) {
    const bool moved = look_at_memory(tcp);
    if (tcp->sockets == 0 && tcp->local_count > 0) {
        const int64_t now_ns = moved ? 0 : taciti_now_ns();
        if (moved || now_ns - tcp->polled_ns < POLL_NS) return;
        tcp->polled_ns = now_ns;
    }
    (void)look_at_sockets(tcp, 0);
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */
/* Looks until something has moved, or until end_ns. */
static bool watch_memory(const engine_tcp *tcp, int64_t end_ns) {
    for (uint32_t turn = 1; turn % SPINS_PER_CLOCK != 0 || taciti_now_ns() < end_ns; turn++) {
        if (look_at_memory(tcp)) return true;
        if (tcp->sockets > 0 && turn % SPINS_PER_POLL == 0 && look_at_sockets(tcp, 0)) return true;
        if (tcp->crowded || turn % SPINS_PER_YIELD == 0)
            (void)sched_yield();
        else
            taciti_relax_core();
    }
    return false;
}

/* From now on peers ring the bell. Returns false if one of them had something before. */
static bool lie_down(const engine_tcp *tcp) {
    bool quiet = true;
    for (int i = 0; i < tcp->local_count; i++) {
        const taciti_tcp_peer *peer = tcp->local[i];
        if (peer->link.memory != NULL) taciti_tcp_memory_sleep(peer->link.memory, taciti_tcp_peer_wants_out(peer));
    }
    for (int i = 0; i < tcp->local_count; i++) quiet = quiet && !can_move(tcp->local[i]);
    return quiet;
}

static void get_up(const engine_tcp *tcp) {
    for (int i = 0; i < tcp->local_count; i++)
        if (tcp->local[i]->link.memory != NULL) taciti_tcp_memory_wake(tcp->local[i]->link.memory);
}

static bool sleep_for(const engine_tcp *tcp, int64_t ns) {
    const int timeout_ms = (int)((ns + TACITI_NS_PER_MS - 1) / TACITI_NS_PER_MS);
    const bool moved = look_at_sockets(tcp, lie_down(tcp) ? timeout_ms : 0);
    get_up(tcp);
    return look_at_memory(tcp) || moved;
}

static void learn_wait(engine_tcp *tcp, int64_t waited_ns) {
    const int64_t counted_ns = waited_ns < WAITS_KEPT * SPIN_NS ? waited_ns : WAITS_KEPT * SPIN_NS;
    tcp->wait_ns += (counted_ns - tcp->wait_ns) / WAITS_KEPT;
}

static tacit_status tcp_wait(void *self, int64_t ns) {
    engine_tcp *tcp = self;
    if (tcp->forked) return refuse_fork(tcp);
    const int64_t begin_ns = taciti_now_ns();
    const bool spins = tcp->local_count > 0 && tcp->wait_ns < SPIN_NS;
    const bool moved = (spins && watch_memory(tcp, begin_ns + SPIN_NS)) || sleep_for(tcp, ns);
    if (moved && tcp->local_count > 0) learn_wait(tcp, taciti_now_ns() - begin_ns);
    tcp->looked = true;
    return TACIT_OK;
}

/* ---- requests ----------------------------------------------------------------------------------------------------
 * opaque[0] points to the message; 0: it was done before the call returned, and request->bytes is set. */
static tacit_status check_peer(const engine_tcp *tcp, int peer) {
    if (tcp->forked) return refuse_fork(tcp);
    if (peer >= 0 && peer < tcp->size && peer != tcp->rank) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "rank %d has no peer of rank %d", tcp->rank, peer);
}

static void fill_request(taciti_tcp_message *m, size_t bytes, taciti_engine_request *out) {
    out->opaque[0] = m->done ? 0 : (uintptr_t)m;
    out->bytes = bytes;
    if (m->done) taciti_tcp_message_release(m);
}

static tacit_status tcp_isend(void *self, int peer, int tag, const void *bytes, size_t count,
                              taciti_engine_request *out) {
    engine_tcp *tcp = self;
    taciti_tcp_message *m = NULL;
    TACITI_TRY(check_peer(tcp, peer));
    TACITI_TRY(taciti_tcp_peer_send(&tcp->peers[peer], tag, bytes, count, &m));
    write_peer(tcp, &tcp->peers[peer]);
    fill_request(m, count, out);
    return TACIT_OK;
}

static tacit_status tcp_irecv(void *self, int peer, int tag, void *bytes, size_t count, taciti_engine_request *out) {
    engine_tcp *tcp = self;
    taciti_tcp_message *m = NULL;
    TACITI_TRY(check_peer(tcp, peer));
    TACITI_TRY(taciti_tcp_peer_receive(&tcp->peers[peer], tag, bytes, count, &m));
    if (tcp->peers[peer].out.first != NULL) write_peer(tcp, &tcp->peers[peer]);
    fill_request(m, m->total, out);
    return TACIT_OK;
}

/* The peer of a message that will never be done. The detector logs it. */
static tacit_status report_loss(const taciti_tcp_peer *peer) {
    taciti_error_set("%s: %s", peer->name, peer->why);
    return TACIT_E_PEER;
}

static tacit_status tcp_test(void *self, taciti_engine_request *request, bool *done) {
    engine_tcp *tcp = self;
    taciti_tcp_message *m = (taciti_tcp_message *)request->opaque[0]; /* NOLINT: kept as a number */
    *done = false;
    if (tcp->forked) return refuse_fork(tcp);
    if (m != NULL && !m->done && !tcp->looked) make_progress(tcp);
    tcp->looked = false;
    if (m != NULL && !m->done) return m->peer->lost ? report_loss(m->peer) : TACIT_OK;
    *done = true;
    if (m == NULL) return TACIT_OK;
    fill_request(m, m->frame.kind == 0 ? m->total : m->count, request);
    return TACIT_OK;
}

static const char *tcp_lost(void *self, int peer) {
    const engine_tcp *tcp = self;
    return peer != tcp->rank && tcp->peers[peer].lost ? tcp->peers[peer].why : NULL;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */
static void tell_all(engine_tcp *tcp, taciti_frame_kind kind, uint64_t value) {
    for (int i = 0; i < tcp->size; i++) {
        if (i == tcp->rank || tcp->peers[i].lost) continue;
        (void)taciti_tcp_peer_tell(&tcp->peers[i], kind, value);
        write_peer(tcp, &tcp->peers[i]);
    }
}

static bool is_quiet(const engine_tcp *tcp, bool both_ways) {
    for (int i = 0; i < tcp->size; i++) {
        const taciti_tcp_peer *peer = &tcp->peers[i];
        if (i == tcp->rank || peer->lost) continue;
        if (taciti_tcp_peer_wants_out(peer)) return false;
        if (both_ways && !peer->heard_goodbye) return false;
    }
    return true;
}

/* Returns when everything is written and, if wanted, all have said goodbye, or when the time is over. */
static void drain_out(engine_tcp *tcp, bool both_ways, int64_t max_ns) {
    const int64_t end_ns = taciti_now_ns() + max_ns;
    while (!is_quiet(tcp, both_ways) && taciti_now_ns() < end_ns) {
        (void)tcp_wait(tcp, NAP_MAX_NS);
    }
}

static void tcp_abort(void *self, int exit_code) {
    engine_tcp *tcp = self;
    if (!tcp->forked) {
        tell_all(tcp, TACITI_FRAME_ABORT, (uint64_t)(exit_code & 255));
        drain_out(tcp, false, ABORT_NS);
    }
    taciti_guard_end_process(exit_code);
}

static void tcp_drop(void *self) {
    engine_tcp *tcp = self;
    unregister_engine(tcp);
    for (int i = 0; tcp->peers != NULL && i < tcp->size; i++) taciti_tcp_link_close(&tcp->peers[i].link);
    if (tcp->epoll >= 0) (void)close(tcp->epoll);
    taciti_tcp_pool_destroy(&tcp->pool);
    taciti_free(tcp->local);
    taciti_free(tcp->peers);
    taciti_free(tcp);
}

static void tcp_close(void *self) {
    engine_tcp *tcp = self;
    if (!tcp->forked) {
        tell_all(tcp, TACITI_FRAME_GOODBYE, 0);
        drain_out(tcp, true, CLOSE_NS);
    }
    tcp_drop(tcp);
}

/* ---- open -------------------------------------------------------------------------------------------------------- */
static tacit_status refuse_watch(const engine_tcp *tcp) {
    return taciti_fail(TACIT_E_MEMORY, "rank %d: the system refuses to watch its connections: %s", tcp->rank,
                       strerror(errno));
}

/* ---- memory: the lower rank of a pair offers it, the higher one takes it ---- */
static bool is_unix(const taciti_tcp_link *link) {
    int domain = 0;
    socklen_t bytes = sizeof domain;
    return getsockopt(link->fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

static tacit_status refuse_peer(const engine_tcp *tcp, int peer) {
    return taciti_fail(TACIT_E_PEER, "rank %d: %s went away while all were connecting", tcp->rank,
                       tcp->peers[peer].name);
}

static tacit_status offer_memory(engine_tcp *tcp, bool wanted, const char **why) {
    for (int peer = tcp->rank + 1; peer < tcp->size; peer++) {
        taciti_tcp_link *link = &tcp->peers[peer].link;
        if (is_unix(link) && taciti_tcp_memory_offer(link->fd, wanted, &link->memory, why) != TACIT_OK)
            return refuse_peer(tcp, peer);
    }
    return TACIT_OK;
}

static tacit_status accept_memory(engine_tcp *tcp, bool wanted, int64_t end_ns, const char **why) {
    for (int peer = 0; peer < tcp->size; peer++) {
        taciti_tcp_link *link = &tcp->peers[peer].link;
        if (peer == tcp->rank || !is_unix(link)) continue;
        const tacit_status status = peer < tcp->rank
                                        ? taciti_tcp_memory_accept(link->fd, wanted, end_ns, &link->memory, why)
                                        : taciti_tcp_memory_confirm(link->fd, end_ns, &link->memory);
        if (status != TACIT_OK) return refuse_peer(tcp, peer);
        if (link->memory != NULL) tcp->local[tcp->local_count++] = &tcp->peers[peer];
    }
    return TACIT_OK;
}

static bool is_crowded(const engine_tcp *tcp) {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && tcp->local_count + 1 > CPU_COUNT(&cores);
}

static tacit_status share_memory(engine_tcp *tcp, bool wanted, int64_t end_ns) {
    const char *why = NULL;
    TACITI_TRY(offer_memory(tcp, wanted, &why));
    TACITI_TRY(accept_memory(tcp, wanted, end_ns, &why));
    tcp->sockets = tcp->size - 1 - tcp->local_count;
    tcp->crowded = is_crowded(tcp);
    if (why != NULL)
        taciti_log(TACITI_LOG_WARN, "rank %d does not share memory with all ranks of its host, which is slower: %s",
                   tcp->rank, why);
    return TACIT_OK;
}

static tacit_status connect_engine(engine_tcp *tcp, const taciti_tcp_request *request) {
    const int64_t end_ns = taciti_now_ns() + (int64_t)(request->start_s * 1e9);
    tcp->peers = taciti_calloc((size_t)tcp->size, sizeof *tcp->peers);
    tcp->local = taciti_calloc((size_t)tcp->size, sizeof *tcp->local);
    for (int i = 0; tcp->peers != NULL && i < tcp->size; i++)
        tcp->peers[i] = (taciti_tcp_peer){.rank = i, .link = {.fd = -1}, .pool = &tcp->pool, .abort_code = -1};
    if (tcp->peers == NULL || tcp->local == NULL) return TACIT_E_MEMORY;
    taciti_file_allow((size_t)(tcp->size + SPARE_FILES));
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (tcp->epoll < 0) return refuse_watch(tcp);
    TACITI_TRY(taciti_tcp_connect(request, end_ns, tcp->peers));
    for (int rank = 0; rank < tcp->size; rank++)
        if (!watch_peer(tcp, &tcp->peers[rank], EPOLL_CTL_ADD, false)) return refuse_watch(tcp);
    return share_memory(tcp, !request->no_memory, end_ns);
}

static tacit_status check_request(const taciti_tcp_request *r) {
    if (r->size >= 1 && r->rank >= 0 && r->rank < r->size) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "rank %d of %d cannot be", r->rank, r->size);
}

static void fill_table(engine_tcp *tcp, bool sealed, taciti_engine *out) {
    *out = (taciti_engine){.name = "tcp",
                           .self = tcp,
                           .rank = tcp->rank,
                           .size = tcp->size,
                           .any_thread = true,
                           .keeps_buffers = true,
                           .isend = tcp_isend,
                           .irecv = tcp_irecv,
                           .test = tcp_test,
                           .wait = tcp_wait,
                           .lost = tcp_lost,
                           .abort = tcp_abort,
                           .close = tcp_close,
                           .drop = tcp_drop};
    (void)snprintf(out->library, sizeof out->library, "TCP, 1 connection per pair%s", sealed ? ", sealed" : "");
}

tacit_status taciti_engine_tcp_open(const taciti_tcp_request *request, taciti_engine *out) {
    TACITI_TRY(check_request(request));
    engine_tcp *tcp = taciti_calloc(1, sizeof *tcp);
    if (tcp == NULL) return TACIT_E_MEMORY;
    tcp->rank = request->rank, tcp->size = request->size;
    tcp->epoll = -1;
    const tacit_status status = connect_engine(tcp, request);
    if (status != TACIT_OK) {
        tcp_drop(tcp);
        return status;
    }
    register_engine(tcp);
    fill_table(tcp, request->key != NULL, out);
    return TACIT_OK;
}

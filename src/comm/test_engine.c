/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/test_engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/engine_tcp.h"

#define NAP_NS INT64_C(100000)

enum { TAG_DATA = 1, TAG_BEAT = 2, EAGER_BYTES = 4096, MAX_RANKS = 40, MAX_LINES = 64, LINE_BYTES = 512 };

/* A posted send or receive. After a failure nobody tests it any more, so the world keeps them all to the end. */
typedef struct post {
    struct post *next; /* in the queue of pending ones */
    struct post *older;
    bool receive;
    _Atomic uint32_t complete, slept_on;
    int from, to, tag;
    char *out; /* receive: where to */
    const char *in;
    char *copy; /* eager send; owned */
    size_t count;
    size_t arrived; /* receive: bytes of the message */
} post;

struct test_world {
    int size;
    struct seat {
        pthread_mutex_t lock;
        post *pending; /* to this rank, not matched yet, oldest first */
        post *newest;
        _Atomic(post *) asked; /* what was tested last */
        test_world *world;
        int rank;
        char host[64];
        _Atomic uint64_t bytes_to_other_hosts;
    } seats[MAX_RANKS];
};

static void fail(const char *why) {
    (void)fprintf(stderr, "test engine: %s\n", why);
    abort();
}

static void *need(void *block) {
    if (block == NULL) fail("out of memory");
    return block;
}

static bool fits(const post *a, const post *b) {
    return a->receive != b->receive && a->from == b->from && a->tag == b->tag;
}

static void complete(post *p) {
    atomic_store(&p->complete, 1);
    if (atomic_load(&p->slept_on) != 0) taciti_futex_wake(&p->complete);
}

static void deliver(post *send, post *receive) {
    const size_t room = send->count < receive->count ? send->count : receive->count;
    if (room > 0) memcpy(receive->out, send->in, room);
    receive->arrived = send->count;
    taciti_free(send->copy);
    send->copy = NULL;
    complete(send);
    complete(receive);
}

/* Returns the post that fits, out of the queue; NULL: this one is queued now. */
static post *match_or_queue(struct seat *to, post *mine) {
    mine->older = to->newest;
    to->newest = mine;
    post **at = &to->pending;
    while (*at != NULL && !fits(*at, mine)) at = &(*at)->next;
    post *other = *at;
    *at = other == NULL ? mine : other->next;
    if (other != NULL) other->next = NULL;
    return other;
}

static void match(struct seat *to, post *mine) {
    (void)pthread_mutex_lock(&to->lock);
    post *other = match_or_queue(to, mine);
    if (other != NULL) deliver(mine->receive ? other : mine, mine->receive ? mine : other);
    (void)pthread_mutex_unlock(&to->lock);
}

/* Takes what `rank` has posted out of the queue, but for messages that are copied. */
static void withdraw(struct seat *to, int rank) {
    (void)pthread_mutex_lock(&to->lock);
    for (post **at = &to->pending; *at != NULL;) {
        const post *p = *at;
        if ((p->receive ? p->to : p->from) == rank && p->copy == NULL)
            *at = p->next;
        else
            at = &(*at)->next;
    }
    (void)pthread_mutex_unlock(&to->lock);
}

static tacit_status engine_isend(void *self, int peer, int tag, const void *bytes, size_t count,
                                 taciti_engine_request *out) {
    struct seat *seat = self;
    if (tag == TAG_DATA && strcmp(seat->host, seat->world->seats[peer].host) != 0) seat->bytes_to_other_hosts += count;
    post *p = need(taciti_calloc(1, sizeof *p));
    *p = (post){.from = seat->rank, .to = peer, .tag = tag, .in = bytes, .count = count};
    out->opaque[0] = (uintptr_t)p;
    if (count <= EAGER_BYTES) {
        p->copy = need(taciti_calloc(count + 1, 1));
        if (count > 0) memcpy(p->copy, bytes, count);
        p->in = p->copy;
        out->opaque[0] = 0;
    }
    match(&seat->world->seats[peer], p);
    return TACIT_OK;
}

static tacit_status engine_irecv(void *self, int peer, int tag, void *bytes, size_t count, taciti_engine_request *out) {
    struct seat *seat = self;
    post *p = need(taciti_calloc(1, sizeof *p));
    *p = (post){.receive = true, .from = peer, .to = seat->rank, .tag = tag, .out = bytes, .count = count};
    out->opaque[0] = (uintptr_t)p;
    match(seat, p);
    return TACIT_OK;
}

static tacit_status engine_test(void *self, taciti_engine_request *request, bool *done) {
    struct seat *seat = self;
    post *p = (post *)request->opaque[0];
    *done = p == NULL || atomic_load(&p->complete) != 0;
    if (*done && p != NULL) request->bytes = p->arrived;
    if (p == NULL || p->tag != TAG_BEAT) atomic_store(&seat->asked, *done ? NULL : p);
    return TACIT_OK;
}

/* Until the message that was tested last is there: what is waited for, but for several messages or a heartbeat. */
static tacit_status engine_wait(void *self, int64_t ns) {
    struct seat *seat = self;
    post *p = atomic_load(&seat->asked);
    if (p == NULL) {
        taciti_sleep_ns(ns < NAP_NS ? ns : NAP_NS);
        return TACIT_OK;
    }
    atomic_store(&p->slept_on, 1);
    taciti_futex_wait(&p->complete, 0, ns);
    return TACIT_OK;
}

static void engine_abort(void *self, int exit_code) {
    (void)self;
    (void)exit_code;
    fail("the job was aborted");
}

static void engine_close(void *self) { (void)self; }

/* From now on nobody writes to what this rank frees. */
static void engine_drop(void *self) {
    const struct seat *seat = self;
    for (int i = 0; i < seat->world->size; i++) withdraw(&seat->world->seats[i], seat->rank);
}

test_world *test_world_create(int size) {
    if (size > MAX_RANKS) fail("too many ranks");
    test_world *world = need(taciti_calloc(1, sizeof *world));
    world->size = size;
    for (int i = 0; i < size; i++) (void)pthread_mutex_init(&world->seats[i].lock, NULL);
    return world;
}

static void free_posts(struct seat *seat) {
    while (seat->newest != NULL) {
        post *p = seat->newest;
        seat->newest = p->older;
        taciti_free(p->copy);
        taciti_free(p);
    }
}

void test_world_destroy(test_world *world) {
    for (int i = 0; i < world->size; i++) {
        free_posts(&world->seats[i]);
        (void)pthread_mutex_destroy(&world->seats[i].lock);
    }
    taciti_free(world);
}

static int g_ranks_per_host;

static const int *g_hosts;

void test_ranks_per_host(int count) { g_ranks_per_host = count; }

void test_hosts(const int *hosts) { g_hosts = hosts; }

static bool is_engine(const char *name) {
    const char *engine = getenv("TACIT_TEST_ENGINE");
    return engine != NULL && strcmp(engine, name) == 0;
}

taciti_engine test_world_seat(test_world *world, int rank) {
    struct seat *seat = &world->seats[rank];
    seat->world = world;
    seat->rank = rank;
    taciti_engine engine = {.name = "memory",
                            .self = &world->seats[rank],
                            .rank = rank,
                            .size = world->size,
                            .any_thread = true,
                            .library = "threads of one process",
                            .isend = engine_isend,
                            .irecv = engine_irecv,
                            .test = engine_test,
                            .wait = is_engine("poll") ? NULL : engine_wait,
                            .abort = engine_abort,
                            .close = engine_close,
                            .drop = engine_drop};
    if (g_hosts != NULL)
        (void)snprintf(seat->host, sizeof seat->host, "host%d", g_hosts[rank]);
    else if (g_ranks_per_host > 0)
        (void)snprintf(seat->host, sizeof seat->host, "host%d", rank / g_ranks_per_host);
    memcpy(engine.host, seat->host, sizeof engine.host);
    return engine;
}

uint64_t test_bytes_to_other_hosts(const taciti_comm *comm) {
    const struct seat *seat = taciti_comm_engine(comm)->self;
    if (strcmp(taciti_comm_engine(comm)->name, "tcp") == 0) return taciti_comm_count(comm).away_bytes_sent;
    return seat->bytes_to_other_hosts;
}

double test_bytes_of_busiest_host(taciti_comm *comm, uint64_t before) {
    const uint64_t mine = test_bytes_to_other_hosts(comm) - before;
    const int size = taciti_comm_size(comm);
    uint64_t *all = taciti_calloc(2 * (size_t)size, sizeof *all), *sums = all + size, max = 0;
    CHECK(taciti_comm_allgather(comm, &mine, sizeof mine, all) == TACIT_OK);
    for (int r = 0; r < size; r++) {
        uint64_t *sum = &sums[taciti_comm_hosts(comm)->host_of[r]];
        *sum += all[r];
        if (*sum > max) max = *sum;
    }
    taciti_free(all);
    return (double)max;
}

typedef struct player {
    pthread_t thread;
    taciti_engine engine;
    const taciti_comm_options *options;
    test_rank *rank;
    void *context;
    const char *folder;     /* where ranks of the TCP engine meet; NULL: mailboxes */
    pthread_barrier_t *end; /* nobody frees what others may still write to */
} player;

taciti_seal_key test_seal_key_of(uint8_t byte) {
    uint8_t bytes[TACITI_SEAL_KEY_BYTES];
    taciti_seal_key key;
    memset(bytes, byte, sizeof bytes);
    if (taciti_seal_key_make(bytes, &key) != TACIT_OK) fail("no key");
    return key;
}

static taciti_seal_key g_key;

static void make_key(void) {
    g_key = test_seal_key_of('k');
    if (strcmp(getenv("TACIT_TEST_KEY"), "xchacha") == 0) g_key.best = TACITI_CIPHER_XCHACHA20;
}

const taciti_seal_key *test_seal_key(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (getenv("TACIT_TEST_KEY") == NULL) return NULL;
    (void)pthread_once(&once, make_key);
    return &g_key;
}

/* Replaces the seat by a rank of the TCP engine, which claims the same host. */
static void open_tcp(taciti_engine *seat, const char *folder) {
    taciti_tcp_request request = {.rank = seat->rank,
                                  .size = seat->size,
                                  .interface = "127.0.0.1",
                                  .start_s = 60,
                                  .key = test_seal_key(),
                                  .only_tcp = getenv("TACIT_TEST_TCP") != NULL,
                                  .no_memory = getenv("TACIT_TEST_SOCKETS") != NULL};
    taciti_engine engine;
    if (taciti_bootstrap_folder_open(folder, &request.bootstrap) != TACIT_OK) fail("no folder");
    if (taciti_engine_tcp_open(&request, &engine) != TACIT_OK) fail("no TCP engine");
    taciti_bootstrap_folder_close(&request.bootstrap);
    memcpy(engine.host, seat->host, sizeof engine.host);
    *seat = engine;
}

static void *play(void *argument) {
    player *p = argument;
    taciti_comm *comm = NULL;
    if (p->folder != NULL) open_tcp(&p->engine, p->folder);
    if (taciti_comm_open_engine(p->options, &p->engine, &comm) != TACIT_OK) fail("cannot open");
    p->rank(comm, p->context);
    (void)pthread_barrier_wait(p->end);
    taciti_comm_close(comm);
    return NULL;
}

bool test_over_tcp(void) { return is_engine("tcp"); }

static void remove_folder(const char *folder, int size) {
    char path[64];
    for (int i = 0; i < size; i++) {
        (void)snprintf(path, sizeof path, "%s/tacit-0-%d", folder, i);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

void test_world_run(int size, const taciti_comm_options *options, test_rank *rank, void *context) {
    test_world *world = test_world_create(size);
    char folder[] = "/tmp/tacit-test-XXXXXX";
    const bool tcp = test_over_tcp() && size > 1;
    if (tcp && mkdtemp(folder) == NULL) fail("no folder");
    player players[MAX_RANKS];
    pthread_barrier_t end;
    (void)pthread_barrier_init(&end, NULL, (unsigned)size);
    for (int i = 0; i < size; i++)
        players[i] = (player){
            .engine = test_world_seat(world, i), .options = options, .rank = rank, .context = context, .end = &end};
    for (int i = 0; tcp && i < size; i++) players[i].folder = folder;
    for (int i = 0; i < size; i++) {
        if (pthread_create(&players[i].thread, NULL, play, &players[i]) != 0) fail("no thread");
    }
    for (int i = 0; i < size; i++) (void)pthread_join(players[i].thread, NULL);
    (void)pthread_barrier_destroy(&end);
    if (tcp) remove_folder(folder, size);
    test_world_destroy(world);
}

taciti_comm_options test_comm_options(bool thread) {
    return (taciti_comm_options){
        .thread = thread, .timeout_s = 60, .warn_s = 30, .start_s = 60, .stall_s = 60, .segment_bytes = 8192};
}

static pthread_mutex_t g_log_lock = PTHREAD_MUTEX_INITIALIZER;
static char g_lines[MAX_LINES][LINE_BYTES];
static int g_line_count;

static void keep(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)pthread_mutex_lock(&g_log_lock);
    if (g_line_count < MAX_LINES) (void)snprintf(g_lines[g_line_count++], LINE_BYTES, "%s", line);
    (void)pthread_mutex_unlock(&g_log_lock);
}

void test_log_keep(void) {
    g_line_count = 0;
    taciti_log_set_sink(keep, NULL, TACITI_LOG_WARN);
}

int test_log_count(const char *needle) {
    int count = 0;
    (void)pthread_mutex_lock(&g_log_lock);
    for (int i = 0; i < g_line_count; i++) count += strstr(g_lines[i], needle) != NULL;
    (void)pthread_mutex_unlock(&g_log_lock);
    return count;
}

void test_log_drop(void) { taciti_log_set_sink(NULL, NULL, TACITI_LOG_ERROR); }

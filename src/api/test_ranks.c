/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "api/test_ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
/* cmocka wants some of these first */
#include <cmocka.h>

#include "base/clock.h"

enum { ENTRIES = 16, KEY_BYTES = 64, VALUE_BYTES = 4096, RANKS_MAX = 8, LIMIT_S = 60 };

struct test_store {
    pthread_mutex_t lock;
    size_t count;
    struct {
        char key[KEY_BYTES], bytes[VALUE_BYTES];
        size_t n;
    } entries[ENTRIES];
};

void *test_shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

test_store *test_store_create(void) {
    test_store *store = test_shared(sizeof *store);
    pthread_mutexattr_t shared;
    (void)pthread_mutexattr_init(&shared);
    (void)pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutex_init(&store->lock, &shared);
    return store;
}

static size_t find_key(const test_store *store, const char *key) {
    size_t i = 0;
    while (i < store->count && strcmp(store->entries[i].key, key) != 0) i++;
    return i;
}

static tacit_status set_value(void *context, const char *key, const void *bytes, size_t count) {
    test_store *store = context;
    CHECK(strlen(key) < KEY_BYTES && count <= VALUE_BYTES);
    (void)pthread_mutex_lock(&store->lock);
    const size_t i = find_key(store, key);
    CHECK(i < ENTRIES);
    (void)strcpy(store->entries[i].key, key);
    memcpy(store->entries[i].bytes, bytes, store->entries[i].n = count);
    store->count += i == store->count;
    (void)pthread_mutex_unlock(&store->lock);
    return TACIT_OK;
}

static tacit_status get_value(void *context, const char *key, void *bytes, size_t room, size_t *count, double seconds) {
    test_store *store = context;
    const int64_t end_ns = taciti_now_ns() + (int64_t)(seconds * 1e9);
    for (;;) {
        (void)pthread_mutex_lock(&store->lock);
        const size_t i = find_key(store, key), n = i < store->count ? store->entries[i].n : 0;
        if (n > 0 && n <= room) memcpy(bytes, store->entries[i].bytes, n);
        (void)pthread_mutex_unlock(&store->lock);
        if (n > 0) *count = n;
        if (n > 0) return n <= room ? TACIT_OK : TACIT_E_DATA;
        if (taciti_now_ns() >= end_ns) return TACIT_E_PEER;
        taciti_sleep_ns(TACITI_NS_PER_MS);
    }
}

tacit_store test_store_of(test_store *store) {
    return (tacit_store){.size = sizeof(tacit_store), .context = store, .set = set_value, .get = get_value};
}

static pid_t fork_rank(int rank, int ranks, test_rank *run, void *context) {
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    (void)alarm(LIMIT_S);
    run(rank, ranks, context);
    (void)fflush(NULL);
    _exit(0);
}

void test_ranks_run(int ranks, int absent, test_rank *run, void *context) {
    pid_t children[RANKS_MAX] = {0};
    int failed = 0;
    assert_true(ranks <= RANKS_MAX);
    for (int r = 0; r < ranks; r++)
        if (r != absent) children[r] = fork_rank(r, ranks, run, context);
    for (int r = 0; r < ranks; r++) {
        int status = 0;
        if (children[r] == 0) continue;
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
        if (status != 0) (void)fprintf(stderr, "rank %d of %d: wait status %d\n", r, ranks, status);
        failed += status != 0;
    }
    assert_int_equal(failed, 0);
}

tacit_comm *test_ranks_open(test_store *store, const tacit_settings *settings, int rank, int ranks) {
    const tacit_store mine = test_store_of(store);
    tacit_comm *comm = NULL;
    tacit_settings *own = NULL;
    if (settings == NULL) {
        OK(tacit_settings_create(&own));
        OK(tacit_settings_set(own, "comm.start=20"));
        OK(tacit_settings_set(own, "comm.timeout=20"));
    }
    OK(tacit_open_store(settings == NULL ? own : settings, rank, ranks, &mine, &comm));
    tacit_settings_destroy(own);
    return comm;
}

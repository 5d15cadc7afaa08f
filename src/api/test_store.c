/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that meet in a store of the caller's: they train together; whoever is missing is named in time; a store that
 * fails, or that holds other bytes, is refused.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/test_ranks.h"
#include "base/clock.h"

enum { FLOATS = 64, RANKS_MAX = 5 };

static tacit_layout *create_layout(void) {
    tacit_layout *layout = NULL;
    OK(tacit_layout_create(&layout));
    OK(tacit_layout_add(layout, "out", 1, (const size_t[]){3}, 0));
    OK(tacit_layout_add(layout, "in", 2, (const size_t[]){5, 4}, TACIT_DECAY));
    OK(tacit_layout_add(layout, "one", 0, NULL, 0));
    CHECK(tacit_layout_floats(layout) == FLOATS);
    return layout;
}

/* ---- ranks that meet --------------------------------------------------------------------------------------------- */

typedef struct meeting {
    test_store *store;
    float parameters[RANKS_MAX][FLOATS];
} meeting;

/* A step whose gradient is the mean over ranks of rank + 1: parameters end at -lr times (ranks + 1) / 2. */
static void train_together(int rank, int ranks, void *context) {
    meeting *m = context;
    tacit_settings *settings = NULL;
    tacit_layout *layout = create_layout();
    tacit_job *job = NULL;
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "optim.name=sgd"));
    OK(tacit_settings_set(settings, "optim.momentum=0"));
    OK(tacit_settings_set(settings, "optim.weight_decay=0"));
    OK(tacit_settings_set(settings, "optim.warmup=0"));
    OK(tacit_settings_set(settings, "optim.clip=0"));
    OK(tacit_settings_set(settings, "optim.lr=2"));
    tacit_comm *comm = test_ranks_open(m->store, NULL, rank, ranks);
    CHECK(tacit_rank(comm) == rank && tacit_size(comm) == ranks);
    OK(tacit_job_open(comm, settings, layout, NULL, &job));
    OK(tacit_job_start(job));
    for (size_t i = 0; i < FLOATS; i++) tacit_job_gradients(job)[i] = i < 3 ? (float)(rank + 1) : 0;
    OK(tacit_job_ready(job, TACIT_ALL_TENSORS));
    OK(tacit_job_finish(job, NULL));
    memcpy(m->parameters[rank], tacit_job_parameters(job), sizeof m->parameters[rank]);
    OK(tacit_job_close(job));
    OK(tacit_close(comm));
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
}

/* Also a second time over the same store, which still has the values of the first. */
static void ranks_meet(void **state) {
    static const int RANKS[] = {1, 2, 3, 5};
    (void)state;
    for (size_t i = 0; i < sizeof RANKS / sizeof *RANKS; i++) {
        meeting *m = test_shared(sizeof *m);
        m->store = test_store_create();
        for (int again = 0; again < 2; again++) {
            memset(m->parameters, 1, sizeof m->parameters);
            test_ranks_run(RANKS[i], -1, train_together, m);
            for (int r = 0; r < RANKS[i]; r++) {
                assert_memory_equal(m->parameters[r], m->parameters[0], sizeof m->parameters[0]);
                assert_float_equal(m->parameters[r][0], (float)(-RANKS[i] * (RANKS[i] + 1)), 0);
                assert_float_equal(m->parameters[r][3], 0, 0);
            }
        }
    }
}

/* Two communicators, one after the other, of the same processes; the first is open while the second opens. */
static void open_twice(int rank, int ranks, void *context) {
    tacit_comm *first = test_ranks_open(context, NULL, rank, ranks);
    tacit_comm *second = test_ranks_open(context, NULL, rank, ranks);
    OK(tacit_close(second));
    OK(tacit_close(first));
}

static void a_store_serves_again(void **state) {
    (void)state;
    test_ranks_run(3, -1, open_twice, test_store_create());
}

/* ---- ranks that do not ------------------------------------------------------------------------------------------- */

static tacit_settings *settings_with(const char *one) {
    tacit_settings *settings = NULL;
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "comm.start=1"));
    if (one != NULL) OK(tacit_settings_set(settings, one));
    return settings;
}

/* The open ends with this status and text, and not much later than comm.start says. */
static void expect(int rank, int ranks, const tacit_store *store, tacit_status status, const char *text) {
    tacit_settings *settings = settings_with(NULL);
    tacit_comm *comm = NULL;
    const int64_t begin_ns = taciti_now_ns();
    CHECK(tacit_open_store(settings, rank, ranks, store, &comm) == status);
    CHECK(strstr(tacit_error_text(), text) != NULL);
    CHECK(comm == NULL && taciti_now_ns() - begin_ns < 5 * TACITI_NS_PER_S);
    tacit_settings_destroy(settings);
}

static void miss_rank_1(int rank, int ranks, void *context) {
    const tacit_store store = test_store_of(context);
    expect(rank, ranks, &store, TACIT_E_PEER, "rank 1");
}

static void miss_rank_0(int rank, int ranks, void *context) {
    const tacit_store store = test_store_of(context);
    expect(rank, ranks, &store, TACIT_E_PEER, "the caller's store has no key tacit-0-0");
}

static void a_missing_rank_is_named(void **state) {
    (void)state;
    test_ranks_run(3, 1, miss_rank_1, test_store_create());
    test_ranks_run(2, 1, miss_rank_1, test_store_create());
    test_ranks_run(3, 0, miss_rank_0, test_store_create());
}

static void refuse(const char *setting, int rank, int ranks, const tacit_store *store, tacit_status status,
                   const char *text) {
    tacit_settings *settings = settings_with(setting);
    tacit_comm *comm = NULL;
    assert_int_equal(tacit_open_store(settings, rank, ranks, store, &comm), status);
    if (strstr(tacit_error_text(), text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, tacit_error_text());
    assert_null(comm);
    tacit_settings_destroy(settings);
}

static tacit_status end_wait(void *context) {
    ++*(int *)context;
    return TACIT_E_USAGE;
}

/* Rank 0 waits for the call of rank 1, which then calls a rank that has gone. */
static void the_program_ends_the_wait(void **state) {
    const tacit_store store = test_store_of(test_store_create());
    int asks = 0;
    (void)state;
    OK(tacit_on_wait(end_wait, &asks));
    for (int rank = 0; rank < 2; rank++)
        refuse("comm.start=600", rank, 2, &store, TACIT_E_PEER, "this rank has ended a wait");
    OK(tacit_on_wait(NULL, NULL));
    assert_int_equal(asks, 2);
}

/* ---- stores that fail -------------------------------------------------------------------------------------------- */

typedef struct broken {
    tacit_status set, get;
    size_t count; /* of bytes that get claims to have written */
} broken;

static tacit_status set_broken(void *context, const char *key, const void *bytes, size_t count) {
    (void)key, (void)bytes, (void)count;
    return ((const broken *)context)->set;
}

static tacit_status get_broken(void *context, const char *key, void *bytes, size_t room, size_t *count,
                               double seconds) {
    const broken *b = context;
    (void)key, (void)seconds;
    memset(bytes, 'x', b->count < room ? b->count : room);
    *count = b->count;
    return b->get;
}

/* The learning rate would follow another schedule on each. */
static void open_for_other_steps(int rank, int ranks, void *context) {
    const tacit_job_options options = {.size = sizeof options, .steps = 5 + rank};
    tacit_comm *comm = test_ranks_open(context, NULL, rank, ranks);
    tacit_layout *layout = create_layout();
    tacit_settings *settings = NULL;
    tacit_job *job = NULL;
    OK(tacit_settings_create(&settings));
    CHECK(tacit_job_open(comm, settings, layout, &options, &job) == TACIT_E_CONFIG);
    CHECK(strstr(tacit_error_text(), "steps of the run") != NULL);
    tacit_settings_destroy(settings);
    tacit_layout_destroy(layout);
    OK(tacit_close(comm));
}

static void other_numbers_of_steps_are_refused(void **state) {
    (void)state;
    test_ranks_run(2, -1, open_for_other_steps, test_store_create());
}

/* The linker sends calls of the library here. */
void __wrap_taciti_free(void *block);
void __real_taciti_free(void *block);
static const void *g_watched;
static bool g_is_freed;

void __wrap_taciti_free(void *block) {
    g_is_freed = g_is_freed || (block != NULL && block == g_watched);
    __real_taciti_free(block);
}

/* Under strategy none, where ranks do not meet before. */
static void make_own_steps(int rank, int ranks, void *context) {
    tacit_comm *comm = test_ranks_open(context, NULL, rank, ranks);
    tacit_layout *layout = create_layout();
    tacit_settings *settings = NULL;
    tacit_job *job = NULL;
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "strategy=none"));
    OK(tacit_job_open(comm, settings, layout, NULL, &job));
    OK(tacit_job_start(job));
    for (int step = 0; step <= rank; step++) {
        OK(tacit_job_ready(job, TACIT_ALL_TENSORS));
        OK(tacit_job_finish(job, NULL));
    }
    OK(tacit_job_close(job));
    tacit_settings_destroy(settings);
    tacit_layout_destroy(layout);
    g_watched = comm;
    CHECK(tacit_close(comm) == TACIT_E_PEER && strstr(tacit_error_text(), "must make the same steps") != NULL);
    CHECK(g_is_freed);
}

static void nothing_is_left_after_unequal_steps(void **state) {
    (void)state;
    test_ranks_run(2, -1, make_own_steps, test_store_create());
}

static void fork_once(int rank, int ranks, void *context) {
    int status = 1;
    tacit_comm *comm = test_ranks_open(context, NULL, rank, ranks);
    tacit_layout *layout = create_layout();
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = tacit_close(comm) == TACIT_E_USAGE && strstr(tacit_error_text(), "is a fork") != NULL;
        _exit(refused && tacit_layout_floats(layout) == FLOATS ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    tacit_layout_destroy(layout);
    OK(tacit_close(comm));
}

static void forks_are_refused(void **state) {
    (void)state;
    test_ranks_run(2, -1, fork_once, test_store_create());
}

static void broken_stores_are_refused(void **state) {
    static const struct {
        broken how;
        tacit_status status;
        const char *text;
    } CASES[] = {
        {{TACIT_E_IO, TACIT_OK, 10}, TACIT_E_IO, "set of key tacit-0-1 has returned -7 (input or output failed)"},
        {{TACIT_PENDING, TACIT_OK, 10}, TACIT_E_USAGE, "set of key tacit-0-1 has returned 1"},
        {{TACIT_OK, TACIT_E_MEMORY, 10}, TACIT_E_MEMORY, "get of key tacit-0-0 has returned -6 (out of memory)"},
        {{TACIT_OK, TACIT_OK, 5000}, TACIT_E_DATA, "key tacit-0-0 has 5000 bytes"},
        {{TACIT_OK, TACIT_OK, 0}, TACIT_E_PEER, "what it has published is not a record"},
        {{TACIT_OK, TACIT_OK, 10}, TACIT_E_PEER, "what it has published is not a record"},
        {{TACIT_OK, TACIT_OK, 4096}, TACIT_E_PEER, "what it has published is not a record"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        broken how = CASES[i].how;
        const tacit_store store = {.size = sizeof store, .context = &how, .set = set_broken, .get = get_broken};
        expect(1, 2, &store, CASES[i].status, CASES[i].text);
    }
}

/* A store that fails after the first look. */
typedef struct breaking {
    tacit_store store;
    int gets;
} breaking;

static tacit_status set_whole(void *context, const char *key, const void *bytes, size_t count) {
    const breaking *b = context;
    return b->store.set(b->store.context, key, bytes, count);
}

static tacit_status get_once(void *context, const char *key, void *bytes, size_t room, size_t *count, double seconds) {
    breaking *b = context;
    return b->gets++ > 0 ? TACIT_E_IO : b->store.get(b->store.context, key, bytes, room, count, seconds);
}

/* Rank 1 finds a record of an earlier run, cannot connect, and looks again. */
static void a_store_that_fails_later_ends_the_meeting(void **state) {
    breaking later = {.store = test_store_of(test_store_create())};
    const tacit_store store = {.size = sizeof store, .context = &later, .set = set_whole, .get = get_once};
    (void)state;
    expect(0, 2, &store, TACIT_E_PEER, "rank 1");
    later.gets = 0;
    expect(1, 2, &store, TACIT_E_IO, "get of key tacit-0-0 has returned -7");
    assert_int_equal(later.gets, 2);
}

static void wrong_calls_are_refused(void **state) {
    const tacit_store store = test_store_of(test_store_create());
    tacit_store other = store;
    (void)state;
    refuse(NULL, -1, 2, &store, TACIT_E_USAGE, "rank -1 of 2");
    refuse(NULL, 2, 2, &store, TACIT_E_USAGE, "rank 2 of 2");
    refuse(NULL, 0, 0, &store, TACIT_E_USAGE, "rank 0 of 0");
    refuse(NULL, 0, 2000000000, &store, TACIT_E_USAGE, "16384 is the maximum");
    refuse(NULL, 0, 2, NULL, TACIT_E_USAGE, "store is NULL");
    refuse("comm.engine=mpi", 0, 2, &store, TACIT_E_CONFIG, "comm.engine is mpi");
    refuse("comm.engine=self", 0, 2, &store, TACIT_E_CONFIG, "comm.engine is self");
    refuse("comm.meet=/tmp/here", 0, 2, &store, TACIT_E_CONFIG, "comm.meet is /tmp/here");
    other.size = 0;
    refuse(NULL, 0, 2, &other, TACIT_E_USAGE, "tacit_store: its size is 0");
    other = store, other.get = NULL;
    refuse(NULL, 0, 2, &other, TACIT_E_USAGE, "get is NULL");
    other = store, other.set = NULL;
    refuse(NULL, 0, 2, &other, TACIT_E_USAGE, "set is NULL");
    other = store, other.size = offsetof(tacit_store, get); /* as if an older program knew no get */
    refuse(NULL, 0, 2, &other, TACIT_E_USAGE, "get is NULL");
    assert_int_equal(tacit_open_store(NULL, 0, 1, &store, NULL), TACIT_E_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet),
        cmocka_unit_test(a_store_serves_again),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(the_program_ends_the_wait),
        cmocka_unit_test(other_numbers_of_steps_are_refused),
        cmocka_unit_test(nothing_is_left_after_unequal_steps),
        cmocka_unit_test(forks_are_refused),
        cmocka_unit_test(broken_stores_are_refused),
        cmocka_unit_test(a_store_that_fails_later_ends_the_meeting),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

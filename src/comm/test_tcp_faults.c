/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as processes over the TCP engine, and what befalls them: killed, stopped, ended by one of them, forked. Every
 * rank runs all-reduces until communication fails, and writes why to its pipe.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/engine_tcp.h"
#include "comm/guard.h"
#include "comm/test_engine.h"

enum { RANKS_MAX = 5, TEXT_BYTES = 4096, FAILED = 3 };

#define TIMEOUT_S 3.0

/* A rank does this once it has worked for a while. */
typedef enum deed { WORK, ABORT, FORK, REUSE_FORK, LEAVE, END_WELL } deed;

typedef struct troupe {
    int size;
    test_way way;
    bool thread;
    deed deeds[RANKS_MAX];
    char folder[32];
    pid_t pids[RANKS_MAX];
    int pipes[RANKS_MAX]; /* the parent's ends */
} troupe;

static int g_pipe; /* a rank's end */

static void write_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)dprintf(g_pipe, "%s\n", line);
}

static _Noreturn void leave_with_text(int code) {
    (void)dprintf(g_pipe, "failed: %s\n", taciti_error_text());
    _exit(code);
}

static taciti_comm *open_rank(const troupe *t, int rank) {
    taciti_tcp_request request = {.rank = rank,
                                  .size = t->size,
                                  .interface = "127.0.0.1",
                                  .start_s = 30,
                                  .timeout_s = TIMEOUT_S,
                                  .key = test_seal_key(),
                                  .only_tcp = t->way == TEST_OVER_TCP,
                                  .no_memory = t->way == TEST_OVER_SOCKETS};
    const taciti_comm_options options = {
        .thread = t->thread, .timeout_s = TIMEOUT_S, .warn_s = TIMEOUT_S / 2, .start_s = 30, .stall_s = 60};
    taciti_engine engine;
    taciti_comm *comm = NULL;
    if (taciti_bootstrap_folder_open(t->folder, &request.bootstrap) != TACIT_OK) leave_with_text(90);
    if (taciti_engine_tcp_open(&request, &engine) != TACIT_OK) leave_with_text(91);
    taciti_bootstrap_folder_close(&request.bootstrap);
    if (taciti_comm_open_engine(&options, &engine, &comm) != TACIT_OK) leave_with_text(92);
    return comm;
}

/* A child that outlives its parent must not keep the parent's connections, nor be able to use them. */
static void fork_child(const taciti_comm *comm, bool use) {
    const pid_t child = fork();
    if (child != 0) return;
    const taciti_engine *engine = taciti_comm_engine(comm);
    taciti_engine_request request = {.opaque = {0}};
    bool done = false;
    char byte = 0;
    const int peer = taciti_comm_rank(comm) == 0 ? 1 : 0;
    if (use && engine->isend(engine->self, peer, 1, &byte, 1, &request) == TACIT_E_USAGE &&
        engine->irecv(engine->self, peer, 1, &byte, 1, &request) == TACIT_E_USAGE &&
        engine->wait(engine->self, 1) == TACIT_E_USAGE && engine->test(engine->self, &request, &done) == TACIT_E_USAGE)
        (void)dprintf(g_pipe, "the child is refused\n");
    engine->close(engine->self);
    (void)close(g_pipe);
    taciti_sleep_ns(20 * TACITI_NS_PER_S);
    _exit(0);
}

static void do_deed(taciti_comm *comm, deed what) {
    if (what == ABORT) taciti_comm_abort(comm, TACIT_E_DATA);
    if (what == FORK || what == REUSE_FORK) fork_child(comm, what == REUSE_FORK);
    if (what == LEAVE) _exit(0); /* without a goodbye */
    if (what == END_WELL) {
        (void)taciti_comm_close(comm);
        leave_with_text(0);
    }
}

/* Sockets, files that the system watches, and shared memory. */
static int count_connections(void) {
    struct stat info;
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fd != g_pipe && fstat(fd, &info) == 0 && (S_ISSOCK(info.st_mode) || (info.st_mode & S_IFMT) == 0);
    return count;
}

static _Noreturn void play_rank(const troupe *t, int rank) {
    double values[1000] = {0};
    const int before = count_connections();
    taciti_log_set_sink(write_line, NULL, TACITI_LOG_WARN);
    taciti_guard_install(_exit);
    taciti_comm *comm = open_rank(t, rank);
    taciti_comm_announce(comm, 5, "play");
    (void)dprintf(g_pipe, "ready\n");
    for (int i = 0;; i++) {
        for (int k = 0; k < 1000; k++) values[k] = 1;
        const tacit_status status = taciti_comm_allreduce_f64(comm, values, 1000, TACITI_OP_SUM);
        if (status == TACIT_E_PEER) {
            (void)taciti_comm_close(comm);
            if (count_connections() > before) leave_with_text(94);
            leave_with_text(FAILED);
        }
        if (status != TACIT_OK || (int)values[999] != t->size) _exit(93);
        if (i == 200) do_deed(comm, t->deeds[rank]);
        if (i == 200) taciti_comm_announce(comm, 6, "play");
        taciti_sleep_ns(TACITI_NS_PER_MS);
    }
}

static void start_troupe(troupe *t) {
    (void)snprintf(t->folder, sizeof t->folder, "/tmp/tacit-test-XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    for (int rank = 0; rank < t->size; rank++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        t->pids[rank] = fork();
        if (t->pids[rank] == 0) {
            for (int i = 0; i < rank; i++) (void)close(t->pipes[i]);
            (void)close(ends[0]);
            g_pipe = ends[1];
            play_rank(t, rank);
        }
        (void)close(ends[1]);
        t->pipes[rank] = ends[0];
    }
    for (int rank = 0; rank < t->size; rank++) {
        char word[6];
        assert_int_equal(read(t->pipes[rank], word, sizeof word), sizeof word);
        assert_memory_equal(word, "ready\n", sizeof word);
    }
    taciti_sleep_ns(200 * TACITI_NS_PER_MS);
}

/* Reads until the rank and its children have closed the pipe or for `seconds`, and returns the rank's exit code, or
 * -signal. */
static int end_rank(troupe *t, int rank, double seconds, char text[TEXT_BYTES]) {
    const int64_t end_ns = taciti_now_ns() + (int64_t)(seconds * 1e9);
    size_t n = 0;
    int status = 0;
    for (;;) {
        struct pollfd p = {.fd = t->pipes[rank], .events = POLLIN};
        const int64_t left_ms = (end_ns - taciti_now_ns()) / TACITI_NS_PER_MS;
        if (left_ms <= 0 || poll(&p, 1, (int)left_ms) <= 0) break;
        const ssize_t got = read(t->pipes[rank], text + n, TEXT_BYTES - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    text[n] = 0;
    (void)close(t->pipes[rank]);
    if (taciti_now_ns() >= end_ns) {
        print_error("rank %d has not ended: %s\n", rank, text);
        (void)kill(t->pids[rank], SIGKILL);
    }
    assert_int_equal(waitpid(t->pids[rank], &status, 0), t->pids[rank]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void remove_folder_of(const troupe *t) {
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", t->folder);
    assert_int_equal(system(command), 0);
}

/* All ranks but the victim must name it, within `seconds`, and one of them in a line of the log. */
static void expect_culprit(troupe *t, int victim, double seconds, const char *reason) {
    const int64_t begin_ns = taciti_now_ns();
    char text[TEXT_BYTES], name[64];
    static char all[RANKS_MAX * TEXT_BYTES];
    int lines = 0;
    all[0] = 0;
    (void)snprintf(name, sizeof name, "rank %d on host", victim);
    for (int rank = 0; rank < t->size; rank++) {
        if (rank == victim) continue;
        const int code = end_rank(t, rank, 30, text);
        if (code != FAILED || strstr(text, name) == NULL) print_error("rank %d: %d %s\n", rank, code, text);
        assert_int_equal(code, FAILED);
        assert_non_null(strstr(text, name));
        const char *said = strstr(text, reason);
        lines += said != NULL && said < strstr(text, "failed: ");
        strcat(all, text);
    }
    if (lines != 1) print_error("%s", all);
    assert_int_equal(lines, 1);
    assert_true((double)(taciti_now_ns() - begin_ns) * 1e-9 < seconds);
}

static void kill_one(int size, test_way way, bool thread, int victim) {
    troupe t = {.size = size, .way = way, .thread = thread};
    char text[TEXT_BYTES];
    start_troupe(&t);
    (void)kill(t.pids[victim], SIGKILL);
    expect_culprit(&t, victim, TIMEOUT_S, " has failed: ");
    assert_int_equal(end_rank(&t, victim, 10, text), -SIGKILL);
    remove_folder_of(&t);
}

static void a_killed_rank_is_named_at_once(void **state) {
    (void)state;
    kill_one(2, TEST_OVER_TCP, true, 1);
    kill_one(3, TEST_OVER_MEMORY, true, 0);
    kill_one(4, TEST_OVER_TCP, false, 2);
    kill_one(5, TEST_OVER_MEMORY, false, 4);
    kill_one(3, TEST_OVER_SOCKETS, true, 0);
}

static void a_stopped_rank_is_named_in_time(void **state) {
    (void)state;
    for (test_way way = 0; way < TEST_WAYS; way++) {
        troupe t = {.size = 3, .way = way, .thread = way == TEST_OVER_TCP};
        char text[TEXT_BYTES];
        start_troupe(&t);
        (void)kill(t.pids[1], SIGSTOP);
        expect_culprit(&t, 1, TIMEOUT_S + 2, "stopped answering");
        (void)kill(t.pids[1], SIGKILL);
        assert_int_equal(end_rank(&t, 1, 10, text), -SIGKILL);
        remove_folder_of(&t);
    }
}

/* It is stopped for less than the time-out, and nothing happens. */
static void a_short_stop_is_forgiven(void **state) {
    (void)state;
    troupe t = {.size = 3, .way = TEST_OVER_TCP, .thread = true};
    char text[TEXT_BYTES];
    start_troupe(&t);
    (void)kill(t.pids[2], SIGSTOP);
    taciti_sleep_ns((int64_t)(TIMEOUT_S * 0.5e9));
    (void)kill(t.pids[2], SIGCONT);
    taciti_sleep_ns(TACITI_NS_PER_S);
    for (int rank = 0; rank < 3; rank++) assert_int_equal(waitpid(t.pids[rank], NULL, WNOHANG), 0);
    (void)kill(t.pids[0], SIGKILL);
    expect_culprit(&t, 0, TIMEOUT_S, " has failed: ");
    assert_int_equal(end_rank(&t, 0, 10, text), -SIGKILL);
    remove_folder_of(&t);
}

static void a_rank_that_leaves_without_goodbye_has_failed(void **state) {
    (void)state;
    troupe t = {.size = 3, .way = TEST_OVER_TCP, .thread = true, .deeds = {WORK, LEAVE, WORK}};
    char text[TEXT_BYTES];
    start_troupe(&t);
    expect_culprit(&t, 1, TIMEOUT_S, " has failed: ");
    assert_int_equal(end_rank(&t, 1, 10, text), 0);
    remove_folder_of(&t);
}

/* The others wait for it in a later step than its last one: they need not wait for comm.timeout. */
static void a_rank_that_ends_a_step_too_early_is_named_soon(void **state) {
    (void)state;
    for (test_way way = 0; way < TEST_WAYS; way++) {
        troupe t = {.size = 2, .way = way, .thread = way != TEST_OVER_TCP, .deeds = {WORK, END_WELL}};
        char text[TEXT_BYTES];
        start_troupe(&t);
        expect_culprit(&t, 1, TIMEOUT_S - 1,
                       " has left the job in step 5, finish, but rank 0 waits for it in step 6, play");
        assert_int_equal(end_rank(&t, 1, 10, text), tacit_status_exit_code(TACIT_E_PEER));
        remove_folder_of(&t);
    }
}

static void an_abort_ends_all_ranks_with_its_code(void **state) {
    (void)state;
    for (test_way way = 0; way < TEST_WAYS; way++) {
        troupe t = {.size = 4, .way = way, .thread = way != TEST_OVER_TCP, .deeds = {WORK, WORK, ABORT, WORK}};
        char text[TEXT_BYTES];
        start_troupe(&t);
        for (int rank = 0; rank < 4; rank++)
            assert_int_equal(end_rank(&t, rank, 10, text), tacit_status_exit_code(TACIT_E_DATA));
        remove_folder_of(&t);
    }
}

/* The child lives on when the rank is killed, and the others notice it at once all the same. */
static void a_forked_child_does_not_hide_the_end_of_its_parent(void **state) {
    (void)state;
    for (int use = 0; use < 2; use++) {
        troupe t = {.size = 3,
                    .way = use == 1 ? TEST_OVER_TCP : TEST_OVER_MEMORY,
                    .thread = true,
                    .deeds = {WORK, use == 1 ? REUSE_FORK : FORK, WORK}};
        char text[TEXT_BYTES];
        start_troupe(&t);
        taciti_sleep_ns(TACITI_NS_PER_S);
        for (int rank = 0; rank < 3; rank++) assert_int_equal(waitpid(t.pids[rank], NULL, WNOHANG), 0);
        (void)kill(t.pids[1], SIGKILL);
        expect_culprit(&t, 1, TIMEOUT_S, " has failed: ");
        assert_int_equal(end_rank(&t, 1, 10, text), -SIGKILL);
        assert_true((strstr(text, "the child is refused") != NULL) == (use == 1));
        remove_folder_of(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named_at_once),
        cmocka_unit_test(a_stopped_rank_is_named_in_time),
        cmocka_unit_test(a_short_stop_is_forgiven),
        cmocka_unit_test(a_rank_that_leaves_without_goodbye_has_failed),
        cmocka_unit_test(a_rank_that_ends_a_step_too_early_is_named_soon),
        cmocka_unit_test(an_abort_ends_all_ranks_with_its_code),
        cmocka_unit_test(a_forked_child_does_not_hide_the_end_of_its_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

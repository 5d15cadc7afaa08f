/* SPDX-License-Identifier: Apache-2.0
 *
 * A run in which something happens to one rank: faults [--ranks N] PHASE RANK SIGNAL. What must come of it is checked
 * by faults.sh.
 *
 *   early    before the rank has a watcher
 *   init     before communication is opened        reduce   from another thread, amid all-reduces
 *   compute  in a computation between all-reduces   finish   before the orderly end, while the others wait in it
 *   end      after it, when nobody hears this rank any more; end-watcher: its watcher
 *   watcher  in a computation, but to its watcher
 *   leave    exits without a word, with code 4      pause   stops in a computation and goes on 1.5 s later
 *   ended    stops while another watcher is killed    woken    stops until its watcher is killed
 *   native   from another thread, while all are inside of an all-reduce of the MPI library
 *   lost     as native, and then the watcher of rank 0 is killed
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "check.h"
#include "cli/ranks.h"
#include "comm/launcher.h"
#include "comm/supervise.h"
#include "exchange/exchange.h"

enum { STEPS = 40, HIT_STEP = 7 };

static const char *g_phase;
static int g_victim, g_signal;

/* Long enough for the others to hear what this rank is doing. */
static void hit(const char *phase) {
    if (g_rank != g_victim || strcmp(phase, g_phase) != 0) return;
    taciti_sleep_ns(500 * TACITI_NS_PER_MS);
    const bool watcher = strstr(phase, "watcher") != NULL;
    (void)kill(watcher ? getppid() : getpid(), g_signal);
}

/* A child wakes this process up again. */
static void pause_for_a_while(void) {
    if (g_rank != g_victim || strcmp("pause", g_phase) != 0) return;
    taciti_sleep_ns(500 * TACITI_NS_PER_MS);
    const pid_t me = getpid(), child = fork();
    if (child == 0) {
        taciti_sleep_ns(1500 * TACITI_NS_PER_MS);
        _exit(kill(me, SIGCONT) == 0 ? 0 : 1);
    }
    CHECK(child > 0 && kill(me, SIGSTOP) == 0);
}

/* The same, by the death of the watcher, after more than the worker's own comm.timeout and less than its peers'. */
static void wake_up_orphaned(void) {
    if (g_rank != g_victim || strcmp("woken", g_phase) != 0) return;
    const pid_t watcher = getppid(), child = fork();
    if (child == 0) {
        taciti_sleep_ns(1500 * TACITI_NS_PER_MS);
        _exit(kill(watcher, SIGKILL) == 0 ? 0 : 1);
    }
    CHECK(child > 0 && kill(getpid(), SIGSTOP) == 0);
}

/* As a launcher does it while it ends a job, here without the SIGTERM that comes before. */
static void kill_watcher_of_first(void) {
    const bool lost = strcmp(g_phase, "lost") == 0;
    if (g_rank != 0 || !(lost || strcmp(g_phase, "ended") == 0)) return;
    taciti_sleep_ns((lost ? 1000 : 1500) * TACITI_NS_PER_MS);
    (void)kill(getppid(), SIGKILL);
}

static void *hit_soon(void *unused) {
    hit("ended");
    hit("lost");
    kill_watcher_of_first();
    hit("reduce");
    hit("native");
    return unused;
}

/* As the training loop does it: the culprit has been logged, everybody goes. */
static void must(taciti_comm *comm, tacit_status status) {
    if (status != TACIT_OK) taciti_comm_abort(comm, status);
}

/* Phases in which the fault, or what it leads to, comes some time after its step. */
static bool without_end(void) {
    return strcmp(g_phase, "reduce") == 0 || strcmp(g_phase, "watcher") == 0 || strcmp(g_phase, "ended") == 0;
}

static void train(taciti_comm *comm, const taciti_layout *layout) {
    const taciti_exchange_options options = {.bucket_bytes = 1 << 20, .overlap = true};
    taciti_exchange *exchange = NULL;
    must(comm, taciti_exchange_create(comm, layout, &options, NULL, &exchange));
    float *x = taciti_calloc(layout->n, sizeof *x);
    for (int step = 1; step <= STEPS; step++) {
        taciti_comm_announce(comm, step, "compute");
        if (step == HIT_STEP) hit("compute");
        if (step == HIT_STEP) hit("watcher");
        if (step == HIT_STEP) pause_for_a_while();
        if (step == HIT_STEP) wake_up_orphaned();
        taciti_comm_announce(comm, step, "exchange");
        for (size_t b = 0; b < layout->bucket_count; b++) must(comm, taciti_exchange_begin(exchange, x, b));
        for (size_t b = 0; b < layout->bucket_count; b++) must(comm, taciti_exchange_wait(exchange, b));
        if (step == HIT_STEP && g_rank == g_victim && strcmp(g_phase, "leave") == 0) exit(4);
        if (step == STEPS && without_end()) step = HIT_STEP; /* until it happens */
    }
    taciti_free(x);
    taciti_exchange_destroy(exchange);
}

static tacit_status run_native(taciti_comm *comm, void *context) {
    static float x[1 << 16];
    const taciti_native *natives = NULL;
    (void)context;
    TACITI_TRY(taciti_comm_natives(comm, &natives));
    CHECK(!natives[0].apart);
    return taciti_comm_native_allreduce(comm, 0, x, x, sizeof x / sizeof *x, 1 << 30);
}

/* Without an end, until it happens. */
static void reduce_natively(taciti_comm *comm) {
    taciti_job job = {.run = run_native, .name = "all-reduce of the library", .detail = -1};
    taciti_comm_announce(comm, STEPS, "bench");
    taciti_job_submit(comm, &job);
    must(comm, taciti_job_wait(comm, &job));
}

int main(int argc, char **argv) {
    taciti_ranks ranks;
    taciti_log_set_sink(print_line, NULL, TACITI_LOG_INFO);
    if (taciti_ranks_take(&argc, argv, &ranks) != TACIT_OK || argc != 4) return 2;
    if (ranks.ranks > 1) return taciti_ranks_run(&ranks, argv);
    const char *timeout = getenv("TEST_TIMEOUT");
    g_phase = argv[1];
    g_victim = atoi(argv[2]);
    g_signal = atoi(argv[3]);
    g_rank = taciti_launcher_detect().rank;
    if (g_rank == g_victim && strcmp(g_phase, "early") == 0) (void)raise(g_signal);
    const double peers_timeout_s = timeout == NULL ? 2 : strtod(timeout, NULL);
    const bool woken = g_rank == g_victim && strcmp(g_phase, "woken") == 0;
    taciti_witness *witness = taciti_supervise(woken ? 0.75 : peers_timeout_s);
    hit("init");
    taciti_comm *comm = open_comm();
    if (witness != NULL) taciti_comm_attach(comm, witness);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, hit_soon, NULL) == 0);
    const size_t n = 1 << 20;
    taciti_layout layout;
    CHECK(taciti_layout_create(1, &layout) == TACIT_OK && taciti_layout_append(&layout, "x", 1, &n, true) == TACIT_OK);
    CHECK(taciti_layout_seal(&layout, 1 << 20) == TACIT_OK);
    if (strcmp(g_phase, "native") == 0 || strcmp(g_phase, "lost") == 0) reduce_natively(comm);
    train(comm, &layout);
    hit("finish");
    CHECK(pthread_join(thread, NULL) == 0);
    taciti_layout_destroy(&layout);
    taciti_comm_close(comm);
    hit("end");
    hit("end-watcher");
    if (strcmp(g_phase, "end-watcher") == 0)
        taciti_sleep_ns(500 * TACITI_NS_PER_MS); /* it stops when it is scheduled */
    taciti_supervise_finish();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sibling.h"
#include "base/system.h"
#include "comm/launcher.h"
#include "comm/quiet.h"

enum { TITLE_BYTES = 32, SIGNALED = 128, REASON_BYTES = 128 };

#define LOOK_NS TACITI_NS_PER_S
#define MEETING_NS (2 * TACITI_NS_PER_S) /* for a worker that is told to end while ranks meet */
#define SHUT_DOWN_S 30.0                 /* the library itself is given half of it (comm.c) */
/* While ranks hear each other's beats, peers speak for a rank that is stopped; its watcher only if they do not. */
#define PEERS_FIRST_S 30.0
#define PEER_IS_LOST_NS (750 * TACITI_NS_PER_MS) /* a launcher waits for a second between its two signals */

static const int PASSED_ON[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON_COUNT = sizeof PASSED_ON / sizeof *PASSED_ON };

/* A command line of its own, so that `pkill -f "tacit train"` meets the worker and not its watcher. The place of the
 * old one is known to the system only; without /proc the title stays. */
static void rename_process(const char *title) {
    (void)prctl(PR_SET_NAME, title);
    char line[TACITI_PROCESS_BYTES];
    const char *field =
        taciti_process_field((long)getpid(), TACITI_PROCESS_ARGUMENTS, line); /* begin and end of them */
    if (field == NULL) return;
    char *rest = NULL;
    const uintptr_t begin = (uintptr_t)strtoull(field, &rest, 10), end = (uintptr_t)strtoull(rest, NULL, 10);
    if (begin == 0 || end <= begin) return;
    memset((char *)begin, 0, end - begin); /* NOLINT: our own argument area */
    const size_t length = strlen(title);
    memcpy((char *)begin, title, length < end - begin - 1 ? length : end - begin - 1);
}

/* ---- both sides ----------------------------------------------------------------------------------------------------
 */

/* How long a process has been stopped, as far as this one has seen it. */
typedef struct stop_watch {
    int64_t last_ns, stopped_ns;
} stop_watch;

/* Time during which this process was stopped itself does not count. */
static double stopped_for(stop_watch *watch, pid_t pid) {
    const int64_t now = taciti_now_ns(), gap = now - watch->last_ns;
    watch->last_ns = now;
    watch->stopped_ns = taciti_process_is_stopped(pid) ? watch->stopped_ns + (gap < 2 * LOOK_NS ? gap : 0) : 0;
    return (double)watch->stopped_ns * 1e-9;
}

/* The page that both see. */
typedef struct page {
    taciti_witness witness;
    _Atomic int told_to_end; /* SIGTERM was passed on */
} page;

typedef struct supervised {
    int rank, siblings; /* processes of the launcher here when all ranks had met, this one's watcher included */
    pid_t launcher, watcher, worker;
    double timeout_s;
    bool watcher_is_named; /* by the launcher, when it is killed */
    page *shared;
} supervised;

/* The one line, written at once so that lines of several processes do not mix. */
static void print_line(const char *level, int rank, pid_t pid, const char *reason) {
    char host[64] = "?";
    (void)gethostname(host, sizeof host - 1);
    (void)dprintf(STDERR_FILENO, "tacit: %s: rank %d on host %s (pid %ld) %s\n", level, rank, host, (long)pid, reason);
}

static void say_of_worker(const supervised *it, const char *level, const char *what) {
    char text[REASON_BYTES + 2 * TACITI_WITNESS_TEXT_BYTES], sight_text[TACITI_WITNESS_TEXT_BYTES];
    taciti_sight sight;
    taciti_witness_look(&it->shared->witness, &sight);
    taciti_sight_text(&sight, sight_text);
    (void)snprintf(text, sizeof text, "%s; last seen in %s", what, sight_text);
    print_line(level, it->rank, it->worker, text);
}

/* ---- the watcher ---------------------------------------------------------------------------------------------------
 */

/* Whether a signal to the whole process group, before the worker had one of its own, has reached this watcher, too. */
static bool has_arrived(int signal_number) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, signal_number) == 1;
}

static int exit_code_of(const supervised *it, int status, const bool *sent) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int signal_number = WTERMSIG(status);
    char reason[REASON_BYTES];
    for (int i = 0; i < PASSED_ON_COUNT; i++)
        if (signal_number == PASSED_ON[i] && (sent[i] || has_arrived(signal_number))) return SIGNALED + signal_number;
    (void)snprintf(reason, sizeof reason, "was killed by signal %d (%s)", signal_number, strsignal(signal_number));
    say_of_worker(it, "error", reason);
    return tacit_status_exit_code(TACIT_E_PEER);
}

static _Noreturn void kill_worker(const supervised *it) {
    (void)kill(it->worker, SIGKILL);
    (void)waitpid(it->worker, NULL, 0);
    _exit(tacit_status_exit_code(TACIT_E_PEER));
}

static _Noreturn void end_worker(const supervised *it, const char *what, double seconds) {
    char reason[REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "%s %.1f s and is killed", what, seconds);
    say_of_worker(it, "error", reason);
    kill_worker(it);
}

/* Since when the worker has been in a state that must end. */
typedef struct patience {
    stop_watch stopped;
    int64_t meeting_ns, shut_down_ns, told_ns;
} patience;

/* The ranks do not meet: is that because one was stopped before it had a watcher? It is woken, so that the next watcher
 * does not name it again, and it can end. */
static void look_at_siblings(const supervised *it) {
    pid_t pid = 0;
    int rank = -1;
    if (!taciti_sibling_find_stopped(&pid, &rank)) return;
    print_line("error", rank, pid, "is stopped and has not begun; the job ends");
    (void)kill(pid, SIGCONT);
    kill_worker(it);
}

/* A worker that waits for ranks which may never come takes a signal as a request for later. It has nothing to save. */
static void end_waiting(const supervised *it, bool waiting, patience *since, int64_t now) {
    if (!waiting) since->told_ns = now;
    if (now - since->told_ns <= MEETING_NS) return;
    (void)kill(it->worker, SIGKILL);
    (void)waitpid(it->worker, NULL, 0);
    _exit(SIGNALED + SIGTERM);
}

/* Before the ranks hear each other, and after they have said goodbye, nobody else would end a worker that does not get
 * on. */
static void look_at_worker(const supervised *it, patience *since) {
    taciti_sight sight;
    taciti_witness_look(&it->shared->witness, &sight);
    const bool meeting = sight.doing[0] == 0, shutting_down = strcmp(sight.doing, TACITI_DOING_SHUT_DOWN) == 0;
    const double stopped_s = stopped_for(&since->stopped, it->worker);
    const bool told_to_end = atomic_load(&it->shared->told_to_end) != 0;
    const bool heard_by_peers = !meeting && !shutting_down;
    if (heard_by_peers && told_to_end && stopped_s > it->timeout_s) kill_worker(it); /* they have named it */
    if (stopped_s > it->timeout_s + (heard_by_peers ? PEERS_FIRST_S : 0))
        end_worker(it, "was stopped, has not gone on for", stopped_s);
    const int64_t now = taciti_now_ns();
    end_waiting(it, meeting && told_to_end, since, now);
    if (!meeting || stopped_s > 0) since->meeting_ns = now;
    if (!shutting_down || stopped_s > 0) since->shut_down_ns = now;
    const double shut_down_s = (double)(now - since->shut_down_ns) * 1e-9;
    if (shut_down_s > SHUT_DOWN_S) end_worker(it, "has not ended within", shut_down_s);
    if ((double)(now - since->meeting_ns) * 1e-9 > it->timeout_s) look_at_siblings(it);
}

/* All signals in `set` are blocked, so none can slip between a look and a wait. */
static _Noreturn void watch_worker(const supervised *it, const sigset_t *set) {
    char title[TITLE_BYTES];
    (void)snprintf(title, sizeof title, "watch: rank %d", it->rank);
    rename_process(title);
    (void)close(STDIN_FILENO);
    (void)close(STDOUT_FILENO);
    bool sent[PASSED_ON_COUNT] = {false};
    patience since = {.stopped.last_ns = taciti_now_ns(), .meeting_ns = taciti_now_ns(), .told_ns = taciti_now_ns()};
    for (;;) {
        int status = 0;
        const pid_t ended = waitpid(it->worker, &status, WNOHANG);
        if (ended == it->worker) _exit(exit_code_of(it, status, sent));
        if (ended < 0 && errno != EINTR) _exit(tacit_status_exit_code(TACIT_E_INTERNAL));
        look_at_worker(it, &since);
        const struct timespec slice = {.tv_sec = LOOK_NS / TACITI_NS_PER_S};
        const int got = sigtimedwait(set, NULL, &slice);
        if (got == SIGTERM) atomic_store(&it->shared->told_to_end, 1);
        for (int i = 0; i < PASSED_ON_COUNT; i++)
            if (got == PASSED_ON[i]) sent[i] = kill(it->worker, got) == 0;
    }
}

/* ---- the worker ----------------------------------------------------------------------------------------------------
 */

static supervised g_self;
static stop_watch g_watcher_stopped;

/* A worker that was stopped for longer has been named by its peers. */
static bool is_named_by_peers(void) {
    return (double)(taciti_now_ns() - g_watcher_stopped.last_ns) * 1e-9 > g_self.timeout_s;
}

/* Before the ranks have met some may be missing. A launcher that has one process here, such as a script around each
 * rank, never loses another. */
static void count_siblings(void) {
    taciti_sight sight;
    taciti_witness_look(&g_self.shared->witness, &sight);
    if (g_self.siblings == 0 && sight.doing[0] != 0) g_self.siblings = taciti_sibling_count(g_self.launcher);
}

static bool has_lost_siblings(void) { return taciti_sibling_count(g_self.launcher) < g_self.siblings - 1; }

/* A launcher that ends a job kills its watchers some time after SIGTERM: no fault of theirs. A busy machine may not
 * have let them see SIGTERM, but then a peer has been silent since, or this worker was stopped, or another process here
 * has ended: mpirun sleeps for a second before SIGKILL, and a child's end cuts that short. A worker that shuts down has
 * said what there was to say. */
static _Noreturn void leave_orphaned(void) {
    char reason[REASON_BYTES];
    taciti_sight sight;
    taciti_witness_look(&g_self.shared->witness, &sight);
    (void)snprintf(reason, sizeof reason, "ends because its watcher (pid %ld) was killed", (long)g_self.watcher);
    const bool shutting_down = strcmp(sight.doing, TACITI_DOING_SHUT_DOWN) == 0;
    const bool told_to_end = atomic_load(&g_self.shared->told_to_end) != 0 ||
                             atomic_load(&g_self.shared->witness.silence_ns) > PEER_IS_LOST_NS || is_named_by_peers() ||
                             has_lost_siblings();
    if (!told_to_end && !shutting_down && !g_self.watcher_is_named)
        say_of_worker(&g_self, "error", reason);
    else if (told_to_end && g_self.rank == 0 && strcmp(sight.doing, "checkpoint") == 0)
        say_of_worker(&g_self, "error", "was ended by its launcher before its checkpoint was complete");
    _exit(tacit_status_exit_code(TACIT_E_PEER));
}

/* A launcher waits for watchers, so one that is stopped would keep the whole job; it wakes up to see this worker end.
 */
static void look_at_watcher(void) {
    if (getppid() != g_self.watcher) leave_orphaned();
    count_siblings();
    const double stopped_s = stopped_for(&g_watcher_stopped, g_self.watcher);
    if (stopped_s <= g_self.timeout_s) return;
    char reason[REASON_BYTES];
    (void)snprintf(reason, sizeof reason,
                   "ends because its watcher (pid %ld) was stopped and has not gone on for %.1f s",
                   (long)g_self.watcher, stopped_s);
    say_of_worker(&g_self, "error", reason);
    (void)kill(g_self.watcher, SIGCONT);
    _exit(tacit_status_exit_code(TACIT_E_PEER));
}

/* SIGCONT also takes back a stop that has not happened yet. */
void taciti_supervise_finish(void) {
    if (g_self.shared == NULL) return;
    char reason[REASON_BYTES];
    (void)snprintf(reason, sizeof reason, "has ended; its watcher (pid %ld) was stopped and is woken",
                   (long)g_self.watcher);
    if (taciti_process_is_stopped(g_self.watcher)) say_of_worker(&g_self, "warning", reason);
    (void)kill(g_self.watcher, SIGCONT);
}

/* ---- start ---------------------------------------------------------------------------------------------------------
 */

static sigset_t continue_set(void) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCONT);
    return set;
}

static void *watch_watcher(void *argument) {
    (void)argument;
    const sigset_t set = continue_set();
    const struct timespec slice = {.tv_nsec = LOOK_NS / 4};
    (void)prctl(PR_SET_NAME, "tacit watch");
    for (;;) {
        look_at_watcher();
        (void)sigtimedwait(&set, NULL, &slice);
    }
    return NULL;
}

/* In its own group, since a launcher that signals the group would reach the worker twice. A watcher that is killed
 * wakes the worker by SIGCONT, also when that is stopped, and it is a thread's duty to see to the rest. Without a
 * thread to spare the worker is killed with its watcher, and nobody is told. */
static void begin_work(void) {
    const sigset_t set = continue_set();
    pthread_t thread;
    (void)setpgid(0, 0);
    g_self.worker = getpid();
    g_watcher_stopped.last_ns = taciti_now_ns();
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    const bool heard = taciti_thread_start_quiet(&thread, watch_watcher, NULL) == 0;
    if (heard) (void)pthread_detach(thread);
    (void)prctl(PR_SET_PDEATHSIG, heard ? SIGCONT : SIGKILL);
    if (getppid() != g_self.watcher) _exit(tacit_status_exit_code(TACIT_E_PEER));
}

static void split_process(const taciti_launcher *launcher) {
    sigset_t watched, before;
    (void)sigemptyset(&watched);
    (void)sigaddset(&watched, SIGCHLD);
    for (int i = 0; i < PASSED_ON_COUNT; i++) (void)sigaddset(&watched, PASSED_ON[i]);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would take the exit status away */
    (void)sigprocmask(SIG_BLOCK, &watched, &before);
    g_self.rank = launcher->rank;
    g_self.launcher = getppid();
    g_self.watcher_is_named = launcher->names_killed;
    g_self.watcher = getpid();
    g_self.worker = fork();
    if (g_self.worker > 0) watch_worker(&g_self, &watched);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (g_self.worker == 0) begin_work();
}

taciti_witness *taciti_supervise(double timeout_s) {
    const taciti_launcher launcher = taciti_launcher_detect();
    const char *choice = getenv("TACIT_SUPERVISE");
    if (launcher.size <= 1 || (choice != NULL && strcmp(choice, "0") == 0)) return NULL;
    page *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return NULL;
    g_self = (supervised){.timeout_s = timeout_s, .shared = shared};
    split_process(&launcher);
    if (g_self.worker > 0) return &shared->witness;
    g_self.shared = NULL;
    (void)munmap(shared, sizeof *shared); /* no process to spare: works without a watcher */
    return NULL;
}

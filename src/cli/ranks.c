/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

/* The time that the other ranks get when one has failed: they notice within comm.timeout, 15 s unless it is set. */
#define GRACE_S 20
#define KILL_S 5
enum { SIGNALED = 128, FOLDER_BYTES = 256, NUMBER_BYTES = 16 };

static const int PASSED_ON[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON_COUNT = sizeof PASSED_ON / sizeof *PASSED_ON };

typedef struct crew {
    int ranks, left; /* left: processes that have not ended */
    pid_t *pids;     /* [ranks]; 0: has ended */
    int code;        /* exit code of the first that failed; 0: none has */
    int last_signal; /* that was passed on */
    int64_t failed_ns;
    bool told, killed; /* SIGTERM and SIGKILL were sent to those that did not end after a failure */
    char folder[FOLDER_BYTES];
} crew;

/* ---- the words --------------------------------------------------------------------------------------------------- */
static tacit_status read_number(const char *text, int *out) {
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != 0 || value < 1 || value > TACITI_RANKS_MAX)
        return taciti_fail(TACIT_E_CONFIG, "--ranks %s: a number from 1 to %d, such as --ranks 4", text,
                           TACITI_RANKS_MAX);
    *out = (int)value;
    return TACIT_OK;
}

tacit_status taciti_ranks_take(int *argc, char **argv, int *ranks) {
    static const char FLAG[] = "--ranks";
    const size_t length = sizeof FLAG - 1;
    int kept = 0;
    bool words_only = false;
    *ranks = 0;
    for (int i = 0; i < *argc; i++) {
        const char *text = argv[i];
        words_only = words_only || strcmp(text, "--") == 0;
        if (words_only || strncmp(text, FLAG, length) != 0 || (text[length] != 0 && text[length] != '=')) {
            argv[kept++] = argv[i];
            continue;
        }
        if (text[length] == 0 && ++i == *argc) return taciti_fail(TACIT_E_USAGE, "--ranks needs a number: --ranks 4");
        TACITI_TRY(read_number(text[length] == 0 ? argv[i] : text + length + 1, ranks));
    }
    *argc = kept;
    argv[kept] = NULL;
    return TACIT_OK;
}

/* ---- the folder where they meet ---------------------------------------------------------------------------------- */
static tacit_status make_folder(crew *c) {
    const char *parent = getenv("TMPDIR");
    const int n =
        snprintf(c->folder, sizeof c->folder, "%s/tacit-XXXXXX", parent == NULL || *parent != '/' ? "/tmp" : parent);
    if (n < 0 || (size_t)n >= sizeof c->folder)
        return taciti_fail(TACIT_E_CONFIG, "TMPDIR is longer than %d characters", FOLDER_BYTES - 16);
    return mkdtemp(c->folder) != NULL ? TACIT_OK : taciti_file_fail("create a folder for --ranks", c->folder);
}

static void remove_folder(const crew *c) {
    DIR *folder = opendir(c->folder);
    if (folder == NULL) return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        (void)unlinkat(dirfd(folder), entry->d_name, 0); /* "." and ".." stay */
    (void)closedir(folder);
    (void)rmdir(c->folder);
}

/* ---- the processes ----------------------------------------------------------------------------------------------- */
static void set_number(const char *name, int value) {
    char text[NUMBER_BYTES];
    (void)snprintf(text, sizeof text, "%d", value);
    (void)setenv(name, text, 1);
}

/* In a process group of its own, so that a signal from the terminal reaches it once, through the starter. Such a group
 * must not read from the terminal. */
static _Noreturn void become_rank(const crew *c, int rank, char **argv, pid_t starter, const sigset_t *mask) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != starter) _exit(tacit_status_exit_code(TACIT_E_PEER));
    if (nothing >= 0) (void)dup2(nothing, STDIN_FILENO);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", c->ranks);
    set_number("LOCAL_WORLD_SIZE", c->ranks);
    (void)setenv("TACIT_COMM_MEET", c->folder, 1);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    (void)execv("/proc/self/exe", argv);
    (void)dprintf(STDERR_FILENO, "tacit: error: rank %d cannot be started: %s\n", rank, strerror(errno));
    _exit(tacit_status_exit_code(TACIT_E_IO));
}

static void send_all(const crew *c, int signal_number) {
    for (int r = 0; r < c->ranks; r++)
        if (c->pids[r] > 0) (void)kill(c->pids[r], signal_number);
}

static void note_failure(crew *c, int code) {
    if (c->code != 0) return;
    c->code = code;
    c->failed_ns = taciti_now_ns();
}

static void start_all(crew *c, char **argv, const sigset_t *mask) {
    const pid_t starter = getpid();
    for (int r = 0; r < c->ranks; r++) {
        c->pids[r] = fork();
        if (c->pids[r] == 0) become_rank(c, r, argv, starter, mask);
        if (c->pids[r] < 0) {
            c->pids[r] = 0;
            note_failure(c, tacit_status_exit_code(taciti_file_fail("start", "another rank")));
            send_all(c, SIGTERM);
            return;
        }
        c->left++;
    }
}

/* A rank that a signal ended has no watcher that speaks for it, or the watcher itself was killed. */
static int code_of(const crew *c, int rank, pid_t pid, int status) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int signal_number = WTERMSIG(status);
    if (signal_number == c->last_signal) return SIGNALED + signal_number;
    if (!c->told)
        taciti_log(TACITI_LOG_ERROR, "rank %d (pid %ld) was killed by signal %d (%s)", rank, (long)pid, signal_number,
                   strsignal(signal_number));
    return tacit_status_exit_code(TACIT_E_PEER);
}

static void reap_ended(crew *c) {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        int rank = 0;
        while (rank < c->ranks && c->pids[rank] != pid) rank++;
        if (rank == c->ranks) continue; /* a child of an earlier program in this process */
        c->pids[rank] = 0;
        c->left--;
        const int code = code_of(c, rank, pid, status);
        if (code != 0) note_failure(c, code);
    }
}

/* Those that do not end after a failure. */
static void hurry_rest(crew *c) {
    if (c->code == 0 || c->left == 0) return;
    const double since_s = (double)(taciti_now_ns() - c->failed_ns) * 1e-9;
    if (since_s > GRACE_S && !c->told) {
        taciti_log(TACITI_LOG_ERROR, "%d of %d ranks have not ended %d s after a failure and are ended now", c->left,
                   c->ranks, GRACE_S);
        send_all(c, SIGTERM);
        c->told = true;
    }
    if (since_s > GRACE_S + KILL_S && !c->killed) {
        send_all(c, SIGKILL);
        c->killed = true;
    }
}

static void watch_all(crew *c, const sigset_t *watched) {
    static const struct timespec SLICE = {.tv_sec = 1};
    for (reap_ended(c); c->left > 0; reap_ended(c)) {
        hurry_rest(c);
        const int got = sigtimedwait(watched, NULL, &SLICE);
        if (got <= 0 || got == SIGCHLD) continue;
        c->last_signal = got;
        send_all(c, got);
    }
}

int taciti_ranks_run(int ranks, char **argv) {
    crew c = {.ranks = ranks, .pids = taciti_calloc((size_t)ranks, sizeof *c.pids)};
    sigset_t watched, before;
    tacit_status status = c.pids == NULL ? TACIT_E_MEMORY : make_folder(&c);
    if (status == TACIT_OK) {
        (void)sigemptyset(&watched);
        (void)sigaddset(&watched, SIGCHLD);
        for (int i = 0; i < PASSED_ON_COUNT; i++) (void)sigaddset(&watched, PASSED_ON[i]);
        (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would take the exit statuses away */
        (void)sigprocmask(SIG_BLOCK, &watched, &before);
        start_all(&c, argv, &before);
        watch_all(&c, &watched);
        remove_folder(&c);
    }
    taciti_free(c.pids);
    return status == TACIT_OK ? c.code : tacit_status_exit_code(status);
}

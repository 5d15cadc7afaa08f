/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/supervise.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/launcher.h"
#include "tacit/tacit.h"

enum { TITLE_BYTES = 32, SIGNALED = 128 };

static const int PASSED_ON[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON_COUNT = sizeof PASSED_ON / sizeof *PASSED_ON };

/* A command line of its own, so that `pkill -f "tacit train"` meets the worker and not its watcher. The place of the
 * old one is known to the system only; without /proc the title stays. */
static void rename_process(const char *title) {
    (void)prctl(PR_SET_NAME, title);
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL) return;
    char line[2048] = "";
    const size_t n = fread(line, 1, sizeof line - 1, file);
    (void)fclose(file);
    line[n] = 0;
    /* The name in parentheses may hold anything; field 3 follows the last one. Fields 48 and 49 are the arguments. */
    char *field = strrchr(line, ')');
    for (int i = 2; field != NULL && i < 48; i++) field = strchr(field + 1, ' ');
    if (field == NULL) return;
    char *rest = NULL;
    const uintptr_t begin = (uintptr_t)strtoull(field, &rest, 10), end = (uintptr_t)strtoull(rest, NULL, 10);
    if (begin == 0 || end <= begin) return;
    memset((char *)begin, 0, end - begin); /* NOLINT: our own argument area */
    const size_t length = strlen(title);
    memcpy((char *)begin, title, length < end - begin - 1 ? length : end - begin - 1);
}

/* The one line, written at once so that lines of several watchers do not mix. */
static void name_culprit(int rank, pid_t worker, int signal_number, const taciti_witness *witness) {
    char host[64] = "?", sight_text[TACITI_WITNESS_TEXT_BYTES];
    (void)gethostname(host, sizeof host - 1);
    taciti_sight sight;
    taciti_witness_look(witness, &sight);
    taciti_sight_text(&sight, sight_text);
    (void)dprintf(STDERR_FILENO,
                  "tacit: error: rank %d on host %s (pid %ld) was killed by signal %d (%s); last seen in %s\n", rank,
                  host, (long)worker, signal_number, strsignal(signal_number), sight_text);
}

static int exit_code_of(int status, const bool *sent, int rank, pid_t worker, const taciti_witness *witness) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int signal_number = WTERMSIG(status);
    for (int i = 0; i < PASSED_ON_COUNT; i++)
        if (signal_number == PASSED_ON[i] && sent[i]) return SIGNALED + signal_number;
    name_culprit(rank, worker, signal_number, witness);
    return tacit_status_exit_code(TACIT_E_PEER);
}

/* All signals in `set` are blocked, so none can slip between a look and a wait. */
static _Noreturn void watch(pid_t worker, int rank, const sigset_t *set, const taciti_witness *witness) {
    char title[TITLE_BYTES];
    (void)snprintf(title, sizeof title, "watch: rank %d", rank);
    rename_process(title);
    (void)close(STDIN_FILENO);
    (void)close(STDOUT_FILENO);
    bool sent[PASSED_ON_COUNT] = {false};
    for (;;) {
        int status = 0;
        const pid_t ended = waitpid(worker, &status, WNOHANG);
        if (ended == worker) _exit(exit_code_of(status, sent, rank, worker, witness));
        if (ended < 0 && errno != EINTR) _exit(tacit_status_exit_code(TACIT_E_INTERNAL));
        const struct timespec second = {.tv_sec = 1};
        const int got = sigtimedwait(set, NULL, &second);
        for (int i = 0; i < PASSED_ON_COUNT; i++)
            if (got == PASSED_ON[i]) sent[i] = kill(worker, got) == 0;
    }
}

static bool wanted(const taciti_launcher *launcher) {
    const char *choice = getenv("TACIT_SUPERVISE");
    return launcher->size > 1 && (choice == NULL || strcmp(choice, "0") != 0);
}

taciti_witness *taciti_supervise(void) {
    const taciti_launcher launcher = taciti_launcher_detect();
    if (!wanted(&launcher)) return NULL;
    taciti_witness *witness = mmap(NULL, sizeof *witness, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (witness == MAP_FAILED) return NULL;
    sigset_t watched, before;
    (void)sigemptyset(&watched);
    (void)sigaddset(&watched, SIGCHLD);
    for (int i = 0; i < PASSED_ON_COUNT; i++) (void)sigaddset(&watched, PASSED_ON[i]);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would take the exit status away */
    (void)sigprocmask(SIG_BLOCK, &watched, &before);
    const pid_t watcher = getpid(), worker = fork();
    if (worker > 0) watch(worker, launcher.rank, &watched, witness);
    if (worker == 0) {
        /* Its own group: a launcher that signals the group would reach the worker twice. */
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != watcher) _exit(tacit_status_exit_code(TACIT_E_PEER));
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (worker == 0) return witness;
    (void)munmap(witness, sizeof *witness); /* no process to spare: works without a watcher */
    return NULL;
}

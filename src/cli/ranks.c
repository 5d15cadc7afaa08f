/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote.h"

/* Whoever fails first has named the culprit or heard who it is, and so have the others. */
#define GRACE_S 5
#define KILL_S 5
#define SILENCE_S 30 /* of the starter, for ranks on another host */
/* SERVED: the ranks of another host add it to their exit code, which tells it from those of a remote shell. */
enum { SIGNALED = 128, SERVED = 64, FOLDER_BYTES = 256, NUMBER_BYTES = 16, RSH_WORDS = 64, LOOK_MS = 1000 };

/* Through the line to another host comes BEAT, or FIRST_SIGNAL + the index of a signal. */
static const int PASSED_ON[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON_COUNT = sizeof PASSED_ON / sizeof *PASSED_ON, BEAT = '.', FIRST_SIGNAL = '0' };

/* A rank of this host, or the remote shell of another one. */
typedef struct child {
    pid_t pid; /* 0: has ended */
    int line;  /* to the other host; -1: none */
} child;

typedef struct crew {
    child *children;
    int count, left;  /* left: children that have not ended */
    int first, ranks; /* of the ranks of this host; of all hosts */
    const char *name; /* what the ranks call their starter */
    char **argv;      /* of a rank, ends with NULL */
    const char *rsh;  /* NULL: the children are ranks */
    taciti_remote_hosts hosts;
    char folder[FOLDER_BYTES]; /* where the ranks of one host meet; "": elsewhere */
    int signals;               /* where signals arrive */
    int line;                  /* from the starter on another host; -1: this is the starter, or it has gone */
    int64_t heard_ns, beat_ns; /* last heard from it; last told others */
    sigset_t mask;             /* of the children */
    int code;                  /* exit code of the first that failed; 0: none has */
    int last_signal;           /* that was passed on */
    int64_t asked_ns;          /* when one first asked the ranks to end; 0: none has */
    int64_t failed_ns;
    bool told, killed; /* SIGTERM and SIGKILL were sent to those that did not end after a failure */
} crew;

/* ---- the words --------------------------------------------------------------------------------------------------- */
static tacit_status read_number(const char *text, int *out) {
    int64_t value = 0;
    if (!taciti_integer_parse(text, &value) || value < 1 || value > TACITI_RANKS_MAX)
        return taciti_fail(TACIT_E_CONFIG, "--ranks %s: a number from 1 to %d, such as --ranks 4", text,
                           TACITI_RANKS_MAX);
    *out = (int)value;
    return TACIT_OK;
}

enum { RANKS, HOSTS, RSH, FLAG_COUNT };
static const struct {
    const char *name, *needs;
} FLAGS[FLAG_COUNT] = {
    {"--ranks", "a number: --ranks 4"}, {"--hosts", "names: --hosts a,b:2"}, {"--rsh", "a command: --rsh ssh"}};

/* Returns which flag the word is, FLAG_COUNT for none. *value: what stands behind "=", or NULL. */
static int find_flag(const char *word, const char **value) {
    for (int flag = 0; flag < FLAG_COUNT; flag++) {
        const size_t length = strlen(FLAGS[flag].name);
        if (strncmp(word, FLAGS[flag].name, length) != 0) continue;
        *value = word[length] == '=' ? word + length + 1 : NULL;
        if (word[length] == 0 || word[length] == '=') return flag;
    }
    return FLAG_COUNT;
}

tacit_status taciti_ranks_take(int *argc, char **argv, taciti_ranks *out) {
    const char *given[FLAG_COUNT] = {NULL};
    int kept = 0;
    bool words_only = false;
    for (int i = 0; i < *argc; i++) {
        const char *value = NULL;
        words_only = words_only || strcmp(argv[i], "--") == 0;
        const int flag = words_only ? FLAG_COUNT : find_flag(argv[i], &value);
        if (flag == FLAG_COUNT) {
            argv[kept++] = argv[i];
            continue;
        }
        if (value == NULL && ++i < *argc) value = argv[i];
        if (value == NULL || value[strspn(value, " ")] == 0)
            return taciti_fail(TACIT_E_USAGE, "%s needs %s", FLAGS[flag].name, FLAGS[flag].needs);
        given[flag] = value;
    }
    *argc = kept;
    argv[kept] = NULL;
    *out = (taciti_ranks){.hosts = given[HOSTS], .rsh = given[RSH] == NULL ? TACITI_RSH : given[RSH]};
    if (given[RSH] != NULL && given[HOSTS] == NULL)
        return taciti_fail(TACIT_E_USAGE, "--rsh reaches the hosts of --hosts, which is missing: --hosts a,b");
    return given[RANKS] == NULL ? TACIT_OK : read_number(given[RANKS], &out->ranks);
}

/* ---- the folder where they meet ---------------------------------------------------------------------------------- */
static tacit_status make_folder(crew *c) {
    const char *parent = getenv("TMPDIR");
    const int n =
        snprintf(c->folder, sizeof c->folder, "%s/tacit-XXXXXX", parent == NULL || *parent != '/' ? "/tmp" : parent);
    const bool fits = n > 0 && (size_t)n < sizeof c->folder;
    if (fits && mkdtemp(c->folder) != NULL) return TACIT_OK;
    const tacit_status status =
        fits ? taciti_file_fail("create a folder for --ranks", c->folder)
             : taciti_fail(TACIT_E_CONFIG, "TMPDIR is longer than %d characters", FOLDER_BYTES - 16);
    *c->folder = '\0'; /* at the end the folder is removed with all that it holds */
    return status;
}

/* ---- the processes ----------------------------------------------------------------------------------------------- */
static void set_number(const char *name, int value) {
    char text[NUMBER_BYTES];
    (void)snprintf(text, sizeof text, "%d", value);
    (void)setenv(name, text, 1);
}

static void set_variables(const crew *c, int index) {
    set_number("RANK", c->first + index);
    set_number("LOCAL_RANK", index);
    set_number("WORLD_SIZE", c->ranks);
    set_number("LOCAL_WORLD_SIZE", c->count);
    (void)setenv("TACIT_STARTER", c->name, 1);
    if (*c->folder != 0) (void)setenv("TACIT_COMM_MEET", c->folder, 1);
}

/* In a process group of its own, so that a signal from the terminal reaches it once, through the starter. Such a group
 * must not read from the terminal. */
static _Noreturn void become_rank(const crew *c, int index, pid_t starter) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != starter) _exit(tacit_status_exit_code(TACIT_E_PEER));
    if (nothing >= 0) (void)dup2(nothing, STDIN_FILENO);
    set_variables(c, index);
    (void)sigprocmask(SIG_SETMASK, &c->mask, NULL);
    char program[PATH_MAX]; /* by this the system names the process */
    if (realpath("/proc/self/exe", program) != NULL) (void)execv(program, c->argv);
    (void)execv("/proc/self/exe", c->argv);
    (void)dprintf(STDERR_FILENO, "tacit: error: rank %d cannot be started: %s\n", c->first + index, strerror(errno));
    _exit(tacit_status_exit_code(TACIT_E_IO));
}

/* In a session of its own: Ctrl-C reaches the ranks through their line, and no question waits at the terminal. It is
 * not bound to the starter's life: when the line ends it passes that on, and the last words of the ranks back. */
static _Noreturn void become_shell(const crew *c, int index, int line) {
    char *words[RSH_WORDS + 3] = {NULL}, *rest = NULL, *rsh = strdup(c->rsh);
    taciti_remote_host *host = &c->hosts.at[index];
    int n = 0;
    for (char *word = strtok_r(rsh, " ", &rest); word != NULL && n < RSH_WORDS; word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    words[n++] = host->name;
    words[n] = taciti_remote_command(host, c->ranks, c->argv + 1);
    (void)setsid();
    (void)dup2(line, STDIN_FILENO);
    (void)sigprocmask(SIG_SETMASK, &c->mask, NULL);
    if (words[n] != NULL) (void)execvp(words[0], words);
    (void)dprintf(STDERR_FILENO, "tacit: error: --rsh %s cannot be started: %s\n", words[0], strerror(errno));
    _exit(SERVED + tacit_status_exit_code(TACIT_E_CONFIG));
}

static pid_t start_child(crew *c, int index, pid_t starter) {
    int line[2] = {-1, -1};
    if (c->rsh != NULL && pipe2(line, O_CLOEXEC) != 0) return -1;
    const pid_t pid = fork();
    if (pid == 0 && c->rsh != NULL) become_shell(c, index, line[0]);
    if (pid == 0) become_rank(c, index, starter);
    if (line[0] >= 0) (void)close(line[0]);
    if (line[1] >= 0) (void)fcntl(line[1], F_SETFL, O_NONBLOCK); /* a shell that does not read keeps nobody waiting */
    c->children[index] = (child){.pid = pid < 0 ? 0 : pid, .line = line[1]};
    return pid;
}

/* ---- what they are told ------------------------------------------------------------------------------------------ */
static void tell_line(const child *it, char word) {
    if (it->pid > 0 && it->line >= 0) (void)!write(it->line, &word, 1);
}

static void end_line(child *it) {
    if (it->line >= 0) (void)close(it->line);
    it->line = -1;
}

static void send_all(const crew *c, int signal_number) {
    for (const child *it = c->children; it < c->children + c->count; it++) {
        if (it->pid > 0 && it->line < 0) (void)kill(it->pid, signal_number);
        for (int i = 0; i < PASSED_ON_COUNT; i++)
            if (signal_number == PASSED_ON[i]) tell_line(it, (char)(FIRST_SIGNAL + i));
    }
}

static void kill_all(crew *c) {
    for (int i = 0; i < c->count; i++) {
        end_line(&c->children[i]);
        if (c->children[i].pid > 0) (void)kill(c->children[i].pid, SIGKILL);
    }
}

static void send_beats(crew *c) {
    const int64_t now = taciti_now_ns();
    if (now - c->beat_ns < TACITI_NS_PER_S / 2) return;
    c->beat_ns = now;
    for (int i = 0; i < c->count; i++) tell_line(&c->children[i], BEAT);
}

static void note_failure(crew *c, int code) {
    if (c->code != 0) return;
    c->code = code;
    c->failed_ns = taciti_now_ns();
}

/* ---- their ends -------------------------------------------------------------------------------------------------- */
static void start_all(crew *c) {
    const pid_t starter = getpid();
    for (int i = 0; i < c->count; i++) {
        if (start_child(c, i, starter) < 0) {
            note_failure(c, tacit_status_exit_code(taciti_file_fail("start", "another rank")));
            send_all(c, SIGTERM);
            return;
        }
        c->left++;
    }
}

/* A rank that a signal ended has no watcher that speaks for it, or the watcher itself was killed. */
static int code_of_rank(const crew *c, int index, pid_t pid, int status) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int signal_number = WTERMSIG(status);
    if (signal_number == c->last_signal) return SIGNALED + signal_number;
    if (!c->told)
        taciti_log(TACITI_LOG_ERROR, "rank %d (pid %ld) was killed by signal %d (%s)", c->first + index, (long)pid,
                   signal_number, strsignal(signal_number));
    return tacit_status_exit_code(TACIT_E_PEER);
}

/* The code is that of the ranks, who have said what was wrong; any other is the remote shell's, whose 126 and 127 mean
 * that it found no program. */
static int code_of_host(const crew *c, int index, int status) {
    const int ended = WIFEXITED(status) ? WEXITSTATUS(status) : SIGNALED + WTERMSIG(status);
    const char *name = c->hosts.at[index].name;
    if (ended >= SERVED && ended <= SERVED + tacit_status_exit_code(TACIT_E_IO)) return ended - SERVED;
    if (c->last_signal != 0 && ended == SIGNALED + c->last_signal) return ended;
    char program[PATH_MAX];
    const bool missing = (ended == 126 || ended == 127) && realpath("/proc/self/exe", program) != NULL;
    if (!c->told)
        taciti_log(TACITI_LOG_ERROR, "the ranks on host %s are lost: \"%s %s\" ended with code %d; try: %s %s %s%s",
                   name, c->rsh, name, ended, c->rsh, name, missing ? program : "true", missing ? " --version" : "");
    return tacit_status_exit_code(TACIT_E_PEER);
}

static void reap_ended(crew *c) {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        int i = 0;
        while (i < c->count && c->children[i].pid != pid) i++;
        if (i == c->count) continue; /* a child of an earlier program in this process */
        c->children[i].pid = 0;
        c->left--;
        end_line(&c->children[i]);
        const int code = c->rsh != NULL ? code_of_host(c, i, status) : code_of_rank(c, i, pid, status);
        if (code != 0) note_failure(c, code);
    }
}

/* Those that do not end after a failure. */
static void hurry_rest(crew *c) {
    if (c->code == 0 || c->left == 0) return;
    const double since_s = (double)(taciti_now_ns() - c->failed_ns) * 1e-9;
    if (since_s > GRACE_S && !c->told) {
        send_all(c, SIGTERM);
        c->told = true;
    }
    if (since_s > GRACE_S + KILL_S && !c->killed) {
        int first = 0;
        while (first + 1 < c->count && c->children[first].pid == 0) first++;
        taciti_log(TACITI_LOG_WARN, "%d of %d %s have not ended %d s after a failure and are killed%s%s", c->left,
                   c->count, c->rsh != NULL ? "hosts" : "ranks", GRACE_S + KILL_S,
                   c->rsh != NULL ? ", first of them " : "", c->rsh != NULL ? c->hosts.at[first].name : "");
        kill_all(c);
        c->killed = true;
    }
}

/* ---- what they hear ---------------------------------------------------------------------------------------------- */
/* Ranks that are asked to end take their time. One who asks again a second later waits no longer. */
static void pass_on(crew *c, int signal_number) {
    const int64_t now = taciti_now_ns();
    c->last_signal = signal_number;
    send_all(c, signal_number);
    if (signal_number == SIGUSR1 || signal_number == SIGUSR2) return;
    if (c->asked_ns == 0)
        c->asked_ns = now;
    else if (now - c->asked_ns > TACITI_NS_PER_S)
        note_failure(c, SIGNALED + signal_number);
}

static void take_signals(crew *c) {
    struct signalfd_siginfo info;
    while (read(c->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGPIPE) pass_on(c, (int)info.ssi_signo);
}

/* The ranks are asked to end, as by the starter; then they get no more time than after a failure. */
static void lose_starter(crew *c, const char *why) {
    taciti_log(TACITI_LOG_ERROR, "ranks %d to %d end: %s", c->first, c->first + c->count - 1, why);
    (void)close(c->line);
    c->line = -1;
    note_failure(c, tacit_status_exit_code(TACIT_E_PEER));
    pass_on(c, SIGTERM);
}

static void hear_starter(crew *c) {
    char words[64];
    const ssize_t n = read(c->line, words, sizeof words);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    c->heard_ns = taciti_now_ns();
    if (n <= 0) lose_starter(c, "their starter has gone (or --rsh closes the standard input, as ssh -n does)");
    for (ssize_t i = 0; i < n; i++)
        if (words[i] >= FIRST_SIGNAL && words[i] < FIRST_SIGNAL + PASSED_ON_COUNT)
            pass_on(c, PASSED_ON[words[i] - FIRST_SIGNAL]);
}

static void watch_all(crew *c) {
    for (reap_ended(c); c->left > 0; reap_ended(c)) {
        struct pollfd polls[] = {{.fd = c->signals, .events = POLLIN}, {.fd = c->line, .events = POLLIN}};
        hurry_rest(c);
        send_beats(c);
        (void)poll(polls, sizeof polls / sizeof *polls, LOOK_MS);
        if (polls[0].revents != 0) take_signals(c);
        if (c->line >= 0 && polls[1].revents != 0) hear_starter(c);
        if (c->line >= 0 && taciti_now_ns() - c->heard_ns > SILENCE_S * TACITI_NS_PER_S)
            lose_starter(c, "nothing has been heard of their starter for 30 s");
    }
}

/* ---- all together ------------------------------------------------------------------------------------------------ */
static tacit_status take_over_signals(crew *c) {
    sigset_t watched;
    (void)sigemptyset(&watched);
    (void)sigaddset(&watched, SIGCHLD);
    (void)sigaddset(&watched, SIGPIPE);
    for (int i = 0; i < PASSED_ON_COUNT; i++) (void)sigaddset(&watched, PASSED_ON[i]);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would take the exit statuses away */
    (void)sigprocmask(SIG_BLOCK, &watched, &c->mask);
    c->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return c->signals >= 0 ? TACIT_OK : taciti_file_fail("take signals", "signalfd");
}

/* Starts the children and stays until all have ended. */
static int run_crew(crew *c, tacit_status status) {
    if (status == TACIT_OK) c->children = taciti_calloc((size_t)c->count, sizeof *c->children);
    if (status == TACIT_OK) status = c->children == NULL ? TACIT_E_MEMORY : take_over_signals(c);
    if (status == TACIT_OK) {
        c->heard_ns = taciti_now_ns();
        start_all(c);
        watch_all(c);
        (void)close(c->signals);
    }
    if (*c->folder != 0) (void)taciti_file_remove(c->folder);
    taciti_free(c->children);
    taciti_remote_destroy(&c->hosts);
    return status == TACIT_OK ? c->code : tacit_status_exit_code(status);
}

/* The variable is for the shells' commands. */
static tacit_status find_hosts(crew *c, const taciti_ranks *wanted) {
    char meet[TACITI_REMOTE_MEET_BYTES];
    TACITI_TRY(taciti_remote_parse(wanted->hosts, wanted->ranks > 0 ? wanted->ranks : 1, &c->hosts));
    TACITI_TRY(taciti_remote_meet(&c->hosts.at[0], meet));
    (void)setenv("TACIT_COMM_MEET", meet, 0);
    c->count = c->hosts.count;
    c->ranks = c->hosts.ranks;
    c->rsh = wanted->rsh;
    return TACIT_OK;
}

int taciti_ranks_run(const taciti_ranks *wanted, char **argv) {
    crew c = {.count = wanted->ranks, .ranks = wanted->ranks, .name = "tacit --ranks", .argv = argv, .line = -1};
    return run_crew(&c, wanted->hosts != NULL ? find_hosts(&c, wanted) : make_folder(&c));
}

/* Its standard error may end before it: the ranks must have a chance to save what they have. */
int taciti_ranks_serve(int argc, char **argv) {
    enum { FIRST = 2, COUNT, RANKS_OF_ALL, WORDS };
    crew c = {.name = "tacit --hosts", .argv = argv + RANKS_OF_ALL, .line = STDIN_FILENO};
    taciti_cli_log_init(0);
    if (argc <= WORDS) return tacit_status_exit_code(taciti_fail(TACIT_E_USAGE, "%s is tacit's own", argv[1]));
    c.first = atoi(argv[FIRST]), c.count = atoi(argv[COUNT]), c.ranks = atoi(argv[RANKS_OF_ALL]);
    argv[RANKS_OF_ALL] = argv[0];
    if (c.first < 0 || c.count < 1 || c.ranks < c.first + c.count)
        return tacit_status_exit_code(taciti_fail(TACIT_E_USAGE, "%s is tacit's own", argv[1]));
    (void)fcntl(STDIN_FILENO, F_SETFD, FD_CLOEXEC);
    (void)signal(SIGPIPE, SIG_IGN);
    const int code = run_crew(&c, TACIT_OK);
    return code < SERVED ? SERVED + code : code;
}

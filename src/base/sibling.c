/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/sibling.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system.h"

enum { PATH_BYTES = 64, TEXT_BYTES = 65536 };

/* The variables of a process, with the zeros between them; returns the length. */
static size_t read_environment(pid_t pid, char *out, size_t size) {
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    FILE *file = fopen(path, "r");
    const size_t n = file == NULL ? 0 : fread(out, 1, size - 1, file);
    if (file != NULL) (void)fclose(file);
    out[n] = 0;
    return n;
}

static bool read_stat(pid_t pid, char *state, long *parent) {
    char line[TACITI_PROCESS_BYTES];
    const char *at = taciti_process_field((long)pid, TACITI_PROCESS_STATE, line); /* the parent follows */
    return at != NULL && sscanf(at, "%c %ld", state, parent) == 2;
}

static bool means_stopped(char state) { return state == 'T' || state == 't'; }

bool taciti_process_is_stopped(pid_t pid) {
    char state = '?';
    long parent = 0;
    return read_stat(pid, &state, &parent) && means_stopped(state);
}

/* Whether an entry of the environment tells the rank. */
static bool read_rank(const char *entry, int *rank) {
    static const char *const VARIABLES[] = {"OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "RANK="};
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) {
        const size_t length = strlen(VARIABLES[i]);
        if (strncmp(entry, VARIABLES[i], length) != 0) continue;
        *rank = atoi(entry + length);
        return true;
    }
    return false;
}

static int rank_of(pid_t pid) {
    char *text = malloc(TEXT_BYTES);
    int rank = -1;
    const size_t n = text == NULL ? 0 : read_environment(pid, text, TEXT_BYTES);
    for (size_t at = 0; at < n && !read_rank(text + at, &rank);) at += strlen(text + at) + 1;
    free(text);
    return rank;
}

/* Returns the next process of this parent and its state; 0 behind the last one. */
static pid_t next_child(DIR *folder, pid_t parent, char *state) {
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const pid_t pid = (pid_t)atoi(entry->d_name);
        long of = 0;
        if (pid > 0 && read_stat(pid, state, &of) && of == (long)parent) return pid;
    }
    return 0;
}

bool taciti_sibling_find_stopped(pid_t *pid, int *rank) {
    pid_t stopped = 0, first = getpid();
    char state = '?';
    DIR *folder = opendir("/proc");
    if (folder == NULL) return false;
    for (pid_t other; (other = next_child(folder, getppid(), &state)) > 0;) {
        if (means_stopped(state))
            stopped = other;
        else if (other < first)
            first = other;
    }
    (void)closedir(folder);
    if (stopped == 0 || first != getpid()) return false;
    *pid = stopped;
    *rank = rank_of(stopped);
    return true;
}

int taciti_sibling_count(pid_t parent) {
    int count = 0;
    char state = '?';
    DIR *folder = opendir("/proc");
    if (folder == NULL) return 0;
    while (next_child(folder, parent, &state) > 0)
        if (state != 'Z' && state != 'X') count++;
    (void)closedir(folder);
    return count;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/remote.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/ranks.h"

/* Below the range from which Linux takes ports for connections. */
enum { PORT_MIN = 20000, PORTS = 12000 };

/* ---- the list ---------------------------------------------------------------------------------------------------- */
/* The number behind the colon; without one *ranks stays. */
static bool read_slots(const char *colon, const char *end, int *ranks) {
    char *stop = NULL;
    if (colon == NULL) return true;
    const long value = strtol(colon + 1, &stop, 10);
    if (stop != end || colon[1] < '0' || colon[1] > '9' || value < 1 || value > TACITI_RANKS_MAX) return false;
    *ranks = (int)value;
    return true;
}

/* An address with colons stands in brackets. A name that begins with "-" would be an option of the remote shell. */
static bool read_host(const char *word, const char *end, taciti_remote_host *out) {
    const char *close = *word == '[' ? memchr(word, ']', (size_t)(end - word)) : NULL;
    const char *begin = close == NULL ? word : word + 1;
    const char *after = close == NULL ? word : close + 1;
    const char *colon = memchr(after, ':', (size_t)(end - after));
    const char *name_end = close != NULL ? close : colon != NULL ? colon : end;
    const size_t length = (size_t)(name_end - begin);
    if (length == 0 || length >= sizeof out->name || *begin == '-') return false;
    if (close != NULL && after != end && colon != after) return false;
    memcpy(out->name, begin, length);
    out->name[length] = 0;
    return strpbrk(out->name, " \t\n[]") == NULL && read_slots(colon, end, &out->ranks);
}

/* By such a name each host would look for rank 0 on itself. */
static tacit_status check_first(const taciti_remote_hosts *hosts) {
    for (int i = 1; strcmp(hosts->at[0].name, "localhost") == 0 && i < hosts->count; i++)
        if (strcmp(hosts->at[i].name, "localhost") != 0)
            return taciti_fail(TACIT_E_CONFIG,
                               "--hosts: %s cannot find rank 0 on \"localhost\"; write the name by which it knows the "
                               "first host",
                               hosts->at[i].name);
    return TACIT_OK;
}

static tacit_status fill_hosts(const char *list, int per_host, taciti_remote_hosts *out) {
    for (const char *word = list, *end; word != NULL; word = *end == 0 ? NULL : end + 1) {
        end = strchrnul(word, ',');
        taciti_remote_host *host = &out->at[out->count++];
        *host = (taciti_remote_host){.first = out->ranks, .ranks = per_host};
        if (!read_host(word, end, host))
            return taciti_fail(
                TACIT_E_CONFIG,
                "--hosts: \"%.*s\" is not a host, or a host and its number of ranks (1 to %d): --hosts a,b:2",
                (int)(end - word), word, TACITI_RANKS_MAX);
        out->ranks += host->ranks;
    }
    if (out->ranks > TACITI_RANKS_MAX)
        return taciti_fail(TACIT_E_CONFIG, "--hosts: %d ranks are more than %d", out->ranks, TACITI_RANKS_MAX);
    return check_first(out);
}

tacit_status taciti_remote_parse(const char *list, int per_host, taciti_remote_hosts *out) {
    size_t words = 1;
    for (const char *at = list; *at != 0; at++) words += *at == ',';
    taciti_remote_hosts hosts = {.at = taciti_calloc(words, sizeof *hosts.at)};
    const tacit_status status = hosts.at == NULL ? TACIT_E_MEMORY : fill_hosts(list, per_host, &hosts);
    if (status == TACIT_OK)
        *out = hosts;
    else
        taciti_remote_destroy(&hosts);
    return status;
}

void taciti_remote_destroy(taciti_remote_hosts *hosts) { taciti_free(hosts->at); }

tacit_status taciti_remote_meet(const taciti_remote_host *host, char out[TACITI_REMOTE_MEET_BYTES]) {
    uint32_t number = 0;
    const char *at = strrchr(host->name, '@'), *name = at == NULL ? host->name : at + 1;
    const bool brackets = strchr(name, ':') != NULL;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return taciti_file_fail("draw a number from", "/dev/urandom");
    (void)snprintf(out, TACITI_REMOTE_MEET_BYTES, "%s%s%s:%d", brackets ? "[" : "", name, brackets ? "]" : "",
                   PORT_MIN + (int)(number % PORTS));
    return TACIT_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */
/* As one word of any shell. */
static void put_word(FILE *out, const char *text) {
    (void)fputs(" '", out);
    for (; *text != 0; text++) (void)fputs(*text == '\'' ? "'\\''" : (char[]){*text, 0}, out);
    (void)fputc('\'', out);
}

static bool is_needed(const char *variable) {
    return strncmp(variable, "TACIT_", 6) == 0 || strncmp(variable, "LD_LIBRARY_PATH=", 16) == 0;
}

static void put_command(FILE *out, const taciti_remote_host *host, int ranks, char **words, const char *folder,
                        const char *program) {
    (void)fputs("cd", out);
    put_word(out, folder);
    (void)fputs(" && exec env", out);
    for (char **variable = environ; *variable != NULL; variable++)
        if (is_needed(*variable)) put_word(out, *variable);
    put_word(out, program);
    (void)fprintf(out, " " TACITI_RANKS_SERVE " %d %d %d", host->first, host->ranks, ranks);
    for (; *words != NULL; words++) put_word(out, *words);
    (void)fputs("; exit 126", out); /* no such folder */
}

char *taciti_remote_command(const taciti_remote_host *host, int ranks, char **words) {
    char folder[PATH_MAX], program[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    const bool found = getcwd(folder, sizeof folder) != NULL && realpath("/proc/self/exe", program) != NULL;
    FILE *out = found ? open_memstream(&text, &bytes) : NULL;
    if (out != NULL) put_command(out, host, ranks, words, folder, program);
    if (out != NULL && fclose(out) == 0) return text;
    (void)taciti_file_fail("write the command for", host->name);
    free(text);
    return NULL;
}

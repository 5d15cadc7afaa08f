/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "switch_control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

bool taciti_control_number(const char *word, uint64_t max, uint64_t *number) {
    if (word == NULL || *word < '0' || *word > '9') return false;
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(word, &end, 10);
    if (errno != 0 || *end != '\0' || value > max) return false;
    *number = value;
    return true;
}

static void write_counts(const taciti_port *ports, size_t port_count, char answer[TACITI_CONTROL_BYTES]) {
    size_t used = (size_t)snprintf(answer, TACITI_CONTROL_BYTES, "ok");
    for (size_t i = 0; i < port_count && used < TACITI_CONTROL_BYTES; i++) {
        const taciti_port_count *count = &ports[i].count;
        used += (size_t)snprintf(answer + used, TACITI_CONTROL_BYTES - used,
                                 "\n%zu %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, i, count->frames,
                                 count->bytes, count->dropped, count->lost, count->discarded);
    }
}

static const char *change_link(const char *verb, const char *who, const char *value, taciti_port *ports,
                               size_t port_count) {
    uint64_t port, number = 0;
    const bool is_rate = strcmp(verb, "rate") == 0, is_delay = strcmp(verb, "delay") == 0,
               is_cut = strcmp(verb, "cut") == 0;
    if (!is_rate && !is_delay && !is_cut && strcmp(verb, "heal") != 0)
        return "error: unknown word; rate, delay, cut, heal, stat";
    if (!taciti_control_number(who, port_count - 1, &port)) return "error: a port is needed";
    if (is_rate && !taciti_control_number(value, TACITI_MAX_RATE_BPS, &number))
        return "error: a rate is a number of bits per second, at most 10^11";
    if (is_delay && !taciti_control_number(value, TACITI_MAX_DELAY_NS, &number))
        return "error: a delay is at most 2 * 10^9 nanoseconds";
    taciti_shaped_link *link = &ports[port].link;
    if (is_rate)
        link->rate_bps = number;
    else if (is_delay)
        link->delay_ns = number;
    else
        link->cut = is_cut;
    return "ok";
}

void taciti_control_apply(char *request, taciti_port *ports, size_t port_count, char answer[TACITI_CONTROL_BYTES]) {
    char *rest = NULL, *words[4] = {NULL};
    size_t count = 0;
    for (char *word = strtok_r(request, " \n", &rest); word != NULL && count < 4; word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    const char *result = "error: too many words or none";
    if (count > 0 && count < 4) result = change_link(words[0], words[1], words[2], ports, port_count);
    if (count == 1 && strcmp(words[0], "stat") == 0) {
        write_counts(ports, port_count, answer);
        return;
    }
    (void)snprintf(answer, TACITI_CONTROL_BYTES, "%s", result);
}

static bool name_socket(const char *path, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) < sizeof address->sun_path) {
        memcpy(address->sun_path, path, strlen(path) + 1);
        return true;
    }
    fprintf(stderr, "tacit-switch: the path %s is longer than the %zu bytes of a socket's name\n", path,
            sizeof address->sun_path);
    return false;
}

int taciti_control_listen(const char *path) {
    struct sockaddr_un address;
    if (!name_socket(path, &address)) return -1;
    const int control = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    (void)unlink(path);
    if (control >= 0 && bind(control, (const struct sockaddr *)&address, sizeof address) == 0) return control;
    fprintf(stderr, "tacit-switch: making the socket %s: %s\n", path, strerror(errno));
    if (control >= 0) (void)close(control);
    return -1;
}

void taciti_control_serve(int control, taciti_port *ports, size_t port_count) {
    char request[256], answer[TACITI_CONTROL_BYTES];
    struct sockaddr_un sender;
    socklen_t sender_bytes = sizeof sender;
    const ssize_t got = recvfrom(control, request, sizeof request - 1, 0, (struct sockaddr *)&sender, &sender_bytes);
    if (got < 0) return;
    request[got] = '\0';
    taciti_control_apply(request, ports, port_count, answer);
    /* A client that does not wait gets no answer. */
    (void)sendto(control, answer, strlen(answer), MSG_DONTWAIT, (const struct sockaddr *)&sender, sender_bytes);
}

static size_t join_words(int argc, char **argv, char *request, size_t capacity) {
    size_t used = 0;
    for (int i = 0; i < argc && used < capacity; i++)
        used += (size_t)snprintf(request + used, capacity - used, "%s%s", i == 0 ? "" : " ", argv[i]);
    return used < capacity ? used : 0;
}

int taciti_control_ask(const char *path, int argc, char **argv) {
    char request[256], answer[TACITI_CONTROL_BYTES + 1];
    struct sockaddr_un address, own = {.sun_family = AF_UNIX};
    const size_t bytes = join_words(argc, argv, request, sizeof request);
    if (bytes == 0 || !name_socket(path, &address)) return 7;
    const int control = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct timeval patience = {.tv_sec = 3};
    ssize_t got = -1;
    /* A name of the family alone: the kernel gives one that nobody else has, for the answer to find us. */
    if (control >= 0 && bind(control, (const struct sockaddr *)&own, sizeof own.sun_family) == 0 &&
        setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        setsockopt(control, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
        sendto(control, request, bytes, 0, (const struct sockaddr *)&address, sizeof address) == (ssize_t)bytes)
        got = recv(control, answer, TACITI_CONTROL_BYTES, 0);
    if (got < 0) fprintf(stderr, "tacit-switch: no switch answers at %s: %s\n", path, strerror(errno));
    if (control >= 0) (void)close(control);
    if (got < 0) return 7;
    answer[got] = '\0';
    puts(answer);
    return strncmp(answer, "error", 5) == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/tcp_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/system.h"
#include "base/text.h"

/* The system keeps at most this much unsent: a short message must not queue behind megabytes of a long one. */
enum { UNSENT_BYTES = 256 << 10, UNIX_BUFFER_BYTES = 1 << 20, BACKLOG = 4096 };

/* ---- names ------------------------------------------------------------------------------------------------------- */
void taciti_socket_name_text(const taciti_socket_name *name, char out[TACITI_ADDRESS_TEXT_BYTES]) {
    char text[INET6_ADDRSTRLEN] = "?";
    if (name->storage.ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &name->in.sin_addr, text, sizeof text);
        (void)snprintf(out, TACITI_ADDRESS_TEXT_BYTES, "%s:%u", text, (unsigned)taciti_socket_name_port(name));
    } else if (name->storage.ss_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &name->in6.sin6_addr, text, sizeof text);
        (void)snprintf(out, TACITI_ADDRESS_TEXT_BYTES, "[%s]:%u", text, (unsigned)taciti_socket_name_port(name));
    } else {
        (void)snprintf(out, TACITI_ADDRESS_TEXT_BYTES, "a Unix-domain socket");
    }
}

/* "[host]:port" or "host:port" -> host, port. */
static bool split_host_port(const char *text, char *host, size_t bytes, const char **port) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text || colon[1] == 0) return false;
    const bool bracket = text[0] == '[' && colon[-1] == ']';
    const char *begin = bracket ? text + 1 : text, *end = bracket ? colon - 1 : colon;
    if (end <= begin || (size_t)(end - begin) >= bytes) return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = 0;
    *port = colon + 1;
    return true;
}

/* The system takes ports modulo 65536, and connects to 0 without an end. */
static bool is_port(const char *text) {
    int64_t port = 0;
    return taciti_integer_parse(text, &port) && port >= 1 && port <= UINT16_MAX;
}

tacit_status taciti_socket_name_resolve(const char *text, const char *origin, taciti_socket_name *out) {
    char host[256];
    const char *port = NULL;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const char *before = origin == NULL ? "" : origin, *colon = origin == NULL ? "" : ": ";
    if (!split_host_port(text, host, sizeof host, &port))
        return taciti_fail(TACIT_E_CONFIG, "%s%s\"%s\" is not an address; give host:port", before, colon, text);
    if (!is_port(port))
        return taciti_fail(TACIT_E_CONFIG, "%s%s\"%s\" has no port from 1 to %d", before, colon, text, UINT16_MAX);
    const int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0)
        return taciti_fail(
            TACIT_E_CONFIG,
            "%s%scannot find the address %s: %s; ranks need that of rank 0, as in comm.meet=10.0.0.1:29500", before,
            colon, text, gai_strerror(error));
    *out = (taciti_socket_name){.bytes = found->ai_addrlen};
    memcpy(&out->storage, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return TACIT_OK;
}

taciti_socket_name taciti_socket_name_of(const taciti_tcp_address *address, uint16_t port) {
    taciti_socket_name out = {.bytes = address->family == 6 ? sizeof out.in6 : sizeof out.in};
    if (address->family == 6) {
        out.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        memcpy(&out.in6.sin6_addr, address->bytes, 16);
    } else {
        out.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&out.in.sin_addr, address->bytes, 4);
    }
    return out;
}

uint16_t taciti_socket_name_port(const taciti_socket_name *name) {
    return ntohs(name->storage.ss_family == AF_INET6 ? name->in6.sin6_port : name->in.sin_port);
}

taciti_socket_name taciti_socket_name_any(const taciti_socket_name *name) {
    taciti_tcp_address any = {.family = name->storage.ss_family == AF_INET6 ? 6 : 4};
    return taciti_socket_name_of(&any, taciti_socket_name_port(name));
}

static bool is_loopback_name(const taciti_socket_name *name) {
    if (name->storage.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&name->in6.sin6_addr);
    return name->storage.ss_family == AF_INET && ntohl(name->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool taciti_socket_name_is_shared(const char *text, const taciti_socket_name *name) {
    char host[256];
    const char *port = NULL;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
    if (!is_loopback_name(name) || !split_host_port(text, host, sizeof host, &port)) return true;
    if (strcmp(host, "localhost") == 0) return true;
    if (getaddrinfo(host, NULL, &hints, &found) != 0) return false;
    freeaddrinfo(found);
    return true;
}

taciti_socket_name taciti_socket_name_local(const char *local) {
    taciti_socket_name out = {.un.sun_family = AF_UNIX};
    const size_t n = strnlen(local, sizeof out.un.sun_path - 1);
    memcpy(out.un.sun_path + 1, local, n);
    out.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    return out;
}

/* ---- addresses of this host -------------------------------------------------------------------------------------- */
static bool take_address(const struct sockaddr *from, taciti_tcp_address *out) {
    memset(out, 0, sizeof *out);
    if (from != NULL && from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        out->family = 4;
        memcpy(out->bytes, &in.sin_addr, 4);
        return true;
    }
    if (from != NULL && from->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, from, sizeof in6);
        out->family = 6;
        memcpy(out->bytes, &in6.sin6_addr, 16);
        return !IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr); /* means nothing without the interface of the reader */
    }
    return false;
}

static bool is_wanted(const struct ifaddrs *i, const taciti_tcp_address *address, const char *interface) {
    char text[INET6_ADDRSTRLEN] = "";
    if ((i->ifa_flags & IFF_UP) == 0) return false;
    if (interface[0] == 0) return true;
    (void)inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->bytes, text, sizeof text);
    return strcmp(i->ifa_name, interface) == 0 || strcmp(text, interface) == 0;
}

/* Adds the addresses of one family that are, or are not, of the loopback interface. */
static int add_addresses(const struct ifaddrs *all, const char *interface, int family, bool loopback, int count,
                         taciti_tcp_address *out) {
    for (const struct ifaddrs *i = all; i != NULL && count < TACITI_RECORD_ADDRESSES; i = i->ifa_next) {
        taciti_tcp_address address;
        if (!take_address(i->ifa_addr, &address) || address.family != family) continue;
        if (((i->ifa_flags & IFF_LOOPBACK) != 0) == loopback && is_wanted(i, &address, interface))
            out[count++] = address;
    }
    return count;
}

int taciti_tcp_addresses_find(const char *interface, taciti_tcp_address out[TACITI_RECORD_ADDRESSES]) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return 0;
    int count = 0;
    for (int loopback = 0; loopback < 2 && count == 0; loopback++) {
        count = add_addresses(all, interface, 4, loopback == 1, count, out);
        count = add_addresses(all, interface, 6, loopback == 1, count, out);
    }
    freeifaddrs(all);
    return count;
}

void taciti_host_identity(uint8_t out[TACITI_TCP_HOST_BYTES]) {
    char text[256] = "", boot[64] = "";
    struct stat network = {0};
    (void)taciti_system_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    (void)stat("/proc/self/ns/net", &network);
    const int n = snprintf(text, sizeof text, "%s %llu", boot, (unsigned long long)network.st_ino);
    const XXH128_hash_t hash = XXH3_128bits(text, (size_t)n);
    memcpy(out, &hash.low64, 8);
    memcpy(out + 8, &hash.high64, 8);
}

/* ---- sockets ----------------------------------------------------------------------------------------------------- */
static int give_up_socket(int fd) {
    const int error = errno;
    if (fd >= 0) (void)close(fd);
    errno = error;
    return -1;
}

int taciti_socket_listen(const taciti_socket_name *name, bool reuse) {
    const int on = 1, fd = socket(name->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (reuse) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &name->address, name->bytes) != 0 || listen(fd, BACKLOG) != 0) return give_up_socket(fd);
    return fd;
}

int taciti_socket_connect(const taciti_socket_name *name) {
    const int fd = socket(name->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (connect(fd, &name->address, name->bytes) == 0 || errno == EINPROGRESS) return fd;
    return give_up_socket(fd);
}

/* A datagram socket that is connected sends nothing. */
bool taciti_socket_name_towards(const taciti_socket_name *to, taciti_socket_name *out) {
    const int fd = socket(to->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    taciti_socket_name name = {.bytes = sizeof name.storage};
    const bool found =
        fd >= 0 && connect(fd, &to->address, to->bytes) == 0 && getsockname(fd, &name.address, &name.bytes) == 0;
    if (fd >= 0) (void)close(fd);
    if (found) *out = name;
    return found;
}

int taciti_socket_connect_error(int fd) {
    int error = 0;
    socklen_t bytes = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

int taciti_socket_accept(int listener) { return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC); }

void taciti_socket_tune(int fd, double user_timeout_s) {
    const int on = 1, unsent = UNSENT_BYTES, buffer = UNIX_BUFFER_BYTES;
    const unsigned timeout_ms = (unsigned)(user_timeout_s * 1e3);
    int domain = 0;
    socklen_t bytes = sizeof domain;
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes);
    if (domain == AF_UNIX) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

void taciti_socket_refuse(taciti_refusals *seen, const char *who, int fd, const char *why) {
    taciti_socket_name name = {.bytes = sizeof name.storage};
    char text[TACITI_ADDRESS_TEXT_BYTES] = "somewhere";
    if (getpeername(fd, &name.address, &name.bytes) == 0) taciti_socket_name_text(&name, text);
    (void)snprintf(seen->last, sizeof seen->last, "%s refuses a connection from %s: %s", who, text, why);
    for (int i = 0; i < seen->count; i++)
        if (strcmp(seen->reasons[i], why) == 0) return;
    if (seen->count == sizeof seen->reasons / sizeof *seen->reasons) return;
    seen->reasons[seen->count++] = why;
    taciti_log(TACITI_LOG_WARN, "%s", seen->last);
}

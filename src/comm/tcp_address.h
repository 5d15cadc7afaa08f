/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets and addresses of this host, for the TCP engine and the bootstrap port. All sockets are closed by exec() and,
 * unless said otherwise, do not block.
 */
#ifndef TACITI_COMM_TCP_ADDRESS_H
#define TACITI_COMM_TCP_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "comm/tcp_frame.h"
#include "tacit/tacit.h"

/* An address of any family, which storage.ss_family names. */
typedef struct taciti_socket_name {
    union {
        struct sockaddr_storage storage;
        struct sockaddr address;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    };
    socklen_t bytes;
} taciti_socket_name;

enum { TACITI_ADDRESS_TEXT_BYTES = 64 };

/* Writes "10.0.0.1:4711" or "[fe80::1]:4711". */
void taciti_socket_name_text(const taciti_socket_name *name, char out[TACITI_ADDRESS_TEXT_BYTES]);

/* Resolves "host:port" or "[host]:port". E_CONFIG, naming the text and its origin ("comm.meet"; NULL: no word of it),
 * if that is impossible. May block. */
tacit_status taciti_socket_name_resolve(const char *text, const char *origin, taciti_socket_name *out);

/* The address of this host from which it would reach `to`, of which nothing is asked. False: there is no way. */
bool taciti_socket_name_towards(const taciti_socket_name *to, taciti_socket_name *out);

taciti_socket_name taciti_socket_name_of(const taciti_tcp_address *address, uint16_t port);

uint16_t taciti_socket_name_port(const taciti_socket_name *name);

/* All addresses of this host, with the family and the port of `name`. */
taciti_socket_name taciti_socket_name_any(const taciti_socket_name *name);

/* False for a host that is known by a name of its own but has given that name a loopback address, as /etc/hosts of
 * Debian does: other hosts resolve `text`, "host:port", to another address than `name`. */
bool taciti_socket_name_is_shared(const char *text, const taciti_socket_name *name);

/* A Unix-domain socket in the abstract namespace. */
taciti_socket_name taciti_socket_name_local(const char *local);

/* Finds up to TACITI_RECORD_ADDRESSES addresses by which others may reach this host. interface: the name of one
 * ("eth0"), an address of this host, or "": all that are up, loopback only if there is no other. Returns their number,
 * or 0 if there is none. */
int taciti_tcp_addresses_find(const char *interface, taciti_tcp_address out[TACITI_RECORD_ADDRESSES]);

/* Returns a listening socket, or -1 with errno. `reuse` allows a port that a closed run still holds. */
int taciti_socket_listen(const taciti_socket_name *name, bool reuse);

/* Begins to connect. Returns the socket, or -1 with errno. */
int taciti_socket_connect(const taciti_socket_name *name);

/* Finishes a connect that has become writable. Returns 0 or its errno. */
int taciti_socket_connect_error(int fd);

/* Accepts a connection; -1 if there is none. */
int taciti_socket_accept(int listener);

/* Settings of an engine's connection: no delay, a bound on what waits in the system, and how long the other side may
 * leave data unacknowledged before the system gives it up. */
void taciti_socket_tune(int fd, double user_timeout_s);

/* The reasons for which strangers were refused: each is logged once, so that nobody fills the log. */
enum { TACITI_REFUSAL_BYTES = 192 };
typedef struct taciti_refusals {
    const char *reasons[16];
    int count;
    char last[TACITI_REFUSAL_BYTES]; /* "rank 0 refuses a connection from 10.0.0.1:4711: ..."; "": there was none */
} taciti_refusals;

/* Logs that `who` ("rank 0") refuses the connection. why: a constant. */
void taciti_socket_refuse(taciti_refusals *seen, const char *who, int fd, const char *why);

/* Equal on processes that share an abstract namespace of Unix-domain sockets: the machine since its boot, and the
 * network namespace. */
void taciti_host_identity(uint8_t out[TACITI_TCP_HOST_BYTES]);

#endif

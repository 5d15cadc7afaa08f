/* SPDX-License-Identifier: Apache-2.0
 *
 * The traffic of this host's network interfaces, from the counters of the kernel; in a network namespace, of the
 * interfaces of the namespace. Shared memory, the loopback and traffic that bypasses the kernel (RDMA) are not counted.
 */
#ifndef TACITI_BENCH_INTERFACE_COUNTERS_H
#define TACITI_BENCH_INTERFACE_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

enum { TACITI_TRAFFIC_NAMES_BYTES = 96, TACITI_INTERFACE_BYTES = 32 };

typedef struct taciti_traffic {
    uint64_t sent_bytes, received_bytes;    /* since the interfaces were created, with link headers */
    char names[TACITI_TRAFFIC_NAMES_BYTES]; /* "eth0, eth1" */
} taciti_traffic;

/* Sums over the physical interfaces, because a bridge or bond counts the bytes of its members again. Without any (in
 * namespaces and containers), sums over all interfaces except the loopback. Returns false if there is none. */
bool taciti_traffic_read(taciti_traffic *out);

/* Parses a line of /proc/net/dev. Returns false for headings and malformed lines. */
bool taciti_traffic_line(const char *line, char name[TACITI_INTERFACE_BYTES], uint64_t *received_bytes,
                         uint64_t *sent_bytes);

#endif

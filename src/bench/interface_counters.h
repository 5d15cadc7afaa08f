/* SPDX-License-Identifier: Apache-2.0
 *
 * What the network interfaces of this host have carried, by the kernel's own counters. Inside a network namespace these
 * are the interfaces of the namespace. Shared memory and the loopback do not count, and neither does what bypasses the
 * kernel (RDMA).
 */
#ifndef TACITI_BENCH_INTERFACE_COUNTERS_H
#define TACITI_BENCH_INTERFACE_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

enum { TACITI_TRAFFIC_NAMES_BYTES = 96, TACITI_INTERFACE_BYTES = 32 };

typedef struct taciti_traffic {
    uint64_t sent_bytes, received_bytes;    /* since the interfaces came up, with all headers of the link */
    char names[TACITI_TRAFFIC_NAMES_BYTES]; /* "eth0, eth1" */
} taciti_traffic;

/* The sum over the physical interfaces, or, where there are none (namespaces, containers), over all but the loopback:
 * a bridge or bond would count the bytes of its members again. False when the host has no such interface. */
bool taciti_traffic_read(taciti_traffic *out);

/* One line of /proc/net/dev; false for its headings and for what is no such line. */
bool taciti_traffic_line(const char *line, char name[TACITI_INTERFACE_BYTES], uint64_t *received_bytes,
                         uint64_t *sent_bytes);

#endif

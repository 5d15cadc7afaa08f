/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank is on which host. A communicator knows its own (comm/comm.h), and a described cluster says where any
 * number of ranks would be (cluster/cluster.h).
 */
#ifndef TACITI_BASE_HOSTS_H
#define TACITI_BASE_HOSTS_H

#include "tacit/tacit.h"

typedef struct taciti_hosts {
    int ranks, count;
    int *host_of; /* [ranks], 0 .. count - 1: hosts in the order of their lowest ranks */
} taciti_hosts;

/* All ranks on one host. Returns owned. */
tacit_status taciti_hosts_create(int ranks, taciti_hosts *out);

/* per_host ranks on every host; the last one has what is left. Returns owned. */
tacit_status taciti_hosts_by_size(int ranks, int per_host, taciti_hosts *out);

/* The ranks of the smallest and of the largest host. */
typedef struct taciti_host_sizes {
    int min, max;
} taciti_host_sizes;

taciti_host_sizes taciti_hosts_sizes(const taciti_hosts *hosts);

void taciti_hosts_destroy(taciti_hosts *hosts); /* {0} is fine */

#endif

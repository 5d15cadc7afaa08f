/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hosts.h"

#include "base/memory.h"

tacit_status taciti_hosts_by_size(int ranks, int per_host, taciti_hosts *out) {
    int *host_of = taciti_calloc((size_t)ranks, sizeof *host_of);
    if (host_of == NULL) return TACIT_E_MEMORY;
    for (int r = 0; r < ranks; r++) host_of[r] = r / per_host;
    *out = (taciti_hosts){.ranks = ranks, .count = (ranks - 1) / per_host + 1, .host_of = host_of};
    return TACIT_OK;
}

tacit_status taciti_hosts_create(int ranks, taciti_hosts *out) { return taciti_hosts_by_size(ranks, ranks, out); }

taciti_host_sizes taciti_hosts_sizes(const taciti_hosts *hosts) {
    taciti_host_sizes sizes = {.min = hosts->ranks};
    for (int h = 0; h < hosts->count; h++) {
        int ranks = 0;
        for (int r = 0; r < hosts->ranks; r++) ranks += hosts->host_of[r] == h;
        if (ranks < sizes.min) sizes.min = ranks;
        if (ranks > sizes.max) sizes.max = ranks;
    }
    return sizes;
}

void taciti_hosts_destroy(taciti_hosts *hosts) {
    taciti_free(hosts->host_of);
    *hosts = (taciti_hosts){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cluster.h"

/* Arrays that a member of a group of n must send, and receive, at least. */
static double traffic(taciti_collective collective, double n) {
    return (collective == TACITI_COLLECTIVE_ALL_REDUCE ? 2 : 1) * (n - 1) / n;
}

/* Seconds per byte of a host's link with all of its ranks sending. */
static double host_beta(const taciti_cluster *cluster) {
    if (cluster->host_beta_s_per_byte > 0) return cluster->host_beta_s_per_byte;
    return cluster->between.alpha_s >= 0 ? cluster->between.beta_s_per_byte : 0;
}

/* The maximum number of pairs of ranks across one link: the smaller of the hosts 2i and 2i + 1, whose ranks are paired.
 */
static double max_pairs(const taciti_cluster *cluster) {
    int max = 0;
    for (int h = 0; h + 1 < cluster->hosts; h += 2) {
        const int a = cluster->ranks_per_host[h], b = cluster->ranks_per_host[h + 1], smaller = a < b ? a : b;
        max = smaller > max ? smaller : max;
    }
    return max;
}

double taciti_cluster_bound_s(const taciti_cluster *cluster, taciti_collective collective, taciti_group_kind group,
                              size_t bytes) {
    const double b = (double)bytes, hosts = cluster->hosts, ranks = taciti_cluster_ranks(cluster);
    const double local = taciti_cluster_max_ranks_per_host(cluster);
    if (group == TACITI_GROUP_HOST || cluster->hosts == 1)
        return cluster->inside.alpha_s < 0 ? 0 : traffic(collective, local) * b * cluster->inside.beta_s_per_byte;
    if (group == TACITI_GROUP_TWO_HOSTS) return traffic(collective, 2) * b * host_beta(cluster);
    if (group == TACITI_GROUP_PAIR) return max_pairs(cluster) * traffic(collective, 2) * b * host_beta(cluster);
    /* Nothing of an all-to-all can be joined: each rank sends its own part to each rank elsewhere. */
    if (collective == TACITI_COLLECTIVE_ALL_TO_ALL) return local * (ranks - local) / ranks * b * host_beta(cluster);
    return traffic(collective, hosts) * b * host_beta(cluster);
}

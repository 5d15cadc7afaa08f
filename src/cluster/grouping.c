/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/grouping.h"

#include "base/memory.h"

/* The ranks of these hosts become a group. */
static void append_hosts(const taciti_hosts *hosts, int from, int to, taciti_grouping *g) {
    size_t at = g->first[g->round.groups];
    for (int r = 0; r < hosts->ranks; r++)
        if (hosts->host_of[r] >= from && hosts->host_of[r] <= to) g->members[at++] = r;
    if (at >= g->first[g->round.groups] + 2) g->first[++g->round.groups] = at;
}

/* The next rank of a host behind another; the number of ranks: there is none. */
static int next_rank(const taciti_hosts *hosts, int host, int behind) {
    int r = behind + 1;
    while (r < hosts->ranks && hosts->host_of[r] != host) r++;
    return r;
}

static void append_pairs(const taciti_hosts *hosts, int here, int there, taciti_grouping *g) {
    for (int a = -1, b = -1;;) {
        a = next_rank(hosts, here, a);
        b = next_rank(hosts, there, b);
        if (a == hosts->ranks || b == hosts->ranks) return;
        int *pair = &g->members[g->first[g->round.groups]];
        pair[0] = a < b ? a : b;
        pair[1] = a < b ? b : a;
        g->round.groups++;
        g->first[g->round.groups] = g->first[g->round.groups - 1] + 2;
    }
}

static void fill(const taciti_hosts *hosts, taciti_group_kind kind, taciti_grouping *g) {
    switch (kind) {
    case TACITI_GROUP_WORLD: append_hosts(hosts, 0, hosts->count - 1, g); break;
    case TACITI_GROUP_HOST:
        for (int h = 0; h < hosts->count; h++) append_hosts(hosts, h, h, g);
        break;
    case TACITI_GROUP_PAIR:
        for (int h = 0; h + 1 < hosts->count; h += 2) append_pairs(hosts, h, h + 1, g);
        break;
    case TACITI_GROUP_TWO_HOSTS:
        for (int h = 0; h + 1 < hosts->count; h += 2) append_hosts(hosts, h, h + 1, g);
        break;
    case TACITI_GROUP_KINDS: break;
    }
}

tacit_status taciti_grouping_create(const taciti_hosts *hosts, taciti_group_kind kind, taciti_grouping *out) {
    *out = (taciti_grouping){.topology = {.name = "groups", .ranks = hosts->ranks, .period = 1}};
    out->members = taciti_calloc((size_t)hosts->ranks + 1, sizeof *out->members);
    out->first = taciti_calloc((size_t)hosts->ranks + 1, sizeof *out->first);
    if (out->members == NULL || out->first == NULL) {
        taciti_grouping_destroy(out);
        return TACIT_E_MEMORY;
    }
    fill(hosts, kind, out);
    out->round.members = out->members;
    out->round.first = out->first;
    out->topology.rounds = &out->round;
    return TACIT_OK;
}

void taciti_grouping_destroy(taciti_grouping *grouping) {
    taciti_free(grouping->members);
    taciti_free(grouping->first);
    *grouping = (taciti_grouping){0};
}

taciti_members taciti_grouping_of(const taciti_grouping *grouping, int rank) {
    for (size_t g = 0; g < grouping->round.groups; g++)
        for (size_t i = grouping->first[g]; i < grouping->first[g + 1]; i++)
            if (grouping->members[i] == rank)
                return (taciti_members){grouping->members + grouping->first[g],
                                        grouping->first[g + 1] - grouping->first[g]};
    return (taciti_members){0};
}

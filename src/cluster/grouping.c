/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/grouping.h"

#include "topo/draft.h"

/* The ranks of these hosts become a group. */
static void append_hosts(const taciti_hosts *hosts, int from, int to, taciti_draft *draft) {
    size_t count = 0;
    for (int r = 0; r < hosts->ranks; r++)
        if (hosts->host_of[r] >= from && hosts->host_of[r] <= to) draft->places[count++] = r;
    taciti_draft_mean(draft, draft->places, count);
}

/* The next rank of a host behind another; the number of ranks: there is none. */
static int next_rank(const taciti_hosts *hosts, int host, int behind) {
    int r = behind + 1;
    while (r < hosts->ranks && hosts->host_of[r] != host) r++;
    return r;
}

static void append_pairs(const taciti_hosts *hosts, int here, int there, taciti_draft *draft) {
    for (int a = -1, b = -1;;) {
        a = next_rank(hosts, here, a);
        b = next_rank(hosts, there, b);
        if (a == hosts->ranks || b == hosts->ranks) return;
        taciti_draft_pair(draft, a, b);
    }
}

static void append_groups(const taciti_hosts *hosts, taciti_group_kind kind, taciti_draft *draft) {
    switch (kind) {
    case TACITI_GROUP_WORLD: append_hosts(hosts, 0, hosts->count - 1, draft); break;
    case TACITI_GROUP_HOST:
        for (int h = 0; h < hosts->count; h++) append_hosts(hosts, h, h, draft);
        break;
    case TACITI_GROUP_PAIR:
        for (int h = 0; h + 1 < hosts->count; h += 2) append_pairs(hosts, h, h + 1, draft);
        break;
    case TACITI_GROUP_TWO_HOSTS:
        for (int h = 0; h + 1 < hosts->count; h += 2) append_hosts(hosts, h, h + 1, draft);
        break;
    case TACITI_GROUP_KINDS: break;
    }
}

tacit_status taciti_grouping_create(const taciti_hosts *hosts, taciti_group_kind kind, taciti_topology *out) {
    taciti_draft draft;
    TACITI_TRY(taciti_draft_create(hosts->ranks, &draft));
    append_groups(hosts, kind, &draft);
    taciti_draft_close(&draft);
    for (int r = 0; r < hosts->ranks; r++) draft.places[r] = r;
    const tacit_status status = taciti_draft_finish(&draft, draft.places, "groups", out);
    taciti_draft_destroy(&draft);
    return status;
}

taciti_members taciti_grouping_of(const taciti_topology *grouping, int rank) {
    taciti_members members = {.count = 0};
    const size_t count = taciti_topology_group(grouping, 0, rank, &members.ranks);
    if (members.ranks != NULL) members.count = count;
    return members;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives by size and group. Small sizes of all kinds come first, so that a slow cluster loses the long ones only.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cluster/fit.h"
#include "cluster/grouping.h"
#include "cluster/probe_state.h"
#include "exchange/allreduce.h"
#include "exchange/demand.h"
#include "exchange/outbox.h"

static const size_t SIZES[] = {4 << 10, 256 << 10, 1 << 20, 4 << 20, 32 << 20};
static const size_t QUICK_SIZES[] = {4 << 10, 1 << 20, 4 << 20};

enum { ROUNDS = 7, ROUNDS_QUICK = 3, ROUNDS_MIN = 3, REPEATS_MAX = 100, SKIPPED_BYTES = 720 };
/* A round of small arrays repeats them until it takes this long: what ranks start apart is lost in it. */
static const double ROUND_S = 5e-3;
/* One measurement takes at most this many times its part of what is left, and then with the least number of rounds. */
static const double GREED = 6;
/* Rounds that differ by this factor are repeated, for up to PATIENCE times a measurement's part of the time. */
static const double UNEVEN = 1.25, PATIENCE = 3;

/* Sends of an all-to-all under way: the next message's announcement travels while the one before it moves. */
enum { SENDS = 2 };

/* ---- one measurement --------------------------------------------------------------------------------------------- */

/* The subject of a measurement: a collective in a group, by us or (native >= 0) by the engine. */
typedef struct subject {
    taciti_collective collective;
    taciti_group_kind group;
    int native;
} subject;

typedef struct bench {
    taciti_probe *probe;
    taciti_topology groupings[TACITI_GROUP_KINDS];
    taciti_allreduce
        reduces[TACITI_GROUP_KINDS]; /* as training has them; of kinds in which this rank is in no group none */
    taciti_pages x, y;               /* the longest array, and what the collectives need beside it */
    taciti_engine_request *requests; /* [ranks + SENDS] receives, then sends of an all-to-all; owned */
    const taciti_native *natives;    /* the library's own; ends with a NULL name; NULL: not asked for */
    const size_t *sizes;
    size_t size_count, subjects;
    subject what;
    size_t bytes, repeats; /* of the round that is running */
} bench;

/* In phase k a rank sends to the rank k behind it and receives from the rank k before it, so that every link carries
 * one message per direction at a time. All receives are posted first, so that no message waits for its buffer. */
static tacit_status run_all_to_all(taciti_comm *comm, bench *b) {
    const int size = b->probe->size, me = b->probe->rank;
    const size_t bytes = b->bytes / (size_t)size;
    const char *out = b->x.base;
    char *in = b->y.base;
    taciti_outbox sends = {.comm = comm, .requests = b->requests + size, .window = SENDS};
    for (int k = 1; k < size; k++) {
        const int from = (me - k + size) % size;
        TACITI_TRY(taciti_comm_irecv(comm, from, in + (size_t)from * bytes, bytes, &b->requests[from]));
    }
    for (int k = 1; k < size; k++) {
        const int to = (me + k) % size;
        TACITI_TRY(taciti_outbox_send(&sends, to, out + (size_t)to * bytes, bytes));
    }
    TACITI_TRY(taciti_outbox_await(&sends, sends.posted));
    for (int k = 1; k < size; k++) TACITI_TRY(taciti_comm_await(comm, &b->requests[(me - k + size) % size]));
    memcpy(in + (size_t)me * bytes, out + (size_t)me * bytes, bytes);
    return TACIT_OK;
}

static tacit_status run_once(taciti_comm *comm, bench *b) {
    const taciti_group_kind kind = b->what.group;
    if (b->what.collective == TACITI_COLLECTIVE_ALL_TO_ALL) return run_all_to_all(comm, b);
    /* as training does it, in the groups in which gossip does it */
    const bool idle = taciti_grouping_of(&b->groupings[kind], b->probe->rank).count == 0;
    return idle ? TACIT_OK : taciti_allreduce_run(&b->reduces[kind], b->x.base, b->bytes / sizeof(float), NULL, NULL);
}

static tacit_status run_round(taciti_comm *comm, void *context) {
    bench *b = context;
    if (b->what.native >= 0) {
        const bool apart = b->natives[b->what.native].apart;
        return taciti_comm_native_allreduce(comm, b->what.native, b->x.base, apart ? b->y.base : b->x.base,
                                            b->bytes / sizeof(float), (int)b->repeats);
    }
    for (size_t i = 0; i < b->repeats; i++) TACITI_TRY(run_once(comm, b));
    return TACIT_OK;
}

/* Seconds per repeat on the slowest rank; the same on all ranks. */
static tacit_status time_round(bench *b, double *out_s) {
    taciti_job job = {
        .run = run_round, .context = b, .name = taciti_collective_names[b->what.collective], .detail = -1};
    TACITI_TRY(taciti_comm_barrier(b->probe->comm));
    TACITI_TRY(taciti_probe_job(b->probe, &job));
    *out_s = (double)(job.end_ns - job.begin_ns) / 1e9 / (double)b->repeats;
    return taciti_comm_allreduce_f64(b->probe->comm, out_s, 1, TACITI_OP_MAX);
}

static const char *name_of(const bench *b, const subject *what) {
    return what->native < 0 ? "tacit" : b->natives[what->native].name;
}

/* One of few rounds that something else held up makes their median worthless. The same on all ranks, as times are. */
static bool is_uneven(const double *seconds, size_t rounds) {
    double min = seconds[0], max = seconds[0];
    for (size_t i = 1; i < rounds; i++) {
        min = seconds[i] < min ? seconds[i] : min;
        max = seconds[i] > max ? seconds[i] : max;
    }
    return max > UNEVEN * min;
}

/* One round to warm up, which also tells how many repeats and rounds there is time for. */
static tacit_status measure_subject(bench *b, double fair_s, double *out_s) {
    double seconds[ROUNDS], warm_up_s, spent_s = 0;
    const double rounds_max = b->probe->options->quick ? ROUNDS_QUICK : ROUNDS;
    b->repeats = 1;
    TACITI_TRY(time_round(b, &warm_up_s));
    if (warm_up_s < ROUND_S) { /* the first one also made connections */
        TACITI_TRY(time_round(b, &warm_up_s));
        const double fit = ROUND_S / (warm_up_s > 1e-9 ? warm_up_s : 1e-9);
        b->repeats = fit > REPEATS_MAX ? REPEATS_MAX : (size_t)fit + 1;
    }
    const double fit = (fair_s - warm_up_s) / (warm_up_s * (double)b->repeats);
    const size_t planned = (size_t)(fit > rounds_max ? rounds_max : fit > ROUNDS_MIN ? fit : ROUNDS_MIN);
    size_t rounds = 0;
    while (rounds < planned || (rounds < ROUNDS && spent_s < fair_s * PATIENCE && is_uneven(seconds, rounds))) {
        TACITI_TRY(time_round(b, &seconds[rounds]));
        spent_s += seconds[rounds++] * (double)b->repeats;
    }
    taciti_cluster_timing timing = {.collective = b->what.collective, .group = b->what.group, .bytes = b->bytes};
    (void)snprintf(timing.by, sizeof timing.by, "%s", name_of(b, &b->what));
    timing.seconds = *out_s = taciti_median(seconds, rounds); /* sorts */
    timing.spread = (seconds[rounds - 1] - seconds[0]) / timing.seconds;
    return taciti_cluster_add_timing(b->probe->cluster, &timing);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Groups that are the world or another kind under another name, or single ranks, say nothing. */
static bool says_something(const taciti_probe *probe, taciti_group_kind kind) {
    const bool several = taciti_cluster_max_ranks_per_host(probe->cluster) > 1;
    if (kind == TACITI_GROUP_WORLD) return true;
    if (probe->hosts < 2) return false;
    if (kind == TACITI_GROUP_HOST) return several;
    return kind == TACITI_GROUP_PAIR ? probe->size > 2 : several && probe->hosts > 2;
}

/* The i-th subject, in the order in which they are measured: what matters most comes first. False at the end. */
static bool subject_of(const bench *b, size_t i, subject *out) {
    for (int group = 0; group < TACITI_GROUP_KINDS; group++) {
        if (!says_something(b->probe, (taciti_group_kind)group) || i-- > 0) continue;
        *out = (subject){TACITI_COLLECTIVE_ALL_REDUCE, (taciti_group_kind)group, -1};
        return true;
    }
    for (int native = 0; b->natives != NULL && b->natives[native].name != NULL; native++) {
        if (i-- > 0) continue;
        *out = (subject){TACITI_COLLECTIVE_ALL_REDUCE, TACITI_GROUP_WORLD, native};
        return true;
    }
    *out = (subject){TACITI_COLLECTIVE_ALL_TO_ALL, TACITI_GROUP_WORLD, -1};
    return i == 0;
}

static void add_name(const bench *b, char *list, size_t size) {
    taciti_text_add(list, size, "%s %s/%s", *list == '\0' ? "" : ",", taciti_group_kind_names[b->what.group],
                    b->what.native < 0 ? taciti_collective_names[b->what.collective] : name_of(b, &b->what));
}

/* All subjects at one size. last_s[subject] is the time at the size before, 0 when there is none. */
static tacit_status measure_size(bench *b, size_t at, double share, double *last_s) {
    char skipped[SKIPPED_BYTES] = "", what[64];
    (void)snprintf(what, sizeof what, "collectives of %zu KiB", b->sizes[at] >> 10);
    taciti_probe_say(b->probe, what);
    b->bytes = b->sizes[at];
    for (size_t i = 0; i < b->subjects; i++) {
        double left_s = 0;
        (void)subject_of(b, i, &b->what);
        TACITI_TRY(taciti_probe_left(b->probe, share, &left_s));
        const double rest = (double)((b->size_count - at) * b->subjects - i);
        const double max_s = rest > GREED ? left_s / rest * GREED : left_s;
        const double growth = at == 0 ? 0 : (double)b->bytes / (double)b->sizes[at - 1];
        if (at > 0 && (last_s[i] * growth * (1 + ROUNDS_MIN) > max_s || last_s[i] <= 0)) {
            add_name(b, skipped, sizeof skipped);
            last_s[i] = 0;
            continue;
        }
        TACITI_TRY(measure_subject(b, left_s / rest, &last_s[i]));
    }
    if (*skipped == '\0') return TACIT_OK;
    return taciti_cluster_add_note(b->probe->cluster,
                                   "collectives of %zu bytes left out for lack of time (--seconds %.0f in all):%s",
                                   b->bytes, b->probe->options->seconds, skipped);
}

static tacit_status measure_all(bench *b, double share) {
    subject last;
    while (subject_of(b, b->subjects, &last)) b->subjects++;
    double *last_s = taciti_calloc(b->subjects, sizeof *last_s);
    tacit_status status = taciti_comm_agree(b->probe->comm, last_s == NULL ? TACIT_E_MEMORY : TACIT_OK);
    for (size_t at = 0; status == TACIT_OK && at < b->size_count; at++) status = measure_size(b, at, share, last_s);
    taciti_free(last_s);
    return status;
}

/* The all-reduce of this rank's group of a kind, placed as in a round of gossip: groups that share a link share its
 * flows. */
static tacit_status prepare_kind(bench *b, taciti_group_kind kind) {
    taciti_comm *comm = b->probe->comm;
    taciti_topology *grouping = &b->groupings[kind];
    TACITI_TRY(taciti_grouping_create(taciti_comm_hosts(comm), kind, grouping));
    const taciti_members members = taciti_grouping_of(grouping, b->probe->rank);
    if (members.count == 0) return TACIT_OK;
    const taciti_placement placement =
        taciti_mix_placement(taciti_comm_hosts(comm), &grouping->rounds[0], members,
                             (taciti_placement){.scheme = TACITI_SCHEME_AUTO, .lanes = 0});
    const taciti_encoding f32 = {.codec = taciti_codec_find("f32")};
    return taciti_allreduce_create(comm, &f32, members, placement, taciti_comm_segment_bytes(comm), &b->reduces[kind]);
}

/* Not collective. Pages are written once, so that none of them is the system's shared zero page. */
static tacit_status prepare_bench(bench *b) {
    const size_t longest = b->sizes[b->size_count - 1];
    for (int kind = 0; kind < TACITI_GROUP_KINDS; kind++) TACITI_TRY(prepare_kind(b, (taciti_group_kind)kind));
    b->requests = taciti_calloc((size_t)b->probe->size + SENDS, sizeof *b->requests);
    if (b->requests == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(taciti_pages_create(longest, "the probe's array", &b->x));
    TACITI_TRY(taciti_pages_create(longest, "the probe's scratch", &b->y));
    memset(b->x.base, 0, b->x.bytes);
    memset(b->y.base, 0, b->y.bytes);
    return TACIT_OK;
}

static tacit_status list_natives(taciti_comm *comm, void *context) { return taciti_comm_natives(comm, context); }

static void release_bench(bench *b) {
    for (int kind = 0; kind < TACITI_GROUP_KINDS; kind++) {
        if (b->groupings[kind].rounds != NULL && taciti_grouping_of(&b->groupings[kind], b->probe->rank).count > 0)
            taciti_allreduce_destroy(&b->reduces[kind]);
        taciti_topology_destroy(&b->groupings[kind]);
    }
    taciti_pages_destroy(&b->x);
    taciti_pages_destroy(&b->y);
    taciti_free(b->requests);
}

tacit_status taciti_probe_collectives(taciti_probe *probe, double share) {
    const bool quick = probe->options->quick;
    bench b = {.probe = probe,
               .sizes = quick ? QUICK_SIZES : SIZES,
               .size_count = quick ? sizeof QUICK_SIZES / sizeof *QUICK_SIZES : sizeof SIZES / sizeof *SIZES};
    tacit_status status = taciti_comm_agree(probe->comm, prepare_bench(&b));
    taciti_job job = {.run = list_natives, .context = &b.natives, .name = "list of the library's own", .detail = -1};
    if (status == TACIT_OK && probe->options->natives) status = taciti_probe_job(probe, &job);
    if (status == TACIT_OK) status = measure_all(&b, share);
    release_bench(&b);
    return status;
}

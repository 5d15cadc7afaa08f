/* SPDX-License-Identifier: Apache-2.0
 *
 * Each collective runs in phases: in phase k a member sends to the member k behind it and receives from the member k
 * before it, so that every link carries one message per direction at a time. All receives are posted first, so that no
 * message waits for its buffer.
 */
#include "exchange/group.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "exchange/outbox.h"
#include "kernel/kernel.h"

/* Sends under way: the next message's announcement travels while the one before it moves. */
enum { SENDS = 2, GRAIN = 16 };

static bool is_any_rank(const taciti_comm *comm, int me, int other) {
    (void)comm;
    (void)me;
    (void)other;
    return true;
}

static bool same_number(const taciti_comm *comm, int me, int other) {
    return taciti_comm_peer(comm, me)->local_rank == taciti_comm_peer(comm, other)->local_rank;
}

typedef bool member_test(const taciti_comm *comm, int me, int other);

static tacit_status collect_members(const taciti_comm *comm, member_test *is_member, taciti_group *out) {
    const int size = taciti_comm_size(comm), me = taciti_comm_rank(comm);
    taciti_group group = {.ranks = taciti_calloc((size_t)size, sizeof *group.ranks),
                          .requests = taciti_calloc((size_t)size + SENDS, sizeof *group.requests)};
    if (group.ranks == NULL || group.requests == NULL) {
        taciti_group_destroy(&group);
        return TACIT_E_MEMORY;
    }
    for (int r = 0; r < size; r++) {
        if (!is_member(comm, me, r)) continue;
        if (r == me) group.me = group.size;
        group.ranks[group.size++] = r;
    }
    *out = group;
    return TACIT_OK;
}

tacit_status taciti_group_world(const taciti_comm *comm, taciti_group *out) {
    return collect_members(comm, is_any_rank, out);
}

tacit_status taciti_group_host(const taciti_comm *comm, taciti_group *out) {
    return collect_members(comm, taciti_comm_same_host, out);
}

tacit_status taciti_group_cross(const taciti_comm *comm, taciti_group *out) {
    return collect_members(comm, same_number, out);
}

void taciti_group_destroy(taciti_group *group) {
    taciti_free(group->ranks);
    taciti_free(group->requests);
    *group = (taciti_group){0};
}

void taciti_group_chunk(const taciti_group *group, size_t n, int member, size_t *begin, size_t *end) {
    taciti_pool_part(n, GRAIN, member, group->size, begin, end);
}

/* Where the message to or from a member lies. */
typedef struct piece {
    const char *out;
    char *in;
    size_t out_bytes, in_bytes;
} piece;

/* Returns the messages to and from one member; a direction without bytes is not sent. */
typedef piece piece_of(const taciti_group *group, const void *context, int member);

/* All phases. */
static tacit_status exchange_pieces(taciti_comm *comm, const taciti_group *group, piece_of *find, const void *context) {
    const int size = group->size;
    taciti_outbox sends = {.comm = comm, .requests = group->requests + size, .window = SENDS};
    for (int k = 1; k < size; k++) {
        const int from = (group->me - k + size) % size;
        const piece p = find(group, context, from);
        if (p.in_bytes > 0)
            TACITI_TRY(taciti_comm_irecv(comm, group->ranks[from], p.in, p.in_bytes, &group->requests[from]));
    }
    for (int k = 1; k < size; k++) {
        const int to = (group->me + k) % size;
        const piece p = find(group, context, to);
        if (p.out_bytes > 0) TACITI_TRY(taciti_outbox_send(&sends, group->ranks[to], p.out, p.out_bytes));
    }
    TACITI_TRY(taciti_outbox_await(&sends, sends.posted));
    for (int k = 1; k < size; k++) {
        const int from = (group->me - k + size) % size;
        if (find(group, context, from).in_bytes > 0) TACITI_TRY(taciti_comm_await(comm, &group->requests[from]));
    }
    return TACIT_OK;
}

/* ---- reduce-scatter and all-gather ------------------------------------------------------------------------------- */
typedef struct floats {
    float *x, *scratch;
    size_t n, mine_n; /* mine_n: floats of my chunk */
    size_t mine;      /* where it begins */
} floats;

static floats view_floats(const taciti_group *group, float *x, size_t n, float *scratch) {
    floats f = {.x = x, .scratch = scratch, .n = n};
    size_t end = 0;
    taciti_group_chunk(group, n, group->me, &f.mine, &end);
    f.mine_n = end - f.mine;
    return f;
}

/* Where a member's contribution to my chunk lies in scratch; mine_n floats for each member but me. */
static float *contribution_of(const taciti_group *group, const floats *f, int member) {
    return f->scratch + (size_t)(member < group->me ? member : member - 1) * f->mine_n;
}

size_t taciti_group_scratch_n(const taciti_group *group, size_t n) {
    const size_t units = (n + GRAIN - 1) / GRAIN, size = (size_t)group->size;
    return (size - 1) * ((units + size - 1) / size) * GRAIN;
}

static piece scatter_piece(const taciti_group *group, const void *context, int member) {
    const floats *f = context;
    size_t begin = 0, end = 0;
    taciti_group_chunk(group, f->n, member, &begin, &end);
    return (piece){.out = (const char *)(f->x + begin),
                   .out_bytes = (end - begin) * sizeof(float),
                   .in = (char *)contribution_of(group, f, member),
                   .in_bytes = f->mine_n * sizeof(float)};
}

/* In the order of the group: own += sum of the members before me, then the members after me. */
tacit_status taciti_group_reduce_scatter(taciti_comm *comm, const taciti_group *group, float *x, size_t n,
                                         float *scratch) {
    const floats f = view_floats(group, x, n, scratch);
    TACITI_TRY(exchange_pieces(comm, group, scatter_piece, &f));
    if (f.mine_n == 0) return TACIT_OK;
    const taciti_kernels *kernels = taciti_kernels_get();
    for (int i = 1; i < group->me; i++)
        kernels->add(contribution_of(group, &f, 0), contribution_of(group, &f, i), f.mine_n);
    for (int i = 0; i < group->size; i++)
        if (i == 0 ? group->me > 0 : i > group->me) kernels->add(x + f.mine, contribution_of(group, &f, i), f.mine_n);
    return TACIT_OK;
}

static piece gather_piece(const taciti_group *group, const void *context, int member) {
    const floats *f = context;
    size_t begin = 0, end = 0;
    taciti_group_chunk(group, f->n, member, &begin, &end);
    return (piece){.out = (const char *)(f->x + f->mine),
                   .out_bytes = f->mine_n * sizeof(float),
                   .in = (char *)(f->x + begin),
                   .in_bytes = (end - begin) * sizeof(float)};
}

tacit_status taciti_group_all_gather(taciti_comm *comm, const taciti_group *group, float *x, size_t n) {
    const floats f = view_floats(group, x, n, NULL);
    return exchange_pieces(comm, group, gather_piece, &f);
}

/* ---- all-to-all -------------------------------------------------------------------------------------------------- */
static piece cell_of(const taciti_group *group, const void *context, int member) {
    (void)group;
    piece p = *(const piece *)context;
    p.out += (size_t)member * p.out_bytes;
    p.in += (size_t)member * p.in_bytes;
    return p;
}

tacit_status taciti_group_all_to_all(taciti_comm *comm, const taciti_group *group, const void *in, void *out,
                                     size_t bytes) {
    const piece p = {.out = in, .in = out, .out_bytes = bytes, .in_bytes = bytes};
    const size_t mine = (size_t)group->me * bytes;
    TACITI_TRY(exchange_pieces(comm, group, cell_of, &p));
    if (bytes > 0) memcpy((char *)out + mine, (const char *)in + mine, bytes);
    return TACIT_OK;
}

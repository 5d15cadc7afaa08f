/* SPDX-License-Identifier: Apache-2.0
 *
 * All-gather by J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems", IEEE TPDS 8(11), 1997, section 4.2: in the step of distance d a
 * rank sends all blocks it has (but not more than are missing) to the rank d positions before it. Any number of ranks.
 * A power of two of them swap their blocks in pairs instead (recursive doubling; R. Thakur, R. Rabenseifner, W. Gropp,
 * IJHPCA 19(1), 2005, section 4.1): as many steps, but each waits for one rank and not for two. 8 bytes on 4 emulated
 * hosts at 1 Gbit/s, in times of MPI_Allreduce, interleaved runs: 1.07 where Bruck takes 1.14; 2 ranks per
 * host 1.01, 1.34.
 *
 * Deviation: positions run host by host, so that the first steps stay inside hosts as far as possible.
 */
#include "exchange/small.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "exchange/payload.h"
#include "kernel/kernel.h"

#define MAX_BYTES ((size_t)16 << 10)

/* Seconds of the estimates: a message's way, the work of handling one, and a byte's time on a link. Between hosts as
 * measured with Open MPI's TCP at 1 Gbit/s on emulated hosts of 1 to 4 ranks that share two cores, which makes handling
 * dear: up to 4 KiB the gather took half of the time of halves.h or less. Inside a host through shared memory. */
typedef struct prices {
    double hop_s, message_s, byte_s;
} prices;

static const prices NETWORK = {.hop_s = 20e-6, .message_s = 30e-6, .byte_s = 8e-9};
static const prices MEMORY = {.hop_s = 1e-6, .message_s = 0.4e-6, .byte_s = 0.2e-9};

size_t taciti_small_max_n(const taciti_arrangement *arrangement) {
    return arrangement->size == 1 ? 0 : MAX_BYTES / sizeof(float);
}

bool taciti_small_takes(const taciti_encoding *encoding) {
    return taciti_codec_suits(encoding->codec, TACITI_USE_BY_OTHERS);
}

size_t taciti_small_memory_bytes(const taciti_encoding *encoding, const taciti_arrangement *arrangement) {
    if (arrangement->size == 1 || !taciti_small_takes(encoding)) return 0;
    const size_t max_n = taciti_small_max_n(arrangement);
    return ((size_t)arrangement->size + 2) * max_n * sizeof(float) +
           taciti_round_up(taciti_encoding_bound(encoding, max_n), TACITI_ALIGN_BYTES);
}

taciti_small taciti_small_of(taciti_comm *comm, const taciti_encoding *encoding, const taciti_arrangement *arrangement,
                             void *memory) {
    const size_t max_n = taciti_small_max_n(arrangement);
    taciti_small small = {.comm = comm, .encoding = encoding, .arrangement = arrangement, .blocks = memory};
    small.part = small.blocks + (size_t)arrangement->size * max_n;
    small.error = small.part + max_n;
    small.payload = (char *)(small.error + max_n);
    return small;
}

/* Blocks that travel in the step of distance d. */
static size_t blocks_of(int size, int d) { return (size_t)(d < size - d ? d : size - d); }

static bool is_power_of_two(int size) { return (size & (size - 1)) == 0; }

/* Whom a position sends to, and hears from, in the step of distance d. */
static int sends_to(int size, int at, int d) { return is_power_of_two(size) ? at ^ d : (at - d + size) % size; }
static int hears_from(int size, int at, int d) { return is_power_of_two(size) ? at ^ d : (at + d) % size; }

static tacit_status gather_blocks(taciti_small *small, size_t n) {
    const int size = small->arrangement->size, me = taciti_arrangement_position(small->arrangement);
    for (int d = 1; d < size; d *= 2) {
        const size_t bytes = blocks_of(size, d) * n * sizeof(float);
        const int to = small->arrangement->order[sends_to(size, me, d)],
                  from = small->arrangement->order[hears_from(size, me, d)];
        taciti_engine_request in, out;
        TACITI_TRY(taciti_comm_irecv(small->comm, from, small->blocks + (size_t)d * n, bytes, &in));
        TACITI_TRY(taciti_comm_isend(small->comm, to, small->blocks, bytes, &out));
        TACITI_TRY(taciti_comm_await(small->comm, &in));
        TACITI_TRY(taciti_comm_await(small->comm, &out));
    }
    return TACIT_OK;
}

/* Returns the block of a position: mine lies first, then those in the order in which they come. */
static float *block_at(const taciti_small *small, int at, size_t n) {
    const int size = small->arrangement->size, me = taciti_arrangement_position(small->arrangement);
    return small->blocks + (size_t)(is_power_of_two(size) ? at ^ me : (at - me + size) % size) * n;
}

/* One array that a wire would carry. */
typedef struct wire_part {
    const taciti_bucket_task *task;
    taciti_payload_kind kind;
    int rank; /* that would encode it */
    bool mine;
    float *spare; /* [n], may be overwritten; where the error is taken if it is mine */
} wire_part;

/* y[n] as it would come out of the wire; what it loses there is added to small->error if it is mine. */
static tacit_status pass_wire(taciti_small *small, float *y, size_t n, const wire_part *w) {
    const taciti_codec *codec = small->encoding->codec;
    taciti_payload payload = {.data = small->payload};
    if (small->arrangement->hosts == 1 || !taciti_encoding_encodes(small->encoding)) return TACIT_OK;
    const taciti_codec_call call = taciti_payload_call(small->encoding, w->task, w->rank, w->kind, 0);
    TACITI_TRY(taciti_payload_encode(small->comm, codec, &call, y, n, w->mine ? w->spare : NULL, &payload));
    if (w->mine) taciti_kernels_get()->add(small->error, w->spare, n);
    return codec->decode(codec, &call, payload.data, payload.bytes, y, n, false);
}

/* Host by host, as exchange.h defines it. */
static tacit_status add_up(taciti_small *small, float *x, size_t n, const taciti_bucket_task *task, bool keep) {
    const taciti_arrangement *p = small->arrangement;
    for (int h = 0; h < p->hosts; h++) {
        float *part = h == 0 ? x : small->part, *first = block_at(small, p->first[h], n);
        memcpy(part, first, n * sizeof *part);
        for (int at = p->first[h] + 1; at < p->first[h + 1]; at++)
            taciti_kernels_get()->add(part, block_at(small, at, n), n);
        const bool mine = keep && h == p->host && p->number == 0;
        const wire_part w = {task, TACITI_PAYLOAD_CONTRIBUTION, taciti_arrangement_rank(p, h, 0), mine, first};
        TACITI_TRY(pass_wire(small, part, n, &w));
        if (h > 0) taciti_kernels_get()->add(x, part, n);
    }
    const bool mine = keep && taciti_arrangement_position(p) == 0;
    const wire_part w = {task, TACITI_PAYLOAD_RESULT, p->order[0], mine, small->part};
    return pass_wire(small, x, n, &w);
}

tacit_status taciti_small_run(taciti_small *small, float *x, size_t n, const taciti_bucket_task *task, bool keep) {
    memcpy(small->blocks, x, n * sizeof *x);
    if (keep) memset(small->error, 0, n * sizeof *small->error);
    TACITI_TRY(gather_blocks(small, n));
    return add_up(small, x, n, task, keep);
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */
static const prices *prices_of(const taciti_arrangement *arrangement) {
    return arrangement->one_host ? &MEMORY : &NETWORK;
}

double taciti_small_cost_s(const taciti_arrangement *arrangement, size_t n) {
    const prices *p = prices_of(arrangement);
    double steps = 0;
    for (int d = 1; d < arrangement->size; d *= 2) steps++;
    return steps * (p->hop_s + p->message_s) + (double)(arrangement->size - 1) * (double)n * sizeof(float) * p->byte_s;
}

/* Two messages in a row, one to each and one from each; with hosts the same again inside of them. */
double taciti_small_halves_cost_s(const taciti_arrangement *arrangement, size_t n) {
    const prices *p = prices_of(arrangement);
    const double peers = arrangement->hosts - 1, local_peers = arrangement->size / arrangement->hosts - 1;
    const double inside = 2 * (local_peers > 0) * MEMORY.hop_s + 2 * local_peers * MEMORY.message_s;
    return 2 * (p->hop_s + peers * p->message_s) + inside +
           2 * peers / (peers + 1) * (double)n * sizeof(float) * p->byte_s;
}

bool taciti_small_pays(const taciti_arrangement *arrangement, size_t n) {
    return n <= taciti_small_max_n(arrangement) &&
           taciti_small_cost_s(arrangement, n) < taciti_small_halves_cost_s(arrangement, n);
}

void taciti_small_hops(const taciti_arrangement *arrangement, int *wire, int *local) {
    *wire = *local = 0;
    for (int d = 1; d < arrangement->size; d *= 2) {
        bool leaves = false;
        for (int at = 0; at < arrangement->size; at++)
            leaves = leaves || arrangement->host_of[at] != arrangement->host_of[sends_to(arrangement->size, at, d)];
        *(leaves ? wire : local) += 1;
    }
}

uint64_t taciti_small_bytes(const taciti_arrangement *arrangement, size_t n) {
    return (uint64_t)(arrangement->size - 1) * n * sizeof(float);
}

uint64_t taciti_small_local_bytes(const taciti_arrangement *arrangement, int at, size_t n) {
    uint64_t bytes = 0;
    for (int d = 1; d < arrangement->size; d *= 2)
        if (arrangement->host_of[at] == arrangement->host_of[sends_to(arrangement->size, at, d)])
            bytes += blocks_of(arrangement->size, d) * n * sizeof(float);
    return bytes;
}

void taciti_small_carry(const taciti_arrangement *arrangement, size_t n, double *out, double *in) {
    for (int at = 0; at < arrangement->size; at++)
        for (int d = 1; d < arrangement->size; d *= 2) {
            const int from = arrangement->host_of[at], to = arrangement->host_of[sends_to(arrangement->size, at, d)];
            const double bytes = (double)(blocks_of(arrangement->size, d) * n * sizeof(float));
            if (from == to) continue;
            out[from] += bytes;
            in[to] += bytes;
        }
}

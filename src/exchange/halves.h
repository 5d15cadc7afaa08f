/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter and all-gather of one array among some ranks, piece by piece. In every piece each member owns a range
 * of the array, which may be empty. Each half has a begin and an end, so that pieces can be pipelined:
 *
 *   scatter_begin   encodes the other members' ranges, sends each to its owner, posts the receives for the own range
 *   scatter_end     waits for the own range from all members and adds the payloads in the order of the members
 *   gather_begin    encodes the sum once, sends it to all, posts the receives for the other ranges
 *   gather_end      waits for the other ranges and decodes them
 *
 * With `whole`, payloads of whole arrays travel instead, and the second half does nothing:
 *
 *   scatter_begin   encodes the range once, sends it to all members, posts the receives from all
 *   scatter_end     waits for all members and adds the payloads in the order of the members
 *
 * Pieces of a short array travel together (taciti_cut.together): what is said of a piece then holds for such a group,
 * whose message to a member has the payloads of all its ranges in the order of the pieces:
 *
 *   bytes of each payload   4 each
 *   payloads                each followed by zeros to a multiple of 4
 *
 * The k-th send goes to the k-th member after this one (outbox.h). All members call the same functions in the same
 * order, so messages between two ranks match by their order. The functions block. Objects with different members do not
 * interfere.
 */
#ifndef TACITI_EXCHANGE_HALVES_H
#define TACITI_EXCHANGE_HALVES_H

#include "exchange/arrangement.h"
#include "exchange/outbox.h"
#include "exchange/residual.h"

/* Which part of a piece a member owns; with `whole`, which part this rank's lane exchanges, for every member. */
typedef taciti_range taciti_halves_range(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece,
                                         int member);

typedef struct taciti_halves_shape {
    const taciti_encoding *encoding;       /* borrows */
    const taciti_arrangement *arrangement; /* borrows */
    taciti_halves_range *range;
    int count, me;
    bool whole;      /* every payload goes to all members; otherwise each to the owner of its range */
    bool between;    /* payloads are counted in the task's tallies */
    size_t range_n;  /* floats of the longest range */
    size_t together; /* maximum of taciti_cut.together */
    size_t slots;    /* pieces between begin and end of either half, plus one */
    size_t lag;      /* pieces between scatter_end and gather_begin */
    size_t window;   /* sends under way */
} taciti_halves_shape;

typedef struct taciti_halves {
    taciti_comm *comm; /* borrows */
    taciti_halves_shape shape;
    int *ranks; /* [count]; owned */
    size_t stride_bytes;
    char *memory;   /* borrows; all buffers, one after the other */
    char *arriving; /* [slots][count] payloads of the own range, by member */
    char *leaving;  /* [slots][count] payloads for the members, this one included; whole: [slots] of the own range */
    char *sum;      /* [slots] payload of the own range's sum; whole: NULL, like the next */
    char *sums;     /* [slots][count] payloads of the other ranges' sums */
    char *scratch;  /* of the codec. If the codec is the identity, this and the three before are NULL */
    size_t *own;    /* [slots] bytes of this rank's payload; part of the block of `scattered` */
    taciti_engine_request *scatter_in, *gather_in; /* [slots][count]; one block, owned by scatter_in */
    taciti_outbox sends;                           /* its requests are part of the same block */
    size_t *scattered, *gathered; /* [slots + lag], [slots]: sends.posted after that piece; owned by `scattered` */
} taciti_halves;

/* One piece of an array, or the first one of those that travel together. */
typedef struct taciti_piece {
    float *x;
    const taciti_bucket_task *task;
    taciti_residual *residual; /* of what this rank encodes; NULL: encoding errors are lost */
    const taciti_cut *cut;
    size_t piece;
} taciti_piece;

/* Bytes of workspace. */
size_t taciti_halves_memory_bytes(const taciti_halves_shape *shape);

/* Copies ranks[count]. memory: the workspace, borrowed; zeroed, or used before by an object that has finished. An
 * object with one member has no workspace, and its functions do nothing. Not collective. */
tacit_status taciti_halves_create(taciti_comm *comm, const taciti_halves_shape *shape, const int *ranks, void *memory,
                                  taciti_halves *out);
void taciti_halves_destroy(taciti_halves *halves);

tacit_status taciti_scatter_begin(taciti_halves *halves, const taciti_piece *t);
tacit_status taciti_scatter_end(taciti_halves *halves, const taciti_piece *t);
tacit_status taciti_gather_begin(taciti_halves *halves, const taciti_piece *t);
tacit_status taciti_gather_end(taciti_halves *halves, const taciti_piece *t);

/* Adds to the task's tallies what the codec would see in this rank's contributions to that piece, which
 * are sent by other means. No run may be under way. */
tacit_status taciti_halves_observe(taciti_halves *halves, const taciti_piece *t);

/* Blocks until the sends of gather_begin for that piece have completed. Call it at most slots - 1 pieces later. */
tacit_status taciti_gather_await_sent(taciti_halves *halves, const taciti_piece *t);

/* Blocks until all sends have completed. The caller may access the array afterwards. */
tacit_status taciti_halves_finish(taciti_halves *halves);

/* Payload bytes that `member` sends for one piece in both halves: the mean at these settings[TACITI_PAYLOAD_KINDS].
 * NULL: exact, or the maximum if the codec's payloads vary in size. */
double taciti_halves_bytes(const taciti_halves_shape *shape, const taciti_cut *cut, size_t piece, int member,
                           const taciti_codec_setting *settings);

#endif

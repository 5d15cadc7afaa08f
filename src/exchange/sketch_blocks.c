/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranges of blocks, and messages between members.
 */
#include <string.h>

#include "exchange/sketch_bucket.h"

typedef taciti_sketch_bucket bucket;

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

size_t taciti_sketch_block_count(const taciti_allreduce *reduce, const taciti_cut *cut) {
    const size_t ranges = (size_t)reduce->arrangement.hosts * (size_t)reduce->arrangement.lanes;
    const size_t chunk_n = cut->piece_n / ranges, fit = chunk_n > 0 ? TACITI_SKETCH_BLOCK_N / chunk_n : 1;
    const size_t few = fit < TACITI_SKETCH_BLOCK_PIECES ? fit : TACITI_SKETCH_BLOCK_PIECES, max = few > 1 ? few : 1;
    return (cut->pieces + max - 1) / max;
}

/* No block is short: small sketches fail more often. */
taciti_sketch_pieces taciti_sketch_pieces_of(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block) {
    const size_t blocks = taciti_sketch_block_count(reduce, cut);
    return (taciti_sketch_pieces){.first = cut->pieces * block / blocks, .end = cut->pieces * (block + 1) / blocks};
}

size_t taciti_sketch_owned_n(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block, int owner) {
    const taciti_sketch_pieces p = taciti_sketch_pieces_of(reduce, cut, block);
    size_t n = 0;
    for (size_t i = p.first; i < p.end; i++) n += taciti_sketch_range(reduce, cut, i, owner).n;
    return n;
}

bool taciti_sketch_is_one_range(const bucket *b, size_t block, int owner, size_t *first) {
    const taciti_sketch_pieces p = taciti_sketch_pieces_of(b->s->reduce, b->cut, block);
    size_t end = *first = taciti_sketch_range(b->s->reduce, b->cut, p.first, owner).at;
    for (size_t i = p.first; i < p.end; i++) {
        const taciti_range r = taciti_sketch_range(b->s->reduce, b->cut, i, owner);
        if (r.n > 0 && r.at != end) return false;
        end += r.n;
    }
    return true;
}

void taciti_sketch_gather(const bucket *b, size_t block, int owner, const float *x, float *out) {
    const taciti_sketch_pieces p = taciti_sketch_pieces_of(b->s->reduce, b->cut, block);
    for (size_t i = p.first; i < p.end; i++) {
        const taciti_range r = taciti_sketch_range(b->s->reduce, b->cut, i, owner);
        memcpy(out, x + r.at, r.n * sizeof *x);
        out += r.n;
    }
}

void taciti_sketch_scatter(const bucket *b, size_t block, int owner, const float *from, float *x) {
    const taciti_sketch_pieces p = taciti_sketch_pieces_of(b->s->reduce, b->cut, block);
    for (size_t i = p.first; i < p.end; i++) {
        const taciti_range r = taciti_sketch_range(b->s->reduce, b->cut, i, owner);
        memcpy(x + r.at, from, r.n * sizeof *x);
        from += r.n;
    }
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

size_t taciti_sketch_values_bytes(const taciti_sketch_share *share) {
    return share->reply.pending * TACITI_SKETCH_NUMBER_BYTES;
}

tacit_status taciti_sketch_send(bucket *b, int member, const void *bytes, size_t count) {
    if (b->tally != NULL) b->tally->bytes += count;
    return taciti_outbox_send(&b->s->sends, b->s->ranks[member], bytes, count);
}

tacit_status taciti_sketch_refused(const bucket *b, tacit_status status, int member) {
    if (status == TACIT_OK) return status;
    return taciti_fail(status, "bucket %zu of step %" PRId64 ": what rank %d sent of a sum of sketches is malformed",
                       b->task->bucket, b->task->step, b->s->ranks[member]);
}

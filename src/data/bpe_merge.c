/* SPDX-License-Identifier: Apache-2.0
 *
 * The merging: symbols are a linked list over an array, candidate pairs a heap ordered by (rank, position), so a piece
 * of n bytes takes n log n steps whatever it holds. A heap entry is stale when its node is gone or now has another
 * rank.
 *
 * The reference finishes all occurrences of a pair before it looks at new pairs. A merge can create a pair of lower
 * rank (when another rule also makes one of its sides), so such pairs wait until the current rank is done.
 */
#include "data/bpe.h"

#include "base/memory.h"
#include "base/rng.h"

#define NONE UINT32_MAX

enum { MIN_CAPACITY = 256 };

const taciti_bpe_merge *taciti_bpe_find(const taciti_bpe *bpe, int32_t left, int32_t right) {
    size_t slot = (size_t)taciti_mix64((uint64_t)(uint32_t)left << 32 | (uint32_t)right) & bpe->mask;
    for (;; slot = (slot + 1) & bpe->mask) {
        const taciti_bpe_merge *merge = &bpe->merges[slot];
        if (merge->rank == TACITI_BPE_NO_RANK || (merge->left == left && merge->right == right)) return merge;
    }
}

static void scratch_free(taciti_bpe_scratch *scratch) {
    taciti_free(scratch->nodes);
    taciti_free(scratch->heap);
    taciti_free(scratch->deferred);
}

void taciti_bpe_scratch_destroy(taciti_bpe_scratch *scratch) {
    scratch_free(scratch);
    *scratch = (taciti_bpe_scratch){0};
}

static tacit_status reserve_scratch(taciti_bpe_scratch *scratch, size_t bytes) {
    if (bytes <= scratch->capacity) return TACIT_OK;
    size_t capacity = MIN_CAPACITY;
    while (capacity < bytes) capacity *= 2;
    taciti_bpe_scratch grown = {.nodes = taciti_calloc(capacity, sizeof(taciti_bpe_node)),
                                .heap = taciti_calloc(3 * capacity, sizeof(uint64_t)),
                                .deferred = taciti_calloc(2 * capacity, sizeof(uint64_t)),
                                .capacity = capacity};
    if (grown.nodes == NULL || grown.heap == NULL || grown.deferred == NULL) {
        scratch_free(&grown);
        return TACIT_E_MEMORY;
    }
    scratch_free(scratch);
    *scratch = grown;
    return TACIT_OK;
}

static void heap_push(taciti_bpe_scratch *s, uint64_t entry) {
    size_t at = s->heap_count++;
    for (; at > 0 && s->heap[(at - 1) / 2] > entry; at = (at - 1) / 2) s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = entry;
}

static uint64_t heap_pop(taciti_bpe_scratch *s) {
    const uint64_t top = s->heap[0], last = s->heap[--s->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < s->heap_count; at = child) {
        if (child + 1 < s->heap_count && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = last;
    return top;
}

/* Looks up the pair that begins at `node` and queues it; pairs below `floor` wait until that rank is done. */
static void queue_pair(const taciti_bpe *bpe, taciti_bpe_scratch *s, uint32_t node, uint32_t floor) {
    taciti_bpe_node *n = &s->nodes[node];
    n->rank = TACITI_BPE_NO_RANK;
    if (n->next == NONE) return;
    const taciti_bpe_merge *merge = taciti_bpe_find(bpe, n->id, s->nodes[n->next].id);
    if (merge->rank == TACITI_BPE_NO_RANK) return;
    n->rank = merge->rank;
    n->merged = merge->merged;
    const uint64_t entry = (uint64_t)merge->rank << 32 | node;
    if (merge->rank < floor)
        s->deferred[s->deferred_count++] = entry;
    else
        heap_push(s, entry);
}

static void begin_piece(const taciti_bpe *bpe, taciti_bpe_scratch *s, const char *text, size_t bytes) {
    s->heap_count = s->deferred_count = 0;
    for (size_t i = 0; i < bytes; i++)
        s->nodes[i] = (taciti_bpe_node){.id = bpe->byte_ids[(unsigned char)text[i]],
                                        .prev = i == 0 ? NONE : (uint32_t)(i - 1),
                                        .next = i + 1 == bytes ? NONE : (uint32_t)(i + 1)};
    for (size_t i = 0; i < bytes; i++) queue_pair(bpe, s, (uint32_t)i, 0);
}

static void merge_at(const taciti_bpe *bpe, taciti_bpe_scratch *s, uint32_t node, uint32_t rank) {
    taciti_bpe_node *n = &s->nodes[node], *gone = &s->nodes[n->next];
    n->id = n->merged;
    n->next = gone->next;
    gone->rank = TACITI_BPE_NO_RANK;
    if (n->next != NONE) s->nodes[n->next].prev = node;
    queue_pair(bpe, s, node, rank);
    if (n->prev != NONE) queue_pair(bpe, s, n->prev, rank);
}

tacit_status taciti_bpe_merge_piece(const taciti_bpe *bpe, taciti_bpe_scratch *scratch, const char *text, size_t bytes,
                                    int32_t *ids, size_t *count) {
    const tacit_status status = reserve_scratch(scratch, bytes);
    if (status != TACIT_OK) return status;
    begin_piece(bpe, scratch, text, bytes);
    while (scratch->heap_count > 0) {
        const uint32_t rank = (uint32_t)(scratch->heap[0] >> 32);
        while (scratch->heap_count > 0 && (uint32_t)(scratch->heap[0] >> 32) == rank) {
            const uint32_t node = (uint32_t)heap_pop(scratch);
            if (scratch->nodes[node].rank == rank) merge_at(bpe, scratch, node, rank);
        }
        while (scratch->deferred_count > 0) heap_push(scratch, scratch->deferred[--scratch->deferred_count]);
    }
    size_t n = 0;
    for (uint32_t node = 0; node != NONE; node = scratch->nodes[node].next) ids[n++] = scratch->nodes[node].id;
    *count = n;
    return TACIT_OK;
}

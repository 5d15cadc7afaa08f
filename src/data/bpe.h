/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding as in GPT-2 (Sennrich et al. 2016; Radford et al. 2019, encoder.py). A piece of text starts as one
 * symbol per byte. The adjacent pair with the lowest rank is merged everywhere in the piece, from left to right; this
 * repeats until no pair is in the list of merges.
 */
#ifndef TACITI_DATA_BPE_H
#define TACITI_DATA_BPE_H

#include "tacit/tacit.h"

#define TACITI_BPE_NO_RANK UINT32_MAX

/* One slot of the hash table of merges: maps (left id, right id) to the rank and the id of the result. */
typedef struct taciti_bpe_merge {
    int32_t left, right, merged;
    uint32_t rank; /* line in merges.txt; NO_RANK: an empty slot */
} taciti_bpe_merge;

typedef struct taciti_bpe {
    int32_t vocabulary;
    char *pieces;    /* bytes of all ids one after the other; owned */
    size_t *offsets; /* vocabulary + 1 of them; owned */
    int32_t byte_ids[256];
    taciti_bpe_merge *merges; /* hash table of `mask` + 1 slots; owned */
    size_t mask;
} taciti_bpe;

/* Loads vocab.json, {"token": id, ...} with every id of 0 .. n-1 exactly once and all 256 bytes among the tokens, and
 * merges.txt, an optional first line "#version ..." and one pair per line, lowest rank first, whose sides and result
 * must be tokens. The message of E_DATA names file, line and error. */
tacit_status taciti_bpe_load(const char *vocab_path, const char *merges_path, taciti_bpe *out);
void taciti_bpe_destroy(taciti_bpe *bpe); /* {0} is fine */

/* Returns the slot of a pair. Its rank is TACITI_BPE_NO_RANK if the pair is not in the list. */
const taciti_bpe_merge *taciti_bpe_find(const taciti_bpe *bpe, int32_t left, int32_t right);

/* Scratch memory for merging one piece; grows as needed. */
typedef struct taciti_bpe_node {
    int32_t id, merged; /* merged: what this node and the next would become */
    uint32_t prev, next;
    uint32_t rank; /* of the pair (this, next) */
} taciti_bpe_node;

typedef struct taciti_bpe_scratch {
    taciti_bpe_node *nodes; /* capacity of them; owned */
    uint64_t *heap;         /* rank << 32 | node; 3 * capacity; owned */
    uint64_t *deferred;     /* 2 * capacity; owned */
    size_t capacity;        /* longest piece so far, in bytes */
    size_t heap_count, deferred_count;
} taciti_bpe_scratch;

void taciti_bpe_scratch_destroy(taciti_bpe_scratch *scratch);

/* Computes the ids of one piece of 1 .. UINT32_MAX - 1 bytes; `ids` has room for one id per byte. O(n log n) in the
 * bytes. */
tacit_status taciti_bpe_merge_piece(const taciti_bpe *bpe, taciti_bpe_scratch *scratch, const char *text, size_t bytes,
                                    int32_t *ids, size_t *count);

#endif

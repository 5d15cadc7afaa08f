/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of strategy shard, private to this folder.
 *
 * Every bucket of the layout belongs to one unit, and every rank owns one range of each bucket. A unit's parameters are
 * complete on this rank while it is PRESENT. Between steps what counts are the parameters in a rank's own ranges: the
 * MASTERS. They are an array of their own where ranks compute with something less exact.
 *
 * Gathers, decided for each unit when one begins:
 *
 *   whole     the masters in shard.gather
 *   values    the masters through compress.gather: stage 3, where nothing of a unit stays in memory
 *   changes   masters - parameters through compress.gather, added to the parameters on all ranks, the owner included:
 *             what one gather has lost is part of the next. Stages 1 and 2
 */
#ifndef TACITI_STRATEGY_SHARD_H
#define TACITI_STRATEGY_SHARD_H

#include "strategy/strategy.h"

enum { TACITI_SHARD_F32, TACITI_SHARD_BF16 };

typedef struct taciti_shard_options {
    int64_t stage; /* shard.stage: 0: dp; 1: moments; 2: and gradients; 3: and parameters in parts */
    int gather;    /* shard.gather: number format in which parameters travel */
} taciti_shard_options;
extern const taciti_option_table taciti_shard_option_table; /* section "shard" */

typedef enum taciti_unit_state {
    TACITI_UNIT_ABSENT, /* what others own is old, or not in memory */
    TACITI_UNIT_GATHERING,
    TACITI_UNIT_PRESENT,
} taciti_unit_state;

typedef enum taciti_unit_gather {
    TACITI_GATHERS_WHOLE,
    TACITI_GATHERS_VALUES,
    TACITI_GATHERS_CHANGES
} taciti_unit_gather;

typedef struct taciti_shard_unit {
    taciti_range floats;
    size_t first, count; /* buckets */
    taciti_unit_state state;
    taciti_unit_gather gather; /* the last one */
    int users;                 /* needs without release */
    bool writable;             /* all of its gradients are in memory */
    size_t gathered;           /* in this step */
    size_t per_step;           /* gathers of the last step; before the first an estimate */
} taciti_shard_unit;

typedef struct taciti_shard {
    taciti_strategy_context context;
    taciti_shard_options options;
    taciti_exchange_options reduce_options, gather_options;
    taciti_compress_options coded_options;
    taciti_compression *reduce; /* of gradients */
    taciti_exchange *gather;    /* as a whole; owned, like the next */
    taciti_compression *coded;  /* of what compress.gather compresses; NULL: nothing */
    taciti_pages masters;       /* in this rank's own ranges; no base: they are the parameters */
    taciti_pages changes;       /* of stages 1 and 2; no base: there are none */
    bool whole;            /* all units are gathered as a whole until the next update: others' parameters are old */
    bool coded_begun;      /* since coded was settled */
    double gathered_bytes; /* mean over ranks, through coded since the last update */
    char gather_event[2 * TACITI_DECISION_BYTES]; /* what the last step has decided about gathers; empty: nothing */
    int64_t step;
    uint8_t *saved; /* for checkpoints: [unit_count] the unit is PRESENT, then `whole`; part of the block of `units` */
    taciti_shard_unit *units; /* [unit_count]; owned */
    taciti_range *own;        /* [bucket_count] of the flat array; owned */
    bool *begun, *drained;    /* [bucket_count] of the reductions of this step; owned by begun */
    bool started;
    int64_t wait_ns; /* blocked in need() and write() in this step */

    /* The units that a step needs, in this order, recorded in the first step. */
    size_t *order; /* owned */
    size_t order_count, order_capacity, position;
    bool recorded;
} taciti_shard;

/* What ranks compute with is not what they update. */
static inline bool taciti_shard_has_masters(const taciti_strategy_context *context) {
    return ((const taciti_shard_options *)context->options)->gather != TACITI_SHARD_F32 ||
           context->compression.gather != NULL;
}
static inline bool taciti_shard_sends_changes(const taciti_strategy_context *context) {
    return ((const taciti_shard_options *)context->options)->stage < 3 && context->compression.gather != NULL;
}

/* The array that this rank updates and saves. */
static inline float *taciti_shard_masters(const taciti_shard *s) {
    return s->masters.base != NULL ? s->masters.base : s->context.parameters;
}

/* The range of a bucket that `rank` owns among `size` ranks. */
taciti_range taciti_shard_owned(const taciti_bucket *bucket, int rank, int size);

/* The arrays that are held in parts: their pages are given back. */
static inline bool taciti_shard_drops_parameters(const taciti_shard *s) {
    return s->options.stage >= 3 && s->context.by_units && s->context.parameter_pages != NULL;
}
static inline bool taciti_shard_drops_gradients(const taciti_shard *s) {
    return s->options.stage >= 2 && s->context.by_units && s->context.gradient_pages != NULL;
}

/* shard_options.c: refuses a compression that has no meaning in parts. */
tacit_status taciti_shard_check(const taciti_shard_options *options, const taciti_compression_setup *compression);

/* What auto compresses gathers with: changes allow fewer bits than values. */
const char *taciti_shard_gather_codec(const void *options);

/* shard_units.c: parameters. forget: what others own is old from now on. ahead: begins the first gathers of the next
 * step, or all of them if the network does not ask for units. */
tacit_status taciti_shard_need(void *self, size_t unit);
void taciti_shard_release(void *self, size_t unit);
tacit_status taciti_shard_forget(taciti_shard *s);
tacit_status taciti_shard_settle_gathers(taciti_shard *s); /* collective */
tacit_status taciti_shard_ahead(taciti_shard *s);
void taciti_shard_drop(const taciti_shard *s, const taciti_pages *pages, const taciti_shard_unit *unit);

/* Floats of units that may be gathered at once in stage 3: two neighbours, and all that are small. */
size_t taciti_shard_room(const taciti_layout *layout);

/* shard_memory.c: predictions, and bytes on the wire. gathers: of a unit in a step, if the network asks for units as a
 * transformer does: for both passes, but the last layer keeps its unit between them, and the embedding is needed again
 * only where it is the head as well. */
size_t taciti_shard_gathers(const taciti_layout *layout, size_t unit, int64_t stage);
void taciti_shard_memory(const taciti_strategy_context *context, size_t passes, taciti_strategy_memory *out);
tacit_status taciti_shard_predict_bytes(const taciti_strategy_context *context, size_t *out);
uint64_t taciti_shard_reduce_bytes(const taciti_shard *s); /* of this rank; the maximum if payloads vary in size */
uint64_t taciti_shard_gather_bytes(const taciti_shard *s);
tacit_status taciti_shard_patterns(const void *options, taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count);
uint64_t taciti_shard_bytes_per_step(const void *self);
uint64_t taciti_shard_nic_bytes_per_step(const void *self);
taciti_exchange_options taciti_shard_reduce_options(const taciti_exchange_options *options);
taciti_exchange_options taciti_shard_gather_options(const taciti_exchange_options *options, int gather);

#endif

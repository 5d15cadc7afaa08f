/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of strategy shard, private to this folder.
 *
 * Every bucket of the layout belongs to one unit, and every rank owns one range of each bucket: shard.over all ranks,
 * or the ranks of a host, and then its replicas on the other hosts own it, too. Sums and gathers follow the arrangement
 * of the exchange (exchange/arrangement.h): where hosts have several ranks each, data crosses a host's link once.
 *
 * A unit's parameters are complete on this rank while it is PRESENT. Between steps what counts are the parameters in a
 * rank's own ranges: the MASTERS. They are an array of their own where ranks compute with something less exact.
 *
 * Gathers, decided for each unit when one begins:
 *
 *   whole     the masters in shard.gather
 *
 *   values    the masters through compress.gather: stage 3, where nothing of a unit stays in memory
 *
 *   share     from the ranks of this host alone: with shard.over host, and where a gather before has left this rank's
 *             share of the unit (shard.secondary)
 *
 *   changes   masters - parameters through compress.gather, added to the parameters on all ranks, the owner included:
 *             what one gather has lost is part of the next. Stages 1 and 2
 */
#ifndef TACITI_STRATEGY_SHARD_H
#define TACITI_STRATEGY_SHARD_H

#include "strategy/strategy.h"

enum { TACITI_SHARD_F32, TACITI_SHARD_BF16 };
enum { TACITI_SHARD_OVER_ALL, TACITI_SHARD_OVER_HOST };

typedef struct taciti_shard_options {
    int64_t stage;  /* shard.stage: 1: moments; 2: and gradients; 3: and parameters in parts */
    int gather;     /* shard.gather: number format in which parameters travel */
    int over;       /* shard.over: whose ranks hold the parts of a model */
    bool secondary; /* shard.secondary: gathers of the backward pass stay inside hosts */
} taciti_shard_options;
extern const taciti_option_table taciti_shard_option_table; /* section "shard" */

typedef enum taciti_unit_state {
    TACITI_UNIT_ABSENT, /* what others own is old, or not in memory */
    TACITI_UNIT_GATHERING,
    TACITI_UNIT_PRESENT,
} taciti_unit_state;

typedef enum taciti_unit_gather {
    TACITI_GATHERS_WHOLE,
    TACITI_GATHERS_SHARE,
    TACITI_GATHERS_VALUES,
    TACITI_GATHERS_CHANGES
} taciti_unit_gather;

typedef struct taciti_shard_unit {
    taciti_range floats;
    size_t first, count; /* buckets */
    taciti_unit_state state;
    taciti_unit_gather gather; /* the last one */
    bool through_coded;        /* it went through taciti_shard.coded */
    bool shared;               /* this rank's share of its parameters is in memory, and as new as they are */
    int users;                 /* needs without release */
    bool writable;             /* all of its gradients are in memory */
    size_t gathered;           /* in this step */
    size_t per_step;           /* gathers of the last step; before the first an estimate */
} taciti_shard_unit;

/* One of `count` ranges of every bucket; index -1: none. */
typedef struct taciti_shard_part {
    int index, count;
} taciti_shard_part;

/* Where a rank stands. */
typedef struct taciti_shard_place {
    taciti_shard_part own;    /* what it updates */
    taciti_shard_part single; /* the same, but no other rank has it: part of `own` */
    taciti_shard_part share;  /* what the ranks of its host have of all hosts' parts */
} taciti_shard_place;

typedef struct taciti_shard {
    taciti_strategy_context context;
    taciti_shard_options options;
    taciti_arrangement arrangement;
    taciti_shard_place place;
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
    taciti_range *own;        /* [bucket_count] of the flat array: place.own; owned */
    taciti_range *single;     /* [bucket_count] place.single; part of the block of `own` */
    bool *begun, *drained;    /* [bucket_count] of the reductions of this step; owned by begun */
    bool started;
    bool filled;       /* a checkpoint's parameters are in the array of "model" */
    int64_t wait_ns;   /* blocked in gathers and sums, not yet in a report */
    int64_t behind_ns; /* of it, in the gather behind the last update */

    /* The units that a step needs, in this order, recorded in the first step. */
    size_t *order; /* owned */
    size_t order_count, position;
    bool recorded;
} taciti_shard;

/* Whether ranks update other arrays than those with which they compute. */
static inline bool taciti_shard_has_masters(const taciti_strategy_context *context) {
    return ((const taciti_shard_options *)context->options)->gather != TACITI_SHARD_F32 ||
           context->compression.gathers.codec != NULL;
}
static inline bool taciti_shard_sends_changes(const taciti_strategy_context *context) {
    return ((const taciti_shard_options *)context->options)->stage < 3 && context->compression.gathers.codec != NULL;
}

/* The array that this rank updates and saves. */
static inline float *taciti_shard_masters(const taciti_shard *s) {
    return s->masters.base != NULL ? s->masters.base : s->context.parameters;
}

static inline bool taciti_shard_is_over_host(const taciti_strategy_context *context) {
    return ((const taciti_shard_options *)context->options)->over == TACITI_SHARD_OVER_HOST;
}

/* shard_places.c. Returns the range of a bucket that is this part; offsets count in the flat array. */
taciti_range taciti_shard_range(const taciti_bucket *bucket, taciti_shard_part part);

/* One range per rank and bucket; every rank that can be a lane is one, so that all own something. */
taciti_placement taciti_shard_placement(const taciti_hosts *hosts, taciti_placement requested);
/* The same, by hosts whatever is requested: shard.over host, shard.secondary. */
taciti_placement taciti_shard_placement_by_hosts(const taciti_hosts *hosts, taciti_placement requested);
taciti_exchange_options taciti_shard_reduce_options(const taciti_strategy_context *context);
taciti_exchange_options taciti_shard_gather_options(const taciti_strategy_context *context);
taciti_phase taciti_shard_reduce_phase(const taciti_shard_options *options); /* of an all-reduce */

/* Which ranks talk to which, as this rank sees it. The caller destroys it. */
tacit_status taciti_shard_arrange(const taciti_strategy_context *context, taciti_arrangement *out);
/* Return the part that lane `number` of a host has and no other rank has; and the part that it has for its host. */
taciti_shard_part taciti_shard_part_of(const taciti_arrangement *arrangement, int host, int number);
taciti_shard_part taciti_shard_share_of(const taciti_arrangement *arrangement, int number);
taciti_shard_place taciti_shard_place_of(const taciti_arrangement *arrangement, const taciti_shard_options *options);

/* The arrays that are held in parts: their pages are given back. */
static inline bool taciti_shard_drops_parameters(const taciti_shard *s) {
    return s->options.stage >= 3 && s->context.by_units && s->context.parameter_pages != NULL;
}
static inline bool taciti_shard_drops_gradients(const taciti_shard *s) {
    return s->options.stage >= 2 && s->context.by_units && s->context.gradient_pages != NULL;
}

/* shard_options.c: refuses what has no meaning in parts, and parts that these hosts cannot have. */
tacit_status taciti_shard_check(const taciti_strategy_context *context, const taciti_hosts *hosts);

/* shard_units.c: parameters. forget: what others own is old from now on. ahead: begins the first gathers of the next
 * step, or all of them if the network does not ask for units. */
tacit_status taciti_shard_need(void *self, size_t unit);
void taciti_shard_release(void *self, size_t unit);
tacit_status taciti_shard_forget(taciti_shard *s);
tacit_status taciti_shard_settle_gathers(taciti_shard *s); /* collective */
tacit_status taciti_shard_ahead(taciti_shard *s);
/* Gives back a unit's pages but those with floats of `keep`. */
void taciti_shard_drop(const taciti_pages *pages, const taciti_shard *s, const taciti_shard_unit *unit,
                       taciti_shard_part keep);

/* Floats of units that may be gathered at once in stage 3: two neighbours, and all that are small. */
size_t taciti_shard_room(const taciti_layout *layout);

/* shard_memory.c: predictions. gathers: of a unit in a step, if the network asks for units as a
 * transformer does: for both passes, but the last layer keeps its unit between them, and the embedding is needed again
 * only where it is the head as well. */
size_t taciti_shard_gathers(const taciti_layout *layout, size_t unit, int64_t stage);
void taciti_shard_memory(const taciti_strategy_context *context, size_t passes, taciti_strategy_memory *out);
tacit_status taciti_shard_predict_bytes(const taciti_strategy_context *context, size_t *out); /* of create() */
void taciti_shard_memory_of_parts(const taciti_parts *parts, const taciti_layout *layout,
                                  const taciti_optim_options *optim, const taciti_arrangement *arrangement,
                                  taciti_strategy_memory *out);

/* shard_patterns.c */
tacit_status taciti_shard_patterns(const void *options, const taciti_hosts *hosts,
                                   taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count);

/* shard_traffic.c: bytes on the wire. */
uint64_t taciti_shard_reduce_bytes(const taciti_shard *s); /* of this rank; the maximum if payloads vary in size */
uint64_t taciti_shard_gather_bytes(const taciti_shard *s);
tacit_status taciti_shard_describe(const taciti_strategy_context *context, const void *self,
                                   taciti_strategy_figures *out);

#endif
